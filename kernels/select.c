/* Kernel selection: start with the reference kernels, then replace them by those of every usable instruction
 * set. This is the only file with architecture conditions (#if). */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/floats/floats.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/int8/int8.h"
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/ternary/ternary.h"
#include "kernels/isa/isa_kernels.h"

#if defined(__x86_64__)
#define ARCH_X86 1
#else
#define ARCH_X86 0
#endif
#if defined(__aarch64__)
#define ARCH_ARM 1
#else
#define ARCH_ARM 0
#endif

uint32_t isa_detect(void)
{
#if ARCH_X86
    return isa_detect_x86();
#elif ARCH_ARM
    return isa_detect_arm();
#else
    return 0;
#endif
}

/* Kernels that work on every processor. The tables of each instruction set replace some of them. */
static struct kernel_set kernels_reference(void)
{
    return (struct kernel_set){
        .tile = tile_ref,
        .vec = VECTORS_REF,
        .recurrent = RECURRENT_REF,
        .gemm_f32 = GEMM_F32_REF,
        .rounding = ROUNDING_REF,
        .w8a8_dot = w8a8_dot_ref,
    };
}

/* Replace the kernels of `f` by those of a table. Functions that are NULL in the table are kept. */
static void format_rows_add(struct format_kernels *f, const struct format_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        struct format_kernels *to = &f[rows[i].id];
        const struct format_kernels *from = &rows[i].k;
        if (from->decode) to->decode = from->decode;
        if (from->dot_f32) to->dot_f32 = from->dot_f32;
        if (from->dot_q8) to->dot_q8 = from->dot_q8;
        if (from->unpack_bf16) to->unpack_bf16 = from->unpack_bf16;
        if (from->sums16) to->sums16 = true;
        if (from->unpack_q8) to->unpack_q8 = from->unpack_q8, to->wide_q8 = from->wide_q8;
        if (from->int8_from) to->int8_from = from->int8_from;
        if (from->unpack_columns) to->unpack_columns = from->unpack_columns;
        if (from->row_scores) to->row_scores = from->row_scores, to->row_values = from->row_values;
        if (from->encode) to->encode = from->encode;
    }
}

#if ARCH_X86 || ARCH_ARM
/* The same for vector operations. */
static void vector_kernels_add(struct vector_kernels *to, const struct vector_kernels *from)
{
    if (from->transpose) to->transpose = from->transpose;
    if (from->quantize_q8) to->quantize_q8 = from->quantize_q8;
    if (from->norm_rms) to->norm_rms = from->norm_rms;
    if (from->norm_layer) to->norm_layer = from->norm_layer;
    if (from->max) to->max = from->max;
    if (from->exp_sum) to->exp_sum = from->exp_sum;
    if (from->scale) to->scale = from->scale;
    if (from->dots) to->dots = from->dots;
    if (from->softcap) to->softcap = from->softcap;
    if (from->sincos) to->sincos = from->sincos;
    for (size_t i = 0; i < COUNT_OF(to->rotate); i++)
        if (from->rotate[i]) to->rotate[i] = from->rotate[i];
    if (from->hadamard) to->hadamard = from->hadamard;
    for (size_t i = 0; i < COUNT_OF(to->activate); i++)
        if (from->activate[i]) to->activate[i] = from->activate[i];
}
#endif

#if ARCH_ARM
static void kernels_add_neon(struct kernel_set *k)
{
    format_rows_add(k->format, FORMATS_NEON, FORMATS_V128_COUNT);
    format_rows_add(k->format, ENCODERS_NEON, ENCODER_COUNT);
    vector_kernels_add(&k->vec, &VECTORS_NEON);
    k->tile = tile_neon;
    k->gemm_f32 = GEMM_F32_NEON;
    k->isa |= ISA_NEON;
}

static void kernels_add_dotprod(struct kernel_set *k)
{
    format_rows_add(k->format, FORMATS_DOTPROD, FORMATS_V128_COUNT);
    k->isa |= ISA_DOTPROD;
}
#endif

#if ARCH_X86
static void kernels_add_sse41(struct kernel_set *k)
{
    format_rows_add(k->format, FORMATS_SSE41, FORMATS_V128_COUNT);
    format_rows_add(k->format, ENCODERS_SSE41, ENCODER_COUNT);
    vector_kernels_add(&k->vec, &VECTORS_SSE41);
    k->tile = tile_sse41;
    k->gemm_f32 = GEMM_F32_SSE41;
    k->isa |= ISA_SSE41;
}

static void kernels_add_avx2(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    format_rows_add(f, FLOATS_AVX2, FLOATS_COUNT);
    format_rows_add(f, KQUANTS_AVX2, KQUANT_COUNT);
    format_rows_add(f, BLOCKS32_AVX2, BLOCKS32_COUNT);
    format_rows_add(f, FP8_AVX2, FP8_COUNT);
    format_rows_add(f, INT8_AVX2, INT8_COUNT);
    format_rows_add(f, GROUPS_AVX2, GROUPS_COUNT);
    format_rows_add(f, CODEBOOKS_AVX2, CODEBOOKS_COUNT);
    format_rows_add(f, TERNARY_AVX2, TERNARY_COUNT);
    format_rows_add(f, IQUANTS_AVX2, IQUANT_COUNT);
    format_rows_add(f, BLOCKS64_AVX2, BLOCKS64_COUNT);
    format_rows_add(f, ENCODERS_AVX2, ENCODER_COUNT);
    vector_kernels_add(&k->vec, &VECTORS_AVX2);
    k->recurrent = RECURRENT_AVX2;
    k->tile = tile_avx2;
    k->gemm_f32 = GEMM_F32_AVX2;
    k->gemm_int8 = GEMM_INT8_AVX2;
    k->rounding = ROUNDING_AVX2;
    k->w8a8_dot = w8a8_dot_avx2;
    k->gemm_w8a8 = GEMM_W8A8_AVX2;
    k->isa |= ISA_AVX2;
}

/* AVX-VNNI is AVX-512 VNNI for 256-bit registers, on processors without AVX-512. */
static void kernels_add_avxvnni(struct kernel_set *k)
{
    k->gemm_int8 = GEMM_INT8_AVXVNNI;
    k->gemm_w8a8 = GEMM_W8A8_AVXVNNI;
    k->isa |= ISA_AVXVNNI;
}

static void kernels_add_avx512(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    format_rows_add(f, FLOATS_AVX512, FLOATS_COUNT);
    format_rows_add(f, KQUANTS_AVX512, KQUANT_COUNT);
    format_rows_add(f, BLOCKS32_AVX512, BLOCKS32_COUNT);
    format_rows_add(f, FP8_AVX512, FP8_COUNT);
    format_rows_add(f, INT8_AVX512, INT8_COUNT);
    format_rows_add(f, GROUPS_AVX512, GROUPS_COUNT);
    format_rows_add(f, CODEBOOKS_AVX512, CODEBOOKS_COUNT);
    format_rows_add(f, IQUANTS_AVX512, IQUANT_COUNT);
    format_rows_add(f, BLOCKS64_AVX512, BLOCKS64_COUNT);
    format_rows_add(f, ENCODERS_AVX512, ENCODER_COUNT);
    for (int i = 0; i < CODEBOOKS_COUNT; i++)
        f[CODEBOOKS_AVX512[i].id].dot_q8 = NULL; /* f32 is as fast and exact: see the README of codebooks */
    vector_kernels_add(&k->vec, &VECTORS_AVX512);
    k->vec.store_results = store_results_avx512;
    k->recurrent = RECURRENT_AVX512;
    k->tile = tile_avx512;
    k->gemm_f32 = GEMM_F32_AVX512;
    k->rounding = ROUNDING_AVX512;
    if (!(k->isa & ISA_AVXVNNI))
        k->gemm_int8
            .min_rows_wide = 0; /* with 8-bit codes, f32 tiles of AVX-512 are faster than AVX2 integers */
    k->isa |= ISA_AVX512;
}

static void kernels_add_avx512vnni(struct kernel_set *k)
{
    format_rows_add(k->format, KQUANTS_AVX512VNNI, KQUANT_COUNT);
    format_rows_add(k->format, BLOCKS32_AVX512VNNI, BLOCKS32_COUNT);
    format_rows_add(k->format, INT8_AVX512VNNI, INT8_COUNT);
    format_rows_add(k->format, GROUPS_AVX512VNNI, GROUPS_COUNT);
    format_rows_add(k->format, TERNARY_AVX512VNNI, TERNARY_COUNT);
    format_rows_add(k->format, IQUANTS_AVX512VNNI, IQUANT_COUNT);
    format_rows_add(k->format, BLOCKS64_AVX512VNNI, BLOCKS64_COUNT);
    k->gemm_int8 = GEMM_INT8_AVX512VNNI;
    k->gemm_columns = GEMM_COLUMNS_AVX512VNNI;
    k->w8a8_dot = w8a8_dot_avx512vnni;
    k->gemm_w8a8 = GEMM_W8A8_AVX512VNNI;
    k->isa |= ISA_AVX512VNNI;
}

static void kernels_add_avx512bf16(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    format_rows_add(f, FLOATS_AVX512BF16, FLOATS_COUNT);
    format_rows_add(f, KQUANTS_AVX512BF16, KQUANT_COUNT);
    format_rows_add(f, BLOCKS32_AVX512BF16, BLOCKS32_COUNT);
    format_rows_add(f, FP8_AVX512BF16, FP8_COUNT);
    format_rows_add(f, INT8_AVX512BF16, INT8_COUNT);
    format_rows_add(f, GROUPS_AVX512BF16, GROUPS_COUNT);
    format_rows_add(f, CODEBOOKS_AVX512BF16, CODEBOOKS_COUNT);
    format_rows_add(f, TERNARY_AVX512BF16, TERNARY_COUNT);
    format_rows_add(f, IQUANTS_AVX512BF16, IQUANT_COUNT);
    format_rows_add(f, BLOCKS64_AVX512BF16, BLOCKS64_COUNT);
    k->gemm_bf16 = GEMM_BF16_AVX512;
    k->isa |= ISA_AVX512BF16;
}

/* With tiles, bf16 products are faster than 8-bit products without tiles. */
static void kernels_add_amx(struct kernel_set *k)
{
    k->gemm_bf16 = GEMM_BF16_AMX;
    k->bf16_beats_int8 = true;
    k->gemm_high = GEMM_HIGH_AMX;
    if (k->isa & ISA_AVX512VNNI) k->gemm_w8a8 = GEMM_W8A8_AMX;
    k->attend = ATTEND_BF16_AMX;
    k->isa |= ISA_AMX;
}
#endif

static bool isa_has_all(uint32_t usable, uint32_t bits)
{
    return !(bits & ~usable);
}

/* Later additions win, so the order of the calls is the order of preference. An instruction set is added
 * only if those that its kernels also use are usable: instruction sets are independent bits, and a virtual
 * machine may hide any of them. */
struct kernel_set kernels_select(uint32_t usable)
{
    struct kernel_set k = kernels_reference();
    format_rows_add(k.format, FLOATS_REF, FLOATS_COUNT);
    format_rows_add(k.format, KQUANTS_REF, KQUANT_COUNT);
    format_rows_add(k.format, BLOCKS32_REF, BLOCKS32_COUNT);
    format_rows_add(k.format, TERNARY_REF, TERNARY_COUNT);
    format_rows_add(k.format, IQUANTS_REF, IQUANT_COUNT);
    format_rows_add(k.format, BLOCKS64_REF, BLOCKS64_COUNT);
    format_rows_add(k.format, FP8_REF, FP8_COUNT);
    format_rows_add(k.format, INT8_REF, INT8_COUNT);
    format_rows_add(k.format, GROUPS_REF, GROUPS_COUNT);
    format_rows_add(k.format, CODEBOOKS_REF, CODEBOOKS_COUNT);
#if ARCH_X86
    if (isa_has_all(usable, ISA_SSE41)) kernels_add_sse41(&k);
    if (isa_has_all(usable, ISA_AVX2)) kernels_add_avx2(&k);
    const bool vnni512 = isa_has_all(usable, ISA_AVX2 | ISA_AVX512 | ISA_AVX512VNNI);
    if (isa_has_all(usable, ISA_AVX2 | ISA_AVXVNNI) && !vnni512) kernels_add_avxvnni(&k);
    if (isa_has_all(usable, ISA_AVX2 | ISA_AVX512)) kernels_add_avx512(&k);
    if (vnni512) kernels_add_avx512vnni(&k);
    const bool bf16 = isa_has_all(usable, ISA_AVX2 | ISA_AVX512 | ISA_AVX512BF16);
    if (bf16) kernels_add_avx512bf16(&k);
    if (bf16 && isa_has_all(usable, ISA_AMX)) kernels_add_amx(&k);
#endif
#if ARCH_ARM
    if (isa_has_all(usable, ISA_NEON)) kernels_add_neon(&k);
    if (isa_has_all(usable, ISA_NEON | ISA_DOTPROD)) kernels_add_dotprod(&k);
#endif
    (void)isa_has_all;
    (void)usable;
    return k;
}

/* Software prefetches slow some AMD processors down; see isa/detect_x86.c. */
bool kernels_skip_prefetch(void)
{
#if ARCH_X86
    return isa_skip_prefetch_x86();
#else
    return false;
#endif
}

/* ---------------------------------------------------------------- ceilings */

/* The loops of CEILINGS, in the same order. */
static ceiling_fn *const CEILING_FNS[] = {
    ceiling_f32_fma_ref,
#if ARCH_X86
    ceiling_f32_fma_sse41, ceiling_int8_dot_sse41,      ceiling_f32_fma_avx2,     ceiling_f32_fma_avx512,
    ceiling_int8_dot_avx2, ceiling_int8_dot_avx512vnni, ceiling_int8_dot_avxvnni, ceiling_bf16_dot_avx512bf16,
    ceiling_bf16_tile_amx, ceiling_int8_tile_amx,
#endif
#if ARCH_ARM
    ceiling_f32_fma_neon,  ceiling_int8_dot_neon,       ceiling_int8_dot_dotprod,
#endif
};

const struct ceiling CEILINGS[] = {
    { .name = "f32_fma", .isa = "ref", .needs = 0 },
#if ARCH_X86
    { .name = "f32_fma", .isa = "sse41", .needs = ISA_SSE41 },
    { .name = "int8_dot", .isa = "sse41", .needs = ISA_SSE41 },
    { .name = "f32_fma", .isa = "avx2", .needs = ISA_AVX2 },
    { .name = "f32_fma", .isa = "avx512", .needs = ISA_AVX512 },
    { .name = "int8_dot", .isa = "avx2", .needs = ISA_AVX2 },
    { .name = "int8_dot", .isa = "avx512vnni", .needs = ISA_AVX512 | ISA_AVX512VNNI },
    { .name = "int8_dot", .isa = "avxvnni", .needs = ISA_AVX2 | ISA_AVXVNNI },
    { .name = "bf16_dot", .isa = "avx512bf16", .needs = ISA_AVX512 | ISA_AVX512BF16 },
    { .name = "bf16_tile", .isa = "amx", .needs = ISA_AMX },
    { .name = "int8_tile", .isa = "amx", .needs = ISA_AMX },
#endif
#if ARCH_ARM
    { .name = "f32_fma", .isa = "neon", .needs = ISA_NEON },
    { .name = "int8_dot", .isa = "neon", .needs = ISA_NEON },
    { .name = "int8_dot", .isa = "dotprod", .needs = ISA_NEON | ISA_DOTPROD },
#endif
};
const size_t CEILING_COUNT = COUNT_OF(CEILINGS);
_Static_assert(COUNT_OF(CEILINGS) == COUNT_OF(CEILING_FNS), "one function per row");

ceiling_fn *kernels_ceiling(const struct ceiling *c)
{
    return c >= CEILINGS && c < CEILINGS + CEILING_COUNT ? CEILING_FNS[c - CEILINGS] : NULL;
}
