/* Proves: each macro of tests/check.h passes and fails as it says, for operands of any type, and a failure
 * prints both expressions and both values.
 *
 * A failing check runs in a child process as a cmocka test of its own; what it prints goes to a file. */
#include "tests/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>

static const double HALF = 0.5, NEAR_HALF = 0.50000000000000011, UNKNOWN = NAN;
static const float TENTH = 0.1f;
static const int64_t LARGE = INT64_C(9007199254740993); /* 2^53 + 1: no double */
static const uint64_t LARGEST = UINT64_MAX;
static const int MINUS = -1;
static const char *const TEXT = "some text", *const NONE = NULL;

static void passing(void **state)
{
    (void)state;
    int evaluated = 0;
    CHECK_EQ(evaluated++, 0); /* each operand is evaluated once */
    CHECK_EQ(evaluated, 1);
    CHECK_EQ(TENTH, 0.1f);
    CHECK_NE(TENTH, 0.1);
    CHECK_NE(LARGE, LARGE - 1);
    CHECK_NE(LARGEST, MINUS); /* the values differ, although C converts -1 to UINT64_MAX */
    CHECK_LT(MINUS, LARGEST);
    CHECK_GT((unsigned char)200, MINUS);
    CHECK_NE(UNKNOWN, UNKNOWN);
    CHECK_LE(HALF, NEAR_HALF);
    CHECK_GE(1, true);
    CHECK_NE(TEXT, NULL);
    CHECK_EQ(NONE, NULL);
    CHECK_NAN(UNKNOWN);
    CHECK_STR(TEXT, "some text");
    CHECK_STR_NE(TEXT, NONE);
    CHECK_CONTAINS(TEXT, "me t");
    CHECK_LACKS(TEXT, "none");
}

/* X(name, check, what it prints) */
#define FAILING(X)                                                                                           \
    X(fraction, CHECK_EQ(HALF, 0), "HALF = 0.5, want == 0 (0)")                                              \
    X(digits, CHECK_EQ(HALF, NEAR_HALF), "HALF = 0.5, want == 0.50000000000000011 (NEAR_HALF)")              \
    X(large, CHECK_EQ(LARGE, LARGE - 1), "LARGE = 9007199254740993, want == 9007199254740992 (LARGE - 1)")   \
    X(sign, CHECK_EQ(LARGEST, MINUS), "LARGEST = 18446744073709551615, want == -1 (MINUS)")                  \
    X(same, CHECK_NE(MINUS, -1), "MINUS = -1, want != -1 (-1)")                                              \
    X(less, CHECK_LT(HALF, HALF), "HALF = 0.5, want < 0.5 (HALF)")                                           \
    X(greater, CHECK_GT(HALF, HALF), "HALF = 0.5, want > 0.5 (HALF)")                                        \
    X(nan_equal, CHECK_EQ(UNKNOWN, UNKNOWN), "UNKNOWN = nan, want == nan (UNKNOWN)")                         \
    X(nan_at_most, CHECK_LE(UNKNOWN, 1), "UNKNOWN = nan, want <= 1 (1)")                                     \
    X(nan_at_least, CHECK_GE(1, UNKNOWN), "1 = 1, want >= nan (UNKNOWN)")                                    \
    X(pointer, CHECK_EQ(TEXT, NULL), "want == (nil) (NULL)")                                                 \
    X(near, CHECK_NEAR(HALF, UNKNOWN, 1), "HALF = 0.5, want nan within 1 (UNKNOWN)")                         \
    X(known, CHECK_NAN(HALF), "HALF = 0.5, want NaN")                                                        \
    X(text, CHECK_STR(TEXT, "other"), "TEXT = \"some text\", want \"other\" (\"other\")")                    \
    X(no_text, CHECK_STR(NONE, "other"), "NONE = \"(NULL)\", want \"other\"")                                \
    X(equal_text, CHECK_STR_NE(TEXT, TEXT), "want anything but \"some text\" (TEXT)")                        \
    X(part, CHECK_CONTAINS(TEXT, "none"), "TEXT = \"some text\", want it to contain \"none\"")               \
    X(no_part, CHECK_LACKS(TEXT, "text"), "TEXT = \"some text\", want it not to contain \"text\"")           \
    X(nothing, CHECK_LACKS(NONE, "text"), "NONE = \"(NULL)\", want it not to contain \"text\"")

#define FUNCTION(name, check, prints)                                                                        \
    static void name(void **state)                                                                           \
    {                                                                                                        \
        (void)state;                                                                                         \
        check;                                                                                               \
    }
FAILING(FUNCTION)

#define ROW(name, check, prints) { { #name, name, NULL, NULL, NULL }, prints },
static const struct {
    struct CMUnitTest test;
    const char *prints;
} FAILING_TESTS[] = { FAILING(ROW) };

/* Runs a test in a child, with its output in `text`; the number of failures. */
static int run_apart(const struct CMUnitTest *test, char *text, size_t size)
{
    FILE *output = tmpfile();
    int status = 0;
    assert_non_null(output);
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) {
        const struct CMUnitTest tests[] = { *test };
        if (dup2(fileno(output), STDOUT_FILENO) < 0 || dup2(fileno(output), STDERR_FILENO) < 0) _exit(99);
        exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    CHECK_GT(pid, 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    rewind(output);
    text[fread(text, 1, size - 1, output)] = '\0';
    fclose(output);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void failing(void **state)
{
    (void)state;
    char text[4096];
    for (size_t i = 0; i < sizeof FAILING_TESTS / sizeof *FAILING_TESTS; i++) {
        const int failures = run_apart(&FAILING_TESTS[i].test, text, sizeof text);
        if (failures != 1 || !strstr(text, FAILING_TESTS[i].prints))
            fail_msg("%s: %d failures, want 1 that prints '%s': %s", FAILING_TESTS[i].test.name, failures,
                     FAILING_TESTS[i].prints, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(passing), cmocka_unit_test(failing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
