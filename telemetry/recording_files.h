/* telemetry/recording_files.h - many small files in one text (inside telemetry/).
 *
 *   # comment
 *   /proc/sys/kernel/ostype            one or more paths ...
 *    Linux                             ... and the lines they all hold, each behind one space
 *   /sys/devices/system/cpu/cpu[0-63]/topology/physical_package_id
 *    0                                 a list in brackets stands for that many paths
 *   /sys/class/drm/card0/device/gpu_metrics
 *   :78000103...                       bytes, behind a colon
 *   /sys/fs/cgroup/unified/            a folder
 *
 * A path must be below /proc, /sys, /etc or /usr and must not lead out of it: files come from strangers. */
#ifndef QDYNO_TELEMETRY_RECORDING_FILES_H
#define QDYNO_TELEMETRY_RECORDING_FILES_H

#include "base/base.h"

struct recorded_file {
    char *path;
    char *bytes; /* NULL: a folder */
    size_t size;
};
struct recorded_files {
    struct recorded_file *file; /* sorted by recorded_files_write */
    size_t count, cap;
    bool failed; /* out of memory: some are missing */
};
/* The first bytes that come for a path stay, unless they are the beginning of the later ones. bytes NULL: it
 * is there, as a folder unless bytes come for it. */
void recorded_files_add(struct recorded_files *f, const char *path, const void *bytes, size_t size);
/* One more part of a file, unless it is there already. */
void recorded_files_append(struct recorded_files *f, const char *path, const void *bytes, size_t size);
void recorded_files_free(struct recorded_files *f);

/* The text; processors' files of the same content become one entry. */
void recorded_files_write(struct recorded_files *f, struct str *out);
/* Make the files of a text below `root`, which is there. ERR_FORMAT names the line. */
enum err_code recorded_files_unpack(const char *text, const char *root, struct err *why);

#endif
