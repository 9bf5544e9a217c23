/* advisor/experiment/capsule.c - see capsule.h. */
#include "advisor/experiment/capsule.h"

#include "advisor/run/run.h"

enum err_code experiment_capsule(struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    struct capsule_arm arm[EXPERIMENT_ARMS];
    for (int i = 0; i < s->spec.arms; i++) {
        const char *own = config_text(&s->spec.config[i], KNOB_MODEL);
        arm[i] = (struct capsule_arm){ .line = s->arm[i].line,
                                       .resolved = s->arm[i].merged_known ? &s->arm[i].merged : NULL,
                                       .model_path = *own ? own : s->spec.model,
                                       .model_name = s->arm[i].model_name,
                                       .sha256 = s->arm[i].sha256 };
    }
    return capsule_store(x->db, s->run_id,
                         &(struct capsule_of){ &x->machine, "", x->program, arm, s->spec.arms }, &x->why);
}

enum err_code experiment_canary(struct experiment *x, enum canary_when when)
{
    return x->sampler ? canary_record(x->db, x->state.run_id, when, &x->why) : ERR_OK;
}
