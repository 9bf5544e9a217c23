/* base/memory.h - remembers that memory ran out where no error can be returned.
 *
 * Texts (str.h) and JSON documents are built by many small calls, which nobody checks one by one. If one of
 * them gets no memory, the text or document is incomplete. The calling thread is then short of memory until
 * an error with ERR_NOMEM has told so (err_set). Whatever takes a result out of the program checks this
 * first: the writers of tables, JSON lines, files, transactions and requests. So an incomplete result is an
 * error. */
#ifndef QDYNO_BASE_MEMORY_H
#define QDYNO_BASE_MEMORY_H

#include <stdbool.h>

#include "base/err.h"

/* An allocation of this thread failed, and its caller cannot return an error. */
void memory_short_set(void);
void memory_short_clear(void);
bool memory_is_short(void);

/* ERR_NOMEM when this thread is short of memory, which ends with that; ERR_OK otherwise. `doing` completes
 * the message "out of memory: cannot ...". */
enum err_code memory_check(const char *doing, struct err *why);

/* How often memory_short_set was called, by all threads. An error that told so may have been ignored, so a
 * command that ends without an error checks this, too. */
int memory_short_times(void);

#endif
