/* tui/dashboard/jobs_ab.c - the running A/B of a command: what its process says of this moment, over what it
 * has stored. Stored blocks are read as for a run of the history, so that both show the same figures. */
#include "tui/dashboard/background.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cut/cut.h"

/* The drawing thread takes it with background_take_loaded(). The lock is held. */
static void publish_locked(struct background *b, const struct experiment_state *s, bool live)
{
    if (!b->loaded) b->loaded = malloc(sizeof *b->loaded);
    if (!b->loaded) return; /* the next line tries again */
    *b->loaded = *s;
    b->loaded_live = live;
}

void background_publish_run(struct background *b, const struct experiment_state *s, bool live)
{
    background_lock(b);
    publish_locked(b, s, live);
    background_unlock_running(b);
}

static void events_log(struct background *b, const json_t *events)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        background_log_event(b, json_get_int(e, "unix_ms", clock_unix_ms()), json_get_str(e, "kind", ""),
                             json_get_str(e, "text", ""));
    }
}

/* Read what the run has stored. When that fails the state stays as it is, and w->unread and the log say why.
 */
static void stored_read(struct background *b, struct ab_watch *w, int64_t run)
{
    struct err why = { 0 };
    struct experiment_state *read = calloc(1, sizeof *read); /* a failed read leaves a part of a run in it */
    const int64_t begun_ns = clock_ns();
    enum err_code rc = read ? ERR_OK : err_set(&why, ERR_NOMEM, "not enough memory");
    if (!rc && !w->db) rc = db_open(&w->db, b->db_path, &why);
    if (!rc) rc = experiment_load(read, w->db, run, &why);
    if (!rc) *w->state = *read;
    if (rc && strcmp(why.message, w->unread) != 0)
        background_log(b, LOG_WARN, "the blocks of run %lld: %s", (long long)run, why.message);
    text_cut(w->unread, sizeof w->unread, rc ? why.message : "");
    w->is_old = rc != ERR_OK;
    w->loaded_run = run;
    w->loaded_ns = clock_ns();
    w->load_ns = w->loaded_ns - begun_ns;
    free(read);
}

/* Whether the stored blocks are to be read now. Reading costs time on the machine that is measured: at most
 * one fiftieth of it, however long the run and whether or not a read succeeds. */
static bool stored_is_due(const struct ab_watch *w, int64_t run)
{
    static const int64_t EVERY_NS = INT64_C(1000000000), SHARE = 50;
    if (!run || run != w->loaded_run) return run != 0;
    return w->is_old && clock_ns() - w->loaded_ns > MAX(EVERY_NS, SHARE * w->load_ns);
}

void ab_watch_line(struct background *b, struct ab_watch *w, const json_t *ab)
{
    const json_t *events = json_object_get(ab, "events");
    const int64_t run = json_get_int(ab, "run", 0), block = json_get_int(ab, "block", -1);
    const char *phase = json_get_str(ab, "phase", "");
    events_log(b, events);
    if (!w->state) w->state = calloc(1, sizeof *w->state);
    if (!w->state) return;
    w->is_old |= block != w->block || strcmp(phase, w->phase) != 0 || json_array_size(events);
    w->block = block;
    snprintf(w->phase, sizeof w->phase, "%s", phase);
    if (stored_is_due(w, run)) stored_read(b, w, run);
    if (!experiment_now_from_json(w->state, ab)) return;
    w->known = true;
    const bool running = w->state->phase < PHASE_DONE;
    background_lock(b);
    /* A finished A/B no longer takes the signal, which would stop its process for good: one that was sent
     * before this line came is taken back. */
    if (b->pausable && !running && b->command_pid) kill(b->command_pid, SIGCONT);
    b->pausable = running;
    if (running) publish_locked(b, w->state, true); /* otherwise when the process has ended: ab_watch_end() */
    b->known.experiment_starting = false;
    background_unlock_running(b);
}

void ab_watch_end(struct background *b, struct ab_watch *w, const struct command_end *end)
{
    struct experiment_state *s = w->state;
    char how[64];
    if (!w->known) return;
    if (s->run_id) stored_read(b, w, s->run_id);
    if (s->run_id || s->phase >= PHASE_DONE) return;
    s->phase = end->cancelled ? PHASE_STOPPED : PHASE_FAILED; /* it ended before it was stored */
    snprintf(how, sizeof how,
             end->status > 128 ? "its process was ended by signal %d" : "its process ended with status %d",
             end->status > 128 ? end->status - 128 : end->status);
    text_cut(s->error, sizeof s->error, *end->last ? end->last : how);
}

void ab_watch_publish(struct background *b, const struct ab_watch *w)
{
    if (w->known) publish_locked(b, w->state, w->state->phase >= PHASE_DONE);
}

void ab_watch_announce(struct background *b, const struct ab_watch *w)
{
    const struct experiment_state *s = w->state;
    const struct mark m = verdict_mark(s->verdict);
    const long long id = (long long)s->run_id;
    if (id && w->unread[0])
        background_announce(b, true, "run %lld has ended, and what it stored cannot be read: %s", id,
                            w->unread);
    else if (s->phase == PHASE_DONE)
        background_announce(b, false, "run %lld done: %s %s", id, m.glyph, m.word);
    else if (s->phase == PHASE_FAILED)
        background_announce(b, true, "A/B failed: %s", s->error);
    else if (!id)
        background_announce(b, false, "the A/B was stopped before anything was stored: b starts another one");
    else if (s->phase == PHASE_STOPPED)
        background_announce(b, false, "run %lld was stopped; finished blocks are kept, r resumes it", id);
    else
        background_announce(b, true,
                            "the process of run %lld was ended; finished blocks are kept, r resumes it", id);
}

void ab_watch_close(struct ab_watch *w)
{
    db_close(w->db);
    free(w->state);
}

/* ---------------------------------------------------------------- what a person does with it */

bool background_pause_command(struct background *b, bool pause)
{
    background_lock(b);
    const bool sent = b->command_pid && (b->pausable || !pause);
    if (sent) kill(b->command_pid, pause ? SIGTSTP : SIGCONT); /* it pauses between two cells */
    background_unlock_if(b, false);
    return sent;
}

bool background_change_load(struct background *b, double rate_by, const char *settings)
{
    json_t *o = json_object();
    json_put_num(o, "rate_by", rate_by);
    json_put_str(o, "settings", settings);
    char *line = json_line(o), *whole = NULL;
    const int n = line ? asprintf(&whole, "%s\n", line) : -1;
    background_lock(b);
    const bool sent = n > 0 && b->changes_fd > 0 && write(b->changes_fd, whole, (size_t)n) == n;
    background_unlock_if(b, false);
    if (n >= 0) free(whole);
    free(line);
    json_decref(o);
    return sent;
}
