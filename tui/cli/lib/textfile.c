/* tui/cli/lib/textfile.c - outcomes for the node exporter's textfile collector: on a machine that Prometheus
 * scrapes already, a file is all it takes. */
#include "tui/cli/lib/textfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The collector runs as another user, so the file is readable by all whatever the umask; a reader sees the
 * old one or the new one. */
enum err_code textfile_replace(const char *path, const struct str *text, struct err *why)
{
    struct atomic_file f;
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    const bool written = fwrite(str_text(text), 1, text->len, f.stream) == text->len;
    if (!written || fchmod(fileno(f.stream), 0644)) {
        const int cause = errno;
        atomic_file_abort(&f);
        return err_set(why, cause == ENOSPC || cause == EDQUOT ? ERR_FIT : ERR_IO, "cannot write '%s': %s",
                       path, strerror(cause));
    }
    return atomic_file_commit(&f, why);
}

enum err_code textfile_name_check(const char *path, struct err *why)
{
    if (str_ends(path, ".prom")) return ERR_OK;
    return err_set(why, ERR_USAGE, "--textfile %s: the node exporter reads only names that end in .prom",
                   path);
}
