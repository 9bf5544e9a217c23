/* Proves: the codebook formats (iq1_s to iq3_s) and the blocks of 64 and 128 weights (nvfp4, q1_0, q2_0) put
 * bits where their layout says (blocks by hand), decode to the bits of another implementation on every
 * instruction set, also codes that no encoder writes, and encode to its bytes, with and without importance.
 * The exceptions are stated in DIFFERENT. Encoders stay finite and deterministic where there is nothing to
 * choose by: zero weights, zero importance. */
#include "kernels/cpu.h"
#include "kernels/formats/blocks64/layout.h"
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "tests/kernels/numbers.h"

enum { ROWS = 4, COLS = 512, N = ROWS * COLS, MOST_CODES = 4096 };

static const enum format_id IDS[] = { FORMAT_IQ1_S, FORMAT_IQ1_M,   FORMAT_IQ2_XXS, FORMAT_IQ2_XS,
                                      FORMAT_IQ2_S, FORMAT_IQ3_XXS, FORMAT_IQ3_S,   FORMAT_NVFP4,
                                      FORMAT_Q1_0,  FORMAT_Q2_0 };
static const char *const INPUTS[] = { "uniform", "gauss", "outlier", "edge" };

/* ---------------------------------------------------------------- by hand */

static void all_are(enum format_id id, const uint8_t *block, float want)
{
    float x[256];
    FORMATS[id].decode(block, x, FORMATS[id].block_weights);
    for (uint32_t i = 0; i < FORMATS[id].block_weights; i++) CHECK_EQ(x[i], want);
}

/* d = 2 (f16 0x4000). */
static void blocks_by_hand(void **state)
{
    (void)state;
    uint8_t b[128] = { 0, 0x40 };
    all_are(FORMAT_IQ2_XXS, b, 2 * 0.5f / 4 * 8); /* row 0 of the 2-bit codebooks is all 8 */
    all_are(FORMAT_IQ2_XS, b, 2 * 0.5f / 4 * 8);
    all_are(FORMAT_IQ2_S, b, 2 * 0.5f / 4 * 8);
    all_are(FORMAT_IQ3_XXS, b, 2 * 0.5f / 2 * 4);
    all_are(FORMAT_IQ3_S, b, 2 * 1);
    all_are(FORMAT_IQ1_S, b, 2 * (-1 + 0.125f));
    for (int i = IQ1_S_HIGH; i < IQ1_S_HIGH + 16; i += 2) b[i + 1] = 0xb0; /* scale 3, shift down */
    all_are(FORMAT_IQ1_S, b, 2 * 7 * (-1 - 0.125f));
    memset(b + 2, 0xff, 32); /* row 2047: all 1 */
    for (int i = IQ1_S_HIGH; i < IQ1_S_HIGH + 16; i += 2) b[i] = 0xff, b[i + 1] = 0x0f;
    all_are(FORMAT_IQ1_S, b, 2 * (1 + 0.125f));

    memset(b, 0, sizeof b); /* iq1_m: d in the upper nibbles of the scales' words, highest last; scale 5 */
    for (int i = 0; i < 4; i++) store_u16(b + IQ1_M_SCALES + 2 * i, (uint16_t)(05555 | (i == 3) * 0x4000));
    memset(b + IQ1_M_HIGH, 0x88, 16);
    all_are(FORMAT_IQ1_M, b, 2 * 11 * (-1 - 0.125f));

    memset(b, 0, sizeof b); /* one sign field of 7 bits: weights 0 and 7 of the first eight are negative */
    b[1] = 0x40, b[6] = 1;
    float x[256];
    FORMATS[FORMAT_IQ2_XXS].decode(b, x, 256);
    for (int i = 0; i < 256; i++) CHECK_EQ(x[i], i == 0 || i == 7 ? -2.0f : 2.0f);

    memset(b, 0, sizeof b);
    b[1] = 0x40, b[2] = 1, b[17] = 0x80;
    FORMATS[FORMAT_Q1_0].decode(b, x, 128);
    for (int i = 0; i < 128; i++) CHECK_EQ(x[i], i == 0 || i == 127 ? 2.0f : -2.0f);
    b[2] = 0xe4, b[17] = 0x40; /* codes 0 1 2 3, ..., 1 */
    FORMATS[FORMAT_Q2_0].decode(b, x, 64);
    for (int i = 0; i < 4; i++) CHECK_EQ(x[i], 2.0f * (float)(i - 1));
    CHECK_EQ(x[62], -2);
    CHECK_EQ(x[63], 0);

    memset(b, 0, sizeof b); /* nvfp4: scales 1, 2^-9, 448 and none; codes 3 (1.5) low, 9 (-0.5) high */
    b[0] = 0x38, b[1] = 0x01, b[2] = 0x7e, b[3] = 0x7f;
    memset(b + 4, 0x93, 32);
    static const float SCALES[] = { 1, 0x1p-9f, 448, 0 };
    FORMATS[FORMAT_NVFP4].decode(b, x, 64);
    for (int i = 0; i < 64; i++) CHECK_EQ(x[i], SCALES[i / 16] * (i % 16 < 8 ? 1.5f : -0.5f));
}

/* Every sign field of seven bits stands for eight signs with an even number of negative ones. */
static void signs(void **state)
{
    (void)state;
    for (uint32_t seven = 0; seven < 128; seven++) {
        const uint32_t all = iq_signs_of_28(seven | seven << 7 | seven << 14 | seven << 21);
        for (int g = 0; g < 4; g++) {
            const uint32_t eight = all >> 8 * g & 0xff;
            CHECK_EQ(eight & 127, seven);
            CHECK_EQ(__builtin_popcount(eight) % 2, 0);
        }
    }
}

/* ---------------------------------------------------------------- golden files */

static int64_t read_golden(const char *name, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden2/gguf/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

static void golden_decoding(void **state)
{
    (void)state;
    static uint8_t blocks[MOST_CODES];
    static float want[MOST_CODES], got[MOST_CODES];
    char path[512], name[64];
    SHARED_OR_SKIP(path, "quant-golden2/gguf/imatrix.f32");
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        snprintf(name, sizeof name, "%s.codes.bin", f->name);
        const int64_t bytes = read_golden(name, blocks, sizeof blocks);
        CHECK_GT(bytes, 0);
        CHECK_EQ(bytes % f->block_bytes, 0);
        const int64_t n = bytes / f->block_bytes * f->block_weights;
        snprintf(name, sizeof name, "%s.codes.deq.f32", f->name);
        CHECK_EQ(read_golden(name, want, sizeof want), n * 4);
        for (size_t l = 0; l < count; l++) {
            const struct kernel_set k = kernels_select(levels[l]->bits);
            k.format[IDS[i]].decode(blocks, got, n);
            if (memcmp(got, want, (size_t)n * 4)) fail_msg("%s: %s: values", levels[l]->name, f->name);
        }
    }
}

/* Blocks of 256 of an input whose bytes are not those of the other implementation, and why. */
static const struct {
    enum format_id id;
    const char *input;
    bool important;
    uint32_t blocks; /* bit b: block b */
    double most;     /* the error of the input, relative to the other implementation's */
} DIFFERENT[] = {
    /* Equal weights: several choices fit exactly, and rounding decides, in both implementations. */
    { FORMAT_IQ1_M, "edge", false, 1 << 6, 2 },
    { FORMAT_IQ1_M, "edge", true, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6, 2 },
    /* After 32 zeros, the other one stores what follows 32 weights too early: the only weight is lost. */
    { FORMAT_IQ3_S, "edge", false, 1 << 4, 0.9 },
    { FORMAT_IQ3_S, "edge", true, 1 << 4, 0.9 },
};

static double weighted_error(const float *x, const float *y, const float *importance, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = (double)x[i] - y[i];
        sum += e * e * (importance ? (double)importance[i % COLS] : 1);
    }
    return sum;
}

/* Returns 1 if there is such a file. */
static int golden_encoding_of(const struct format *f, const char *input, const float *importance)
{
    static float x[N], theirs[N], ours[N];
    static uint8_t want[N * 4], got[N * 4];
    char name[64];
    snprintf(name, sizeof name, "%s.in.f32", input);
    CHECK_EQ(read_golden(name, x, sizeof x), sizeof x);
    snprintf(name, sizeof name, "%s.%s%s.bin", f->name, input, importance ? ".imatrix" : "");
    const int64_t bytes = read_golden(name, want, sizeof want);
    if (bytes < 0) return 0;
    CHECK_EQ(bytes, ROWS * format_row_bytes(f, COLS));
    format_encode_weighted(f, x, importance, got, ROWS, COLS);
    uint32_t may = 0;
    double most = 1;
    for (size_t i = 0; i < COUNT_OF(DIFFERENT); i++)
        if (f == &FORMATS[DIFFERENT[i].id] && !strcmp(DIFFERENT[i].input, input) &&
            DIFFERENT[i].important == !!importance)
            may = DIFFERENT[i].blocks, most = DIFFERENT[i].most;
    uint32_t differ = 0;
    for (int64_t b = 0; b < bytes / f->block_bytes; b++)
        if (memcmp(got + b * f->block_bytes, want + b * f->block_bytes, f->block_bytes)) differ |= 1u << b;
    if (differ != may) fail_msg("%s: blocks %x differ", name, (unsigned)differ);
    if (may) {
        f->decode(want, theirs, N);
        f->decode(got, ours, N);
        CHECK_LE(weighted_error(x, ours, importance, N), most * weighted_error(x, theirs, importance, N));
    }
    return 1;
}

static void golden_encoding(void **state)
{
    (void)state;
    static float importance[COLS];
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden2/gguf/imatrix.f32");
    CHECK_EQ(read_golden("imatrix.f32", importance, sizeof importance), sizeof importance);
    int plain = 0, important = 0;
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        for (size_t j = 0; j < COUNT_OF(INPUTS); j++) {
            plain += golden_encoding_of(&FORMATS[IDS[i]], INPUTS[j], NULL);
            important += golden_encoding_of(&FORMATS[IDS[i]], INPUTS[j], importance);
        }
    }
    CHECK_EQ(plain, 7 * 4); /* three formats need importance */
    CHECK_EQ(important, 7 * 4);
}

/* ---------------------------------------------------------------- nothing to choose by */

/* One weight among zeros keeps its place; zero importance and zero weights give finite results. */
static void degenerate(void **state)
{
    (void)state;
    static float x[512], y[512], none[512];
    static uint8_t blocks[2048], again[2048];
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        for (int kind = 0; kind < 3; kind++) {
            memset(x, 0, sizeof x);
            if (kind) x[300] = 3;
            memset(blocks, 0xff, sizeof blocks);
            memset(again, 0, sizeof again);
            format_encode_weighted(f, x, kind == 2 ? none : NULL, blocks, 1, 512);
            format_encode_weighted(f, x, kind == 2 ? none : NULL, again, 1, 512);
            assert_memory_equal(blocks, again, (size_t)format_row_bytes(f, 512));
            f->decode(blocks, y, 512);
            for (int j = 0; j < 512; j++) CHECK(isfinite(y[j]));
            if (kind != 1 || f->max_nmse > 0.2) continue; /* one bit: a zero is as large as the weight */
            for (int j = 0; j < 512; j++)
                if (j != 300 && fabsf(y[j]) >= fabsf(y[300]))
                    fail_msg("%s: weight %d became %g, weight 300 %g", f->name, j, y[j], y[300]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_by_hand),  cmocka_unit_test(signs),      cmocka_unit_test(golden_decoding),
        cmocka_unit_test(golden_encoding), cmocka_unit_test(degenerate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
