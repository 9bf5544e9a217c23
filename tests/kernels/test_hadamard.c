/* Proves: backend_hadamard multiplies blocks by the orthonormal Hadamard matrix, and nothing between rows
 * changes; a second call restores the input; every instruction set yields the bits of the reference and reads
 * no number beyond its block; the largest number of a block with one outlier falls by the square root of the
 * block. Attention over a cache of transformed keys and values, with transformed queries and outputs, equals
 * plain attention but for rounding: at every level, with windows, chunks, sinks and soft caps. */
#include "kernels/kernel_set.h"
#include "tests/kernels/attention_scene.h"

/* By its definition: the sign of an entry is the parity of the bits that its row and column share. */
static double transformed(const float *x, int block, int row)
{
    double sum = 0;
    for (int j = 0; j < block; j++) sum += __builtin_parity((unsigned)(row & j)) ? -x[j] : x[j];
    return sum / sqrt(block);
}

static struct backend *open_level(const struct isa_level *level, int threads)
{
    struct err why;
    struct backend *b;
    const struct backend_options o = { .threads = threads, .isa = level->bits };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = 256, .cols = 1024 }, &why));
    return b;
}

static void definition(void **state)
{
    (void)state;
    enum { N = 37, COLS = 1536, STRIDE = COLS + 5 };
    static float x[N * STRIDE], y[N * STRIDE];
    struct rng r = { 31 };
    fill_gauss(&r, x, N * STRIDE, 1);
    for (int threads = 1; threads <= 2; threads++) {
        const struct isa_level *levels[16];
        levels_here(levels);
        struct backend *b = open_level(levels[0], threads);
        for (int block = 1; block <= HADAMARD_MAX; block *= 2) {
            struct hadamard p = { .x = y, .x_stride = STRIDE, .n = N, .cols = COLS, .block = block };
            memcpy(y, x, sizeof y);
            backend_hadamard(b, &p);
            for (int i = 0; i < N * STRIDE; i++) {
                const int d = i % STRIDE;
                if (d < COLS)
                    CHECK_NEAR(y[i], transformed(x + i - d % block, block, d % block), 3e-6);
                else
                    CHECK_EQ(y[i], x[i]);
            }
            backend_hadamard(b, &p);
            for (int i = 0; i < N * STRIDE; i++) CHECK_NEAR(y[i], x[i], 3e-6);
        }
        backend_close(b);
    }
}

static void levels(void **state)
{
    (void)state;
    const struct isa_level *here[16];
    const size_t count = levels_here(here);
    const struct kernel_set ref = kernels_select(0);
    struct rng r = { 32 };
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(here[l]->bits);
        for (int block = 1; block <= HADAMARD_MAX; block *= 2) {
            const size_t bytes = (size_t)block * sizeof(float);
            float want[HADAMARD_MAX], before[HADAMARD_MAX], *got = guarded(bytes, 0);
            fill_gauss(&r, before, block, 1);
            memcpy(want, before, bytes);
            memcpy(got, before, bytes);
            ref.vec.hadamard(want, block);
            k.vec.hadamard(got, block);
            if (memcmp(want, got, bytes)) fail_msg("%s, block %d: other bits", here[l]->name, block);
            double power = 0, was = 0;
            for (int i = 0; i < block; i++)
                power += got[i] * (double)got[i], was += before[i] * (double)before[i];
            CHECK_NEAR(power, was, 2e-6 * was);
            k.vec.hadamard(got, block);
            for (int i = 0; i < block; i++) CHECK_NEAR(got[i], before[i], 2e-6);
            guarded_free(got, bytes, 0);
        }
    }
}

static void outliers(void **state)
{
    (void)state;
    const struct isa_level *here[16];
    const size_t count = levels_here(here);
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(here[l]->bits);
        float x[128] = { [77] = 16 };
        k.vec.hadamard(x, 128);
        for (int i = 0; i < 128; i++) CHECK_NEAR(fabs(x[i]), 16 / sqrt(128), 1e-6);
    }
    CHECK_EQ(hadamard_block(64), 64);
    CHECK_EQ(hadamard_block(96), 32);
    CHECK_EQ(hadamard_block(576), 64);
    CHECK_EQ(hadamard_block(1024), HADAMARD_MAX);
    CHECK_EQ(hadamard_block(45), 1);
}

/* ---------------------------------------------------------------- attention */

/* All block sizes, also such as are smaller than the head: 96 and 160 have blocks of 32. */
static const struct scene SCENES[] = {
    { FORMAT_F32, FORMAT_F32, 8, 2, 64, 64, 32, 200, 70, 1, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 4, 1, 96, 160, 16, 100, 3, 2, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 4, 2, 128, 32, 24, 37, 40, 2, 20, 0, 0, true, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 576, 512, 32, 130, 2, 1, 0, 30, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 40, 24, 16, 300, 2, 2, 0, 0, 100, true, false },
};

static void transform(struct backend *b, float *x, int64_t heads, int dim)
{
    backend_hadamard(
        b, &(struct hadamard){
               .x = x, .x_stride = dim, .n = (int)heads, .cols = dim, .block = hadamard_block(dim) });
}

static void check_scene(const struct scene *s, const struct isa_level *level)
{
    struct rng r = { 5 };
    struct stage t;
    char what[64];
    struct backend *b = open_level(level, 2);
    stage_make(&t, s, &r);
    t.kv.k = malloc(stage_k_bytes(&t));
    t.kv.v = malloc(stage_v_bytes(&t));
    const int64_t keys = (int64_t)t.tokens * s->kv_heads, queries = (int64_t)t.rows * s->heads;
    float *q = malloc((size_t)(queries * s->k_dim) * sizeof *q);
    memcpy(q, t.q, (size_t)(queries * s->k_dim) * sizeof *q);
    transform(b, q, queries, s->k_dim);
    transform(b, t.k, keys, s->k_dim);
    transform(b, t.v, keys, s->v_dim);
    backend_kv_store(b, &(struct kv_store){ .kv = &t.kv,
                                            .k = t.k,
                                            .v = t.v,
                                            .k_stride = s->kv_heads * s->k_dim,
                                            .v_stride = s->kv_heads * s->v_dim,
                                            .n = t.tokens,
                                            .slots = t.slots });
    transform(b, t.k, keys, s->k_dim);
    transform(b, t.v, keys, s->v_dim);
    struct attention p = stage_attention(&t, q, t.y);
    p.sinks = s->sinks ? t.sinks : NULL;
    backend_attention(b, &p);
    transform(b, t.y, queries, s->v_dim);
    snprintf(what, sizeof what, "scene %d %s", (int)(s - SCENES), level->name);
    stage_check(&t, what, 2e-5, 1e-11);
    free(q);
    free(t.kv.k);
    free(t.kv.v);
    stage_free(&t);
    backend_close(b);
}

static void attention(void **state)
{
    (void)state;
    const struct isa_level *here[16];
    const size_t count = levels_here(here);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < COUNT_OF(SCENES); i++) check_scene(&SCENES[i], here[l]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(definition), cmocka_unit_test(levels),
                                        cmocka_unit_test(outliers), cmocka_unit_test(attention) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
