/* base/str.h - growing strings, strict numbers, spelling help. All text is UTF-8, all numbers are read and
 * written in the C locale whatever the user's locale is. */
#ifndef QDYNO_BASE_STR_H
#define QDYNO_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing string. {0} is an empty one. `data` is NULL or NUL-terminated. Owned by the holder: str_free. Out
 * of memory sets `failed` and drops what came after: check once at the end. */
struct str {
    char *data;
    size_t len, cap;
    bool failed;
};

void str_append(struct str *s, const char *text);
void str_append_n(struct str *s, const void *bytes, size_t n);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_clear(struct str *s); /* keeps the memory */
void str_free(struct str *s);

/* The text, "" when empty; valid until the next change. */
const char *str_text(const struct str *s);

/* Hand the buffer over (free() it); NULL when an append failed. *s is empty afterwards. */
char *str_take(struct str *s);

/* Whole-string numbers: false (and *out untouched) on anything before, behind or out of range. Doubles accept
 * "nan"/"inf" only through str_to_double's caller checking isfinite. */
bool str_to_i64(const char *text, int64_t *out);
bool str_to_u64(const char *text, uint64_t *out);
bool str_to_double(const char *text, double *out);

/* "512", "64k", "8G", "1.5GiB" -> bytes (powers of 1024). */
bool str_to_bytes(const char *text, int64_t *out);

/* "90", "90s", "5m", "1h", "30d", "250ms" -> seconds. */
bool str_to_seconds(const char *text, double *out);

/* "1.17G"-style short bytes, three significant digits; "n/a" for a negative count. Returns buf. */
const char *str_from_bytes(int64_t bytes, char *buf, size_t size);

/* Shortest decimal that reads back as the same double; "null" for NaN and infinities (JSON). Returns buf (>=
 * 32). */
const char *str_from_double(double v, char *buf, size_t size);

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);

/* Is `word` one of a list's words, which single spaces divide? Case-insensitive. */
bool str_has_word(const char *list, const char *word);

/* Case-insensitive edit distance (insert, delete, replace, swap of neighbours each cost 1). */
int str_distance(const char *a, const char *b);

/* Which of `count` names is nearest to `word`; NULL when none is near enough to be worth suggesting. */
const char *str_nearest(const char *word, const char *const *names, size_t count);

/* Decode one code point at s[0..n): returns bytes used (1 and U+FFFD when malformed), 0 when n is 0. */
size_t str_utf8_next(const char *s, size_t n, uint32_t *code_point);

/* Encode; returns the 1 to 4 bytes written to out[4]. */
size_t str_utf8_put(uint32_t code_point, char out[4]);

#endif
