/* Proves: row_scores and row_values agree with sums in binary64 for every cache format, instruction set, head
 * size, and number of queries and rows; a result has the same bits whatever else is computed by the call, and
 * those of the f32 kernels with the decoded rows; nothing outside the rows is read (a page behind them is
 * unreadable), and no result outside those of the call is written. */
#include "kernels/kernel_set.h"
#include "tests/kernels/numbers.h"

enum { QUERIES = 17, ROWS = 37, DIM_MAX = 576, STRIDE = 64 };

static const int DIMS[] = { 32, 64, 96, 128, 160, 256, 576 };
static const int COUNTS[][2] = { { 1, 1 }, { 2, 3 }, { 3, 4 },  { 4, 16 },  { 4, 37 },
                                 { 5, 2 }, { 6, 9 }, { 8, 32 }, { 15, 17 }, { 17, 33 } }; /* queries, rows */

/* Numbers of one format and head size, and the results of all queries and rows one by one. */
struct numbers {
    const struct format *f;
    int dim;
    uint8_t *rows;
    float q[QUERIES * DIM_MAX], decoded[ROWS * DIM_MAX], weights[QUERIES * STRIDE], before[QUERIES * DIM_MAX];
};

static void numbers_make(struct numbers *d, const struct format *f, int dim, struct rng *r)
{
    static float x[ROWS * DIM_MAX];
    const int64_t row_bytes = format_row_bytes(f, dim);
    *d = (struct numbers){ .f = f, .dim = dim, .rows = guarded((size_t)(row_bytes * ROWS), 0) };
    fill_gauss(r, x, (int64_t)ROWS * dim, 1);
    fill_gauss(r, d->q, (int64_t)QUERIES * dim, 1);
    fill_gauss(r, d->before, (int64_t)QUERIES * dim, 1);
    for (int i = 0; i < QUERIES * STRIDE; i++) d->weights[i] = (float)fabs(rng_gauss(r, 1));
    for (int i = 0; i < ROWS; i++) { /* without the scale of a row, as the kernels leave it out */
        f->encode(x + i * dim, d->rows + i * row_bytes, dim);
        f->decode(d->rows + i * row_bytes, d->decoded + i * dim, dim);
        float scale = 1;
        if (f->row_tail_bytes) memcpy(&scale, d->rows + (i + 1) * row_bytes - 4, sizeof scale);
        for (int k = 0; k < dim; k++) d->decoded[i * dim + k] /= scale;
    }
}

/* The last n rows, with the last `queries` queries. */
static struct cached_rows last_of(const struct numbers *d, int queries, int n, float *s, float *o)
{
    const int64_t row_bytes = format_row_bytes(d->f, d->dim);
    return (struct cached_rows){ .rows = d->rows + (ROWS - n) * row_bytes,
                                 .row_bytes = row_bytes,
                                 .n = n,
                                 .dim = d->dim,
                                 .queries = queries,
                                 .next = d->rows,
                                 .q = d->q + (QUERIES - queries) * d->dim,
                                 .s = s,
                                 .s_stride = STRIDE,
                                 .o = o };
}

static void check_scores(const struct numbers *d, cached_rows_fn *scores, int queries, int n)
{
    static float s[(QUERIES + 1) * STRIDE], one[STRIDE];
    for (int i = 0; i < (QUERIES + 1) * STRIDE; i++) s[i] = 777;
    const struct cached_rows all = last_of(d, queries, n, s, NULL);
    scores(&all);
    for (int j = 0; j < queries; j++)
        for (int i = 0; i < STRIDE; i++) {
            const float got = s[j * STRIDE + i], *x = all.q + j * d->dim;
            if (i >= n) {
                CHECK_EQ(got, 777);
                continue;
            }
            const float *row = d->decoded + (ROWS - n + i) * d->dim;
            double want = 0, size = 0;
            for (int k = 0; k < d->dim; k++)
                want += (double)x[k] * row[k], size += fabs((double)x[k] * row[k]);
            CHECK_LE(fabs(got - want), 1e-6 * size);
            struct cached_rows single = all;
            single.rows += i * all.row_bytes, single.n = single.queries = 1, single.q = x, single.s = one;
            scores(&single);
            CHECK_EQ(memcmp(&got, one, sizeof got), 0);
        }
    CHECK_EQ(s[queries * STRIDE], 777);
}

static void check_values(const struct numbers *d, cached_rows_fn *values, int queries, int n)
{
    static float o[(QUERIES + 1) * DIM_MAX], one[DIM_MAX];
    for (int i = 0; i < (QUERIES + 1) * DIM_MAX; i++) o[i] = 777;
    memcpy(o, d->before, (size_t)(queries * d->dim) * sizeof *o);
    struct cached_rows all = last_of(d, queries, n, (float *)d->weights, o);
    values(&all);
    for (int j = 0; j < queries; j++) {
        struct cached_rows single = all;
        single.queries = 1, single.s = all.s + j * STRIDE, single.o = one;
        memcpy(one, d->before + j * d->dim, (size_t)d->dim * sizeof *one);
        for (int i = 0; i < n; i++) { /* row by row: the sums continue */
            single.rows = all.rows + i * all.row_bytes, single.n = 1, single.s = all.s + j * STRIDE + i;
            values(&single);
        }
        CHECK_EQ(memcmp(o + j * d->dim, one, (size_t)d->dim * sizeof *one), 0);
        for (int k = 0; k < d->dim; k++) {
            double want = d->before[j * d->dim + k], size = fabs(want);
            for (int i = 0; i < n; i++) {
                const double term = (double)all.s[j * STRIDE + i] * d->decoded[(ROWS - n + i) * d->dim + k];
                want += term, size += fabs(term);
            }
            CHECK_LE(fabs(o[j * d->dim + k] - want), 1e-6 * size);
        }
    }
    CHECK_EQ(o[queries * d->dim], 777);
}

/* The kernels of the format compute what those of f32 compute from the decoded rows. */
static void check_f32(const struct numbers *d, const struct kernel_set *k)
{
    static float s[2][QUERIES * STRIDE], o[2][QUERIES * DIM_MAX], x[ROWS * DIM_MAX];
    const struct format_kernels *f[2] = { &k->format[d->f - FORMATS], &k->format[FORMAT_F32] };
    for (int i = 0; i < ROWS; i++)
        f[0]->decode(d->rows + i * format_row_bytes(d->f, d->dim), x + i * d->dim, d->dim);
    for (int i = 0; i < 2; i++) {
        struct cached_rows r = last_of(d, QUERIES, ROWS, s[i], o[i]);
        if (i) r.rows = (const uint8_t *)x, r.row_bytes = d->dim * (int64_t)sizeof *x, r.next = NULL;
        f[i]->row_scores(&r);
        memcpy(o[i], d->before, sizeof o[i]);
        f[i]->row_values(&r);
    }
    CHECK_EQ(memcmp(s[0], s[1], sizeof s[0]), 0);
    CHECK_EQ(memcmp(o[0], o[1], sizeof o[0]), 0);
}

static void formats(void **state)
{
    (void)state;
    static struct numbers d;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 11 };
    int tested = 0;
    for (size_t l = 0; l < count; l++) {
        const int before = tested;
        const struct kernel_set k = kernels_select(levels[l]->bits);
        for (int f = 0; f < FORMAT_COUNT; f++)
            for (size_t i = 0; k.format[f].row_scores && i < COUNT_OF(DIMS); i++) {
                numbers_make(&d, &FORMATS[f], DIMS[i], &r);
                for (size_t c = 0; c < COUNT_OF(COUNTS); c++) {
                    check_scores(&d, k.format[f].row_scores, COUNTS[c][0], COUNTS[c][1]);
                    check_values(&d, k.format[f].row_values, COUNTS[c][0], COUNTS[c][1]);
                }
                check_f32(&d, &k);
                guarded_free(d.rows, (size_t)(format_row_bytes(d.f, d.dim) * ROWS), 0);
                tested++;
            }
        /* All cache formats have them from AVX2 on. */
        if (levels[l]->bits & ISA_AVX2) CHECK_GE(tested - before, 7 * (int)COUNT_OF(DIMS));
    }
    if (!tested) skip(); /* no level here has such kernels */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(formats) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
