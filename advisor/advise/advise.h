/* advisor/advise/advise.h - the public header of advisor/advise/. */
#ifndef QDYNO_ADVISOR_ADVISE_H
#define QDYNO_ADVISOR_ADVISE_H

#include "advisor/predict/predict.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"

/* ---------------------------------------------------------------- apply */

/* the configuration a model runs with on this machine: a small file that tune and people
 * write, and that `run`, `bench` and the dashboard read where nothing else is asked for.
 *
 * One file a model, $XDG_CONFIG_HOME/qdyno/MODEL.conf (MODEL-1a2b3c4d.conf when another model of that name
 * has taken it). Lines that begin with # are comments, of which "# key: value" are read back; the last other
 * line is the config line. A file written by hand may be that line alone. */

struct applied {
    struct config config;
    char line[2048];                          /* the same as text */
    char path[4096];                          /* of the file */
    char model_sha256[HASH_HEX], machine[16]; /* it was made for; "" when the file does not say */
    char because[256], when[32];              /* likewise */
    int64_t run_id;                           /* that proved it, 0: none named */
};

/* What is kept for this model. *found false (ERR_OK): nothing. Nothing is created. Errors: ERR_IO (there, but
 * unreadable), ERR_FORMAT and ERR_USAGE (no config line, or one that cannot be: names the file), those of
 * gguf_open when a file may be this model's and the model cannot be read. */
enum err_code apply_read(struct applied *out, const char *model_path, bool *found, struct err *why);

/* Keep a config for this model: whole or not at all; what was there before is MODEL.conf.previous. The config
 * must make sense for the model (its memory plan can be computed), and names no model of its own. machine may
 * be NULL. Fills *out (may be NULL). */
struct apply_request {
    const char *model_path;
    const struct config *config;
    const struct machine *machine;
    const char *because; /* one line; NULL: "chosen by hand" */
    int64_t run_id;
};
enum err_code apply_write(struct applied *out, const struct apply_request *r, struct err *why);

/* Nothing is kept for it any more. *removed false: nothing was. */
enum err_code apply_remove(const char *model_path, bool *removed, struct err *why);

/* The config line a file holds: the last line that is neither empty nor a comment. ERR_FORMAT: none. */
enum err_code config_file_read(struct config *out, const char *path, struct err *why);

/* The llama.cpp command lines that come nearest: one to run (a server), with a `qdyno quantize` in front
 * where the recipe makes a new file. notes: settings that have no equivalent there, and why that may matter;
 * "" when all have. ERR_ABSENT: the recipe or the KV type exists here only (says which); errors of gguf_open
 * and of the recipe. */
enum err_code apply_llama_cpp(struct str *out, struct str *notes, const char *model_path,
                              const struct config *c, struct err *why);

/* ---------------------------------------------------------------- advise */

/* configurations for this machine, predicted, each with reason and check. */

enum goal { GOAL_BALANCED, GOAL_SPEED, GOAL_QUALITY, GOAL_MEMORY, GOAL_ENERGY };
const char *goal_name(enum goal g);
bool goal_parse(const char *name, enum goal *out);

struct advice {
    struct config config;
    char line[CONFIG_LINE];
    struct prediction prediction;
    double score;
    char reason[256];  /* "decode is bandwidth-bound here: half the bytes, near twice the speed" */
    char caution[256]; /* "changes answers: quality not measured yet"; "" when none */
    double kld;        /* nats a token lost against the file as it is: 0 without a loss, NAN: not measured */
    char check[768];   /* the command that checks it */
};
struct advise_options {
    enum goal goal;
    int64_t memory_limit;        /* 0: what the machine has */
    double kld_limit;            /* 0: none. Else what loses more is last, what was not measured before it */
    const struct answer_klds *answer_klds; /* of the model; NULL: nothing was measured */
    double target_tok_s;         /* of decoding; 0: none */
    int ctx;                     /* 0: 4096 or the model's own when smaller */
    const struct correction *correction; /* of the machine; NULL: nothing was learned */
};
/* Ranked best first; *out: free(). Of a machine whose GPU's ceilings are known (a description) there are
 * configs for the GPU, too: prediction.on_gpu. */
enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o,
                     struct err *why);

/* ---------------------------------------------------------------- rules */

/* advice that follows from what a machine is, not from a prediction: hardware x model x
 * goal -> what to do, why, what that rests on, and the command that checks it. */

struct rule_case {
    const char *model; /* path, for the command */
    const struct model_shape *shape;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const struct prediction *reference; /* of the file as it is */
    enum goal goal;
    int64_t memory_limit; /* 0: what the machine has */
};
/* One rule's word on one case. */
struct rule_finding {
    const char *rule; /* its name in RULES */
    char advice[256], reason[320], evidence[256];
    char check[768]; /* "" where only the machine itself could tell */
};
enum { RULES_MAX = 32 };
/* Fills those that apply, in the order of the table; returns how many. */
int rules_apply(struct rule_finding out[RULES_MAX], const struct rule_case *c);
/* For help and tests: the names of all rules and when they apply; NULL beyond the last. */
const char *rule_name(int i);
const char *rule_about(int i);

/* ---------------------------------------------------------------- troubles */

/* Conditions that make runs slow, fail or vary on this machine now, and what to do about each. */

struct trouble_case {
    const struct machine *machine;
    const double *row;          /* [METRIC_SENSOR_COUNT], the second of two samples; NAN: unknown */
    const struct run_row *runs; /* from the database, newest first */
    int n_runs;
    bool devices_known; /* false: OpenCL could not be queried */
    const struct device_info *device;
    int n_devices;
};
struct trouble {
    char found[256], advice[256];
};
enum { TROUBLES_MAX = 16 };
/* A pure function. Returns the number of troubles found. */
int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c);

/* Is the OpenCL device this GPU? Compares PCI addresses; unknown addresses never match. */
bool gpu_is_device(const struct gpu_identity *gpu, const struct device_info *d);

#endif
