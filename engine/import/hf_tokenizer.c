/* tokenizer.json as the keys that GGUF files have for a tokenizer.
 *
 * Ids, merges and flags go over as they are. Where the steps that cut text are those of a family that GGUF
 * names, its name is put, so that other programs read the file, too; else the expressions themselves. */
#include "engine/import/hf_tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/hf_added.h"
#include "engine/import/hf_steps.h"
#include "engine/import/hf_unigram.h"
#include "engine/import/word_cutter.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

enum { TOKENS_MOST = 1 << 22, ENDS_MOST = 48 };
/* as tokenizer.ggml.token_type has them */
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER_DEFINED = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

/* Ids of added tokens with a flag, and the keys that list them. */
enum { LIST_LEFT, LIST_RIGHT, LIST_WORD, LIST_NORMALIZED, LIST_COUNT };
static const struct {
    const char *flag, *key;
} LISTS[LIST_COUNT] = { { "lstrip", OWN_STRIP_LEFT },
                        { "rstrip", OWN_STRIP_RIGHT },
                        { "single_word", OWN_SINGLE_WORD },
                        { "normalized", OWN_NORMALIZED } };
struct id_list {
    int32_t *ids;
    int64_t count;
};

/* The vocabulary, by id. */
struct tokens {
    int64_t n;
    struct gguf_string *texts; /* [n]; data NULL: no token has this id. Borrowed from the JSON */
    int32_t *types;            /* [n] */
    char *padding;             /* texts of ids without a token */
    struct arena memory;       /* of texts with U+0000 */
    json_t *added;             /* hf_added_read; owned */
    struct id_list lists[LIST_COUNT];
};

static void tokens_free(struct tokens *t)
{
    free(t->texts);
    free(t->types);
    free(t->padding);
    arena_free(&t->memory);
    for (int i = 0; i < LIST_COUNT; i++) free(t->lists[i].ids);
    json_decref(t->added);
}

/* ---------------------------------------------------------------- U+0000 */

static const char ZERO[] = "\xef\xbf\xbe"; /* U+FFFE in its place */

enum err_code hf_tokenizer_parse(json_t **out, const char *text, size_t n, struct err *why)
{
    static const char ESCAPE[] = "\\u0000", INSTEAD[] = "\\ufffe";
    const size_t length = sizeof ESCAPE - 1;
    if (!memmem(text, n, ESCAPE, length)) return json_parse(out, text, n, why);
    char *copy = malloc(n + 1);
    if (!copy) return err_set(why, ERR_NOMEM, "out of memory for tokenizer.json");
    memcpy(copy, text, n);
    for (size_t i = 0; i + length <= n; i++) {
        if (copy[i] != '\\') continue;
        if (!memcmp(copy + i, ESCAPE, length))
            memcpy(copy + i, INSTEAD, length);
        else
            i++; /* the escaped character may be a backslash */
    }
    const enum err_code rc = json_parse(out, copy, n, why);
    free(copy);
    return rc;
}

/* Put U+0000 back. Returns the new length. */
static size_t restore_zeros(char *text, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        const bool zero = n - i >= 3 && !memcmp(text + i, ZERO, 3);
        text[to++] = zero ? '\0' : text[i];
        i += zero ? 3 : 1;
    }
    return to;
}

/* A token's text; one with U+0000 is copied into `memory`. data NULL: out of memory. */
static struct gguf_string token_text(struct arena *memory, const char *text)
{
    const size_t n = strlen(text);
    if (!strstr(text, ZERO)) return (struct gguf_string){ text, n };
    char *copy = arena_strndup(memory, text, n);
    return copy ? (struct gguf_string){ copy, restore_zeros(copy, n) } : (struct gguf_string){ 0 };
}

/* ---------------------------------------------------------------- the model */

/* What text becomes tokens by. */
struct hf_model {
    const json_t *json;
    const json_t *vocab; /* {text: id} */
    const char *unknown; /* text of the "unknown" token; "": none */
    bool byte_fallback;
    bool is_unigram;
    struct unigram_model unigram;
};

static bool is_set(const json_t *model, const char *key)
{
    const json_t *v = json_object_get(model, key);
    return v && !json_is_null(v) && !(json_is_string(v) && !*json_string_value(v)) &&
           !(json_is_number(v) && json_number_value(v) == 0);
}

static enum err_code check_bpe(const struct hf_model *m, const struct word_cutter *w, struct err *why)
{
    static const char *const OPTIONS[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix" };
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++)
        if (is_set(m->json, OPTIONS[i]))
            return err_set(why, ERR_FORMAT, "tokenizer.json: BPE with %s is not supported", OPTIONS[i]);
    if (!w->bytes && !m->byte_fallback)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: BPE of characters without byte_fallback is not supported");
    if (!w->bytes && json_get_bool(m->json, "ignore_merges", false))
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: BPE of characters with ignore_merges is not supported");
    return ERR_OK;
}

static enum err_code model_read(struct hf_model *m, const json_t *json, const struct word_cutter *w,
                                struct err *why)
{
    const char *type = json_get_str(json, "type", json_object_get(json, "merges") ? "BPE" : "");
    *m = (struct hf_model){ .json = json,
                            .vocab = json_object_get(json, "vocab"),
                            .unknown = json_get_str(json, "unk_token", ""),
                            .byte_fallback = json_get_bool(json, "byte_fallback", false),
                            .is_unigram = !strcmp(type, "Unigram") };
    if (!strcmp(type, "BPE")) return check_bpe(m, w, why);
    if (!m->is_unigram)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: a model of type '%.40s' is not supported; BPE and Unigram are", type);
    if (w->bytes) return err_set(why, ERR_FORMAT, "tokenizer.json: Unigram with byte level is not supported");
    const enum err_code rc = unigram_model_read(&m->unigram, json, why);
    m->vocab = m->unigram.vocab;
    m->unknown = m->unigram.unknown ? m->unigram.unknown : "";
    return rc;
}

/* ---------------------------------------------------------------- tokens */

static enum err_code check_id(int64_t *most, const json_t *id, struct err *why)
{
    const int64_t i = json_is_integer(id) ? json_integer_value(id) : -1;
    if (i < 0 || i >= TOKENS_MOST)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: a token's id is missing or out of range: expected 0 to %d",
                       TOKENS_MOST - 1);
    *most = MAX(*most, i);
    return ERR_OK;
}

static enum err_code tokens_alloc(struct tokens *t, const json_t *vocab, const json_t *added, int64_t padded,
                                  struct err *why)
{
    const char *text;
    json_t *id;
    int64_t most = padded - 1;
    enum err_code rc = ERR_OK;
    json_object_foreach((json_t *)vocab, text, id) if (!rc) rc = check_id(&most, id, why);
    for (size_t i = 0; !rc && i < json_array_size(added); i++)
        rc = check_id(&most, json_object_get(json_array_get(added, i), "id"), why);
    if (rc) return rc;
    t->n = most + 1;
    t->texts = calloc((size_t)t->n + 1, sizeof *t->texts);
    t->types = calloc((size_t)t->n + 1, sizeof *t->types);
    bool ok = t->texts && t->types;
    for (int i = 0; i < LIST_COUNT && ok; i++) /* an id may be added more than once */
        ok = (t->lists[i].ids = calloc(json_array_size(added) + 1, sizeof *t->lists[i].ids)) != NULL;
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", t->n);
}

static bool is_byte_token(const char *text)
{
    unsigned byte;
    int end = 0;
    return strlen(text) == 6 && sscanf(text, "<0x%2x>%n", &byte, &end) == 1 && end == 6;
}

static enum err_code add_added(struct tokens *t, const json_t *token, const char *unknown, struct err *why)
{
    const char *text = json_get_str(token, "content", NULL);
    const int64_t id = json_get_int(token, "id", -1);
    const bool special = json_get_bool(token, "special", false);
    if (!text) return err_set(why, ERR_FORMAT, "tokenizer.json: an added token has no content");
    t->texts[id] = token_text(&t->memory, text);
    if (!t->texts[id].data) return err_set(why, ERR_NOMEM, "out of memory for tokens");
    t->types[id] = special ? (!strcmp(text, unknown) ? TYPE_UNKNOWN : TYPE_CONTROL) : TYPE_USER_DEFINED;
    for (int i = 0; i < LIST_COUNT; i++)
        if (json_get_bool(token, LISTS[i].flag, false)) t->lists[i].ids[t->lists[i].count++] = (int32_t)id;
    return ERR_OK;
}

/* Ids without a token, at the end or between: texts that no text becomes. */
static enum err_code pad(struct tokens *t, struct err *why)
{
    enum { ROOM = 24 };
    int64_t missing = 0, used = 0;
    for (int64_t i = 0; i < t->n; i++) missing += !t->texts[i].data;
    t->padding = malloc((size_t)missing * ROOM + 1);
    if (!t->padding) return err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", t->n);
    for (int64_t i = 0; i < t->n; i++) {
        if (t->texts[i].data) continue;
        char *text = t->padding + used++ * ROOM;
        t->texts[i] = (struct gguf_string){ text, (size_t)snprintf(text, ROOM, "[PAD%" PRId64 "]", i) };
        t->types[i] = TYPE_UNUSED;
    }
    return ERR_OK;
}

static enum err_code tokens_read(struct tokens *t, const struct checkpoint *c, const struct hf_model *m,
                                 const struct word_cutter *w, struct err *why)
{
    const json_t *vocab = m->vocab;
    const char *text, *unknown = m->unknown;
    json_t *id;
    if (!json_is_object(vocab))
        return err_set(why, ERR_FORMAT, "tokenizer.json: the model has no vocabulary");
    const int64_t padded = hf_int(c, "vocab_size", 0);
    enum err_code rc = hf_added_read(&t->added, c, vocab, why);
    const json_t *added = t->added;
    if (!rc) rc = tokens_alloc(t, vocab, added, padded > 0 && padded <= TOKENS_MOST ? padded : 0, why);
    if (rc) return rc;
    int64_t bytes = 0;
    json_object_foreach((json_t *)vocab, text, id)
    {
        const int64_t i = json_integer_value(id);
        if (t->texts[i].data)
            return err_set(why, ERR_FORMAT, "tokenizer.json: '%.60s' and '%.60s' have the same id %" PRId64,
                           t->texts[i].data, text, i);
        t->texts[i] = token_text(&t->memory, text);
        if (!t->texts[i].data) return err_set(why, ERR_NOMEM, "out of memory for tokens");
        const bool byte = !w->bytes && m->byte_fallback && is_byte_token(text);
        t->types[i] = byte                                                  ? TYPE_BYTE
                      : m->is_unigram && *unknown && !strcmp(text, unknown) ? TYPE_UNKNOWN
                                                                            : TYPE_NORMAL;
        bytes += byte;
    }
    if (!w->bytes && !m->is_unigram && bytes < 256 &&
        (!*unknown || !json_get_bool(m->json, "fuse_unk", false)))
        return err_set(
            why, ERR_FORMAT,
            "tokenizer.json: a tokenizer of characters without tokens for all bytes, unk_token and fuse_unk "
            "is not supported (it has %" PRId64 " of 256 tokens <0x00> to <0xFF>)",
            bytes);
    for (size_t i = 0; !rc && i < json_array_size(added); i++)
        rc = add_added(t, json_array_get(added, i), unknown, why);
    return rc ? rc : pad(t, why);
}

/* Scores for all ids; infinity: text does not become this token. */
static enum err_code scores_put(const struct unigram_model *u, const struct tokens *t, struct gguf_writer *w,
                                struct err *why)
{
    double *scores = malloc((size_t)t->n * sizeof *scores);
    if (!scores) return err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", t->n);
    for (int64_t i = 0; i < t->n; i++) scores[i] = i < u->n ? u->scores[i] : INFINITY;
    gguf_writer_put_array(w, OWN_SCORES, GGUF_F64, scores, (uint64_t)t->n);
    free(scores);
    return ERR_OK;
}

static void tokens_put(const struct tokens *t, struct gguf_writer *w)
{
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", t->texts, (uint64_t)t->n);
    gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, t->types, (uint64_t)t->n);
    for (int i = 0; i < LIST_COUNT; i++)
        if (t->lists[i].count)
            gguf_writer_put_array(w, LISTS[i].key, GGUF_I32, t->lists[i].ids, (uint64_t)t->lists[i].count);
}

/* ---------------------------------------------------------------- merges */

/* Rules as "left right", whichever of its two forms tokenizer.json has. */
static enum err_code merges_put(struct checkpoint *c, const json_t *merges, struct err *why)
{
    const size_t n = json_array_size(merges);
    struct gguf_string *all = calloc(n + 1, sizeof *all);
    size_t *at = calloc(n + 1, sizeof *at);
    struct str text = { 0 };
    enum err_code rc = all && at ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %zu merges", n);
    for (size_t i = 0; !rc && i < n; i++) {
        const json_t *m = json_array_get(merges, i);
        const char *left = json_string_value(json_array_get(m, 0)),
                   *right = json_string_value(json_array_get(m, 1)), *both = json_string_value(m);
        at[i] = text.len;
        if (both)
            str_append(&text, both);
        else if (left && right && !strchr(left, ' ') && !strchr(right, ' '))
            str_printf(&text, "%s %s", left, right);
        else
            rc = err_set(why, ERR_FORMAT, "tokenizer.json: merge %zu is no pair of tokens without spaces", i);
    }
    at[n ? n : 0] = text.len;
    if (!rc && text.failed) rc = err_set(why, ERR_NOMEM, "out of memory for %zu merges", n);
    for (size_t i = 0; !rc && i < n; i++) {
        const size_t length = (i + 1 < n ? at[i + 1] : text.len) - at[i];
        all[i] = (struct gguf_string){ text.data + at[i], restore_zeros(text.data + at[i], length) };
    }
    if (!rc) gguf_writer_put_strings(c->metadata, "tokenizer.ggml.merges", all, n);
    str_free(&text);
    free(all);
    free(at);
    return rc;
}

/* ---------------------------------------------------------------- special tokens */

/* The id of a token by its text; -1: none. */
static int64_t id_of(const struct tokens *t, const char *text)
{
    for (int64_t i = 0; text && i < t->n; i++)
        if (t->texts[i].len == strlen(text) && !memcmp(t->texts[i].data, text, t->texts[i].len)) return i;
    return -1;
}

/* A special token: named by tokenizer_config.json (a text or an object with it), else numbered by the
 * configs. -1: none. */
static int64_t special_id(const struct checkpoint *c, const struct tokens *t, const char *name)
{
    char key[32];
    const json_t *named;
    snprintf(key, sizeof key, "%s_token", name);
    named = json_object_get(c->tokenizer_config, key);
    if (json_is_null(named)) return -1; /* the tokenizer has none, whatever the model's config says */
    if (!named) named = json_object_get(c->special_tokens_map, key);
    const char *text = json_is_object(named) ? json_get_str(named, "content", NULL)
                                             : json_string_value(named);
    const int64_t id = id_of(t, text);
    if (id >= 0) return id;
    snprintf(key, sizeof key, "%s_token_id", name);
    const json_t *places[] = { json_object_get(c->generation, key), hf_find(c, key) };
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        const json_t *v = json_is_array(places[i]) ? json_array_get(places[i], 0) : places[i];
        if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < t->n)
            return json_integer_value(v);
    }
    return -1;
}

static void put_id(struct checkpoint *c, const char *key, int64_t id)
{
    gguf_writer_put_u32(c->metadata, key, id < 0 ? UINT32_MAX : (uint32_t)id);
}

static enum err_code specials_put(struct checkpoint *c, const struct tokens *t, const struct hf_model *m,
                                  const struct word_cutter *w, struct err *why)
{
    int64_t bos = special_id(c, t, "bos"), eos = special_id(c, t, "eos");
    const int64_t padding = special_id(c, t, "pad"), unknown = id_of(t, *m->unknown ? m->unknown : NULL);
    struct hf_frame frame;
    const enum err_code rc = hf_frame_read(&frame, json_object_get(c->tokenizer, "post_processor"), t->n,
                                           why);
    if (rc) return rc;
    if (frame.before >= 0) bos = frame.before; /* what texts begin with, whatever else is called so */
    if (frame.after >= 0) eos = frame.after;
    put_id(c, "tokenizer.ggml.bos_token_id", bos);
    put_id(c, "tokenizer.ggml.eos_token_id", eos);
    put_id(c, "tokenizer.ggml.unknown_token_id", unknown);
    if (padding >= 0) put_id(c, "tokenizer.ggml.padding_token_id", padding);
    gguf_writer_put_bool(c->metadata, "tokenizer.ggml.add_bos_token", frame.before >= 0);
    gguf_writer_put_bool(c->metadata, "tokenizer.ggml.add_eos_token", frame.after >= 0);
    gguf_writer_put_bool(c->metadata, "tokenizer.ggml.add_space_prefix", w->space_first);
    /* tokens that also end an answer */
    const json_t *given = json_object_get(c->generation, "eos_token_id"),
                 *ends = given ? given : hf_find(c, "eos_token_id");
    static const char *const KEYS[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    int32_t more[ENDS_MOST];
    size_t used = 0, rest = 0;
    for (size_t i = 0; i < json_array_size(ends); i++) {
        const json_t *end = json_array_get(ends, i);
        const json_int_t id = json_is_integer(end) ? json_integer_value(end) : -1;
        if (id == eos || id < 0 || id >= t->n) continue;
        if (used < COUNT_OF(KEYS))
            put_id(c, KEYS[used++], id);
        else if (rest < ENDS_MOST)
            more[rest++] = (int32_t)id;
        else
            return err_set(why, ERR_FORMAT, "eos_token_id: expected at most %d ids", ENDS_MOST + 3);
    }
    if (json_is_integer(ends) && json_integer_value(ends) != eos && json_integer_value(ends) >= 0 &&
        json_integer_value(ends) < t->n)
        put_id(c, KEYS[0], json_integer_value(ends));
    if (rest) gguf_writer_put_array(c->metadata, OWN_ENDS, GGUF_I32, more, rest);
    return ERR_OK;
}

/* ---------------------------------------------------------------- chat template */

static void template_put(struct checkpoint *c)
{
    static const char KEY[] = "tokenizer.chat_template", TOOLS[] = "tokenizer.chat_template.tool_use";
    const json_t *given = json_object_get(c->tokenizer_config, "chat_template");
    if (c->template.data) {
        char *text = strndup(c->template.data, c->template.len);
        if (text) gguf_writer_put_string(c->metadata, KEY, text);
        free(text);
    } else if (json_is_string(given)) {
        gguf_writer_put_string(c->metadata, KEY, json_string_value(given));
    }
    for (size_t i = 0; i < json_array_size(given) && !c->template.data; i++) {
        const json_t *one = json_array_get(given, i);
        const char *name = json_get_str(one, "name", ""), *text = json_get_str(one, "template", NULL);
        if (text && !strcmp(name, "default")) gguf_writer_put_string(c->metadata, KEY, text);
        if (text && !strcmp(name, "tool_use")) gguf_writer_put_string(c->metadata, TOOLS, text);
    }
}

/* ---------------------------------------------------------------- all */

static void strings_put(struct checkpoint *c, const char *key, const struct str *texts, int n)
{
    struct gguf_string all[2 * REWRITES_MOST + CUTS_MOST];
    for (int i = 0; i < n; i++) all[i] = (struct gguf_string){ str_text(&texts[i]), texts[i].len };
    gguf_writer_put_strings(c->metadata, key, all, (uint64_t)n);
}

static void cutter_put(struct checkpoint *c, const struct word_cutter *w, const struct hf_model *m)
{
    const bool whole_words = json_get_bool(m->json, "ignore_merges", false);
    const char *known = m->is_unigram ? NULL : word_cutter_known(w, whole_words);
    gguf_writer_put_string(c->metadata, "tokenizer.ggml.model", m->is_unigram ? OWN_UNIGRAM : "gpt2");
    gguf_writer_put_string(c->metadata, "tokenizer.ggml.pre", known ? known : OWN_PRE);
    gguf_writer_put_bool(c->metadata, OWN_LEFTMOST, true);
    if (w->strip_space) gguf_writer_put_string(c->metadata, OWN_STRIP_SPACE, w->strip_space);
    if (w->rewrite_count) strings_put(c, OWN_REWRITES, w->rewrites, w->rewrite_count);
    if (known) return;
    strings_put(c, OWN_PATTERNS, w->cuts, w->cut_count);
    if (w->charsmap.len)
        gguf_writer_put_array(c->metadata, OWN_CHARSMAP, GGUF_U8, w->charsmap.data, w->charsmap.len);
    gguf_writer_put_bool(c->metadata, OWN_CHARACTERS, !w->bytes);
    if (w->space) gguf_writer_put_string(c->metadata, OWN_SPACE, w->space);
    gguf_writer_put_bool(c->metadata, OWN_WHOLE_WORDS, whole_words);
}

static enum err_code put_all(struct checkpoint *c, const struct hf_model *m, const struct word_cutter *w,
                             struct tokens *t, struct err *why)
{
    if (w->cuts_bytes && !word_cutter_known(w, json_get_bool(m->json, "ignore_merges", false)))
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: steps that cut text behind ByteLevel are not supported");
    enum err_code rc = tokens_read(t, c, m, w, why);
    if (rc) return rc;
    cutter_put(c, w, m);
    tokens_put(t, c->metadata);
    rc = m->is_unigram ? scores_put(&m->unigram, t, c->metadata, why)
                       : merges_put(c, json_object_get(m->json, "merges"), why);
    if (!rc) rc = specials_put(c, t, m, w, why);
    if (!rc) template_put(c);
    return rc;
}

enum err_code hf_tokenizer_put(struct checkpoint *c, struct err *why)
{
    struct word_cutter w = { 0 };
    struct hf_model m = { 0 };
    struct tokens t = { 0 };
    if (!c->tokenizer) return ERR_OK;
    enum err_code rc = word_cutter_read(&w, c->tokenizer, why);
    if (!rc) rc = hf_decoder_check(json_object_get(c->tokenizer, "decoder"), &w, why);
    if (!rc) rc = model_read(&m, json_object_get(c->tokenizer, "model"), &w, why);
    if (!rc) rc = put_all(c, &m, &w, &t, why);
    word_cutter_free(&w);
    unigram_model_free(&m.unigram);
    tokens_free(&t);
    return rc;
}
