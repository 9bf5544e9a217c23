/* api_key.c - the key of an HTTP server of qdyno: from a file or from the environment. */
#include <stdlib.h>
#include <string.h>

#include "tui/cli/lib/lib.h"

enum { KEY_MOST = 4096 };

enum err_code cli_api_key(char **key, const struct cli_args *a, struct err *why)
{
    const char *file = args_text(a, "--api-key-file", NULL), *variable = getenv("QDYNO_API_KEY");
    enum err_code rc = ERR_OK;
    if (file) {
        rc = file_read(key, NULL, file, KEY_MOST, why);
        if (rc) return rc;
        (*key)[strcspn(*key, "\r\n")] = '\0';
    } else if (variable && *variable) {
        *key = strdup(variable);
        if (!*key) return err_set(why, ERR_NOMEM, "out of memory for the API key");
    }
    /* other characters cannot be sent in a header */
    for (const char *c = *key; c && *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127)
            return err_set(why, ERR_USAGE, "%s: expected a key of visible ASCII characters",
                           file ? file : "QDYNO_API_KEY");
    if (*key && !**key)
        return err_set(why, ERR_USAGE, "'%s' is empty: expected an API key in its first line", file);
    return ERR_OK;
}
