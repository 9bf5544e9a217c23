/* Proves: the grammar reads and writes the same workloads and refuses others; a cell does exactly the work
 * its hash says, the same for the same seed, in any cut into batches; it can be stopped, and says what it
 * cannot do. */
#include "engine/workload.h"

#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
        int prompt, gen, depth, ctx;
    } GOOD[] = {
        { "pp512", "pp512", 512, 0, 0, 512 },
        { "tg128", "tg128", 0, 128, 0, 128 },
        { "pp512+tg128@d4096", "pp512+tg128@d4096", 512, 128, 4096, 4736 },
        { "tg1@d0", "tg1", 0, 1, 0, 1 },
        { "pp007", "pp7", 7, 0, 0, 7 },
    };
    struct err why = { 0 };
    struct workload w;
    char line[600];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        assert_int_equal(w.prompt, GOOD[i].prompt);
        assert_int_equal(w.gen, GOOD[i].gen);
        assert_int_equal(w.depth, GOOD[i].depth);
        assert_int_equal(workload_ctx(&w), GOOD[i].ctx);
        assert_string_equal(workload_line(&w, line, sizeof line), GOOD[i].line);
    }
    static const char *const BAD[] = { "",           "pp",          "tg0",      "pp-1",
                                       "pp512+",     "tg128+pp512", "pp512tg1", "pp1+tg1x",
                                       "pp1@4",      "pp1@d",       "tg1 ",     "@d5",
                                       "pp99999999", "eval:",       "pp1.5",    "pp1+tg16777216" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        if (workload_parse(&w, BAD[i], &why) != ERR_USAGE) fail_msg("'%s' was taken", BAD[i]);
        assert_non_null(strstr(why.message, "want ppN, tgN"));
    }
}

static void test_eval_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *file;
        int ctx;
    } GOOD[] = { { "eval:a/b.txt", "a/b.txt", 512 },
                 { "eval:b.txt@c128", "b.txt", 128 },
                 { "eval:me@home.txt", "me@home.txt", 512 },
                 { "eval:x@c12@c64", "x@c12", 64 },
                 { "eval:x@cat", "x@cat", 512 } };
    struct err why = { 0 };
    struct workload w;
    char line[600];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        assert_string_equal(w.eval_file, GOOD[i].file);
        assert_int_equal(w.eval_ctx, GOOD[i].ctx);
        assert_string_equal(workload_line(&w, line, sizeof line), GOOD[i].text);
    }
}

static struct cell_result run(struct model *m, const char *text, uint64_t seed)
{
    struct err why = { 0 };
    struct workload w;
    struct cell_result r;
    CHECK_OK(workload_parse(&w, text, &why));
    CHECK_OK(cell_run(&r, m, &w, seed, NULL, NULL, &why));
    return r;
}

static void test_cell(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 256, 1),
                 *small = session_open(path, EXACT ",batch=7", 256, 1);
    struct cell_result a = run(m, "pp40+tg20@d30", 1), b = run(small, "pp40+tg20@d30", 1),
                       c = run(m, "pp40+tg20@d30", 2), d = run(m, "pp40+tg21@d30", 1),
                       again = run(m, "pp40+tg20@d30", 1);
    assert_int_equal(a.prompt_tokens, 40);
    assert_int_equal(a.gen_tokens, 20);
    assert_string_equal(a.work_hash, b.work_hash);
    assert_string_equal(a.output_hash, b.output_hash);
    assert_string_equal(a.work_hash, again.work_hash);
    assert_string_equal(a.output_hash, again.output_hash);
    assert_string_not_equal(a.work_hash, c.work_hash);
    assert_string_not_equal(a.work_hash, d.work_hash);
    assert_int_equal(strlen(a.work_hash), 16);
    double sum = 0;
    for (int i = 0; i < a.gen_tokens; i++) {
        CHECK(a.itl_s[i] > 0);
        sum += (double)a.itl_s[i];
    }
    CHECK_NEAR(sum, a.decode_s, 1e-9);
    CHECK(a.prefill_s > 0 && a.ttft_s >= a.prefill_s);
    CHECK(isnan(a.perplexity) && isnan(a.nll));
    assert_int_equal(model_length(m, 0), 0);
    struct cell_result *const ALL[] = { &a, &b, &c, &d, &again };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) cell_result_free(ALL[i]);

    /* A phase that was not asked for has no time, not a time of zero. */
    struct cell_result pp = run(m, "pp16", 0), tg = run(m, "tg16", 0);
    CHECK(pp.prefill_s > 0 && isnan(pp.decode_s) && pp.gen_tokens == 0 && pp.output_hash[0] == '\0');
    CHECK(isnan(tg.prefill_s) && isnan(tg.ttft_s) && tg.decode_s > 0 && tg.prompt_tokens == 0);
    cell_result_free(&pp);
    cell_result_free(&tg);
    model_close(small);
    model_close(m);
}

/* The answer is what greedy decoding says: the same ids by hand. */
static void test_same_as_by_hand(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096], *text, *sample;
    size_t n;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 64, 1);
    struct cell_result r = run(m, "pp1+tg5", 9); /* one id of prompt: BOS */
    CHECK_OK(file_share(&sample, "text/sample.txt", &why));
    CHECK_OK(file_read(&text, &n, sample, 1 << 24, &why));
    CHECK(n > 0);
    int32_t id = 1, ids[5];
    for (int i = 0; i < 6; i++) {
        const struct batch_row row = { .token = id, .pos = i, .logits = true };
        CHECK_OK(model_forward(m, &row, 1, &why));
        id = 0;
        for (int32_t v = 1; v < 512; v++)
            if (model_logits(m, 0)[v] > model_logits(m, 0)[id]) id = v;
        if (i > 0) ids[i - 1] = id;
    }
    char hex[HASH_HEX];
    hash_bytes(ids, sizeof ids, hex);
    assert_memory_equal(r.output_hash, hex, 16);
    cell_result_free(&r);
    free(text);
    free(sample);
    model_close(m);
}

struct seen {
    int calls, last, of;
    bool prefill, stop;
};

static bool watch(void *ctx, const char *phase, int done, int of, double seconds)
{
    struct seen *s = ctx;
    s->calls++;
    s->last = done;
    s->of = of;
    s->prefill |= !strcmp(phase, "prefill");
    CHECK(done <= of);
    CHECK(strcmp(phase, "eval") == 0 || seconds >= 0);
    return !s->stop;
}

static void test_progress(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096], text[4200];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 256, 1);
    struct workload w;
    struct cell_result r;
    struct seen s = { 0 };
    CHECK_OK(workload_parse(&w, "pp32+tg8", &why));
    CHECK_OK(cell_run(&r, m, &w, 0, watch, &s, &why));
    CHECK(s.prefill && s.calls >= 2 && s.last == 8 && s.of == 8); /* the end of a phase is always told */
    cell_result_free(&r);

    s = (struct seen){ .stop = true };
    assert_int_equal(cell_run(&r, m, &w, 0, watch, &s, &why), ERR_CANCELLED);
    assert_int_equal(s.calls, 1);
    assert_null(r.itl_s);
    assert_int_equal(model_length(m, 0), 0);

    CHECK_OK(workload_parse(&w, "pp300", &why));
    assert_int_equal(cell_run(&r, m, &w, 0, NULL, NULL, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "context of 300 tokens, this session has 256"));

    /* Quality through the same door. */
    char excerpt[4096];
    SHARED_OR_SKIP(excerpt, "text/gpt2-basic-domain.txt");
    snprintf(text, sizeof text, "eval:%s@c256", excerpt);
    CHECK_OK(workload_parse(&w, text, &why));
    s = (struct seen){ 0 };
    CHECK_OK(cell_run(&r, m, &w, 0, watch, &s, &why));
    CHECK(r.perplexity > 1 && r.nll > 0 && r.nll_se > 0 && r.scored_tokens > 127 && s.calls > 0);
    CHECK(r.prefill_s > 0 && isnan(r.decode_s));
    cell_result_free(&r);
    model_close(m);
}

int main(void)
{
    char share[] = "/tmp/qdyno-test-workload-XXXXXX", path[256];
    if (!mkdtemp(share)) return 1;
    snprintf(path, sizeof path, "mkdir '%s/text'", share);
    if (system(path)) return 1;
    snprintf(path, sizeof path, "%s/text/sample.txt", share);
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    fputs("Once upon a time there was a small dog. It lived in a red house, and it liked to run.\n", f);
    fclose(f);
    setenv("QDYNO_SHARE", share, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),  cmocka_unit_test(test_eval_grammar),
        cmocka_unit_test(test_cell),     cmocka_unit_test(test_same_as_by_hand),
        cmocka_unit_test(test_progress),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "rm -rf '%s'", share);
    return system(path) || failed;
}
