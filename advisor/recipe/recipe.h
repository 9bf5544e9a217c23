/* advisor/recipe/recipe.h - mixed-precision recipes (sensitivity of tensors, allocation of bytes, search) and
 * recovery. Public header of advisor/recipe/. */
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

/* Bytes of a text on which recipes and the candidates of a search are compared. */
enum { RECIPE_TEXT_LIMIT = 1 << 28 };

/* ---------------------------------------------------------------- allocation */

/* Allocation: choose a format for each tensor so that the sum of costs is smallest within a limit on bytes.
 *
 * Each item offers choices of known size and cost (the KL divergence when that tensor alone is stored so). A
 * Lagrange multiplier lambda separates the problem: every item takes the choice with the smallest cost +
 * lambda * bytes, which is a corner of its lower convex hull, and one lambda serves all items (Everett 1963;
 * Shoham and Gersho 1988). The bytes that the last step leaves unused are spent on the best remaining single
 * changes. Pure. */

enum { ALLOCATE_CHOICES = 16 };

struct cost_choice {
    int64_t bytes;
    double cost; /* >= 0; NAN: this choice is not offered */
};

struct item {
    struct cost_choice choice[ALLOCATE_CHOICES];
    int n;     /* number of choices */
    int taken; /* out: index of the chosen one */
};

struct allocation {
    int64_t bytes;
    double cost, lambda; /* cost per byte at the last step */
};

/* Minimize the cost with at most `limit` bytes; fills item[].taken. Errors: ERR_FIT when the smallest choices
 * exceed the limit (with both numbers); ERR_USAGE when an item offers no choice. */
enum err_code allocate_bytes(struct allocation *out, struct item *items, int n, int64_t limit,
                             struct err *why);

/* Minimize the bytes with a cost of at most `limit`. Errors: ERR_FIT when the most exact choices cost more;
 * ERR_USAGE as above. */
enum err_code allocate_cost(struct allocation *out, struct item *items, int n, double limit, struct err *why);

/* Does choice k lie on the item's lower convex hull of (bytes, cost)? */
bool choice_is_efficient(const struct item *item, int k);

/* ---------------------------------------------------------------- rules */

/* Rules: writes one format per tensor as a config line that is short enough to be one. Pure. */

struct assigned {
    const char *tensor; /* "blk.3.ffn_down.weight" */
    const struct format *format;
};

/* Write e.g. "q4_K,tensors=ffn_down@0-3+7:q6_K;token_embd:q8_0": the base format that makes it shortest, then
 * rules for the tensors that differ. False when it exceeds the length of a config value; *line is truncated
 * then. */
enum { RECIPE_LINE = CONFIG_VALUE + 64 };
bool recipe_rules_line(const struct assigned *a, int n, char line[RECIPE_LINE]);

/* The part of a tensor's name that rules match: "ffn_down" of "blk.3.ffn_down.weight"; *layer is -1 outside
 * of layers. False: the name has another form, and the whole name is the part. */
bool recipe_rules_part(const char *tensor, char part[64], int *layer);

/* ---------------------------------------------------------------- sensitivities */

/* Sensitivities: the KL divergence of the model's predictions on a text when one tensor alone is stored in
 * another format.
 *
 * Every value is stored as soon as it is measured, so a killed search can be resumed, and the dashboard can
 * show it. Pairs of tensor and format that the budget did not cover are estimated from the tensor's measured
 * formats, in proportion to the documented squared error (NMSE) of the formats, and marked as estimated. */

/* The formats of a mixed recipe by default: those that other programs read, too. */
extern const char SENSITIVITY_FORMATS[]; /* space-separated */

struct text_part {
    const char *text; /* borrowed */
    size_t n;
    char name[16]; /* first digits of the text's hash */
};

struct sensitive_tensor {
    const struct gguf_tensor *source; /* borrowed from `source` below */
    int64_t bytes[ALLOCATE_CHOICES];  /* by format; -1: its rows do not fill the format's blocks */
    /* by format; NAN unknown */
    double kld[ALLOCATE_CHOICES], kld_se[ALLOCATE_CHOICES], nmse[ALLOCATE_CHOICES];
    bool measured[ALLOCATE_CHOICES];
    bool swappable; /* a matrix that can be exchanged alone; tensors that hold several experts cannot */
};

struct sensitivities {
    struct gguf *source;
    char model_sha256[HASH_HEX], basis[96];
    /* the last one means "left in floats": NULL, see sensitive_float */
    const struct format *format[ALLOCATE_CHOICES];
    int formats;
    struct sensitive_tensor *tensor;
    int n;
    int measured, estimated, of; /* number of pairs of tensor and format */
    bool too_short;              /* the error is a budget that does not cover what has to be done */
};

struct sensitivity_options {
    const char *model_path;
    const struct config *config; /* runtime settings (threads, precision); its recipe part must be empty */
    const char *formats;         /* space-separated; NULL: SENSITIVITY_FORMATS */
    struct text_part text;
    int ctx; /* tokens per window */
    int64_t windows;
    /* No measurement begins after it. It leaves time for what the caller does afterwards: making later_models
     * files of this model and evaluating later_windows, or if that takes more than half of the budget, half
     * of it, but at least the time of later_least windows. A budget that does not even cover those is an
     * error. */
    double budget_s;
    int64_t later_windows, later_least;
    int later_models;
    struct db *db; /* borrowed; NULL: nothing is stored */
    const struct log *log;
    /* Called with what is measured and the share done; false cancels. May be NULL. */
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};
/* List the tensors, load known sensitivities from the database, and measure the others. sensitivities_free in
 * any case. Errors: those of model_open and eval_substitution; ERR_USAGE when the budget is too short, the
 * file is already quantized (the second rounding error would hide in the first) or no tensor takes any of the
 * formats; ERR_CANCELLED.
 */
enum err_code sensitivities_measure(struct sensitivities *out, const struct sensitivity_options *o,
                                    struct err *why);
void sensitivities_free(struct sensitivities *s);

/* The format of a tensor that is left in floats: the file's own, but f16 for f32. */
const struct format *sensitive_float(const struct gguf_tensor *t);

/* As items to allocate: choice k is format[k], its cost the KL divergence. *items: free(). Errors: ERR_NOMEM.
 */
enum err_code sensitivities_items(struct item **items, const struct sensitivities *s, struct err *why);

/* ---------------------------------------------------------------- search */

/* Search: a mixed recipe that beats every uniform one of its size, or the statement that none was found.
 *
 * Sensitivities give the cost of each tensor in each format, the allocation distributes the bytes, and a text
 * that was not used for either checks the result: the mixed recipe and the uniform ones of at most its size
 * are made and compared with the unchanged model, window by window. */

struct recipe_search {
    const char *model_path;
    const struct config *config; /* runtime settings, without a recipe */
    const char *formats;         /* NULL: SENSITIVITY_FORMATS */
    /* one of these three is given */
    const char *like; /* the size of this uniform format: "q4_K" */
    int64_t bytes;    /* size of the file, at most; 0: not given */
    double kld;       /* KL divergence on the search text, at most; NAN: not given */
    /* NULL: the bundled calibration text, and the bundled held-out text. With text_file alone, its second
     * half is the check. */
    const char *text_file, *check_file;
    int ctx;                        /* 0: 256 */
    int64_t windows, check_windows; /* windows of the search and of the check; 0: 12 and 32 */
    double budget_s;                /* seconds for measuring sensitivities and for the check */
    struct db *db;
    const struct log *log;
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};

struct recipe_figures {
    char line[RECIPE_LINE]; /* "": none */
    struct config config;   /* the same */
    int64_t bytes;          /* of the weights */
    int64_t file_bytes;
    double kld, kld_se, top1_ratio; /* on the check text; NAN unknown */
};

struct recipe_found {
    char model_sha256[HASH_HEX], basis[96];
    int tensors, measured, estimated, of;
    struct recipe_figures mixed, uniform; /* the best uniform recipe of at most that size */
    double predicted_kld;                 /* sum of the single sensitivities */
    double search_kld;                    /* of all tensors together, on the search text */
    /* KL divergence of the mixed recipe minus that of the uniform one, paired by window, nats per token;
     * negative: the mixed recipe is closer to the model */
    struct interval difference;
    int64_t windows;     /* number of windows checked */
    bool beats;          /* the interval excludes 0 on the better side: the mixed recipe is recommended */
    bool random_weights; /* the results then say nothing about quality */
    bool answers_unverified;
    char reason[256]; /* why it does not beat; "" otherwise */
    bool too_short;   /* recipe_search failed because its budget does not cover what has to be done */
};

/* Search a recipe. A recipe that is not better is no error (see beats). Errors: those of
 * sensitivities_measure and quantize; ERR_USAGE for an invalid target; ERR_FIT when no mix reaches the target
 * (with the closest); ERR_CANCELLED. */
enum err_code recipe_search(struct recipe_found *out, const struct recipe_search *o, struct err *why);

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
    bool force; /* run models with unknown parts (force=on) */
    uint64_t seed;
    const struct log *log;
    bool (*progress)(void *ctx, const struct recovery_progress *p); /* returns false to stop; may be NULL */
    void *ctx;
};
/* Trains the file `quantized` to predict what `original` predicts, and writes the result to `path`.
 * ERR_FORMAT if the result is no better than `quantized`. After any error there is no file at `path`. */
enum err_code recovery_run(struct recovery *r, const struct recovery_job *j, struct err *why);

#endif
