/* GEMM for the experts of a layer in one parallel region. As in gemm.c, all threads first pack the
 * activations, each expert's rows into slivers of their own, and then take chunks of work.
 *
 * For the gate and up matrices, a unit of work is one panel of one expert: both products and the activation
 * function. For the down matrix it is a range of output columns of all experts, because the experts of a row
 * add to the same numbers: a single thread adds them, in the order of the experts. */
#include "kernels/experts.h"
#include "kernels/gemm.h"

/* What a thread works on. */
struct job {
    const struct expert_region *r;
    struct gemm g;
    struct expert_products products;
    struct panel panel;
};

/* Whether gate, up and activation are fused (gemm_can_gate has the reasons). */
static bool is_fused(const struct expert_region *r, const struct expert_products *p)
{
    return p->count == 2 && gemm_can_gate(r->b, r->k, &(struct gated){ .gate = p->m[0], .up = p->m[1] });
}

/* Continue with another expert. */
static void job_start(struct job *j, const struct expert_part *part)
{
    const struct expert_region *r = j->r;
    struct expert_products *p = &j->products;
    expert_products_of(r, part, p);
    struct gemm *g = &j->g;
    const bool fused = is_fused(r, p);
    if (fused) p->m[1].y = p->m[0].y;
    *g = (struct gemm){ .b = r->b,
                        .k = r->k,
                        .m = fused ? &p->m[1] : p->m,
                        .count = 1,
                        .gate = fused ? &p->m[0] : NULL,
                        .act = r->up ? r->up->act : ACT_SILU,
                        .from = p->from,
                        .to = r->down ? r->to->row + part->pair : NULL,
                        .by = r->down ? r->down->weight + part->pair : NULL,
                        .read_soon = r->up && !fused };
    gemm_prepare(g);
    g->in.shared += gemm_shared_bytes(r->k, part->at, g->cols);
}

static void pack_share(struct job *j, int member, int size)
{
    const struct expert_region *r = j->r;
    int64_t from, to;
    member_share(r->rows / SLIVER, member, size, &from, &to);
    for (const struct expert_part *p = r->part; p < r->part + r->count; p++) {
        const int64_t at = p->at / SLIVER, end = at + (p->n + SLIVER - 1) / SLIVER;
        if (end <= from || at >= to) continue;
        job_start(j, p);
        for (int64_t s = MAX(from, at); s < MIN(to, end); s++)
            for (int64_t k0 = 0; k0 < j->g.cols; k0 += j->g.kc)
                gemm_pack_sliver(&j->g, &j->g.in, j->panel.weights, (s - at) * SLIVER, k0,
                                 (int)MIN((int64_t)j->g.kc, j->g.cols - k0));
    }
}

/* ---------------------------------------------------------------- gate and up */

static int64_t row_groups(const struct matmul *m)
{
    return (m->w->rows + ROW_GROUP - 1) / ROW_GROUP;
}

/* Panels of an expert, and passes over its tokens. */
static int64_t panels_of(const struct gemm *g)
{
    return (row_groups(g->m) + g->panel_groups - 1) / g->panel_groups;
}

static int64_t sweeps_of(const struct gemm *g)
{
    return g->few ? 1 : (g->padded + g->k->mc - 1) / g->k->mc;
}

/* Set the rows of panel p: groups [from, to) of 16. */
static void place_rows(struct panel *p, const struct matmul *m, int64_t from, int64_t to)
{
    p->m = m;
    p->row0 = from * ROW_GROUP;
    p->rows = (int)(MIN(to * ROW_GROUP, m->w->rows) - p->row0);
}

/* One matrix's rows, groups [from, to), with the tokens of a sweep. */
static void multiply_rows(struct job *j, const struct matmul *m, int64_t from, int64_t to, int64_t token)
{
    const struct gemm *g = &j->g;
    const int64_t end = MIN(token + g->k->mc, g->padded);
    struct panel *p = &j->panel;
    if (g->few) {
        place_rows(p, m, from, to);
        panel_run_few(g, p);
        return;
    }
    for (p->k0 = 0; p->k0 < g->cols; p->k0 += g->kc) {
        p->k = (int)MIN((int64_t)g->kc, g->cols - p->k0);
        place_rows(p, m, from, to);
        panel_run_many(g, p, token, end);
    }
}

/* Unit i of the job's expert. */
static void up_unit(struct job *j, int64_t i)
{
    const struct gemm *g = &j->g;
    const int64_t panels = panels_of(g), token = i / panels * g->k->mc;
    const int64_t from = i % panels * g->panel_groups, to = MIN(from + g->panel_groups, row_groups(g->m));
    if (g->gate) {
        multiply_rows(j, g->m, from, to, token);
        return;
    }
    for (int k = 0; k < j->products.count; k++) multiply_rows(j, &j->products.m[k], from, to, token);
    /* the rows of this sweep only */
    struct expert_products part = j->products;
    for (int k = 0; k < part.count; k++) part.m[k].y += token * part.m[k].y_stride;
    part.m[0].n = g->few ? part.m[0].n : (int)MIN((int64_t)part.m[0].n - token, (int64_t)g->k->mc);
    expert_activate(j->r, &part, from * ROW_GROUP, MIN(to * ROW_GROUP, g->m->w->rows));
}

static void run_up(struct job *j, int size)
{
    const struct expert_region *r = j->r;
    int64_t all = 0, first = 0;
    for (int i = 0; i < r->count; i++) all += r->part[i].units;
    struct work_chunk chunk = { 0 };
    bool more = work_chunk_take(r->b, &chunk, all, 1, size);
    for (const struct expert_part *p = r->part; more; first += p->units, p++) {
        if (chunk.next >= first + p->units) continue;
        job_start(j, p);
        for (; more && chunk.next < first + p->units;
             more = ++chunk.next < chunk.end || work_chunk_take(r->b, &chunk, all, 1, size))
            up_unit(j, chunk.next - first);
    }
}

/* ---------------------------------------------------------------- down */

enum { UNITS_PER_THREAD = 4 /* at least: the last ones must not be long */ };

/* Columns [from, to) of y, in groups of 16, of all experts. */
static void down_unit(struct job *j, int64_t from, int64_t to)
{
    const struct expert_region *r = j->r;
    for (int i = 0; i < r->count; i++) {
        job_start(j, &r->part[i]);
        const struct gemm *g = &j->g;
        for (int64_t sweep = 0; sweep < sweeps_of(g); sweep++)
            for (int64_t at = from; at < to; at += g->panel_groups)
                multiply_rows(j, g->m, at, MIN(at + g->panel_groups, to), sweep * g->k->mc);
    }
}

static void run_down(struct job *j, int size)
{
    const struct expert_region *r = j->r;
    const int64_t rows = r->down->down->rows, groups = (rows + ROW_GROUP - 1) / ROW_GROUP;
    const int64_t panel = r->k->panel_rows / ROW_GROUP;
    const int64_t step = MAX(MIN(groups / (UNITS_PER_THREAD * size), panel), (int64_t)1);
    const int64_t all = (groups + step - 1) / step;
    for (struct work_chunk chunk = { 0 }; work_chunk_take(r->b, &chunk, all, 1, size);) {
        const int64_t from = chunk.next * step, to = MIN(chunk.end * step, groups);
        if (r->clear) expert_clear(r, from * ROW_GROUP, MIN(to * ROW_GROUP, rows));
        down_unit(j, from, to);
    }
}

static void member_run(void *arg, int member, int size)
{
    const struct expert_region *r = arg;
    struct job j = { .r = r };
    job_start(&j, r->part);
    j.panel = gemm_panel_of(&j.g, member);
    pack_share(&j, member, size);
    threadpool_barrier(r->b->base.pool);
    if (r->k->begin) r->k->begin();
    (r->up ? run_up : run_down)(&j, size);
    if (r->k->end) r->k->end();
}

void gemm_run_experts(const struct expert_region *r)
{
    const struct weight *w = r->up ? r->up->gate : r->down->down;
    struct job j = { .r = r };
    for (struct expert_part *p = r->part; r->up && p < r->part + r->count; p++) {
        job_start(&j, p);
        p->units = panels_of(&j.g) * sweeps_of(&j.g);
    }
    const int64_t products = r->rows * w->rows * w->cols * (r->up && r->up->up ? 2 : 1);
    cpu_run(r->b, products / PRODUCTS_PER_ELEMENT, member_run, (void *)(uintptr_t)r);
}
