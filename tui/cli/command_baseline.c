/* qdyno baseline: saves a reference config (the champion) by name. `check` answers the question of a
 * release script: is the present config worse than the champion? It measures both now, in one A/B. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "tui/cli/command_ab_claims.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/gates.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_BASELINE[] = {
    { .name = "-m", .alias = "--model", .value = "MODEL", .model = true,
      .help = "set: model of the champion, default the bundled one; check: model of the challenger, "
              "default the champion's" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD",
      .help = "set: workload; default: that of the run, or tg64 for a config line" },
    { .name = "--metric", .value = "METRIC",
      .help = "set: metric to compare; default: that of the run, or the decode rate" },
    { .name = "--margin", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "set: smallest difference that matters; default: that of the run, or 1%" },
    { .name = "--arm", .value = "LETTER", .help = "set: arm of the run to save; default: the better one" },
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "check: start no new block after this time; default 5m" },
    FLAG_WAIT_QUIET_ROW,
    FLAG_ESTIMAND_ROW,
    FLAG_GATE_ROW("kld_mean < 0.02 and ppl_ratio < 1.01"),
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

#define BASELINE(member) MEMBER(struct baseline_row, member)
static const struct column COLUMNS[] = {
    COL("name", "baseline", MEMBER_AS(struct baseline_row, name, STRING)),
    COL("config", "config", MEMBER_AS(struct baseline_row, config, STRING)),
    COL("model", "model", MEMBER_AS(struct baseline_row, model_name, STRING)),
    KEY("model_path", MEMBER_AS(struct baseline_row, model_path, STRING)),
    KEY("model_sha256", BASELINE(model_sha256)),
    COL("workload", "workload", MEMBER_AS(struct baseline_row, workload, STRING)),
    COL("metric", "metric", MEMBER_AS(struct baseline_row, metric, STRING)),
    COL("margin_ratio", "margin %", .scale = 100, .digits = 2, BASELINE(margin)),
    COL("value", "value then", .digits = 2, BASELINE(value)),
    COL("machine", "machine", BASELINE(machine)),
    COL("run", "run", MEMBER_AS(struct baseline_row, run_id, ID)),
    COL("set", "set (UTC)"),
};

DOCUMENT(BASELINE, "qdyno.baseline/1", COLUMNS);

static void put_baseline(json_t *row, const struct baseline_row *b)
{
    char when[32];
    document_put(&DOCUMENT_BASELINE, row, struct baseline_row, b);
    if (!b->run_id) json_object_del(row, "run");
    json_put_str(row, "set", clock_iso8601(b->set_ms, when, sizeof when));
}

/* ---------------------------------------------------------------- set */

/* ERR_USAGE for flags that contradict a run. */
static enum err_code run_flags_check(const struct cli_args *a, struct err *why)
{
    static const char *const FIXED[] = { "-m", "--metric" };
    for (size_t i = 0; i < COUNT_OF(FIXED); i++)
        if (args_has(a, FIXED[i]))
            return err_set(why, ERR_USAGE, "run %s already fixes this: leave %s out", a->arg[2], FIXED[i]);
    if (a->knob_count)
        return err_set(why, ERR_USAGE, "run %s already fixes the config: leave config flags out", a->arg[2]);
    return ERR_OK;
}

static enum err_code baseline_from_run(struct baseline_row *b, struct db *d, const struct cli_args *a,
                                       int64_t id, struct err *why)
{
    struct results r = { 0 };
    int arm;
    enum err_code rc = cli_arm(&arm, a, why);
    if (!rc) rc = run_flags_check(a, why);
    if (!rc) rc = results_read(&r, d, id, why);
    if (!rc) rc = baseline_of_run(b, &r, arm, args_text(a, "-w", NULL), why);
    if (!rc) b->margin = cli_run_margin(&r.run);
    results_free(&r);
    return rc;
}

/* The baseline is the config line in the arguments, which need not have been measured. --arm chooses an arm
 * of a stored run, so it is refused here. A workload of training (w.train) trains a new network and needs no
 * model file, so a model is looked up only if -m names one. */
static enum err_code baseline_from_line(struct baseline_row *b, const struct cli_args *a, struct err *why)
{
    struct config c;
    struct workload w;
    char *path = NULL;
    const struct metric *metric;
    enum err_code rc =
        args_has(a, "--arm")
            ? err_set(why, ERR_USAGE,
                      "--arm chooses an arm of a stored run: expected qdyno baseline set NAME RUN --arm ARM")
            : ERR_OK;
    if (!rc) rc = cli_config(&c, a, a->n > 2 ? a->arg[2] : NULL, why);
    if (!rc) rc = workload_parse(&w, args_text(a, "-w", "tg64"), why);
    if (!rc && (!w.train || args_has(a, "-m"))) rc = cli_config_model(&path, a, &c, why);
    if (!rc) rc = cli_metric(&metric, a, why);
    if (!rc) rc = baseline_of_config(b, &c, path ? path : "", &w, metric, why);
    free(path);
    return rc;
}

static int baseline_set(const struct cli_global *g, const struct cli_args *a, struct db *d)
{
    struct err why = { 0 };
    struct table t;
    int64_t id;
    struct baseline_row b = { .value = NAN, .margin = NAN };
    enum err_code rc = ERR_OK;
    if (a->n < 2 || !*a->arg[1] || strlen(a->arg[1]) >= sizeof b.name)
        rc = err_set(&why, ERR_USAGE,
                     "expected a name of at most %zu bytes: qdyno baseline set NAME [ID | CONFIG]",
                     sizeof b.name - 1);
    else
        snprintf(b.name, sizeof b.name, "%s", a->arg[1]);
    if (!rc)
        rc = a->n > 2 && str_to_i64(a->arg[2], &id) ? baseline_from_run(&b, d, a, id, &why)
                                                    : baseline_from_line(&b, a, &why);
    if (!rc) {
        b.margin = args_num(a, "--margin", b.margin > 0 ? b.margin : 0.01);
        rc = db_baseline_put(d, &b, &why);
    }
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_BASELINE);
    put_baseline(table_row(&t), &b);
    table_note(&t, "to compare a challenger with it: qdyno baseline check %s CONFIG", b.name);
    return cli_finish(g, a, &t, EXIT_DONE);
}

/* ---------------------------------------------------------------- list */

static int baseline_list(const struct cli_global *g, const struct cli_args *a,
                         const struct baseline_row *rows, int n)
{
    struct table t;
    table_init(&t, &DOCUMENT_BASELINE);
    for (int i = 0; i < n; i++) put_baseline(table_row(&t), &rows[i]);
    if (!n) table_note(&t, "no baseline yet: qdyno baseline set NAME [ID | CONFIG]");
    return cli_finish(g, a, &t, EXIT_DONE);
}

/* ---------------------------------------------------------------- check */

static const struct baseline_row *baseline_find(const struct baseline_row *rows, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

/* Parses check [NAME] [CONFIG]. The name may be omitted if there is only one baseline. */
static enum err_code check_args_read(const struct baseline_row **b, const char **line,
                                     const struct cli_args *a, const struct baseline_row *rows, int n,
                                     struct err *why)
{
    struct str names = { 0 };
    *b = a->n > 1 ? baseline_find(rows, n, a->arg[1]) : NULL;
    *line = *b ? (a->n > 2 ? a->arg[2] : NULL) : a->n > 1 ? a->arg[1] : NULL;
    if (!*b && n == 1 && a->n <= 2) *b = &rows[0];
    if (*b) return ERR_OK;
    if (!n) return err_set(why, ERR_USAGE, "there is no baseline yet: qdyno baseline set NAME [ID | CONFIG]");
    for (int i = 0; i < n; i++) str_printf(&names, "%s%s", i ? ", " : "", rows[i].name);
    if (a->n > 1)
        err_set(why, ERR_USAGE, "no baseline '%s': expected one of %s", a->arg[1], str_text(&names));
    else
        err_set(why, ERR_USAGE, "expected the name of a baseline: one of %s", str_text(&names));
    str_free(&names);
    return ERR_USAGE;
}

static void table_add_check(struct table *t, const struct cli_global *g, const struct baseline_row *b,
                            const struct experiment_state *s)
{
    char when[32];
    json_t *about = json_object();
    t->document = &DOCUMENT_BASELINE_CHECK;
    put_baseline(about, b);
    json_put(t->extra, "baseline", about);
    cli_put_run(t->extra, s->run_id);
    json_put(t->extra, "labels", cli_labels_of_run(g, s->run_id));
    json_put_str(t->extra, "verdict", *verdict_name(s->verdict) ? verdict_name(s->verdict) : NULL);
    json_put_str(t->extra, "reason", *s->reason ? s->reason : NULL);
    table_note(t, "baseline %s: A is the champion, B the challenger; %s", b->name,
               s->verdict == VERDICT_WORSE          ? "REGRESSION"
               : s->verdict == VERDICT_INCONCLUSIVE ? "undecided"
               : s->verdict == VERDICT_INVALID      ? "measurement invalid"
                                                    : "no regression");
    if (isfinite(b->value))
        table_note(
            t,
            "the champion measured %.4g %s on %s (machine %s) and %.4g now; the verdict does not use the old value",
            b->value, METRICS[s->spec.metric - METRICS].unit, clock_iso8601(b->set_ms, when, sizeof when),
            *b->machine ? b->machine : "n/a", s->arm[0].rate);
}

/* What differs between the run that gave the champion's value and this one: below the old value, because a
 * reader compares the two numbers. */
static void note_since(struct table *t, struct db *d, const struct baseline_row *b, int64_t now)
{
    enum { SHOWN = 8 };
    struct results then = { .n = 0 }, here = { .n = 0 };
    if (!b->run_id || !isfinite(b->value) || results_read(&then, d, b->run_id, NULL))
        return; /* deleted since */
    if (!results_read(&here, d, now, NULL)) {
        const struct run_recorded x = results_recorded(&then), y = results_recorded(&here);
        json_t *changes = run_changes(&x, &y, b->config);
        struct str text = { 0 };
        char *save = NULL;
        run_changes_lead(&text, &x, &y, changes);
        for (char *line = text.len ? strtok_r(text.data, "\n", &save) : NULL; line;
             line = strtok_r(NULL, "\n", &save))
            table_note(t, "run %lld against this run: %s", (long long)b->run_id, line);
        str_clear(&text);
        run_changes_text(&text, changes, SHOWN);
        if (text.len) table_note(t, "  %s", str_text(&text));
        str_free(&text);
        json_decref(changes);
    }
    results_free(&then);
    results_free(&here);
}

/* A gate about quality alone needs no timing: the challenger is evaluated with the champion as reference. */
static int check_quality(const struct cli_global *g, const struct cli_args *a, const struct baseline_row *b,
                         const struct experiment_spec *spec, const struct gate *gate)
{
    enum { CTX = 512 }; /* and windows: as `ab --quality` */
    json_t *about = json_object();
    struct eval_plan plan = { .configs = &spec->config[1],
                              .n = 1,
                              .ctx = CTX,
                              .chunks = QUALITY_CHUNKS,
                              .ref = &spec->config[0],
                              .model = *spec->model ? spec->model : NULL,
                              .gate = *gate,
                              .baseline = about };
    put_baseline(about, b);
    const int status = eval_plan_run(g, a, &plan);
    json_decref(about);
    return status;
}

static int baseline_check(const struct cli_global *g, const struct cli_args *a, struct db *d,
                          const struct baseline_row *rows, int n)
{
    struct err why = { 0 };
    struct config challenger;
    struct gate gate;
    const struct baseline_row *b;
    const char *line;
    int status = EXIT_INTERNAL;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = spec && s ? ERR_OK : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = check_args_read(&b, &line, a, rows, n, &why);
    if (!rc) rc = cli_config(&challenger, a, line, &why);
    if (!rc) rc = baseline_spec(spec, b, &challenger, args_text(a, "-m", NULL), &why);
    if (!rc) rc = cli_gate(&gate, a, &why);
    if (!rc && gate.terms && !gate_timed_figure(&gate) && !spec->workload.train) {
        status = check_quality(g, a, b, spec, &gate);
        goto done;
    }
    if (!rc) rc = ab_claims_spec(spec, g, a, &why);
    if (!rc) {
        spec->seed = g->seed;
        spec->budget_s = args_num(a, "--budget", 0);
        spec->wait_quiet_s = args_num(a, "--wait-quiet", 0);
        spec->estimand = estimand_parse(args_text(a, "--estimand", ""));
        rc = ab_run(g, a, spec, s, &why);
    }
    if (!rc && s->run_id && b->run_id) { /* that run may have been deleted since */
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
        table_add_check(&t, g, b, s);
        note_since(&t, d, b, s->run_id);
        status = ab_claims_status(s, ab_status(s));
        const struct summary summary = ab_summary(s, status);
        table_summarize(&t, &summary);
        status = cli_finish(g, a, &t, status);
    }
done:
    free(spec);
    free(s);
    return status;
}

/* ---------------------------------------------------------------- the command */

int command_baseline(const struct cli_global *g, const struct cli_args *a)
{
    enum { SET, LIST, TEST, VERBS };
    static const char *const VERB_NAMES[] = { [SET] = "set", [LIST] = "list", [TEST] = "check" };
    /* the verbs that each flag may follow, as bits */
    static const struct {
        const char *flag;
        unsigned verbs;
    } FLAG_VERBS[] = {
        { .flag = "-m", .verbs = 1u << SET | 1u << TEST }, { .flag = "-w", .verbs = 1u << SET },
        { .flag = "--metric", .verbs = 1u << SET },        { .flag = "--margin", .verbs = 1u << SET },
        { .flag = "--arm", .verbs = 1u << SET },           { .flag = "--budget", .verbs = 1u << TEST },
        { .flag = "--wait-quiet", .verbs = 1u << TEST },   { .flag = "--estimand", .verbs = 1u << TEST },
        { .flag = "--gate", .verbs = 1u << TEST },         { .flag = "--label", .verbs = 1u << TEST },
    };
    struct err why = { 0 };
    struct db *d = NULL;
    struct baseline_row *rows = NULL;
    int n = 0, verb = 0;
    while (verb < VERBS && strcmp(a->arg[0], VERB_NAMES[verb])) verb++;
    enum err_code rc = ERR_OK;
    if (verb == VERBS) {
        const char *near = str_nearest(a->arg[0], VERB_NAMES, VERBS);
        rc = err_set(&why, ERR_USAGE, "'%s': expected set, list or check%s%s%s", a->arg[0],
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    for (size_t i = 0; i < COUNT_OF(FLAG_VERBS) && !rc; i++)
        if (args_has(a, FLAG_VERBS[i].flag) && !(FLAG_VERBS[i].verbs & 1u << verb))
            rc = err_set(&why, ERR_USAGE, "%s is no flag of `baseline %s`", FLAG_VERBS[i].flag,
                         VERB_NAMES[verb]);
    if (!rc && verb == LIST && (a->n > 1 || a->knob_count))
        rc = err_set(&why, ERR_USAGE, "`baseline list` takes no arguments");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc && verb != SET) rc = db_baseline_list(d, &rows, &n, &why);
    const int status = rc             ? cli_fail(a, &why)
                       : verb == SET  ? baseline_set(g, a, d)
                       : verb == LIST ? baseline_list(g, a, rows, n)
                                      : baseline_check(g, a, d, rows, n);
    free(rows);
    db_close(d);
    return status;
}
