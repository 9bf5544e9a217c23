/* advisor/run/said.h - what a child process prints to its standard output and error. Private to advisor/run/.
 */
#ifndef QDYNO_ADVISOR_RUN_SAID_H
#define QDYNO_ADVISOR_RUN_SAID_H

#include "base/base.h"

enum { SAID_LAST = 260 }; /* bytes of a quotation */
struct said {
    int fd;          /* of the pipe, non-blocking; -1: closed */
    struct str text; /* the newest: at least `most` / 2 bytes of what is longer */
    size_t most;     /* bytes that are kept; at least SAID_LAST * 2 */
};
/* Makes the pipe. *child_fd: its other end, which the caller closes. Errors: as pipe2. */
enum err_code said_open(struct said *s, size_t most, int *child_fd, struct err *why);
/* Reads what is there; closes the pipe at its end. True: something came. */
bool said_take(struct said *s);
/* "; it said: ...", the end of the text in one printable line; "": it said nothing. Returns buf. */
const char *said_last(const struct said *s, char buf[SAID_LAST]);
void said_close(struct said *s); /* {0} is fine */

#endif
