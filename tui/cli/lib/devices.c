/* tui/cli/lib/devices.c - see devices.h. */
#include "tui/cli/lib/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/doctor/doctor.h"
#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"

const double DEVICES_SECONDS = 20;
static const double COMPILE_SECONDS = 120; /* for compiling the measurement kernels */
enum { CEILINGS_OF_A_DEVICE = sizeof(struct device_ceilings) / sizeof(double) };

/* ---------------------------------------------------------------- the child process */

/* Work for the child process: run() fills out[size] from `ask`. */
struct child_task {
    enum err_code (*run)(void *out, const void *ask, struct err *why);
    const void *ask;
    void *out;
    size_t size;
    double seconds; /* time limit */
    const char *what;
};

static bool send_all(int fd, const void *from, size_t size)
{
    for (const char *p = from; size;) {
        const ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* Returns false at the end of file and after the deadline. */
static bool receive_all(int fd, void *to, size_t size, int64_t deadline_ns)
{
    for (char *p = to; size;) {
        const int64_t left_ns = deadline_ns - clock_ns();
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (left_ns <= 0) return false;
        const int polled = poll(&ready, 1, (int)MIN(left_ns / 1000000 + 1, (int64_t)INT32_MAX));
        if (polled == 0 || (polled < 0 && errno == EINTR)) continue;
        if (polled < 0) return false;
        const ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* Runs in the child. Its stdout is /dev/null, because drivers print and the parent's stdout is a document.
 * Our signal handlers are reset, so that a crash of a driver ends the child. */
static void child_task_run_in_child(const struct child_task *e, int fd, pid_t parent)
{
    struct err why = { 0 };
    process_die_with_parent(parent);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    static const int OURS[] = { SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    for (size_t i = 0; i < COUNT_OF(OURS); i++) signal(OURS[i], SIG_DFL);
    if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
    why.code = e->run(e->out, e->ask, &why);
    const bool sent = send_all(fd, &why, sizeof why) && send_all(fd, e->out, e->size);
    _exit(sent ? 0 : 1);
}

/* Waits for the child. A process that hangs in the kernel survives SIGKILL: after 2 s it is abandoned. */
static void child_reap(pid_t pid, int *status, bool killed)
{
    enum { PATIENCE_MS = 2000, STEP_MS = 10 };
    if (!killed) {
        while (waitpid(pid, status, 0) < 0 && errno == EINTR) continue;
        return;
    }
    for (int ms = 0; ms < PATIENCE_MS && waitpid(pid, status, WNOHANG) == 0; ms += STEP_MS)
        clock_sleep_ns(STEP_MS * INT64_C(1000000));
}

static enum err_code child_task_run(const struct child_task *e, struct err *why)
{
    int pipes[2], status = 0;
    struct err reported = { 0 };
    if (pipe2(pipes, O_CLOEXEC))
        return err_set(why, err_of_errno(errno), "cannot create a pipe: %s", strerror(errno));
    const int64_t deadline_ns = clock_ns() + (int64_t)(e->seconds * 1e9);
    const pid_t parent = getpid(), pid = fork();
    if (!pid) child_task_run_in_child(e, pipes[1], parent);
    close(pipes[1]);
    const bool answered = pid > 0 && receive_all(pipes[0], &reported, sizeof reported, deadline_ns) &&
                          receive_all(pipes[0], e->out, e->size, deadline_ns);
    const bool late = clock_ns() >= deadline_ns;
    close(pipes[0]);
    if (pid < 0) return err_set(why, err_of_errno(errno), "cannot start a process: %s", strerror(errno));
    if (!answered) kill(pid, SIGKILL);
    child_reap(pid, &status, !answered && late);
    if (answered) {
        reported.message[sizeof reported.message - 1] = 0;
        return reported.code ? err_set(why, reported.code, "%s", reported.message) : ERR_OK;
    }
    if (late)
        return err_set(why, ERR_INTERNAL, "%s: a driver did not answer within %.3g s", e->what, e->seconds);
    return err_set(why, ERR_INTERNAL, "%s: a driver ended the process (%s)", e->what,
                   WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it called exit");
}

/* ---------------------------------------------------------------- listing and measuring */

static enum err_code list_run(void *out, const void *ask, struct err *why)
{
    struct devices *d = out;
    (void)ask;
    (void)why;
    d->count = MIN(opencl_devices(d->device, DEVICES_MOST), (int)DEVICES_MOST);
    return ERR_OK;
}

enum err_code devices_list(struct devices *out, double seconds, struct err *why)
{
    *out = (struct devices){ 0 };
    const struct child_task e = {
        .run = list_run, .out = out, .size = sizeof *out, .seconds = seconds, .what = "listing OpenCL devices"
    };
    const enum err_code rc = child_task_run(&e, why);
    if (rc) out->count = 0;
    return rc;
}

struct measure_ask {
    const char *device;
    double seconds;
};

static enum err_code measure_run(void *out, const void *ask, struct err *why)
{
    const struct measure_ask *m = ask;
    return opencl_ceilings(out, m->device, m->seconds, why);
}

enum err_code devices_measure(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why)
{
    const struct measure_ask ask = { device, seconds };
    char what[64];
    snprintf(what, sizeof what, "measuring %s", device);
    const struct child_task e = { .run = measure_run,
                                  .ask = &ask,
                                  .out = out,
                                  .size = sizeof *out,
                                  .seconds = COMPILE_SECONDS + 4 * CEILINGS_OF_A_DEVICE * seconds,
                                  .what = what };
    return child_task_run(&e, why);
}

/* ---------------------------------------------------------------- devices and GPUs */

int device_gpu(const struct machine *m, const struct device_info *d)
{
    for (int i = 0; i < m->gpus; i++)
        if (gpu_is_device(&m->gpu[i], d)) return i;
    return -1;
}

/* ---------------------------------------------------------------- output */

static const struct {
    const char *name;
    size_t offset; /* of a bool */
} ABILITIES[] = {
    { .name = "fp16", .offset = offsetof(struct device_info, fp16) },
    { .name = "fp64", .offset = offsetof(struct device_info, fp64) },
    { .name = "int_dot", .offset = offsetof(struct device_info, int_dot) },
    { .name = "bf16", .offset = offsetof(struct device_info, bf16) },
    { .name = "subgroups", .offset = offsetof(struct device_info, subgroups) },
};

static bool device_has(const struct device_info *d, size_t ability)
{
    return *(const bool *)((const char *)d + ABILITIES[ability].offset);
}

const char *device_abilities(const struct device_info *d, char *buf, size_t size)
{
    size_t len = 0;
    *buf = 0;
    for (size_t i = 0; i < COUNT_OF(ABILITIES); i++)
        if (device_has(d, i) && len < size)
            len += (size_t)snprintf(buf + len, size - len, "%s%s", len ? " " : "", ABILITIES[i].name);
    return buf;
}

static void put_text_or_null(json_t *o, const char *key, const char *text)
{
    json_put_str(o, key, *text ? text : NULL);
}

static void put_count_or_null(json_t *o, const char *key, int64_t n)
{
    json_put(o, key, n < 0 ? json_null() : json_integer((json_int_t)n));
}

static json_t *device_to_json(const struct device_info *d, const struct machine *m)
{
    json_t *o = json_object();
    put_text_or_null(o, "name", d->name);
    put_text_or_null(o, "model", d->model);
    put_text_or_null(o, "vendor", d->vendor);
    put_text_or_null(o, "platform", d->platform);
    put_text_or_null(o, "driver", d->driver);
    put_text_or_null(o, "version", d->version);
    put_text_or_null(o, "pci", d->pci);
    put_count_or_null(o, "gpu_index", device_gpu(m, d)); /* in machine.gpus */
    json_put_bool(o, "gpu", d->gpu);
    json_put_bool(o, "shares_memory", d->shares_memory);
    for (size_t i = 0; i < COUNT_OF(ABILITIES); i++) json_put_bool(o, ABILITIES[i].name, device_has(d, i));
    put_count_or_null(o, "compute_units", d->compute_units);
    put_count_or_null(o, "clock_mhz", d->clock_mhz);
    put_count_or_null(o, "subgroup_size", d->subgroup_size);
    put_count_or_null(o, "memory_bytes", d->memory_bytes);
    put_count_or_null(o, "alloc_bytes", d->alloc_bytes);
    put_count_or_null(o, "local_bytes", d->local_bytes);
    put_count_or_null(o, "group_items", d->group_items);
    return o;
}

json_t *devices_to_json(const struct devices *all, const struct machine *m)
{
    json_t *list = json_array();
    for (int i = 0; i < all->count; i++) json_array_append_new(list, device_to_json(&all->device[i], m));
    return list;
}
