/* tui/cli/lib/server_flags.c - see server_flags.h. */
#include "tui/cli/lib/server_flags.h"

#include <stdlib.h>
#include <string.h>

/* The variable PREFIX_NAME; NULL if it is unset or empty. */
static const char *environment_get(const char *prefix, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "%s_%s", prefix, name);
    const char *value = getenv(whole);
    return value && *value ? value : NULL;
}

/* Reads a one-line secret from the file, else takes a copy of `otherwise`. */
static enum err_code secret_read(char **out, const char *file, const char *otherwise, struct err *why)
{
    enum { LIMIT = 1 << 16 };
    *out = NULL;
    if (!file) {
        *out = otherwise ? strdup(otherwise) : NULL;
        return otherwise && !*out ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    }
    enum err_code rc = file_read(out, NULL, file, LIMIT, why);
    if (rc) return rc;
    (*out)[strcspn(*out, "\r\n")] = '\0';
    return **out ? ERR_OK
                 : err_set(why, ERR_USAGE, "'%s' is empty: expected the secret in its first line", file);
}

enum err_code target_read(struct target *t, const struct cli_args *a, const char *url_flag,
                          const char *variables, struct err *why)
{
    *t = (struct target){ .url = args_text(a, url_flag, environment_get(variables, "URL")),
                          .auth = { .user = args_text(a, "--user", NULL),
                                    .ca_file = args_text(a, "--ca", NULL),
                                    .cert_file = args_text(a, "--cert", NULL),
                                    .key_file = args_text(a, "--key", NULL),
                                    .insecure = args_has(a, "--insecure"),
                                    .insecure_credentials = args_has(a, "--insecure-credentials") ||
                                                            http_insecure_credentials(),
                                    .timeout_s = args_num(a, "--timeout", 0) } };
    enum err_code rc = secret_read(&t->password, args_text(a, "--password-file", NULL),
                                   environment_get(variables, "PASSWORD"), why);
    if (!rc)
        rc = secret_read(&t->bearer, args_text(a, "--bearer-file", NULL),
                         environment_get(variables, "BEARER"), why);
    if (rc) return rc;
    if (t->auth.user && !t->password)
        return err_set(why, ERR_USAGE, "--user %s needs a password: --password-file FILE or %s_PASSWORD",
                       t->auth.user, variables);
    if (args_has(a, "--password-file") && !t->auth.user)
        return err_set(why, ERR_USAGE, "--password-file needs --user NAME");
    if (t->auth.key_file && !t->auth.cert_file)
        return err_set(why, ERR_USAGE, "--key %s needs --cert FILE, the client certificate",
                       t->auth.key_file);
    t->auth.password = t->auth.user ? t->password : NULL;
    t->auth.bearer = t->bearer;
    return ERR_OK;
}

void target_done(struct target *t)
{
    free(t->password);
    free(t->bearer);
    *t = (struct target){ 0 };
}
