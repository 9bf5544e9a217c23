/* Proves: the scrape server answers the documented paths only, builds one page at a time, leaks nothing
 * over a thousand scrapes, is not blocked by silent and slow clients, listens on loopback by default, and
 * explains why it cannot listen. */
#include "tests/telemetry/roots.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "telemetry/export/export.h"
#include "telemetry/http/http.h"

struct pages {
    atomic_int asked, inside, most_inside;
    bool broken;
};

static enum err_code write_page(void *ctx, struct str *body, struct err *why)
{
    struct pages *p = ctx;
    const int inside = atomic_fetch_add(&p->inside, 1) + 1;
    if (inside > atomic_load(&p->most_inside)) atomic_store(&p->most_inside, inside);
    const int n = atomic_fetch_add(&p->asked, 1) + 1;
    str_printf(body, "# TYPE x gauge\nx %d\n", n);
    for (int i = 0; i < 2000; i++) str_append(body, "# a page of a usual size\n");
    atomic_fetch_sub(&p->inside, 1);
    return p->broken ? err_set(why, ERR_INTERNAL, "no page today") : ERR_OK;
}

struct served {
    struct page_server *server;
    struct pages pages;
    int port;
};

static int start(void **state)
{
    struct served *s = calloc(1, sizeof *s);
    struct err why = { 0 };
    const struct page_spec spec = { .metrics = write_page, .ctx = &s->pages };
    CHECK_OK(page_server_start(&s->server, &spec, &s->port, &why));
    CHECK_LT(0, s->port);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    struct served *s = *state;
    page_server_stop(s->server);
    free(s);
    return 0;
}

static int ask(const struct served *s, const char *method, const char *path, struct str *reply)
{
    char url[96];
    int status = 0;
    struct err why;
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", s->port, path);
    const struct http_request r = { .method = method, .url = url, .reply = reply };
    http_send(&r, &status, &why);
    return status;
}

static void answers_by_table(void **state)
{
    struct served *s = *state;
    static const struct {
        const char *method, *path;
        int status;
        const char *says;
    } CASES[] = {
        { "GET", "/metrics", 200, "# TYPE x gauge\nx 1\n" },
        { "GET", "/metrics?name=x", 200, "\nx 2\n" },
        { "GET", "/", 200, "<a href=\"/metrics\">" },
        { "GET", "/-/healthy", 200, "Healthy" },
        { "GET", "/nowhere", 404, "/metrics" },
        { "GET", "/metrics/", 404, "" },
        { "GET", "/../../etc/passwd", 404, "" },
        { "POST", "/metrics", 405, "GET and HEAD" },
        { "PUT", "/metrics", 405, "" },
        { "DELETE", "/", 405, "" },
        { "POST", "/nowhere", 404, "" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct str reply = { 0 };
        const int status = ask(s, CASES[i].method, CASES[i].path, &reply);
        if (status != CASES[i].status || !strstr(str_text(&reply), CASES[i].says))
            fail_msg("%s %s: %d, %.100s", CASES[i].method, CASES[i].path, status, str_text(&reply));
        str_free(&reply);
    }
    struct str reply = { 0 };
    assert_int_equal(ask(s, "HEAD", "/metrics", &reply), 200);
    assert_int_equal(reply.len, 0);
    s->pages.broken = true;
    assert_int_equal(ask(s, "GET", "/metrics", &reply), 500);
    assert_string_equal(str_text(&reply), "no page today\n");
    str_free(&reply);
}

static int connect_to(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_LE(0, fd);
    CHECK(!connect(fd, (struct sockaddr *)&a, sizeof a));
    return fd;
}

/* A whole answer by hand, so that headers are seen. */
static void exchange(int port, const char *request, struct str *reply)
{
    char part[4096];
    int fd = connect_to(port);
    CHECK_EQ(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    for (ssize_t n; (n = recv(fd, part, sizeof part, 0)) > 0;) str_append_n(reply, part, (size_t)n);
    close(fd);
}

static void headers_are_as_promised(void **state)
{
    struct served *s = *state;
    struct str reply = { 0 };
    exchange(s->port, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &reply);
    CHECK_CONTAINS(str_text(&reply), "HTTP/1.1 200 OK\r\n");
    CHECK_CONTAINS(str_text(&reply), "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    str_clear(&reply);
    exchange(s->port, "PATCH /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &reply);
    CHECK_CONTAINS(str_text(&reply), " 405 ");
    CHECK_CONTAINS(str_text(&reply), "Allow: GET, HEAD\r\n");
    str_clear(&reply);
    exchange(s->port, "complete nonsense\r\n\r\n", &reply);
    CHECK_LACKS(str_text(&reply), " 200 ");
    str_free(&reply);
    assert_int_equal(ask(s, "GET", "/-/healthy", NULL),
                     200); /* the server still works after the bad requests */
}

enum { THREADS = 8, EACH = 125 };

static void *scrape_often(void *arg)
{
    struct served *s = arg;
    intptr_t bad = 0;
    for (int i = 0; i < EACH; i++) {
        struct str reply = { 0 };
        bad += ask(s, "GET", "/metrics", &reply) != 200 || !strstr(str_text(&reply), "\nx ");
        str_free(&reply);
    }
    return (void *)bad;
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void a_thousand_scrapes_leak_nothing(void **state)
{
    struct served *s = *state;
    pthread_t thread[THREADS];
    assert_int_equal(ask(s, "GET", "/metrics", NULL), 200);
    const int before = open_files();
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, scrape_often, s), 0);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(atomic_load(&s->pages.asked), 1 + THREADS * EACH);
    assert_int_equal(atomic_load(&s->pages.most_inside), 1); /* one page at a time */
    for (int i = 0; i < 3000 && open_files() > before; i++)
        clock_sleep_ns(20 * 1000000); /* closing takes a moment */
    CHECK_LE(open_files(), before);
}

static void a_silent_client_holds_up_nobody(void **state)
{
    struct served *s = *state;
    int silent[4];
    for (size_t i = 0; i < COUNT_OF(silent); i++) {
        silent[i] = connect_to(s->port);
        if (i % 2) CHECK_EQ(send(silent[i], "GET /met", 8, MSG_NOSIGNAL), 8);
    }
    for (int i = 0; i < 5; i++) assert_int_equal(ask(s, "GET", "/metrics", NULL), 200);
    for (size_t i = 0; i < COUNT_OF(silent); i++) close(silent[i]);
}

/* More slow clients than the server has connections, each sending a byte now and then: every scrape is
 * answered in the meantime, and the slow ones are disconnected although they are never idle. */
static void slow_clients_hold_up_nobody(void **state)
{
    enum { SLOW = 200, DEADLINE_S = 60 };
    struct served *s = *state;
    int slow[SLOW], open = SLOW;
    for (int i = 0; i < SLOW; i++) {
        slow[i] = connect_to(s->port);
        (void)send(slow[i], "GET /met", 8, MSG_NOSIGNAL);
    }
    const int64_t begun = clock_ns();
    while (open && clock_ns() - begun < DEADLINE_S * INT64_C(1000000000)) {
        const int64_t asked = clock_ns();
        assert_int_equal(ask(s, "GET", "/metrics", NULL), 200);
        CHECK_LT((double)(clock_ns() - asked) * 1e-9, 5);
        for (int i = 0; i < SLOW; i++) {
            char c;
            if (slow[i] < 0) continue;
            const ssize_t got = recv(slow[i], &c, 1, MSG_DONTWAIT);
            if (got > 0 || (got < 0 && errno == EAGAIN && send(slow[i], "x", 1, MSG_NOSIGNAL) == 1)) continue;
            close(slow[i]);
            slow[i] = -1;
            open--;
        }
        clock_sleep_ns(200 * 1000000);
    }
    assert_int_equal(open, 0);
}

static void why_it_cannot_listen(void **state)
{
    struct served *s = *state;
    struct page_server *second = (void *)1;
    struct err why = { 0 };
    struct page_spec spec = { .port = s->port, .metrics = write_page, .ctx = &s->pages };
    assert_int_equal(page_server_start(&second, &spec, NULL, &why), ERR_ABSENT);
    CHECK(!second);
    CHECK_CONTAINS(why.message, "another program uses this port");
    spec.port = 70000;
    assert_int_equal(page_server_start(&second, &spec, NULL, &why), ERR_USAGE);
    spec.port = 0;
    spec.listen = "somewhere";
    assert_int_equal(page_server_start(&second, &spec, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "'somewhere' is not a numeric address");
    spec.listen = "192.0.2.77"; /* reserved for documentation */
    assert_int_equal(page_server_start(&second, &spec, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "not an address of this machine");
    page_server_stop(NULL);
}

/* Loopback is 127.0.0.0/8: another of its addresses is enough to see that one address was taken, not all. */
static void it_listens_where_told(void **state)
{
    struct served *s = *state;
    struct page_server *other;
    struct err why = { 0 };
    int port;
    const struct page_spec spec = {
        .listen = "127.0.0.2", .port = s->port, .metrics = write_page, .ctx = &s->pages
    };
    CHECK_OK(page_server_start(&other, &spec, &port, &why)); /* the same port: the first has only 127.0.0.1 */
    assert_int_equal(port, s->port);
    page_server_stop(other);
    CHECK_OK(page_server_start(&other, &spec, &port, &why)); /* and at once again */
    page_server_stop(other);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        T(answers_by_table),
        T(headers_are_as_promised),
        T(a_thousand_scrapes_leak_nothing),
        T(a_silent_client_holds_up_nobody),
        T(slow_clients_hold_up_nobody),
        T(why_it_cannot_listen),
        T(it_listens_where_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
