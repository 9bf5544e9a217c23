/* Proves: without a terminal a winner of a busy machine is saved only with --keep, and the reason and the
 * command that compares it on a quiet machine are given; one of a quiet machine is saved; --dry-run and other
 * engines save nothing. */
#include "tests/check.h"

#include <string.h>

#include "tui/cli/command_tune_keep.h"

static struct tune_kept decided(const char *flag, bool wins, bool loaded, const char *winner)
{
    struct cli_global g = { .seed = 1 };
    struct cli_args a;
    struct err why;
    struct tune_kept k;
    char *argv[] = { "qdyno", "tune", "-q", (char *)flag, NULL };
    CHECK_OK(cli_parse(&g, &a, flag ? 4 : 3, argv, &why));
    struct tune_result r = { .wins = wins,
                             .current = { .line = "default" },
                             .load = { loaded, 0.65, 12, 0 } };
    snprintf(r.winner.line, sizeof r.winner.line, "%s", winner);
    CHECK_OK(config_parse(&r.keep, winner, &why));
    tune_keep_decide(&k, &g, &a, "my model.gguf", "tg64", &r);
    return k;
}

static void found_on_a_busy_machine(void **state)
{
    (void)state;
    struct tune_kept k = decided(NULL, true, true, "threads=1");
    CHECK(!k.save);
    CHECK_STR(
        k.reason,
        "it was found on a busy machine (other programs used 65 % of the processors, 12 of 12 blocks were "
        "disturbed); --keep saves it nevertheless");
    CHECK_STR(str_text(&k.confirm),
              "qdyno ab -m 'my model.gguf' default threads=1 -w tg64 --estimand quiet --wait-quiet 1h");
    struct tune_kept kept = decided("--keep", true, true, "threads=1");
    CHECK(kept.save);
    CHECK_STR(kept.reason, "");
    CHECK_STR(str_text(&kept.confirm), str_text(&k.confirm)); /* still the way to be sure */
    struct tune_kept dry = decided("--dry-run", true, true, "threads=1");
    CHECK(!dry.save);
    str_free(&k.confirm);
    str_free(&kept.confirm);
    str_free(&dry.confirm);
}

static void found_on_a_quiet_machine(void **state)
{
    (void)state;
    struct tune_kept k = decided(NULL, true, false, "threads=1");
    CHECK(k.save);
    CHECK_STR(k.reason, "");
    CHECK_STR(str_text(&k.confirm), "");
    CHECK(!decided("--dry-run", true, false, "threads=1").save);
    CHECK(!decided(NULL, true, false, "engine=llama-server").save);
    CHECK(!decided(NULL, false, false, "threads=1").save);
    CHECK(!decided("--keep", false, true, "threads=1").save);
}

/* The command that is printed is one that the parser accepts. */
static void the_command_is_valid(void **state)
{
    (void)state;
    struct cli_global g = { .seed = 1 };
    struct cli_args a;
    struct err why;
    char *argv[] = { "qdyno", "ab",         "-m",    "my model.gguf", "default", "threads=1", "-w",
                     "tg64",  "--estimand", "quiet", "--wait-quiet",  "1h",      NULL };
    CHECK_OK(cli_parse(&g, &a, COUNT_OF(argv) - 1, argv, &why));
    CHECK_EQ(a.n, 2);
    CHECK_NEAR(args_num(&a, "--wait-quiet", 0), 3600, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(found_on_a_busy_machine),
                                        cmocka_unit_test(found_on_a_quiet_machine),
                                        cmocka_unit_test(the_command_is_valid) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
