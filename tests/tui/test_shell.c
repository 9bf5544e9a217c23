/* Proves: a line is split into words as a shell does, without other shell features; the lines of a command
 * arrive whole from both streams; its exit status is reported; an interrupt of its process group ends it. */
#include "tests/check.h"
#include "tui/dashboard/shell.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void words(void **state)
{
    (void)state;
    static const struct {
        const char *line, *joined; /* words in [] */
    } CASES[] = {
        { "", "" },
        { "  ab  f16   q4_0 ", "[ab][f16][q4_0]" },
        { "run -p 'two words' -n 3", "[run][-p][two words][-n][3]" },
        { "a\"b c\"d", "[ab cd]" },
        { "'' x", "[][x]" },
        { "a\\ b 'c\\d' \"e\\\"f\"", "[a b][c\\d][e\"f]" },
        { "$HOME * | > ; `ls`", "[$HOME][*][|][>][;][`ls`]" }, /* no shell */
        { "tensors=attn_v:q6_K;ffn:q5_K", "[tensors=attn_v:q6_K;ffn:q5_K]" },
        { "it's", NULL },
        { "\"open", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char line[128], *argv[16];
        int n;
        struct err why;
        struct str got = { 0 };
        snprintf(line, sizeof line, "%s", CASES[i].line);
        const enum err_code rc = shell_words_split(line, argv, COUNT_OF(argv), &n, &why);
        CHECK_EQ(rc, CASES[i].joined ? ERR_OK : ERR_USAGE);
        if (rc) continue;
        for (int k = 0; k < n; k++) str_printf(&got, "[%s]", argv[k]);
        assert_string_equal(str_text(&got), CASES[i].joined);
        CHECK(!argv[n]);
        str_free(&got);
    }
    char many[] = "a b c d", *argv[4];
    int n;
    struct err why;
    CHECK_EQ(shell_words_split(many, argv, 4, &n, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "more than 3");
}

struct heard {
    struct str lines;
    int count, pid;
    bool interrupt, ended;
};

static void on_line(void *ctx, const char *text)
{
    struct heard *h = ctx;
    str_printf(&h->lines, "<%s>", text);
    if (!h->count++ && h->interrupt) kill(-h->pid, SIGINT);
}

static void on_start(void *ctx, int pid)
{
    struct heard *h = ctx;
    if (pid) h->pid = pid;
    h->ended = !pid;
}

static int run(const char *script, struct heard *h)
{
    char *const argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, strdupa(script), NULL };
    int status = -1;
    struct err why;
    CHECK_OK(shell_run(
        &(struct shell_run){
            .program = "/bin/sh", .argv = argv, .line = on_line, .started = on_start, .ctx = h },
        &status, &why));
    CHECK_GT(h->pid, 0);
    CHECK(h->ended); /* its pid is not signalled any more */
    return status;
}

static void lines_and_ends(void **state)
{
    (void)state;
    struct heard h = { .count = 0 };
    assert_int_equal(run("echo one; echo two >&2; printf 'last'; exit 3", &h), 3);
    assert_string_equal(str_text(&h.lines), "<one><two><last>");
    str_clear(&h.lines);
    assert_int_equal(run("read x; echo \"[$x]\"; printf '10 %%\\r20 %%\\n\\n'", &h),
                     0); /* no input; progress */
    assert_string_equal(str_text(&h.lines), "<[]><10 %><20 %>");
    str_clear(&h.lines);
    h.count = 0;
    assert_int_equal(run("head -c 5000 /dev/zero | tr '\\0' x", &h), 0); /* one long line, in pieces */
    assert_int_equal(h.lines.len - 2 * (size_t)h.count, 5000);
    str_free(&h.lines);
}

static void interrupted(void **state)
{
    (void)state;
    struct heard h = { .interrupt = true };
    /* exec: a shell that is interrupted just before it starts a command may run it to its end */
    assert_int_equal(run("echo begun; exec sleep 100", &h), 128 + SIGINT);
    assert_string_equal(str_text(&h.lines), "<begun>");
    str_free(&h.lines);
}

static void cannot_start(void **state)
{
    (void)state;
    char *const argv[] = { (char[]){ "none" }, NULL };
    struct heard h = { .count = 0 };
    struct err why;
    int status;
    CHECK_EQ(
        shell_run(
            &(struct shell_run){
                .program = "/nowhere/none", .argv = argv, .line = on_line, .started = on_start, .ctx = &h },
            &status, &why),
        ERR_IO);
    CHECK_EQ(h.pid, 0);
}

/* Lines of --progress json, as tui/cli/lib/progress.c writes them; anything else is not taken for one. */
static bool read_line(struct task_progress *out, const char *line)
{
    json_t *o = progress_line_parse(line);
    if (o) task_progress_read(out, o);
    json_decref(o);
    return o != NULL;
}

static void progress(void **state)
{
    (void)state;
    struct task_progress p;
    CHECK(read_line(&p, "{\"schema\":\"qdyno.progress/1\",\"text\":\"q4_K  42 %\",\"done\":0.42,"
                        "\"rate\":7.5e7,\"unit\":\"weights/s\",\"left_s\":12}"));
    CHECK_EQ(p.done, 0.42);
    CHECK_EQ(p.rate, 7.5e7);
    CHECK_EQ(p.left_s, 12);
    assert_string_equal(p.unit, "weights/s");
    assert_string_equal(p.text, "q4_K  42 %");
    CHECK(read_line(&p, "{\"schema\":\"qdyno.progress/1\",\"text\":\"calibrating\",\"done\":null}"));
    CHECK_NAN(p.done);
    CHECK_NAN(p.rate);
    CHECK_NAN(p.left_s);
    CHECK(!p.unit[0]);
    CHECK(!read_line(&p, "{\"schema\":\"qdyno.quantize/1\"}"));
    CHECK(!read_line(&p, "{ half an object"));
    CHECK(!read_line(&p, "qdyno quantize: no such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),        cmocka_unit_test(lines_and_ends), cmocka_unit_test(interrupted),
        cmocka_unit_test(cannot_start), cmocka_unit_test(progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
