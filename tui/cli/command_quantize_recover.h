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
#define RECOVER_COLUMNS                                                                                      \
    { "recover_steps", "recovered in steps", COLUMN_INT },                                                   \
        { "recover_rate", "learning rate", COLUMN_NUM, 1, 6 },                                               \
        { "recover_tokens", "tokens read", COLUMN_INT },                                                     \
        { "recover_seconds", "seconds of recovery", COLUMN_NUM, 1, 1 },                                      \
        { "recover_bytes", "memory for it", COLUMN_BYTES },                                                  \
        { "kld_before", "KLD before, nats", COLUMN_NUM, 1, 6 }, { "kld_before_se", "+-", COLUMN_NUM, 1, 6 }, \
        { "kld_after", "KLD after, nats", COLUMN_NUM, 1, 6 }, { "kld_after_se", "+-", COLUMN_NUM, 1, 6 },    \
        { "top1_before", "same top-1 before %", COLUMN_NUM, 100, 2 },                                        \
        { "top1_after", "same top-1 after %", COLUMN_NUM, 100, 2 },                                          \
        { "ppl_ratio_before", "perplexity ratio before", COLUMN_NUM, 1, 5 },                                 \
        { "ppl_ratio_after", "perplexity ratio after", COLUMN_NUM, 1, 5 },                                   \
    {                                                                                                        \
        "held_out_tokens", "measured on tokens", COLUMN_INT                                                  \
    }
void recover_put(const struct recovering *r, json_t *row);

#endif
