/* advisor/watch/alert_prometheus.c - writes ALERTS as a Prometheus rule file.
 *
 * Prometheus has no hysteresis: the rules emulate it with an expression that stays true while the alert fires
 * and the value is past `clear`. keep_s becomes keep_firing_for. The machine's own watch knows more (its own
 * load, usual values) and needs no server; these rules cover many machines and detect one that is gone. */
#include "advisor/watch/watch.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define MEMORY_RATIO     "instance:qdyno_memory_used:ratio"
#define GPU_MEMORY_RATIO "instance_device:qdyno_gpu_memory_used:ratio"
#define DECODE_RATE      "instance_model_workload:qdyno_decode_tokens:rate1h"
#define PREFILL_RATE     "instance_model_workload:qdyno_prefill_tokens:rate1h"

static const struct record {
    const char *name, *expression;
} RECORDS[] = {
    /* the larger share of the two limits, the machine's and its control group's */
    { MEMORY_RATIO, "qdyno_cgroup_mem_used_bytes / qdyno_cgroup_mem_limit_bytes\n"
                    "  > qdyno_mem_used_bytes / (qdyno_mem_used_bytes + qdyno_mem_available_bytes)\n"
                    "or qdyno_mem_used_bytes / (qdyno_mem_used_bytes + qdyno_mem_available_bytes)" },
    { GPU_MEMORY_RATIO, "qdyno_gpu_memory_used_bytes / qdyno_gpu_memory_total_bytes" },
    /* tokens per second of processing time, not of wall time */
    { DECODE_RATE, "rate(qdyno_generated_tokens_total[1h]) / (rate(qdyno_generate_seconds_total[1h]) > 0)" },
    { PREFILL_RATE, "rate(qdyno_prompt_tokens_total[1h]) / (rate(qdyno_prompt_seconds_total[1h]) > 0)" },
};

const char *recorded_name(int index)
{
    return index >= 0 && index < (int)COUNT_OF(RECORDS) ? RECORDS[index].name : NULL;
}

/* Throttle reasons that the machine's owner can remedy; a test compares them with GPU_THROTTLES. */
#define HELD_REASONS "thermal|hw_thermal|hw_slowdown|power_brake|current|reliability|sync_boost|other"

static const char *const EXPRESSIONS[SIGNAL_COUNT] = {
    [SIGNAL_PERFORMANCE] = "1 - qdyno_watch_performance_ratio",
    [SIGNAL_ERRORS] = "qdyno_watch_errors_ratio",
    [SIGNAL_CANARY] = "1 - qdyno_watch_canary_ratio",
    [SIGNAL_QUALITY] = "qdyno_watch_kl_divergence_nats",
    [SIGNAL_BUSY] = "avg_over_time(qdyno_cpu_busy_ratio[1m])",
    [SIGNAL_MEMORY] = MEMORY_RATIO,
    [SIGNAL_SWAP_USED] = "qdyno_swap_used_bytes",
    [SIGNAL_SWAP_IN] = "avg_over_time(qdyno_swap_in_bytes_per_second[1m])",
    [SIGNAL_PSI_MEMORY] = "avg_over_time(qdyno_psi_memory_ratio[1m])",
    [SIGNAL_STEAL] = "avg_over_time(qdyno_cpu_steal_ratio[1m])",
    [SIGNAL_CPU_THROTTLE] = "max_over_time(qdyno_cpu_throttle_events_per_second[1m])",
    [SIGNAL_CPU_TEMPERATURE] = "qdyno_cpu_temperature_celsius",
    [SIGNAL_BATTERY] = "qdyno_on_battery",
    [SIGNAL_GPU_BUSY] = "avg_over_time(qdyno_gpu_utilization_ratio[1m])",
    [SIGNAL_GPU_MEMORY] = GPU_MEMORY_RATIO,
    [SIGNAL_GPU_THROTTLE] =
        "max without (reason) (rate(qdyno_gpu_throttle_seconds_total{reason=~\"" HELD_REASONS "\"}[2m]))",
    [SIGNAL_GPU_POWER_CAP] =
        "max without (reason) (rate(qdyno_gpu_throttle_seconds_total{reason=\"power_cap\"}[2m]))",
    [SIGNAL_GPU_TEMPERATURE] = "qdyno_gpu_temperature_celsius{sensor=\"gpu\"}",
    [SIGNAL_GPU_ECC] = "qdyno_gpu_ecc_errors_total{kind=\"uncorrected\"}",
    [SIGNAL_GPU_LOST] = "qdyno_gpu_lost",
    [SIGNAL_DISK] = "qdyno_watch_disk_available_bytes",
    [SIGNAL_STALE] = "time() - qdyno_watch_last_success_timestamp_seconds",
    [SIGNAL_SERVE_WAITING] = "qdyno_serve_requests_waiting",
    [SIGNAL_BLIND] = NULL, /* unknown values are not exported: see `up` and absent() */
};

const char *signal_promql(enum signal_id s)
{
    return EXPRESSIONS[s];
}

const char *alert_prometheus_name(const struct alert *a, char *buf, size_t size)
{
    size_t n = (size_t)snprintf(buf, size, "Qdyno");
    bool upper = true;
    for (const char *c = a->name; *c && n + 1 < size; c++) {
        if (*c == '_') {
            upper = true;
            continue;
        }
        buf[n++] = upper ? (char)toupper((unsigned char)*c) : *c;
        upper = false;
    }
    buf[MIN(n, size - 1)] = '\0';
    return buf;
}

/* ---------------------------------------------------------------- YAML */

/* Append a YAML double-quoted scalar. */
static void yaml_quoted(struct str *out, const char *text)
{
    str_append(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') str_append(out, "\\");
        str_append_n(out, text, 1);
    }
    str_append(out, "\"");
}

/* Append a YAML block scalar, every line indented. */
static void yaml_block(struct str *out, const char *indent, const char *text)
{
    while (*text) {
        const size_t n = strcspn(text, "\n");
        str_printf(out, "%s%.*s\n", indent, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void yaml_duration(struct str *out, const char *key, double seconds)
{
    if (!(seconds > 0)) return;
    if (fmod(seconds, 60) == 0)
        str_printf(out, "        %s: %.0fm\n", key, seconds / 60);
    else
        str_printf(out, "        %s: %.0fs\n", key, ceil(seconds));
}

/* A value of that unit in Prometheus' template language. */
static const char *value_template(enum alert_unit unit)
{
    switch (unit) {
    case ALERT_UNIT_RATIO: return "{{ $value | humanizePercentage }}";
    case ALERT_UNIT_BYTES: return "{{ $value | humanize1024 }}B";
    case ALERT_UNIT_BYTES_S: return "{{ $value | humanize1024 }}B/s";
    case ALERT_UNIT_SECONDS: return "{{ $value | humanizeDuration }}";
    case ALERT_UNIT_CELSIUS: return "{{ $value | humanize }} C";
    case ALERT_UNIT_PER_SECOND: return "{{ $value | humanize }} times a second";
    case ALERT_UNIT_NATS: return "{{ $value | humanize }} nats";
    default: return "{{ $value | humanize }}";
    }
}

static void yaml_summary(struct str *out, const struct signal *s)
{
    static const char *const WHOM[] = {
        [SUBJECT_MACHINE] = "{{ $labels.instance }}: ",
        [SUBJECT_WORKLOAD] = "{{ $labels.instance }}, {{ $labels.subject }}: ",
        [SUBJECT_GPU] = "{{ $labels.instance }}, GPU {{ $labels.device }}: ",
        [SUBJECT_SIGNAL] = ""
    };
    struct str text = { 0 };
    const char *at = strstr(s->phrase, "%s");
    str_append(&text, WHOM[s->subject]);
    if (at)
        str_printf(&text, "%.*s%s%s", (int)(at - s->phrase), s->phrase, value_template(s->unit), at + 2);
    else
        str_append(&text, s->phrase);
    yaml_quoted(out, str_text(&text));
    str_free(&text);
}

static void yaml_expression(struct str *out, const struct alert *a, const char *name)
{
    char limit[32], clear[32];
    const char *e = EXPRESSIONS[a->signal], *than = a->side == SIDE_ABOVE ? ">" : "<";
    str_from_double(a->threshold, limit, sizeof limit);
    str_from_double(a->clear, clear, sizeof clear);
    str_append(out, "        expr: |-\n");
    str_printf(out, "          %s %s %s\n", e, than, limit);
    if (a->clear == a->threshold) return;
    str_printf(out, "          or (%s %s %s\n", e, than, clear);
    str_printf(out,
               "              and ignoring (alertname, alertstate, severity) ALERTS{alertname=\"%s\", "
               "alertstate=\"firing\"})\n",
               name);
}

static void alerting_rule(struct str *out, const struct alert *a)
{
    char name[64];
    alert_prometheus_name(a, name, sizeof name);
    str_printf(out, "      - alert: %s\n", name);
    yaml_expression(out, a, name);
    yaml_duration(out, "for", a->for_s);
    yaml_duration(out, "keep_firing_for", a->keep_s);
    str_printf(out, "        labels:\n          severity: %s\n        annotations:\n          summary: ",
               GRADES[a->grade]);
    yaml_summary(out, &SIGNALS[a->signal]);
    str_append(out, "\n          description: ");
    yaml_quoted(out, a->meaning);
    str_append(out, "\n          todo: ");
    yaml_quoted(out, a->todo);
    str_append(out, "\n");
}

/* A single group: Prometheus evaluates its rules in order, so alerts see the values recorded just before. */
void alert_rules_write(struct str *out, const struct alert_rules *r)
{
    str_append(
        out,
        "# Written by `qdyno watch --print-rules` from its table of alerts. To change a threshold, write it\n"
        "# anew with --alert NAME=LIMIT[:FOR]; `qdyno watch --print-alerts` lists the names.\n"
        "groups:\n"
        "  - name: qdyno\n"
        "    rules:\n");
    for (size_t i = 0; i < COUNT_OF(RECORDS); i++) {
        str_printf(out, "      - record: %s\n        expr: |-\n", RECORDS[i].name);
        yaml_block(out, "          ", RECORDS[i].expression);
    }
    for (int i = 0; i < ALERT_COUNT; i++)
        if (!r->off[i] && EXPRESSIONS[r->row[i].signal]) alerting_rule(out, &r->row[i]);
}
