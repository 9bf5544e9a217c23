/* Proves: stories are the same on every machine. Each text has one derivation, so the probability that the
 * generator reports is that of the text. A story with a wrong answer cannot be parsed. Splits do not overlap.
 * Choices have their specified frequencies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/corpus.h"
#include "tests/check.h"

static struct corpus *opened(void)
{
    struct err why = { 0 };
    struct corpus *c;
    CHECK_OK(corpus_open(&c, &why));
    return c;
}

static double story_write(const struct corpus *c, enum corpus_split split, uint64_t number, struct str *s)
{
    str_clear(s);
    return corpus_story(c, (struct story_id){ 1, split, number }, s);
}

static void same_everywhere(void **state)
{
    (void)state;
    struct corpus *c = opened();
    struct str all = { 0 };
    char hex[HASH_HEX];
    for (uint64_t i = 0; i < 100; i++) corpus_story(c, (struct story_id){ 7, CORPUS_TRAIN, i }, &all);
    hash_bytes(all.data, all.len, hex);
    /* This changes with the grammar; then the bundled model must be trained again. */
    assert_string_equal(hex, "c7e61dab63968d00f944f28e08c2a09a016f677038151b4289a4e10e77a394d5");
    str_free(&all);
    corpus_close(c);
}

static void probability_is_the_texts_own(void **state)
{
    (void)state;
    struct corpus *c = opened();
    struct str s = { 0 };
    for (int split = 0; split < CORPUS_SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < 200; i++) {
            double p = story_write(c, (enum corpus_split)split, i, &s);
            struct corpus_score score = corpus_score(c, s.data, s.len);
            if (score.derivations != 1) fail_msg("%d derivations of: %s", (int)score.derivations, s.data);
            CHECK_NEAR(score.log_probability, p, 1e-9);
            assert_int_equal(score.told, s.len);
            CHECK_LT(p, -10);
            CHECK_LT(-200, p);
        }
    str_free(&s);
    corpus_close(c);
}

/* Of the weights of the rule "scene", 23 in total, the empty form has 12 and the sunny one 1. */
static void probability_by_hand(void **state)
{
    (void)state;
    struct corpus *c = opened();
    struct str s = { 0 }, sunny = { 0 };
    double without = -INFINITY, with = -INFINITY;
    for (uint64_t i = 0; !isfinite(with); i++) { /* find a story without a scene, and insert one */
        story_write(c, CORPUS_TRAIN, i, &s);
        const char *behind = strstr(s.data, " more than anything. ");
        if (!behind) continue;
        behind += strlen(" more than anything. ");
        str_clear(&sunny);
        str_append_n(&sunny, s.data, (size_t)(behind - s.data));
        str_printf(&sunny, "The sun was shining. %s", behind);
        without = corpus_score(c, s.data, s.len).log_probability;
        with = corpus_score(c, sunny.data, sunny.len).log_probability;
    }
    CHECK_NEAR(without - with, log(12), 1e-9);
    str_free(&s);
    str_free(&sunny);
    corpus_close(c);
}

static void wrong_answers_are_no_story(void **state)
{
    (void)state;
    struct corpus *c = opened();
    struct str s = { 0 };
    int seen = 0;
    for (uint64_t i = 0; seen < 5; i++) {
        story_write(c, CORPUS_TRAIN, i, &s);
        char *times = strstr(s.data, " times three is "), *answer = times ? times + 16 : NULL;
        if (!answer) continue;
        seen++;
        answer[0] = answer[0] == 't' ? 's' : 't'; /* six, nine, twelve or fifteen becomes another word */
        struct corpus_score score = corpus_score(c, s.data, s.len);
        CHECK_EQ(score.log_probability, -INFINITY);
        assert_int_equal(score.derivations, 0);
        assert_int_equal(score.told, answer - s.data); /* the text is valid up to there */
    }
    assert_int_equal(corpus_score(c, "", 0).derivations, 0);
    story_write(c, CORPUS_TRAIN, 3, &s);
    assert_int_equal(corpus_score(c, s.data, s.len - 1).derivations, 0); /* an incomplete story */
    str_append(&s, " ");
    assert_int_equal(corpus_score(c, s.data, s.len).derivations, 0);
    str_free(&s);
    corpus_close(c);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void splits_do_not_overlap(void **state)
{
    (void)state;
    enum { EACH = 1500 };
    struct corpus *c = opened();
    char *texts[EACH * CORPUS_SPLIT_COUNT];
    for (int i = 0; i < EACH * CORPUS_SPLIT_COUNT; i++) {
        struct str s = { 0 };
        corpus_story(c, (struct story_id){ 1, (enum corpus_split)(i % CORPUS_SPLIT_COUNT), (uint64_t)i }, &s);
        texts[i] = str_take(&s);
        CHECK_NE(texts[i], NULL);
    }
    qsort(texts, COUNT_OF(texts), sizeof *texts, by_text);
    for (size_t i = 1; i < COUNT_OF(texts); i++) CHECK_STR_NE(texts[i - 1], texts[i]);
    for (size_t i = 0; i < COUNT_OF(texts); i++) free(texts[i]);
    corpus_close(c);
}

static void choices_fall_as_often_as_they_should(void **state)
{
    (void)state;
    enum { STORIES = 20000 };
    struct corpus *c = opened();
    struct str s = { 0 };
    int once = 0, pet = 0, lily = 0;
    for (uint64_t i = 0; i < STORIES; i++) {
        story_write(c, CORPUS_TRAIN, i, &s);
        once += str_starts(s.data, "Once upon a time"); /* 2 of 8 */
        pet += str_starts(s.data, "There was once");    /* 1 of 8 */
        lily += str_starts(s.data, "Lily ");            /* 5 of 8, of 48 names */
    }
    CHECK_NEAR((double)once / STORIES, 0.25, 4 * sqrt(0.25 * 0.75 / STORIES));
    CHECK_NEAR((double)pet / STORIES, 0.125, 4 * sqrt(0.125 * 0.875 / STORIES));
    CHECK_NEAR((double)lily / STORIES, 5.0 / 8 / 48, 4 * sqrt(5.0 / 8 / 48 / STORIES));
    str_free(&s);
    corpus_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_everywhere),       cmocka_unit_test(probability_is_the_texts_own),
        cmocka_unit_test(probability_by_hand),   cmocka_unit_test(wrong_answers_are_no_story),
        cmocka_unit_test(splits_do_not_overlap), cmocka_unit_test(choices_fall_as_often_as_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
