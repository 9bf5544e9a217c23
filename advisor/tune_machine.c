/* advisor/tune_machine.c - looks at the machine beside the race.
 *
 * Candidates are timed one after the other, on a machine that others may use: one that was timed in a bad
 * moment would be dropped for it. So the machine is looked at before and after each, and what a rate would
 * have been on the usual one is what the race goes by; what the predictor says of both is all it takes for
 * that. Where kernels were not timed, nobody knows what is usual, and rates stand as they are. */
#include "advisor/tune_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void tune_machine_look(struct tuning *t, const struct tune_candidate *of, int pid)
{
    static const char *const THREADS[] = { "1", "0" }; /* 0: all */
    if (of->looks_by < 0) return;
    struct conditions_watch **w = &t->watch[of->looks_by];
    if (!*w) {
        struct config c;
        struct err ignored;
        config_default(&c);
        snprintf(c.value[KNOB_THREADS], sizeof c.value[0], "%s", THREADS[of->looks_by]);
        *w = calloc(1, sizeof **w);
        if (*w && conditions_watch_open(*w, &c, t->o->machine, t->o->ceilings, &ignored))
            conditions_watch_close(*w); /* it looks at nothing then */
    }
    if (*w) conditions_watch_look(*w, pid);
}

struct conditions tune_machine_seen(struct tuning *t, const struct tune_candidate *of)
{
    struct conditions_watch *w = of->looks_by < 0 ? NULL : t->watch[of->looks_by];
    if (!w) return (struct conditions){ 0 };
    const struct conditions now = conditions_of(w);
    conditions_watch_restart(w);
    return now;
}

void tune_machine_close(struct tuning *t)
{
    for (size_t i = 0; i < COUNT_OF(t->watch); i++) {
        if (t->watch[i]) conditions_watch_close(t->watch[i]);
        free(t->watch[i]);
        t->watch[i] = NULL;
    }
}

double tune_predicted(const struct tuning *t, const struct prediction *p)
{
    return t->out->metric == &METRICS[METRIC_DECODE_RATE] ? p->decode_tok_s : p->prefill_tok_s;
}

double tune_usual_rate(const struct tuning *t, const struct config *c, const struct conditions *now,
                       double rate)
{
    struct predict_for what = t->what;
    struct prediction usual, then;
    struct err ignored;
    if (!(now->core_ratio > 0) || predict(&usual, t->file, c, t->o->machine, t->o->ceilings, &what, &ignored))
        return rate;
    what.now = *now;
    if (predict(&then, t->file, c, t->o->machine, t->o->ceilings, &what, &ignored)) return rate;
    const double by = tune_predicted(t, &usual) / tune_predicted(t, &then);
    return isfinite(by) && by > 0 ? rate * by : rate;
}
