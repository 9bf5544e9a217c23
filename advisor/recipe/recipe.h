/* advisor/recipe/recipe.h - the public header of advisor/recipe/. */
#ifndef QDYNO_ADVISOR_RECIPE_H
#define QDYNO_ADVISOR_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "advisor/stats/stats.h"
#include "base/base.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/train/train.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/sensors/sensors.h"

/* ---------------------------------------------------------------- allocate */

/* which tensor gets which format, when bytes are short: the choice with the smallest sum
 * of costs.
 *
 * Each item has choices of known size and cost (KL divergence when it alone is stored so). Minimizing the sum
 * of costs under a sum of bytes with a multiplier lambda separates: every item takes what makes cost + lambda
 * * bytes smallest, which is a corner of its own lower convex hull; one lambda serves all (Everett 1963;
 * Shoham & Gersho 1988). What the last step leaves of the bytes is spent on the best of the remaining single
 * changes. Pure. */

enum { ALLOCATE_CHOICES = 16 };

struct cost_choice {
    int64_t bytes;
    double cost; /* >= 0; NAN: this choice is not offered */
};

struct item {
    struct cost_choice choice[ALLOCATE_CHOICES];
    int n;     /* choices */
    int taken; /* out: index of the choice */
};

struct allocation {
    int64_t bytes;
    double cost, lambda; /* lambda: cost a byte, at the last step */
};

/* The smallest cost with at most `limit` bytes: fills item[].taken. ERR_FIT when even the smallest choices
 * are more (says both numbers); ERR_USAGE when an item offers nothing. */
enum err_code allocate_bytes(struct allocation *out, struct item *items, int n, int64_t limit,
                             struct err *why);

/* The fewest bytes with a sum of costs of at most `limit`. ERR_FIT when even the best choices cost more. */
enum err_code allocate_cost(struct allocation *out, struct item *items, int n, double limit, struct err *why);

/* Is choice k of the item on its lower convex hull of (bytes, cost)? */
bool choice_is_efficient(const struct item *item, int k);

/* ---------------------------------------------------------------- recipe_rules */

/* one format a tensor, as a config line that is short enough to be one. Pure. */

struct assigned {
    const char *tensor; /* "blk.3.ffn_down.weight" */
    const struct format *format;
};

/* "q4_K,tensors=ffn_down@0-3+7:q6_K;token_embd:q8_0": the base format that makes it shortest, then rules for
 * what differs. False when it is longer than a value of a config line may be; *line is cut off then. */
enum { RECIPE_LINE = CONFIG_VALUE + 64 };
bool recipe_rules_line(const struct assigned *a, int n, char line[RECIPE_LINE]);

/* The part of a tensor's name that rules are by: "ffn_down" of "blk.3.ffn_down.weight"; *layer -1 outside of
 * layers. False: the name is of another kind (then its whole name is its part). */
bool recipe_rules_part(const char *tensor, char part[64], int *layer);

/* ---------------------------------------------------------------- sensitivity */

/* what each tensor of a model costs in each format, measured: KL divergence of the
 * model's predictions on real text when that tensor alone is stored so.
 *
 * Every figure is in the database as soon as it is measured, so a killed search goes on where it was and the
 * dashboard can show it. Tensors and formats that the time did not suffice for are estimated from what was
 * measured of the same tensor, in proportion to the squared rounding error the formats are documented with,
 * and say so. */

/* The formats a recipe is mixed of where nobody says: as others read them. */
extern const char SENSITIVITY_FORMATS[]; /* space-separated */

struct text_part {
    const char *text; /* borrowed */
    size_t n;
    char name[16]; /* of its bytes: the beginning of their hash */
};

struct sensitive_tensor {
    const struct gguf_tensor *source; /* borrowed from `source` below */
    int64_t bytes[ALLOCATE_CHOICES];  /* in each format; -1: its rows do not fill the blocks */
    double kld[ALLOCATE_CHOICES], kld_se[ALLOCATE_CHOICES], nmse[ALLOCATE_CHOICES]; /* NAN unknown */
    bool measured[ALLOCATE_CHOICES];
    bool swappable; /* a matrix that can be exchanged by itself; experts in one tensor cannot */
};

struct sensitivities {
    struct gguf *source;
    char model_sha256[HASH_HEX], basis[96];
    const struct format *format[ALLOCATE_CHOICES]; /* the last is "in floats": NULL, sensitive_float */
    int formats;
    struct sensitive_tensor *tensor;
    int n;
    int measured, estimated, of; /* pairs of tensor and format */
};

struct sensitivity_options {
    const char *model_path;
    const struct config *config; /* how it runs (threads, precision); its recipe part must be empty */
    const char *formats;         /* space-separated; NULL: SENSITIVITY_FORMATS */
    struct text_part text;
    int ctx; /* of a window */
    int64_t windows;
    double budget_s; /* no new measurement begins beyond it */
    struct db *db;   /* borrowed; NULL: nothing is kept */
    const struct log *log;
    /* what is being measured, done of all; false cancels. May be NULL. */
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};
/* The tensors and what is known of them: from the database, then measured. sensitivities_free in any case.
 * Errors: those of model_open and eval_substitution; ERR_USAGE when the file is quantized already (a second
 * rounding would hide in the first) or no tensor takes any of the formats; ERR_CANCELLED. */
enum err_code sensitivities_measure(struct sensitivities *out, const struct sensitivity_options *o,
                                    struct err *why);
void sensitivities_free(struct sensitivities *s);

/* What a tensor is stored in when it is left in floats: as the file has it, f16 instead of f32. */
const struct format *sensitive_float(const struct gguf_tensor *t);

/* As items to allocate: choice k is format[k], of cost kld. *items: free(). */
enum err_code sensitivities_items(struct item **items, const struct sensitivities *s, struct err *why);

/* ---------------------------------------------------------------- recipe_search */

/* a recipe of single tensors that beats every uniform one of its size, or the
 * honest answer that it does not.
 *
 * Sensitivities (advisor/sensitivity.h) say what each tensor costs alone, a Lagrangian allocation
 * (advisor/allocate.h) says who gets the bytes, and a text that took no part in the choice says whether it
 * was worth it: the mixed recipe and the uniform ones of at most its size are made and compared with the
 * model as it is, window by window. */

struct recipe_search {
    const char *model_path;
    const struct config *config; /* how it runs; no recipe in it */
    const char *formats;         /* NULL: SENSITIVITY_FORMATS */
    /* one of these three */
    const char *like;                   /* as large as this uniform format makes the model: "q4_K" */
    int64_t bytes;                      /* of the file, at most; 0: not asked */
    double kld;                         /* on the search text, at most; NAN: not asked */
    const char *text_file, *check_file; /* NULL: the bundled calibration text and the bundled held-out one;
                                           with text_file alone its second half is what checks */
    int ctx;                            /* 0: 256 */
    int64_t windows, check_windows;     /* 0: 12 and 32 */
    double budget_s;                    /* of measuring sensitivities */
    struct db *db;
    const struct log *log;
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};

struct recipe_figures {
    char line[RECIPE_LINE]; /* "" : none */
    int64_t bytes;          /* of the weights */
    int64_t file_bytes;
    double kld, kld_se, top1_ratio; /* on the text that checks; NAN unknown */
};

struct recipe_found {
    char model_sha256[HASH_HEX], basis[96];
    int tensors, measured, estimated, of;
    struct recipe_figures mixed, uniform; /* uniform: the best one of at most the size asked for */
    double predicted_kld;                 /* sum of single costs */
    double search_kld;                    /* of all together on the text that was searched on */
    /* ln of the ratio of their KL divergences, window by window; negative: the mixed one is nearer to the
     * model */
    struct interval difference;
    int64_t windows;     /* that were checked */
    bool beats;          /* the interval excludes 0 on the good side: the mixed recipe is recommended */
    bool random_weights; /* then none of this means anything for answers */
    char reason[256];    /* why not, "" otherwise */
};

/* Errors: those of sensitivities_measure and quantize; ERR_USAGE for a target that is none; ERR_FIT when no
 * mix reaches the target (says the nearest); ERR_CANCELLED. Not being better is no error: see beats. */
enum err_code recipe_search(struct recipe_found *out, const struct recipe_search *o, struct err *why);

/* ---------------------------------------------------------------- governor */

/* dynamic precision: several configurations of one model loaded, from the most exact to
 * the cheapest, and a rule that says which one answers the next request.
 *
 * The rule watches one number (a latency, a rate, memory, power) against a limit. Beyond it for some requests
 * in a row: one step cheaper. Well within it for many in a row: one step back to exactness, unless what that
 * step is known to cost would break the limit again. A step back that had to be taken back waits twice as
 * long the next time, so that load at the edge does not make it swing. Every switch is an event of the run,
 * with what it did to the number. */

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

/* ---------------------------------------------------------------- recovery */

/* Recovery of a quantized model: the quantized weights are trained to predict what the original predicts, and
 * the KL divergence before and after is measured on text that was not trained on. */
struct recovery {
    struct recover_options o;
    struct recover_report report;
    struct divergence before, after; /* from the predictions of the original */
    int64_t held_out_tokens;         /* positions scored for before and after */
    bool stories;                    /* trained on generated stories; false: on a text */
};

/* Parses "steps=N[,rate=X][,batch=N][,ctx=N][,only=norms][,amp=off]". Errors: ERR_USAGE. */
enum err_code recovery_parse(struct recovery *r, const char *text, struct err *why);

struct recovery_progress {
    enum recovery_phase { RECOVERY_BEFORE, RECOVERY_TRAINING, RECOVERY_AFTER } phase;
    int64_t done, of;    /* steps of training, else windows of text */
    double loss, left_s; /* only of training: mean KL divergence in nats, and seconds; else NAN */
};
struct recovery_job {
    const struct gguf *original;
    const char *quantized, *path;
    const char *calib; /* a text, whose last fifth is used only for measuring; "": generated stories */
    int threads;
    uint64_t seed;
    const struct log *log;
    bool (*progress)(void *ctx, const struct recovery_progress *p); /* returns false to stop; may be NULL */
    void *ctx;
};
/* Trains the file `quantized` to predict what `original` predicts, and writes the result to `path`.
 * ERR_FORMAT if the result is no better than `quantized`. After any error there is no file at `path`. */
enum err_code recovery_run(struct recovery *r, const struct recovery_job *j, struct err *why);

#endif
