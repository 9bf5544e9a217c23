/* Proves, for the pool of blocks: under random use by many texts, no block is lost or used twice, a block
 * that is found has the contents of its name, and the invariants hold, for every policy; each policy evicts
 * the block that its name says; names depend on all tokens before. */
#include "engine/serve/serve.h"
#include "tests/kernels/numbers.h"

enum { BLOCKS = 40, TEXTS = 40, LONGEST = 9, STEPS = 20000 };

/* A text has the same first `shared` blocks as text 0, and others of its own. */
struct text {
    int shared, length;
};

static struct block_name name_at(const struct hash_key *key, const struct text *t, int text, int at)
{
    struct block_name name = { { 0, 0 } };
    for (int i = 0; i <= at; i++) {
        const int32_t tokens[2] = { i < t->shared ? 0 : text, i };
        name = pool_name_of(key, i ? &name : NULL, tokens, 2);
    }
    return name;
}

struct user {
    int text, count;
    int32_t held[LONGEST];
};

/* Begin a request for a text. contents[b]: what block b has. */
static void user_begin(struct user *u, struct pool *p, const struct hash_key *key, const struct text *texts,
                       struct block_name *contents)
{
    for (u->count = 0; u->count < texts[u->text].length; u->count++) {
        const struct block_name name = name_at(key, &texts[u->text], u->text, u->count);
        int32_t *held = &u->held[u->count];
        *held = pool_find(p, &name);
        if (*held >= 0) {
            assert_memory_equal(&contents[*held], &name, sizeof name);
            continue;
        }
        *held = pool_take(p);
        if (*held < 0) return;
        assert_int_equal(pool_references(p, *held), 1);
        contents[*held] = name;
        pool_name(p, *held, &name, u->count ? u->held[u->count - 1] : -1);
    }
}

static void user_end(struct user *u, struct pool *p, struct rng *r)
{
    for (int i = u->count - 1; i >= 0; i--) pool_release(p, u->held[i], rng_below(r, 3), rng_below(r, 99));
    u->count = 0;
}

static void check_random(enum evict_policy evict)
{
    struct err why = { 0 };
    struct rng r = { 3 + (uint64_t)evict };
    struct pool *p;
    struct hash_key key;
    struct text texts[TEXTS];
    struct user users[6] = { 0 };
    struct block_name contents[BLOCKS] = { 0 };
    hash_key_make(&key);
    CHECK_OK(pool_open(&p, BLOCKS, evict, &why));
    for (int t = 0; t < TEXTS; t++)
        texts[t] = (struct text){ rng_below(&r, LONGEST), 1 + rng_below(&r, LONGEST) };
    for (int step = 0; step < STEPS; step++) {
        struct user *u = &users[rng_below(&r, COUNT_OF(users))];
        if (u->count) {
            user_end(u, p, &r);
        } else {
            u->text = rng_below(&r, TEXTS);
            user_begin(u, p, &key, texts, contents);
        }
        const char *wrong = pool_check(p);
        if (wrong) fail_msg("%s, step %d: %s", evict_name(evict), step, wrong);
        const struct pool_counts c = pool_count(p);
        assert_int_equal(c.used + c.cached + c.free, BLOCKS);
    }
    for (size_t i = 0; i < COUNT_OF(users); i++) user_end(&users[i], p, &r);
    assert_int_equal(pool_count(p).used, 0);
    assert_true(pool_count(p).evicted > 1000);
    for (int i = 0; i < BLOCKS; i++) assert_true(pool_take(p) >= 0);
    assert_int_equal(pool_take(p), -1);
    pool_close(p);
}

static void random_use(void **state)
{
    (void)state;
    for (int e = 0; e < EVICT_COUNT; e++) check_random((enum evict_policy)e);
}

/* Four blocks: a, named first and released second, has a child c; b; d. What is evicted, in order. */
/* The policy is in use from the start, or, with `before`, only when the blocks are cached already. */
static void order_of(enum evict_policy evict, enum evict_policy before, char *out)
{
    static const int64_t PRIORITY[] = { 5, 1, 5, 7 }, NEXT[] = { 10, 40, 30, 20 };
    static const int RELEASED[] = { 1, 0, 2, 3 }, PARENT[] = { -1, -1, 0, -1 };
    struct err why = { 0 };
    struct pool *p;
    CHECK_OK(pool_open(&p, 4, before, &why));
    for (int i = 0; i < 4; i++) {
        const struct block_name name = { { (uint64_t)i + 1, 7 } };
        assert_int_equal(pool_take(p), i);
        assert_true(pool_name(p, i, &name, PARENT[i]));
    }
    for (int i = 0; i < 4; i++) pool_release(p, RELEASED[i], PRIORITY[RELEASED[i]], NEXT[RELEASED[i]]);
    pool_set_policy(p, evict);
    assert_null(pool_check(p));
    for (int i = 0; i < 4; i++) *out++ = (char)('a' + pool_take(p));
    *out = 0;
    pool_close(p);
}

static void orders(void **state)
{
    (void)state;
    static const struct {
        enum evict_policy evict;
        const char *order;
    } WANT[] = { { EVICT_LRU, "bacd" },      { EVICT_FIFO, "abcd" },     { EVICT_LIFO, "dcab" },
                 { EVICT_LEAF_LRU, "bcad" }, { EVICT_PRIORITY, "bacd" }, { EVICT_FARTHEST, "bcda" } };
    _Static_assert(COUNT_OF(WANT) == EVICT_COUNT, "each policy has its order");
    for (size_t i = 0; i < COUNT_OF(WANT); i++) {
        char got[8];
        for (int before = 0; before < EVICT_COUNT; before++) {
            order_of(WANT[i].evict, (enum evict_policy)before, got);
            CHECK_STR(got, WANT[i].order);
        }
    }
}

/* A block that cannot be evicted yet when the policy changes has its place by the new policy later. */
static void order_behind_others(void **state)
{
    static const int RELEASED[] = { 1, 2, 0 }, PARENT[] = { -1, 0, -1 };
    struct err why = { 0 };
    struct pool *p;
    (void)state;
    CHECK_OK(pool_open(&p, 3, EVICT_LIFO, &why));
    for (int i = 0; i < 3; i++) {
        const struct block_name name = { { (uint64_t)i + 1, 7 } };
        assert_int_equal(pool_take(p), i);
        assert_true(pool_name(p, i, &name, PARENT[i]));
    }
    for (int i = 0; i < 3; i++) pool_release(p, RELEASED[i], 0, 0);
    pool_set_policy(p, EVICT_LEAF_LRU);
    for (int i = 0; i < 3; i++) assert_int_equal(pool_take(p), RELEASED[i]);
    pool_close(p);
}

/* The second of two blocks with the same contents has no name, and is free after its release. */
static void same_contents(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct pool *p;
    const struct block_name name = { { 1, 2 } };
    CHECK_OK(pool_open(&p, 3, EVICT_LRU, &why));
    const int32_t a = pool_take(p), b = pool_take(p);
    assert_true(pool_name(p, a, &name, -1));
    assert_false(pool_name(p, b, &name, -1));
    pool_share(p, a);
    pool_release(p, a, 0, 0);
    assert_int_equal(pool_references(p, a), 1);
    pool_release(p, b, 0, 0);
    pool_release(p, a, 0, 0);
    assert_int_equal(pool_count(p).free, 2);
    assert_int_equal(pool_count(p).cached, 1);
    assert_int_equal(pool_find(p, &name), a);
    pool_close(p);
}

static void names(void **state)
{
    (void)state;
    struct hash_key key = { { 1, 2 } }, other = { { 1, 3 } };
    const int32_t tokens[] = { 5, 6, 7 };
    const struct block_name a = pool_name_of(&key, NULL, tokens, 3), b = pool_name_of(&key, &a, tokens, 3);
    const struct block_name same = pool_name_of(&key, NULL, tokens, 3);
    const struct block_name shorter = pool_name_of(&key, NULL, tokens, 2),
                            secret = pool_name_of(&other, NULL, tokens, 3);
    assert_memory_equal(&a, &same, sizeof a);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &shorter, sizeof a);
    assert_memory_not_equal(&a, &secret, sizeof a);
}

/* ---------------------------------------------------------------- traces */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void trace(void **state)
{
    (void)state;
    char path[] = "/tmp/qdyno-trace-XXXXXX";
    struct err why = { 0 };
    struct block_trace t;
    struct block_trace_result r;
    close(mkstemp(path));
    write_file(path, "{\"hash_ids\": [1, 2, 3], \"timestamp\": 0}\n\n{\"hash_ids\": [1, 2, 4]}\r\n"
                     "{\"hash_ids\": []}\n{\"hash_ids\": [9, 1, 2, 3]}");
    CHECK_OK(block_trace_read(&t, path, &why));
    assert_int_equal(t.requests, 4);
    assert_int_equal(t.blocks, 10);
    assert_int_equal(t.distinct, 5);
    assert_int_equal(t.found_at_most, 2); /* the last request begins with an unknown block */
    assert_int_equal(t.next_use[0], 1);
    assert_int_equal(t.next_use[3], 3);
    assert_int_equal(t.next_use[5], INT64_MAX);
    CHECK_OK(block_trace_replay(&r, &t, 8, EVICT_LRU, &why));
    assert_int_equal(r.found, 2);
    assert_int_equal(r.evicted, 0);
    CHECK_OK(block_trace_replay(&r, &t, 3, EVICT_LRU, &why));
    assert_int_equal(r.found, 2);
    assert_int_equal(r.no_room, 1); /* the last request has four blocks */
    block_trace_free(&t);
    /* found by fuzzing: a name that a request repeats was not counted as found at most */
    write_file(path, "{\"hash_ids\": [5, 5, 6]}\n{\"hash_ids\": [5, 5]}\n");
    CHECK_OK(block_trace_read(&t, path, &why));
    assert_int_equal(t.found_at_most, 2);
    CHECK_OK(block_trace_replay(&r, &t, 8, EVICT_LRU, &why));
    assert_int_equal(r.found, 2);
    block_trace_free(&t);
    write_file(path, "{\"hash_ids\": [1]}\n{\"hash_ids\": [1, 2.5]}\n");
    assert_int_equal(block_trace_read(&t, path, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "line 2");
    CHECK_CONTAINS(why.message, "entry 2 is no whole number");
    write_file(path, "[1]\n");
    assert_int_equal(block_trace_read(&t, path, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "hash_ids");
    write_file(path, "\n \n");
    assert_int_equal(block_trace_read(&t, path, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "no requests");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_use),    cmocka_unit_test(orders), cmocka_unit_test(order_behind_others),
        cmocka_unit_test(same_contents), cmocka_unit_test(names),  cmocka_unit_test(trace)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
