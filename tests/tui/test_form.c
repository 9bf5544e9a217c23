/* Proves: typed text arrives in the field; editing keys act as in a shell; errors come from the config parser
 * while typing; an invalid form is never accepted. */
#include "tests/check.h"
#include "tui/forms/forms.h"
#include "tui/widgets/widgets.h"

#include <string.h>

static void type(struct form *f, const char *text)
{
    uint32_t code;
    size_t n = strlen(text), used;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) form_key(f, (int)code);
}

static void good_form(void **state)
{
    (void)state;
    struct form f;
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0", "tg64" });
    CHECK_EQ(f.kind, FORM_AB);
    CHECK_EQ(f.focus, 0);
    for (int i = 0; i < 3; i++) assert_string_equal(f.field[i].error, "");
    CHECK_EQ(form_key(&f, UI_KEY_TAB), FORM_EDITED);
    CHECK_EQ(f.focus, 1);
    type(&f, ",threads=1");
    assert_string_equal(f.field[1].text, "q8_0,threads=1");
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_ACCEPTED);
    CHECK_EQ(form_key(&f, UI_KEY_ESC), FORM_LEFT);
}

/* A proposed text is replaced by the first letter; keys that move the cursor, a comma after a config line and
 * texts that wait for the rest keep it. */
static void proposals_are_replaced(void **state)
{
    (void)state;
    static const char *const TEXTS[FORM_FIELDS] = { "default", "q8_0", "tg64" };
    struct form f;
    form_show(&f, FORM_AB, TEXTS);
    CHECK_EQ(form_selected_from(&f, AB_A), 0);
    type(&f, "q4_K");
    assert_string_equal(f.field[AB_A].text, "q4_K");
    CHECK_EQ(form_selected_from(&f, AB_A), -1);
    form_key(&f, UI_KEY_TAB);
    type(&f, ",threads=1");
    assert_string_equal(f.field[AB_B].text, "q8_0,threads=1");
    form_key(&f, UI_KEY_TAB);
    form_key(&f, UI_KEY_LEFT);
    type(&f, "3");
    assert_string_equal(f.field[AB_WORKLOAD].text, "tg634");
    form_key(&f, UI_KEY_BACKTAB); /* what was typed is not a proposal */
    type(&f, "2");
    assert_string_equal(f.field[AB_B].text, "q8_0,threads=12");

    form_show(&f, FORM_AB, TEXTS);
    form_key(&f, UI_KEY_BACKSPACE);
    assert_string_equal(f.field[AB_A].text, "");
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "q8_0,threads=" });
    type(&f, "2");
    assert_string_equal(f.field[AB_A].text, "q8_0,threads=2");
    form_show(&f, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/models/a.gguf" });
    CHECK_EQ(form_selected_from(&f, 0), -1);
    form_show(&f, FORM_SETTING, (const char *const[FORM_FIELDS]){ "threads=0" });
    CHECK_EQ(form_selected_from(&f, 0), (int)strlen("threads="));
    type(&f, "12");
    assert_string_equal(f.field[0].text, "threads=12");
    form_show(&f, FORM_SETTING, (const char *const[FORM_FIELDS]){ "threads=0" });
    form_key(&f, UI_KEY_BACKSPACE);
    assert_string_equal(f.field[0].text, "threads=");
}

static void errors_while_typing(void **state)
{
    (void)state;
    struct form f;
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "q8_0,tread=2", "tg64" });
    assert_non_null(strstr(f.field[1].error, "threads")); /* suggests the nearest key */
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_EDITED);
    CHECK_EQ(f.focus, 1);
    CHECK(f.tried);
    form_key(&f, UI_CTRL('u'));
    assert_string_equal(f.field[1].text, "");
    assert_string_not_equal(f.field[1].error, "");
    type(&f, "q8_0");
    assert_string_equal(f.field[1].error, "");
    form_key(&f, UI_KEY_TAB);
    form_key(&f, UI_CTRL('w'));
    type(&f, "xx9");
    CHECK_EQ(form_key(&f, '\r'), FORM_EDITED);
    CHECK_EQ(f.focus, 2);
    CHECK(f.field[2].error[0]);
}

static void editing(void **state)
{
    (void)state;
    struct form f;
    form_show(&f, FORM_MODEL, NULL);
    type(&f, "añ日z");
    assert_string_equal(f.field[0].text, "añ日z");
    form_key(&f, UI_KEY_LEFT);
    form_key(&f, UI_KEY_BACKSPACE);
    assert_string_equal(f.field[0].text, "añz");
    form_key(&f, UI_KEY_HOME);
    form_key(&f, UI_KEY_DELETE);
    assert_string_equal(f.field[0].text, "ñz");
    form_key(&f, UI_KEY_RIGHT);
    type(&f, "-");
    assert_string_equal(f.field[0].text, "ñ-z");
    form_key(&f, UI_CTRL('k'));
    assert_string_equal(f.field[0].text, "ñ-");
    for (int i = 0; i < 10; i++) form_key(&f, UI_KEY_LEFT);
    CHECK_EQ(f.field[0].cursor, 0);
    form_key(&f, UI_KEY_BACKSPACE);
    assert_string_equal(f.field[0].text, "ñ-");
    form_key(&f, UI_KEY_F1); /* not a character */
    assert_string_equal(f.field[0].text, "ñ-");
    for (int i = 0; i < 2000; i++) form_key(&f, 0x65e5); /* stops at the end of the field */
    CHECK_LT(strlen(f.field[0].text), FORM_TEXT);
    for (int i = 0; i < 3000; i++) form_key(&f, UI_KEY_DELETE);
}

/* A part of a config line or a path is another one, so a field that had no room is invalid. */
static void a_text_that_does_not_fit_is_invalid(void **state)
{
    (void)state;
    struct form f;
    char text[FORM_TEXT + 1];
    memset(text, '1', sizeof text);
    memcpy(text, "threads=", 8);
    text[FORM_TEXT] = '\0';
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "default", "threads=2", "tg64" });
    CHECK_STR(f.field[AB_B].error, "");
    form_put(&f, AB_B, text);
    CHECK_STR(f.field[AB_B].text, "");
    assert_non_null(strstr(f.field[AB_B].error, "too long"));
    f.focus = AB_B;
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_EDITED); /* not accepted */
    type(&f, "threads=4");
    CHECK_STR(f.field[AB_B].error, "");
    form_show(&f, FORM_COMMAND, (const char *const[FORM_FIELDS]){ "show 1" });
    form_key(&f, UI_KEY_END);
    for (int i = 0; i < FORM_TEXT; i++) type(&f, "1");
    assert_non_null(strstr(f.field[0].error, "too long"));
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_EDITED);
    form_key(&f, UI_KEY_BACKSPACE);
    CHECK_STR(f.field[0].error, "");
}

/* A bug: any text for a limit had a check mark, and the search then refused it. */
static void limits_are_checked(void **state)
{
    (void)state;
    struct err why;
    CHECK_OK(form_check(ASK_LIMIT, "", &why));
    CHECK_OK(form_check(ASK_LIMIT, "memory=8G,kld=0.05", &why));
    static const char *const WRONG[] = { "8G", "memory=", "kld=-1", "accuracy=-0.5%", "memory=8G,speed=3" };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        CHECK_EQ(form_check(ASK_LIMIT, WRONG[i], &why), ERR_USAGE);
        assert_non_null(strstr(why.message, "expected memory=BYTES or kld=NATS"));
    }
}

static void hints(void **state)
{
    (void)state;
    struct form f;
    char hint[700];
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "q8_0,thre", "q8_0", "tg64" });
    assert_non_null(strstr(form_hint(&f, hint, sizeof hint), "threads="));
    form_show(&f, FORM_AB, (const char *const[FORM_FIELDS]){ "affinity=", "q8_0", "tg64" });
    assert_non_null(strstr(form_hint(&f, hint, sizeof hint), "spread"));
    f.focus = 2;
    assert_non_null(strstr(form_hint(&f, hint, sizeof hint), "pp512"));
    CHECK_LT(strlen(form_hint(&f, hint, 8)), 8);
}

static void other_forms(void **state)
{
    (void)state;
    struct form f;
    form_show(&f, FORM_PUSH, (const char *const[FORM_FIELDS]){ "ftp://x", NULL, NULL });
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_EDITED);
    form_show(&f, FORM_PUSH, (const char *const[FORM_FIELDS]){ "http://127.0.0.1:9091", NULL, NULL });
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_ACCEPTED);
    form_show(&f, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/nonexistent.gguf", NULL, NULL });
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_EDITED);
    assert_non_null(strstr(f.field[0].error, "/nonexistent.gguf"));
    form_show(&f, FORM_FILTER, NULL);
    CHECK_EQ(form_key(&f, UI_KEY_ENTER), FORM_ACCEPTED); /* empty: no filter */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_form),
        cmocka_unit_test(proposals_are_replaced),
        cmocka_unit_test(errors_while_typing),
        cmocka_unit_test(editing),
        cmocka_unit_test(a_text_that_does_not_fit_is_invalid),
        cmocka_unit_test(limits_are_checked),
        cmocka_unit_test(hints),
        cmocka_unit_test(other_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
