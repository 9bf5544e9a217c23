/* advisor/advise/word.c - quotes words for a shell. */
#include "advisor/advise/advise.h"

#include <string.h>

void word_append(struct str *s, const char *word)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
    if (*word && !word[strspn(word, PLAIN)]) {
        str_append(s, word);
        return;
    }
    str_append(s, "'");
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            str_append(s, "'\\''");
        else
            str_append_n(s, c, 1);
    str_append(s, "'");
}
