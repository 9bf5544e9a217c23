/* Errors in OpenAI's form, which client libraries turn into their exceptions (parts.h). */
#include <stdio.h>
#include <string.h>

#include "advisor/serve/parts.h"

static const char OUT_OF_MEMORY[] = "out_of_memory";

bool refuse(struct refusal *out, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;
    const bool incomplete = memory_is_short() && strcmp(code, OUT_OF_MEMORY);
    *out = (struct refusal){ .status = status, .code = code };
    if (incomplete) *out = (struct refusal){ .status = 500, .code = OUT_OF_MEMORY };
    memory_short_clear(); /* the client is told now; the next request has nothing to do with it */
    snprintf(out->param, sizeof out->param, "%s", param && !incomplete ? param : "");
    const int n = snprintf(out->message, sizeof out->message, "%s", incomplete ? "out of memory: " : "");
    va_start(args, fmt);
    vsnprintf(out->message + n, sizeof out->message - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } TYPES[] = {
        { 401, "authentication_error" }, { 403, "permission_error" },  { 404, "not_found_error" },
        { 429, "rate_limit_error" },     { 503, "unavailable_error" },
    };
    for (size_t i = 0; i < COUNT_OF(TYPES); i++)
        if (TYPES[i].status == status) return TYPES[i].type;
    return status < 500 ? "invalid_request_error" : "server_error";
}

json_t *refusal_json(const struct refusal *r)
{
    json_t *error = json_object(), *o = json_object();
    json_put_str(error, "message", r->message);
    json_put_str(error, "type", type_of(r->status));
    json_put_str(error, "param", *r->param ? r->param : NULL);
    json_put_str(error, "code", r->code);
    json_put(o, "error", error);
    return o;
}
