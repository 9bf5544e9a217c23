/* advisor/shapes.h - what was measured of this machine's devices, for every model that is opened here. */
#ifndef QDYNO_ADVISOR_SHAPES_H
#define QDYNO_ADVISOR_SHAPES_H

#include "engine/config/config.h"
#include "engine/model/model.h"

/* Shapes of all OpenCL devices (kernels.h, opencl_shapes_measure), for a config that runs on one; NULL:
 * nothing. free(). A store that cannot be read now costs speed, never an answer. */
char *shapes_of(const struct config *c);

/* model_open in those shapes; options->shapes is not looked at. Processes of arms are sent them instead. */
enum err_code shapes_model_open(struct model **out, const struct model_options *options, struct err *why);

#endif
