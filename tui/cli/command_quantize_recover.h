/* tui/cli/command_quantize_recover.h - `quantize --recover`: what is asked, the texts, and the proof that it
 * helped. */
#ifndef QDYNO_CLI_RECOVER_H
#define QDYNO_CLI_RECOVER_H

#include "engine/eval/eval.h"
#include "engine/train/train.h"
#include "tui/cli/lib/lib.h"

struct recovering {
    struct recover_options o;
    struct recover_report report;
    struct divergence before, after; /* from the original's predictions, on text that was not learned from */
    int64_t held_out_tokens;         /* scored */
    bool stories;                    /* learned from stories of ours, not from a text that was named */
};

/* "steps=N[,rate=X][,batch=N][,ctx=N][,only=norms][,amp=off]". ERR_USAGE: says what is wanted. */
enum err_code recover_read(struct recovering *r, const char *text, struct err *why);

/* Write `path` from the file `quantized` of the open original. calib: a text, of which the last fifth is only
 * measured on; "": stories. ERR_FORMAT when the result is no better than what it was made of: then there is
 * no file at `path`, as after any other error (recover_file). */
struct recover_job {
    const struct cli_global *g;
    const struct gguf *original;
    const char *quantized, *path, *calib;
    int threads;
};
enum err_code recover_run(struct recovering *r, const struct recover_job *j, struct err *why);

/* As columns of the result: recover_*, kld_before, kld_after ... */
/* clang-format off */
#define RECOVER_COLUMNS                                                                                      \
    { .name = "recover_steps", .title = "recovered in steps", .kind = COLUMN_INT },                          \
    { .name = "recover_rate", .title = "learning rate", .kind = COLUMN_NUM, .digits = 6 },                   \
    { .name = "recover_tokens", .title = "tokens read", .kind = COLUMN_INT },                                \
    { .name = "recover_seconds", .title = "seconds of recovery", .kind = COLUMN_NUM, .digits = 1 },          \
    { .name = "recover_bytes", .title = "memory for it", .kind = COLUMN_BYTES },                             \
    { .name = "kld_before", .title = "KLD before, nats", .kind = COLUMN_NUM, .digits = 6 },                  \
    { .name = "kld_before_se", .title = "+-", .kind = COLUMN_NUM, .digits = 6 },                             \
    { .name = "kld_after", .title = "KLD after, nats", .kind = COLUMN_NUM, .digits = 6 },                    \
    { .name = "kld_after_se", .title = "+-", .kind = COLUMN_NUM, .digits = 6 },                              \
    { .name = "top1_before", .title = "same top-1 before %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },\
    { .name = "top1_after", .title = "same top-1 after %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },  \
    { .name = "ppl_ratio_before", .title = "perplexity ratio before", .kind = COLUMN_NUM, .digits = 5 },     \
    { .name = "ppl_ratio_after", .title = "perplexity ratio after", .kind = COLUMN_NUM, .digits = 5 },       \
    { .name = "held_out_tokens", .title = "measured on tokens", .kind = COLUMN_INT }
/* clang-format on */
void recover_put(const struct recovering *r, json_t *row);

#endif
