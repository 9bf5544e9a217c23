/* Proves: the registry is complete and consistent; 16-bit floats convert exactly (every f16 and bf16, and
 * every rounding case of f32, against an independent rule); q8_0 and q4_0 encode to ggml's bytes and decode
 * to its bits (vectors by hand here, golden files if they are beside the checkout); quantization errors are
 * within the limits of the registry. The error metric itself is checked first, on a case worked by hand. */
#include "kernels/half.h"
#include "tests/kernels/numbers.h"

static void metric_by_hand(void **state)
{
    (void)state;
    const float a[] = { 3, 4 }, b[] = { 3, 5 }, broken[] = { 3, NAN }, zero[] = { 0, 0 };
    CHECK_NEAR(nmse(a, b, 2), 1.0 / 25, 1e-15);
    CHECK_EQ(nmse(a, a, 2), 0);
    CHECK_EQ(nmse(zero, zero, 2), 0);
    CHECK(!(nmse(a, broken, 2) <= 1));
    CHECK_GT(nmse(zero, a, 2), 1e30); /* a wrong answer where 0 is right is an infinite error */
}

static void registry(void **state)
{
    (void)state;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        CHECK(f->name);
        CHECK(f->block_weights);
        CHECK(f->block_bytes);
        CHECK_EQ(format_find(f->name), f);
        CHECK_EQ(format_by_ggml_type(f->ggml_type), f);
        CHECK_EQ(!f->encode, !(f->max_nmse >= 0));
        CHECK_EQ(!f->decode, !f->readme);
        CHECK_EQ(format_span_bytes(f, 4 * (int64_t)f->block_weights), 4 * (int64_t)f->block_bytes);
        CHECK_EQ(format_row_bytes(f, f->block_weights), (int64_t)f->block_bytes + f->row_tail_bytes);
        CHECK(f->row_tail_bytes == 0 || f->row_tail_bytes == sizeof(float));
        if (f->readme) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", TEST_SOURCE_DIR, f->readme);
            CHECK(!access(path, R_OK));
        }
    }
    CHECK_EQ(format_find("Q4_k"), &FORMATS[FORMAT_Q4_K]);
    CHECK(!format_find("q9_9"));
    CHECK(!format_find(NULL));
    CHECK(!format_by_ggml_type(4));
    CHECK_NEAR(format_bits_per_weight(&FORMATS[FORMAT_Q4_0]), 4.5, 0);
    CHECK_NEAR(format_bits_per_weight(&FORMATS[FORMAT_Q6_K]), 6.5625, 0);
    for (int i = FORMAT_F32; i <= FORMAT_Q4_0; i++) {
        CHECK(FORMATS[i].encode);
        CHECK(FORMATS[i].decode);
    }
}

/* The value of an f16, straight from the definition. */
static double f16_value(unsigned h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return exponent ? sign * ldexp(1024 + fraction, exponent - 25) : sign * ldexp(fraction, -24);
}

static void every_f16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        const double want = f16_value(h);
        const float got = f16_to_f32((uint16_t)h);
        if (isnan(want)) {
            CHECK_NAN(got);
            CHECK_EQ(f16_from_f32(got), (h & 0x8000) | 0x7e00);
            continue;
        }
        CHECK_EQ(got, want);
        CHECK_EQ(!signbit(got), !(h & 0x8000));
        CHECK_EQ(f16_from_f32(got), h);
        if ((h & 0x7fff) >= 0x7bff) continue; /* its upper neighbour is infinity: below */
        /* Half way to the next: to even; a hair to either side: to the nearer. */
        const float next = f16_to_f32((uint16_t)(h + 1)), middle = (got + next) / 2;
        CHECK_EQ(f16_from_f32(middle), h & 1 ? h + 1 : h);
        CHECK_EQ(f16_from_f32(nextafterf(middle, got)), h);
        CHECK_EQ(f16_from_f32(nextafterf(middle, next)), h + 1);
    }
    CHECK_EQ(f16_from_f32(65519.996f), 0x7bff);
    CHECK_EQ(f16_from_f32(65520), 0x7c00);
    CHECK_EQ(f16_from_f32(-1e30f), 0xfc00);
    CHECK_EQ(f16_from_f32(1e-30f), 0);
}

static void every_bf16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        const float got = bf16_to_f32((uint16_t)h);
        CHECK_EQ(bits_of(got), h << 16);
        if (isnan(got)) {
            CHECK_EQ(bf16_from_f32(got), h | 0x40);
            continue;
        }
        CHECK_EQ(bf16_from_f32(got), h);
        if ((h & 0x7fff) >= 0x7f7f) continue;
        CHECK_EQ(bf16_from_f32(float_of(h << 16 | 0x8000)), h & 1 ? h + 1 : h);
        CHECK_EQ(bf16_from_f32(float_of(h << 16 | 0x7fff)), h);
        CHECK_EQ(bf16_from_f32(float_of(h << 16 | 0x8001)), h + 1);
    }
}

static void blocks_by_hand(void **state)
{
    (void)state;
    float x[32] = { 0 }, back[32];
    uint8_t q8[34], q4[18];
    FORMATS[FORMAT_Q8_0].encode(x, q8, 32);
    FORMATS[FORMAT_Q4_0].encode(x, q4, 32);
    for (int i = 0; i < 34; i++) CHECK_EQ(q8[i], 0);
    CHECK_EQ(load_u16(q4), 0x8000); /* 0 / -8 is minus zero */
    for (int i = 2; i < 18; i++) CHECK_EQ(q4[i], 0x88);

    /* x[j] = j - 16 but the largest is -16: q4_0 has d = 2 and codes (j - 16) / 2 + 8, halves upwards. */
    for (int j = 0; j < 32; j++) x[j] = (float)(j - 16);
    FORMATS[FORMAT_Q4_0].encode(x, q4, 32);
    CHECK_EQ(load_u16(q4), 0x4000);
    for (int j = 0; j < 16; j++) {
        const int low = (j + 1) / 2, high = MIN(15, (j + 1) / 2 + 8);
        CHECK_EQ(q4[2 + j], low | high << 4);
    }
    FORMATS[FORMAT_Q4_0].decode(q4, back, 32);
    CHECK_EQ(back[0], -16);
    CHECK_EQ(back[1], -14);
    CHECK_EQ(back[16], 0);
    CHECK_EQ(back[31], 14);

    /* 127 as the largest makes d = 1: every integer is its own code, halves round away from zero. */
    for (int j = 0; j < 32; j++) x[j] = (float)(j - 16) + 0.5f;
    x[0] = 127;
    FORMATS[FORMAT_Q8_0].encode(x, q8, 32);
    CHECK_EQ(load_u16(q8), 0x3c00);
    CHECK_EQ((int8_t)q8[2], 127);
    for (int j = 1; j < 32; j++) CHECK_EQ((int8_t)q8[2 + j], j < 16 ? j - 16 : j - 15);
}

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
    enum { N = 4 * 512, BYTES = N * 4 };
    static const char *const INPUTS[] = { "uniform", "gauss", "outlier", "edge" };
    static const enum format_id IDS[] = { FORMAT_Q8_0, FORMAT_Q4_0 };
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/gguf/manifest.json");
    static float x[N], want[N], got[N];
    static uint8_t want_bytes[BYTES], got_bytes[BYTES];
    int seen = 0;
    for (size_t i = 0; i < COUNT_OF(INPUTS); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.in.f32", INPUTS[i]);
        const int64_t bytes = read_shared(name, x, sizeof x);
        CHECK_LT(0, bytes);
        CHECK_EQ(bytes % 128, 0);
        for (size_t j = 0; j < COUNT_OF(IDS); j++) {
            const struct format *f = &FORMATS[IDS[j]];
            const int64_t n = bytes / 4, packed = format_row_bytes(f, n);
            snprintf(name, sizeof name, "%s.%s.bin", f->name, INPUTS[i]);
            CHECK_EQ(read_shared(name, want_bytes, sizeof want_bytes), packed);
            snprintf(name, sizeof name, "%s.%s.deq.f32", f->name, INPUTS[i]);
            CHECK_EQ(read_shared(name, want, sizeof want), bytes);
            f->encode(x, got_bytes, n);
            assert_memory_equal(got_bytes, want_bytes, (size_t)packed);
            f->decode(want_bytes, got, n);
            assert_memory_equal(got, want, (size_t)bytes);
            seen++;
        }
    }
    CHECK_EQ(seen, 8);
}

static void promised_errors(void **state)
{
    (void)state;
    enum { N = 1 << 16, COLS = 4096 };
    static float x[N], back[N];
    static uint8_t bytes[N * 4];
    struct rng r = { 20261121 };
    fill_gauss(&r, x, N, 1);
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        if (!f->encode) continue;
        format_encode_rows(f, x, bytes, N / COLS, COLS);
        format_decode_rows(f, bytes, back, N / COLS, COLS);
        const double error = nmse(x, back, N);
        print_message("%-6s nmse %.3g (limit %.3g)\n", f->name, error, f->max_nmse);
        CHECK_LE(error, f->max_nmse);
        CHECK_GE(error, f->max_nmse / 2); /* a limit that is far too wide hides a wrong encoder */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_by_hand),  cmocka_unit_test(registry),       cmocka_unit_test(every_f16),
        cmocka_unit_test(every_bf16),      cmocka_unit_test(blocks_by_hand), cmocka_unit_test(golden_files),
        cmocka_unit_test(promised_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
