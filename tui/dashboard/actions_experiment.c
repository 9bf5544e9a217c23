/* tui/dashboard/actions_experiment.c - experiments and advice: what is asked for, when it may begin, and on
 * what. */
#include "tui/dashboard/actions.h"

#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"

void dashboard_start(struct dashboard *d, const struct job *start)
{
    d->pending = *start;
    d->pending.run = job_start_experiment;
    d->ui.waiting_to_start = true;
    dashboard_start_pending(d);
}

void dashboard_start_pending(struct dashboard *d)
{
    bool ready;
    background_sampler(d->background, &ready);
    if (!d->ui.waiting_to_start || !ready || d->s->probing || dashboard_is_running(d)) return;
    /* A probe that was asked for but has not begun yet would begin beside the first cell. */
    if (!d->s->ceilings_known && d->s->advice_state[0]) return;
    pthread_mutex_lock(&d->background->lock);
    d->background->known.experiment_starting = true;
    pthread_mutex_unlock(&d->background->lock);
    d->ui.waiting_to_start = false;
    actions_put(d, d->storage, &d->pending);
}

/* The workload an advice wants to be checked on: what its command says. */
static void workload_of_check(const char *check, char *out, size_t size)
{
    const char *flag = strstr(check, " -w ");
    if (flag) snprintf(out, size, "%.*s", (int)MIN(strcspn(flag + 4, " "), size - 1), flag + 4);
}

/* What is compared with: what was last, what the command line gave, what is applied to the model. */
static const char *first_arm(const struct dashboard *d)
{
    const struct snapshot *s = d->s;
    if (s->experiment_known) return s->experiment.arm[0].line;
    if (d->options->arms[0]) return d->options->arms[0];
    return s->applied[0] ? s->applied : "default";
}

/* advice NULL: what was compared last, or what the command line gave. */
static void open_ab_form(struct dashboard *d, const struct advice *advice)
{
    const struct snapshot *s = d->s;
    const struct dashboard_options *o = d->options;
    char workload[600] = "tg64";
    if (o->workload) snprintf(workload, sizeof workload, "%s", o->workload);
    if (s->experiment_known) workload_line(&s->experiment.spec.workload, workload, sizeof workload);
    const char *first = first_arm(d);
    const char *second = s->experiment_known ? s->experiment.arm[1].line : o->arms[1] ? o->arms[1] : "q8_0";
    if (advice) {
        first = "default";
        second = advice->line;
        workload_of_check(advice->check, workload, sizeof workload);
    }
    form_show(&d->ui.form, FORM_AB,
              (const char *const[FORM_FIELDS]){ *first ? first : "default", second, workload });
}

/* ---------------------------------------------------------------- what keys do */

void actions_do_new_ab(struct dashboard *d)
{
    open_ab_form(d, NULL);
}

void actions_do_stop(struct dashboard *d)
{
    if (dashboard_is_writing(d)) {
        sidebyside_stop(d->write);
        dashboard_toast(d, false, "stopping both");
        return;
    }
    d->ui.waiting_to_start = false;
    if (d->experiment) experiment_stop(d->experiment);
    dashboard_toast(d, false, "stopping; what is finished is kept, r resumes");
}

/* A process that stands still cannot watch what it measures: the pause comes first. */
void dashboard_suspend(struct dashboard *d)
{
    const struct experiment_state *x = &d->s->experiment;
    if (!d->screen) return;
    d->suspending = true;
    if (!dashboard_is_running(d) || x->paused_since_ms) return;
    experiment_pause(d->experiment, true);
    dashboard_toast(d, false, "to the shell after this cell; the experiment is paused meanwhile");
}

void dashboard_suspend_pending(struct dashboard *d)
{
    const struct experiment_state *x = &d->s->experiment;
    const bool running = dashboard_is_running(d);
    if (!d->suspending || (running && !x->paused_since_ms)) return;
    d->suspending = false;
    screen_suspend(d->screen);
    if (running && !d->paused_by_hand) experiment_pause(d->experiment, false);
}

void actions_do_pause(struct dashboard *d)
{
    const struct experiment_state *x = &d->s->experiment;
    const bool wait = !x->pausing && !x->paused_since_ms;
    d->paused_by_hand = wait;
    experiment_pause(d->experiment, wait);
    dashboard_toast(d, false, wait ? "pausing after this cell; P goes on" : "going on");
}

void actions_do_resume(struct dashboard *d)
{
    char command[256];
    struct job j = { .id = ui_run_id(&d->ui, d->s) };
    action_command(DO_RESUME, &d->ui, d->s, command, sizeof command);
    dashboard_start(d, &j);
    d->ui.view = VIEW_LIVE;
    dashboard_toast(d, false, "$ %s", command);
}

void actions_do_advise(struct dashboard *d)
{
    char command[800];
    struct job j = { .run = job_advise };
    job_put_text(&j, 0, d->s->model_path);
    pthread_mutex_lock(&d->background->lock); /* at once, so that no A/B slips in before the job */
    snprintf(d->background->known.advice_state, sizeof d->background->known.advice_state, "about to begin");
    pthread_mutex_unlock(&d->background->lock);
    actions_put(d, d->slow, &j);
    action_command(DO_ADVISE, &d->ui, d->s, command, sizeof command);
    dashboard_toast(d, false, "$ %s", command);
}

void actions_do_open(struct dashboard *d)
{
    const struct run_line *r = ui_run(&d->ui, d->s);
    if (d->ui.view == VIEW_SETTINGS) {
        actions_form_with_setting(d, &KNOBS[d->ui.selected[VIEW_SETTINGS]]);
        return;
    }
    if (r && strcmp(r->kind, "ab") != 0) { /* what has no view of its own is read as text */
        char line[64];
        snprintf(line, sizeof line, "show %lld", (long long)r->id);
        actions_command_start(d, line, NULL, COMMAND_SHOWS);
        return;
    }
    if (d->ui.view == VIEW_HISTORY) {
        struct job j = { .run = job_load_run, .id = ui_run_id(&d->ui, d->s) };
        actions_put(d, d->storage, &j);
        d->ui.view = VIEW_AB;
        return;
    }
    actions_verify_form(d);
}

/* Answers that change are compared, too. */
void actions_verify_form(struct dashboard *d)
{
    const struct advice *a = ui_advice(&d->ui, d->s);
    bool changes = false;
    if (!a) return;
    open_ab_form(d, a);
    for (int k = 0; k < KNOB_COUNT; k++) changes |= a->config.given[k] && KNOBS[k].changes_answers;
    if (changes && !d->s->model.random_weights) form_put(&d->ui.form, AB_QUALITY, "yes");
}

/* An A/B of what there is against the same with this setting, ready for its value. */
void actions_form_with_setting(struct dashboard *d, const struct knob *k)
{
    char why[300];
    if (action_refusal(DO_NEW_AB, &d->ui, d->s, why, sizeof why)[0]) {
        dashboard_toast(d, true, "%s: %s", k->key, why);
        return;
    }
    open_ab_form(d, NULL);
    struct form *f = &d->ui.form;
    char a[FORM_TEXT], b[FORM_TEXT], workload[FORM_TEXT];
    memcpy(a, f->field[0].text, sizeof a);
    memcpy(workload, f->field[2].text, sizeof workload);
    const bool plain = !strcmp(a, "default");
    const int n = snprintf(b, sizeof b, "%s%s%s=", plain ? "" : a, plain ? "" : ",", k->key);
    if (n >= (int)sizeof b) dashboard_toast(d, true, "arm A is too long for one more setting");
    form_show(f, FORM_AB, (const char *const[FORM_FIELDS]){ a, b, workload });
    f->focus = 1;
}
