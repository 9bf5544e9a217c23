/* The table is a trie in a double array (the layout of darts-clone): from the unit of a state, its offset XOR
 * the next byte is the unit of the next state, if that unit is labelled with the byte. A unit with a leaf has
 * beside it (at its offset) the position of the text that replaces what was read.
 *
 * A text is taken apart into what a reader sees as one character (extended grapheme clusters). One of less
 * than 6 bytes is replaced as a whole by the text of its shortest beginning in the table; of others, each
 * code point on its own. This is what huggingface/tokenizers does, whose ids we agree with; SentencePiece
 * itself takes the longest beginning. */
#include "engine/text/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/text.h"
#include "kernels/kernels.h"

enum {
    WHOLE_LESS_THAN = 6,
    TEXT_MOST = 256 /* bytes of a replacement; Unicode's longest has 33 */
};

struct charsmap {
    const unsigned char *units; /* [count] of 32 bits, little endian; borrowed, unaligned */
    uint32_t count;
    const char *texts; /* [size] the replacements, each with a zero behind it; borrowed */
    size_t size;
    pcre2_code *cluster; /* \X */
};

static uint32_t read_u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool has_long_text(const struct charsmap *c)
{
    for (size_t at = 0; at < c->size;) {
        const size_t n = strnlen(c->texts + at, c->size - at);
        if (n > TEXT_MOST) return true;
        at += n + 1;
    }
    return false;
}

enum err_code charsmap_open(struct charsmap **out, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, OWN_CHARSMAP);
    *out = NULL;
    if (!kv) return ERR_OK;
    const bool bytes = kv->type == GGUF_ARRAY && (kv->element == GGUF_U8 || kv->element == GGUF_I8);
    const uint32_t size = bytes && kv->count >= 4 ? read_u32(kv->data) : 0;
    if (!size || size % 4 || size > kv->count - 4)
        return err_set(why, ERR_FORMAT,
                       OWN_CHARSMAP ": expected bytes: the size of a double array, the array, and texts");
    struct charsmap *c = *out = calloc(1, sizeof *c);
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    c->units = kv->data + 4;
    c->count = size / 4;
    c->texts = (const char *)kv->data + 4 + size;
    c->size = kv->count - 4 - size;
    const struct gguf_string cluster = { "\\X", 2 };
    const enum err_code rc = has_long_text(c)
                                 ? err_set(why, ERR_FORMAT, OWN_CHARSMAP ": a text has more than %d bytes",
                                           TEXT_MOST)
                                 : pattern_compile(&c->cluster, cluster, OWN_CHARSMAP, ERR_INTERNAL, why);
    if (rc) {
        charsmap_close(c);
        *out = NULL;
    }
    return rc;
}

void charsmap_close(struct charsmap *c)
{
    if (!c) return;
    pcre2_code_free(c->cluster);
    free(c);
}

/* A unit of the array; 0 behind its end, which no byte matches. */
static uint32_t unit_at(const struct charsmap *c, uint32_t at)
{
    return at < c->count ? read_u32(c->units + 4 * (size_t)at) : 0;
}

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The replacement of the shortest beginning of `text` that has one. data NULL: none. */
static struct gguf_string find(const struct charsmap *c, const char *text, size_t n)
{
    const struct gguf_string none = { 0 };
    uint32_t at = unit_offset(unit_at(c, 0));
    for (size_t i = 0; i < n && text[i]; i++) {
        at ^= (unsigned char)text[i];
        const uint32_t unit = unit_at(c, at);
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)text[i]) return none;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        const uint32_t from = unit_at(c, at) & ~(1u << 31);
        if (from >= c->size) return (struct gguf_string){ "", 0 };
        return (struct gguf_string){ c->texts + from, strnlen(c->texts + from, c->size - from) };
    }
    return none;
}

static void apply_to_cluster(const struct charsmap *c, const char *text, size_t n, struct str *out)
{
    const struct gguf_string whole = n < WHOLE_LESS_THAN ? find(c, text, n) : (struct gguf_string){ 0 };
    if (whole.data) {
        str_append_n(out, whole.data, whole.len);
        return;
    }
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t character;
        used = str_utf8_next(text + at, n - at, &character);
        const struct gguf_string by = find(c, text + at, used);
        str_append_n(out, by.data ? by.data : text + at, by.data ? by.len : used);
    }
}

/* Is the character at `at` a cluster of its own, seen from it and its neighbour alone? */
static bool is_simple(const char *text, size_t at, size_t n)
{
    const bool ascii = !(text[at] & 0x80), next = at + 1 == n || !(text[at + 1] & 0x80);
    return ascii && next && text[at] != '\r';
}

int charsmap_apply(const struct charsmap *c, const struct matcher *m, const char *text, size_t n,
                   struct str *out)
{
    for (size_t at = 0, end; at < n; at = end) {
        end = at + 1;
        if (!is_simple(text, at, n)) {
            int rc = pcre2_match(c->cluster, (PCRE2_SPTR)text, n, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK,
                                 m->data, m->limits);
            if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
                rc = pcre2_match(c->cluster, (PCRE2_SPTR)text, n, at,
                                 PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->limits);
            if (rc < 0) return rc;
            end = pcre2_get_ovector_pointer(m->data)[1];
        }
        apply_to_cluster(c, text + at, end - at, out);
    }
    return 0;
}
