/* advisor/advise/apply_parts.h - what the translations of a config share. Internal to advisor/advise/. */
#ifndef QDYNO_ADVISOR_APPLY_PARTS_H
#define QDYNO_ADVISOR_APPLY_PARTS_H

#include "engine/config/config.h"

/* The GGUF file that another program would load for this config, to made[size], and the command that makes
 * it; nothing is appended when it is the model's own. Errors: ERR_ABSENT when no other program reads such a
 * file; those of gguf_open and of the recipe. */
enum err_code apply_file(struct str *command, char *made, size_t size, const char *model_path,
                         const struct config *c, struct err *why);

#endif
