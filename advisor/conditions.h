/* advisor/conditions.h - how fast this machine is beside a run, against what it was when kernels were timed
 * here.
 *
 * What others on a host do to its memory and its cores changes decoding by half and more from one minute to
 * the next, and no sensor of this machine sees it: time that a shared core gives to somebody else is not
 * stolen, it only lasts longer. Looked at between the cells, when nothing of ours is working, it says for
 * which machine a figure holds. */
#ifndef QDYNO_ADVISOR_CONDITIONS_H
#define QDYNO_ADVISOR_CONDITIONS_H

#include "telemetry/telemetry.h"

/* Of what was usual (memory) or best (cores) when kernels were timed. 0: not known. */
struct conditions {
    double memory_ratio; /* how fast a row of weights came from memory, its arithmetic included */
    double core_ratio;   /* how fast the threads worked on weights in their caches */
};

enum { CONDITIONS_LOOKS = 512 };
struct conditions_watch {
    struct backend *backend; /* owned */
    struct pacer *pace;      /* owned; NULL: there is nothing to compare with */
    int threads;
    double read_then_s, compute_then_s;
    double read_now_s[CONDITIONS_LOOKS], compute_now_s[CONDITIONS_LOOKS]; /* the last since the restart */
    int looks;                                                            /* since then */
};
/* For work that so many threads do. Where kernels were not timed with them it looks at nothing.
 * conditions_watch_close in any case. Errors: as backend_open, backend_reserve. */
enum err_code conditions_watch_open(struct conditions_watch *w, int threads,
                                    const struct machine_ceilings *ceilings, struct err *why);
void conditions_watch_close(struct conditions_watch *w);
void conditions_watch_restart(struct conditions_watch *w);
/* Takes some forty milliseconds. Of one thread it looks at the processor that the first thread of process
 * `pid` ran on last (0: anywhere), and leaves it for the process: those of a virtual machine are not equally
 * fast at a time. */
void conditions_watch_look(struct conditions_watch *w, int pid);
struct conditions conditions_of(const struct conditions_watch *w);

#endif
