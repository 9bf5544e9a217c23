/* telemetry/recording/recording_files.h - packs many small files into one text and unpacks them (internal to
 * telemetry/recording).
 *
 *   # comment
 *   /proc/sys/kernel/ostype            one or more paths ...
 *    Linux                             ... then the lines they all contain, each after one space
 *   /sys/devices/system/cpu/cpu[0-63]/topology/physical_package_id
 *    0                                 a list in brackets stands for that many paths
 *   /sys/class/drm/card0/device/gpu_metrics
 *   :78000103...                       binary content in hex, after a colon
 *   /sys/fs/cgroup/unified/            a folder
 *
 * Recordings come from strangers: a path must lie below /proc, /sys, /etc or /usr and must not lead out. */
#ifndef QDYNO_TELEMETRY_RECORDING_FILES_H
#define QDYNO_TELEMETRY_RECORDING_FILES_H

#include "base/base.h"

struct recorded_file {
    char *path;
    char *bytes; /* NULL: a folder */
    size_t size;
};
struct recorded_files {
    struct recorded_file *file; /* [count], sorted by recorded_files_write */
    size_t count, cap;
    bool failed; /* out of memory: some files are missing */
};
/* Adds a file. If the path was added before, the first content stays, unless it is the beginning of the new
 * content. bytes NULL: the path exists, and is a folder unless content is added for it later. */
void recorded_files_add(struct recorded_files *f, const char *path, const void *bytes, size_t size);
/* Appends a part to a file, unless the file already contains it. */
void recorded_files_append(struct recorded_files *f, const char *path, const void *bytes, size_t size);
void recorded_files_free(struct recorded_files *f);

/* Appends the packed text to *out; files of several processors with the same content share one entry. */
void recorded_files_write(struct recorded_files *f, struct str *out);
/* Creates the files of a packed text below the existing folder `root`. ERR_FORMAT names the bad line. */
enum err_code recorded_files_unpack(const char *text, const char *root, struct err *why);

#endif
