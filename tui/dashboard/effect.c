/* tui/dashboard/effect.c - constructors for the usual effects. */
#include "tui/dashboard/effect.h"

#include "base/cut/cut.h"

struct effect effect_none(void)
{
    return (struct effect){ 0 };
}

struct effect effect_message(const char *fmt, ...)
{
    struct effect e = { 0 };
    va_list args;
    va_start(args, fmt);
    text_cutv(e.message, sizeof e.message, fmt, args);
    va_end(args);
    return e;
}

struct effect effect_error(const char *fmt, ...)
{
    struct effect e = { .is_error = true };
    va_list args;
    va_start(args, fmt);
    text_cutv(e.message, sizeof e.message, fmt, args);
    va_end(args);
    return e;
}

struct effect effect_too_long(void)
{
    return effect_error(
        "nothing was started: with these paths and texts the command has more than %d bytes; use "
        "shorter paths, or type it in a shell",
        COMMAND_TEXT - 1);
}

struct effect effect_command(const char *fmt, ...)
{
    struct effect e = { .requests = REQUEST_RUN_COMMAND };
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(e.command, sizeof e.command, fmt, args);
    va_end(args);
    return n > 0 && n < (int)sizeof e.command ? e : effect_too_long();
}

struct effect effect_request(unsigned requests)
{
    return (struct effect){ .requests = requests };
}

struct effect effect_job(enum job_queue queue, void (*run)(struct background *b, const struct job *j),
                         const char *text0)
{
    struct effect e = { .queue = queue, .job.run = run };
    job_put_text(&e.job, 0, text0);
    return e;
}
