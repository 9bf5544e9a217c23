/* What the ranks of a model or of a training (parallel=) used during a cell: one entry for each, and their
 * part of the sums.
 */
#include "engine/worker/worker_internal.h"

#include <math.h>

#include "engine/model/model.h"
#include "engine/parallel/parallel.h"
#include "engine/train/train.h"

struct ranks_usage ranks_usage_now(struct worker *w)
{
    struct ranks *trains = w->trial ? trial_ranks(w->trial) : NULL;
    struct ranks_usage u = { .n = w->model ? model_ranks(w->model) : trains ? ranks_count(trains) : 0 };
    struct err ignored; /* a rank that is gone is the next request's error */
    if (u.n &&
        (w->model ? model_ranks_usage(w->model, u.rank, &ignored) : ranks_usage(trains, u.rank, &ignored)))
        u.n = 0;
    return u;
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

void ranks_usage_put(json_t *o, struct worker *w, const struct ranks_usage *before)
{
    const struct ranks_usage now = ranks_usage_now(w);
    json_t *list = json_array();
    for (int i = 0; i < now.n && now.n == before->n; i++) {
        const struct rank_usage *a = &before->rank[i], *b = &now.rank[i];
        json_t *one = json_object();
        json_put_num(one, "cpu_s", b->cpu_s - a->cpu_s);
        json_put_num(one, "exchange_s", b->exchange_s - a->exchange_s);
        json_put_int(one, "exchanged_bytes", b->exchanged_bytes - a->exchanged_bytes);
        json_put_int(one, "peak_rss_bytes", b->peak_rss_bytes);
        json_put_int(one, "rss_bytes", b->rss_bytes);
        json_put_int(one, "plan_bytes", b->plan_bytes);
        json_put_int(one, "start_rss_bytes", b->start_rss_bytes);
        json_array_append_new(list, one);
        add_to(o, "cpu_s", b->cpu_s - a->cpu_s);
        add_count(o, "peak_rss_bytes", b->peak_rss_bytes);
        add_count(o, "rss_bytes", b->rss_bytes);
    }
    if (now.n)
        json_put(o, "ranks", list);
    else
        json_decref(list);
}
