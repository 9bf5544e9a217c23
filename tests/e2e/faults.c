/* A system that fails once: preloaded into qdyno (LD_PRELOAD), it counts the calls of one class of functions,
 * and lets the call with a given number fail as the system would: the error value, and errno of the
 * function's row. All other calls are passed on.
 *
 *   FAULT_LOG=FILE         where counts and the fault are recorded; without it nothing is counted
 *   FAULT_CLASS=alloc      which functions: a name of CLASSES
 *   FAULT_AT=N             the N-th call of the class fails, once for all processes; 0: none
 *   FAULT_ERRNO=N          with this errno instead of the function's own
 *   FAULT_IN=parent        the process that counts: parent, or worker (`qdyno worker`)
 *   FAULT_FROM=qdyno       who calls: the file name of the program or a library begins so, e.g. libsqlite3
 *
 * FILE begins with one struct record; the stack of the call that failed follows as text. If a process dies of
 * a signal that tells of a fault in the program, FILE.crash gets the signal's number and the stack. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum class { ALLOC, OPEN, READ, WRITE, SYNC, RENAME, PROCESS, CONNECT, MAP, THREAD, CLASS_COUNT };
static const char *const CLASSES[CLASS_COUNT] = { "alloc",  "open",    "read",    "write", "sync",
                                                  "rename", "process", "connect", "map",   "thread" };

/* name, class, errno of the fault, the value it returns, type of the result, parameters, arguments */
#define FUNCTIONS(X)                                                                                         \
    X(malloc, ALLOC, ENOMEM, NULL, void *, (size_t n), (n))                                                  \
    X(calloc, ALLOC, ENOMEM, NULL, void *, (size_t n, size_t size), (n, size))                               \
    X(realloc, ALLOC, ENOMEM, NULL, void *, (void *p, size_t n), (p, n))                                     \
    X(reallocarray, ALLOC, ENOMEM, NULL, void *, (void *p, size_t n, size_t size), (p, n, size))             \
    X(aligned_alloc, ALLOC, ENOMEM, NULL, void *, (size_t align, size_t n), (align, n))                      \
    X(strdup, ALLOC, ENOMEM, NULL, char *, (const char *text), (text))                                       \
    X(strndup, ALLOC, ENOMEM, NULL, char *, (const char *text, size_t n), (text, n))                         \
    X(newlocale, ALLOC, ENOMEM, NULL, locale_t, (int mask, const char *name, locale_t base),                 \
      (mask, name, base))                                                                                    \
    X(fdopen, OPEN, ENOMEM, NULL, FILE *, (int fd, const char *mode), (fd, mode))                            \
    X(fopen, OPEN, EMFILE, NULL, FILE *, (const char *path, const char *mode), (path, mode))                 \
    X(opendir, OPEN, EMFILE, NULL, DIR *, (const char *path), (path))                                        \
    X(mkostemp, OPEN, ENOSPC, -1, int, (char *path, int flags), (path, flags))                               \
    X(mkdtemp, OPEN, ENOSPC, NULL, char *, (char *path), (path))                                             \
    X(read, READ, EIO, -1, ssize_t, (int fd, void *to, size_t n), (fd, to, n))                               \
    X(pread, READ, EIO, -1, ssize_t, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))                \
    X(pread64, READ, EIO, -1, ssize_t, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))            \
    X(recv, READ, ECONNRESET, -1, ssize_t, (int fd, void *to, size_t n, int flags), (fd, to, n, flags))      \
    X(stat, READ, EIO, -1, int, (const char *path, struct stat *to), (path, to))                             \
    X(lstat, READ, EIO, -1, int, (const char *path, struct stat *to), (path, to))                            \
    X(fstat, READ, EIO, -1, int, (int fd, struct stat *to), (fd, to))                                        \
    X(readlink, READ, EIO, -1, ssize_t, (const char *path, char *to, size_t n), (path, to, n))               \
    X(write, WRITE, ENOSPC, -1, ssize_t, (int fd, const void *from, size_t n), (fd, from, n))                \
    X(pwrite, WRITE, ENOSPC, -1, ssize_t, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at)) \
    X(pwrite64, WRITE, ENOSPC, -1, ssize_t, (int fd, const void *from, size_t n, off64_t at),                \
      (fd, from, n, at))                                                                                     \
    X(send, WRITE, ECONNRESET, -1, ssize_t, (int fd, const void *from, size_t n, int flags),                 \
      (fd, from, n, flags))                                                                                  \
    X(fsync, SYNC, EIO, -1, int, (int fd), (fd))                                                             \
    X(fdatasync, SYNC, EIO, -1, int, (int fd), (fd))                                                         \
    X(ftruncate, SYNC, ENOSPC, -1, int, (int fd, off_t size), (fd, size))                                    \
    X(ftruncate64, SYNC, ENOSPC, -1, int, (int fd, off64_t size), (fd, size))                                \
    X(flock, SYNC, ENOLCK, -1, int, (int fd, int how), (fd, how))                                            \
    X(rename, RENAME, EIO, -1, int, (const char *from, const char *to), (from, to))                          \
    X(link, RENAME, EIO, -1, int, (const char *from, const char *to), (from, to))                            \
    X(unlink, RENAME, EIO, -1, int, (const char *path), (path))                                              \
    X(unlinkat, RENAME, EIO, -1, int, (int dir, const char *path, int flags), (dir, path, flags))            \
    X(remove, RENAME, EIO, -1, int, (const char *path), (path))                                              \
    X(mkdir, RENAME, ENOSPC, -1, int, (const char *path, mode_t mode), (path, mode))                         \
    X(chmod, RENAME, EPERM, -1, int, (const char *path, mode_t mode), (path, mode))                          \
    X(fchmod, RENAME, EPERM, -1, int, (int fd, mode_t mode), (fd, mode))                                     \
    X(fork, PROCESS, EAGAIN, -1, pid_t, (void), ())                                                          \
    X(pipe2, PROCESS, EMFILE, -1, int, (int pair[2], int flags), (pair, flags))                              \
    X(socketpair, PROCESS, EMFILE, -1, int, (int family, int type, int protocol, int pair[2]),               \
      (family, type, protocol, pair))                                                                        \
    X(dup2, PROCESS, EMFILE, -1, int, (int from, int to), (from, to))                                        \
    X(execv, PROCESS, ENOMEM, -1, int, (const char *path, char *const argv[]), (path, argv))                 \
    X(eventfd, PROCESS, EMFILE, -1, int, (unsigned n, int flags), (n, flags))                                \
    X(epoll_create1, PROCESS, EMFILE, -1, int, (int flags), (flags))                                         \
    X(signalfd, PROCESS, EMFILE, -1, int, (int fd, const sigset_t *set, int flags), (fd, set, flags))        \
    X(socket, CONNECT, EMFILE, -1, int, (int family, int type, int protocol), (family, type, protocol))      \
    X(connect, CONNECT, ECONNREFUSED, -1, int, (int fd, const struct sockaddr *to, socklen_t n),             \
      (fd, to, n))                                                                                           \
    X(bind, CONNECT, EADDRINUSE, -1, int, (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n))     \
    X(listen, CONNECT, EADDRINUSE, -1, int, (int fd, int backlog), (fd, backlog))                            \
    X(accept4, CONNECT, EMFILE, -1, int, (int fd, struct sockaddr *from, socklen_t *n, int flags),           \
      (fd, from, n, flags))                                                                                  \
    X(mmap, MAP, ENOMEM, MAP_FAILED, void *,                                                                 \
      (void *at, size_t n, int prot, int flags, int fd, off_t offset), (at, n, prot, flags, fd, offset))     \
    X(mmap64, MAP, ENOMEM, MAP_FAILED, void *,                                                               \
      (void *at, size_t n, int prot, int flags, int fd, off64_t offset), (at, n, prot, flags, fd, offset))   \
    X(madvise, MAP, EINVAL, -1, int, (void *at, size_t n, int advice), (at, n, advice))

struct record {
    _Atomic uint64_t calls[CLASS_COUNT]; /* the most that one process made */
    _Atomic uint64_t failed;             /* 1: a call has failed */
    _Atomic int64_t error;               /* the errno it had */
    char function[32];                   /* its name */
};

static struct {
    struct record *record; /* NULL: calls of this process do not count */
    int log_fd;
    int class;
    int error; /* 0: the function's own */
    uint64_t at;
    struct range {
        uintptr_t start, end;
    } from[16];
    int ranges;
    _Atomic uint64_t calls[CLASS_COUNT];
} faults = { .log_fd = -1, .class = -1 };

static _Thread_local bool recording; /* what recording a fault calls does not count */

static void fault_record(const char *function, int error)
{
    void *stack[24];
    recording = true;
    atomic_store(&faults.record->error, error < 0 ? ENOMEM : error); /* vasprintf returns -1 */
    snprintf(faults.record->function, sizeof faults.record->function, "%s", function);
    backtrace_symbols_fd(stack, backtrace(stack, 24), faults.log_fd);
    recording = false;
}

/* Shall this call, which returns to `caller`, fail? Counts it; sets errno when it fails. */
static bool fault(enum class class, const char *function, int error, const void *caller)
{
    if (!faults.record || recording) return false;
    bool ours = false;
    for (int i = 0; i < faults.ranges; i++)
        ours = ours || ((uintptr_t)caller >= faults.from[i].start && (uintptr_t)caller < faults.from[i].end);
    if (!ours) return false;
    const uint64_t n = atomic_fetch_add(&faults.calls[class], 1) + 1;
    uint64_t most = atomic_load(&faults.record->calls[class]);
    while (n > most && !atomic_compare_exchange_weak(&faults.record->calls[class], &most, n)) continue;
    if ((int)class != faults.class || n != faults.at) return false;
    if (atomic_exchange(&faults.record->failed, 1)) return false; /* another process was first */
    if (faults.error) error = faults.error;
    fault_record(function, error);
    errno = error;
    return true;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* Sets next to the next function of that name. Looked up once: a race finds it twice. */
#define NEXT(name)                                                                                           \
    static typeof(name) *next;                                                                               \
    if (!next) next = (typeof(next))dlsym(RTLD_NEXT, #name)

#define WRAP(name, class, error, value, type, parameters, arguments)                                         \
    type name parameters                                                                                     \
    {                                                                                                        \
        NEXT(name);                                                                                          \
        if (!fault(class, #name, error, CALLER)) return next arguments;                                      \
        return value;                                                                                        \
    }
FUNCTIONS(WRAP)

/* Those that return the error, not errno. */
#define RETURNS_ERROR(X)                                                                                     \
    X(pthread_create, THREAD, EAGAIN,                                                                        \
      (pthread_t * out, const pthread_attr_t *how, void *(*run)(void *), void *arg), (out, how, run, arg))   \
    X(posix_spawnp, PROCESS, EAGAIN,                                                                         \
      (pid_t * out, const char *file, const posix_spawn_file_actions_t *files, const posix_spawnattr_t *how, \
       char *const argv[], char *const env[]),                                                               \
      (out, file, files, how, argv, env))                                                                    \
    X(__vasprintf_chk, ALLOC, -1, (char **out, int flag, const char *format, va_list ap),                    \
      (out, flag, format, ap))
int __vasprintf_chk(char **out, int flag, const char *format, va_list ap);
#define WRAP_RETURNS_ERROR(name, class, error, parameters, arguments)                                        \
    int name parameters                                                                                      \
    {                                                                                                        \
        NEXT(name);                                                                                          \
        return fault(class, #name, (error), CALLER) ? (error) : next arguments;                              \
    }
RETURNS_ERROR(WRAP_RETURNS_ERROR)

/* Those with one optional argument: a mode, a number or an address. */
#define OPTIONAL(X)                                                                                          \
    X(open, OPEN, EMFILE, (const char *path, int flags, ...), flags, (path, flags, last))                    \
    X(open64, OPEN, EMFILE, (const char *path, int flags, ...), flags, (path, flags, last))                  \
    X(openat, OPEN, EMFILE, (int dir, const char *path, int flags, ...), flags, (dir, path, flags, last))
#define WRAP_OPTIONAL(name, class, error, parameters, before, arguments)                                     \
    int name parameters                                                                                      \
    {                                                                                                        \
        va_list ap;                                                                                          \
        va_start(ap, before);                                                                                \
        const mode_t last = (before & (O_CREAT | __O_TMPFILE)) ? va_arg(ap, mode_t) : 0;                     \
        va_end(ap);                                                                                          \
        NEXT(name);                                                                                          \
        if (!fault(class, #name, error, CALLER)) return next arguments;                                      \
        return -1;                                                                                           \
    }
OPTIONAL(WRAP_OPTIONAL)

/* A call with F_SETLK, too, which sets the locks of SQLite and ours. */
int fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *last = va_arg(ap, void *);
    va_end(ap);
    NEXT(fcntl);
    const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC, locks = command == F_OFD_SETLK;
    if (copies && fault(PROCESS, "fcntl", EMFILE, CALLER)) return -1;
    if (locks && fault(SYNC, "fcntl", ENOLCK, CALLER)) return -1;
    return next(fd, command, last);
}

/* Streams keep the error, as those of the C library do: its flag has no other setter. */
static void stream_fail(FILE *f)
{
    f->_flags |= 0x20; /* _IO_ERR_SEEN of glibc, which ferror tests */
}

size_t fread(void *to, size_t size, size_t n, FILE *f)
{
    NEXT(fread);
    if (!fault(READ, "fread", EIO, CALLER)) return next(to, size, n, f);
    stream_fail(f);
    return 0;
}

char *fgets(char *to, int n, FILE *f)
{
    NEXT(fgets);
    if (!fault(READ, "fgets", EIO, CALLER)) return next(to, n, f);
    stream_fail(f);
    return NULL;
}

struct dirent *readdir(DIR *dir)
{
    NEXT(readdir);
    if (!fault(READ, "readdir", EIO, CALLER)) return next(dir);
    return NULL;
}

size_t fwrite(const void *from, size_t size, size_t n, FILE *f)
{
    NEXT(fwrite);
    if (!fault(WRITE, "fwrite", ENOSPC, CALLER)) return next(from, size, n, f);
    stream_fail(f);
    return 0;
}

int fputs(const char *text, FILE *f)
{
    NEXT(fputs);
    if (!fault(WRITE, "fputs", ENOSPC, CALLER)) return next(text, f);
    stream_fail(f);
    return EOF;
}

int fflush(FILE *f)
{
    NEXT(fflush);
    if (!f || !fault(WRITE, "fflush", ENOSPC, CALLER)) return next(f);
    stream_fail(f);
    return EOF;
}

/* It fails as close(2) does on a network file system: the stream is gone. */
int fclose(FILE *f)
{
    NEXT(fclose);
    const int rc = next(f);
    if (!fault(WRITE, "fclose", ENOSPC, CALLER)) return rc;
    return EOF;
}

static const char *text_of(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return text && *text ? text : otherwise;
}

/* Called for the program first, then for each library. */
static int add_range(struct dl_phdr_info *info, size_t size, void *count)
{
    char program[4096], names[256], *rest = names, *one;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    const char *path = (*(int *)count)++ ? info->dlpi_name : program, *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    bool wanted = false;
    (void)size;
    snprintf(names, sizeof names, "%s", text_of("FAULT_FROM", "qdyno"));
    while ((one = strsep(&rest, ","))) wanted = wanted || !strncmp(file, one, strlen(one));
    for (int i = 0; wanted && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        if (faults.ranges == (int)(sizeof faults.from / sizeof faults.from[0])) abort();
        const uintptr_t start = (uintptr_t)info->dlpi_addr + p->p_vaddr;
        faults.from[faults.ranges++] = (struct range){ start, start + p->p_memsz };
    }
    return 0;
}

static char crash_path[4096];

/* Records where a process crashed, and lets it die of the signal. A crash may be hidden otherwise: a worker's
 * death is an error of the cell, not of the program. */
static void on_crash(int signal_number)
{
    void *stack[32];
    char line[32];
    recording = true;
    const int fd = open(crash_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int n = snprintf(line, sizeof line, "signal %d\n", signal_number);
    if (fd >= 0 && write(fd, line, (size_t)n) == n) backtrace_symbols_fd(stack, backtrace(stack, 32), fd);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A sanitizer's own handler stays. SIGBUS is the program's (base/map_guard.c). */
static void crashes_record(const char *log)
{
    static const int SIGNALS[] = { SIGSEGV, SIGABRT, SIGFPE, SIGILL };
    snprintf(crash_path, sizeof crash_path, "%s.crash", log);
    for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++) {
        struct sigaction now;
        const struct sigaction act = { .sa_handler = on_crash, .sa_flags = SA_NODEFER };
        if (!sigaction(SIGNALS[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(SIGNALS[i], &act, NULL);
    }
}

/* Its argument list: `qdyno worker ...` is a worker, all other is a parent. */
__attribute__((constructor)) static void faults_start(int argc, char **argv)
{
    const char *log = getenv("FAULT_LOG"), *class = text_of("FAULT_CLASS", "alloc");
    const bool worker = argc > 1 && !strcmp(argv[1], "worker");
    void *stack[1];
    int count = 0;
    if (!log) return;
    crashes_record(log);
    backtrace(stack, 1); /* loads its library now, not in the middle of a fault */
    if (worker != !strcmp(text_of("FAULT_IN", "parent"), "worker")) return;
    for (int i = 0; i < CLASS_COUNT; i++)
        if (!strcmp(class, CLASSES[i])) faults.class = i;
    faults.at = strtoull(text_of("FAULT_AT", "0"), NULL, 10);
    faults.error = (int)strtol(text_of("FAULT_ERRNO", "0"), NULL, 10);
    dl_iterate_phdr(add_range, &count);
    const int fd = open(log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    faults.log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900); /* out of the way of the program's own */
    close(fd);
    struct stat st;
    if (faults.class < 0 || faults.log_fd < 0 || fstat(faults.log_fd, &st) ||
        (st.st_size < (off_t)sizeof *faults.record && ftruncate(faults.log_fd, sizeof *faults.record)))
        abort();
    void *record = mmap(NULL, sizeof *faults.record, PROT_READ | PROT_WRITE, MAP_SHARED, faults.log_fd, 0);
    if (record == MAP_FAILED) abort();
    faults.record = record;
}
