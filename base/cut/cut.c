/* Texts for people in buffers of a fixed size (cut.h). */
#include "base/cut/cut.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MARK[] = "…";

bool text_cut(char *out, size_t size, const char *text)
{
    const size_t n = text ? strlen(text) : 0;
    if (n < size) {
        memcpy(out, text ? text : "", n + 1);
        return true;
    }
    size_t kept = 0, step;
    uint32_t code;
    while ((step = str_utf8_next(text + kept, n - kept, &code)) > 0 && kept + step + sizeof MARK <= size)
        kept += step;
    memcpy(out, text, kept);
    memcpy(out + kept, MARK, sizeof MARK);
    return false;
}

bool text_cutv(char *out, size_t size, const char *fmt, va_list args)
{
    char *whole = NULL;
    if (vasprintf(&whole, fmt, args) < 0) {
        memory_short_set();
        return text_cut(out, size, "");
    }
    const bool fits = text_cut(out, size, whole);
    free(whole);
    return fits;
}

bool text_cutf(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const bool fits = text_cutv(out, size, fmt, args);
    va_end(args);
    return fits;
}
