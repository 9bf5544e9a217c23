/* tui/frame/equivalent_command.c - the command line that does the same as an action, with the values on
 * screen. It is shown below every view and form, logged when the action is done, and can be copied. */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "telemetry/http/http.h"

/* Append `before` (a flag), then the path as a shell word, with ~ expanded. */
static void path_word(struct str *out, const char *before, const char *path)
{
    char whole[4096];
    str_append(out, before);
    word_append(out, form_path(path, whole, sizeof whole));
}

/* Flags for the fields of the A/B form that differ from their defaults. */
static void ab_options(struct str *out, const struct form *f)
{
    const char *quality = f->field[AB_QUALITY].text;
    if (!form_says_no(quality)) {
        str_append(out, " --quality");
        if (strcmp(quality, "yes")) path_word(out, "=", quality);
    }
    if (strcmp(f->field[AB_MARGIN].text, "1%")) str_printf(out, " --margin %s", f->field[AB_MARGIN].text);
    if (strcmp(f->field[AB_BUDGET].text, "5m")) str_printf(out, " --budget %s", f->field[AB_BUDGET].text);
}

/* The command has arms A and B: the workload of B, if it has its own. */
static void append_other_workloads(struct str *out, const struct experiment_spec *spec)
{
    char workload[600];
    if (!spec->by_arm) return;
    str_append(out, " -w ");
    word_append(out, workload_line(experiment_workload(spec, 1), workload, sizeof workload));
    if (spec->as_systems) str_append(out, " --as-systems");
}

/* The same of the experiment on screen: what the person gave, and not the defaults. */
static void experiment_options(struct str *out, const struct experiment_spec *spec)
{
    if (spec->quality_file[0]) path_word(out, " --quality=", spec->quality_file);
    if (spec->margin > 0 && fabs(spec->margin - EXPERIMENT_MARGIN) > 1e-9)
        str_printf(out, " --margin %g%%", 100 * spec->margin);
    if (spec->budget_s > 0 && fabs(spec->budget_s - EXPERIMENT_BUDGET_S) > 1e-9)
        str_printf(out, " --budget %gs", spec->budget_s);
    if (spec->gate[0]) path_word(out, " --gate ", spec->gate);
    if (spec->race) str_append(out, " --race");
    if (spec->wait_quiet_s > 0) str_printf(out, " --wait-quiet %gs", spec->wait_quiet_s);
    if (spec->estimand == ESTIMAND_LOADED) str_append(out, " --estimand loaded");
    append_other_workloads(out, spec);
}

static const char WAIT_QUIET[] = " --wait-quiet 10m";

/* "qdyno ab -m MODEL A B C -w WORKLOAD"; arms that are NULL or "" are left out. */
static void append_ab(struct str *out, const char *model, const char *const arm[], int arms,
                      const char *workload)
{
    str_append(out, "qdyno ab");
    if (model[0]) {
        str_append(out, " -m ");
        word_append(out, model);
    }
    for (int i = 0; i < arms; i++) {
        if (!arm[i] || !arm[i][0]) continue;
        str_append(out, " ");
        word_append(out, arm[i]);
    }
    str_append(out, " -w ");
    word_append(out, workload);
}

/* What the experiment on screen measures, or measured, with all of its flags. */
static void append_experiment(struct str *out, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    const char *arm[EXPERIMENT_ARMS];
    char workload[600];
    for (int i = 0; i < experiment_arms(&x->spec); i++) arm[i] = x->arm[i].line;
    workload_line(experiment_workload(&x->spec, 0), workload, sizeof workload);
    append_ab(out, x->spec.model[0] ? x->spec.model : s->model_path, arm, experiment_arms(&x->spec),
              workload);
    experiment_options(out, &x->spec);
}

static void append_command_ab(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const char *applied = s->applied[0] ? s->applied : "default";
    if (f->kind != FORM_AB && s->experiment_known) {
        append_experiment(out, s);
        return;
    }
    if (f->kind == FORM_AB) {
        const char *const typed[] = { f->field[AB_A].text, f->field[AB_B].text, f->field[AB_MORE].text };
        append_ab(out, s->model_path, typed, COUNT_OF(typed), f->field[AB_WORKLOAD].text);
        ab_options(out, f);
    } else {
        append_ab(out, s->model_path, (const char *const[]){ applied, proposed_line(s, applied) }, 2, "tg64");
    }
    if (u->when_busy == BUSY_WAIT) str_append(out, WAIT_QUIET);
    if (u->when_busy == BUSY_LOADED) str_append(out, " --estimand loaded");
}

static void append_command_push(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const char *url = u->form.kind == FORM_PUSH ? u->form.field[0].text : u->push_url;
    char shown[HTTP_SHOWN_MAX];
    if (!url[0]) return; /* until an address is typed, no command does it */
    str_printf(out, "qdyno push %lld --url ", (long long)ui_run_id(u, s));
    word_append(out, http_url_shown(url, HTTP_SHOW_PATH, shown));
}

static void model_word(struct str *out, const struct snapshot *s)
{
    word_append(out, s->model_path[0] ? s->model_path : "MODEL");
}

/* Measures the file quantized last against its source; else the selected config again; with no row yet, an
 * example that measures the first one. With the form of the model's text, it is measured on the text that the
 * form names. */
static void append_command_quality(struct str *out, const struct ui *u, const struct snapshot *s,
                                   bool set_text)
{
    const char *text = u->form.kind == FORM_MODEL_TEXT ? u->form.field[0].text : "TEXT";
    const int i = u->view == VIEW_QUALITY ? list_selected(u, s) : -1;
    const struct quality_result *q = i >= 0 ? &s->quality.line[i] : NULL;
    str_append(out, "qdyno eval -m ");
    model_word(out, s);
    if (set_text && *text) path_word(out, " -f ", text);
    if (set_text) str_append(out, " --set-text");
    if (!set_text && ui_written_unmeasured(s)) {
        const bool result = !strcmp(s->model_path, s->written);
        if (result) {
            path_word(out, " -C default --ref model=", s->written_from);
            return;
        }
        str_append(out, " -C ");
        word_append(out, s->written_recipe);
        str_append(out, " --ref default");
        return;
    }
    str_append(out, " -C ");
    word_append(out, q ? q->config : proposed_method(s));
    str_append(out, " --ref ");
    word_append(out, q ? q->reference : "default");
}

static const char *put_command(struct str *out, char *buf, size_t size)
{
    str_put(buf, size, str_text(out));
    str_free(out);
    return buf;
}

static void append_command_memory(struct str *out, const struct snapshot *s)
{
    str_append(out, "qdyno fit -m ");
    model_word(out, s);
    for (int i = 0; i < s->summary.contexts; i++)
        str_printf(out, "%s%lld", i ? "," : " -c ", (long long)s->summary.context[i]);
    str_append(out, " -C kv=q8_0");
}

const char *memory_command(const struct snapshot *s, char *buf, size_t size)
{
    struct str out = { 0 };
    append_command_memory(&out, s);
    return put_command(&out, buf, size);
}

const char *experts_command(const struct snapshot *s, char *buf, size_t size)
{
    struct str out = { 0 };
    str_append(&out, "qdyno info -m ");
    model_word(&out, s);
    str_append(&out, " --experts TEXT");
    return put_command(&out, buf, size);
}

/* The pane with the memory has a command of its own. */
static void append_command_model(struct str *out, const struct ui *u, const struct snapshot *s)
{
    if (u->view == VIEW_MODEL && u->pane[VIEW_MODEL] == MODEL_MEMORY + 1) {
        append_command_memory(out, s);
        return;
    }
    str_append(out, "qdyno info --tensors -m ");
    model_word(out, s);
}

static void append_command_load(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const int i = u->view == VIEW_LOAD ? list_selected(u, s) : -1;
    if (s->load_source == LOAD_OF_SERVER) {
        str_append(out, "qdyno dashboard --server ");
        word_append(out, s->server.url);
        return;
    }
    if (s->load_source == LOAD_OF_EXPERIMENT) {
        append_experiment(out, s);
        return;
    }
    str_append(out, "qdyno bench -m ");
    model_word(out, s);
    str_append(out, " -w ");
    word_append(out, i >= 0 ? s->load.line[i].workload : "pp128+tg64@b8");
}

static void append_command_quantize(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_QUANTIZE;
    const char *recipe = typed ? f->field[0].text : "q4_K", *calib = typed ? f->field[1].text : "";
    str_append(out, "qdyno quantize ");
    model_word(out, s);
    path_word(out, " ", typed ? f->field[2].text : "OUT");
    str_append(out, " -R ");
    word_append(out, recipe);
    if (*calib) path_word(out, " --calib ", calib);
}

static void append_command_calibrate(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_CALIBRATE;
    str_append(out, "qdyno calibrate ");
    model_word(out, s);
    if (typed && f->field[0].text[0]) path_word(out, " -f ", f->field[0].text);
    path_word(out, " --out ", typed ? f->field[1].text : "FILE");
}

static void append_command_history(struct str *out, const struct ui *u)
{
    str_append(out, "qdyno history");
    if (!u->filter[0]) return;
    str_append(out, " --filter ");
    word_append(out, u->filter);
}

/* The run of the open form, else the selected one: the selection may change while a form is open. */
static long long result_run_id(const struct ui *u, const struct snapshot *s)
{
    return (long long)(u->form.kind != FORM_CLOSED && u->form.about ? u->form.about : ui_run_id(u, s));
}

/* The line with the changed setting: applied, or compared with what is in use. */
static void append_command_setting(struct str *out, const struct ui *u, const struct snapshot *s)
{
    char line[CONFIG_LINE];
    if (knob_changed_line(s, u->form.field[0].text, line, sizeof line, NULL))
        snprintf(line, sizeof line, "%s", u->form.field[0].text);
    const bool compares = !strcmp(u->form.field[1].text, "compare");
    str_append(out, compares ? "qdyno ab -m " : "qdyno apply -m ");
    model_word(out, s);
    if (compares) {
        str_append(out, " ");
        word_append(out, s->applied[0] ? s->applied : "default");
    }
    str_append(out, " ");
    if (compares || strcmp(line, "default"))
        word_append(out, line);
    else
        str_append(out, "--remove"); /* every setting is at its default */
}

static void append_command_apply(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct advice *a = ui_advice(u, s);
    if (u->form.kind == FORM_SETTING) {
        append_command_setting(out, u, s);
        return;
    }
    if (u->view == VIEW_TUNE) {
        str_append(out, "qdyno apply -m ");
        word_append(out, s->tune.model[0] ? s->tune.model : "MODEL");
        str_append(out, " ");
        word_append(out, s->tune.candidate[0] ? s->tune.candidate : "CONFIG");
        return;
    }
    if (!a) {
        str_printf(out, "qdyno apply --run %lld", (long long)ui_run_id(u, s));
        return;
    }
    str_append(out, "qdyno apply -m ");
    model_word(out, s);
    str_append(out, " ");
    word_append(out, a->line);
}

static void append_command_open(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct advice *a = ui_advice(u, s);
    if (u->view == VIEW_TUNE)
        append_command_apply(out, u, s);
    else if (u->view == VIEW_HISTORY)
        str_printf(out, "qdyno show %lld", (long long)ui_run_id(u, s));
    else if (a)
        str_append(out, a->check);
}

static void append_command_compare(struct str *out, const struct ui *u, const struct snapshot *s)
{
    int64_t id[MARKED];
    if (ui_compared(u, s, id)) str_printf(out, "qdyno compare %lld %lld", (long long)id[0], (long long)id[1]);
}

/* One `qdyno run` per arm: each prints the same continuation as the dashboard. */
static void append_command_write(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    const bool typed = f->kind == FORM_WRITE;
    const char *prompt = typed ? f->field[0].text : s->write_known ? s->write.prompt : "One day";
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++) {
        const char *line = typed            ? f->field[1 + i].text
                           : s->write_known ? s->write.arm[i].line
                                            : (const char *const[]){ "default", proposed_method(s) }[i];
        str_append(out, i ? "; qdyno run -m " : "qdyno run -m ");
        model_word(out, s);
        if (*line && strcmp(line, "default")) {
            str_append(out, " -C ");
            word_append(out, line);
        }
        str_append(out, " -p ");
        word_append(out, prompt);
    }
}

static void append_command_tune(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    str_append(out, "qdyno tune -m ");
    model_word(out, s);
    if (u->when_busy == BUSY_WAIT) str_append(out, WAIT_QUIET);
    if (f->kind != FORM_TUNE) return;
    str_printf(out, " --goal %s --budget %s", f->field[0].text, f->field[1].text);
    if (f->field[2].text[0]) {
        str_append(out, " --limit ");
        word_append(out, f->field[2].text);
    }
}

static void append_command_resume(struct str *out, const struct ui *u, const struct snapshot *s)
{
    bool is_tune;
    const long long id = (long long)ui_resumed_id(u, s, &is_tune);
    if (u->form.kind == FORM_RESUME)
        str_printf(out, "qdyno ab --resume %lld --budget %s", (long long)u->form.about,
                   u->form.field[0].text);
    else
        str_printf(out, "qdyno %s --resume %lld", is_tune ? "tune" : "ab", id);
}

static void append_command_undo(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const bool tuned = u->view == VIEW_TUNE && s->tune.model[0];
    str_append(out, "qdyno apply --undo -m ");
    word_append(out, tuned ? s->tune.model : s->model_path[0] ? s->model_path : "MODEL");
}

const char *command_for_shell(const struct ui *u, const char *command, char *buf, size_t size)
{
    static const char PROGRAM[] = "qdyno ";
    struct str out = { 0 };
    if (u->db_path && str_starts(command, PROGRAM)) {
        path_word(&out, "qdyno --db ", u->db_path);
        str_append(&out, " ");
        command += strlen(PROGRAM);
    }
    str_append(&out, command);
    return put_command(&out, buf, size);
}

const char *experiment_command(const struct snapshot *s, char *buf, size_t size)
{
    struct str out = { 0 };
    append_experiment(&out, s);
    return put_command(&out, buf, size);
}

const char *screen_command(const struct ui *u, const struct snapshot *s, char *buf, size_t size)
{
    static const enum action OF_VIEW[VIEW_COUNT] = {
        [VIEW_LIVE] = DO_NEW_AB,      [VIEW_AB] = DO_VIEW_AB,
        [VIEW_ADVICE] = DO_OPEN,      [VIEW_HISTORY] = DO_VIEW_HISTORY,
        [VIEW_MODEL] = DO_VIEW_MODEL, [VIEW_QUALITY] = DO_VIEW_QUALITY,
        [VIEW_LOAD] = DO_VIEW_LOAD,   [VIEW_SETTINGS] = DO_VIEW_SETTINGS,
        [VIEW_WRITE] = DO_WRITE,      [VIEW_TUNE] = DO_TUNE
    };
    static const enum action OF_FORM[FORM_KIND_COUNT] = {
        [FORM_AB] = DO_NEW_AB,         [FORM_PUSH] = DO_PUSH,           [FORM_FILTER] = DO_FILTER,
        [FORM_QUANTIZE] = DO_QUANTIZE, [FORM_CALIBRATE] = DO_CALIBRATE, [FORM_MODEL_TEXT] = DO_MODEL_TEXT,
        [FORM_REPORT] = DO_REPORT,     [FORM_BASELINE] = DO_BASELINE,   [FORM_TUNE] = DO_TUNE,
        [FORM_MODEL] = DO_MODEL,       [FORM_WRITE] = DO_WRITE,         [FORM_SETTING] = DO_APPLY,
        [FORM_RESUME] = DO_RESUME
    };
    enum action a = u->form.kind != FORM_CLOSED ? OF_FORM[u->form.kind] : OF_VIEW[u->view];
    char command[COMMAND_TEXT];
    if (a == DO_OPEN && s->advice_count == 0) a = DO_ADVISE;
    return command_for_shell(u, equivalent_command(a, u, s, command, sizeof command), buf, size);
}

const char *equivalent_command(enum action action, const struct ui *u, const struct snapshot *s, char *buf,
                               size_t size)
{
    struct str out = { 0 };
    switch (action) {
    case DO_NEW_AB: append_command_ab(&out, u, s); break;
    case DO_PUSH: append_command_push(&out, u, s); break;
    case DO_OPEN: append_command_open(&out, u, s); break;
    case DO_RESUME: append_command_resume(&out, u, s); break;
    case DO_UNDO: append_command_undo(&out, u, s); break;
    case DO_VIEW_AB:
        if (ui_run_id(u, s)) str_printf(&out, "qdyno show %lld", (long long)ui_run_id(u, s));
        break;
    case DO_ADVISE:
        str_append(&out, "qdyno advise -m ");
        model_word(&out, s);
        break;
    case DO_KERNELS: str_append(&out, "qdyno detect --probe --kernels"); break;
    case DO_FILTER:
    case DO_VIEW_HISTORY: append_command_history(&out, u); break;
    case DO_VIEW_MODEL: append_command_model(&out, u, s); break;
    case DO_WRITE: append_command_write(&out, u, s); break;
    case DO_VIEW_LIVE: str_append(&out, "qdyno detect"); break;
    case DO_QUANTIZE: append_command_quantize(&out, u, s); break;
    case DO_CALIBRATE: append_command_calibrate(&out, u, s); break;
    case DO_REPORT:
        str_printf(&out, "qdyno report %lld", result_run_id(u, s));
        path_word(&out, " --out ", u->form.kind == FORM_REPORT ? u->form.field[0].text : "FILE.html");
        break;
    case DO_BASELINE:
        str_append(&out, "qdyno baseline set ");
        word_append(&out, u->form.kind == FORM_BASELINE ? u->form.field[0].text : "NAME");
        str_printf(&out, " %lld", result_run_id(u, s));
        break;
    case DO_TUNE: append_command_tune(&out, u, s); break;
    case DO_COMPARE: append_command_compare(&out, u, s); break;
    case DO_APPLY: append_command_apply(&out, u, s); break;
    case DO_VERIFY:
        if (ui_advice(u, s)) str_append(&out, ui_advice(u, s)->check);
        break;
    case DO_MODEL:
        if (u->form.kind == FORM_MODEL && !u->form.field[0].error[0])
            path_word(&out, "qdyno dashboard -m ", u->form.field[0].text);
        break; /* until a file is chosen, no command opens it */
    case DO_VIEW_QUALITY: append_command_quality(&out, u, s, false); break;
    case DO_MODEL_TEXT: append_command_quality(&out, u, s, true); break;
    case DO_VIEW_LOAD: append_command_load(&out, u, s); break;
    case DO_VIEW_SETTINGS: str_append(&out, "qdyno help knobs"); break;
    default: break;
    }
    return put_command(&out, buf, size);
}
