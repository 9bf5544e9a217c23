/* Proves: backend_attention agrees with a naive binary64 softmax for every cache format and instruction set,
 * over head sizes that are no multiple of anything, grouped heads, several sequences in one batch, scattered
 * cache blocks, windows, soft caps, decoding and prompts; and never reads a token that is not the row's own
 * (unwritten slots hold NaN); so does plain attention, and so do both with a contiguous cache. With
 * batch_invariant, the bits of a row do not depend on the batch. */
#include "tests/kernels/attention_scene.h"

static const struct scene SCENES[] = {
    { FORMAT_F32, FORMAT_F32, 4, 4, 16, 16, 16, 0, 1, 1, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 6, 2, 12, 12, 8, 0, 33, 1, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F16, 4, 1, 24, 20, 5, 100, 3, 2, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_F16, 8, 2, 64, 64, 32, 200, 70, 1, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_F16, 32, 8, 64, 64, 16, 300, 1, 5, 0, 0, 0, false, false },
    { FORMAT_BF16, FORMAT_BF16, 5, 5, 80, 80, 16, 10, 20, 2, 17, 0, 0, false, false },
    { FORMAT_Q8_0, FORMAT_Q8_0, 4, 2, 64, 32, 16, 70, 1, 2, 0, 0, 0, false, false },
    { FORMAT_Q8_0, FORMAT_Q4_0, 9, 3, 96, 128, 64, 7, 90, 1, 0, 0, 0, false, false },
    { FORMAT_Q4_0, FORMAT_Q4_0, 4, 4, 32, 32, 16, 130, 2, 3, 64, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 71, 1, 64, 64, 16, 20, 3, 1, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 256, 256, 16, 65, 4, 1, 0, 30, 0, false, false },
    { FORMAT_F16, FORMAT_F16, 140, 1, 8, 8, 16, 20, 40, 1, 5, 0, 0, false, false },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 2, 64, 64, 16, 150, 1, 2, 0, 0, 0, false, false },
    { FORMAT_FP8_E5M2, FORMAT_FP8_E4M3, 6, 3, 45, 90, 8, 70, 50, 1, 40, 0, 0, false, false },
    { FORMAT_INT8, FORMAT_FP8_E5M2, 4, 4, 32, 50, 16, 33, 3, 2, 0, 30, 0, false, false },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 2, 64, 64, 32, 90, 40, 1, 0, 0, 0, false, false },
    { FORMAT_FP8_E5M2, FORMAT_F16, 4, 4, 32, 96, 16, 30, 12, 3, 0, 20, 0, false, false },
    { FORMAT_Q8_0, FORMAT_FP8_E4M3, 16, 1, 128, 32, 32, 200, 2, 2, 50, 0, 0, false, false },
    /* One sequence, few pieces: positions are split, also where windows leave stretches without a token. */
    { FORMAT_F16, FORMAT_F16, 4, 1, 64, 64, 32, 1000, 1, 1, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_BF16, 8, 1, 64, 64, 32, 900, 4, 1, 0, 0, 0, false, false },
    { FORMAT_Q4_0, FORMAT_Q8_0, 4, 2, 64, 64, 32, 900, 8, 1, 600, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 40, 24, 16, 700, 2, 2, 0, 0, 0, false, false },
    /* More than one piece of rows, blocks that tiles straddle, a window narrower than a tile. */
    { FORMAT_BF16, FORMAT_F16, 16, 1, 128, 128, 32, 100, 90, 1, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_F16, 4, 2, 64, 64, 24, 37, 120, 2, 20, 0, 0, false, false },
    /* Chunks and sinks, also where positions are split, and with windows. */
    { FORMAT_F32, FORMAT_F32, 4, 2, 16, 16, 16, 40, 20, 2, 0, 0, 16, false, false },
    { FORMAT_F16, FORMAT_F16, 8, 2, 64, 64, 32, 200, 70, 1, 0, 0, 0, true, false },
    { FORMAT_F16, FORMAT_F16, 4, 1, 64, 64, 32, 1000, 1, 1, 0, 0, 0, true, false },
    { FORMAT_F16, FORMAT_F16, 4, 2, 64, 64, 24, 37, 120, 2, 20, 0, 0, true, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 40, 24, 16, 700, 2, 2, 0, 0, 300, true, false },
    { FORMAT_BF16, FORMAT_F16, 16, 1, 128, 128, 32, 100, 90, 1, 70, 0, 64, true, false },
    /* Positions on both sides of multiples of 1024, where batch_invariant divides them. */
    { FORMAT_F16, FORMAT_F16, 4, 1, 64, 64, 32, 2100, 5, 1, 0, 0, 0, true, false },
    { FORMAT_Q8_0, FORMAT_Q4_0, 8, 2, 128, 64, 32, 2040, 12, 2, 1500, 30, 0, true, false },
    { FORMAT_BF16, FORMAT_FP8_E4M3, 16, 1, 96, 32, 24, 3000, 2, 1, 0, 0, 0, false, false },
    { FORMAT_F16, FORMAT_F16, 6, 2, 64, 40, 32, 1020, 9, 1, 3, 0, 0, true, false },
    /* Values that are a part of the keys. */
    { FORMAT_F32, FORMAT_F32, 4, 1, 40, 24, 16, 70, 2, 2, 0, 0, 0, false, true },
    { FORMAT_F16, FORMAT_F16, 16, 1, 144, 128, 32, 1100, 3, 1, 0, 0, 0, false, true },
    { FORMAT_Q8_0, FORMAT_Q8_0, 6, 2, 96, 64, 24, 37, 60, 1, 0, 0, 0, false, true },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 4, 1, 160, 128, 32, 90, 40, 1, 0, 0, 0, false, true },
};

/* Variants of one scene. */
struct variant {
    enum precision precision;
    int threads;
    enum attention_method attention;
    bool contiguous;
};

static struct backend_work work_of(const struct scene *s)
{
    return (struct backend_work){
        .rows = s->n * s->sequences, .cols = 1024, .heads = s->heads, .context = s->past + s->n
    };
}

static void check_scene(const struct scene *s, const struct isa_level *level, const struct variant *v)
{
    const enum precision precision = v->precision;
    const struct backend_work work = work_of(s);
    struct err why;
    struct backend *b;
    struct rng r = { 5 };
    struct stage t;
    char what[64];
    CHECK_OK(backend_open(
        &b, "cpu",
        &(struct backend_options){
            .threads = v->threads, .isa = level->bits, .precision = precision, .attention = v->attention },
        &why));
    CHECK_OK(backend_reserve(b, &work, &why));
    stage_make(&t, s, &r);
    if (v->contiguous) stage_make_contiguous(&t);
    t.kv.k = guarded(stage_k_bytes(&t), 0);
    t.kv.v = s->v_in_k ? t.kv.k : guarded(stage_v_bytes(&t), 0);
    memset(t.kv.k, 0xff, stage_k_bytes(&t)); /* NaN in every float format, also as a block's scale */
    memset(t.kv.v, 0xff, stage_v_bytes(&t));
    backend_kv_store(b, &(struct kv_store){ .kv = &t.kv,
                                            .k = t.k,
                                            .v = t.v,
                                            .k_stride = s->kv_heads * s->k_dim,
                                            .v_stride = s->kv_heads * s->v_dim,
                                            .n = t.tokens,
                                            .slots = t.slots });
    stage_round(&t);
    struct attention p = stage_attention(&t, t.q, t.y);
    p.sinks = s->sinks ? t.sinks : NULL;
    backend_attention(b, &p);
    /* bf16: see "Precision" in kernels/README.md */
    const bool medium = precision == PRECISION_MEDIUM && v->attention == ATTENTION_FLASH;
    snprintf(what, sizeof what, "scene %d %s precision %d%s%s", (int)(s - SCENES), level->name, precision,
             v->attention == ATTENTION_PLAIN ? " plain" : "", v->contiguous ? " contiguous" : "");
    stage_check(&t, what, medium ? 0.05 : 5e-6, medium ? 6e-5 : 1e-11);
    stage_free(&t);
    backend_close(b);
}

static void scenes(void **state)
{
    (void)state;
    static const struct variant VARIANTS[] = {
        { PRECISION_HIGHEST, 1, ATTENTION_FLASH, false }, { PRECISION_HIGHEST, 2, ATTENTION_FLASH, true },
        { PRECISION_MEDIUM, 2, ATTENTION_FLASH, false },  { PRECISION_MEDIUM, 2, ATTENTION_FLASH, true },
        { PRECISION_HIGHEST, 1, ATTENTION_PLAIN, false }, { PRECISION_MEDIUM, 3, ATTENTION_PLAIN, true },
    };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < COUNT_OF(SCENES); i++) {
            for (size_t v = 0; v < COUNT_OF(VARIANTS); v++) check_scene(&SCENES[i], levels[l], &VARIANTS[v]);
            check_scene(&SCENES[i], levels[l],
                        &(struct variant){ .precision = PRECISION_HIGHEST, .threads = 2 });
        }
}

/* The rows of a scene in batches of `step` rows, or of random sizes for step 0. */
static void run_batches(const struct scene *s, struct backend *b, int step, float *y)
{
    struct rng r = { 5 }, sizes = { 3 };
    struct stage t;
    stage_make(&t, s, &r);
    t.kv.k = backend_alloc(b, stage_k_bytes(&t));
    t.kv.v = s->v_in_k ? t.kv.k : backend_alloc(b, stage_v_bytes(&t));
    backend_kv_store(b, &(struct kv_store){ .kv = &t.kv,
                                            .k = t.k,
                                            .v = t.v,
                                            .k_stride = s->kv_heads * s->k_dim,
                                            .v_stride = s->kv_heads * s->v_dim,
                                            .n = t.tokens,
                                            .slots = t.slots });
    for (int from = 0, n; from < t.rows; from += n) {
        const int most = step ? step : 1 + rng_below(&sizes, 30);
        n = MIN(most, t.rows - from);
        struct attention p = stage_attention(&t, t.q + (int64_t)from * s->heads * s->k_dim,
                                             y + (int64_t)from * s->heads * s->v_dim);
        p.n = n;
        p.pos += from;
        p.seq += from;
        p.sinks = s->sinks ? t.sinks : NULL;
        backend_attention(b, &p);
    }
    backend_free(b, t.kv.k);
    if (!s->v_in_k) backend_free(b, t.kv.v);
    stage_free(&t);
}

/* With batch_invariant, a row has the same bits whatever other rows are in the call, at any number of
 * threads. */
static void check_batches(enum attention_method attention)
{
    static const int STEPS[] = { 1, 0, 256, 3 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < COUNT_OF(SCENES); i++) {
            const struct scene *s = &SCENES[i];
            const size_t floats = (size_t)(s->n * s->sequences * s->heads * s->v_dim);
            float *y[COUNT_OF(STEPS)];
            for (size_t k = 0; k < COUNT_OF(STEPS); k++) {
                struct err why;
                struct backend *b;
                const struct backend_options o = { .threads = 1 + (int)(k % 3),
                                                   .isa = levels[l]->bits,
                                                   .precision = PRECISION_MEDIUM,
                                                   .batch_invariant = true,
                                                   .attention = attention };
                const struct backend_work work = work_of(s);
                CHECK_OK(backend_open(&b, "cpu", &o, &why));
                CHECK_OK(backend_reserve(b, &work, &why));
                y[k] = calloc(floats, sizeof(float));
                run_batches(s, b, STEPS[k], y[k]);
                if (memcmp(y[0], y[k], floats * sizeof(float)))
                    fail_msg("scene %zu, %s%s: batches of %d rows give other bits than single rows", i,
                             levels[l]->name, attention == ATTENTION_PLAIN ? ", plain" : "", STEPS[k]);
                backend_close(b);
            }
            for (size_t k = 0; k < COUNT_OF(STEPS); k++) free(y[k]);
        }
}

static void batches(void **state)
{
    (void)state;
    check_batches(ATTENTION_FLASH);
}

static void batches_plain(void **state)
{
    (void)state;
    check_batches(ATTENTION_PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(scenes), cmocka_unit_test(batches),
                                        cmocka_unit_test(batches_plain) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
