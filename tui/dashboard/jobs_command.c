/* tui/dashboard/jobs_command.c - runs a command of the command line as a child process: its progress, output
 * and end.
 *
 * Cancelling sends SIGINT, as Ctrl-C would: what a command keeps then, it keeps here. */
#include "tui/dashboard/background.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "base/cut/cut.h"
#include "tui/dashboard/shell.h"

struct running_command {
    struct background *b;
    struct text_page *page; /* its output */
    char last[400];         /* its last line: after an error this is the message */
    bool reads;             /* it runs beside what else runs */
    struct ab_watch ab;     /* the A/B that it measures */
    int64_t limits_ms;      /* when the limits of the machine were measured that were known before; 0: none */
};

static void publish_progress(struct background *b, const struct task_progress *at, const json_t *tune)
{
    background_lock(b);
    struct tune_watch *t = &b->known.tune;
    b->known.task = *at;
    b->known.task_known = true;
    if (t->running && tune_watch_read(t, tune)) {
        t->share = at->done;
        t->left_s = at->left_s;
    }
    background_unlock_running(b);
}

static void command_on_line(void *ctx, const char *text)
{
    struct running_command *r = ctx;
    struct task_progress at;
    json_t *o = progress_line_parse(text);
    if (o) {
        task_progress_read(&at, o);
        const json_t *ab = json_object_get(o, "ab");
        if (!r->reads) publish_progress(r->b, &at, json_object_get(o, "tune"));
        if (!r->reads && ab) ab_watch_line(r->b, &r->ab, ab);
        json_decref(o);
        return;
    }
    text_page_put(r->page, PAGE_PLAIN, "%s", text);
    text_cut(r->last, sizeof r->last, text);
    if (!r->reads && text[0] != '|')
        background_log(r->b, LOG_INFO, "| %s", text); /* a table is on the page that o shows */
}

static void command_on_start(void *ctx, int pid)
{
    struct running_command *r = ctx;
    if (r->reads) return;
    background_lock(r->b);
    r->b->command_pid = pid;
    r->b->pausable = false;
    background_unlock_if(r->b, false);
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
    background_lock(b);
    snprintf(buf, TUNE_SENTENCE, "%s", b->known.tune.ended ? b->known.tune.text : "");
    background_unlock_if(b, false);
    return buf;
}

static int64_t limits_measured_ms(struct background *b)
{
    const struct known_machine k = background_machine(b);
    return k.ceilings_known ? k.ceilings.measured_unix_ms : 0;
}

static bool limits_are_newer(struct background *b, int64_t before_ms)
{
    background_read_limits(b);
    return limits_measured_ms(b) > before_ms;
}

static void command_announce_end(const struct running_command *r, const struct words *command, int status,
                                 bool cancelled)
{
    struct background *b = r->b;
    char whole[PATH_MAX], sentence[TUNE_SENTENCE];
    const char *made = status ? NULL : words_made(command), *name = words_at(command, 1);
    if (r->ab.known && words_run(command, "ab"))
        ab_watch_announce(b, &r->ab);
    else if (!status && words_run(command, "apply"))
        background_announce(b, false, "%s",
                            words_have(command, "--undo")
                                ? "the previous configuration is in use again; press o for the output"
                                : "applied; press u to undo, o for the output");
    else if (!status && words_run(command, "advise") && limits_are_newer(b, r->limits_ms))
        background_announce(b, false,
                            "the machine has been measured: 3 shows the advice, o the output of the command");
    else if (made && words_run(command, "quantize"))
        background_announce(b, false, "%s has been written: 6 then ! measures its quality, m loads it",
                            path_file_name(made));
    else if (made)
        background_announce(b, false, "%s has been written", realpath(made, whole) ? whole : made);
    else if ((!status || status_is_verdict(status)) && words_run(command, "tune") &&
             *search_sentence(b, sentence))
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
    background_model(b, model);
    if (!kept || !model[0]) {
        free(kept);
        return;
    }
    if (apply_read(kept, model, &found, &why))
        background_log(b, LOG_WARN, "the configuration applied to this model cannot be read: %s",
                       why.message);
    background_lock(b);
    const bool same = !strcmp(model, b->known.model_path); /* the model may have changed meanwhile */
    if (same) {
        _Static_assert(sizeof b->known.applied >= sizeof kept->line, "a line that is cut is another one");
        str_put(b->known.applied, sizeof b->known.applied, found ? kept->line : "");
        snprintf(b->known.applied_when, sizeof b->known.applied_when, "%s", found ? kept->when : "");
        text_cut(b->known.applied_because, sizeof b->known.applied_because, found ? kept->because : "");
        snprintf(b->known.applied_load, sizeof b->known.applied_load, "%s", found ? kept->load : "");
    }
    background_unlock_if(b, same);
    free(kept);
}

/* Note what `quantize IN OUT -R RECIPE ...` wrote, until an `eval` has run: view 6 offers to measure it. */
static void written_note(struct background *b, const struct words *command)
{
    const char *recipe = words_value(command, "-R"), *calib = words_value(command, "--calib");
    const bool quantizes = words_run(command, "quantize") && words_made(command) && recipe &&
                           !words_have(command, "--recover"); /* which is more than the recipe */
    background_lock(b);
    struct snapshot *s = &b->known;
    if (words_run(command, "eval")) s->written[0] = '\0';
    if (quantizes) {
        const int n_recipe = snprintf(s->written_recipe, sizeof s->written_recipe, "%s%s%s", recipe,
                                      calib ? ",calib=" : "", calib ? calib : "");
        const bool whole = n_recipe < (int)sizeof s->written_recipe &&
                           str_put(s->written_from, sizeof s->written_from, words_at(command, 2)) &&
                           str_put(s->written, sizeof s->written, words_made(command));
        if (!whole) s->written[0] = '\0'; /* a part of a path or recipe would be measured as another one */
    }
    background_unlock(b);
}

/* Publish that no command runs. Returns whether it was cancelled. */
static bool command_clear(struct background *b, struct ab_watch *ab, int status, const char *last)
{
    background_lock(b);
    const bool cancelled = b->known.task_cancelled;
    background_unlock_if(b, false);
    ab_watch_end(b, ab, &(struct command_end){ cancelled, status, last });
    background_lock(b);
    ab_watch_publish(b, ab);
    struct tune_watch *t = &b->known.tune;
    if (t->running && !t->ended)
        text_cut(
            t->error, sizeof t->error,
            *last
                ? last
                : "the process of the search was ended before it had a result; what was measured is stored");
    t->running = false;
    b->known.command = (struct words){ .n = 0 };
    b->known.task_known = b->known.task_cancelled = b->known.experiment_starting = false;
    background_unlock_running(b);
    return cancelled;
}

static const char CHANGES_FLAG[] = "--load-changes=/dev/fd/3"; /* PROCESS_CHANNEL_FD */

/* What starts: the words, and what this dashboard adds to every command. */
static const char **child_argv(const struct words *command, const char *db_path)
{
    const bool changes = words_run(command, "ab");
    const char *const added[] = { "--progress=json", changes ? CHANGES_FLAG : NULL, db_path ? "--db" : NULL,
                                  db_path };
    const char **argv = malloc(((size_t)command->n + COUNT_OF(added) + 1) * sizeof *argv);
    if (!argv) return NULL;
    int n = command->n;
    memcpy(argv, command->argv, (size_t)n * sizeof *argv);
    for (size_t i = 0; i < COUNT_OF(added); i++)
        if (added[i]) argv[n++] = added[i];
    argv[n] = NULL;
    return argv;
}

static void changes_set(struct background *b, int fd)
{
    background_lock(b);
    b->changes_fd = fd;
    background_unlock_if(b, false);
}

/* Run the words of the job until they end. */
static enum err_code command_run(struct running_command *r, const struct words *command, int *status,
                                 struct err *why)
{
    const char **argv = child_argv(command, r->b->db_path);
    int ends[2] = { 0, 0 };
    enum err_code rc = r->page && argv ? ERR_OK : err_set(why, ERR_NOMEM, "not enough memory for a command");
    if (!rc && words_run(command, "ab") && pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        rc = err_set(why, err_of_errno(errno), "cannot make a pipe: %s", strerror(errno));
    const struct shell_run run = { .argv = (char *const *)argv,
                                   .channel_fd = ends[0],
                                   .line = command_on_line,
                                   .started = command_on_start,
                                   .ctx = r };
    if (ends[1]) changes_set(r->b, ends[1]);
    if (!rc) rc = shell_run(&run, status, why);
    if (ends[1]) changes_set(r->b, 0);
    for (int i = 0; i < 2; i++)
        if (ends[i]) close(ends[i]);
    free(argv);
    return rc;
}

void job_run_command(struct background *b, const struct job *j)
{
    int status = 0;
    struct err why = { 0 };
    struct running_command r = { .b = b, .page = calloc(1, sizeof *r.page) };
    r.limits_ms = limits_measured_ms(b);
    const enum err_code rc = command_run(&r, &j->command, &status, &why);
    if (!rc && !status) written_note(b, &j->command);
    const bool cancelled = command_clear(b, &r.ab, status, rc ? why.message : r.last);
    if (rc) {
        background_announce(b, true, "%s", why.message);
    } else {
        words_shown(&j->command, 0, r.page->title, sizeof r.page->title);
        r.page->opens = j->id != 0 && !cancelled && r.page->count > 0;
        background_publish_page(b, r.page);
        command_announce_end(&r, &j->command, status, cancelled);
    }
    ab_watch_close(&r.ab);
    free(r.page);
    background_read_applied(b); /* tune and apply change it */
    job_read_history(b, j);
    const char *advised = !rc && !status && words_run(&j->command, "advise") ? words_value(&j->command, "-m")
                                                                             : NULL;
    if (advised) job_advise(b, &(struct job){ .text = advised });
}

enum err_code background_run_beside(struct background *b, struct text_page *page, const struct words *command,
                                    int *status, struct err *why)
{
    struct running_command r = { .b = b, .page = page, .reads = true };
    return command_run(&r, command, status, why);
}

void job_read_command(struct background *b, const struct job *j)
{
    int status = 0;
    struct err why = { 0 };
    struct text_page *page = calloc(1, sizeof *page);
    enum err_code rc = background_run_beside(b, page, &j->command, &status, &why);
    if (!rc && status && !status_is_verdict(status))
        rc = err_set(&why, ERR_IO, "%s", page->count ? page->line[page->count - 1].text : "");
    if (rc) {
        background_announce(b, true, "%s", why.message);
    } else {
        text_cut(page->title, sizeof page->title, j->text);
        page->opens = true;
        background_publish_page(b, page);
    }
    free(page);
}
