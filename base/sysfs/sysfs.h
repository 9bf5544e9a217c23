/* base/sysfs/sysfs.h - reads small files of /proc and /sys, and walks control groups, below a root
 * folder that can be replaced.
 *
 * `root` is "" for this machine, or a folder that holds recorded proc/ and sys/ trees. No function here
 * reports an error: for a file that is absent, unreadable or malformed it returns -1, NAN or false. */
#ifndef QDYNO_TELEMETRY_SYSFS_H
#define QDYNO_TELEMETRY_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* ---------------------------------------------------------------- files */

/* This file marks a root folder as a recording. Counters in a recording never advance, so the sensors report
 * no rates there. */
#define RECORDING_ABOUT "recording.json"

/* Reads the file's first size-1 bytes into buf, terminates them with NUL and removes trailing white space.
 * Returns the number of bytes left, or -1 (and buf "") when the file cannot be read. */
int sys_read(const char *root, char *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Reads at most `size` bytes of a binary file. Returns how many, or -1 when the file cannot be read. */
int sys_read_bytes(const char *root, void *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Reads the whole file, NUL-terminated; the caller frees it. Returns NULL and fills *why (which may be NULL)
 * when the file cannot be read, is longer than `limit` bytes, or memory runs out. */
char *sys_read_all(const char *root, const char *path, size_t limit, struct err *why);

/* A file that cannot be read counts as absent. But one that could not be opened because of a limit of open
 * files or of memory is there: returns the errno of the latest such failure on this thread, 0: none, and
 * forgets it. */
int sys_starved(void);

/* The one number in a file; NAN when there is none. */
double sys_number(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The one whole number in a file; -1 when there is none. */
int64_t sys_integer(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool sys_exists(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The names in a folder that start with `prefix`, in natural order (cpu2 before cpu10). */
enum { SYS_NAME = 64, SYS_LIST = 64 };
struct sys_list {
    int count; /* at most SYS_LIST; further names are dropped */
    char name[SYS_LIST][SYS_NAME];
};
void sys_list(struct sys_list *out, const char *root, const char *prefix, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* True when the file exists but this process has no permission to read it. */
bool sys_denied(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An observer is called for every file of this machine (root "") that the calling thread reads or finds with
 * the functions above. This is how a machine is recorded (telemetry/recording). `bytes` are the bytes that
 * were read, which may be only the beginning of the file. NULL removes the observer.
 *
 * The observer is the only thread-local variable of the program: passing it as an argument would add one
 * parameter to every function of every sensor for the sake of one caller. */
struct sys_observer {
    void *ctx;
    void (*read)(void *ctx, const char *path, const void *bytes, size_t n);
    void (*seen)(void *ctx, const char *path, bool folder);
};
void sys_observe(const struct sys_observer *observer);
/* Reports n bytes of `path` to the observer. For code that reads a large file itself and needs only a small
 * part of it recorded. */
void sys_observed(const char *root, const char *path, const void *bytes, size_t n);

/* ---------------------------------------------------------------- parsing */

/* How many processors a list such as "0-3,8,10-11" names. 0: an empty list. -1: not a processor list. */
int sys_cpulist_count(const char *list);
/* Like sys_cpulist_count; also writes the first `max` processor numbers to cpu[]. */
enum { SYS_CPUS = 1024 };
int sys_cpulist(const char *list, int *cpu, int max);

/* The number after `key` at the start of a line, as in "MemTotal:  123 kB". NAN when there is none. */
double sys_field(const char *text, const char *key);

/* Memory of a process in bytes. NAN: unknown, also for one that has ended, even if nobody has waited for it.
 */
struct process_memory {
    double peak_bytes, rss_bytes;
};
struct process_memory sys_process_memory(const char *root, int pid); /* pid 0: this process */

/* Copies the text after "key<blanks>:" or "key=" at the start of a line to buf. Returns false, and buf "",
 * when no line starts so. */
bool sys_text_field(const char *text, const char *key, char *buf, size_t size);

/* The last reading of a counter, from which rate_next computes a rate. {0}: not read yet. */
struct rate {
    double value;
    int64_t t_ns;
    bool known;
};
/* Increase per second of the counter since the previous call. NAN on the first call, when `counter` is NAN or
 * negative (then the next call is a first call again), and when the counter decreased and a wrap-around
 * cannot explain that. `wrap` is the counter's range; 0: it does not wrap. */
double rate_next(struct rate *r, double counter, double wrap, int64_t now_ns);

/* ---------------------------------------------------------------- control groups */

/* /proc/meminfo and nproc describe the host. The limit that throttles or kills a process in a container is
 * set in one of its control groups, at any level: in version 2 in one tree, in version 1 in one tree per
 * controller. Inside a container the path in /proc/PID/cgroup may not exist below /sys/fs/cgroup, because the
 * container's own group is mounted as the top; so cgroup_walk visits every level from that path to the top.
 */
enum { CGROUP_PATH = 640 };
struct cgroup {
    const char *root;
    int version;            /* 1 or 2 */
    char path[CGROUP_PATH]; /* below the root: "/sys/fs/cgroup/memory/docker/1f3…" */
};

/* Calls level(ctx, group) for each level of the tree that may hold `controller` ("memory" "cpu" "cpuset"
 * "cpuacct"), from the process's own group up to the top. In version 2 all controllers share one tree, and a
 * level without this controller simply has none of its files. pid 0: this process, or in a recording the
 * process that recorded. */
void cgroup_walk(const char *root, int pid, const char *controller,
                 void (*level)(void *ctx, const struct cgroup *g), void *ctx);

int64_t cgroup_memory_limit(const struct cgroup *g); /* bytes; -1: no limit */
int64_t cgroup_memory_used(const struct cgroup *g);  /* bytes; -1: unknown */
double cgroup_cpu_limit(const struct cgroup *g);     /* processors that the quota allows; NAN: no quota */

#endif
