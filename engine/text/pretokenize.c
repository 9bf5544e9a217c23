/* Cuts text into words before byte-level merging, in the way each model family was trained with.
 *
 * A family (families.c) has one or more regular expressions; each is applied to the pieces that the one
 * before left. PCRE2 runs them with Unicode properties. Text need not be UTF-8: a byte that is not part of a
 * valid character is a word of its own and is never passed to PCRE2. */
#include "engine/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/pattern.h"
#include "kernels/kernels.h"

enum { MATCHES_NOTHING = -1000 }; /* beyond the numbers of PCRE2's errors */

enum { OWN_PATTERNS_MOST = 32 };

struct pretokenizer {
    struct pre_info info;
    pcre2_code *codes[OWN_PATTERNS_MOST];
    int code_count;
};
_Static_assert((int)FAMILY_PATTERNS <= (int)OWN_PATTERNS_MOST, "room for every family's patterns");

static enum err_code family_error(struct gguf_string name, struct err *why)
{
    struct str known = { 0 };
    for (size_t i = 0; i < TEXT_FAMILY_COUNT; i++) str_printf(&known, " %s", TEXT_FAMILIES[i].info.name);
    enum err_code rc = err_set(why, ERR_FORMAT,
                               "pre-tokenizer '%.*s' (tokenizer.ggml.pre) is not supported; known are%s",
                               (int)MIN(name.len, 40), name.data, str_text(&known));
    str_free(&known);
    return rc;
}

static enum err_code add_pattern(struct pretokenizer *p, struct gguf_string pattern, enum err_code wrong,
                                 struct err *why)
{
    char who[64];
    snprintf(who, sizeof who, "pre-tokenizer '%s'", p->info.name);
    const enum err_code rc = pattern_compile(&p->codes[p->code_count], pattern, who, wrong, why);
    p->code_count += !rc;
    return rc;
}

enum err_code pretokenizer_open(struct pretokenizer **out, struct gguf_string name, struct err *why)
{
    const struct family *f = NULL;
    *out = NULL;
    for (size_t i = 0; i < TEXT_FAMILY_COUNT; i++)
        if (gguf_string_is(name, TEXT_FAMILIES[i].info.name)) f = &TEXT_FAMILIES[i];
    if (!f) return family_error(name, why);
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory for the pre-tokenizer");
    p->info = f->info;
    for (int i = 0; i < FAMILY_PATTERNS && f->patterns[i]; i++) {
        const struct gguf_string pattern = { f->patterns[i], strlen(f->patterns[i]) };
        enum err_code rc = add_pattern(p, pattern, ERR_INTERNAL, why);
        if (rc) {
            pretokenizer_close(p);
            return rc;
        }
    }
    *out = p;
    return ERR_OK;
}

enum err_code pretokenizer_open_own(struct pretokenizer **out, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *kv = gguf_kv_find(g, OWN_PATTERNS);
    *out = NULL;
    if (kv && (kv->type != GGUF_ARRAY || kv->element != GGUF_STRING || kv->count > OWN_PATTERNS_MOST))
        return err_set(why, ERR_FORMAT, OWN_PATTERNS ": expected a list of at most %d strings",
                       OWN_PATTERNS_MOST);
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory for the pre-tokenizer");
    p->info = (struct pre_info){ .name = OWN_PRE,
                                 .characters = gguf_get_bool(g, OWN_CHARACTERS, false),
                                 .whole_words = gguf_get_bool(g, OWN_WHOLE_WORDS, false) };
    enum err_code rc = ERR_OK;
    for (uint64_t i = 0; kv && i < kv->count && !rc; i++)
        rc = add_pattern(p, gguf_kv_string(kv, i), ERR_FORMAT, why);
    if (rc)
        pretokenizer_close(p);
    else
        *out = p;
    return rc;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (!p) return;
    for (int i = 0; i < p->code_count; i++) pcre2_code_free(p->codes[i]);
    free(p);
}

const struct pre_info *pretokenizer_info(const struct pretokenizer *p)
{
    return &p->info;
}

/* ---------------------------------------------------------------- splitting */

struct ends {
    size_t *at;
    size_t count, cap;
};

static bool ends_push(struct ends *e, size_t end)
{
    if (e->count == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 256;
        size_t *at = realloc(e->at, cap * sizeof *at);
        if (!at) return false;
        e->at = at;
        e->cap = cap;
    }
    e->at[e->count++] = end;
    return true;
}

/* Cut into runs of valid UTF-8, which PCRE2 may see, and single invalid bytes, which it may not. */
static bool ends_split_valid(struct ends *out, const char *text, size_t n)
{
    for (size_t i = 0, start = 0; i < n;) {
        uint32_t c;
        size_t used = str_utf8_next(text + i, n - i, &c);
        bool stray = c == 0xfffd && used == 1;
        if (stray && i > start && !ends_push(out, i)) return false;
        i += used;
        if (stray) start = i;
        if ((stray || i == n) && !ends_push(out, i)) return false;
    }
    return true;
}

/* Apply one pattern to one piece: the matches and the text between them become the new pieces. */
static int ends_split_piece(const pcre2_code *code, const struct matcher *m, const char *text, size_t from,
                            size_t to, struct ends *out)
{
    size_t done = 0, n = to - from;
    PCRE2_SPTR piece = (PCRE2_SPTR)text + from;
    while (done < n) {
        int rc = pcre2_match(code, piece, n, done, PCRE2_NO_UTF_CHECK, m->data, m->limits);
        if (rc ==
            PCRE2_ERROR_JIT_STACKLIMIT) /* a very long word: the interpreter has its stack on the heap */
            rc = pcre2_match(code, piece, n, done, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return rc;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
        if (at[1] <= at[0]) return MATCHES_NOTHING; /* a pattern of the file; none of ours does that */
        if (at[0] > done && !ends_push(out, from + at[0])) return PCRE2_ERROR_NOMEMORY;
        if (!ends_push(out, from + at[1])) return PCRE2_ERROR_NOMEMORY;
        done = at[1];
    }
    return done < n && !ends_push(out, to) ? PCRE2_ERROR_NOMEMORY : 0;
}

static bool is_stray(const char *text, size_t from, size_t to)
{
    uint32_t c;
    return to - from == 1 && str_utf8_next(text + from, 1, &c) == 1 && c == 0xfffd;
}

static int ends_split_all(const pcre2_code *code, const char *text, const struct ends *in, struct ends *out)
{
    struct matcher m;
    int rc = matcher_open(&m) ? 0 : PCRE2_ERROR_NOMEMORY;
    for (size_t i = 0, from = 0; !rc && i < in->count; from = in->at[i++]) {
        if (!is_stray(text, from, in->at[i]))
            rc = ends_split_piece(code, &m, text, from, in->at[i], out);
        else if (!ends_push(out, in->at[i]))
            rc = PCRE2_ERROR_NOMEMORY;
    }
    matcher_close(&m);
    return rc;
}

static enum err_code split_error(const struct pretokenizer *p, size_t n, int bad, struct err *why)
{
    PCRE2_UCHAR message[128] = "";
    if (bad == PCRE2_ERROR_NOMEMORY) return err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n);
    if (pattern_is_limit(bad))
        return err_set(why, ERR_FORMAT,
                       "the text has a word or a run of spaces that is too long for pre-tokenizer '%s': "
                       "expected text with shorter ones (%zu bytes in all)",
                       p->info.name, n);
    if (bad == MATCHES_NOTHING)
        return err_set(why, ERR_FORMAT, "pre-tokenizer '%s': a pattern matches the empty text", p->info.name);
    pcre2_get_error_message(bad, message, sizeof message);
    return err_set(why, ERR_INTERNAL, "pre-tokenizer '%s': %s", p->info.name, (char *)message);
}

enum err_code pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n, size_t **ends,
                                 size_t *count, struct err *why)
{
    struct ends now = { 0 };
    *ends = NULL;
    *count = 0;
    int bad = ends_split_valid(&now, text, n) ? 0 : PCRE2_ERROR_NOMEMORY;
    for (int i = 0; !bad && i < p->code_count; i++) {
        struct ends next = { 0 };
        bad = ends_split_all(p->codes[i], text, &now, &next);
        free(now.at);
        now = next;
    }
    if (bad) {
        free(now.at);
        return split_error(p, n, bad, why);
    }
    *ends = now.at;
    *count = now.count;
    return ERR_OK;
}
