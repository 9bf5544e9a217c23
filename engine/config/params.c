/* Parameters of methods: names and values are checked where a config is read, so that a method finds only
 * what its own rows allow. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/quant/quant.h"

static const struct param *row_of(const struct method *m, const char *word)
{
    for (const struct param *p = method_params(m); p && p->name; p++)
        if (!strcasecmp(p->name, word) || (p->aliases && str_has_word(p->aliases, word))) return p;
    return NULL;
}

const char *param_name(const char *word)
{
    for (size_t i = 0; i < method_count(); i++) {
        const struct param *p = row_of(method_at(i), word);
        if (p) return p->name;
    }
    return NULL;
}

/* ---------------------------------------------------------------- checking */

static enum err_code wrong(const struct method *m, const struct param *p, const char *value, struct err *why)
{
    char want[160];
    if (p->choices)
        snprintf(want, sizeof want, "one of %s", p->choices);
    else if (p->kind == PARAM_BOOL)
        snprintf(want, sizeof want, "true or false");
    else
        snprintf(want, sizeof want, "%s from %g to %g", p->kind == PARAM_INT ? "a whole number" : "a number",
                 p->min, p->max);
    return err_set(why, ERR_USAGE, "%s=%.40s: %s wants %s", p->name, value, method_name(m), want);
}

static bool bool_of(const char *value, bool *out)
{
    *out = str_has_word("true on yes 1", value);
    return *out || str_has_word("false off no 0", value);
}

/* The list's own spelling of a word that is in it. */
static void spell(const char *list, const char *word, char *out, size_t size)
{
    const size_t n = strlen(word);
    for (const char *p = list; *p; p += strspn(p, " ")) {
        const size_t part = strcspn(p, " ");
        if (part == n && !strncasecmp(p, word, n)) snprintf(out, size, "%.*s", (int)n, p);
        p += part;
    }
}

enum err_code param_check(const struct method *m, const char *name, const char *value, char *out, size_t size,
                          struct err *why)
{
    const struct param *p = row_of(m, name);
    struct str known = { 0 };
    int64_t whole;
    double number;
    bool flag;
    if (!p) {
        for (p = method_params(m); p && p->name; p++)
            str_printf(&known, "%s%s", known.len ? " " : "", p->name);
        enum err_code rc = err_set(why, ERR_USAGE, "method %s has no parameter '%.40s'; it has %s",
                                   method_name(m), name, known.len ? str_text(&known) : "none");
        str_free(&known);
        return rc;
    }
    if (p->choices && !str_has_word(p->choices, value)) return wrong(m, p, value, why);
    switch (p->kind) {
    case PARAM_INT:
        if (!str_to_i64(value, &whole) || (!p->choices && ((double)whole < p->min || (double)whole > p->max)))
            return wrong(m, p, value, why);
        snprintf(out, size, "%" PRId64, whole);
        return ERR_OK;
    case PARAM_REAL:
        if (!str_to_double(value, &number) || !(number >= p->min && number <= p->max))
            return wrong(m, p, value, why);
        str_from_double(number, out, size);
        return ERR_OK;
    case PARAM_BOOL:
        if (!bool_of(value, &flag)) return wrong(m, p, value, why);
        snprintf(out, size, "%s", flag ? "true" : "false");
        return ERR_OK;
    case PARAM_CHOICE: break;
    }
    spell(p->choices, value, out, size);
    return ERR_OK;
}

/* ---------------------------------------------------------------- looking */

struct params config_params(const struct config *c)
{
    return (struct params){ method_find(config_text(c, KNOB_METHOD)), config_text(c, KNOB_PARAMS) };
}

/* The value that stands in "name=value;name=value", cut into out; false when it is not there. */
static bool given_value(const char *given, const char *name, char *out, size_t size)
{
    const size_t n = strlen(name);
    for (const char *p = given; *p; p += *p == ';') {
        const size_t part = strcspn(p, ";");
        if (part > n && !strncmp(p, name, n) && p[n] == '=') {
            snprintf(out, size, "%.*s", (int)(part - n - 1), p + n + 1);
            return true;
        }
        p += part;
    }
    return false;
}

bool params_given(const struct params *p, const char *name)
{
    char value[64];
    return given_value(p->given, name, value, sizeof value);
}

/* The checked text of a parameter the method has. */
static const struct param *value_of(const struct params *p, const char *name, char *out, size_t size)
{
    char raw[64];
    const struct param *row = row_of(p->method, name);
    assert(row);
    if (!given_value(p->given, row->name, raw, sizeof raw)) snprintf(raw, sizeof raw, "%s", row->otherwise);
    if (param_check(p->method, row->name, raw, out, size, NULL)) snprintf(out, size, "%s", row->otherwise);
    return row;
}

int64_t params_int(const struct params *p, const char *name)
{
    char text[64];
    int64_t v = 0;
    value_of(p, name, text, sizeof text);
    str_to_i64(text, &v);
    return v;
}

double params_real(const struct params *p, const char *name)
{
    char text[64];
    double v = NAN;
    value_of(p, name, text, sizeof text);
    str_to_double(text, &v);
    return v;
}

bool params_bool(const struct params *p, const char *name)
{
    char text[64];
    bool v = false;
    value_of(p, name, text, sizeof text);
    bool_of(text, &v);
    return v;
}

bool params_is(const struct params *p, const char *name, const char *choice)
{
    char text[64];
    value_of(p, name, text, sizeof text);
    return !strcasecmp(text, choice);
}

/* ---------------------------------------------------------------- all of them */

/* The pair at *at, cut at its '='; false at the end of the list. */
static bool next_pair(const char **at, char *pair, size_t size, char **value)
{
    const size_t n = strcspn(*at, ";");
    if (!n) return false;
    snprintf(pair, size, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] == ';');
    *value = strchr(pair, '=');
    assert(*value);
    *(*value)++ = '\0';
    return true;
}

enum err_code params_check_all(const struct params *p, struct err *why)
{
    char pair[CONFIG_VALUE], text[CONFIG_VALUE], *value;
    enum err_code rc = ERR_OK;
    const char *at = p->given;
    while (!rc && next_pair(&at, pair, sizeof pair, &value))
        rc = p->method
                 ? param_check(p->method, pair, value, text, sizeof text, why)
                 : err_set(why, ERR_USAGE, "%s=%.40s: without a method there is nothing to set", pair, value);
    return rc ? rc : method_check(p, why);
}

void params_identity(const struct params *p, struct str *out)
{
    char pair[CONFIG_VALUE], text[CONFIG_VALUE], plain[CONFIG_VALUE], *value;
    const char *at = p->given;
    while (p->method && next_pair(&at, pair, sizeof pair, &value)) {
        const struct param *row = row_of(p->method, pair);
        if (!row || param_check(p->method, pair, value, text, sizeof text, NULL)) continue;
        if (param_check(p->method, pair, row->otherwise, plain, sizeof plain, NULL) || strcmp(text, plain))
            str_printf(out, ";%s=%s", row->name, text);
    }
}
