/* Proves: names of instruction sets parse to their bits and those they build on; unknown names are refused
 * with the nearest known one; QDYNO_ISA can only disable; and a kernel set uses no bit that it was not given.
 */
#include "kernels/kernel_set.h"
#include "tests/kernels/numbers.h"

static void names(void **state)
{
    (void)state;
    struct err why;
    uint32_t bits = 99;
    char text[128];
    CHECK_OK(isa_parse(&bits, "ref", &why));
    CHECK_EQ(bits, 0);
    CHECK_OK(isa_parse(&bits, "avx2", &why));
    CHECK_EQ(bits, ISA_SSE41 | ISA_AVX2);
    CHECK_OK(isa_parse(&bits, "AMX", &why));
    CHECK((bits & ISA_AVX512BF16));
    CHECK((bits & ISA_AMX));
    CHECK(!(bits & ISA_NEON));
    CHECK_OK(isa_parse(&bits, "sse41,neon", &why));
    CHECK_EQ(bits, ISA_SSE41 | ISA_NEON);
    CHECK_EQ(isa_parse(&bits, "avx51", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "avx512");
    CHECK_EQ(isa_parse(&bits, "", &why), ERR_USAGE);
    CHECK_EQ(isa_parse(&bits, "avx2,", &why), ERR_USAGE);
    CHECK_EQ(bits, ISA_SSE41 | ISA_NEON); /* errors leave it alone */
    assert_string_equal(isa_names(0, text, sizeof text), "ref");
    assert_string_equal(isa_names(ISA_AMX | ISA_AVX2, text, sizeof text), "avx2 amx");
    CHECK_LT(strlen(isa_names(~0u, text, 8)), 8);
    for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) {
        CHECK_OK(isa_parse(&bits, ISA_LEVELS[i].name, &why));
        CHECK_EQ(bits, ISA_LEVELS[i].bits);
    }
}

static void environment(void **state)
{
    (void)state;
    struct err why;
    const char *before = getenv("QDYNO_ISA");
    char *kept = before ? strdup(before) : NULL;
    uint32_t usable, all;
    unsetenv("QDYNO_ISA");
    CHECK_OK(isa_usable(&all, &why));
    CHECK_EQ(all, isa_detect());
    setenv("QDYNO_ISA", "ref", 1);
    CHECK_OK(isa_usable(&usable, &why));
    CHECK_EQ(usable, 0);
    setenv("QDYNO_ISA", "all", 1);
    CHECK_OK(isa_usable(&usable, &why));
    CHECK_EQ(usable, all);
    setenv("QDYNO_ISA", "neon,amx", 1); /* more than any machine has */
    CHECK_OK(isa_usable(&usable, &why));
    CHECK(!(usable & ~all));
    setenv("QDYNO_ISA", "fast", 1);
    CHECK_EQ(isa_usable(&usable, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "QDYNO_ISA");
    if (kept)
        setenv("QDYNO_ISA", kept, 1);
    else
        unsetenv("QDYNO_ISA");
    free(kept);
}

static void sets(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 512; bits++) { /* every combination, also those no CPU has */
        const struct kernel_set k = kernels_select(bits);
        CHECK(!(k.isa & ~bits));
        CHECK(k.tile);
        CHECK(k.gemm_f32.multiply);
        CHECK(k.gemm_f32.pack);
        for (int f = 0; f < FORMAT_COUNT; f++) {
            CHECK_EQ(!k.format[f].decode, !FORMATS[f].decode);
            CHECK_EQ(!k.format[f].dot_f32, !FORMATS[f].decode);
            if (FORMATS[f].decode && FORMATS[f].block_weights == Q8_BLOCK) CHECK(k.format[f].dot_q8);
        }
        for (int a = 0; a < ACT_COUNT; a++) CHECK(k.vec.activate[a]);
    }
    CHECK_EQ(kernels_select(0).isa, 0);
}

/* A kernel set of a level that this machine has reports it, and has kernels of its own for these formats.
 * (Formats added later may still use the reference.) */
static void levels_are_real(void **state)
{
    (void)state;
    static const char *const FIRST[] = { "sse41", "neon", "dotprod" }; /* all on 128-bit vectors */
    static const enum format_id IDS[] = { FORMAT_F32,    FORMAT_F16,     FORMAT_BF16,     FORMAT_Q8_0,
                                          FORMAT_Q4_0,   FORMAT_Q4_1,    FORMAT_Q5_0,     FORMAT_Q5_1,
                                          FORMAT_Q2_K,   FORMAT_Q3_K,    FORMAT_Q4_K,     FORMAT_Q5_K,
                                          FORMAT_Q6_K,   FORMAT_IQ4_NL,  FORMAT_IQ4_XS,   FORMAT_TQ1_0,
                                          FORMAT_TQ2_0,  FORMAT_MXFP4,   FORMAT_FP8_E4M3, FORMAT_FP8_E5M2,
                                          FORMAT_INT8,   FORMAT_U4_G32,  FORMAT_U4_G64,   FORMAT_U4_G128,
                                          FORMAT_U3_G64, FORMAT_U3_G128, FORMAT_U2_G64,   FORMAT_U2_G128,
                                          FORMAT_NF4,    FORMAT_FP4,     FORMAT_NF4_DQ,   FORMAT_FP4_DQ };
    uint32_t usable, bits;
    struct err why;
    CHECK_OK(isa_usable(&usable, &why));
    for (size_t l = 0; l < COUNT_OF(FIRST); l++) {
        CHECK_OK(isa_parse(&bits, FIRST[l], &why));
        if (bits & ~usable) continue;
        const struct kernel_set k = kernels_select(bits),
                                below = kernels_select(bits & ISA_DOTPROD ? ISA_NEON : 0);
        CHECK_EQ(k.isa, bits);
        for (size_t i = 0; i < COUNT_OF(IDS); i++) {
            const struct format_kernels *f = &k.format[IDS[i]], *old = &below.format[IDS[i]];
            CHECK_NE(f->decode, old->decode);
            CHECK_NE(f->dot_f32, old->dot_f32);
            CHECK_EQ(!f->dot_q8, !old->dot_q8);
            CHECK((!f->dot_q8 || f->dot_q8 != old->dot_q8));
        }
        const struct kernel_set ref = kernels_select(0);
        CHECK_NE(k.tile, ref.tile);
        CHECK_NE(k.gemm_f32.multiply, ref.gemm_f32.multiply);
        CHECK_NE(k.vec.quantize_q8, ref.vec.quantize_q8);
        CHECK_NE(k.vec.exp_sum, ref.vec.exp_sum);
        CHECK_NE(k.vec.activate[ACT_SILU], ref.vec.activate[ACT_SILU]);
    }
}

/* A backend opened with bits that the machine lacks runs without them. */
static void backend_takes_away(void **state)
{
    (void)state;
    struct err why;
    struct backend *b;
    struct backend_info info;
    CHECK_OK(backend_open(&b, "cpu", &(struct backend_options){ .threads = 1, .isa = ~0u }, &why));
    backend_describe(b, &info);
    CHECK(!(info.isa & ~isa_detect()));
    CHECK_EQ(info.threads, 1);
    assert_string_equal(info.device, "cpu");
    backend_close(b);
    CHECK_EQ(backend_open(&b, "quantum", &(struct backend_options){ .threads = 1 }, &why), ERR_ABSENT);
    CHECK(!b);
    CHECK_EQ(backend_open(&b, "cpu", &(struct backend_options){ .threads = 0 }, &why), ERR_USAGE);
    CHECK(!b);
    backend_close(NULL);
}

static void ceilings(void **state)
{
    (void)state;
    uint32_t usable;
    CHECK(!isa_usable(&usable, NULL));
    for (size_t i = 0; i < CEILING_COUNT; i++) {
        const double v = ceiling_ops_s(&CEILINGS[i], usable, 1, 0.005);
        if (CEILINGS[i].needs & ~usable)
            CHECK_NAN(v);
        else {
            CHECK_LT(1e6, v);
            CHECK_LT(v, 1e15);
        }
        CHECK_NE(kernels_ceiling(&CEILINGS[i]), NULL);
    }
    CHECK_GT(ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = 2 }, 8 << 20, 0.005), 1e6);
    CHECK_NAN(ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = 1 }, 0, 0.005));
    struct speed_probe *pace;
    struct backend *backend;
    struct err why = { 0 };
    const struct backend_options two = { .threads = 2, .isa = usable, .precision = PRECISION_AUTO };
    CHECK_OK(backend_open(&backend, "cpu", &two, &why));
    CHECK_OK(backend_reserve(backend, &(struct backend_work){ .rows = 1, .cols = SPEED_PROBE_COLS }, &why));
    CHECK_OK(speed_probe_open(&pace, backend, &why));
    const double read_s = speed_probe_read_s(pace);
    CHECK_LT(0, read_s);
    CHECK_LT(read_s, 1e-6);
    const double compute_s = speed_probe_compute_s(pace, backend);
    CHECK_LT(0, compute_s);
    CHECK_LT(compute_s, 1e-6);
    CHECK_EQ(speed_probe_typical_s((double[]){ 9, 1, 3, 2 }, 4),
             2.5); /* the least and the most are left out */
    CHECK_EQ(speed_probe_typical_s((double[]){ 7 }, 1), 7);
    CHECK_NAN(speed_probe_typical_s(NULL, 0));
    CHECK_EQ(speed_probe_best_s((double[]){ 9, 1, 3, 2, 8, 7, 6, 5, 4, 10 }, 10),
             2); /* one in ten is quicker */
    CHECK_EQ(speed_probe_best_s((double[]){ 7 }, 1), 7);
    CHECK_NAN(speed_probe_best_s(NULL, 0));
    speed_probe_close(pace);
    speed_probe_close(NULL);
    backend_close(backend);
    struct numa *nodes;
    CHECK(!numa_open(&nodes, NULL));
    struct ceiling_reading what = { .threads = 2, .nodes = nodes, .near = true };
    const double near = ceiling_read_bytes_s(&what, 8 << 20, 0.005);
    if (isnan(near))
        print_message("SKIPPED: this system places neither pages nor threads\n");
    else
        CHECK_GT(near, 1e6);
    what.node = numa_count(nodes); /* there is none */
    CHECK_NAN(ceiling_read_bytes_s(&what, 8 << 20, 0.005));
    numa_close(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),    cmocka_unit_test(environment),
        cmocka_unit_test(sets),     cmocka_unit_test(backend_takes_away),
        cmocka_unit_test(ceilings), cmocka_unit_test(levels_are_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
