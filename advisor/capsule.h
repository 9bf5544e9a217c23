/* advisor/capsule.h - what a run was made of, taken when it starts: enough to understand it a year later, to
 * repeat it, and to say what changed between two of them.
 *
 * A document of groups, each a subject somebody changes on purpose or by accident:
 *   machine      hardware, limits, power source (what it is)
 *   kernel, governor, microcode   how it is set up (telemetry's machine_state_to_json)
 *   library      what the program runs on: C library, OpenBLAS, GPU drivers
 *   program      version, compiler, SHA-256 of the binary that ran the cells
 *   environment  variables that change what is measured
 *   model, config   of each arm: file and hash; the line and every key as it was resolved
 * The spec stands in the run's own row, raw samples in its cells. Unknown is null. */
#ifndef QDYNO_ADVISOR_CAPSULE_H
#define QDYNO_ADVISOR_CAPSULE_H

#include "db/db.h"
#include "engine/config/config.h"
#include "telemetry/telemetry.h"

struct capsule_arm {
    const char *line;                             /* the config line as given */
    const struct config *resolved;                /* as the worker merged it; NULL unknown */
    const char *model_path, *model_name, *sha256; /* "" unknown */
};
struct capsule_of {
    const struct machine *machine;
    const char *root;    /* where machine settings are read: "" for this machine */
    const char *program; /* the worker's binary; NULL: this program's own */
    const struct capsule_arm *arm;
    int arms;
};
json_t *capsule_take(const struct capsule_of *of); /* schema "qdyno.capsule/1"; new reference */
enum err_code capsule_store(struct db *d, int64_t run_id, const struct capsule_of *of, struct err *why);
/* *out: new reference; NULL when the run has none (older than capsules). ERR_FORMAT when it is damaged. */
enum err_code capsule_load(json_t **out, struct db *d, int64_t run_id, struct err *why);

/* What is not the same: array of { group, key, before, after }, in the order of the groups above; a key of an
 * arm reads "A.threads". Values as they stand in the capsules, null: unknown. line not NULL: of model and
 * config only the arm with that config line counts, on either side, and with "" none. Either capsule NULL:
 * empty. New reference. */
json_t *capsule_diff(const json_t *before, const json_t *after, const char *line);
/* "kernel.release 6.1.0 -> 6.9.1; ..." of at most `most` changes, how many more after them. Appended. */
void capsule_diff_text(struct str *out, const json_t *diff, int most);

#endif
