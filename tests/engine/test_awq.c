/* Proves: grids, scales, limits and codes equal those of the reference implementation on its golden matrix,
 * and the loss falls as far. A group computed by hand agrees. The number of threads does not matter. Groups
 * of zeros, dead inputs and non-finite inputs give finite scales or an error. */
#include "engine/quant/awq.h"

#include "tests/engine/algebra.h"
#include "tests/engine/peers_golden.h"
#include "tests/kernels/numbers.h"

static const struct awq_options DEFAULTS = { 4, 128, true, true, 20, 0.5, 512 };

static void the_group_worked_by_hand(void **state)
{
    (void)state;
    const float w[8] = { -0.31f, 0.12f, 0.05f, 0.44f, -0.08f, 0, 0.27f, -0.2f };
    const int codes[8] = { 0, 8, 7, 15, 4, 6, 11, 2 };
    const float values[8] = { -0.3f, 0.1f, 0.05f, 0.45f, -0.1f, 0, 0.25f, -0.2f };
    float got[8];
    const struct awq_grid g = awq_grid_of(&DEFAULTS, w, 8);
    CHECK_NEAR(g.scale, 0.05, 1e-9);
    CHECK_EQ(g.zero, 6);
    awq_quantize_group(&DEFAULTS, w, got, 8);
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(awq_code(&DEFAULTS, &g, w[i]), (float)codes[i]);
        CHECK_NEAR(got[i], values[i], 1e-7);
    }
}

static void symmetric_steps_have_the_middle_as_zero(void **state)
{
    (void)state;
    const struct awq_options o = { 4, -1, false, true, 20, 0.5, 512 };
    const float w[4] = { 0.7f, -0.35f, 0.1f, -0.72f };
    const struct awq_grid g = awq_grid_of(&o, w, 4);
    CHECK_NEAR(g.scale, 0.72 / 7, 1e-8);
    CHECK_EQ(g.zero, 8);
    CHECK_EQ(awq_code(&o, &g, w[0]), 15);
    CHECK_EQ(awq_code(&o, &g, w[3]), 1);
    CHECK_EQ(awq_code(&o, &g, -100), 0);
}

/* ---------------------------------------------------------------- the reference's linear layer */

struct linear {
    const struct awq_options *o;
    const float *w, *x;
    float *want; /* [tokens][rows] */
    float *q;    /* [rows][cols] */
};

static void outputs(const float *w, const float *x, float *y)
{
    for (int t = 0; t < PEER_TOKENS; t++)
        for (int r = 0; r < PEER_ROWS; r++) {
            double sum = 0;
            for (int k = 0; k < PEER_COLS; k++) sum += (double)x[t * PEER_COLS + k] * w[r * PEER_COLS + k];
            y[t * PEER_ROWS + r] = (float)sum;
        }
}

static double output_mse(const struct linear *l)
{
    float *y = malloc(sizeof *y * PEER_TOKENS * PEER_ROWS);
    double sum = 0;
    outputs(l->q, l->x, y);
    for (int i = 0; i < PEER_TOKENS * PEER_ROWS; i++) sum += pow((double)y[i] - l->want[i], 2);
    free(y);
    return sum / (PEER_TOKENS * PEER_ROWS);
}

static enum err_code linear_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    (void)why;
    struct linear *l = ctx;
    const int64_t g = l->o->group_size;
    for (int r = 0; r < PEER_ROWS; r++) {
        float *q = l->q + r * PEER_COLS;
        for (int k = 0; k < PEER_COLS; k++) q[k] = l->w[r * PEER_COLS + k] * scales[k];
        for (int64_t k = 0; k < PEER_COLS; k += g) awq_quantize_group(l->o, q + k, q + k, g);
        for (int k = 0; k < PEER_COLS; k++) q[k] /= scales[k];
    }
    *loss = output_mse(l);
    return ERR_OK;
}

static float *gram_of_groups(const struct algebra *a, const float *x, int64_t group)
{
    const int64_t groups = PEER_COLS / group;
    float *gram = calloc((size_t)(groups * group * group), sizeof *gram);
    for (int64_t g = 0; g < groups; g++)
        linear_gram_add(a->la, gram + g * group * group, group, x + g * group, PEER_COLS, PEER_TOKENS);
    return gram;
}

static void mean_inputs(const float *x, float *mean)
{
    for (int k = 0; k < PEER_COLS; k++) {
        double sum = 0;
        for (int t = 0; t < PEER_TOKENS; t++) sum += fabs((double)x[t * PEER_COLS + k]);
        mean[k] = (float)(sum / PEER_TOKENS);
    }
}

static void *awq_file(const char *variant, const char *what, size_t count, size_t each)
{
    char name[96];
    snprintf(name, sizeof name, "awq/%s.%s", variant, what);
    return peer_file(name, count * each);
}

enum { GROUPS = PEER_ROWS * PEER_COLS / 128 };

static void check_codes(const char *variant, const struct awq_options *o, const struct linear *l,
                        const float *scales, double mse)
{
    float *step = awq_file(variant, "qscale.f32", GROUPS, 4),
          *zero = awq_file(variant, "qzero.f32", GROUPS, 4);
    uint8_t *codes = awq_file(variant, "codes.u8", PEER_ROWS * PEER_COLS, 1);
    for (int i = 0; i < GROUPS; i++) {
        const float *w = l->w + i * 128;
        const struct awq_grid g = awq_grid_of(o, w, 128);
        CHECK_NEAR(g.scale, step[i], 3e-4 * step[i]); /* the tolerance of the scales */
        CHECK_EQ(g.zero, zero[i]);
        int differ = 0;
        for (int k = 0; k < 128; k++) {
            differ += awq_code(o, &g, w[k]) != (float)codes[i * 128 + k];
            const int col = i % 2 * 128 + k;
            l->q[i * 128 + k] = (awq_code(o, &g, w[k]) - g.zero) * g.scale / scales[col];
        }
        CHECK_LE(differ, 1); /* ties that a difference of 1e-7 in a scale decides */
    }
    CHECK_NEAR(output_mse(l), mse, 1e-3 * mse);
    free(step), free(zero), free(codes);
}

/* Check scales, then limits, then codes of one variant; each step uses our own results of the one before. */
static void check_variant(const char *variant, bool duo, double mse)
{
    struct err why = { 0 };
    struct algebra a = algebra_open(2);
    struct awq_options o = DEFAULTS;
    o.duo_scaling = duo;
    float *w = peer_weights(), *x = peer_inputs(), mean[PEER_COLS], shares[PEER_COLS], scales[PEER_COLS];
    double sums[PEER_COLS] = { 0 };
    struct linear l = { &o, w, x, malloc(sizeof(float) * PEER_TOKENS * PEER_ROWS),
                        malloc(sizeof(float) * PEER_ROWS * PEER_COLS) };
    outputs(w, x, l.want);
    mean_inputs(x, mean);
    awq_weight_shares(&o, w, PEER_ROWS, PEER_COLS, sums, a.pool);
    for (int k = 0; k < PEER_COLS; k++) shares[k] = (float)(sums[k] / PEER_ROWS);
    double ratio = NAN;
    CHECK_OK(awq_search(&o, mean, shares, PEER_COLS, linear_loss, &l, scales, &ratio, &why));

    float *want = awq_file(variant, "scales.f32", PEER_COLS, 4);
    for (int k = 0; k < PEER_COLS; k++) CHECK_NEAR(scales[k], want[k], 2e-4 * want[k]);
    memcpy(scales, want, sizeof scales);
    for (int i = 0; i < PEER_ROWS * PEER_COLS; i++) w[i] *= scales[i % PEER_COLS];
    float *scaled = peer_inputs();
    for (int i = 0; i < PEER_TOKENS * PEER_COLS; i++) scaled[i] /= scales[i % PEER_COLS];

    float *limits = awq_file(variant, "clip_max.f32", GROUPS, 4), got[GROUPS];
    float *gram = gram_of_groups(&a, scaled, 128);
    CHECK_OK(awq_clip(&o, w, PEER_ROWS, PEER_COLS, gram, got, a.pool, &why));
    for (int i = 0; i < GROUPS; i++) CHECK_NEAR(got[i], limits[i], 1e-6 * limits[i]);
    print_message("%s: ratio %g\n", variant, ratio);
    check_codes(variant, &o, &l, scales, mse);
    free(w), free(x), free(scaled), free(l.want), free(l.q), free(want), free(limits), free(gram);
    algebra_close(&a);
}

static void results_are_the_references(void **state)
{
    (void)state;
    PEERS_OR_SKIP;
    check_variant("duo", true, 0.002854388440027833);
    check_variant("noduo", false, 0.0038563061971217394);
}

/* ---------------------------------------------------------------- properties */

enum { ROWS = 37, COLS = 192 };

static void threads_change_no_bit(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct rng r = { 5 };
    const struct awq_options o = { 3, 64, true, true, 20, 0.5, 512 };
    float w[ROWS * COLS], gram[3 * 64 * 64], x[50 * COLS];
    fill_gauss(&r, w, ROWS * COLS, 0.03);
    fill_gauss(&r, x, 50 * COLS, 1);
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < 64; i++)
            for (int j = 0; j < 64; j++) {
                double sum = 0;
                for (int t = 0; t < 50; t++)
                    sum += (double)x[t * COLS + g * 64 + i] * x[t * COLS + g * 64 + j];
                gram[(g * 64 + i) * 64 + j] = (float)sum;
            }
    float first[ROWS * COLS];
    double first_sums[COLS];
    for (int threads = 1; threads <= 4; threads++) {
        struct threadpool *pool;
        CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = threads }, &why));
        float clipped[ROWS * COLS];
        double sums[COLS] = { 0 };
        memcpy(clipped, w, sizeof w);
        awq_weight_shares(&o, w, ROWS, COLS, sums, pool);
        CHECK_OK(awq_clip(&o, clipped, ROWS, COLS, gram, NULL, pool, &why));
        if (threads == 1) memcpy(first, clipped, sizeof first), memcpy(first_sums, sums, sizeof sums);
        assert_memory_equal(clipped, first, sizeof first);
        assert_memory_equal(sums, first_sums, sizeof sums);
        threadpool_close(pool);
    }
    assert_memory_not_equal(first, w, sizeof w); /* clipping changed some weights */
}

static void scales_are_centred_and_never_infinite(void **state)
{
    (void)state;
    const float inputs[6] = { 0, 1e-20f, 1, 30, 1e20f, 2 }, shares[6] = { 0.5f, 0, 0.1f, 0.9f, 1, 0.3f };
    float s[6];
    for (int duo = 0; duo < 2; duo++)
        for (double ratio = 0; ratio < 1; ratio += 0.05) {
            struct awq_options o = DEFAULTS;
            o.duo_scaling = duo;
            awq_scales(&o, inputs, shares, 6, ratio, s);
            float low = s[0], high = s[0];
            for (int k = 0; k < 6; k++) {
                CHECK(isfinite(s[k]));
                CHECK_LT(0, s[k]);
                low = fminf(low, s[k]), high = fmaxf(high, s[k]);
            }
            CHECK_NEAR(low * high, 1, 1e-4);
            if (!duo && ratio == 0)
                CHECK_NEAR(high, 1, 1e-6); /* ratio 0 without duo_scaling means no scaling */
        }
}

static enum err_code nan_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    (void)scales, (void)why;
    ++*(int *)ctx;
    *loss = NAN;
    return ERR_OK;
}

static enum err_code equal_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    (void)ctx, (void)scales, (void)why;
    *loss = 1;
    return ERR_OK;
}

static enum err_code failing_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    (void)ctx, (void)scales, (void)loss;
    return err_set(why, ERR_CANCELLED, "cancelled");
}

static void searches_end_well(void **state)
{
    (void)state;
    struct err why = { 0 };
    const float inputs[2] = { 1, 2 }, shares[2] = { 0.5f, 0.5f };
    float s[2];
    double ratio = NAN;
    int calls = 0;
    assert_int_equal(awq_search(&DEFAULTS, inputs, shares, 2, nan_loss, &calls, s, NULL, &why), ERR_FORMAT);
    assert_int_equal(calls, 20);
    assert_non_null(strstr(why.message, "NaN"));
    CHECK_OK(awq_search(&DEFAULTS, inputs, shares, 2, equal_loss, NULL, s, &ratio, &why));
    CHECK_EQ(ratio, 0); /* the first of several equal losses wins */
    assert_int_equal(awq_search(&DEFAULTS, inputs, shares, 2, failing_loss, NULL, s, NULL, &why),
                     ERR_CANCELLED);
}

static void zero_groups_and_zero_inputs_stay(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct threadpool *pool;
    const struct awq_options o = { 4, -1, true, true, 20, 0.5, 512 };
    CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = 1 }, &why));
    float w[8] = { 0, 0, 0, 0, 1, -2, 3, 0.5f }, gram[16] = { 0 }, limits[2];
    CHECK_OK(awq_clip(&o, w, 2, 4, gram, limits, pool, &why));
    CHECK_EQ(limits[0], 0);
    CHECK_EQ(limits[1], 3); /* without inputs the first limit wins, which clips nothing */
    CHECK_EQ(w[0], 0);
    CHECK_EQ(w[5], -2);
    CHECK_EQ(w[6], 3);
    threadpool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_group_worked_by_hand),
        cmocka_unit_test(symmetric_steps_have_the_middle_as_zero),
        cmocka_unit_test(results_are_the_references),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(scales_are_centred_and_never_infinite),
        cmocka_unit_test(searches_end_well),
        cmocka_unit_test(zero_groups_and_zero_inputs_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
