/* tui/cli/lib/recipes.h - what commands that quantize share: columns and notes about a quantization plan, and
 * progress with a rate. */
#ifndef QDYNO_CLI_RECIPES_H
#define QDYNO_CLI_RECIPES_H

#include "engine/quant/quant.h"
#include "tui/cli/lib/lib.h"

/* Columns of `quantize --tensors` and `methods --tensors`: one row for each tensor. "config" is filled by the
 * caller. */
enum { RECIPE_TENSOR_COLUMN_COUNT = 12 };
extern const struct column RECIPE_TENSOR_COLUMNS[RECIPE_TENSOR_COLUMN_COUNT];
void recipe_put_tensor(json_t *row, const struct tensor_plan *t);

/* Sums over the plan: weights, bytes, bits_per_weight, bits_quantized, formats, tensors_*, and after the
 * measurement nmse, nmse_worst and worst_tensor. */
void recipe_put_plan(json_t *row, const struct quantize_plan *p);

/* Appends "u4_g64 x 35, f32 x 11", the format with most bytes first. */
void recipe_formats(const struct quantize_plan *p, struct str *out);

/* Lists the tensors that were not quantized, by reason: as notes below the table and as "left_out" in the
 * JSON document. */
void recipe_note_left_out(struct table *t, const struct quantize_plan *p);

/* Notes how NMSE is computed where scales were moved between matrices (SmoothQuant, AWQ). */
void recipe_note_rescaled(struct table *t);

/* State of a progress line with rate and remaining time. The caller sets the first four fields. */
struct recipe_progress {
    struct progress *progress;
    const struct cli_global *global;
    const char *what;     /* "gptq:u4_g128" */
    const char *at_first; /* shown while done is 0, e.g. "calibrating"; may be NULL */
    int64_t weights, last_ns;
    double last_done, rate; /* exponential mean of the growth of done per second; 0: unknown */
    double done;            /* the last value reported */
};

/* A progress callback: arg is a struct recipe_progress, done runs from 0 to 1 over its weights. Returns false
 * after Ctrl-C. */
bool recipe_progress_show(void *arg, double done);
/* The callback `waiting` of struct quantize_options, with the same arg. */
bool recipe_progress_wait(void *arg);

#endif
