/* Orders of rows. In memory q, k and v follow each other, and the pairs that RoPE rotates are neighbours or
 * halves of a head as the architecture says; checkpoints interleave some of them otherwise. */
#include "engine/import/row_order.h"

#include "engine/import/families.h"

/* Row i of a head whose pairs are neighbours, in a head whose pairs are halves. */
static int64_t in_halves(int64_t i, int64_t rotated)
{
    return i < rotated ? i % 2 * (rotated / 2) + i / 2 : i;
}

/* Row i of [all q, all k, all v] in groups of the queries that share a KV head, its k and its v. */
static int64_t in_groups(int64_t i, const struct hf_sizes *s)
{
    const int64_t shared = s->heads / s->kv_heads, head = i / s->head_dim, at = i % s->head_dim;
    int64_t group = head / shared, place = head % shared;
    if (head >= s->heads) {
        group = (head - s->heads) % s->kv_heads;
        place = shared + (head - s->heads) / s->kv_heads;
    }
    return (group * (shared + 2) + place) * s->head_dim + at;
}

enum err_code row_order(const int64_t **out, int64_t *rows, struct arena *memory, const struct hf_sizes *s,
                        unsigned change, bool kv_heads, int64_t have, struct err *why)
{
    const bool half = change & (CHANGE_EVEN_ROWS | CHANGE_ODD_ROWS),
               fused = change & (CHANGE_QKV_HEADS | CHANGE_QKV_GROUPS);
    const int64_t heads = kv_heads ? s->kv_heads : s->heads;
    const int64_t want = fused                    ? (s->heads + 2 * s->kv_heads) * s->head_dim
                         : change & CHANGE_ROTARY ? heads * s->head_dim
                         : half                   ? have / 2 * 2
                                                  : have;
    *rows = half ? have / 2 : have;
    *out = NULL;
    if (have != want || (fused && s->heads % s->kv_heads))
        return err_set(why, ERR_FORMAT, "expected %lld rows, the checkpoint has %lld", (long long)want,
                       (long long)have);
    if (change & CHANGE_QKV_HEADS && s->heads != s->kv_heads)
        return err_set(why, ERR_FORMAT, "q, k and v by head: %lld KV heads, expected %lld as heads",
                       (long long)s->kv_heads, (long long)s->heads);
    if (!half && !fused && !(change & CHANGE_ROTARY)) return ERR_OK;
    size_t bytes;
    int64_t *order = __builtin_mul_overflow(MAX(*rows, 1), sizeof *order, &bytes)
                         ? NULL
                         : arena_alloc(memory, bytes);
    if (!order) return err_set(why, ERR_NOMEM, "out of memory for %lld rows", (long long)*rows);
    for (int64_t i = 0; i < *rows; i++)
        order[i] = half    ? 2 * i + (change & CHANGE_ODD_ROWS ? 1 : 0)
                   : fused ? in_groups(i, s)
                           : i / s->head_dim * s->head_dim + in_halves(i % s->head_dim, s->rope_dims);
    *out = order;
    return ERR_OK;
}
