/* engine/eval/greedy_divergence.h - compares how long two models generate the same greedy text. Internal to
 * engine/eval/. */
#ifndef QDYNO_ENGINE_EVAL_GREEDY_DIVERGENCE_H
#define QDYNO_ENGINE_EVAL_GREEDY_DIVERGENCE_H

#include "engine/eval/windows.h"

/* Prompts are the first halves of r->greedy_prompts windows (or of all, if fewer), spread evenly over the
 * text. Both KV caches are emptied. Errors: ERR_CANCELLED; ERR_FORMAT when logits are not finite; those of
 * model_forward. */
enum err_code eval_greedy_divergence(struct greedy_divergence *out, struct model *reference,
                                     struct model *candidate, struct windows *w, const struct eval_request *r,
                                     struct err *why);

#endif
