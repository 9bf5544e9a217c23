/* Proves: every list filters, sorts by each of its columns, keeps its selection on the same item while rows
 * come and go, and says how many rows are out of sight; lines that are shortened stay different; Esc goes
 * back one step at a time; a deleted run can be restored. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "db/db.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/actions.h"
#include "tui/views/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct effect press(struct ui *u, const struct snapshot *s, int key)
{
    const struct effect e = input_key(u, s, key);
    ui_clamp(u, s); /* as each frame does */
    return e;
}

static void type(struct ui *u, const struct snapshot *s, const char *keys)
{
    while (*keys) press(u, s, (unsigned char)*keys++);
}

static void filters(void **state)
{
    (void)state;
    CHECK(list_filter_holds("", "anything"));
    CHECK(list_filter_holds("Q8", "q8_0,threads=2"));
    CHECK(!list_filter_holds("q4", "q8_0"));
    CHECK(list_filter_holds("!q4", "q8_0"));
    CHECK(!list_filter_holds("!q8", "q8_0"));
    CHECK(list_filter_holds("!", "q8_0")); /* the text is not typed yet */
}

/* Each list: a text that no row has leaves no row, its opposite leaves all, every column sorts. */
static void every_list(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER), *search = fixture_tune();
    int lists = 0;
    s->tune = search->tune;
    free(search);
    for (int view = 0; view < VIEW_COUNT; view++) {
        const struct list *l = &LISTS[view];
        struct ui u = { .view = (enum view)view };
        int items[LIST_ROWS], sorted[LIST_ROWS];
        if (!l->items) continue;
        lists++;
        s->queued = 2; /* the queue is the only empty list of this snapshot */
        s->queue[0] = (struct queued_job){ .id = 5, .command = fixture_words("ab default q8_0") };
        s->queue[1] = (struct queued_job){ .id = 4, .command = fixture_words("quantize a b"), .since_ms = 9 };
        const int n = list_order(&u, s, items);
        CHECK_GE(n, 1);
        snprintf(u.list[view].filter, LIST_FILTER, "no row has this");
        CHECK_EQ(list_order(&u, s, sorted), 0);
        CHECK_EQ(list_selected(&u, s), -1);
        snprintf(u.list[view].filter, LIST_FILTER, "!no row has this");
        CHECK_EQ(list_order(&u, s, sorted), n);
        for (int c = 0; c < list_columns(l); c++) {
            const struct list_column *by = &l->column[c];
            if (!by->title[0]) continue;
            assert_string_equal(list_sort_by(&u, c), by->title);
            CHECK_EQ(list_order(&u, s, sorted), n);
            for (int i = 1; i < n && by->value; i++) {
                const double before = by->value(s, sorted[i - 1]), after = by->value(s, sorted[i]);
                CHECK(isnan(after) || before >= after);
            }
            list_sort_by(&u, c);
            CHECK(u.list[view].reversed);
        }
        u.list[view] = (struct list_state){ .sort = 0 };
        int steps = 0;
        while (*list_sort_next(&u)) steps++;
        CHECK_GE(steps, 2);
        CHECK_EQ(u.list[view].sort, 0);
    }
    CHECK_GE(lists, 7);
    free(s);
}

static void a_filter_takes_effect_while_it_is_typed(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_MODEL };
    const int all = ui_rows(&u, s);
    press(&u, s, '/');
    CHECK_EQ(u.form.kind, FORM_FILTER);
    type(&u, s, "ffn");
    const int some = ui_rows(&u, s);
    CHECK_LT(some, all);
    CHECK_GE(some, 1);
    press(&u, s, UI_KEY_DOWN); /* arrow keys move while the filter is typed */
    CHECK_EQ(u.selected[VIEW_MODEL], 1);
    press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    CHECK_EQ(ui_rows(&u, s), some);
    press(&u, s, UI_KEY_ENTER); /* deeper: the details of the tensor */
    CHECK(u.explains);
    press(&u, s, UI_KEY_ESC); /* back: the details, the filter, the view */
    CHECK(!u.explains);
    CHECK_EQ(ui_rows(&u, s), some);
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(ui_rows(&u, s), all);
    CHECK_EQ(u.view, VIEW_MODEL);
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(u.view, VIEW_LIVE);
    u.view = VIEW_MODEL;
    press(&u, s, '/');
    type(&u, s, "ffn");
    press(&u, s, UI_KEY_ESC); /* giving up shows all rows again */
    CHECK_EQ(ui_rows(&u, s), all);
    free(s);
    arena_free(&u.texts);
}

/* Between Enter and the answer of the database the rows without the filter are still known, and after Esc
 * those with it. Keys pressed meanwhile must not act on rows that are about to go. */
static void an_accepted_filter_shows_no_other_rows(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY };
    const int all = ui_rows(&u, s);
    press(&u, s, '/');
    type(&u, s, "q8_0");
    const int some = ui_rows(&u, s);
    CHECK_LT(some, all);
    CHECK_GE(some, 1);
    press(&u, s, UI_KEY_ENTER);
    CHECK_EQ(ui_rows(&u, s), some);
    snprintf(s->run_filter, sizeof s->run_filter, "%s",
             u.filter);            /* the answer: the database searches more */
    CHECK_EQ(ui_rows(&u, s), all); /* than the columns */
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(ui_rows(&u, s), all);
    free(s);
    arena_free(&u.texts);
}

static void the_selection_stays_on_its_item(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY };
    ui_clamp(&u, s);
    press(&u, s, 'j');
    press(&u, s, 'j');
    const int64_t id = ui_run(&u, s)->id;
    memmove(s->run + 1, s->run, sizeof s->run[0] * (size_t)s->run_count); /* a new run comes */
    s->run[0].id = 99;
    s->run_count++;
    ui_clamp(&u, s);
    CHECK_EQ(ui_run(&u, s)->id, id);
    press(&u, s, '>'); /* another order */
    CHECK_EQ(ui_run(&u, s)->id, id);
    press(&u, s, '<');
    CHECK_EQ(ui_run(&u, s)->id, id);
    u.view = VIEW_LOG; /* the log follows its newest line until a person selects another one */
    ui_clamp(&u, s);
    CHECK_EQ(list_selected(&u, s), s->log_count - 1);
    s->log[s->log_count] = (struct log_line){ .unix_ms = s->unix_ms, .text = "one more" };
    s->log_count++;
    ui_clamp(&u, s);
    assert_string_equal(s->log[list_selected(&u, s)].text, "one more");
    press(&u, s, 'k');
    const int older = list_selected(&u, s);
    CHECK_EQ(older, s->log_count - 2);
    s->log[s->log_count] = (struct log_line){ .unix_ms = s->unix_ms + 1, .text = "another" };
    s->log_count++;
    ui_clamp(&u, s);
    CHECK_EQ(list_selected(&u, s), older);
    press(&u, s, 'G');
    assert_string_equal(s->log[list_selected(&u, s)].text, "another");
    free(s);
    arena_free(&u.texts);
}

static void deleting_and_restoring(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY, .selected = { [VIEW_HISTORY] = 1 }, .marked = { 11, 0 } };
    const int64_t id = ui_run(&u, s)->id;
    CHECK_EQ(id, 11);
    struct effect e = input_key(&u, s, 'x');
    CHECK_EQ(e.job.run, job_delete_run);
    CHECK_EQ(e.job.id, id);
    CHECK_EQ(u.marked[0], 0); /* a run that is gone cannot be compared */
    e = input_key(&u, s, 'u');
    CHECK_EQ(e.job.run, job_restore_run);
    CHECK_EQ(e.job.id, id);
    e = input_key(&u, s, 'u'); /* nothing was deleted: the other meaning of the key */
    CHECK_EQ(e.requests, REQUEST_RUN_COMMAND);
    CHECK_CONTAINS(line_of(&e.command), "apply --undo");
    snprintf(s->run[0].state, sizeof s->run[0].state, "running");
    u.selected[VIEW_HISTORY] = 0;
    e = input_key(&u, s, 'x');
    CHECK(e.is_error);
    CHECK_CONTAINS(e.message, "being measured");
    u.read_only = true;
    CHECK_CONTAINS(input_key(&u, s, 'x').message, "read-only");
    free(s);
    arena_free(&u.texts);
}

static void one_step_back(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY, .selected = { [VIEW_HISTORY] = 1 } };
    press(&u, s, UI_KEY_ENTER); /* an A/B opens in its view */
    CHECK_EQ(u.view, VIEW_AB);
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(u.view, VIEW_HISTORY);
    press(&u, s, 'b'); /* a form with a selected suggestion takes two */
    press(&u, s, UI_KEY_DOWN);
    CHECK_GE(u.form.chosen, 0);
    press(&u, s, UI_KEY_F1);
    CHECK(u.explains);
    press(&u, s, UI_KEY_ESC);
    CHECK(!u.explains);
    CHECK_EQ(u.form.kind, FORM_AB);
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(u.form.chosen, -1);
    CHECK_EQ(u.form.kind, FORM_AB);
    press(&u, s, UI_KEY_ESC);
    CHECK_EQ(u.form.kind, FORM_CLOSED);
    CHECK_EQ(u.view, VIEW_HISTORY);
    free(s);
    arena_free(&u.texts);
}

/* Each field of each form is explained; a question mark stays a letter where it can be one. */
static void every_field_is_explained(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct text_page *page = malloc(sizeof *page);
    for (int kind = FORM_CLOSED + 1; kind < FORM_KIND_COUNT; kind++) {
        struct ui u = { 0 };
        if (kind == FORM_PALETTE || kind == FORM_FILTER) continue;
        form_show(&u.form, (enum form_kind)kind, NULL);
        for (u.form.focus = 0; u.form.focus < FORMS[kind].fields; u.form.focus++) {
            CHECK(field_explained(page, &u, s));
            CHECK_GE(page->count, 1);
            CHECK(page->line[0].text[0]);
        }
        u.form.focus = 0;
        press(&u, s, '?');
        CHECK_EQ(u.explains, !field_takes_question_mark(form_asks(&u.form)));
    }
    free(page);
    free(s);
}

static void shortened_lines_stay_different(void **state)
{
    (void)state;
    static const char *const LINES[] = { "q4_K,threads=2,act=int8,kv=q8_0,hugepages=all",
                                         "q4_K,threads=2,act=int8,kv=f16,hugepages=all",
                                         "q5_K,threads=2,act=int8,kv=f16,hugepages=all" };
    char short_line[3][200];
    for (int i = 0; i < 3; i++) {
        text_shorten(LINES[i], LINES, 3, 20, short_line[i], sizeof short_line[i]);
        CHECK_LE(text_columns(short_line[i]), 20);
        for (int k = 0; k < i; k++) assert_string_not_equal(short_line[i], short_line[k]);
    }
    assert_string_equal(short_line[0], "q4_K,…,kv=q8_0,…");
    assert_string_equal(text_shorten("q8_0", LINES, 3, 20, short_line[0], 200), "q8_0");
    /* what only some lines have tells them apart: it stays, wherever in the line it is */
    static const char *const SEARCH[] = {
        "affinity=spread,act=int8,kv=q8_0,hugepages=off,repack=on,compile=autotune",
        "affinity=spread,act=int8,hugepages=off,repack=on,compile=autotune",
        "affinity=spread,act=int8,hugepages=all,repack=on,compile=autotune",
        "affinity=spread,act=int8,hugepages=off,repack=off,compile=autotune",
    };
    char row[COUNT_OF(SEARCH)][200];
    for (size_t i = 0; i < COUNT_OF(SEARCH); i++) {
        text_shorten(SEARCH[i], SEARCH, COUNT_OF(SEARCH), 30, row[i], sizeof row[i]);
        CHECK_GE(30, text_columns(row[i]));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(row[i], row[k]);
    }
    CHECK_CONTAINS(row[0], "kv=q8_0");
    CHECK_CONTAINS(row[2], "hugepages=all");
    CHECK_CONTAINS(row[3], "repack=off");
    /* what both arms of one line have gives way */
    assert_string_equal(
        text_shorten("q8_0,threads=2,numa=off vs q4_0,threads=2,numa=off", NULL, 0, 20, short_line[0], 200),
        "q8_0,… vs q4_0,…");
    assert_string_equal(text_shorten("abcdefghijklmnop", NULL, 0, 9, short_line[0], 200), "abcd…mnop");
}

/* What a command prints into a pipe is Markdown: on the screen it is a table, or a list where that is too
 * wide, and nothing lies beyond the right edge. */
static void a_page_fits_the_screen(void **state)
{
    (void)state;
    struct text_page *page = calloc(1, sizeof *page), *fits = calloc(1, sizeof *fits);
    text_page_put(page, PAGE_PLAIN, "| config | tok/s |");
    text_page_put(page, PAGE_PLAIN, "| ------ | ----: |");
    text_page_put(page, PAGE_PLAIN, "| a\\|b    |   9.5 |");
    text_page_put(page, PAGE_PLAIN, "| default | 12.25 |");
    text_page_put(page, PAGE_PLAIN, "run 5; to print it again: qdyno show 5");
    text_page_fit(fits, page, 60);
    CHECK_EQ(fits->count, 4);
    CHECK_STR(fits->line[0].text, "config   tok/s");
    CHECK_STR(fits->line[1].text, "a|b        9.5");
    CHECK_STR(fits->line[2].text, "default  12.25");
    CHECK_EQ(fits->line[0].tone, PAGE_HEAD);
    CHECK_STR(fits->line[3].text, "run 5; to print it again: qdyno show 5");
    text_page_fit(fits, page, 12);
    CHECK_STR(fits->line[0].text, "config  a|b");
    CHECK_STR(fits->line[1].text, "tok/s   9.5");
    CHECK_STR(fits->line[3].text, "config");
    for (int i = 0; i < fits->count; i++) CHECK_LE(text_columns(fits->line[i].text), 12);
    /* a line that only looks like a table, and tables that are cut, are text */
    page->count = 1;
    text_page_fit(fits, page, 60);
    CHECK_STR(fits->line[0].text, "| config | tok/s |");
    free(page);
    free(fits);
}

/* The edge of a long list says how many rows are above and below. */
static void scroll_marks(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_SETTINGS, .selected = { [VIEW_SETTINGS] = KNOB_COUNT / 2 } };
    struct grid g;
    struct err why;
    struct str text = { 0 };
    CHECK_OK(grid_open(&g, 80, 24, GLYPHS_BRAILLE, &why));
    view_draw(&g, s, &u);
    grid_text(&g, &text);
    CHECK_CONTAINS(str_text(&text), " ↑");
    CHECK_CONTAINS(str_text(&text), " ↓");
    bool sortable = false;
    for (int i = 0; i < g.hits; i++)
        if (g.hit[i].kind == HIT_COLUMN) {
            sortable = true;
            CHECK_CONTAINS(input_click(&u, s, g.hit[i]).message, "sorted by");
        }
    CHECK(sortable);
    str_free(&text);
    grid_close(&g);
    free(s);
    arena_free(&u.texts);
}

/* Settings are found by the names that other programs give them, and those that qdyno lacks say so. */
static void settings_are_found_by_other_names(void **state)
{
    (void)state;
    static const struct {
        const char *typed;
        int row;
    } CASES[] = { { "gpu layers", KNOB_GPU_LAYERS },
                  { "flash attention", KNOB_ATTENTION },
                  { "kv_cache_dtype", KNOB_CTK },
                  { "num_ctx", KNOB_CTX } };
    struct snapshot *s = fixture_idle();
    struct ui *u = calloc(1, sizeof *u);
    int items[LIST_ROWS];
    assert_non_null(u);
    u->view = VIEW_SETTINGS;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        snprintf(u->list[VIEW_SETTINGS].filter, LIST_FILTER, "%s", CASES[i].typed);
        const int n = list_order(u, s, items);
        bool found = false;
        for (int k = 0; k < n; k++) found |= items[k] == CASES[i].row;
        if (!found) fail_msg("/%s does not find %s", CASES[i].typed, KNOBS[CASES[i].row].key);
    }
    snprintf(u->list[VIEW_SETTINGS].filter, LIST_FILTER, "mlock");
    assert_int_equal(list_order(u, s, items), 2); /* mlock and use_mlock */
    assert_non_null(knob_row_absent(items[0]));
    CHECK_CONTAINS(knob_row_absent(items[0])->instead, "qdyno does not lock memory");
    free(u);
    free(s);
}

static void stored_ab(struct setting_effects *to, int64_t id, const char *verdict, const char *b,
                      double ratio, const char *metric)
{
    struct err why;
    struct run_row r = { .id = id, .kind = "ab", .effect_ratio = ratio };
    struct experiment_spec spec = { .arms = 2, .seed = 1 };
    snprintf(r.verdict, sizeof r.verdict, "%s", verdict);
    snprintf(r.metric, sizeof r.metric, "%s", metric);
    CHECK_OK(workload_parse(&spec.workload, "tg64", &why));
    CHECK_OK(config_parse(&spec.config[0], "default", &why));
    CHECK_OK(config_parse(&spec.config[1], b, &why));
    json_t *o = experiment_spec_to_json(&spec);
    r.spec_json = json_line(o);
    json_decref(o);
    setting_effects_add(to, &r);
    run_row_free(&r);
}

/* An effect is that of an A/B of this model that changed one setting only and was decided. */
static void the_effect_of_a_setting_was_measured_alone(void **state)
{
    (void)state;
    struct snapshot *s = fixture_idle();
    char text[80];
    static const char RATE[] = "decode_tok_s";
    s->advice_count = 0;
    stored_ab(&s->effects, 9, "inconclusive", "threads=2", 1.5, RATE);
    stored_ab(&s->effects, 8, "better", "threads=2,kv=q8_0", 1.4, RATE);
    stored_ab(&s->effects, 7, "better", "threads=2", 1.3, "peak_rss_bytes");
    CHECK_STR(knob_effect(s, KNOB_THREADS, text, sizeof text), "n/a");
    stored_ab(&s->effects, 6, "better", "threads=2", 1.2, RATE);
    stored_ab(&s->effects, 5, "better", "threads=2", 1.1, RATE); /* an older one */
    CHECK_CONTAINS(knob_effect(s, KNOB_THREADS, text, sizeof text), "run 6");
    CHECK_CONTAINS(text, "2: +20");
    CHECK_STR(knob_effect(s, KNOB_CTK, text, sizeof text), "n/a");
    stored_ab(&s->effects, 4, "better", "kv=q8_0", 1.2, RATE); /* both caches are one setting */
    CHECK_CONTAINS(knob_effect(s, KNOB_CTV, text, sizeof text), "q8_0: +20");
    struct run_row broken = { .id = 3, .kind = "ab", .effect_ratio = 1.2, .verdict = "better" };
    snprintf(broken.metric, sizeof broken.metric, "%s", RATE);
    setting_effects_add(&s->effects, &broken); /* without a specification: nothing is known */
    CHECK_STR(knob_effect(s, KNOB_BATCH, text, sizeof text), "n/a");
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),
        cmocka_unit_test(every_list),
        cmocka_unit_test(a_filter_takes_effect_while_it_is_typed),
        cmocka_unit_test(an_accepted_filter_shows_no_other_rows),
        cmocka_unit_test(the_selection_stays_on_its_item),
        cmocka_unit_test(deleting_and_restoring),
        cmocka_unit_test(one_step_back),
        cmocka_unit_test(every_field_is_explained),
        cmocka_unit_test(shortened_lines_stay_different),
        cmocka_unit_test(a_page_fits_the_screen),
        cmocka_unit_test(settings_are_found_by_other_names),
        cmocka_unit_test(the_effect_of_a_setting_was_measured_alone),
        cmocka_unit_test(scroll_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
