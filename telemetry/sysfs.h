/* telemetry/sysfs.h - small files of /proc and /sys, below a root that can be replaced (inside telemetry/).
 *
 * `root` is "" for this machine or a folder holding recorded proc/ and sys/. Nothing here is an error: a file
 * that is absent, unreadable or garbage gives -1, NAN or nothing. */
#ifndef QDYNO_TELEMETRY_SYSFS_H
#define QDYNO_TELEMETRY_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* The file's first size-1 bytes, NUL-terminated, trailing white space removed. Returns their number, or -1
 * (and buf "") when it cannot be read. */
int sys_read(const char *root, char *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same of a file that is no text: nothing is removed or added. */
int sys_read_bytes(const char *root, void *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The whole file, NUL-terminated (free()), at most `limit` bytes; NULL (and *why, which may be NULL)
 * otherwise. */
char *sys_read_all(const char *root, const char *path, size_t limit, struct err *why);

/* A file holding one number; NAN otherwise. */
double sys_number(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A file holding one whole number; -1 otherwise. */
int64_t sys_integer(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool sys_exists(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Names in a folder that start with `prefix`, in natural order (cpu2 before cpu10). */
enum { SYS_NAME = 64, SYS_LIST = 64 };
struct sys_list {
    int count; /* at most SYS_LIST; the rest is left out */
    char name[SYS_LIST][SYS_NAME];
};
void sys_list(struct sys_list *out, const char *root, const char *prefix, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The file is there but this process may not read it. */
bool sys_denied(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* While one is set, it hears of every file of *this machine* (root "") that the calling thread reads or finds
 * through these functions: how a machine is recorded (recording.h). The bytes are those that were read, at
 * times only the first of them. NULL: nobody listens. The one variable of ours that is not passed as an
 * argument: it would be one more on every function of every source, for the sake of a single caller. */
struct sys_observer {
    void *ctx;
    void (*read)(void *ctx, const char *path, const void *bytes, size_t n);
    void (*seen)(void *ctx, const char *path, bool folder);
};
void sys_observe(const struct sys_observer *observer);
/* For a reader of a large file that keeps little of it: tell the observer only that. */
void sys_observed(const char *root, const char *path, const void *bytes, size_t n);

/* How many processors a list such as "0-3,8,10-11" names; 0 when it names none, -1 when it is no such list.
 */
int sys_cpulist_count(const char *list);
/* The same, and the first `max` of their numbers. */
enum { SYS_CPUS = 1024 };
int sys_cpulist(const char *list, int *cpu, int max);

/* The number behind `key` at the start of a line, as in "MemTotal:  123 kB"; NAN when there is none. */
double sys_field(const char *text, const char *key);

/* The text behind "key<blanks>:" or "key=" at the start of a line, into buf; false (and "") when absent. */
bool sys_text_field(const char *text, const char *key, char *buf, size_t size);

/* A counter read twice gives a rate. {0} has no first reading yet. */
struct rate {
    double value;
    int64_t t_ns;
    bool known;
};
/* Increase per second since the previous call. NAN on the first call, when the counter is NAN or negative
 * (starts over),
 * or when it went backwards and `wrap` (the counter's range, 0: none) cannot explain it. */
double rate_next(struct rate *r, double counter, double wrap, int64_t now_ns);

#endif
