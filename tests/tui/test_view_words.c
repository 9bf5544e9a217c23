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
    s->queue[0] = (struct queued_job){ .id = 1, .kind = "bench", .line = "bench -m a.gguf" };
    s->queue[1] = (struct queued_job){ .id = 2, .kind = "tune", .line = "tune -m a.gguf --goal balanced" };
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
        s->log[i] = (struct log_line){ .unix_ms = i, .level = LOG_INFO };
        snprintf(s->log[i].text, sizeof s->log[i].text, "%s", LINES[i]);
    }
    snapshot_fold_log(s);
    CHECK_EQ(s->log_count, 4);
    CHECK_STR(s->log[0].text, LINES[0]);
    CHECK_STR(s->log[1].text, "block 3 was disturbed, as were 2 before it: others 40 %");
    CHECK_EQ(s->log[1].unix_ms, 3);
    CHECK_STR(s->log[2].text, "worse");
    CHECK_STR(s->log[3].text, LINES[5]);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disturbed_blocks_are_one_message),
        cmocka_unit_test(the_title_names_what_runs),
        cmocka_unit_test(a_search_that_waits_says_so),
        cmocka_unit_test(read_only_offers_nothing_that_it_refuses),
        cmocka_unit_test(a_long_verdict_is_not_cut_in_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
