/* engine/prompts/prompts_internal.h - what the files of engine/prompts share. */
#ifndef QDYNO_ENGINE_PROMPTS_INTERNAL_H
#define QDYNO_ENGINE_PROMPTS_INTERNAL_H

#include "engine/prompts/prompts.h"

/* Add a text; one without a character that is not white space is skipped. ERR_NOMEM; ERR_FORMAT: too many. */
enum err_code prompts_add_text(struct prompts *p, const char *text, size_t n, int64_t line, struct err *why);
/* Take over *q, which is freed in any case of an error. */
enum err_code prompts_add(struct prompts *p, struct prompt *q, struct err *why);

/* Add what one JSON value of a file is: an object, or a text. ERR_FORMAT without the line. */
enum err_code prompts_add_value(struct prompts *p, const json_t *value, int64_t line, struct err *why);

#endif
