/* Proves: a gateway decodes every grouping value in the push URL; a real Pushgateway accepts a result,
 * replaces the whole group, deletes it, and is quoted when it refuses; TLS, client certificates and
 * passwords give access to a protected gateway, and nothing less does; every kind of bad server (closed
 * port, silent, redirecting, protected, broken) gives the documented error. */
#include "tests/telemetry/roots.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "telemetry/export/export.h"

#define GATEWAY "/usr/bin/prometheus-pushgateway"

/* ---------------------------------------------------------------- the URL */

static void values_are_spelled_by_table(void **state)
{
    (void)state;
    static const struct {
        const char *base, *job, *name, *value, *url;
    } CASES[] = {
        { "http://h:9091", "qdyno", NULL, NULL, "http://h:9091/metrics/job/qdyno" },
        { "http://h:9091/", "qdyno", "machine", "d38d793ac7a0",
          "http://h:9091/metrics/job/qdyno/machine/d38d793ac7a0" },
        { "https://h/push//", "qdyno", "a", "b", "https://h/push/metrics/job/qdyno/a/b" },
        { "http://[::1]:9091", "j", "a", "b", "http://[::1]:9091/metrics/job/j/a/b" },
        /* a slash ends a path segment whatever its escape: base64, URL-safe, unpadded */
        { "http://h", "q", "experiment", "f32 vs q8_0, tg64",
          "http://h/metrics/job/q/experiment/f32%20vs%20q8_0%2C%20tg64" },
        { "http://h", "q", "model", "a/b.gguf", "http://h/metrics/job/q/model@base64/YS9iLmdndWY" },
        { "http://h", "q", "path", "/var/tmp", "http://h/metrics/job/q/path@base64/L3Zhci90bXA" },
        { "http://h", "q", "x", "/??",
          "http://h/metrics/job/q/x@base64/Lz8_" }, /* '_' where base64 has '/' */
        { "http://h", "q", "x", "/>>>",
          "http://h/metrics/job/q/x@base64/Lz4-Pg" }, /* and '-' where it has '+' */
        { "http://h", "a/b", NULL, NULL, "http://h/metrics/job@base64/YS9i" },
        { "http://h", "q", "x", "", "http://h/metrics/job/q/x@base64/=" },
        { "http://h", "q", "x", ".", "http://h/metrics/job/q/x@base64/Lg" },
        { "http://h", "q", "x", "..", "http://h/metrics/job/q/x@base64/Li4" },
        { "http://h", "q", "x", "...", "http://h/metrics/job/q/x/..." },
        { "http://h", "q", "x", "ä?&#%+=@", "http://h/metrics/job/q/x/%C3%A4%3F%26%23%25%2B%3D%40" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct label l = { CASES[i].name, CASES[i].value };
        struct push_target t = {
            .url = CASES[i].base, .job = CASES[i].job, .grouping = &l, .n_grouping = CASES[i].name != NULL
        };
        struct err why;
        char *url;
        CHECK_OK(push_url(&url, &t, &why));
        assert_string_equal(url, CASES[i].url);
        free(url);
    }
}

static void bad_targets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *base, *job, *name, *value, *says;
    } CASES[] = {
        { NULL, "q", "a", "b", "http://host:9091" },
        { "h:9091", "q", "a", "b", "http://host:9091" },
        { "ftp://h", "q", "a", "b", "http://host:9091" },
        { "http://", "q", "a", "b", "gateway 'http://'" },
        { "http://h:99999", "q", "a", "b", "gateway 'http://h:99999'" },
        { "http://h h", "q", "a", "b", "gateway" },
        { "http://user:secret@h", "q", "a", "b", "user name" },
        { "http://user:1/secret@h", "q", "a", "b", "user name" },
        { "http://h?x=1", "q", "a", "b", "?query" },
        { "http://h#x", "q", "a", "b", "#fragment" },
        { "http://h", "", "a", "b", "job name" },
        { "http://h", NULL, "a", "b", "job name" },
        { "http://h", "q", "a-b", "b", "'a-b'" },
        { "http://h", "q", "9", "b", "'9'" },
        { "http://h", "q", "", "b", "''" },
        { "http://h", "q", "__a", "b", "'__a'" },
        { "http://h", "q", "job", "b", "twice" },
        { "http://h", "q", "a", NULL, "'a'" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct label l = { CASES[i].name, CASES[i].value };
        struct push_target t = { .url = CASES[i].base, .job = CASES[i].job, .grouping = &l, .n_grouping = 1 };
        struct err why = { 0 };
        char *url;
        assert_int_equal(push_url(&url, &t, &why), ERR_USAGE);
        assert_null(url);
        if (!strstr(why.message, CASES[i].says)) fail_msg("case %zu: %s", i, why.message);
        assert_null(strstr(why.message, "secret"));
    }
    struct push_target both = {
        .url = "http://127.0.0.1:1", .job = "q", .auth.user = "u", .auth.bearer = "t"
    };
    struct err why = { 0 };
    int status = 5;
    assert_int_equal(push_put(&both, "", &status, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "not both");
    CHECK_EQ(status, 0);
}

/* ---------------------------------------------------------------- a server that answers once */

/* Listens on a free loopback port, *port. */
static int listen_somewhere(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    CHECK_LE(0, fd);
    CHECK(!bind(fd, (struct sockaddr *)&a, sizeof a));
    CHECK(!listen(fd, 4));
    CHECK(!getsockname(fd, (struct sockaddr *)&a, &n));
    *port = ntohs(a.sin_port);
    return fd;
}

struct server {
    int fd;
    const char *reply; /* NULL: accept and stay silent until the client goes away */
    char request[65536];
};

static bool request_is_whole(const char *text)
{
    const char *body = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
    return body && (!length || strlen(body + 4) >= (size_t)atol(length + 16));
}

static void *server_main(void *arg)
{
    struct server *s = arg;
    int c = accept(s->fd, NULL, NULL);
    size_t n = 0;
    while (c >= 0 && n < sizeof s->request - 1) {
        ssize_t got = recv(c, s->request + n, sizeof s->request - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        if (!s->reply || !request_is_whole(s->request)) continue;
        if (send(c, s->reply, strlen(s->reply), MSG_NOSIGNAL) < 0) break;
        break;
    }
    if (c >= 0) close(c);
    return NULL;
}

struct answer {
    enum err_code rc;
    int status;
    double seconds;
    struct err why;
    struct server server;
};

static enum err_code group_delete(const struct push_target *t, int *status, struct err *why)
{
    char *url;
    enum err_code rc = push_url(&url, t, why);
    if (rc) return rc;
    rc = push_delete_url(t, url, status, why);
    free(url);
    return rc;
}

static struct answer push_to(const char *reply, struct push_target t, const char *body)
{
    static struct answer a; /* large */
    int port;
    char url[64];
    pthread_t thread;
    a = (struct answer){ .server.reply = reply };
    a.server.fd = listen_somewhere(&port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    t.url = url;
    t.job = "qdyno";
    assert_int_equal(pthread_create(&thread, NULL, server_main, &a.server), 0);
    int64_t start = clock_ns();
    a.rc = body ? push_put(&t, body, &a.status, &a.why) : group_delete(&t, &a.status, &a.why);
    a.seconds = (double)(clock_ns() - start) / 1e9;
    pthread_join(thread, NULL);
    close(a.server.fd);
    return a;
}

static void requests_are_whole(void **state)
{
    (void)state;
    static const char OK[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    struct answer a = push_to(
        OK, (struct push_target){ .auth.user = "Aladdin", .auth.password = "open sesame" }, "a 1\n");
    assert_int_equal(a.rc, ERR_OK);
    assert_int_equal(a.status, 200);
    CHECK(str_starts(a.server.request, "PUT /metrics/job/qdyno HTTP/1.1\r\n"));
    CHECK_CONTAINS(a.server.request, "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"); /* RFC 7617 */
    CHECK_CONTAINS(a.server.request, "Content-Type: text/plain; version=0.0.4");
    CHECK_LACKS(a.server.request, "Expect:");
    CHECK(str_ends(a.server.request, "\r\n\r\na 1\n"));
    a = push_to(OK, (struct push_target){ .auth.bearer = "mF_9.B5f-4.1JqM" }, "");
    assert_int_equal(a.rc, ERR_OK);
    CHECK_CONTAINS(a.server.request, "Authorization: Bearer mF_9.B5f-4.1JqM\r\n");
    a = push_to("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", (struct push_target){ 0 }, NULL);
    assert_int_equal(a.rc, ERR_OK);
    assert_int_equal(a.status, 202);
    CHECK(str_starts(a.server.request, "DELETE /metrics/job/qdyno HTTP/1.1\r\n"));
    CHECK_LACKS(a.server.request, "Authorization");
    /* a result larger than a socket's buffer arrives whole */
    enum { LARGE = 40000 };
    static char body[LARGE + 1];
    memset(body, 'x', LARGE);
    a = push_to(OK, (struct push_target){ 0 }, body);
    assert_int_equal(a.rc, ERR_OK);
    CHECK(str_ends(a.server.request, body));
}

static void answers_are_judged_by_table(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        enum err_code rc;
        int status;
        const char *says;
    } CASES[] = {
        { "HTTP/1.1 400 Bad Request\r\nContent-Length: 30\r\n\r\npushed metrics are\n\tinvalid: x\n",
          ERR_USAGE, 400, "pushed metrics are invalid: x" },
        { "HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\nUnauthorized", ERR_USAGE, 401,
          "denies access (HTTP 401): Unauthorized" },
        { "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ERR_USAGE, 404, "no text" },
        { "HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n", ERR_ABSENT, 429, "is unavailable now" },
        { "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", ERR_ABSENT, 500, "oops" },
        { "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", ERR_ABSENT, 503, "HTTP 503" },
        { "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", ERR_USAGE, 302,
          "redirects to '(18 characters without http://" },
        { "HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", ERR_USAGE, 301,
          "/elsewhere" },
        { "HTTP/1.1 101 Switching Protocols\r\nContent-Length: 0\r\n\r\n", ERR_ABSENT, 0, "cannot reach" },
        /* nothing says that these servers have accepted anything */
        { "not HTTP at all", ERR_ABSENT, 0, "does not answer with HTTP" },
        { "200 OK\r\n\r\n", ERR_ABSENT, 0, "does not answer with HTTP" },
        { "", ERR_ABSENT, 0, "cannot reach" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct answer a = push_to(CASES[i].reply, (struct push_target){ .auth.timeout_s = 60 }, "a 1\n");
        if (a.rc != CASES[i].rc || a.status != CASES[i].status || !strstr(a.why.message, CASES[i].says))
            fail_msg("case %zu: %d, HTTP %d, %s", i, a.rc, a.status, a.why.message);
        CHECK_CONTAINS(a.why.message, "http://127.0.0.1:");
        /* the cause comes first: a bounded field then cuts the address */
        CHECK(strstr(a.why.message, CASES[i].says) < strstr(a.why.message, "(http://127.0.0.1:"));
    }
}

/* A password or token goes to another host only over verified TLS, unless the user allows less. 192.0.2.1 is
 * reserved for documentation, so nobody answers there. */
static void credentials_need_verified_tls(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        struct http_auth auth;
        const char *header;
        bool refused, secret_path;
    } CASES[] = {
        { "https://192.0.2.1:9/canary", { .insecure = true }, NULL, true, true },
        { "https://192.0.2.1:9/?canary", { .insecure = true }, NULL, true, true },
        { "https://192.0.2.1:9/", { .insecure = true }, NULL, false, true },
        { "https://192.0.2.1:9/canary", { 0 }, NULL, false, true },
        { "https://127.0.0.1:1/canary", { .insecure = true }, NULL, false, true },
        { "https://192.0.2.1:9/canary",
          { .insecure = true, .insecure_credentials = true },
          NULL,
          false,
          true },
        { "http://192.0.2.1:9", { .bearer = "canary" }, NULL, true, false },
        { "http://192.0.2.1:9", { .user = "me", .password = "canary" }, NULL, true, false },
        { "http://192.0.2.1:9", { 0 }, "Authorization: canary", true, false },
        { "http://192.0.2.1:9", { 0 }, "X-Api-Key: canary", true, false },
        { "https://192.0.2.1:9", { .bearer = "canary", .insecure = true }, NULL, true, false },
        { "http://127.0.0.1.example.invalid:9", { .bearer = "canary" }, NULL, true, false },
        { "https://192.0.2.1:9", { .bearer = "canary" }, NULL, false, false },
        { "https://192.0.2.1:9", { .insecure = true }, NULL, false, false },
        { "http://192.0.2.1:9", { 0 }, "X-Scope-OrgID: 7", false, false },
        { "http://192.0.2.1:9", { .bearer = "canary", .insecure_credentials = true }, NULL, false, false },
        { "http://127.0.0.1:1", { .bearer = "canary" }, NULL, false, false },
        { "http://localhost:1", { .bearer = "canary" }, NULL, false, false },
        { "http://[::1]:1", { .bearer = "canary" }, NULL, false, false },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct http_auth auth = CASES[i].auth;
        struct err why = { 0 };
        auth.timeout_s = 0.1;
        const struct http_request r = { .method = "PUT",
                                        .url = CASES[i].url,
                                        .auth = &auth,
                                        .headers = { CASES[i].header },
                                        .secret_path = CASES[i].secret_path };
        const enum err_code rc = http_send(&r, NULL, &why);
        if (rc != (CASES[i].refused ? ERR_USAGE : ERR_ABSENT) ||
            CASES[i].refused != (strstr(why.message, "--insecure-credentials") != NULL))
            fail_msg("case %zu: %d, %s", i, rc, why.message);
        CHECK_LACKS(why.message, "canary");
    }
}

/* Whatever the address looks like: no message shows what may be a secret in it. */
static void addresses_are_shown_without_secrets(void **state)
{
    (void)state;
    static const char *const MALFORMED[] = {
        "http://bob:canary@h:9091", "http://canary@h",           "http:/bob:canary@h",
        "http:bob:canary@h",        "bob:canary@h:9091",         "htp://bob:canary@h",
        "http//bob:canary@h",       "HTTP://bob:canary@h",       " http://bob:canary@h",
        "http://bob:canary",        "http://bob:canary%40h",     "http://bob:ca/canary@h",
        "http://bob:12/canary@h",   "http://bob:x?canary@h",     "http://bob:x#canary@h",
        "http://bob:x@canary@h",    "http://bob:canary@[::1",    "http://h/?token=canary",
        "http://h?canary",          "http://h#canary",           "canary",
        "http://h h/canary",        "http://bob:canary@base64/", "http://bob:canary@h/x@base64/eA",
        "https://h:99999/canary",   "https://bob:\ncanary@h",    "https:\\\\bob:canary@h",
        "https://[canary]/",        "http://canary%40h/",        "http://bob:canary\t@h",
        "file:///home/canary",      "http://bob:99999canary@h/",
    };
    char shown[HTTP_SHOWN_MAX];
    for (size_t i = 0; i < COUNT_OF(MALFORMED); i++) {
        struct err why = { 0 };
        const struct http_request r = { .method = "POST",
                                        .url = MALFORMED[i],
                                        .secret_path = true,
                                        .auth = &(struct http_auth){ .timeout_s = 0.1 } };
        (void)http_url_check("gateway", MALFORMED[i], HTTP_URL_BASE, &why);
        if (strstr(why.message, "canary")) fail_msg("'%s' is checked: %s", MALFORMED[i], why.message);
        if (strstr(http_url_shown(MALFORMED[i], HTTP_SHOW_HOST, shown), "canary"))
            fail_msg("'%s' is shown as '%s'", MALFORMED[i], shown);
        (void)http_send(&r, NULL, &why);
        if (strstr(why.message, "canary")) fail_msg("'%s' is sent to: %s", MALFORMED[i], why.message);
    }
    static const struct {
        const char *url, *path, *host;
    } WELL[] = {
        { "http://h:9091", "http://h:9091", "http://h:9091" },
        { "http://h/", "http://h/", "http://h" },
        { "https://hooks.example/services/T0/B0/x", "https://hooks.example/services/T0/B0/x",
          "https://hooks.example/..." },
        { "http://[::1]:9091/a", "http://[::1]:9091/a", "http://[::1]:9091/..." },
        { "http://h/metrics/job/q/x@base64/eA", "http://h/metrics/job/q/x@base64/eA", "http://h/..." },
        { "http://h/a?token=b", "http://h/a...", "http://h/..." },
    };
    for (size_t i = 0; i < COUNT_OF(WELL); i++) {
        assert_string_equal(http_url_shown(WELL[i].url, HTTP_SHOW_PATH, shown), WELL[i].path);
        assert_string_equal(http_url_shown(WELL[i].url, HTTP_SHOW_HOST, shown), WELL[i].host);
    }
}

/* A server that repeats the request in its refusal does not bring a secret into a message. */
static void a_repeated_secret_is_not_quoted(void **state)
{
    (void)state;
    struct answer a = push_to(
        "HTTP/1.1 400 Bad\r\nContent-Length: 33\r\n\r\nBearer canary.token is not allowed",
        (struct push_target){ .auth.bearer = "canary.token" }, "a 1\n");
    CHECK_EQ(a.rc, ERR_USAGE);
    CHECK_CONTAINS(a.server.request, "canary.token");
    CHECK_CONTAINS(a.why.message, "is not allowe");
    CHECK_LACKS(a.why.message, "canary");
}

/* Bugs: a secret of asterisks, repeated by a server, hung the program; user and password were shown if the
 * server repeated the header, and the token of a header was shown without the word before it. */
static void every_form_of_a_secret_is_hidden(void **state)
{
    (void)state;
    static const struct {
        struct http_auth auth;
        const char *header, *says;
    } CASES[] = {
        { { .bearer = "*****" }, NULL, "***** or ********** or ******" },
        { { .user = "me", .password = "canary" }, NULL, "bWU6Y2FuYXJ5" },
        { { .user = "you", .password = "canary" }, NULL, "eW91OmNhbmFyeQ== or eW91OmNhbmFyeQ" },
        { { 0 }, "Authorization: Basic bWU6Y2FuYXJ5", "bWU6Y2FuYXJ5" },
        { { 0 }, "Authorization: Basic bWU6Y2FuYXJ5", "Basic bWU6Y2FuYXJ5" },
        { { 0 }, "X-Api-Key:canary", "key canary" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        static struct server s; /* large */
        struct err why = { 0 };
        char url[64], reply[256];
        pthread_t thread;
        int port;
        s = (struct server){ .fd = listen_somewhere(&port), .reply = reply };
        snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
        snprintf(reply, sizeof reply, "HTTP/1.1 400 Bad\r\nContent-Length: %zu\r\n\r\nsorry %s",
                 6 + strlen(CASES[i].says), CASES[i].says);
        assert_int_equal(pthread_create(&thread, NULL, server_main, &s), 0);
        const struct http_request r = {
            .method = "PUT", .url = url, .auth = &CASES[i].auth, .headers = { CASES[i].header }
        };
        CHECK_EQ(http_send(&r, NULL, &why), ERR_USAGE);
        pthread_join(thread, NULL);
        close(s.fd);
        CHECK_CONTAINS(why.message, "sorry");
        CHECK_LACKS(why.message, "canary");
        CHECK_LACKS(why.message, "2FuYXJ5");
        CHECK_LACKS(why.message, "OmNhbmFy");
    }
}

static void a_silent_server_times_out(void **state)
{
    (void)state;
    struct answer a = push_to(NULL, (struct push_target){ .auth.timeout_s = 0.4 }, "a 1\n");
    assert_int_equal(a.rc, ERR_ABSENT);
    CHECK_CONTAINS(a.why.message, "within 0.4 s");
    CHECK_LE(0.3, a.seconds);
    assert_int_equal(a.status, 0);
}

static void a_closed_port_is_absent(void **state)
{
    (void)state;
    int port, fd = listen_somewhere(&port), status = 7;
    char url[64];
    struct err why = { 0 };
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    close(fd);
    struct push_target t = { .url = url, .job = "q" };
    assert_int_equal(push_put(&t, "a 1\n", &status, &why), ERR_ABSENT);
    assert_int_equal(status, 0);
    CHECK_CONTAINS(why.message, url);
    t.url = "http://no-such-host.invalid:9091";
    assert_int_equal(push_put(&t, "a 1\n", &status, &why), ERR_ABSENT);
    t.url = url;
    t.auth.ca_file = "/nonexistent/ca.pem";
    snprintf(url, sizeof url, "https://127.0.0.1:%d", port);
    CHECK_NE(push_put(&t, "a 1\n", &status, &why), ERR_OK);
}

/* ---------------------------------------------------------------- the real gateway */

struct gateway {
    pid_t pid;
    int port;
    char url[64];
};

/* The text of GET /metrics; the caller frees it. NULL: no response. */
static char *scrape(const struct gateway *g)
{
    static const char REQUEST[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)g->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct str reply = { 0 };
    char part[4096], *body = NULL;
    if (!connect(fd, (struct sockaddr *)&a, sizeof a) && send(fd, REQUEST, strlen(REQUEST), MSG_NOSIGNAL) > 0)
        for (ssize_t n; (n = recv(fd, part, sizeof part, 0)) > 0;) str_append_n(&reply, part, (size_t)n);
    close(fd);
    char *end = reply.len && str_starts(reply.data + 8, " 200 ") ? strstr(reply.data, "\r\n\r\n") : NULL;
    if (end) body = strdup(end + 4);
    str_free(&reply);
    return body;
}

/* Its own port, its own data, perhaps one more option. NULL when it does not answer. */
static struct gateway *gateway_run(const char *option, bool (*answers)(const struct gateway *))
{
    struct gateway *g = calloc(1, sizeof *g);
    int fd = listen_somewhere(&g->port);
    char listen_arg[64];
    close(fd);
    snprintf(listen_arg, sizeof listen_arg, "--web.listen-address=127.0.0.1:%d", g->port);
    snprintf(g->url, sizeof g->url, "http://127.0.0.1:%d", g->port);
    g->pid = fork();
    if (!g->pid) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        /* Debian's default keeps groups in /var/lib: a test must neither read nor write a gateway's real data
         */
        execl(GATEWAY, GATEWAY, listen_arg, "--persistence.file=", option, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 2000; i++) {
        clock_sleep_ns(50 * 1000000);
        if (answers(g)) return g;
    }
    kill(g->pid, SIGKILL);
    waitpid(g->pid, NULL, 0);
    free(g);
    return NULL;
}

static bool can_be_scraped(const struct gateway *g)
{
    char *text = scrape(g);
    free(text);
    return text != NULL;
}

static int gateway_start(void **state)
{
    if (access(GATEWAY, X_OK)) return 0; /* the tests say that they skip */
    *state = gateway_run(NULL, can_be_scraped);
    return *state ? 0 : -1;
}

static int gateway_stop(void **state)
{
    struct gateway *g = *state;
    if (!g) return 0;
    kill(g->pid, SIGTERM);
    waitpid(g->pid, NULL, 0);
    free(g);
    return 0;
}

static void skip_without_gateway(const void *g)
{
    if (g) return;
    print_message("SKIPPED: %s (Debian package prometheus-pushgateway) is not installed\n", GATEWAY);
    skip();
}

/* Does a line of the scraped text hold all of these? */
static bool has_line(const char *text, const char *const *words)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n')) {
        size_t n = strcspn(line, "\n");
        bool all = *line != '#';
        for (const char *const *w = words; *w; w++) all = all && memmem(line, n, *w, strlen(*w));
        if (all) return true;
    }
    return false;
}
#define HAS_LINE(text, ...) has_line((text), (const char *const[]){ __VA_ARGS__, NULL })

/* The gateway answers a DELETE before it acts on it. */
static void check_goes_away(const struct gateway *g, const char *name)
{
    for (int i = 0; i < 3000; i++) {
        char *text = scrape(g);
        bool there = HAS_LINE(text, name);
        free(text);
        if (!there) return;
        clock_sleep_ns(20 * 1000000);
    }
    fail_msg("%s is still there", name);
}

static void a_result_is_put_replaced_and_deleted(void **state)
{
    struct gateway *g = *state;
    skip_without_gateway(g);
    const struct label grouping[] = { { "experiment", "f32 vs q8_0/tg64" },
                                      { "machine", "d38d793ac7a0" },
                                      { "note", "" } };
    struct push_target t = { .url = g->url, .job = "qdyno", .grouping = grouping, .n_grouping = 3 };
    struct push_target other = { .url = g->url, .job = "somebody" };
    struct exposition e = { 0 };
    struct err why;
    int status;
    exposition_family(&e, "qdyno_ab_effect_ratio", FAMILY_GAUGE, "B over A.");
    exposition_sample(&e, (struct label[]){ { "metric", "decode_tok_s" }, { "workload", "w\"\\\nx" } }, 2,
                      1.25);
    exposition_family(&e, "qdyno_ab_blocks", FAMILY_GAUGE, "Blocks.");
    exposition_sample(&e, NULL, 0, 12);
    char *text = scrape(g);
    CHECK(!HAS_LINE(text, "job=")); /* ours alone, and fresh */
    free(text);
    CHECK_OK(push_put(&other, "somebody_else 1\n", &status, &why));
    CHECK_OK(push_put(&t, str_text(&e.text), &status, &why));
    assert_int_equal(status, 200);
    text = scrape(g);
    CHECK(HAS_LINE(text, "qdyno_ab_effect_ratio{", "experiment=\"f32 vs q8_0/tg64\"", "job=\"qdyno\"",
                   "machine=\"d38d793ac7a0\"", "metric=\"decode_tok_s\"", "workload=\"w\\\"\\\\\\nx\"",
                   "} 1.25"));
    CHECK(HAS_LINE(text, "qdyno_ab_blocks{", "} 12"));
    free(text);

    /* PUT replaces the group: what the second result does not have is gone; other groups stay */
    exposition_free(&e);
    exposition_family(&e, "qdyno_ab_effect_ratio", FAMILY_GAUGE, "B over A.");
    exposition_sample(&e, (struct label[]){ { "metric", "decode_tok_s" }, { "workload", "tg64" } }, 2, 0.5);
    CHECK_OK(push_put(&t, str_text(&e.text), &status, &why));
    text = scrape(g);
    CHECK(HAS_LINE(text, "qdyno_ab_effect_ratio{", "workload=\"tg64\"", "} 0.5"));
    CHECK(!HAS_LINE(text, "qdyno_ab_blocks{"));
    CHECK(!HAS_LINE(text, "} 1.25"));
    CHECK(HAS_LINE(text, "somebody_else{", "} 1"));
    free(text);

    CHECK_OK(group_delete(&t, &status, &why));
    assert_int_equal(status, 202);
    check_goes_away(g, "qdyno_ab_effect_ratio{");
    text = scrape(g);
    CHECK(HAS_LINE(text, "somebody_else{"));
    free(text);
    CHECK_OK(group_delete(&t, &status, &why)); /* deleting nothing is fine */
    exposition_free(&e);
}

/* Each spelling of the URL table comes back as the value that went in. */
static void odd_grouping_values_come_back(void **state)
{
    struct gateway *g = *state;
    skip_without_gateway(g);
    static const struct {
        const char *value, *shown;
    } CASES[] = { { "a/b.gguf", "x=\"a/b.gguf\"" },
                  { "/??", "x=\"/??\"" },
                  { "/>>>", "x=\"/>>>\"" },
                  { "..", "x=\"..\"" },
                  { ".", "x=\".\"" },
                  { "ä?&#%+=@", "x=\"ä?&#%+=@\"" },
                  { "a b", "x=\"a b\"" },
                  { "q\"\\", "x=\"q\\\"\\\\\"" } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct label l = { "x", CASES[i].value };
        struct push_target t = { .url = g->url, .job = "odd", .grouping = &l, .n_grouping = 1 };
        struct err why;
        CHECK_OK(push_put(&t, "odd_value 1\n", NULL, &why));
        char *text = scrape(g);
        if (!HAS_LINE(text, "odd_value{", CASES[i].shown)) fail_msg("'%s' did not come back", CASES[i].value);
        free(text);
        CHECK_OK(group_delete(&t, NULL, &why));
    }
    struct label empty = { "x", "" };
    struct push_target t = { .url = g->url, .job = "odd", .grouping = &empty, .n_grouping = 1 };
    struct err why;
    CHECK_OK(push_put(&t, "odd_value 1\n", NULL, &why));
    CHECK_OK(group_delete(&t, NULL, &why));
    check_goes_away(g, "odd_value{");
}

static void a_refusal_is_quoted(void **state)
{
    struct gateway *g = *state;
    skip_without_gateway(g);
    struct push_target t = { .url = g->url, .job = "bad" };
    struct err why = { 0 };
    int status;
    assert_int_equal(push_put(&t, "this is no metric\n", &status, &why), ERR_USAGE);
    assert_int_equal(status, 400);
    CHECK_CONTAINS(why.message, "text format parsing error"); /* the gateway's own words */
    why = (struct err){ 0 };
    assert_int_equal(push_put(&t, "x 1 1700000000000\n", &status, &why), ERR_USAGE); /* a timestamp */
    assert_int_equal(status, 400);
    CHECK_CONTAINS(why.message, "timestamp");
}

/* ---------------------------------------------------------------- a locked gateway */

static bool accepts_connections(const struct gateway *g)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)g->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = !connect(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    return ok;
}
/* A key, a certificate for 127.0.0.1 only, and the gateway's configuration: it wants TLS, this certificate
 * from its clients, and the password "test" of the user "lab". */
static void write_locks(const struct root *r)
{
    char command[2 * PATH_MAX];
    snprintf(
        command, sizeof command,
        "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=t "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null",
        r->path);
    root_run(command);
    root_write(r, "web.yml",
               "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
               "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"
               "basic_auth_users:\n  lab: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay\n");
}

struct locked_case {
    enum { BY_ADDRESS, BY_NAME, WITHOUT_TLS } to;
    const char *password;  /* of the user "lab"; NULL: no user */
    const char *ca, *cert; /* NULL: none; "cert.pem" is in the folder of the locks, its key beside it */
    bool insecure;
    enum err_code rc; /* ERR_INTERNAL: any but success: the client learns it after the handshake of TLS 1.3,
                         or the connection ends */
    int status;
    const char *says;
};
static const struct locked_case LOCKED_CASES[] = {
    { BY_ADDRESS, "test", "cert.pem", "cert.pem", false, ERR_OK, 200, "" },
    { BY_ADDRESS, "test", NULL, "cert.pem", true, ERR_OK, 200, "" },
    { BY_ADDRESS, "test", NULL, "cert.pem", false, ERR_USAGE, 0, "certificate" },
    { BY_NAME, "test", "cert.pem", "cert.pem", false, ERR_USAGE, 0, "localhost" },
    { BY_ADDRESS, "test", "cert.pem", NULL, false, ERR_INTERNAL, 0, "may require a client certificate" },
    { BY_ADDRESS, "tset", "cert.pem", "cert.pem", false, ERR_USAGE, 401, "denies access" },
    { BY_ADDRESS, NULL, "cert.pem", "cert.pem", false, ERR_USAGE, 401, "HTTP 401" },
    { BY_ADDRESS, NULL, "/nonexistent.pem", NULL, false, ERR_USAGE, 0, "/nonexistent.pem" },
    { BY_ADDRESS, NULL, "cert.pem", "/nonexistent.pem", false, ERR_USAGE, 0, "/nonexistent.pem" },
    { WITHOUT_TLS, NULL, NULL, NULL, false, ERR_USAGE, 400, "HTTP request to an HTTPS server" },
};

static void check_locked_case(const struct gateway *g, const struct root *r, const struct locked_case *c)
{
    char cert[PATH_MAX], key[PATH_MAX], url[64];
    const bool own = c->cert && *c->cert != '/';
    struct push_target t = { .url = url, .job = "locked", .auth.insecure = c->insecure };
    struct err why = { 0 };
    int status = -1;
    snprintf(cert, sizeof cert, "%s/cert.pem", r->path);
    snprintf(key, sizeof key, "%s/key.pem", r->path);
    snprintf(url, sizeof url, "%s://%s:%d", c->to == WITHOUT_TLS ? "http" : "https",
             c->to == BY_NAME ? "localhost" : "127.0.0.1", g->port);
    if (c->password) {
        t.auth.user = "lab";
        t.auth.password = c->password;
    }
    t.auth.ca_file = c->ca && *c->ca != '/' ? cert : c->ca;
    t.auth.cert_file = own ? cert : c->cert;
    t.auth.key_file = own ? key : NULL;
    const enum err_code rc = push_put(&t, "locked_value 1\n", &status, &why);
    const bool as_said = c->rc == ERR_INTERNAL ? rc != ERR_OK : rc == c->rc;
    if (!as_said || status != c->status || !strstr(why.message, c->says))
        fail_msg("case %d: %d, HTTP %d, %s", (int)(c - LOCKED_CASES), rc, status, why.message);
    CHECK_LACKS(why.message, "tset");
}

/* TLS with our own authority, a client certificate and a password: each missing or wrong piece has a message
 * of its own.
 */
static void a_locked_gateway(void **state)
{
    (void)state;
    char option[PATH_MAX];
    skip_without_gateway(access(GATEWAY, X_OK) ? NULL : GATEWAY);
    if (system("command -v openssl >/dev/null 2>&1")) {
        print_message("SKIPPED: the openssl program is not installed\n");
        skip();
    }
    struct root r = root_empty();
    write_locks(&r);
    snprintf(option, sizeof option, "--web.config.file=%s/web.yml", r.path);
    struct gateway *g = gateway_run(option, accepts_connections);
    assert_non_null(g);
    for (size_t i = 0; i < COUNT_OF(LOCKED_CASES); i++) check_locked_case(g, &r, &LOCKED_CASES[i]);
    void *state_of_it = g;
    gateway_stop(&state_of_it);
    root_remove(&r);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    setenv("no_proxy", "*", 1); /* loopback is not reached through a proxy */
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(values_are_spelled_by_table),
        cmocka_unit_test(bad_targets_are_refused),
        cmocka_unit_test(requests_are_whole),
        cmocka_unit_test(answers_are_judged_by_table),
        cmocka_unit_test(credentials_need_verified_tls),
        cmocka_unit_test(addresses_are_shown_without_secrets),
        cmocka_unit_test(a_repeated_secret_is_not_quoted),
        cmocka_unit_test(every_form_of_a_secret_is_hidden),
        cmocka_unit_test(a_silent_server_times_out),
        cmocka_unit_test(a_closed_port_is_absent),
    };
    const struct CMUnitTest gateway[] = {
        cmocka_unit_test(a_result_is_put_replaced_and_deleted),
        cmocka_unit_test(odd_grouping_values_come_back),
        cmocka_unit_test(a_refusal_is_quoted),
        cmocka_unit_test(a_locked_gateway),
    };
    int failed = cmocka_run_group_tests(alone, NULL, NULL);
    return failed + cmocka_run_group_tests(gateway, gateway_start, gateway_stop);
}
