/* tui/dashboard/actions_command.c - actions on stored runs (mark, compare, delete), and actions that run a
 * qdyno command. The command line of such an action is built from what the screen shows, displayed, and run
 * as another process. The dashboard asks first if a command cannot be undone. */
#include "tui/dashboard/actions.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/http/http.h"

/* ---------------------------------------------------------------- runs of the history */

/* Toggle the mark of the selected run. A third mark replaces the oldest one. */
struct effect action_mark(struct ui *ui, const struct snapshot *s)
{
    const int64_t id = ui_run_id(ui, s);
    const int mark = ui_mark(ui, id);
    if (mark) {
        if (mark == 1) ui->marked[0] = ui->marked[1];
        ui->marked[1] = 0;
    } else if (!ui->marked[0]) {
        ui->marked[0] = id;
    } else {
        if (ui->marked[1]) ui->marked[0] = ui->marked[1];
        ui->marked[1] = id;
    }
    if (ui->marked[1])
        return effect_message("runs %lld and %lld are marked: c compares them", (long long)ui->marked[0],
                              (long long)ui->marked[1]);
    if (ui->marked[0])
        return effect_message("run %lld is marked: mark another with space, then c compares them",
                              (long long)ui->marked[0]);
    return effect_message("no run is marked");
}

/* The run is only marked as deleted: u restores it, and so does `qdyno history --undelete`. */
struct effect action_delete(struct ui *ui, const struct snapshot *s)
{
    if (ui->view == VIEW_JOBS) {
        struct effect e = effect_message("removed from the queue: u puts it back");
        e.requests = REQUEST_REMOVE_QUEUED;
        e.job.id = ui_queued(ui, s)->id;
        return e;
    }
    const int64_t id = ui_run(ui, s)->id;
    for (int i = 0; i < MARKED; i++)
        if (ui->marked[i] == id) ui->marked[i] = 0;
    if (ui->deleted_count == DELETED) {
        ui->deleted_count--;
        memmove(ui->deleted, ui->deleted + 1, sizeof ui->deleted[0] * (DELETED - 1));
    }
    ui->deleted[ui->deleted_count++] = id;
    struct effect e = effect_job(QUEUE_DATABASE, job_delete_run, NULL);
    e.job.id = id;
    return e;
}

static struct effect job_move(const struct ui *ui, const struct snapshot *s, int by)
{
    return (struct effect){ .requests = REQUEST_MOVE_QUEUED,
                            .job = { .id = ui_queued(ui, s)->id, .other_id = by } };
}

struct effect action_earlier(struct ui *ui, const struct snapshot *s)
{
    return ui->view == VIEW_LOAD ? action_load_rate(ui, s, 1) : job_move(ui, s, -1);
}

struct effect action_later(struct ui *ui, const struct snapshot *s)
{
    return ui->view == VIEW_LOAD ? action_load_rate(ui, s, -1) : job_move(ui, s, 1);
}

static struct effect run_restore(struct ui *ui)
{
    struct effect e = effect_job(QUEUE_DATABASE, job_restore_run, NULL);
    e.job.id = ui->deleted[--ui->deleted_count];
    return e;
}

struct effect action_compare(struct ui *ui, const struct snapshot *s)
{
    char title[80];
    int64_t id[MARKED];
    struct effect e = effect_start(DO_COMPARE, ui, s, REQUEST_SHOW_COMMAND);
    if (e.is_error || !ui_compared(ui, s, id)) return e;
    snprintf(title, sizeof title, "Run %lld compared with run %lld", (long long)id[1], (long long)id[0]);
    e.queue = QUEUE_DATABASE;
    e.job = (struct job){ .run = job_read_command,
                          .text = arena_strdup(&ui->texts, title),
                          .command = e.command };
    return e;
}

static struct effect push_to(struct ui *ui, const struct snapshot *s)
{
    struct err why = { 0 };
    if (http_url_check("gateway", ui->push_url, HTTP_URL_BASE, &why)) return effect_error("%s", why.message);
    struct effect e = effect_start(DO_PUSH, ui, s, REQUEST_SHOW_COMMAND);
    if (e.is_error) return e;
    e.queue = QUEUE_NETWORK;
    e.job = (struct job){ .run = job_push, .id = ui_run_id(ui, s), .command = e.command };
    return e;
}

struct effect action_push_typed(struct ui *ui, const struct snapshot *s)
{
    str_put(ui->push_url, sizeof ui->push_url, ui->form.field[0].text);
    return push_to(ui, s);
}

/* To the address of the last push; the first time a form asks for it. */
struct effect action_push(struct ui *ui, const struct snapshot *s)
{
    if (ui->push_url[0]) return push_to(ui, s);
    form_show(&ui->form, FORM_PUSH, (const char *const[FORM_FIELDS]){ "" });
    return effect_none();
}

/* ---------------------------------------------------------------- questions */

/* Ask before running what the effect runs. */
static struct effect question_ask(struct ui *ui, const struct effect *e, const char *text)
{
    if (e->is_error) return *e;
    ui->question.command = e->command;
    snprintf(ui->question.text, sizeof ui->question.text, "%s", text);
    return effect_none();
}

struct effect action_answer(struct ui *ui, const struct snapshot *s, bool yes)
{
    const char *why = action_refusal(DO_COMMAND, ui, s); /* something may have started since */
    ui->question.text[0] = '\0';
    if (!yes) return effect_message("nothing was changed");
    return *why ? effect_error("%s", why) : effect_run(&ui->question.command);
}

/* Typed commands that delete or replace something. */
static bool command_is_final(const struct words *w)
{
    return !words_have(w, "--dry-run") &&
           (words_run(w, "prune") || words_have(w, "--force") || words_have(w, "--remove"));
}

/* What it stored there would not be found here. */
static bool names_other_database(const struct words *command, const char *db_path)
{
    static const char JOINED[] = "--db=";
    const char *typed = words_value(command, "--db");
    for (int i = 1; i < command->n; i++)
        if (str_starts(words_at(command, i), JOINED)) typed = words_at(command, i) + strlen(JOINED);
    return typed && (!db_path || strcmp(typed, db_path) != 0);
}

struct effect action_run_typed(struct ui *ui)
{
    struct words command = { .arena = &ui->texts };
    struct err why = { 0 };
    words_put(&command, "qdyno");
    if (words_put_line(&command, ui->form.field[0].text, &why)) return effect_error("%s", why.message);
    struct effect e = effect_run(&command);
    if (e.is_error) return e;
    if (names_other_database(&command, ui->db_path))
        return effect_error(
            "the dashboard shows one database: leave --db out, or start qdyno --db with that file");
    e.opens_output = !words_run(&command, "tune");
    if (!e.opens_output) action_enter_view(ui, VIEW_TUNE);
    return command_is_final(&command) ? question_ask(ui, &e, "This cannot be undone. Run it?") : e;
}

/* The quality view says that this key runs the command which it shows, and the view of searches that it
 * compares a result of a busy machine when the machine is quiet. */
struct effect action_command(struct ui *ui, const struct snapshot *s)
{
    static const char PROGRAM[] = "qdyno ";
    struct words command = { .arena = &ui->texts };
    struct str line = { 0 };
    if (ui->view == VIEW_QUALITY) equivalent_command(&command, DO_VIEW_QUALITY, ui, s);
    words_print(&line, &command, 1);
    if (ui->view == VIEW_TUNE && !s->tune.running && str_starts(s->tune.confirm, PROGRAM))
        str_append(&line, s->tune.confirm + strlen(PROGRAM));
    form_show(&ui->form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ line.len ? str_text(&line) : NULL });
    str_free(&line);
    return effect_none();
}

struct effect action_copy(struct ui *ui, const struct snapshot *s)
{
    struct effect e = { .requests = REQUEST_COPY_COMMAND, .command.arena = &ui->texts };
    screen_command(&e.command, ui, s);
    return e.command.n ? e : effect_error("no command line equals this screen");
}

struct effect action_output(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->page = true;
    ui->page_row = ui->page_column = 0;
    return effect_none();
}

/* ---------------------------------------------------------------- results */

struct effect action_apply(struct ui *ui, const struct snapshot *s)
{
    static const char AFTER[] =
        "run, bench and the dashboard will use it; the configuration applied before is "
        "kept in a .previous file.";
    enum { LINE_COLUMNS = 120 };
    char text[400], line[CONFIG_LINE];
    const struct effect e = effect_start(DO_APPLY, ui, s, REQUEST_RUN_COMMAND);
    const struct advice *a = ui_advice(ui, s);
    const char *whole = ui->view == VIEW_TUNE ? s->tune.candidate : a ? a->line : "";
    text_shorten(whole, NULL, 0, LINE_COLUMNS, line, sizeof line);
    if (ui->view == VIEW_TUNE)
        snprintf(text, sizeof text, "Apply %s to this model%s? %s", line,
                 !s->tune.wins ? ", although it is not proven better"
                 : s->tune.loaded
                     ? ", although it was found on a busy machine and may not hold on a quiet one"
                     : "",
                 AFTER);
    else if (a)
        snprintf(text, sizeof text, "Apply %s to this model? %s", line, AFTER);
    else
        snprintf(text, sizeof text, "Apply the winner of run %lld to its model? %s",
                 (long long)ui_run_id(ui, s), AFTER);
    return question_ask(ui, &e, text);
}

struct effect action_undo(struct ui *ui, const struct snapshot *s)
{
    if (ui->view == VIEW_HISTORY && ui->deleted_count) return run_restore(ui);
    if (ui->view == VIEW_JOBS && s->queue_restorable) return effect_request(REQUEST_RESTORE_QUEUED);
    return effect_start(DO_UNDO, ui, s, REQUEST_RUN_COMMAND);
}

struct effect action_baseline(struct ui *ui, const struct snapshot *s)
{
    const int64_t id = ui_run_id(ui, s);
    form_show(&ui->form, FORM_BASELINE, (const char *const[FORM_FIELDS]){ "main" });
    ui->form.about = id;
    return effect_none();
}

struct effect action_report(struct ui *ui, const struct snapshot *s)
{
    const int64_t id = ui_run_id(ui, s);
    char path[64];
    snprintf(path, sizeof path, "qdyno-run-%lld.html", (long long)id);
    form_show(&ui->form, FORM_REPORT, (const char *const[FORM_FIELDS]){ path });
    ui->form.about = id;
    return effect_none();
}

/* ---------------------------------------------------------------- models and files made of them */

/* Opens with the file made last, else with the folder of the model. For the bundled model it lists the places
 * where models were found before. */
struct effect action_model(struct ui *ui, const struct snapshot *s)
{
    char start[FORM_TEXT];
    const char *path = s->model_path, *slash = strrchr(path, '/');
    if (str_ends(path, "/models/bundled.gguf")) slash = NULL;
    snprintf(start, sizeof start, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    if (ui->made[0] && !access(ui->made, R_OK)) {
        snprintf(start, sizeof start, "%s", ui->made);
        ui->made[0] = '\0';
    }
    form_show(&ui->form, FORM_MODEL, (const char *const[FORM_FIELDS]){ start });
    ui->form.chosen = 0;
    return effect_none();
}

/* FOLDER/STEM-SUFFIX.gguf: in the model's folder if it is writable, else in the current one. */
static void path_beside_model(const struct snapshot *s, const char *suffix, char *out, size_t size)
{
    char folder[MODEL_PATH], stem[MODEL_PATH];
    const char *path = s->model_path, *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    snprintf(stem, sizeof stem, "%s", slash ? slash + 1 : path);
    if (str_ends(stem, ".gguf")) stem[strlen(stem) - strlen(".gguf")] = '\0';
    const bool writable = !access(*folder ? folder : ".", W_OK | X_OK);
    snprintf(out, size, "%s%.*s-%.80s.gguf", writable ? folder : "", NAME_MAX - 90, stem, suffix);
}

void action_follow_fields(struct ui *ui, const struct snapshot *s)
{
    struct form *f = &ui->form;
    char name[80], path[FORM_TEXT];
    if (f->kind != FORM_QUANTIZE || f->field[QUANTIZE_OUT].touched) return;
    snprintf(name, sizeof name, "%.79s", f->field[QUANTIZE_RECIPE].text);
    for (char *p = name; *p; p++)
        if (strchr(" ,;:=/*?\"'\\", *p)) *p = '-';
    path_beside_model(s, name, path, sizeof path);
    if (strcmp(path, f->field[QUANTIZE_OUT].text) != 0) form_put(f, QUANTIZE_OUT, path);
}

struct effect action_quantize(struct ui *ui, const struct snapshot *s)
{
    const struct advice *a = ui_advice(ui, s);
    char recipe[FORM_TEXT] = "q4_K";
    if (a && strcmp(config_text(&a->config, KNOB_FORMAT), "file"))
        config_recipe(&a->config, recipe, sizeof recipe);
    const struct recipe_row *row = recipe_row_find(&s->recipes, recipe);
    if (row && *row->fits)
        snprintf(recipe, sizeof recipe, "%s", row->fits); /* the rows do not fill its blocks */
    const struct recipe_row *floats = recipe_row_find(&s->recipes, "f16");
    if (row && *row->refusal && floats && !*recipe_refusal(&s->recipes, floats->name)) /* quantized already */
        snprintf(recipe, sizeof recipe, "%s", floats->name);
    form_show(&ui->form, FORM_QUANTIZE, (const char *const[FORM_FIELDS]){ recipe });
    action_follow_fields(ui, s);
    return effect_none();
}

struct effect action_calibrate(struct ui *ui, const struct snapshot *s)
{
    char path[FORM_TEXT];
    path_beside_model(s, "calibration", path, sizeof path);
    form_show(&ui->form, FORM_CALIBRATE, (const char *const[FORM_FIELDS]){ "", path });
    return effect_none();
}

struct effect action_model_text(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    form_show(&ui->form, FORM_MODEL_TEXT, (const char *const[FORM_FIELDS]){ "" });
    return effect_none();
}

struct effect action_tune(struct ui *ui, const struct snapshot *s)
{
    action_enter_view(ui, VIEW_TUNE);
    if (!s->tune.running) form_show(&ui->form, FORM_TUNE, (const char *const[FORM_FIELDS]){ NULL, "10m" });
    return effect_none();
}

/* ---------------------------------------------------------------- accepted forms that run a command */

/* Run the command of the form, or ask first where it would replace a file. */
static struct effect form_run(struct ui *ui, const struct snapshot *s, enum action action)
{
    enum { PATH_COLUMNS = 100 };
    char text[400], shorter[PATH_MAX];
    struct effect e = effect_start(action, ui, s, REQUEST_RUN_COMMAND);
    const char *made = words_made(&e.command);
    form_hide(&ui->form);
    if (!made || access(made, F_OK)) return e;
    if (action == DO_QUANTIZE) words_put(&e.command, "--force");
    snprintf(text, sizeof text, "%s exists already. Replace it?",
             text_shorten(made, NULL, 0, PATH_COLUMNS, shorter, sizeof shorter));
    return question_ask(ui, &e, text);
}

static struct effect baseline_run(struct ui *ui, const struct snapshot *s)
{
    const struct baseline_list *known = &s->baselines;
    char text[400];
    struct effect e = effect_start(DO_BASELINE, ui, s, REQUEST_RUN_COMMAND);
    form_hide(&ui->form);
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->row[i].name, ui->form.field[0].text) != 0) continue;
        snprintf(text, sizeof text, "Baseline %s is %s. Replace it?", known->row[i].name,
                 known->row[i].about);
        return question_ask(ui, &e, text);
    }
    return e;
}

/* Recipes that the file's header rules out are refused before anything starts. */
static struct effect quantize_run(struct ui *ui, const struct snapshot *s)
{
    const struct form *f = &ui->form;
    const char *why = recipe_refusal(&s->recipes, f->field[QUANTIZE_RECIPE].text);
    if (*why) return effect_error("%s: %s", f->field[QUANTIZE_RECIPE].text, why);
    char path[PATH_MAX];
    str_put(ui->made, sizeof ui->made, form_path(f->field[QUANTIZE_OUT].text, path, sizeof path));
    return form_run(ui, s, DO_QUANTIZE);
}

bool action_run_form(struct ui *ui, const struct snapshot *s, struct effect *out)
{
    switch (ui->form.kind) {
    case FORM_QUANTIZE: *out = quantize_run(ui, s); return true;
    case FORM_BASELINE: *out = baseline_run(ui, s); return true;
    case FORM_CALIBRATE:
    case FORM_MODEL_TEXT:
    case FORM_REPORT:
    case FORM_TUNE: *out = form_run(ui, s, FORMS[ui->form.kind].action); return true;
    default: return false;
    }
}
