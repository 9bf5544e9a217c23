/* advisor/experiment/workloads.c - arms with workloads of their own: which figures of two workloads can be
 * compared.
 *
 * Workloads that differ only in how many sequences run side by side, or only in when requests arrive, do the
 * same work for each sequence or request. Everything else is different work: a comparison then says which
 * system delivers more, not which does the same faster, and has to be asked for (as_systems). */
#include "advisor/experiment/parts.h"

#include <stdio.h>
#include <string.h>

const struct workload *experiment_workload(const struct experiment_spec *s, int arm)
{
    return s->by_arm ? &s->arm_workload[arm] : &s->workload;
}

char *experiment_workload_line(const struct experiment_spec *s, char *buf, size_t size)
{
    char line[WORKLOAD_LINE];
    struct str all = { 0 };
    const int arms = s->by_arm ? s->arms : 1;
    for (int i = 0; i < arms; i++)
        str_printf(&all, "%s%s", i ? " vs " : "",
                   workload_line(experiment_workload(s, i), line, sizeof(line)));
    snprintf(buf, size, "%s", str_text(&all));
    str_free(&all);
    return buf;
}

char *experiment_arm_line(const struct experiment_state *s, int arm, char *buf, size_t size)
{
    char line[WORKLOAD_LINE];
    const bool own = s->spec.by_arm;
    snprintf(buf, size, "%s%s%s", s->arm[arm].line, own ? " on " : "",
             own ? workload_line(&s->spec.arm_workload[arm], line, sizeof(line)) : "");
    return buf;
}

static bool same_workload(const struct workload *a, const struct workload *b)
{
    char first[WORKLOAD_LINE], second[WORKLOAD_LINE];
    return !strcmp(workload_line(a, first, sizeof(first)), workload_line(b, second, sizeof(second)));
}

void experiment_set_workloads(struct experiment_spec *s, const struct workload *w, int n)
{
    s->workload = w[0];
    s->by_arm = false;
    for (int i = 0; i < n; i++) {
        s->arm_workload[i] = w[i];
        s->by_arm = s->by_arm || !same_workload(&w[0], &w[i]);
    }
}

/* Do two arms run the same file? Another file may have another tokenizer, and so other prompts. A server's
 * name of a model is no file. */
static bool same_file(const struct experiment_spec *s, int a, int b)
{
    if (*config_text(&s->config[a], KNOB_URL) || *config_text(&s->config[b], KNOB_URL)) return true;
    const char *x = config_text(&s->config[a], KNOB_MODEL), *y = config_text(&s->config[b], KNOB_MODEL);
    return !strcmp(*x ? x : s->model, *y ? y : s->model);
}

int work_of_arm(const struct experiment_spec *s, int arm)
{
    int first = 0;
    while (first < arm && !(same_file(s, first, arm) &&
                            same_workload(experiment_workload(s, first), experiment_workload(s, arm))))
        first++;
    return first;
}

bool works_differ(const struct experiment_spec *s, const char (*hash)[24])
{
    for (int a = 0; a < experiment_arms(s); a++)
        for (int b = 0; b < a; b++)
            if (*hash[a] && *hash[b] && strcmp(hash[a], hash[b]) &&
                same_workload(experiment_workload(s, a), experiment_workload(s, b)))
                return true;
    return false;
}

bool spec_has_sequence_rates(const struct experiment_spec *s)
{
    return s->by_arm || s->metric == &METRICS[METRIC_TOTAL_RATE] ||
           s->metric == &METRICS[METRIC_SEQUENCE_RATE];
}

/* ---------------------------------------------------------------- what can be compared */

/* Figures of one token, one second or one process: the number of sequences is not a factor of them. */
static const enum metric_id PER_UNIT[] = { METRIC_TOTAL_RATE,
                                           METRIC_SEQUENCE_RATE,
                                           METRIC_DECODE_RATE,
                                           METRIC_PREFILL_RATE,
                                           METRIC_SERVER_DECODE_RATE,
                                           METRIC_SERVER_PREFILL_RATE,
                                           METRIC_ITL_P50,
                                           METRIC_ITL_P95,
                                           METRIC_ITL_P99,
                                           METRIC_CHUNK_GAP,
                                           METRIC_PEAK_MEMORY,
                                           METRIC_MEMORY_AFTER };

static bool is_per_unit(int metric)
{
    for (size_t i = 0; i < COUNT_OF(PER_UNIT); i++)
        if ((int)PER_UNIT[i] == metric) return true;
    return metric >= METRIC_LOAD_FIRST && metric <= METRIC_LOAD_LAST;
}

/* The work of one sequence or request: the workload without how many run side by side, or when they come. */
static void unit_line(const struct workload *w, char line[WORKLOAD_LINE])
{
    struct workload one = *w;
    one.sequences = 1;
    if (workload_is_load(w)) {
        const struct workload_load *l = &w->load;
        const bool trace = l->arrivals == LOAD_TRACE;
        one.load.arrivals = trace ? LOAD_TRACE : LOAD_CLOSED;
        one.load.rate = one.load.think_s = 0;
        one.load.burstiness = one.load.speed = 1;
        one.load.concurrency = trace ? l->concurrency : 1;
        one.load.requests = trace || *l->prompts ? l->requests : 1; /* other requests have other prompts */
        one.load.auto_rate = false;
    }
    workload_line(&one, line, WORKLOAD_LINE);
}

static bool same_unit(const struct workload *a, const struct workload *b)
{
    char first[WORKLOAD_LINE], second[WORKLOAD_LINE];
    unit_line(a, first);
    unit_line(b, second);
    return !strcmp(first, second);
}

bool experiment_comparable(const struct experiment_spec *s, int arm, int metric)
{
    const struct workload *a = experiment_workload(s, 0), *b = experiment_workload(s, arm);
    if (!s->by_arm || s->as_systems || same_workload(a, b)) return true;
    return same_unit(a, b) && is_per_unit(metric);
}

const struct metric *workloads_default_metric(const struct experiment_spec *s)
{
    const struct metric *first = experiment_default_metric(&s->workload);
    bool same = workload_is_load(&s->workload);
    for (int i = 1; i < s->arms && s->by_arm; i++)
        same = same && experiment_default_metric(&s->arm_workload[i]) == first;
    return !s->by_arm || same ? first : &METRICS[METRIC_TOTAL_RATE];
}

/* ---------------------------------------------------------------- refusing the rest */

/* ERR_USAGE when a figure of arm `arm` says nothing beside that of A. */
static enum err_code pair_check(const struct experiment_spec *s, int arm, int metric, struct err *why)
{
    char a[WORKLOAD_LINE], b[WORKLOAD_LINE];
    if (experiment_comparable(s, arm, metric)) return ERR_OK;
    workload_line(experiment_workload(s, 0), a, sizeof(a));
    workload_line(experiment_workload(s, arm), b, sizeof(b));
    if (same_unit(experiment_workload(s, 0), experiment_workload(s, arm)))
        return err_set(
            why, ERR_USAGE,
            "%s of arm A (%.120s) and of arm %c (%.120s) is of different amounts of work: expected "
            "a figure per token or per second, such as total_tok_s or sequence_tok_s; "
            "--as-systems compares it anyway",
            METRICS[metric].name, a, 'A' + arm, b);
    return err_set(why, ERR_USAGE,
                   "arm A (%.120s) and arm %c (%.120s) do different work, so their %s cannot be compared: "
                   "expected workloads that differ only in the number of sequences (@bN), or only in when "
                   "requests arrive; --as-systems compares them as systems",
                   a, 'A' + arm, b, METRICS[metric].name);
}

/* Terms of the gate that compare with A need a figure that can be compared. */
static enum err_code gate_check(const struct experiment_spec *s, struct err *why)
{
    struct gate g;
    enum err_code rc = ERR_OK;
    if (!*s->gate || gate_parse(&g, s->gate, NULL)) return ERR_OK; /* the command reports a wrong gate */
    for (int arm = 1; arm < s->arms; arm++)
        for (int i = 0; i < g.terms && !rc; i++)
            if (g.term[i].metric >= 0 && g.term[i].scale != 0) rc = pair_check(s, arm, g.term[i].metric, why);
    return rc ? (err_prefix(why, "--gate"), rc) : ERR_OK;
}

enum err_code workloads_check(const struct experiment_spec *s, struct err *why)
{
    char line[WORKLOAD_LINE];
    enum err_code rc = ERR_OK;
    if (s->as_systems && !s->by_arm)
        return err_set(why, ERR_USAGE,
                       "--as-systems compares arms with different workloads: expected several -w");
    if (!s->by_arm) return ERR_OK;
    for (int i = 0; i < s->arms; i++) {
        const struct workload *w = &s->arm_workload[i];
        if (*w->eval_file || w->train || workload_is_load(w) != workload_is_load(&s->workload))
            return err_set(why, ERR_USAGE,
                           "arm %c (%.200s): workloads of arms that differ must all generate or read tokens "
                           "(pp512, tg64@b16), or all be loads (load:...)",
                           'A' + i, workload_line(w, line, sizeof(line)));
    }
    if (s->turns == TURNS_ON)
        return err_set(why, ERR_USAGE,
                       "--turns on needs turns of the same work, and the workloads of the arms differ: "
                       "expected --turns off or auto");
    for (int i = 1; i < s->arms && !rc; i++) rc = pair_check(s, i, (int)(s->metric - METRICS), why);
    return rc ? rc : gate_check(s, why);
}
