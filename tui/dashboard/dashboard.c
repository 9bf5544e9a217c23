/* tui/dashboard/dashboard.c - the loop: collect a snapshot, draw it, wait for a key or the next frame.
 *
 * This thread reads only memory: everything that may take longer (files, database, network, measuring) is a
 * job. While a cell is timed it draws twice a second, otherwise about seven times; a key is answered at once.
 */
#include "tui/dashboard/actions.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "advisor/experiment/experiment.h"
#include "tui/dashboard/linear.h"
#include "tui/dashboard/preferences.h"
#include "tui/views/views.h"

enum {
    FRAME_MS = 150,
    FRAME_TIMING_MS = 500, /* a cell is timed: keep out of its way */
    SERIES_MS = SNAPSHOT_STEP_MS,
    FLUSH_MS = 60000,
    LEAVE_MS = 300, /* for jobs that still run when the person leaves */
};

/* ---------------------------------------------------------------- collecting */

static void collect_sensors(struct dashboard *d)
{
    struct snapshot *s = d->s;
    struct sampler_thread *sampler = background_sampler(d->background, NULL);
    if (sampler) s->cores = sampler_latest(sampler, s->sensor, s->core_busy, SNAPSHOT_CORES);
    if (s->unix_ms - d->series_ms >= SERIES_MS) {
        d->series_ms = s->unix_ms;
        bool timing = snapshot_is_timing(s);
        const char *phase = s->experiment.cell_phase;
        series_push(&d->cpu, s->sensor[METRIC_CPU_BUSY]);
        series_push(&d->memory,
                    s->machine_known ? s->sensor[METRIC_MEM_USED] / (double)s->machine.memory_bytes : NAN);
        series_push(&d->gpu, s->sensor[METRIC_GPU_BUSY]);
        series_push(&d->decode, timing && !strcmp(phase, "decode") ? s->experiment.live_tok_s : NAN);
        series_push(&d->prefill, timing && !strcmp(phase, "prefill") ? s->experiment.live_tok_s : NAN);
    }
    s->cpu = d->cpu;
    s->memory = d->memory;
    s->gpu = d->gpu;
    s->decode = d->decode;
    s->prefill = d->prefill;
}

static void collect_cost(struct dashboard *d)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t wall = clock_ns(), cpu = t.tv_sec * 1000000000LL + t.tv_nsec;
    if (d->cost_wall_ns == 0 || wall - d->cost_wall_ns > 2000000000LL) {
        if (d->cost_wall_ns)
            d->cost_ratio = (double)(cpu - d->cost_cpu_ns) / (double)(wall - d->cost_wall_ns);
        d->cost_wall_ns = wall;
        d->cost_cpu_ns = cpu;
    }
    struct sampler_thread *sampler = background_sampler(d->background, NULL);
    d->s->own_cost_ratio = d->cost_ratio + (sampler ? sampler_cost_ratio(sampler) : 0);
}

static int by_time(const void *a, const void *b)
{
    const struct log_line *x = a, *y = b;
    return x->unix_ms < y->unix_ms ? -1 : x->unix_ms > y->unix_ms;
}

/* A run read from the database brings its events along (a live one logs them itself). */
static void collect_events(struct snapshot *s)
{
    struct log_line all[SNAPSHOT_LOG + EXPERIMENT_EVENTS];
    int n = s->log_count;
    if (!s->experiment_known || s->experiment_live || s->experiment.events == 0) return;
    memcpy(all, s->log, sizeof s->log[0] * (size_t)n);
    for (int i = 0; i < MIN(s->experiment.events, (int)EXPERIMENT_EVENTS); i++, n++) {
        all[n] = (struct log_line){ .unix_ms = s->experiment.event[i].unix_ms, .level = LOG_INFO };
        memcpy(all[n].text, s->experiment.event[i].text, sizeof all[n].text);
    }
    qsort(all, (size_t)n, sizeof all[0], by_time);
    s->log_count = MIN(n, (int)SNAPSHOT_LOG);
    memcpy(s->log, all + n - s->log_count, sizeof s->log[0] * (size_t)s->log_count);
}

static void collect_experiment(struct dashboard *d)
{
    struct experiment *started = background_take_started(d->background);
    if (started) {
        experiment_close(d->experiment); /* finished: refused otherwise */
        d->experiment = started;
        d->was_running = true;
        memset(&d->decode, 0, sizeof d->decode);
        memset(&d->prefill, 0, sizeof d->prefill);
    }
    bool loaded = background_take_loaded(d->background, d->last);
    if (d->experiment && (dashboard_is_running(d) || d->was_running || started)) {
        experiment_state(d->experiment, d->last);
        loaded = false;
        d->last_known = true;
    } else if (loaded) {
        d->last_known = true;
        experiment_close(d->experiment);
        d->experiment = NULL;
    }
    d->s->experiment_known = d->last_known;
    if (d->last_known) d->s->experiment = *d->last;
    d->s->experiment_live = d->experiment != NULL;
}

/* Tell what the arms could reach at most: once per run, and again when the limits become known. */
static void ask_limits(struct dashboard *d)
{
    const struct snapshot *s = d->s;
    char want[64];
    if (!s->experiment_known || !s->ceilings_known || s->experiment.run_id == 0) return;
    snprintf(want, sizeof want, "%lld %lld", (long long)s->experiment.run_id,
             (long long)s->ceilings.measured_unix_ms);
    if (!strcmp(want, d->limits_for)) return;
    struct job j = { .run = job_predict_limits };
    for (int i = 0; i < JOB_ARMS; i++) snprintf(j.text[i], sizeof j.text[i], "%s", s->experiment.arm[i].line);
    snprintf(j.text[2], sizeof j.text[2], "%s", s->experiment.spec.model);
    if (jobs_put(d->slow, &j)) memcpy(d->limits_for, want, sizeof want);
}

static void after_run(struct dashboard *d)
{
    bool running = dashboard_is_running(d);
    if (d->was_running && !running) {
        struct job j = { .run = job_read_history };
        snprintf(j.text[0], sizeof j.text[0], "%s", d->ui.filter);
        jobs_put(d->storage, &j);
        const struct experiment_state *x = &d->s->experiment;
        struct mark m = verdict_mark(x->verdict);
        if (x->phase == PHASE_DONE)
            dashboard_toast(d, false, "run %lld done: %s %s", (long long)x->run_id, m.glyph, m.word);
        else if (x->phase == PHASE_FAILED)
            background_announce(d->background, true, "A/B failed: %s", x->error);
    }
    d->was_running = running;
}

static void collect(struct dashboard *d)
{
    struct snapshot *s = d->s;
    background_copy(d->background, s);
    s->unix_ms = clock_unix_ms();
    snprintf(s->push_url, sizeof s->push_url, "%s", d->push_url);
    collect_experiment(d);
    dashboard_collect_write(d);
    collect_sensors(d);
    collect_cost(d);
    collect_events(s);
    after_run(d);
    ask_limits(d);
    dashboard_start_pending(d);
    dashboard_suspend_pending(d);
    char news[256];
    bool bad;
    if (background_take_message(d->background, news, sizeof news, &bad)) dashboard_toast(d, bad, "%s", news);
    if (s->spool_count > 0 && s->unix_ms - d->flush_ms > FLUSH_MS && !dashboard_is_running(d) &&
        !d->options->read_only) {
        d->flush_ms = s->unix_ms;
        jobs_put(d->network, &(struct job){ .run = job_flush_spool });
    }
    if (s->page.number != d->page_seen) {
        d->page_seen = s->page.number;
        if (s->page.opens && d->ui.form.kind == FORM_CLOSED) {
            d->ui.page = true;
            d->ui.page_row = d->ui.page_column = 0;
        }
    }
    actions_form_needs(d);
    ui_clamp(&d->ui, s);
}

/* ---------------------------------------------------------------- the loop */

static enum err_code draw_text_frames(struct dashboard *d, struct err *why)
{
    struct grid g;
    struct str text = { 0 };
    setlocale(LC_CTYPE, "");
    enum glyph_level glyphs = glyph_level_choose(nl_langinfo(CODESET), NULL, getenv("QDYNO_GLYPHS"));
    enum err_code rc = grid_open(&g, VIEW_MIN_W, VIEW_MIN_H, glyphs, why);
    for (int i = 0; rc == ERR_OK && i < d->options->frames; i++) {
        if (i > 0) clock_sleep_ns(FRAME_MS * 1000000LL);
        collect(d);
        view_draw(&g, d->s, &d->ui);
        str_clear(&text);
        if (i > 0) str_append(&text, "\f\n");
        grid_text(&g, &text);
        if (fputs(str_text(&text), stdout) < 0 || fflush(stdout))
            rc = err_set(why, ERR_IO, "cannot write frames to standard output");
    }
    str_free(&text);
    grid_close(&g);
    return rc;
}

static enum err_code frame(struct dashboard *d, struct grid *g, struct err *why)
{
    int w, h;
    screen_size(d->screen, &w, &h);
    if (!g->cells || g->w != w || g->h != h) {
        grid_close(g);
        enum err_code rc = grid_open(g, MAX(w, 1), MAX(h, 1), screen_glyphs(d->screen), why);
        if (rc) return rc;
    }
    collect(d);
    view_draw(g, d->s, &d->ui);
    screen_paint(d->screen, g);
    return ERR_OK;
}

static enum err_code loop(struct dashboard *d, struct err *why)
{
    struct grid g = { 0 };
    enum err_code rc = ERR_OK;
    while (!(d->leaving && !dashboard_is_running(d))) {
        if ((rc = frame(d, &g, why))) break;
        int64_t due = clock_ns() + (snapshot_is_timing(d->s) ? FRAME_TIMING_MS : FRAME_MS) * 1000000LL;
        int key = 0;
        enum screen_event event = screen_wait(d->screen, (int)MAX((due - clock_ns()) / 1000000, 1), &key);
        for (int burst = 0; event == SCREEN_KEY && burst < 256; burst++) { /* pasted text is one frame */
            int x, y;
            screen_pointer(d->screen, &x, &y);
            if (key == UI_KEY_CLICK)
                dashboard_click(d, grid_hit_at(&g, x, y));
            else
                dashboard_key(d, key);
            event = screen_wait(d->screen, 0, &key);
        }
        if (event == SCREEN_END) break;
    }
    grid_close(&g);
    return rc;
}

/* ---------------------------------------------------------------- without a screen */

enum { LINEAR_MS = 200 };

static enum err_code write_lines(struct str *text, struct err *why)
{
    const bool bad = fputs(str_text(text), stdout) < 0 || fflush(stdout);
    str_clear(text);
    return bad ? err_set(why, ERR_IO, "cannot write to standard output") : ERR_OK;
}

static void line_in(struct dashboard *d, char *line, struct str *out)
{
    int keys[1024];
    line[strcspn(line, "\r\n")] = '\0';
    const int n = linear_keys(line, &d->ui, keys, COUNT_OF(keys));
    if (!n) linear_status(d->s, out);
    for (int i = 0; i < n; i++) dashboard_key(d, keys[i]);
}

/* Whole lines that are there now; false at the end of the input. */
static bool lines_read(struct dashboard *d, struct str *pending, struct str *out)
{
    char buf[1024];
    struct pollfd p = { .fd = 0, .events = POLLIN };
    if (poll(&p, 1, LINEAR_MS) <= 0) return true;
    const ssize_t n = read(0, buf, sizeof buf);
    if (n <= 0) return n < 0 && errno == EINTR;
    str_append_n(pending, buf, (size_t)n);
    for (char *end; pending->data && (end = strchr(pending->data, '\n'));) {
        *end = '\0';
        line_in(d, pending->data, out);
        const size_t rest = pending->len - (size_t)(end + 1 - pending->data);
        memmove(pending->data, end + 1, rest + 1);
        pending->len = rest;
    }
    return true;
}

/* The end of the input means: nobody will say anything any more; what runs is let finish. */
static enum err_code linear_loop(struct dashboard *d, struct err *why)
{
    struct told told = { .view = VIEW_LIVE };
    struct str out = { 0 }, pending = { 0 };
    enum err_code rc = ERR_OK;
    bool open = true;
    while (!rc && !(d->leaving && !dashboard_is_running(d))) {
        collect(d);
        linear_tell(&told, d->s, &d->ui, &out);
        rc = write_lines(&out, why);
        if (open)
            open = lines_read(d, &pending, &out);
        else
            clock_sleep_ns(LINEAR_MS * 1000000LL);
        const bool waiting = d->ui.waiting_to_start || d->s->experiment_starting;
        if (!open && !waiting && !dashboard_is_running(d)) d->leaving = true;
        if (d->options->interrupted && *d->options->interrupted) {
            if (d->experiment) experiment_stop(d->experiment);
            d->leaving = true;
        }
    }
    if (!rc) {
        collect(d);
        linear_tell(&told, d->s, &d->ui, &out);
        rc = write_lines(&out, why);
    }
    str_free(&out);
    str_free(&pending);
    return rc;
}

/* ---------------------------------------------------------------- opening and closing */

/* Everything slow, behind the first frame. */
static void first_jobs(struct dashboard *d)
{
    const struct dashboard_options *o = d->options;
    jobs_put(d->slow, &(struct job){ .run = job_detect_machine });
    if (o->model) {
        struct job j = { .run = job_read_model };
        snprintf(j.text[0], sizeof j.text[0], "%s", o->model);
        jobs_put(d->storage, &j);
    }
    jobs_put(d->storage, &(struct job){ .run = job_read_history });
    if (o->resume_id && (o->frames > 0 || o->read_only))
        jobs_put(d->storage, &(struct job){ .run = job_load_run, .id = o->resume_id });
    else if (o->resume_id)
        dashboard_start(d, &(struct job){ .id = o->resume_id });
}

/* Theme and mouse: the command line's word, else what was kept, else the defaults. A path is made whole, so
 * that W keeps one that holds wherever the next start is. */
static enum err_code looks_open(struct dashboard *d, struct err *why)
{
    struct preferences kept;
    const struct dashboard_options *o = d->options;
    d->theme = THEME_DEFAULT;
    enum err_code rc = preferences_read(&kept, why);
    if (!rc) {
        const char *theme = o->theme ? o->theme : kept.theme;
        d->ui.mouse = kept.mouse && !o->no_mouse;
        if (!strchr(theme, '/') || !realpath(theme, d->theme_named))
            snprintf(d->theme_named, sizeof d->theme_named, "%s", theme);
        rc = theme_find(&d->theme, d->theme_named, why);
        if (rc && !o->theme) err_prefix(why, "the theme that was kept (--theme default starts without it)");
    }
    preferences_done(&kept);
    return rc;
}

static enum err_code dashboard_open(struct dashboard *d, const struct dashboard_options *o, struct err *why)
{
    enum err_code rc;
    d->options = o;
    d->cost_ratio = NAN;
    d->ui.read_only = o->read_only;
    d->s = calloc(1, sizeof *d->s);
    d->last = calloc(1, sizeof *d->last);
    if (!d->s || !d->last) return err_set(why, ERR_NOMEM, "no memory for the dashboard");
    d->ui.commands = o->commands;
    d->ui.command_count = o->command_count;
    if ((rc = looks_open(d, why))) return rc;
    if (o->push_url) snprintf(d->push_url, sizeof d->push_url, "%s", o->push_url);
    if ((rc = background_open(&d->background, o->db_path, why))) return rc;
    if (o->model)
        snprintf(d->background->known.model_path, sizeof d->background->known.model_path, "%s", o->model);
    /* Before any thread: they inherit the signal mask. */
    if (o->frames <= 0 && !o->linear && (rc = screen_open(&d->screen, o->color, why))) return rc;
    if (d->screen) {
        screen_theme(d->screen, &d->theme);
        screen_mouse(d->screen, d->ui.mouse);
    }
    if ((rc = jobs_open(&d->slow, d->background, why))) return rc;
    if ((rc = jobs_open(&d->storage, d->background, why))) return rc;
    if ((rc = jobs_open(&d->network, d->background, why))) return rc;
    return jobs_open(&d->shell, d->background, why);
}

static void dashboard_close(struct dashboard *d)
{
    if (d->experiment) experiment_stop(d->experiment);
    if (d->write) sidebyside_stop(d->write);
    screen_close(d->screen);
    if (d->background) background_cancel_command(d->background);
    bool done = jobs_close(d->slow, LEAVE_MS);
    done = jobs_close(d->shell, LEAVE_MS) && done;
    done = jobs_close(d->storage, LEAVE_MS) && done;
    done = jobs_close(d->network, LEAVE_MS) && done;
    experiment_close(d->experiment);
    sidebyside_close(d->write);
    if (done)
        background_close(d->background); /* else a probe or a push still runs and ends with the process */
    free(d->s);
    free(d->last);
}

enum err_code dashboard_run(const struct dashboard_options *o, struct err *why)
{
    struct dashboard d = { 0 };
    enum err_code rc = dashboard_open(&d, o, why);
    if (rc == ERR_OK) {
        collect(&d);
        first_jobs(&d);
        rc = o->frames > 0 ? draw_text_frames(&d, why) : o->linear ? linear_loop(&d, why) : loop(&d, why);
    }
    dashboard_close(&d);
    return rc;
}
