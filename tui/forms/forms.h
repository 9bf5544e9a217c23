/* tui/forms/forms.h - what a person types: the key table, input forms, the palette, and suggestions for the
 * word under the cursor.
 *
 * Everything here is a pure function or a plain value: no file is read except by recipe_list_make(), which
 * takes an open model. Suggestions that need files, the database or the loader arrive in the structs below,
 * which background jobs fill (tui/dashboard/).
 *
 * Sections: keys, forms, the palette, data for suggestions, suggestions, shell words. */
#ifndef QDYNO_TUI_FORMS_H
#define QDYNO_TUI_FORMS_H

#include "advisor/advise/advise.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "engine/quant/quant.h"
#include "tui/forms/action_list.h"

/* ---------------------------------------------------------------- keys (keys.c) */

/* Everything a key can do. */
#define ACTION_NAME(name, ...) DO_##name,
enum action { DO_NOTHING, ACTION_LIST(ACTION_NAME, ACTION_NAME, ACTION_NAME, ACTION_NAME) ACTION_COUNT };
#undef ACTION_NAME

/* One row per action: the footer, the help and the palette are loops over this table. */
struct key_binding {
    enum action action;
    int key[3];          /* key codes (widgets.h); 0: unused */
    const char *name;    /* the key as printed: "b" */
    const char *label;   /* in the footer; NULL: only in the help */
    const char *brief;   /* the label in a narrow footer; NULL: same as label */
    const char *title;   /* in the palette; NULL: not listed (keys that only move) */
    const char *help;    /* one line */
    const char *command; /* an example of the equivalent command line; NULL: there is none */
};
extern const struct key_binding KEYS[];
extern const size_t KEY_COUNT;

const struct key_binding *key_find(int key);                 /* NULL: the key has no binding */
const struct key_binding *key_of_action(enum action action); /* NULL only for DO_NOTHING */

/* ---------------------------------------------------------------- forms (form.c, form_check.c) */

/* A form is a few input lines at the bottom of the screen. It is a pure state machine: keys go in, texts and
 * error messages come out. Fields are checked with the parsers that the command line uses, so a text that the
 * form accepts also runs. */
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
    FORM_MODEL_TEXT,
    FORM_REPORT,
    FORM_BASELINE,
    FORM_TUNE,
    FORM_WRITE,
    FORM_SETTING,
    FORM_LOAD,
    FORM_RESUME,
    FORM_KIND_COUNT
};
/* A field holds every config line. MODEL_PATH: of the path of a model, as in struct experiment_spec; a longer
 * one is refused. */
enum { FORM_FIELDS = 7, FORM_TEXT = CONFIG_LINE, MODEL_PATH = 512, FILTER_TEXT = 64 };
/* The fields of FORM_AB, of FORM_QUANTIZE. */
enum form_ab { AB_A, AB_B, AB_WORKLOAD, AB_MORE, AB_QUALITY, AB_MARGIN, AB_BUDGET };
enum { QUANTIZE_RECIPE, QUANTIZE_CALIBRATION, QUANTIZE_OUT };

/* The type of a field's value: decides how it is checked and what is suggested. */
enum form_ask {
    ASK_TEXT,
    ASK_CONFIG, /* a config line */
    ASK_MORE,   /* a config line, may be empty */
    ASK_RECIPE, /* the recipe part of a config line: method, format, parameters */
    ASK_WORKLOAD,
    ASK_MODEL,  /* a model file */
    ASK_FILE,   /* a text or calibration file, may be empty */
    ASK_SCORED, /* a text to measure quality on; empty: the bundled one */
    ASK_OUT,    /* a GGUF file to write */
    ASK_REPORT,
    ASK_BUDGET,
    ASK_MARGIN,
    ASK_QUALITY, /* "no", "yes" (the model's text), or a text file */
    ASK_GOAL,
    ASK_LIMIT, /* limits that the result of a search has to keep; may be empty */
    ASK_URL,
    ASK_FILTER,
    ASK_NAME,
    ASK_COMMAND,
    ASK_PROMPT,
    ASK_THEN, /* what to do with a changed setting: "use" or "compare" */
    ASK_KINDS
};

struct form_field {
    char text[FORM_TEXT]; /* UTF-8 */
    int cursor;           /* byte offset */
    char error[512];      /* "" when the text is valid */
    bool touched;         /* edited by the person: no longer derived from other fields */
    bool kept;            /* the cursor was moved in it: typing does not replace it */
    bool cut;             /* it had no room for all of its text: invalid until it is edited */
};

struct form {
    enum form_kind kind;
    int focus; /* the field that is typed into */
    struct form_field field[FORM_FIELDS];
    int chosen;    /* index of the selected suggestion, -1: none */
    int64_t about; /* id of the run the form is about, 0: none */
    bool tried;    /* Enter was pressed while a field was invalid: show errors of empty fields, too */
    bool warned;   /* the budget was said to be too short: the next Enter starts anyway */
};

struct form_description {
    enum action action; /* whose command equals the form; DO_NOTHING: none does */
    const char *title;
    const char *go; /* what Enter does: "start" */
    int fields;
    struct {
        const char *label;
        enum form_ask ask;
    } field[FORM_FIELDS];
};
extern const struct form_description FORMS[FORM_KIND_COUNT];

/* The usual text of a field, "" none: the budget and the margin are those of an experiment. Returns the text.
 */
enum { FORM_USUAL = 24 };
const char *form_usual(enum form_ask ask, char buf[FORM_USUAL]);

/* Open a form with initial texts; a NULL entry leaves its default, texts NULL leaves all of them. */
void form_show(struct form *f, enum form_kind kind, const char *const texts[FORM_FIELDS]);
void form_hide(struct form *f);

enum form_event { FORM_EDITED, FORM_ACCEPTED, FORM_LEFT };
/* Process one key. FORM_ACCEPTED only when every field is valid; the form stays open until form_hide(). */
enum form_event form_key(struct form *f, int key);

enum form_ask form_asks(const struct form *f); /* the type of the field that is typed into */
/* A proposed text is selected until it is edited or the cursor is moved in it: the first letter typed
 * replaces it. Returns the byte offset from which it is selected (a setting: its value), or -1: nothing is.
 */
int form_selected_from(const struct form *f, int field);
/* Replace the text of a field as if it had been its initial text, and check it. */
void form_put(struct form *f, int field, const char *text);
/* Replace bytes [from, to) of the field that is typed into, move the cursor behind `text`, check it. */
void form_replace(struct form *f, int from, int to, const char *text);

/* Check a text. ERR_USAGE, or the error of the parser for this type, with what was expected. */
enum err_code form_check(enum form_ask ask, const char *text, struct err *why);

/* Whether the text of an ASK_QUALITY field asks for no quality measurement. */
bool form_says_no(const char *text);

/* Whether the answer to ASK_THEN is an A/B of the setting; otherwise it is used from now on. */
bool form_compares(const struct form *f);

/* Expand "~/x" to a whole path; other texts are copied. Returns buf. */
const char *form_path(const char *text, char *buf, size_t size);

/* One line of help for the word under the cursor: a config key with its range, the workload grammar ...
 * Returns buf. */
const char *form_hint(const struct form *f, char *buf, size_t size);

/* ---------------------------------------------------------------- the palette (palette.c) */

/* Fuzzy search over three tables: KEYS, KNOBS (keys of a config line) and COMMANDS (the command line's
 * table). */

struct palette_command { /* a row of COMMANDS, borrowed */
    const char *name, *arguments, *help;
};

enum palette_kind { PALETTE_KEY, PALETTE_SETTING, PALETTE_COMMAND };
struct palette_entry {
    enum palette_kind kind;
    const char *name, *help;
    const struct key_binding *key;         /* PALETTE_KEY */
    const struct knob *knob;               /* PALETTE_SETTING */
    const struct palette_command *command; /* PALETTE_COMMAND */
    int score;
};

/* How well `text` abbreviates `name`: -1 when its letters do not all occur in order, otherwise higher for
 * letters at starts of words and next to each other. Case-insensitive; "" scores 0 for every name. */
int palette_score(const char *text, const char *name);

/* The entries that match, best first, at most `max`; equal scores keep the order of their tables. Returns the
 * count. */
int palette_find(const char *text, const struct palette_command *commands, int command_count,
                 struct palette_entry *out, int max);

/* ---------------------------------------------------------------- data for suggestions (recipe_list.c) */

enum {
    FOLDER_ENTRIES = 160,
    RECIPE_ROWS = 80,
    LINES_ESTIMATED = 96,
    BASELINES_KNOWN = 16,
};

enum file_kind {
    FILE_FOLDER,
    FILE_MODEL,       /* a GGUF file that can be run */
    FILE_CALIBRATION, /* a GGUF file of activation statistics */
    FILE_NO_MODEL,    /* named .gguf but cannot be used: `trouble` says why */
    FILE_OTHER
};

struct file_entry {
    char name[256]; /* in a folder: the file name; in the list of places: a whole path */
    enum file_kind kind;
    bool known;    /* its header was read, or there is none to read */
    int64_t bytes; /* all parts of a split file together; -1 unknown */
    char arch[24], format[16];
    int64_t params;
    int64_t needs_bytes; /* memory of a session with the default context, by the loader's plan; -1 unknown */
    char trouble[160];
    char note[48]; /* in the list of places: where the path comes from */
};

struct folder {
    char path[512]; /* ends in '/'; "": the list of places to start from */
    bool read;      /* the names are complete; file headers may still follow */
    char error[200];
    int count, left_out;
    struct file_entry entry[FOLDER_ENTRIES]; /* folders first, then by name */
};

/* What one recipe would make of the model on screen. */
struct recipe_row {
    char name[40];
    const char *help;       /* static */
    bool is_method;         /* otherwise a format or a published mix */
    int64_t file_bytes;     /* size of the quantized file; -1 unknown */
    double bits;            /* per weight, over all tensors; NAN unknown */
    int fell_back;          /* tensors kept in another format because their rows do not fill whole blocks */
    char misfit[320];       /* what becomes of those, and which format fits; "" when there are none */
    char fits[16];          /* that format; "" none */
    bool identity;          /* the file already has this format: it can run but need not be made */
    bool needs_calibration; /* the method needs activation statistics of a text */
    char refusal[200];      /* why the file cannot be quantized this way; "" when it can */
};
struct recipe_list {
    int count;
    struct recipe_row row[RECIPE_ROWS];
};
/* Every recipe that a single word names, with sizes from the header of `g`; g NULL: the names alone. */
void recipe_list_make(struct recipe_list *out, const struct gguf *g);
/* The row of a recipe; NULL: it is not one word, or the list was not read yet. */
const struct recipe_row *recipe_row_find(const struct recipe_list *r, const char *name);
/* What to know before this recipe is used: its misfit; "": nothing, or not known. */
const char *recipe_warning(const struct recipe_list *r, const char *name);
/* Why this recipe makes no new file; "" when it does, or when that is unknown before trying. */
const char *recipe_refusal(const struct recipe_list *r, const char *name);

/* The baselines stored in the database. */
struct baseline_list {
    int count;
    struct {
        char name[64], about[160]; /* "q8_0 of stories15M, tg64" */
    } row[BASELINES_KNOWN];
};

/* Memory and speed estimates for the config line in a form, and memory for each variant of it that a
 * suggestion would make. */
struct line_estimates {
    char text[FORM_TEXT]; /* the field's text that was estimated; "" none yet */
    int cursor;           /* its cursor: decides which word the variants replace */
    int64_t total_bytes;  /* memory of the line; -1: unknown or impossible */
    double decode_tok_s, low,
        high;          /* predicted decode speed and its interval; NAN while limits are unknown */
    char refusal[200]; /* why the line cannot be loaded; "" when it can */
    int count;
    struct {
        char text[128]; /* the word that the suggestion would put there */
        int64_t total_bytes;
        char refusal[200];
    } variant[LINES_ESTIMATED];
};

/* What the command would refuse about the texts of a form: a job finds out with the command's own checks. */
struct form_checked {
    uint64_t of; /* form_hash() of the texts that were checked; 0: none yet */
    char refusal[FORM_FIELDS][400];
};
/* Of kind, texts and model: equal only for equal texts; never 0. */
uint64_t form_hash(const struct form *f, const char *model);

/* ---------------------------------------------------------------- suggestions (suggestions.c) */

/* Completions for the word under the cursor: keys, values, recipes, workloads, files or commands, each with
 * one line of explanation, its memory, and why it is impossible here if it is. */

enum { SUGGESTIONS = 160 };
struct suggestion {
    char text[264];                /* replaces the word */
    char about[200];               /* one line */
    char refusal[200];             /* why it cannot be used; "" when it can */
    bool more;                     /* more text has to follow: "threads=", a folder */
    int64_t bytes;                 /* memory of the line with it, or size of the file it makes; -1: unknown */
    const struct file_entry *file; /* for files: borrowed from the folder */
};
struct suggestions {
    int from, to; /* byte range of the field's text that a suggestion replaces */
    bool files;   /* all suggestions are files */
    int n;
    struct suggestion list[SUGGESTIONS];
};

/* What suggestions are made from; all pointers are borrowed and never NULL. */
struct suggestion_source {
    const struct form *form;
    const struct palette_command *commands;
    int command_count;
    int cores;         /* of this machine; 0 unknown */
    int64_t ctx_train; /* context length the model was trained for, in tokens; 0 unknown */
    const struct recipe_list *recipes;
    const struct folder *folder;
    const struct baseline_list *baselines;
    const struct line_estimates *estimates;
};

/* A word to choose ("": the usual text of its field), and what it means; the last row of a list has text
 * NULL. */
struct word_row {
    const char *text, *about;
};
extern const struct word_row WORKLOADS[]; /* common ones */

/* For the field that is typed into; a closed form has no suggestions. */
void suggestions_make(struct suggestions *out, const struct suggestion_source *source);

/* The folder whose files the focused field would suggest, in the form of folder.path. False: it suggests
 * none. */
bool suggestions_folder(const struct form *f, char *path, size_t size);

/* ---------------------------------------------------------------- words of a command (words.c) */

/* The argument vector of a command: words of any number and length. What is started and what is shown are the
 * same words, so no buffer cuts them and nothing splits them again. Their texts belong to the arena: a copy
 * of the struct is a copy of the command, and ends with the arena. */
struct words {
    struct arena *arena; /* set before the first word */
    const char **argv;   /* ends with NULL; argv[0] is "qdyno"; NULL: there is no command */
    int n, room;
    int second;  /* the word with which a second command begins, for people only; 0: there is one command */
    bool failed; /* memory ran out: incomplete */
};

void words_put(struct words *w, const char *word);
void words_printf(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* one word */
/* One word: `before`, then a path with ~ expanded. */
void words_put_path(struct words *w, const char *before, const char *path);
/* Several words. */
#define WORDS_PUT(w, ...)                                                                                    \
    words_put_list(w, (const char *const[]){ __VA_ARGS__ }, COUNT_OF(((const char *const[]){ __VA_ARGS__ })))
void words_put_list(struct words *w, const char *const word[], size_t n);

const char *words_at(const struct words *w, int i);               /* "" behind the last one */
bool words_have(const struct words *w, const char *word);         /* behind the program's name */
const char *words_value(const struct words *w, const char *flag); /* the word after `flag`; NULL: none */
const char *words_made(const struct words *w);                    /* the file that it writes; NULL: none */
bool words_run(const struct words *w, const char *command);       /* is it this command of qdyno? */

/* Append the words from `from` on as a line that a shell reads back as the same words. */
void words_print(struct str *out, const struct words *w, int from);
/* The same into a buffer, for a row of the screen: cut where it is full. Returns buf. */
const char *words_shown(const struct words *w, int from, char *buf, size_t size);

/* Split a line that a person typed into words, and append them, as a shell does: blanks separate words,
 * 'single' and "double" quotes group, a backslash quotes the next character. Variables, patterns and pipes
 * are not interpreted. ERR_USAGE: an unclosed quote. */
enum err_code words_put_line(struct words *out, const char *line, struct err *why);
/* The same in place, for a fixed number of words. argv[*n] is NULL. ERR_USAGE: also for more than max - 1
 * words. */
enum err_code shell_words_split(char *line, char **argv, int max, int *n, struct err *why);

#endif
