/* advisor/run/shapes.c - kernels that were measured as the fastest on this machine, for models that are
 * opened (run.h).
 *
 * The store has one line for each OpenCL device and driver, and for each combination of processor, compiled
 * kernels and settings of the CPU backend: where one of these changes, no line is found and the kernels are
 * measured again. */
#include "advisor/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "engine/quant/quant.h"

static bool is_autotuned(const struct config *c)
{
    return config_choice(c, KNOB_COMPILE) == COMPILE_AUTOTUNE;
}

/* What precedes the lines of backend_autotune in the store. */
static enum err_code put_machine(struct str *out, struct err *why)
{
    struct machine m;
    const enum err_code rc = machine_detect(&m, "", why);
    if (rc) return rc;
    for (char *c = m.cpu; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    str_printf(out, "%s (machine %s, kernels %s)|", m.cpu, m.id, KERNELS_BUILD);
    return ERR_OK;
}

/* Copy lines; those that begin with `machine` without it. */
static void put_lines(struct str *out, const char *all, const char *machine)
{
    const size_t n = strlen(machine);
    for (const char *p = all, *end; *p; p = end) {
        end = p + strcspn(p, "\n");
        end += *end == '\n';
        if (!strncmp(p, machine, n)) p += n;
        str_append_n(out, p, (size_t)(end - p));
    }
}

static enum err_code store_line(const char *line, struct err *why)
{
    struct db *d = NULL;
    enum err_code rc = db_open(&d, NULL, why);
    if (!rc) rc = db_shapes_put(d, line, why);
    db_close(d);
    return rc;
}

/* While shapes of a device are measured. */
struct device_measuring {
    arm_event_fn *event;
    void *ctx;
};

static bool device_on_shape(void *ctx, int done, int of)
{
    const struct device_measuring *m = ctx;
    (void)done, (void)of;
    return !m->event || m->event(m->ctx, NULL);
}

static enum err_code measure_device(struct str *lines, const char *device, struct device_measuring *m,
                                    const struct log *log, struct err *why)
{
    char *line = NULL;
    struct err kept = { 0 };
    const int64_t from = clock_ns();
    log_write(log, LOG_WARN, "autotune: measuring the products of %s; this takes minutes, once", device);
    const enum err_code rc = opencl_shapes_measure(&line, device, device_on_shape, m, why);
    if (rc) return rc;
    log_write(log, LOG_INFO,
              "autotune: measured the products of %s in %.1f s; later runs use the stored choices", device,
              (double)(clock_ns() - from) * 1e-9);
    if (store_line(line, &kept))
        log_write(log, LOG_WARN, "autotune: cannot store the choices for %s: %s", device, kept.message);
    str_printf(lines, "%s\n", line);
    free(line);
    return ERR_OK;
}

enum err_code shapes_of(char **out, const struct config *c, arm_event_fn *event, void *ctx,
                        const struct log *log, struct err *why)
{
    enum { PATIENCE_MS = 200 };
    const char *device = config_text(c, KNOB_DEVICE);
    const bool on_device = strcmp(device, "cpu") != 0;
    struct str machine = { 0 }, lines = { 0 };
    struct db *d = NULL;
    char *all = NULL;
    *out = NULL;
    if (!on_device && !is_autotuned(c)) return ERR_OK;
    enum err_code rc = is_autotuned(c) ? put_machine(&machine, why) : ERR_OK;
    if (!rc && !db_open_reader(&d, NULL, PATIENCE_MS, NULL)) db_shapes_all(d, &all, NULL);
    db_close(d);
    if (!rc) put_lines(&lines, all ? all : "", str_text(&machine));
    if (!rc && on_device && is_autotuned(c) && !opencl_shapes_known(str_text(&lines), device))
        rc = measure_device(&lines, device, &(struct device_measuring){ event, ctx }, log, why);
    if (!rc && lines.len && !(*out = str_take(&lines)))
        rc = err_set(why, ERR_NOMEM, "out of memory for measured kernels");
    free(all);
    str_free(&lines);
    str_free(&machine);
    return rc;
}

/* Store the choices of kernels that opening a model measured. A failure only costs measuring again. */
static void keep_choices(const char *text, int measured, double seconds, const struct log *log)
{
    struct str line = { 0 };
    struct err why = { 0 };
    enum err_code rc = put_machine(&line, &why);
    str_append(&line, text);
    if (!rc && line.failed) rc = err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = store_line(str_text(&line), &why);
    if (rc)
        log_write(log, LOG_WARN, "autotune: measured %d products in %.1f s, but cannot store the choices: %s",
                  measured, seconds, why.message);
    else
        log_write(log, LOG_INFO,
                  "autotune: measured %d products in %.1f s; later runs use the stored choices", measured,
                  seconds);
    str_free(&line);
}

void shapes_take(json_t *answer, const struct log *log)
{
    const json_t *about = json_object_get(answer, "autotune");
    const char *text = json_get_str(about, "choices", NULL);
    if (!text) return;
    keep_choices(text, (int)json_get_int(about, "measured", 0), json_get_num(about, "seconds", 0), log);
    json_object_del(answer, "autotune");
}

enum err_code shapes_model_open(struct model **out, const struct model_options *options, struct err *why)
{
    struct model_options o = *options;
    char *shapes;
    *out = NULL;
    enum err_code rc = shapes_of(&shapes, o.config, NULL, NULL, o.log, why);
    if (rc) return rc;
    o.shapes = shapes;
    rc = recipe_model_open(out, &o, why);
    free(shapes);
    if (rc) return rc;
    const struct autotuned *now = model_autotuned(*out);
    if (now->text) keep_choices(now->text, now->measured, now->seconds, o.log);
    return ERR_OK;
}
