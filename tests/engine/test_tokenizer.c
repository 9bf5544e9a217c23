/* Proves: ids agree with recorded cases of six vocabularies and of the trained models; encoding and decoding
 * returns the same bytes, also for invalid UTF-8; special tokens are parsed only on request; time grows
 * linearly with the text; threads can share a tokenizer; damaged metadata is refused with the key in the
 * message. */
#include <pthread.h>
#include <time.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "engine/text/text_internal.h"
#include "kernels/kernels.h"
#include "tests/check.h"

enum { SECONDS_OF_SANITIZED = 2 }; /* processor time; what is measured takes a hundredth, sanitized a fifth */

static char *read_all(const char *path, size_t *n)
{
    struct err why = { 0 };
    char *text;
    CHECK_OK(file_read(&text, n, path, 64 << 20, &why));
    return text;
}

/* A tokenizer with its file. */
struct opened {
    struct gguf *g;
    struct tokenizer *t;
};

static struct opened open_model(const char *path)
{
    struct err why = { 0 };
    struct opened o;
    CHECK_OK(gguf_open(&o.g, path, &why));
    CHECK_OK(tokenizer_open(&o.t, o.g, &why));
    return o;
}

static void close_model(struct opened o)
{
    tokenizer_close(o.t);
    gguf_close(o.g);
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    CHECK_OK(tokenizer_encode(t, text, n, flags, &l, &why));
    return l;
}

static void expect_ids(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                       const int32_t *ids, int64_t count)
{
    struct token_list l = encode(t, text, n, flags);
    bool same = l.n == count && (!count || !memcmp(l.ids, ids, (size_t)count * sizeof *ids));
    if (!same) {
        struct str s = { 0 };
        for (int64_t i = 0; i < l.n && i < 40; i++) str_printf(&s, " %d", l.ids[i]);
        str_append(&s, ", want");
        for (int64_t i = 0; i < count && i < 40; i++) str_printf(&s, " %d", ids[i]);
        fail_msg("'%.*s' gives%s", (int)n, text, str_text(&s));
    }
    token_list_free(&l);
}

static void expect_back(const struct tokenizer *t, const char *text, size_t n)
{
    struct err why = { 0 };
    struct str s = { 0 };
    struct token_list l = encode(t, text, n, 0);
    CHECK_OK(tokenizer_decode(t, l.ids, l.n, false, &s, &why));
    size_t same = 0;
    while (same < n && same < s.len && s.data[same] == text[same]) same++;
    if (s.len != n || same != n)
        fail_msg("'%.*s' comes back as '%s': %zu and %zu bytes, alike to %zu", (int)n, text, str_text(&s), n,
                 s.len, same);
    str_free(&s);
    token_list_free(&l);
}

/* ---------------------------------------------------------------- recorded cases */

static int32_t parse_ids(const char *line, int32_t *ids, int32_t cap)
{
    int32_t n = 0;
    for (char *end; n < cap; line = end) {
        long id = strtol(line, &end, 10);
        if (end == line) return n;
        ids[n++] = (int32_t)id;
    }
    fail_msg("more than %d ids in a line", cap);
    return 0;
}

/* Run NAME.inp against NAME.out; returns how many cases there were. */
static int run_cases(const struct tokenizer *t, const char *name, bool back)
{
    static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";
    static int32_t ids[8192];
    char inp[4096], out[4096];
    size_t inp_n, out_n;
    int cases = 0;
    data_path(inp, sizeof inp, "models/vocab/%s.inp", name);
    data_path(out, sizeof out, "models/vocab/%s.out", name);
    char *text = read_all(inp, &inp_n), *lines = read_all(out, &out_n), *line = lines;
    for (char *p = text; p; cases++) {
        char *next = memmem(p, inp_n - (size_t)(p - text), SEPARATOR, sizeof SEPARATOR - 1);
        size_t n = next ? (size_t)(next - p) : inp_n - (size_t)(p - text);
        char *line_end = line + strcspn(line, "\n");
        bool last = *line_end == '\0';
        *line_end = '\0';
        expect_ids(t, p, n, 0, ids, parse_ids(line, ids, 8192));
        if (back) expect_back(t, p, n);
        line = line_end + !last;
        p = next ? next + sizeof SEPARATOR - 1 : NULL;
    }
    CHECK_EQ(*line, '\0');
    free(text);
    free(lines);
    return cases;
}

static void recorded_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *file, *kind, *pre;
    } FILES[] = { { "ggml-vocab-gpt-2.gguf", "bpe", "gpt-2" },
                  { "ggml-vocab-llama-spm.gguf", "spm", "" },
                  { "ggml-vocab-phi-3.gguf", "spm", "" },
                  { "ggml-vocab-starcoder.gguf", "bpe", "starcoder" },
                  { "ggml-vocab-mpt.gguf", "bpe", "mpt" } };
    for (size_t i = 0; i < COUNT_OF(FILES); i++) {
        char path[4096], name[128];
        struct tokenizer_info info;
        snprintf(name, sizeof name, "models/vocab/%s", FILES[i].file);
        SHARED_OR_SKIP(path, name);
        struct opened o = open_model(path);
        tokenizer_describe(o.t, &info);
        assert_string_equal(info.kind, FILES[i].kind);
        assert_string_equal(info.pre, FILES[i].pre);
        int cases = run_cases(o.t, FILES[i].file, true);
        print_message("%s: %d cases agree\n", FILES[i].file, cases);
        CHECK_LT(40, cases);
        close_model(o);
    }
}

/* vocab.json and merges.txt as a GGUF made by our own writer. */
static void write_qwen2(const char *path, const char *vocab_path, const char *merges_path)
{
    struct err why = { 0 };
    size_t n, merges_n;
    char *text = read_all(vocab_path, &n), *merges = read_all(merges_path, &merges_n);
    json_t *vocab, *id;
    const char *word;
    CHECK_OK(json_parse(&vocab, text, n, &why));
    size_t count = json_object_size(vocab) + 3, rules = 0;
    struct gguf_string *tokens = calloc(count, sizeof *tokens), *lines = calloc(merges_n / 2, sizeof *lines);
    int32_t *types = calloc(count, sizeof *types);
    json_object_foreach(vocab, word, id)
        tokens[json_integer_value(id)] = (struct gguf_string){ word, strlen(word) };
    static const char *const SPECIALS[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    for (size_t i = 0; i < count; i++) types[i] = i < count - 3 ? 1 : 3;
    for (size_t i = 0; i < 3; i++)
        tokens[count - 3 + i] = (struct gguf_string){ SPECIALS[i], strlen(SPECIALS[i]) };
    for (char *p = merges, *end; *p; p = end + (*end == '\n')) {
        end = p + strcspn(p, "\n");
        if (end > p && strncmp(p, "#version", 8))
            lines[rules++] = (struct gguf_string){ p, (size_t)(end - p) };
    }
    struct gguf_writer *w;
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_put_string(w, "tokenizer.ggml.pre", "qwen2");
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", tokens, count);
    gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, count);
    gguf_writer_put_strings(w, "tokenizer.ggml.merges", lines, rules);
    gguf_writer_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)count - 1);
    CHECK_OK(gguf_writer_commit(w, &why));
    json_decref(vocab);
    free(tokens);
    free(lines);
    free(types);
    free(text);
    free(merges);
}

static void qwen2(void **state)
{
    (void)state;
    char vocab[4096], merges[4096], path[4096];
    SHARED_OR_SKIP(vocab, "models/vocab/qwen2/vocab.json");
    SHARED_OR_SKIP(merges, "models/vocab/qwen2/merges.txt");
    snprintf(path, sizeof path, "%s/tests/qwen2-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    write_qwen2(path, vocab, merges);
    struct opened o = open_model(path);
    unlink(path);
    int cases = run_cases(o.t, "ggml-vocab-qwen2.gguf", true);
    print_message("qwen2: %d cases agree\n", cases);
    CHECK_LT(40, cases);
    static const int32_t CHAT[] = { 151644, 872, 198, 13048, 151645 };
    expect_ids(o.t, "<|im_start|>user\nHi<|im_end|>", 29, TOKENIZE_SPECIAL, CHAT, 5);
    struct token_list plain = encode(o.t, "<|im_end|>", 10, 0);
    for (int64_t i = 0; i < plain.n; i++)
        CHECK_LT(plain.ids[i], 151643); /* text cannot write control tokens */
    token_list_free(&plain);
    close_model(o);
}

/* The same vocabulary cut into words in five ways; ids as llama.cpp gives them for the same files. */
static void pre_tokenizers(void **state)
{
    (void)state;
    static const char TEXT[] = "I'll'VE 12345 a1b2\n\n  x\t\ty!?=...\r\n 3.14\xe4\xbd\xa0\xe5\xa5\xbd  ";
    static const struct {
        const char *pre;
        int32_t n, ids[40];
    } CASES[] = {
        { "gpt-2",
          30,
          { 40, 1183,  6,  6089, 17031, 2231, 257, 16, 65,   17,    628, 220,   2124, 197, 197,
            88, 22857, 28, 986,  201,   198,  513, 13, 1415, 19526, 254, 25001, 121,  220, 220 } },
        { "default", 33, { 40,  6,   297, 6,    6089, 220,   10163, 2231,  257, 16,  65,
                           17,  628, 220, 2124, 197,  197,   88,    22857, 28,  986, 201,
                           198, 220, 18,  13,   1415, 19526, 254,   25001, 121, 220, 220 } },
        { "llama-bpe", 32, { 40,  1183, 6,    6089, 220,   10163, 2231,  257, 16,  65,  17,
                             628, 220,  2124, 197,  197,   88,    22857, 28,  986, 201, 198,
                             220, 18,   13,   1415, 19526, 254,   25001, 121, 220, 220 } },
        { "qwen2", 36, { 40,  1183, 6,   6089, 220,  16,  17,    18,  19,    20,  257, 16,
                         65,  17,   628, 220,  2124, 197, 197,   88,  22857, 28,  986, 201,
                         198, 220,  18,  13,   16,   19,  19526, 254, 25001, 121, 220, 220 } },
        { "starcoder", 36, { 40,  1183, 6,   6089, 220,  16,  17,    18,  19,    20,  257, 16,
                             65,  17,   628, 220,  2124, 197, 197,   88,  22857, 28,  986, 201,
                             198, 220,  18,  13,   16,   19,  19526, 254, 25001, 121, 220, 220 } },
    };
    char path[4096], copy[4096];
    struct err why = { 0 };
    struct gguf *g;
    SHARED_OR_SKIP(path, "models/vocab/ggml-vocab-gpt-2.gguf");
    snprintf(copy, sizeof copy, "%s/tests/pre-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    CHECK_OK(gguf_open(&g, path, &why));
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct gguf_writer *w;
        CHECK_OK(gguf_writer_open(&w, copy, &why));
        for (int64_t k = 0; k < gguf_kv_count(g); k++)
            if (!gguf_string_is(gguf_kv_at(g, k)->key, "tokenizer.ggml.pre"))
                gguf_writer_copy_kv(w, gguf_kv_at(g, k));
        gguf_writer_put_string(w, "tokenizer.ggml.pre", CASES[i].pre);
        CHECK_OK(gguf_writer_commit(w, &why));
        struct opened o = open_model(copy);
        expect_ids(o.t, TEXT, sizeof TEXT - 1, 0, CASES[i].ids, CASES[i].n);
        expect_back(o.t, TEXT, sizeof TEXT - 1);
        close_model(o);
    }
    unlink(copy);
    gguf_close(g);
}

static void trained_models(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t n, ids[12];
    } CASES[] = {
        { "models/stories260K/stories260K-f32.gguf", /* GGUF version 1 */
          192,
          { 1, 301, 427, 309, 426, 301, 427, 309, 394, 265, 262, 415 } },
        { "models/repacked/stories260K-f32.gguf",
          192,
          { 1, 301, 427, 309, 426, 301, 427, 309, 394, 265, 262, 415 } },
        { "models/repacked/tinystories-656k-f32.gguf",
          80,
          { 1, 80, 1030, 1063, 677, 1169, 237, 624, 1681, 1005, 490, 545 } },
    };
    char path[4096];
    size_t n;
    SHARED_OR_SKIP(path, "text/tinystories-valid-excerpt.txt");
    char *text = read_all(path, &n);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        SHARED_OR_SKIP(path, CASES[i].model);
        struct opened o = open_model(path);
        struct token_list l = encode(o.t, text, 400, TOKENIZE_ADD_BOS);
        assert_int_equal(l.n, CASES[i].n + 1);
        assert_memory_equal(l.ids, CASES[i].ids, sizeof CASES[i].ids);
        token_list_free(&l);
        close_model(o);
    }
    free(text);
}

static void without_merges(void **state)
{
    (void)state;
    char path[4096], corpus[4096];
    size_t n;
    SHARED_OR_SKIP(path, "models/repacked/slm-4096-gpt2-f32.gguf");
    SHARED_OR_SKIP(corpus, "models/slm-4096/corpus.txt");
    char *text = read_all(corpus, &n);
    struct opened o = open_model(path);
    struct token_list l = encode(o.t, text, n, TOKENIZE_ADD_BOS);
    assert_int_equal(l.n, n); /* a token a character, no BOS */
    token_list_free(&l);
    expect_back(o.t, text, n);
    close_model(o);
    free(text);
}

/* ---------------------------------------------------------------- bytes, spaces, specials */

static void any_bytes(void **state)
{
    (void)state;
    static const char *const FILES[] = { "models/vocab/ggml-vocab-gpt-2.gguf",
                                         "models/vocab/ggml-vocab-llama-spm.gguf" };
    for (size_t f = 0; f < COUNT_OF(FILES); f++) {
        char path[4096], all[256 * 3];
        SHARED_OR_SKIP(path, FILES[f]);
        struct opened o = open_model(path);
        for (int i = 0; i < 256; i++)
            all[3 * i] = (char)i, all[3 * i + 1] = (char)(i * 7), all[3 * i + 2] = 'e';
        expect_back(o.t, all, sizeof all);
        static const char *const TEXTS[] = { "",
                                             " ",
                                             "  ",
                                             " a",
                                             "a ",
                                             "\n",
                                             "\xff\xfe",
                                             "\xe2\x96",
                                             "a\xe2\x96\x20",
                                             "\xf0\x9f\x98",
                                             "\xc3\xa9\xc3",
                                             "\xed\xa0\x80x" };
        for (size_t i = 0; i < COUNT_OF(TEXTS); i++) expect_back(o.t, TEXTS[i], strlen(TEXTS[i]));
        uint32_t seed = 1;
        for (int round = 0; round < 300; round++) {
            char bytes[64];
            for (size_t i = 0; i < sizeof bytes; i++) {
                seed = seed * 1664525u + 1013904223u;
                bytes[i] = (char)(seed >> 24);
            }
            expect_back(o.t, bytes, 1 + (size_t)round % sizeof bytes);
        }
        close_model(o);
    }
}

static void special_tokens(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, "models/vocab/ggml-vocab-llama-spm.gguf");
    struct opened o = open_model(path);
    struct err why = { 0 };
    struct str s = { 0 };
    static const int32_t FRAMED[] = { 1, 15043, 3186 }, PARSED[] = { 1, 15043, 2, 3186 };
    expect_ids(o.t, "Hello world", 11, TOKENIZE_ADD_BOS, FRAMED, 3);
    expect_ids(o.t, "<s>Hello</s>world", 17, TOKENIZE_SPECIAL, PARSED, 4);
    CHECK_OK(tokenizer_decode(o.t, PARSED, 4, true, &s, &why));
    assert_string_equal(str_text(&s), "<s>Hello</s>world");
    str_clear(&s);
    CHECK_OK(tokenizer_decode(o.t, PARSED, 4, false, &s, &why));
    assert_string_equal(str_text(&s), "Helloworld");
    str_clear(&s);
    CHECK_OK(tokenizer_piece(o.t, 15043, false, &s, &why)); /* one id: its space is part of it */
    assert_string_equal(str_text(&s), " Hello");
    assert_int_equal(tokenizer_piece(o.t, 32000, false, &s, &why), ERR_USAGE);
    assert_int_equal(tokenizer_piece(o.t, -1, false, &s, &why), ERR_USAGE);
    struct token_list l = encode(o.t, "<s>", 3, 0);
    for (int64_t i = 0; i < l.n; i++) CHECK_LT(2, l.ids[i]);
    token_list_free(&l);
    str_free(&s);
    close_model(o);
}

enum { SPECIALS = 12, SPECIAL_TEXT = 60 };

static bool special_is_even(const void *ctx, int32_t id)
{
    (void)ctx;
    return id % 2 == 0;
}

/* The definition: each token in its order takes all bytes that no other has taken. owner [n]: its id, or -1.
 */
static void cut_out_one_by_one(const struct gguf_string *texts, const int32_t *ids, const char *text,
                               size_t n, bool control, int32_t *owner)
{
    for (size_t i = 0; i < n; i++) owner[i] = -1;
    for (int k = 0; k < SPECIALS; k++) {
        const struct gguf_string token = texts[ids[k]];
        if (!control && special_is_even(NULL, ids[k])) continue;
        for (size_t at = 0; at + token.len <= n; at++) {
            bool hit = !memcmp(text + at, token.data, token.len);
            for (size_t i = at; i < at + token.len && hit; i++) hit = owner[i] < 0;
            for (size_t i = at; i < at + token.len && hit; i++) owner[i] = ids[k];
        }
    }
}

static int longest_first(const void *a, const void *b, void *texts)
{
    const struct gguf_string *t = texts;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return t[x].len != t[y].len ? (t[x].len < t[y].len ? 1 : -1) : (x > y) - (x < y);
}

/* Tokens that overlap, repeat and contain each other, in texts of two letters. */
static void special_tokens_are_cut_out_in_their_order(void **state)
{
    (void)state;
    uint64_t word = 1;
    for (int round = 0; round < 3000; round++) {
        char letters[SPECIALS][8], text[SPECIAL_TEXT];
        struct gguf_string texts[SPECIALS];
        int32_t ids[SPECIALS], want[SPECIAL_TEXT];
        struct arena memory = { 0 };
        struct specials x;
        struct special_hit *hits;
        size_t count;
        for (int k = 0; k < SPECIALS; k++) {
            word = word * 6364136223846793005u + 1442695040888963407u;
            texts[k] = (struct gguf_string){ letters[k], 1 + (word >> 40) % (1 + (size_t)round % 6) };
            for (size_t i = 0; i < sizeof letters[k]; i++) letters[k][i] = "ab"[word >> (41 + i) & 1];
            ids[k] = k;
        }
        for (size_t i = 0; i < sizeof text; i++) {
            word = word * 6364136223846793005u + 1442695040888963407u;
            text[i] = "abc"[(word >> 40) % (round % 2 ? 2 : 3)];
        }
        qsort_r(ids, SPECIALS, sizeof *ids, longest_first, texts);
        CHECK(specials_init(&x, &memory, texts, ids, SPECIALS, special_is_even, NULL));
        for (int control = 0; control < 2; control++) {
            cut_out_one_by_one(texts, ids, text, sizeof text, control, want);
            CHECK(specials_find(&x, text, sizeof text, control, NULL, &hits, &count));
            for (size_t k = 0; k < count; k++)
                for (size_t i = 0; i < texts[hits[k].id].len; i++) {
                    CHECK_EQ(want[hits[k].at + i], hits[k].id);
                    want[hits[k].at + i] = -1;
                }
            for (size_t i = 0; i < sizeof text; i++) CHECK_EQ(want[i], -1);
            free(hits);
        }
        arena_free(&memory);
    }
}

/* ---------------------------------------------------------------- size */

static double cpu_seconds(void)
{
    struct timespec t;
    CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t));
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct opened open_list(const struct gguf_string *texts, const struct gguf_string *merges,
                               const int32_t *types, uint64_t tokens, uint64_t rules)
{
    char path[4096];
    struct err why = { 0 };
    struct gguf_writer *w;
    snprintf(path, sizeof path, "%s/tests/tokenizer-list-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", texts, tokens);
    if (types) gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, tokens);
    if (rules) gguf_writer_put_strings(w, "tokenizer.ggml.merges", merges, rules);
    CHECK_OK(gguf_writer_commit(w, &why));
    const struct opened o = open_model(path);
    unlink(path);
    return o;
}

/* Three letters of a number below 26^3. */
static void put_letters(char *at, int32_t number)
{
    for (int i = 0; i < 3; i++, number /= 26) at[i] = (char)('a' + number % 26);
}

/* Names the bug: merge rules were found with a hash without a key. These rules fill one run of its table:
 * twenty billion comparisons while the file is opened. */
static void rules_that_shared_a_run_of_the_table_cost_no_more_than_others(void **state)
{
    (void)state;
    enum { WORDS = 26 * 26 * 26, RULES = 200000, SLOTS = 1 << 19, RUN = SLOTS / 64 };
    struct gguf_string *texts = calloc(WORDS + RULES, sizeof *texts), *merges = calloc(RULES, sizeof *merges);
    char(*words)[3] = calloc(WORDS, sizeof *words), (*joined)[6] = calloc(RULES, sizeof *joined),
    (*rules)[7] = calloc(RULES, sizeof *rules);
    CHECK(texts);
    CHECK(merges);
    CHECK(words);
    CHECK(joined);
    CHECK(rules);
    for (int32_t i = 0; i < WORDS; i++) {
        put_letters(words[i], i);
        texts[i] = (struct gguf_string){ words[i], 3 };
    }
    int32_t n = 0;
    for (uint64_t left = 0; left < WORDS && n < RULES; left++)
        for (uint64_t right = 0; right < 4096 && n < RULES; right++) {
            const uint64_t h = (left << 32 | right) * 0x9e3779b97f4a7c15u;
            if ((h >> 20) % SLOTS >= RUN) continue;
            put_letters(joined[n], (int32_t)left);
            put_letters(joined[n] + 3, (int32_t)right);
            memcpy(rules[n], words[left], 3);
            rules[n][3] = ' ';
            memcpy(rules[n] + 4, words[right], 3);
            texts[WORDS + n] = (struct gguf_string){ joined[n], 6 };
            merges[n] = (struct gguf_string){ rules[n], 7 };
            n++;
        }
    CHECK_EQ(n, RULES);
    const double from = cpu_seconds();
    struct opened o = open_list(texts, merges, NULL, WORDS + RULES, RULES);
    CHECK_LT(cpu_seconds() - from, SECONDS_OF_SANITIZED);
    close_model(o);
    free(texts), free(merges), free(words), free(joined), free(rules);
}

/* Names the bug: the text was searched once for every special token of the file. */
static void many_special_tokens_do_not_multiply_the_length_of_a_text(void **state)
{
    (void)state;
    enum { TOKENS = 60000, N = 1 << 20, USER_DEFINED = 4 };
    struct gguf_string *texts = calloc(TOKENS, sizeof *texts);
    int32_t *types = calloc(TOKENS, sizeof *types);
    char(*words)[8] = calloc(TOKENS, sizeof *words), *text = malloc(N);
    CHECK(texts);
    CHECK(types);
    CHECK(words);
    CHECK(text);
    for (int32_t i = 0; i < TOKENS; i++) {
        texts[i] = (struct gguf_string){ words[i], (size_t)snprintf(words[i], sizeof *words, "<%d>", i) };
        types[i] = USER_DEFINED;
    }
    memset(text, '<', N);
    for (size_t i = 0; i + 8 < N; i += 16) memcpy(text + i, words[i % TOKENS], strlen(words[i % TOKENS]));
    struct opened o = open_list(texts, NULL, types, TOKENS, 0);
    const double from = cpu_seconds();
    struct token_list l = encode(o.t, text, N, 0);
    CHECK_LT(cpu_seconds() - from, SECONDS_OF_SANITIZED);
    CHECK_EQ(l.n, N / 16);
    token_list_free(&l);
    close_model(o);
    free(texts), free(types), free(words), free(text);
}

static double encode_seconds(const struct tokenizer *t, const char *text, size_t n)
{
    int64_t from = clock_ns();
    struct token_list l = encode(t, text, n, 0);
    double s = (double)(clock_ns() - from) * 1e-9;
    CHECK_LT(0, l.n);
    token_list_free(&l);
    return s;
}

/* A run of spaces without an end of line costs a backtracking step each. */
static void more_steps_than_allowed_are_an_error_of_the_text(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct pretokenizer *p;
    const size_t n = 24 << 20;
    size_t *ends, count;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, ' ', n);
    text[n - 1] = 'x';
    CHECK_OK(pretokenizer_open(&p, (struct gguf_string){ "llama-bpe", 9 }, &why));
    CHECK_EQ(pretokenizer_split(p, text, n, &ends, &count, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "run of spaces that is too long");
    CHECK(!ends);
    pretokenizer_close(p);
    free(text);
}

static void a_megabyte(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static const char *const FILES[] = { "models/vocab/ggml-vocab-gpt-2.gguf",
                                         "models/vocab/ggml-vocab-llama-spm.gguf",
                                         "models/vocab/ggml-vocab-mpt.gguf" };
    char path[4096];
    size_t n;
    SHARED_OR_SKIP(path, "text/wikitext-2-raw-test.txt");
    char *text = read_all(path, &n), *same = malloc(N);
    CHECK_LT(N, n);
    for (size_t f = 0; f < COUNT_OF(FILES); f++) {
        SHARED_OR_SKIP(path, FILES[f]);
        struct opened o = open_model(path);
        double prose = encode_seconds(o.t, text, N), worst = 0;
        static const char FILL[] = "a \n\xff";
        for (size_t i = 0; i < sizeof FILL - 1;
             i++) { /* words without an end: quadratic merging would take hours */
            memset(same, FILL[i], N);
            worst = MAX(worst, encode_seconds(o.t, same, N));
        }
        print_message("%s: 1 MiB of prose %.2f s, of one character at worst %.2f s\n", FILES[f], prose,
                      worst);
        CHECK_LT(prose, 20);
        CHECK_LT(worst, 60); /* a sanitized build on a busy machine; plain ones need a tenth */
        close_model(o);
    }
    free(same);
    free(text);
}

/* ---------------------------------------------------------------- shared between threads */

struct shared_job {
    const struct tokenizer *t;
    const char *text;
    size_t n;
    struct token_list ids;
    bool back;
};

static void *encode_and_decode(void *arg)
{
    struct shared_job *job = arg;
    struct str s = { 0 };
    job->back = !tokenizer_encode(job->t, job->text, job->n, 0, &job->ids, NULL) &&
                !tokenizer_decode(job->t, job->ids.ids, job->ids.n, false, &s, NULL) && s.len == job->n &&
                !memcmp(str_text(&s), job->text, job->n);
    str_free(&s);
    return NULL;
}

static void shared_by_threads(void **state)
{
    (void)state;
    static const char *const FILES[] = { "models/vocab/ggml-vocab-gpt-2.gguf",
                                         "models/vocab/ggml-vocab-llama-spm.gguf" };
    char path[4096];
    size_t n;
    SHARED_OR_SKIP(path, "text/gpt2-basic-domain.txt");
    char *text = read_all(path, &n);
    for (size_t f = 0; f < COUNT_OF(FILES); f++) {
        SHARED_OR_SKIP(path, FILES[f]);
        struct opened o = open_model(path);
        struct shared_job jobs[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            jobs[i] = (struct shared_job){ .t = o.t, .text = text, .n = n };
            assert_int_equal(pthread_create(&threads[i], NULL, encode_and_decode, &jobs[i]), 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++) {
            CHECK(jobs[i].back);
            CHECK_EQ(jobs[i].ids.n, jobs[0].ids.n);
            assert_memory_equal(jobs[i].ids.ids, jobs[0].ids.ids, (size_t)jobs[0].ids.n * sizeof(int32_t));
        }
        for (int i = 0; i < 4; i++) token_list_free(&jobs[i].ids);
        close_model(o);
    }
    free(text);
}

/* ---------------------------------------------------------------- damaged metadata */

static void expect_refused(const char *model, const char *pre, int tokens, int scores, int64_t bos,
                           enum err_code code, const char *message)
{
    static const struct gguf_string WORDS[] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 }, { "a", 1 } };
    static const float SCORES[8] = { 0 };
    char path[4096];
    struct err why = { 0 };
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    snprintf(path, sizeof path, "%s/tests/tokenizer-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    CHECK_OK(gguf_writer_open(&w, path, &why));
    if (model) gguf_writer_put_string(w, "tokenizer.ggml.model", model);
    if (pre) gguf_writer_put_string(w, "tokenizer.ggml.pre", pre);
    if (tokens) gguf_writer_put_strings(w, "tokenizer.ggml.tokens", WORDS, (uint64_t)tokens);
    if (scores) gguf_writer_put_array(w, "tokenizer.ggml.scores", GGUF_F32, SCORES, (uint64_t)scores);
    if (bos >= 0) gguf_writer_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    enum err_code rc = tokenizer_open(&t, g, &why);
    if (rc != code || (rc && !strstr(why.message, message)))
        fail_msg("want %d with '%s', got %d '%s'", code, message, rc, why.message);
    tokenizer_close(t);
    gguf_close(g);
    unlink(path);
}

static void refused(void **state)
{
    (void)state;
    expect_refused(NULL, NULL, 4, 4, -1, ERR_ABSENT, "no tokenizer");
    expect_refused("llama", NULL, 0, 0, -1, ERR_ABSENT, "no tokenizer");
    expect_refused("bert", NULL, 4, 4, -1, ERR_FORMAT, "'bert'");
    expect_refused("gpt2", "tekken-9", 4, 0, -1, ERR_FORMAT, "'tekken-9'");
    expect_refused("llama", NULL, 4, 3, -1, ERR_FORMAT, "expected 4 numbers");
    expect_refused("llama", NULL, 4, 4, 4, ERR_FORMAT, "bos_token_id is 4");
    expect_refused("llama", NULL, 4, 4, UINT32_MAX, ERR_OK, "");
    expect_refused("llama", NULL, 4, 0, 1, ERR_OK, "");
    expect_refused("gpt2", NULL, 4, 0, -1, ERR_OK, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_vocabularies),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(pre_tokenizers),
        cmocka_unit_test(trained_models),
        cmocka_unit_test(without_merges),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(more_steps_than_allowed_are_an_error_of_the_text),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(special_tokens_are_cut_out_in_their_order),
        cmocka_unit_test(rules_that_shared_a_run_of_the_table_cost_no_more_than_others),
        cmocka_unit_test(many_special_tokens_do_not_multiply_the_length_of_a_text),
        cmocka_unit_test(a_megabyte),
        cmocka_unit_test(shared_by_threads),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
