/* Shared memory of the processes of one server (share.h). Nothing waits in it, so a process that is killed
 * at any moment holds up nobody. */
#include "advisor/serve/share.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "advisor/serve/parts.h"

enum word_kind { WORD_COUNT, WORD_SECONDS, WORD_MOST_SECONDS, WORD_GAUGE };

#define FIGURE(member, kind)                                                                                 \
    {                                                                                                        \
        offsetof(struct serve_figures, member) / 8, sizeof(((struct serve_figures *)NULL)->member) / 8, kind \
    }
#define FIGURE_HISTOGRAM(member)                                                                             \
    FIGURE(member.bucket, WORD_COUNT), FIGURE(member.count, WORD_COUNT), FIGURE(member.sum, WORD_SECONDS)
#define FIGURE_TIMES(member)                                                                                 \
    FIGURE(member.n, WORD_COUNT), FIGURE(member.sum_s, WORD_SECONDS),                                        \
        FIGURE(member.most_s, WORD_MOST_SECONDS), FIGURE(member.bin, WORD_COUNT)

/* How the members are added; all of them, which a test checks. */
static const struct {
    size_t at, n; /* words */
    enum word_kind kind;
} FIGURES[] = {
    FIGURE(outcome, WORD_COUNT),
    FIGURE(accepted, WORD_COUNT),
    FIGURE(met, WORD_COUNT),
    FIGURE(missed, WORD_COUNT),
    FIGURE(prompt_tokens, WORD_COUNT),
    FIGURE(cached_tokens, WORD_COUNT),
    FIGURE(generated_tokens, WORD_COUNT),
    FIGURE(steps, WORD_COUNT),
    FIGURE(rows, WORD_COUNT),
    FIGURE(preemptions, WORD_COUNT),
    FIGURE(stalls, WORD_COUNT),
    FIGURE(busy_s, WORD_SECONDS),
    FIGURE_HISTOGRAM(queue),
    FIGURE_HISTOGRAM(first_token),
    FIGURE_HISTOGRAM(token),
    FIGURE_HISTOGRAM(duration),
    FIGURE_TIMES(first),
    FIGURE_TIMES(gap),
    FIGURE(waiting, WORD_GAUGE),
    FIGURE(running, WORD_GAUGE),
    FIGURE(blocks, WORD_GAUGE),
    FIGURE(blocks_used, WORD_GAUGE),
    FIGURE(blocks_cached, WORD_GAUGE),
    FIGURE(blocks_free, WORD_GAUGE),
};

enum { WORDS = sizeof(struct serve_figures) / 8 };
_Static_assert(sizeof(struct serve_figures) % 8 == 0, "figures consist of words");

static uint64_t word_get(const struct serve_figures *f, size_t word)
{
    uint64_t w;
    memcpy(&w, (const char *)f + word * sizeof w, sizeof w);
    return w;
}

static void word_set(struct serve_figures *f, size_t word, uint64_t w)
{
    memcpy((char *)f + word * sizeof w, &w, sizeof w);
}

struct share_slot {
    _Atomic int phase; /* enum share_phase */
    _Atomic bool retire;
    _Atomic int sequences;
    _Atomic int64_t bytes;
    /* Number of publications. The figures of number n are in copy[n % 2], and the next ones are written to
     * the other copy. */
    _Atomic uint64_t published;
    _Atomic uint64_t copy[2][WORDS];
};

struct share {
    int slots;
    _Atomic bool stopping;
    _Atomic int64_t changes[SCALE_CHANGES];
    struct share_slot slot[];
};

/* ---------------------------------------------------------------- figures */

static uint64_t word_add(enum word_kind kind, uint64_t x, uint64_t y)
{
    double a, b;
    if (kind == WORD_COUNT || kind == WORD_GAUGE) return x + y;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    a = kind == WORD_SECONDS ? a + b : MAX(a, b);
    memcpy(&x, &a, sizeof x);
    return x;
}

void figures_add(struct serve_figures *sum, const struct serve_figures *more)
{
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++)
        for (size_t w = FIGURES[i].at; w < FIGURES[i].at + FIGURES[i].n; w++)
            word_set(sum, w, word_add(FIGURES[i].kind, word_get(sum, w), word_get(more, w)));
}

void figures_clear_gauges(struct serve_figures *f)
{
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++)
        for (size_t w = 0; w < FIGURES[i].n && FIGURES[i].kind == WORD_GAUGE; w++)
            word_set(f, FIGURES[i].at + w, 0);
}

void share_publish(struct share *sh, int slot, const struct serve_figures *f)
{
    struct share_slot *s = &sh->slot[slot];
    const uint64_t n = atomic_load_explicit(&s->published, memory_order_relaxed) + 1;
    atomic_thread_fence(memory_order_release); /* who sees a word of this copy sees number n - 1, at least */
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&s->copy[n % 2][i], word_get(f, i), memory_order_relaxed);
    atomic_store_explicit(&s->published, n, memory_order_release);
}

void share_slot_read(struct share *sh, int slot, struct serve_figures *out)
{
    struct share_slot *s = &sh->slot[slot];
    uint64_t n, after;
    do {
        n = atomic_load_explicit(&s->published, memory_order_acquire);
        for (size_t i = 0; i < WORDS; i++)
            word_set(out, i, atomic_load_explicit(&s->copy[n % 2][i], memory_order_relaxed));
        atomic_thread_fence(memory_order_acquire);
        after = atomic_load_explicit(&s->published, memory_order_relaxed);
    } while (after != n); /* the copy may have been overwritten for number n + 2 */
}

void share_sum(struct share *sh, struct serve_figures *out)
{
    struct serve_figures one;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < sh->slots; i++) {
        share_slot_read(sh, i, &one);
        figures_add(out, &one);
    }
}

/* ---------------------------------------------------------------- processes */

static size_t share_size(int slots)
{
    return sizeof(struct share) + (size_t)slots * sizeof(struct share_slot);
}

enum err_code share_open(struct share **out, int slots, struct err *why)
{
    *out = NULL;
    struct share *sh = mmap(NULL, share_size(slots), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0);
    if (sh == MAP_FAILED)
        return err_set(why, err_of_errno(errno), "cannot share memory between %d processes: %s", slots,
                       strerror(errno));
    sh->slots = slots; /* all other members begin as 0 */
    *out = sh;
    return ERR_OK;
}

void share_close(struct share *sh)
{
    if (sh) munmap(sh, share_size(sh->slots));
}

void share_begin(struct share *sh, int slot)
{
    struct share_slot *s = &sh->slot[slot];
    atomic_store(&s->retire, false);
    atomic_store(&s->phase, SHARE_STARTING);
}

void share_ready(struct share *sh, int slot, int sequences, int64_t bytes)
{
    struct share_slot *s = &sh->slot[slot];
    atomic_store(&s->sequences, sequences);
    atomic_store(&s->bytes, bytes);
    atomic_store(&s->phase, SHARE_READY);
}

void share_end(struct share *sh, int slot)
{
    struct serve_figures f;
    share_slot_read(sh, slot, &f);
    f.outcome[SERVE_FAILED] += f.waiting + f.running; /* nobody else can say how they ended */
    figures_clear_gauges(&f);
    share_publish(sh, slot, &f);
    atomic_store(&sh->slot[slot].phase, SHARE_NONE);
}

enum share_phase share_phase(struct share *sh, int slot)
{
    struct share_slot *s = &sh->slot[slot];
    const enum share_phase phase = (enum share_phase)atomic_load(&s->phase);
    return phase != SHARE_NONE && atomic_load(&s->retire) ? SHARE_RETIRING : phase;
}

void share_retire(struct share *sh, int slot)
{
    atomic_store(&sh->slot[slot].retire, true);
}

void share_stop(struct share *sh)
{
    atomic_store(&sh->stopping, true);
}

bool share_is_stopping(struct share *sh)
{
    return atomic_load(&sh->stopping);
}

void share_count_change(struct share *sh, enum scale_change change)
{
    atomic_fetch_add(&sh->changes[change], 1);
}

int64_t share_change_count(struct share *sh, enum scale_change change)
{
    return atomic_load(&sh->changes[change]);
}

int share_processes(struct share *sh)
{
    int n = 0;
    for (int i = 0; i < sh->slots; i++) n += share_phase(sh, i) == SHARE_READY;
    return n;
}

bool share_other_has_room(struct share *sh, int slot, int64_t open)
{
    struct serve_figures f;
    for (int i = 0; i < sh->slots; i++) {
        if (i == slot || share_phase(sh, i) != SHARE_READY) continue;
        share_slot_read(sh, i, &f);
        const int64_t there = f.waiting + f.running;
        if (there < open && there < atomic_load(&sh->slot[i].sequences)) return true;
    }
    return false;
}

void share_read(struct share *sh, struct share_state *out)
{
    struct serve_figures f;
    *out = (struct share_state){ .ready = 0 };
    share_sum(sh, &f);
    out->sum = server_state_of(&f);
    for (int i = 0; i < sh->slots; i++) {
        const enum share_phase phase = share_phase(sh, i);
        out->ready += phase == SHARE_READY;
        out->starting += phase == SHARE_STARTING;
        out->retiring += phase == SHARE_RETIRING;
        out->sequences = MAX(out->sequences, atomic_load(&sh->slot[i].sequences));
        out->process_bytes = MAX(out->process_bytes, atomic_load(&sh->slot[i].bytes));
    }
}

/* ---------------------------------------------------------------- of this process */

void server_figures_locked(const struct server *s, struct serve_figures *out)
{
    const struct tally *t = &s->tally;
    const struct pool_counts *b = &t->now.blocks;
    *out = t->all;
    out->preemptions = t->now.preemptions;
    out->stalls = t->live.stalls;
    out->first = t->live.first;
    out->gap = t->live.gap;
    out->waiting = s->waiting;
    out->running = s->open - s->waiting;
    out->blocks = b->blocks;
    out->blocks_used = b->used;
    out->blocks_cached = b->cached;
    out->blocks_free = b->free;
    if (s->base) figures_add(out, s->base);
}

void server_publish_locked(struct server *s)
{
    struct serve_figures f;
    if (!s->o.share) return;
    server_figures_locked(s, &f);
    share_publish(s->o.share, s->o.slot, &f);
}

void server_sum(struct server *s, struct serve_figures *out)
{
    if (s->o.share) {
        share_sum(s->o.share, out);
        return;
    }
    pthread_mutex_lock(&s->lock);
    server_figures_locked(s, out);
    pthread_mutex_unlock(&s->lock);
}
