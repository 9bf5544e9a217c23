/* tui/frame/tune_watch.c - a search, from the lines of progress of its process (docs/documents.md,
 * qdyno.progress/1). */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

static void text_put(char *out, size_t size, const json_t *o, const char *key)
{
    snprintf(out, size, "%.*s", (int)size - 1, json_get_str(o, key, ""));
}

static bool phase_parse(enum tune_phase *out, const char *name)
{
    for (int i = 0; i < TUNE_PHASES; i++)
        if (!strcmp(name, TUNE_PHASE_NAMES[i])) {
            *out = (enum tune_phase)i;
            return true;
        }
    return false;
}

static struct tune_row row_read(const json_t *o)
{
    struct tune_row r = { .rate = json_get_num(o, "tok_s", NAN),
                          .lower = json_get_num(o, "lower_tok_s", NAN),
                          .upper = json_get_num(o, "upper_tok_s", NAN),
                          .bytes = json_get_int(o, "bytes", -1),
                          .kld = json_get_num(o, "kld", NAN),
                          .timings = (int)json_get_int(o, "timings", 0),
                          .is_current = json_get_bool(o, "current", false) };
    text_put(r.config, sizeof r.config, o, "config");
    text_put(r.excluded, sizeof r.excluded, o, "excluded");
    return r;
}

/* An empty list says nothing new: the last line has none. */
static void rows_read(struct tune_watch *t, const json_t *list)
{
    const int n = (int)MIN(json_array_size(list), (size_t)TUNE_BOARD);
    if (n) t->rows = n;
    for (int i = 0; i < n; i++) t->row[i] = row_read(json_array_get(list, (size_t)i));
}

static void confirm_read(struct tune_watch *t, const json_t *o)
{
    if (!json_is_object(o)) return;
    text_put(t->challenger, sizeof t->challenger, o, "config");
    t->effect = (struct interval){ json_get_num(o, "effect", NAN), json_get_num(o, "lower", NAN),
                                   json_get_num(o, "upper", NAN) };
    t->verdict = verdict_parse(json_get_str(o, "verdict", ""));
    t->blocks = (int)json_get_int(o, "blocks", 0);
    t->confirm_run = json_get_int(o, "run", 0);
}

static void result_read(struct tune_watch *t, const json_t *o)
{
    if (!json_is_object(o)) return;
    const char *candidate = json_get_str(o, "candidate", "");
    t->ended = true;
    t->wins = json_get_bool(o, "wins", false);
    t->stopped = json_get_bool(o, "stopped", false);
    text_put(t->text, sizeof t->text, o, "text");
    t->loaded = json_get_bool(o, "loaded", false);
    text_put(t->confirm, sizeof t->confirm, o, "confirm_command");
    /* a line that was cut would be another configuration */
    snprintf(t->candidate, sizeof t->candidate, "%s",
             strlen(candidate) < sizeof t->candidate ? candidate : "");
}

bool tune_watch_read(struct tune_watch *t, const json_t *tune)
{
    enum tune_phase phase;
    if (!json_is_object(tune) || !phase_parse(&phase, json_get_str(tune, "phase", ""))) return false;
    t->known = true;
    t->phase = phase;
    t->run_id = json_get_int(tune, "run", 0);
    text_put(t->model, sizeof t->model, tune, "model");
    text_put(t->what, sizeof t->what, tune, "what");
    text_put(t->config, sizeof t->config, tune, "config");
    text_put(t->why, sizeof t->why, tune, "why");
    t->possible = (int)json_get_int(tune, "possible", 0);
    t->timed = (int)json_get_int(tune, "timed", 0);
    t->judged = (int)json_get_int(tune, "judged", 0);
    rows_read(t, json_object_get(tune, "leaderboard"));
    confirm_read(t, json_object_get(tune, "confirm"));
    result_read(t, json_object_get(tune, "result"));
    return true;
}

void tune_watch_begin(struct tune_watch *t, int64_t now_ms)
{
    *t = (struct tune_watch){ .known = true,
                              .running = true,
                              .begun_ms = now_ms,
                              .share = NAN,
                              .left_s = NAN,
                              .effect = { NAN, NAN, NAN } };
}

const struct tune_row *tune_watch_leader(const struct tune_watch *t)
{
    return t->rows && !t->row[0].excluded[0] && t->row[0].timings ? &t->row[0] : NULL;
}

/* ---------------------------------------------------------------- what can be done */

bool tune_is_applied(const struct snapshot *s)
{
    return s->tune.candidate[0] && !strcmp(s->tune.model, s->model_path) &&
           !strcmp(s->tune.candidate, s->applied);
}

unsigned tune_row_style(const struct tune_watch *t, int row)
{
    const struct tune_row *r = &t->row[row];
    if (r->excluded[0]) return ROLE_DIM;
    if (r->is_current) return ROLE_ARM_A;
    return r == tune_watch_leader(t) ? ROLE_ARM_B | STYLE_BOLD : (unsigned)ROLE_TEXT;
}

bool tune_row_opened(const struct ui *u, const struct snapshot *s)
{
    const int item = u->view == VIEW_TUNE && u->list[VIEW_TUNE].moved ? list_selected(u, s) : -1;
    return item >= 0 && strcmp(s->tune.row[item].config, s->tune.candidate) != 0;
}

const char *tune_next_step(const struct snapshot *s, char *buf, size_t size)
{
    const struct tune_watch *t = &s->tune;
    const bool resumable = s->stopped_tune.id && s->stopped_tune.id == t->run_id;
    char line[CONFIG_LINE];
    if (t->running)
        snprintf(buf, size, "s: good enough, stop now; what was measured is stored, and r resumes it");
    else if (tune_is_applied(s))
        snprintf(buf, size, "in use%s: run, bench and the dashboard use it; u: undo",
                 t->loaded ? ", found on a busy machine" : "");
    else if (t->candidate[0])
        snprintf(buf, size, "Enter: use %s%s%s%s",
                 text_shorten(t->candidate, NULL, 0, 120, line, sizeof line),
                 t->wins && !t->loaded ? "" : " anyway",
                 t->confirm[0] ? "; !: compare it when the machine is quiet" : "",
                 resumable ? "; r: resume the search" : "");
    else
        snprintf(buf, size, resumable ? "r: resume the search; t: another one" : "t: another search");
    return buf;
}
