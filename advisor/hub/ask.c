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

/* The token in a file; NULL: none, or out of memory. */
static char *token_of_file(const char *path)
{
    char *text = NULL;
    if (file_read(&text, NULL, path, TOKEN_MOST, NULL)) return NULL;
    char *from = text + strspn(text, " \t\r\n");
    from[strcspn(from, " \t\r\n")] = '\0';
    char *token = *from ? strdup(from) : NULL;
    free(text);
    return token;
}

static char *token_find(void)
{
    struct str path = { 0 };
    if (hub_switch_is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return NULL;
    if (set("HF_TOKEN")) return strdup(set("HF_TOKEN"));
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

bool hub_is_offline(const struct hub *h)
{
    return h->offline;
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

/* What the hub's X-Error-Code, or a status without one, means for people. {repo}
 * and {hub} stand for the repository and the endpoint. */
static const struct refusal {
    const char *code;
    int status; /* 0: any */
    enum err_code rc;
    const char *text;
} REFUSALS[] = {
    { "GatedRepo", 0, ERR_USAGE,
      "a licence must be accepted: do that in a browser at {hub}/{repo}, then set HF_TOKEN to a token of that account" },
    { "RepoNotFound", 0, ERR_ABSENT,
      "{repo} does not exist at {hub}, or it is private: check the name; for a private one set HF_TOKEN" },
    { "RevisionNotFound", 0, ERR_ABSENT, "{repo} at {hub} has no such branch, tag or commit" },
    { "EntryNotFound", 0, ERR_ABSENT, "{repo} at {hub} has no such file" },
    { "DisabledRepo", 0, ERR_USAGE, "{repo} was disabled by {hub}" },
    { "", 401, ERR_ABSENT,
      "{repo} does not exist, or it is private or needs a licence: check the name; for a private one set HF_TOKEN ({hub})" },
    { "", 403, ERR_USAGE,
      "access to {repo} is denied: the token of HF_TOKEN may lack the right to read it ({hub})" },
    { "", 404, ERR_ABSENT, "{repo} does not exist at {hub}" },
};

enum err_code hub_explain(const struct hub *h, const char *what, int status, const struct http_wanted *header,
                          const struct err *refused, struct err *why)
{
    const char *code = str_text(&header[HEADER_ERROR_CODE].value);
    if (status == 429 || status >= 500 || status < 400) {
        if (why) *why = *refused;
        return refused->code;
    }
    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        const struct refusal *r = &REFUSALS[i];
        if (r->status ? r->status != status : strcmp(r->code, code) != 0) continue;
        const char *said = str_text(&header[HEADER_ERROR_MESSAGE].value);
        struct str text = { 0 };
        for (const char *c = r->text; *c; c++) {
            const bool repo = str_starts(c, "{repo}"), hub = str_starts(c, "{hub}");
            if (repo || hub)
                str_append(&text, repo ? what : h->endpoint);
            else
                str_append_n(&text, c, 1);
            if (repo || hub) c = strchr(c, '}');
        }
        if (*said) str_printf(&text, "; the server says: %.200s", said);
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
    const struct sending *s = ctx;
    return hub_goes_on(s->h);
}

static enum err_code send_once(struct hub *h, struct hub_ask *a, const char *url, double *retry_after_s,
                               struct err *why)
{
    struct sending s = { h, a };
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
        if (!is_worth_another(a, rc, attempt, told_s, &wait_s)) break;
        if (a->status == 429) hub_note(h, "%s: the server asks to wait %.0f s (HTTP 429)", a->what, wait_s);
        if (hub_wait(h, wait_s, why)) return ERR_CANCELLED;
    }
    return hub_explain(h, a->what, a->status, a->header, &failed, why);
}
