/* tui/frame/refusals.c - why an action is impossible now: one function per kind of action, and the table that
 * assigns them (ACTION_LIST). Each returns the reason, or "" when the action is possible. */
#include "tui/frame/frame.h"

#include <string.h>

#include "advisor/experiment/experiment.h"

static const char *refuse_no_model(const struct snapshot *s)
{
    return !s->model_path[0]   ? "no model is loaded: m chooses one"
           : s->model_error[0] ? "the model cannot be read: m chooses another"
                               : "";
}

static const char QUEUE_FULL[] = "the queue is full: & shows it";
static const char READ_ONLY[] = "read-only: started with --read-only";
static const char WRITING_RUNS[] = "two arms are writing side by side: s stops them";
static const char COMMAND_RUNS[] = "the running command would disturb it: s stops the command";

static bool writing_runs(const struct snapshot *s)
{
    return s->write_known && s->write.running;
}

const char *jobs_wait_for(const struct snapshot *s)
{
    if (snapshot_is_running(s)) return "the running experiment";
    if (s->experiment_starting) return "the experiment that is about to start";
    if (s->command.n) return "the running command";
    return writing_runs(s) ? "the arms that write side by side" : "";
}

/* Long jobs wait in the queue while something runs, so they are refused only when they are impossible. */
static const char *refuse_job(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return READ_ONLY;
    return s->queued == QUEUED_JOBS ? QUEUE_FULL : "";
}

static const char *refuse_start(const struct ui *u, const struct snapshot *s)
{
    const char *no = refuse_job(u, s);
    return *no ? no : refuse_no_model(s);
}

static const char *refuse_command(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return READ_ONLY;
    if (snapshot_is_running(s) || s->experiment_starting)
        return "a command would disturb the experiment: s stops the experiment";
    if (s->command.n) return "a command is running already: s stops it";
    return writing_runs(s) ? WRITING_RUNS : "";
}

static const char *refuse_resume(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    bool is_tune;
    const int64_t id = ui_resumed_id(u, s, &is_tune);
    if (u->read_only) return READ_ONLY;
    if (s->tune.running) return "a search is running already";
    if (snapshot_is_running(s) || s->experiment_starting) return "an experiment is running already";
    if (s->command.n) return COMMAND_RUNS;
    if (writing_runs(s)) return WRITING_RUNS;
    if (r && !is_tune && strcmp(r->kind, "ab")) return "only an A/B or a search can be resumed";
    const bool undecided = ui_resumes_undecided(u, s);
    if (r && !undecided && !strcmp(r->state, "done")) return "that run has its verdict: b starts another A/B";
    if (!id) return "nothing to resume: select a stopped run in the history (4)";
    if (is_tune) return refuse_command(u, s);
    return !r && !undecided && s->experiment.phase == PHASE_DONE
               ? "the A/B has its verdict: b starts another one"
               : "";
}

static const char *refuse_advise(const struct ui *u, const struct snapshot *s)
{
    if (!s->ceilings_known && u->read_only) return READ_ONLY; /* it measures the machine first */
    if (s->advice_state[0]) return "advice is being computed already";
    if (!s->ceilings_known && s->queued == QUEUED_JOBS) return QUEUE_FULL;
    return refuse_no_model(s);
}

static const char *refuse_kernels(const struct ui *u, const struct snapshot *s)
{
    if (s->ceilings_known && s->ceilings.kernels.measured) return "the kernels were timed already";
    if (!s->machine_known) return "the machine is not known yet";
    if (s->advice_state[0]) return "advice is being computed: wait until that has ended";
    return refuse_command(u, s);
}

static const char *refuse_push(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (u->read_only) return READ_ONLY;
    if (s->pushing) return "a push is running already";
    if (!ui_run_id(u, s)) return "there is no result to push: b starts an A/B";
    if (r && strcmp(r->kind, "ab")) return "only an A/B can be pushed: select one (Enter shows this run)";
    if (u->view != VIEW_HISTORY && snapshot_is_running(s)) return "the experiment has not finished";
    return "";
}

/* For applying the candidate of the search on screen. */
static const char *refuse_candidate(const struct ui *u, const struct snapshot *s)
{
    if (s->tune.running) return "the search is still running: s stops it";
    if (!s->tune.candidate[0]) return "there is no candidate to use: t starts a search";
    return tune_is_applied(s) ? "it is in use already: u undoes that" : refuse_command(u, s);
}

/* For measuring the selected advice. */
static const char *refuse_check(const struct ui *u, const struct snapshot *s)
{
    if (ui_advice(u, s)->prediction.on_gpu)
        return "its figures are of a GPU program: the command that 3 shows checks it";
    return refuse_start(u, s);
}

static const char *refuse_open(const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_HISTORY) {
        const struct run_line *r = ui_run(u, s);
        if (!r) return "there is no run to open";
        if (snapshot_is_running(s)) return "an experiment is running: 2 shows it";
        return strcmp(r->kind, "ab") ? refuse_command(u, s) : "";
    }
    if (u->view == VIEW_TUNE) return tune_row_opened(u, s) ? "" : refuse_candidate(u, s);
    if (u->view == VIEW_MODEL || u->view == VIEW_QUALITY || u->view == VIEW_LOAD || u->view == VIEW_LOG ||
        u->view == VIEW_JOBS)
        return list_selected(u, s) >= 0 ? "" : "this list is empty";
    if (u->view == VIEW_SETTINGS) {
        const int row = list_selected(u, s);
        if (row >= KNOB_COUNT) return knob_row_absent(row)->instead;
        return row < 0 ? "this list is empty" : refuse_start(u, s);
    }
    if (!ui_advice(u, s)) return "no advice is selected: a computes advice";
    return refuse_check(u, s);
}

static const char *refuse_stop(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    return writing_runs(s) || s->command.n ? "" : "nothing is running";
}

/* Possible while the experiment is paused: nothing is measured then. */
static const char *refuse_write(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    if (writing_runs(s)) return WRITING_RUNS;
    if (snapshot_is_running(s) && !s->experiment.paused_since_ms)
        return "it would disturb the experiment: | pauses it, s to stop it";
    if (s->experiment_starting) return "an experiment is about to start";
    if (s->command.n && !snapshot_is_running(s)) return COMMAND_RUNS;
    return refuse_no_model(s);
}

static const char *refuse_pane(const struct ui *u, const struct snapshot *s)
{
    return pane_count(u->view, s) > 1 ? "" : "this view has one pane: l shows the next view";
}

static const char *refuse_details(const struct ui *u, const struct snapshot *s)
{
    if (u->view != VIEW_AB) return "2 shows the experiment, whose verdict has details";
    return s->experiment_known ? "" : "no experiment is on screen: b starts one, 4 lists earlier ones";
}

static const char *refuse_wait_quiet(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return READ_ONLY;
    if (snapshot_waits_quiet(s)) return "the A/B waits for that already: s stops it";
    return s->tune.running ? "a search cannot be paused: s stops it, r resumes it later" : "";
}

/* Both estimands are computed in any case; choosing one after a look at the effects would bias the result. */
static const char *refuse_loaded(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return READ_ONLY;
    return snapshot_is_running(s) ? "what a run estimates is fixed before it starts: s stops it" : "";
}

static const char *refuse_pause(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    if (s->tune.running) return "a search cannot be paused: s stops it, r resumes it";
    if (!snapshot_is_running(s)) return "no experiment is running";
    if (!s->experiment.paused_since_ms) return "";
    return writing_runs(s) ? WRITING_RUNS : "";
}

static const char *refuse_model(const struct ui *u, const struct snapshot *s)
{
    if (u->read_only) return READ_ONLY;
    return snapshot_is_running(s) ? "an experiment is running on this model: press s to stop it" : "";
}

static const char *refuse_mark(const struct ui *u, const struct snapshot *s)
{
    if (u->view != VIEW_HISTORY) return "only runs of the history can be marked: 4 shows it";
    return ui_run(u, s) ? "" : "there is no run to mark";
}

static const char *refuse_list(const struct ui *u, const struct snapshot *s)
{
    if (!LISTS[u->view].items) return "this view has no list: 4 shows the history";
    return LISTS[u->view].count(s) > 0 || *list_filter(u) ? "" : "this list is empty";
}

/* For changes of what the load view shows. */
static const char *refuse_load(const struct ui *u, const struct snapshot *s)
{
    if (u->view != VIEW_LOAD) return "it changes the running load or server: 7 shows it";
    if (u->read_only) return READ_ONLY;
    if (!snapshot_live(s)) return "no load runs: b starts one, with a workload such as load:rate=4";
    return s->load_source == LOAD_OF_SERVER && (s->server.error[0] || !s->server.known)
               ? "the server does not answer"
               : "";
}

/* For changes of settings of what serves the load on screen. */
static const char *refuse_load_setting(const struct ui *u, const struct snapshot *s)
{
    const char *why = refuse_load(u, s);
    if (*why) return why;
    return snapshot_load_is_remote(s)
               ? "this load is sent over HTTP: its server is changed by a dashboard with --server"
               : "";
}

/* For the selected job of the queue. */
static const char *refuse_queued(const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_LOAD) return refuse_load(u, s);
    if (u->view != VIEW_JOBS) return "only jobs of the queue can be moved: & shows it";
    if (ui_queued(u, s)) return "";
    return list_selected(u, s) >= 0 ? "that job runs already: s stops it" : "the queue is empty";
}

static const char *refuse_delete(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (u->view == VIEW_JOBS) return refuse_queued(u, s);
    if (u->read_only) return READ_ONLY;
    if (u->view != VIEW_HISTORY) return "only runs of the history can be deleted: 4 shows it";
    if (!r) return "there is no run to delete";
    return strcmp(r->state, "running") ? "" : "that run is being measured: s stops it";
}

static const char *refuse_compare(const struct ui *u, const struct snapshot *s)
{
    int64_t id[MARKED];
    return ui_compared(u, s, id) ? "" : "mark two runs first, with space in the history (4)";
}

static const char *refuse_verify(const struct ui *u, const struct snapshot *s)
{
    if (!ui_advice(u, s)) return "no advice is selected: a computes advice, 3 shows it";
    return refuse_check(u, s);
}

/* For commands about the selected run, or the one on screen. */
static const char *refuse_run_command(const struct ui *u, const struct snapshot *s)
{
    if (!ui_run_id(u, s)) return "there is no run: b starts an A/B, 4 lists earlier runs";
    return refuse_command(u, s);
}

/* What an invalid or failed run measured must not be used; the selected run of the history, or the one on
 * screen. */
static const char *refuse_invalid(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    const struct experiment_state *x = &s->experiment;
    if (r ? !strcmp(r->verdict, verdict_name(VERDICT_INVALID)) : x->verdict == VERDICT_INVALID)
        return "the run is invalid: its log says why; r or b measures again";
    if (r ? !strcmp(r->state, "failed") : x->phase == PHASE_FAILED)
        return "the run failed: its log says why; b measures again";
    return "";
}

static const char *refuse_baseline(const struct ui *u, const struct snapshot *s)
{
    const char *no = refuse_run_command(u, s);
    return *no || u->view == VIEW_TUNE ? no : refuse_invalid(u, s);
}

static const char *refuse_report(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (r && strcmp(r->kind, "ab")) return "reports exist for A/Bs only: select one (Enter shows this run)";
    return refuse_run_command(u, s);
}

static const char *refuse_apply(const struct ui *u, const struct snapshot *s)
{
    const struct run_line *r = ui_run(u, s);
    if (ui_advice(u, s)) return refuse_command(u, s);
    if (u->view == VIEW_TUNE) return refuse_candidate(u, s);
    if (r && strcmp(r->kind, "ab"))
        return "only the winner of an A/B can be applied: select an A/B, or an advice (3)";
    if (!ui_run_id(u, s)) return "nothing to apply: select an advice (3) or an A/B (4)";
    const char *no = refuse_run_command(u, s);
    return *no ? no : refuse_invalid(u, s);
}

/* For commands about the model on screen. */
static const char *refuse_model_command(const struct ui *u, const struct snapshot *s)
{
    const char *no = refuse_command(u, s);
    return *no ? no : refuse_no_model(s);
}

static const char *refuse_undo(const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_HISTORY && u->deleted_count) return "";
    if (u->view == VIEW_JOBS) return s->queue_restorable ? "" : "no job was removed from the queue";
    return refuse_model_command(u, s);
}

static const char *refuse_tune(const struct ui *u, const struct snapshot *s)
{
    return s->tune.running ? "" : refuse_start(u, s); /* a running one is shown */
}

static const char *refuse_output(const struct ui *u, const struct snapshot *s)
{
    (void)u;
    return s->page.number ? "" : "no command has run yet: : lists the commands";
}

const char *action_refusal(enum action action, const struct ui *u, const struct snapshot *s)
{
    typedef const char *refuse_fn(const struct ui *u, const struct snapshot *s);
#define REFUSAL_OF(name, keys, texts, refuse, command, effect) [DO_##name] = (refuse),
    static refuse_fn *const RULES[ACTION_COUNT] = { ACTION_LIST(REFUSAL_OF, REFUSAL_OF, REFUSAL_OF,
                                                                REFUSAL_OF) };
#undef REFUSAL_OF
    return RULES[action] ? RULES[action](u, s) : "";
}

int action_view(enum action action)
{
#define NO_VIEW(name, keys, texts, refuse, command, effect) [DO_##name] = -1,
#define VIEW_OF(name, keys, texts, refuse, command, view)   [DO_##name] = (view),
    static const int VIEWS_SHOWN[ACTION_COUNT] = { [DO_NOTHING] = -1,
                                                   ACTION_LIST(NO_VIEW, VIEW_OF, NO_VIEW, NO_VIEW) };
#undef NO_VIEW
#undef VIEW_OF
    return VIEWS_SHOWN[action];
}

bool refused_by_read_only(enum action action, const struct ui *u, const struct snapshot *s)
{
    return action_refusal(action, u, s) == READ_ONLY; /* this reason, whatever its text */
}
