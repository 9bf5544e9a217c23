/* advisor/advise/word.h - command lines that a person can paste into a shell. Inside advisor/ only. */
#ifndef QDYNO_ADVISOR_WORD_H
#define QDYNO_ADVISOR_WORD_H

#include "base/base.h"

/* A word as a shell reads it: quoted where it has to be. */
void word_append(struct str *s, const char *word);

#endif
