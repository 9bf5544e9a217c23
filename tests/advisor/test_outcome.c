/* Proves: the pushed body has the promised names and says nothing that is not known; a push that cannot be
 * sent is spooled without secrets, retried with a growing pause, and sent once the gateway is there. The
 * gateway here is a thread that answers as one; the real program is met in tests/e2e. */
#include "tests/advisor/fake.h"

#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* ---------------------------------------------------------------- a gateway */

struct gateway {
    int fd, port;
    pthread_t thread;
    atomic_bool stop;
    atomic_int status, requests;
    char last[65536]; /* the last request; read after gateway_stop */
};

static void serve_one(struct gateway *g, int c)
{
    size_t n = 0;
    for (;;) {
        const ssize_t k = recv(c, g->last + n, sizeof(g->last) - 1 - n, 0);
        if (k <= 0) break;
        g->last[n += (size_t)k] = 0;
        const char *length = strcasestr(g->last, "content-length:"), *body = strstr(g->last, "\r\n\r\n");
        if (body && length && n >= (size_t)(body + 4 - g->last) + (size_t)atol(length + 15)) break;
    }
    char answer[128];
    const int status = atomic_load(&g->status);
    snprintf(answer, sizeof(answer), "HTTP/1.1 %d X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nword",
             status);
    send(c, answer, strlen(answer), MSG_NOSIGNAL);
    atomic_fetch_add(&g->requests, 1);
}

static void *gateway_thread(void *arg)
{
    struct gateway *g = arg;
    while (!atomic_load(&g->stop)) {
        struct pollfd p = { .fd = g->fd, .events = POLLIN };
        if (poll(&p, 1, 50) <= 0) continue;
        const int c = accept(g->fd, NULL, NULL);
        if (c < 0) continue;
        serve_one(g, c);
        close(c);
    }
    return NULL;
}

/* A listening port; nobody answers before gateway_start. */
static void gateway_bind(struct gateway *g)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(at);
    memset(g, 0, sizeof(*g));
    g->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(g->fd >= 0 && !bind(g->fd, (struct sockaddr *)&at, sizeof(at)));
    CHECK(!getsockname(g->fd, (struct sockaddr *)&at, &size));
    g->port = ntohs(at.sin_port);
    atomic_store(&g->status, 200);
}

static void gateway_start(struct gateway *g)
{
    CHECK(!listen(g->fd, 8));
    CHECK(!pthread_create(&g->thread, NULL, gateway_thread, g));
}

static void gateway_stop(struct gateway *g)
{
    atomic_store(&g->stop, true);
    pthread_join(g->thread, NULL);
    close(g->fd);
}

/* ---------------------------------------------------------------- a run */

struct bench {
    char dir[256], path[300], url[64];
    struct db *db;
    struct machine machine;
    struct gateway gateway;
};

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct err why = { 0 };
    if (!b) return -1;
    scratch(b->dir, sizeof(b->dir));
    snprintf(b->path, sizeof(b->path), "%s/q.db", b->dir);
    if (db_open(&b->db, b->path, &why)) return -1;
    snprintf(b->machine.id, sizeof(b->machine.id), "0123456789ab");
    snprintf(b->machine.cpu, sizeof(b->machine.cpu), "A \"quoted\" CPU");
    snprintf(b->machine.host, sizeof(b->machine.host), "here");
    gateway_bind(&b->gateway);
    snprintf(b->url, sizeof(b->url), "http://127.0.0.1:%d", b->gateway.port);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const ENDINGS[] = { "", "-wal", "-shm" };
    struct bench *b = *state;
    db_close(b->db);
    for (size_t i = 0; i < COUNT_OF(ENDINGS); i++) {
        char path[320];
        snprintf(path, sizeof(path), "%s%s", b->path, ENDINGS[i]);
        unlink(path);
    }
    rmdir(b->dir);
    free(b);
    return 0;
}

/* A finished run of eight blocks of equal arms; `verdict` as it was reached. Returns its id. */
static int64_t put_run_of(struct bench *b, const char *verdict, const char *workload, const char *line_b)
{
    struct err why = { 0 };
    struct experiment_spec spec = { .margin = 0.01,
                                    .control_blocks = -1,
                                    .metric = &METRICS[METRIC_DECODE_RATE] };
    CHECK_OK(workload_parse(&spec.workload, workload, &why));
    CHECK_OK(config_parse(&spec.config[0], "f32", &why));
    CHECK_OK(config_parse(&spec.config[1], line_b, &why));
    snprintf(spec.model, sizeof(spec.model), "/models/a/b.gguf");
    json_t *o = experiment_spec_to_json(&spec);
    struct run_row row = { .effect_ratio = 1.1, .spec_json = json_line(o) };
    json_decref(o);
    snprintf(row.kind, sizeof(row.kind), "ab");
    snprintf(row.state, sizeof(row.state), "running");
    snprintf(row.machine, sizeof(row.machine), "%s", b->machine.id);
    snprintf(row.label, sizeof(row.label), "f32 vs q8_0");
    snprintf(row.model_name, sizeof(row.model_name), "b.gguf");
    snprintf(row.workload, sizeof(row.workload), "tg64");
    snprintf(row.metric, sizeof(row.metric), "decode_tok_s");
    CHECK_OK(db_machine_put(b->db, b->machine.id, "{}", &why));
    CHECK_OK(db_run_insert(b->db, &row, &why));
    free(row.spec_json);
    static const int ORDER[] = { 0, 1, 1, 0 };
    for (int i = 0; i < 32; i++) { /* the order of the coin is what the cells say: rates by arm, both alike */
        struct cell_row c = { .run_id = row.id, .block = i / 4, .slot = i % 4, .seconds = 0.1 };
        c.arm = ORDER[i % 4];
        const struct measurement m = { "decode_tok_s", "tokens/s", 100 };
        snprintf(c.phase, sizeof(c.phase), "block");
        CHECK_OK(db_cell_insert(b->db, &c, &m, 1, NULL, 0, NULL, 0, &why));
    }
    CHECK_OK(db_run_finish(b->db, row.id, "done", verdict, 1.0, "{\"elapsed_s\":12.5}", &why));
    return row.id;
}

static int64_t put_run(struct bench *b, const char *verdict)
{
    return put_run_of(b, verdict, "tg64", "q8_0");
}

static double value_of(const char *body, const char *name)
{
    const char *at = strstr(body, name);
    return at ? strtod(at + strlen(name), NULL) : NAN;
}

static void the_body_has_the_promised_names(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    char *body = NULL;
    const int64_t id = put_run(b, "equivalent");
    CHECK_OK(outcome_exposition(&body, b->db, id, &b->machine, &why));
    static const char *const LINES[] = {
        "qdyno_ab_effect_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_effect_lower_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_effect_upper_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_confidence_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 0.95\n",
        "qdyno_ab_blocks{metric=\"decode_tok_s\",workload=\"tg64\"} 8\n",
        "qdyno_ab_discarded_blocks{metric=\"decode_tok_s\",workload=\"tg64\"} 0\n",
        "verdict=\"equivalent\"} 1\n",
        "verdict=\"better\"} 0\n",
        "verdict=\"invalid\"} 0\n",
        "qdyno_experiment_duration_seconds 12.5\n",
        "qdyno_experiment_last_run_timestamp_seconds ",
        "qdyno_experiment_last_success_timestamp_seconds ",
        "qdyno_build_info{version=\"" QDYNO_VERSION "\"",
        "cpu=\"A \\\"quoted\\\" CPU\"",
    };
    for (size_t i = 0; i < COUNT_OF(LINES); i++)
        if (!strstr(body, LINES[i])) fail_msg("the body lacks '%s':\n%s", LINES[i], body);
    CHECK_NEAR(
        value_of(body,
                 "qdyno_ab_decode_tokens_per_second{metric=\"decode_tok_s\",workload=\"tg64\",arm=\"a\"} "),
        100, 1e-9);
    /* no control, no energy, no prefill: no sample, not a 0 or a NaN */
    static const char *const NONE[] = { "\nqdyno_ab_noise_floor_ratio{", "\nqdyno_ab_joules_per_token{",
                                        "\nqdyno_ab_prefill_tokens_per_second{", "NaN", "nan" };
    for (size_t i = 0; i < COUNT_OF(NONE); i++) CHECK(!strstr(body, NONE[i]));
    free(body);
    assert_int_equal(outcome_exposition(&body, b->db, 4711, &b->machine, &why), ERR_USAGE);
    assert_null(body);
}

static void no_path_becomes_a_label(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled;
    struct push_target t = { .url = b->url };
    const int64_t id = put_run_of(b, "invalid", "eval:/home/me/secret/wiki.txt",
                                  "model=/home/me/secret/other.gguf");
    gateway_start(&b->gateway);
    CHECK_OK(outcome_push(b->db, id, &b->machine, &t, &spooled, &why));
    gateway_stop(&b->gateway);
    CHECK(strstr(b->gateway.last, "workload=\"eval:wiki.txt\""));
    CHECK(strstr(b->gateway.last, "other.gguf,") || strstr(b->gateway.last, "other.gguf%2C"));
    CHECK(!strstr(b->gateway.last, "secret"));
}

static void an_invalid_run_keeps_the_last_success(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    char *good = NULL, *bad = NULL;
    const int64_t first = put_run(b, "better");
    clock_sleep_ns(20000000);
    const int64_t second = put_run(b, "invalid");
    CHECK_OK(outcome_exposition(&good, b->db, first, &b->machine, &why));
    CHECK_OK(outcome_exposition(&bad, b->db, second, &b->machine, &why));
    const char *success = "\nqdyno_experiment_last_success_timestamp_seconds ";
    const char *last = "\nqdyno_experiment_last_run_timestamp_seconds ";
    CHECK_NEAR(value_of(bad, success), value_of(good, success), 1e-6);
    CHECK(value_of(bad, last) > value_of(good, last));
    free(good);
    free(bad);
}

static void a_push_goes_to_a_stable_group(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled = true;
    struct push_target t = { .url = b->url };
    const int64_t id = put_run(b, "equivalent");
    gateway_start(&b->gateway);
    CHECK_OK(outcome_push(b->db, id, &b->machine, &t, &spooled, &why));
    CHECK(!spooled && db_spool_count(b->db) == 0);
    gateway_stop(&b->gateway);
    CHECK(!strncmp(b->gateway.last, "PUT /metrics/job/qdyno/experiment", 33));
    CHECK(strstr(b->gateway.last, "/machine/0123456789ab HTTP/"));
    CHECK(strstr(b->gateway.last, "qdyno_ab_effect_ratio"));
    CHECK(!strstr(b->gateway.last, "run%20") && !strstr(b->gateway.last, "/run/"));
}

static void without_a_network_it_waits_in_the_spool(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled = false;
    struct push_target t = {
        .url = b->url, .auth.user = "me", .auth.password = "hunter2", .auth.timeout_s = 2
    };
    const int64_t id = put_run(b, "equivalent");
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    CHECK(spooled && db_spool_count(b->db) == 1);
    /* Again: the group's newest body is enough. */
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    assert_int_equal(db_spool_count(b->db), 1);

    struct spool_row row;
    bool found;
    CHECK_OK(db_spool_next(b->db, INT64_MAX, &row, &found, &why));
    CHECK(found && !strstr(row.target_json, "hunter2") && !strstr(row.target_json, "me\""));
    spool_row_free(&row);

    /* Still nobody there: the pause grows, and before its end nothing is tried. */
    int sent = -1;
    int64_t wait = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t before = clock_unix_ms();
        assert_int_equal(outcome_flush(b->db, NULL, true, &sent, &why), ERR_ABSENT);
        assert_int_equal(sent, 0);
        CHECK_OK(db_spool_next(b->db, INT64_MAX, &row, &found, &why));
        assert_int_equal(row.attempts, i + 1);
        CHECK(row.next_try_ms - before >= 2 * wait && row.next_try_ms - before >= 30000);
        CHECK(*row.last_error);
        wait = row.next_try_ms - clock_unix_ms();
        spool_row_free(&row);
    }
    CHECK_OK(outcome_flush(b->db, NULL, false, &sent, &why));
    assert_int_equal(sent, 0);

    gateway_start(&b->gateway);
    const struct push_target auth = { .auth.user = "me", .auth.password = "hunter2" };
    CHECK_OK(outcome_flush(b->db, &auth, true, &sent, &why));
    gateway_stop(&b->gateway);
    assert_int_equal(sent, 1);
    assert_int_equal(db_spool_count(b->db), 0);
    CHECK(strstr(b->gateway.last, "Authorization: Basic bWU6aHVudGVyMg==")); /* me:hunter2 */
    CHECK(strstr(b->gateway.last, "qdyno_ab_blocks"));
}

static void secrets_go_to_their_own_gateway_only(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled;
    int sent;
    struct push_target t = { .url = b->url, .auth.timeout_s = 2 };
    const int64_t id = put_run(b, "equivalent");
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    gateway_start(&b->gateway);
    const struct push_target other = { .url = "http://elsewhere:9091",
                                       .auth.user = "me",
                                       .auth.password = "hunter2" };
    CHECK_OK(outcome_flush(b->db, &other, true, &sent, &why));
    gateway_stop(&b->gateway);
    assert_int_equal(sent, 1);
    CHECK(!strstr(b->gateway.last, "Authorization"));
}

static void a_refusal_is_shown_and_not_spooled(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled = true;
    struct push_target t = { .url = b->url };
    const int64_t id = put_run(b, "equivalent");
    atomic_store(&b->gateway.status, 400);
    gateway_start(&b->gateway);
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_USAGE);
    gateway_stop(&b->gateway);
    CHECK(strstr(why.message, "word")); /* the gateway's own text */
    CHECK(!spooled && db_spool_count(b->db) == 0);
}

int main(void)
{
#define OUTCOME_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        OUTCOME_TEST(the_body_has_the_promised_names),
        OUTCOME_TEST(no_path_becomes_a_label),
        OUTCOME_TEST(an_invalid_run_keeps_the_last_success),
        OUTCOME_TEST(a_push_goes_to_a_stable_group),
        OUTCOME_TEST(without_a_network_it_waits_in_the_spool),
        OUTCOME_TEST(secrets_go_to_their_own_gateway_only),
        OUTCOME_TEST(a_refusal_is_shown_and_not_spooled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
