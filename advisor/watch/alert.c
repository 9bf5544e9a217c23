/* advisor/watch/alert.c - the tables of watch.h, and the user's changes to them.
 *
 * The thresholds follow common practice (20 % below the baseline, 80 % busy, 5 % errors, 90 % of memory);
 * each can be set. `for_s` is long where a short peak is harmless (a busy CPU) and zero where one event is
 * enough (a memory error). `clear` is far enough from the threshold that a value that fluctuates around it
 * raises one alert, not twenty. */
#include "advisor/watch/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SENSOR_S = 60 }; /* a longer gap between two values counts as unobserved */

/* Throttle reasons that the machine's owner can remedy; a test compares them with GPU_THROTTLES. */
#define HELD_REASONS "thermal|hw_thermal|hw_slowdown|power_brake|current|reliability|sync_boost|other"

/* clang-format off */
#define SIGNAL(ID, NAME, UNIT, SUBJECT, STANDS_S, PHRASE, PROMQL) \
    [SIGNAL_##ID] = { NAME, ALERT_UNIT_##UNIT, SUBJECT_##SUBJECT, STANDS_S, PHRASE, PROMQL }
const struct signal SIGNALS[SIGNAL_COUNT] = {
    SIGNAL(PERFORMANCE, "performance", RATIO, WORKLOAD, INFINITY, "performance is %s below its baseline", "1 - qdyno_watch_performance_ratio"),
    SIGNAL(ERRORS, "errors", RATIO, MACHINE, INFINITY, "%s of the last measurements failed", "qdyno_watch_errors_ratio"),
    SIGNAL(CANARY, "canary", RATIO, MACHINE, INFINITY, "the canary, a fixed reference workload, runs %s slower than usual", "1 - qdyno_watch_canary_ratio"),
    SIGNAL(QUALITY, "quality", NATS, WORKLOAD, INFINITY, "KL divergence from the reference is %s", "qdyno_watch_kl_divergence_nats"),
    SIGNAL(BUSY, "busy", RATIO, MACHINE, SENSOR_S, "the CPUs are %s busy", "avg_over_time(qdyno_cpu_busy_ratio[1m])"),
    SIGNAL(MEMORY, "memory", RATIO, MACHINE, SENSOR_S, "%s of memory is in use", "instance:qdyno_memory_used:ratio"),
    SIGNAL(SWAP_USED, "swap_used", BYTES, MACHINE, SENSOR_S, "%s of swap is in use", "qdyno_swap_used_bytes"),
    SIGNAL(SWAP_IN, "swap_in", BYTES_S, MACHINE, SENSOR_S, "%s are read back from swap", "avg_over_time(qdyno_swap_in_bytes_per_second[1m])"),
    SIGNAL(PSI_MEMORY, "psi_memory", RATIO, MACHINE, SENSOR_S, "programs wait for memory %s of the time", "avg_over_time(qdyno_psi_memory_ratio[1m])"),
    SIGNAL(STEAL, "steal", RATIO, MACHINE, SENSOR_S, "the hypervisor takes %s of CPU time", "avg_over_time(qdyno_cpu_steal_ratio[1m])"),
    SIGNAL(CPU_THROTTLE, "cpu_throttle", PER_SECOND, MACHINE, SENSOR_S, "a CPU is throttled because of heat %s",
           "max_over_time(qdyno_cpu_throttle_events_per_second[1m])"),
    SIGNAL(CPU_TEMPERATURE, "cpu_temperature", CELSIUS, MACHINE, SENSOR_S, "the hottest CPU is at %s", "qdyno_cpu_temperature_celsius"),
    SIGNAL(BATTERY, "battery", YES, MACHINE, SENSOR_S, "the machine runs on battery", "qdyno_on_battery"),
    SIGNAL(GPU_BUSY, "gpu_busy", RATIO, GPU, SENSOR_S, "the GPU is %s busy", "avg_over_time(qdyno_gpu_utilization_ratio[1m])"),
    SIGNAL(GPU_MEMORY, "gpu_memory", RATIO, GPU, SENSOR_S, "%s of the GPU's memory is in use", "instance_device:qdyno_gpu_memory_used:ratio"),
    SIGNAL(GPU_THROTTLE, "gpu_throttle", YES, GPU, SENSOR_S, "the GPU's clocks are reduced by heat or power supply",
           "max without (reason) (rate(qdyno_gpu_throttle_seconds_total{reason=~\"" HELD_REASONS "\"}[2m]))"),
    SIGNAL(GPU_POWER_CAP, "gpu_power_cap", YES, GPU, SENSOR_S, "the GPU's clocks are reduced by its power limit",
           "max without (reason) (rate(qdyno_gpu_throttle_seconds_total{reason=\"power_cap\"}[2m]))"),
    SIGNAL(GPU_TEMPERATURE, "gpu_temperature", CELSIUS, GPU, SENSOR_S, "the GPU is at %s", "qdyno_gpu_temperature_celsius{sensor=\"gpu\"}"),
    SIGNAL(GPU_ECC, "gpu_ecc", COUNT, GPU, SENSOR_S, "%s uncorrected memory errors since the driver was loaded",
           "qdyno_gpu_ecc_errors_total{kind=\"uncorrected\"}"),
    SIGNAL(GPU_LOST, "gpu_lost", YES, GPU, SENSOR_S, "the GPU does not respond", "qdyno_gpu_lost"),
    SIGNAL(DISK, "disk", BYTES, MACHINE, SENSOR_S, "%s are free on the database's file system", "qdyno_watch_disk_available_bytes"),
    SIGNAL(STALE, "stale", SECONDS, MACHINE, SENSOR_S, "no measurement succeeded for %s", "time() - qdyno_watch_last_success_timestamp_seconds"),
    /* unknown values are not exported: see `up` and absent() */
    SIGNAL(BLIND, "blind", SECONDS, SIGNAL, SENSOR_S, "has had no value for %s", NULL),
    SIGNAL(SERVE_WAITING, "serve_waiting", COUNT, MACHINE, SENSOR_S, "%s requests wait at qdyno serve", "qdyno_serve_requests_waiting"),
};
/* clang-format on */

const char *const GRADES[] = { "info", "warning", "critical", NULL };

enum {
    ACTIONS_INFO = ACTION_REPORT,
    ACTIONS_WARNING = ACTION_REPORT | ACTION_NOTIFY,
    ACTIONS_CRITICAL = ACTION_REPORT | ACTION_NOTIFY | ACTION_BELL,
};

/* clang-format off */
/* Name, signal, bad side, threshold, clear, for_s, keep_s, grade, actions beside those of the grade; meaning and what to do. */
#define ALERT(NAME, SIGNAL, SIDE, THRESHOLD, CLEAR, FOR_S, KEEP_S, GRADE, ACTIONS, MEANING, REMEDY) \
    { NAME, SIGNAL_##SIGNAL, SIDE_##SIDE, THRESHOLD, CLEAR, FOR_S, KEEP_S, GRADE_##GRADE, ACTIONS_##GRADE | (ACTIONS), MEANING, REMEDY }
const struct alert ALERTS[ALERT_COUNT] = {
    ALERT("performance", PERFORMANCE, ABOVE, 0.20, 0.15, 0, 0, WARNING, ACTION_ROLL_BACK, "A watched workload runs slower than its baseline.",
          "If the canary is slower too, the machine changed: see that alert. Else the model, its configuration or qdyno did: qdyno history --detect says "
          "since when and what changed then; qdyno baseline check measures both now."),
    ALERT("performance_critical", PERFORMANCE, ABOVE, 0.50, 0.40, 0, 0, CRITICAL, ACTION_ROLL_BACK,
          "A watched workload runs at half its baseline or less.", "As for performance, now: look for throttling, swapping and other programs first."),
    ALERT("errors", ERRORS, ABOVE, 0.05, 0.02, 0, 0, WARNING, 0, "Measurements fail: the model cannot be loaded, or its process dies.",
          "The watch's log has each reason. qdyno doctor checks what is installed; qdyno fit whether memory is enough."),
    ALERT("canary", CANARY, ABOVE, 0.10, 0.05, 0, 0, WARNING, 0,
          "The canary, a fixed reference workload, is slower than usual: the machine changed, not the model.",
          "Look for throttling, steal, a changed governor, kernel or microcode (qdyno history --detect names them), and for other programs."),
    ALERT("quality", QUALITY, ABOVE, 0.05, 0.04, 0, 0, WARNING, 0, "The KL divergence of a configuration from its reference exceeds the limit.",
          "qdyno eval --ref says by how much and where; qdyno methods lists gentler ways to quantize."),
    ALERT("busy", BUSY, ABOVE, 0.80, 0.70, 300, 60, WARNING, ACTION_SUGGEST, "The CPUs have little time left, whichever program uses it.",
          "End programs that need not run now. If this machine serves requests, they wait longer: add a machine or ranks, or take a faster configuration "
          "(qdyno advise). The watch postpones its measurements meanwhile (--even-if-busy: it does not)."),
    ALERT("memory", MEMORY, ABOVE, 0.90, 0.85, 30, 10, WARNING, 0, "Little memory is left; a control group's limit counts where there is one.",
          "qdyno fit says what a model takes; shorten the context, quantize the KV cache (kv=q8_0), or end other programs."),
    ALERT("memory_critical", MEMORY, ABOVE, 0.97, 0.93, 10, 10, CRITICAL, 0,
          "Almost no memory is left: the kernel will soon swap, or kill a program.", "End unneeded programs now; then as for memory."),
    ALERT("swap_used", SWAP_USED, ABOVE, 64 << 20, 32 << 20, 600, 60, INFO, 0,
          "Part of a program's memory is on disk.", "Harmless while it is not used; if it holds a model's weights, the first tokens are slow."),
    ALERT("swap_in", SWAP_IN, ABOVE, 1 << 20, 1 << 17, 10, 30, WARNING, 0,
          "Programs wait for their memory to come back from disk.", "Speeds measured now mean nothing. Free memory: see the alert memory."),
    ALERT("psi_memory", PSI_MEMORY, ABOVE, 0.10, 0.05, 30, 30, WARNING, 0,
          "Programs wait for memory to be freed (pressure stall information).", "Free memory: see the alert memory."),
    ALERT("steal", STEAL, ABOVE, 0.05, 0.02, 60, 60, WARNING, 0,
          "This virtual machine does not get all of its CPU time.", "Ask the host's operator; disturbed blocks are discarded, and rounds take longer."),
    ALERT("cpu_throttle", CPU_THROTTLE, ABOVE, 0, 0, 10, 60, WARNING, 0,
          "CPUs reduce their clocks because they are too hot.", "Cooling: fans, dust, room. Fewer threads may be faster than throttled ones."),
    ALERT("cpu_temperature", CPU_TEMPERATURE, ABOVE, 90, 85, 30, 30, WARNING, 0,
          "A CPU is close to its throttling temperature.", "Cooling: fans, dust, room."),
    ALERT("battery", BATTERY, ABOVE, 0.5, 0.5, 5, 5, INFO, 0,
          "Laptops run slower on battery, so speeds do not compare.", "Plug it in before measuring."),
    ALERT("gpu_busy", GPU_BUSY, ABOVE, 0.80, 0.70, 300, 60, WARNING, ACTION_SUGGEST,
          "A GPU has little time left.", "End programs that need not use it now. If it serves requests, they wait longer: add a GPU or ranks."),
    ALERT("gpu_memory", GPU_MEMORY, ABOVE, 0.90, 0.85, 30, 10, WARNING, 0,
          "Little of a GPU's memory is left.", "Shorten the context, quantize weights or KV cache, or spread over GPUs."),
    ALERT("gpu_memory_critical", GPU_MEMORY, ABOVE, 0.97, 0.93, 10, 10, CRITICAL, 0,
          "Almost no GPU memory is left: the next allocation may fail.", "As for gpu_memory, now."),
    ALERT("gpu_throttle", GPU_THROTTLE, ABOVE, 0.5, 0.5, 30, 60, WARNING, 0, "A GPU reduces its clocks because of heat, current or power supply.",
          "qdyno telemetry names the reason. Heat: cooling; a power brake: the server's supply."),
    ALERT("gpu_power_cap", GPU_POWER_CAP, ABOVE, 0.5, 0.5, 300, 60, INFO, 0, "A higher power limit would make the GPU faster: normal under full load.",
          "Raise the limit if its board and supply allow (nvidia-smi -pl); or leave it: energy per token is lower so."),
    ALERT("gpu_temperature", GPU_TEMPERATURE, ABOVE, 85, 80, 30, 30, WARNING, 0,
          "A GPU is close to its throttling temperature.", "Cooling: fans, dust, room."),
    ALERT("gpu_ecc", GPU_ECC, ABOVE, 0, 0, 0, 0, CRITICAL, 0,
          "A GPU's memory had uncorrectable errors: results may be wrong.", "Take work off this GPU and reset it; if it comes again, replace it."),
    ALERT("gpu_lost", GPU_LOST, ABOVE, 0.5, 0.5, 5, 5, CRITICAL, 0,
          "A GPU fell off its bus.", "The kernel's log (dmesg) has the reason; a restart usually brings it back."),
    ALERT("disk", DISK, BELOW, 1 << 30, (1 << 30) + (1 << 28), 10, 10, WARNING, 0,
          "Little space is left on the disk of qdyno's database.", "Free some: quantized models of trials lie in the cache folder ($XDG_CACHE_HOME/qdyno)."),
    ALERT("disk_critical", DISK, BELOW, 100 << 20, 200 << 20, 0, 10, CRITICAL, 0,
          "The disk is almost full: measurements cannot be stored.", "Free some now; stored results are not lost."),
    ALERT("stale", STALE, ABOVE, 86400, 86400, 0, 0, WARNING, 0, "Nothing was measured for a long time, so nothing is known about speed.",
          "The watch's log says why: a machine that is always busy (--even-if-busy), or measurements that fail."),
    ALERT("blind", BLIND, ABOVE, 600, 60, 0, 0, INFO, 0, "A sensor stopped giving values; its alerts keep their state.",
          "qdyno doctor says what can be read here; drivers and permissions are the usual reasons."),
    ALERT("serve_processes", SERVE_WAITING, ABOVE, 1, 0, 5, 60, INFO, ACTION_SCALE, "Requests wait at qdyno serve: its processes do not keep up with them.",
          "qdyno serve --processes MIN..MAX starts and ends processes by itself, and records each change as an alert of this name; the watch does not observe "
          "servers."),
};
/* clang-format on */

const struct alert *alert_find(const char *name)
{
    for (int i = 0; i < ALERT_COUNT; i++)
        if (!strcmp(ALERTS[i].name, name)) return &ALERTS[i];
    return NULL;
}

/* ---------------------------------------------------------------- text */

static const char *seconds_text(double s, char *buf, size_t size)
{
    const int64_t n = (int64_t)s;
    if (s < 120)
        snprintf(buf, size, "%.3g s", s);
    else if (s < 7200)
        snprintf(buf, size, "%lld min", (long long)(n / 60));
    else if (s < 172800)
        snprintf(buf, size, "%lld h", (long long)(n / 3600));
    else
        snprintf(buf, size, "%lld days", (long long)(n / 86400));
    return buf;
}

const char *alert_value_text(enum signal_id s, double v, char *buf, size_t size)
{
    if (isnan(v)) {
        snprintf(buf, size, "n/a");
        return buf;
    }
    switch (SIGNALS[s].unit) {
    case ALERT_UNIT_RATIO: snprintf(buf, size, "%.3g %%", 100 * v); break;
    case ALERT_UNIT_BYTES: return str_from_bytes((int64_t)v, buf, size);
    case ALERT_UNIT_BYTES_S: {
        char bytes[32];
        snprintf(buf, size, "%s/s", str_from_bytes((int64_t)v, bytes, sizeof bytes));
        break;
    }
    case ALERT_UNIT_SECONDS: return seconds_text(v, buf, size);
    case ALERT_UNIT_CELSIUS: snprintf(buf, size, "%.3g C", v); break;
    case ALERT_UNIT_PER_SECOND: snprintf(buf, size, "%.3g times a second", v); break;
    case ALERT_UNIT_NATS: snprintf(buf, size, "%.4g nats", v); break;
    case ALERT_UNIT_COUNT: snprintf(buf, size, "%.0f", v); break;
    case ALERT_UNIT_YES: snprintf(buf, size, "%s", v > 0.5 ? "yes" : "no"); break;
    }
    return buf;
}

const char *alert_text(const struct alert *a, double value, char *buf, size_t size)
{
    const struct signal *s = &SIGNALS[a->signal];
    char said[48], limit[48];
    const char *at = strstr(s->phrase, "%s");
    if (!at) {
        snprintf(buf, size, "%s", s->phrase);
        return buf;
    }
    alert_value_text(a->signal, value, said, sizeof said);
    alert_value_text(a->signal, a->threshold, limit, sizeof limit);
    snprintf(buf, size, "%.*s%s%s (limit %s)", (int)(at - s->phrase), s->phrase, said, at + 2, limit);
    return buf;
}

/* ---------------------------------------------------------------- the user's settings */

void alert_rules_default(struct alert_rules *r)
{
    memset(r, 0, sizeof *r);
    memcpy(r->row, ALERTS, sizeof r->row);
}

static const char WANTED[] = "expected NAME=THRESHOLD, NAME=THRESHOLD:FOR or NAME=off";

static enum err_code name_find(int *row, const char *name, struct err *why)
{
    const char *names[ALERT_COUNT];
    for (*row = 0; *row < ALERT_COUNT; ++*row) {
        if (!strcmp(ALERTS[*row].name, name)) return ERR_OK;
        names[*row] = ALERTS[*row].name;
    }
    const char *near = str_nearest(name, names, ALERT_COUNT);
    if (near) return err_set(why, ERR_USAGE, "no alert is called '%s'; did you mean '%s'?", name, near);
    return err_set(why, ERR_USAGE, "no alert is called '%s': qdyno watch --print-alerts lists them", name);
}

/* Parse a threshold in the signal's unit; *want: what the error message should ask for. */
static bool threshold_parse(enum alert_unit unit, const char *text, double *out, const char **want)
{
    char *percent, number[32];
    int64_t bytes;
    switch (unit) {
    case ALERT_UNIT_RATIO:
        *want = "a share such as 95% or 0.95";
        snprintf(number, sizeof number, "%s", text);
        percent = strchr(number, '%');
        if (percent && !percent[1]) *percent = '\0';
        if (!str_to_double(number, out)) return false;
        if (percent) *out /= 100;
        return *out >= 0 && *out <= 1;
    case ALERT_UNIT_BYTES:
    case ALERT_UNIT_BYTES_S:
        *want = "bytes such as 512M or 8G";
        if (!str_to_bytes(text, &bytes)) return false;
        *out = (double)bytes;
        return bytes >= 0;
    case ALERT_UNIT_SECONDS:
        *want = "a time such as 90s, 5m or 24h";
        return str_to_seconds(text, out) && *out >= 0;
    case ALERT_UNIT_YES: *want = "only off, because it has no threshold"; return false;
    default: break;
    }
    *want = unit == ALERT_UNIT_CELSIUS ? "degrees Celsius such as 85" : "a number";
    return str_to_double(text, out) && isfinite(*out) && *out >= 0;
}

enum err_code alert_rules_set(struct alert_rules *r, const char *text, struct err *why)
{
    char name[64], threshold[64], *duration;
    const char *equals = strchr(text, '='), *want = "";
    int row;
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name || !equals[1] ||
        strlen(equals + 1) >= sizeof threshold)
        return err_set(why, ERR_USAGE, "'%s': %s", text, WANTED);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    snprintf(threshold, sizeof threshold, "%s", equals + 1);
    enum err_code rc = name_find(&row, name, why);
    if (rc) return rc;
    if (!strcmp(threshold, "off")) {
        r->off[row] = true;
        return ERR_OK;
    }
    struct alert a = ALERTS[row];
    if ((duration = strchr(threshold, ':'))) {
        *duration++ = '\0';
        if (!str_to_seconds(duration, &a.for_s) || !isfinite(a.for_s) || a.for_s < 0)
            return err_set(why, ERR_USAGE, "'%s': '%s' is not a duration; expected e.g. 30s, 5m", text,
                           duration);
    }
    if (!threshold_parse(SIGNALS[a.signal].unit, threshold, &a.threshold, &want))
        return err_set(why, ERR_USAGE, "'%s': alert '%s' expects %s", text, a.name, want);
    a.clear = ALERTS[row].threshold > 0 ? a.threshold * (ALERTS[row].clear / ALERTS[row].threshold)
                                        : a.threshold;
    r->row[row] = a;
    r->off[row] = false;
    return ERR_OK;
}

enum err_code alert_rules_read(struct alert_rules *r, const char *path, struct err *why)
{
    enum { LIMIT = 1 << 16 };
    char *text, *save = NULL;
    int number = 0;
    enum err_code rc = file_read(&text, NULL, path, LIMIT, why);
    if (rc) return rc;
    for (char *rest = text, *line; !rc && (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "#")] = '\0';
        const char *word = strtok_r(line, " \t\r", &save),
                   *more = word ? strtok_r(NULL, " \t\r", &save) : NULL;
        if (more)
            rc = err_set(why, ERR_USAGE, "unexpected '%s' after '%s': one setting per line", more, word);
        if (!rc && word) rc = alert_rules_set(r, word, why);
        if (rc) err_prefix(why, "%s, line %d", path, number);
    }
    free(text);
    return rc;
}
