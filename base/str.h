/* base/str.h - growing strings, strict parsing of numbers, spelling suggestions. Text is UTF-8; numbers are
 * read and written in the C locale, whatever the user's locale is. */
#ifndef QDYNO_BASE_STR_H
#define QDYNO_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing string: str_free. {0} is empty. `data` is NULL or NUL-terminated. When memory runs out, `failed`
 * is set and later appends are ignored, so one check at the end suffices. */
struct str {
    char *data;
    size_t len, cap;
    bool failed;
};

void str_append(struct str *s, const char *text);
void str_append_n(struct str *s, const void *bytes, size_t n);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Append a word of a command line that can be pasted into a shell: quoted if the shell would interpret it. */
void word_append(struct str *s, const char *word);
void str_clear(struct str *s); /* keeps the memory */
void str_free(struct str *s);

/* The text; "" when empty. Valid until the next change. */
const char *str_text(const struct str *s);

/* Returns the buffer, which the caller frees, and makes *s empty. NULL: an append failed. */
char *str_take(struct str *s);

/* "" for 1, else "s": for "%d block%s". */
const char *str_plural(int64_t n);

/* Parse a text that is one number. False, and *out unchanged, for other texts and for numbers out of range.
 * str_to_double accepts "nan" and "inf"; the caller checks isfinite if necessary. */
bool str_to_i64(const char *text, int64_t *out);
bool str_to_u64(const char *text, uint64_t *out);
bool str_to_double(const char *text, double *out);

/* Parses "512", "64k", "8G" or "1.5GiB" to bytes (powers of 1024). */
bool str_to_bytes(const char *text, int64_t *out);

/* Parses a share, "1%" or "0.01". False for a negative or infinite one, too. */
bool str_to_ratio(const char *text, double *out);

/* Parses "90", "90s", "5m", "1h", "30d" or "250ms" to seconds. */
bool str_to_seconds(const char *text, double *out);

/* Formats bytes as "1.17G", with three significant digits; "n/a" for a negative number. Returns buf. */
const char *str_from_bytes(int64_t bytes, char *buf, size_t size);

/* Formats the shortest decimal that parses to the same double; "null" for NaN and infinities, as in JSON.
 * buf: at least 32 bytes. Returns buf. */
const char *str_from_double(double v, char *buf, size_t size);

/* Copies the whole text, NULL as "". False, and out is "": it does not fit. For texts that mean something
 * else when they are cut: paths, config lines, commands. */
bool str_put(char *out, size_t size, const char *text);

bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);

/* True when `word` is one of the words of a list separated by single spaces. Case-insensitive. */
bool str_has_word(const char *list, const char *word);

/* Case-insensitive edit distance: insertion, deletion, replacement and swap of neighbours each cost 1. */
int str_distance(const char *a, const char *b);

/* The one of `count` names that is nearest to `word`; NULL when none is near enough for a suggestion. */
const char *str_nearest(const char *word, const char *const *names, size_t count);

/* Decodes one code point of s[0..n). Returns the bytes used; 1 and U+FFFD when malformed, 0 when n is 0. */
size_t str_utf8_next(const char *s, size_t n, uint32_t *code_point);

/* Number of bytes (0 to 3) at the end of s[0..n) that begin a character whose other bytes are missing. */
size_t str_utf8_unfinished(const char *s, size_t n);

/* Encodes a code point; returns how many bytes (1 to 4) were written to out. */
size_t str_utf8_put(uint32_t code_point, char out[4]);

/* The part of a path after its last '/'; points into `path`. */
const char *path_file_name(const char *path);

#endif
