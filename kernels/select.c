/* Which kernel runs: the reference in every place, then whatever the usable ISA bits allow written over it.
 * The only file that knows architectures at compile time. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/floats/floats.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/int8/int8.h"
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

static struct kernel_set reference(void)
{
    return (struct kernel_set){
        .tile = tile_ref,
        .vec = VECTORS_REF,
        .gemm_f32 = GEMM_F32_REF,
        .rounding = ROUNDING_REF,
        .w8a8_dot = w8a8_dot_ref,
    };
}

/* Fields the better set leaves NULL keep what was there. */
static void take_rows(struct format_kernels *f, const struct format_row *rows, int count)
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
        if (from->encode) to->encode = from->encode;
    }
}

#if ARCH_X86 || ARCH_ARM
/* The same. */
static void take_vectors(struct vector_kernels *to, const struct vector_kernels *from)
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
    for (size_t i = 0; i < COUNT_OF(to->activate); i++)
        if (from->activate[i]) to->activate[i] = from->activate[i];
}
#endif

#if ARCH_ARM
static void take_neon(struct kernel_set *k)
{
    take_rows(k->format, FORMATS_NEON, FORMATS_V128_COUNT);
    take_rows(k->format, ENCODERS_NEON, ENCODER_COUNT);
    take_vectors(&k->vec, &VECTORS_NEON);
    k->tile = tile_neon;
    k->gemm_f32 = GEMM_F32_NEON;
    k->isa |= ISA_NEON;
}

static void take_dotprod(struct kernel_set *k)
{
    take_rows(k->format, FORMATS_DOTPROD, FORMATS_V128_COUNT);
    k->isa |= ISA_DOTPROD;
}
#endif

#if ARCH_X86
static void take_sse41(struct kernel_set *k)
{
    take_rows(k->format, FORMATS_SSE41, FORMATS_V128_COUNT);
    take_rows(k->format, ENCODERS_SSE41, ENCODER_COUNT);
    take_vectors(&k->vec, &VECTORS_SSE41);
    k->tile = tile_sse41;
    k->gemm_f32 = GEMM_F32_SSE41;
    k->isa |= ISA_SSE41;
}

static void take_avx2(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    take_rows(f, FLOATS_AVX2, FLOATS_COUNT);
    take_rows(f, KQUANTS_AVX2, KQUANT_COUNT);
    take_rows(f, BLOCKS32_AVX2, BLOCKS32_COUNT);
    take_rows(f, FP8_AVX2, FP8_COUNT);
    take_rows(f, INT8_AVX2, INT8_COUNT);
    take_rows(f, GROUPS_AVX2, GROUPS_COUNT);
    take_rows(f, CODEBOOKS_AVX2, CODEBOOKS_COUNT);
    take_rows(f, TERNARY_AVX2, TERNARY_COUNT);
    take_rows(f, ENCODERS_AVX2, ENCODER_COUNT);
    take_vectors(&k->vec, &VECTORS_AVX2);
    k->tile = tile_avx2;
    k->gemm_f32 = GEMM_F32_AVX2;
    k->gemm_int8 = GEMM_INT8_AVX2;
    k->rounding = ROUNDING_AVX2;
    k->w8a8_dot = w8a8_dot_avx2;
    k->gemm_w8a8 = GEMM_W8A8_AVX2;
    k->isa |= ISA_AVX2;
}

static void take_avxvnni(struct kernel_set *k)
{
    k->gemm_int8 = GEMM_INT8_AVXVNNI;
    k->gemm_w8a8 = GEMM_W8A8_AVXVNNI;
    k->isa |= ISA_AVXVNNI;
}

static void take_avx512(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    take_rows(f, FLOATS_AVX512, FLOATS_COUNT);
    take_rows(f, KQUANTS_AVX512, KQUANT_COUNT);
    take_rows(f, BLOCKS32_AVX512, BLOCKS32_COUNT);
    take_rows(f, FP8_AVX512, FP8_COUNT);
    take_rows(f, INT8_AVX512, INT8_COUNT);
    take_rows(f, GROUPS_AVX512, GROUPS_COUNT);
    take_rows(f, CODEBOOKS_AVX512, CODEBOOKS_COUNT);
    take_rows(f, ENCODERS_AVX512, ENCODER_COUNT);
    for (int i = 0; i < CODEBOOKS_COUNT; i++) f[CODEBOOKS_AVX512[i].id].dot_q8 = NULL; /* see its README */
    take_vectors(&k->vec, &VECTORS_AVX512);
    k->vec.deliver = deliver_avx512;
    k->tile = tile_avx512;
    k->gemm_f32 = GEMM_F32_AVX512;
    k->rounding = ROUNDING_AVX512;
    if (!(k->isa & ISA_AVXVNNI)) k->gemm_int8.min_rows_wide = 0; /* beats AVX2 at codes of 8 bits */
    k->isa |= ISA_AVX512;
}

static void take_avx512vnni(struct kernel_set *k)
{
    take_rows(k->format, KQUANTS_AVX512VNNI, KQUANT_COUNT);
    take_rows(k->format, BLOCKS32_AVX512VNNI, BLOCKS32_COUNT);
    take_rows(k->format, INT8_AVX512VNNI, INT8_COUNT);
    take_rows(k->format, GROUPS_AVX512VNNI, GROUPS_COUNT);
    take_rows(k->format, TERNARY_AVX512VNNI, TERNARY_COUNT);
    k->gemm_int8 = GEMM_INT8_AVX512VNNI;
    k->w8a8_dot = w8a8_dot_avx512vnni;
    k->gemm_w8a8 = GEMM_W8A8_AVX512VNNI;
    k->isa |= ISA_AVX512VNNI;
}

static void take_amx(struct kernel_set *k)
{
    struct format_kernels *f = k->format;
    take_rows(f, FLOATS_AMX, FLOATS_COUNT);
    take_rows(f, KQUANTS_AMX, KQUANT_COUNT);
    take_rows(f, BLOCKS32_AMX, BLOCKS32_COUNT);
    take_rows(f, FP8_AMX, FP8_COUNT);
    take_rows(f, INT8_AMX, INT8_COUNT);
    take_rows(f, GROUPS_AMX, GROUPS_COUNT);
    take_rows(f, CODEBOOKS_AMX, CODEBOOKS_COUNT);
    take_rows(f, TERNARY_AMX, TERNARY_COUNT);
    k->gemm_bf16 = GEMM_BF16_AMX;
    k->gemm_high = GEMM_HIGH_AMX;
    if (k->isa & ISA_AVX512VNNI) k->gemm_w8a8 = GEMM_W8A8_AMX;
    k->attend = ATTEND_BF16_AMX;
    k->isa |= ISA_AMX | ISA_AVX512BF16; /* the tiles' operands are rounded by the latter */
}
#endif

static bool has(uint32_t usable, uint32_t bits)
{
    return !(bits & ~usable);
}

struct kernel_set kernels_select(uint32_t usable)
{
    struct kernel_set k = reference();
    take_rows(k.format, FLOATS_REF, FLOATS_COUNT);
    take_rows(k.format, KQUANTS_REF, KQUANT_COUNT);
    take_rows(k.format, BLOCKS32_REF, BLOCKS32_COUNT);
    take_rows(k.format, TERNARY_REF, TERNARY_COUNT);
    take_rows(k.format, FP8_REF, FP8_COUNT);
    take_rows(k.format, INT8_REF, INT8_COUNT);
    take_rows(k.format, GROUPS_REF, GROUPS_COUNT);
    take_rows(k.format, CODEBOOKS_REF, CODEBOOKS_COUNT);
#if ARCH_X86
    if (has(usable, ISA_SSE41)) take_sse41(&k);
    if (has(usable, ISA_AVX2)) take_avx2(&k);
    const bool vnni512 = has(usable, ISA_AVX2 | ISA_AVX512 | ISA_AVX512VNNI);
    if (has(usable, ISA_AVX2 | ISA_AVXVNNI) && !vnni512) take_avxvnni(&k);
    if (has(usable, ISA_AVX2 | ISA_AVX512)) take_avx512(&k);
    if (vnni512) take_avx512vnni(&k);
    if (has(usable, ISA_AVX2 | ISA_AVX512 | ISA_AVX512BF16 | ISA_AMX)) take_amx(&k);
#endif
#if ARCH_ARM
    if (has(usable, ISA_NEON)) take_neon(&k);
    if (has(usable, ISA_NEON | ISA_DOTPROD)) take_dotprod(&k);
#endif
    (void)has;
    (void)usable;
    return k;
}

bool kernels_hands_off(void)
{
#if ARCH_X86
    return isa_hands_off_x86();
#else
    return false;
#endif
}

/* ---------------------------------------------------------------- ceilings */

/* In the order of CEILINGS. */
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
    { "f32_fma", "ref", 0 },
#if ARCH_X86
    { "f32_fma", "sse41", ISA_SSE41 },
    { "int8_dot", "sse41", ISA_SSE41 },
    { "f32_fma", "avx2", ISA_AVX2 },
    { "f32_fma", "avx512", ISA_AVX512 },
    { "int8_dot", "avx2", ISA_AVX2 },
    { "int8_dot", "avx512vnni", ISA_AVX512 | ISA_AVX512VNNI },
    { "int8_dot", "avxvnni", ISA_AVX2 | ISA_AVXVNNI },
    { "bf16_dot", "avx512bf16", ISA_AVX512 | ISA_AVX512BF16 },
    { "bf16_tile", "amx", ISA_AMX },
    { "int8_tile", "amx", ISA_AMX },
#endif
#if ARCH_ARM
    { "f32_fma", "neon", ISA_NEON },
    { "int8_dot", "neon", ISA_NEON },
    { "int8_dot", "dotprod", ISA_NEON | ISA_DOTPROD },
#endif
};
const size_t CEILING_COUNT = COUNT_OF(CEILINGS);
_Static_assert(COUNT_OF(CEILINGS) == COUNT_OF(CEILING_FNS), "one function a row");

ceiling_fn *kernels_ceiling(const struct ceiling *c)
{
    return c >= CEILINGS && c < CEILINGS + CEILING_COUNT ? CEILING_FNS[c - CEILINGS] : NULL;
}
