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

struct effect effect_run(const struct words *command)
{
    if (command->failed || !command->n) return effect_error("nothing was started: not enough memory");
    return (struct effect){ .requests = REQUEST_RUN_COMMAND, .command = *command };
}

struct effect effect_start(enum action action, struct ui *ui, const struct snapshot *s, unsigned requests)
{
    struct words command = { .arena = &ui->texts };
    equivalent_command(&command, action, ui, s);
    struct effect e = effect_run(&command);
    if (!e.is_error) e.requests = requests;
    return e;
}

struct effect effect_request(unsigned requests)
{
    return (struct effect){ .requests = requests };
}

struct effect effect_job(enum job_queue queue, void (*run)(struct background *b, const struct job *j),
                         const char *text)
{
    return (struct effect){ .queue = queue, .job = { .run = run, .text = text } };
}
