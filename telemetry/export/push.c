/* telemetry/export/push.c - sends finished results to a Prometheus Pushgateway.
 *
 * One PUT per experiment replaces the whole group, so no metric of an older result remains. DELETE removes
 * the group. */
#include "telemetry/export/export.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/http/http.h"

/* ---------------------------------------------------------------- the URL */

/* RFC 4648 section 5, without padding. The gateway expects "=" for an empty value. */
static void append_base64url(struct str *out, const char *value)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *p = (const unsigned char *)value;
    size_t left = strlen(value);
    if (!left) str_append(out, "=");
    while (left) {
        size_t n = MIN(left, 3);
        uint32_t bits = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        for (size_t i = 0; i <= n; i++) str_append_n(out, &DIGITS[bits >> (18 - 6 * i) & 63], 1);
        p += n;
        left -= n;
    }
}

static void append_label(struct str *out, const char *name, const char *value)
{
    /* encode values that have a meaning in a path: slashes, "." and ".." */
    bool encode = !*value || strchr(value, '/') || !strcmp(value, ".") || !strcmp(value, "..");
    str_printf(out, "/%s%s/", name, encode ? "@base64" : "");
    if (encode)
        append_base64url(out, value);
    else
        http_url_escape(out, value, HTTP_ESCAPE_ALL);
}

static bool label_name_is_valid(const char *name)
{
    if (str_starts(name, "__") || (!isalpha((unsigned char)*name) && *name != '_')) return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return false;
    return true;
}

static enum err_code labels_check(const struct push_target *t, struct err *why)
{
    if (!t->job || !*t->job) return err_set(why, ERR_USAGE, "a push needs a job name");
    for (int i = 0; i < t->n_grouping; i++) {
        const struct label *l = &t->grouping[i];
        if (!label_name_is_valid(l->name) || !l->value)
            return err_set(why, ERR_USAGE,
                           "grouping label '%s': expected a letter or '_', then letters, digits or '_'",
                           l->name);
        bool twice = !strcmp(l->name, "job");
        for (int k = 0; k < i; k++) twice |= !strcmp(t->grouping[k].name, l->name);
        if (twice) return err_set(why, ERR_USAGE, "grouping label '%s' is given twice", l->name);
    }
    return ERR_OK;
}

enum err_code push_url(char **out, const struct push_target *t, struct err *why)
{
    struct str url = { 0 };
    *out = NULL;
    enum err_code rc = http_url_check("gateway", t->url, HTTP_URL_BASE, why);
    if (!rc) rc = labels_check(t, why);
    if (rc) return rc;
    size_t n = strlen(t->url);
    while (n && t->url[n - 1] == '/') n--;
    str_append_n(&url, t->url, n);
    str_append(&url, "/metrics");
    append_label(&url, "job", t->job);
    for (int i = 0; i < t->n_grouping; i++) append_label(&url, t->grouping[i].name, t->grouping[i].value);
    *out = str_take(&url);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* ---------------------------------------------------------------- the request */

static enum err_code push_request(const struct push_target *t, const char *method, const char *url,
                                  const char *body, int *status, struct err *why)
{
    const struct http_request r = { .method = method,
                                    .url = url,
                                    .content_type = EXPOSITION_TYPE,
                                    .body = body,
                                    .n_body = body ? strlen(body) : 0,
                                    .auth = &t->auth };
    return http_send(&r, status, why);
}

enum err_code push_put(const struct push_target *t, const char *body, int *status, struct err *why)
{
    char *url;
    if (status) *status = 0;
    enum err_code rc = push_url(&url, t, why);
    if (rc) return rc;
    rc = push_request(t, "PUT", url, body, status, why);
    free(url);
    return rc;
}

enum err_code push_delete_url(const struct push_target *t, const char *url, int *status, struct err *why)
{
    return push_request(t, "DELETE", url, NULL, status, why);
}
