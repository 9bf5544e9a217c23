/* advisor/recipe/sensitivity.c - measures what each tensor costs in each format, and estimates what was not
 * measured (recipe.h). */
#include "advisor/recipe/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "engine/eval/eval.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"

const char SENSITIVITY_FORMATS[] = "q2_K q3_K q4_K q5_K q6_K q4_0 q5_0 q8_0";

/* ---------------------------------------------------------------- tensors and formats */

static bool is_float(const struct format *f)
{
    return f == &FORMATS[FORMAT_F32] || f == &FORMATS[FORMAT_F16] || f == &FORMATS[FORMAT_BF16];
}

static enum err_code formats_read(struct sensitivities *s, const char *words, struct err *why)
{
    char copy[256], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", words ? words : SENSITIVITY_FORMATS);
    for (char *word = strtok_r(copy, " ,", &rest); word; word = strtok_r(NULL, " ,", &rest)) {
        const struct format *f = format_find(word);
        if (!f || !f->encode || !f->decode)
            return err_set(why, ERR_USAGE, "format '%.40s' cannot be both made and run here", word);
        if (s->formats == ALLOCATE_CHOICES - 1)
            return err_set(why, ERR_USAGE, "expected at most %d formats to choose from",
                           ALLOCATE_CHOICES - 1);
        s->format[s->formats++] = f;
    }
    if (!s->formats) return err_set(why, ERR_USAGE, "expected at least one format to choose from");
    s->format[s->formats++] = NULL; /* left in floats */
    return ERR_OK;
}

/* Would a uniform recipe quantize it? Then a mixed one must choose a format for it. */
static bool is_converted(const struct sensitivities *s, const struct gguf_tensor *t)
{
    struct config c;
    if (config_parse(&c, s->format[0]->name, NULL)) return false;
    const enum tensor_fate fate = recipe_tensor_fate(&c, s->source, t);
    return fate == FATE_METHOD || fate == FATE_FELL_BACK;
}

const struct format *sensitive_float(const struct gguf_tensor *t)
{
    return t->format == &FORMATS[FORMAT_F32] ? &FORMATS[FORMAT_F16] : t->format;
}

static void tensor_describe(struct sensitive_tensor *x, const struct sensitivities *s,
                            const struct gguf_tensor *t)
{
    int64_t rows = 1;
    for (int d = 1; d < t->dims; d++) rows *= t->shape[d];
    *x = (struct sensitive_tensor){ .source = t, .swappable = t->dims == 2 };
    for (int k = 0; k < s->formats; k++) {
        const struct format *f = s->format[k] ? s->format[k] : sensitive_float(t);
        const bool fits = t->shape[0] % f->block_weights == 0;
        x->bytes[k] = fits ? rows * format_row_bytes(f, t->shape[0]) : -1;
        x->kld[k] = x->kld_se[k] = x->nmse[k] = NAN;
        if (s->format[k]) continue;
        x->kld[k] = x->kld_se[k] = x->nmse[k] = 0;
        x->measured[k] = true; /* f16 keeps 11 significant bits of every weight: no measurable difference */
    }
}

/* path: of the model, for the command that helps. */
static enum err_code tensors_list(struct sensitivities *s, const char *path, struct err *why)
{
    const int64_t all = gguf_tensor_count(s->source);
    bool some = false;
    s->tensor = calloc((size_t)all + 1, sizeof *s->tensor);
    if (!s->tensor) return err_set(why, ERR_NOMEM, "out of memory for %lld tensors", (long long)all);
    for (int64_t i = 0; i < all; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(s->source, i);
        if (!is_converted(s, t)) continue;
        if (!is_float(t->format))
            return err_set(
                why, ERR_USAGE,
                "tensor '%s' is already quantized (%s): expected a model in f32, f16 or bf16, because a second rounding "
                "error would hide in the first; use the original file, or make one, which has the losses of this one: "
                "qdyno quantize %s OUT.gguf -R f16",
                t->name, t->format->name, path);
        struct sensitive_tensor *x = &s->tensor[s->n++];
        tensor_describe(x, s, t);
        for (int k = 0; k + 1 < s->formats; k++) {
            s->of += x->bytes[k] >= 0;
            some |= x->bytes[k] >= 0 && x->swappable;
        }
    }
    return some ? ERR_OK
                : err_set(why, ERR_USAGE,
                          "no matrix of this model has rows that fill the blocks of these formats");
}

/* Measurements are comparable if they have the same basis. */
static void name_basis(struct sensitivities *s, const struct sensitivity_options *o)
{
    snprintf(s->basis, sizeof s->basis, "text %s, %lld windows of %d, precision %s", o->text.name,
             (long long)o->windows, o->ctx, config_text(o->config, KNOB_PRECISION));
}

static void pairs_restore(struct sensitivities *s, const struct sensitivity_row *rows, int n)
{
    for (int r = 0; r < n; r++)
        for (int i = 0; i < s->n; i++)
            for (int k = 0; k + 1 < s->formats; k++) {
                struct sensitive_tensor *x = &s->tensor[i];
                if (strcmp(rows[r].tensor, x->source->name) || strcmp(rows[r].format, s->format[k]->name))
                    continue;
                x->kld[k] = rows[r].kld;
                x->kld_se[k] = rows[r].kld_se;
                x->nmse[k] = rows[r].nmse;
                x->measured[k] = isfinite(rows[r].kld);
            }
}

static enum err_code sensitivities_prepare(struct sensitivities *s, const struct sensitivity_options *o,
                                           struct err *why)
{
    struct sensitivity_row *rows = NULL;
    int n = 0;
    enum err_code rc = formats_read(s, o->formats, why);
    if (!rc) rc = model_file_open(&s->source, o->model_path, why);
    if (!rc) rc = model_identity(s->source, s->model_sha256, why);
    if (!rc) rc = tensors_list(s, o->model_path, why);
    if (rc) return rc;
    name_basis(s, o);
    if (o->db) rc = db_sensitivity_list(o->db, s->model_sha256, s->basis, &rows, &n, why);
    pairs_restore(s, rows, n);
    free(rows);
    return rc;
}

/* ---------------------------------------------------------------- measuring */

enum { STEP_S = 10 }; /* seconds: proposed budgets are multiples of it */

struct asking {
    const struct sensitivity_options *o;
    struct sensitivities *s;
    struct model *reference, *candidate;
    struct logit_cache logit_cache;
    int64_t begun_ns, weights; /* weights: of the searched tensors */
    double window_s;           /* one window of one model */
    char what[160];
    int done;
};

static bool measure_progress(void *arg, int64_t chunk, int64_t of, double nll)
{
    const struct asking *a = arg;
    (void)chunk, (void)of, (void)nll;
    return !a->o->progress || a->o->progress(a->o->progress_ctx, a->what, a->done, a->s->of);
}

static enum err_code model_open_as_is(struct model **out, const struct asking *a, struct err *why)
{
    const struct model_options m = {
        .gguf = a->s->source, .config = a->o->config, .ctx = a->o->ctx, .sequences = 1, .log = a->o->log
    };
    return shapes_model_open(out, &m, why);
}

static enum err_code pair_store(const struct asking *a, const struct sensitive_tensor *x, int k,
                                struct err *why)
{
    struct sensitivity_row row = {
        .bytes = x->bytes[k], .kld = x->kld[k], .kld_se = x->kld_se[k], .nmse = x->nmse[k]
    };
    if (!a->o->db) return ERR_OK;
    snprintf(row.model, sizeof row.model, "%s", a->s->model_sha256);
    snprintf(row.basis, sizeof row.basis, "%s", a->s->basis);
    snprintf(row.tensor, sizeof row.tensor, "%s", x->source->name);
    snprintf(row.format, sizeof row.format, "%s", a->s->format[k]->name);
    return db_sensitivity_put(a->o->db, &row, why);
}

static enum err_code pair_measure(struct asking *a, struct sensitive_tensor *x, int k, struct err *why)
{
    struct divergence d;
    const struct substitution substitution = { x->source->name, a->s->format[k] };
    const struct eval_request r = { .text = a->o->text.text,
                                    .n = a->o->text.n,
                                    .ctx = a->o->ctx,
                                    .max_chunks = a->o->windows,
                                    .progress = measure_progress,
                                    .arg = a,
                                    .logit_cache = &a->logit_cache };
    snprintf(a->what, sizeof a->what, "%s in %s", substitution.tensor, substitution.format->name);
    enum err_code rc = eval_substitution(&d, &x->nmse[k], a->reference, a->candidate, &substitution, &r, why);
    if (rc) return rc;
    x->kld[k] = d.kld_mean;
    x->kld_se[k] = d.kld_se;
    x->measured[k] = true;
    a->done++;
    return pair_store(a, x, k, why);
}

/* Seconds that evaluating so many windows and making the files takes, from `n` measurements that took
 * `spent`: each evaluates its windows once, the first one also those of the reference. */
static double later_s(const struct asking *a, double spent, int n, int64_t windows)
{
    /* a guess of weights that are encoded per second; the measurements do not show it */
    static const double WEIGHTS_S = 5e7;
    const struct sensitivity_options *o = a->o;
    const double window_s = spent / (n + 1) / (double)MAX(o->windows, 1);
    return window_s * (double)windows + o->later_models * (double)a->weights / WEIGHTS_S;
}

/* Seconds of the budget that measuring must leave for what follows. */
static double reserved_s(const struct asking *a, double spent, int n)
{
    const struct sensitivity_options *o = a->o;
    const double all = later_s(a, spent, n, o->later_windows); /* n > 0 */
    return all <= 0.5 * o->budget_s ? all : fmax(0.5 * o->budget_s, later_s(a, spent, n, o->later_least));
}

/* Seconds that the first measurement of this process takes, with the reference, and after it the check with
 * the fewest windows. `measures` false: only the check. */
static double least_s(const struct asking *a, bool measures)
{
    const double first_s = 2 * a->window_s * (double)a->o->windows;
    return (measures ? first_s : 0) + later_s(a, first_s, 1, a->o->later_least);
}

/* Before the first measurement: one window of the model tells whether the budget covers a measurement, or has
 * losses of an earlier search, and what follows in any case. The first window also reads the file, so where
 * it is too slow, a second one decides. */
static enum err_code budget_foresee(struct asking *a, struct err *why)
{
    const struct sensitivity_options *o = a->o;
    struct perplexity ignored;
    double spent = 0, least = 0;
    snprintf(a->what, sizeof a->what, "the time of a window");
    for (int i = 0; i < 2; i++) {
        const int64_t begun = clock_ns();
        const enum err_code rc = eval_perplexity(&ignored, a->reference, o->text.text, o->text.n, o->ctx, 1,
                                                 measure_progress, a, why);
        if (rc) return rc;
        a->window_s = (double)(clock_ns() - begun) * 1e-9;
        spent = (double)(clock_ns() - a->begun_ns) * 1e-9;
        least = least_s(a, !a->done);
        if (spent + least <= o->budget_s) return ERR_OK;
    }
    a->s->too_short = true;
    return err_set(
        why, ERR_USAGE,
        "the budget of %.6g s is too short: as fast as this machine is now, loading the model and two windows of the text took %.1f s, and "
        "measuring %d of %d losses and checking the recipe takes at least %.0f s: use --budget %.0fs, or a smaller "
        "model; %d of the losses are stored, and are not measured again",
        o->budget_s, spent, a->done ? 0 : 1, a->s->of, least, STEP_S * ceil(2 * (spent + least) / STEP_S),
        a->done);
}

static bool has_time_for_one(const struct asking *a, double spent)
{
    return spent + least_s(a, true) <= a->o->budget_s;
}

/* Measure one format of every tensor before a second one of any: one measurement allows estimates of the
 * others. Start with the middle of the list, then outwards, so that estimates extrapolate as little as
 * possible. */
static enum err_code pairs_measure(struct asking *a, struct err *why)
{
    struct sensitivities *s = a->s;
    const int n = s->formats - 1, middle = (n - 1) / 2;
    const int64_t begun = clock_ns(); /* after loading */
    int measured = 0;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < 2 * n && !rc; i++) {
        const int k = middle + (i % 2 ? (i + 1) / 2 : -i / 2);
        for (int t = 0; k >= 0 && k < n && t < s->n && !rc; t++) {
            struct sensitive_tensor *x = &s->tensor[t];
            const double spent = (double)(clock_ns() - a->begun_ns) * 1e-9;
            if (x->bytes[k] < 0 || !x->swappable || x->measured[k]) continue;
            const double measuring = (double)(clock_ns() - begun) * 1e-9;
            if (measured && spent > a->o->budget_s - reserved_s(a, measuring, measured)) return ERR_OK;
            /* losses of an earlier search may leave time for the check alone */
            if (!measured && a->done && !has_time_for_one(a, spent)) return ERR_OK;
            rc = pair_measure(a, x, k, why);
            if (!rc) measured++;
        }
    }
    return rc;
}

static int64_t tensor_weights(const struct gguf_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->dims; i++) n *= t->shape[i];
    return n;
}

static bool is_complete(const struct sensitivities *s)
{
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k + 1 < s->formats; k++)
            if (s->tensor[t].bytes[k] >= 0 && s->tensor[t].swappable && !s->tensor[t].measured[k])
                return false;
    return true;
}

static enum err_code sensitivities_run(struct sensitivities *s, const struct sensitivity_options *o,
                                       struct err *why)
{
    struct asking a = { .o = o, .s = s, .begun_ns = clock_ns() };
    if (is_complete(s)) return ERR_OK;
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k + 1 < s->formats; k++) a.done += s->tensor[t].measured[k];
    for (int t = 0; t < s->n; t++) a.weights += tensor_weights(s->tensor[t].source);
    enum err_code rc = model_open_as_is(&a.reference, &a, why);
    if (!rc) rc = model_open_as_is(&a.candidate, &a, why);
    if (!rc) rc = budget_foresee(&a, why);
    if (!rc) rc = pairs_measure(&a, why);
    logit_cache_done(&a.logit_cache);
    model_close(a.reference);
    model_close(a.candidate);
    return rc;
}

/* ---------------------------------------------------------------- estimating */

/* Mean KL divergence per weight and squared relative error over all measurements, for tensors that cannot be
 * measured. */
static double usual_rate(const struct sensitivities *s)
{
    double kld = 0, error = 0;
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k + 1 < s->formats; k++) {
            const struct sensitive_tensor *x = &s->tensor[t];
            if (!x->measured[k]) continue;
            kld += x->kld[k];
            error += s->format[k]->max_nmse * (double)x->bytes[s->formats - 1];
        }
    return error > 0 ? kld / error : NAN;
}

/* The measured format of this tensor with the closest error; -1: none. */
static int format_nearest(const struct sensitivities *s, const struct sensitive_tensor *x, int k)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i + 1 < s->formats; i++) {
        const double far = fabs(log(s->format[i]->max_nmse / s->format[k]->max_nmse));
        if (!x->measured[i] || !(far < least)) continue;
        least = far;
        best = i;
    }
    return best;
}

static void pairs_estimate(struct sensitivities *s)
{
    const double rate = usual_rate(s);
    s->measured = s->estimated = 0;
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k + 1 < s->formats; k++) {
            struct sensitive_tensor *x = &s->tensor[t];
            if (x->bytes[k] < 0) continue;
            if (x->measured[k]) {
                s->measured++;
                continue;
            }
            const int i = format_nearest(s, x, k);
            x->kld[k] = i >= 0 ? x->kld[i] * s->format[k]->max_nmse / s->format[i]->max_nmse
                               : rate * s->format[k]->max_nmse * (double)x->bytes[s->formats - 1];
            s->estimated += isfinite(x->kld[k]);
        }
}

enum err_code sensitivities_measure(struct sensitivities *out, const struct sensitivity_options *o,
                                    struct err *why)
{
    *out = (struct sensitivities){ 0 };
    enum err_code rc = sensitivities_prepare(out, o, why);
    if (!rc) rc = sensitivities_run(out, o, why);
    if (!rc) pairs_estimate(out);
    if (!rc && !out->measured)
        rc = err_set(why, ERR_USAGE, "the budget was too short for a single measurement: raise --budget");
    return rc;
}

void sensitivities_free(struct sensitivities *s)
{
    free(s->tensor);
    gguf_close(s->source);
    *s = (struct sensitivities){ 0 };
}

enum err_code sensitivities_items(struct item **items, const struct sensitivities *s, struct err *why)
{
    *items = calloc((size_t)s->n + 1, sizeof **items);
    if (!*items) return err_set(why, ERR_NOMEM, "out of memory for %d tensors", s->n);
    for (int t = 0; t < s->n; t++) {
        struct item *x = &(*items)[t];
        x->n = s->formats;
        for (int k = 0; k < s->formats; k++)
            x->choice[k] = (struct cost_choice){ s->tensor[t].bytes[k],
                                                 s->tensor[t].bytes[k] < 0 ? NAN : s->tensor[t].kld[k] };
    }
    return ERR_OK;
}
