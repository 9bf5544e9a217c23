/* tui/form.c - editing, and the checks behind every field. */
#include "tui/form.h"
#include "db/db.h"
#include "tui/keys.h"
#include "tui/shell.h"

#include <string.h>
#include <unistd.h>

static enum err_code check_config(const char *text, struct err *why)
{
    struct config c;
    if (!*text)
        return err_set(why, ERR_USAGE,
                       "empty: want a config line such as q8_0,threads=2 (\"default\" for none)");
    return config_parse(&c, !strcmp(text, "default") ? "" : text, why);
}

static enum err_code check_workload(const char *text, struct err *why)
{
    struct workload w;
    return workload_parse(&w, text, why);
}

static enum err_code check_url(const char *text, struct err *why)
{
    if ((str_starts(text, "http://") && text[7]) || (str_starts(text, "https://") && text[8])) return ERR_OK;
    return err_set(why, ERR_USAGE, "want http://HOST:PORT or https://HOST:PORT of a Pushgateway");
}

static enum err_code check_file(const char *text, struct err *why)
{
    if (!*text) return err_set(why, ERR_USAGE, "empty: want the path of a GGUF file");
    if (access(text, R_OK)) return err_set(why, ERR_USAGE, "no readable file at %s", text);
    return ERR_OK;
}

static enum err_code check_command(const char *text, struct err *why)
{
    enum { WORDS = 64 };
    char line[FORM_TEXT], *argv[WORDS];
    int n;
    snprintf(line, sizeof line, "%s", text);
    enum err_code rc = words_split(line, argv, WORDS, &n, why);
    if (!rc && !n) rc = err_set(why, ERR_USAGE, "empty: want a command such as report ID --out run.html");
    return rc;
}

static enum err_code check_nothing(const char *text, struct err *why)
{
    (void)text;
    (void)why;
    return ERR_OK;
}

static enum err_code check_filter(const char *text, struct err *why)
{
    return db_filter_check(text, why);
}

const struct form_description FORMS[FORM_KIND_COUNT] = {
    [FORM_CLOSED] = { "", "", 0, { 0 }, { 0 } },
    [FORM_AB] = { "New A/B",
                  "start",
                  3,
                  { "arm A", "arm B", "workload" },
                  { check_config, check_config, check_workload } },
    [FORM_PUSH] = { "Push to a Prometheus Pushgateway", "push", 1, { "url" }, { check_url } },
    [FORM_MODEL] = { "Choose a model", "open", 1, { "file" }, { check_file } },
    [FORM_FILTER] = { "Filter the history", "filter", 1, { "contains" }, { check_filter } },
    [FORM_COMMAND] = { "Run a command", "run", 1, { "qdyno" }, { check_command } },
    [FORM_PALETTE] = { "Palette", "choose", 1, { "find" }, { check_nothing } },
};

static void field_check(struct form *f, int i)
{
    struct err why = { 0 };
    struct form_field *field = &f->field[i];
    field->error[0] = '\0';
    if (FORMS[f->kind].check[i](field->text, &why))
        snprintf(field->error, sizeof field->error, "%s", why.message);
}

void form_show(struct form *f, enum form_kind kind, const char *const texts[FORM_FIELDS])
{
    *f = (struct form){ .kind = kind };
    for (int i = 0; i < FORMS[kind].fields; i++) {
        struct form_field *field = &f->field[i];
        snprintf(field->text, sizeof field->text, "%s", texts && texts[i] ? texts[i] : "");
        field->cursor = (int)strlen(field->text);
        field_check(f, i);
    }
}

void form_hide(struct form *f)
{
    f->kind = FORM_CLOSED;
}

/* Bytes of the character that ends at / starts at the cursor. */
static int previous_bytes(const struct form_field *field)
{
    int n = 0;
    while (field->cursor - n > 0) {
        n++;
        if (((unsigned char)field->text[field->cursor - n] & 0xc0) != 0x80) break;
    }
    return n;
}

static int next_bytes(const struct form_field *field)
{
    uint32_t code;
    const char *at = field->text + field->cursor;
    return (int)str_utf8_next(at, strlen(at), &code);
}

static void field_erase(struct form_field *field, int from, int n)
{
    memmove(field->text + from, field->text + from + n, strlen(field->text + from + n) + 1);
    field->cursor = from;
}

static void field_insert(struct form_field *field, uint32_t code)
{
    char utf8[4];
    size_t n = str_utf8_put(code, utf8), len = strlen(field->text), at = (size_t)field->cursor;
    if (len + n >= sizeof field->text) return;
    memmove(field->text + at + n, field->text + at, len - at + 1);
    memcpy(field->text + at, utf8, n);
    field->cursor += (int)n;
}

/* Back to the start of the word: Ctrl-W of every shell. */
static int word_bytes(const struct form_field *field)
{
    int at = field->cursor;
    while (at > 0 && strchr(" ,", field->text[at - 1])) at--;
    while (at > 0 && !strchr(" ,", field->text[at - 1])) at--;
    return field->cursor - at;
}

static void field_key(struct form_field *field, int key)
{
    int n;
    switch (key) {
    case UI_KEY_LEFT: field->cursor -= previous_bytes(field); break;
    case UI_KEY_RIGHT: field->cursor += next_bytes(field); break;
    case UI_KEY_HOME:
    case UI_CTRL('a'): field->cursor = 0; break;
    case UI_KEY_END:
    case UI_CTRL('e'): field->cursor = (int)strlen(field->text); break;
    case UI_KEY_BACKSPACE:
    case 0x7f:
    case 0x08:
        n = previous_bytes(field);
        field_erase(field, field->cursor - n, n);
        break;
    case UI_KEY_DELETE:
    case UI_CTRL('d'): field_erase(field, field->cursor, next_bytes(field)); break;
    case UI_CTRL('u'): field_erase(field, 0, field->cursor); break;
    case UI_CTRL('k'): field->text[field->cursor] = '\0'; break;
    case UI_CTRL('w'):
        n = word_bytes(field);
        field_erase(field, field->cursor - n, n);
        break;
    default:
        if (key >= 0x20 && key < UI_KEY_UP) field_insert(field, (uint32_t)key);
    }
}

static enum form_event form_accept(struct form *f)
{
    for (int i = 0; i < FORMS[f->kind].fields; i++) {
        field_check(f, i);
        if (!f->field[i].error[0]) continue;
        f->focus = i;
        f->tried = true;
        return FORM_EDITED;
    }
    return FORM_ACCEPTED;
}

enum form_event form_key(struct form *f, int key)
{
    int fields = FORMS[f->kind].fields;
    if (f->kind == FORM_CLOSED || key == UI_KEY_ESC || key == UI_CTRL('c')) return FORM_LEFT;
    switch (key) {
    case '\r':
    case UI_KEY_ENTER: return form_accept(f);
    case UI_KEY_TAB:
    case UI_KEY_DOWN: f->focus = (f->focus + 1) % fields; break;
    case UI_KEY_BACKTAB:
    case UI_KEY_UP: f->focus = (f->focus + fields - 1) % fields; break;
    default: field_key(&f->field[f->focus], key); field_check(f, f->focus);
    }
    return FORM_EDITED;
}

static void knob_describe(const struct knob *k, char *buf, size_t size)
{
    if (k->kind == KNOB_INT) {
        snprintf(buf, size, "%s=%lld..%lld %s: %s (default %s)", k->key, (long long)k->min, (long long)k->max,
                 k->unit, k->help, k->otherwise);
    } else if (k->kind == KNOB_CHOICE && k->choices) {
        int n = snprintf(buf, size, "%s=", k->key);
        for (int i = 0; k->choices[i] && n < (int)size - 24; i++)
            n += snprintf(buf + n, size - (size_t)n, "%s%s", i ? "|" : "", k->choices[i]);
        if (n < (int)size) snprintf(buf + n, size - (size_t)n, ": %s", k->help);
    } else {
        snprintf(buf, size, "%s=TEXT: %s", k->key, k->help);
    }
}

/* The knob whose key is being typed: the key itself, or the first that begins so. */
static const struct knob *knob_at_cursor(const struct form_field *field)
{
    int from = field->cursor;
    while (from > 0 && !strchr(" ,", field->text[from - 1])) from--;
    size_t n = strcspn(field->text + from, "=, ");
    if (n == 0) return NULL;
    const struct knob *starts = NULL;
    for (int i = 0; i < KNOB_COUNT; i++) {
        if (strncmp(KNOBS[i].key, field->text + from, n)) continue;
        if (!KNOBS[i].key[n]) return &KNOBS[i];
        if (!starts) starts = &KNOBS[i];
    }
    return starts;
}

const char *form_hint(const struct form *f, char *buf, size_t size)
{
    buf[0] = '\0';
    if (f->kind == FORM_AB && f->focus == 2) {
        snprintf(buf, size, "pp512 (prefill), tg128 (decode), pp512+tg128@d4096, tg64@b16, eval:FILE");
    } else if (f->kind == FORM_AB) {
        const struct knob *k = knob_at_cursor(&f->field[f->focus]);
        if (k) {
            knob_describe(k, buf, size);
        } else {
            int n = snprintf(buf, size, "a recipe (f16 q8_0 q4_0) and keys:");
            for (int i = 0; i < KNOB_COUNT && n < (int)size - 24; i++)
                n += snprintf(buf + n, size - (size_t)n, " %s", KNOBS[i].key);
        }
    } else if (f->kind == FORM_FILTER) {
        snprintf(buf, size,
                 "q8_0: runs with it in configs, model, workload, kind or verdict; !q8_0: those without; "
                 "/q[48]_0/: a regular expression; !/.../: its opposite");
    } else if (f->kind == FORM_PUSH) {
        snprintf(buf, size, "for example http://127.0.0.1:9091");
    }
    return buf;
}
