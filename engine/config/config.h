/* engine/config/config.h - KNOBS: every key of a config line, in one table.
 *
 * A config line is `key=value` pairs, comma- or space-separated, any order; a bare format or method name is a
 * recipe. CLI help, completion, the dashboard's forms, labels and docs are loops over KNOBS. */
#ifndef QDYNO_ENGINE_CONFIG_H
#define QDYNO_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct format; /* kernels/kernels.h */

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
    KNOB_PREFETCH,         /* off willneed populate: the enum prefetch */
    KNOB_HANDICAP,         /* percent that each step is slowed down by */
    KNOB_AMP,              /* from here on of workloads that train: the enum amp */
    KNOB_OPTIMIZER,        /* the enum optimizer */
    KNOB_CHECKPOINT_EVERY, /* layers; 0: keep all activations */
    KNOB_TRIM_EVERY,       /* steps; 0: never give memory back */
    KNOB_TRAIN_BATCH,      /* rows worked on at once */
    KNOB_ACCUMULATE,       /* batches of a step */
    KNOB_COUNT
};
/* `kv=TYPE` is shorthand for ctk=TYPE,ctv=TYPE; `bits=4` (any parameter of any method, or an alias of it) for
 * params=bits=4. */

/* Values of knobs that engine/ itself acts on, in the order of the knobs' choices. */
enum prefetch {
    PREFETCH_OFF,
    PREFETCH_WILLNEED,
    PREFETCH_POPULATE
};                                                   /* what happens to mapped weights while loading */
enum amp { AMP_OFF, AMP_BF16, AMP_FP16, AMP_COUNT }; /* mixed precision of training */
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_MUON, OPTIMIZER_COUNT };
extern const char *const AMP_NAMES[];       /* "off" "bf16" "fp16", NULL-terminated */
extern const char *const OPTIMIZER_NAMES[]; /* "adamw" "muon", NULL-terminated */

/* Kinds of values, of knobs and of method parameters alike (engine/config/value.c parses both). */
enum value_kind { VALUE_TEXT, VALUE_INT, VALUE_REAL, VALUE_BOOL, VALUE_CHOICE };

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
    enum value_kind kind;       /* VALUE_TEXT, VALUE_INT or VALUE_CHOICE */
    const char *const *choices; /* VALUE_CHOICE: NULL-terminated; NULL: rows of another table, knob_choices */
    int64_t min, max;           /* VALUE_INT */
    const char *otherwise;      /* default, as text */
    bool changes_answers;       /* may not be recommended without a quality measurement */
    unsigned matters_for;       /* FOR_* bits */
    const char *flag;           /* llama.cpp-style short flag "-t", or NULL */
    const char *unit;           /* "tokens", "threads", or ""; "%" may stand behind the value */
    const char *help;           /* one line */
};
extern const struct knob KNOBS[KNOB_COUNT]; /* indexed by enum knob_id */

/* Every value a VALUE_CHOICE may have ("file", then what FORMATS can make; "auto", then ISA_LEVELS; ...) into
 * names[cap]. Returns how many there are; 0 for other kinds. */
size_t knob_choices(enum knob_id id, const char **names, size_t cap);

/* One value of a config, typed when it was parsed. */
struct config_value {
    const char *text; /* canonical spelling; lives until the process ends (engine/config/value.c) */
    int64_t number;   /* VALUE_INT: the value; VALUE_CHOICE: its index among KNOBS[id].choices; else 0 */
};

/* A parsed line: typed values, and which of them the line gave. A plain value of about 500 bytes: it owns
 * nothing, so copy and assign it freely; there is nothing to free. A zeroed config reads as the
 * default one. Read it with config_text, config_int and
 * config_choice; write it with the functions below, which keep text and number together. */
enum { CONFIG_LINE = 2048 }; /* bytes for a line that is stored and compared: see config_line */
enum { CONFIG_VALUE = 512 }; /* bytes of one value's text, its end included: a longer one is ERR_USAGE */
struct config {
    struct config_value value[KNOB_COUNT];
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

/* Write a resolved value, such as the number of threads that a model really runs on: `given` stays as it is.
 * ERR_NOMEM. The caller vouches for the value. */
enum err_code config_resolve_int(struct config *c, enum knob_id id, int64_t value, struct err *why);
enum err_code config_resolve_text(struct config *c, enum knob_id id, const char *value, struct err *why);
/* Take a key out of the line: its default again, not given. */
void config_unset(struct config *c, enum knob_id id);

/* The canonical line, appended: given keys only, in table order; a recipe in its short form. "default" when
 * nothing was given. config_parse of it gives the same config. */
void config_append_line(const struct config *c, struct str *out);
/* The canonical line in a buffer, usable as a key that tells configs apart: a line that does not fit is
 * abbreviated to its beginning and ",#" with its SHA-256 in hex, which no other config has and config_parse
 * refuses. Lines that are stored or compared with stored ones need buffers of CONFIG_LINE bytes, so that all
 * of them are abbreviated alike. Returns buf. */
const char *config_line(const struct config *c, char *buf, size_t size);
/* SHA-256 of the canonical line: two configs have the same identity if and only if they have the same line.
 * ERR_NOMEM. */
enum err_code config_identity(const struct config *c, char hex[HASH_HEX], struct err *why);
/* Do both have the same canonical line? Values that were derived or resolved do not count. */
bool config_same(const struct config *a, const struct config *b);

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
 * "gptq:u3_g64;damp_percent=0.05", "q4_0;attn_v:q8_0". Parameters that say the default are left out.
 * Abbreviated as in config_line where it does not fit. */
const char *config_recipe(const struct config *c, char *buf, size_t size);

/* ---------------------------------------------------------------- parameters of methods */

/* One parameter of one method. Methods that mean the same by a parameter give it the same name and aliases
 * (the tests check that no alias of one is the name of another). */
struct param {
    const char *name;      /* the field's: "group_size" */
    const char *aliases;   /* other spellings, space-separated: "group q_group_size"; NULL: none */
    enum value_kind kind;  /* all but VALUE_TEXT */
    double min, max;       /* INT and REAL, where choices is NULL */
    const char *choices;   /* space-separated: all values of a CHOICE, or of an INT that has few; else NULL */
    const char *otherwise; /* default, as text */
    const char *help;      /* one line */
};

/* What a config says about its method's parameters. Borrowed from the config. */
struct params {
    const struct method *method;
    const char *given; /* "bits=3;group_size=64" */
};

/* The methods a config may name, built in and from plug-ins. engine/quant/methods.c defines these functions;
 * config lines need nothing else of a method. */
struct method;
size_t method_count(void);
const struct method *method_at(size_t i);
const struct method *method_find(const char *name); /* NULL when unknown; case-insensitive */
const char *method_name(const struct method *m);
const struct param *method_params(const struct method *m); /* up to the row whose name is NULL; NULL: none */
const char *method_formats(const struct method *m); /* space-separated, NULL: any that has an encoder */
const char *method_shorthand(
    const struct method *m); /* a parameter whose choices are recipes by themselves; NULL: none */
bool method_decides_format(const struct method *m); /* its parameters say the format */
/* The format of a recipe that names none, NULL where it has to. */
const char *method_format(const struct params *p);
/* Refuse combinations of parameters that make no sense. ERR_USAGE. */
enum err_code method_check(const struct params *p, struct err *why);

/* The value of a parameter that the method has (asserted): what is given, else the default. */
int64_t params_int(const struct params *p, const char *name);
double params_real(const struct params *p, const char *name);
bool params_bool(const struct params *p, const char *name);
bool params_is(const struct params *p, const char *name, const char *choice); /* of a CHOICE */
bool params_given(const struct params *p, const char *name); /* false, too, where there is no such one */
struct params config_params(const struct config *c);
/* Are all of them the method's, and sensible together? ERR_USAGE. */
enum err_code params_check_all(const struct params *p, struct err *why);
/* ";bits=3;group_size=64": the given ones that are not the default, in one spelling, appended. */
void params_identity(const struct params *p, struct str *out);

/* The canonical name of a parameter of any method, by name or alias; NULL when no method has it. */
const char *param_name(const char *word);
/* Check a value for this method's parameter and write its one spelling to out[size]. ERR_USAGE. */
enum err_code param_check(const struct method *m, const char *name, const char *value, char *out, size_t size,
                          struct err *why);

/* ---------------------------------------------------------------- workloads */

/* What is asked of a config, as text: "pp512", "tg128", "pp512+tg128@d4096", "tg64@b16", "eval:FILE",
 * "train20". */
struct workload {
    int prompt;          /* tokens of prefill that are timed, 0: none */
    int gen;             /* tokens of decode that are timed, 0: none */
    int depth;           /* tokens already in the cache before timing starts */
    int sequences;       /* that run side by side, all of the above in each; 0 and 1: one */
    char eval_file[512]; /* "" unless eval: */
    int eval_ctx;        /* -c of eval, 512 */
    int train;           /* steps of training from nothing (engine/train/trial.h), 0: a model runs */
};
/* Errors: ERR_USAGE with the grammar. */
enum err_code workload_parse(struct workload *w, const char *text, struct err *why);
/* Does everything this config says mean something to this workload? ERR_USAGE: names what does not. */
enum err_code workload_check(const struct workload *w, const struct config *c, struct err *why);
const char *workload_line(const struct workload *w, char *buf, size_t size);
int workload_ctx(const struct workload *w);       /* tokens of context each sequence needs */
int workload_sequences(const struct workload *w); /* >= 1 */

#endif
