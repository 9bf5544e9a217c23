/* tui/theme.h - how a role looks at each colour level. Roles are semantic: views never name a colour.
 *
 * The default is safe for colour-blind eyes (blue / orange, never red against green), forces no background,
 * and is only the second carrier of meaning: marks and words are the first. */
#ifndef QDYNO_TUI_THEME_H
#define QDYNO_TUI_THEME_H

#include "tui/grid.h"

enum color_level { COLORS_MONO, COLORS_8, COLORS_16, COLORS_256, COLORS_DIRECT };

struct theme_row {
    const char *name;
    uint32_t rgb;  /* direct colour 0xRRGGBB */
    int16_t c256;  /* index, -1: the terminal's own foreground */
    int16_t c16;   /* 0..15 */
    unsigned mono; /* STYLE_* without colours */
};
extern const struct theme_row THEME[ROLE_COUNT]; /* indexed by enum role */

/* colors: what terminfo says (8, 256, 1<<24 ...; below 8: none); direct: terminfo's RGB flag; want: false for
 * NO_COLOR. */
enum color_level color_level_choose(int colors, bool direct, bool want);
const char *color_level_name(enum color_level level);

/* The colour number to hand to the terminal at this level; -1: its own foreground. */
int32_t theme_color(enum role role, enum color_level level);

/* Attributes a style shows at this level: its own, plus the role's without colours (and bold for the bright
 * half of 16 colours where there are only 8). */
unsigned theme_attributes(unsigned style, enum color_level level);

#endif
