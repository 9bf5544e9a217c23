/* Proves: every instruction set of this machine encodes to the bytes of the reference. The reference writes
 * ggml's bytes, with and without an importance matrix (golden files, if they are beside the checkout). The
 * inputs are numbers of many kinds in odd numbers of blocks, with importance of many kinds, in buffers that
 * end at an unreadable page. Importance reduces the weighted error. Codes that the caller chose are stored
 * unchanged. */
#include "kernels/cpu.h"
#include "tests/kernels/numbers.h"

static const enum format_id SEARCHED[] = { FORMAT_Q4_0, FORMAT_Q4_1,   FORMAT_Q5_0,  FORMAT_Q5_1,
                                           FORMAT_Q2_K, FORMAT_Q3_K,   FORMAT_Q4_K,  FORMAT_Q5_K,
                                           FORMAT_Q6_K, FORMAT_IQ4_NL, FORMAT_IQ4_XS };

/* Calls body for each level. */
typedef void level_fn(const struct kernel_set *k, const char *level);

static void each_level(level_fn *body)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(levels[l]->bits);
        body(&k, levels[l]->name);
    }
}

/* ---------------------------------------------------------------- golden files */

enum { GOLDEN_ROWS = 4, GOLDEN_COLS = 512, GOLDEN = GOLDEN_ROWS * GOLDEN_COLS };

static int64_t read_golden(const char *name, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/gguf/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

/* Files of a format and an input that are not there do not count. */
static int golden_file(const struct kernel_set *k, const char *level, const struct format *f,
                       const char *input, const float *importance)
{
    static float x[GOLDEN];
    static uint8_t want[GOLDEN * 4], got[GOLDEN * 4];
    char name[64];
    snprintf(name, sizeof name, "%s.in.f32", input);
    CHECK_EQ(read_golden(name, x, sizeof x), sizeof x);
    snprintf(name, sizeof name, "%s.%s%s.bin", f->name, input, importance ? ".imatrix" : "");
    const int64_t bytes = read_golden(name, want, sizeof want);
    if (bytes < 0) return 0;
    CHECK_EQ(bytes, GOLDEN_ROWS * format_row_bytes(f, GOLDEN_COLS));
    encode_with(k, f, &(struct encode){ x, importance, got, GOLDEN_ROWS, GOLDEN_COLS });
    if (memcmp(got, want, (size_t)bytes)) fail_msg("%s: %s differs", level, name);
    return 1;
}

static void golden_level(const struct kernel_set *k, const char *level)
{
    static const char *const INPUTS[] = { "uniform", "gauss", "outlier", "edge" };
    static float importance[GOLDEN_COLS];
    CHECK_EQ(read_golden("imatrix.f32", importance, sizeof importance), sizeof importance);
    int plain = 0, important = 0;
    for (int id = 0; id < FORMAT_COUNT; id++) {
        for (size_t i = 0; i < COUNT_OF(INPUTS) && FORMATS[id].encode; i++) {
            plain += golden_file(k, level, &FORMATS[id], INPUTS[i], NULL);
            important += golden_file(k, level, &FORMATS[id], INPUTS[i], importance);
        }
    }
    CHECK_EQ(plain, 15 * 4);
    CHECK_EQ(important, COUNT_OF(SEARCHED) * 3);
}

static void golden_files(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/gguf/manifest.json");
    each_level(golden_level);
}

/* ---------------------------------------------------------------- every level against the reference */

/* Numbers that searches meet, and some that they hardly do. */
static void fill(struct rng *r, int kind, float *x, int64_t n)
{
    static const float ODD[] = { 0, -0.0f, 1, -1, 1e-9f, -1e-20f, 1e3f, 0.5f, -0.75f, 3e-39f, 1e-15f, 2e4f };
    for (int64_t i = 0; i < n; i++) {
        const float g = rng_gauss(r, 0.02), u = (float)(rng_u32(r) >> 8) * 0x1p-24f;
        switch (kind) {
        case 0: x[i] = g; break;
        case 1: x[i] = 2 * u - 1; break;
        case 2: x[i] = rng_below(r, 64) ? g : 40 * g; break;                   /* outliers */
        case 3: x[i] = 1 + u; break;                                           /* on one side of 0 */
        case 4: x[i] = -fabsf(g); break;                                       /* on the other */
        case 5: x[i] = i / 16 % 3 ? 0.25f * (float)rng_below(r, 9) : 0; break; /* ties, and nothing at all */
        case 6: x[i] = ODD[rng_below(r, COUNT_OF(ODD))]; break;
        case 7: x[i] = rng_below(r, 200) ? 0 : g; break;               /* hardly anything */
        case 8: x[i] = -0.75f; break;                                  /* all the same */
        case 9: x[i] = ldexpf(u - 0.5f, rng_below(r, 30) - 20); break; /* every size */
        case 10: x[i] = g * 1e-18f; break;                             /* next to nothing */
        default: x[i] = (float)(i % 37) * 0.125f - 2; break;           /* ramps */
        }
    }
}
enum { KINDS = 12 };

static void fill_importance(struct rng *r, int kind, float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float u = (float)(rng_u32(r) >> 8) * 0x1p-24f;
        w[i] = kind == 0   ? 0.0625f + 4 * u * u
               : kind == 1 ? (rng_below(r, 3) ? 0 : u) /* columns that never matter */
               : kind == 2 ? ldexpf(u, rng_below(r, 40) - 20)
                           : 0;
    }
}
enum { IMPORTANCE_KINDS = 4 };

static void compare(const struct kernel_set *k, const char *level, const struct format *f,
                    const struct encode *e, const char *what)
{
    const size_t bytes = (size_t)(e->rows * format_row_bytes(f, e->cols));
    uint8_t *want = malloc(bytes), *got = guarded(bytes, 0);
    CHECK_NE(want, NULL);
    struct encode to = *e;
    const struct kernel_set ref = kernels_select(0);
    to.out = want;
    encode_with(&ref, f, &to);
    to.out = got;
    memset(got, 0xa5, bytes);
    encode_with(k, f, &to);
    for (size_t i = 0; i < bytes; i++)
        if (want[i] != got[i])
            fail_msg("%s %s %s, %d rows of %d: byte %d is %d, not %d", level, f->name, what, (int)e->rows,
                     (int)e->cols, (int)i, got[i], want[i]);
    guarded_free(got, bytes, 0);
    free(want);
}

static void same_bytes_level(const struct kernel_set *k, const char *level)
{
    static const struct {
        int rows, blocks;
    } SHAPES[] = { { 1, 1 }, { 1, 3 }, { 2, 5 }, { 5, 1 }, { 3, 7 }, { 1, 33 } };
    struct rng r = { 20261122 };
    const struct kernel_set ref = kernels_select(0);
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        if (k->format[id].encode == ref.format[id].encode) continue; /* the same function */
        for (size_t s = 0; s < COUNT_OF(SHAPES) && f->encode; s++) {
            const int64_t rows = SHAPES[s].rows, cols = SHAPES[s].blocks * (int64_t)f->block_weights;
            const size_t bytes = (size_t)(rows * cols) * sizeof(float), column = (size_t)cols * sizeof(float);
            float *x = guarded(bytes, 0), *w = guarded(column, 0);
            for (int kind = 0; kind < KINDS; kind++) {
                char what[64];
                fill(&r, kind, x, rows * cols);
                snprintf(what, sizeof what, "numbers %d", kind);
                compare(k, level, f, &(struct encode){ x, NULL, NULL, rows, cols }, what);
                for (int i = 0; i < IMPORTANCE_KINDS; i++) {
                    fill_importance(&r, i, w, cols);
                    snprintf(what, sizeof what, "numbers %d, importance %d", kind, i);
                    compare(k, level, f, &(struct encode){ x, w, NULL, rows, cols }, what);
                }
            }
            guarded_free(x, bytes, 0);
            guarded_free(w, column, 0);
        }
    }
}

static void same_bytes(void **state)
{
    (void)state;
    each_level(same_bytes_level);
}

/* ---------------------------------------------------------------- importance */

static double weighted_error(const float *a, const float *b, const float *w, int64_t rows, int64_t cols)
{
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; i++)
        sum += w[i % cols] * ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

static void importance_lowers_its_error(void **state)
{
    (void)state;
    enum { ROWS = 32, COLS = 1024, N = ROWS * COLS };
    static float x[N], plain[N], important[N], w[COLS];
    static uint8_t bytes[N * 4], same[N * 4];
    struct rng r = { 5 };
    fill_gauss(&r, x, N, 0.02);
    fill_importance(&r, 2, w, COLS);
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        if (!f->encode) continue;
        const size_t size = (size_t)(ROWS * format_row_bytes(f, COLS));
        format_encode_rows(f, x, bytes, ROWS, COLS);
        format_decode_rows(f, bytes, plain, ROWS, COLS);
        format_encode_weighted(f, x, w, same, ROWS, COLS);
        format_decode_rows(f, same, important, ROWS, COLS);
        if (!f->weighted) {
            assert_memory_equal(bytes, same, size);
            continue;
        }
        const double before = weighted_error(x, plain, w, ROWS, COLS),
                     after = weighted_error(x, important, w, ROWS, COLS);
        print_message("%-6s weighted error %.3g of that without importance\n", f->name, after / before);
        CHECK_LT(after, 0.9 * before);
        format_encode_weighted(f, x, NULL, same, ROWS, COLS);
        assert_memory_equal(bytes, same, size);
    }
}

/* ---------------------------------------------------------------- codes from elsewhere */

static void rows_of_codes(void **state)
{
    (void)state;
    enum { N = 96 };
    static const enum format_id IDS[] = { FORMAT_INT8, FORMAT_FP8_E4M3, FORMAT_FP8_E5M2 };
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        uint8_t codes[N], row[N + 4], again[N + 4];
        float x[N], back[N], scale;
        struct rng r = { 7 };
        fill_gauss(&r, x, N, 1);
        f->encode(x, row, N);
        memcpy(&scale, row + N, sizeof scale);
        memcpy(codes, row, N);
        format_row_pack(f, codes, scale, again, N);
        assert_memory_equal(again, row, sizeof row);
        format_row_pack(f, codes, 0.5f, again, N);
        f->decode(again, back, N);
        f->decode(row, x, N);
        for (int j = 0; j < N; j++) CHECK_NEAR(back[j], 0.5 * x[j] / scale, 1e-4 * fabs(back[j]));
    }
}

static void codebooks_with_given_magnitudes(void **state)
{
    (void)state;
    enum { N = 192 };
    static const enum format_id IDS[] = { FORMAT_NF4, FORMAT_FP4 };
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        uint8_t want[N / 64 * 36], got[N / 64 * 36];
        float x[N], back[N], largest[N / 64];
        struct rng r = { 8 };
        fill_gauss(&r, x, N, 1);
        f->encode(x, want, N);
        for (int u = 0; u < N / 64; u++) memcpy(&largest[u], want + u * 36, sizeof *largest);
        format_codebook_encode(f, largest, x, got, N);
        assert_memory_equal(got, want, sizeof want);
        /* One magnitude for all three: as three times the weights of one block would have it; half of it:
         * cut. */
        const float most = MAX(largest[0], MAX(largest[1], largest[2]));
        for (int u = 0; u < N / 64; u++) largest[u] = most;
        format_codebook_encode(f, largest, x, got, N);
        f->decode(got, back, N);
        for (int j = 0; j < N; j++) CHECK_LE(fabsf(x[j] - back[j]), 0.17f * most);
        for (int u = 0; u < N / 64; u++) largest[u] = most / 2;
        format_codebook_encode(f, largest, x, got, N);
        f->decode(got, back, N);
        for (int j = 0; j < N; j++)
            if (fabsf(x[j]) >= most / 2) CHECK_EQ(back[j], copysignf(most / 2, x[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files),
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(importance_lowers_its_error),
        cmocka_unit_test(rows_of_codes),
        cmocka_unit_test(codebooks_with_given_magnitudes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
