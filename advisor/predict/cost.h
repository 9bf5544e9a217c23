/* advisor/predict/cost.h - how long the operations of a forward pass take on a machine: measured there where
 * it was, assumed from its ceilings where not. Internal to advisor/. */
#ifndef QDYNO_ADVISOR_COST_H
#define QDYNO_ADVISOR_COST_H

#include "advisor/predict/predict.h"
#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"
#include "telemetry/telemetry.h"

/* One configuration on one machine. */
struct cost {
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct backend_options options; /* isa, precision and act of the config */
    enum kernel_variant variant;
    int threads, threads_all;
    bool on_gpu;               /* its GPU computes instead */
    double footprint;          /* bytes that one decode step reads */
    double bandwidth;          /* bytes/s of them at best; NAN unknown */
    double computing, waiting; /* how many times as long as while kernels were timed: arithmetic, memory */
    bool cached; /* as if all weights lay in a cache: what is left of the time is not waiting for memory */
    bool shared; /* some call so far was large enough for several threads */
    int assumed; /* lookups so far that nothing measured answered */
};
/* Borrows machine and ceilings. now: what is not known was as it was while kernels were timed. */
void cost_init(struct cost *c, const struct machine *machine, const struct machine_ceilings *ceilings,
               const struct config *config, bool on_gpu, const struct conditions *now);

/* Seconds; NAN where a ceiling is missing. */
double cost_product(struct cost *c, const struct model_product *p, int n); /* one of its count, of n rows */
/* `n` rows, each looks back at `depth` tokens on average; `many`: they are consecutive tokens of one
 * sequence. */
struct cost_attention {
    const struct format *k, *v;
    int heads, kv_heads, dim_k, dim_v;
    double n, depth;
    bool many;
};
double cost_attention(struct cost *c, const struct cost_attention *a);
double cost_waking(const struct cost *c); /* the other threads, once; 0 where nobody timed that */
double cost_glue(struct cost *c, int64_t embd, int n); /* the rest of one layer */

/* The machine's limits, at the config's threads: bytes/s, and operations/s of one kind ("f32_fma"). */
double cost_bandwidth(const struct cost *c);
double cost_operations(const struct cost *c, const char *name);
double cost_one_row_operations(const struct cost *c, const struct format *weights);
double cost_many_rows_operations(const struct cost *c, const struct format *weights);
int cost_threads(const struct config *c, const struct machine *m); /* what threads= means there */
int64_t cost_cache_bytes(const struct machine *m);

#endif
