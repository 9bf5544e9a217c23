/* Rules for single tensors in a config line: "attn_v:q8_0;ffn_down@0-3+7:f16". A rule is a pattern of a
 * tensor's name, perhaps the layers it is limited to, and a format. engine/quant/recipe.c applies them. */
#include "engine/config/config_internal.h"

#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

/* Is it a set of layers such as "0-3+7": numbers and ranges with '+' between them? */
static bool rule_is_layer_set(const char *s, size_t n)
{
    const char *end = s + n;
    for (;;) {
        const size_t from = strspn(s, "0123456789");
        if (!from || from > 5) return false;
        s += from;
        if (s < end && *s == '-') {
            const size_t to = strspn(++s, "0123456789");
            if (!to || to > 5) return false;
            s += to;
        }
        if (s >= end) return s == end;
        if (*s++ != '+') return false;
    }
}

static bool rule_is_pattern(const char *s, size_t n)
{
    const char *at = memchr(s, '@', n);
    if (at && !rule_is_layer_set(at + 1, n - (size_t)(at + 1 - s))) return false;
    if (at) n = (size_t)(at - s);
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-*?", s[i]))
            return false;
    return n > 0;
}

/* Do the checked rules "p:f;q:g;" already contain this pattern? */
static bool rules_contain(const char *out, const char *pattern, size_t n)
{
    for (const char *p = out; *p; p = strchr(p, ';') + 1)
        if (!strncmp(p, pattern, n) && p[n] == ':') return true;
    return false;
}

static enum err_code rule_check(const char *rule, size_t n, struct str *out, struct err *why)
{
    const char *colon = memchr(rule, ':', n);
    size_t left = colon ? (size_t)(colon - rule) : 0;
    char name[64] = "";
    if (colon) snprintf(name, sizeof name, "%.*s", (int)MIN(n - left - 1, sizeof name - 1), colon + 1);
    if (!rule_is_pattern(rule, left))
        return err_set(
            why, ERR_USAGE,
            "tensors: '%.*s' is not a rule: expected PATTERN:FORMAT or PATTERN@LAYERS:FORMAT, such as attn_v:q8_0 or "
            "ffn_down@0-3+7:f16. A pattern has letters, digits and . _ -, and * and ? as wildcards. A ; separates rules",
            (int)MIN(n, 60), rule);
    if (rules_contain(str_text(out), rule, left))
        return err_set(why, ERR_USAGE, "tensors: two rules for '%.*s'", (int)left, rule);
    const struct format *f;
    enum err_code rc = recipe_format_check(name, &f, why);
    if (rc) {
        err_prefix(why, "tensors: rule '%.*s'", (int)MIN(n, 60), rule);
        return rc;
    }
    str_append_n(out, rule, left);
    str_printf(out, ":%s;", f->name);
    return ERR_OK;
}

enum err_code tensor_rules_parse(const char *value, char *out, struct err *why)
{
    struct str all = { 0 };
    enum err_code rc = ERR_OK;
    for (const char *p = value; !rc && *p;) {
        size_t n = strcspn(p, ";");
        rc = rule_check(p, n, &all, why);
        p += n + (p[n] == ';');
    }
    if (!rc && all.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc && all.len > CONFIG_VALUE)
        rc = err_set(why, ERR_USAGE, "tensors: rules longer than %d bytes", CONFIG_VALUE - 1);
    if (!rc) snprintf(out, CONFIG_VALUE, "%.*s", all.len ? (int)all.len - 1 : 0, str_text(&all));
    str_free(&all);
    return rc;
}
