/* ask.c - one request to a hub: which server gets the token, what is tried again, what a refusal means. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/hub/hub_internal.h"

enum { ATTEMPTS = 5, ATTEMPTS_BUSY = 10, ATTEMPTS_SILENT = 3, REDIRECTS = 6, TOKEN_MOST = 4096 };
static const double REQUEST_S = 30;

/* ---------------------------------------------------------------- environment */

static const char *set(const char *variable)
{
    const char *v = getenv(variable);
    return v && *v ? v : NULL;
}

/* As the hub's library reads switches. */
bool hub_switch_is_on(const char *variable)
{
    const char *v = set(variable);
    return v && str_has_word("1 on yes true", v);
}

/* A token without the blanks around it, which copying adds; NULL: none, or out of memory. */
static char *token_trim(const char *text)
{
    static const char BLANKS[] = " \t\r\n";
    text += strspn(text, BLANKS);
    size_t n = strlen(text);
    while (n && strchr(BLANKS, text[n - 1])) n--;
    return n ? strndup(text, n) : NULL;
}

/* The token in a file; NULL: none, or out of memory. */
static char *token_of_file(const char *path)
{
    char *text = NULL;
    if (file_read(&text, NULL, path, TOKEN_MOST, NULL)) return NULL;
    char *token = token_trim(text);
    free(text);
    return token;
}

static char *token_find(void)
{
    struct str path = { 0 };
    if (hub_switch_is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return NULL;
    if (set("HF_TOKEN")) return token_trim(set("HF_TOKEN"));
    if (set("HF_TOKEN_PATH"))
        str_append(&path, set("HF_TOKEN_PATH"));
    else if (set("HF_HOME"))
        str_printf(&path, "%s/token", set("HF_HOME"));
    else if (set("XDG_CACHE_HOME"))
        str_printf(&path, "%s/huggingface/token", set("XDG_CACHE_HOME"));
    else if (set("HOME"))
        str_printf(&path, "%s/.cache/huggingface/token", set("HOME"));
    char *token = path.len ? token_of_file(str_text(&path)) : NULL;
    str_free(&path);
    return token;
}

/* A token becomes a header, so it must not have characters that end one. */
static enum err_code token_check(const char *token, struct err *why)
{
    for (const char *c = token; c && *c; c++)
        if (*c <= ' ' || *c > '~')
            return err_set(why, ERR_USAGE,
                           "the token of HF_TOKEN has a character that no token has: copy it again");
    return ERR_OK;
}

enum err_code hub_open(struct hub **out, const struct hub_options *o, struct err *why)
{
    static const char *const VARIABLES[] = { "MODEL_ENDPOINT", "HF_ENDPOINT" };
    const char *endpoint = "https://huggingface.co", *from = "endpoint";
    for (size_t i = COUNT_OF(VARIABLES); i-- > 0;)
        if (set(VARIABLES[i])) endpoint = set(from = VARIABLES[i]);
    *out = NULL;
    enum err_code rc = http_url_check(from, endpoint, HTTP_URL_BASE, why);
    if (rc) return rc;
    struct hub *h = calloc(1, sizeof *h);
    if (!h) return err_set(why, ERR_NOMEM, "out of memory");
    *h = (struct hub){ .o = *o,
                       .offline = o->offline || hub_switch_is_on("HF_HUB_OFFLINE"),
                       .endpoint = strdup(endpoint) };
    if (!h->endpoint) {
        hub_close(h);
        return err_set(why, ERR_NOMEM, "out of memory");
    }
    for (size_t n = strlen(h->endpoint); n && h->endpoint[n - 1] == '/'; n--) h->endpoint[n - 1] = '\0';
    h->token = token_find();
    if ((rc = token_check(h->token, why))) {
        hub_close(h);
        return rc;
    }
    *out = h;
    return ERR_OK;
}

void hub_close(struct hub *h)
{
    if (!h) return;
    free(h->endpoint);
    free(h->token);
    free(h);
}

enum err_code hub_offline_check(const struct hub *h, const char *what, struct err *why)
{
    if (!h->offline) return ERR_OK;
    return err_set(why, ERR_ABSENT, "%s: nothing is asked for, because %s", what,
                   h->o.offline ? "--offline is given" : "HF_HUB_OFFLINE is set");
}

/* ---------------------------------------------------------------- helpers */

bool hub_goes_on(const struct hub *h)
{
    return !h->o.goes_on || h->o.goes_on(h->o.ctx);
}

void hub_note(const struct hub *h, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (h->o.note) h->o.note(h->o.ctx, text);
}

enum err_code hub_wait(const struct hub *h, double seconds, struct err *why)
{
    const int64_t until = clock_ns() + (int64_t)(seconds * 1e9);
    for (;;) {
        if (!hub_goes_on(h)) return err_set(why, ERR_CANCELLED, "cancelled");
        const int64_t left = until - clock_ns();
        if (left <= 0) return ERR_OK;
        clock_sleep_ns(MIN(left, (int64_t)100000000));
    }
}

double hub_backoff_s(int n)
{
    return fmin(0.1 * pow(2, n - 1), 30);
}

double hub_told_wait(const struct http_wanted *header, double retry_after_s)
{
    if (retry_after_s > 0) return retry_after_s;
    return hub_rate_limit_s(str_text(&header[HEADER_RATE_LIMIT].value));
}

const char *hub_token_for(const struct hub *h, const char *url)
{
    return h->token && http_url_same_server(url, h->endpoint) ? h->token : NULL;
}

void hub_headers_init(struct http_wanted wanted[HEADER_COUNT])
{
    static const char *const NAMES[HEADER_COUNT] = {
        [HEADER_LOCATION] = "Location",
        [HEADER_LINK] = "Link",
        [HEADER_ETAG] = "ETag",
        [HEADER_LINKED_ETAG] = "X-Linked-Etag",
        [HEADER_LINKED_SIZE] = "X-Linked-Size",
        [HEADER_LENGTH] = "Content-Length",
        [HEADER_RANGE] = "Content-Range",
        [HEADER_COMMIT] = "X-Repo-Commit",
        [HEADER_ERROR_CODE] = "X-Error-Code",
        [HEADER_ERROR_MESSAGE] = "X-Error-Message",
        [HEADER_RATE_LIMIT] = "ratelimit",
    };
    for (int i = 0; i < HEADER_COUNT; i++) wanted[i] = (struct http_wanted){ .name = NAMES[i] };
}

void hub_headers_done(struct http_wanted wanted[HEADER_COUNT])
{
    for (int i = 0; i < HEADER_COUNT; i++) str_free(&wanted[i].value);
}

const char *hub_header(const struct hub_ask *a, enum hub_header h)
{
    return str_text(&a->header[h].value);
}

void hub_ask_done(struct hub_ask *a)
{
    free(a->final_url);
    a->final_url = NULL;
    hub_headers_done(a->header);
    str_free(&a->body);
}

/* ---------------------------------------------------------------- refusals */

/* What the hub's X-Error-Code, or a status without one, means for people. {repo} and {hub} stand for the
 * repository and the server that refuses. */
static const struct refusal {
    const char *code;
    int status; /* 0: any */
    enum err_code rc;
    const char *text;
    bool endpoint; /* only of the endpoint's server, the one that a token is sent to */
} REFUSALS[] = {
    { "GatedRepo", 0, ERR_USAGE,
      "a licence must be accepted: do that in a browser at {hub}/{repo}, then set HF_TOKEN to a token of that account",
      true },
    { "RepoNotFound", 0, ERR_ABSENT,
      "{repo} does not exist at {hub}, or it is private: check the name; for a private one set HF_TOKEN",
      true },
    { "RevisionNotFound", 0, ERR_ABSENT, "{repo} at {hub} has no such branch, tag or commit", false },
    { "EntryNotFound", 0, ERR_ABSENT, "{repo} at {hub} has no such file", false },
    { "DisabledRepo", 0, ERR_USAGE, "{repo} was disabled by {hub}", false },
    { "", 401, ERR_ABSENT,
      "{repo} does not exist, or it is private or needs a licence: check the name; for a private one set HF_TOKEN ({hub})",
      true },
    { "", 403, ERR_USAGE,
      "access to {repo} is denied: the token of HF_TOKEN may lack the right to read it ({hub})", true },
    { "", 401, ERR_ABSENT, "{repo} does not exist at {hub}, or it is private: check the name", false },
    { "", 403, ERR_USAGE, "{hub} denies access to {repo}: qdyno sends no token to this server", false },
    { "", 404, ERR_ABSENT, "{repo} does not exist at {hub}", false },
};

/* Adds what the server says, if the token is not in it. */
static void server_says(struct str *text, const struct hub *h, const char *said)
{
    char line[200];
    size_t n = 0;
    if (!*said || (h->token && strstr(said, h->token))) return;
    for (; n < sizeof line - 1 && said[n]; n++)
        line[n] = (char)((unsigned char)said[n] < ' ' ? ' ' : said[n]);
    line[n] = '\0';
    str_printf(text, "; the server says: %s", line);
}

enum err_code hub_wait_too_long(const char *what, int status, double told_s, struct err *why)
{
    return err_set(
        why, ERR_ABSENT,
        "%s: the server asks to wait %.0f s (HTTP %d), longer than the %d s that qdyno waits: try again "
        "then",
        what, told_s, status, (int)HUB_WAIT_MOST_S);
}

enum err_code hub_explain(const struct hub *h, const char *what, const char *url, int status,
                          const struct http_wanted *header, const struct err *refused, struct err *why)
{
    const bool endpoint = http_url_same_server(url, h->endpoint);
    const char *host = strstr(url, "://");
    const size_t server = host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : strlen(url);
    const char *code = str_text(&header[HEADER_ERROR_CODE].value);
    if (status == 429 || status >= 500 || status < 400) {
        if (why) *why = *refused;
        return refused->code;
    }
    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        const struct refusal *r = &REFUSALS[i];
        if (r->status ? r->status != status : strcmp(r->code, code) != 0) continue;
        if (r->endpoint && !endpoint) continue;
        struct str text = { 0 };
        for (const char *c = r->text; *c; c++) {
            const bool repo = str_starts(c, "{repo}"), hub = str_starts(c, "{hub}");
            if (repo || (hub && endpoint))
                str_append(&text, repo ? what : h->endpoint);
            else if (hub)
                str_append_n(&text, url, server);
            else
                str_append_n(&text, c, 1);
            if (repo || hub) c = strchr(c, '}');
        }
        server_says(&text, h, str_text(&header[HEADER_ERROR_MESSAGE].value));
        const enum err_code rc = err_set(why, r->rc, "%s", str_text(&text));
        str_free(&text);
        return rc;
    }
    if (why) *why = *refused;
    return refused->code;
}

/* ---------------------------------------------------------------- sending */

struct sending {
    struct hub *h;
    struct hub_ask *a;
    int64_t until_ns; /* of clock_ns: when the whole answer must be here; 0: no limit */
    bool late;
};

static bool body_take(void *ctx, const char *data, size_t n)
{
    struct sending *s = ctx;
    const size_t room = s->a->body_most - s->a->body.len;
    str_append_n(&s->a->body, data, MIN(n, room));
    s->a->body_full |= n > room || (n == room && *s->a->range);
    return !s->a->body_full;
}

static bool request_waits(void *ctx)
{
    struct sending *s = ctx;
    s->late = s->until_ns && clock_ns() > s->until_ns;
    return !s->late && hub_goes_on(s->h);
}

static enum err_code send_once(struct hub *h, struct hub_ask *a, const char *url, double *retry_after_s,
                               struct err *why)
{
    struct sending s = { .h = h, .a = a };
    if (a->total_s > 0) s.until_ns = clock_ns() + (int64_t)(a->total_s * 1e9);
    char accept[128], range[80];
    const struct http_auth auth = { .bearer = hub_token_for(h, url),
                                    .insecure_credentials = http_insecure_credentials(),
                                    .timeout_s = REQUEST_S };
    struct http_request r = { .method = a->method,
                              .url = url,
                              .auth = &auth,
                              .receive = body_take,
                              .waiting = request_waits,
                              .ctx = &s,
                              .retry_after_s = retry_after_s,
                              .wanted = a->header,
                              .n_wanted = HEADER_COUNT,
                              .redirects = true,
                              .stall_s = REQUEST_S,
                              .headers = { "Accept-Encoding: identity" } };
    int headers = 1;
    if (a->accept) {
        snprintf(accept, sizeof accept, "Accept: %s", a->accept);
        r.headers[headers++] = accept;
    }
    if (*a->range) {
        snprintf(range, sizeof range, "Range: %s", a->range);
        r.headers[headers++] = range;
    }
    str_clear(&a->body);
    a->body_full = false;
    enum err_code rc = http_send(&r, &a->status, why);
    if (rc == ERR_CANCELLED && a->body_full) { /* ended by body_take */
        a->status = *hub_header(a, HEADER_RANGE) ? 206 : 200;
        rc = *a->range
                 ? ERR_OK
                 : err_set(why, ERR_FORMAT, "%s: the answer has more than %zu bytes", a->what, a->body_most);
    }
    if (rc == ERR_CANCELLED && s.late)
        rc = err_set(why, ERR_FORMAT, "%s: the answer is not complete after %.0f s", a->what, a->total_s);
    if (!rc && a->body.failed) rc = err_set(why, ERR_NOMEM, "out of memory receiving an answer");
    return rc;
}

/* Follows redirects. */
static enum err_code send_there(struct hub *h, struct hub_ask *a, double *retry_after_s, struct err *why)
{
    for (int hops = 0;; hops++) {
        const enum err_code rc = send_once(h, a, a->final_url, retry_after_s, why);
        if (rc || a->status < 300 || a->status >= 400) return rc;
        char *next = NULL;
        const enum err_code bad = http_url_follow(&next, a->final_url, hub_header(a, HEADER_LOCATION), why);
        if (bad) return bad;
        const bool other = !http_url_same_server(next, a->final_url) || *hub_header(a, HEADER_LINKED_ETAG);
        if (a->stop_at_redirect_to_other && other) {
            free(next);
            return ERR_OK;
        }
        free(a->final_url);
        a->final_url = next;
        if (hops == REDIRECTS)
            return err_set(why, ERR_FORMAT, "%s: the server redirects more than %d times", a->what,
                           REDIRECTS);
    }
}

/* May the same request succeed later? *wait_s: when. */
static bool is_worth_another(const struct hub_ask *a, enum err_code rc, int attempt, double told_s,
                             double *wait_s)
{
    *wait_s = told_s > 0 ? told_s : hub_backoff_s(attempt);
    const int most = a->status == 429 ? ATTEMPTS_BUSY : a->status ? ATTEMPTS : ATTEMPTS_SILENT;
    return rc == ERR_ABSENT && attempt < most && *wait_s <= HUB_WAIT_MOST_S;
}

enum err_code hub_send(struct hub *h, struct hub_ask *a, struct err *why)
{
    struct err failed = { 0 };
    double retry_after_s = NAN, wait_s;
    hub_headers_init(a->header);
    enum err_code rc = hub_offline_check(h, a->what, why);
    if (rc) return rc;
    for (int attempt = 1;; attempt++) {
        free(a->final_url);
        if (!(a->final_url = strdup(a->url))) return err_set(why, ERR_NOMEM, "out of memory");
        rc = send_there(h, a, &retry_after_s, &failed);
        if (!rc) return ERR_OK;
        const double told_s = hub_told_wait(a->header, retry_after_s);
        if (rc == ERR_ABSENT && told_s > HUB_WAIT_MOST_S)
            return hub_wait_too_long(a->what, a->status, told_s, why);
        if (!is_worth_another(a, rc, attempt, told_s, &wait_s)) break;
        if (told_s > 0)
            hub_note(h, "%s: the server asks to wait %.0f s (HTTP %d)", a->what, wait_s, a->status);
        if (hub_wait(h, wait_s, why)) return ERR_CANCELLED;
    }
    return hub_explain(h, a->what, a->final_url ? a->final_url : a->url, a->status, a->header, &failed, why);
}
