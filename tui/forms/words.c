/* tui/forms/words.c - splits a line into words as a shell does. */
#include "tui/forms/forms.h"

#include <ctype.h>

enum err_code shell_words_split(char *line, char **argv, int max, int *n, struct err *why)
{
    char *in = line, *out = line;
    *n = 0;
    for (;;) {
        while (isspace((unsigned char)*in)) in++;
        if (!*in) break;
        if (*n == max - 1) return err_set(why, ERR_USAGE, "more than %d words", max - 1);
        argv[(*n)++] = out;
        char quote = '\0';
        for (; *in && (quote || !isspace((unsigned char)*in)); in++) {
            if (*in == quote)
                quote = '\0';
            else if (!quote && (*in == '\'' || *in == '"'))
                quote = *in;
            else if (*in == '\\' && quote != '\'' && in[1])
                *out++ = *++in;
            else
                *out++ = *in;
        }
        if (quote) return err_set(why, ERR_USAGE, "a quote (%c) is not closed", quote);
        const bool more = *in != '\0';
        *out++ = '\0'; /* `out` never passes `in`: quotes and backslashes are dropped */
        in += more;
    }
    argv[*n] = NULL;
    return ERR_OK;
}
