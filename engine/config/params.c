/* Parameters of quantization methods. Names and values are checked when a config is parsed, so that a method
 * only sees values that its own rows allow. */
#include "engine/config/config_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct param *param_find(const struct method *m, const char *word)
{
    for (const struct param *p = method_params(m); p && p->name; p++)
        if (!strcasecmp(p->name, word) || (p->aliases && str_has_word(p->aliases, word))) return p;
    return NULL;
}

const char *param_name(const char *word)
{
    for (size_t i = 0; i < method_count(); i++) {
        const struct param *p = param_find(method_at(i), word);
        if (p) return p->name;
    }
    return NULL;
}

/* ---------------------------------------------------------------- checking */

static struct value_rule param_rule(const struct param *p)
{
    return (struct value_rule){ .kind = p->kind, .min = p->min, .max = p->max, .words = p->choices };
}

static enum err_code param_error(const struct method *m, const char *name, struct err *why)
{
    struct str known = { 0 };
    for (const struct param *p = method_params(m); p && p->name; p++)
        str_printf(&known, "%s%s", known.len ? " " : "", p->name);
    enum err_code rc = err_set(why, ERR_USAGE, "method %s has no parameter '%.40s'; it has %s",
                               method_name(m), name, known.len ? str_text(&known) : "none");
    str_free(&known);
    return rc;
}

static enum err_code param_parse(struct value *out, const struct method *m, const char *name,
                                 const char *value, struct err *why)
{
    const struct param *p = param_find(m, name);
    char wanted[400];
    if (!p) return param_error(m, name, why);
    const struct value_rule rule = param_rule(p);
    if (value_parse(out, &rule, value)) return ERR_OK;
    return err_set(why, ERR_USAGE, "%s=%.40s: %s expects %s", p->name, value, method_name(m),
                   value_wanted(&rule, value, wanted, sizeof wanted));
}

enum err_code param_check(const struct method *m, const char *name, const char *value, char *out, size_t size,
                          struct err *why)
{
    struct value v;
    const enum err_code rc = param_parse(&v, m, name, value, why);
    if (!rc) snprintf(out, size, "%s", v.text);
    return rc;
}

enum err_code params_merge(char *list, const char *name, const char *value, struct err *why)
{
    struct str all = { 0 };
    bool put = false;
    for (const char *p = list; *p || !put;) {
        const size_t n = strcspn(p, ";"), key = strcspn(p, "=");
        const int order = *p ? strncmp(p, name, MAX(key, strlen(name))) : 1;
        if (!put && order >= 0) {
            str_printf(&all, "%s%s=%s", all.len ? ";" : "", name, value);
            put = true;
        }
        if (*p && order != 0) str_printf(&all, "%s%.*s", all.len ? ";" : "", (int)n, p);
        p += n + (p[n] == ';');
    }
    enum err_code rc = ERR_OK;
    if (all.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc && all.len >= CONFIG_VALUE)
        rc = err_set(why, ERR_USAGE, "params: longer than %d bytes", CONFIG_VALUE - 1);
    if (!rc) snprintf(list, CONFIG_VALUE, "%s", str_text(&all));
    str_free(&all);
    return rc;
}

enum err_code params_parse(const char *value, char *out, struct err *why)
{
    out[0] = '\0';
    for (const char *p = value; *p;) {
        char pair[CONFIG_VALUE];
        const size_t n = strcspn(p, ";");
        snprintf(pair, sizeof pair, "%.*s", (int)n, p);
        p += n + (p[n] == ';');
        char *equals = strchr(pair, '=');
        if (equals) *equals = '\0';
        const char *name = param_name(pair);
        if (!equals || !equals[1] || strpbrk(equals + 1, " ,\"=\t\r\n"))
            return err_set(why, ERR_USAGE, "params: '%.60s' is not a pair: expected NAME=VALUE;NAME=VALUE",
                           pair);
        if (!name) return err_set(why, ERR_USAGE, "params: no method has a parameter '%.60s'", pair);
        enum err_code rc = params_merge(out, name, equals + 1, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- values */

struct params config_params(const struct config *c)
{
    return (struct params){ method_find(config_text(c, KNOB_METHOD)), config_text(c, KNOB_PARAMS) };
}

/* Copy the value of `name` in "name=value;name=value" to out. False: no such name. */
static bool params_find_given(const char *given, const char *name, char *out, size_t size)
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
    char value[CONFIG_VALUE];
    return params_find_given(p->given, name, value, sizeof value);
}

/* A parameter the method has (asserted): the given value, else the default. Given values were checked when
 * the config was (params_check_all); a config that failed that check reads as its defaults. */
static struct value params_value(const struct params *p, const char *name)
{
    struct value v;
    char given[CONFIG_VALUE];
    const struct param *row = param_find(p->method, name);
    assert(row);
    const struct value_rule rule = param_rule(row);
    if (params_find_given(p->given, row->name, given, sizeof given) && value_parse(&v, &rule, given))
        return v;
    value_parse(&v, &rule, row->otherwise);
    return v;
}

int64_t params_int(const struct params *p, const char *name)
{
    return params_value(p, name).whole;
}

double params_real(const struct params *p, const char *name)
{
    return params_value(p, name).real;
}

bool params_bool(const struct params *p, const char *name)
{
    return params_value(p, name).whole != 0;
}

bool params_is(const struct params *p, const char *name, const char *choice)
{
    return !strcasecmp(params_value(p, name).text, choice);
}

/* ---------------------------------------------------------------- whole lists */

/* Read the pair at *at into name and value. False: the end of the list. */
static bool params_next(const char **at, char *pair, size_t size, char **value)
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
    char pair[CONFIG_VALUE], *value;
    struct value parsed;
    enum err_code rc = ERR_OK;
    const char *at = p->given;
    while (!rc && params_next(&at, pair, sizeof pair, &value))
        rc = p->method
                 ? param_parse(&parsed, p->method, pair, value, why)
                 : err_set(why, ERR_USAGE, "%s=%.40s: without a method there is nothing to set", pair, value);
    return rc ? rc : method_check(p, why);
}

void params_identity(const struct params *p, struct str *out)
{
    char pair[CONFIG_VALUE], *value;
    struct value given, usual;
    const char *at = p->given;
    while (p->method && params_next(&at, pair, sizeof pair, &value)) {
        const struct param *row = param_find(p->method, pair);
        if (!row || param_parse(&given, p->method, pair, value, NULL)) continue;
        if (param_parse(&usual, p->method, pair, row->otherwise, NULL) || strcmp(given.text, usual.text))
            str_printf(out, ";%s=%s", row->name, given.text);
    }
}
