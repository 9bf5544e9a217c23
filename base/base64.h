/* base/base64.h - bytes written as text (RFC 4648, section 4). */
#ifndef QDYNO_BASE_BASE64_H
#define QDYNO_BASE_BASE64_H

#include "base/str.h"

/* Append the bytes that `text` stands for. False: it is not base64 with its padding, or out of memory
 * (out->failed). */
bool base64_decode(const char *text, size_t n, struct str *out);

#endif
