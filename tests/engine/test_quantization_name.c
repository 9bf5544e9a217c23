/* Proves: a file's quantization is named by its recipe, its metadata, its name or its tensors, in this order;
 * a name is never given that no matrix bears out; contradictions are told; variants that the metadata has no
 * number for are read from the name; names of file types are those of the mixes that qdyno makes. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/quant/mixes.h"
#include "kernels/kernels.h"
#include "tests/check.h"

enum { NONE = -1 };

struct made {
    const char *path;
    int file_type;            /* NONE: the key is missing */
    enum format_id format[3]; /* of matrices; the embedding first */
    int64_t cols;
    const char *recipe; /* NULL: none */
};

/* The name of a file with these properties, and of most bytes in the format of its embedding. */
static struct quantization_name name_of(const struct made *m)
{
    struct err why;
    struct gguf_writer *w;
    struct gguf *g;
    struct str bytes = { 0 };
    struct quantization_name out;
    static const char *const NAMES[] = { "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_v.weight" };
    CHECK_OK(gguf_writer_open_memory(&w, &why));
    if (m->file_type != NONE) CHECK_OK(gguf_writer_put_u32(w, "general.file_type", (uint32_t)m->file_type));
    if (m->recipe) CHECK_OK(gguf_writer_put_string(w, "qdyno.recipe", m->recipe));
    for (int i = 0; i < 3; i++)
        CHECK_OK(gguf_writer_add_tensor(w, NAMES[i], &FORMATS[m->format[i]], 2,
                                        (const int64_t[]){ m->cols, i ? 2 : 64 }));
    CHECK_OK(gguf_writer_add_tensor(w, "output_norm.weight", &FORMATS[FORMAT_F32], 1,
                                    (const int64_t[]){ m->cols }));
    CHECK_OK(gguf_writer_preview(w, &bytes, &why));
    CHECK_OK(gguf_open_memory(&g, bytes.data, bytes.len, &why));
    quantization_name_read(&out, g, m->path, FORMATS[m->format[0]].name);
    gguf_close(g);
    gguf_writer_discard(w);
    str_free(&bytes);
    return out;
}

static const struct made GEMMA = {
    "/m/gemma-3-270m-Q4_K_M.gguf", 15, { FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_Q6_K }, 256, NULL
};

static struct quantization_name gemma_called(const char *path, int file_type)
{
    struct made m = GEMMA;
    m.path = path;
    m.file_type = file_type;
    return name_of(&m);
}

static void the_embedding_does_not_name_the_file(void **state)
{
    (void)state;
    const struct quantization_name n = name_of(&GEMMA);
    assert_string_equal(n.name, "Q4_K_M");
    CHECK_EQ(n.source, QUANTIZATION_METADATA);
    assert_string_equal(n.note, "");
    CHECK(n.mostly_other);
    struct model_shape s = { .dominant_format = "q8_0", .quantization = n };
    char text[96];
    assert_string_equal(quantization_text(&s, text, sizeof text), "Q4_K_M (most bytes q8_0)");

    struct made plain = { "/m/x.gguf", 3, { FORMAT_Q4_1, FORMAT_Q4_1, FORMAT_Q4_1 }, 64, NULL };
    CHECK(!name_of(&plain).mostly_other);
    assert_string_equal(name_of(&plain).name, "Q4_1");
}

static void names_of_files_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name;
    } CASES[] = {
        { "/m/gemma-3-270m-Q4_K_M.gguf", "Q4_K_M" },
        { "/m/gemma.q4_k_s.gguf", "Q4_K_S" },
        { "/m/Qwen3-UD-Q4_K_XL.gguf", "UD-Q4_K_XL" },
        { "/m/Qwen3-Q6_K_L.gguf", "Q6_K_L" },
        { "/m/Q8_0/model_Q4_K_M-00001-of-00003.gguf", "Q4_K_M" },
        { "/m/q8_0-requantized-Q4_K.gguf", "Q4_K" },
        { "/m/modelQ4_K_M.gguf", "q8_0" }, /* part of a word: no name, so the format of most bytes */
        { "/m/Q4_K_Mistral.gguf", "Q4_K" },
        { "/m/x.gguf", "q8_0" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const struct quantization_name n = gemma_called(CASES[i].path, NONE);
        if (strcmp(n.name, CASES[i].name)) fail_msg("%s: %s", CASES[i].path, n.name);
    }
    CHECK_EQ(gemma_called("/m/x.gguf", NONE).source, QUANTIZATION_TENSORS);
    CHECK_EQ(gemma_called("/m/x-Q4_K_M.gguf", NONE).source, QUANTIZATION_FILE_NAME);
    struct made iq = { "/m/x-IQ4_XS.gguf", NONE, { FORMAT_IQ4_XS, FORMAT_IQ4_XS, FORMAT_IQ4_XS }, 256, NULL };
    assert_string_equal(name_of(&iq).name, "IQ4_XS");
}

static void contradictions_are_told_and_never_believed(void **state)
{
    (void)state;
    struct quantization_name n = gemma_called("/m/x-Q2_K.gguf", 15);
    assert_string_equal(n.name, "Q4_K_M");
    CHECK_CONTAINS(n.note, "the file's name says Q2_K, but no matrix");
    n = gemma_called("/m/x-Q4_K_M.gguf", 10);
    assert_string_equal(n.name, "Q4_K_M");
    CHECK_EQ(n.source, QUANTIZATION_FILE_NAME);
    CHECK_CONTAINS(n.note, "the metadata (general.file_type) says Q2_K, but no matrix");
    n = gemma_called("/m/x-Q2_K.gguf", 10);
    assert_string_equal(n.name, "q8_0");
    CHECK_CONTAINS(n.note, "the metadata and the file's name say Q2_K");
    n = gemma_called("/m/x-Q3_K_S.gguf", 10);
    CHECK_CONTAINS(n.note, "says Q2_K and the file's name Q3_K_S, but no matrix has the format of either");
    n = gemma_called("/m/x-Q4_K_S.gguf", 15); /* two names of one base: the metadata, and the other is told */
    assert_string_equal(n.name, "Q4_K_M");
    CHECK_CONTAINS(n.note, "the file's name says Q4_K_S");
    n = gemma_called("/m/x-UD-Q4_K_XL.gguf", 15);
    assert_string_equal(n.name, "UD-Q4_K_XL");
    CHECK_CONTAINS(n.note, "calls it Q4_K_M");
    CHECK_EQ(gemma_called("/m/x.gguf", 99).source, QUANTIZATION_TENSORS);     /* a value without a name */
    assert_string_equal(gemma_called("/m/x.gguf", 1024 + 15).name, "Q4_K_M"); /* a guess of llama.cpp */
}

static void rows_that_fill_no_block_bear_a_name_out_by_their_replacement(void **state)
{
    (void)state;
    struct made narrow = { "/m/x.gguf", 15, { FORMAT_Q8_0, FORMAT_Q5_0, FORMAT_Q5_0 }, 96, NULL };
    assert_string_equal(name_of(&narrow).name, "Q4_K_M");
    narrow.cols = 256; /* here q4_K would have fitted */
    assert_string_equal(name_of(&narrow).name, "q8_0");
}

static void a_recipe_comes_first(void **state)
{
    (void)state;
    struct made m = GEMMA;
    m.recipe = "method=gptq,bits=4";
    struct quantization_name n = name_of(&m);
    assert_string_equal(n.name, "method=gptq,bits=4");
    CHECK_EQ(n.source, QUANTIZATION_RECIPE);
    m.recipe = "q4_K"; /* the file type has no value for this one: 15 means the mix */
    assert_string_equal(name_of(&m).name, "q4_K");
    m.recipe = "method=gguf,mix=q4_K_M";
    assert_string_equal(name_of(&m).name, "Q4_K_M");
}

static void file_types_are_those_of_the_mixes(void **state)
{
    (void)state;
    for (size_t i = 0; i < MIX_COUNT; i++) {
        const char *tag = file_type_tag(MIXES[i].file_type);
        if (!tag || strcasecmp(tag, MIXES[i].name))
            fail_msg("%s: file type %u is %s", MIXES[i].name, MIXES[i].file_type, tag ? tag : "unknown");
    }
    for (int v = 0; v <= 40; v++) CHECK(file_type_tag(v) != NULL); /* all that llama.cpp has defined */
    CHECK(!file_type_tag(41));
    CHECK(!file_type_tag(NONE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_embedding_does_not_name_the_file),
        cmocka_unit_test(names_of_files_are_read),
        cmocka_unit_test(contradictions_are_told_and_never_believed),
        cmocka_unit_test(rows_that_fill_no_block_bear_a_name_out_by_their_replacement),
        cmocka_unit_test(a_recipe_comes_first),
        cmocka_unit_test(file_types_are_those_of_the_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
