/* engine/occupancy.h - how full a session is right now: blocks of the KV cache, rows of the last batch.
 * Internal to engine/; outsiders see it in a worker's progress events (worker.h). */
#ifndef QDYNO_ENGINE_OCCUPANCY_H
#define QDYNO_ENGINE_OCCUPANCY_H

#include "base/base.h"

struct model;

enum { OCCUPANCY_MAP = 1024 };

/* {"blocks","used","block_tokens": of the cache; "rows","batch": of the last forward pass, and the most one
 * may have; "step": blocks that a character of "map" stands for; "map": at most OCCUPANCY_MAP characters, one
 * for `step` blocks of memory in their order: '.' all of them free, else whose the first one in use is: 0-9
 * a-z for sequences 0 to 35, '+' for later ones}. New reference. Takes some microseconds. */
json_t *occupancy_to_json(const struct model *m);

#endif
