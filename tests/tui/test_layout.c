/* Proves: at every size the boxes of each view lie inside the body, do not overlap and cover it, also where
 * one box is shown at a time; 80x24 holds every line of the live view, and a narrow, high screen all of its
 * boxes. */
#include "tests/check.h"
#include "tui/views/layout.h"
#include "tui/views/views.h"

static bool overlap(struct rect a, struct rect b)
{
    return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

static void check_boxes(struct rect body, const struct rect *box, int n)
{
    int area = 0;
    for (int i = 0; i < n; i++) {
        CHECK_GE(box[i].w, 0);
        CHECK_GE(box[i].h, 0);
        CHECK_GE(box[i].x, body.x);
        CHECK_LE(box[i].x + box[i].w, body.x + body.w);
        CHECK_GE(box[i].y, body.y);
        CHECK_LE(box[i].y + box[i].h, body.y + body.h);
        area += box[i].w * box[i].h;
        for (int j = 0; j < i; j++) CHECK(!overlap(box[i], box[j]));
    }
    CHECK_EQ(area, body.w * body.h);
}

static void check_one_at_a_time(struct rect body)
{
    struct rect box[LIVE_PANES];
    for (int shown = 0; shown < LIVE_PANES; shown++) {
        layout_one(body, shown, box, LIVE_PANES);
        check_boxes(body, box, LIVE_PANES);
        CHECK_EQ(box[shown].h, body.h);
    }
}

static void check_views(struct rect body)
{
    struct rect live[LIVE_PANES], ab[AB_PANES], quality[QUALITY_PANES], load[LOAD_PANES], model[MODEL_PANES],
        settings[SETTINGS_PANES], tune[TUNE_PANES], both[WRITE_PANES];
    layout_live(body, live);
    check_boxes(body, live, LIVE_PANES);
    layout_quality(body, quality);
    check_boxes(body, quality, QUALITY_PANES);
    layout_load(body, load);
    check_boxes(body, load, LOAD_PANES);
    layout_model(body, model);
    check_boxes(body, model, MODEL_PANES);
    layout_settings(body, settings);
    check_boxes(body, settings, SETTINGS_PANES);
    layout_tune(body, tune);
    check_boxes(body, tune, TUNE_PANES);
    layout_write(body, both);
    check_boxes(body, both, WRITE_PANES);
    for (int rows = 1; rows <= 8; rows += 7) {
        struct rect advice[ADVICE_PANES];
        layout_advice(body, rows, advice);
        check_boxes(body, advice, ADVICE_PANES);
        CHECK_GE(advice[ADVICE_DETAILS].h, 9);
        CHECK_GE(advice[ADVICE_LIST].h, MIN(rows + 3, 11));
    }
    for (int arms = 2; arms <= 8; arms += 3) {
        for (int ranks = 0; ranks <= 128; ranks += 2 + 15 * ranks) {
            layout_ab(body, arms, ranks, ab);
            check_boxes(body, ab, AB_PANES);
            CHECK_GE(ab[AB_ARMS].h, 7);
            CHECK_GE(ab[AB_EFFECT].h, 6);
            CHECK_GE(ab[AB_EFFECT].w, MIN(body.w, 30));
            CHECK_GE(ab[AB_VERDICT].h, 6);
            CHECK_EQ(ab[AB_RANKS].w * ab[AB_RANKS].h > 0, ranks > 0);
            CHECK_GE(ab[AB_RANKS].h, ranks ? 5 : 0); /* the head and two ranks */
        }
    }
}

static void every_size(void **state)
{
    (void)state;
    int whole = 0, columns = 0, single = 0;
    for (int h = 1; h <= 120; h++)
        for (int w = 1; w <= 300; w++) {
            struct layout l = layout_frame(w, h);
            CHECK_EQ(l.too_small, w < VIEW_MIN_W || h < VIEW_MIN_H);
            if (l.too_small) continue;
            const struct rect frame[] = { l.title, l.body, l.status, l.footer };
            check_boxes((struct rect){ 0, 0, w, h }, frame, 4);
            CHECK(!l.single || w < 80 || h < 24);
            if (l.single)
                check_one_at_a_time(l.body);
            else
                check_views(l.body);
            *(l.single ? &single : w < 80 ? &columns : &whole) += 1;
        }
    CHECK_GT(whole, 0);
    CHECK_GT(columns, 0);
    CHECK_GT(single, 0);
}

static void smallest_holds_everything(void **state)
{
    (void)state;
    struct rect live[LIVE_PANES], ab[AB_PANES];
    struct layout l = layout_frame(80, 24);
    layout_live(l.body, live);
    CHECK_GE(live[LIVE_MACHINE].h, 6);
    CHECK_GE(live[LIVE_ENGINE].h, 6); /* 4 lines and a frame */
    CHECK_GE(live[LIVE_AB].h, 7);
    CHECK_GE(live[LIVE_ADVICE].h, 4);
    CHECK_GE(live[LIVE_LOG].h, 4);
    layout_ab(l.body, 2, 0, ab);
    CHECK_GE(ab[AB_ARMS].h, 7);
    CHECK_GE(ab[AB_EFFECT].h, 6);
    CHECK_GE(ab[AB_VERDICT].h, 6);
}

/* A long verdict takes rows from the effect, which keeps its axis and a plot. */
static void the_verdict_grows_upwards(void **state)
{
    (void)state;
    struct rect ab[AB_PANES];
    const struct layout l = layout_frame(120, 36);
    layout_ab(l.body, 2, 0, ab);
    const int before = ab[AB_VERDICT].h, both = before + ab[AB_EFFECT].h;
    layout_ab_verdict(ab, before - 1);
    CHECK_EQ(ab[AB_VERDICT].h, before);
    layout_ab_verdict(ab, before + 3);
    CHECK_EQ(ab[AB_VERDICT].h, before + 3);
    CHECK_EQ(ab[AB_VERDICT].y, ab[AB_EFFECT].y + ab[AB_EFFECT].h);
    layout_ab_verdict(ab, 100);
    CHECK_EQ(ab[AB_EFFECT].h, 6);
    CHECK_EQ(ab[AB_VERDICT].h, both - 6);
}

/* 60x34: the smallest screen with all boxes in one column. */
static void column_holds_everything(void **state)
{
    (void)state;
    struct rect live[LIVE_PANES], load[LOAD_PANES], both[WRITE_PANES];
    const struct layout l = layout_frame(60, 34);
    CHECK(!l.single);
    CHECK(layout_frame(60, 33).single);
    layout_live(l.body, live);
    for (int i = 0; i < LIVE_PANES; i++) {
        CHECK_EQ(live[i].w, 60);
        CHECK_GE(live[i].h, i == LIVE_AB ? 8 : i == LIVE_LOG ? 5 : 6);
    }
    layout_load(l.body, load);
    for (int i = 0; i < LOAD_PANES; i++) CHECK_GE(load[i].h, 7);
    layout_write(l.body, both);
    for (int i = 0; i < WRITE_PANES; i++) CHECK_GE(both[i].h, 5);
}

static void more_rows_show_more(void **state)
{
    (void)state;
    struct rect small[LIVE_PANES], large[LIVE_PANES];
    layout_live(layout_frame(80, 24).body, small);
    layout_live(layout_frame(200, 60).body, large);
    for (int i = 0; i < LIVE_PANES; i++) {
        CHECK_GT(large[i].h, small[i].h);
        CHECK_GT(large[i].w, small[i].w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),
        cmocka_unit_test(smallest_holds_everything),
        cmocka_unit_test(the_verdict_grows_upwards),
        cmocka_unit_test(column_holds_everything),
        cmocka_unit_test(more_rows_show_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
