/* tui/cli/command_ab_claims.h - the part of `ab` that asks for quality, sets conditions, and says what came
 * of them.
 */
#ifndef QDYNO_CLI_AB_CLAIMS_H
#define QDYNO_CLI_AB_CLAIMS_H

#include "tui/cli/lib/lib.h"

/* Rows of FLAGS_AB. */
#define AB_CLAIM_FLAGS                                                                                        \
    { "--quality",                                                                                            \
      NULL,                                                                                                   \
      "FILE",                                                                                                 \
      "measure what each challenger's predictions lose against A's; on this text, "                           \
      "default the bundled one",                                                                              \
      FLAG_TEXT,                                                                                              \
      .optional = true },                                                                                     \
        { "--quality-ctx", NULL, "N", "tokens of a window of that text; default 512", FLAG_INT, 8, 1 << 24 }, \
        { "--quality-chunks", NULL, "N", "windows of it at most, 0 all; default 64", FLAG_INT, 0, 1 << 24 },  \
        { "--kld-margin", NULL, "NATS", "mean KL divergence that still counts as no loss; default 0.02",      \
          FLAG_NUM,       1e-9, 1e3 },                                                                        \
    {                                                                                                         \
        "--gate", NULL, "EXPR",                                                                               \
            "condition that decides the exit status, e.g. 'decode_tok_s >= 0.98*A and kld_mean < 0.02'",      \
            FLAG_TEXT, .many = true                                                                           \
    }

/* Fields of the spec from these flags; what is not given stays. ERR_USAGE: a gate that cannot be read (says
 * where), a file that is not there. */
enum err_code ab_claims_spec(struct experiment_spec *s, const struct cli_args *a, struct err *why);

/* Columns of an arm's row: AB_CLAIM_COLUMNS. */
#define AB_CLAIM_COLUMNS                                                                                     \
    { "kld_mean", "KLD, nats", COLUMN_NUM, 1, 6 }, { "kld_lower", NULL, COLUMN_NUM },                        \
        { "kld_upper", NULL, COLUMN_NUM }, { "top1_ratio", "same top-1 %", COLUMN_NUM, 100, 2 },             \
        { "ppl_ratio", "perplexity ratio", COLUMN_NUM, 1, 5 }, { "gate", "gate", COLUMN_TEXT },              \
    {                                                                                                        \
        "joint", NULL, COLUMN_TEXT                                                                           \
    }
void ab_claims_row(json_t *row, const struct experiment_state *s, int arm);

/* Lines under the table: quality, joint verdict, gate. */
void ab_claims_note(struct table *t, const struct experiment_state *s);

/* The gate's outcome where there is one; `status` stays where the run itself failed. */
int ab_claims_status(const struct experiment_state *s, int status);

#endif
