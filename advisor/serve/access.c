/* The endpoints of the server, and who may use them (access.h). */
#include "advisor/serve/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "telemetry/http/http.h"

/* ---------------------------------------------------------------- endpoints */

/* clang-format off */
static const struct route ROUTES[] = {
    { .method = "POST", .path = "/v1/completions", .endpoint = ENDPOINT_COMPLETIONS, .generates = true, .id = "cmpl-" },
    { .method = "POST", .path = "/v1/chat/completions", .endpoint = ENDPOINT_CHAT, .generates = true, .id = "chatcmpl-" },
    { .method = "POST", .path = "/tokenize", .endpoint = ENDPOINT_TOKENIZE, .id = "tokenize-" },
    { .method = "POST", .path = "/detokenize", .endpoint = ENDPOINT_DETOKENIZE, .id = "detokenize-" },
    { .method = "GET", .path = "/v1/models", .page = PAGE_MODELS },
    { .method = "GET", .path = "/v1/models/", .page = PAGE_MODELS, .prefix = true },
    { .method = "GET", .path = "/health", .page = PAGE_HEALTH, .open = true },
    { .method = "GET", .path = "/metrics", .page = PAGE_METRICS },
    { .method = "GET", .path = "/load", .page = PAGE_LOAD },
    { .method = "POST", .path = "/settings", .page = PAGE_SETTINGS },
};
/* clang-format on */

const struct route *route_find(const char *path)
{
    for (size_t i = 0; i < COUNT_OF(ROUTES); i++)
        if (ROUTES[i].prefix ? str_starts(path, ROUTES[i].path) && path[strlen(ROUTES[i].path)]
                             : !strcmp(path, ROUTES[i].path))
            return &ROUTES[i];
    return NULL;
}

/* ---------------------------------------------------------------- who may ask */

/* Takes as long for a wrong key as for the right one. */
static bool key_is(const char *key, const char *given)
{
    const size_t n = strlen(key), m = strlen(given);
    unsigned char different = n != m;
    for (size_t i = 0; i < n; i++) different |= (unsigned char)(key[i] ^ given[m ? i % m : 0]);
    return !different;
}

bool access_has_key(const struct server *s, struct MHD_Connection *c)
{
    static const char SCHEME[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!s->o.key) return true;
    return given && !strncasecmp(given, SCHEME, sizeof SCHEME - 1) &&
           key_is(s->o.key, given + sizeof SCHEME - 1);
}

/* Pages of other sites that run in a browser of this machine could otherwise use a server without a key. */
static bool comes_from_web_page(const struct server *s, struct MHD_Connection *c)
{
    return !s->o.key && MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
}

bool access_host_is_loopback(const char *host)
{
    char name[64];
    const bool bracket = *host == '[';
    const char *begin = host + bracket, *end = begin + strcspn(begin, bracket ? "]" : ":");
    const size_t n = (size_t)(end - begin);
    if (bracket && !*end++) return false;
    if (*end && (*end != ':' || end[1 + strspn(end + 1, "0123456789")])) return false;
    if (n >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)n, begin);
    return (!bracket && !strcasecmp(name, "localhost")) || http_address_is_loopback(name);
}

/* The name of a site can be made to lead to this machine (DNS rebinding). Browsers then take the server for a
 * part of that site and send no Origin, but they do send the name. NULL: the request is not of that kind. */
static const char *foreign_host(const struct server *s, struct MHD_Connection *c)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    return s->o.key || !host || access_host_is_loopback(host) ? NULL : host;
}

bool access_check(struct refusal *no, const struct server *s, const struct route *route,
                  struct MHD_Connection *c, const char *path, const char *method)
{
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    int64_t bytes = 0;
    if (!route) return refuse(no, 404, "not_found", NULL, "%.20s %.100s: no such endpoint", method, path);
    if (strcmp(method, route->method) && !(*route->method == 'G' && !strcmp(method, "HEAD")))
        return refuse(no, 405, "method_not_allowed", NULL, "%s: expected %s, found %.20s", route->path,
                      route->method, method);
    if (comes_from_web_page(s, c))
        return refuse(no, 403, "forbidden", NULL,
                      "requests of web pages are refused: start the server with an API key and send it");
    if (foreign_host(s, c))
        return refuse(no, 403, "forbidden", NULL,
                      "Host: %.100s: without an API key, expected localhost, 127.0.0.1 or [::1]: use one of "
                      "these in the address, or start the server with an API key",
                      foreign_host(s, c));
    if (!route->open && !access_has_key(s, c))
        return refuse(no, 401, "invalid_api_key", NULL,
                      "expected the server's API key in the header Authorization: Bearer KEY");
    if (length && str_to_i64(length, &bytes) && bytes > s->o.body_bytes)
        return refuse(no, 413, "too_large", NULL, "the body has %lld bytes: expected at most %lld",
                      (long long)bytes, (long long)s->o.body_bytes);
    return true;
}
