/* qdyno watch: measures and raises alerts without a user, for a terminal, a service or a timer.
 * advisor/watch does the work; this file parses flags, writes the lines and sets the exit status. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "advisor/watch/watch.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_watch_export.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/sampling.h"
#include "tui/cli/lib/server_flags.h"

/* clang-format off */
const struct cli_flag FLAGS_WATCH[] = {
    FLAG_MODEL_ROW,
    { .name = "--baseline", .value = "NAME",
      .help = "measure the champion of this baseline; default: the only one there is" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD", .many = true,
      .help = "workload of each round instead of a baseline, e.g. tg32" },
    FLAG_CONFIGS_ROW,
    { .name = "--every", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "time between the starts of two rounds; default 30m" },
    { .name = "-r", .alias = "--repetitions", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1000,
      .help = "undisturbed cells per round; default 5" },
    { .name = "--once", .help = "one round, then end; status 1 if a warning fires" },
    { .name = "--even-if-busy", .help = "measure even while other programs keep the machine busy; another measurement of qdyno on "
      "this machine is still waited for" },
    { .name = "--forget", .help = "delete the usual values of this machine and measure them anew" },
    { .name = "--alert", .value = "NAME=LIMIT[:FOR]", .many = true,
      .help = "set threshold and minimum duration of an alert, or NAME=off (see --print-alerts)" },
    { .name = "--alerts", .value = "FILE", .help = "read settings of --alert from FILE, one per line" },
    { .name = "--ref", .value = "CONFIG",
      .help = "also measure the KL divergence from this config in each round" },
    { .name = "--chunks", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 20,
      .help = "windows of text for --ref; default 4" },
    { .name = "--rollback", .value = "FILE",
      .help = "config file in use, as `qdyno tune` writes it; replaced by the config of the champion when "
              "that is faster" },
    { .name = "--webhook", .value = "URL", .help = "POST each alert there as JSON (also: QDYNO_WATCH_URL)" },
    { .name = "--alertmanager", .value = "URL",
      .help = "send alerts to this Alertmanager, e.g. http://localhost:9093; its token beside a webhook: "
              "QDYNO_ALERTMANAGER_BEARER" },
    TARGET_FLAGS("QDYNO_WATCH", TIMEOUT_OF_REQUEST),
    WATCH_PAGES_FLAGS,
    FLAG_PERIOD_ROW,
    FLAG_WAIT_QUIET_ROW,
    { .name = "--log", .value = "FILE", .help = "append the lines to FILE; SIGHUP reopens it" },
    { .name = "--list", .help = "print past alerts, newest first, and how they ended" },
    { .name = "--print-alerts", .help = "print the alerts, their settings and their meanings" },
    { .name = "--print-rules", .help = "print the alerts as a Prometheus rule file" },
    { .name = "--print-board", .help = "print a Grafana dashboard as JSON" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

/* ---------------------------------------------------------------- the lines */

/* Where the lines of a watch go. */
struct lines {
    const struct cli_global *g;
    const char *log_path; /* NULL: none */
    FILE *log;
    bool log_fails; /* lines are missing in it */
    int hangup;     /* signalfd of SIGHUP, -1 */
    bool bell;
};

static enum err_code log_open(struct lines *l, struct err *why)
{
    if (!l->log_path) return ERR_OK;
    FILE *f = fopen(l->log_path, "ae");
    if (!f)
        return err_set(why, err_of_errno(errno), "cannot write the log '%s': %s", l->log_path,
                       strerror(errno));
    setvbuf(f, NULL, _IOLBF, 0);
    if (l->log) fclose(l->log);
    l->log = f;
    return ERR_OK;
}

/* SIGHUP reopens the log. It is blocked before any thread starts, because threads inherit the signal mask. */
static void hangup_open(struct lines *l)
{
    sigset_t set;
    l->hangup = -1;
    if (!l->log_path) return;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    if (!pthread_sigmask(SIG_BLOCK, &set, NULL)) l->hangup = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Waits until `at` or a signal. SIGHUP reopens the log. */
static void wait_until(struct lines *l, int64_t at_ns)
{
    const int64_t ms = (at_ns - clock_ns()) / 1000000;
    struct pollfd p = { .fd = l->hangup, .events = POLLIN };
    struct signalfd_siginfo info;
    struct err why;
    if (ms > 0)
        poll(&p, 1,
             (int)MIN(ms,
                      60000)); /* poll ignores a negative descriptor: then this is a sleep that Ctrl-C ends */
    if (l->hangup >= 0 && read(l->hangup, &info, sizeof info) == sizeof info && log_open(l, &why))
        cli_note(l->g, "qdyno watch: cannot reopen the log file: %s; still writing to the old one",
                 why.message);
}

static void log_write_line(FILE *out, const struct watch_event *e)
{
    char when[32];
    const bool graded = e->kind == WATCH_FIRING || e->kind == WATCH_RESOLVED;
    char *text = sink_text(SINK_LINE, e->text);
    fprintf(out, "%s  %-9s %s%s%s\n", clock_iso8601(e->unix_ms, when, sizeof when), WATCH_KINDS[e->kind],
            graded ? GRADES[e->grade] : "", graded ? ": " : "", text ? text : "");
    free(text);
}

/* A full disk does not end the watch: it is reported when lines begin to be missing, and when they can be
 * written again. */
static void log_check(struct lines *l)
{
    if (!l->log) return;
    const int cause = errno;
    const bool fails = ferror(l->log) != 0;
    if (fails && !l->log_fails)
        cli_note(l->g, "qdyno watch: cannot write the log file '%s': %s; lines are missing in it",
                 l->log_path, strerror(cause));
    if (!fails && l->log_fails)
        cli_note(l->g, "qdyno watch: the log file '%s' can be written again", l->log_path);
    l->log_fails = fails;
    clearerr(l->log);
}

/* Callback for each event of the watch. */
static void watch_on_event(void *ctx, const struct watch_event *e)
{
    struct lines *l = ctx;
    const bool programs = l->g->output == OUTPUT_JSONL;
    if (e->kind == WATCH_PENDING && !programs) return; /* people need only alerts that really fire */
    char *line = programs ? json_line(e->about) : NULL, *json = line ? sink_text(SINK_JSON, line) : NULL;
    free(line);
    FILE *outs[] = { l->g->quiet ? NULL : stdout, l->log };
    for (size_t i = 0; i < COUNT_OF(outs); i++) {
        if (!outs[i]) continue;
        if (json)
            fprintf(outs[i], "%s\n", json);
        else
            log_write_line(outs[i], e);
        fflush(outs[i]);
    }
    log_check(l);
    free(json);
    if (e->bell && l->bell) fputc('\a', stderr);
}

static bool shall_continue(void *ctx)
{
    const struct lines *l = ctx;
    return !cli_is_interrupted(l->g);
}

/* ---------------------------------------------------------------- what is measured */

struct watched {
    struct watch_item item[WATCH_ITEMS];
    int n;
};

static enum err_code watched_add(struct watched *w, const struct watch_item *item, struct err *why)
{
    if (w->n == WATCH_ITEMS)
        return err_set(why, ERR_USAGE, "too many workloads: expected at most %d combinations of -C and -w",
                       WATCH_ITEMS);
    w->item[w->n++] = *item;
    return ERR_OK;
}

static enum err_code watched_add_baseline(struct watched *w, const struct baseline_row *b, struct err *why)
{
    struct watch_item *item = calloc(1, sizeof *item);
    if (!item) return err_set(why, ERR_NOMEM, "out of memory");
    item->has_baseline = true;
    item->baseline = *b;
    snprintf(item->model, sizeof item->model, "%s", b->model_path);
    enum err_code rc = config_parse(&item->config, b->config, why);
    if (!rc) rc = workload_parse(&item->workload, b->workload, why);
    if (rc)
        err_prefix(why, "baseline '%s'", b->name);
    else
        rc = watched_add(w, item, why);
    free(item);
    return rc;
}

static enum err_code watched_from_baseline(struct watched *w, const struct cli_global *g, const char *name,
                                           struct err *why)
{
    struct db *d = NULL;
    struct baseline_row *rows = NULL;
    const char *names[64];
    int n = 0, found = -1;
    enum err_code rc = db_open(&d, g->db_path, why);
    if (!rc) rc = db_baseline_list(d, &rows, &n, why);
    db_close(d);
    for (int i = 0; i < n; i++) {
        if (i < (int)COUNT_OF(names)) names[i] = rows[i].name;
        if (name ? !strcmp(rows[i].name, name) : n == 1) found = i;
    }
    if (!rc && found >= 0) rc = watched_add_baseline(w, &rows[found], why);
    if (!rc && found < 0 && name) {
        const char *near = str_nearest(name, names, (size_t)MIN(n, (int)COUNT_OF(names)));
        rc = err_set(why, ERR_USAGE, "no baseline '%s'%s%s%s; `qdyno baseline list` lists all", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (!rc && found < 0 && n > 1)
        rc = err_set(
            why, ERR_USAGE,
            "there are %d baselines: expected --baseline NAME, or -w WORKLOAD to measure without one", n);
    free(rows);
    return rc;
}

static enum err_code watched_from_lines(struct watched *w, const struct cli_args *a, struct err *why)
{
    const char *works[ARGS_GIVEN];
    struct config *configs = NULL;
    int n = 0;
    int n_works = args_all(a, "-w", works, ARGS_GIVEN);
    if (!n_works) works[n_works++] = "tg32";
    enum err_code rc = cli_config_grid(&configs, &n, a, why);
    for (int i = 0; i < n * n_works && !rc; i++) {
        struct watch_item *item = calloc(1, sizeof *item);
        char *model = NULL;
        if (!item) rc = err_set(why, ERR_NOMEM, "out of memory");
        if (!rc) item->config = configs[i / n_works];
        if (!rc) rc = workload_parse(&item->workload, works[i % n_works], why);
        if (!rc && *item->workload.eval_file)
            rc = err_set(
                why, ERR_USAGE,
                "-w %s scores a text: expected a timed workload such as tg64 or pp512; --ref CONFIG measures quality",
                works[i % n_works]);
        if (!rc && !item->workload.train) rc = cli_config_model(&model, a, &item->config, why);
        if (!rc && model && strlen(model) >= sizeof item->model)
            rc = err_set(why, ERR_USAGE, "the model's path is longer than %zu bytes", sizeof item->model - 1);
        if (!rc) snprintf(item->model, sizeof item->model, "%s", model ? model : "");
        if (!rc) rc = watched_add(w, item, why);
        free(model);
        free(item);
    }
    free(configs);
    return rc;
}

static enum err_code watched_choose(struct watched *w, const struct cli_global *g, const struct cli_args *a,
                                    struct err *why)
{
    const bool lines = args_has(a, "-w") || args_has(a, "-C") || args_has(a, "-m") || a->knob_count;
    const char *name = args_text(a, "--baseline", NULL);
    if (lines && name)
        return err_set(
            why, ERR_USAGE,
            "--baseline already fixes model, workload and config: leave -m, -w, -C and config flags out");
    return lines ? watched_from_lines(w, a, why) : watched_from_baseline(w, g, name, why);
}

/* ---------------------------------------------------------------- the alerts */

static enum err_code rules_read(struct alert_rules *r, const struct cli_args *a, struct err *why)
{
    const char *settings[ARGS_GIVEN], *file = args_text(a, "--alerts", NULL);
    const int n = args_all(a, "--alert", settings, ARGS_GIVEN);
    alert_rules_default(r);
    enum err_code rc = file ? alert_rules_read(r, file, why) : ERR_OK;
    for (int i = 0; i < n && !rc; i++) {
        rc = alert_rules_set(r, settings[i], why);
        if (rc) err_prefix(why, "--alert");
    }
    return rc;
}

#define ALERT(member) MEMBER(struct alert, member)
static const struct column ALERT_COLUMNS[] = {
    COL("alert", "alert", ALERT(name)),
    COL("severity", "severity"),
    KEY("signal"),
    KEY("comparison"),
    KEY("threshold", .kind = COLUMN_NUM),
    COL("limit", "fires"),
    KEY("clear", .kind = COLUMN_NUM),
    COL("for_s", "after s", ALERT(for_s)),
    KEY("keep_s", ALERT(keep_s)),
    COL("actions", "actions"),
    COL("meaning", "meaning", ALERT(meaning)),
    KEY("todo", ALERT(todo)),
};

DOCUMENT(ALERTS, "qdyno.alerts/1", ALERT_COLUMNS);

static const char *action_words(unsigned actions, char *buf, size_t size)
{
    static const struct {
        unsigned bit;
        const char *word;
    } WORDS[] = {
        { .bit = ACTION_BELL, .word = "bell" },           { .bit = ACTION_NOTIFY, .word = "notify" },
        { .bit = ACTION_ROLL_BACK, .word = "roll back" }, { .bit = ACTION_SUGGEST, .word = "suggest" },
        { .bit = ACTION_SCALE, .word = "scale" },
    };
    int n = snprintf(buf, size, "report");
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (actions & WORDS[i].bit && n < (int)size)
            n += snprintf(buf + n, size - (size_t)n, ", %s", WORDS[i].word);
    return buf;
}

static int print_alerts(const struct cli_global *g, const struct cli_args *a, const struct alert_rules *r)
{
    struct table t;
    table_init(&t, &DOCUMENT_ALERTS);
    for (int i = 0; i < ALERT_COUNT; i++) {
        const struct alert *x = &r->row[i];
        char value[48], limit[64], actions[64];
        snprintf(limit, sizeof limit, "%s %s", x->side == SIDE_ABOVE ? "above" : "below",
                 alert_value_text(x->signal, x->threshold, value, sizeof value));
        if (SIGNALS[x->signal].unit == ALERT_UNIT_YES) snprintf(limit, sizeof limit, "when true");
        if (r->off[i]) snprintf(limit, sizeof limit, "off");
        json_t *row = table_row(&t);
        document_put(&DOCUMENT_ALERTS, row, struct alert, x);
        json_put_str(row, "severity", GRADES[x->grade]);
        json_put_str(row, "signal", SIGNALS[x->signal].name);
        json_put_str(row, "comparison", x->side == SIDE_ABOVE ? "above" : "below");
        if (!r->off[i]) json_put_num(row, "threshold", x->threshold);
        json_put_str(row, "limit", limit);
        if (!r->off[i]) json_put_num(row, "clear", x->clear);
        json_put_str(row, "actions", action_words(x->actions, actions, sizeof actions));
    }
    return cli_finish(g, a, &t, EXIT_DONE);
}

#define PAST(member) MEMBER(struct alert_row, member)
static const struct column PAST_COLUMNS[] = {
    COL("since", "since (UTC)"),
    COL("ended", "ended (UTC)"),
    COL("alert", "alert", PAST(name)),
    COL("severity", "severity", PAST(grade)),
    COL("subject", "subject", PAST(subject)),
    KEY("value", PAST(value)),
    KEY("threshold", PAST(threshold)),
    COL("text", "message", MEMBER_AS(struct alert_row, text, STRING)),
    COL("reason", "how it ended"),
    KEY("machine", MEMBER_AS(struct alert_row, machine, STRING)),
};

DOCUMENT(ALERT_LIST, "qdyno.alert_list/1", PAST_COLUMNS);

static int print_past(const struct cli_global *g, const struct cli_args *a)
{
    enum { MOST = 1000 };
    struct err why = { 0 };
    struct db *d = NULL;
    struct alert_row *rows = NULL;
    struct table t;
    int n = 0, status;
    enum err_code rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = db_alert_list(d, NULL, false, MOST, &rows, &n, &why);
    db_close(d);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_ALERT_LIST);
    for (int i = 0; i < n; i++) {
        const struct alert_row *x = &rows[i];
        char when[32];
        json_t *row = table_row(&t);
        json_put_str(row, "since", clock_iso8601(x->since_ms, when, sizeof when));
        if (x->ended_ms) json_put_str(row, "ended", clock_iso8601(x->ended_ms, when, sizeof when));
        document_put(&DOCUMENT_ALERT_LIST, row, struct alert_row, x);
        json_put_str(row, "reason", x->ended_ms ? x->ended : NULL);
    }
    if (!n) table_note(&t, "no alert has fired yet");
    status = cli_finish(g, a, &t, EXIT_DONE);
    free(rows);
    return status;
}

static int print_text(const struct cli_args *a, const struct alert_rules *r)
{
    struct err why = { 0 };
    struct str text = { 0 };
    enum err_code rc = ERR_OK;
    if (args_has(a, "--print-board"))
        rc = board_write(&text, &why);
    else
        alert_rules_write(&text, r);
    if (!rc && text.failed) rc = err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) fputs(str_text(&text), stdout);
    str_free(&text);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}

/* ---------------------------------------------------------------- the loop */

/* The exit status of --once. A first round, which has nothing to compare with, is no failure. */
static int once_status(const struct watch_summary *s)
{
    if (s->highest >= GRADE_WARNING) return EXIT_WORSE;
    return s->postponed || s->failed ? EXIT_INVALID : EXIT_DONE;
}

static int watch_run(struct lines *l, const struct watch_options *o, struct watch_pages *pages,
                     const struct cli_args *a)
{
    struct err why = { 0 };
    struct watch *w;
    struct watch_summary s;
    const struct watch_host host = { .ctx = l, .on_event = watch_on_event, .go_on = shall_continue };
    if (watch_open(&w, o, &host, &why)) return cli_fail(a, &why);
    for (bool on = true; on;) {
        on = watch_step(w) && !o->once;
        watch_summary(w, &s);
        watch_pages_step(pages, watch_sampler(w), s.rounds, !on);
        if (on) wait_until(l, watch_next_ns(w));
        on = on && !cli_is_interrupted(l->g);
    }
    watch_close(w);
    if (!o->once) return EXIT_DONE; /* SIGTERM and Ctrl-C are the normal end */
    return cli_is_interrupted(l->g) ? EXIT_INTERRUPTED : once_status(&s);
}

static enum err_code output_check(const struct cli_global *g, struct err *why)
{
    if (g->output == OUTPUT_MD || g->output == OUTPUT_JSONL) return ERR_OK;
    return err_set(why, ERR_USAGE, "-o %s: a watch writes lines without end: expected md or jsonl",
                   OUTPUT_NAMES[g->output]);
}

static enum err_code urls_check(const struct watch_options *o, struct err *why)
{
    enum err_code rc = o->webhook ? http_url_check("webhook", o->webhook, HTTP_URL_ANY, why) : ERR_OK;
    if (!rc && o->alertmanager) rc = http_url_check("Alertmanager", o->alertmanager, HTTP_URL_BASE, why);
    return rc;
}

/* --list and --print-*: print something and measure nothing. */
static bool prints_only(const struct cli_args *a)
{
    return args_has(a, "--list") || args_has(a, "--print-alerts") || args_has(a, "--print-rules") ||
           args_has(a, "--print-board");
}

static int print_only(const struct cli_global *g, const struct cli_args *a, const struct alert_rules *rules)
{
    if (args_has(a, "--list")) return print_past(g, a);
    if (args_has(a, "--print-alerts")) return print_alerts(g, a, rules);
    return print_text(a, rules);
}

/* The token for Alertmanager where the flags are the webhook's; NULL: none. */
static const char *alertmanager_bearer(void)
{
    const char *token = getenv("QDYNO_ALERTMANAGER_BEARER");
    return token && *token ? token : NULL;
}

/* The period, and where notices go. alertmanager: filled where it differs from target's. */
static enum err_code receivers_read(struct watch_options *o, struct target *target,
                                    struct http_auth *alertmanager, const struct cli_args *a, struct err *why)
{
    if (!(o->every_s >= 1))
        return err_set(why, ERR_USAGE, "--every %s: expected at least 1s", args_text(a, "--every", ""));
    const enum err_code rc = target_read(target, a, "--webhook", "QDYNO_WATCH", why);
    o->webhook = target->url;
    o->webhook_auth = o->alertmanager_auth = &target->auth;
    if (o->webhook && o->alertmanager) {
        /* user, token, client certificate and --insecure are meant for one server: the webhook */
        *alertmanager = (struct http_auth){ .bearer = alertmanager_bearer(),
                                            .ca_file = target->auth.ca_file,
                                            .insecure_credentials = http_insecure_credentials(),
                                            .timeout_s = target->auth.timeout_s };
        o->alertmanager_auth = alertmanager;
    }
    return rc ? rc : urls_check(o, why);
}

int command_watch(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct target target = { 0 };
    struct http_auth alertmanager;
    struct machine m;
    struct watched *watched = calloc(1, sizeof *watched);
    struct watch_pages *pages = NULL;
    struct lines l = { .g = g, .log_path = args_text(a, "--log", NULL), .hangup = -1, .bell = isatty(2) };
    struct sampler_periods periods = { 0 };
    struct run_labels labels;
    struct watch_options o = { .db_path = g->db_path,
                               .labels = &labels,
                               .root = "",
                               .machine = &m,
                               .log = &g->log,
                               .every_s = args_num(a, "--every", 1800),
                               .repetitions = (int)args_int(a, "-r", 5),
                               .seed = g->seed,
                               .periods = &periods,
                               .once = args_has(a, "--once"),
                               .wait_quiet_s = args_num(a, "--wait-quiet", 0),
                               .even_if_busy = args_has(a, "--even-if-busy"),
                               .forget = args_has(a, "--forget"),
                               .rollback = args_text(a, "--rollback", NULL),
                               .reference = args_text(a, "--ref", NULL),
                               .quality_chunks = (int)args_int(a, "--chunks", 0),
                               .alertmanager = args_text(a, "--alertmanager", NULL) };
    int status = EXIT_INTERNAL;
    enum err_code rc = watched ? ERR_OK : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = rules_read(&o.rules, a, &why);
    if (!rc && prints_only(a)) {
        free(watched);
        return print_only(g, a, &o.rules);
    }
    if (!rc) rc = output_check(g, &why);
    if (!rc) rc = receivers_read(&o, &target, &alertmanager, a, &why);
    if (!rc) rc = cli_labels(&labels, a, &why);
    if (!rc) rc = cli_periods(&periods, a, &why);
    if (!rc) rc = watched_choose(watched, g, a, &why);
    if (!rc) rc = machine_detect(&m, "", &why);
    if (!rc) rc = watch_pages_open(&pages, g, a, &m, &why);
    if (!rc) rc = log_open(&l, &why);
    if (!rc) {
        o.item = watched->item;
        o.items = watched->n;
        hangup_open(&l);
        status = watch_run(&l, &o, pages, a);
    } else {
        status = cli_fail(a, &why);
    }
    if (l.log) fclose(l.log);
    if (l.hangup >= 0) close(l.hangup);
    watch_pages_close(pages);
    target_done(&target);
    free(watched);
    return status;
}
