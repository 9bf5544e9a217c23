/* qdyno telemetry: all sensors of this machine with unit, period and source, and why the others are
 * missing; with --follow a stream of rows for other programs. A field of a row is the mean of the readings
 * since the previous row, so that a rate read ten times a second covers the whole second. A sensor that is
 * read less often than rows are written keeps its last value. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/recording/recording.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_TELEMETRY[] = {
    { .name = "--follow", .help = "write rows until Ctrl-C; -o csv (default) or jsonl" },
    { .name = "--interval", .needs = "--follow", .value = "MS", .kind = FLAG_INT, .min = 10, .max = SAMPLER_PERIOD_MAX_MS,
      .help = "with --follow: milliseconds between rows, 10 to 60000; default 1000" },
    { .name = "--count", .needs = "--follow", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1e9,
      .help = "with --follow: end after N rows" },
    { .name = "--for", .needs = "--follow", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "with --follow: end after this time, e.g. 10s" },
    { .name = "--metrics", .value = "A,B,...", .help = "only these sensors, in this order; default: all" },
    { .name = "--pid", .value = "PID", .kind = FLAG_INT, .min = 1, .max = INT32_MAX,
      .help = "also measure this process with its children (the proc_ sensors)" },
    FLAG_PERIOD_ROW,
    { .name = "--machine", .value = "DIR", .help = "read a machine recorded by `qdyno detect --record DIR`" },
    { .name = NULL },
};
/* clang-format on */

/* The sensors of --metrics, in that order. */
struct chosen {
    int n;
    enum metric_id id[METRIC_SENSOR_COUNT];
};

static enum err_code sensors_choose(struct chosen *c, const struct cli_args *a, struct err *why)
{
    const char *list = args_text(a, "--metrics", NULL);
    char names[8192];
    *c = (struct chosen){ 0 };
    for (int i = 0; !list && i < METRIC_SENSOR_COUNT; i++) c->id[c->n++] = (enum metric_id)i;
    if (!list) return ERR_OK;
    if (strlen(list) >= sizeof names)
        return err_set(why, ERR_USAGE, "--metrics: the list has %zu bytes; expected at most %zu",
                       strlen(list), sizeof names - 1);
    memcpy(names, list, strlen(list) + 1);
    for (char *save, *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        enum metric_id id = METRIC_SENSOR_COUNT;
        if (sensor_find(&id, name, why)) return err_prefix(why, "--metrics");
        for (int i = 0; i < c->n; i++)
            if (c->id[i] == id) return err_set(why, ERR_USAGE, "--metrics: '%s' is given twice", name);
        c->id[c->n++] = id;
    }
    return c->n ? ERR_OK
                : err_set(why, ERR_USAGE, "--metrics '%s': expected names of sensors, e.g. cpu_busy_ratio",
                          list);
}

/* ---------------------------------------------------------------- one reading */

#define SENSOR(member) MEMBER(struct metric, member)
static const struct column COLUMNS[] = {
    COL("name", "sensor", SENSOR(name)),
    KEY("value", .kind = COLUMN_NUM),
    COL("text", "value"),
    KEY("unit", SENSOR(unit)),
    COL("period_ms", "period ms", .kind = COLUMN_INT),
    KEY("least_period_ms", SENSOR(least_ms)),
    COL("source", "source", SENSOR(reads)),
    KEY("state"),
    KEY("absent"),
    COL("help", "meaning", SENSOR(help)),
};

DOCUMENT(TELEMETRY, "qdyno.telemetry/1", COLUMNS,
         .members = "cores[].busy_ratio cores[].frequency_hertz energy[].domain energy[].joules gpus[].* "
                    "read_s");

/* "81.7k", "2.91G": three digits. */
static const char *count_text(double v, const char *unit, char *buf, size_t size)
{
    static const char PREFIX[] = " kMGT";
    int i = 0;
    for (; fabs(v) >= 1000 && PREFIX[i + 1]; i++) v /= 1000;
    if (i)
        snprintf(buf, size, "%.3g%c%s", v, PREFIX[i], unit);
    else
        snprintf(buf, size, "%.3g%s", v, unit);
    return buf;
}

/* For people: "1.17G", "43.5 %", "2.10 GHz". */
static const char *sensor_value_text(double v, const char *unit, char *buf, size_t size)
{
    static const struct {
        const char *unit;
        double times;
        const char *format;
    } SHOWN[] = {
        { .unit = "ratio", .times = 100, .format = "%.1f %%" },
        { .unit = "hertz", .times = 1e-9, .format = "%.2f GHz" },
        { .unit = "watts", .times = 1, .format = "%.1f W" },
        { .unit = "celsius", .times = 1, .format = "%.1f C" },
    };
    for (size_t i = 0; i < COUNT_OF(SHOWN); i++)
        if (!strcmp(unit, SHOWN[i].unit)) {
            snprintf(buf, size, SHOWN[i].format, v * SHOWN[i].times);
            return buf;
        }
    if (!str_starts(unit, "bytes")) return count_text(v, *unit ? unit + 1 /* "1/s" */ : "", buf, size);
    char amount[32];
    snprintf(buf, size, "%s%s", str_from_bytes((int64_t)v, amount, sizeof amount), unit + strlen("bytes"));
    return buf;
}

/* Bytes are written as integers: as reals they would lose their last digits. */
static void sensor_put_value(json_t *row, const char *key, enum metric_id id, double v)
{
    if (!isnan(v) && !strcmp(METRICS[id].unit, "bytes"))
        json_put_int(row, key, (int64_t)llround(v));
    else
        json_put_num(row, key, v);
}

/* Why there is no value, for a sensor that has none. */
static const char *absence_text(const struct telemetry *t, enum metric_id id)
{
    const char *why = telemetry_absence(t, id, NULL);
    if (!strcmp(why, "no process is monitored")) return "no process is monitored: give --pid PID";
    return *why ? why : "no value at present: nothing happened, or a recording has only one state";
}

static void table_fill_row(json_t *row, const struct telemetry *t, const struct sampler_periods *p,
                           enum metric_id id, double v)
{
    const struct metric *m = &METRICS[id];
    char text[64];
    bool denied;
    telemetry_absence(t, id, &denied);
    document_put(&DOCUMENT_TELEMETRY, row, struct metric, m);
    sensor_put_value(row, "value", id, v);
    json_put_str(row, "text", isnan(v) ? NULL : sensor_value_text(v, m->unit, text, sizeof text));
    json_put_int(row, "period_ms", p->ms[id] ? p->ms[id] : m->period_ms);
    json_put_str(row, "state", !isnan(v) ? "ok" : denied ? "denied" : "absent");
    json_put_str(row, "absent", isnan(v) ? absence_text(t, id) : NULL);
}

/* For people: sensors that are missing for the same reason share one note. */
static void table_note_absent(struct table *table, const struct telemetry *t, const struct chosen *c,
                              const double *value)
{
    for (int i = 0; i < c->n; i++) {
        if (!isnan(value[c->id[i]])) continue;
        const char *why = absence_text(t, c->id[i]);
        struct str names = { 0 };
        bool listed = false;
        for (int k = 0; k < c->n; k++) {
            if (!isnan(value[c->id[k]]) || strcmp(absence_text(t, c->id[k]), why)) continue;
            listed |= k < i;
            str_printf(&names, " %s", METRICS[c->id[k]].name);
        }
        if (!listed) table_note(table, "n/a:%s\n     %s", str_text(&names), why);
        str_free(&names);
    }
}

static json_t *cores_json(const struct telemetry *t)
{
    double busy[1024], hertz[1024];
    const int n = telemetry_cores(t, busy, COUNT_OF(busy));
    json_t *list = json_array();
    telemetry_core_hertz(t, hertz, COUNT_OF(hertz));
    for (int i = 0; i < n; i++) {
        json_t *core = list_row(list);
        json_put_num(core, "busy_ratio", busy[i]);
        json_put_num(core, "frequency_hertz", hertz[i]);
    }
    return list;
}

static json_t *energy_json(const struct telemetry *t)
{
    struct energy_reading e[64];
    const int n = telemetry_energy(t, e, COUNT_OF(e));
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *domain = list_row(list);
        json_put_str(domain, "domain", e[i].domain);
        json_put_num(domain, "joules", e[i].joules);
    }
    return list;
}

/* "GPU 0 X: busy 97.0 %, memory 22.0G of 40.0G, 231 W, ..." with all known values. */
static void note_gpu(struct table *t, const struct gpu_reading *r)
{
    const struct {
        const char *what;
        double value;
        const char *unit;
    } SHOWN[] = {
        { .what = "busy ", .value = r->busy_ratio, .unit = "ratio" },
        { .what = "memory ", .value = r->mem_used_bytes, .unit = "bytes" },
        { .what = isnan(r->mem_used_bytes) ? "memory " : "of ",
          .value = r->mem_total_bytes,
          .unit = "bytes" },
        { .what = "", .value = r->power_watts, .unit = "watts" },
        { .what = isnan(r->power_watts) ? "limit " : "of ", .value = r->power_limit_watts, .unit = "watts" },
        { .what = "", .value = r->temperature_celsius, .unit = "celsius" },
        { .what = "", .value = r->core_hertz, .unit = "hertz" },
    };
    struct str line = { 0 };
    char text[160];
    for (size_t i = 0; i < COUNT_OF(SHOWN) && !r->lost; i++)
        if (!isnan(SHOWN[i].value))
            str_printf(&line, "%s%s%s",
                       !line.len                         ? ""
                       : str_starts(SHOWN[i].what, "of") ? " "
                                                         : ", ",
                       SHOWN[i].what, sensor_value_text(SHOWN[i].value, SHOWN[i].unit, text, sizeof text));
    if (r->throttle_known)
        str_printf(&line, "%sthrottled: %s", line.len ? ", " : "",
                   gpu_throttle_names(r->throttle_reasons, text, sizeof text));
    table_note(t, "GPU %d %s: %s", r->index, r->name,
               r->lost    ? "lost: it no longer answers on the bus"
               : line.len ? str_text(&line)
                          : "no readings");
    str_free(&line);
}

static json_t *gpus_json(const struct telemetry *t, struct table *table)
{
    struct gpu_reading gpu[MACHINE_GPUS];
    json_t *list = json_array();
    const int n = MIN(telemetry_gpus(t, gpu, MACHINE_GPUS), MACHINE_GPUS);
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, gpu_reading_to_json(&gpu[i]));
        note_gpu(table, &gpu[i]);
    }
    return list;
}

static int telemetry_print(const struct cli_global *g, const struct cli_args *a, const struct chosen *c,
                           const char *root, const struct sampler_periods *p)
{
    struct err why = { 0 };
    struct telemetry *t;
    struct table table;
    double value[METRIC_SENSOR_COUNT];
    if (telemetry_open(&t, root, &why)) return cli_fail(a, &why);
    if (*root) telemetry_freeze(t);
    telemetry_monitor_process(t, (int)args_int(a, "--pid", 0));
    telemetry_sample(t, value);
    for (int i = 0; i < 10 && !cli_is_interrupted(g); i++)
        clock_sleep_ns(50000000); /* rates are differences: give them some time */
    const int64_t before = clock_ns();
    telemetry_sample(t, value);
    const double read_s = (double)(clock_ns() - before) * 1e-9;
    int have = 0;
    table_init(&table, &DOCUMENT_TELEMETRY);
    for (int i = 0; i < c->n; i++) {
        const double v = value[c->id[i]];
        have += !isnan(v);
        if (isnan(v) && g->output == OUTPUT_MD) continue; /* listed below the table */
        table_fill_row(table_row(&table), t, p, c->id[i], v);
    }
    json_put(table.extra, "cores", cores_json(t));
    json_put(table.extra, "energy", energy_json(t));
    json_put(table.extra, "gpus", gpus_json(t, &table));
    json_put_num(table.extra, "read_s", read_s);
    table_note(&table, "%d of %d sensors answer; reading all of them took %.2f ms", have, c->n, read_s * 1e3);
    table_note_absent(&table, t, c, value);
    const int status = cli_finish(g, a, &table, EXIT_DONE);
    telemetry_close(t);
    return status;
}

/* ---------------------------------------------------------------- --follow */

/* After these a row of --follow has a column for each chosen sensor. */
static const struct column ROW_COLUMNS[] = {
    COL("time", "time"),
    COL("monotonic_s", "monotonic_s", .kind = COLUMN_NUM),
};

DOCUMENT(TELEMETRY_ROW, "qdyno.telemetry_row/1", ROW_COLUMNS);

struct follow {
    const struct cli_global *g;
    struct sampler_thread *sampler;
    const struct chosen *chosen;
    enum output_format format;
    struct column column[COUNT_OF(ROW_COLUMNS) + METRIC_SENSOR_COUNT];
    struct sample *window; /* [max] */
    int max;
    int64_t rows;
};

/* Waits until `at`. Returns false after Ctrl-C. */
static bool follow_wait_until(const struct follow *f, int64_t at_ns)
{
    for (int64_t left; (left = at_ns - clock_ns()) > 0 && !cli_is_interrupted(f->g);)
        clock_sleep_ns(MIN(left, 20000000));
    return !cli_is_interrupted(f->g);
}

static double follow_mean_since(const struct follow *f, int n, enum metric_id id, double last)
{
    double sum = 0;
    int k = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(f->window[i].value[id])) {
            sum += f->window[i].value[id];
            k++;
        }
    return k ? sum / k : last;
}

/* Writes one row about the time window (from, to]. */
static enum err_code follow_write_row(struct follow *f, int64_t from_ns, int64_t to_ns, struct err *why)
{
    struct table t;
    double last[METRIC_SENSOR_COUNT];
    char second[32], time[40];
    const int64_t unix_ms = clock_unix_ms();
    const int n = sampler_window(f->sampler, from_ns + 1, to_ns, f->window, f->max);
    sampler_latest(f->sampler, last, NULL, 0);
    const struct document d = { .schema = DOCUMENT_TELEMETRY_ROW.schema,
                                .columns = f->column,
                                .n_columns = (int)COUNT_OF(ROW_COLUMNS) + f->chosen->n };
    table_init(&t, &d);
    json_t *row = table_row(&t);
    clock_iso8601(unix_ms, second, sizeof second);
    snprintf(time, sizeof time, "%.19s.%03dZ", second, (int)(unix_ms % 1000));
    json_put_str(row, "time", time);
    json_put_num(row, "monotonic_s", (double)to_ns * 1e-9);
    for (int i = 0; i < f->chosen->n; i++) {
        const enum metric_id id = f->chosen->id[i];
        sensor_put_value(row, METRICS[id].name, id, follow_mean_since(f, n, id, last[id]));
    }
    const enum err_code rc = (f->rows ? table_write_more : table_write)(&t, f->format, stdout, why);
    table_done(&t);
    f->rows++;
    return rc;
}

/* Flushes stdout. *over: the reader closed the pipe, which is the usual end of a stream. */
static enum err_code follow_flush(bool *over, struct err *why)
{
    *over = false;
    if (!fflush(stdout)) return ERR_OK;
    *over = true;
    if (errno == EPIPE) return ERR_OK;
    return err_set(why, err_of_errno(errno), "cannot write a row: %s", strerror(errno));
}

static enum err_code follow_loop(struct follow *f, const struct cli_args *a, struct err *why)
{
    const int64_t interval_ns = args_int(a, "--interval", 1000) * 1000000,
                  count = args_int(a, "--count", INT64_MAX);
    /* half a tick after the sampler, so that a row includes the reading at its end */
    const int64_t start_ns = clock_ns() + 50000000,
                  end_ns = start_ns + (int64_t)(args_num(a, "--for", 1e9) * 1e9);
    int64_t was_ns = 0;
    enum err_code rc = ERR_OK;
    bool over = false;
    for (int64_t at = start_ns + interval_ns; f->rows < count && at <= end_ns && !rc && !over;
         at += interval_ns) {
        if (!follow_wait_until(f, at)) break;
        const int64_t now_ns = clock_ns();
        rc = follow_write_row(f, was_ns, now_ns, why);
        if (!rc) rc = follow_flush(&over, why);
        was_ns = now_ns;
        if (at + interval_ns < now_ns)
            at = now_ns - interval_ns; /* the reader was slow: skip the missed rows */
    }
    return rc;
}

static int telemetry_follow(const struct cli_global *g, const struct cli_args *a, const struct chosen *c,
                            const char *root, const struct sampler_periods *p)
{
    struct err why = { 0 };
    struct follow f = { .g = g, .chosen = c, .format = g->output_given ? g->output : OUTPUT_CSV };
    const int interval_ms = (int)args_int(a, "--interval", 1000), tick_ms = MIN(interval_ms, 100);
    memcpy(f.column, ROW_COLUMNS, sizeof ROW_COLUMNS);
    for (int i = 0; i < c->n; i++)
        f.column[COUNT_OF(ROW_COLUMNS) + (size_t)i] = (struct column){ .name = METRICS[c->id[i]].name,
                                                                       .title = METRICS[c->id[i]].name,
                                                                       .kind = COLUMN_NUM };
    f.max = 2 * interval_ms / 10 + 16; /* a late row covers more samples */
    f.window = malloc((size_t)f.max * sizeof *f.window);
    enum err_code rc = f.window ? sampler_start(&f.sampler, root, tick_ms, p, &why)
                                : err_set(&why, ERR_NOMEM, "out of memory for the samples of a row");
    if (!rc) {
        int64_t missed;
        sampler_monitor_process(f.sampler, (int)args_int(a, "--pid", 0));
        rc = follow_loop(&f, a, &why);
        const int64_t ticks = sampler_ticks(f.sampler, &missed);
        cli_note(g, "%lld rows; sampling used %.2f %% of one CPU and missed %lld of %lld ticks",
                 (long long)f.rows, 100 * sampler_cost_ratio(f.sampler), (long long)missed,
                 (long long)(ticks + missed));
        sampler_stop(f.sampler);
    }
    free(f.window);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}

/* ---------------------------------------------------------------- the command */

static enum err_code flags_check(const struct cli_global *g, const struct cli_args *a, struct err *why)
{
    const bool rows = g->output == OUTPUT_CSV || g->output == OUTPUT_JSONL;
    if (args_has(a, "--follow") && g->output_given && !rows)
        return err_set(why, ERR_USAGE, "-o %s: expected csv or jsonl with --follow", OUTPUT_NAMES[g->output]);
    const int pid = (int)args_int(a, "--pid", 0);
    if (pid && !args_has(a, "--machine") && kill(pid, 0) && errno == ESRCH)
        return err_set(why, ERR_USAGE, "--pid %d: no such process", pid);
    return ERR_OK;
}

int command_telemetry(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct chosen c;
    struct sampler_periods p;
    struct recording machine = { 0 };
    enum err_code rc = flags_check(g, a, &why);
    if (!rc) rc = sensors_choose(&c, a, &why);
    if (!rc) rc = cli_periods(&p, a, &why);
    const char *dir = args_text(a, "--machine", NULL);
    if (!rc && dir && (rc = recording_open(&machine, dir, &why))) err_prefix(&why, "--machine %s", dir);
    if (rc) return cli_fail(a, &why);
    const int status = (args_has(a, "--follow") ? telemetry_follow
                                                : telemetry_print)(g, a, &c, dir ? machine.root : "", &p);
    recording_close(&machine);
    return status;
}
