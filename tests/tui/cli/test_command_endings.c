/* Proves: the last lines of `bench` count the rows that have a figure, one that failed later included; the
 * A/B that `bench` and `eval` propose measures each config with the model it was measured on. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tui/cli/command_endings.h"
#include "tui/cli/documents.h"

static void add(struct table *t, const char *config, double rate, const char *error)
{
    json_t *row = table_row(t);
    json_put_str(row, "config", config);
    json_put_str(row, "workload", "tg4");
    if (rate > 0) {
        json_put_int(row, "repetitions", 3);
        json_put_int(row, "disturbed", 0);
        json_put_num(row, "decode_tok_s", rate);
    }
    json_put_str(row, "error", error);
}

static void test_rows_are_counted_by_their_figures(void **state)
{
    (void)state;
    struct table t;
    table_init(&t, &DOCUMENT_BENCH);
    add(&t, "q8_0", 20, "the disk is full"); /* an error after its repetitions */
    bench_close_table(&t);
    CHECK_CONTAINS(str_text(&t.result), "q8_0, tg4: decoding 20.0 tokens/s");
    CHECK_CONTAINS(str_text(&t.closing), "evidence: 3 repetitions in 1 row;");
    table_done(&t);

    table_init(&t, &DOCUMENT_BENCH);
    for (int i = 0; i < 6; i++) add(&t, "default", 10 + i, NULL);
    add(&t, "ctx=2", NAN, "the context is too short");
    bench_close_table(&t);
    CHECK_CONTAINS(str_text(&t.result), "and 2 more rows in the table");
    CHECK_CONTAINS(str_text(&t.closing), "evidence: 18 repetitions in 6 rows;");
    table_done(&t);

    table_init(&t, &DOCUMENT_BENCH);
    add(&t, "ctx=2", NAN, "the context is too short");
    bench_close_table(&t);
    CHECK_STR(str_text(&t.result), "");
    CHECK_STR(str_text(&t.closing), "");
    table_done(&t);
}

/* The proposal for two config lines, measured on these files. */
static void check_next(const char *a, const char *file_a, const char *b, const char *file_b, const char *want)
{
    struct config config[2];
    struct table t;
    CHECK_EQ(config_parse(&config[0], a, NULL), ERR_OK);
    CHECK_EQ(config_parse(&config[1], b, NULL), ERR_OK);
    table_init(&t, &DOCUMENT_BENCH);
    close_with_ab(&t, 7,
                  &(struct next_ab){ .side = { { &config[0], file_a }, { &config[1], file_b } },
                                     .workload = "tg64",
                                     .why = "why" });
    if (strncmp(str_text(&t.next), want, strlen(want)))
        fail_msg("%s and %s: '%s', expected '%s'", a, b, str_text(&t.next), want);
    table_done(&t);
}

static void test_each_config_keeps_its_model(void **state)
{
    (void)state;
    static const char *const SERVER = "engine=openai,url=http://127.0.0.1:1,model=m";
    check_next("default", "a.gguf", "q8_0", "a.gguf",
               "next: qdyno ab -m a.gguf default q8_0 -w tg64   (why)");
    check_next("model=big.gguf", "big.gguf", "default", "small.gguf",
               "next: qdyno ab -m big.gguf default model=small.gguf -w tg64 ");
    check_next("default", "small.gguf", "model=big.gguf", "big.gguf",
               "next: qdyno ab -m small.gguf default model=big.gguf -w tg64 ");
    check_next("model=big.gguf", "big.gguf", "q8_0,model=big.gguf", "big.gguf",
               "next: qdyno ab -m big.gguf default q8_0 -w tg64 ");
    check_next("default", "it's a.gguf", "q8_0", "it's a.gguf",
               "next: qdyno ab -m 'it'\\''s a.gguf' default q8_0 -w tg64 ");
    check_next(SERVER, "a.gguf", "threads=1", "a.gguf",
               "next: qdyno ab -m a.gguf model=m,engine=openai,url=http://127.0.0.1:1 threads=1 -w tg64 ");
    /* one config on one model is no comparison */
    check_next("default", "a.gguf", "model=a.gguf", "a.gguf", "next: qdyno show 7 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_counted_by_their_figures),
        cmocka_unit_test(test_each_config_keeps_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
