/* tui/glyphs.c - what to draw where the pretty character cannot be shown.
 *
 * Stand-ins are one column each, so a screen looks the same in shape on a console of 1985. */
#include "tui/grid.h"

#include <string.h>
#include <strings.h>
#include <wctype.h>

static const struct {
    uint32_t code;
    char ascii;
} STAND_INS[] = {
    { 0x2500, '-' }, /* ─ */ { 0x2501, '=' }, /* ━ */ { 0x2502, '|' }, /* │ */ { 0x2503, '|' },  /* ┃ */
    { 0x250c, '+' }, /* ┌ */ { 0x2510, '+' }, /* ┐ */ { 0x2514, '+' }, /* └ */ { 0x2518, '+' },  /* ┘ */
    { 0x251c, '[' }, /* ├ */ { 0x2524, ']' }, /* ┤ */ { 0x253c, '+' }, /* ┼ */ { 0x2504, '.' },  /* ┄ */
    { 0x25b2, '^' }, /* ▲ */ { 0x25bc, 'v' }, /* ▼ */ { 0x2248, '=' }, /* ≈ */ { 0x2715, 'x' },  /* ✕ */
    { 0x25cf, 'o' }, /* ● */ { 0x25cb, 'o' }, /* ○ */ { 0x25c6, '*' }, /* ◆ */ { 0x2192, '>' },  /* → */
    { 0x2026, '.' }, /* … */ { 0x00b7, '.' }, /* · */ { 0x00b1, '~' }, /* ± */ { 0x00b0, '\'' }, /* ° */
    { 0x00d7, 'x' }, /* × */ { 0x2265, '>' }, /* ≥ */ { 0x2264, '<' }, /* ≤ */ { 0x2191, '^' },  /* ↑ */
    { 0x2193, 'v' }, /* ↓ */ { 0x2713, '+' }, /* ✓ */ { 0x2591, ':' }, /* ░ */ { 0x25b8, '>' }, /* ▸ */ { 0x2212, '-' },  /* − */
};

uint32_t glyph_at_level(uint32_t code, enum glyph_level level)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return ' ';
    if (code < 0x7f) return code;
    if (level != GLYPHS_ASCII) return iswprint((wint_t)code) ? code : 0xfffd;
    for (size_t i = 0; i < COUNT_OF(STAND_INS); i++)
        if (STAND_INS[i].code == code) return (uint32_t)STAND_INS[i].ascii;
    if (code >= 0x2588 && code <= 0x258b) return '#'; /* more than half of a meter's cell */
    if (code >= 0x258c && code <= 0x258f) return '-';
    return '?';
}

enum glyph_level glyph_level_choose(const char *codeset, const char *term, const char *wanted)
{
    bool utf8 = codeset && (!strcasecmp(codeset, "UTF-8") || !strcasecmp(codeset, "utf8"));
    enum glyph_level level = utf8 ? GLYPHS_BRAILLE : GLYPHS_ASCII;
    if (utf8 && term && !strcmp(term, "linux")) level = GLYPHS_BLOCKS; /* the console's font has no braille */
    if (!utf8 || !wanted) return level;
    if (!strcmp(wanted, "ascii")) level = GLYPHS_ASCII;
    if (!strcmp(wanted, "blocks")) level = GLYPHS_BLOCKS;
    if (!strcmp(wanted, "braille")) level = GLYPHS_BRAILLE;
    return level;
}
