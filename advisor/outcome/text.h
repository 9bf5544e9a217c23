/* advisor/outcome/text.h - the body of a push. Internal to advisor/outcome/. */
#ifndef QDYNO_ADVISOR_OUTCOME_TEXT_H
#define QDYNO_ADVISOR_OUTCOME_TEXT_H

#include "advisor/outcome/outcome.h"

/* free(). Errors: ERR_NOMEM, ERR_INTERNAL. */
enum err_code outcome_text(char **out, const struct outcome *o, const struct machine *machine,
                           struct err *why);

#endif
