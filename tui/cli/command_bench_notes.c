/* The notes below the table of `qdyno bench`. */
#include <math.h>
#include <string.h>

#include "engine/parallel/parallel.h"
#include "tui/cli/command_bench_grid.h"
#include "tui/cli/lib/lib.h"

static const double LIMIT_SLACK = 1.05; /* the limits are measured within a few percent */
static const double CONDITIONS_SLACK =
    0.85; /* below this share, other programs on the host use memory or cores */

void bench_note_rows(struct table *t, bool ceilings_known, bool without_text)
{
    bool random = false, unverified = false, beyond = false;
    const char *unsteady = NULL, *failed = NULL;
    double memory = 1, cores = 1;
    for (size_t i = 0; i < json_array_size(t->rows); i++) {
        const json_t *row = json_array_get(t->rows, i);
        random |= json_get_bool(row, "random_weights", false);
        unverified |= json_get_bool(row, "answers_unverified", false);
        if (json_get_str(row, "unsteady", NULL)) unsteady = json_get_str(row, "unsteady", NULL);
        if (json_get_str(row, "failed_because", NULL)) failed = json_get_str(row, "failed_because", NULL);
        bench_note_steady(t, row);
        bench_note_server(t, row);
        memory = fmin(memory, json_get_num(row, "memory_ratio", NAN));
        cores = fmin(cores, json_get_num(row, "core_ratio", NAN));
        beyond |= json_get_num(row, METRICS[METRIC_LIMIT_SHARE_PREFILL].name, 0) > LIMIT_SLACK ||
                  json_get_num(row, METRICS[METRIC_LIMIT_SHARE_DECODE].name, 0) > LIMIT_SLACK;
    }
    if (!ceilings_known) table_note(t, "for shares of the machine's limits run `qdyno detect --probe` once");
    if (beyond)
        table_note(
            t, "a rate is above the machine's limit: the weights fit in a cache, or the limit was measured "
               "while the machine was busy (repeat `qdyno detect --probe`)");
    if (memory < CONDITIONS_SLACK)
        table_note(
            t,
            "memory delivered weights at %.0f %% of the speed during `qdyno detect --kernels`, so decoding was slower",
            100 * memory);
    if (cores < CONDITIONS_SLACK)
        table_note(
            t,
            "the cores computed at %.0f %% of the speed during `qdyno detect --kernels`: other programs ran "
            "on them, or their clock was lower",
            100 * cores);
    if (unsteady)
        table_note(
            t,
            "times of requests (TTFT, ITL, queue) are shown only where every repetition settled at a steady level, "
            "because a mean over a growing queue depends on when one stops; not here: %s",
            unsteady);
    if (failed) table_note(t, "some requests failed and have no times. The first one: %s", failed);
    if (without_text)
        table_note(t, "no text can be given to this model, because its tokenizer is missing or not supported "
                      "(`qdyno tokenize -p x` says why); speed does not depend on it");
    cli_note_cautions(t, random, unverified);
}

/* What the sensors of a machine showed; no note where it has none. */
static void note_machine(struct table *t, const struct rank_usage *u)
{
    const struct machine_use *m = &u->machine;
    const struct {
        const char *name, *unit;
        double value;
        int digits;
    } SHOWN[] = { { "processors busy", "%", 100 * machine_busy(m), 0 },
                  { "clock", "GHz", m->frequency_hertz * 1e-9, 2 },
                  { "temperature", "°C", m->temperature_celsius, 0 },
                  { "processor power", "W", machine_watts(m), 1 } };
    char text[160] = "";
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(SHOWN); i++)
        if (isfinite(SHOWN[i].value) && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %.*f %s", n ? ", " : "", SHOWN[i].name,
                                  SHOWN[i].digits, SHOWN[i].value, SHOWN[i].unit);
    if (n) table_note(t, "machine %s, last repetition: %s", *u->host ? u->host : "?", text);
}

void bench_note_ranks(struct table *t, const struct config *c, const char *workload, const json_t *answer)
{
    struct rank_usage rank[RANKS_MAX];
    const struct parallel mode = config_parallel(c);
    const int n = rank_usage_list(rank, json_object_get(answer, "ranks"));
    for (int i = 0; i < n; i++) {
        char text[64], role[64];
        double share[RANK_SHARES];
        rank_shares(share, rank, n, i);
        if (isnan(share[RANK_COMPUTE]) || isnan(share[RANK_WAIT])) continue;
        table_note(
            t,
            "parallel=%s %s, last repetition: rank %d (%s) on %s computed %.0f %% of the time in passes, "
            "waited %.0f %%, exchanged data %.0f %%",
            parallel_text(&mode, text, sizeof text), workload, i, parallel_role(&mode, i, role, sizeof role),
            *rank[i].host ? rank[i].host : "?", 100 * share[RANK_COMPUTE], 100 * share[RANK_WAIT],
            100 * share[RANK_EXCHANGE]);
    }
    for (int i = 0; i < n; i++)
        if (rank[i].first_of_machine) note_machine(t, &rank[i]);
}
