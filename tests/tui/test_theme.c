/* Proves: the colour level follows the terminal and NO_COLOR; every role has a look at every level; without
 * colours the roles that carry state differ by attributes; better and worse differ for colour-blind eyes. */
#include "tests/check.h"
#include "tui/theme.h"

#include <math.h>

static void levels(void **state)
{
    (void)state;
    CHECK(color_level_choose(1 << 24, true, true) == COLORS_DIRECT);
    CHECK(color_level_choose(1 << 24, false, true) == COLORS_256); /* many colours, but not as RGB numbers */
    CHECK(color_level_choose(256, false, true) == COLORS_256);
    CHECK(color_level_choose(88, false, true) == COLORS_16);
    CHECK(color_level_choose(16, false, true) == COLORS_16);
    CHECK(color_level_choose(8, false, true) == COLORS_8);
    CHECK(color_level_choose(0, false, true) == COLORS_MONO);
    CHECK(color_level_choose(-1, false, true) == COLORS_MONO);
    CHECK(color_level_choose(1 << 24, true, false) == COLORS_MONO); /* NO_COLOR wins */
}

static void every_role_at_every_level(void **state)
{
    (void)state;
    static const int32_t LIMIT[] = {
        [COLORS_MONO] = 0, [COLORS_8] = 8, [COLORS_16] = 16, [COLORS_256] = 256, [COLORS_DIRECT] = 1 << 24
    };
    for (int level = COLORS_MONO; level <= COLORS_DIRECT; level++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            int32_t color = theme_color((enum role)role, (enum color_level)level);
            CHECK(color >= -1 && color < LIMIT[level]);
            CHECK(color != 0 || level == COLORS_DIRECT); /* black on black */
            CHECK(THEME[role].name != NULL);
        }
    for (int role = 0; role < ROLE_COUNT; role++) CHECK(theme_color((enum role)role, COLORS_MONO) == -1);
}

static void without_colour(void **state)
{
    (void)state;
    unsigned better = theme_attributes(ROLE_BETTER, COLORS_MONO),
             worse = theme_attributes(ROLE_WORSE, COLORS_MONO);
    unsigned plain = theme_attributes(ROLE_TEXT, COLORS_MONO),
             error = theme_attributes(ROLE_ERROR, COLORS_MONO);
    CHECK(better != worse && better != plain && worse != plain && error != plain && error != worse);
    CHECK(theme_attributes(ROLE_TEXT | STYLE_REVERSE, COLORS_MONO) == STYLE_REVERSE);
    CHECK(theme_attributes(ROLE_TEXT | STYLE_REVERSE, COLORS_256) == STYLE_REVERSE);
    CHECK(theme_attributes(ROLE_WORSE, COLORS_256) == 0);
}

/* Blue against orange: they must differ in the blue channel and in lightness, not only red against green. */
static void colour_blind_safe(void **state)
{
    (void)state;
    uint32_t better = THEME[ROLE_BETTER].rgb, worse = THEME[ROLE_WORSE].rgb;
    CHECK(abs((int)(better & 0xff) - (int)(worse & 0xff)) > 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(every_role_at_every_level),
        cmocka_unit_test(without_colour),
        cmocka_unit_test(colour_blind_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
