/* Proves: a word that a shell would interpret is quoted, so that the shell gives it back as it was. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static void words_survive_a_shell(void **state)
{
    (void)state;
    static const struct {
        const char *word, *quoted;
    } CASES[] = { { "tg64@d8192", "tg64@d8192" },         { "threads=1,kv=q8_0", "threads=1,kv=q8_0" },
                  { "/m/x.gguf", "/m/x.gguf" },           { "", "''" },
                  { "my model.gguf", "'my model.gguf'" }, { "it's $HOME", "'it'\\''s $HOME'" },
                  { "a;b|c&d`e`*", "'a;b|c&d`e`*'" },     { "~/x", "'~/x'" } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct str s = { 0 }, command = { 0 };
        char back[64] = "";
        word_append(&s, CASES[i].word);
        CHECK_STR(str_text(&s), CASES[i].quoted);
        str_printf(&command, "printf %%s %s", str_text(&s));
        FILE *p = popen(str_text(&command), "r");
        CHECK(p != NULL);
        back[fread(back, 1, sizeof back - 1, p)] = '\0';
        CHECK_EQ(pclose(p), 0);
        CHECK_STR(back, CASES[i].word);
        str_free(&s);
        str_free(&command);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(words_survive_a_shell) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
