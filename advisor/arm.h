/* advisor/arm.h - one side of a comparison behind one small interface: open, describe, run cell, close.
 *
 * Ours is a worker process (`qdyno worker`); other kinds (an HTTP endpoint, another engine's binary) are
 * further tables of the same functions. An arm that crashes, is killed for memory or meets a bad file is a
 * result, not the end. */
#ifndef QDYNO_ADVISOR_ARM_H
#define QDYNO_ADVISOR_ARM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/telemetry.h"

struct arm;

/* Called from the thread that waits for an answer, for each "progress"/"token" line and at least every 100 ms
 * (event NULL): returning false cancels the request. */
typedef bool arm_event_fn(void *ctx, const json_t *event);

struct arm_spec {
    const char *model; /* -m: used when the config names none */
    const struct config *config;
    int ctx;             /* context to open with, in each of */
    int sequences;       /* that many; 0 means 1 */
    bool train;          /* no model: cells train one from nothing */
    const char *program; /* NULL: /proc/self/exe */
    const struct log *log;
};

/* Starts the process and loads the config. *out owned: arm_close. Errors: as model_open says in the worker;
 * ERR_FIT when the worker was killed for memory; ERR_INTERNAL when it died otherwise (signal named). */
enum err_code arm_open(struct arm **out, const struct arm_spec *spec, arm_event_fn *event, void *ctx,
                       struct err *why);
void arm_close(struct arm *a); /* asks, waits 2 s, then kills; NULL is fine */

int arm_pid(const struct arm *a);
const json_t *arm_description(const struct arm *a); /* the open answer; borrowed */

/* Whether it runs on a GPU: then energy and utilization are that device's. */
bool arm_on_gpu(const struct arm *a);
/* METRIC_PROC_* are of its process from now on, METRIC_GPU_* of the GPU it runs on: unknown where no sensor
 * has that PCI address. An arm on the processor leaves them to all GPUs. NULL sampler: nothing. */
void arm_watch(const struct arm *a, struct sampler_thread *sampler);
/* Joules a window took: mean power of the processors, where that is metered, and of the GPU it ran on, times
 * the time. NAN: fewer than `least` readings of a meter, or none of the GPU. */
double arm_energy(const struct arm *a, const struct sample *samples, int n, int least, double seconds);

/* One request; *answer owned (json_decref). Errors: the worker's own code and message; ERR_INTERNAL / ERR_FIT
 * when it died (then only arm_close is left). */
enum err_code arm_cell(struct arm *a, const char *workload, uint64_t seed, json_t **answer,
                       arm_event_fn *event, void *ctx, struct err *why);

/* With turn_s the callback is asked by the event "turn" before the first step, and whenever so much time was
 * worked: the arm rests for as long as it takes to answer. */
struct generate_spec {
    const char *prompt;
    int n;
    double temp;   /* 0: the likeliest token */
    double turn_s; /* 0: never asks */
};
enum err_code arm_generate(struct arm *a, const struct generate_spec *spec, json_t **answer,
                           arm_event_fn *event, void *ctx, struct err *why);

/* What the arm's predictions lose against a reference's, which its process opens beside it (engine/worker.h,
 * op "quality"). */
struct quality_spec {
    const char *file;  /* text; NULL or "": the bundled one */
    int ctx;           /* tokens of a window, at most the arm's context; 0: 512 */
    int64_t chunks;    /* windows at most; 0: all */
    const char *model; /* of the reference, used when its config names none */
    const struct config *reference;
};
enum err_code arm_quality(struct arm *a, const struct quality_spec *spec, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why);

#endif
