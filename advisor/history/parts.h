/* advisor/history/parts.h - internal to advisor/history/: what the files that analyse a series share. */
#ifndef QDYNO_ADVISOR_HISTORY_PARTS_H
#define QDYNO_ADVISOR_HISTORY_PARTS_H

#include "advisor/history/history.h"

/* Levels without gaps, and their indices in the series. */
struct known {
    double *level, *z, *scratch; /* [n] each; z and scratch are for the caller */
    int *place, n;
};
/* Errors: ERR_NOMEM. */
enum err_code known_levels_open(struct known *k, const struct history_series *s, struct err *why);
void known_levels_close(struct known *k);

/* The outliers among the vectors of all metrics: score above min_isolation, and a robust z beyond
 * HISTORY_UNUSUAL in some metric. isolation: [points], NAN with too few runs or metrics. *out:
 * free(); NULL and 0 when there is none. Errors: ERR_NOMEM. */
enum err_code outliers_find(struct history_outlier **out, int *n, double *isolation,
                            const struct history_series *s, double min_isolation, struct err *why);

#endif
