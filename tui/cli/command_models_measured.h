/* tui/cli/command_models_measured.h - what earlier runs measured of the models of a list. */
#ifndef QDYNO_CLI_COMMAND_MODELS_MEASURED_H
#define QDYNO_CLI_COMMAND_MODELS_MEASURED_H

#include "advisor/models/models.h"
#include "db/db.h"
#include "engine/config/config.h"

/* SHA-256 of every model that was ever run. */
struct measured_models {
    char (*sha256)[HASH_HEX]; /* [n] owned */
    int n, room;
};
enum err_code measured_models_load(struct measured_models *m, struct db *d, struct err *why);
void measured_models_free(struct measured_models *m);

/* Means of the newest run that timed the file on this machine, of its default config if any run had that. */
struct measured_model {
    double decode_tok_s, prefill_tok_s; /* NAN: not measured */
    int64_t run;                        /* 0: none */
    char config[CONFIG_LINE];
    char decode_workload[WORKLOAD_LINE], prefill_workload[WORKLOAD_LINE]; /* what each rate is of */
    double kld; /* mean KL divergence of the file as it is against the largest of the files that it was
                   compared with, which is the one with the most bits per weight; NAN: not measured */
    int64_t kld_run;
    int64_t kld_reference_bytes; /* of that file, now; 0: it is gone */
    char kld_reference[CONFIG_LINE];
};
/* False: no run of this content is known. The content is known by the store or by the hash that an earlier
 * command stored; nothing is hashed here. */
bool measured_model_find(struct measured_model *out, const struct measured_models *m, struct db *d,
                         const struct model_entry *e, const char *machine_id);

#endif
