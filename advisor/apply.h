/* advisor/apply.h - the configuration a model runs with on this machine: a small file that tune and people
 * write, and that `run`, `bench` and the dashboard read where nothing else is asked for.
 *
 * One file a model, $XDG_CONFIG_HOME/qdyno/MODEL.conf (MODEL-1a2b3c4d.conf when another model of that name
 * has taken it). Lines that begin with # are comments, of which "# key: value" are read back; the last other
 * line is the config line. A file written by hand may be that line alone. */
#ifndef QDYNO_ADVISOR_APPLY_H
#define QDYNO_ADVISOR_APPLY_H

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/telemetry.h"

struct applied {
    struct config config;
    char line[2048];                          /* the same as text */
    char path[4096];                          /* of the file */
    char model_sha256[HASH_HEX], machine[16]; /* it was made for; "" when the file does not say */
    char because[256], when[32];              /* likewise */
    int64_t run_id;                           /* that proved it, 0: none named */
};

/* What is kept for this model. *found false (ERR_OK): nothing. Nothing is created. Errors: ERR_IO (there, but
 * unreadable), ERR_FORMAT and ERR_USAGE (no config line, or one that cannot be: names the file), those of
 * gguf_open when a file may be this model's and the model cannot be read. */
enum err_code apply_read(struct applied *out, const char *model_path, bool *found, struct err *why);

/* Keep a config for this model: whole or not at all; what was there before is MODEL.conf.previous. The config
 * must make sense for the model (its memory plan can be computed), and names no model of its own. machine may
 * be NULL. Fills *out (may be NULL). */
struct apply_request {
    const char *model_path;
    const struct config *config;
    const struct machine *machine;
    const char *because; /* one line; NULL: "chosen by hand" */
    int64_t run_id;
};
enum err_code apply_write(struct applied *out, const struct apply_request *r, struct err *why);

/* Nothing is kept for it any more. *removed false: nothing was. */
enum err_code apply_remove(const char *model_path, bool *removed, struct err *why);

/* The config line a file holds: the last line that is neither empty nor a comment. ERR_FORMAT: none. */
enum err_code config_file_read(struct config *out, const char *path, struct err *why);

/* The llama.cpp command lines that come nearest: one to run (a server), with a `qdyno quantize` in front
 * where the recipe makes a new file. notes: settings that have no equivalent there, and why that may matter;
 * "" when all have. ERR_ABSENT: the recipe or the KV type exists here only (says which); errors of gguf_open
 * and of the recipe. */
enum err_code apply_llama_cpp(struct str *out, struct str *notes, const char *model_path,
                              const struct config *c, struct err *why);

#endif
