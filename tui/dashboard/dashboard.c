/* tui/dashboard/dashboard.c - opening and closing the dashboard. */
#include "tui/dashboard/dashboard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/dashboard/actions.h"
#include "tui/dashboard/loop.h"
#include "tui/dashboard/preferences.h"

/* Work that runs behind the first frame: machine, model, history, and a run to resume or to show. */
static void first_jobs(struct dashboard *d)
{
    const struct dashboard_options *o = d->options;
    jobs_put(d->queue[QUEUE_PROCESSOR], &(struct job){ .run = job_detect_machine });
    if (o->model) {
        jobs_put(d->queue[QUEUE_DATABASE], &(struct job){ .run = job_read_model, .text = o->model });
    }
    jobs_put(d->queue[QUEUE_DATABASE], &(struct job){ .run = job_read_history });
    if (o->frames <= 0 && !o->read_only)
        jobs_put(d->queue[QUEUE_DATABASE], &(struct job){ .run = job_purge_runs });
    if (!o->resume_id) return;
    if (o->frames > 0 || o->read_only) {
        jobs_put(d->queue[QUEUE_DATABASE], &(struct job){ .run = job_load_run, .id = o->resume_id });
    } else {
        struct words command = { .arena = &d->ui.texts };
        resume_command(&command, &d->ui, o->resume_id);
        const struct effect resume = effect_run(&command);
        effect_apply(d, &resume);
    }
}

/* Theme and mouse: from the command line, else from the saved preferences, else the defaults. A theme path is
 * made absolute, so that saving it works from any folder. */
static enum err_code preferences_open(struct dashboard *d, struct err *why)
{
    struct preferences saved;
    const struct dashboard_options *o = d->options;
    d->theme = THEME_DEFAULT;
    enum err_code rc = preferences_read(&saved, why);
    if (!rc) {
        const bool chosen = o->theme || strcmp(saved.theme, THEME_DEFAULT.name) != 0;
        const char *theme = o->theme                                              ? o->theme
                            : !chosen && background_is_light(getenv("COLORFGBG")) ? "light"
                                                                                  : saved.theme;
        d->ui.mouse = saved.mouse && !o->no_mouse;
        if (!strchr(theme, '/') || !realpath(theme, d->theme_name))
            snprintf(d->theme_name, sizeof d->theme_name, "%s", theme);
        rc = theme_find(&d->theme, d->theme_name, why);
        if (rc && !o->theme) err_prefix(why, "the saved theme (start with --theme default to ignore it)");
    }
    preferences_done(&saved);
    return rc;
}

static void ui_open(struct ui *ui, const struct dashboard_options *o)
{
    ui->read_only = o->read_only;
    ui->commands = o->commands;
    ui->command_count = o->command_count;
    ui->default_workload = o->workload;
    ui->db_path = o->db_path;
    ui->push_user = getenv("QDYNO_PUSH_USER");
    ui->push_ca = getenv("QDYNO_PUSH_CA");
    for (int i = 0; i < JOB_ARMS; i++) ui->default_arm[i] = o->arms[i];
    if (o->server) ui->view = VIEW_LOAD;
    if (o->push_url) str_put(ui->push_url, sizeof ui->push_url, o->push_url);
}

static enum err_code dashboard_open(struct dashboard *d, const struct dashboard_options *o, struct err *why)
{
    enum err_code rc;
    d->options = o;
    d->cost.ratio = NAN;
    d->busy.cpu = d->busy.others = d->busy.steal = NAN;
    d->s = calloc(1, sizeof *d->s);
    if (!d->s) return err_set(why, ERR_NOMEM, "not enough memory for the dashboard");
    d->s->own_cost_ratio = NAN;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) d->s->sensor[i] = NAN;
    d->known = (struct known_versions){ -1, -1 };
    ui_open(&d->ui, o);
    if ((rc = preferences_open(d, why))) return rc;
    if ((rc = background_open(&d->background, o->db_path, why))) return rc;
    d->background->server_url = o->server;
    d->background->server_key = o->server_key;
    struct snapshot *known = &d->background->known;
    if (o->server && !str_put(known->server.url, sizeof known->server.url, o->server))
        return err_set(why, ERR_USAGE, "--server: the address has more than %d bytes",
                       (int)sizeof known->server.url - 1);
    if (o->model && !str_put(known->model_path, sizeof known->model_path, o->model))
        return err_set(why, ERR_USAGE, "-m: the path of a model can have %d bytes here and this one has %d",
                       MODEL_PATH - 1, (int)strlen(o->model));
    /* Before any thread starts: threads inherit the signal mask that screen_open() sets. */
    if (o->frames <= 0 && !o->linear && (rc = screen_open(&d->screen, o->color, why))) return rc;
    if (d->screen) {
        screen_theme(d->screen, &d->theme);
        screen_mouse(d->screen, d->ui.mouse);
    }
    for (int i = 0; i < QUEUES; i++)
        if ((rc = jobs_open(&d->queue[i], d->background, why))) return rc;
    return ERR_OK;
}

/* On the shell, after the screen has been closed. */
static void shell_say(struct str *text)
{
    char *safe = sink_text(SINK_TERMINAL, str_text(text));
    fputs(safe ? safe : "", stderr);
    free(safe);
    str_free(text);
}

/* Name what was dropped with the queue, so that it can be run from the shell. */
static void queue_dropped(const struct dashboard *d)
{
    struct str text = { 0 };
    if (!d->waiting_count) return;
    str_printf(&text, "%d queued job%s did not run:\n", d->waiting_count, str_plural(d->waiting_count));
    for (int i = 0; i < d->waiting_count; i++) {
        str_append(&text, "  ");
        command_print(&text, &d->ui, &d->waiting[i].effect.command);
        str_append(&text, "\n");
    }
    shell_say(&text);
}

/* Say how the A/B that was stopped can go on. */
static void run_left(struct dashboard *d)
{
    const struct experiment_state *s = &d->s->experiment;
    struct words command = { .arena = &d->ui.texts };
    struct str text = { 0 };
    const bool live = d->s->experiment_live;
    background_take_loaded(d->background, &d->s->experiment, &d->s->experiment_live);
    if (!live || !s->run_id || s->phase == PHASE_DONE || s->phase == PHASE_FAILED) return;
    resume_command(&command, &d->ui, s->run_id);
    str_printf(&text, "run %lld was stopped; this continues it:\n  ", (long long)s->run_id);
    command_print(&text, &d->ui, &command);
    str_append(&text, "\n");
    shell_say(&text);
}

static void dashboard_close(struct dashboard *d)
{
    /* How long a running job may delay the exit. A cancelled command stores what it has; when its time is up,
     * it ends with this process (process_spawn). */
    enum { LEAVE_MS = 300, LEAVE_COMMAND_MS = 8000 };
    bool done = true;
    if (d->write) sidebyside_stop(d->write);
    screen_close(d->screen);
    queue_dropped(d);
    const bool cancelled = d->background && background_end_command(d->background);
    const int leave_ms = cancelled ? LEAVE_COMMAND_MS : LEAVE_MS;
    for (int i = 0; i < QUEUES; i++) done = jobs_close(d->queue[i], leave_ms) && done;
    if (d->background) run_left(d);
    sidebyside_close(d->write);
    if (done) { /* otherwise a job still uses them until the process ends */
        background_close(d->background);
        arena_free(&d->ui.texts);
    }
    free(d->s);
}

enum err_code dashboard_run(const struct dashboard_options *o, struct err *why)
{
    struct dashboard d = { 0 };
    enum err_code rc = dashboard_open(&d, o, why);
    if (rc == ERR_OK) {
        dashboard_collect(&d);
        first_jobs(&d);
        rc = o->frames > 0 ? loop_frames(&d, why) : o->linear ? loop_linear(&d, why) : loop_terminal(&d, why);
    }
    dashboard_close(&d);
    return rc;
}
