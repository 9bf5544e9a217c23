/* advisor/advise/advise.c - ranks configurations for a machine and a goal, each with its reason and the
 * command that checks it.
 *
 * Candidates are all combinations of KNOBS and FORMATS that could help; their figures come from predict().
 * Nothing depends on a machine's name. A candidate that changes answers is shown with its measured KL
 * divergence where an earlier run measured it, and limits apply to it; otherwise its text says that it was
 * not measured. The ranking uses the documented rounding error of formats in its place. */
#include "advisor/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/accelerators.h"
#include "advisor/advise/adviser.h"
#include "base/base.h"
#include "engine/import/import.h"

/* Weights of the score, per unit of ln(ratio). */
static const struct goal_row {
    const char *name;
    double speed, quality, memory, energy;
} GOALS[] = {
    [GOAL_BALANCED] = { .name = "balanced", .speed = 1.0, .quality = 1.0, .memory = 0.30, .energy = 0 },
    [GOAL_SPEED] = { .name = "speed", .speed = 1.0, .quality = 0.10, .memory = 0.02, .energy = 0 },
    [GOAL_QUALITY] = { .name = "quality", .speed = 0.05, .quality = 200.0, .memory = 0.02, .energy = 0 },
    [GOAL_MEMORY] = { .name = "memory", .speed = 0.05, .quality = 0.10, .memory = 1.0, .energy = 0 },
    [GOAL_ENERGY] = { .name = "energy", .speed = 0.20, .quality = 0.30, .memory = 0.05, .energy = 1.0 },
};

const char *goal_name(enum goal g)
{
    return (size_t)g < COUNT_OF(GOALS) ? GOALS[g].name : "";
}

bool goal_parse(const char *name, enum goal *out)
{
    for (size_t i = 0; name && i < COUNT_OF(GOALS); i++)
        if (!strcmp(name, GOALS[i].name)) {
            *out = (enum goal)i;
            return true;
        }
    return false;
}

/* ---------------------------------------------------------------- candidates */

bool format_is_full_precision(const char *format)
{
    return !strcmp(format, "f32") || !strcmp(format, "f16") || !strcmp(format, "bf16");
}

/* Ternary and one-bit formats have an NMSE of 0.66 and 0.36 on N(0,1) weights. They are only useful for
 * models that were trained in them. */
static const double NMSE_MAX = 0.3;

/* Recipes worth a candidate: the file's own format and, if that has full precision, every smaller format. */
static int candidate_recipes(const struct adviser *a, const char *out[], int most)
{
    int n = 0;
    out[n++] = ""; /* the file's own format */
    const struct format *own = format_find(a->shape.dominant_format);
    if (!own || !format_is_full_precision(own->name)) return n;
    for (int i = 0; i < FORMAT_COUNT && n < most; i++) {
        const struct format *f = &FORMATS[i];
        if (f->encode && f->decode && f->max_nmse <= NMSE_MAX && !f->needs_importance &&
            format_bits_per_weight(f) < format_bits_per_weight(own))
            out[n++] = f->name;
    }
    return n;
}

/* All threads (0), and fewer: when memory bandwidth is the limit, half of the cores may reach it and leave
 * the others free. */
static int candidate_threads(const struct machine *m, int out[], int most)
{
    int n = 0;
    out[n++] = 0;
    for (int t = machine_threads(m) / 2; t >= 1 && n < most; t /= 2) out[n++] = t;
    return n;
}

/* Is there a KV type with at most as many bits and a smaller error? */
static bool kv_is_dominated(const char *name)
{
    const struct format *f = format_find(name);
    for (const char *const *k = KNOBS[KNOB_CTK].choices; k && *k; k++) {
        const struct format *g = format_find(*k);
        if (!g || g == f || !(g->max_nmse <= f->max_nmse)) continue;
        if (format_bits_per_weight(g) < format_bits_per_weight(f) ||
            (format_bits_per_weight(g) == format_bits_per_weight(f) && g->max_nmse < f->max_nmse))
            return true;
    }
    return false;
}

/* KV types worth a candidate: smaller than the default, or more exact if the goal is quality. */
static int candidate_kv_types(const struct adviser *a, const char *out[], int most)
{
    const char *otherwise = KNOBS[KNOB_CTK].otherwise;
    const double usual = format_bits_per_weight(format_find(otherwise));
    int n = 0;
    out[n++] = otherwise;
    for (const char *const *k = KNOBS[KNOB_CTK].choices; k && *k && n < most; k++) {
        const struct format *f = format_find(*k);
        if (!f) continue;
        const double bits = format_bits_per_weight(f);
        if (kv_is_dominated(*k)) continue;
        if (bits < usual || (bits > usual && a->o->goal == GOAL_QUALITY)) out[n++] = *k;
    }
    return n;
}

static bool candidate_config(struct config *c, const char *recipe, const char *kv, const char *precision,
                             int threads)
{
    struct err ignored;
    char text[16];
    if (config_parse(c, recipe, &ignored)) return false;
    if (strcmp(kv, KNOBS[KNOB_CTK].otherwise) && config_set(c, "kv", kv, &ignored)) return false;
    if (strcmp(precision, KNOBS[KNOB_PRECISION].otherwise) && config_set(c, "precision", precision, &ignored))
        return false;
    snprintf(text, sizeof(text), "%d", threads);
    return !threads || !config_set(c, "threads", text, &ignored);
}

/* ---------------------------------------------------------------- score */

static double format_noise(const char *name)
{
    const struct format *f = format_find(name);
    return f && f->max_nmse > 0 ? sqrt(f->max_nmse) : 0; /* relative error of a value, as documented */
}

/* Estimated loss of quality relative to the unchanged file, in units of the score; used when nothing was
 * measured. */
static double quality_loss_estimate(const struct config *c)
{
    const char *format = config_text(c, KNOB_FORMAT);
    const double weights = strcmp(format, "file") ? format_noise(format) : 0;
    const double kv = 0.5 *
                          (format_noise(config_text(c, KNOB_CTK)) + format_noise(config_text(c, KNOB_CTV))) -
                      format_noise(KNOBS[KNOB_CTK].otherwise);
    /* Activations quantized to 8 bits in blocks have an NMSE of about 3e-5 (kernels/README.md). With
     * precision=auto this happens only for weights whose own error is larger. */
    const double activations = strcmp(config_text(c, KNOB_PRECISION), "medium") ? 0 : sqrt(3e-5);
    return 4 * (weights + activations) + 2 * kv;
}

/* Logarithm of now / reference: positive if `now` is larger, 0 if either is unknown. */
static double log_ratio(double now, double reference)
{
    const double r = now / reference;
    return r > 0 && isfinite(r) ? log(r) : 0;
}

/* Points subtracted for missed limits: enough to rank every such candidate below all others, the worst miss
 * last. */
static const struct {
    double unlikely, out_of_reach, unknown_loss, too_lossy, does_not_fit;
} PENALTIES = {
    .unlikely = 100, .out_of_reach = 1000, .unknown_loss = 2500, .too_lossy = 5000, .does_not_fit = 10000
};

double adviser_kld_penalty(const struct adviser *a, double kld)
{
    if (!(a->o->kld_limit > 0) || kld <= a->o->kld_limit) return 0;
    return isnan(kld) ? PENALTIES.unknown_loss : PENALTIES.too_lossy;
}

/* The rate that a configuration is ranked by. Among measured configurations, half a standard deviation of a
 * prediction is subtracted, so that of two similar rates the better known one ranks first. */
static double ranked_rate(const struct adviser *a, struct interval rate)
{
    static const double Z_90 = 1.645;
    if (!a->o->evidence || !a->o->evidence->n || !(rate.lower > 0) || !isfinite(rate.upper))
        return rate.estimate;
    return rate.estimate * exp(-0.5 * log(rate.upper / rate.lower) / (2 * Z_90));
}

static double rate_gain(const struct adviser *a, struct interval rate, struct interval reference)
{
    return log_ratio(ranked_rate(a, rate), ranked_rate(a, reference));
}

/* The score by which candidates are ranked, larger is better. A higher rate than the reference adds to it; a
 * loss of quality, more memory, more energy and missed limits subtract. */
static double advice_score(const struct adviser *a, const struct config *c, const struct prediction *p)
{
    const struct goal_row *g = &GOALS[a->o->goal];
    const struct prediction *r = &a->reference;
    double s = 0;
    s += g->speed * (0.8 * rate_gain(a, p->decode_tok_s, r->decode_tok_s) +
                     0.2 * rate_gain(a, p->prefill_tok_s, r->prefill_tok_s));
    s -= g->quality * quality_loss_estimate(c);
    /* the part of the memory estimate that grows with model and context; working buffers depend on threads
     * and batch */
    s -= g->memory *
         log_ratio((double)(p->plan.weights + p->plan.kv), (double)(r->plan.weights + r->plan.kv));
    /* Without a power reading, bytes read per token stand for energy: reading memory is most of a decode
     * step's energy. */
    s -= g->energy *
         (isnan(p->token_j.estimate) || isnan(r->token_j.estimate)
              ? log_ratio((double)p->plan.decode_read_bytes + (double)p->plan.kv_bytes_per_token * p->depth,
                          (double)r->plan.decode_read_bytes + (double)r->plan.kv_bytes_per_token * r->depth)
              : log_ratio(p->token_j.estimate, r->token_j.estimate));
    for (int k = 0; k < KNOB_COUNT; k++) s -= 0.002 * c->given[k]; /* prefer fewer settings among equals */
    if (a->o->target_tok_s > 0) {
        /* Out of reach: the target is above the predicted interval. Unlikely: it is in the interval but above
         * the prediction, so the chance to reach it is below 50 %. */
        if (!(p->decode_tok_s.upper >= a->o->target_tok_s))
            s -= PENALTIES.out_of_reach;
        else if (!(p->decode_tok_s.estimate >= a->o->target_tok_s))
            s -= PENALTIES.unlikely;
    }
    if (!p->fits) s -= PENALTIES.does_not_fit;
    return s;
}

/* The result of a search ranks first, unless it misses a limit or its loss is unknown where a limit on the
 * loss is set. A penalty shows in the score, because scores without one are far smaller. */
static bool advice_leads(const struct advice *a)
{
    return a->found && a->score > -PENALTIES.unlikely / 2;
}

static int advice_compare(const void *x, const void *y)
{
    const struct advice *a = x, *b = y;
    if (advice_leads(a) != advice_leads(b)) return advice_leads(a) ? -1 : 1;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return strcmp(a->line, b->line);
}

/* ---------------------------------------------------------------- the list */

enum err_code adviser_predict(const struct adviser *a, struct prediction *p, const struct config *c,
                              bool on_gpu, struct err *why)
{
    return predict(p, a->g, c, a->machine, a->ceilings,
                   &(struct predict_for){ .ctx = a->ctx, .on_gpu = on_gpu, .correction = a->o->correction },
                   why);
}

bool adviser_predict_with(const struct adviser *a, struct prediction *p, const struct config *c,
                          const char *key, const char *value)
{
    struct config other = *c;
    struct err ignored;
    return !config_set(&other, key, value, &ignored) && !adviser_predict(a, p, &other, a->on_gpu, &ignored);
}

/* Another precision is a candidate only if it is predicted faster by 5 %, or if the goal is quality. */
static bool precision_helps(const struct adviser *a, const struct config *c, const struct prediction *p)
{
    struct prediction usual;
    if (!c->given[KNOB_PRECISION]) return true;
    if (!adviser_predict_with(a, &usual, c, "precision", KNOBS[KNOB_PRECISION].otherwise)) return false;
    return p->decode_tok_s.estimate > 1.05 * usual.decode_tok_s.estimate ||
           p->prefill_tok_s.estimate > 1.05 * usual.prefill_tok_s.estimate || a->o->goal == GOAL_QUALITY;
}

/* Measured rates, with their intervals, replace the predicted ones. */
static void prediction_use_evidence(const struct adviser *a, const char *line, struct prediction *p,
                                    struct evidence_rate *decode, struct evidence_rate *prefill)
{
    *decode = *prefill = (struct evidence_rate){ .rate = { NAN, NAN, NAN } };
    if (p->on_gpu || !a->o->evidence) return;
    *decode = evidence_decode(a->o->evidence, line, p->depth);
    *prefill = evidence_prefill(a->o->evidence, line, PREDICT_PROMPT);
    if (decode->runs) p->decode_tok_s = decode->rate;
    if (prefill->runs) p->prefill_tok_s = prefill->rate;
}

static bool is_found(const struct adviser *a, const char *line)
{
    const struct evidence *e = a->o->evidence;
    return e && !a->on_gpu && e->found.run && e->found.goal == a->o->goal && !strcmp(e->found.line, line);
}

static bool is_listed(const struct adviser *a, const char *line)
{
    for (int i = 0; i < a->n; i++)
        if (!a->list[i].prediction.on_gpu && !strcmp(a->list[i].line, line)) return true;
    return false;
}

static enum err_code candidate_add(struct adviser *a, const struct config *c, struct err *why)
{
    struct prediction p;
    struct evidence_rate decode, prefill;
    char line[CONFIG_LINE];
    struct err impossible; /* a combination that the model's shape does not allow is skipped */
    if (adviser_predict(a, &p, c, a->on_gpu, &impossible)) return ERR_OK;
    config_line(c, line, sizeof line);
    prediction_use_evidence(a, line, &p, &decode, &prefill);
    if (!decode.runs && !a->every && !precision_helps(a, c, &p)) return ERR_OK;
    if (a->o->memory_limit > 0) p.fits = p.plan.total <= a->o->memory_limit;
    if (!array_room(&a->list, &a->cap, (int64_t)a->n + 1, sizeof *a->list))
        return err_set(why, ERR_NOMEM, "out of memory for advice");
    struct advice *v = &a->list[a->n++];
    memset(v, 0, sizeof(*v));
    v->config = *c;
    v->prediction = p;
    snprintf(v->line, sizeof(v->line), "%s", line);
    v->decode = decode;
    v->prefill = prefill;
    v->found = is_found(a, line);
    v->vague = !decode.runs && p.decode_tok_s.upper > ADVICE_VAGUE * p.decode_tok_s.lower;
    advice_set_loss(a, v);
    v->score = advice_score(a, c, &p) - adviser_kld_penalty(a, v->kld);
    advice_set_reason(a, v);
    advice_set_caution(a, v);
    advice_set_check(v, a->path);
    return ERR_OK;
}

/* Recipes that GPU programs can read: GGUF's own formats, and fp8 on GPUs that multiply it. Those of other
 * accelerators read what their table says. */
static bool recipe_runs_on_gpus(const struct adviser *a, const char *recipe)
{
    const struct accelerator *x = accelerator_of(a->machine);
    const struct format *f = format_find(*recipe || !x ? recipe : a->shape.dominant_format);
    if (x) return f && accelerator_reads(x, f);
    if (!*recipe) return true;
    return f && (f->ggml_type < FORMAT_OWN_TYPES ||
                 (a->ceilings->gpu.fp8_ops_s > 0 && f == &FORMATS[FORMAT_FP8_E4M3]));
}

static bool kv_runs_on_gpus(const struct adviser *a, const char *kv)
{
    const bool blocks = !format_is_full_precision(kv);
    return format_find(kv)->ggml_type < FORMAT_OWN_TYPES && !(blocks && accelerator_of(a->machine));
}

/* On a GPU, threads and precision are not ours to choose. */
static enum err_code gpu_candidates_add(struct adviser *a, struct err *why)
{
    const char *recipe[FORMAT_COUNT + 1], *kv[FORMAT_COUNT + 1];
    const int n_recipes = candidate_recipes(a, recipe, COUNT_OF(recipe)),
              n_kv = candidate_kv_types(a, kv, COUNT_OF(kv));
    enum err_code rc = ERR_OK;
    a->on_gpu = true;
    for (int i = 0; i < n_recipes * n_kv && !rc; i++) {
        struct config c;
        const char *format = recipe[i / n_kv];
        if (recipe_runs_on_gpus(a, format) && kv_runs_on_gpus(a, kv[i % n_kv]) &&
            candidate_config(&c, format, kv[i % n_kv], KNOBS[KNOB_PRECISION].otherwise, 0))
            rc = candidate_add(a, &c, why);
    }
    return rc;
}

/* With quantized weights, auto already quantizes the activations (medium); exact products of quantized
 * weights are slower and only serve quality. */
static bool precision_is_candidate(const struct adviser *a, const char *recipe, enum precision precision)
{
    const bool whole = format_is_full_precision(*recipe ? recipe : a->shape.dominant_format);
    if (precision == PRECISION_AUTO) return true;
    return whole || (precision != PRECISION_MEDIUM && a->o->goal == GOAL_QUALITY);
}

static enum err_code candidates_add(struct adviser *a, struct err *why)
{
    if (a->ceilings->gpu.read_bytes_s > 0) {
        enum err_code rc = gpu_candidates_add(a, why);
        if (rc) return rc;
    }
    a->on_gpu = false;

    static const enum precision PRECISION[] = { PRECISION_AUTO, PRECISION_HIGHEST, PRECISION_MEDIUM };
    const char *recipe[FORMAT_COUNT + 1], *kv[FORMAT_COUNT + 1];
    int threads[3];
    const int n_recipes = candidate_recipes(a, recipe, COUNT_OF(recipe));
    const int n_threads = candidate_threads(a->machine, threads, COUNT_OF(threads));
    const int n_kv = candidate_kv_types(a, kv, COUNT_OF(kv)), n_precisions = COUNT_OF(PRECISION);
    const int all = n_recipes * n_kv * n_precisions * n_threads;
    for (int i = 0; i < all; i++) { /* i enumerates all combinations */
        struct config c;
        const int t = i % n_threads, p = i / n_threads % n_precisions;
        const int k = i / n_threads / n_precisions % n_kv, r = i / n_threads / n_precisions / n_kv;
        if (!precision_is_candidate(a, recipe[r], PRECISION[p])) continue;
        if (!candidate_config(&c, recipe[r], kv[k], PRECISION_NAMES[PRECISION[p]], threads[t])) continue;
        enum err_code rc = candidate_add(a, &c, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

/* What was measured or found by a search, but is no candidate otherwise. */
static enum err_code measured_candidates_add(struct adviser *a, struct err *why)
{
    const struct evidence *e = a->o->evidence;
    const struct config *c = e && e->found.run ? &e->found.config : evidence_config(e, 0);
    char line[CONFIG_LINE];
    enum err_code rc = ERR_OK;
    a->on_gpu = false;
    a->every = true;
    for (int i = e && e->found.run ? 0 : 1; c && !rc; c = evidence_config(e, i++))
        if (!is_listed(a, config_line(c, line, sizeof line))) rc = candidate_add(a, c, why);
    return rc;
}

static enum err_code adviser_open(struct adviser *a, struct err *why)
{
    enum err_code rc = model_file_open(&a->g, a->path, why);
    if (!rc) rc = model_shape_read(&a->shape, a->g, why);
    if (rc) return rc;
    a->ctx = a->o->ctx;
    if (!a->ctx) a->ctx = a->shape.ctx_train > 0 ? (int)MIN(a->shape.ctx_train, 4096) : 4096;
    struct config plain;
    config_default(&plain);
    a->on_gpu = a->ceilings->gpu.read_bytes_s > 0;
    rc = adviser_predict(a, &a->reference, &plain, a->on_gpu, why);
    if (!rc && a->on_gpu && !a->reference.fits) rc = adviser_predict(a, &a->reference, &plain, false, why);
    struct evidence_rate ignored;
    a->predicted = a->reference;
    if (!rc) prediction_use_evidence(a, "default", &a->reference, &ignored, &ignored);
    return rc;
}

static enum err_code lines_add(struct adviser *a, struct err *why)
{
    enum err_code rc = ERR_OK;
    a->on_gpu = a->ceilings->gpu.read_bytes_s > 0;
    a->every = true;
    for (int i = 0; i < a->o->lines && !rc; i++) {
        struct config c;
        rc = config_parse(&c, a->o->line[i], why);
        if (!rc) rc = candidate_add(a, &c, why);
    }
    return rc;
}

enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o, struct err *why)
{
    struct adviser a = { .path = model_path, .machine = machine, .ceilings = ceilings, .o = o };
    enum err_code rc = adviser_open(&a, why);
    if (!rc && o->line) rc = lines_add(&a, why);
    if (!rc && !o->line) rc = candidates_add(&a, why);
    if (!rc && !o->line) rc = measured_candidates_add(&a, why);
    gguf_close(a.g);
    if (rc) free(a.list);
    *out = rc ? NULL : a.list;
    *n = rc ? 0 : a.n;
    if (*n && !o->line) qsort(*out, (size_t)*n, sizeof(**out), advice_compare);
    return rc;
}
