/* recall.c - see recall.h. */
#include "engine/eval/recall.h"

#include <stdlib.h>
#include <string.h>

static const int64_t KEPT_BYTES = INT64_C(256) << 20; /* at most */

void eval_recall_done(struct eval_recall *r)
{
    for (int64_t i = 0; i < r->windows; i++) free(r->window[i]);
    free(r->window);
    *r = (struct eval_recall){ 0 };
}

void recall_begin(struct recalling *r, struct eval_recall *all, const struct windows *w, int64_t vocab)
{
    *r = (struct recalling){ .all = all, .vocab = vocab, .scored = windows_scored(w->ctx) };
    if (!all) return;
    const uint64_t ids = hash_number(w->ids.ids, (size_t)w->ids.n * sizeof *w->ids.ids);
    if (all->ids == ids && all->ctx == w->ctx && all->vocab == vocab) return;
    eval_recall_done(all);
    *all = (struct eval_recall){ .ids = ids, .ctx = w->ctx, .vocab = vocab };
}

/* Room for one more of them; NULL: there is none, which costs time and nothing else. */
static float *fresh_window(struct recalling *r, int64_t window)
{
    const int64_t bytes = r->scored * r->vocab * (int64_t)sizeof(float);
    if (window != r->all->windows || (window + 1) * bytes > KEPT_BYTES) return NULL;
    float **grown = realloc(r->all->window, (size_t)(window + 1) * sizeof *grown);
    if (!grown) return NULL;
    r->all->window = grown;
    return malloc((size_t)bytes);
}

void recall_open(struct recalling *r, int64_t window)
{
    r->window = window;
    r->known = r->all && window < r->all->windows;
    if (r->all && !r->known) r->fresh = fresh_window(r, window);
}

const float *recall_said(const struct recalling *r, int i)
{
    return r->all->window[r->window] + i * r->vocab;
}

void recall_keep(struct recalling *r, int i, const float *logits)
{
    if (r->fresh) memcpy(r->fresh + i * r->vocab, logits, (size_t)r->vocab * sizeof *logits);
}

void recall_close(struct recalling *r, int done)
{
    if (!r->fresh || done != r->scored) return;
    r->all->window[r->all->windows++] = r->fresh;
    r->fresh = NULL;
}

void recall_end(struct recalling *r)
{
    free(r->fresh);
    r->fresh = NULL;
}
