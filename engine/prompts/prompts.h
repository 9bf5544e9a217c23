/* engine/prompts/prompts.h - the user's own prompts, from a file or a folder.
 *
 * Five forms are recognized by their content:
 *
 * - plain text: one text, from which prompts of any length are cut
 * - JSON lines: an object a line, with `prompt` (a text) or `messages` (a conversation)
 * - ShareGPT: a list, or lines, of objects with `conversations`; the first message of the user is the prompt,
 * and the answer that follows it gives the length of the answer
 * - OpenAI batch: lines of objects with `body`, which has `prompt` or `messages`
 * - a folder: one prompt for each of its files, in the order of their names
 *
 * JSON lines of an object may also be the elements of one list. The file is not trusted: its size, the number
 * of its prompts and the depth of its JSON have limits, and what does not fit is refused with the number of
 * the line. */
#ifndef QDYNO_ENGINE_PROMPTS_H
#define QDYNO_ENGINE_PROMPTS_H

#include "base/base.h"
#include "engine/text/text.h"

struct gguf;

enum prompt_form {
    PROMPTS_TEXT,
    PROMPTS_LINES,
    PROMPTS_SHAREGPT,
    PROMPTS_BATCH,
    PROMPTS_FOLDER,
    PROMPT_FORMS
};
extern const char *const PROMPT_FORM_NAMES[PROMPT_FORMS];

enum {
    PROMPTS_BYTES_MOST = 256 << 20, /* of a file, or of all files of a folder */
    PROMPTS_MOST = 100000,
    PROMPT_CLASSES = 32, /* prompts of further classes are in the last one, "other" */
    PROMPT_CLASS_NAME = 48
};

struct prompt {
    char *text; /* [n] UTF-8; NULL: a conversation */
    size_t n;
    json_t *messages; /* the conversation, without an answer at its end; NULL: a text */
    bool plain;   /* of a conversation: a model without a chat template gets the text of its last message */
    char *answer; /* what answered it in the file; NULL: unknown */
    int most;     /* tokens of the answer that the file asks for; 0: unknown */
    int class;    /* index of prompts.class_name; -1: none */
    int64_t line; /* where it begins; of a folder: the number of its file */
};
struct prompts {
    enum prompt_form form; /* of the first prompt */
    struct prompt *prompt; /* [n] */
    int n, room;
    char class_name[PROMPT_CLASSES][PROMPT_CLASS_NAME];
    int classes;
    int skipped;           /* without a prompt: empty texts, conversations in which no user says anything */
    char sha256[HASH_HEX]; /* of the file; of a folder: of the names and hashes of its files */
};

/* prompts_free also after an error. Errors: ERR_ABSENT, ERR_IO; ERR_FORMAT with the line: no UTF-8, JSON of
 * another form, too long; no prompts; ERR_NOMEM. */
enum err_code prompts_read(struct prompts *out, const char *path, struct err *why);
/* The same of a text, whose name tells JSON that is damaged at its start from plain text (.json, .jsonl). */
enum err_code prompts_parse(struct prompts *out, const char *name, const char *text, size_t n,
                            struct err *why);
void prompts_free(struct prompts *p);

/* The index of a class, which is added if it is new; -1 for "". */
int prompts_class(struct prompts *p, const char *name);
/* The names of the classes, a list; NULL: there are none. p may be NULL. New reference. */
json_t *prompts_classes_to_json(const struct prompts *p);

/* Append prompt i as a text for reading or scoring: its text or messages, and its answer, a blank line after
 * each. */
void prompts_append_text(struct str *out, const struct prompts *p, int i);

/* Append the ids of prompt i: a text after BOS if the model wants it, a conversation by the model's chat
 * template with the beginning of an answer. Not for PROMPTS_TEXT. Errors: those of tokenizer_encode and
 * chat_encode; ERR_USAGE: a conversation, and the model has no chat template. */
struct prompt_reader;
enum err_code prompt_reader_open(struct prompt_reader **out, const struct gguf *g, const struct tokenizer *t,
                                 struct err *why);
void prompt_reader_close(struct prompt_reader *r); /* NULL is fine */
enum err_code prompt_encode(struct token_list *out, struct prompt_reader *r, const struct prompts *p, int i,
                            struct err *why);
/* Tokens of the answer: what the file asks for, else the tokens of the answer that it has; 0: unknown. */
enum err_code prompt_answer(int *out, const struct prompt_reader *r, const struct prompt *p, struct err *why);

/* Append `count` ids of a plain text from a pseudo-random place on, beginning again at its end. *repeats: it
 * was shorter. ERR_FORMAT: it gives no tokens. */
enum err_code prompt_text_cut(struct token_list *out, const struct prompt_reader *r, const struct prompt *p,
                              uint64_t key, int64_t count, bool *repeats, struct err *why);

#endif
