/* db/shapes.c - how products are best cut into groups on each device that was measured. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

enum err_code db_shapes_put(struct db *d, const char *line, struct err *why)
{
    static const char DOING[] = "store the shapes of a device";
    static const char PUT[] = "INSERT OR REPLACE INTO device_shapes(device, shapes, unix_ms) VALUES(?, ?, ?)";
    const char *tab = strchr(line, '\t');
    if (!tab || tab == line || strchr(line, '\n'))
        return err_set(why, ERR_USAGE, "shapes of a device: want one line, DEVICE, a tab, SHAPES");
    char *device = strndup(line, (size_t)(tab - line));
    if (!device) return err_set(why, ERR_NOMEM, "out of memory for a device's name");
    const enum err_code rc = db_do(d, &(struct db_call){ DOING, PUT, NULL, NULL }, why, "tti", device,
                                   tab + 1, clock_unix_ms());
    free(device);
    return rc;
}

static enum err_code append_line(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct str *all = ctx;
    str_printf(all, "%s\t%s\n", (const char *)sqlite3_column_text(row, 0),
               (const char *)sqlite3_column_text(row, 1));
    return all->failed ? err_set(why, ERR_NOMEM, "out of memory for shapes of devices") : ERR_OK;
}

enum err_code db_shapes_all(struct db *d, char **out, struct err *why)
{
    struct str all = { 0 };
    enum err_code rc = db_do(d,
                             &(struct db_call){ "read the shapes of devices",
                                                "SELECT device, shapes FROM device_shapes ORDER BY device",
                                                append_line, &all },
                             why, "");
    str_append(&all, "");
    *out = rc ? NULL : str_take(&all);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "out of memory for shapes of devices");
    str_free(&all);
    return rc;
}
