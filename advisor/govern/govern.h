/* advisor/govern/govern.h - chooses by a rule which of several loaded configurations serves the next request.
 * Public header of advisor/govern/. */
#ifndef QDYNO_ADVISOR_GOVERN_H
#define QDYNO_ADVISOR_GOVERN_H

#include "base/base.h"
#include "engine/config/config.h"
#include "telemetry/machine/machine.h"
#include "telemetry/sensors/sensors.h"

struct run_labels; /* db/db.h */

/* Dynamic precision: several configurations of one model are loaded, from the most exact to the
 * cheapest, and a rule chooses which one serves the next request.
 *
 * The rule compares one value (a latency, a rate, memory, power) with a limit. If it is violated for some
 * requests in a row, the governor takes a step to a cheaper level. If it is met with a margin for many in a
 * row, it takes a step back, unless the known cost of that step would violate the limit again. A step back
 * that had to be undone waits twice as long the next time, so that load near the limit does not cause
 * oscillation. Every switch is an event of the run, with its effect on the value. */

enum { GOVERNOR_LEVELS = 8 };

enum governor_signal {
    GOVERN_ITL,
    GOVERN_TTFT,
    GOVERN_DECODE,
    GOVERN_MEMORY,
    GOVERN_POWER,
    GOVERN_QUEUE,
    GOVERN_SIGNALS
};
struct governor_signal_row {
    const char *name, *unit, *help; /* "itl": as in --rule itl=20ms */
    int better;                     /* -1: less is better */
    /* the value depends on the level, so the value measured at a level predicts it there */
    bool paid_by_level;
    bool zero_known; /* 0 is a value; for the others it means unknown */
};
extern const struct governor_signal_row GOVERNOR_SIGNALS[GOVERN_SIGNALS];

struct governor_rule {
    enum governor_signal signal;
    double limit;      /* in seconds, tokens/s, bytes, watts */
    double hysteresis; /* margin: how far within the limit a step up needs: 0.15 */
    int down_after;    /* violations in a row before a step down: 3 */
    int up_after;      /* requests within the margin in a row before a step up: 12 */
};
/* Parse "itl=20ms", "ttft=300ms", "decode=30", "memory=2G" (at least this much available), "power=25" or
 * "queue=4" (waiting requests: of a server only); defaults for the rest. Errors: ERR_USAGE with what is
 * allowed. */
enum err_code governor_rule_parse(struct governor_rule *r, const char *text, struct err *why);

/* ---------------------------------------------------------------- the rule (pure) */

struct governor_state {
    int level, levels;             /* 0: the most exact */
    int beyond, within;            /* requests in a row */
    int since;                     /* requests since the last switch */
    int patience[GOVERNOR_LEVELS]; /* how many recent steps up to this level had to be undone */
    double usual[GOVERNOR_LEVELS]; /* value at that level, exponentially smoothed; NAN unknown */
    bool climbed;                  /* the last switch was a step up */
};
void governor_init(struct governor_state *s, int levels);
/* Feed the value of one request (NAN: unknown). Returns the level for the next one; *reason (size 160) says
 * why it changes. */
int governor_step(struct governor_state *s, const struct governor_rule *r, double value, char reason[160]);

/* ---------------------------------------------------------------- the loop */

struct governor_switch {
    int from, to;
    int64_t unix_ms, request; /* number of the request that it precedes */
    char reason[160];
    double before,
        after; /* mean of the value over the neighbouring requests; after: NAN until there were some */
};
struct governor_figures { /* of one level */
    int64_t requests, tokens, beyond;
    int64_t values;         /* known ones */
    double seconds, signal; /* mean of the value; NAN */
    bool loaded;
};
struct governor_options {
    const char *model_path;
    const struct config *config[GOVERNOR_LEVELS]; /* the most exact first */
    int levels;
    struct workload workload; /* per request */
    struct governor_rule rule;
    int64_t requests; /* 0: limited by for_s only */
    double for_s;     /* 0: limited by requests only */
    double every_s;   /* seconds between the starts of two requests, at least */
    uint64_t seed;
    const struct machine *machine;
    const char *db_path;
    const struct run_labels *labels; /* of the run; NULL: none */
    struct sampler_thread *sampler;  /* borrowed; NULL: memory and power are unknown */
    const char *program;
    const struct log *log;
    /* Called for each switch, again when its effect is known, and for every request (s NULL). False: stop. */
    bool (*told)(void *ctx, const struct governor_switch *s, int level, double value);
    void *ctx;
};
enum { GOVERNOR_SWITCHES = 256 };
struct governor_result {
    int64_t run_id, requests;
    struct governor_figures level[GOVERNOR_LEVELS];
    struct governor_switch sw[GOVERNOR_SWITCHES];
    int switches; /* the first GOVERNOR_SWITCHES of them are kept here; the database has all */
    bool stopped;
};
/* What a loop of its own needs (governor_run is one): take a value into the figures of the level that it was
 * measured at; NAN changes nothing. */
void governor_figures_add(struct governor_figures *f, const struct governor_rule *r, double value);
/* The effect of a switch: the mean over the first values after it. */
struct governor_effect {
    struct governor_switch *of; /* NULL: none is being measured */
    double sum;
    int n;
};
/* Record a switch, whose effect is measured from now on. Borrowed from the result. */
struct governor_switch *governor_switch_add(struct governor_result *r, struct governor_effect *e, int from,
                                            int to, double before, const char *reason);
/* Take a value into it (NAN: none). Returns the switch once its effect is known, with at_once from what there
 * is; otherwise NULL. */
const struct governor_switch *governor_effect_add(struct governor_effect *e, double value, bool at_once);

/* Load the levels (under a memory rule only those in use), serve requests, switch. A level other than the
 * current one that cannot be loaded is left out with a warning in the log. Errors: ERR_USAGE; those of
 * arm_open for the level in use. */
enum err_code governor_run(struct governor_result *out, const struct governor_options *o, struct err *why);

#endif
