/* tui/cli/command_quantize_recover.h - `quantize --recover`: its options, its texts, and the measurement of
 * its gain. */
#ifndef QDYNO_CLI_RECOVER_H
#define QDYNO_CLI_RECOVER_H

#include "engine/eval/eval.h"
#include "engine/train/train.h"
#include "tui/cli/lib/lib.h"

struct recovering {
    struct recover_options o;
    struct recover_report report;
    struct divergence before, after; /* from the predictions of the original, on text not trained on */
    int64_t held_out_tokens;         /* positions scored */
    bool stories;                    /* trained on generated stories; false: on a text */
};

/* Parses "steps=N[,rate=X][,batch=N][,ctx=N][,only=norms][,amp=off]". Errors: ERR_USAGE. */
enum err_code recover_read(struct recovering *r, const char *text, struct err *why);

/* Trains the file `quantized` to predict what `original` predicts, and writes the result to `path`. calib: a
 * text, whose last fifth is used only for measuring; "": generated stories. ERR_FORMAT if the result is no
 * better than `quantized`. After any error there is no file at `path`. */
struct recover_job {
    const struct cli_global *g;
    const struct gguf *original;
    const char *quantized, *path, *calib;
    int threads;
};
enum err_code recover_run(struct recovering *r, const struct recover_job *j, struct err *why);

/* Columns of the result, and the function that fills them. */
/* clang-format off */
#define RECOVER_COLUMNS                                                                                      \
    { .name = "recover_steps", .title = "recovery steps", .kind = COLUMN_INT },                          \
    { .name = "recover_rate", .title = "learning rate", .kind = COLUMN_NUM, .digits = 6 },                   \
    { .name = "recover_tokens", .title = "tokens trained on", .kind = COLUMN_INT },                                \
    { .name = "recover_seconds", .title = "seconds of recovery", .kind = COLUMN_NUM, .digits = 1 },          \
    { .name = "recover_bytes", .title = "memory of recovery", .kind = COLUMN_BYTES },                             \
    { .name = "kld_before", .title = "KLD before, nats", .kind = COLUMN_NUM, .digits = 6 },                  \
    { .name = "kld_before_se", .title = "+-", .kind = COLUMN_NUM, .digits = 6 },                             \
    { .name = "kld_after", .title = "KLD after, nats", .kind = COLUMN_NUM, .digits = 6 },                    \
    { .name = "kld_after_se", .title = "+-", .kind = COLUMN_NUM, .digits = 6 },                              \
    { .name = "top1_before", .title = "same top-1 before %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },\
    { .name = "top1_after", .title = "same top-1 after %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },  \
    { .name = "ppl_ratio_before", .title = "perplexity ratio before", .kind = COLUMN_NUM, .digits = 5 },     \
    { .name = "ppl_ratio_after", .title = "perplexity ratio after", .kind = COLUMN_NUM, .digits = 5 },       \
    { .name = "held_out_tokens", .title = "positions measured", .kind = COLUMN_INT }
/* clang-format on */
void recover_put(const struct recovering *r, json_t *row);

#endif
