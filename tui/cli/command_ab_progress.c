/* tui/cli/command_ab_progress.c - see command_ab_progress.h. */
#include "tui/cli/command_ab_progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tui/cli/commands.h"

void ab_lines_begin(struct ab_lines *l, const struct cli_global *g)
{
    *l = (struct ab_lines){ .g = g, .since_ms = clock_unix_ms() - 1 };
    progress_init(&l->progress, g);
}

static bool event_equal(const struct experiment_state *s, int i, const struct ab_event *e)
{
    return s->event[i].unix_ms == e->unix_ms && !strncmp(s->event[i].text, e->text, sizeof e->text - 1);
}

/* The events after the last one that was written. A continued run also has those of earlier sessions, and of
 * many events the oldest are gone. New reference. */
static json_t *events_take(struct ab_lines *l, const struct experiment_state *s)
{
    json_t *list = json_array();
    int from = s->events;
    while (from > 0 && s->event[from - 1].unix_ms >= l->since_ms && !event_equal(s, from - 1, &l->seen))
        from--;
    for (int i = from; i < s->events; i++) {
        json_t *o = json_object();
        json_put_int(o, "unix_ms", s->event[i].unix_ms);
        json_put_str(o, "kind", s->event[i].kind);
        json_put_str(o, "text", s->event[i].text);
        json_array_append_new(list, o);
        l->seen.unix_ms = s->event[i].unix_ms;
        snprintf(l->seen.text, sizeof l->seen.text, "%s", s->event[i].text);
    }
    return list;
}

/* Says that the budget is too short as soon as the warm-up shows it, where nothing was known before. */
static void note_budget(struct ab_lines *l, const json_t *events)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(json_get_str(event, "kind", ""), "budget")) continue;
        progress_clear(&l->progress);
        cli_note(l->g, "%s", json_get_str(event, "text", ""));
    }
}

static void show_people(struct progress *p, const struct experiment_state *s)
{
    char eta[32] = "", effect[64] = "";
    if (isfinite(s->eta_s))
        snprintf(eta, sizeof eta, "  at most %d:%02d left", (int)s->eta_s / 60, (int)s->eta_s % 60);
    struct interval e = ab_effect(s);
    if (isfinite(e.lower))
        snprintf(effect, sizeof effect, "  %+.1f %% [%+.1f, %+.1f]", stats_percent(e.estimate),
                 stats_percent(e.lower), stats_percent(e.upper));
    const char letter[2] = { s->running_arm < 0 ? 0 : (char)('A' + s->running_arm), 0 };
    progress_show(p, "A/B %s %d  %s %s %d/%d%s%s", EXPERIMENT_PHASES[s->phase], s->block + 1, letter,
                  s->cell_phase, s->cell_done, s->cell_of, effect, eta);
}

static void show_programs(struct ab_lines *l, const struct experiment_state *s, json_t *events, bool at_once)
{
    json_t *own = experiment_now_to_json(s);
    json_put(own, "events", json_incref(events));
    const double all_s = s->elapsed_s + s->eta_s;
    const struct progress_figures at = { .done = all_s > 0 ? s->elapsed_s / all_s : (double)NAN,
                                         .rate = NAN,
                                         .left_s = s->eta_s,
                                         .own_key = "ab",
                                         .own = own,
                                         .at_once = at_once };
    progress_report(&l->progress, &at, "A/B %s, block %d", EXPERIMENT_PHASES[s->phase], s->block + 1);
    json_decref(own);
}

static bool has_changed(const struct ab_lines *l, const struct experiment_state *s)
{
    return !l->last.known || l->last.phase != s->phase || l->last.run_id != s->run_id ||
           l->last.paused_since_ms != s->paused_since_ms || l->last.pausing != s->pausing;
}

void ab_lines_show(struct ab_lines *l, const struct experiment_state *s)
{
    static const double EVERY_S = 0.25; /* reading the lines costs time that is measured */
    const bool due = progress_is_due(&l->progress, EVERY_S), changed = has_changed(l, s);
    json_t *events = events_take(l, s);
    note_budget(l, events);
    if (!l->progress.json)
        show_people(&l->progress, s);
    else if (due || changed || json_array_size(events))
        show_programs(l, s, events, changed || json_array_size(events));
    json_decref(events);
    l->last.known = true;
    l->last.phase = s->phase;
    l->last.run_id = s->run_id;
    l->last.paused_since_ms = s->paused_since_ms;
    l->last.pausing = s->pausing;
}

void ab_lines_end(struct ab_lines *l, const struct experiment_state *s)
{
    if (l->progress.json) ab_lines_show(l, s);
    progress_clear(&l->progress);
}

/* ---------------------------------------------------------------- changes of the load */

static void change_take(const struct cli_global *g, struct experiment *x, const char *line)
{
    json_t *o = NULL;
    struct err why = { 0 };
    struct config c;
    enum err_code rc = json_parse(&o, line, strlen(line), &why);
    const char *settings = json_get_str(o, "settings", "");
    const double rate_by = json_get_num(o, "rate_by", 1);
    if (!rc && !(rate_by > 0 && isfinite(rate_by)))
        rc = err_set(&why, ERR_USAGE, "rate_by is %g: expected a number above 0", rate_by);
    if (!rc && *settings) rc = config_parse(&c, settings, &why);
    if (rc)
        log_write(&g->log, LOG_WARN, "the load was not changed: %s", why.message);
    else
        experiment_change_load(x, rate_by, settings);
    json_decref(o);
}

enum err_code ab_changes_open(struct ab_changes *c, const char *path, struct err *why)
{
    *c = (struct ab_changes){ .fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1 };
    if (!path || c->fd >= 0) return ERR_OK;
    return err_set(why, err_of_errno(errno), "--load-changes: cannot open '%s': %s", path, strerror(errno));
}

void ab_changes_close(struct ab_changes *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    str_free(&c->line);
}

void ab_changes_poll(struct ab_changes *c, const struct cli_global *g, struct experiment *x)
{
    char buf[1024];
    if (c->fd < 0) return;
    const ssize_t n = read(c->fd, buf, sizeof buf); /* 0: nobody writes at present */
    if (n <= 0) return;
    str_append_n(&c->line, buf, (size_t)n);
    for (char *end; c->line.data && (end = strchr(c->line.data, '\n'));) {
        *end = '\0';
        change_take(g, x, c->line.data);
        const size_t rest = c->line.len - (size_t)(end + 1 - c->line.data);
        memmove(c->line.data, end + 1, rest + 1);
        c->line.len = rest;
    }
}
