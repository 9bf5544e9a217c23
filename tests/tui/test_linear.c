/* Proves: without a screen each change is reported once, as one line; a verdict is reported with its
 * interval; typed lines become the keys that a person would press. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/dashboard.h"
#include "tui/dashboard/linear.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *report_text(struct linear_reported *t, const struct snapshot *s, const struct ui *u)
{
    struct str out = { 0 };
    linear_report(t, s, u, &out);
    char *text = strdup(str_text(&out));
    str_free(&out);
    for (const char *p = text; *p; p++)
        CHECK(*p == '\n' || (unsigned char)*p >= 0x20); /* no escape sequences */
    return text;
}

static void check_says(struct linear_reported *t, const struct snapshot *s, const struct ui *u,
                       const char *what)
{
    char *text = report_text(t, s, u);
    if (what ? !strstr(text, what) : *text != 0) fail_msg("want '%s', said:\n%s", what ? what : "", text);
    free(text);
}

/* That they write, once; what they wrote, once and whole, when both are done. */
static void two_that_write(void **state)
{
    (void)state;
    struct linear_reported t = { .view = VIEW_LIVE };
    struct ui u = { .view = VIEW_LIVE };
    struct snapshot *s = fixture_running();
    s->write.running = true;
    check_says(&t, s, &u, "A q8_0,threads=2 and B q4_0,threads=2 are writing");
    check_says(&t, s, &u, NULL);
    s->write.running = false;
    char *text = report_text(&t, s, &u);
    CHECK_CONTAINS(
        text, "A, 19 tokens, 24.1 tokens/s: Once upon a time there was a small dog who lived in a red house");
    CHECK_CONTAINS(text, "B, 30 tokens, 38.2 tokens/s: ");
    CHECK_CONTAINS(text, "the texts are the same for 8 tokens, then differ");
    free(text);
    check_says(&t, s, &u, NULL);
    s->write.started_ms++; /* another run, which started and ended between two frames */
    check_says(&t, s, &u, "the same for 8 tokens");
    free(s);
}

static void changes_are_said_once(void **state)
{
    (void)state;
    struct linear_reported t = { .view = VIEW_LIVE };
    struct ui u = { .view = VIEW_LIVE };
    struct snapshot *empty = fixture_empty(), *idle = fixture_idle(), *running = fixture_running(),
                    *done = fixture_done(VERDICT_BETTER), *failed = fixture_failed();
    check_says(&t, empty, &u, NULL); /* nothing is known, so nothing is reported */
    char *text = report_text(&t, idle, &u);
    CHECK_CONTAINS(text, "machine: Xeon");
    CHECK_CONTAINS(text, "model: /models/stories15M-f16.gguf: llama");
    CHECK_CONTAINS(text, "limits measured"); /* the log */
    free(text);
    check_says(&t, idle, &u, NULL);
    check_says(&t, running, &u, "running A/B");
    check_says(&t, running, &u, NULL);
    check_says(&t, done, &u, "B better, ");
    check_says(&t, done, &u, NULL);
    t = (struct linear_reported){ .view = VIEW_LIVE };
    check_says(&t, failed, &u, "failed: ");
    u.view = VIEW_MODEL;
    check_says(&t, done, &u, "tensor blk.*.attn_k; count x6; format f16; shape 288 x 288");
    u.view = VIEW_HISTORY;
    check_says(&t, done, &u, "run 12; started ");
    snprintf(u.message, sizeof u.message, "this key has no action");
    check_says(&t, done, &u, "this key has no action");
    check_says(&t, done, &u, NULL);
    free(empty);
    free(idle);
    free(running);
    free(done);
    free(failed);
}

static void questions_and_answers(void **state)
{
    (void)state;
    struct linear_reported t = { .view = VIEW_LIVE };
    struct ui u = { .view = VIEW_LIVE };
    struct snapshot *s = fixture_idle();
    int keys[64];
    free(report_text(&t, s, &u));
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0", "tg64" });
    check_says(&t, s, &u, "arm A? (empty line: default");
    const char *const answers[] = { "f16", "q4_0,treads=2", "", "", "", "", "" };
    for (size_t a = 0; a < COUNT_OF(answers); a++) {
        enum form_event event = FORM_EDITED;
        const int n = linear_keys(answers[a], &u, keys, COUNT_OF(keys));
        for (int i = 0; i < n; i++) event = form_key(&u.form, keys[i]);
        CHECK_EQ(event, FORM_EDITED); /* the last Enter is refused, because arm B is invalid */
    }
    assert_string_equal(u.form.field[0].text, "f16");
    assert_string_equal(u.form.field[2].text, "tg64"); /* an empty answer keeps the value */
    assert_string_equal(u.form.field[AB_BUDGET].text, "5m");
    CHECK_EQ(u.form.focus, 1);
    check_says(&t, s, &u, "did you mean threads");
    CHECK_EQ(linear_keys(".", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], UI_KEY_ESC);
    form_hide(&u.form);

    CHECK_EQ(linear_keys("q", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], 'q');
    CHECK_EQ(linear_keys("Esc", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], UI_KEY_ESC);
    CHECK_EQ(linear_keys("thr", &u, keys, COUNT_OF(keys)), 5);
    CHECK_EQ(keys[0], ':');
    CHECK_EQ(keys[4], UI_KEY_ENTER);
    CHECK_EQ(linear_keys("threads", &u, keys, 3), 3); /* at most `max` keys */
    snprintf(u.question.text, sizeof u.question.text, "Replace it?");
    u.question.command = fixture_words("quantize a b --force");
    check_says(&t, s, &u, "Replace it? y or n: qdyno quantize a b --force");
    CHECK_EQ(linear_keys("y", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], 'y');
    CHECK_EQ(linear_keys("what", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], 'n');
    u.question.text[0] = '\0';
    s->page.number = 1;
    s->page.opens = true;
    text_page_put(&s->page, PAGE_PLAIN, "what it wrote");
    check_says(&t, s, &u, "what it wrote");
    u.confirm_quit = true;
    check_says(&t, s, &u, "y or n");
    CHECK_EQ(linear_keys("yes", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], 'y');
    CHECK_EQ(linear_keys("", &u, keys, COUNT_OF(keys)), 1);
    CHECK_EQ(keys[0], 'n');
    free(s);
}

/* Words are never taken as single keys, and only names of the palette start something: "quit" typed over an
 * open help once pressed q, u, i and t, which started a search of ten minutes. */
static void words_that_are_no_keys(void **state)
{
    (void)state;
    static const struct palette_command COMMANDS[] = { { "bench", "[CONFIG]", "measure speed" } };
    const struct ui u = { .view = VIEW_LIVE, .commands = COMMANDS, .command_count = COUNT_OF(COMMANDS) };
    struct snapshot *s = fixture_idle();
    struct str out = { 0 };
    CHECK(linear_answer("help", s, &u, &out));
    CHECK_CONTAINS(str_text(&out), "q or quit: ");
    CHECK_CONTAINS(str_text(&out), "t or tune: ");
    CHECK_CONTAINS(str_text(&out), "bench [CONFIG]: measure speed");
    CHECK_CONTAINS(str_text(&out), "threads: ");
    str_clear(&out);
    CHECK(linear_answer("", s, &u, &out));
    CHECK_CONTAINS(str_text(&out), "of memory used");
    static const char *const NOTHING[] = { "tn", "qt", "measure speed", "hello", "Q!" };
    for (size_t i = 0; i < COUNT_OF(NOTHING); i++) {
        str_clear(&out);
        CHECK(linear_answer(NOTHING[i], s, &u, &out));
        CHECK_CONTAINS(str_text(&out), "is not a command; nothing was done");
    }
    str_clear(&out);
    static const char *const NAMES[] = { "q", "quit", "tune", "thr", "bench", "a/b" };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) CHECK(!linear_answer(NAMES[i], s, &u, &out));
    CHECK_EQ(out.len, 0);
    str_free(&out);
    free(s);
}

static void where_things_stand(void **state)
{
    (void)state;
    struct str out = { 0 };
    struct snapshot *running = fixture_running(), *empty = fixture_empty();
    linear_status(running, &out);
    CHECK_CONTAINS(str_text(&out), "running A/B, block 9");
    CHECK_CONTAINS(str_text(&out), "0:41 left");
    str_clear(&out);
    linear_status(empty, &out);
    CHECK_CONTAINS(str_text(&out), "idle; CPU n/a busy, an unknown part of memory used");
    str_free(&out);
    free(running);
    free(empty);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_write),        cmocka_unit_test(changes_are_said_once),
        cmocka_unit_test(questions_and_answers), cmocka_unit_test(words_that_are_no_keys),
        cmocka_unit_test(where_things_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
