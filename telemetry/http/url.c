/* telemetry/http/url.c - checks addresses, and shows them without the secrets that they may hold. */
#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "telemetry/http/http.h"

/* The last '@' before which a user name and a password may stand; NULL: none. A password may contain every
 * character, also '/' and '?'. Only the '@' of a Pushgateway's label in a path, "name@base64/", is none. */
static const char *secret_end(const char *host)
{
    const char *path = host + strcspn(host, "/?#");
    for (const char *p = host + strlen(host); p-- > host;)
        if (*p == '@' && (p < path || !str_starts(p, "@base64/"))) return p;
    return NULL;
}

enum err_code http_url_check(const char *what, const char *url, enum http_url_kind kind, struct err *why)
{
    static const struct {
        CURLUPart part;
        enum http_url_kind from; /* forbidden for this kind and stricter ones */
        const char *what;
    } FORBIDDEN[] = {
        /* the address is stored in logs and in the list of unsent results */
        { CURLUPART_USER, HTTP_URL_ANY, "a user name: give user and password as options instead" },
        { CURLUPART_QUERY, HTTP_URL_BASE, "a '?query'" },
        { CURLUPART_FRAGMENT, HTTP_URL_BASE, "a '#fragment'" },
    };
    char shown[HTTP_SHOWN_MAX];
    if (!url || (!str_starts(url, "http://") && !str_starts(url, "https://")))
        return err_set(why, ERR_USAGE, "%s %s: expected an address such as http://host:9091", what,
                       http_url_shown(url ? url : "", HTTP_SHOW_HOST, shown));
    if (kind == HTTP_URL_BASE && strstr(strstr(url, "://") + 3, "://"))
        return err_set(why, ERR_USAGE, "%s '%s': it has http:// or https:// twice", what,
                       http_url_shown(url, HTTP_SHOW_HOST, shown));
    CURLU *u = curl_url();
    if (!u) return err_set(why, ERR_NOMEM, "out of memory");
    CURLUcode bad = curl_url_set(u, CURLUPART_URL, url, 0);
    enum err_code rc = ERR_OK;
    if (bad == CURLUE_OUT_OF_MEMORY)
        rc = err_set(why, ERR_NOMEM, "out of memory reading the address of a %s", what);
    else if (bad)
        rc = err_set(why, ERR_USAGE, "%s '%s': %s", what, http_url_shown(url, HTTP_SHOW_HOST, shown),
                     curl_url_strerror(bad));
    /* "http://user:1/2@host" is valid, with the host "user", but was hardly meant so */
    if (!rc && kind == HTTP_URL_BASE && secret_end(strstr(url, "://") + 3)) {
        rc = err_set(why, ERR_USAGE,
                     "the address of a %s cannot have an '@': give user name and password as options instead",
                     what);
    }
    for (size_t i = 0; !rc && i < COUNT_OF(FORBIDDEN); i++) {
        char *text = NULL;
        bad = kind >= FORBIDDEN[i].from ? curl_url_get(u, FORBIDDEN[i].part, &text, 0) : CURLUE_NO_USER;
        if (bad == CURLUE_OUT_OF_MEMORY)
            rc = err_set(why, ERR_NOMEM, "out of memory reading the address of a %s", what);
        else if (!bad)
            rc = err_set(why, ERR_USAGE, "the address of a %s cannot have %s", what, FORBIDDEN[i].what);
        curl_free(text);
    }
    curl_url_cleanup(u);
    return rc;
}

/* ---------------------------------------------------------------- showing */

/* Length of "name:port" at the start of `text`; 0: it does not begin with that. */
static size_t host_length(const char *text)
{
    static const char NAME[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    enum { PORT_DIGITS = 5 };
    size_t n = strspn(text, NAME);
    if (*text == '[') {
        n = 1 + strspn(text + 1, "0123456789abcdefABCDEF:.");
        if (text[n++] != ']') return 0;
    }
    if (n && text[n] == ':') {
        const size_t digits = strspn(text + n + 1, "0123456789");
        if (!digits || digits > PORT_DIGITS) return 0;
        n += 1 + digits;
    }
    return !text[n] || strchr("/?#", text[n]) ? n : 0;
}

const char *http_url_shown(const char *url, enum http_url_part part, char buf[HTTP_SHOWN_MAX])
{
    const bool encrypted = str_starts(url, "https://");
    if (!encrypted && !str_starts(url, "http://")) {
        snprintf(buf, HTTP_SHOWN_MAX, "(%zu characters without http:// or https:// at the start)",
                 strlen(url));
        return buf;
    }
    const char *rest = strstr(url, "://") + 3, *secret = secret_end(rest);
    const char *host = secret ? secret + 1 : rest;
    const size_t n = host_length(host);
    size_t path = strcspn(host + n, "?#");
    const bool whole = n && !secret && part == HTTP_SHOW_PATH;
    if (!whole) path = 0;
    for (size_t i = 0; i < path; i++)
        if (isspace((unsigned char)host[n + i]) || iscntrl((unsigned char)host[n + i])) path = i;
    const char *left = host + n + path;
    snprintf(buf, HTTP_SHOWN_MAX, "%s%s%.*s%s", encrypted ? "https://" : "http://", secret ? "***@" : "",
             (int)(n + path), host,
             !*left || !strcmp(left, "/") ? ""
             : *left == '/'               ? "/..."
                                          : "...");
    return buf;
}

/* ---------------------------------------------------------------- where an address leads */

bool http_url_is_loopback(const char *url)
{
    CURLU *u = curl_url();
    char *host = NULL;
    bool is = false;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_HOST, &host, 0)) {
        struct in_addr v4;
        const bool numeric = inet_pton(AF_INET, host, &v4) == 1; /* libcurl writes 127.1 as 127.0.0.1 */
        is = numeric ? ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET
                     : !strcasecmp(host, "localhost") || !strcmp(host, "[::1]");
    }
    curl_free(host);
    curl_url_cleanup(u);
    return is;
}

/* The server of an address. The port is never NULL: it is that of the scheme if the address has none. */
struct server {
    char *scheme, *host, *port;
};

static bool server_of(struct server *s, const char *url)
{
    CURLU *u = curl_url();
    *s = (struct server){ 0 };
    const bool known = u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
                       !curl_url_get(u, CURLUPART_SCHEME, &s->scheme, 0) &&
                       !curl_url_get(u, CURLUPART_HOST, &s->host, 0) &&
                       !curl_url_get(u, CURLUPART_PORT, &s->port, CURLU_DEFAULT_PORT);
    curl_url_cleanup(u);
    return known;
}

static void server_done(struct server *s)
{
    curl_free(s->scheme);
    curl_free(s->host);
    curl_free(s->port);
}

bool http_url_same_server(const char *a, const char *b)
{
    struct server x, y;
    const bool first = server_of(&x, a), second = server_of(&y, b);
    const bool same = first && second && !strcasecmp(x.scheme, y.scheme) && !strcasecmp(x.host, y.host) &&
                      !strcmp(x.port, y.port);
    server_done(&x);
    server_done(&y);
    return same;
}

enum err_code http_url_follow(char **out, const char *url, const char *location, struct err *why)
{
    char *text = NULL, shown[HTTP_SHOWN_MAX];
    *out = NULL;
    CURLU *u = curl_url();
    if (!u) return err_set(why, ERR_NOMEM, "out of memory");
    enum err_code rc = ERR_OK;
    if (curl_url_set(u, CURLUPART_URL, url, 0) || curl_url_set(u, CURLUPART_URL, location, 0) ||
        curl_url_get(u, CURLUPART_URL, &text, 0) || http_url_check("redirect", text, HTTP_URL_ANY, NULL))
        rc = err_set(why, ERR_USAGE, "the server redirects to an address that is not http or https (%s)",
                     http_url_shown(url, HTTP_SHOW_PATH, shown));
    if (!rc && !(*out = strdup(text))) rc = err_set(why, ERR_NOMEM, "out of memory");
    curl_free(text);
    curl_url_cleanup(u);
    return rc;
}

void http_url_escape(struct str *out, const char *text, enum http_escape how)
{
    for (const char *c = text; *c; c++) {
        if (isalnum((unsigned char)*c) || strchr("-._~", *c) || (how == HTTP_ESCAPE_PATH && *c == '/'))
            str_append_n(out, c, 1);
        else
            str_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

bool http_insecure_credentials(void)
{
    const char *text = getenv("QDYNO_INSECURE_CREDENTIALS");
    return text && !strcmp(text, "1");
}
