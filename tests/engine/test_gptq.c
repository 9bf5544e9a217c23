/* Proves: codes, scales and Hessian errors equal the reference implementation's for every column order, group
 * size and grid. A case computed by hand agrees. Threads and block size do not matter (the latter up to
 * rounding). GPTQ's outputs are closer to the original than those of rounding to nearest. Invalid input (NaN,
 * dead inputs, bad parameters) is rejected. Fewer samples than inputs are enough. */
#include "engine/quant/gptq.h"

#include "tests/engine/algebra.h"
#include "tests/engine/peers_golden.h"
#include "tests/kernels/numbers.h"

static const struct gptq_options DEFAULTS = {
    .bits = 4, .group_size = 128, .damp_percent = 0.01, .blocksize = 128, .sym = true
};

struct solved {
    struct gptq_codes c;
    int32_t *order; /* NULL: original order */
    float *weights; /* dequantized codes */
    double damp;
};

static enum err_code solve_try(struct solved *out, int threads, const float *h, const float *w, int64_t rows,
                               int64_t cols, const struct gptq_options *o, struct err *why)
{
    struct algebra s = algebra_open(threads);
    struct gptq_factor *f = NULL;
    const int64_t groups = o->group_size < 1 ? 1 : cols / o->group_size;
    *out = (struct solved){ .c = { malloc((size_t)(rows * cols)),
                                   malloc(sizeof(float) * (size_t)(rows * groups)),
                                   malloc(sizeof(float) * (size_t)(rows * groups)), NAN },
                            .weights = malloc(sizeof(float) * (size_t)(rows * cols)) };
    memcpy(out->weights, w, sizeof(float) * (size_t)(rows * cols));
    enum err_code rc = gptq_factor_new(&f, s.la, h, cols, o, why);
    if (!rc) {
        rc = gptq_solve(f, out->weights, rows, &out->c, why);
        out->damp = gptq_factor_damp(f);
        if (gptq_factor_order(f)) {
            out->order = malloc(sizeof *out->order * (size_t)cols);
            memcpy(out->order, gptq_factor_order(f), sizeof *out->order * (size_t)cols);
        }
    }
    gptq_factor_free(f);
    algebra_close(&s);
    return rc;
}

static void solved_free(struct solved *s)
{
    free(s->c.codes), free(s->c.scales), free(s->c.zeros), free(s->order), free(s->weights);
}

static struct solved solve(int threads, const float *h, const float *w, int64_t rows, int64_t cols,
                           const struct gptq_options *o)
{
    struct err why = { 0 };
    struct solved s;
    CHECK_OK(solve_try(&s, threads, h, w, rows, cols, o, &why));
    return s;
}

static int64_t input_of(const struct solved *s, int64_t stored)
{
    return s->order ? s->order[stored] : stored;
}

/* [cols][cols], both triangles: sum x x^T. */
static float *hessian_of(const float *x, int64_t tokens, int64_t cols)
{
    float *h = malloc(sizeof *h * (size_t)(cols * cols));
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t t = 0; t < tokens; t++) sum += (double)x[t * cols + i] * x[t * cols + j];
            h[i * cols + j] = h[j * cols + i] = (float)sum;
        }
    return h;
}

/* sum over rows of d^T H d for d = a - b. */
static double hessian_error(const float *h, const float *a, const float *b, int64_t rows, int64_t cols)
{
    double error = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++) {
            double sum = 0;
            for (int64_t j = 0; j < cols; j++)
                sum += (double)h[i * cols + j] * ((double)a[r * cols + j] - b[r * cols + j]);
            error += sum * ((double)a[r * cols + i] - b[r * cols + i]);
        }
    return error;
}

/* ---------------------------------------------------------------- the reference */

struct variant {
    const char *name;
    struct gptq_options o;
    double hessian_error; /* with H = 2 / 12 samples of 32 tokens: the manifest's */
};
static const struct variant VARIANTS[] = {
    { "w4g128", { 4, 128, 0.01, 0, 0, 128, .sym = true }, 62.75346862703732 },
    { "w4g128.asym.desc", { 4, 128, 0.01, 0, 0, 128, .desc_act = true }, 22.858451222648014 },
    { "w4g64.desc.static",
      { 4, 64, 0.01, 0, 0, 128, .sym = true, .desc_act = true, .static_groups = true },
      22.438850392405513 },
    { "w3g128", { 3, 128, 0.01, 0, 0, 128, .sym = true }, 324.9820954484506 },
    { "w2g64.asym", { 2, 64, 0.01, 0, 0, 128, .sym = false }, 849.4627931594555 },
    { "w8", { 8, -1, 0.01, 0, 0, 128, .sym = true }, 0.2564626977085488 },
};

static void *variant_file(const struct variant *v, const char *what, size_t bytes)
{
    char name[96];
    snprintf(name, sizeof name, "gptq/%s.%s", v->name, what);
    return peer_file(name, bytes);
}

static void check_variant(const struct variant *v, const float *h, const float *w)
{
    const int64_t groups = v->o.group_size < 0 ? 1 : PEER_COLS / v->o.group_size;
    struct solved s = solve(2, h, w, PEER_ROWS, PEER_COLS, &v->o);
    uint8_t *codes = variant_file(v, "codes.u8", PEER_ROWS * PEER_COLS);
    float *scales = variant_file(v, "scale.f32", sizeof(float) * (size_t)(PEER_ROWS * groups));
    float *zeros = variant_file(v, "zero.f32", sizeof(float) * (size_t)(PEER_ROWS * groups));
    int32_t *group = variant_file(v, "g_idx.i32", sizeof(int32_t) * PEER_COLS);
    int differ = 0;
    for (int64_t r = 0; r < PEER_ROWS; r++)
        for (int64_t i = 0; i < PEER_COLS; i++)
            differ += s.c.codes[r * PEER_COLS + i] != codes[r * PEER_COLS + input_of(&s, i)];
    print_message("%s: %d of %d codes differ\n", v->name, differ, PEER_ROWS * PEER_COLS);
    CHECK_LE(differ, PEER_ROWS * PEER_COLS / 200);
    int far = 0; /* a different code changes the weights that later groups see */
    for (int64_t i = 0; i < PEER_ROWS * groups; i++) {
        far += !(fabs((double)s.c.scales[i] - scales[i]) <= 1e-5 * scales[i]);
        far += s.c.zeros[i] != zeros[i];
    }
    CHECK_LE(far, PEER_ROWS * groups / 50);
    for (int64_t i = 0; i < PEER_COLS; i++)
        assert_int_equal(group[input_of(&s, i)], v->o.group_size < 0 ? 0 : i / v->o.group_size);
    const double error = hessian_error(h, s.weights, w, PEER_ROWS, PEER_COLS) * 2 / 12;
    CHECK_NEAR(error, v->hessian_error, 0.01 * v->hessian_error);
    free(codes), free(scales), free(zeros), free(group);
    solved_free(&s);
}

static void codes_are_the_references(void **state)
{
    (void)state;
    PEERS_OR_SKIP;
    float *w = peer_weights(), *x = peer_inputs(), *h = hessian_of(x, PEER_TOKENS, PEER_COLS);
    float *first = peer_file("gptq/hessian_first128.f32", sizeof(float) * 128 * 128);
    for (int64_t i = 0; i < 128; i++)
        for (int64_t j = 0; j < 128; j++)
            CHECK_NEAR(h[i * PEER_COLS + j] * 2 / 12, first[i * 128 + j],
                       1e-5 * sqrt(first[i * 129] * first[j * 129]));
    for (size_t v = 0; v < COUNT_OF(VARIANTS); v++) check_variant(&VARIANTS[v], h, w);
    free(w), free(x), free(h), free(first);
}

/* Two rows of four weights and five samples: small enough to check with a pocket calculator. */
static void the_case_worked_by_hand(void **state)
{
    (void)state;
    const float x[5][4] = {
        { 1, 2, 0, -1 }, { 0.5f, 1, 1, 0 }, { -1, 0, 2, 1 }, { 2, 1, -1, 0.5f }, { 0, 1, 1, 1 }
    };
    const float w[2][4] = { { 0.9f, -0.4f, 0.3f, 0.1f }, { -0.2f, 0.7f, -0.6f, 0.5f } };
    const uint8_t codes[8] = { 7, 3, 5, 4, 3, 7, 1, 6 };
    const struct gptq_options o = { 3, -1, 0.01, 0, 0, 128, .sym = true };
    float *h = hessian_of(x[0], 5, 4);
    struct solved s = solve(1, h, w[0], 2, 4, &o);
    assert_memory_equal(s.c.codes, codes, sizeof codes);
    CHECK_NEAR(s.c.scales[0], 0.2571428571428572, 1e-7);
    CHECK_NEAR(s.c.scales[1], 0.2, 1e-7);
    CHECK_EQ(s.c.zeros[0], 4);
    CHECK_EQ(s.c.zeros[1], 4);
    CHECK_NEAR(hessian_error(h, s.weights, w[0], 2, 4) * 2 / 5, 0.07116326530612244, 1e-6);
    free(h);
    solved_free(&s);
}

/* ---------------------------------------------------------------- properties */

enum { ROWS = 40, COLS = 384, TOKENS = 500 };

/* Correlated inputs, some of them large; weights with one outlier in each row. */
static void make_case(uint64_t seed, int64_t tokens, float **w, float **x, float **h)
{
    struct rng r = { seed };
    *w = malloc(sizeof(float) * ROWS * COLS), *x = malloc(sizeof(float) * (size_t)tokens * COLS);
    fill_gauss(&r, *w, ROWS * COLS, 0.05);
    for (int i = 0; i < ROWS; i++) (*w)[i * COLS + rng_below(&r, COLS)] *= 6;
    fill_gauss(&r, *x, tokens * COLS, 1);
    for (int64_t t = 0; t < tokens; t++)
        for (int k = 1; k < COLS; k++) {
            (*x)[t * COLS + k] += 0.7f * (*x)[t * COLS + k - 1];
            if (k % 50 == 0) (*x)[t * COLS + k] *= 9;
        }
    *h = hessian_of(*x, tokens, COLS);
}

static void free_case(float *w, float *x, float *h)
{
    free(w), free(x), free(h);
}

/* Round to nearest on the same kind of grid, with the same options. */
static double rounding_error(const float *h, const float *w, const struct gptq_options *o)
{
    float *eye = calloc(COLS * COLS, sizeof *eye); /* uncorrelated inputs: nothing to compensate */
    for (int k = 0; k < COLS; k++) eye[k * COLS + k] = 1;
    struct solved s = solve(1, eye, w, ROWS, COLS, o);
    const double error = hessian_error(h, s.weights, w, ROWS, COLS);
    solved_free(&s);
    free(eye);
    return error;
}

static const struct gptq_options OPTIONS[] = {
    { 4, 128, 0.01, 0, 0, 128, .sym = true },
    { 3, 64, 0.01, 0, 0, 100, .sym = false },
    { 2, 64, 0.01, 0, 0, 128, .sym = false, .desc_act = true },
    { 4, 32, 0.01, 0, 0, 128, .sym = true, .act_group_aware = true },
    { 3, 128, 0.05, 0, 2.4, 128, .sym = true, .half_scales = true },
    { 4, 64, 0.01, 0, 2.4, 64, .sym = false, .desc_act = true, .static_groups = true, .half_scales = true },
    { 8, -1, 0.01, 0, 0, 128, .sym = true, .half_scales = true },
};

static void outputs_are_nearer_than_with_rounding(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(11, TOKENS, &w, &x, &h);
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++) {
        struct solved s = solve(2, h, w, ROWS, COLS, &OPTIONS[i]);
        const double error = hessian_error(h, s.weights, w, ROWS, COLS),
                     rounding = rounding_error(h, w, &OPTIONS[i]);
        print_message("options %zu: error %.4g of rounding's\n", i, error / rounding);
        CHECK_LT(error, 0.7 * rounding);
        double damping = 0, moved = 0;
        for (int k = 0; k < COLS; k++) damping += s.damp * h[k * COLS + k] / COLS;
        for (int k = 0; k < ROWS * COLS; k++) moved += pow((double)s.weights[k] - w[k], 2);
        CHECK_NEAR(s.c.loss, error + damping * moved, 1e-3 * s.c.loss);
        solved_free(&s);
    }
    free_case(w, x, h);
}

/* Dequantizing the codes gives the returned weights, for any column order. */
static void weights_are_what_codes_stand_for(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(12, TOKENS, &w, &x, &h);
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++) {
        const struct gptq_options *o = &OPTIONS[i];
        const int64_t group = o->group_size < 0 ? COLS : o->group_size, groups = COLS / group;
        struct solved s = solve(2, h, w, ROWS, COLS, o);
        CHECK_EQ(!s.order, !(o->desc_act && !o->static_groups));
        char seen[COLS] = { 0 };
        for (int64_t k = 0; k < COLS; k++) seen[input_of(&s, k)] = 1;
        assert_null(memchr(seen, 0, sizeof seen));
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t k = 0; k < COLS; k++) {
                const int64_t g = r * groups + k / group;
                CHECK_LT(s.c.codes[r * COLS + k], 1 << o->bits);
                const float is = s.c.scales[g] * ((float)s.c.codes[r * COLS + k] - s.c.zeros[g]);
                CHECK_EQ(s.weights[r * COLS + input_of(&s, k)], is);
                if (o->half_scales) CHECK_EQ(s.c.scales[g], f16_to_f32(f16_from_f32(s.c.scales[g])));
                if (o->sym) CHECK_EQ(s.c.zeros[g], (float)(1 << (o->bits - 1)));
            }
        solved_free(&s);
    }
    free_case(w, x, h);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(13, TOKENS, &w, &x, &h);
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++) {
        struct solved one = solve(1, h, w, ROWS, COLS, &OPTIONS[i]);
        for (int threads = 2; threads <= 5; threads++) {
            struct solved s = solve(threads, h, w, ROWS, COLS, &OPTIONS[i]);
            assert_memory_equal(s.c.codes, one.c.codes, ROWS * COLS);
            assert_memory_equal(s.weights, one.weights, sizeof(float) * ROWS * COLS);
            CHECK_EQ(s.c.loss, one.c.loss);
            solved_free(&s);
        }
        solved_free(&one);
    }
    free_case(w, x, h);
}

/* With whole-row or static groups, the block size only changes the order of additions. */
static void the_block_size_is_about_speed(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(14, TOKENS, &w, &x, &h);
    struct gptq_options o = { 4, -1, 0.01, 0, 0, 128, .sym = true };
    struct solved one = solve(1, h, w, ROWS, COLS, &o);
    const double error = hessian_error(h, one.weights, w, ROWS, COLS);
    const int64_t sizes[] = { 1, 7, 100, COLS, 100000 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        o.blocksize = sizes[i];
        struct solved s = solve(2, h, w, ROWS, COLS, &o);
        int differ = 0;
        for (int k = 0; k < ROWS * COLS; k++) differ += s.c.codes[k] != one.c.codes[k];
        CHECK_LE(differ, ROWS * COLS / 200);
        CHECK_NEAR(hessian_error(h, s.weights, w, ROWS, COLS), error, 0.01 * error);
        solved_free(&s);
    }
    solved_free(&one);
    free_case(w, x, h);
}

static double error_with(const float *h, const float *w, struct gptq_options o)
{
    struct solved s = solve(2, h, w, ROWS, COLS, &o);
    const double error = hessian_error(h, s.weights, w, ROWS, COLS);
    solved_free(&s);
    return error;
}

/* Act-order helps when large inputs come first; in the original order the largest input is last here. */
static void clipping_searches_and_orders_pay(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(15, TOKENS, &w, &x, &h);
    const struct gptq_options plain = { 3, 128, 0.01, 0, 0, 128, .sym = true };
    struct gptq_options search = plain, rows = plain, ordered = plain, aware = plain;
    search.mse = 2.4;
    CHECK_LT(error_with(h, w, search), error_with(h, w, plain));
    free(h);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int k = 0; k < COLS; k++) x[t * COLS + k] *= (float)(k + 1) / 40;
    h = hessian_of(x, TOKENS, COLS);
    rows.group_size = ordered.group_size = aware.group_size = -1;
    ordered.desc_act = aware.act_group_aware = true;
    CHECK_LT(error_with(h, w, ordered), 0.8 * error_with(h, w, rows));
    CHECK_EQ(error_with(h, w, aware),
             error_with(h, w, ordered)); /* with one group both orders are the same */
    aware.group_size = 128;
    CHECK_LT(error_with(h, w, aware), 0.9 * error_with(h, w, plain));
    free_case(w, x, h);
}

/* ---------------------------------------------------------------- edges */

static void fewer_samples_than_inputs_will_do(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(16, 20, &w, &x, &h);
    struct solved s = solve(2, h, w, ROWS, COLS, &DEFAULTS);
    CHECK_EQ(s.damp, DEFAULTS.damp_percent);
    CHECK_LT(hessian_error(h, s.weights, w, ROWS, COLS), 0.3 * rounding_error(h, w, &DEFAULTS));
    solved_free(&s);
    free_case(w, x, h);
}

static void dead_inputs_weigh_nothing(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(17, TOKENS, &w, &x, &h);
    const int dead[] = { 0, 5, 130, COLS - 1 };
    for (size_t d = 0; d < COUNT_OF(dead); d++)
        for (int k = 0; k < COLS; k++) h[dead[d] * COLS + k] = h[k * COLS + dead[d]] = 0;
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++) {
        struct solved s = solve(2, h, w, ROWS, COLS, &OPTIONS[i]);
        for (size_t d = 0; d < COUNT_OF(dead); d++)
            for (int r = 0; r < ROWS; r++) CHECK_EQ(s.weights[r * COLS + dead[d]], 0);
        solved_free(&s);
    }
    free_case(w, x, h);
}

static void damping_grows_until_there_is_a_factor(void **state)
{
    (void)state;
    struct err why = { 0 };
    /* Not positive definite, as rounding can make the Hessian of inputs that are copies of each other
     * (exaggerated here). */
    float h[16] = { 1, 0, 0, 0, 1.02f, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1 };
    const float w[4] = { 1, -2, 3, -4 };
    struct gptq_options o = { 4, -1, 0.01, 0, 0, 128, .sym = true };
    struct solved s;
    assert_int_equal(solve_try(&s, 1, h, w, 1, 4, &o, &why), ERR_FORMAT);
    assert_non_null(strstr(why.message, "damp_percent 0.01"));
    solved_free(&s);
    o.damp_auto_increment = 0.015;
    s = solve(1, h, w, 1, 4, &o);
    CHECK_NEAR(s.damp, 0.025, 1e-9);
    solved_free(&s);
    h[4] = 300; /* no damping up to 1 helps */
    assert_int_equal(solve_try(&s, 1, h, w, 1, 4, &o, &why), ERR_FORMAT);
    solved_free(&s);
}

static void refuse(const float *h, const float *w, const struct gptq_options *o, enum err_code want,
                   const char *says)
{
    struct err why = { 0 };
    struct solved s;
    assert_int_equal(solve_try(&s, 2, h, w, ROWS, COLS, o, &why), want);
    if (!strstr(why.message, says)) fail_msg("'%s' does not say '%s'", why.message, says);
    solved_free(&s);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(18, TOKENS, &w, &x, &h);
    float *bad = malloc(sizeof(float) * COLS * COLS);
    const size_t bytes = sizeof(float) * COLS * COLS;
    memcpy(bad, h, bytes), bad[77 * COLS + 77] = NAN;
    refuse(bad, w, &DEFAULTS, ERR_FORMAT, "input 77");
    memcpy(bad, h, bytes), bad[300 * COLS + 7] = INFINITY;
    refuse(bad, w, &DEFAULTS, ERR_FORMAT, "NaN or infinity");
    memset(bad, 0, bytes);
    refuse(bad, w, &DEFAULTS, ERR_FORMAT, "all 384 inputs are 0");
    memcpy(bad, w, sizeof(float) * ROWS * COLS), bad[39 * COLS + 383] = 1e31f;
    refuse(h, bad, &DEFAULTS, ERR_FORMAT, "weight [39][383] is 1e+31");
    memcpy(bad, w, sizeof(float) * ROWS * COLS), bad[3 * COLS + 5] = -INFINITY;
    refuse(h, bad, &DEFAULTS, ERR_FORMAT, "weight [3][5] is -inf");
    struct gptq_options o = DEFAULTS;
    o.bits = 5, refuse(h, w, &o, ERR_USAGE, "bits is 5"), o = DEFAULTS;
    o.group_size = 100, refuse(h, w, &o, ERR_USAGE, "group_size is 100"), o = DEFAULTS;
    o.group_size = 0, refuse(h, w, &o, ERR_USAGE, "group_size is 0"), o = DEFAULTS;
    o.damp_percent = 0, refuse(h, w, &o, ERR_USAGE, "damp_percent is 0"), o = DEFAULTS;
    o.damp_percent = NAN, refuse(h, w, &o, ERR_USAGE, "damp_percent is nan"), o = DEFAULTS;
    o.damp_auto_increment = 2, refuse(h, w, &o, ERR_USAGE, "damp_auto_increment is 2"), o = DEFAULTS;
    o.mse = -1, refuse(h, w, &o, ERR_USAGE, "mse is -1"), o = DEFAULTS;
    o.blocksize = 0, refuse(h, w, &o, ERR_USAGE, "blocksize is 0"), o = DEFAULTS;
    o.desc_act = o.act_group_aware = true, refuse(h, w, &o, ERR_USAGE, "exclude each other");
    free(bad);
    free_case(w, x, h);
}

/* Groups of zeros, of equal weights, of one sign, of subnormal and of huge weights: codes stay in range,
 * zeros are exact, nothing becomes infinite. */
static void extreme_groups_stay_finite(void **state)
{
    (void)state;
    float *w, *x, *h;
    make_case(19, TOKENS, &w, &x, &h);
    const float fill[] = { 0, 0.25f, -3e4f, 1e-40f, 1e30f, -0.0f };
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++) {
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < COLS; k++)
                w[r * COLS + k] = r < (int)COUNT_OF(fill) ? fill[r] : 0.1f * (float)(k % 7);
        struct solved s = solve(2, h, w, ROWS, COLS, &OPTIONS[i]);
        for (int k = 0; k < ROWS * COLS; k++) {
            CHECK(isfinite(s.weights[k]));
            CHECK_LT(s.c.codes[k], 1 << OPTIONS[i].bits);
        }
        for (int k = 0; k < COLS; k++) {
            CHECK_EQ(s.weights[k], 0);
            CHECK_EQ(s.weights[5 * COLS + k], 0);
        }
        solved_free(&s);
    }
    free_case(w, x, h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_references),
        cmocka_unit_test(the_case_worked_by_hand),
        cmocka_unit_test(outputs_are_nearer_than_with_rounding),
        cmocka_unit_test(weights_are_what_codes_stand_for),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(the_block_size_is_about_speed),
        cmocka_unit_test(clipping_searches_and_orders_pay),
        cmocka_unit_test(fewer_samples_than_inputs_will_do),
        cmocka_unit_test(dead_inputs_weigh_nothing),
        cmocka_unit_test(damping_grows_until_there_is_a_factor),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(extreme_groups_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
