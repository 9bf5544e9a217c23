/* Proves, for the scheduler, with a model of a cache instead of a language model: whatever requests come and
 * go, under every schedule and eviction policy, with and without a prefix cache, each request generates the
 * tokens that it would generate alone; every row finds the keys of all tokens before it; no block is lost;
 * nobody waits for ever, also when settings change while requests run; steps stay within the limit of the
 * time between tokens; and each schedule keeps its order. */
#include "engine/serve/scheduler.h"
#include "tests/kernels/numbers.h"

enum { BLOCKS = 24, BLOCK_TOKENS = 4, CTX = 60, SEQUENCES = 5, REQUESTS = 150, STEPS_MOST = 20000 };

/* What a row's keys are: a number that depends on all tokens up to it. */
static uint64_t key_after(uint64_t before, int32_t token)
{
    return (before ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u + 1;
}

static int32_t token_after(uint64_t key)
{
    return (int32_t)(key >> 61); /* few different ones, so that texts meet */
}

struct world {
    struct scheduler *s;
    uint64_t cache[BLOCKS][BLOCK_TOKENS];
    uint64_t outside[REQUESTS + 1][CTX / BLOCK_TOKENS + 1][BLOCK_TOKENS]; /* by request and block */
    int moved_in;   /* blocks that came back into the cache */
    double a, b, c; /* of the time of a step */
};

static uint64_t *cached(struct world *w, const struct request *r, int position)
{
    assert_in_range(position / BLOCK_TOKENS, 0, r->block_count - 1);
    return &w->cache[r->blocks[position / BLOCK_TOKENS]][position % BLOCK_TOKENS];
}

static void run_slice(struct world *w, const struct slice *slice)
{
    const struct request *r = slice->request;
    uint64_t key = 0;
    assert_int_equal(slice->from, r->computed);
    for (int i = 0; i < slice->from + slice->n; i++) {
        key = key_after(key, r->tokens[i]);
        if (i < slice->from) {
            assert_true(*cached(w, r, i) == key);
        } else {
            *cached(w, r, i) = key;
        }
    }
}

/* Run a step. Requests that have all their tokens end. Returns the rows. */
static int run_step(struct world *w, bool flush)
{
    struct step step;
    struct {
        int64_t id;
        int32_t token;
    } got[SEQUENCES];
    int n = 0;
    double attended = 0;
    scheduler_step(w->s, flush, &step);
    for (int i = 0; i < step.moves; i++) {
        const struct block_move *m = &step.move[i];
        uint64_t *outside = w->outside[m->request][m->index];
        w->moved_in += m->kind == MOVE_IN;
        memcpy(m->kind == MOVE_OUT ? outside : w->cache[m->to],
               m->kind == MOVE_IN ? outside : w->cache[m->from], sizeof w->cache[0]);
    }
    for (int i = 0; i < step.slices; i++) {
        const struct slice *slice = &step.slice[i];
        const struct request *r = slice->request;
        run_slice(w, slice);
        attended += slice->n * (slice->from + (slice->n + 1) / 2.0);
        assert_true(slice->logits == (slice->from + slice->n == r->known));
        if (!slice->logits) continue;
        got[n].id = r->id;
        got[n++].token = token_after(*cached(w, r, r->known - 1));
    }
    const double seconds = w->a + w->b * step.rows + w->c * attended;
    scheduler_computed(w->s, seconds);
    for (int i = 0; i < n; i++) scheduler_append(w->s, got[i].id, got[i].token);
    const char *wrong = scheduler_check(w->s);
    if (wrong) fail_msg("%s", wrong);
    return step.rows;
}

static struct scheduler_options options_of(enum schedule schedule, enum evict_policy evict, bool prefix_cache)
{
    return (struct scheduler_options){ .blocks = BLOCKS,
                                       .block_tokens = BLOCK_TOKENS,
                                       .ctx = CTX,
                                       .max_sequences = SEQUENCES,
                                       .step_tokens = 16,
                                       .schedule = schedule,
                                       .evict = evict,
                                       .prefix_cache = prefix_cache };
}

/* ---------------------------------------------------------------- random requests */

static int random_prompt(struct rng *r, int32_t *out)
{
    const int n = 1 + rng_below(r, 40), shared = rng_below(r, 30);
    for (int i = 0; i < n; i++) out[i] = i < shared ? i % 3 : rng_below(r, 4);
    return n;
}

static void check_answer(const struct request *r)
{
    uint64_t key = 0;
    for (int i = 0; i < r->known; i++) {
        if (i >= r->prompt) assert_int_equal(r->tokens[i], token_after(key));
        key = key_after(key, r->tokens[i]);
    }
}

/* Ends requests that are complete, and now and then another one. Returns how many ended. */
static int end_some(struct world *w, struct rng *r, const int64_t *ids, int n)
{
    int ended = 0;
    for (int i = 0; i < n; i++) {
        const struct request *q = scheduler_find(w->s, ids[i]);
        if (!q) continue;
        check_answer(q);
        if (q->known < q->most && (n == REQUESTS || rng_below(r, 400))) continue;
        scheduler_end(w->s, ids[i]);
        assert_null(scheduler_find(w->s, ids[i]));
        ended++;
    }
    return ended;
}

static void change_settings(struct scheduler *s, struct rng *r)
{
    struct err why = { 0 };
    struct scheduler_options o = { .schedule = (enum schedule)rng_below(r, SCHEDULE_COUNT),
                                   .evict = (enum evict_policy)rng_below(r, EVICT_COUNT),
                                   .preempt = (enum preempt)rng_below(r, PREEMPT_COUNT),
                                   .prefix_cache = rng_below(r, 2) == 0,
                                   .max_sequences = 1 + rng_below(r, SEQUENCES) };
    CHECK_OK(scheduler_change(s, &o, &why));
    assert_null(scheduler_check(s));
    o.max_sequences = rng_below(r, 2) ? 0 : SEQUENCES + 1;
    assert_int_equal(scheduler_change(s, &o, &why), ERR_USAGE);
}

/* changes: the settings change now and then, and those given are only the first ones. */
static void check_random(enum schedule schedule, enum evict_policy evict, enum preempt preempt,
                         bool prefix_cache, bool changes)
{
    struct err why = { 0 };
    static struct world w;
    w = (struct world){ .a = 1, .b = 0.1 };
    struct rng r = { 1 + (uint64_t)schedule * 31 + (uint64_t)evict * 7 + (uint64_t)preempt * 3 +
                     prefix_cache };
    struct scheduler_options o = options_of(schedule, evict, prefix_cache);
    o.preempt = preempt;
    int64_t ids[REQUESTS];
    int submitted = 0, ended = 0, steps = 0;
    CHECK_OK(scheduler_open(&w.s, &o, &why));
    while (ended < REQUESTS) {
        while (submitted < REQUESTS && rng_below(&r, 3) == 0) {
            int32_t prompt[40];
            const int n = random_prompt(&r, prompt);
            CHECK_OK(scheduler_submit(w.s, prompt, n, 1 + rng_below(&r, 20), rng_below(&r, 3),
                                      &ids[submitted++], &why));
        }
        if (changes && submitted < REQUESTS / 2 && rng_below(&r, 10) == 0) change_settings(w.s, &r);
        if (changes && submitted == REQUESTS / 2) {
            struct scheduler_options n = o;
            n.prefix_cache = rng_below(&r, 2);
            CHECK_OK(scheduler_change(w.s, &n, &why));
        }
        run_step(&w, submitted == REQUESTS);
        ended += end_some(&w, &r, ids, submitted);
        if (++steps == STEPS_MOST) fail_msg("%s: %d requests never end", SCHEDULE_NAMES[schedule], ended);
    }
    const struct scheduler_counts c = scheduler_count(w.s);
    assert_int_equal(c.running + c.waiting + c.blocks.used + c.swapped + c.spared, 0);
    scheduler_close(w.s);
    if (changes) return;
    if (preempt == PREEMPT_SWAP && schedule == SCHEDULE_FCFS) assert_true(w.moved_in > 0);
    assert_true((c.found_tokens > 0) == prefix_cache);
    if (schedule == SCHEDULE_FCFS) assert_true(c.preemptions > 0); /* the cache is small enough to need it */
}

static void random_requests(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        for (int e = 0; e < EVICT_COUNT; e++)
            for (int p = 0; p < PREEMPT_COUNT; p++)
                for (int cache = 0; cache < 2; cache++)
                    check_random((enum schedule)s, (enum evict_policy)e, (enum preempt)p, cache, false);
}

static void settings_change(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        for (int e = 0; e < EVICT_COUNT; e++)
            check_random((enum schedule)s, (enum evict_policy)e, PREEMPT_SWAP, s % 2, true);
}

/* A lower max_sequences counts requests that run, whichever sequences they have. */
static void fewer_sequences(void **state)
{
    (void)state;
    struct err why = { 0 };
    static struct world w;
    const int32_t prompt[] = { 1, 2, 3 };
    struct scheduler_options o = options_of(SCHEDULE_FCFS, EVICT_LRU, true);
    int64_t ids[4];
    w = (struct world){ .a = 1 };
    CHECK_OK(scheduler_open(&w.s, &o, &why));
    for (int i = 0; i < 3; i++) CHECK_OK(scheduler_submit(w.s, prompt, 3, 20, 0, &ids[i], &why));
    run_step(&w, true);
    assert_int_equal(scheduler_count(w.s).running, 3);
    o.max_sequences = 2;
    CHECK_OK(scheduler_change(w.s, &o, &why));
    CHECK_OK(scheduler_submit(w.s, prompt, 3, 20, 0, &ids[3], &why));
    scheduler_end(w.s, ids[0]); /* its sequence is the first one */
    run_step(&w, true);
    assert_int_equal(scheduler_count(w.s).running, 2);
    scheduler_end(w.s, ids[1]);
    run_step(&w, true);
    assert_int_equal(scheduler_count(w.s).running, 2);
    assert_int_equal(scheduler_find(w.s, ids[3])->state, REQUEST_RUNNING);
    scheduler_close(w.s);
}

/* Requests that begin with the same tokens share blocks; each other block is its request's own. */
static void map_of_blocks(void **state)
{
    (void)state;
    struct err why = { 0 };
    static struct world w;
    const int32_t prompt[] = { 1, 1, 1, 1, 2, 2, 2, 2, 3 };
    const struct scheduler_options o = options_of(SCHEDULE_FCFS, EVICT_LRU, true);
    char use[BLOCKS + 1] = "";
    int64_t id;
    w = (struct world){ .a = 1 };
    CHECK_OK(scheduler_open(&w.s, &o, &why));
    CHECK_OK(scheduler_submit(w.s, prompt, 9, 8, 0, &id, &why));
    run_step(&w, true);
    CHECK_OK(scheduler_submit(w.s, prompt, 9, 4, 0, &id, &why));
    run_step(&w, true);
    scheduler_block_uses(w.s, use);
    CHECK_STR(use, "##01....................");
    assert_int_equal(scheduler_count(w.s).spared, 2);
    scheduler_end(w.s, id);
    scheduler_block_uses(w.s, use);
    CHECK_STR(use, "000.....................");
    scheduler_end(w.s, id - 1);
    scheduler_block_uses(w.s, use);
    CHECK_STR(use, "--......................");
    scheduler_close(w.s);
}

/* Requests that end between the choice of a step and its end keep their blocks until then. */
static void end_in_step(void **state)
{
    (void)state;
    struct err why = { 0 };
    static struct world w;
    struct step step;
    const struct scheduler_options o = options_of(SCHEDULE_FCFS, EVICT_LRU, true);
    const int32_t prompt[] = { 1, 2, 3, 4, 5 };
    int64_t id;
    CHECK_OK(scheduler_open(&w.s, &o, &why));
    CHECK_OK(scheduler_submit(w.s, prompt, 5, 4, 0, &id, &why));
    scheduler_step(w.s, false, &step);
    assert_int_equal(step.rows, 5);
    scheduler_end(w.s, id);
    assert_null(scheduler_find(w.s, id));
    assert_int_equal(scheduler_count(w.s).blocks.used, 2);
    scheduler_computed(w.s, 1);
    scheduler_append(w.s, id, 7);
    assert_int_equal(scheduler_count(w.s).blocks.used, 0);
    assert_int_equal(scheduler_count(w.s).blocks.cached, 1);
    scheduler_close(w.s);
}

/* ---------------------------------------------------------------- the limit of a step */

/* A long prompt comes while another request generates. */
static void check_limit(double limit, double *longest, int *largest)
{
    enum { MANY = 4096, LONG = 3000 };
    struct err why = { 0 };
    static int32_t prompt[LONG];
    struct scheduler_options o = options_of(SCHEDULE_FCFS, EVICT_LRU, false);
    o.blocks = MANY / BLOCK_TOKENS;
    o.ctx = MANY - BLOCK_TOKENS;
    o.step_tokens = 512;
    o.itl_limit_s = limit;
    struct step step;
    int64_t decoding, other;
    struct scheduler *s;
    CHECK_OK(scheduler_open(&s, &o, &why));
    CHECK_OK(scheduler_submit(s, prompt, 3, 900, 0, &decoding, &why));
    *longest = *largest = 0;
    for (int i = 0; i < 700; i++) {
        if (i == 20) CHECK_OK(scheduler_submit(s, prompt, LONG, 10, 0, &other, &why));
        scheduler_step(s, false, &step);
        double attended = 0;
        for (int k = 0; k < step.slices; k++) {
            attended += step.slice[k].n * (step.slice[k].from + (step.slice[k].n + 1) / 2.0);
            if (i > 20) *largest = MAX(*largest, step.slice[k].n);
        }
        const double seconds = 0.01 + 4e-4 * step.rows + 2e-8 * attended;
        *longest = fmax(*longest, seconds);
        scheduler_computed(s, seconds);
        const struct request *r = scheduler_find(s, decoding);
        assert_int_equal(step.slice[0].request->id, decoding); /* in every step */
        if (r->known < r->most) scheduler_append(s, decoding, 1);
    }
    assert_int_equal(scheduler_find(s, other)->computed, LONG);
    scheduler_close(s);
}

static void limit(void **state)
{
    (void)state;
    double longest;
    int largest;
    check_limit(0, &longest, &largest);
    assert_int_equal(largest, 511);
    CHECK_LT(0.2, longest);
    check_limit(0.05, &longest, &largest);
    CHECK_LE(longest, 0.052);
    assert_in_range(largest, 80, 110);
}

/* ---------------------------------------------------------------- orders */

/* The requests (a, b, c ...) in each step of a run without random choices, a row each; a capital letter has
 * several rows. */
static void steps_of(enum schedule schedule, bool flush, char *out)
{
    struct err why = { 0 };
    static struct world w;
    w = (struct world){ .a = 1 };
    struct scheduler_options o = options_of(schedule, EVICT_LRU, false);
    o.max_sequences = 2;
    o.step_tokens = 8;
    static const int32_t PROMPT[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    static const int LENGTH[] = { 3, 8, 2 }, GENERATE[] = { 3, 2, 2 }, PRIORITY[] = { 0, 0, 5 };
    CHECK_OK(scheduler_open(&w.s, &o, &why));
    for (int i = 0; i < 3; i++) {
        int64_t id;
        CHECK_OK(scheduler_submit(w.s, PROMPT, LENGTH[i], GENERATE[i], PRIORITY[i], &id, &why));
    }
    for (int steps = 0; steps < 12; steps++) {
        struct step step;
        scheduler_step(w.s, flush, &step);
        int64_t ids[SEQUENCES];
        int n = 0;
        for (int i = 0; i < step.slices; i++) {
            const struct slice *slice = &step.slice[i];
            *out++ = (char)((slice->n > 1 ? 'A' : 'a') + slice->request->id - 1);
            if (slice->logits) ids[n++] = slice->request->id;
        }
        if (step.slices) *out++ = ' ';
        scheduler_computed(w.s, 1);
        for (int i = 0; i < n; i++) {
            scheduler_append(w.s, ids[i], 1);
            const struct request *r = scheduler_find(w.s, ids[i]);
            if (r->known == r->most) scheduler_end(w.s, ids[i]);
        }
    }
    *out = 0;
    assert_int_equal(scheduler_count(w.s).blocks.used, 0);
    scheduler_close(w.s);
}

static void orders(void **state)
{
    (void)state;
    static const struct {
        enum schedule schedule;
        const char *steps;
    } WANT[] = {
        { SCHEDULE_FCFS, "AB aB ab C c " },     { SCHEDULE_PREFILL_FIRST, "AB Ba ab C c " },
        { SCHEDULE_PRIORITY, "CA ca aB b b " }, { SCHEDULE_SHORTEST, "CA ac aB b b " },
        { SCHEDULE_STATIC, "AB aB ab C c " },   { SCHEDULE_DYNAMIC, "AB aB ab C c " },
    };
    for (size_t i = 0; i < COUNT_OF(WANT); i++) {
        char got[128];
        steps_of(WANT[i].schedule, true, got);
        CHECK_STR(got, WANT[i].steps);
    }
}

static void refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct scheduler *s;
    const int32_t prompt[CTX + 2] = { 0 };
    int64_t id;
    struct scheduler_options o = options_of(SCHEDULE_FCFS, EVICT_LRU, true);
    o.step_tokens = SEQUENCES - 1;
    assert_int_equal(scheduler_open(&s, &o, &why), ERR_USAGE);
    o.step_tokens = 16;
    CHECK_OK(scheduler_open(&s, &o, &why));
    assert_int_equal(scheduler_submit(s, prompt, 0, 1, 0, &id, &why), ERR_USAGE);
    assert_int_equal(scheduler_submit(s, prompt, 5, 0, 0, &id, &why), ERR_USAGE);
    CHECK_OK(scheduler_submit(s, prompt, CTX, 1, 0, &id, &why));
    assert_int_equal(scheduler_submit(s, prompt, CTX, 2, 0, &id, &why), ERR_FIT);
    CHECK_CONTAINS(why.message, "60");
    scheduler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_requests), cmocka_unit_test(settings_change),
                                        cmocka_unit_test(fewer_sequences), cmocka_unit_test(map_of_blocks),
                                        cmocka_unit_test(end_in_step),     cmocka_unit_test(limit),
                                        cmocka_unit_test(orders),          cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
