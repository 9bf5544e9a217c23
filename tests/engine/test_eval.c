/* Proves: likelihoods and greedy answers of trained models equal published ones, so tokenizer and forward
 * pass agree with other engines. The batch size does not change results. Impossible requests are rejected.
 * Perplexities: test_perplexity.c. */
#include "engine/eval/eval.h"
#include "tests/engine/session.h"
#include "engine/arch/arch.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define TINY    "models/repacked/tinystories-656k-f32.gguf"
#define TINY_Q8 "models/tinystories-656k/TinyStories-656K-Q8_0.gguf"
#define SLM     "models/repacked/slm-4096-gpt2-f32.gguf"
#define EXCERPT "text/tinystories-valid-excerpt.txt"

static double surprise(const float *logits, int64_t n, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return log(sum) + most - (double)logits[id];
}

/* Mean negative log-likelihood of every id after the first. */
static double mean_nll(struct model *m, const int32_t *ids, int n)
{
    struct err why = { 0 };
    struct batch_row *rows = malloc((size_t)n * sizeof *rows);
    double sum = 0;
    rows_of(rows, ids, n, 0, 0);
    CHECK_OK(model_forward(m, rows, n, &why));
    for (int i = 0; i + 1 < n; i++) sum += surprise(model_logits(m, i), model_shape(m)->vocab, ids[i + 1]);
    free(rows);
    return sum / (n - 1);
}

static char *read_text(const char *name, size_t *n)
{
    struct err why = { 0 };
    char path[4096], *text;
    data_path(path, sizeof path, "%s", name);
    CHECK_OK(file_read(&text, n, path, 1 << 24, &why));
    return text;
}

static void test_expected_nll(void **state)
{
    (void)state;
    static const struct {
        const char *model, *text;
        size_t bytes;
        int tokens; /* without the first */
        double nll;
    } CASES[] = {
        { STORIES, EXCERPT, 400, 192, 1.34684 },
        { STORIES, EXCERPT, 600, 300, 1.37687 },
        { TINY, EXCERPT, 400, 80, 3.74076 },
        { TINY, EXCERPT, 600, 136, 3.54171 },
        { SLM, "models/slm-4096/corpus.txt", 128, 127, 0.07627 },
    };
    char path[4096];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        SHARED_OR_SKIP(path, CASES[i].model);
        size_t n;
        char *text = read_text(CASES[i].text, &n);
        struct model *m = session_open(path, EXACT, strcmp(CASES[i].model, SLM) ? 512 : 128, 1);
        struct token_list ids = ids_of(m, text, CASES[i].bytes);
        assert_int_equal(ids.n - 1, CASES[i].tokens);
        /* The gpt2 model was trained with exact GELU; other engines use the tanh approximation. */
        CHECK_NEAR(mean_nll(m, ids.ids, (int)ids.n), CASES[i].nll, strcmp(CASES[i].model, SLM) ? 1e-5 : 1e-3);
        token_list_free(&ids);
        free(text);
        model_close(m);
    }
}

/* A file quantized by another program, scored on the ids of the F32 file. */
static void test_foreign_q8_0(void **state)
{
    (void)state;
    char f32[4096], q8[4096];
    SHARED_OR_SKIP(f32, TINY);
    SHARED_OR_SKIP(q8, TINY_Q8);
    size_t n;
    char *text = read_text(EXCERPT, &n);
    struct model *a = session_open(f32, EXACT, 512, 1), *b = session_open(q8, EXACT, 512, 1);
    const struct {
        size_t bytes;
        double nll;
    } CASES[] = { { 400, 3.74369 }, { 600, 3.54478 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct token_list ids = ids_of(a, text, CASES[i].bytes);
        model_truncate(b, 0, 0);
        CHECK_NEAR(mean_nll(b, ids.ids, (int)ids.n), CASES[i].nll, 2e-5);
        token_list_free(&ids);
    }
    free(text);
    model_close(a);
    model_close(b);
}

static void test_greedy(void **state)
{
    (void)state;
    static const struct {
        const char *model, *ids_from, *answer;
    } CASES[] = {
        { STORIES, STORIES,
          ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball." },
        { TINY, TINY,
          ", a little girl named Lily lived in a small house with her mom, dad, and her dog, Spot, Spot, loved to play all day." },
        { TINY_Q8, TINY, ", a little girl named Lily lived in a small house. She loved to eat yummy food." },
    };
    char path[4096], vocabulary[4096];
    struct err why = { 0 };
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        SHARED_OR_SKIP(path, CASES[c].model);
        SHARED_OR_SKIP(vocabulary, CASES[c].ids_from);
        struct model *m = session_open(path, EXACT, 256, 1), *v = session_open(vocabulary, EXACT, 32, 1);
        struct token_list ids = ids_of(v, "Once upon a time", strlen("Once upon a time"));
        const int64_t prompt = ids.n;
        struct sampler *s;
        CHECK_OK(sampler_open(&s, &SAMPLER_DEFAULTS, (int32_t)model_shape(m)->vocab, &why));
        struct batch_row rows[64];
        rows_of(rows, ids.ids, (int)ids.n, 0, 0);
        CHECK_OK(model_forward(m, rows, (int)ids.n, &why));
        const float *logits = model_logits(m, (int)ids.n - 1);
        struct str text = { 0 };
        while (text.len < strlen(CASES[c].answer)) {
            const int32_t id = sampler_next(s, logits);
            CHECK_OK(token_list_push(&ids, id, &why));
            str_clear(&text);
            CHECK_OK(
                tokenizer_decode(model_tokenizer(v), ids.ids + prompt, ids.n - prompt, false, &text, &why));
            const struct batch_row row = { .token = id, .pos = (int32_t)ids.n - 1, .logits = true };
            CHECK_OK(model_forward(m, &row, 1, &why));
            logits = model_logits(m, 0);
        }
        /* The last token may extend beyond the published answer. */
        if (strncmp(str_text(&text), CASES[c].answer, strlen(CASES[c].answer)))
            fail_msg("%s: '%s', want '%s'", CASES[c].model, str_text(&text), CASES[c].answer);
        str_free(&text);
        token_list_free(&ids);
        sampler_close(s);
        model_close(m);
        model_close(v);
    }
}

/* Small batches and a limit of windows change no figure of the windows evaluated. */
static void test_batches(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct perplexity a, b;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    SHARED_OR_SKIP(path, EXCERPT);
    size_t n;
    char *text = read_text(EXCERPT, &n);
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 64, 1);
    CHECK_OK(eval_perplexity(&a, m, text, 4000, 64, 3, NULL, NULL, &why));
    model_close(m);
    m = session_open(path, EXACT ",batch=5", 64, 1);
    CHECK_OK(eval_perplexity(&b, m, text, 4000, 64, 3, NULL, NULL, &why));
    model_close(m);
    free(text);
    assert_int_equal(a.chunks, 3);
    CHECK_NEAR(a.nll, b.nll, 1e-6);
}

static bool count_until(void *arg, int64_t chunk, int64_t of, double nll)
{
    int *calls = arg;
    CHECK_LE(chunk, of);
    CHECK(isfinite(nll));
    return ++*calls < 2;
}

static void test_refusals(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct perplexity p;
    char path[4096];
    int calls = 0;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 64, 1);
    assert_int_equal(eval_perplexity(&p, m, "Too short.", 10, 64, 0, NULL, NULL, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "need 128"));
    assert_int_equal(eval_perplexity(&p, m, "Too short.", 10, 65, 0, NULL, NULL, &why), ERR_USAGE);
    size_t n;
    char *text = read_text(EXCERPT, &n);
    assert_int_equal(eval_perplexity(&p, m, text, 4000, 16, 0, count_until, &calls, &why), ERR_CANCELLED);
    assert_int_equal(calls, 2);
    free(text);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected_nll), cmocka_unit_test(test_foreign_q8_0),
        cmocka_unit_test(test_greedy),       cmocka_unit_test(test_batches),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
