/* advisor/experiment/residuals.c - records prediction residuals for each arm of a finished experiment. */
#include "advisor/experiment/experiment.h"

#include <math.h>

enum err_code residuals_record_experiment(struct db *d, const struct experiment_state *s, const struct machine *machine,
                              const struct machine_ceilings *ceilings, struct err *why)
{
    const struct workload *w = &s->spec.workload;
    enum err_code rc = ERR_OK;
    if (s->phase != PHASE_DONE || s->blocks < 1 || *w->eval_file || w->train) return ERR_OK;
    for (int i = 0; i < MAX(s->spec.arms, 2) && !rc; i++) {
        const struct experiment_arm *arm = &s->arm[i];
        const char *named = config_text(&s->spec.config[i], KNOB_MODEL);
        if (arm->failed) continue;
        rc = residuals_record(
            d,
            &(struct run_observation){ .machine = machine,
                              .ceilings = ceilings,
                              .model = *named ? named : s->spec.model,
                              .config = &s->spec.config[i],
                              .workload = w,
                              .decode_tok_s = arm->value[METRIC_DECODE_RATE],
                              .prefill_tok_s = arm->value[METRIC_PREFILL_RATE],
                              .peak_bytes = NAN, /* of two models' buffers some are never filled */
                              .load_s = NAN,     /* recipes may have been made in it */
                              .token_j = NAN,
                              .run_id = s->run_id },
            why);
    }
    return rc;
}
