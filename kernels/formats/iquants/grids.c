/* The codebooks in both forms, expanded by the compiler from one list. */
#include "kernels/formats/iquants/grids.h"
#include "kernels/formats/iquants/grids_list.h"

/* BYTE_n: byte i of n from packed indices v; BYTES_n: all of them. `of` is a macro that maps an index to a
 * magnitude. */
#define BYTE_8(v, i, of) ((uint64_t)of((v) >> 2 * (i)&3) << 8 * (i))
#define BYTE_4(v, i, of) ((uint32_t)of((v) >> 3 * (i)&7) << 8 * (i))
#define BYTES_8(v, of)                                                                                       \
    (BYTE_8(v, 0, of) | BYTE_8(v, 1, of) | BYTE_8(v, 2, of) | BYTE_8(v, 3, of) | BYTE_8(v, 4, of) |          \
     BYTE_8(v, 5, of) | BYTE_8(v, 6, of) | BYTE_8(v, 7, of))
#define BYTES_4(v, of) (BYTE_4(v, 0, of) | BYTE_4(v, 1, of) | BYTE_4(v, 2, of) | BYTE_4(v, 3, of))

#define IQ2_MAGNITUDE(l)     ((l) == 0 ? 8 : (l) == 1 ? 25 : 43)
#define IQ1_EIGHTHS(l)       (8 * ((int)(l)-1) + IQ1_BIAS)
#define IQ3_S_MAGNITUDE(l)   (2 * (l) + 1)
#define IQ3_XXS_MAGNITUDE(l) ((l) == 7 ? 62 : (l) == 6 ? 52 : 8 * (l) + 4)

#define OF_IQ2(v)     BYTES_8(v, IQ2_MAGNITUDE),
#define OF_IQ1(v)     BYTES_8(v, IQ1_EIGHTHS),
#define OF_IQ3_XXS(v) BYTES_4(v, IQ3_XXS_MAGNITUDE),
#define OF_IQ3_S(v)   BYTES_4(v, IQ3_S_MAGNITUDE),
#define INDEX_OF(v)   v,

const uint64_t IQ2_XXS_BYTES[IQ2_XXS_CODES] = { IQ2_XXS_GRID(OF_IQ2) };
const uint64_t IQ2_XS_BYTES[IQ2_XS_CODES] = { IQ2_XS_GRID(OF_IQ2) };
const uint64_t IQ2_S_BYTES[IQ2_S_CODES] = { IQ2_S_GRID(OF_IQ2) };
const uint64_t IQ1_BYTES[IQ1_CODES] = { IQ1_GRID(OF_IQ1) };
const uint32_t IQ3_XXS_BYTES[IQ3_XXS_CODES] = { IQ3_XXS_GRID(OF_IQ3_XXS) };
const uint32_t IQ3_S_BYTES[IQ3_S_CODES] = { IQ3_S_GRID(OF_IQ3_S) };

const uint16_t IQ2_XXS_INDEX[IQ2_XXS_CODES] = { IQ2_XXS_GRID(INDEX_OF) };
const uint16_t IQ2_XS_INDEX[IQ2_XS_CODES] = { IQ2_XS_GRID(INDEX_OF) };
const uint16_t IQ2_S_INDEX[IQ2_S_CODES] = { IQ2_S_GRID(INDEX_OF) };
const uint16_t IQ1_INDEX[IQ1_CODES] = { IQ1_GRID(INDEX_OF) };
const uint16_t IQ3_XXS_INDEX[IQ3_XXS_CODES] = { IQ3_XXS_GRID(INDEX_OF) };
const uint16_t IQ3_S_INDEX[IQ3_S_CODES] = { IQ3_S_GRID(INDEX_OF) };
