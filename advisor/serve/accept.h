/* advisor/serve/accept.h - internal: one of several processes that accept connections at the same socket. */
#ifndef QDYNO_ADVISOR_SERVE_ACCEPT_H
#define QDYNO_ADVISOR_SERVE_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct share;
struct MHD_Daemon;

struct acceptor {
    int fd; /* the socket, borrowed; -1: this is the only process, libmicrohttpd accepts by itself */
    struct share *share; /* NULL: the same */
    int slot, sequences; /* sequences: requests that this process computes at a time */
    bool retiring;       /* accepts nothing more */
    bool left;           /* other processes have had their time for the next connection */
    int64_t leave_ns;    /* it ends then */
};

void acceptor_init(struct acceptor *a, const struct server *s);
/* Should a client connect anew after its answer, because another process should take its next request? */
bool acceptor_moves_client(const struct acceptor *a, struct server *s);
/* The descriptor to poll for reading; -1: none for now. *wait_ms is shortened to the end of that time. */
int acceptor_descriptor(const struct acceptor *a, int *wait_ms);
/* Accept what waits. open: requests that this process has, and connections that have sent none yet. */
void acceptor_run(struct acceptor *a, struct MHD_Daemon *daemon, int64_t open);

#endif
