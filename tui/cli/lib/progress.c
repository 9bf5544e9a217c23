/* progress.c - see progress.h. */
#include "tui/cli/lib/progress.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

void progress_init(struct progress *p, const struct cli_global *g)
{
    const bool json = g->progress == PROGRESS_JSON;
    const bool people = g->progress == PROGRESS_AUTO && !g->quiet && isatty(STDERR_FILENO);
    *p = (struct progress){ .on = json || people, .json = json, .first_done = NAN };
}

/* Remaining seconds at the average speed so far. If `done` falls, new work has begun (the next config of
 * several) and the estimate starts again. */
static double progress_left_s(struct progress *p, double done)
{
    const int64_t now = clock_ns();
    if (!(p->first_done <= done)) {
        p->first_done = done;
        p->first_ns = now;
    }
    const double share = done - p->first_done;
    return share > 0 ? (double)(now - p->first_ns) * 1e-9 * (1 - done) / share : NAN;
}

json_t *progress_to_json(const struct progress_figures *at, const char *text, double left_s)
{
    json_t *o = json_object();
    json_put_str(o, "schema", "qdyno.progress/1");
    json_put_str(o, "text", text);
    json_put_num(o, "done", at->done);
    json_put_num(o, "rate", at->rate);
    json_put_str(o, "unit", at->unit);
    json_put_num(o, "left_s", left_s);
    if (at->own_key) json_put(o, at->own_key, json_incref(at->own));
    return o;
}

static void progress_write_json(struct progress *p, const struct progress_figures *at, const char *text)
{
    const double left_s = isfinite(at->left_s) ? at->left_s
                          : isfinite(at->done) ? progress_left_s(p, at->done)
                                               : (double)NAN;
    json_t *o = progress_to_json(at, text, left_s);
    char *line = json_line(o);
    if (line) fprintf(stderr, "%s\n", line);
    free(line);
    json_decref(o);
}

/* Writes at most one line every 0.1 s. */
static void progress_write(struct progress *p, const struct progress_figures *at, const char *fmt, va_list ap)
{
    enum { EVERY_NS = 100000000 };
    const int64_t now = clock_ns();
    char text[160], *safe = NULL;
    if (!p->on || (p->shown && !at->at_once && now - p->last_ns < EVERY_NS)) return;
    vsnprintf(text, sizeof text, fmt, ap);
    if (p->json)
        progress_write_json(p, at, text);
    else
        fprintf(stderr, "\r\033[K%.78s", (safe = sink_text(SINK_LINE, text)) ? safe : "");
    free(safe);
    fflush(stderr);
    p->shown = true;
    p->last_ns = now;
}

void progress_show(struct progress *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    progress_write(p, &(struct progress_figures){ .done = NAN, .rate = NAN, .left_s = NAN }, fmt, ap);
    va_end(ap);
}

void progress_report(struct progress *p, const struct progress_figures *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    progress_write(p, at, fmt, ap);
    va_end(ap);
}

bool progress_is_due(const struct progress *p, double seconds)
{
    return p->json && (!p->shown || (double)(clock_ns() - p->last_ns) * 1e-9 >= seconds);
}

void progress_clear(struct progress *p)
{
    if (p->shown && !p->json) fputs("\r\033[K", stderr);
    p->shown = false;
}
