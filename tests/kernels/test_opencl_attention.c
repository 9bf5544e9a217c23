/* Proves: on an OpenCL device keys and values are stored as the bytes of the reference encoders, in every
 * type a cache may have, and attention over them agrees with a naive binary64 softmax: few queries and many,
 * also in one batch; head sizes that are no multiple of anything; grouped heads, several sequences, scattered
 * blocks, windows, soft caps, contexts long enough to be split and merged. Never a token is read that is not
 * the row's own (unwritten slots hold NaN). */
#include "tests/kernels/attention_scene.h"
#include "tests/kernels/opencl_here.h"

/* ---------------------------------------------------------------- storing */

enum { TOKENS = 11, KV_HEADS = 3, BLOCK_TOKENS = 4, BLOCKS = 5, DIM = 96 };

/* Rows that are hard on encoders, the rest Gaussian. */
static void fill_rows(struct rng *r, float *x)
{
    static const float ODD[][4] = {
        { 0, -0.0f, 0, 0 },
        { 1e-20f, -3e-20f, 2.5e-20f, 0 },            /* below the smallest f16 */
        { 3e-8f, 5.96e-8f, -8.9e-8f, 6.09e-5f },     /* its subnormals, ties */
        { 65519, 65520, -65504, 1 },                 /* its end */
        { 1.00048828125f, 1.00146484375f, -2, 448 }, /* ties of f16 */
        { 1.00390625f, 1.01171875f, -3, 57344 },     /* ties of bf16 */
        { -8, 8, 7.5f, -0.5f },                      /* two largest magnitudes; halves between codes */
        { 127, 0.5f, 1.5f, -2.5f },
        { 1e30f, 3e37f, -1e38f, 1 },
    };
    fill_gauss(r, x, TOKENS * KV_HEADS * DIM, 1);
    for (size_t i = 0; i < COUNT_OF(ODD); i++)
        for (int j = 0; j < DIM; j++) x[i * DIM + j] = ODD[i][j % 4] * (float)(1 + (j >= 32));
}

/* The cache must be what FORMATS[].encode makes of each row, and untouched elsewhere. */
static void check_bytes(const struct format *f, int dim, const float *x, int x_stride, const int32_t *slots,
                        const uint8_t *got)
{
    const size_t row_bytes = (size_t)format_row_bytes(f, dim);
    const size_t bytes = BLOCKS * KV_HEADS * BLOCK_TOKENS * row_bytes;
    uint8_t *want = malloc(bytes);
    memset(want, 0xee, bytes);
    for (int i = 0; i < TOKENS; i++) {
        for (int h = 0; h < KV_HEADS; h++) {
            const int row = (slots[i] / BLOCK_TOKENS * KV_HEADS + h) * BLOCK_TOKENS + slots[i] % BLOCK_TOKENS;
            uint8_t *to = want + (size_t)row * row_bytes;
            f->encode(x + i * x_stride + h * dim, to, dim);
            if (memcmp(to, got + (size_t)row * row_bytes, row_bytes))
                fail_msg("%s: token %d head %d is stored as other bytes", f->name, i, h);
        }
    }
    assert_memory_equal(got, want, bytes);
    free(want);
}

static void stores(void **state)
{
    (void)state;
    static const struct {
        enum format_id k, v;
        int k_dim, v_dim;
    } KINDS[] = { { FORMAT_F32, FORMAT_Q4_0, 93, 96 },
                  { FORMAT_F16, FORMAT_Q8_0, 91, 64 },
                  { FORMAT_BF16, FORMAT_FP8_E4M3, 96, 93 },
                  { FORMAT_FP8_E5M2, FORMAT_F16, 95, 96 } };
    static float x[2][TOKENS * KV_HEADS * DIM];
    struct backend *b = opencl_or_skip(64, 1024);
    struct rng r = { 31 };
    int32_t slots[TOKENS];
    for (int i = 0; i < TOKENS; i++) slots[i] = i * 7 % (BLOCKS * BLOCK_TOKENS);
    fill_rows(&r, x[0]);
    fill_rows(&r, x[1]);
    float *k = sent(b, x[0], COUNT_OF(x[0])), *v = sent(b, x[1], COUNT_OF(x[1]));
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        struct kv_layer kv = { .k_format = &FORMATS[KINDS[i].k],
                               .v_format = &FORMATS[KINDS[i].v],
                               .kv_heads = KV_HEADS,
                               .k_dim = KINDS[i].k_dim,
                               .v_dim = KINDS[i].v_dim,
                               .block_tokens = BLOCK_TOKENS,
                               .blocks = BLOCKS };
        const size_t all = (size_t)kv_layer_bytes(&kv);
        const size_t k_bytes = BLOCKS * BLOCK_TOKENS * KV_HEADS *
                               (size_t)format_row_bytes(kv.k_format, kv.k_dim);
        const size_t gap = 64 - k_bytes % 64; /* values begin at a multiple of 64, as in the engine */
        uint8_t *host = malloc(all + gap), *there = backend_alloc(b, all + gap);
        memset(host, 0xee, all + gap);
        backend_write(b, there, host, all + gap);
        kv.k = there;
        kv.v = there + k_bytes + gap;
        backend_kv_store(b, &(struct kv_store){ .kv = &kv,
                                                .k = k,
                                                .v = v,
                                                .k_stride = KV_HEADS * DIM,
                                                .v_stride = KV_HEADS * DIM,
                                                .n = TOKENS,
                                                .slots = slots });
        backend_read(b, host, there, all + gap);
        struct err why;
        CHECK_OK(backend_finish(b, &why));
        check_bytes(kv.k_format, kv.k_dim, x[0], KV_HEADS * DIM, slots, host);
        check_bytes(kv.v_format, kv.v_dim, x[1], KV_HEADS * DIM, slots, host + k_bytes + gap);
        backend_free(b, there);
        free(host);
    }
    backend_close(b);
}

/* ---------------------------------------------------------------- attending */

/* The cache on the device, filled with NaN and then by the device. */
static void store_stage(struct backend *b, struct stage *t)
{
    const size_t k_bytes = stage_k_bytes(t), v_bytes = stage_v_bytes(t);
    uint8_t *nan = malloc(MAX(k_bytes, v_bytes));
    memset(nan, 0xff, MAX(k_bytes, v_bytes));
    t->kv.k = backend_alloc(b, k_bytes);
    t->kv.v = t->s->v_in_k ? t->kv.k : backend_alloc(b, v_bytes);
    backend_write(b, t->kv.k, nan, k_bytes);
    if (!t->s->v_in_k) backend_write(b, t->kv.v, nan, v_bytes);
    free(nan);
    float *k = sent(b, t->k, (int64_t)t->tokens * t->s->kv_heads * t->s->k_dim);
    float *v = sent(b, t->v, (int64_t)t->tokens * t->s->kv_heads * t->s->v_dim);
    backend_kv_store(b, &(struct kv_store){ .kv = &t->kv,
                                            .k = k,
                                            .v = v,
                                            .k_stride = t->s->kv_heads * t->s->k_dim,
                                            .v_stride = t->s->kv_heads * t->s->v_dim,
                                            .n = t->tokens,
                                            .slots = t->slots });
    backend_free(b, k);
    backend_free(b, v);
    stage_round(t);
}

static void attend_stage(struct backend *b, struct stage *t, const char *what)
{
    const int64_t q_count = (int64_t)t->rows * t->s->heads * t->s->k_dim;
    const int64_t y_count = (int64_t)t->rows * t->s->heads * t->s->v_dim;
    memset(t->y, 0xff, (size_t)y_count * sizeof *t->y);
    float *q = sent(b, t->q, q_count), *y = sent(b, t->y, y_count), *sinks = sent(b, t->sinks, t->s->heads);
    struct attention p = stage_attention(t, q, y);
    p.sinks = t->s->sinks ? sinks : NULL;
    backend_attention(b, &p);
    fetched(b, t->y, y, y_count);
    backend_free(b, q);
    backend_free(b, y);
    backend_free(b, sinks);
    stage_check(t, what, 5e-6, 1e-11);
}

/* Of the first sequence only the last row stays: a batch of one that decodes and others with a prompt. */
static void keep_last_of_first(struct stage *t)
{
    const int gone = t->s->n - 1;
    t->rows -= gone;
    memmove(t->q, t->q + (int64_t)gone * t->s->heads * t->s->k_dim,
            (size_t)(t->rows * t->s->heads * t->s->k_dim) * sizeof *t->q);
    memmove(t->pos, t->pos + gone, (size_t)t->rows * sizeof *t->pos);
    memmove(t->seq, t->seq + gone, (size_t)t->rows * sizeof *t->seq);
}

static const struct scene SCENES[] = {
    /* Few queries: every type as keys and as values. */
    { FORMAT_F32, FORMAT_F16, 4, 4, 12, 20, 5, 9, 1, 2, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_Q8_0, 8, 2, 64, 64, 32, 700, 1, 3, 0, 0, 0, false, false },
    { FORMAT_Q8_0, FORMAT_Q4_0, 6, 2, 96, 128, 16, 300, 2, 1, 0, 0, 0, false, false },
    { FORMAT_Q4_0, FORMAT_FP8_E4M3, 2, 2, 128, 72, 16, 60, 1, 1, 40, 0, 0, false, false },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E5M2, 7, 1, 64, 90, 8, 150, 2, 2, 100, 30, 0, false, false },
    { FORMAT_FP8_E5M2, FORMAT_BF16, 3, 3, 45, 64, 8, 100, 1, 1, 0, 0, 0, false, false },
    { FORMAT_BF16, FORMAT_F32, 2, 2, 256, 1024, 16, 65, 1, 1, 17, 0, 0, false, false },
    /* Many, also next to few. */
    { FORMAT_F16, FORMAT_Q8_0, 8, 2, 64, 64, 32, 200, 40, 2, 0, 0, 0, false, false },
    { FORMAT_FP8_E5M2, FORMAT_FP8_E4M3, 10, 2, 45, 93, 8, 70, 50, 1, 64, 20, 0, false, false },
    { FORMAT_F32, FORMAT_F16, 71, 1, 80, 160, 16, 900, 1, 1, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_F32, 2, 2, 1024, 320, 8, 30, 9, 1, 0, 0, 0, false, false },
    /* Chunks and sinks: few queries in split positions, and many. */
    { FORMAT_F16, FORMAT_Q8_0, 8, 2, 64, 64, 32, 700, 1, 3, 0, 0, 0, true, false },
    { FORMAT_F16, FORMAT_Q8_0, 8, 2, 64, 64, 32, 200, 40, 2, 50, 0, 64, true, false },
    /* Values that are a part of the keys: few queries and many, scales of blocks and of rows. */
    { FORMAT_Q8_0, FORMAT_Q8_0, 6, 1, 96, 64, 16, 100, 1, 2, 0, 0, 0, false, true },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 1, 72, 64, 8, 50, 20, 1, 0, 0, 0, false, true },
};

static void scenes(void **state)
{
    (void)state;
    struct backend *b = opencl_or_skip(128, 4096);
    for (size_t i = 0; i < COUNT_OF(SCENES); i++) {
        struct rng r = { 5 };
        struct stage t;
        char what[32];
        snprintf(what, sizeof what, "scene %d", (int)i);
        stage_make(&t, &SCENES[i], &r);
        store_stage(b, &t);
        attend_stage(b, &t, what);
        if (t.s->sequences > 1 && t.s->n > 1) {
            keep_last_of_first(&t);
            attend_stage(b, &t, what);
        }
        backend_free(b, t.kv.k);
        if (!t.s->v_in_k) backend_free(b, t.kv.v);
        stage_free(&t);
    }
    backend_close(b);
}

/* Without scratch nothing is split, with some less than wanted: the result does not depend on it. */
static void little_scratch(void **state)
{
    (void)state;
    static const struct scene SCENE = { FORMAT_F16, FORMAT_Q8_0, 8, 2, 64, 64,    32,   700,
                                        1,          3,           0, 0, 0,  false, false };
    for (int64_t cols = 1; cols <= 64; cols *= 64) {
        struct backend *b = opencl_or_skip(1, cols);
        struct rng r = { 5 };
        struct stage t;
        stage_make(&t, &SCENE, &r);
        store_stage(b, &t);
        attend_stage(b, &t, "little scratch");
        stage_free(&t);
        backend_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores),
        cmocka_unit_test(scenes),
        cmocka_unit_test(little_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
