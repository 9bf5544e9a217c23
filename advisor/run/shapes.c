/* advisor/run/shapes.c - measured OpenCL work-group shapes for models that are opened (run.h). */
#include "advisor/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "engine/quant/quant.h"

char *shapes_of(const struct config *c)
{
    enum { PATIENCE_MS = 200 };
    struct db *d = NULL;
    char *shapes = NULL;
    if (!strcmp(config_text(c, KNOB_DEVICE), "cpu")) return NULL;
    if (!db_open_reader(&d, NULL, PATIENCE_MS, NULL)) db_shapes_all(d, &shapes, NULL);
    db_close(d);
    return shapes;
}

enum err_code shapes_model_open(struct model **out, const struct model_options *options, struct err *why)
{
    struct model_options o = *options;
    char *shapes = shapes_of(o.config);
    o.shapes = shapes;
    const enum err_code rc = recipe_model_open(out, &o, why);
    free(shapes);
    return rc;
}
