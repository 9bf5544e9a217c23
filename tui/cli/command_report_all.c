/* qdyno report --all DIR: a folder of pages about all experiments. Files of others in DIR are never replaced:
 * that is checked for every page before the first one is written. Each page appears at once or not at all;
 * the index is written last, so that its links lead to pages. */
#include "tui/cli/command_report_all.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/predict/predict.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "tui/cli/commands.h"
#include "tui/report/report.h"

enum { RUNS_MOST = 100000 };

struct site {
    const struct cli_global *g;
    const char *folder;
    char sha256[HASH_HEX]; /* only runs of this model; "" all */
    const char *machine;   /* only runs on this machine; "" all */
    struct db *db;
    int64_t *run; /* [n] */
    int n;
    struct report_site *pages;
};

static enum err_code site_path(char *out, size_t size, const struct site *s, const char *file,
                               struct err *why)
{
    const int n = snprintf(out, size, "%s/%s", s->folder, file);
    return n > 0 && (size_t)n < size ? ERR_OK
                                     : err_set(why, ERR_USAGE, "--all: the path of the folder is too long");
}

/* May this file be written? There is none, or it is a page of an earlier call. */
static enum err_code page_check(const struct site *s, const char *file, struct err *why)
{
    enum { HEAD = 2048 };
    char path[PATH_MAX], head[HEAD + 1];
    struct stat st;
    enum err_code rc = site_path(path, sizeof path, s, file, why);
    if (rc || lstat(path, &st)) return rc;
    FILE *f = S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    const size_t n = f ? fread(head, 1, HEAD, f) : 0;
    if (f) fclose(f);
    head[n] = '\0';
    if (strstr(head, "content=\"" SITE_GENERATOR "\"")) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "%s exists and was not written by `qdyno report --all`: expected another folder", path);
}

/* ---------------------------------------------------------------- which runs */

static bool run_belongs(const struct site *s, const struct run_row *r)
{
    return !strcmp(r->kind, "ab") && (!*s->sha256 || !strcmp(r->model_sha256, s->sha256)) &&
           (!*s->machine || !strcmp(r->machine, s->machine));
}

static enum err_code runs_find(struct site *s, struct err *why)
{
    struct run_row *rows = NULL;
    int n = 0;
    enum err_code rc = db_run_list(s->db, NULL, RUNS_MOST, &rows, &n, why);
    s->run = rc ? NULL : calloc((size_t)MAX(n, 1), sizeof *s->run);
    if (!rc && !s->run) rc = err_set(why, ERR_NOMEM, "out of memory for a list of %d runs", n);
    for (int i = 0; i < n; i++) {
        if (!rc && run_belongs(s, &rows[i])) s->run[s->n++] = rows[i].id;
        run_row_free(&rows[i]);
    }
    free(rows);
    if (!rc && !s->n)
        rc = err_set(why, ERR_USAGE,
                     "--all: no experiment of `qdyno ab`%s%s in the database; `qdyno history` lists all runs",
                     *s->sha256 ? " of this model" : "", *s->machine ? " on this machine" : "");
    return rc;
}

static enum err_code site_check(const struct site *s, struct err *why)
{
    char file[48];
    struct stat st;
    if (!stat(s->folder, &st) && !S_ISDIR(st.st_mode))
        return err_set(why, ERR_USAGE, "--all %s: expected a folder, found a file", s->folder);
    enum err_code rc = page_check(s, SITE_INDEX, why);
    if (!rc) rc = page_check(s, SITE_PARETO, why);
    for (int i = 0; i < s->n && !rc; i++)
        rc = page_check(s, report_site_file(s->run[i], file, sizeof file), why);
    return rc;
}

/* ---------------------------------------------------------------- pages */

/* Writes a page and frees it. */
static enum err_code page_write(const struct site *s, struct report *r, const char *file, struct err *why)
{
    char path[PATH_MAX];
    struct str text = { 0 };
    report_write(&text, r, REPORT_HTML);
    report_free(r);
    enum err_code rc = text.failed ? err_set(why, ERR_NOMEM, "out of memory for %s", file)
                                   : site_path(path, sizeof path, s, file, why);
    if (!rc) rc = report_write_file(path, &text, why);
    str_free(&text);
    return rc;
}

static enum err_code run_write(struct site *s, int64_t id, struct err *why)
{
    struct report_source *source = NULL;
    struct report *report = NULL;
    char file[48];
    enum err_code rc = report_load(&source, s->db, id, why);
    if (!rc) rc = report_site_add(s->pages, source, why);
    if (!rc) rc = report_build(&report, source, why);
    report_source_free(source);
    if (rc) return rc;
    report_site_page(report);
    return page_write(s, report, report_site_file(id, file, sizeof file), why);
}

static enum err_code site_write(struct site *s, struct err *why)
{
    struct report *page = NULL;
    enum err_code rc = file_make_dirs(s->folder, why);
    for (int i = 0; i < s->n && !rc; i++)
        rc = cli_is_interrupted(s->g) ? err_set(why, ERR_CANCELLED, "stopped") : run_write(s, s->run[i], why);
    if (!rc) rc = report_site_pareto(&page, s->pages, why);
    if (!rc) rc = page_write(s, page, SITE_PARETO, why);
    if (!rc) rc = report_site_index(&page, s->pages, why);
    return rc ? rc : page_write(s, page, SITE_INDEX, why);
}

static enum err_code model_read(struct site *s, const char *path, struct err *why)
{
    struct gguf *g = NULL;
    if (!path) return ERR_OK;
    enum err_code rc = model_file_open(&g, path, why);
    if (!rc) rc = model_identity(g, s->sha256, why);
    gguf_close(g);
    return rc;
}

int report_all(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    const char *model = args_text(a, "-m", NULL);
    struct site s = { .g = g, .folder = args_text(a, "--all", ""), .machine = args_text(a, "--machine", "") };
    char about[256] = "";
    enum err_code rc = a->n || args_has(a, "--out")
                           ? err_set(&why, ERR_USAGE, "--all DIR: expected neither ID nor --out with it")
                       : *s.folder ? ERR_OK
                                   : err_set(&why, ERR_USAGE, "--all: expected a folder");
    if (!rc) rc = model_read(&s, model, &why);
    if (!rc) rc = db_open(&s.db, g->db_path, &why);
    if (!rc) rc = runs_find(&s, &why);
    if (!rc) rc = site_check(&s, &why);
    if (model) snprintf(about, sizeof about, "%.200s", cli_base_name(model));
    if (!rc) rc = report_site_open(&s.pages, about, &why);
    if (!rc) rc = site_write(&s, &why);
    if (!rc)
        cli_note(g, "%d experiment%s written to %s: open %s/" SITE_INDEX, s.n, s.n == 1 ? "" : "s", s.folder,
                 s.folder);
    report_site_close(s.pages);
    free(s.run);
    db_close(s.db);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}
