#include "engine/import/hf_unigram.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

void unigram_model_free(struct unigram_model *u)
{
    json_decref(u->vocab);
    free(u->scores);
    *u = (struct unigram_model){ 0 };
}

static enum err_code read_piece(struct unigram_model *u, const json_t *piece, int64_t id, struct err *why)
{
    const char *text = json_string_value(json_array_get(piece, 0));
    const json_t *score = json_array_get(piece, 1);
    if (!text || !json_is_number(score) || !isfinite(json_number_value(score)))
        return err_set(why, ERR_FORMAT, "tokenizer.json: piece %" PRId64 " is no text with a score", id);
    if (json_object_get(u->vocab, text))
        return err_set(why, ERR_FORMAT, "tokenizer.json: pieces %" PRId64 " and %lld have the same text", id,
                       (long long)json_integer_value(json_object_get(u->vocab, text)));
    u->scores[id] = json_number_value(score);
    return json_object_set_new(u->vocab, text, json_integer(id))
               ? err_set(why, ERR_NOMEM, "out of memory for tokens")
               : ERR_OK;
}

enum err_code unigram_model_read(struct unigram_model *out, const json_t *model, struct err *why)
{
    const json_t *vocab = json_object_get(model, "vocab"), *unknown = json_object_get(model, "unk_id");
    const size_t n = json_array_size(vocab);
    *out = (struct unigram_model){ .vocab = json_object(), .scores = calloc(n + 1, sizeof *out->scores) };
    if (!out->vocab || !out->scores) return err_set(why, ERR_NOMEM, "out of memory for %zu tokens", n);
    if (!n) return err_set(why, ERR_FORMAT, "tokenizer.json: the model has no vocabulary");
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        json_integer_value(unknown) >= (json_int_t)n)
        return err_set(why, ERR_FORMAT, "tokenizer.json: Unigram: expected unk_id, 0 to %zu", n - 1);
    out->n = (int64_t)n;
    enum err_code rc = ERR_OK;
    for (size_t i = 0; !rc && i < n; i++) rc = read_piece(out, json_array_get(vocab, i), (int64_t)i, why);
    out->unknown = json_string_value(
        json_array_get(json_array_get(vocab, (size_t)json_integer_value(unknown)), 0));
    return rc;
}
