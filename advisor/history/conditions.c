/* advisor/history/conditions.c - under which conditions a run was measured, and how those of two runs differ
 * (history.h).
 *
 * A capsule holds what was set up before a run: program, kernel, model, settings. It says nothing about what
 * the machine did meanwhile, and most unexplained differences between two runs come from that. The sensors'
 * values of the cells that count tell it, so two runs are never called equally measured without them. */
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"

/* How a value is printed: times `scale`, with `digits` digits after the point. */
struct condition {
    const char *measurement; /* name of the cells' measurement */
    const char *text;
    enum metric_id
        limit_of;       /* loaded above the limit of this metric's contamination rule; METRIC_COUNT: no */
    double least;       /* smaller differences are noise of the sensor: absolute, in its unit */
    double least_ratio; /* the same as a share of the larger value */
    double scale;
    int digits;
    const char *unit;
};

/* The first rows say whether other work took the machine's time: they can withhold a verdict. */
/* clang-format off */
static const struct condition CONDITIONS[CONDITION_COUNT] = {
    [CONDITION_OTHERS] = { "others_busy_ratio", "CPU time used by other programs", METRIC_OTHERS_BUSY, 0.05, 0, 100, 0, " %" },
    [CONDITION_CGROUP_OTHERS] = { "cgroup_others_ratio", "CPU quota of the container used by other programs", METRIC_CGROUP_OTHERS, 0.05, 0, 100, 0, " %" },
    [CONDITION_STEAL] = { "cpu_steal_ratio", "CPU time taken by the hypervisor", METRIC_CPU_STEAL, 0.01, 0, 100, 1, " %" },
    [CONDITION_WAITING] = { CELL_OTHERS, "tasks of other programs ready to run", METRIC_COUNT, 0.5, 0.1, 1, 1, "" },
    [CONDITION_CPU_CLOCK] = { "cpu_frequency_hertz", "CPU clock", METRIC_COUNT, 0, 0.03, 1e-9, 2, " GHz" },
    [CONDITION_CPU_HEAT] = { "cpu_temperature_celsius", "CPU temperature", METRIC_COUNT, 5, 0, 1, 0, " °C" },
    [CONDITION_CPU_THROTTLE] = { "cpu_throttle_events_s", "CPU slowdowns for heat", METRIC_COUNT, 0.01, 0, 1, 2, " per second" },
    [CONDITION_QUOTA] = { "cgroup_throttled_ratio", "periods in which the container's CPU quota was used up", METRIC_COUNT, 0.02, 0, 100, 0, " %" },
    [CONDITION_BATTERY] = { "on_battery", "time on battery", METRIC_COUNT, 0.01, 0, 100, 0, " %" },
    [CONDITION_MEMORY_STALL] = { "psi_memory_ratio", "time in which a task waited for memory", METRIC_COUNT, 0.01, 0, 100, 1, " %" },
    [CONDITION_MEMORY_FREE] = { "mem_available_bytes", "available memory", METRIC_COUNT, 0, 0.25, 0x1p-30, 1, " GiB" },
    [CONDITION_SWAP] = { "swap_in_bytes_s", "memory read back from swap", METRIC_COUNT, 4096, 0, 0x1p-20, 2, " MiB/s" },
    [CONDITION_GPU_CLOCK] = { "gpu_clock_hertz", "GPU clock", METRIC_COUNT, 0, 0.03, 1e-9, 2, " GHz" },
    [CONDITION_GPU_HEAT] = { "gpu_temperature_celsius", "GPU temperature", METRIC_COUNT, 5, 0, 1, 0, " °C" },
    [CONDITION_GPU_THROTTLE] = { "gpu_throttle_ratio", "time in which the GPU held its clock down", METRIC_COUNT, 0.02, 0, 100, 0, " %" },
};
/* clang-format on */

void conditions_init(struct run_conditions *c)
{
    *c = (struct run_conditions){ .count = { 0 } };
    for (int i = 0; i < CONDITION_COUNT; i++) c->value[i] = NAN;
}

void conditions_add(struct run_conditions *c, const char *measurement, double value)
{
    if (!isfinite(value)) return;
    for (int i = 0; i < CONDITION_COUNT; i++) {
        if (strcmp(CONDITIONS[i].measurement, measurement)) continue;
        const int n = c->count[i]++;
        c->value[i] = n ? c->value[i] + (value - c->value[i]) / (n + 1) : value;
        return;
    }
}

static bool is_loaded(const struct run_conditions *c, int condition)
{
    const struct condition *x = &CONDITIONS[condition];
    return x->limit_of != METRIC_COUNT && c->value[condition] > contamination_limit(x->limit_of);
}

/* A value that only one run has says that its cells were too short for the sensor, and nothing about the
 * machine; of the load it is a difference, because it decides about the verdict. */
static bool differs(const struct condition *c, double before, double after)
{
    if (isnan(before) || isnan(after)) return c->limit_of != METRIC_COUNT && isnan(before) != isnan(after);
    const double by = fabs(after - before);
    return by > c->least && by > c->least_ratio * fmax(fabs(before), fabs(after));
}

/* The conditions that differ by more than the sensors' noise: { group, key, before, after } each. Equal loads
 * are none of them: conditions_load tells those. New reference. */
static json_t *conditions_diff(const struct run_conditions *before, const struct run_conditions *after)
{
    json_t *diff = json_array();
    for (int i = 0; i < CONDITION_COUNT; i++) {
        const double a = before->value[i], b = after->value[i];
        if (!differs(&CONDITIONS[i], a, b)) continue;
        json_t *o = json_object();
        json_put_str(o, "group", CHANGES_CONDITIONS);
        json_put_str(o, "key", CONDITIONS[i].measurement);
        json_put_num(o, "before", a);
        json_put_num(o, "after", b);
        json_array_append_new(diff, o);
    }
    return diff;
}

/* ---------------------------------------------------------------- load */

/* The load that is suspected first: the first row above its limit in either run. -1: none. */
static int load_suspected(const struct run_conditions *before, const struct run_conditions *after)
{
    for (int i = 0; i < CONDITION_COUNT; i++)
        if (is_loaded(before, i) || is_loaded(after, i)) return i;
    return -1;
}

static const char *value_text(const struct condition *c, double value, char *buf, size_t size)
{
    if (isnan(value))
        snprintf(buf, size, "n/a");
    else
        snprintf(buf, size, "%.*f%s", c->digits, value * c->scale, c->unit);
    return buf;
}

bool conditions_load(char *text, size_t size, const struct run_conditions *before,
                     const struct run_conditions *after)
{
    const int i = load_suspected(before, after);
    char a[32], b[32];
    text[0] = '\0';
    if (i < 0) return false;
    const bool both = is_loaded(before, i) && is_loaded(after, i);
    snprintf(text, size, "%s measured on a loaded machine (%s: %s and %s)",
             both                   ? "both runs were"
             : is_loaded(before, i) ? "the first run was"
                                    : "the second run was",
             CONDITIONS[i].text, value_text(&CONDITIONS[i], before->value[i], a, sizeof a),
             value_text(&CONDITIONS[i], after->value[i], b, sizeof b));
    return true;
}

void conditions_text(struct str *out, const struct run_conditions *c)
{
    char value[32];
    for (int i = 0, n = 0; i < CONDITION_COUNT; i++) {
        const struct condition *x = &CONDITIONS[i];
        /* a zero of what is rarely anything else says nothing, but that of the load does */
        if (isnan(c->value[i]) || (c->value[i] == 0 && i != CONDITION_OTHERS)) continue;
        str_printf(out, "%s%s %s", n++ ? ", " : "", x->text, value_text(x, c->value[i], value, sizeof value));
    }
}

/* Is the load by other programs known? */
static bool conditions_load_known(const struct run_conditions *c)
{
    return !isnan(c->value[CONDITION_OTHERS]);
}

/* ---------------------------------------------------------------- all that is recorded */

/* Members of a specification that say what was compared; the table of results shows that already. */
static bool is_subject(const char *key)
{
    static const char *const SUBJECTS[] = { "model", "configs", "workload", "workloads", "metric", "seed" };
    for (size_t i = 0; i < COUNT_OF(SUBJECTS); i++)
        if (!strcmp(key, SUBJECTS[i])) return true;
    return false;
}

/* Adds every member of `of` whose value in `other` differs. When `swapped`, `of` is the second run's. */
static void spec_diff(json_t *diff, json_t *of, const json_t *other, bool swapped)
{
    const char *key;
    json_t *value;
    json_object_foreach(of, key, value)
    {
        json_t *there = json_object_get(other, key);
        if (is_subject(key) || (swapped && there)) continue; /* both have it: found from the other side */
        if (there ? json_equal(value, there) : json_is_null(value)) continue;
        json_t *null = json_null(), *o = json_object();
        json_put_str(o, "group", CHANGES_SPEC);
        json_put_str(o, "key", key);
        json_object_set(o, "before", swapped ? null : value);
        json_object_set(o, "after", swapped ? value : there ? there : null);
        json_array_append_new(diff, o);
    }
}

json_t *run_changes(const struct run_recorded *before, const struct run_recorded *after, const char *line)
{
    json_t *all = conditions_diff(before->conditions, after->conditions);
    if (json_is_object(before->spec) && json_is_object(after->spec)) {
        spec_diff(all, before->spec, after->spec, false);
        spec_diff(all, after->spec, before->spec, true);
    }
    json_t *capsules = capsule_diff(before->capsule, after->capsule, line);
    json_array_extend(all, capsules);
    json_decref(capsules);
    return all;
}

/* The members of specifications in words; others are printed by their key. */
static const struct {
    const char *key, *text;
} SPEC_TEXT[] = {
    { "budget_s", "time budget in seconds" },
    { "min_blocks", "fewest blocks" },
    { "max_blocks", "most blocks" },
    { "control_blocks", "blocks that compare A with itself" },
    { "warmup_cells", "warm-up cells" },
    { "processes", "processes of the arms" },
    { "estimand", "blocks that count (estimand)" },
    { "turns", "arms take turns within a block" },
    { "margin", "smallest difference that matters" },
    { "quality_file", "text for quality" },
    { "quality_ctx", "context length for quality" },
    { "quality_chunks", "windows of text for quality" },
    { "quality_least", "fewest windows of text for quality" },
    { "quality_ctx_least", "shortest context length for quality" },
};

static bool condition_text(struct str *out, const json_t *change)
{
    if (strcmp(json_get_str(change, "group", ""), CHANGES_CONDITIONS)) return false;
    for (int i = 0; i < CONDITION_COUNT; i++) {
        const struct condition *x = &CONDITIONS[i];
        char a[32], b[32];
        if (strcmp(json_get_str(change, "key", ""), x->measurement)) continue;
        str_printf(out, "%s %s -> %s", x->text,
                   value_text(x, json_get_num(change, "before", NAN), a, sizeof a),
                   value_text(x, json_get_num(change, "after", NAN), b, sizeof b));
        return true;
    }
    return false;
}

void run_change_text(struct str *out, const json_t *change)
{
    if (condition_text(out, change)) return;
    const char *text = NULL;
    if (!strcmp(json_get_str(change, "group", ""), CHANGES_SPEC))
        for (size_t i = 0; i < COUNT_OF(SPEC_TEXT); i++)
            if (!strcmp(json_get_str(change, "key", ""), SPEC_TEXT[i].key)) text = SPEC_TEXT[i].text;
    if (text) {
        str_printf(out, "%s ", text);
        capsule_values_text(out, change);
    } else {
        capsule_change_text(out, change);
    }
}

void run_changes_text(struct str *out, const json_t *changes, int most)
{
    size_t i;
    json_t *c;
    json_array_foreach(changes, i, c)
    {
        if ((int)i == most) {
            str_printf(out, "; %d more", (int)json_array_size(changes) - most);
            return;
        }
        if (i) str_append(out, "; ");
        run_change_text(out, c);
    }
}

/* ---------------------------------------------------------------- in words */

static const char *which_unknown(bool before, bool after)
{
    return before && after ? "both runs" : before ? "the first run" : "the second run";
}

void run_changes_lead(struct str *out, const struct run_recorded *before, const struct run_recorded *after,
                      const json_t *changes)
{
    char load[192];
    const int n = (int)json_array_size(changes);
    const bool a = !conditions_load_known(before->conditions), b = !conditions_load_known(after->conditions);
    if (conditions_load(load, sizeof load, before->conditions, after->conditions))
        str_printf(out, "first suspicion: %s. That load alone can explain a difference in speed.\n", load);
    if (a || b)
        str_printf(out, "how busy other programs kept the machine during %s was not recorded\n",
                   which_unknown(a, b));
    if (!before->capsule || !after->capsule)
        str_printf(
            out,
            "the set-up of %s (program, settings, kernel) was not recorded, so changes of it are unknown\n",
            which_unknown(!before->capsule, !after->capsule));
    if (n)
        str_printf(out, "%d recorded %s between the runs:\n", n, n == 1 ? "thing differs" : "things differ");
    else if (before->capsule && after->capsule)
        str_printf(out,
                   "nothing that was recorded differs between the runs: program, models, settings, kernel, "
                   "environment%s (only the canary tells whether the machine's speed changed)\n",
                   a || b ? "" : ", load, clock and temperature of the machine");
}
