/* Proves: at every size from 1x1 to 250x80 no view writes outside its grid (canaries around the cells, and
 * address sanitizers in that build), and every wide character is whole. Drawn from the snapshots that are
 * hardest to fit. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/views/views.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_W = 250, MAX_H = 80, GUARD = 256 };
static const struct cell CANARY = { 0xdeadbeef, 0xbeef };

static void check_cells(const struct cell *all, int w, int h)
{
    for (int i = 0; i < GUARD; i++) {
        CHECK(!memcmp(&all[i].code, &CANARY.code, sizeof CANARY.code));
        CHECK(!memcmp(&all[GUARD + w * h + i].code, &CANARY.code, sizeof CANARY.code));
    }
    const struct cell *cells = all + GUARD;
    for (int i = 0; i < w * h; i++) {
        if (cells[i].code == CANARY.code || (cells[i].style & STYLE_ROLE) >= ROLE_COUNT)
            fail_msg("%dx%d: cell %d is not drawn right", w, h, i);
        if (cells[i].code == 0)
            CHECK(i % w > 0 && cells[i - 1].code >= 0x1100); /* right half of a wide one */
    }
}

static void draw_size(struct cell *all, const struct snapshot *s, const struct ui *u, int w, int h,
                      enum glyph_level level)
{
    for (int i = 0; i < w * h + 2 * GUARD; i++) all[i] = CANARY;
    struct grid g = { .w = w, .h = h, .glyphs = level, .cells = all + GUARD };
    view_draw(&g, s, u);
    check_cells(all, w, h);
    CHECK(g.hits < GRID_HITS); /* room for every place that can be clicked */
    for (int i = 0; i < g.hits; i++) {
        const struct rect *r = &g.hit[i].at;
        CHECK(r->w <= 0 || r->h <= 0 || (r->x >= 0 && r->y >= 0 && r->x + r->w <= w && r->y + r->h <= h));
    }
}

static struct ui ui_of(int variant)
{
    struct ui u = { .view = (enum view)(variant % VIEW_COUNT) };
    if (variant >= VIEW_COUNT) u.help = variant % 2;
    if (variant == VIEW_COUNT + 2) {
        u.help = false;
        form_show(&u.form, FORM_PALETTE, (const char *const[FORM_FIELDS]){ "a", NULL, NULL });
        u.palette_row = 3;
        return u;
    }
    if (variant == VIEW_COUNT + 3) {
        u.help = false;
        form_show(&u.form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ "quantize ", NULL, NULL });
        return u;
    }
    if (variant >= VIEW_COUNT && !u.help) {
        form_show(&u.form, FORM_AB,
                  (const char *const[FORM_FIELDS]){ "default",
                                         "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語",
                                         "tg64" });
        u.form.focus = 1;
    }
    return u;
}

/* Every size with one of the variants each, in turn: neighbours in size differ in view, all pairs come up. */
static void all_sizes(void **state)
{
    (void)state;
    struct cell *all = malloc(sizeof *all * (MAX_W * MAX_H + 2 * GUARD));
    struct snapshot *hard = fixture_extreme(), *first = fixture_empty(), *running = fixture_running(),
                    *arms = fixture_arms();
    const struct snapshot *shots[] = { hard, first, running, arms };
    assert_non_null(all);
    int variant = 0;
    for (int h = 1; h <= MAX_H; h++)
        for (int w = 1; w <= MAX_W; w++, variant++) {
            if ((w < LAYOUT_MIN_W || h < LAYOUT_MIN_H) && (w * 7 + h) % 3)
                continue; /* all the same text there */
            struct ui u = ui_of(variant % (VIEW_COUNT + 4));
            draw_size(all,
                      shots[variant % 5 == 0   ? 1
                            : variant % 5 == 1 ? 2
                            : variant % 5 == 2 ? 3
                                               : 0],
                      &u, w, h, (enum glyph_level)(variant % 3));
        }
    free(all);
    free(hard);
    free(first);
    free(running);
    free(arms);
}

/* Every view and overlay at the sizes where something begins or ends. */
static void edges(void **state)
{
    (void)state;
    static const int W[] = { 1, 2, 3, 79, 80, 81, 99, 100, 120, 249, 250 },
                     H[] = { 1, 2, 3, 23, 24, 25, 36, 60, 80 };
    struct cell *all = malloc(sizeof *all * (MAX_W * MAX_H + 2 * GUARD));
    struct snapshot *hard = fixture_extreme(), *failed = fixture_failed();
    assert_non_null(all);
    for (size_t i = 0; i < COUNT_OF(W); i++)
        for (size_t j = 0; j < COUNT_OF(H); j++)
            for (int variant = 0; variant < VIEW_COUNT + 4; variant++) {
                struct ui u = ui_of(variant);
                draw_size(all, hard, &u, W[i], H[j], GLYPHS_BRAILLE);
                draw_size(all, failed, &u, W[i], H[j], GLYPHS_BLOCKS);
            }
    free(all);
    free(hard);
    free(failed);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
