/* Proves: every architecture's file opens, tokenizes, loads and gives finite logits; the same options give
 * the same bytes with any number of threads; weights have the documented distribution, also where blocks are
 * drawn from a bank of encoded ones; every token of a
 * generated vocabulary is reachable; impossible options are refused and leave no file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "engine/synth/synth_internal.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static const char *const ARCHITECTURES[] = { "llama", "qwen2", "gpt2" };

static char *temp_path(char *buf, size_t size, const char *name)
{
    snprintf(buf, size, "%s/tests/synth-%d-%s.gguf", TEST_BUILD_DIR, (int)getpid(), name);
    return buf;
}

static struct synth_options options_of(const char *arch, const char *shape, enum format_id format)
{
    return (struct synth_options){
        .arch = arch, .shape = synth_shape_find(shape), .format = &FORMATS[format], .seed = 1, .threads = 2
    };
}

static void make(const char *path, const struct synth_options *o)
{
    struct err why = { 0 };
    CHECK_OK(synth_write(path, o, &why));
}

static void file_hash(const char *path, char hex[HASH_HEX])
{
    struct err why = { 0 };
    CHECK_OK(hash_file(path, hex, &why));
}

static void same_bytes(void **state)
{
    (void)state;
    char path[4096], one[HASH_HEX], other[HASH_HEX];
    temp_path(path, sizeof path, "same");
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_Q4_0);
        o.threads = 1;
        make(path, &o);
        file_hash(path, one);
        o.threads = 3;
        make(path, &o);
        file_hash(path, other);
        assert_string_equal(one, other);
        o.seed = 2;
        make(path, &o);
        file_hash(path, other);
        CHECK_STR_NE(one, other);
    }
    unlink(path);
}

static void noise_is_normal(void **state)
{
    (void)state;
    struct noise *n = malloc(sizeof *n);
    CHECK_NE(n, NULL);
    noise_init(n);
    double sum = 0, square = 0, fourth = 0;
    for (int i = 0; i < 65536; i++) {
        double x = n->quantile[i];
        CHECK(i == 0 || x > n->quantile[i - 1]);
        CHECK_NEAR(0.5 * erfc(-x / sqrt(2)), (i + 0.5) / 65536, 2e-6); /* it is the quantile it says */
        sum += x, square += x * x, fourth += x * x * x * x;
    }
    CHECK_NEAR(sum / 65536, 0, 1e-9);
    CHECK_NEAR(square / 65536, 1, 1e-3);
    CHECK_NEAR(fourth / 65536, 3, 1e-2);
    float a[1001], b[1001];
    noise_fill(n, (struct noise_stream){ 1, 2, 3 }, a, 1001, 0, 1);
    noise_fill(n, (struct noise_stream){ 1, 3, 2 }, b, 1001, 0, 1);
    double dot = 0;
    for (int i = 0; i < 1001; i++) dot += (double)a[i] * b[i] / 1001;
    CHECK_NEAR(dot, 0, 0.15); /* streams have nothing to do with each other: 1/sqrt(1001) = 0.03 */
    free(n);
}

static void weights(void **state)
{
    (void)state;
    char path[4096];
    struct err why = { 0 };
    struct gguf *g;
    struct synth_options o = options_of("llama", "tiny", FORMAT_F32);
    make(temp_path(path, sizeof path, "weights"), &o);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK(gguf_get_bool(g, "qdyno.synthetic", false));
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.2.ffn_down.weight");
    CHECK(t);
    CHECK_EQ(t->shape[0], 512);
    CHECK_EQ(t->shape[1], 256);
    double sum = 0, square = 0;
    int64_t n = t->bytes / 4;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, 4);
        sum += x, square += (double)x * x;
    }
    CHECK_NEAR(sum / (double)n, 0, 5e-4); /* 1/sqrt(512)/sqrt(131072) = 1.2e-4 */
    CHECK_NEAR(square / (double)n * 512, 1, 0.02);
    gguf_close(g);
    unlink(path);
}

static void falls_back_to_f16(void **state)
{
    (void)state;
    static const struct synth_shape ODD = { .name = "odd",
                                            .layers = 1,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .embd = 40,
                                            .ff = 96,
                                            .vocab = 512,
                                            .ctx = 64,
                                            .tied = false,
                                            .help = "" };
    char path[4096];
    struct err why = { 0 };
    struct gguf *g;
    struct synth_options o = options_of("llama", "tiny", FORMAT_Q8_0);
    o.shape = &ODD;
    make(temp_path(path, sizeof path, "odd"), &o);
    CHECK_OK(gguf_open(&g, path, &why));
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.ffn_up.weight")->format,
                     &FORMATS[FORMAT_F16]); /* rows of 40 */
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.ffn_down.weight")->format,
                     &FORMATS[FORMAT_Q8_0]); /* rows of 96 */
    CHECK(gguf_tensor_find(g, "output.weight"));
    CHECK_NEAR(gguf_tensor_find(g, "blk.0.attn_k.weight")->shape[1], 20, 0);
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.attn_norm.weight")->format, &FORMATS[FORMAT_F32]);
    gguf_close(g);
    unlink(path);
}

/* ---------------------------------------------------------------- banks of encoded blocks */

/* Enough rows of 512 for a bank; rows of 2048 are too few for one. */
static const struct synth_shape WIDE = { .name = "wide",
                                         .layers = 1,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .embd = 512,
                                         .ff = 2048,
                                         .vocab = 8192,
                                         .ctx = 64,
                                         .tied = false,
                                         .help = "" };

struct moments {
    double mean, square, fourth; /* of the weights */
    double entropy;              /* bits in a byte of the blocks */
};

static void moments_of(struct moments *out, const struct format *f, const void *rows, int64_t count,
                       int64_t cols)
{
    float *x = malloc((size_t)(count * cols) * sizeof *x);
    CHECK_NE(x, NULL);
    format_decode_rows(f, rows, x, count, cols);
    *out = (struct moments){ 0 };
    const double n = (double)(count * cols);
    for (int64_t i = 0; i < count * cols; i++) {
        const double square = (double)x[i] * x[i];
        out->mean += x[i] / n;
        out->square += square / n;
        out->fourth += square * square / n;
    }
    free(x);
    int64_t seen[256] = { 0 }, bytes = count * format_row_bytes(f, cols);
    for (int64_t i = 0; i < bytes; i++) seen[((const uint8_t *)rows)[i]]++;
    for (int b = 0; b < 256; b++) {
        const double p = (double)seen[b] / (double)bytes;
        if (p > 0) out->entropy -= p * log2(p);
    }
}

static int64_t block_size; /* for qsort */

static int block_order(const void *a, const void *b)
{
    return memcmp(a, b, (size_t)block_size);
}

static int64_t count_distinct(const struct format *f, const struct gguf_tensor *t)
{
    unsigned char *copy = malloc((size_t)t->bytes);
    CHECK_NE(copy, NULL);
    memcpy(copy, t->data, (size_t)t->bytes);
    block_size = f->block_bytes;
    const int64_t n = t->bytes / block_size;
    qsort(copy, (size_t)n, (size_t)block_size, block_order);
    int64_t distinct = 1;
    for (int64_t i = 1; i < n; i++)
        distinct += memcmp(copy + i * block_size, copy + (i - 1) * block_size, (size_t)block_size) != 0;
    free(copy);
    return distinct;
}

/* The largest correlation of one of the first rows with the next. */
static double row_correlation(const struct format *f, const struct gguf_tensor *t)
{
    enum { COLS = 512, ROWS = 16 };
    float x[2][COLS];
    double worst = 0;
    for (int r = 0; r < ROWS; r++) {
        double dot = 0, a = 0, b = 0;
        for (int i = 0; i < 2; i++)
            format_decode_rows(f, t->data + (r + i) * format_row_bytes(f, COLS), x[i], 1, COLS);
        for (int i = 0; i < COLS; i++) {
            dot += (double)x[0][i] * x[1][i];
            a += (double)x[0][i] * x[0][i];
            b += (double)x[1][i] * x[1][i];
        }
        worst = MAX(worst, fabs(dot) / sqrt(a * b));
    }
    return worst;
}

static void banks(void **state)
{
    (void)state;
    static const enum format_id IDS[] = { FORMAT_Q4_K, FORMAT_IQ4_NL };
    char path[4096], one[HASH_HEX], other[HASH_HEX];
    temp_path(path, sizeof path, "bank");
    struct noise *n = malloc(sizeof *n);
    enum { COLS = 512, ROWS = 8192 };
    float *x = malloc((size_t)COLS * ROWS * sizeof *x);
    void *direct = malloc((size_t)COLS * ROWS);
    CHECK(n);
    CHECK(x);
    CHECK(direct);
    noise_init(n);
    for (int64_t r = 0; r < ROWS; r++)
        noise_fill(n, (struct noise_stream){ 7, 7, (uint64_t)r }, x + r * COLS, COLS, 0, 1 / sqrtf(COLS));
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        struct err why = { 0 };
        struct gguf *g;
        const struct format *f = &FORMATS[IDS[i]];
        CHECK(f->searched);
        struct synth_options o = options_of("llama", "tiny", IDS[i]);
        o.shape = &WIDE;
        make(path, &o);
        file_hash(path, one);
        o.threads = 3;
        make(path, &o);
        file_hash(path, other);
        assert_string_equal(one, other);
        CHECK_OK(gguf_open(&g, path, &why));
        const struct gguf_tensor *t = gguf_tensor_find(g, "output.weight"),
                                 *down = gguf_tensor_find(g, "blk.0.ffn_down.weight");
        struct moments have, want;
        moments_of(&have, f, t->data, ROWS, COLS);
        format_encode_rows(f, x, direct, ROWS, COLS);
        moments_of(&want, f, direct, ROWS, COLS);
        CHECK_NEAR(have.mean * sqrt(COLS), 0, 3e-3); /* of 1 M weights in the bank: 1/sqrt(2^20) = 1e-3 */
        CHECK_NEAR(have.square / want.square, 1, 0.01);
        CHECK_NEAR(have.fourth / want.fourth, 1, 0.03);
        CHECK_NEAR(have.entropy, want.entropy, 0.02);
        CHECK_LT(row_correlation(f, t), 0.2); /* 1/sqrt(512) = 0.044 */
        /* n draws of b blocks hit b (1 - exp(-n/b)) of them: b = 2^20 / block, n = 4 b */
        const double b = (double)(1 << 20) / f->block_weights;
        CHECK_NEAR((double)count_distinct(f, t) / b, 1 - exp(-4), 0.01);
        CHECK_EQ(count_distinct(f, down), down->bytes / f->block_bytes); /* encoded as a whole */
        gguf_close(g);
    }
    free(direct);
    free(x);
    free(n);
    unlink(path);
}

/* ---------------------------------------------------------------- vocabularies */

static void expect_back(const struct tokenizer *t, const char *text, size_t n)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    struct str s = { 0 };
    CHECK_OK(tokenizer_encode(t, text, n, 0, &l, &why));
    CHECK_OK(tokenizer_decode(t, l.ids, l.n, false, &s, &why));
    CHECK_EQ(s.len, n);
    CHECK(!memcmp(str_text(&s), text, n));
    token_list_free(&l);
    str_free(&s);
}

/* Tokens first..last-1 are letters, maybe behind a space: their text behind a digit, which merges with
 * nothing, ends in them alone. */
static void expect_reachable(const struct tokenizer *t, int32_t first, int32_t last)
{
    struct err why = { 0 };
    for (int32_t id = first; id < last; id++) {
        struct str s = { 0 };
        struct token_list l = { 0 };
        str_append(&s, "1");
        CHECK_OK(tokenizer_piece(t, id, false, &s, &why));
        CHECK_OK(tokenizer_encode(t, str_text(&s), s.len, 0, &l, &why));
        if (l.n < 2 || l.n > 3 || l.ids[l.n - 1] != id)
            fail_msg("token %d, '%s', is never made", id, str_text(&s));
        token_list_free(&l);
        str_free(&s);
    }
}

static void vocabularies(void **state)
{
    (void)state;
    static const char TEXT[] = "The quick brown fox, 42!\n\tna\xc3\xafve \xf0\x9f\x9a\x80 \xff\xfe end";
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct gguf *g;
        struct tokenizer *t;
        struct tokenizer_info info;
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_Q8_0);
        make(temp_path(path, sizeof path, "vocab"), &o);
        CHECK_OK(gguf_open(&g, path, &why));
        CHECK_OK(tokenizer_open(&t, g, &why));
        tokenizer_describe(t, &info);
        assert_int_equal(info.n_vocab, o.shape->vocab);
        expect_back(t, TEXT, sizeof TEXT - 1);
        bool spm = !strcmp(info.kind, "spm");
        assert_int_equal(info.add_bos, spm);
        expect_reachable(t, spm ? 3 + 256 + 95 : 256, spm ? info.n_vocab : info.n_vocab - 1);
        tokenizer_close(t);
        gguf_close(g);
        unlink(path);
    }
}

/* ---------------------------------------------------------------- it runs */

static void runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct config c;
        struct model *m;
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_F16);
        make(temp_path(path, sizeof path, "runs"), &o);
        CHECK_OK(config_parse(&c, "threads=1", &why));
        CHECK_OK(
            recipe_model_open(&m, &(struct model_options){ .path = path, .config = &c, .ctx = 16 }, &why));
        const struct model_shape *s = model_shape(m);
        assert_string_equal(s->arch, ARCHITECTURES[i]);
        CHECK(s->random_weights);
        CHECK_EQ(s->layers, o.shape->layers);
        CHECK_EQ(s->vocab, o.shape->vocab);
        struct batch_row rows[4];
        for (int r = 0; r < 4; r++) rows[r] = (struct batch_row){ 300 + 7 * r, r, 0, r == 3 };
        CHECK_OK(model_forward(m, rows, 4, &why));
        const float *logits = model_logits(m, 0);
        double square = 0;
        for (int64_t v = 0; v < s->vocab; v++) square += (double)logits[v] * logits[v] / (double)s->vocab;
        CHECK_LT(0.2, square);
        CHECK_LT(square, 5); /* near N(0,1); false for NaN */
        model_close(m);
        unlink(path);
    }
}

static void shapes_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < SYNTH_SHAPE_COUNT; i++) {
        const struct synth_shape *s = &SYNTH_SHAPES[i];
        assert_ptr_equal(synth_shape_find(s->name), s);
        CHECK(s->help[0]);
        CHECK_EQ(s->heads % s->kv_heads, 0);
        CHECK_EQ(s->embd % s->heads, 0);
        CHECK_EQ(s->embd / s->heads % 2, 0);
        CHECK_LE(512, s->vocab);
    }
    assert_ptr_equal(synth_shape_find("TINY"), &SYNTH_SHAPES[0]);
    CHECK(!synth_shape_find("0b"));
}

static void refused(void **state)
{
    (void)state;
    static const struct synth_shape FEW = { .name = "few",
                                            .layers = 1,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .embd = 64,
                                            .ff = 64,
                                            .vocab = 100,
                                            .ctx = 64,
                                            .tied = true,
                                            .help = "" };
    static const struct synth_shape CROOKED = { .name = "crooked",
                                                .layers = 1,
                                                .heads = 3,
                                                .kv_heads = 2,
                                                .embd = 96,
                                                .ff = 64,
                                                .vocab = 512,
                                                .ctx = 64,
                                                .tied = true,
                                                .help = "" };
    char path[4096];
    struct err why = { 0 };
    temp_path(path, sizeof path, "refused");
    struct synth_options o = options_of("lama", "tiny", FORMAT_F16);
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "did you mean llama?");
    for (int i = 0; i < FORMAT_COUNT; i++) {
        o = options_of("llama", "tiny", (enum format_id)i);
        if (FORMATS[i].encode) continue;
        assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, "cannot be made yet");
    }
    o = options_of("llama", "tiny", FORMAT_F16);
    o.shape = &FEW;
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "vocabulary of 100");
    o.arch = "gpt2";
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    o = options_of("llama", "tiny", FORMAT_F16);
    o.shape = &CROOKED;
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    o = options_of("llama", "tiny", FORMAT_F16);
    assert_int_equal(synth_write("/nonexistent-folder/x.gguf", &o, &why), ERR_IO);
    CHECK(access(path, F_OK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),        cmocka_unit_test(noise_is_normal), cmocka_unit_test(weights),
        cmocka_unit_test(falls_back_to_f16), cmocka_unit_test(vocabularies),    cmocka_unit_test(runs),
        cmocka_unit_test(shapes_table),      cmocka_unit_test(refused),         cmocka_unit_test(banks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
