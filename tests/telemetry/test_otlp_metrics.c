/* Proves: readings become metrics with OpenTelemetry's names, units, instruments and attributes where they
 * are defined, otherwise with our own; unknown values have no point; counters have their start time if it
 * is known; the resource comes from the machine and the environment; the official definitions, or
 * otherwise a reader written here, read all of it. */
#include "tests/telemetry/collector.h"
#include "telemetry/export/export.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/sensors/sensors.h"
#include "tests/telemetry/otlp_decode.h"
#include "tests/telemetry/roots.h"

#include <math.h>

static struct readings some_readings(void)
{
    static struct machine m;
    m = (struct machine){
        .id = "0123456789ab", .host = "here", .cpu = "A CPU", .kernel = "Linux 6.1.0", .isa = 1
    };
    struct readings r = { .machine = &m, .gpus = 2, .energies = 1, .sampler_cost_ratio = 0.002 };
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) r.row[i] = NAN;
    r.row[METRIC_CPU_BUSY] = 0.25;
    r.row[METRIC_MEM_USED] = 1e9;
    for (int i = 0; i < 2; i++) {
        gpu_reading_forget(&r.gpu[i]);
        snprintf(r.gpu[i].vendor, sizeof r.gpu[i].vendor, "nvidia");
        r.gpu[i].index = i;
        r.gpu[i].busy_ratio = 0.5 + 0.25 * i;
        r.gpu[i].mem_used_bytes = 1e9 * (i + 1);
    }
    r.gpu[0].power_watts = 300;
    r.energy[0] = (struct energy_reading){ .domain = "package-0", .joules = 1234 };
    r.process = (struct process_reading){ .cpu_seconds = 3,
                                          .start_time_seconds = 1700000000,
                                          .resident_bytes = 4e6,
                                          .virtual_bytes = NAN,
                                          .major_faults = 2,
                                          .threads = 5,
                                          .open_fds = NAN,
                                          .max_fds = NAN };
    return r;
}

static void collect(struct otlp_batch *b, const struct readings *r)
{
    *b = (struct otlp_batch){ .time_ns = 1700000100000000000, .process_begun_ns = 1700000000000000000 };
    const struct family_sink sink = otlp_sink(b);
    readings_export(r, &sink);
    CHECK(!b->failed);
}

static const struct otlp_metric *metric_of(const struct otlp_batch *b, const char *name)
{
    const struct otlp_metric *found = NULL;
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->metrics[i].name, name)) {
            CHECK(!found); /* one metric, all its points */
            found = &b->metrics[i];
        }
    return found;
}

static const char *text_of(const struct otlp_point *p, const char *key)
{
    for (int i = 0; i < p->n_attributes; i++)
        if (!strcmp(p->attributes[i].key, key)) return p->attributes[i].string;
    return "";
}

static void names_are_those_of_the_conventions(void **state)
{
    (void)state;
    struct otlp_batch b;
    const struct readings r = some_readings();
    collect(&b, &r);
    const struct otlp_metric *m = metric_of(&b, "hw.gpu.utilization");
    CHECK(m);
    CHECK_EQ(m->type, OTLP_GAUGE);
    CHECK_STR(m->unit, "1");
    CHECK_EQ(m->n_points, 2);
    CHECK_EQ(m->points[0].value, 0.5);
    CHECK_EQ(m->points[1].value, 0.75);
    CHECK(!m->points[0].begun_ns);
    CHECK(*text_of(&m->points[1], "hw.id"));
    CHECK_STR(text_of(&m->points[1], "hw.type"), "gpu");
    CHECK(!*text_of(&m->points[1], "device"));
    CHECK_STR_NE(text_of(&m->points[0], "hw.id"), text_of(&m->points[1], "hw.id"));
    m = metric_of(&b, "hw.gpu.memory.usage");
    CHECK(m);
    CHECK_EQ(m->type, OTLP_UP_DOWN);
    CHECK_STR(m->unit, "By");
    CHECK_EQ(m->points[1].value, 2e9);
    m = metric_of(&b, "qdyno_gpu_power_watts"); /* no name of theirs */
    CHECK(m);
    CHECK_EQ(m->type, OTLP_GAUGE);
    CHECK_STR(m->unit, "W");
    CHECK_EQ(m->n_points, 1);
    CHECK(*text_of(&m->points[0], "device"));
    m = metric_of(&b, "process.cpu.time");
    CHECK(m);
    CHECK_EQ(m->type, OTLP_SUM);
    CHECK_STR(m->unit, "s");
    CHECK_EQ(m->points[0].value, 3);
    CHECK_EQ(m->points[0].begun_ns, 1700000000000000000);
    CHECK_EQ(m->points[0].time_ns, 1700000100000000000);
    m = metric_of(&b, "process.paging.faults");
    CHECK(m);
    CHECK_STR(m->unit, "{fault}");
    CHECK_STR(text_of(&m->points[0], "system.paging.fault.type"), "major");
    m = metric_of(&b, "qdyno_cpu_energy_joules_total");
    CHECK(m);
    CHECK_EQ(m->type, OTLP_SUM);
    CHECK_STR(m->unit, "J");
    CHECK_STR(text_of(&m->points[0], "domain"), "package-0");
    m = metric_of(&b, "qdyno_cpu_busy_ratio");
    CHECK(m);
    CHECK_EQ(m->n_points, 1);
    CHECK_EQ(m->points[0].value, 0.25);
    CHECK(*m->description);
    CHECK(!metric_of(&b, "process.memory.virtual"));
    CHECK(!metric_of(&b, "qdyno_cpu_temperature_celsius"));
    CHECK(!metric_of(&b, "qdyno_gpu_utilization_ratio"));
    CHECK(!metric_of(&b, "process_cpu_seconds_total"));
    otlp_batch_free(&b);
}

/* Each row of FAMILIES becomes a metric with a name of its own, and with a unit where it has one. */
static void every_family_becomes_a_metric(void **state)
{
    (void)state;
    struct otlp_batch b = { .time_ns = 1 };
    const struct family_sink sink = otlp_sink(&b);
    int written = 0;
    for (int f = 0; f < FAMILY_COUNT; f++) {
        const struct histogram_counts h = { .count = 0 };
        if (!FAMILIES[f].name) continue;
        if (FAMILIES[f].type == FAMILY_HISTOGRAM)
            sink.histogram(sink.ctx, (enum family_id)f, NULL, 0, &h);
        else
            family_value(&sink, (enum family_id)f, NULL, 0, 1);
        written++;
        if (b.n != written) fail_msg("%s has the name of another family", FAMILIES[f].name);
        const struct otlp_metric *m = &b.metrics[b.n - 1];
        if (*family_unit((enum family_id)f) && !*m->unit)
            fail_msg("%s: no UCUM unit for '%s'", m->name, family_unit((enum family_id)f));
        CHECK_EQ(m->n_points, 1);
        CHECK(*m->name);
        CHECK(*m->description);
    }
    CHECK_LT(50, written);
    CHECK(!b.failed);
    otlp_batch_free(&b);
}

static void histograms_keep_their_buckets(void **state)
{
    (void)state;
    struct otlp_batch b = {
        .time_ns = 2000, .requests_begun_ns = 1000, .common = { { "arm", "b" } }, .n_common = 1
    };
    const struct family_sink sink = otlp_sink(&b);
    struct histogram_counts h = { .count = 0 };
    const struct label labels[] = { { "model", "toy" }, { "workload", "tg64" } };
    histogram_add(&h, FAMILIES[FAMILY_TIME_TO_FIRST_TOKEN].edges, 0.003, 4);
    histogram_add(&h, FAMILIES[FAMILY_TIME_TO_FIRST_TOKEN].edges, 1e6, 1);
    sink.histogram(sink.ctx, FAMILY_TIME_TO_FIRST_TOKEN, labels, 2, &h);
    family_value(&sink, FAMILY_PROMPT_TOKENS, labels, 2, 64);
    family_value(&sink, FAMILY_PROMPT_TOKENS, labels, 2, NAN);
    for (int i = 0; i < 100; i++)
        family_value(&sink, FAMILY_GENERATED_TOKENS, labels, 2, i); /* room for many */
    const struct otlp_metric *m = metric_of(&b, "gen_ai.server.time_to_first_token");
    CHECK(m);
    CHECK_EQ(m->type, OTLP_HISTOGRAM);
    CHECK_STR(m->unit, "s");
    CHECK_EQ(m->n_points, 1);
    const struct otlp_point *p = &m->points[0];
    uint64_t sum = 0;
    for (int i = 0; i <= p->n_bounds; i++) sum += p->counts[i];
    CHECK_EQ(sum, 5);
    CHECK_EQ(p->counts[p->n_bounds], 1);
    CHECK_EQ(p->begun_ns, 1000);
    CHECK_LT(1e6, p->sum);
    assert_string_equal(text_of(p, "gen_ai.request.model"), "toy");
    assert_string_equal(text_of(p, "gen_ai.operation.name"), "text_completion");
    assert_string_equal(text_of(p, "gen_ai.provider.name"), "qdyno");
    assert_string_equal(text_of(p, "workload"), "tg64");
    assert_string_equal(text_of(p, "arm"), "b");
    m = metric_of(&b, "qdyno_prompt_tokens_total"); /* what they call so is something else */
    CHECK(m);
    CHECK_EQ(m->type, OTLP_SUM);
    CHECK_EQ(m->n_points, 1);
    CHECK_EQ(m->points[0].begun_ns, 1000);
    m = metric_of(&b, "qdyno_generated_tokens_total");
    CHECK(m);
    CHECK_EQ(m->n_points, 100);
    for (int i = 0; i < 100; i++) CHECK_EQ(m->points[i].value, i);
    otlp_batch_free(&b);
}

static void others_read_them(void **state)
{
    (void)state;
    struct otlp_batch b;
    struct otlp_identity who;
    struct str body = { 0 }, printed = { 0 };
    struct err why = { 0 };
    const struct readings r = some_readings();
    CHECK_OK(otlp_identify(&who, r.machine, "9.9", &why));
    collect(&b, &r);
    struct histogram_counts h = { .count = 0 };
    histogram_add(&h, FAMILIES[FAMILY_INTER_TOKEN_LATENCY].edges, 0.003, 4);
    const struct family_sink sink = otlp_sink(&b);
    sink.histogram(sink.ctx, FAMILY_INTER_TOKEN_LATENCY, NULL, 0, &h);
    CHECK_LT(10, otlp_metrics_encode(&body, &who.resource, b.metrics, b.n));
    otlp_batch_free(&b);
    otlp_identity_free(&who);
    otlp_decode("metrics", &body, &printed);
    CHECK_CONTAINS(str_text(&printed), "\"service.version\": \"9.9\"");
    CHECK_CONTAINS(str_text(&printed), "\"histogram\"");
    str_free(&printed);
}

static const char *resource_text(const struct otlp_identity *who, const char *key)
{
    for (int i = 0; i < who->resource.n; i++)
        if (!strcmp(who->resource.attributes[i].key, key)) return who->resource.attributes[i].string;
    return "";
}

static int forget_environment(void **state)
{
    (void)state;
    unsetenv("OTEL_SERVICE_NAME");
    unsetenv("OTEL_RESOURCE_ATTRIBUTES");
    return 0;
}

static void who_speaks(void **state)
{
    (void)state;
    struct otlp_identity who;
    struct err why = { 0 };
    struct machine m = {
        .id = "0123456789ab", .host = "here", .cpu = "A CPU", .kernel = "Linux 6.1.0", .isa = 1, .gpus = 1
    };
    snprintf(m.gpu[0].name, sizeof m.gpu[0].name, "A GPU");
    CHECK_OK(otlp_identify(&who, &m, NULL, &why));
    assert_string_equal(resource_text(&who, "service.name"), "qdyno");
    assert_string_equal(resource_text(&who, "service.version"), "");
    assert_string_equal(resource_text(&who, "host.id"), "0123456789ab");
    assert_string_equal(resource_text(&who, "service.instance.id"), "here:0123456789ab");
    assert_string_equal(resource_text(&who, "host.arch"), "amd64");
    assert_string_equal(resource_text(&who, "os.type"), "linux");
    assert_string_equal(resource_text(&who, "os.version"), "6.1.0");
    assert_string_equal(resource_text(&who, "os.description"), ""); /* not known */
    CHECK_EQ(who.resource.attributes[who.resource.n - 1].type, OTLP_STRINGS);
    otlp_identity_free(&who);
    setenv("OTEL_RESOURCE_ATTRIBUTES",
           "service.name=a,deployment.environment.name=lab%201, host.name = there", 1);
    CHECK_OK(otlp_identify(&who, &m, "1", &why));
    assert_string_equal(resource_text(&who, "service.name"), "a");
    assert_string_equal(resource_text(&who, "deployment.environment.name"), "lab 1");
    assert_string_equal(resource_text(&who, "host.name"), "there");
    otlp_identity_free(&who);
    setenv("OTEL_SERVICE_NAME", "b", 1);
    CHECK_OK(otlp_identify(&who, NULL, "1", &why));
    assert_string_equal(resource_text(&who, "service.name"), "b");
    assert_string_equal(resource_text(&who, "host.id"), "");
    otlp_identity_free(&who);
    setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,nonsense", 1);
    assert_int_equal(otlp_identify(&who, NULL, "1", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "'nonsense'");
    struct str many = { 0 };
    for (int i = 0; i < 100; i++) str_printf(&many, "a%d=1,", i);
    setenv("OTEL_RESOURCE_ATTRIBUTES", str_text(&many), 1);
    assert_int_equal(otlp_identify(&who, &m, "1", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "too many");
    str_free(&many);
}

static void readings_collect(void *ctx, const struct family_sink *to)
{
    readings_export(ctx, to);
}

static void readings_are_sent(void **state)
{
    (void)state;
    static struct collector c;
    struct err why = { 0 };
    struct otlp_target t;
    char base[64];
    struct readings r = some_readings();
    const struct otlp_live live = { .machine = r.machine, .collect = readings_collect, .ctx = &r };
    c = (struct collector){ 0 };
    collector_start(&c, (const char *const[]){ COLLECTOR_OK, NULL });
    snprintf(base, sizeof base, "http://127.0.0.1:%d", c.port);
    CHECK_OK(otlp_target_find(&t, OTLP_METRICS, base, NULL, &why));
    CHECK_OK(otlp_metrics_send(&t, &live, NULL, &why));
    collector_stop(&c);
    CHECK(str_starts(c.request[0], "POST /v1/metrics HTTP/1.1\r\n"));
    CHECK(memmem(c.request[0], c.n_request[0], "hw.gpu.utilization", 18));
    otlp_target_done(&t);
}

int main(void)
{
#define E(test) cmocka_unit_test_setup_teardown(test, forget_environment, forget_environment)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_conventions),
        cmocka_unit_test(every_family_becomes_a_metric),
        cmocka_unit_test(histograms_keep_their_buckets),
        E(others_read_them),
        E(who_speaks),
        E(readings_are_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
