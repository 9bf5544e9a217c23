/* Proves: the bytes sent to a terminal for each view, at three sizes and three colour levels: 24-bit colour
 * with braille, 16 colours with blocks, no colours in ASCII. `cat` shows the files of tests/golden/frames.
 *
 * After an intended change: QDYNO_UPDATE_GOLDEN=1 ./test_frames rewrites them; look at the difference. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/widgets/widgets.h"
#include "tui/views/views.h"

#include <stdlib.h>
#include <string.h>

static const struct level {
    const char *name;
    enum color_level colors;
    enum glyph_level glyphs;
} LEVELS[] = { { "direct", COLORS_DIRECT, GLYPHS_BRAILLE },
               { "16", COLORS_16, GLYPHS_BLOCKS },
               { "mono", COLORS_MONO, GLYPHS_ASCII } };
static const int SIZES[][2] = { { 80, 24 }, { 120, 36 }, { 200, 60 } };

/* ---------------------------------------------------------------- what a terminal gets */

static void put_color(struct str *out, int32_t color, enum color_level level)
{
    if (color < 0) return;
    if (level == COLORS_DIRECT)
        str_printf(out, ";38;2;%d;%d;%d", color >> 16 & 255, color >> 8 & 255, color & 255);
    else
        str_printf(out, ";%d", color < 8 ? 30 + color : 90 + color - 8);
}

static void put_style(struct str *out, unsigned style, enum color_level level)
{
    const unsigned attributes = theme_attributes(&THEME_DEFAULT, style, level);
    str_append(out, "\033[0");
    if (attributes & STYLE_BOLD) str_append(out, ";1");
    if (attributes & STYLE_UNDERLINE) str_append(out, ";4");
    if (attributes & STYLE_REVERSE) str_append(out, ";7");
    put_color(out, theme_color(&THEME_DEFAULT, (enum role)(style & STYLE_ROLE), level), level);
    str_append(out, "m");
}

/* A blank without underline or reverse looks alike in every colour. */
static bool is_blank(const struct cell *c, enum color_level level)
{
    return c->code == ' ' &&
           !(theme_attributes(&THEME_DEFAULT, c->style, level) & (STYLE_UNDERLINE | STYLE_REVERSE));
}

static char *painted(const struct grid *g, enum color_level level)
{
    struct str out = { 0 };
    for (int y = 0; y < g->h; y++) {
        const struct cell *row = g->cells + y * g->w;
        int end = g->w, style = -1;
        while (end > 0 && is_blank(&row[end - 1], level)) end--;
        for (int x = 0; x < end; x++) {
            char utf8[4];
            if (!row[x].code) continue;
            if (row[x].style != style && !is_blank(&row[x], level))
                put_style(&out, style = row[x].style, level);
            str_append_n(&out, utf8, str_utf8_put(row[x].code, utf8));
        }
        str_append(&out, end ? "\033[0m\n" : "\n");
    }
    return str_take(&out);
}

/* ---------------------------------------------------------------- */

static char *draw(const struct snapshot *s, int view, int w, int h, const struct level *level)
{
    struct grid g;
    struct err why;
    struct ui u = { .view = (enum view)view };
    CHECK_OK(grid_open(&g, w, h, level->glyphs, &why));
    view_draw(&g, s, &u);
    char *text = painted(&g, level->colors);
    grid_close(&g);
    return text;
}

static void file_name(char *path, size_t size, int view, int w, int h, const char *level)
{
    char name[32];
    snprintf(name, sizeof name, "%s", VIEWS[view].name);
    for (char *p = name; *p; p++) *p = *p == '/' ? '_' : *p;
    snprintf(path, size, "%s/tests/golden/frames/%s_%dx%d_%s.txt", TEST_SOURCE_DIR, name, w, h, level);
}

static void check_golden(const char *path, const char *got)
{
    struct err why;
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CHECK(f);
        CHECK_GE(fputs(got, f), 0);
        CHECK_EQ(fclose(f), 0);
        return;
    }
    char *want = NULL;
    if (file_read(&want, NULL, path, 1 << 20, &why))
        fail_msg("%s (QDYNO_UPDATE_GOLDEN=1 writes it)", why.message);
    if (strcmp(want, got)) fail_msg("%s differs; painted now:\n%s", path, got);
    free(want);
}

static void every_view_size_and_level(void **state)
{
    (void)state;
    struct snapshot *running = fixture_running(), *tune = fixture_tune();
    for (int view = 0; view < VIEW_COUNT; view++)
        for (size_t z = 0; z < COUNT_OF(SIZES); z++)
            for (size_t i = 0; i < COUNT_OF(LEVELS); i++) {
                char path[600];
                const int w = SIZES[z][0], h = SIZES[z][1];
                char *got = draw(view == VIEW_TUNE ? tune : running, view, w, h, &LEVELS[i]);
                file_name(path, sizeof path, view, w, h, LEVELS[i].name);
                check_golden(path, got);
                free(got);
            }
    free(running);
    free(tune);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_view_size_and_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
