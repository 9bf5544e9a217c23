/* tui/dashboard/jobs_network.c - jobs that send results to a Prometheus Pushgateway: those that a person
 * pushes, by the command, and those that could not be sent, again and again. */
#include "tui/dashboard/background.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/outcome.h"

static const int64_t FLUSH_NS = INT64_C(30000000000); /* other jobs of the network wait meanwhile */

/* As for `qdyno push`, credentials come from the environment and never appear on screen. */
static struct push_target target_from_environment(const char *url)
{
    return (struct push_target){ .url = url,
                                 .auth.user = getenv("QDYNO_PUSH_USER"),
                                 .auth.password = getenv("QDYNO_PUSH_PASSWORD"),
                                 .auth.bearer = getenv("QDYNO_PUSH_BEARER"),
                                 .auth.ca_file = getenv("QDYNO_PUSH_CA"),
                                 .auth.insecure_credentials = http_insecure_credentials() };
}

/* Pushes that wait for the network; -1: unknown. */
static int waiting_count(struct background *b)
{
    struct db *d = NULL;
    const int n = db_open(&d, b->db_path, NULL) ? -1 : db_spool_count(d);
    db_close(d);
    return n;
}

/* Why the command failed: its first line, without its name. */
static const char *reason_of(const struct text_page *p)
{
    static const char NAME[] = "qdyno push: ";
    const char *line = p->count ? p->line[0].text : "it said nothing";
    return str_starts(line, NAME) ? line + strlen(NAME) : line;
}

void job_push(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    int status = 0;
    struct text_page *page = calloc(1, sizeof *page);
    background_lock(b);
    b->known.pushing = true;
    background_unlock_running(b);
    const int before = waiting_count(b);
    const enum err_code rc = page ? background_run_beside(b, page, &j->command, &status, &why)
                                  : err_set(&why, ERR_NOMEM, "not enough memory for a command");
    const int waiting = waiting_count(b);
    background_lock(b);
    b->known.pushing = false;
    b->known.spool_count = waiting;
    background_unlock_running(b);
    if (!rc && !status)
        background_announce(b, false, "run %lld pushed to %s", (long long)j->id,
                            words_value(&j->command, "--url"));
    else
        background_announce(b, true, "push of run %lld failed: %s%s", (long long)j->id,
                            waiting > before ? "stored, will be retried: " : "",
                            rc ? why.message : reason_of(page));
    free(page);
}

void job_flush_spool(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    int sent = 0;
    struct push_target auth = target_from_environment(j->text);
    auth.deadline_ns = clock_ns() + FLUSH_NS;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = outcome_flush(d, &auth, false, &sent, &why);
    int waiting = d ? db_spool_count(d) : -1;
    db_close(d);
    background_lock(b);
    b->known.spool_count = waiting;
    background_unlock_running(b);
    if (sent > 0) background_log(b, LOG_INFO, "%d waiting result%s pushed", sent, sent == 1 ? "" : "s");
}
