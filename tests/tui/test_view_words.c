/* Proves: the screen says what is true now: what runs, what waits, what can be done, and that a text goes on.
 */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "tests/tui/fixture.h"
#include "tui/views/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *draw(const struct snapshot *s, const struct ui *u, int w, int h, enum glyph_level level)
{
    struct grid g;
    struct err why;
    struct str text = { 0 };
    CHECK_OK(grid_open(&g, w, h, level, &why));
    view_draw(&g, s, u);
    grid_text(&g, &text);
    grid_close(&g);
    return str_take(&text);
}

/* While quality is measured no block runs, and a time that has passed is unknown, not 0:00. */
static void the_title_names_what_runs(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_LIVE };
    s->experiment.phase = PHASE_QUALITY;
    s->experiment.block = -1;
    s->experiment.cell_done = 10;
    s->experiment.cell_of = 16;
    s->experiment.eta_s = NAN;
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "● measuring quality 10/16");
    CHECK(!strstr(text, "block 1 "));
    CHECK(!strstr(text, "ETA"));
    free(text);
    u.view = VIEW_AB;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "next: the blocks are over");
    free(text);
    free(s);
}

/* A search that was started while an A/B runs is in the queue: its view says so, and s is not offered,
 * because it would stop the A/B. */
static void a_search_that_waits_says_so(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_TUNE };
    s->queued = 2;
    s->queue[0] = (struct queued_job){ .id = 1, .command = fixture_words("bench -m a.gguf") };
    s->queue[1] = (struct queued_job){ .id = 2, .command = fixture_words("tune -m a.gguf --goal balanced") };
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "The search waits in the queue as number 2, until the running experiment has ended");
    CHECK(!strstr(text, "good enough, stop"));
    CHECK_CONTAINS(text, "& queue");
    free(text);
    s->queued = 0;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "t finds the best setting");
    free(text);
    free(s);
}

/* What --read-only never allows is not offered. */
static void read_only_offers_nothing_that_it_refuses(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_LIVE };
    char *text = draw(s, &u, 200, 60, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "f quantize");
    CHECK_CONTAINS(text, "t tune");
    free(text);
    u.read_only = true;
    text = draw(s, &u, 200, 60, GLYPHS_BRAILLE);
    CHECK(!strstr(text, "f quantize"));
    CHECK(!strstr(text, "t tune"));
    CHECK(!strstr(text, "find the best setting"));
    free(text);
    s->busy.is_busy = true;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "busy: other programs use");
    CHECK(!strstr(text, "measure under load"));
    free(text);
    free(s);
}

/* A text that does not fit says what shows the rest of it; the next step is always there. */
static void a_long_verdict_is_not_cut_in_silence(void **state)
{
    (void)state;
    struct snapshot *s = fixture_arms();
    struct ui u = { .view = VIEW_AB };
    char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "z: all");
    CHECK_CONTAINS(text, "next: ");
    free(text);
    u.pane[VIEW_AB] = AB_VERDICT + 1;
    u.zoomed = true;
    text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK(!strstr(text, "z: all"));
    free(text);
    free(s);
}

static void disturbed_blocks_are_one_message(void **state)
{
    (void)state;
    struct snapshot *s = fixture_empty();
    static const char *const LINES[] = { "arm A: 3 warm-up runs",
                                         "block 1 was disturbed: paging",
                                         "block 2 was disturbed: steal",
                                         "block 3 was disturbed: others 40 %",
                                         "worse",
                                         "block 9 was disturbed: paging" };
    s->log_count = COUNT_OF(LINES);
    for (int i = 0; i < s->log_count; i++) {
        s->log[i] = (struct log_line){ .unix_ms = i,
                                       .level = LOG_INFO,
                                       .disturbed = strstr(LINES[i], "block") };
        snprintf(s->log[i].text, sizeof s->log[i].text, "%s", LINES[i]);
    }
    snapshot_fold_log(s);
    CHECK_EQ(s->log_count, 4);
    CHECK_STR(s->log[0].text, LINES[0]);
    CHECK_STR(s->log[1].text, "block 3 was disturbed: others 40 % (as were 2 before it)");
    CHECK_EQ(s->log[1].unix_ms, 3);
    CHECK_STR(s->log[2].text, "worse");
    CHECK_STR(s->log[3].text, LINES[5]);
    free(s);
}

/* The view of a server is about the server, the other views are about this machine. */
static void the_title_names_the_server(void **state)
{
    (void)state;
    struct snapshot *s = fixture_server();
    struct ui u = { .view = VIEW_LOAD };
    char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, " qdyno  server 127.0.0.1:8080  stories15M  ");
    CHECK_CONTAINS(text, "● 8 running, 3 waiting");
    free(text);
    s->server.live.running = s->server.live.waiting = 0;
    text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "○ idle");
    free(text);
    snprintf(s->server.status, sizeof s->server.status, "draining");
    text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "● draining");
    free(text);
    u.view = VIEW_MODEL;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "stories15M-f16.gguf");
    CHECK(!strstr(text, "server 127"));
    free(text);
    free(s);
}

/* A load over HTTP: its title names the server, what a client cannot see is said so, and the keys that change
 * the server are refused. */
static void a_load_over_http_says_what_it_cannot_know(void **state)
{
    (void)state;
    struct err why;
    struct snapshot *s = fixture_load();
    struct ui u = { .view = VIEW_LOAD };
    struct experiment_state *x = &s->experiment;
    x->live.settings[0] = '\0';
    x->live.steps = 0;
    x->occupancy.arm = -1;
    x->running_arm = 1;
    CHECK_OK(config_parse(&x->spec.config[1], "engine=openai,url=http://127.0.0.1:8080,model=m", &why));
    snprintf(x->cell_phase, sizeof x->cell_phase, "requests");
    char *text = draw(s, &u, 200, 60, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "Load of B: 1.25 times as fast to http://127.0.0.1:8080");
    CHECK_CONTAINS(text, "n/a: this load is sent over HTTP, and its clients do not see the cache");
    CHECK(!strstr(text, "no experiment is running"));
    CHECK(!strstr(text, "next schedule"));
    CHECK_CONTAINS(text, "$ qdyno ab -m ");
    free(text);
    CHECK_CONTAINS(action_refusal(DO_SCHEDULE, &u, s), "sent over HTTP");
    CHECK_CONTAINS(action_refusal(DO_LOAD_SETTING, &u, s), "sent over HTTP");
    CHECK_STR(action_refusal(DO_EARLIER, &u, s), "");
    u.view = VIEW_AB;
    text = draw(s, &u, 200, 60, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "requests/s"); /* not tokens */
    free(text);
    free(s);
    arena_free(&u.texts);
}

/* Long config lines that begin alike show where they differ. */
static void arms_show_where_they_differ(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_AB };
    for (int i = 0; i < 2; i++) s->experiment.arm[i].ready = true; /* "loaded" stands beside the line */
    for (int i = 0; i < 2; i++)
        snprintf(s->experiment.arm[i].line, sizeof s->experiment.arm[i].line,
                 "model=SmolLM2-135M-Instruct.Q4_1,engine=openai,url=http://127.0.0.1:808%d", i);
    s->advice[0].prediction.plan.ctx = 4096;
    u.view = VIEW_ADVICE; /* a search shows another memory of the same configuration */
    char *advice = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(advice, "memory: with 4096 tokens");
    free(advice);
    for (int v = 0; v < 2; v++) {
        u.view = v ? VIEW_AB : VIEW_LIVE;
        char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
        CHECK_CONTAINS(text, ":8080");
        CHECK_CONTAINS(text, ":8081");
        free(text);
    }
    s->experiment_known = s->experiment_live = false;
    s->load.lines = 2;
    for (int i = 0; i < 2; i++) {
        struct stored_load *l = &s->load.line[i];
        *l = (struct stored_load){ .requests = 10 };
        snprintf(l->workload, sizeof l->workload, "load:rate=%d,in=64,out=64", 4 + i);
        snprintf(l->config, sizeof l->config, "threads=2,kv=q8_0,schedule=prefill_first,numa=o%d", i);
    }
    u.view = VIEW_LOAD;
    char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "numa=o0");
    CHECK_CONTAINS(text, "numa=o1");
    CHECK_CONTAINS(text, "=4,…");
    CHECK_CONTAINS(text, "=5,…");
    free(text);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disturbed_blocks_are_one_message),
        cmocka_unit_test(the_title_names_what_runs),
        cmocka_unit_test(the_title_names_the_server),
        cmocka_unit_test(a_load_over_http_says_what_it_cannot_know),
        cmocka_unit_test(arms_show_where_they_differ),
        cmocka_unit_test(a_search_that_waits_says_so),
        cmocka_unit_test(read_only_offers_nothing_that_it_refuses),
        cmocka_unit_test(a_long_verdict_is_not_cut_in_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
