/* Memory plans as JSON objects. */
#include <math.h>

#include "base/fields/fields.h"
#include "engine/plan/plan.h"

static const struct json_field PLAN_FIELDS[] = {
    JSON_FIELD(struct memory_plan, weights, "weights", COUNT),
    JSON_FIELD(struct memory_plan, kv, "kv", COUNT),
    JSON_FIELD(struct memory_plan, state, "state", COUNT),
    JSON_FIELD(struct memory_plan, compute, "compute", COUNT),
    JSON_FIELD(struct memory_plan, scratch, "scratch", COUNT),
    JSON_FIELD(struct memory_plan, total, "total", COUNT),
    JSON_FIELD(struct memory_plan, device, "device", COUNT),
    JSON_FIELD(struct memory_plan, on_disk, "on_disk", COUNT),
    JSON_FIELD(struct memory_plan, gpu_layers, "gpu_layers", INT),
    JSON_FIELD(struct memory_plan, expert_layers, "expert_layers", INT),
    JSON_FIELD(struct memory_plan, kv_bytes_per_token, "kv_bytes_per_token", COUNT),
    JSON_FIELD(struct memory_plan, decode_read_bytes, "decode_read_bytes", COUNT),
    JSON_FIELD(struct memory_plan, expert_read_bytes, "expert_read_bytes", COUNT),
    JSON_FIELD(struct memory_plan, flops_per_token, "flops_per_token", NUM),
    JSON_FIELD(struct memory_plan, ctx, "ctx", INT),
    JSON_FIELD(struct memory_plan, batch, "batch", INT),
    JSON_FIELD(struct memory_plan, sequences, "sequences", INT),
    JSON_FIELD(struct memory_plan, ranks, "ranks", INT),
    JSON_FIELD(struct memory_plan, rank_total, "rank_total", COUNT),
};

json_t *memory_plan_to_json(const struct memory_plan *p)
{
    json_t *o = json_object();
    json_put_fields(o, PLAN_FIELDS, COUNT_OF(PLAN_FIELDS), p);
    return o;
}

bool memory_plan_from_json(struct memory_plan *out, const json_t *object)
{
    if (!json_is_object(object)) return false;
    *out = (struct memory_plan){ .weights = -1,
                                 .kv = -1,
                                 .compute = -1,
                                 .scratch = -1,
                                 .total = -1,
                                 .kv_bytes_per_token = -1,
                                 .decode_read_bytes = -1,
                                 .expert_read_bytes = -1,
                                 .flops_per_token = (double)NAN };
    json_get_fields(object, PLAN_FIELDS, COUNT_OF(PLAN_FIELDS), out);
    return true;
}
