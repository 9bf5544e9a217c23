/* advisor/experiment/quality_context.h - at which context length, and on how much text, quality is measured.
 *
 * The default is the length that the workload has: its depth, prompt and answer together. A question at 8k
 * context is answered at 8k, because a coarse KV cache loses more the longer it is. */
#ifndef QDYNO_ADVISOR_QUALITY_CONTEXT_H
#define QDYNO_ADVISOR_QUALITY_CONTEXT_H

#include "engine/config/config.h"

struct experiment_spec;

/* Where nothing else is asked for: so many windows of so many tokens. */
enum { QUALITY_CHUNKS = 64, QUALITY_CTX = 512 };
/* Windows that are measured also where the budget is too short for them: with fewer, the interval of the loss
 * is too wide to compare it with a limit. */
enum { QUALITY_LEAST = 8, QUALITY_LEAST_LONG = 4 /* of windows longer than QUALITY_CTX */ };

/* How long windows are, and why. */
struct quality_context {
    int wanted;            /* tokens of the workload; 0: it has no length of its own */
    int ctx;               /* tokens of a window */
    int64_t text, trained; /* tokens of the text; those that the model was trained with. 0: not needed */
};

/* Chooses ctx for a workload and a text (a file): at least `least`, no more than text and model have. Reads
 * both only for a workload longer than `least`; where they cannot be read, ctx is `least`, because measuring
 * says why. */
void quality_context_choose(struct quality_context *out, const struct workload *w, const char *model_path,
                            const char *text_file, int least);

/* The number of windows that costs as much as `windows` of `usual` tokens; at least `fewest`. */
int quality_context_windows(int ctx, int windows, int usual, int fewest);

/* The number of windows that costs as much as QUALITY_CHUNKS of QUALITY_CTX tokens, but a few in any case. */
int quality_context_default_windows(int ctx);

/* Sets quality_ctx of a specification that has a quality_file, and quality_chunks unless own_chunks.
 * Windows that are longer than QUALITY_CTX may be shortened to it to keep the budget (quality_ctx_least). */
void experiment_quality_follow(struct quality_context *out, struct experiment_spec *s, bool own_chunks);

/* "quality is measured in windows of 512 tokens and not at the workload's 8256: the text has 900 tokens, and
 * the model was trained on contexts of 32768"; "": at the workload's length, or the workload is no longer
 * than a window. Returns buf. */
enum { QUALITY_CONTEXT_TEXT = 200 };
const char *quality_context_text(char buf[QUALITY_CONTEXT_TEXT], const struct quality_context *c);

#endif
