/* Choose the kernels of matrix products by measurement (COMPILE_AUTOTUNE). The fixed rule of matmul.c has one
 * threshold for each kernel; where the fastest kernel changes really depends on the format, the shape of the
 * matrix, the processor and the number of threads.
 *
 * Text of the choices, one line for each combination of kernel set and settings (autotune_put_key):
 *
 *   KEY <tab> FORMAT.ROWSxCOLS:N=KERNEL,N=KERNEL;FORMAT.ROWSxCOLS: ...
 *
 * A matrix without any N=KERNEL was measured, too: the fixed rule is the fastest everywhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/inputs.h"

/* Measured numbers of rows. A number between two of them uses the larger one's choice. */
static const int POINTS[TUNED_POINTS] = { 2, 3, 4, 6, 8, 12, 16, 24, 32, TUNED_ROWS };
static const char GEMV_NAME[] = "gemv";

enum {
    TUNED_MAX = 1024,       /* most entries that are read from a text */
    NAME_MAX_BYTES = 32,    /* of a format or kernel in a text */
    SIZE_MAX_ROWS = 1 << 30 /* of a matrix in a text */
};

/* ---------------------------------------------------------------- the table */

static int point_of(int n)
{
    int i = 0;
    while (i < TUNED_POINTS && POINTS[i] < n) i++;
    return i;
}

static bool is_for(const struct tuned *t, const struct weight *w)
{
    return t->format == w->format && t->rows == w->rows && t->cols == w->cols;
}

int autotune_find(const struct cpu *b, const struct backend_options *o, const struct weight *w)
{
    if (!b->tuned_count || inputs_scheme(o, w).kind != INPUT_FREE) return 0;
    for (int i = 0; i < b->tuned_count; i++)
        if (is_for(&b->tuned[i], w)) return i + 1;
    return 0;
}

bool autotune_choice(const struct cpu *b, const struct weight *w, int n, const struct gemm_kernel **out)
{
    const int i = point_of(n);
    if (n < POINTS[0] || i == TUNED_POINTS) return false;
    const struct tuned *t = &b->tuned[w->tuned - 1];
    *out = t->kernel[i];
    return t->chosen[i];
}

static enum err_code table_add(struct cpu *b, const struct tuned *t, struct err *why)
{
    struct tuned *more = realloc(b->tuned, (size_t)(b->tuned_count + 1) * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory for the choices of kernels");
    b->tuned = more;
    b->tuned[b->tuned_count++] = *t;
    return ERR_OK;
}

/* ---------------------------------------------------------------- the text */

static void autotune_put_key(struct str *out, const struct cpu *b, const struct backend_options *o)
{
    char names[128];
    str_printf(out, "cpu|%s|threads=%d|precision=%d|act=%d", isa_names(b->k.isa, names, sizeof names),
               o->threads, (int)o->precision, (int)o->activations);
}

static void autotune_put_line(struct str *out, const struct cpu *b)
{
    autotune_put_key(out, b, &b->base.options);
    for (int i = 0; i < b->tuned_count; i++) {
        const struct tuned *t = &b->tuned[i];
        const char *sep = "";
        str_printf(out, "%s%s.%lldx%lld:", i ? ";" : "\t", t->format->name, (long long)t->rows,
                   (long long)t->cols);
        for (int p = 0; p < TUNED_POINTS; p++) {
            if (!t->chosen[p]) continue;
            str_printf(out, "%s%d=%s", sep, POINTS[p], t->kernel[p] ? t->kernel[p]->name : GEMV_NAME);
            sep = ",";
        }
    }
}

/* Whether GEMV can be chosen there: scratch memory is reserved for so many rows. */
static bool gemv_is_allowed(int point)
{
    return POINTS[point] <= TUNED_GEMV_ROWS;
}

/* Enter "N=KERNEL"; false when it is not a choice that could have been measured. */
static bool choice_read(struct tuned *t, const struct cpu *b, const struct backend_options *o,
                        const char *text, size_t n)
{
    struct matmul_candidate all[CANDIDATES_MAX];
    char pair[2 * NAME_MAX_BYTES], *end;
    if (n >= sizeof pair) return false;
    memcpy(pair, text, n);
    pair[n] = 0;
    const long rows = strtol(pair, &end, 10);
    const int point = rows >= POINTS[0] && rows <= TUNED_ROWS ? point_of((int)rows) : TUNED_POINTS;
    if (*end != '=' || point == TUNED_POINTS || POINTS[point] != rows || t->chosen[point]) return false;
    const char *name = end + 1;
    const int count = matmul_candidates(&b->k, o, t->format, INPUT_FREE, all);
    t->chosen[point] = gemv_is_allowed(point) && !strcmp(name, GEMV_NAME);
    for (int i = 0; i < count && !t->chosen[point]; i++)
        if (!strcmp(all[i].kernel->name, name)) {
            t->chosen[point] = true;
            t->kernel[point] = all[i].kernel;
        }
    return t->chosen[point];
}

/* Read "FORMAT.ROWSxCOLS:..." of n bytes; false when it is damaged or from another build. */
static bool tuned_read(struct tuned *out, const struct cpu *b, const struct backend_options *o,
                       const char *text, size_t n)
{
    const char *const end = text + n, *colon = memchr(text, ':', n);
    char head[3 * NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    long long rows, cols;
    int used = 0;
    if (!colon || (size_t)(colon - text) >= sizeof head) return false;
    snprintf(head, sizeof head, "%.*s", (int)(colon - text), text);
    if (sscanf(head, "%31[^.].%9lldx%9lld%n", name, &rows, &cols, &used) != 3 || head[used]) return false;
    *out = (struct tuned){ .format = format_find(name), .rows = rows, .cols = cols };
    if (!out->format || rows < 1 || cols < 1 || rows > SIZE_MAX_ROWS || cols > SIZE_MAX_ROWS) return false;
    for (const char *p = colon + 1; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        if (!choice_read(out, b, o, p, (size_t)(stop - p))) return false;
        p = stop + (comma != NULL);
    }
    return true;
}

enum err_code autotune_read(struct cpu *b, const struct backend_options *o, struct err *why)
{
    struct str key = { 0 };
    enum err_code rc = ERR_OK;
    if (!cpu_tunes(o)) return ERR_OK;
    autotune_put_key(&key, b, o);
    const char *p = shapes_find_line(o->shapes, str_text(&key));
    while (p && *p && *p != '\n' && b->tuned_count < TUNED_MAX && !rc) {
        struct tuned t;
        const size_t n = strcspn(p, ";\n");
        if (tuned_read(&t, b, o, p, n)) rc = table_add(b, &t, why);
        p += n + (p[n] == ';');
    }
    str_free(&key);
    return rc;
}

/* ---------------------------------------------------------------- measuring */

enum {
    ROUNDS = 5,       /* that count; one more before them warms the caches and finds repetitions */
    DUEL_ROUNDS = 15, /* between the fastest and the fixed rule's */
    DUEL_WINS = 12,
    VIEWS = 8,              /* different weights that one kernel after the other is run with */
    VIEW_WEIGHTS = 8 << 20, /* most weights of a view: a part of a large matrix costs the same per weight */
    VIEW_ROWS = 16384,      /* most rows of a view */
    LEAST_NS = 100000,      /* least time of a measurement: short products are repeated */
    REPEATS_MAX = 50,
    HOPELESS = 3, /* a kernel this many times slower than the fastest is measured no more */
};
static const double WORTHWHILE = 0.97; /* a kernel must need at most this share of the fixed rule's time */

struct tuning {
    struct cpu *b;
    struct weight view[VIEWS];
    int views, turn;
    const float *x; /* [TUNED_ROWS][cols] */
    float *y;       /* [TUNED_ROWS][view rows] */
};

/* One way to compute a product, and its best time. */
struct contender {
    const struct gemm_kernel *kernel; /* NULL: GEMV */
    double best_ns;
    int repeats; /* 0: it was too slow */
};

static int64_t view_rows(const struct weight *w)
{
    const int64_t most = MIN(MAX(VIEW_WEIGHTS / w->cols, (int64_t)64), (int64_t)VIEW_ROWS);
    return MIN(w->rows, most / 16 * 16);
}

/* Parts of the matrices, as different as possible, so that weights come from memory as in a forward pass. */
static void tuning_place_views(struct tuning *t, struct weight *const *same, int count)
{
    const int64_t rows = view_rows(same[0]), parts = same[0]->rows / rows;
    t->views = (int)MIN((int64_t)VIEWS, count * parts);
    for (int i = 0; i < t->views; i++) {
        struct weight *v = &t->view[i];
        *v = *same[i % count];
        v->data = (const char *)v->data + i / count * rows * format_row_bytes(v->format, v->cols);
        v->rows = rows;
    }
}

static double product_ns(struct tuning *t, const struct contender *c, int n)
{
    const int repeats = MAX(c->repeats, 1);
    const int64_t from = clock_ns();
    for (int i = 0; i < repeats; i++) {
        const struct weight *w = &t->view[t->turn++ % t->views];
        const struct matmul m = {
            .w = w, .x = t->x, .x_stride = w->cols, .n = n, .y = t->y, .y_stride = w->rows
        };
        if (c->kernel)
            gemm_run(t->b, c->kernel, &m, 1);
        else
            gemv_run(t->b, &m, 1);
    }
    return (double)(clock_ns() - from) / repeats;
}

/* The first round: every contender once, to find how often to repeat it, and whether it is hopeless. */
static void contenders_warm(struct tuning *t, struct contender *c, int count, int n)
{
    double least = INFINITY, ns[CANDIDATES_MAX + 1];
    for (int i = 0; i < count; i++) {
        product_ns(t, &c[i], n); /* into the caches, and for the threads to wake */
        ns[i] = product_ns(t, &c[i], n);
        least = MIN(least, ns[i]);
    }
    for (int i = 0; i < count; i++) {
        const double wanted = LEAST_NS / MAX(ns[i], 1.0);
        c[i].repeats = i && ns[i] > HOPELESS * least ? 0 : 1 + (int)MIN(wanted, (double)REPEATS_MAX);
    }
}

/* Whether a kernel that was the fastest once is really worthwhile. Another program that takes the processor
 * for a moment can spoil all rounds of one kernel, so it must win most rounds of a second series, too. */
static bool contender_is_confirmed(struct tuning *t, struct contender *rule, struct contender *other, int n)
{
    int won = 0;
    for (int round = 0; round < DUEL_ROUNDS; round++) {
        const double by_rule = product_ns(t, rule, n), by_other = product_ns(t, other, n);
        rule->best_ns = MIN(rule->best_ns, by_rule);
        other->best_ns = MIN(other->best_ns, by_other);
        won += by_other <= WORTHWHILE * by_rule;
    }
    return won >= DUEL_WINS && other->best_ns <= WORTHWHILE * rule->best_ns;
}

/* Measure n rows; contender 0 is the fixed rule's kernel. Returns the one to use. */
static int contenders_compare(struct tuning *t, struct contender *c, int count, int n)
{
    int best = 0;
    contenders_warm(t, c, count, n);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++)
            if (c[i].repeats) c[i].best_ns = MIN(c[i].best_ns, product_ns(t, &c[i], n));
    for (int i = 1; i < count; i++)
        if (c[i].best_ns < c[best].best_ns) best = i;
    const bool worthwhile = best && c[best].best_ns <= WORTHWHILE * c[0].best_ns;
    return worthwhile && contender_is_confirmed(t, &c[0], &c[best], n) ? best : 0;
}

static void tuning_run(struct tuning *t, struct tuned *out)
{
    struct cpu *b = t->b;
    const struct backend_options *o = &b->base.options;
    struct matmul_candidate all[CANDIDATES_MAX];
    const int candidates = matmul_candidates(&b->k, o, out->format, INPUT_FREE, all);
    for (int p = 0; p < TUNED_POINTS; p++) {
        struct contender c[CANDIDATES_MAX + 2] = { 0 };
        int count = 0;
        c[count++].kernel = matmul_scheme(&b->k, o, out->format, INPUT_FREE, POINTS[p]);
        if (c[0].kernel && gemv_is_allowed(p)) c[count++].kernel = NULL;
        for (int i = 0; i < candidates; i++)
            if (all[i].kernel != c[0].kernel) c[count++].kernel = all[i].kernel;
        for (int i = 0; i < count; i++) c[i].best_ns = INFINITY;
        const int best = count > 1 ? contenders_compare(t, c, count, POINTS[p]) : 0;
        out->chosen[p] = best > 0;
        out->kernel[p] = c[best].kernel;
    }
}

/* Measure matrices that are alike; `same` are `count` of them. */
static enum err_code tune_alike(struct cpu *b, struct weight *const *same, int count, struct err *why)
{
    const struct weight *w = same[0];
    struct tuning t = { .b = b };
    struct tuned found = { .format = w->format, .rows = w->rows, .cols = w->cols };
    const int64_t xs = TUNED_ROWS * w->cols, ys = TUNED_ROWS * view_rows(w);
    float *x = backend_alloc(&b->base, (size_t)(xs + ys) * sizeof *x);
    if (!x) return err_set(why, ERR_NOMEM, "out of memory to measure products of %lld rows", (long long)ys);
    for (int64_t i = 0; i < xs; i++) x[i] = (float)(i * 7919 % 2003) / 1001.5F - 1; /* any numbers */
    t.x = x;
    t.y = x + xs;
    tuning_place_views(&t, same, count);
    tuning_run(&t, &found);
    backend_free(&b->base, x);
    return table_add(b, &found, why);
}

enum err_code cpu_autotune(struct backend *base, struct weight *const *weights, int count,
                           bool (*progress)(void *ctx, int done, int of), void *ctx, struct autotuned *out,
                           struct err *why)
{
    struct cpu *b = (struct cpu *)base;
    const int64_t from = clock_ns();
    enum err_code rc = ERR_OK;
    for (int i = 0; i < count && cpu_tunes(&base->options) && !rc; i++) {
        struct weight *w = weights[i], *same[VIEWS];
        int alike = 0;
        if (!w->tuned) w->tuned = autotune_find(b, &base->options, w);
        if (w->tuned || inputs_scheme(&base->options, w).kind != INPUT_FREE) continue;
        const struct tuned key = { .format = w->format, .rows = w->rows, .cols = w->cols };
        for (int j = i; j < count && alike < VIEWS; j++)
            if (is_for(&key, weights[j])) same[alike++] = weights[j];
        if (progress && !progress(ctx, i, count)) return err_set(why, ERR_CANCELLED, "cancelled");
        rc = tune_alike(b, same, alike, why);
        if (!rc) w->tuned = b->tuned_count;
        out->measured += !rc;
    }
    if (rc || !out->measured) return rc;
    struct str line = { 0 };
    autotune_put_line(&line, b);
    out->text = str_take(&line);
    str_free(&line);
    out->seconds = (double)(clock_ns() - from) * 1e-9;
    return out->text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the choices of kernels");
}
