/* tests/check.h - what cmocka lacks: checks that NaN fails, and where the shared data lies. */
#ifndef QDYNO_TESTS_CHECK_H
#define QDYNO_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Any true expression; written so that a comparison with NaN fails. */
#define CHECK(condition) assert_true(condition)

/* a == b for integers, booleans and enums; prints both values. */
#define CHECK_EQ(a, b)                                                                                       \
    do {                                                                                                     \
        const long long check_a = (long long)(a), check_b = (long long)(b);                                  \
        if (check_a != check_b) fail_msg("%s = %lld, want %lld (%s)", #a, check_a, check_b, #b);             \
    } while (0)

/* a < b and a <= b for numbers; fails for NaN; prints both values. */
#define CHECK_LT(a, b) CHECK_ORDER(a, <, b)
#define CHECK_LE(a, b) CHECK_ORDER(a, <=, b)
#define CHECK_ORDER(a, relation, b)                                                                          \
    do {                                                                                                     \
        const double check_a = (double)(a), check_b = (double)(b);                                           \
        if (!(check_a relation check_b))                                                                     \
            fail_msg("%s = %.9g, want " #relation " %.9g (%s)", #a, check_a, check_b, #b);                   \
    } while (0)

/* Two strings are equal; prints both. */
#define CHECK_STR(a, b) assert_string_equal(a, b)

/* `text` contains `part`; prints both. Not inlined: gcc would warn about empty texts that it can see. */
__attribute__((noinline, unused)) static int check_text_has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}
#define CHECK_CONTAINS(text, part)                                                                           \
    do {                                                                                                     \
        if (!check_text_has((text), (part))) fail_msg("%s: no '%s' in: %s", #text, (part), (text));          \
    } while (0)

/* |a - b| <= tolerance; fails for NaN; prints the numbers. */
#define CHECK_NEAR(a, b, tolerance)                                                                          \
    do {                                                                                                     \
        double check_a = (a), check_b = (b), check_d = check_a - check_b;                                    \
        if (!((check_d < 0 ? -check_d : check_d) <= (tolerance)))                                            \
            fail_msg("%s = %.9g, want %.9g within %g", #a, check_a, check_b, (double)(tolerance));           \
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
