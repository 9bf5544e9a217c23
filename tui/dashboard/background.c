/* tui/dashboard/background.c - the shared state itself: lock, log, copies, and what must be published at
 * once. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cut/cut.h"

static void background_log_sink(void *ctx, enum log_level level, const char *line)
{
    background_log(ctx, level, "%s", line);
}

void background_lock(struct background *b)
{
    pthread_mutex_lock(&b->lock);
}

void background_unlock_if(struct background *b, bool changed)
{
    b->version += changed;
    pthread_mutex_unlock(&b->lock);
}

void background_unlock(struct background *b)
{
    background_unlock_if(b, true);
}

enum err_code background_open(struct background **out, const char *db_path, struct err *why)
{
    *out = NULL;
    struct background *b = calloc(1, sizeof *b);
    if (!b) return err_set(why, ERR_NOMEM, "not enough memory for the dashboard");
    pthread_mutex_init(&b->lock, NULL);
    b->db_path = db_path;
    b->log = (struct log){ LOG_INFO, background_log_sink, b };
    struct snapshot *s = &b->known;
    s->run_count = -1;
    s->spool_count = -1;
    s->quality.count = s->load.lines = -1;
    s->machine.memory_bytes = -1;
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

/* ---------------------------------------------------------------- log and messages */

/* The lock is held. The oldest line goes when the log is full. */
static void log_append(struct background *b, enum log_level level, const char *text)
{
    struct snapshot *s = &b->known;
    if (s->log_count == SNAPSHOT_LOG) memmove(s->log, s->log + 1, sizeof s->log[0] * (SNAPSHOT_LOG - 1));
    s->log_count = MIN(s->log_count + 1, (int)SNAPSHOT_LOG);
    struct log_line *l = &s->log[s->log_count - 1];
    l->unix_ms = clock_unix_ms();
    l->level = level;
    l->disturbed = false;
    text_cut(l->text, sizeof l->text, text);
}

void background_log(struct background *b, enum log_level level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    text_cutv(text, sizeof text, fmt, args);
    va_end(args);
    background_lock(b);
    log_append(b, level, text);
    background_unlock(b);
}

void background_log_event(void *background, const char *kind, const char *text)
{
    struct background *b = background;
    background_lock(b);
    log_append(b, LOG_INFO, text);
    b->known.log[b->known.log_count - 1].disturbed = !strcmp(kind, EVENT_DISCARD);
    background_unlock(b);
}

void background_announce(struct background *b, bool is_error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    text_cutv(text, sizeof text, fmt, args);
    va_end(args);
    background_lock(b);
    log_append(b, is_error ? LOG_ERROR : LOG_INFO, text);
    text_cut(b->message, sizeof b->message, text);
    b->message_is_error = is_error;
    background_unlock(b);
}

struct known_machine background_machine(struct background *b)
{
    const struct snapshot *s = &b->known;
    pthread_mutex_lock(&b->lock);
    const struct known_machine k = { s->machine, s->ceilings, s->machine_known, s->ceilings_known };
    pthread_mutex_unlock(&b->lock);
    return k;
}

void background_model(struct background *b, char path[MODEL_PATH])
{
    pthread_mutex_lock(&b->lock);
    memcpy(path, b->known.model_path, MODEL_PATH);
    pthread_mutex_unlock(&b->lock);
}

/* ---------------------------------------------------------------- for the drawing thread */

bool background_refresh(struct background *b, struct snapshot *s, int64_t *seen, bool changed)
{
    enum { FROM = offsetof(struct snapshot, machine_known) };
    pthread_mutex_lock(&b->lock);
    const bool copies = changed || *seen != b->version;
    if (copies) memcpy((char *)s + FROM, (const char *)&b->known + FROM, sizeof *s - FROM);
    *seen = b->version;
    pthread_mutex_unlock(&b->lock);
    return copies;
}

void background_copy(struct background *b, struct snapshot *s)
{
    int64_t seen = 0;
    background_refresh(b, s, &seen, true);
}

bool background_take_message(struct background *b, char *text, size_t size, bool *is_error)
{
    pthread_mutex_lock(&b->lock);
    const bool any = b->message[0] != '\0';
    if (any) snprintf(text, size, "%s", b->message);
    *is_error = b->message_is_error;
    b->message[0] = '\0';
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

/* ---------------------------------------------------------------- reservations */

void background_set_starting(struct background *b)
{
    background_lock(b);
    b->known.experiment_starting = true;
    background_unlock(b);
}

void background_reserve_probe(struct background *b)
{
    background_lock(b);
    snprintf(b->known.advice_state, sizeof b->known.advice_state, "about to start");
    background_unlock(b);
}

bool background_claim_command(struct background *b, struct jobs *queue, const struct job *j)
{
    background_lock(b);
    const bool queued = jobs_put(queue, j);
    if (queued) {
        b->known.command = j->command;
        b->known.command_started_ms = clock_unix_ms();
        if (words_run(&j->command, "tune")) tune_watch_begin(&b->known.tune, b->known.command_started_ms);
    }
    background_unlock(b);
    return queued;
}

bool background_cancel_command(struct background *b)
{
    background_lock(b);
    const int pid = b->command_pid;
    if (pid) {
        kill(-pid, SIGINT); /* the process group: the command's workers, too */
        b->known.task_cancelled = true;
    }
    background_unlock(b);
    return pid != 0;
}

void background_want_check(struct background *b, uint64_t hash)
{
    pthread_mutex_lock(&b->lock);
    b->check_wanted = hash;
    pthread_mutex_unlock(&b->lock);
}

int64_t background_want_folder(struct background *b)
{
    pthread_mutex_lock(&b->lock);
    const int64_t number = ++b->folder_wanted;
    pthread_mutex_unlock(&b->lock);
    return number;
}

void background_filter_history(struct background *b, const char *filter)
{
    pthread_mutex_lock(&b->lock);
    snprintf(b->history_filter, sizeof b->history_filter, "%s", filter);
    pthread_mutex_unlock(&b->lock);
}

void background_publish_page(struct background *b, const struct text_page *p)
{
    background_lock(b);
    const int64_t number = b->known.page.number + 1;
    b->known.page = *p;
    b->known.page.number = number;
    background_unlock(b);
}
