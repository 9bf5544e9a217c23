/* Which files a command may write a model to. */
#include <sys/stat.h>

#include "engine/gguf/gguf.h"
#include "tui/cli/lib/lib.h"

enum err_code cli_target_spares(const struct gguf *source, const char *path, struct err *why)
{
    struct stat st;
    if (stat(path, &st) || !gguf_has_file(source, (uint64_t)st.st_dev, (uint64_t)st.st_ino)) return ERR_OK;
    return err_set(why, ERR_USAGE, "%s is also IN, or one of its files: expected another file as OUT", path);
}

enum err_code cli_target_check(const struct gguf *source, const char *path, bool force, struct err *why)
{
    struct stat st;
    const enum err_code rc = cli_target_spares(source, path, why);
    if (rc || stat(path, &st)) return rc;
    if (!S_ISREG(st.st_mode)) return err_set(why, ERR_USAGE, "%s exists and is not a regular file", path);
    return force ? ERR_OK : err_set(why, ERR_USAGE, "%s exists: --force replaces it", path);
}
