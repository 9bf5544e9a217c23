/* Proves: axis values are round, in order, within the axis and distinct as texts, for every unit and any
 * range; a plot gives well-formed SVG and text lines of limited width for any data; unknown values are not
 * drawn. Also proves that the XML checker rejects what is not well-formed. */
#include "tests/check.h"
#include "tests/tui/xml.h"
#include "tui/report/plot.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void checker_refuses(void **state)
{
    static const char *const BAD[] = { "",
                                       "<a>",
                                       "<a></b>",
                                       "<a/><b/>",
                                       "<a>&</a>",
                                       "<a>&nbsp;</a>",
                                       "<a><</a>",
                                       "<a b=c/>",
                                       "<a b=\"<\"/>",
                                       "<a>\x01</a>",
                                       "<a>\xff</a>",
                                       "<a id=\"x\"><b id=\"x\"/></a>",
                                       "<a b=\"url(#x)\"/>",
                                       "<a aria-labelledby=\"t d\"><b id=\"t\"/></a>",
                                       "text<a/>" };
    char why[200];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        if (xml_is_well_formed(BAD[i], why, sizeof why)) fail_msg("'%s' passed", BAD[i]);
    CHECK(xml_is_well_formed("<!DOCTYPE html>\n<a b=\"url(#x)\">&lt;é<c id=\"x\"/></a>\n", why, sizeof why));
}

static void check_ticks(const struct plot_axis *axis, struct plot_scale s, int most)
{
    struct plot_ticks t;
    plot_ticks(&t, axis, &s, most);
    CHECK_LE(0, t.n);
    CHECK_LE(t.n, most);
    for (int i = 0; i < t.n; i++) {
        CHECK_LE(-1e-6, plot_at(&s, t.at[i]));
        CHECK_LE(plot_at(&s, t.at[i]), 1 + 1e-6);
        CHECK_NE(t.text[i][0], '\0');
        if (!i) continue;
        CHECK_LT(t.at[i - 1], t.at[i]);
        if (!strcmp(t.text[i], t.text[i - 1]))
            fail_msg("%.17g and %.17g are both '%s'", t.at[i - 1], t.at[i], t.text[i]);
    }
}

static void ticks_are_round(void **state)
{
    static const enum plot_unit UNITS[] = { UNIT_NUMBER, UNIT_COUNT, UNIT_CHANGE, UNIT_SHARE,   UNIT_SECONDS,
                                            UNIT_CLOCK,  UNIT_BYTES, UNIT_HERTZ,  UNIT_CELSIUS, UNIT_WATTS };
    (void)state;
    srand(1);
    for (int round = 0; round < 4000; round++) {
        const double size = pow(10, rand() % 9 - 4), low = (rand() % 2001 - 1000) * size / 100;
        const double high = low + size * (1 + rand() % 1000) / 100;
        const struct plot_axis axis = { .unit = UNITS[round % (int)COUNT_OF(UNITS)] };
        if (axis.unit == UNIT_CLOCK && (low < 0 || high - low < 20)) continue; /* seconds are whole there */
        if (fabs(low) > 1e4 * (high - low)) continue;
        check_ticks(&axis, (struct plot_scale){ low, high, false }, 1 + rand() % 12);
        if (low > 0) check_ticks(&axis, (struct plot_scale){ low, high, true }, 2 + rand() % 10);
    }
}

static void ticks_worked(void **state)
{
    static const struct {
        struct plot_axis axis;
        struct plot_scale scale;
        int most;
        const char *want;
    } CASES[] = {
        { { .unit = UNIT_CHANGE }, { -0.012, 0.034, false }, 6, "-1% 0% +1% +2% +3%" },
        { { .unit = UNIT_CHANGE }, { 0.5712, 0.5843, false }, 4, "+57.5% +58.0%" },
        { { .unit = UNIT_SECONDS, .log = true }, { 0.0008, 0.2, true }, 5, "1ms 10ms 100ms" },
        { { .unit = UNIT_SECONDS, .log = true }, { 0.0019, 0.0075, true }, 5, "2ms 5ms" },
        { { .unit = UNIT_BYTES }, { 1.5 * (1 << 30), 4.2 * (1 << 30), false }, 4, "2G 3G 4G" },
        { { .unit = UNIT_CLOCK }, { 0, 400, false }, 5, "0:00 2:00 4:00 6:00" },
        { { .unit = UNIT_CLOCK }, { 0, 9000, false }, 5, "0:00:00 1:00:00 2:00:00" },
        { { .unit = UNIT_COUNT }, { 0.5, 3.5, false }, 9, "1 2 3" },
        { { .unit = UNIT_HERTZ }, { 2.85e9, 3.1e9, false }, 4, "2.9GHz 3.0GHz 3.1GHz" },
        { { .unit = UNIT_NUMBER }, { 0, 2.4e6, false }, 4, "0M 1M 2M" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct plot_ticks t;
        struct str got = { 0 };
        plot_ticks(&t, &CASES[i].axis, &CASES[i].scale, CASES[i].most);
        for (int k = 0; k < t.n; k++) str_printf(&got, "%s%s", k ? " " : "", t.text[k]);
        assert_string_equal(str_text(&got), CASES[i].want);
        str_free(&got);
    }
}

static void scales_survive_anything(void **state)
{
    static const double VALUES[] = { NAN, INFINITY, -INFINITY, 0,      -0.0,    1,
                                     -1,  1e-300,   1e300,     -1e300, DBL_MAX, 7 };
    (void)state;
    for (size_t a = 0; a < COUNT_OF(VALUES); a++)
        for (size_t b = 0; b < COUNT_OF(VALUES); b++)
            for (int log = 0; log < 2; log++) {
                struct arena arena = { 0 };
                struct plot p = { .x = { .low = NAN, .high = NAN, .log = log },
                                  .y = { .low = NAN, .high = NAN } };
                struct plot_layer *l = plot_layer(&p, &arena, MARK_DOT, 0, 2);
                CHECK_NE(l, NULL);
                l->point[0].x = VALUES[a];
                l->point[1].x = VALUES[b];
                const struct plot_scale s = plot_scale(&p, 'x');
                CHECK_LT(s.low, s.high);
                if (log) CHECK_LT(0, s.low);
                struct plot_ticks t;
                plot_ticks(&t, &p.x, &s, 8);
                CHECK_LE(0, t.n);
                CHECK_LE(t.n, 8);
                arena_free(&arena);
            }
}

/* Every mark, with known, unknown and outlying points, and a label that is hostile and wide. */
static void full_plot(struct plot *p, struct arena *a, int n)
{
    static const char HOSTILE[] = "<script>&\"'`|\x01\xff 日本語 ]]>";
    *p = (struct plot){ .title = HOSTILE,
                        .x = { HOSTILE, UNIT_NUMBER, false, 0, 10, NULL, 0 },
                        .y = { HOSTILE, UNIT_CHANGE, false, -1, 1, NULL, 0 } };
    for (int mark = MARK_BOX; mark <= MARK_DOT; mark++)
        for (int hue = 0; hue < HUE_COUNT; hue += 3) {
            struct plot_layer *l = plot_layer(p, a, (enum mark)mark, hue, n);
            CHECK_NE(l, NULL);
            l->name = HOSTILE;
            l->soft = hue % 2;
            for (int i = 0; i < n; i++) {
                const double v[] = { i, NAN, 1e300, -1e300, INFINITY, 0.5 * i };
                l->point[i] = (struct plot_point){ v[i % 6],       v[(i + 1) % 6], v[(i + 2) % 6],
                                                   v[(i + 3) % 6], v[(i + 4) % 6], v[(i + 5) % 6],
                                                   HOSTILE,        HOSTILE };
            }
        }
}

static void anything_draws(void **state)
{
    char why[200];
    (void)state;
    for (int n = 0; n < 40; n = 2 * n + 1)
        for (int columns = 1; columns < 200; columns += 37) {
            struct arena arena = { 0 };
            struct plot p;
            struct str svg = { 0 }, text = { 0 };
            full_plot(&p, &arena, n);
            str_append(&svg, "<svg>");
            const double height = plot_svg(&svg, &p, 0, 0, PLOT_WIDTH, "a");
            CHECK_NEAR(height, plot_svg_height(&p, PLOT_WIDTH), 1e-9);
            str_append(&svg, "</svg>");
            if (!xml_is_well_formed(str_text(&svg), why, sizeof why)) fail_msg("%s", why);
            const char *found = strstr(str_text(&svg), "nan");
            if (!found) found = strstr(str_text(&svg), "inf");
            if (!found) found = strstr(str_text(&svg), "<script");
            if (found) fail_msg("%.80s", found);
            plot_text(&text, &p, columns, 10);
            CHECK_LT(0, text.len);
            CHECK(!text.failed);
            str_free(&svg);
            str_free(&text);
            arena_free(&arena);
        }
}

/* One dot, one rule, one interval: read against the sketch. */
static void text_by_hand(void **state)
{
    struct arena arena = { 0 };
    struct plot p = { .x = { "x", UNIT_COUNT, false, 0, 10, NULL, 0 },
                      .y = { "y", UNIT_NUMBER, false, 0, 4, NULL, 0 } };
    struct str text = { 0 };
    struct plot_point at = PLOT_NOWHERE;
    (void)state;
    at.y = 2;
    at.label = "two";
    CHECK_NE(plot_place(&p, &arena, MARK_RULE, HUE_MUTED, at), NULL);
    at = PLOT_NOWHERE;
    at.x = 8;
    at.y_low = 1;
    at.y_high = 3;
    CHECK_NE(plot_place(&p, &arena, MARK_INTERVAL, 1, at), NULL);
    struct plot_layer *l = plot_layer(&p, &arena, MARK_DOT, 0, 3);
    CHECK_NE(l, NULL);
    l->name = "dots";
    l->point[0].x = 0, l->point[0].y = 4;
    l->point[1].x = 5, l->point[1].y = NAN; /* unknown: not at 0, not anywhere */
    l->point[2].x = 10, l->point[2].y = 0;
    plot_text(&text, &p, 26, 5);
    assert_string_equal(str_text(&text), "y\n"
                                         "  4 ┤●\n"
                                         "    │                ┃\n"
                                         "  2 ┤────────────────┃────\n"
                                         "    │                ┃\n"
                                         "  0 ┤                    ●\n"
                                         "    └┬───────────────────┬\n"
                                         "     0                  10\n"
                                         "                         x\n"
                                         "─ two  ● dots\n");
    str_free(&text);
    arena_free(&arena);
}

static void widths_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    CHECK_EQ(plot_columns("abc"), 3);
    CHECK_EQ(plot_columns("日本"), 4);
    CHECK_EQ(plot_columns("e\xcc\x81"), 1);
    CHECK_EQ(plot_columns("●"), 1);
    CHECK_EQ(plot_columns("\xff"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checker_refuses),
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(ticks_worked),
        cmocka_unit_test(scales_survive_anything),
        cmocka_unit_test(anything_draws),
        cmocka_unit_test(text_by_hand),
        cmocka_unit_test(widths_do_not_depend_on_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
