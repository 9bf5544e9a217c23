/* tui/cli/lib/server_flags.h - where to send something, and how to be let in: the options that push, prune
 * and every other command with a server at the other end share. */
#ifndef QDYNO_CLI_TARGET_H
#define QDYNO_CLI_TARGET_H

#include "tui/cli/cli.h"

/* Rows for a command's FLAGS_; its own row says what its --url is. VARIABLES: the prefix of the environment
 * variables that stand in, a literal: "QDYNO_PUSH". Secrets are never arguments: the process list shows
 * those. */
/* clang-format off */
#define TARGET_FLAGS(VARIABLES)                                                                              \
    { .name = "--user", .value = "NAME",                                                                     \
      .help = "basic authentication; the password from --password-file or " VARIABLES "_PASSWORD" },                   \
    { .name = "--password-file", .value = "FILE", .help = "password of --user" },                            \
    { .name = "--bearer-file", .value = "FILE", .help = "bearer token (also: " VARIABLES "_BEARER)" },                 \
    { .name = "--ca", .value = "FILE", .help = "certificate authority to trust" },                           \
    { .name = "--cert", .value = "FILE", .help = "client certificate" },                                     \
    { .name = "--key", .value = "FILE", .help = "client key" },                                              \
    { .name = "--insecure", .help = "do not check the server's certificate" },                               \
    { .name = "--timeout", .value = "TIME", .kind = FLAG_SECONDS,                                            \
      .help = "wait this long for the server; default 10s" }
/* clang-format on */

struct target {
    const char *url; /* borrowed from argv or the environment; NULL: neither names one */
    struct http_auth auth;
    char *password, *bearer; /* owned: target_done */
};
/* Fills *t from the flags, else from VARIABLES_URL, _PASSWORD, _BEARER. url_flag: "--url", or a command's own
 * spelling. *t is fit for target_done also on failure. Errors: ERR_USAGE, those of file_read. */
enum err_code target_read(struct target *t, const struct cli_args *a, const char *url_flag,
                          const char *variables, struct err *why);
void target_done(struct target *t); /* {0} is fine */

#endif
