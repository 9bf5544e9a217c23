/* Memory of the CPU backend: where its pages are (options.numa), and copies of weights on several nodes.
 *
 * The system puts a page on the node of the thread that first writes it, unless it was told another place
 * before. So memory that is placed is told first and zeroed later; with NUMA_SPREAD and NUMA_REPLICATE all
 * threads zero buffers together. Weights of a mapped file are in the system's file cache, which no program
 * can place: policies for weights copy them. A refusal of the system costs speed, never correctness:
 * placed_bytes counts successes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

enum { ALIGNMENT = 64, PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* Allocate memory, in huge pages where it is large enough for them. Rows of activations are pages apart and
 * are accessed column by column: with 4 KiB pages the TLB misses took more time than the tile products. */
static void *aligned_pages(size_t bytes, const struct backend_options *o)
{
    const int64_t alignment = o->numa != NUMA_OFF && bytes >= PAGE ? PAGE : ALIGNMENT;
    if (bytes < HUGE_PAGE || o->huge_pages == HUGE_PAGES_OFF)
        return aligned_alloc((size_t)alignment, (size_t)round_up((int64_t)MAX(bytes, 1u), alignment));
    void *p = aligned_alloc(HUGE_PAGE, (size_t)round_up((int64_t)bytes, HUGE_PAGE));
    if (p) madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* only a hint: failure is harmless */
    return p;
}

/* The part of an allocation that requests huge pages. */
static int64_t huge_page_bytes(size_t bytes, enum huge_pages huge)
{
    return huge == HUGE_PAGES_OFF ? 0 : (int64_t)(bytes / HUGE_PAGE * HUGE_PAGE);
}

void *cpu_pages(struct cpu *b, size_t bytes)
{
    const struct backend_options *o = &b->base.options;
    void *p = aligned_pages(bytes, o);
    if (!p || !b->nodes || bytes < PAGE) return p;
    const bool placed = o->numa == NUMA_LOCAL        ? numa_place(b->nodes, numa_home(b->nodes), p, bytes)
                        : o->numa == NUMA_INTERLEAVE ? numa_interleave(b->nodes, p, bytes)
                                                     : false;
    if (placed) b->placed_bytes += (int64_t)bytes;
    return p;
}

struct zeroing {
    uint8_t *p;
    int64_t bytes;
};

static void zero_share(void *arg, int member, int size)
{
    const struct zeroing *z = arg;
    int64_t from, to;
    member_share((z->bytes + PAGE - 1) / PAGE, member, size, &from, &to);
    from *= PAGE;
    to = MIN(to * PAGE, z->bytes);
    if (from < to) memset(z->p + from, 0, (size_t)(to - from));
}

void *cpu_alloc(struct backend *base, size_t bytes)
{
    struct cpu *b = (struct cpu *)base;
    if (bytes > SIZE_MAX / 2) return NULL;
    void *p = cpu_pages(b, bytes);
    if (!p) return NULL;
    b->huge_wanted_bytes += huge_page_bytes(bytes, base->options.huge_pages);
    if (b->nodes)
        threadpool_run(base->pool, zero_share, &(struct zeroing){ p, (int64_t)bytes });
    else
        memset(p, 0, bytes);
    return p;
}

int cpu_nodes(const struct cpu *b)
{
    int nodes = 0, last = -1; /* members of a node are neighbours */
    for (int i = 0; i < threadpool_size(b->base.pool); i++) {
        const int node = threadpool_node(b->base.pool, i);
        nodes += node != last;
        last = node;
    }
    return nodes;
}

/* ---------------------------------------------------------------- weights */

bool cpu_copies_weights(const struct backend_options *o)
{
    return o->huge_pages == HUGE_PAGES_ALL || o->numa == NUMA_LOCAL || o->numa == NUMA_INTERLEAVE ||
           o->numa == NUMA_REPLICATE;
}

/* Copy the matrix to every node that has threads. w->copies[0] is what w->data points into. */
static bool replicate(struct cpu *b, struct weight *w, size_t bytes)
{
    w->copies = calloc(1 + (size_t)numa_count(b->nodes), sizeof *w->copies);
    if (!w->copies) return false;
    w->copies[0] = w->owned;
    for (int i = 0; i < threadpool_size(b->base.pool); i++) {
        const int node = threadpool_node(b->base.pool, i);
        void **copy = node < 0 ? NULL : &w->copies[1 + node];
        if (!copy || *copy) continue;
        if (!i) {
            *copy = w->owned; /* written by this thread, which is member 0 */
            continue;
        }
        *copy = cpu_pages(b, bytes);
        if (!*copy) return false;
        if (bytes >= PAGE && numa_place(b->nodes, node, *copy, bytes)) b->placed_bytes += (int64_t)bytes;
        memcpy(*copy, w->owned, bytes);
        b->copied_bytes += (int64_t)bytes;
        b->huge_wanted_bytes += huge_page_bytes(bytes, b->base.options.huge_pages);
    }
    return true;
}

enum err_code cpu_copy_weight(struct cpu *b, struct weight *w, const struct format *format, struct err *why)
{
    const size_t bytes = (size_t)(w->rows * format_row_bytes(w->format, w->cols));
    w->owned = cpu_pages(b, bytes);
    if (!w->owned) return err_set(why, ERR_NOMEM, "out of memory for a copy of %zu bytes of weights", bytes);
    if (w->format == format) {
        memcpy(w->owned, w->data, bytes);
    } else {
        weight_repack(b, format, w->data, w->owned, w->rows * w->cols);
        b->repacked_bytes += (int64_t)bytes;
    }
    w->data = w->owned;
    b->huge_wanted_bytes += huge_page_bytes(bytes, b->base.options.huge_pages);
    b->copied_bytes += (int64_t)bytes;
    if (b->base.options.numa == NUMA_REPLICATE && b->nodes && !replicate(b, w, bytes))
        return err_set(why, ERR_NOMEM, "out of memory for copies of %zu bytes of weights on each node",
                       bytes);
    return ERR_OK;
}

void cpu_release(struct backend *base, struct weight *w)
{
    const struct cpu *b = (const struct cpu *)base;
    for (int i = 0; w->copies && i < numa_count(b->nodes); i++)
        if (w->copies[1 + i] != w->owned) free(w->copies[1 + i]);
    free(w->copies);
    free(w->owned);
}
