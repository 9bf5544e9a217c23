/* Text to ids and back. Special tokens are cut out of the raw text first; SPM, BPE or Unigram encodes the
 * text between them, and BOS and EOS are added as the model's metadata asks. */
#include "engine/text/text_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

struct tokenizer {
    struct arena memory;
    struct vocab vocab;
    struct bpe *bpe; /* NULL: SPM */
};

/* ---------------------------------------------------------------- open, close */

enum err_code tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *why)
{
    struct gguf_string model = gguf_get_string(g, "tokenizer.ggml.model");
    bool spm = gguf_string_is(model, "llama"), bpe = gguf_string_is(model, "gpt2") ||
                                                     gguf_string_is(model, "gemma4") ||
                                                     gguf_string_is(model, OWN_UNIGRAM);
    *out = NULL;
    if (!model.data || gguf_string_is(model, "none") || gguf_string_is(model, "no_vocab"))
        return err_set(why, ERR_ABSENT, "'%s' has no tokenizer (tokenizer.ggml.model)", gguf_path(g));
    if (!spm && !bpe)
        return err_set(why, ERR_FORMAT,
                       "'%s': tokenizer '%.*s' (tokenizer.ggml.model) is not supported; 'llama' (SPM), "
                       "'gpt2' and 'gemma4' (BPE) and '" OWN_UNIGRAM "' are",
                       gguf_path(g), (int)MIN(model.len, 40), model.data);
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    enum err_code rc = vocab_load(&t->vocab, g, &t->memory, why);
    if (!rc && bpe) rc = bpe_open(&t->bpe, g, &t->vocab, why);
    if (rc) {
        err_prefix(why, "'%s'", gguf_path(g));
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return ERR_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    bpe_close(t->bpe);
    arena_free(&t->memory);
    free(t);
}

void tokenizer_describe(const struct tokenizer *t, struct tokenizer_info *out)
{
    const struct vocab *v = &t->vocab;
    *out = (struct tokenizer_info){ .kind = !t->bpe                  ? "spm"
                                            : bpe_is_unigram(t->bpe) ? "unigram"
                                                                     : "bpe",
                                    .pre = t->bpe ? bpe_pre(t->bpe) : "",
                                    .n_vocab = v->n,
                                    .bos = v->bos,
                                    .eos = v->eos,
                                    .unk = v->unk,
                                    .add_bos = v->add_bos,
                                    .add_eos = v->add_eos,
                                    .add_space_prefix = v->add_space_prefix };
}

int32_t vocab_control(const struct vocab *v, const char *text)
{
    struct special_hit *hits;
    size_t count, n = strlen(text);
    int32_t id = -1;
    if (!n || !specials_find(&v->messages, text, n, true, NULL, &hits, &count)) return -1;
    if (count == 1 && v->texts[hits[0].id].len == n && vocab_is_special(v, hits[0].id)) id = hits[0].id;
    free(hits);
    return id;
}

int32_t tokenizer_control(const struct tokenizer *t, const char *text)
{
    return vocab_control(&t->vocab, text);
}

bool tokenizer_ends(const struct tokenizer *t, int32_t id)
{
    return vocab_ends(&t->vocab, id);
}

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){ 0 };
}

enum err_code token_list_push(struct token_list *l, int32_t id, struct err *why)
{
    if (l->n == l->cap) {
        int64_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *ids = realloc(l->ids, (size_t)cap * sizeof *ids);
        if (!ids) return err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", cap);
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return ERR_OK;
}

/* ---------------------------------------------------------------- encode */

static enum err_code fragments_encode(const struct tokenizer *t, const char *text, bool control,
                                      const struct fragments *all, struct token_list *out, struct err *why)
{
    const struct vocab *v = &t->vocab;
    struct merger m = { 0 };
    enum err_code rc = ERR_OK;
    bool starts = true; /* at the beginning or after a special token, where SPM inserts its space */
    for (size_t i = 0; !rc && i < all->count; i++) {
        const struct fragment *f = &all->items[i];
        const char *from = text + f->from;
        size_t n = f->to - f->from;
        if (f->id >= 0)
            rc = token_list_push(out, f->id, why);
        else if (t->bpe)
            rc = bpe_encode(
                t->bpe, &m,
                &(struct bpe_part){ .text = from, .n = n, .first = f->from == 0, .control = control }, out,
                why);
        else
            rc = spm_encode(v, &m, from, n, starts && v->add_space_prefix, out, why);
        starts = f->id >= 0;
    }
    merger_free(&m);
    return rc;
}

static enum err_code encode(const struct tokenizer *t, const char *text, const char *untrusted, size_t n,
                            unsigned flags, struct token_list *out, struct err *why)
{
    const struct vocab *v = &t->vocab;
    struct fragments all = { 0 };
    enum err_code rc = ERR_OK;
    bool frame = flags & TOKENIZE_ADD_BOS;
    if (frame && v->add_bos && v->bos >= 0) rc = token_list_push(out, v->bos, why);
    if (!rc && n) {
        const bool control = flags & TOKENIZE_SPECIAL;
        if (fragments_split(v, untrusted ? &v->messages : &v->specials, text, n, control, untrusted, &all))
            rc = fragments_encode(t, text, control && !untrusted, &all, out, why);
        else
            rc = err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n);
        free(all.items);
    }
    if (!rc && frame && v->add_eos && v->eos >= 0) rc = token_list_push(out, v->eos, why);
    return rc;
}

enum err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                               struct token_list *out, struct err *why)
{
    return encode(t, text, NULL, n, flags, out, why);
}

enum err_code tokenizer_encode_partly(const struct tokenizer *t, const char *text, const char *untrusted,
                                      size_t n, struct token_list *out, struct err *why)
{
    return encode(t, text, untrusted, n, TOKENIZE_SPECIAL, out, why);
}

/* ---------------------------------------------------------------- decode */

enum err_code tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, struct str *out,
                              struct err *why)
{
    const struct vocab *v = &t->vocab;
    if (id < 0 || id >= v->n)
        return err_set(why, ERR_USAGE, "token %" PRId32 " is outside the vocabulary of %" PRId32, id, v->n);
    if (special || !vocab_is_special(v, id)) {
        if (t->bpe)
            bpe_piece(t->bpe, id, out);
        else
            spm_piece(v, id, out);
    }
    return out->failed ? err_set(why, ERR_NOMEM, "out of memory for text") : ERR_OK;
}

enum err_code tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool special,
                               struct str *out, struct err *why)
{
    const struct vocab *v = &t->vocab;
    /* does encoding insert spaces? */
    const bool spaces = v->space != SPACE_ALWAYS || v->add_space_prefix,
               inserts = spaces && (!t->bpe || bpe_is_of_characters(t->bpe));
    bool starts = inserts; /* encoding inserted a space here: remove it */
    struct str piece = { 0 };
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; !rc && i < n; i++) {
        str_clear(&piece);
        if ((rc = tokenizer_piece(t, ids[i], special, &piece, why))) break;
        const bool normalized = v->strips &&
                                v->strips[ids[i]] & NORMALIZED, /* its text begins as others do */
            literal = !normalized && (vocab_is_special(v, ids[i]) || v->types[ids[i]] == TOKEN_USER_DEFINED);
        size_t skip = starts && !literal && piece.len && piece.data[0] == ' ';
        while (skip && v->strip_space == STRIP_TOKEN && skip < piece.len && piece.data[skip] == ' ') skip++;
        if (piece.len && v->strip_space != STRIP_STARTS) starts = false;
        str_append_n(out, str_text(&piece) + skip, piece.len - skip);
        if (v->strip_space != STRIP_STARTS) continue;
        starts = inserts &&
                 (literal ? v->space != SPACE_FIRST || (starts && vocab_is_special(v, ids[i])) : false);
        if (out->failed) rc = err_set(why, ERR_NOMEM, "out of memory for text");
    }
    str_free(&piece);
    return rc;
}
