/* advisor/experiment/residuals.c - records prediction residuals for each arm of a finished experiment. */
#include "advisor/experiment/parts.h"

#include <math.h>

bool experiment_arm_teaches(const struct experiment_state *s, int arm)
{
    const struct run_load load = experiment_run_load(
        s, MAX(arm, 1)); /* A's blocks are those of each challenger */
    return 2 * load.undisturbed >= load.blocks;
}

enum err_code experiment_residuals(struct experiment *x, struct err *why)
{
    const struct experiment_state *s = &x->state;
    const struct workload *w = &s->spec.workload; /* all arms' are of one kind */
    uint32_t usable;
    enum err_code rc = ERR_OK;
    if (s->phase != PHASE_DONE || s->blocks < 1 || *w->eval_file || w->train || workload_is_load(w))
        return ERR_OK;
    if (!x->run.ceilings || isa_usable(&usable, why) || usable != isa_detect()) return ERR_OK;
    for (int i = 0; i < s->spec.arms && !rc; i++) {
        const struct experiment_arm *arm = &s->arm[i];
        const char *named = config_text(&s->spec.config[i], KNOB_MODEL);
        if (arm->failed || config_is_foreign(&s->spec.config[i]) || !experiment_arm_teaches(s, i)) continue;
        const struct run_observation l = {
            .machine = &x->machine,
            .ceilings = x->run.ceilings,
            .model = *named ? named : s->spec.model,
            .config = &s->spec.config[i],
            .workload = experiment_workload(&s->spec, i),
            .decode_tok_s = arm->value[METRIC_DECODE_RATE],
            .prefill_tok_s = arm->value[METRIC_PREFILL_RATE],
            .peak_bytes = NAN, /* with two arms in memory, some of their buffers are never filled */
            .load_s = NAN,     /* loading may have included quantizing a recipe */
            .token_j = NAN,
            .conditions = run_conditions(&x->run),
            .run_id = s->run_id,
        };
        rc = residuals_record(x->db, &l, why);
    }
    return rc;
}
