/* engine/import/hf_unigram.h - the vocabulary of a Unigram model of tokenizer.json. */
#ifndef QDYNO_ENGINE_IMPORT_HF_UNIGRAM_H
#define QDYNO_ENGINE_IMPORT_HF_UNIGRAM_H

#include "base/base.h"

struct unigram_model {
    json_t *vocab;  /* owned: {text: id}, as BPE models have it */
    double *scores; /* [n] owned: logarithms of probabilities, by id */
    int64_t n;
    const char *unknown; /* text of the "unknown" token; borrowed */
};

/* Read `model` (its "type" is Unigram). ERR_FORMAT: no list of texts with scores, two equal texts, no unk_id.
 * ERR_NOMEM. *out: unigram_model_free, also after an error. */
enum err_code unigram_model_read(struct unigram_model *out, const json_t *model, struct err *why);
void unigram_model_free(struct unigram_model *u);

#endif
