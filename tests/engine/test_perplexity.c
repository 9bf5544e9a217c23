/* Proves: perplexities of trained models equal published ones, standard errors follow from their definition,
 * and files that we quantize have the perplexity that the same bytes have in llama.cpp. */
#include "engine/eval/eval.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define TINY    "models/repacked/tinystories-656k-f32.gguf"
#define EXCERPT "text/tinystories-valid-excerpt.txt"

static struct perplexity measure(const char *model, const char *line, int ctx)
{
    struct err why = { 0 };
    struct perplexity p;
    char path[4096];
    size_t n;
    data_path(path, sizeof path, "%s", model);
    struct model *m = session_open(path, line, ctx, 1);
    char *text;
    data_path(path, sizeof path, EXCERPT);
    CHECK_OK(file_read(&text, &n, path, 1 << 24, &why));
    CHECK_OK(eval_perplexity(&p, m, text, MIN(n, (size_t)60000), ctx, 0, NULL, NULL, &why));
    free(text);
    model_close(m);
    return p;
}

/* Golden data: perplexity to 1e-4, llama.cpp's standard error to the digits it prints. */
static void test_perplexity(void **state)
{
    (void)state;
    static const struct {
        const char *model, *recipe;
        int ctx, windows;
        double ppl, se;
    } CASES[] = {
        { STORIES, "", 128, 224, 4.0620426, 0.0632 }, { STORIES, "", 256, 112, 3.9152183, 0.0601 },
        { TINY, "", 128, 106, 25.537552, 0.7728 },    { TINY, "", 256, 53, 29.9930, 0.9175 },
        { TINY, ",q8_0", 128, 106, 25.5092, NAN },    { TINY, ",q4_0", 128, 106, 27.3877, NAN },
        { TINY, ",q5_1", 128, 106, 26.0626, NAN },    { TINY, ",iq4_nl", 128, 106, 27.7089, NAN },
        { TINY, ",q5_1", 256, 53, 30.7534, NAN },     { TINY, ",iq4_nl", 256, 53, 32.9224, NAN },
        { STORIES, ",q8_0", 128, 224, 4.0650, NAN },  { STORIES, ",q4_0", 128, 224, 4.3953, NAN },
        { STORIES, ",q5_1", 128, 224, 4.1117, NAN },  { STORIES, ",iq4_nl", 128, 224, 4.4275, NAN },
    };
    char path[4096], line[256];
    SHARED_OR_SKIP(path, STORIES);
    SHARED_OR_SKIP(path, TINY);
    SHARED_OR_SKIP(path, EXCERPT);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        snprintf(line, sizeof line, "precision=highest,kv=f32,threads=2%s", CASES[i].recipe);
        const struct perplexity p = measure(CASES[i].model, line, CASES[i].ctx);
        print_message("%s%s -c %d: %.4f +- %.4f (by window %.4f)\n", CASES[i].model, CASES[i].recipe,
                      CASES[i].ctx, p.ppl, p.ppl_se_token, p.ppl_se);
        assert_int_equal(p.chunks, CASES[i].windows);
        assert_int_equal(p.scored, CASES[i].windows * (CASES[i].ctx / 2 - 1));
        /* Rows of 172 stay f32 in llama.cpp and become f16 here: 2^-11 of a weight, far below the tolerance.
         */
        CHECK_NEAR(p.ppl / CASES[i].ppl, 1, 1e-4);
        CHECK_NEAR(p.nll, log(p.ppl), 1e-9);
        CHECK_LT(0, p.ppl_se);
        CHECK_LT(fabs(p.ppl_se / p.ppl - p.nll_se), 1e-9);
        if (!isnan(CASES[i].se)) CHECK_NEAR(p.ppl_se_token, CASES[i].se, 1e-4);
    }
}

/* 8-bit activations: within 0.5 % of llama.cpp with 8-bit activations. */
static void test_perplexity_medium(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, TINY);
    SHARED_OR_SKIP(path, EXCERPT);
    CHECK_NEAR(measure(TINY, "precision=medium,kv=f16,q8_0", 128).ppl / 25.5181, 1, 5e-3);
    CHECK_NEAR(measure(TINY, "precision=medium,kv=f16,q4_0", 128).ppl / 27.4267, 1, 5e-3);
    CHECK_NEAR(measure(TINY, "precision=medium,kv=f16,q5_1", 128).ppl / 26.1007, 1, 5e-3);
    CHECK_NEAR(measure(TINY, "precision=medium,kv=f16,iq4_nl", 128).ppl / 27.7074, 1, 5e-3);
}

int main(void)
{
    char cache[] = "/tmp/qdyno-test-perplexity-XXXXXX";
    if (!mkdtemp(cache)) return 1;
    setenv("XDG_CACHE_HOME", cache, 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_perplexity),
                                        cmocka_unit_test(test_perplexity_medium) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command) || failed;
}
