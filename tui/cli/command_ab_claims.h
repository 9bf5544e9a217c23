/* tui/cli/command_ab_claims.h - the part of `ab` about quality measurements and gates (conditions that
 * decide the exit status). */
#ifndef QDYNO_CLI_AB_CLAIMS_H
#define QDYNO_CLI_AB_CLAIMS_H

#include "tui/cli/lib/gates.h"
#include "tui/cli/lib/lib.h"

/* Rows of FLAGS_AB. */
/* clang-format off */
#define AB_CLAIM_FLAGS                                                                                       \
    { .name = "--quality", .value = "FILE", .optional = true,                                                \
      .help = "measure the KL divergence of each challenger from A on this text; default: the model's text "  \
              "(`eval --set-text`)" },                                                                        \
    { .name = "--quality-ctx", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,                     \
      .help = "tokens per window of that text; default: as the workload (depth, prompt and answer), at least 512" },                                              \
    { .name = "--quality-chunks", .value = "N", .kind = FLAG_INT, .max = 1 << 24,                            \
      .help = "number of windows at most; 0: all; default 64, fewer of longer windows or to keep the budget (8 at least)" },                                                  \
    { .name = "--kld-margin", .value = "NATS", .kind = FLAG_NUM, .min = 1e-9, .max = 1e3,                    \
      .help = "largest mean KL divergence that counts as no loss; default 0.02" },                             \
    FLAG_GATE_ROW("decode_tok_s >= 0.98*A and kld_mean < 0.02")
/* clang-format on */

/* Sets the fields of the spec that these flags give. ERR_USAGE: a gate with a syntax error, whose position is
 * in the message. ERR_IO: a text that cannot be read. */
enum err_code ab_claims_spec(struct experiment_spec *s, const struct cli_global *g, const struct cli_args *a,
                             struct err *why);

/* Columns of an arm's row, and the function that fills them. */
/* clang-format off */
#define AB_CLAIM_COLUMNS                                                                                     \
    METRIC_COLUMN(METRIC_KLD),                           \
    { .name = "kld_lower", .kind = COLUMN_NUM },                                                             \
    { .name = "kld_upper", .kind = COLUMN_NUM },                                                             \
    { .name = "top1_ratio", .title = "same top-1 %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },        \
    { .name = "ppl_ratio", .title = "perplexity ratio", .kind = COLUMN_NUM, .digits = 5 },                   \
    { .name = "gate", .title = "gate" },                                                                     \
    { .name = "joint" }
/* clang-format on */
void ab_claims_row(json_t *row, const struct experiment_state *s, int arm);

/* Lines under the table: quality, joint verdict, gate. */
void ab_claims_note(struct table *t, const struct experiment_state *s);

/* The outcome of the gate: "pass"; NULL: there is no gate, or the run failed. */
const char *ab_claims_outcome(const struct experiment_state *s);

/* The exit status: the outcome of the gate if there is one and the run did not fail, else `status`. */
int ab_claims_status(const struct experiment_state *s, int status);

#endif
