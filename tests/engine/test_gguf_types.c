/* Proves: tensors of types without a format are refused by name and number, except by gguf_open_any_type,
 * which gives them the bytes up to the next tensor or the end of the file. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "tests/engine/gguf_bytes.h"

/* 128 bytes of weights: tensor "a" of this type from `offset` on, and "b", f32 [8], at 96. */
static void two_tensors(struct str *s, uint32_t type, uint64_t offset)
{
    str_clear(s);
    put_head(s, 3, 2, 0);
    put_tensor(s, "a", 2, (uint64_t[]){ 32, 2 }, type, offset);
    put_tensor(s, "b", 1, (uint64_t[]){ 8 }, 0, 96);
    put_padding(s, 32);
    for (int i = 0; i < 96 + 32; i++) str_append_n(s, "w", 1);
}

/* A tensor of a type without a format is refused, except by gguf_open_any_type, where it ends at the next
 * tensor or at the end of the file. */
static void any_type(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *name, *message;
        uint64_t offset;
        int64_t bytes; /* 0: refused as damaged */
    } CASES[] = {
        { 9, "q8_1", "q8_1 (type 9) are not supported", 0, 96 },
        { 139, "iq4_k", "iq4_k (type 139), which only ik_llama.cpp", 0, 96 },
        { 36, "i2_s", "i2_s (type 36), which only ik_llama.cpp", 0, 96 },
        { 353, "mxfp4_r8", "mxfp4_r8 (type 353)", 0, 96 },
        { 200, NULL, "ik_llama.cpp", 0, 96 },
        { 97, "q8_0_x4", "ik_llama.cpp", 64, 32 },
        { 1234, NULL, "does not name it", 0, 96 },
        { 57, NULL, "type 57", 32, 64 },
        { 57, NULL, "type 57", 96, 0 },  /* where "b" begins */
        { 57, NULL, "type 57", 128, 0 }, /* at the end of the file */
        { 57, NULL, "type 57", UINT64_MAX - 31, 0 },
    };
    struct str s = { 0 };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct gguf *g;
        two_tensors(&s, CASES[i].type, CASES[i].offset);
        CHECK_EQ(gguf_open_memory(&g, s.data, s.len, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].message) || !strstr(why.message, "tensor 'a'"))
            fail_msg("case %zu: %s", i, why.message);
        CHECK_EQ(gguf_open_memory_any_type(&g, s.data, s.len, &why), CASES[i].bytes ? ERR_OK : ERR_FORMAT);
        if (!CASES[i].bytes) continue;
        const struct gguf_tensor *t = gguf_tensor_find(g, "a");
        CHECK_EQ(t->format, NULL);
        CHECK_EQ(t->type, CASES[i].type);
        CHECK_EQ(t->bytes, CASES[i].bytes);
        if (CASES[i].name)
            assert_string_equal(t->type_name, CASES[i].name);
        else
            assert_null(t->type_name);
        gguf_walk(g);
        CHECK_EQ(gguf_check_types(g, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].message)) fail_msg("case %zu: %s", i, why.message);
        gguf_close(g);
    }
    struct err why = { 0 };
    struct gguf *g;
    two_tensors(&s, FORMATS[FORMAT_Q8_0].ggml_type, 0);
    CHECK_OK(gguf_open_memory_any_type(&g, s.data, s.len, &why));
    CHECK_OK(gguf_check_types(g, &why));
    assert_string_equal(gguf_tensor_find(g, "a")->type_name, "q8_0");
    gguf_close(g);
    str_free(&s);
}

/* Whatever is cut off: a message, or tensors that lie inside the file. */
static void any_type_cut(void **state)
{
    (void)state;
    struct str s = { 0 };
    two_tensors(&s, 200, 0);
    for (size_t n = 0; n <= s.len; n++) {
        struct err why = { 0 };
        struct gguf *g;
        unsigned char *exact = malloc(n ? n : 1);
        memcpy(exact, s.data, n);
        if (!gguf_open_memory_any_type(&g, exact, n, &why))
            gguf_walk(g);
        else
            CHECK_NE(why.message[0], '\0');
        gguf_close(g);
        free(exact);
    }
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_type),
        cmocka_unit_test(any_type_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
