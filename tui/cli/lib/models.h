/* tui/cli/lib/models.h - models by name on the command line: a model may stand as the first argument, and a
 * name that `qdyno models` lists may stand wherever a model file may. */
#ifndef QDYNO_CLI_MODELS_H
#define QDYNO_CLI_MODELS_H

#include "tui/cli/cli.h"

/* Is this argument a model and no config line: a GGUF file, a checkpoint, the name of a file that ends in
 * .gguf, or a name with a store (advisor/models)? A text that parses as a config line never is. */
bool cli_word_is_model(const char *word);

/* Moves models from the arguments to where they belong, for commands that take one: the first argument
 * becomes -m; where configs are compared, several models become configs with model=, and one model with one
 * config is compared with the model as it is. Called by the parser, before arguments are counted. Errors:
 * ERR_NOMEM, ERR_USAGE. */
enum err_code cli_models_take(struct cli_args *a, struct err *why);

/* Replaces names of models in flags, and in model= of configs to compare, by the paths of their files, before
 * a command runs. Errors: ERR_USAGE:
 * several models match; ERR_IO: neither a file nor a model here; the message has near names, or what would
 * fetch it. */
enum err_code cli_models_resolve(const struct cli_global *g, struct cli_args *a, struct err *why);

/* The same for model= of a config. A file that is missing is no error here: its arm fails. */
enum err_code cli_config_resolve(struct config *c, struct err *why);

#endif
