/* advisor/doctor/doctor.h - is everything installed and usable, and what makes runs slow, fail or vary here?
 * Public header of advisor/doctor/. */
#ifndef QDYNO_ADVISOR_DOCTOR_H
#define QDYNO_ADVISOR_DOCTOR_H

#include "base/base.h"
#include "db/db.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"

/* Which limit gives this process fewer threads than the machine has cores: "an affinity mask or cpuset allows
 * 2 of 8 cores", or "a CPU quota of the control group (cgroup) allows 1.5 CPUs on 8 cores"; "": none does.
 * Returns buf. */
enum { MACHINE_LIMIT_TEXT = 120 };
const char *machine_limit_text(const struct machine *m, char *buf, size_t size);

/* ---------------------------------------------------------------- troubles */

/* Conditions that make runs slow, fail or vary on this machine now, and what to do about each. */

struct trouble_case {
    const struct machine *machine;
    const double *row;   /* [METRIC_SENSOR_COUNT], the second of two samples; NAN: unknown */
    const char *busiest; /* the other programs that use the CPUs (machine_busiest); NULL, "": unknown */
    const struct run_row *runs; /* from the database, newest first */
    int n_runs;
    bool devices_known; /* false: OpenCL could not be queried */
    const struct device_info *device;
    int n_devices;
};
struct trouble {
    char found[RUN_LABEL + 80], advice[256];
};
enum { TROUBLES_MAX = 16 };
/* A pure function. Returns the number of troubles found. */
int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c);

/* ---------------------------------------------------------------- health */

/* Whether what qdyno needs is installed and usable (`qdyno doctor`). */

enum health_state { HEALTH_OK, HEALTH_NOTE, HEALTH_BAD }; /* bad: something needed is missing or broken */
extern const char *const HEALTH_STATES[];                 /* [HEALTH_BAD + 1] "ok", "note", "bad" */
struct health_finding {
    enum health_state state;
    char found[640];
    const char *advice; /* what to do; "": nothing. Valid during the report. */
};
struct health_case {
    const struct machine *machine; /* NULL: it could not be read, */
    const char *no_machine;        /* for this reason */
    bool devices_known;            /* false: OpenCL could not be queried, */
    const char *no_devices;        /* for this reason */
    const struct device_info *device;
    int n_devices;
    const char *db_path;
    const struct log *log;
    /* Called for each finding, before the check goes on. */
    void (*report)(void *ctx, const struct health_finding *f);
    void *ctx;
};
/* A check reports one finding or more. Those of memory and troubles report nothing without a machine. */
struct health_check {
    const char *name; /* "instruction sets" */
    void (*run)(const struct health_case *c);
};
extern const struct health_check HEALTH_CHECKS[];
extern const size_t HEALTH_CHECK_COUNT;

/* "nvidia RTX 4090": the vendor once, then the name. Returns buf. */
const char *gpu_title(const struct gpu_identity *u, char *buf, size_t size);

/* Is the OpenCL device this GPU? Compares PCI addresses; unknown addresses never match. */
bool gpu_is_device(const struct gpu_identity *gpu, const struct device_info *d);
/* The first of n devices that is this GPU; NULL: none. */
const struct device_info *device_of_gpu(const struct gpu_identity *gpu, const struct device_info *d, int n);

#endif
