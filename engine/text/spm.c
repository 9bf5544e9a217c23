/* SentencePiece tokens: characters start as symbols, the neighbouring pair with the best score merges first,
 * and characters without a token become byte tokens. The vocabulary writes spaces as U+2581. */
#include "engine/text/text_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

enum { SPACE_LEN = sizeof SPM_SPACE - 1 };

static bool is_space(const char *text, size_t at, size_t n)
{
    return n - at >= SPACE_LEN && !memcmp(text + at, SPM_SPACE, SPACE_LEN);
}

/* A score as an integer whose order is reversed: smaller is better. */
static uint32_t worth_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static bool spm_pair(const void *ctx, const char *text, const struct symbol *l, const struct symbol *r,
                     uint32_t *worth, int32_t *id)
{
    const struct vocab *v = ctx;
    *id = text_index_find(&v->words, text + l->at, (size_t)(l->len + r->len));
    if (*id < 0) return false;
    *worth = worth_of(v->scores[*id]);
    return true;
}

enum err_code spm_push_bytes(const struct vocab *v, const char *text, int32_t n, struct token_list *out,
                             struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int32_t i = 0; !rc && i < n; i++) {
        int32_t id = v->byte_id[(unsigned char)text[i]];
        if (id < 0) id = v->unk;
        if (id >= 0) rc = token_list_push(out, id, why);
    }
    return rc;
}

void spm_escape(const char *text, size_t n, bool space_first, struct str *out)
{
    if (space_first) str_append_n(out, SPM_SPACE, SPACE_LEN);
    for (size_t i = 0; i < n;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t run = space ? (size_t)(space - text) - i : n - i;
        str_append_n(out, text + i, run);
        i += run;
        if (space) {
            str_append_n(out, SPM_SPACE, SPACE_LEN);
            i++;
        }
    }
}

static enum err_code spm_encode_run(const struct vocab *v, struct merger *m, const char *text, size_t n,
                                    struct token_list *out, struct err *why)
{
    enum err_code rc = ERR_OK;
    m->count = 0;
    for (size_t at = 0; at < n;) {
        uint32_t
            character; /* invalid UTF-8 becomes single bytes, so that it cannot absorb a following space */
        int32_t len = (int32_t)str_utf8_next(text + at, n - at, &character);
        int32_t id = text_index_find(&v->words, text + at, (size_t)len);
        if (!merger_add(m, (int32_t)at, len, id)) return err_set(why, ERR_NOMEM, "out of memory tokenizing");
        at += (size_t)len;
    }
    if (!merger_run(m, spm_pair, v, text)) return err_set(why, ERR_NOMEM, "out of memory tokenizing");
    for (int32_t i = 0; !rc && i >= 0; i = m->symbols[i].next) {
        const struct symbol *y = &m->symbols[i];
        rc = y->id >= 0 ? token_list_push(out, y->id, why)
                        : spm_push_bytes(v, text + y->at, y->len, out, why);
    }
    return rc;
}

/* If no token spans the beginning of a word, words can be merged independently: the same tokens, with a heap
 * as large as a word instead of the text. Returns the end of the independent run that begins at `from`. */
static size_t spm_run_end(const struct vocab *v, const char *text, size_t from, size_t n)
{
    if (!v->words_begin_with_space) return n;
    size_t at = from;
    while (is_space(text, at, n)) at += SPACE_LEN;
    for (const char *p; at < n && (p = memchr(text + at, SPM_SPACE[0], n - at)); at++) {
        at = (size_t)(p - text);
        if (is_space(text, at, n)) return at;
    }
    return n;
}

static enum err_code spm_encode_escaped(const struct vocab *v, struct merger *m, const struct str *s,
                                        struct token_list *out, struct err *why)
{
    const char *text = str_text(s);
    enum err_code rc = ERR_OK;
    for (size_t from = 0, to; !rc && from < s->len; from = to) {
        to = spm_run_end(v, text, from, s->len);
        rc = spm_encode_run(v, m, text + from, to - from, out, why);
    }
    return rc;
}

enum err_code spm_encode(const struct vocab *v, struct merger *m, const char *text, size_t n,
                         bool space_first, struct token_list *out, struct err *why)
{
    struct str s = { 0 };
    enum err_code rc;
    spm_escape(text, n, space_first, &s);
    if (s.failed)
        rc = err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n);
    else if (s.len > INT32_MAX)
        rc = err_set(why, ERR_USAGE, "a text of %zu bytes is too long: at most 2 GiB", n);
    else
        rc = spm_encode_escaped(v, m, &s, out, why);
    str_free(&s);
    return rc;
}

void spm_unescape(struct gguf_string t, struct str *out)
{
    for (size_t i = 0; i < t.len;) {
        bool space = is_space(t.data, i, t.len);
        str_append_n(out, space ? " " : t.data + i, 1);
        i += space ? SPACE_LEN : 1;
    }
}

void spm_piece(const struct vocab *v, int32_t id, struct str *out)
{
    struct gguf_string t = v->texts[id];
    int byte = v->types[id] == TOKEN_BYTE ? byte_token_value(t) : -1;
    if (byte >= 0) {
        char c = (char)byte;
        str_append_n(out, &c, 1);
        return;
    }
    if (vocab_is_special(v, id) || v->types[id] == TOKEN_USER_DEFINED) {
        str_append_n(out, t.data, t.len);
        return;
    }
    spm_unescape(t, out);
}
