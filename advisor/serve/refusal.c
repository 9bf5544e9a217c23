/* Errors in OpenAI's form, which client libraries turn into their exceptions (parts.h). */
#include <stdio.h>
#include <string.h>

#include "advisor/serve/parts.h"

bool refuse(struct refusal *out, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;
    *out = (struct refusal){ .status = status, .code = code };
    snprintf(out->param, sizeof out->param, "%s", param ? param : "");
    va_start(args, fmt);
    vsnprintf(out->message, sizeof out->message, fmt, args);
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
