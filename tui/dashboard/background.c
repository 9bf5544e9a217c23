/* tui/dashboard/background.c - the board itself: lock, log, copies. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void background_log_sink(void *ctx, enum log_level level, const char *line)
{
    background_log(ctx, level, "%s", line);
}

enum err_code background_open(struct background **out, const char *db_path, struct err *why)
{
    *out = NULL;
    struct background *b = calloc(1, sizeof *b);
    if (!b) return err_set(why, ERR_NOMEM, "no memory for the dashboard");
    pthread_mutex_init(&b->lock, NULL);
    b->db_path = db_path;
    b->log = (struct log){ LOG_INFO, background_log_sink, b };
    struct snapshot *s = &b->known;
    s->run_count = -1;
    s->spool_count = -1;
    s->quality.count = s->load.lines = -1;
    s->own_cost_ratio = NAN;
    s->machine.memory_bytes = -1;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) s->sensor[i] = NAN;
    for (int i = 0; i < EXPERIMENT_ARMS; i++) s->decode_limit[i] = s->prefill_limit[i] = NAN;
    *out = b;
    return ERR_OK;
}

void background_close(struct background *b)
{
    if (!b) return;
    experiment_close(b->started);
    sampler_stop(b->sampler);
    pthread_mutex_destroy(&b->lock);
    free(b->loaded);
    free(b);
}

/* Under the lock. */
static void log_add(struct background *b, enum log_level level, const char *text)
{
    struct snapshot *s = &b->known;
    if (s->log_count == SNAPSHOT_LOG) memmove(s->log, s->log + 1, sizeof s->log[0] * (SNAPSHOT_LOG - 1));
    s->log_count = MIN(s->log_count + 1, (int)SNAPSHOT_LOG);
    struct log_line *l = &s->log[s->log_count - 1];
    l->unix_ms = clock_unix_ms();
    l->level = level;
    snprintf(l->text, sizeof l->text, "%.*s", (int)sizeof l->text - 1, text);
}

void background_log(struct background *b, enum log_level level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&b->lock);
    log_add(b, level, text);
    pthread_mutex_unlock(&b->lock);
}

void background_announce(struct background *b, bool is_error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&b->lock);
    log_add(b, is_error ? LOG_ERROR : LOG_INFO, text);
    snprintf(b->news, sizeof b->news, "%.*s", (int)sizeof b->news - 1, text);
    b->news_is_error = is_error;
    pthread_mutex_unlock(&b->lock);
}

bool background_take_message(struct background *b, char *text, size_t size, bool *is_error)
{
    pthread_mutex_lock(&b->lock);
    bool any = b->news[0] != '\0';
    if (any) snprintf(text, size, "%s", b->news);
    *is_error = b->news_is_error;
    b->news[0] = '\0';
    pthread_mutex_unlock(&b->lock);
    return any;
}

struct experiment *background_take_started(struct background *b)
{
    pthread_mutex_lock(&b->lock);
    struct experiment *x = b->started;
    b->started = NULL;
    pthread_mutex_unlock(&b->lock);
    return x;
}

void background_copy(struct background *b, struct snapshot *s)
{
    pthread_mutex_lock(&b->lock);
    *s = b->known;
    pthread_mutex_unlock(&b->lock);
}

bool background_take_loaded(struct background *b, struct experiment_state *out)
{
    pthread_mutex_lock(&b->lock);
    struct experiment_state *loaded = b->loaded;
    b->loaded = NULL;
    pthread_mutex_unlock(&b->lock);
    if (!loaded) return false;
    *out = *loaded;
    free(loaded);
    return true;
}

struct sampler_thread *background_sampler(struct background *b, bool *tried)
{
    pthread_mutex_lock(&b->lock);
    struct sampler_thread *sampler = b->sampler;
    if (tried) *tried = b->sampler_tried;
    pthread_mutex_unlock(&b->lock);
    return sampler;
}
