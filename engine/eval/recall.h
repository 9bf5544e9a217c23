/* engine/eval/recall.h - what a reference said of a window, kept so that it need not read it again. */
#ifndef QDYNO_ENGINE_EVAL_RECALL_H
#define QDYNO_ENGINE_EVAL_RECALL_H

#include "engine/eval/windows.h"

/* One pass over a text. */
struct recalling {
    struct eval_recall *all; /* NULL: nothing is kept; borrowed */
    int64_t vocab, window;
    int scored;
    bool known;   /* this window's logits are there: the reference need not read it */
    float *fresh; /* [scored][vocab] of this window, being kept; NULL: it is not; owned until recall_close */
};

/* Forgets what was kept of other ids, windows or vocabularies. */
void recall_begin(struct recalling *r, struct eval_recall *all, const struct windows *w, int64_t vocab);
void recall_open(struct recalling *r, int64_t window);
/* Logits of the window's i-th scored position: [vocab], borrowed. */
const float *recall_said(const struct recalling *r, int i);
void recall_keep(struct recalling *r, int i, const float *logits);
/* `done` positions were kept: a window is known when it is whole. */
void recall_close(struct recalling *r, int done);
void recall_end(struct recalling *r); /* also after an error in the middle of a window */

#endif
