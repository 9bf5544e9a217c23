/* Proves: the palette finds keys, settings and commands by a few of their letters, the best match first;
 * results never exceed their array; a click reaches what is drawn on top. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/views/views.h"

#include <stdlib.h>
#include <string.h>

static const struct palette_command COMMANDS_HERE[] = { { "quantize", "IN OUT", "a model file by a recipe" },
                                                        { "eval", "-m M", "perplexity" },
                                                        { "ab", "A B", "an experiment" } };

static const char *first(const char *text)
{
    static struct palette_entry found[PALETTE_ROWS];
    const int n = palette_find(text, COMMANDS_HERE, (int)COUNT_OF(COMMANDS_HERE), found, PALETTE_ROWS);
    return n ? found[0].name : "";
}

static void scores(void **state)
{
    (void)state;
    CHECK_EQ(palette_score("", "anything"), 0);
    CHECK_LT(palette_score("xyz", "threads"), 0);
    CHECK_LT(palette_score("sdaerht", "threads"), 0); /* letters must be in order */
    CHECK_GT(palette_score("thr", "threads"), palette_score("thr", "attahar"));
    CHECK_GT(palette_score("ab", "new A/B"), palette_score("ab", "table"));
    CHECK_GT(palette_score("ab", "ab"), palette_score("ab", "ab-more"));
    CHECK_GT(palette_score("B NEW", "new A/B"), 0); /* words in any order, any case */
}

static void finds(void **state)
{
    (void)state;
    assert_string_equal(first("threads"), "threads");
    assert_string_equal(first("thrds"), "threads");
    assert_string_equal(first("quant"), "quantize");
    assert_string_equal(first("history"), "show history");
    assert_string_equal(first("next th"), "next theme");
    assert_string_equal(first("perplexity"), "show quality"); /* found in the help text */
    assert_string_equal(first("qqqq"), "");
    struct palette_entry found[3];
    CHECK_EQ(palette_find("", COMMANDS_HERE, 3, found, 3), 3);
    CHECK_EQ(found[0].kind, PALETTE_KEY);
    CHECK_EQ(found[0].key, &KEYS[0]); /* nothing typed: the order of the table */
    CHECK_EQ(palette_find("e", COMMANDS_HERE, 3, found, 1), 1);
    CHECK_EQ(palette_find("e", COMMANDS_HERE, 3, found, 0), 0);
}

/* Everything there is can be reached by typing its whole name. */
static void everything_is_reachable(void **state)
{
    (void)state;
    for (int i = 0; i < KNOB_COUNT; i++) assert_string_equal(first(KNOBS[i].key), KNOBS[i].key);
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (KEYS[i].title) assert_string_equal(first(KEYS[i].title), KEYS[i].title);
}

static struct hit hit_on(const struct grid *g, const char *text)
{
    struct str lines = { 0 };
    struct hit h = { .kind = HIT_NOTHING, .what = -1 };
    grid_text(g, &lines);
    int y = 0;
    for (char *line = lines.data, *next; line && *line; line = next, y++) {
        next = strchr(line, '\n');
        *next++ = '\0';
        const char *at = strstr(line, text);
        if (!at) continue;
        char before[1024];
        snprintf(before, sizeof before, "%.*s", (int)(at - line), line);
        h = grid_hit_at(g, text_columns(before), y);
    }
    str_free(&lines);
    return h;
}

static void clicks(void **state)
{
    (void)state;
    struct grid g;
    struct err why;
    struct snapshot *s = fixture_running();
    struct ui u = { .view = VIEW_HISTORY, .commands = COMMANDS_HERE, .command_count = 3 };
    CHECK_OK(grid_open(&g, 120, 36, GLYPHS_BRAILLE, &why));
    view_draw(&g, s, &u);
    struct hit h = hit_on(&g, "stop");
    CHECK_EQ(h.kind, HIT_ACTION);
    CHECK_EQ(h.what, DO_STOP);
    h = hit_on(&g, "quit");
    CHECK_EQ(h.kind, HIT_ACTION);
    CHECK_EQ(h.what, DO_QUIT);
    char row[32];
    snprintf(row, sizeof row, " %lld ", (long long)s->run[2].id);
    h = hit_on(&g, row);
    CHECK_EQ(h.kind, HIT_ROW);
    CHECK_EQ(h.what, 2);
    CHECK_EQ(grid_hit_at(&g, 500, 500).kind, HIT_NOTHING);
    CHECK_EQ(grid_hit_at(&g, -1, 0).kind, HIT_NOTHING);
    form_show(&u.form, FORM_PALETTE, (const char *const[FORM_FIELDS]){ "quant", NULL, NULL });
    view_draw(&g, s, &u);
    h = hit_on(&g, "a model file by a recipe");
    CHECK_EQ(h.kind, HIT_ENTRY);
    CHECK_EQ(h.what, 1);                          /* after the key with the same name */
    CHECK_EQ(hit_on(&g, "quit").kind, HIT_CLOSE); /* the palette covers what is below */
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0", "tg64" });
    view_draw(&g, s, &u);
    h = hit_on(&g, "workload  ✓");
    CHECK_EQ(h.kind, HIT_FIELD);
    CHECK_EQ(h.what, 2);
    CHECK_EQ(hit_on(&g, "quit").kind, HIT_NOTHING);
    grid_close(&g);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(finds),
        cmocka_unit_test(everything_is_reachable),
        cmocka_unit_test(clicks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
