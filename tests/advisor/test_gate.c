/* Proves: a gate means what its grammar says (precedence, units, bounds on A), what it does not say is
 * refused with the place and what was expected; a term passes or fails only with its whole interval, and the
 * whole is three-valued logic with "invalid" where an untrustworthy figure leaves it open. */
#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "telemetry/metrics/metrics.h"
#include "tests/check.h"

/* ---------------------------------------------------------------- text */

static void test_terms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int metric; /* -1: figure */
        int figure;
        enum gate_op op;
        double scale, offset;
    } CASES[] = {
        { "decode_tok_s >= 0.98*A", METRIC_DECODE_RATE, 0, GATE_AT_LEAST, 0.98, 0 },
        { "decode_tok_s>=98% * A", METRIC_DECODE_RATE, 0, GATE_AT_LEAST, 0.98, 0 },
        { "decode_tok_s >= A", METRIC_DECODE_RATE, 0, GATE_AT_LEAST, 1, 0 },
        { "decode_tok_s > A*1.5", METRIC_DECODE_RATE, 0, GATE_MORE, 1.5, 0 },
        { "decode_tok_s > A + 5%", METRIC_DECODE_RATE, 0, GATE_MORE, 1.05, 0 },
        { "decode_tok_s > A-5%", METRIC_DECODE_RATE, 0, GATE_MORE, 0.95, 0 },
        { "decode_tok_s > 1.5k", METRIC_DECODE_RATE, 0, GATE_MORE, 0, 1500 },
        { "peak_rss_bytes <= 8G", METRIC_PEAK_MEMORY, 0, GATE_AT_MOST, 0, 8.0 * (1 << 30) },
        { "peak_rss_bytes <= A + 100M", METRIC_PEAK_MEMORY, 0, GATE_AT_MOST, 1, 100.0 * (1 << 20) },
        { "ttft_s < 200ms", METRIC_TTFT, 0, GATE_LESS, 0, 0.2 },
        { "itl_p99_s < 1.5e+2us", METRIC_ITL_P99, 0, GATE_LESS, 0, 1.5e-4 },
        { "load_s < 2s", METRIC_LOAD_TIME, 0, GATE_LESS, 0, 2 },
        { "kld_mean < 0.02", -1, GATE_KLD_MEAN, GATE_LESS, 0, 0.02 },
        { "top1 >= 95%", -1, GATE_TOP1, GATE_AT_LEAST, 0, 0.95 },
        { "ppl <= 1.02*A", -1, GATE_PPL, GATE_AT_MOST, 1.02, 0 },
        { "noise_floor < 2%", -1, GATE_NOISE_FLOOR, GATE_LESS, 0, 0.02 },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct gate g;
        CHECK_OK(gate_parse(&g, CASES[i].text, &why));
        assert_int_equal(g.terms, 1);
        assert_int_equal(g.term[0].metric, CASES[i].metric);
        if (CASES[i].metric < 0) assert_int_equal(g.term[0].figure, CASES[i].figure);
        assert_int_equal(g.term[0].op, CASES[i].op);
        CHECK_NEAR(g.term[0].scale, CASES[i].scale, 1e-12);
        CHECK_NEAR(g.term[0].offset, CASES[i].offset, 1e-12 * fabs(CASES[i].offset));
        assert_string_equal(g.term[0].text, CASES[i].text);
        assert_int_equal(gate_needs_quality(&g), CASES[i].metric < 0 && CASES[i].figure != GATE_NOISE_FLOOR);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } CASES[] = {
        { "", "at its end: expected the name of a figure" },
        { "decode_tok_s", "at its end: expected <, <=, > or >=" },
        { "decode_tok_s =", "position 14 ('='): expected <" },
        { "decode_tok_s >= ", "at its end: expected a number or A" },
        { "decode_tok_s >= B", "position 17 ('B'): expected a number or A" },
        { "decode_tok_s >= 0x10", "position 18 ('x10'): expected %, k, M or G" },
        { "decode_tok_s >= inf", "expected a number or A" },
        { "decode_tok_s >= 1e999", "expected a number" },
        { "decode_tok_s >= 0.98*B", "position 22 ('B'): expected A" },
        { "decode_tok_s >= 5ms", "'ms' does not go with decode_tok_s, which is in tokens/s" },
        { "ttft_s <= 5k", "'k' does not go with ttft_s, which is in seconds" },
        { "kld_mean < 2ms", "'ms' does not go with kld_mean, which is a plain number" },
        { "decode_tok > 1", "position 1: no figure is called 'decode_tok'; did you mean 'decode_tok_s'?" },
        { "decode_tok_s > 1 and kdl_mean < 1", "position 22: no figure is called 'kdl_mean'; did you mean "
                                               "'kld_mean'?" },
        { "cpu_busy_ratio < 1", "no figure is called 'cpu_busy_ratio'" }, /* of a sensor, not of a cell */
        { "kld_mean < 0.5*A", "kld_mean already compares with A" },
        { "decode_tok_s > 1 kld_mean < 1", "position 18 ('kld_mean < 1'): expected 'and', 'or' or the end" },
        { "(decode_tok_s > 1", "at its end: expected 'and', 'or' or ')'" },
        { "decode_tok_s > 1)", "position 17 (')'): expected 'and', 'or' or the end" },
        { "not", "at its end: expected the name of a figure" },
        { "decode_tok_s > 1 and", "at its end: expected the name of a figure" },
        { "decode_tok_s > 1 && kld_mean < 1",
          "position 18 ('&& kld_mean '): expected 'and', 'or' or the end" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct gate g;
        assert_int_equal(gate_parse(&g, CASES[i].text, &why), ERR_USAGE);
        if (!strstr(why.message, CASES[i].says))
            fail_msg("'%s': '%s' lacks '%s'", CASES[i].text, why.message, CASES[i].says);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gate g;
    struct str s = { 0 };
    for (int i = 0; i < GATE_TERMS; i++) str_printf(&s, "%sload_s<1", i ? " or " : "");
    CHECK_OK(gate_parse(&g, str_text(&s), &why));
    assert_int_equal(g.terms, GATE_TERMS);
    str_append(&s, " or load_s<1");
    assert_int_equal(gate_parse(&g, str_text(&s), &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "more than 32 conditions"));
    str_clear(&s);
    for (int i = 0; i < 100; i++) str_append(&s, "(");
    assert_int_equal(gate_parse(&g, str_text(&s), &why), ERR_USAGE);
    str_clear(&s);
    for (int i = 0; i < 40; i++) str_append(&s, "not ");
    str_append(&s, "load_s<1");
    CHECK_OK(gate_parse(&g, str_text(&s), &why));
    str_clear(&s);
    for (int i = 0; i < GATE_TEXT; i++) str_append(&s, " ");
    assert_int_equal(gate_parse(&g, str_text(&s), &why), ERR_USAGE);
    str_free(&s);
}

/* ---------------------------------------------------------------- judging */

static const struct interval NONE = { NAN, NAN, NAN };

/* Four figures with fixed outcomes, to try all combinations of. */
static void letters(void *ctx, const struct gate_term *t, struct gate_value *v)
{
    (void)ctx;
    v->value = 1;
    v->exact = t->metric != METRIC_TTFT;
    if (t->metric == METRIC_PREFILL_RATE) v->value = -1;
    if (t->metric == METRIC_LOAD_TIME) v->invalid = "the control failed";
}
/* P(ass) = decode_tok_s > 0, F(ail) = prefill_tok_s > 0, U(ndecided) = ttft_s > 0, I(nvalid) = load_s > 0 */
static void spell(struct str *s, const char *short_form)
{
    for (; *short_form; short_form++) {
        switch (*short_form) {
        case 'P': str_append(s, "decode_tok_s > 0"); break;
        case 'F': str_append(s, "prefill_tok_s > 0"); break;
        case 'U': str_append(s, "ttft_s > 0"); break;
        case 'I': str_append(s, "load_s > 0"); break;
        case '&': str_append(s, " and "); break;
        case '|': str_append(s, " or "); break;
        case '!': str_append(s, "not "); break;
        default: str_append_n(s, short_form, 1);
        }
    }
}

static void test_logic(void **state)
{
    (void)state;
    static const struct {
        const char *gate;
        enum gate_outcome outcome;
    } CASES[] = {
        { "P", GATE_PASS },        { "F", GATE_FAIL },           { "U", GATE_UNDECIDED },
        { "I", GATE_INVALID },     { "!P", GATE_FAIL },          { "!F", GATE_PASS },
        { "!U", GATE_UNDECIDED },  { "!I", GATE_INVALID },       { "!!P", GATE_PASS },
        { "P&P", GATE_PASS },      { "P&F", GATE_FAIL },         { "P&U", GATE_UNDECIDED },
        { "P&I", GATE_INVALID },   { "F&U", GATE_FAIL },         { "U&F", GATE_FAIL },
        { "F&I", GATE_FAIL },      { "U&I", GATE_INVALID },      { "U&U", GATE_UNDECIDED },
        { "P|U", GATE_PASS },      { "U|P", GATE_PASS },         { "I|P", GATE_PASS },
        { "F|U", GATE_UNDECIDED }, { "F|F", GATE_FAIL },         { "F|I", GATE_INVALID },
        { "P|P&F", GATE_PASS }, /* and binds tighter */
        { "(P|P)&F", GATE_FAIL },  { "F&P|P", GATE_PASS },       { "!F&F", GATE_FAIL },
        { "!(F&F)", GATE_PASS },   { "!(P&U)", GATE_UNDECIDED }, { "F&(P|I)", GATE_FAIL },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct str s = { 0 };
        struct gate g;
        struct gate_result r;
        spell(&s, CASES[i].gate);
        CHECK_OK(gate_parse(&g, str_text(&s), &why));
        gate_judge(&g, letters, NULL, &r);
        if (r.outcome != CASES[i].outcome)
            fail_msg("%s: %s, want %s", CASES[i].gate, gate_outcome_name(r.outcome),
                     gate_outcome_name(CASES[i].outcome));
        str_free(&s);
    }
}

static void given(void *ctx, const struct gate_term *t, struct gate_value *v)
{
    (void)t;
    *v = *(const struct gate_value *)ctx;
}

static void test_intervals(void **state)
{
    (void)state;
    const struct gate_value rate = { .value = 99,
                                     .a = 100,
                                     .absolute = { 99, 90, 108 },
                                     .ratio = { 0.99, 0.985, 0.995 },
                                     .n = 8,
                                     .of = "blocks" };
    const struct gate_value alone = { .value = 99, .a = NAN, .absolute = { 99, 90, 108 }, .ratio = NONE };
    const struct gate_value bare = { .value = 99, .a = 100, .absolute = NONE, .ratio = NONE };
    const struct gate_value fixed = { .value = 99, .a = 100, .absolute = NONE, .ratio = NONE, .exact = true };
    const struct gate_value absent = {
        .value = NAN, .a = NAN, .absolute = NONE, .ratio = NONE, .missing = "no energy sensor here"
    };
    const struct gate_value censored = {
        .value = NAN, .a = NAN, .absolute = { 64, 64, INFINITY }, .ratio = NONE
    };
    const struct {
        const char *gate;
        const struct gate_value *value;
        enum gate_outcome outcome;
        const char *reason;
    } CASES[] = {
        /* against A the paired ratio decides, although the absolute interval holds the bound */
        { "decode_tok_s >= 0.98*A", &rate, GATE_PASS, "" },
        { "decode_tok_s >= 0.985*A", &rate, GATE_PASS, "" },
        { "decode_tok_s > 0.985*A", &rate, GATE_UNDECIDED, "" },
        { "decode_tok_s >= A", &rate, GATE_FAIL, "" },
        { "decode_tok_s < A", &rate, GATE_PASS, "" },
        /* half width 0.005 at 8 blocks; 0.001 needs 25 times as many */
        { "decode_tok_s >= 0.991*A", &rate, GATE_UNDECIDED, "about 192 more blocks" },
        { "decode_tok_s >= A - 2", &rate, GATE_PASS, "" },
        { "decode_tok_s >= 95", &rate, GATE_UNDECIDED, "the bound lies within the interval; about" },
        { "decode_tok_s >= 90", &rate, GATE_PASS, "" },
        { "decode_tok_s >= 110", &rate, GATE_FAIL, "" },
        { "decode_tok_s >= 0.98*A", &alone, GATE_UNDECIDED, "A's was not measured" },
        { "decode_tok_s >= 0.98*A", &bare, GATE_UNDECIDED, "too little was measured" },
        { "decode_tok_s >= 0.98*A", &fixed, GATE_PASS, "" },
        { "decode_tok_s >= 99", &fixed, GATE_PASS, "" },
        { "decode_tok_s > 99", &fixed, GATE_FAIL, "" },
        { "energy_j < A", &absent, GATE_UNDECIDED, "no energy sensor here" },
        { "first_divergence >= 32", &censored, GATE_UNDECIDED, "not measured" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct gate g;
        struct gate_result r;
        struct gate_value v = *CASES[i].value;
        CHECK_OK(gate_parse(&g, CASES[i].gate, &why));
        gate_judge(&g, given, &v, &r);
        if (r.outcome != CASES[i].outcome || !strstr(r.row[0].reason, CASES[i].reason))
            fail_msg("%s: %s '%s', want %s '%s'", CASES[i].gate, gate_outcome_name(r.outcome),
                     r.row[0].reason, gate_outcome_name(CASES[i].outcome), CASES[i].reason);
    }
    /* a median that is only known to be more than 64 */
    struct gate_value v = censored;
    struct gate g;
    struct gate_result r;
    struct err why = { 0 };
    v.value = 64;
    CHECK_OK(gate_parse(&g, "first_divergence >= 32 and not first_divergence < 64", &why));
    gate_judge(&g, given, &v, &r);
    assert_int_equal(r.outcome, GATE_PASS);
    CHECK_OK(gate_parse(&g, "first_divergence >= 100", &why));
    gate_judge(&g, given, &v, &r);
    assert_int_equal(r.outcome, GATE_UNDECIDED);
}

static void test_json(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gate g;
    struct gate_result r;
    struct gate_value v = {
        .value = 99, .a = 100, .absolute = NONE, .ratio = { 0.99, 0.98, 1.0 }, .n = 8, .of = "blocks"
    };
    CHECK_OK(gate_parse(&g, "decode_tok_s  >=  0.95*A", &why));
    gate_judge(&g, given, &v, &r);
    json_t *o = gate_result_to_json(&g, &r);
    assert_string_equal(json_get_str(o, "outcome", ""), "pass");
    const json_t *t = json_array_get(json_object_get(o, "terms"), 0);
    assert_string_equal(json_get_str(t, "term", ""), "decode_tok_s >= 0.95*A");
    CHECK_NEAR(json_get_num(t, "bound", NAN), 95, 1e-9);
    CHECK_NEAR(json_get_num(t, "lower", NAN), 98, 1e-9);
    CHECK_NEAR(json_get_num(t, "upper", NAN), 100, 1e-9);
    assert_true(json_is_null(json_object_get(t, "reason")));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terms), cmocka_unit_test(test_refusals),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_logic), cmocka_unit_test(test_intervals), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
