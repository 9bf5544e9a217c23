/* command_endings.c - see command_endings.h. */
#include "tui/cli/command_endings.h"

#include <math.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "tui/cli/lib/runs.h"

/* ---------------------------------------------------------------- bench */

/* The rate that a row of `bench` is about: the first that it has. */
static const struct figure {
    enum metric_id metric;
    const char *sd, *what; /* column of its standard deviation, or NULL */
} FIGURES[] = {
    { METRIC_DECODE_RATE, "decode_sd_tok_s", "decoding" },
    { METRIC_PREFILL_RATE, "prefill_sd_tok_s", "prefill" },
    { METRIC_SERVER_DECODE_RATE, NULL, "decoding by the server's clock" },
    { METRIC_SERVER_PREFILL_RATE, NULL, "prefill by the server's clock" },
    { METRIC_TRAIN_RATE, NULL, "training" },
    { METRIC_OUT_RATE, NULL, "generated tokens of all requests" },
};

static double figure_of(const json_t *row, const struct figure **which)
{
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++) {
        const double v = json_get_num(row, METRICS[FIGURES[i].metric].name, NAN);
        *which = &FIGURES[i];
        if (v > 0) return v;
    }
    return NAN;
}

/* One line for each row, at most so many: a grid has its table. */
enum { RESULTS_MOST = 4 };

static void put_bench_result(struct table *t, const json_t *row)
{
    const struct figure *f;
    const double value = figure_of(row, &f), sd = f->sd ? json_get_num(row, f->sd, NAN) : (double)NAN;
    char spread[48] = "";
    if (isfinite(sd)) snprintf(spread, sizeof spread, " +- %.1f", sd);
    table_result(t, "%s, %s: %s %.1f%s tokens/s", json_get_str(row, "config", "default"),
                 json_get_str(row, "workload", ""), f->what, value, spread);
}

void bench_close_table(struct table *t)
{
    const struct figure *unused;
    int disturbed = 0, all = 0, rows = 0;
    bool known = false, spread = false;
    for (size_t i = 0; i < json_array_size(t->rows); i++) {
        const json_t *row = json_array_get(t->rows, i);
        if (isnan(figure_of(row, &unused))) continue; /* it failed; one that failed later has a figure */
        all += (int)json_get_int(row, "repetitions", 0);
        disturbed += (int)json_get_int(row, "disturbed", 0);
        known |= json_is_integer(json_object_get(row, "disturbed"));
        spread |= json_get_int(row, "repetitions", 0) > 1;
        if (rows++ < RESULTS_MOST) put_bench_result(t, row);
    }
    if (!rows) return;
    if (rows > RESULTS_MOST)
        table_result(t, "and %d more row%s in the table", rows - RESULTS_MOST,
                     str_plural(rows - RESULTS_MOST));
    table_closing(t, "evidence: %d repetition%s in %d row%s%s", all, str_plural(all), rows, str_plural(rows),
                  spread ? "; +- is the standard deviation of the repetitions"
                         : "; one repetition of a row says nothing about its spread");
    if (!known)
        table_closing(t, "conditions: no load was measured beside the repetitions");
    else if (!disturbed)
        table_closing(t, "conditions: nothing disturbed the %d repetition%s", all, str_plural(all));
    else
        table_closing(
            t,
            "conditions: other work disturbed %d of %d repetition%s; all count, so these are speeds "
            "beside that load. Repeat this when the machine is quiet (qdyno doctor says what keeps it busy)",
            disturbed, all, str_plural(all));
}

/* ---------------------------------------------------------------- eval */

static bool put_eval_result(struct table *t, const json_t *row, const char *reference)
{
    const double ppl = json_get_num(row, METRICS[METRIC_PERPLEXITY].name, NAN),
                 se = json_get_num(row, "perplexity_se", NAN),
                 kld = json_get_num(row, METRICS[METRIC_KLD].name, NAN),
                 kld_se = json_get_num(row, "kld_se", NAN), top1 = json_get_num(row, "top1_ratio", NAN);
    const char *config = json_get_str(row, "config", "default"), *gate = json_get_str(row, "gate", NULL);
    char spread[32] = "", same[64] = "";
    if (isnan(ppl)) return false;
    const double e = isnan(kld) ? se : kld_se;
    if (isfinite(e)) snprintf(spread, sizeof spread, isnan(kld) ? " +- %.4f" : " +- %.2g", e);
    if (isfinite(top1)) snprintf(same, sizeof same, ", the same most likely token at %.1f %%", 100 * top1);
    if (isnan(kld))
        table_result(t, "%s: perplexity %.4f%s%s%s", config, ppl, spread, gate ? "; gate: " : "",
                     gate ? gate : "");
    else
        table_result(t, "%s against %s: KL divergence %.3g%s nats%s, perplexity %.4f%s%s", config, reference,
                     kld, spread, same, ppl, gate ? "; gate: " : "", gate ? gate : "");
    return true;
}

void eval_close_table(struct table *t, const char *reference)
{
    const json_t *first = NULL;
    for (size_t i = 0; i < json_array_size(t->rows); i++) {
        const json_t *row = json_array_get(t->rows, i);
        if (put_eval_result(t, row, reference) && !first) first = row;
    }
    if (!first) return;
    const int64_t windows = json_get_int(first, "chunks", 0),
                  tokens = json_get_int(first, "scored_tokens", 0);
    table_closing(t, "evidence: %lld window%s of %lld tokens, %lld of them scored%s", (long long)windows,
                  str_plural(windows), (long long)json_get_int(first, "ctx", 0), (long long)tokens,
                  windows > 1 ? "; +- is one standard error over windows"
                              : "; one window says nothing about the spread");
    table_closing(t, "conditions: text %s%s; the load of the machine does not change these figures",
                  json_get_str(first, "text_label", "n/a"), *reference ? ", the same windows for both" : "");
}

/* ---------------------------------------------------------------- the next command */

void close_with_run(struct table *t, int64_t run)
{
    table_next(t, "next: qdyno show %lld   (prints this again)", (long long)run);
}

void close_with_ab(struct table *t, int64_t run, const struct next_ab *next)
{
    struct str sides = { 0 };
    if (cli_append_pair(&sides, next->side)) {
        str_append(&sides, " -w ");
        word_append(&sides, next->workload);
        cli_note_run(t, run);
        table_next(t, "next: qdyno ab%s   (%s)", str_text(&sides), next->why);
    } else {
        close_with_run(t, run);
    }
    str_free(&sides);
}
