/* Measured work-group shapes as text, one line per device. The caller stores the text from one run to the
 * next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/opencl/opencl.h"

/* The key of a line: device and driver, because another driver may compile other code. */
static void device_put_key(struct str *out, const struct device_info *d)
{
    str_printf(out, "%s|%s|%s", d->platform, d->model, d->driver);
}

/* Apply a line. A name or shape that this build does not know comes from another build; the default shape is
 * used then. */
static void tuning_use_pair(struct opencl *o, const char *pair, size_t n)
{
    char text[2 * OPENCL_TUNING_TEXT], name[OPENCL_TUNING_TEXT];
    snprintf(text, sizeof text, "%.*s", (int)MIN(n, sizeof text - 1), pair);
    char *shape = strchr(text, ':');
    if (!shape) return;
    *shape++ = 0;
    for (int i = 0; i < OPENCL_TUNINGS; i++)
        if (!strcmp(opencl_tuning_name(i, name, sizeof name), text))
            opencl_tuning_use(&o->base, i, shape, NULL);
}

void opencl_shapes_use(struct opencl *o, const char *all)
{
    struct str key = { 0 };
    device_put_key(&key, &o->device);
    const char *p = shapes_find_line(all, str_text(&key));
    while (p && *p && *p != '\n') {
        const size_t n = strcspn(p, ";\n");
        tuning_use_pair(o, p, n);
        p += n + (p[n] == ';');
    }
    str_free(&key);
}

bool opencl_shapes_known(const char *all, const char *device)
{
    enum { DEVICES_MAX = 8 };
    struct device_info devices[DEVICES_MAX];
    const int count = MIN(opencl_devices(devices, DEVICES_MAX), (int)DEVICES_MAX);
    bool known = false;
    for (int i = 0; i < count; i++) {
        struct str key = { 0 };
        if (strcmp(devices[i].name, device)) continue;
        device_put_key(&key, &devices[i]);
        known = shapes_find_line(all, str_text(&key));
        str_free(&key);
    }
    return known;
}

enum err_code opencl_shapes_measure(char **out, const char *device,
                                    bool (*progress)(void *ctx, int done, int of), void *ctx, struct err *why)
{
    struct backend *b = NULL;
    struct str line = { 0 };
    enum err_code rc = backend_open(&b, device, &(struct backend_options){ .threads = 1 }, why);
    *out = NULL;
    if (rc) return rc;
    device_put_key(&line, &opencl_of(b)->device);
    for (int i = 0; i < OPENCL_TUNINGS && !rc; i++) {
        char text[OPENCL_TUNING_TEXT] = "", name[OPENCL_TUNING_TEXT];
        int count;
        if (!opencl_tuning_is_used(i)) continue;
        if (progress && !progress(ctx, i, OPENCL_TUNINGS)) rc = err_set(why, ERR_CANCELLED, "stopped");
        if (!rc) rc = opencl_tune(b, i, text, NULL, 0, &count, why);
        if (!rc) str_printf(&line, "%s%s:%s", i ? ";" : "\t", opencl_tuning_name(i, name, sizeof name), text);
    }
    backend_close(b);
    if (!rc && !(*out = str_take(&line))) rc = err_set(why, ERR_NOMEM, "out of memory for shapes");
    str_free(&line);
    return rc;
}
