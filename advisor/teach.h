/* advisor/teach.h - what runs leave behind for the next prediction (learn.h reads it). */
#ifndef QDYNO_ADVISOR_TEACH_H
#define QDYNO_ADVISOR_TEACH_H

#include "advisor/experiment.h"
#include "advisor/predict.h"

/* What a run measured, for the next prediction: NAN where it did not. */
struct lesson {
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const char *model; /* path */
    const struct config *config;
    const struct workload *workload;
    double decode_tok_s, prefill_tok_s, peak_bytes, load_s, token_j;
    double decode_noise, prefill_noise; /* struct lesson_work */
    struct conditions now;
    int64_t run_id; /* 0: none */
};
/* Predict as it would have been told just now, for how fast the machine was, and keep that beside what was
 * measured. */
enum err_code lesson_keep(struct db *d, const struct lesson *l, struct err *why);
/* The same of every arm of an experiment that came to its end; of others nothing. */
enum err_code lesson_keep_run(struct db *d, const struct experiment_state *s, const struct machine *machine,
                              const struct machine_ceilings *ceilings, struct err *why);

#endif
