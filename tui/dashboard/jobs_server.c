/* tui/dashboard/jobs_server.c - jobs that read a `qdyno serve` and change its settings. */
#include "tui/dashboard/background.h"

#include <stdlib.h>
#include <string.h>

static const double PATIENCE_S = 3;

/* Sends a request to a path of the server. *answer: new reference; NULL on failure. */
static enum err_code server_ask(const struct background *b, const char *path, const char *body,
                                json_t **answer, struct err *why)
{
    const struct http_auth auth = { .bearer = b->server_key,
                                    .timeout_s = PATIENCE_S,
                                    .insecure_credentials = http_insecure_credentials() };
    struct str url = { 0 }, reply = { 0 };
    *answer = NULL;
    str_printf(&url, "%s%s", b->server_url, path);
    const struct http_request r = { .method = body ? "POST" : "GET",
                                    .url = str_text(&url),
                                    .content_type = body ? "application/json" : NULL,
                                    .body = body,
                                    .n_body = body ? strlen(body) : 0,
                                    .auth = &auth,
                                    .reply = &reply };
    enum err_code rc = http_send(&r, NULL, why);
    if (!rc) rc = json_parse(answer, str_text(&reply), reply.len, why);
    str_free(&url);
    str_free(&reply);
    return rc;
}

void job_read_server(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    json_t *answer = NULL;
    (void)j;
    background_lock(b);
    struct server_watch w = b->known.server;
    background_unlock_if(b, false);
    const bool was_well = !w.error[0];
    enum err_code rc = server_ask(b, "/load", NULL, &answer, &why);
    if (!rc && !server_watch_read(&w, answer))
        rc = err_set(&why, ERR_FORMAT, "%s is no server of qdyno: it has no /load", b->server_url);
    json_decref(answer);
    snprintf(w.error, sizeof w.error, "%s", rc ? why.message : "");
    background_lock(b);
    b->known.server = w;
    background_unlock_running(b);
    if (rc && was_well) background_log(b, LOG_WARN, "%s", why.message);
    if (!rc && !was_well) background_log(b, LOG_INFO, "the server answers again");
}

void job_change_server(struct background *b, const struct job *j)
{
    struct config c;
    struct err why = { 0 };
    json_t *body = json_object(), *answer = NULL;
    enum err_code rc = config_parse(&c, j->text, &why);
    for (int id = 0; !rc && id < KNOB_COUNT; id++)
        if (c.given[id]) json_put_str(body, KNOBS[id].key, config_text(&c, (enum knob_id)id));
    char *line = json_line(body);
    if (!rc && !line) rc = err_set(&why, ERR_NOMEM, "out of memory for a request");
    if (!rc) rc = server_ask(b, "/settings", line, &answer, &why);
    if (rc)
        background_announce(b, true, "the server did not change: %s", why.message);
    else
        background_log(b, LOG_INFO, "server: %s", json_get_str(answer, "changed", ""));
    free(line);
    json_decref(answer);
    json_decref(body);
    if (!rc) job_read_server(b, j);
}
