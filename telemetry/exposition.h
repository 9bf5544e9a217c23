/* telemetry/exposition.h - Prometheus' text exposition format (part of the door telemetry.h). */
#ifndef QDYNO_TELEMETRY_EXPOSITION_H
#define QDYNO_TELEMETRY_EXPOSITION_H

#include <stdint.h>

#include "base/base.h"

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8" /* what readers of it expect */

struct label {
    const char *name, *value; /* NULL value: "" */
};

/* Upper edges of buckets, rising; what is above the last is in one more bucket. */
enum { HISTOGRAM_EDGES = 40 };
struct histogram_edges {
    int n;
    double edge[HISTOGRAM_EDGES];
};
/* {0} is empty. Not cumulative in memory: bucket[i] counts values in (edge[i-1], edge[i]]. */
struct histogram_counts {
    uint64_t bucket[HISTOGRAM_EDGES + 1], count;
    double sum;
};
/* `times` observations of the same value. What is no finite number is not counted. */
void histogram_add(struct histogram_counts *h, const struct histogram_edges *edges, double value,
                   uint64_t times);

/* Text exposition format 0.0.4, built sample by sample. HELP and TYPE are written once per family; families
 * must be contiguous. {0} is an empty one. */
struct exposition {
    struct str text;
    char family[128]; /* open family */
    size_t opened;    /* where its samples start in text */
    bool is_histogram;
    struct str names; /* of all families so far, "\nname\n" */
    struct err bad;   /* first misuse (bad name, duplicate family); nothing is written after it */
};
/* type: "gauge" "counter" "histogram". */
void exposition_family(struct exposition *e, const char *name, const char *type, const char *help);
/* NAN value: no sample at all (absence is data), Inf spelled +Inf. */
void exposition_sample(struct exposition *e, const struct label *labels, int n, double value);
/* _bucket (cumulative, +Inf last), _sum and _count of one series of a histogram family. */
void exposition_histogram(struct exposition *e, const struct label *labels, int n,
                          const struct histogram_edges *edges, const struct histogram_counts *h);
void exposition_free(struct exposition *e);

#endif
