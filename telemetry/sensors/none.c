/* telemetry/sensors/none.c - the template for a new source, for hardware that no machine has. Copy it, rename
 * it, fill it in, and add a row to SOURCES: see README.md. */
#include "telemetry/sensors/source.h"

static enum err_code none_open(void **state, const struct sensors *s, struct err *why)
{
    *state = NULL;
    return err_set(why, ERR_ABSENT, "no such sensor below '%s/sys'", s->root);
}

static void none_sample(void *state, struct sensors *s, double *row)
{
    (void)state;
    (void)s;
    (void)row; /* row[METRIC_...] = value, for each metric of this source with s->due[METRIC_...] */
}

static void none_close(void *state)
{
    (void)state;
}

const struct source SOURCE_NONE = {
    .name = "none", .open = none_open, .sample = none_sample, .close = none_close
};
