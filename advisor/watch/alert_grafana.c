/* advisor/watch/alert_grafana.c - writes a Grafana board from a table of panels: models and their speed, the
 * state of the machine, failures, and trends over weeks.
 *
 * Each panel's `interval` limits how often it is queried: performance every second, resources every five,
 * errors every minute, trends every 30 s at least. Querying more often would only repeat samples. */
#include "advisor/watch/watch.h"

#include <stdlib.h>
#include <string.h>

#define HERE "{instance=~\"$instance\"}"

enum { COLUMNS = 24, EXPRESSIONS = 3 };
static const char PERFORMANCE[] = "1s", RESOURCES[] = "5s", ERRORS[] = "1m", TREND[] = "30s";

struct query {
    const char *expression, *legend;
};
struct panel {
    const char *title; /* expressions NULL: the heading of a row of panels */
    const char *type;  /* "timeseries" "stat" "table" */
    const char *unit;  /* Grafana's name: "percentunit" "bytes" "celsius" ... */
    const char *interval;
    int width, height;
    const char *help;
    struct query query[EXPRESSIONS];
};
static const struct panel PANELS[] = {
    { .title = "Firing alerts" },
    { .title = "Alerts of the watch",
      .type = "table",
      .unit = "short",
      .interval = ERRORS,
      .width = 12,
      .height = 6,
      .help = "alerts that `qdyno watch` reports on each machine",
      .query = { { .expression = "qdyno_watch_alert_firing" HERE, .legend = "" } } },
    { .title = "Alerts of Prometheus",
      .type = "table",
      .unit = "short",
      .interval = ERRORS,
      .width = 12,
      .height = 6,
      .help = "alerts of the Prometheus rules",
      .query = { { .expression = "ALERTS{alertname=~\"Qdyno.*\", instance=~\"$instance\"}",
                   .legend = "" } } },
    { .title = "Performance against the baseline",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = PERFORMANCE,
      .width = 12,
      .height = 8,
      .help = "each watched workload's last round; 100 % is the baseline",
      .query = { { .expression = "qdyno_watch_performance_ratio" HERE, .legend = "{{instance}} {{subject}}" },
                 { .expression = "qdyno_watch_canary_ratio" HERE, .legend = "{{instance}} canary" } } },
    { .title = "Since the last measurement",
      .type = "stat",
      .unit = "s",
      .interval = ERRORS,
      .width = 6,
      .height = 8,
      .help = "grows while nothing can be measured",
      .query = { { .expression = "time() - qdyno_watch_last_success_timestamp_seconds" HERE,
                   .legend = "{{instance}}" } } },
    { .title = "Measurements that failed",
      .type = "stat",
      .unit = "percentunit",
      .interval = ERRORS,
      .width = 6,
      .height = 8,
      .help = "of the last 20",
      .query = { { .expression = "qdyno_watch_errors_ratio" HERE, .legend = "{{instance}}" } } },

    { .title = "Performance" },
    { .title = "Decode",
      .type = "timeseries",
      .unit = "none",
      .interval = PERFORMANCE,
      .width = 8,
      .height = 8,
      .help = "tokens per second of decode time, over the last hour",
      .query = { { .expression = "instance_model_workload:qdyno_decode_tokens:rate1h" HERE,
                   .legend = "{{model}} {{workload}}" } } },
    { .title = "Prefill",
      .type = "timeseries",
      .unit = "none",
      .interval = PERFORMANCE,
      .width = 8,
      .height = 8,
      .help = "prompt tokens per second of prefill time, over the last hour",
      .query = { { .expression = "instance_model_workload:qdyno_prefill_tokens:rate1h" HERE,
                   .legend = "{{model}} {{workload}}" } } },
    { .title = "Time to the first token",
      .type = "timeseries",
      .unit = "s",
      .interval = PERFORMANCE,
      .width = 8,
      .height = 8,
      .help = "quantiles over the last hour",
      .query = { { .expression =
                       "histogram_quantile(0.5, sum by (le, model) (rate(qdyno_time_to_first_token_seconds_bucket" HERE
                       "[1h])))",
                   .legend = "{{model}} p50" },
                 { .expression =
                       "histogram_quantile(0.99, sum by (le, model) (rate(qdyno_time_to_first_token_seconds_bucket" HERE
                       "[1h])))",
                   .legend = "{{model}} p99" } } },
    { .title = "Time between tokens",
      .type = "timeseries",
      .unit = "s",
      .interval = PERFORMANCE,
      .width = 8,
      .height = 8,
      .help = "quantiles over the last hour",
      .query = { { .expression =
                       "histogram_quantile(0.5, sum by (le, model) (rate(qdyno_inter_token_latency_seconds_bucket" HERE
                       "[1h])))",
                   .legend = "{{model}} p50" },
                 { .expression =
                       "histogram_quantile(0.95, sum by (le, model) (rate(qdyno_inter_token_latency_seconds_bucket" HERE
                       "[1h])))",
                   .legend = "{{model}} p95" },
                 { .expression =
                       "histogram_quantile(0.99, sum by (le, model) (rate(qdyno_inter_token_latency_seconds_bucket" HERE
                       "[1h])))",
                   .legend = "{{model}} p99" } } },
    { .title = "Verdicts of experiments",
      .type = "table",
      .unit = "short",
      .interval = TREND,
      .width = 16,
      .height = 8,
      .help = "as pushed: B relative to A",
      .query = { { .expression = "qdyno_ab_verdict{machine=~\"$machine\"} == 1", .legend = "" } } },

    { .title = "Resources" },
    { .title = "Processors",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "busy, stolen by the hypervisor, share of time waited for",
      .query = { { .expression = "qdyno_cpu_busy_ratio" HERE, .legend = "{{instance}} busy" },
                 { .expression = "qdyno_cpu_steal_ratio" HERE, .legend = "{{instance}} stolen" },
                 { .expression = "qdyno_psi_cpu_ratio" HERE, .legend = "{{instance}} waiting" } } },
    { .title = "Memory",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "in use, by the tighter limit; share of time waited for",
      .query = { { .expression = "instance:qdyno_memory_used:ratio" HERE, .legend = "{{instance}} in use" },
                 { .expression = "qdyno_psi_memory_ratio" HERE, .legend = "{{instance}} waiting" } } },
    { .title = "Memory traffic",
      .type = "timeseries",
      .unit = "Bps",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "over the memory bus, if the CPU counts it",
      .query = { { .expression = "qdyno_mem_read_bytes_per_second" HERE, .legend = "{{instance}} read" },
                 { .expression = "qdyno_mem_write_bytes_per_second" HERE,
                   .legend = "{{instance}} written" } } },
    { .title = "Clock",
      .type = "timeseries",
      .unit = "hertz",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "mean of the CPUs, and the GPUs' cores",
      .query = { { .expression = "qdyno_cpu_frequency_hertz" HERE, .legend = "{{instance}}" },
                 { .expression = "qdyno_gpu_clock_hertz{instance=~\"$instance\", domain=\"core\"}",
                   .legend = "{{instance}} GPU {{device}}" } } },
    { .title = "Temperature",
      .type = "timeseries",
      .unit = "celsius",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "the hottest CPU, each GPU",
      .query = { { .expression = "qdyno_cpu_temperature_celsius" HERE, .legend = "{{instance}}" },
                 { .expression = "qdyno_gpu_temperature_celsius{instance=~\"$instance\", sensor=\"gpu\"}",
                   .legend = "{{instance}} GPU {{device}}" } } },
    { .title = "Power",
      .type = "timeseries",
      .unit = "watt",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "from energy counters, where there are any",
      .query = { { .expression =
                       "sum by (instance) (rate(qdyno_cpu_energy_joules_total{instance=~\"$instance\", "
                       "domain=~\"package-[0-9]+\"}[$__rate_interval]))",
                   .legend = "{{instance}} processors" },
                 { .expression = "rate(qdyno_gpu_energy_joules_total" HERE "[$__rate_interval])",
                   .legend = "{{instance}} GPU {{device}}" } } },
    { .title = "GPUs",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "busy, and memory in use",
      .query = { { .expression = "qdyno_gpu_utilization_ratio" HERE,
                   .legend = "{{instance}} {{device}} busy" },
                 { .expression = "instance_device:qdyno_gpu_memory_used:ratio" HERE,
                   .legend = "{{instance}} {{device}} memory" } } },
    { .title = "Swap",
      .type = "timeseries",
      .unit = "Bps",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "memory read back from disk: speeds are meaningless then",
      .query = { { .expression = "qdyno_swap_in_bytes_per_second" HERE, .legend = "{{instance}} in" },
                 { .expression = "qdyno_swap_out_bytes_per_second" HERE, .legend = "{{instance}} out" } } },
    { .title = "Why GPUs are slowed down",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = RESOURCES,
      .width = 8,
      .height = 8,
      .help = "share of time, by reason",
      .query = { { .expression = "rate(qdyno_gpu_throttle_seconds_total" HERE "[$__rate_interval])",
                   .legend = "{{instance}} {{device}} {{reason}}" } } },

    { .title = "Over weeks" },
    { .title = "Canary",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = TREND,
      .width = 12,
      .height = 8,
      .help =
          "speed of the canary, a fixed reference workload, relative to its usual speed: a change here is a change of the machine",
      .query = { { .expression = "qdyno_watch_canary_ratio" HERE, .legend = "{{instance}}" } } },
    { .title = "Effects of experiments",
      .type = "timeseries",
      .unit = "percentunit",
      .interval = TREND,
      .width = 12,
      .height = 8,
      .help = "B divided by A, with its interval",
      .query = { { .expression = "qdyno_ab_effect_ratio{machine=~\"$machine\"}", .legend = "{{experiment}}" },
                 { .expression = "qdyno_ab_effect_lower_ratio{machine=~\"$machine\"}",
                   .legend = "{{experiment}} from" },
                 { .expression = "qdyno_ab_effect_upper_ratio{machine=~\"$machine\"}",
                   .legend = "{{experiment}} to" } } },
};

const char *board_expression(int index)
{
    for (size_t i = 0; i < COUNT_OF(PANELS); i++)
        for (int k = 0; k < EXPRESSIONS && PANELS[i].query[k].expression; k++)
            if (!index--) return PANELS[i].query[k].expression;
    return NULL;
}

/* ---------------------------------------------------------------- the JSON model */

static json_t *data_source(void)
{
    json_t *o = json_object();
    json_put_str(o, "type", "prometheus");
    json_put_str(o, "uid", "${datasource}");
    return o;
}

static json_t *panel_position(int x, int y, int w, int h)
{
    json_t *o = json_object();
    json_put_int(o, "h", h);
    json_put_int(o, "w", w);
    json_put_int(o, "x", x);
    json_put_int(o, "y", y);
    return o;
}

static json_t *panel_targets(const struct panel *p)
{
    json_t *list = json_array();
    const bool now = strcmp(p->type, "timeseries") != 0;
    for (int k = 0; k < EXPRESSIONS && p->query[k].expression; k++) {
        json_t *o = json_object();
        json_put_str(o, "refId", (char[]){ (char)('A' + k), 0 });
        json_put(o, "datasource", data_source());
        json_put_str(o, "expr", p->query[k].expression);
        json_put_str(o, "legendFormat", p->query[k].legend);
        json_put_bool(o, "instant", now);
        json_put_bool(o, "range", !now);
        if (!strcmp(p->type, "table")) json_put_str(o, "format", "table");
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *field_defaults(const struct panel *p)
{
    json_t *config = json_object(), *defaults = json_object(), *custom = json_object();
    json_put_str(defaults, "unit", p->unit);
    if (!strcmp(p->type, "timeseries")) {
        json_put_str(custom, "drawStyle", "line");
        json_put_bool(custom, "spanNulls", false); /* leave gaps: nothing is known there */
        json_put_int(custom, "fillOpacity", 0);
    }
    json_put(defaults, "custom", custom);
    json_put(config, "defaults", defaults);
    json_put(config, "overrides", json_array());
    return config;
}

static json_t *options_of(const struct panel *p)
{
    json_t *o = json_object();
    if (!strcmp(p->type, "stat")) {
        json_t *reduce = json_object(), *calcs = json_array();
        json_array_append_new(calcs, json_string("lastNotNull"));
        json_put(reduce, "calcs", calcs);
        json_put_bool(reduce, "values", false);
        json_put(o, "reduceOptions", reduce);
    }
    return o;
}

static json_t *panel_model(const struct panel *p, int id, int x, int y)
{
    json_t *o = json_object();
    const bool heading = !p->type;
    json_put_int(o, "id", id);
    json_put_str(o, "title", p->title);
    json_put_str(o, "type", heading ? "row" : p->type);
    json_put(o, "gridPos",
             heading ? panel_position(0, y, COLUMNS, 1) : panel_position(x, y, p->width, p->height));
    if (heading) {
        json_put_bool(o, "collapsed", false);
        json_put(o, "panels", json_array());
        return o;
    }
    json_put_str(o, "description", p->help);
    json_put(o, "datasource", data_source());
    json_put_str(o, "interval", p->interval);
    json_put(o, "fieldConfig", field_defaults(p));
    json_put(o, "options", options_of(p));
    json_put(o, "targets", panel_targets(p));
    return o;
}

/* Place panels from left to right; start a new line when one does not fit. */
static json_t *board_panels(void)
{
    json_t *list = json_array();
    int x = 0, y = 0, tallest = 0;
    for (size_t i = 0; i < COUNT_OF(PANELS); i++) {
        const struct panel *p = &PANELS[i];
        if (!p->type || x + p->width > COLUMNS) {
            y += tallest;
            x = tallest = 0;
        }
        json_array_append_new(list, panel_model(p, (int)i + 1, x, y));
        x += p->width;
        tallest = p->type ? MAX(tallest, p->height) : 1;
        if (!p->type) x = COLUMNS;
    }
    return list;
}

static json_t *board_variable(const char *name, const char *label, const char *type, const char *query)
{
    json_t *o = json_object();
    json_put_str(o, "name", name);
    json_put_str(o, "label", label);
    json_put_str(o, "type", type);
    json_put_str(o, "query", query);
    if (strcmp(type, "query")) return o;
    json_put(o, "datasource", data_source());
    json_put_str(o, "definition", query);
    json_put_bool(o, "includeAll", true);
    json_put_str(o, "allValue", ".*");
    json_put_bool(o, "multi", true);
    json_put_int(o, "refresh", 2); /* refresh when the time range changes */
    json_put_int(o, "sort", 1);
    return o;
}

static json_t *board_variables(void)
{
    json_t *o = json_object(), *list = json_array();
    json_array_append_new(list, board_variable("datasource", "Prometheus", "datasource", "prometheus"));
    json_array_append_new(
        list, board_variable("instance", "Instance", "query", "label_values(qdyno_build_info, instance)"));
    json_array_append_new(list, board_variable("machine", "Machine (pushed)", "query",
                                               "label_values(qdyno_experiment_info, machine)"));
    json_put(o, "list", list);
    return o;
}

enum err_code board_write(struct str *out, struct err *why)
{
    static const char *const REFRESH[] = { "1s", "5s", "10s", "30s", "1m", "5m" };
    json_t *o = json_object(), *time = json_object(), *picker = json_object(), *tags = json_array(),
           *refresh = json_array();
    json_put_str(o, "title", "qdyno");
    json_put_str(o, "uid", "qdyno");
    json_put_str(
        o, "description",
        "Language models on these machines: speed, resources, failures, trends. Written by `qdyno watch --print-board`.");
    json_array_append_new(tags, json_string("qdyno"));
    json_put(o, "tags", tags);
    json_put_int(o, "schemaVersion", 37);
    json_put_int(o, "version", 1);
    json_put_bool(o, "editable", true);
    json_put_int(o, "graphTooltip", 1);
    json_put_str(o, "refresh", RESOURCES);
    json_put_str(time, "from", "now-6h");
    json_put_str(time, "to", "now");
    json_put(o, "time", time);
    for (size_t i = 0; i < COUNT_OF(REFRESH); i++) json_array_append_new(refresh, json_string(REFRESH[i]));
    json_put(picker, "refresh_intervals", refresh);
    json_put(o, "timepicker", picker);
    json_put(o, "templating", board_variables());
    json_put(o, "panels", board_panels());
    char *text = json_write(o, JSON_INDENTED, 0);
    json_decref(o);
    if (!text) return err_set(why, ERR_NOMEM, "out of memory for a board");
    str_append(out, text);
    str_append(out, "\n");
    free(text);
    return out->failed ? err_set(why, ERR_NOMEM, "out of memory for a board") : ERR_OK;
}
