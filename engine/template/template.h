/* engine/template/template.h - chat templates: the Jinja text in a model file that turns messages into a
 * prompt.
 *
 * An interpreter of the part of Jinja that chat templates use, with the rules of transformers (trim_blocks,
 * lstrip_blocks, loop controls, generation blocks, raise_exception, strftime_now, tojson). Templates come
 * from downloaded files, so steps, depth, memory and output are limited, and nothing outside the input is
 * reachable. What is text of the template and what came from a message stays known for every byte of the
 * output, because only the template may write special tokens. */
#ifndef QDYNO_ENGINE_TEMPLATE_H
#define QDYNO_ENGINE_TEMPLATE_H

#include <time.h>

#include "base/base.h"

enum {
    TEMPLATE_TEXT_MOST = 1 << 20,    /* bytes of a template */
    TEMPLATE_OUTPUT_MOST = 64 << 20, /* bytes of a rendering, with everything that it computes */
    TEMPLATE_MEMORY_MOST = 256 << 20,
    TEMPLATE_STEPS_MOST = 20000000,
    TEMPLATE_DEPTH_MOST = 100, /* of nested brackets, blocks and values */
    TEMPLATE_CALLS_MOST = 400, /* of expressions, blocks and macros that are being computed */
};

struct template;

/* `name` is how errors call it ("tokenizer.chat_template", a path). *out owned: template_close. ERR_FORMAT:
 * the message names the line, what was expected and what was found. ERR_NOMEM. */
enum err_code template_open(struct template **out, const char *text, size_t n, const char *name,
                            struct err *why);
void template_close(struct template *t); /* NULL is fine */

struct template_input {
    const json_t *messages; /* list of objects */
    const json_t *tools;    /* list of objects, or NULL */
    const json_t *extra;    /* object whose members are further variables, or NULL */
    bool add_generation_prompt;
    const char *bos_token, *eos_token, *unk_token, *pad_token; /* NULL: undefined */
    time_t now;                                                /* what strftime_now prints, as local time */
};

/* {0} is empty: rendered_free. */
struct rendered {
    struct str text;
    struct str from_message; /* as long as text: 1 where a byte came from messages, tools or extra, else 0 */
    bool none_printed;       /* it has a null of the input or template as the text None */
};
void rendered_free(struct rendered *r);

/* *out is empty on failure. ERR_USAGE: the template refuses the conversation (raise_exception).
 * ERR_FORMAT: the template has a fault that shows with this input, or passes a limit. ERR_NOMEM. */
enum err_code template_render(const struct template *t, const struct template_input *in, struct rendered *out,
                              struct err *why);

#endif
