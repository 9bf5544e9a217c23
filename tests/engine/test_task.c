/* Proves: all forms of questions are read, others are refused with their line; a choice's score is the sum of
 * the log-likelihoods of its tokens, whatever choices stand beside it; shares, intervals and the McNemar test
 * are those computed by hand. */
#include <stdlib.h>
#include <unistd.h>

#include "engine/chat/chat.h"
#include "engine/eval/eval.h"
#include "engine/eval/statistics.h"
#include "tests/engine/session.h"

static enum err_code parse(struct task_set *s, const char *text, int shots, struct err *why)
{
    return task_set_parse(s, text, strlen(text), shots, why);
}

static void every_form_is_read(void **state)
{
    (void)state;
    struct task_set s;
    struct err why = { 0 };
    CHECK_OK(parse(
        &s,
        "{\"question\":\"2 + 2 =\",\"choices\":[\"3\",\"4\"],\"answer\":1}\n\n"
        "{\"question\":\"The sky is\",\"choices\":[\"green\",\"blue\"],\"answer\":\"B\"}\n"
        "{\"question\":\"Say\",\"choices\":[\"no\",\"yes\"],\"answer\":\"no\"}\n"
        "{\"ctx\":\"He sat\",\"endings\":[\"down.\",\"up.\",\"in.\"],\"label\":0}\n"
        "{\"sentence\":\"Ann thanked Bob because _ had helped.\",\"option1\":\"Ann\",\"option2\":\"Bob\",\"answer\":\"2\"}\n"
        "{\"text\":\"Once upon a time\"}\n",
        0, &why));
    assert_int_equal(s.n, 6);
    assert_string_equal(s.item[0].lead[1], "2 + 2 =");
    assert_string_equal(s.item[0].ending[1], " 4");
    CHECK_EQ(s.item[0].answer, 1);
    CHECK_EQ(s.item[1].answer, 1);
    CHECK_EQ(s.item[2].answer, 0);
    CHECK_EQ(s.item[3].choices, 3);
    assert_string_equal(s.item[4].lead[1], "Ann thanked Bob because Bob");
    assert_string_equal(s.item[4].ending[0], " had helped.");
    CHECK_EQ(s.item[4].answer, 1);
    CHECK_EQ(s.item[5].choices, 1);
    assert_string_equal(s.item[5].lead[0], "Once upon a");
    assert_string_equal(s.item[5].ending[0], " time");
    CHECK_NEAR(task_chance(&s), (4 * 0.5 + 1.0 / 3) / 6, 1e-12);
    task_set_free(&s);

    CHECK_OK(parse(&s, "{\"text\":\"a b\"}\n{\"text\":\"c d\"}\n", 1,
                   &why)); /* the first is shown before the second */
    assert_int_equal(s.n, 1);
    assert_string_equal(s.item[0].lead[0], "a b\n\nc");
    task_set_free(&s);
}

static void what_is_no_question_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } BAD[] = {
        { "{\"text\":\"a b\"}\n{oops}\n", "line 2" },
        { "[1]", "line 1: expected a JSON object" },
        { "{\"q\":1}", "expected the keys question, choices, answer" },
        { "{\"question\":\"x\",\"choices\":[\"a\"],\"answer\":0}", "2 to 16 texts 'choices'" },
        { "{\"question\":\"x\",\"choices\":[\"a\",\"\"],\"answer\":0}", "a choice is no text" },
        { "{\"question\":\"x\",\"choices\":[\"a\",\"b\"],\"answer\":2}",
          "'answer' names none of the 2 choices" },
        { "{\"question\":\"x\",\"choices\":[\"a\",\"b\"]}", "'answer' names none" },
        { "{\"sentence\":\"no gap\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"1\"}", "with one _" },
        { "{\"text\":\"word\"}", "at least two words" },
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct task_set s;
        struct err why = { 0 };
        CHECK_EQ(parse(&s, BAD[i].text, 0, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, BAD[i].message);
        task_set_free(&s);
    }
    struct task_set s;
    struct err why = { 0 };
    CHECK_EQ(parse(&s, "{\"text\":\"a b\"}", 1, &why), ERR_USAGE);
    task_set_free(&s);
    CHECK_EQ(parse(&s, "\n", 0, &why), ERR_USAGE);
    task_set_free(&s);
}

/* ---------------------------------------------------------------- scores */

/* The log-likelihood of `ending` after `lead`, token by token, each from an empty cache. */
static double plain_score(struct model *m, const char *lead, const char *ending)
{
    struct batch_row rows[128];
    struct err why = { 0 };
    char all[256];
    snprintf(all, sizeof all, "%s%s", lead, ending);
    struct token_list a = ids_of(m, lead, strlen(lead)), b = ids_of(m, all, strlen(all));
    int64_t from = 0;
    double sum = 0;
    while (from < a.n && a.ids[from] == b.ids[from]) from++;
    for (int64_t i = from; i < b.n; i++) {
        model_truncate(m, 0, 0);
        rows_of(rows, b.ids, (int)i, 0, 0);
        CHECK_OK(model_forward(m, rows, (int)i, &why));
        sum -= position_surprise(model_logits(m, (int)i - 1), model_shape(m)->vocab, b.ids[i]);
    }
    token_list_free(&a);
    token_list_free(&b);
    return sum;
}

static void choices_are_scored_token_by_token(void **state)
{
    (void)state;
    static const char TEXT[] =
        "{\"question\":\"Once upon a time there was a\",\"choices\":[\"little girl named Lily\",\"stone\",\"the of\"],\"answer\":0}\n"
        "{\"question\":\"One day, Lily\",\"choices\":[\"went to the park\",\"went to the of\",\"the\"],\"answer\":1}\n"
        "{\"sentence\":\"Tim and _ were friends. They played all day.\",\"option1\":\"Sue\",\"option2\":\"the\",\"answer\":\"1\"}\n"
        "{\"text\":\"Once upon a time\"}\n{\"text\":\"Once upon a stone\"}\n";
    struct task_set s;
    struct task_answers x;
    struct err why = { 0 };
    char path[4096];
    snprintf(path, sizeof path, "%s/share/models/bundled.gguf", TEST_SOURCE_DIR);
    struct model *m = session_open(path, EXACT, 128, 1);
    CHECK_OK(parse(&s, TEXT, 0, &why));
    CHECK_OK(task_answer(&x, m, &s, NULL, NULL, NULL, &why));
    assert_int_equal(x.n, 5);
    for (int i = 0; i < 3; i++) {
        int best = 0, best_by_length = 0;
        double score[3];
        for (int c = 0; c < s.item[i].choices; c++) {
            score[c] = plain_score(m, s.item[i].lead[c], s.item[i].ending[c]);
            if (score[c] > score[best]) best = c;
            if (score[c] / (double)strlen(s.item[i].ending[c]) >
                score[best_by_length] / (double)strlen(s.item[i].ending[best_by_length]))
                best_by_length = c;
        }
        CHECK_EQ(x.right[i], best == s.item[i].answer);
        CHECK_EQ(x.right_normalized[i], best_by_length == s.item[i].answer);
    }
    CHECK_EQ(x.right[3], true);  /* the model's first word */
    CHECK_EQ(x.right[4], false); /* not */
    task_answers_free(&x);
    task_set_free(&s);
    CHECK_OK(parse(&s, "{\"text\":\"Once upon a time there was a little girl and she had a big red ball\"}",
                   0, &why));
    model_close(m);
    m = session_open(path, EXACT, 8, 1);
    CHECK_EQ(task_answer(&x, m, &s, NULL, NULL, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "item 1: a choice has");
    task_answers_free(&x);
    task_set_free(&s);
    model_close(m);
}

/* A template that repeats the message asks the same question as plain text; one that ignores it another. */
static void a_template_asks_the_question(void **state)
{
    (void)state;
    static const char TEXT[] =
        "{\"question\":\"Once upon a time there was a\",\"choices\":[\"little girl named Lily\",\"stone\",\"the of\"],\"answer\":0}\n"
        "{\"question\":\"One day, Lily\",\"choices\":[\"went to the of\",\"went to the park\"],\"answer\":1}\n"
        "{\"text\":\"Once upon a time\"}\n";
    static const char *const TEMPLATES[] = { "{{ bos_token }}{{ messages[0].content }}",
                                             "{{ bos_token }}One day, the" };
    struct task_set s;
    struct err why = { 0 };
    char path[4096];
    snprintf(path, sizeof path, "%s/share/models/bundled.gguf", TEST_SOURCE_DIR);
    struct model *m = session_open(path, EXACT, 128, 1);
    CHECK_OK(parse(&s, TEXT, 0, &why));
    for (int i = 0; i < 2; i++) {
        char name[] = "/tmp/qdyno-template-XXXXXX";
        const int fd = mkstemp(name);
        CHECK_GE(fd, 0);
        CHECK_EQ(write(fd, TEMPLATES[i], strlen(TEMPLATES[i])), (ssize_t)strlen(TEMPLATES[i]));
        close(fd);
        struct chat *chat = NULL;
        struct task_answers plain, x;
        CHECK_OK(chat_open(&chat, model_gguf(m), model_tokenizer(m), name, &why));
        CHECK_OK(task_answer(&plain, m, &s, NULL, NULL, NULL, &why));
        CHECK_OK(task_answer(&x, m, &s, chat, NULL, NULL, &why));
        for (int k = 0; k < 2 && !i; k++) CHECK_EQ(x.right[k], plain.right[k]);
        CHECK_EQ(plain.right[2], true);
        CHECK_EQ(x.right[2], i == 0);
        task_answers_free(&plain);
        task_answers_free(&x);
        chat_close(chat);
        unlink(name);
    }
    task_set_free(&s);
    model_close(m);
}

/* ---------------------------------------------------------------- figures */

static void figures_are_those_computed_by_hand(void **state)
{
    (void)state;
    bool a[10] = { true, true, true, true, true, true, true, true, false, false }, b[10] = { false };
    const struct task_share s = task_share(a, 10);
    CHECK_EQ(s.right, 8);
    CHECK_NEAR(s.share, 0.8, 1e-12);
    CHECK_NEAR(s.lower, 0.4901625, 1e-6); /* Wilson, z = 1.959964 */
    CHECK_NEAR(s.upper, 0.9433178, 1e-6);
    memcpy(b, a, sizeof b);
    CHECK_NEAR(task_compare(a, b, 10).p, 1, 0);
    for (int i = 0; i < 5; i++) b[i] = false;
    b[8] = true;
    const struct task_pair p = task_compare(a, b, 10); /* 5 lost, 1 won: 2 * (1 + 6) / 64 */
    CHECK_EQ(p.only_first, 5);
    CHECK_EQ(p.only_second, 1);
    CHECK_NEAR(p.p, 14.0 / 64, 1e-12);
    CHECK_NEAR(p.change, -0.4, 1e-12);
    /* 5.5 lost and 1.5 won of 12: -1/3 -+ 1.959964 sqrt((7 - 16/12) / 144) */
    CHECK_NEAR(p.lower, -0.7221373, 1e-6);
    CHECK_NEAR(p.upper, 0.0554706, 1e-6);
    const struct task_pair same = task_compare(a, a, 10); /* 1.959964 / 12 */
    CHECK_NEAR(same.change, 0, 0);
    CHECK_NEAR(same.lower, -0.1633303, 1e-6);
    CHECK_NEAR(task_least_half(10), 0.1633303, 1e-6);
    CHECK_EQ(task_least_items(0.164), 10);
    CHECK_EQ(task_least_items(0.005), 390);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(choices_are_scored_token_by_token),
        cmocka_unit_test(a_template_asks_the_question),
        cmocka_unit_test(figures_are_those_computed_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
