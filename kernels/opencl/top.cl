/* The largest numbers of a row, in order. Numbers become keys that compare as integers; a group sorts a chunk
 * of keys and passes the first of them on, until one group has seen them all. */

#define ITEMS 256
#define CHUNK 1024 /* keys of a group */
#define EACH  (CHUNK / ITEMS)

/* Larger numbers first, infinities and NaN before all of them as NaN, of equals the one with the smaller index;
 * 0 is nobody's. */
ulong key_of(float x, uint index)
{
    const uint u = as_uint(x), magnitude = u & 0x7fffffff;
    const uint bits = magnitude ? u : 0; /* -0 is no smaller than 0 */
    const uint order = magnitude >= 0x7f800000 ? 0xffffffff : bits >> 31 ? ~bits : bits | 0x80000000;
    return (ulong)order << 32 | ~index;
}

/* The number and its index again, 8 bytes as struct ranked. */
uint2 ranked_of(ulong key)
{
    const uint order = key >> 32;
    const uint bits = order == 0xffffffff ? 0x7fc00000 : order >> 31 ? order & 0x7fffffff : ~order;
    return (uint2)(bits, ~(uint)key);
}

/* Key i of a row: of its numbers, or of the keys that groups passed on. */
ulong load(global const uchar *row, int from_keys, long i, long count)
{
    if (i >= count) return 0;
    return from_keys ? ((global const ulong *)row)[i] : key_of(((global const float *)row)[i], i);
}

/* Groups: chunks; rows. x: numbers or keys, `count` a row, x_stride bytes apart; y: k keys of each group, or
 * (one group) what they stand for; y_stride bytes between rows. */
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
    /* Bitonic: runs of `size` keys, each second one backwards. */
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

/* The same for k = 1, without sorting. */
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
