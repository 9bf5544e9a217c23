/* Configs as text and as JSON. The canonical line is generated from the typed values: one spelling per
 * meaning, so that it can be stored, compared and used as a key. */
#include "engine/config/config_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- lines */

/* Copy a canonical text to buf. One that does not fit is abbreviated to its beginning and its SHA-256: an
 * abbreviation must never be the abbreviation of two texts, because lines serve as keys. */
static void text_fit(const struct str *s, char *buf, size_t size)
{
    char hash[HASH_HEX];
    if (!size) return;
    if (s->len < size && !s->failed) {
        memcpy(buf, str_text(s), s->len + 1);
        return;
    }
    hash_bytes(str_text(s), s->len, hash);
    const size_t tail = HASH_HEX + 1; /* ",#", the digits; the end is not counted */
    if (size > tail)
        snprintf(buf, size, "%.*s,#%s", (int)(size - 1 - tail), str_text(s), hash);
    else
        snprintf(buf, size, "%s", hash);
}

static void line_append_value(struct str *s, const char *value)
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

/* Append "method:format"; a part that the other one implies is omitted. */
static void line_append_recipe(struct str *s, const struct config *c)
{
    const char *method = config_text(c, KNOB_METHOD), *format = config_text(c, KNOB_FORMAT);
    const bool named = strcmp(method, config_implied_method(c)) != 0 || method_find(format);
    if (named) str_append(s, method);
    if (!named || strcmp(format, config_implied_format(c))) str_printf(s, "%s%s", named ? ":" : "", format);
}

const char *config_recipe(const struct config *c, char *buf, size_t size)
{
    struct str s = { 0 };
    const char *method = config_text(c, KNOB_METHOD);
    const struct params p = config_params(c);
    str_printf(&s, "%s%s%s", strcmp(method, config_implied_method(c)) ? method : "",
               strcmp(method, config_implied_method(c)) ? ":" : "", config_text(c, KNOB_FORMAT));
    params_identity(&p, &s);
    if (config_text(c, KNOB_TENSORS)[0]) str_printf(&s, ";%s", config_text(c, KNOB_TENSORS));
    text_fit(&s, buf, size);
    str_free(&s);
    return buf;
}

/* Append parameters as items of the line: ";" becomes ",". */
static void line_append_params(struct str *s, const char *pairs)
{
    for (; *pairs; pairs++) str_append_n(s, *pairs == ';' ? "," : pairs, 1);
}

void config_append_line(const struct config *c, struct str *out)
{
    const size_t start = out->len;
    bool same_kv = c->given[KNOB_CTK] && c->given[KNOB_CTV] &&
                   !strcmp(config_text(c, KNOB_CTK), config_text(c, KNOB_CTV));
    for (int i = 0; i < KNOB_COUNT; i++) {
        bool recipe = i == KNOB_METHOD && (c->given[KNOB_METHOD] || c->given[KNOB_FORMAT]);
        if (!recipe && (!c->given[i] || i == KNOB_METHOD || i == KNOB_FORMAT)) continue;
        if (i == KNOB_CTV && same_kv) continue;
        if (out->len > start) str_append(out, ",");
        if (recipe) {
            line_append_recipe(out, c);
            continue;
        }
        if (i == KNOB_PARAMS) {
            line_append_params(out, config_text(c, KNOB_PARAMS));
            continue;
        }
        str_printf(out, "%s=", i == KNOB_CTK && same_kv ? "kv" : KNOBS[i].key);
        line_append_value(out, config_text(c, (enum knob_id)i));
    }
    if (out->len == start) str_append(out, "default");
}

const char *config_line(const struct config *c, char *buf, size_t size)
{
    struct str s = { 0 };
    config_append_line(c, &s);
    text_fit(&s, buf, size);
    str_free(&s);
    return buf;
}

bool config_same(const struct config *a, const struct config *b)
{
    for (int i = 0; i < KNOB_COUNT; i++) {
        const bool recipe = i == KNOB_METHOD || i == KNOB_FORMAT; /* one follows from the other */
        if (!recipe && a->given[i] != b->given[i]) return false;
        if ((recipe || a->given[i]) &&
            strcmp(config_text(a, (enum knob_id)i), config_text(b, (enum knob_id)i)))
            return false;
    }
    const bool recipe_a = a->given[KNOB_METHOD] || a->given[KNOB_FORMAT],
               recipe_b = b->given[KNOB_METHOD] || b->given[KNOB_FORMAT];
    return recipe_a == recipe_b;
}

/* ---------------------------------------------------------------- as JSON */

json_t *config_to_json(const struct config *c)
{
    json_t *o = json_object();
    for (int i = 0; o && i < KNOB_COUNT; i++) {
        if (KNOBS[i].kind == VALUE_INT)
            json_put_int(o, KNOBS[i].key, config_int(c, (enum knob_id)i));
        else
            json_put_str(o, KNOBS[i].key, config_text(c, (enum knob_id)i));
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
        if (!text) return err_set(why, ERR_USAGE, "config key '%.40s': expected text or a whole number", key);
        enum err_code rc = config_set(c, key, text, why);
        if (rc) return rc;
    }
    struct config plain;
    config_default(&plain);
    for (int i = 0; i < KNOB_COUNT; i++)
        c->given[i] = strcmp(config_text(c, (enum knob_id)i), config_text(&plain, (enum knob_id)i)) != 0;
    if (!strcmp(config_text(c, KNOB_METHOD), config_implied_method(c))) c->given[KNOB_METHOD] = false;
    if (c->given[KNOB_METHOD] && !strcmp(config_text(c, KNOB_FORMAT), config_implied_format(c)))
        c->given[KNOB_FORMAT] = false;
    return config_check(c, why);
}

/* The part of a path or URL that tells it apart: its last one. */
static const char *last_part(const char *text)
{
    const char *slash = strrchr(text, '/');
    return slash && slash[1] ? slash + 1 : text;
}

/* "llama-server -t 1 -fa on": as its user would type it. */
static void label_foreign(const struct config *c, struct str *out)
{
    str_append(out, ENGINE_NAMES[config_engine(c)]);
    for (int i = 0; i < KNOB_COUNT; i++) {
        const char *value = config_text(c, (enum knob_id)i);
        if (!c->given[i] || i == KNOB_ENGINE || i == KNOB_ARGS) continue;
        if (i == KNOB_BIN || i == KNOB_MODEL)
            str_printf(out, " %s", last_part(value));
        else if (i == KNOB_URL) /* host and port tell servers apart */
            str_printf(out, " %s", strstr(value, "://") ? strstr(value, "://") + 3 : value);
        else if (KNOBS[i].flag)
            str_printf(out, " %s %s", KNOBS[i].flag, value);
        else
            str_printf(out, " %s=%s", KNOBS[i].key, value);
    }
    if (c->given[KNOB_ARGS]) str_printf(out, " %s", config_text(c, KNOB_ARGS));
}

const char *config_label(const struct config *c, char *buf, size_t size)
{
    struct config shown = *c;
    struct str s = { 0 };
    if (config_is_foreign(c)) {
        label_foreign(c, &s);
    } else {
        for (int i = 0; i < KNOB_COUNT; i++)
            if (c->given[i] && strchr(config_text(c, (enum knob_id)i), '/'))
                (void)config_resolve_text(&shown, (enum knob_id)i, last_part(config_text(c, (enum knob_id)i)),
                                          NULL);
        config_append_line(&shown, &s);
    }
    text_fit(&s, buf, size);
    str_free(&s);
    return buf;
}
