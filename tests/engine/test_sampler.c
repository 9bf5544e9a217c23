/* Proves: greedy chooses the largest logit (the first of equals); each stage removes exactly what its
 * definition says; draws follow the distribution; a seed gives one result; NaN in logits is detected. */
#include <math.h>
#include <stdlib.h>

#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static struct sampler *open_sampler(struct sampler_options o, int32_t n)
{
    struct err why = { 0 };
    struct sampler *s;
    CHECK_OK(sampler_open(&s, &o, n, &why));
    return s;
}

static struct sampler_options warm(void)
{
    struct sampler_options o = SAMPLER_DEFAULTS;
    o.temperature = 1;
    o.seed = 42;
    return o;
}

/* How often each of 4 ids comes in `draws`. */
static void count_draws(struct sampler_options o, const float *logits, int draws, int counts[4])
{
    struct sampler *s = open_sampler(o, 4);
    for (int i = 0; i < 4; i++) counts[i] = 0;
    for (int i = 0; i < draws; i++) {
        const int32_t id = sampler_next(s, logits);
        assert_in_range(id, 0, 3);
        counts[id]++;
    }
    sampler_close(s);
}

/* ln of 0.5 0.25 0.15 0.1, shuffled: id 2 is the most likely, then 0, 3, 1. */
static const float LOGITS[4] = { -1.3862944f, -2.3025851f, -0.6931472f, -1.8971200f };
static const double P[4] = { 0.25, 0.10, 0.50, 0.15 };

static void test_greedy(void **state)
{
    (void)state;
    struct sampler *s = open_sampler(SAMPLER_DEFAULTS, 4);
    const float equal[4] = { 1, 3, 3, 2 };
    assert_int_equal(sampler_next(s, LOGITS), 2);
    assert_int_equal(sampler_next(s, equal), 1);
    const float masked[4] = { -INFINITY, -INFINITY, -7, -INFINITY };
    assert_int_equal(sampler_next(s, masked), 2);
    sampler_close(s);
}

static void test_damaged(void **state)
{
    (void)state;
    const float nan_last[4] = { 5, 1, 1, NAN }, nan_first[4] = { NAN, 1, 1, 5 };
    const float nothing[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    const struct sampler_options both[2] = { SAMPLER_DEFAULTS, warm() };
    for (int i = 0; i < 2; i++) {
        struct sampler *s = open_sampler(both[i], 4);
        assert_int_equal(sampler_next(s, nan_last), -1);
        assert_int_equal(sampler_next(s, nan_first), -1);
        assert_int_equal(sampler_next(s, nothing), -1);
        assert_int_equal(sampler_next(s, (const float[4]){ 0, INFINITY, 0, 0 }), 1);
        sampler_close(s);
    }
}

/* Counts within 4.5 standard deviations of a binomial: fails one run in 10^5 per cell if the seed changed. */
static void check_distribution(const int counts[4], const double p[4], int draws)
{
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(counts[i], draws * p[i], 4.5 * sqrt(draws * p[i] * (1 - p[i])) + 1e-9);
}

static void test_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    int counts[4];
    struct sampler_options o = warm();
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, P, DRAWS);

    o.temperature = 0.5f; /* p^2, normalized */
    double sharp[4], sum = 0;
    for (int i = 0; i < 4; i++) sum += sharp[i] = P[i] * P[i];
    for (int i = 0; i < 4; i++) sharp[i] /= sum;
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, sharp, DRAWS);
}

static void test_stages(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    int counts[4];
    const double two[4] = { 1.0 / 3, 0, 2.0 / 3, 0 }, three[4] = { 0.25 / 0.9, 0, 0.5 / 0.9, 0.15 / 0.9 };
    struct sampler_options o = warm();
    o.top_k = 2;
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, two, DRAWS);

    o = warm();
    o.top_p = 0.74f; /* 0.5, then 0.25 brings it to 0.75 */
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, two, DRAWS);
    o.top_p = 0.76f;
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, three, DRAWS);

    o = warm();
    o.min_p = 0.29f; /* 0.15 is 0.3 of 0.5, 0.1 is 0.2 of it */
    count_draws(o, LOGITS, DRAWS, counts);
    check_distribution(counts, three, DRAWS);

    /* top-p counts what top-k left: of 0.5 and 0.25, 0.66 is reached by the first alone. */
    o = warm();
    o.top_k = 2;
    o.top_p = 0.66f;
    count_draws(o, LOGITS, 1000, counts);
    assert_int_equal(counts[2], 1000);
}

/* Large vocabularies: what top-k and top-p leave is the head of the whole order, ties by id, and nothing else
 * is ever drawn. */
enum { MANY = 30011 };

static const float *sort_by;

static int by_order(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sort_by[x] != sort_by[y]) return sort_by[x] > sort_by[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void check_head(struct sampler_options o, const float *logits, const int32_t *order, int head)
{
    static bool seen[MANY], in[MANY];
    struct sampler *s = open_sampler(o, MANY);
    int met = 0;
    for (int i = 0; i < MANY; i++) seen[i] = in[i] = false;
    for (int i = 0; i < head; i++) in[order[i]] = true;
    for (int i = 0; i < 4000; i++) {
        const int32_t id = sampler_next(s, logits);
        CHECK_LE(0, id);
        CHECK_LT(id, MANY);
        CHECK(in[id]);
        met += !seen[id];
        seen[id] = true;
    }
    CHECK_LE(met, head);
    CHECK_LE(MIN(head, 100) / 2, met);
    sampler_close(s);
}

static void test_heads(void **state)
{
    (void)state;
    static float logits[MANY];
    static int32_t order[MANY];
    uint32_t x = 1;
    for (int i = 0; i < MANY; i++) {
        x = x * 1664525 + 1013904223;
        logits[i] = (float)(x >> 22) / 128; /* 0 to 8 in steps: many equal ones */
        order[i] = i;
    }
    sort_by = logits;
    qsort(order, MANY, sizeof *order, by_order);
    struct sampler_options o = warm();
    o.temperature = 4; /* flat: the last of the head come up too */
    for (int k = 1; k <= 1000; k *= 10) {
        o.top_k = k;
        check_head(o, logits, order, k);
    }
    o.top_k = MANY + 5;
    check_head(o, logits, order, MANY);
    for (float p = 0.001f; p < 1; p *= 5) {
        double total = 0, sum = 0;
        int head = 0;
        for (int i = 0; i < MANY; i++) total += exp(logits[order[i]]);
        while (sum < (double)p * total) sum += exp(logits[order[head++]]);
        o.top_k = 0;
        o.top_p = p;
        check_head(o, logits, order, head + 1); /* the edge may fall either way: weights are f32 */
        o.top_k = 300;
        o.top_p = 1;
        check_head(o, logits, order, 300);
    }
}

static void test_penalty(void **state)
{
    (void)state;
    struct sampler_options o = SAMPLER_DEFAULTS;
    o.repeat_penalty = 2;
    o.repeat_last = 2;
    struct sampler *s = open_sampler(o, 4);
    const float logits[4] = { 4, 3, 2.5f, -1 };
    assert_int_equal(sampler_next(s, logits), 0); /* 0 counts 2 from now on */
    assert_int_equal(sampler_next(s, logits), 1); /* 1 counts 1.5 */
    assert_int_equal(sampler_next(s, logits), 2); /* 0 is forgotten: window of 2 */
    assert_int_equal(sampler_next(s, logits), 0);
    sampler_close(s);

    /* Twice in the window counts once; a negative logit gets further from zero. */
    s = open_sampler(o, 4);
    sampler_accept(s, 0);
    sampler_accept(s, 0);
    assert_int_equal(sampler_next(s, (const float[4]){ 4, 1.5f, 0, 0 }), 0);
    sampler_close(s);
    s = open_sampler(o, 4);
    sampler_accept(s, 3);
    assert_int_equal(sampler_next(s, (const float[4]){ -2, -9, -9, -1.5f }), 0);
    sampler_close(s);
}

static void test_seed(void **state)
{
    (void)state;
    enum { N = 64 };
    int32_t first[N];
    bool differs = false;
    for (int round = 0; round < 3; round++) {
        struct sampler_options o = warm();
        o.seed = round < 2 ? 7 : 8;
        struct sampler *s = open_sampler(o, 4);
        for (int i = 0; i < N; i++) {
            const int32_t id = sampler_next(s, LOGITS);
            if (round == 0) first[i] = id;
            if (round == 1) assert_int_equal(id, first[i]);
            differs |= round == 2 && id != first[i];
        }
        sampler_close(s);
    }
    CHECK(differs);
}

/* Where options are said to be greedy, draws are what the largest of each row is, whatever the seed; others
 * do draw something else now and then. */
static void test_is_greedy(void **state)
{
    (void)state;
    enum { N = 97, ROWS = 200 };
    static const struct {
        struct sampler_options o; /* seed apart */
        bool greedy;
    } CASES[] = {
        { { .top_p = 1, .repeat_penalty = 1, .repeat_last = 64 }, true },
        { { .top_p = 0.5f, .min_p = 0.2f, .top_k = 7, .repeat_penalty = 1 }, true },
        { { .temperature = 5, .top_k = 1, .top_p = 1, .repeat_penalty = 1 }, true },
        { { .temperature = 5, .top_k = 1, .top_p = 0.3f, .min_p = 1, .repeat_penalty = 1 }, true },
        { { .top_p = 1, .repeat_penalty = 9, .repeat_last = 0 }, true },
        { { .top_p = 1, .repeat_penalty = 9, .repeat_last = 64 }, false },
        { { .temperature = 5, .top_k = 2, .top_p = 1, .repeat_penalty = 1 }, false },
        { { .temperature = 5, .top_k = 0, .top_p = 1, .repeat_penalty = 1 }, false },
    };
    float x[N];
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        struct sampler *s = open_sampler(CASES[c].o, N);
        uint32_t r = 3;
        int others = 0;
        assert_int_equal(sampler_is_greedy(&CASES[c].o), CASES[c].greedy);
        for (int row = 0; row < ROWS; row++) {
            int best = 0;
            for (int i = 0; i < N; i++) {
                r = r * 1664525 + 1013904223;
                x[i] = (float)(r >> 27); /* many equal ones */
                if (x[i] > x[best]) best = i;
            }
            others += sampler_next(s, x) != best;
        }
        CHECK(CASES[c].greedy ? others == 0 : others > 0);
        sampler_close(s);
    }
}

static int down(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* A large vocabulary with many equal logits: only members of the sorted prefix may come. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 50000, K = 700 };
    float *logits = malloc(N * sizeof *logits), *sorted = malloc(N * sizeof *sorted);
    for (int i = 0; i < N; i++) logits[i] = sorted[i] = (float)((i * 7919) % 4001) * 0.002f;
    qsort(sorted, N, sizeof *sorted, down);
    struct sampler_options o = warm();
    o.top_k = K;
    struct sampler *s = open_sampler(o, N);
    for (int i = 0; i < 300; i++) CHECK_LE(sorted[K - 1], logits[sampler_next(s, logits)]);
    sampler_close(s);

    /* The nucleus by hand: the smallest prefix whose mass reaches p; equal logits beyond its end are not in
     * it. */
    double total = 0, sum = 0;
    for (int i = 0; i < N; i++) total += exp((double)sorted[i]);
    int nucleus = 0;
    while (sum < 0.5 * total) sum += exp((double)sorted[nucleus++]);
    o = warm();
    o.top_p = 0.5f;
    s = open_sampler(o, N);
    for (int i = 0; i < 300; i++) CHECK_LE(sorted[nucleus - 1], logits[sampler_next(s, logits)]);
    sampler_close(s);
    free(logits);
    free(sorted);
}

static void test_refusals(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct sampler *s;
    struct sampler_options bad[8];
    for (size_t i = 0; i < 8; i++) bad[i] = warm();
    bad[0].temperature = -1;
    bad[1].temperature = NAN;
    bad[2].top_p = 0;
    bad[3].top_p = 1.5f;
    bad[4].min_p = -0.1f;
    bad[5].top_k = -1;
    bad[6].repeat_penalty = 0;
    bad[7].repeat_last = -1;
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(sampler_open(&s, &bad[i], 4, &why), ERR_USAGE);
        assert_null(s);
    }
    assert_int_equal(sampler_open(&s, &SAMPLER_DEFAULTS, 0, &why), ERR_USAGE);
    sampler_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),    cmocka_unit_test(test_damaged), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_stages),    cmocka_unit_test(test_heads),   cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_seed),      cmocka_unit_test(test_large),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_is_greedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
