/* Proves: the worker's protocol, with a real child process over a socketpair: its answers to every request,
 * to invalid input, to a cancel during work, and to a parent that exits. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/worker/handicap.h"
#include "engine/worker/worker.h"
#include "engine/worker/worker_internal.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"

struct child {
    pid_t pid;
    int fd;
    FILE *in;
};

static struct child start(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fflush(NULL);
    struct child c = { .pid = fork(), .fd = pair[0] };
    CHECK_GE(c.pid, 0);
    if (c.pid == 0) {
        close(pair[0]);
        _exit(worker_serve(pair[1], NULL, NULL) ? 1 : 0);
    }
    close(pair[1]);
    c.in = fdopen(c.fd, "r");
    return c;
}

static void say(const struct child *c, const char *line)
{
    const size_t n = strlen(line);
    assert_int_equal(send(c->fd, line, n, MSG_NOSIGNAL), n);
    assert_int_equal(send(c->fd, "\n", 1, MSG_NOSIGNAL), 1);
}

/* The next line as JSON; NULL at the end of file. */
static json_t *hear(const struct child *c)
{
    char *line = NULL;
    size_t cap = 0;
    struct err why = { 0 };
    json_t *o = NULL;
    const ssize_t n = getline(&line, &cap, c->in);
    if (n > 0) CHECK_OK(json_parse(&o, line, (size_t)n - 1, &why));
    free(line);
    return o;
}

/* The answer to the last request, past its events; how many of them by name in *events (may be NULL). */
static json_t *answer(const struct child *c, const char *event, int *events)
{
    for (;;) {
        json_t *o = hear(c);
        if (!o) fail_msg("the worker is gone");
        if (!json_object_get(o, "event")) return o;
        if (events && !strcmp(json_get_str(o, "event", ""), event)) ++*events;
        json_decref(o);
    }
}

static int finish(struct child *c)
{
    int status;
    fclose(c->in);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void open_stories(const struct child *c, const char *config, int ctx)
{
    char path[4096], line[5000];
    SHARED_OR_SKIP(path, STORIES);
    snprintf(line, sizeof line, "{\"id\":1,\"op\":\"open\",\"model\":\"%s\",\"config\":\"%s\",\"ctx\":%d}",
             path, config, ctx);
    say(c, line);
}

static void expect_failure(const struct child *c, const char *request, const char *code, const char *says)
{
    say(c, request);
    json_t *o = answer(c, "", NULL);
    CHECK_EQ(json_get_bool(o, "ok", true), false);
    assert_string_equal(json_get_str(o, "code", ""), code);
    if (!strstr(json_get_str(o, "message", ""), says))
        fail_msg("%s: '%s' lacks '%s'", request, json_get_str(o, "message", ""), says);
    json_decref(o);
}

/* The progress at the end of a phase of three sequences that hold at most 9 tokens each, which is one block:
 * counts and map agree, whoever's block comes first. */
static void expect_occupancy(struct child *c, const char *phase, int rows)
{
    json_t *o = hear(c);
    while (o && strcmp(json_get_str(o, "phase", ""), phase) != 0) {
        json_decref(o);
        o = hear(c);
    }
    const json_t *full = json_object_get(o, "occupancy");
    const char *map = json_get_str(full, "map", "");
    assert_int_equal(json_get_int(full, "blocks", 0), 6);
    assert_int_equal(json_get_int(full, "used", 0), 3);
    assert_int_equal(json_get_int(full, "block_tokens", 0), 32);
    assert_int_equal(json_get_int(full, "rows", 0), rows);
    assert_int_equal(json_get_int(full, "batch", 0), 512);
    assert_int_equal(json_get_int(full, "step", 0), 1);
    assert_int_equal(strlen(map), 6);
    int free_blocks = 0;
    for (const char *p = map; *p; p++) free_blocks += *p == '.';
    assert_int_equal(free_blocks, 3);
    for (char s = '0'; s < '3'; s++) CHECK_NE(strchr(map, s), NULL);
    json_decref(o);
}

/* What the worker says about the model that it opened. */
static void check_opened(const struct child *c)
{
    json_t *o = answer(c, "", NULL);
    CHECK(json_get_bool(o, "ok", false));
    assert_int_equal(json_get_int(o, "id", -1), 1);
    assert_string_equal(json_get_str(o, "arch", ""), "llama");
    assert_string_equal(json_get_str(o, "recipe", ""), "file");
    assert_string_equal(json_get_str(o, "dominant_format", ""), "f32");
    assert_string_equal(json_get_str(o, "sha256", ""),
                        "6c8d18fe9c629e49e627ce8c7a80c1039e8c58c9a3ccacd3a4bc91271ef84197");
    assert_string_equal(json_get_str(o, "device", ""), "cpu");
    assert_int_equal(json_get_int(o, "threads", -1), 1);
    assert_int_equal(json_get_int(o, "ctx", -1), 256);
    CHECK(!json_get_bool(o, "random_weights", true));
    assert_string_equal(json_get_str(json_object_get(o, "config"), "ctk", ""), "f32");
    const json_t *plan = json_object_get(o, "plan");
    CHECK_LT(1000000, json_get_int(plan, "total", 0));
    CHECK_LT(1000000, json_get_int(plan, "decode_read_bytes", 0));
    CHECK_LT(0, json_get_num(o, "load_s", NAN));
    json_decref(o);
}

/* When its phases ran, on the clock of all processes: one after the other, since `at`, and now over. */
static void check_spans(const json_t *o, int64_t at)
{
    static const char *const PHASES[] = { "prefill", "decode" };
    const json_t *spans = json_object_get(o, "spans");
    assert_int_equal(json_array_size(spans), COUNT_OF(PHASES));
    for (size_t i = 0; i < COUNT_OF(PHASES); i++) {
        const json_t *span = json_array_get(spans, i);
        assert_string_equal(json_get_str(span, "name", ""), PHASES[i]);
        CHECK_LE(at, json_get_int(span, "from_ns", 0));
        at = json_get_int(span, "to_ns", 0);
        CHECK_LT(json_get_int(span, "from_ns", INT64_MAX), at);
    }
    CHECK_LE(at, clock_ns());
}

static void check_cell(const struct child *c)
{
    int lines = 0;
    const int64_t began = clock_ns();
    say(c, "{\"id\":2,\"op\":\"cell\",\"workload\":\"pp20+tg10\",\"seed\":7}");
    json_t *o = answer(c, "progress", &lines);
    CHECK_LE(2, lines);
    CHECK(json_get_bool(o, "ok", false));
    assert_int_equal(json_get_int(o, "id", -1), 2);
    assert_string_equal(json_get_str(o, "workload", ""), "pp20+tg10");
    assert_int_equal(json_get_int(o, "prompt_tokens", -1), 20);
    assert_int_equal(json_get_int(o, "gen_tokens", -1), 10);
    assert_int_equal(json_array_size(json_object_get(o, "itl_s")), 10);
    const char *const POSITIVE[] = {
        "prefill_s", "decode_s", "ttft_s", "cpu_s", "peak_rss_bytes", "rss_bytes"
    };
    for (size_t i = 0; i < COUNT_OF(POSITIVE); i++) CHECK_LT(0, json_get_num(o, POSITIVE[i], NAN));
    CHECK_LE(json_get_num(o, "rss_bytes", INFINITY), json_get_num(o, "peak_rss_bytes", 0));
    const char *const COUNTS[] = { "major_faults", "minor_faults", "voluntary_switches",
                                   "involuntary_switches" };
    for (size_t i = 0; i < COUNT_OF(COUNTS); i++) CHECK_LE(0, json_get_int(o, COUNTS[i], -1));
    const char *const UNKNOWN[] = { "perplexity", "nll", "nll_se", "scored_tokens" };
    for (size_t i = 0; i < COUNT_OF(UNKNOWN); i++) CHECK(json_is_null(json_object_get(o, UNKNOWN[i])));
    assert_int_equal(strlen(json_get_str(o, "work_hash", "")), 16);
    assert_int_equal(strlen(json_get_str(o, "output_hash", "")), 16);
    check_spans(o, began);
    json_decref(o);
}

/* More sequences than the session has, then a session that has them. */
static void check_sequences(struct child *c, const char *path)
{
    say(c, "{\"id\":3,\"op\":\"cell\",\"workload\":\"tg4@b3\"}");
    json_t *o = answer(c, "", NULL);
    CHECK(!json_get_bool(o, "ok", true));
    assert_string_equal(json_get_str(o, "code", ""), "ERR_USAGE");
    json_decref(o);
    char request[4400];
    snprintf(request, sizeof request,
             "{\"id\":4,\"op\":\"open\",\"model\":\"%s\",\"ctx\":64,\"sequences\":3}", path);
    say(c, request);
    o = answer(c, "progress", NULL);
    assert_int_equal(json_get_int(json_object_get(o, "plan"), "sequences", 0), 3);
    json_decref(o);
    say(c, "{\"id\":5,\"op\":\"cell\",\"workload\":\"pp5+tg4@b3\"}");
    expect_occupancy(c, "prefill", 15); /* all prompts in one batch */
    expect_occupancy(c, "decode", 3);
    o = answer(c, "progress", NULL);
    assert_string_equal(json_get_str(o, "workload", ""), "pp5+tg4@b3");
    assert_int_equal(json_get_int(o, "sequences", 0), 3);
    assert_int_equal(json_get_int(o, "prompt_tokens", -1), 15);
    assert_int_equal(json_get_int(o, "gen_tokens", -1), 12);
    assert_int_equal(json_array_size(json_object_get(o, "itl_s")), 4); /* one a step */
    json_decref(o);
}

static void test_open_and_cell(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    expect_failure(&c, "{\"id\":5,\"op\":\"cell\",\"workload\":\"tg4\"}", "ERR_USAGE", "no model is open");
    open_stories(&c, "precision=highest,kv=f32,threads=1", 256);
    check_opened(&c);
    check_cell(&c);
    check_sequences(&c, path);

    say(&c, "{\"id\":9,\"op\":\"close\"}");
    json_t *o = answer(&c, "", NULL);
    CHECK(json_get_bool(o, "ok", false));
    assert_int_equal(json_get_int(o, "id", -1), 9);
    json_decref(o);
    assert_null(hear(&c));
    assert_int_equal(finish(&c), 0);
}

static void test_generate(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    open_stories(&c, "precision=highest,kv=f32,threads=1", 256);
    json_decref(answer(&c, "", NULL));
    say(&c, "{\"id\":3,\"op\":\"generate\",\"prompt\":\"Once upon a time\",\"n\":30,\"temp\":0}");
    struct str pieces = { 0 };
    json_t *o;
    for (;;) {
        o = hear(&c);
        assert_non_null(o);
        if (!json_object_get(o, "event")) break;
        if (!strcmp(json_get_str(o, "event", ""), "token")) str_append(&pieces, json_get_str(o, "text", ""));
        json_decref(o);
    }
    CHECK(json_get_bool(o, "ok", false));
    assert_int_equal(json_get_int(o, "gen_tokens", -1), 30);
    assert_string_equal(json_get_str(o, "stop", ""), "limit");
    const char *text = json_get_str(o, "text", "");
    assert_string_equal(str_text(&pieces), text); /* streamed and whole are the same */
    CHECK(str_starts(text, ", there was a little girl named Lily. She loved to play outside"));
    json_decref(o);
    str_free(&pieces);

    /* The context ends before the limit does. */
    open_stories(&c, "kv=f32,threads=1", 16);
    json_decref(answer(&c, "", NULL));
    say(&c, "{\"id\":4,\"op\":\"generate\",\"prompt\":\"Once upon a time\",\"n\":500}");
    o = answer(&c, "", NULL);
    assert_string_equal(json_get_str(o, "stop", ""), "context");
    json_decref(o);
    expect_failure(
        &c,
        "{\"id\":5,\"op\":\"generate\",\"prompt\":\"A cat, a dog and a very long story about all of them\"}",
        "ERR_USAGE", "the context is 16");
    expect_failure(&c, "{\"id\":6,\"op\":\"generate\",\"prompt\":\"A\",\"temp\":-1}", "ERR_USAGE",
                   "temperature");
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    assert_null(hear(&c));
    assert_int_equal(finish(&c), 0); /* end of file is a way to say close */
}

/* Every step waits for a command: the prompt's, and one for each token but the first. The text is the same.
 */
static void test_turns(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    open_stories(&c, "precision=highest,kv=f32,threads=1", 256);
    json_decref(answer(&c, "", NULL));
    say(&c,
        "{\"id\":3,\"op\":\"generate\",\"prompt\":\"Once upon a time\",\"n\":12,\"temp\":0,\"turn_s\":1e-9}");
    int turns = 0, tokens = 0;
    double worked = 0;
    json_t *o;
    for (;;) {
        o = hear(&c);
        assert_non_null(o);
        const char *event = json_get_str(o, "event", NULL);
        if (!event) break;
        if (!strcmp(event, "turn")) {
            struct pollfd p = { .fd = c.fd, .events = POLLIN };
            if (++turns < 3) assert_int_equal(poll(&p, 1, 50), 0); /* nothing comes while it may not work */
            say(&c, "{\"id\":0,\"op\":\"go\"}");
        } else if (!strcmp(event, "token")) {
            tokens++;
            CHECK_EQ(turns, 1 + tokens - 1);
            CHECK_LE(worked, json_get_num(o, "seconds", NAN));
            worked = json_get_num(o, "seconds", NAN);
        }
        json_decref(o);
    }
    assert_int_equal(turns, 12);
    CHECK_LE(worked, json_get_num(o, "decode_s", NAN));
    CHECK(str_starts(json_get_str(o, "text", ""), ", there was a little girl named Lily."));
    json_decref(o);

    /* cancelled while it waits; then it serves on */
    say(&c, "{\"id\":4,\"op\":\"generate\",\"prompt\":\"Once\",\"n\":12,\"turn_s\":0.5}");
    o = hear(&c);
    assert_string_equal(json_get_str(o, "event", ""), "turn");
    json_decref(o);
    expect_failure(&c, "{\"id\":0,\"op\":\"cancel\"}", "ERR_CANCELLED", "cancelled");
    say(&c, "{\"id\":0,\"op\":\"go\"}"); /* one that nobody waits for is no turn of the next */
    expect_failure(&c, "{\"id\":5,\"op\":\"generate\",\"prompt\":\"A\",\"turn_s\":-1}", "ERR_USAGE",
                   "turn_s=-1");
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    assert_null(hear(&c));
    assert_int_equal(finish(&c), 0);
}

/* A wait is never shorter than asked: a step that took 3 ms so far lasts 4.5 ms in all with 50 %. */
static void test_waiting(void **state)
{
    (void)state;
    struct config c;
    struct err why = { 0 };
    CHECK_OK(config_parse(&c, "handicap=50%", &why));
    const int64_t started = clock_ns() - 3000000;
    handicap_wait(&c, started);
    CHECK_LE(4500000, clock_ns() - started);
}

/* The shortest of many steps of a cell, and what was generated. */
static double shortest_step(const struct child *c, const char *config, char hash[17])
{
    open_stories(c, config, 256);
    json_t *o = answer(c, "", NULL);
    CHECK(json_get_bool(o, "ok", false));
    assert_int_equal(json_get_int(json_object_get(o, "config"), "handicap", -1),
                     strstr(config, "handicap") ? 100 : 0);
    json_decref(o);
    say(c, "{\"id\":2,\"op\":\"cell\",\"workload\":\"pp8+tg200\",\"seed\":7}");
    o = answer(c, "", NULL);
    double shortest = INFINITY;
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(o, "itl_s"), i, step)
        shortest = fmin(shortest, json_number_value(step));
    CHECK_EQ(i, 200);
    snprintf(hash, 17, "%s", json_get_str(o, "output_hash", ""));
    json_decref(o);
    return shortest;
}

/* Twice as long, and the same answer. The machine may be busy with other things: one quiet try is enough. */
static void test_handicap(void **state)
{
    (void)state;
    char path[4096], plain[17], slow[17];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    double ratio = 0;
    for (int try = 0; try < 30 && !(ratio > 1.6 && ratio < 2.4); try++) {
        const double without = shortest_step(&c, "kv=f32,threads=1", plain);
        ratio = shortest_step(&c, "kv=f32,threads=1,handicap=100%", slow) / without;
        assert_string_equal(plain, slow);
    }
    CHECK_LT(1.6, ratio);
    CHECK_LT(ratio, 2.4);
    assert_int_equal(finish(&c), 0);
}

static void test_nonsense(void **state)
{
    (void)state;
    char path[4096], line[5000];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    expect_failure(&c, "{\"id\":1", "ERR_FORMAT", "");
    expect_failure(&c, "[1,2]", "ERR_USAGE", "not known");
    expect_failure(&c, "{\"id\":1,\"op\":\"dance\"}", "ERR_USAGE", "expected open, cell, generate");
    expect_failure(&c, "{\"id\":1,\"op\":\"open\"}", "ERR_USAGE", "no model");
    expect_failure(&c, "{\"id\":1,\"op\":\"open\",\"model\":\"/does/not/exist\"}", "ERR_IO", "exist");
    snprintf(line, sizeof line, "{\"id\":1,\"op\":\"open\",\"model\":\"%s\",\"config\":\"speed=9\"}", path);
    expect_failure(&c, line, "ERR_USAGE", "speed");
    snprintf(line, sizeof line, "{\"id\":1,\"op\":\"open\",\"model\":\"%s\",\"ctx\":-4}", path);
    expect_failure(&c, line, "ERR_USAGE", "context -4");
    /* After all that it still works. */
    open_stories(&c, "threads=1", 64);
    json_t *o = answer(&c, "", NULL);
    CHECK(json_get_bool(o, "ok", false));
    json_decref(o);
    expect_failure(&c, "{\"id\":2,\"op\":\"cell\",\"workload\":\"walk\"}", "ERR_USAGE", "expected ppN");
    expect_failure(&c, "{\"id\":2,\"op\":\"cell\",\"workload\":\"pp65\"}", "ERR_USAGE", "context of 65");
    say(&c, "{\"id\":0,\"op\":\"cancel\"}"); /* nothing runs: no answer */
    say(&c, "{\"id\":9,\"op\":\"close\"}");
    o = answer(&c, "", NULL);
    assert_int_equal(json_get_int(o, "id", -1), 9);
    json_decref(o);
    assert_int_equal(finish(&c), 0);
}

/* A cancel that arrives while tokens flow ends the request, not the worker; requests behind it are served. */
static void test_cancel(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    open_stories(&c, "kv=f32,threads=1", 512);
    json_decref(answer(&c, "", NULL));
    say(&c, "{\"id\":3,\"op\":\"generate\",\"prompt\":\"Once upon a time\",\"n\":400}");
    json_t *o = hear(&c);
    assert_non_null(o);
    json_decref(o);
    say(&c, "{\"id\":4,\"op\":\"cell\",\"workload\":\"tg3\"}");
    say(&c, "{\"id\":0,\"op\":\"cancel\"}");
    o = answer(&c, "", NULL);
    assert_int_equal(json_get_int(o, "id", -1), 3);
    assert_string_equal(json_get_str(o, "code", ""), "ERR_CANCELLED");
    json_decref(o);
    o = answer(&c, "", NULL);
    assert_int_equal(json_get_int(o, "id", -1), 4);
    CHECK(json_get_bool(o, "ok", false));
    json_decref(o);

    /* In a cell: its progress comes at phases and every 100 ms, so a prefill of single rows has room for it.
     */
    open_stories(&c, "kv=f32,threads=1,batch=1", 512);
    json_decref(answer(&c, "", NULL));
    say(&c, "{\"id\":5,\"op\":\"cell\",\"workload\":\"pp1+tg500\"}");
    o = hear(&c);
    assert_string_equal(json_get_str(o, "event", ""), "progress");
    json_decref(o);
    say(&c, "{\"id\":0,\"op\":\"cancel\"}");
    o = answer(&c, "", NULL);
    assert_string_equal(json_get_str(o, "code", ""), "ERR_CANCELLED");
    json_decref(o);
    assert_int_equal(finish(&c), 0);
}

/* A cell of training needs no model: the same seed is the same work whatever the settings, activations that
 * are computed again are no longer in memory and change no number, and what has nothing to do with training
 * is refused by name. */
static void test_training(void **state)
{
    (void)state;
    struct child c = start();
    expect_failure(&c, "{\"id\":1,\"op\":\"open\",\"train\":true,\"config\":\"q8_0\"}", "ERR_USAGE",
                   "key format has no effect");
    json_t *all[2];
    for (int i = 0; i < 2; i++) {
        char line[256];
        snprintf(
            line, sizeof line,
            "{\"id\":1,\"op\":\"open\",\"train\":true,\"config\":\"train_batch=1,accumulate=1,threads=%d%s\"}",
            i + 1, i ? ",checkpoint_every=1,trim_every=1" : "");
        say(&c, line);
        json_t *o = answer(&c, "progress", NULL);
        CHECK(json_get_bool(o, "ok", false));
        CHECK(str_starts(json_get_str(o, "name", ""), "trained from scratch"));
        assert_int_equal(json_get_int(json_object_get(o, "config"), "checkpoint_every", -1), i);
        assert_int_equal(json_get_int(o, "params", 0), 5115136);
        json_decref(o);
        say(&c, "{\"id\":2,\"op\":\"cell\",\"workload\":\"train2\",\"seed\":7}");
        all[i] = answer(&c, "progress", NULL);
        CHECK(json_get_bool(all[i], "ok", false));
        assert_string_equal(json_get_str(all[i], "workload", ""), "train2");
        assert_int_equal(json_get_int(all[i], "train_tokens", 0), 512);
        CHECK_LT(0, json_get_num(all[i], "train_s", NAN));
        CHECK_NEAR(json_get_num(all[i], "first_loss", NAN), log(1536), 0.3);
        CHECK_LT(json_get_num(all[i], "train_loss", NAN), json_get_num(all[i], "first_loss", NAN) + 0.3);
    }
    assert_string_equal(json_get_str(all[0], "work_hash", "a"), json_get_str(all[1], "work_hash", "b"));
    assert_string_equal(json_get_str(all[0], "output_hash", "a"), json_get_str(all[1], "output_hash", "b"));
    CHECK_LT(json_get_int(all[1], "activation_bytes", 0),
             0.7 * json_get_num(all[0], "activation_bytes", NAN));
    CHECK_LT(json_get_num(all[1], "rss_bytes", NAN),
             json_get_num(all[1], "peak_rss_bytes", NAN)); /* trimmed */
    expect_failure(&c, "{\"id\":3,\"op\":\"cell\",\"workload\":\"tg4\"}", "ERR_USAGE", "has no model to run");
    expect_failure(&c, "{\"id\":3,\"op\":\"cell\",\"workload\":\"train9000\"}", "ERR_USAGE",
                   "expected 1 to 8000");
    json_decref(all[0]);
    json_decref(all[1]);
    say(&c, "{\"id\":9,\"op\":\"close\"}");
    json_decref(answer(&c, "", NULL));
    assert_int_equal(finish(&c), 0);
}

/* Half a text of words, in the path that the parent's test removes. */
static void write_words(char *path, size_t size)
{
    static const char *const WORDS[] = { "a dog", "the red house", "Lily", "ran to", "saw", "and", "big" };
    snprintf(path, size, "%s/words", getenv("QDYNO_SHARE"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (unsigned i = 0, seed = 5; i < 700; i++, seed = seed * 1664525u + 1013904223u)
        fprintf(f, "%s%s", WORDS[(seed >> 16) % COUNT_OF(WORDS)], i % 9 == 8 ? ".\n" : " ");
    fclose(f);
}

/* A reference beside the open model: the same one loses nothing, a coarser one does and is still open for
 * cells afterwards; what cannot be compared is refused by name. */
static void test_quality(void **state)
{
    (void)state;
    char path[4096], words[4096], line[9000];
    SHARED_OR_SKIP(path, STORIES);
    write_words(words, sizeof words);
    struct child c = start();
    expect_failure(&c, "{\"id\":2,\"op\":\"quality\"}", "ERR_USAGE", "no model is open");
    for (int lossy = 0; lossy < 2; lossy++) {
        int lines = 0;
        open_stories(&c, lossy ? "q4_0,kv=f32,threads=1" : "kv=f32,threads=1", 64);
        json_decref(answer(&c, "", NULL));
        snprintf(line, sizeof line,
                 "{\"id\":4,\"op\":\"quality\",\"file\":\"%s\",\"ctx\":64,\"chunks\":12,\"reference\":"
                 "{\"model\":\"%s\",\"config\":\"kv=f32,threads=1\"}}",
                 words, path);
        say(&c, line);
        json_t *o = answer(&c, "progress", &lines);
        CHECK(json_get_bool(o, "ok", false));
        CHECK_LE(12 + 12, lines); /* windows, and prompts of greedy texts */
        const json_t *q = json_object_get(o, "quality"), *greedy = json_object_get(q, "first_divergence");
        assert_string_equal(json_get_str(q, "file", ""), "words");
        assert_int_equal(json_get_int(q, "ctx", 0), 64);
        assert_int_equal(json_get_int(q, "chunks", 0), 12);
        assert_int_equal(json_get_int(q, "scored_tokens", 0), 12 * 31);
        assert_int_equal(json_get_int(greedy, "prompts", 0), 12);
        assert_int_equal(json_get_int(greedy, "limit", 0), 32);
        assert_int_equal(json_array_size(json_object_get(q, "depth")), DEPTHS);
        if (lossy) {
            CHECK_LT(0.01, json_get_num(q, "kld_mean", NAN));
            CHECK_LT(json_get_num(q, "kld_mean", NAN), 1);
            CHECK_LT(0, json_get_int(greedy, "diverged", 0));
        } else {
            CHECK_NEAR(json_get_num(q, "kld_max", NAN), 0, 0);
            CHECK_NEAR(json_get_num(q, "top1_ratio", NAN), 1, 0);
            CHECK_EQ(json_get_int(greedy, "diverged", -1), 0);
            CHECK(json_is_null(json_object_get(greedy, "median")));
        }
        CHECK_LT(1, json_get_num(json_object_get(q, "reference"), "perplexity", NAN));
        json_decref(o);
        say(&c, "{\"id\":5,\"op\":\"cell\",\"workload\":\"tg3\"}");
        o = answer(&c, "progress", NULL);
        CHECK(json_get_bool(o, "ok", false));
        json_decref(o);
    }
    snprintf(line, sizeof line,
             "{\"id\":4,\"op\":\"quality\",\"file\":\"%s\",\"ctx\":32,\"reference\":{\"config\":\"q9_0\"}}",
             words);
    expect_failure(&c, line, "ERR_USAGE", "reference: ");
    snprintf(line, sizeof line,
             "{\"id\":4,\"op\":\"quality\",\"file\":\"%s\",\"ctx\":128,\"reference\":{\"model\":\"%s\"}}",
             words, path);
    expect_failure(&c, line, "ERR_USAGE", "expected 4 to 64");
    snprintf(
        line, sizeof line,
        "{\"id\":4,\"op\":\"quality\",\"file\":\"%s\",\"ctx\":1000000000,\"reference\":{\"model\":\"%s\"}}",
        words, path);
    expect_failure(&c, line, "ERR_FIT", "reference: needs");
    expect_failure(&c, "{\"id\":4,\"op\":\"quality\",\"ctx\":-1}", "ERR_USAGE", "expected 0 or more windows");
    expect_failure(&c, "{\"id\":4,\"op\":\"quality\",\"file\":\"/does/not/exist\"}", "ERR_IO", "exist");
    snprintf(line, sizeof line,
             "{\"id\":6,\"op\":\"quality\",\"file\":\"%s\",\"ctx\":16,\"reference\":{\"model\":\"%s\"}}",
             words, path);
    say(&c, line);
    json_t *o;
    do { /* into the windows, past loading */
        o = hear(&c);
        assert_non_null(o);
        const bool evaluating = !strcmp(json_get_str(o, "phase", ""), "eval");
        json_decref(o);
        if (evaluating) break;
    } while (true);
    say(&c, "{\"id\":0,\"op\":\"cancel\"}");
    o = answer(&c, "", NULL);
    assert_string_equal(json_get_str(o, "code", ""), "ERR_CANCELLED");
    json_decref(o);
    assert_int_equal(finish(&c), 0);
}

static void test_quality_fits(void **state)
{
    (void)state;
    static const struct {
        int64_t wanted, mapped, available;
        enum err_code rc;
    } CASES[] = {
        { 4000, 3000, 7000, ERR_OK },
        { 4000, 3000, 6999, ERR_FIT }, /* each would fit alone */
        { 4000, 0, 4000, ERR_OK },     /* one file under both */
        { 4000, 3000, -1, ERR_OK },    /* unknown */
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        assert_int_equal(worker_quality_fits(CASES[i].wanted, CASES[i].mapped, CASES[i].available, &why),
                         CASES[i].rc);
        if (CASES[i].rc) assert_non_null(strstr(why.message, "the loaded model's file 2.93K"));
    }
}

/* The parent's end vanishes in the middle of work: the worker ends by itself. */
static void test_parent_gone(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct child c = start();
    open_stories(&c, "kv=f32,threads=1", 512);
    json_decref(answer(&c, "", NULL));
    say(&c, "{\"id\":3,\"op\":\"generate\",\"prompt\":\"Once\",\"n\":400}");
    alarm(240);
    finish(&c);
    alarm(0);
}

static double cpu_seconds(void)
{
    struct timespec t;
    CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t));
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Names the bug: each "go" among waiting requests moved all bytes behind it: a terabyte here. */
static void test_many_lines(void **state)
{
    (void)state;
    enum {
        LINES = 300000,
        SECONDS_MOST = 10
    }; /* processor time; it takes a fifth of a second, sanitized two */
    static const char GO[] = "{\"op\":\"go\"}\n", CELL[] = "{\"op\":\"cell\"}\n";
    struct err why = { 0 };
    int pair[2], cells = 0;
    char *line;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct channel c = { .fd = pair[0], .request_id = -1 };
    for (int i = 0; i < LINES; i++) str_append(&c.in, i % 4 ? GO : CELL);
    const double from = cpu_seconds();
    CHECK(!channel_stop(&c));
    CHECK(c.go);
    str_append(&c.in, "{\"op\":\"cancel\"}\n{\"op\":\"close\"}\n");
    CHECK(channel_stop(&c));
    CHECK(channel_stop(&c));
    for (int i = 0; i < LINES / 4; i++) {
        CHECK_OK(channel_read(&c, &line, &why));
        cells += !strcmp(line, "{\"op\":\"cell\"}");
        free(line);
    }
    CHECK_EQ(cells, LINES / 4);
    CHECK_OK(channel_read(&c, &line, &why));
    assert_string_equal(line, "{\"op\":\"close\"}");
    free(line);
    CHECK_LT(cpu_seconds() - from, SECONDS_MOST);
    close(pair[1]);
    CHECK_OK(channel_read(&c, &line, &why));
    assert_null(line);
    channel_done(&c);
    close(pair[0]);
}

int main(void)
{
    char share[] = "/tmp/qdyno-test-worker-XXXXXX", path[256];
    if (!mkdtemp(share)) return 1;
    snprintf(path, sizeof path, "mkdir '%s/text'", share);
    if (system(path)) return 1;
    snprintf(path, sizeof path, "%s/text/sample.txt", share);
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    fputs("Once upon a time there was a small dog. It lived in a red house.\n", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/text/prompts.txt", share);
    f = fopen(path, "w");
    if (!f) return 1;
    fputs("Then it ran into the garden, where a bird sang in the old tree, and so on.\n", f);
    fclose(f);
    setenv("QDYNO_SHARE", share, 1);
    setenv("XDG_CACHE_HOME", share, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting),       cmocka_unit_test(test_handicap),
        cmocka_unit_test(test_open_and_cell), cmocka_unit_test(test_generate),
        cmocka_unit_test(test_turns),         cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_parent_gone),
        cmocka_unit_test(test_training),      cmocka_unit_test(test_quality),
        cmocka_unit_test(test_quality_fits),  cmocka_unit_test(test_many_lines),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "rm -rf '%s'", share);
    return system(path) || failed;
}
