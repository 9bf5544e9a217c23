/* The k largest numbers of a row and their indexes, in descending order. Each number becomes a 64-bit key,
 * whose order as an integer is the order of the result. A group finds the k largest keys of a chunk and
 * writes them to scratch memory; the next launch does the same with these keys, until one group has processed
 * the whole row. */

#define ITEMS 256
#define CHUNK 1024            /* keys of a group */
#define EACH  (CHUNK / ITEMS) /* keys of an item */

/* The key of a number: larger numbers have larger keys, and among equal numbers the smaller index does.
 * Infinities and NaN have the largest keys, so that a row with one of them yields NaN first. No number has
 * the key 0, which stands for absent numbers. */
ulong key_of(float x, uint index)
{
    const uint u = as_uint(x), magnitude = u & 0x7fffffff;
    const uint bits = magnitude ? u : 0; /* -0 equals 0 */
    const uint order = magnitude >= 0x7f800000 ? 0xffffffff : bits >> 31 ? ~bits : bits | 0x80000000;
    return (ulong)order << 32 | ~index;
}

/* Convert a key back to the number and its index, in the layout of struct ranked (8 bytes). */
uint2 ranked_of(ulong key)
{
    const uint order = key >> 32;
    const uint bits = order == 0xffffffff ? 0x7fc00000 : order >> 31 ? order & 0x7fffffff : ~order;
    return (uint2)(bits, ~(uint)key);
}

/* Key i of a row of numbers or, with from_keys, of keys from the previous launch; 0 past its end. */
ulong load(global const uchar *row, int from_keys, long i, long count)
{
    if (i >= count) return 0;
    return from_keys ? ((global const ulong *)row)[i] : key_of(((global const float *)row)[i], i);
}

/* Sort chunks of a row and write the k largest keys of each. Groups: chunks; rows.
 *   x  `count` numbers or keys per row, rows x_stride bytes apart
 *   y  k keys of each group; with is_last (one group per row) the k numbers and indexes; rows y_stride
 *      bytes apart */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
top_some(global const uchar *x, ulong x_at, long x_stride, int from_keys, int count, int k, global uchar *y,
         ulong y_at, long y_stride, int is_last)
{
    local ulong keys[CHUNK];
    const int id = get_local_id(0);
    const long row = get_group_id(1), first = get_group_id(0) * (long)CHUNK;
    for (int i = 0; i < EACH; i++)
        keys[id + i * ITEMS] = load(x + x_at + row * x_stride, from_keys, first + id + i * ITEMS, count);
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Bitonic sort: merge into sorted runs of `size` keys, every second one in ascending order. */
    for (int size = 2; size <= CHUNK; size *= 2) {
        for (int apart = size / 2; apart; apart /= 2) {
            for (int i = 0; i < EACH / 2; i++) {
                const int pair = id + i * ITEMS, a = pair / apart * 2 * apart + pair % apart, b = a + apart;
                const ulong u = keys[a], v = keys[b];
                if ((u < v) == !(a & size)) {
                    keys[a] = v;
                    keys[b] = u;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    global uchar *out = y + y_at + row * y_stride;
    for (int i = id; i < k; i += ITEMS) {
        if (is_last)
            ((global uint2 *)out)[i] = ranked_of(keys[i]);
        else
            ((global ulong *)out)[get_group_id(0) * (long)k + i] = keys[i];
    }
}

/* The same for k = 1: a maximum needs no sorting. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void top_one(global const uchar *x, ulong x_at,
                                                                       long x_stride, int from_keys,
                                                                       int count, int k, global uchar *y,
                                                                       ulong y_at, long y_stride, int is_last)
{
    local ulong keys[ITEMS];
    const int id = get_local_id(0);
    const long row = get_group_id(1), first = get_group_id(0) * (long)CHUNK;
    ulong most = 0;
    for (int i = 0; i < EACH; i++)
        most = max(most, load(x + x_at + row * x_stride, from_keys, first + id + i * ITEMS, count));
    keys[id] = most;
    for (int half_way = ITEMS / 2; half_way; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < half_way) keys[id] = max(keys[id], keys[id + half_way]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    global uchar *out = y + y_at + row * y_stride;
    if (id) return;
    if (is_last)
        ((global uint2 *)out)[0] = ranked_of(keys[0]);
    else
        ((global ulong *)out)[get_group_id(0)] = keys[0];
}
