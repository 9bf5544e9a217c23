/* telemetry/exposition.c - Prometheus' text exposition format 0.0.4, written so that no reader refuses it.
 *
 * The first misuse is kept in `bad` and nothing is written after it: a half-right document would be taken for
 * a right one. Our own rules are stricter than the format's: no colon in names (they are for recording
 * rules), no labels that Prometheus keeps for itself. */
#include "telemetry/telemetry.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool name_is_valid(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_') return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return false;
    return true;
}

static bool label_is_valid(const char *name)
{
    return name_is_valid(name) && !str_starts(name, "__");
}

/* Backslash and newline are escaped everywhere, the quote in label values only. Bad UTF-8 is replaced: one
 * such byte would make the gateway refuse the whole body. */
static void append_escaped(struct str *out, const char *text, bool in_quotes)
{
    size_t left = strlen(text);
    while (left) {
        uint32_t c;
        char utf8[4];
        size_t n = str_utf8_next(text, left, &c);
        if (c == '\\')
            str_append(out, "\\\\");
        else if (c == '\n')
            str_append(out, "\\n");
        else if (c == '"' && in_quotes)
            str_append(out, "\\\"");
        else
            str_append_n(out, utf8, str_utf8_put(c, utf8));
        text += n;
        left -= n;
    }
}

void exposition_family(struct exposition *e, const char *name, const char *type, const char *help)
{
    if (e->bad.code) return;
    char line[sizeof e->family + 16];
    if (!name_is_valid(name) || strlen(name) >= sizeof e->family) {
        err_set(&e->bad, ERR_INTERNAL, "'%s' is no metric name", name);
        return;
    }
    if (strcmp(type, "gauge") && strcmp(type, "counter")) {
        err_set(&e->bad, ERR_INTERNAL, "metric '%s': want type gauge or counter, got '%s'", name, type);
        return;
    }
    snprintf(line, sizeof line, "\n# TYPE %s ", name);
    if (e->text.len && strstr(e->text.data, line)) {
        err_set(&e->bad, ERR_INTERNAL, "metric '%s' is opened twice: its samples must stand together", name);
        return;
    }
    snprintf(e->family, sizeof e->family, "%s", name);
    str_printf(&e->text, "# HELP %s ", name);
    append_escaped(&e->text, help, false);
    str_printf(&e->text, "\n# TYPE %s %s\n", name, type);
}

static void append_value(struct str *out, double value)
{
    char number[32];
    if (isinf(value))
        str_append(out, value > 0 ? "+Inf" : "-Inf");
    else
        str_append(out, str_from_double(value, number, sizeof number));
}

void exposition_sample(struct exposition *e, const struct label *labels, int n, double value)
{
    if (e->bad.code || isnan(value)) return;
    if (!*e->family) {
        err_set(&e->bad, ERR_INTERNAL, "a sample before any metric was opened");
        return;
    }
    struct str line = { 0 };
    str_printf(&line, "\n%s", e->family);
    for (int i = 0; i < n; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++) twice |= !strcmp(labels[k].name, labels[i].name);
        if (!label_is_valid(labels[i].name) || twice)
            err_set(&e->bad, ERR_INTERNAL, "metric '%s': label '%s' is %s", e->family, labels[i].name,
                    twice ? "there twice" : "no label name");
        str_printf(&line, "%s%s=\"", i ? "," : "{", labels[i].name);
        append_escaped(&line, labels[i].value ? labels[i].value : "", true);
        str_append(&line, "\"");
    }
    str_append(&line, n > 0 ? "} " : " ");
    if (e->text.len && strstr(e->text.data, str_text(&line)))
        err_set(&e->bad, ERR_INTERNAL, "metric '%s': two samples with the same labels", e->family);
    if (!e->bad.code) {
        str_append(&e->text, str_text(&line) + 1); /* the text before ends in a newline already */
        append_value(&e->text, value);
        str_append(&e->text, "\n");
    }
    if (line.failed || e->text.failed) err_set(&e->bad, ERR_NOMEM, "out of memory writing metrics");
    str_free(&line);
}

void exposition_free(struct exposition *e)
{
    str_free(&e->text);
    *e = (struct exposition){ 0 };
}
