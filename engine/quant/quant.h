/* engine/quant/quant.h - METHODS: how the numbers of a format are chosen; recipes: which tensor gets what. */
#ifndef QDYNO_ENGINE_QUANT_H
#define QDYNO_ENGINE_QUANT_H

#include "engine/config.h"
#include "engine/gguf.h"

struct method {
    const char *name; /* "rtn" */
    const char *help;
    bool needs_calibration;
    /* Quantize rows [rows][cols] of f32 into `format`; rows are independent (threads split them). */
    void (*quantize_rows)(const float *x, void *out, int64_t rows, int64_t cols, const struct format *format);
};
extern const struct method METHODS[];
extern const size_t METHOD_COUNT;
const struct method *method_find(const char *name);

/* The format tensor `t` gets under the config's recipe. 1-d tensors (norms, biases) and tensors that are
 * looked up rather than multiplied in other architectures stay as they are; a row length that no block of the
 * wanted format fits falls back to f16 (to the file's own format when that is smaller). *fell_back (may be
 * NULL) tells. Pure. */
const struct format *recipe_tensor_format(const struct config *c, const struct gguf_tensor *t,
                                          bool *fell_back);

/* True when the recipe leaves every tensor of the file as it is. */
bool recipe_is_identity(const struct config *c, const struct gguf *g);

/* Write `out_path` (atomic) = the source with the recipe applied; metadata copied, general.file_type and
 * qdyno.recipe set. A source tensor that is itself quantized and would change is ERR_USAGE (re-quantizing
 * hides what is measured); NaN or infinity in weights is ERR_FORMAT naming tensor and index. progress as in
 * synth; returning false cancels. */
struct quantize_options {
    const struct config *config;
    int threads;
    bool (*progress)(void *ctx, double done); /* may be NULL */
    void *ctx;
};
enum err_code quantize_file(const char *out_path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why);

/* Path of the cached result ($XDG_CACHE_HOME/qdyno/models/<sha256 of source and recipe>.gguf), made when
 * absent. The cache is kept below QDYNO_CACHE_LIMIT (default 20G) by removing the longest unused. *path owned
 * (free). */
enum err_code recipe_cached(char **path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why);

#endif
