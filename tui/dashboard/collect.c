/* tui/dashboard/collect.c - builds the snapshot of a frame from the background, the sensors and the
 * experiment.
 *
 * Nothing here reads a file, the database or the network: what takes longer than a memory access is a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cut/cut.h"
#include "tui/dashboard/actions.h"
#include "tui/dashboard/loop.h"
#include "tui/dashboard/queue.h"

/* between attempts to push what waits for the network */
static const int64_t FLUSH_NS = INT64_C(60000000000);

/* ---------------------------------------------------------------- sensors */

static void collect_sensors(struct dashboard *d)
{
    struct snapshot *s = d->s;
    struct sampler_thread *sampler = background_sampler(d->background);
    if (sampler) s->cores = sampler_latest(sampler, s->sensor, s->core_busy, SNAPSHOT_CORES);
    const int64_t now_ns = clock_ns();
    if (now_ns >= d->series_ns) {
        const bool timing = snapshot_is_timing(s);
        const char *phase = s->experiment.cell_phase;
        d->series_ns = now_ns + SNAPSHOT_STEP_MS * INT64_C(1000000);
        series_push(&s->cpu, s->sensor[METRIC_CPU_BUSY]);
        series_push(&s->memory,
                    s->machine_known ? s->sensor[METRIC_MEM_USED] / (double)s->machine.memory_bytes : NAN);
        series_push(&s->gpu, s->sensor[METRIC_GPU_BUSY]);
        series_push(&s->decode, timing && !strcmp(phase, "decode") ? s->experiment.live_tok_s : NAN);
        series_push(&s->prefill, timing && !strcmp(phase, "prefill") ? s->experiment.live_tok_s : NAN);
    }
}

/* The dashboard shows what it costs itself: CPU time of this thread plus that of the sampler. */
static void collect_cost(struct dashboard *d)
{
    struct own_cost *c = &d->cost;
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const int64_t wall = clock_ns(), cpu = t.tv_sec * 1000000000LL + t.tv_nsec;
    if (c->wall_ns == 0 || wall - c->wall_ns > 2000000000LL) {
        if (c->wall_ns) c->ratio = (double)(cpu - c->cpu_ns) / (double)(wall - c->wall_ns);
        c->wall_ns = wall;
        c->cpu_ns = cpu;
    }
    struct sampler_thread *sampler = background_sampler(d->background);
    d->s->own_cost_ratio = c->ratio + (sampler ? sampler_cost_ratio(sampler) : 0);
}

/* ---------------------------------------------------------------- experiment */

static int log_line_by_time(const void *a, const void *b)
{
    const struct log_line *x = a, *y = b;
    return x->unix_ms < y->unix_ms ? -1 : x->unix_ms > y->unix_ms;
}

/* Merge the events of a run read from the database into the log. A live run logs its events itself. */
static void collect_events(struct snapshot *s)
{
    struct log_line all[SNAPSHOT_LOG + EXPERIMENT_EVENTS];
    int n = s->log_count;
    if (!s->experiment_known || s->experiment_live || s->experiment.events == 0) return;
    memcpy(all, s->log, sizeof s->log[0] * (size_t)n);
    for (int i = 0; i < MIN(s->experiment.events, (int)EXPERIMENT_EVENTS); i++, n++) {
        all[n] = (struct log_line){ .unix_ms = s->experiment.event[i].unix_ms,
                                    .level = LOG_INFO,
                                    .disturbed = !strcmp(s->experiment.event[i].kind, EVENT_DISCARD) };
        text_cut(all[n].text, sizeof all[n].text, s->experiment.event[i].text);
    }
    qsort(all, (size_t)n, sizeof all[0], log_line_by_time);
    s->log_count = MIN(n, (int)SNAPSHOT_LOG);
    memcpy(s->log, all + n - s->log_count, sizeof s->log[0] * (size_t)s->log_count);
}

/* Another model was chosen: what was measured of the last one must not stand beside its facts. The history
 * keeps it. */
static void forget_other_model(struct dashboard *d)
{
    const bool changed = d->model_shown[0] && strcmp(d->model_shown, d->s->model_path) != 0;
    memcpy(d->model_shown, d->s->model_path, sizeof d->model_shown);
    if (!changed || snapshot_is_running(d->s)) return;
    d->s->experiment_known = d->s->experiment_live = false;
    memset(&d->s->experiment, 0, sizeof d->s->experiment);
    d->s->decode.n = d->s->prefill.n = 0;
}

static void collect_experiment(struct dashboard *d)
{
    struct snapshot *s = d->s;
    forget_other_model(d);
    const bool was_running = snapshot_is_running(s);
    const int64_t before = s->experiment.run_id;
    if (!background_take_loaded(d->background, &s->experiment, &s->experiment_live)) return;
    s->experiment_known = true;
    if (snapshot_is_running(s) && !(was_running && (!before || before == s->experiment.run_id)))
        s->decode.n = s->prefill.n = 0; /* another one begins */
}

/* Request the roofline limits of the arms: once per run, and again when the machine was measured anew. */
static void request_limits(struct dashboard *d)
{
    const struct snapshot *s = d->s;
    char want[64];
    if (!s->experiment_known || !s->ceilings_known || s->experiment.run_id == 0) return;
    snprintf(want, sizeof want, "%lld %lld", (long long)s->experiment.run_id,
             (long long)s->ceilings.measured_unix_ms);
    if (!strcmp(want, d->limits_for)) return;
    const struct job j = { .run = job_predict_limits, .experiment = &s->experiment.spec };
    if (jobs_put(d->queue[QUEUE_PROCESSOR], &j)) memcpy(d->limits_for, want, sizeof want);
}

/* While the history is on screen, it shows what runs: read it when an experiment or a search has got its row
 * in the database. Runs of other commands and processes come and go without a message, so it is read again
 * now and then. */
static void follow_running(struct dashboard *d)
{
    static const int64_t AGAIN_NS = INT64_C(3000000000);
    const struct snapshot *s = d->s;
    const bool measures = snapshot_is_running(s);
    const int64_t id = measures ? s->experiment.run_id : s->tune.running ? s->tune.run_id : 0;
    bool others = s->command.n > 0 && !measures;
    for (int i = 0; i < s->run_count; i++)
        others |= !strcmp(s->run[i].state, "running") && s->run[i].id != id;
    const bool again = others && clock_ns() >= d->runs_ns;
    if (!id) d->running_id = 0; /* the same run may be resumed */
    if (d->ui.view != VIEW_HISTORY) return;
    if ((id == d->running_id || !id) && !again) return;
    if (!jobs_put(d->queue[QUEUE_DATABASE], &(struct job){ .run = job_read_runs })) return;
    d->running_id = id;
    d->runs_ns = clock_ns() + AGAIN_NS;
}

/* ---------------------------------------------------------------- a load or a server that runs */

static void collect_load_source(struct dashboard *d)
{
    struct snapshot *s = d->s;
    const bool runs = snapshot_is_running(s) && s->experiment.live_known;
    s->load_source = runs ? LOAD_OF_EXPERIMENT : s->server.url[0] ? LOAD_OF_SERVER : LOAD_OF_NONE;
    if (s->load_source != LOAD_OF_SERVER || clock_ns() < d->server_ns || !jobs_idle(d->queue[QUEUE_NETWORK]))
        return;
    d->server_ns = clock_ns() + SNAPSHOT_STEP_MS * INT64_C(1000000);
    jobs_put(d->queue[QUEUE_NETWORK], &(struct job){ .run = job_read_server });
}

/* What came since the last value, at most every SNAPSHOT_STEP_MS of the load's own time. */
static void collect_traffic(struct dashboard *d)
{
    const struct live *l = snapshot_live(d->s);
    struct load_traffic *t = &d->s->traffic;
    if (!l) {
        d->traffic_of = LOAD_OF_NONE;
        return;
    }
    const double seconds = l->seconds - d->traffic_s;
    const bool goes_on = d->traffic_of == d->s->load_source && seconds >= 0;
    if (d->traffic_of != d->s->load_source) memset(t, 0, sizeof *t);
    if (!goes_on || seconds >= 0.9e-3 * SNAPSHOT_STEP_MS) {
        if (goes_on) {
            series_push(&t->arrivals, (double)(l->arrived - d->traffic_arrived) / seconds);
            series_push(&t->tokens, (double)(l->tokens - d->traffic_tokens) / seconds);
            series_push(&t->waiting, l->waiting);
            series_push(&t->running, l->running);
        }
        d->traffic_of = d->s->load_source;
        d->traffic_s = l->seconds;
        d->traffic_arrived = l->arrived;
        d->traffic_tokens = l->tokens;
    }
}

/* ---------------------------------------------------------------- what forms need */

/* The files of the folder that the focused field names. */
static void request_folder(struct dashboard *d)
{
    struct form_lookups *l = &d->lookups;
    char path[sizeof l->folder];
    struct job j = { .run = job_list_folder, .text = path };
    if (!suggestions_folder(&d->ui.form, path, sizeof path)) {
        l->folder_known = false;
        return;
    }
    if (l->folder_known && !strcmp(path, l->folder)) return;
    j.id = background_want_folder(d->background);
    if (!jobs_put(d->queue[QUEUE_DATABASE], &j)) return; /* the next frame tries again */
    snprintf(l->folder, sizeof l->folder, "%s", path);
    l->folder_known = true;
}

/* Memory and speed of the config line in the A/B form, and of the lines its suggestions would make. */
static void request_estimates(struct dashboard *d)
{
    struct form_lookups *l = &d->lookups;
    const struct form *f = &d->ui.form;
    const enum form_ask ask = form_asks(f);
    const struct form_field *field = &f->field[f->focus];
    const struct job j = { .run = job_estimate_lines, .text = d->s->model_path, .form = f };
    char want[sizeof l->estimated];
    if (f->kind != FORM_AB || (ask != ASK_CONFIG && ask != ASK_MORE) || !d->s->model_path[0]) return;
    snprintf(want, sizeof want, "%d %s %s", field->cursor, d->s->model_path, field->text);
    if (!strcmp(want, l->estimated)) return;
    if (jobs_put(d->queue[QUEUE_DATABASE], &j)) memcpy(l->estimated, want, sizeof want);
}

/* The command's own checks of the texts in the form. */
static void request_check(struct dashboard *d)
{
    const struct form *f = &d->ui.form;
    const uint64_t want = form_hash(f, d->s->model_path);
    const struct job j = { .run = job_check_form, .text = d->s->model_path, .form = f, .id = (int64_t)want };
    if (d->lookups.checked == want || d->s->checked.of == want) return;
    background_want_check(d->background, want); /* a check of earlier texts that runs now ends early */
    if (jobs_put(d->queue[QUEUE_DATABASE], &j)) d->lookups.checked = want;
}

static void request_lookups(struct dashboard *d)
{
    if (d->ui.form.kind == FORM_CLOSED) { /* files may change until the next form opens */
        d->lookups = (struct form_lookups){ .folder_known = false };
        return;
    }
    request_folder(d);
    request_estimates(d);
    request_check(d);
}

/* ---------------------------------------------------------------- the frame */

static void open_new_page(struct dashboard *d)
{
    const struct text_page *p = &d->s->page;
    if (p->number == d->page_seen) return;
    d->page_seen = p->number;
    if (!p->opens || d->ui.form.kind != FORM_CLOSED) return;
    d->ui.page = true;
    d->ui.page_row = d->ui.page_column = 0;
}

/* The columns of the open page; 0: none is open. */
static int page_width(const struct dashboard *d)
{
    enum { SIDES = 4 }; /* frame and blanks */
    int w = 0, h = 0;
    if (!d->ui.page || !d->screen) return 0;
    screen_size(d->screen, &w, &h);
    return MAX(w - SIDES, 1);
}

/* The open page, as it fits the screen; keys scroll its rows as they are drawn. It stays so until the page,
 * its width or another part of what jobs know changes. */
static void fit_page(struct dashboard *d)
{
    const int width = page_width(d);
    if (!width || d->page_width) return;
    struct text_page *fits = malloc(sizeof *fits);
    if (!fits) return;
    text_page_fit(fits, &d->s->page, width);
    d->s->page = *fits;
    d->page_width = width;
    free(fits);
}

/* Push again what could not be pushed, while nothing is being measured. */
static void flush_spool(struct dashboard *d)
{
    if (d->s->spool_count <= 0 || clock_ns() < d->flush_ns) return;
    if (snapshot_is_running(d->s) || d->options->read_only) return;
    d->flush_ns = clock_ns() + FLUSH_NS;
    const struct job flush = { .run = job_flush_spool, .text = d->ui.push_url };
    jobs_put(d->queue[QUEUE_NETWORK], &flush);
}

void dashboard_collect(struct dashboard *d)
{
    struct snapshot *s = d->s;
    char text[256];
    bool is_error;
    if (d->page_width && d->page_width != page_width(d)) d->known.facts = -1; /* with the page as it came */
    const struct known_copied copied = background_refresh(d->background, s, &d->known);
    if (copied.facts) d->page_width = 0;
    const int64_t now_ms = clock_unix_ms();
    if (now_ms < s->unix_ms) d->ui.message_until_ms -= s->unix_ms - now_ms; /* the clock was set back */
    s->unix_ms = now_ms;
    collect_experiment(d);
    s->write_known = d->write != NULL;
    if (d->write) sidebyside_state(d->write, &s->write);
    collect_load_source(d);
    collect_traffic(d);
    collect_sensors(d);
    dashboard_watch_busy(d);
    collect_cost(d);
    if (copied.running) collect_events(s);
    if (copied.running && d->screen)
        snapshot_fold_log(s); /* as lines (--linear), each message is printed when it comes */
    follow_running(d);
    request_limits(d);
    dashboard_start_queued(d);
    queue_publish(d, s);
    dashboard_suspend_pending(d);
    if (background_take_message(d->background, text, sizeof text, &is_error)) {
        dashboard_message(d, is_error, "%s", text);
        /* How something ended stays until the next key, unless it would cover the progress of what runs. */
        if (!s->command.n) d->ui.message_until_ms = INT64_MAX;
    }
    flush_spool(d);
    open_new_page(d);
    fit_page(d);
    action_follow_forecast(&d->ui, s);
    request_lookups(d);
    ui_clamp(&d->ui, s);
}
