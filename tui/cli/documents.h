/* tui/cli/documents.h - every document that a command prints through a table. Its definition is beside its
 * columns in the file of the command. */
#ifndef QDYNO_CLI_DOCUMENTS_H
#define QDYNO_CLI_DOCUMENTS_H

#include "tui/cli/lib/output.h"

/* Adding a document: its name here, its definition in the command, its section in docs/documents.md. */
/* clang-format off */
#define DOCUMENT_LIST(X) \
    X(AB) \
    X(ACCURACY) \
    X(ADVISE) \
    X(ALERTS) \
    X(ALERT_LIST) \
    X(APPLY) \
    X(AUDIT) \
    X(BASELINE) \
    X(BASELINE_CHECK) \
    X(BENCH) \
    X(CACHE) \
    X(CALIBRATE) \
    X(CALIBRATION) \
    X(CAPSULE) \
    X(CAUSES) \
    X(CELLS) \
    X(CLAIMS) \
    X(COMPARE) \
    X(DETECT) \
    X(DIMENSIONS) \
    X(DOCTOR) \
    X(EVAL) \
    X(EVAL_TASK) \
    X(EXPERTS) \
    X(EXPERT_BATCHES) \
    X(FIT) \
    X(GOVERN) \
    X(HISTORY) \
    X(HISTORY_DETECT) \
    X(HISTORY_SUMMARY) \
    X(IMPORT) \
    X(INFO) \
    X(LINKS) \
    X(METHODS) \
    X(METHOD_ERRORS) \
    X(METHOD_TENSORS) \
    X(MODELS) \
    X(MODELS_PULL) \
    X(MODELS_REMOTE) \
    X(MODELS_SEARCH) \
    X(PARALLEL) \
    X(PROFILE) \
    X(PRUNE) \
    X(PUSH) \
    X(PUSH_QUEUE) \
    X(QUANTIZE) \
    X(QUANTIZED_TENSORS) \
    X(RECIPE) \
    X(REPLAY) \
    X(RUN) \
    X(SERVE) \
    X(SERVE_METRICS) \
    X(SHAPES) \
    X(STORIES) \
    X(STRATEGIES) \
    X(SYNTH) \
    X(TELEMETRY) \
    X(TELEMETRY_ROW) \
    X(TENSORS) \
    X(TEXTFILE) \
    X(TRAIN) \
    X(TUNE)
/* clang-format on */

#define DOCUMENT_DECLARE(name) extern const struct document DOCUMENT_##name;
DOCUMENT_LIST(DOCUMENT_DECLARE)
#undef DOCUMENT_DECLARE

extern const struct document *const DOCUMENTS[];
extern const size_t DOCUMENT_COUNT;

#endif
