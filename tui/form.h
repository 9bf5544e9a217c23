/* tui/form.h - a few lines of input at the bottom of the screen, checked while they are typed.
 *
 * A pure state machine: keys in, text and errors out. Checks are the same parsers the command line uses, so
 * what the form accepts runs. */
#ifndef QDYNO_TUI_FORM_H
#define QDYNO_TUI_FORM_H

#include "engine/engine.h"

enum form_kind {
    FORM_CLOSED,
    FORM_AB,
    FORM_PUSH,
    FORM_MODEL,
    FORM_FILTER,
    FORM_PALETTE,
    FORM_COMMAND,
    FORM_KIND_COUNT
};
enum { FORM_FIELDS = 3, FORM_TEXT = 512 };

struct form_field {
    char text[FORM_TEXT]; /* UTF-8 */
    int cursor;           /* bytes */
    char error[512];      /* "" when the text is good */
};

struct form {
    enum form_kind kind;
    int focus;
    struct form_field field[FORM_FIELDS];
    bool tried; /* Enter was pressed on a bad form: say why even for empty fields */
};

/* What a kind of form asks for. */
struct form_description {
    const char *title;
    const char *go; /* what Enter does: "start" */
    int fields;
    const char *label[FORM_FIELDS];
    enum err_code (*check[FORM_FIELDS])(const char *text, struct err *why);
};
extern const struct form_description FORMS[FORM_KIND_COUNT];

/* Open with prefilled texts (NULL: empty). */
void form_show(struct form *f, enum form_kind kind, const char *const texts[FORM_FIELDS]);

enum form_event { FORM_EDITED, FORM_ACCEPTED, FORM_LEFT };
/* Feed one key (code point or UI_KEY_*). ACCEPTED only when every field is good; the form stays open until
 * form_hide. */
enum form_event form_key(struct form *f, int key);
void form_hide(struct form *f);

/* What the word under the cursor could be: a knob with its range, the grammar of a workload ... Returns buf.
 */
const char *form_hint(const struct form *f, char *buf, size_t size);

#endif
