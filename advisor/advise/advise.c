/* advisor/advise/advise.c - configurations for this machine, ranked for a goal, each with its reason and the
 * command that checks it.
 *
 * The candidates are read from KNOBS and FORMATS, the figures from predict(): nothing is looked up by a
 * machine's name. What a candidate does to quality is told where earlier runs measured it
 * (predict/predict.h), and decides where there is a limit; the only stand-in used for ranking is the rounding
 * error its format is documented with, and every answer-changing candidate that was not measured says so. */
#include "advisor/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/word.h"

/* How much a goal cares, in units of "a factor e". */
static const struct goal_row {
    const char *name;
    double speed, quality, memory, energy;
} GOALS[] = {
    [GOAL_BALANCED] = { "balanced", 1.0, 1.0, 0.30, 0 },  [GOAL_SPEED] = { "speed", 1.0, 0.10, 0.02, 0 },
    [GOAL_QUALITY] = { "quality", 0.05, 200.0, 0.02, 0 }, [GOAL_MEMORY] = { "memory", 0.05, 0.10, 1.0, 0 },
    [GOAL_ENERGY] = { "energy", 0.20, 0.30, 0.05, 1.0 },
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

struct adviser {
    const char *path;
    struct gguf *g;
    struct model_shape shape;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const struct advise_options *o;
    int ctx;
    bool on_gpu;                 /* the candidates of now */
    struct prediction reference; /* of the file as it is, default settings, where it runs best */
    struct advice *list;
    int n, cap;
};

/* ---------------------------------------------------------------- the space */

static bool is_full_precision(const char *format)
{
    return !strcmp(format, "f32") || !strcmp(format, "f16") || !strcmp(format, "bf16");
}

/* Half of a model's numbers is more than any rounding may cost: ternary formats, which take 0.66 of N(0,1),
 * are for models that were trained in them. */
static const double WORST_NMSE = 0.5;

/* Recipes the engine can make from this file: its own, and if it is full precision, what is smaller. */
static int recipes(const struct adviser *a, const char *out[], int most)
{
    int n = 0;
    out[n++] = ""; /* the file's own */
    const struct format *own = format_find(a->shape.dominant_format);
    if (!own || !is_full_precision(own->name)) return n;
    for (int i = 0; i < FORMAT_COUNT && n < most; i++) {
        const struct format *f = &FORMATS[i];
        if (f->encode && f->decode && f->max_nmse <= WORST_NMSE &&
            format_bits_per_weight(f) < format_bits_per_weight(own))
            out[n++] = f->name;
    }
    return n;
}

/* All (0), and fewer: where memory is the limit half of the cores may be enough, and leave room. */
static int thread_counts(const struct machine *m, int out[], int most)
{
    int n = 0;
    out[n++] = 0;
    for (int t = m->cores / 2; t >= 1 && n < most; t /= 2) out[n++] = t;
    return n;
}

/* Is there a cache type of fewer bits (or as many) and a smaller error? */
static bool is_beaten(const char *name)
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

/* Cache types worth a candidate: smaller than the default, or more exact where quality is the goal. */
static int kv_types(const struct adviser *a, const char *out[], int most)
{
    const char *otherwise = KNOBS[KNOB_CTK].otherwise;
    const double usual = format_bits_per_weight(format_find(otherwise));
    int n = 0;
    out[n++] = otherwise;
    for (const char *const *k = KNOBS[KNOB_CTK].choices; k && *k && n < most; k++) {
        const struct format *f = format_find(*k);
        if (!f) continue;
        const double bits = format_bits_per_weight(f);
        if (is_beaten(*k)) continue;
        if (bits < usual || (bits > usual && a->o->goal == GOAL_QUALITY)) out[n++] = *k;
    }
    return n;
}

static bool candidate(struct config *c, const char *recipe, const char *kv, const char *precision,
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

/* ---------------------------------------------------------------- the ranking */

static double format_noise(const char *name)
{
    const struct format *f = format_find(name);
    return f && f->max_nmse > 0 ? sqrt(f->max_nmse) : 0; /* relative error of a value, as documented */
}

/* The stand-in for quality loss against the file as it is. */
static double noise(const struct config *c)
{
    const char *format = config_text(c, KNOB_FORMAT);
    const double weights = strcmp(format, "file") ? format_noise(format) : 0;
    const double kv = 0.5 *
                          (format_noise(config_text(c, KNOB_CTK)) + format_noise(config_text(c, KNOB_CTV))) -
                      format_noise(KNOBS[KNOB_CTK].otherwise);
    /* kernels/README.md: activations rounded to 8 bits in blocks, NMSE about 3e-5. "auto" does so only with
     * weights that are rounded more coarsely than that. */
    const double activations = strcmp(config_text(c, KNOB_PRECISION), "medium") ? 0 : sqrt(3e-5);
    return 4 * (weights + activations) + 2 * kv;
}

static double log_gain(double now, double reference)
{
    const double r = now / reference;
    return r > 0 && isfinite(r) ? log(r) : 0; /* unknown counts for nothing */
}

static bool changes_answers(const struct config *c)
{
    for (int k = 0; k < KNOB_COUNT; k++)
        if (c->given[k] && KNOBS[k].changes_answers) return true;
    return false;
}

/* Points of the score that put what misses a limit behind all that do not: the worst misses last. */
static const struct {
    double unlikely, out_of_reach, unknown_loss, too_lossy, does_not_fit;
} MISSES = { 100, 1000, 2500, 5000, 10000 };

static double loss_misses(const struct adviser *a, double kld)
{
    if (!(a->o->kld_limit > 0) || kld <= a->o->kld_limit) return 0;
    return isnan(kld) ? MISSES.unknown_loss : MISSES.too_lossy;
}

static double score(const struct adviser *a, const struct config *c, const struct prediction *p)
{
    const struct goal_row *g = &GOALS[a->o->goal];
    const struct prediction *r = &a->reference;
    double s = 0;
    s += g->speed * (0.8 * log_gain(p->decode_tok_s, r->decode_tok_s) +
                     0.2 * log_gain(p->prefill_tok_s, r->prefill_tok_s));
    s -= g->quality * noise(c);
    /* what grows with the model and the context; working buffers follow threads and batch */
    s -= g->memory * log_gain((double)(p->plan.weights + p->plan.kv), (double)(r->plan.weights + r->plan.kv));
    /* Where nothing is known of power, bytes moved stand for energy: they are most of a decode step's. */
    s -= g->energy *
         (isnan(p->token_j) || isnan(r->token_j)
              ? log_gain((double)p->plan.decode_read_bytes + (double)p->plan.kv_bytes_per_token * p->depth,
                         (double)r->plan.decode_read_bytes + (double)r->plan.kv_bytes_per_token * r->depth)
              : log_gain(p->token_j, r->token_j));
    for (int k = 0; k < KNOB_COUNT; k++) s -= 0.002 * c->given[k]; /* of two equals the plainer line */
    if (a->o->target_tok_s > 0) { /* out of reach, less than likely, likely */
        if (!(p->decode_high >= a->o->target_tok_s))
            s -= MISSES.out_of_reach;
        else if (!(p->decode_tok_s >= a->o->target_tok_s))
            s -= MISSES.unlikely;
    }
    if (!p->fits) s -= MISSES.does_not_fit;
    return s;
}

static int by_score(const void *x, const void *y)
{
    const struct advice *a = x, *b = y;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return strcmp(a->line, b->line);
}

/* ---------------------------------------------------------------- the words */

static void add_reason(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_reason(struct str *s, const char *fmt, ...)
{
    char text[192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (s->len) str_append(s, "; ");
    str_append(s, text);
}

static enum err_code predict_it(const struct adviser *a, struct prediction *p, const struct config *c,
                                bool on_gpu, struct err *why)
{
    return predict(p, a->g, c, a->machine, a->ceilings,
                   &(struct predict_for){ .ctx = a->ctx, .on_gpu = on_gpu, .correction = a->o->correction }, why);
}

/* The same configuration with one key otherwise. */
static bool predict_with(const struct adviser *a, struct prediction *p, const struct config *c,
                         const char *key, const char *value)
{
    struct config other = *c;
    struct err ignored;
    return !config_set(&other, key, value, &ignored) && !predict_it(a, p, &other, a->on_gpu, &ignored);
}

static void say_why(const struct adviser *a, struct advice *v)
{
    const struct prediction *p = &v->prediction, *r = &a->reference;
    char now[16], then[16];
    struct str s = { 0 };
    str_from_bytes(p->plan.decode_read_bytes, now, sizeof(now));
    str_from_bytes(r->plan.decode_read_bytes, then, sizeof(then));
    if (strcmp(config_text(&v->config, KNOB_FORMAT), "file")) {
        if (p->in_cache)
            add_reason(&s, "%s of weights instead of %s, all in the cache: measure what it brings", now,
                       then);
        else if (p->decode_bound_by_memory)
            add_reason(&s, "decode is bound by memory: %s a token instead of %s, about %.1f times the speed",
                       now, then, p->decode_tok_s / r->decode_tok_s);
        else
            add_reason(&s, "%s a token instead of %s: arithmetic is the limit then", now, then);
    }
    if (v->config.given[KNOB_CTK] || v->config.given[KNOB_CTV]) {
        str_from_bytes(p->plan.kv, now, sizeof(now));
        str_from_bytes(r->plan.kv, then, sizeof(then));
        add_reason(&s, "KV cache %s instead of %s at %d tokens", now, then, p->plan.ctx);
    }
    struct prediction other;
    if (v->config.given[KNOB_PRECISION] &&
        predict_with(a, &other, &v->config, "precision", KNOBS[KNOB_PRECISION].otherwise))
        add_reason(&s, "%s products: prefill about %.1f times as fast, decode %.1f",
                   config_text(&v->config, KNOB_PRECISION), p->prefill_tok_s / other.prefill_tok_s,
                   p->decode_tok_s / other.decode_tok_s);
    const int threads = (int)config_int(&v->config, KNOB_THREADS);
    if (threads && predict_with(a, &other, &v->config, "threads", "0"))
        add_reason(&s, "%d of %d cores reach %.0f %% of the decode rate of all", threads, a->machine->cores,
                   100 * p->decode_tok_s / other.decode_tok_s);
    if (!s.len) {
        if (p->in_cache)
            add_reason(&s, "the file as it is: %s of weights stay in the cache, so arithmetic is the limit",
                       now);
        else
            add_reason(&s, "the file as it is: each token reads %s, bound by %s", now,
                       p->decode_bound_by_memory ? "memory" : "arithmetic");
    }
    snprintf(v->reason, sizeof(v->reason), "%s", str_text(&s));
    str_free(&s);
}

static const struct answer_kld *measured_loss(const struct adviser *a, const struct config *c)
{
    return a->o->answer_klds ? answer_klds_find(a->o->answer_klds, c) : NULL;
}

static void say_loss(const struct adviser *a, const struct advice *v, struct str *s)
{
    if (!changes_answers(&v->config)) return;
    const struct answer_kld *l = measured_loss(a, &v->config);
    if (!l)
        add_reason(s,
                   "changes answers: quality is not measured (qdyno eval -f TEXT -C CONFIG --ref default)");
    else
        add_reason(s, "changes answers: KL divergence %.2g nats, measured by run %lld%s", l->kld,
                   (long long)l->run_id, loss_misses(a, l->kld) > 0 ? ": more than the limit" : "");
}

static void say_caution(const struct adviser *a, struct advice *v)
{
    struct str s = { 0 };
    char need[16], have[16];
    if (!v->prediction.fits)
        add_reason(&s, "does not fit: needs %s of %s",
                   str_from_bytes(v->prediction.plan.total, need, sizeof(need)),
                   str_from_bytes(a->o->memory_limit > 0
                                      ? a->o->memory_limit
                                      : predict_memory(a->machine, a->ceilings, v->prediction.on_gpu),
                                  have, sizeof(have)));
    if (v->prediction.on_gpu)
        add_reason(&s, "on the GPU, by its maker's figures: not measured, and not by qdyno");
    if (a->o->target_tok_s > 0 && v->prediction.decode_high < a->o->target_tok_s)
        add_reason(&s, "cannot reach %.3g tokens/s here", a->o->target_tok_s);
    else if (a->o->target_tok_s > 0 && v->prediction.decode_low < a->o->target_tok_s)
        add_reason(&s, "%s miss %.3g tokens/s",
                   v->prediction.decode_tok_s < a->o->target_tok_s ? "will probably" : "may",
                   a->o->target_tok_s);
    say_loss(a, v, &s);
    if (a->shape.random_weights) add_reason(&s, "random weights: quality figures mean nothing");
    snprintf(v->caution, sizeof(v->caution), "%s", str_text(&s));
    str_free(&s);
}

/* Our engine runs on processors only: another program checks it, with a file that we make. */
static void say_gpu_check(const struct adviser *a, struct advice *v)
{
    struct str s = { 0 };
    const char *format = config_text(&v->config, KNOB_FORMAT);
    const struct format *f = format_find(format);
    const bool as_it_is = !strcmp(format, "file");
    if (f && f->ggml_type >= FORMAT_OWN_TYPES) {
        str_printf(&s, "vllm bench latency --model MODEL --quantization fp8 (from the original weights)");
    } else {
        if (!as_it_is) {
            str_append(&s, "qdyno quantize ");
            word_append(&s, a->path);
            str_printf(&s, " %s.gguf -R %s && ", format, format);
        }
        str_append(&s, "llama-bench -ngl 99 -m ");
        if (as_it_is)
            word_append(&s, a->path);
        else
            str_printf(&s, "%s.gguf", format);
        if (v->config.given[KNOB_CTK])
            str_printf(&s, " -fa 1 -ctk %s -ctv %s", config_text(&v->config, KNOB_CTK),
                       config_text(&v->config, KNOB_CTV));
        str_printf(&s, " -p 512 -n 64 -d %d", v->prediction.depth);
    }
    snprintf(v->check, sizeof v->check, "%s", str_text(&s));
    str_free(&s);
}

static void say_check(const struct adviser *a, struct advice *v)
{
    struct str s = { 0 };
    const bool is_reference = !strcmp(v->line, "default");
    if (v->prediction.on_gpu) {
        say_gpu_check(a, v);
        return;
    }
    str_append(&s, is_reference ? "qdyno bench -m " : "qdyno ab -m ");
    word_append(&s, a->path);
    if (is_reference) {
        str_printf(&s, " -n 64 -d %d", v->prediction.depth);
    } else {
        str_append(&s, " default ");
        word_append(&s, v->line);
        str_append(&s, " -w tg64");
        if (v->prediction.depth) str_printf(&s, "@d%d", v->prediction.depth);
    }
    snprintf(v->check, sizeof(v->check), "%s", str_text(&s));
    str_free(&s);
}

/* ---------------------------------------------------------------- all of it */

/* Another precision is worth a candidate where something becomes faster by it, or where quality is the goal.
 */
static bool precision_helps(const struct adviser *a, const struct config *c, const struct prediction *p)
{
    struct prediction usual;
    if (!c->given[KNOB_PRECISION]) return true;
    if (!predict_with(a, &usual, c, "precision", KNOBS[KNOB_PRECISION].otherwise)) return false;
    return p->decode_tok_s > 1.05 * usual.decode_tok_s || p->prefill_tok_s > 1.05 * usual.prefill_tok_s ||
           a->o->goal == GOAL_QUALITY;
}

static double loss_of(const struct adviser *a, const struct config *c)
{
    if (!changes_answers(c)) return 0;
    const struct answer_kld *l = measured_loss(a, c);
    return l ? l->kld : NAN;
}

static enum err_code consider(struct adviser *a, const struct config *c, struct err *why)
{
    struct prediction p;
    struct err impossible; /* a combination the model's shape does not allow is no candidate */
    if (predict_it(a, &p, c, a->on_gpu, &impossible)) return ERR_OK;
    if (!precision_helps(a, c, &p)) return ERR_OK;
    if (a->o->memory_limit > 0) p.fits = p.plan.total <= a->o->memory_limit;
    if (a->n == a->cap) {
        const int cap = a->cap ? 2 * a->cap : 64;
        struct advice *grown = realloc(a->list, (size_t)cap * sizeof(*grown));
        if (!grown) return err_set(why, ERR_NOMEM, "no memory for advice");
        a->list = grown;
        a->cap = cap;
    }
    struct advice *v = &a->list[a->n++];
    memset(v, 0, sizeof(*v));
    v->config = *c;
    v->prediction = p;
    config_line(c, v->line, sizeof(v->line));
    v->kld = loss_of(a, c);
    v->score = score(a, c, &p) - loss_misses(a, v->kld);
    say_why(a, v);
    say_caution(a, v);
    say_check(a, v);
    return ERR_OK;
}

/* Formats that programs for GPUs read: GGUF's own, and fp8 where the GPU multiplies it. */
static bool is_for_gpus(const struct adviser *a, const char *recipe)
{
    const struct format *f = format_find(recipe);
    if (!*recipe) return true;
    return f && (f->ggml_type < FORMAT_OWN_TYPES ||
                 (a->ceilings->gpu.fp8_ops_s > 0 && f == &FORMATS[FORMAT_FP8_E4M3]));
}

/* A GPU has no threads and precisions of ours to choose. */
static enum err_code consider_gpu(struct adviser *a, struct err *why)
{
    const char *recipe[FORMAT_COUNT + 1], *kv[FORMAT_COUNT + 1];
    const int n_recipes = recipes(a, recipe, COUNT_OF(recipe)), n_kv = kv_types(a, kv, COUNT_OF(kv));
    enum err_code rc = ERR_OK;
    a->on_gpu = true;
    for (int i = 0; i < n_recipes * n_kv && !rc; i++) {
        struct config c;
        const char *format = recipe[i / n_kv];
        if (is_for_gpus(a, format) && format_find(kv[i % n_kv])->ggml_type < FORMAT_OWN_TYPES &&
            candidate(&c, format, kv[i % n_kv], KNOBS[KNOB_PRECISION].otherwise, 0))
            rc = consider(a, &c, why);
    }
    return rc;
}

/* Weights that are rounded meet rounded inputs anyway (auto is medium there); exact products of them are
 * slower, and for those who want quality. */
static bool is_choice(const struct adviser *a, const char *recipe, const char *precision)
{
    const bool whole = is_full_precision(*recipe ? recipe : a->shape.dominant_format);
    if (!strcmp(precision, "auto")) return true;
    return strcmp(precision, "medium") ? whole || a->o->goal == GOAL_QUALITY : whole;
}

static enum err_code consider_all(struct adviser *a, struct err *why)
{
    if (a->ceilings->gpu.read_bytes_s > 0) {
        enum err_code rc = consider_gpu(a, why);
        if (rc) return rc;
    }
    a->on_gpu = false;

    static const char *const PRECISION[] = { "auto", "highest", "medium" };
    const char *recipe[FORMAT_COUNT + 1], *kv[FORMAT_COUNT + 1];
    int threads[3];
    const int n_recipes = recipes(a, recipe, COUNT_OF(recipe));
    const int n_threads = thread_counts(a->machine, threads, COUNT_OF(threads));
    const int n_kv = kv_types(a, kv, COUNT_OF(kv)), n_precisions = COUNT_OF(PRECISION);
    const int all = n_recipes * n_kv * n_precisions * n_threads;
    for (int i = 0; i < all; i++) { /* i counts through all combinations */
        struct config c;
        const int t = i % n_threads, p = i / n_threads % n_precisions;
        const int k = i / n_threads / n_precisions % n_kv, r = i / n_threads / n_precisions / n_kv;
        if (!is_choice(a, recipe[r], PRECISION[p])) continue;
        if (!candidate(&c, recipe[r], kv[k], PRECISION[p], threads[t])) continue;
        enum err_code rc = consider(a, &c, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code adviser_open(struct adviser *a, struct err *why)
{
    enum err_code rc = gguf_open(&a->g, a->path, why);
    if (!rc) rc = model_shape_read(&a->shape, a->g, why);
    if (rc) return rc;
    a->ctx = a->o->ctx;
    if (!a->ctx) a->ctx = a->shape.ctx_train > 0 ? (int)MIN(a->shape.ctx_train, 4096) : 4096;
    struct config plain;
    config_default(&plain);
    a->on_gpu = a->ceilings->gpu.read_bytes_s > 0;
    rc = predict_it(a, &a->reference, &plain, a->on_gpu, why);
    if (!rc && a->on_gpu && !a->reference.fits) rc = predict_it(a, &a->reference, &plain, false, why);
    return rc;
}

enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o, struct err *why)
{
    struct adviser a = { .path = model_path, .machine = machine, .ceilings = ceilings, .o = o };
    *out = NULL;
    *n = 0;
    enum err_code rc = adviser_open(&a, why);
    if (!rc) rc = consider_all(&a, why);
    gguf_close(a.g);
    if (rc) {
        free(a.list);
        return rc;
    }
    if (a.n) qsort(a.list, (size_t)a.n, sizeof(*a.list), by_score);
    *out = a.list;
    *n = a.n;
    return ERR_OK;
}
