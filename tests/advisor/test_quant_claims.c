/* Proves: a usual claim about quantization is confirmed when the whole interval lies in the claimed range,
 * refuted when no part does, and not decided otherwise, when an arm failed, or when the run is invalid. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "tests/check.h"

enum { DECODE = METRIC_DECODE_RATE - METRIC_SENSOR_COUNT };
static const struct quant_claim WEIGHTS = { "w", QUANT_4BIT, QUANT_WEIGHT_BYTES, 0.25, 0.30 },
                                SPEED = { "s", QUANT_4BIT, QUANT_DECODE_RATE, 1.5, 3 };

static enum quant_outcome judged(const struct experiment_state *s, const struct quant_claim *c,
                                 const char *reason)
{
    struct quant_judgement j;
    quant_claim_judge(c, s, &j);
    if (!strstr(j.reason, reason)) fail_msg("reason '%s', expected '%s'", j.reason, reason);
    return j.outcome;
}

static void speed_is(struct experiment_state *s, double ratio, double lower, double upper)
{
    s->comparison[QUANT_4BIT].by_metric[DECODE] = (struct interval){ log(ratio), log(lower), log(upper) };
}

static void bytes_are_exact(void **state)
{
    (void)state;
    struct experiment_state *s = calloc(1, sizeof *s);
    s->arm[0].plan.weights = 1600;
    s->arm[QUANT_4BIT].plan.weights = 450;
    CHECK_EQ(judged(s, &WEIGHTS, ""), QUANT_CONFIRMED);
    s->verdict = VERDICT_INVALID; /* bytes do not depend on how quiet the machine was */
    CHECK_EQ(judged(s, &WEIGHTS, ""), QUANT_CONFIRMED);
    s->arm[QUANT_4BIT].plan.weights = 500;
    CHECK_EQ(judged(s, &WEIGHTS, ""), QUANT_REFUTED);
    s->arm[0].plan.weights = -1;
    CHECK_EQ(judged(s, &WEIGHTS, "too little"), QUANT_NOT_DECIDED);
    free(s);
}

static void speed_has_an_interval(void **state)
{
    (void)state;
    struct experiment_state *s = calloc(1, sizeof *s);
    speed_is(s, 2, 1.6, 2.5);
    CHECK_EQ(judged(s, &SPEED, ""), QUANT_CONFIRMED);
    speed_is(s, 2, 1.4, 2.5);
    CHECK_EQ(judged(s, &SPEED, "more time"), QUANT_NOT_DECIDED);
    speed_is(s, 1.2, 1.1, 1.3);
    CHECK_EQ(judged(s, &SPEED, ""), QUANT_REFUTED);
    speed_is(s, 4, 3.5, 4.5);
    CHECK_EQ(judged(s, &SPEED, ""), QUANT_REFUTED);
    s->comparison[QUANT_4BIT].by_metric[DECODE] = (struct interval){ log(2), NAN, NAN };
    CHECK_EQ(judged(s, &SPEED, "too little"), QUANT_NOT_DECIDED);
    speed_is(s, 2, 1.6, 2.5);
    s->verdict = VERDICT_INVALID;
    snprintf(s->reason, sizeof s->reason, "the control failed");
    CHECK_EQ(judged(s, &SPEED, "the control failed"), QUANT_NOT_DECIDED);
    s->arm[QUANT_4BIT].failed = true;
    snprintf(s->arm[QUANT_4BIT].error, sizeof s->arm[0].error, "does not fit");
    CHECK_EQ(judged(s, &SPEED, "does not fit"), QUANT_NOT_DECIDED);
    free(s);
}

/* The table: every arm is a config line, every range has two bounds, and the gate can be parsed. */
static void the_table_is_usable(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct experiment_spec *s = calloc(1, sizeof *s);
    struct gate g;
    for (int i = 0; i < QUANT_ARMS; i++) CHECK_OK(config_parse(&s->config[i], QUANT_CLAIM_ARMS[i], &why));
    for (int i = 0; i < QUANT_CLAIM_COUNT; i++) {
        CHECK_LT(QUANT_16BIT, QUANT_CLAIMS[i].arm);
        CHECK_LT(QUANT_CLAIMS[i].from, QUANT_CLAIMS[i].to);
    }
    quant_claims_spec(s);
    CHECK_EQ(s->arms, QUANT_ARMS);
    CHECK_OK(gate_parse(&g, s->gate, &why));
    CHECK_EQ(g.terms, 2);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_exact),
        cmocka_unit_test(speed_has_an_interval),
        cmocka_unit_test(the_table_is_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
