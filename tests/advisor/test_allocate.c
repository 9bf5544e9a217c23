/* Proves: the allocation keeps its limit, is never better than the best of all combinations, and worse by at
 * most one item's step; the same for a cost target; a convex hull worked by hand; rules give exactly the
 * assigned formats when the recipe parses them. */
#include <math.h>

#include "advisor/recipe/recipe.h"
#include "engine/quant/quant.h"
#include "tests/check.h"

static void hull_by_hand(void **state)
{
    (void)state;
    /* (10, 8) and (20, 4) are on the hull; (15, 7) lies above the line between them; (20, 4) dominates (25,
     * 4); (40, 0) is on it */
    const struct item x = { .choice = { { 10, 8 }, { 20, 4 }, { 15, 7 }, { 25, 4 }, { 40, 0 }, { 5, NAN } },
                            .n = 6 };
    const bool want[] = { true, true, false, false, true, false };
    for (int k = 0; k < x.n; k++)
        if (choice_is_efficient(&x, k) != want[k]) fail_msg("choice %d", k);
}

static uint64_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 33;
}

/* Larger choices cost less, as with formats, and some are dominated. */
static void draw(struct item *items, int n, uint64_t *seed)
{
    for (int i = 0; i < n; i++) {
        const double scale = 1 + (double)(next(seed) % 1000) / 50;
        items[i] = (struct item){ .n = 4 };
        for (int k = 0; k < 4; k++)
            items[i].choice[k] = (struct cost_choice){ 100 * (k + 1) + (int64_t)(next(seed) % 60),
                                                       scale * pow(4, -k) *
                                                           (1 + (double)(next(seed) % 100) / 100) };
        if (next(seed) % 5 == 0) items[i].choice[next(seed) % 4].cost = NAN;
    }
}

/* All 4^n combinations: the lowest cost within `bytes`, and the fewest bytes within `cost`. */
static void brute(const struct item *items, int n, int64_t bytes, double cost, double *least, int64_t *fewest)
{
    *least = INFINITY;
    *fewest = INT64_MAX;
    for (int c = 0; c < 1 << 2 * n; c++) {
        int64_t b = 0;
        double y = 0;
        for (int i = 0; i < n; i++) {
            const struct cost_choice *x = &items[i].choice[c >> 2 * i & 3];
            b += x->bytes;
            y += x->cost; /* a NAN cost is not offered */
        }
        if (b <= bytes && y < *least) *least = y;
        if (y <= cost && b < *fewest) *fewest = b;
    }
}

static double largest_cost(const struct item *items, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < items[i].n; k++) most = fmax(most, items[i].choice[k].cost);
    return most;
}

static void near_the_best(void **state)
{
    (void)state;
    enum { ITEMS = 6, ROUNDS = 200 };
    uint64_t seed = 7;
    int exact = 0, refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct item items[ITEMS];
        struct allocation a;
        struct err why;
        double least;
        int64_t fewest;
        draw(items, ITEMS, &seed);
        const int64_t limit = 500 + (int64_t)(next(&seed) % 1900);
        brute(items, ITEMS, limit, 0, &least, &fewest);
        const enum err_code rc = allocate_bytes(&a, items, ITEMS, limit, &why);
        if (isinf(least)) {
            assert_int_equal(rc, ERR_FIT);
            refused++;
            continue;
        }
        assert_int_equal(rc, ERR_OK);
        CHECK_LE(a.bytes, limit);
        CHECK_LE(least - 1e-9, a.cost);
        CHECK_LE(a.cost, least + largest_cost(items, ITEMS));
        exact += a.cost < least * 1.02;
    }
    CHECK_LT(ROUNDS / 2, exact); /* and usually it equals the best one */
    CHECK_LT(0, refused);
}

static void cost_target(void **state)
{
    (void)state;
    enum { ITEMS = 6 };
    uint64_t seed = 3;
    for (int round = 0; round < 100; round++) {
        struct item items[ITEMS];
        struct allocation a;
        struct err why;
        double least;
        int64_t fewest;
        draw(items, ITEMS, &seed);
        const double limit = 0.5 + (double)(next(&seed) % 100) / 5;
        brute(items, ITEMS, 0, limit, &least, &fewest);
        const enum err_code rc = allocate_cost(&a, items, ITEMS, limit, &why);
        if (fewest == INT64_MAX) {
            assert_int_equal(rc, ERR_FIT);
            continue;
        }
        assert_int_equal(rc, ERR_OK);
        CHECK_LE(a.cost, limit);
        CHECK_LE(fewest, a.bytes);
        CHECK_LE(a.bytes, fewest + 500);
    }
}

/* ---------------------------------------------------------------- rules */

static void check_rules(const struct assigned *a, int n, const char *want)
{
    char line[RECIPE_LINE];
    struct config c;
    struct err why;
    CHECK(recipe_rules_line(a, n, line));
    if (want) assert_string_equal(line, want);
    CHECK_OK(config_parse(&c, line, &why));
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor t = {
            .name = a[i].tensor, .format = &FORMATS[FORMAT_F16], .dims = 2, .shape = { 256, 8, 1, 1 }
        };
        const struct format *got = recipe_tensor_format(&c, NULL, &t, NULL);
        if (got != a[i].format)
            fail_msg("%s: %s gets %s, want %s", line, a[i].tensor, got->name, a[i].format->name);
    }
}

static void rules_by_hand(void **state)
{
    (void)state;
    const struct format *q4 = format_find("q4_K"), *q6 = format_find("q6_K"), *q8 = format_find("q8_0");
    const struct assigned a[] = {
        { "token_embd.weight", q8 },        { "blk.0.attn_v.weight", q6 },   { "blk.0.ffn_down.weight", q8 },
        { "blk.1.attn_v.weight", q6 },      { "blk.1.ffn_down.weight", q4 }, { "blk.2.attn_v.weight", q6 },
        { "blk.2.ffn_down.weight", q8 },    { "blk.3.attn_v.weight", q6 },   { "blk.3.ffn_down.weight", q4 },
        { "blk.4.ffn_down.weight", q4 },    { "blk.0.attn_q.weight", q4 },   { "blk.1.attn_q.weight", q4 },
        { "blk.1.attn_output.weight", q4 }, { "output.weight", q6 },
    };
    check_rules(a, COUNT_OF(a), "q4_K,tensors=ffn_down@0+2:q8_0;token_embd:q8_0;attn_v:q6_K;output:q6_K");
    check_rules(a + 10, 2, "q4_K");
}

static void rules_at_random(void **state)
{
    (void)state;
    enum { LAYERS = 8, PARTS = 4 };
    static const char *const PART[PARTS] = { "attn_q", "attn_k", "ffn_up", "ffn_down" };
    char name[LAYERS * PARTS][64];
    struct assigned a[LAYERS * PARTS];
    uint64_t seed = 5;
    for (int round = 0; round < 50; round++) {
        const struct format *f[] = { format_find("q4_K"), format_find("q5_K"), format_find("q6_K") };
        for (int i = 0; i < LAYERS * PARTS; i++) {
            snprintf(name[i], sizeof name[i], "blk.%d.%s.weight", i / PARTS, PART[i % PARTS]);
            a[i] = (struct assigned){ name[i], f[next(&seed) % 3] };
        }
        check_rules(a, LAYERS * PARTS, NULL);
    }
}

static void too_many_rules(void **state)
{
    (void)state;
    enum { TENSORS = 100 };
    static char name[TENSORS][64];
    struct assigned a[TENSORS];
    char line[RECIPE_LINE];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof name[i], "blk.%d.part_%d.weight", i / 2, i); /* all are different */
        a[i] = (struct assigned){ name[i], format_find(i % 2 ? "q4_K" : "q6_K") };
    }
    CHECK(!recipe_rules_line(a, TENSORS, line));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hull_by_hand),    cmocka_unit_test(near_the_best),
                                        cmocka_unit_test(cost_target),     cmocka_unit_test(rules_by_hand),
                                        cmocka_unit_test(rules_at_random), cmocka_unit_test(too_many_rules) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
