/* db/shapes.c - the fastest work-group shapes for products, for each OpenCL device that was measured. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

enum err_code db_shapes_put(struct db *d, const char *line, struct err *why)
{
    static const char DOING[] = "store the shapes of a device";
    static const char PUT[] = "INSERT OR REPLACE INTO device_shapes(device, shapes, unix_ms) VALUES(?, ?, ?)";
    const char *tab = strchr(line, '\t');
    if (!tab || tab == line || strchr(line, '\n'))
        return err_set(why, ERR_USAGE,
                       "shapes of a device: expected one line with DEVICE, a tab, and SHAPES");
    char *device = strndup(line, (size_t)(tab - line));
    if (!device) return err_set(why, ERR_NOMEM, "out of memory for a device's name");
    const enum err_code rc = db_execute(d, &(struct db_call){ .doing = DOING, .sql = PUT }, why, "tti",
                                        device, tab + 1, clock_unix_ms());
    free(device);
    return rc;
}

static enum err_code shapes_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct str *all = ctx;
    str_printf(all, "%s\t%s\n", (const char *)sqlite3_column_text(row, 0),
               (const char *)sqlite3_column_text(row, 1));
    return all->failed ? err_set(why, ERR_NOMEM, "out of memory for shapes of devices") : ERR_OK;
}

enum err_code db_shapes_all(struct db *d, char **out, struct err *why)
{
    struct str all = { 0 };
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "read the shapes of devices",
                           .sql = "SELECT device, shapes FROM device_shapes ORDER BY device",
                           .row = shapes_append,
                           .ctx = &all },
        why, "");
    str_append(&all, "");
    *out = rc ? NULL : str_take(&all);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "out of memory for shapes of devices");
    str_free(&all);
    return rc;
}
