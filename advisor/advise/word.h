/* advisor/advise/word.h - command lines that can be pasted into a shell. Internal to advisor/advise/. */
#ifndef QDYNO_ADVISOR_WORD_H
#define QDYNO_ADVISOR_WORD_H

#include "base/base.h"

/* Append a word, quoted if the shell would interpret it. */
void word_append(struct str *s, const char *word);

#endif
