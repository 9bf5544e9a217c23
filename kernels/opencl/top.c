/* The largest numbers of rows on a device. Sampling then fetches a few bytes per token instead of a whole row
 * of logits, which is half a megabyte. */
#include "kernels/opencl/opencl.h"

enum { ITEMS = 256, CHUNK = 1024 /* as in top.cl */, KEY_BYTES = 8, ROWS_AT_ONCE = 16 };

static int64_t chunks_of(int64_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

/* Keys that a row passes on in its first two rounds, which take turns in scratch from then on. */
static int64_t keys_of(int64_t cols, int64_t k)
{
    const int64_t first = chunks_of(cols) * k;
    return first + chunks_of(first) * k;
}

int64_t opencl_top_bytes(int n, int k, int64_t cols)
{
    return MIN(n, ROWS_AT_ONCE) * keys_of(cols, k) * KEY_BYTES;
}

/* One round: chunks of `count` keys or numbers of each row to k of each chunk. */
struct round {
    const void *x;
    void *y;
    int64_t x_stride, y_stride; /* bytes */
    int rows, count, k;
    bool from_keys, is_last;
};

static void run_round(struct opencl *o, const struct round *r)
{
    static const struct opencl_kernel ONE = { 1 << SOURCE_TOP, "", "top_one" },
                                      SOME = { 1 << SOURCE_TOP, "", "top_some" };
    const struct opencl_arg args[] = {
        ARG_PLACE(o, r->x), ARG_LONG(r->x_stride), ARG_INT(r->from_keys), ARG_INT(r->count),
        ARG_INT(r->k),      ARG_PLACE(o, r->y),    ARG_LONG(r->y_stride), ARG_INT(r->is_last),
    };
    opencl_run(o, r->k == 1 ? &ONE : &SOME,
               (size_t[]){ (size_t)chunks_of(r->count) * ITEMS, (size_t)r->rows, 1 },
               (size_t[]){ ITEMS, 1, 1 }, args, COUNT_OF(args));
}

/* At most ROWS_AT_ONCE of them. */
static void some_rows(struct opencl *o, const struct top *p, int row, int rows)
{
    const int64_t keys = keys_of(p->cols, p->k), half_way = chunks_of(p->cols) * p->k;
    char *scratch = p->scratch;
    struct round r = { .x = p->x + row * p->x_stride,
                       .x_stride = p->x_stride * (int64_t)sizeof *p->x,
                       .y_stride = keys * KEY_BYTES,
                       .rows = rows,
                       .count = (int)p->cols,
                       .k = p->k };
    for (int turn = 0; chunks_of(r.count) > 1; turn ^= 1) {
        r.y = scratch + (turn ? half_way * KEY_BYTES : 0);
        run_round(o, &r);
        r.x = r.y;
        r.x_stride = r.y_stride;
        r.count = (int)chunks_of(r.count) * p->k;
        r.from_keys = true;
    }
    r.y = p->out + (int64_t)row * p->k;
    r.y_stride = p->k * (int64_t)sizeof *p->out;
    r.is_last = true;
    run_round(o, &r);
}

void opencl_top(struct backend *b, const struct top *p)
{
    struct opencl *o = opencl_of(b);
    _Static_assert(sizeof(struct ranked) == 8, "written on the device");
    for (int row = 0; row < p->n; row += ROWS_AT_ONCE) some_rows(o, p, row, MIN(ROWS_AT_ONCE, p->n - row));
}
