/* telemetry/gpu/gpu_library.h - queries to a vendor's GPU library, or to the recorded answers of one
 * (internal to telemetry/gpu).
 *
 * The library is loaded at run time if it is installed. A vendor's code reads its library only through
 * gpu_library_query, which takes an entry of a table of queries. A recording stores the answers together with
 * their return codes, so a replayed machine runs the same code as the real one. */
#ifndef QDYNO_TELEMETRY_GPU_LIBRARY_H
#define QDYNO_TELEMETRY_GPU_LIBRARY_H

#include "telemetry/gpu/gpu.h"

enum { ANSWER_VALUES = 2 * 64, LIBRARY_QUERIES = 48, ANSWER_PARTS = 6 };

struct gpu_answer {
    char text[96];
    uint64_t value[ANSWER_VALUES];
    int count; /* values used, for a list */
};

struct gpu_query {
    const char *key; /* the library's function with its argument in parentheses; the name in a recording */
    int shape;       /* the function's signature, numbered by the vendor's code */
    int argument, argument2;
    bool secret;                    /* identifies one device or process: masked in a recording */
    const char *part[ANSWER_PARTS]; /* names of value[0..]; empty: the answer is a text; "[]": a list of pairs
                                       of process id and bytes */
};

/* Result of a query that was not made: the recording lacks the answer, or the library lacks the function. All
 * other codes are the library's own; 0 is success. */
enum { LIBRARY_NO_ANSWER = -1 };

struct gpu_library;
struct gpu_library_kind {
    const char *name;     /* "nvml": a recording's file is nvml.json */
    const char *file;     /* "libnvidia-ml.so.1" */
    const char *variable; /* environment variable that names another file */
    const struct gpu_query *queries;
    int n_queries;
    /* Called after the functions are bound: starts the library and fills devices and device[]. Returns the
     * library's code. */
    int (*start)(struct gpu_library *l);
    void (*stop)(struct gpu_library *l);
    int (*call)(struct gpu_library *l, int device, const struct gpu_query *q, void *function,
                struct gpu_answer *out);
    /* Why `start` failed and what to do. NULL, or a NULL result: no explanation for this code. */
    const char *(*explain)(int code);
};

struct gpu_library {
    const struct gpu_library_kind *kind;
    void *handle;                    /* of dlopen; NULL: answers come from a recording */
    void *function[LIBRARY_QUERIES]; /* one per query; NULL where the library lacks the function */
    json_t *recorded;                /* array of objects, one per device */
    bool started;
    int devices;
    void *device[MACHINE_GPUS]; /* the library's handles */
};

/* Loads the library, or for a root other than "" its recorded answers. Errors: ERR_ABSENT (not installed,
 * does not start, has no device, or is not in the recording), ERR_FORMAT (damaged recording), ERR_NOMEM. */
enum err_code gpu_library_open(struct gpu_library **out, const struct gpu_library_kind *kind,
                               const char *root, struct err *why);
void gpu_library_close(struct gpu_library *l);
/* Makes one query. Returns 0 and fills *out, or returns the library's error code and zeroes *out. */
int gpu_library_query(struct gpu_library *l, int device, int query, struct gpu_answer *out);
/* Address of a function, for `start` and `stop`; NULL when the library lacks it. */
void *gpu_library_symbol(struct gpu_library *l, const char *name);
/* All answers of all devices as JSON. masked: secret values are replaced. New reference. */
json_t *gpu_library_record(struct gpu_library *l, bool masked);

#endif
