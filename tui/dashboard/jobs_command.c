/* tui/dashboard/jobs_command.c - commands that run beside the dashboard, as processes of the same program:
 * how far they have come, what they say, how they end. Cancelling is the interrupt that Ctrl-C would be: what
 * a command keeps then, it keeps here. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "tui/dashboard/shell.h"

struct running {
    struct background *b;
    struct text_page *page; /* what it writes */
    char last[400];         /* the line it wrote last: of an error the message */
};

static void publish_progress(struct background *b, const struct task_progress *at)
{
    pthread_mutex_lock(&b->lock);
    b->known.task = *at;
    b->known.task_known = true;
    pthread_mutex_unlock(&b->lock);
}

static void on_line(void *ctx, const char *text)
{
    struct running *r = ctx;
    struct task_progress at;
    if (task_progress_read(&at, text)) {
        publish_progress(r->b, &at);
        return;
    }
    text_page_put(r->page, PAGE_PLAIN, "%s", text);
    snprintf(r->last, sizeof r->last, "%.*s", (int)sizeof r->last - 1, text);
    background_log(r->b, LOG_INFO, "| %s", text);
}

static void on_start(void *ctx, int pid)
{
    struct running *r = ctx;
    pthread_mutex_lock(&r->b->lock);
    r->b->command_pid = pid;
    pthread_mutex_unlock(&r->b->lock);
}

/* A status that is an answer (worse, undecided), not a failure. */
static bool is_answer(int status)
{
    return status > 0 && status <= 3;
}

static void say_end(const struct running *r, const char *name, const char *makes, int status, bool cancelled)
{
    struct background *b = r->b;
    if (!status && *makes)
        background_announce(b, false, "%s is written%s", makes,
                            !strcmp(name, "quantize") ? ": m chooses it, o shows what was made" : "");
    else if (!status)
        background_announce(b, false, "qdyno %s is done: o shows what it said", name);
    else if (is_answer(status))
        background_announce(b, false, "qdyno %s ended with status %d: o shows what it said", name, status);
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
        background_log(b, LOG_WARN, "what is kept for this model: %s", why.message);
    pthread_mutex_lock(&b->lock);
    if (!strcmp(model, b->known.model_path)) /* still the one on screen */
        snprintf(b->known.applied, sizeof b->known.applied, "%.*s", (int)sizeof b->known.applied - 1,
                 found ? kept->line : "");
    pthread_mutex_unlock(&b->lock);
    free(kept);
}

/* The command is over: nothing of it may be left on the board. */
static bool clear(struct background *b)
{
    pthread_mutex_lock(&b->lock);
    const bool cancelled = b->known.task_cancelled;
    b->command_pid = 0;
    b->known.command[0] = '\0';
    b->known.task_known = b->known.task_cancelled = false;
    pthread_mutex_unlock(&b->lock);
    return cancelled;
}

void job_run_command(struct background *b, const struct job *j)
{
    enum { WORDS = 64, OURS = 4 };
    char line[sizeof j->text[0]], *argv[WORDS + OURS + 1], name[] = "qdyno", db_flag[] = "--db",
                                                           progress[] = "--progress=json";
    int n = 0, status = 0;
    struct err why = { 0 };
    struct running r = { .b = b, .page = calloc(1, sizeof *r.page) };
    snprintf(line, sizeof line, "%s", j->text[0]);
    argv[0] = name;
    enum err_code rc = r.page ? shell_words_split(line, argv + 1, WORDS, &n, &why)
                              : err_set(&why, ERR_NOMEM, "no memory for a command");
    int count = n + 1;
    if (!rc) argv[count++] = progress;
    if (!rc && b->db_path) { /* the same database as this dashboard's */
        argv[count++] = db_flag;
        argv[count++] = strdupa(b->db_path);
    }
    argv[count] = NULL;
    const struct shell_run run = { .argv = argv, .line = on_line, .started = on_start, .ctx = &r };
    if (!rc) rc = shell_run(&run, &status, &why);
    const bool cancelled = clear(b);
    if (rc) {
        background_announce(b, true, "%s", why.message);
    } else {
        snprintf(r.page->title, sizeof r.page->title, "qdyno %.150s", j->text[0]);
        r.page->opens = j->id == 1 && !cancelled && r.page->count > 0;
        background_publish_page(b, r.page);
        say_end(&r, argv[1], j->text[2], status, cancelled);
    }
    free(r.page);
    background_read_applied(b); /* tune and apply write it */
    struct job history = { .run = job_read_history };
    snprintf(history.text[0], sizeof history.text[0], "%s", j->text[1]);
    job_read_history(b, &history);
}

/* ---------------------------------------------------------------- two runs */

static const char *unit_of(const struct compared *c)
{
    return METRICS[c->metric].unit;
}

static void put_rates(struct text_page *p, const struct compared *c)
{
    text_page_put(p, PAGE_PLAIN, "   first   %s %s  [%s, %s]   %d units",
                  figure_number(c->rate_before.estimate).text, unit_of(c),
                  figure_number(c->rate_before.lower).text, figure_number(c->rate_before.upper).text,
                  c->n_before);
    text_page_put(p, PAGE_PLAIN, "   second  %s %s  [%s, %s]   %d units",
                  figure_number(c->rate_after.estimate).text, unit_of(c),
                  figure_number(c->rate_after.lower).text, figure_number(c->rate_after.upper).text,
                  c->n_after);
}

static enum page_tone tone_of(enum verdict v)
{
    return v == VERDICT_BETTER                                                      ? PAGE_GOOD
           : v == VERDICT_WORSE                                                     ? PAGE_BAD
           : v == VERDICT_NONE || v == VERDICT_INCONCLUSIVE || v == VERDICT_INVALID ? PAGE_UNSURE
                                                                                    : PAGE_PLAIN;
}

static void put_pair(struct text_page *p, const struct compared *c)
{
    const struct result *one = c->before ? c->before : c->after;
    const char *other = c->before && c->after && strcmp(c->before->config, c->after->config)
                            ? c->after->config
                            : NULL;
    text_page_put(p, PAGE_HEAD, "%.100s%s%.100s   %.60s%s%s", one->config[0] ? one->config : "default",
                  other ? " → " : "", other ? other : "", one->workload,
                  c->metric < METRIC_COUNT ? "   " : "",
                  c->metric < METRIC_COUNT ? METRICS[c->metric].name : "");
    if (!c->before || !c->after || c->metric == METRIC_COUNT) {
        text_page_put(p, PAGE_DIM, "   not compared: %s",
                      c->reason[0] ? c->reason : "only one of the runs has it");
        return;
    }
    const struct mark m = verdict_mark(c->verdict);
    put_rates(p, c);
    text_page_put(p, tone_of(c->verdict), "   %s [%s, %s]   %s %s%s%s",
                  figure_change(c->effect.estimate).text, figure_change(c->effect.lower).text,
                  figure_change(c->effect.upper).text, m.glyph, m.word, c->reason[0] ? ": " : "", c->reason);
    if (isfinite(c->normalized.estimate))
        text_page_put(p, PAGE_DIM, "   %s [%s, %s] without what slowed the whole machine (its canary)",
                      figure_change(c->normalized.estimate).text, figure_change(c->normalized.lower).text,
                      figure_change(c->normalized.upper).text);
}

static void put_changes(struct text_page *p, const struct results *before, const struct results *after)
{
    if (!before->capsule || !after->capsule) {
        text_page_put(p, PAGE_DIM,
                      "What changed between them is unknown: a run without a capsule is older than those.");
        return;
    }
    json_t *diff = capsule_diff(before->capsule, after->capsule, NULL), *c;
    size_t i;
    text_page_put(p, PAGE_HEAD,
                  json_array_size(diff) ? "Changed between them"
                                        : "Nothing that is recorded changed between them");
    json_array_foreach(diff, i, c)
    {
        struct str text = { 0 };
        json_t *one = json_array();
        json_array_append(one, c);
        capsule_diff_text(&text, one, 1);
        text_page_put(p, PAGE_PLAIN, "   %s", str_text(&text));
        json_decref(one);
        str_free(&text);
    }
    json_decref(diff);
}

static double margin_of(const struct run_row *run)
{
    json_t *spec = NULL;
    double margin = NAN;
    if (run->spec_json && !json_parse(&spec, run->spec_json, strlen(run->spec_json), NULL))
        margin = json_get_num(spec, "margin", NAN);
    json_decref(spec);
    return margin > 0 ? margin : 0.01; /* as `qdyno compare` has it */
}

static void put_run(struct text_page *p, const char *which, const struct results *r)
{
    text_page_put(p, PAGE_PLAIN, "%s: run %lld   %s   %s   %s   %s", which, (long long)r->run.id,
                  figure_date(r->run.started_ms).text, r->run.kind, r->run.label, r->run.model_name);
}

static enum err_code compare_into(struct text_page *p, const struct results run[2], struct err *why)
{
    struct compared *rows = NULL;
    int n = 0;
    const double margin = margin_of(&run[0].run);
    enum err_code rc = compare_runs(&rows, &n, &run[0], &run[1], NULL, margin, why);
    if (rc) return rc;
    put_run(p, "first ", &run[0]);
    put_run(p, "second", &run[1]);
    text_page_put(p, PAGE_PLAIN, "%s", "");
    for (int i = 0; i < n; i++) put_pair(p, &rows[i]);
    if (!n) text_page_put(p, PAGE_UNSURE, "The runs have nothing in common that was measured in both.");
    text_page_put(p, PAGE_PLAIN, "%s", "");
    put_changes(p, &run[0], &run[1]);
    text_page_put(p, PAGE_PLAIN, "%s", "");
    text_page_put(p, PAGE_DIM,
                  "Margin %.3g %%. Two moments are compared, so whatever else changed between them is in the",
                  margin * 100);
    text_page_put(p, PAGE_DIM, "difference. To decide, measure both now: b starts an A/B.");
    free(rows);
    return ERR_OK;
}

void job_compare_runs(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct results run[2] = { { .n = 0 }, { .n = 0 } };
    const int64_t id[2] = { j->id, j->other_id };
    struct text_page *p = calloc(1, sizeof *p);
    enum err_code rc = p ? db_open(&d, b->db_path, &why) : err_set(&why, ERR_NOMEM, "no memory for a page");
    for (int i = 0; i < 2 && !rc; i++) rc = results_read(&run[i], d, id[i], &why);
    if (!rc) rc = compare_into(p, run, &why);
    for (int i = 0; i < 2; i++) results_free(&run[i]);
    db_close(d);
    if (rc) {
        background_announce(b, true, "compare: %s", why.message);
    } else {
        p->opens = true;
        snprintf(p->title, sizeof p->title, "Run %lld seen from run %lld", (long long)j->other_id,
                 (long long)j->id);
        background_publish_page(b, p);
    }
    free(p);
}
