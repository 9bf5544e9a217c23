/* base/map_guard.c - a list of guarded mappings that a signal handler can read: nodes are never freed, only
 * used again, and their atomic fields carry a version, which is odd while they change. The list and the
 * handler are process-wide state, because a signal handler gets no argument. */
#include "base/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"

struct map_guard {
    struct map_guard *next; /* does not change once the guard is in the list */
    atomic_uint version;
    atomic_uintptr_t from;
    atomic_size_t bytes; /* 0: guards nothing */
    atomic_bool damaged;
    atomic_bool reported;
    /* under LIST.lock: */
    bool shorter; /* the file was shorter than the mapping when the guard was removed */
    int fd;
    char *path; /* also kept after the removal, until a damaged file is reported; NULL: the node is free */
};

static struct {
    pthread_mutex_t lock; /* of those who change the list */
    _Atomic(struct map_guard *) first;
    struct sigaction before;
    uintptr_t page;
} LIST = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---------------------------------------------------------------- the handler */

/* Whether `at` is in the mapping; *end is where it ends. A guard that changes meanwhile is of another mapping
 * than the one whose bytes a thread reads. */
static bool guard_has(struct map_guard *g, uintptr_t at, uintptr_t *end)
{
    const unsigned version = atomic_load(&g->version);
    const uintptr_t from = atomic_load(&g->from);
    const size_t bytes = atomic_load(&g->bytes);
    *end = from + bytes;
    return !(version & 1) && at >= from && at < *end && version == atomic_load(&g->version);
}

/* Replaces the pages from `at` to the end of its mapping by zeros. False: nobody guards this address. */
static bool replace_pages(uintptr_t at)
{
    uintptr_t end;
    struct map_guard *g = atomic_load(&LIST.first);
    while (g && !guard_has(g, at, &end)) g = g->next;
    if (!g) return false;
    const uintptr_t page = at & ~(LIST.page - 1);
    atomic_store(&g->damaged, true); /* before any thread can read the zeros */
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                -1, 0) != MAP_FAILED;
}

static uintptr_t hex_read(const char **text)
{
    static const char DIGITS[] = "0123456789abcdef";
    uintptr_t n = 0;
    for (const char *d; **text && (d = strchr(DIGITS, **text)); (*text)++)
        n = n * 16 + (uintptr_t)(d - DIGITS);
    return n;
}

/* The path in a line of /proc/PID/maps ("from-end rwxp offset device inode path") if its range has `at`. */
static const char *line_path(const char *line, uintptr_t at)
{
    const uintptr_t from = hex_read(&line);
    if (*line == '-') line++;
    return at >= from && at < hex_read(&line) ? strchr(line, '/') : NULL;
}

/* Says which file is mapped at `at`; nothing if none is. Makes only calls that a signal handler may make. */
static void name_file(uintptr_t at)
{
    static const char BEFORE[] = "qdyno: '",
                      AFTER[] = "' became shorter while it was mapped, or could not be "
                                "read: what is stored stays; run again when nothing "
                                "else writes to this file\n";
    char line[4400], c; /* longer than any path */
    const char *path = NULL;
    size_t n = 0;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (!path && read(fd, &c, 1) == 1) {
        line[n] = c == '\n' ? '\0' : c >= ' ' && c <= '~' ? c : '?'; /* nothing that commands a terminal */
        if (c == '\n') path = line_path(line, at);
        n = c == '\n' ? 0 : MIN(n + 1, sizeof line - 1);
    }
    close(fd);
    if (!path) return;
    const struct iovec text[] = { { (void *)(uintptr_t)BEFORE, sizeof BEFORE - 1 },
                                  { (void *)(uintptr_t)path, strlen(path) },
                                  { (void *)(uintptr_t)AFTER, sizeof AFTER - 1 } };
    (void)!writev(STDERR_FILENO, text, COUNT_OF(text));
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    const int error = errno;
    const bool sent = info->si_code <= 0; /* by a process; a fault has a positive code */
    if (sent || !replace_pages((uintptr_t)info->si_addr)) {
        if (!sent) name_file((uintptr_t)info->si_addr);
        sigaction(signal_number, &LIST.before, NULL); /* then the instruction faults again */
        if (sent) raise(signal_number);
    }
    errno = error;
}

void map_guard_install(void)
{
    struct sigaction act = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigemptyset(&act.sa_mask);
    LIST.page = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &act, &LIST.before);
}

/* ---------------------------------------------------------------- the list */

static void guard_set(struct map_guard *g, uintptr_t from, size_t bytes)
{
    atomic_fetch_add(&g->version, 1);
    atomic_store(&g->from, from);
    atomic_store(&g->bytes, bytes);
    atomic_fetch_add(&g->version, 1);
}

static struct map_guard *free_guard(void)
{
    struct map_guard *g = atomic_load(&LIST.first);
    while (g && g->path) g = g->next;
    if (g || !(g = calloc(1, sizeof *g))) return g;
    g->next = atomic_load(&LIST.first);
    atomic_store(&LIST.first, g);
    return g;
}

struct map_guard *map_guard_add(const void *data, size_t bytes, int fd, const char *path)
{
    char *copy = strdup(path);
    if (!copy) return NULL;
    pthread_mutex_lock(&LIST.lock);
    struct map_guard *g = free_guard();
    if (g) {
        g->path = copy;
        g->fd = fd;
        g->shorter = false;
        atomic_store(&g->damaged, false);
        atomic_store(&g->reported, false);
        guard_set(g, (uintptr_t)data, bytes);
    } else {
        free(copy);
    }
    pthread_mutex_unlock(&LIST.lock);
    return g;
}

/* Whether the file is now shorter than its mapping. */
static bool is_shorter(const struct map_guard *g)
{
    struct stat st;
    return !fstat(g->fd, &st) && (uint64_t)st.st_size < atomic_load(&g->bytes);
}

static void forget(struct map_guard *g)
{
    free(g->path);
    g->path = NULL;
}

void map_guard_remove(struct map_guard *g)
{
    if (!g) return;
    pthread_mutex_lock(&LIST.lock);
    g->shorter = is_shorter(g);
    guard_set(g, 0, 0);
    if (atomic_load(&g->reported) || !(g->shorter || atomic_load(&g->damaged))) forget(g);
    pthread_mutex_unlock(&LIST.lock);
}

bool map_guard_is_damaged(const struct map_guard *g)
{
    return atomic_load_explicit(&g->damaged, memory_order_acquire);
}

const char *map_guard_path(const struct map_guard *g)
{
    return g->path;
}

void map_guard_set_reported(struct map_guard *g)
{
    atomic_store(&g->reported, true);
}

/* ---------------------------------------------------------------- files that no message named */

static enum err_code find_unreported(bool read, struct err *why)
{
    enum err_code rc = ERR_OK;
    pthread_mutex_lock(&LIST.lock);
    for (struct map_guard *g = atomic_load(&LIST.first); g && !rc; g = g->next) {
        if (!g->path || atomic_load(&g->reported)) continue;
        const bool guards = atomic_load(&g->bytes), damaged = atomic_load(&g->damaged),
                   shorter = guards ? is_shorter(g) : g->shorter;
        if (!damaged && (read || !shorter)) continue;
        rc = err_set(why, ERR_FORMAT,
                     shorter ? "'%s': the file became shorter while it was in use: run again when nothing "
                               "writes to it"
                             : "'%s': a part of the file could not be read: run again when nothing writes "
                               "to it, and check the disk",
                     g->path);
        atomic_store(&g->reported, true);
        if (!guards) forget(g);
    }
    pthread_mutex_unlock(&LIST.lock);
    return rc;
}

enum err_code map_guard_explain(struct err *why)
{
    return find_unreported(false, why);
}

enum err_code map_guard_confess(struct err *why)
{
    return find_unreported(true, why);
}
