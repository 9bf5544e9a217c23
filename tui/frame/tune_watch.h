/* tui/frame/tune_watch.h - a search, as the lines of progress of its process report it, and a run that can be
 * continued. Part of frame.h. */
#ifndef QDYNO_TUI_FRAME_TUNE_WATCH_H
#define QDYNO_TUI_FRAME_TUNE_WATCH_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "advisor/tune/tune.h"

/* A search as its process reports it (`qdyno tune --progress json`). */
struct tune_row {
    char config[160];
    double rate, lower, upper; /* tokens/s with its 95 % interval; NAN unknown */
    int64_t bytes;             /* memory estimate */
    double kld;                /* nats; NAN: not measured */
    int timings;
    bool is_current;
    char excluded[32]; /* why it cannot win; "" it can */
};
struct tune_watch {
    bool known; /* a search runs, or has run in this process */
    bool running;
    int64_t begun_ms; /* unix time; tells searches apart */
    int64_t run_id;   /* 0: none yet */
    enum tune_phase phase;
    char model[512], config[160], what[16], why[240]; /* as in struct tune_progress */
    double share, left_s;                             /* of the budget; NAN unknown */
    int possible, timed, judged;
    int rows;
    struct tune_row row[TUNE_BOARD]; /* best first */
    char challenger[160];            /* of the confirmation; "" it has not begun */
    struct interval effect;          /* challenger / current, as ratios; NAN unknown */
    enum verdict verdict;
    int blocks;
    int64_t confirm_run;
    bool ended; /* its result is below */
    bool wins, stopped;
    bool loaded;       /* the candidate was compared on a busy machine: a person decides whether to use it */
    char confirm[900]; /* the command that compares it on a quiet machine; "" not needed */
    char text[TUNE_SENTENCE]; /* the result in one sentence */
    char candidate[1024];     /* config line that can be applied; "" none */
    char error[256];          /* why it ended without a result; "" it did not */
};
/* A search or an A/B that can be continued. */
struct stopped_run {
    int64_t id, started_ms; /* id 0: there is none */
    bool undecided;         /* it ended, without a verdict: it continues with more time */
    char state[16], model[128];
};
/* Take over the object "tune" of a progress line. False: it is none, and nothing was changed. */
bool tune_watch_read(struct tune_watch *t, const json_t *tune);
/* Begin to watch a new search. */
void tune_watch_begin(struct tune_watch *t, int64_t now_ms);
/* The best candidate that can win; NULL: none was measured. */
const struct tune_row *tune_watch_leader(const struct tune_watch *t);

#endif
