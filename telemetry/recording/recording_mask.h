/* telemetry/recording/recording_mask.h - removes private data from recorded files (internal to
 * telemetry/recording). */
#ifndef QDYNO_TELEMETRY_RECORDING_MASK_H
#define QDYNO_TELEMETRY_RECORDING_MASK_H

#include "base/base.h"

/* False for files that are never recorded: processes and their command lines. */
bool recording_keeps(const char *path);

/* Appends the path to *out, with control group names that a user chose replaced. */
void recording_mask_path(const char *path, struct str *out);

/* Appends a file's content to *out, with host name, control group names, serial numbers and UUIDs replaced.
 * Binary content stays unchanged. */
void recording_mask_text(const char *path, const char *text, size_t n, struct str *out);

#endif
