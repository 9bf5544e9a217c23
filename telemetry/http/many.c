/* telemetry/http/many.c - many requests at the same time, with libcurl's multi interface (http.h). */
#include <stdlib.h>

#include "telemetry/http/http_internal.h"

struct running {
    struct exchange x;
    http_ended_fn *ended;
    struct running *next, **link; /* link: what points to this one */
};

struct http_many {
    CURLM *multi;
    struct running *first;
    int count;
};

enum err_code http_many_open(struct http_many **out, struct err *why)
{
    struct http_many *m = *out = calloc(1, sizeof *m);
    if (m) m->multi = curl_multi_init();
    if (m && m->multi) return ERR_OK;
    free(m);
    *out = NULL;
    return err_set(why, ERR_NOMEM, "out of memory for a set of HTTP requests");
}

static void running_end(struct http_many *m, struct running *q)
{
    curl_multi_remove_handle(m->multi, q->x.curl);
    *q->link = q->next;
    if (q->next) q->next->link = q->link;
    m->count--;
    exchange_close(&q->x);
    free(q);
}

void http_many_close(struct http_many *m)
{
    if (!m) return;
    while (m->first) running_end(m, m->first);
    curl_multi_cleanup(m->multi);
    free(m);
}

int http_many_count(const struct http_many *m)
{
    return m->count;
}

enum err_code http_many_start(struct http_many *m, const struct http_request *r, http_ended_fn *ended,
                              struct err *why)
{
    struct running *q = calloc(1, sizeof *q);
    if (!q) return err_set(why, ERR_NOMEM, "out of memory for an HTTP request");
    q->ended = ended;
    enum err_code rc = exchange_open(&q->x, r, why);
    if (!rc) curl_easy_setopt(q->x.curl, CURLOPT_PRIVATE, q);
    int status = 0;
    if (!rc && q->x.bad) rc = exchange_result(&q->x, q->x.bad, &status, why);
    if (!rc && curl_multi_add_handle(m->multi, q->x.curl))
        rc = err_set(why, ERR_NOMEM, "out of memory for an HTTP request");
    if (rc) {
        exchange_close(&q->x);
        free(q);
        return rc;
    }
    q->next = m->first;
    q->link = &m->first;
    if (q->next) q->next->link = &q->next;
    m->first = q;
    m->count++;
    return ERR_OK;
}

/* Tells the callers of requests that have ended. */
static int ended_report(struct http_many *m)
{
    int left, ended = 0;
    for (const CURLMsg *done; (done = curl_multi_info_read(m->multi, &left)); ended++) {
        struct running *q = NULL;
        struct err why = { 0 };
        int status = 0;
        const CURLcode code = done->data.result;
        curl_easy_getinfo(done->easy_handle, CURLINFO_PRIVATE, (char **)&q);
        const enum err_code rc = exchange_result(&q->x, code, &status, &why);
        http_ended_fn *const call = q->ended;
        void *const ctx = q->x.request->ctx;
        running_end(m, q); /* before the call, which may start the next one with the same request */
        call(ctx, rc, status, &why);
    }
    return ended;
}

enum err_code http_many_run(struct http_many *m, double wait_s, struct err *why)
{
    int running;
    if (curl_multi_perform(m->multi, &running))
        return err_set(why, ERR_NOMEM, "out of memory for HTTP requests");
    if (ended_report(m) || wait_s <= 0) return ERR_OK;
    /* rounded down, so that the next request is not sent too late; below 1 ms the caller looks again at once
     */
    if (curl_multi_poll(m->multi, NULL, 0, (int)MIN(wait_s * 1e3, 1000), NULL) ||
        curl_multi_perform(m->multi, &running))
        return err_set(why, ERR_NOMEM, "out of memory for HTTP requests");
    ended_report(m);
    return ERR_OK;
}
