/* engine/workload.h - what is asked of a config, as text: "pp512", "tg128", "pp512+tg128@d4096", "tg64@b16",
 * "eval:FILE", "train20". */
#ifndef QDYNO_ENGINE_WORKLOAD_H
#define QDYNO_ENGINE_WORKLOAD_H

#include "engine/config.h"

struct model;

struct workload {
    int prompt;          /* tokens of prefill that are timed, 0: none */
    int gen;             /* tokens of decode that are timed, 0: none */
    int depth;           /* tokens already in the cache before timing starts */
    int sequences;       /* that run side by side, all of the above in each; 0 and 1: one */
    char eval_file[512]; /* "" unless eval: */
    int eval_ctx;        /* -c of eval, 512 */
    int train;           /* steps of training from nothing (engine/train/trial.h), 0: a model runs */
};
/* Errors: ERR_USAGE with the grammar. */
enum err_code workload_parse(struct workload *w, const char *text, struct err *why);
/* Does everything this config says mean something to this workload? ERR_USAGE: names what does not. */
enum err_code workload_check(const struct workload *w, const struct config *c, struct err *why);
const char *workload_line(const struct workload *w, char *buf, size_t size);
int workload_ctx(const struct workload *w);       /* tokens of context each sequence needs */
int workload_sequences(const struct workload *w); /* >= 1 */

/* One timed run. Work is fixed by workload and seed: prompt ids come from the bundled text through the
 * model's tokenizer (seeded ids where it has none), for each sequence from another place of it, and decoding
 * is greedy on what the model itself says, end-of-text ignored. Sequences have a cache of their own, share
 * the batches of prefill, and decode in step: one row of each in every batch. */
struct cell_span {
    const char *name;       /* "fill" (the cache, before the clock starts) "prefill" "decode" "eval" */
    int64_t from_ns, to_ns; /* clock_ns */
};
struct cell_result {
    double prefill_s, decode_s; /* NAN when that phase is absent */
    double ttft_s;              /* until every sequence has its first token; NAN without prefill */
    double load_s;
    int prompt_tokens, gen_tokens;  /* of all sequences together */
    int steps;                      /* of decoding: each made one token in every sequence */
    float *itl_s;                   /* [steps] inter-token latencies; owned: cell_result_free */
    double perplexity, nll, nll_se; /* eval only, else NAN */
    int64_t scored_tokens;
    struct cell_span spans[3]; /* when its phases ran, pauses for listeners included */
    int n_spans;
    char work_hash[17];   /* of prompt ids, depth, lengths: equal hashes = same work asked */
    char output_hash[17]; /* of generated ids: equal = same answer */
};
void cell_result_free(struct cell_result *r);

/* progress(ctx, phase, tokens so far, of, seconds in phase): at most every 100 ms; returning false cancels
 * (ERR_CANCELLED). May be NULL. */
typedef bool cell_progress_fn(void *ctx, const char *phase, int done, int of, double seconds);
enum err_code cell_run(struct cell_result *out, struct model *m, const struct workload *w, uint64_t seed,
                       cell_progress_fn *progress, void *ctx, struct err *why);

#endif
