/* messages.c - exit statuses, and what a command prints besides its table. */
#include <errno.h>
#include <string.h>

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tui/cli/lib/lib.h"

/* A URL in a command line can contain a password, and messages end up in logs: only the host is shown. */
const char *cli_word_shown(const char *word, char buf[HTTP_SHOWN_MAX])
{
    const char *colon = strchr(word, ':');
    return colon && (str_starts(colon, "://") || strchr(colon, '@'))
               ? http_url_shown(word, HTTP_SHOW_HOST, buf)
               : word;
}

const char RANDOM_WEIGHTS[] = "random weights: quality figures mean nothing";

void cli_put_cautions(json_t *row, bool random_weights, bool answers_unverified)
{
    json_put_bool(row, "random_weights", random_weights);
    json_put_bool(row, "answers_unverified", answers_unverified);
}

void cli_note_cautions(struct table *t, bool random_weights, bool answers_unverified)
{
    if (random_weights) table_note(t, "%s", RANDOM_WEIGHTS);
    if (answers_unverified) table_note(t, "%s", ANSWERS_UNVERIFIED);
}

/* Each unknown part on a line of its own, so that a person can search for its name. */
void cli_note_unknown(struct table *t, const struct model_shape *s, const struct gguf *g)
{
    if (!s->unknown) return;
    struct str all = { 0 };
    json_t *list = json_array();
    arch_unknown(&all, arch_find(gguf_get_string(g, "general.architecture")), s, g);
    for (const char *line = str_text(&all); *line; line += strcspn(line, "\n") + 1) {
        const int n = (int)strcspn(line, "\n");
        table_note(t, "%.*s", n, line);
        json_array_append_new(list, json_stringn(line, (size_t)n));
    }
    json_put(t->extra, "unknown", list);
    str_free(&all);
}

const char *cli_tensor_shape(char buf[SHAPE_TEXT], const struct gguf_tensor *t)
{
    for (int d = 0, at = 0; d < t->dims; d++)
        at += snprintf(buf + at, SHAPE_TEXT - (size_t)at, "%s%lld", d ? "x" : "", (long long)t->shape[d]);
    return buf;
}

const char *cli_tensor_type(char buf[TYPE_TEXT], const struct gguf_tensor *t)
{
    if (t->type_name)
        snprintf(buf, TYPE_TEXT, "%s", t->type_name);
    else
        snprintf(buf, TYPE_TEXT, "type %u", t->type);
    return buf;
}

static void note_unsupported_tensor(struct table *t, const struct gguf_tensor *x)
{
    char shape[SHAPE_TEXT], bytes[16];
    table_note(
        t,
        "tensor '%s': type %u%s%s%s is not supported; shape %s, %s (distance to the next tensor or the end of the file)",
        x->name, x->type, x->type_name ? " (" : "", x->type_name ? x->type_name : "", x->type_name ? ")" : "",
        cli_tensor_shape(shape, x), str_from_bytes(x->bytes, bytes, sizeof bytes));
}

void cli_note_unsupported(struct table *t, const struct gguf *g)
{
    enum { MOST_NOTES = 8 };
    json_t *list = json_array();
    int64_t n = 0, bytes = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        char shape[SHAPE_TEXT];
        if (x->format) continue;
        bytes += x->bytes;
        if (n++ < MOST_NOTES) note_unsupported_tensor(t, x);
        json_t *one = list_row(list);
        json_put_str(one, "name", x->name);
        json_put_int(one, "type", x->type);
        json_put_str(one, "type_name", x->type_name);
        json_put_str(one, "shape", cli_tensor_shape(shape, x));
        json_put_int(one, "bytes", x->bytes);
    }
    if (n > MOST_NOTES) {
        char all[16];
        table_note(
            t,
            "and %lld more tensors of unsupported types (all %lld together: %s): `qdyno info --tensors` lists them",
            (long long)(n - MOST_NOTES), (long long)n, str_from_bytes(bytes, all, sizeof all));
    }
    if (n)
        json_put(t->extra, "unsupported_tensors", list);
    else
        json_decref(list);
}

/* Scripts see only this number: memory that is missing and memory that a model would need are the same to
 * them. */
int exit_status_of(enum err_code code)
{
    static const unsigned char STATUS[] = {
        [ERR_OK] = EXIT_DONE,          [ERR_NOMEM] = EXIT_NO_FIT,          [ERR_IO] = EXIT_BAD_INPUT,
        [ERR_USAGE] = EXIT_USAGE,      [ERR_FORMAT] = EXIT_BAD_INPUT,      [ERR_FIT] = EXIT_NO_FIT,
        [ERR_ABSENT] = EXIT_NO_DEVICE, [ERR_CANCELLED] = EXIT_INTERRUPTED, [ERR_INTERNAL] = EXIT_INTERNAL,
    };
    return (size_t)code < COUNT_OF(STATUS) ? STATUS[code] : EXIT_INTERNAL;
}

/* A proven but negligible difference is a success: the challenger is no worse in any way that matters. */
int exit_status_of_verdict(enum verdict v)
{
    switch (v) {
    case VERDICT_BETTER:
    case VERDICT_EQUIVALENT:
    case VERDICT_NEGLIGIBLE: return EXIT_DONE;
    case VERDICT_WORSE: return EXIT_WORSE;
    case VERDICT_INVALID: return EXIT_INVALID;
    case VERDICT_NONE:
    case VERDICT_INCONCLUSIVE: break;
    }
    return EXIT_INCONCLUSIVE;
}

/* A truncated file is the cause of whatever error its zeros led to, so it replaces the message. stdout is
 * flushed first, so that results and error stand in the order in which they happened. */
int cli_fail(const struct cli_args *a, const struct err *why)
{
    struct err cause;
    if (map_guard_explain(&cause)) why = &cause;
    char *safe = sink_text(SINK_TERMINAL, why->message);
    memory_short_clear(); /* an error ends the command: no result is incomplete unnoticed */
    fflush(stdout);
    fprintf(stderr, "qdyno%s%s: %s\n", a && a->command ? " " : "", a && a->command ? a->command->name : "",
            safe ? safe : "out of memory");
    free(safe);
    return exit_status_of(why->code);
}

int cli_fail_memory(const struct cli_args *a)
{
    struct err why;
    err_set(&why, ERR_NOMEM, "out of memory");
    return cli_fail(a, &why);
}

/* Columns of the terminal that stdout is; 0: it is none. */
static int terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

int cli_print(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status)
{
    struct err why = { 0 };
    const struct table_style style = { .width = terminal_width(), .verbose = g->verbose, .quiet = g->quiet };
    if (table_write_styled(t, g->output, style, stdout, &why)) return cli_fail(a, &why);
    return status;
}

int cli_finish(const struct cli_global *g, const struct cli_args *a, struct table *t, int status)
{
    status = cli_print(g, a, t, status);
    table_done(t);
    return status;
}

int cli_print_now(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status)
{
    struct err why = { 0 };
    const int printed = cli_print(g, a, t, status);
    if (printed != status || !fflush(stdout) || errno == EPIPE) return printed;
    err_set(&why, err_of_errno(errno), "cannot write the results: %s", strerror(errno));
    clearerr(stdout); /* it is told */
    return cli_fail(a, &why);
}

bool cli_is_interrupted(const struct cli_global *g)
{
    return g->interrupted && *g->interrupted;
}

bool cli_open_goes_on(void *arg, const char *phase, double done)
{
    (void)phase, (void)done;
    return !cli_is_interrupted(arg);
}

/* Notes come from model files and servers, too: control characters must not reach the terminal. */
void cli_note(const struct cli_global *g, const char *fmt, ...)
{
    if (g->quiet) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *safe = sink_text(SINK_TERMINAL, text);
    fprintf(stderr, "%s\n", safe ? safe : "out of memory for a message");
    free(safe);
}
