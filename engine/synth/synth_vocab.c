/* Makes a vocabulary of any size that tokenizes real text: bytes, characters, then all strings of letters,
 * frequent letters first. Each string results from merging a shorter one with its last letter. */
#include "engine/synth/synth_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

static const char LETTERS[] = "etaoinshrdlucmfwypvbgkjqxz"; /* by frequency in English */
enum { LETTER_COUNT = 26, WORD_MAX = 8 };

/* Enumerates all strings of letters by length; each length first without, then with a space in front. */
struct words {
    int digits[WORD_MAX];
    int len;
    bool behind_space;
};

static void words_next(struct words *w)
{
    for (int i = w->len - 1; i >= 0; i--) {
        if (++w->digits[i] < LETTER_COUNT) return;
        w->digits[i] = 0;
    }
    if (w->behind_space) w->len++; /* all digits are 0 again, the new one, too */
    w->behind_space = !w->behind_space;
}

/* Owned token texts. The pool contains their bytes; offsets become pointers when it no longer grows. */
struct token_pool {
    struct str bytes;
    struct gguf_string *texts; /* data is an offset until pool_finish */
    float *scores;
    int32_t *types;
    int64_t n, size;
};

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 }; /* tokenizer.ggml.token_type */

static bool pool_init(struct token_pool *p, int64_t size)
{
    *p = (struct token_pool){ .size = size };
    p->texts = calloc((size_t)size, sizeof *p->texts);
    p->scores = calloc((size_t)size, sizeof *p->scores);
    p->types = calloc((size_t)size, sizeof *p->types);
    return p->texts && p->scores && p->types;
}

static void pool_free(struct token_pool *p)
{
    str_free(&p->bytes);
    free(p->texts);
    free(p->scores);
    free(p->types);
}

static void pool_add(struct token_pool *p, const char *text, size_t n, int32_t type)
{
    if (p->n == p->size) return;
    p->texts[p->n] = (struct gguf_string){ (const char *)(uintptr_t)p->bytes.len, n };
    p->types[p->n++] = type;
    str_append_n(&p->bytes, text, n);
}

static bool pool_finish(struct token_pool *p)
{
    for (int64_t i = 0; i < p->n; i++) p->texts[i].data = str_text(&p->bytes) + (uintptr_t)p->texts[i].data;
    return !p->bytes.failed;
}

static size_t word_text(const struct words *w, const char *space, char *out)
{
    size_t n = w->behind_space ? strlen(space) : 0;
    memcpy(out, space, n);
    for (int i = 0; i < w->len; i++) out[n++] = LETTERS[w->digits[i]];
    return n;
}

static void writer_put_specials(struct gguf_writer *w, uint32_t bos, uint32_t eos)
{
    gguf_writer_put_u32(w, "tokenizer.ggml.bos_token_id", bos);
    gguf_writer_put_u32(w, "tokenizer.ggml.eos_token_id", eos);
}

static enum err_code too_small(int64_t size, int64_t least, struct err *why)
{
    return err_set(why, ERR_USAGE, "a vocabulary of %" PRId64 " is too small: expected at least %" PRId64,
                   size, least);
}

/* ---------------------------------------------------------------- SPM */

static const char SPM_SPACE[] = "\xe2\x96\x81"; /* U+2581 */
enum { SPM_CONTROL = 3, PRINTABLE = '~' - ' ', SPM_LEAST = SPM_CONTROL + 256 + PRINTABLE + 1 };

static void spm_fill(struct token_pool *p)
{
    char text[64];
    pool_add(p, "<unk>", 5, UNKNOWN);
    pool_add(p, "<s>", 3, CONTROL);
    pool_add(p, "</s>", 4, CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", b);
        pool_add(p, text, 6, BYTE);
    }
    pool_add(p, SPM_SPACE, strlen(SPM_SPACE), NORMAL);
    for (char c = '!'; c <= '~'; c++) pool_add(p, &c, 1, NORMAL);
    struct words w = { .len = 1, .behind_space = true }; /* single letters were added before */
    for (; p->n < p->size; words_next(&w)) pool_add(p, text, word_text(&w, SPM_SPACE, text), NORMAL);
    /* shorter strings come earlier and have better scores, so a string always forms from its prefix and last
     * letter */
    for (int64_t i = SPM_CONTROL + 256; i < p->n; i++) p->scores[i] = -(float)(i - SPM_CONTROL - 256);
}

enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why)
{
    struct token_pool p;
    if (size < SPM_LEAST) return too_small(size, SPM_LEAST, why);
    bool ok = pool_init(&p, size);
    if (ok) spm_fill(&p);
    ok = ok && pool_finish(&p);
    if (ok) {
        gguf_writer_put_string(w, "tokenizer.ggml.model", "llama");
        gguf_writer_put_string(w, "tokenizer.ggml.pre", "default");
        gguf_writer_put_strings(w, "tokenizer.ggml.tokens", p.texts, (uint64_t)size);
        gguf_writer_put_array(w, "tokenizer.ggml.scores", GGUF_F32, p.scores, (uint64_t)size);
        gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, p.types, (uint64_t)size);
        writer_put_specials(w, 1, 2);
        gguf_writer_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
        gguf_writer_put_bool(w, "tokenizer.ggml.add_bos_token", true);
        gguf_writer_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    }
    pool_free(&p);
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", size);
}

/* ---------------------------------------------------------------- BPE */

static const char BPE_SPACE[] = "\xc4\xa0"; /* U+0120, GPT-2's letter for the byte 32 */
static const char END_OF_TEXT[] = "<|endoftext|>";
enum { BPE_LEAST = 256 + 1 + LETTER_COUNT };

/* GPT-2's letters for the 256 bytes. */
static void bpe_bytes(struct token_pool *p)
{
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        char text[4];
        bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        pool_add(p, text, str_utf8_put(printable ? b : next++, text), NORMAL);
    }
}

/* Append the tokens after the bytes, each with its merge rule: "all but the last letter" + "last letter". */
static void bpe_words(struct token_pool *p, struct token_pool *rules)
{
    char text[64];
    struct words w = { .len = 1, .behind_space = true };
    for (; p->n < p->size - 1; words_next(&w)) {
        size_t n = word_text(&w, BPE_SPACE, text);
        pool_add(p, text, n, NORMAL);
        text[n] = text[n - 1];
        text[n - 1] = ' ';
        pool_add(rules, text, n + 1, NORMAL);
    }
    pool_add(p, END_OF_TEXT, strlen(END_OF_TEXT), CONTROL);
}

enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why)
{
    struct token_pool p, rules;
    if (size < BPE_LEAST) return too_small(size, BPE_LEAST, why);
    bool ok = pool_init(&p, size) & pool_init(&rules, size);
    if (ok) {
        bpe_bytes(&p);
        bpe_words(&p, &rules);
    }
    ok = ok && pool_finish(&p) && pool_finish(&rules);
    if (ok) {
        gguf_writer_put_string(w, "tokenizer.ggml.model", "gpt2");
        gguf_writer_put_string(w, "tokenizer.ggml.pre", pre);
        gguf_writer_put_strings(w, "tokenizer.ggml.tokens", p.texts, (uint64_t)size);
        gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, p.types, (uint64_t)size);
        gguf_writer_put_strings(w, "tokenizer.ggml.merges", rules.texts, (uint64_t)rules.n);
        writer_put_specials(w, (uint32_t)size - 1, (uint32_t)size - 1);
        gguf_writer_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    }
    pool_free(&p);
    pool_free(&rules);
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tokens", size);
}
