/* Proves: the colour level follows the terminal and NO_COLOR; every role has a style at every level; without
 * colours the roles of states differ by attributes; better and worse differ for colour-blind eyes; text has a
 * contrast of at least 4.5 on the background that a theme is for; errors in files name their line. */
#include "tests/check.h"
#include "tui/dashboard/preferences.h"
#include "tui/widgets/widgets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void levels(void **state)
{
    (void)state;
    CHECK_EQ(color_level_choose(1 << 24, true, true), COLORS_DIRECT);
    CHECK_EQ(color_level_choose(1 << 24, false, true), COLORS_256); /* many colours, but not as RGB numbers */
    CHECK_EQ(color_level_choose(256, false, true), COLORS_256);
    CHECK_EQ(color_level_choose(88, false, true), COLORS_16);
    CHECK_EQ(color_level_choose(16, false, true), COLORS_16);
    CHECK_EQ(color_level_choose(8, false, true), COLORS_8);
    CHECK_EQ(color_level_choose(0, false, true), COLORS_MONO);
    CHECK_EQ(color_level_choose(-1, false, true), COLORS_MONO);
    CHECK_EQ(color_level_choose(1 << 24, true, false), COLORS_MONO); /* NO_COLOR wins */
}

static void every_role_at_every_level(void **state)
{
    (void)state;
    static const int32_t LIMIT[] = {
        [COLORS_MONO] = 0, [COLORS_8] = 8, [COLORS_16] = 16, [COLORS_256] = 256, [COLORS_DIRECT] = 1 << 24
    };
    for (int level = COLORS_MONO; level <= COLORS_DIRECT; level++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            int32_t color = theme_color(&THEME_DEFAULT, (enum role)role, (enum color_level)level);
            CHECK_GE(color, -1);
            CHECK_LT(color, LIMIT[level]);
            CHECK(color != 0 || level == COLORS_DIRECT); /* black on black */
            CHECK_NE(ROLE_NAMES[role], NULL);
        }
    for (int role = 0; role < ROLE_COUNT; role++)
        CHECK_EQ(theme_color(&THEME_DEFAULT, (enum role)role, COLORS_MONO), -1);
}

static void without_colour(void **state)
{
    (void)state;
    unsigned better = theme_attributes(&THEME_DEFAULT, ROLE_BETTER, COLORS_MONO),
             worse = theme_attributes(&THEME_DEFAULT, ROLE_WORSE, COLORS_MONO);
    unsigned plain = theme_attributes(&THEME_DEFAULT, ROLE_TEXT, COLORS_MONO),
             error = theme_attributes(&THEME_DEFAULT, ROLE_ERROR, COLORS_MONO);
    CHECK_NE(better, worse);
    CHECK_NE(better, plain);
    CHECK_NE(worse, plain);
    CHECK_NE(error, plain);
    CHECK_NE(error, worse);
    CHECK_EQ(theme_attributes(&THEME_DEFAULT, ROLE_TEXT | STYLE_REVERSE, COLORS_MONO), STYLE_REVERSE);
    CHECK_EQ(theme_attributes(&THEME_DEFAULT, ROLE_TEXT | STYLE_REVERSE, COLORS_256), STYLE_REVERSE);
    CHECK_EQ(theme_attributes(&THEME_DEFAULT, ROLE_WORSE, COLORS_256), 0);
}

/* Blue against orange: they must differ in the blue channel and in lightness, not only red against green. */
static void colour_blind_safe(void **state)
{
    (void)state;
    uint32_t better = THEME_DEFAULT.row[ROLE_BETTER].rgb, worse = THEME_DEFAULT.row[ROLE_WORSE].rgb;
    CHECK_GT(abs((int)(better & 0xff) - (int)(worse & 0xff)), 128);
}

static char folder[64]; /* XDG_CONFIG_HOME of this test */

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/qdyno/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_GE(fputs(text, f), 0);
    CHECK_EQ(fclose(f), 0);
}

/* What is shipped can be read, differs from the default, and keeps better from worse without a hue: they
 * differ in lightness or blue, and in attributes. */
static void shipped_themes(void **state)
{
    (void)state;
    char names[32][THEME_NAME];
    struct err why;
    const int n = theme_names(names, 32);
    CHECK_GE(n, 5);
    assert_string_equal(names[0], "default");
    for (int i = 0; i < n; i++) {
        struct theme t;
        CHECK_OK(theme_find(&t, names[i], &why));
        assert_string_equal(t.name, names[i]);
        CHECK_EQ(i == 0, !memcmp(t.row, THEME_DEFAULT.row, sizeof t.row));
        CHECK_NE(t.row[ROLE_BETTER].mono, t.row[ROLE_WORSE].mono);
        CHECK_NE(t.row[ROLE_BETTER].c16, t.row[ROLE_WORSE].c16);
        CHECK_NE(t.row[ROLE_BETTER].c256, t.row[ROLE_WORSE].c256);
    }
}

/* ---------------------------------------------------------------- contrast (WCAG 2) */

static double channel(uint32_t rgb, int shift)
{
    const double c = (double)(rgb >> shift & 0xff) / 255;
    return c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double luminance(uint32_t rgb)
{
    return 0.2126 * channel(rgb, 16) + 0.7152 * channel(rgb, 8) + 0.0722 * channel(rgb, 0);
}

static double contrast(uint32_t a, uint32_t b)
{
    const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
    return x > y ? x / y : y / x;
}

/* The colour of an index of 256: a cube of 6x6x6, then greys. */
static uint32_t rgb_of_256(int index)
{
    static const uint32_t STEP[] = { 0, 95, 135, 175, 215, 255 };
    if (index >= 232) return (uint32_t)(8 + 10 * (index - 232)) * 0x010101u;
    CHECK_GE(index, 16);
    index -= 16;
    return STEP[index / 36] << 16 | STEP[index / 6 % 6] << 8 | STEP[index % 6];
}

/* On white the light theme is readable in every role; on black every theme for dark backgrounds is in the
 * roles of text. In 16 colours the light theme avoids those that are pale on white in every palette. */
static void text_is_readable(void **state)
{
    (void)state;
    enum { PALE = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 };
    static const char *const NAMES[] = { "light", "default", "dark", "high-contrast", "traffic-light" };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        struct theme t;
        struct err why;
        CHECK_OK(theme_find(&t, NAMES[i], &why));
        for (int role = 0; role < ROLE_COUNT; role++) {
            const struct theme_row *r = &t.row[role];
            const uint32_t ground = i == 0 ? 0xffffff : 0;
            if (r->c256 < 0 || (i > 0 && (role == ROLE_BORDER || role == ROLE_METER))) continue;
            const double direct = contrast(r->rgb, ground), indexed = contrast(rgb_of_256(r->c256), ground);
            if (direct < 4.5 || indexed < 4.5)
                fail_msg("%s, %s: contrast %.2f and %.2f, want 4.5", NAMES[i], ROLE_NAMES[role], direct,
                         indexed);
            if (i == 0 && (PALE >> r->c16 & 1))
                fail_msg("light, %s: colour %d of 16 is pale", ROLE_NAMES[role], r->c16);
        }
    }
}

/* What the terminal says about itself. */
static void terminal_hints(void **state)
{
    (void)state;
    char name[64];
    CHECK(background_is_light("0;15"));
    CHECK(background_is_light("0;default;7"));
    CHECK(!background_is_light("15;0"));
    CHECK(!background_is_light("15;default"));
    CHECK(!background_is_light(NULL));
    assert_string_equal(terminal_direct_name("xterm-256color", "truecolor", name, sizeof name),
                        "xterm-direct");
    assert_string_equal(terminal_direct_name("foot", "24bit", name, sizeof name), "foot-direct");
    assert_string_equal(terminal_direct_name("xterm-256color", "yes", name, sizeof name), "");
    assert_string_equal(terminal_direct_name("xterm-256color", NULL, name, sizeof name), "");
    assert_string_equal(terminal_direct_name(NULL, "truecolor", name, sizeof name), "");
}

static void theme_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message; /* message NULL: the file is valid */
    } CASES[] = {
        { "# nothing\n\n", NULL },
        { "better ff0000 9 1 bold reverse # loud\r\n  dim - - -", NULL },
        { "beter ff0000 9 1", "line 1: unknown role" },
        { "\nbetter ff0000 9", "line 2: expected: role" },
        { "better 1ff0000 9 1", "24-bit colour" },
        { "better ff0000 256 1", "0 to 255" },
        { "better ff0000 9 16", "0 to 15" },
        { "better ff0000 9 -1", "0 to 15" },
        { "better - 9 1", "all three" },
        { "better ff0000 9 1 blink", "attributes" },
    };
    struct theme t;
    struct err why;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        write_file("themes/mine.theme", CASES[i].text);
        const enum err_code rc = theme_find(&t, "mine", &why);
        CHECK_EQ(rc, CASES[i].message ? ERR_FORMAT : ERR_OK);
        if (rc && !strstr(why.message, CASES[i].message)) fail_msg("case %zu: %s", i, why.message);
        if (rc)
            CHECK(!memcmp(&t, &THEME_DEFAULT,
                          sizeof t)); /* a bad file gives the default, not half of the file */
        if (i != 1) continue;
        CHECK_EQ(t.row[ROLE_BETTER].rgb, 0xff0000);
        CHECK_EQ(t.row[ROLE_BETTER].mono, STYLE_BOLD | STYLE_REVERSE);
        CHECK_EQ(theme_color(&t, ROLE_DIM, COLORS_DIRECT), -1);
        CHECK_EQ(t.row[ROLE_WORSE].rgb,
                 THEME_DEFAULT.row[ROLE_WORSE].rgb); /* roles not in the file keep the default */
    }
    CHECK_EQ(theme_find(&t, "nobody", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "default, ");
    CHECK_EQ(theme_find(&t, "/nowhere/x.theme", &why), ERR_IO);
}

static void kept_settings(void **state)
{
    (void)state;
    struct preferences s;
    struct err why;
    char *path;
    write_file("dashboard.conf", "theme=light # as on paper\n mouse = off\n\n");
    CHECK_OK(preferences_read(&s, &why));
    CHECK_STR(s.theme, "light");
    CHECK(!s.mouse);
    preferences_done(&s);
    CHECK_OK(
        preferences_write(&path, &(struct preferences){ .theme = (char[]){ "dark" }, .mouse = true }, &why));
    CHECK_CONTAINS(path, "dashboard.conf");
    free(path);
    CHECK_OK(preferences_read(&s, &why));
    CHECK_STR(s.theme, "dark");
    CHECK(s.mouse);
    preferences_done(&s);
    static const char *const BAD[] = { "theme", "mouse = maybe", "colour = red", "theme =" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        write_file("dashboard.conf", BAD[i]);
        CHECK_EQ(preferences_read(&s, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, "line 1: expected");
        preferences_done(&s);
    }
}

int main(void)
{
    char path[256];
    snprintf(folder, sizeof folder, "/tmp/qdyno-theme-XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("QDYNO_SHARE", TEST_SOURCE_DIR "/share", 1);
    snprintf(path, sizeof path, "%s/qdyno/themes", folder);
    struct err why;
    CHECK_OK(file_make_dirs(path, &why));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),           cmocka_unit_test(every_role_at_every_level),
        cmocka_unit_test(without_colour),   cmocka_unit_test(colour_blind_safe),
        cmocka_unit_test(shipped_themes),   cmocka_unit_test(theme_files),
        cmocka_unit_test(text_is_readable), cmocka_unit_test(terminal_hints),
        cmocka_unit_test(kept_settings),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "rm -rf '%s'", folder);
    return system(path) ? 1 : failed;
}
