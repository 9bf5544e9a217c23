/* Parses the bytes of one GGUF file into tables. The file is untrusted.
 *
 * Every number in the file is checked against the bytes that are left before it is used as a size, so that
 * allocations stay proportional to the file and nothing outside it is read. Values stay in the mapping; only
 * the directories (keys, string offsets, tensor headers) are copied. */
#include "engine/gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are used in place, little-endian");

static const struct {
    const char *name;
    size_t size;
} TYPES[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = { "u8", 1 },       [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 },
    [GGUF_I16] = { "i16", 2 },     [GGUF_U32] = { "u32", 4 },   [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 },     [GGUF_BOOL] = { "bool", 1 }, [GGUF_STRING] = { "string", 0 },
    [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "u64", 8 },   [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};

size_t gguf_type_size(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? TYPES[type].size : 0;
}

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? TYPES[type].name : "unknown";
}

/* A read position. The first read past the end sets `cut`, and every later read fails, too. */
struct cursor {
    const unsigned char *data;
    size_t size, at;
    int length_bytes; /* of counts and string lengths: 8, or 4 in version 1 */
    bool cut;         /* a read went past the end of the file */
};

static size_t cursor_left(const struct cursor *c)
{
    return c->size - c->at;
}

static const unsigned char *cursor_take(struct cursor *c, size_t n)
{
    if (c->cut || n > cursor_left(c)) {
        c->cut = true;
        return NULL;
    }
    const unsigned char *p = c->data + c->at;
    c->at += n;
    return p;
}

static uint32_t cursor_u32(struct cursor *c)
{
    uint32_t v = 0;
    const unsigned char *p = cursor_take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t cursor_u64(struct cursor *c)
{
    uint64_t v = 0;
    const unsigned char *p = cursor_take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t cursor_length(struct cursor *c)
{
    return c->length_bytes == 4 ? cursor_u32(c) : cursor_u64(c);
}

static struct gguf_string cursor_string(struct cursor *c)
{
    uint64_t n = cursor_length(c);
    if (n > cursor_left(c)) c->cut = true;
    const unsigned char *p = c->cut ? NULL : cursor_take(c, (size_t)n);
    return p ? (struct gguf_string){ (const char *)p, (size_t)n } : (struct gguf_string){ 0 };
}

static enum err_code cursor_error(const struct cursor *c, struct err *why, const char *in)
{
    return err_set(why, ERR_FORMAT, "the file ends inside %s: it has %zu bytes and is cut off or damaged", in,
                   c->size);
}

/* Printable form of untrusted bytes for messages. */
static const char *text_printable(struct gguf_string s, char *buf, size_t size)
{
    size_t n = 0;
    for (; n < s.len && n + 4 < size; n++) {
        unsigned char b = (unsigned char)s.data[n];
        buf[n] = b < 32 || b > 126 ? '?' : (char)b;
    }
    memcpy(buf + n, n < s.len ? "..." : "", n < s.len ? 4 : 1);
    return buf;
}

/* Read an array of strings: store the offset of each element. */
static enum err_code kv_read_strings(struct cursor *c, struct gguf_kv *kv, struct arena *memory,
                                     struct err *why)
{
    if (kv->count > cursor_left(c) / (size_t)c->length_bytes) {
        c->cut = true;
        return cursor_error(c, why, "an array of strings");
    }
    uint64_t *at = arena_alloc(memory, ((size_t)kv->count + 1) * sizeof *at);
    if (!at) return err_set(why, ERR_NOMEM, "out of memory for %" PRIu64 " strings", kv->count);
    size_t first = c->at;
    for (uint64_t i = 0; i < kv->count; i++) {
        at[i] = c->at - first;
        cursor_string(c);
        if (c->cut) return cursor_error(c, why, "an array of strings");
    }
    kv->string_at = at;
    return ERR_OK;
}

static enum err_code kv_check_bools(const struct gguf_kv *kv, enum gguf_type type, struct err *why)
{
    if (type != GGUF_BOOL) return ERR_OK;
    for (uint64_t i = 0; i < kv->count; i++)
        if (kv->data[i] > 1) return err_set(why, ERR_FORMAT, "a bool is %d: expected 0 or 1", kv->data[i]);
    return ERR_OK;
}

static enum err_code kv_read_value(struct cursor *c, struct gguf_kv *kv, struct arena *memory,
                                   struct err *why)
{
    uint32_t type = cursor_u32(c), element = type;
    kv->count = 1;
    if (!c->cut && type == GGUF_ARRAY) {
        element = cursor_u32(c);
        kv->count = cursor_length(c);
    }
    if (c->cut) return cursor_error(c, why, "its type");
    if (type >= GGUF_TYPE_COUNT) return err_set(why, ERR_FORMAT, "unknown value type %" PRIu32, type);
    if (element >= GGUF_TYPE_COUNT || (type == GGUF_ARRAY && element == GGUF_ARRAY))
        return err_set(why, ERR_FORMAT, "an array of %s: only arrays of plain values are supported",
                       element == GGUF_ARRAY ? "arrays" : "an unknown type");
    kv->type = (enum gguf_type)type;
    kv->element = (enum gguf_type)element;
    kv->data = c->data + c->at;
    kv->length_bytes = c->length_bytes;
    if (element == GGUF_STRING) {
        if (type == GGUF_ARRAY) return kv_read_strings(c, kv, memory, why);
        cursor_string(c);
        return c->cut ? cursor_error(c, why, "its text") : ERR_OK;
    }
    size_t size = gguf_type_size(kv->element);
    if (kv->count > cursor_left(c) / size) {
        c->cut = true;
        return cursor_error(c, why, "its value");
    }
    cursor_take(c, (size_t)kv->count * size);
    return kv_check_bools(kv, kv->element, why);
}

static enum err_code shard_read_kvs(struct cursor *c, struct gguf_shard *s, uint64_t count,
                                    struct arena *memory, struct err *why)
{
    char name[80];
    size_t least = (size_t)c->length_bytes + 4 + 1; /* empty key, type, one byte */
    if (count > cursor_left(c) / least) {
        c->cut = true;
        return err_set(why, ERR_FORMAT, "the header claims %" PRIu64 " metadata keys, the file has %zu bytes",
                       count, c->size);
    }
    s->kv = arena_alloc(memory, (size_t)count * sizeof *s->kv);
    if (!s->kv) return err_set(why, ERR_NOMEM, "out of memory for %" PRIu64 " metadata keys", count);
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_kv *kv = &s->kv[i];
        kv->key = cursor_string(c);
        if (c->cut) return cursor_error(c, why, "a metadata key");
        if (kv->key.len == 0 || kv->key.len > GGUF_KEY_MAX || memchr(kv->key.data, 0, kv->key.len))
            return err_set(why, ERR_FORMAT, "metadata key %" PRIu64 " is empty, too long or holds a NUL byte",
                           i);
        enum err_code rc = kv_read_value(c, kv, memory, why);
        if (rc) {
            err_prefix(why, "metadata '%s'", text_printable(kv->key, name, sizeof name));
            return rc;
        }
        s->kv_count++;
    }
    return ERR_OK;
}

/* ggml types without a row in FORMATS: the error message names them. */
struct type_name {
    uint32_t type;
    const char *name;
};
static const struct type_name OTHER_TYPES[] = {
    { 9, "q8_1" },      { 15, "q8_K" },     { 24, "i8" },         { 25, "i16" },
    { 26, "i32" },      { 27, "i64" },      { 28, "f64" },        { 31, "q4_0_4_4" },
    { 32, "q4_0_4_8" }, { 33, "q4_0_8_8" }, { 37, "iq4_nl_4_8" }, { 38, "iq4_nl_8_8" },
};

/* Types of the fork ik_llama.cpp (its ggml.h); i2_s is also one of BitNet's programs. _r4, _r8 and _r16: the
 * rows of that many are interleaved. */
static const struct type_name FORK_TYPES[] = {
    { 36, "i2_s" },        { 97, "q8_0_x4" },    { 98, "q8_1_x4" },     { 99, "q8_2_x4" },
    { 133, "q6_0" },       { 134, "iq1_bn" },    { 135, "iq2_bn" },     { 136, "q8_K64" },
    { 137, "iq2_k" },      { 138, "iq3_k" },     { 139, "iq4_k" },      { 140, "iq5_k" },
    { 141, "iq6_k" },      { 144, "iq4_ks" },    { 145, "iq2_ks" },     { 146, "iq4_kss" },
    { 151, "q8_KV" },      { 152, "iq5_ks" },    { 153, "iq2_kt" },     { 154, "iq3_kt" },
    { 155, "iq4_kt" },     { 156, "iq3_ks" },    { 157, "iq2_kl" },     { 158, "iq1_kt" },
    { 202, "q4_0_r8" },    { 206, "q5_0_r4" },   { 208, "q8_0_r8" },    { 210, "q2_K_r4" },
    { 211, "q3_K_r4" },    { 212, "q4_K_r4" },   { 213, "q5_K_r4" },    { 214, "q6_K_r4" },
    { 216, "iq2_xxs_r4" }, { 217, "iq2_xs_r4" }, { 218, "iq3_xxs_r4" }, { 219, "iq1_s_r4" },
    { 220, "iq4_nl_r4" },  { 221, "iq3_s_r4" },  { 222, "iq2_s_r4" },   { 223, "iq4_xs_r8" },
    { 229, "iq1_m_r4" },   { 230, "bf16_r16" },  { 233, "q6_0_r4" },    { 335, "iq2_bn_r4" },
    { 337, "iq2_k_r4" },   { 338, "iq3_k_r4" },  { 339, "iq4_k_r4" },   { 340, "iq5_k_r4" },
    { 344, "iq4_ks_r4" },  { 352, "iq5_ks_r4" }, { 353, "mxfp4_r8" },   { 398, "q8_KV_r8" },
    { 399, "q8_K_r8" },
};

static const char *type_name_find(const struct type_name *types, size_t count, uint32_t type)
{
    for (size_t i = 0; i < count; i++)
        if (types[i].type == type) return types[i].name;
    return NULL;
}

/* The name that the file's list ("int8=1002 nf4=1030") gives to this type; {0}: not in the list. */
static struct gguf_string own_format_name(const struct gguf_shard *s, uint32_t type)
{
    char wanted[16];
    const size_t n = (size_t)snprintf(wanted, sizeof wanted, "=%" PRIu32, type);
    for (int64_t i = 0; i < s->kv_count; i++) {
        if (s->kv[i].type != GGUF_STRING || !gguf_string_is(s->kv[i].key, GGUF_OWN_FORMATS)) continue;
        const struct gguf_string list = gguf_kv_string(&s->kv[i], 0);
        for (size_t from = 0, to; from < list.len; from = to + 1) {
            for (to = from; to < list.len && list.data[to] != ' ';) to++;
            if (to - from > n && !memcmp(list.data + to - n, wanted, n))
                return (struct gguf_string){ list.data + from, to - from - n };
        }
    }
    return (struct gguf_string){ 0 };
}

/* The numbers of that fork: also those that are not in FORK_TYPES. */
static bool type_is_of_fork(uint32_t type)
{
    static const struct {
        uint32_t first, last;
    } RANGES[] = { { 97, 99 }, { 133, 158 }, { 200, 299 }, { 335, 399 } };
    for (size_t i = 0; i < COUNT_OF(RANGES); i++)
        if (type >= RANGES[i].first && type <= RANGES[i].last) return true;
    return type_name_find(FORK_TYPES, COUNT_OF(FORK_TYPES), type) != NULL;
}

enum err_code gguf_type_error(const struct gguf_tensor *t, struct err *why)
{
    char name[80];
    const bool own = t->type >= FORMAT_OWN_TYPES;
    if (own && t->type_name)
        err_set(why, ERR_FORMAT, "weights in %s (type %" PRIu32 "), which this version does not know",
                t->type_name, t->type);
    else if (own)
        err_set(why, ERR_FORMAT,
                "weight type %" PRIu32 " is not a ggml type, and metadata '" GGUF_OWN_FORMATS
                "' does not name it",
                t->type);
    else if (type_is_of_fork(t->type))
        err_set(why, ERR_FORMAT,
                "weights in %s (type %" PRIu32
                "), which only ik_llama.cpp, a fork of llama.cpp, reads: use a "
                "file that llama.cpp reads",
                t->type_name ? t->type_name : "an unknown format", t->type);
    else if (t->type_name)
        err_set(why, ERR_FORMAT, "weights in %s (type %" PRIu32 ") are not supported", t->type_name, t->type);
    else
        err_set(why, ERR_FORMAT, "weights of type %" PRIu32 ": no format with that number is known", t->type);
    const struct gguf_string text = { t->name, strlen(t->name) };
    return err_prefix(why, "tensor '%s'", text_printable(text, name, sizeof name));
}

/* Format and name of a type. Numbers of our own formats are only valid in this file: there, the name
 * identifies the format. */
static enum err_code tensor_find_format(struct gguf_tensor *t, const struct gguf_shard *s,
                                        struct arena *memory, struct err *why)
{
    if (t->type < FORMAT_OWN_TYPES) {
        t->format = format_by_ggml_type(t->type);
        if (t->format) t->type_name = t->format->name;
        if (!t->type_name) t->type_name = type_name_find(OTHER_TYPES, COUNT_OF(OTHER_TYPES), t->type);
        if (!t->type_name) t->type_name = type_name_find(FORK_TYPES, COUNT_OF(FORK_TYPES), t->type);
        return ERR_OK;
    }
    char name[32];
    const struct gguf_string text = own_format_name(s, t->type);
    if (!text.len) return ERR_OK;
    t->format = format_find(text_printable(text, name, sizeof name));
    t->type_name = t->format ? t->format->name : arena_strndup(memory, name, strlen(name));
    return t->type_name ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the name of a type");
}

/* The bytes that a tensor's data takes. All products are checked. */
static enum err_code tensor_count_bytes(struct gguf_tensor *t, int64_t elements, struct err *why)
{
    if (t->shape[0] % t->format->block_weights)
        return err_set(why, ERR_FORMAT,
                       "rows of %" PRId64 " do not fill whole %s blocks of %" PRIu32 " weights", t->shape[0],
                       t->format->name, t->format->block_weights);
    int64_t blocks, tails;
    if (__builtin_mul_overflow(elements / t->format->block_weights, (int64_t)t->format->block_bytes,
                               &blocks) ||
        __builtin_mul_overflow(elements / t->shape[0], (int64_t)t->format->row_tail_bytes, &tails) ||
        __builtin_add_overflow(blocks, tails, &t->bytes))
        return err_set(why, ERR_FORMAT, "%" PRId64 " weights: no file can hold that", elements);
    return ERR_OK;
}

/* Shape and type number of a tensor, and the product of its sizes. */
static enum err_code tensor_read_shape(struct cursor *c, struct gguf_tensor *t, int64_t *elements,
                                       struct err *why)
{
    uint32_t dims = cursor_u32(c);
    *elements = 1;
    if (c->cut) return cursor_error(c, why, "its header");
    if (dims < 1 || dims > GGUF_DIMS_MAX)
        return err_set(why, ERR_FORMAT, "%" PRIu32 " dimensions: expected 1 to %d", dims, GGUF_DIMS_MAX);
    t->dims = (int)dims;
    for (int i = 0; i < GGUF_DIMS_MAX; i++) {
        uint64_t n = i < t->dims ? cursor_length(c) : 1;
        if (c->cut) return cursor_error(c, why, "its shape");
        if (n < 1 || n > INT64_MAX || __builtin_mul_overflow(*elements, (int64_t)n, elements))
            return err_set(why, ERR_FORMAT, "dimension %d is %" PRIu64 ": no file can hold that", i, n);
        t->shape[i] = (int64_t)n;
    }
    t->type = cursor_u32(c);
    return c->cut ? cursor_error(c, why, "its type") : ERR_OK;
}

/* Read one tensor header; *offset is relative to the data section. */
static enum err_code tensor_read_header(struct cursor *c, const struct gguf_shard *s, struct gguf_tensor *t,
                                        uint64_t *offset, struct arena *memory, struct err *why)
{
    char name[80];
    struct gguf_string text = cursor_string(c);
    if (c->cut) return cursor_error(c, why, "a tensor's name");
    if (text.len == 0 || text.len > GGUF_NAME_MAX || memchr(text.data, 0, text.len))
        return err_set(why, ERR_FORMAT, "a tensor's name is empty, longer than %d or holds a NUL byte",
                       GGUF_NAME_MAX);
    t->name = arena_strndup(memory, text.data, text.len);
    if (!t->name) return err_set(why, ERR_NOMEM, "out of memory for a tensor's name");
    int64_t elements;
    enum err_code rc = tensor_read_shape(c, t, &elements, why);
    if (!rc) rc = tensor_find_format(t, s, memory, why);
    if (!rc && !t->format && !s->any_type) return gguf_type_error(t, why);
    if (!rc && t->format) rc = tensor_count_bytes(t, elements, why);
    if (!rc) {
        *offset = cursor_u64(c);
        if (c->cut) rc = cursor_error(c, why, "its offset");
    }
    if (rc) err_prefix(why, "tensor '%s'", text_printable(text, name, sizeof name));
    return rc;
}

struct span {
    uint64_t from, to;
    int64_t index;
};

static int span_order(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Place tensor i of `spans`, which are sorted. Refuses tensors that share bytes: no writer produces them, but
 * a damaged directory does. `room`: bytes of the data section. */
static enum err_code tensor_place(const struct gguf_shard *s, struct span *spans, int64_t i, uint64_t room,
                                  struct err *why)
{
    struct gguf_tensor *t = &s->tensors[spans[i].index];
    const uint64_t offset = spans[i].from;
    if (!t->format && offset < room)
        t->bytes = (int64_t)((i + 1 < s->tensor_count ? MIN(spans[i + 1].from, room) : room) - offset);
    const uint64_t bytes = (uint64_t)t->bytes;
    if (offset > room || bytes > room - offset || (!t->format && offset == room))
        return err_set(why, ERR_FORMAT,
                       "tensor '%.80s' needs %" PRIu64 " bytes at %" PRIu64 ", the file has %" PRIu64
                       " bytes of weights: it is cut off or damaged",
                       t->name, MAX(bytes, 1), offset, room);
    spans[i].to = offset + MAX(bytes, 1);
    if (i && offset < spans[i - 1].to)
        return err_set(why, ERR_FORMAT, "tensors '%.80s' and '%.80s' overlap",
                       s->tensors[spans[i - 1].index].name, t->name);
    return ERR_OK;
}

static enum err_code shard_place_tensors(struct cursor *c, struct gguf_shard *s, struct span *spans,
                                         uint64_t alignment, struct err *why)
{
    uint64_t start = ((uint64_t)c->at + alignment - 1) / alignment * alignment;
    const uint64_t whole = MAX(s->whole, c->size);
    uint64_t room = start < whole ? whole - start : 0;
    qsort(spans, (size_t)s->tensor_count, sizeof *spans, span_order);
    for (int64_t i = 0; i < s->tensor_count; i++) {
        struct gguf_tensor *t = &s->tensors[spans[i].index];
        if (spans[i].from % alignment)
            return err_set(why, ERR_FORMAT,
                           "tensor '%.80s' begins at %" PRIu64 ": expected a multiple of %" PRIu64, t->name,
                           spans[i].from, alignment);
        const enum err_code rc = tensor_place(s, spans, i, room, why);
        if (rc) return rc;
        if (!s->whole) t->data = s->data + start + spans[i].from;
    }
    return ERR_OK;
}

static enum err_code shard_read_tensors(struct cursor *c, struct gguf_shard *s, uint64_t count,
                                        uint64_t alignment, struct arena *memory, struct err *why)
{
    size_t least = (size_t)c->length_bytes + 1 + 4 + (size_t)c->length_bytes + 4 + 8;
    if (count > cursor_left(c) / least) {
        c->cut = true;
        return err_set(why, ERR_FORMAT, "the header claims %" PRIu64 " tensors, the file has %zu bytes",
                       count, c->size);
    }
    s->tensors = arena_alloc(memory, ((size_t)count + 1) * sizeof *s->tensors);
    struct span *spans = calloc((size_t)count + 1, sizeof *spans);
    enum err_code rc = ERR_OK;
    if (!s->tensors || !spans) rc = err_set(why, ERR_NOMEM, "out of memory for %" PRIu64 " tensors", count);
    for (uint64_t i = 0; !rc && i < count; i++) {
        rc = tensor_read_header(c, s, &s->tensors[i], &spans[i].from, memory, why);
        spans[i].index = (int64_t)i;
        s->tensor_count += !rc;
    }
    if (!rc) rc = shard_place_tensors(c, s, spans, alignment, why);
    free(spans);
    return rc;
}

/* general.alignment, read before there is any look-up table. 0: damaged. */
static enum err_code shard_alignment(const struct gguf_shard *s, uint64_t *out, struct err *why)
{
    *out = GGUF_ALIGNMENT;
    for (int64_t i = 0; i < s->kv_count; i++) {
        if (!gguf_string_is(s->kv[i].key, "general.alignment")) continue;
        uint32_t v = 0;
        if (s->kv[i].type == GGUF_U32) memcpy(&v, s->kv[i].data, sizeof v);
        if (v == 0 || v & (v - 1) || v > GGUF_ALIGNMENT_MAX)
            return err_set(why, ERR_FORMAT,
                           "general.alignment is %s %" PRIu32 ": expected u32, a power of two",
                           gguf_type_name(s->kv[i].type), v);
        *out = v;
    }
    return ERR_OK;
}

/* Names the first bytes, also of a file that is too short for a header. */
static enum err_code magic_error(const struct gguf_shard *s, struct err *why)
{
    char text[9 * 3 + 1] = "";
    if (s->size == 0) return err_set(why, ERR_FORMAT, "not a GGUF file: it is empty");
    for (size_t i = 0; i < MIN(s->size, 4); i++) sprintf(text + 3 * i, " %02x", s->data[i]);
    return err_set(why, ERR_FORMAT, "not a GGUF file: it begins with%s, expected 47 47 55 46 (\"GGUF\")",
                   text);
}

enum err_code gguf_shard_parse(struct gguf_shard *s, struct arena *memory, struct err *why)
{
    struct cursor c = { .data = s->data, .size = s->size, .length_bytes = 8 };
    uint32_t magic = cursor_u32(&c), version = cursor_u32(&c);
    if (s->size < 4 || magic != GGUF_MAGIC) return magic_error(s, why);
    if (!c.cut && version != 0 && (version & 0xffff) == 0)
        return err_set(why, ERR_FORMAT, "a big-endian GGUF file: only little-endian ones are read");
    if (!c.cut && (version < 1 || version > 3))
        return err_set(why, ERR_FORMAT, "GGUF version %" PRIu32 ": versions 1 to 3 are read", version);
    s->version = (int)version;
    if (version == 1) c.length_bytes = 4;
    uint64_t tensors = cursor_length(&c), kvs = cursor_length(&c), alignment;
    s->cut = c.cut;
    if (c.cut) return cursor_error(&c, why, "the header");

    enum err_code rc = shard_read_kvs(&c, s, kvs, memory, why);
    if (!rc) rc = shard_alignment(s, &alignment, why);
    if (!rc) rc = shard_read_tensors(&c, s, tensors, alignment, memory, why);
    s->cut = c.cut;
    return rc;
}
