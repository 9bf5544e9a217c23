/* tui/widgets/glyphs.c - ASCII replacements for characters that a terminal cannot show.
 *
 * Each replacement is one column wide, so layouts are the same at every glyph level. */
#include "tui/widgets/widgets.h"

#include <string.h>
#include <strings.h>
#include <wctype.h>

static const struct {
    uint32_t code;
    char ascii;
} STAND_INS[] = {
    { U'─', '-' }, { U'━', '=' }, { U'│', '|' }, { U'┃', '|' },  { U'┌', '+' }, { U'┐', '+' }, { U'└', '+' },
    { U'┘', '+' }, { U'├', '[' }, { U'┤', ']' }, { U'┼', '+' },  { U'┄', '.' }, { U'▲', '^' }, { U'▼', 'v' },
    { U'≈', '=' }, { U'✕', 'x' }, { U'●', 'o' }, { U'○', 'o' },  { U'◆', '*' }, { U'→', '>' }, { U'←', '<' },
    { U'…', '.' }, { U'·', '.' }, { U'±', '~' }, { U'°', '\'' }, { U'×', 'x' }, { U'≥', '>' }, { U'≤', '<' },
    { U'↑', '^' }, { U'↓', 'v' }, { U'✓', '+' }, { U'≠', '!' },  { U'░', ':' }, { U'▒', '+' }, { U'▓', '%' },
    { U'▸', '>' }, { U'−', '-' }, { U'◀', '<' }, { U'▶', '>' },
};

uint32_t glyph_at_level(uint32_t code, enum glyph_level level)
{
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return ' ';
    if (code < 0x7f) return code;
    if (level != GLYPHS_ASCII) return iswprint((wint_t)code) ? code : 0xfffd;
    for (size_t i = 0; i < COUNT_OF(STAND_INS); i++)
        if (STAND_INS[i].code == code) return (uint32_t)STAND_INS[i].ascii;
    if (code >= 0x2588 && code <= 0x258b) return '#'; /* more than half of a cell in a meter */
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
