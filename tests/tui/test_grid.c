/* Proves: drawing never leaves the grid or its rectangle; wide characters are drawn whole or not at all;
 * meters and graphs match their numbers at every glyph level; an unknown value is never drawn as zero. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/widgets/widgets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct grid open_grid(int w, int h, enum glyph_level level)
{
    struct grid g;
    struct err why;
    CHECK_OK(grid_open(&g, w, h, level, &why));
    return g;
}

static void check_text(const struct grid *g, const char *want)
{
    struct str s = { 0 };
    grid_text(g, &s);
    assert_string_equal(str_text(&s), want);
    str_free(&s);
}

static void clipping(void **state)
{
    (void)state;
    struct grid g = open_grid(6, 3, GLYPHS_BRAILLE);
    struct rect area = { 1, 1, 3, 1 };
    struct pen p = pen_at(&g, area, 0, 0);
    pen_put(&p, ROLE_TEXT, "abcdefgh");
    CHECK_EQ(p.x, 8);
    for (int y = -2; y < 5; y++)
        for (int x = -2; x < 9; x++) grid_put(&g, (struct rect){ 2, 0, 1, 1 }, x, y, 'z', ROLE_TEXT);
    grid_put(&g, (struct rect){ -5, -5, 100, 100 }, 4, 4, 'n', ROLE_TEXT);
    grid_put(&g, (struct rect){ 4, 2, 100, 100 }, 1, 0, 'm', ROLE_TEXT);
    grid_put(&g, (struct rect){ 4, 2, 100, 100 }, 2, 0, 'm', ROLE_TEXT);
    check_text(&g, "  z\n ab…\n     m\n");
    grid_close(&g);
}

static void wide_characters(void **state)
{
    (void)state;
    struct grid g = open_grid(4, 2, GLYPHS_BRAILLE);
    struct pen p = pen_at(&g, grid_area(&g), 0, 0);
    pen_put(&p, ROLE_TEXT, "a日本");
    check_text(&g, "a日…\n\n"); /* a wide character with one column left is not drawn */
    CHECK_EQ(g.cells[2].code, 0);
    grid_put(&g, grid_area(&g), 2, 0, 'x', ROLE_TEXT); /* overwrites half of the wide character */
    check_text(&g, "a x…\n\n");
    CHECK_EQ(text_columns("a日e\xcc\x81"), 4);
    grid_close(&g);
}

static void controls_and_broken_text(void **state)
{
    (void)state;
    struct grid g = open_grid(12, 1, GLYPHS_BRAILLE);
    struct pen p = pen_at(&g, grid_area(&g), 0, 0);
    pen_put(&p, ROLE_TEXT, "a\x1b[31mb\n\xff");
    for (int i = 0; i < g.w; i++) {
        CHECK_GE(g.cells[i].code, 0x20);
        CHECK((g.cells[i].code < 0x7f || g.cells[i].code >= 0xa0));
    }
    grid_close(&g);
}

static void fields(void **state)
{
    (void)state;
    struct grid g = open_grid(16, 1, GLYPHS_BRAILLE);
    struct pen p = pen_at(&g, grid_area(&g), 0, 0);
    pen_field(&p, 5, ROLE_TEXT, "configuration");
    CHECK_EQ(p.x, 5);
    pen_field_right(&p, 5, ROLE_TEXT, "12");
    pen_field(&p, 4, ROLE_TEXT, "abcd");
    CHECK_EQ(p.x, 14);
    check_text(&g, "conf…   12abcd\n");
    grid_close(&g);
}

static void boxes(void **state)
{
    (void)state;
    struct grid g = open_grid(14, 3, GLYPHS_BRAILLE);
    struct rect in = grid_box(&g, grid_area(&g), "Title", "note");
    CHECK_EQ(in.x, 2);
    CHECK_EQ(in.y, 1);
    CHECK_EQ(in.w, 10);
    CHECK_EQ(in.h, 1);
    check_text(&g, "┌─ Title ────┐\n│            │\n└─ note ─────┘\n");
    grid_close(&g);
    g = open_grid(14, 3, GLYPHS_ASCII);
    grid_box(&g, grid_area(&g), "Title", NULL);
    check_text(&g, "+- Title ----+\n|            |\n+------------+\n");
    grid_close(&g);
}

static void meters(void **state)
{
    (void)state;
    struct grid g = open_grid(10, 1, GLYPHS_BRAILLE);
    struct pen p = pen_at(&g, grid_area(&g), 0, 0);
    pen_meter(&p, 4, 0.625, ROLE_METER);
    CHECK_EQ(p.x, 4);
    pen_put(&p, ROLE_TEXT, "|");
    pen_meter(&p, 2, NAN, ROLE_METER);
    pen_meter(&p, 2, 99, ROLE_METER);
    check_text(&g, "██▌·|··██\n");
    grid_close(&g);
    g = open_grid(10, 1, GLYPHS_ASCII);
    p = pen_at(&g, grid_area(&g), 0, 0);
    pen_meter(&p, 4, 0.75, ROLE_METER);
    check_text(&g, "###.\n");
    grid_close(&g);
}

static void graphs(void **state)
{
    (void)state;
    const float v[] = { 0.0f, 0.25f, 0.5f, 0.75f, 1.0f, NAN, 1.0f, 0.0f };
    const struct graph graph = { v, COUNT_OF(v), 0, 1, ROLE_GRAPH };
    struct grid g = open_grid(4, 1, GLYPHS_BRAILLE);
    grid_graph(&g, grid_area(&g), &graph);
    /* Zero draws one dot; NAN is a gap; the newest pair is at the right. */
    check_text(&g, "⣀⣴⡇⣇\n");
    grid_close(&g);
    g = open_grid(8, 1, GLYPHS_BLOCKS);
    grid_graph(&g, grid_area(&g), &graph);
    check_text(&g, "▁▂▄▆█ █▁\n");
    grid_close(&g);
    g = open_grid(8, 2, GLYPHS_ASCII);
    grid_graph(&g, grid_area(&g), &graph);
    check_text(&g, "   :# #\n.:### #.\n");
    grid_close(&g);
}

static void glyph_levels(void **state)
{
    (void)state;
    CHECK_EQ(glyph_level_choose("UTF-8", "xterm", NULL), GLYPHS_BRAILLE);
    CHECK_EQ(glyph_level_choose("utf8", NULL, NULL), GLYPHS_BRAILLE);
    CHECK_EQ(glyph_level_choose("UTF-8", "linux", NULL), GLYPHS_BLOCKS);
    CHECK_EQ(glyph_level_choose("ANSI_X3.4-1968", "xterm", NULL), GLYPHS_ASCII);
    CHECK_EQ(glyph_level_choose("ISO-8859-1", "xterm", "braille"),
             GLYPHS_ASCII); /* never more than the terminal can show */
    CHECK_EQ(glyph_level_choose("UTF-8", "xterm", "ascii"), GLYPHS_ASCII);
    CHECK_EQ(glyph_level_choose("UTF-8", "xterm", "nonsense"), GLYPHS_BRAILLE);
    CHECK_EQ(glyph_level_choose(NULL, NULL, NULL), GLYPHS_ASCII);
    /* Marks of different states stay different in ASCII. */
    CHECK_EQ(glyph_at_level(0x25b2, GLYPHS_ASCII), '^');
    CHECK_EQ(glyph_at_level(0x25bc, GLYPHS_ASCII), 'v');
    CHECK_EQ(glyph_at_level(0x2248, GLYPHS_ASCII), '=');
    CHECK_EQ(glyph_at_level(0x2715, GLYPHS_ASCII), 'x');
    for (uint32_t code = 0; code < 0x3000; code++) CHECK_LT(glyph_at_level(code, GLYPHS_ASCII), 0x7f);
}

static void numbers(void **state)
{
    (void)state;
    assert_string_equal(figure_number(NAN).text, "n/a");
    assert_string_equal(figure_number(INFINITY).text, "n/a");
    assert_string_equal(figure_number(38.24).text, "38.2");
    assert_string_equal(figure_number(1610.4).text, "1610");
    assert_string_equal(figure_number(0.3126).text, "0.313");
    assert_string_equal(figure_number(99949).text, "99949");
    assert_string_equal(figure_number(123456).text, "123k");
    assert_string_equal(figure_number(-1059847).text, "-1.06M");
    assert_string_equal(figure_percent(0.931).text, "93%");
    assert_string_equal(figure_percent(0.006).text, "0.6%");
    assert_string_equal(figure_percent(0).text, "0%");
    assert_string_equal(figure_percent(NAN).text, "n/a");
    assert_string_equal(figure_change(log(1.584)).text, "+58.4%");
    assert_string_equal(figure_change(log(0.5)).text, "-50.0%");
    assert_string_equal(figure_change(NAN).text, "n/a");
    assert_string_equal(figure_bytes(-1).text, "n/a");
    assert_string_equal(figure_seconds(0.0261).text, "26.1ms");
    assert_string_equal(figure_seconds(0.00031).text, "310us");
    assert_string_equal(figure_seconds(2).text, "2.00s");
    assert_string_equal(figure_seconds(NAN).text, "n/a");
    assert_string_equal(figure_duration(41.2).text, "0:41");
    assert_string_equal(figure_duration(3723).text, "1:02:03");
    assert_string_equal(figure_duration(NAN).text, "n/a");
    assert_string_equal(figure_hertz(3.1e9).text, "3.1GHz");
    assert_string_equal(figure_celsius(NAN).text, "n/a");
    assert_string_equal(figure_clock(0).text, "n/a");
}

static void wrapping(void **state)
{
    (void)state;
    struct grid g = open_grid(10, 3, GLYPHS_BRAILLE);
    CHECK_EQ(grid_wrap(&g, grid_area(&g), ROLE_TEXT, "one two three four five six"), 3);
    check_text(&g, "one two\nthree four\nfive six\n");
    grid_clear(&g);
    CHECK_EQ(grid_wrap(&g, grid_area(&g), ROLE_TEXT, ""), 0);
    CHECK_EQ(grid_wrap(&g, (struct rect){ 0, 0, 10, 1 }, ROLE_TEXT, "one two three four"), 1);
    check_text(&g, "one two…\n\n\n");
    grid_clear(&g);
    grid_wrap(&g, (struct rect){ 0, 0, 10, 2 }, ROLE_TEXT, "one two twelveletters!"); /* a word is cut */
    check_text(&g, "one two\ntwelvelet…\n\n");
    grid_clear(&g);
    grid_wrap(&g, (struct rect){ 0, 0, 7, 1 }, ROLE_TEXT, "one two"); /* it fits exactly */
    check_text(&g, "one two\n\n\n");
    grid_close(&g);
}

/* A row of several texts ends with "…" where one of them did not fit, also when none of its letters did. */
static void rows_that_are_cut(void **state)
{
    (void)state;
    struct grid g = open_grid(8, 1, GLYPHS_BRAILLE);
    struct pen p = pen_at(&g, grid_area(&g), 0, 0);
    pen_put(&p, ROLE_TEXT, "12345678");
    check_text(&g, "12345678\n");
    pen_put(&p, ROLE_TEXT, "  ");
    check_text(&g, "12345678\n"); /* no letter is missing */
    pen_put(&p, ROLE_TEXT, "9");
    check_text(&g, "1234567…\n");
    grid_clear(&g);
    p = pen_at(&g, grid_area(&g), 0, 0);
    pen_put(&p, ROLE_TEXT, "123456");
    pen_field(&p, 4, ROLE_TEXT, "abcd"); /* the field is longer than the row */
    check_text(&g, "123456a…\n");
    grid_clear(&g);
    p = pen_at(&g, grid_area(&g), 0, 0);
    pen_put(&p, ROLE_TEXT, "12345678");
    pen_field(&p, 3, ROLE_TEXT, "abc");
    check_text(&g, "1234567…\n");
    grid_close(&g);
}

static void impossible_sizes(void **state)
{
    (void)state;
    struct grid g;
    struct err why = { 0 };
    CHECK_EQ(grid_open(&g, 0, 10, GLYPHS_ASCII, &why), ERR_USAGE);
    CHECK_EQ(grid_open(&g, 10, -1, GLYPHS_ASCII, &why), ERR_USAGE);
    CHECK_EQ(grid_open(&g, 5000, 10, GLYPHS_ASCII, &why), ERR_USAGE);
    grid_close(&g);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping),
        cmocka_unit_test(wide_characters),
        cmocka_unit_test(fields),
        cmocka_unit_test(controls_and_broken_text),
        cmocka_unit_test(boxes),
        cmocka_unit_test(meters),
        cmocka_unit_test(graphs),
        cmocka_unit_test(glyph_levels),
        cmocka_unit_test(numbers),
        cmocka_unit_test(wrapping),
        cmocka_unit_test(rows_that_are_cut),
        cmocka_unit_test(impossible_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
