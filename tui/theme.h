/* tui/theme.h - how a role looks at each colour level. Roles are semantic: views never name a colour.
 *
 * Themes are files: a line per role, "better 5fafff 75 12 bold" (direct colour, index of 256, index of 16,
 * what stands for it without colours), - for the terminal's own foreground, # begins a comment; roles that
 * are not there look as in the default. The default is safe for colour-blind eyes (blue / orange, never red
 * against green), forces no background, and is only the second carrier of meaning: marks and words are the
 * first. */
#ifndef QDYNO_TUI_THEME_H
#define QDYNO_TUI_THEME_H

#include "tui/grid.h"

enum color_level { COLORS_MONO, COLORS_8, COLORS_16, COLORS_256, COLORS_DIRECT };

struct theme_row {
    uint32_t rgb;  /* direct colour 0xRRGGBB */
    int16_t c256;  /* index, -1: the terminal's own foreground */
    int16_t c16;   /* 0..15 */
    unsigned mono; /* STYLE_* without colours */
};
enum { THEME_NAME = 64 };
struct theme {
    char name[THEME_NAME];
    struct theme_row row[ROLE_COUNT]; /* indexed by enum role */
};
extern const struct theme THEME_DEFAULT;
extern const char *const ROLE_NAMES[ROLE_COUNT]; /* in theme files */

/* Errors: ERR_IO, ERR_NOMEM; ERR_FORMAT names the line and what it should be. *out is the default then. */
enum err_code theme_read(struct theme *out, const char *path, struct err *why);
/* "default"; a name: NAME.theme of $XDG_CONFIG_HOME/qdyno/themes, else of share/themes; anything with a slash
 * is a path. ERR_USAGE lists the names there are. */
enum err_code theme_find(struct theme *out, const char *name, struct err *why);
/* The names theme_find knows, "default" first, each once; at most `max`. Returns the count. */
int theme_names(char names[][THEME_NAME], int max);

/* colors: what terminfo says (8, 256, 1<<24 ...; below 8: none); direct: terminfo's RGB flag; want: false for
 * NO_COLOR. */
enum color_level color_level_choose(int colors, bool direct, bool want);
const char *color_level_name(enum color_level level);

/* The colour number to hand to the terminal at this level; -1: its own foreground. */
int32_t theme_color(const struct theme *t, enum role role, enum color_level level);

/* Attributes a style shows at this level: its own, plus the role's without colours (and bold for the bright
 * half of 16 colours where there are only 8). */
unsigned theme_attributes(const struct theme *t, unsigned style, enum color_level level);

#endif
