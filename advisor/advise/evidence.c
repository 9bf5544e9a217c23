/* advisor/advise/evidence.c - what earlier runs measured of one model file on one machine (advise.h). */
#include "advisor/advise/advise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "base/base.h"
#include "telemetry/metrics/metrics.h"

enum { CELLS_MOST = 20000, UNITS_MOST = 256 };
static const double CONFIDENCE = 0.90; /* as the intervals of predictions */

/* The units of one metric: logarithms of means over the cells of a block, or of single repetitions. */
struct units {
    double y[UNITS_MOST];
    int n, cells; /* cells: of the last unit */
};
/* What the run itself reports of decoding: the disturbed cells are part of it. */
struct whole {
    double log_sum;
    int cells, disturbed;
};
struct evidence_series {
    int64_t run_id;
    int block; /* of the last undisturbed cell */
    char line[CONFIG_LINE];
    struct config config;
    bool first; /* no series before this one has the same line */
    struct workload workload;
    struct units decode, prefill; /* undisturbed cells */
    struct whole all;
};

/* ---------------------------------------------------------------- loading */

static void units_add(struct units *u, double rate, bool same_block)
{
    if (!(rate > 0) || isinf(rate)) return;
    const double y = log(rate);
    if (same_block && u->n) {
        u->cells++;
        u->y[u->n - 1] += (y - u->y[u->n - 1]) / u->cells;
    } else if (u->n < UNITS_MOST) {
        u->y[u->n++] = y;
        u->cells = 1;
    }
}

static void whole_add(struct whole *w, double rate, bool disturbed)
{
    if (!(rate > 0) || isinf(rate)) return;
    w->log_sum += log(rate);
    w->cells++;
    w->disturbed += disturbed;
}

static bool workload_equal(const struct workload *a, const struct workload *b)
{
    return a->prompt == b->prompt && a->gen == b->gen && a->depth == b->depth &&
           workload_sequences(a) == workload_sequences(b) && a->train == b->train &&
           !strcmp(a->eval_file, b->eval_file);
}

static struct evidence_series *series_at(struct evidence *e, int64_t run_id, const struct config *config,
                                         const struct workload *w)
{
    char line[CONFIG_LINE];
    config_line(config, line, sizeof line);
    for (int i = e->n - 1; i >= 0 && e->series[i].run_id == run_id; i--)
        if (!strcmp(e->series[i].line, line) && workload_equal(&e->series[i].workload, w))
            return &e->series[i];
    if (!array_room(&e->series, &e->cap, (int64_t)e->n + 1, sizeof *e->series)) return NULL;
    struct evidence_series *s = &e->series[e->n];
    *s = (struct evidence_series){
        .run_id = run_id, .block = -1, .config = *config, .workload = *w, .first = true
    };
    for (int i = 0; i < e->n && s->first; i++) s->first = strcmp(e->series[i].line, line) != 0;
    e->n++;
    snprintf(s->line, sizeof s->line, "%s", line);
    return s;
}

static enum err_code cell_add(void *ctx, const struct speed_cell *c, struct err *why)
{
    struct evidence *e = ctx;
    struct config config;
    struct workload w;
    const char *isa = getenv("QDYNO_ISA");
    if (!cell_phase_is(c->phase, PHASE_SPEED) || strcmp(c->kernels, KERNELS_BUILD) ||
        strcmp(c->isa, isa ? isa : ""))
        return ERR_OK;
    /* a config that names a model was measured with that file; a slowed one says nothing */
    if (config_parse(&config, c->config, NULL) || config.given[KNOB_MODEL] || config.given[KNOB_HANDICAP] ||
        workload_parse(&w, c->workload, NULL) || workload_is_load(&w))
        return ERR_OK;
    struct evidence_series *s = series_at(e, c->run_id, &config, &w);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for earlier measurements");
    whole_add(&s->all, c->decode_tok_s, c->disturbed);
    if (c->disturbed) return ERR_OK;
    const bool same_block = c->block >= 0 && c->block == s->block;
    s->block = c->block;
    units_add(&s->decode, c->decode_tok_s, same_block);
    units_add(&s->prefill, c->prefill_tok_s, same_block);
    return ERR_OK;
}

static void found_read(struct evidence *e, const struct run_row *row)
{
    json_t *o = NULL, *spec = NULL;
    const char *outcome = row->outcome_json ? row->outcome_json : "",
               *text = row->spec_json ? row->spec_json : "";
    const bool read = !json_parse(&o, outcome, strlen(outcome), NULL) &&
                      !json_parse(&spec, text, strlen(text), NULL) &&
                      goal_parse(json_get_str(spec, "goal", ""), &e->found.goal);
    const char *winner = read ? json_get_str(o, "winner", "") : "";
    if (*winner && !config_parse(&e->found.config, winner, NULL)) {
        e->found.run = row->id;
        e->found.confirm_run = json_get_int(o, "confirm_run", 0);
        e->found.better = !strcmp(row->verdict, "better");
        config_line(&e->found.config, e->found.line, sizeof e->found.line);
        snprintf(e->found.because, sizeof e->found.because, "%s", json_get_str(o, "because", ""));
        snprintf(e->found.candidate, sizeof e->found.candidate, "%s", json_get_str(o, "candidate", ""));
        const json_t *first = json_array_get(json_object_get(o, "rows"), 0);
        const bool decodes = !strcmp(json_get_str(first, "metric", ""), METRICS[METRIC_DECODE_RATE].name);
        e->found.current_rate = decodes ? json_get_num(first, "current_rate", NAN) : NAN;
        e->found.candidate_rate = decodes ? json_get_num(first, "candidate_rate", NAN) : NAN;
        snprintf(e->found.load, sizeof e->found.load, "%s", json_get_str(o, "load", ""));
    }
    json_decref(o);
    json_decref(spec);
}

/* A search counts when its provenance record names this build of the kernels. */
static enum err_code found_load(struct evidence *e, struct db *d, const char *machine_id, struct err *why)
{
    struct run_row row = { 0 };
    json_t *capsule = NULL;
    bool found = false;
    enum err_code rc = db_model_newest_run(d, "tune", e->sha256, machine_id, &row, &found, why);
    if (!rc && found) rc = capsule_load(&capsule, d, row.id, why);
    if (!rc && found &&
        !strcmp(json_get_str(json_object_get(capsule, "program"), "kernels", ""), KERNELS_BUILD))
        found_read(e, &row);
    json_decref(capsule);
    run_row_free(&row);
    return rc;
}

enum err_code evidence_load(struct evidence *out, struct db *d, const char *model_path,
                            const char *machine_id, struct err *why)
{
    *out = (struct evidence){ 0 };
    enum err_code rc = measured_model_identity(out->sha256, d, model_path, why);
    if (rc || !*out->sha256) return rc;
    const struct speed_query q = { .sha256 = out->sha256,
                                   .machine = machine_id,
                                   .decode = METRICS[METRIC_DECODE_RATE].name,
                                   .prefill = METRICS[METRIC_PREFILL_RATE].name,
                                   .disturbed = CELL_DISTURBED,
                                   .limit = CELLS_MOST };
    rc = db_model_speeds(d, &q, cell_add, out, why);
    return rc ? rc : found_load(out, d, machine_id, why);
}

void evidence_free(struct evidence *e)
{
    free(e->series);
    *e = (struct evidence){ 0 };
}

/* ---------------------------------------------------------------- rates */

static bool is_decode_at(const struct workload *w, int depth)
{
    enum { FEWEST = 16, MOST = 256 };
    return workload_sequences(w) == 1 && !w->train && !*w->eval_file && w->gen >= FEWEST && w->gen <= MOST &&
           w->depth + w->prompt == depth;
}

static bool is_prompt_of(const struct workload *w, int prompt)
{
    return workload_sequences(w) == 1 && !w->train && !*w->eval_file && w->prompt == prompt && !w->depth;
}

/* r->rate: of logarithms. */
static void rate_add(struct evidence_rate *r, const struct evidence_series *s, const struct units *u)
{
    if (u->n < 2) return; /* one value has no interval */
    if (!r->runs && u == &s->decode && s->all.disturbed) {
        r->cells = s->all.cells;
        r->disturbed = s->all.disturbed;
        r->with_disturbed = exp(s->all.log_sum / s->all.cells);
    }
    const struct interval i = stats_t_interval(u->y, u->n, CONFIDENCE), so_far = r->rate;
    r->rate = i;
    if (r->runs)
        r->rate = (struct interval){ so_far.estimate + (i.estimate - so_far.estimate) / (r->runs + 1),
                                     fmin(so_far.lower, i.lower), fmax(so_far.upper, i.upper) };
    if (r->runs < EVIDENCE_RUNS) r->run[r->runs] = s->run_id;
    r->runs++;
}

static struct evidence_rate rate_of(const struct evidence *e, const char *line, bool prefill, int tokens)
{
    struct evidence_rate r = { .rate = { NAN, NAN, NAN } };
    for (int i = 0; e && i < e->n; i++) {
        const struct evidence_series *s = &e->series[i];
        const bool fits = prefill ? is_prompt_of(&s->workload, tokens) : is_decode_at(&s->workload, tokens);
        if (fits && !strcmp(s->line, line)) rate_add(&r, s, prefill ? &s->prefill : &s->decode);
    }
    if (r.runs) r.rate = (struct interval){ exp(r.rate.estimate), exp(r.rate.lower), exp(r.rate.upper) };
    return r;
}

struct evidence_rate evidence_decode(const struct evidence *e, const char *line, int depth)
{
    return rate_of(e, line, false, depth);
}

struct evidence_rate evidence_prefill(const struct evidence *e, const char *line, int prompt)
{
    return rate_of(e, line, true, prompt);
}

/* ---------------------------------------------------------------- one setting */

/* Whether `with` is `without` and one further setting with another value than the default. */
static bool differs_in(const struct config *with, const struct config *without, enum knob_id setting,
                       const char **value)
{
    struct config a = *with, b = *without;
    *value = config_text(with, setting);
    if (!a.given[setting] || !strcmp(*value, config_text(&b, setting)) ||
        strcmp(config_text(&b, setting), KNOBS[setting].otherwise))
        return false;
    a.given[setting] = b.given[setting] = false;
    return config_same(&a, &b);
}

/* Paired by block. false: not as many blocks, or too few. */
static bool effect_of(struct evidence_effect *out, const struct evidence_series *with,
                      const struct evidence_series *without, double confidence)
{
    const bool decode = with->decode.n > 0;
    const struct units *a = decode ? &with->decode : &with->prefill,
                       *b = decode ? &without->decode : &without->prefill;
    double d[UNITS_MOST];
    if (a->n != b->n || a->n < 2) return false;
    for (int i = 0; i < a->n; i++) d[i] = a->y[i] - b->y[i];
    const struct interval x = stats_t_interval(d, a->n, confidence);
    if (out->run && out->log_ratio.estimate >= x.estimate) return false;
    out->run = with->run_id;
    out->blocks = a->n;
    out->metric = METRICS[decode ? METRIC_DECODE_RATE : METRIC_PREFILL_RATE].name;
    out->log_ratio = x;
    return true;
}

bool evidence_setting(const struct evidence *e, enum knob_id setting, struct evidence_effect *out)
{
    const char *value;
    *out = (struct evidence_effect){ .run = 0 };
    for (int b = 0; e && b < e->n && !out->run; b++) {
        const struct evidence_series *without = &e->series[b];
        int values = 0;
        for (int pass = 0; pass < 2; pass++) /* counts the values, then compares them */
            for (int a = 0; a < e->n; a++) {
                const struct evidence_series *with = &e->series[a];
                if (with->run_id != without->run_id || !workload_equal(&with->workload, &without->workload) ||
                    !differs_in(&with->config, &without->config, setting, &value))
                    continue;
                if (!pass) values++;
                if (!pass || !effect_of(out, with, without, 1 - (1 - CONFIDENCE) / values)) continue;
                out->value = value;
                snprintf(out->with, sizeof out->with, "%s", with->line);
                snprintf(out->without, sizeof out->without, "%s", without->line);
                workload_line(&with->workload, out->workload, sizeof out->workload);
            }
    }
    return out->run != 0;
}

const struct config *evidence_config(const struct evidence *e, int i)
{
    for (int k = 0; e && k < e->n; k++)
        if (e->series[k].first && i-- == 0) return &e->series[k].config;
    return NULL;
}

/* Of a run with disturbed cells the first figure is the one that the run itself reports. */
static void series_text(const struct evidence_series *s, char *buf, size_t size)
{
    char work[640], quiet[80] = "";
    if (s->all.disturbed && s->decode.n >= 2)
        snprintf(quiet, sizeof quiet, "; %.4g without its %d of %d disturbed measurement%s",
                 exp(stats_mean(s->decode.y, s->decode.n)), s->all.disturbed, s->all.cells,
                 str_plural(s->all.cells));
    else if (s->all.disturbed)
        snprintf(quiet, sizeof quiet, "; %d of its %d measurement%s disturbed", s->all.disturbed,
                 s->all.cells, s->all.cells == 1 ? " was" : "s were");
    snprintf(buf, size, "%.2f tok/s on %s (run %lld%s)", exp(s->all.log_sum / s->all.cells),
             workload_line(&s->workload, work, sizeof work), (long long)s->run_id, quiet);
}

const char *evidence_elsewhere(const struct evidence *e, const char *line, int depth, char *buf, size_t size)
{
    buf[0] = '\0';
    for (int i = 0; e && i < e->n; i++) {
        const struct evidence_series *s = &e->series[i];
        if (strcmp(s->line, line) || s->all.cells < 2) continue;
        /* on the workload itself it is no evidence only if almost all of it was disturbed */
        if (is_decode_at(&s->workload, depth) && s->decode.n >= 2) continue;
        series_text(s, buf, size);
        break;
    }
    return buf;
}

/* ---------------------------------------------------------------- what is hardly known */

int advice_put_vague_last(struct advice *list, int n)
{
    int known = 0, rest = 0;
    struct advice *vague = n ? malloc((size_t)n * sizeof *vague) : NULL;
    if (!vague) return n; /* without memory nothing is folded */
    for (int i = 0; i < n; i++)
        if (list[i].vague)
            vague[rest++] = list[i];
        else
            list[known++] = list[i];
    for (int i = 0; i < rest; i++) list[known + i] = vague[i];
    free(vague);
    return known;
}
