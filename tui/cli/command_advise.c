/* qdyno advise: ranks configs for this machine, or for one described in a file, by predicted numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "tui/cli/command_advise.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/other_machine.h"

/* clang-format off */
const struct cli_flag FLAGS_ADVISE[] = {
    FLAG_MODEL_ROW,
    { .name = "--goal", .value = "GOAL", .kind = FLAG_CHOICE, .choices = GOAL_NAMES,
      .help = "ranking criterion; default balanced" },
    { .name = "--limit", .value = "LIMITS",
      .help = "limits of a config: memory=BYTES, kld=NATS (mean KL divergence from earlier runs on the model's "
              "text; configs without one are ranked last), e.g. memory=8G,kld=0.05" },
    { .name = "--target", .value = "decode_tok_s=N",
      .help = "decode rate to reach, e.g. decode_tok_s=50; or edge (20), development (50), production (100)" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "context in tokens; default: the model's own, at most 4096" },
    { .name = "--top", .value = "N", .kind = FLAG_INT, .min = 1, .max = 10000,
      .help = "number of configs to print; default 8" },
    { .name = "--machine", .value = "DIR|FILE|NAME",
      .help = "advise for another machine: a folder of `qdyno detect --probe --record DIR`, a file of "
              "`qdyno detect --probe -o json`, or a shipped description (h100, a100, rtx4090, rpi5 ...)" },
    { .name = "--matrix", .help = "print what to try by room in memory (tight, enough, ample) and by need (exact "
              "answers, balanced, small and fast), with measured figures where there are any" },
    { .name = "--ranks", .value = "N", .kind = FLAG_INT, .min = 2, .max = 16,
      .help = "print the ways to run the model with N processes, and which is the fastest for prompts and for "
              "decoding (docs/ranks.md); --sequences of them" },
    { .name = "--sequences", .needs = "--ranks", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "with --ranks: sequences that are decoded side by side; default 1" },
    { .name = "--hosts", .needs = "--ranks", .value = "FILE", .kind = FLAG_TEXT,
      .help = "with --ranks: one process on each of these machines, whose exchanges `detect --ranks N --hosts FILE` measured" },
    { .name = "--network", .needs = "--ranks", .value = "RATE",
      .help = "with --ranks: one process on each of N machines like this one (or --machine), connected by a "
              "network of so many bits a second, and time for a message: 25g, 1g/50us (default 20us)" },
    { .name = "--accuracy", .help = "print predicted against measured values on this machine" },
    { .name = "--forget", .needs = "--accuracy", .help = "with --accuracy: delete all measurements that correct predictions" },
    { .name = NULL },
};
/* clang-format on */

#define ADVICE(member) MEMBER(struct advice, member)
static const struct column COLUMNS[] = {
    COL("rank", "#", .kind = COLUMN_INT),
    COL("config", "config", ADVICE(line)),
    COL("device", "device"),
    COL("evidence", "evidence"),
    { .metric = &METRICS[METRIC_DECODE_RATE],
      .title = "decode tok/s",
      .digits = 1,
      ADVICE(prediction.decode_tok_s.estimate) },
    COL("decode_low_tok_s", "from", .digits = 1, ADVICE(prediction.decode_tok_s.lower)),
    COL("decode_high_tok_s", "to", .digits = 1, ADVICE(prediction.decode_tok_s.upper)),
    { .metric = &METRICS[METRIC_PREFILL_RATE],
      .title = "prefill tok/s",
      ADVICE(prediction.prefill_tok_s.estimate) },
    COL("prefill_low_tok_s", "from", ADVICE(prediction.prefill_tok_s.lower)),
    COL("prefill_high_tok_s", "to", ADVICE(prediction.prefill_tok_s.upper)),
    KEY("decode_limit_tok_s", ADVICE(prediction.decode_limit_tok_s)),
    KEY("prefill_limit_tok_s", ADVICE(prediction.prefill_limit_tok_s)),
    COL("total_bytes", "memory", .kind = COLUMN_BYTES, ADVICE(prediction.plan.total)),
    KEY("peak_bytes", .kind = COLUMN_BYTES, ADVICE(prediction.peak_bytes.estimate)),
    { .metric = &METRICS[METRIC_LOAD_TIME], ADVICE(prediction.load_s.estimate) },
    COL("token_j", "J/token", .digits = 2, ADVICE(prediction.token_j.estimate)),
    KEY("runs", ADVICE(prediction.runs)),
    KEY("assumed", ADVICE(prediction.assumed)),
    COL("fits", "fits", ADVICE(prediction.fits)),
    { .metric = &METRICS[METRIC_KLD], .title = "KLD, nats", .digits = 4, ADVICE(kld) },
    KEY("score", ADVICE(score)),
    KEY("reason", MEMBER_AS(struct advice, reason, STRING)),
    KEY("caution", ADVICE(caution)),
    KEY("check", MEMBER_AS(struct advice, check, STRING)),
    KEY("prefill_evidence"),
    KEY("run_ids"),
    KEY("found_by_search", ADVICE(found)),
    KEY("folded", .kind = COLUMN_BOOL),
    COL("kld_text", "on text"),
    KEY("kld_other_text_mean", ADVICE(foreign_kld)),
    KEY("kld_other_text"),
};

DOCUMENT(ADVISE, "qdyno.advise/1", COLUMNS,
         .members = "model goal machine considered folded kernels_timed search_run random_weights "
                    "answers_unverified rules[].rule rules[].advice rules[].reason rules[].evidence "
                    "rules[].check origin.* text.path text.sha256 text.chosen text.trouble "
                    "text.losses_on_other_texts");

/* The value in "KEY=VALUE". ERR_USAGE if the key is another one. */
static enum err_code key_value(const char *flag, const char *text, const char *key, const char **value,
                               struct err *why)
{
    size_t n = strlen(key);
    if (strncmp(text, key, n) || text[n] != '=')
        return err_set(why, ERR_USAGE, "%s %s: expected %s=VALUE", flag, text, key);
    *value = text + n + 1;
    return ERR_OK;
}

/* Parses --target: "decode_tok_s=N", "tok_s=N" or the name of a scenario. */
static enum err_code target_read_rate(double *tok_s, const char *text, struct err *why)
{
    static const struct {
        const char *name;
        double tok_s;
    } SCENARIOS[] = {
        { .name = "edge", .tok_s = 20 },
        { .name = "development", .tok_s = 50 },
        { .name = "production", .tok_s = 100 },
    };
    const char *value = "";
    for (size_t i = 0; i < COUNT_OF(SCENARIOS); i++)
        if (!strcmp(text, SCENARIOS[i].name)) {
            *tok_s = SCENARIOS[i].tok_s;
            return ERR_OK;
        }
    const bool brief = !strncmp(text, "tok_s=", 6);
    enum err_code rc = key_value("--target", text, brief ? "tok_s" : "decode_tok_s", &value, why);
    if (!rc && (!str_to_double(value, tok_s) || !(*tok_s > 0) || !isfinite(*tok_s)))
        rc = err_set(why, ERR_USAGE, "--target %s: expected a number above 0", text);
    return rc;
}

static enum err_code options_read(struct advise_options *o, const struct cli_args *a, struct err *why)
{
    const char *target = args_text(a, "--target", NULL);
    enum err_code rc = cli_limits(&o->memory_limit, &o->kld_limit, NULL, a, why);
    goal_parse(args_text(a, "--goal", "balanced"), &o->goal);
    o->ctx = (int)args_int(a, "-c", 0);
    if (!rc && target) rc = target_read_rate(&o->target_tok_s, target, why);
    return rc;
}

/* Opens the machine of --machine. Advice needs its measured limits. */
static enum err_code measured_machine_open(struct other_machine *d, const char *path, struct err *why)
{
    enum err_code rc = other_machine_open(d, path, why);
    if (rc || d->ceilings_known) return rc;
    other_machine_close(d);
    return err_set(
        why, ERR_FORMAT,
        "--machine %s: it has no measured limits; make it on that machine with `qdyno detect --probe`", path);
}

static const char *evidence_word(const struct evidence_rate *r)
{
    return r->runs ? "measured" : "predicted";
}

/* The runs that measured the rates of a row, each once. */
static json_t *run_ids(const struct advice *x)
{
    const struct evidence_rate *const rates[] = { &x->decode, &x->prefill };
    json_t *list = json_array();
    for (size_t k = 0; k < COUNT_OF(rates); k++)
        for (int i = 0; i < MIN(rates[k]->runs, (int)EVIDENCE_RUNS); i++) {
            bool there = false;
            for (size_t j = 0; j < json_array_size(list); j++)
                there |= json_integer_value(json_array_get(list, j)) == rates[k]->run[i];
            if (!there) json_array_append_new(list, json_integer(rates[k]->run[i]));
        }
    return list;
}

static void table_add_advice(struct table *t, const struct advice *x, int rank, bool folded)
{
    const struct prediction *p = &x->prediction;
    json_t *row = table_row(t);
    json_put_str(row, "evidence", evidence_word(&x->decode));
    json_put_str(row, "prefill_evidence", evidence_word(&x->prefill));
    json_put(row, "run_ids", run_ids(x));
    document_put(&DOCUMENT_ADVISE, row, struct advice, x);
    json_put_bool(row, "folded", folded);
    json_put_int(row, "rank", rank);
    json_put_str(row, "device", p->on_gpu ? "gpu" : "cpu");
    json_put_str(row, "kld_text", *x->text && !x->foreign ? x->text : NULL);
    json_put_str(row, "kld_other_text", x->foreign ? x->text : NULL);
    if (folded) return;
    table_note(t, "%d %s", rank, x->line);
    table_note(t, "    reason: %s", x->reason);
    if (*x->caution) table_note(t, "    caution: %s", x->caution);
    table_note(t, "    to verify: %s", x->check);
}

/* Rules that apply independently of predictions. */
static void table_add_rules(struct table *t, const struct rule_case *c)
{
    struct rule_finding found[RULES_MAX];
    const int n = rules_apply(found, c);
    json_t *list = json_array();
    if (n) table_note(t, "rules that apply to this machine, model and goal:");
    for (int i = 0; i < n; i++) {
        const struct rule_finding *f = &found[i];
        json_t *rule = list_row(list);
        json_put_str(rule, "rule", f->rule);
        json_put_str(rule, "advice", f->advice);
        json_put_str(rule, "reason", f->reason);
        json_put_str(rule, "evidence", f->evidence);
        json_put_str(rule, "check", *f->check ? f->check : NULL);
        table_note(t, "* %s (%s)", f->advice, f->rule);
        table_note(t, "    reason: %s", f->reason);
        table_note(t, "    evidence: %s", f->evidence);
        if (*f->check) table_note(t, "    to verify: %s", f->check);
    }
    json_put(t->extra, "rules", list);
}

/* Where the numbers of a described machine come from, and which of them are estimates. */
static void table_add_origin(struct table *t, const json_t *about)
{
    const json_t *guesses = json_object_get(about, "estimated");
    json_put(t->extra, "origin", about ? json_incref((json_t *)about) : json_null());
    if (!about) return;
    table_note(t, "%s, %s", json_get_str(about, "what", "a machine"),
               json_get_str(about, "origin", "origin unknown"));
    for (size_t i = 0; i < json_array_size(guesses); i++)
        table_note(t, "    estimated: %s", json_string_value(json_array_get(guesses, i)));
}

/* Notes on what the predictions are based, and so how reliable they are. */
static void note_basis(struct table *t, const struct advice *best, const struct machine_ceilings *c,
                       const char *named)
{
    const struct prediction *p = &best->prediction;
    if (named)
        table_note(t, "predicted for %s; none of these values were measured on it", named);
    else if (best->decode.runs)
        table_note(
            t,
            "rows marked measured: rates of earlier runs of this file on this machine with this build of "
            "the kernels; other rows: predicted from %s",
            c->kernels.measured ? "kernel times" : "fixed shares of the machine's limits");
    else if (p->runs)
        table_note(t, "predicted from %s, corrected by %d run%s (see `qdyno advise --accuracy`)",
                   c->kernels.measured ? "kernel times" : "fixed shares of the machine's limits", p->runs,
                   str_plural(p->runs));
    else if (c->kernels.measured)
        table_note(t, "predicted from kernel times; none of these values were measured yet");
    else
        table_note(
            t,
            "predicted from fixed shares of the machine's limits, so the intervals are wide; `qdyno detect --kernels` "
            "(55 s) narrows them; none of these values were measured yet");
}

static void note_model(struct table *t, const char *path)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    if (!model_file_open(&file, path, NULL) && !model_shape_read(&shape, file, NULL)) {
        cli_put_cautions(t->extra, shape.random_weights, shape.unknown > 0);
        cli_note_cautions(t, shape.random_weights, shape.unknown > 0);
    }
    gguf_close(file);
}

struct advising {
    const char *named;
    struct other_machine other;
    struct machine machine;
    struct machine_ceilings ceilings;
    struct correction *correction;
    struct answer_klds answer_klds;
    struct evidence evidence;
    char *model;
    struct advise_options o;
};

/* Reads the options, the machine, the model, and the corrections from earlier runs. The corrections belong to
 * this machine, so they are not used for --machine. */
static enum err_code advising_init(struct advising *v, const struct cli_global *g, const struct cli_args *a,
                                   struct err *why)
{
    struct db *d = NULL;
    v->named = args_text(a, "--machine", NULL);
    enum err_code rc = options_read(&v->o, a, why);
    if (!rc) rc = cli_model(&v->model, a, why);
    if (!rc && v->named) rc = measured_machine_open(&v->other, v->named, why);
    if (!rc && v->named) {
        v->machine = v->other.machine;
        v->ceilings = v->other.ceilings;
    } else if (!rc) {
        rc = cli_machine(g, PROBE_IF_MISSING, &v->machine, &v->ceilings, NULL, why);
    }
    if (!rc) rc = db_open(&d, g->db_path, why);
    if (!rc && !v->named) rc = correction_load(&v->correction, d, v->machine.id, &v->ceilings, why);
    if (!rc)
        rc = answer_klds_load(&v->answer_klds, d, v->model, why); /* quality is the same on every machine */
    if (!rc && !v->named) rc = evidence_load(&v->evidence, d, v->model, v->machine.id, why);
    db_close(d);
    v->o.correction = v->correction;
    v->o.answer_klds = &v->answer_klds;
    v->o.evidence = v->named ? NULL : &v->evidence;
    return rc;
}

/* The text of the model, and how many losses on other texts it leaves unranked. */
static void put_text(struct table *t, const struct quality_text *q, const struct advice *list, int n)
{
    int foreign = 0;
    for (int i = 0; i < n; i++) foreign += list[i].foreign;
    json_t *text = json_object();
    json_put_str(text, "path", q->path);
    json_put_str(text, "sha256", *q->sha256 ? q->sha256 : NULL);
    json_put_bool(text, "chosen", q->chosen);
    json_put_str(text, "trouble", q->trouble.code ? q->trouble.message : NULL);
    json_put_int(text, "losses_on_other_texts", foreign);
    json_put(t->extra, "text", text);
    if (foreign)
        table_note(t,
                   "this model's text is %s: the loss of %d configuration%s was measured on another text and "
                   "is not ranked with the others",
                   q->name, foreign, foreign > 1 ? "s" : "");
    if (q->trouble.code) table_note(t, "%s", q->trouble.message);
}

/* Reads what rules and strategies ask about the model. */
static enum err_code advising_case(struct rule_case *c, struct model_shape *shape,
                                   struct prediction *reference, const struct advising *v, struct err *why)
{
    struct gguf *file = NULL;
    struct config plain;
    const struct predict_for what = { .ctx = v->o.ctx,
                                      .on_gpu = v->ceilings.gpu.read_bytes_s > 0,
                                      .correction = v->correction };
    config_default(&plain);
    enum err_code rc = model_file_open(&file, v->model, why);
    if (!rc) rc = model_shape_read(shape, file, why);
    if (!rc) rc = predict(reference, file, &plain, &v->machine, &v->ceilings, &what, why);
    *c = (struct rule_case){ .model = v->model,
                             .shape = shape,
                             .machine = &v->machine,
                             .ceilings = &v->ceilings,
                             .reference = reference,
                             .goal = v->o.goal,
                             .memory_limit = v->o.memory_limit,
                             .evidence = v->o.evidence };
    if (!rc && !what.on_gpu) rc = rule_case_find_enough(c, file, &what, why);
    gguf_close(file);
    return rc;
}

static enum err_code put_rules(struct table *t, const struct advising *v, struct err *why)
{
    struct rule_case c;
    struct model_shape shape;
    struct prediction reference;
    const enum err_code rc = advising_case(&c, &shape, &reference, v, why);
    if (!rc) table_add_rules(t, &c);
    return rc;
}

static int advising_show_matrix(const struct cli_global *g, const struct cli_args *a,
                                const struct advising *v)
{
    struct err why = { 0 };
    struct rule_case c;
    struct model_shape shape;
    struct prediction reference;
    const enum err_code rc = advising_case(&c, &shape, &reference, v, &why);
    return rc ? cli_fail(a, &why) : matrix_show(g, a, &c, &v->o);
}

static int advising_show_ranks(const struct cli_global *g, const struct cli_args *a, const struct advising *v)
{
    const struct advise_ranks x = { .model = v->model,
                                    .machine = &v->machine,
                                    .ceilings = &v->ceilings,
                                    .what = { .ctx = v->o.ctx, .correction = v->correction } };
    return advise_ranks_show(g, a, &x);
}

/* Where nothing fits, the first row is not a recommendation. */
static void note_unfit(struct table *t, const struct advising *v, const struct advice *list, int n)
{
    const struct advice *least = NULL;
    char need[16], limit[16];
    for (int i = 0; i < n; i++) {
        if (list[i].prediction.fits) return;
        if (!least || list[i].prediction.plan.total < least->prediction.plan.total) least = &list[i];
    }
    if (!least) return;
    str_from_bytes(least->prediction.plan.total, need, sizeof need);
    if (v->o.memory_limit > 0)
        table_headline(t, "none of the %d configs fits into %s of memory: the smallest, %s, needs %s", n,
                       str_from_bytes(v->o.memory_limit, limit, sizeof limit), least->line, need);
    else
        table_headline(
            t, "none of the %d configs fits into the memory of this machine: the smallest, %s, needs %s", n,
            least->line, need);
}

/* One line for the configurations whose rate is hardly known. */
static void note_folded(struct table *t, const struct advising *v, const struct advice *list, int n)
{
    struct str names = { 0 };
    if (!n) return;
    for (int i = 0; i < MIN(n, 3); i++) str_printf(&names, "%s%s", i ? " " : "", list[i].line);
    table_note(
        t,
        "%d more configuration%s too uncertain to rank: the predicted decode rates span more than a factor "
        "of %.0f; the best of them: %s",
        n, n > 1 ? "s are" : " is", ADVICE_VAGUE, str_text(&names));
    table_note(t, "    to measure the first: %s", list[0].check);
    if (!v->ceilings.kernels.measured)
        table_note(t, "    to predict all of them better: qdyno detect --kernels (55 s, once per machine)");
    str_free(&names);
}

/* In text, vague rows are folded under one line: only --machine cannot measure them. Other formats keep all
 * rows. Returns the number of rows that are not folded. */
static int advising_fold(const struct advising *v, struct advice *list, int n)
{
    return v->named ? n : advice_put_vague_last(list, n);
}

static int advising_print(const struct cli_global *g, const struct cli_args *a, const struct advising *v,
                          struct advice *list, int n)
{
    struct table t;
    struct err why = { 0 };
    table_init(&t, &DOCUMENT_ADVISE);
    json_put_str(t.extra, "model", v->model);
    json_put_str(t.extra, "goal", goal_name(v->o.goal));
    json_put_str(t.extra, "machine", v->machine.id);
    const int known = advising_fold(v, list, n);
    const bool for_people = g->output == OUTPUT_MD;
    const int listed = for_people ? known : n, shown = MIN(listed, (int)args_int(a, "--top", 8));
    for (int i = 0; i < shown; i++) table_add_advice(&t, &list[i], i + 1, i >= known);
    json_put_int(t.extra, "considered", n);
    json_put_int(t.extra, "folded", n - known);
    json_put_bool(t.extra, "kernels_timed", v->ceilings.kernels.measured);
    if (v->evidence.found.run) json_put_int(t.extra, "search_run", v->evidence.found.run);
    if (shown < listed)
        table_note(&t, "%d of the %d configs that were compared are shown; --top N shows the best N", shown,
                   n);
    note_unfit(&t, v, list, n);
    note_folded(&t, v, list + known, n - known);
    put_text(&t, &v->answer_klds.text, list, n);
    int status = n ? EXIT_DONE : EXIT_NO_FIT;
    if (put_rules(&t, v, &why)) {
        table_done(&t);
        return cli_fail(a, &why);
    }
    if (n)
        table_note(
            &t,
            "memory: estimated for a context of %d tokens (-c); an A/B or a search of a shorter workload "
            "plans and reports less",
            list[0].prediction.plan.ctx);
    if (n) note_basis(&t, &list[0], &v->ceilings, v->named);
    if (v->named) table_add_origin(&t, v->other.recording.about);
    note_model(&t, v->model);
    return cli_finish(g, a, &t, status);
}

int command_advise(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct advising *v = calloc(1, sizeof *v);
    struct advice *list = NULL;
    int n = 0;
    if (args_has(a, "--accuracy")) {
        free(v);
        return accuracy_show(g, a);
    }
    if (!v) return cli_fail_memory(a);
    enum err_code rc = advising_init(v, g, a, &why);
    const bool matrix = args_has(a, "--matrix"), ranks = args_has(a, "--ranks");
    if (!rc && args_has(a, "--network") && args_has(a, "--hosts"))
        rc = err_set(&why, ERR_USAGE,
                     "--network simulates a network, and --hosts names machines between which exchanges were "
                     "measured: give one of them");
    if (!rc && !matrix && !ranks) rc = advise(&list, &n, v->model, &v->machine, &v->ceilings, &v->o, &why);
    const int status = rc       ? cli_fail(a, &why)
                       : ranks  ? advising_show_ranks(g, a, v)
                       : matrix ? advising_show_matrix(g, a, v)
                                : advising_print(g, a, v, list, n);
    other_machine_close(&v->other);
    correction_free(v->correction);
    answer_klds_free(&v->answer_klds);
    evidence_free(&v->evidence);
    free(list);
    free(v->model);
    free(v);
    return status;
}
