/* advisor/run/profile.h - what the operators of a model's forward passes took, summed over the cells of a
 * run. Part of run.h. */
#ifndef QDYNO_ADVISOR_RUN_PROFILE_H
#define QDYNO_ADVISOR_RUN_PROFILE_H

#include "base/base.h"
#include "engine/config/config.h"
#include "engine/model/model.h"

struct machine;
struct machine_ceilings;

/* Sums over all passes. */
struct operator_sum {
    int64_t calls;
    double seconds, bytes, ops;  /* struct profile_cell */
    int64_t rows;                /* of the largest product, or of attention */
    const struct format *format; /* of that product's weights; NULL: no product */
    double limit_s;              /* least seconds by the machine's limits; NAN: none, or unknown */
    double memory_limit_s;       /* the part of limit_s that reading memory sets, not arithmetic */
};

enum run_phase { PHASE_PREFILL, PHASE_DECODE, PHASE_COUNT };
extern const char *const PHASE_NAMES[PHASE_COUNT];

struct run_profile {
    int layers; /* 0: nothing was added */
    struct phase_profile {
        int64_t passes;
        double seconds;            /* wall time of the passes */
        struct operator_sum *sums; /* owned: [layers + 1][OPERATOR_COUNT]; run_profile_at */
    } phase[PHASE_COUNT];
};

/* Adds the "profile" of a worker's answer to *p, which is {0} before the first one. ERR_FORMAT: it has none,
 * or with other layers or operators; ERR_NOMEM. */
enum err_code run_profile_add(struct run_profile *p, const json_t *answer, struct err *why);
/* Computes all limits. in_cache: the weights fit in the caches. */
void run_profile_limit(struct run_profile *p, const struct config *c, const struct machine *machine,
                       const struct machine_ceilings *ceilings, bool in_cache);

void run_profile_free(struct run_profile *p);

/* layer -1: outside the layers. */
struct operator_sum *run_profile_at(const struct run_profile *p, int phase, int layer, int op);
/* The same over all layers. */
struct operator_sum run_profile_over_layers(const struct run_profile *p, int phase, int op);
/* Over all operators and layers; `seconds` of the phase that are not in it belong to no operator. */
struct operator_sum run_profile_total(const struct run_profile *p, int phase);

/* Appends the profile in the format of flame graph tools: one "phase;layer N;operator microseconds" a line.
 */
void run_profile_fold(const struct run_profile *p, struct str *out);

#endif
