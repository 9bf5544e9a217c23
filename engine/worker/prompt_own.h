/* engine/worker/prompt_own.h - the prompts of workloads that name a file of the user's own. Internal. */
#ifndef QDYNO_ENGINE_WORKER_PROMPT_OWN_H
#define QDYNO_ENGINE_WORKER_PROMPT_OWN_H

#include "engine/worker/worker.h"

struct load_text;

void prompt_own_close(struct prompt_own *o); /* NULL is fine */
/* prompt_source_fill and prompt_source_load for such a workload; they fill s->facts, too. */
enum err_code prompt_own_fill(int32_t *ids, struct prompt_source *s, const struct workload *w, uint64_t seed,
                              struct err *why);
enum err_code prompt_own_load(struct load_text *out, struct prompt_source *s, const struct workload *w,
                              uint64_t seed, struct err *why);

#endif
