/* base/log.h - messages about progress and problems for the user; never results.
 *
 * There is no global logger: functions that write messages have a log argument; NULL discards them. A sink
 * may be called from any thread that has the log, so it must lock if necessary (log_to_stream does). */
#ifndef QDYNO_BASE_LOG_H
#define QDYNO_BASE_LOG_H

#include <stdio.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_QUIET };

struct log {
    enum log_level level; /* messages below this level are discarded */
    void (*sink)(void *ctx, enum log_level level, const char *line);
    void *ctx;
};

/* Writes one line (without a newline), truncated to 1 KiB. */
void log_write(const struct log *log, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A log whose lines go to `stream` as "qdyno: warning: ...". `stream` is borrowed. */
struct log log_to_stream(FILE *stream, enum log_level level);

/* "debug" "info" "warn" "error" "quiet"; -1 when `name` is none of them. */
int log_level_parse(const char *name);

#endif
