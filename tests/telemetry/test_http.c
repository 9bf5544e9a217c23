/* Proves: a caller gets the headers that it wants, of the last response and before the body; redirects are
 * errors unless the caller follows them itself; HEAD has no body; a body of any length arrives; a transfer
 * that stalls ends, while a slow one goes on for longer than the timeout; addresses are followed, compared
 * and escaped. */
#include "tests/check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "telemetry/http/http.h"

/* ---------------------------------------------------------------- a server that answers by path */

static int fd, port;
static pthread_t thread;

static void say(int to, const char *text)
{
    (void)!send(to, text, strlen(text), MSG_NOSIGNAL);
}

static void answer(int to, const char *request)
{
    if (strstr(request, "/redirect"))
        say(to,
            "HTTP/1.1 302 Found\r\nLocation: /other?x=1\r\nX-Linked-Etag:  \"abc\" \r\nContent-Length: 0\r\n\r\n");
    else if (strstr(request, "/interim"))
        say(to,
            "HTTP/1.1 103 Early\r\nLink: <early>\r\n\r\nHTTP/1.1 200 OK\r\nx-error-code: None\r\nContent-Length: 2\r\n\r\nok");
    else if (strstr(request, "/gone"))
        say(to, "HTTP/1.1 404 Not Found\r\nX-Error-Code: EntryNotFound\r\nContent-Length: 2\r\n\r\nno");
    else if (strstr(request, "/large")) {
        char part[1000];
        memset(part, 'x', sizeof part);
        say(to, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        for (int i = 0; i < 1000; i++) (void)!send(to, part, sizeof part, MSG_NOSIGNAL);
    } else if (strstr(request, "/drip")) {
        say(to, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n");
        for (int i = 0; i < 8; i++) {
            say(to, "x");
            clock_sleep_ns(400000000);
        }
    } else if (strstr(request, "/stall")) {
        say(to, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nxx");
        char rest[100];
        while (recv(to, rest, sizeof rest, 0) > 0) continue; /* until the client ends it */
    } else {
        say(to, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    }
}

static void *serve(void *arg)
{
    (void)arg;
    for (int to; (to = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(to)) {
        char request[4096];
        const ssize_t n = recv(to, request, sizeof request - 1, 0);
        if (n <= 0) continue;
        request[n] = '\0';
        answer(to, request);
    }
    return NULL;
}

static int start(void **state)
{
    (void)state;
    if (http_listen(&fd, "127.0.0.1", 0, &port, NULL)) return -1;
    return pthread_create(&thread, NULL, serve, NULL);
}

static int stop(void **state)
{
    (void)state;
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    return close(fd);
}

/* ---------------------------------------------------------------- requests */

enum { LOCATION, ETAG, LINK, CODE, LENGTH, WANTED };
struct got {
    struct http_wanted wanted[WANTED];
    struct str body;
    bool length_first; /* the header was known when the body arrived */
};

static bool receive(void *ctx, const char *data, size_t n)
{
    struct got *g = ctx;
    if (!g->body.len) g->length_first = g->wanted[LENGTH].value.len > 0;
    str_append_n(&g->body, data, n);
    return true;
}

static void got_init(struct got *g)
{
    *g = (struct got){ .wanted = { { .name = "location" },
                                   { .name = "X-Linked-Etag" },
                                   { .name = "Link" },
                                   { .name = "X-Error-Code" },
                                   { .name = "Content-Length" } } };
}

static void got_done(struct got *g)
{
    for (int i = 0; i < WANTED; i++) str_free(&g->wanted[i].value);
    str_free(&g->body);
}

static enum err_code ask(struct got *g, const char *method, const char *path, bool redirects, double stall_s,
                         int *status, struct err *why)
{
    char url[100];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    const struct http_auth auth = { .timeout_s = 1 };
    const struct http_request r = { .method = method,
                                    .url = url,
                                    .auth = stall_s > 0 ? &auth : NULL,
                                    .receive = receive,
                                    .ctx = g,
                                    .wanted = g->wanted,
                                    .n_wanted = WANTED,
                                    .redirects = redirects,
                                    .stall_s = stall_s };
    return http_send(&r, status, why);
}

static void headers_are_handed_over(void **state)
{
    (void)state;
    struct got g;
    struct err why = { 0 };
    int status;
    got_init(&g);
    assert_int_equal(ask(&g, "GET", "/redirect", false, 0, &status, &why), ERR_USAGE);
    CHECK_OK(ask(&g, "GET", "/redirect", true, 0, &status, &why));
    CHECK_EQ(status, 302);
    assert_string_equal(str_text(&g.wanted[LOCATION].value), "/other?x=1");
    assert_string_equal(str_text(&g.wanted[ETAG].value), "\"abc\""); /* without the space around it */
    CHECK_OK(ask(&g, "GET", "/interim", true, 0, &status, &why));
    assert_string_equal(str_text(&g.wanted[LOCATION].value), ""); /* not that of the request before */
    assert_string_equal(str_text(&g.wanted[LINK].value), "");     /* nor that of the interim response */
    assert_string_equal(str_text(&g.wanted[CODE].value), "None");
    CHECK(g.length_first);
    assert_int_equal(ask(&g, "GET", "/gone", true, 0, &status, &why), ERR_USAGE);
    CHECK_EQ(status, 404);
    assert_string_equal(str_text(&g.wanted[CODE].value), "EntryNotFound");
    got_done(&g);
}

static void bodies_have_any_length(void **state)
{
    (void)state;
    struct got g;
    struct err why = { 0 };
    int status;
    got_init(&g);
    CHECK_OK(ask(&g, "GET", "/large", false, 0, &status, &why));
    CHECK_EQ(g.body.len, 1000000);
    str_clear(&g.body);
    CHECK_OK(ask(&g, "HEAD", "/", false, 0, &status, &why));
    CHECK_EQ(g.body.len, 0);
    assert_string_equal(str_text(&g.wanted[LENGTH].value), "5");
    got_done(&g);
}

static void only_silence_ends_a_large_transfer(void **state)
{
    (void)state;
    struct got g;
    struct err why = { 0 };
    int status;
    got_init(&g);
    CHECK_OK(ask(&g, "GET", "/drip", false, 60, &status, &why)); /* 3.2 s, timeout 1 s */
    CHECK_EQ(g.body.len, 8);
    assert_int_equal(ask(&g, "GET", "/stall", false, 1, &status, &why), ERR_ABSENT);
    got_done(&g);
}

/* ---------------------------------------------------------------- addresses */

static void addresses_are_followed(void **state)
{
    (void)state;
    static const struct {
        const char *url, *location, *to;
    } CASES[] = {
        { "http://h:1/a/b", "/c?d=e", "http://h:1/c?d=e" },
        { "http://h:1/a/b", "c", "http://h:1/a/c" },
        { "http://h/a", "https://x/y?s=%2F", "https://x/y?s=%2F" },
        { "https://h/a", "//x/y", "https://x/y" },
        { "http://h/a", "file:///etc/passwd", NULL },
        { "http://h/a", "ftp://h/b", NULL },
        { "http://h/a", "http://user:secret@h/b", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char *to = NULL;
        struct err why = { 0 };
        assert_int_equal(http_url_follow(&to, CASES[i].url, CASES[i].location, &why),
                         CASES[i].to ? ERR_OK : ERR_USAGE);
        if (to) assert_string_equal(to, CASES[i].to);
        free(to);
    }
}

static void servers_are_compared(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } CASES[] = {
        { "http://h/a", "http://H:80/b?c", true },
        { "https://h/", "https://h:443", true },
        { "http://h/", "https://h/", false },
        { "http://h:1/", "http://h:2/", false },
        { "http://h/", "http://h.x/", false },
        { "http://127.0.0.1:1/", "http://localhost:1/", false },
        { "http://h@x/", "http://h/", false },
        { "h", "h", false },
        { "http://h/", "", false },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        assert_int_equal(http_url_same_server(CASES[i].a, CASES[i].b), CASES[i].same);
}

static void texts_are_escaped(void **state)
{
    (void)state;
    struct str s = { 0 };
    http_url_escape(&s, "a b/c?d=\xc3\xa4~", HTTP_ESCAPE_ALL);
    assert_string_equal(str_text(&s), "a%20b%2Fc%3Fd%3D%C3%A4~");
    str_clear(&s);
    http_url_escape(&s, "a b/c", HTTP_ESCAPE_PATH);
    assert_string_equal(str_text(&s), "a%20b/c");
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_handed_over),
        cmocka_unit_test(bodies_have_any_length),
        cmocka_unit_test(only_silence_ends_a_large_transfer),
        cmocka_unit_test(addresses_are_followed),
        cmocka_unit_test(servers_are_compared),
        cmocka_unit_test(texts_are_escaped),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
