/* tui/ui.c - what can be selected, and which action is possible now. Pure functions of the frame. */
#include "tui/ui.h"

#include <stdlib.h>
#include <string.h>

#include "tui/panes.h"

const char *ui_quit_question(const struct snapshot *s)
{
    if (snapshot_is_running(s)) return "An experiment runs: quit and stop it (it can be resumed)?";
    return s->command[0] ? "A command runs: quit and cancel it?" : "Quit?"; /* it has just ended */
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

int ui_rows(const struct ui *u, const struct snapshot *s)
{
    switch (u->view) {
    case VIEW_ADVICE:
    case VIEW_LIVE: return s->advice_count;
    case VIEW_HISTORY: return MAX(s->run_count, 0);
    case VIEW_MODEL: return s->ledger.groups;
    case VIEW_QUALITY: return MAX(s->quality.count, 0);
    case VIEW_LOAD: return MAX(s->load.lines, 0);
    case VIEW_SETTINGS: return KNOB_COUNT;
    case VIEW_LOG: return s->log_count;
    case VIEW_AB: return s->experiment_known && s->experiment.spec.arms > 2 ? s->experiment.spec.arms - 1 : 0;
    default: return 0;
    }
}

void ui_clamp(struct ui *u, const struct snapshot *s)
{
    int rows = ui_rows(u, s), *at = &u->selected[u->view];
    *at = MAX(MIN(*at, rows - 1), 0);
}

/* ---------------------------------------------------------------- the history: sorted, marked */

const char *const HISTORY_ORDER_NAMES[HISTORY_ORDERS] = { "time",  "effect",   "verdict",
                                                          "model", "workload", "kind" };

struct sorting {
    const struct snapshot *s;
    enum history_order by;
};

/* What is not known comes last. */
static int by_effect(double a, double b)
{
    const bool known_a = a > 0, known_b = b > 0;
    if (known_a != known_b) return known_a ? -1 : 1;
    return !known_a || a == b ? 0 : a > b ? -1 : 1;
}

static int by_text(const char *a, const char *b)
{
    if (!*a != !*b) return *a ? -1 : 1;
    return strcmp(a, b);
}

static int by_column(const void *a, const void *b, void *arg)
{
    const struct sorting *o = arg;
    const int i = *(const int *)a, k = *(const int *)b;
    const struct run_line *x = &o->s->run[i], *y = &o->s->run[k];
    int c = 0;
    switch (o->by) {
    case BY_EFFECT: c = by_effect(x->effect_ratio, y->effect_ratio); break;
    case BY_VERDICT: c = by_text(x->verdict, y->verdict); break;
    case BY_MODEL: c = by_text(x->model, y->model); break;
    case BY_WORKLOAD: c = by_text(x->workload, y->workload); break;
    case BY_KIND: c = by_text(x->kind, y->kind); break;
    case BY_TIME:
    case HISTORY_ORDERS: break;
    }
    return c ? c : i - k;
}

void ui_history(const struct ui *u, const struct snapshot *s, int rows[SNAPSHOT_RUNS])
{
    struct sorting o = { s, u->order };
    const int n = MAX(s->run_count, 0);
    for (int i = 0; i < n; i++) rows[i] = i;
    if (n > 1 && u->order != BY_TIME) qsort_r(rows, (size_t)n, sizeof *rows, by_column, &o);
}

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
    int rows[SNAPSHOT_RUNS];
    const int i = u->selected[VIEW_HISTORY];
    if (u->view != VIEW_HISTORY || i < 0 || i >= s->run_count) return NULL;
    ui_history(u, s, rows);
    return &s->run[rows[i]];
}

const struct advice *ui_advice(const struct ui *u, const struct snapshot *s)
{
    int i = u->selected[u->view];
    bool there = (u->view == VIEW_ADVICE || u->view == VIEW_LIVE) && i >= 0 && i < s->advice_count;
    return there ? &s->advice[i] : NULL;
}

int64_t ui_run_id(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    return r ? r->id : s->experiment_known ? s->experiment.run_id : 0;
}

/* ---------------------------------------------------------------- refusals */

static const char *no_model(const struct snapshot *s)
{
    return !s->model_path[0]   ? "no model yet: m chooses one"
           : s->model_error[0] ? "the model cannot be read: m chooses another"
                               : "";
}

static const char WRITES[] = "two arms write side by side: s stops them";
static const char COMMAND_RUNS[] = "a command runs, which would disturb it: X cancels it";

static bool is_writing(const struct snapshot *s)
{
    return s->write_known && s->write.running;
}

static const char *refuse_start(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return "read-only: started with --read-only";
    if (snapshot_is_running(s)) return "an experiment runs: s stops it first";
    if (u->waiting_to_start || s->experiment_starting) return "an experiment is about to start";
    if (s->command[0]) return COMMAND_RUNS;
    if (is_writing(s)) return WRITES;
    return no_model(s);
}

static const char *refuse_resume(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (u->read_only) return "read-only: started with --read-only";
    if (snapshot_is_running(s) || s->experiment_starting) return "an experiment runs already";
    if (s->command[0]) return COMMAND_RUNS;
    if (is_writing(s)) return WRITES;
    if (r) {
        if (strcmp(r->kind, "ab")) return "only an A/B can be resumed";
        return !strcmp(r->state, "done") ? "that run is complete" : "";
    }
    if (!s->experiment_known || !s->experiment.run_id)
        return "nothing to resume: select a stopped run in the history (4)";
    return s->experiment.phase == PHASE_DONE ? "the experiment is complete" : "";
}

static const char *refuse_command(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return "read-only: started with --read-only";
    if (s->command[0]) return "a command runs already: X cancels it";
    if (snapshot_is_running(s) || u->waiting_to_start || s->experiment_starting)
        return "a command beside the experiment would disturb it: s stops it";
    if (is_writing(s)) return WRITES;
    return s->probing ? "the machine is being measured: wait for that" : "";
}

static const char *refuse_cancel(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    return s->command[0] ? "" : "no command runs";
}

static const char *refuse_advise(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    if (s->advice_state[0]) return "advice is being worked out already";
    if (!s->ceilings_known && s->command[0]) return COMMAND_RUNS;
    if (!s->ceilings_known && snapshot_is_running(s))
        return "measuring the machine now would disturb the A/B that runs";
    if (!s->ceilings_known && is_writing(s)) return WRITES;
    return no_model(s);
}

static const char *refuse_push(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return "read-only: started with --read-only";
    if (s->pushing) return "a push is under way";
    if (!ui_run_id(u, s)) return "no result to push yet: b starts an A/B";
    if (u->view != VIEW_HISTORY && snapshot_is_running(s)) return "the experiment has not finished";
    return "";
}

static const char *refuse_open(const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_HISTORY) {
        const struct run_line *r = ui_run(u, s);
        if (!r) return "no run to open";
        if (snapshot_is_running(s)) return "an experiment runs: its screen is 2";
        return strcmp(r->kind, "ab") ? refuse_command(u, s) : "";
    }
    if (u->view != VIEW_SETTINGS && !ui_advice(u, s)) return "no advice selected: a works some out";
    return refuse_start(u, s);
}

static const char *refuse_stop(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    return snapshot_is_running(s) || is_writing(s) ? "" : "no experiment runs";
}

/* Beside a paused experiment it may: nothing is measured then. */
static const char *refuse_write(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    if (is_writing(s)) return WRITES;
    if (snapshot_is_running(s) && !s->experiment.paused_since_ms)
        return "it would disturb the experiment: P pauses that, s stops it";
    if (s->experiment_starting) return "an experiment is about to start";
    if (s->command[0]) return COMMAND_RUNS;
    return s->probing ? "the machine is being measured: wait for that" : no_model(s);
}

static const char *refuse_pane(const struct ui *u, const struct snapshot *s)
{
    (void)s;
    return pane_count(u->view) > 1 ? "" : "this view is one pane: l goes to the next view";
}

static const char *refuse_pause(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    if (!snapshot_is_running(s)) return "no experiment runs";
    if (!s->experiment.paused_since_ms) return "";
    if (s->command[0]) return COMMAND_RUNS;
    if (is_writing(s)) return WRITES;
    return s->probing ? "the machine is being measured: wait for that" : "";
}

static const char *refuse_model(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return "read-only: started with --read-only";
    return snapshot_is_running(s) ? "an experiment runs on this model: s stops it first" : "";
}

static const char *refuse_mark(const struct ui *u, const struct snapshot *s)
{
    if (u->view != VIEW_HISTORY) return "marks runs of the history: 4 goes there";
    return ui_run(u, s) ? "" : "no run to mark";
}

static const char *refuse_sort(const struct ui *u, const struct snapshot *s)
{
    (void)s;
    return u->view == VIEW_HISTORY ? "" : "sorts the history: 4 goes there";
}

static const char *refuse_compare(const struct ui *u, const struct snapshot *s)
{
    int64_t id[MARKED];
    return ui_compared(u, s, id) ? "" : "mark two runs first: space in the history (4)";
}

static const char *refuse_verify(const struct ui *u, const struct snapshot *s)
{
    if (!ui_advice(u, s)) return "no advice selected: a works some out, 3 shows it";
    return refuse_start(u, s);
}

/* A run whose results can be kept or told. */
static const char *refuse_of_run(const struct ui *u, const struct snapshot *s)
{
    if (!ui_run_id(u, s)) return "no run yet: b starts an A/B, 4 lists what was measured";
    return refuse_command(u, s);
}

static const char *refuse_report(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (r && strcmp(r->kind, "ab"))
        return "reports are about experiments: select an A/B (Enter shows this run)";
    return refuse_of_run(u, s);
}

static const char *refuse_apply(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (ui_advice(u, s)) return refuse_command(u, s);
    if (r && strcmp(r->kind, "ab"))
        return "only what won an A/B can be applied: select one, or an advice (3)";
    return ui_run_id(u, s) ? refuse_of_run(u, s) : "nothing to apply yet: select an advice (3) or an A/B (4)";
}

static const char *refuse_work(const struct ui *u, const struct snapshot *s)
{
    const char *no = refuse_command(u, s);
    return *no ? no : no_model(s);
}

static const char *refuse_output(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    return s->page.number ? "" : "no command has run yet: : finds them all";
}

static const char *refuse_filter(const struct ui *u, const struct snapshot *s)
{
    (void)s;
    return u->view == VIEW_HISTORY ? "" : "filters the history: 4 goes there";
}

const char *action_refusal(enum action action, const struct ui *u, const struct snapshot *s, char *buf,
                           size_t size)
{
    static const char *(*const RULES[ACTION_COUNT])(const struct ui *, const struct snapshot *) = {
        [DO_NEW_AB] = refuse_start,       [DO_RESUME] = refuse_resume,   [DO_ADVISE] = refuse_advise,
        [DO_PUSH] = refuse_push,          [DO_OPEN] = refuse_open,       [DO_STOP] = refuse_stop,
        [DO_PAUSE] = refuse_pause,        [DO_COMMAND] = refuse_command, [DO_CANCEL] = refuse_cancel,
        [DO_MODEL] = refuse_model,        [DO_FILTER] = refuse_filter,   [DO_MARK] = refuse_mark,
        [DO_SORT] = refuse_sort,          [DO_COMPARE] = refuse_compare, [DO_VERIFY] = refuse_verify,
        [DO_APPLY] = refuse_apply,        [DO_BASELINE] = refuse_of_run, [DO_REPORT] = refuse_report,
        [DO_QUANTIZE] = refuse_work,      [DO_CALIBRATE] = refuse_work,  [DO_TUNE] = refuse_work,
        [DO_OUTPUT] = refuse_output,      [DO_WRITE] = refuse_write,     [DO_NEXT_PANE] = refuse_pane,
        [DO_PREVIOUS_PANE] = refuse_pane, [DO_ZOOM] = refuse_pane,
    };
    snprintf(buf, size, "%s", RULES[action] ? RULES[action](u, s) : "");
    return buf;
}
