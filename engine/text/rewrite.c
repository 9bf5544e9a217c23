/* Replacements in a text before it is cut into words: what normalizers of tokenizer.json do that is not part
 * of every vocabulary, such as removing spaces at the end. */
#include <stdlib.h>

#include "engine/text/charsmap.h"
#include "engine/text/pattern.h"
#include "engine/text/text_internal.h"
#include "kernels/kernels.h"

enum {
    REWRITES_MOST = 32,
    TOO_LONG = -1001, /* beyond the numbers of PCRE2's errors */
    GROWTH_MOST = 64  /* times the text: replacements of replacements could fill the memory */
};

struct rewrites {
    struct charsmap *charsmap; /* comes first; NULL: none */
    int count;
    pcre2_code *codes[REWRITES_MOST];
    struct gguf_string by[REWRITES_MOST]; /* borrowed from the file */
    int forms[REWRITES_MOST];             /* normal_form; -1: an expression */
};

static enum err_code read_expressions(struct rewrites *r, const struct gguf_kv *kv, struct err *why)
{
    if (kv->type != GGUF_ARRAY || kv->element != GGUF_STRING || kv->count % 2 ||
        kv->count > 2 * REWRITES_MOST)
        return err_set(why, ERR_FORMAT,
                       OWN_REWRITES ": expected pairs of strings (expression, text), at most %d",
                       REWRITES_MOST);
    enum err_code rc = ERR_OK;
    for (uint64_t i = 0; !rc && i < kv->count; i += 2) {
        r->by[r->count] = gguf_kv_string(kv, i + 1);
        r->forms[r->count] = normal_form(gguf_kv_string(kv, i));
        if (r->forms[r->count] >= 0) {
            r->count++;
            continue;
        }
        rc = pattern_compile(&r->codes[r->count], gguf_kv_string(kv, i), OWN_REWRITES, ERR_FORMAT, why);
        r->count += !rc;
    }
    return rc;
}

enum err_code rewrites_open(struct rewrites **out, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, OWN_REWRITES);
    *out = NULL;
    struct rewrites *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    enum err_code rc = charsmap_open(&r->charsmap, g, why);
    if (!rc && kv) rc = read_expressions(r, kv, why);
    if (rc || (!r->charsmap && !r->count))
        rewrites_close(r);
    else
        *out = r;
    return rc;
}

void rewrites_close(struct rewrites *r)
{
    if (!r) return;
    for (int i = 0; i < r->count; i++) pcre2_code_free(r->codes[i]);
    charsmap_close(r->charsmap);
    free(r);
}

/* One replacement in valid UTF-8, appended to *out. Returns PCRE2's error, TOO_LONG: the result has more than
 * `most` bytes; 0: done. */
static int substitute(const pcre2_code *code, struct gguf_string by, const struct matcher *m,
                      const char *text, size_t n, size_t most, struct str *out)
{
    const uint32_t flags = PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_LITERAL |
                           PCRE2_SUBSTITUTE_OVERFLOW_LENGTH | PCRE2_NO_UTF_CHECK;
    PCRE2_SIZE room = n + 64;
    for (uint32_t more = 0;;) {
        PCRE2_SIZE used = room;
        PCRE2_UCHAR *to = malloc(room);
        if (!to) return PCRE2_ERROR_NOMEMORY;
        const int rc = pcre2_substitute(code, (PCRE2_SPTR)text, n, 0, flags | more, m->data, m->limits,
                                        (PCRE2_SPTR)by.data, by.len, to, &used);
        if (rc >= 0) str_append_n(out, (const char *)to, used);
        free(to);
        const bool grow = rc == PCRE2_ERROR_NOMEMORY && used > room,
                   interpret = rc == PCRE2_ERROR_JIT_STACKLIMIT && !more; /* its stack is on the heap */
        if (!grow && !interpret) return MIN(rc, 0);
        if (grow && used > most) return TOO_LONG;
        if (grow) room = used;
        if (interpret) more = PCRE2_NO_JIT;
    }
}

/* Replacement number `which` in valid UTF-8; -1: those of the table of characters. */
static int rewrite_valid(const struct rewrites *r, int which, const struct matcher *m, const char *text,
                         size_t n, size_t most, struct str *out)
{
    if (which >= 0 && r->forms[which] >= 0)
        return normal_form_apply(r->forms[which], text, n, out) ? 0 : PCRE2_ERROR_NOMEMORY;
    return which < 0 ? charsmap_apply(r->charsmap, m, text, n, out)
                     : substitute(r->codes[which], r->by[which], m, text, n, most, out);
}

/* The same in any bytes: PCRE2 sees the runs of valid UTF-8; other bytes stay. */
static int rewrite_once(const struct rewrites *r, int which, const struct matcher *m, const struct str *in,
                        size_t most, struct str *out)
{
    const char *text = str_text(in);
    int rc = 0;
    for (size_t i = 0, start = 0; !rc && i < in->len;) {
        uint32_t c;
        const size_t used = str_utf8_next(text + i, in->len - i, &c);
        const bool stray = c == 0xfffd && used == 1, last = i + used == in->len;
        const size_t end = stray ? i : i + used;
        if ((stray || last) && end > start)
            rc = rewrite_valid(r, which, m, text + start, end - start, most, out);
        if (!rc && stray) str_append_n(out, text + i, 1);
        i += used;
        if (stray) start = i;
    }
    return rc;
}

enum err_code rewrites_apply(const struct rewrites *r, const char *text, size_t n, struct str *out,
                             struct err *why)
{
    const size_t most = 4096 + n * GROWTH_MOST;
    struct matcher m;
    int rc = matcher_open(&m) ? 0 : PCRE2_ERROR_NOMEMORY;
    str_append_n(out, text, n);
    for (int i = r->charsmap ? -1 : 0; i < r->count && !rc && !out->failed; i++) {
        struct str next = { 0 };
        rc = rewrite_once(r, i, &m, out, most, &next);
        if (!rc && next.len > most) rc = TOO_LONG;
        str_free(out);
        *out = next;
    }
    matcher_close(&m);
    if (rc == PCRE2_ERROR_NOMEMORY || out->failed)
        return err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n);
    if (rc == TOO_LONG)
        return err_set(why, ERR_FORMAT,
                       OWN_REWRITES ": replacements make a text of %zu bytes more than %d times as long", n,
                       GROWTH_MOST);
    if (pattern_is_limit(rc))
        return err_set(
            why, ERR_FORMAT,
            "the text has a run of characters that is too long for the expressions in " OWN_REWRITES
            ": expected text with shorter ones (%zu bytes in all)",
            n);
    return rc ? err_set(why, ERR_INTERNAL, OWN_REWRITES ": PCRE2 reports %d", rc) : ERR_OK;
}
