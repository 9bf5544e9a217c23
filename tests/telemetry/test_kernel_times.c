/* Proves: a short measurement provides some kernel times, which are plausible relative to each other, and
 * leaves the rest unknown; it can be cancelled; kernel times survive JSON; damaged JSON is refused or
 * gives unknown times. */
#include <math.h>
#include <string.h>

#include "telemetry/probe/probe.h"
#include "tests/check.h"

static void measured_in_a_moment(void **state)
{
    (void)state;
    static struct kernel_times k, back;
    struct err why = { 0 };
    uint32_t usable;
    CHECK_OK(isa_usable(&usable, &why));
    CHECK_OK(kernel_times_measure(&k, usable, 1.5, NULL, NULL, &why));
    CHECK(k.measured);
    int known = 0;
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int r = 0; r < KERNEL_ROWS; r++) {
            const float s = k.product[f][KERNEL_VARIANT_AUTO][r][1];
            known += s > 0;
            CHECK_LE(0, s);
            CHECK(isfinite(s));
            CHECK_LT(s, 1e-3f);
        }
    CHECK_LE(1, known);
    json_t *text = kernel_times_to_json(&k);
    CHECK_OK(kernel_times_from_json(&back, text, &why));
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const float a = k.product[f][0][0][1], b = back.product[f][0][0][1];
        CHECK_EQ((a > 0), (b > 0));
        CHECK_LE(fabsf(a - b), 1e-3f * a);
        CHECK_EQ((k.stream[f][1] > 0), (back.stream[f][1] > 0));
        CHECK_LE(fabsf(back.near[f][1] - k.near[f][1]), 1e-3f * k.near[f][1]);
        CHECK_LE(fabsf(back.row[f][1] - k.row[f][1]), 1e-3f * k.row[f][1]);
        CHECK_LE(fabsf(back.row_short[f][1] - k.row_short[f][1]), 1e-3f * k.row_short[f][1]);
        if (!k.row_short[f][1]) continue;
        CHECK_GE(k.row_short[f][1], k.row[f][1]);
        CHECK_LE(FORMATS[f].block_weights, 64);
    }
    CHECK_LE(fabsf(back.memory_speed[1] - k.memory_speed[1]), 1e-3f * k.memory_speed[1]);
    CHECK_LT(1e6f, k.memory_speed[1]); /* right units, on a machine however busy */
    CHECK_LE(fabsf(back.compute_speed[1] - k.compute_speed[1]), 1e-3f * k.compute_speed[1]);
    CHECK_LT(1e6f, k.compute_speed[1]);
    CHECK(back.measured);
    CHECK_EQ(back.stream_bytes, k.stream_bytes);
    CHECK_LT(1700000000000, k.measured_unix_ms);
    CHECK_EQ(back.measured_unix_ms, k.measured_unix_ms);
    json_decref(text);
}

static void computing_hides_waiting_and_back(void **state)
{
    (void)state;
    CHECK_NEAR(kernel_time_together(1e-11, 1e-11) / 1e-11, pow(2, 0.25), 1e-9);
    CHECK_NEAR(kernel_time_together(1e-11, 5e-11) / 5e-11, 1, 1e-3);
    CHECK_EQ(kernel_time_together(0, 3), 3);
    for (double waiting = 1; waiting < 10; waiting += 0.7)
        CHECK_NEAR(kernel_time_waiting(kernel_time_together(1, waiting), 1), waiting, 1e-9);
    CHECK_NEAR(kernel_time_waiting(2, 2), 0.1, 1e-12);
    CHECK_NEAR(kernel_time_waiting(2, 3), 0.1, 1e-12);
}

/* A busy core slows the product with one row fully and one with many rows less; floats more than integers. */
static void a_busy_core_slows_many_rows_less(void **state)
{
    (void)state;
    const struct format *q4 = &FORMATS[FORMAT_Q4_K], *floats = &FORMATS[FORMAT_F32];
    const struct backend_options o = { .isa = 0, .precision = PRECISION_HIGHEST };
    const struct backend_options medium = { .isa = isa_detect(), .precision = PRECISION_AUTO };
    CHECK_EQ(kernel_load_sensitivity(floats, &o, 1), 1);
    CHECK_EQ(kernel_load_sensitivity(q4, &medium, 1), 1);
    for (int n = 2; n < 2000; n *= 2) {
        CHECK_LE(kernel_load_sensitivity(floats, &o, n), kernel_load_sensitivity(floats, &o, n / 2) + 1e-12);
        CHECK_LE(kernel_load_sensitivity(q4, &medium, n), kernel_load_sensitivity(floats, &o, n) + 1e-12);
        CHECK_LE(0.5, kernel_load_sensitivity(q4, &medium, n));
    }
    CHECK_NEAR(kernel_load_sensitivity(floats, &o, 2000), kernel_load_sensitivity(floats, &o, 512), 1e-12);
    if (strcmp(matmul_ceiling(q4, &medium), "f32_fma"))
        CHECK_LT(kernel_load_sensitivity(q4, &medium, 512), 0.6);
}

static bool refuse(void *ctx, const char *what, double done)
{
    (void)what, (void)done;
    *(int *)ctx += 1;
    return false;
}

static void can_be_ended(void **state)
{
    (void)state;
    static struct kernel_times k;
    struct err why = { 0 };
    int asked = 0;
    CHECK_EQ(kernel_times_measure(&k, 0, 30, refuse, &asked, &why), ERR_CANCELLED);
    CHECK_LT(0, asked);
    CHECK(!k.measured);
}

static void damaged_text_is_unknown(void **state)
{
    (void)state;
    static struct kernel_times k;
    struct err why = { 0 };
    json_t *doc = NULL;
    const char *good =
        "{\"schema\":1,\"region\":[-1,\"x\"],\"formats\":{\"q4_0\":{\"product_auto\":[1e-9,null,0,-3],"
        "\"stream\":7},\"q99\":{\"stream\":[1,1]}}}";
    CHECK_OK(json_parse(&doc, good, strlen(good), &why));
    CHECK_OK(kernel_times_from_json(&k, doc, &why));
    CHECK_LT(0, k.product[FORMAT_Q4_0][0][0][0]);
    CHECK_EQ(k.product[FORMAT_Q4_0][0][0][1], 0);
    CHECK_EQ(k.product[FORMAT_Q4_0][0][1][1], 0);
    CHECK_EQ(k.stream[FORMAT_Q4_0][0], 0);
    CHECK_EQ(k.region[0], 0);
    json_decref(doc);
    CHECK_OK(json_parse(&doc, "{\"schema\":9}", 12, &why));
    CHECK_EQ(kernel_times_from_json(&k, doc, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "schema 1");
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_in_a_moment),
        cmocka_unit_test(computing_hides_waiting_and_back),
        cmocka_unit_test(a_busy_core_slows_many_rows_less),
        cmocka_unit_test(can_be_ended),
        cmocka_unit_test(damaged_text_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
