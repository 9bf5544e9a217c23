/* advisor/serve/access.h - internal: the endpoints of the server, and who may use them. */
#ifndef QDYNO_ADVISOR_SERVE_ACCESS_H
#define QDYNO_ADVISOR_SERVE_ACCESS_H

#include <microhttpd.h>

#include "advisor/serve/parts.h"

enum page { PAGE_NONE, PAGE_HEALTH, PAGE_METRICS, PAGE_MODELS, PAGE_LOAD, PAGE_SETTINGS };
struct route {
    const char *method, *path;
    bool prefix; /* the path goes on: that is its argument */
    bool open;   /* needs no key */
    enum page page;
    enum endpoint endpoint; /* without a page */
    bool generates;
    const char *id; /* what the names of answers begin with */
};
const struct route *route_find(const char *path); /* NULL: no such endpoint */

/* Has the client sent the key? Also true where no key is needed. */
bool access_has_key(const struct server *s, struct MHD_Connection *c);

/* Does the value of a Host header name this machine only: localhost, 127.0.0.0/8 or [::1], with a port or
 * without? */
bool access_host_is_loopback(const char *host);

/* What can be told from the head of a request: endpoint (route NULL: there is none), method, key, size.
 * False: *no says why it is refused. */
bool access_check(struct refusal *no, const struct server *s, const struct route *route,
                  struct MHD_Connection *c, const char *path, const char *method);

#endif
