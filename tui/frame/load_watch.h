/* tui/frame/load_watch.h - a load or a server that runs now: shown by the load view. Part of frame.h. */
#ifndef QDYNO_TUI_FRAME_LOAD_WATCH_H
#define QDYNO_TUI_FRAME_LOAD_WATCH_H

#include "advisor/experiment/experiment.h"
#include "engine/serve/serve.h"
#include "tui/widgets/widgets.h"

enum load_source { LOAD_OF_NONE, LOAD_OF_EXPERIMENT, LOAD_OF_SERVER };

/* A `qdyno serve` on screen, as its GET /load says. */
struct server_watch {
    char url[256];   /* without a path; "": none is watched */
    char error[256]; /* why it cannot be read now; "" it can */
    bool known;      /* it was read once; the rest is what it said last */
    char status[16], model[128];
    int max_sequences; /* what it started with: the most that can be set */
    int64_t overloaded, cancelled, failed;
    struct live live;
    struct occupancy occupancy;
};
/* Take over an answer of GET /load. False: it is none, and nothing was changed. */
bool server_watch_read(struct server_watch *w, const json_t *answer);

/* The histogram of durations that were counted while a load runs; its axis also shows limit_s (0: none) if
 * that is near them. Quantiles that the count does not support are NAN. */
void latency_histogram_of_live(struct latency_histogram *l, const struct live_times *t, double limit_s);

/* The smallest of the limits about times between tokens, or that of the first token. NULL: none. */
const struct load_limit *live_limit(const struct live *l, bool first_token);

/* The schedule after the one in a line of settings. */
const char *schedule_after(const char *settings);

#endif
