/* advisor/watch/alert_prometheus.c - writes ALERTS as a Prometheus rule file, and reads the Grafana board
 * that ships.
 *
 * Prometheus has no hysteresis: the rules emulate it with an expression that stays true while the alert fires
 * and the value is past `clear`. keep_s becomes keep_firing_for. The machine's own watch knows more (its own
 * load, usual values) and needs no server; these rules cover many machines and detect one that is gone. */
#include "advisor/watch/watch.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct record {
    const char *name, *expression;
} RECORDS[] = {
    /* the larger share of the two limits, the machine's and its control group's */
    { "instance:qdyno_memory_used:ratio",
      "qdyno_cgroup_mem_used_bytes / qdyno_cgroup_mem_limit_bytes\n"
      "  > qdyno_mem_used_bytes / (qdyno_mem_used_bytes + qdyno_mem_available_bytes)\n"
      "or qdyno_mem_used_bytes / (qdyno_mem_used_bytes + qdyno_mem_available_bytes)" },
    { "instance_device:qdyno_gpu_memory_used:ratio",
      "qdyno_gpu_memory_used_bytes / qdyno_gpu_memory_total_bytes" },
    /* tokens per second of processing time, not of wall time */
    { "instance_model_workload:qdyno_decode_tokens:rate1h",
      "rate(qdyno_generated_tokens_total[1h]) / (rate(qdyno_generate_seconds_total[1h]) > 0)" },
    { "instance_model_workload:qdyno_prefill_tokens:rate1h",
      "rate(qdyno_prompt_tokens_total[1h]) / (rate(qdyno_prompt_seconds_total[1h]) > 0)" },
};

const char *recorded_name(int index)
{
    return index >= 0 && index < (int)COUNT_OF(RECORDS) ? RECORDS[index].name : NULL;
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
    const char *e = SIGNALS[a->signal].promql, *than = a->side == SIDE_ABOVE ? ">" : "<";
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
        if (!r->off[i] && SIGNALS[r->row[i].signal].promql) alerting_rule(out, &r->row[i]);
}

enum err_code board_write(struct str *out, struct err *why)
{
    enum { BOARD_LIMIT = 1 << 20 };
    char *path = NULL, *text = NULL;
    enum err_code rc = file_share(&path, "monitoring/grafana-qdyno.json", why);
    if (!rc) rc = file_read(&text, NULL, path, BOARD_LIMIT, why);
    if (!rc) str_append(out, text);
    free(text);
    free(path);
    return !rc && out->failed ? err_set(why, ERR_NOMEM, "out of memory for a board") : rc;
}
