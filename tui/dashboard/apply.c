/* tui/dashboard/apply.c - the only place where effects of actions are carried out. */
#include <stdlib.h>
#include <string.h>

#include "base/cut/cut.h"
#include "tui/dashboard/loop.h"
#include "tui/dashboard/preferences.h"
#include "tui/dashboard/queue.h"

void dashboard_message(struct dashboard *d, bool is_error, const char *fmt, ...)
{
    enum { ERROR_MS = 6000, INFO_MS = 4000 };
    va_list args;
    va_start(args, fmt);
    text_cutv(d->ui.message, sizeof d->ui.message, fmt, args);
    va_end(args);
    d->ui.message_is_error = is_error;
    d->ui.message_until_ms = clock_unix_ms() + (is_error ? ERROR_MS : INFO_MS);
}

static void dashboard_busy(struct dashboard *d)
{
    dashboard_message(d, true, "too many jobs are waiting: try again in a moment");
}

static void dashboard_put(struct dashboard *d, enum job_queue queue, const struct job *j)
{
    if (!jobs_put(d->queue[queue], j)) dashboard_busy(d);
}

/* ---------------------------------------------------------------- experiments */

static void experiment_set_paused(struct dashboard *d, bool paused)
{
    if (!background_pause_command(d->background, paused)) {
        d->ui.until_quiet = false;
        dashboard_message(d, true, "not %s: the A/B has finished and its process is ending",
                          paused ? "paused" : "continued");
        return;
    }
    d->paused_by_hand = paused;
    if (!paused) d->suspending = false; /* a person has changed their mind */
}

static bool experiment_must_pause(const struct dashboard *d)
{
    return d->s->experiment_starting || (snapshot_is_running(d->s) && !d->s->experiment.paused_since_ms);
}

/* A stopped process does not read what the experiment reports, so a running one is paused first. One that
 * starts is paused as soon as it can be; one that is ending is waited for. */
static void suspend_request(struct dashboard *d)
{
    if (!d->screen) return;
    d->suspending = true;
    d->suspend_sent = false;
    if (experiment_must_pause(d))
        dashboard_message(d, false, "suspending after this cell; the experiment is paused until fg");
}

void dashboard_suspend_pending(struct dashboard *d)
{
    const bool running = snapshot_is_running(d->s);
    if (!d->suspending) return;
    if (experiment_must_pause(d)) {
        if (!d->suspend_sent) d->suspend_sent = background_pause_command(d->background, true);
        return;
    }
    d->suspending = false;
    screen_suspend(d->screen);
    if (running && !d->paused_by_hand) background_pause_command(d->background, false);
}

/* ---------------------------------------------------------------- side by side */

static void writing_start(struct dashboard *d, const struct sidebyside_spec *wanted)
{
    struct err why = { 0 };
    struct sidebyside_spec spec = *wanted;
    spec.log = &d->background->log;
    sidebyside_close(d->write); /* it has finished: the action is refused otherwise */
    d->write = NULL;
    if (sidebyside_start(&d->write, &spec, &why)) dashboard_message(d, true, "%s", why.message);
}

/* ---------------------------------------------------------------- commands */

static void command_log(struct dashboard *d, const struct words *command)
{
    char line[512];
    background_log(d->background, LOG_INFO, "$ %s", command_shown(&d->ui, command, line, sizeof line));
}

/* In the status line and the log. */
static void command_show(struct dashboard *d, const struct words *command)
{
    command_log(d, command);
    char line[512];
    dashboard_message(d, false, "$ %s", command_shown(&d->ui, command, line, sizeof line));
}

static void command_run(struct dashboard *d, const struct effect *e)
{
    const struct job j = { .run = job_run_command, .id = e->opens_output, .command = e->command };
    if (!background_claim_command(d->background, d->queue[QUEUE_COMMAND], &j)) {
        dashboard_busy(d);
        return;
    }
    d->s->command = e->command; /* until the next frame reads it */
    d->measures = d->s->experiment_starting = words_run(&e->command, "ab");
    d->from_queue = d->paused_by_hand = false;
    command_log(d,
                &e->command); /* not in the status line, where it would cover the progress of the command */
    d->ui.message[0] = '\0';
}

static void command_cancel(struct dashboard *d)
{
    const bool signalled = background_cancel_command(d->background);
    dashboard_message(d, !signalled,
                      signalled && d->s->tune.running
                          ? "stopping the search: what was measured is stored, r resumes it"
                      : signalled && snapshot_is_running(d->s)
                          ? "stopping the experiment; finished blocks are kept, r resumes"
                      : signalled ? "cancelling: what the command has written so far is kept"
                                  : "the command has not started yet: press s again");
}

static void command_copy(struct dashboard *d, const struct words *command)
{
    struct str text = { 0 };
    command_print(&text, &d->ui, command);
    command_log(d, command);
    const bool sent = d->screen && screen_copy(d->screen, str_text(&text));
    dashboard_message(
        d, false, sent ? "sent to the terminal's clipboard, and in the log (9): %s" : "in the log (9): %s",
        str_text(&text));
    str_free(&text);
}

/* ---------------------------------------------------------------- theme and preferences */

static void theme_next(struct dashboard *d)
{
    enum { THEMES = 64 };
    char names[THEMES][THEME_NAME];
    struct err why = { 0 };
    const int n = theme_names(names, THEMES);
    int at = 0;
    while (at < n && strcmp(names[at], d->theme_name)) at++;
    at = (at + 1) % n;
    /* The name changes even if the file is invalid, so that the next T moves on. */
    snprintf(d->theme_name, sizeof d->theme_name, "%s", names[at]);
    const enum err_code rc = theme_find(&d->theme, names[at], &why);
    if (d->screen) screen_theme(d->screen, &d->theme);
    if (rc)
        dashboard_message(d, true, "%s", why.message);
    else
        dashboard_message(d, false, "theme %s (%d of %d); , saves it", d->theme.name, at + 1, n);
}

static void preferences_save(struct dashboard *d)
{
    const struct preferences now = { .theme = d->theme_name, .mouse = d->ui.mouse };
    struct err why = { 0 };
    char *path = NULL;
    if (preferences_write(&path, &now, &why))
        dashboard_message(d, true, "%s", why.message);
    else
        dashboard_message(d, false, "saved in %s", path);
    free(path);
}

/* ---------------------------------------------------------------- all of them */

static void screen_requests(struct dashboard *d, unsigned r)
{
    if (r & REQUEST_NEXT_THEME) theme_next(d);
    if (r & REQUEST_SAVE_PREFERENCES) preferences_save(d);
    if (r & REQUEST_SUSPEND) suspend_request(d);
    if (r & REQUEST_QUIT) d->leaving = true;
    if (!d->screen) return;
    if (r & REQUEST_SET_MOUSE) screen_mouse(d->screen, d->ui.mouse);
    if (r & REQUEST_REDRAW) screen_redraw(d->screen);
}

static void load_change(struct dashboard *d, const struct job *j)
{
    static const double MORE = 1.25, LESS = 0.8;
    const double rate_by = j->other_id > 0 ? MORE : j->other_id < 0 ? LESS : 1;
    if (!background_change_load(d->background, rate_by, j->text ? j->text : ""))
        dashboard_message(d, true, "the load was not changed: no A/B that can change it is running");
}

static void measuring_requests(struct dashboard *d, unsigned r, const struct job *j)
{
    if (r & REQUEST_PAUSE_EXPERIMENT) experiment_set_paused(d, true);
    if (r & REQUEST_CONTINUE_EXPERIMENT) experiment_set_paused(d, false);
    if (r & REQUEST_CHANGE_LOAD) load_change(d, j);
    if ((r & REQUEST_STOP_WRITING) && d->write) sidebyside_stop(d->write);
}

void effect_apply(struct dashboard *d, const struct effect *e)
{
    const unsigned r = e->requests;
    background_filter_history(d->background, d->ui.filter);
    if (queue_takes(d, e)) return;
    /* The usual outcome is shown first: a request or job that fails replaces it with its error. */
    if (e->message[0]) dashboard_message(d, e->is_error, "%s", e->message);
    if (r & (REQUEST_SHOW_COMMAND | REQUEST_START_WRITING)) command_show(d, &e->command);
    screen_requests(d, r);
    measuring_requests(d, r, &e->job);
    if (r & REQUEST_START_WRITING) writing_start(d, e->writing);
    if (r & REQUEST_CANCEL_COMMAND) command_cancel(d);
    queue_requests(d, e);
    if (r & REQUEST_COPY_COMMAND) command_copy(d, &e->command);
    if (r & REQUEST_RUN_COMMAND) command_run(d, e);
    if (e->job.run) dashboard_put(d, e->queue, &e->job);
}
