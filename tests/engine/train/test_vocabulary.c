/* Proves: the vocabulary learned from a tiny text equals the one computed by hand. The engine's tokenizer
 * repeats the learned merges and reproduces any bytes. The same text gives the same vocabulary. Impossible
 * sizes are rejected.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "engine/train/corpus.h"
#include "engine/train/vocabulary.h"
#include "tests/check.h"

static void stories(struct str *s, enum corpus_split split, int count)
{
    struct err why = { 0 };
    struct corpus *c;
    CHECK_OK(corpus_open(&c, &why));
    for (int i = 0; i < count; i++) {
        corpus_story(c, (struct story_id){ 1, split, (uint64_t)i }, s);
        str_append(s, "\n");
    }
    corpus_close(c);
    CHECK(!s->failed);
}

/* Write the vocabulary to a file and open it with the engine. */
struct reading {
    char path[512];
    struct gguf *g;
    struct tokenizer *t;
};

static void reading_open(struct reading *r, const struct vocabulary *v)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    snprintf(r->path, sizeof r->path, "%s/tests/vocabulary-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    CHECK_OK(gguf_writer_open(&w, r->path, &why));
    gguf_writer_put_string(w, "general.architecture", "llama");
    vocabulary_put(v, w);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&r->g, r->path, &why));
    CHECK_OK(tokenizer_open(&r->t, r->g, &why));
}

static void reading_close(struct reading *r)
{
    tokenizer_close(r->t);
    gguf_close(r->g);
    unlink(r->path);
}

/* " aab aab aab ab": pairs: " a" 4 (3 + 1), "ab" 4, "aa" 3; of equally frequent pairs " a" is first. Then "
 * aa" 3, " aab" 3.
 */
static void by_hand(void **state)
{
    (void)state;
    static const char TEXT[] = " aab aab aab ab";
    static const char *const WANT[] = { "\xe2\x96\x81"
                                        "a",
                                        "\xe2\x96\x81"
                                        "aa",
                                        "\xe2\x96\x81"
                                        "aab" };
    struct err why = { 0 };
    struct vocabulary v;
    CHECK_OK(vocabulary_train(&v, TEXT, sizeof TEXT - 1, VOCABULARY_LEAST + 3, &why));
    assert_int_equal(v.n, VOCABULARY_LEAST + 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(v.texts[259 + i].len, strlen(WANT[i]));
        assert_memory_equal(v.texts[259 + i].data, WANT[i], strlen(WANT[i]));
        CHECK_NEAR(v.scores[259 + i], -i, 0);
    }
    vocabulary_free(&v);
    assert_int_equal(vocabulary_train(&v, TEXT, sizeof TEXT - 1, VOCABULARY_LEAST + 4, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "too large"); /* " ab" occurs only once */
    vocabulary_free(&v);
    assert_int_equal(vocabulary_train(&v, TEXT, sizeof TEXT - 1, VOCABULARY_LEAST - 1, &why), ERR_USAGE);
    vocabulary_free(&v);
}

static void encode(const struct reading *r, const char *text, size_t n, struct token_list *ids)
{
    struct err why = { 0 };
    ids->n = 0;
    CHECK_OK(tokenizer_encode(r->t, text, n, 0, ids, &why));
}

static void round_trip(const struct reading *r, const char *text, size_t n)
{
    struct err why = { 0 };
    struct token_list ids = { 0 };
    struct str back = { 0 };
    encode(r, text, n, &ids);
    CHECK_OK(tokenizer_decode(r->t, ids.ids, ids.n, false, &back, &why));
    assert_int_equal(back.len, n);
    assert_memory_equal(str_text(&back), text, n);
    str_free(&back);
    token_list_free(&ids);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct str text = { 0 }, other = { 0 };
    struct vocabulary v;
    struct reading r;
    stories(&text, CORPUS_TRAIN, 2000);
    stories(&other, CORPUS_HELD_OUT, 200);
    CHECK_OK(vocabulary_train(&v, text.data, text.len, 1024, &why));
    reading_open(&r, &v);
    round_trip(&r, other.data, other.len);
    static const char HARD[] =
        "  two  spaces, 12 + 34 = 46\ttab \xe2\x82\xac \xff\xfe \xe2\x96 end\n\n<s> <0x41> ";
    round_trip(&r, HARD, sizeof HARD - 1);
    char bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    round_trip(&r, bytes, sizeof bytes);

    struct token_list ids = { 0 };
    encode(&r, other.data, other.len, &ids);
    const double characters = (double)other.len / (double)ids.n;
    print_message("%.2f characters a token\n", characters);
    CHECK_LT(2.8, characters); /* characters per token: tokens are words and their parts */
    token_list_free(&ids);
    reading_close(&r);
    vocabulary_free(&v);
    str_free(&text);
    str_free(&other);
}

static void same_text_same_vocabulary(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct str text = { 0 };
    struct vocabulary a, b;
    stories(&text, CORPUS_TRAIN, 500);
    CHECK_OK(vocabulary_train(&a, text.data, text.len, 700, &why));
    CHECK_OK(vocabulary_train(&b, text.data, text.len, 700, &why));
    assert_int_equal(a.n, 700);
    for (int64_t i = 0; i < a.n; i++) {
        assert_int_equal(a.texts[i].len, b.texts[i].len);
        assert_memory_equal(a.texts[i].data, b.texts[i].data, a.texts[i].len);
        for (int64_t j = 259; j < i; j++) /* all tokens are different */
            CHECK(a.texts[i].len != a.texts[j].len ||
                  memcmp(a.texts[i].data, a.texts[j].data, a.texts[i].len));
    }
    vocabulary_free(&a);
    vocabulary_free(&b);
    str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(same_text_same_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
