/* tui/dashboard/actions_task.c - what is done with runs, advice and the model: marked, compared, kept, told,
 * made into other files. Everything that changes something is a command of the command line, shown before and
 * after it runs; what cannot be undone asks first. */
#include "tui/dashboard/actions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/advise/advise.h"

/* ---------------------------------------------------------------- runs of the history */

void actions_do_mark(struct dashboard *d)
{
    struct ui *u = &d->ui;
    const int64_t id = ui_run_id(u, d->s);
    const int mark = ui_mark(u, id);
    if (mark) {
        if (mark == 1) u->marked[0] = u->marked[1];
        u->marked[1] = 0;
    } else if (!u->marked[0]) {
        u->marked[0] = id;
    } else { /* of three the oldest mark goes */
        if (u->marked[1]) u->marked[0] = u->marked[1];
        u->marked[1] = id;
    }
    if (u->marked[1])
        dashboard_toast(d, false, "runs %lld and %lld are marked: c compares them", (long long)u->marked[0],
                        (long long)u->marked[1]);
    else if (u->marked[0])
        dashboard_toast(d, false, "run %lld is marked: space marks another, c compares",
                        (long long)u->marked[0]);
    else
        dashboard_toast(d, false, "nothing is marked");
}

void actions_do_sort(struct dashboard *d)
{
    struct ui *u = &d->ui;
    const struct run_line *was = ui_run(u, d->s);
    const int64_t id = was ? was->id : 0;
    int rows[SNAPSHOT_RUNS];
    u->order = (enum history_order)((u->order + 1) % HISTORY_ORDERS);
    ui_history(u, d->s, rows);
    for (int i = 0; i < d->s->run_count; i++) /* the same run stays selected */
        if (d->s->run[rows[i]].id == id) u->selected[VIEW_HISTORY] = i;
    dashboard_toast(d, false, "sorted by %s", HISTORY_ORDER_NAMES[u->order]);
}

void actions_do_compare(struct dashboard *d)
{
    int64_t id[MARKED];
    char command[128];
    if (!ui_compared(&d->ui, d->s, id)) return;
    action_command(DO_COMPARE, &d->ui, d->s, command, sizeof command);
    actions_put(d, d->storage, &(struct job){ .run = job_compare_runs, .id = id[0], .other_id = id[1] });
    actions_say_command(d, command);
}

/* ---------------------------------------------------------------- questions */

static void ask(struct dashboard *d, const char *command, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void ask(struct dashboard *d, const char *command, const char *fmt, ...)
{
    struct question *q = &d->ui.question;
    va_list args;
    va_start(args, fmt);
    vsnprintf(q->text, sizeof q->text, fmt, args);
    va_end(args);
    snprintf(q->line, sizeof q->line, "%s", command + strlen("qdyno "));
    q->makes[0] = '\0';
}

void actions_answer(struct dashboard *d, bool yes)
{
    char line[sizeof d->ui.question.line], makes[sizeof d->ui.question.makes], why[300];
    memcpy(line, d->ui.question.line, sizeof line);
    memcpy(makes, d->ui.question.makes, sizeof makes);
    d->ui.question.text[0] = '\0';
    if (!yes)
        dashboard_toast(d, false, "nothing was done");
    else if (action_refusal(DO_COMMAND, &d->ui, d->s, why, sizeof why)[0]) /* something began meanwhile */
        dashboard_toast(d, true, "%s", why);
    else
        actions_command_start(d, line, makes, COMMAND_QUIET);
}

/* Lines a person typed that end something for good. */
bool actions_line_is_final(const char *line)
{
    const bool dry = strstr(line, "--dry-run") != NULL;
    return !dry && (str_starts(line, "prune ") || strstr(line, "--force") || strstr(line, "--remove"));
}

void actions_command_asked(struct dashboard *d, const char *line, int show)
{
    char command[sizeof d->ui.question.line];
    if (!actions_line_is_final(line)) {
        actions_command_start(d, line, NULL, show);
        return;
    }
    snprintf(command, sizeof command, "qdyno %s", line);
    ask(d, command, "This cannot be undone. Run it?");
}

/* ---------------------------------------------------------------- advice and results */

void actions_do_verify(struct dashboard *d)
{
    actions_verify_form(d);
    actions_form_done(d);
}

void actions_do_apply(struct dashboard *d)
{
    char command[1600];
    const struct advice *a = ui_advice(&d->ui, d->s);
    action_command(DO_APPLY, &d->ui, d->s, command, sizeof command);
    if (a)
        ask(d, command,
            "Apply %.200s to this model? run, bench and the dashboard use it from then on; what was kept before "
            "becomes its .previous file.",
            a->line);
    else
        ask(d, command,
            "Apply what won run %lld to its model? run, bench and the dashboard use it from then on; what was kept "
            "before becomes its .previous file.",
            (long long)ui_run_id(&d->ui, d->s));
}

void actions_do_baseline(struct dashboard *d)
{
    const int64_t id = ui_run_id(&d->ui, d->s);
    form_show(&d->ui.form, FORM_BASELINE, (const char *const[FORM_FIELDS]){ "main" });
    d->ui.form.about = id;
}

void actions_do_report(struct dashboard *d)
{
    const int64_t id = ui_run_id(&d->ui, d->s);
    char path[64];
    snprintf(path, sizeof path, "qdyno-run-%lld.html", (long long)id);
    form_show(&d->ui.form, FORM_REPORT, (const char *const[FORM_FIELDS]){ path });
    d->ui.form.about = id;
}

void actions_do_output(struct dashboard *d)
{
    d->ui.page = true;
    d->ui.page_row = d->ui.page_column = 0;
}

/* ---------------------------------------------------------------- other files of the model */

/* FOLDER/STEM-WHAT.gguf, beside the model where one may write there, else here. */
static void beside_model(const struct dashboard *d, const char *what, char *out, size_t size)
{
    char folder[512], stem[512];
    const char *path = d->s->model_path, *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    snprintf(stem, sizeof stem, "%s", slash ? slash + 1 : path);
    if (str_ends(stem, ".gguf")) stem[strlen(stem) - strlen(".gguf")] = '\0';
    const bool ours = !access(*folder ? folder : ".", W_OK | X_OK);
    snprintf(out, size, "%.400s%.200s-%.80s.gguf", ours ? folder : "", stem, what);
}

/* A recipe as part of a file name. */
static void name_of_recipe(const char *recipe, char *out, size_t size)
{
    snprintf(out, size, "%s", recipe);
    for (char *p = out; *p; p++)
        if (strchr(" ,;:=/*?\"'\\", *p)) *p = '-';
}

void actions_form_follow(struct dashboard *d)
{
    enum { RECIPE, OUT = 2 };
    struct form *f = &d->ui.form;
    char name[80], path[FORM_TEXT];
    if (f->kind != FORM_QUANTIZE || f->field[OUT].touched) return;
    name_of_recipe(f->field[RECIPE].text, name, sizeof name);
    beside_model(d, name, path, sizeof path);
    if (strcmp(path, f->field[OUT].text) != 0) form_put(f, OUT, path);
}

void actions_do_quantize(struct dashboard *d)
{
    const struct advice *a = ui_advice(&d->ui, d->s);
    char recipe[FORM_TEXT] = "q4_K";
    if (a && strcmp(config_text(&a->config, KNOB_FORMAT), "file"))
        config_recipe(&a->config, recipe, sizeof recipe);
    form_show(&d->ui.form, FORM_QUANTIZE, (const char *const[FORM_FIELDS]){ recipe });
    actions_form_follow(d);
}

void actions_do_calibrate(struct dashboard *d)
{
    char path[FORM_TEXT];
    beside_model(d, "calibration", path, sizeof path);
    form_show(&d->ui.form, FORM_CALIBRATE, (const char *const[FORM_FIELDS]){ "", path });
}

void actions_do_tune(struct dashboard *d)
{
    form_show(&d->ui.form, FORM_TUNE, (const char *const[FORM_FIELDS]){ "balanced", "10m" });
}

/* A form whose answer is a command: run it, or ask where it would replace a file. */
static void run_form(struct dashboard *d, enum action action, const char *path)
{
    char command[1600], whole[4096];
    action_command(action, &d->ui, d->s, command, sizeof command);
    form_hide(&d->ui.form);
    if (path && !access(form_path(path, whole, sizeof whole), F_OK)) {
        const size_t n = strlen(command);
        if (action == DO_QUANTIZE) snprintf(command + n, sizeof command - n, " --force");
        ask(d, command, "%.300s is there already. Replace it?", whole);
        snprintf(d->ui.question.makes, sizeof d->ui.question.makes, "%s", path);
        return;
    }
    actions_command_start(d, command + strlen("qdyno "), path, COMMAND_QUIET);
}

/* A name that is taken is a champion that would be lost. */
static void keep_baseline(struct dashboard *d)
{
    char command[1600];
    const struct baseline_list *known = &d->s->baselines;
    const struct form f = d->ui.form;
    action_command(DO_BASELINE, &d->ui, d->s, command, sizeof command);
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->row[i].name, f.field[0].text) != 0) continue;
        form_hide(&d->ui.form);
        ask(d, command, "Baseline %s is %s. Replace it?", known->row[i].name, known->row[i].about);
        return;
    }
    run_form(d, DO_BASELINE, NULL);
}

/* What headers alone refuse is refused before anything begins. */
static void make_file(struct dashboard *d)
{
    const struct form f = d->ui.form;
    const char *why = recipe_refusal(&d->s->recipes, f.field[0].text);
    if (*why) {
        dashboard_toast(d, true, "%s: %s", f.field[0].text, why);
        return;
    }
    form_path(f.field[2].text, d->made, sizeof d->made);
    run_form(d, DO_QUANTIZE, f.field[2].text);
}

bool actions_task_done(struct dashboard *d)
{
    const struct form f = d->ui.form;
    switch (f.kind) {
    case FORM_QUANTIZE: make_file(d); return true;
    case FORM_CALIBRATE: run_form(d, DO_CALIBRATE, f.field[1].text); return true;
    case FORM_REPORT: run_form(d, DO_REPORT, f.field[0].text); return true;
    case FORM_BASELINE: keep_baseline(d); return true;
    case FORM_TUNE: run_form(d, DO_TUNE, NULL); return true;
    default: return false;
    }
}

/* ---------------------------------------------------------------- the command itself */

void actions_say_command(struct dashboard *d, const char *command)
{
    background_log(d->background, LOG_INFO, "$ %s", command);
    dashboard_toast(d, false, "$ %s", command);
}

void actions_do_copy(struct dashboard *d)
{
    char command[1600];
    if (!screen_command(&d->ui, d->s, command, sizeof command)[0]) {
        dashboard_toast(d, true, "there is no command that equals this screen");
        return;
    }
    background_log(d->background, LOG_INFO, "$ %s", command);
    const bool sent = d->screen && screen_copy(d->screen, command);
    dashboard_toast(d, false,
                    sent ? "given to the terminal's clipboard, and in the log (9): %s" : "in the log (9): %s",
                    command);
}
