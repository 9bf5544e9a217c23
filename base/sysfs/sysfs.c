/* base/sysfs/sysfs.c - reads small files of the kernel, and parses fields and lists. */
#include "base/sysfs/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static _Thread_local const struct sys_observer *observing; /* see sysfs.h */
static _Thread_local int starved;                          /* as errno, but of sys_starved */

void sys_observe(const struct sys_observer *observer)
{
    observing = observer;
}

void sys_observed(const char *root, const char *path, const void *bytes, size_t n)
{
    if (observing && !*root) observing->read(observing->ctx, path, bytes, n);
}

static void observe_seen(const char *root, const char *path)
{
    struct stat st;
    if (observing && !*root && !stat(path, &st)) observing->seen(observing->ctx, path, S_ISDIR(st.st_mode));
}

/* A file or folder could not be opened. */
static void open_failed(void)
{
    if (err_of_errno(errno) != ERR_IO) starved = errno;
}

int sys_starved(void)
{
    const int cause = starved;
    starved = 0;
    return cause;
}

/* Writes root and formatted path to `path`. False: too long. */
static bool path_make(char path[PATH_MAX], const char *root, const char *fmt, va_list ap)
{
    int n = snprintf(path, PATH_MAX, "%s", root);
    if (n < 0 || n >= PATH_MAX) return false;
    int m = vsnprintf(path + n, (size_t)(PATH_MAX - n), fmt, ap);
    return m >= 0 && m < PATH_MAX - n;
}

/* Reads the file's first `size` bytes; returns how many, or -1. */
static int read_raw(const char *root, const char *path, void *buf, size_t size)
{
    /* O_NONBLOCK: a recording may contain a FIFO, which must not block the sampler */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        open_failed();
        return -1;
    }
    size_t len = 0;
    bool bad = false;
    while (len < size) {
        ssize_t n = read(fd, (char *)buf + len, size - len);
        if (n < 0 && errno == EINTR) continue;
        bad = n < 0; /* sysfs returns EIO, ENODATA or EBUSY for sensors that are asleep */
        if (n <= 0) break;
        len += (size_t)n;
    }
    close(fd);
    if (!bad) sys_observed(root, path, buf, len);
    return bad ? -1 : (int)len;
}

static int read_path(const char *root, const char *path, char *buf, size_t size)
{
    int len = read_raw(root, path, buf, size - 1), end = MAX(len, 0);
    while (end && isspace((unsigned char)buf[end - 1])) end--;
    buf[end] = '\0';
    return len < 0 ? -1 : end;
}

int sys_read(const char *root, char *buf, size_t size, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    buf[0] = '\0';
    return ok ? read_path(root, path, buf, size) : -1;
}

int sys_read_bytes(const char *root, void *buf, size_t size, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    return ok ? read_raw(root, path, buf, size) : -1;
}

char *sys_read_all(const char *root, const char *path, size_t limit, struct err *why)
{
    char full[PATH_MAX], *text;
    size_t n;
    snprintf(full, sizeof full, "%s%s", root, path);
    if (file_read(&text, &n, full, limit, why)) return NULL;
    sys_observed(root, path, text, n);
    return text;
}

double sys_number(const char *root, const char *fmt, ...)
{
    char path[PATH_MAX], buf[64];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    double v;
    if (!ok || read_path(root, path, buf, sizeof buf) <= 0 || !str_to_double(buf, &v) || !isfinite(v))
        return NAN;
    return v;
}

int64_t sys_integer(const char *root, const char *fmt, ...)
{
    char path[PATH_MAX], buf[64];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    int64_t v;
    if (!ok || read_path(root, path, buf, sizeof buf) <= 0 || !str_to_i64(buf, &v)) return -1;
    return v;
}

bool sys_exists(const char *root, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    const bool there = ok && !access(path, F_OK);
    if (there) observe_seen(root, path);
    return there;
}

bool sys_denied(const char *root, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    int fd = ok ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) return ok && (errno == EACCES || errno == EPERM);
    /* some files can be opened but not read: /proc/PID/io of another user's process */
    char byte;
    bool denied = read(fd, &byte, 1) < 0 && (errno == EACCES || errno == EPERM);
    close(fd);
    return denied;
}

static int by_natural_order(const void *a, const void *b)
{
    return strverscmp(a, b);
}

void sys_list(struct sys_list *out, const char *root, const char *prefix, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    bool ok = path_make(path, root, fmt, ap);
    va_end(ap);
    out->count = 0;
    DIR *dir = ok ? opendir(path) : NULL;
    if (!dir) {
        if (ok) open_failed();
        return;
    }
    for (struct dirent *e; out->count < SYS_LIST && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !str_starts(e->d_name, prefix) || strlen(e->d_name) >= SYS_NAME) continue;
        memcpy(out->name[out->count++], e->d_name, strlen(e->d_name) + 1);
    }
    closedir(dir);
    observe_seen(root, path);
    for (int i = 0; i < out->count && observing; i++) {
        char name[PATH_MAX + SYS_NAME];
        snprintf(name, sizeof name, "%s/%s", path, out->name[i]);
        observe_seen(root, name);
    }
    qsort(out->name, (size_t)out->count, sizeof out->name[0], by_natural_order);
}

int sys_cpulist(const char *list, int *cpu, int max)
{
    int count = 0;
    for (const char *p = list; *p;) {
        char *end;
        if (!isdigit((unsigned char)*p)) return -1;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-') {
            p = end + 1;
            if (!isdigit((unsigned char)*p)) return -1;
            last = strtol(p, &end, 10);
        }
        if (last < first || last > 1 << 20) return -1;
        for (long i = first; i <= last; i++, count++)
            if (count < max) cpu[count] = (int)i;
        if (*end && *end != ',') return -1;
        p = *end ? end + 1 : end;
    }
    return count;
}

int sys_cpulist_count(const char *list)
{
    return sys_cpulist(list, NULL, 0);
}

/* The rest of the line that starts with `key`, or NULL. */
static const char *line_find(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (!strncmp(line, key, n)) return line + n;
    }
    return NULL;
}

double sys_field(const char *text, const char *key)
{
    const char *p = line_find(text, key);
    if (!p) return NAN;
    while (*p == ' ' || *p == '\t' || *p == ':') p++;
    char word[48];
    size_t n = strcspn(p, " \t\n");
    if (!n || n >= sizeof word) return NAN;
    memcpy(word, p, n);
    word[n] = '\0';
    double v;
    return str_to_double(word, &v) && isfinite(v) ? v : NAN;
}

struct process_memory sys_process_memory(const char *root, int pid)
{
    enum { LIMIT = 1 << 16 };
    char path[64] = "/proc/self/status";
    if (pid) snprintf(path, sizeof path, "/proc/%d/status", pid);
    char *text = sys_read_all(root, path, LIMIT, NULL);
    const struct process_memory m = { text ? 1024 * sys_field(text, "VmHWM:") : NAN,
                                      text ? 1024 * sys_field(text, "VmRSS:") : NAN };
    free(text);
    return m;
}

bool sys_text_field(const char *text, const char *key, char *buf, size_t size)
{
    size_t n = strlen(key);
    buf[0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, n)) continue;
        const char *p = line + n + strspn(line + n, " \t");
        if (*p != ':' && *p != '=') continue; /* so that "cpu" does not match "cpu MHz" */
        p++;
        p += strspn(p, " \t\"");
        size_t len = strcspn(p, "\n");
        while (len && strchr(" \t\r\"", p[len - 1])) len--;
        snprintf(buf, size, "%.*s", (int)MIN(len, (size_t)INT_MAX), p);
        return true;
    }
    return false;
}

double rate_next(struct rate *r, double counter, double wrap, int64_t now_ns)
{
    struct rate was = *r;
    *r = (struct rate){ counter, now_ns, isfinite(counter) && counter >= 0 };
    if (!was.known || !r->known || now_ns <= was.t_ns) return NAN;
    double rise = counter - was.value;
    if (rise < 0 && wrap > 0 && was.value <= wrap) rise += wrap;
    return rise < 0 ? NAN : rise / ((double)(now_ns - was.t_ns) / 1e9);
}
