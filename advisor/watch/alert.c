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

const struct signal SIGNALS[SIGNAL_COUNT] = {
    [SIGNAL_PERFORMANCE] = { "performance", ALERT_UNIT_RATIO, SUBJECT_WORKLOAD, INFINITY,
                             "performance is %s below its baseline" },
    [SIGNAL_ERRORS] = { "errors", ALERT_UNIT_RATIO, SUBJECT_MACHINE, INFINITY,
                        "%s of the last measurements failed" },
    [SIGNAL_CANARY] = { "canary", ALERT_UNIT_RATIO, SUBJECT_MACHINE, INFINITY,
                        "a fixed piece of work runs %s slower than usual here" },
    [SIGNAL_QUALITY] = { "quality", ALERT_UNIT_NATS, SUBJECT_WORKLOAD, INFINITY,
                         "KL divergence from the reference is %s" },
    [SIGNAL_BUSY] = { "busy", ALERT_UNIT_RATIO, SUBJECT_MACHINE, SENSOR_S, "the processors are %s busy" },
    [SIGNAL_MEMORY] = { "memory", ALERT_UNIT_RATIO, SUBJECT_MACHINE, SENSOR_S, "%s of memory is in use" },
    [SIGNAL_SWAP_USED] = { "swap_used", ALERT_UNIT_BYTES, SUBJECT_MACHINE, SENSOR_S, "%s of swap is in use" },
    [SIGNAL_SWAP_IN] = { "swap_in", ALERT_UNIT_BYTES_S, SUBJECT_MACHINE, SENSOR_S,
                         "%s of memory come back from swap" },
    [SIGNAL_PSI_MEMORY] = { "psi_memory", ALERT_UNIT_RATIO, SUBJECT_MACHINE, SENSOR_S,
                            "some program waits for memory %s of the time" },
    [SIGNAL_STEAL] = { "steal", ALERT_UNIT_RATIO, SUBJECT_MACHINE, SENSOR_S,
                       "the hypervisor gives %s of processor time to others" },
    [SIGNAL_CPU_THROTTLE] = { "cpu_throttle", ALERT_UNIT_PER_SECOND, SUBJECT_MACHINE, SENSOR_S,
                              "a processor slows down for heat %s" },
    [SIGNAL_CPU_TEMPERATURE] = { "cpu_temperature", ALERT_UNIT_CELSIUS, SUBJECT_MACHINE, SENSOR_S,
                                 "the hottest processor is at %s" },
    [SIGNAL_BATTERY] = { "battery", ALERT_UNIT_YES, SUBJECT_MACHINE, SENSOR_S,
                         "the machine runs from its battery" },
    [SIGNAL_GPU_BUSY] = { "gpu_busy", ALERT_UNIT_RATIO, SUBJECT_GPU, SENSOR_S, "the GPU is %s busy" },
    [SIGNAL_GPU_MEMORY] = { "gpu_memory", ALERT_UNIT_RATIO, SUBJECT_GPU, SENSOR_S,
                            "%s of the GPU's memory is in use" },
    [SIGNAL_GPU_THROTTLE] = { "gpu_throttle", ALERT_UNIT_YES, SUBJECT_GPU, SENSOR_S,
                              "the GPU's clocks are held down by heat or its supply" },
    [SIGNAL_GPU_POWER_CAP] = { "gpu_power_cap", ALERT_UNIT_YES, SUBJECT_GPU, SENSOR_S,
                               "the GPU's clocks are held down by its power limit" },
    [SIGNAL_GPU_TEMPERATURE] = { "gpu_temperature", ALERT_UNIT_CELSIUS, SUBJECT_GPU, SENSOR_S,
                                 "the GPU is at %s" },
    [SIGNAL_GPU_ECC] = { "gpu_ecc", ALERT_UNIT_COUNT, SUBJECT_GPU, SENSOR_S,
                         "%s uncorrected memory errors since the driver was loaded" },
    [SIGNAL_GPU_LOST] = { "gpu_lost", ALERT_UNIT_YES, SUBJECT_GPU, SENSOR_S,
                          "the GPU does not answer any more" },
    [SIGNAL_DISK] = { "disk", ALERT_UNIT_BYTES, SUBJECT_MACHINE, SENSOR_S,
                      "%s are free where the database lies" },
    [SIGNAL_STALE] = { "stale", ALERT_UNIT_SECONDS, SUBJECT_MACHINE, SENSOR_S,
                       "no measurement succeeded for %s" },
    [SIGNAL_BLIND] = { "blind", ALERT_UNIT_SECONDS, SUBJECT_SIGNAL, SENSOR_S, "not known any more for %s" },
};

const char *const GRADES[] = { "info", "warning", "critical", NULL };

enum {
    QUIETLY = ACTION_REPORT,
    SPOKEN = ACTION_REPORT | ACTION_NOTIFY,
    LOUDLY = ACTION_REPORT | ACTION_NOTIFY | ACTION_BELL,
};

const struct alert ALERTS[ALERT_COUNT] = {
    { "performance", SIGNAL_PERFORMANCE, SIDE_ABOVE, 0.20, 0.15, 0, 0, GRADE_WARNING,
      SPOKEN | ACTION_ROLL_BACK, "A watched workload runs slower than its baseline.",
      "If the canary is slower too, the machine changed: see that alert. Else the model, its configuration or qdyno "
      "did: qdyno history --detect says since when and what changed then; qdyno baseline check measures both now." },
    { "performance_critical", SIGNAL_PERFORMANCE, SIDE_ABOVE, 0.50, 0.40, 0, 0, GRADE_CRITICAL,
      LOUDLY | ACTION_ROLL_BACK, "A watched workload runs at half its baseline or less.",
      "As for performance, now: look for throttling, swapping and other programs first." },
    { "errors", SIGNAL_ERRORS, SIDE_ABOVE, 0.05, 0.02, 0, 0, GRADE_WARNING, SPOKEN,
      "Measurements fail: the model cannot be loaded, or its process dies.",
      "The watch's log has each reason. qdyno doctor checks what is installed; qdyno fit whether memory is enough." },
    { "canary", SIGNAL_CANARY, SIDE_ABOVE, 0.10, 0.05, 0, 0, GRADE_WARNING, SPOKEN,
      "A piece of work that never changes is slower than it usually is here: the machine changed, not the model.",
      "Look for throttling, steal, a changed governor, kernel or microcode (qdyno history --detect names them), and "
      "for other programs." },
    { "quality", SIGNAL_QUALITY, SIDE_ABOVE, 0.05, 0.04, 0, 0, GRADE_WARNING, SPOKEN,
      "A configuration's predictions differ from those of its reference more than is allowed.",
      "qdyno eval --ref says by how much and where; qdyno methods lists gentler ways to quantize." },
    { "busy", SIGNAL_BUSY, SIDE_ABOVE, 0.80, 0.70, 300, 60, GRADE_WARNING, SPOKEN | ACTION_SUGGEST,
      "The processors have little time left, whoever uses it.",
      "More requests will wait: add a machine or ranks, or take a faster configuration (qdyno advise). Measurements are "
      "postponed meanwhile." },
    { "memory", SIGNAL_MEMORY, SIDE_ABOVE, 0.90, 0.85, 30, 10, GRADE_WARNING, SPOKEN,
      "Little memory is left; a control group's limit counts where there is one.",
      "qdyno fit says what a model takes; shorten the context, quantize the KV cache (kv=q8_0), or end other programs." },
    { "memory_critical", SIGNAL_MEMORY, SIDE_ABOVE, 0.97, 0.93, 10, 10, GRADE_CRITICAL, LOUDLY,
      "Memory is all but gone: the kernel will soon swap, or end a program.",
      "End what is not needed now; then as for memory." },
    { "swap_used", SIGNAL_SWAP_USED, SIDE_ABOVE, 64 << 20, 32 << 20, 600, 60, GRADE_INFO, QUIETLY,
      "Part of some program's memory lies on disk.",
      "Harmless while nobody needs it; a model's weights there make the first tokens slow." },
    { "swap_in", SIGNAL_SWAP_IN, SIDE_ABOVE, 1 << 20, 1 << 17, 10, 30, GRADE_WARNING, SPOKEN,
      "Programs wait for their memory to come back from disk.",
      "Speeds measured now mean nothing. Free memory: see the alert memory." },
    { "psi_memory", SIGNAL_PSI_MEMORY, SIDE_ABOVE, 0.10, 0.05, 30, 30, GRADE_WARNING, SPOKEN,
      "Programs wait for memory to be freed (pressure stall information).",
      "Free memory: see the alert memory." },
    { "steal", SIGNAL_STEAL, SIDE_ABOVE, 0.05, 0.02, 60, 60, GRADE_WARNING, SPOKEN,
      "This virtual machine does not get the processors it was promised.",
      "Ask who runs the host; blocks disturbed so are discarded, and rounds take longer." },
    { "cpu_throttle", SIGNAL_CPU_THROTTLE, SIDE_ABOVE, 0, 0, 10, 60, GRADE_WARNING, SPOKEN,
      "Processors lower their clocks because they are too hot.",
      "Cooling: fans, dust, room. Fewer threads may be faster than throttled ones." },
    { "cpu_temperature", SIGNAL_CPU_TEMPERATURE, SIDE_ABOVE, 90, 85, 30, 30, GRADE_WARNING, SPOKEN,
      "A processor is close to the heat at which it slows down.", "Cooling: fans, dust, room." },
    { "battery", SIGNAL_BATTERY, SIDE_ABOVE, 0.5, 0.5, 5, 5, GRADE_INFO, QUIETLY,
      "Laptops run slower from their battery, so speeds do not compare.", "Plug it in before measuring." },
    { "gpu_busy", SIGNAL_GPU_BUSY, SIDE_ABOVE, 0.80, 0.70, 300, 60, GRADE_WARNING, SPOKEN | ACTION_SUGGEST,
      "A GPU has little time left.", "More requests will wait: add a GPU or ranks." },
    { "gpu_memory", SIGNAL_GPU_MEMORY, SIDE_ABOVE, 0.90, 0.85, 30, 10, GRADE_WARNING, SPOKEN,
      "Little of a GPU's memory is left.",
      "Shorten the context, quantize weights or KV cache, or spread over GPUs." },
    { "gpu_memory_critical", SIGNAL_GPU_MEMORY, SIDE_ABOVE, 0.97, 0.93, 10, 10, GRADE_CRITICAL, LOUDLY,
      "A GPU's memory is all but gone: the next allocation fails.", "As for gpu_memory, now." },
    { "gpu_throttle", SIGNAL_GPU_THROTTLE, SIDE_ABOVE, 0.5, 0.5, 30, 60, GRADE_WARNING, SPOKEN,
      "A GPU lowers its clocks for heat, current or its power supply.",
      "qdyno telemetry names the reason. Heat: cooling; a power brake: the server's supply." },
    { "gpu_power_cap", SIGNAL_GPU_POWER_CAP, SIDE_ABOVE, 0.5, 0.5, 300, 60, GRADE_INFO, QUIETLY,
      "A GPU would run faster were its power limit higher: usual under full load.",
      "Raise the limit if its board and supply allow (nvidia-smi -pl); or leave it: energy per token is lower so." },
    { "gpu_temperature", SIGNAL_GPU_TEMPERATURE, SIDE_ABOVE, 85, 80, 30, 30, GRADE_WARNING, SPOKEN,
      "A GPU is close to the heat at which it slows down.", "Cooling: fans, dust, room." },
    { "gpu_ecc", SIGNAL_GPU_ECC, SIDE_ABOVE, 0, 0, 0, 0, GRADE_CRITICAL, LOUDLY,
      "A GPU's memory held wrong bits that could not be corrected: results may be wrong.",
      "Take work off this GPU and reset it; if it comes again, replace it." },
    { "gpu_lost", SIGNAL_GPU_LOST, SIDE_ABOVE, 0.5, 0.5, 5, 5, GRADE_CRITICAL, LOUDLY,
      "A GPU fell off its bus.",
      "The kernel's log (dmesg) has the reason; a restart usually brings it back." },
    { "disk", SIGNAL_DISK, SIDE_BELOW, 1 << 30, (1 << 30) + (1 << 28), 10, 10, GRADE_WARNING, SPOKEN,
      "Little room is left on the disk of qdyno's database.",
      "Free some: quantized models of trials lie in the cache folder ($XDG_CACHE_HOME/qdyno)." },
    { "disk_critical", SIGNAL_DISK, SIDE_BELOW, 100 << 20, 200 << 20, 0, 10, GRADE_CRITICAL, LOUDLY,
      "The disk is all but full: measurements cannot be stored.",
      "Free some now; nothing that is stored is lost." },
    { "stale", SIGNAL_STALE, SIDE_ABOVE, 86400, 86400, 0, 0, GRADE_WARNING, SPOKEN,
      "Nothing was measured for a long time, so nothing is known about speed.",
      "The watch's log says why: a machine that is always busy (--even-if-busy), or measurements that fail." },
    { "blind", SIGNAL_BLIND, SIDE_ABOVE, 600, 60, 0, 0, GRADE_INFO, QUIETLY,
      "A sensor that was there gives no values any more; its alerts stay as they were.",
      "qdyno doctor says what can be read here; drivers and permissions are the usual reasons." },
};

const struct alert *alert_find(const char *name)
{
    for (int i = 0; i < ALERT_COUNT; i++)
        if (!strcmp(ALERTS[i].name, name)) return &ALERTS[i];
    return NULL;
}

/* ---------------------------------------------------------------- as text */

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

/* ---------------------------------------------------------------- as a person set them */

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
