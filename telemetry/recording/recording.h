/* telemetry/recording/recording.h - records a machine: stores everything that detection and the sensors read
 * from it in a folder, from which any other machine can replay it. docs/machines.md describes the folder. */
#ifndef QDYNO_TELEMETRY_RECORDING_H
#define QDYNO_TELEMETRY_RECORDING_H

#include <limits.h>
#include <stdbool.h>

#include "base/base.h"

/* Records this machine into the new folder `dir`: files.txt (parts of /proc, /sys and /etc), one file per GPU
 * library with its answers, cpuid.json, recording.json, and ceilings.json when `ceilings` is not NULL. Host
 * and control group names, serial numbers, UUIDs and process ids are masked unless `private` is set; command
 * lines of processes are never stored. The folder appears complete or not at all. Errors: ERR_USAGE (dir
 * exists, or cannot be created), ERR_IO, ERR_NOMEM. */
enum err_code recording_make(const char *dir, bool private, const json_t *ceilings, struct err *why);

struct recording {
    char root[PATH_MAX]; /* pass it to every function with a `root` argument */
    json_t *about;       /* recording.json: "origin" ("recorded" or "described"), "date", ...; NULL: absent */
    json_t *ceilings;    /* measured there, for ceilings_from_json; NULL: absent */
    bool temporary;      /* root is a temporary folder of unpacked files */
};
/* Opens a folder that holds either files.txt, which is unpacked to a temporary folder, or proc/ and sys/
 * trees. On success: recording_close. Errors: ERR_IO (neither of these), ERR_FORMAT (files.txt is damaged).
 */
enum err_code recording_open(struct recording *out, const char *dir, struct err *why);
void recording_close(struct recording *r); /* removes the temporary folder; {0} is fine */

#endif
