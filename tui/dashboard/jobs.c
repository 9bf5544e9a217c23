/* tui/dashboard/jobs.c - a queue with one thread behind it. */
#include "tui/dashboard/jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { JOBS_MAX = 16 };

struct jobs {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct background *background;
    struct job waiting[JOBS_MAX]; /* oldest first */
    int count;
    bool busy, ending;
};

static void job_free(struct job *j)
{
    free((void *)j->text);
    free((void *)j->experiment);
    free((void *)j->form);
}

static const void *copy_of(const void *from, size_t bytes, bool *good)
{
    void *copy = from ? malloc(bytes) : NULL;
    if (copy) memcpy(copy, from, bytes);
    *good = *good && (copy || !from);
    return copy;
}

/* The job with its own texts and structs. False: no memory, and *out is empty. */
static bool job_copy(struct job *out, const struct job *j)
{
    bool good = true;
    *out = *j;
    const char *text = j->text ? j->text : "";
    out->text = copy_of(text, strlen(text) + 1, &good);
    out->experiment = copy_of(j->experiment, sizeof *j->experiment, &good);
    out->form = copy_of(j->form, sizeof *j->form, &good);
    if (!good) job_free(out);
    return good;
}

static void *jobs_main(void *arg)
{
    pthread_setname_np(pthread_self(), "jobs");
    struct jobs *q = arg;
    struct job now;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->count == 0 && !q->ending) pthread_cond_wait(&q->changed, &q->lock);
        if (q->ending) break;
        now = q->waiting[0];
        q->count--;
        for (int i = 0; i < q->count; i++) q->waiting[i] = q->waiting[i + 1];
        q->busy = true;
        pthread_mutex_unlock(&q->lock);
        now.run(q->background, &now);
        job_free(&now);
        pthread_mutex_lock(&q->lock);
        q->busy = false;
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

enum err_code jobs_open(struct jobs **out, struct background *background, struct err *why)
{
    *out = NULL;
    struct jobs *q = calloc(1, sizeof *q);
    if (!q) return err_set(why, ERR_NOMEM, "not enough memory for a background thread");
    q->background = background;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    if (pthread_create(&q->thread, NULL, jobs_main, q)) {
        pthread_cond_destroy(&q->changed);
        pthread_mutex_destroy(&q->lock);
        free(q);
        return err_set(why, ERR_NOMEM, "cannot start a background thread");
    }
    *out = q;
    return ERR_OK;
}

bool jobs_put(struct jobs *q, const struct job *j)
{
    struct job copy;
    if (!job_copy(&copy, j)) return false;
    pthread_mutex_lock(&q->lock);
    const bool room = q->count < JOBS_MAX && !q->ending;
    if (room) q->waiting[q->count++] = copy;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (!room) job_free(&copy);
    return room;
}

bool jobs_idle(struct jobs *q)
{
    pthread_mutex_lock(&q->lock);
    bool idle = q->count == 0 && !q->busy;
    pthread_mutex_unlock(&q->lock);
    return idle;
}

bool jobs_close(struct jobs *q, int timeout_ms)
{
    if (!q) return true;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (pthread_timedjoin_np(q->thread, NULL, &until)) {
        pthread_detach(q->thread);
        return false;
    }
    for (int i = 0; i < q->count; i++) job_free(&q->waiting[i]);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
    return true;
}
