/* Proves: a plug-in's process that gets no memory ends the quantization with ERR_NOMEM (exit status 6), not
 * as a library that is invalid: while the loader maps the library, while the answer is put together, and when
 * `encode` says so. */
#include <errno.h>
#include <sys/resource.h>

#include "base/base.h"
#include "engine/quant/plugin.h"
#include "tests/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMITS_WORK = false }; /* the sanitizer itself needs more memory than any limit */
#else
enum { LIMITS_WORK = true };
#endif

#define LIBRARY TEST_BUILD_DIR "/tests/plugins/moody.so"

static struct rlimit before;

/* While the child is forked, as little memory is allowed as this process has already. */
static int allow_nothing_more(void *arg, int member, bool on)
{
    (void)arg, (void)member;
    const struct rlimit none = { 1, before.rlim_max };
    return setrlimit(RLIMIT_AS, on ? &none : &before) ? errno : 0;
}

static int answer_nothing(void *arg, int member, const struct qdyno_plugin *plugin, struct str *out)
{
    (void)arg, (void)member, (void)plugin, (void)out;
    return 0;
}

/* What json.h and str.h do when they get no memory: an incomplete answer, and a note. */
static int answer_incompletely(void *arg, int member, const struct qdyno_plugin *plugin, struct str *out)
{
    (void)arg, (void)member, (void)plugin;
    str_append(out, "half a desc");
    memory_short_set();
    return 0;
}

static enum err_code run(struct plugin_crew crew, struct err *why)
{
    struct str answer = { 0 };
    crew.path = LIBRARY;
    crew.doing = "describing itself";
    crew.count = 1;
    crew.patience_ns = INT64_C(60000000000);
    const enum err_code rc = plugin_crew_run(&crew, &answer, why);
    str_free(&answer);
    return rc;
}

static void test_no_memory_to_load_it(void **state)
{
    (void)state;
    struct err why = { 0 };
    if (!LIMITS_WORK) skip();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    const enum err_code rc = run((struct plugin_crew){ .work = answer_nothing, .lend = allow_nothing_more },
                                 &why);
    if (rc != ERR_NOMEM) fail_msg("status %d: %s", rc, why.message);
    CHECK_CONTAINS(why.message, "moody.so ran out of memory while describing itself");
}

static void test_no_memory_for_its_answer(void **state)
{
    (void)state;
    struct err why = { 0 };
    assert_int_equal(run((struct plugin_crew){ .work = answer_incompletely }, &why), ERR_NOMEM);
    CHECK_CONTAINS(why.message, "moody.so ran out of memory while describing itself: half a desc");
    CHECK_OK(run((struct plugin_crew){ .work = answer_nothing }, &why));
}

/* The parent may be short of memory itself when it forks; the child's answer does not tell of that. */
static void test_the_parent_is_short(void **state)
{
    (void)state;
    struct err why = { 0 };
    memory_short_set();
    CHECK_OK(run((struct plugin_crew){ .work = answer_nothing }, &why));
    assert_true(memory_is_short());
    memory_short_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory_to_load_it),
        cmocka_unit_test(test_no_memory_for_its_answer),
        cmocka_unit_test(test_the_parent_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
