/* Proves: the reader returns what the writer wrote; all value types and versions 1 to 3 are read correctly;
 * shards open as one model and files that do not belong together are refused; every false number in a file
 * gives an error message, and no truncated or damaged file makes the reader access memory outside it. */
#include <math.h>
#include <stdlib.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/engine/gguf_bytes.h"

static char *temp_path(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tests/gguf-%d-%s", TEST_BUILD_DIR, (int)getpid(), name);
    return path;
}

/* ---------------------------------------------------------------- writer and reader */

static const int64_t MATRIX[] = { 64, 3 }, ROW[] = { 5 };
static const float NORM[5] = { 1, 2, 3, 4, 5 };

static void declare(struct gguf_writer *w)
{
    static const struct gguf_string WORDS[] = { { "a", 1 }, { "", 0 }, { "b\0c", 3 } };
    static const int32_t IDS[] = { 7, -1, 2000000000 };
    gguf_writer_put_string(w, "general.architecture", "llama");
    gguf_writer_put_u32(w, "llama.block_count", 2);
    gguf_writer_put_f32(w, "eps", 1e-5f);
    gguf_writer_put_bool(w, "flag", true);
    gguf_writer_put_array(w, "ids", GGUF_I32, IDS, 3);
    gguf_writer_put_array(w, "none", GGUF_U8, NULL, 0);
    gguf_writer_put_strings(w, "words", WORDS, 3);
    assert_int_equal(gguf_writer_add_tensor(w, "m", &FORMATS[FORMAT_Q8_0], 2, MATRIX), ERR_OK);
    assert_int_equal(gguf_writer_add_tensor(w, "norm", &FORMATS[FORMAT_F32], 1, ROW), ERR_OK);
}

static void write_sample(const char *path)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    unsigned char m[2 * 34 * 3];
    for (size_t i = 0; i < sizeof m; i++) m[i] = (unsigned char)i;
    CHECK_OK(gguf_writer_open(&w, path, &why));
    declare(w);
    CHECK_OK(gguf_writer_write(w, m, 100, &why));
    CHECK(access(path, F_OK)); /* nothing before commit */
    CHECK_OK(gguf_writer_write(w, m + 100, sizeof m - 100, &why));
    CHECK_OK(gguf_writer_write(w, NORM, sizeof NORM, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
}

static void round_trip(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    char *path = temp_path("round.gguf"), hex[HASH_HEX], file_hex[HASH_HEX];
    write_sample(path);
    CHECK_OK(gguf_open(&g, path, &why));
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_shards(g), 1);
    CHECK(gguf_string_is(gguf_get_string(g, "general.architecture"), "llama"));
    assert_int_equal(gguf_get_int(g, "llama.block_count", -1), 2);
    CHECK_NEAR(gguf_get_num(g, "eps", 0), 1e-5f, 0);
    CHECK(gguf_get_bool(g, "flag", false));
    const struct gguf_kv *ids = gguf_kv_find(g, "ids"), *words = gguf_kv_find(g, "words");
    CHECK(ids);
    CHECK_EQ(ids->type, GGUF_ARRAY);
    CHECK_EQ(ids->element, GGUF_I32);
    CHECK_EQ(ids->count, 3);
    CHECK_NEAR(gguf_kv_num(ids, 1), -1, 0);
    CHECK_NEAR(gguf_kv_num(ids, 2), 2e9, 0);
    CHECK_EQ(gguf_kv_find(g, "none")->count, 0);
    CHECK_EQ(words->count, 3);
    CHECK_EQ(gguf_kv_string(words, 1).len, 0);
    CHECK_EQ(gguf_kv_string(words, 2).len, 3);
    assert_memory_equal(gguf_kv_string(words, 2).data, "b\0c", 3);
    const struct gguf_tensor *m = gguf_tensor_find(g, "m"), *norm = gguf_tensor_find(g, "norm");
    CHECK(m);
    assert_ptr_equal(m->format, &FORMATS[FORMAT_Q8_0]);
    CHECK_EQ(m->dims, 2);
    CHECK_EQ(m->shape[0], 64);
    CHECK_EQ(m->shape[1], 3);
    CHECK_EQ(m->shape[2], 1);
    CHECK_EQ(m->shape[3], 1);
    CHECK_EQ(m->bytes, 204);
    CHECK_EQ(m->data[203], 203);
    CHECK(norm);
    CHECK_EQ(norm->bytes, 20);
    CHECK_EQ((uintptr_t)norm->data % 32, 0);
    assert_memory_equal(norm->data, NORM, sizeof NORM);
    CHECK(!gguf_tensor_find(g, "nor"));
    CHECK(!gguf_kv_find(g, "word"));
    CHECK_EQ(gguf_tensor_count(g), 2);
    CHECK_OK(gguf_hash(g, hex, &why));
    CHECK_OK(hash_file(path, file_hex, &why));
    assert_string_equal(hex, file_hex);
    gguf_close(g);
    unlink(path);
}

static void writer_refuses(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf_writer *w;
    char *path = temp_path("refused.gguf");
    CHECK_OK(gguf_writer_open(&w, path, &why)); /* a key twice: an error at commit, and no file */
    gguf_writer_put_u32(w, "k", 1);
    assert_int_equal(gguf_writer_put_u32(w, "k", 2), ERR_USAGE);
    assert_int_equal(gguf_writer_commit(w, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "'k'");
    CHECK(access(path, F_OK));

    CHECK_OK(gguf_writer_open(&w, path, &why));
    declare(w);
    CHECK_OK(gguf_writer_write(w, NORM, 20, &why)); /* of "m", which wants 204 */
    assert_int_equal(gguf_writer_commit(w, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "'m'");
    CHECK(access(path, F_OK));

    CHECK_OK(gguf_writer_open(&w, path, &why));
    const int64_t odd[] = { 33, 1 };
    assert_int_equal(gguf_writer_add_tensor(w, "x", &FORMATS[FORMAT_Q8_0], 2, odd), ERR_USAGE);
    gguf_writer_abort(w);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    assert_int_equal(gguf_writer_add_tensor(w, "x", &FORMATS[FORMAT_F32], 1, ROW), ERR_OK);
    assert_int_equal(gguf_writer_add_tensor(w, "x", &FORMATS[FORMAT_F32], 1, ROW), ERR_USAGE);
    gguf_writer_abort(w);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    assert_int_equal(gguf_writer_write(w, NORM, 4, &why), ERR_USAGE); /* no tensor was declared */
    gguf_writer_abort(w);
    CHECK(access(path, F_OK));
    assert_int_equal(gguf_writer_open(&w, "/nonexistent-folder/x.gguf", &why), ERR_IO);
}

static void copied_metadata(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *a, *b;
    struct gguf_writer *w;
    char path[4096], copy[4096];
    snprintf(path, sizeof path, "%s", temp_path("source.gguf"));
    snprintf(copy, sizeof copy, "%s", temp_path("copy.gguf"));
    write_sample(path);
    CHECK_OK(gguf_open(&a, path, &why));
    CHECK_OK(gguf_writer_open(&w, copy, &why));
    for (int64_t i = 0; i < gguf_kv_count(a); i++)
        assert_int_equal(gguf_writer_copy_kv(w, gguf_kv_at(a, i)), ERR_OK);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&b, copy, &why));
    assert_int_equal(gguf_kv_count(b), gguf_kv_count(a));
    for (int64_t i = 0; i < gguf_kv_count(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i), *y = gguf_kv_at(b, i);
        CHECK_EQ(x->type, y->type);
        CHECK_EQ(x->element, y->element);
        CHECK_EQ(x->count, y->count);
        CHECK_EQ(x->key.len, y->key.len);
        CHECK(!memcmp(x->key.data, y->key.data, x->key.len));
        for (uint64_t j = 0; x->element == GGUF_STRING && j < x->count; j++)
            CHECK_EQ(gguf_kv_string(x, j).len, gguf_kv_string(y, j).len);
    }
    gguf_close(a);
    gguf_close(b);
    unlink(path);
    unlink(copy);
}

/* ---------------------------------------------------------------- value types */

static void scalar_types(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    struct str s = { 0 };
    put_head(&s, 2, 0, 13);
    put_kv(&s, "u8", GGUF_U8, &(uint8_t){ 255 }, 1);
    put_kv(&s, "i8", GGUF_I8, &(int8_t){ -128 }, 1);
    put_kv(&s, "u16", GGUF_U16, &(uint16_t){ 65535 }, 2);
    put_kv(&s, "i16", GGUF_I16, &(int16_t){ -32768 }, 2);
    put_kv(&s, "u32", GGUF_U32, &(uint32_t){ 4294967295u }, 4);
    put_kv(&s, "i32", GGUF_I32, &(int32_t){ INT32_MIN }, 4);
    put_kv(&s, "f32", GGUF_F32, &(float){ 0.5f }, 4);
    put_kv(&s, "bool", GGUF_BOOL, &(uint8_t){ 1 }, 1);
    put_kv(&s, "u64", GGUF_U64, &(uint64_t){ UINT64_MAX }, 8);
    put_kv(&s, "i64", GGUF_I64, &(int64_t){ INT64_MIN }, 8);
    put_kv(&s, "f64", GGUF_F64, &(double){ 4096 }, 8);
    put_kv(&s, "nan", GGUF_F64, &(double){ NAN }, 8);
    put_kv(&s, "text", GGUF_STRING, "\2\0\0\0\0\0\0\0hi", 10);
    CHECK_OK(gguf_open_memory(&g, s.data, s.len, &why));
    assert_int_equal(gguf_version(g), 2);
    static const struct {
        const char *key;
        int64_t want;
    } INTS[] = { { "u8", 255 },         { "i8", -128 },       { "u16", 65535 }, { "i16", -32768 },
                 { "u32", 4294967295 }, { "i32", INT32_MIN }, { "bool", 1 },    { "i64", INT64_MIN },
                 { "f64", 4096 },       { "u64", 7 },         { "f32", 7 },     { "nan", 7 },
                 { "text", 7 },         { "absent", 7 } }; /* 7: would lose something, so `otherwise` */
    for (size_t i = 0; i < COUNT_OF(INTS); i++)
        if (gguf_get_int(g, INTS[i].key, 7) != INTS[i].want)
            fail_msg("%s reads as %lld", INTS[i].key, (long long)gguf_get_int(g, INTS[i].key, 7));
    CHECK_NEAR(gguf_get_num(g, "f32", 0), 0.5, 0);
    CHECK_NEAR(gguf_get_num(g, "i8", 0), -128, 0);
    CHECK_NEAR(gguf_get_num(g, "u64", 7), 7, 0);
    CHECK_NAN(gguf_get_num(g, "nan", 7)); /* 2^64-1 is no double */
    CHECK(gguf_get_bool(g, "bool", false));
    CHECK(gguf_get_bool(g, "u8", true));
    CHECK(!gguf_get_bool(g, "u8", false));
    CHECK(gguf_string_is(gguf_get_string(g, "text"), "hi"));
    CHECK(!gguf_get_string(g, "u8").data);
    gguf_close(g);
    str_free(&s);
}

/* ---------------------------------------------------------------- false claims */

/* A small sound file: two keys (one an array of strings) and two tensors. */
static void sound_file(struct str *s)
{
    str_clear(s);
    put_head(s, 3, 2, 3);
    put_kv(s, "name", GGUF_STRING, "\3\0\0\0\0\0\0\0abc", 11);
    put_text(s, "words");
    put_u32(s, GGUF_ARRAY);
    put_u32(s, GGUF_STRING);
    put_u64(s, 2);
    put_text(s, "x");
    put_text(s, "yz");
    put_kv(s, "on", GGUF_BOOL, &(uint8_t){ 1 }, 1);
    put_tensor(s, "a", 2, (uint64_t[]){ 32, 2 }, 8, 0);
    put_tensor(s, "b", 1, (uint64_t[]){ 8 }, 0, 96);
    put_padding(s, 32);
    for (int i = 0; i < 96 + 32; i++) str_append_n(s, "w", 1);
}

static enum err_code open_copy(const void *bytes, size_t n, struct err *why)
{
    unsigned char *exact = malloc(n ? n : 1); /* its own block: the sanitizer sees a step outside */
    struct gguf *g;
    if (n) memcpy(exact, bytes, n);
    enum err_code rc = gguf_open_memory(&g, exact, n, why);
    if (!rc) gguf_walk(g);
    gguf_close(g);
    free(exact);
    return rc;
}

static void false_claims(void **state)
{
    (void)state;
    static const struct {
        const char *what; /* bytes in the sound file to look for */
        size_t what_n;
        int64_t shift; /* write at this distance from them */
        uint64_t value;
        size_t bytes;
        const char *message; /* a part of the error */
    } CASES[] = {
        { "GGUF", 4, 0, 0x46554748, 4, "not a GGUF file" },
        { "GGUF", 4, 4, 0x03000000, 4, "big-endian" },
        { "GGUF", 4, 4, 4, 4, "version 4" },
        { "GGUF", 4, 4, 0, 4, "version 0" },
        { "GGUF", 4, 8, UINT64_MAX, 8, "tensors" },
        { "GGUF", 4, 16, UINT64_MAX, 8, "metadata keys" },
        { "GGUF", 4, 16, 4, 8, "" },
        { "name", 4, -8, UINT64_MAX, 8, "metadata key" },
        { "name", 4, -8, 0, 8, "" },
        { "name", 4, 4, 13, 4, "unknown value type 13" },
        { "name", 4, 8, UINT64_MAX - 7, 8, "'name'" },
        { "name", 4, 0, 0x0065616e, 4, "NUL" },
        { "words", 5, 9, GGUF_ARRAY, 4, "arrays" },
        { "words", 5, 9, 77, 4, "'words'" },
        { "words", 5, 13, UINT64_MAX / 8 + 2, 8, "strings" }, /* count * 8 wraps round to a small number */
        { "words", 5, 21, UINT64_MAX, 8, "'words'" },
        { "on", 2, 6, 2, 1, "expected 0 or 1" },
        { "a\2\0\0\0", 5, 1, 0, 4, "0 dimensions" },
        { "a\2\0\0\0", 5, 1, 5, 4, "5 dimensions" },
        { "a\2\0\0\0", 5, 5, 33, 8, "whole q8_0 blocks" },
        { "a\2\0\0\0", 5, 5, 0, 8, "no file can hold" },
        { "a\2\0\0\0", 5, 5, UINT64_MAX / 2 - 31, 8, "no file can hold" },
        { "a\2\0\0\0", 5, 13, 1ull << 62, 8, "no file can hold" },
        { "a\2\0\0\0", 5, 13, 1ull << 40, 8, "cut off or damaged" },
        { "a\2\0\0\0", 5, 21, 99, 4, "type 99" },
        { "a\2\0\0\0", 5, 21, 9, 4, "q8_1 (type 9)" },
        { "a\2\0\0\0", 5, 25, 1, 8, "multiple of 32" },
        { "a\2\0\0\0", 5, 25, UINT64_MAX - 31, 8, "cut off or damaged" },
        { "a\2\0\0\0", 5, 25, 32, 8, "overlap" },
        { "a\2\0\0\0", 5, 0, 'b', 1, "occurs twice" },
        { "a\2\0\0\0", 5, 0, 0, 1, "NUL" },
    };
    struct str s = { 0 };
    struct err why = { 0 };
    sound_file(&s);
    CHECK_OK(open_copy(s.data, s.len, &why));
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        sound_file(&s);
        char *at = memmem(s.data, s.len, CASES[i].what, CASES[i].what_n);
        CHECK_NE(at, NULL);
        memcpy(at + CASES[i].shift, &CASES[i].value, CASES[i].bytes);
        why = (struct err){ 0 };
        if (open_copy(s.data, s.len, &why) != ERR_FORMAT || !strstr(why.message, CASES[i].message))
            fail_msg("case %zu: want a message with '%s', got %d '%s'", i, CASES[i].message, why.code,
                     why.message);
    }
    str_free(&s);
}

/* A file of one tensor [32][2] of a type of ours; `list` NULL: without the key that names it. */
static void own_file(struct str *s, const char *list, uint32_t type)
{
    str_clear(s);
    put_head(s, 3, 1, list ? 1 : 0);
    if (list) {
        put_text(s, "qdyno.formats");
        put_u32(s, GGUF_STRING);
        put_text(s, list);
    }
    put_tensor(s, "a", 2, (uint64_t[]){ 32, 2 }, type, 0);
    put_padding(s, 32);
    for (int i = 0; i < 2 * 36; i++) str_append_n(s, "w", 1);
}

/* The number of a format of ours is the file's own business: its metadata says what it means. */
static void own_formats(void **state)
{
    (void)state;
    static const struct {
        const char *list, *message;
    } REFUSED[] = { { NULL, "does not name it" },
                    { "", "does not name it" },
                    { "int8=12345 fp8_e4m3=234 =1234 1234", "does not name it" },
                    { "other_3=1234", "weights in other_3 (type 1234)" } };
    struct str s = { 0 };
    struct err why = { 0 };
    struct gguf *g;
    own_file(&s, "fp8_e4m3=1000 int8=1234", 1234);
    CHECK_OK(gguf_open_memory(&g, s.data, s.len, &why));
    const struct gguf_tensor *t = gguf_tensor_find(g, "a");
    assert_ptr_equal(t->format, &FORMATS[FORMAT_INT8]);
    CHECK_EQ(t->bytes, 2 * 36);
    gguf_close(g);
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++) {
        own_file(&s, REFUSED[i].list, 1234);
        why = (struct err){ 0 };
        assert_int_equal(open_copy(s.data, s.len, &why), ERR_FORMAT);
        if (!strstr(why.message, REFUSED[i].message)) fail_msg("case %zu: %s", i, why.message);
    }
    str_free(&s);

    struct gguf_writer *w;
    char *path = temp_path("own.gguf");
    uint8_t rows[5 + 4];
    FORMATS[FORMAT_FP8_E5M2].encode(NORM, rows, 5);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_add_tensor(w, "norm", &FORMATS[FORMAT_FP8_E5M2], 1, ROW);
    CHECK_OK(gguf_writer_write(w, rows, sizeof rows, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK(gguf_string_is(gguf_get_string(g, "qdyno.formats"), "fp8_e5m2=1001"));
    t = gguf_tensor_find(g, "norm");
    assert_ptr_equal(t->format, &FORMATS[FORMAT_FP8_E5M2]);
    CHECK_EQ(t->bytes, 9);
    assert_memory_equal(t->data, rows, sizeof rows);
    gguf_close(g);
    unlink(path);
}

static void more_false_claims(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct str s = { 0 };
    put_head(&s, 3, 0, 2); /* a key twice */
    put_kv(&s, "k", GGUF_U8, "1", 1);
    put_kv(&s, "k", GGUF_U8, "1", 1);
    assert_int_equal(open_copy(s.data, s.len, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "occurs twice");
    static const uint32_t ALIGNMENTS[] = { 0, 3, 1u << 31, 33 };
    for (size_t i = 0; i < COUNT_OF(ALIGNMENTS); i++) {
        str_clear(&s);
        put_head(&s, 3, 0, 1);
        put_kv(&s, "general.alignment", GGUF_U32, &ALIGNMENTS[i], 4);
        assert_int_equal(open_copy(s.data, s.len, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, "power of two");
    }
    str_clear(&s); /* another alignment moves the data */
    put_head(&s, 3, 1, 1);
    put_kv(&s, "general.alignment", GGUF_U32, &(uint32_t){ 256 }, 4);
    put_tensor(&s, "t", 1, (uint64_t[]){ 1 }, 0, 0);
    put_padding(&s, 256);
    put_u32(&s, 0x3f800000);
    struct gguf *g;
    CHECK_OK(gguf_open_memory(&g, s.data, s.len, &why));
    float one;
    memcpy(&one, gguf_tensor_find(g, "t")->data, 4);
    CHECK_NEAR(one, 1.0f, 0);
    gguf_close(g);
    str_free(&s);
}

static void any_truncation(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct str s = { 0 };
    sound_file(&s);
    for (size_t n = 0; n < s.len; n++)
        if (open_copy(s.data, n, &why) != ERR_FORMAT) fail_msg("cut to %zu of %zu bytes: accepted", n, s.len);
    str_free(&s);
}

/* A header that arrives piece by piece: more of it is wanted up to its end, and none of what follows it. */
static void any_beginning(void **state)
{
    (void)state;
    enum { DATA = 96 + 32, PADDING = 32 };
    struct err why = { 0 };
    struct str s = { 0 };
    bool more;
    size_t needed = 0;
    sound_file(&s);
    for (size_t n = 0; n <= s.len; n++) {
        unsigned char *exact = malloc(n ? n : 1);
        if (n) memcpy(exact, s.data, n);
        const enum err_code rc = gguf_header_check(exact, n, (int64_t)s.len, &more, &why);
        if (rc && !more && n >= 4) fail_msg("%zu of %zu bytes: %s", n, s.len, why.message);
        CHECK(rc == ERR_OK || (rc == ERR_FORMAT && !needed));
        if (!rc && !needed) needed = n;
        free(exact);
    }
    CHECK(needed > 0 && needed <= s.len - DATA && needed > s.len - DATA - PADDING);
    /* the file is too short for what its header says: more bytes would not help */
    assert_int_equal(gguf_header_check(s.data, needed, (int64_t)s.len - 1, &more, &why), ERR_FORMAT);
    CHECK(!more);
    assert_int_equal(gguf_header_check(s.data, needed - 1, (int64_t)needed - 1, &more, &why), ERR_FORMAT);
    CHECK(!more);
    s.data[0] = 'X';
    assert_int_equal(gguf_header_check(s.data, needed, (int64_t)s.len, &more, &why), ERR_FORMAT);
    CHECK(!more);
    str_free(&s);
}

static void any_flipped_byte(void **state)
{
    (void)state;
    static const unsigned char MASKS[] = { 0x01, 0x80, 0xff, 0x20 };
    struct str s = { 0 };
    int opened = 0, refused = 0;
    sound_file(&s);
    for (size_t i = 0; i < s.len; i++)
        for (size_t m = 0; m < COUNT_OF(MASKS); m++) {
            s.data[i] = (char)(s.data[i] ^ MASKS[m]);
            struct err why = { 0 };
            enum err_code rc = open_copy(s.data, s.len, &why);
            s.data[i] = (char)(s.data[i] ^ MASKS[m]);
            CHECK(rc == ERR_OK || (rc == ERR_FORMAT && why.message[0]));
            rc ? refused++ : opened++;
        }
    CHECK_LT(100, refused);
    CHECK_LT(100, opened); /* names and weights may change, structure may not */
    str_free(&s);
}

/* ---------------------------------------------------------------- several files */

enum { PARTS = 3 };

static void part_path(char *buf, size_t size, int i)
{
    snprintf(buf, size, "%s-%05d-of-%05d.gguf", temp_path("parts"), i + 1, PARTS);
}

/* Part i holds one tensor named by names[i]; `no` and `total` are what it claims. */
static void write_part(int i, const char *name, uint32_t no, uint32_t total)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    char path[4096];
    float x[5] = { (float)i };
    part_path(path, sizeof path, i);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_u32(w, "split.no", no);
    gguf_writer_put_u32(w, "split.count", PARTS);
    gguf_writer_put_u32(w, "split.tensors.count", total);
    gguf_writer_add_tensor(w, name, &FORMATS[FORMAT_F32], 1, ROW);
    CHECK_OK(gguf_writer_write(w, x, sizeof x, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
}

static void expect_refused(const char *path, const char *message)
{
    struct err why = { 0 };
    struct gguf *g;
    enum err_code rc = gguf_open(&g, path, &why);
    if ((rc != ERR_FORMAT && rc != ERR_IO) || !strstr(why.message, message))
        fail_msg("want a message with '%s', got %d '%s'", message, rc, why.message);
    assert_ptr_equal(g, NULL);
}

static void shards(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    char path[PARTS][4096], hex[HASH_HEX];
    for (int i = 0; i < PARTS; i++) part_path(path[i], sizeof path[i], i);
    write_part(0, "t0", 0, 3);
    write_part(1, "t1", 1, 3);
    expect_refused(path[0], "00003-of-00003"); /* a part is missing: named */
    write_part(2, "t2", 2, 3);
    CHECK_OK(gguf_open(&g, path[0], &why));
    CHECK_EQ(gguf_shards(g), PARTS);
    CHECK_EQ(gguf_tensor_count(g), 3);
    float x;
    memcpy(&x, gguf_tensor_find(g, "t2")->data, sizeof x);
    CHECK_NEAR(x, 2.0f, 0);
    assert_ptr_equal(gguf_tensor_at(g, 1), gguf_tensor_find(g, "t1"));
    CHECK_OK(gguf_hash(g, hex, &why));
    assert_int_equal(strlen(hex), 64);
    gguf_close(g);
    expect_refused(path[1], "open the first one");
    write_part(2, "t2", 1, 3);
    expect_refused(path[0], "do not belong together");
    write_part(2, "t1", 2, 3);
    expect_refused(path[0], "'t1' occurs twice");
    write_part(2, "t2", 2, 3);
    write_part(0, "t0", 0, 4);
    expect_refused(path[0], "split.tensors.count is 4");
    CHECK(!rename(path[1], temp_path("renamed.gguf")));
    CHECK(!rename(path[0], temp_path("renamed.gguf")));
    expect_refused(temp_path("renamed.gguf"), "expected the name");
    unlink(temp_path("renamed.gguf"));
    unlink(path[2]);
}

/* ---------------------------------------------------------------- real files */

static void version_one(void **state)
{
    (void)state;
    char old[4096], new[4096];
    struct err why = { 0 };
    struct gguf *a, *b;
    SHARED_OR_SKIP(old, "models/stories260K/stories260K-f32.gguf");
    SHARED_OR_SKIP(new, "models/repacked/stories260K-f32.gguf");
    CHECK_OK(gguf_open(&a, old, &why));
    CHECK_OK(gguf_open(&b, new, &why));
    CHECK_EQ(gguf_version(a), 1);
    CHECK_EQ(gguf_version(b), 3);
    for (int64_t i = 0; i < gguf_tensor_count(b); i++) {
        const struct gguf_tensor *y = gguf_tensor_at(b, i), *x = gguf_tensor_find(a, y->name);
        CHECK(x);
        CHECK_EQ(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, (size_t)x->bytes);
    }
    const struct gguf_kv *p = gguf_kv_find(a, "tokenizer.ggml.tokens"),
                         *q = gguf_kv_find(b, "tokenizer.ggml.tokens");
    CHECK(p);
    CHECK(q);
    CHECK_EQ(p->count, 512);
    CHECK_EQ(q->count, 512);
    CHECK(gguf_kv_string(p, 511).len);
    CHECK_EQ(gguf_get_int(a, "llama.block_count", 0), 5);
    gguf_close(a);
    gguf_close(b);
}

static void real_files_cut_and_flipped(void **state)
{
    (void)state;
    static const char *const FILES[] = { "models/stories260K/stories260K-f32.gguf",
                                         "models/tinystories-656k/TinyStories-656K-Q8_0.gguf",
                                         "arch-golden/llama-gqa-256-IQ4_XS.gguf" };
    for (size_t f = 0; f < COUNT_OF(FILES); f++) {
        char path[4096];
        struct err why = { 0 };
        struct file_map map;
        struct gguf *g;
        SHARED_OR_SKIP(path, FILES[f]);
        CHECK_OK(file_map(&map, path, &why));
        CHECK_OK(gguf_open_memory(&g, map.data, map.size, &why));
        size_t head = (size_t)(gguf_tensor_at(g, 0)->data - map.data);
        gguf_close(g);
        unsigned char *bytes = malloc(map.size);
        memcpy(bytes, map.data, map.size);
        for (size_t n = 0; n < head; n += n < 4096 ? 1 : 211)
            assert_int_equal(gguf_open_memory(&g, bytes, n, &why), ERR_FORMAT);
        for (size_t n = head; n < map.size - 64; n += map.size / 50)
            assert_int_equal(gguf_open_memory(&g, bytes, n, &why), ERR_FORMAT);
        for (size_t i = 0; i < head; i += i < 1024 ? 1 : 97) {
            bytes[i] ^= 0xff;
            if (!gguf_open_memory(&g, bytes, map.size, &why)) gguf_walk(g);
            gguf_close(g);
            bytes[i] ^= 0xff;
        }
        free(bytes);
        file_unmap(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(copied_metadata),
        cmocka_unit_test(scalar_types),
        cmocka_unit_test(false_claims),
        cmocka_unit_test(own_formats),
        cmocka_unit_test(more_false_claims),
        cmocka_unit_test(any_truncation),
        cmocka_unit_test(any_beginning),
        cmocka_unit_test(any_flipped_byte),
        cmocka_unit_test(shards),
        cmocka_unit_test(version_one),
        cmocka_unit_test(real_files_cut_and_flipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
