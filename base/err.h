/* base/err.h - the one error type: a code for the program, a message for the person.
 *
 * 0 is success everywhere. A message says what was wanted, what was found and, where it helps, what to do. */
#ifndef QDYNO_BASE_ERR_H
#define QDYNO_BASE_ERR_H

#include <stdarg.h>

#define ERR_LIST(X)                                                                                          \
    X(ERR_OK, "ok")                                                                                          \
    X(ERR_NOMEM, "out of memory")                                                                            \
    X(ERR_IO, "read or write failed")                                                                        \
    X(ERR_USAGE, "asked for something that cannot be")                                                       \
    X(ERR_FORMAT, "file is not what it claims to be")                                                        \
    X(ERR_FIT, "does not fit in memory or on disk")                                                          \
    X(ERR_ABSENT, "not on this machine")                                                                     \
    X(ERR_CANCELLED, "cancelled")                                                                            \
    X(ERR_INTERNAL, "internal error")

enum err_code {
#define ERR_ENUM(code, text) code,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
};

struct err {
    enum err_code code;
    char message[512];
};

/* Fill *why (may be NULL) and return `code`, so that `return err_set(...)` reads as one thought. */
enum err_code err_set(struct err *why, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "fmt: " in front of a message that is already there; returns why->code (ERR_INTERNAL if why is NULL).
 */
enum err_code err_prefix(struct err *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The general meaning of a code, e.g. "out of memory". Never NULL. */
const char *err_text(enum err_code code);

#endif
