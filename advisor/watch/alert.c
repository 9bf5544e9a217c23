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
    [SIGNAL_PERFORMANCE] = { .name = "performance",
                             .unit = ALERT_UNIT_RATIO,
                             .subject = SUBJECT_WORKLOAD,
                             .stands_s = INFINITY,
                             .phrase = "performance is %s below its baseline" },
    [SIGNAL_ERRORS] = { .name = "errors",
                        .unit = ALERT_UNIT_RATIO,
                        .subject = SUBJECT_MACHINE,
                        .stands_s = INFINITY,
                        .phrase = "%s of the last measurements failed" },
    [SIGNAL_CANARY] = { .name = "canary",
                        .unit = ALERT_UNIT_RATIO,
                        .subject = SUBJECT_MACHINE,
                        .stands_s = INFINITY,
                        .phrase = "the canary, a fixed reference workload, runs %s slower than usual" },
    [SIGNAL_QUALITY] = { .name = "quality",
                         .unit = ALERT_UNIT_NATS,
                         .subject = SUBJECT_WORKLOAD,
                         .stands_s = INFINITY,
                         .phrase = "KL divergence from the reference is %s" },
    [SIGNAL_BUSY] = { .name = "busy",
                      .unit = ALERT_UNIT_RATIO,
                      .subject = SUBJECT_MACHINE,
                      .stands_s = SENSOR_S,
                      .phrase = "the CPUs are %s busy" },
    [SIGNAL_MEMORY] = { .name = "memory",
                        .unit = ALERT_UNIT_RATIO,
                        .subject = SUBJECT_MACHINE,
                        .stands_s = SENSOR_S,
                        .phrase = "%s of memory is in use" },
    [SIGNAL_SWAP_USED] = { .name = "swap_used",
                           .unit = ALERT_UNIT_BYTES,
                           .subject = SUBJECT_MACHINE,
                           .stands_s = SENSOR_S,
                           .phrase = "%s of swap is in use" },
    [SIGNAL_SWAP_IN] = { .name = "swap_in",
                         .unit = ALERT_UNIT_BYTES_S,
                         .subject = SUBJECT_MACHINE,
                         .stands_s = SENSOR_S,
                         .phrase = "%s are read back from swap" },
    [SIGNAL_PSI_MEMORY] = { .name = "psi_memory",
                            .unit = ALERT_UNIT_RATIO,
                            .subject = SUBJECT_MACHINE,
                            .stands_s = SENSOR_S,
                            .phrase = "programs wait for memory %s of the time" },
    [SIGNAL_STEAL] = { .name = "steal",
                       .unit = ALERT_UNIT_RATIO,
                       .subject = SUBJECT_MACHINE,
                       .stands_s = SENSOR_S,
                       .phrase = "the hypervisor takes %s of CPU time" },
    [SIGNAL_CPU_THROTTLE] = { .name = "cpu_throttle",
                              .unit = ALERT_UNIT_PER_SECOND,
                              .subject = SUBJECT_MACHINE,
                              .stands_s = SENSOR_S,
                              .phrase = "a CPU is throttled because of heat %s" },
    [SIGNAL_CPU_TEMPERATURE] = { .name = "cpu_temperature",
                                 .unit = ALERT_UNIT_CELSIUS,
                                 .subject = SUBJECT_MACHINE,
                                 .stands_s = SENSOR_S,
                                 .phrase = "the hottest CPU is at %s" },
    [SIGNAL_BATTERY] = { .name = "battery",
                         .unit = ALERT_UNIT_YES,
                         .subject = SUBJECT_MACHINE,
                         .stands_s = SENSOR_S,
                         .phrase = "the machine runs on battery" },
    [SIGNAL_GPU_BUSY] = { .name = "gpu_busy",
                          .unit = ALERT_UNIT_RATIO,
                          .subject = SUBJECT_GPU,
                          .stands_s = SENSOR_S,
                          .phrase = "the GPU is %s busy" },
    [SIGNAL_GPU_MEMORY] = { .name = "gpu_memory",
                            .unit = ALERT_UNIT_RATIO,
                            .subject = SUBJECT_GPU,
                            .stands_s = SENSOR_S,
                            .phrase = "%s of the GPU's memory is in use" },
    [SIGNAL_GPU_THROTTLE] = { .name = "gpu_throttle",
                              .unit = ALERT_UNIT_YES,
                              .subject = SUBJECT_GPU,
                              .stands_s = SENSOR_S,
                              .phrase = "the GPU's clocks are reduced by heat or power supply" },
    [SIGNAL_GPU_POWER_CAP] = { .name = "gpu_power_cap",
                               .unit = ALERT_UNIT_YES,
                               .subject = SUBJECT_GPU,
                               .stands_s = SENSOR_S,
                               .phrase = "the GPU's clocks are reduced by its power limit" },
    [SIGNAL_GPU_TEMPERATURE] = { .name = "gpu_temperature",
                                 .unit = ALERT_UNIT_CELSIUS,
                                 .subject = SUBJECT_GPU,
                                 .stands_s = SENSOR_S,
                                 .phrase = "the GPU is at %s" },
    [SIGNAL_GPU_ECC] = { .name = "gpu_ecc",
                         .unit = ALERT_UNIT_COUNT,
                         .subject = SUBJECT_GPU,
                         .stands_s = SENSOR_S,
                         .phrase = "%s uncorrected memory errors since the driver was loaded" },
    [SIGNAL_GPU_LOST] = { .name = "gpu_lost",
                          .unit = ALERT_UNIT_YES,
                          .subject = SUBJECT_GPU,
                          .stands_s = SENSOR_S,
                          .phrase = "the GPU does not respond" },
    [SIGNAL_DISK] = { .name = "disk",
                      .unit = ALERT_UNIT_BYTES,
                      .subject = SUBJECT_MACHINE,
                      .stands_s = SENSOR_S,
                      .phrase = "%s are free on the database's file system" },
    [SIGNAL_STALE] = { .name = "stale",
                       .unit = ALERT_UNIT_SECONDS,
                       .subject = SUBJECT_MACHINE,
                       .stands_s = SENSOR_S,
                       .phrase = "no measurement succeeded for %s" },
    [SIGNAL_BLIND] = { .name = "blind",
                       .unit = ALERT_UNIT_SECONDS,
                       .subject = SUBJECT_SIGNAL,
                       .stands_s = SENSOR_S,
                       .phrase = "has had no value for %s" },
    [SIGNAL_SERVE_WAITING] = { .name = "serve_waiting",
                               .unit = ALERT_UNIT_COUNT,
                               .subject = SUBJECT_MACHINE,
                               .stands_s = SENSOR_S,
                               .phrase = "%s requests wait at qdyno serve" },
};

const char *const GRADES[] = { "info", "warning", "critical", NULL };

enum {
    ACTIONS_INFO = ACTION_REPORT,
    ACTIONS_WARNING = ACTION_REPORT | ACTION_NOTIFY,
    ACTIONS_CRITICAL = ACTION_REPORT | ACTION_NOTIFY | ACTION_BELL,
};

const struct alert ALERTS[ALERT_COUNT] = {
    { .name = "performance",
      .signal = SIGNAL_PERFORMANCE,
      .side = SIDE_ABOVE,
      .threshold = 0.20,
      .clear = 0.15,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING | ACTION_ROLL_BACK,
      .meaning = "A watched workload runs slower than its baseline.",
      .todo =
          "If the canary is slower too, the machine changed: see that alert. Else the model, its configuration or qdyno "
          "did: qdyno history --detect says since when and what changed then; qdyno baseline check measures both now." },
    { .name = "performance_critical",
      .signal = SIGNAL_PERFORMANCE,
      .side = SIDE_ABOVE,
      .threshold = 0.50,
      .clear = 0.40,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL | ACTION_ROLL_BACK,
      .meaning = "A watched workload runs at half its baseline or less.",
      .todo = "As for performance, now: look for throttling, swapping and other programs first." },
    { .name = "errors",
      .signal = SIGNAL_ERRORS,
      .side = SIDE_ABOVE,
      .threshold = 0.05,
      .clear = 0.02,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Measurements fail: the model cannot be loaded, or its process dies.",
      .todo =
          "The watch's log has each reason. qdyno doctor checks what is installed; qdyno fit whether memory is enough." },
    { .name = "canary",
      .signal = SIGNAL_CANARY,
      .side = SIDE_ABOVE,
      .threshold = 0.10,
      .clear = 0.05,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning =
          "The canary, a fixed reference workload, is slower than usual: the machine changed, not the model.",
      .todo =
          "Look for throttling, steal, a changed governor, kernel or microcode (qdyno history --detect names them), and "
          "for other programs." },
    { .name = "quality",
      .signal = SIGNAL_QUALITY,
      .side = SIDE_ABOVE,
      .threshold = 0.05,
      .clear = 0.04,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "The KL divergence of a configuration from its reference exceeds the limit.",
      .todo = "qdyno eval --ref says by how much and where; qdyno methods lists gentler ways to quantize." },
    { .name = "busy",
      .signal = SIGNAL_BUSY,
      .side = SIDE_ABOVE,
      .threshold = 0.80,
      .clear = 0.70,
      .for_s = 300,
      .keep_s = 60,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING | ACTION_SUGGEST,
      .meaning = "The CPUs have little time left, whichever program uses it.",
      .todo =
          "End programs that need not run now. If this machine serves requests, they wait longer: add a machine or ranks, or "
          "take a faster configuration (qdyno advise). The watch postpones its measurements meanwhile (--even-if-busy: it does "
          "not)." },
    { .name = "memory",
      .signal = SIGNAL_MEMORY,
      .side = SIDE_ABOVE,
      .threshold = 0.90,
      .clear = 0.85,
      .for_s = 30,
      .keep_s = 10,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Little memory is left; a control group's limit counts where there is one.",
      .todo =
          "qdyno fit says what a model takes; shorten the context, quantize the KV cache (kv=q8_0), or end other programs." },
    { .name = "memory_critical",
      .signal = SIGNAL_MEMORY,
      .side = SIDE_ABOVE,
      .threshold = 0.97,
      .clear = 0.93,
      .for_s = 10,
      .keep_s = 10,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL,
      .meaning = "Almost no memory is left: the kernel will soon swap, or kill a program.",
      .todo = "End unneeded programs now; then as for memory." },
    { .name = "swap_used",
      .signal = SIGNAL_SWAP_USED,
      .side = SIDE_ABOVE,
      .threshold = 64 << 20,
      .clear = 32 << 20,
      .for_s = 600,
      .keep_s = 60,
      .grade = GRADE_INFO,
      .actions = ACTIONS_INFO,
      .meaning = "Part of a program's memory is on disk.",
      .todo = "Harmless while it is not used; if it holds a model's weights, the first tokens are slow." },
    { .name = "swap_in",
      .signal = SIGNAL_SWAP_IN,
      .side = SIDE_ABOVE,
      .threshold = 1 << 20,
      .clear = 1 << 17,
      .for_s = 10,
      .keep_s = 30,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Programs wait for their memory to come back from disk.",
      .todo = "Speeds measured now mean nothing. Free memory: see the alert memory." },
    { .name = "psi_memory",
      .signal = SIGNAL_PSI_MEMORY,
      .side = SIDE_ABOVE,
      .threshold = 0.10,
      .clear = 0.05,
      .for_s = 30,
      .keep_s = 30,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Programs wait for memory to be freed (pressure stall information).",
      .todo = "Free memory: see the alert memory." },
    { .name = "steal",
      .signal = SIGNAL_STEAL,
      .side = SIDE_ABOVE,
      .threshold = 0.05,
      .clear = 0.02,
      .for_s = 60,
      .keep_s = 60,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "This virtual machine does not get all of its CPU time.",
      .todo = "Ask the host's operator; disturbed blocks are discarded, and rounds take longer." },
    { .name = "cpu_throttle",
      .signal = SIGNAL_CPU_THROTTLE,
      .side = SIDE_ABOVE,
      .for_s = 10,
      .keep_s = 60,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "CPUs reduce their clocks because they are too hot.",
      .todo = "Cooling: fans, dust, room. Fewer threads may be faster than throttled ones." },
    { .name = "cpu_temperature",
      .signal = SIGNAL_CPU_TEMPERATURE,
      .side = SIDE_ABOVE,
      .threshold = 90,
      .clear = 85,
      .for_s = 30,
      .keep_s = 30,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "A CPU is close to its throttling temperature.",
      .todo = "Cooling: fans, dust, room." },
    { .name = "battery",
      .signal = SIGNAL_BATTERY,
      .side = SIDE_ABOVE,
      .threshold = 0.5,
      .clear = 0.5,
      .for_s = 5,
      .keep_s = 5,
      .grade = GRADE_INFO,
      .actions = ACTIONS_INFO,
      .meaning = "Laptops run slower on battery, so speeds do not compare.",
      .todo = "Plug it in before measuring." },
    { .name = "gpu_busy",
      .signal = SIGNAL_GPU_BUSY,
      .side = SIDE_ABOVE,
      .threshold = 0.80,
      .clear = 0.70,
      .for_s = 300,
      .keep_s = 60,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING | ACTION_SUGGEST,
      .meaning = "A GPU has little time left.",
      .todo =
          "End programs that need not use it now. If it serves requests, they wait longer: add a GPU or ranks." },
    { .name = "gpu_memory",
      .signal = SIGNAL_GPU_MEMORY,
      .side = SIDE_ABOVE,
      .threshold = 0.90,
      .clear = 0.85,
      .for_s = 30,
      .keep_s = 10,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Little of a GPU's memory is left.",
      .todo = "Shorten the context, quantize weights or KV cache, or spread over GPUs." },
    { .name = "gpu_memory_critical",
      .signal = SIGNAL_GPU_MEMORY,
      .side = SIDE_ABOVE,
      .threshold = 0.97,
      .clear = 0.93,
      .for_s = 10,
      .keep_s = 10,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL,
      .meaning = "Almost no GPU memory is left: the next allocation may fail.",
      .todo = "As for gpu_memory, now." },
    { .name = "gpu_throttle",
      .signal = SIGNAL_GPU_THROTTLE,
      .side = SIDE_ABOVE,
      .threshold = 0.5,
      .clear = 0.5,
      .for_s = 30,
      .keep_s = 60,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "A GPU reduces its clocks because of heat, current or power supply.",
      .todo = "qdyno telemetry names the reason. Heat: cooling; a power brake: the server's supply." },
    { .name = "gpu_power_cap",
      .signal = SIGNAL_GPU_POWER_CAP,
      .side = SIDE_ABOVE,
      .threshold = 0.5,
      .clear = 0.5,
      .for_s = 300,
      .keep_s = 60,
      .grade = GRADE_INFO,
      .actions = ACTIONS_INFO,
      .meaning = "A higher power limit would make the GPU faster: normal under full load.",
      .todo =
          "Raise the limit if its board and supply allow (nvidia-smi -pl); or leave it: energy per token is lower so." },
    { .name = "gpu_temperature",
      .signal = SIGNAL_GPU_TEMPERATURE,
      .side = SIDE_ABOVE,
      .threshold = 85,
      .clear = 80,
      .for_s = 30,
      .keep_s = 30,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "A GPU is close to its throttling temperature.",
      .todo = "Cooling: fans, dust, room." },
    { .name = "gpu_ecc",
      .signal = SIGNAL_GPU_ECC,
      .side = SIDE_ABOVE,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL,
      .meaning = "A GPU's memory had uncorrectable errors: results may be wrong.",
      .todo = "Take work off this GPU and reset it; if it comes again, replace it." },
    { .name = "gpu_lost",
      .signal = SIGNAL_GPU_LOST,
      .side = SIDE_ABOVE,
      .threshold = 0.5,
      .clear = 0.5,
      .for_s = 5,
      .keep_s = 5,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL,
      .meaning = "A GPU fell off its bus.",
      .todo = "The kernel's log (dmesg) has the reason; a restart usually brings it back." },
    { .name = "disk",
      .signal = SIGNAL_DISK,
      .side = SIDE_BELOW,
      .threshold = 1 << 30,
      .clear = (1 << 30) + (1 << 28),
      .for_s = 10,
      .keep_s = 10,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Little space is left on the disk of qdyno's database.",
      .todo = "Free some: quantized models of trials lie in the cache folder ($XDG_CACHE_HOME/qdyno)." },
    { .name = "disk_critical",
      .signal = SIGNAL_DISK,
      .side = SIDE_BELOW,
      .threshold = 100 << 20,
      .clear = 200 << 20,
      .keep_s = 10,
      .grade = GRADE_CRITICAL,
      .actions = ACTIONS_CRITICAL,
      .meaning = "The disk is almost full: measurements cannot be stored.",
      .todo = "Free some now; stored results are not lost." },
    { .name = "stale",
      .signal = SIGNAL_STALE,
      .side = SIDE_ABOVE,
      .threshold = 86400,
      .clear = 86400,
      .grade = GRADE_WARNING,
      .actions = ACTIONS_WARNING,
      .meaning = "Nothing was measured for a long time, so nothing is known about speed.",
      .todo =
          "The watch's log says why: a machine that is always busy (--even-if-busy), or measurements that fail." },
    { .name = "blind",
      .signal = SIGNAL_BLIND,
      .side = SIDE_ABOVE,
      .threshold = 600,
      .clear = 60,
      .grade = GRADE_INFO,
      .actions = ACTIONS_INFO,
      .meaning = "A sensor stopped giving values; its alerts keep their state.",
      .todo = "qdyno doctor says what can be read here; drivers and permissions are the usual reasons." },
    { .name = "serve_processes",
      .signal = SIGNAL_SERVE_WAITING,
      .side = SIDE_ABOVE,
      .threshold = 1,
      .clear = 0,
      .for_s = 5,
      .keep_s = 60,
      .grade = GRADE_INFO,
      .actions = ACTIONS_INFO | ACTION_SCALE,
      .meaning = "Requests wait at qdyno serve: its processes do not keep up with them.",
      .todo =
          "qdyno serve --processes MIN..MAX starts and ends processes by itself, and records each change as an alert of "
          "this name; the watch does not observe servers." },
};

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
