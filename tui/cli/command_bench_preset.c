/* command_bench_preset.c - see command_bench_preset.h. Each scenario is a run of its own, whose labels name
 * it and the hash of what it asks for. So a preset that was stopped goes on behind its last complete
 * scenario, and one that is complete is printed without measuring again. */
#include "tui/cli/command_bench_preset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/measured.h"
#include "tui/cli/lib/scenarios.h"

enum { HASH_SHOWN = 16, FOUND_MOST = 64 };

struct preset {
    struct measured m; /* each scenario is a run of its own: this one begins none */
    struct scenarios all;
    int measured, stored;
};

enum err_code bench_preset_check(const struct cli_args *a, struct err *why)
{
    static const char *const WITHOUT[] = { "-p", "-n",        "-d",       "-npl",     "--rows",   "-w",
                                           "-C", "--profile", "--layers", "--folded", "--prompts" };
    const bool preset = args_has(a, "--preset");
    for (size_t i = 0; i < COUNT_OF(WITHOUT) && preset; i++)
        if (args_has(a, WITHOUT[i]))
            return err_set(why, ERR_USAGE,
                           "the scenarios of --preset name configs and workloads: leave %s out", WITHOUT[i]);
    return ERR_OK;
}

/* ---------------------------------------------------------------- one scenario */

/* A scenario as flags of `bench`. */
struct asked {
    struct cli_args args;
    char repetitions[16];
    char label[3][LABEL_KEY + LABEL_VALUE];
    struct run_labels about; /* the same labels: which stored runs are of this scenario */
};

static const struct cli_flag *flag_of(const struct cli_args *a, const char *name)
{
    const struct cli_flag *f = a->command->flags;
    while (strcmp(f->name, name)) f++;
    return f;
}

static enum err_code give(struct cli_args *a, const char *flag, const char *value, struct err *why)
{
    if (a->given_count == ARGS_GIVEN) return err_set(why, ERR_USAGE, "too many flags");
    a->given[a->given_count].flag = flag_of(a, flag);
    a->given[a->given_count++].value = value;
    return ERR_OK;
}

/* The hash of everything that a scenario's figures depend on, beside model and machine. */
static void hash_scenario(const struct preset *p, const struct scenario *s, int repetitions,
                          char hex[HASH_HEX])
{
    struct str all = { 0 };
    str_printf(&all, "%s\n%d\n%llu\n%d\n", s->config, repetitions, (unsigned long long)p->m.g->seed,
               args_has(p->m.a, "--no-warmup"));
    for (int i = 0; i < s->workloads; i++) str_printf(&all, "%s\n", s->workload[i]);
    for (int i = 0; i < p->m.a->knob_count; i++)
        str_printf(&all, "%s=%s\n", KNOBS[p->m.a->knob[i].id].key, p->m.a->knob[i].value);
    hash_bytes(str_text(&all), strlen(str_text(&all)), hex);
    str_free(&all);
}

static enum err_code ask(struct asked *x, const struct preset *p, const struct scenario *s, struct err *why)
{
    static const char *const PASSED[] = { "-m", "--no-warmup", "--wait-quiet", "--label" };
    const int repetitions = (int)args_int(p->m.a, "-r", s->repetitions ? s->repetitions : 5);
    char hex[HASH_HEX];
    enum err_code rc = ERR_OK;
    *x = (struct asked){ .args = *p->m.a };
    x->args.given_count = 0;
    for (int i = 0; i < p->m.a->given_count && !rc; i++)
        for (size_t k = 0; k < COUNT_OF(PASSED) && !rc; k++)
            if (!strcmp(p->m.a->given[i].flag->name, PASSED[k]))
                rc = give(&x->args, PASSED[k], p->m.a->given[i].value, why);
    hash_scenario(p, s, repetitions, hex);
    snprintf(x->repetitions, sizeof x->repetitions, "%d", repetitions);
    snprintf(x->label[0], sizeof x->label[0], "preset=%s", s->preset);
    snprintf(x->label[1], sizeof x->label[1], "scenario=%s", s->name);
    snprintf(x->label[2], sizeof x->label[2], "scenario_sha256=%.*s", HASH_SHOWN, hex);
    if (!rc) rc = give(&x->args, "-r", x->repetitions, why);
    if (!rc) rc = give(&x->args, "-C", s->config, why);
    for (int i = 0; i < s->workloads && !rc; i++) rc = give(&x->args, "-w", s->workload[i], why);
    for (size_t i = 0; i < COUNT_OF(x->label) && !rc; i++) {
        rc = run_labels_add(&x->about, x->label[i], why);
        if (!rc) rc = give(&x->args, "--label", x->label[i], why);
    }
    return rc;
}

/* The SHA-256 of the file that a scenario runs. */
static enum err_code identify(char hex[HASH_HEX], const struct asked *x, const struct scenario *s,
                              struct err *why)
{
    struct config c;
    struct gguf *g = NULL;
    char *path = NULL;
    enum err_code rc = cli_config(&c, &x->args, s->config, why);
    if (!rc) rc = cli_config_model(&path, &x->args, &c, why);
    if (!rc) rc = model_file_open(&g, path, why);
    if (!rc) rc = model_identity(g, hex, why);
    gguf_close(g);
    free(path);
    return rc;
}

/* *out: the table of the newest complete run of this scenario with this model on this machine; NULL: there is
 * none. *run: its number. */
static enum err_code find_stored(json_t **out, int64_t *run, const struct preset *p, const struct asked *x,
                                 const char *sha256, struct err *why)
{
    struct run_row *rows = NULL, whole = { 0 };
    int n = 0;
    enum err_code rc = db_run_find_labeled(p->m.db, NULL, &x->about, FOUND_MOST, &rows, &n, why);
    *run = 0;
    for (int i = 0; i < n; i++) {
        const struct run_row *r = &rows[i];
        if (!*run && !strcmp(r->kind, "bench") && !strcmp(r->state, "done") &&
            !strcmp(r->machine, p->m.machine.id) && !strcmp(r->model_sha256, sha256))
            *run = r->id;
        run_row_free(&rows[i]);
    }
    free(rows);
    if (!rc && *run) rc = db_run_get(p->m.db, *run, &whole, why);
    if (!rc && whole.outcome_json) rc = json_parse(out, whole.outcome_json, strlen(whole.outcome_json), why);
    run_row_free(&whole);
    return rc;
}

/* ---------------------------------------------------------------- the table */

static void add_rows(struct preset *p, const struct scenario *s, const json_t *document, int64_t run)
{
    size_t i;
    json_t *from;
    json_array_foreach(json_object_get(document, "rows"), i, from)
    {
        json_t *row = table_row(&p->m.table);
        const char *error = json_get_str(from, "error", NULL);
        json_put_str(row, "scenario", s->name);
        json_put(row, "run", run ? json_integer(run) : json_null());
        row_put_known(&p->m.table, row, from);
        p->m.ok += !error;
        if (error && !p->m.first.code) err_set(&p->m.first, ERR_USAGE, "%s: %s", s->name, error);
    }
}

static void add_refused(struct preset *p, const struct scenario *s, const struct err *why)
{
    json_t *row = table_row(&p->m.table);
    json_put_str(row, "scenario", s->name);
    json_put_str(row, "config", s->config);
    json_put_str(row, "error", why->message);
    if (p->m.first.code) return;
    p->m.first = *why;
    err_prefix(&p->m.first, "%s", s->name);
}

/* Errors of the scenario become rows; Ctrl-C and errors of the database end the preset. */
static enum err_code run_scenario(struct preset *p, const struct scenario *s, struct err *why)
{
    struct asked *x = malloc(sizeof *x);
    json_t *document = NULL;
    char sha256[HASH_HEX];
    int64_t run = 0;
    struct err refused = { 0 };
    if (!x) return err_set(why, ERR_NOMEM, "out of memory for a scenario");
    enum err_code rc = ask(x, p, s, why);
    if (!rc && identify(sha256, x, s, &refused)) {
        add_refused(p, s, &refused);
    } else if (!rc) {
        if (!args_has(p->m.a, "--again")) rc = find_stored(&document, &run, p, x, sha256, why);
        p->stored += document != NULL;
        if (!rc && !document) {
            rc = bench_measure(&document, p->m.g, &x->args, &refused);
            run = json_get_int(json_object_get(document, "extra"), "run", 0);
            p->measured++;
        }
        if (document) add_rows(p, s, document, run);
        if (rc && rc != ERR_CANCELLED && refused.code) {
            add_refused(p, s, &refused);
            rc = ERR_OK;
        } else if (rc && refused.code) {
            *why = refused;
        }
    }
    json_decref(document);
    free(x);
    return rc;
}

static int preset_finish(struct preset *p, enum err_code rc, const struct err *why)
{
    struct table *t = &p->m.table;
    const char *preset = args_text(p->m.a, "--preset", "");
    json_put_str(t->extra, "preset", preset);
    json_put_str(t->extra, "machine", p->m.machine.id);
    table_headline(t, "preset %s: %d of %d scenarios measured now, %d by earlier runs", preset, p->measured,
                   p->all.n, p->stored);
    if (p->stored) table_note(t, "--again measures scenarios again that earlier runs have measured");
    if (rc == ERR_CANCELLED) table_note(t, "the same command goes on with the scenario that was stopped");
    const struct summary summary = { .effect = { NAN, NAN, NAN },
                                     .exit_status = rc ? exit_status_of(rc) : EXIT_DONE };
    table_summarize(t, &summary);
    for (int i = 0; i < t->n_columns; i++)
        if (!strcmp(t->columns[i].name, "scenario") || !strcmp(t->columns[i].name, "run"))
            t->columns[i].title = t->columns[i].name;
    return measured_print(&p->m, rc, why);
}

int bench_preset(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct preset *p = calloc(1, sizeof *p);
    if (!p) return cli_fail_memory(a);
    measured_init(&p->m, g, a, &DOCUMENT_BENCH);
    enum err_code rc = scenarios_read(&p->all, args_text(a, "--preset", ""), &why);
    if (!rc) rc = machine_detect(&p->m.machine, "", &why);
    if (!rc) rc = db_open(&p->m.db, g->db_path, &why);
    const bool begun = !rc;
    for (int i = 0; i < p->all.n && !rc; i++) {
        cli_note(g, "scenario %d of %d: %s", i + 1, p->all.n, p->all.one[i].name);
        rc = run_scenario(p, &p->all.one[i], &why);
    }
    const int status = begun ? preset_finish(p, rc, &why) : cli_fail(a, &why);
    measured_close(&p->m);
    scenarios_free(&p->all);
    free(p);
    return status;
}
