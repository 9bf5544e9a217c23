/* Proves: the dashboard reads what `tune --progress json` writes, with unknown values as unknown; the keys of
 * a search do what they say in each of its states; the lines mode reports each change once. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/cli/command_tune_progress.h"
#include "tui/dashboard/actions.h"
#include "tui/dashboard/linear.h"
#include "tui/dashboard/shell.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(struct tune_watch *t, const struct tune_progress *at, const struct tune_end *end)
{
    json_t *o = tune_progress_to_json(at, "/m/x.gguf", end);
    char *line = json_line(o);
    json_t *again = NULL;
    struct err why;
    CHECK_OK(json_parse(&again, line, strlen(line), NULL));
    CHECK(tune_watch_read(t, again));
    json_decref(again);
    json_decref(o);
    free(line);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const struct tune_candidate fast = { .line = "q4_K",
                                         .normalized_rate = 50,
                                         .normalized_sd = 0.1,
                                         .timings = 2,
                                         .memory_bytes = 1 << 20,
                                         .kld = NAN },
                                bad = {
                                    .line = "q2_K", .normalized_rate = NAN, .normalized_sd = NAN, .kld = 0.5
                                };
    struct tune_progress at = { .phase = TUNE_PHASE_RACE,
                                .run_id = 7,
                                .what = "speed",
                                .config = "q4_K",
                                .why = "because",
                                .possible = 9,
                                .timed = 2,
                                .judged = 1,
                                .n = 2,
                                .board = { { &fast, true, NULL }, { &bad, false, "quality limit" } } };
    struct tune_watch t;
    tune_watch_begin(&t, 5);
    put(&t, &at, NULL);
    CHECK_EQ(t.phase, TUNE_PHASE_RACE);
    CHECK_EQ(t.run_id, 7);
    CHECK_EQ(t.rows, 2);
    CHECK_STR(t.why, "because");
    CHECK_STR(t.model, "/m/x.gguf");
    CHECK(t.row[0].is_current);
    CHECK_EQ(t.row[0].timings, 2);
    CHECK_EQ(t.row[0].bytes, 1 << 20);
    CHECK_NEAR(t.row[0].lower, 50 * exp(-0.196), 1e-9);
    CHECK_NEAR(t.row[0].upper, 50 * exp(0.196), 1e-9);
    CHECK_NAN(t.row[0].kld); /* not measured is not 0 */
    CHECK_NAN(t.row[1].rate);
    CHECK_STR(t.row[1].excluded, "quality limit");
    CHECK_STR(t.challenger, "");
    CHECK(!t.ended);
    at.phase = TUNE_PHASE_CONFIRM;
    at.n = 0; /* the rows stay */
    snprintf(at.challenger, sizeof at.challenger, "q4_K");
    at.effect = (struct interval){ log(2), log(1.5), log(2.5) };
    at.blocks = 4;
    at.confirm_run = 8;
    put(&t, &at, NULL);
    CHECK_EQ(t.rows, 2);
    CHECK_EQ(t.blocks, 4);
    CHECK_EQ(t.confirm_run, 8);
    CHECK_NEAR(t.effect.lower, 1.5, 1e-9);
    const struct tune_result r = { .wins = true, .winner = { .line = "q4_K" } };
    put(&t, &at, &(struct tune_end){ &r, "q4_K is faster.", "/c/x.conf", "", "" });
    CHECK(!t.loaded);
    CHECK_STR(t.confirm, "");
    const struct tune_result busy = { .wins = true,
                                      .winner = { .line = "q4_K" },
                                      .load = { .loaded = true } };
    put(&t, &at, &(struct tune_end){ &busy, "q4_K is faster.", NULL, "found busy", "qdyno ab a b" });
    CHECK(t.loaded);
    CHECK_STR(t.confirm, "qdyno ab a b");
    CHECK(t.ended);
    CHECK(t.wins);
    CHECK(!t.stopped);
    CHECK_STR(t.text, "q4_K is faster.");
    CHECK_STR(t.candidate, "q4_K");
    json_t *other = json_object();
    CHECK(!tune_watch_read(&t, other));
    CHECK(!tune_watch_read(&t, NULL));
    json_decref(other);
}

static const char *refusal(enum action a, const struct ui *u, const struct snapshot *s)
{
    return action_refusal(a, u, s);
}

static void keys_of_a_search(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_LIVE };
    CHECK_EQ(input_key(&u, s, 't').requests, 0);
    CHECK_EQ(u.view, VIEW_TUNE);
    CHECK_EQ(u.form.kind, FORM_TUNE);
    struct effect e = input_key(&u, s, UI_KEY_ENTER); /* the defaults start it */
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK_CONTAINS(line_of(&e.command),
                   "qdyno tune -m /models/stories15M-f16.gguf --goal balanced --budget 10m");
    free(s);

    s = fixture_tune();
    u = (struct ui){ .view = VIEW_LIVE };
    CHECK_EQ(input_key(&u, s, 't').requests, 0); /* shows the one that runs */
    CHECK_EQ(u.view, VIEW_TUNE);
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    CHECK_CONTAINS(refusal(DO_PAUSE, &u, s), "cannot be paused");
    CHECK_CONTAINS(refusal(DO_OPEN, &u, s), "still running");
    CHECK_CONTAINS(refusal(DO_RESUME, &u, s), "running already");
    CHECK_EQ(input_key(&u, s, 's').requests, REQUEST_CANCEL_COMMAND);
    CHECK_CONTAINS(ui_quit_question(s), "can be resumed");
    free(s);

    s = fixture_tune_won();
    CHECK_CONTAINS(refusal(DO_OPEN, &u, s), "in use already");
    e = input_key(&u, s, 'u');
    CHECK_STR(line_of(&e.command), "qdyno apply --undo -m /models/stories15M-f16.gguf");
    s->applied[0] = '\0'; /* undone: Enter uses it again */
    CHECK_EQ(input_key(&u, s, UI_KEY_ENTER).requests, 0);
    CHECK_STR(line_of(&u.question.command),
              "qdyno apply -m /models/stories15M-f16.gguf q4_K,threads=2,act=int8");
    free(s);

    s = fixture_tune_won(); /* on a busy machine nothing is applied without a question */
    s->applied[0] = '\0';
    s->tune.loaded = true;
    u = (struct ui){ .view = VIEW_TUNE };
    snprintf(s->tune.confirm, sizeof s->tune.confirm, "qdyno ab default threads=1 --wait-quiet 1h");
    char next[600];
    CHECK_CONTAINS(tune_next_step(s, next, sizeof next), "anyway; !: compare it when the machine is quiet");
    CHECK_EQ(input_key(&u, s, UI_KEY_ENTER).requests, 0);
    CHECK_CONTAINS(u.question.text, "found on a busy machine");
    u = (struct ui){ .view = VIEW_TUNE };
    CHECK_EQ(input_key(&u, s, '!').requests, 0);
    CHECK_EQ(u.form.kind, FORM_COMMAND);
    CHECK_STR(u.form.field[0].text, "ab default threads=1 --wait-quiet 1h");
    free(s);

    s = fixture_tune_killed();
    u = (struct ui){ .view = VIEW_LIVE };
    e = input_key(&u, s, 'r');
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK_STR(line_of(&e.command), "qdyno tune --resume 14");
    CHECK_EQ(u.view, VIEW_TUNE);
    free(s);
    arena_free(&u.texts);
}

static void lines_say_each_change_once(void **state)
{
    (void)state;
    struct linear_reported t = { .view = VIEW_TUNE };
    struct ui u = { .view = VIEW_TUNE };
    struct str out = { 0 };
    struct snapshot *race = fixture_tune(), *won = fixture_tune_won(), *killed = fixture_tune_killed();
    linear_report(&t, killed, &u, &out);
    CHECK_CONTAINS(str_text(&out),
                   "the search of stories15M-f16.gguf (run 14) was interrupted: r resumes it");
    str_clear(&out);
    linear_report(&t, race, &u, &out);
    CHECK_CONTAINS(str_text(&out), "search: race: may gain");
    CHECK_CONTAINS(str_text(&out), "best so far q4_K,threads=2,act=int8: 52.1 tok/s, from 51.1 to 53.1");
    str_clear(&out);
    linear_report(&t, race, &u, &out);
    CHECK_EQ(out.len, 0);
    linear_report(&t, won, &u, &out);
    CHECK_CONTAINS(str_text(&out), "search ended: q4_K,threads=2,act=int8 is 116 % faster");
    CHECK_CONTAINS(str_text(&out), "u: undo");
    str_clear(&out);
    linear_report(&t, won, &u, &out);
    CHECK_EQ(out.len, 0);
    linear_status(race, &out);
    CHECK_CONTAINS(str_text(&out), "search: race, 42% of the budget");
    str_free(&out);
    free(race);
    free(won);
    free(killed);
}

/* Enter uses the result of the search until the person selects another candidate: then it shows that one. */
static void another_candidate_is_shown(void **state)
{
    (void)state;
    struct snapshot *s = fixture_tune_won();
    struct ui u = { .view = VIEW_TUNE };
    struct text_page *p = calloc(1, sizeof *p);
    assert_non_null(p);
    ui_clamp(&u, s);
    CHECK(!tune_row_opened(&u, s));
    u.selected[VIEW_TUNE] = 2;
    ui_clamp(&u, s);
    CHECK(tune_row_opened(&u, s));
    CHECK(list_details(p, &u, s));
    CHECK_CONTAINS(p->line[p->count - 1].text, "q8_0,threads=2");
    snprintf(u.list[VIEW_TUNE].filter, LIST_FILTER, "hugepages");
    ui_clamp(&u, s);
    CHECK_EQ(ui_rows(&u, s), 1);
    free(p);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(keys_of_a_search),
        cmocka_unit_test(lines_say_each_change_once),
        cmocka_unit_test(another_candidate_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
