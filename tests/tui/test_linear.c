/* Proves: without a screen every change is one line, said once; a verdict comes with its interval in words;
 * lines become the keys that a person would press. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/dashboard.h"
#include "tui/dashboard/linear.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *tell(struct linear_reported *t, const struct snapshot *s, const struct ui *u)
{
    struct str out = { 0 };
    linear_report(t, s, u, &out);
    char *text = strdup(str_text(&out));
    str_free(&out);
    for (const char *p = text; *p; p++)
        CHECK(*p == '\n' || (unsigned char)*p >= 0x20); /* no cursor, no colour */
    return text;
}

static void check_says(struct linear_reported *t, const struct snapshot *s, const struct ui *u,
                       const char *what)
{
    char *text = tell(t, s, u);
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
    check_says(&t, s, &u, "A q8_0,threads=2 and B q4_0,threads=2 write");
    check_says(&t, s, &u, NULL);
    s->write.running = false;
    char *text = tell(&t, s, &u);
    CHECK(strstr(
        text,
        "A, 19 tokens, 24.1 tokens/s: Once upon a time there was a small dog who lived in a red house"));
    CHECK(strstr(text, "B, 30 tokens, 38.2 tokens/s: ") &&
          strstr(text, "alike for 8 tokens, then they differ"));
    free(text);
    check_says(&t, s, &u, NULL);
    s->write.started_ms++; /* another one, that ended between two frames */
    check_says(&t, s, &u, "alike for 8 tokens");
    free(s);
}

static void changes_are_said_once(void **state)
{
    (void)state;
    struct linear_reported t = { .view = VIEW_LIVE };
    struct ui u = { .view = VIEW_LIVE };
    struct snapshot *empty = fixture_empty(), *idle = fixture_idle(), *running = fixture_running(),
                    *done = fixture_done(VERDICT_BETTER), *failed = fixture_failed();
    check_says(&t, empty, &u, NULL); /* nothing is known, nothing is said */
    char *text = tell(&t, idle, &u);
    CHECK(strstr(text, "machine: Xeon") && strstr(text, "model: /models/stories15M-f16.gguf: llama"));
    CHECK(strstr(text, "limits measured")); /* the log */
    free(text);
    check_says(&t, idle, &u, NULL);
    check_says(&t, running, &u, "running A/B");
    check_says(&t, running, &u, NULL);
    check_says(&t, done, &u, "B better, ");
    check_says(&t, done, &u, NULL);
    t = (struct linear_reported){ .view = VIEW_LIVE };
    check_says(&t, failed, &u, "failed: ");
    u.view = VIEW_MODEL;
    check_says(&t, done, &u, "blk.*.attn_k: 6 of 288 x 288, f16");
    u.view = VIEW_HISTORY;
    check_says(&t, done, &u, "run 12 of ");
    snprintf(u.message, sizeof u.message, "that key does nothing");
    check_says(&t, done, &u, "that key does nothing");
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
    free(tell(&t, s, &u));
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0", "tg64" });
    check_says(&t, s, &u, "arm A? empty: default");
    const char *const answers[] = { "f16", "q4_0,treads=2", "", "", "", "", "" };
    for (size_t a = 0; a < COUNT_OF(answers); a++) {
        enum form_event event = FORM_EDITED;
        const int n = linear_keys(answers[a], &u, keys, COUNT_OF(keys));
        for (int i = 0; i < n; i++) event = form_key(&u.form, keys[i]);
        CHECK(event == FORM_EDITED); /* the last one is refused: arm B cannot be */
    }
    assert_string_equal(u.form.field[0].text, "f16");
    assert_string_equal(u.form.field[2].text, "tg64"); /* an empty answer keeps it */
    assert_string_equal(u.form.field[AB_BUDGET].text, "5m");
    CHECK(u.form.focus == 1);
    check_says(&t, s, &u, "did you mean threads");
    CHECK(linear_keys(".", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == UI_KEY_ESC);
    form_hide(&u.form);
    CHECK(linear_keys("", &u, keys, COUNT_OF(keys)) == 0);
    CHECK(linear_keys("q", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == 'q');
    CHECK(linear_keys("Esc", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == UI_KEY_ESC);
    CHECK(linear_keys("thr", &u, keys, COUNT_OF(keys)) == 5 && keys[0] == ':' && keys[4] == UI_KEY_ENTER);
    CHECK(linear_keys("threads", &u, keys, 3) == 3); /* never beyond its room */
    snprintf(u.question.text, sizeof u.question.text, "Replace it?");
    snprintf(u.question.line, sizeof u.question.line, "quantize a b --force");
    check_says(&t, s, &u, "Replace it? y or n: qdyno quantize a b --force");
    CHECK(linear_keys("y", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == 'y');
    CHECK(linear_keys("what", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == 'n');
    u.question.text[0] = '\0';
    s->page.number = 1;
    s->page.opens = true;
    text_page_put(&s->page, PAGE_PLAIN, "what it wrote");
    check_says(&t, s, &u, "what it wrote");
    u.confirm_quit = true;
    check_says(&t, s, &u, "y or n");
    CHECK(linear_keys("yes", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == 'y');
    CHECK(linear_keys("", &u, keys, COUNT_OF(keys)) == 1 && keys[0] == 'n');
    free(s);
}

static void where_things_stand(void **state)
{
    (void)state;
    struct str out = { 0 };
    struct snapshot *running = fixture_running(), *empty = fixture_empty();
    linear_status(running, &out);
    CHECK(strstr(str_text(&out), "running A/B, block 9") && strstr(str_text(&out), "0:41 left"));
    str_clear(&out);
    linear_status(empty, &out);
    CHECK(strstr(str_text(&out), "idle; processors n/a busy, an unknown part of memory used"));
    str_free(&out);
    free(running);
    free(empty);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_write),
        cmocka_unit_test(changes_are_said_once),
        cmocka_unit_test(questions_and_answers),
        cmocka_unit_test(where_things_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
