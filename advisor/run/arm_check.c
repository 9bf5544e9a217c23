/* advisor/run/arm_check.c - what opening an arm would refuse, found without starting a process: the program
 * of another engine that is not installed, a model file that cannot be read, a recipe that the file does not
 * allow. The functions are those with which the arm is opened. */
#include <stdlib.h>

#include "advisor/run/foreign.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"

static enum err_code check_calibration(const struct config *c, struct err *why)
{
    const struct params p = config_params(c);
    const char *path = config_text(c, KNOB_CALIB);
    struct file_map map = { 0 };
    if (!*path || method_needs(&p) == CALIBRATION_NONE) return ERR_OK;
    const enum err_code rc = file_map(&map, path, why);
    file_unmap(&map);
    return rc ? err_prefix(why, "calib=%s", path) : ERR_OK;
}

/* A recipe that would not leave the file as it is has to be possible, as for `qdyno quantize`. */
static enum err_code check_recipe(const struct gguf *g, const struct config *c, struct err *why)
{
    struct quantize_plan plan = { 0 };
    if (recipe_is_identity(c, g)) return ERR_OK;
    const enum err_code rc = quantize_plan_init(&plan, g, c, why);
    if (!rc) quantize_plan_done(&plan);
    return rc;
}

static enum err_code check_own(const struct config *c, const char *model, int ctx, int sequences,
                               struct err *why)
{
    struct gguf *g = NULL;
    struct memory_plan plan;
    enum err_code rc = check_calibration(c, why);
    if (!rc) rc = model_file_open(&g, model, why);
    if (!rc) rc = check_recipe(g, c, why);
    if (!rc) rc = recipe_plan_memory(&plan, g, c, ctx, sequences, why);
    gguf_close(g);
    return rc;
}

enum err_code arm_check(const struct config *c, const char *model, int ctx, int sequences, struct err *why)
{
    const char *path = config_model_file(c, model);
    struct gguf *g = NULL;
    char *program = NULL;
    if (!config_is_foreign(c)) return check_own(c, path, ctx, sequences, why);
    enum err_code rc = ENGINES[config_engine(c)].program ? foreign_program(&program, c, why) : ERR_OK;
    if (!rc && *path) rc = model_file_open_any_type(&g, path, why);
    gguf_close(g);
    free(program);
    return rc;
}
