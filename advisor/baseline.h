/* advisor/baseline.h - a champion kept by name, and the experiment that asks whether it still is one.
 *
 * What is kept is how to measure it (config line, model by hash, workload, metric, margin). The number it had
 * is kept for people; a machine of another day never meets it: the champion is measured anew beside the
 * challenger. */
#ifndef QDYNO_ADVISOR_BASELINE_H
#define QDYNO_ADVISOR_BASELINE_H

#include "advisor/experiment.h"
#include "advisor/results.h"

/* The file is there and is the model it was. want: SHA-256 or "" when that was never known. Errors:
 * ERR_FORMAT with what to do. */
enum err_code model_check(const char *path, const char *want, struct err *why);

/* Name and margin are the caller's. arm -1: the best of a run that ended `better`, else A. workload NULL: the
 * run's; needed where the run has several. Errors: ERR_USAGE when the run has no such result, or does not say
 * which file its model was. */
enum err_code baseline_of_run(struct baseline_row *out, const struct results *r, int arm,
                              const char *workload, struct err *why);

/* A config line's own champion: model, workload and metric (NULL: the workload's main one) are checked now,
 * so that `check` does not fail for them later. model_path "" where the workload trains. Errors: as
 * gguf_open; ERR_USAGE when the workload does not give the metric. */
enum err_code baseline_of_config(struct baseline_row *out, const struct config *c, const char *model_path,
                                 const struct workload *w, const struct metric *metric, struct err *why);

/* Arm A: the champion; arm B: `challenger` on challenger_model (NULL: the champion's). Checks the champion's
 * model. ERR_USAGE when both are the same. */
enum err_code baseline_spec(struct experiment_spec *out, const struct baseline_row *b,
                            const struct config *challenger, const char *challenger_model, struct err *why);

#endif
