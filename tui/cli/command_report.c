/* qdyno report: writes a run as one self-contained file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/command_report_all.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"
#include "tui/report/report.h"

/* clang-format off */
const struct cli_flag FLAGS_REPORT[] = {
    { .name = "--out", .value = "FILE", .help = "file to write: FILE.html, FILE.md or FILE.svg" },
    { .name = "--all", .value = "DIR",
      .help = "write a site of all experiments to this folder: an index, the trade-offs, a page for each run" },
    { .name = "-m", .alias = "--model", .needs = "--all", .value = "FILE", .help = "with --all: only runs of this model file" },
    { .name = "--machine", .needs = "--all", .value = "ID",
      .help = "with --all: only runs on this machine (its id is in `qdyno detect`)" },
    { .name = NULL },
};
/* clang-format on */

/* Replaces the file at once, so that readers never see a part. */
enum err_code report_write_file(const char *path, const struct str *text, struct err *why)
{
    struct atomic_file f = { 0 };
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    if (fwrite(str_text(text), 1, text->len, f.stream) != text->len) {
        const int cause = errno;
        atomic_file_abort(&f);
        return err_set(why, err_of_errno(cause), "%s: cannot write the whole file: %s", path,
                       strerror(cause));
    }
    return atomic_file_commit(&f, why);
}

static enum err_code report_of(struct str *text, const struct cli_global *g, int64_t id,
                               enum report_format format, struct err *why)
{
    struct db *d = NULL;
    struct report_source *source = NULL;
    struct report *report = NULL;
    struct run_row run = { 0 };
    enum err_code rc = db_open(&d, g->db_path, why);
    if (!rc) rc = db_run_get(d, id, &run, why);
    const bool search = !rc && !strcmp(run.kind, "tune");
    if (search || (!rc && !strcmp(run.kind, "profile"))) {
        json_t *document = NULL;
        if (run.outcome_json) rc = json_parse(&document, run.outcome_json, strlen(run.outcome_json), why);
        if (!rc) rc = (search ? report_tradeoff : report_profile)(&report, document, id, why);
        json_decref(document);
    } else {
        if (!rc) rc = report_load(&source, d, id, why);
        if (!rc) rc = report_build(&report, source, why);
    }
    if (!rc) report_write(text, report, format);
    if (!rc && text->failed)
        rc = err_set(why, ERR_NOMEM, "out of memory for the report of run %lld", (long long)id);
    report_free(report);
    report_source_free(source);
    run_row_free(&run);
    db_close(d);
    return rc;
}

int command_report(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct str text = { 0 };
    enum report_format format = REPORT_HTML;
    int64_t id = 0;
    const char *path = args_text(a, "--out", NULL);
    if (args_has(a, "--all")) return report_all(g, a);
    enum err_code rc = a->n == 1 ? ERR_OK
                                 : err_set(&why, ERR_USAGE,
                                           "expected ID --out FILE, or --all DIR [-m FILE] [--machine ID]");
    if (!rc) rc = cli_run_id(&id, a->arg[0], &why);
    if (!rc && !path) rc = err_set(&why, ERR_USAGE, "expected --out FILE.html, FILE.md or FILE.svg");
    if (!rc) rc = report_format_of(&format, path, &why);
    if (!rc) rc = report_of(&text, g, id, format, &why);
    if (!rc) rc = report_write_file(path, &text, &why);
    if (!rc) cli_note(g, "report of run %lld written to %s, %zu bytes", (long long)id, path, text.len);
    str_free(&text);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}
