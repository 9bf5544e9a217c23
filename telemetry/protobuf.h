/* telemetry/protobuf.h - the little of Protocol Buffers that OTLP needs: the wire format, written and read
 * (inside telemetry/).
 *
 * Writing goes into a struct str; running out of memory shows in its `failed`. A message inside a message is
 * written between pb_open and pb_close. Reading never looks behind the bytes it was given. Source: the
 * "Encoding" page of protobuf.dev. */
#ifndef QDYNO_TELEMETRY_PROTOBUF_H
#define QDYNO_TELEMETRY_PROTOBUF_H

#include "base/base.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* ---------------------------------------------------------------- writing */

void pb_put_varint(struct str *out, int field, uint64_t value); /* negative int64: cast, ten bytes */
void pb_put_fixed64(struct str *out, int field, uint64_t value);
void pb_put_double(struct str *out, int field, double value);
void pb_put_bytes(struct str *out, int field, const void *bytes, size_t n);
/* Bad UTF-8 becomes U+FFFD: one such byte would make a reader refuse the whole message. */
void pb_put_string(struct str *out, int field, const char *text);
/* Repeated numbers in one field ("packed"); n 0 writes nothing. */
void pb_put_packed_fixed64(struct str *out, int field, const uint64_t *values, size_t n);
void pb_put_packed_doubles(struct str *out, int field, const double *values, size_t n);

/* A message as the value of `field`: returns where it began, for pb_close. */
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
/* The next field; false at the end. *bad (false before the first call) becomes true when the bytes are no
 * message: cut short, a field number of 0, a wire type that does not exist. */
bool pb_next(struct pb_reader *r, struct pb_field *out, bool *bad);

#endif
