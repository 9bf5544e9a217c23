/* tests/telemetry/collector.h - an OpenTelemetry collector for tests: each request gets the next reply. */
#ifndef QDYNO_TESTS_COLLECTOR_H
#define QDYNO_TESTS_COLLECTOR_H

#include "tests/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A server that answers by a script. {0}, then collector_start. */
enum { COLLECTOR_REQUESTS = 8, COLLECTOR_REQUEST = 1 << 16 };
struct collector {
    int fd, port, requests;
    const char *const *replies;                          /* one per request, NULL after the last */
    char request[COLLECTOR_REQUESTS][COLLECTOR_REQUEST]; /* headers and body; read after collector_stop */
    size_t n_request[COLLECTOR_REQUESTS];
    pthread_t thread;
};

static inline void collector_serve(struct collector *c, int peer, int i)
{
    char *at = c->request[i];
    size_t n = 0;
    for (;;) {
        const ssize_t k = recv(peer, at + n, sizeof c->request[i] - 1 - n, 0);
        if (k <= 0) break;
        at[n += (size_t)k] = '\0';
        const char *body = memmem(at, n, "\r\n\r\n", 4), *length = strstr(at, "Content-Length: ");
        if (body && length && n - (size_t)(body + 4 - at) >= (size_t)atol(length + 16)) break;
    }
    c->n_request[i] = n;
    const size_t size = strlen(c->replies[i]);
    CHECK_EQ(send(peer, c->replies[i], size, MSG_NOSIGNAL), (ssize_t)size);
}

static inline void *collector_main(void *arg)
{
    struct collector *c = arg;
    for (int i = 0; c->replies[i]; i++) {
        const int peer = accept(c->fd, NULL, NULL);
        if (peer < 0) break;
        collector_serve(c, peer, i);
        c->requests = i + 1;
        close(peer);
    }
    return NULL;
}

static inline void collector_start(struct collector *c, const char *const *replies)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof a;
    c->replies = replies;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(c->fd, 0);
    CHECK(!bind(c->fd, (struct sockaddr *)&a, sizeof a));
    CHECK(!listen(c->fd, 4));
    CHECK(!getsockname(c->fd, (struct sockaddr *)&a, &size));
    c->port = ntohs(a.sin_port);
    CHECK(!pthread_create(&c->thread, NULL, collector_main, c));
}

static inline void collector_stop(struct collector *c)
{
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    close(c->fd);
}

#define COLLECTOR_OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

#endif
