/* Proves, with real models and batch_invariant=on: whatever else is served, whatever the schedule, the
 * eviction policy, the prefix cache and preemption do, each request gets the tokens that a model gives it
 * alone, also models that keep a state; cancelled requests end; log-probabilities are those of the logits;
 * ends of answers are seen; and requests whose values are not numbers fail alone. */
#include "engine/serve/serving.h"

#include "engine/gguf/gguf.h"
#include "engine/plan/plan.h"
#include "tests/engine/golden.h"
#include "tests/kernels/numbers.h"

enum { REQUESTS = 24, PROMPT_MOST = 60, MAKE_MOST = 50, CTX = 128 };

struct asked {
    int32_t prompt[PROMPT_MOST];
    int n, make;
    int32_t want[MAKE_MOST], got[MAKE_MOST];
    int made;
    int64_t id;
    bool cancelled, ended;
};

static void make_requests(struct asked *all, int64_t vocab, int count, struct rng *r)
{
    for (int i = 0; i < count; i++) {
        struct asked *a = &all[i];
        *a = (struct asked){ .n = 1 + rng_below(r, PROMPT_MOST), .make = 1 + rng_below(r, MAKE_MOST) };
        const int shared = rng_below(r, 3) ? rng_below(r, PROMPT_MOST) : 0, text = rng_below(r, 2);
        for (int k = 0; k < a->n; k++)
            a->prompt[k] = (int32_t)((k < shared ? (k * 7 + text * 3) : rng_below(r, 1 << 20)) % vocab);
    }
}

/* What the model gives each request alone. */
static void answer_alone(struct asked *all, int count, const char *path, const char *line)
{
    struct err why = { 0 };
    struct model *m = session_open(path, line, CTX, 1);
    for (int i = 0; i < count; i++) {
        struct asked *a = &all[i];
        struct batch_row rows[PROMPT_MOST];
        model_truncate(m, 0, 0);
        for (int k = 0; k < a->n; k++)
            rows[k] = (struct batch_row){ .token = a->prompt[k], .pos = k, .logits = k == a->n - 1 };
        CHECK_OK(model_forward_best(m, rows, a->n, a->want, &why));
        for (int k = 1; k < a->make; k++) {
            rows[0] = (struct batch_row){ .token = a->want[k - 1], .pos = a->n + k - 1, .logits = true };
            CHECK_OK(model_forward_best(m, rows, 1, a->want + k, &why));
        }
    }
    model_close(m);
}

static void take_token(struct asked *a, const struct serving_token *t)
{
    assert_int_equal(t->id, a->id);
    assert_false(a->ended);
    assert_int_equal(t->index, a->made);
    assert_in_range(a->made, 0, a->make - 1);
    a->got[a->made++] = t->token;
    a->ended = t->finish != FINISH_NONE;
    assert_int_equal(t->finish, a->made == a->make ? FINISH_LENGTH : FINISH_NONE);
}

/* Serve the requests, which come at random times; some are cancelled. */
static struct scheduler_counts serve_all(struct asked *all, int count, const char *path, const char *line,
                                         struct rng *r, int *cancelled)
{
    struct err why = { 0 };
    struct config c;
    CHECK_OK(config_parse(&c, line, &why));
    struct model *m = session_open(path, line, CTX, (int)config_int(&c, KNOB_MAX_SEQUENCES));
    struct serving *s;
    struct serving_result step;
    CHECK_OK(serving_open(&s, &(struct serving_options){ .model = m }, &why));
    int submitted = 0;
    *cancelled = 0;
    for (int steps = 0;; steps++) {
        assert_in_range(steps, 0, 5000);
        while (submitted < count && rng_below(r, 2)) {
            struct asked *a = &all[submitted++];
            const struct serving_request q = { .prompt = a->prompt,
                                               .n = a->n,
                                               .generate = a->make,
                                               .priority = rng_below(r, 3),
                                               .sampling = SAMPLER_DEFAULTS,
                                               .top = -1,
                                               .user = a };
            CHECK_OK(serving_submit(s, &q, &a->id, &why));
        }
        struct asked *victim = &all[rng_below(r, count)];
        if (victim->id && !victim->ended && !rng_below(r, 40)) {
            serving_cancel(s, victim->id);
            victim->ended = victim->cancelled = true;
            ++*cancelled;
        }
        CHECK_OK(serving_step(s, submitted == count, &step, &why));
        for (int i = 0; i < step.tokens; i++) take_token(step.token[i].user, &step.token[i]);
        if (!step.rows && submitted == count) break;
    }
    const struct scheduler_counts counts = serving_count(s);
    assert_int_equal(counts.waiting + counts.running + counts.blocks.used + counts.swapped, 0);
    serving_close(s);
    model_close(m);
    return counts;
}

static void check_served(const char *path, const char *settings, int64_t seed,
                         struct scheduler_counts *counts)
{
    static struct asked all[REQUESTS];
    struct rng r = { (uint64_t)seed };
    struct err why = { 0 };
    struct gguf *g;
    struct model_shape shape;
    char line[300];
    int cancelled;
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(model_shape_read(&shape, g, &why));
    gguf_close(g);
    make_requests(all, shape.vocab, REQUESTS, &r);
    const char *kv = strstr(settings, "kv=");
    snprintf(line, sizeof line, "batch_invariant=on,threads=2,%s", kv && !strstr(settings, "kv_") ? kv : "");
    answer_alone(all, REQUESTS, path, line);
    snprintf(line, sizeof line, "batch_invariant=on,threads=2,%s", settings);
    *counts = serve_all(all, REQUESTS, path, line, &r, &cancelled);
    int ended = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const struct asked *a = &all[i];
        assert_true(a->ended);
        ended += !a->cancelled;
        if (memcmp(a->got, a->want, (size_t)a->made * sizeof *a->got))
            fail_msg("%s, %s: request %d has other tokens than alone", path, line, i);
    }
    assert_int_equal(ended + cancelled, REQUESTS);
}

/* 4 sequences of up to 102 tokens want 16 blocks; there are 7. */
#define SMALL "max_sequences=4,kv_blocks=7,step_tokens=16,itl_limit=0,"

static const char *const SETTINGS[] = {
    "max_sequences=6,step_tokens=64",
    SMALL "prefix_cache=off",
    SMALL "preempt=swap",
    SMALL "preempt=swap,schedule=priority,evict=leaf_lru",
    SMALL "schedule=prefill_first,evict=fifo",
    SMALL "schedule=shortest,evict=lifo",
    SMALL "schedule=static",
    SMALL "schedule=dynamic,evict=priority",
    "max_sequences=3,step_tokens=7,kv=fp8_e4m3",
};

static void same_tokens_as_alone(void **state)
{
    (void)state;
    char path[4096];
    int64_t found = 0, preempted = 0;
    SHARED_OR_SKIP(path, GOLDEN_2 "ernie4_5.gguf");
    for (size_t i = 0; i < COUNT_OF(SETTINGS); i++) {
        struct scheduler_counts c;
        check_served(path, SETTINGS[i], 40 + (int64_t)i, &c);
        found += c.found_tokens;
        preempted += c.preemptions;
        if (strstr(SETTINGS[i], "prefix_cache=off")) assert_int_equal(c.found_tokens, 0);
    }
    assert_in_range(found, 100, 1000000); /* the tests reach what they are about */
    assert_in_range(preempted, 10, 100000);
}

/* Experts, latent attention, windows, layers that share keys, and states, which cannot be shared. */
static void other_kinds_of_models(void **state)
{
    (void)state;
    static const char *const MODELS[] = { "gpt-oss-MXFP4", "deepseek2-lite", "gemma4-ple",
                                          "qwen35moe",     "granitehybrid",  "lfm2moe" };
    char path[4096];
    for (size_t i = 0; i < COUNT_OF(MODELS); i++)
        for (int swap = 0; swap < 2; swap++) {
            struct scheduler_counts c;
            char name[64];
            snprintf(name, sizeof name, GOLDEN_2 "%s.gguf", MODELS[i]);
            SHARED_OR_SKIP(path, name);
            check_served(path, swap ? SMALL "preempt=swap" : SMALL "preempt=recompute", 90 + swap, &c);
            assert_in_range(c.preemptions, 1, 100000);
        }
}

/* ---------------------------------------------------------------- tokens and ends */

static struct serving *serving_start(struct model **m, const char *path, const struct serving_options *o)
{
    struct err why = { 0 };
    struct serving *s;
    struct serving_options options = *o;
    options.model = *m = session_open(path, "threads=1,max_sequences=4", CTX, 4);
    CHECK_OK(serving_open(&s, &options, &why));
    return s;
}

static void serving_stop(struct serving *s, struct model *m)
{
    serving_close(s);
    model_close(m);
}

/* Runs one request to its end; its tokens to got. Returns how it ended; *chances: log-probabilities sum. */
static enum finish run_one(struct serving *s, const struct serving_request *q, int32_t *got, int *n,
                           double *chances)
{
    struct err why = { 0 };
    struct serving_result step;
    int64_t id;
    *n = 0;
    *chances = 0;
    CHECK_OK(serving_submit(s, q, &id, &why));
    for (;;) {
        CHECK_OK(serving_step(s, true, &step, &why));
        assert_true(step.rows > 0);
        if (!step.tokens) continue;
        const struct serving_token *t = step.token;
        got[(*n)++] = t->token;
        *chances += (double)t->logprob;
        assert_int_equal(t->top_count, MAX(q->top, 0));
        for (int i = 1; i < t->top_count; i++) CHECK_LE(t->top[i].logprob, t->top[i - 1].logprob);
        if (t->top_count && sampler_is_greedy(&q->sampling)) {
            assert_int_equal(t->top[0].token, t->token);
            CHECK_NEAR(t->top[0].logprob, t->logprob, 0);
        }
        if (t->finish != FINISH_NONE) return t->finish;
    }
}

static int32_t ending;

static bool is_ending(void *ctx, int32_t token)
{
    (void)ctx;
    return token == ending;
}

static void ends_and_chances(void **state)
{
    (void)state;
    char path[4096];
    struct model *m;
    int32_t first[8], got[8], prompt[] = { 3, 7, 11 };
    int n;
    double chances, unused;
    SHARED_OR_SKIP(path, GOLDEN_2 "ernie4_5.gguf");
    struct serving *s = serving_start(&m, path, &(struct serving_options){ .ends = is_ending });
    struct serving_request q = {
        .prompt = prompt, .n = 3, .generate = 8, .sampling = SAMPLER_DEFAULTS, .top = 3
    };
    ending = -1;
    assert_int_equal(run_one(s, &q, first, &n, &chances), FINISH_LENGTH);
    assert_int_equal(n, 8);
    CHECK_LT(chances, 0);
    /* its first token's log-probability, from the logits themselves */
    struct err why = { 0 };
    double sum = 0;
    struct model *alone = session_open(path, "threads=1", CTX, 1);
    struct batch_row rows[3];
    rows_of(rows, prompt, 3, 0, 0);
    CHECK_OK(model_forward(alone, rows, 3, &why));
    const float *logits = model_logits(alone, 2);
    for (int64_t i = 0; i < model_shape(alone)->vocab; i++) sum += exp((double)logits[i]);
    q.generate = 1;
    run_one(s, &q, got, &n, &chances);
    CHECK_NEAR(chances, (double)logits[first[0]] - log(sum), 1e-4);
    model_close(alone);
    /* without log-probabilities the tokens are the same; a token that ends the answer is the last one */
    q.generate = 8;
    q.top = -1;
    ending = first[4];
    int at = 0;
    while (first[at] != ending) at++;
    assert_int_equal(run_one(s, &q, got, &n, &unused), FINISH_END);
    assert_int_equal(n, at + 1);
    q.ignore_end = true;
    assert_int_equal(run_one(s, &q, got, &n, &unused), FINISH_LENGTH);
    assert_memory_equal(got, first, sizeof got);
    serving_stop(s, m);
}

static void samples_repeat_by_seed(void **state)
{
    (void)state;
    char path[4096];
    struct model *m;
    int32_t a[8], b[8], c[8];
    const int32_t prompt[] = { 3, 7, 11 };
    int n;
    double unused;
    SHARED_OR_SKIP(path, GOLDEN_2 "ernie4_5.gguf");
    struct serving *s = serving_start(&m, path, &(struct serving_options){ .ends = NULL });
    struct serving_request q = {
        .prompt = prompt, .n = 3, .generate = 8, .sampling = SAMPLER_DEFAULTS, .top = -1
    };
    q.sampling.temperature = 5;
    q.sampling.seed = 1;
    run_one(s, &q, a, &n, &unused);
    run_one(s, &q, b, &n, &unused);
    q.sampling.seed = 2;
    run_one(s, &q, c, &n, &unused);
    assert_memory_equal(a, b, sizeof a);
    assert_true(memcmp(a, c, sizeof a));
    serving_stop(s, m);
}

/* ---------------------------------------------------------------- what is refused, and what fails */

static void refused(void **state)
{
    (void)state;
    char path[4096];
    struct model *m;
    struct err why = { 0 };
    int64_t id;
    int32_t prompt[CTX + 1] = { 0 };
    SHARED_OR_SKIP(path, GOLDEN_2 "ernie4_5.gguf");
    struct serving *s = serving_start(&m, path, &(struct serving_options){ .ends = NULL });
    struct serving_request q = {
        .prompt = prompt, .n = 1, .generate = 1, .sampling = SAMPLER_DEFAULTS, .top = -1
    };
    prompt[0] = (int32_t)model_shape(m)->vocab;
    assert_int_equal(serving_submit(s, &q, &id, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "token 0 of the prompt");
    prompt[0] = 0;
    q.top = SERVING_TOP_MOST + 1;
    assert_int_equal(serving_submit(s, &q, &id, &why), ERR_USAGE);
    q.top = -1;
    q.n = CTX + 1;
    assert_int_equal(serving_submit(s, &q, &id, &why), ERR_FIT);
    serving_stop(s, m);
    SHARED_OR_SKIP(path, GOLDEN_2 "qwen35moe.gguf");
    m = session_open(path, "prefix_cache=on", CTX, 2);
    assert_int_equal(serving_open(&s, &(struct serving_options){ .model = m }, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "prefix_cache=off");
    model_close(m);
}

/* A copy of the model whose embedding of one token is NaN. */
static void model_damage(const char *from, const char *to, int32_t token)
{
    struct err why = { 0 };
    struct gguf *g;
    char *bytes;
    size_t size;
    CHECK_OK(gguf_open(&g, from, &why));
    CHECK_OK(file_read(&bytes, &size, from, 1 << 26, &why));
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    const struct format *f = t->format;
    assert_string_equal(f->name, "f32");
    const char *base = bytes;
    /* where the tensor is in the file: the same bytes */
    const size_t row = (size_t)t->shape[0] * sizeof(float);
    const char *at = memmem(base, size, t->data, row * 4);
    assert_non_null(at);
    const float nan = NAN;
    memcpy(bytes + (at - base) + (size_t)token * row, &nan, sizeof nan);
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    free(bytes);
    gguf_close(g);
}

static void values_that_are_not_numbers_fail_alone(void **state)
{
    (void)state;
    char path[4096];
    const char *damaged = TEST_BUILD_DIR "/serving-damaged.gguf";
    struct model *m;
    struct err why = { 0 };
    struct serving_result step;
    int64_t id[3];
    int failed = 0, complete = 0;
    SHARED_OR_SKIP(path, GOLDEN "llama-mha.gguf");
    model_damage(path, damaged, 9);
    struct serving *s = serving_start(&m, damaged, &(struct serving_options){ .ends = NULL });
    for (int i = 0; i < 3; i++) {
        const int32_t prompt[] = { 3, i == 1 ? 9 : 8, 5 };
        const struct serving_request q = {
            .prompt = prompt, .n = 3, .generate = 1, .sampling = SAMPLER_DEFAULTS, .top = -1
        };
        CHECK_OK(serving_submit(s, &q, &id[i], &why));
    }
    CHECK_OK(serving_step(s, true, &step, &why));
    for (int i = 0; i < step.tokens; i++) {
        const bool is_failed = step.token[i].finish == FINISH_FAILED;
        assert_true(is_failed == (step.token[i].id == id[1]));
        failed += is_failed;
        complete += step.token[i].finish == FINISH_LENGTH;
    }
    assert_int_equal(failed, 1);
    assert_int_equal(complete, 2);
    assert_int_equal(serving_count(s).blocks.used, 0);
    serving_stop(s, m);
    unlink(damaged);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_tokens_as_alone),
                                        cmocka_unit_test(other_kinds_of_models),
                                        cmocka_unit_test(ends_and_chances),
                                        cmocka_unit_test(samples_repeat_by_seed),
                                        cmocka_unit_test(refused),
                                        cmocka_unit_test(values_that_are_not_numbers_fail_alone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
