/* advisor/governor.h - dynamic precision: several configurations of one model loaded, from the most exact to
 * the cheapest, and a rule that says which one answers the next request.
 *
 * The rule watches one number (a latency, a rate, memory, power) against a limit. Beyond it for some requests
 * in a row: one step cheaper. Well within it for many in a row: one step back to exactness, unless what that
 * step is known to cost would break the limit again. A step back that had to be taken back waits twice as
 * long the next time, so that load at the edge does not make it swing. Every switch is an event of the run,
 * with what it did to the number. */
#ifndef QDYNO_ADVISOR_GOVERNOR_H
#define QDYNO_ADVISOR_GOVERNOR_H

#include "db/db.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/telemetry.h"

enum { GOVERNOR_LEVELS = 8 };

enum governor_signal { GOVERN_ITL, GOVERN_TTFT, GOVERN_DECODE, GOVERN_MEMORY, GOVERN_POWER, GOVERN_SIGNALS };
struct governor_signal_row {
    const char *name, *unit, *help; /* "itl": as in --rule itl=20ms */
    int better;                     /* -1: less is better */
    bool
        paid_by_level; /* the number depends on the level: what it was there is what it will be about again */
};
extern const struct governor_signal_row GOVERNOR_SIGNALS[GOVERN_SIGNALS];

struct governor_rule {
    enum governor_signal signal;
    double limit;      /* in seconds, tokens/s, bytes, watts */
    double hysteresis; /* how far within the limit counts as well within: 0.15 */
    int down_after;    /* requests beyond the limit in a row before a step down: 3 */
    int up_after;      /* requests well within it before a step up: 12 */
};
/* "itl=20ms", "ttft=300ms", "decode=30", "memory=2G" (at least so much free), "power=25". Defaults for the
 * rest. ERR_USAGE with what is allowed. */
enum err_code governor_rule_parse(struct governor_rule *r, const char *text, struct err *why);

/* ---------------------------------------------------------------- the rule (pure) */

struct governor_state {
    int level, levels;             /* 0: the most exact */
    int beyond, within;            /* requests in a row */
    int since;                     /* requests since the last switch */
    int patience[GOVERNOR_LEVELS]; /* how often a step up to this level was taken back lately */
    double usual[GOVERNOR_LEVELS]; /* of the number at that level, a mean that forgets; NAN unknown */
    bool climbed;                  /* the last switch was a step up */
};
void governor_init(struct governor_state *s, int levels);
/* One request said `value` (NAN: nothing). The level for the next one; *reason (of size 160) says why it
 * changed. */
int governor_step(struct governor_state *s, const struct governor_rule *r, double value, char reason[160]);

/* ---------------------------------------------------------------- the loop */

struct governor_switch {
    int from, to;
    int64_t unix_ms, request; /* before which request */
    char reason[160];
    double before,
        after; /* mean of the number over the requests next to it; after: NAN until there were some */
};
struct governor_figures { /* of one level */
    int64_t requests, tokens, beyond;
    double seconds, signal; /* mean of the number, NAN */
    bool loaded;
};
struct governor_options {
    const char *model_path;
    const struct config *config[GOVERNOR_LEVELS]; /* the most exact first */
    int levels;
    struct workload workload; /* of a request */
    struct governor_rule rule;
    int64_t requests; /* 0: until `for_s` */
    double for_s;     /* 0: until `requests` */
    double every_s;   /* a request begins that long after the one before, at the earliest */
    uint64_t seed;
    const struct machine *machine;
    const char *db_path;
    struct sampler_thread *sampler; /* borrowed; NULL: no memory and power */
    const char *program;
    const struct log *log;
    /* Each switch as it happens, and again when its effect is known; then of every request (s NULL). false:
     * stop. */
    bool (*told)(void *ctx, const struct governor_switch *s, int level, double value);
    void *ctx;
};
enum { GOVERNOR_SWITCHES = 256 };
struct governor_result {
    int64_t run_id, requests;
    struct governor_figures level[GOVERNOR_LEVELS];
    struct governor_switch sw[GOVERNOR_SWITCHES];
    int switches; /* of which the first GOVERNOR_SWITCHES are kept here, all of them in the database */
    bool stopped;
};
/* Loads all levels (under a memory rule only those in use), serves, switches. Errors: ERR_USAGE, those of
 * arm_open for the level in use; a level that cannot be loaded otherwise is left out with a warning in the
 * log. */
enum err_code governor_run(struct governor_result *out, const struct governor_options *o, struct err *why);

#endif
