/* Stores the reference's logits of the first windows of a text. */
#include "engine/eval/logit_cache.h"

#include <stdlib.h>
#include <string.h>

static const int64_t KEPT_BYTES = INT64_C(256) << 20; /* limit of the cache */

void logit_cache_done(struct logit_cache *r)
{
    for (int64_t i = 0; i < r->windows; i++) free(r->window[i]);
    free(r->window);
    *r = (struct logit_cache){ 0 };
}

void logit_cache_begin(struct logit_cache_pass *r, struct logit_cache *all, const struct windows *w,
                       int64_t vocab)
{
    *r = (struct logit_cache_pass){ .all = all, .vocab = vocab, .scored = windows_scored(w->ctx) };
    if (!all) return;
    char ids[HASH_HEX];
    hash_bytes(w->ids.ids, (size_t)w->ids.n * sizeof *w->ids.ids, ids);
    if (!strcmp(all->ids, ids) && all->ctx == w->ctx && all->vocab == vocab) return;
    logit_cache_done(all);
    *all = (struct logit_cache){ .ctx = w->ctx, .vocab = vocab };
    memcpy(all->ids, ids, sizeof ids);
}

/* Memory for one more window. NULL when the cache is full: the reference then computes the window again. */
static float *cache_new_window(struct logit_cache_pass *r, int64_t window)
{
    const int64_t bytes = r->scored * r->vocab * (int64_t)sizeof(float);
    if (window != r->all->windows || (window + 1) * bytes > KEPT_BYTES) return NULL;
    float **grown = realloc(r->all->window, (size_t)(window + 1) * sizeof *grown);
    if (!grown) return NULL;
    r->all->window = grown;
    return malloc((size_t)bytes);
}

void logit_cache_open_window(struct logit_cache_pass *r, int64_t window)
{
    r->window = window;
    r->known = r->all && window < r->all->windows;
    if (r->all && !r->known) r->fresh = cache_new_window(r, window);
}

const float *logit_cache_get(const struct logit_cache_pass *r, int i)
{
    return r->all->window[r->window] + i * r->vocab;
}

void logit_cache_put(struct logit_cache_pass *r, int i, const float *logits)
{
    if (r->fresh) memcpy(r->fresh + i * r->vocab, logits, (size_t)r->vocab * sizeof *logits);
}

void logit_cache_close_window(struct logit_cache_pass *r, int done)
{
    if (!r->fresh || done != r->scored) return;
    r->all->window[r->all->windows++] = r->fresh;
    r->fresh = NULL;
}

void logit_cache_end(struct logit_cache_pass *r)
{
    free(r->fresh);
    r->fresh = NULL;
}
