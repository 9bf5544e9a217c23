/* products.cl - matrix products y = x * w^T, the look-up of rows in a table, and activation quantization.
 *
 * gemv computes products with few rows of x. A team of LANES work items multiplies ROWS rows of weights with
 * N rows of x. Each item reads one unit of weights at a time; neighbouring items read neighbouring units. At
 * the end the team adds its partial sums in a tree. A work group consists of WAYS teams.
 *
 * gemm computes products with many rows of x. A work group computes TM x TN results from tiles of TK inputs
 * in local memory; each item keeps RM x RN results in registers. So a group decodes each weight once per
 * tile.
 *
 * A buffer is passed as global bytes with an offset. Sums are f32. HALF_TILES stores the tiles of weights in
 * f16, but not those of x, whose values may exceed the range of f16. With INT8, integers.cl (which is
 * compiled after this file) multiplies the operands as integers. */

#ifdef FP_FAST_FMAF
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

/* For loops over arrays that must stay in registers: only arrays with constant indexes can. */
#define UNROLLED _Pragma("unroll")

#define FLOATS(name)    global const uchar *name##_bytes, const ulong name##_at
#define FLOATS_OF(name) ((global const float *)(name##_bytes + name##_at))

/* Flags: the matrix reorders or divides its inputs (struct input_scheme); the result is added to y. */
enum { ORDERED = 1, DIVIDED = 2, ADDED = 4 };

/* ---------------------------------------------------------------- a product */

enum { HAS_BIAS = 1, HAS_RESIDUAL = 2, ALIGNED_X = 4 /* rows of x begin at multiples of 16 bytes */ };

/* x [n][cols] and y [n][rows]; rows are x_stride and y_stride floats apart. residual has the layout of y and
 * may be the same memory. */
struct product {
    uint rows, cols, n, flags, x_stride, y_stride;
    global const float *x, *bias, *residual;
    global float *y;
};

#define PRODUCT_PARAMETERS                                                                                   \
    const uint rows, const uint cols, const uint n, const uint flags, FLOATS(x), const uint x_stride,        \
        FLOATS(bias), FLOATS(residual), global uchar *y_bytes, const ulong y_at, const uint y_stride
#define PRODUCT_OF                                                                                           \
    {                                                                                                        \
        rows, cols, n, flags, x_stride, y_stride, FLOATS_OF(x), FLOATS_OF(bias), FLOATS_OF(residual),        \
            (global float *)(y_bytes + y_at)                                                                 \
    }

/* Inputs k..k + 7 of a row of x. Inputs past the end of the row are 0. */
float8 inputs_at(const struct product *p, const uint token, const uint k)
{
    global const float *x = p->x + (ulong)token * p->x_stride;
    if ((p->flags & ALIGNED_X) && k + 8 <= p->cols) {
        global const float4 *v = (global const float4 *)(x + k);
        return (float8)(v[0], v[1]);
    }
    float v[8];
    for (uint j = 0; j < 8; j++) v[j] = k + j < p->cols ? x[k + j] : 0;
    return (float8)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}

/* Write one result to y, after adding the bias and the residual. Results outside the matrix are dropped. */
void store_result(const struct product *p, const uint token, const uint row, float sum)
{
    const ulong place = (ulong)token * p->y_stride + row;
    if (row >= p->rows || token >= p->n) return;
    if (p->flags & HAS_BIAS) sum += p->bias[row];
    if (p->flags & HAS_RESIDUAL) sum += p->residual[place];
    p->y[place] = sum;
}

/* ---------------------------------------------------------------- few rows of x */

#ifdef N

/* A run: the chunks of a unit that share one scale. RUN is their number. */
#if defined SHARED && SPAN < UNIT
#define RUN (SPAN / 8)
#else
#define RUN CHUNKS
#endif

float dot_add(const float8 a, const float8 b, float sum)
{
    sum = MULTIPLY_ADD(a.s0, b.s0, sum);
    sum = MULTIPLY_ADD(a.s1, b.s1, sum);
    sum = MULTIPLY_ADD(a.s2, b.s2, sum);
    sum = MULTIPLY_ADD(a.s3, b.s3, sum);
    sum = MULTIPLY_ADD(a.s4, b.s4, sum);
    sum = MULTIPLY_ADD(a.s5, b.s5, sum);
    sum = MULTIPLY_ADD(a.s6, b.s6, sum);
    return MULTIPLY_ADD(a.s7, b.s7, sum);
}

/* With STAGED, the group first copies the inputs to local memory, where all its teams read them. Without it,
 * the items of a team read x one unit apart, and each read touches another cache line. In local memory a unit
 * is padded by one float4, so that the units of neighbouring items begin in different banks. */
#define X_UNIT (UNIT / 4 + 1)
#define X_ROW  (LANES * X_UNIT)

#ifdef INT8

/* Defined in integers.cl. It reads the codes of x from global memory and ignores the parameter x. */
void unit_dot(const struct weights *w, const uint *row, const struct product *p, local const float4 *x,
              const uint unit, float acc[ROWS][N]);

#else

/* Multiply one unit of ROWS rows of weights with the inputs of N rows of x and add the products to acc.
 * Formats without a minimum apply the scale once to the sum of a run: scale * sum(code * x). Formats with a
 * minimum (ADDS) compute each weight first, because scale * sum(code * x) + add * sum(x) would lose digits by
 * cancellation. */
void unit_dot(const struct weights *w, const uint *row, const struct product *p, local const float4 *x,
              const uint unit, float acc[ROWS][N])
{
    struct chunk c[ROWS][CHUNKS];
    UNROLLED for (uint r = 0; r < ROWS; r++) unit_load(w, row[r], unit, c[r]);
    UNROLLED for (uint run = 0; run < CHUNKS; run += RUN)
    {
        float part[ROWS][N];
        float2 s[ROWS];
        UNROLLED for (uint r = 0; r < ROWS; r++)
        {
            s[r] = scale_and_add(w, row[r], unit * CHUNKS + run);
            UNROLLED for (uint t = 0; t < N; t++) part[r][t] = 0;
        }
        UNROLLED for (uint i = run; i < run + RUN; i++)
        {
            float8 v[ROWS];
            UNROLLED for (uint r = 0; r < ROWS; r++)
            {
                v[r] = chunk_values(&c[r][i], w->table);
#ifdef ADDS
                v[r] = MULTIPLY_ADD(v[r], (float8)(s[r].x), (float8)(s[r].y));
#endif
            }
            UNROLLED for (uint t = 0; t < N; t++)
            {
#ifdef STAGED
                const float8 in = (float8)(x[t * X_ROW + 2 * i], x[t * X_ROW + 2 * i + 1]);
#else
                const float8 in = inputs_at(p, min(t, p->n - 1), (unit * CHUNKS + i) * 8);
#endif
                UNROLLED for (uint r = 0; r < ROWS; r++) part[r][t] = dot_add(v[r], in, part[r][t]);
            }
        }
        UNROLLED for (uint r = 0; r < ROWS; r++) UNROLLED for (uint t = 0; t < N; t++)
#ifdef ADDS
            acc[r][t] += part[r][t];
#else
            acc[r][t] = MULTIPLY_ADD(s[r].x, part[r][t], acc[r][t]);
#endif
    }
}

#endif

/* Groups: WAYS * ROWS rows of weights each. */
kernel __attribute__((reqd_work_group_size(LANES, WAYS, 1))) void gemv(WEIGHTS_PARAMETERS(w),
                                                                       const uint units, PRODUCT_PARAMETERS)
{
    local float sums[ROWS * N][WAYS][LANES];
#ifdef STAGED
    local float4 x_units[N * X_ROW];
#else
    local float4 *const x_units = 0;
#endif
    TABLE_LOAD(table);
    const struct weights weights = WEIGHTS_OF(w, units, table);
    const struct product p = PRODUCT_OF;
    const uint lane = get_local_id(0), way = get_local_id(1);
    const uint row0 = (get_group_id(0) * WAYS + way) * ROWS;
    float acc[ROWS][N];
    uint row[ROWS];
    UNROLLED for (uint r = 0; r < ROWS; r++)
    {
        row[r] = min(row0 + r, rows - 1);
        UNROLLED for (uint t = 0; t < N; t++) acc[r][t] = 0;
    }
    for (uint first = 0; first < units; first += LANES) {
#ifdef STAGED
        barrier(CLK_LOCAL_MEM_FENCE); /* all items have read the previous units */
        for (uint i = way * LANES + lane; i < N * LANES * CHUNKS; i += WAYS * LANES) {
            const uint t = i / (LANES * CHUNKS), chunk = i % (LANES * CHUNKS);
            const float8 v = t < n ? inputs_at(&p, t, (first * CHUNKS + chunk) * 8) : (float8)(0);
            local float4 *place = x_units + t * X_ROW + chunk / CHUNKS * X_UNIT + chunk % CHUNKS * 2;
            place[0] = v.lo, place[1] = v.hi;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        if (first + lane < units) unit_dot(&weights, row, &p, x_units + lane * X_UNIT, first + lane, acc);
    }
    UNROLLED for (uint i = 0; i < ROWS * N; i++) sums[i][way][lane] = acc[i / N][i % N];
    for (uint apart = LANES / 2; apart > 0; apart /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < ROWS * N && lane < apart; i++) sums[i][way][lane] += sums[i][way][lane + apart];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lane; i < ROWS * N; i += LANES) {
        const uint r = row0 + i / N;
        store_result(&p, i % N, r, sums[i][way][0] * row_scale(&weights, min(r, rows - 1)));
    }
}

#endif

/* ---------------------------------------------------------------- many rows of x */

#ifdef TM

#define TK    32
#define ITEMS (TM / RM * (TN / RN))

#ifndef INT8

#ifdef HALF_TILES
typedef ushort w_number;
#define W_PUT(place, v) vstore_half(v, 0, (local half *)(place))
#define W_GET(place)    vload_half(0, (local const half *)(place))
#else
typedef float w_number;
#define W_PUT(place, v) *(place) = v
#define W_GET(place)    (*(place))
#endif
#define X_PUT(place, v) *(place) = v

/* Write the eight numbers v of chunk c to column m of a tile. A tile is [TK][width + 1]: the padding of one
 * number puts the eight rows of a chunk in different banks of local memory. */
#define TILE_PUT(PUT, tile, width, m, c, v)                                                                  \
    PUT(tile + (8 * c) * (width + 1) + m, v.s0);                                                             \
    PUT(tile + (8 * c + 1) * (width + 1) + m, v.s1);                                                         \
    PUT(tile + (8 * c + 2) * (width + 1) + m, v.s2);                                                         \
    PUT(tile + (8 * c + 3) * (width + 1) + m, v.s3);                                                         \
    PUT(tile + (8 * c + 4) * (width + 1) + m, v.s4);                                                         \
    PUT(tile + (8 * c + 5) * (width + 1) + m, v.s5);                                                         \
    PUT(tile + (8 * c + 6) * (width + 1) + m, v.s6);                                                         \
    PUT(tile + (8 * c + 7) * (width + 1) + m, v.s7)

/* Add the products of the two tiles to acc, one input after the other. The rows of an item are TM / RM and
 * TN / RN apart, so that neighbouring items read neighbouring numbers. */
void tile_multiply(local const w_number *w_tile, local const float *x_tile, float acc[RN][RM])
{
    for (uint i = 0; i < TK; i++) {
        float a[RM], b[RN];
        UNROLLED for (uint m = 0; m < RM; m++) a[m] = W_GET(w_tile + i * (TM + 1) + m * (TM / RM));
        UNROLLED for (uint t = 0; t < RN; t++) b[t] = x_tile[i * (TN + 1) + t * (TN / RN)];
        UNROLLED for (uint t = 0; t < RN; t++) UNROLLED for (uint m = 0; m < RM; m++)
            acc[t][m] = MULTIPLY_ADD(a[m], b[t], acc[t][m]);
    }
}

kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm(WEIGHTS_PARAMETERS(w), const uint units,
                                                                    PRODUCT_PARAMETERS)
{
    local w_number w_tile[TK * (TM + 1)];
    local float x_tile[TK * (TN + 1)];
    TABLE_LOAD(table);
    const struct weights weights = WEIGHTS_OF(w, units, table);
    const struct product p = PRODUCT_OF;
    const uint item = get_local_id(0), m0 = item % (TM / RM), t0 = item / (TM / RM);
    const uint row0 = get_group_id(0) * TM, token0 = get_group_id(1) * TN;
    float acc[RN][RM];
    UNROLLED for (uint t = 0; t < RN; t++) UNROLLED for (uint m = 0; m < RM; m++) acc[t][m] = 0;
    for (uint k = 0; k < units * UNIT; k += TK) {
        for (uint i = item; i < TM * (TK / 8); i += ITEMS) {
            const uint c = i % (TK / 8), m = i / (TK / 8), chunk = k / 8 + c;
            const bool exists = row0 + m < rows && chunk < units * CHUNKS;
            const float8 v = exists ? chunk_weights(&weights, row0 + m, chunk) : (float8)(0);
            TILE_PUT(W_PUT, w_tile, TM, m, c, v);
        }
        for (uint i = item; i < TN * (TK / 8); i += ITEMS) {
            const uint c = i % (TK / 8), t = i / (TK / 8);
            const bool exists = token0 + t < n;
            const float8 v = exists ? inputs_at(&p, token0 + t, k + 8 * c) : (float8)(0);
            TILE_PUT(X_PUT, x_tile, TN, t, c, v);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_multiply(w_tile + m0, x_tile + t0, acc);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    UNROLLED for (uint t = 0; t < RN; t++) UNROLLED for (uint m = 0; m < RM; m++)
        store_result(&p, token0 + t0 + t * (TN / RN), row0 + m0 + m * (TM / RM), acc[t][m]);
}

#endif
#endif

/* ---------------------------------------------------------------- rows of a table */

/* Compiled into the program for single rows of x: a forward pass over one token begins with a look-up. */
#if defined N && N == 1 && !defined INT8

/* y[i] = scale * row ids[i] of the table, plus y[i] with ADDED. With ORDERED and DIVIDED, the reordering and
 * division of the columns are undone, so that the numbers are those of the original table. Items: one chunk
 * each; rows. */
kernel void gather(WEIGHTS_PARAMETERS(w), const uint units, const uint cols, global const int *ids,
                   global uchar *y_bytes, const ulong y_at, const uint y_stride, const float scale,
                   const uint flags, FLOATS(order), FLOATS(divide))
{
    TABLE_LOAD(table);
    const struct weights weights = WEIGHTS_OF(w, units, table);
    const uint chunk = get_global_id(0), i = get_global_id(1);
    if (chunk >= units * CHUNKS) return;
    const float8 v = chunk_weights(&weights, ids[i], chunk);
    const float value[8] = { v.s0, v.s1, v.s2, v.s3, v.s4, v.s5, v.s6, v.s7 };
    global float *y = (global float *)(y_bytes + y_at) + (ulong)i * y_stride;
    for (uint j = 0; j < 8; j++) {
        const uint k = 8 * chunk + j;
        if (k >= cols) break;
        const uint to = flags & ORDERED ? ((global const uint *)(order_bytes + order_at))[k] : k;
        const float one = (flags & DIVIDED ? value[j] / FLOATS_OF(divide)[to] : value[j]) * scale;
        y[to] = flags & ADDED ? y[to] + one : one;
    }
}

#endif
#ifndef LOW

/* The same for a table of plain f32 rows, which are not split into planes. */
kernel void gather_plain(FLOATS(table), const uint cols, global const int *ids, global uchar *y_bytes,
                         const ulong y_at, const uint y_stride, const float scale, const uint flags)
{
    const uint k = get_global_id(0), i = get_global_id(1);
    if (k >= cols) return;
    global float *y = (global float *)(y_bytes + y_at) + (ulong)i * y_stride;
    const float one = FLOATS_OF(table)[(ulong)ids[i] * cols + k] * scale;
    y[k] = flags & ADDED ? y[k] + one : one;
}

#define PREPARE_ITEMS 128

/* x / by, correctly rounded except in rare cases. Division in OpenCL may be off by 2.5 units in the last
 * place; one Newton step with the remainder corrects it: q + (x - q * by) / by. */
float divided(const float x, const float by)
{
    const float q = x / by, exact = fma(fma(-q, by, x), 1 / by, q);
    return fabs(q) < 0x1p100f ? exact : q; /* with an infinite q the remainder is NaN */
}

/* Round v to a float whose mantissa has `drop` bits fewer: to nearest, ties to even, at most `largest`. Below
 * `normal`, the smallest normal number of that format, the spacing is constant: (v + magic) - magic rounds to
 * the spacing of floats near `magic`. NaN stays NaN. */
float rounded(const float v, const uint drop, const float normal, const float magic, const float largest)
{
    const uint u = as_uint(v), bits = u & 0x7fffffffu, half_unit = (1u << (drop - 1)) - 1;
    float r = as_float((bits + half_unit + (u >> drop & 1)) & ~((1u << drop) - 1));
    if (as_float(bits) < normal) r = (as_float(bits) + magic) - magic;
    return isnan(v) ? v : copysign(min(r, largest), v);
}

/* How numbers of x are rounded: not at all, to whole multiples of the scale, or to floats with fewer bits. */
enum { ROUND_NOT, ROUND_STEPS, ROUND_FLOATS };

/* Apply the activation quantization that a matrix prescribes (struct input_scheme) and write the rounded
 * values as f32. A work group handles one row of x:
 *
 *   v    = x[order[k]] / divide[order[k]]        (each part only with its flag)
 *   y[k] = by * rounded(v / by)
 *
 * by is `scale`, or, if that is 0, clamp(largest magnitude of the row, least, limit) / steps. ROUND_STEPS
 * clamps v / by to low..high before rounding. With `multiply`, v / by is computed as v * (1 / by), as some
 * methods do. */
kernel __attribute__((reqd_work_group_size(PREPARE_ITEMS, 1, 1))) void
prepare(FLOATS(x), const uint x_stride, const uint cols, const uint flags, FLOATS(order), FLOATS(divide),
        global uchar *y_bytes, const ulong y_at, const uint y_stride, const uint mode, const float scale,
        const float least, const float limit, const float steps, const float low, const float high,
        const uint multiply, const uint drop, const float normal, const float magic, const float largest)
{
    local uint tops[PREPARE_ITEMS];
    const uint item = get_local_id(0), row = get_group_id(0);
    global const float *in = FLOATS_OF(x) + (ulong)row * x_stride;
    global float *y = (global float *)(y_bytes + y_at) + (ulong)row * y_stride;
    float by = scale;
    if (mode != ROUND_NOT && scale == 0) {
        uint top = 0; /* magnitudes have the order of their bits as integers; NaN is the largest */
        for (uint k = item; k < cols; k += PREPARE_ITEMS) {
            const float v = flags & DIVIDED ? divided(in[k], FLOATS_OF(divide)[k]) : in[k];
            top = max(top, as_uint(v) & 0x7fffffffu);
        }
        tops[item] = top;
        for (uint apart = PREPARE_ITEMS / 2; apart > 0; apart /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < apart) tops[item] = max(tops[item], tops[item + apart]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float most = as_float(tops[0]);
        most = most > limit ? limit : most;
        by = divided(most < least ? least : most, steps);
    }
    const float reciprocal = divided(1, by);
    for (uint k = item; k < cols; k += PREPARE_ITEMS) {
        const uint from = flags & ORDERED ? ((global const uint *)(order_bytes + order_at))[k] : k;
        float v = in[from];
        if (flags & DIVIDED) v = divided(v, FLOATS_OF(divide)[from]);
        if (mode != ROUND_NOT) v = multiply ? v * reciprocal : divided(v, by);
        if (mode == ROUND_STEPS) v = rint(clamp(v, low, high));
        if (mode == ROUND_FLOATS) v = rounded(v, drop, normal, magic, largest);
        y[k] = mode != ROUND_NOT ? v * by : v;
    }
}

#define CODES_ITEMS 64

/* Quantize x to 8 bits for integers.cl. Every block of 32 inputs has one scale d = (largest magnitude) / 127
 * and the codes q = round(x * (127 / largest magnitude)), bit for bit those of act=int8 on a CPU.
 *
 *   y: codes [n][cols], then [n][cols / 32] pairs of d (f32) and the sums of the first and last 16 codes (two
 *      16-bit integers in one word)
 *
 * The four codes of a word are inputs that are `apart` inputs from each other: signed_codes (integers.cl)
 * masks the codes of weights from a word in this order. Items: 4 inputs each. cols: a multiple of 32. */
kernel __attribute__((reqd_work_group_size(CODES_ITEMS, 1, 1))) void
codes(FLOATS(x), const uint x_stride, const uint cols, const uint n, const uint apart, global uchar *y_bytes,
      const ulong y_at)
{
    local uint tops[CODES_ITEMS];
    local char bytes[4 * CODES_ITEMS];
    const uint item = get_local_id(0), row = get_group_id(1), k = 4 * get_global_id(0);
    const float4 v = k < cols ? vload4(0, FLOATS_OF(x) + (ulong)row * x_stride + k) : (float4)(0);
    /* Magnitudes have the order of their bits as integers; NaN is the largest. */
    const uint4 size = as_uint4(v) & 0x7fffffffu;
    uint top = max(max(size.x, size.y), max(size.z, size.w));
    tops[item] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < 8; i++) top = max(top, tops[item / 8 * 8 + i]);
    const float most = as_float(top), by = most != 0 ? divided(127, most) : 0;
    vstore4(convert_char4_sat_rte(v * by), item, bytes);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k >= cols) return;
    global uchar *y = y_bytes + y_at;
    local const char *block = bytes + item / 8 * 32;
    const uint word = item % 8, at = word / apart * apart * 4 + word % apart;
    const uchar4 q = (uchar4)(as_uchar(block[at]), as_uchar(block[at + apart]),
                              as_uchar(block[at + 2 * apart]), as_uchar(block[at + 3 * apart]));
    ((global uint *)(y + (ulong)row * cols))[k / 4] = as_uint(q);
    if (word) return;
    int sums[2] = { 0, 0 };
    for (uint i = 0; i < 32; i++) sums[i / 16] += block[i];
    ((global uint2 *)(y + (ulong)n *
                              cols))[(ulong)row * (cols / 32) + k / 32] = (uint2)(as_uint(divided(most, 127)),
                                                                                  ((uint)sums[0] & 0xffffu) |
                                                                                      (uint)sums[1] << 16);
}

#endif
