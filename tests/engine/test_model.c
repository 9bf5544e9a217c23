/* Proves: sequences do not influence each other, whichever KV blocks they have and however they are cut into
 * batches; impossible rows, files and configs are refused with a message that says what was expected. */
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

#define LLAMA   "arch-golden/llama-gqa.gguf"
#define STORIES "models/repacked/stories260K-f32.gguf"

enum { VOCAB = 320, LENGTH = 90, SEQUENCES = 3 };

static int32_t id_at(int seq, int pos)
{
    return (seq * 131 + pos * 37 + pos * pos) % VOCAB;
}

/* Logits of one sequence that has the model for itself. */
static void run_alone(const char *path, int seq, float *out)
{
    struct err why = { 0 };
    struct model *m = session_open(path, EXACT, 128, 1);
    for (int pos = 0; pos < LENGTH; pos++) {
        const struct batch_row row = { .token = id_at(seq, pos), .pos = pos, .logits = true };
        CHECK_OK(model_forward(m, &row, 1, &why));
        memcpy(out + pos * VOCAB, model_logits(m, 0), VOCAB * sizeof(float));
    }
    model_close(m);
}

/* Three sequences of different speed in one model: each step is one batch with rows of all, so their blocks
 * interleave; later one is cut back and grows again into blocks another one gave up. */
static void test_sequences(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, LLAMA);
    const size_t floats = (size_t)LENGTH * VOCAB;
    float *want[SEQUENCES];
    for (int s = 0; s < SEQUENCES; s++) {
        want[s] = malloc(floats * sizeof(float));
        run_alone(path, s, want[s]);
    }
    struct model *m = session_open(path, EXACT ",batch=11", 128, SEQUENCES);
    int at[SEQUENCES] = { 0 };
    bool cut = false;
    while (at[0] < LENGTH || at[1] < LENGTH || at[2] < LENGTH) {
        struct batch_row rows[64];
        int n = 0;
        for (int s = SEQUENCES - 1; s >= 0; s--) /* sequence s takes 3, 5 or 7 rows a step, wanted or not */
            for (int i = 0; i < 3 + 2 * s && at[s] < LENGTH; i++, at[s]++)
                rows[n++] = (struct batch_row){
                    .token = id_at(s, at[s]), .pos = at[s], .seq = s, .logits = at[s] % 3 != 1
                };
        CHECK_OK(model_forward(m, rows, n, &why));
        for (int i = 0, row = 0; i < n; i++) {
            if (!rows[i].logits) continue;
            const float *expect = want[rows[i].seq] + (int64_t)rows[i].pos * VOCAB;
            CHECK_NEAR(max_difference(model_logits(m, row++), expect, VOCAB), 0, 1e-4);
        }
        for (int s = 0; s < SEQUENCES; s++) assert_int_equal(model_length(m, s), at[s]);
        if (!cut && at[2] > 70) { /* 2 gives blocks back, 0 takes them, 2 comes again elsewhere */
            cut = true;
            model_truncate(m, 2, 5);
            model_truncate(m, 1, 0);
            at[2] = 5;
            at[1] = 0;
        }
    }
    for (int s = 0; s < SEQUENCES; s++) free(want[s]);
    model_close(m);
}

/* Where weights lie and when they are read changes no bit of the answer, and what was done is what is said.
 */
static void test_memory(void **state)
{
    (void)state;
    static const char *const LINES[] = { EXACT, EXACT ",hugepages=off", EXACT ",hugepages=all",
                                         EXACT ",prefetch=populate", EXACT ",prefetch=willneed" };
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, LLAMA);
    float *first = NULL;
    int64_t matrices = 0;
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct model *m = session_open(path, LINES[i], 4096, 4);
        struct model_memory got;
        const int64_t vocab = model_shape(m)->vocab;
        model_memory(m, &got);
        const bool copied = strstr(LINES[i], "=all"), off = strstr(LINES[i], "=off");
        if (!i)
            for (int64_t t = 0; t < gguf_tensor_count(model_gguf(m)); t++)
                if (gguf_tensor_at(model_gguf(m), t)->dims > 1)
                    matrices += gguf_tensor_at(model_gguf(m), t)->bytes;
        assert_int_equal(got.copied_bytes, copied ? matrices : 0);
        CHECK(off ? got.huge_wanted_bytes == 0
                  : got.huge_wanted_bytes >= 2 << 20); /* the cache of 4 x 4096 */
        CHECK_LE(-1, got.huge_bytes);
        CHECK(strstr(LINES[i], "prefetch")
                  ? got.prefetched_bytes == model_shape(m)->weight_bytes && got.prefetch_s > 0
                  : got.prefetched_bytes == 0 && got.prefetch_s == 0);
        struct batch_row rows[9];
        for (int r = 0; r < 9; r++)
            rows[r] = (struct batch_row){ .token = 1 + r, .pos = r, .logits = r == 8 };
        CHECK_OK(model_forward(m, rows, 9, &why));
        if (!i) {
            first = malloc((size_t)vocab * sizeof *first);
            memcpy(first, model_logits(m, 0), (size_t)vocab * sizeof *first);
        }
        assert_memory_equal(model_logits(m, 0), first, (size_t)vocab * sizeof *first);
        model_close(m);
    }
    free(first);
}

/* tq1_0 held as tq2_0 answers as tq2_0 from the start does (both make the same codes), takes what the plan
 * says, and a file that has none of it is used in place. */
static void test_repacked(void **state)
{
    (void)state;
    static const char *const LINES[] = { EXACT ",tq2_0", EXACT ",tq1_0,repack=on", EXACT ",q4_0,repack=on" };
    const char *path = TEST_SOURCE_DIR "/share/models/bundled.gguf";
    struct err why = { 0 };
    float *first = NULL;
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct model *m = session_open(path, LINES[i], 64, 1);
        const size_t vocab = (size_t)model_shape(m)->vocab;
        struct model_memory got;
        struct batch_row rows[9];
        int64_t here = 0, there = 0;
        model_memory(m, &got);
        for (int64_t t = 0; t < gguf_tensor_count(model_gguf(m)); t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(model_gguf(m), t);
            here += tensor->bytes;
            if (tensor->format == &FORMATS[FORMAT_TQ1_0])
                there += tensor->shape[1] * format_row_bytes(&FORMATS[FORMAT_TQ2_0], tensor->shape[0]);
        }
        assert_int_equal(got.repacked_bytes, there);
        assert_int_equal(got.copied_bytes, there);
        if (i == 1) {
            CHECK_GT(there, 0);
            CHECK_GT(model_plan(m)->weights, here);
        } else {
            CHECK_EQ(there, 0);
        }
        for (int r = 0; r < 9; r++)
            rows[r] = (struct batch_row){ .token = 1 + r, .pos = r, .logits = r == 8 };
        CHECK_OK(model_forward(m, rows, 9, &why));
        if (!i) {
            first = malloc(vocab * sizeof *first);
            memcpy(first, model_logits(m, 0), vocab * sizeof *first);
        }
        CHECK(i > 1 || !memcmp(model_logits(m, 0), first, vocab * sizeof *first));
        model_close(m);
    }
    free(first);
}

static void test_only_wanted(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    /* One sequential and one parallel architecture: they drop unwanted rows in different places. */
    const char *const MODELS[] = { LLAMA, "arch-golden/gptneox-parallel.gguf",
                                   "arch-golden/falcon-40b-style.gguf" };
    for (size_t f = 0; f < COUNT_OF(MODELS); f++) {
        SHARED_OR_SKIP(path, MODELS[f]);
        struct model *m = session_open(path, EXACT, 64, 1);
        const int64_t vocab = model_shape(m)->vocab;
        struct batch_row rows[40];
        float *all = malloc(40 * (size_t)vocab * sizeof *all);
        for (int i = 0; i < 40; i++)
            rows[i] = (struct batch_row){ .token = id_at(0, i) % 280, .pos = i, .logits = true };
        CHECK_OK(model_forward(m, rows, 40, &why));
        memcpy(all, model_logits(m, 0), 40 * (size_t)vocab * sizeof *all);

        for (int i = 0; i < 40; i++) rows[i].logits = i == 7 || i == 39;
        model_truncate(m, 0, 0);
        CHECK_OK(model_forward(m, rows, 40, &why));
        CHECK_NEAR(max_difference(model_logits(m, 0), all + 7 * vocab, vocab), 0, 1e-4);
        CHECK_NEAR(max_difference(model_logits(m, 1), all + 39 * vocab, vocab), 0, 1e-4);

        /* Nobody wants any: the cache must be filled all the same. */
        for (int i = 0; i < 39; i++) rows[i].logits = false;
        model_truncate(m, 0, 0);
        CHECK_OK(model_forward(m, rows, 39, &why));
        CHECK_OK(model_forward(m, rows + 39, 1, &why));
        CHECK_NEAR(max_difference(model_logits(m, 0), all + 39 * vocab, vocab), 0, 1e-4);
        free(all);
        model_close(m);
    }
}

static void test_bad_rows(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, LLAMA);
    struct model *m = session_open(path, EXACT, 32, 2);
    const struct {
        struct batch_row row;
        const char *says;
    } BAD[] = {
        { { .token = -1 }, "token -1" },        { { .token = VOCAB }, "token 320: expected 0 to 319" },
        { { .seq = 2 }, "sequence 2" },         { { .seq = -1 }, "sequence -1" },
        { { .pos = 1 }, "the next one is 0" },  { { .pos = 32 }, "context of 32" },
        { { .pos = -1 }, "the next one is 0" },
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        assert_int_equal(model_forward(m, &BAD[i].row, 1, &why), ERR_USAGE);
        if (!strstr(why.message, BAD[i].says)) fail_msg("'%s' lacks '%s'", why.message, BAD[i].says);
        assert_int_equal(model_length(m, 0), 0);
    }
    struct batch_row rows[33];
    for (int i = 0; i < 33; i++) rows[i] = (struct batch_row){ .token = 5, .pos = i };
    assert_int_equal(model_forward(m, rows, 33, &why), ERR_USAGE);
    assert_int_equal(model_length(m, 0), 0); /* refused as a whole */
    CHECK_OK(model_forward(m, rows, 32, &why));
    assert_int_equal(model_length(m, 0), 32);
    assert_int_equal(model_length(m, 1), 0);
    model_close(m);
}

static void refuse(const char *path, const char *line, int ctx, enum err_code code, const char *says)
{
    struct err why = { 0 };
    struct model *m;
    const enum err_code rc = session_try(&m, path, line, ctx, 1, &why);
    assert_null(m);
    if (rc != code) fail_msg("'%s' at %d: want %d, got %d (%s)", line, ctx, code, rc, why.message);
    if (!strstr(why.message, says)) fail_msg("'%s' lacks '%s'", why.message, says);
}

static void test_bad_configs(void **state)
{
    (void)state;
    char path[4096], gpt2[4096];
    SHARED_OR_SKIP(path, STORIES);
    SHARED_OR_SKIP(gpt2, "arch-golden/gpt2.gguf");
    refuse(path, "ctk=q8_0", 64, ERR_USAGE, "heads of a multiple of 32, this model's have 8");
    refuse(path, "ctv=q4_0", 64, ERR_USAGE, "ctv=q4_0");
    refuse(gpt2, "", 65, ERR_USAGE, "64 learned positions");
    refuse("", "", 64, ERR_USAGE, "no model");
    refuse("/does/not/exist.gguf", "", 64, ERR_IO, "exist.gguf");
    /* A gigatoken of context: both numbers are in the message. */
    refuse(path, "kv=f32", 1 << 29, ERR_FIT, "are available");
    /* An instruction set that was taken away is not quietly replaced by another. */
    char was[128] = "";
    const char *isa = getenv("QDYNO_ISA");
    if (isa) snprintf(was, sizeof was, "%s", isa);
    setenv("QDYNO_ISA", "ref", 1);
    refuse(path, "isa=avx2", 64, ERR_ABSENT, "isa=avx2 cannot be used here");
    struct model *m = session_open(path, "threads=2", 0, 0);
    assert_string_equal(config_text(model_config(m), KNOB_ISA), "ref");
    model_close(m);
    if (was[0])
        setenv("QDYNO_ISA", was, 1);
    else
        unsetenv("QDYNO_ISA");
    m = session_open(path, "threads=2", 0, 0);
    assert_int_equal(model_ctx(m), 512);
    assert_int_equal(config_int(model_config(m), KNOB_THREADS), 2);
    assert_int_equal(config_int(model_config(m), KNOB_CTX), 512);
    model_close(m);
    model_close(NULL);
}

/* ---------------------------------------------------------------- files that are wrong */

/* What to do to a copy of a good file. */
struct change {
    const char *tensor; /* drop it, or give it another shape */
    int64_t cols, rows; /* 0: drop */
    const char *add;    /* one more tensor of this name */
    const char *arch;   /* another architecture name */
};

static enum err_code write_changed(const char *out, const struct gguf *g, const struct change *c)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    static const float ZEROS[1 << 16];
    enum err_code rc = gguf_writer_open(&w, out, &why);
    for (int64_t i = 0; i < gguf_kv_count(g) && !rc; i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (c->arch && gguf_string_is(kv->key, "general.architecture"))
            rc = gguf_writer_put_string(w, "general.architecture", c->arch);
        else if (!gguf_string_is(kv->key, "general.alignment"))
            rc = gguf_writer_copy_kv(w, kv);
    }
    const int64_t other[2] = { c->cols, c->rows }, extra[2] = { 32, 2 };
    for (int64_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const bool it = c->tensor && !strcmp(t->name, c->tensor);
        if (it && !c->cols) continue;
        rc = gguf_writer_add_tensor(w, t->name, t->format, it ? 2 : t->dims, it ? other : t->shape);
    }
    if (c->add && !rc) rc = gguf_writer_add_tensor(w, c->add, &FORMATS[FORMAT_F32], 2, extra);
    for (int64_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const bool it = c->tensor && !strcmp(t->name, c->tensor);
        if (it && !c->cols) continue;
        rc = it ? gguf_writer_write(w, ZEROS, c->cols * c->rows * 4, &why)
                : gguf_writer_write(w, t->data, t->bytes, &why);
    }
    if (c->add && !rc) rc = gguf_writer_write(w, ZEROS, 32 * 2 * 4, &why);
    if (!rc) return gguf_writer_commit(w, &why);
    gguf_writer_abort(w);
    return rc;
}

static void keep_line(void *ctx, enum log_level level, const char *line)
{
    if (level >= LOG_WARN) str_printf(ctx, "%s\n", line);
}

static void test_bad_files(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096], dir[] = "/tmp/qdyno-test-model-XXXXXX", out[64];
    SHARED_OR_SKIP(path, LLAMA);
    assert_non_null(mkdtemp(dir));
    snprintf(out, sizeof out, "%s/m.gguf", dir);
    const struct {
        struct change change;
        const char *says;
    } BAD[] = {
        { { .tensor = "blk.1.ffn_up.weight", .cols = 64, .rows = 71 },
          "'blk.1.ffn_up.weight': expected [64,72], file has [64,71]" },
        { { .tensor = "blk.2.attn_k.weight" }, "'blk.2.attn_k.weight': expected [64,32], file has none" },
        { { .tensor = "output_norm.weight", .cols = 64, .rows = 2 }, "expected [64], file has [64,2]" },
        { { .tensor = "token_embd.weight" }, "token_embd.weight" },
        { { .arch = "lama" }, "architecture 'lama' is not supported; known: llama qwen2 gpt2" },
        { { .arch = "qwen2" }, "qwen2.block_count" },
    };
    struct gguf *g;
    CHECK_OK(gguf_open(&g, path, &why));
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        assert_int_equal(write_changed(out, g, &BAD[i].change), ERR_OK);
        refuse(out, EXACT, 64, ERR_FORMAT, BAD[i].says);
    }

    /* With force=on a tensor that nothing uses is no error, but the log names it. */
    struct str said = { 0 };
    const struct log log = { .level = LOG_INFO, .sink = keep_line, .ctx = &said };
    struct config config;
    struct model *m;
    assert_int_equal(write_changed(out, g, &(struct change){ .add = "blk.0.attn_magic.weight" }), ERR_OK);
    CHECK_OK(config_parse(&config, EXACT ",force=on", &why));
    const struct model_options o = { .path = out, .config = &config, .ctx = 64, .log = &log };
    CHECK_OK(recipe_model_open(&m, &o, &why));
    assert_non_null(strstr(str_text(&said), "answers unverified"));
    assert_non_null(strstr(str_text(&said), "'blk.0.attn_magic.weight'"));
    model_close(m);
    str_free(&said);
    gguf_close(g);
    unlink(out);
    rmdir(dir);
}

/* What the shape says of a real file. */
static void test_shape(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    struct gguf *g;
    struct model_shape s;
    SHARED_OR_SKIP(path, STORIES);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(model_shape_read(&s, g, &why));
    assert_string_equal(s.arch, "llama");
    assert_string_equal(s.dominant_format, "f32");
    assert_int_equal(s.layers, 5);
    assert_int_equal(s.heads, 8);
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.head_dim_k, 8);
    assert_int_equal(s.embd, 64);
    assert_int_equal(s.ff, 172);
    assert_int_equal(s.vocab, 512);
    assert_int_equal(s.ctx_train, 512);
    CHECK(s.tied_output);
    CHECK(!s.random_weights);
    /* embedding + 5 x (q 64x64, k and v 64x32, out 64x64, three of 64x172, two norms) + norm */
    assert_int_equal(s.params, 512 * 64 + 5 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172 + 2 * 64) + 64);
    assert_int_equal(s.weight_bytes, 4 * s.params);
    gguf_close(g);
}

/* Remembered, but never for another file or another state of it. */
static void test_identity(void **state)
{
    (void)state;
    struct err why = { 0 };
    char source[4096], dir[] = "/tmp/qdyno-test-model-XXXXXX", path[64], command[5000], first[HASH_HEX],
                       hex[HASH_HEX];
    SHARED_OR_SKIP(source, STORIES);
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    /* A hash is kept of files whose content and status last changed two seconds ago or more. */
    snprintf(command, sizeof command, "cp '%s' '%s' && chmod u+w '%s' && sleep 2.2", source, path, path);
    assert_int_equal(system(command), 0);
    struct gguf *g;
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(gguf_hash(g, first, &why));
    for (int i = 0; i < 2; i++) { /* computed, then recalled */
        CHECK_OK(model_identity(g, hex, &why));
        assert_string_equal(hex, first);
    }
    gguf_close(g);
    snprintf(command, sizeof command, "test $(ls '%s/qdyno/hashes' | wc -l) = 1", dir);
    assert_int_equal(system(command), 0);

    /* The same size and date, one byte changed: the inode's time of change shows it. */
    snprintf(
        command, sizeof command,
        "printf X | dd of='%s' bs=1 seek=1000000 conv=notrunc 2>/dev/null && touch -d '1 hour ago' '%s' && "
        "sleep 2.2",
        path, path);
    assert_int_equal(system(command), 0);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(model_identity(g, hex, &why));
    assert_string_not_equal(hex, first);
    gguf_close(g);

    /* A memo that is not a hash is not believed. */
    snprintf(command, sizeof command, "for f in '%s'/qdyno/hashes/*; do echo nonsense > $f; done", dir);
    assert_int_equal(system(command), 0);
    CHECK_OK(gguf_open(&g, path, &why));
    char again[HASH_HEX];
    CHECK_OK(model_identity(g, again, &why));
    assert_string_equal(again, hex);
    gguf_close(g);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_only_wanted),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_repacked),
        cmocka_unit_test(test_bad_rows),  cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_shape),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
