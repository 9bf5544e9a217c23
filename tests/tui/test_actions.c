/* Proves: keys change the ui and return the right effect, without threads, a terminal or a database; an
 * impossible action returns its reason and changes nothing; what cannot be undone asks first. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/actions.h"

#include <stdlib.h>
#include <string.h>

static struct effect press(struct ui *u, const struct snapshot *s, int key)
{
    return input_key(u, s, key);
}

static void an_experiment_starts_from_its_form(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_LIVE };
    struct effect e = press(&u, s, 'b');
    CHECK_EQ(e.requests, 0);
    CHECK_EQ(u.form.kind, FORM_AB);
    e = press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND); /* the command that the form showed */
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    CHECK_STR(words_value(&e.command, "-m"), s->model_path);
    CHECK(words_have(&e.command, u.form.field[AB_B].text));
    CHECK(!words_have(&e.command, "--quality")); /* "no" in the form */
    CHECK(str_starts(line_of(&e.command), "qdyno ab -m "));
    free(s);
    arena_free(&u.texts);
}

/* A bug: the form of an advice whose check is no A/B had an empty workload, which it then refused. */
static void an_advice_without_an_ab_opens_a_valid_form(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_ADVICE };
    struct advice *a = &s->advice[0];
    CHECK_EQ(config_parse(&a->config, "default", NULL), ERR_OK);
    CHECK(str_put(a->line, sizeof a->line, "default"));
    a->workload[0] = '\0';
    s->experiment_known = false;
    CHECK_CONTAINS(command_of(DO_VERIFY, &u, s), "qdyno bench ");
    press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(u.form.kind, FORM_AB);
    CHECK_STR(u.form.field[AB_WORKLOAD].text, CONFIRM_WORKLOAD);
    CHECK_STR(u.form.field[AB_WORKLOAD].error, "");
    form_hide(&u.form);
    /* the figures of a GPU program are not checked by an A/B or a benchmark on the CPU */
    a->prediction.on_gpu = true;
    CHECK_STR(command_of(DO_VERIFY, &u, s), "");
    CHECK(press(&u, s, 'v').is_error);
    CHECK(press(&u, s, UI_KEY_ENTER).is_error);
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    free(s);
    arena_free(&u.texts);
}

static void a_running_experiment_is_stopped_and_paused(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_LIVE };
    s->write.running = false;
    struct effect e = press(&u, s, 's');
    CHECK_EQ(e.requests, REQUEST_CANCEL_COMMAND);
    e = press(&u, s, '|');
    CHECK_EQ(e.requests, REQUEST_PAUSE_EXPERIMENT);
    s->experiment.paused_since_ms = 1;
    e = press(&u, s, '|');
    CHECK_EQ(e.requests, REQUEST_CONTINUE_EXPERIMENT);
    e = press(&u, s, 'b'); /* two at once would disturb each other: this one will wait in the queue */
    CHECK(!e.is_error);
    CHECK_EQ(u.form.kind, FORM_AB);
    free(s);
    arena_free(&u.texts);
}

static void quitting_asks_while_something_runs(void **state)
{
    (void)state;
    struct snapshot *idle = fixture_idle(), *running = fixture_running();
    struct ui u = { .view = VIEW_LIVE };
    CHECK_EQ(press(&u, idle, 'q').requests, REQUEST_QUIT);
    CHECK_EQ(press(&u, running, 'q').requests, 0);
    CHECK(u.confirm_quit);
    CHECK_EQ(press(&u, running, 'n').requests, 0);
    CHECK(!u.confirm_quit);
    press(&u, running, 'q');
    CHECK_EQ(press(&u, running, 'y').requests, REQUEST_QUIT); /* which stops what runs */
    free(idle);
    free(running);
    arena_free(&u.texts);
}

static void what_cannot_be_undone_asks(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_ADVICE };
    struct effect e = press(&u, s, '=');
    CHECK_EQ(e.requests, 0);
    CHECK(str_starts(line_of(&u.question.command), "qdyno apply -m "));
    e = press(&u, s, 'x');
    CHECK(e.is_error); /* only y and n answer */
    e = press(&u, s, 'n');
    CHECK_EQ(e.requests, 0);
    CHECK(!u.question.text[0]);
    press(&u, s, '=');
    e = press(&u, s, 'y');
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK(str_starts(line_of(&e.command), "qdyno apply -m "));
    free(s);
    arena_free(&u.texts);
}

static void views_read_the_database_again(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_LIVE, .filter = "q8_0" };
    struct effect e = press(&u, s, '4');
    CHECK_EQ(u.view, VIEW_HISTORY);
    CHECK_EQ(e.job.run, job_read_history);
    CHECK_EQ(e.queue, QUEUE_DATABASE);
    e = press(&u, s, UI_KEY_ESC); /* first the filter goes, then the view */
    CHECK_EQ(e.job.run, job_read_history);
    assert_string_equal(u.filter, "");
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(u.view, VIEW_LIVE);
    CHECK(press(&u, s, 0x2603).is_error); /* a key without an action */
    free(s);
    arena_free(&u.texts);
}

/* Two ways out of a busy machine: wait, or measure beside its load. Each changes what the next start does. */
static void a_busy_machine_is_no_dead_end(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle(), *running = fixture_running();
    struct ui u = { 0 };
    press(&u, s, 'i');
    CHECK_EQ(u.when_busy, BUSY_WAIT);
    CHECK_CONTAINS(command_of(DO_NEW_AB, &u, s), "--wait-quiet 10m");
    CHECK_CONTAINS(command_of(DO_TUNE, &u, s), "--wait-quiet 10m");
    press(&u, s, 'b');
    struct effect e = press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK_CONTAINS(line_of(&e.command), "--wait-quiet 10m");
    struct words resumed = { .arena = &u.texts };
    resume_command(&resumed, &u, 7);
    CHECK_CONTAINS(line_of(&resumed), "ab --resume 7 --wait-quiet 10m");
    press(&u, s, '%');
    CHECK_EQ(u.when_busy, BUSY_LOADED);
    CHECK_CONTAINS(command_of(DO_NEW_AB, &u, s), "--estimand loaded");
    press(&u, s, '%');
    CHECK_EQ(u.when_busy, BUSY_ANYHOW);
    /* while one runs: a pause until the machine is quiet; its estimand is fixed */
    e = press(&u, running, 'i');
    CHECK(e.requests & REQUEST_PAUSE_EXPERIMENT);
    CHECK(u.until_quiet);
    CHECK(press(&u, running, '%').is_error);
    e = press(&u, running, 'i');
    CHECK(e.requests & REQUEST_CONTINUE_EXPERIMENT);
    CHECK(!u.until_quiet);
    u.read_only = true;
    CHECK(action_refusal(DO_WAIT_QUIET, &u, s)[0]);
    free(s);
    free(running);
    arena_free(&u.texts);
}

/* Keys of the load view change what runs: the load of an experiment, or a server within what it started with.
 */
static void the_running_load_changes(void **state)
{
    (void)state;
    struct snapshot *s = fixture_load(), *server = fixture_server(), *idle = fixture_idle();
    struct ui u = { .view = VIEW_LOAD };
    CHECK(press(&u, idle, '.').is_error);
    CHECK(press(&u, idle, '+').is_error);
    struct effect e = press(&u, s, '+');
    CHECK_EQ(e.requests, REQUEST_CHANGE_LOAD);
    CHECK_EQ(e.job.other_id, 1);
    CHECK_STR(e.job.text, "");
    CHECK_EQ(press(&u, s, '-').job.other_id, -1);
    e = press(&u, s, '.');
    CHECK_EQ(e.requests, REQUEST_CHANGE_LOAD);
    CHECK_STR(e.job.text, "schedule=prefill_first");
    CHECK_CONTAINS(e.message, "measured again");

    e = press(&u, server, '+');
    CHECK(e.job.run == job_change_server && e.queue == QUEUE_NETWORK && !e.requests);
    CHECK_STR(e.job.text, "max_sequences=9");
    CHECK_STR(press(&u, server, '-').job.text, "max_sequences=7");
    CHECK_STR(press(&u, server, '.').job.text, "schedule=prefill_first");
    server->server.max_sequences = 8;
    CHECK(press(&u, server, '+').is_error);
    snprintf(server->server.live.settings, sizeof server->server.live.settings,
             "max_sequences=1,schedule=dynamic");
    CHECK(press(&u, server, '-').is_error);
    CHECK_STR(press(&u, server, '.').job.text, "schedule=fcfs"); /* the first one again */

    press(&u, server, ';');
    CHECK_EQ(u.form.kind, FORM_LOAD);
    form_put(&u.form, 0, "threads=2");
    CHECK(press(&u, server, UI_KEY_ENTER).is_error);
    form_put(&u.form, 0, "evict=fifo,itl_limit=50ms");
    CHECK_STR(press(&u, server, UI_KEY_ENTER).job.text, "evict=fifo,itl_limit=50ms");
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    snprintf(server->server.error, sizeof server->server.error, "gone");
    CHECK(press(&u, server, '.').is_error);
    u.read_only = true;
    CHECK(press(&u, s, '.').is_error);
    u = (struct ui){ .view = VIEW_LIVE };
    CHECK(press(&u, s, '.').is_error); /* the person does not see it */
    free(s);
    free(server);
    free(idle);
    arena_free(&u.texts);
}

/* What a typed command stores in another database would not be found on screen. */
static void typed_commands_use_this_database(void **state)
{
    (void)state;
    static const char *const OTHER[] = { "ab default q8_0 --db other.db", "ab default q8_0 --db=other.db" };
    struct ui u = { 0 };
    for (int i = 0; i < 2; i++) {
        form_show(&u.form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ OTHER[i] });
        u.db_path = i ? "q.db" : NULL;
        CHECK(action_run_typed(&u).is_error);
        u.db_path = "other.db";
        CHECK(!action_run_typed(&u).is_error);
    }
    arena_free(&u.texts);
}

/* r asks how much time an undecided A/B gets, and continues that run. */
static void an_undecided_run_continues_with_more_time(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_INCONCLUSIVE);
    struct ui u = { .view = VIEW_AB };
    s->experiment.spec.budget_s = 90;
    struct effect e = press(&u, s, 'r');
    CHECK_EQ(e.requests, 0);
    CHECK_EQ(u.form.kind, FORM_RESUME);
    CHECK_STR(u.form.field[0].text, "2m");
    /* where the run knows what it lacks, the form proposes that: 24 more blocks of 20 s */
    u.form.kind = FORM_CLOSED;
    s->experiment.block_s = 20;
    s->experiment.complete = s->experiment.blocks;
    s->experiment.blocks_needed = 24;
    press(&u, s, 'r');
    CHECK_STR(u.form.field[0].text, "9m");
    /* a run that is not on screen is read first; what a person typed stays */
    s->forecast_of = form_hash(&u.form, s->model_path);
    s->forecast = (struct experiment_forecast){ .wanted = 3, .given = 1, .budget = "2m" };
    action_follow_forecast(&u, s);
    CHECK_STR(u.form.field[0].text, "2m");
    u.form.field[0].touched = true;
    s->forecast_of = form_hash(&u.form, s->model_path);
    snprintf(s->forecast.budget, sizeof s->forecast.budget, "7m");
    action_follow_forecast(&u, s);
    CHECK_STR(u.form.field[0].text, "2m");
    /* the same text about another run is another question */
    struct form other = u.form;
    other.about++;
    CHECK(form_hash(&other, s->model_path) != form_hash(&u.form, s->model_path));
    form_put(&u.form, 0, "12m");
    e = press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    char want[64];
    snprintf(want, sizeof want, "qdyno ab --resume %lld --budget 12m", (long long)s->experiment.run_id);
    CHECK_STR(line_of(&e.command), want);
    free(s);
    s = fixture_done(VERDICT_BETTER);
    u = (struct ui){ .view = VIEW_AB };
    CHECK(press(&u, s, 'r').is_error);
    free(s);
    arena_free(&u.texts);
}

/* A budget that cannot give a verdict is said before the start; Ctrl-T sets one that can. */
static void a_short_budget_is_said_before_the_start(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_LIVE };
    press(&u, s, 'b');
    s->checked.of = s->forecast_of = form_hash(&u.form, s->model_path);
    s->forecast = (struct experiment_forecast){ .block_s = 70,
                                                .control = 3,
                                                .wanted = 10,
                                                .given = 3,
                                                .budget_s = 300,
                                                .needed_s = 700,
                                                .budget = "12m" };
    CHECK(experiment_forecast_is_short(&s->forecast));
    struct effect e = press(&u, s, UI_KEY_ENTER);
    CHECK(e.is_error && !e.requests);
    CHECK_CONTAINS(e.message, "70 s");
    CHECK_CONTAINS(e.message, "Ctrl-T sets 12m");
    CHECK_EQ(u.form.focus, AB_BUDGET);
    press(&u, s, UI_CTRL('t'));
    CHECK_STR(u.form.field[AB_BUDGET].text, "12m");
    CHECK(!form_forecast(&u, s)); /* the forecast was about another budget */
    e = press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK_STR(words_value(&e.command, "--budget"), "12m");

    press(&u, s, 'b'); /* whoever wants the short run starts it with a second Enter */
    s->checked.of = s->forecast_of = form_hash(&u.form, s->model_path);
    CHECK(press(&u, s, UI_KEY_ENTER).is_error);
    CHECK_EQ(press(&u, s, UI_KEY_ENTER).requests, REQUEST_RUN_COMMAND);
    free(s);
    arena_free(&u.texts);
}

/* A command on screen runs in a shell as it is: with the database of the dashboard, quoted, and with the
 * flags of what runs and not of the next start. */
static void commands_run_in_a_shell(void **state)
{
    (void)state;
    char line[2048];
    struct queued_job now;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_AB, .db_path = "/my data/q.db", .when_busy = BUSY_LOADED };
    snprintf(s->experiment.spec.model, sizeof s->experiment.spec.model, "/my models/it's.gguf");
    s->experiment.spec.wait_quiet_s = 600;
    snprintf(s->experiment.arm[1].line, sizeof s->experiment.arm[1].line, "q4_0,calib=/a b.gguf");
    snprintf(line, sizeof line, "%s", command_of(DO_NEW_AB, &u, s));
    CHECK_CONTAINS(line, "-m '/my models/it'\\''s.gguf'");
    CHECK_CONTAINS(line, " --wait-quiet 600s");
    CHECK(!strstr(line, "--estimand"));
    CHECK(snapshot_running_job(s, &now));
    CHECK_EQ(now.command.n, s->command.n);
    CHECK_CONTAINS(line, " 'q4_0,calib=/a b.gguf' -w ");
    CHECK_EQ(now.run_id, s->experiment.run_id);
    u.view = VIEW_HISTORY;
    CHECK_STR(command_of_screen(&u, s), "qdyno --db '/my data/q.db' history");
    form_show(&u.form, FORM_MODEL, NULL);
    snprintf(u.form.field[0].error, sizeof u.form.field[0].error, "no such file");
    CHECK_STR(command_of_screen(&u, s), ""); /* no placeholder that a shell refuses */
    arena_free(&u.texts);
    free(s);
}

/* A field has ✓ only after the command's own check, and what that refuses does not start. */
static void the_command_checks_the_form(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_LIVE };
    const char *why;
    press(&u, s, 'b');
    CHECK_EQ(form_field_state(&u, s, AB_B, &why), FIELD_CHECKING);
    CHECK_EQ(form_field_state(&u, s, AB_WORKLOAD, &why), FIELD_GOOD); /* needs no model */
    s->checked.of = form_hash(&u.form, s->model_path);
    CHECK_EQ(form_field_state(&u, s, AB_B, &why), FIELD_GOOD);
    snprintf(s->checked.refusal[AB_B], sizeof s->checked.refusal[AB_B], "arm B: already quantized");
    CHECK_EQ(form_field_state(&u, s, AB_B, &why), FIELD_REFUSED);
    struct effect e = press(&u, s, UI_KEY_ENTER);
    CHECK(e.is_error && !e.requests);
    CHECK_CONTAINS(e.message, "already quantized");
    CHECK_EQ(u.form.kind, FORM_AB);
    CHECK_EQ(u.form.focus, AB_B);
    form_put(&u.form, AB_B, "threads=1"); /* the check was about another text */
    CHECK_EQ(form_field_state(&u, s, AB_B, &why), FIELD_CHECKING);
    CHECK_EQ(press(&u, s, UI_KEY_ENTER).requests, REQUEST_RUN_COMMAND);
    free(s);
    arena_free(&u.texts);
}

/* A file that is quantized already takes no other format, so the form proposes what it can become. */
static void the_proposed_recipe_is_one_that_works(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_MODEL };
    recipe_list_make(&s->recipes, NULL);
    press(&u, s, 'f');
    CHECK_EQ(u.form.kind, FORM_QUANTIZE);
    CHECK_STR(u.form.field[0].text, "q4_K");
    form_hide(&u.form);
    for (int i = 0; i < s->recipes.count; i++)
        if (strcmp(s->recipes.row[i].name, "f16") != 0)
            snprintf(s->recipes.row[i].refusal, sizeof s->recipes.row[i].refusal, "already quantized");
    press(&u, s, 'f');
    CHECK_STR(u.form.field[0].text, "f16");
    CHECK_CONTAINS(u.form.field[2].text, "f16.gguf");
    free(s);
    arena_free(&u.texts);
}

/* A path of `bytes` bytes below `before`. */
static const char *long_path(char *buf, const char *before, int bytes)
{
    int n = sprintf(buf, "%s", before);
    while (n < bytes) {
        buf[n] = n % 200 == 199 ? '/' : 'p';
        n++;
    }
    buf[n] = '\0';
    return buf;
}

/* What does not fit a struct of fixed size is refused, and never cut. */
static void a_long_text_is_whole_or_refused(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_MODEL };
    char more[FORM_TEXT];
    form_show(&u.form, FORM_MODEL, (const char *const[FORM_FIELDS]){ long_path(more, "/", MODEL_PATH) });
    struct effect e = action_form_accept(&u, s);
    CHECK(e.is_error && !e.job.run);
    form_show(&u.form, FORM_PUSH, (const char *const[FORM_FIELDS]){ long_path(more, "http://h/", 900) });
    e = action_form_accept(&u, s);
    CHECK_STR(words_value(&e.command, "--url"), more);
    CHECK_STR(u.push_url, more); /* the next push goes to the same address */
    form_show(&u.form, FORM_PUSH, (const char *const[FORM_FIELDS]){ "http://me:secret@h/" });
    e = action_push_typed(&u, s); /* the command of a process can be read by others: no secret is in it */
    CHECK(e.is_error && !e.job.run);
    CHECK_LACKS(e.message, "secret");
    CHECK_LACKS(command_of(DO_PUSH, &u, s), "secret");
    free(s);
    arena_free(&u.texts);
}

static void every_action_of_the_key_table_is_handled(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        struct ui u = { .view = VIEW_HISTORY };
        input_action(&u, s, &KEYS[i]); /* crashes on a row without a function */
    }
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_experiment_starts_from_its_form),
        cmocka_unit_test(an_advice_without_an_ab_opens_a_valid_form),
        cmocka_unit_test(a_running_experiment_is_stopped_and_paused),
        cmocka_unit_test(quitting_asks_while_something_runs),
        cmocka_unit_test(what_cannot_be_undone_asks),
        cmocka_unit_test(views_read_the_database_again),
        cmocka_unit_test(a_busy_machine_is_no_dead_end),
        cmocka_unit_test(the_running_load_changes),
        cmocka_unit_test(typed_commands_use_this_database),
        cmocka_unit_test(an_undecided_run_continues_with_more_time),
        cmocka_unit_test(a_short_budget_is_said_before_the_start),
        cmocka_unit_test(commands_run_in_a_shell),
        cmocka_unit_test(the_command_checks_the_form),
        cmocka_unit_test(the_proposed_recipe_is_one_that_works),
        cmocka_unit_test(a_long_text_is_whole_or_refused),
        cmocka_unit_test(every_action_of_the_key_table_is_handled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
