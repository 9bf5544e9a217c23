/* engine/serve/live.h - what a load or a server is doing: counts and distributions that are cheap to keep
 * while it runs, for screens. Results come from the records of all requests (load.h), never from here.
 *
 * A plain value that owns nothing. It travels between processes as JSON. */
#ifndef QDYNO_ENGINE_SERVE_LIVE_H
#define QDYNO_ENGINE_SERVE_LIVE_H

#include "engine/serve/limits.h"
#include "engine/serve/serving.h"

/* Durations by size: LIVE_BINS bins of equal width on a logarithmic axis from LIVE_FROM_S on, LIVE_PER_TEN
 * of them for each factor of 10. Shorter and longer ones are in the first and the last bin. */
enum { LIVE_PER_TEN = 32, LIVE_BINS = 7 * LIVE_PER_TEN };
#define LIVE_FROM_S 1e-4
struct live_times {
    int64_t n;
    double sum_s, most_s;
    int64_t bin[LIVE_BINS];
};
void live_times_add(struct live_times *t, double seconds);
/* Lower edge of a bin, in seconds; of LIVE_BINS: the upper edge of the last one. */
double live_edge(int bin);
/* Quantile p, in the middle of its bin (by ratio): at most 4 % from the exact one. NAN without values. */
double live_quantile(const struct live_times *t, double p);

struct live_step {
    int rows, prompt_rows; /* computed; of these, in prompts */
    int requests;          /* with rows in the step */
    double seconds;
};

enum { LIVE_STEPS = 96, LIVE_SETTINGS = 192 };
struct live {
    double seconds;                  /* since the start */
    int64_t arrived, done, not_done; /* requests; not_done: ended without their whole answer */
    int64_t met, missed;             /* of those that ended: within all limits, and not; 0 without limits */
    int64_t prompt_tokens, cached_tokens, tokens; /* of prompts; of these, in the prefix cache; generated */
    int64_t preemptions;
    int64_t stalls; /* gaps between two tokens of a request longer than stall_s */
    double stall_s;
    int waiting, running;
    struct live_times first, gap;      /* from the arrival to the first token; between tokens */
    int64_t steps;                     /* so far */
    struct live_step step[LIVE_STEPS]; /* the last ones: number n is at n % LIVE_STEPS */
    struct load_limit limit[LOAD_LIMITS];
    int limits;
    double speed;                 /* open loop: how many times as fast as planned requests come */
    int clients;                  /* closed loop; 0: none */
    char settings[LIVE_SETTINGS]; /* config line of what can change while it runs (SERVING_KNOBS) */
};

/* Begin. limits: at most LOAD_LIMITS. s NULL, also below: a server that this process does not run; the caller
 * counts what waits and runs, and there are no settings. */
void live_begin(struct live *l, const struct serving *s, const struct load_limit *limit, int limits);
/* After a step, or when something else changed: counts and settings. */
void live_look(struct live *l, const struct serving *s, double seconds);
void live_step_add(struct live *l, const struct serving_result *r);
void live_gap_add(struct live *l, double seconds);

/* New reference. */
json_t *live_to_json(const struct live *l);
/* False: the object is none, and *l is unchanged. */
bool live_read(struct live *l, const json_t *object);

#endif
