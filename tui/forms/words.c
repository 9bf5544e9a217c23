/* tui/forms/words.c - argument vectors: built word by word, shown as a line, and split from a line that a
 * person typed. */
#include "tui/forms/forms.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cut/cut.h"

/* ---------------------------------------------------------------- building */

void words_put(struct words *w, const char *word)
{
    char *copy = w->failed ? NULL : arena_strdup(w->arena, word);
    if (copy && w->n + 1 >= w->room) {
        const int room = MAX(2 * w->room, 16);
        const char **grown = arena_alloc(w->arena, (size_t)room * sizeof *grown);
        if (grown && w->n) memcpy(grown, w->argv, (size_t)w->n * sizeof *grown);
        if (grown) w->room = room;
        w->argv = grown ? grown : w->argv;
    }
    w->failed = !copy || w->n + 1 >= w->room;
    if (w->failed) return;
    w->argv[w->n++] = copy;
    w->argv[w->n] = NULL;
}

void words_put_list(struct words *w, const char *const word[], size_t n)
{
    for (size_t i = 0; i < n; i++) words_put(w, word[i]);
}

void words_printf(struct words *w, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        w->failed = true;
    else
        words_put(w, text);
    if (n >= 0) free(text);
}

void words_put_path(struct words *w, const char *before, const char *path)
{
    char whole[4096];
    words_printf(w, "%s%s", before, form_path(path, whole, sizeof whole));
}

/* ---------------------------------------------------------------- reading */

const char *words_at(const struct words *w, int i)
{
    return i < w->n ? w->argv[i] : "";
}

bool words_have(const struct words *w, const char *word)
{
    for (int i = 1; i < w->n; i++)
        if (!strcmp(w->argv[i], word)) return true;
    return false;
}

const char *words_value(const struct words *w, const char *flag)
{
    for (int i = 1; i + 1 < w->n; i++)
        if (!strcmp(w->argv[i], flag)) return w->argv[i + 1];
    return NULL;
}

bool words_run(const struct words *w, const char *command)
{
    return !strcmp(words_at(w, 1), command);
}

/* `qdyno quantize IN OUT ...`, and the other commands that have --out. */
const char *words_made(const struct words *w)
{
    const bool in_place = words_run(w, "quantize") && w->n > 3 && w->argv[2][0] != '-' &&
                          w->argv[3][0] != '-';
    return in_place ? w->argv[3] : words_value(w, "--out");
}

void words_print(struct str *out, const struct words *w, int from)
{
    for (int i = from; i < w->n; i++) {
        if (i > from) str_append(out, w->second && i == w->second ? "; " : " ");
        word_append(out, w->argv[i]);
    }
}

const char *words_shown(const struct words *w, int from, char *buf, size_t size)
{
    struct str text = { 0 };
    words_print(&text, w, from);
    text_cut(buf, size, str_text(&text));
    str_free(&text);
    return buf;
}

/* ---------------------------------------------------------------- splitting */

/* Read one word from *in into `out`, without its quotes. `out` never passes *in. Returns the quote that is
 * not closed; 0: none. */
static char word_read(char **in, char **out)
{
    char quote = '\0';
    for (; **in && (quote || !isspace((unsigned char)**in)); (*in)++) {
        if (**in == quote)
            quote = '\0';
        else if (!quote && (**in == '\'' || **in == '"'))
            quote = **in;
        else if (**in == '\\' && quote != '\'' && (*in)[1])
            *(*out)++ = *++*in;
        else
            *(*out)++ = **in;
    }
    return quote;
}

enum err_code shell_words_split(char *line, char **argv, int max, int *n, struct err *why)
{
    char *in = line, *out = line;
    *n = 0;
    for (;;) {
        while (isspace((unsigned char)*in)) in++;
        if (!*in) break;
        if (*n == max - 1) return err_set(why, ERR_USAGE, "more than %d words", max - 1);
        argv[(*n)++] = out;
        const char quote = word_read(&in, &out);
        if (quote) return err_set(why, ERR_USAGE, "a quote (%c) is not closed", quote);
        const bool more = *in != '\0';
        *out++ = '\0';
        in += more;
    }
    argv[*n] = NULL;
    return ERR_OK;
}

enum err_code words_put_line(struct words *out, const char *line, struct err *why)
{
    const size_t most = strlen(line) / 2 + 2; /* each word has a byte, and a blank before the next one */
    char *copy = arena_strdup(out->arena, line), **argv = arena_alloc(out->arena, most * sizeof *argv);
    int n = 0;
    if (!copy || !argv) return err_set(why, ERR_NOMEM, "not enough memory for a command");
    const enum err_code rc = shell_words_split(copy, argv, (int)most, &n, why);
    for (int i = 0; i < n && !rc; i++) words_put(out, argv[i]);
    return rc;
}
