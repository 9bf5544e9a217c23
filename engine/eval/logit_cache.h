/* engine/eval/logit_cache.h - uses a logit cache during one pass over a text. Internal to engine/eval/. */
#ifndef QDYNO_ENGINE_EVAL_LOGIT_CACHE_H
#define QDYNO_ENGINE_EVAL_LOGIT_CACHE_H

#include "engine/eval/windows.h"

/* One pass over a text. */
struct logit_cache_pass {
    struct logit_cache *all; /* the cache; NULL: none; borrowed */
    int64_t vocab, window;
    int scored;
    bool known;   /* the current window is cached, so the reference can skip it */
    float *fresh; /* [scored][vocab]: the current window, being added; NULL: it is not; owned until closed */
};

/* Start a pass; clears the cache if it holds another text, window size or vocabulary. */
void logit_cache_begin(struct logit_cache_pass *r, struct logit_cache *all, const struct windows *w,
                       int64_t vocab);
void logit_cache_open_window(struct logit_cache_pass *r, int64_t window);
/* Logits [vocab] of the i-th scored position of a known window. Borrowed. */
const float *logit_cache_get(const struct logit_cache_pass *r, int i);
/* Store the logits [vocab] of the i-th scored position, if this window is being added. */
void logit_cache_put(struct logit_cache_pass *r, int i, const float *logits);
/* Finish a window of which `done` positions were scored; only complete windows enter the cache. */
void logit_cache_close_window(struct logit_cache_pass *r, int done);
void logit_cache_end(struct logit_cache_pass *r); /* call also after an error */

#endif
