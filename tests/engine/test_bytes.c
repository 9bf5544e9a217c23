/* Proves: bits per byte of a model against itself do not differ; of two models with different tokenizers,
 * exchanging them turns the sign of the difference and changes nothing else, and both are scored on the same
 * bytes; a text that is too short is refused; the figures are within what a vocabulary allows;
 * JSON gives back what was put in. */
#include "engine/arch/arch.h"
#include "engine/eval/statistics.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define TINY    "models/repacked/tinystories-656k-f32.gguf"
#define EXCERPT "text/tinystories-valid-excerpt.txt"

static char *read_shared(const char *name, size_t *n)
{
    struct err why = { 0 };
    char path[4096], *text;
    data_path(path, sizeof path, "%s", name);
    CHECK_OK(file_read(&text, n, path, 1 << 24, &why));
    return text;
}

static void test_two_tokenizers(void **state)
{
    (void)state;
    struct err why = { 0 };
    char stories[4096], tiny[4096], path[4096];
    SHARED_OR_SKIP(path, EXCERPT);
    SHARED_OR_SKIP(stories, STORIES);
    SHARED_OR_SKIP(tiny, TINY);
    size_t n;
    char *text = read_shared(EXCERPT, &n);
    const struct eval_request r = { .text = text, .n = n, .ctx = 64, .max_chunks = 12 };
    struct model *a = session_open(stories, EXACT, 64, 1), *b = session_open(tiny, EXACT, 64, 1),
                 *same = session_open(stories, EXACT, 64, 1);
    struct byte_comparison ab, ba, aa;
    assert_int_equal(eval_check_same_vocabulary(a, b, &why), ERR_USAGE);
    CHECK_OK(eval_check_same_vocabulary(a, same, &why));
    CHECK_OK(eval_bytes(&ab, a, b, &r, &why));
    CHECK_OK(eval_bytes(&ba, b, a, &r, &why));
    CHECK_OK(eval_bytes(&aa, a, same, &r, &why));
    assert_int_equal(ab.pieces, 12);
    CHECK(ab.bytes > 12 * 10);
    CHECK(ab.reference_tokens != ab.candidate_tokens);
    assert_int_equal(ab.bytes, ba.bytes);
    assert_int_equal(ab.reference_tokens, ba.candidate_tokens);
    CHECK_NEAR(ab.reference, ba.candidate, 1e-9);
    CHECK_NEAR(ab.change, -ba.change, 1e-9);
    CHECK_NEAR(ab.change, ab.candidate - ab.reference, 1e-9);
    CHECK_NEAR(ab.change_se, ba.change_se, 1e-9);
    CHECK(ab.change_se > 0);
    CHECK(ab.reference > 0.3 && ab.reference < 3); /* stories: about one bit, whatever the vocabulary */
    CHECK_NEAR(aa.change, 0, 1e-12);
    CHECK_NEAR(aa.change_se, 0, 1e-12);
    assert_int_equal(aa.reference_tokens, aa.candidate_tokens);
    model_close(a);
    model_close(b);
    model_close(same);
    free(text);
}

/* A text of one piece is too short; two pieces give figures between none and guessing. */
static void test_short_texts(void **state)
{
    (void)state;
    struct err why = { 0 };
    char stories[4096];
    SHARED_OR_SKIP(stories, STORIES);
    enum { CTX = 16 };
    static const char WORDS[] =
        "Once upon a time there was a little girl who loved to play in the sun with her "
        "dog and then they went home to eat some cake and sing a song about the big red ball";
    struct model *a = session_open(stories, EXACT, 64, 1), *b = session_open(stories, EXACT, 64, 1);
    const struct eval_request r = { .text = WORDS, .n = sizeof WORDS - 1, .ctx = 48, .max_chunks = 0 };
    struct byte_comparison got;
    assert_int_equal(eval_bytes(&got, a, b, &r, &why), ERR_USAGE); /* one piece of 192 bytes is too few */
    CHECK_CONTAINS(why.message, "too short");
    const struct eval_request two = { .text = WORDS, .n = sizeof WORDS - 1, .ctx = CTX, .max_chunks = 2 };
    CHECK_OK(eval_bytes(&got, a, b, &two, &why));
    assert_int_equal(got.pieces, 2);
    /* tokens of all scored halves have fewer bits than guessing among the vocabulary, and more than none */
    const double guess = log2((double)model_shape(a)->vocab);
    CHECK(got.reference * (double)got.bytes < guess * (double)got.reference_tokens);
    CHECK(got.reference > 0);
    model_close(a);
    model_close(b);
}

static void test_json(void **state)
{
    (void)state;
    const struct byte_comparison b = { 12, 3456, 800, 900, 1.25, 1.5, 0.25, 0.0625 };
    struct byte_comparison back;
    json_t *o = json_object();
    byte_comparison_put_json(o, &b);
    byte_comparison_from_json(&back, o);
    assert_int_equal(back.pieces, 12);
    assert_int_equal(back.bytes, 3456);
    assert_int_equal(back.candidate_tokens, 900);
    CHECK_EQ(back.change, 0.25);
    CHECK_EQ(back.change_se, 0.0625);
    json_decref(o);
    o = json_object();
    byte_comparison_from_json(&back, o);
    assert_int_equal(back.pieces, 0);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_tokenizers),
        cmocka_unit_test(test_short_texts),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
