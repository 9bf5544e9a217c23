/* engine/quant/quant.h - public header of engine/quant: quantization methods, recipes, and quantizing a file.
 *
 * A format (kernels/) defines how bytes encode weights. A method chooses those bytes from the original
 * weights, some also from activation statistics. A recipe assigns a method, its parameters and a format to
 * every tensor of a model; it is part of a config line. */
#ifndef QDYNO_ENGINE_QUANT_H
#define QDYNO_ENGINE_QUANT_H

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/calibration.h"

/* ---------------------------------------------------------------- methods */

/* Whether a method needs activation statistics (calibration.h) of the matrices it quantizes. */
enum calibration_need { CALIBRATION_NONE, CALIBRATION_OPTIONAL, CALIBRATION_NEEDED };

struct tensor_job;
struct layer_job;
struct companion_tensor;

/* One quantization method: a row of METHODS (methods.c), or a plug-in.
 * Function pointers are NULL where the method does not need them. All but the last three are pure. */
struct method {
    const char *name;           /* "gptq" */
    const char *help;           /* one line: what it does */
    const char *good, *bad;     /* one line each: when to use it, when not */
    const struct param *params; /* ends with a row whose name is NULL; NULL: no parameters */
    const char *formats;   /* space-separated formats it can encode; NULL: every format with an encoder */
    const char *shorthand; /* parameter whose values are also recipe names ("q4_K_M"); NULL: none */
    bool linear_only;      /* leaves token embedding and output matrix unquantized (at most f16) */
    enum calibration_need calibration; /* used where `needs` is NULL */
    bool experts;                      /* its calibration works for models with experts, too */
    const char *default_format; /* for recipes without a format, if `format` is NULL; NULL: must be given */
    const char *identity;       /* hash of the plug-in's library; NULL: built in */

    /* Reject parameter combinations that make no sense. ERR_USAGE. */
    enum err_code (*check)(const struct params *p, struct err *why);
    /* The format that these parameters imply, for a recipe without a format. */
    const char *(*format)(const struct params *p);
    /* The format of one tensor, for methods that mix formats; NULL result: leave the tensor as it is. */
    const struct format *(*tensor_format)(const struct params *p, const struct gguf *g,
                                          const struct gguf_tensor *t);
    /* Whether these parameters need a calibration. */
    enum calibration_need (*needs)(const struct params *p);
    /* Value of the GGUF key general.file_type, where the format alone does not determine it. */
    uint32_t (*file_type)(const struct params *p);
    /* Activation quantization of matrices in the method's format. */
    struct act_scheme (*act)(const struct params *p);
    /* Number of calibration sequences, and tokens in each, that `layer` runs through the model. */
    void (*samples)(const struct params *p, int *count, int *tokens);
    /* Kinds and sizes of the companion tensors of matrix job->name into out[COMPANION_COUNT]. Returns their
     * number. */
    int (*companions)(const struct tensor_job *job, struct companion_tensor *out);

    /* The work itself, see methods.h. At least one of rows and tensor is required. */
    void (*rows)(const struct tensor_job *job, const float *x, void *out, int64_t rows);
    enum err_code (*tensor)(struct tensor_job *job, struct err *why);
    enum err_code (*layer)(struct layer_job *job, struct err *why);
};

/* Load methods from plug-ins (share/include/qdyno_plugin.h): first those in the environment variable
 * QDYNO_PLUGINS (paths separated by ':'), then `files`. Sets QDYNO_PLUGINS to all of them so that worker
 * processes load the same. Call once, before the process has further threads. Errors: ERR_IO (no such file),
 * ERR_FORMAT (not a plug-in of this interface version; it crashes or hangs; its description is invalid),
 * ERR_USAGE, ERR_FIT (killed, probably for memory), ERR_CANCELLED. */
enum err_code plugins_load(const char *const *files, int count, struct err *why);
void plugins_unload(void); /* frees all plug-ins; pointers to their methods become invalid */

/* Whether the method of these parameters needs a calibration; CALIBRATION_NONE without a method. */
enum calibration_need method_needs(const struct params *p);

/* Whether the method itself can encode this format. (Other formats that rules ask for are rounded to
 * nearest.) */
bool method_makes(const struct method *m, const struct format *f);

/* ---------------------------------------------------------------- recipes */

/* Format that the config's recipe gives to tensor `t` of file `g`. 1-d tensors (norms, biases) and tensors
 * that are looked up or added instead of multiplied keep their format. A row length that is not a multiple of
 * the wanted format's block falls back to f16, or to the file's own format where that is smaller; *fell_back
 * (may be NULL) is set then. Pure. */
const struct format *recipe_tensor_format(const struct config *c, const struct gguf *g,
                                          const struct gguf_tensor *t, bool *fell_back);

/* The format that the recipe asks for, whether or not the tensor's rows fill its blocks. NULL: the tensor
 * keeps its format. Pure. */
const struct format *recipe_asked_format(const struct config *c, const struct gguf *g,
                                         const struct gguf_tensor *t);

/* Whether the recipe changes the tensor's bytes. True also without a change of format: some methods choose
 * other numbers in the format the file already has. */
bool recipe_converts(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);

/* True when the recipe leaves every tensor of the file as it is. */
bool recipe_is_identity(const struct config *c, const struct gguf *g);

/* Why a tensor gets the format it gets. */
enum tensor_fate {
    FATE_METHOD,    /* the recipe's method encodes it */
    FATE_RULE,      /* a rule of the recipe (tensors=) names its format */
    FATE_FELL_BACK, /* its rows are not a multiple of the wanted format's block */
    FATE_OUTER,     /* token embedding or output matrix, excluded by the method */
    FATE_KEPT,      /* norm, bias or position: no recipe changes it */
    FATE_AS_IS,     /* the recipe does not ask for a change */
    FATE_COUNT
};
extern const char *const TENSOR_FATES[FATE_COUNT]; /* printable, a few words each */

/* Why the recipe gives tensor `t` its format. Pure. */
enum tensor_fate recipe_tensor_fate(const struct config *c, const struct gguf *g,
                                    const struct gguf_tensor *t);

/* One tensor of a planned quantization. */
struct tensor_plan {
    const struct gguf_tensor *source;
    const struct format *format; /* in the new file */
    enum tensor_fate fate;
    bool converts;      /* its bytes differ from the source's */
    bool quantized;     /* encoded by the method or by a rule with a format smaller than f16 */
    int64_t bytes;      /* in the new file, companion tensors included */
    double nmse;        /* sum (w - w')^2 / sum w^2; NAN before quantize_plan_measure */
    bool nmse_rescaled; /* nmse is after a least-squares fit of a scale (see quantize_plan_measure) */
    double largest;     /* max |w - w'|; NAN: not verified (see quantize_plan_verify) */
    int64_t rounded;    /* number of values that differ from the source's; -1: not verified */
};

/* A recipe applied to a file, tensor by tensor, computed from headers alone. */
struct quantize_plan {
    struct tensor_plan *tensors; /* [count], in the source's order */
    int64_t count;
    int64_t weights;             /* number of weights in all tensors */
    int64_t bytes_before, bytes; /* of all tensors, before and after; companion tensors included */
    int64_t file_bytes;          /* upper estimate of the new file's size */
    double nmse;   /* mean over the weights of quantized tensors; NAN before quantize_plan_measure */
    int64_t worst; /* index of the quantized tensor with the largest nmse; -1: none or not measured */
};

/* *out is owned: quantize_plan_done. Errors: everything that quantize_file rejects from headers alone. */
enum err_code quantize_plan_init(struct quantize_plan *out, const struct gguf *source, const struct config *c,
                                 struct err *why);
void quantize_plan_done(struct quantize_plan *p); /* accepts {0} */

/* Tensors of a plan whose rows do not fill the blocks of the format that the recipe asks for. */
struct recipe_misfit {
    int64_t tensors, of;          /* how many; how many matrices the recipe was to quantize */
    int64_t row;                  /* weights in a row of the first of them */
    const struct format *asked;   /* the format asked for the first of them */
    const struct format *becomes; /* the format that it gets instead */
    double bits, weights_bits;    /* per weight: of the whole plan; of the format asked for */
    /* Of the formats of about the same bits, the one that leaves the fewest tensors out; NULL: none is
     * better.
     */
    const struct format *fits;
    int64_t fits_left; /* tensors that it leaves out */
    double fits_bits;  /* per weight of a whole file in that format; NAN: unknown */
};
/* False: every tensor gets the format that the recipe asks for. Computed from headers alone. */
bool recipe_misfit(struct recipe_misfit *out, const struct quantize_plan *p, const struct gguf *source,
                   const struct config *c);
/* "36 of 36 matrices cannot be q4_K: ...": what happens to them, and which format fits. Returns buf. */
const char *recipe_misfit_text(const struct recipe_misfit *m, char *buf, size_t size);

/* Decode the tensors of `made` and compare them with the source: sets nmse of the plan and of its tensors.
 * Companion tensors (input order, divisors, outlier columns) are taken into account, and so are scales that
 * the method folded into a norm. Scales folded into another matrix are estimated by least squares.
 * Errors: ERR_FORMAT (`made` differs from the plan), ERR_NOMEM. */
enum err_code quantize_plan_measure(struct quantize_plan *p, const struct gguf *source,
                                    const struct gguf *made, int threads, struct err *why);

/* Compare every value of the plan's tensors in f32, f16 and bf16 with what the source means (quantize_file),
 * and set `largest` and `rounded` of these tensors. Errors: ERR_FORMAT (`made` differs from the plan, or a
 * value is not the closest to the source's that its format holds), ERR_NOMEM. */
enum err_code quantize_plan_verify(struct quantize_plan *p, const struct gguf *source,
                                   const struct gguf *made, int threads, struct err *why);

/* Write `out_path` (atomically): the source with the recipe applied, its metadata copied, general.file_type
 * and qdyno.recipe set. A quantized tensor may become f32, f16 or bf16: then the values that it means are
 * written (input order, divisors, outlier columns and scales applied) and the tensors that belong to it are
 * left out. Errors: ERR_USAGE when a quantized tensor would be quantized again (a second rounding would hide
 * the first); ERR_FORMAT when weights contain NaN or infinity (names tensor and index); ERR_CANCELLED when
 * progress returns false; ERR_IO, ERR_NOMEM. Computed bytes of the source (gguf_assemble) are given up as
 * soon as they are written, so no open model may use this struct gguf. */
struct quantize_options {
    const struct config *config; /* its calib: calibration file, imatrix or text; "": the bundled text */
    int threads;
    bool resume; /* keep finished tensors of an interrupted run in PATH.partial, and continue from them */
    bool (*progress)(void *ctx, double done); /* 0 .. 1; may be NULL */
    /* recipe_cached calls it several times a second while another process makes the same copy; false ends the
     * wait with ERR_CANCELLED. May be NULL. */
    bool (*waiting)(void *ctx);
    void *ctx;
    const struct log *log; /* may be NULL */
};
enum err_code quantize_file(const char *out_path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why);

/* Path of the cached result, $XDG_CACHE_HOME/qdyno/models/<sha256 of source and recipe>.gguf; quantizes the
 * source first if it is not cached. While another process makes the same copy, waits for it. Least recently
 * used files are removed to keep the cache below QDYNO_CACHE_LIMIT (default 20G). *path is owned (free).
 * Errors: as quantize_file. */
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
/* The longest context, at most CONTEXT_MOST tokens, whose plan for one sequence fits into `available` bytes
 * (as memory_plan_check); 0: none. Errors: ERR_NOMEM. */
enum { CONTEXT_MOST = 1 << 24 };
enum err_code recipe_longest_context(int64_t *out, const struct gguf *g, const struct config *c,
                                     int64_t available, struct err *why);
enum err_code recipe_plan_operations(struct model_operations *out, const struct gguf *g,
                                     const struct config *c, struct err *why);

#endif
