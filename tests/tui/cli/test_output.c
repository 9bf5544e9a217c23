/* Proves: what a command prints for people ends with its result; --quiet prints the result alone, and details
 * need --verbose; on a terminal a table fits for every width, names what it leaves out, says repeated values
 * once, and names configs briefly. */
#include <string.h>

#include "tests/check.h"
#include "tui/cli/lib/output.h"

static const struct column COLUMNS[] = {
    { .name = "model", .title = "model" },
    { .name = "arm", .title = "arm" },
    { .name = "config", .title = "config" },
    { .name = "rate_tok_s", .title = "decode tok/s", .kind = COLUMN_NUM, .digits = 2 },
    { .name = "ttft_s", .title = "TTFT ms", .kind = COLUMN_NUM, .scale = 1e3, .digits = 1 },
    { .name = "cells", .title = "cells", .kind = COLUMN_INT },
    { .name = "verdict", .title = "verdict" },
};
static const struct document DOCUMENT = { .schema = "qdyno.test/1",
                                          .columns = COLUMNS,
                                          .n_columns = COUNT_OF(COLUMNS) };

static void fill(struct table *t, const char *const config[2])
{
    table_init(t, &DOCUMENT);
    table_keep(t, "arm config rate_tok_s verdict");
    for (int i = 0; i < 2; i++) {
        json_t *row = table_row(t);
        json_put_str(row, "model", "gemma-3-270m-Q4_K_M.gguf");
        json_put_str(row, "arm", i ? "B" : "A");
        json_put_str(row, "config", config[i]);
        json_put_num(row, "rate_tok_s", 20 + i);
        json_put_num(row, "ttft_s", 0.01);
        json_put_int(row, "cells", 14 + i);
        json_put_str(row, "verdict", i ? "inconclusive" : NULL);
    }
    table_note(t, "a note");
    table_detail(t, "a detail");
    table_result(t, "B is faster.");
    table_closing(t, "evidence: 7 blocks");
}

static char *written(const struct table *t, struct table_style style)
{
    char *text = NULL;
    size_t n = 0;
    struct err why = { 0 };
    FILE *f = open_memstream(&text, &n);
    CHECK_OK(table_write_styled(t, OUTPUT_MD, style, f, &why));
    fclose(f);
    return text;
}

static int widest_line(const char *text)
{
    int widest = 0, n = 0;
    for (; *text; text++) {
        n = *text == '\n' ? 0 : n + (((unsigned char)*text & 0xc0) != 0x80);
        widest = MAX(widest, n);
    }
    return widest;
}

static const char *const PLAIN[2] = { "default", "kv=q8_0" };

static void output_ends_with_the_result(void **state)
{
    (void)state;
    struct table t;
    fill(&t, PLAIN);
    char *text = written(&t, (struct table_style){ 0 });
    CHECK(strstr(text, "\na note\n\nB is faster.\nevidence: 7 blocks\n"));
    assert_string_equal(strstr(text, "evidence"), "evidence: 7 blocks\n");
    CHECK(!strstr(text, "a detail"));
    free(text);
    text = written(&t, (struct table_style){ .verbose = true });
    CHECK(strstr(text, "\na note\na detail\n\nB is faster.\n"));
    free(text);
    text = written(&t, (struct table_style){ .quiet = true });
    assert_string_equal(text, "B is faster.\n");
    free(text);
    str_clear(&t.result);
    text = written(&t, (struct table_style){ .quiet = true }); /* no result in words: the table is it */
    CHECK(strstr(text, "| B ") && !strstr(text, "a note"));
    free(text);
    table_done(&t);
}

static void tables_fit_the_terminal(void **state)
{
    (void)state;
    struct table t;
    fill(&t, PLAIN);
    for (int width = 60; width <= 200; width++) {
        char *text = written(&t, (struct table_style){ .width = width });
        CHECK_LE(widest_line(text), width);
        CHECK(strstr(text, "all rows: model gemma-3-270m-Q4_K_M.gguf\n"));
        CHECK(strstr(text, "decode tok/s") && strstr(text, "inconclusive"));
        CHECK(strstr(text, "cells")); /* in the table, or named as left out */
        free(text);
    }
    char *text = written(&t, (struct table_style){ .width = 60, .verbose = true });
    CHECK(widest_line(text) > 60); /* all columns were asked for */
    free(text);
    table_done(&t);
}

static void long_texts_are_shortened_in_the_middle(void **state)
{
    (void)state;
    static const char *const LONG[2] = {
        "tensors=\"attn_v:q6_K;ffn_down:q5_K;attn_q:q5_K;attn_k:q6_K\",threads=2",
        "tensors=\"attn_v:q6_K;ffn_down:q5_K;attn_q:q5_K;attn_k:q4_K\",threads=1"
    };
    struct table t;
    fill(&t, LONG);
    char *text = written(&t, (struct table_style){ .width = 80 });
    CHECK_LE(widest_line(text), 80);
    CHECK(strstr(text, "…") && strstr(text, "threads=2 ") && strstr(text, "threads=1 "));
    free(text);
    table_done(&t);
}

static void configs_have_short_names(void **state)
{
    (void)state;
    static const char *const FOREIGN[2] = { "model=/home/u/models/a.gguf",
                                            "engine=llama-server,bin=/opt/llama/llama-server,threads=1" };
    static const char *const ALIKE[2] = { "model=/x/a.gguf", "model=/y/a.gguf" };
    struct table t;
    fill(&t, FOREIGN);
    char *text = written(&t, (struct table_style){ .width = 120 });
    CHECK(strstr(text, "| model=a.gguf ") && strstr(text, "| llama-server -t 1 llama-server "));
    free(text);
    text = written(&t, (struct table_style){ 0 }); /* a file gets the whole line */
    CHECK(strstr(text, "bin=/opt/llama/llama-server"));
    free(text);
    table_done(&t);
    fill(&t, ALIKE); /* one name for both would hide the difference */
    text = written(&t, (struct table_style){ .width = 120 });
    CHECK(strstr(text, "/x/a.gguf") && strstr(text, "/y/a.gguf"));
    free(text);
    table_done(&t);
}

/* A document takes from a struct what its columns name, in each kind; unknown values are null. */
static void columns_are_members(void **state)
{
    (void)state;
    struct thing {
        double num, log;
        int count;
        int64_t bytes, run;
        bool on;
        char text[8], empty[8];
        const char *words;
    };
    static const struct column MEMBERS[] = {
        COL("num", "n", .scale = 1e3, MEMBER(struct thing, num)),
        COL("ratio", "r", MEMBER_AS(struct thing, log, LOG_RATIO)),
        KEY("count", MEMBER(struct thing, count)),
        COL("bytes", "b", .kind = COLUMN_BYTES, MEMBER(struct thing, bytes)),
        KEY("run", MEMBER_AS(struct thing, run, ID)),
        KEY("on", MEMBER(struct thing, on)),
        KEY("text", MEMBER(struct thing, text)),
        KEY("empty", MEMBER(struct thing, empty)),
        KEY("string", MEMBER_AS(struct thing, empty, STRING)),
        KEY("words", MEMBER(struct thing, words)),
        { .metric = &METRICS[METRIC_DECODE_RATE], MEMBER(struct thing, num) },
        KEY("other"),
    };
    static const struct document D = { .schema = "qdyno.test/1",
                                       .columns = MEMBERS,
                                       .n_columns = COUNT_OF(MEMBERS) };
    static const enum column_kind KINDS[] = { COLUMN_NUM,  COLUMN_NUM,  COLUMN_INT,  COLUMN_BYTES,
                                              COLUMN_INT,  COLUMN_BOOL, COLUMN_TEXT, COLUMN_TEXT,
                                              COLUMN_TEXT, COLUMN_TEXT, COLUMN_NUM,  COLUMN_TEXT };
    const struct thing x = { .num = 1.5, .count = 3, .bytes = 5, .on = true, .text = "a", .words = "w" };
    struct table t;
    table_init(&t, &D);
    for (int c = 0; c < t.n_columns; c++) CHECK_EQ(t.columns[c].kind, KINDS[c]);
    json_t *row = table_row(&t);
    document_put(&D, row, struct thing, &x);
    char *line = json_line(row);
    CHECK_STR(line, "{\"num\":1.5,\"ratio\":1.0,\"count\":3,\"bytes\":5,\"run\":null,\"on\":true,"
                    "\"text\":\"a\",\"empty\":null,\"string\":\"\",\"words\":\"w\",\"decode_tok_s\":1.5}");
    free(line);
    table_lines(&t, table_note, "one\n\ntwo");
    CHECK_STR(str_text(&t.notes), "one\ntwo\n");
    table_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(output_ends_with_the_result),
                                        cmocka_unit_test(columns_are_members),
                                        cmocka_unit_test(tables_fit_the_terminal),
                                        cmocka_unit_test(long_texts_are_shortened_in_the_middle),
                                        cmocka_unit_test(configs_have_short_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
