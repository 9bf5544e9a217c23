/* advisor/experiment/forecast.c - what a budget gives, before a run starts or as soon as its cells were
 * timed.
 *
 * A run that ends one block short of a verdict has cost its whole budget for nothing, and that is
 * foreseeable: the length of a block follows from the workload and the speed of the arms. The speed comes
 * from earlier runs of the same config and workload on this machine, else from the prediction. Where neither
 * knows it, the forecast is unknown, with a reason: a guess here would send people away from runs that fit.
 */
#include "advisor/experiment/parts.h"
#include "engine/import/import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 16, PROMPT_TOKENS = 64 };      /* of quality_measure, where not specified */
enum { WARMUP_USUAL = 5 };                      /* cells until a rate has settled */
static const double TEXT_BYTES_PER_TOKEN = 3.5; /* of English, by vocabularies of today's models */

/* ---------------------------------------------------------------- arithmetic */

struct quality_size forecast_quality_size(const struct experiment_spec *s)
{
    struct quality_size size = { .ctx = s->quality_ctx > 0 ? s->quality_ctx : QUALITY_CTX,
                                 .windows = s->quality_chunks };
    struct file_map text;
    if (size.windows > 0) return size;
    size.windows = -1;
    if (file_map(&text, s->quality_file, NULL)) return size;
    size.windows = MAX((int)((double)text.size / TEXT_BYTES_PER_TOKEN / size.ctx), 1);
    file_unmap(&text);
    return size;
}

void forecast_quality_add(struct quality_time *q, const struct arm_time *a, const struct arm_time *b)
{
    q->token_s += a->prefill_token_s + b->prefill_token_s;
    q->fixed_s += a->start_s + b->start_s +
                  (double)PROMPTS * PROMPT_TOKENS * (a->decode_token_s + b->decode_token_s);
}

double forecast_quality_fit(struct quality_size *size, const struct quality_time *q,
                            const struct experiment_spec *s, double left_s)
{
    *size = (struct quality_size){ 0 };
    if (!*s->quality_file) return 0;
    const struct quality_size whole = *size = forecast_quality_size(s);
    const double tokens = floor((0.5 * left_s - q->fixed_s) / q->token_s);
    if (size->windows < 0) return NAN;
    for (int ctx = whole.ctx; s->quality_least > 0; ctx = MAX(ctx / 2, s->quality_ctx_least)) {
        const int most = ctx == whole.ctx ? whole.windows : quality_context_default_windows(ctx);
        const int least = quality_context_windows(ctx, s->quality_least, QUALITY_CTX, QUALITY_LEAST_LONG);
        const double fit = floor(tokens / ctx);
        size->ctx = ctx;
        size->windows = most;
        if (fit < most) size->windows = MIN((int)fmax(fit, least), most); /* false for NAN: unknown */
        if (!(fit < size->windows) || !s->quality_ctx_least || ctx <= s->quality_ctx_least) break;
    }
    return q->fixed_s + (double)size->windows * size->ctx * q->token_s;
}

int forecast_fewest_blocks(const struct experiment_spec *s)
{
    const int fewest = MAX(stats_anytime_fewest(0.05 / (experiment_arms(s) - 1)), BLOCKS_FOR_A_CLAIM);
    return MAX(fewest, s->min_blocks);
}

void forecast_budget(char buf[FORECAST_BUDGET], double seconds)
{
    if (seconds <= 60)
        snprintf(buf, FORECAST_BUDGET, "%.0fs", 10 * ceil(seconds / 10));
    else if (seconds <= 5400)
        snprintf(buf, FORECAST_BUDGET, "%.0fm", ceil(seconds / 60));
    else
        snprintf(buf, FORECAST_BUDGET, "%.0fh", ceil(seconds / 3600));
}

void forecast_of(struct experiment_forecast *f, const struct experiment_spec *s, double before_s,
                 double block_s, double quality_s)
{
    const double left = s->budget_s - before_s, margin = 1.1;
    const double reserved = quality_s <= 0.5 * left ? quality_s : 0; /* else it comes on top of the budget */
    f->before_s = before_s;
    f->block_s = block_s;
    f->quality_s = quality_s;
    f->quality_on_top = !(quality_s <= 0.5 * left);
    f->control = MAX(s->control_blocks, 0);
    f->wanted = f->control + forecast_fewest_blocks(s);
    f->given = (int)fmin(fmax(floor((left - reserved) / block_s), 0), EXPERIMENT_BLOCKS);
    f->budget_s = s->budget_s;
    f->needed_s = margin * (before_s + f->wanted * block_s + (isnan(quality_s) ? 0 : quality_s));
    forecast_budget(f->budget, f->needed_s);
    f->unknown[0] = '\0';
}

/* What every arm costs before the first block, and in one block. */
void forecast_of_arms(struct experiment_forecast *f, const struct experiment_spec *s,
                      const struct arm_time t[])
{
    double starts = 0, cells = 0, warmup = 0, shortest = INFINITY;
    struct quality_time q = { 0 };
    struct quality_size size;
    for (int i = 0; i < s->arms; i++) shortest = fmin(shortest, t[i].cell_s);
    const int repeats = cell_repeats(shortest, CELL_LEAST_S);
    for (int i = 0; i < s->arms; i++) {
        const double cell = t[i].cell_s * repeats;
        const double most = 0.1 * s->budget_s / s->arms;
        const int more = s->warmup_cells ? s->warmup_cells - 1 : WARMUP_USUAL;
        starts += t[i].start_s;
        cells += 2 * cell;
        warmup += t[i].start_s + t[i].cell_s +
                  fmin(more * cell, s->warmup_cells ? INFINITY : fmax(most, cell));
        if (i && *s->quality_file) forecast_quality_add(&q, &t[0], &t[i]);
    }
    const bool fresh = s->processes == PROCESSES_NEW || (s->processes == PROCESSES_AUTO && starts <= cells);
    double settle = 0;
    for (int i = 0; i < s->arms; i++) settle += t[i].settle_s;
    forecast_of(f, s, warmup, cells + (fresh ? starts + settle : 0),
                forecast_quality_fit(&size, &q, s, s->budget_s - warmup));
}

/* ---------------------------------------------------------------- the speed of an arm */

/* Times of an arm from the rates of its prompts and of its decoding, tokens of all sequences a second. */
static bool times_of_rates(struct arm_time *t, const struct workload *w, double prefill_rate,
                           double decode_rate)
{
    const double sequences = workload_sequences(w);
    t->prefill_token_s = 1 / prefill_rate;
    t->decode_token_s = 1 / decode_rate;
    const double first = MIN(w->gen, 8);
    /* each process fills the cache up to the depth once, before its first timed cell */
    const double fill_s = w->depth > 0 ? w->depth * sequences * t->prefill_token_s : 0;
    if (isfinite(fill_s)) t->start_s += fill_s;
    t->cell_s = (w->prompt > 0 ? w->prompt * sequences * t->prefill_token_s : 0) +
                (w->gen > 0 ? w->gen * sequences * t->decode_token_s : 0);
    t->settle_s = (w->prompt > 0 ? w->prompt * sequences * t->prefill_token_s : 0) +
                  (w->gen > 0 ? first * sequences * t->decode_token_s : 0);
    return t->cell_s > 0 && isfinite(t->cell_s);
}

struct speed_search {
    char config[CONFIG_LINE], workload[WORKLOAD_LINE];
    double prefill, decode; /* NAN: not found yet */
};

static enum err_code speed_look(void *ctx, const struct speed_cell *c, struct err *why)
{
    struct speed_search *s = ctx;
    (void)why;
    if (strcmp(c->config, s->config) || strcmp(c->workload, s->workload)) return ERR_OK;
    if (isnan(s->prefill)) s->prefill = c->prefill_tok_s;
    if (isnan(s->decode)) s->decode = c->decode_tok_s;
    return ERR_OK;
}

const char *forecast_identity(struct arm_identities *k, const struct experiment_spec *s, int arm,
                              struct db *d)
{
    struct err ignored;
    const char *model = config_model_file(&s->config[arm], s->model);
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->path[i], model)) return k->sha256[i];
    char *sha256 = k->sha256[k->n];
    if (!d || !*model || k->read(sha256, d, model, &ignored)) *sha256 = '\0';
    k->path[k->n++] = model;
    return sha256;
}

/* The rates of the newest run of this config and workload on this machine. */
static bool times_of_database(struct arm_time *t, const struct experiment_spec *s, int arm,
                              struct arm_identities *identities, const struct forecast_sources *from)
{
    enum { CELLS = 2000 };
    struct err ignored;
    struct speed_search search = { .prefill = NAN, .decode = NAN };
    const char *sha256 = forecast_identity(identities, s, arm, from->db);
    if (!*sha256) return false;
    config_line(&s->config[arm], search.config, sizeof(search.config));
    workload_line(experiment_workload(s, arm), search.workload, sizeof(search.workload));
    const struct speed_query query = { .sha256 = sha256,
                                       .machine = from->machine->id,
                                       .decode = METRICS[METRIC_DECODE_RATE].name,
                                       .prefill = METRICS[METRIC_PREFILL_RATE].name,
                                       .disturbed = "",
                                       .limit = CELLS };
    if (db_model_speeds(from->db, &query, speed_look, &search, &ignored)) return false;
    return times_of_rates(t, experiment_workload(s, arm), search.prefill, search.decode);
}

static bool times_predicted(struct arm_time *t, const struct experiment_spec *s, int arm,
                            const struct forecast_sources *from)
{
    struct prediction p;
    struct gguf *g = NULL;
    struct err ignored;
    const char *model = config_model_file(&s->config[arm], s->model);
    if (!from->ceilings || config_is_foreign(&s->config[arm]) || !*model) return false;
    struct predict_for what = predict_for_workload(experiment_workload(s, arm));
    what.correction = from->correction;
    if (model_file_open(&g, model, &ignored)) return false;
    const bool ok = !predict(&p, g, &s->config[arm], from->machine, from->ceilings, &what, &ignored) &&
                    times_of_rates(t, experiment_workload(s, arm), p.prefill_tok_s.estimate,
                                   p.decode_tok_s.estimate);
    gguf_close(g);
    if (ok && p.load_s.estimate > 0) t->start_s += p.load_s.estimate;
    return ok;
}

static bool quality_is_missing(const struct experiment_state *x)
{
    for (int k = 1; k < x->spec.arms && *x->spec.quality_file; k++)
        if (!x->arm[k].failed && !x->comparison[k].quality.known) return true;
    return false;
}

/* Seconds of a session that continues a run: its processes fill their caches again, the control is completed,
 * `blocks` more blocks follow, and quality gets as much time as they. NAN: unknown. *block_s: of one block.
 */
static double session_s(double *block_s, const struct experiment_state *x, int blocks)
{
    static const double LOADED =
        1.5; /* in reserve: filling cannot be cut short if the machine becomes busier */
    double fill_s = 0, cells_s = 0;
    int timed = 0;
    for (int i = 0; i < x->spec.arms; i++) {
        if (!(x->arm[i].cell_s > 0)) continue;
        timed++;
        fill_s += x->arm[i].fill_s;
        cells_s += 2 * fmax(x->arm[i].cell_s, CELL_LEAST_S);
    }
    const double each = timed ? (double)x->spec.arms / timed
                              : 0; /* the others take as long, as far as known */
    const bool none = !x->complete && !(x->block_s > 0);
    const int control = x->complete ? 0 : MAX(x->spec.control_blocks - x->control_blocks, 0);
    *block_s = none && timed ? each * cells_s : experiment_counted_block_s(x);
    const double twin_s = control && timed ? fill_s / timed : 0; /* the control has a second process of A */
    return LOADED * (each * fill_s + twin_s) +
           *block_s * (blocks + control) * (quality_is_missing(x) ? 2 : 1);
}

char *experiment_resume_budget(char buf[FORECAST_BUDGET], const struct experiment_state *x, int blocks)
{
    double block_s;
    const double seconds = 1.1 * session_s(&block_s, x, blocks);
    buf[0] = '\0';
    if (blocks > 0 && seconds > 0) forecast_budget(buf, seconds);
    return buf;
}

/* A run that is continued has timed its blocks and knows about how many are missing. */
static bool forecast_resumed(struct experiment_forecast *f, const struct experiment_spec *s, struct db *d)
{
    struct err ignored;
    struct experiment_state *x = d ? calloc(1, sizeof(*x)) : NULL;
    double each_s = NAN;
    const bool loaded = x && !experiment_load(x, d, s->resume_id, &ignored);
    const int wanted = loaded ? MAX(x->blocks_needed, 1) : 1;
    const double session = loaded ? session_s(&each_s, x, wanted) : (double)NAN;
    const bool known = isfinite(session) && each_s > 0;
    if (known) {
        forecast_of(f, s, session - wanted * each_s, each_s, 0);
        f->control = 0;
        f->resumed = true;
        f->wanted = wanted;
        f->needed_s = 1.1 * session;
        forecast_budget(f->budget, f->needed_s);
    }
    free(x);
    return known;
}

void experiment_forecast(struct experiment_forecast *f, const struct experiment_spec *given,
                         const struct forecast_sources *from)
{
    struct experiment_spec s = *given;
    struct arm_time t[EXPERIMENT_ARMS] = { 0 };
    struct err why = { 0 };
    *f = (struct experiment_forecast){ .block_s = NAN, .quality_s = NAN, .needed_s = NAN };
    if (s.resume_id) { /* its specification is in the database, not here */
        if (!forecast_resumed(f, &s, from->db))
            snprintf(f->unknown, sizeof(f->unknown), "run %lld has timed no block that counts yet",
                     (long long)s.resume_id);
        return;
    }
    if (spec_resolve(&s, &why)) {
        snprintf(f->unknown, sizeof(f->unknown), "%s", why.message);
        return;
    }
    if (experiment_is_exact(&s) || *s.workload.eval_file) {
        snprintf(f->unknown, sizeof(f->unknown), "each arm evaluates the text once, however long that takes");
        return;
    }
    struct arm_identities identities = { .read = measured_model_identity };
    for (int i = 0; i < s.arms; i++) {
        const struct workload *w = experiment_workload(&s, i);
        const bool by_tokens = !workload_is_load(w) && !w->train;
        struct arm_time stored = { 0 };
        const bool predicted = by_tokens && times_predicted(&t[i], &s, i, from);
        const bool measured = by_tokens && times_of_database(&stored, &s, i, &identities, from);
        if (measured) {
            if (predicted) stored.start_s = t[i].start_s;
            if (predicted && isnan(stored.prefill_token_s)) stored.prefill_token_s = t[i].prefill_token_s;
            t[i] = stored;
        }
        if (predicted || measured) continue;
        snprintf(f->unknown, sizeof(f->unknown), "the speed of arm %c is known after its first cells",
                 'A' + i);
        return;
    }
    forecast_of_arms(f, &s, t);
}

/* ---------------------------------------------------------------- words */

bool experiment_forecast_is_short(const struct experiment_forecast *f)
{
    return !*f->unknown && f->given < f->wanted;
}

void forecast_put_time(struct str *s, double seconds)
{
    if (seconds < 100)
        str_printf(s, seconds < 9.95 ? "%.2g s" : "%.0f s", seconds);
    else if (seconds < 5400)
        str_printf(s, "%.3g min", round(seconds / 6) / 10);
    else
        str_printf(s, "%.2g h", seconds / 3600);
}

/* The quality is part of the budget, or comes on top of it (forecast_of). */
static void put_quality(struct str *s, const struct experiment_forecast *f)
{
    if (f->quality_s == 0) return;
    if (isnan(f->quality_s)) {
        str_append(s, "; measuring quality takes an unknown time more");
        return;
    }
    str_append(s, "; measuring quality takes about ");
    forecast_put_time(s, f->quality_s);
    str_append(s, f->quality_on_top ? " more, on top of the budget" : ", within the budget");
}

char *experiment_forecast_text(char buf[FORECAST_TEXT], const struct experiment_forecast *f)
{
    struct str s = { 0 };
    if (*f->unknown) {
        str_append(&s, f->unknown);
    } else {
        static const double WORTH_SAYING = 0.25; /* of the budget */
        if (f->before_s > WORTH_SAYING * f->budget_s) {
            str_append(&s, "starting and warming up take about ");
            forecast_put_time(&s, f->before_s);
            str_append(&s, ", then one block about ");
        } else {
            str_append(&s, "one block takes about ");
        }
        forecast_put_time(&s, f->block_s);
        str_append(&s, "; ");
        forecast_put_time(&s, f->budget_s);
        if (f->given)
            str_printf(&s, " give%s about %d", f->budget_s == 1 ? "s" : "", f->given);
        else
            str_append(&s, f->budget_s == 1 ? " is too short for a block" : " are too short for a block");
        str_printf(&s, f->resumed ? "; a verdict needs about %d more" : "; a verdict needs at least %d",
                   f->wanted);
        if (f->control) str_printf(&s, ", %d of them control blocks (A against itself)", f->control);
        put_quality(&s, f);
    }
    snprintf(buf, FORECAST_TEXT, "%s", str_text(&s));
    str_free(&s);
    return buf;
}
