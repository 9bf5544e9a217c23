/* A rank's side: loads the module for MPI, receives commands, and answers them together with the others.
 *
 * Between commands a rank must not use its processor: the other arm of an experiment may be running there.
 * Rank 0 sleeps in the kernel until the leader writes. MPI libraries only wait by polling, so the other ranks
 * poll without pause for a moment (the next decode step comes soon), and then with pauses. */
#include "engine/parallel/parallel_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { TAG_COMMAND = 1, TAG_DATA = 3, TAG_ALIVE = 4, TAG_DONE = 5, MESSAGE_MAX = 1 << 28 };
enum { SPIN_NS = 1000000, SHORT_NS = 50000000, ALIVE_NS = 1000000000 };
enum { PAUSE_SHORT_NS = 50000, PAUSE_LONG_NS = 1000000 };

/* The shortest exchange of one kind and size so far. */
enum exchange { EXCHANGE_ALL_GATHER, EXCHANGE_GATHER, EXCHANGE_SEND, EXCHANGES };
struct fastest {
    int64_t bytes, ns;
};
enum { SIZES = 61 }; /* a prime: sizes are multiples of powers of two, and few different ones occur */

/* The module needs it, but is not linked to it. */
#ifdef QDYNO_MPI_LIBRARY
static const char MPI_LIBRARY[] = QDYNO_MPI_LIBRARY;
#else
static const char MPI_LIBRARY[] = "libmpi.so"; /* this build has no module either */
#endif

struct rank {
    void *library;
    const struct rank_module *module;
    struct rank_place place;
    int threads;
    int64_t start_bytes;
    const struct machine_sensors *sensors; /* borrowed; NULL: another rank of this machine reads them */
    int fd;                                /* of rank 0: the leader; -1 */
    struct str payload;
    int64_t alive_ns;
    int64_t exchange_ns, exchanged_bytes, wait_ns;
    int64_t work_ns, pass_began_ns; /* pass_began_ns 0: no pass runs */
    struct fastest fastest[EXCHANGES][SIZES];
};

const struct rank_place *rank_place(const struct rank *r)
{
    return &r->place;
}

const struct rank_module *rank_module(const struct rank *r)
{
    return r->module;
}

int64_t rank_start_bytes(const struct rank *r)
{
    return r->start_bytes;
}

/* Resident memory of this process; -1: unknown. */
static int64_t resident_bytes(void)
{
    enum { SMALL_FILE = 4096 };
    char *text;
    long long all, resident = -1;
    if (file_read(&text, NULL, "/proc/self/statm", SMALL_FILE, NULL)) return -1;
    if (sscanf(text, "%lld %lld", &all, &resident) != 2) resident = -1;
    free(text);
    return resident < 0 ? -1 : (int64_t)resident * sysconf(_SC_PAGESIZE);
}

int rank_threads(const struct rank *r)
{
    return r->threads;
}

/* ---------------------------------------------------------------- start and end */

static enum err_code load_module(struct rank *r, struct err *why)
{
    char *path, text[RANK_MODULE_TEXT] = "";
    enum err_code rc = module_path(&path, why);
    if (rc) return rc;
    if (!dlopen(MPI_LIBRARY, RTLD_NOW | RTLD_GLOBAL)) {
        free(path);
        return err_set(why, ERR_ABSENT, "cannot load the MPI library: %s", dlerror());
    }
    r->library = dlopen(path,
                        RTLD_NOW | RTLD_GLOBAL); /* Open MPI loads parts of itself that need its symbols */
    if (!r->library) rc = err_set(why, ERR_ABSENT, "cannot load the module for MPI: %s", dlerror());
    free(path);
    if (rc) return rc;
    r->module = dlsym(r->library, RANK_MODULE_SYMBOL);
    if (!r->module || r->module->version != RANK_MODULE_VERSION) {
        r->module = NULL;
        return err_set(why, ERR_ABSENT,
                       "the module for MPI is of another version of qdyno: install both together");
    }
    if (!r->module->open(&r->place, text)) return ERR_OK;
    r->module = NULL;
    return err_set(why, ERR_IO, "MPI: %s", text);
}

static enum err_code connect_leader(struct rank *r, const char *path, struct err *why)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    const struct frame hello = { .kind = FRAME_HELLO, .what = (uint32_t)r->place.size };
    if (strlen(path) >= sizeof at.sun_path) return err_set(why, ERR_USAGE, "--socket %s: too long", path);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd >= 0 && !connect(r->fd, (const struct sockaddr *)(const void *)&at, sizeof at) &&
        frame_write(r->fd, &hello, sizeof hello))
        return ERR_OK;
    return err_set(why, ERR_IO, "cannot reach the process that started the ranks at %s: %s", path,
                   strerror(errno));
}

enum err_code rank_open(struct rank **out, const char *socket_path, struct err *why)
{
    *out = NULL;
    process_die_with_parent(getppid()); /* the kernel ends this rank when mpirun is gone */
    struct rank *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory");
    r->fd = -1;
    enum err_code rc = load_module(r, why);
    if (!rc) {
        const int all = threadpool_default_threads(),
                  cores = placement_bind(r->place.here, r->place.here_size);
        r->threads = MAX(MIN(cores ? cores : all, all / r->place.here_size), 1);
        r->module->barrier(0); /* all are there */
        r->start_bytes = resident_bytes();
        if (r->place.rank == 0) rc = connect_leader(r, socket_path, why);
    }
    if (rc) {
        if (r->module) r->module->stop(1);
        free(r);
        return rc;
    }
    *out = r;
    return ERR_OK;
}

void rank_close(struct rank *r)
{
    if (!r) return;
    r->module->close();
    if (r->fd >= 0) close(r->fd);
    str_free(&r->payload);
    free(r); /* the library stays loaded: it may have threads */
}

void rank_read_sensors(const struct rank *r, struct machine_use *out)
{
    *out = (struct machine_use){ NAN, NAN, NAN, NAN, NAN, -1 };
    if (r->sensors) r->sensors->read(r->sensors->ctx, out);
}

void rank_use_sensors(struct rank *r, const struct machine_sensors *s)
{
    struct machine_use first;
    if (r->place.here) return;
    r->sensors = s;
    rank_read_sensors(r, &first);
    r->start_bytes = resident_bytes(); /* what sensors need is no part of the model's plan */
}

/* ---------------------------------------------------------------- commands */

static void wait_message(const struct rank *r)
{
    const int64_t start = clock_ns();
    while (!r->module->arrived(0, TAG_COMMAND)) {
        const int64_t waited = clock_ns() - start;
        const struct timespec pause = { .tv_nsec = waited < SHORT_NS ? PAUSE_SHORT_NS : PAUSE_LONG_NS };
        if (waited < SPIN_NS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* Room for n bytes of payload. False: out of memory. */
static bool payload_resize(struct rank *r, size_t n)
{
    static const char ZEROS[4096];
    str_clear(&r->payload);
    while (r->payload.len < n && !r->payload.failed)
        str_append_n(&r->payload, ZEROS, MIN(n - r->payload.len, sizeof ZEROS));
    return !r->payload.failed;
}

/* Read a command from the leader; one that ends everything if the leader is gone. */
static bool read_command(struct rank *r, struct frame *f)
{
    if (frame_read(r->fd, f, sizeof *f) && f->kind == FRAME_COMMAND && payload_resize(r, (size_t)f->bytes) &&
        frame_read(r->fd, r->payload.data, (size_t)f->bytes))
        return true;
    *f = (struct frame){ .kind = FRAME_COMMAND, .what = RANK_OP_CLOSE };
    return false;
}

bool rank_next(struct rank *r, struct rank_command *out)
{
    struct frame f;
    bool there = true;
    if (r->place.rank == 0) {
        there = read_command(r, &f);
        for (int i = 1; i < r->place.size; i++) {
            r->module->send(i, TAG_COMMAND, &f, (int)sizeof f);
            if (f.bytes) r->module->send(i, TAG_COMMAND, r->payload.data, (int)f.bytes);
        }
    } else {
        wait_message(r);
        r->module->receive(0, TAG_COMMAND, &f, (int)sizeof f);
        if (!payload_resize(r, (size_t)f.bytes)) r->module->stop(1);
        if (f.bytes) r->module->receive(0, TAG_COMMAND, r->payload.data, (int)f.bytes);
    }
    r->alive_ns = clock_ns();
    r->pass_began_ns = f.what == RANK_OP_FORWARD || f.what == RANK_OP_TRAIN_STEP ? r->alive_ns : 0;
    *out = (struct rank_command){ (enum rank_op)f.what, r->payload.data, (size_t)f.bytes };
    return there;
}

/* ---------------------------------------------------------------- answers */

static void forward_alive(struct rank *r);

/* What each rank says about a command. */
struct report {
    uint32_t code;
    char message[FRAME_TEXT_MAX];
};

/* Collect what all ranks say, on rank 0. NULL: it worked; else the report of the lowest rank that has an
 * error, in *all. */
static const struct report *collect_reports(struct rank *r, const struct report *mine, struct report *all)
{
    int size[RANKS_MAX], at[RANKS_MAX];
    for (int i = 0; i < r->place.size; i++) {
        size[i] = (int)sizeof *mine;
        at[i] = i * (int)sizeof *mine;
    }
    r->module->gather(0, 0, mine, (int)sizeof *mine, all, size, at);
    for (int i = 0; i < r->place.size && r->place.rank == 0; i++)
        if (all[i].code) return &all[i];
    return NULL;
}

void rank_answer(struct rank *r, const struct err *failed, const struct rank_bytes *payload, int count)
{
    struct report mine = { .code = failed ? failed->code : ERR_OK }, all[RANKS_MAX];
    if (r->pass_began_ns) r->work_ns += clock_ns() - r->pass_began_ns;
    r->pass_began_ns = 0;
    if (failed) snprintf(mine.message, sizeof mine.message, "rank %d: %s", r->place.rank, failed->message);
    const struct report *first = collect_reports(r, &mine, all);
    if (r->place.rank) return;
    forward_alive(r); /* none of them may stay behind */
    struct frame f = { .kind = FRAME_ANSWER, .what = first ? first->code : ERR_OK };
    const struct rank_bytes text = { first ? (void *)first->message : NULL,
                                     first ? strlen(first->message) : 0 };
    if (first) {
        payload = &text;
        count = 1;
    }
    for (int i = 0; i < count; i++) f.bytes += payload[i].n;
    bool there = frame_write(r->fd, &f, sizeof f); /* the end of the leader is seen at the next command */
    for (int i = 0; i < count && there; i++) there = frame_write(r->fd, payload[i].data, payload[i].n);
}

/* Counts an exchange that began at `start`; what it took longer than the fastest one was waiting
 * (rank_waited).
 */
static void count_exchange(struct rank *r, enum exchange kind, int64_t bytes, int64_t start)
{
    struct fastest *f = &r->fastest[kind][bytes % SIZES];
    const int64_t took = clock_ns() - start;
    if (f->bytes != bytes || took < f->ns) *f = (struct fastest){ bytes, took };
    r->exchange_ns += took;
    r->wait_ns += took - f->ns;
}

void rank_all_gather(struct rank *r, int group, const void *mine, int n, void *all, const int *bytes,
                     const int *at)
{
    const int64_t start = clock_ns();
    r->module->all_gather(group, mine, n, all, bytes, at);
    int64_t total = 0;
    for (int i = 0; i < r->module->group_size(group); i++) total += bytes[i];
    count_exchange(r, EXCHANGE_ALL_GATHER, total, start);
    r->exchanged_bytes += total - n;
}

void rank_gather(struct rank *r, int group, int root, const void *mine, int n, void *all, const int *bytes,
                 const int *at, bool is_root)
{
    const int64_t start = clock_ns();
    int64_t received = 0;
    r->module->gather(group, root, mine, n, all, bytes, at);
    for (int i = 0; i < r->module->group_size(group) && is_root; i++)
        if (i != root) received += bytes[i];
    count_exchange(r, is_root ? EXCHANGE_GATHER : EXCHANGE_SEND, is_root ? received : n, start);
    r->exchanged_bytes += received;
}

/* Rank 0: pass signs of life of the others on. */
static void forward_alive(struct rank *r)
{
    char sign;
    for (int i = 1; i < r->place.size; i++)
        while (r->module->arrived(i, TAG_ALIVE)) {
            r->module->receive(i, TAG_ALIVE, &sign, 1);
            rank_alive(r);
        }
}

/* Wait for a message, without the processor if another thread can use it. */
static void wait_data(struct rank *r, int from, int tag)
{
    const int64_t start = clock_ns();
    while (!r->module->arrived(from, tag)) {
        if (r->place.rank == 0) forward_alive(r);
        sched_yield();
    }
    r->wait_ns += clock_ns() - start;
}

void rank_send(struct rank *r, int to, const void *x, size_t n)
{
    const int64_t start = clock_ns();
    for (size_t at = 0; at < n; at += MESSAGE_MAX)
        r->module->send(to, TAG_DATA, (const char *)x + at, (int)MIN(n - at, (size_t)MESSAGE_MAX));
    count_exchange(r, EXCHANGE_SEND, (int64_t)n, start);
}

void rank_receive(struct rank *r, int from, void *x, size_t n)
{
    const int64_t start = clock_ns();
    for (size_t at = 0; at < n; at += MESSAGE_MAX) {
        wait_data(r, from, TAG_DATA);
        r->module->receive(from, TAG_DATA, (char *)x + at, (int)MIN(n - at, (size_t)MESSAGE_MAX));
    }
    r->exchange_ns += clock_ns() - start;
    r->exchanged_bytes += (int64_t)n;
}

void rank_join(struct rank *r)
{
    const int64_t start = clock_ns(), waited = r->wait_ns;
    char sign = 0;
    if (r->place.rank) r->module->send(0, TAG_DONE, &sign, 1);
    for (int i = 1; i < r->place.size && r->place.rank == 0; i++) {
        wait_data(r, i, TAG_DONE);
        r->module->receive(i, TAG_DONE, &sign, 1);
    }
    r->module->barrier(0);
    const int64_t took = clock_ns() - start;
    r->exchange_ns += took;
    r->wait_ns = waited + took; /* no data is exchanged here */
}

void rank_exchanged(const struct rank *r, double *seconds, int64_t *bytes)
{
    *seconds = (double)r->exchange_ns * 1e-9;
    *bytes = r->exchanged_bytes;
}

double rank_worked(const struct rank *r)
{
    return (double)r->work_ns * 1e-9;
}

double rank_waited(const struct rank *r)
{
    return (double)r->wait_ns * 1e-9;
}

void rank_alive(struct rank *r)
{
    const struct frame f = { .kind = FRAME_ALIVE };
    const char sign = 0;
    const int64_t now = clock_ns();
    if (now - r->alive_ns < ALIVE_NS) return;
    r->alive_ns = now;
    if (r->place.rank)
        r->module->send(0, TAG_ALIVE, &sign, 1);
    else
        frame_write(r->fd, &f, sizeof f);
}
