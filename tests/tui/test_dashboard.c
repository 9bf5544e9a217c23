/* Proves: the whole loop runs without a terminal (threads, sensors, database, views) and shows the machine
 * and the model; a missing or useless terminal is an error a person can act on, not a crash. */
#include "tests/check.h"
#include "tui/dashboard/dashboard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Standard output of dashboard_run into text. */
static enum err_code run_captured(const struct dashboard_options *o, char *text, size_t size, struct err *why)
{
    char path[] = "/tmp/qdyno-frames-XXXXXX";
    int file = mkstemp(path), saved = dup(1);
    CHECK_GE(file, 0);
    CHECK_GE(saved, 0);
    fflush(stdout);
    dup2(file, 1);
    enum err_code rc = dashboard_run(o, why);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    ssize_t n = pread(file, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(file);
    unlink(path);
    return rc;
}

static void frames_without_a_terminal(void **state)
{
    (void)state;
    static char text[1 << 20];
    char folder[] = "/tmp/qdyno-test-XXXXXX", db[64];
    struct err why = { 0 };
    assert_non_null(mkdtemp(folder));
    snprintf(db, sizeof db, "%s/q.db", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("XDG_CONFIG_HOME", folder, 1);
    struct dashboard_options o = { .db_path = db, .frames = 12, .model = "/nonexistent/model.gguf" };
    CHECK_OK(run_captured(&o, text, sizeof text, &why));
    int frames = 1;
    for (const char *p = text; (p = strchr(p, '\f')); p++) frames++;
    CHECK_EQ(frames, 12);
    const char *last = strrchr(text, '\f');
    CHECK_CONTAINS(last, "Machine");
    CHECK_CONTAINS(last, "q quit");
    CHECK_CONTAINS(last, "/nonexistent/model.gguf"); /* the error names the file */
    CHECK_CONTAINS(last, "MEM");
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(system(command), 0);
}

static void no_terminal(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct dashboard_options o = { .db_path = ":memory:" };
    int saved = dup(0), null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    CHECK_EQ(dashboard_run(&o, &why), ERR_ABSENT);
    dup2(saved, 0);
    close(saved);
    close(null);
    CHECK_CONTAINS(why.message, "terminal");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames_without_a_terminal),
                                        cmocka_unit_test(no_terminal) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
