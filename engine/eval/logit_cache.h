/* engine/eval/logit_cache.h - what a reference said of a window, kept so that it need not read it again. */
#ifndef QDYNO_ENGINE_EVAL_RECALL_H
#define QDYNO_ENGINE_EVAL_RECALL_H

#include "engine/eval/windows.h"

/* One pass over a text. */
struct logit_cache_pass {
    struct logit_cache *all; /* NULL: nothing is kept; borrowed */
    int64_t vocab, window;
    int scored;
    bool known;   /* this window's logits are there: the reference need not read it */
    float *fresh; /* [scored][vocab] of this window, being kept; NULL: it is not; owned until
                     logit_cache_close_window */
};

/* Forgets what was kept of other ids, windows or vocabularies. */
void logit_cache_begin(struct logit_cache_pass *r, struct logit_cache *all, const struct windows *w,
                       int64_t vocab);
void logit_cache_open_window(struct logit_cache_pass *r, int64_t window);
/* Logits of the window's i-th scored position: [vocab], borrowed. */
const float *logit_cache_get(const struct logit_cache_pass *r, int i);
void logit_cache_put(struct logit_cache_pass *r, int i, const float *logits);
/* `done` positions were kept: a window is known when it is whole. */
void logit_cache_close_window(struct logit_cache_pass *r, int done);
void logit_cache_end(struct logit_cache_pass *r); /* also after an error in the middle of a window */

#endif
