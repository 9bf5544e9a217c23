/* advisor/memory_watch.h - how fast weights come from memory beside a run, against what it was when kernels
 * were timed here.
 *
 * What others on a host do to memory changes decoding by half and more from one minute to the next, and no
 * sensor of this machine sees it. Looked at between the cells, when nothing of ours is working, it says for
 * which memory a figure holds. */
#ifndef QDYNO_ADVISOR_MEMORY_WATCH_H
#define QDYNO_ADVISOR_MEMORY_WATCH_H

#include "engine/engine.h"
#include "telemetry/telemetry.h"

enum { MEMORY_WATCH_MOST = 512 };
struct memory_watch {
    struct memory_pace *pace;         /* owned; NULL: there is nothing to compare with */
    double usual_s;                   /* of reading a byte, then */
    double read_s[MEMORY_WATCH_MOST]; /* and now: the last ones since the restart */
    int looks;
};
/* For configs of that many threads. Where kernels were not timed with them it looks at nothing.
 * memory_watch_close in any case. Errors: as memory_pace_open. */
enum err_code memory_watch_open(struct memory_watch *w, const struct config *c, const struct machine *machine,
                                const struct machine_ceilings *ceilings, struct err *why);
void memory_watch_close(struct memory_watch *w);
void memory_watch_restart(struct memory_watch *w);
void memory_watch_look(struct memory_watch *w);          /* takes some ten milliseconds */
double memory_watch_ratio(const struct memory_watch *w); /* 1: as then; NAN: nobody looked */

#endif
