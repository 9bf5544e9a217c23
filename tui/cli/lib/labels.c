/* labels.c - see labels.h. git runs without a shell, with a time limit, and without its optional writes and
 * monitors, so that a label never disturbs or delays a measurement. */
#include "tui/cli/lib/labels.h"

#include "advisor/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIT_LIMIT_MS = 2000 };

/* Whether this directory or one above it has a .git, so that git is not started elsewhere. */
static bool is_checkout(void)
{
    char path[4096];
    if (!getcwd(path, sizeof path - sizeof "/.git")) return false;
    for (size_t n = strlen(path);; n--) {
        if (n && path[n] != '/' && path[n]) continue;
        snprintf(path + n, sizeof "/.git", "/.git");
        if (!access(path, F_OK)) return true;
        if (!n) return false;
        path[n] = 0;
    }
}

/* Reads the first line of fd until its end or the time limit. False: the limit, or nothing was written. */
static bool line_read(int fd, char *line, size_t size)
{
    const int64_t until = clock_ns() + (int64_t)GIT_LIMIT_MS * 1000000;
    size_t n = 0;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        const int64_t left_ms = (until - clock_ns()) / 1000000;
        if (left_ms <= 0 || (poll(&p, 1, (int)left_ms) < 0 && errno != EINTR)) return false;
        if (!p.revents) continue;
        const ssize_t got = read(fd, line + n, size - 1 - n);
        if (got < 0) return false;
        n += (size_t)got;
        line[n] = 0;
        if (!got || n == size - 1) break;
    }
    line[strcspn(line, "\r\n")] = 0;
    return *line != 0;
}

/* The first executable git in PATH; false: there is none. Empty entries, which mean this directory, are
 * skipped: a checkout must not choose what runs. */
static bool git_find(char *path, size_t size)
{
    const char *entry = getenv("PATH");
    while (entry && *entry) {
        const int n = (int)strcspn(entry, ":");
        snprintf(path, size, "%.*s/git", n, entry);
        if (n && (size_t)n + sizeof "/git" <= size && !access(path, X_OK)) return true;
        entry += n + (entry[n] == ':');
    }
    return false;
}

/* git ends with this program, however it ends. */
static enum err_code git_start(pid_t *pid, int out_fd)
{
    char path[4096];
    char *const argv[] = {
        "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "describe", "--always", "--dirty", NULL
    };
    const struct process_spec git = {
        .program = path, .argv = argv, .output_fd = out_fd, .mute = true, .channel_fd = -1
    };
    return git_find(path, sizeof path) ? process_spawn(pid, &git, NULL) : ERR_ABSENT;
}

/* `git describe --always --dirty` of the current directory. False: no checkout, no git, an error or the time
 * limit. */
static bool git_describe(char *out, size_t size)
{
    int fd[2], status = -1;
    pid_t pid;
    if (!is_checkout() || pipe2(fd, O_CLOEXEC)) return false;
    const bool started = !git_start(&pid, fd[1]);
    close(fd[1]);
    const bool known = started && line_read(fd[0], out, size);
    close(fd[0]);
    if (!started) return false;
    if (!known) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return known && WIFEXITED(status) && !WEXITSTATUS(status);
}

enum err_code cli_labels_given(struct run_labels *out, const struct cli_args *a, struct err *why)
{
    const char *text[ARGS_GIVEN];
    const int n = args_all(a, "--label", text, ARGS_GIVEN);
    enum err_code rc = ERR_OK;
    out->n = 0;
    for (int i = 0; i < n && !rc; i++) rc = run_labels_add(out, text[i], why);
    return rc ? err_prefix(why, "--label") : ERR_OK;
}

enum err_code cli_labels(struct run_labels *out, const struct cli_args *a, struct err *why)
{
    char commit[LABEL_VALUE], text[LABEL_VALUE + sizeof "commit="];
    const enum err_code rc = cli_labels_given(out, a, why);
    if (rc || run_labels_find(out, "commit") || !git_describe(commit, sizeof commit)) return rc;
    snprintf(text, sizeof text, "commit=%s", commit);
    (void)run_labels_add(out, text, NULL); /* a description that is no valid label is left out */
    return ERR_OK;
}

json_t *cli_labels_json(const struct run_labels *l)
{
    json_t *o = json_object();
    for (int i = 0; i < l->n; i++) json_put_str(o, l->label[i].key, l->label[i].value);
    return o;
}

json_t *cli_labels_of_run(const struct cli_global *g, int64_t run_id)
{
    struct run_labels l = { 0 };
    struct db *d = NULL;
    struct err why = { 0 };
    enum err_code rc = run_id ? db_open(&d, g->db_path, &why) : ERR_OK;
    if (!rc && run_id) rc = db_labels_get(d, run_id, &l, &why);
    db_close(d);
    if (!rc) return cli_labels_json(&l);
    if (rc == ERR_NOMEM) memory_short_set(); /* this document cannot be complete */
    log_write(&g->log, LOG_WARN, "the labels of run %lld are unknown: %s", (long long)run_id, why.message);
    return json_null();
}

struct prompt_lines {
    struct table *t;
    struct str said; /* each note once: a search that was continued has it again */
};

static void prompt_line(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct prompt_lines *l = ctx;
    (void)unix_ms;
    if (strcmp(kind, RUN_PROMPT_EVENT) || strstr(str_text(&l->said), text)) return;
    str_printf(&l->said, "%s\n", text);
    table_note(l->t, "%s", text);
}

void cli_note_prompts(struct table *t, const struct cli_global *g, int64_t run_id)
{
    struct prompt_lines l = { .t = t };
    struct db *d = NULL;
    struct err why = { 0 };
    enum err_code rc = run_id ? db_open(&d, g->db_path, &why) : ERR_OK;
    if (!rc && run_id) rc = db_event_list(d, run_id, prompt_line, &l, &why);
    if (rc)
        log_write(&g->log, LOG_WARN, "the prompts of run %lld are unknown: %s", (long long)run_id,
                  why.message);
    db_close(d);
    str_free(&l.said);
}

void cli_labels_text(struct str *out, const struct run_labels *l)
{
    for (int i = 0; i < l->n; i++)
        str_printf(out, "%s%s=%s", i ? " " : "", l->label[i].key, l->label[i].value);
}
