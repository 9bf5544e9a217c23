/* advisor/experiment/ranks.c - what the processes of an arm (parallel=) used, from the worker's JSON and from
 * stored cells. */
#include "advisor/experiment/parts.h"

#include <string.h>

bool arm_ranks_read(struct experiment_arm *a, const json_t *list)
{
    if (!json_array_size(list)) return false;
    a->ranks = rank_usage_list(a->rank, list);
    return a->ranks > 0;
}

struct parallel experiment_arm_parallel(const struct experiment_state *s, int arm)
{
    return config_parallel(s->arm[arm].merged_known ? &s->arm[arm].merged : &s->spec.config[arm]);
}

int experiment_ranks(const struct experiment_state *s)
{
    int n = 0;
    for (int arm = 0; arm < s->spec.arms; arm++) n += s->arm[arm].ranks;
    return n;
}

static bool cell_ranks_read(struct experiment_arm *a, const struct cell_row *c)
{
    json_t *echo;
    if (json_parse(&echo, c->worker_json, strlen(c->worker_json), NULL)) return false;
    const bool read = arm_ranks_read(a, json_object_get(echo, "ranks"));
    json_decref(echo);
    return read;
}

void ranks_rebuild(struct experiment_state *s, const struct cell_row *cells, int n)
{
    for (int arm = 0; arm < s->spec.arms; arm++) {
        const struct parallel mode = experiment_arm_parallel(s, arm);
        if (parallel_ranks(&mode) < 2) continue; /* spares parsing all cells */
        for (int i = n - 1; i >= 0; i--)
            if (cells[i].arm == arm && cell_ranks_read(&s->arm[arm], &cells[i])) break;
    }
}
