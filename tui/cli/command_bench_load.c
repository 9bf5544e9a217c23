/* What `qdyno bench` adds for loads: the search of the highest rate (rate=auto), and figures of a row. */
#include <math.h>
#include <stdio.h>

#include "tui/cli/command_bench_grid.h"

/* A rate with three digits: more say nothing, and lines with them are hard to read. */
static double three_digits(double rate)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", rate);
    str_to_double(text, &rate);
    return rate;
}

/* Measure one cell of the search. */
static enum err_code rate_cell(struct measured_cell *c, struct run *run, struct run_cell what,
                               const struct workload *w, struct err *why)
{
    char line[WORKLOAD_LINE];
    what.workload = workload_line(w, line, sizeof line);
    what.place.phase = "search";
    enum err_code rc = run_cell(run, &what, c, why);
    if (!rc && c->failure.code) {
        *why = c->failure;
        rc = c->failure.code;
    }
    return rc;
}

/* Requests per second of as many clients as the model serves at a time. */
static enum err_code capacity_measure(double *capacity, struct run *run, const struct run_cell *what,
                                      const struct workload *asked, const struct config *config,
                                      struct err *why)
{
    struct workload w = *asked;
    struct measured_cell c = { 0 };
    w.load.auto_rate = false;
    w.load.arrivals = LOAD_CLOSED;
    w.load.think_s = 0;
    w.load.burstiness = 1;
    w.load.meet = LOAD_MEET;
    w.load.concurrency = MIN(workload_sequences_for(asked, config), w.load.requests / w.load.turns);
    const enum err_code rc = rate_cell(&c, run, *what, &w, why);
    *capacity = c.value[METRIC_REQUEST_RATE];
    cell_done(&c);
    return rc;
}

enum err_code bench_find_rate(struct workload *w, struct run *run, const struct run_cell *what,
                              const struct config *config, struct err *why)
{
    struct rate_search search;
    const struct workload asked = *w;
    double capacity, rate;
    enum err_code rc = capacity_measure(&capacity, run, what, &asked, config, why);
    if (rc) return rc;
    rate_search_init(&search, capacity);
    while (!rc && !isnan(rate = rate_search_next(&search))) {
        struct measured_cell c = { 0 };
        w->load.auto_rate = false;
        w->load.meet = LOAD_MEET;
        w->load.rate = three_digits(rate);
        rc = rate_cell(&c, run, *what, w, why);
        if (!rc) rate_search_take(&search, w->load.rate, load_meets(&c.load, &asked.load));
        cell_done(&c);
    }
    if (!rc && !(search.low > 0))
        rc = err_set(
            why, ERR_USAGE,
            "no rate from %.3g to %.3g requests/s had a steady state in which %g %% of the requests met "
            "the limits; this config completes %.3g requests/s",
            search.high, capacity, 100 * asked.load.meet, capacity);
    w->load.rate = search.low;
    return rc;
}

void bench_put_load(json_t *row, const struct tally_totals *all, const struct workload *w)
{
    const int n = all->n;
    json_put_int(row, "steady", all->steady);
    json_put_num(row, "warmup_requests", all->steady == n ? (double)all->warmup / n : (double)NAN);
    json_put_num(row, "ttft_half_s", all->ttft_half_s / n);
    json_put_num(row, "tpot_half_s", all->tpot_half_s / n);
    json_put_num(row, "goodput_half_ratio", w->load.limits ? all->goodput_half / n : (double)NAN);
    json_put_str(row, "unsteady", *all->unsteady ? all->unsteady : NULL);
}
