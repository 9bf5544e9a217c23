/* tui/frame/equivalent_command.c - the command that does the same as an action, with the values on screen, as
 * an argument vector. It is shown below every view and form, started or logged when the action is done, and
 * can be copied. */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"
#include "telemetry/http/http.h"

static const char *model_word(const char *path)
{
    return *path ? path : "MODEL";
}

/* "qdyno COMMAND -m MODEL" of the model on screen. */
static void put_of_model(struct words *out, const char *command, const struct snapshot *s)
{
    WORDS_PUT(out, "qdyno", command, "-m", model_word(s->model_path));
}

static void put_of_run(struct words *out, const char *command, const char *flag, int64_t id)
{
    WORDS_PUT(out, "qdyno", command);
    if (flag) words_put(out, flag);
    words_printf(out, "%lld", (long long)id);
}

/* ---------------------------------------------------------------- A/B */

/* Flags for the fields of the A/B form that differ from their defaults. */
static void put_form_options(struct words *out, const struct form *f)
{
    const char *quality = f->field[AB_QUALITY].text, *margin = f->field[AB_MARGIN].text,
               *budget = f->field[AB_BUDGET].text;
    double value;
    if (!form_says_no(quality)) {
        if (strcmp(quality, "yes"))
            words_put_path(out, "--quality=", quality);
        else
            words_put(out, "--quality");
    }
    if (!str_to_ratio(margin, &value) || fabs(value - EXPERIMENT_MARGIN) > 1e-9)
        WORDS_PUT(out, "--margin", margin);
    if (!str_to_seconds(budget, &value) || fabs(value - EXPERIMENT_BUDGET_S) > 1e-9)
        WORDS_PUT(out, "--budget", budget);
}

static void put_value(struct words *out, const char *flag, double value, const char *unit)
{
    words_put(out, flag);
    words_printf(out, "%g%s", value, unit);
}

/* The same of the experiment on screen: what the person gave, and not the defaults. */
static void put_experiment_options(struct words *out, const struct experiment_spec *spec)
{
    char workload[WORKLOAD_LINE];
    if (spec->quality_file[0]) words_put_path(out, "--quality=", spec->quality_file);
    if (spec->margin > 0 && fabs(spec->margin - EXPERIMENT_MARGIN) > 1e-9)
        put_value(out, "--margin", 100 * spec->margin, "%");
    if (spec->budget_s > 0 && fabs(spec->budget_s - EXPERIMENT_BUDGET_S) > 1e-9)
        put_value(out, "--budget", spec->budget_s, "s");
    if (spec->gate[0]) WORDS_PUT(out, "--gate", spec->gate);
    if (spec->race) words_put(out, "--race");
    if (spec->wait_quiet_s > 0) put_value(out, "--wait-quiet", spec->wait_quiet_s, "s");
    if (spec->estimand == ESTIMAND_LOADED) WORDS_PUT(out, "--estimand", "loaded");
    if (!spec->by_arm) return;
    WORDS_PUT(out, "-w", workload_line(experiment_workload(spec, 1), workload, sizeof workload));
    if (spec->as_systems) words_put(out, "--as-systems");
}

static void put_wait_quiet(struct words *out)
{
    WORDS_PUT(out, "--wait-quiet");
    words_printf(out, "%dm", WAIT_QUIET_S / 60);
}

/* "qdyno ab -m MODEL A B C -w WORKLOAD"; arms that are NULL or "" are left out. */
static void put_ab(struct words *out, const char *model, const char *const arm[], int arms,
                   const char *workload)
{
    WORDS_PUT(out, "qdyno", "ab");
    if (model[0]) WORDS_PUT(out, "-m", model);
    for (int i = 0; i < arms; i++)
        if (arm[i] && arm[i][0]) words_put(out, arm[i]);
    WORDS_PUT(out, "-w", workload);
}

void experiment_command(struct words *out, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    const char *arm[EXPERIMENT_ARMS];
    char workload[WORKLOAD_LINE];
    for (int i = 0; i < experiment_arms(&x->spec); i++) arm[i] = x->arm[i].line;
    workload_line(experiment_workload(&x->spec, 0), workload, sizeof workload);
    put_ab(out, x->spec.model[0] ? x->spec.model : s->model_path, arm, experiment_arms(&x->spec), workload);
    put_experiment_options(out, &x->spec);
}

static const char *applied_line(const struct snapshot *s)
{
    return s->applied[0] ? s->applied : "default";
}

static void command_ab(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    if (f->kind != FORM_AB && s->experiment_known) {
        experiment_command(out, s);
        return;
    }
    if (f->kind == FORM_AB) {
        const char *const typed[] = { f->field[AB_A].text, f->field[AB_B].text, f->field[AB_MORE].text };
        put_ab(out, s->model_path, typed, COUNT_OF(typed), f->field[AB_WORKLOAD].text);
        put_form_options(out, f);
    } else {
        const char *const usual[] = { applied_line(s), proposed_line(s, applied_line(s)) };
        put_ab(out, s->model_path, usual, COUNT_OF(usual), CONFIRM_WORKLOAD);
    }
    if (u->when_busy == BUSY_WAIT) put_wait_quiet(out);
    if (u->when_busy == BUSY_LOADED) WORDS_PUT(out, "--estimand", "loaded");
}

void resume_command(struct words *out, const struct ui *u, int64_t id)
{
    put_of_run(out, "ab", "--resume", id);
    if (u->form.kind == FORM_RESUME) WORDS_PUT(out, "--budget", u->form.field[0].text);
    if (u->when_busy == BUSY_WAIT) put_wait_quiet(out);
}

static void command_resume(struct words *out, const struct ui *u, const struct snapshot *s)
{
    bool is_tune;
    const int64_t id = ui_resumed_id(u, s, &is_tune);
    if (is_tune && u->form.kind != FORM_RESUME)
        put_of_run(out, "tune", "--resume", id);
    else
        resume_command(out, u, u->form.kind == FORM_RESUME ? u->form.about : id);
}

/* The A/B of the advice against the defaults; of the defaults themselves the measurement that their check
 * proposes. Nothing for the GPU: another program checks that. */
static void command_verify(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct advice *a = ui_advice(u, s);
    if (!a || a->prediction.on_gpu) return;
    if (strcmp(a->line, "default")) {
        const char *const arms[] = { "default", a->line };
        put_ab(out, s->model_path, arms, COUNT_OF(arms), a->workload[0] ? a->workload : CONFIRM_WORKLOAD);
        return;
    }
    put_of_model(out, "bench", s); /* an A/B of the default against itself says nothing */
    WORDS_PUT(out, "-n", "64", "-d");
    words_printf(out, "%d", a->prediction.depth);
}

/* ---------------------------------------------------------------- the model */

static void command_advise(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)u;
    put_of_model(out, "advise", s);
}

static void command_kernels(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)u;
    (void)s;
    WORDS_PUT(out, "qdyno", "detect", "--probe", "--kernels");
}

/* Measures the file quantized last against its source; else the selected config again; with no row yet, an
 * example that measures the first one. */
static void command_quality(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const int i = u->view == VIEW_QUALITY ? list_selected(u, s) : -1;
    const struct quality_result *q = i >= 0 ? &s->quality.line[i] : NULL;
    put_of_model(out, "eval", s);
    if (ui_written_unmeasured(s)) {
        const bool result = !strcmp(s->model_path, s->written);
        WORDS_PUT(out, "-C", result ? "default" : s->written_recipe, "--ref");
        if (result)
            words_put_path(out, "model=", s->written_from);
        else
            words_put(out, "default");
        return;
    }
    WORDS_PUT(out, "-C", q ? q->config : proposed_method(s), "--ref", q ? q->reference : "default");
}

/* The same on the text that the form names, which becomes the text of the model. */
static void command_model_text(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const char *text = u->form.kind == FORM_MODEL_TEXT ? u->form.field[0].text : "TEXT";
    const int i = u->view == VIEW_QUALITY ? list_selected(u, s) : -1;
    const struct quality_result *q = i >= 0 ? &s->quality.line[i] : NULL;
    put_of_model(out, "eval", s);
    if (*text) {
        words_put(out, "-f");
        words_put_path(out, "", text);
    }
    WORDS_PUT(out, "--set-text", "-C", q ? q->config : proposed_method(s), "--ref",
              q ? q->reference : "default");
}

void memory_command(struct words *out, const struct snapshot *s)
{
    struct str contexts = { 0 };
    put_of_model(out, "fit", s);
    for (int i = 0; i < s->summary.contexts; i++)
        str_printf(&contexts, "%s%lld", i ? "," : "", (long long)s->summary.context[i]);
    if (s->summary.contexts) WORDS_PUT(out, "-c", str_text(&contexts));
    WORDS_PUT(out, "-C", "kv=q8_0");
    str_free(&contexts);
}

void experts_command(struct words *out, const struct snapshot *s)
{
    put_of_model(out, "info", s);
    WORDS_PUT(out, "--experts", "TEXT");
}

/* The pane with the memory has a command of its own. */
static void command_model(struct words *out, const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_MODEL && u->pane[VIEW_MODEL] == MODEL_MEMORY + 1)
        memory_command(out, s);
    else
        WORDS_PUT(out, "qdyno", "info", "--tensors", "-m", model_word(s->model_path));
}

/* Until a file is chosen, no command opens it. */
static void command_other_model(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)s;
    if (u->form.kind != FORM_MODEL || u->form.field[0].error[0]) return;
    WORDS_PUT(out, "qdyno", "dashboard", "-m");
    words_put_path(out, "", u->form.field[0].text);
}

static void command_load(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const int i = u->view == VIEW_LOAD ? list_selected(u, s) : -1;
    if (s->load_source == LOAD_OF_SERVER) {
        WORDS_PUT(out, "qdyno", "dashboard", "--server", s->server.url);
    } else if (s->load_source == LOAD_OF_EXPERIMENT) {
        experiment_command(out, s);
    } else {
        put_of_model(out, "bench", s);
        WORDS_PUT(out, "-w", i >= 0 ? s->load.line[i].workload : "pp128+tg64@b8");
    }
}

static void command_quantize(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_QUANTIZE;
    const char *calib = typed ? f->field[QUANTIZE_CALIBRATION].text : "";
    WORDS_PUT(out, "qdyno", "quantize", model_word(s->model_path));
    words_put_path(out, "", typed ? f->field[QUANTIZE_OUT].text : "OUT");
    WORDS_PUT(out, "-R", typed ? f->field[QUANTIZE_RECIPE].text : "q4_K");
    if (!*calib) return;
    words_put(out, "--calib");
    words_put_path(out, "", calib);
}

static void command_calibrate(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_CALIBRATE;
    WORDS_PUT(out, "qdyno", "calibrate", model_word(s->model_path));
    if (typed && f->field[0].text[0]) {
        words_put(out, "-f");
        words_put_path(out, "", f->field[0].text);
    }
    words_put(out, "--out");
    words_put_path(out, "", typed ? f->field[1].text : "FILE");
}

static void command_tune(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    put_of_model(out, "tune", s);
    if (u->when_busy == BUSY_WAIT) put_wait_quiet(out);
    if (f->kind != FORM_TUNE) return;
    WORDS_PUT(out, "--goal", f->field[0].text, "--budget", f->field[1].text);
    if (f->field[2].text[0]) WORDS_PUT(out, "--limit", f->field[2].text);
}

/* One `qdyno run` per arm: each prints the same continuation as the dashboard. */
static void command_write(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_WRITE;
    const char *prompt = typed ? f->field[0].text : s->write_known ? s->write.prompt : "One day";
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++) {
        const char *line = typed            ? f->field[1 + i].text
                           : s->write_known ? s->write.arm[i].line
                                            : (const char *const[]){ "default", proposed_method(s) }[i];
        out->second = out->n;
        put_of_model(out, "run", s);
        if (*line && strcmp(line, "default")) WORDS_PUT(out, "-C", line);
        WORDS_PUT(out, "-p", prompt);
    }
}

/* ---------------------------------------------------------------- what is applied */

/* The line with the changed setting: applied, or compared with what is in use. */
static void put_setting(struct words *out, const struct ui *u, const struct snapshot *s)
{
    char line[CONFIG_LINE];
    const bool compares = form_compares(&u->form);
    if (knob_changed_line(s, u->form.field[0].text, line, sizeof line, NULL))
        str_put(line, sizeof line, u->form.field[0].text);
    put_of_model(out, compares ? "ab" : "apply", s);
    if (compares)
        WORDS_PUT(out, applied_line(s), line);
    else /* "default": every setting is at its default */
        words_put(out, strcmp(line, "default") ? line : "--remove");
}

static void command_apply(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const struct advice *a = ui_advice(u, s);
    if (u->form.kind == FORM_SETTING) {
        put_setting(out, u, s);
    } else if (u->view == VIEW_TUNE) {
        WORDS_PUT(out, "qdyno", "apply", "-m", model_word(s->tune.model),
                  s->tune.candidate[0] ? s->tune.candidate : "CONFIG");
    } else if (a) {
        put_of_model(out, "apply", s);
        words_put(out, a->line);
    } else {
        put_of_run(out, "apply", "--run", ui_run_id(u, s));
    }
}

static void command_undo(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const bool tuned = u->view == VIEW_TUNE && s->tune.model[0];
    WORDS_PUT(out, "qdyno", "apply", "--undo", "-m", model_word(tuned ? s->tune.model : s->model_path));
}

/* ---------------------------------------------------------------- stored runs */

/* The run of the open form, else the selected one: the selection may change while a form is open. */
static int64_t result_run_id(const struct ui *u, const struct snapshot *s)
{
    return u->form.kind != FORM_CLOSED && u->form.about ? u->form.about : ui_run_id(u, s);
}

static void command_show(struct words *out, const struct ui *u, const struct snapshot *s)
{
    if (ui_run_id(u, s)) put_of_run(out, "show", NULL, ui_run_id(u, s));
}

static void command_open(struct words *out, const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_TUNE)
        command_apply(out, u, s);
    else if (u->view == VIEW_HISTORY)
        put_of_run(out, "show", NULL, ui_run_id(u, s));
    else
        command_verify(out, u, s);
}

static void command_compare(struct words *out, const struct ui *u, const struct snapshot *s)
{
    int64_t id[MARKED];
    if (!ui_compared(u, s, id)) return;
    put_of_run(out, "compare", NULL, id[0]);
    words_printf(out, "%lld", (long long)id[1]);
}

/* An address that can be pushed to has no place for a secret; of another one, only a part is shown. */
static void command_push(struct words *out, const struct ui *u, const struct snapshot *s)
{
    const char *url = u->form.kind == FORM_PUSH ? u->form.field[0].text : u->push_url;
    char shown[HTTP_SHOWN_MAX];
    if (!url[0]) return; /* until an address is typed, no command does it */
    put_of_run(out, "push", NULL, ui_run_id(u, s));
    words_put(out, "--url");
    words_put(out, http_url_check("", url, HTTP_URL_BASE, NULL) ? http_url_shown(url, HTTP_SHOW_PATH, shown)
                                                                : url);
    if (u->push_user) WORDS_PUT(out, "--user", u->push_user);
    if (u->push_ca) WORDS_PUT(out, "--ca", u->push_ca);
}

static void command_report(struct words *out, const struct ui *u, const struct snapshot *s)
{
    put_of_run(out, "report", NULL, result_run_id(u, s));
    words_put(out, "--out");
    words_put_path(out, "", u->form.kind == FORM_REPORT ? u->form.field[0].text : "FILE.html");
}

static void command_baseline(struct words *out, const struct ui *u, const struct snapshot *s)
{
    WORDS_PUT(out, "qdyno", "baseline", "set",
              u->form.kind == FORM_BASELINE ? u->form.field[0].text : "NAME");
    words_printf(out, "%lld", (long long)result_run_id(u, s));
}

static void command_history(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)s;
    WORDS_PUT(out, "qdyno", "history");
    if (u->filter[0]) WORDS_PUT(out, "--filter", u->filter);
}

static void command_detect(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)u;
    (void)s;
    WORDS_PUT(out, "qdyno", "detect");
}

static void command_knobs(struct words *out, const struct ui *u, const struct snapshot *s)
{
    (void)u;
    (void)s;
    WORDS_PUT(out, "qdyno", "help", "configs");
}

/* ---------------------------------------------------------------- of an action, of a screen */

void equivalent_command(struct words *out, enum action action, const struct ui *u, const struct snapshot *s)
{
    typedef void command_fn(struct words * out, const struct ui *u, const struct snapshot *s);
#define COMMAND_OF(name, keys, texts, refuse, command, effect) [DO_##name] = (command),
    static command_fn *const COMMANDS[ACTION_COUNT] = { ACTION_LIST(COMMAND_OF, COMMAND_OF, COMMAND_OF,
                                                                    COMMAND_OF) };
#undef COMMAND_OF
    if (COMMANDS[action]) COMMANDS[action](out, u, s);
}

void screen_command(struct words *out, const struct ui *u, const struct snapshot *s)
{
    static const enum action OF_VIEW[VIEW_COUNT] = {
        [VIEW_LIVE] = DO_NEW_AB,      [VIEW_AB] = DO_VIEW_AB,
        [VIEW_ADVICE] = DO_OPEN,      [VIEW_HISTORY] = DO_VIEW_HISTORY,
        [VIEW_MODEL] = DO_VIEW_MODEL, [VIEW_QUALITY] = DO_VIEW_QUALITY,
        [VIEW_LOAD] = DO_VIEW_LOAD,   [VIEW_SETTINGS] = DO_VIEW_SETTINGS,
        [VIEW_WRITE] = DO_WRITE,      [VIEW_TUNE] = DO_TUNE
    };
    enum action a = u->form.kind != FORM_CLOSED ? FORMS[u->form.kind].action : OF_VIEW[u->view];
    if (a == DO_OPEN && s->advice_count == 0) a = DO_ADVISE;
    equivalent_command(out, a, u, s);
}

void command_print(struct str *out, const struct ui *u, const struct words *command)
{
    if (!command->n) return;
    if (u->db_path) {
        struct arena arena = { 0 };
        struct words words = { .arena = &arena };
        WORDS_PUT(&words, "qdyno", "--db");
        words_put_path(&words, "", u->db_path);
        words_print(out, &words, 0);
        arena_free(&arena);
        str_append(out, " ");
        words_print(out, command, 1);
        return;
    }
    words_print(out, command, 0);
}

const char *command_shown(const struct ui *u, const struct words *command, char *buf, size_t size)
{
    struct str text = { 0 };
    command_print(&text, u, command);
    text_cut(buf, size, str_text(&text));
    str_free(&text);
    return buf;
}

const char *screen_command_shown(const struct ui *u, const struct snapshot *s, char *buf, size_t size)
{
    struct arena arena = { 0 };
    struct words words = { .arena = &arena };
    screen_command(&words, u, s);
    command_shown(u, &words, buf, size);
    arena_free(&arena);
    return buf;
}
