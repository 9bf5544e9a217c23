/* What the ranks of a model or of a training (parallel=) used during a cell: one entry for each, and their
 * part of the sums.
 */
#include "engine/worker/worker_internal.h"

#include <math.h>

#include "engine/model/model.h"
#include "engine/parallel/parallel.h"
#include "engine/train/train.h"

enum { PROGRESS_NS = 1000000000 };

static struct ranks_usage ranks_now(struct worker *w)
{
    struct ranks *trains = w->trial ? trial_ranks(w->trial) : NULL;
    struct ranks_usage u = { .n = w->model ? model_ranks(w->model) : trains ? ranks_count(trains) : 0 };
    struct err ignored; /* a rank that is gone is the next request's error */
    if (u.n &&
        (w->model ? model_ranks_usage(w->model, u.rank, &ignored) : ranks_usage(trains, u.rank, &ignored)))
        u.n = 0;
    return u;
}

/* The list "ranks": what each rank used since the cell began; empty: unknown. New reference; NULL: there are
 * no ranks. */
static json_t *ranks_list(const struct worker *w, const struct ranks_usage *now)
{
    if (!now->n && !w->ranks_begin.n) return NULL;
    json_t *list = json_array();
    for (int i = 0; i < now->n && now->n == w->ranks_begin.n; i++) {
        const struct rank_usage u = rank_usage_since(&now->rank[i], &w->ranks_begin.rank[i]);
        json_array_append_new(list, rank_usage_to_json(&u));
    }
    return list;
}

void ranks_cell_begin(struct worker *w)
{
    w->ranks_begin = ranks_now(w);
    w->ranks_told_ns = clock_ns();
}

void ranks_progress_put(json_t *o, struct worker *w)
{
    const int64_t clock = clock_ns();
    if (!w->ranks_begin.n || clock - w->ranks_told_ns < PROGRESS_NS) return;
    const struct ranks_usage now = ranks_now(w);
    json_t *list = ranks_list(w, &now);
    if (list) json_put(o, "ranks", list);
    w->ranks_told_ns = clock;
}

static void add_to(json_t *o, const char *key, double more)
{
    const double now = json_get_num(o, key, (double)NAN);
    json_put_num(o, key, now + more);
}

static void add_count(json_t *o, const char *key, int64_t more)
{
    const int64_t now = json_get_int(o, key, -1);
    if (now >= 0 && more >= 0) json_put_int(o, key, now + more);
}

void ranks_usage_put(json_t *o, struct worker *w)
{
    const struct ranks_usage now = ranks_now(w);
    json_t *list = ranks_list(w, &now);
    for (int i = 0; i < now.n && now.n == w->ranks_begin.n; i++) {
        const struct rank_usage *a = &w->ranks_begin.rank[i], *b = &now.rank[i];
        add_to(o, "cpu_s", b->cpu_s - a->cpu_s);
        add_count(o, "peak_rss_bytes", b->peak_rss_bytes);
        add_count(o, "rss_bytes", b->rss_bytes);
    }
    if (list) json_put(o, "ranks", list);
}
