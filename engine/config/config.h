/* engine/config/config.h - config lines: what a run is told to do, as text and as typed values; workload
 * lines.
 *
 * A config line consists of `key=value` pairs, separated by commas or spaces, in any order. A bare format or
 * method name is a recipe: how weights are quantized. KNOBS is the table of all keys; command-line help,
 * completion, forms, labels and docs/config.md are loops over it. */
#ifndef QDYNO_ENGINE_CONFIG_H
#define QDYNO_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct format; /* kernels/kernels.h */

enum knob_id {
    KNOB_MODEL,        /* path of a GGUF file; "" = the command's -m */
    KNOB_METHOD,       /* quantization method: "none" (as in the file) or a row of METHODS ("rtn") */
    KNOB_FORMAT,       /* format of the weights; "file": as in the file */
    KNOB_PARAMS,       /* the method's parameters, "bits=3;group_size=64", sorted by name */
    KNOB_CALIB,        /* calibration file, or a text; "": the bundled text if the method needs one */
    KNOB_TENSORS,      /* formats of single tensors, "attn_v:q8_0;ffn_down:f16"; "": none */
    KNOB_THREADS,      /* 1..1024; 0: all physical cores */
    KNOB_AFFINITY,     /* none compact spread */
    KNOB_NUMA,         /* off spread local interleave replicate: the enum numa_policy */
    KNOB_ISA,          /* name of an instruction-set level; "auto": all that this machine has */
    KNOB_DEVICE,       /* "cpu" "opencl:0" ... */
    KNOB_GPU_LAYERS,   /* number of layers on the device, from the first; -1: as many as fit */
    KNOB_EXPERT_PLACE, /* "device" "host" "auto", or the number of layers whose experts are on the device */
    KNOB_PRECISION,    /* highest high medium */
    KNOB_ACT,          /* auto int8 */
    KNOB_CTX,          /* context in tokens; 0: as the workload needs */
    KNOB_BATCH,        /* largest number of rows per forward pass (-b) */
    KNOB_CTK,          /* KV cache type of K */
    KNOB_CTV,          /* KV cache type of V */
    KNOB_KV_ROTATE,    /* auto on off: the enum kv_rotate */
    KNOB_KV_CACHE,     /* paged contiguous off: the enum cache_layout */
    KNOB_HUGEPAGES,    /* buffers off all: the enum huge_pages */
    KNOB_REPACK,       /* off on */
    KNOB_BATCH_INVARIANT, /* off on */
    KNOB_COMPILE,         /* fused off autotune: the enum compile */
    KNOB_ATTENTION,       /* flash plain: the enum attention_method */
    KNOB_PARALLEL,      /* "off", or how the model is divided among processes: "tp2.pp2" (struct parallel) */
    KNOB_HOSTS,         /* file of the machines on which these run; "": this one */
    KNOB_EXCHANGE,      /* f32 bf16 q8_0: format of activations between them */
    KNOB_PREFETCH,      /* off willneed populate: the enum prefetch */
    KNOB_OVERSIZE,      /* off on: weights may exceed memory */
    KNOB_FORCE,         /* off on: run a model file with parts that are unknown (engine/arch/arch.h) */
    KNOB_REQUANTIZE,    /* off on: a recipe may quantize again what the file has quantized */
    KNOB_HANDICAP,      /* artificial slowdown of each step, in percent */
    KNOB_GRID,          /* grams of CO2 per kWh of electricity here; -1: unknown */
    KNOB_ENGINE,        /* the enum engine_kind: which program runs the model */
    KNOB_BIN,           /* program of another engine; "": its usual name, in PATH */
    KNOB_ARGS,          /* its further command-line arguments */
    KNOB_URL,           /* address of a running server (engine=openai) */
    KNOB_KEY_ENV,       /* environment variable with the key of that server; "": none */
    KNOB_MAX_SEQUENCES, /* from here on for workloads with requests (load:): in the cache at a time */
    KNOB_STEP_TOKENS,   /* most rows of a step; 0: batch */
    KNOB_KV_BLOCKS,     /* blocks of the KV cache; 0: enough for all sequences with full contexts */
    KNOB_PREFIX_CACHE,  /* on off */
    KNOB_EVICT,         /* the enum evict_policy */
    KNOB_PREEMPT,       /* the enum preempt */
    KNOB_SCHEDULE,      /* the enum schedule */
    KNOB_ITL_LIMIT,     /* milliseconds; 0: none */
    KNOB_AMP,           /* from here on for workloads that train: the enum amp */
    KNOB_OPTIMIZER,     /* the enum optimizer */
    KNOB_CHECKPOINT_EVERY, /* layers; 0: store all activations */
    KNOB_TRIM_EVERY,       /* steps; 0: never return memory */
    KNOB_TRAIN_BATCH,      /* rows per batch */
    KNOB_ACCUMULATE,       /* batches per optimizer step */
    KNOB_COUNT
};
/* In a line, `kv=TYPE` is short for ctk=TYPE,ctv=TYPE, and `bits=4` (a parameter of any method, or its alias)
 * is short for params=bits=4. */

/* Values of knobs that engine/ itself acts on, in the order of the knobs' choices. */
enum prefetch {
    PREFETCH_OFF,
    PREFETCH_WILLNEED,
    PREFETCH_POPULATE
}; /* what to do with mapped weights while loading */
enum kv_rotate {
    KV_ROTATE_AUTO,
    KV_ROTATE_ON,
    KV_ROTATE_OFF
}; /* Hadamard rotation of what a KV cache stores */
enum cache_layout {
    CACHE_PAGED,      /* blocks that any sequence can have, found through tables */
    CACHE_CONTIGUOUS, /* one piece for each sequence, as long as its context */
    CACHE_OFF         /* keys and values are computed again for every token */
};
enum { STAGES_MOST = 12 }; /* with numbers of layers given: the text of all of them stays short */
/* How many processes share what (parallel=); 1: nothing is shared in that way. */
struct parallel {
    int tp;                        /* heads and rows of matrices */
    int cp;                        /* positions of a sequence */
    int pp;                        /* layers */
    int dp;                        /* sequences: each has the whole model */
    int stage_layers[STAGES_MOST]; /* layers of each of the pp stages, for unequal machines; [0] 0: equal
                                      parts */
};
/* "off", or terms such as "tp2.pp2" in any order; pp20+12 is pp2 with so many layers in each stage.
 * ERR_USAGE.
 */
enum err_code parallel_parse(struct parallel *out, const char *text, struct err *why);
int parallel_ranks(const struct parallel *p); /* the product: number of processes */
/* The canonical text. Returns buf. */
const char *parallel_text(const struct parallel *p, char *buf, size_t size);
/* What rank `rank` of parallel_ranks(p) does, parts counted from 1: "tp 1/2", "tp 2/2 pp 1/2"; "" of one
 * process. Returns buf. */
const char *parallel_role(const struct parallel *p, int rank, char *buf, size_t size);

/* ERR_USAGE unless training can be divided so: dpN only, N a power of 2 that divides the batches of a step,
 * whose gradients are summed in pairs (engine/train/sums.h). */
enum err_code parallel_check_training(const struct parallel *p, int64_t accumulate, struct err *why);

/* How waiting requests are admitted, and what comes first in a step. */
enum schedule {
    SCHEDULE_FCFS,          /* requests that generate first, then prompts in order of arrival */
    SCHEDULE_PREFILL_FIRST, /* prompts first: short waits for the first token, long gaps between the others */
    SCHEDULE_PRIORITY,      /* as fcfs, important requests first */
    SCHEDULE_SHORTEST,      /* as fcfs, the request with the fewest tokens left to compute first */
    SCHEDULE_STATIC,  /* waits for max_sequences requests, then admits no more until all of them have ended */
    SCHEDULE_DYNAMIC, /* all that wait when the last batch has ended are the next batch */
    SCHEDULE_COUNT
};
extern const char *const SCHEDULE_NAMES[]; /* indexed by enum schedule, NULL-terminated */

/* What a running request keeps when its blocks are needed for a more important one. */
enum preempt {
    PREEMPT_RECOMPUTE, /* nothing: its tokens are computed again */
    PREEMPT_SWAP,      /* copies of its blocks outside the cache, of all requests at most as many as the
                          cache has; beyond, nothing */
    PREEMPT_COUNT
};
extern const char *const PREEMPT_NAMES[]; /* indexed by enum preempt, NULL-terminated */

/* Which cached block without references gives its space away: engine/serve/pool.h. */
enum evict_policy {
    EVICT_LRU,
    EVICT_FIFO,
    EVICT_LIFO,
    EVICT_LEAF_LRU,
    EVICT_PRIORITY,
    EVICT_FARTHEST, /* only where the future is known: traces */
    EVICT_COUNT
};
extern const char *const EVICT_NAMES[]; /* indexed by enum evict_policy, NULL at EVICT_FARTHEST */

/* The program that runs the model of an arm. All but qdyno itself are foreign: ENGINES says what each can do.
 */
enum engine_kind {
    ENGINE_QDYNO,
    ENGINE_LLAMA_SERVER,     /* llama.cpp's server, started and stopped by qdyno */
    ENGINE_LLAMA_BENCH,      /* llama.cpp's benchmark, run once for each phase of a cell */
    ENGINE_LLAMA_PERPLEXITY, /* llama.cpp's perplexity tool, for eval:FILE */
    ENGINE_OPENAI,           /* a running server with OpenAI's interface */
    ENGINE_COUNT
};
extern const char *const ENGINE_NAMES[]; /* indexed by enum engine_kind, NULL-terminated */

struct engine_row {
    const char *program; /* usual name of its program; NULL: it has none that qdyno starts */
    bool reads_file;     /* model= is a GGUF file; false: the name of a model that a server has */
    bool takes_flags;    /* settings with a llama.cpp flag in KNOBS (threads, ctx, ...) are handed on */
    bool times_tokens;   /* runs pp, tg and both */
    bool fills_depth;    /* can fill the KV cache before timing starts (@d) */
    bool keeps_depth;    /* and keeps it for later runs of the same prompt in the same process */
    bool takes_prompts;  /* it gets the prompts that it is given, and does not make its own */
    bool serves_loads;   /* runs load:..., many requests at a time */
    bool evaluates;      /* runs eval:FILE */
};
extern const struct engine_row ENGINES[ENGINE_COUNT];

enum amp { AMP_OFF, AMP_BF16, AMP_FP16, AMP_COUNT }; /* mixed precision of training */
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_MUON, OPTIMIZER_COUNT };
extern const char *const AMP_NAMES[];       /* "off" "bf16" "fp16", NULL-terminated */
extern const char *const OPTIMIZER_NAMES[]; /* "adamw" "muon", NULL-terminated */

/* Kinds of values, of knobs and of method parameters alike (engine/config/value.c parses both). */
enum value_kind { VALUE_TEXT, VALUE_INT, VALUE_REAL, VALUE_BOOL, VALUE_CHOICE };

enum { /* the kinds of work that a knob matters for */
       FOR_PREFILL = 1,
       FOR_DECODE = 2,
       FOR_QUALITY = 4,
       FOR_MEMORY = 8,
       FOR_ALL = 15,   /* all work that runs a model */
       FOR_TRAIN = 16, /* work that trains a model */
       FOR_LOAD = 32   /* work that serves requests that come and go */
};

struct knob {
    const char *key;
    enum value_kind kind; /* VALUE_TEXT, VALUE_INT or VALUE_CHOICE */
    const char *const
        *choices;     /* VALUE_CHOICE: NULL-terminated; NULL: names from another table, see knob_choices */
    int64_t min, max; /* VALUE_INT */
    const char *otherwise; /* default value, as text */
    bool changes_answers;  /* may not be recommended without a quality measurement */
    unsigned matters_for;  /* FOR_* bits */
    const char *flag;      /* llama.cpp-style short flag "-t", or NULL */
    const char *bare; /* what "--KEY" without "=VALUE" means on the command line; NULL: a value follows */
    const char *unit; /* "tokens", "threads", or ""; "%", "ms": the value may be written "3%", "50ms" */
    const char *help; /* one line */
};
extern const struct knob KNOBS[KNOB_COUNT]; /* indexed by enum knob_id */

/* A name that a setting has in another program (knob_names.c). */
struct knob_name {
    const char *name;    /* in lower case with '_': "n_gpu_layers" */
    const char *program; /* "llama.cpp" */
    enum knob_id knob;   /* the key that does the same, or the nearest one */
    const char *instead; /* NULL: the key does the same; otherwise that qdyno lacks it, and what is nearest */
};
extern const struct knob_name KNOB_NAMES[];
extern const size_t KNOB_NAME_COUNT;
/* "--n-gpu-layers", "gpu layers" and "--no-mmap" are found, too. NULL: no such name. */
const struct knob_name *knob_name_find(const char *word);
/* The other names of a key, separated by spaces. Returns buf. */
const char *knob_names_text(enum knob_id id, char *buf, size_t size);
/* The settings that qdyno lacks, in the order of the table; NULL behind the last one. */
const struct knob_name *knob_absent(size_t index);
size_t knob_absent_count(void);
/* Does text contain `wanted`, where space, '-' and '_' are the same letter and case does not matter? */
bool knob_text_contains(const char *text, const char *wanted);

/* Write the names of a knob's choices to names[cap] ("file" and all formats with an encoder; "auto" and
 * ISA_LEVELS; ...). Returns their number, which can exceed cap; 0: the knob is not a VALUE_CHOICE. */
size_t knob_choices(enum knob_id id, const char **names, size_t cap);

/* One value of a config, typed when it was parsed. */
struct config_value {
    const char *text; /* canonical spelling; lives until the process ends (engine/config/value.c) */
    int64_t number;   /* VALUE_INT: the value; VALUE_CHOICE: its index among KNOBS[id].choices; else 0 */
};

enum { CONFIG_LINE = 2048 }; /* bytes for a line that is stored and compared: see config_line */
enum { CONFIG_VALUE = 512 }; /* bytes of one value's text, its end included: a longer one is ERR_USAGE */

/* A parsed line: typed values, and which of them the line gave. It is a plain value of about 500 bytes that
 * owns nothing: copy and assign it freely, there is nothing to free. A zeroed config reads as the default
 * one. Read it with config_text, config_int and config_choice; write it with the functions below, which keep
 * text and number together. */
struct config {
    struct config_value value[KNOB_COUNT];
    bool given[KNOB_COUNT];
};

void config_default(struct config *c);

/* Parse a line. An unknown key, a bad value, a key given twice and an impossible combination are ERR_USAGE:
 * the message gives key, value, what is allowed and the nearest valid spelling.
 *
 *   line   = "default" | item { (" " | ",") item }
 *   item   = key "=" value | recipe
 *   recipe = format | method | method ":" format
 *
 * A value with spaces, commas or quotes is written in double quotes; inside, \" and \\ stand for " and \. A
 * bare format means method "rtn". A bare method means the format that its parameters give. A word that is
 * both ("nf4") is the method. A published mix ("q4_K_M") means method "gguf". */
enum err_code config_parse(struct config *c, const char *line, struct err *why);

/* Set one key (also "kv", "recipe" or a parameter) as in a line, but replace a value that was set before.
 * config_check checks combinations, such as a method and its format; call it after the last config_set. */
enum err_code config_set(struct config *c, const char *key, const char *value, struct err *why);
/* Gives `to` the value that `from` has for a key, which counts as given then. */
void config_take(struct config *to, const struct config *from, enum knob_id id);
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
/* A short name for people: another engine with its flags ("llama-server -t 1"), paths by their last part. It
 * is no config line, and two configs may have one name. Returns buf. */
const char *config_label(const struct config *c, char *buf, size_t size);
/* Do both have the same canonical line? Values that were derived or resolved do not count. */
bool config_same(const struct config *a, const struct config *b);

/* Is a key given that can change answers? */
bool config_changes_answers(const struct config *c);
/* Do two configs differ only in settings that change no answers? Arguments of llama.cpp's programs count by
 * what they set. */
bool config_same_answers(const struct config *a, const struct config *b);

/* All keys with their values, given or not. New reference. */
json_t *config_to_json(const struct config *c);
/* Absent keys get their default; keys whose value is not the default count as given. ERR_USAGE. */
enum err_code config_from_json(struct config *c, const json_t *object, struct err *why);

int64_t config_int(const struct config *c, enum knob_id id);
const char *config_text(const struct config *c, enum knob_id id);
/* The first given key that does not matter for this work (FOR_* bits); NULL: none. */
const struct knob *config_stray(const struct config *c, unsigned work);
/* Index of the value among KNOBS[id].choices (not NULL): the value of enum precision, activations, affinity,
 * numa_policy, huge_pages, prefetch, cache_layout, attention_method, amp or optimizer. */
int config_choice(const struct config *c, enum knob_id id);
enum engine_kind config_engine(const struct config *c);
bool config_is_foreign(const struct config *c); /* another engine than qdyno runs it */
/* The model file of a config: its own, or `otherwise`; "" where a server has its model under a name. */
const char *config_model_file(const struct config *c, const char *otherwise);
/* ERR_USAGE unless qdyno itself runs the config: what a command says that measures no arms. */
enum err_code config_check_own(const struct config *c, struct err *why);
/* Of how many layers, from the first, the experts run on the device (expert_place=); the others' run on the
 * CPU. */
enum { EXPERTS_WITH_LAYER = 1 << 16, EXPERTS_THAT_FIT = -1 };
int config_expert_layers(const struct config *c);
/* How the config divides its model among processes. */
struct parallel config_parallel(const struct config *c);
/* Are weights copied out of the mapped file (hugepages=all, numa=local, interleave and replicate)? */
bool config_copies_weights(const struct config *c);
/* The format in which activations travel between processes. */
const struct format *config_exchange(const struct config *c);
/* Does the config rotate this cache (KNOB_CTK or KNOB_CTV), where the model's heads allow it? */
bool config_rotates(const struct config *c, enum knob_id cache);

/* The recipe as text that identifies the quantized weights: "file", "q8_0" (its method is rtn),
 * "gptq:u4_g128", "gptq:u3_g64;damp_percent=0.05", "q4_0;attn_v:q8_0". Parameters with their default value
 * are omitted. Abbreviated as in config_line where it does not fit. */
const char *config_recipe(const struct config *c, char *buf, size_t size);

/* ---------------------------------------------------------------- parameters of methods */

/* One parameter of a method. A parameter with the same meaning has the same name and aliases in all methods
 * (a test checks that no alias is the name of another parameter). */
struct param {
    const char *name;      /* the usual name in the literature: "group_size" */
    const char *aliases;   /* other spellings, space-separated: "group q_group_size"; NULL: none */
    enum value_kind kind;  /* all but VALUE_TEXT */
    double min, max;       /* VALUE_INT and VALUE_REAL without choices */
    const char *choices;   /* allowed values, space-separated; NULL: min to max */
    const char *otherwise; /* default value, as text */
    const char *help;      /* one line */
};

/* A config's method and the parameters that it gives. The text lives until the process ends. */
struct params {
    const struct method *method;
    const char *given; /* "bits=3;group_size=64" */
};

/* The methods a config may name, built in and from plug-ins. engine/quant/methods.c defines these functions:
 * the table of methods is above this module, and config lines need nothing else of it. */
struct method;
size_t method_count(void);
const struct method *method_at(size_t i);
const struct method *method_find(const char *name); /* NULL when unknown; case-insensitive */
const char *method_name(const struct method *m);
const struct param *method_params(const struct method *m); /* up to the row whose name is NULL; NULL: none */
const char *method_formats(const struct method *m); /* space-separated, NULL: any that has an encoder */
/* The parameter whose value alone, as a recipe ("q4_K_M"), selects the method; NULL: none. The first method
 * that accepts the value is taken. */
const char *method_shorthand(const struct method *m);
bool method_decides_format(const struct method *m); /* its parameters say the format */
/* The format of a recipe that names the method only; NULL: it must name one. */
const char *method_format(const struct params *p);
/* Refuse combinations of parameters that make no sense. ERR_USAGE. */
enum err_code method_check(const struct params *p, struct err *why);

/* The value of a parameter: the given one, else the default. The method must have it (asserted). */
int64_t params_int(const struct params *p, const char *name);
double params_real(const struct params *p, const char *name);
bool params_bool(const struct params *p, const char *name);
bool params_is(const struct params *p, const char *name, const char *choice); /* of a CHOICE */
bool params_given(const struct params *p, const char *name);                  /* is it given? */
struct params config_params(const struct config *c);
/* Are all given parameters the method's, with valid values that make sense together? ERR_USAGE. */
enum err_code params_check_all(const struct params *p, struct err *why);
/* Append ";bits=3;group_size=64": the given parameters that are not the default, in canonical spelling. */
void params_identity(const struct params *p, struct str *out);

/* The canonical name for the name or alias of any method's parameter; NULL: no method has it. */
const char *param_name(const char *word);
/* Check a value of this method's parameter and write its canonical spelling to out[size]. ERR_USAGE. */
enum err_code param_check(const struct method *m, const char *name, const char *value, char *out, size_t size,
                          struct err *why);

/* ---------------------------------------------------------------- workloads */

/* How requests of a load arrive. */
enum load_arrivals {
    LOAD_NONE,     /* the workload is no load */
    LOAD_POISSON,  /* independent of each other, at a constant mean rate */
    LOAD_GAMMA,    /* gaps of a gamma distribution: burstier than Poisson, or more even */
    LOAD_CONSTANT, /* equal gaps */
    LOAD_RAMP,     /* Poisson, at a rate that grows from 0 to `rate` in the course of the run */
    LOAD_CLOSED,   /* each of `concurrency` clients sends its next request when the last one has ended */
    LOAD_TRACE,    /* at the times of a file */
    LOAD_ARRIVALS
};
extern const char *const LOAD_ARRIVAL_NAMES[]; /* of LOAD_POISSON to LOAD_RAMP, indexed so; NULL-terminated */

/* Figures of one request that a limit of a service-level objective may name. */
enum load_figure {
    LOAD_TTFT,    /* seconds from the scheduled arrival to the first token */
    LOAD_TPOT,    /* mean seconds per token after the first */
    LOAD_ITL_P50, /* quantiles of the gaps between its tokens */
    LOAD_ITL_P95,
    LOAD_ITL_P99,
    LOAD_ITL_MAX, /* the longest gap */
    LOAD_E2E,     /* seconds from the scheduled arrival to the last token */
    LOAD_QUEUE,   /* seconds from the scheduled arrival to the first step that computes some of its prompt */
    LOAD_FIGURES
};
extern const char *const LOAD_FIGURE_NAMES[]; /* indexed by enum load_figure, NULL-terminated */

struct load_limit {
    enum load_figure figure;
    double seconds; /* the figure must be less */
};
struct load_length {
    double median; /* tokens */
    double sigma;  /* standard deviation of the logarithm; 0: all have the same length */
};
#define LOAD_MEET 0.95 /* default of `meet` */
enum { LOAD_LIMITS = 8, LOAD_TRACE_CTX = 4096, LOAD_REQUESTS_MOST = 100000 };

/* Requests that come and go: "load:rate=4,requests=200,in=512,out=128". */
struct workload_load {
    enum load_arrivals arrivals;
    bool auto_rate;    /* rate=auto: the highest rate that meets the limits is wanted */
    double rate;       /* requests per second, on average; 0 with auto_rate, LOAD_CLOSED and LOAD_TRACE */
    double burstiness; /* LOAD_GAMMA: shape of the gaps; 1 is Poisson, less is burstier */
    int concurrency;   /* LOAD_CLOSED: clients */
    double think_s;    /* mean pause of a client before its next request; exponential */
    int requests;      /* LOAD_TRACE: at most; 0: all of the file */
    struct load_length in, out; /* tokens of a prompt that are new in this turn; of an answer */
    double prefix;              /* share of `in` that all requests have in common, at the start */
    int turns;                  /* requests of a conversation; a prompt contains all earlier ones */
    int ctx;                    /* most tokens of a conversation; 0: as the lengths need */
    char trace[256];            /* LOAD_TRACE: file */
    char prompts[256]; /* file of the user's own prompts; "": the bundled text. Then `in` and `out` with
                          a median of 0 are as the file has them */
    double speed;      /* LOAD_TRACE: times of the file are divided by it */
    struct load_limit limit[LOAD_LIMITS];
    int limits;
    double meet; /* share of requests that must meet the limits, for auto_rate */
};

/* The keys of a load line, for help and completion. */
struct load_key {
    const char *key, *value, *help; /* value: what it looks like, for people */
};
extern const struct load_key LOAD_KEYS[];
extern const size_t LOAD_KEY_COUNT;

/* The work that is measured, as text: "pp512", "tg128", "pp512+tg128@d4096", "tg64@b16",
 * "pp512@prompts:FILE", "eval:FILE", "train20", "load:rate=4,requests=200,in=512,out=128". */
struct workload {
    int prompt;        /* tokens of timed prefill, 0: none */
    int gen;           /* tokens of timed decode, 0: none */
    int depth;         /* tokens in the KV cache before timing starts */
    int sequences;     /* sequences that run side by side, each with all of the above; 0 and 1: one */
    char prompts[480]; /* @prompts: file of the user's own prompts; "": the bundled text. Of a load: in `load`
                        */
    char eval_file[512];       /* "" unless eval: */
    int eval_ctx;              /* tokens per window of eval, default 512 */
    int train;                 /* training steps from scratch (engine/train), 0: a model runs */
    struct workload_load load; /* arrivals LOAD_NONE unless load: */
};
enum { WORKLOAD_LINE = 576 }; /* bytes for any canonical line */
/* The file or folder of the user's own prompts; "": none. */
const char *workload_prompts(const struct workload *w);
/* ERR_USAGE: the message contains the grammar. */
enum err_code workload_parse(struct workload *w, const char *text, struct err *why);
/* The same for a line whose prompts come from this file or folder (NULL: as the line says). ERR_USAGE also:
 * the workload has no prompts (eval, training, a trace), or names a file itself; a name with a quote, or too
 * long. */
enum err_code workload_parse_prompts(struct workload *w, const char *text, const char *file, struct err *why);
bool workload_is_load(const struct workload *w);
/* The FOR_* bits of the work that it is. */
unsigned workload_work(const struct workload *w);
/* Do all given keys matter for this workload, and can the config's engine run it? ERR_USAGE names the first
 * key that does not, or what the engine lacks. */
enum err_code workload_check(const struct workload *w, const struct config *c, struct err *why);
const char *workload_line(const struct workload *w, char *buf, size_t size);
int workload_ctx(const struct workload *w); /* tokens of context each sequence needs; training: 0 */
/* Make a load one conversation of one client, without pauses: all it takes to read the weights once. Leaves
 * other workloads, and the lengths of a trace, as they are. */
void workload_shorten_load(struct workload *w);
/* Sequences that run in lockstep, >= 1; 1 for a load. */
int workload_sequences(const struct workload *w);
/* Sequences for which a model must be opened: of a load, the config's max_sequences. */
int workload_sequences_for(const struct workload *w, const struct config *c);

#endif
