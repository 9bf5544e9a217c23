/* The command that checks an advice by measurement: v->check. path: the model's file. */
#ifndef QDYNO_ADVISE_CHECKS_H
#define QDYNO_ADVISE_CHECKS_H

#include "advisor/advise/advise.h"

void advice_set_check(struct advice *v, const char *path);

#endif
