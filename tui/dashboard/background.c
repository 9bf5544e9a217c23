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
    b->version.running += changed;
    b->version.facts += changed;
    pthread_mutex_unlock(&b->lock);
}

void background_unlock_running(struct background *b)
{
    b->version.running++;
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
    background_unlock_running(b);
}

void background_log_event(struct background *b, int64_t unix_ms, const char *kind, const char *text)
{
    background_lock(b);
    log_append(b, LOG_INFO, text);
    struct log_line *l = &b->known.log[b->known.log_count - 1];
    l->unix_ms = unix_ms;
    l->disturbed = !strcmp(kind, EVENT_DISCARD);
    background_unlock_running(b);
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
    background_unlock_running(b);
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

struct known_copied background_refresh(struct background *b, struct snapshot *s, struct known_versions *seen)
{
    enum { RUNNING = offsetof(struct snapshot, command), FACTS = offsetof(struct snapshot, machine_known) };
    char *to = (char *)s;
    const char *known = (const char *)&b->known;
    pthread_mutex_lock(&b->lock);
    const struct known_copied copied = { seen->running != b->version.running,
                                         seen->facts != b->version.facts };
    if (copied.running) memcpy(to + RUNNING, known + RUNNING, FACTS - RUNNING);
    if (copied.facts) memcpy(to + FACTS, known + FACTS, sizeof *s - FACTS);
    *seen = b->version;
    pthread_mutex_unlock(&b->lock);
    return copied;
}

void background_copy(struct background *b, struct snapshot *s)
{
    background_refresh(b, s, &(struct known_versions){ -1, -1 });
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

bool background_take_loaded(struct background *b, struct experiment_state *out, bool *live)
{
    pthread_mutex_lock(&b->lock);
    struct experiment_state *loaded = b->loaded;
    if (loaded) *live = b->loaded_live;
    b->loaded = NULL;
    pthread_mutex_unlock(&b->lock);
    if (!loaded) return false;
    *out = *loaded;
    free(loaded);
    return true;
}

struct sampler_thread *background_sampler(struct background *b)
{
    pthread_mutex_lock(&b->lock);
    struct sampler_thread *sampler = b->sampler;
    pthread_mutex_unlock(&b->lock);
    return sampler;
}

/* ---------------------------------------------------------------- the running command */

bool background_claim_command(struct background *b, struct jobs *queue, const struct job *j)
{
    background_lock(b);
    const bool queued = jobs_put(queue, j);
    if (queued) {
        b->known.command = j->command;
        b->known.command_started_ms = clock_unix_ms();
        b->known.experiment_starting = words_run(&j->command, "ab");
        if (words_run(&j->command, "tune")) tune_watch_begin(&b->known.tune, b->known.command_started_ms);
    }
    background_unlock_running(b);
    return queued;
}

/* The lock is held. */
static bool command_interrupt(struct background *b)
{
    const int pid = b->command_pid;
    if (!pid) return false;
    kill(-pid, SIGINT); /* the process group: the command's workers, too */
    kill(pid, SIGCONT); /* a paused one has to hear it */
    b->known.task_cancelled = true;
    return true;
}

bool background_cancel_command(struct background *b)
{
    background_lock(b);
    const bool signalled = command_interrupt(b);
    background_unlock_running(b);
    return signalled;
}

bool background_end_command(struct background *b)
{
    background_lock(b);
    const bool cancelled = b->known.task_cancelled;
    if (cancelled && b->command_pid) kill(b->command_pid, SIGCONT); /* it may have been paused since */
    const bool runs = cancelled || command_interrupt(b);
    background_unlock_running(b);
    return runs;
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
