/* integers.cl - gemv and gemm of products.cl with integer operands (INT8). Weights are integer codes with a
 * scale (and an addend, for formats with a minimum); x is signed bytes q with one scale d for every 32
 * inputs, as the kernel `codes` of products.cl writes them.
 *
 *   y = sum over runs of d * (scale * sum(v * q) + add * sum(q)),   v: the integer that a code stands for
 *
 * A run is 32 inputs, or 16 for formats with a scale for every 16 weights. Sums within a run are exact
 * integers.
 *
 * The kernels multiply signed bytes b with v = b + CODE_OFFSET. The sum of a run therefore starts at
 * CODE_OFFSET * sum(q), because sum(v * q) = CODE_OFFSET * sum(q) + sum(b * q). */
#ifdef INT8

/* v = code - BIAS. Codes of 8 bits are read as signed bytes b = code - 128, shorter ones as b = code. A table
 * yields v itself. */
#if defined LOOKED_UP
#define CODE_OFFSET 0
#elif LOW == 8
#define CODE_OFFSET (128 - BIAS)
#else
#define CODE_OFFSET (-BIAS)
#endif

#ifdef LOOKED_UP
/* Replace the four codes of a word by the bytes of the table. */
uint look_up_codes(const uint codes, local const table_number *table)
{
    return table[codes & 15] | table[codes >> 8 & 15] << 8 | table[codes >> 16 & 15] << 16 |
           table[codes >> 24] << 24;
}
#endif

/* The codes of two chunks (16 weights) as signed bytes. The four bytes of a word are weights that are 8 / LOW
 * weights from each other, because one mask takes every second code of 4 bits (every fourth of 2 bits). */
uint4 signed_codes(const struct chunk a, const struct chunk b, local const table_number *table)
{
#if LOW == 8
    return (uint4)(a.low, b.low) ^ 0x80808080u;
#elif LOW == 4
    uint4 v = (uint4)(a.low, a.low >> 4, b.low, b.low >> 4) & 0x0f0f0f0fu;
#if HIGH == 1
    uint2 h = (uint2)(a.high, b.high) & 0xffu; /* spread: bits of two weights per byte */
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
    v = (uint4)(look_up_codes(v.x, table), look_up_codes(v.y, table), look_up_codes(v.z, table),
                look_up_codes(v.w, table));
#endif
    return v;
#else
    const uint low = (a.low & 0xffffu) | b.low << 16;
    uint4 v = (uint4)(low, low >> 2, low >> 4, low >> 6) & 0x03030303u;
#if HIGH == 1
    uint h = (a.high & 0xffu) | (b.high & 0xffu) << 8; /* spread: bits of four weights per byte */
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

/* x as the kernel `codes` wrote it: x_codes are 16 codes each, x_blocks the scale and the two sums of 32. */
global const uint4 *x_codes(const struct product *p, const uint token)
{
    return (global const uint4 *)p->x + (ulong)token * (p->cols / 16);
}

global const uint2 *x_blocks(const struct product *p, const uint token)
{
    return (global const uint2 *)((global const uchar *)p->x + (ulong)p->n * p->cols) +
           (ulong)token * (p->cols / 32);
}

/* The sums of the first and the last 16 codes of a block. */
int2 totals_of(const uint2 block)
{
    return (int2)((int)(block.y << 16) >> 16, (int)block.y >> 16);
}

/* The contribution of a run to a result. sum: sum(v * q); total: sum(q). */
float run_result(const float d, const float2 s, const int sum, const int total)
{
#ifdef ADDS
    return d * MULTIPLY_ADD(s.x, (float)sum, s.y * (float)total);
#else
    return d * s.x * (float)sum;
#endif
}

/* ---------------------------------------------------------------- few rows of x */

#ifdef N

/* See products.cl. A run is 2 or 4 chunks, that is 16 or 32 weights. */
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
            s[r] = scale_and_add(w, row[r], chunk);
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
                int sum = CODE_OFFSET * total;
                UNROLLED for (uint i = 0; i < RUN / 2; i++) sum = dot16(v[r][i], q[i], sum);
                acc[r][t] += run_result(as_float(block.x), s[r], sum, total);
            }
        }
    }
}

#endif

/* ---------------------------------------------------------------- many rows of x */

#ifdef TM

/* PARTS: runs in 32 inputs. WORDS: words of four codes in each. */
#if defined SHARED && SPAN == 16
#define PARTS 2
#else
#define PARTS 1
#endif
#define WORDS (8 / PARTS)

/* Add the products of the two tiles, which contain 32 inputs as [word][row], to acc. The rows of an item are
 * those of tile_multiply in products.cl. */
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
            UNROLLED for (uint m = 0; m < RM; m++) sum[t][m] = CODE_OFFSET * total[t];
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
                acc[t][m] += run_result(as_float(blocks[t * (TN / RN)].x), s, sum[t][m], total[t]);
        }
    }
}

/* Write the four words v to row m of a tile: the first (side 0) or last 16 of its 32 inputs. */
#define WORDS_PUT(tile, width, m, side, v)                                                                   \
    tile[(4 * side) * (width + 1) + m] = v.x;                                                                \
    tile[(4 * side + 1) * (width + 1) + m] = v.y;                                                            \
    tile[(4 * side + 2) * (width + 1) + m] = v.z;                                                            \
    tile[(4 * side + 3) * (width + 1) + m] = v.w

/* The gemm of products.cl with tiles of bytes, whose sums are multiplied by the scales. Where a tile reaches
 * past the last row or token, that row or token is read again; store_result drops the additional results. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm(WEIGHTS_PARAMETERS(w), const uint units,
                                                                    PRODUCT_PARAMETERS)
{
    local uint w_tile[8 * (TM + 1)], x_tile[8 * (TN + 1)];
    local float2 scales[PARTS * TM];
    local uint2 blocks[TN];
    TABLE_LOAD(table);
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
            if (side < PARTS) scales[side * TM + m] = scale_and_add(&weights, row, chunk);
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
        UNROLLED for (uint t = 0; t < RN; t++)
            store_result(&p, token0 + t0 + t * (TN / RN), row, acc[t][m] * by);
    }
}

#endif
#endif
