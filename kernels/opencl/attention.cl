/* Attention over the KV cache.
 *
 * After kv.cl, with -DK, -DV (formats), -DK_DIM, -DV_DIM (numbers of a head) and -DBLOCK_TOKENS: as -DQUERIES
 * attend_few (so many query vectors share what is read; each lane reads stored numbers itself), as -DROWS
 * attend_many (tiles through local memory). Alone: merge. All sums are f32; the softmax runs along with the
 * largest score so far. */

/* As in attention.c, word for word. */
struct plan {
    int heads, kv_heads, part_heads, parts, window, q_stride, y_stride, slots, pos;
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
#define V_BYTES  JOIN(BYTES_, V)(V_DIM)

#define K_LOAD8(row, at) JOIN(load8_, K)(keys + (ulong)(row)*K_BYTES, at, K_DIM)
#define V_LOAD8(row, at) JOIN(load8_, V)(values + (ulong)(row)*V_BYTES, at, V_DIM)

/* Which row of the cache holds a position. */
uint row_of(global const int *ints, int table, int position, int kv_heads, int kv_head)
{
    return (ints[table + position / BLOCK_TOKENS] * kv_heads + kv_head) * BLOCK_TOKENS +
           position % BLOCK_TOKENS;
}

/* A group's share of the query heads, and what vector `index` of its queries is: head and row. */
struct share {
    int kv_head, head, heads, vectors;
};
struct share share_of(global const struct plan *p, const struct piece *t, int unit)
{
    const int group = p->heads / p->kv_heads, part = unit % p->parts;
    struct share s = { .kv_head = unit / p->parts };
    s.head = s.kv_head * group + part * p->part_heads;
    s.heads = min(p->part_heads, group - part * p->part_heads);
    s.vectors = s.heads * t->rows;
    return s;
}

/* Where the result of query `index` goes: y; where others see the rest of the tokens, a slot of the partial
 * results. In front of these lie, for each slot, the largest score and the sum of exp(score - it). */
long slot_of(global const struct plan *p, const struct piece *t, const struct share *s, int index)
{
    return t->slot + (long)(index / s->heads) * p->heads + s->head + index % s->heads;
}
global float *result_of(global const struct plan *p, const struct piece *t, const struct share *s, int index,
                        global float *y, global float *partials)
{
    if (t->slot >= 0) return partials + 2 * (long)p->slots + slot_of(p, t, s, index) * V_DIM;
    return y + (long)(t->row + index / s->heads) * p->y_stride + (long)(s->head + index % s->heads) * V_DIM;
}

#endif

/* ---------------------------------------------------------------- few queries */

#if defined QUERIES

#define ITEMS    128
#define TILE     64 /* tokens between two looks at the largest score */
#define S_ITEMS  16 /* that share a query's softmax */
#define S_TOKENS (TILE / S_ITEMS)
#define K_PIECES ((K_DIM + 7) / 8)
#define V_PIECES ((V_DIM + 7) / 8)
#define K_LANES  (K_PIECES >= 16 ? 8 : K_PIECES >= 4 ? 4 : 2) /* items that share a key */
#define K_STEPS  (TILE * K_LANES / ITEMS) /* keys of an item, and pieces of each: */
#define K_ROUNDS ((K_PIECES + K_LANES - 1) / K_LANES)
#define Q_WIDE   (K_ROUNDS * K_LANES * 8) /* a query's numbers, then zeros */
#define V_LANES                                                                                              \
    (V_PIECES > 64   ? 128                                                                                   \
     : V_PIECES > 32 ? 64                                                                                    \
     : V_PIECES > 16 ? 32                                                                                    \
     : V_PIECES > 8  ? 16                                                                                    \
     : V_PIECES > 4  ? 8                                                                                     \
                     : 4)           /* items that share a value: 8 numbers each */
#define V_TOKENS (ITEMS / V_LANES) /* read at once */
#define SCORES   (QUERIES * TILE * K_LANES)
#define POOL     (SCORES > ITEMS * 8 ? SCORES : ITEMS * 8)

float capped(float score, float softcap)
{
    return softcap > 0 ? softcap * tanh(score / softcap) + (score - score) : score; /* infinity: NaN */
}

float dot4(float4 a, float4 b, float sum)
{
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

/* A group takes a piece's tokens with up to QUERIES query vectors of one KV head. Groups: pieces; KV heads
 * and parts of their queries. Lanes read 8 stored numbers at a time, side by side; what they share goes
 * through local memory. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attend_few(global const uchar *k_buffer, ulong k_at, global const uchar *v_buffer, ulong v_at,
           global const uchar *q_buffer, ulong q_at, global uchar *y_buffer, ulong y_at,
           global uchar *partial_buffer, ulong partials_at, global const int *ints, int plan_at)
{
    local float4 q[QUERIES][Q_WIDE / 4];
    local float pool[POOL]; /* parts of scores [query][token][lane], then of results [token][V_LANES * 8] */
    local float weights[QUERIES][TILE], maxima[QUERIES][S_ITEMS], fade[QUERIES];
    local int low[QUERIES], high[QUERIES];
    local uint rows[2][TILE];

    global const struct plan *p = (global const struct plan *)(ints + plan_at);
    const struct piece t = ((global const struct piece *)(p + 1))[get_group_id(0)];
    const struct share mine = share_of(p, &t, get_group_id(1));
    global const uchar *keys = k_buffer + k_at, *values = v_buffer + v_at;
    const int id = get_local_id(0), kv_heads = p->kv_heads;

    for (int i = id; i < QUERIES * Q_WIDE; i += ITEMS) {
        const int index = i / Q_WIDE, d = i % Q_WIDE;
        global const float *x = (global const float *)(q_buffer + q_at) +
                                (long)(t.row + index / mine.heads) * p->q_stride +
                                (long)(mine.head + index % mine.heads) * K_DIM;
        ((local float *)q[index])[d] = index < mine.vectors && d < K_DIM ? x[d] * p->scale : 0;
    }
    if (id < QUERIES) {
        const int last = id < mine.vectors ? ints[p->pos + t.row + id / mine.heads] : -1;
        low[id] = p->window > 0 ? max(0, last - p->window + 1) : 0;
        high[id] = last + 1;
    }
    if (id < TILE && t.from + id < t.to)
        rows[0][id] = row_of(ints, t.table, t.from + id, kv_heads, mine.kv_head);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* For the softmax, of query id / S_ITEMS; for the values, of V_LANES lanes and V_TOKENS tokens. */
    const int s_query = id / S_ITEMS, s_item = id % S_ITEMS, lane = id % V_LANES;
    float peak = -INFINITY, total = 0;
    float8 sum[QUERIES];
    for (int i = 0; i < QUERIES; i++) sum[i] = 0;

    for (int from = t.from, turn = 0; from < t.to; from += TILE, turn ^= 1) {
        const int n = min(TILE, t.to - from);
        /* Behind the last token and the last piece these are read again, for nothing: loads without a
         * condition can all be on their way at once. Queries are 0 there. */
        uint row[K_STEPS];
        float dot[K_STEPS][QUERIES];
        for (int s = 0; s < K_STEPS; s++) {
            row[s] = rows[turn][min(id / K_LANES + s * (ITEMS / K_LANES), n - 1)];
            for (int i = 0; i < QUERIES; i++) dot[s][i] = 0;
        }
        for (int m = 0; m < K_ROUNDS; m++) {
            const int piece = id % K_LANES + m * K_LANES;
            float8 k[K_STEPS];
            for (int s = 0; s < K_STEPS; s++) k[s] = K_LOAD8(row[s], min(piece, K_PIECES - 1) * 8);
            for (int i = 0; i < QUERIES; i++) {
                const float4 a = q[i][2 * piece], b = q[i][2 * piece + 1];
                for (int s = 0; s < K_STEPS; s++) dot[s][i] = dot4(k[s].hi, b, dot4(k[s].lo, a, dot[s][i]));
            }
        }
        for (int s = 0; s < K_STEPS; s++)
            for (int i = 0; i < QUERIES; i++) pool[(i * TILE * K_LANES) + s * ITEMS + id] = dot[s][i];
        barrier(CLK_LOCAL_MEM_FENCE);

        float score[S_TOKENS], most = -INFINITY;
        if (s_query < QUERIES) {
            for (int i = 0; i < S_TOKENS; i++) {
                const int j = s_item + i * S_ITEMS, position = from + j;
                float s = 0;
                for (int l = 0; l < K_LANES; l++) s += pool[(s_query * TILE + j) * K_LANES + l];
                if (K_SCALED && j < n) s *= fp8_row_scale(keys + (ulong)rows[turn][j] * K_BYTES, K_DIM);
                s = capped(s, p->softcap);
                score[i] = position >= low[s_query] && position < min(high[s_query], t.to) ? s : -INFINITY;
                most = fmax(most, score[i]);
            }
            maxima[s_query][s_item] = most;
        }
        if (id < TILE && from + TILE + id < t.to) /* of the next tile, early: reading it takes time */
            rows[turn ^ 1][id] = row_of(ints, t.table, from + TILE + id, kv_heads, mine.kv_head);
        barrier(CLK_LOCAL_MEM_FENCE);

        if (s_query < QUERIES) {
            most = peak;
            for (int i = 0; i < S_ITEMS; i++) most = fmax(most, maxima[s_query][i]);
            const float zero = most == -INFINITY ? 0 : most, by = exp(peak - zero); /* nothing seen yet: 0 */
            total *= by;
            for (int i = 0; i < S_TOKENS; i++) {
                const int j = s_item + i * S_ITEMS;
                float w = exp(score[i] - zero);
                total += w;
                if (V_SCALED && j < n) w *= fp8_row_scale(values + (ulong)rows[turn][j] * V_BYTES, V_DIM);
                weights[s_query][j] = w;
            }
            peak = most;
            if (s_item == 0) fade[s_query] = by;
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int i = 0; i < QUERIES; i++) sum[i] *= fade[i];
#pragma unroll 4
        for (int s = 0; s < TILE / V_TOKENS; s++) { /* weights behind the last token are 0 */
            const int j = id / V_LANES + s * V_TOKENS;
            const float8 v = V_LOAD8(rows[turn][min(j, n - 1)], min(lane, V_PIECES - 1) * 8);
            for (int i = 0; i < QUERIES; i++) sum[i] = fma((float8)weights[i][j], v, sum[i]);
        }
    }

    barrier(CLK_LOCAL_MEM_FENCE); /* the weights have been read */
    if (s_query < QUERIES) {
        maxima[s_query][s_item] = total;
        if (s_item == 0) fade[s_query] = peak;
    }
    global float *y = (global float *)(y_buffer + y_at),
                 *partials = (global float *)(partial_buffer + partials_at);
    for (int i = 0; i < QUERIES; i++) {
        vstore8(sum[i], id, pool);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < mine.vectors) {
            float all = 0;
            for (int k = 0; k < S_ITEMS; k++) all += maxima[i][k];
            global float *out = result_of(p, &t, &mine, i, y, partials);
            for (int d = id; d < V_DIM; d += ITEMS) {
                float v = 0;
                for (int k = 0; k < V_TOKENS; k++) v += pool[k * V_LANES * 8 + d];
                out[d] = t.slot < 0 ? v / all : v;
            }
            if (t.slot >= 0 && id == 0) vstore2((float2)(fade[i], all), slot_of(p, &t, &mine, i), partials);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif

/* ---------------------------------------------------------------- many queries */

#if defined ROWS

#define ACROSS     16 /* items: the group is ACROSS x ACROSS */
#define ITEMS      (ACROSS * ACROSS)
#define VECTORS    (ACROSS * ROWS) /* of queries; item (x, y) has ROWS of them, y * ROWS.. */
#define TOKENS     64              /* of a tile; item (x, y) scores 4 of them, x * 4.. */
#define K_STEP     16              /* numbers of a head that are multiplied between two barriers */
#define V_WIDE     ((V_DIM + 63) / 64 * 64)
#define V_PARTS    (V_WIDE / 64) /* four numbers of each 64 are item (x, y)'s: x * 4.. */
#define V_STEP     (V_WIDE <= 128 ? 2048 / V_WIDE : V_WIDE <= 256 ? 8 : 4) /* tokens between two barriers */
#define V_EIGHTS   (V_STEP * V_WIDE / 8)
#define V_MOVES    ((V_EIGHTS + ITEMS - 1) / ITEMS) /* loads of an item for that many */
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define STAGE      MAX2((K_STEP) * (VECTORS + TOKENS), MAX2((V_STEP) * (V_WIDE), (VECTORS) * (ACROSS)))

/* Where column i of row k of a tile with n columns is kept: eight rows apart they would meet in one bank. */
#define PLACE(k, i, n) ((k) * (n) + ((i) ^ ((k)*2 & 16 & ((n)-1))))

#if ROWS == 4
typedef float4 floats;
#elif ROWS == 2
typedef float2 floats;
#else
typedef float floats;
#endif

/* A line of the stage: 8 numbers from k on, of one key or query. */
void put8(local float *tile, int k, int i, int n, float8 v)
{
    float each[8];
    vstore8(v, 0, each);
    for (int j = 0; j < 8; j++) tile[PLACE(k + j, i, n)] = each[j];
}

/* What an item moves: of its key, its query, or 0. */
#define OPERAND8(k)                                                                                          \
    ((k) >= K_DIM    ? (float8)0                                                                             \
     : line < TOKENS ? (line < n ? K_LOAD8(key, k) : (float8)0)                                              \
     : has_query     ? query8(q_line, k)                                                                     \
                     : (float8)0)

float8 query8(global const float *q, int at)
{
    float v[8];
    if (K_DIM % 8 == 0) return vload8(0, q + at);
    for (int i = 0; i < 8; i++) v[i] = at + i < K_DIM ? q[at + i] : 0;
    return vload8(0, v);
}

/* Piece `i` of the values of V_STEP tokens from `first` on. */
#define VALUE8(first, i)                                                                                     \
    ((first) + (i) / (V_WIDE / 8) < n && (i) % (V_WIDE / 8) * 8 < V_DIM                                      \
         ? V_LOAD8(rows[(first) + (i) / (V_WIDE / 8)], (i) % (V_WIDE / 8) * 8)                               \
         : (float8)0)

/* A group takes a piece's tokens with up to VECTORS query vectors of one KV head: tiles of scores, then of
 * results, whose operands pass through local memory. Groups: pieces; KV heads and parts of their queries. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
attend_many(global const uchar *k_buffer, ulong k_at, global const uchar *v_buffer, ulong v_at,
            global const uchar *q_buffer, ulong q_at, global uchar *y_buffer, ulong y_at,
            global uchar *partial_buffer, ulong partials_at, global const int *ints, int plan_at)
{
    local float4 stage4[STAGE / 4], weights4[VECTORS * TOKENS / 4]; /* weights: [vector][token] */
    local uint rows[TOKENS];
    local float *stage = (local float *)stage4, *stage_q = stage + K_STEP * TOKENS;

    global const struct plan *p = (global const struct plan *)(ints + plan_at);
    const struct piece t = ((global const struct piece *)(p + 1))[get_group_id(0)];
    const struct share mine = share_of(p, &t, get_group_id(1));
    global const uchar *keys = k_buffer + k_at, *values = v_buffer + v_at;
    const int id = get_local_id(0), x = id % ACROSS, y = id / ACROSS;
    const float scale = p->scale, softcap = p->softcap;

    /* Of the keys and queries, this item moves 8 numbers of one, at k_first of each K_STEP. */
    const int line = id / 2, k_first = id % 2 * 8, query = max(line - TOKENS, 0);
    const bool has_query = line >= TOKENS && query < mine.vectors;
    global const float *q_line = (global const float *)(q_buffer + q_at) +
                                 (long)(t.row + query / mine.heads) * p->q_stride +
                                 (long)(mine.head + query % mine.heads) * K_DIM;

    int low[ROWS], high[ROWS];
    float peak[ROWS], total[ROWS];
    float4 sum[ROWS][V_PARTS];
    for (int r = 0; r < ROWS; r++) {
        const int index = y * ROWS + r,
                  last = index < mine.vectors ? ints[p->pos + t.row + index / mine.heads] : -1;
        low[r] = p->window > 0 ? max(0, last - p->window + 1) : 0;
        high[r] = min(last + 1, t.to);
        peak[r] = -INFINITY;
        total[r] = 0;
        for (int j = 0; j < V_PARTS; j++) sum[r][j] = 0;
    }

    for (int from = t.from; from < t.to; from += TOKENS) {
        const int n = min(TOKENS, t.to - from);
        barrier(CLK_LOCAL_MEM_FENCE); /* the tile before is done with */
        if (id < n) rows[id] = row_of(ints, t.table, from + id, p->kv_heads, mine.kv_head);
        const uint key = line < n ? row_of(ints, t.table, from + line, p->kv_heads, mine.kv_head) : 0;

        float4 score[ROWS];
        for (int r = 0; r < ROWS; r++) score[r] = 0;
        float8 next = OPERAND8(k_first); /* read while what was read before is multiplied */
        for (int k0 = 0; k0 < K_DIM; k0 += K_STEP) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (line < TOKENS)
                put8(stage, k_first, line, TOKENS, next);
            else if (line < TOKENS + VECTORS)
                put8(stage_q, k_first, line - TOKENS, VECTORS, next * scale);
            barrier(CLK_LOCAL_MEM_FENCE);
            next = OPERAND8(k0 + K_STEP + k_first);
            float4 part[ROWS]; /* sums of sums: large heads would lose digits in one long chain */
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
        barrier(CLK_LOCAL_MEM_FENCE);

        const int4 column = x * 4 + (int4)(0, 1, 2, 3), position = from + column;
        float4 key_scale = 1, value_scale = 1;
        if (K_SCALED || V_SCALED) {
            float scales[2][4];
            for (int i = 0; i < 4; i++) {
                const bool here = x * 4 + i < n;
                if (K_SCALED)
                    scales[0][i] = here ? fp8_row_scale(keys + (ulong)rows[x * 4 + i] * K_BYTES, K_DIM) : 0;
                if (V_SCALED)
                    scales[1][i] = here ? fp8_row_scale(values + (ulong)rows[x * 4 + i] * V_BYTES, V_DIM) : 0;
            }
            if (K_SCALED) key_scale = vload4(0, scales[0]);
            if (V_SCALED) value_scale = vload4(0, scales[1]);
        }
        float8 values8[V_MOVES];
        for (int i = 0; i < V_MOVES; i++) values8[i] = VALUE8(0, id + i * ITEMS);
        for (int r = 0; r < ROWS; r++) {
            float4 s = score[r];
            if (K_SCALED) s *= key_scale;
            if (softcap > 0) s = softcap * tanh(s / softcap) + (s - s);
            s = select((float4)-INFINITY, s, position >= low[r] && position < high[r]);
            score[r] = s;
            stage[(y * ROWS + r) * ACROSS + x] = fmax(fmax(s.x, s.y), fmax(s.z, s.w));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int r = 0; r < ROWS; r++) {
            float most = peak[r];
            for (int i = 0; i < ACROSS; i++) most = fmax(most, stage[(y * ROWS + r) * ACROSS + i]);
            const float zero = most == -INFINITY ? 0 : most,
                        by = exp(peak[r] - zero); /* nothing seen yet: 0 */
            const float4 w = exp(score[r] - zero);
            peak[r] = most;
            total[r] = total[r] * by + ((w.x + w.y) + (w.z + w.w));
            weights4[(y * ROWS + r) * (TOKENS / 4) + x] = w * value_scale;
            for (int j = 0; j < V_PARTS; j++) sum[r][j] *= by;
        }

        for (int step = 0; step < n; step += V_STEP) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0; i < V_MOVES; i++)
                if (V_EIGHTS % ITEMS == 0 || id + i * ITEMS < V_EIGHTS)
                    vstore8(values8[i], id + i * ITEMS, stage);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0; i < V_MOVES; i++) values8[i] = VALUE8(step + V_STEP, id + i * ITEMS);
            for (int j = 0; j < V_STEP; j += 4) {
                float4 w[ROWS];
                for (int r = 0; r < ROWS; r++)
                    w[r] = weights4[(y * ROWS + r) * (TOKENS / 4) + (step + j) / 4];
                for (int d = 0; d < V_PARTS; d++) {
                    local const float4 *v = stage4 + j * (V_WIDE / 4) + d * 16 + x;
                    const float4 a = v[0], b = v[V_WIDE / 4], c = v[V_WIDE / 2], e = v[V_WIDE / 4 * 3];
                    for (int r = 0; r < ROWS; r++)
                        sum[r][d] = fma(w[r].wwww, e,
                                        fma(w[r].zzzz, c, fma(w[r].yyyy, b, fma(w[r].xxxx, a, sum[r][d]))));
                }
            }
        }
    }

    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = 0; r < ROWS; r++) stage[(y * ROWS + r) * ACROSS + x] = total[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    global float *partials = (global float *)(partial_buffer + partials_at);
    for (int r = 0; r < ROWS; r++) {
        const int index = y * ROWS + r;
        if (index >= mine.vectors) break;
        float all = 0;
        for (int i = 0; i < ACROSS; i++) all += stage[index * ACROSS + i];
        global float *out = result_of(p, &t, &mine, index, (global float *)(y_buffer + y_at), partials);
        for (int j = 0; j < V_PARTS; j++) {
            float v[4];
            vstore4(t.slot < 0 ? sum[r][j] / all : sum[r][j], 0, v);
            for (int i = 0; i < 4; i++)
                if (j * 64 + x * 4 + i < V_DIM) out[j * 64 + x * 4 + i] = v[i];
        }
        if (t.slot >= 0 && x == 0) vstore2((float2)(peak[r], all), slot_of(p, &t, &mine, index), partials);
    }
}

#endif

/* ---------------------------------------------------------------- merging */

#if !defined K

#define ITEMS         64
#define STRETCHES_MAX 128

/* A row's partial results to y. Groups: rows that were split, as rows[] has them; heads. */
struct merge {
    int row, slot, step, stretches; /* partial results of head 0: slot, slot + step ... */
};
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
        y[d] = v / total; /* every row sees at least itself */
    }
}

#endif
