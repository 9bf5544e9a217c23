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

/* template_file: a Jinja file, used instead of the model's (tokenizer.chat_template); NULL: the model's. `t`
 * must outlive *out, which is owned: chat_close. Errors: ERR_USAGE (the model has no template; names
 * --template); those of template_open; ERR_IO. */
enum err_code chat_open(struct chat **out, const struct gguf *g, const struct tokenizer *t,
                        const char *template_file, struct err *why);
void chat_close(struct chat *c); /* NULL is fine */

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

/* Does this token end a turn of the model? These are the tokens that the metadata names (EOS, end of turn,
 * end of message), and control tokens that families use for it, such as <|im_end|>. */
bool chat_ends(const struct chat *c, int32_t id);

/* Is this text a file of conversations: is its first line a JSON object with a list `messages`? */
bool conversations_are(const char *text, size_t n);

/* Appends the ids of all conversations of a text, one JSON object a line: "messages", optional "tools"; other
 * members are variables of the template. No generation prompt is added, and the date that templates see is
 * always 1 January 2026, so that a file gives the same ids every day. Errors: as chat_encode, as ERR_FORMAT
 * with the number of the line. */
enum err_code conversations_encode(const struct chat *c, const char *text, size_t n, struct token_list *out,
                                   struct err *why);

#endif
