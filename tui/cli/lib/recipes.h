/* tui/cli/lib/recipes.h - what the commands that make recipes share: how a plan is told, and progress with a
 * rate.
 */
#ifndef QDYNO_CLI_RECIPES_H
#define QDYNO_CLI_RECIPES_H

#include "engine/quant/quant.h"
#include "tui/cli/lib/lib.h"

/* One row a tensor: `qdyno quantize --tensors`. Some columns are filled by whoever knows more than a plan. */
extern const struct column RECIPE_TENSOR_COLUMNS[];
extern const size_t RECIPE_TENSOR_COLUMN_COUNT;
void recipe_put_tensor(json_t *row, const struct tensor_plan *t);

/* Sums over the plan: weights, bytes, bits_per_weight, bits_quantized, formats, tensors_*, and once measured
 * nmse, nmse_worst, worst_tensor. */
void recipe_put_plan(json_t *row, const struct quantize_plan *p);
/* "u4_g64 x 35, f32 x 11", most bytes first, appended. */
void recipe_formats(const struct quantize_plan *p, struct str *out);
/* Under the table, and in its JSON as "left_out": tensors the recipe did not reach, by reason. */
void recipe_note_left_out(struct table *t, const struct quantize_plan *p);

/* A progress line with rate and time left; done runs 0..1 over `weights`. */
struct pace {
    struct progress *progress;
    const struct cli_global *global;
    const char *what;     /* "gptq:u4_g128" */
    const char *at_first; /* what goes on while done is 0: "calibrating" */
    int64_t weights, last_ns;
    double last_done, rate; /* done a second, lately; 0: not known yet */
    double done;            /* the last that was told */
};
bool pace_tell(void *pace, double done); /* false: Ctrl-C */

#endif
