/* Proves: each suggestion is valid at the cursor, or has the reason why not; taking it gives a line that the
 * parser accepts; files are described correctly; the history is sorted and marked as its title says; overlays
 * equal their golden files. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "tests/tui/fixture.h"
#include "tui/forms/forms.h"
#include "tui/views/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct suggestions offered;

static const struct suggestion *find(const char *text)
{
    for (int i = 0; i < offered.n; i++)
        if (!strcmp(offered.list[i].text, text)) return &offered.list[i];
    return NULL;
}

/* What a form offers for a text with the cursor at its end. */
static void offer(struct ui *u, const struct snapshot *s, enum form_kind kind, int field, const char *text)
{
    form_show(&u->form, kind, NULL);
    u->form.focus = field;
    form_put(&u->form, field, text);
    ui_suggestions(&offered, u, s);
}

static const struct suggestion *take(struct ui *u, const struct snapshot *s, const char *text)
{
    const struct suggestion *c = find(text);
    if (!c) fail_msg("'%s' is not offered for '%s'", text, u->form.field[u->form.focus].text);
    form_replace(&u->form, offered.from, offered.to, c->text);
    ui_suggestions(&offered, u, s);
    return c;
}

static struct snapshot *with_recipes(void)
{
    struct snapshot *s = fixture_idle();
    recipe_list_make(&s->recipes, NULL);
    return s;
}

/* An arm, built without typing anything but what is offered. */
static void an_arm_from_offers(void **state)
{
    (void)state;
    struct ui u = { 0 };
    struct snapshot *s = with_recipes();
    offer(&u, s, FORM_AB, AB_B, "");
    take(&u, s, "gptq");
    take(&u, s, "gptq,");
    CHECK(find("bits="));
    CHECK(find("threads="));
    CHECK(!find("q4_0")); /* the line has a recipe already */
    take(&u, s, "bits=");
    take(&u, s, "3");
    take(&u, s, "3,");
    CHECK(!find("bits="));
    take(&u, s, "threads=");
    CHECK(find("2"));
    CHECK_CONTAINS(find("2")->about, "all cores");
    CHECK(!find("1024"));
    take(&u, s, "2");
    assert_string_equal(u.form.field[AB_B].text, "gptq,bits=3,threads=2");
    assert_string_equal(u.form.field[AB_B].error, "");
    CHECK(u.form.field[AB_B].touched);
    free(s);
}

static void reasons(void **state)
{
    (void)state;
    struct ui u = { 0 };
    struct snapshot *s = with_recipes();
    uint32_t usable;
    struct err why;
    CHECK_OK(isa_usable(&usable, &why));
    offer(&u, s, FORM_AB, AB_A, "isa=");
    int impossible = 0;
    for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) {
        const struct suggestion *c = find(ISA_LEVELS[i].name);
        CHECK(c);
        CHECK_EQ(!!(ISA_LEVELS[i].bits & ~usable), !!c->refusal[0]);
        impossible += c && c->refusal[0];
    }
    CHECK_GT(impossible, 0); /* no machine has all of x86 and ARM */
    offer(&u, s, FORM_AB, AB_A, "amp");
    CHECK(find("amp="));
    CHECK_CONTAINS(find("amp=")->refusal, "train");
    form_put(&u.form, AB_WORKLOAD, "train20");
    ui_suggestions(&offered, &u, s);
    CHECK(find("amp="));
    CHECK(!find("amp=")->refusal[0]);
    /* estimates are shown only for the exact line they were made for */
    offer(&u, s, FORM_AB, AB_A, "ctk=");
    snprintf(s->estimates.text, sizeof s->estimates.text, "ctk=");
    s->estimates.cursor = 4;
    s->estimates.count = 1;
    snprintf(s->estimates.variant[0].text, sizeof s->estimates.variant[0].text, "q8_0");
    snprintf(s->estimates.variant[0].refusal, sizeof s->estimates.variant[0].refusal, "heads of 48");
    ui_suggestions(&offered, &u, s);
    assert_string_equal(find("q8_0")->refusal, "heads of 48");
    assert_string_equal(find("f16")->refusal, "");
    form_put(&u.form, AB_A, "ctv=");
    ui_suggestions(&offered, &u, s);
    assert_string_equal(find("q8_0")->refusal, "");
    free(s);
}

/* Every offer that is whole and not refused is good; a refusal is never empty talk: the parser says it. */
static void offers_are_true(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "",         "default",    "q4_K",       "gptq,",
                                         "q8_0,thr", "hugepages=", "q8_0,batch=" };
    struct ui u = { 0 };
    struct snapshot *s = with_recipes();
    for (size_t t = 0; t < COUNT_OF(TEXTS); t++) {
        offer(&u, s, FORM_AB, AB_B, TEXTS[t]);
        CHECK_GT(offered.n, 0);
        const struct suggestions all = offered;
        for (int i = 0; i < all.n; i++) {
            if (all.list[i].more) continue;
            form_put(&u.form, AB_B, TEXTS[t]);
            form_replace(&u.form, all.from, all.to, all.list[i].text);
            if (!all.list[i].refusal[0] && u.form.field[AB_B].error[0])
                fail_msg("'%s' for '%s': %s", all.list[i].text, TEXTS[t], u.form.field[AB_B].error);
        }
    }
    offer(&u, s, FORM_QUANTIZE, 0, "");
    CHECK(find("q4_K"));
    CHECK(find("awq"));
    CHECK(find("q4_K_M"));
    CHECK(!find("threads=")); /* not part of a recipe */
    offer(&u, s, FORM_AB, AB_WORKLOAD, "tg64");
    CHECK(find("pp512"));
    CHECK(find("tg64")); /* a complete word: all others are suggested */
    offer(&u, s, FORM_AB, AB_WORKLOAD, "tg1");
    CHECK(find("tg128"));
    CHECK(!find("pp512"));
    offer(&u, s, FORM_CLOSED, 0, "");
    CHECK_EQ(offered.n, 0);
    free(s);
}

/* ---------------------------------------------------------------- files */

static void entry_put(struct folder *f, const char *name, enum file_kind kind, int64_t bytes)
{
    struct file_entry *e = &f->entry[f->count++];
    *e = (struct file_entry){ .kind = kind, .known = true, .bytes = bytes, .needs_bytes = -1 };
    snprintf(e->name, sizeof e->name, "%s", name);
}

static void folder_fill(struct folder *f)
{
    snprintf(f->path, sizeof f->path, "/models/");
    f->read = true;
    entry_put(f, "../", FILE_FOLDER, -1);
    entry_put(f, "old/", FILE_FOLDER, -1);
    entry_put(f, "big-70b-q8_0.gguf", FILE_MODEL, 74LL << 30);
    snprintf(f->entry[2].arch, sizeof f->entry[2].arch, "llama");
    snprintf(f->entry[2].format, sizeof f->entry[2].format, "q8_0");
    f->entry[2].params = 70553000000;
    f->entry[2].needs_bytes = 76LL << 30;
    entry_put(f, "stories15M-f16.gguf", FILE_MODEL, 48900000);
    snprintf(f->entry[3].arch, sizeof f->entry[3].arch, "llama");
    snprintf(f->entry[3].format, sizeof f->entry[3].format, "f16");
    f->entry[3].params = 24407712;
    f->entry[3].needs_bytes = 70000000;
    entry_put(f, "mixture.gguf", FILE_NO_MODEL, 26LL << 30);
    snprintf(f->entry[4].trouble, sizeof f->entry[4].trouble, "architecture 'qwen3moe' is not known here");
    entry_put(f, "later.gguf", FILE_MODEL, 1 << 30);
    f->entry[5].known = false;
    entry_put(f, "notes.txt", FILE_OTHER, 812);
}

static void files(void **state)
{
    (void)state;
    struct ui u = { 0 };
    struct snapshot *s = fixture_idle();
    char path[64];
    folder_fill(&s->folder);
    offer(&u, s, FORM_MODEL, 0, "/models/");
    CHECK(suggestions_folder(&u.form, path, sizeof path));
    CHECK_STR(path, "/models/");
    CHECK(offered.files);
    CHECK(find("old/")->more);
    CHECK(find("mixture.gguf")->refusal[0]);
    CHECK(!find("notes.txt"));
    take(&u, s, "stories15M-f16.gguf");
    assert_string_equal(u.form.field[0].text, "/models/stories15M-f16.gguf");
    offer(&u, s, FORM_MODEL, 0, "/models/70B");
    CHECK_EQ(offered.n, 1); /* found by any part of its name */
    offer(&u, s, FORM_MODEL, 0, "/elsewhere/");
    CHECK_EQ(offered.n, 0); /* the folder on hand is another one */
    offer(&u, s, FORM_MODEL, 0, "");
    CHECK(suggestions_folder(&u.form, path, sizeof path));
    CHECK(!*path); /* the list of places */
    offer(&u, s, FORM_QUANTIZE, 1, "/models/");
    CHECK(find("notes.txt"));
    CHECK(!find("stories15M-f16.gguf"));
    free(s);
}

/* ---------------------------------------------------------------- the history */

static void sorted_and_marked(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY };
    int rows[LIST_ROWS];
    int64_t id[MARKED];
    enum { EFFECT = 8 };
    for (int by = 0; by <= list_columns(&LISTS[VIEW_HISTORY]); by++) { /* every run is in every order */
        bool seen[LIST_ROWS] = { false };
        u.list[VIEW_HISTORY].sort = by;
        CHECK_EQ(list_order(&u, s, rows), s->run_count);
        for (int i = 0; i < s->run_count; i++) {
            CHECK(!seen[rows[i]]);
            seen[rows[i]] = true;
        }
    }
    assert_string_equal(list_sort_by(&u, EFFECT), "effect");
    list_order(&u, s, rows);
    for (int i = 1; i < s->run_count; i++) { /* largest effect first, unknown last */
        const double a = s->run[rows[i - 1]].effect_ratio, b = s->run[rows[i]].effect_ratio;
        CHECK(isnan(b) || a >= b);
    }
    CHECK_EQ(s->run[rows[0]].id, 7);
    CHECK_EQ(ui_run(&u, s)->id, 7);
    CHECK_EQ(ui_run_id(&u, s), 7);
    CHECK(!ui_compared(&u, s, id));
    u.marked[0] = 11;
    CHECK_EQ(ui_mark(&u, 11), 1);
    CHECK(!ui_mark(&u, 7));
    CHECK(!ui_mark(&u, 0));
    CHECK(ui_compared(&u, s, id));
    CHECK_EQ(id[0], 7);
    CHECK_EQ(id[1], 11); /* the marked and the selected, the older first */
    u.marked[1] = 8;
    CHECK(ui_compared(&u, s, id));
    CHECK_EQ(id[0], 8);
    CHECK_EQ(id[1], 11);
    assert_string_equal(command_of(DO_COMPARE, &u, s), "qdyno compare 8 11");
    assert_string_equal(command_of(DO_APPLY, &u, s), "qdyno apply --run 7");
    u.view = VIEW_ADVICE;
    u.selected[VIEW_ADVICE] = 1;
    assert_string_equal(command_of(DO_APPLY, &u, s),
                        "qdyno apply -m /models/stories15M-f16.gguf q8_0,threads=2");
    free(s);
}

/* ---------------------------------------------------------------- commands of forms */

static void forms_say_commands(void **state)
{
    (void)state;
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct ui u = { .view = VIEW_HISTORY };
    form_show(&u.form, FORM_AB,
              (const char *const[FORM_FIELDS]){ "f16", "q4_K", "tg64", "q8_0", "yes", "3%", "90s" });
    assert_string_equal(
        command_of_screen(&u, s),
        "qdyno ab -m /models/stories15M-f16.gguf f16 q4_K q8_0 -w tg64 --quality --margin 3% --budget 90s");
    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "f16", "q4_K", "tg64" });
    assert_string_equal(command_of_screen(&u, s), "qdyno ab -m /models/stories15M-f16.gguf f16 q4_K -w tg64");
    form_show(&u.form, FORM_QUANTIZE,
              (const char *const[FORM_FIELDS]){ "gptq,bits=3", "my text.txt", "out.gguf" });
    assert_string_equal(
        command_of_screen(&u, s),
        "qdyno quantize /models/stories15M-f16.gguf out.gguf -R gptq,bits=3 --calib 'my text.txt'");
    form_show(&u.form, FORM_REPORT, (const char *const[FORM_FIELDS]){ "run.html" });
    u.form.about = 11;
    u.selected[VIEW_HISTORY] = 3; /* the selection may move: the form is about run 11 */
    assert_string_equal(command_of_screen(&u, s), "qdyno report 11 --out run.html");
    form_hide(&u.form);
    u.view = VIEW_QUALITY; /* the file written last is measured against its source, whichever is on screen */
    snprintf(s->written_from, sizeof s->written_from, "%s", s->model_path);
    snprintf(s->written, sizeof s->written, "/tmp/small.gguf");
    snprintf(s->written_recipe, sizeof s->written_recipe, "q5_1");
    CHECK_CONTAINS(command_of_screen(&u, s), " -C q5_1 --ref default");
    snprintf(s->written, sizeof s->written, "%s", s->model_path);
    snprintf(s->written_from, sizeof s->written_from, "/tmp/big.gguf");
    CHECK_CONTAINS(command_of_screen(&u, s), " -C default --ref model=/tmp/big.gguf");
    CHECK(ui_written_unmeasured(s));
    struct quality_result *measured = &s->quality.line[0];
    s->quality.count = MAX(s->quality.count, 1);
    const struct quality_result before = *measured;
    snprintf(measured->reference, sizeof measured->reference, "model=/tmp/big.gguf");
    quality_result_explain(measured);
    CHECK(!ui_written_unmeasured(s));
    *measured = before;
    s->written[0] = '\0';
    CHECK_LACKS(command_of_screen(&u, s), "model=");
    u.view = VIEW_LIVE;
    form_show(&u.form, FORM_TUNE, NULL);
    form_put(&u.form, 2, "memory=8G");
    assert_string_equal(
        command_of_screen(&u, s),
        "qdyno tune -m /models/stories15M-f16.gguf --goal balanced --budget 5m --limit memory=8G");
    free(s);
}

static void checks(void **state)
{
    (void)state;
    static const struct {
        enum form_ask ask;
        const char *text;
        bool good;
    } CASES[] = { { ASK_RECIPE, "q4_K", true },
                  { ASK_RECIPE, "q4_K,threads=2", false },
                  { ASK_RECIPE, "", false },
                  { ASK_BUDGET, "90s", true },
                  { ASK_BUDGET, "soon", false },
                  { ASK_BUDGET, "0", false },
                  { ASK_MARGIN, "1%", true },
                  { ASK_MARGIN, "0.02", true },
                  { ASK_MARGIN, "80%", false },
                  { ASK_QUALITY, "yes", true },
                  { ASK_QUALITY, "maybe", false },
                  { ASK_OUT, "/tmp/x.gguf", true },
                  { ASK_OUT, "/tmp/x.bin", false },
                  { ASK_OUT, "/tmp/.gguf", true },
                  { ASK_OUT, "/nowhere/x.gguf", false },
                  { ASK_REPORT, "/tmp/x.svg", true },
                  { ASK_REPORT, "/tmp/x.pdf", false },
                  { ASK_NAME, "main", true },
                  { ASK_NAME, "my champion", false },
                  { ASK_MODEL, "/tmp", false },
                  { ASK_GOAL, "speed", true },
                  { ASK_GOAL, "fun", false },
                  { ASK_MORE, "", true },
                  { ASK_MORE, "q9", false } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        const bool good = form_check(CASES[i].ask, CASES[i].text, &why) == ERR_OK;
        if (good != CASES[i].good) fail_msg("'%s': %s", CASES[i].text, good ? "accepted" : why.message);
        CHECK(good || why.message[0]);
    }
}

/* ---------------------------------------------------------------- pictures */

static void check_golden(const char *name, const struct snapshot *s, const struct ui *u, int w, int h)
{
    struct grid g;
    struct err why;
    struct str text = { 0 };
    char path[600], *want = NULL;
    CHECK_OK(grid_open(&g, w, h, GLYPHS_BRAILLE, &why));
    struct snapshot *checked = malloc(sizeof *checked); /* the command has checked the form and accepts it */
    CHECK(checked);
    *checked = *s;
    checked->checked.of = form_hash(&u->form, s->model_path);
    view_draw(&g, checked, u);
    free(checked);
    grid_text(&g, &text);
    grid_close(&g);
    snprintf(path, sizeof path, "%s/tests/golden/tui_%s_%dx%d.txt", TEST_SOURCE_DIR, name, w, h);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CHECK(f);
        CHECK_GE(fputs(str_text(&text), f), 0);
        CHECK_EQ(fclose(f), 0);
    } else {
        CHECK_OK(file_read(&want, NULL, path, 1 << 20, &why));
        if (strcmp(want, str_text(&text))) fail_msg("%s differs; drawn now:\n%s", path, str_text(&text));
    }
    free(want);
    str_free(&text);
}

static void recipes_fill(struct recipe_list *r)
{
    recipe_list_make(r, NULL);
    for (int i = 0; i < r->count; i++) {
        r->row[i].file_bytes = 8000000 + 1000000 * (i % 9);
        r->row[i].bits = 3 + 0.5 * (i % 9);
    }
    snprintf(r->row[1].refusal, sizeof r->row[1].refusal, "tensor 'output' is quantized already (q8_0)");
}

static void pages(struct snapshot *s)
{
    snprintf(s->page.title, sizeof s->page.title, "Run 12 seen from run 11");
    text_page_put(&s->page, PAGE_HEAD, "q8_0 → q4_0   tg128   decode_tok_s");
    text_page_put(&s->page, PAGE_GOOD, "   +58.4%% [+56.9%%, +60.1%%]   ▲ better");
    for (int i = 0; i < 40; i++) text_page_put(&s->page, PAGE_PLAIN, "line %d of what a command wrote", i);
    s->page.number = 1;
}

static void overlays(void **state)
{
    (void)state;
    static const int SIZES[][2] = { { 80, 24 }, { 120, 36 } };
    struct snapshot *s = fixture_idle();
    recipes_fill(&s->recipes);
    folder_fill(&s->folder);
    pages(s);
    for (size_t z = 0; z < COUNT_OF(SIZES); z++) {
        const int w = SIZES[z][0], h = SIZES[z][1];
        struct ui u = { .view = VIEW_MODEL };
        form_show(&u.form, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/models/" });
        u.form.chosen = 3;
        check_golden("browser", s, &u, w, h);
        form_show(&u.form, FORM_QUANTIZE, (const char *const[FORM_FIELDS]){ "q4_K", "", "/tmp/out.gguf" });
        u.form.chosen = 2;
        check_golden("quantize", s, &u, w, h);
        form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0,thr", "tg64" });
        u.form.focus = 1;
        u.form.field[1].touched = true;
        check_golden("arm", s, &u, w, h);
        form_hide(&u.form);
        u.page = true;
        u.page_row = 5;
        check_golden("page", s, &u, w, h);
        u.page = false;
        snprintf(u.question.text, sizeof u.question.text, "/tmp/out.gguf is there already. Replace it?");
        u.question.command = fixture_words("quantize m.gguf /tmp/out.gguf -R q4_K --force");
        check_golden("question", s, &u, w, h);
        u.question.text[0] = '\0';
        s->command = fixture_words("quantize m.gguf /tmp/out.gguf -R q4_K");
        s->task_known = true;
        s->task = (struct task_progress){ .done = 0.42, .rate = 78.7e6, .left_s = 12, .unit = "weights/s" };
        check_golden("task", s, &u, w, h);
        s->command.n = 0;
    }
    free(s);
}

/* A command that is longer than the prompt shows how it begins, and where the cursor is. */
static void a_long_command_shows_its_beginning(void **state)
{
    (void)state;
    static const char LINE[] =
        "eval -m /models/stories-of-a-long-name.gguf -C q4_K --ref f16 -f /texts/held-out.txt --set-text";
    struct snapshot *s = fixture_idle();
    struct ui u = { .view = VIEW_QUALITY };
    form_show(&u.form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ LINE });
    check_golden("command", s, &u, 60, 16);
    form_key(&u.form, UI_KEY_END);
    for (int i = 0; i < 11; i++) form_key(&u.form, UI_KEY_LEFT);
    check_golden("command_middle", s, &u, 60, 16);
    form_key(&u.form, UI_KEY_HOME);
    check_golden("command_begin", s, &u, 60, 16);
    free(s);
}

int main(void)
{
    fixture_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arm_from_offers),
        cmocka_unit_test(reasons),
        cmocka_unit_test(offers_are_true),
        cmocka_unit_test(files),
        cmocka_unit_test(sorted_and_marked),
        cmocka_unit_test(forms_say_commands),
        cmocka_unit_test(checks),
        cmocka_unit_test(overlays),
        cmocka_unit_test(a_long_command_shows_its_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
