/* tui/theme.c - the default theme: one row per role. */
#include "tui/theme.h"

const struct theme_row THEME[ROLE_COUNT] = {
    /* role             name      rgb       256  16  without colour */
    [ROLE_TEXT] = { "text", 0, -1, -1, 0 },
    [ROLE_DIM] = { "dim", 0x8a8a8a, 245, 8, 0 },
    [ROLE_TITLE] = { "title", 0x87afd7, 110, 14, STYLE_BOLD },
    [ROLE_BORDER] = { "border", 0x6c6c6c, 242, 8, 0 },
    [ROLE_KEY] = { "key", 0x5fafff, 75, 12, STYLE_BOLD },
    [ROLE_METER] = { "meter", 0x5f87af, 67, 6, 0 },
    [ROLE_GRAPH] = { "graph", 0x87afaf, 109, 6, 0 },
    [ROLE_ARM_A] = { "arm-a", 0xd7af5f, 179, 11, 0 },
    [ROLE_ARM_B] = { "arm-b", 0x5fd7ff, 81, 14, 0 },
    [ROLE_BETTER] = { "better", 0x5fafff, 75, 12, STYLE_BOLD },
    [ROLE_WORSE] = { "worse", 0xff8700, 208, 3, STYLE_BOLD | STYLE_UNDERLINE },
    [ROLE_EQUAL] = { "equal", 0xbcbcbc, 250, 7, 0 },
    [ROLE_UNSURE] = { "unsure", 0xd7d787, 186, 11, 0 },
    [ROLE_WARN] = { "warning", 0xffaf00, 214, 11, STYLE_BOLD },
    [ROLE_ERROR] = { "error", 0xff5f5f, 203, 9, STYLE_BOLD | STYLE_REVERSE },
};

enum color_level color_level_choose(int colors, bool direct, bool want)
{
    if (!want || colors < 8) return COLORS_MONO;
    if (direct && colors >= 1 << 24) return COLORS_DIRECT;
    if (colors >= 256) return COLORS_256;
    return colors >= 16 ? COLORS_16 : COLORS_8;
}

const char *color_level_name(enum color_level level)
{
    static const char *const NAMES[] = { "no colour", "8 colours", "16 colours", "256 colours",
                                         "true colour" };
    return NAMES[level];
}

int32_t theme_color(enum role role, enum color_level level)
{
    const struct theme_row *r = &THEME[role];
    if (level == COLORS_MONO || r->c256 < 0) return -1;
    if (level == COLORS_DIRECT) return (int32_t)r->rgb;
    if (level == COLORS_256) return r->c256;
    if (level == COLORS_16) return r->c16;
    return r->c16 == 8 ? -1 : r->c16 & 7; /* bright black on 8 colours would be black on black */
}

unsigned theme_attributes(unsigned style, enum color_level level)
{
    const struct theme_row *r = &THEME[style & STYLE_ROLE];
    unsigned attributes = style & ~(unsigned)STYLE_ROLE;
    if (level == COLORS_MONO) attributes |= r->mono;
    if (level == COLORS_8 && r->c16 > 8) attributes |= STYLE_BOLD;
    return attributes;
}
