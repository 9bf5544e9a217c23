/* telemetry/gpu/gpu_json.c - the names of a reading's numeric fields, and the reading as JSON. */
#include "telemetry/gpu/gpu.h"

#include <string.h>

#define READING_FIELD(name, KIND) JSON_FIELD(struct gpu_reading, name, #name, KIND)
const struct json_field GPU_FIELDS[GPU_FIELD_COUNT] = {
    READING_FIELD(busy_ratio, NUM),
    READING_FIELD(memory_busy_ratio, NUM),
    READING_FIELD(mem_used_bytes, NUM),
    READING_FIELD(mem_total_bytes, NUM),
    READING_FIELD(host_mem_used_bytes, NUM),
    READING_FIELD(power_watts, NUM),
    READING_FIELD(power_instant_watts, NUM),
    READING_FIELD(power_limit_watts, NUM),
    READING_FIELD(energy_joules, NUM),
    READING_FIELD(temperature_celsius, NUM),
    READING_FIELD(hotspot_temperature_celsius, NUM),
    READING_FIELD(memory_temperature_celsius, NUM),
    READING_FIELD(fan_ratio, NUM),
    READING_FIELD(core_hertz, NUM),
    READING_FIELD(core_max_hertz, NUM),
    READING_FIELD(memory_hertz, NUM),
    READING_FIELD(pcie_rx_bytes_s, NUM),
    READING_FIELD(pcie_tx_bytes_s, NUM),
    READING_FIELD(ecc_corrected, NUM),
    READING_FIELD(ecc_uncorrected, NUM),
};

double gpu_field_get(const struct gpu_reading *r, const struct json_field *f)
{
    return *(const double *)((const char *)r + f->offset);
}

/* -1, unknown, becomes null. */
static void put_count(json_t *o, const char *key, int n)
{
    json_put(o, key, n < 0 ? json_null() : json_integer(n));
}

json_t *gpu_reading_to_json(const struct gpu_reading *r)
{
    json_t *o = json_object(), *reasons = json_array(), *list = json_array();
    json_put_int(o, "index", r->index);
    json_put_str(o, "vendor", r->vendor);
    json_put_str(o, "name", r->name);
    json_put_str(o, "uuid", *r->uuid ? r->uuid : NULL);
    json_put_str(o, "bus", *r->bus ? r->bus : NULL);
    json_put_bool(o, "lost", r->lost);
    json_put_fields(o, GPU_FIELDS, GPU_FIELD_COUNT, r);
    put_count(o, "pcie_generation", r->pcie_generation);
    put_count(o, "pcie_width", r->pcie_width);
    put_count(o, "partitions", r->partitions);
    for (int i = 0; i < GPU_THROTTLE_COUNT && r->throttle_known; i++)
        if (r->throttle_reasons & GPU_THROTTLES[i].bit)
            json_array_append_new(reasons, json_string(GPU_THROTTLES[i].name));
    json_put(o, "throttle_reasons", r->throttle_known ? reasons : json_null());
    if (!r->throttle_known) json_decref(reasons);
    put_count(o, "processes", r->processes);
    for (int i = 0; i < r->process_count; i++) {
        json_t *p = json_object();
        json_put_int(p, "pid", r->process[i].pid);
        json_put_num(p, "mem_used_bytes", r->process[i].mem_used_bytes);
        json_array_append_new(list, p);
    }
    json_put(o, "largest_processes", list);
    return o;
}
