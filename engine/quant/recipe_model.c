/* Plans and models under a recipe: engine/plan and engine/model know nothing of recipes, they call the
 * functions that are collected here. */
#include <stdlib.h>

#include "engine/gguf/gguf.h"
#include "engine/quant/quant.h"

static const struct format *view_format(const struct config *c, const struct gguf *g,
                                        const struct gguf_tensor *t)
{
    return recipe_tensor_format(c, g, t, NULL);
}

static enum input_kind view_input(const struct config *c, const struct gguf *g, const struct gguf_tensor *t)
{
    const struct params p = config_params(c);
    if (!p.method) return act_kind(g, t);
    const bool quantized = p.method->act &&
                           recipe_tensor_format(c, g, t, NULL) == format_find(config_text(c, KNOB_FORMAT));
    return quantized ? p.method->act(&p).kind : INPUT_FREE;
}

const struct recipe_view RECIPE_VIEW = {
    .format = view_format,
    .input = view_input,
    .is_identity = recipe_is_identity,
};

/* Passes progress on, and records that there was any: a file that is already in the cache needs no work. */
struct making {
    const struct model_options *options;
    bool worked;
};

static bool making_progress(void *arg, double done)
{
    struct making *making = arg;
    const struct model_options *o = making->options;
    making->worked = true;
    return !o->progress || o->progress(o->progress_arg, "quantize", done);
}

/* Waiting for another process that makes the file is no work of this one. */
static bool making_waits(void *arg)
{
    const struct model_options *o = ((const struct making *)arg)->options;
    return !o->progress || o->progress(o->progress_arg, "quantize", 0);
}

/* Another process may evict the file from the cache after recipe_cached returned its path and before it is
 * opened: then it is made again. */
static enum err_code recipe_make(struct gguf **made, bool *worked, const struct gguf *source,
                                 const struct model_options *o, const struct config *c, int threads,
                                 struct err *why)
{
    enum { TRIES = 3 };
    struct making making = { .options = o };
    const struct quantize_options q = {
        .config = c,
        .threads = threads,
        .progress = making_progress,
        .waiting = making_waits,
        .ctx = &making,
        .log = o->log,
    };
    enum err_code rc = ERR_IO;
    for (int i = 0; i < TRIES && rc == ERR_IO; i++) {
        char *path;
        if ((rc = recipe_cached(&path, source, &q, why))) break;
        rc = gguf_open(made, path, why);
        free(path);
    }
    *worked = making.worked;
    return rc;
}

static const struct model_recipe MODEL_RECIPE = { .view = &RECIPE_VIEW, .make = recipe_make };

enum err_code recipe_model_open(struct model **out, const struct model_options *options, struct err *why)
{
    struct model_options with_recipe = *options;
    with_recipe.recipe = &MODEL_RECIPE;
    return model_open(out, &with_recipe, why);
}

enum err_code recipe_plan_memory(struct memory_plan *out, const struct gguf *g, const struct config *c,
                                 int ctx, int sequences, struct err *why)
{
    return plan_memory(out, g, c, &RECIPE_VIEW, ctx, sequences, why);
}

static enum err_code context_fits(bool *fits, const struct gguf *g, const struct config *c, int64_t available,
                                  int64_t ctx, struct err *why)
{
    struct memory_plan p;
    const enum err_code rc = recipe_plan_memory(&p, g, c, (int)ctx, 1, why);
    *fits = !rc && !memory_plan_check(&p, config_text(c, KNOB_DEVICE), available, NULL);
    return rc == ERR_NOMEM ? rc : ERR_OK; /* a context that cannot be planned does not fit */
}

/* By bisection, because a longer context never needs less memory. */
enum err_code recipe_longest_context(int64_t *out, const struct gguf *g, const struct config *c,
                                     int64_t available, struct err *why)
{
    struct config sized = *c; /* an explicit number of threads avoids reading the CPU topology in each step */
    if (!config_int(c, KNOB_THREADS))
        config_resolve_int(&sized, KNOB_THREADS, threadpool_default_threads(), NULL);
    int64_t fitting = 0, beyond = CONTEXT_MOST + 1;
    enum err_code rc = ERR_OK;
    while (beyond - fitting > 1 && !rc) {
        const int64_t middle = fitting + (beyond - fitting) / 2;
        bool fits;
        rc = context_fits(&fits, g, &sized, available, middle, why);
        *(fits ? &fitting : &beyond) = middle;
    }
    *out = rc ? 0 : fitting;
    return rc;
}

enum err_code recipe_plan_operations(struct model_operations *out, const struct gguf *g,
                                     const struct config *c, struct err *why)
{
    return plan_operations(out, g, c, &RECIPE_VIEW, why);
}
