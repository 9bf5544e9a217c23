/* engine/text/pattern.h - expressions of a model file, compiled and run by PCRE2 with limits.
 *
 * The limits are there because expressions and texts may come from people who mean harm. */
#ifndef QDYNO_ENGINE_TEXT_PATTERN_H
#define QDYNO_ENGINE_TEXT_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/gguf/gguf.h"

/* *out owned: pcre2_code_free. `wrong`: the error of a bad expression, by whether it is ours or the file's;
 * `who`: whose expression it is, for the message. */
enum err_code pattern_compile(pcre2_code **out, struct gguf_string pattern, const char *who,
                              enum err_code wrong, struct err *why);

struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *limits;
};
bool matcher_open(struct matcher *m); /* false: out of memory; close it then, too */
void matcher_close(struct matcher *m);

/* Does this error of PCRE2 mean that a limit was reached? */
bool pattern_is_limit(int error);

#endif
