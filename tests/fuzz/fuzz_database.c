/* A database that --db names may be anybody's: whatever the file holds, opening refuses it with a message or
 * gives a handle with which everything can be read. An input that begins like a database is one; any other is
 * a list of changes (offset, length, bytes) to a database of ours, and changes of its schema. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/db.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/script.h"

static const struct cost_ceiling CEILING = { .seconds = 1, .seconds_per_mb = 20, .mb = 64, .mb_per_mb = 50 };

static const char HEAD[] = "SQLite format 3";
static const int64_t LATEST = INT64_C(1) << 62;

static char folder[] = "/dev/shm/fuzz-database-XXXXXX", path[64];
static struct str ours; /* bytes of a database with a row in each of the usual tables */

static void forget_files(void)
{
    static const char *const ENDINGS[] = { "", "-wal", "-shm", "-journal", "-holds" };
    for (size_t i = 0; i < COUNT_OF(ENDINGS); i++) {
        char file[96];
        snprintf(file, sizeof file, "%s%s", path, ENDINGS[i]);
        unlink(file);
    }
}

static void folder_remove(void)
{
    forget_files();
    rmdir(folder);
}

static void fill(struct db *d)
{
    struct run_row r = {
        .kind = "ab", .state = "running", .machine = "m", .workload = "tg16", .spec_json = "{}"
    };
    const struct measurement m[] = { { "decode_tok_s", "tokens/s", 12 }, { "power_w", "W", 30 } };
    const struct sample_row s[] = { { 0, "power_w", 30 }, { 1000, "power_w", 31 } };
    const float itl[] = { 0.01f, 0.02f };
    struct request_figures figures = { .gen_tokens = 16, .decode_s = 1 };
    const struct request_rows requests = {
        .model = "x", .workload = "tg16", .sequences = 1, .n = 1, .figures = &figures
    };
    struct span_row span = { .name = "cell", .begun_ns = 1, .ended_ns = 2 };
    struct baseline_row b = { .name = "main", .config = "default" };
    struct err why = { 0 };
    enum err_code rc = db_machine_put(d, "m", "{}", &why);
    if (!rc) rc = db_model_put(d, "aa", "x", "/x", "{}", &why);
    if (!rc) rc = db_run_insert(d, &r, &why);
    if (!rc) rc = db_event_add(d, r.id, "note", "text", &why);
    struct cell_row c = { .run_id = r.id,
                          .phase = "block",
                          .config = "default",
                          .requests = &requests,
                          .spans = &span,
                          .n_spans = 1 };
    span.run_id = r.id;
    if (!rc) rc = db_cell_insert(d, &c, m, COUNT_OF(m), s, COUNT_OF(s), itl, COUNT_OF(itl), &why);
    if (!rc) rc = db_baseline_put(d, &b, &why);
    if (!rc) rc = db_spool_put(d, "http://g/metrics/job/x", "{}", "body", &why);
    if (!rc) rc = db_capsule_put(d, r.id, "{}", &why);
    if (!rc) rc = db_group_put(d, "http://g/metrics/job/x", &why);
    if (!rc) rc = db_run_finish(d, r.id, "done", "better", 1.1, "{}", &why);
    if (!rc) return;
    fprintf(stderr, "%s\n", why.message);
    abort();
}

static void prepare(void)
{
    struct db *d;
    sqlite3 *small;
    char *bytes;
    size_t n;
    if (ours.len) return;
    if (!mkdtemp(folder)) abort();
    atexit(folder_remove);
    snprintf(path, sizeof path, "%s/x.db", folder);
    /* pages of 512 bytes, so that a change meets something */
    if (sqlite3_open(path, &small) || sqlite3_exec(small, "PRAGMA page_size = 512; VACUUM", NULL, NULL, NULL))
        abort();
    sqlite3_close(small);
    if (db_open(&d, path, NULL)) abort();
    fill(d);
    db_close(d);
    if (file_read(&bytes, &n, path, 1 << 22, NULL)) abort();
    str_append_n(&ours, bytes, n);
    free(bytes);
}

/* ---------------------------------------------------------------- what commands read */

static enum err_code on_request(void *ctx, const struct cell_requests *c, struct err *why)
{
    (void)why;
    *(double *)ctx += c->requests.n ? (double)c->requests.figures[c->requests.n - 1].decode_s : 0;
    if (c->n_itl) *(double *)ctx += (double)c->itl[c->n_itl - 1];
    return ERR_OK;
}

static void on_event(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    *(double *)ctx += (double)unix_ms + (double)strlen(kind) + (double)strlen(text);
}

static void on_sample(void *ctx, int64_t t_ns, const char *metric, double value)
{
    *(double *)ctx += (double)t_ns + (double)strlen(metric) + value;
}

static void on_measurement(void *ctx, const char *metric, const char *unit, double value)
{
    *(double *)ctx += (double)strlen(metric) + (double)strlen(unit) + value;
}

static enum err_code on_value(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    *(double *)ctx += (double)strlen(v->metric) + (double)strlen(v->config) + v->value;
    return ERR_OK;
}

static void read_cells(struct db *d, int64_t run, double *sum)
{
    struct cell_row *cells = NULL;
    int n = 0, n_itl = 0;
    db_cell_list(d, run, &cells, &n, NULL);
    for (int i = 0; i < MIN(n, 8); i++) {
        float *itl = NULL;
        if (!db_itl_get(d, cells[i].id, &itl, &n_itl, NULL) && n_itl) *sum += (double)itl[n_itl - 1];
        free(itl);
        db_sample_list(d, cells[i].id, on_sample, sum, NULL);
        db_measurement_list(d, cells[i].id, on_measurement, sum, NULL);
    }
    free(cells);
}

static void read_runs(struct db *d, double *sum)
{
    struct run_row *runs = NULL;
    int n = 0;
    db_run_find(d, "/./", 10, &runs, &n, NULL);
    for (int i = 0; i < n; i++) {
        struct run_labels labels;
        struct span_row *spans = NULL;
        char *capsule = NULL;
        int n_spans = 0;
        read_cells(d, runs[i].id, sum);
        db_labels_get(d, runs[i].id, &labels, NULL);
        db_span_list(d, runs[i].id, &spans, &n_spans, NULL);
        db_event_list(d, runs[i].id, on_event, sum, NULL);
        db_value_list(d, runs[i].id, on_value, sum, NULL);
        if (!db_capsule_get(d, runs[i].id, &capsule, NULL) && capsule) *sum += (double)strlen(capsule);
        free(capsule);
        free(spans);
        run_row_free(&runs[i]);
    }
    free(runs);
}

static void read_lists(struct db *d, double *sum)
{
    struct baseline_row *baselines = NULL;
    struct spool_row *waiting = NULL;
    struct alert_row *alerts = NULL;
    struct group_row *groups = NULL;
    struct count_row counts[32];
    int n = 0;
    db_request_list(d, 0, on_request, sum, NULL);
    db_run_counts(d, counts, COUNT_OF(counts), &n, NULL);
    db_cell_counts(d, counts, COUNT_OF(counts), &n, NULL);
    db_baseline_list(d, &baselines, &n, NULL);
    free(baselines);
    db_alert_list(d, NULL, false, 10, &alerts, &n, NULL);
    free(alerts);
    db_group_list(d, "http", &groups, &n, NULL);
    free(groups);
    n = 0;
    db_spool_list(d, LATEST, &waiting, &n, NULL);
    for (int i = 0; i < n; i++) spool_row_free(&waiting[i]);
    free(waiting);
}

static void read_all(struct db *d)
{
    double sum = 0;
    struct err why = { 0 };
    read_runs(d, &sum);
    read_lists(d, &sum);
    if (db_check(d, &why) && !why.message[0]) abort();
}

/* ---------------------------------------------------------------- changes */

static void change_bytes(struct str *file, struct script *s)
{
    while (s->left > 4) {
        const size_t at = script_number(s, 3) % file->len, n = MIN(script_number(s, 1) % 32, file->len - at);
        for (size_t i = 0; i < n; i++) file->data[at + i] = (char)script_number(s, 1);
    }
}

static void write_file(const struct str *file)
{
    forget_files();
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(str_text(file), 1, file->len, f) != file->len || fclose(f)) abort();
}

/* The schema's text is SQL that SQLite compiles: the rest of the input replaces that of one table or index.
 */
static void change_schema(size_t which, const struct script *s)
{
    sqlite3 *handle;
    sqlite3_stmt *change;
    if (sqlite3_open(path, &handle)) abort();
    sqlite3_exec(handle, "PRAGMA writable_schema = ON", NULL, NULL, NULL);
    if (!sqlite3_prepare_v2(handle, "UPDATE sqlite_schema SET sql = ?1 WHERE rowid = ?2", -1, &change,
                            NULL)) {
        sqlite3_bind_text(change, 1, (const char *)s->at, (int)s->left, SQLITE_STATIC);
        sqlite3_bind_int64(change, 2, (sqlite3_int64)which);
        sqlite3_step(change);
    }
    sqlite3_finalize(change);
    sqlite3_close(handle);
}

static void use(const uint8_t *data, size_t size)
{
    struct str file = { 0 };
    struct script s = { data, size };
    const bool whole = size >= sizeof HEAD && !memcmp(data, HEAD, sizeof HEAD);
    size_t schema = 0;
    if (whole) {
        str_append_n(&file, data, size);
    } else {
        str_append_n(&file, ours.data, ours.len);
        schema = script_number(&s, 1);
        if (schema % 4) change_bytes(&file, &s);
    }
    write_file(&file);
    str_free(&file);
    if (!whole && schema % 4 == 0) change_schema(schema / 4, &s);
    for (int writer = 0; writer < 2; writer++) {
        struct db *d = NULL;
        struct err why = { 0 };
        const enum err_code rc = writer ? db_open(&d, path, &why) : db_open_reader(&d, path, 0, &why);
        if (rc ? !why.message[0] || rc == ERR_INTERNAL : !d) {
            fprintf(stderr, "status %d: %s\n", rc, why.message);
            abort();
        }
        if (!rc) read_all(d);
        if (!rc) db_close(d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    return cost_run(use, data, size, &CEILING);
}
