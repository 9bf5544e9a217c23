/* tui/cli/textfile.c - outcomes for the node exporter's textfile collector: on a machine that Prometheus
 * scrapes already, a file is all it takes. */
#include "tui/cli/textfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct column FILE_COLUMNS[] = {
    { "textfile", "textfile", COLUMN_TEXT },
    { "experiments", "experiments", COLUMN_INT },
    { "bytes", "bytes", COLUMN_BYTES },
};

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

static enum err_code textfile_check(const struct cli_args *a, const char *path, struct err *why)
{
    if (args_has(a, "--url") || args_has(a, "--otlp"))
        return err_set(why, ERR_USAGE, "--textfile, or --url and --otlp: not both in one command");
    if (a->n)
        return err_set(why, ERR_USAGE,
                       "--textfile holds the latest outcome of every experiment: no run is named");
    return textfile_name_check(path, why);
}

int push_textfile(const struct cli_global *g, const struct cli_args *a, const char *path)
{
    struct err why = { 0 };
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    struct db *d = NULL;
    int n = 0, status;
    struct outcome *latest = calloc(OUTCOMES_MAX, sizeof *latest);
    enum err_code rc = latest ? textfile_check(a, path, &why) : err_set(&why, ERR_NOMEM, "no memory");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = outcomes_latest(latest, &n, d, &why);
    if (!rc && !n) rc = err_set(&why, ERR_USAGE, "no finished A/B to tell of: run `qdyno ab` first");
    if (!rc) outcomes_tell(latest, n, OUTCOME_ALONE, &to);
    if (!rc && e.bad.code) rc = err_set(&why, e.bad.code, "%s", e.bad.message);
    if (!rc) rc = textfile_replace(path, &e.text, &why);
    if (rc) {
        status = cli_fail(a, &why);
    } else {
        struct table t;
        table_init(&t, "qdyno.textfile/1", FILE_COLUMNS, COUNT_OF(FILE_COLUMNS));
        t.record = true;
        json_t *row = table_row(&t);
        json_put_str(row, "textfile", path);
        json_put_int(row, "experiments", n);
        json_put_int(row, "bytes", (int64_t)e.text.len);
        status = cli_print(g, a, &t, EXIT_DONE);
        table_done(&t);
    }
    exposition_free(&e);
    db_close(d);
    free(latest);
    return status;
}
