/* Proves: the formats that ggml does not have represent the results of other quantizers. fp8 converts by its
 * definition, for every code and every tie. int8 rows, nf4 and fp4 blocks and doubly quantized scales equal
 * those of quanto and bitsandbytes byte for byte (golden files, if they are beside the checkout). Codes,
 * scales and zero points of AWQ, GPTQ, HQQ and quanto stored in the group formats decode to those tools'
 * values, up to f16 rounding where they store f32. The encoders round to nearest and handle ranges on one
 * side of 0, zeros, and values near the limits. */
#include "kernels/formats/fp8/codes.h"
#include "tests/kernels/numbers.h"

enum { N = 64, K = 256, ALL = N * K };

/* ---------------------------------------------------------------- fp8 */

static double fp8_value(int code, int exponent_bits)
{
    const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int e = code >> mantissa_bits & ((1 << exponent_bits) - 1), m = code & ((1 << mantissa_bits) - 1);
    const double v = e ? ldexp(1 + ldexp(m, -mantissa_bits), e - bias) : ldexp(m, 1 - bias - mantissa_bits);
    return code & 0x80 ? -v : v;
}

static void fp8_by_definition(void **state)
{
    (void)state;
    static const struct {
        const struct fp8_kind *kind;
        float (*decode)(uint8_t);
        int exponent_bits, finite; /* codes up to here are numbers */
    } KINDS[] = { { &E4M3, e4m3_to_float, 4, 0x7e }, { &E5M2, e5m2_to_float, 5, 0x7b } };
    for (size_t k = 0; k < COUNT_OF(KINDS); k++) {
        for (int code = 0; code <= KINDS[k].finite; code++) {
            const float v = KINDS[k].decode((uint8_t)code);
            CHECK_EQ(v, fp8_value(code, KINDS[k].exponent_bits));
            CHECK_EQ(KINDS[k].decode((uint8_t)(code | 0x80)), -v);
            CHECK_EQ(fp8_from_float(KINDS[k].kind, v), code);
            CHECK_EQ(fp8_from_float(KINDS[k].kind, -v), code | 0x80);
            if (code == KINDS[k].finite) continue;
            const float up = KINDS[k].decode((uint8_t)(code + 1)), middle = (v + up) / 2; /* exact */
            CHECK_EQ(fp8_from_float(KINDS[k].kind, middle), code + (code & 1));
            CHECK_EQ(fp8_from_float(KINDS[k].kind, nextafterf(middle, 0)), code);
            CHECK_EQ(fp8_from_float(KINDS[k].kind, nextafterf(middle, up)), code + 1);
        }
        CHECK_EQ(fp8_from_float(KINDS[k].kind, INFINITY), KINDS[k].finite);
        CHECK_EQ(fp8_from_float(KINDS[k].kind, -3e38f), KINDS[k].finite | 0x80);
        CHECK_EQ(fp8_from_float(KINDS[k].kind, 1e-45f), 0);
    }
    CHECK_EQ(e4m3_to_float(0x7e), E4M3_MAX);
    CHECK_EQ(e5m2_to_float(0x7b), E5M2_MAX);
    CHECK(isinf(e5m2_to_float(0x7c)));
    CHECK_NAN(e5m2_to_float(0x7e));
}

/* A row's scale is its largest magnitude over the format's, the largest weight its largest code. */
static void fp8_rows(void **state)
{
    (void)state;
    static const float x[5] = { 0.5f, -2, 1e-6f, 0.125f, 0 };
    uint8_t row[5 + 4];
    float scale, back[5];
    FORMATS[FORMAT_FP8_E4M3].encode(x, row, 5);
    memcpy(&scale, row + 5, sizeof scale);
    CHECK_EQ(scale, 2.f / 448);
    CHECK_EQ(row[1], 0xfe);
    CHECK_EQ(row[0], 0x6e);
    CHECK_EQ(row[2], 0);
    CHECK_EQ(row[4], 0);
    FORMATS[FORMAT_FP8_E4M3].decode(row, back, 5);
    CHECK_EQ(back[1], 448 * scale * -1);
    CHECK_EQ(back[0], 112 * scale);
    CHECK_EQ(back[3], 28 * scale);
    CHECK_EQ(back[4], 0);
    FORMATS[FORMAT_FP8_E5M2].encode(x, row, 5);
    memcpy(&scale, row + 5, sizeof scale);
    CHECK_EQ(scale, 2.f / 57344);
    CHECK_EQ(row[1], 0xfb);
    memset(back, 0, sizeof back);
    FORMATS[FORMAT_FP8_E4M3].encode(back, row, 5); /* nothing but zeros */
    memcpy(&scale, row + 5, sizeof scale);
    CHECK_EQ(scale, 1e-12f / 448);
    CHECK_EQ(row[0], 0);
}

/* ---------------------------------------------------------------- golden files */

static int64_t load(const char *name, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/peers/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no %s", path);
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

#define LOAD(name, array) CHECK_EQ(load(name, array, sizeof(array)), (int64_t)sizeof(array))

static void load_weight(float *w)
{
    static uint16_t halves[ALL];
    LOAD("in/weight.f16", halves);
    for (int i = 0; i < ALL; i++) w[i] = f16_to_f32(halves[i]);
}

static void int8_is_quantos(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    static float w[ALL], scale[N];
    static int8_t codes[ALL];
    load_weight(w);
    LOAD("quanto/qint8.data.i8", codes);
    LOAD("quanto/qint8.scale.f32", scale);
    for (int r = 0; r < N; r++) {
        uint8_t row[K + 4];
        float back[K];
        FORMATS[FORMAT_INT8].encode(w + r * K, row, K);
        assert_memory_equal(row, codes + r * K, K);
        assert_memory_equal(row + K, &scale[r], sizeof scale[r]);
        FORMATS[FORMAT_INT8].decode(row, back, K);
        for (int k = 0; k < K; k++) CHECK_EQ(back[k], (float)codes[r * K + k] * scale[r]);
    }
}

/* Codes in bitsandbytes' packing: the first of two in the upper half of a byte. */
static int bnb_code(const uint8_t *packed, int i)
{
    return packed[i / 2] >> (i % 2 ? 0 : 4) & 15;
}

/* And in a unit of ours: byte j of 16 holds codes j and j + 16 of 32. */
static int unit_code(const uint8_t *codes, int i)
{
    return codes[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
}

static void codebooks_are_bitsandbytes(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    static const struct {
        enum format_id id;
        const char *packed, *absmax, *deq;
        int ties; /* in the middle of two negative values the peer takes the other one */
    } BOOKS[] = {
        { FORMAT_NF4, "bnb/nf4.b64.packed.u8", "bnb/nf4.b64.absmax.f32", "bnb/nf4.b64.deq.f32", 0 },
        { FORMAT_FP4, "bnb/fp4.b64.packed.u8", "bnb/fp4.b64.absmax.f32", "bnb/fp4.b64.deq.f32", 2 },
    };
    static float w[ALL], absmax[ALL / 64], deq[ALL], back[ALL];
    static uint8_t packed[ALL / 2], blocks[ALL / 64 * 36];
    load_weight(w);
    for (size_t b = 0; b < COUNT_OF(BOOKS); b++) {
        CHECK_EQ(load(BOOKS[b].packed, packed, sizeof packed), sizeof packed);
        CHECK_EQ(load(BOOKS[b].absmax, absmax, sizeof absmax), sizeof absmax);
        CHECK_EQ(load(BOOKS[b].deq, deq, sizeof deq), sizeof deq);
        FORMATS[BOOKS[b].id].encode(w, blocks, ALL);
        FORMATS[BOOKS[b].id].decode(blocks, back, ALL);
        int ties = 0;
        for (int i = 0; i < ALL; i++) {
            const uint8_t *block = blocks + i / 64 * 36;
            assert_memory_equal(block, &absmax[i / 64], sizeof *absmax);
            if (back[i] == deq[i]) {
                const int got = unit_code(block + 4, i % 64), want = bnb_code(packed, i);
                if (got != want && deq[i] != 0) fail_msg("weight %d: code %d, want %d", i, got, want);
                continue;
            }
            CHECK_NEAR(fabs((double)w[i] - back[i]), fabs((double)w[i] - deq[i]), 1e-8);
            ties++;
        }
        CHECK_LE(ties, BOOKS[b].ties);
    }
}

static void double_quantization_is_bitsandbytes(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    static float w[ALL], restored[ALL / 64], back[ALL], unit[ALL];
    static uint8_t packed[ALL / 2], codes[ALL / 64], blocks[ALL / 256 * 140], rows[sizeof blocks];
    static uint8_t plain[ALL / 64 * 36];
    float largest[1], offset[1];
    load_weight(w);
    LOAD("bnb/nf4.b64.packed.u8", packed);
    LOAD("bnb/nf4.b64.dq.qabsmax.u8", codes);
    LOAD("bnb/nf4.b64.dq.absmax2.f32", largest);
    LOAD("bnb/nf4.b64.dq.offset.f32", offset);
    LOAD("bnb/nf4.b64.dq.absmax_restored.f32", restored);
    const struct format *f = &FORMATS[FORMAT_NF4_DQ];
    const struct nested_scales scales = { offset[0], largest };
    for (int from = 0; from < ALL; from += ALL / 4) /* as a quantizer would, a part at a time */
        format_nested_encode(f, &scales, from, w + from, blocks + from / 256 * 140, ALL / 4);
    f->decode(blocks, back, ALL);
    FORMATS[FORMAT_NF4].encode(w, plain, ALL);
    for (int i = 0; i < ALL / 64; i++) memcpy(plain + i * 36, &(float){ 1 }, sizeof(float));
    FORMATS[FORMAT_NF4].decode(plain, unit, ALL);
    for (int i = 0; i < ALL; i++) {
        const uint8_t *block = blocks + i / 256 * 140;
        assert_memory_equal(block, largest, sizeof *largest);
        assert_memory_equal(block + 4, offset, sizeof *offset);
        CHECK_EQ(block[8 + i / 64 % 4], codes[i / 64]);
        CHECK_EQ(unit_code(block + 12 + i / 64 % 4 * 32, i % 64), bnb_code(packed, i));
        CHECK_EQ(back[i], unit[i] * restored[i / 64]);
    }
    /* By rows, as `encode` does it: other scales, hardly another error. */
    static float by_row[ALL];
    format_encode_rows(f, w, rows, N, K);
    format_decode_rows(f, rows, by_row, N, K);
    CHECK_LE(nmse(w, by_row, ALL), 1.02 * nmse(w, back, ALL));
    for (int r = 0; r < N; r++) { /* a row's bytes do not depend on its neighbours */
        f->encode(w + r * K, blocks, K);
        assert_memory_equal(blocks, rows + r * 140, 140);
    }
}

/* ---------------------------------------------------------------- groups */

/* One tensor of groups as a peer left it: codes in the order of its inputs, scales and zeros by group. */
struct peer {
    const char *name;
    enum format_id id;
    int groups;
    const uint8_t *code;
    const float *scale, *zero;
    double zero_error; /* a zero is rounded to f16: relative to itself; 0 where it is an integer */
};

static void pack_and_compare(const struct peer *p)
{
    const struct format *f = &FORMATS[p->id];
    const int g = (int)f->block_weights;
    CHECK_LT(0, format_group_bits(f));
    CHECK_EQ(p->groups * g, ALL);
    for (int i = 0; i < p->groups; i++) {
        struct group_codes in = { .scale = p->scale[i], .zero = p->zero[i] }, out;
        uint8_t block[132];
        float back[128];
        memcpy(in.code, p->code + i * g, (size_t)g);
        format_group_pack(f, &in, block);
        format_group_unpack(f, block, &out);
        assert_memory_equal(out.code, in.code, (size_t)g);
        CHECK_EQ(out.scale, f16_to_f32(f16_from_f32(in.scale)));
        CHECK_LE(fabs((double)out.zero - in.zero), p->zero_error * fabs(in.zero));
        f->decode(block, back, g);
        for (int k = 0; k < g; k++) {
            const float want = ((float)in.code[k] - in.zero) * in.scale;
            CHECK_EQ(back[k], (float)(((double)out.code[k] - out.zero) * out.scale)); /* one rounding */
            const double scale_error = out.scale == in.scale ? 0 : 0x1p-11 * fabs(want);
            const double limit = scale_error + 1.001 * p->zero_error * fabs(in.zero * in.scale) +
                                 0x1p-23 * fabs(want);
            if (!(fabs((double)back[k] - want) <= limit))
                fail_msg("%s group %d weight %d: %.9g, want %.9g", p->name, i, k, back[k], want);
        }
    }
}

static void awq(void **state)
{
    (void)state;
    char path[512], name[64];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    static const char *const KINDS[] = { "duo", "noduo" };
    static uint8_t code[ALL];
    static float scale[ALL / 128], zero[ALL / 128];
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        snprintf(name, sizeof name, "awq/%s.codes.u8", KINDS[i]);
        LOAD(name, code);
        snprintf(name, sizeof name, "awq/%s.qscale.f32", KINDS[i]);
        LOAD(name, scale);
        snprintf(name, sizeof name, "awq/%s.qzero.f32", KINDS[i]);
        LOAD(name, zero);
        pack_and_compare(&(struct peer){ KINDS[i], FORMAT_U4_G128, ALL / 128, code, scale, zero, 0 });
    }
}

/* With an order of its own (desc_act), inputs are sorted by their group; the gather of x is the caller's. */
static void gptq(void **state)
{
    (void)state;
    char path[512], name[64];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    static const struct {
        const char *name;
        enum format_id id;
        int group;
    } KINDS[] = { { "w4g128", FORMAT_U4_G128, 128 },
                  { "w4g128.asym.desc", FORMAT_U4_G128, 128 },
                  { "w4g64.desc.static", FORMAT_U4_G64, 64 },
                  { "w3g128", FORMAT_U3_G128, 128 },
                  { "w2g64.asym", FORMAT_U2_G64, 64 } };
    static uint8_t code[ALL], sorted[ALL];
    static float scale[ALL / 64], zero[ALL / 64];
    static int32_t group_of[K];
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        const int groups = ALL / KINDS[i].group, of_row = K / KINDS[i].group;
        snprintf(name, sizeof name, "gptq/%s.codes.u8", KINDS[i].name);
        LOAD(name, code);
        snprintf(name, sizeof name, "gptq/%s.g_idx.i32", KINDS[i].name);
        LOAD(name, group_of);
        snprintf(name, sizeof name, "gptq/%s.scale.f32", KINDS[i].name);
        CHECK_EQ(load(name, scale, sizeof scale), groups * (int64_t)sizeof *scale);
        snprintf(name, sizeof name, "gptq/%s.zero.f32", KINDS[i].name);
        CHECK_EQ(load(name, zero, sizeof zero), groups * (int64_t)sizeof *zero);
        for (int r = 0; r < N; r++)
            for (int g = 0, n = 0; g < of_row; g++)
                for (int k = 0; k < K; k++)
                    if (group_of[k] == g) sorted[r * K + n++] = code[r * K + k];
        pack_and_compare(&(struct peer){ KINDS[i].name, KINDS[i].id, groups, sorted, scale, zero, 0 });
    }
}

/* HQQ packs rows of its groups that lie far apart into one word; zeros are fractions. */
static void hqq(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    enum { GROUPS = ALL / 64, THIRDS = 26 };
    static uint8_t code[ALL], bytes[ALL / 2];
    static int32_t words[THIRDS * 64];
    static float scale[GROUPS], zero[GROUPS];
    LOAD("hqq/b8.axis1.packed.u8", code);
    LOAD("hqq/b8.axis1.scale.f32", scale);
    LOAD("hqq/b8.axis1.zero.f32", zero);
    pack_and_compare(&(struct peer){ "hqq 8", FORMAT_U8_G64, GROUPS, code, scale, zero, 0x1p-11 });
    LOAD("hqq/b4.axis1.packed.u8", bytes);
    LOAD("hqq/b4.axis1.scale.f32", scale);
    LOAD("hqq/b4.axis1.zero.f32", zero);
    for (int i = 0; i < ALL; i++) code[i] = bytes[i % (ALL / 2)] >> (i < ALL / 2 ? 4 : 0) & 15;
    pack_and_compare(&(struct peer){ "hqq 4", FORMAT_U4_G64, GROUPS, code, scale, zero, 0x1p-11 });
    CHECK_EQ(load("hqq/b2.axis1.packed.u8", bytes, sizeof bytes), ALL / 4);
    LOAD("hqq/b2.axis1.scale.f32", scale);
    LOAD("hqq/b2.axis1.zero.f32", zero);
    for (int i = 0; i < ALL; i++) code[i] = bytes[i % (ALL / 4)] >> (6 - i / (ALL / 4) * 2) & 3;
    pack_and_compare(&(struct peer){ "hqq 2", FORMAT_U2_G64, GROUPS, code, scale, zero, 0x1p-11 });
    LOAD("hqq/b3.axis1.packed.i32", words);
    LOAD("hqq/b3.axis1.scale.f32", scale);
    LOAD("hqq/b3.axis1.zero.f32", zero);
    for (int i = 0; i < ALL; i++)
        code[i] = (uint8_t)(words[i % (THIRDS * 64)] >> (27 - i / (THIRDS * 64) * 3) & 7);
    pack_and_compare(&(struct peer){ "hqq 3", FORMAT_U3_G64, GROUPS, code, scale, zero, 0x1p-11 });
}

/* quanto adds a shift; in units of the scale that is a zero point, a fraction or (zeropoint) not. */
static void quanto(void **state)
{
    (void)state;
    char path[512], name[64];
    SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json");
    enum { GROUPS = ALL / 128 };
    static const char *const OPTIMIZERS[] = { "max", "hqq", "max.zeropoint" };
    static uint8_t code[ALL], integer[GROUPS];
    static float scale[GROUPS], zero[GROUPS];
    for (int bits = 2; bits <= 4; bits += 2) {
        const enum format_id id = bits == 2 ? FORMAT_U2_G128 : FORMAT_U4_G128;
        for (size_t o = 0; o < COUNT_OF(OPTIMIZERS); o++) {
            const bool whole = strchr(OPTIMIZERS[o], '.');
            snprintf(name, sizeof name, "quanto/qint%d.g128.%s.data.u8", bits, OPTIMIZERS[o]);
            LOAD(name, code);
            snprintf(name, sizeof name, "quanto/qint%d.g128.%s.scale.f32", bits, OPTIMIZERS[o]);
            LOAD(name, scale);
            snprintf(name, sizeof name, "quanto/qint%d.g128.%s.shift.%s", bits, OPTIMIZERS[o],
                     whole ? "u8" : "f32");
            if (whole)
                LOAD(name, integer);
            else
                LOAD(name, zero);
            for (int g = 0; g < GROUPS; g++) zero[g] = whole ? integer[g] : zero[g] / scale[g];
            pack_and_compare(
                &(struct peer){ OPTIMIZERS[o], id, GROUPS, code, scale, zero, whole ? 0 : 0x1p-11 });
        }
    }
}

/* Rounding to nearest: AWQ's scale and zero point, codes nearest for the scale that is stored. */
static void groups_to_nearest(void **state)
{
    (void)state;
    struct rng r = { 77 };
    for (int id = FORMAT_U4_G32; id <= FORMAT_U2_G128; id++) {
        const struct format *f = &FORMATS[id];
        const int n = (int)f->block_weights, most = (1 << format_group_bits(f)) - 1;
        for (int round = 0; round < 50; round++) {
            float x[128], low = 0, high = 0, back[128];
            uint8_t block[68];
            struct group_codes g;
            fill_gauss(&r, x, n, 0.02);
            for (int i = 0; i < n && round % 10 == 9; i++) x[i] = 5 + fabsf(x[i]); /* far from 0 */
            for (int i = 0; i < n; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
            f->encode(x, block, n);
            format_group_unpack(f, block, &g);
            CHECK_EQ(g.scale, f16_to_f32(f16_from_f32((high - low) / (float)most)));
            CHECK_EQ(g.zero, fmax(0, fmin(most, rint(-low / g.scale))));
            f->decode(block, back, n);
            for (int i = 0; i < n; i++) {
                const double want = fmax(0, fmin(most, rint(x[i] / g.scale) + g.zero));
                CHECK_EQ(g.code[i], want);
                CHECK(round % 10 == 9 ? back[i] > 4 : fabs(back[i] - x[i]) <= 0.51 * g.scale + 0.5 * g.scale);
            }
        }
    }
}

/* Nothing but zeros, one weight, and numbers at the ends of f32 stay numbers in every format of ours. */
static void hard_rows(void **state)
{
    (void)state;
    static const float VALUES[] = { 0, 1e-30f, 1e-7f, 3e38f, -3e38f };
    for (int id = FORMAT_FP8_E4M3; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        for (size_t v = 0; v < COUNT_OF(VALUES); v++) {
            float x[512] = { 0 }, back[512];
            uint8_t row[1024];
            for (int i = 0; i < 512; i += v % 2 ? 512 : 1) x[i] = VALUES[v];
            f->encode(x, row, 512);
            f->decode(row, back, 512);
            for (int i = 0; i < 512; i++) {
                CHECK(isfinite(back[i]));
                if (x[i] == 0) CHECK_EQ(back[i], 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_by_definition),
        cmocka_unit_test(fp8_rows),
        cmocka_unit_test(int8_is_quantos),
        cmocka_unit_test(codebooks_are_bitsandbytes),
        cmocka_unit_test(double_quantization_is_bitsandbytes),
        cmocka_unit_test(awq),
        cmocka_unit_test(gptq),
        cmocka_unit_test(hqq),
        cmocka_unit_test(quanto),
        cmocka_unit_test(groups_to_nearest),
        cmocka_unit_test(hard_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
