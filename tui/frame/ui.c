/* tui/frame/ui.c - what can be selected, sorted and focused. */
#include "tui/frame/frame.h"

#include <string.h>

#include "advisor/advise/advise.h"

bool ui_written_unmeasured(const struct snapshot *s)
{
    const bool result = !strcmp(s->model_path, s->written), source = !strcmp(s->model_path, s->written_from);
    if (!s->written[0] || !(result || source)) return false;
    if (result && s->written_from[strcspn(s->written_from, " ,;")])
        return false; /* no config line names it */
    for (int i = 0; i < s->quality.count; i++) {
        const struct quality_result *q = &s->quality.line[i];
        if (!result && !strcmp(q->config, s->written_recipe)) return false;
        if (result && !strcmp(q->reference_model, s->written_from)) return false;
    }
    return true;
}

/* Short, because 60 columns have to hold it and its answers. */
const char *ui_quit_question(const struct snapshot *s)
{
    if (s->queued) return "Quit, stop all and drop the queue (&)?";
    if (snapshot_is_running(s)) return "Quit and stop the A/B? It can be resumed.";
    if (s->tune.running) return "Quit and stop the search? It can be resumed.";
    return s->command.n ? "Quit and cancel the command?"
                        : "Quit?"; /* the command ended while the question was being asked */
}

const char *ui_command_hint(const struct ui *u, char *buf, size_t size)
{
    const char *text = u->form.field[0].text;
    const size_t n = strcspn(text, " ");
    int used = 0;
    for (int i = 0; i < u->command_count; i++)
        if (strlen(u->commands[i].name) == n && !strncmp(u->commands[i].name, text, n)) {
            snprintf(buf, size, "%s %s: %s", u->commands[i].name, u->commands[i].arguments,
                     u->commands[i].help);
            return buf;
        }
    buf[0] = '\0';
    for (int i = 0; i < u->command_count && used < (int)size - 24; i++)
        if (!strncmp(u->commands[i].name, text, n))
            used += snprintf(buf + used, size - (size_t)used, "%s ", u->commands[i].name);
    return buf;
}

int ui_palette(const struct ui *u, struct palette_entry out[PALETTE_ROWS])
{
    return palette_find(u->form.field[0].text, u->commands, u->command_count, out, PALETTE_ROWS);
}

struct suggestion_source snapshot_suggestion_source(const struct snapshot *s, const struct form *form)
{
    return (struct suggestion_source){ .form = form,
                                       .cores = s->machine_known ? machine_usable_cores(&s->machine) : 0,
                                       .ctx_train = s->model.ctx_train,
                                       .recipes = &s->recipes,
                                       .folder = &s->folder,
                                       .baselines = &s->baselines,
                                       .estimates = &s->estimates };
}

void ui_suggestions(struct suggestions *out, const struct ui *u, const struct snapshot *s)
{
    struct suggestion_source from = snapshot_suggestion_source(s, &u->form);
    from.commands = u->commands;
    from.command_count = u->command_count;
    suggestions_make(out, &from);
}

int ui_rows(const struct ui *u, const struct snapshot *s)
{
    int items[LIST_ROWS];
    if (LISTS[u->view].items) return list_order(u, s, items);
    switch (u->view) {
    case VIEW_LIVE: return s->advice_count;
    case VIEW_AB: return s->experiment_known && s->experiment.spec.arms > 2 ? s->experiment.spec.arms - 1 : 0;
    default: return 0;
    }
}

/* ---------------------------------------------------------------- panes */

enum { PANES_MAX = 6 };

static const char *const PANE_NAMES[VIEW_COUNT][PANES_MAX + 1] = {
    [VIEW_LIVE] = { [LIVE_MACHINE] = "machine",
                    [LIVE_ENGINE] = "engine",
                    [LIVE_AB] = "A/B",
                    [LIVE_ADVICE] = "advice",
                    [LIVE_LOG] = "log" },
    [VIEW_AB] = { [AB_ARMS] = "arms",
                  [AB_EFFECT] = "effect",
                  [AB_VERDICT] = "verdict",
                  [AB_RANKS] = "ranks" },
    [VIEW_ADVICE] = { [ADVICE_LIST] = "advice",
                      [ADVICE_DETAILS] = "reason",
                      [ADVICE_PARETO] = "memory and speed",
                      [ADVICE_QUALITY] = "quality and speed" },
    [VIEW_HISTORY] = { "history" },
    [VIEW_MODEL] = { [MODEL_TENSORS] = "tensors", [MODEL_MEMORY] = "memory" },
    [VIEW_QUALITY] = { [QUALITY_METHODS] = "methods", [QUALITY_LAYERS] = "layers" },
    [VIEW_LOAD] = { [LOAD_REQUESTS] = "requests",
                    [LOAD_LATENCY] = "latency",
                    [LOAD_BLOCKS] = "blocks",
                    [LOAD_COMPUTE] = "compute" },
    [VIEW_SETTINGS] = { [SETTINGS_LIST] = "settings", [SETTINGS_DETAIL] = "detail" },
    [VIEW_LOG] = { "log" },
    [VIEW_JOBS] = { "queue" },
    [VIEW_TUNE] = { [TUNE_STATE] = "search", [TUNE_LIST] = "candidates", [TUNE_END] = "result" },
    [VIEW_WRITE] = { [WRITE_A] = "A", [WRITE_B] = "B", [WRITE_BOTH] = "both" },
};

int pane_count(enum view view, const struct snapshot *s)
{
    int n = 0;
    if (view == VIEW_AB && !(s->experiment_known && experiment_ranks(&s->experiment))) return AB_RANKS;
    while (PANE_NAMES[view][n]) n++;
    return n;
}

const char *pane_name(enum view view, int pane)
{
    return pane >= 0 && pane < PANES_MAX && PANE_NAMES[view][pane] ? PANE_NAMES[view][pane] : "";
}

/* ---------------------------------------------------------------- selected and marked rows */

int ui_mark(const struct ui *u, int64_t id)
{
    for (int i = 0; i < MARKED; i++)
        if (id && u->marked[i] == id) return i + 1;
    return 0;
}

bool ui_compared(const struct ui *u, const struct snapshot *s, int64_t id[MARKED])
{
    const struct run_line *r = ui_run(u, s);
    const int64_t first = u->marked[0], second = u->marked[1]          ? u->marked[1]
                                                 : r && r->id != first ? r->id
                                                                       : 0;
    if (!first || !second) return false;
    id[0] = MIN(first, second);
    id[1] = MAX(first, second);
    return true;
}

const struct run_line *ui_run(const struct ui *u, const struct snapshot *s)
{
    const int i = u->view == VIEW_HISTORY ? list_selected(u, s) : -1;
    return i < 0 ? NULL : &s->run[i];
}

const struct advice *ui_advice(const struct ui *u, const struct snapshot *s)
{
    const int i = u->view == VIEW_ADVICE ? list_selected(u, s)
                  : u->view == VIEW_LIVE ? u->selected[VIEW_LIVE]
                                         : -1;
    return i >= 0 && i < s->advice_count ? &s->advice[i] : NULL;
}

const struct queued_job *ui_queued(const struct ui *u, const struct snapshot *s)
{
    struct queued_job now;
    const int first = snapshot_running_job(s, &now),
              i = u->view == VIEW_JOBS ? list_selected(u, s) - first : -1;
    return i >= 0 && i < s->queued ? &s->queue[i] : NULL;
}

int64_t ui_run_id(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (u->view == VIEW_TUNE) return s->tune.confirm_run;
    return r ? r->id : s->experiment_known ? s->experiment.run_id : 0;
}

bool ui_resumes_undecided(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    const struct experiment_state *x = &s->experiment;
    bool is_tune;
    if (!ui_resumed_id(u, s, &is_tune) || is_tune) return false;
    if (r) return !strcmp(r->state, "done") && !strcmp(r->verdict, verdict_name(VERDICT_INCONCLUSIVE));
    if (s->experiment_known) return x->phase == PHASE_DONE && x->verdict == VERDICT_INCONCLUSIVE;
    return s->stopped_ab.undecided;
}

int64_t ui_resumed_id(const struct ui *u, const struct snapshot *s, bool *is_tune)
{
    const struct run_line *r = ui_run(u, s);
    const struct experiment_state *x = &s->experiment;
    const bool open = x->phase != PHASE_DONE || x->verdict == VERDICT_INCONCLUSIVE;
    const bool stopped = s->experiment_known && x->run_id && open && u->view != VIEW_TUNE;
    *is_tune = r ? !strcmp(r->kind, "tune") : s->stopped_tune.id > s->stopped_ab.id && !stopped;
    if (r) return r->id;
    if (!*is_tune && !s->experiment_known && u->view != VIEW_TUNE) return s->stopped_ab.id;
    if (u->view == VIEW_TUNE && s->stopped_tune.id) *is_tune = true;
    return *is_tune ? s->stopped_tune.id : u->view != VIEW_TUNE && s->experiment_known ? x->run_id : 0;
}
