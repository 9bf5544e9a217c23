/* Proves: what happens now in a run survives its way through JSON, with the load, the cache and the processes
 * of its arms; a run without rows brings its specification along; an object that is none changes nothing. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/parts.h"

static struct experiment_state *measuring(void)
{
    struct experiment_state *s = calloc(1, sizeof *s);
    struct experiment_spec spec = { .arms = 3, .budget_s = 90, .max_blocks = 40 };
    struct err why;
    CHECK(s);
    CHECK_OK(workload_parse(&spec.workload, "tg8", &why));
    CHECK_OK(config_parse(&spec.config[0], "default", &why));
    CHECK_OK(config_parse(&spec.config[1], "threads=1", &why));
    CHECK_OK(config_parse(&spec.config[2], "ctk=q8_0", &why));
    state_init(s, &spec);
    s->phase = PHASE_BLOCKS;
    s->running_arm = 0;
    s->block = 4;
    s->slot = 3;
    snprintf(s->cell_phase, sizeof s->cell_phase, "decode");
    s->cell_done = 5;
    s->cell_of = 8;
    s->live_tok_s = 123.5;
    s->elapsed_s = 17;
    s->pausing = true;
    s->pauses = 2;
    s->arm[0].ready = true;
    s->arm[1].failed = true;
    snprintf(s->arm[1].error, sizeof s->arm[1].error, "it does not fit");
    s->arm[2].ranks = 2;
    s->arm[2].rank[1].peak_rss_bytes = 77;
    s->occupancy = (struct occupancy){
        .arm = 2, .blocks = 6, .used = 4, .step = 1, .serves = true, .waiting = 3
    };
    snprintf(s->occupancy.map, sizeof s->occupancy.map, "00..");
    s->live_known = true;
    s->live.arrived = 9;
    return s;
}

static void a_state_comes_back(void **state)
{
    (void)state;
    struct experiment_state *s = measuring(), *back = calloc(1, sizeof *back);
    CHECK(back);
    json_t *o = experiment_now_to_json(s);
    CHECK(experiment_now_from_json(back, o)); /* with its specification: nothing is stored yet */
    CHECK_EQ(back->spec.arms, 3);
    CHECK_STR(back->arm[2].line, s->arm[2].line);
    CHECK_EQ(back->phase, PHASE_BLOCKS);
    CHECK_EQ(back->running_arm, 0);
    CHECK_EQ(back->block, 4);
    CHECK_EQ(back->slot, 3);
    CHECK_STR(back->cell_phase, "decode");
    CHECK_EQ(back->cell_done, 5);
    CHECK_EQ(back->cell_of, 8);
    CHECK_NEAR(back->live_tok_s, 123.5, 1e-9);
    CHECK(isnan(back->eta_s));
    CHECK(back->pausing);
    CHECK_EQ(back->pauses, 2);
    CHECK_EQ(back->spec.max_blocks, 40);
    CHECK(back->arm[0].ready && !back->arm[0].failed);
    CHECK(back->arm[1].failed && !back->arm[1].ready);
    CHECK_STR(back->arm[1].error, "it does not fit");
    CHECK_EQ(back->arm[2].ranks, 2);
    CHECK_EQ(back->arm[2].rank[1].peak_rss_bytes, 77);
    CHECK_EQ(back->occupancy.arm, 2);
    CHECK_EQ(back->occupancy.used, 4);
    CHECK_EQ(back->occupancy.waiting, 3);
    CHECK(back->occupancy.serves);
    CHECK_STR(back->occupancy.map, "00..");
    CHECK(back->live_known);
    CHECK_EQ(back->live.arrived, 9);
    json_decref(o);
    free(back);
    free(s);
}

/* Over the rows of a run: what they say stays, and what was true before is over. */
static void it_goes_over_what_is_stored(void **state)
{
    (void)state;
    struct experiment_state *s = measuring(), *stored = measuring();
    s->run_id = stored->run_id = 7;
    stored->blocks = 3;
    stored->paused_since_ms = 5000;
    s->running_arm = s->block = -1;
    s->arm[1].failed = false;
    json_t *o = experiment_now_to_json(s);
    CHECK(json_is_null(json_object_get(o, "spec")));
    CHECK(experiment_now_from_json(stored, o));
    CHECK_EQ(stored->run_id, 7);
    CHECK_EQ(stored->blocks, 3);
    CHECK_EQ(stored->paused_since_ms, 0);
    CHECK_EQ(stored->running_arm, -1);
    CHECK(!stored->arm[1].failed);
    json_decref(o);
    free(stored);
    free(s);
}

static void others_change_nothing(void **state)
{
    (void)state;
    static const char *const NONE[] = { "{}", "[]", "{\"phase\":\"lunch\",\"block\":9}",
                                        "{\"phase\":\"blocks\",\"spec\":{\"arms\":\"many\"}}" };
    struct experiment_state *s = measuring();
    struct err why;
    for (size_t i = 0; i < COUNT_OF(NONE); i++) {
        json_t *o = NULL;
        CHECK_OK(json_parse(&o, NONE[i], strlen(NONE[i]), &why));
        CHECK(!experiment_now_from_json(s, o));
        CHECK_EQ(s->block, 4);
        json_decref(o);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_state_comes_back),
                                        cmocka_unit_test(it_goes_over_what_is_stored),
                                        cmocka_unit_test(others_change_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
