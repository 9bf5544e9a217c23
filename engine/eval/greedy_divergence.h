/* engine/eval/greedy_divergence.h - how long two models say the same when each always takes its most likely
 * token. */
#ifndef QDYNO_ENGINE_EVAL_GREEDY_H
#define QDYNO_ENGINE_EVAL_GREEDY_H

#include "engine/eval/windows.h"

/* Prompts are the first halves of r->greedy_prompts windows (fewer if there are fewer), spread evenly. Both
 * caches are emptied. Errors: ERR_CANCELLED; ERR_FORMAT when a model's logits are not numbers; those of
 * model_forward.
 */
enum err_code eval_greedy_divergence(struct greedy_divergence *out, struct model *reference,
                                     struct model *candidate, struct windows *w, const struct eval_request *r,
                                     struct err *why);

#endif
