/* engine/import/hf_steps.h - post_processor and decoder of tokenizer.json: what they do must be what our
 * tokenizer does. */
#ifndef QDYNO_ENGINE_IMPORT_HF_STEPS_H
#define QDYNO_ENGINE_IMPORT_HF_STEPS_H

#include "engine/import/word_cutter.h"

/* The tokens that are put before and after a text; -1: none. */
struct hf_frame {
    int64_t before, after;
};
/* ERR_FORMAT: another post-processor, more than one token at an end, or an id outside n tokens. */
enum err_code hf_frame_read(struct hf_frame *out, const json_t *post_processor, int64_t n, struct err *why);

/* Set w->strip_space. ERR_FORMAT: ids would become another text than ours; the message names the step. */
enum err_code hf_decoder_check(const json_t *decoder, struct word_cutter *w, struct err *why);

#endif
