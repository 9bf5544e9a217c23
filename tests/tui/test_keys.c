/* Proves: no key is bound twice; every action has exactly one row, and the help lists it; refusals and
 * equivalent commands use the values on screen. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "tests/tui/fixture.h"
#include "tui/cli/cli.h"

#include <stdlib.h>
#include <string.h>

static void no_double_bindings(void **state)
{
    (void)state;
    for (size_t i = 0; i < KEY_COUNT; i++)
        for (size_t a = 0; a < COUNT_OF(KEYS[i].key); a++)
            for (size_t j = 0; j < KEY_COUNT; j++)
                for (size_t b = 0; b < COUNT_OF(KEYS[j].key); b++)
                    if ((i != j || a != b) && KEYS[i].key[a] && KEYS[i].key[a] == KEYS[j].key[b])
                        fail_msg("'%s' and '%s' share key %d", KEYS[i].name, KEYS[j].name, KEYS[i].key[a]);
}

static void every_action_has_one_row(void **state)
{
    (void)state;
    int rows[ACTION_COUNT] = { 0 };
    for (size_t i = 0; i < KEY_COUNT; i++) {
        rows[KEYS[i].action]++;
        CHECK(KEYS[i].help);
        CHECK(*KEYS[i].help);
        CHECK(KEYS[i].name);
        CHECK(*KEYS[i].name);
        CHECK(KEYS[i].key[0]);
        CHECK_EQ(key_find(KEYS[i].key[0]), &KEYS[i]);
        CHECK_EQ(key_of_action(KEYS[i].action), &KEYS[i]);
    }
    CHECK_EQ(rows[DO_NOTHING], 0);
    for (int a = DO_NOTHING + 1; a < ACTION_COUNT; a++) CHECK_EQ(rows[a], 1);
    CHECK(!key_find(0));
    CHECK(!key_find('$'));
}

/* A key that says "$ qdyno X" must not teach a command that is not there. */
static void commands_exist(void **state)
{
    (void)state;
    for (size_t i = 0; i < KEY_COUNT; i++)
        for (const char *p = KEYS[i].command; p && (p = strstr(p, "qdyno ")); p += strlen("qdyno ")) {
            char name[32];
            const char *word = p + strlen("qdyno ");
            snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " ;"), word);
            if (!command_find(name)) fail_msg("key '%s' speaks of a command '%s'", KEYS[i].name, name);
        }
}

static const char *refusal(enum action a, const struct ui *u, const struct snapshot *s)
{
    return action_refusal(a, u, s);
}

static void refusals(void **state)
{
    (void)state;
    struct ui u = { 0 };
    struct snapshot *empty = fixture_empty(), *idle = fixture_idle(), *running = fixture_running(),
                    *done = fixture_done(VERDICT_BETTER);
    assert_non_null(strstr(refusal(DO_NEW_AB, &u, empty), "no model"));
    assert_string_equal(refusal(DO_NEW_AB, &u, idle), "");
    assert_string_equal(refusal(DO_NEW_AB, &u, running), ""); /* it waits in the queue */
    running->queued = QUEUED_JOBS;
    assert_non_null(strstr(refusal(DO_NEW_AB, &u, running), "the queue is full"));
    running->queued = 0;
    assert_string_equal(refusal(DO_STOP, &u, running), "");
    assert_string_not_equal(refusal(DO_STOP, &u, done), "");
    assert_string_not_equal(refusal(DO_PUSH, &u, idle), "");
    assert_string_not_equal(refusal(DO_PUSH, &u, running), "");
    assert_string_equal(refusal(DO_PUSH, &u, done), "");
    assert_string_not_equal(refusal(DO_RESUME, &u, done), "");
    done->experiment.verdict = VERDICT_INCONCLUSIVE; /* it continues with more time */
    assert_string_equal(refusal(DO_RESUME, &u, done), "");
    done->experiment.verdict = VERDICT_BETTER;
    running->ceilings_known = false;
    CHECK_STR(refusal(DO_ADVISE, &u, running), ""); /* measures the machine: it waits in the queue */
    CHECK_STR(jobs_wait_for(running), "the running experiment");
    u.view = VIEW_HISTORY;
    u.selected[VIEW_HISTORY] = 4; /* run 8, stopped */
    assert_string_equal(refusal(DO_RESUME, &u, done), "");
    u.selected[VIEW_HISTORY] = 3; /* run 9 is a bench */
    assert_string_not_equal(refusal(DO_RESUME, &u, done), "");
    assert_string_equal(refusal(DO_OPEN, &u, done), ""); /* shown as text */
    done->command = fixture_words("quantize");
    assert_non_null(strstr(refusal(DO_OPEN, &u, done), "s stops it"));
    assert_string_equal(refusal(DO_QUANTIZE, &u, done), "");
    assert_non_null(strstr(refusal(DO_UNDO, &u, done), "s stops it"));
    done->command.n = 0;
    u.selected[VIEW_HISTORY] = 1;
    assert_string_equal(refusal(DO_OPEN, &u, done), "");
    u.read_only = true;
    assert_non_null(strstr(refusal(DO_NEW_AB, &u, idle), "read-only"));
    assert_non_null(strstr(refusal(DO_PUSH, &u, done), "read-only"));
    idle->ceilings_known = false; /* advice would measure the machine */
    assert_non_null(strstr(refusal(DO_ADVISE, &u, idle), "read-only"));
    idle->ceilings_known = true;
    assert_string_equal(refusal(DO_ADVISE, &u, idle), "");
    free(empty);
    free(idle);
    free(running);
    free(done);
}

static void commands(void **state)
{
    (void)state;
    struct ui u = { .push_url = "http://127.0.0.1:9091" };
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    assert_string_equal(command_of(DO_NEW_AB, &u, s),
                        "qdyno ab -m /models/stories15M-f16.gguf q8_0,threads=2 q4_0,threads=2 -w tg128");
    /* what the person asked for is part of it */
    snprintf(s->experiment.spec.quality_file, sizeof s->experiment.spec.quality_file, "/t/my text.txt");
    s->experiment.spec.budget_s = 40;
    s->experiment.spec.margin = 0.025;
    assert_string_equal(command_of(DO_NEW_AB, &u, s),
                        "qdyno ab -m /models/stories15M-f16.gguf q8_0,threads=2 q4_0,threads=2 -w tg128 "
                        "'--quality=/t/my text.txt' --margin 2.5% --budget 40s");
    struct words experts = { .arena = &u.texts };
    experts_command(&experts, s);
    CHECK_STR(line_of(&experts), "qdyno info -m /models/stories15M-f16.gguf --experts TEXT");
    arena_free(&u.texts);
    u.view = VIEW_MODEL;
    u.pane[VIEW_MODEL] = MODEL_MEMORY + 1;
    assert_string_equal(command_of(DO_VIEW_MODEL, &u, s),
                        "qdyno fit -m /models/stories15M-f16.gguf -c 512,2048 -C kv=q8_0");
    u.view = VIEW_LIVE;
    assert_string_equal(command_of(DO_PUSH, &u, s), "qdyno push 12 --url http://127.0.0.1:9091");
    u.view = VIEW_HISTORY;
    u.selected[VIEW_HISTORY] = 4;
    assert_string_equal(command_of(DO_RESUME, &u, s), "qdyno ab --resume 8");
    assert_string_equal(command_of(DO_OPEN, &u, s), "qdyno show 8");
    /* Characters special to a shell are quoted. */
    snprintf(s->model_path, sizeof s->model_path, "/my models/it's;rm.gguf");
    assert_string_equal(command_of(DO_ADVISE, &u, s), "qdyno advise -m '/my models/it'\\''s;rm.gguf'");
    free(s);
}

static void selection_stays_in_range(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    for (int view = 0; view < VIEW_COUNT; view++) {
        struct ui u = { .view = (enum view)view };
        u.selected[view] = 1000000;
        ui_clamp(&u, s);
        CHECK_EQ(u.selected[view], MAX(ui_rows(&u, s) - 1, 0));
        u.selected[view] = -5;
        ui_clamp(&u, s);
        CHECK_EQ(u.selected[view], 0);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_double_bindings), cmocka_unit_test(every_action_has_one_row),
        cmocka_unit_test(refusals),           cmocka_unit_test(commands),
        cmocka_unit_test(commands_exist),     cmocka_unit_test(selection_stays_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
