/* advisor/predict/learn.c - a Gaussian process over what runs have in common. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_REVISION = 10 }; /* another cost model makes other errors: count up when it changes */
enum { LESSONS_MOST = 300, METRICS_MOST = 6 };

/* How much of what a cost model gets wrong is common to runs that agree in something, as shares of all of it:
 * rounded from a fit to 112 runs of one 1.1 B model on one shared host; what one model and one machine cannot
 * tell (model, products, memory, reading) is judgement. */
static const struct {
    const char *name;
    double weight;
} LESSON_TRAITS[TRAIT_COUNT] = {
    [TRAIT_MODEL] = { "model", 0.17 },       [TRAIT_RECIPE] = { "recipe", 0.08 },
    [TRAIT_THREADS] = { "threads", 0.03 },   [TRAIT_KV] = { "kv", 0.03 },
    [TRAIT_PRODUCTS] = { "products", 0.13 }, [TRAIT_MEMORY] = { "memory", 0.03 },
    [TRAIT_WORK] = { "work", 0.07 },
};
static const double MACHINE_WEIGHT = 0.17;
/* Two of these together, beyond what each brings: a recipe's kernels are timed apart for each thread count.
 */
static const struct {
    enum lesson_trait a, b;
    double weight;
} LESSON_PAIRS[] = { { TRAIT_MODEL, TRAIT_RECIPE, 0.07 }, { TRAIT_RECIPE, TRAIT_THREADS, 0.12 } };
/* Of waiting for memory: by how much both runs do. Once for all of them, once more for equal threads. */
static const double READING_WEIGHT = 0.20;
/* Between two measurements of the same, beside what their own repetitions say, and beside that as far as they
 * wait for a memory that others use: each has its moment, which is known (but not to the second) where memory
 * was looked at beside it: half of the other by judgement. */
static const double NOISE_SD = 0.032, READING_NOISE_SD = 0.12, PACED_NOISE_SD = 0.06;
/* And a look that found memory far from usual is right but to a part of that. */
static const double LOOK_NOISE_PART = 0.2;
static const double NINE_IN_TEN = 1.645;

/* ---------------------------------------------------------------- what runs have in common */

static int power_of_four(int n)
{
    int p = 0;
    for (; n >= 4; n /= 4) p++;
    return n > 0 ? p + 1 : 0;
}

static void trait_set(struct lesson_traits *t, enum lesson_trait which, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void trait_set(struct lesson_traits *t, enum lesson_trait which, const char *fmt, ...)
{
    char text[128];
    const size_t used = strlen(t->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if (*c == ' ') *c = '_';
    snprintf(t->text + used, sizeof t->text - used, "%s%s=%s", used ? " " : "", LESSON_TRAITS[which].name,
             text);
}

static const char READING[] = " reading=", PACE[] = " pace=", CORE[] = " core=", NOISE[] = " noise=";
static void put_number(struct lesson_traits *t, const char *key, double value, int digits)
{
    const size_t used = strlen(t->text);
    snprintf(t->text + used, sizeof t->text - used, "%s%.*f", key, digits, value);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

static void traits_read(struct lesson_traits *t)
{
    for (int i = 0; i < TRAIT_COUNT; i++) {
        char key[32];
        const size_t n = (size_t)snprintf(key, sizeof key, "%s=", LESSON_TRAITS[i].name);
        t->hash[i] = 0;
        for (const char *at = t->text; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
            if (!strncmp(at, key, n)) t->hash[i] = hash_number(at, strcspn(at, " "));
    }
    t->reading = number_after(t->text, READING);
    t->now = (struct conditions){ number_after(t->text, PACE), number_after(t->text, CORE) };
    t->noise = number_after(t->text, NOISE);
}

void lesson_traits_of(struct lesson_traits *out, const struct model_shape *shape, const struct config *c,
                      const struct lesson_work *w)
{
    char recipe[CONFIG_VALUE * 2];
    *out = (struct lesson_traits){ 0 };
    config_recipe(c, recipe, sizeof recipe);
    trait_set(out, TRAIT_MODEL, "%s/%lld", shape->arch, (long long)shape->params);
    if (!strcmp(recipe, "file"))
        trait_set(out, TRAIT_RECIPE, "%s", shape->dominant_format);
    else
        trait_set(out, TRAIT_RECIPE, "%.48s", recipe);
    trait_set(out, TRAIT_THREADS, "%d", w->threads);
    trait_set(out, TRAIT_KV, "%s/%s", config_text(c, KNOB_CTK), config_text(c, KNOB_CTV));
    trait_set(out, TRAIT_PRODUCTS, "%s/%s/%.24s", config_text(c, KNOB_PRECISION), config_text(c, KNOB_ACT),
              config_text(c, KNOB_ISA));
    trait_set(out, TRAIT_MEMORY, "%s/%s/%s", config_text(c, KNOB_HUGEPAGES), config_text(c, KNOB_PREFETCH),
              config_text(c, KNOB_REPACK));
    trait_set(out, TRAIT_WORK, "d%d/b%d/s%d", power_of_four(w->depth), power_of_four(w->batch),
              power_of_four(w->sequences));
    put_number(out, READING, w->reading, 2);
    if (w->now.memory_ratio > 0) put_number(out, PACE, w->now.memory_ratio, 3);
    if (w->now.core_ratio > 0) put_number(out, CORE, w->now.core_ratio, 3);
    if (w->noise > 0) put_number(out, NOISE, w->noise, 3);
    traits_read(out);
}

static double in_common(const struct lesson_traits *a, const struct lesson_traits *b)
{
    const bool as_many = a->hash[TRAIT_THREADS] == b->hash[TRAIT_THREADS];
    double sum = MACHINE_WEIGHT + READING_WEIGHT * a->reading * b->reading * (as_many ? 2 : 1);
    for (int i = 0; i < TRAIT_COUNT; i++)
        if (a->hash[i] == b->hash[i]) sum += LESSON_TRAITS[i].weight;
    for (size_t i = 0; i < COUNT_OF(LESSON_PAIRS); i++)
        if (a->hash[LESSON_PAIRS[i].a] == b->hash[LESSON_PAIRS[i].a] &&
            a->hash[LESSON_PAIRS[i].b] == b->hash[LESSON_PAIRS[i].b])
            sum += LESSON_PAIRS[i].weight;
    return sum;
}

/* ---------------------------------------------------------------- loading */

/* The rows of one metric: traits, the Cholesky factor of their covariance (in units of the prior's variance),
 * and the covariance's inverse times what was observed. */
struct subject {
    char metric[48];
    int n;
    struct lesson_traits *traits;
    double *factor, *alpha, *observed;
    double square; /* observed' inverse observed */
};
struct lessons {
    int n;
    struct subject subject[METRICS_MOST];
};

const char *lessons_basis(const struct machine_ceilings *c, char *buf, size_t size)
{
    const int n = snprintf(buf, size, "%d/%lld", MODEL_REVISION, (long long)c->measured_unix_ms);
    if (c->kernels.measured && n < (int)size)
        snprintf(buf + n, size - (size_t)n, "/kernels/%lld", (long long)c->kernels.measured_unix_ms);
    return buf;
}

static struct subject *subject_of(struct lessons *l, const char *metric, int most)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->subject[i].metric, metric)) return &l->subject[i];
    if (l->n == METRICS_MOST) return NULL;
    struct subject *s = &l->subject[l->n++];
    snprintf(s->metric, sizeof s->metric, "%s", metric);
    s->traits = calloc((size_t)most, sizeof *s->traits);
    s->observed = calloc((size_t)most, sizeof *s->observed);
    return s;
}

static void add_row(struct lessons *l, const struct residual_row *r)
{
    if (!(r->untaught > 0) || !(r->measured > 0) || !isfinite(r->untaught) || !isfinite(r->measured)) return;
    struct subject *s = subject_of(l, r->metric, LESSONS_MOST);
    if (!s || !s->traits || !s->observed || s->n == LESSONS_MOST) return;
    snprintf(s->traits[s->n].text, sizeof s->traits[0].text, "%s", r->traits);
    traits_read(&s->traits[s->n]);
    s->observed[s->n++] = log(r->measured / r->untaught);
}

/* x of L x = y (in place), then with `both` of L' z = x. */
static void solve(const double *factor, int n, double *y, bool both)
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

static bool decompose(double *m, int n)
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

/* Of one measurement, as a share of the prior's variance: of a tenth (sd 0.1), where nothing says more. */
static double noise_of(const struct lesson_traits *t)
{
    const double USUAL_SD = 0.10, sd = t->now.memory_ratio > 0 ? PACED_NOISE_SD : READING_NOISE_SD;
    const double reading = sd * t->reading, own = t->noise;
    const double look = t->now.memory_ratio > 0 ? LOOK_NOISE_PART * log(t->now.memory_ratio) * t->reading : 0;
    return (NOISE_SD * NOISE_SD + reading * reading + look * look + own * own) / (USUAL_SD * USUAL_SD);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* With each row's noise so many times over. */
static enum err_code solve_rows(struct subject *s, const double *doubt, struct err *why)
{
    const size_t n = (size_t)s->n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k <= i; k++)
            s->factor[i * n + k] = in_common(&s->traits[i], &s->traits[k]) +
                                   (i == k ? noise_of(&s->traits[i]) * doubt[i] : 0);
    if (!decompose(s->factor, s->n))
        return err_set(why, ERR_INTERNAL, "what past runs taught contradicts itself");
    memcpy(s->alpha, s->observed, n * sizeof *s->alpha);
    solve(s->factor, s->n, s->alpha, true);
    s->square = 0;
    for (size_t i = 0; i < n; i++) s->square += s->observed[i] * s->alpha[i];
    return ERR_OK;
}

/* Square of how far each row is from what all others say of it, in what they allow for. */
static void surprises(const struct subject *s, const double *doubt, double *out, double *column)
{
    for (int i = 0; i < s->n; i++) {
        memset(column, 0, (size_t)s->n * sizeof *column);
        column[i] = 1;
        solve(s->factor, s->n, column, false);
        double inverse = 0; /* of the covariance, at [i][i] */
        for (int k = i; k < s->n; k++) inverse += column[k] * column[k];
        const double error = s->alpha[i] / inverse,
                     allowed = 1 / inverse - noise_of(&s->traits[i]) * (doubt[i] - 1);
        out[i] = error * error / allowed;
    }
}

/* A look at the machine may meet a moment that the run beside it did not, or the other way round: then a row
 * says what no other does. It counts less the farther it is from them, beyond TWO_SD of what is usual. */
static enum err_code doubt_outliers(struct subject *s, double *doubt, double *square, struct err *why)
{
    enum { STEPS = 4, FEWEST = 5 };
    const double TWO_SD = 4, MEDIAN_OF_ONE = 0.455, LEAST = 1e-8;
    const double IGNORED = 1e6; /* more doubt says no more, and digits would be lost beside it */
    double *sorted = square + s->n;
    enum err_code rc = ERR_OK;
    bool changed = s->n >= FEWEST;
    for (int step = 0; step < STEPS && changed && !rc; step++) {
        surprises(s, doubt, square, sorted);
        memcpy(sorted, square, (size_t)s->n * sizeof *sorted);
        qsort(sorted, (size_t)s->n, sizeof *sorted, by_value);
        const double usual = fmax(sorted[s->n / 2], LEAST) / MEDIAN_OF_ONE;
        changed = false;
        for (int i = 0; i < s->n; i++) {
            const double beyond = fmax(square[i] / usual / TWO_SD, 1), now = fmin(beyond * beyond, IGNORED);
            changed |= now != doubt[i];
            doubt[i] = now;
        }
        if (changed) rc = solve_rows(s, doubt, why);
    }
    return rc;
}

static enum err_code prepare(struct subject *s, struct err *why)
{
    const size_t n = (size_t)s->n;
    double *doubt = malloc(3 * n * sizeof *doubt);
    s->factor = calloc(n * n, sizeof *s->factor);
    s->alpha = calloc(n, sizeof *s->alpha);
    enum err_code rc = ERR_OK;
    if (!s->traits || !s->observed || !s->factor || !s->alpha || !doubt)
        rc = err_set(why, ERR_NOMEM, "no memory for what past runs taught");
    for (size_t i = 0; i < n && !rc; i++) doubt[i] = 1;
    if (!rc) rc = solve_rows(s, doubt, why);
    if (!rc) rc = doubt_outliers(s, doubt, doubt + n, why);
    free(doubt);
    return rc;
}

enum err_code lessons_load(struct lessons **out, struct db *d, const char *machine_id,
                           const struct machine_ceilings *c, struct err *why)
{
    struct residual_row *rows = NULL;
    char basis[64];
    int n = 0;
    *out = NULL;
    struct lessons *l = calloc(1, sizeof *l);
    if (!l) return err_set(why, ERR_NOMEM, "no memory for what past runs taught");
    enum err_code rc = d ? db_residual_list(d, machine_id, lessons_basis(c, basis, sizeof basis),
                                            LESSONS_MOST * METRICS_MOST, &rows, &n, why)
                         : ERR_OK;
    for (int i = 0; i < n && !rc; i++) add_row(l, &rows[i]);
    free(rows);
    for (int i = 0; i < l->n && !rc; i++) rc = prepare(&l->subject[i], why);
    if (rc) {
        lessons_free(l);
        return rc;
    }
    *out = l;
    return ERR_OK;
}

void lessons_free(struct lessons *l)
{
    for (int i = 0; l && i < l->n; i++) {
        free(l->subject[i].traits);
        free(l->subject[i].observed);
        free(l->subject[i].factor);
        free(l->subject[i].alpha);
    }
    free(l);
}

/* ---------------------------------------------------------------- asking */

/* The prior says how large errors are; so do the errors that were seen. Its word counts as four of theirs. */
static double scale_of(const struct subject *s, double variance)
{
    const double PRIOR = 4;
    return (PRIOR * variance + s->square) / (PRIOR + s->n);
}

struct estimate lessons_correct(const struct lessons *l, const char *metric, const struct lesson_traits *t,
                                double untaught, double sd)
{
    struct estimate e = { untaught, untaught * exp(-NINE_IN_TEN * sd), untaught * exp(NINE_IN_TEN * sd), 0 };
    const struct subject *s = NULL;
    for (int i = 0; l && i < l->n; i++)
        if (!strcmp(l->subject[i].metric, metric)) s = &l->subject[i];
    if (!s || isnan(untaught)) return e;
    double shared[LESSONS_MOST], mean = 0, explained = 0;
    for (int i = 0; i < s->n; i++) {
        shared[i] = in_common(t, &s->traits[i]);
        mean += shared[i] * s->alpha[i];
    }
    solve(s->factor, s->n, shared, false);
    for (int i = 0; i < s->n; i++) explained += shared[i] * shared[i];
    const double left = fmax(in_common(t, t) - explained, 0) + noise_of(t);
    const double spread = NINE_IN_TEN * sqrt(left * scale_of(s, sd * sd));
    e.value = untaught * exp(mean);
    e.low = e.value * exp(-spread);
    e.high = e.value * exp(spread);
    e.runs = s->n;
    return e;
}

/* ---------------------------------------------------------------- how good predictions were */

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
            qsort(errors, (size_t)m, sizeof *errors, by_value);
            out[k].median_error = m % 2 ? errors[m / 2] : 0.5 * (errors[m / 2 - 1] + errors[m / 2]);
        }
    }
    free(errors);
    return count;
}
