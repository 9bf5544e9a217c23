/* engine/config.h - KNOBS: every key of a config line, in one table.
 *
 * A config line is `key=value` pairs, comma- or space-separated, any order; a bare format or method name is a
 * recipe. CLI help, completion, the dashboard's forms, labels and docs are loops over KNOBS. */
#ifndef QDYNO_ENGINE_CONFIG_H
#define QDYNO_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum knob_id {
    KNOB_MODEL,  /* path of a GGUF file; "" = the command's -m */
    KNOB_METHOD, /* how numbers are chosen: "none" (as the file has them) or a row of METHODS ("rtn") */
    KNOB_FORMAT, /* target format of the recipe; "file" = as the file has them */
    KNOB_PARAMS, /* the method's parameters "bits=3;group_size=64", sorted; each may stand in a line by itself
                  */
    KNOB_CALIB,  /* file of calibration statistics or text; "" = the bundled text where a method needs one */
    KNOB_TENSORS,          /* per-tensor rules "attn_v:q8_0;ffn_down:f16"; "" = none */
    KNOB_THREADS,          /* 1..1024; 0 = all physical cores */
    KNOB_AFFINITY,         /* none compact spread */
    KNOB_ISA,              /* a level name; "auto" = all that may be used */
    KNOB_DEVICE,           /* "cpu" "opencl:0" ... */
    KNOB_GPU_LAYERS,       /* layers on the device, the first ones; -1: as many as fit */
    KNOB_PRECISION,        /* highest high medium */
    KNOB_ACT,              /* auto int8 */
    KNOB_CTX,              /* context in tokens; 0 = what the workload needs */
    KNOB_BATCH,            /* rows per forward pass at most (-b) */
    KNOB_CTK,              /* KV cache type of K */
    KNOB_CTV,              /* KV cache type of V */
    KNOB_HUGEPAGES,        /* buffers off all: the enum huge_pages */
    KNOB_REPACK,           /* off on */
    KNOB_PREFETCH,         /* off willneed populate: the enum prefetch of plan.h */
    KNOB_HANDICAP,         /* percent that each step is slowed down by */
    KNOB_AMP,              /* from here on of workloads that train: the enum amp of engine/train/product.h */
    KNOB_OPTIMIZER,        /* the enum optimizer of engine/train/train.h */
    KNOB_CHECKPOINT_EVERY, /* layers; 0: keep all activations */
    KNOB_TRIM_EVERY,       /* steps; 0: never give memory back */
    KNOB_TRAIN_BATCH,      /* rows worked on at once */
    KNOB_ACCUMULATE,       /* batches of a step */
    KNOB_COUNT
};
/* `kv=TYPE` is shorthand for ctk=TYPE,ctv=TYPE; `bits=4` (any parameter of any method, or an alias of it) for
 * params=bits=4. */

enum knob_kind { KNOB_TEXT, KNOB_INT, KNOB_CHOICE };

enum { /* which workloads a knob matters for */
       FOR_PREFILL = 1,
       FOR_DECODE = 2,
       FOR_QUALITY = 4,
       FOR_MEMORY = 8,
       FOR_ALL = 15,  /* of running a model */
       FOR_TRAIN = 16 /* training one */
};

struct knob {
    const char *key;
    enum knob_kind kind;
    const char *const *choices; /* KNOB_CHOICE: NULL-terminated; NULL: rows of another table, knob_choices */
    int64_t min, max;           /* KNOB_INT */
    const char *otherwise;      /* default, as text */
    bool changes_answers;       /* may not be recommended without a quality measurement */
    unsigned matters_for;       /* FOR_* bits */
    const char *flag;           /* llama.cpp-style short flag "-t", or NULL */
    const char *unit;           /* "tokens", "threads", or ""; "%" may stand behind the value */
    const char *help;           /* one line */
};
extern const struct knob KNOBS[KNOB_COUNT]; /* indexed by enum knob_id */

/* Every value a KNOB_CHOICE may have ("file", then what FORMATS can make; "auto", then ISA_LEVELS; ...) into
 * names[cap]. Returns how many there are; 0 for other kinds. */
size_t knob_choices(enum knob_id id, const char **names, size_t cap);

/* A parsed line: values as text (valid for their kind) plus which were given. Plain value: copy freely. */
enum { CONFIG_VALUE = 512 };
struct config {
    char value[KNOB_COUNT][CONFIG_VALUE];
    bool given[KNOB_COUNT];
};

void config_default(struct config *c);

/* Start from the defaults and apply `line`. Unknown keys, bad values, double keys and impossible combinations
 * are ERR_USAGE; the message names key, value, what is allowed and the nearest spelling.
 *   line    = item { (" " | ",") item }, or "default"
 *   item    = key "=" value | recipe;  a value with spaces, commas or quotes stands in double quotes, \" and
 * \\ recipe  = format | method | method ":" format       a bare format means the method "rtn"; a bare method
 * the format that its parameters mean; a word that is both ("nf4") the method; a published mix ("q4_K_M")
 * the method "gguf" */
enum err_code config_parse(struct config *c, const char *line, struct err *why);

/* Set one key (also "kv" and "recipe"): as if it stood in the line, but a value set before is replaced. What
 * only makes sense together (a method and its format) is checked by config_check, after the last one. */
enum err_code config_set(struct config *c, const char *key, const char *value, struct err *why);
enum err_code config_check(const struct config *c, struct err *why);

/* The line again, cut off at size: given keys only, table order; a recipe is written in its short form.
 * "default" when nothing was given. config_parse of it gives the same config. */
const char *config_line(const struct config *c, char *buf, size_t size);

/* All keys and values: what really runs, for records and comparison. New reference. */
json_t *config_to_json(const struct config *c);
/* Absent keys keep their default; `given` becomes what differs from the defaults. ERR_USAGE as config_parse.
 */
enum err_code config_from_json(struct config *c, const json_t *object, struct err *why);

int64_t config_int(const struct config *c, enum knob_id id);
const char *config_text(const struct config *c, enum knob_id id);
/* The first given key that means nothing for such work (FOR_* bits); NULL: there is none. */
const struct knob *config_stray(const struct config *c, unsigned work);
/* Index of the value among the knob's own choices (KNOBS[id].choices not NULL): for precision, act (enum
 * activations) and affinity, the enum of that name. */
int config_choice(const struct config *c, enum knob_id id);

/* The recipe part, as text that identifies the numbers: "file", "q8_0" (its method is rtn), "gptq:u4_g128",
 * "gptq:u3_g64;damp_percent=0.05", "q4_0;attn_v:q8_0". Parameters that say the default are left out. */
const char *config_recipe(const struct config *c, char *buf, size_t size);

#endif
