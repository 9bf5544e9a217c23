/* tui/cli/lib/server_flags.h - URL, credentials, certificates and timeout: the flags of every command that
 * talks to a server. */
#ifndef QDYNO_CLI_TARGET_H
#define QDYNO_CLI_TARGET_H

#include "telemetry/http/http.h"
#include "tui/cli/cli.h"

/* Rows for a command's flag table, which adds its own row for the URL. VARIABLES: a literal prefix of
 * environment variables, e.g. "QDYNO_PUSH". Secrets are never arguments, because the process list shows
 * arguments to every user. TIMEOUT_HELP: what --timeout limits. */
/* clang-format off */
#define TARGET_FLAGS(VARIABLES, TIMEOUT_HELP)                                                                              \
    { .name = "--user", .login = true, .value = "NAME",                                                                     \
      .help = "user of basic authentication; password: --password-file or " VARIABLES "_PASSWORD" },                   \
    { .name = "--password-file", .login = true, .value = "FILE", .help = "file with the password of --user" },                            \
    { .name = "--bearer-file", .login = true, .value = "FILE", .help = "file with a bearer token (also: " VARIABLES "_BEARER)" },                 \
    { .name = "--ca", .login = true, .value = "FILE", .help = "certificate of the authority to trust" },                           \
    { .name = "--cert", .login = true, .value = "FILE", .help = "client certificate" },                                     \
    { .name = "--key", .login = true, .value = "FILE", .help = "private key of --cert" },                                              \
    { .name = "--insecure", .login = true, .help = "do not check the server's certificate" },                               \
    { .name = "--insecure-credentials", .login = true,                                                                      \
      .help = "send password or token to another host also over http or with --insecure, where others can "   \
              "read them (also: QDYNO_INSECURE_CREDENTIALS=1)" },                                            \
    { .name = "--timeout", .value = "TIME", .kind = FLAG_SECONDS,                                            \
      .help = TIMEOUT_HELP "; default 10s" }
#define TIMEOUT_OF_REQUEST "give up when the server does not answer in this time"
/* clang-format on */

struct target {
    const char *url; /* borrowed from argv or the environment; NULL: not given */
    struct http_auth auth;
    char *password, *bearer; /* owned: target_done */
};
/* Fills *t from the flags, else from the environment variables <variables>_URL, _PASSWORD and _BEARER.
 * url_flag: the command's flag for the URL, e.g. "--url". Call target_done also after a failure. Errors:
 * ERR_USAGE, those of file_read. */
enum err_code target_read(struct target *t, const struct cli_args *a, const char *url_flag,
                          const char *variables, struct err *why);
void target_done(struct target *t); /* accepts {0} */

#endif
