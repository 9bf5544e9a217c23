/* advisor/run/server_page.h - what a server counted itself while it was measured: the difference between two
 * readings of its /metrics page (Prometheus' text format). Read under the names of qdyno, vLLM and llama.cpp
 * (telemetry/export). Private to advisor/run/. */
#ifndef QDYNO_ADVISOR_RUN_SERVER_PAGE_H
#define QDYNO_ADVISOR_RUN_SERVER_PAGE_H

#include "base/base.h"

enum { PAGE_FIGURES = 9 };
struct server_page {
    bool known;                                    /* the server has such a page */
    double sum[PAGE_FIGURES], count[PAGE_FIGURES]; /* NAN: the page has no such figure. count: of times */
};

/* From the text of a page. */
void server_page_parse(struct server_page *p, const char *text);

/* {"requests", "prompt_tokens", ..., "ttft_s", ...}: counts as differences, times as means over what happened
 * in between; null where unknown. NULL: one of the pages is unknown. New reference. */
json_t *server_page_difference(const struct server_page *before, const struct server_page *after);

#endif
