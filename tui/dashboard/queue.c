/* tui/dashboard/queue.c - the queue: commands that were started while something else ran.
 * They start one after the other, because two at once would disturb each other's measurements. */
#include <string.h>

#include "tui/dashboard/queue.h"

static struct queued_job job_of(const struct waiting *w)
{
    return (struct queued_job){ .id = w->id, .since_ms = w->since_ms, .command = w->effect.command };
}

bool queue_takes(struct dashboard *d, const struct effect *e)
{
    if (!(e->requests & REQUEST_RUN_COMMAND) || d->waiting_count == QUEUED_JOBS) return false;
    const char *first = jobs_wait_for(d->s);
    if (!*first) return false;
    struct waiting *w = &d->waiting[d->waiting_count++];
    *w = (struct waiting){ ++d->waiting_id, clock_unix_ms(), *e };
    w->effect.message[0] = '\0';
    char line[LIST_CELL];
    background_log(d->background, LOG_INFO, "queued as number %d: %s", d->waiting_count,
                   command_shown(&d->ui, &e->command, line, sizeof line));
    dashboard_message(d, false, "queued as number %d, after %s: & shows the queue", d->waiting_count, first);
    return true;
}

static int queue_find(const struct dashboard *d, int64_t id)
{
    for (int i = 0; i < d->waiting_count; i++)
        if (d->waiting[i].id == id) return i;
    return -1;
}

static void queue_take_out(struct dashboard *d, int at)
{
    d->waiting_count--;
    memmove(d->waiting + at, d->waiting + at + 1, sizeof d->waiting[0] * (size_t)(d->waiting_count - at));
}

static void queue_put_in(struct dashboard *d, int at, const struct waiting *w)
{
    memmove(d->waiting + at + 1, d->waiting + at, sizeof d->waiting[0] * (size_t)(d->waiting_count - at));
    d->waiting[at] = *w;
    d->waiting_count++;
}

/* A job may have started since the frame that the person saw, so its number may be gone. */
static void queue_move(struct dashboard *d, int64_t id, int by)
{
    const int at = queue_find(d, id), to = at + by;
    if (at < 0 || to < 0 || to >= d->waiting_count) return;
    const struct waiting w = d->waiting[at];
    queue_take_out(d, at);
    queue_put_in(d, to, &w);
}

static void queue_remove(struct dashboard *d, int64_t id)
{
    const int at = queue_find(d, id);
    if (at < 0) {
        dashboard_message(d, true, "that job has started: s stops it");
        return;
    }
    d->removed = d->waiting[at];
    d->removed_at = at;
    queue_take_out(d, at);
}

static void queue_restore(struct dashboard *d)
{
    if (!d->removed.id || d->waiting_count == QUEUED_JOBS) return;
    queue_put_in(d, MIN(d->removed_at, d->waiting_count), &d->removed);
    d->removed.id = 0;
    dashboard_message(d, false, "back in the queue");
}

void queue_requests(struct dashboard *d, const struct effect *e)
{
    if (e->requests & REQUEST_MOVE_QUEUED) queue_move(d, e->job.id, (int)e->job.other_id);
    if (e->requests & REQUEST_REMOVE_QUEUED) queue_remove(d, e->job.id);
    if (e->requests & REQUEST_RESTORE_QUEUED) queue_restore(d);
}

void dashboard_start_queued(struct dashboard *d)
{
    if (!d->waiting_count || d->leaving || *jobs_wait_for(d->s)) return;
    const struct waiting next = d->waiting[0];
    queue_take_out(d, 0);
    effect_apply(d, &next.effect);
    d->from_queue = true;
}

void queue_publish(const struct dashboard *d, struct snapshot *s)
{
    s->queued = d->waiting_count;
    for (int i = 0; i < d->waiting_count; i++) s->queue[i] = job_of(&d->waiting[i]);
    s->queue_restorable = d->removed.id != 0;
}
