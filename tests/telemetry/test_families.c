/* Proves: every exported name passes the rules of Prometheus' linter, has the right type and unit, and
 * occurs once; every sensor has a family; a page of a machine with all hardware is valid and contains each
 * sample once; unknown values are absent; docs/metrics.md contains this table. */
#include "tests/telemetry/roots.h"

#include <math.h>

#include "telemetry/export/export.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

static bool ends_in_unit(const char *name, const char *unit)
{
    static const struct {
        const char *unit, *ending;
    } ENDINGS[] = { { "bytes", "_bytes" },
                    { "seconds", "_seconds" },
                    { "ratio", "_ratio" },
                    { "celsius", "_celsius" },
                    { "hertz", "_hertz" },
                    { "watts", "_watts" },
                    { "1/s", "_per_second" },
                    { "bytes/s", "_bytes_per_second" },
                    { "tokens/s", "_tokens_per_second" } };
    char text[128];
    snprintf(text, sizeof text, "%s", name);
    if (str_ends(text, "_total")) text[strlen(text) - strlen("_total")] = '\0';
    for (size_t i = 0; i < COUNT_OF(ENDINGS); i++)
        if (!strcmp(ENDINGS[i].unit, unit)) return str_ends(text, ENDINGS[i].ending);
    const bool inside = !strcmp(unit, "joules") || !strcmp(unit, "grams"); /* joules_per_token */
    return inside ? strstr(text, unit) != NULL : !*unit;
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILY_COUNT; f++) {
        const struct family *row = &FAMILIES[f];
        const int sensor = f - (int)FAMILY_SENSOR_FIRST;
        const bool is_sensor = sensor >= 0 && sensor < METRIC_SENSOR_COUNT;
        if (!row->name) {
            /* GPUs are exported device by device; all other sensors have a family */
            CHECK(is_sensor);
            CHECK(str_starts(METRICS[sensor].name, "gpu_"));
            continue;
        }
        const bool total = str_ends(row->name, "_total");
        const char *unit = family_unit((enum family_id)f);
        if (!(str_starts(row->name, "qdyno_") || str_starts(row->name, "process_")) || !row->labels ||
            !family_help((enum family_id)f) || !*family_help((enum family_id)f) || !unit ||
            strlen(row->name) > 100)
            fail_msg("row %d (%s) is not complete", f, row->name);
        if (total != (row->type == FAMILY_COUNTER))
            fail_msg("%s: _total is for counters, and only for them", row->name);
        if ((row->edges != NULL) != (row->type == FAMILY_HISTOGRAM))
            fail_msg("%s: edges are for histograms", row->name);
        if (!ends_in_unit(row->name, unit)) fail_msg("%s does not end in its unit, %s", row->name, unit);
        for (int k = 0; k < f; k++)
            if (FAMILIES[k].name && !strcmp(FAMILIES[k].name, row->name))
                fail_msg("%s occurs twice", row->name);
    }
}

/* A sensor's family has the name of its metric, with Prometheus' spelling of rates. */
static void sensors_keep_their_names(void **state)
{
    (void)state;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
        const char *name = FAMILIES[family_of_sensor((enum metric_id)i)].name;
        char want[96];
        snprintf(want, sizeof want, "qdyno_%s", METRICS[i].name);
        if (str_ends(METRICS[i].unit, "/s")) {
            CHECK(str_ends(want, "_s"));
            memcpy(want + strlen(want) - 1, "per_second", sizeof "per_second");
        }
        if (!str_starts(METRICS[i].name, "gpu_") && (!name || strcmp(name, want) != 0))
            fail_msg("sensor %s: the family is '%s', expected '%s' in FAMILIES", METRICS[i].name,
                     name ? name : "none", want);
    }
}

static void edges_rise(void **state)
{
    static const struct histogram_edges *const ALL[] = { &EDGES_FIRST_TOKEN, &EDGES_TOKEN, &EDGES_REQUEST };
    /* the standard bounds, which must be among ours so that quantiles are comparable */
    static const double OTEL_TTFT[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                        0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10 },
                        VLLM_ITL[] = { 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                       0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80 },
                        OTEL_DURATION[] = { 0.01, 0.02, 0.04, 0.08,  0.16,  0.32,  0.64,
                                            1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92 };
    static const struct {
        const double *edge;
        size_t n;
    } STOCK[] = { { OTEL_TTFT, COUNT_OF(OTEL_TTFT) },
                  { VLLM_ITL, COUNT_OF(VLLM_ITL) },
                  { OTEL_DURATION, COUNT_OF(OTEL_DURATION) } };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ALL); i++) {
        CHECK_LT(10, ALL[i]->n);
        CHECK_LE(ALL[i]->n, HISTOGRAM_EDGES);
        CHECK_EQ(ALL[i]->edge[0], 0.0005);
        for (int k = 1; k < ALL[i]->n; k++) CHECK_LT(ALL[i]->edge[k - 1], ALL[i]->edge[k]);
        for (size_t k = 0; k < STOCK[i].n; k++) {
            bool there = false;
            for (int e = 0; e < ALL[i]->n; e++) there |= ALL[i]->edge[e] == STOCK[i].edge[k];
            if (!there) fail_msg("set %zu lacks the stock edge %g", i, STOCK[i].edge[k]);
        }
    }
}

/* ---------------------------------------------------------------- a page */

static struct gpu_reading full_gpu(int index)
{
    struct gpu_reading g = { .index = index, .processes = 2, .throttle_known = true };
    snprintf(g.vendor, sizeof g.vendor, "nvidia");
    snprintf(g.name, sizeof g.name, "Fake \"GPU\" %d", index);
    snprintf(g.uuid, sizeof g.uuid, "GPU-%d", index);
    g.busy_ratio = g.memory_busy_ratio = g.fan_ratio = 0.5;
    g.mem_used_bytes = 1e9;
    g.mem_total_bytes = 2e9;
    g.power_watts = g.power_instant_watts = g.power_limit_watts = 300;
    g.energy_joules = 1234.5;
    g.temperature_celsius = g.hotspot_temperature_celsius = g.memory_temperature_celsius = 60 + index;
    g.core_hertz = g.memory_hertz = 1.5e9;
    g.pcie_rx_bytes_s = g.pcie_tx_bytes_s = 1e6;
    g.ecc_corrected = 3;
    g.throttle_seconds[0] = 1.5;
    return g;
}

static void fill(struct readings *r, const struct machine *m)
{
    memset(r, 0, sizeof *r);
    r->machine = m;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) r->row[i] = 0.25;
    r->gpus = 2;
    for (int i = 0; i < r->gpus; i++) r->gpu[i] = full_gpu(i);
    r->energies = 2;
    snprintf(r->energy[0].domain, sizeof r->energy[0].domain, "package-0");
    snprintf(r->energy[1].domain, sizeof r->energy[1].domain, "package-0-dram");
    r->energy[0].joules = 100;
    r->energy[1].joules = 10;
    r->sampler_cost_ratio = 0.002;
    process_read(&r->process, 0);
}

static void a_full_page(void **state)
{
    static struct readings r; /* large */
    struct machine m = { .gpus = 0 };
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    (void)state;
    snprintf(m.host, sizeof m.host, "here");
    fill(&r, &m);
    readings_export(&r, &to);
    if (e.bad.code) fail_msg("%s", e.bad.message);
    const char *page = str_text(&e.text);
    CHECK_CONTAINS(page, "\nqdyno_gpu_temperature_celsius{device=\"1\",sensor=\"hotspot\"} 61\n");
    CHECK_CONTAINS(page, "\nqdyno_gpu_throttle_seconds_total{device=\"0\",reason=\"power_cap\"} 1.5\n");
    CHECK_LACKS(page, "reason=\"idle\""); /* that is no throttling */
    CHECK_CONTAINS(page, "\nqdyno_gpu_ecc_errors_total{device=\"0\",kind=\"corrected\"} 3\n");
    CHECK_CONTAINS(
        page,
        "\nqdyno_gpu_info{device=\"0\",vendor=\"nvidia\",name=\"Fake \\\"GPU\\\" 0\",uuid=\"GPU-0\",bus=\"\"} 1\n");
    CHECK_CONTAINS(page, "\nqdyno_cpu_energy_joules_total{domain=\"package-0-dram\"} 10\n");
    CHECK_CONTAINS(page, "\nqdyno_host_info{host=\"here\",");
    for (int f = FAMILY_HOST_INFO; f < FAMILY_DATABASE_UP; f++) { /* all families of a machine occur */
        char line[128];
        snprintf(line, sizeof line, "# TYPE %s ", FAMILIES[f].name ? FAMILIES[f].name : "");
        if (FAMILIES[f].name && f != FAMILY_MODEL_INFO && !strstr(page, line))
            fail_msg("no %s", FAMILIES[f].name);
    }
    if (system("command -v promtool >/dev/null 2>&1")) {
        print_message("SKIPPED: promtool (Debian package prometheus) is not installed\n");
    } else {
        FILE *p = popen("promtool check metrics", "w");
        assert_non_null(p);
        fputs(page, p);
        assert_int_equal(pclose(p), 0);
    }
    exposition_free(&e);
}

static void the_unknown_is_not_said(void **state)
{
    static struct readings r;
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    (void)state;
    memset(&r, 0, sizeof r);
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) r.row[i] = NAN;
    r.row[METRIC_MEM_USED] = 5;
    r.sampler_cost_ratio = r.sampler_missed_ticks = NAN;
    process_read(&r.process, 0x7ffffff0); /* no such process */
    CHECK_NAN(r.process.cpu_seconds);
    CHECK_NAN(r.process.open_fds);
    readings_export(&r, &to);
    assert_string_equal(str_text(&e.text),
                        "# HELP qdyno_mem_used_bytes memory not available to a new program\n"
                        "# TYPE qdyno_mem_used_bytes gauge\nqdyno_mem_used_bytes 5\n");
    exposition_free(&e);
    process_read(&r.process, 0); /* us */
    CHECK_LT(1e6, r.process.resident_bytes);
    CHECK_LE(3, r.process.open_fds);
    CHECK_EQ(r.process.threads, 1);
    CHECK_LE(0, r.process.cpu_seconds);
    CHECK_NEAR(r.process.start_time_seconds, (double)clock_unix_ms() * 1e-3, 300);
}

/* ---------------------------------------------------------------- the page of names */

static void append_words(struct str *s, const char *words)
{
    const char *comma = "";
    while (*words) {
        const size_t n = strcspn(words, " ");
        str_printf(s, "%s`%.*s`", comma, (int)n, words);
        comma = ", ";
        words += n + (words[n] == ' ');
    }
}

static void append_alias(struct str *s, const char *who, const char *name)
{
    if (name) str_printf(s, "%s%s `%s`", str_ends(str_text(s), "| ") ? "" : "; ", who, name);
}

static void append_row(struct str *s, enum family_id f)
{
    const struct family *row = &FAMILIES[f];
    str_printf(s, "| `%s` | %s | ", row->name, FAMILY_TYPE_NAMES[row->type]);
    append_words(s, row->labels);
    str_printf(s, " | %s | ", family_help(f));
    append_alias(s, "OpenTelemetry", row->otel);
    append_alias(s, "vLLM", row->vllm);
    append_alias(s, "llama-server", row->llama_server);
    append_alias(s, "DCGM", row->dcgm);
    str_append(s, " |\n");
}

static void docs_hold_the_table(void **state)
{
    static const char RIGHT[] = TEST_BUILD_DIR "/metrics-table.md";
    struct err why;
    struct str want = { 0 };
    char *page;
    (void)state;
    for (int section = 0; section < FAMILY_SECTIONS; section++) {
        str_printf(&want, "### %s\n\n| name | type | labels | meaning | elsewhere |\n|---|---|---|---|---|\n",
                   FAMILY_SECTION_TITLES[section]);
        for (int f = 0; f < FAMILY_COUNT; f++)
            if (FAMILIES[f].name && FAMILIES[f].section == (enum family_section)section)
                append_row(&want, (enum family_id)f);
        str_append(&want, "\n");
    }
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/metrics.md", 1 << 20, &why));
    if (!strstr(page, str_text(&want))) {
        FILE *f = fopen(RIGHT, "w");
        if (f) {
            fputs(str_text(&want), f);
            fclose(f);
        }
        fail_msg("the tables in docs/metrics.md are not FAMILIES; the right ones are in %s", RIGHT);
    }
    free(page);
    str_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(sensors_keep_their_names),
        cmocka_unit_test(edges_rise),
        cmocka_unit_test(a_full_page),
        cmocka_unit_test(the_unknown_is_not_said),
        cmocka_unit_test(docs_hold_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
