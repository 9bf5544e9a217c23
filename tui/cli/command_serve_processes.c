/* `qdyno serve --processes`: the supervisor of several processes that serve at one address.
 *
 * It opens the socket and the shared memory, starts the processes, and changes their number with the load
 * (scale_step). It opens no model and answers no request. A process that ends unexpectedly is replaced, after
 * a pause that grows with each such end. Each change of the number of processes is recorded in the database
 * as an alert that ends at once. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advisor/watch/watch.h"
#include "db/db.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/command_serve.h"
#include "tui/widgets/widgets.h"

enum {
    STABLE_S = 60, /* a process that served for so long has not failed to start */
    GIVE_UP = 6,   /* ends in succession while no process serves */
    KILL_S = 10,   /* beyond the time of --drain */
};

struct process {
    pid_t pid;                    /* 0: none */
    bool wanted, retired;         /* retired: it was asked to end */
    bool has_served;              /* this process */
    bool first;                   /* the first one of all, which prints the address */
    int crashes;                  /* unexpected ends in succession */
    int64_t begun_ns, restart_ns; /* restart_ns: when a wanted one without a process is started */
};

struct supervisor {
    const struct serve_processes *o;
    const struct cli_global *g;
    const struct cli_args *a;
    struct share *share;
    int listener, port;
    char machine[sizeof((struct machine *)NULL)->id], address[128];
    struct process process[SERVE_PROCESSES]; /* [o->rule.most], by slot */
    struct scale_state state;
    int planned;     /* with dry_run: processes that there would be */
    bool has_served; /* any process */
    bool is_process; /* this is a new process, after fork */
    bool ended;      /* the server cannot go on, with `status` */
    int status;
};

static double seconds_since(int64_t ns)
{
    return (double)(clock_ns() - ns) * 1e-9;
}

/* Without those that were asked to end. */
static int processes_wanted(const struct supervisor *s)
{
    int n = 0;
    for (int i = 0; i < s->o->rule.most; i++) n += s->process[i].wanted && !s->process[i].retired;
    return n;
}

/* ---------------------------------------------------------------- records */

/* What is recorded about a change. */
struct process_change {
    enum scale_change kind;
    int from, to, waiting;
    char why[128], outcome[128];
};

/* A supervisor that was killed between the beginning and the end of a record leaves an open one. */
static enum err_code records_close_open(struct db *d, const struct alert_row *like, struct err *why)
{
    struct alert_row *rows = NULL;
    int n = 0;
    enum err_code rc = db_alert_list(d, like->machine, true, 0x7fffffff, &rows, &n, why);
    for (int i = 0; i < n && !rc; i++)
        if (!strcmp(rows[i].name, like->name) && !strcmp(rows[i].subject, like->subject))
            rc = db_alert_end(d, rows[i].id, "the server was killed", NULL, 0, why);
    free(rows);
    return rc;
}

static enum err_code record_store(const struct supervisor *s, const struct process_change *c, struct err *why)
{
    const struct alert *alert = alert_find(SERVE_ALERT);
    struct alert_row row = { .since_ms = clock_unix_ms(),
                             .value = c->waiting,
                             .threshold = s->o->rule.waiting };
    struct db *d = NULL; /* open for this record only: it must not be shared with new processes */
    snprintf(row.machine, sizeof row.machine, "%s", s->machine);
    snprintf(row.name, sizeof row.name, "%s", alert->name);
    snprintf(row.subject, sizeof row.subject, "%s", s->address);
    snprintf(row.grade, sizeof row.grade, "%s", GRADES[alert->grade]);
    snprintf(row.text, sizeof row.text, "%s: %d to %d processes: %s", SCALE_CHANGE_NAMES[c->kind], c->from,
             c->to, c->why);
    enum err_code rc = db_open(&d, s->g->db_path, why);
    if (!rc) rc = records_close_open(d, &row, why);
    if (!rc) rc = db_alert_begin(d, &row, NULL, 0, why);
    if (!rc) rc = db_alert_end(d, row.id, c->outcome, NULL, 0, why);
    db_close(d);
    return rc;
}

/* Serving goes on without the record. */
static void change_record(const struct supervisor *s, const struct process_change *c)
{
    struct err why = { 0 };
    cli_note(s->g, "%s: %d to %d processes: %s: %s", SCALE_CHANGE_NAMES[c->kind], c->from, c->to, c->why,
             c->outcome);
    if (record_store(s, c, &why))
        log_write(&s->g->log, LOG_WARN, "a change of the number of processes was not recorded: %s",
                  why.message);
}

/* ---------------------------------------------------------------- processes */

/* In the new process. Its process group is its own, so that Ctrl-C reaches only the supervisor, which tells
 * all processes by shared memory. */
static void process_run(struct supervisor *s, int slot, pid_t supervisor)
{
    const struct serve_member m = { .share = s->share,
                                    .slot = slot,
                                    .listener = s->listener,
                                    .port = s->port,
                                    .supervisor = supervisor,
                                    .first = !s->has_served };
    s->is_process = true;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    s->status = getppid() == supervisor ? s->o->serve(s->o->ctx, &m) : EXIT_INTERRUPTED;
}

static void process_start(struct supervisor *s, int slot)
{
    struct process *p = &s->process[slot];
    const pid_t supervisor = getpid();
    share_begin(s->share, slot);
    fflush(NULL); /* or both processes would write what is in the buffers */
    const pid_t pid = fork();
    if (pid == 0) {
        process_run(s, slot, supervisor);
        return;
    }
    p->wanted = true;
    p->retired = p->has_served = false;
    p->first = !s->has_served;
    p->begun_ns = clock_ns();
    p->pid = MAX(pid, 0);
    if (pid > 0) return;
    log_write(&s->g->log, LOG_WARN, "cannot start a process: %s", strerror(errno));
    share_end(s->share, slot);
    p->restart_ns = clock_ns() + (int64_t)(scale_restart_delay_s(++p->crashes) * 1e9);
}

static void ending_describe(int status, char *buf, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(buf, size, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(buf, size, "ended with status %d", WEXITSTATUS(status));
}

/* The server ends if its first process cannot start or reports an error soon, as that it cannot print the
 * address, or if no process can start any more. */
static bool supervisor_gives_up(struct supervisor *s, const struct process *p, int status)
{
    struct share_state now;
    share_read(s->share, &now);
    const bool reports = p->first && WIFEXITED(status) && WEXITSTATUS(status) &&
                         seconds_since(p->begun_ns) < STABLE_S;
    if (s->has_served && !reports && (now.ready || p->crashes < GIVE_UP)) return false;
    s->ended = true;
    if (WIFEXITED(status) && WEXITSTATUS(status)) { /* it has said why */
        s->status = WEXITSTATUS(status);
        return true;
    }
    struct err why;
    char how[96];
    ending_describe(status, how, sizeof how);
    err_set(&why, ERR_INTERNAL, "no process serves: the last one %s", how);
    s->status = cli_fail(s->a, &why);
    return true;
}

static void process_ended(struct supervisor *s, int slot, int status)
{
    struct process *p = &s->process[slot];
    struct process_change c = { .kind = SCALE_RESTART,
                                .from = processes_wanted(s),
                                .to = processes_wanted(s) };
    const pid_t pid = p->pid;
    char how[96];
    share_end(s->share, slot);
    p->pid = 0;
    if (p->retired) {
        *p = (struct process){ .pid = 0 };
        return;
    }
    if (share_is_stopping(s->share)) return;
    p->crashes = p->has_served && seconds_since(p->begun_ns) >= STABLE_S ? 1 : p->crashes + 1;
    if (supervisor_gives_up(s, p, status)) return;
    const double delay_s = scale_restart_delay_s(p->crashes);
    p->restart_ns = clock_ns() + (int64_t)(delay_s * 1e9);
    ending_describe(status, how, sizeof how);
    snprintf(c.why, sizeof c.why, "process %d %.80s", (int)pid, how);
    snprintf(c.outcome, sizeof c.outcome, "another one starts in %.3g s", delay_s);
    share_count_change(s->share, SCALE_RESTART);
    change_record(s, &c);
}

/* Processes that have ended; those that serve by now. */
static void processes_look(struct supervisor *s)
{
    for (int i = 0; i < s->o->rule.most && !s->ended; i++) {
        struct process *p = &s->process[i];
        int status;
        if (!p->pid) continue;
        if (share_phase(s->share, i) == SHARE_READY) s->has_served = p->has_served = true;
        if (waitpid(p->pid, &status, WNOHANG) == p->pid) process_ended(s, i, status);
    }
}

/* ---------------------------------------------------------------- the number of processes */

/* False: there is too little memory for one more process; `text` says so. */
static bool memory_suffices(const struct share_state *now, char *text, size_t size)
{
    struct machine m;
    struct err why;
    if (machine_detect(&m, "", &why) || m.memory_available_bytes < 0) return true; /* unknown */
    if (m.memory_available_bytes >= now->process_bytes) return true;
    snprintf(text, size, "not done: a process needs %s of memory, and %s are available",
             figure_bytes(now->process_bytes).text, figure_bytes(m.memory_available_bytes).text);
    return false;
}

static int slot_free(const struct supervisor *s)
{
    for (int i = 0; i < s->o->rule.most; i++)
        if (!s->process[i].wanted) return i;
    return -1;
}

/* The last one that serves. */
static int slot_to_retire(const struct supervisor *s)
{
    for (int i = s->o->rule.most - 1; i >= 0; i--)
        if (s->process[i].pid && !s->process[i].retired) return i;
    return -1;
}

/* Does what scale_step decided, and says in c->outcome what became of it. */
static int change_make(struct supervisor *s, struct process_change *c, const struct share_state *now)
{
    const bool up = c->kind == SCALE_UP;
    const int slot = up ? slot_free(s) : slot_to_retire(s);
    if (s->o->dry_run) {
        s->planned = c->to;
        snprintf(c->outcome, sizeof c->outcome, "not done: --dry-run");
    } else if (slot < 0) {
        snprintf(c->outcome, sizeof c->outcome, "not done: a process is still ending");
    } else if (!up || memory_suffices(now, c->outcome, sizeof c->outcome)) {
        snprintf(c->outcome, sizeof c->outcome, "done");
        share_count_change(s->share, c->kind);
        return slot;
    }
    return -1;
}

static void processes_scale(struct supervisor *s, const struct share_state *now)
{
    const struct scale_rule *r = &s->o->rule;
    const int n = s->o->dry_run ? s->planned : processes_wanted(s);
    const struct scale_observation seen = { .processes = n,
                                            .starting = processes_wanted(s) - now->ready,
                                            .waiting = now->sum.waiting,
                                            .running = now->sum.running,
                                            .sequences = now->sequences };
    const enum scale_change kind = scale_step(r, &s->state, &seen, clock_ns());
    if (!kind) return;
    struct process_change c = {
        .kind = kind, .from = n, .to = n + (kind == SCALE_UP ? 1 : -1), .waiting = seen.waiting
    };
    if (kind == SCALE_UP)
        snprintf(c.why, sizeof c.why, "at least %.0f requests waited for %.3g s (now %d)", r->waiting,
                 r->up_s, seen.waiting);
    else
        snprintf(c.why, sizeof c.why, "%d process%s could have done the work for %.3g s", c.to,
                 c.to == 1 ? "" : "es", r->down_s);
    const int slot = change_make(s, &c, now);
    change_record(s, &c); /* before fork: a new process must not have the database open */
    if (slot >= 0 && kind == SCALE_UP) process_start(s, slot);
    if (slot < 0 || kind == SCALE_UP) return;
    s->process[slot].retired = true;
    share_retire(s->share, slot);
}

/* At the start: the first process alone, so that it can print the address, then the others. */
static void processes_fill(struct supervisor *s, const struct share_state *now)
{
    char text[128];
    if (processes_wanted(s) >= s->o->rule.least || !now->ready) return;
    if (memory_suffices(now, text, sizeof text)) {
        process_start(s, slot_free(s));
        return;
    }
    struct err why;
    err_set(&why, ERR_FIT, "process %d of --processes: %s", processes_wanted(s) + 1, text);
    s->ended = true;
    s->status = cli_fail(s->a, &why);
}

static void processes_restart(struct supervisor *s)
{
    for (int i = 0; i < s->o->rule.most && !s->is_process; i++) {
        const struct process *p = &s->process[i];
        if (p->wanted && !p->pid && clock_ns() >= p->restart_ns) process_start(s, i);
    }
}

/* ---------------------------------------------------------------- from start to end */

static enum err_code supervisor_open(struct supervisor *s, struct err *why)
{
    struct machine m;
    const int most = s->o->rule.most;
    enum err_code rc = machine_detect(&m, "", why);
    const int threads = s->o->threads ? s->o->threads : machine_threads(&m);
    if (!rc) rc = share_open(&s->share, most, why);
    if (!rc) rc = http_listen(&s->listener, s->o->host, s->o->port, &s->port, why);
    if (rc) return rc;
    fcntl(s->listener, F_SETFL, O_NONBLOCK); /* who is too slow for a connection must not wait for the next */
    snprintf(s->machine, sizeof s->machine, "%s", m.id);
    snprintf(s->address, sizeof s->address, "%s port %d", s->o->host, s->port);
    if (threads * most > machine_usable_cores(&m))
        cli_note(
            s->g,
            "%d processes with %d thread%s each are more than the %d cores that this process may use: --threads sets "
            "the threads of each",
            most, threads, str_plural(threads), machine_usable_cores(&m));
    s->planned = s->o->rule.least;
    return ERR_OK;
}

/* Until a signal. In a new process it returns when that has ended. */
static void supervisor_run(struct supervisor *s)
{
    process_start(s, 0);
    while (!s->is_process && !s->ended && !cli_is_interrupted(s->g)) {
        struct share_state now;
        clock_sleep_ns(SERVE_WAIT_NS);
        processes_look(s);
        if (s->ended) break;
        processes_restart(s);
        share_read(s->share, &now);
        if (!s->is_process && s->has_served) processes_fill(s, &now);
        if (!s->is_process && s->has_served && !s->ended) processes_scale(s, &now);
    }
}

static bool processes_remain(const struct supervisor *s)
{
    for (int i = 0; i < s->o->rule.most; i++)
        if (s->process[i].pid) return true;
    return false;
}

/* All processes drain and end; one that does not is killed. */
static void supervisor_stop(struct supervisor *s)
{
    const int64_t begun_ns = clock_ns();
    share_stop(s->share);
    for (bool killed = false; processes_remain(s);) {
        for (int i = 0; i < s->o->rule.most; i++) {
            struct process *p = &s->process[i];
            int status;
            if (p->pid && waitpid(p->pid, &status, WNOHANG) == p->pid) process_ended(s, i, status);
        }
        if (!killed && seconds_since(begun_ns) > s->o->drain_s + KILL_S) {
            for (int i = 0; i < s->o->rule.most; i++)
                if (s->process[i].pid) kill(s->process[i].pid, SIGKILL);
            killed = true;
        }
        clock_sleep_ns(SERVE_WAIT_NS);
    }
}

int serve_processes(const struct serve_processes *o, const struct cli_global *g, const struct cli_args *a)
{
    struct supervisor s = { .o = o, .g = g, .a = a, .listener = -1 };
    struct err why = { 0 };
    const enum err_code rc = supervisor_open(&s, &why);
    if (rc) s.status = cli_fail(a, &why);
    if (!rc) supervisor_run(&s);
    if (!rc && !s.is_process) {
        struct share_state now;
        supervisor_stop(&s);
        share_read(s.share, &now);
        if (s.has_served) serve_note_totals(&now.sum, g);
    }
    if (s.listener >= 0) close(s.listener);
    share_close(s.share);
    return s.status;
}
