/* Proves: every example of the help parses, with its config lines, workloads and gates, and every command has
 * two to four of them at the top of its help; help leaves out the keys that do not matter for a command;
 * every topic says what its table says. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "kernels/kernels.h"
#include "tui/cli/lib/help.h"
#include "tui/cli/lib/lib.h"
#include "tui/forms/forms.h"

static void config_must_parse(const char *line, const char *example)
{
    struct config c;
    struct err why = { 0 };
    if (config_parse(&c, strcmp(line, "default") ? line : "", &why)) fail_msg("%s: %s", example, why.message);
}

/* What the parser leaves to the command. */
static void values_must_parse(const struct cli_args *a, const char *example)
{
    const char *given[ARGS_GIVEN], *name = a->command->name;
    struct err why = { 0 };
    const bool arms = !strcmp(name, "ab") || !strcmp(name, "govern") || !strcmp(name, "dashboard") ||
                      !strcmp(name, "apply");
    for (int i = 0; arms && i < a->n; i++) config_must_parse(a->arg[i], example);
    const int n = args_has(a, "-C") ? args_all(a, "-C", given, ARGS_GIVEN) : 0;
    for (int i = 0; i < n; i++) config_must_parse(given[i], example);
    struct workload w;
    struct gate g;
    if (args_has(a, "-w") && workload_parse(&w, args_text(a, "-w", ""), &why))
        fail_msg("%s: %s", example, why.message);
    if (args_has(a, "--gate") && gate_parse(&g, args_text(a, "--gate", ""), &why))
        fail_msg("%s: %s", example, why.message);
}

static void examples_parse(void **state)
{
    (void)state;
    int of_command[256] = { 0 };
    CHECK_LT(COMMAND_COUNT, 256);
    for (size_t i = 0; i < HELP_EXAMPLE_COUNT; i++) {
        const struct help_example *e = &HELP_EXAMPLES[i];
        struct cli_global g = { .seed = 1 };
        struct cli_args a;
        struct err why = { 0 };
        char text[400], *words[64];
        snprintf(text, sizeof text, "qdyno %s", e->line);
        int n = 0;
        if (shell_words_split(text, words, COUNT_OF(words), &n, &why))
            fail_msg("%s: %s", e->line, why.message);
        if (cli_parse(&g, &a, n, words, &why)) fail_msg("%s: %s", e->line, why.message);
        assert_string_equal(a.command->name, e->command);
        CHECK(*e->what);
        values_must_parse(&a, e->line);
        of_command[a.command - COMMANDS]++;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden && (of_command[i] < 2 || of_command[i] > 4))
            fail_msg("%s has %d examples, want 2 to 4", COMMANDS[i].name, of_command[i]);
}

/* The number of lines, none of which may be wider. */
static int lines_and_width(const char *text, size_t width)
{
    int n = 0;
    for (const char *at = text; *at; n++) {
        const size_t line = strcspn(at, "\n");
        if (line > width) fail_msg("%zu columns: %.*s", line, (int)line, at);
        at += line + (at[line] != '\0');
    }
    return n;
}

static void examples_come_first(void **state)
{
    (void)state;
    struct str text = { 0 };
    help_text(&text, command_find("ab"));
    const char *examples = strstr(str_text(&text), "Examples\n"), *usage = strstr(str_text(&text), "usage:");
    CHECK(examples);
    CHECK(usage);
    CHECK_LT(examples, usage);
    CHECK_CONTAINS(str_text(&text), "--threads"); /* and those of training, which a workload of ab may be */
    str_free(&text);
    help_text(&text, command_find("fit"));
    CHECK_LACKS(str_text(&text), "--threads"); /* does not change the memory plan */
    CHECK_CONTAINS(str_text(&text), "--ctk");
    CHECK_CONTAINS(str_text(&text), "qdyno help configs");
    str_free(&text);
}

/* The first screen fits a small terminal, and the help of each command a larger one, with all its flags. */
static void short_help_fits(void **state)
{
    (void)state;
    struct str text = { 0 };
    help_short(&text, NULL);
    CHECK_LE(lines_and_width(str_text(&text), 82), HELP_SCREEN);
    int grouped = 0;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *c = &COMMANDS[i];
        grouped += c->group != GROUP_NONE;
        if (c->group != GROUP_NONE) CHECK_CONTAINS(str_text(&text), c->help);
    }
    CHECK_GE(grouped, 14);
    CHECK_CONTAINS(str_text(&text), "help --all");
    str_free(&text);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *c = &COMMANDS[i];
        help_short(&text, c);
        if (lines_and_width(str_text(&text), 200) > HELP_COMMAND)
            fail_msg("the help of %s has %d lines", c->name, lines_and_width(str_text(&text), 200));
        for (const struct cli_flag *f = c->flags; f && f->name; f++) CHECK_CONTAINS(str_text(&text), f->name);
        if (c->knob_flags != KNOB_FLAGS_NONE) CHECK_CONTAINS(str_text(&text), "qdyno help configs");
        CHECK_CONTAINS(str_text(&text), "--all`");
        str_free(&text);
    }
}

/* Flags that `qdyno help COMMAND --all` lists: adds each spelling to `seen` and fails for a second one. */
static void help_lists_once(const struct command *c, const char *text)
{
    struct str seen = { 0 };
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] != '\0')) {
        if (!str_starts(line, "  -")) continue;
        for (const char *at = line + 2; *at == '-';) {
            char word[64];
            const size_t n = strcspn(at, " ,[\n");
            snprintf(word, sizeof word, " %.*s ", (int)n, at);
            if (strstr(str_text(&seen), word)) fail_msg("help of %s lists%stwice", c->name, word);
            str_append(&seen, word);
            at += n;
            if (str_starts(at, ", ")) at += 2;
        }
    }
    str_free(&seen);
}

/* The parser takes a spelling for a flag of the command, for a config key or for a flag of every command:
 * never for two of them. */
static void spelling_means_one_thing(const struct command *c, const char *word)
{
    const size_t n = strlen(word);
    const int meanings = (flag_find(c->flags, word, n) != NULL) + (flag_find(GLOBAL_FLAGS, word, n) != NULL) +
                         (knob_of_flag(c, word, n) >= 0);
    if (meanings != 1) fail_msg("%s %s has %d meanings, want 1", c->name, word, meanings);
}

static void flags_mean_one_thing(const struct command *c, const struct cli_flag *flags)
{
    for (const struct cli_flag *f = flags; f && f->name; f++) {
        spelling_means_one_thing(c, f->name);
        if (f->alias) spelling_means_one_thing(c, f->alias);
        for (const struct cli_flag *o = flags; o->name; o++)
            if (o != f && (flag_find(o, f->name, strlen(f->name)) == o ||
                           (f->alias && flag_find(o, f->alias, strlen(f->alias)) == o)))
                fail_msg("%s has two flags %s", c->name, f->name);
    }
}

/* A key without a flag of its name can be set in a config line, and help says how. */
static void taken_key_is_told(const struct command *c, const char *key, const char *all, const char *brief)
{
    char told[80];
    const bool lines = flag_find(c->flags, "-C", 2);
    snprintf(told, sizeof told, " %s%s=VALUE", lines ? "-C " : "", key);
    CHECK(lines || c->max_args > 1); /* or its arguments are config lines: govern A B */
    CHECK_CONTAINS(all, told);
    CHECK_CONTAINS(brief, told);
}

static void spellings_have_one_meaning(void **state)
{
    (void)state;
    int taken = 0;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *c = &COMMANDS[i];
        struct str all = { 0 }, brief = { 0 };
        help_text(&all, c);
        help_short(&brief, c);
        help_lists_once(c, str_text(&all));
        flags_mean_one_thing(c, c->flags);
        flags_mean_one_thing(c, GLOBAL_FLAGS);
        for (int k = 0; k < KNOB_COUNT && c->knob_flags != KNOB_FLAGS_NONE; k++) {
            char buf[KNOB_SPELLING];
            for (int s = 0; s < KNOB_SPELLINGS; s++) {
                const char *word = knob_spelling(c, (enum knob_id)k, s, buf);
                if (word) spelling_means_one_thing(c, word);
                if (word) CHECK_EQ(knob_of_flag(c, word, strlen(word)), k);
                if (word || !s || k == KNOB_MODEL) continue;
                taken_key_is_told(c, KNOBS[k].key, str_text(&all), str_text(&brief));
                taken++;
            }
        }
        str_free(&all);
        str_free(&brief);
    }
    CHECK_GT(taken, 0); /* serve --parallel */
}

/* The gates that the topic shows are valid. */
static void shown_gates_parse(const char *text)
{
    static const char BEFORE[] = "--gate '";
    int n = 0;
    for (const char *at = text; (at = strstr(at, BEFORE)); n++) {
        char gate[200];
        struct gate g;
        struct err why = { 0 };
        at += strlen(BEFORE);
        snprintf(gate, sizeof gate, "%.*s", (int)strcspn(at, "'"), at);
        if (gate_parse(&g, gate, &why)) fail_msg("%s: %s", gate, why.message);
    }
    CHECK_GE(n, 2);
}

/* Problems first, then notes, then what is fine; nothing is lost. */
static void doctor_tells_problems_first(void **state)
{
    (void)state;
    static const char *const ROWS[][4] = { { "machine", "ok", "Xeon", NULL },
                                           { "frequency", "note", "powersave", "set performance" },
                                           { "worker", "bad", "cannot start", "fix the cause" },
                                           { "terminal", "ok", "xterm", NULL } };
    json_t *rows = json_array();
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        json_t *row = json_object();
        json_put_str(row, "check", ROWS[i][0]);
        json_put_str(row, "state", ROWS[i][1]);
        json_put_str(row, "found", ROWS[i][2]);
        json_put_str(row, "advice", ROWS[i][3]);
        json_array_append_new(rows, row);
    }
    struct str text = { 0 };
    doctor_text(&text, rows, 80);
    const char *bad = strstr(str_text(&text), "cannot start"),
               *todo = strstr(str_text(&text), "> fix the cause"),
               *note = strstr(str_text(&text), "powersave"), *fine = strstr(str_text(&text), "Xeon");
    CHECK(bad);
    CHECK_LT(bad, todo); /* one that is missing is NULL, before every other */
    CHECK_LT(todo, note);
    CHECK_LT(note, fine);
    CHECK_CONTAINS(str_text(&text), "xterm");
    str_free(&text);
    json_decref(rows);
}

static void topics_say_their_tables(void **state)
{
    (void)state;
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++) {
        struct str text = { 0 };
        CHECK_EQ(command_find(t->name), NULL); /* a name means one thing */
        t->write(&text);
        CHECK_GT(text.len, 200);
        if (!strcmp(t->name, "formats"))
            for (int i = 0; i < FORMAT_COUNT; i++) CHECK_CONTAINS(str_text(&text), FORMATS[i].name);
        if (!strcmp(t->name, "gates")) shown_gates_parse(str_text(&text));
        if (!strcmp(t->name, "gates"))
            for (int i = 0; i < GATE_FIGURES; i++) CHECK_CONTAINS(str_text(&text), GATE_NAMES[i].name);
        if (!strcmp(t->name, "exit"))
            for (const struct help_row *r = HELP_EXITS; r->name; r++)
                CHECK_CONTAINS(str_text(&text), r->name);
        if (!strcmp(t->name, "busy")) CHECK_CONTAINS(str_text(&text), "others_busy_ratio");
        str_free(&text);
    }
    CHECK_EQ(help_topic_find("knobs"), help_topic_find("configs"));
    CHECK_EQ(help_topic_find("nonsense"), NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_parse),
        cmocka_unit_test(examples_come_first),
        cmocka_unit_test(spellings_have_one_meaning),
        cmocka_unit_test(short_help_fits),
        cmocka_unit_test(topics_say_their_tables),
        cmocka_unit_test(doctor_tells_problems_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
