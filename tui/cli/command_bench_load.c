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
    json_put_str(row, "failed_because", *all->failed ? all->failed : NULL);
}

/* What a server with a /metrics page counts itself (advisor/run/server_page.h). */
static const struct {
    const char *key, *column;   /* in the answer to a cell; of the row */
    const char *before, *after; /* the figure in a sentence */
    double factor;              /* to the unit of the sentence; 0: a count */
} SERVER[] = {
    { "requests", "server_requests", "", " requests", 0 },
    { "prompt_tokens", "server_prompt_tokens", "", " prompt tokens", 0 },
    { "cached_tokens", "server_cached_tokens", "", " of them in its prefix cache", 0 },
    { "generated_tokens", "server_generated_tokens", "", " generated tokens", 0 },
    { "preemptions", "server_preemptions", "", " preemptions", 0 },
    { "queue_s", "server_queue_s", "mean time in its queue ", " ms", 1e3 },
    { "ttft_s", "server_ttft_s", "mean time to the first token ", " ms", 1e3 },
    { "itl_s", "server_itl_s", "mean time between tokens ", " ms", 1e3 },
    { "e2e_s", "server_e2e_s", "mean time of a request ", " ms", 1e3 },
};

void bench_put_server(json_t *row, const json_t *server)
{
    for (size_t i = 0; server && i < COUNT_OF(SERVER); i++) {
        const double v = json_get_num(server, SERVER[i].key, NAN);
        if (isnan(v)) continue;
        if (SERVER[i].factor > 0)
            json_put_num(row, SERVER[i].column, v);
        else
            json_put_int(row, SERVER[i].column, (int64_t)v);
    }
}

void bench_note_steady(struct table *t, const json_t *row)
{
    const double left_out = json_get_num(row, "warmup_requests", NAN);
    if (isnan(left_out)) return;
    if (left_out > 0)
        table_note(
            t,
            "TTFT, TPOT, queue time and percentiles of %s are of the steady state only, without the first "
            "%.3g requests of a repetition; e2e ms, requests/s and tok/s are of all completed requests",
            json_get_str(row, "workload", ""), left_out);
    else
        table_note(t,
                   "the times of %s are of all completed requests: the load was steady from the first one on",
                   json_get_str(row, "workload", ""));
}

void bench_note_server(struct table *t, const json_t *row)
{
    struct str text = { 0 };
    for (size_t i = 0; i < COUNT_OF(SERVER); i++) {
        const double v = json_get_num(row, SERVER[i].column, NAN);
        if (isnan(v)) continue;
        str_printf(&text, "%s%s%.*f%s", text.len ? ", " : "", SERVER[i].before, SERVER[i].factor > 0 ? 2 : 0,
                   SERVER[i].factor > 0 ? SERVER[i].factor * v : v, SERVER[i].after);
    }
    if (text.len && !text.failed)
        table_note(t,
                   "the server's own count (its /metrics page) over all requests of the last repetition of "
                   "%s, also those before the steady state: %s",
                   json_get_str(row, "workload", ""), str_text(&text));
    str_free(&text);
}

void bench_add_fill(struct tally_totals *all, const struct measured_cell *c)
{
    all->fill_s += fmax(c->field[FIELD_FILL_S], 0); /* 0 where it is unknown */
    all->filled_tokens += fmax(c->field[FIELD_FILLED_TOKENS], 0);
}

void bench_put_fill(json_t *row, const struct tally_totals *all)
{
    if (!(all->filled_tokens > 0)) return;
    json_put_num(row, "fill_s", all->fill_s);
    json_put_int(row, "filled_tokens", (int64_t)all->filled_tokens);
}
