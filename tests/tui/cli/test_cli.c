/* Proves: the parser accepts flags in any order and refuses unknown ones with the nearest spelling; every
 * flag of every command is in the help, the man page and the completion; a model among the arguments goes
 * where it belongs, and a config line is never taken for one; the five output formats agree on difficult
 * values. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "tui/cli/lib/lib.h"

/* Calls cli_parse with the words of a line. A "~" becomes a blank inside a word. */
static enum err_code parse(struct cli_global *g, struct cli_args *a, const char *line, struct err *why)
{
    static char words[16][128];
    static char *argv[17];
    int argc = 0;
    *g = (struct cli_global){ .seed = 1 };
    for (const char *p = line; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        snprintf(words[argc], sizeof words[argc], "%.*s", (int)n, p);
        for (char *c = words[argc]; *c; c++)
            if (*c == '~') *c = ' ';
        argv[argc] = words[argc];
        argc++;
        p += n;
    }
    argv[argc] = NULL;
    return cli_parse(g, a, argc, argv, why);
}

static void test_flags_stand_anywhere(void **state)
{
    (void)state;
    static const char *const LINES[] = {
        "qdyno bench -m M -p 1,2 -o json -t 3 --seed 7",
        "qdyno -o json --seed 7 bench -m M -p 1,2 -t 3",
        "qdyno --output=json bench --model=M --n-prompt=1,2 --threads=3 --seed=7",
        "qdyno -m M -o json bench -p 1,2 --threads 3 -s 7",
    };
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct cli_global g;
        struct cli_args a;
        struct err why = { 0 };
        int64_t p[4];
        CHECK_OK(parse(&g, &a, LINES[i], &why));
        assert_string_equal(a.command->name, "bench");
        assert_string_equal(args_text(&a, "-m", ""), "M");
        CHECK_EQ(g.output, OUTPUT_JSON);
        CHECK(g.output_given);
        CHECK_EQ(g.seed, 7);
        CHECK_EQ(args_ints(&a, "-p", "", p, 4), 2);
        CHECK_EQ(p[0], 1);
        CHECK_EQ(p[1], 2);
        CHECK_EQ(a.knob_count, 1);
        CHECK_EQ(a.knob[0].id, KNOB_THREADS);
        CHECK_STR(a.knob[0].value, "3");
    }
}

static void test_refusals_name_flag_value_and_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *line, *contains[3];
    } CASES[] = {
        { "qdyno bnech", { "bnech", "did you mean 'bench'" } },
        { "qdyno bench --repetitons 3", { "--repetitons", "did you mean '--repetitions'" } },
        { "qdyno bench --thread 3", { "--thread", "did you mean '--threads'" } },
        { "qdyno bench -r 0", { "-r", "0", "from 1" } },
        { "qdyno bench -r 1.5", { "-r", "1.5", "whole" } },
        { "qdyno bench -r 9999999999999999999999", { "-r", "whole" } },
        { "qdyno bench -p 1,,2", { "-p", "1,,2" } },
        { "qdyno bench -p 1,-2", { "-p", "from 0" } },
        { "qdyno bench -r", { "-r", "needs a value" } },
        { "qdyno bench -r 1 -r 2", { "-r", "twice" } },
        { "qdyno bench -t 1 --threads 2", { "threads", "twice" } },
        { "qdyno info --tensors=1", { "--tensors", "no value" } },
        { "qdyno info some extra", { "some", "too many" } },
        { "qdyno doctor extra", { "extra", "too many" } },
        { "qdyno show", { "show", "needs 1" } },
        { "qdyno run -p x --temp nan", { "--temp", "nan" } },
        { "qdyno run -p x --threads 2x", { "threads", "2x" } },
        { "qdyno info -t 2", { "-t", "unknown flag" } },
        { "qdyno ab a b --margin -1%", { "--margin", "1%" } },
        { "qdyno ab a b --budget soon", { "--budget", "soon", "5m" } },
        { "qdyno advise --forget", { "--forget needs --accuracy" } },
        { "qdyno apply --arm B", { "--arm needs --run ID" } },
        { "qdyno history --detect --summary 1h", { "--detect and --summary exclude each other" } },
        { "qdyno advise --goal sped", { "--goal", "sped", "did you mean 'speed'" } },
        { "qdyno history -o xml", { "-o", "xml", "jsonl" } },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct cli_global g;
        struct cli_args a;
        struct err why = { 0 };
        if (parse(&g, &a, CASES[i].line, &why) != ERR_USAGE) fail_msg("accepted: %s", CASES[i].line);
        for (int s = 0; s < 3 && CASES[i].contains[s]; s++)
            if (!strstr(why.message, CASES[i].contains[s]))
                fail_msg("%s: '%s' does not contain '%s'", CASES[i].line, why.message, CASES[i].contains[s]);
    }
}

static void test_values_that_look_like_flags(void **state)
{
    (void)state;
    struct cli_global g;
    struct cli_args a;
    struct err why = { 0 };
    CHECK_OK(parse(&g, &a, "qdyno run -p -n -n 3", &why)); /* a prompt may start with a dash */
    assert_string_equal(args_text(&a, "-p", ""), "-n");
    CHECK_EQ(args_int(&a, "-n", 0), 3);
    CHECK_OK(parse(&g, &a, "qdyno ab -w tg8 -- -a -b", &why));
    CHECK_EQ(a.n, 2);
    CHECK_STR(a.arg[0], "-a");
    CHECK_STR(a.arg[1], "-b");
    CHECK_OK(parse(&g, &a, "qdyno", &why));
    CHECK(!a.named);
    CHECK_STR(a.command->name, "dashboard");
    CHECK_OK(parse(&g, &a, "qdyno -m M", &why));
    CHECK(!a.named);
    CHECK_STR(args_text(&a, "-m", ""), "M");
}

/* A knob flag is the default of every config line, a value in the line wins, and several values make a grid
 * without duplicates. */
/* The value of -m, the arguments left, and the command: "ab m.gguf: default,q8_0". */
static void test_models_are_taken_from_arguments(void **state)
{
    static const struct {
        const char *line, *want;
    } CASES[] = {
        { "x.gguf", "dashboard x.gguf:" },
        { "hf:o/r:Q4_0", "dashboard hf:o/r:Q4_0:" },
        { "o/r:Q4_0 q8_0", "dashboard o/r:Q4_0: default q8_0" },
        { "x.gguf o/r:Q4_0", "dashboard x.gguf: default model=o/r:Q4_0" },
        { "dashboard -m x.gguf q8_0 q4_0", "dashboard x.gguf: q8_0 q4_0" },
        { "ab thread=2,model=x.gguf default", "ab none: thread=2,model=x.gguf default" },
        { "ab model=x.ggufs,threads=a.gguf default", "ab none: model=x.ggufs,threads=a.gguf default" },
        { "tune x.gguf", "tune x.gguf:" },
        { "tune hf:o/r:Q4_0", "tune hf:o/r:Q4_0:" },
        { "tune hf:o/r:Q4_0 hf:o/r:Q8_0", "tune none: hf:o/r:Q4_0 hf:o/r:Q8_0" },
        { "tune -m hf:o/r", "tune hf:o/r:" },
        { "tune x.gguf gemma", "tune none: x.gguf gemma" },
        { "tune gemma x.gguf", "tune none: gemma x.gguf" },
        { "bench x.gguf", "bench x.gguf:" },
        { "bench some-part", "bench some-part:" },
        { "fit -c 64 ollama:llama3.2:3b", "fit ollama:llama3.2:3b:" },
        { "ab x.gguf q8_0", "ab x.gguf: default q8_0" },
        { "ab x.gguf q8_0 q4_0", "ab x.gguf: q8_0 q4_0" },
        { "ab x.gguf -w tg8 -w tg16", "ab x.gguf:" },
        { "ab x.gguf q8_0 -w tg8 -w tg16", "ab x.gguf: q8_0" },
        { "ab x.gguf o/r:Q4_0", "ab none: model=x.gguf model=o/r:Q4_0" },
        { "ab a~b.gguf y.gguf", "ab none: model=\"a b.gguf\" model=y.gguf" },
        { "ab -m x.gguf q8_0 q4_0", "ab x.gguf: q8_0 q4_0" },
        { "ab q8_0 q4_0", "ab none: q8_0 q4_0" },
        { "ab model=x.gguf q4_0", "ab none: model=x.gguf q4_0" },
        { "apply x.gguf q8_0", "apply x.gguf: q8_0" },
        { "apply applied", "apply none: applied" },
        { "govern x.gguf q8_0 q4_0", "govern x.gguf: q8_0 q4_0" },
        { "quantize x.gguf y.gguf -R q4_0", "quantize none: x.gguf y.gguf" },
    };
    struct cli_global g;
    struct cli_args a;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct str got = { 0 };
        char line[200];
        snprintf(line, sizeof line, "qdyno %s", CASES[i].line);
        CHECK_OK(parse(&g, &a, line, &why));
        str_printf(&got, "%s %s:", a.command->name, args_text(&a, "-m", "none"));
        for (int k = 0; k < a.n; k++) str_printf(&got, " %s", a.arg[k]);
        assert_string_equal(str_text(&got), CASES[i].want);
        str_free(&got);
        cli_args_done(&a);
    }
    static const char *const REFUSED[] = { "qdyno bench q8_0",        "qdyno bench x.gguf y.gguf",
                                           "qdyno nothing",           "qdyno tune hf:o/r",
                                           "qdyno tune lmstudio:o/r", "qdyno show x.gguf y" };
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++) {
        struct err why = { 0 };
        assert_int_equal(parse(&g, &a, REFUSED[i], &why), ERR_USAGE);
        cli_args_done(&a);
    }
}

static void test_config_grid(void **state)
{
    (void)state;
    struct cli_global g;
    struct cli_args a;
    struct err why = { 0 };
    struct config *c = NULL;
    int n = 0;
    CHECK_OK(parse(&g, &a, "qdyno bench -C q8_0 -C q4_0,threads=5 -t 1,2 -ctk f16,q8_0", &why));
    CHECK_OK(cli_config_grid(&c, &n, &a, &why));
    CHECK_EQ(n, 6); /* 2 x 2 for the first line, 2 for the second, whose threads are fixed */
    for (int i = 0; i < n; i++)
        CHECK_EQ(config_int(&c[i], KNOB_THREADS),
                 strcmp(config_text(&c[i], KNOB_FORMAT), "q4_0") ? 1 + i % 2 : 5);
    free(c);
    CHECK_OK(parse(&g, &a, "qdyno bench -t 1,zwei", &why));
    CHECK_EQ(cli_config_grid(&c, &n, &a, &why), ERR_USAGE);
    CHECK(!c);
}

static void test_tables_are_whole(void **state)
{
    (void)state;
    struct str man = { 0 };
    help_man(&man);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *c = &COMMANDS[i];
        struct str text = { 0 };
        CHECK(c->run);
        CHECK(*c->help);
        CHECK_EQ(command_find(c->name), c);
        help_text(&text, c);
        for (const struct cli_flag *f = c->flags; f && f->name; f++) {
            CHECK(f->help);
            CHECK(*f->help);
            CHECK(f->kind != FLAG_CHOICE || f->choices);
            if (f->needs && !flag_find(c->flags, f->needs, strlen(f->needs)))
                fail_msg("%s %s needs %s, which is no flag", c->name, f->name, f->needs);
            for (const struct cli_flag *o = GLOBAL_FLAGS; o->name; o++) {
                if (!strcmp(f->name, o->name) || (f->alias && o->alias && !strcmp(f->alias, o->alias)))
                    fail_msg("%s %s hides a global flag", c->name, f->name);
            }
            if (!strstr(str_text(&text), f->name)) fail_msg("the help of %s lacks %s", c->name, f->name);
        }
        if (!c->hidden && !strstr(str_text(&man), c->help)) {
            /* the man page escapes dashes: compare only the words before the first dash */
            char head[64];
            snprintf(head, sizeof head, "%.*s", (int)MIN(strcspn(c->help, "-"), sizeof head - 1), c->help);
            if (!strstr(str_text(&man), head)) fail_msg("man page lacks %s", c->name);
        }
        str_free(&text);
    }
    str_free(&man);
}

static const struct column COLUMNS[] = {
    { .name = "name", .title = "name" },
    { .name = "count", .title = "count", .kind = COLUMN_INT },
    { .name = "rate_tok_s", .title = "rate", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "size_bytes", .title = "size", .kind = COLUMN_BYTES },
    { .name = "good", .title = "good", .kind = COLUMN_BOOL },
};

static const struct document TEST_DOCUMENT = {
    .schema = "qdyno.test/1",
    .columns = COLUMNS,
    .n_columns = COUNT_OF(COLUMNS),
};

static char *written(const struct table *t, enum output_format format)
{
    char *text = NULL;
    size_t n = 0;
    struct err why = { 0 };
    FILE *f = open_memstream(&text, &n);
    CHECK_OK(table_write(t, format, f, &why));
    fclose(f);
    return text;
}

static void test_writers(void **state)
{
    (void)state;
    static const char *const WANT[] = {
        [OUTPUT_MD] = "| name           | count |  rate |  size | good |\n"
                      "| -------------- | ----: | ----: | ----: | ---: |\n"
                      "| a,\"b\" 'c' \\| d |     7 | 0.100 | 1.00K |  yes |\n"
                      "|                |   n/a |   n/a |   n/a |   no |\n"
                      "\na note\n",
        [OUTPUT_JSONL] =
            "{\"schema\":\"qdyno.test/1\",\"name\":\"a,\\\"b\\\" 'c' | d\",\"count\":7,\"rate_tok_s\":0.1,"
            "\"size_bytes\":1024,\"good\":true}\n"
            "{\"schema\":\"qdyno.test/1\",\"name\":null,\"count\":null,\"rate_tok_s\":null,\"size_bytes\":null,"
            "\"good\":false}\n",
        [OUTPUT_CSV] = "name,count,rate_tok_s,size_bytes,good\n\"a,\"\"b\"\" 'c' | d\",7,0.1,1024,1\n,,,,0\n",
        [OUTPUT_SQL] =
            "CREATE TABLE IF NOT EXISTS qdyno_test (\n  name TEXT,\n  count INTEGER,\n  rate_tok_s REAL,\n"
            "  size_bytes INTEGER,\n  good INTEGER\n);\n"
            "INSERT INTO qdyno_test VALUES ('a,\"b\" ''c'' | d', 7, 0.1, 1024, 1);\n"
            "INSERT INTO qdyno_test VALUES (NULL, NULL, NULL, NULL, 0);\n",
    };
    struct table t;
    table_init(&t, &TEST_DOCUMENT);
    json_t *row = table_row(&t);
    json_put_str(row, "name", "a,\"b\" 'c' | d");
    json_put_int(row, "count", 7);
    json_put_num(row, "rate_tok_s", 0.1);
    json_put_int(row, "size_bytes", 1024);
    json_put_bool(row, "good", true);
    row = table_row(&t);
    json_put_num(row, "rate_tok_s", NAN); /* unknown: written as null, "" or n/a, never as 0 */
    json_put_bool(row, "good", false);
    table_note(&t, "a note");
    for (int f = 0; f < (int)COUNT_OF(WANT); f++) {
        if (!WANT[f]) continue;
        char *got = written(&t, (enum output_format)f);
        assert_string_equal(got, WANT[f]);
        free(got);
    }
    char *text = written(&t, OUTPUT_JSON);
    json_t *doc = NULL;
    struct err why = { 0 };
    CHECK_OK(json_parse(&doc, text, strlen(text), &why));
    assert_string_equal(json_get_str(doc, "schema", ""), "qdyno.test/1");
    CHECK_EQ(json_array_size(json_object_get(doc, "rows")), 2);
    json_decref(doc);
    free(text);
    table_done(&t);
}

/* GOAL_NAMES repeats the names of enum goal, because the choices of a flag must be constants. Both must
 * agree. */
static void test_goals(void **state)
{
    (void)state;
    enum goal g;
    int n = 0;
    for (; GOAL_NAMES[n]; n++) {
        CHECK(goal_parse(GOAL_NAMES[n], &g));
        assert_string_equal(goal_name(g), GOAL_NAMES[n]);
    }
    CHECK_EQ(n, GOAL_ENERGY + 1);
}

static void test_exit_statuses(void **state)
{
    (void)state;
    CHECK_EQ(exit_status_of(ERR_OK), 0);
    CHECK_EQ(exit_status_of(ERR_USAGE), 4);
    CHECK_EQ(exit_status_of(ERR_FORMAT), 5);
    CHECK_EQ(exit_status_of(ERR_IO), 5);
    CHECK_EQ(exit_status_of(ERR_FIT), 6);
    CHECK_EQ(exit_status_of(ERR_NOMEM), 6);
    CHECK_EQ(exit_status_of(ERR_ABSENT), 7);
    CHECK_EQ(exit_status_of(ERR_INTERNAL), 70);
    CHECK_EQ(exit_status_of_verdict(VERDICT_BETTER), 0);
    CHECK_EQ(exit_status_of_verdict(VERDICT_EQUIVALENT), 0);
    CHECK_EQ(exit_status_of_verdict(VERDICT_NEGLIGIBLE), 0);
    CHECK_EQ(exit_status_of_verdict(VERDICT_WORSE), 1);
    CHECK_EQ(exit_status_of_verdict(VERDICT_INCONCLUSIVE), 2);
    CHECK_EQ(exit_status_of_verdict(VERDICT_NONE), 2);
    CHECK_EQ(exit_status_of_verdict(VERDICT_INVALID), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_stand_anywhere),
        cmocka_unit_test(test_refusals_name_flag_value_and_allowed),
        cmocka_unit_test(test_values_that_look_like_flags),
        cmocka_unit_test(test_models_are_taken_from_arguments),
        cmocka_unit_test(test_config_grid),
        cmocka_unit_test(test_tables_are_whole),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_goals),
        cmocka_unit_test(test_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
