/* telemetry/gpu_library.h - questions to a vendor's library, loaded only where it is, or to the recorded
 * answers of one (inside telemetry/).
 *
 * Everything a vendor's code knows of its library goes through gpu_library_ask: a table of questions, each
 * with the function it calls. A recording keeps the answers, return codes included, so a recorded machine
 * takes the same way through our code as the real one. */
#ifndef QDYNO_TELEMETRY_GPU_LIBRARY_H
#define QDYNO_TELEMETRY_GPU_LIBRARY_H

#include "telemetry/telemetry.h"

enum { ANSWER_VALUES = 2 * 64, LIBRARY_QUESTIONS = 48, ANSWER_PARTS = 6 };

struct answer {
    char text[96];
    uint64_t value[ANSWER_VALUES];
    int count; /* values of a list */
};

struct question {
    const char *key; /* the library's function, its argument in parentheses: name in a recording */
    int shape;       /* how to call it: the vendor's own numbering */
    int argument, argument2;
    bool secret;                    /* tells one device from all others: masked in a recording */
    const char *part[ANSWER_PARTS]; /* names of value[0..]; none: a text; "[]": pairs of pid and bytes */
};

/* What a question says when nobody was asked: the recording has no such answer, or the library no such
 * function. Other codes are the library's own; 0 is success. */
enum { LIBRARY_NO_ANSWER = -1 };

struct gpu_library;
struct gpu_library_kind {
    const char *name;     /* "nvml": a recording's file is nvml.json */
    const char *file;     /* "libnvidia-ml.so.1" */
    const char *variable; /* environment: names another file */
    const struct question *questions;
    int n_questions;
    /* After the functions are bound: start the library, fill devices and device[]; the library's code. */
    int (*start)(struct gpu_library *l);
    void (*stop)(struct gpu_library *l);
    int (*call)(struct gpu_library *l, int device, const struct question *q, void *function,
                struct answer *out);
    const char *(*explain)(
        int code); /* why start failed and what to do; NULL, or NULL for a code: not known */
};

struct gpu_library {
    const struct gpu_library_kind *kind;
    void *handle;                      /* dlopen; NULL: recorded */
    void *function[LIBRARY_QUESTIONS]; /* of each question, NULL where the library has none */
    json_t *recorded;                  /* array of objects, one per device */
    bool started;
    int devices;
    void *device[MACHINE_GPUS]; /* the library's handles */
};

/* Errors: ERR_ABSENT (no library, or it does not start, or it has no device; of a recorded machine: no
 * recording), ERR_FORMAT (of a recording), ERR_NOMEM. */
enum err_code gpu_library_open(struct gpu_library **out, const struct gpu_library_kind *kind,
                               const char *root, struct err *why);
void gpu_library_close(struct gpu_library *l);
/* 0 and *out, or a code that says why not (*out is zeroed then). */
int gpu_library_ask(struct gpu_library *l, int device, int question, struct answer *out);
/* A function by name, for start and stop; NULL when the library lacks it. */
void *gpu_library_symbol(struct gpu_library *l, const char *name);
/* All answers of all devices; masked: secret ones are replaced. New reference. */
json_t *gpu_library_record(struct gpu_library *l, bool masked);

#endif
