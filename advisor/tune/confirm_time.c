/* advisor/tune/confirm_time.c - the time that the confirmation of a search takes, as the forecast of an
 * experiment with the times that the race measured. */
#include <math.h>

#include "advisor/tune/parts.h"

static const double SHARE_LEAST = 1.0 / 3, SHARE_MOST = 0.7; /* of the budget, for the confirmation */

static double needed_s(const struct tuning *t, int arms, bool control)
{
    struct experiment_forecast f;
    struct arm_time times[EXPERIMENT_ARMS];
    struct experiment_spec s = { .arms = arms,
                                 .workload = t->task.o->workload,
                                 .budget_s = t->task.o->budget_s,
                                 .control_blocks = control ? TUNE_CONTROL : -1 };
    const double start_s = t->costs.start.seconds;
    for (int i = 0; i < EXPERIMENT_ARMS; i++)
        times[i] = (struct arm_time){ .start_s = start_s > 0 ? start_s : 0,
                                      .settle_s = 0.5 * t->costs.cell.seconds,
                                      .cell_s = t->costs.cell.seconds,
                                      .prefill_token_s = NAN,
                                      .decode_token_s = NAN };
    forecast_of_arms(&f, &s, times);
    return f.needed_s;
}

double tune_confirm_s(const struct tuning *t, int arms, bool control)
{
    return t->costs.cell.seconds > 0 ? needed_s(t, arms, control) : (double)NAN;
}

double tune_reserve_s(const struct tuning *t)
{
    const double whole = t->task.o->budget_s;
    double needed = tune_confirm_s(t, 3, true);
    if (t->task.o->search_only) return 0;
    if (needed > 0.5 * whole) needed = tune_confirm_s(t, 2, true);
    return fmin(fmax(needed, SHARE_LEAST * whole), SHARE_MOST * whole); /* fmax: NAN is the least */
}

enum { STEP = 10 }; /* seconds: proposed budgets are multiples of it */

double tune_enough_s(const struct tuning *t, int arms, double more_s)
{
    const double again_s = t->costs.start.seconds > 0 ? arms * t->costs.start.seconds : 0;
    const double rest_s = isnan(more_s) ? tune_confirm_s(t, arms, true) : 1.2 * more_s + again_s;
    return STEP * ceil((tune_spent(t) + rest_s) / STEP);
}

double tune_enough_for_race_s(const struct tuning *t, double next_s)
{
    static const double SLACK = 2; /* the machine may be slower then, and more than one may be measured */
    const double least = tune_enough_s(t, 2, NAN) + SLACK * next_s; /* NAN: nothing was timed yet */
    return STEP * ceil(fmax(least, 2 * t->task.o->budget_s) / STEP);
}

int tune_control_blocks(const struct tuning *t, int arms)
{
    const double left_s = t->task.o->budget_s - tune_spent(t);
    return left_s < tune_confirm_s(t, arms, true) ? -1 : TUNE_CONTROL;
}
