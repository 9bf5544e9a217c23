/* Merges the best pair of neighbouring symbols until no pair merges: the step that SPM and BPE share.
 *
 * A binary heap contains the pairs that can merge. A pair whose symbols were merged with others in the
 * meantime is recognised by its size and dropped. Each merge adds at most two pairs, so a megabyte of text
 * without a word boundary takes O(n log n), not O(n^2). */
#include "engine/text/text_internal.h"

#include <stdlib.h>

#include "kernels/kernels.h"

void merger_free(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct merger){ 0 };
}

static bool merger_reserve(void **items, int64_t count, int64_t *cap, size_t size)
{
    if (count < *cap) return true;
    int64_t more = *cap ? *cap * 2 : 64;
    void *p = realloc(*items, (size_t)more * size);
    if (!p) return false;
    *items = p;
    *cap = more;
    return true;
}

bool merger_add(struct merger *m, int32_t at, int32_t len, int32_t id)
{
    if (!merger_reserve((void **)&m->symbols, m->count, &m->symbol_cap, sizeof *m->symbols)) return false;
    int32_t i = (int32_t)m->count++;
    m->symbols[i] = (struct symbol){ .prev = i - 1, .next = -1, .at = at, .len = len, .id = id };
    if (i > 0) m->symbols[i - 1].next = i;
    return true;
}

static void heap_push(struct merger *m, struct merge x)
{
    int64_t i = m->heap_count++;
    while (i > 0 && x.order < m->heap[(i - 1) / 2].order) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = x;
}

static struct merge heap_pop(struct merger *m)
{
    struct merge top = m->heap[0], last = m->heap[--m->heap_count];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= m->heap_count) break;
        if (child + 1 < m->heap_count && m->heap[child + 1].order < m->heap[child].order) child++;
        if (last.order <= m->heap[child].order) break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

struct source {
    merge_pair_fn *pair;
    const void *ctx;
    const char *text;
};

/* Push the pair (left, its right neighbour) if it can merge. False: out of memory. */
static bool merger_push_pair(struct merger *m, const struct source *s, int32_t left)
{
    uint32_t worth;
    int32_t id, right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0) return true;
    const struct symbol *l = &m->symbols[left], *r = &m->symbols[right];
    if (!s->pair(s->ctx, s->text, l, r, &worth, &id)) return true;
    if (!merger_reserve((void **)&m->heap, m->heap_count, &m->heap_cap, sizeof *m->heap)) return false;
    heap_push(m, (struct merge){ (uint64_t)worth << 32 | (uint32_t)left, right, l->len + r->len, id });
    return true;
}

bool merger_run(struct merger *m, merge_pair_fn *pair, const void *ctx, const char *text)
{
    const struct source s = { pair, ctx, text };
    m->heap_count = 0;
    for (int64_t i = 0; i + 1 < m->count; i++)
        if (!merger_push_pair(m, &s, (int32_t)i)) return false;
    while (m->heap_count) {
        struct merge best = heap_pop(m);
        int32_t left = (int32_t)(uint32_t)best.order;
        struct symbol *l = &m->symbols[left], *r = &m->symbols[best.right];
        if (!l->len || !r->len || l->next != best.right || l->len + r->len != best.size) continue; /* stale */
        l->len = best.size;
        l->id = best.id;
        l->next = r->next;
        if (r->next >= 0) m->symbols[r->next].prev = left;
        r->len = 0;
        if (!merger_push_pair(m, &s, l->prev) || !merger_push_pair(m, &s, left)) return false;
    }
    return true;
}
