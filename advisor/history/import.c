/* advisor/history/import.c - results of other benchmarks, as runs of the history (history.h).
 *
 * They were measured by another program, at another time, perhaps on another machine: they are shown, plotted
 * and compared as such, and never paired with runs of this one. A record is any JSON object with the figures
 * of a test, wherever the document has it, so that wrappers around these tools can be read, too. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "engine/config/config.h"

enum { IMPORT_LIMIT = 256 << 20, TESTS_MOST = 100000, DEEPEST = 32 };

/* One test as a file has it. */
struct test {
    char workload[64], config[CONFIG_LINE], model[128], cpu[128], engine[96];
    int prompt, gen, depth;
    struct repetition {         /* NAN: not part of the test, or unknown */
        double prefill, decode; /* tokens/s */
        double ttft_s;
    } * rep; /* [n] owned */
    int n;
    int64_t started_ms;
};

struct reader {
    struct test *test;
    int n, room;
    enum err_code rc;
    struct err *why;
};

/* ---------------------------------------------------------------- records */

/* The number of a member, also where it is written as text (SQL); NAN: none. */
static double number_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double n = NAN;
    if (json_is_number(v)) return json_number_value(v);
    if (json_is_string(v)) (void)str_to_double(json_string_value(v), &n);
    return n;
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_get_str(o, key, "");
}

/* Settings of llama-bench that its records name, and their flags. */
static const struct {
    const char *key, *flag;
} SETTINGS[] = {
    { "n_batch", "-b" },        { "n_ubatch", "-ub" },   { "type_k", "-ctk" }, { "type_v", "-ctv" },
    { "n_gpu_layers", "-ngl" }, { "flash_attn", "-fa" }, { "cpu_mask", "-C" }, { "n_cpu_moe", "-ncmoe" },
};

/* A config line that names the settings of the record. */
static enum err_code config_of(struct test *t, const json_t *o, struct err *why)
{
    struct config c;
    struct str args = { 0 };
    char number[32];
    config_default(&c);
    const double threads = number_of(o, "n_threads");
    for (size_t i = 0; i < COUNT_OF(SETTINGS); i++) {
        const json_t *v = json_object_get(o, SETTINGS[i].key);
        const double n = number_of(o, SETTINGS[i].key);
        const bool flag = json_is_boolean(v);
        if (!v || json_is_null(v)) continue;
        str_printf(&args, "%s%s ", args.len ? " " : "", SETTINGS[i].flag);
        if (flag || isfinite(n))
            str_printf(&args, "%.0f", flag ? (double)json_is_true(v) : n);
        else
            str_printf(&args, "%s", json_is_string(v) ? json_string_value(v) : "?");
    }
    enum err_code rc = config_set(&c, "engine", "llama-bench", why);
    if (!rc && threads >= 1 && threads <= 1024) {
        snprintf(number, sizeof number, "%.0f", threads);
        rc = config_set(&c, "threads", number, why);
    }
    if (!rc && args.len) rc = config_set(&c, "args", str_text(&args), why);
    if (!rc) config_line(&c, t->config, sizeof t->config);
    str_free(&args);
    return rc;
}

static bool test_alloc(struct test *t, int n)
{
    t->n = n;
    t->rep = malloc((size_t)n * sizeof *t->rep);
    for (int i = 0; t->rep && i < n; i++) t->rep[i] = (struct repetition){ NAN, NAN, NAN };
    return t->rep != NULL;
}

/* "2026-11-26T01:02:03Z" or "2026-10-07 12:08:43" in UTC to milliseconds; 0: another form. */
static int64_t time_of(const char *text)
{
    struct tm when = { 0 };
    char between;
    if (sscanf(text, "%d-%d-%d%c%d:%d:%d", &when.tm_year, &when.tm_mon, &when.tm_mday, &between,
               &when.tm_hour, &when.tm_min, &when.tm_sec) != 7)
        return 0;
    when.tm_year -= 1900;
    when.tm_mon--;
    return (int64_t)timegm(&when) * 1000;
}

/* Fills the figures of llama-bench: samples_ts, or their mean. A test of prompt and generation together (-pg)
 * has one rate for both, which is neither; it is left out. */
static bool take_bench(struct test *t, const json_t *o)
{
    const json_t *samples = json_object_get(o, "samples_ts");
    const double mean = number_of(o, "avg_ts");
    const int n = json_array_size(samples) ? (int)json_array_size(samples) : 1;
    if (!(mean > 0) || (t->prompt && t->gen) || !test_alloc(t, n)) return false;
    for (int i = 0; i < n; i++)
        *(t->prompt ? &t->rep[i].prefill
                    : &t->rep[i].decode) = json_array_size(samples)
                                               ? json_number_value(json_array_get(samples, (size_t)i))
                                               : mean;
    snprintf(t->engine, sizeof t->engine, "llama-bench b%.0f-%.40s", number_of(o, "build_number"),
             text_of(o, "build_commit"));
    snprintf(t->cpu, sizeof t->cpu, "%.127s", *text_of(o, "cpu_info") ? text_of(o, "cpu_info") : "unknown");
    return true;
}

static bool take_localscore(struct test *t, const json_t *o, const json_t *about)
{
    const json_t *runtime = json_object_get(about, "runtime_info"),
                 *system = json_object_get(about, "system_info");
    const double prompt_tps = number_of(o, "prompt_tps"), gen_tps = number_of(o, "gen_tps");
    if (!(prompt_tps > 0 || gen_tps > 0) || !test_alloc(t, 1)) return false;
    if (prompt_tps > 0 && t->prompt) t->rep->prefill = prompt_tps;
    if (gen_tps > 0 && t->gen) t->rep->decode = gen_tps;
    if (number_of(o, "ttft_ms") > 0) t->rep->ttft_s = number_of(o, "ttft_ms") * 1e-3;
    snprintf(t->engine, sizeof t->engine, "LocalScore %.40s", json_get_str(runtime, "version", ""));
    snprintf(t->cpu, sizeof t->cpu, "%.127s", json_get_str(system, "cpu_name", "unknown"));
    return true;
}

/* `about`: the object around the record. */
static void record_take(struct reader *r, const json_t *o, const json_t *about)
{
    const double prompt = number_of(o, "n_prompt"), gen = number_of(o, "n_gen"),
                 depth = number_of(o, "n_depth");
    struct test t = { 0 };
    if (!(prompt >= 0 && gen >= 0 && prompt + gen > 0 && prompt < 1e9 && gen < 1e9)) return;
    t.prompt = (int)prompt;
    t.gen = (int)gen;
    t.depth = depth > 0 && depth < 1e9 ? (int)depth : 0;
    const struct workload w = { .prompt = t.prompt, .gen = t.gen, .depth = t.depth, .eval_ctx = 512 };
    workload_line(&w, t.workload, sizeof t.workload);
    const bool localscore = json_object_get(o, "prompt_tps") || json_object_get(o, "gen_tps");
    const bool taken = localscore ? take_localscore(&t, o, about) : take_bench(&t, o);
    if (taken) r->rc = config_of(&t, o, r->why);
    const char *file = text_of(o, "model_filename");
    if (!*file) file = text_of(o, "model_name");
    snprintf(t.model, sizeof t.model, "%.127s", path_file_name(*file ? file : "unknown"));
    t.started_ms = time_of(*text_of(o, "test_time") ? text_of(o, "test_time") : text_of(o, "created_at"));
    if (taken && !r->rc && !array_room(&r->test, &r->room, r->n + 1, sizeof *r->test))
        r->rc = err_set(r->why, ERR_NOMEM, "no memory for %d results", r->n + 1);
    if (taken && !r->rc) {
        r->test[r->n++] = t;
        return;
    }
    free(t.rep);
}

static void document_take(struct reader *r, const json_t *value, const json_t *about, int depth)
{
    const char *key;
    json_t *item;
    size_t i;
    if (r->rc || depth > DEEPEST || r->n >= TESTS_MOST) return;
    if (json_is_object(value)) {
        if (json_object_get(value, "n_prompt")) {
            record_take(r, value, about);
            return;
        }
        json_object_foreach((json_t *)value, key, item)
        {
            document_take(r, item, value, depth + 1);
        }
    }
    json_array_foreach(value, i, item)
    {
        document_take(r, item, about, depth + 1);
    }
}

/* ---------------------------------------------------------------- forms of files */

static enum err_code lines_take(struct reader *r, const char *text)
{
    int64_t line = 1;
    for (; *text && !r->rc; line++) {
        const size_t n = strcspn(text, "\n");
        json_t *o = NULL;
        if (n && *text == '{') r->rc = json_parse_line(&o, text, n, line, r->why);
        if (o) document_take(r, o, o, 0);
        json_decref(o);
        text += n + (text[n] == '\n');
    }
    return r->rc;
}

/* Reads a parenthesized list at *at: names, or values in '...' with '' for a quote. New reference; NULL: it
 * is none. */
static json_t *sql_list(const char **at)
{
    const char *p = strchr(*at, '(');
    json_t *list = json_array();
    if (!p) goto none;
    for (p++; *p && *p != ')';) {
        struct str item = { 0 };
        while (isspace((unsigned char)*p) || *p == ',') p++;
        if (*p == '\'') {
            for (p++; *p && (*p != '\'' || p[1] == '\''); p++) {
                if (*p == '\'') p++;
                str_append_n(&item, p, 1);
            }
            if (*p) p++;
        } else {
            while (*p && !strchr(",) \t\n", *p)) str_append_n(&item, p++, 1);
        }
        json_array_append_new(list, json_string(str_text(&item)));
        str_free(&item);
        while (isspace((unsigned char)*p)) p++;
    }
    if (*p != ')') goto none;
    *at = p + 1;
    return list;
none:
    json_decref(list);
    return NULL;
}

static enum err_code sql_take(struct reader *r, const char *text)
{
    while (!r->rc && (text = strcasestr(text, "INSERT INTO"))) {
        json_t *names = sql_list(&text), *values = NULL, *o = json_object();
        const char *word = names ? strcasestr(text, "VALUES") : NULL;
        if (word) {
            text = word;
            values = sql_list(&text);
        }
        if (!values || json_array_size(values) != json_array_size(names))
            r->rc = err_set(
                r->why, ERR_FORMAT,
                "an INSERT without as many values as names: expected the output of llama-bench -o sql");
        for (size_t i = 0; !r->rc && i < json_array_size(names); i++)
            json_object_set(o, json_string_value(json_array_get(names, i)), json_array_get(values, i));
        if (!r->rc) document_take(r, o, o, 0);
        json_decref(names);
        json_decref(values);
        json_decref(o);
    }
    return r->rc;
}

static enum err_code file_take(struct reader *r, const char *path)
{
    char *text = NULL;
    size_t n;
    json_t *o = NULL;
    struct err whole = { 0 };
    enum err_code rc = file_read(&text, &n, path, IMPORT_LIMIT, r->why);
    if (rc) return rc;
    if (strcasestr(text, "INSERT INTO")) {
        rc = sql_take(r, text);
    } else if (!json_parse(&o, text, n, &whole)) {
        document_take(r, o, o, 0);
        rc = r->rc;
    } else if (str_starts(text, "{")) { /* several documents: JSON lines */
        rc = lines_take(r, text);
    } else {
        rc = err_set(r->why, ERR_FORMAT,
                     "expected the output of llama-bench -o json, jsonl or sql, or of LocalScore: %s",
                     whole.message);
    }
    json_decref(o);
    free(text);
    if (!rc && !r->n)
        rc = err_set(
            r->why, ERR_FORMAT,
            "%s has no results: expected the output of llama-bench -o json, jsonl or sql, or of LocalScore",
            path);
    return rc == ERR_FORMAT && r->why ? err_prefix(r->why, "%s", path) : rc;
}

/* ---------------------------------------------------------------- into the database */

/* The machine of a foreign result: known by the name of its processor only. */
static enum err_code machine_put(struct db *d, const char *cpu, char id[16], struct err *why)
{
    char hex[HASH_HEX];
    json_t *o = json_object();
    hash_bytes(cpu, strlen(cpu), hex);
    snprintf(id, 16, "other-%.8s", hex);
    json_put_str(o, "cpu", cpu);
    json_put_bool(o, "foreign", true);
    char *text = json_line(o);
    json_decref(o);
    const enum err_code rc = text ? db_machine_put(d, id, text, why)
                                  : err_set(why, ERR_NOMEM, "no memory for an import");
    free(text);
    return rc;
}

static enum err_code cell_put(struct db *d, int64_t run, int arm, const struct test *t, int i,
                              struct err *why)
{
    struct cell_row c = { .run_id = run, .arm = arm, .block = -1, .started_ms = t->started_ms };
    const struct repetition *r = &t->rep[i];
    struct measurement m[3];
    int n = 0;
    snprintf(c.phase, sizeof c.phase, "bench");
    snprintf(c.config, sizeof c.config, "%s", t->config);
    c.worker_json = "{\"foreign\":true}";
    const struct {
        enum metric_id metric;
        double value;
    } VALUES[] = { { METRIC_PREFILL_RATE, r->prefill },
                   { METRIC_DECODE_RATE, r->decode },
                   { METRIC_TTFT, r->ttft_s } };
    c.seconds = 0;
    for (size_t k = 0; k < COUNT_OF(VALUES); k++)
        if (VALUES[k].value > 0)
            m[n++] = (struct measurement){ METRICS[VALUES[k].metric].name, METRICS[VALUES[k].metric].unit,
                                           VALUES[k].value };
    if (r->prefill > 0) c.seconds += t->prompt / r->prefill;
    if (r->decode > 0) c.seconds += t->gen / r->decode;
    return db_cell_insert(d, &c, m, n, NULL, 0, NULL, 0, why);
}

static bool same_run(const struct test *a, const struct test *b)
{
    return !strcmp(a->workload, b->workload) && !strcmp(a->model, b->model) && !strcmp(a->cpu, b->cpu) &&
           !strcmp(a->engine, b->engine);
}

/* One run for the tests of one model with one workload; their settings are its arms. */
static enum err_code run_put(struct db *d, struct reader *r, int first, bool *done, struct err *why)
{
    const struct test *t = &r->test[first];
    struct run_row row = { .effect_ratio = NAN };
    int arm = 0;
    enum err_code rc = machine_put(d, t->cpu, row.machine, why);
    snprintf(row.kind, sizeof row.kind, "import");
    snprintf(row.state, sizeof row.state, "done");
    snprintf(row.model_name, sizeof row.model_name, "%s", t->model);
    snprintf(row.workload, sizeof row.workload, "%s", t->workload);
    snprintf(row.label, sizeof row.label, "foreign: %.110s", t->engine);
    if (!rc) rc = db_run_insert(d, &row, why);
    for (int i = first; i < r->n && !rc; i++) {
        if (done[i] || !same_run(t, &r->test[i])) continue;
        done[i] = true;
        for (int k = 0; k < r->test[i].n && !rc; k++) rc = cell_put(d, row.id, arm, &r->test[i], k, why);
        arm++;
    }
    return rc ? rc : db_run_finish(d, row.id, "done", "", NAN, NULL, why);
}

enum err_code history_import(struct db *d, const char *path, struct import_result *out, struct err *why)
{
    struct reader r = { .why = why };
    *out = (struct import_result){ 0 };
    enum err_code rc = file_take(&r, path);
    bool *done = rc ? NULL : calloc((size_t)r.n, sizeof *done);
    if (!rc && !done) rc = err_set(why, ERR_NOMEM, "no memory for an import");
    for (int i = 0; i < r.n && !rc; i++) {
        if (done[i]) continue;
        rc = run_put(d, &r, i, done, why);
        out->runs++;
    }
    out->tests = rc ? 0 : r.n;
    for (int i = 0; i < r.n; i++) free(r.test[i].rep);
    free(r.test);
    free(done);
    return rc;
}
