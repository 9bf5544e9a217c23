/* Proves: what other engines' servers answer is read right, in both dialects and however the stream is cut;
 * each rule of honest figures refuses an answer that breaks it; arguments are split as written; foreign
 * results are read. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor/history/history.h"
#include "advisor/run/foreign.h"
#include "db/db.h"
#include "telemetry/http/http.h"
#include "tests/check.h"

/* As llama-server's documentation and source describe it: two tokens of an answer to three prompt tokens. */
static const char LLAMA[] =
    "data: {\"index\":0,\"content\":\" the\",\"tokens\":[262],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":1,"
    "\"tokens_evaluated\":3}\n\n"
    ": ping\n\n"
    "data: {\"index\":0,\"content\":\" cat\",\"tokens\":[3797],\"stop\":false,\"tokens_predicted\":2,"
    "\"tokens_evaluated\":3}\r\n\r\n"
    "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,\"tokens_predicted\":2,\"tokens_evaluated\":3,"
    "\"truncated\":false,\"stop_type\":\"limit\",\"timings\":{\"cache_n\":0,\"prompt_n\":3,\"prompt_ms\":6.0,"
    "\"predicted_n\":2,\"predicted_ms\":4.5}}\n\n";
/* vLLM's form, with continuous usage; the first chunk has two tokens. */
static const char OPENAI[] =
    "data: {\"choices\":[{\"index\":0,\"text\":\"a b\",\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":3,"
    "\"completion_tokens\":2}}\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\" c\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3,"
    "\"completion_tokens\":3}}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3,\"prompt_tokens_details\":"
    "{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n";

static void take(struct reply *r, const char *text, size_t step)
{
    reply_begin(r);
    for (size_t at = 0; at < strlen(text); at += step)
        (void)reply_take(r, text + at, MIN(step, strlen(text) - at));
}

static void test_llama(void **state)
{
    (void)state;
    for (size_t step = 1; step < sizeof LLAMA; step += 7) {
        struct reply r;
        struct err why;
        take(&r, LLAMA, step);
        CHECK_EQ(r.chunks, 2);
        CHECK_EQ(r.gen_tokens, 2);
        CHECK_EQ(r.prompt_tokens, 3);
        CHECK_EQ(r.cached_tokens, 0);
        CHECK_NEAR(r.server_prefill_s, 0.006, 1e-12);
        CHECK_NEAR(r.server_decode_s, 0.0045, 1e-12);
        assert_true(r.each_one);
        CHECK_EQ(json_array_size(r.ids), 2);
        CHECK_OK(reply_check(&r, &(struct reply_wanted){ .prompt_tokens = 3, .gen_tokens = 2 }, &why));
        const struct workload w = { .prompt = 3, .gen = 1 };
        json_t *cell = reply_cell(&r, &w, "m", "hash");
        CHECK_EQ(json_get_num(cell, "gen_tokens", 0), 1);
        CHECK_EQ(json_array_size(json_object_get(cell, "itl_s")), 1);
        assert_true(json_is_string(json_object_get(cell, "output_hash")));
        json_decref(cell);
        reply_done(&r);
    }
}

static void test_openai(void **state)
{
    (void)state;
    struct reply r;
    struct err why;
    take(&r, OPENAI, 5);
    CHECK_EQ(r.chunks, 2);
    assert_false(r.each_one);
    CHECK_EQ(r.first_count, 2);
    assert_true(r.ended);
    CHECK_OK(reply_check(&r, &(struct reply_wanted){ .prompt_tokens = 3, .gen_tokens = 3 }, &why));
    /* two tokens in the first chunk: no time to the first token, and one token after it */
    const struct workload w = { .prompt = 3, .gen = 2 };
    json_t *cell = reply_cell(&r, &w, "m", "");
    assert_true(json_is_null(json_object_get(cell, "ttft_s")));
    CHECK_EQ(json_get_num(cell, "gen_tokens", 0), 1);
    CHECK_EQ(json_array_size(json_object_get(cell, "itl_s")), 0);
    json_decref(cell);
    /* nor does the server's time, of all tokens, belong to those that are counted */
    r.server_decode_s = 0.5;
    cell = reply_cell(&r, &w, "m", "");
    assert_true(json_is_null(json_object_get(cell, "server_decode_s")));
    json_decref(cell);
    reply_done(&r);
}

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *breaks, *says;
    } CASES[] = {
        { "cached", "came from the server's prompt cache" },
        { "gen", "generated 2 tokens instead of 4" },
        { "unknown", "does not say how many tokens it generated" },
        { "bos", "counted 4 prompt tokens instead of 3: it added one, probably a BOS token" },
        { "template", "probably by a chat template" },
        { "depth", "0 tokens were in the server's cache instead of the 2" },
        { "load", "loaded its model during this request" },
        { "truncated", "cut the prompt" },
        { "empty", "had no tokens" },
        { "broken", "broke off after 2 chunks" },
        { "bundled", "2 tokens came in 1 chunk, and the server does not say how many the first one had" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct reply r;
        struct err why = { 0 };
        struct reply_wanted w = { .prompt_tokens = 3, .gen_tokens = 2, .ids = true };
        const char *b = CASES[i].breaks;
        take(&r, LLAMA, 1000);
        if (!strcmp(b, "cached")) r.cached_tokens = 2;
        if (!strcmp(b, "gen")) w.gen_tokens = 4;
        if (!strcmp(b, "unknown")) r.gen_tokens = NAN;
        if (!strcmp(b, "bos")) r.prompt_tokens = 4;
        if (!strcmp(b, "template")) r.prompt_tokens = 12;
        if (!strcmp(b, "depth")) w.cached_tokens = 2;
        if (!strcmp(b, "load")) r.load_s = 0.5;
        if (!strcmp(b, "truncated")) r.truncated = true;
        if (!strcmp(b, "broken")) r.ended = false;
        if (!strcmp(b, "empty")) r.chunks = 0;
        if (!strcmp(b, "bundled")) {
            r.chunks = 1;
            r.each_one = false;
            r.first_count = NAN;
        }
        assert_int_not_equal(reply_check(&r, &w, &why), ERR_OK);
        if (!strstr(why.message, CASES[i].says)) fail_msg("%s: %s", b, why.message);
        reply_done(&r);
    }
    struct reply r;
    struct err why;
    take(&r, "data: {nonsense\n\n", 3);
    assert_int_equal(reply_check(&r, &(struct reply_wanted){ 0 }, &why), ERR_FORMAT);
    reply_done(&r);
}

static void test_words(void **state)
{
    (void)state;
    struct words w = { 0 };
    struct err why;
    CHECK_OK(words_split(&w, "  -fa on  --x 'a b' '' ", &why));
    CHECK_EQ(w.n, 5);
    assert_string_equal(w.word[3], "a b");
    assert_string_equal(w.word[4], "");
    words_free(&w);
    assert_int_equal(words_split(&w, "'open", &why), ERR_USAGE);
    words_free(&w);
    /* a variable that is set is kept, another one added */
    static const char *const MORE[] = { "PATH=none", "QDYNO_TEST_MORE=1", NULL };
    words_environment(&w, MORE);
    assert_string_equal(w.word[w.n - 1], "QDYNO_TEST_MORE=1");
    for (int i = 0; i < w.n; i++) assert_string_not_equal(w.word[i], "PATH=none");
    words_free(&w);
}

/* ---------------------------------------------------------------- processes */

static void start(struct foreign_process *p, struct words *w, const char *script)
{
    struct err why;
    words_add(w, "/bin/sh");
    words_add(w, "-c");
    words_add(w, script);
    CHECK_OK(foreign_start(p, w, NULL, &why));
}

/* What a program leaves behind ends with it. */
static void test_orphan(void **state)
{
    (void)state;
    struct foreign_process p = { 0 };
    struct words w = { 0 };
    int child = 0;
    start(&p, &w, "sleep 600 & echo $!");
    while (foreign_lives(&p)) clock_sleep_ns(1000000);
    assert_int_equal(sscanf(str_text(&p.said.text), "%d", &child), 1);
    char path[64], *text = NULL;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    for (bool gone = false; !gone;) { /* the test's time limit ends this if it stays */
        gone = file_read(&text, NULL, path, 1 << 16, NULL) || strstr(text, ") Z ");
        free(text);
        text = NULL;
        clock_sleep_ns(1000000);
    }
    foreign_end(&p);
    words_free(&w);
}

/* A script that waits for a program which works does not hang; one whose program sleeps does. */
static void test_wrapper(void **state)
{
    (void)state;
    static const char *const SCRIPTS[] = { "(while :; do :; done)& wait", "sleep 600 & wait" };
    for (int i = 0; i < 2; i++) {
        struct foreign_process p = { .watchdog = { .least_s = 2 } };
        struct words w = { 0 };
        struct err why = { 0 };
        enum err_code rc = ERR_OK;
        start(&p, &w, SCRIPTS[i]);
        watchdog_begin(&p.watchdog, "test");
        while (!rc && foreign_lives(&p)) {
            clock_sleep_ns(1000000);
            rc = watchdog_check(&p.watchdog, p.pid, &why);
            if (p.watchdog.silent_s > 4) break;
        }
        if (i)
            assert_non_null(strstr(why.message, "used no CPU time"));
        else
            CHECK_EQ(rc, ERR_OK);
        foreign_end(&p);
        words_free(&w);
    }
}

/* llama-bench loads its model in each run: a cell says that it has work that no figure counts. */
static void test_untimed(void **state)
{
    (void)state;
    static const char SCRIPT[] =
        "#!/bin/sh\n" /* -m M -p P -n N -d D */
        "echo '{\"n_prompt\":'$4',\"n_gen\":'$6',\"n_depth\":'$8',\"samples_ns\":[5]}'\n";
    char folder[] = "/tmp/qdyno-bench-XXXXXX", path[64], line[128];
    struct config c;
    struct err why = { 0 };
    struct arm *a = NULL;
    struct measured_cell cell;
    static struct sample window[WINDOW_SAMPLES];
    int samples = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/bench", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(SCRIPT, f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(line, sizeof line, "engine=llama-bench,bin=%s", path);
    CHECK_OK(config_parse(&c, line, &why));
    assert_int_equal(setenv("QDYNO_SHARE", TEST_SOURCE_DIR "/share", 1), 0);
    const struct arm_spec spec = { .model = TEST_SOURCE_DIR "/share/models/bundled.gguf", .config = &c };
    CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
    const struct cell_ask ask = { .arm = a, .workload = "pp4", .repeats = 2 };
    CHECK_OK(cell_take(&cell, &ask, window, &samples, &why));
    assert_true(cell.untimed_work);
    CHECK_NEAR(cell.value[METRIC_PREFILL_RATE], 8 / 10e-9, 1);
    cell_done(&cell);
    arm_close(a);
    unlink(path);
    rmdir(folder);
}

/* A server that takes the connection and never answers. */
static void test_silent(void **state)
{
    (void)state;
    int fd = -1, port = 0;
    char url[64];
    struct err why = { 0 };
    struct reply r;
    CHECK_OK(http_listen(&fd, "127.0.0.1", 0, &port, &why));
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/completions", port);
    json_t *body = json_object();
    struct foreign_wait w = { .reply = &r, .silence_s = 0.3 };
    assert_int_equal(foreign_send(NULL, url, body, NULL, &w, &why), ERR_ABSENT);
    assert_non_null(strstr(why.message, "the server has sent nothing for"));
    reply_done(&r);
    json_decref(body);
    close(fd);
}

/* ---------------------------------------------------------------- import */

static const char BENCH_JSONL[] =
    "{\"build_commit\":\"abc\",\"build_number\":7,\"cpu_info\":\"Some CPU\",\"model_filename\":\"/m/x.gguf\",\"n_threads\":4,"
    "\"n_batch\":512,\"flash_attn\":true,\"n_prompt\":512,\"n_gen\":0,\"n_depth\":0,\"avg_ts\":101.0,\"samples_ts\":[100.0,102.0]}\n"
    "{\"cpu_info\":\"Some CPU\",\"model_filename\":\"/m/x.gguf\",\"n_threads\":4,\"n_prompt\":0,\"n_gen\":64,\"n_depth\":256,"
    "\"avg_ts\":20.0,\"samples_ts\":[20.0]}\n";
static const char BENCH_SQL[] =
    "CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n  avg_ts REAL\n);\n\n"
    "INSERT INTO llama_bench (build_commit, cpu_info, model_filename, n_threads, n_prompt, n_gen, "
    "n_depth, avg_ts) VALUES ('abc', 'It''s a CPU', 'x.gguf', '2', '0', '32', '0', '12.5');\n";
static const char LOCALSCORE[] =
    "{\"system_info\":{\"cpu_name\":\"Core\"},\"runtime_info\":{\"name\":\"llamafile\",\"version\":\"0.9.3\"},\"results\":[{"
    "\"name\":\"pp1024+tg16\",\"n_prompt\":1024,\"n_gen\":16,\"avg_time_ms\":1106.5,\"prompt_tps\":1264.6,\"gen_tps\":53.9,"
    "\"ttft_ms\":828.4,\"model_name\":\"qwen\"}]}";

static void import(struct db *d, const char *folder, const char *text, enum err_code want,
                   struct import_result *got)
{
    char path[512];
    struct err why = { 0 };
    snprintf(path, sizeof path, "%s/in", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    const enum err_code rc = history_import(d, path, got, &why);
    if (rc != want) fail_msg("status %d: %s", (int)rc, why.message);
    unlink(path);
}

static void test_import(void **state)
{
    (void)state;
    char folder[] = "/tmp/qdyno-import-XXXXXX", path[512];
    struct db *d = NULL;
    struct err why;
    struct import_result got;
    struct run_row *runs = NULL;
    struct results r;
    int n = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/db", folder);
    CHECK_OK(db_open(&d, path, &why));
    import(d, folder, BENCH_JSONL, ERR_OK, &got);
    CHECK_EQ(got.tests, 2);
    CHECK_EQ(got.runs, 2);
    CHECK_OK(db_run_list(d, "pp512", 10, &runs, &n, &why));
    CHECK_EQ(n, 1);
    assert_string_equal(runs[0].kind, "import");
    assert_string_equal(runs[0].model_name, "x.gguf");
    CHECK_OK(results_read(&r, d, runs[0].id, &why));
    CHECK_EQ(r.n, 1);
    CHECK_NEAR(exp(result_mean(&r.result[0], METRIC_PREFILL_RATE)), sqrt(100.0 * 102.0), 1e-9);
    struct compared *pair = NULL;
    int pairs = 0;
    CHECK_OK(compare_runs(&pair, &pairs, &r, &r, NULL, 0.02, &why));
    CHECK_EQ(pairs, 1);
    CHECK_EQ(pair[0].verdict, VERDICT_INCONCLUSIVE);
    assert_non_null(strstr(pair[0].reason, "no verdict rests on it"));
    free(pair);
    assert_string_equal(r.result[0].work_hash, "");
    assert_string_equal(r.result[0].config, "threads=4,engine=llama-bench,args=\"-b 512 -fa 1\"");
    results_free(&r);
    run_row_free(&runs[0]);
    free(runs);
    import(d, folder, BENCH_SQL, ERR_OK, &got);
    CHECK_EQ(got.tests, 1);
    import(d, folder, LOCALSCORE, ERR_OK, &got);
    CHECK_EQ(got.tests, 1);
    CHECK_OK(db_run_list(d, "pp1024", 10, &runs, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_OK(results_read(&r, d, runs[0].id, &why));
    CHECK_NEAR(exp(result_mean(&r.result[0], METRIC_DECODE_RATE)), 53.9, 1e-9);
    CHECK_NEAR(exp(result_mean(&r.result[0], METRIC_TTFT)), 0.8284, 1e-9);
    results_free(&r);
    run_row_free(&runs[0]);
    free(runs);
    import(d, folder, "{\"a\":1}", ERR_FORMAT, &got);
    import(d, folder, "not a document", ERR_FORMAT, &got);
    import(d, folder, "INSERT INTO t (a, b) VALUES ('1');", ERR_FORMAT, &got);
    import(d, folder, "[{\"n_prompt\":512,\"n_gen\":0,\"avg_ts\":0}]", ERR_FORMAT, &got);
    db_close(d);
    snprintf(path, sizeof path, "rm -rf %s", folder);
    assert_int_equal(system(path), 0);
}

/* Models with the same test but another name are series of their own. */
static void test_series(void **state)
{
    (void)state;
    char folder[] = "/tmp/qdyno-import-XXXXXX", path[512];
    struct db *d = NULL;
    struct err why;
    struct import_result got;
    struct history h = { 0 };
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/db", folder);
    CHECK_OK(db_open(&d, path, &why));
    import(d, folder,
           "[{\"n_prompt\":512,\"n_gen\":0,\"avg_ts\":9,\"model_filename\":\"a.gguf\"},"
           "{\"n_prompt\":512,\"n_gen\":0,\"avg_ts\":90,\"model_filename\":\"b.gguf\"}]",
           ERR_OK, &got);
    CHECK_OK(history_read(&h, d, &(struct history_want){ .limit = 10 }, &why));
    CHECK_EQ(h.n, 2);
    history_free(&h);
    db_close(d);
    snprintf(path, sizeof path, "rm -rf %s", folder);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_llama),  cmocka_unit_test(test_openai),
                                        cmocka_unit_test(test_rules),  cmocka_unit_test(test_words),
                                        cmocka_unit_test(test_orphan), cmocka_unit_test(test_wrapper),
                                        cmocka_unit_test(test_silent), cmocka_unit_test(test_untimed),
                                        cmocka_unit_test(test_import), cmocka_unit_test(test_series) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
