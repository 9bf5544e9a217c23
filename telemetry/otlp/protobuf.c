/* telemetry/otlp/protobuf.c - the Protocol Buffers wire format. OTLP needs so little of it that a library and
 * generated code would be larger than the rest of the exporter. */
#include "telemetry/otlp/protobuf.h"

#include <string.h>

/* ---------------------------------------------------------------- writing */

/* Encodes a base-128 varint; returns its length. */
static size_t varint_encode(unsigned char out[10], uint64_t value)
{
    size_t n = 0;
    do {
        out[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    return n;
}

static void append_varint(struct str *out, uint64_t value)
{
    unsigned char bytes[10];
    str_append_n(out, bytes, varint_encode(bytes, value));
}

static void append_tag(struct str *out, int field, enum pb_wire wire)
{
    append_varint(out, (uint64_t)field << 3 | wire);
}

static void append_fixed64(struct str *out, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    str_append_n(out, bytes, sizeof bytes);
}

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void pb_put_varint(struct str *out, int field, uint64_t value)
{
    append_tag(out, field, PB_VARINT);
    append_varint(out, value);
}

void pb_put_fixed64(struct str *out, int field, uint64_t value)
{
    append_tag(out, field, PB_FIXED64);
    append_fixed64(out, value);
}

void pb_put_double(struct str *out, int field, double value)
{
    pb_put_fixed64(out, field, double_bits(value));
}

void pb_put_bytes(struct str *out, int field, const void *bytes, size_t n)
{
    append_tag(out, field, PB_BYTES);
    append_varint(out, n);
    if (n) str_append_n(out, bytes, n);
}

void pb_put_string(struct str *out, int field, const char *text)
{
    const size_t opened = pb_open(out, field);
    for (size_t left = strlen(text); left;) {
        uint32_t c;
        char utf8[4];
        const size_t n = str_utf8_next(text, left, &c);
        str_append_n(out, utf8, str_utf8_put(c, utf8));
        text += n;
        left -= n;
    }
    pb_close(out, opened);
}

void pb_put_packed_fixed64(struct str *out, int field, const uint64_t *values, size_t n)
{
    if (!n) return;
    append_tag(out, field, PB_BYTES);
    append_varint(out, 8 * n);
    for (size_t i = 0; i < n; i++) append_fixed64(out, values[i]);
}

void pb_put_packed_doubles(struct str *out, int field, const double *values, size_t n)
{
    if (!n) return;
    append_tag(out, field, PB_BYTES);
    append_varint(out, 8 * n);
    for (size_t i = 0; i < n; i++) append_fixed64(out, double_bits(values[i]));
}

size_t pb_open(struct str *out, int field)
{
    append_tag(out, field, PB_BYTES);
    return out->len;
}

/* The length precedes the message but is known only now, so the message is moved to make room for it. */
void pb_close(struct str *out, size_t opened)
{
    unsigned char length[10];
    if (out->failed) return;
    const size_t body = out->len - opened, n = varint_encode(length, body);
    str_append_n(out, length, n);
    if (out->failed) return;
    memmove(out->data + opened + n, out->data + opened, body);
    memcpy(out->data + opened, length, n);
}

/* ---------------------------------------------------------------- reading */

static bool read_varint(struct pb_reader *r, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 70 && r->at < r->end; shift += 7) {
        const unsigned char byte = *r->at++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool read_fixed(struct pb_reader *r, int n, uint64_t *value)
{
    if (r->end - r->at < n) return false;
    *value = 0;
    for (int i = 0; i < n; i++) *value |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    return true;
}

static bool read_value(struct pb_reader *r, struct pb_field *f)
{
    uint64_t n;
    switch (f->wire) {
    case PB_VARINT: return read_varint(r, &f->value);
    case PB_FIXED64: return read_fixed(r, 8, &f->value);
    case PB_FIXED32: return read_fixed(r, 4, &f->value);
    case PB_BYTES:
        if (!read_varint(r, &n) || n > (uint64_t)(r->end - r->at)) return false;
        f->bytes = r->at;
        f->n = (size_t)n;
        r->at += n;
        return true;
    }
    return false; /* groups, which proto3 does not have */
}

bool pb_next(struct pb_reader *r, struct pb_field *out, bool *bad)
{
    uint64_t tag;
    *out = (struct pb_field){ 0 };
    if (*bad || r->at == r->end) return false;
    *bad = true;
    if (!read_varint(r, &tag) || !(tag >> 3) || tag >> 3 > 0x1fffffff) return false;
    out->number = (int)(tag >> 3);
    out->wire = (enum pb_wire)(tag & 7);
    *bad = !read_value(r, out);
    return !*bad;
}
