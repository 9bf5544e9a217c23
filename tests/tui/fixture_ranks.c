/* tests/tui/fixture_ranks.c - an A/B whose arms have several processes. */
#include "tests/tui/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

#define PUT(field, text) snprintf((field), sizeof(field), "%s", (text))

static void arm_put(struct experiment_state *x, int arm, const char *line, const struct rank_usage *rank,
                    int ranks)
{
    struct err why;
    if (config_parse(&x->spec.config[arm], line, &why)) abort();
    PUT(x->arm[arm].line, line);
    memcpy(x->arm[arm].rank, rank, (size_t)ranks * sizeof *rank);
    x->arm[arm].ranks = ranks;
}

struct snapshot *fixture_ranks(void)
{
    static const struct rank_usage PIPELINE[] = {
        { .work_s = 2, .exchange_s = 1, .wait_s = 0.9, .weight_bytes = 24LL << 20, .host = "node1" },
        { .work_s = 1.5, .exchange_s = 0.3, .wait_s = 0.2, .weight_bytes = 25LL << 20, .host = "node1" }
    };
    static const struct rank_usage SQUARE[] = {
        { .work_s = 4,
          .exchange_s = 1,
          .wait_s = 0.2,
          .weight_bytes = 320LL << 20,
          .host = "node1",
          .first_of_machine = true,
          .machine = { .clock_s = 4, .energy_j = 164, .busy_s = 3.72, .temperature_celsius = 63 } },
        { .work_s = 4, .exchange_s = 1.2, .wait_s = 0.4, .weight_bytes = 322LL << 20, .host = "node1" },
        { .work_s = 3.9,
          .exchange_s = 2.5,
          .wait_s = 1.7,
          .weight_bytes = 320LL << 20,
          .host = "node2",
          .first_of_machine = true,
          .machine = { .clock_s = 4, .energy_j = NAN, .busy_s = 1, .temperature_celsius = NAN } },
        { .work_s = NAN, .exchange_s = 1, .wait_s = NAN, .weight_bytes = -1 } /* of an earlier version */
    };
    struct snapshot *s = fixture_running();
    arm_put(&s->experiment, 0, "q8_0,parallel=pp2", PIPELINE, COUNT_OF(PIPELINE));
    arm_put(&s->experiment, 1, "q8_0,parallel=tp2.dp2", SQUARE, COUNT_OF(SQUARE));
    return s;
}

/* As many ranks as there can be, with names and values that fit nowhere. */
void fixture_ranks_extreme(struct snapshot *s)
{
    struct rank_usage rank[RANKS_MAX];
    for (int i = 0; i < RANKS_MAX; i++) {
        rank[i] = (struct rank_usage){ .work_s = i % 4 ? 1e300 : NAN,
                                       .exchange_s = i % 3 ? -1e300 : INFINITY,
                                       .wait_s = i % 5 ? 1e308 : NAN,
                                       .weight_bytes = i % 2 ? INT64_MAX : -1,
                                       .first_of_machine = i % 7 == 0,
                                       .machine = { .clock_s = i % 2 ? 1e-300 : 0,
                                                    .energy_j = 1e300,
                                                    .busy_s = -1e300,
                                                    .temperature_celsius = 1e308 } };
        memset(rank[i].host, 'h', sizeof rank[i].host - 1);
        if (i % 3 == 0) PUT(rank[i].host, "日本語日本語日本語日本語日本語");
    }
    char arm_line[CONFIG_LINE];
    memcpy(arm_line, s->experiment.arm[1].line, sizeof arm_line);
    arm_put(&s->experiment, 1, "parallel=tp4.pp4.dp4", rank, RANKS_MAX);
    memcpy(s->experiment.arm[1].line, arm_line, sizeof arm_line);
}
