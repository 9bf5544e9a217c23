/* tui/measured.h - what the database holds about one model beyond single runs: what methods lose, which
 * tensors are sensitive, how long requests took. Figures of the quality and load views.
 *
 * Values only: a job fills them (board_measured.c), views draw them. What is not known is NAN or a count of
 * 0, with the reason in words beside it. */
#ifndef QDYNO_TUI_MEASURED_H
#define QDYNO_TUI_MEASURED_H

#include "advisor/advisor.h"

enum {
    MEASURED_METHODS = 40,
    SENSITIVITY_MAPS = 6,
    SENSITIVITY_KINDS = 20,
    SENSITIVITY_LAYERS = 160,
    LATENCY_BINS = 96,
    LOAD_LINES = 24,
};

/* One config whose predictions were compared with a reference's. */
struct quality_line {
    int64_t run_id, measured_ms;
    char config[160], reference[96], text[64]; /* text: base name of the file */
    int ctx;                                   /* tokens of a window */
    int64_t windows;
    struct interval kld, top1, ppl, ppl_ratio; /* 95 %; NAN unknown */
};

struct measured_quality {
    int count;                                  /* -1: not read yet */
    struct quality_line line[MEASURED_METHODS]; /* the least loss first */
    char error[200];
};

/* What is lost when one tensor alone is stored in a format, by kind of tensor and layer. */
struct sensitivity_map {
    char format[24];
    int kinds, layers; /* column 0: of the model as a whole; column i + 1: layer i */
    char kind[SENSITIVITY_KINDS][32];
    float loss[SENSITIVITY_KINDS][SENSITIVITY_LAYERS]; /* KL divergence, nats; NAN unknown */
};
struct sensitivity {
    int maps; /* 0: not measured */
    struct sensitivity_map map[SENSITIVITY_MAPS];
    char basis[96];    /* text and windows, where it was measured */
    char missing[240]; /* why there is none, and the command that measures it */
};

/* A distribution, in bins that are equally wide in logs. */
struct latency {
    int n;         /* 0: none */
    double lo, hi; /* seconds; hi > lo > 0 */
    int bin[LATENCY_BINS];
    double p50, p95, p99, max; /* NAN where n does not support it */
};

/* Requests of one workload under one config. */
struct load_line {
    char workload[64], config[160];
    int sequences;
    int64_t requests;
    struct latency ttft, itl;
    double prefill_tok_s, decode_tok_s; /* of all of them together */
};

struct measured_load {
    int lines;                         /* -1: not read yet */
    struct load_line line[LOAD_LINES]; /* the newest first */
    char error[200];
};

/* Where the most is lost; false: nothing is known. And what it is called: "ffn_down of layer 3". Returns buf.
 */
bool sensitivity_most(const struct sensitivity_map *m, int *row, int *column);
const char *sensitivity_name(const struct sensitivity_map *m, int row, int column, char *buf, size_t size);

/* From values in any order: what is no positive number is left out, the others are sorted to the front. */
void latency_of(struct latency *l, float *seconds, int n);

#endif
