/* Typed look-ups in GGUF metadata. A value is returned only when its conversion loses nothing.
 *
 * Files disagree on integer widths (u32 here, u64 there, i32 elsewhere), so callers ask for an integer and
 * every width is converted. A fraction that is asked for as an integer counts as absent. */
#include "engine/gguf/gguf_internal.h"

#include <math.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* One scalar of any type, widened. kind says which member holds it. */
struct scalar {
    enum { SCALAR_NONE, SCALAR_SIGNED, SCALAR_UNSIGNED, SCALAR_REAL } kind;
    int64_t i;
    uint64_t u;
    double d;
};

static struct scalar scalar_read(enum gguf_type type, const unsigned char *p)
{
    uint64_t bits = 0; /* little-endian: a narrow value fills the low bytes */
    float real;
    struct scalar s = { .kind = SCALAR_SIGNED };
    memcpy(&bits, p, gguf_type_size(type));
    switch (type) {
    case GGUF_BOOL:
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64: return (struct scalar){ .kind = SCALAR_UNSIGNED, .u = bits };
    case GGUF_I8: s.i = (int8_t)bits; return s;
    case GGUF_I16: s.i = (int16_t)bits; return s;
    case GGUF_I32: s.i = (int32_t)bits; return s;
    case GGUF_I64: s.i = (int64_t)bits; return s;
    case GGUF_F32:
        memcpy(&real, &bits, sizeof real);
        return (struct scalar){ .kind = SCALAR_REAL, .d = real };
    case GGUF_F64:
        s.kind = SCALAR_REAL;
        memcpy(&s.d, &bits, sizeof s.d);
        return s;
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_TYPE_COUNT: break;
    }
    return (struct scalar){ .kind = SCALAR_NONE };
}

static struct scalar scalar_find(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    return kv && kv->type != GGUF_ARRAY ? scalar_read(kv->type, kv->data) : (struct scalar){ 0 };
}

int64_t gguf_get_int(const struct gguf *g, const char *key, int64_t otherwise)
{
    struct scalar s = scalar_find(g, key);
    switch (s.kind) {
    case SCALAR_SIGNED: return s.i;
    case SCALAR_UNSIGNED: return s.u <= INT64_MAX ? (int64_t)s.u : otherwise;
    case SCALAR_REAL:
        return fabs(s.d) <= 0x1p53 && s.d == trunc(s.d) ? (int64_t)s.d : otherwise; /* NaN: otherwise */
    case SCALAR_NONE: break;
    }
    return otherwise;
}

static double scalar_num(struct scalar s, double otherwise)
{
    switch (s.kind) {
    case SCALAR_SIGNED: return s.i >= -(1ll << 53) && s.i <= 1ll << 53 ? (double)s.i : otherwise;
    case SCALAR_UNSIGNED: return s.u <= 1ull << 53 ? (double)s.u : otherwise;
    case SCALAR_REAL: return s.d;
    case SCALAR_NONE: break;
    }
    return otherwise;
}

double gguf_get_num(const struct gguf *g, const char *key, double otherwise)
{
    return scalar_num(scalar_find(g, key), otherwise);
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool otherwise)
{
    int64_t v = gguf_get_int(g, key, -1);
    return v == 0 || v == 1 ? v == 1 : otherwise;
}

struct gguf_string gguf_get_string(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    return kv && kv->type == GGUF_STRING ? gguf_kv_string(kv, 0) : (struct gguf_string){ 0 };
}

bool gguf_string_is(struct gguf_string s, const char *text)
{
    return s.data && s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

double gguf_kv_num(const struct gguf_kv *kv, uint64_t i)
{
    return scalar_num(scalar_read(kv->element, kv->data + i * gguf_type_size(kv->element)), NAN);
}

struct gguf_string gguf_kv_string(const struct gguf_kv *kv, uint64_t i)
{
    if (kv->element != GGUF_STRING) return (struct gguf_string){ 0 };
    const unsigned char *p = kv->data + (kv->string_at ? kv->string_at[i] : 0);
    uint64_t n = 0;
    memcpy(&n, p,
           (size_t)kv->length_bytes); /* little-endian: the 4 bytes of a version 1 file fill the low half */
    return (struct gguf_string){ (const char *)p + kv->length_bytes, (size_t)n };
}
