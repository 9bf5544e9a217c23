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
    { "--user", NULL, "NAME",                                                                                \
      "basic authentication; the password from --password-file or " VARIABLES "_PASSWORD", FLAG_TEXT },      \
    { "--password-file", NULL, "FILE", "password of --user", FLAG_TEXT },                                    \
    { "--bearer-file", NULL, "FILE", "bearer token (also: " VARIABLES "_BEARER)", FLAG_TEXT },               \
    { "--ca", NULL, "FILE", "certificate authority to trust", FLAG_TEXT },                                   \
    { "--cert", NULL, "FILE", "client certificate", FLAG_TEXT },                                             \
    { "--key", NULL, "FILE", "client key", FLAG_TEXT },                                                      \
    { "--insecure", NULL, NULL, "do not check the server's certificate", FLAG_SWITCH },                      \
    { "--timeout", NULL, "TIME", "wait this long for the server; default 10s", FLAG_SECONDS }
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
