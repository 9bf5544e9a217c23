/* Proves: at every size from 1x1 to 200x60 no view writes outside of its grid (guard cells around it, and
 * address sanitizers in that build), every wide character is whole, no two panes overlap, no pane leaves the
 * body, and nothing is drawn over the frame of a pane; a zoomed pane is the only one, and so is the one of a
 * small screen. Uses the snapshots with
 * the longest texts. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/views/parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_W = 200, MAX_H = 60, GUARD = 256 };
/* one word, longer than any row */
static const char LONG_COMMAND[] =
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

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
        if (cells[i].code == 0) {
            CHECK_GT(i % w, 0);
            CHECK_GE(cells[i - 1].code, 0x1100);
        } /* right half of a wide one */
    }
}

static bool overlap(const struct rect *a, const struct rect *b)
{
    return MAX(a->x, b->x) < MIN(a->x + a->w, b->x + b->w) && MAX(a->y, b->y) < MIN(a->y + a->h, b->y + b->h);
}

static uint32_t code_at(const struct grid *g, int x, int y)
{
    return g->cells[y * g->w + x].code;
}

/* Corners and sides: the upper and the lower edge bear titles and notes. */
static bool frame_is_whole(const struct grid *g, const struct rect *r)
{
    const bool plain = g->glyphs == GLYPHS_ASCII;
    const int right = r->x + r->w - 1, low = r->y + r->h - 1;
    const uint32_t side = plain ? '|' : U'│';
    bool whole = code_at(g, r->x, r->y) == (plain ? '+' : U'┌') &&
                 code_at(g, right, r->y) == (plain ? '+' : U'┐') &&
                 code_at(g, r->x, low) == (plain ? '+' : U'└') &&
                 code_at(g, right, low) == (plain ? '+' : U'┘');
    for (int y = r->y + 1; y < low; y++)
        whole = whole && code_at(g, r->x, y) == side && code_at(g, right, y) == side;
    return whole;
}

/* The number of panes that are shown. */
static int check_panes(const struct grid *g, const struct snapshot *s, const struct ui *u)
{
    const struct rect body = layout_frame(g->w, g->h).body;
    const struct hit *pane[16];
    int n = 0, shown = 0;
    for (int i = 0; i < g->hits; i++)
        if (g->hit[i].kind == HIT_PANE) pane[n++] = &g->hit[i];
    if (n && n != pane_count(u->view, s))
        fail_msg("view %d names %d panes and has %d", u->view, pane_count(u->view, s), n);
    for (int i = 0; i < n; i++) {
        const struct rect *r = &pane[i]->at;
        if (r->w <= 0 || r->h <= 0) continue;
        shown++;
        if (r->x < body.x || r->y < body.y || r->x + r->w > body.x + body.w || r->y + r->h > body.y + body.h)
            fail_msg("%dx%d view %d: pane %s leaves the body", g->w, g->h, u->view, pane_name(u->view, i));
        for (int k = 0; k < i; k++)
            if (overlap(r, &pane[k]->at))
                fail_msg("%dx%d view %d: panes %s and %s overlap", g->w, g->h, u->view, pane_name(u->view, i),
                         pane_name(u->view, k));
        if (r->w > 1 && r->h > 1 && !frame_is_whole(g, r))
            fail_msg("%dx%d view %d: something is written over the frame of %s", g->w, g->h, u->view,
                     pane_name(u->view, i));
    }
    if (n > 1 && ((u->zoomed && u->pane[u->view]) || layout_frame(g->w, g->h).single))
        assert_int_equal(shown, 1);
    return shown;
}

/* The number of panes that were checked. */
static int draw_size(struct cell *all, const struct snapshot *s, const struct ui *u, int w, int h,
                     enum glyph_level level)
{
    for (int i = 0; i < w * h + 2 * GUARD; i++) all[i] = CANARY;
    struct grid g = { .w = w, .h = h, .glyphs = level, .cells = all + GUARD };
    view_draw(&g, s, u);
    check_cells(all, w, h);
    const bool covered = u->help || u->form.kind != FORM_CLOSED || u->page;
    const int panes = covered || w < VIEW_MIN_W || h < VIEW_MIN_H ? 0 : check_panes(&g, s, u);
    CHECK_LT(g.hits, GRID_HITS); /* room for every place that can be clicked */
    for (int i = 0; i < g.hits; i++) {
        const struct rect *r = &g.hit[i].at;
        if (r->w <= 0 || r->h <= 0) continue;
        CHECK_GE(r->x, 0);
        CHECK_GE(r->y, 0);
        CHECK_LE(r->x + r->w, w);
        CHECK_LE(r->y + r->h, h);
    }
    return panes;
}

enum { BROWSER = VIEW_COUNT + 4, MAKING, READING, ASKED, VARIANTS };

/* What lies over a view, filled with what is hardest to fit. */
static void overlays_fill(struct snapshot *s)
{
    struct folder *f = &s->folder;
    snprintf(f->path, sizeof f->path, "/m/");
    f->read = true;
    while (f->count < FOLDER_ENTRIES) {
        struct file_entry *e = &f->entry[f->count];
        *e = (struct file_entry){ .kind = (enum file_kind)(f->count % 4),
                                  .known = f->count % 3 > 0,
                                  .bytes = INT64_MAX >> f->count % 60,
                                  .params = INT64_MAX,
                                  .needs_bytes = f->count % 5 - 1 };
        memset(e->name, f->count % 2 ? 'n' : '/', sizeof e->name - 1);
        memcpy(e->name + 100, "日本語", strlen("日本語"));
        memset(e->arch, 'a', sizeof e->arch - 1);
        memset(e->format, 'f', sizeof e->format - 1);
        if (f->count % 7 == 0) memset(e->trouble, 't', sizeof e->trouble - 1);
        f->count++;
    }
    recipe_list_make(&s->recipes, NULL);
    for (int i = 0; i < s->recipes.count; i += 2)
        memset(s->recipes.row[i].refusal, 'r', sizeof s->recipes.row[i].refusal - 1);
    memset(s->page.title, 'p', sizeof s->page.title - 1);
    for (int i = 0; i <= PAGE_LINES; i++)
        text_page_put(&s->page, (enum page_tone)(i % 6), "%s%*d", i % 2 ? "日本語日本語" : "", 500, i);
    s->command = fixture_words(LONG_COMMAND);
    s->task_known = true;
    s->task = (struct task_progress){ .done = 7, .rate = 1e300, .left_s = 1e18 };
    memset(s->task.unit, 'u', sizeof s->task.unit - 1);
    memset(s->applied, 'a', sizeof s->applied - 1);
    s->busy.is_busy = true;
    memset(s->busy.by, 'b', sizeof s->busy.by - 1);
}

static struct ui ui_over(int variant)
{
    struct ui u = { .view = (enum view)(variant % VIEW_COUNT), .marked = { 12, 9 } };
    if (variant == BROWSER) form_show(&u.form, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/m/" });
    if (variant == MAKING) form_show(&u.form, FORM_QUANTIZE, NULL);
    u.form.chosen = variant == BROWSER ? 40 : -1;
    if (variant == READING) {
        u.page = true;
        u.page_row = 200;
        u.page_column = 7;
    }
    if (variant != ASKED) return u;
    memset(u.question.text, 'q', sizeof u.question.text - 1);
    u.question.command = fixture_words(LONG_COMMAND);
    return u;
}

static struct ui ui_of(int variant)
{
    if (variant >= BROWSER) return ui_over(variant);
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
        form_show(
            &u.form, FORM_AB,
            (const char *const[FORM_FIELDS]){
                "default", "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語", "tg64" });
        u.form.focus = 1;
    }
    return u;
}

/* Every view at every size that shows any: what is shown, glyphs, focus and full screen change with the size.
 */
static void every_view(void **state)
{
    (void)state;
    struct cell *all = malloc(sizeof *all * (MAX_W * MAX_H + 2 * GUARD));
    int frames_of_many = 0;
    struct snapshot *shots[] = { fixture_load(),         fixture_server(), fixture_running(),
                                 fixture_extreme(),      fixture_empty(),  fixture_arms(),
                                 fixture_idle(),         fixture_tune(),   fixture_tune_won(),
                                 fixture_tune_confirm(), fixture_ranks() };
    assert_non_null(all);
    for (int h = VIEW_MIN_H; h <= MAX_H; h++)
        for (int w = VIEW_MIN_W + h % 5; w <= MAX_W; w += 5) /* every width comes up within five rows */
            for (int view = 0; view < VIEW_COUNT; view++) {
                const int turn = w / 5 + h + view;
                struct ui u = { .view = (enum view)view, .zoomed = turn % 7 == 0 };
                u.pane[view] = turn % (pane_count(u.view, shots[turn % COUNT_OF(shots)]) + 1);
                frames_of_many += draw_size(all, shots[turn % COUNT_OF(shots)], &u, w, h,
                                            (enum glyph_level)(turn % 3)) > 1;
            }
    CHECK_GT(frames_of_many, 3000); /* panes were there to be checked */
    for (size_t i = 0; i < COUNT_OF(shots); i++) free(shots[i]);
    free(all);
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
    overlays_fill(hard);
    int variant = 0;
    for (int h = 1; h <= MAX_H; h++)
        for (int w = 1; w <= MAX_W; w++, variant++) {
            if ((w < VIEW_MIN_W || h < VIEW_MIN_H) && (w * 7 + h) % 3) continue; /* all the same text there */
            struct ui u = ui_of(variant % (VARIANTS));
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
    static const int W[] = { 1, 2, 3, 59, 60, 61, 79, 80, 81, 99, 100, 120, 199, 200 },
                     H[] = { 1, 2, 3, 15, 16, 17, 23, 24, 25, 33, 34, 36, 60 };
    struct cell *all = malloc(sizeof *all * (MAX_W * MAX_H + 2 * GUARD));
    struct snapshot *hard = fixture_extreme(), *failed = fixture_failed();
    assert_non_null(all);
    overlays_fill(hard);
    for (size_t i = 0; i < COUNT_OF(W); i++)
        for (size_t j = 0; j < COUNT_OF(H); j++)
            for (int variant = 0; variant < VARIANTS; variant++) {
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
        cmocka_unit_test(every_view),
        cmocka_unit_test(all_sizes),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
