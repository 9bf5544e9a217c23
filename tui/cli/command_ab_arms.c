/* The arms of `qdyno ab`: config lines on one workload, workloads with one config, or pairs of both. */
#include <math.h>

#include "advisor/stats/stats.h"
#include "tui/cli/command_ab_arms.h"

/* The number of arms; 0 when config lines and workloads do not fit together. */
static int arms_of(int configs, int workloads)
{
    if (workloads <= 1) return configs;
    if (configs <= 1) return workloads;
    return configs == workloads ? configs : 0;
}

enum err_code ab_arms(struct experiment_spec *s, const struct cli_args *a, struct err *why)
{
    const char *work[ARGS_GIVEN];
    struct workload w[EXPERIMENT_ARMS];
    const int works = args_all(a, "-w", work, ARGS_GIVEN), arms = arms_of(a->n, works);
    enum err_code rc = ERR_OK;
    if (works > 1 && !arms)
        return err_set(
            why, ERR_USAGE,
            "%d config lines and %d workloads: expected one workload for all configs, one config for "
            "all workloads, or as many workloads as configs, in the same order",
            a->n, works);
    if (works > EXPERIMENT_ARMS)
        return err_set(why, ERR_USAGE, "expected at most %d workloads, got %d: each -w is an arm",
                       EXPERIMENT_ARMS, works);
    if (arms < 2 || arms > EXPERIMENT_ARMS)
        return err_set(why, ERR_USAGE, "expected 2 to %d config lines, got %d: qdyno ab A B -w WORKLOAD",
                       EXPERIMENT_ARMS, MAX(a->n, arms));
    s->arms = arms;
    for (int i = 0; i < arms; i++) {
        const char *line = !a->n ? "" : a->n == 1 ? a->arg[0] : a->arg[i];
        rc = cli_config(&s->config[i], a, line, why);
        if (rc) return err_prefix(why, "arm %c", 'A' + i);
    }
    for (int i = 0; i < arms && !rc; i++)
        rc = workload_parse_prompts(&w[i],
                                    !works       ? "tg64"
                                    : works == 1 ? work[0]
                                                 : work[i],
                                    args_text(a, "--prompts", NULL), why);
    if (!rc) experiment_set_workloads(s, w, arms);
    s->as_systems = args_has(a, "--as-systems");
    return rc;
}

static void note_rate(struct table *t, const struct experiment_state *s, int arm, enum metric_id id)
{
    const struct interval e = s->comparison[arm].by_metric[id - METRIC_SENSOR_COUNT];
    if (&METRICS[id] == s->spec.metric || !isfinite(e.estimate)) return;
    if (isfinite(e.lower))
        table_note(t, "%c against A, %s: %+.2f %% [%+.2f, %+.2f] (95 %%)", 'A' + arm, METRICS[id].name,
                   stats_percent(e.estimate), stats_percent(e.lower), stats_percent(e.upper));
    else
        table_note(t, "%c against A, %s: %+.2f %%", 'A' + arm, METRICS[id].name, stats_percent(e.estimate));
}

void ab_arms_note(struct table *t, const struct experiment_state *s)
{
    char line[WORKLOAD_LINE];
    if (!s->spec.by_arm) return;
    for (int k = 1; k < s->spec.arms; k++) {
        note_rate(t, s, k, METRIC_TOTAL_RATE);
        note_rate(t, s, k, METRIC_SEQUENCE_RATE);
    }
    if (s->spec.as_systems)
        table_note(t,
                   "compared as systems (%s): the arms do different work, so the verdict is about what each "
                   "delivers, not about the same work done faster",
                   experiment_workload_line(&s->spec, line, sizeof line));
}
