/* advisor/run/foreign_process.c - processes of other engines (foreign.h).
 *
 * They may be scripts that start the real program, so everything is done to the whole process group: ending
 * it, stopping it while another arm works, counting what it uses. */
#include "advisor/run/foreign.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sysfs/sysfs.h"

enum {
    SAID_MOST = 1 << 22, /* bytes of output that are kept: the newest */
    END_MS = 2000,       /* from SIGTERM to SIGKILL */
    TREE_MOST = 1024,    /* processes of a tree */
    STAT_LIMIT = 1 << 16
};

/* ---------------------------------------------------------------- words */

void words_add(struct words *w, const char *text)
{
    char **grown = realloc(w->word, (size_t)(w->n + 2) * sizeof(*grown)), *copy = strdup(text);
    if (grown) w->word = grown;
    if (!grown || !copy) {
        w->failed = true;
        free(copy);
        return;
    }
    w->word[w->n++] = copy;
    w->word[w->n] = NULL;
}

enum err_code words_split(struct words *w, const char *text, struct err *why)
{
    struct str word = { 0 };
    bool quoted = false, some = false;
    for (const char *p = text;; p++) {
        if (*p == '\'') {
            quoted = !quoted;
            some = true;
        } else if (!*p || (!quoted && isspace((unsigned char)*p))) {
            if (some) words_add(w, str_text(&word));
            str_clear(&word);
            some = false;
        } else {
            str_append_n(&word, p, 1);
            some = true;
        }
        if (!*p) break;
    }
    w->failed = w->failed || word.failed;
    str_free(&word);
    return quoted ? err_set(why, ERR_USAGE, "args: a quote is not closed in %.80s", text) : ERR_OK;
}

void words_free(struct words *w)
{
    for (int i = 0; i < w->n; i++) free(w->word[i]);
    free(w->word);
    *w = (struct words){ 0 };
}

void words_environment(struct words *env, const char *const *more)
{
    for (char **have = environ; *have; have++) words_add(env, *have);
    for (; more && *more; more++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*more, "="), *more);
        if (!getenv(name)) words_add(env, *more);
    }
}

enum err_code foreign_program(char **out, const struct config *c, struct err *why)
{
    const char *bin = config_text(c, KNOB_BIN), *name = *bin ? bin : ENGINES[config_engine(c)].program;
    struct str path = { 0 };
    *out = NULL;
    if (strchr(name, '/')) {
        str_append(&path, name);
    } else {
        const char *dirs = getenv("PATH");
        for (const char *at = dirs ? dirs : ""; *at && !path.len; at += strspn(at, ":")) {
            const size_t n = strcspn(at, ":");
            str_printf(&path, "%.*s/%s", (int)n, at, name);
            if (access(str_text(&path), X_OK)) str_clear(&path);
            at += n;
        }
    }
    struct stat st;
    if (path.len && !stat(str_text(&path), &st) && S_ISREG(st.st_mode) && !access(str_text(&path), X_OK)) {
        *out = str_take(&path);
        return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    str_free(&path);
    return err_set(why, ERR_ABSENT, "engine=%s: there is no program '%s'%s", config_text(c, KNOB_ENGINE),
                   name, strchr(name, '/') ? "" : " in the folders of $PATH: bin=FILE says where it is");
}

static bool sets_threads(const struct words *w)
{
    for (int i = 1; i < w->n; i++)
        if (!strcmp(w->word[i], "-t") || !strcmp(w->word[i], "--threads") ||
            str_starts(w->word[i], "--threads="))
            return true;
    return false;
}

/* Passes the number of threads where a mask, cpuset or quota allows fewer than the machine has cores.
 * llama.cpp's own default counts all cores, and the threads would then stall each other. */
static void limit_threads(struct words *w)
{
    char number[16];
    const struct usable_cpus *u = usable_cpus();
    if (sets_threads(w) || !u->online_cores || u->threads >= u->online_cores) return;
    snprintf(number, sizeof number, "%d", u->threads);
    words_add(w, "-t");
    words_add(w, number);
}

enum err_code foreign_flags(struct words *w, const struct config *c, struct err *why)
{
    for (int i = 0; i < KNOB_COUNT; i++) {
        if (!c->given[i] || !KNOBS[i].flag || i == KNOB_MODEL) continue;
        words_add(w, KNOBS[i].flag);
        words_add(w, config_text(c, (enum knob_id)i));
        if (i != KNOB_BATCH) continue;
        words_add(w, "-ub"); /* llama.cpp divides a batch again: rows per forward pass */
        words_add(w, config_text(c, KNOB_BATCH));
    }
    const enum err_code rc = words_split(w, config_text(c, KNOB_ARGS), why);
    if (!rc) limit_threads(w);
    return rc;
}

enum err_code foreign_flags_check(const struct config *c, const char *const *own, struct err *why)
{
    struct words w = { 0 };
    enum err_code rc = words_split(&w, config_text(c, KNOB_ARGS), why);
    for (int i = 0; i < w.n && !rc; i++)
        for (const char *const *f = own; *f && !rc; f++) {
            const size_t n = strlen(*f);
            if (!strncmp(w.word[i], *f, n) && (!w.word[i][n] || w.word[i][n] == '='))
                rc = err_set(why, ERR_USAGE, "args: %s is set by qdyno: leave it out", *f);
        }
    if (!rc && w.failed) rc = err_set(why, ERR_NOMEM, "out of memory for arguments");
    words_free(&w);
    return rc;
}

/* ---------------------------------------------------------------- the process */

static double tree_cpu_s(int pid)
{
    return foreign_usage(pid).cpu_s;
}

static void take_output(struct foreign_process *p)
{
    if (said_take(&p->said)) watchdog_heard(&p->watchdog);
}

enum err_code foreign_start(struct foreign_process *p, const struct words *command,
                            const char *const *environment, struct err *why)
{
    int output = -1;
    struct words env = { 0 };
    p->watchdog.tree_cpu_s = tree_cpu_s;
    p->said.fd = -1;
    words_environment(&env, environment);
    enum err_code rc = command->failed || env.failed ? err_set(why, ERR_NOMEM, "out of memory for a command")
                                                     : said_open(&p->said, SAID_MOST, &output, why);
    if (rc) {
        words_free(&env);
        return rc;
    }
    const struct process_spec start = { .program = command->word[0],
                                        .argv = command->word,
                                        .envp = env.word,
                                        .output_fd = output,
                                        .channel_fd = -1 };
    rc = process_spawn(&p->pid, &start, why);
    words_free(&env);
    close(output);
    if (!rc) rc = process_guard_start(&p->guard, p->pid, why);
    if (rc) foreign_end(p);
    return rc;
}

bool foreign_lives(struct foreign_process *p)
{
    take_output(p);
    if (!p->pid) return false;
    const pid_t got = waitpid(p->pid, &p->status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) return true;
    if (got < 0) p->status = 0;
    kill(-p->pid, SIGKILL); /* what it started and left behind would go on working */
    take_output(p);
    p->pid = 0;
    return false;
}

void foreign_hold(struct foreign_process *p)
{
    if (!p->pid || p->held) return;
    p->held = !kill(-p->pid, SIGSTOP);
}

void foreign_release(struct foreign_process *p)
{
    if (!p->pid || !p->held) return;
    kill(-p->pid, SIGCONT);
    p->held = false;
}

void foreign_end(struct foreign_process *p)
{
    const pid_t group = p->pid;
    foreign_release(p);
    if (group) {
        kill(-group, SIGTERM);
        const int64_t until = clock_ns() + (int64_t)END_MS * 1000000;
        while (foreign_lives(p) && clock_ns() < until) clock_sleep_ns(2000000);
        kill(-group, SIGKILL); /* also what it started and left behind */
        while (p->pid && waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR) continue;
        p->pid = 0;
    }
    process_guard_end(&p->guard);
    said_close(&p->said);
}

enum err_code foreign_died(const struct foreign_process *p, const char *name, struct err *why)
{
    char said[SAID_LAST];
    said_last(&p->said, said);
    if (WIFSIGNALED(p->status) && WTERMSIG(p->status) == SIGKILL)
        return err_set(why, ERR_FIT, "%s was killed, probably for memory%s", name, said);
    if (WIFSIGNALED(p->status))
        return err_set(why, ERR_FORMAT, "%s died of signal %d (%s)%s", name, WTERMSIG(p->status),
                       strsignal(WTERMSIG(p->status)), said);
    return err_set(why, ERR_FORMAT, "%s ended with status %d%s", name, WEXITSTATUS(p->status), said);
}

/* ---------------------------------------------------------------- what it uses */

struct process_stat {
    int pid, parent;
    double cpu_s, major, minor;
};

/* Reads /proc/PID/stat. False: it has ended. */
static bool stat_read(int pid, struct process_stat *out)
{
    char path[64], *text = NULL;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (file_read(&text, NULL, path, STAT_LIMIT, NULL)) return false;
    const char *after = strrchr(text, ')'); /* the name before it may contain anything */
    unsigned long long minor, major, user, system;
    int parent;
    const bool ok = after && sscanf(after + 1, " %*c %d %*d %*d %*d %*d %*u %llu %*u %llu %*u %llu %llu",
                                    &parent, &minor, &major, &user, &system) == 5;
    if (ok)
        *out = (struct process_stat){ .pid = pid,
                                      .parent = parent,
                                      .cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK),
                                      .major = (double)major,
                                      .minor = (double)minor };
    free(text);
    return ok;
}

/* The process and its descendants, in tree[TREE_MOST]. */
static int tree_read(int root, struct process_stat *tree)
{
    struct process_stat *all = malloc(sizeof(*all) * 32768);
    DIR *d = all ? opendir("/proc") : NULL;
    int n = 0, found = 0;
    for (struct dirent *e; d && n < 32768 && (e = readdir(d));)
        if (isdigit((unsigned char)*e->d_name)) n += stat_read(atoi(e->d_name), &all[n]);
    if (d) closedir(d);
    for (int i = 0; i < n && !found; i++)
        if (all[i].pid == root) tree[found++] = all[i];
    for (int k = 0; k < found; k++)
        for (int i = 0; i < n && found < TREE_MOST; i++)
            if (all[i].parent == tree[k].pid) tree[found++] = all[i];
    free(all);
    return found;
}

double sum_known(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : a + b;
}

struct foreign_usage foreign_usage(int pid)
{
    struct foreign_usage u = { NAN, NAN, NAN, NAN, NAN };
    struct process_stat *tree = pid > 0 ? malloc(sizeof(*tree) * TREE_MOST) : NULL;
    const int n = tree ? tree_read(pid, tree) : 0;
    for (int i = 0; i < n; i++) {
        const struct process_memory m = sys_process_memory("", tree[i].pid);
        u.cpu_s = sum_known(u.cpu_s, tree[i].cpu_s);
        u.major_faults = sum_known(u.major_faults, tree[i].major);
        u.minor_faults = sum_known(u.minor_faults, tree[i].minor);
        u.peak_bytes = sum_known(u.peak_bytes, m.peak_bytes); /* without those that have just ended */
        u.rss_bytes = sum_known(u.rss_bytes, m.rss_bytes);
    }
    free(tree);
    return u;
}

void foreign_reset_peak(int pid)
{
    struct process_stat *tree = pid > 0 ? malloc(sizeof(*tree) * TREE_MOST) : NULL;
    const int n = tree ? tree_read(pid, tree) : 0;
    for (int i = 0; i < n; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/clear_refs", tree[i].pid);
        FILE *f = fopen(path, "we");
        if (!f) continue;
        fputs("5", f);
        fclose(f);
    }
    free(tree);
}

void foreign_put_usage(json_t *answer, int pid, struct foreign_usage before)
{
    const struct foreign_usage now = foreign_usage(pid);
    json_put_num(answer, "cpu_s", now.cpu_s - before.cpu_s);
    json_put_num(answer, "peak_rss_bytes", now.peak_bytes);
    json_put_num(answer, "rss_bytes", now.rss_bytes);
    json_put_num(answer, "major_faults", now.major_faults - before.major_faults);
    json_put_num(answer, "minor_faults", now.minor_faults - before.minor_faults);
}

/* ---------------------------------------------------------------- who listens on a port */

/* The inode of the socket that listens on a port, from a table of /proc/net; 0: none. */
static unsigned long long socket_inode(const char *table, int port)
{
    char *text = NULL, *rest = NULL;
    unsigned long long inode = 0;
    if (file_read(&text, NULL, table, 1 << 24, NULL)) return 0;
    for (char *line = strtok_r(text, "\n", &rest); line && !inode; line = strtok_r(NULL, "\n", &rest)) {
        unsigned local, state;
        unsigned long long found;
        /* " 0: 0100007F:1F90 00000000:0000 0A ... inode": state 0A is LISTEN */
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*d %llu", &local,
                   &state, &found) == 3 &&
            (int)local == port && state == 0x0A)
            inode = found;
    }
    free(text);
    return inode;
}

static bool process_has_socket(int pid, unsigned long long inode)
{
    char folder[64], path[400], want[64], got[64];
    snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
    snprintf(want, sizeof want, "socket:[%llu]", inode);
    DIR *d = opendir(folder);
    bool has = false;
    for (struct dirent *e; d && !has && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        const ssize_t n = readlink(path, got, sizeof got - 1);
        if (n > 0) got[n] = 0;
        has = n > 0 && !strcmp(got, want);
    }
    if (d) closedir(d);
    return has;
}

int foreign_listener(int port)
{
    unsigned long long inode = socket_inode("/proc/net/tcp", port);
    if (!inode) inode = socket_inode("/proc/net/tcp6", port);
    DIR *d = inode ? opendir("/proc") : NULL;
    int pid = 0;
    for (struct dirent *e; d && !pid && (e = readdir(d));)
        if (isdigit((unsigned char)*e->d_name) && process_has_socket(atoi(e->d_name), inode))
            pid = atoi(e->d_name);
    if (d) closedir(d);
    return pid;
}
