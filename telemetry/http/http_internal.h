/* telemetry/http/http_internal.h - one exchange with libcurl, for the files that run one or many of them. */
#ifndef QDYNO_TELEMETRY_HTTP_INTERNAL_H
#define QDYNO_TELEMETRY_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "telemetry/http/http.h"

struct exchange {
    CURL *curl;
    struct curl_slist *headers;
    enum http_url_part part; /* of addresses, that messages show */
    char shown[HTTP_SHOWN_MAX];
    struct str reply;
    char problem[CURL_ERROR_SIZE];
    double timeout_s;
    CURLcode bad; /* the first option that libcurl could not take */
    const struct http_request *request;
    const struct http_auth *auth;
    bool cancelled; /* by the caller's functions */
};

/* Checks the request and prepares x->curl for it. *x must stay where it is until exchange_close, which
 * accepts {0}. Errors: those of http_send before anything is sent. */
enum err_code exchange_open(struct exchange *x, const struct http_request *r, struct err *why);
/* After the transfer, with libcurl's code: the response, or the error. */
enum err_code exchange_result(struct exchange *x, CURLcode code, int *status, struct err *why);
void exchange_close(struct exchange *x);

#endif
