/* engine/config/config_internal.h - what the files of the config language share. */
#ifndef QDYNO_ENGINE_CONFIG_INTERNAL_H
#define QDYNO_ENGINE_CONFIG_INTERNAL_H

#include "engine/config/config.h"

enum { CHOICES_MAX = 96 };

/* ---------------------------------------------------------------- values (value.c) */

/* What a value may be: the part that rows of KNOBS and of method parameters have in common. */
struct value_rule {
    enum value_kind kind;
    double min, max;          /* VALUE_INT and VALUE_REAL without choices */
    const char *const *names; /* allowed values, [count]; NULL: `words`, or any */
    size_t count;
    const char *words; /* allowed values, space-separated; NULL: none but `names` */
};

struct value {
    int64_t whole;           /* VALUE_INT; VALUE_BOOL 0 or 1; VALUE_CHOICE: index of the name */
    double real;             /* VALUE_REAL; VALUE_INT: the same number; else NAN */
    char text[CONFIG_VALUE]; /* canonical spelling: "Q8_0" -> "q8_0", "08" -> "8", "yes" -> "true" */
};

/* Parse `text`. False: the rule does not allow it, or it is CONFIG_VALUE bytes or longer. */
bool value_parse(struct value *out, const struct value_rule *rule, const char *text);

/* What the rule allows, for messages: "a whole number from 0 to 8", "one of a b c". Returns buf. */
const char *value_wanted(const struct value_rule *rule, const char *wrong, char *buf, size_t size);

/* The one copy of this text that the process keeps until it ends; NULL when out of memory. Any thread. */
const char *text_intern(const char *text);

/* ---------------------------------------------------------------- knobs (knobs.c, tensor_rules.c) */

/* Check `value` for a knob: typed number and canonical text. ERR_USAGE. */
enum err_code knob_parse(enum knob_id id, const char *value, struct value *out, struct err *why);

/* Check the rules "PATTERN:FORMAT;PATTERN@LAYERS:FORMAT" and write them in their one spelling to
 * out[CONFIG_VALUE]. ERR_USAGE, ERR_NOMEM. */
enum err_code tensor_rules_parse(const char *value, char *out, struct err *why);

/* A format a recipe may ask for. Errors name it, and say when it is known but cannot be made yet. */
enum err_code recipe_format_check(const char *name, const struct format **out, struct err *why);

/* "(did you mean b?) a b c" after a wrong word, for messages; cut at size. Returns buf. */
const char *choices_text(const char *word, const char *const *names, size_t count, char *buf, size_t size);

/* ---------------------------------------------------------------- parameters (params.c) */

/* Put name=value into the sorted list "name=value;name=value" of CONFIG_VALUE bytes, in the place of the pair
 * of that name. ERR_USAGE: the list gets too long. */
enum err_code params_merge(char *list, const char *name, const char *value, struct err *why);

/* Check "name=value;name=value" of any method's parameters: names in their one spelling, sorted, each once,
 * in out[CONFIG_VALUE]. Values are checked when the method is known (params_check_all). ERR_USAGE. */
enum err_code params_parse(const char *value, char *out, struct err *why);

/* ---------------------------------------------------------------- loads (workload_load.c) */

/* Parse what follows "load:". ERR_USAGE: key, value, and what is allowed. */
enum err_code workload_load_parse(struct workload_load *l, const char *text, struct err *why);
/* Append the canonical line without "load:". */
void workload_load_append(const struct workload_load *l, struct str *out);
int workload_load_ctx(const struct workload_load *l);
#define WORKLOAD_LOAD_PROMPTS "prompts" /* the key of its file of prompts */

/* ---------------------------------------------------------------- engines (engines.c) */

/* Are the given keys those that the config's engine has? ERR_USAGE. */
enum err_code engine_check(const struct config *c, struct err *why);
/* Can the config's engine run this workload? ERR_USAGE. */
enum err_code engine_check_workload(const struct config *c, const struct workload *w, struct err *why);

/* ---------------------------------------------------------------- experts on a device (expert_place.c) */

/* Check a value of expert_place= and write it in its one spelling to out[CONFIG_VALUE]. ERR_USAGE. */
enum err_code expert_place_check(const char *text, char *out, struct err *why);

/* ---------------------------------------------------------------- several processes (parallel.c) */

/* Can the config's other settings be combined with parallel=? ERR_USAGE. */
enum err_code parallel_check(const struct config *c, struct err *why);

/* ---------------------------------------------------------------- configs (config.c) */

/* Methods and formats that follow from each other: what a config means by the one it does not give. */
const char *config_implied_method(const struct config *c);
const char *config_implied_format(const struct config *c);

#endif
