/* engine/chat/chat.h - conversations as token ids, by the chat template of a model file or of the user.
 *
 * The template decides all text around the messages, BOS included; nothing is added to what it writes.
 * Control tokens are recognised in text that the template wrote, never in text that came from a message. */
#ifndef QDYNO_ENGINE_CHAT_H
#define QDYNO_ENGINE_CHAT_H

#include <time.h>

#include "base/base.h"
#include "engine/text/text.h"

struct gguf;
struct chat;

/* Does the file have a chat template (tokenizer.chat_template)? */
bool chat_has_template(const struct gguf *g);

/* Templates that are built in (templates.c), for files without one. */
struct chat_template_row {
    const char *name;   /* of --template; NULL after the last row */
    const char *models; /* which have it */
    const char *sign;   /* a control token that shows that a tokenizer is made for it; NULL: it needs none */
    const char *text;   /* Jinja */
};
extern const struct chat_template_row CHAT_TEMPLATES[];
const struct chat_template_row *chat_template_find(const char *name); /* NULL: unknown */
/* The one whose control token the tokenizer has; NULL: none. */
const struct chat_template_row *chat_template_guess(const struct tokenizer *t);
/* All names, separated by commas. Returns buf. */
const char *chat_template_names(char *buf, size_t size);
/* What to do about a model without a template, with the most likely name. t NULL: unknown. Returns buf. */
enum { CHAT_ADVICE = 400 };
const char *chat_template_advice(const struct tokenizer *t, char buf[CHAT_ADVICE]);

/* template_file: a Jinja file or the name of a built-in template, used instead of the model's
 * (tokenizer.chat_template); a file of that name comes first. NULL: the model's. `t` must outlive *out, which
 * is owned: chat_close. Errors: ERR_USAGE (the model has no template, or no file and no built-in template has
 * that name; the message lists the names); those of template_open; ERR_IO. */
enum err_code chat_open(struct chat **out, const struct gguf *g, const struct tokenizer *t,
                        const char *template_file, struct err *why);
void chat_close(struct chat *c); /* NULL is fine */

/* The text of the template for conversations with tools; lives as long as c. */
const char *chat_template_for_tools(const struct chat *c);

struct chat_request {
    const json_t *messages; /* list of {"role": ..., "content": ...} */
    const json_t *tools;    /* list of objects, or NULL */
    const json_t *extra;    /* object: further variables of the template, or NULL */
    bool add_generation_prompt;
    time_t now;
};
/* Appends the ids of the conversation to *out. Errors: ERR_USAGE (messages that are no list of objects with a
 * role and content; the template refuses them), those of template_render and tokenizer_encode. */
enum err_code chat_encode(const struct chat *c, const struct chat_request *r, struct token_list *out,
                          struct err *why);

/* What a text is, by its first line that is not blank, after a byte order mark (BOM):
 * a JSON object with `messages`, or damaged JSON with that word in its first 4 KiB, begins conversations;
 * other objects, and lists of objects, are other JSON. ERR_NOMEM. */
enum text_kind { TEXT_PLAIN, TEXT_CONVERSATIONS, TEXT_OTHER_JSON };
enum err_code text_kind_find(enum text_kind *out, const char *text, size_t n, struct err *why);

/* Appends the ids of all conversations of a text, one JSON object a line: "messages", optional "tools"; other
 * members are variables of the template. A BOM and blank lines are skipped. No generation prompt is added,
 * and the date that templates see is always 1 January 2026, so that a file gives the same ids every day.
 * Errors: as chat_encode, as ERR_FORMAT with the number of the line; ERR_FORMAT for a key that an object has
 * twice. */
enum err_code conversations_encode(const struct chat *c, const char *text, size_t n, struct token_list *out,
                                   struct err *why);

/* Appends the ids of a text that a model is measured on: conversations by the template of `g`, plain text
 * after BOS if the model wants it. Errors: those of tokenizer_encode, chat_open and conversations_encode;
 * ERR_USAGE: conversations, but `g` has no template; ERR_FORMAT: other JSON, which is data and not text. */
enum err_code text_encode(const struct gguf *g, const struct tokenizer *t, const char *text, size_t n,
                          struct token_list *out, struct err *why);

#endif
