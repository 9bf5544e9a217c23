/* advisor/outcome/scrape.c - the scrape page (outcome.h).
 *
 * The database is opened for each page and only read, so a page never blocks a measurement, and it follows a
 * file that was replaced. When reading fails or takes too long, the page repeats its previous values and says
 * so. */
#include "advisor/outcome/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "advisor/watch/watch.h"

enum { COUNTS_MAX = 32, LOCK_WAIT_MS = 300 };
static const double LOOK_S = 1;
enum { DAY_MS = 24 * 3600 * 1000, DAY_EVERY_MS = 60 * 1000 }; /* the last day is summed up once a minute */

struct scrape {
    char *db_path; /* NULL: the default place */
    struct sampler_thread *sampler;
    const struct machine *machine;
    struct readings readings; /* large */

    bool up;
    struct err absence;
    dev_t device;
    ino_t inode; /* identity of the file whose requests were counted */
    struct request_totals totals;
    struct outcome outcomes[OUTCOMES_MAX];
    struct count_row runs[COUNTS_MAX], cells[COUNTS_MAX];
    int n_outcomes, n_runs, n_cells;
    double canary_read, canary_ops, canary_time;
    struct history_summary day; /* to_ms 0: not summed up yet */
    struct watch_export watch;
};

/* The database was replaced by another file: start counting again. */
static void file_check_identity(struct scrape *s, const char *path)
{
    struct stat st;
    if (stat(path, &st) || (st.st_dev == s->device && st.st_ino == s->inode)) return;
    s->device = st.st_dev;
    s->inode = st.st_ino;
    memset(&s->totals, 0, sizeof(s->totals));
    s->n_outcomes = 0;
    s->day.to_ms = 0;
    watch_export_free(&s->watch);
}

static enum err_code canary_read(struct scrape *s, struct db *d, struct err *why)
{
    int64_t at_ms = 0;
    enum err_code rc = db_latest(d, CANARY_PHASE, METRICS[METRIC_CANARY_READ].name, &s->canary_read, &at_ms,
                                 why);
    if (!rc) rc = db_latest(d, CANARY_PHASE, METRICS[METRIC_CANARY_OPS].name, &s->canary_ops, &at_ms, why);
    if (!rc) s->canary_time = at_ms ? (double)at_ms * 1e-3 : (double)NAN;
    return rc;
}

static enum err_code day_read(struct scrape *s, struct db *d, struct err *why)
{
    const int64_t now = clock_unix_ms();
    if (s->day.to_ms && now >= s->day.to_ms && now < s->day.to_ms + DAY_EVERY_MS) return ERR_OK;
    struct history_summary *day = malloc(sizeof *day);
    if (!day) return err_set(why, ERR_NOMEM, "out of memory for the summary of a day");
    const enum err_code rc = history_summarize(
        day, d, &(struct summary_want){ .from_ms = now - DAY_MS, .to_ms = now }, why);
    if (!rc) s->day = *day;
    free(day);
    return rc;
}

/* limit_s 0: no limit. */
static enum err_code database_read(struct scrape *s, double limit_s, struct err *why)
{
    struct db *d = NULL;
    enum err_code rc = db_open_reader(&d, s->db_path, LOCK_WAIT_MS, why);
    if (rc) return rc;
    file_check_identity(s, db_path(d));
    if (limit_s > 0) db_deadline(d, clock_ns() + (int64_t)(limit_s * 1e9));
    rc = request_totals_update(&s->totals, d, why);
    if (!rc) rc = db_run_counts(d, s->runs, COUNTS_MAX, &s->n_runs, why);
    if (!rc) rc = db_cell_counts(d, s->cells, COUNTS_MAX, &s->n_cells, why);
    if (!rc) rc = canary_read(s, d, why);
    if (!rc) rc = outcomes_latest(s->outcomes, &s->n_outcomes, d, why);
    if (!rc) rc = day_read(s, d, why);
    if (!rc) rc = watch_export_read(&s->watch, d, s->machine->id, why);
    db_close(d);
    return rc;
}

static void database_refresh(struct scrape *s, double limit_s)
{
    s->absence = (struct err){ 0 };
    s->up = !database_read(s, limit_s, &s->absence);
}

enum err_code scrape_open(struct scrape **out, const char *db_path, struct sampler_thread *sampler,
                          const struct machine *machine, struct err *why)
{
    *out = NULL;
    struct scrape *s = calloc(1, sizeof(*s));
    if (s && db_path) s->db_path = strdup(db_path);
    if (!s || (db_path && !s->db_path)) {
        free(s);
        return err_set(why, ERR_NOMEM, "out of memory for a page");
    }
    s->sampler = sampler;
    s->machine = machine;
    s->canary_read = s->canary_ops = s->canary_time = NAN;
    database_refresh(s, 0);
    *out = s;
    return ERR_OK;
}

void scrape_close(struct scrape *s)
{
    if (!s) return;
    watch_export_free(&s->watch);
    free(s->db_path);
    free(s);
}

const char *scrape_absence(const struct scrape *s)
{
    return s->up ? "" : s->absence.message;
}

static void database_export(const struct scrape *s, const struct family_sink *to)
{
    family_value(to, FAMILY_DATABASE_UP, NULL, 0, s->up);
    for (int i = 0; i < s->n_runs; i++)
        family_value(to, FAMILY_RUNS,
                     (struct label[]){ { "kind", s->runs[i].what }, { "state", s->runs[i].state } }, 2,
                     (double)s->runs[i].n);
    for (int i = 0; i < s->n_cells; i++)
        family_value(to, FAMILY_CELLS, &(struct label){ "result", s->cells[i].what }, 1,
                     (double)s->cells[i].n);
    request_totals_tell(&s->totals, to);
    family_value(to, FAMILY_CANARY_READ, NULL, 0, s->canary_read);
    family_value(to, FAMILY_CANARY_OPS, NULL, 0, s->canary_ops);
    family_value(to, FAMILY_CANARY_TIME, NULL, 0, s->canary_time);
    if (s->day.to_ms) history_summary_tell(&s->day, to);
    outcomes_export(s->outcomes, s->n_outcomes, OUTCOME_ALONE, to);
    watch_export_write(&s->watch, to);
}

void scrape_export(struct scrape *s, const struct family_sink *to)
{
    database_refresh(s, LOOK_S);
    readings_take(&s->readings, s->sampler, s->machine);
    readings_export(&s->readings, to);
    database_export(s, to);
}

enum err_code scrape_page(void *ctx, struct str *body, struct err *why)
{
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    scrape_export(ctx, &to);
    enum err_code rc = ERR_OK;
    if (e.bad.code) rc = err_set(why, e.bad.code, "%s", e.bad.message);
    if (!rc) str_append_n(body, str_text(&e.text), e.text.len);
    exposition_free(&e);
    return rc;
}
