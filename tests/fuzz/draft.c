#include "tests/fuzz/draft.h"

#include <stdlib.h>

enum { ALIGNMENT = 32, MAGIC_BYTES = 4 };

/* ---------------------------------------------------------------- reading */

struct reader {
    const uint8_t *at;
    size_t left;
    bool failed;
};

static const uint8_t *take(struct reader *r, uint64_t n)
{
    const uint8_t *at = r->at;
    if (n > r->left) r->failed = true;
    if (r->failed) return NULL;
    r->at += n;
    r->left -= (size_t)n;
    return at;
}

static uint64_t take_number(struct reader *r, size_t n)
{
    uint64_t number = 0;
    const uint8_t *at = take(r, n);
    if (at) memcpy(&number, at, n);
    return number;
}

static void take_bytes(struct reader *r, struct str *out, uint64_t n)
{
    const uint8_t *at = take(r, n);
    if (at) str_append_n(out, at, (size_t)n);
}

static size_t scalar_bytes(uint32_t type)
{
    static const size_t BYTES[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8
    };
    return type < GGUF_TYPE_COUNT ? BYTES[type] : 0;
}

static void read_values(struct reader *r, struct draft_key *k, uint32_t type)
{
    const uint8_t *from = r->at;
    if (type != GGUF_STRING && (!scalar_bytes(type) || k->count > r->left / scalar_bytes(type)))
        r->failed = true;
    if (type != GGUF_STRING)
        take(r, k->count * scalar_bytes(type));
    else
        for (uint64_t i = 0; i < k->count && !r->failed; i++) take(r, take_number(r, 8));
    if (!r->failed) str_append_n(&k->value, from, (size_t)(r->at - from));
}

static void read_key(struct reader *r, struct draft_key *k)
{
    take_bytes(r, &k->name, take_number(r, 8));
    k->type = (uint32_t)take_number(r, 4);
    k->element = k->type == GGUF_ARRAY ? (uint32_t)take_number(r, 4) : k->type;
    k->count = k->type == GGUF_ARRAY ? take_number(r, 8) : 1;
    read_values(r, k, k->element);
}

static void read_tensor(struct reader *r, struct draft_tensor *t)
{
    take_bytes(r, &t->name, take_number(r, 8));
    t->dims = (uint32_t)take_number(r, 4);
    if (t->dims > DRAFT_DIMS) r->failed = true;
    for (uint32_t i = 0; i < t->dims && !r->failed; i++) t->shape[i] = take_number(r, 8);
    t->type = (uint32_t)take_number(r, 4);
    t->shift = take_number(r, 8); /* the offset, until the data was read */
}

/* Bytes of the data that shape and type say; 0: not defined, or more than a draft holds. */
static size_t tensor_bytes(const struct draft_tensor *t)
{
    const struct format *f = format_by_ggml_type(t->type);
    uint64_t rows = 1;
    if (!f || !t->dims || t->dims > DRAFT_DIMS || t->shape[0] > DRAFT_BYTES || t->shape[0] % f->block_weights)
        return 0;
    for (uint32_t i = 1; i < t->dims; i++) {
        if (t->shape[i] > DRAFT_BYTES) return 0;
        rows *= t->shape[i];
        if (rows > DRAFT_BYTES) return 0;
    }
    const uint64_t row = (uint64_t)format_row_bytes(f, (int64_t)t->shape[0]);
    return rows * row <= DRAFT_BYTES ? (size_t)(rows * row) : 0;
}

bool draft_read(struct draft *d, const uint8_t *bytes, size_t size)
{
    struct reader r = { bytes, size, false };
    const uint8_t *magic = take(&r, MAGIC_BYTES);
    const uint64_t version = take_number(&r, 4), tensors = take_number(&r, 8), keys = take_number(&r, 8);
    if (r.failed || memcmp(magic, "GGUF", MAGIC_BYTES) || (version != 2 && version != 3)) return false;
    if (keys > DRAFT_KEYS || tensors > DRAFT_TENSORS || size > DRAFT_BYTES) return false;
    for (d->keys = 0; d->keys < keys && !r.failed; d->keys++) read_key(&r, &d->key[d->keys]);
    for (d->tensors = 0; d->tensors < tensors && !r.failed; d->tensors++)
        read_tensor(&r, &d->tensor[d->tensors]);
    const size_t data = (size - r.left + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (size_t i = 0; i < d->tensors && !r.failed; i++) {
        struct draft_tensor *t = &d->tensor[i];
        const size_t n = tensor_bytes(t);
        if (data > size || t->shift > size - data || n > size - data - t->shift) return false;
        str_append_n(&t->data, bytes + data + t->shift, n);
        t->shift = 0;
    }
    return !r.failed;
}

/* ---------------------------------------------------------------- writing */

static void put_number(struct str *s, uint64_t number, size_t n)
{
    str_append_n(s, &number, n);
}

static void put_str(struct str *s, const struct str *text)
{
    put_number(s, text->len, 8);
    str_append_n(s, str_text(text), text->len);
}

/* The alignment that readers of the file will use. */
static size_t alignment_of(const struct draft *d)
{
    const struct draft_key *k = draft_find((struct draft *)d, "general.alignment");
    uint32_t n = ALIGNMENT;
    if (k && k->type == GGUF_U32 && k->value.len == sizeof n) memcpy(&n, k->value.data, sizeof n);
    return n && n <= DRAFT_BYTES && !(n & (n - 1)) ? n : ALIGNMENT;
}

static void pad(struct str *s, size_t alignment)
{
    while (s->len % alignment) str_append_n(s, "", 1);
}

void draft_write(const struct draft *d, struct str *out)
{
    const size_t alignment = alignment_of(d);
    uint64_t offset = 0;
    str_append(out, "GGUF");
    put_number(out, 3, 4);
    put_number(out, d->tensors, 8);
    put_number(out, d->keys, 8);
    for (size_t i = 0; i < d->keys; i++) {
        const struct draft_key *k = &d->key[i];
        put_str(out, &k->name);
        put_number(out, k->type, 4);
        if (k->type == GGUF_ARRAY) put_number(out, k->element, 4);
        if (k->type == GGUF_ARRAY) put_number(out, k->count, 8);
        str_append_n(out, str_text(&k->value), k->value.len);
    }
    for (size_t i = 0; i < d->tensors; i++) {
        const struct draft_tensor *t = &d->tensor[i];
        put_str(out, &t->name);
        put_number(out, t->dims, 4);
        str_append_n(out, t->shape, MIN(t->dims, DRAFT_DIMS) * sizeof *t->shape);
        put_number(out, t->type, 4);
        put_number(out, offset + t->shift, 8);
        offset += (t->data.len + alignment - 1) / alignment * alignment;
    }
    for (size_t i = 0; i < d->tensors; i++) {
        pad(out, alignment);
        str_append_n(out, str_text(&d->tensor[i].data), d->tensor[i].data.len);
    }
}

void draft_free(struct draft *d)
{
    for (size_t i = 0; i < DRAFT_KEYS; i++) {
        str_free(&d->key[i].name);
        str_free(&d->key[i].value);
    }
    for (size_t i = 0; i < DRAFT_TENSORS; i++) {
        str_free(&d->tensor[i].name);
        str_free(&d->tensor[i].data);
    }
}

/* ---------------------------------------------------------------- building */

struct draft_key *draft_find(struct draft *d, const char *name)
{
    for (size_t i = 0; i < d->keys; i++)
        if (!strcmp(str_text(&d->key[i].name), name)) return &d->key[i];
    return NULL;
}

struct draft_key *draft_add(struct draft *d, const char *name, uint32_t type, const void *value, size_t n)
{
    if (d->keys == DRAFT_KEYS) return NULL;
    struct draft_key *k = &d->key[d->keys++];
    str_append(&k->name, name);
    k->type = k->element = type;
    k->count = 1;
    str_append_n(&k->value, value, n);
    return k;
}

void draft_add_u32(struct draft *d, const char *name, uint32_t value)
{
    draft_add(d, name, GGUF_U32, &value, sizeof value);
}

void draft_add_f32(struct draft *d, const char *name, float value)
{
    draft_add(d, name, GGUF_F32, &value, sizeof value);
}

void draft_add_text(struct draft *d, const char *name, const char *text)
{
    struct draft_key *k = draft_add(d, name, GGUF_STRING, "", 0);
    if (k) draft_put_text(k, text, strlen(text));
}

void draft_put_text(struct draft_key *k, const char *text, size_t n)
{
    put_number(&k->value, n, 8);
    str_append_n(&k->value, text, n);
}

static uint64_t next_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return *state >> 33;
}

bool draft_fill(struct draft_tensor *t, uint64_t seed)
{
    const struct format *f = format_by_ggml_type(t->type);
    const size_t n = tensor_bytes(t);
    str_clear(&t->data);
    if (!n) return false;
    const int64_t cols = (int64_t)t->shape[0], rows = (int64_t)n / format_row_bytes(f, cols);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    char *out = malloc(n);
    if (!x || !out) abort();
    for (int64_t i = 0; i < rows * cols; i++) x[i] = (float)(next_word(&seed) % 2001) / 4000 - 0.25f;
    for (uint32_t k = 0; !f->encode && k < n; k++)
        out[k] = (char)(next_word(&seed) & 0x3f); /* finite scales */
    if (f->encode) format_encode_rows(f, x, out, rows, cols);
    str_append_n(&t->data, out, n);
    free(x);
    free(out);
    return true;
}
