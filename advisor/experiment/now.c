/* advisor/experiment/now.c - what happens now in a run that another process measures: the part of its state
 * that the database does not have, as JSON in both directions. Stored blocks are read with experiment_load,
 * so that no figure is derived twice. */
#include <string.h>

#include "advisor/experiment/parts.h"

#define NOW(member, name, KIND) JSON_FIELD(struct experiment_state, member, name, KIND)
static const struct json_field NOW_FIELDS[] = {
    NOW(run_id, "run", ID),
    NOW(started_ms, "started_ms", ID),
    NOW(running_arm, "arm", INT_OR_NULL),
    NOW(block, "block", INT_OR_NULL),
    NOW(slot, "slot", INT_OR_NULL),
    NOW(cell_phase, "cell", TEXT),
    NOW(cell_done, "cell_done", INT),
    NOW(cell_of, "cell_of", INT),
    NOW(live_tok_s, "cell_rate", NUM),
    NOW(elapsed_s, "elapsed_s", NUM),
    NOW(eta_s, "eta_s", NUM),
    NOW(reserved_s, "reserved_s", NUM),
    NOW(pausing, "pausing", BOOL),
    NOW(paused_since_ms, "paused_since_ms", ID),
    NOW(pauses, "pauses", INT),
    NOW(paused_s, "paused_s", NUM),
    NOW(spec.budget_s, "budget_s", NUM),
    NOW(spec.max_blocks, "max_blocks", INT),
    NOW(busiest, "busiest", TEXT),
    NOW(error, "error", TEXT),
};

#define OCCUPANCY(member) JSON_FIELD(struct occupancy, member, #member, INT)
static const struct json_field OCCUPANCY_FIELDS[] = {
    OCCUPANCY(arm),  OCCUPANCY(blocks), OCCUPANCY(used), OCCUPANCY(block_tokens),
    OCCUPANCY(rows), OCCUPANCY(batch),  OCCUPANCY(step), JSON_FIELD(struct occupancy, map, "map", TEXT),
};
/* Known of a load of requests only. */
static const struct json_field SERVED_FIELDS[] = { OCCUPANCY(cached), OCCUPANCY(spared), OCCUPANCY(running),
                                                   OCCUPANCY(waiting) };

bool occupancy_read(struct occupancy *o, int arm, const json_t *told)
{
    if (!json_is_object(told)) return false;
    *o = (struct occupancy){ .arm = arm, .step = 1, .serves = json_object_get(told, "waiting") != NULL };
    json_get_fields(told, OCCUPANCY_FIELDS, COUNT_OF(OCCUPANCY_FIELDS), o);
    json_get_fields(told, SERVED_FIELDS, COUNT_OF(SERVED_FIELDS), o);
    return true;
}

static json_t *occupancy_to_json(const struct occupancy *o)
{
    json_t *object = json_object();
    json_put_fields(object, OCCUPANCY_FIELDS, COUNT_OF(OCCUPANCY_FIELDS), o);
    if (o->serves) json_put_fields(object, SERVED_FIELDS, COUNT_OF(SERVED_FIELDS), o);
    return object;
}

static json_t *arm_to_json(const struct experiment_arm *a)
{
    json_t *o = json_object(), *ranks = json_array();
    json_put_bool(o, "ready", a->ready);
    json_put_str(o, "error", a->failed ? a->error : NULL);
    for (int i = 0; i < a->ranks; i++) json_array_append_new(ranks, rank_usage_to_json(&a->rank[i]));
    json_put(o, "ranks", ranks);
    return o;
}

static void arm_from_json(struct experiment_arm *a, const json_t *o)
{
    const char *error = json_get_str(o, "error", NULL);
    a->ready = json_get_bool(o, "ready", false);
    a->failed = error != NULL;
    snprintf(a->error, sizeof a->error, "%s", error ? error : "");
    arm_ranks_read(a, json_object_get(o, "ranks"));
}

json_t *experiment_now_to_json(const struct experiment_state *s)
{
    json_t *o = json_object(), *arms = json_array();
    json_put_str(o, "phase", EXPERIMENT_PHASES[s->phase]);
    json_put_fields(o, NOW_FIELDS, COUNT_OF(NOW_FIELDS), s);
    for (int i = 0; i < s->spec.arms; i++) json_array_append_new(arms, arm_to_json(&s->arm[i]));
    json_put(o, "arms", arms);
    json_put(o, "occupancy", s->occupancy.arm >= 0 ? occupancy_to_json(&s->occupancy) : json_null());
    json_put(o, "load", s->live_known ? live_to_json(&s->live) : json_null());
    json_put(o, "spec", s->run_id ? json_null() : experiment_spec_to_json(&s->spec));
    return o;
}

static bool phase_parse(enum experiment_phase *out, const char *name)
{
    for (int i = PHASE_LOADING; i <= PHASE_FAILED; i++)
        if (!strcmp(name, EXPERIMENT_PHASES[i])) {
            *out = (enum experiment_phase)i;
            return true;
        }
    return false;
}

bool experiment_now_from_json(struct experiment_state *s, const json_t *o)
{
    struct experiment_spec spec;
    enum experiment_phase phase;
    const json_t *given = json_object_get(o, "spec"), *arms = json_object_get(o, "arms");
    if (!json_is_object(o) || !phase_parse(&phase, json_get_str(o, "phase", ""))) return false;
    if (json_is_object(given)) {
        if (experiment_spec_from_json(&spec, given, NULL)) return false;
        state_init(s, &spec);
    }
    s->phase = phase;
    json_clear_fields(NOW_FIELDS, COUNT_OF(NOW_FIELDS), s);
    json_get_fields(o, NOW_FIELDS, COUNT_OF(NOW_FIELDS), s);
    s->running_arm = MIN(s->running_arm, s->spec.arms - 1);
    for (int i = 0; i < s->spec.arms; i++) arm_from_json(&s->arm[i], json_array_get(arms, (size_t)i));
    const json_t *occupancy = json_object_get(o, "occupancy");
    occupancy_read(&s->occupancy, (int)json_get_int(occupancy, "arm", -1), occupancy);
    s->live_known = live_read(&s->live, json_object_get(o, "load"));
    return true;
}
