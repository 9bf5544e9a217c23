/* tui/cli/command_serve.h - internal: what the commands that serve over HTTP share. */
#ifndef QDYNO_CLI_COMMAND_SERVE_H
#define QDYNO_CLI_COMMAND_SERVE_H

#include <sys/types.h>

#include "advisor/serve/serve.h"
#include "tui/cli/commands.h"

/* Defaults of their flags. */
enum { SERVE_PORT = 8080, SERVE_QUEUE = 256, SERVE_BODY = 8 << 20, SERVE_WAIT_NS = 20 * 1000 * 1000 };
#define SERVE_HOST    "127.0.0.1"
#define SERVE_ALERT   "serve_processes" /* the row of ALERTS whose action is to scale */
#define SERVE_DRAIN_S 30

/* Opens a model for a server and touches all its memory. */
enum err_code serve_open_model(struct model **out, const char *path, const struct config *c,
                               const struct cli_global *g, struct err *why);
/* The base URL for clients. Appended to *out. */
void serve_url(struct str *out, const char *host, int port);
/* The file's name without folder and ending. Owned; NULL: no memory. */
char *serve_name_of(const char *path);
struct serve_member;
/* Refuses new requests, and lets the accepted ones end, for at most so many seconds. member NULL: of the only
 * process. */
void serve_drain(struct server *s, const struct cli_global *g, double most_s,
                 const struct serve_member *member);
/* What became of all requests, as a note. */
void serve_note_totals(const struct server_state *now, const struct cli_global *g);

/* ---------------------------------------------------------------- several processes
 * (command_serve_processes.c) */

/* One of several processes of a server. */
struct serve_member {
    struct share *share;
    int slot, listener, port;
    pid_t supervisor;
    bool first; /* it prints the address */
};

struct serve_processes {
    struct scale_rule rule;
    bool dry_run; /* record and print changes, and make none */
    const char *host;
    int port;
    double drain_s;
    int threads; /* of each process; 0: as many as the machine has cores */
    int (*serve)(void *ctx,
                 const struct serve_member *member); /* in a new process; returns its exit status */
    void *ctx;
};
/* Serves with several processes until Ctrl-C or SIGTERM. Returns the exit status: in the supervisor that of
 * the command, and in each of the other processes that of `serve`. */
int serve_processes(const struct serve_processes *o, const struct cli_global *g, const struct cli_args *a);

#endif
