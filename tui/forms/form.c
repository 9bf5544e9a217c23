/* tui/forms/form.c - the table of forms, editing their fields, and the hint for a field. */
#include "tui/forms/forms.h"

#include <string.h>

#include "advisor/experiment/experiment.h"
#include "tui/widgets/widgets.h"

/* To add a form: a kind in enum form_kind (forms.h), a row here, and what accepting it does in
 * action_form_accept() (tui/dashboard/actions_form.c). To add a field: a row of its form; a new kind of value
 * also needs a row in CHECKS (form_check.c), and may have a hint below and suggestions in suggestions.c. */
/* clang-format off */
const struct form_description FORMS[FORM_KIND_COUNT] = {
    /* kind          the action whose command equals it, title, what Enter does, fields */
    [FORM_CLOSED] = { DO_NOTHING, "", "", 0, { { "", ASK_TEXT } } },
    [FORM_AB] = { DO_NEW_AB, "New A/B", "start", 7,
        { { "arm A", ASK_CONFIG }, { "arm B", ASK_CONFIG }, { "workload", ASK_WORKLOAD }, { "arm C", ASK_MORE },
          { "quality", ASK_QUALITY }, { "margin", ASK_MARGIN }, { "budget", ASK_BUDGET } } },
    [FORM_PUSH] = { DO_PUSH, "Push to a Prometheus Pushgateway", "push", 1, { { "url", ASK_URL } } },
    [FORM_MODEL] = { DO_MODEL, "Choose a model", "open", 1, { { "file", ASK_MODEL } } },
    [FORM_FILTER] = { DO_FILTER, "Filter the history", "filter", 1, { { "contains", ASK_FILTER } } },
    [FORM_COMMAND] = { DO_NOTHING, "Run a command", "run", 1, { { "qdyno", ASK_COMMAND } } },
    [FORM_PALETTE] = { DO_NOTHING, "Palette", "choose", 1, { { "find", ASK_TEXT } } },
    [FORM_QUANTIZE] = { DO_QUANTIZE, "Write a quantized file", "start", 3,
        { { "recipe", ASK_RECIPE }, { "calib", ASK_FILE }, { "file", ASK_OUT } } },
    [FORM_CALIBRATE] = { DO_CALIBRATE, "Collect activation statistics", "start", 2,
        { { "text", ASK_FILE }, { "file", ASK_OUT } } },
    [FORM_MODEL_TEXT] = { DO_MODEL_TEXT, "Text for this model's quality", "measure", 1, { { "text", ASK_SCORED } } },
    [FORM_REPORT] = { DO_REPORT, "Write a report", "write", 1, { { "file", ASK_REPORT } } },
    [FORM_BASELINE] = { DO_BASELINE, "Store the winner as a baseline", "store", 1, { { "name", ASK_NAME } } },
    [FORM_TUNE] = { DO_TUNE, "Search for the best configuration", "start", 3,
        { { "goal", ASK_GOAL }, { "budget", ASK_BUDGET }, { "limit", ASK_LIMIT } } },
    [FORM_WRITE] = { DO_WRITE, "Continue a prompt side by side", "start", 3,
        { { "prompt", ASK_PROMPT }, { "arm A", ASK_CONFIG }, { "arm B", ASK_CONFIG } } },
    [FORM_LOAD] = { DO_NOTHING, "Change the running load or server", "change", 1, { { "setting", ASK_CONFIG } } },
    [FORM_RESUME] = { DO_RESUME, "Continue the A/B that is undecided; its blocks count", "continue", 1,
        { { "budget", ASK_BUDGET } } },
    [FORM_SETTING] = { DO_APPLY, "Change a setting", "do it", 2,
        { { "setting", ASK_CONFIG }, { "then", ASK_THEN } } },
};
/* clang-format on */

enum form_ask form_asks(const struct form *f)
{
    return FORMS[f->kind].field[f->focus].ask;
}

static void field_check(struct form *f, int i)
{
    struct err why = { 0 };
    struct form_field *field = &f->field[i];
    field->error[0] = '\0';
    if (field->cut)
        snprintf(field->error, sizeof field->error,
                 "too long: this field holds %d bytes, and a part of the text would mean something else",
                 (int)sizeof field->text - 1);
    else if (form_check(FORMS[f->kind].field[i].ask, field->text, &why))
        snprintf(field->error, sizeof field->error, "%s", why.message);
}

const char *form_usual(enum form_ask ask, char buf[FORM_USUAL])
{
    buf[0] = '\0';
    switch (ask) {
    case ASK_QUALITY: return "no";
    case ASK_GOAL: return goal_name(GOAL_BALANCED);
    case ASK_THEN: return "use";
    case ASK_MARGIN: snprintf(buf, FORM_USUAL, "%g%%", 100 * EXPERIMENT_MARGIN); break;
    case ASK_BUDGET: snprintf(buf, FORM_USUAL, "%gm", EXPERIMENT_BUDGET_S / 60.0); break;
    default: break;
    }
    return buf;
}

void form_show(struct form *f, enum form_kind kind, const char *const texts[FORM_FIELDS])
{
    *f = (struct form){ .kind = kind, .chosen = -1 };
    for (int i = 0; i < FORMS[kind].fields; i++) {
        struct form_field *field = &f->field[i];
        char usual[FORM_USUAL];
        field->cut = !str_put(field->text, sizeof field->text,
                              texts && texts[i] ? texts[i] : form_usual(FORMS[kind].field[i].ask, usual));
        field->cursor = (int)strlen(field->text);
        field_check(f, i);
    }
}

uint64_t form_hash(const struct form *f, const char *model)
{
    uint64_t h = hash_next((uint64_t)f->kind + 1) ^ hash_number(model, strlen(model));
    h = hash_next(h ^ (uint64_t)f->about); /* the same budget gives another number of blocks in another run */
    for (int i = 0; i < FORMS[f->kind].fields; i++)
        h = hash_next(h ^ hash_number(f->field[i].text, strlen(f->field[i].text)));
    return h ? h : 1;
}

void form_hide(struct form *f)
{
    f->kind = FORM_CLOSED;
}

void form_put(struct form *f, int i, const char *text)
{
    struct form_field *field = &f->field[i];
    field->cut = !str_put(field->text, sizeof field->text, text);
    field->cursor = (int)strlen(field->text);
    field_check(f, i);
}

void form_replace(struct form *f, int from, int to, const char *text)
{
    struct form_field *field = &f->field[f->focus];
    char all[FORM_TEXT];
    const int n = snprintf(all, sizeof all, "%.*s%s%s", from, field->text, text, field->text + to);
    field->cut = n >= (int)sizeof all;
    if (field->cut) {
        field_check(f, f->focus);
        return;
    }
    memcpy(field->text, all, sizeof all);
    field->cursor = from + (int)strlen(text);
    field->touched = true;
    field_check(f, f->focus);
}

/* Bytes of the UTF-8 character that ends at the cursor. */
static int previous_bytes(const struct form_field *field)
{
    int n = 0;
    while (field->cursor - n > 0) {
        n++;
        if (((unsigned char)field->text[field->cursor - n] & 0xc0) != 0x80) break;
    }
    return n;
}

/* Bytes of the UTF-8 character that starts at the cursor. */
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
    if (len + n >= sizeof field->text) {
        field->cut = true;
        return;
    }
    memmove(field->text + at + n, field->text + at, len - at + 1);
    memcpy(field->text + at, utf8, n);
    field->cursor += (int)n;
}

/* Bytes back to the start of the word or path component, as Ctrl-W in a shell deletes them. */
static int word_bytes(const struct form_field *field)
{
    int at = field->cursor;
    while (at > 0 && strchr(" ,/", field->text[at - 1])) at--;
    while (at > 0 && !strchr(" ,/", field->text[at - 1])) at--;
    return field->cursor - at;
}

/* A text that ends so waits for the rest: "threads=", a folder, the name of a command. A path is searched by
 * the letters that follow it. */
int form_selected_from(const struct form *f, int i)
{
    const struct form_field *field = &f->field[i];
    const size_t n = strlen(field->text);
    if (f->kind == FORM_MODEL || field->touched || field->kept || !n) return -1;
    if (strchr("=/, ", field->text[n - 1])) return -1;
    const char *value = f->kind == FORM_SETTING ? strchr(field->text, '=') : NULL;
    return value ? (int)(value + 1 - field->text) : 0;
}

static bool key_is_letter(int key)
{
    return key >= 0x20 && key < UI_KEY_UP && key != 0x7f;
}

/* What a key does to the selected text [from, end): a letter replaces it and Backspace deletes it. A comma
 * cannot begin a config line, so it continues the one that is there. True: nothing is left for the key to do.
 */
static bool selection_key(struct form *f, int key, int from)
{
    struct form_field *field = &f->field[f->focus];
    const enum form_ask ask = form_asks(f);
    const bool continues = (key == ',' || key == ';') &&
                           (ask == ASK_CONFIG || ask == ASK_MORE || ask == ASK_RECIPE);
    const bool deletes = key == UI_KEY_BACKSPACE || key == 0x7f || key == 0x08 || key == UI_KEY_DELETE;
    if ((key_is_letter(key) && !continues) || deletes)
        field_erase(field, from, (int)strlen(field->text) - from);
    field->kept = true;
    return deletes;
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
        if (key_is_letter(key)) field_insert(field, (uint32_t)key);
    }
}

/* A selected suggestion belongs to the old text, so changing the text deselects it. */
static void field_edit(struct form *f, int key)
{
    struct form_field *field = &f->field[f->focus];
    const int selected = form_selected_from(f, f->focus);
    char before[FORM_TEXT];
    memcpy(before, field->text, sizeof before);
    if (selected < 0 || !selection_key(f, key, selected)) field_key(field, key);
    if (strlen(field->text) < strlen(before) || (!*before && *field->text)) field->cut = false;
    field_check(f, f->focus);
    if (!strcmp(before, field->text)) return;
    field->touched = true;
    f->chosen = -1;
}

static void focus_move(struct form *f, int by)
{
    const int fields = FORMS[f->kind].fields;
    f->focus = (f->focus + by + fields) % fields;
    f->chosen = -1;
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
    if (f->kind == FORM_CLOSED || key == UI_KEY_ESC || key == UI_CTRL('c')) return FORM_LEFT;
    switch (key) {
    case '\r':
    case UI_KEY_ENTER: return form_accept(f);
    case UI_KEY_TAB:
    case UI_KEY_DOWN: focus_move(f, 1); break;
    case UI_KEY_BACKTAB:
    case UI_KEY_UP: focus_move(f, -1); break;
    default: field_edit(f, key);
    }
    return FORM_EDITED;
}

static void knob_describe(const struct knob *k, char *buf, size_t size)
{
    if (k->kind == VALUE_INT) {
        snprintf(buf, size, "%s=%lld..%lld %s: %s (default %s)", k->key, (long long)k->min, (long long)k->max,
                 k->unit, k->help, k->otherwise);
    } else if (k->kind == VALUE_CHOICE && k->choices) {
        enum {
            HELP_ROOM = 24
        }; /* a long list of choices ends early, so that the help begins in the buffer */
        int n = snprintf(buf, size, "%s=", k->key);
        for (int i = 0; k->choices[i] && n < (int)size - HELP_ROOM; i++)
            n += snprintf(buf + n, size - (size_t)n, "%s%s", i ? "|" : "", k->choices[i]);
        if (n < (int)size) snprintf(buf + n, size - (size_t)n, ": %s", k->help);
    } else {
        snprintf(buf, size, "%s=TEXT: %s", k->key, k->help);
    }
}

/* The config key at the cursor: an exact match, else the first key that begins with the letters typed. */
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
    static const char *const HINTS[ASK_KINDS] = {
        [ASK_LIMIT] =
            "limits such as memory=8G or kld=0.05 (mean KL divergence); empty: what fits into memory, kld=0.02",
        [ASK_WORKLOAD] = "pp512 (prefill), tg128 (decode), pp512+tg128@d4096, tg64@b16, eval:FILE",
        [ASK_MORE] = "a third configuration, also compared with A; empty: two arms",
        [ASK_QUALITY] =
            "measure KL divergence of every arm from A after the blocks: no, yes (this model's text), or a text file",
        [ASK_MARGIN] = "the smallest difference that matters: arms closer than this count as equivalent",
        [ASK_BUDGET] = "no new measurement starts after this time; finished blocks are kept",
        [ASK_FILTER] =
            "q8_0: runs with this text in config, model, workload, kind, verdict or state; !q8_0: runs without it; "
            "/q[48]_0/: a regular expression; !/.../: runs that do not match",
        [ASK_URL] = "for example http://127.0.0.1:9091",
        [ASK_FILE] =
            "a text similar to what the model will read; empty: the bundled text if the method needs one",
        [ASK_SCORED] =
            "a text file, or empty for the bundled text: losses on other texts are then no longer ranked",
        [ASK_OUT] = "the file to write",
        [ASK_REPORT] = "FILE.html (page), FILE.md (text with plots in characters) or FILE.svg (picture)",
        [ASK_NAME] = "a name; qdyno baseline check NAME later measures it again together with a challenger",
        [ASK_GOAL] = "what to optimize: balanced, speed, quality, memory or energy",
        [ASK_THEN] = "use: runs of this model use it from now on (u undoes); compare: an A/B of it first",
        [ASK_MODEL] = "type to search; an empty line lists places where models were found before",
    };
    const enum form_ask ask = form_asks(f);
    snprintf(buf, size, "%s", HINTS[ask] ? HINTS[ask] : "");
    if (ask != ASK_CONFIG && ask != ASK_RECIPE && ask != ASK_MORE) return buf;
    const struct knob *k = knob_at_cursor(&f->field[f->focus]);
    if (ask == ASK_RECIPE && !k)
        snprintf(buf, size, "a method or format, with parameters; sizes are those of the file it writes");
    else if (k)
        knob_describe(k, buf, size);
    else if (!*buf)
        snprintf(buf, size, "a recipe (f16 q8_0 q4_K) and settings, separated by commas");
    return buf;
}
