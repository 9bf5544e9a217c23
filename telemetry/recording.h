/* telemetry/recording.h - machines that can be taken along: everything detection and the sensors read of one,
 * in a folder that replays anywhere (part of the door telemetry.h). See docs/machines.md. */
#ifndef QDYNO_TELEMETRY_RECORDING_H
#define QDYNO_TELEMETRY_RECORDING_H

#include <limits.h>
#include <stdbool.h>

#include "base/base.h"

/* Record this machine into the new folder `dir`: files.txt (parts of /proc, /sys, /etc), one file of answers
 * per vendor's library, cpuid.json, recording.json, and ceilings.json when `ceilings` is not NULL. Host and
 * group names, serial numbers, UUIDs and process ids are masked unless `private` is set; command lines are
 * never kept. The folder appears complete or not at all. Errors: ERR_USAGE (dir is there already), ERR_IO,
 * ERR_NOMEM. */
enum err_code recording_make(const char *dir, bool private, const json_t *ceilings, struct err *why);

/* The file that says where a recording comes from. Below the root of one that stands still: rates stay
 * unknown. */
#define RECORDING_ABOUT "recording.json"

struct recording {
    char root[PATH_MAX]; /* for every function that takes a machine's root */
    json_t *about; /* recording.json: "origin" ("recorded" or "described"), "date", ...; NULL: none there */
    json_t *ceilings; /* as they were measured there (ceilings_from_json); NULL: not */
    bool temporary;   /* root was unpacked */
};
/* A recorded or described machine: a folder with files.txt, or with proc/ and sys/ as they are. ERR_IO when
 * it is neither, ERR_FORMAT when files.txt is damaged. On success: recording_close. */
enum err_code recording_open(struct recording *out, const char *dir, struct err *why);
void recording_close(struct recording *r); /* removes what was unpacked; {0} is fine */

#endif
