/* telemetry/recording_mask.h - what of a machine's files is nobody else's business (inside telemetry/). */
#ifndef QDYNO_TELEMETRY_RECORDING_MASK_H
#define QDYNO_TELEMETRY_RECORDING_MASK_H

#include "base/base.h"

/* Whether a file is kept at all: processes and their command lines never are. */
bool recording_keeps(const char *path);

/* The path, with names of control groups that somebody gave replaced. Append to *out. */
void recording_mask_path(const char *path, struct str *out);

/* The text of a file with host name, group names, serial numbers and UUIDs replaced; bytes that are no text
 * stay. Append to *out. */
void recording_mask_text(const char *path, const char *text, size_t n, struct str *out);

#endif
