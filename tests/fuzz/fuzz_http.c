/* Both ends of HTTP: what a gateway or a webhook's server answers to us, and what a client asks our page
 * server. Whatever the bytes are, the exchange ends, with success or a message that is one line of text. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "telemetry/export/export.h"
#include "telemetry/http/http.h"
#include "tests/fuzz/cost.h"

enum {
    PATIENCE_MS = 5
}; /* requests without an end are answered when their deadline ends, which nobody awaits here */

static const struct cost_ceiling CEILING = { .seconds = 1, .seconds_per_mb = 5, .mb = 64, .mb_per_mb = 100 };

static int listening = -1, port, page_port;
static struct page_server *server;

static enum err_code write_page(void *ctx, struct str *body, struct err *why)
{
    (void)ctx, (void)why;
    str_append(body, "qdyno_up 1\n");
    return ERR_OK;
}

static void prepare(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    if (listening >= 0) return;
    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listening, (struct sockaddr *)&a, n) || listen(listening, 8) ||
        getsockname(listening, (struct sockaddr *)&a, &n))
        abort();
    port = ntohs(a.sin_port);
    const struct page_spec spec = { .metrics = write_page };
    if (page_server_start(&server, &spec, &page_port, NULL)) abort();
}

/* ---------------------------------------------------------------- a server that answers with the input */

struct input {
    const uint8_t *data;
    size_t size;
};

static void *answer_once(void *arg)
{
    const struct input *in = arg;
    char request[4096];
    const int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) abort();
    /* after the request: curl may take an earlier answer for one to nothing */
    if (recv(fd, request, sizeof request, 0) > 0) (void)!send(fd, in->data, in->size, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    while (recv(fd, request, sizeof request, 0) > 0) continue;
    close(fd);
    return NULL;
}

static void check_message(const struct err *why)
{
    if (!why->message[0]) abort();
    for (const char *c = why->message; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) abort();
}

static void use_answer(struct input *in)
{
    char url[64];
    pthread_t thread;
    struct str reply = { 0 };
    struct err why = { 0 };
    double later = 0;
    int status = 0;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics/job/x?token=secret", port);
    /* every second input is answered to a password, whose header is its base64 */
    const bool basic = in->size & 1;
    const struct http_auth auth = { .bearer = basic ? NULL : "sesame-open",
                                    .user = basic ? "me" : NULL,
                                    .password = basic ? "sesame-open" : NULL,
                                    .timeout_s = 5 };
    const struct http_request r = { .method = "POST",
                                    .url = url,
                                    .body = "x",
                                    .n_body = 1,
                                    .auth = &auth,
                                    .reply = &reply,
                                    .retry_after_s = &later };
    if (pthread_create(&thread, NULL, answer_once, in)) abort();
    const enum err_code rc = http_send(&r, &status, &why);
    pthread_join(thread, NULL);
    if (rc) check_message(&why);
    /* a server repeats what it was sent */
    if (rc && strstr(why.message, "sesame-open")) abort();
    if (rc && basic && strstr(why.message, "bWU6c2VzYW1lLW9wZW4")) abort();
    if (!rc && (status < 200 || status > 299)) abort();
    if (reply.len > HTTP_REPLY_MAX || later < 0) abort();
    str_free(&reply);
}

/* ---------------------------------------------------------------- a client that asks with the input */

static void use_request(const struct input *in)
{
    const struct sockaddr_in a = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)page_port) };
    char answer[4096];
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a)) abort();
    (void)!send(fd, in->data, in->size, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    const ssize_t n = poll(&ready, 1, PATIENCE_MS) > 0 ? recv(fd, answer, sizeof answer, 0) : 0;
    if (n >= 5 && memcmp(answer, "HTTP/", 5)) abort();
    close(fd);
}

static void use(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    use_answer(&in);
    use_request(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    return cost_run(use, data, size, &CEILING);
}
