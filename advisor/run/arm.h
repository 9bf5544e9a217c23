/* advisor/run/arm.h - arms: processes and servers that run one config. Part of run.h. */
#ifndef QDYNO_ADVISOR_RUN_ARM_H
#define QDYNO_ADVISOR_RUN_ARM_H

#include "base/base.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

/* Called by the thread that waits for an answer of an arm: for each "progress" or "token" line of the worker,
 * and at least every 100 ms with event NULL. Returning false cancels the request. */
typedef bool arm_event_fn(void *ctx, const json_t *event);

/* ---------------------------------------------------------------- shapes */

/* Kernels that were measured as the fastest on this machine: work-group shapes of OpenCL devices, and with
 * compile=autotune the CPU's. */

/* The stored lines (struct backend_options) for a config that can use some; *out NULL: there are none, or the
 * store cannot be read; the model then runs slower, or measures again. With compile=autotune on a device that
 * has no line yet, its shapes are measured and stored first, which takes minutes; event (may be NULL) as for
 * an arm. The caller frees *out. Errors: those of opencl_shapes_measure, ERR_IO, ERR_NOMEM. */
enum err_code shapes_of(char **out, const struct config *c, arm_event_fn *event, void *ctx,
                        const struct log *log, struct err *why);

/* Store the choices of kernels in a worker's answer ("autotune"), remove them from it, and log what measuring
 * them cost. answer NULL, or without choices: does nothing. */
void shapes_take(json_t *answer, const struct log *log);

/* As model_open, with those lines; options->shapes is ignored. What the model measured is stored and logged,
 * too. Arms' processes get the lines in their request to open. */
enum err_code shapes_model_open(struct model **out, const struct model_options *options, struct err *why);

/* ---------------------------------------------------------------- arm */

/* An arm runs one config: open, describe, run cells, close.
 *
 * It is a worker process (`qdyno worker`), or another engine (config key `engine`): a program that qdyno
 * starts and stops, or a running server. Each kind is a table of the same functions (arm_kind.h). An arm that
 * crashes, is killed for memory or meets a bad file returns an error, which callers report as a result. */

struct arm;

struct arm_spec {
    const char *model; /* path; used when the config names no model */
    const struct config *config;
    int ctx;             /* tokens of context of each sequence */
    int sequences;       /* that run side by side; 0 means 1 */
    bool train;          /* no model is loaded: cells train a new one */
    const char *program; /* NULL: /proc/self/exe */
    /* A worker that sends nothing and uses no CPU time for this long is killed, unless the same request
     * was silent for long before; 0: 60 s. */
    double silence_s;
    const struct log *log;
};

/* What arm_open() would refuse about the config, its model file, its recipe, or the program of its engine,
 * without starting a process; whether it fits into memory is not checked. `model`: the file of a config that
 * names none; ctx, sequences: as in struct arm_spec. Takes milliseconds: headers are read, weights are not.
 */
enum err_code arm_check(const struct config *c, const char *model, int ctx, int sequences, struct err *why);

/* Starts the process and loads the config. *out owned: arm_close. Errors: as model_open says in the worker;
 * ERR_FIT when the worker was killed for memory; ERR_INTERNAL when it died otherwise (signal named), or when
 * it hung or was stopped, and so was killed. The same holds for all requests. */
enum err_code arm_open(struct arm **out, const struct arm_spec *spec, arm_event_fn *event, void *ctx,
                       struct err *why);
void arm_close(struct arm *a); /* asks, waits 2 s, then kills; NULL is fine */

int arm_pid(const struct arm *a);
const json_t *arm_description(const struct arm *a); /* the open answer; borrowed */

/* Whether the arm runs on a GPU: energy and utilization are then those of that device. */
bool arm_on_gpu(const struct arm *a);
/* Note i of what a reader must know about the figures of this arm; NULL: there are no more. */
const char *arm_note(const struct arm *a, size_t i);
/* Directs the sampler at the arm: METRIC_PROC_* are of its process from now on, METRIC_GPU_* of the GPU it
 * runs on (unknown where no sensor has that PCI address), or of all GPUs for an arm on the CPU. A NULL
 * sampler is fine. */
void arm_watch(const struct arm *a, struct sampler_thread *sampler);
/* Energy that machines other than this one used for an arm with hosts=. */
struct other_machines {
    double joules, seconds; /* both 0: there are none; NAN: unknown for one of them */
};
/* Adds what ranks on other machines used, from the list "ranks" of a worker's answer. NULL: there are no
 * ranks; empty: what they used is unknown. */
void other_machines_add(struct other_machines *m, const json_t *ranks);
/* Energy of a time window from from_ns on: of the CPU packages, of the arm's GPU, and of other machines
 * (their mean power times the window). Writes METRIC_ENERGY, its half width, and METRIC_CO2; NAN where a
 * machine has no power sensor, the last also where the config does not give grid_gco2_per_kwh. */
void arm_energy(const struct arm *a, const struct sample *samples, int n, int64_t from_ns, double seconds,
                const struct other_machines *others, double value[METRIC_COUNT]);

/* Runs the workload once in the arm's process. *answer is the caller's (json_decref). Errors: the worker's
 * own code and message; ERR_INTERNAL or ERR_FIT when it died, and then only arm_close may follow;
 * ERR_CANCELLED. */
enum err_code arm_cell(struct arm *a, const char *workload, uint64_t seed, json_t **answer,
                       arm_event_fn *event, void *ctx, struct err *why);

/* The same with a profile: the answer has "profile" (engine/worker/worker.h). Also ERR_USAGE: the arm runs
 * another engine, or not all operators in its process. */
enum err_code arm_profile(struct arm *a, const char *workload, uint64_t seed, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why);

/* From the event callback of a cell: change the load that runs. settings: config line; "": none (op "change"
 * of engine/worker/worker.h). The arm does nothing when it runs no load. Errors: as arm_cell. */
enum err_code arm_change_load(struct arm *a, double rate_by, const char *settings, struct err *why);

/* How arms use the machine alternately: a turn lasts so many decode steps, or forward passes of the prompt.
 * {0}: no turns. */
struct turn_length {
    int steps, passes;
};
/* The same in turns: the worker sends the event "turn" before each turn and waits until the callback returns.
 */
struct turns_spec {
    const char *workload;
    uint64_t seed;
    struct turn_length turn;
};
enum err_code arm_cell_in_turns(struct arm *a, const struct turns_spec *what, json_t **answer,
                                arm_event_fn *event, void *ctx, struct err *why);

/* With turn_s the worker sends the event "turn" before the first step and after every turn_s of work, and
 * waits until the callback returns. */
struct generate_spec {
    const char *prompt;
    int n;
    double temp;   /* temperature of sampling; 0: always the most likely token */
    double turn_s; /* seconds of work between two "turn" events; 0: no such events */
};
enum err_code arm_generate(struct arm *a, const struct generate_spec *spec, json_t **answer,
                           arm_event_fn *event, void *ctx, struct err *why);

/* Compares the arm's predictions with those of a reference model, which its process opens as well
 * (engine/worker/worker.h, op "quality"). */
struct quality_spec {
    const char *file;  /* text; NULL or "": the bundled one */
    int ctx;           /* tokens of a window, at most the arm's context; 0: 512 */
    int64_t chunks;    /* windows at most; 0: all */
    const char *model; /* of the reference, used when its config names none */
    const struct config *reference;
    bool without_greedy; /* compare no greedy texts, which take as long as decoding some thousand tokens */
};
enum err_code arm_quality(struct arm *a, const struct quality_spec *spec, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why);

#endif
