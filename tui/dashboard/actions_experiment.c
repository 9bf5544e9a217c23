/* tui/dashboard/actions_experiment.c - experiments, advice, and two configurations that write side by side.
 */
#include "tui/dashboard/actions.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- the form of an A/B */

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

static const char *usual_workload(const struct ui *ui)
{
    return ui->default_workload ? ui->default_workload : CONFIRM_WORKLOAD;
}

/* advice NULL: the arms and the workload of the last A/B. */
static void open_ab_form(struct ui *ui, const struct snapshot *s, const struct advice *advice)
{
    char line[WORKLOAD_LINE];
    const char *first = first_arm(ui, s), *second = second_arm(ui, s, proposed_line(s, first)),
               *workload = usual_workload(ui);
    if (s->experiment_known) workload = workload_line(&s->experiment.spec.workload, line, sizeof line);
    if (advice) {
        first = "default";
        second = advice->line;
        if (advice->workload[0]) workload = advice->workload;
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
    if (a && !strcmp(a->line, "default")) return effect_start(DO_VERIFY, ui, s, REQUEST_RUN_COMMAND);
    open_verify_form(ui, s);
    return action_form_accept(ui, s);
}

struct effect action_ab_with_setting(struct ui *ui, const struct snapshot *s, const struct knob *k)
{
    char a[FORM_TEXT], b[FORM_TEXT], workload[FORM_TEXT];
    const char *why = action_refusal(DO_NEW_AB, ui, s);
    if (*why) return effect_error("%s: %s", k->key, why);
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
    char line[CONFIG_LINE];
    struct err why = { 0 };
    struct form *f = &ui->form;
    if (knob_changed_line(s, f->field[0].text, line, sizeof line, &why))
        return effect_error("%s", why.message);
    if (form_compares(f)) {
        form_show(f, FORM_AB,
                  (const char *const[FORM_FIELDS]){ s->applied[0] ? s->applied : "default", line,
                                                    usual_workload(ui) });
        return effect_none();
    }
    const struct effect e = effect_start(DO_APPLY, ui, s, REQUEST_RUN_COMMAND);
    form_hide(f);
    return e;
}

/* ---------------------------------------------------------------- starting, stopping, pausing */

/* An A/B that used up its time without a verdict continues with the time that its text names, else with as
 * much again, or what the person sets. A run that is not on screen gets the time that it needs as soon as it
 * is read (action_follow_forecast). */
static struct effect resume_undecided(struct ui *ui, const struct snapshot *s)
{
    bool is_tune;
    char usual[FORM_USUAL], needed[FORECAST_BUDGET] = "";
    const char *budget = form_usual(ASK_BUDGET, usual);
    const int64_t id = ui_resumed_id(ui, s, &is_tune);
    const bool here = s->experiment_known && s->experiment.run_id == id;
    const double had = here ? s->experiment.spec.budget_s : 0;
    if (had > 0) {
        snprintf(usual, sizeof usual, had >= 60 ? "%.0fm" : "%.0fs", had >= 60 ? ceil(had / 60) : had);
        budget = usual;
    }
    if (here && *experiment_resume_budget(needed, &s->experiment, s->experiment.blocks_needed))
        budget = needed;
    form_show(&ui->form, FORM_RESUME, (const char *const[FORM_FIELDS]){ budget });
    ui->form.about = id;
    return effect_none();
}

struct effect action_resume(struct ui *ui, const struct snapshot *s)
{
    bool is_tune;
    if (ui_resumes_undecided(ui, s)) return resume_undecided(ui, s);
    ui_resumed_id(ui, s, &is_tune);
    const struct effect e = effect_start(DO_RESUME, ui, s, REQUEST_RUN_COMMAND);
    if (!e.is_error) action_enter_view(ui, is_tune ? VIEW_TUNE : VIEW_LIVE);
    return e;
}

struct effect action_stop(struct ui *ui, const struct snapshot *s)
{
    if (s->write_known && s->write.running) {
        struct effect e = effect_message("stopping both arms");
        e.requests = REQUEST_STOP_WRITING;
        return e;
    }
    if (s->tune.running) action_enter_view(ui, VIEW_TUNE);
    return effect_request(REQUEST_CANCEL_COMMAND);
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
    /* The command measures the limits of the machine; where they are known, its list is derived at once. */
    struct effect e = effect_start(DO_ADVISE, ui, s,
                                   s->ceilings_known ? REQUEST_SHOW_COMMAND : REQUEST_RUN_COMMAND);
    if (e.is_error || !s->ceilings_known) return e;
    e.job = (struct job){ .run = job_advise, .text = s->model_path };
    e.queue = QUEUE_PROCESSOR;
    return e;
}

struct effect action_kernels(struct ui *ui, const struct snapshot *s)
{
    return effect_start(DO_KERNELS, ui, s, REQUEST_RUN_COMMAND);
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
        struct effect e = effect_start(DO_OPEN, ui, s, REQUEST_RUN_COMMAND);
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
    enum { WRITE_TOKENS = 200 };
    struct err why = { 0 };
    struct effect e = effect_start(DO_WRITE, ui, s, REQUEST_START_WRITING);
    struct sidebyside_spec *spec = arena_alloc(&ui->texts, sizeof *spec);
    if (!spec || e.is_error) return effect_error("nothing was started: not enough memory");
    *spec = (struct sidebyside_spec){ .model = arena_strdup(&ui->texts, s->model_path),
                                      .prompt = arena_strdup(&ui->texts, ui->form.field[0].text),
                                      .tokens = WRITE_TOKENS };
    if (!spec->model || !spec->prompt) return effect_error("nothing was started: not enough memory");
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++)
        if (config_parse(&spec->config[i], ui->form.field[1 + i].text, &why))
            return effect_error("%s", why.message);
    e.writing = spec;
    return e;
}
