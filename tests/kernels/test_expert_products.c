/* Proves: the grouped products of experts agree with a product of its own for each expert, an activation and
 * a weighted sum, on every instruction set, for formats with and without integer kernels, whatever the
 * numbers of rows: none, one, few, more than a pass of a GEMM; with rows longer than a panel in the first and
 * in the second product, biases, joined matrices, an activation without a second matrix, inputs of their own
 * for each pair, sums that are added or not; with batch_invariant, a row has the same bits alone and in every
 * batch, with any number of threads. */
#include "tests/kernels/numbers.h"

enum {
    EXPERTS = 9,
    USED = 3,
    MOST = 300,
    COLS = 2304,
    FF = 256,
    LONG_FF = 2304,
    OUT = 72,
    SHORT = 256,
    PAIRS = MOST * USED
};

/* The matrices of a layer in one format, and the rows of a batch. */
struct layer {
    const struct format *f;
    int64_t cols, ff;       /* at most COLS, LONG_FF */
    void *gate, *up, *down; /* joined: gate has 2 ff rows for each expert */
    struct weight gates[EXPERTS], ups[EXPERTS], joined[EXPERTS], downs[EXPERTS];
    float gate_bias[EXPERTS * LONG_FF], up_bias[EXPERTS * LONG_FF], down_bias[EXPERTS * OUT];
};

static struct layer layer;
static float x[MOST * COLS];
static int32_t chosen[MOST][USED];
static float weight[MOST][USED];

static void *encoded(struct rng *r, const struct format *f, int64_t rows, int64_t cols)
{
    float *w = malloc((size_t)(rows * cols) * sizeof *w);
    void *out = malloc((size_t)(rows * format_row_bytes(f, cols)));
    fill_gauss(r, w, rows * cols, 0.05);
    format_encode_rows(f, w, out, rows, cols);
    free(w);
    return out;
}

static void layer_make(struct layer *l, const struct format *f, int64_t cols, int64_t ff)
{
    struct rng r = { 3 };
    l->ff = ff;
    *l = (struct layer){ .f = f,
                         .cols = cols,
                         .ff = ff,
                         .gate = encoded(&r, f, EXPERTS * 2 * l->ff, cols),
                         .up = encoded(&r, f, EXPERTS * l->ff, cols),
                         .down = encoded(&r, f, EXPERTS * OUT, l->ff) };
    fill_gauss(&r, l->gate_bias, EXPERTS * l->ff, 0.1);
    fill_gauss(&r, l->up_bias, EXPERTS * l->ff, 0.1);
    fill_gauss(&r, l->down_bias, EXPERTS * OUT, 0.1);
}

static void layer_free(struct layer *l)
{
    free(l->gate);
    free(l->up);
    free(l->down);
}

static void bind(struct backend *b, struct weight out[EXPERTS], const struct layer *l, const void *at,
                 int64_t rows, int64_t step, int64_t cols)
{
    struct err why;
    for (int e = 0; e < EXPERTS; e++)
        CHECK_OK(backend_weight_bind(b, &out[e], l->f, rows, cols, NULL,
                                     (const char *)at + e * step * format_row_bytes(l->f, cols), &why));
}

static void layer_bind(struct backend *b, struct layer *l)
{
    bind(b, l->gates, l, l->gate, l->ff, 2 * l->ff, l->cols);
    bind(b, l->joined, l, l->gate, 2 * l->ff, 2 * l->ff, l->cols);
    bind(b, l->ups, l, l->up, l->ff, l->ff, l->cols);
    bind(b, l->downs, l, l->down, OUT, OUT, l->ff);
}

/* Every row chooses different experts; the first expert is chosen by most rows, the last one by none. */
static void choose(void)
{
    struct rng r = { 17 };
    fill_gauss(&r, x, MOST * COLS, 1);
    for (int i = 0; i < MOST; i++) {
        chosen[i][0] = rng_below(&r, 8) ? 0 : 1;
        chosen[i][1] = 2 + rng_below(&r, 2);
        chosen[i][2] = 4 + rng_below(&r, rng_below(&r, 10) ? 1 : EXPERTS - 5);
        for (int j = 0; j < USED; j++) weight[i][j] = 0.1F + 0.01F * (float)rng_below(&r, 50);
    }
}

/* Rows [from, from + n) sorted by expert. */
struct sorted {
    int32_t first[EXPERTS + 1], row[PAIRS];
    float weight[PAIRS];
};

static void sort_rows(struct sorted *s, int from, int n)
{
    int pair = 0;
    for (int e = 0; e < EXPERTS; e++) {
        s->first[e] = pair;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < USED; j++)
                if (chosen[from + i][j] == e) s->row[pair] = i, s->weight[pair++] = weight[from + i][j];
    }
    s->first[EXPERTS] = pair;
    assert_int_equal(pair, n * USED);
}

/* What the operations can be asked for. */
struct kind {
    const char *name;
    bool joined, single, by_pair, biases, add;
    enum activation act;
};
static const struct kind KINDS[] = {
    { .name = "plain", .act = ACT_SILU },
    { .name = "biases", .biases = true, .add = true, .act = ACT_SWIGLU_CLIPPED },
    { .name = "joined", .joined = true, .act = ACT_GELU_TANH },
    { .name = "single", .single = true, .act = ACT_RELU_SQUARED },
    { .name = "by pair", .by_pair = true, .act = ACT_SILU },
};

static float up_grouped[PAIRS * 2 * LONG_FF], up_apart[PAIRS * 2 * LONG_FF], copies[PAIRS * COLS],
    outputs[PAIRS * OUT];

static void run_grouped(struct backend *b, const struct layer *l, const struct kind *k, int from, int n,
                        float *y)
{
    static struct sorted s;
    sort_rows(&s, from, n);
    const struct expert_rows to = { .experts = EXPERTS, .first = s.first, .row = s.row, .rows = n };
    const struct weight *up = k->joined || k->single ? NULL : l->ups;
    const float *input = x + from * l->cols;
    for (int i = 0; k->by_pair && i < n * USED; i++)
        memcpy(copies + i * l->cols, input + s.row[i] * l->cols, (size_t)l->cols * sizeof *copies);
    assert_true(backend_groups_experts(b, k->joined ? l->joined : l->gates, up, l->downs, EXPERTS));
    backend_expert_up(b, &(struct expert_up){ .to = &to,
                                              .gate = k->joined ? l->joined : l->gates,
                                              .up = up,
                                              .joined = k->joined,
                                              .gate_bias = k->biases ? l->gate_bias : NULL,
                                              .up_bias = k->biases ? l->up_bias : NULL,
                                              .x = k->by_pair ? copies : input,
                                              .x_stride = l->cols,
                                              .by_pair = k->by_pair,
                                              .act = k->act,
                                              .y = up_grouped,
                                              .y_stride = 2 * l->ff });
    backend_expert_down(b, &(struct expert_down){ .to = &to,
                                                  .weight = s.weight,
                                                  .down = l->downs,
                                                  .bias = k->biases ? l->down_bias : NULL,
                                                  .x = up_grouped,
                                                  .x_stride = 2 * l->ff,
                                                  .y = y,
                                                  .y_stride = OUT,
                                                  .add = k->add });
}

/* The same with the operations that other backends have. */
static void run_apart(struct backend *b, const struct layer *l, const struct kind *k, int n, float *y)
{
    static struct sorted s;
    sort_rows(&s, 0, n);
    for (int i = 0; i < n * USED; i++)
        memcpy(copies + i * l->cols, x + s.row[i] * l->cols, (size_t)l->cols * sizeof *copies);
    for (int e = 0; e < EXPERTS; e++) {
        const int at = s.first[e], count = s.first[e + 1] - at;
        struct matmul m = { .w = &l->gates[e],
                            .x = copies + at * l->cols,
                            .x_stride = l->cols,
                            .n = count,
                            .bias = k->biases ? l->gate_bias + e * l->ff : NULL,
                            .y = up_apart + at * 2 * l->ff,
                            .y_stride = 2 * l->ff };
        struct weight second = l->joined[e]; /* joined: the lower half of the matrix */
        second.rows = l->ff;
        second.data = (const char *)second.data + l->ff * format_row_bytes(l->f, l->cols);
        backend_matmul(b, &m, 1);
        m.w = k->joined ? &second : &l->ups[e];
        m.bias = k->biases ? l->up_bias + e * l->ff : NULL;
        m.y += l->ff;
        if (!k->single) backend_matmul(b, &m, 1);
    }
    backend_activate(b, &(struct activate){ .act = k->act,
                                            .gate = up_apart,
                                            .up = k->single ? NULL : up_apart + l->ff,
                                            .stride = 2 * l->ff,
                                            .n = n * USED,
                                            .cols = l->ff,
                                            .y = up_apart,
                                            .y_stride = 2 * l->ff });
    for (int e = 0; e < EXPERTS; e++) {
        const int at = s.first[e];
        backend_matmul(b,
                       &(struct matmul){ .w = &l->downs[e],
                                         .x = up_apart + at * 2 * l->ff,
                                         .x_stride = 2 * l->ff,
                                         .n = s.first[e + 1] - at,
                                         .bias = k->biases ? l->down_bias + e * OUT : NULL,
                                         .y = outputs + at * OUT,
                                         .y_stride = OUT },
                       1);
    }
    for (int i = 0; !k->add && i < n * OUT; i++) y[i] = 0;
    for (int i = 0; i < n * USED; i++)
        for (int c = 0; c < OUT; c++) y[s.row[i] * OUT + c] += s.weight[i] * outputs[i * OUT + c];
}

static struct backend *backend_of(const struct isa_level *level, enum precision precision, int threads,
                                  bool invariant)
{
    struct err why;
    struct backend *b;
    const struct backend_options o = {
        .threads = threads, .isa = level->bits, .precision = precision, .batch_invariant = invariant
    };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = MOST, .cols = COLS, .pairs = PAIRS }, &why));
    return b;
}

static const enum format_id IDS[] = { FORMAT_F32, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_MXFP4, FORMAT_BF16 };
static float want[MOST * OUT], got[MOST * OUT];

static void check_agrees(struct backend *b, const struct kind *k, int n, const char *level)
{
    for (int j = 0; j < n * OUT; j++) want[j] = got[j] = (float)(j % 7);
    run_apart(b, &layer, k, n, want);
    run_grouped(b, &layer, k, 0, n, got);
    const double d = nmse(want, got, n * OUT);
    /* the same kernels; sums in another order; integer kernels round inputs that differ so */
    if (!(d <= 1e-6))
        fail_msg("%s, %s, %s, rows of %d and %d, %d rows: NMSE %g", layer.f->name, level, k->name,
                 (int)layer.cols, (int)layer.ff, n, d);
}

static void check_level(const struct isa_level *level, int threads)
{
    static const int ROWS[] = { 1, 7, 40 };
    struct backend *b = backend_of(level, PRECISION_MEDIUM, threads, false);
    layer_bind(b, &layer);
    if (layer.cols == SHORT && layer.ff == FF) {
        for (size_t k = 0; k < COUNT_OF(KINDS); k++)
            for (size_t n = 0; n < COUNT_OF(ROWS); n++) check_agrees(b, &KINDS[k], ROWS[n], level->name);
        check_agrees(b, &KINDS[0], MOST, level->name);
    } else {
        check_agrees(b, &KINDS[1], 1, level->name);
        check_agrees(b, &KINDS[1], 90, level->name);
    }
    backend_close(b);
}

static void agrees(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    choose();
    for (size_t f = 0; f < COUNT_OF(IDS); f++) {
        layer_make(&layer, &FORMATS[IDS[f]], SHORT, FF);
        for (size_t i = 0; i < count; i++) check_level(levels[i], 1 + (int)(f + i) % 3);
        layer_free(&layer);
    }
    layer_make(&layer, &FORMATS[FORMAT_MXFP4], COLS, FF);
    for (size_t i = 0; i < count; i++) check_level(levels[i], 2);
    layer_free(&layer);
    /* down matrices with more columns than a pass of any kernel */
    for (size_t f = 0; f < COUNT_OF(IDS); f++) {
        layer_make(&layer, &FORMATS[IDS[f]], SHORT, LONG_FF);
        for (size_t i = 0; i < count; i++) check_level(levels[i], 2);
        layer_free(&layer);
    }
}

static void check_invariant(const struct isa_level *level)
{
    enum { ROWS = 70 };
    struct rng r = { 5 };
    for (int batch = 0; batch < 3; batch++) {
        struct backend *b = backend_of(level, PRECISION_MEDIUM, 1 + batch % 3, true);
        layer_bind(b, &layer);
        float *y = batch ? got : want;
        for (int from = 0, n; from < ROWS; from += n) {
            n = batch ? MIN(1 + rng_below(&r, 60), ROWS - from) : 1;
            run_grouped(b, &layer, &KINDS[0], from, n, y + from * OUT);
        }
        if (memcmp(want, y, (size_t)ROWS * OUT * sizeof *y))
            fail_msg("%s, %s: other bits in batch %d", layer.f->name, level->name, batch);
        backend_close(b);
    }
}

static void invariant(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    choose();
    for (size_t f = 0; f < COUNT_OF(IDS); f++) {
        layer_make(&layer, &FORMATS[IDS[f]], SHORT, FF);
        for (size_t i = 0; i < count; i++) check_invariant(levels[i]);
        layer_free(&layer);
    }
}

/* Experts in different formats are products of their own. */
static void refused(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    struct backend *b = backend_of(levels[levels_here(levels) - 1], PRECISION_MEDIUM, 1, false);
    layer_make(&layer, &FORMATS[FORMAT_Q8_0], SHORT, FF);
    layer_bind(b, &layer);
    assert_true(backend_groups_experts(b, layer.gates, layer.ups, layer.downs, EXPERTS));
    layer.ups[3].format = &FORMATS[FORMAT_Q4_0];
    assert_false(backend_groups_experts(b, layer.gates, layer.ups, layer.downs, EXPERTS));
    layer_free(&layer);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(agrees), cmocka_unit_test(invariant),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
