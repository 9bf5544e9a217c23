/* The machine's limit for single operators of a forward pass: bytes over bandwidth, or arithmetic over the
 * highest rate of the instructions that the operator may use. */
#include <math.h>

#include "advisor/predict/cost.h"

/* Highest operations per second for that work; NAN: unknown. */
static double operations_s(const struct cost *c, const struct operator_work *w)
{
    const bool many = w->rows > 1;
    const double one_row = w->weights ? cost_gemv_operations(c, w->weights) : cost_operations(c, "f32_fma");
    if (!many) return one_row;
    if (w->weights) return fmax(one_row, cost_gemm_operations(c, w->weights));
    if (c->options.precision == PRECISION_HIGHEST) return one_row;
    /* attention of many rows may multiply bf16 numbers */
    return fmax(one_row, fmax(cost_operations(c, "bf16_dot"), cost_operations(c, "bf16_tile")));
}

double predict_operator_limit_s(const struct operator_work *w, const struct config *c,
                                const struct machine *machine, const struct machine_ceilings *ceilings,
                                bool *by_memory)
{
    struct cost cost;
    cost_init(&cost, machine, ceilings, c, false, &(struct conditions){ 0 });
    const double compute_s = w->ops / operations_s(&cost, w), read_s = w->bytes / cost_bandwidth(&cost);
    *by_memory = !w->in_cache && read_s >= compute_s;
    if (!(w->ops > 0) || isnan(compute_s)) return NAN;
    if (w->in_cache) return compute_s;
    return isnan(read_s) ? NAN : fmax(read_s, compute_s);
}
