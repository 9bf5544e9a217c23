/* kernels/isa/isa_kernels.h - declares the kernels of every ISA that belong to no format: GEMM, vectors,
 * attention, ceilings, detection. Their interfaces are in kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_ISA_ISA_KERNELS_H
#define QDYNO_KERNELS_ISA_ISA_KERNELS_H

#include "kernels/kernel_set.h"

tile_fn tile_ref;
extern const struct vector_kernels VECTORS_REF;
extern const struct recurrent_kernels RECURRENT_REF, RECURRENT_AVX2, RECURRENT_AVX512;
extern const struct gemm_kernel GEMM_F32_REF;
extern const struct rounding_kernels ROUNDING_REF;
w8a8_dot_fn w8a8_dot_ref;
ceiling_fn ceiling_f32_fma_ref;

/* Number of formats with 128-bit kernels for decode and dot products (formats_v128.h). */
enum { FORMATS_V128_COUNT = 44 };

/* Number of formats with vectorized encoders (encode_lanes.h). */
enum { ENCODER_COUNT = 27 };

/* Built on 64-bit ARM only. */
uint32_t isa_detect_arm(void);

tile_fn tile_neon;
extern const struct format_row FORMATS_NEON[FORMATS_V128_COUNT], FORMATS_DOTPROD[FORMATS_V128_COUNT];
extern const struct format_row ENCODERS_NEON[ENCODER_COUNT];
extern const struct vector_kernels VECTORS_NEON;
extern const struct gemm_kernel GEMM_F32_NEON;

ceiling_fn ceiling_f32_fma_neon, ceiling_int8_dot_neon, ceiling_int8_dot_dotprod;

/* Only on x86-64. */
uint32_t isa_detect_x86(void);
bool isa_skip_prefetch_x86(void); /* kernels_skip_prefetch */

tile_fn tile_sse41;
extern const struct format_row FORMATS_SSE41[FORMATS_V128_COUNT];
extern const struct format_row ENCODERS_SSE41[ENCODER_COUNT], ENCODERS_AVX2[ENCODER_COUNT],
    ENCODERS_AVX512[ENCODER_COUNT];
extern const struct vector_kernels VECTORS_SSE41;
extern const struct gemm_kernel GEMM_F32_SSE41;

ceiling_fn ceiling_f32_fma_sse41, ceiling_int8_dot_sse41;

tile_fn tile_avx2, tile_avx512;
void store_results_avx512(const struct result_store *d);
extern const struct vector_kernels VECTORS_AVX2, VECTORS_AVX512; /* NULL: keep the reference */
extern const struct gemm_kernel GEMM_F32_AVX2, GEMM_F32_AVX512, GEMM_BF16_AVX512, GEMM_BF16_AMX,
    GEMM_HIGH_AMX, GEMM_INT8_AVX2, GEMM_INT8_AVXVNNI, GEMM_INT8_AVX512VNNI, GEMM_COLUMNS_AVX512VNNI,
    GEMM_W8A8_AVX2, GEMM_W8A8_AVXVNNI, GEMM_W8A8_AVX512VNNI, GEMM_W8A8_AMX;
extern const struct rounding_kernels ROUNDING_AVX2, ROUNDING_AVX512;
w8a8_dot_fn w8a8_dot_avx2, w8a8_dot_avx512vnni;
extern const struct attention_kernel ATTEND_BF16_AMX;

ceiling_fn ceiling_f32_fma_avx2, ceiling_f32_fma_avx512;
ceiling_fn ceiling_int8_dot_avx2, ceiling_int8_dot_avxvnni, ceiling_int8_dot_avx512vnni;
ceiling_fn ceiling_bf16_dot_avx512bf16;
ceiling_fn ceiling_bf16_tile_amx, ceiling_int8_tile_amx;

#endif
