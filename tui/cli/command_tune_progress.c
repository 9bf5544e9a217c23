/* tui/cli/command_tune_progress.c - see command_tune_progress.h. */
#include "tui/cli/command_tune_progress.h"

#include <math.h>
#include <string.h>

static const double INTERVAL = 1.96; /* standard deviations in a 95 % interval */

static json_t *board_row_json(const struct tune_board_row *r)
{
    const struct tune_candidate *c = r->candidate;
    const double half = INTERVAL * c->normalized_sd;
    json_t *o = json_object();
    json_put_str(o, "config", c->line);
    json_put_bool(o, "current", r->is_current);
    json_put_num(o, "tok_s", c->normalized_rate);
    json_put_num(o, "lower_tok_s", c->normalized_rate * exp(-half));
    json_put_num(o, "upper_tok_s", c->normalized_rate * exp(half));
    json_put_int(o, "timings", c->timings);
    json_put_int(o, "bytes", c->memory_bytes);
    json_put_num(o, "kld", c->kld);
    json_put_str(o, "excluded", r->excluded);
    return o;
}

static json_t *confirm_json(const struct tune_progress *at)
{
    const char *verdict = verdict_name(at->verdict);
    json_t *o = json_object();
    json_put_str(o, "config", at->challenger);
    json_put(o, "run", at->confirm_run ? json_integer(at->confirm_run) : json_null());
    const struct interval ratio = stats_exp(at->effect);
    json_put_num(o, "effect", ratio.estimate);
    json_put_num(o, "lower", ratio.lower);
    json_put_num(o, "upper", ratio.upper);
    json_put_str(o, "verdict", *verdict ? verdict : NULL);
    json_put_int(o, "blocks", at->blocks);
    json_put(o, "blocks_needed", at->blocks_needed < 0 ? json_null() : json_integer(at->blocks_needed));
    return o;
}

static json_t *end_json(const struct tune_end *end)
{
    const struct tune_result *r = end->result;
    json_t *o = json_object();
    json_put_str(o, "text", end->text);
    json_put_bool(o, "wins", r->wins);
    json_put_bool(o, "stopped", r->stopped || r->unfinished);
    json_put_str(o, "candidate", *r->winner.line ? r->winner.line : NULL);
    json_put_str(o, "applied", end->applied);
    json_put_bool(o, "loaded", r->load.loaded);
    json_put_str(o, "not_applied", *end->not_applied ? end->not_applied : NULL);
    json_put_str(o, "confirm_command", *end->confirm ? end->confirm : NULL);
    return o;
}

json_t *tune_progress_to_json(const struct tune_progress *at, const char *model, const struct tune_end *end)
{
    json_t *o = json_object(), *board = json_array();
    for (int i = 0; i < at->n; i++) json_array_append_new(board, board_row_json(&at->board[i]));
    json_put_str(o, "phase", TUNE_PHASE_NAMES[at->phase]);
    json_put_str(o, "model", model);
    json_put(o, "run", at->run_id ? json_integer(at->run_id) : json_null());
    json_put_str(o, "what", *at->what ? at->what : NULL);
    json_put_str(o, "config", *at->config ? at->config : NULL);
    json_put_str(o, "why", *at->why ? at->why : NULL);
    json_put_int(o, "possible", at->possible);
    json_put_int(o, "timed", at->timed);
    json_put_int(o, "judged", at->judged);
    json_put(o, "leaderboard", board);
    json_put(o, "confirm", *at->challenger ? confirm_json(at) : json_null());
    json_put(o, "result", end ? end_json(end) : json_null());
    return o;
}

/* ---------------------------------------------------------------- lines */

static void lines_write(struct tune_lines *l, const struct tune_progress *at, const struct tune_end *end)
{
    json_t *own = l->progress.json ? tune_progress_to_json(at, l->model, end) : NULL;
    const struct progress_figures figures = { .done = at->share,
                                              .rate = NAN,
                                              .left_s = at->left_s,
                                              .own_key = own ? "tune" : NULL,
                                              .own = own,
                                              .at_once = l->progress.json };
    const bool measures = *at->what != '\0';
    const char *what = measures ? at->what : TUNE_PHASE_NAMES[at->phase], *of = measures ? " of " : " ";
    if (l->progress.json)
        progress_report(&l->progress, &figures, "%s%s%s", what, of, at->config);
    else if (isfinite(at->share))
        progress_show(&l->progress, "%3.0f %% %s%s%s", 100 * at->share, what, of, at->config);
    json_decref(own);
}

/* Whether this differs from the last line in more than time. */
static bool lines_changed(const struct tune_lines *l, const struct tune_progress *at)
{
    const struct tune_progress *old = &l->at;
    return !l->written || old->phase != at->phase || old->what != at->what || old->timed != at->timed ||
           old->judged != at->judged || old->blocks != at->blocks || strcmp(old->config, at->config) ||
           strcmp(old->challenger, at->challenger);
}

void tune_lines_show(struct tune_lines *l, const struct tune_progress *at)
{
    static const double EVERY_S = 1; /* reading the lines costs time that the machine is being measured in */
    const bool changed = lines_changed(l, at);
    if (!l->progress.json || changed || progress_is_due(&l->progress, EVERY_S)) lines_write(l, at, NULL);
    l->at = *at;
    l->at.n = 0;
    l->written = true;
}

void tune_lines_enter(struct tune_lines *l, enum tune_phase phase, const char *why)
{
    struct tune_progress at = l->at;
    at.phase = phase;
    at.what = "";
    at.config[0] = '\0';
    if (!l->written) {
        at.blocks_needed = -1;
        at.share = at.left_s = NAN;
    }
    snprintf(at.why, sizeof at.why, "%s", why);
    tune_lines_show(l, &at);
}

void tune_lines_end(struct tune_lines *l, const struct tune_end *end)
{
    if (l->progress.json) lines_write(l, &l->at, end);
}
