/* Growing strings; parsing and formatting of numbers with units, independent of the locale; spelling
 * suggestions (edit distance); UTF-8. An append that runs out of memory marks the string as failed and later
 * appends do nothing, so that a caller checks once at the end. */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* Make room for `extra` bytes and the terminating zero. Capacity doubles, so n appends cost O(n). */
static bool str_reserve(struct str *s, size_t extra)
{
    if (s->failed) return false;
    if (s->len + extra + 1 <= s->cap) return true;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < s->len + extra + 1) cap *= 2;
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        memory_short_set();
        return false;
    }
    s->data = data;
    s->cap = cap;
    return true;
}

void str_append_n(struct str *s, const void *bytes, size_t n)
{
    if (!str_reserve(s, n)) return;
    if (n) memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void str_append(struct str *s, const char *text)
{
    str_append_n(s, text, strlen(text));
}

void str_printf(struct str *s, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && str_reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void word_append(struct str *s, const char *word)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
    if (*word && !word[strspn(word, PLAIN)]) {
        str_append(s, word);
        return;
    }
    str_append(s, "'");
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            str_append(s, "'\\''");
        else
            str_append_n(s, c, 1);
    str_append(s, "'");
}

void str_clear(struct str *s)
{
    s->len = 0;
    s->failed = false;
    if (s->data) s->data[0] = '\0';
}

void str_free(struct str *s)
{
    free(s->data);
    *s = (struct str){ 0 };
}

const char *str_text(const struct str *s)
{
    return s->data ? s->data : "";
}

char *str_take(struct str *s)
{
    str_append(s, ""); /* so that an empty string is not NULL */
    char *data = s->failed ? NULL : s->data;
    if (!data) free(s->data);
    *s = (struct str){ 0 };
    return data;
}

bool str_to_i64(const char *text, int64_t *out)
{
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool str_to_u64(const char *text, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return false; /* strtoull accepts "-1" */
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

/* Numbers are read in the C locale, whatever the program's locale is. 0: out of memory. */
static locale_t c_locale_object;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void c_locale_make(void)
{
    c_locale_object = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t c_locale(void)
{
    pthread_once(&c_locale_once, c_locale_make);
    return c_locale_object;
}

/* strtod in the C locale; *end as strtod leaves it. */
static double parse_double(const char *text, char **end)
{
    locale_t loc = c_locale();
    return loc ? strtod_l(text, end, loc) : strtod(text, end);
}

bool str_to_double(const char *text, double *out)
{
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    double v = parse_double(text, &end);
    if (*end) return false;
    *out = v;
    return true;
}

/* Parses a number followed by one of n units; the first unit may be "". */
struct unit {
    const char *name;
    double factor;
};

static bool parse_with_unit(const char *text, const struct unit *units, size_t n, double *out)
{
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '.') return false;
    double v = parse_double(text, &end);
    if (end == text || !isfinite(v)) return false;
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(end, units[i].name)) continue;
        *out = v * units[i].factor;
        return true;
    }
    return false;
}

bool str_to_bytes(const char *text, int64_t *out)
{
    static const struct unit UNITS[] = {
        { "", 1 },         { "b", 1 },       { "k", 0x1p10 },   { "kb", 0x1p10 },  { "kib", 0x1p10 },
        { "m", 0x1p20 },   { "mb", 0x1p20 }, { "mib", 0x1p20 }, { "g", 0x1p30 },   { "gb", 0x1p30 },
        { "gib", 0x1p30 }, { "t", 0x1p40 },  { "tb", 0x1p40 },  { "tib", 0x1p40 },
    };
    double v;
    if (!parse_with_unit(text, UNITS, sizeof UNITS / sizeof UNITS[0], &v) || v >= 0x1p62) return false;
    *out = (int64_t)v;
    return true;
}

bool str_to_seconds(const char *text, double *out)
{
    static const struct unit UNITS[] = { { "", 1 },   { "s", 1 },    { "ms", 1e-3 },
                                         { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
    return parse_with_unit(text, UNITS, sizeof UNITS / sizeof UNITS[0], out);
}

bool str_to_ratio(const char *text, double *out)
{
    char digits[64];
    double v;
    const size_t n = strlen(text);
    const bool percent = str_ends(text, "%");
    if (n >= sizeof digits) return false;
    memcpy(digits, text, n + 1);
    if (percent) digits[n - 1] = '\0';
    if (!str_to_double(digits, &v) || !isfinite(v) || v < 0) return false;
    *out = percent ? v / 100 : v;
    return true;
}

const char *str_from_bytes(int64_t bytes, char *buf, size_t size)
{
    static const char UNIT[] = "BKMGTP";
    double v = (double)bytes;
    int u = 0;
    if (bytes < 0) {
        snprintf(buf, size, "n/a");
        return buf;
    }
    while (v >= 999.5 && UNIT[u + 1]) {
        v /= 1024;
        u++;
    }
    snprintf(buf, size, "%.*f%c", u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v, UNIT[u]);
    return buf;
}

const char *str_from_double(double v, char *buf, size_t size)
{
    if (!isfinite(v)) {
        snprintf(buf, size, "null");
        return buf;
    }
    /* 15 digits are exact for all but the smallest numbers, which have fewer */
    for (int digits = fabs(v) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, v);
        char *comma = strchr(buf, ','); /* the locale may use a decimal comma */
        if (comma) *comma = '.';
        char *end;
        if (parse_double(buf, &end) == v) break;
    }
    return buf;
}

bool str_starts(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

bool str_put(char *out, size_t size, const char *text)
{
    const size_t n = text ? strlen(text) : 0;
    const bool fits = n < size;
    if (fits && n) memcpy(out, text, n);
    out[fits ? n : 0] = '\0';
    return fits;
}

bool str_ends(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && !memcmp(text + n - m, suffix, m);
}

bool str_has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; n && *p; p += strspn(p, " ")) {
        const size_t part = strcspn(p, " ");
        if (part == n && !strncasecmp(p, word, n)) return true;
        p += part;
    }
    return false;
}

/* Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours cost 1.
 * Case is ignored, and only the first 64 bytes count. */
int str_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
    int row[3][LONGEST + 1]; /* the current row and the two before it, which swaps need */
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *back = row[(i + 2) % 3], *back2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            int best = back[j - 1] + (ca != cb);
            if (back[j] + 1 < best) best = back[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]) && back2[j - 2] + 1 < best)
                best = back2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *str_nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 1 + (int)strlen(word) / 3; /* allows one error per three letters */
    for (size_t i = 0; i < count; i++) {
        int d = str_distance(word, names[i]);
        if (d <= best_distance && (!best || d < best_distance)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

/* Follows RFC 3629: overlong forms, surrogates and values above 0x10FFFF are invalid. An invalid byte is
 * one U+FFFD. */
size_t str_utf8_next(const char *s, size_t n, uint32_t *code_point)
{
    const unsigned char *p = (const unsigned char *)s;
    if (!n) return 0;
    size_t len = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    static const uint32_t FLOOR[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    *code_point = 0xFFFD;
    if (!len || len > n) return 1;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (p[i] >> 6 != 2) return 1;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < FLOOR[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 1; /* overlong, surrogate */
    *code_point = c;
    return len;
}

/* Looks for a lead byte among the last three bytes whose sequence is longer than what follows it. */
size_t str_utf8_unfinished(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char ch = (unsigned char)s[n - back];
        if ((ch & 0xc0) == 0x80) continue; /* a continuation byte: look further back */
        const size_t length = ch >= 0xf0 ? 4 : ch >= 0xe0 ? 3 : ch >= 0xc0 ? 2 : 1;
        return length > back ? back : 0;
    }
    return 0;
}

/* The lead byte has as many upper one bits as the sequence has bytes; each later byte holds six bits. */
size_t str_utf8_put(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    static const uint32_t LEAD[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    out[0] = (char)(LEAD[len] | c);
    return len;
}

const char *str_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

const char *path_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
