/* integers.cl - products of products.cl where both operands are small integers (INT8): weights whose codes
 * are whole numbers under a scale, x as bytes with a scale for each 32 (`codes` of products.cl).
 *
 *   y = sum over 32 inputs (16 where weights have such scales) of
 *       d * (scale * (sum of code * q) + add * (sum of q))
 *
 * The sums in brackets are exact. What a code is too large by (BIAS), or too small where 8 bits are taken for
 * signed, times the sum of q is where a sum of products begins. */
#ifdef INT8

#if defined LOOKED_UP
#define MISSING 0
#elif LOW == 8
#define MISSING (128 - BIAS)
#else
#define MISSING (-BIAS)
#endif

#ifdef LOOKED_UP
uint looked_up(const uint codes, local const table_number *table)
{
    return table[codes & 15] | table[codes >> 8 & 15] << 8 | table[codes >> 16 & 15] << 16 |
           table[codes >> 24] << 24;
}
#endif

/* The codes of two chunks as signed bytes, 8 / LOW weights apart in a word. */
uint4 signed_codes(const struct chunk a, const struct chunk b, local const table_number *table)
{
#if LOW == 8
    return (uint4)(a.low, b.low) ^ 0x80808080u;
#elif LOW == 4
    uint4 v = (uint4)(a.low, a.low >> 4, b.low, b.low >> 4) & 0x0f0f0f0fu;
#if HIGH == 1
    uint2 h = (uint2)(a.high, b.high) & 0xffu; /* bits of two weights to a byte */
    h = (h | h << 12) & 0x000f000fu;
    h = (h | h << 6) & 0x03030303u;
    v |= ((uint4)(h.x, h.x >> 1, h.y, h.y >> 1) & 0x01010101u) << 4;
#elif HIGH == 2
    uint2 h = (uint2)(a.high, b.high) & 0xffffu;
    h = (h | h << 8) & 0x00ff00ffu;
    h = (h | h << 4) & 0x0f0f0f0fu;
    v |= ((uint4)(h.x, h.x >> 2, h.y, h.y >> 2) & 0x03030303u) << 4;
#endif
#ifdef LOOKED_UP
    v = (uint4)(looked_up(v.x, table), looked_up(v.y, table), looked_up(v.z, table), looked_up(v.w, table));
#endif
    return v;
#else
    const uint low = (a.low & 0xffffu) | b.low << 16;
    uint4 v = (uint4)(low, low >> 2, low >> 4, low >> 6) & 0x03030303u;
#if HIGH == 1
    uint h = (a.high & 0xffu) | (b.high & 0xffu) << 8; /* bits of four weights to a byte */
    h = (h | h << 8) & 0x00ff00ffu;
    h = (h | h << 4) & 0x0f0f0f0fu;
    v |= ((uint4)(h, h >> 1, h >> 2, h >> 3) & 0x01010101u) << 2;
#endif
    return v;
#endif
}

int dot16(const uint4 a, const uint4 b, const int sum)
{
    return dot4(a.w, b.w, dot4(a.z, b.z, dot4(a.y, b.y, dot4(a.x, b.x, sum))));
}

/* x as it was made: bytes, 16 at a time, and of every 32 their scale and two sums. */
global const uint4 *x_codes(const struct product *p, const uint token)
{
    return (global const uint4 *)p->x + (ulong)token * (p->cols / 16);
}

global const uint2 *x_blocks(const struct product *p, const uint token)
{
    return (global const uint2 *)((global const uchar *)p->x + (ulong)p->n * p->cols) +
           (ulong)token * (p->cols / 32);
}

/* The sum of a block's first 16 q, and of the others. */
int2 totals_of(const uint2 block)
{
    return (int2)((int)(block.y << 16) >> 16, (int)block.y >> 16);
}

/* What a run adds to a result: sum has begun at MISSING * total. */
float scaled(const float d, const float2 s, const int sum, const int total)
{
#ifdef ADDS
    return d * MULTIPLY_ADD(s.x, (float)sum, s.y * (float)total);
#else
    return d * s.x * (float)sum;
#endif
}

/* ---------------------------------------------------------------- few rows of x */

#ifdef N

/* A run (of products.cl) is 2 or 4 chunks: 16 weights or 32. */
void unit_dot(const struct weights *w, const uint *row, const struct product *p, local const float4 *x,
              const uint unit, float acc[ROWS][N])
{
    struct chunk c[ROWS][CHUNKS];
    UNROLLED for (uint r = 0; r < ROWS; r++) unit_load(w, row[r], unit, c[r]);
    UNROLLED for (uint run = 0; run < CHUNKS; run += RUN)
    {
        const uint chunk = unit * CHUNKS + run;
        uint4 v[ROWS][RUN / 2];
        float2 s[ROWS];
        UNROLLED for (uint r = 0; r < ROWS; r++)
        {
            s[r] = shared_of(w, row[r], chunk);
            UNROLLED for (uint i = 0; i < RUN / 2; i++)
                v[r][i] = signed_codes(c[r][run + 2 * i], c[r][run + 2 * i + 1], w->table);
        }
        UNROLLED for (uint t = 0; t < N; t++)
        {
            const uint token = min(t, p->n - 1);
            const uint2 block = x_blocks(p, token)[chunk / 4];
            const int2 totals = totals_of(block);
            const int total = RUN == 4 ? totals.x + totals.y : chunk % 4 ? totals.y : totals.x;
            uint4 q[RUN / 2];
            UNROLLED for (uint i = 0; i < RUN / 2; i++) q[i] = x_codes(p, token)[chunk / 2 + i];
            UNROLLED for (uint r = 0; r < ROWS; r++)
            {
                int sum = MISSING * total;
                UNROLLED for (uint i = 0; i < RUN / 2; i++) sum = dot16(v[r][i], q[i], sum);
                acc[r][t] += scaled(as_float(block.x), s[r], sum, total);
            }
        }
    }
}

#endif

/* ---------------------------------------------------------------- many rows of x */

#ifdef TM

/* Of 32 inputs: parts with scales of their own, words of codes in each. */
#if defined SHARED && SPAN == 16
#define PARTS 2
#else
#define PARTS 1
#endif
#define WORDS (8 / PARTS)

/* Sums over the 32 inputs that lie in the tiles, [word][row] each; items as in the gemm of floats. */
void tile_multiply(local const uint *w_tile, local const float2 *scales, local const uint *x_tile,
                   local const uint2 *blocks, float acc[RN][RM])
{
    UNROLLED for (uint part = 0; part < PARTS; part++)
    {
        int sum[RN][RM], total[RN];
        UNROLLED for (uint t = 0; t < RN; t++)
        {
            const int2 totals = totals_of(blocks[t * (TN / RN)]);
            total[t] = PARTS == 1 ? totals.x + totals.y : part ? totals.y : totals.x;
            UNROLLED for (uint m = 0; m < RM; m++) sum[t][m] = MISSING * total[t];
        }
        UNROLLED for (uint i = part * WORDS; i < (part + 1) * WORDS; i++)
        {
            uint a[RM], b[RN];
            UNROLLED for (uint m = 0; m < RM; m++) a[m] = w_tile[i * (TM + 1) + m * (TM / RM)];
            UNROLLED for (uint t = 0; t < RN; t++) b[t] = x_tile[i * (TN + 1) + t * (TN / RN)];
            UNROLLED for (uint t = 0; t < RN; t++) UNROLLED for (uint m = 0; m < RM; m++)
                sum[t][m] = dot4(a[m], b[t], sum[t][m]);
        }
        UNROLLED for (uint m = 0; m < RM; m++)
        {
            const float2 s = scales[part * TM + m * (TM / RM)];
            UNROLLED for (uint t = 0; t < RN; t++)
                acc[t][m] += scaled(as_float(blocks[t * (TN / RN)].x), s, sum[t][m], total[t]);
        }
    }
}

/* Four words of a tile: half of the 32 inputs of its row m. */
#define WORDS_PUT(tile, width, m, side, v)                                                                   \
    tile[(4 * side) * (width + 1) + m] = v.x;                                                                \
    tile[(4 * side + 1) * (width + 1) + m] = v.y;                                                            \
    tile[(4 * side + 2) * (width + 1) + m] = v.z;                                                            \
    tile[(4 * side + 3) * (width + 1) + m] = v.w

/* As the gemm of floats (products.cl), but tiles hold bytes, and their scales wait for the sums. Rows and
 * tokens that do not exist are the last ones again: nobody is given their results. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm(WEIGHTS_PARAMETERS(w), const uint units,
                                                                    PRODUCT_PARAMETERS)
{
    local uint w_tile[8 * (TM + 1)], x_tile[8 * (TN + 1)];
    local float2 scales[PARTS * TM];
    local uint2 blocks[TN];
    TABLE_TAKE(table);
    const struct weights weights = WEIGHTS_OF(w, units, table);
    const struct product p = PRODUCT_OF;
    const uint item = get_local_id(0), m0 = item % (TM / RM), t0 = item / (TM / RM);
    const uint row0 = get_group_id(0) * TM, token0 = get_group_id(1) * TN;
    float acc[RN][RM];
    UNROLLED for (uint t = 0; t < RN; t++) UNROLLED for (uint m = 0; m < RM; m++) acc[t][m] = 0;
    for (uint k = 0; k < cols; k += TK) {
        for (uint i = item; i < 2 * TM; i += ITEMS) {
            const uint side = i % 2, m = i / 2, row = min(row0 + m, rows - 1), chunk = k / 8 + 2 * side;
            const uint4 v = signed_codes(chunk_load(&weights, row, chunk),
                                         chunk_load(&weights, row, chunk + 1), table);
            WORDS_PUT(w_tile, TM, m, side, v);
            if (side < PARTS) scales[side * TM + m] = shared_of(&weights, row, chunk);
        }
        for (uint i = item; i < 2 * TN; i += ITEMS) {
            const uint side = i % 2, t = i / 2, token = min(token0 + t, n - 1);
            const uint4 v = x_codes(&p, token)[k / 16 + side];
            WORDS_PUT(x_tile, TN, t, side, v);
            if (!side) blocks[t] = x_blocks(&p, token)[k / 32];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_multiply(w_tile + m0, scales + m0, x_tile + t0, blocks + t0, acc);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    UNROLLED for (uint m = 0; m < RM; m++)
    {
        const uint row = row0 + m0 + m * (TM / RM);
        const float by = row_scale(&weights, min(row, rows - 1));
        UNROLLED for (uint t = 0; t < RN; t++) deliver(&p, token0 + t0 + t * (TN / RN), row, acc[t][m] * by);
    }
}

#endif
#endif
