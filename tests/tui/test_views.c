/* Proves: each view draws a fixed snapshot into exactly the text of tests/golden/, at three sizes; marks and
 * words carry every state at every glyph level; random weights are named wherever quality is shown.
 *
 * After an intended change: QDYNO_UPDATE_GOLDEN=1 ./test_views rewrites the files; look at the difference. */
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

static void check_golden(const char *name, const char *got)
{
    char path[600];
    struct err why;
    snprintf(path, sizeof path, "%s/tests/golden/%s.txt", TEST_SOURCE_DIR, name);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CHECK(f);
        CHECK_GE(fputs(got, f), 0);
        CHECK_EQ(fclose(f), 0);
        return;
    }
    char *want = NULL;
    if (file_read(&want, NULL, path, 1 << 20, &why))
        fail_msg("%s (QDYNO_UPDATE_GOLDEN=1 writes it)", why.message);
    if (strcmp(want, got)) fail_msg("%s differs; drawn now:\n%s", path, got);
    free(want);
}

struct golden_case {
    const char *name;
    struct snapshot *(*make)(void);
    struct ui ui;
};

static struct snapshot *make_better(void)
{
    return fixture_done(VERDICT_BETTER);
}
static struct snapshot *make_equal(void)
{
    return fixture_done(VERDICT_EQUIVALENT);
}

/* On a busy machine A differed from itself: no verdict, and the screen says what to do. */
static struct snapshot *make_invalid(void)
{
    struct snapshot *s = fixture_done(VERDICT_INVALID);
    s->busy = (struct busy_state){ .is_busy = true, .others = 0.6 };
    snprintf(s->experiment.reason, sizeof s->experiment.reason,
             "the control failed: A against itself differs by +12.00 %% (95 %% interval +4.00 to +21.00 %%)");
    return s;
}

static struct snapshot *make_random(void)
{
    struct snapshot *s = fixture_done(VERDICT_WORSE);
    s->model.random_weights = s->experiment.random_weights = true;
    return s;
}

static struct snapshot *make_busy(void)
{
    struct snapshot *s = fixture_running();
    s->busy = (struct busy_state){ .is_busy = true,
                                   .others = 0.31,
                                   .steal = 0,
                                   .by = "cc1 22 %, ld 6 %, python3 3 %",
                                   .by_ms = s->unix_ms - 3000 };
    return s;
}

/* A model with experts of which nothing is known, and with what a text used. */
static struct snapshot *make_experts(void)
{
    struct snapshot *s = fixture_running();
    s->summary.experts = 128;
    s->summary.experts_used = 8;
    return s;
}

static struct snapshot *make_hot_experts(void)
{
    struct snapshot *s = make_experts();
    struct stored_experts *x = &s->summary.choices;
    *x = (struct stored_experts){ .text = "own.txt", .tokens = 40960, .effective_mean = 61.27, .layers = 2 };
    x->layer[0] = (struct stored_expert_layer){
        17, { .effective = 12.04, .never = 31, .hottest = { 5, 77, 126 }, .share = { 0.081, 0.06, 0.044 } }
    };
    x->layer[1] = (struct stored_expert_layer){
        3, { .effective = 40.5, .never = 0, .hottest = { 101, 9, -1 }, .share = { 0.031, 0.03 } }
    };
    return s;
}

static const struct golden_case CASES[] = {
    { "live", fixture_running, { .view = VIEW_LIVE } },
    { "live_first_frame", fixture_empty, { .view = VIEW_LIVE } },
    { "live_idle", fixture_idle, { .view = VIEW_LIVE } },
    { "live_home", fixture_home, { .view = VIEW_LIVE } },
    { "live_stored", fixture_stored, { .view = VIEW_LIVE } },
    { "jobs", fixture_stored, { .view = VIEW_JOBS } },
    { "live_gpu", fixture_gpu, { .view = VIEW_LIVE } },
    { "live_failed", fixture_failed, { .view = VIEW_LIVE } },
    { "live_random_weights", make_random, { .view = VIEW_LIVE } },
    { "ab", fixture_running, { .view = VIEW_AB } },
    { "ab_better", make_better, { .view = VIEW_AB } },
    { "ab_equivalent", make_equal, { .view = VIEW_AB } },
    { "ab_ranks", fixture_ranks, { .view = VIEW_AB } },
    { "ab_arms", fixture_arms, { .view = VIEW_AB } },
    { "ab_arms_last", fixture_arms, { .view = VIEW_AB, .selected = { [VIEW_AB] = 3 } } },
    { "live_arms", fixture_arms, { .view = VIEW_LIVE } },
    { "advice", fixture_running, { .view = VIEW_ADVICE } },
    { "history", fixture_running, { .view = VIEW_HISTORY, .selected = { [VIEW_HISTORY] = 4 } } },
    { "model", fixture_running, { .view = VIEW_MODEL, .selected = { [VIEW_MODEL] = 1 } } },
    { "model_experts", make_experts, { .view = VIEW_MODEL } },
    { "model_hot_experts", make_hot_experts, { .view = VIEW_MODEL } },
    { "quality", fixture_running, { .view = VIEW_QUALITY } },
    { "load", fixture_running, { .view = VIEW_LOAD } },
    { "load_running", fixture_load, { .view = VIEW_LOAD } },
    { "load_server", fixture_server, { .view = VIEW_LOAD } },
    { "load_server_gone", fixture_server_gone, { .view = VIEW_LOAD } },
    { "settings",
      fixture_running,
      { .view = VIEW_SETTINGS, .selected = { [VIEW_SETTINGS] = KNOB_THREADS } } },
    { "log", fixture_running, { .view = VIEW_LOG } },
    { "write", fixture_running, { .view = VIEW_WRITE } },
    { "write_first", fixture_idle, { .view = VIEW_WRITE } },
    { "tune", fixture_tune, { .view = VIEW_TUNE } },
    { "tune_confirm", fixture_tune_confirm, { .view = VIEW_TUNE } },
    { "tune_won", fixture_tune_won, { .view = VIEW_TUNE } },
    { "tune_stopped", fixture_tune_stopped, { .view = VIEW_TUNE } },
    { "tune_first", fixture_tune_killed, { .view = VIEW_TUNE } },
    { "live_tune", fixture_tune, { .view = VIEW_LIVE } },
    { "live_tune_killed", fixture_tune_killed, { .view = VIEW_LIVE } },
    { "live_log_alone", fixture_running, { .view = VIEW_LIVE, .pane = { [VIEW_LIVE] = 5 }, .zoomed = true } },
    { "busy", make_busy, { .view = VIEW_AB } },
    { "help", fixture_running, { .view = VIEW_LIVE, .help = true } },
};

static void golden(void **state)
{
    (void)state;
    static const int SIZES[][2] = { { 80, 24 }, { 120, 36 }, { 200, 60 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        for (size_t z = 0; z < COUNT_OF(SIZES); z++) {
            char name[64];
            struct snapshot *s = CASES[i].make();
            char *text = draw(s, &CASES[i].ui, SIZES[z][0], SIZES[z][1], GLYPHS_BRAILLE);
            snprintf(name, sizeof name, "tui_%s_%dx%d", CASES[i].name, SIZES[z][0], SIZES[z][1]);
            check_golden(name, text);
            free(text);
            free(s);
        }
}

/* Screens with room for one pane, and for one column of panes. */
static void golden_small(void **state)
{
    (void)state;
    static const struct {
        int w, h;
        struct golden_case shown;
    } SMALL[] = {
        { 60, 16, { "live", fixture_running, { .view = VIEW_LIVE } } },
        { 60, 16, { "live_machine", fixture_running, { .view = VIEW_LIVE, .pane = { [VIEW_LIVE] = 1 } } } },
        { 60, 16, { "live_idle", fixture_idle, { .view = VIEW_LIVE } } },
        { 60, 16, { "ab_better", make_better, { .view = VIEW_AB } } },
        { 60, 16, { "ab_details", make_better, { .view = VIEW_AB, .details = true } } },
        { 60, 16, { "ab_invalid", make_invalid, { .view = VIEW_AB } } },
        { 80, 24, { "ab_invalid", make_invalid, { .view = VIEW_AB } } },
        { 60, 16, { "ab_arms", fixture_arms, { .view = VIEW_AB, .pane = { [VIEW_AB] = 1 } } } },
        { 60, 16, { "ab_ranks", fixture_ranks, { .view = VIEW_AB, .pane = { [VIEW_AB] = 4 } } } },
        { 60, 36, { "ab_ranks", fixture_ranks, { .view = VIEW_AB } } },
        { 60, 16, { "history", fixture_running, { .view = VIEW_HISTORY } } },
        { 60, 16, { "quality", fixture_running, { .view = VIEW_QUALITY } } },
        { 60, 16, { "log", fixture_running, { .view = VIEW_LOG } } },
        { 60, 16, { "tune", fixture_tune, { .view = VIEW_TUNE } } },
        { 60, 16, { "tune_won", fixture_tune_won, { .view = VIEW_TUNE } } },
        { 60, 16, { "help", fixture_running, { .view = VIEW_LIVE, .help = true } } },
        { 70, 20, { "live", fixture_running, { .view = VIEW_LIVE } } },
        { 70, 20, { "tune_won", fixture_tune_won, { .view = VIEW_TUNE, .pane = { [VIEW_TUNE] = 3 } } } },
        { 60, 36, { "live", fixture_running, { .view = VIEW_LIVE } } },
        { 60, 36, { "load", fixture_running, { .view = VIEW_LOAD } } },
        { 60, 36, { "load_server", fixture_server, { .view = VIEW_LOAD } } },
        { 60, 36, { "write", fixture_running, { .view = VIEW_WRITE } } },
    };
    for (size_t i = 0; i < COUNT_OF(SMALL); i++) {
        char name[64];
        struct snapshot *s = SMALL[i].shown.make();
        char *text = draw(s, &SMALL[i].shown.ui, SMALL[i].w, SMALL[i].h, GLYPHS_BRAILLE);
        snprintf(name, sizeof name, "tui_%s_%dx%d", SMALL[i].shown.name, SMALL[i].w, SMALL[i].h);
        check_golden(name, text);
        free(text);
        free(s);
    }
}

static void golden_form_and_ascii(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { 0 };
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0,tread=2", "tg64" });
    u.form.focus = 1;
    u.form.field[1].touched = true;
    s->checked.of = form_hash(&u.form, s->model_path);
    char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    check_golden("tui_form_80x24", text);
    free(text);
    free(s);
    s = fixture_running();
    text = draw(s, &(struct ui){ 0 }, 80, 24, GLYPHS_ASCII);
    for (const char *p = text; *p; p++) CHECK_LT((unsigned char)*p, 0x7f);
    check_golden("tui_live_ascii_80x24", text);
    free(text);
    free(s);
}

/* Each verdict is shown by a word and, in ASCII too, by a mark of its own. */
static void verdicts_without_colour(void **state)
{
    (void)state;
    static const struct {
        enum verdict verdict;
        const char *braille, *ascii;
    } WANT[] = { { VERDICT_BETTER, "▲ better", "^ better" },
                 { VERDICT_WORSE, "▼ worse", "v worse" },
                 { VERDICT_EQUIVALENT, "≈ equivalent", "= equivalent" },
                 { VERDICT_NEGLIGIBLE, "≈ negligible", "= negligible" },
                 { VERDICT_INCONCLUSIVE, "? inconclusive", "? inconclusive" },
                 { VERDICT_INVALID, "✕ invalid", "x invalid" } };
    for (size_t i = 0; i < COUNT_OF(WANT); i++)
        for (int view = VIEW_LIVE; view <= VIEW_AB; view++) {
            struct snapshot *s = fixture_done(WANT[i].verdict);
            struct ui u = { .view = (enum view)view };
            char *pretty = draw(s, &u, 80, 24, GLYPHS_BRAILLE), *plain = draw(s, &u, 80, 24, GLYPHS_ASCII);
            if (!strstr(pretty, WANT[i].braille) || !strstr(plain, WANT[i].ascii))
                fail_msg("verdict %s is not shown on view %d:\n%s%s", WANT[i].ascii, view, pretty, plain);
            free(pretty);
            free(plain);
            free(s);
        }
}

/* The pane of ranks is there while an arm has ranks, and no key leads to it otherwise. What a rank's time was
 * can be read without colours. */
static void ranks_are_shown_when_there_are_any(void **state)
{
    (void)state;
    const struct ui u = { .view = VIEW_AB };
    struct snapshot *s = fixture_running();
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_LACKS(text, "Ranks");
    CHECK_EQ(pane_count(VIEW_AB, s), AB_RANKS);
    free(text);
    free(s);
    s = fixture_ranks();
    text = draw(s, &u, 120, 36, GLYPHS_ASCII);
    CHECK_CONTAINS(text, "Ranks");
    CHECK_CONTAINS(text, "pp 2/2");
    CHECK_CONTAINS(text, "#comp +wait :exch");
    CHECK_EQ(pane_count(VIEW_AB, s), AB_PANES);
    free(text);
    const struct ui alone = { .view = VIEW_AB, .zoomed = true, .pane = { [VIEW_AB] = AB_RANKS + 1 } };
    text = draw(s, &alone, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "node1 41W 63°C 93% busy");
    CHECK_CONTAINS(text, "node2 25% busy"); /* a machine without meter and thermometer */
    free(text);
    free(s);
}

static void random_weights_are_named(void **state)
{
    (void)state;
    for (int view = 0; view <= VIEW_QUALITY; view++) {
        struct snapshot *s = make_random();
        struct ui u = { .view = (enum view)view };
        char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
        if (!strstr(text, RANDOM_WEIGHTS_TEXT)) fail_msg("view %d hides the random weights:\n%s", view, text);
        free(text);
        s->model.random_weights = s->experiment.random_weights = false;
        text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
        CHECK_LACKS(text, RANDOM_WEIGHTS_TEXT);
        free(text);
        free(s);
    }
}

/* A loss that was measured counts for an advice only when both give the same answers: threads change nothing,
 * the type of the cache does. */
/* The chart of the advice view draws measured losses only; the file itself loses nothing. */
static void loss_of_the_same_answers(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_ADVICE };
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "left edge: no loss"); /* threads=2 gives the answers of the file */
    CHECK_CONTAINS(text, "row memory");
    CHECK_CONTAINS(text, "  1   700M");
    CHECK_CONTAINS(text, "  3  2.15G");
    free(text);
    s->advice[1].kld = NAN;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "loss of 1 not measured");
    CHECK_CONTAINS(text, "Speed by loss on held-out.txt");
    free(text);
    s->advice[1].foreign = true;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "not drawn: 1 measured on another text");
    free(text);
    s->advice[0].kld = NAN; /* nothing to draw: the chart of memory takes the place */
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "Decode speed by memory");
    free(text);
    free(s);
}

/* Quality cannot be measured on a text that is gone: the view says so in place of the figures of a row. */
static void the_text_is_missing(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_QUALITY };
    snprintf(s->quality.trouble, sizeof s->quality.trouble, "mine.txt cannot be read");
    char *text = draw(s, &u, 100, 30, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "mine.txt cannot be read");
    free(text);
    s->quality.count = 0;
    text = draw(s, &u, 100, 30, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "mine.txt cannot be read");
    free(text);
    free(s);
}

/* Nothing is measured on the first frame: no number may stand where "n/a" belongs. */
static void unknown_is_not_zero(void **state)
{
    (void)state;
    struct snapshot *s = fixture_empty();
    char *text = draw(s, &(struct ui){ 0 }, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "n/a");
    for (const char *p = text; (p = strpbrk(p, "0123456789")); p++) {
        const char *line = p;
        while (line > text && line[-1] != '\n') line--;
        if (!strncmp(line, "│ CPU", strlen("│ CPU")) || !strncmp(line, "│ MEM", strlen("│ MEM")))
            if (p - line < 40) fail_msg("a number among the unknown:\n%s", text);
    }
    free(text);
    free(s);
}

static void too_small(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    char *text = draw(s, &(struct ui){ 0 }, 59, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "qdyno needs 60x16 and has 59x24; q quits");
    free(text);
    text = draw(s, &(struct ui){ 0 }, 60, 1, GLYPHS_BRAILLE);
    assert_string_equal(text, "qdyno needs 60x16 and has 60x1; q quits\n");
    free(text);
    text = draw(s, &(struct ui){ .confirm_quit = true }, 60, 15, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "Quit and stop the A/B?");
    CHECK_CONTAINS(text, "y yes");
    free(text);
    free(s);
}

/* A noise floor of few blocks beside a narrower interval of many is explained; otherwise nothing is added.
 * After the verdict the interval fills the axis. */
static void noise_is_explained(void **state)
{
    (void)state;
    struct snapshot *s = make_better();
    struct ui u = { .view = VIEW_AB, .details = true };
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "noise ±0.8% (A/A, 3 blocks)");
    CHECK_CONTAINS(text, "9 blocks measured: 8 used, 1 left out as disturbed");
    CHECK_CONTAINS(text, "←0");
    free(text);
    s->experiment.noise_floor = log(1.15);
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text,
                   "noise ±15% (A/A, 3 blocks: wide because it has so few; the comparison with B has 8)");
    free(text);
    text = draw(s, &(struct ui){ 0 }, 80, 24, GLYPHS_BRAILLE);
    CHECK_LACKS(text, "±15%"); /* the live view shows the sentence in its place */
    free(text);
    s->experiment.comparison[1].effect = (struct interval){ 0.004, -0.003, 0.011 };
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_LACKS(text, "←0"); /* zero is near: on the axis */
    free(text);
    free(s);
}

/* While a load runs: its requests, and how they use the blocks of the cache. */
static void a_load_shows_its_requests(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct occupancy *o = &s->experiment.occupancy;
    *o = (struct occupancy){ .arm = 1,
                             .blocks = 40,
                             .used = 25,
                             .block_tokens = 32,
                             .rows = 70,
                             .batch = 512,
                             .step = 1,
                             .serves = true,
                             .cached = 6,
                             .spared = 9,
                             .running = 8,
                             .waiting = 3 };
    snprintf(o->map, sizeof o->map, "#####01234567012345670123------.........");
    char *text = draw(s, &(struct ui){ .view = VIEW_LOAD }, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "25 of 40 blocks of 32 tokens");
    CHECK_CONTAINS(text, "70 of 512 rows, 8 running, 3 waiting");
    CHECK_CONTAINS(text, "- cached 6  # shared, spares 9  0-z a request");
    free(text);
    free(s);
}

/* A bug: "CPU 50 %", "others 83 %" and "other programs use 31 %" on one screen: samples beside means. */
static void the_load_is_one_figure(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    s->busy = (struct busy_state){ .cpu = NAN, .others = NAN, .steal = NAN };
    const double samples[][2] = { { 0.9, 0.7 },
                                  { 0.5, 0.83 },
                                  { 0.6, 0.9 } }; /* processors, other programs */
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        double sensor[METRIC_SENSOR_COUNT];
        for (int k = 0; k < METRIC_SENSOR_COUNT; k++) sensor[k] = NAN;
        sensor[METRIC_CPU_BUSY] = samples[i][0];
        sensor[METRIC_OTHERS_BUSY] = samples[i][1];
        sensor[METRIC_CPU_STEAL] = 0;
        busy_state_step(&s->busy, sensor);
        CHECK_LE(s->busy.others, s->busy.cpu); /* a part is never more than the whole */
        busy_state_show(&s->busy, s->sensor);
        char *text = draw(s, &(struct ui){ .view = VIEW_LIVE }, 120, 36, GLYPHS_BRAILLE), want[64];
        snprintf(want, sizeof want, "others %.0f%%", 100 * s->busy.others);
        CHECK_CONTAINS(text, want);
        snprintf(want, sizeof want, "other programs use %.0f%%", 100 * s->busy.others);
        CHECK_CONTAINS(text, want);
        free(text);
    }
    free(s);
}

/* A bug: the advice predicted 57.7 tokens/s for a line, and the form 166 for the same. */
static void a_prediction_is_one_figure(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_LIVE };
    int runs = -1;
    struct advice *a = &s->advice[0];
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ a->line, "default", "tg64" });
    snprintf(s->estimates.text, sizeof s->estimates.text, "%s", a->line);
    s->estimates.total_bytes = 1 << 20;
    s->estimates.decode_tok_s = 166;
    a->prediction.decode_tok_s.estimate = 57.7;
    a->prediction.decode_tok_s.lower = 50;
    a->prediction.decode_tok_s.upper = 60;
    s->checked.of = form_hash(&u.form, s->model_path);
    const struct interval rate = snapshot_decode_rate(s, a->line, &runs);
    CHECK_NEAR(rate.estimate, 57.7, 1e-9);
    CHECK_EQ(runs, a->decode.runs);
    char *text = draw(s, &u, 120, 36, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "decode about 57.7 tok/s");
    CHECK_LACKS(text, "166");
    free(text);
    u.form.kind = FORM_CLOSED;
    text = draw(s, &u, 120, 36, GLYPHS_BRAILLE); /* the first screen's advice has the same figure */
    CHECK_CONTAINS(text, "57.7 tok/s");
    free(text);
    s->advice_count = 0; /* then it is the estimate of the form */
    CHECK_NEAR(snapshot_decode_rate(s, s->estimates.text, NULL).estimate, 166, 1e-9);
    CHECK(isnan(snapshot_decode_rate(s, "threads=1", NULL).estimate));
    free(s);
}

/* A busy machine: who uses the processors, how much against which limit, and two keys. */
static void busy_names_and_offers(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    s->busy = (struct busy_state){
        .is_busy = true, .others = 0.78, .steal = 0, .by = "cc1 40 %, ld 12 %", .by_ms = s->unix_ms - 12000
    };
    static const enum view VIEWS_OF_IT[] = { VIEW_AB, VIEW_TUNE, VIEW_LIVE };
    for (size_t i = 0; i < COUNT_OF(VIEWS_OF_IT); i++) {
        struct ui u = { .view = VIEWS_OF_IT[i] };
        char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
        CHECK_CONTAINS(text, "! busy: other programs use 78% (limit 10%); 12 s ago: cc1 40 %, ld 12 %");
        CHECK_CONTAINS(text, "i wait until quiet   % measure under load");
        free(text);
    }
    char *text = draw(s, &(struct ui){ .view = VIEW_MODEL }, 80, 24, GLYPHS_BRAILLE);
    CHECK_LACKS(text, "busy");
    free(text);
    text = draw(s, &(struct ui){ .view = VIEW_AB, .when_busy = BUSY_WAIT }, 60, 16, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "i ✓ waits until quiet");
    free(text);
    s->busy = (struct busy_state){ .is_busy = true, .others = 0.01, .steal = 0.05 };
    text = draw(s, &(struct ui){ .view = VIEW_AB }, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "the hypervisor takes 5% (limit 1%)");
    free(text);
    free(s);
    s = fixture_running();
    s->busy.is_busy = true;
    text = draw(s, &(struct ui){ .view = VIEW_AB }, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "i pause until quiet");
    free(text);
    snprintf(s->experiment.cell_phase, sizeof s->experiment.cell_phase, "%s", EXPERIMENT_WAITS);
    text = draw(s, &(struct ui){ .view = VIEW_AB }, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "waiting until the machine is quiet");
    CHECK_CONTAINS(text, "s stops it");
    free(text);
    free(s);
}

static void quit_asks_and_refusals_show(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running();
    struct ui u = { .confirm_quit = true };
    char *text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "Quit and stop the A/B?");
    CHECK_CONTAINS(text, "y yes");
    free(text);
    s->queued = 2;
    text = draw(s, &u, 60, 16, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "drop the queue (&)?  y yes  n no");
    free(text);
    s->queued = 0;
    u = (struct ui){ .message = "b: an experiment runs: s stops it first",
                     .message_is_error = true,
                     .message_until_ms = s->unix_ms + 1 };
    text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_CONTAINS(text, "s stops it first");
    free(text);
    u.message_until_ms = s->unix_ms; /* over */
    text = draw(s, &u, 80, 24, GLYPHS_BRAILLE);
    CHECK_LACKS(text, "s stops it first");
    CHECK_CONTAINS(text, "$ qdyno ab -m /models/stories15M-f16.gguf");
    free(text);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(golden_small),
        cmocka_unit_test(golden_form_and_ascii),
        cmocka_unit_test(verdicts_without_colour),
        cmocka_unit_test(ranks_are_shown_when_there_are_any),
        cmocka_unit_test(random_weights_are_named),
        cmocka_unit_test(loss_of_the_same_answers),
        cmocka_unit_test(the_text_is_missing),
        cmocka_unit_test(unknown_is_not_zero),
        cmocka_unit_test(noise_is_explained),
        cmocka_unit_test(a_load_shows_its_requests),
        cmocka_unit_test(the_load_is_one_figure),
        cmocka_unit_test(a_prediction_is_one_figure),
        cmocka_unit_test(busy_names_and_offers),
        cmocka_unit_test(too_small),
        cmocka_unit_test(quit_asks_and_refusals_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
