/* engine/quant/quant.h - METHODS: how the numbers of a format are chosen; recipes: which tensor gets what. */
#ifndef QDYNO_ENGINE_QUANT_H
#define QDYNO_ENGINE_QUANT_H

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/calibration.h"

/* ---------------------------------------------------------------- methods */

/* What a method needs to know about the inputs of a matrix. */
enum calibration_need { CALIBRATION_NONE, CALIBRATION_OPTIONAL, CALIBRATION_NEEDED };

struct tensor_job;
struct layer_job;
struct companion_tensor;

struct method {
    const char *name;           /* "gptq" */
    const char *help;           /* one line: what it does */
    const char *good, *bad;     /* one line each: where it shines and where not */
    const struct param *params; /* up to the row whose name is NULL; NULL: none */
    const char *formats;        /* space-separated names of what it can make; NULL: any that has an encoder */
    const char *shorthand; /* a parameter whose choices are recipes by themselves ("q4_K_M"); NULL: none */
    bool linear_only;      /* token embedding and output matrix stay as they are (f16 at most) */
    enum calibration_need calibration;
    const char
        *default_format;  /* its format where the recipe names none and `format` is NULL; NULL: it has to */
    const char *identity; /* hash of the plug-in it came from, whose answers may change; NULL: built in */

    /* All NULL where the method has no use for it. Pure but for the last three. */

    /* Refuse combinations of parameters that make no sense. */
    enum err_code (*check)(const struct params *p, struct err *why);
    /* The format these parameters mean, for a recipe that names none. */
    const char *(*format)(const struct params *p);
    /* Instead of that one format for all: what this tensor of this file gets (published mixes). NULL: keep.
     */
    const struct format *(*tensor_format)(const struct params *p, const struct gguf *g,
                                          const struct gguf_tensor *t);
    /* What it needs to know with these parameters; without it `calibration`. */
    enum calibration_need (*needs)(const struct params *p);
    /* general.file_type of what it makes, where that says more than the format. */
    uint32_t (*file_type)(const struct params *p);
    /* How matrices of the method's format treat activations. */
    struct act_scheme (*act)(const struct params *p);
    /* How many samples of how many tokens `layer` wants; without it there are none. */
    void (*samples)(const struct params *p, int *count, int *tokens);
    /* The small tensors that job->name brings along: filled into out[COMPANION_COUNT], returns how many. */
    int (*companions)(const struct tensor_job *job, struct companion_tensor *out);

    /* See engine/quant/methods.h. At least one of rows and tensor. */
    void (*rows)(const struct tensor_job *job, const float *x, void *out, int64_t rows);
    enum err_code (*tensor)(struct tensor_job *job, struct err *why);
    enum err_code (*layer)(struct layer_job *job, struct err *why);
};

/* Make methods of plug-ins (share/include/qdyno_plugin.h) known: those of QDYNO_PLUGINS, paths with ':'
 * between them, then `files`. The variable names all of them afterwards, for worker processes to inherit.
 * Once, while there is one thread. Errors: ERR_IO (no such file), ERR_FORMAT (not a plug-in of this version;
 * it crashes, or hangs; its description cannot be right), ERR_USAGE, ERR_FIT, ERR_CANCELLED. */
enum err_code plugins_load(const char *const *files, int count, struct err *why);
void plugins_unload(void); /* forget them: their methods are gone */

/* What a recipe's method needs to know; of none: nothing. */
enum calibration_need method_needs(const struct params *p);

/* Can the method make this format by itself? (What rules ask for beyond that is rounded to nearest.) */
bool method_makes(const struct method *m, const struct format *f);

/* ---------------------------------------------------------------- recipes */

/* The format tensor `t` of file `g` gets under the config's recipe. 1-d tensors (norms, biases) and tensors
 * that are looked up rather than multiplied in other architectures stay as they are; a row length that no
 * block of the wanted format fits falls back to f16 (to the file's own format when that is smaller).
 * *fell_back (may be NULL) tells. Pure. */
const struct format *recipe_tensor_format(const struct config *c, const struct gguf *g,
                                          const struct gguf_tensor *t, bool *fell_back);

/* Does the recipe give it other numbers? Not the same as another format: some methods keep the format. */
bool recipe_converts(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);

/* True when the recipe leaves every tensor of the file as it is. */
bool recipe_is_identity(const struct config *c, const struct gguf *g);

enum tensor_fate {
    FATE_METHOD,    /* the method chooses its numbers */
    FATE_RULE,      /* a rule of the recipe names its format */
    FATE_FELL_BACK, /* its rows do not fill the wanted format's blocks */
    FATE_OUTER,     /* token embedding or output matrix, which the method leaves alone */
    FATE_KEPT,      /* no recipe changes it: norms, biases, positions */
    FATE_AS_IS,     /* the recipe asks for nothing */
    FATE_COUNT
};
extern const char *const TENSOR_FATES[FATE_COUNT]; /* in a few words, for people */

/* Why the recipe gives tensor `t` the format it does. Pure. */
enum tensor_fate recipe_tensor_fate(const struct config *c, const struct gguf *g,
                                    const struct gguf_tensor *t);

struct tensor_plan {
    const struct gguf_tensor *source;
    const struct format *format; /* in the new file */
    enum tensor_fate fate;
    bool converts;      /* other bytes than the source's */
    bool quantized;     /* as the method or a rule wants it; not what is left out or kept in floats */
    int64_t bytes;      /* with its companion tensors */
    double nmse;        /* sum (w - w')^2 / sum w^2; NAN before quantize_plan_measure */
    bool nmse_rescaled; /* a scale that the method moved into another matrix was estimated for it */
};

/* A recipe on a file, tensor by tensor, from headers alone. */
struct quantize_plan {
    struct tensor_plan *tensors; /* in the source's order */
    int64_t count;
    int64_t weights;
    int64_t bytes_before, bytes; /* of weights; companion tensors included */
    int64_t file_bytes;          /* of the new file, a little more than it will be */
    double nmse;   /* mean over the weights of quantized tensors; NAN before quantize_plan_measure */
    int64_t worst; /* the quantized tensor with the largest; -1: none or not measured */
};

/* *out owned: quantize_plan_done. Errors: whatever quantize_file refuses from headers alone. */
enum err_code quantize_plan_init(struct quantize_plan *out, const struct gguf *source, const struct config *c,
                                 struct err *why);
void quantize_plan_done(struct quantize_plan *p); /* {0} is fine */

/* Decode what was made and compare: fills nmse of the plan and its tensors. What a method keeps beside a
 * matrix counts (order of inputs, divided inputs, columns kept aside), and so do scales it moved into a norm;
 * those moved into another matrix are estimated. ERR_FORMAT: `made` is not what the plan says. */
enum err_code quantize_plan_measure(struct quantize_plan *p, const struct gguf *source,
                                    const struct gguf *made, int threads, struct err *why);

/* Write `out_path` (atomic) = the source with the recipe applied; metadata copied, general.file_type and
 * qdyno.recipe set. A source tensor that is itself quantized and would change is ERR_USAGE (re-quantizing
 * hides what is measured); NaN or infinity in weights is ERR_FORMAT naming tensor and index. progress as in
 * synth; returning false cancels (ERR_CANCELLED). With `resume`, what a cancelled or killed run has finished
 * is kept beside the target (PATH.partial) and a run with the same source and recipe goes on from there. */
struct quantize_options {
    const struct config *config; /* its calib: a calibration or imatrix file, or a text; "": bundled text */
    int threads;
    bool resume;
    bool (*progress)(void *ctx, double done); /* may be NULL */
    void *ctx;
    const struct log *log; /* may be NULL */
};
enum err_code quantize_file(const char *out_path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why);

/* Path of the cached result ($XDG_CACHE_HOME/qdyno/models/<sha256 of source and recipe>.gguf), made when
 * absent. The cache is kept below QDYNO_CACHE_LIMIT (default 20G) by removing the longest unused. *path owned
 * (free). */
enum err_code recipe_cached(char **path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why);

/* ---------------------------------------------------------------- models under a recipe */

/* What a recipe does to a model's tensors, for plans (engine/plan/plan.h) and for opening
 * (engine/model/model.h). */
extern const struct recipe_view RECIPE_VIEW;

/* As model_open, with the config's recipe applied: the file that runs is made in the cache where it is not
 * there yet. */
enum err_code recipe_model_open(struct model **out, const struct model_options *options, struct err *why);

/* As plan_memory and plan_operations, for the file the config's recipe would make. */
enum err_code recipe_plan_memory(struct memory_plan *out, const struct gguf *g, const struct config *c,
                                 int ctx, int sequences, struct err *why);
enum err_code recipe_plan_operations(struct model_operations *out, const struct gguf *g,
                                     const struct config *c, struct err *why);

#endif
