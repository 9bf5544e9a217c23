/* Proves: when memory ran out while a text or a document was built, the next error says so, the document is
 * not written, and a file is not replaced by an incomplete one. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/check.h"

static void errors_say_so(void **state)
{
    (void)state;
    struct err why = { 0 };
    memory_short_set();
    CHECK_EQ(err_set(&why, ERR_IO, "cannot make folder '%s'", ""), ERR_NOMEM);
    CHECK_STR(why.message, "out of memory: cannot make folder ''");
    CHECK_EQ(err_set(&why, ERR_IO, "cannot open"), ERR_IO); /* it has been told */
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
                                        cmocka_unit_test(files_are_not_replaced),
                                        cmocka_unit_test(codes_of_errno) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
