/* advisor/predict/cost.h - predicts how long the operations of a forward pass take on a machine: from kernel
 * times measured there, or from shares of its ceilings. Internal to advisor/predict/. */
#ifndef QDYNO_ADVISOR_COST_H
#define QDYNO_ADVISOR_COST_H

#include "advisor/predict/predict.h"
#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"

/* One config on one machine. */
struct cost {
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct backend_options options; /* from the config: isa, precision, act, numa */
    enum kernel_variant variant;
    int threads, threads_all;
    bool on_gpu;      /* computed by the machine's GPU */
    double footprint; /* bytes that one decode step reads */
    double bandwidth; /* peak memory read bandwidth, bytes/s; NAN: unknown */
    /* current time / time when the kernels were timed: arithmetic, waits for memory */
    double compute_slowdown, memory_slowdown;
    bool all_cached;     /* pretend that all weights are in a cache, to separate arithmetic from waits */
    bool multi_threaded; /* some call so far was large enough for several threads */
    int assumed_lookups; /* lookups so far that used a share of a ceiling instead of a measured time */
};
/* Borrows machine and ceilings. conditions: unknown ones (0) count as unchanged since the kernels were timed.
 */
void cost_init(struct cost *c, const struct machine *machine, const struct machine_ceilings *ceilings,
               const struct config *config, bool on_gpu, const struct conditions *now);

/* All return seconds; NAN when a ceiling is missing. */
/* one of p->count products, with n input rows */
double cost_product(struct cost *c, const struct model_product *p, int n);
/* `n` query rows that each attend to `depth` cached tokens on average; `many`: they are consecutive tokens of
 * one sequence (prefill). */
struct cost_attention {
    const struct format *k, *v;
    int heads, kv_heads, dim_k, dim_v;
    bool v_in_k; /* values are a part of the keys: their bytes are not read again */
    double n, depth;
    bool many;
};
double cost_attention(struct cost *c, const struct cost_attention *a);
double cost_wake(const struct cost *c); /* waking the sleeping threads once; 0 when that was not timed */
double cost_elementwise(struct cost *c, int64_t embd, int n); /* norms, rotations and stores of one layer */

/* The machine's limits with the config's threads: bytes/s, and ops/s of one kind of arithmetic ("f32_fma").
 */
double cost_bandwidth(const struct cost *c);
double cost_operations(const struct cost *c, const char *name);
double cost_gemv_operations(const struct cost *c, const struct format *weights);
double cost_gemm_operations(const struct cost *c, const struct format *weights);
/* number of threads that the config's `threads` means on that machine */
int cost_threads(const struct config *c, const struct machine *m);
int64_t cost_cache_bytes(const struct machine *m);

/* Lists of numbers in files of the cache folder; NAN is null. */
json_t *numbers_to_json(const double *x, int n); /* new reference */
void numbers_from_json(double *x, int n, const json_t *list);

#endif
