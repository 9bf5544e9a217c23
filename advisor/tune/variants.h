/* advisor/tune/variants.h - the state of a search between files of one model, or for a target; shared by
 * variants.c, variants_run.c and variants_measure.c. Internal. */
#ifndef QDYNO_ADVISOR_TUNE_VARIANTS_H
#define QDYNO_ADVISOR_TUNE_VARIANTS_H

#include "advisor/tune/parts.h"

enum { VARIANTS = 64, VARIANT_STAGES = 24, VARIANT_ARMS = EXPERIMENT_ARMS };

struct variant {
    struct config config;
    struct quality quality; /* against the unchanged reference; of that itself: no loss */
    bool asked;             /* its quality was measured, or that was tried */
    bool timed;
    struct gate_result judged;
    struct interval effect; /* ln(rate / rate of the reference) */
    struct run_load load;   /* of the machine during the experiment that `judged` is from */
    int blocks;             /* of that experiment */
    int64_t run;            /* that experiment; 0: not timed */
};

/* An experiment of the search, by its name: "files 0", "space 0", "confirm". */
struct variant_stage {
    char name[24];
    int64_t run;
};

struct variants {
    const struct tune_options *o;
    struct tune_result *out;
    const struct metric *metric;
    bool has_target, files; /* files: it chooses between files, else between configs of one */
    bool reference_changed; /* the config of all files changes answers: the loss of v[0] is measured, too */
    struct variant v[VARIANTS];  /* [0] is the reference */
    struct tune_candidate *seen; /* [VARIANTS], owned by the result */
    int n;
    struct db *db;
    struct run run;
    bool started;
    char text[4096], sha256[HASH_HEX]; /* of the quality text */
    int windows;                       /* of every measurement of quality; 0: not known yet */
    struct variant_stage stage[VARIANT_STAGES];
    int stages;
    char (*stored)[CONFIG_LINE]; /* [stored_n] candidates that an earlier session found; owned */
    int stored_n;
    double spent_before;
    int64_t begun_ns;
    struct tune_progress now;
    double pair_s; /* of a block of two arms; NAN unknown */
};

double variants_spent(const struct variants *s);
bool variants_report(struct variants *s, enum tune_phase phase, const char *what, const char *config);
/* A further candidate; nothing where it is listed already. */
enum err_code variants_add(struct variants *s, const struct config *c, double bits, struct err *why);

/* variants_run.c: the run in the database. */
enum err_code variants_begin(struct variants *s, struct err *why);
enum err_code variants_finish(struct variants *s, enum err_code rc, struct err *why);
enum err_code variants_store_quality(struct variants *s, int i, struct measured_cell *c, struct err *why);
/* Remember the experiment of a stage. */
enum err_code variants_stage_set(struct variants *s, const char *name, int64_t run, struct err *why);
int64_t variants_stage_run(const struct variants *s, const char *name); /* 0: none */

/* variants_measure.c. */
/* Measure the quality of all candidates from `from` on; those that failed are results. */
enum err_code variants_quality(struct variants *s, int from, double share, struct err *why);
/* Compare candidates list[0..n) (the first is arm A) within a budget. */
enum err_code variants_compare(struct variants *s, const char *stage, const int *list, int n, double budget_s,
                               struct experiment_state *x, struct err *why);

#endif
