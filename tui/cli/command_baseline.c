/* qdyno baseline: a champion kept by name. `check` is the question of a release script: is what we have now
 * worse than what we had? It is answered by measuring both, now. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/lib/run_changes.h"
#include "advisor/experiment/experiment.h"
#include "advisor/history/history.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_BASELINE[] = {
    { .name = "-m", .alias = "--model", .value = "FILE",
      .help = "set: the champion's model; check: the challenger's; default: the bundled one, the champion's" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD",
      .help = "set: what is run; default the run's, for a config line tg64" },
    { .name = "--metric", .value = "NAME",
      .help = "set: what is compared; default the run's, else the decode rate" },
    { .name = "--margin", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "set: difference that matters; default the run's, else 1%" },
    { .name = "--arm", .value = "LETTER", .help = "set: which arm of the run; default the better one" },
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "check: no new block starts beyond it; default 5m" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    { .name = "name", .title = "baseline" },
    { .name = "config", .title = "config" },
    { .name = "model", .title = "model" },
    { .name = "model_path" },
    { .name = "model_sha256" },
    { .name = "workload", .title = "workload" },
    { .name = "metric", .title = "metric" },
    { .name = "margin_ratio", .title = "margin %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "value", .title = "was", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "machine", .title = "machine" },
    { .name = "run", .title = "run", .kind = COLUMN_INT },
    { .name = "set", .title = "set (UTC)" },
};

static void put_baseline(json_t *row, const struct baseline_row *b)
{
    char when[32];
    json_put_str(row, "name", b->name);
    json_put_str(row, "config", b->config);
    json_put_str(row, "model", b->model_name);
    json_put_str(row, "model_path", b->model_path);
    json_put_str(row, "model_sha256", *b->model_sha256 ? b->model_sha256 : NULL);
    json_put_str(row, "workload", b->workload);
    json_put_str(row, "metric", b->metric);
    json_put_num(row, "margin_ratio", b->margin);
    json_put_num(row, "value", b->value);
    json_put_str(row, "machine", *b->machine ? b->machine : NULL);
    if (b->run_id) json_put_int(row, "run", b->run_id);
    json_put_str(row, "set", clock_iso8601(b->set_ms, when, sizeof when));
}

/* ---------------------------------------------------------------- set */

static enum err_code find_arm(int *arm, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "--arm", NULL);
    *arm = -1;
    if (!given) return ERR_OK;
    if (strlen(given) == 1 && *given >= 'A' && *given <= 'Z') {
        *arm = *given - 'A';
        return ERR_OK;
    }
    return err_set(why, ERR_USAGE, "--arm %s: want one letter, A or B ...", given);
}

/* A run may be named only with what it leaves open. */
static enum err_code refuse_for_run(const struct cli_args *a, struct err *why)
{
    static const char *const FIXED[] = { "-m", "--metric" };
    for (size_t i = 0; i < COUNT_OF(FIXED); i++)
        if (args_has(a, FIXED[i]))
            return err_set(why, ERR_USAGE, "%s is what run %s says: leave it out", FIXED[i], a->arg[2]);
    if (a->knob_count)
        return err_set(why, ERR_USAGE, "the config is what run %s says: leave other settings out", a->arg[2]);
    return ERR_OK;
}

static double run_margin(const struct run_row *run)
{
    json_t *spec = NULL;
    if (!run->spec_json || json_parse(&spec, run->spec_json, strlen(run->spec_json), NULL)) return NAN;
    const double margin = json_get_num(spec, "margin", NAN);
    json_decref(spec);
    return margin > 0 ? margin : NAN;
}

static enum err_code from_run(struct baseline_row *b, struct db *d, const struct cli_args *a, int64_t id,
                              struct err *why)
{
    struct results r = { 0 };
    int arm;
    enum err_code rc = find_arm(&arm, a, why);
    if (!rc) rc = refuse_for_run(a, why);
    if (!rc) rc = results_read(&r, d, id, why);
    if (!rc) rc = baseline_of_run(b, &r, arm, args_text(a, "-w", NULL), why);
    if (!rc) b->margin = run_margin(&r.run);
    results_free(&r);
    return rc;
}

static enum err_code from_line(struct baseline_row *b, const struct cli_args *a, struct err *why)
{
    struct config c;
    struct workload w;
    char *path = NULL;
    const struct metric *metric;
    enum err_code rc = args_has(a, "--arm") ? err_set(why, ERR_USAGE, "--arm belongs to a run's number")
                                            : ERR_OK;
    if (!rc) rc = cli_config(&c, a, a->n > 2 ? a->arg[2] : NULL, why);
    if (!rc) rc = workload_parse(&w, args_text(a, "-w", "tg64"), why);
    if (!rc && (!w.train || args_has(a, "-m"))) rc = cli_config_model(&path, a, &c, why);
    if (!rc) rc = cli_metric(&metric, a, why);
    if (!rc) rc = baseline_of_config(b, &c, path ? path : "", &w, metric, why);
    free(path);
    return rc;
}

static int set(const struct cli_global *g, const struct cli_args *a, struct db *d)
{
    struct err why = { 0 };
    struct table t;
    int64_t id;
    struct baseline_row b = { .value = NAN, .margin = NAN };
    enum err_code rc = ERR_OK;
    if (a->n < 2 || !*a->arg[1] || strlen(a->arg[1]) >= sizeof b.name)
        rc = err_set(&why, ERR_USAGE, "want a name of at most %zu bytes: baseline set NAME [ID | CONFIG]",
                     sizeof b.name - 1);
    else
        snprintf(b.name, sizeof b.name, "%s", a->arg[1]);
    if (!rc)
        rc = a->n > 2 && str_to_i64(a->arg[2], &id) ? from_run(&b, d, a, id, &why) : from_line(&b, a, &why);
    if (!rc) {
        b.margin = args_num(a, "--margin", b.margin > 0 ? b.margin : 0.01);
        rc = db_baseline_put(d, &b, &why);
    }
    if (rc) return cli_fail(a, &why);
    table_init(&t, "qdyno.baseline/1", COLUMNS, COUNT_OF(COLUMNS));
    put_baseline(table_row(&t), &b);
    table_note(&t, "measure it against a challenger, now: qdyno baseline check %s CONFIG", b.name);
    const int status = cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    return status;
}

/* ---------------------------------------------------------------- list */

static int list(const struct cli_global *g, const struct cli_args *a, const struct baseline_row *rows, int n)
{
    struct table t;
    table_init(&t, "qdyno.baseline/1", COLUMNS, COUNT_OF(COLUMNS));
    for (int i = 0; i < n; i++) put_baseline(table_row(&t), &rows[i]);
    if (!n) table_note(&t, "no baseline yet: qdyno baseline set NAME [ID | CONFIG]");
    const int status = cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    return status;
}

/* ---------------------------------------------------------------- check */

static const struct baseline_row *named(const struct baseline_row *rows, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

/* check [NAME] [CONFIG]: the name may be left out where there is one baseline. */
static enum err_code read_words(const struct baseline_row **b, const char **line, const struct cli_args *a,
                                const struct baseline_row *rows, int n, struct err *why)
{
    struct str names = { 0 };
    *b = a->n > 1 ? named(rows, n, a->arg[1]) : NULL;
    *line = *b ? (a->n > 2 ? a->arg[2] : NULL) : a->n > 1 ? a->arg[1] : NULL;
    if (!*b && n == 1 && a->n <= 2) *b = &rows[0];
    if (*b) return ERR_OK;
    if (!n) return err_set(why, ERR_USAGE, "there is no baseline yet: qdyno baseline set NAME [ID | CONFIG]");
    for (int i = 0; i < n; i++) str_printf(&names, "%s%s", i ? ", " : "", rows[i].name);
    err_set(why, ERR_USAGE, "%s%s%s: there are %s", a->n > 1 ? "no baseline '" : "which baseline",
            a->n > 1 ? a->arg[1] : "", a->n > 1 ? "'" : "", str_text(&names));
    str_free(&names);
    return ERR_USAGE;
}

static void tell(struct table *t, const struct baseline_row *b, const struct experiment_state *s)
{
    char when[32];
    json_t *about = json_object();
    t->schema = "qdyno.baseline_check/1";
    put_baseline(about, b);
    json_put(t->extra, "baseline", about);
    json_put_int(t->extra, "run", s->run_id);
    json_put_str(t->extra, "verdict", *verdict_name(s->verdict) ? verdict_name(s->verdict) : NULL);
    json_put_str(t->extra, "reason", *s->reason ? s->reason : NULL);
    table_note(t, "baseline %s: A is the champion, B the challenger; %s", b->name,
               s->verdict == VERDICT_WORSE          ? "REGRESSION"
               : s->verdict == VERDICT_INCONCLUSIVE ? "not decided"
               : s->verdict == VERDICT_INVALID      ? "nothing can be said"
                                                    : "no regression");
    if (isfinite(b->value))
        table_note(
            t, "the champion gave %.4g %s on %s (machine %s), %.4g now: for people, not for the verdict",
            b->value, METRICS[s->spec.metric - METRICS].unit, clock_iso8601(b->set_ms, when, sizeof when),
            *b->machine ? b->machine : "n/a", s->arm[0].rate);
}

static int check(const struct cli_global *g, const struct cli_args *a, struct db *d,
                 const struct baseline_row *rows, int n)
{
    struct err why = { 0 };
    struct config challenger;
    const struct baseline_row *b;
    const char *line;
    int status = EXIT_INTERNAL;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = spec && s ? ERR_OK : err_set(&why, ERR_NOMEM, "no memory to begin");
    if (!rc) rc = read_words(&b, &line, a, rows, n, &why);
    if (!rc) rc = cli_config(&challenger, a, line, &why);
    if (!rc) rc = baseline_spec(spec, b, &challenger, args_text(a, "-m", NULL), &why);
    if (!rc) {
        spec->seed = g->seed;
        spec->budget_s = args_num(a, "--budget", 0);
        rc = ab_run(g, spec, s, &why);
    }
    if (!rc && s->run_id && b->run_id) { /* the run it came from may have been deleted since */
        struct run_row origin;
        if (!db_run_get(d, b->run_id, &origin, NULL)) {
            run_row_free(&origin);
            rc = db_link_put(d, s->run_id, b->run_id, "baseline", verdict_name(s->verdict), &why);
        }
    }
    if (rc) {
        status = cli_fail(a, &why);
    } else {
        struct table t;
        ab_table_fill(&t, s);
        tell(&t, b, s);
        status = cli_print(g, a, &t, ab_status(s));
        table_done(&t);
    }
    free(spec);
    free(s);
    return status;
}

/* ---------------------------------------------------------------- which */

int command_baseline(const struct cli_global *g, const struct cli_args *a)
{
    static const char *const WORDS[] = { "set", "list", "check" };
    /* which words each flag belongs to: bits in the order of WORDS */
    static const struct {
        const char *flag;
        unsigned words;
    } OF[] = { { "-m", 1 | 4 },   { "-w", 1 },    { "--metric", 1 },
               { "--margin", 1 }, { "--arm", 1 }, { "--budget", 4 } };
    struct err why = { 0 };
    struct db *d = NULL;
    struct baseline_row *rows = NULL;
    int n = 0, word = 0;
    while (word < 3 && strcmp(a->arg[0], WORDS[word])) word++;
    enum err_code rc = ERR_OK;
    if (word == 3) {
        const char *near = str_nearest(a->arg[0], WORDS, COUNT_OF(WORDS));
        rc = err_set(&why, ERR_USAGE, "'%s': want set, list or check%s%s%s", a->arg[0],
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    for (size_t i = 0; i < COUNT_OF(OF) && !rc; i++)
        if (args_has(a, OF[i].flag) && !(OF[i].words & 1u << word))
            rc = err_set(&why, ERR_USAGE, "%s does not belong to baseline %s", OF[i].flag, WORDS[word]);
    if (!rc && word == 1 && (a->n > 1 || a->knob_count))
        rc = err_set(&why, ERR_USAGE, "list takes nothing else");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc && word) rc = db_baseline_list(d, &rows, &n, &why);
    const int status = rc          ? cli_fail(a, &why)
                       : word == 0 ? set(g, a, d)
                       : word == 1 ? list(g, a, rows, n)
                                   : check(g, a, d, rows, n);
    free(rows);
    db_close(d);
    return status;
}
