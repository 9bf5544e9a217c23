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
    FORM_QUANTIZE,
    FORM_CALIBRATE,
    FORM_REPORT,
    FORM_BASELINE,
    FORM_TUNE,
    FORM_WRITE,
    FORM_KIND_COUNT
};
enum { FORM_FIELDS = 7, FORM_TEXT = 512 };
enum form_ab { AB_A, AB_B, AB_WORKLOAD, AB_MORE, AB_QUALITY, AB_MARGIN, AB_BUDGET }; /* fields of FORM_AB */

/* What a field is about: what may stand in it (its check) and what is offered for it (choices.h). */
enum form_ask {
    ASK_TEXT,
    ASK_CONFIG, /* a whole config line */
    ASK_MORE,   /* one more, or nothing */
    ASK_RECIPE, /* the part of one that chooses numbers */
    ASK_WORKLOAD,
    ASK_MODEL, /* a file of one */
    ASK_FILE,  /* a text, or what was learned from one; may be empty */
    ASK_OUT,   /* a GGUF file that is not there yet */
    ASK_REPORT,
    ASK_BUDGET,
    ASK_MARGIN,
    ASK_QUALITY,
    ASK_GOAL,
    ASK_URL,
    ASK_FILTER,
    ASK_NAME,
    ASK_COMMAND,
    ASK_PROMPT,
    ASK_KINDS
};

struct form_field {
    char text[FORM_TEXT]; /* UTF-8 */
    int cursor;           /* bytes */
    char error[512];      /* "" when the text is good */
    bool touched;         /* by the person: no longer follows the other fields */
};

struct form {
    enum form_kind kind;
    int focus;
    struct form_field field[FORM_FIELDS];
    int choice;    /* the offer that is chosen, -1: none */
    int64_t about; /* run that it is about, 0: none */
    bool tried;    /* Enter was pressed on a bad form: say why even for empty fields */
};

/* What a kind of form asks for. */
struct form_description {
    const char *title;
    const char *go; /* what Enter does: "start" */
    int fields;
    struct {
        const char *label;
        enum form_ask ask;
    } field[FORM_FIELDS];
};
extern const struct form_description FORMS[FORM_KIND_COUNT];

/* Open with prefilled texts (NULL: empty). */
void form_show(struct form *f, enum form_kind kind, const char *const texts[FORM_FIELDS]);

enum form_event { FORM_EDITED, FORM_ACCEPTED, FORM_LEFT };
/* Feed one key (code point or UI_KEY_*). ACCEPTED only when every field is good; the form stays open until
 * form_hide. */
enum form_event form_key(struct form *f, int key);
void form_hide(struct form *f);

enum form_ask form_asks(const struct form *f); /* the field that is typed into */
/* Another text, as if it had been there from the first; checked. */
void form_put(struct form *f, int field, const char *text);
/* Bytes [from, to) of the field that is typed into become `text`, the cursor stands behind it; checked. */
void form_replace(struct form *f, int from, int to, const char *text);

/* What is wrong with a text, or what may be missing from it. ERR_USAGE and those of what parses it. */
enum err_code form_check(enum form_ask ask, const char *text, struct err *why);

/* Is nothing asked for? ASK_QUALITY takes "no", "yes" (the bundled text), or a text file. */
bool form_says_no(const char *text);

/* "~/x" as a whole path; anything else as it is. Returns buf. */
const char *form_path(const char *text, char *buf, size_t size);

/* What the word under the cursor could be: a knob with its range, the grammar of a workload ... Returns buf.
 */
const char *form_hint(const struct form *f, char *buf, size_t size);

#endif
