/* advisor/predict/correction.c - corrects predictions with a Gaussian process over the residuals of earlier
 * runs.
 *
 * Target: y = ln(measured / uncorrected prediction). Prior: mean 0 and a covariance k(a, b) that sums a
 * weight for each trait that two runs share (trait_covariance). With K = k(rows, rows) + noise, the
 * correction for a new run x is k(x, rows) K^-1 y, and its variance is k(x, x) - k(x, rows) K^-1 k(rows, x).
 * See Rasmussen and Williams, Gaussian Processes for Machine Learning, chapter 2. K is at most 300 x 300; a
 * Cholesky factor of it is kept for each metric. */
#include "advisor/stats/stats.h"
#include "advisor/predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Increase after every change of the cost model: residuals of one revision cannot correct another. */
enum { MODEL_REVISION = 11 };
enum { RESIDUALS_MAX = 300, METRICS_MAX = 6 };

/* Share of the residual variance that two runs have in common when they agree in a trait. Rounded from a fit
 * to 112 runs of one 1.1 B model on one shared host; the weights of model, products, memory and memory share
 * are judgement, as one model and one machine cannot identify them. */
static const struct {
    const char *name;
    double weight;
} RESIDUAL_TRAITS[TRAIT_COUNT] = {
    [TRAIT_MODEL] = { .name = "model", .weight = 0.17 },
    [TRAIT_RECIPE] = { .name = "recipe", .weight = 0.08 },
    [TRAIT_THREADS] = { .name = "threads", .weight = 0.03 },
    [TRAIT_KV] = { .name = "kv", .weight = 0.03 },
    [TRAIT_PRODUCTS] = { .name = "products", .weight = 0.13 },
    [TRAIT_MEMORY] = { .name = "memory", .weight = 0.03 },
    [TRAIT_WORK] = { .name = "work", .weight = 0.07 },
};
static const double MACHINE_WEIGHT = 0.17;
/* Additional shared variance when two runs agree in both traits of a pair. Example: each recipe's kernels
 * were timed separately for each thread count. */
static const struct {
    enum residual_trait a, b;
    double weight;
} RESIDUAL_TRAIT_PAIRS[] = { { TRAIT_MODEL, TRAIT_RECIPE, 0.07 }, { TRAIT_RECIPE, TRAIT_THREADS, 0.12 } };
/* Covariance of runs that wait for memory: this weight times both memory shares, and twice that when their
 * thread counts are equal. */
static const double MEMORY_SHARE_WEIGHT = 0.20;
/* Standard deviations of ln(rate) between two runs of the same config. NOISE_SD is always present. Runs that
 * wait for memory add MEMORY_NOISE_SD times their memory share, because other tenants of the host use the
 * memory, too; PROBED_NOISE_SD replaces it when memory speed was probed beside the run (half of it, by
 * judgement). */
static const double NOISE_SD = 0.032, MEMORY_NOISE_SD = 0.12, PROBED_NOISE_SD = 0.06;
/* A probe that found memory far from its typical speed is only accurate to this share of ln(memory_ratio). */
static const double PROBE_NOISE_SHARE = 0.2;
static const double Z_90 = 1.645;

/* ---------------------------------------------------------------- traits that runs share */

static int power_of_four(int n)
{
    int p = 0;
    for (; n >= 4; n /= 4) p++;
    return n > 0 ? p + 1 : 0;
}

static void trait_append(struct residual_traits *t, enum residual_trait which, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void trait_append(struct residual_traits *t, enum residual_trait which, const char *fmt, ...)
{
    char text[128];
    const size_t used = strlen(t->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if (*c == ' ') *c = '_';
    snprintf(t->text + used, sizeof t->text - used, "%s%s=%s", used ? " " : "", RESIDUAL_TRAITS[which].name,
             text);
}

static const char READING[] = " reading=", PACE[] = " pace=", CORE[] = " core=", NOISE[] = " noise=";
static void number_append(struct residual_traits *t, const char *key, double value, int digits)
{
    const size_t used = strlen(t->text);
    snprintf(t->text + used, sizeof t->text - used, "%s%.*f", key, digits, value);
}

static double number_read(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

static void traits_parse(struct residual_traits *t)
{
    for (int i = 0; i < TRAIT_COUNT; i++) {
        char key[32];
        const size_t n = (size_t)snprintf(key, sizeof key, "%s=", RESIDUAL_TRAITS[i].name);
        t->hash[i] = 0;
        for (const char *at = t->text; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
            if (!strncmp(at, key, n)) t->hash[i] = hash_number(at, strcspn(at, " "));
    }
    t->memory_share = number_read(t->text, READING);
    t->conditions = (struct conditions){ number_read(t->text, PACE), number_read(t->text, CORE) };
    t->noise = number_read(t->text, NOISE);
}

void residual_traits_of(struct residual_traits *out, const struct model_shape *shape, const struct config *c,
                        const struct residual_work *w)
{
    char recipe[CONFIG_VALUE * 2];
    *out = (struct residual_traits){ 0 };
    config_recipe(c, recipe, sizeof recipe);
    trait_append(out, TRAIT_MODEL, "%s/%lld", shape->arch, (long long)shape->params);
    if (!strcmp(recipe, "file"))
        trait_append(out, TRAIT_RECIPE, "%s", shape->dominant_format);
    else
        trait_append(out, TRAIT_RECIPE, "%.48s", recipe);
    trait_append(out, TRAIT_THREADS, "%d", w->threads);
    /* formats alone where nothing is rotated, as in records from before kv_rotate existed */
    const bool paged = config_choice(c, KNOB_KV_CACHE) == CACHE_PAGED;
    trait_append(out, TRAIT_KV, "%s%s/%s%s%s%s", config_text(c, KNOB_CTK),
                 config_rotates(c, KNOB_CTK) ? "+rotated" : "", config_text(c, KNOB_CTV),
                 config_rotates(c, KNOB_CTV) ? "+rotated" : "", paged ? "" : "/",
                 paged ? "" : config_text(c, KNOB_KV_CACHE));
    const char *compile = config_choice(c, KNOB_COMPILE) ? config_text(c, KNOB_COMPILE) : "";
    const struct parallel mode = config_parallel(c);
    const char *parallel = parallel_ranks(&mode) > 1 ? config_text(c, KNOB_PARALLEL) : "";
    const char *exchange = config_choice(c, KNOB_EXCHANGE) ? config_text(c, KNOB_EXCHANGE) : "";
    trait_append(out, TRAIT_PRODUCTS, "%s/%s/%.24s%s%s%s%s%s%.24s%s%s", config_text(c, KNOB_PRECISION),
                 config_text(c, KNOB_ACT), config_text(c, KNOB_ISA),
                 config_choice(c, KNOB_BATCH_INVARIANT) ? "/batch_invariant" : "",
                 config_choice(c, KNOB_ATTENTION) == ATTENTION_PLAIN ? "/plain" : "", *compile ? "/" : "",
                 compile, *parallel ? "/" : "", parallel, *exchange ? "/" : "", exchange);
    const bool placed = config_choice(c, KNOB_NUMA) != NUMA_OFF;
    trait_append(out, TRAIT_MEMORY, "%s/%s/%s%s%s", config_text(c, KNOB_HUGEPAGES),
                 config_text(c, KNOB_PREFETCH), config_text(c, KNOB_REPACK), placed ? "/" : "",
                 placed ? config_text(c, KNOB_NUMA) : "");
    trait_append(out, TRAIT_WORK, "d%d/b%d/s%d", power_of_four(w->depth), power_of_four(w->batch),
                 power_of_four(w->sequences));
    number_append(out, READING, w->memory_share, 2);
    if (w->conditions.memory_ratio > 0) number_append(out, PACE, w->conditions.memory_ratio, 3);
    if (w->conditions.core_ratio > 0) number_append(out, CORE, w->conditions.core_ratio, 3);
    if (w->noise > 0) number_append(out, NOISE, w->noise, 3);
    traits_parse(out);
}

static double trait_covariance(const struct residual_traits *a, const struct residual_traits *b)
{
    const bool same_threads = a->hash[TRAIT_THREADS] == b->hash[TRAIT_THREADS];
    double sum = MACHINE_WEIGHT +
                 MEMORY_SHARE_WEIGHT * a->memory_share * b->memory_share * (same_threads ? 2 : 1);
    for (int i = 0; i < TRAIT_COUNT; i++)
        if (a->hash[i] == b->hash[i]) sum += RESIDUAL_TRAITS[i].weight;
    for (size_t i = 0; i < COUNT_OF(RESIDUAL_TRAIT_PAIRS); i++)
        if (a->hash[RESIDUAL_TRAIT_PAIRS[i].a] == b->hash[RESIDUAL_TRAIT_PAIRS[i].a] &&
            a->hash[RESIDUAL_TRAIT_PAIRS[i].b] == b->hash[RESIDUAL_TRAIT_PAIRS[i].b])
            sum += RESIDUAL_TRAIT_PAIRS[i].weight;
    return sum;
}

/* ---------------------------------------------------------------- loading residuals */

/* The residuals of one metric. `factor`: lower Cholesky factor L of the covariance with noise, in units of
 * the prior variance. `alpha`: K^-1 observed. */
struct metric_model {
    char metric[48];
    int n;
    struct residual_traits *traits;
    double *factor, *alpha, *observed;
    double square; /* observed' K^-1 observed */
};
struct correction {
    int n;
    struct metric_model metrics[METRICS_MAX];
};

const char *correction_basis(const struct machine_ceilings *c, char *buf, size_t size)
{
    const int n = snprintf(buf, size, "%d/%lld", MODEL_REVISION, (long long)c->measured_unix_ms);
    if (c->kernels.measured && n < (int)size)
        snprintf(buf + n, size - (size_t)n, "/kernels/%lld", (long long)c->kernels.measured_unix_ms);
    return buf;
}

static struct metric_model *metric_model_get(struct correction *l, const char *metric, int most)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->metrics[i].metric, metric)) return &l->metrics[i];
    if (l->n == METRICS_MAX) return NULL;
    struct metric_model *s = &l->metrics[l->n++];
    snprintf(s->metric, sizeof s->metric, "%s", metric);
    s->traits = calloc((size_t)most, sizeof *s->traits);
    s->observed = calloc((size_t)most, sizeof *s->observed);
    return s;
}

static void residual_add(struct correction *l, const struct residual_row *r)
{
    if (!(r->untaught > 0) || !(r->measured > 0) || !isfinite(r->untaught) || !isfinite(r->measured)) return;
    struct metric_model *s = metric_model_get(l, r->metric, RESIDUALS_MAX);
    if (!s || !s->traits || !s->observed || s->n == RESIDUALS_MAX) return;
    snprintf(s->traits[s->n].text, sizeof s->traits[0].text, "%s", r->traits);
    traits_parse(&s->traits[s->n]);
    s->observed[s->n++] = log(r->measured / r->untaught);
}

/* Forward substitution L x = y, in place; with `both` also the back substitution L' z = x. */
static void cholesky_solve(const double *factor, int n, double *y, bool both)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) y[i] -= factor[i * n + k] * y[k];
        y[i] /= factor[i * n + i];
    }
    for (int i = n - 1; both && i >= 0; i--) {
        for (int k = i + 1; k < n; k++) y[i] -= factor[k * n + i] * y[k];
        y[i] /= factor[i * n + i];
    }
}

static bool cholesky_factor(double *m, int n)
{
    for (int j = 0; j < n; j++)
        for (int i = j; i < n; i++) {
            double v = m[i * n + j];
            for (int k = 0; k < j; k++) v -= m[i * n + k] * m[j * n + k];
            if (i == j && !(v > 0)) return false;
            m[i * n + j] = i == j ? sqrt(v) : v / m[j * n + j];
        }
    return true;
}

/* Noise variance of one residual in units of the prior variance, which belongs to a standard deviation of
 * 0.1. */
static double residual_noise(const struct residual_traits *t)
{
    const double USUAL_SD = 0.10, sd = t->conditions.memory_ratio > 0 ? PROBED_NOISE_SD : MEMORY_NOISE_SD;
    const double reading = sd * t->memory_share, own = t->noise;
    const double probe = t->conditions.memory_ratio > 0
                             ? PROBE_NOISE_SHARE * log(t->conditions.memory_ratio) * t->memory_share
                             : 0;
    return (NOISE_SD * NOISE_SD + reading * reading + probe * probe + own * own) / (USUAL_SD * USUAL_SD);
}

/* Factor the covariance with each residual's noise multiplied by noise_factor[i]. Errors: ERR_INTERNAL when
 * the covariance is not positive definite. */
static enum err_code metric_model_factor(struct metric_model *s, const double *noise_factor, struct err *why)
{
    const size_t n = (size_t)s->n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k <= i; k++)
            s->factor[i * n + k] = trait_covariance(&s->traits[i], &s->traits[k]) +
                                   (i == k ? residual_noise(&s->traits[i]) * noise_factor[i] : 0);
    if (!cholesky_factor(s->factor, s->n))
        return err_set(why, ERR_INTERNAL,
                       "the covariance of earlier prediction residuals is not positive definite");
    memcpy(s->alpha, s->observed, n * sizeof *s->alpha);
    cholesky_solve(s->factor, s->n, s->alpha, true);
    s->square = 0;
    for (size_t i = 0; i < n; i++) s->square += s->observed[i] * s->alpha[i];
    return ERR_OK;
}

/* out[i]: squared leave-one-out residual of row i divided by its leave-one-out variance. Both follow from
 * K^-1 without refitting (Rasmussen and Williams, section 5.4.2): error = alpha[i] / K^-1[i][i], variance = 1
 * / K^-1[i][i]. The extra noise that earlier steps gave the row is taken off the variance. */
static void leave_one_out_squares(const struct metric_model *s, const double *noise_factor, double *out,
                                  double *column)
{
    for (int i = 0; i < s->n; i++) {
        memset(column, 0, (size_t)s->n * sizeof *column);
        column[i] = 1;
        cholesky_solve(s->factor, s->n, column, false);
        double inverse = 0; /* K^-1[i][i]: the squared norm of column i of L^-1 */
        for (int k = i; k < s->n; k++) inverse += column[k] * column[k];
        const double error = s->alpha[i] / inverse,
                     variance = 1 / inverse - residual_noise(&s->traits[i]) * (noise_factor[i] - 1);
        out[i] = error * error / variance;
    }
}

/* A memory probe may miss a disturbance of its run, or see one that the run did not. Such a row disagrees
 * with all others. Where a row's squared leave-one-out residual exceeds four times the typical one, its noise
 * grows with the square of that excess (iteratively reweighted fit). */
static enum err_code metric_model_reweight(struct metric_model *s, double *noise_factor, double *square,
                                           struct err *why)
{
    enum { STEPS = 4, FEWEST = 5 };
    const double LIMIT = 4, CHI2_MEDIAN = 0.455, SMALLEST = 1e-8;
    /* a row with this much noise no longer contributes; more would only lose digits */
    const double MOST = 1e6;
    double *sorted = square + s->n;
    enum err_code rc = ERR_OK;
    bool changed = s->n >= FEWEST;
    for (int step = 0; step < STEPS && changed && !rc; step++) {
        leave_one_out_squares(s, noise_factor, square, sorted);
        memcpy(sorted, square, (size_t)s->n * sizeof *sorted);
        stats_sort(sorted, s->n);
        const double typical = fmax(sorted[s->n / 2], SMALLEST) / CHI2_MEDIAN;
        changed = false;
        for (int i = 0; i < s->n; i++) {
            const double excess = fmax(square[i] / typical / LIMIT, 1), now = fmin(excess * excess, MOST);
            changed |= now != noise_factor[i];
            noise_factor[i] = now;
        }
        if (changed) rc = metric_model_factor(s, noise_factor, why);
    }
    return rc;
}

static enum err_code metric_model_fit(struct metric_model *s, struct err *why)
{
    const size_t n = (size_t)s->n;
    double *noise_factor = malloc(3 * n * sizeof *noise_factor);
    s->factor = calloc(n * n, sizeof *s->factor);
    s->alpha = calloc(n, sizeof *s->alpha);
    enum err_code rc = ERR_OK;
    if (!s->traits || !s->observed || !s->factor || !s->alpha || !noise_factor)
        rc = err_set(why, ERR_NOMEM, "out of memory for earlier prediction residuals");
    for (size_t i = 0; i < n && !rc; i++) noise_factor[i] = 1;
    if (!rc) rc = metric_model_factor(s, noise_factor, why);
    if (!rc) rc = metric_model_reweight(s, noise_factor, noise_factor + n, why);
    free(noise_factor);
    return rc;
}

enum err_code correction_load(struct correction **out, struct db *d, const char *machine_id,
                              const struct machine_ceilings *c, struct err *why)
{
    struct residual_row *rows = NULL;
    char basis[64];
    int n = 0;
    *out = NULL;
    struct correction *l = calloc(1, sizeof *l);
    if (!l) return err_set(why, ERR_NOMEM, "out of memory for earlier prediction residuals");
    enum err_code rc = d ? db_residual_list(d, machine_id, correction_basis(c, basis, sizeof basis),
                                            RESIDUALS_MAX * METRICS_MAX, &rows, &n, why)
                         : ERR_OK;
    for (int i = 0; i < n && !rc; i++) residual_add(l, &rows[i]);
    free(rows);
    for (int i = 0; i < l->n && !rc; i++) rc = metric_model_fit(&l->metrics[i], why);
    if (rc) {
        correction_free(l);
        return rc;
    }
    *out = l;
    return ERR_OK;
}

void correction_free(struct correction *l)
{
    for (int i = 0; l && i < l->n; i++) {
        free(l->metrics[i].traits);
        free(l->metrics[i].observed);
        free(l->metrics[i].factor);
        free(l->metrics[i].alpha);
    }
    free(l);
}

/* ---------------------------------------------------------------- correcting a prediction */

/* Variance of one unit of covariance: the mean of the prior variance and of the observed squared residuals,
 * where the prior counts as four observations. */
static double posterior_scale(const struct metric_model *s, double variance)
{
    const double PRIOR = 4;
    return (PRIOR * variance + s->square) / (PRIOR + s->n);
}

struct estimate correction_estimate(const struct correction *l, const char *metric,
                                    const struct residual_traits *t, double uncorrected, double sd)
{
    struct estimate e = { { uncorrected, uncorrected * exp(-Z_90 * sd), uncorrected * exp(Z_90 * sd) }, 0 };
    const struct metric_model *s = NULL;
    for (int i = 0; l && i < l->n; i++)
        if (!strcmp(l->metrics[i].metric, metric)) s = &l->metrics[i];
    if (!s || isnan(uncorrected)) return e;
    double shared[RESIDUALS_MAX], mean = 0, explained = 0;
    for (int i = 0; i < s->n; i++) {
        shared[i] = trait_covariance(t, &s->traits[i]);
        mean += shared[i] * s->alpha[i];
    }
    cholesky_solve(s->factor, s->n, shared, false);
    for (int i = 0; i < s->n; i++) explained += shared[i] * shared[i];
    const double left = fmax(trait_covariance(t, t) - explained, 0) + residual_noise(t);
    const double spread = Z_90 * sqrt(left * posterior_scale(s, sd * sd));
    const double value = uncorrected * exp(mean);
    return (struct estimate){ { value, value * exp(-spread), value * exp(spread) }, s->n };
}

/* ---------------------------------------------------------------- accuracy of past predictions */

static struct accuracy *accuracy_row(struct accuracy out[ACCURACY_MAX], int *count, const char *metric)
{
    for (int i = 0; i < *count; i++)
        if (!strcmp(out[i].metric, metric)) return &out[i];
    if (*count == ACCURACY_MAX) return NULL;
    struct accuracy *a = &out[(*count)++];
    *a = (struct accuracy){ .median_error = NAN };
    snprintf(a->metric, sizeof a->metric, "%s", metric);
    return a;
}

int accuracy_of(struct accuracy out[ACCURACY_MAX], const struct residual_row *rows, int n)
{
    int count = 0;
    double *errors = calloc((size_t)MAX(n, 1), sizeof *errors);
    for (int i = 0; i < n; i++) {
        const struct residual_row *r = &rows[i];
        if (!(r->predicted > 0) || !(r->measured > 0)) continue;
        struct accuracy *a = accuracy_row(out, &count, r->metric);
        if (!a) continue;
        const double error = fabs(r->predicted / r->measured - 1);
        a->n++;
        a->within_10 += error <= 0.10;
        a->within_20 += error <= 0.20;
        a->in_interval += r->measured >= r->low && r->measured <= r->high;
        a->bias += log(r->measured / r->predicted);
    }
    for (int k = 0; k < count; k++) {
        int m = 0;
        out[k].bias /= out[k].n;
        for (int i = 0; i < n && errors; i++)
            if (!strcmp(rows[i].metric, out[k].metric) && rows[i].predicted > 0 && rows[i].measured > 0)
                errors[m++] = fabs(rows[i].predicted / rows[i].measured - 1);
        if (m) {
            stats_sort(errors, m);
            out[k].median_error = stats_quantile_sorted(errors, m, 0.5);
        }
    }
    free(errors);
    return count;
}
