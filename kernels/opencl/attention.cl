/* Attention over the KV cache with an online softmax in f32.
 *
 * The file is compiled after kv.cl in three variants:
 *   -DQUERIES=n: attend_few, for up to n query vectors. Each item reads stored numbers directly.
 *   -DROWS=n: attend_many, for up to 16 n query vectors. Keys, queries and values pass through local memory.
 *   neither: merge, which combines the partial results of several groups.
 * The first two need -DK, -DV (formats), -DK_DIM, -DV_DIM (elements of a head), -DV_STORED (elements of
 * a stored row of values, the first V_DIM of which are the values) and -DBLOCK_TOKENS. */

/* These structs must be identical with those in attention.c. */
struct plan {
    int heads, kv_heads, part_heads, parts, window, chunk, q_stride, y_stride, slots, pos;
    float scale, softcap;
};
struct piece {
    int row, rows, from, to, table, slot;
};

#if defined K_DIM

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)

#define K_SCALED JOIN(SCALED_, K)
#define V_SCALED JOIN(SCALED_, V)
#define K_BYTES  JOIN(BYTES_, K)(K_DIM)
#define V_BYTES  JOIN(BYTES_, V)(V_STORED)

#define K_LOAD8(row, at) JOIN(load8_, K)(keys + (ulong)(row)*K_BYTES, at, K_DIM)
#define V_LOAD8(row, at) JOIN(load8_, V)(values + (ulong)(row)*V_BYTES, at, V_DIM)

/* The row of the cache that holds a position. */
uint row_of(global const int *ints, int table, int position, int kv_heads, int kv_head)
{
    return (ints[table + position / BLOCK_TOKENS] * kv_heads + kv_head) * BLOCK_TOKENS +
           position % BLOCK_TOKENS;
}

/* What a work group computes: a piece (rows and positions) with `heads` query heads from `head` on, which
 * share one KV head. Query vector `index` is row index / heads and head index % heads of these. */
struct group {
    global const struct plan *plan;
    struct piece piece;
    int kv_head, head, heads, vectors;
};

struct group group_of(global const int *ints, int plan_at)
{
    struct group g = { .plan = (global const struct plan *)(ints + plan_at) };
    const int unit = get_group_id(1), parts = g.plan->parts, part_heads = g.plan->part_heads;
    const int shared_by = g.plan->heads / g.plan->kv_heads, part = unit % parts;
    g.piece = ((global const struct piece *)(g.plan + 1))[get_group_id(0)];
    g.kv_head = unit / parts;
    g.head = g.kv_head * shared_by + part * part_heads;
    g.heads = min(part_heads, shared_by - part * part_heads);
    g.vectors = g.heads * g.piece.rows;
    return g;
}

/* The row of the cache that holds a position of the group's sequence and KV head. */
uint group_row(const struct group *g, global const int *ints, int position)
{
    return row_of(ints, g->piece.table, position, g->plan->kv_heads, g->kv_head);
}

global const float *query_of(const struct group *g, global const uchar *queries, int index)
{
    return (global const float *)queries + (long)(g->piece.row + index / g->heads) * g->plan->q_stride +
           (long)(g->head + index % g->heads) * K_DIM;
}

/* The positions of this piece that a query vector attends to: first position and end. */
int2 visible_range(const struct group *g, global const int *ints, int index)
{
    const int last = index < g->vectors ? ints[g->plan->pos + g->piece.row + index / g->heads] : -1;
    const int chunk = g->plan->chunk, first = chunk > 0 ? last / chunk * chunk : 0;
    return (int2)(g->plan->window > 0 ? max(first, last - g->plan->window + 1) : first,
                  min(last + 1, g->piece.to));
}

/* The score with which the online softmax of a query vector begins: its head's sink, in the piece with its
 * first position. */
float sink_of(const struct group *g, global const int *ints, int index, global const float *sinks,
              int has_sinks)
{
    if (!has_sinks || index >= g->vectors) return -INFINITY;
    const int first = visible_range(g, ints, index).x;
    return g->piece.from <= first && first < g->piece.to ? sinks[g->head + index % g->heads] : -INFINITY;
}

/* Results go to y, or, where several groups share the positions of a row, to a slot of the partial results:
 * first (largest score, sum of exp(score - largest)) of all slots, then the weighted sums of values. */
long slot_of(const struct group *g, int index)
{
    return g->piece.slot + (long)(index / g->heads) * g->plan->heads + g->head + index % g->heads;
}

global float *result_of(const struct group *g, int index, global float *y, global float *partials)
{
    if (g->piece.slot >= 0) return partials + 2 * (long)g->plan->slots + slot_of(g, index) * V_DIM;
    return y + (long)(g->piece.row + index / g->heads) * g->plan->y_stride +
           (long)(g->head + index % g->heads) * V_DIM;
}

#endif

/* ---------------------------------------------------------------- few queries */

#if defined QUERIES

#define ITEMS    128
#define TILE     64 /* tokens per update of the softmax */
#define S_ITEMS  16 /* items that share the softmax of one query */
#define S_TOKENS (TILE / S_ITEMS)
#define K_PIECES ((K_DIM + 7) / 8)
#define V_PIECES ((V_DIM + 7) / 8)
#define K_LANES  (K_PIECES >= 16 ? 8 : K_PIECES >= 4 ? 4 : 2) /* items that share a key */
#define K_STEPS  (TILE * K_LANES / ITEMS)                     /* keys per item */
#define K_ROUNDS ((K_PIECES + K_LANES - 1) / K_LANES)         /* pieces of 8 numbers per item and key */
#define Q_WIDE   (K_ROUNDS * K_LANES * 8)                     /* elements of a query, padded with zeros */
#define V_LANES                                                                                              \
    (V_PIECES > 64   ? 128                                                                                   \
     : V_PIECES > 32 ? 64                                                                                    \
     : V_PIECES > 16 ? 32                                                                                    \
     : V_PIECES > 8  ? 16                                                                                    \
     : V_PIECES > 4  ? 8                                                                                     \
                     : 4)           /* items that share a value, 8 numbers each */
#define V_TOKENS (ITEMS / V_LANES) /* values read at once */
#define SCORES   (QUERIES * TILE * K_LANES)
#define POOL     (SCORES > ITEMS * 8 ? SCORES : ITEMS * 8)

struct few_memory {
    float4 q[QUERIES][Q_WIDE / 4];
    float pool[POOL]; /* partial scores [query][token][lane]; at the end results [token][V_LANES * 8] */
    float weights[QUERIES][TILE], maxima[QUERIES][S_ITEMS], fade[QUERIES];
    int2 visible[QUERIES];
    uint rows[2][TILE]; /* cache rows of this tile of tokens and the next */
};

float capped(float score, float softcap)
{
    return softcap > 0 ? softcap * tanh(score / softcap) + (score - score) : score; /* infinity: NaN */
}

float dot4(float4 a, float4 b, float sum)
{
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

/* Load the query vectors, times the scale, and the positions they attend to. */
void few_load_queries(const struct group *g, global const uchar *queries, global const int *ints,
                      local struct few_memory *m)
{
    const int id = get_local_id(0);
    for (int i = id; i < QUERIES * Q_WIDE; i += ITEMS) {
        const int index = i / Q_WIDE, d = i % Q_WIDE;
        ((local float *)m->q)[i] = index < g->vectors && d < K_DIM
                                       ? query_of(g, queries, index)[d] * g->plan->scale
                                       : 0;
    }
    if (id < QUERIES) m->visible[id] = visible_range(g, ints, id);
}

/* Multiply n keys by all queries; each item leaves its part of the dot products in the pool. Past the last
 * token and the last piece of a key, the last one is read again: loads without a condition can all be in
 * flight at once, and the queries are 0 there. */
void few_score_keys(global const uchar *keys, local struct few_memory *m, int turn, int n)
{
    const int id = get_local_id(0);
    uint row[K_STEPS];
    float dot[K_STEPS][QUERIES];
    for (int s = 0; s < K_STEPS; s++) {
        row[s] = m->rows[turn][min(id / K_LANES + s * (ITEMS / K_LANES), n - 1)];
        for (int i = 0; i < QUERIES; i++) dot[s][i] = 0;
    }
    for (int r = 0; r < K_ROUNDS; r++) {
        const int piece = id % K_LANES + r * K_LANES;
        float8 k[K_STEPS];
        for (int s = 0; s < K_STEPS; s++) k[s] = K_LOAD8(row[s], min(piece, K_PIECES - 1) * 8);
        for (int i = 0; i < QUERIES; i++) {
            const float4 a = m->q[i][2 * piece], b = m->q[i][2 * piece + 1];
            for (int s = 0; s < K_STEPS; s++) dot[s][i] = dot4(k[s].hi, b, dot4(k[s].lo, a, dot[s][i]));
        }
    }
    for (int s = 0; s < K_STEPS; s++)
        for (int i = 0; i < QUERIES; i++) m->pool[(i * TILE * K_LANES) + s * ITEMS + id] = dot[s][i];
}

/* Add up the parts of this item's scores (one query, S_TOKENS tokens), mask them, and store their maximum. */
void few_finish_scores(const struct group *g, global const uchar *keys, local struct few_memory *m, int turn,
                       int from, float *score)
{
    const int query = get_local_id(0) / S_ITEMS, item = get_local_id(0) % S_ITEMS;
    const int n = min(TILE, g->piece.to - from);
    float most = -INFINITY;
    if (query >= QUERIES) return;
    const int2 visible = m->visible[query];
    for (int i = 0; i < S_TOKENS; i++) {
        const int j = item + i * S_ITEMS, position = from + j;
        float s = 0;
        for (int l = 0; l < K_LANES; l++) s += m->pool[(query * TILE + j) * K_LANES + l];
        if (K_SCALED && j < n) s *= fp8_row_scale(keys + (ulong)m->rows[turn][j] * K_BYTES, K_DIM);
        s = capped(s, g->plan->softcap);
        score[i] = position >= visible.x && position < visible.y ? s : -INFINITY;
        most = fmax(most, score[i]);
    }
    m->maxima[query][item] = most;
}

/* The online softmax: turn this item's scores into weights relative to the new maximum `*peak`, and store the
 * factor (fade) by which the sums so far must be multiplied. While nothing is visible, weights and fade are
 * 0. */
void few_update_weights(global const uchar *values, local struct few_memory *m, int turn, int n,
                        const float *score, float *peak, float *total)
{
    const int query = get_local_id(0) / S_ITEMS, item = get_local_id(0) % S_ITEMS;
    float most = *peak;
    if (query >= QUERIES) return;
    for (int i = 0; i < S_ITEMS; i++) most = fmax(most, m->maxima[query][i]);
    const float zero = most == -INFINITY ? 0 : most, by = exp(*peak - zero);
    *total *= by;
    for (int i = 0; i < S_TOKENS; i++) {
        const int j = item + i * S_ITEMS;
        float w = exp(score[i] - zero);
        *total += w;
        if (V_SCALED && j < n) w *= fp8_row_scale(values + (ulong)m->rows[turn][j] * V_BYTES, V_STORED);
        m->weights[query][j] = w;
    }
    *peak = most;
    if (item == 0) m->fade[query] = by;
}

/* sum = sum * fade + weights times values. The weights of tokens past the last one are 0. */
void few_add_values(global const uchar *values, local struct few_memory *m, int turn, int n, float8 *sum)
{
    const int id = get_local_id(0), lane = id % V_LANES;
    for (int i = 0; i < QUERIES; i++) sum[i] *= m->fade[i];
#pragma unroll 4
    for (int s = 0; s < TILE / V_TOKENS; s++) {
        const int j = id / V_LANES + s * V_TOKENS;
        const float8 v = V_LOAD8(m->rows[turn][min(j, n - 1)], min(lane, V_PIECES - 1) * 8);
        for (int i = 0; i < QUERIES; i++) sum[i] = fma((float8)m->weights[i][j], v, sum[i]);
    }
}

/* Write the result of query vector i, whose partial sums are in the pool. maxima holds the items' totals now,
 * and fade the largest scores. */
void few_write_result(const struct group *g, local struct few_memory *m, int i, global float *y,
                      global float *partials)
{
    const int id = get_local_id(0);
    float all = 0;
    for (int k = 0; k < S_ITEMS; k++) all += m->maxima[i][k];
    global float *out = result_of(g, i, y, partials);
    for (int d = id; d < V_DIM; d += ITEMS) {
        float v = 0;
        for (int k = 0; k < V_TOKENS; k++) v += m->pool[k * V_LANES * 8 + d];
        out[d] = g->piece.slot < 0 ? v / all : v;
    }
    if (g->piece.slot >= 0 && id == 0) vstore2((float2)(m->fade[i], all), slot_of(g, i), partials);
}

/* Attention of up to QUERIES query vectors of one KV head over the positions of a piece. Each item reads 8
 * stored numbers at a time, neighbouring items neighbouring numbers; scores and weights pass through local
 * memory. Work groups: (pieces, KV heads x parts of their query heads). */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attend_few(global const uchar *k_buffer, ulong k_at, global const uchar *v_buffer, ulong v_at,
           global const uchar *q_buffer, ulong q_at, global uchar *y_buffer, ulong y_at,
           global uchar *partial_buffer, ulong partials_at, global const int *ints, int plan_at,
           global const uchar *sink_buffer, ulong sinks_at, int has_sinks)
{
    local struct few_memory m;
    const struct group g = group_of(ints, plan_at);
    global const uchar *keys = k_buffer + k_at, *values = v_buffer + v_at;
    const int id = get_local_id(0), last = g.piece.to;
    float peak = sink_of(&g, ints, id / S_ITEMS, (global const float *)(sink_buffer + sinks_at), has_sinks);
    float total = peak > -INFINITY && id % S_ITEMS == 0 ? 1 : 0, score[S_TOKENS]; /* items add up */
    float8 sum[QUERIES];
    for (int i = 0; i < QUERIES; i++) sum[i] = 0;
    few_load_queries(&g, q_buffer + q_at, ints, &m);
    if (id < TILE && g.piece.from + id < last) m.rows[0][id] = group_row(&g, ints, g.piece.from + id);
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int from = g.piece.from, turn = 0; from < last; from += TILE, turn ^= 1) {
        const int n = min(TILE, last - from);
        few_score_keys(keys, &m, turn, n);
        barrier(CLK_LOCAL_MEM_FENCE);
        few_finish_scores(&g, keys, &m, turn, from, score);
        if (id < TILE &&
            from + TILE + id < last) /* rows of the next tile: loading them early hides latency */
            m.rows[turn ^ 1][id] = group_row(&g, ints, from + TILE + id);
        barrier(CLK_LOCAL_MEM_FENCE);
        few_update_weights(values, &m, turn, n, score, &peak, &total);
        barrier(CLK_LOCAL_MEM_FENCE);
        few_add_values(values, &m, turn, n, sum);
    }

    barrier(CLK_LOCAL_MEM_FENCE); /* all items have read the weights */
    if (id / S_ITEMS < QUERIES) {
        m.maxima[id / S_ITEMS][id % S_ITEMS] = total;
        if (id % S_ITEMS == 0) m.fade[id / S_ITEMS] = peak;
    }
    for (int i = 0; i < QUERIES; i++) {
        vstore8(sum[i], id, m.pool);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < g.vectors)
            few_write_result(&g, &m, i, (global float *)(y_buffer + y_at),
                             (global float *)(partial_buffer + partials_at));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif

/* ---------------------------------------------------------------- many queries */

#if defined ROWS

#define ACROSS     16 /* items: the group is ACROSS x ACROSS, item (x, y) */
#define ITEMS      (ACROSS * ACROSS)
#define VECTORS    (ACROSS * ROWS) /* query vectors; item (x, y) has ROWS of them, from y * ROWS on */
#define TOKENS     64              /* tokens of a tile; item (x, y) scores 4 of them, from x * 4 on */
#define K_STEP     16              /* elements of a head that are multiplied between two barriers */
#define V_WIDE     ((V_DIM + 63) / 64 * 64)
#define V_PARTS    (V_WIDE / 64) /* item (x, y) sums four elements of each 64, from x * 4 on */
#define V_STEP     (V_WIDE <= 128 ? 2048 / V_WIDE : V_WIDE <= 256 ? 8 : 4) /* tokens between two barriers */
#define V_EIGHTS   (V_STEP * V_WIDE / 8)
#define V_MOVES    ((V_EIGHTS + ITEMS - 1) / ITEMS) /* loads per item for V_STEP tokens */
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define STAGE      MAX2((K_STEP) * (VECTORS + TOKENS), MAX2((V_STEP) * (V_WIDE), (VECTORS) * (ACROSS)))

struct many_memory {
    float4 stage[STAGE / 4];              /* keys and queries, then values, then maxima or totals */
    float4 weights[VECTORS * TOKENS / 4]; /* [vector][token] */
    uint rows[TOKENS];                    /* cache rows */
};

/* The index of column i of row k in a tile with n columns. Without the exclusive or, rows eight apart would
 * use the same memory bank. */
#define PLACE(k, i, n) ((k) * (n) + ((i) ^ ((k)*2 & 16 & ((n)-1))))

#if ROWS == 4
typedef float4 floats;
#elif ROWS == 2
typedef float2 floats;
#else
typedef float floats;
#endif

/* Store 8 numbers of one key or query, from element k on, as column i of a tile with n columns. */
void put8(local float *tile, int k, int i, int n, float8 v)
{
    float each[8];
    vstore8(v, 0, each);
    for (int j = 0; j < 8; j++) tile[PLACE(k + j, i, n)] = each[j];
}

float8 query8(global const float *q, int at)
{
    float v[8];
    if (K_DIM % 8 == 0) return vload8(0, q + at);
    for (int i = 0; i < 8; i++) v[i] = at + i < K_DIM ? q[at + i] : 0;
    return vload8(0, v);
}

/* The 8 elements from k on that this item loads: of its key, of its query, or 0. */
#define OPERAND8(k)                                                                                          \
    ((k) >= K_DIM    ? (float8)0                                                                             \
     : line < TOKENS ? (line < n ? K_LOAD8(key, k) : (float8)0)                                              \
     : has_query     ? query8(q_line, k)                                                                     \
                     : (float8)0)

/* Piece `i` of the values of the V_STEP tokens from `first` on. */
#define VALUE8(first, i)                                                                                     \
    ((first) + (i) / (V_WIDE / 8) < n && (i) % (V_WIDE / 8) * 8 < V_DIM                                      \
         ? V_LOAD8(m.rows[(first) + (i) / (V_WIDE / 8)], (i) % (V_WIDE / 8) * 8)                             \
         : (float8)0)

/* score += products of this item's ROWS queries and 4 keys over K_STEP elements. Each step has a sum of its
 * own: one long chain of additions would lose digits with large heads. */
void many_multiply_keys(local const float *stage, float4 *score)
{
    const int x = get_local_id(0) % ACROSS, y = get_local_id(0) / ACROSS;
    local const float *stage_q = stage + K_STEP * TOKENS;
    float4 part[ROWS];
    for (int r = 0; r < ROWS; r++) part[r] = 0;
    for (int i = 0; i < K_STEP; i++) {
        union {
            floats all;
            float each[ROWS];
        } q;
        q.all = *(local const floats *)(stage_q + PLACE(i, y * ROWS, VECTORS));
        const float4 keys4 = *(local const float4 *)(stage + PLACE(i, x * 4, TOKENS));
        for (int r = 0; r < ROWS; r++) part[r] = fma((float4)q.each[r], keys4, part[r]);
    }
    for (int r = 0; r < ROWS; r++) score[r] += part[r];
}

/* The row scales of this item's 4 tokens, in the formats that have one. */
float4 many_row_scales(global const uchar *cache, ulong row_bytes, int dim, local const uint *rows, int n)
{
    const int x = get_local_id(0) % ACROSS;
    float scale[4];
    for (int i = 0; i < 4; i++)
        scale[i] = x * 4 + i < n ? fp8_row_scale(cache + rows[x * 4 + i] * row_bytes, dim) : 0;
    return vload4(0, scale);
}

/* Apply scale, soft cap and mask to this item's scores, and store the maximum of each of its rows. */
void many_finish_scores(float4 key_scale, float softcap, int from, const int2 *visible, float4 *score,
                        local float *maxima)
{
    const int x = get_local_id(0) % ACROSS, y = get_local_id(0) / ACROSS;
    const int4 position = from + x * 4 + (int4)(0, 1, 2, 3);
    for (int r = 0; r < ROWS; r++) {
        float4 s = score[r];
        if (K_SCALED) s *= key_scale;
        if (softcap > 0) s = softcap * tanh(s / softcap) + (s - s); /* infinity: NaN */
        s = select((float4)-INFINITY, s, position >= visible[r].x && position < visible[r].y);
        score[r] = s;
        maxima[(y * ROWS + r) * ACROSS + x] = fmax(fmax(s.x, s.y), fmax(s.z, s.w));
    }
}

/* The online softmax: turn this item's scores into weights relative to the new maximum, and rescale its sums.
 * While nothing is visible, weights and sums are 0. */
void many_update_weights(local struct many_memory *m, float4 value_scale, const float4 *score, float *peak,
                         float *total, float4 (*sum)[V_PARTS])
{
    const int x = get_local_id(0) % ACROSS, y = get_local_id(0) / ACROSS;
    local const float *maxima = (local const float *)m->stage;
    for (int r = 0; r < ROWS; r++) {
        float most = peak[r];
        for (int i = 0; i < ACROSS; i++) most = fmax(most, maxima[(y * ROWS + r) * ACROSS + i]);
        const float zero = most == -INFINITY ? 0 : most, by = exp(peak[r] - zero);
        const float4 w = exp(score[r] - zero);
        peak[r] = most;
        total[r] = total[r] * by + ((w.x + w.y) + (w.z + w.w));
        m->weights[(y * ROWS + r) * (TOKENS / 4) + x] = w * value_scale;
        for (int j = 0; j < V_PARTS; j++) sum[r][j] *= by;
    }
}

/* sum += weights times the values of V_STEP tokens from `step` on, which are in the stage. */
void many_add_values(local const struct many_memory *m, int step, float4 (*sum)[V_PARTS])
{
    const int x = get_local_id(0) % ACROSS, y = get_local_id(0) / ACROSS;
    for (int j = 0; j < V_STEP; j += 4) {
        float4 w[ROWS];
        for (int r = 0; r < ROWS; r++) w[r] = m->weights[(y * ROWS + r) * (TOKENS / 4) + (step + j) / 4];
        for (int d = 0; d < V_PARTS; d++) {
            local const float4 *v = m->stage + j * (V_WIDE / 4) + d * 16 + x;
            const float4 a = v[0], b = v[V_WIDE / 4], c = v[V_WIDE / 2], e = v[V_WIDE / 4 * 3];
            for (int r = 0; r < ROWS; r++)
                sum[r][d] = fma(w[r].wwww, e,
                                fma(w[r].zzzz, c, fma(w[r].yyyy, b, fma(w[r].xxxx, a, sum[r][d]))));
        }
    }
}

/* Write the results of this item's query vectors. The stage holds the totals of all items. */
void many_write_results(const struct group *g, local const float *totals, const float *peak,
                        float4 (*sum)[V_PARTS], global float *y_out, global float *partials)
{
    const int x = get_local_id(0) % ACROSS, y = get_local_id(0) / ACROSS;
    for (int r = 0; r < ROWS; r++) {
        const int index = y * ROWS + r;
        if (index >= g->vectors) break;
        float all = 0;
        for (int i = 0; i < ACROSS; i++) all += totals[index * ACROSS + i];
        global float *out = result_of(g, index, y_out, partials);
        for (int j = 0; j < V_PARTS; j++) {
            float v[4];
            vstore4(g->piece.slot < 0 ? sum[r][j] / all : sum[r][j], 0, v);
            for (int i = 0; i < 4; i++)
                if (j * 64 + x * 4 + i < V_DIM) out[j * 64 + x * 4 + i] = v[i];
        }
        if (g->piece.slot >= 0 && x == 0) vstore2((float2)(peak[r], all), slot_of(g, index), partials);
    }
}

/* Attention of up to VECTORS query vectors of one KV head over the positions of a piece, 64 tokens at a time:
 * first a tile of scores, then one of results, both in registers. Operands pass through local memory; each
 * item loads its next operand while the group multiplies the current ones. Work groups as attend_few. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attend_many(global const uchar *k_buffer, ulong k_at, global const uchar *v_buffer, ulong v_at,
            global const uchar *q_buffer, ulong q_at, global uchar *y_buffer, ulong y_at,
            global uchar *partial_buffer, ulong partials_at, global const int *ints, int plan_at,
           global const uchar *sink_buffer, ulong sinks_at, int has_sinks)
{
    local struct many_memory m;
    global const float *sinks = (global const float *)(sink_buffer + sinks_at);
    local float *stage = (local float *)m.stage;
    const struct group g = group_of(ints, plan_at);
    global const uchar *keys = k_buffer + k_at, *values = v_buffer + v_at;
    const int id = get_local_id(0), x = id % ACROSS, y = id / ACROSS;
    /* Of keys and queries, this item loads 8 elements of one line, at k_first of each K_STEP. */
    const int line = id / 2, k_first = id % 2 * 8, query = max(line - TOKENS, 0);
    const bool has_query = line >= TOKENS && query < g.vectors;
    global const float *q_line = query_of(&g, q_buffer + q_at, query);
    const float scale = g.plan->scale, softcap = g.plan->softcap;
    int2 visible[ROWS];
    float peak[ROWS], total[ROWS];
    float4 sum[ROWS][V_PARTS];
    for (int r = 0; r < ROWS; r++) {
        visible[r] = visible_range(&g, ints, y * ROWS + r);
        peak[r] = sink_of(&g, ints, y * ROWS + r, sinks, has_sinks);
        total[r] = peak[r] > -INFINITY && x == 0 ? 1 : 0; /* items add up */
        for (int j = 0; j < V_PARTS; j++) sum[r][j] = 0;
    }

    for (int from = g.piece.from; from < g.piece.to; from += TOKENS) {
        const int n = min(TOKENS, g.piece.to - from);
        barrier(CLK_LOCAL_MEM_FENCE); /* all items are done with the previous tile */
        if (id < n) m.rows[id] = group_row(&g, ints, from + id);
        const uint key = line < n ? group_row(&g, ints, from + line) : 0;
        float4 score[ROWS], key_scale = 1, value_scale = 1;
        for (int r = 0; r < ROWS; r++) score[r] = 0;
        float8 next = OPERAND8(k_first);
        for (int k0 = 0; k0 < K_DIM; k0 += K_STEP) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (line < TOKENS)
                put8(stage, k_first, line, TOKENS, next);
            else if (line < TOKENS + VECTORS)
                put8(stage + K_STEP * TOKENS, k_first, line - TOKENS, VECTORS, next * scale);
            barrier(CLK_LOCAL_MEM_FENCE);
            next = OPERAND8(k0 + K_STEP + k_first);
            many_multiply_keys(stage, score);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (K_SCALED) key_scale = many_row_scales(keys, K_BYTES, K_DIM, m.rows, n);
        if (V_SCALED) value_scale = many_row_scales(values, V_BYTES, V_STORED, m.rows, n);
        float8 values8[V_MOVES];
        for (int i = 0; i < V_MOVES; i++) values8[i] = VALUE8(0, id + i * ITEMS);
        many_finish_scores(key_scale, softcap, from, visible, score, stage);
        barrier(CLK_LOCAL_MEM_FENCE);
        many_update_weights(&m, value_scale, score, peak, total, sum);
        for (int step = 0; step < n; step += V_STEP) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0; i < V_MOVES; i++)
                if (V_EIGHTS % ITEMS == 0 || id + i * ITEMS < V_EIGHTS)
                    vstore8(values8[i], id + i * ITEMS, stage);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0; i < V_MOVES; i++) values8[i] = VALUE8(step + V_STEP, id + i * ITEMS);
            many_add_values(&m, step, sum);
        }
    }

    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = 0; r < ROWS; r++) stage[(y * ROWS + r) * ACROSS + x] = total[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    many_write_results(&g, stage, peak, sum, (global float *)(y_buffer + y_at),
                       (global float *)(partial_buffer + partials_at));
}

#endif

/* ---------------------------------------------------------------- merging */

#if !defined K

#define ITEMS         64
#define STRETCHES_MAX 128

/* Partial results of one row; those of head 0 are in slots slot, slot + step ... */
struct merge {
    int row, slot, step, stretches;
};

/* Combine the partial results of one row and head into y. Work groups: (merges, query heads). */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
merge(global uchar *y_buffer, ulong y_at, global const uchar *partial_buffer, ulong partials_at,
      global const int *ints, int merges_at, int slots, int y_stride, int v_dim)
{
    local float weights[STRETCHES_MAX];
    const struct merge m = ((global const struct merge *)(ints + merges_at))[get_group_id(0)];
    const int id = get_local_id(0), head = get_group_id(1);
    global const float *partials = (global const float *)(partial_buffer + partials_at);
    global const float *values = partials + 2 * (long)slots;
    float peak = -INFINITY, total = 0;
    for (int s = 0; s < m.stretches; s++) peak = fmax(peak, partials[2 * (m.slot + (long)s * m.step + head)]);
    for (int s = id; s < m.stretches; s += ITEMS)
        weights[s] = exp(partials[2 * (m.slot + (long)s * m.step + head)] - peak);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 0; s < m.stretches; s++)
        total = fma(weights[s], partials[2 * (m.slot + (long)s * m.step + head) + 1], total);
    global float *y = (global float *)(y_buffer + y_at) + (long)m.row * y_stride + (long)head * v_dim;
    for (int d = id; d < v_dim; d += ITEMS) {
        float v = 0;
        for (int s = 0; s < m.stretches; s++)
            v = fma(weights[s], values[(m.slot + (long)s * m.step + head) * v_dim + d], v);
        y[d] = v / total; /* > 0: every row attends at least to itself */
    }
}

#endif
