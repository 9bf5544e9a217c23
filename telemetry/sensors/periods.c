/* telemetry/sensors/periods.c - parses the sampling periods that the user sets.
 *
 * A period below the sensor's own resolution is refused, because it would repeat values, and each repeated
 * value would count in a mean like a measurement. */
#include "telemetry/sensors/sensors.h"

#include <string.h>

#include "telemetry/metrics/metrics.h"

static enum err_code sensor_unknown(const char *name, struct err *why)
{
    const char *names[METRIC_SENSOR_COUNT];
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) names[i] = METRICS[i].name;
    const char *near = str_nearest(name, names, METRIC_SENSOR_COUNT);
    /* str_nearest allows few edits and misses "cpu_busy" for "cpu_busy_ratio" */
    for (int i = 0; !near && *name && i < METRIC_SENSOR_COUNT; i++)
        if (strstr(names[i], name)) near = names[i];
    return err_set(why, ERR_USAGE, "no sensor is called '%s'%s%s%s", name, near ? ": did you mean '" : "",
                   near ? near : ": `qdyno telemetry` lists them", near ? "'?" : "");
}

enum err_code sensor_find(enum metric_id *out, const char *name, struct err *why)
{
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++)
        if (!strcmp(METRICS[i].name, name)) {
            *out = (enum metric_id)i;
            return ERR_OK;
        }
    return sensor_unknown(name, why);
}

static enum err_code period_set(struct sampler_periods *p, char *setting, struct err *why)
{
    enum metric_id id = METRIC_SENSOR_COUNT;
    int64_t ms;
    char *equals = strchr(setting, '=');
    if (!equals)
        return err_set(
            why, ERR_USAGE,
            "sampling period '%s': expected SENSOR=MS (milliseconds), e.g. cpu_temperature_celsius=1000",
            setting);
    *equals = '\0';
    enum err_code rc = sensor_find(&id, setting, why);
    if (rc) return rc;
    if (!str_to_i64(equals + 1, &ms) || ms < 1 || ms > SAMPLER_PERIOD_MAX_MS)
        return err_set(why, ERR_USAGE, "period of %s: expected whole milliseconds from %d to %d, got '%s'",
                       setting, METRICS[id].least_ms, SAMPLER_PERIOD_MAX_MS, equals + 1);
    if (ms < METRICS[id].least_ms)
        return err_set(why, ERR_USAGE,
                       "period of %s: %lld ms is below the sensor's resolution; expected %d or more", setting,
                       (long long)ms, METRICS[id].least_ms);
    p->ms[id] = (int)ms;
    return ERR_OK;
}

enum err_code sampler_periods_parse(struct sampler_periods *p, const char *settings, struct err *why)
{
    char copy[4096];
    if (strlen(settings) >= sizeof copy)
        return err_set(why, ERR_USAGE, "periods: too long (%zu bytes)", strlen(settings));
    memcpy(copy, settings, strlen(settings) + 1);
    for (char *save, *setting = strtok_r(copy, ", ", &save); setting; setting = strtok_r(NULL, ", ", &save)) {
        enum err_code rc = period_set(p, setting, why);
        if (rc) return rc;
    }
    return ERR_OK;
}
