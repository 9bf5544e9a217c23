/* tui/dashboard/jobs_command.c - runs a command of the command line as a child process: its progress, output
 * and end.
 *
 * Cancelling sends SIGINT, as Ctrl-C would: what a command keeps then, it keeps here. */
#include "tui/dashboard/background.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "base/cut/cut.h"
#include "tui/dashboard/shell.h"

struct running_command {
    struct background *b;
    struct text_page *page; /* its output */
    char last[400];         /* its last line: after an error this is the message */
};

static void publish_progress(struct background *b, const struct task_progress *at, const json_t *tune)
{
    pthread_mutex_lock(&b->lock);
    struct tune_watch *t = &b->known.tune;
    b->known.task = *at;
    b->known.task_known = true;
    if (t->running && tune_watch_read(t, tune)) {
        t->share = at->done;
        t->left_s = at->left_s;
    }
    pthread_mutex_unlock(&b->lock);
}

static void command_on_line(void *ctx, const char *text)
{
    struct running_command *r = ctx;
    struct task_progress at;
    json_t *o = progress_line_parse(text);
    if (o) {
        task_progress_read(&at, o);
        publish_progress(r->b, &at, json_object_get(o, "tune"));
        json_decref(o);
        return;
    }
    text_page_put(r->page, PAGE_PLAIN, "%s", text);
    text_cut(r->last, sizeof r->last, text);
    if (text[0] != '|')
        background_log(r->b, LOG_INFO, "| %s", text); /* a table is on the page that o shows */
}

static void command_on_start(void *ctx, int pid)
{
    struct running_command *r = ctx;
    pthread_mutex_lock(&r->b->lock);
    r->b->command_pid = pid;
    pthread_mutex_unlock(&r->b->lock);
}

/* True for the exit statuses of a verdict other than success: 1 worse, 2 inconclusive, 3 invalid. The command
 * itself did not fail. */
static bool status_is_verdict(int status)
{
    return status >= 1 && status <= 3;
}

/* The result of the search that has ended; "": it has none. */
static const char *search_sentence(struct background *b, char buf[TUNE_SENTENCE])
{
    pthread_mutex_lock(&b->lock);
    snprintf(buf, TUNE_SENTENCE, "%s", b->known.tune.ended ? b->known.tune.text : "");
    pthread_mutex_unlock(&b->lock);
    return buf;
}

static void command_announce_end(const struct running_command *r, const char *line, const char *makes,
                                 int status, bool cancelled)
{
    struct background *b = r->b;
    char name[32], whole[PATH_MAX], sentence[TUNE_SENTENCE];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " "), line);
    if (!status && !strcmp(name, "apply"))
        background_announce(b, false, "%s",
                            strstr(line, " --undo")
                                ? "the previous configuration is in use again; press o for the output"
                                : "applied; press u to undo, o for the output");
    else if (!status && *makes && !strcmp(name, "quantize"))
        background_announce(b, false, "%s has been written: 6 then ! measures its quality, m loads it",
                            strrchr(makes, '/') ? strrchr(makes, '/') + 1 : makes);
    else if (!status && *makes)
        background_announce(b, false, "%s has been written", realpath(makes, whole) ? whole : makes);
    else if ((!status || status_is_verdict(status)) && !strcmp(name, "tune") && *search_sentence(b, sentence))
        background_announce(b, false, "%s", sentence);
    else if (!status)
        background_announce(b, false, "qdyno %s has finished: o shows its output", name);
    else if (status_is_verdict(status))
        background_announce(b, false, "qdyno %s ended with status %d: o shows its output", name, status);
    else if (cancelled)
        background_announce(b, false, "cancelled: %s", r->last[0] ? r->last : name);
    else if (r->last[0])
        background_announce(b, true, "%s", r->last);
    else
        background_announce(b, true, "qdyno %s ended with status %d", name, status);
}

void background_read_applied(struct background *b)
{
    struct err why = { 0 };
    char model[sizeof b->known.model_path];
    bool found = false;
    struct applied *kept = calloc(1, sizeof *kept);
    pthread_mutex_lock(&b->lock);
    memcpy(model, b->known.model_path, sizeof model);
    pthread_mutex_unlock(&b->lock);
    if (!kept || !model[0]) {
        free(kept);
        return;
    }
    if (apply_read(kept, model, &found, &why))
        background_log(b, LOG_WARN, "the configuration applied to this model cannot be read: %s",
                       why.message);
    pthread_mutex_lock(&b->lock);
    const bool same = !strcmp(model, b->known.model_path); /* the model may have changed meanwhile */
    if (same) {
        _Static_assert(sizeof b->known.applied >= sizeof kept->line, "a line that is cut is another one");
        str_put(b->known.applied, sizeof b->known.applied, found ? kept->line : "");
        snprintf(b->known.applied_when, sizeof b->known.applied_when, "%s", found ? kept->when : "");
        text_cut(b->known.applied_because, sizeof b->known.applied_because, found ? kept->because : "");
        snprintf(b->known.applied_load, sizeof b->known.applied_load, "%s", found ? kept->load : "");
    }
    pthread_mutex_unlock(&b->lock);
    free(kept);
}

/* Note what `quantize IN OUT -R RECIPE ...` wrote, until an `eval` has run: view 6 offers to measure it.
 * words: of the command line. */
static void written_note(struct background *b, char *const *words, int n)
{
    const char *recipe = NULL, *calib = NULL;
    for (int i = 0; i + 1 < n; i++) {
        if (!strcmp(words[i], "-R")) recipe = words[i + 1];
        if (!strcmp(words[i], "--calib")) calib = words[i + 1];
    }
    bool quantizes = n >= 3 && !strcmp(words[0], "quantize") && words[1][0] != '-' && words[2][0] != '-';
    for (int i = 0; i < n; i++) quantizes &= strcmp(words[i], "--recover") != 0; /* more than the recipe */
    pthread_mutex_lock(&b->lock);
    struct snapshot *s = &b->known;
    if (n && !strcmp(words[0], "eval")) s->written[0] = '\0';
    if (quantizes && recipe) {
        const int n_recipe = snprintf(s->written_recipe, sizeof s->written_recipe, "%s%s%s", recipe,
                                      calib ? ",calib=" : "", calib ? calib : "");
        const bool whole = n_recipe < (int)sizeof s->written_recipe &&
                           str_put(s->written_from, sizeof s->written_from, words[1]) &&
                           str_put(s->written, sizeof s->written, words[2]);
        if (!whole) s->written[0] = '\0'; /* a part of a path or recipe would be measured as another one */
    }
    pthread_mutex_unlock(&b->lock);
}

/* Publish that no command runs; `last` is what it wrote last. Returns whether it was cancelled. */
static bool command_clear(struct background *b, const char *last)
{
    pthread_mutex_lock(&b->lock);
    struct tune_watch *t = &b->known.tune;
    if (t->running && !t->ended)
        text_cut(
            t->error, sizeof t->error,
            *last
                ? last
                : "the process of the search was ended before it had a result; what was measured is stored");
    t->running = false;
    const bool cancelled = b->known.task_cancelled;
    b->command_pid = 0;
    b->known.command[0] = '\0';
    b->known.task_known = b->known.task_cancelled = false;
    pthread_mutex_unlock(&b->lock);
    return cancelled;
}

void job_run_command(struct background *b, const struct job *j)
{
    enum { WORDS = 64, ADDED = 4 };
    char line[COMMAND_TEXT], *argv[WORDS + ADDED + 1], name[] = "qdyno", db_flag[] = "--db",
                                                       progress[] = "--progress=json";
    int n = 0, status = 0;
    struct err why = { 0 };
    struct running_command r = { .b = b, .page = calloc(1, sizeof *r.page) };
    argv[0] = name;
    enum err_code rc = !str_put(line, sizeof line, j->text[0])
                           ? err_set(&why, ERR_USAGE, "the command has more than %d bytes", COMMAND_TEXT - 1)
                       : r.page ? shell_words_split(line, argv + 1, WORDS, &n, &why)
                                : err_set(&why, ERR_NOMEM, "not enough memory for a command");
    int count = n + 1;
    if (!rc) argv[count++] = progress;
    if (!rc && b->db_path) { /* the database of this dashboard */
        argv[count++] = db_flag;
        argv[count++] = strdupa(b->db_path);
    }
    argv[count] = NULL;
    const struct shell_run run = {
        .argv = argv, .line = command_on_line, .started = command_on_start, .ctx = &r
    };
    if (!rc) rc = shell_run(&run, &status, &why);
    if (!rc && !status) written_note(b, argv + 1, n);
    const bool cancelled = command_clear(b, rc ? why.message : r.last);
    if (rc) {
        background_announce(b, true, "%s", why.message);
    } else {
        text_cutf(r.page->title, sizeof r.page->title, "qdyno %s", j->text[0]);
        r.page->opens = j->id != 0 && !cancelled && r.page->count > 0;
        background_publish_page(b, r.page);
        command_announce_end(&r, j->text[0], j->text[1], status, cancelled);
    }
    free(r.page);
    background_read_applied(b); /* tune and apply change it */
    job_read_history(b, j);
}
