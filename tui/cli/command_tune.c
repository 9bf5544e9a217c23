/* qdyno tune: from "what should I run?" to a file that says it: advise, measure the best candidate against
 * what runs now, keep the better one. A prediction is never kept unmeasured. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eval/eval.h"
#include "tui/cli/record.h"
#include "tui/cli/rows.h"

const struct cli_flag FLAGS_TUNE[] = {
    FLAG_MODEL_ROW,
    { "--budget", NULL, "TIME", "time for measuring; default 10m", FLAG_SECONDS },
    { "--goal", NULL, "GOAL", "what to look for; default balanced", FLAG_CHOICE, 0, 0, GOAL_NAMES },
    { "-C", "--config", "CONFIG", "the current config, which the candidate must beat; default the defaults",
      FLAG_TEXT },
    { "-w", "--workload", "WORKLOAD", "what is timed; default tg64", FLAG_TEXT },
    { "--probe", NULL, NULL, "measure the machine's ceilings again", FLAG_SWITCH },
    { "-f", "--file", "TEXT", "text for the quality check; default the bundled one", FLAG_TEXT },
    { "--max-ppl", NULL, "SHARE", "perplexity a candidate may lose; default 2%", FLAG_RATIO },
    { "--dry-run", NULL, NULL, "write no config file", FLAG_SWITCH },
    { NULL },
};

static const struct column COLUMNS[] = {
    { "model", "model", COLUMN_TEXT },
    { "machine", "machine", COLUMN_TEXT },
    { "current", "current config", COLUMN_TEXT },
    { "candidate", "candidate", COLUMN_TEXT },
    { "reason", "why", COLUMN_TEXT },
    { "predicted_tok_s", "predicted (tokens/s)", COLUMN_NUM, 1, 1 },
    { "run", "A/B run", COLUMN_INT },
    { "metric", "metric", COLUMN_TEXT },
    { "current_rate", "current measured", COLUMN_NUM, 1, 2 },
    { "candidate_rate", "candidate measured", COLUMN_NUM, 1, 2 },
    { "effect_ratio", "candidate / current", COLUMN_NUM, 1, 4 },
    { "effect_lower_ratio", "  95 % from", COLUMN_NUM, 1, 4 },
    { "effect_upper_ratio", "  95 % to", COLUMN_NUM, 1, 4 },
    { "verdict", "verdict", COLUMN_TEXT },
    { "blocks", "blocks", COLUMN_INT },
    { "noise_floor_ratio", "noise floor (%)", COLUMN_NUM, 100, 2 },
    { "current_perplexity", "current perplexity", COLUMN_NUM, 1, 4 },
    { "candidate_perplexity", "candidate perplexity", COLUMN_NUM, 1, 4 },
    { "winner", "winner", COLUMN_TEXT },
    { "because", "because", COLUMN_TEXT },
    { "written", "written to", COLUMN_TEXT },
    { "random_weights", "random weights", COLUMN_BOOL },
};

struct tune {
    const struct cli_global *g;
    const struct cli_args *a;
    struct machine machine;
    struct machine_ceilings ceilings;
    char *model, *written;
    struct config current, candidate;
    char current_line[2048], candidate_line[2048], because[512];
    double budget;
    int64_t start_ns;
    struct progress progress;
    const char *trying;
    json_t *tried; /* array: config and rate of each candidate tried */
    struct advice *advice;
    int n_advice, chosen; /* -1: no advice differs from the current config */
    struct experiment_state *state;
    double ppl[2];
    bool measured, candidate_wins, random;
};

static double elapsed(const struct tune *t)
{
    return (double)(clock_ns() - t->start_ns) * 1e-9;
}

static enum err_code prepare(struct tune *t, enum goal goal, struct err *why)
{
    struct advise_options o = { .goal = goal };
    bool known;
    enum err_code rc = cli_config(&t->current, t->a, args_text(t->a, "-C", NULL), why);
    if (!rc) rc = cli_config_model(&t->model, t->a, &t->current, why);
    if (!rc)
        rc = cli_machine(t->g, args_has(t->a, "--probe") ? PROBE_FRESH : PROBE_IF_MISSING, &t->machine,
                         &t->ceilings, &known, why);
    if (!rc) rc = advise(&t->advice, &t->n_advice, t->model, &t->machine, &t->ceilings, &o, why);
    return rc;
}

/* Same merged settings = same work: an A/B of them would be an A/A. */
static bool is_same(const struct config *x, const struct config *y)
{
    json_t *a = config_to_json(x), *b = config_to_json(y);
    bool same = json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

static bool go_on_event(void *ctx, const json_t *event)
{
    struct tune *t = ctx;
    if (event)
        progress_show(&t->progress, "trying %s: %s %lld/%lld", t->trying, json_get_str(event, "phase", ""),
                      (long long)json_get_int(event, "done", 0), (long long)json_get_int(event, "of", 0));
    return !cli_is_interrupted(t->g);
}

/* One timed cell after an untimed one: enough to order candidates, never enough to keep one. NAN when the
 * config cannot run: then it is out of the race. */
static double try_once(struct tune *t, const struct config *c, const struct workload *w)
{
    struct arm *arm = NULL;
    json_t *answer = NULL;
    char work[640];
    double rate = NAN;
    workload_line(w, work, sizeof work);
    struct arm_spec spec = { .model = t->model,
                             .config = c,
                             .ctx = workload_ctx(w),
                             .sequences = workload_sequences(w),
                             .log = &t->g->log };
    enum err_code rc = arm_open(&arm, &spec, go_on_event, t, NULL);
    for (int i = 0; i < 2 && !rc; i++) {
        json_decref(answer);
        rc = arm_cell(arm, work, t->g->seed, &answer, go_on_event, t, NULL);
    }
    if (!rc) rate = w->gen ? answer_decode_rate(answer) : answer_prefill_rate(answer);
    json_decref(answer);
    arm_close(arm);
    return rate;
}

/* The candidate that shall be confirmed: for speed the fastest of the best-ranked when tried (predictions of
 * small models tie), otherwise the best-ranked. A quarter of the budget at most. */
static enum err_code choose(struct tune *t, enum goal goal, struct err *why)
{
    enum { TRIED = 6 };
    struct workload w;
    int tried = 0;
    bool by_speed = goal == GOAL_SPEED || goal == GOAL_BALANCED;
    enum err_code rc = workload_parse(&w, args_text(t->a, "-w", "tg64"), why);
    if (!rc && (*w.eval_file || w.train))
        rc = err_set(why, ERR_USAGE, "-w %s: tune races the speed of running; want e.g. tg64",
                     args_text(t->a, "-w", ""));
    t->chosen = -1;
    config_line(&t->current, t->current_line, sizeof t->current_line);
    double best = -1;
    for (int i = 0; i < t->n_advice && !rc && tried < TRIED; i++) {
        const struct advice *x = &t->advice[i];
        if (!x->prediction.fits || is_same(&x->config, &t->current)) continue;
        if (tried && (!by_speed || elapsed(t) > t->budget / 4)) break;
        tried++;
        t->trying = x->line;
        double rate = by_speed ? try_once(t, &x->config, &w) : 0;
        json_t *row = json_object();
        json_put_str(row, "config", x->line);
        json_put_num(row, "tok_s", by_speed ? rate : NAN);
        json_array_append_new(t->tried, row);
        if (rate > best) {
            best = rate;
            t->chosen = i;
        }
        if (cli_is_interrupted(t->g)) rc = err_set(why, ERR_CANCELLED, "interrupted");
    }
    progress_clear(&t->progress);
    if (rc || t->chosen < 0) return rc;
    t->candidate = t->advice[t->chosen].config;
    snprintf(t->candidate_line, sizeof t->candidate_line, "%s", t->advice[t->chosen].line);
    return ERR_OK;
}

static enum err_code race(struct tune *t, struct err *why)
{
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    t->state = calloc(1, sizeof *t->state);
    if (!spec || !t->state) {
        free(spec);
        return err_set(why, ERR_NOMEM, "no memory for the experiment");
    }
    snprintf(spec->model, sizeof spec->model, "%s", t->model);
    spec->config[0] = t->current;
    spec->config[1] = t->candidate;
    spec->margin = 0.01;
    spec->budget_s = fmax(t->budget - elapsed(t), 1);
    spec->seed = t->g->seed;
    enum err_code rc = workload_parse(&spec->workload, args_text(t->a, "-w", "tg64"), why);
    if (!rc) rc = ab_run(t->g, spec, t->state, why);
    if (!rc && t->state->phase == PHASE_FAILED)
        rc = err_set(why, t->state->error_code, "the A/B failed: %s", t->state->error);
    t->measured = !rc;
    free(spec);
    return rc;
}

static bool changes_answers(const struct config *from, const struct config *to)
{
    for (int k = 0; k < KNOB_COUNT; k++)
        if (KNOBS[k].changes_answers &&
            strcmp(config_text(from, (enum knob_id)k), config_text(to, (enum knob_id)k)))
            return true;
    return false;
}

static bool go_on(void *arg, int64_t chunk, int64_t of, double nll)
{
    const struct tune *t = arg;
    (void)chunk;
    (void)of;
    (void)nll;
    return !cli_is_interrupted(t->g);
}

static enum err_code perplexity_of(struct tune *t, const struct config *c, const char *text, size_t n,
                                   double *ppl, struct err *why)
{
    enum { CTX = 256, CHUNKS = 8 }; /* enough to see damage, short enough to be done each time */
    struct model *m = NULL;
    struct perplexity p;
    struct gguf *file = NULL;
    struct model_shape shape;
    enum err_code rc = gguf_open(&file, t->model, why);
    if (!rc) rc = model_shape_read(&shape, file, why);
    gguf_close(file);
    if (rc) return rc;
    int ctx = shape.ctx_train > 0 ? (int)MIN(shape.ctx_train, (int64_t)CTX) : CTX;
    struct model_options o = { .path = t->model, .config = c, .ctx = ctx, .sequences = 1, .log = &t->g->log };
    rc = model_open(&m, &o, why);
    if (!rc) rc = eval_perplexity(&p, m, text, n, ctx, CHUNKS, go_on, t, why);
    if (!rc) *ppl = p.ppl;
    model_close(m);
    return rc;
}

static enum err_code measure_quality(struct tune *t, struct err *why)
{
    enum { LIMIT = 1 << 24 };
    char *path = NULL, *text = NULL;
    size_t n = 0;
    const char *given = args_text(t->a, "-f", NULL);
    if (!changes_answers(&t->current, &t->candidate)) return ERR_OK;
    enum err_code rc = given ? ERR_OK : file_share(&path, EVAL_TEXT, why);
    if (!rc) rc = file_read(&text, &n, given ? given : path, LIMIT, why);
    if (!rc) rc = perplexity_of(t, &t->current, text, n, &t->ppl[0], why);
    if (!rc) rc = perplexity_of(t, &t->candidate, text, n, &t->ppl[1], why);
    free(path);
    free(text);
    return rc ? err_prefix(why, "the candidate can change answers, and its quality could not be measured")
              : ERR_OK;
}

static void decide(struct tune *t)
{
    double loss = t->ppl[1] / t->ppl[0] - 1, allowed = args_num(t->a, "--max-ppl", 0.02);
    enum verdict v = t->measured ? t->state->verdict : VERDICT_NONE;
    const char *word = verdict_name(v);
    if (t->chosen < 0) {
        snprintf(t->because, sizeof t->because, "no advised config that fits differs from the current one");
    } else if (v != VERDICT_BETTER) {
        snprintf(t->because, sizeof t->because, "the candidate is not proven better: %s",
                 *word ? word : "no verdict");
    } else if (changes_answers(&t->current, &t->candidate) && !t->random && !(loss <= allowed)) {
        snprintf(t->because, sizeof t->because,
                 "the candidate is faster, but its perplexity is %+.2f %% off (allowed: %.2f %%)", 100 * loss,
                 100 * allowed);
    } else {
        t->candidate_wins = true;
        snprintf(t->because, sizeof t->because, "measured better by a paired A/B%s",
                 t->random ? "; quality cannot be judged on random weights" : "");
    }
}

static enum err_code write_config(struct tune *t, struct err *why)
{
    char *place = NULL;
    struct str path = { 0 };
    struct atomic_file f;
    char name[256], when[32];
    if (args_has(t->a, "--dry-run")) return ERR_OK;
    snprintf(name, sizeof name, "%s", cli_base_name(t->model));
    if (str_ends(name, ".gguf")) name[strlen(name) - 5] = '\0';
    enum err_code rc = file_place(&place, FILE_CONFIG, why);
    if (rc) return rc;
    str_printf(&path, "%s/%s.conf", place, name);
    free(place);
    t->written = str_take(&path);
    if (!t->written) return err_set(why, ERR_NOMEM, "no memory for a path");
    if ((rc = atomic_file_open(&f, t->written, why))) return rc;
    fprintf(f.stream, "# %s, %s: %s\n%s\n", name, clock_iso8601(clock_unix_ms(), when, sizeof when),
            t->because, t->candidate_wins ? t->candidate_line : t->current_line);
    return atomic_file_commit(&f, why);
}

static void put_race(json_t *row, const struct tune *t)
{
    const struct experiment_state *s = t->state;
    if (!t->measured) return;
    json_put_int(row, "run", s->run_id);
    json_put_str(row, "metric", s->spec.metric ? s->spec.metric->name : NULL);
    json_put_num(row, "current_rate", s->arm[0].rate);
    json_put_num(row, "candidate_rate", s->arm[1].rate);
    struct interval effect = ab_effect(s);
    json_put_num(row, "effect_ratio", exp(effect.estimate));
    json_put_num(row, "effect_lower_ratio", exp(effect.lower));
    json_put_num(row, "effect_upper_ratio", exp(effect.upper));
    json_put_str(row, "verdict", *verdict_name(s->verdict) ? verdict_name(s->verdict) : NULL);
    json_put_int(row, "blocks", s->blocks);
    json_put_num(row, "noise_floor_ratio", s->noise_floor);
}

static void put_tried(struct table *out, const struct tune *t)
{
    json_object_set(out->extra, "tried", t->tried);
    for (size_t i = 0; i < json_array_size(t->tried); i++) {
        const json_t *x = json_array_get(t->tried, i);
        double rate = json_get_num(x, "tok_s", NAN);
        if (isfinite(rate))
            table_note(out, "tried once: %-40s %.1f tok/s", json_get_str(x, "config", ""), rate);
    }
}

static int report(const struct tune *t)
{
    struct table out;
    table_init(&out, "qdyno.tune/1", COLUMNS, COUNT_OF(COLUMNS));
    out.record = true;
    json_t *row = table_row(&out);
    char machine[128];
    json_put_str(row, "model", t->model);
    json_put_str(row, "machine", machine_short(&t->machine, machine, sizeof machine));
    json_put_str(row, "current", t->current_line);
    if (t->chosen >= 0) {
        json_put_str(row, "candidate", t->candidate_line);
        json_put_str(row, "reason", t->advice[t->chosen].reason);
        json_put_num(row, "predicted_tok_s", t->advice[t->chosen].prediction.decode_tok_s);
    }
    put_race(row, t);
    put_tried(&out, t);
    json_put_num(row, "current_perplexity", t->ppl[0]);
    json_put_num(row, "candidate_perplexity", t->ppl[1]);
    json_put_str(row, "winner", t->candidate_wins ? t->candidate_line : t->current_line);
    json_put_str(row, "because", t->because);
    json_put_str(row, "written", t->written);
    json_put_bool(row, "random_weights", t->random);
    if (t->random) table_note(&out, "%s", RANDOM_WEIGHTS);
    if (t->written) table_note(&out, "use it: qdyno run -C \"$(tail -n 1 '%s')\" -p TEXT", t->written);
    int status = t->measured && !t->candidate_wins && t->state->phase == PHASE_STOPPED ? EXIT_INTERRUPTED
                                                                                       : EXIT_DONE;
    status = cli_print(t->g, t->a, &out, status);
    table_done(&out);
    return status;
}

static enum err_code read_random(struct tune *t, struct err *why)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    enum err_code rc = gguf_open(&file, t->model, why);
    if (!rc) rc = model_shape_read(&shape, file, why);
    if (!rc) t->random = shape.random_weights;
    gguf_close(file);
    return rc;
}

int command_tune(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct tune *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(&why, ERR_NOMEM, "no memory to begin");
        return cli_fail(a, &why);
    }
    t->g = g;
    t->a = a;
    t->ppl[0] = t->ppl[1] = NAN;
    t->tried = json_array();
    t->budget = args_num(a, "--budget", 600);
    progress_init(&t->progress, g);
    enum goal goal = GOAL_BALANCED;
    goal_parse(args_text(a, "--goal", "balanced"), &goal);
    enum err_code rc = prepare(t, goal, &why);
    t->start_ns = clock_ns(); /* the budget is for measuring configs, not the machine */
    if (!rc) rc = read_random(t, &why);
    if (!rc) rc = choose(t, goal, &why);
    if (!rc && t->chosen >= 0) rc = race(t, &why);
    if (!rc && t->measured && t->state->verdict == VERDICT_BETTER) rc = measure_quality(t, &why);
    if (!rc) decide(t);
    if (!rc && !cli_is_interrupted(g)) rc = write_config(t, &why);
    int status = rc ? cli_fail(a, &why) : report(t);
    json_decref(t->tried);
    free(t->advice);
    free(t->state);
    free(t->model);
    free(t->written);
    free(t);
    return status;
}
