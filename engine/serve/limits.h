/* engine/serve/limits.h - was a request answered within the limits of a service-level objective? The same
 * definitions for loads, for the server, and for what is shown while either runs. */
#ifndef QDYNO_ENGINE_SERVE_LIMITS_H
#define QDYNO_ENGINE_SERVE_LIMITS_H

#include <stdbool.h>

#include "engine/config/config.h"

/* When things happened to one request, in seconds by one clock; NAN: it did not happen. */
struct request_times {
    double arrived_s, admitted_s, first_s, last_s; /* first_s, last_s: its first and its last token */
    int tokens;                                    /* generated */
    double *gap_s;                                 /* [gaps] times between its tokens, in any order */
    int gaps;
};

/* Quantile p of n values in ascending order by nearest rank: with few values, the largest. 0 for none. */
double gap_quantile(const double *ascending, int n, double p);

/* A figure in seconds; NAN: unknown. The gaps must be in ascending order. A figure about tokens after the
 * first is 0 where there is only one: none came late. */
double request_figure(const struct request_times *t, enum load_figure f);

/* Is every figure known that the limits are about? */
bool limits_are_known(const struct load_limit *limit, int limits, const struct request_times *t);

/* Is every figure below its limit? Puts the gaps in ascending order. */
bool limits_are_met(const struct load_limit *limit, int limits, struct request_times *t);

#endif
