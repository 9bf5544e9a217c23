/* base/err.h - the error type of all functions: a code for the program and a message for the user.
 *
 * 0 is success. A message says what was expected, what was found, and if it helps what to do. */
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

/* Fills *why (may be NULL) and returns `code`, for statements such as `return err_set(...)`. After an
 * allocation failed unnoticed (memory.h), the error is a consequence of that: its code is ERR_NOMEM, and the
 * message begins with "out of memory". */
enum err_code err_set(struct err *why, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends the formatted text and ": " to the message in *why. Returns why->code, or ERR_INTERNAL when why is
 * NULL. */
enum err_code err_prefix(struct err *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The code for an errno of a system call: ERR_NOMEM for memory; ERR_FIT for a full disk and for limits of
 * file size, processes and open files; ERR_IO for all other. */
enum err_code err_of_errno(int cause);

/* The general meaning of a code, such as "out of memory". Never NULL. */
const char *err_text(enum err_code code);

#endif
