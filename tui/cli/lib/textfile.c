/* tui/cli/lib/textfile.c - see textfile.h. */
#include "tui/cli/lib/textfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The collector runs as another user: the file gets mode 0644 whatever the umask. */
enum err_code textfile_replace(const char *path, const struct str *text, struct err *why)
{
    struct atomic_file f;
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    const bool written = fwrite(str_text(text), 1, text->len, f.stream) == text->len;
    const bool replaces = f.temp != NULL; /* a device or FIFO keeps its mode */
    if (!written || (replaces && fchmod(fileno(f.stream), 0644))) {
        const int cause = errno;
        atomic_file_abort(&f);
        return err_set(why, err_of_errno(cause), "cannot write '%s': %s", path, strerror(cause));
    }
    return atomic_file_commit(&f, why);
}

enum err_code textfile_name_check(const char *path, struct err *why)
{
    if (str_ends(path, ".prom")) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "--textfile %s: expected a name that ends in .prom, because the node exporter reads no other files",
        path);
}
