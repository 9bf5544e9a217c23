/* telemetry/otlp/protobuf.h - writes and reads the part of the Protocol Buffers wire format that OTLP uses
 * (internal to telemetry/otlp).
 *
 * Functions that write append to a struct str, whose `failed` is set when memory runs out. A nested message
 * is written between pb_open and pb_close. Functions that read never access bytes beyond those given. Source:
 * the "Encoding" page of protobuf.dev. */
#ifndef QDYNO_TELEMETRY_PROTOBUF_H
#define QDYNO_TELEMETRY_PROTOBUF_H

#include "base/base.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* ---------------------------------------------------------------- writing */

void pb_put_varint(struct str *out, int field,
                   uint64_t value); /* cast a negative int64: it takes ten bytes */
void pb_put_fixed64(struct str *out, int field, uint64_t value);
void pb_put_double(struct str *out, int field, double value);
void pb_put_bytes(struct str *out, int field, const void *bytes, size_t n);
/* Replaces invalid UTF-8 by U+FFFD, because readers refuse a whole message with one invalid byte. */
void pb_put_string(struct str *out, int field, const char *text);
/* An array of numbers in one field ("packed"); writes nothing when n is 0. */
void pb_put_packed_fixed64(struct str *out, int field, const uint64_t *values, size_t n);
void pb_put_packed_doubles(struct str *out, int field, const double *values, size_t n);

/* Begins a nested message as the value of `field`. Returns its position, for pb_close. */
size_t pb_open(struct str *out, int field);
void pb_close(struct str *out, size_t opened);

/* ---------------------------------------------------------------- reading */

/* One field of a message. */
struct pb_field {
    int number;
    enum pb_wire wire;
    uint64_t value;             /* PB_VARINT, PB_FIXED64, PB_FIXED32 */
    const unsigned char *bytes; /* PB_BYTES: [n], borrowed */
    size_t n;
};
struct pb_reader {
    const unsigned char *at, *end;
};
/* Reads the next field. False at the end, or when the bytes are not a valid message: truncated, field number
 * 0, or an unknown wire type; then *bad becomes true (initialize it to false). */
bool pb_next(struct pb_reader *r, struct pb_field *out, bool *bad);

#endif
