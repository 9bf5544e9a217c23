#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum err_code err_set(struct err *why, enum err_code code, const char *fmt, ...)
{
    const bool incomplete = memory_is_short() && code != ERR_NOMEM;
    if (memory_is_short()) code = ERR_NOMEM;
    if (why) {
        char text[sizeof why->message]; /* an argument may be why->message itself */
        va_list ap;
        va_start(ap, fmt);
        const int n = incomplete ? snprintf(text, sizeof text, "out of memory: ") : 0;
        vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
        va_end(ap);
        why->code = code;
        memory_short_clear();
        memcpy(why->message, text, sizeof text);
    }
    return code;
}

enum err_code err_prefix(struct err *why, const char *fmt, ...)
{
    if (!why) return ERR_INTERNAL;
    struct err old = *why;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(why->message, sizeof why->message, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof why->message ? (size_t)n : sizeof why->message - 1;
    for (const char *p = ": "; *p && used + 1 < sizeof why->message; p++) why->message[used++] = *p;
    for (const char *p = old.message; *p && used + 1 < sizeof why->message; p++) why->message[used++] = *p;
    why->message[used] = '\0';
    return why->code;
}

enum err_code err_of_errno(int cause)
{
    switch (cause) {
    case ENOMEM: return ERR_NOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EAGAIN:
    case EMFILE:
    case ENFILE: return ERR_FIT;
    default: return ERR_IO;
    }
}

const char *err_text(enum err_code code)
{
    static const char *const TEXT[] = {
#define ERR_TEXT(c, text) [c] = text,
        ERR_LIST(ERR_TEXT)
#undef ERR_TEXT
    };
    return (unsigned)code < sizeof TEXT / sizeof TEXT[0] ? TEXT[code] : "unknown error";
}
