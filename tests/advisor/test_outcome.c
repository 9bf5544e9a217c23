/* Proves: the pushed body has the documented names and leaves out what is unknown; a push that cannot be sent
 * is spooled without secrets, retried with a growing back-off, and sent once the gateway is reachable;
 * credentials never go to a redirect or to an unverified server; a flush ends in time. The
 * gateway here is a thread; tests/e2e uses the real program. */
#include "tests/advisor/fake.h"

#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "advisor/experiment/experiment.h"
#include "advisor/outcome/outcome.h"
#include "advisor/outcome/parts.h"

/* ---------------------------------------------------------------- a gateway */

struct gateway {
    int fd, port;
    pthread_t thread;
    atomic_bool stop;
    atomic_int status, requests;
    const char *raw;  /* instead of a response with the status; NULL: none */
    char last[65536]; /* the latest request; read after gateway_stop */
};

static void serve_one(struct gateway *g, int c)
{
    size_t n = 0;
    for (;;) {
        const ssize_t k = recv(c, g->last + n, sizeof(g->last) - 1 - n, 0);
        if (k <= 0) break;
        g->last[n += (size_t)k] = 0;
        const char *length = strcasestr(g->last, "content-length:"), *body = strstr(g->last, "\r\n\r\n");
        if (body && !length) break;
        if (body && length && n >= (size_t)(body + 4 - g->last) + (size_t)atol(length + 15)) break;
    }
    char answer[128];
    const int status = atomic_load(&g->status);
    snprintf(answer, sizeof(answer), "HTTP/1.1 %d X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nword",
             status);
    const char *all = g->raw ? g->raw : answer;
    send(c, all, strlen(all), MSG_NOSIGNAL);
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

/* Open a listening port; nothing answers before gateway_start. */
static void gateway_bind(struct gateway *g)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(at);
    memset(g, 0, sizeof(*g));
    g->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_LE(0, g->fd);
    CHECK(!bind(g->fd, (struct sockaddr *)&at, sizeof(at)));
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
    static const char *const ENDINGS[] = { "", "-wal", "-shm", "-holds" };
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

/* Insert a finished run with eight blocks of equal arms and this verdict. Returns its id. */
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
    snprintf(row.label, sizeof(row.label), "f32 vs %s", line_b);
    snprintf(row.model_name, sizeof(row.model_name), "b.gguf");
    snprintf(row.workload, sizeof(row.workload), "%s", workload);
    snprintf(row.metric, sizeof(row.metric), "decode_tok_s");
    CHECK_OK(db_machine_put(b->db, b->machine.id, "{}", &why));
    CHECK_OK(db_run_insert(b->db, &row, &why));
    free(row.spec_json);
    static const int ORDER[] = { 0, 1, 1, 0 };
    for (int i = 0; i < 32; i++) { /* cells in the order of the coin, with the same rate for both arms */
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

/* The text that is pushed for a run. free(). */
static enum err_code exposition_of(char **out, struct db *d, int64_t run_id, const struct machine *m,
                                   struct err *why)
{
    struct outcome *o = malloc(sizeof *o);
    assert_non_null(o);
    *out = NULL;
    enum err_code rc = outcome_load(o, d, run_id, why);
    if (!rc) rc = outcome_text(out, o, m, why);
    free(o);
    return rc;
}

static void the_body_has_the_promised_names(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    char *body = NULL;
    const int64_t id = put_run(b, "equivalent");
    struct run_labels labels = { 0 };
    CHECK_OK(run_labels_add(&labels, "branch=a \"b\"", &why));
    CHECK_OK(db_labels_put(b->db, id, &labels, &why));
    CHECK_OK(exposition_of(&body, b->db, id, &b->machine, &why));
    static const char *const LINES[] = {
        "qdyno_ab_effect_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_effect_lower_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_effect_upper_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 1\n",
        "qdyno_ab_confidence_ratio{metric=\"decode_tok_s\",workload=\"tg64\"} 0.95\n",
        "qdyno_ab_blocks{metric=\"decode_tok_s\",workload=\"tg64\"} 8\n",
        "qdyno_ab_discarded_blocks{metric=\"decode_tok_s\",workload=\"tg64\"} 0\n",
        "qdyno_run_label_info{key=\"branch\",value=\"a \\\"b\\\"\"} 1\n",
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
    /* no control, energy or prefill: no sample, rather than 0 or NaN */
    static const char *const NONE[] = { "\nqdyno_ab_noise_floor_ratio{", "\nqdyno_ab_joules_per_token{",
                                        "\nqdyno_ab_prefill_tokens_per_second{", "NaN", "nan" };
    for (size_t i = 0; i < COUNT_OF(NONE); i++) CHECK_LACKS(body, NONE[i]);
    free(body);
    assert_int_equal(exposition_of(&body, b->db, 4711, &b->machine, &why), ERR_USAGE);
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
    CHECK_CONTAINS(b->gateway.last, "workload=\"eval:wiki.txt\"");
    CHECK(strstr(b->gateway.last, "other.gguf,") || strstr(b->gateway.last, "other.gguf%2C"));
    CHECK_LACKS(b->gateway.last, "secret");
}

static void an_invalid_run_keeps_the_last_success(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    char *good = NULL, *bad = NULL;
    const int64_t first = put_run(b, "better");
    clock_sleep_ns(20000000);
    const int64_t second = put_run(b, "invalid");
    CHECK_OK(exposition_of(&good, b->db, first, &b->machine, &why));
    CHECK_OK(exposition_of(&bad, b->db, second, &b->machine, &why));
    const char *success = "\nqdyno_experiment_last_success_timestamp_seconds ";
    const char *last = "\nqdyno_experiment_last_run_timestamp_seconds ";
    CHECK_NEAR(value_of(bad, success), value_of(good, success), 1e-6);
    CHECK_LT(value_of(good, last), value_of(bad, last));
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
    CHECK(!spooled);
    CHECK_NEAR(db_spool_count(b->db), 0, 0);
    gateway_stop(&b->gateway);
    CHECK(!strncmp(b->gateway.last, "PUT /metrics/job/qdyno/experiment", 33));
    CHECK_CONTAINS(b->gateway.last, "/machine/0123456789ab HTTP/");
    CHECK_CONTAINS(b->gateway.last, "qdyno_ab_effect_ratio");
    CHECK_LACKS(b->gateway.last, "run%20");
    CHECK_LACKS(b->gateway.last, "/run/");
}

/* The only push that waits; spool_row_free. */
static struct spool_row waiting_row(struct db *d)
{
    struct spool_row *rows, row;
    struct err why;
    int n;
    CHECK_OK(db_spool_list(d, INT64_MAX, &rows, &n, &why));
    CHECK_EQ(n, 1);
    row = rows[0];
    free(rows);
    return row;
}

static void without_a_network_it_waits_in_the_spool(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled = false;
    struct push_target t = {
        .url = b->url, .auth.user = "me", .auth.password = "hunter2", .auth.timeout_s = 60
    };
    const int64_t id = put_run(b, "equivalent");
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    CHECK(spooled);
    CHECK_NEAR(db_spool_count(b->db), 1, 0);
    /* A second push replaces the group's waiting body. */
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    assert_int_equal(db_spool_count(b->db), 1);

    struct spool_row row;
    row = waiting_row(b->db);
    CHECK_LACKS(row.target_json, "hunter2");
    CHECK_LACKS(row.target_json, "me\"");
    spool_row_free(&row);

    /* The gateway is still unreachable: the back-off grows, and nothing is tried before it ends. */
    int sent = -1;
    int64_t wait = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t before = clock_unix_ms();
        assert_int_equal(outcome_flush(b->db, NULL, true, &sent, &why), ERR_ABSENT);
        assert_int_equal(sent, 0);
        row = waiting_row(b->db);
        assert_int_equal(row.attempts, i + 2); /* after the push itself */
        CHECK_LE(2 * wait, row.next_try_ms - before);
        CHECK_LE(30000, row.next_try_ms - before);
        CHECK(*row.last_error);
        wait = row.next_try_ms - clock_unix_ms();
        spool_row_free(&row);
    }
    CHECK_OK(outcome_flush(b->db, NULL, false, &sent, &why));
    assert_int_equal(sent, 0);

    gateway_start(&b->gateway);
    const struct push_target auth = { .url = b->url, .auth.user = "me", .auth.password = "hunter2" };
    CHECK_OK(outcome_flush(b->db, &auth, true, &sent, &why));
    gateway_stop(&b->gateway);
    assert_int_equal(sent, 1);
    assert_int_equal(db_spool_count(b->db), 0);
    CHECK_CONTAINS(b->gateway.last, "Authorization: Basic bWU6aHVudGVyMg=="); /* me:hunter2 */
    CHECK_CONTAINS(b->gateway.last, "qdyno_ab_blocks");
}

static void secrets_go_to_their_own_gateway_only(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled;
    int sent;
    struct push_target t = { .url = b->url, .auth.timeout_s = 60 };
    const int64_t id = put_run(b, "equivalent");
    assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    gateway_start(&b->gateway);
    const struct push_target other = { .url = "http://elsewhere:9091",
                                       .auth.user = "me",
                                       .auth.password = "hunter2" };
    CHECK_OK(outcome_flush(b->db, &other, true, &sent, &why));
    gateway_stop(&b->gateway);
    assert_int_equal(sent, 1);
    CHECK_LACKS(b->gateway.last, "Authorization");
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
    CHECK_CONTAINS(why.message, "word"); /* the gateway's own text */
    CHECK(!spooled);
    CHECK_NEAR(db_spool_count(b->db), 0, 0);
}

/* Only a real HTTP status says that the gateway has the outcome. */
static void a_response_that_is_not_http_loses_nothing(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    bool spooled = false;
    struct push_target t = { .url = b->url };
    b->gateway.raw = "220 mail.example ESMTP, all is delivered and 200 OK\r\n";
    gateway_start(&b->gateway);
    assert_int_equal(outcome_push(b->db, put_run(b, "equivalent"), &b->machine, &t, &spooled, &why),
                     ERR_ABSENT);
    gateway_stop(&b->gateway);
    CHECK_CONTAINS(why.message, "does not answer with HTTP");
    CHECK(spooled);
    assert_int_equal(db_spool_count(b->db), 1);
}

static void a_redirect_gets_no_credentials(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    struct gateway other;
    char answer[256];
    bool spooled;
    struct push_target t = { .url = b->url, .auth.user = "me", .auth.password = "hunter2" };
    gateway_bind(&other);
    snprintf(answer, sizeof answer,
             "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.2:%d/metrics\r\nContent-Length: 0\r\n\r\n",
             other.port);
    b->gateway.raw = answer;
    gateway_start(&other);
    gateway_start(&b->gateway);
    assert_int_equal(outcome_push(b->db, put_run(b, "equivalent"), &b->machine, &t, &spooled, &why),
                     ERR_USAGE);
    gateway_stop(&b->gateway);
    gateway_stop(&other);
    CHECK_CONTAINS(why.message, "redirects are not followed");
    assert_int_equal(atomic_load(&other.requests), 0);
}

/* Stores an outcome for a gateway that never answers. */
static void put_silent_push(struct bench *b, int fd, int i)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    char target[256], group[256];
    struct err why;
    CHECK(!getsockname(fd, (struct sockaddr *)&at, &size));
    snprintf(target, sizeof target,
             "{\"url\": \"http://127.0.0.1:%d/%d\", \"job\": \"qdyno\", \"timeout_s\": 60}",
             ntohs(at.sin_port), i);
    snprintf(group, sizeof group, "http://127.0.0.1:%d/%d/metrics/job/qdyno", ntohs(at.sin_port), i);
    CHECK_OK(db_spool_put(b->db, group, target, "x 1\n", &why));
}

/* Gateways that do not answer take at most the time that the caller has. */
static void a_flush_ends_by_its_deadline(void **state)
{
    enum { SILENT = 5 };
    struct bench *b = *state;
    struct err why;
    int sent;
    CHECK(!listen(b->gateway.fd, 64));
    for (int i = 0; i < SILENT; i++) put_silent_push(b, b->gateway.fd, i);
    const int64_t begun = clock_ns();
    const struct push_target auth = { .url = "http://here", .deadline_ns = begun + 400000000 };
    assert_int_equal(outcome_flush(b->db, &auth, true, &sent, &why), ERR_ABSENT);
    CHECK_LT((double)(clock_ns() - begun) * 1e-9, 30); /* without it, five times 60 s */
    assert_int_equal(sent, 0);
    assert_int_equal(db_spool_count(b->db), SILENT);
    close(b->gateway.fd);
}

/* A TLS server with a certificate that nobody has signed, which writes what it receives to `seen`. */
static pid_t tls_start(const struct bench *b, int *port)
{
    char command[1024];
    struct gateway any;
    gateway_bind(&any);
    *port = any.port;
    close(any.fd);
    snprintf(command, sizeof command,
             "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
             " -subj /CN=t -keyout key.pem -out cert.pem 2>/dev/null",
             b->dir);
    CHECK(!system(command));
    snprintf(
        command, sizeof command,
        "cd '%s' && mkfifo input && exec openssl s_server -accept 127.0.0.1:%d -cert cert.pem -key key.pem -quiet <>input >seen 2>&1",
        b->dir, *port);
    const pid_t pid = fork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)*port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 600; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool up = !connect(fd, (struct sockaddr *)&at, sizeof at);
        close(fd);
        if (up) return pid;
        clock_sleep_ns(50000000);
    }
    fail_msg("openssl s_server does not start");
    return pid;
}

/* An outcome was stored by `push --insecure`. A later push without that flag, but with a password, must not
 * hand the password to a server that was not verified. */
static void a_stored_insecure_does_not_apply_to_a_password(void **state)
{
    struct bench *b = *state;
    struct err why;
    int port, sent;
    char url[64], target[256], group[256], path[320], *seen = NULL;
    if (system("command -v openssl >/dev/null 2>&1")) {
        print_message("SKIPPED: the openssl program is not installed\n");
        skip();
    }
    const pid_t pid = tls_start(b, &port);
    snprintf(url, sizeof url, "https://127.0.0.1:%d", port);
    snprintf(target, sizeof target,
             "{\"url\": \"%s\", \"job\": \"qdyno\", \"insecure\": true, \"timeout_s\": 2}", url);
    snprintf(group, sizeof group, "%s/metrics/job/qdyno", url);
    CHECK_OK(db_spool_put(b->db, group, target, "spooled_body 1\n", &why));
    const struct push_target mine = {
        .url = url, .auth.user = "me", .auth.password = "hunter2", .auth.timeout_s = 60
    };
    CHECK_EQ(outcome_flush(b->db, &mine, true, &sent, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "certificate");
    snprintf(path, sizeof path, "%s/seen", b->dir);
    CHECK_OK(file_read(&seen, NULL, path, 1 << 20, &why));
    CHECK_LACKS(seen, "Authorization");
    free(seen);
    /* the server does show what it gets: without a password the stored settings apply */
    CHECK_EQ(outcome_flush(b->db, NULL, true, &sent, &why), ERR_ABSENT);
    clock_sleep_ns(200000000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(file_read(&seen, NULL, path, 1 << 20, &why));
    CHECK_CONTAINS(seen, "spooled_body 1");
    free(seen);
    static const char *const FILES[] = { "seen", "cert.pem", "key.pem", "input" };
    for (size_t i = 0; i < COUNT_OF(FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", b->dir, FILES[i]);
        unlink(path);
    }
}

struct sender {
    pthread_t thread;
    const struct bench *bench;
    enum err_code rc;
    int sent;
};

static void *send_what_waits(void *arg)
{
    struct sender *s = arg;
    struct err why = { 0 };
    struct db *d = NULL;
    s->rc = db_open(&d, s->bench->path, &why);
    for (int i = 0; i < 20 && !s->rc && db_spool_count(d) > 0; i++) {
        int sent = 0;
        s->rc = outcome_flush(d, NULL, true, &sent, &why);
        s->sent += sent;
        clock_sleep_ns(5000000);
    }
    db_close(d);
    return NULL;
}

/* Several processes use the same spool: each body is sent once, and none of them fails. */
static void many_senders_send_each_body_once(void **state)
{
    enum { SENDERS = 4, BODIES = 5 };
    static const char *const WORKLOADS[BODIES] = { "tg8", "tg16", "tg32", "tg48", "tg64" };
    struct bench *b = *state;
    struct err why = { 0 };
    struct push_target t = { .url = b->url, .auth.timeout_s = 60 };
    struct sender sender[SENDERS];
    bool spooled;
    int sent = 0;
    for (int i = 0; i < BODIES; i++) {
        const int64_t id = put_run_of(b, "equivalent", WORKLOADS[i], "q8_0");
        assert_int_equal(outcome_push(b->db, id, &b->machine, &t, &spooled, &why), ERR_ABSENT);
    }
    assert_int_equal(db_spool_count(b->db), BODIES);
    gateway_start(&b->gateway);
    for (int i = 0; i < SENDERS; i++) {
        sender[i] = (struct sender){ .bench = b };
        CHECK(!pthread_create(&sender[i].thread, NULL, send_what_waits, &sender[i]));
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(sender[i].thread, NULL);
        assert_int_equal(sender[i].rc, ERR_OK);
        sent += sender[i].sent;
    }
    gateway_stop(&b->gateway);
    assert_int_equal(sent, BODIES);
    assert_int_equal(atomic_load(&b->gateway.requests), BODIES);
    assert_int_equal(db_spool_count(b->db), 0);
}

struct fates {
    int kept, deleted, would;
};

static void count_fate(void *ctx, const struct group_row *g, enum prune_fate fate)
{
    struct fates *f = ctx;
    CHECK_CONTAINS(g->url, "/metrics/job/qdyno/");
    CHECK_LT(0, g->last_ms);
    f->kept += fate == PRUNE_KEPT;
    f->deleted += fate == PRUNE_DELETED;
    f->would += fate == PRUNE_WOULD;
}

static void only_our_old_groups_are_pruned(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    struct push_target t = { .url = b->url };
    struct fates f = { 0 };
    struct group_row *groups;
    bool spooled;
    int n;
    gateway_start(&b->gateway);
    CHECK_OK(outcome_push(b->db, put_run_of(b, "better", "tg8", "q8_0"), &b->machine, &t, &spooled, &why));
    CHECK_OK(outcome_push(b->db, put_run_of(b, "better", "tg16", "q8_0"), &b->machine, &t, &spooled, &why));
    CHECK_OK(db_group_put(b->db, "http://elsewhere/metrics/job/qdyno/experiment/x", &why));
    struct prune_spec young = { .before_ms = clock_unix_ms() - 3600 * 1000, .said = count_fate, .ctx = &f };
    CHECK_OK(outcome_prune(b->db, &t, &young, &why));
    CHECK_NEAR(f.kept, 2, 0);
    CHECK(!f.deleted);
    CHECK(!f.would);
    struct prune_spec all = {
        .before_ms = clock_unix_ms() + 1000, .dry_run = true, .said = count_fate, .ctx = &f
    };
    CHECK_OK(outcome_prune(b->db, &t, &all, &why));
    CHECK_NEAR(f.would, 2, 0);
    CHECK(!f.deleted);
    assert_int_equal(atomic_load(&b->gateway.requests), 2); /* the two pushes and nothing else */
    all.dry_run = false;
    CHECK_OK(outcome_prune(b->db, &t, &all, &why));
    CHECK_OK(outcome_prune(b->db, &t, &all, &why)); /* a second call has nothing to do */
    gateway_stop(&b->gateway);
    assert_int_equal(f.deleted, 2);
    assert_int_equal(atomic_load(&b->gateway.requests), 4);
    CHECK(!strncmp(b->gateway.last, "DELETE /metrics/job/qdyno/experiment", 36));
    CHECK_OK(db_group_list(b->db, "", &groups, &n, &why));
    CHECK_NEAR(n, 1, 0);
    CHECK_CONTAINS(groups[0].url, "elsewhere");
    free(groups);
}

static void the_newest_of_each_experiment(void **state)
{
    static struct outcome o[OUTCOMES_MAX]; /* large */
    struct bench *b = *state;
    struct err why = { 0 };
    int n = 0;
    CHECK_OK(outcomes_latest(o, &n, b->db, &why));
    CHECK_NEAR(n, 0, 0);
    put_run_of(b, "better", "tg64", "q8_0");
    const int64_t second = put_run_of(b, "worse", "tg64", "q8_0");
    const int64_t other = put_run_of(b, "better", "tg64", "q4_0");
    CHECK_OK(outcomes_latest(o, &n, b->db, &why));
    CHECK_NEAR(n, 2, 0);
    CHECK_EQ(o[0].run_id, other);
    CHECK_EQ(o[1].run_id, second);
    const int64_t third = put_run_of(b, "equivalent", "tg64", "q4_0");
    CHECK_OK(outcomes_latest(o, &n, b->db, &why));
    CHECK_NEAR(n, 2, 0);
    CHECK_EQ(o[0].run_id, third);
    CHECK_EQ(o[1].run_id, second);
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    outcomes_export(o, n, OUTCOME_ALONE, &to);
    CHECK_EQ(e.bad.code, ERR_OK);
    CHECK_CONTAINS(str_text(&e.text), "qdyno_ab_verdict{experiment=\"");
    CHECK_CONTAINS(str_text(&e.text), "machine=\"0123456789ab\"");
    exposition_free(&e);
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
        OUTCOME_TEST(a_response_that_is_not_http_loses_nothing),
        OUTCOME_TEST(a_redirect_gets_no_credentials),
        OUTCOME_TEST(a_flush_ends_by_its_deadline),
        OUTCOME_TEST(a_stored_insecure_does_not_apply_to_a_password),
        OUTCOME_TEST(many_senders_send_each_body_once),
        OUTCOME_TEST(only_our_old_groups_are_pruned),
        OUTCOME_TEST(the_newest_of_each_experiment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
