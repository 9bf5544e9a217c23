/* base/json_scan.h - internal: looks at the text of JSON before jansson builds values of it.
 *
 * jansson refuses valid JSON that it cannot hold (integers beyond 64 bits, U+0000) as if it were none, and
 * does not say where a value in a longer text ends. */
#ifndef QDYNO_BASE_JSON_SCAN_H
#define QDYNO_BASE_JSON_SCAN_H

#include "base/json.h"

/* Valid JSON that cannot be held everywhere, in the order in which it is refused. */
enum json_limit {
    LIMIT_NONE,
    LIMIT_DEPTH,
    LIMIT_KEY_ZERO,  /* U+0000 in a key */
    LIMIT_SURROGATE, /* half of a pair */
    LIMIT_REAL,      /* a number with a fraction or exponent that is too large for a double */
    LIMIT_INTEGER,   /* an integer that is too large for a double */
    LIMIT_ZERO,      /* U+0000 in a text */
};

/* An integer of more than 64 bits. */
struct big_integer {
    size_t at, n;
    size_t reals; /* real numbers and other big integers before it */
};

struct json_scan {
    const char *text;
    size_t n, at;
    bool object[JSON_DEPTH_MOST + 1]; /* by depth: an object, else a list */
    int depth;
    size_t reals;
    struct big_integer *big; /* [big_count] */
    size_t big_count, big_room;
    enum json_limit limit; /* the first one in the text; texts with U+0000 count only without any other */
    size_t limit_at, limit_n;
};
/* Scans one value, with white space before it; s->text and n are set, all else is 0. JSON_COMPLETE: s->at is
 * the end of the value. After LIMIT_DEPTH, JSON_WRONG. json_scan_free. False in *ok: out of memory. */
enum json_end json_scan_value(struct json_scan *s, bool *ok);
void json_scan_free(struct json_scan *s);

#endif
