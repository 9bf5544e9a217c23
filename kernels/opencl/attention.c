/* Attention on a device. A batch is divided into pieces, one per work group, and written with the block
 * tables into one array of integers, which the kernels read.
 *
 * Rows of one sequence with few query vectors per KV head (decoding) run on attend_few. Its groups wait for
 * memory, so positions are divided until there are enough groups to hide the latency. Rows with many query
 * vectors (prompts) run on attend_many. Where positions are divided, partial results go to the backend's
 * scratch memory and are merged. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/opencl/opencl.h"

enum {
    DIM_MAX = 1024,
    /* Must equal the definitions in kv.cl and attention.cl. */
    STORE_ITEMS = 64,
    FEW_ITEMS = 128,
    MANY_ITEMS = 256,
    MERGE_ITEMS = 64,
    TILE = 64,
    STRETCHES_MAX = 128,
    FEW_VECTORS = 8,       /* most query vectors of a group of attend_few; fewer with large heads: */
    FEW_NUMBERS = 8 * 256, /* most elements of all query vectors of a group, in local memory */
    MANY_ACROSS = 16,
    SPLIT_ROWS = 128, /* most rows x stretches for which scratch is reserved */
    GROUPS_FEW = 8,   /* wanted groups per compute unit */
    GROUPS_MANY = 2,
    UNITS_GUESS = 16, /* assumed compute units when the driver does not report them */
};

/* ---------------------------------------------------------------- keys and values */

/* The formats that kv.cl writes and reads: the possible types of a KV cache. */
static bool is_known(const struct format *f)
{
    static const enum format_id KNOWN[] = { FORMAT_F32,  FORMAT_F16,      FORMAT_BF16,    FORMAT_Q8_0,
                                            FORMAT_Q4_0, FORMAT_FP8_E4M3, FORMAT_FP8_E5M2 };
    for (size_t i = 0; i < COUNT_OF(KNOWN); i++)
        if (f == &FORMATS[KNOWN[i]]) return true;
    return false;
}

static void check_layer(const struct opencl *o, const struct kv_layer *kv)
{
    assert(is_known(kv->k_format) && is_known(kv->v_format));
    assert(kv->k_dim <= DIM_MAX && kv->v_dim <= DIM_MAX);
    assert(kv->k_dim % kv->k_format->block_weights == 0 && kv->v_dim % kv->v_format->block_weights == 0);
    assert(opencl_place(o, kv->k).offset % 16 == 0 && opencl_place(o, kv->v).offset % 16 == 0);
    (void)o, (void)kv;
}

void opencl_kv_store(struct backend *b, const struct kv_store *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_KV, "", "kv_store" };
    struct opencl *o = opencl_of(b);
    const struct kv_layer *kv = p->kv;
    check_layer(o, kv);
    if (p->n < 1) return;
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->k),
        ARG_LONG(p->k_stride),
        ARG_INT(kv->k_dim),
        ARG_INT(kv->k_format->ggml_type),
        ARG_INT(format_row_bytes(kv->k_format, kv->k_dim)),
        ARG_PLACE(o, kv->k),
        ARG_PLACE(o, p->v),
        ARG_LONG(p->v_stride),
        ARG_INT(kv->v_dim),
        ARG_INT(kv->v_format->ggml_type),
        ARG_INT(format_row_bytes(kv->v_format, kv->v_dim)),
        ARG_PLACE(o, kv->v),
        ARG_MEM(opencl_mirror(o, p->slots, (size_t)p->n * sizeof *p->slots)),
        ARG_INT(kv->block_tokens),
    };
    opencl_run(o, &K, (size_t[]){ (size_t)p->n * STORE_ITEMS, (size_t)kv->kv_heads, kv->v_in_k ? 1 : 2 },
               (size_t[]){ STORE_ITEMS, 1, 1 }, args, COUNT_OF(args));
}

/* ---------------------------------------------------------------- dividing the work */

/* Query vectors per item of attend_many: their results must fit the item's registers. */
static int many_rows(int v_dim)
{
    return v_dim <= 128 ? 4 : v_dim <= 256 ? 2 : 1;
}

/* Bytes of one partial result: two numbers, then the weighted sum of values. */
static int64_t slot_bytes(int64_t v_dim)
{
    return (2 + v_dim) * (int64_t)sizeof(float);
}

enum path { FEW, MANY, PATHS };

/* The structs in the array of integers; attention.cl declares the same. */
struct plan {
    cl_int heads, kv_heads, part_heads, parts, window, chunk, q_stride, y_stride, slots, pos;
    cl_float scale, softcap;
};
struct piece {
    cl_int row, rows, from, to, table, slot;
};
struct merge {
    cl_int row, slot, step, stretches;
};
enum {
    PLAN_INTS = sizeof(struct plan) / sizeof(cl_int),
    PIECE_INTS = sizeof(struct piece) / sizeof(cl_int),
    MERGE_INTS = sizeof(struct merge) / sizeof(cl_int),
};
_Static_assert(sizeof(struct plan) == 48 && sizeof(struct piece) == 24 && sizeof(struct merge) == 16,
               "the device reads these words");

/* How one kernel's work is divided: query heads of a KV head into parts, rows into pieces, positions into
 * stretches. */
struct way {
    int vectors; /* of queries in a group at most */
    int part_heads, parts, rows_a_piece;
    int64_t chunk;          /* tokens of a stretch */
    int64_t tokens, pieces; /* over all row blocks; how many */
    int most_rows;          /* of a piece */
    int64_t at;             /* where its plan lies */
};

struct cutting {
    const struct attention *p;
    int few_rows; /* of one sequence; more are MANY */
    struct way way[PATHS];
    int64_t slots, merges, blocks; /* partial results (of a row and head), rows merged, table entries */
    int most_stretches;
};

/* Rows of one sequence that share a piece. Blocks are visited from the last to the first, because the last
 * rows attend to the most positions. */
struct row_block {
    int row, rows, from, to, stretches;
    enum path path;
    bool run_ends;             /* its last rows are the last of their run, that is rows of one sequence: */
    int run, run_from, run_to; /* first row; positions */
};

static void rows_visible_range(const struct attention *p, int row, int end, int *from, int *to)
{
    *from = INT32_MAX, *to = 0;
    for (; row < end; row++) {
        *from = MIN(*from, attention_first(p, p->pos[row]));
        *to = MAX(*to, p->pos[row] + 1);
    }
}

/* Move to the block before r (start with row = n). Returns false if there is none. */
static bool block_before(const struct cutting *c, struct row_block *r)
{
    const struct attention *p = c->p;
    const int end = r->row;
    if (end == 0) return false;
    r->run_ends = end == p->n || end == r->run;
    if (r->run_ends) {
        for (r->run = end - 1; r->run > 0 && p->seq[r->run - 1] == p->seq[end - 1];) r->run--;
        r->path = end - r->run <= c->few_rows ? FEW : MANY;
        rows_visible_range(p, r->run, end, &r->run_from, &r->run_to);
    }
    const struct way *w = &c->way[r->path];
    r->row = MAX(r->run, end - w->rows_a_piece);
    r->rows = end - r->row;
    rows_visible_range(p, r->row, end, &r->from, &r->to);
    r->stretches = (int)((r->to - r->from + w->chunk - 1) / w->chunk);
    return true;
}

/* Count pieces, partial results, merges and table entries for the current chunk sizes. */
static void cutting_count(struct cutting *c)
{
    const struct attention *p = c->p;
    struct row_block r = { .row = p->n };
    for (int i = 0; i < PATHS; i++) c->way[i].tokens = c->way[i].pieces = c->way[i].most_rows = 0;
    c->slots = c->merges = c->blocks = c->most_stretches = 0;
    while (block_before(c, &r)) {
        struct way *w = &c->way[r.path];
        w->pieces += r.stretches;
        w->tokens += r.to - r.from;
        w->most_rows = MAX(w->most_rows, r.rows);
        c->most_stretches = MAX(c->most_stretches, r.stretches);
        if (r.stretches > 1) c->slots += (int64_t)r.stretches * r.rows * p->heads, c->merges += r.rows;
        if (r.run_ends)
            c->blocks += (r.run_to - 1) / p->kv->block_tokens - r.run_from / p->kv->block_tokens + 1;
    }
}

static void choose_parts(struct cutting *c)
{
    const struct kv_layer *kv = c->p->kv;
    const int group = c->p->heads / kv->kv_heads, wide = MAX(kv->k_dim, kv->v_dim);
    c->way[FEW].vectors = MIN(MAX(FEW_NUMBERS / wide, 1), (int)FEW_VECTORS);
    c->way[MANY].vectors = MANY_ACROSS * many_rows(kv->v_dim);
    c->few_rows = 2 * c->way[FEW].vectors / group;
    for (int i = 0; i < PATHS; i++) {
        struct way *w = &c->way[i];
        w->parts = (group + w->vectors - 1) / w->vectors;
        w->part_heads = (group + w->parts - 1) / w->parts;
        w->rows_a_piece = w->vectors / w->part_heads;
        w->chunk = INT32_MAX; /* do not divide positions */
    }
}

/* Choose chunk sizes that yield as many groups as the device needs, as far as scratch memory allows. */
static void choose_chunks(struct cutting *c, const struct opencl *o)
{
    static const int GROUPS[PATHS] = { GROUPS_FEW, GROUPS_MANY }, LEAST[PATHS] = { TILE, 4 * TILE };
    const struct kv_layer *kv = c->p->kv;
    const int64_t units = o->device.compute_units > 0 ? o->device.compute_units : UNITS_GUESS;
    cutting_count(c);
    for (int i = 0; i < PATHS; i++) {
        struct way *w = &c->way[i];
        const int64_t fair = w->tokens * kv->kv_heads * w->parts / (units * GROUPS[i]);
        w->chunk = MAX((fair + TILE - 1) / TILE * TILE, (int64_t)LEAST[i]);
    }
    for (cutting_count(c);
         c->slots * slot_bytes(kv->v_dim) > o->scratch_bytes || c->most_stretches > STRETCHES_MAX;
         cutting_count(c))
        for (int i = 0; i < PATHS; i++) c->way[i].chunk *= 2;
}

/* ---------------------------------------------------------------- writing the plan */

static int32_t *write_plan(const struct cutting *c, const struct way *w, int32_t pos, int32_t *at)
{
    const struct attention *p = c->p;
    const struct plan plan = { .heads = p->heads,
                               .kv_heads = p->kv->kv_heads,
                               .part_heads = w->part_heads,
                               .parts = w->parts,
                               .window = p->window,
                               .chunk = p->chunk,
                               .q_stride = (cl_int)p->q_stride,
                               .y_stride = (cl_int)p->y_stride,
                               .slots = (cl_int)c->slots,
                               .pos = pos,
                               .scale = p->scale,
                               .softcap = p->softcap };
    memcpy(at, &plan, sizeof plan);
    return at + PLAN_INTS;
}

/* Write the pieces of a block, and the merges they need. */
static void write_block(const struct cutting *c, const struct row_block *r, int32_t table, int32_t *slot,
                        int32_t **pieces, int32_t **merges)
{
    const int64_t chunk = c->way[r->path].chunk;
    const int32_t step = r->rows * c->p->heads;
    for (int s = 0; s < r->stretches; s++) {
        const struct piece t = { .row = r->row,
                                 .rows = r->rows,
                                 .from = (cl_int)(r->from + s * chunk),
                                 .to = (cl_int)MIN((int64_t)r->to, r->from + (s + 1) * chunk),
                                 .table = table,
                                 .slot = r->stretches > 1 ? *slot + s * step : -1 };
        memcpy(*pieces, &t, sizeof t);
        *pieces += PIECE_INTS;
    }
    if (r->stretches < 2) return;
    for (int i = 0; i < r->rows; i++) {
        const struct merge m = { r->row + i, *slot + i * c->p->heads, step, r->stretches };
        memcpy(*merges, &m, sizeof m);
        *merges += MERGE_INTS;
    }
    *slot += r->stretches * step;
}

/* Plan and pieces of each path, rows to merge, positions, tables. */
static void cutting_write_plan(struct cutting *c, int32_t *ints, int64_t merges_at)
{
    const struct attention *p = c->p;
    const int bt = p->kv->block_tokens;
    int32_t *merges = ints + merges_at, *pos = merges + c->merges * MERGE_INTS, *table = pos + p->n;
    int32_t *pieces[PATHS], slot = 0;
    for (int i = 0; i < PATHS; i++)
        pieces[i] = write_plan(c, &c->way[i], (int32_t)(pos - ints), ints + c->way[i].at);
    memcpy(pos, p->pos, (size_t)p->n * sizeof *pos);
    struct row_block r = { .row = p->n };
    int32_t first = 0;
    while (block_before(c, &r)) {
        if (r.run_ends) {
            const int from = r.run_from / bt, n = (r.run_to - 1) / bt - from + 1;
            memcpy(table, p->tables[p->seq[r.row]] + from, (size_t)n * sizeof *table);
            first = (int32_t)(table - ints) - from;
            table += n;
        }
        write_block(c, &r, first, &slot, &pieces[r.path], &merges);
    }
}

/* Provide space for that many integers at a stable address, by which opencl_mirror recognizes data that is on
 * the device already. Many models alternate layers with and without a window, so each kind has its own space.
 */
static int32_t *room_for(struct opencl *o, const struct attention *p, int64_t ints)
{
    struct opencl_ints *r = &o->plans[p->window > 0 || p->chunk > 0];
    if (r->room < ints) {
        int32_t *more = realloc(r->at, (size_t)(2 * ints) * sizeof *more);
        if (!more) {
            opencl_fail(o, CL_OUT_OF_HOST_MEMORY, "cutting attention into pieces");
            return NULL;
        }
        r->at = more;
        r->room = 2 * ints;
    }
    return r->at;
}

/* ---------------------------------------------------------------- running */

static void run_path(struct opencl *o, const struct cutting *c, enum path path, cl_mem ints)
{
    static const char *const NAMES[PATHS] = { "attend_few", "attend_many" };
    const struct attention *p = c->p;
    const struct kv_layer *kv = p->kv;
    const struct way *w = &c->way[path];
    const size_t items = path == FEW ? FEW_ITEMS : MANY_ITEMS;
    char options[192];
    if (!w->pieces) return;
    snprintf(options, sizeof options,
             "-DK=%s -DV=%s -DK_DIM=%d -DV_DIM=%d -DV_STORED=%d -DBLOCK_TOKENS=%d -D%s=%d",
             kv->k_format->name, kv->v_format->name, kv->k_dim, kv->v_dim, kv->v_in_k ? kv->k_dim : kv->v_dim,
             kv->block_tokens, path == FEW ? "QUERIES" : "ROWS",
             path == FEW ? w->part_heads * w->most_rows : many_rows(kv->v_dim));
    const struct opencl_arg args[] = {
        ARG_PLACE(o, kv->k), ARG_PLACE(o, kv->v),    ARG_PLACE(o, p->q),
        ARG_PLACE(o, p->y),  ARG_PLACE(o, NULL),     ARG_MEM(ints),
        ARG_INT(w->at),      ARG_PLACE(o, p->sinks), ARG_INT(p->sinks != NULL),
    };
    opencl_run(o, &(struct opencl_kernel){ 1 << SOURCE_KV | 1 << SOURCE_ATTENTION, options, NAMES[path] },
               (size_t[]){ (size_t)w->pieces * items, (size_t)(kv->kv_heads * w->parts), 1 },
               (size_t[]){ items, 1, 1 }, args, COUNT_OF(args));
}

static void run_merge(struct opencl *o, const struct cutting *c, cl_mem ints, int64_t at)
{
    static const struct opencl_kernel K = { 1 << SOURCE_ATTENTION, "", "merge" };
    const struct attention *p = c->p;
    if (!c->merges) return;
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->y), ARG_PLACE(o, NULL),   ARG_MEM(ints),         ARG_INT(at),
        ARG_INT(c->slots),  ARG_INT(p->y_stride), ARG_INT(p->kv->v_dim),
    };
    opencl_run(o, &K, (size_t[]){ (size_t)c->merges * MERGE_ITEMS, (size_t)p->heads, 1 },
               (size_t[]){ MERGE_ITEMS, 1, 1 }, args, COUNT_OF(args));
}

void opencl_attention(struct backend *b, const struct attention *p)
{
    struct opencl *o = opencl_of(b);
    const struct kv_layer *kv = p->kv;
    struct cutting c = { .p = p };
    check_layer(o, kv);
    assert(p->heads % kv->kv_heads == 0);
    assert(p->q_stride <= INT32_MAX && p->y_stride <= INT32_MAX);
    if (p->n < 1) return;
    choose_parts(&c);
    choose_chunks(&c, o);
    int64_t ints = 0;
    for (int i = 0; i < PATHS; i++) {
        c.way[i].at = ints;
        ints += PLAN_INTS + c.way[i].pieces * PIECE_INTS;
    }
    const int64_t merges_at = ints;
    ints += c.merges * MERGE_INTS + p->n + c.blocks;
    assert(ints <= INT32_MAX && c.slots <= INT32_MAX);
    int32_t *host = room_for(o, p, ints);
    if (!host) return;
    cutting_write_plan(&c, host, merges_at);
    cl_mem mem = opencl_mirror(o, host, (size_t)ints * sizeof *host);
    for (int i = 0; i < PATHS; i++) run_path(o, &c, (enum path)i, mem);
    run_merge(o, &c, mem, merges_at);
}

int64_t opencl_attention_scratch_bytes(int64_t rows, int64_t max_cols)
{
    (void)rows; /* the scratch is constant and limits how far positions are divided: with many rows, not at
                   all */
    return (int64_t)SPLIT_ROWS * slot_bytes(max_cols + max_cols / 16);
}
