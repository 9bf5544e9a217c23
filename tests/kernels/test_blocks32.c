/* Proves: q4_1 q5_0 q5_1 iq4_nl mxfp4 tq1_0 tq2_0 encode to ggml's bytes and decode to its bits (golden files
 * where they lie beside the checkout, blocks worked by hand here); dots of golden rows with golden
 * activations give the known results on every instruction set; and every vector kernel equals the reference
 * on blocks of random bytes, whose scales take signs, tiny exponents and codes an encoder never writes.
 * test_kernels.c has the lengths, the guard pages and the extremes for these formats too. */
#include <jansson.h>

#include "kernels/half.h"
#include "kernels/kernel_set.h"
#include "tests/kernels/numbers.h"

enum { N = 4 * 512, COLS = 512, ROWS = 4 };

static const enum format_id IDS[] = { FORMAT_Q4_1,  FORMAT_Q5_0,  FORMAT_Q5_1, FORMAT_IQ4_NL,
                                      FORMAT_MXFP4, FORMAT_TQ1_0, FORMAT_TQ2_0 };

static int64_t read_shared(const char *name, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/gguf/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

static void golden_files(void **state)
{
    (void)state;
    static const char *const INPUTS[] = { "uniform", "gauss", "outlier", "edge" };
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/gguf/manifest.json");
    static float x[N], want[N], got[N];
    static uint8_t want_bytes[N * 4], got_bytes[N * 4];
    for (size_t i = 0; i < COUNT_OF(INPUTS); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.in.f32", INPUTS[i]);
        const int64_t bytes = read_shared(name, x, sizeof x), n = bytes / 4;
        CHECK_EQ(bytes, N * 4);
        for (size_t j = 0; j < COUNT_OF(IDS); j++) {
            const struct format *f = &FORMATS[IDS[j]];
            const int64_t packed = format_row_bytes(f, n);
            snprintf(name, sizeof name, "%s.%s.bin", f->name, INPUTS[i]);
            CHECK_EQ(read_shared(name, want_bytes, sizeof want_bytes), packed);
            f->encode(x, got_bytes, n);
            for (int64_t b = 0; b < packed; b++)
                if (got_bytes[b] != want_bytes[b])
                    fail_msg("%s byte %d: %02x, want %02x", name, (int)b, got_bytes[b], want_bytes[b]);
            snprintf(name, sizeof name, "%s.%s.deq.f32", f->name, INPUTS[i]);
            CHECK_EQ(read_shared(name, want, sizeof want), bytes);
            f->decode(want_bytes, got, n);
            for (int64_t k = 0; k < n; k++)
                if (bits_of(got[k]) != bits_of(want[k]))
                    fail_msg("%s weight %d: %.9g, want %.9g", name, (int)k, got[k], want[k]);
        }
    }
}

/* y[ROWS] = rows of w times x, in f32 and with 8-bit activations, by the kernels of `k`. */
static void products(const struct kernel_set *k, enum format_id id, const uint8_t *w, const float *x,
                     float y[2][ROWS])
{
    static int8_t q[COLS];
    static float scale[COLS / Q8_BLOCK], sum[COLS / Q8_BLOCK];
    k->vec.quantize_q8(x, COLS, q, scale, sum);
    struct dot d = { .w = w, .row_bytes = format_row_bytes(&FORMATS[id], COLS), .rows = ROWS, .cols = COLS };
    d.x = x, d.n = 1, d.y_stride = ROWS;
    d.q = (struct act_q8){ .q = q, .d = scale, .sum = sum, .q_stride = COLS, .d_stride = COLS / Q8_BLOCK };
    d.y = y[0], k->format[id].dot_f32(&d);
    d.y = y[1], k->format[id].dot_q8(&d);
}

static double number_at(const json_t *entry, const char *key, int i)
{
    return json_number_value(json_array_get(json_object_get(entry, key), (size_t)i));
}

/* One file of dots.json with every instruction set. The field's 32-wide 8-bit activations differ from ours by
 * a scale (and sum) rounded to 16 bits; its 256-wide ones differ more than that, so there the exact product
 * is what both approximate: with 3 % of the root of the squared terms. */
static void golden_dots_of(const json_t *entry, enum format_id id, const float *x)
{
    static uint8_t w[N * 4];
    static float decoded[N];
    const char *file = json_string_value(json_object_get(entry, "file"));
    const bool wide = !strcmp(json_string_value(json_object_get(entry, "pair")), "q8_K");
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    CHECK_EQ(read_shared(file, w, sizeof w), format_row_bytes(&FORMATS[id], N));
    FORMATS[id].decode(w, decoded, N);
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(levels[l]->bits);
        float y[2][ROWS];
        products(&k, id, w, x, y);
        for (int r = 0; r < ROWS; r++) {
            const double exact = number_at(entry, "y_exact", r);
            double terms = 0, squares = 0;
            for (int c = 0; c < COLS; c++) {
                const double term = (double)decoded[r * COLS + c] * x[c];
                terms += fabs(term), squares += term * term;
            }
            if (!(fabs(y[0][r] - exact) <= 1e-6 * terms))
                fail_msg("%s %s row %d f32: %.9g, want %.9g", file, levels[l]->name, r, y[0][r], exact);
            const double q8 = wide ? exact : number_at(entry, "y_q8", r);
            if (!(fabs(y[1][r] - q8) <= (wide ? 0.03 * sqrt(squares) : 1e-3 * terms)))
                fail_msg("%s %s row %d q8: %.9g, want %.9g", file, levels[l]->name, r, y[1][r], q8);
        }
    }
}

static void golden_dots(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/gguf/dots.json");
    static float x[COLS];
    CHECK_EQ(read_shared("activation.in.f32", x, sizeof x), sizeof x);
    json_t *all = json_load_file(path, 0, NULL);
    CHECK(json_is_array(all));
    int seen = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *file = json_string_value(json_object_get(entry, "file"));
        for (size_t j = 0; j < COUNT_OF(IDS); j++) {
            const size_t length = strlen(FORMATS[IDS[j]].name);
            if (strncmp(file, FORMATS[IDS[j]].name, length) || file[length] != '.') continue;
            golden_dots_of(entry, IDS[j], x), seen++;
        }
    }
    CHECK_GE(seen, (int)COUNT_OF(IDS));
    json_decref(all);
}

/* Every decode gives the same bits and every dot the same sums, on random bytes that no encoder wrote. */
static void random_blocks(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    const struct kernel_set ref = kernels_select(0);
    struct rng r = { 32 };
    static float x[COLS], want_row[N], got_row[N];
    static uint8_t w[N * 4];
    for (int round = 0; round < 50; round++) {
        fill_gauss(&r, x, COLS, 3);
        for (size_t j = 0; j < COUNT_OF(IDS); j++) {
            const int64_t bytes = format_row_bytes(&FORMATS[IDS[j]], N);
            for (int64_t i = 0; i < bytes; i++) w[i] = (uint8_t)(rng_u32(&r) >> 24) & 0xbf; /* no NaN */
            if (IDS[j] == FORMAT_MXFP4) w[0] = (uint8_t)round;                              /* tiny scales */
            float want[2][ROWS], got[2][ROWS];
            products(&ref, IDS[j], w, x, want);
            FORMATS[IDS[j]].decode(w, want_row, N);
            for (size_t l = 1; l < count; l++) {
                const struct kernel_set k = kernels_select(levels[l]->bits);
                const char *what = FORMATS[IDS[j]].name;
                k.format[IDS[j]].decode(w, got_row, N);
                if (memcmp(want_row, got_row, sizeof want_row))
                    fail_msg("%s %s decode", levels[l]->name, what);
                products(&k, IDS[j], w, x, got);
                for (int y = 0; y < 2 * ROWS; y++) {
                    double terms = 0;
                    for (int c = 0; c < COLS; c++)
                        terms += fabs((double)want_row[y % ROWS * COLS + c] * x[c]);
                    if (!(fabs((double)want[y / ROWS][y % ROWS] - got[y / ROWS][y % ROWS]) <= 2e-6 * terms))
                        fail_msg("%s %s %s: %.9g, want %.9g", levels[l]->name, what, y < ROWS ? "f32" : "q8",
                                 got[y / ROWS][y % ROWS], want[y / ROWS][y % ROWS]);
                }
            }
        }
    }
}

/* Encodes one block and compares its bytes with `want`; decoded, it must be x again where `exact`. */
static void block_is(enum format_id id, const float *x, const uint8_t *want, bool exact)
{
    uint8_t got[72];
    float back[256];
    const struct format *f = &FORMATS[id];
    f->encode(x, got, f->block_weights);
    for (uint32_t i = 0; i < f->block_bytes; i++)
        if (got[i] != want[i]) fail_msg("%s byte %d: %02x, want %02x", f->name, (int)i, got[i], want[i]);
    f->decode(got, back, f->block_weights);
    for (uint32_t i = 0; i < f->block_weights && exact; i++)
        if (back[i] != x[i]) fail_msg("%s weight %d: %g, want %g", f->name, (int)i, back[i], x[i]);
}

/* Codes 0..15 twice: byte j holds code j in both halves. */
static void same_nibbles(uint8_t *codes)
{
    for (int j = 0; j < 16; j++) codes[j] = (uint8_t)(j | j << 4);
}

static void linear_by_hand(void **state)
{
    (void)state;
    float x[32];
    uint8_t want[32];
    for (int j = 0; j < 32; j++) x[j] = (float)(2 * (j & 15) - 10); /* d = 2, m = -10 */
    store_u16(want, 0x4000), store_u16(want + 2, 0xc900), same_nibbles(want + 4);
    block_is(FORMAT_Q4_1, x, want, true);

    /* Codes 0..31: the upper sixteen have the fifth bit. */
    for (int j = 0; j < 32; j++) x[j] = (float)j / 2 + 1; /* d = 0.5, m = 1 */
    store_u16(want, 0x3800), store_u16(want + 2, 0x3c00);
    store_u16(want + 4, 0), store_u16(want + 6, 0xffff), same_nibbles(want + 8);
    block_is(FORMAT_Q5_1, x, want, true);
    for (int j = 0; j < 32; j++) x[j] = (float)(j - 16) / 4; /* the extreme, -4, is code 0: d = 0.25 */
    store_u16(want, 0x3400), store_u16(want + 2, 0), store_u16(want + 4, 0xffff), same_nibbles(want + 6);
    block_is(FORMAT_Q5_0, x, want, true);

    /* Nothing to scale. */
    memset(x, 0, sizeof x), memset(want, 0, sizeof want);
    block_is(FORMAT_Q4_1, x, want, true);
    block_is(FORMAT_Q5_1, x, want, true);
    store_u16(want, 0x8000), memset(want + 2, 0xff, 4); /* 0 / -16 is minus zero; every code is 16 */
    block_is(FORMAT_Q5_0, x, want, true);
    for (int j = 0; j < 32; j++) x[j] = -0.75f;
    memset(want, 0, sizeof want), store_u16(want + 2, 0xba00);
    block_is(FORMAT_Q4_1, x, want, true);
    block_is(FORMAT_Q5_1, x, want, true);
}

static void tables_by_hand(void **state)
{
    (void)state;
    static const float IQ4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    static const float E2M1[16] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6 };
    float x[32];
    uint8_t want[32] = { 0 };
    for (int j = 0; j < 32; j++) x[j] = IQ4[j & 15] / 32; /* the search must find what fits exactly */
    store_u16(want, 0x2800), same_nibbles(want + 2);
    block_is(FORMAT_IQ4_NL, x, want, true);
    for (int j = 0; j < 32; j++) x[j] = E2M1[j & 15];
    want[0] = 127, same_nibbles(want + 1), want[9] = 0; /* of the two zeros the first */
    block_is(FORMAT_MXFP4, x, want, true);

    memset(x, 0, sizeof x), memset(want, 0, sizeof want);
    block_is(FORMAT_MXFP4, x, want, true);
    memset(want + 2, 0x88, 16); /* the value nearest to 0 is 1; its scale is 0 */
    block_is(FORMAT_IQ4_NL, x, want, true);

    /* The logarithm is rounded before its floor: just below 1024 it is 10. */
    uint8_t block[17];
    x[7] = -1023.99994f;
    FORMATS[FORMAT_MXFP4].encode(x, block, 32);
    CHECK_EQ(block[0], 135);
    x[7] = -1023.9f;
    FORMATS[FORMAT_MXFP4].encode(x, block, 32);
    CHECK_EQ(block[0], 134);
    CHECK_EQ(block[8], 0x0f);

    /* The two smallest exponents are subnormal scales, 2^-128 and 2^-127. */
    memset(block, 0x11, sizeof block);
    for (int e = 0; e < 3; e++) {
        block[0] = (uint8_t)e;
        FORMATS[FORMAT_MXFP4].decode(block, x, 32);
        CHECK_EQ(x[0], ldexpf(1, e - 128));
        CHECK_EQ(x[31], x[0]);
    }
}

static void ternary_by_hand(void **state)
{
    (void)state;
    float x[256] = { 0 };
    uint8_t one[54], two[66];
    /* t = 1 everywhere: tq1_0 has ceil(121 * 256 / 243) and, for four trits, ceil(120 * 256 / 243). */
    memset(one, 0x80, 48), memset(one + 48, 0x7f, 4), store_u16(one + 52, 0);
    memset(two, 0x55, 64), store_u16(two + 64, 0);
    block_is(FORMAT_TQ1_0, x, one, true);
    block_is(FORMAT_TQ2_0, x, two, true);
    /* Weight 33 is byte 1's second; 239 the fifth of byte 15 of the second run; 255 the last of the third. */
    x[33] = 0.5f, x[239] = -0.5f, x[255] = 0.5f;
    one[1] = 0x9c, one[47] = 0x7f, one[51] = 0x82, store_u16(one + 52, 0x3800);
    two[1] = 0x59, two[47] = 0x15, two[63] = 0x95, store_u16(two + 64, 0x3800);
    block_is(FORMAT_TQ1_0, x, one, true);
    block_is(FORMAT_TQ2_0, x, two, true);
    /* Half of the largest rounds away from 0, less than half to 0. */
    x[0] = 0.25f, x[32] = 0.24f;
    one[0] = 0xd5, two[0] = 0x56; /* v = 121 + 81 */
    block_is(FORMAT_TQ1_0, x, one, false);
    block_is(FORMAT_TQ2_0, x, two, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files),   cmocka_unit_test(golden_dots),    cmocka_unit_test(random_blocks),
        cmocka_unit_test(linear_by_hand), cmocka_unit_test(tables_by_hand), cmocka_unit_test(ternary_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
