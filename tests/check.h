/* tests/check.h - what cmocka lacks: checks that NaN fails, and where the shared data lies. */
#ifndef QDYNO_TESTS_CHECK_H
#define QDYNO_TESTS_CHECK_H

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Any true expression; written so that a comparison with NaN fails. CHECK_EQ and the like also print the
 * values. */
#define CHECK(condition) assert_true(condition)

/* A number or pointer of any type, with the way to print it. A long double holds every 64-bit integer
 * exactly. */
struct check_value {
    long double number;
    enum check_kind { CHECK_SIGNED, CHECK_UNSIGNED, CHECK_REAL, CHECK_POINTER } kind;
};
struct check_text {
    char text[40];
};
_Static_assert(LDBL_MANT_DIG >= 64, "CHECK_EQ compares 64-bit integers as long double");

static inline struct check_value check_signed(long long x)
{
    return (struct check_value){ x, CHECK_SIGNED };
}
static inline struct check_value check_real(long double x)
{
    return (struct check_value){ x, CHECK_REAL };
}
static inline struct check_value check_unsigned(unsigned long long x)
{
    return (struct check_value){ x, CHECK_UNSIGNED };
}
static inline struct check_value check_pointer(const void *x)
{
    return (struct check_value){ (uintptr_t)x, CHECK_POINTER };
}
/* Names the function only, so that no branch converts an x of another type. (clang-format 14 would break the
 * line before each colon.) */
/* clang-format off */
#define CHECK_VALUE(x)                                                                                       \
    _Generic((x),                                                                                            \
        float: check_real, double: check_real, long double: check_real,                                      \
        char: check_signed, signed char: check_signed, short: check_signed, int: check_signed,               \
        long: check_signed, long long: check_signed,                                                         \
        _Bool: check_unsigned, unsigned char: check_unsigned, unsigned short: check_unsigned,                \
        unsigned: check_unsigned, unsigned long: check_unsigned, unsigned long long: check_unsigned,         \
        default: check_pointer)(x)
/* clang-format on */

static inline struct check_text check_print(struct check_value v)
{
    struct check_text t;
    switch (v.kind) {
    case CHECK_SIGNED: snprintf(t.text, sizeof t.text, "%lld", (long long)v.number); break;
    case CHECK_UNSIGNED: snprintf(t.text, sizeof t.text, "%llu", (unsigned long long)v.number); break;
    case CHECK_REAL: snprintf(t.text, sizeof t.text, "%.17g", (double)v.number); break;
    case CHECK_POINTER: snprintf(t.text, sizeof t.text, "%p", (void *)(uintptr_t)v.number); break;
    }
    return t;
}

/* -1, 0 or 1 as a is less than, equal to or greater than b; NAN if one of them is NaN. */
static inline double check_compare(struct check_value a, struct check_value b)
{
    if (a.number != a.number || b.number != b.number) return __builtin_nan("");
    return (a.number > b.number) - (a.number < b.number);
}

/* Compare numbers or pointers by value, whatever their types are; print both expressions and values. With NaN
 * all fail, except CHECK_NE. */
#define CHECK_EQ(a, b) CHECK_RELATION(a, #a, ==, b, #b)
#define CHECK_NE(a, b) CHECK_RELATION(a, #a, !=, b, #b)
#define CHECK_LT(a, b) CHECK_RELATION(a, #a, <, b, #b)
#define CHECK_LE(a, b) CHECK_RELATION(a, #a, <=, b, #b)
#define CHECK_GT(a, b) CHECK_RELATION(a, #a, >, b, #b)
#define CHECK_GE(a, b) CHECK_RELATION(a, #a, >=, b, #b)
#define CHECK_RELATION(a, a_text, relation, b, b_text)                                                       \
    do {                                                                                                     \
        const struct check_value check_a = CHECK_VALUE(a), check_b = CHECK_VALUE(b);                         \
        if (!(check_compare(check_a, check_b) relation 0))                                                   \
            fail_msg("%s = %s, want " #relation " %s (%s)", a_text, check_print(check_a).text,               \
                     check_print(check_b).text, b_text);                                                     \
    } while (0)

/* |a - b| <= tolerance; fails for NaN; prints both expressions and the numbers. */
#define CHECK_NEAR(a, b, tolerance)                                                                          \
    do {                                                                                                     \
        double check_a = (a), check_b = (b), check_d = check_a - check_b;                                    \
        if (!((check_d < 0 ? -check_d : check_d) <= (tolerance)))                                            \
            fail_msg("%s = %.17g, want %.17g within %g (%s)", #a, check_a, check_b, (double)(tolerance),     \
                     #b);                                                                                    \
    } while (0)

/* x is NaN, which says that it is unknown; prints it otherwise. */
#define CHECK_NAN(x)                                                                                         \
    do {                                                                                                     \
        const double check_a = (x);                                                                          \
        if (check_a == check_a) fail_msg("%s = %.17g, want NaN", #x, check_a);                               \
    } while (0)

/* NULL equals no text and contains none. Not inlined: gcc would warn about texts that it can see. */
__attribute__((noinline, unused)) static int check_same_text(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}
__attribute__((noinline, unused)) static int check_text_has(const char *text, const char *part)
{
    return text && strstr(text, part);
}
__attribute__((noinline, unused)) static const char *check_shown(const char *text)
{
    return text ? text : "(NULL)";
}

/* Two texts are equal (CHECK_STR) or not; `text` contains (CHECK_CONTAINS) or lacks `part`. Print both. NULL
 * fails, except in CHECK_STR_NE. */
#define CHECK_STR(a, b)    CHECK_TEXTS(check_same_text(check_a, check_b), a, #a, "", b, #b)
#define CHECK_STR_NE(a, b) CHECK_TEXTS(!check_same_text(check_a, check_b), a, #a, "anything but ", b, #b)
#define CHECK_CONTAINS(text, part)                                                                           \
    CHECK_TEXTS(check_text_has(check_a, check_b), text, #text, "it to contain ", part, #part)
#define CHECK_LACKS(text, part)                                                                              \
    CHECK_TEXTS(check_a && !check_text_has(check_a, check_b), text, #text, "it not to contain ", part, #part)
#define CHECK_TEXTS(condition, a, a_text, want, b, b_text)                                                   \
    do {                                                                                                     \
        const char *const check_a = (a), *const check_b = (b);                                               \
        if (!(condition))                                                                                    \
            fail_msg("%s = \"%s\", want " want "\"%s\" (%s)", a_text, check_shown(check_a),                  \
                     check_shown(check_b), b_text);                                                          \
    } while (0)

/* A call that must succeed: shows the message otherwise. Uses a `struct err why` in scope. */
#define CHECK_OK(call)                                                                                       \
    do {                                                                                                     \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, why.message);                                        \
    } while (0)

/* Path of test data into buf: tests/data/NAME of this checkout where it is there, else ../shared/data/NAME
 * beside the checkout, which holds more (trained models, large files) and is optional. NAME is printed by
 * `format`. */
static inline __attribute__((format(printf, 3, 4))) void data_path(char *buf, size_t size, const char *format,
                                                                   ...)
{
    char name[512];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(buf, size, "%s/tests/data/%s", TEST_SOURCE_DIR, name);
    if (access(buf, R_OK)) snprintf(buf, size, "%s/../shared/data/%s", TEST_SOURCE_DIR, name);
}

/* Path of test data into the array buf (data_path); skips the test, visibly, when it is in neither place. */
#define SHARED_OR_SKIP(buf, name)                                                                            \
    do {                                                                                                     \
        data_path((buf), sizeof(buf), "%s", (name));                                                         \
        if (access((buf), R_OK)) {                                                                           \
            print_message("SKIPPED: %s is not here\n", (buf));                                               \
            skip();                                                                                          \
        }                                                                                                    \
    } while (0)

#endif
