#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/sink.h"

static const char *const LEVEL_NAMES[] = { "debug", "info", "warn", "error", "quiet" };

void log_write(const struct log *log, enum log_level level, const char *fmt, ...)
{
    if (!log || !log->sink || level < log->level || level >= LOG_QUIET) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log->sink(log->ctx, level, line);
}

static void stream_sink(void *ctx, enum log_level level, const char *line)
{
    static const char *const PREFIX[] = { "debug: ", "", "warning: ", "error: " };
    char *safe = sink_text(SINK_TERMINAL, line);
    /* a single call is atomic, because stdio locks the stream */
    fprintf(ctx, "qdyno: %s%s\n", PREFIX[level], safe ? safe : "out of memory for a message");
    free(safe);
}

struct log log_to_stream(FILE *stream, enum log_level level)
{
    return (struct log){ .level = level, .sink = stream_sink, .ctx = stream };
}

int log_level_parse(const char *name)
{
    for (int i = 0; i <= LOG_QUIET; i++)
        if (!strcmp(name, LEVEL_NAMES[i])) return i;
    return -1;
}
