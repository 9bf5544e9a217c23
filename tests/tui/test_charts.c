/* Proves: a value is drawn where its axis says, on linear and logarithmic axes and at every glyph level;
 * values outside of the axis or unknown are not drawn; percentiles match the bins and are unknown when too
 * few values support them; shades of a heat map follow its values, and merged columns show the largest;
 * nothing is drawn outside of the area. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/widgets/widgets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct grid screen(int w, int h, enum glyph_level level)
{
    struct grid g;
    struct err why;
    CHECK_OK(grid_open(&g, w, h, level, &why));
    grid_clear(&g);
    return g;
}

static uint32_t at(const struct grid *g, int x, int y)
{
    return g->cells[y * g->w + x].code;
}

static struct figure show(double v)
{
    return figure_number(v);
}

static const struct axis LINEAR = { .lo = 0, .hi = 100, .name = "u", .show = show },
                         DECADES = { .lo = 1, .hi = 10000, .log = true, .name = "v", .show = show };

/* An end beyond the plane is an arrow at its edge, a real end has an end mark. */
static void clipped_whiskers_end_in_arrows(void **state)
{
    (void)state;
    struct grid g = screen(PLANE_LEFT + 41, PLANE_BOTTOM + 11, GLYPHS_BRAILLE);
    const struct plane p = plane_open(&g, grid_area(&g), LINEAR, LINEAR);
    plane_whisker_x(&p, -12, 50, 0, ROLE_TEXT);
    plane_whisker_x(&p, 50, 190, 100, ROLE_TEXT);
    plane_whisker_y(&p, 25, 40, 120, ROLE_TEXT);
    CHECK_EQ(at(&g, PLANE_LEFT, 10), 0x2190);
    CHECK_EQ(at(&g, PLANE_LEFT + 20, 10), 0x2524);
    CHECK_EQ(at(&g, PLANE_LEFT + 20, 0), 0x251c);
    CHECK_EQ(at(&g, PLANE_LEFT + 40, 0), 0x2192);
    CHECK_EQ(at(&g, PLANE_LEFT + 10, 0), 0x2191);
    CHECK_EQ(at(&g, PLANE_LEFT + 10, 6), 0x2502);
    grid_close(&g);
}

static void marks_lie_where_axes_say(void **state)
{
    (void)state;
    struct grid g = screen(PLANE_LEFT + 41, PLANE_BOTTOM + 11, GLYPHS_BRAILLE);
    const struct plane p = plane_open(&g, grid_area(&g), LINEAR, DECADES);
    CHECK_EQ(p.at.w, 41);
    CHECK_EQ(p.at.h, 11);
    CHECK_EQ(p.at.x, PLANE_LEFT);
    CHECK_EQ(p.at.y, 0);
    plane_mark(&p, 0, 1, 'a', ROLE_TEXT);
    plane_mark(&p, 100, 10000, 'b', ROLE_TEXT);
    plane_mark(&p, 50, 100, 'c', ROLE_TEXT);
    plane_mark(&p, 25, 1e9, 'd', ROLE_TEXT); /* outside: marked at the edge */
    plane_mark(&p, 75, NAN, 'e', ROLE_TEXT); /* unknown: not drawn */
    plane_mark(&p, 75, -1, 'f', ROLE_TEXT);  /* negative on a logarithmic axis: not drawn */
    CHECK_EQ(at(&g, PLANE_LEFT, 10), 'a');
    CHECK_EQ(at(&g, PLANE_LEFT + 40, 0), 'b');
    CHECK_EQ(at(&g, PLANE_LEFT + 20, 5), 'c');
    CHECK_EQ(at(&g, PLANE_LEFT + 10, 0), 'd');
    for (int i = 0; i < g.w * g.h; i++) {
        CHECK_NE(g.cells[i].code, 'e');
        CHECK_NE(g.cells[i].code, 'f');
    }
    struct str text = { 0 };
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), "10000");
    CHECK_CONTAINS(str_text(&text), "100 u");
    CHECK_CONTAINS(str_text(&text), " v");
    str_free(&text);
    grid_close(&g);
}

/* A line from corner to corner touches every column, at each level; dots of one cell add up. */
static void lines_are_whole(void **state)
{
    (void)state;
    for (int level = GLYPHS_ASCII; level <= GLYPHS_BRAILLE; level++) {
        struct grid g = screen(PLANE_LEFT + 20, PLANE_BOTTOM + 8, (enum glyph_level)level);
        const struct plane p = plane_open(&g, grid_area(&g), LINEAR, LINEAR);
        plane_line(&p, (const double[]){ -50, -50 }, (const double[]){ 150, 150 }, ROLE_TEXT);
        for (int x = 0; x < 20; x++) {
            int drawn = 0;
            for (int y = 0; y < 8; y++) drawn += at(&g, PLANE_LEFT + x, y) != ' ';
            CHECK_GE(drawn, 1);
            CHECK_LE(drawn, 2);
        }
        CHECK_NE(at(&g, PLANE_LEFT, 7), ' ');
        CHECK_NE(at(&g, PLANE_LEFT + 19, 0), ' ');
        CHECK_EQ(at(&g, PLANE_LEFT, 0), ' ');
        CHECK_EQ(at(&g, PLANE_LEFT + 19, 7), ' ');
        grid_close(&g);
    }
    struct grid g = screen(PLANE_LEFT + 10, PLANE_BOTTOM + 2, GLYPHS_BRAILLE);
    const struct plane p = plane_open(&g, grid_area(&g), LINEAR, LINEAR);
    plane_dot(&p, 0, 0, ROLE_TEXT);
    CHECK_EQ(at(&g, PLANE_LEFT, 1), 0x2840);
    plane_dot(&p, 0, 15, ROLE_TEXT);
    CHECK_EQ(at(&g, PLANE_LEFT, 1), 0x2844);
    grid_close(&g);
}

static void small_areas_draw_nothing(void **state)
{
    (void)state;
    struct grid g = screen(PLANE_LEFT + 7, 6, GLYPHS_BRAILLE);
    const struct plane p = plane_open(&g, grid_area(&g), LINEAR, LINEAR);
    CHECK_EQ(p.at.w, 0);
    CHECK(!plane_holds(&p, 50, 50));
    plane_line(&p, (const double[]){ 0, 0 }, (const double[]){ 100, 100 }, ROLE_TEXT);
    plane_whisker_x(&p, 0, 100, 50, ROLE_TEXT);
    plane_mark(&p, 50, 50, 'x', ROLE_TEXT);
    for (int i = 0; i < g.w * g.h; i++) CHECK_EQ(g.cells[i].code, ' ');
    const struct axis bad = { .lo = NAN, .hi = NAN, .show = show };
    CHECK_EQ(plane_open(&g, grid_area(&g), bad, LINEAR).at.w, 0);
    grid_close(&g);
}

/* 1 to 1000 ms in random order. */
static void percentiles(void **state)
{
    (void)state;
    float v[1003];
    struct latency_histogram l;
    for (int i = 0; i < 1000; i++) v[i] = (float)((i * 617) % 1000 + 1) * 1e-3F;
    v[1000] = NAN;
    v[1001] = 0;
    v[1002] = -1;
    latency_histogram_make(&l, v, 1003);
    CHECK_EQ(l.n, 1000);
    CHECK_GT(l.lo, 0);
    CHECK_LT(l.lo, 1e-3);
    CHECK_GT(l.hi, 1);
    CHECK_NEAR(l.p50, 0.5, 2e-3);
    CHECK_NEAR(l.p95, 0.95, 2e-3);
    CHECK_NEAR(l.p99, 0.99, 2e-3);
    CHECK_NEAR(l.max, 1, 1e-6);
    int sum = 0, below = 0;
    for (int i = 0; i < LATENCY_BINS; i++) {
        sum += l.bin[i];
        if (l.lo * pow(l.hi / l.lo, (i + 1.0) / LATENCY_BINS) <= 0.5) below += l.bin[i];
    }
    CHECK_EQ(sum, 1000);
    CHECK_GT(below, 430);
    CHECK_LE(below, 500);
    latency_histogram_make(&l, v, 5); /* too few for any quantile */
    CHECK_EQ(l.n, 5);
    CHECK_NAN(l.p50);
    CHECK_NAN(l.p99);
    latency_histogram_make(&l, v, 0);
    CHECK_EQ(l.n, 0);
}

static void distributions_are_drawn(void **state)
{
    (void)state;
    float v[600];
    struct latency_histogram l;
    for (int i = 0; i < 600; i++) v[i] = i < 570 ? 0.010F : 0.100F; /* two values: two columns */
    latency_histogram_make(&l, v, 600);
    struct grid g = screen(LATENCY_BINS, 8, GLYPHS_BLOCKS);
    chart_latency(&g, grid_area(&g), "ITL", &l, ROLE_GRAPH);
    int full = 0, columns = 0;
    for (int x = 0; x < LATENCY_BINS; x++) {
        bool any = false;
        for (int y = 2; y < 7; y++) any = any || at(&g, x, y) != ' ';
        full += at(&g, x, 2) == 0x2588;
        columns += any;
    }
    CHECK_EQ(full, 1);
    CHECK_EQ(columns, 2);
    struct str text = { 0 };
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), "ITL p50 10.0ms");
    CHECK_CONTAINS(str_text(&text), "p99 100ms");
    str_clear(&text);
    grid_clear(&g);
    latency_histogram_make(&l, v, 0);
    chart_latency(&g, grid_area(&g), "ITL", &l, ROLE_GRAPH);
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), "n/a: none were measured");
    CHECK_LACKS(str_text(&text), "p50");
    str_clear(&text);
    grid_clear(&g);
    l.missing = "this workload has no prompt";
    chart_latency(&g, grid_area(&g), "TTFT", &l, ROLE_GRAPH);
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), "TTFT n/a: this workload has no prompt");
    str_free(&text);
    grid_close(&g);
}

static const char *row_name(const void *of, int row)
{
    (void)of;
    return row ? "lower" : "upper";
}

static double row_value(const void *of, int row, int column)
{
    const double(*v)[8] = of;
    return v[row][column];
}

static void heat(void **state)
{
    (void)state;
    const double v[2][8] = { { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, NAN, 0, 1e-6 },
                             { 1e-2, 0, 0, 0, 0, 0, 0, 1e-6 } };
    const struct heat h = { 2, 8, row_name, row_value, v, -1, -1, NULL, NULL, NULL };
    struct grid g = screen(14 + 8, 3, GLYPHS_BLOCKS);
    chart_heat(&g, grid_area(&g), &h);
    static const uint32_t SHADES[] = { 0xb7, 0x2591, 0x2592, 0x2593, 0x2588 };
    for (int i = 0; i < 5; i++) CHECK_EQ(at(&g, 14 + i, 0), SHADES[i]);
    CHECK_EQ(at(&g, 14 + 5, 0), ' '); /* unknown is blank, not the lowest shade */
    CHECK_EQ(at(&g, 14 + 6, 0), 0xb7);
    CHECK_EQ(at(&g, 14, 1), 0x2588);
    grid_close(&g);
    g = screen(14 + 4, 3, GLYPHS_ASCII); /* two columns merged: the larger value shows */
    chart_heat(&g, grid_area(&g), &h);
    CHECK_EQ(at(&g, 14, 0), ':');
    CHECK_EQ(at(&g, 14 + 2, 0), '#');
    CHECK_EQ(at(&g, 14, 1), '#');
    CHECK_EQ(at(&g, 14 + 3, 0), '.');
    grid_close(&g);
}

/* An axis of values beside a graph over time: a known value has a dot, the newest stands at the right. */
static void timelines(void **state)
{
    (void)state;
    float v[10];
    for (int i = 0; i < 10; i++) v[i] = i == 4 ? NAN : 50;
    struct grid g = screen(PLANE_LEFT + 10, PLANE_BOTTOM + 4, GLYPHS_BLOCKS);
    chart_timeline(&g, grid_area(&g), &(struct timeline){ v, 10, 1, LINEAR, ROLE_GRAPH });
    for (int x = 0; x < 10; x++) {
        CHECK_EQ(at(&g, PLANE_LEFT + x, 3) != ' ', x != 4);
        CHECK_EQ(at(&g, PLANE_LEFT + x, 1), ' '); /* 50 of 100: the lower half */
    }
    struct str text = { 0 };
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), "now");
    CHECK_CONTAINS(str_text(&text), "-0:10");
    str_free(&text);
    grid_close(&g);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipped_whiskers_end_in_arrows),
        cmocka_unit_test(marks_lie_where_axes_say),
        cmocka_unit_test(lines_are_whole),
        cmocka_unit_test(small_areas_draw_nothing),
        cmocka_unit_test(percentiles),
        cmocka_unit_test(distributions_are_drawn),
        cmocka_unit_test(heat),
        cmocka_unit_test(timelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
