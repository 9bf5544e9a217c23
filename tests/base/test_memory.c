/* Proves: when memory ran out while a text or a document was built, the next error says so, the document is
 * not written, and a file is not replaced by an incomplete one. A document is parsed or refused, whichever
 * allocation fails. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/check.h"

/* Linked with --wrap: the allocation for which allocations_left is 0 fails; negative: none does. */
static int allocations_left = -1;
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    return allocations_left >= 0 && !allocations_left-- ? NULL : __real_malloc(n);
}
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return allocations_left >= 0 && !allocations_left-- ? NULL : __real_reallocarray(p, n, size);
}

static void errors_say_so(void **state)
{
    (void)state;
    struct err why = { 0 };
    memory_short_set();
    CHECK_EQ(err_set(&why, ERR_IO, "cannot make folder '%s'", ""), ERR_NOMEM);
    CHECK_STR(why.message, "out of memory: cannot make folder ''");
    CHECK_EQ(err_set(&why, ERR_IO, "cannot open"), ERR_IO); /* the shortage was reported */
    memory_short_set();
    CHECK_EQ(err_set(NULL, ERR_IO, "to nobody"), ERR_NOMEM);
    CHECK_EQ(memory_check("go on", &why), ERR_NOMEM);
    CHECK_EQ(memory_check("go on", &why), ERR_OK);
    CHECK_EQ(memory_short_times(), 2);
}

static void documents_are_not_written(void **state)
{
    (void)state;
    json_t *o = json_object();
    memory_short_set();
    CHECK(!json_line(o));
    memory_short_clear();
    char *line = json_line(o);
    CHECK_STR(line, "{}");
    free(line);
    json_decref(o);
}

/* Refuses one allocation of a parse after the other. */
static void parse_refused(const char *text)
{
    struct err why = { 0 };
    json_t *want = NULL, *value = NULL;
    bool failed = true;
    CHECK_OK(json_parse(&want, text, strlen(text), &why));
    for (int n = 0; failed; n++) {
        allocations_left = n;
        const enum err_code rc = json_parse(&value, text, strlen(text), &why);
        failed = allocations_left < 0;
        allocations_left = -1;
        CHECK_EQ(rc, failed ? ERR_NOMEM : ERR_OK);
        CHECK_EQ(!value, failed);
        if (failed) CHECK_CONTAINS(why.message, "out of memory for JSON of ");
        CHECK(!memory_is_short()); /* the shortage was reported */
    }
    CHECK(json_equal(value, want));
    json_decref(value);
    json_decref(want);
}

/* jansson's buffer for a token grows at 16, 32, 64 bytes. With longer and longer tokens each kind of
 * character is once the one for which it has to grow. */
static void documents_are_parsed_or_refused(void **state)
{
    static const struct {
        const char *before, *after;
        int most; /* digits; more than 17 would be too big an integer */
    } FORMS[] = { { "[\"", "\"]", 40 },      { "[\"", "\\n\"]", 40 },    { "[\"", "\\u0001\"]", 40 },
                  { "{\"", "\":[{}]}", 40 }, { "[1.", "25,2]", 40 },     { "[1.", "25e-09]", 40 },
                  { "[1.", "25e+9]", 40 },   { "[0,-1", ",[true]]", 17 } };
    (void)state;
    json_init();
    for (size_t f = 0; f < COUNT_OF(FORMS); f++)
        for (int digits = 0; digits <= FORMS[f].most; digits++) {
            char text[96];
            snprintf(text, sizeof text, "%s%.*s%s", FORMS[f].before, digits,
                     "1111111111111111111111111111111111111111", FORMS[f].after);
            parse_refused(text);
        }
}

static void files_are_not_replaced(void **state)
{
    (void)state;
    char path[] = "/tmp/qdyno-memory-XXXXXX";
    struct atomic_file f;
    struct err why = { 0 };
    char *text = NULL;
    size_t n = 0;
    close(mkstemp(path));
    CHECK_OK(atomic_file_open(&f, path, &why));
    fputs("incomplete", f.stream);
    memory_short_set();
    CHECK_EQ(atomic_file_commit(&f, &why), ERR_NOMEM);
    CHECK_OK(file_read(&text, &n, path, 100, &why));
    CHECK_EQ(n, 0);
    free(text);
    unlink(path);
}

static void codes_of_errno(void **state)
{
    (void)state;
    CHECK_EQ(err_of_errno(ENOMEM), ERR_NOMEM);
    CHECK_EQ(err_of_errno(ENOSPC), ERR_FIT);
    CHECK_EQ(err_of_errno(EMFILE), ERR_FIT);
    CHECK_EQ(err_of_errno(EAGAIN), ERR_FIT);
    CHECK_EQ(err_of_errno(EIO), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(errors_say_so),
                                        cmocka_unit_test(documents_are_not_written),
                                        cmocka_unit_test(documents_are_parsed_or_refused),
                                        cmocka_unit_test(files_are_not_replaced),
                                        cmocka_unit_test(codes_of_errno) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
