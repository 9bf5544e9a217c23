/* Normal forms of Unicode, which normalizers of tokenizer.json ask for (utf8proc). */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "engine/text/text_internal.h"
#include "kernels/kernels.h"

static const struct {
    const char *name;
    int options;
} FORMS[] = { { "(*NFC)", UTF8PROC_COMPOSE },
              { "(*NFD)", UTF8PROC_DECOMPOSE },
              { "(*NFKC)", UTF8PROC_COMPOSE | UTF8PROC_COMPAT },
              { "(*NFKD)", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT } };

int normal_form(struct gguf_string expression)
{
    for (size_t i = 0; i < COUNT_OF(FORMS); i++)
        if (gguf_string_is(expression, FORMS[i].name)) return (int)i;
    return -1;
}

bool normal_form_apply(int form, const char *text, size_t n, struct str *out)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t length = utf8proc_map(
        (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &made,
        (utf8proc_option_t)((unsigned)FORMS[form].options | UTF8PROC_STABLE));
    if (length >= 0) str_append_n(out, (const char *)made, (size_t)length);
    free(made);
    if (length < 0 && length != UTF8PROC_ERROR_NOMEM)
        str_append_n(out, text, n); /* never: it is valid UTF-8 */
    return length != UTF8PROC_ERROR_NOMEM;
}
