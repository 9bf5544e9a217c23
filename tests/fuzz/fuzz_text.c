/* Texts (files to evaluate, prompts) are untrusted. Any bytes become ids with every kind of vocabulary, in
 * time proportional to their number; where a vocabulary has all bytes, decoding gives the text back. The
 * first byte of the input chooses the vocabulary, the second whether the text is repeated. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/text.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

enum { REPEATED = 1 << 16, HEADER = 2 };

/* Repeated texts are 64 KiB; sentences of this size take 10 ms. */
static const struct cost_ceiling CEILING = { .seconds = 1, .seconds_per_mb = 5, .mb = 64, .mb_per_mb = 400 };

static const struct {
    const char *what;
    uint8_t model[4]; /* script of draft_model */
    bool whole;       /* decoding gives the text back, unless it holds U+2581 */
} VOCABULARIES[] = {
    { "SPM", { 0, 0, 0, 5 }, true },       { "gpt-2", { 0, 0, 0, 0 }, true },
    { "llama-bpe", { 0, 0, 0, 1 }, true }, { "qwen2", { 0, 0, 0, 2 }, true },
    { "default", { 0, 0, 0, 3 }, true },   { "starcoder", { 0, 0, 0, 4 }, true },
};

struct vocabulary {
    struct str file;
    struct gguf *g;
    struct tokenizer *t;
};

/* Texts that are cut out before anything else, with others as parts. */
static void add_special(struct draft *d)
{
    static const char *const TEXTS[] = { "<|im_start|>", "<|im_end|>", "<s", "  ",  "aaa",
                                         "aaaa",         "aaaaaaaa",   "<",  "\n\n" };
    enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4 };
    struct draft_key *texts = draft_find(d, "tokenizer.ggml.tokens"),
                     *types = draft_find(d, "tokenizer.ggml.token_type"),
                     *scores = draft_find(d, "tokenizer.ggml.scores");
    const float score = -1e3f;
    if (!types) {
        types = draft_add(d, "tokenizer.ggml.token_type", GGUF_ARRAY, "", 0);
        types->element = GGUF_I32;
        for (uint64_t i = 0; i < texts->count; i++) str_append_n(&types->value, &(int32_t){ NORMAL }, 4);
    }
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
        draft_put_text(texts, TEXTS[i], strlen(TEXTS[i]));
        str_append_n(&types->value, &(int32_t){ i < 3 ? CONTROL : USER_DEFINED }, 4);
        if (scores) str_append_n(&scores->value, &score, sizeof score);
        texts->count++;
    }
    types->count = texts->count;
    if (scores) scores->count = texts->count;
}

static const struct vocabulary *vocabulary_get(size_t i)
{
    static struct vocabulary all[COUNT_OF(VOCABULARIES)];
    static struct draft d;
    struct vocabulary *v = &all[i];
    struct script s = { VOCABULARIES[i].model, sizeof VOCABULARIES[i].model };
    struct err why = { 0 };
    if (v->t) return v;
    memset(&d, 0, sizeof d);
    draft_model(&d, &s);
    add_special(&d);
    draft_write(&d, &v->file);
    draft_free(&d);
    if (gguf_open_memory(&v->g, v->file.data, v->file.len, &why) || tokenizer_open(&v->t, v->g, &why)) {
        fprintf(stderr, "%s: %s\n", VOCABULARIES[i].what, why.message);
        abort();
    }
    return v;
}

static void must_come_back(const struct tokenizer *t, const struct token_list *ids, const struct str *text,
                           const char *what)
{
    struct str back = { 0 };
    struct err why = { 0 };
    if (tokenizer_decode(t, ids->ids, ids->n, true, &back, &why)) abort();
    if (back.len != text->len || memcmp(str_text(&back), str_text(text), text->len)) {
        fprintf(stderr, "%s: %zu bytes became %lld ids and then %zu bytes\n", what, text->len,
                (long long)ids->n, back.len);
        abort();
    }
    str_free(&back);
}

static void use(const uint8_t *data, size_t size)
{
    struct script s = { data, size };
    const size_t which = script_below(&s, COUNT_OF(VOCABULARIES));
    const uint8_t how = (uint8_t)script_number(&s, 1);
    const struct vocabulary *v = vocabulary_get(which);
    struct str text = { 0 };
    str_append_n(&text, s.at, s.left);
    while (how & 4 && s.left && text.len < REPEATED)
        str_append_n(&text, s.at, MIN(s.left, REPEATED - text.len));
    struct token_list ids = { 0 };
    struct err why = { 0 };
    const enum err_code rc = tokenizer_encode(v->t, str_text(&text), text.len, how & TOKENIZE_SPECIAL, &ids,
                                              &why);
    if (rc && (rc != ERR_FORMAT || !strstr(why.message, "too long"))) abort(); /* PCRE2's limits */
    const bool spaces = memmem(str_text(&text), text.len, "\xe2\x96\x81", 3) != NULL;
    if (!rc && VOCABULARIES[which].whole && (which || !spaces))
        must_come_back(v->t, &ids, &text, VOCABULARIES[which].what);
    token_list_free(&ids);
    str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < COUNT_OF(VOCABULARIES); i++) vocabulary_get(i);
    return cost_run(use, data, size, &CEILING);
}
