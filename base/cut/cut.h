/* base/cut/cut.h - texts for people in buffers of a fixed size. A text that does not fit is cut between
 * characters and ends with "…", so that nobody takes a part for the whole. Texts that mean something else
 * when they are cut (paths, config lines to run, commands) use str_put() instead. */
#ifndef QDYNO_BASE_CUT_H
#define QDYNO_BASE_CUT_H

#include "base/base.h"

/* Copy a text, NULL as "". size: at least 4. Returns whether the whole text fits. */
bool text_cut(char *out, size_t size, const char *text);
bool text_cutf(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool text_cutv(char *out, size_t size, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));

#endif
