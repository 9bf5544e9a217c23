/* tui/dashboard/actions_experiment.c - experiments, advice, and two configurations that write side by side.
 */
#include "tui/dashboard/actions.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- the form of an A/B */

/* The workload of the `qdyno ab` command that checks an advice. */
static void workload_of_check(const char *check, char *out, size_t size)
{
    const char *flag = strstr(check, " -w ");
    if (flag) snprintf(out, size, "%.*s", (int)MIN(strcspn(flag + 4, " "), size - 1), flag + 4);
}

/* Arm A of the next A/B: that of the experiment on screen, else the command line's, else what is applied to
 * the model. */
static const char *first_arm(const struct ui *ui, const struct snapshot *s)
{
    if (s->experiment_known) return s->experiment.arm[0].line;
    if (ui->default_arm[0]) return ui->default_arm[0];
    return s->applied[0] ? s->applied : "default";
}

static const char *second_arm(const struct ui *ui, const struct snapshot *s, const char *otherwise)
{
    if (s->experiment_known) return s->experiment.arm[1].line;
    return ui->default_arm[1] ? ui->default_arm[1] : otherwise;
}

/* advice NULL: the arms and the workload of the last A/B. */
static void open_ab_form(struct ui *ui, const struct snapshot *s, const struct advice *advice)
{
    char workload[600] = "tg64";
    const char *first = first_arm(ui, s), *second = second_arm(ui, s, proposed_line(s, first));
    if (ui->default_workload) snprintf(workload, sizeof workload, "%s", ui->default_workload);
    if (s->experiment_known) workload_line(&s->experiment.spec.workload, workload, sizeof workload);
    if (advice) {
        first = "default";
        second = advice->line;
        workload_of_check(advice->check, workload, sizeof workload);
    }
    form_show(&ui->form, FORM_AB,
              (const char *const[FORM_FIELDS]){ *first ? first : "default", second, workload });
}

struct effect action_new_ab(struct ui *ui, const struct snapshot *s)
{
    open_ab_form(ui, s, NULL);
    return effect_none();
}

/* Measure quality, too, when the advice changes what the model answers. */
static void open_verify_form(struct ui *ui, const struct snapshot *s)
{
    const struct advice *a = ui_advice(ui, s);
    bool changes = false;
    if (!a) return;
    open_ab_form(ui, s, a);
    for (int k = 0; k < KNOB_COUNT; k++) changes |= a->config.given[k] && KNOBS[k].changes_answers;
    if (changes && !s->model.random_weights) form_put(&ui->form, AB_QUALITY, "yes");
}

struct effect action_verify(struct ui *ui, const struct snapshot *s)
{
    const struct advice *a = ui_advice(ui, s);
    if (a && !strcmp(a->line, "default")) { /* an A/B of the default against itself says nothing */
        return effect_command("%s", a->check);
    }
    open_verify_form(ui, s);
    return action_form_accept(ui, s);
}

struct effect action_ab_with_setting(struct ui *ui, const struct snapshot *s, const struct knob *k)
{
    char why[300], a[FORM_TEXT], b[FORM_TEXT], workload[FORM_TEXT];
    if (action_refusal(DO_NEW_AB, ui, s, why, sizeof why)[0]) return effect_error("%s: %s", k->key, why);
    open_ab_form(ui, s, NULL);
    memcpy(a, ui->form.field[AB_A].text, sizeof a);
    memcpy(workload, ui->form.field[AB_WORKLOAD].text, sizeof workload);
    const bool plain = !strcmp(a, "default");
    const int n = snprintf(b, sizeof b, "%s%s%s=", plain ? "" : a, plain ? "" : ",", k->key);
    form_show(&ui->form, FORM_AB, (const char *const[FORM_FIELDS]){ a, b, workload });
    ui->form.focus = AB_B;
    if (n >= (int)sizeof b) return effect_error("arm A is too long to add a setting to it");
    return effect_none();
}

/* ---------------------------------------------------------------- changing a setting */

struct effect action_change_setting(struct ui *ui, const struct snapshot *s, const struct knob *k)
{
    char text[FORM_TEXT], value[FORM_TEXT - 64];
    const enum knob_id id = (enum knob_id)(k - KNOBS);
    if (id == KNOB_MODEL) return action_model(ui, s); /* another model, not a setting of this one */
    snprintf(text, sizeof text, "%s=%s", k->key, knob_applied(s, id, value, sizeof value));
    form_show(&ui->form, FORM_SETTING, (const char *const[FORM_FIELDS]){ text });
    return effect_none();
}

struct effect action_set(struct ui *ui, const struct snapshot *s)
{
    char line[CONFIG_LINE], workload[600];
    struct err why = { 0 };
    struct form *f = &ui->form;
    if (knob_changed_line(s, f->field[0].text, line, sizeof line, &why))
        return effect_error("%s", why.message);
    if (!strcmp(f->field[1].text, "compare")) {
        snprintf(workload, sizeof workload, "%s", ui->default_workload ? ui->default_workload : "tg64");
        form_show(f, FORM_AB,
                  (const char *const[FORM_FIELDS]){ s->applied[0] ? s->applied : "default", line, workload });
        return effect_none();
    }
    struct effect e = { .requests = REQUEST_RUN_COMMAND };
    equivalent_command(DO_APPLY, ui, s, e.command, sizeof e.command);
    form_hide(f);
    return e;
}

/* ---------------------------------------------------------------- starting, stopping, pausing */

struct effect action_start_ab(struct ui *ui, const struct snapshot *s)
{
    const struct form *f = &ui->form;
    struct effect e = { .requests = REQUEST_START_EXPERIMENT | REQUEST_SHOW_COMMAND | REQUEST_LOG_COMMAND };
    const char *quality = f->field[AB_QUALITY].text;
    job_put_text(&e.job, START_A, f->field[AB_A].text);
    job_put_text(&e.job, START_B, f->field[AB_B].text);
    job_put_text(&e.job, START_MODEL, s->model_path);
    job_put_text(&e.job, START_WORKLOAD, f->field[AB_WORKLOAD].text);
    job_put_text(&e.job, START_MORE, f->field[AB_MORE].text);
    job_put_text(&e.job, START_QUALITY, form_says_no(quality) ? "" : quality);
    job_put_text(&e.job, START_MARGIN, f->field[AB_MARGIN].text);
    job_put_text(&e.job, START_BUDGET, f->field[AB_BUDGET].text);
    e.job.other_id = ui->when_busy;
    equivalent_command(DO_NEW_AB, ui, s, e.command, sizeof e.command);
    return e;
}

/* An A/B that used up its time without a verdict continues with the time that its text names, else with as
 * much again, or what the person sets. A run that is not on screen gets the time that it needs as soon as it
 * is read (action_follow_forecast). */
static struct effect resume_undecided(struct ui *ui, const struct snapshot *s)
{
    bool is_tune;
    char budget[32] = "5m", needed[FORECAST_BUDGET] = "";
    const int64_t id = ui_resumed_id(ui, s, &is_tune);
    const bool here = s->experiment_known && s->experiment.run_id == id;
    const double had = here ? s->experiment.spec.budget_s : 0;
    if (had > 0)
        snprintf(budget, sizeof budget, had >= 60 ? "%.0fm" : "%.0fs", had >= 60 ? ceil(had / 60) : had);
    if (here && *experiment_resume_budget(needed, &s->experiment, s->experiment.blocks_needed))
        snprintf(budget, sizeof budget, "%s", needed);
    form_show(&ui->form, FORM_RESUME, (const char *const[FORM_FIELDS]){ budget });
    ui->form.about = id;
    return effect_none();
}

struct effect action_resume_with(struct ui *ui, const struct snapshot *s)
{
    struct effect e = { .requests = REQUEST_START_EXPERIMENT | REQUEST_SHOW_COMMAND,
                        .job = { .id = ui->form.about, .other_id = ui->when_busy } };
    job_put_text(&e.job, START_BUDGET, ui->form.field[0].text);
    equivalent_command(DO_RESUME, ui, s, e.command, sizeof e.command);
    action_enter_view(ui, VIEW_LIVE);
    return e;
}

struct effect action_resume(struct ui *ui, const struct snapshot *s)
{
    bool is_tune;
    if (ui_resumes_undecided(ui, s)) return resume_undecided(ui, s);
    struct effect e = { .job = { .id = ui_resumed_id(ui, s, &is_tune), .other_id = ui->when_busy } };
    equivalent_command(DO_RESUME, ui, s, e.command, sizeof e.command);
    e.requests = is_tune ? REQUEST_RUN_COMMAND : REQUEST_START_EXPERIMENT | REQUEST_SHOW_COMMAND;
    action_enter_view(ui, is_tune ? VIEW_TUNE : VIEW_LIVE);
    return e;
}

struct effect action_stop(struct ui *ui, const struct snapshot *s)
{
    const bool writing = s->write_known && s->write.running;
    if (s->tune.running && !writing && !snapshot_is_running(s)) {
        action_enter_view(ui, VIEW_TUNE);
        return effect_request(REQUEST_CANCEL_COMMAND);
    }
    if (s->command[0] && !writing && !snapshot_is_running(s)) return effect_request(REQUEST_CANCEL_COMMAND);
    struct effect e = effect_message(
        writing ? "stopping both arms" : "stopping the experiment; finished blocks are kept, r resumes");
    e.requests = writing ? REQUEST_STOP_WRITING : REQUEST_STOP_EXPERIMENT;
    if (!writing) ui->waiting_to_start = false;
    return e;
}

struct effect action_pause(struct ui *ui, const struct snapshot *s)
{
    ui->until_quiet = false;
    const bool pause = !s->experiment.pausing && !s->experiment.paused_since_ms;
    struct effect e = effect_message(pause ? "pausing after this cell; | continues" : "continuing");
    e.requests = pause ? REQUEST_PAUSE_EXPERIMENT : REQUEST_CONTINUE_EXPERIMENT;
    return e;
}

struct effect action_advise(struct ui *ui, const struct snapshot *s)
{
    struct effect e = effect_job(QUEUE_PROCESSOR, job_advise, s->model_path);
    e.requests = REQUEST_RESERVE_PROBE | REQUEST_SHOW_COMMAND;
    equivalent_command(DO_ADVISE, ui, s, e.command, sizeof e.command);
    return e;
}

struct effect action_kernels(struct ui *ui, const struct snapshot *s)
{
    struct effect e = { .requests = REQUEST_RUN_COMMAND };
    equivalent_command(DO_KERNELS, ui, s, e.command, sizeof e.command);
    return e;
}

/* Open the selected row: a setting, a run, its details, or the A/B that checks an advice. */
struct effect action_open(struct ui *ui, const struct snapshot *s)
{
    struct text_page page;
    if (ui->view == VIEW_TUNE && !tune_row_opened(ui, s)) return action_apply(ui, s);
    if (ui->view == VIEW_SETTINGS) {
        const int row = MAX(list_selected(ui, s), 0);
        return action_change_setting(ui, s, &KNOBS[row < KNOB_COUNT ? row : (int)knob_row_absent(row)->knob]);
    }
    if (list_details(&page, ui, s)) {
        ui->explains = true;
        ui->explains_row = 0;
        return effect_none();
    }
    if (ui->view != VIEW_HISTORY) {
        open_verify_form(ui, s);
        return effect_none();
    }
    const struct run_line *r = ui_run(ui, s);
    if (r && strcmp(r->kind, "ab") != 0) { /* only an A/B has a view; other runs are shown as text */
        struct effect e = effect_command("qdyno show %lld", (long long)r->id);
        e.opens_output = true;
        return e;
    }
    struct effect e = effect_job(QUEUE_DATABASE, job_load_run, NULL);
    e.job.id = ui_run_id(ui, s);
    action_enter_view(ui, VIEW_AB);
    return e;
}

/* ---------------------------------------------------------------- side by side */

/* Offers the configurations of the last side-by-side continuation, else those of the last A/B. */
struct effect action_write(struct ui *ui, const struct snapshot *s)
{
    const bool again = s->write_known;
    const char *first = again                 ? s->write.arm[0].line
                        : s->experiment_known ? s->experiment.arm[0].line
                        : ui->default_arm[0]  ? ui->default_arm[0]
                                              : "default";
    const char *second = again ? s->write.arm[1].line : second_arm(ui, s, proposed_method(s));
    form_show(&ui->form, FORM_WRITE,
              (const char *const[FORM_FIELDS]){ again ? s->write.prompt : "One day",
                                                *first ? first : "default", *second ? second : "default" });
    action_enter_view(ui, VIEW_WRITE);
    return effect_none();
}

struct effect action_start_writing(struct ui *ui, const struct snapshot *s)
{
    struct effect e = { .requests = REQUEST_START_WRITING };
    for (int i = 0; i <= SIDEBYSIDE_ARMS; i++) job_put_text(&e.job, i, ui->form.field[i].text);
    equivalent_command(DO_WRITE, ui, s, e.command, sizeof e.command);
    return e;
}
