/* tui/cli/command_serve.h - internal: what the commands that serve over HTTP share. */
#ifndef QDYNO_CLI_COMMAND_SERVE_H
#define QDYNO_CLI_COMMAND_SERVE_H

#include "advisor/serve/serve.h"
#include "tui/cli/commands.h"

/* Defaults of their flags. */
enum { SERVE_PORT = 8080, SERVE_QUEUE = 256, SERVE_BODY = 8 << 20, SERVE_WAIT_NS = 20 * 1000 * 1000 };
#define SERVE_HOST    "127.0.0.1"
#define SERVE_DRAIN_S 30

/* Opens a model for a server and touches all its memory. */
enum err_code serve_open_model(struct model **out, const char *path, const struct config *c,
                               const struct cli_global *g, struct err *why);
/* The base URL for clients. Appended to *out. */
void serve_url(struct str *out, const char *host, int port);
/* The file's name without folder and ending. Owned; NULL: no memory. */
char *serve_name_of(const char *path);
/* Refuses new requests, and lets the accepted ones end, for at most so many seconds. */
void serve_drain(struct server *s, const struct cli_global *g, double most_s);
/* What became of all requests, as a note. */
void serve_note_totals(struct server *s, const struct cli_global *g);

#endif
