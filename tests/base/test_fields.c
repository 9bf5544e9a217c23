/* Proves: a table of fields writes each kind of member, an unknown value as null, and reads back what it
 * wrote; what is only written is left alone when it is read. */
#include "base/fields/fields.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "tests/check.h"

struct sample {
    double num, log_ratio;
    int count_of, or_null;
    int64_t count, id, bytes;
    bool yes;
    char text[8];
    char *words;
};
#define SAMPLE(member, KIND) JSON_FIELD(struct sample, member, #member, KIND)
static const struct json_field FIELDS[] = {
    SAMPLE(num, NUM),      SAMPLE(log_ratio, LOG_RATIO),
    SAMPLE(count_of, INT), SAMPLE(or_null, INT_OR_NULL),
    SAMPLE(count, COUNT),  SAMPLE(id, ID),
    SAMPLE(bytes, BYTES),  SAMPLE(yes, BOOL),
    SAMPLE(text, TEXT),    SAMPLE(words, WORDS),
};

static void known_values_come_back(void **state)
{
    (void)state;
    char words[] = "lent";
    const struct sample from = { .num = 1.5,
                                 .log_ratio = log(2),
                                 .count_of = 0,
                                 .or_null = 3,
                                 .count = 0,
                                 .id = 7,
                                 .bytes = 4096,
                                 .yes = true,
                                 .text = "word",
                                 .words = words };
    struct sample to = { .log_ratio = -1 };
    json_t *o = json_object();
    json_put_fields(o, FIELDS, COUNT_OF(FIELDS), &from);
    CHECK_NEAR(json_get_num(o, "log_ratio", NAN), 2, 1e-12);
    CHECK_STR(json_get_str(o, "words", ""), "lent");
    json_get_fields(o, FIELDS, COUNT_OF(FIELDS), &to);
    CHECK_NEAR(to.num, 1.5, 0);
    CHECK_EQ(to.count_of, 0);
    CHECK_EQ(to.or_null, 3);
    CHECK_EQ(to.count, 0);
    CHECK_EQ(to.id, 7);
    CHECK_EQ(to.bytes, 4096);
    CHECK(to.yes);
    CHECK_STR(to.text, "word");
    CHECK_NEAR(to.log_ratio, -1, 0);
    CHECK(to.words == NULL);
    json_decref(o);
}

static void unknown_values_are_null(void **state)
{
    (void)state;
    struct sample s = { .id = 1, .yes = true };
    json_t *o = json_object();
    json_clear_fields(FIELDS, COUNT_OF(FIELDS), &s);
    json_put_fields(o, FIELDS, COUNT_OF(FIELDS), &s);
    for (size_t i = 0; i < COUNT_OF(FIELDS); i++) {
        const bool always = FIELDS[i].kind == JSON_FIELD_INT || FIELDS[i].kind == JSON_FIELD_BOOL;
        CHECK_EQ(json_is_null(json_object_get(o, FIELDS[i].name)), !always);
    }
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(known_values_come_back),
                                        cmocka_unit_test(unknown_values_are_null) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
