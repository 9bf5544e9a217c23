/* tui/snapshot.h - everything the dashboard shows, as one immutable value. Views are pure functions of it. */
#ifndef QDYNO_TUI_SNAPSHOT_H
#define QDYNO_TUI_SNAPSHOT_H

#include "advisor/advisor.h"
#include "tui/ledger.h"
#include "tui/measured.h"
#include "tui/offers.h"
#include "tui/page.h"
#include "tui/shell.h"

enum {
    SNAPSHOT_HISTORY = 256,
    SNAPSHOT_STEP_MS = 500, /* between two values of a series */
    SNAPSHOT_CORES = 256,
    SNAPSHOT_LOG = 64,
    SNAPSHOT_ADVICE = 8,
    SNAPSHOT_RUNS = 64,
};

struct series { /* newest last; NAN = no value then */
    int n;
    float v[SNAPSHOT_HISTORY];
};

struct log_line {
    int64_t unix_ms;
    enum log_level level;
    char text[160];
};

struct run_line { /* one row of the history */
    int64_t id, started_ms;
    char kind[16], state[16], verdict[16];
    char label[128], model[128], workload[96];
    double effect_ratio; /* B/A, NAN */
};

struct snapshot {
    int64_t unix_ms;
    bool machine_known; /* false in the first moments: machine is detected behind the first frame */
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    double sensor[METRIC_SENSOR_COUNT];
    int cores;
    double core_busy[SNAPSHOT_CORES];
    struct series cpu, memory, gpu, decode, prefill;
    char model_path[512];
    struct model_shape model; /* arch "" when none or unreadable */
    char model_error[256];
    struct model_ledger ledger; /* groups 0: none */
    bool experiment_known;
    bool experiment_live;     /* runs in this process; else it was loaded from the database */
    bool experiment_starting; /* asked for; its database is being opened */
    struct experiment_state experiment;
    double decode_limit[EXPERIMENT_ARMS],
        prefill_limit[EXPERIMENT_ARMS]; /* tokens/s the machine allows, NAN */
    bool write_known;                   /* two configurations continue a prompt, or have */
    struct sidebyside_state write;
    int advice_count;
    struct advice advice[SNAPSHOT_ADVICE];
    char advice_state[96]; /* "probing the machine 40 %", "" when ready or not asked for */
    bool probing;          /* the machine is being measured: nothing may be timed now */
    char advice_error[256];
    int run_count; /* -1: not read yet */
    struct run_line run[SNAPSHOT_RUNS];
    char run_error[256];
    struct measured_quality quality;
    struct sensitivity sensitivity;
    struct measured_load load;
    int log_count;
    struct log_line log[SNAPSHOT_LOG]; /* oldest first */
    double own_cost_ratio;             /* UI + sampler, share of one core; NAN in the first seconds */
    int spool_count;                   /* pushes that wait for the network, -1 unknown */
    bool pushing;
    char command[160];          /* runs now, started by `!`; "" none */
    int64_t command_started_ms; /* unix */
    bool task_known;            /* it has told how far it is */
    bool task_cancelled;        /* it was asked to end */
    struct shell_progress task;
    struct page page;  /* what was to be read last */
    char applied[640]; /* config line that is kept for the model, "" none */
    struct baselines baselines;
    struct recipe_offers recipes; /* for the model */
    struct folder folder;         /* that a form asked for last */
    struct judged judged;
    char push_url[256];
};

/* Tokens/s a limit allows are used; >= 1 means the weights came from a cache, not from memory. NAN when
 * unknown. */
double snapshot_limit_share(double rate, double limit);

/* Quality means nothing here: the model or the experiment's model has random weights. */
bool snapshot_random_weights(const struct snapshot *s);
extern const char RANDOM_WEIGHTS_TEXT[];

/* A cell is being timed right now: whoever draws should keep quiet. */
bool snapshot_is_timing(const struct snapshot *s);

/* Loading, control or blocks: not finished. */
bool snapshot_is_running(const struct snapshot *s);

/* Append one value, dropping the oldest. */
void series_push(struct series *s, double v);

#endif
