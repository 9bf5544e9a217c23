/* Proves, for a backend with batch_invariant: a row of a product, of a gated pair and of an activation has
 * the same bits alone, in every batch and with any number of threads, for every weight format and instruction
 * set; and weights whose activations are quantized over all rows are refused. */
#include "tests/kernels/numbers.h"

enum { ROWS = 70, COLS = 512, OUTPUTS = 100 /* no multiple of 16 */, BATCHES = 6 };

/* The weights and inputs of one format. */
struct pair {
    const struct format *f;
    void *gate, *up;
    float x[ROWS * COLS];
};

/* The results of a batch; every operation adds its own columns. */
struct results {
    float product[ROWS * OUTPUTS], gated[ROWS * OUTPUTS], active[ROWS * OUTPUTS];
};

static struct backend *backend_of(const struct isa_level *level, enum precision precision, int threads)
{
    struct err why;
    struct backend *b;
    const struct backend_options o = {
        .threads = threads, .isa = level->bits, .precision = precision, .batch_invariant = true
    };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = ROWS, .cols = COLS }, &why));
    return b;
}

/* Run rows [from, from + n) of the pair in one batch. outputs: rows of the weights that are used. */
static void run_batch(struct backend *b, const struct pair *p, int outputs, int from, int n,
                      struct results *out)
{
    struct err why;
    struct weight gate, up;
    static float spare[2][ROWS * OUTPUTS];
    CHECK_OK(backend_weight_bind(b, &gate, p->f, outputs, COLS, NULL, p->gate, &why));
    CHECK_OK(backend_weight_bind(b, &up, p->f, outputs, COLS, NULL, p->up, &why));
    const struct matmul m = {
        .w = &up, .x = p->x + from * COLS, .x_stride = COLS, .n = n, .y_stride = OUTPUTS
    };
    struct matmul product = m;
    product.y = out->product + from * OUTPUTS;
    backend_matmul(b, &product, 1);
    struct gated both = { .gate = m, .up = m, .act = ACT_SILU, .y_stride = OUTPUTS };
    both.gate.w = &gate;
    both.gate.y = spare[0];
    both.up.y = spare[1];
    both.y = out->gated + from * OUTPUTS;
    backend_gated(b, &both);
    backend_activate(b, &(struct activate){ .act = ACT_GELU_TANH,
                                            .gate = product.y,
                                            .stride = OUTPUTS,
                                            .n = n,
                                            .cols = outputs,
                                            .y = out->active + from * OUTPUTS,
                                            .y_stride = OUTPUTS });
    backend_weight_release(b, &gate);
    backend_weight_release(b, &up);
}

static void check_same(const struct results *want, const struct results *got, const char *what)
{
    if (memcmp(want->product, got->product, sizeof want->product)) fail_msg("%s: other products", what);
    if (memcmp(want->gated, got->gated, sizeof want->gated)) fail_msg("%s: other gated products", what);
    if (memcmp(want->active, got->active, sizeof want->active)) fail_msg("%s: other activations", what);
}

static void check_format(const struct pair *p, const struct isa_level *level, enum precision precision,
                         int outputs)
{
    static struct results want, got;
    char what[128];
    struct rng r = { 7 };
    memset(&want, 0, sizeof want);
    struct backend *alone = backend_of(level, precision, 1);
    for (int i = 0; i < ROWS; i++) run_batch(alone, p, outputs, i, 1, &want);
    backend_close(alone);
    for (int batch = 0; batch < BATCHES; batch++) {
        const int threads = 1 + batch % 3;
        struct backend *b = backend_of(level, precision, threads);
        memset(&got, 0, sizeof got);
        for (int from = 0, n; from < ROWS; from += n) {
            const int most = batch ? 1 + rng_below(&r, batch % 2 ? 40 : 9) : ROWS;
            n = MIN(most, ROWS - from);
            run_batch(b, p, outputs, from, n, &got);
        }
        backend_close(b);
        snprintf(what, sizeof what, "%s, %s, precision %d, %d outputs, batch %d", p->f->name, level->name,
                 precision, outputs, batch);
        check_same(&want, &got, what);
    }
}

static void products(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    static struct pair p;
    static float w[OUTPUTS * COLS];
    struct rng r = { 11 };
    fill_gauss(&r, p.x, ROWS * COLS, 1);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].encode || COLS % FORMATS[f].block_weights) continue;
        const size_t bytes = (size_t)(OUTPUTS * format_row_bytes(&FORMATS[f], COLS));
        p.f = &FORMATS[f];
        p.gate = malloc(bytes);
        p.up = malloc(bytes);
        fill_gauss(&r, w, OUTPUTS * COLS, 0.05);
        format_encode_rows(p.f, w, p.gate, OUTPUTS, COLS);
        fill_gauss(&r, w, OUTPUTS * COLS, 0.05);
        format_encode_rows(p.f, w, p.up, OUTPUTS, COLS);
        for (size_t l = 0; l < count; l++) {
            check_format(&p, levels[l], PRECISION_MEDIUM, OUTPUTS);
            check_format(&p, levels[l], PRECISION_AUTO, OUTPUTS / 16 * 16);
        }
        free(p.gate);
        free(p.up);
    }
}

/* Rows so long that products add up several blocks and chunks of inputs: few rows at once against many. */
static void long_rows(void **state)
{
    (void)state;
    enum { LONG = 2816, SOME = 37, OUT = 50 };
    static const enum format_id IDS[] = { FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K };
    static float x[SOME * LONG], w[OUT * LONG], want[SOME * OUT], got[SOME * OUT];
    static const int TOKENS[] = { 1, 2, 6, 7, 13, 17, 32 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 5 };
    struct err why;
    fill_gauss(&r, x, SOME * LONG, 1);
    fill_gauss(&r, w, OUT * LONG, 0.05);
    for (size_t i = 0; i < COUNT_OF(IDS) * count; i++) {
        const struct format *f = &FORMATS[IDS[i / count]];
        void *bytes = malloc((size_t)(OUT * format_row_bytes(f, LONG)));
        struct backend *b = backend_of(levels[i % count], PRECISION_MEDIUM, 1);
        struct weight weight;
        format_encode_rows(f, w, bytes, OUT, LONG);
        CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = SOME, .cols = LONG }, &why));
        CHECK_OK(backend_weight_bind(b, &weight, f, OUT, LONG, NULL, bytes, &why));
        struct matmul m = { .w = &weight, .x = x, .x_stride = LONG, .n = SOME, .y = want, .y_stride = OUT };
        backend_matmul(b, &m, 1);
        m.y = got;
        for (size_t t = 0; t < COUNT_OF(TOKENS); t++) {
            m.n = TOKENS[t];
            backend_matmul(b, &m, 1);
            if (memcmp(want, got, (size_t)m.n * OUT * sizeof *got))
                fail_msg("%s, %s: %d rows differ from %d", f->name, levels[i % count]->name, m.n, SOME);
        }
        backend_weight_release(b, &weight);
        backend_close(b);
        free(bytes);
    }
}

static void refused(void **state)
{
    (void)state;
    static const enum input_kind KINDS[] = { INPUT_INT8_TENSOR, INPUT_INT8_OUTLIERS };
    static uint8_t weights[OUTPUTS * (COLS + 4)];
    const struct isa_level *levels[16];
    struct backend *b = backend_of(levels[levels_here(levels) - 1], PRECISION_AUTO, 1);
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        struct err why;
        struct weight w;
        const struct input_scheme s = { .kind = KINDS[i] };
        assert_int_equal(backend_weight_bind(b, &w, &FORMATS[FORMAT_INT8], OUTPUTS, COLS, &s, weights, &why),
                         ERR_USAGE);
        CHECK_CONTAINS(why.message, "batch_invariant=on");
        CHECK_CONTAINS(why.message, input_kind_name(KINDS[i]));
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products), cmocka_unit_test(long_rows),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
