/* tui/dashboard/jobs_network.c - jobs that send results to a Prometheus Pushgateway. */
#include "tui/dashboard/background.h"

#include <stdlib.h>

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

void job_push(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    bool spooled = false;
    background_lock(b);
    struct machine m = b->known.machine;
    b->known.pushing = true;
    background_unlock(b);
    struct push_target target = target_from_environment(j->text[0]);
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = outcome_push(d, j->id, &m, &target, &spooled, &why);
    int waiting = d ? db_spool_count(d) : -1;
    db_close(d);
    background_lock(b);
    b->known.pushing = false;
    b->known.spool_count = waiting;
    background_unlock(b);
    if (rc == ERR_OK)
        background_announce(b, false, "run %lld pushed to %s", (long long)j->id, j->text[0]);
    else
        background_announce(b, true, "push of run %lld failed: %s%s", (long long)j->id,
                            spooled ? "stored, will be retried: " : "", why.message);
}

void job_flush_spool(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    int sent = 0;
    struct push_target auth = target_from_environment(j->text[0]);
    auth.deadline_ns = clock_ns() + FLUSH_NS;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = outcome_flush(d, &auth, false, &sent, &why);
    int waiting = d ? db_spool_count(d) : -1;
    db_close(d);
    background_lock(b);
    b->known.spool_count = waiting;
    background_unlock(b);
    if (sent > 0) background_log(b, LOG_INFO, "%d waiting result%s pushed", sent, sent == 1 ? "" : "s");
}
