/* source.c - reads a run and everything stored about its cells from the database. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/run/run.h"
#include "db/db.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/report.h"

struct reader {
    struct report_source *s;
    struct report_cell *cell;
    int room; /* allocated samples or events */
    bool failed;
};

static const char *text_store(struct reader *r, const char *text)
{
    const char *kept = arena_strdup(&r->s->arena, text);
    r->failed = r->failed || !kept;
    return kept ? kept : "";
}

static void source_on_measurement(void *ctx, const char *name, const char *unit, double value)
{
    struct report_cell *c = ctx;
    const struct metric *m = metric_find(name);
    (void)unit;
    if (m) c->value[m - METRICS] = value;
}

static void source_on_sample(void *ctx, int64_t t_ns, const char *name, double value)
{
    struct reader *r = ctx;
    struct report_cell *c = r->cell;
    const struct metric *m = metric_find(name);
    if (!m) return;
    if (c->samples ==
        r->room) { /* doubling: the arena cannot free, so this wastes at most as much as is used */
        const int room = MAX(64, 2 * r->room);
        struct report_sample *grown = arena_alloc(&r->s->arena, (size_t)room * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return;
        }
        if (c->samples) memcpy(grown, c->sample, (size_t)c->samples * sizeof *grown);
        c->sample = grown;
        r->room = room;
    }
    c->sample[c->samples++] = (struct report_sample){ (float)(1e-9 * (double)t_ns), (short)(m - METRICS),
                                                      value };
}

static enum err_code source_load_itl(struct reader *r, struct db *d, int64_t id, struct err *why)
{
    float *itl = NULL;
    enum err_code rc = db_itl_get(d, id, &itl, &r->cell->itls, why);
    if (rc || !r->cell->itls) return rc;
    float *kept = arena_alloc(&r->s->arena, (size_t)r->cell->itls * sizeof *kept);
    if (kept) memcpy(kept, itl, (size_t)r->cell->itls * sizeof *kept);
    r->failed = r->failed || !kept;
    if (!kept) r->cell->itls = 0;
    r->cell->itl = kept;
    free(itl);
    return ERR_OK;
}

static enum err_code source_load_cell(struct reader *r, struct db *d, const struct cell_row *row,
                                      int64_t begin_ms, struct err *why)
{
    struct report_cell *c = r->cell;
    c->arm = row->arm;
    c->block = row->block;
    c->slot = row->slot;
    c->phase = text_store(r, row->phase);
    c->discarded = row->discarded || *row->error;
    c->reason = text_store(r, *row->error ? row->error : row->discard_reason);
    c->start_s = 1e-3 * (double)(row->started_ms - begin_ms);
    c->seconds = row->seconds;
    for (int i = 0; i < METRIC_COUNT; i++) c->value[i] = NAN;
    r->room = 0;
    enum err_code rc = db_measurement_list(d, row->id, source_on_measurement, c, why);
    if (!rc) rc = db_sample_list(d, row->id, source_on_sample, r, why);
    return rc ? rc : source_load_itl(r, d, row->id, why);
}

static enum err_code source_load_cells(struct reader *r, struct db *d, struct err *why)
{
    struct report_source *s = r->s;
    struct cell_row *rows = NULL;
    int n = 0;
    enum err_code rc = db_cell_list(d, s->state.run_id, &rows, &n, why);
    if (!rc && n) {
        s->cell = arena_alloc(&s->arena, (size_t)n * sizeof *s->cell);
        if (!s->cell) rc = err_set(why, ERR_NOMEM, "out of memory for the %d cells of the run", n);
    }
    int64_t begin_ms = n ? rows[0].started_ms : 0;
    for (int i = 1; i < n; i++) begin_ms = rows[i].started_ms < begin_ms ? rows[i].started_ms : begin_ms;
    for (int i = 0; i < n && !rc; i++) {
        r->cell = &s->cell[s->cells++];
        rc = source_load_cell(r, d, &rows[i], begin_ms, why);
    }
    free(rows);
    return rc;
}

static void source_on_event(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct reader *r = ctx;
    struct report_source *s = r->s;
    if (s->events == r->room) {
        const int room = MAX(64, 2 * r->room);
        struct report_event *grown = arena_alloc(&s->arena, (size_t)room * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return;
        }
        if (s->events) memcpy(grown, s->event, (size_t)s->events * sizeof *grown);
        s->event = grown;
        r->room = room;
    }
    s->event[s->events++] = (struct report_event){ unix_ms, text_store(r, kind), text_store(r, text) };
}

/* Reads the description of the machine. A missing or unreadable one makes the machine unknown, which is no
 * error. */
static enum err_code source_load_machine(struct report_source *s, struct db *d, struct err *why)
{
    char *text = NULL;
    json_t *o = NULL;
    if (!*s->state.machine_id) return ERR_OK;
    enum err_code rc = db_machine_get(d, s->state.machine_id, &text, why);
    if (!rc && text && !json_parse(&o, text, strlen(text), NULL))
        s->machine_known = !machine_from_json(&s->machine, o, NULL);
    json_decref(o);
    free(text);
    return rc;
}

enum { FACTS = 96 };

static void source_add_fact(struct reader *r, const char *group, const char *key, const json_t *value)
{
    struct report_source *s = r->s;
    const char *text = json_string_value(value);
    if (s->facts == FACTS || (!json_is_number(value) && !json_is_boolean(value) && (!text || !*text))) return;
    char *line = text ? NULL : json_line(value);
    struct str name = { 0 };
    str_printf(&name, "%s %s", group, key);
    s->fact[s->facts++] = (struct report_fact){ text_store(r, str_text(&name)), text_store(r, text   ? text
                                                                                              : line ? line
                                                                                                     : "") };
    str_free(&name);
    free(line);
}

/* Reads settings of the system from the capsule, the provenance record of the run. A run without a
 * readable capsule is no error: the report then has no such section. */
static enum err_code source_load_capsule(struct reader *r, struct db *d, struct err *why)
{
    struct report_source *s = r->s;
    json_t *capsule = NULL, *group, *value;
    const char *name, *key;
    const enum err_code rc = capsule_find(&capsule, d, s->state.run_id, why);
    if (rc || !capsule) return rc;
    s->fact = arena_alloc(&s->arena, FACTS * sizeof *s->fact);
    if (!s->fact) r->failed = true;
    snprintf(s->version, sizeof s->version, "%s",
             json_get_str(json_object_get(capsule, "program"), "version", ""));
    json_object_foreach(capsule, name, group)
    {
        if (!s->fact || !json_is_object(group) || !strcmp(name, "machine")) continue;
        json_object_foreach(group, key, value) source_add_fact(r, name, key, value);
    }
    json_decref(capsule);
    return ERR_OK;
}

static enum err_code source_load_text(struct report_source *s, struct db *d, struct err *why)
{
    struct quality_text t;
    const enum err_code rc = quality_text_of_hash(&t, d, s->state.arm[0].sha256, "MODEL", why);
    if (rc) return rc;
    snprintf(s->text.name, sizeof s->text.name, "%s", t.name);
    snprintf(s->text.sha256, sizeof s->text.sha256, "%s", t.sha256);
    return ERR_OK;
}

enum err_code report_load(struct report_source **out, struct db *d, int64_t run_id, struct err *why)
{
    struct report_source *s = calloc(1, sizeof *s);
    struct run_row run = { 0 };
    struct reader r = { .s = s };
    *out = NULL;
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for run %lld", (long long)run_id);
    enum err_code rc = db_run_get(d, run_id, &run, why);
    if (!rc && strcmp(run.kind, "ab"))
        rc = err_set(
            why, ERR_USAGE,
            "run %lld is of kind '%s': expected an experiment of `qdyno ab`, a search of `qdyno tune`, or `qdyno bench --profile`; `qdyno "
            "show %lld` prints this run",
            (long long)run_id, run.kind, (long long)run_id);
    if (!rc) rc = experiment_load(&s->state, d, run_id, why);
    if (!rc) rc = db_labels_get(d, run_id, &s->labels, why);
    if (!rc) rc = source_load_text(s, d, why);
    if (!rc) rc = source_load_machine(s, d, why);
    if (!rc) rc = source_load_capsule(&r, d, why);
    if (!rc) rc = source_load_cells(&r, d, why);
    r.room = 0;
    if (!rc) rc = db_event_list(d, run_id, source_on_event, &r, why);
    if (!rc && r.failed) rc = err_set(why, ERR_NOMEM, "out of memory for run %lld", (long long)run_id);
    run_row_free(&run);
    s->written_ms = clock_unix_ms();
    if (rc) {
        report_source_free(s);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

void report_source_free(struct report_source *s)
{
    if (!s) return;
    arena_free(&s->arena);
    free(s);
}
