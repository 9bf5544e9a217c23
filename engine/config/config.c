/* The config language: one line of text <-> what a run is told to do.
 *
 * The same line is typed, stored, compared and shown, so it has one canonical spelling per meaning, and
 * nothing in it is ever ignored: an item is understood or refused with what would have been right. */
#include "engine/config/config.h"
#include "engine/config/config_internal.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/quant/quant.h"

static const char RTN[] = "rtn"; /* the method of a bare format */

/* ---------------------------------------------------------------- values that follow from others */

static bool converts(const struct config *c)
{
    return strcmp(c->value[KNOB_FORMAT], "file") || c->value[KNOB_TENSORS][0];
}

/* A recipe without a method means round-to-nearest; no recipe means none. */
static const char *implied_method(const struct config *c)
{
    return converts(c) ? RTN : KNOBS[KNOB_METHOD].otherwise;
}

/* A method without a format means the one its parameters say. */
static const char *implied_format(const struct config *c)
{
    const struct params p = config_params(c);
    const char *format = method_format(&p);
    return format ? format : KNOBS[KNOB_FORMAT].otherwise;
}

static void derive_recipe(struct config *c)
{
    if (!c->given[KNOB_FORMAT])
        snprintf(c->value[KNOB_FORMAT], CONFIG_VALUE, "%s",
                 c->given[KNOB_METHOD] ? implied_format(c) : KNOBS[KNOB_FORMAT].otherwise);
    if (!c->given[KNOB_METHOD]) snprintf(c->value[KNOB_METHOD], CONFIG_VALUE, "%s", implied_method(c));
}

void config_default(struct config *c)
{
    *c = (struct config){ 0 };
    for (int i = 0; i < KNOB_COUNT; i++) snprintf(c->value[i], CONFIG_VALUE, "%s", KNOBS[i].otherwise);
}

static const char *first_param(const struct method *m)
{
    return method_params(m) ? method_params(m)[0].name : "it has none";
}

/* The method, its parameters and the format must mean one thing. */
static enum err_code check_method(const struct config *c, struct err *why)
{
    const struct params p = config_params(c);
    const char *format = c->value[KNOB_FORMAT];
    enum err_code rc = params_check_all(&p, why);
    if (rc || !p.method || !strcmp(format, "file")) return rc;
    if (method_decides_format(p.method) && strcmp(implied_format(c), format))
        return err_set(why, ERR_USAGE,
                       "method %s with these parameters makes %s, not %s: leave the format out and say what "
                       "you want by its parameters (%s)",
                       method_name(p.method), implied_format(c), format, first_param(p.method));
    const char *makes = method_formats(p.method);
    if (makes && !str_has_word(makes, format))
        return err_set(why, ERR_USAGE, "method %s cannot make %s; it makes %s", method_name(p.method), format,
                       makes);
    return ERR_OK;
}

enum err_code config_check(const struct config *c, struct err *why)
{
    const char *method = c->value[KNOB_METHOD], *format = c->value[KNOB_FORMAT];
    enum err_code rc = check_method(c, why);
    if (rc) return rc;
    if (!strcmp(method, "none") && converts(c))
        return err_set(
            why, ERR_USAGE,
            "method=none leaves the file as it is, so it cannot have %s=%s: leave method out or write method=%s",
            strcmp(format, "file") ? "format" : "tensors",
            strcmp(format, "file") ? format : c->value[KNOB_TENSORS], RTN);
    if (strcmp(method, "none") && !converts(c))
        return err_set(why, ERR_USAGE,
                       "method=%s needs a format to convert to: write %s:q8_0 or add format=q8_0", method,
                       method);
    if (!strcmp(c->value[KNOB_HUGEPAGES], "all") && strcmp(c->value[KNOB_PREFETCH], "off"))
        return err_set(
            why, ERR_USAGE,
            "hugepages=all copies the weights, which reads all of them: prefetch=%s has nothing to do, "
            "leave one of them out",
            c->value[KNOB_PREFETCH]);
    return ERR_OK;
}

/* ---------------------------------------------------------------- setting */

/* The pairs in `more` join those that are there. */
static enum err_code add_params(const struct config *c, const char *more, char *out, struct err *why)
{
    char all[CONFIG_VALUE], pair[CONFIG_VALUE];
    snprintf(all, sizeof all, "%s", c->value[KNOB_PARAMS]);
    for (const char *p = more; *p;) {
        const size_t n = strcspn(p, ";");
        snprintf(pair, sizeof pair, "%.*s", (int)n, p);
        p += n + (p[n] == ';');
        char *equals = strchr(pair, '=');
        *equals = '\0';
        enum err_code rc = params_merge(all, pair, equals + 1, why);
        if (rc) return rc;
    }
    memcpy(out, all, sizeof all);
    return ERR_OK;
}

static enum err_code set_knob(struct config *c, enum knob_id id, const char *value, struct err *why)
{
    char text[CONFIG_VALUE];
    enum err_code rc = knob_check(id, value, text, why);
    if (!rc && id == KNOB_PARAMS) rc = add_params(c, text, text, why);
    if (rc) return rc;
    memcpy(c->value[id], text, sizeof text);
    c->given[id] = true;
    derive_recipe(c);
    return ERR_OK;
}

/* What a bare word can be: every format and method, for the message. */
static enum err_code not_a_recipe(const char *word, struct err *why)
{
    const char *names[2 * CHOICES_MAX + KNOB_COUNT];
    char text[320];
    size_t formats = MIN(knob_choices(KNOB_FORMAT, names, CHOICES_MAX), CHOICES_MAX);
    size_t both = formats + MIN(knob_choices(KNOB_METHOD, names + formats, CHOICES_MAX), CHOICES_MAX);
    for (int i = 0; i < KNOB_COUNT; i++)
        if (!strcasecmp(word, KNOBS[i].key))
            return err_set(why, ERR_USAGE, "'%s' needs a value: write %s=VALUE", word, KNOBS[i].key);
    return err_set(why, ERR_USAGE, "'%.40s' is neither key=value nor a recipe; want a format or method: %s",
                   word, choices_text(word, names, both, text, sizeof text));
}

/* method | format | method:format. The parts come out as "" when not written. */
static enum err_code recipe_split(const char *word, char *method, char *format, struct err *why)
{
    const char *colon = strchr(word, ':');
    const struct format *f;
    method[0] = format[0] = '\0';
    if (colon) {
        char left[CONFIG_VALUE];
        snprintf(left, sizeof left, "%.*s", (int)MIN(colon - word, CONFIG_VALUE - 1), word);
        enum err_code rc = knob_check(KNOB_METHOD, left, method, why);
        return rc ? rc : knob_check(KNOB_FORMAT, colon + 1, format, why);
    }
    if (!knob_check(KNOB_METHOD, word, method, NULL))
        return ERR_OK; /* of what is both: nf4 with parameters */
    if (!knob_check(KNOB_FORMAT, word, format, NULL)) return ERR_OK;
    if (format_find(word)) return recipe_format_check(word, &f, why); /* known, cannot be made */
    return not_a_recipe(word, why);
}

/* Which knobs an item sets, with their values; two for "kv" and "method:format". */
struct item {
    enum knob_id id[2];
    char value[2][CONFIG_VALUE];
    int count;
};

static void item_add(struct item *it, enum knob_id id, const char *value)
{
    it->id[it->count] = id;
    snprintf(it->value[it->count++], CONFIG_VALUE, "%s", value);
}

/* A word that means a method by one of its parameters: q4_K_M is gguf,type=q4_K_M. */
static bool item_shorthand(struct item *it, const char *word)
{
    char value[CONFIG_VALUE], pair[CONFIG_VALUE];
    for (size_t i = 0; i < method_count(); i++) {
        const struct method *m = method_at(i);
        const char *name = method_shorthand(m);
        if (!name || param_check(m, name, word, value, sizeof value, NULL)) continue;
        snprintf(pair, sizeof pair, "%s=%s", name, value);
        item_add(it, KNOB_METHOD, method_name(m));
        item_add(it, KNOB_PARAMS, pair);
        return true;
    }
    return false;
}

static enum err_code item_recipe(struct item *it, const char *word, struct err *why)
{
    char method[CONFIG_VALUE], format[CONFIG_VALUE];
    if (!format_find(word) && item_shorthand(it, word)) return ERR_OK;
    enum err_code rc = recipe_split(word, method, format, why);
    if (rc) return rc;
    if (method[0]) item_add(it, KNOB_METHOD, method);
    if (format[0]) item_add(it, KNOB_FORMAT, format);
    return ERR_OK;
}

static enum err_code item_of(struct item *it, const char *key, const char *value, struct err *why)
{
    const char *names[KNOB_COUNT + 2];
    char text[320];
    it->count = 0;
    if (strlen(value) >= CONFIG_VALUE)
        return err_set(why, ERR_USAGE, "%.40s: value longer than %d bytes", key, CONFIG_VALUE - 1);
    if (!strcmp(key, "recipe")) return item_recipe(it, value, why);
    if (!strcmp(key, "kv")) {
        item_add(it, KNOB_CTK, value);
        item_add(it, KNOB_CTV, value);
        return ERR_OK;
    }
    for (int i = 0; i < KNOB_COUNT; i++) {
        names[i] = KNOBS[i].key;
        if (strcmp(key, KNOBS[i].key)) continue;
        item_add(it, (enum knob_id)i, value);
        return ERR_OK;
    }
    if (param_name(key)) {
        char pair[CONFIG_VALUE];
        snprintf(pair, sizeof pair, "%s=%s", param_name(key), value);
        item_add(it, KNOB_PARAMS, pair);
        return ERR_OK;
    }
    names[KNOB_COUNT] = "kv";
    names[KNOB_COUNT + 1] = "recipe";
    return err_set(why, ERR_USAGE, "unknown key '%.40s'; keys are %s", key,
                   choices_text(key, names, COUNT_OF(names), text, sizeof text));
}

static enum err_code item_apply(struct config *c, const struct item *it, struct err *why)
{
    for (int i = 0; i < it->count; i++) {
        enum err_code rc = set_knob(c, it->id[i], it->value[i], why);
        if (rc) return rc;
    }
    return ERR_OK;
}

enum err_code config_set(struct config *c, const char *key, const char *value, struct err *why)
{
    struct item it;
    enum err_code rc = item_of(&it, key, value, why);
    return rc ? rc : item_apply(c, &it, why);
}

/* ---------------------------------------------------------------- reading a line */

static bool is_gap(char ch)
{
    return ch == ',' || ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

/* One item of a line, without its quotes. equals: where its first '=' outside quotes is, -1: none. */
struct lexed {
    struct str text;
    int64_t equals;
    bool found; /* false at the end of the line */
};

static enum err_code next_item(const char **line, struct lexed *out, struct err *why)
{
    const char *p = *line;
    bool quoted = false;
    str_clear(&out->text);
    out->equals = -1;
    while (is_gap(*p)) p++;
    out->found = *p != '\0';
    for (; *p && (quoted || !is_gap(*p)); p++) {
        if (*p == '"') {
            quoted = !quoted;
            continue;
        }
        if (quoted && *p == '\\' && (p[1] == '"' || p[1] == '\\')) p++;
        if (!quoted && *p == '=' && out->equals < 0) out->equals = (int64_t)out->text.len;
        str_append_n(&out->text, p, 1);
    }
    *line = p;
    if (quoted)
        return err_set(why, ERR_USAGE, "a quote is opened and not closed in '%.60s'", str_text(&out->text));
    return out->text.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

/* Is the parameter of this pair set already? */
static bool has_param(const struct config *c, const char *pair)
{
    char name[CONFIG_VALUE];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(pair, "="), pair);
    return params_given(&(struct params){ .given = c->value[KNOB_PARAMS] }, name);
}

static enum err_code line_item(struct config *c, bool *seen, struct lexed *in, struct err *why)
{
    struct item it = { .count = 0 };
    enum err_code rc;
    if (in->equals >= 0) {
        in->text.data[in->equals] = '\0';
        rc = item_of(&it, in->text.data, in->text.data + in->equals + 1, why);
    } else {
        rc = item_recipe(&it, str_text(&in->text), why);
    }
    for (int i = 0; !rc && i < it.count; i++) {
        if (it.id[i] == KNOB_PARAMS ? has_param(c, it.value[i]) : seen[it.id[i]])
            rc = err_set(why, ERR_USAGE, "%s is given twice: %.60s and %.60s", KNOBS[it.id[i]].key,
                         c->value[it.id[i]], it.value[i]);
        seen[it.id[i]] = true;
    }
    return rc ? rc : item_apply(c, &it, why);
}

enum err_code config_parse(struct config *c, const char *line, struct err *why)
{
    bool seen[KNOB_COUNT] = { false };
    struct lexed in = { .found = true };
    int items = 0, defaults = 0;
    enum err_code rc = ERR_OK;
    config_default(c);
    while (!rc && !(rc = next_item(&line, &in, why)) && in.found) {
        items++;
        if (in.equals < 0 && !strcmp(str_text(&in.text), "default"))
            defaults++;
        else
            rc = line_item(c, seen, &in, why);
    }
    str_free(&in.text);
    if (!rc && defaults && items > 1)
        rc = err_set(why, ERR_USAGE, "'default' stands alone: it means nothing is set");
    return rc ? rc : config_check(c, why);
}

/* ---------------------------------------------------------------- writing it */

static void append_value(struct str *s, const char *value)
{
    bool plain = value[0] && !strpbrk(value, " ,\"\t\n\r");
    if (plain) {
        str_append(s, value);
        return;
    }
    str_append(s, "\"");
    for (const char *p = value; *p; p++) str_printf(s, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    str_append(s, "\"");
}

/* "method:format", each left out when it goes without saying. */
static void append_recipe(struct str *s, const struct config *c)
{
    const char *method = c->value[KNOB_METHOD], *format = c->value[KNOB_FORMAT];
    const bool named = strcmp(method, implied_method(c)) != 0 || method_find(format);
    if (named) str_append(s, method);
    if (!named || strcmp(format, implied_format(c))) str_printf(s, "%s%s", named ? ":" : "", format);
}

const char *config_recipe(const struct config *c, char *buf, size_t size)
{
    struct str s = { 0 };
    const char *method = c->value[KNOB_METHOD];
    const struct params p = config_params(c);
    str_printf(&s, "%s%s%s", strcmp(method, implied_method(c)) ? method : "",
               strcmp(method, implied_method(c)) ? ":" : "", c->value[KNOB_FORMAT]);
    params_identity(&p, &s);
    if (c->value[KNOB_TENSORS][0]) str_printf(&s, ";%s", c->value[KNOB_TENSORS]);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

/* Parameters as items by themselves. */
static void append_params(struct str *s, const char *pairs)
{
    for (; *pairs; pairs++) str_append_n(s, *pairs == ';' ? "," : pairs, 1);
}

const char *config_line(const struct config *c, char *buf, size_t size)
{
    struct str s = { 0 };
    bool same_kv = c->given[KNOB_CTK] && c->given[KNOB_CTV] &&
                   !strcmp(c->value[KNOB_CTK], c->value[KNOB_CTV]);
    for (int i = 0; i < KNOB_COUNT; i++) {
        bool recipe = i == KNOB_METHOD && (c->given[KNOB_METHOD] || c->given[KNOB_FORMAT]);
        if (!recipe && (!c->given[i] || i == KNOB_METHOD || i == KNOB_FORMAT)) continue;
        if (i == KNOB_CTV && same_kv) continue;
        if (s.len) str_append(&s, ",");
        if (recipe) {
            append_recipe(&s, c);
            continue;
        }
        if (i == KNOB_PARAMS) {
            append_params(&s, c->value[i]);
            continue;
        }
        str_printf(&s, "%s=", i == KNOB_CTK && same_kv ? "kv" : KNOBS[i].key);
        append_value(&s, c->value[i]);
    }
    snprintf(buf, size, "%s", s.len ? s.data : "default");
    str_free(&s);
    return buf;
}

/* ---------------------------------------------------------------- as JSON */

json_t *config_to_json(const struct config *c)
{
    json_t *o = json_object();
    for (int i = 0; o && i < KNOB_COUNT; i++) {
        if (KNOBS[i].kind == KNOB_INT)
            json_put_int(o, KNOBS[i].key, config_int(c, (enum knob_id)i));
        else
            json_put_str(o, KNOBS[i].key, c->value[i]);
    }
    return o;
}

enum err_code config_from_json(struct config *c, const json_t *object, struct err *why)
{
    const char *key;
    json_t *v;
    config_default(c);
    if (!json_is_object(object)) return err_set(why, ERR_USAGE, "a config is a JSON object");
    json_object_foreach((json_t *)object, key, v)
    {
        char number[32];
        const char *text = json_string_value(v);
        if (json_is_integer(v)) {
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
            text = number;
        }
        if (!text) return err_set(why, ERR_USAGE, "config key '%.40s': want text or a whole number", key);
        enum err_code rc = config_set(c, key, text, why);
        if (rc) return rc;
    }
    struct config plain;
    config_default(&plain);
    for (int i = 0; i < KNOB_COUNT; i++) c->given[i] = strcmp(c->value[i], plain.value[i]) != 0;
    if (!strcmp(c->value[KNOB_METHOD], implied_method(c))) c->given[KNOB_METHOD] = false;
    if (c->given[KNOB_METHOD] && !strcmp(c->value[KNOB_FORMAT], implied_format(c)))
        c->given[KNOB_FORMAT] = false;
    return config_check(c, why);
}

/* ---------------------------------------------------------------- looking */

int64_t config_int(const struct config *c, enum knob_id id)
{
    int64_t v = 0;
    str_to_i64(c->value[id], &v); /* was checked when it was set */
    return v;
}

const char *config_text(const struct config *c, enum knob_id id)
{
    return c->value[id];
}

const struct knob *config_stray(const struct config *c, unsigned work)
{
    for (int i = 0; i < KNOB_COUNT; i++)
        if (c->given[i] && !(KNOBS[i].matters_for & work)) return &KNOBS[i];
    return NULL;
}

int config_choice(const struct config *c, enum knob_id id)
{
    int i = 0; /* a parsed value is one of them */
    while (KNOBS[id].choices[i + 1] && strcasecmp(KNOBS[id].choices[i], c->value[id])) i++;
    return i;
}
