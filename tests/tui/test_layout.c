/* Proves: at every size the boxes of each view lie inside the body, do not overlap and cover it; 80x24 holds
 * every line of the live view. */
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

static void every_size(void **state)
{
    (void)state;
    for (int h = 1; h <= 120; h++)
        for (int w = 1; w <= 300; w++) {
            struct layout l = layout_frame(w, h);
            CHECK_EQ(l.too_small, w < VIEW_MIN_W || h < VIEW_MIN_H);
            if (l.too_small) continue;
            const struct rect frame[] = { l.title, l.body, l.status, l.footer };
            check_boxes((struct rect){ 0, 0, w, h }, frame, 4);
            struct rect live[LIVE_PANES], ab[AB_PANES];
            layout_live(l.body, live);
            check_boxes(l.body, live, LIVE_PANES);
            struct rect quality[QUALITY_PANES], load[LOAD_PANES], settings[SETTINGS_PANES];
            layout_quality(l.body, quality);
            check_boxes(l.body, quality, QUALITY_PANES);
            layout_load(l.body, load);
            check_boxes(l.body, load, LOAD_PANES);
            layout_settings(l.body, settings);
            check_boxes(l.body, settings, SETTINGS_PANES);
            for (int rows = 1; rows <= 8; rows += 7) {
                struct rect advice[ADVICE_PANES];
                layout_advice(l.body, rows, advice);
                check_boxes(l.body, advice, ADVICE_PANES);
                CHECK_GE(advice[ADVICE_DETAILS].h, 9);
                CHECK_GE(advice[ADVICE_LIST].h, MIN(rows + 3, 11));
            }
            for (int arms = 2; arms <= 8; arms += 3) {
                layout_ab(l.body, arms, ab);
                check_boxes(l.body, ab, AB_PANES);
                CHECK_GE(ab[AB_ARMS].h, 7);
                CHECK_GE(ab[AB_EFFECT].h, 6);
                CHECK_GE(ab[AB_VERDICT].h, 6);
            }
        }
}

static void smallest_holds_everything(void **state)
{
    (void)state;
    struct rect live[LIVE_PANES], ab[AB_PANES];
    struct layout l = layout_frame(VIEW_MIN_W, VIEW_MIN_H);
    layout_live(l.body, live);
    CHECK_GE(live[LIVE_MACHINE].h, 6);
    CHECK_GE(live[LIVE_ENGINE].h, 6); /* 4 lines and a frame */
    CHECK_GE(live[LIVE_AB].h, 7);
    CHECK_GE(live[LIVE_ADVICE].h, 4);
    CHECK_GE(live[LIVE_LOG].h, 4);
    layout_ab(l.body, 2, ab);
    CHECK_GE(ab[AB_ARMS].h, 7);
    CHECK_GE(ab[AB_EFFECT].h, 6);
    CHECK_GE(ab[AB_VERDICT].h, 6);
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
        cmocka_unit_test(more_rows_show_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
