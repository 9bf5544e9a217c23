/* db/shapes.c - the fastest work-group shapes for products, for each OpenCL device that was measured. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

struct shapes_row {
    const char *device, *shapes;
    int64_t unix_ms;
};
static const struct db_column SHAPES_COLUMNS[] = {
    DB_COLUMN(shapes_row, device, BORROWED),
    DB_COLUMN(shapes_row, shapes, BORROWED),
    DB_COLUMN(shapes_row, unix_ms, I64),
};
static const struct db_table SHAPES = DB_TABLE_KEYED("device_shapes", shapes_row, SHAPES_COLUMNS);

enum err_code db_shapes_put(struct db *d, const char *line, struct err *why)
{
    const struct db_put p = { .table = &SHAPES,
                              .doing = "store the shapes of a device",
                              .verb = "INSERT OR REPLACE" };
    const char *tab = strchr(line, '\t');
    if (!tab || tab == line || strchr(line, '\n'))
        return err_set(why, ERR_USAGE,
                       "shapes of a device: expected one line with DEVICE, a tab, and SHAPES");
    char *device = strndup(line, (size_t)(tab - line));
    if (!device) return err_set(why, ERR_NOMEM, "out of memory for a device's name");
    const struct shapes_row row = { .device = device, .shapes = tab + 1, .unix_ms = clock_unix_ms() };
    const enum err_code rc = db_table_put(d, &p, &row, why);
    free(device);
    return rc;
}

static enum err_code shapes_append(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct str *all = ctx;
    struct shapes_row row;
    const enum err_code rc = db_table_read(&SHAPES, &row, s, why);
    if (rc) return rc;
    str_printf(all, "%s\t%s\n", row.device, row.shapes);
    return all->failed ? err_set(why, ERR_NOMEM, "out of memory for shapes of devices") : ERR_OK;
}

enum err_code db_shapes_all(struct db *d, char **out, struct err *why)
{
    const struct db_query q = { .table = &SHAPES,
                                .doing = "read the shapes of devices",
                                .tail = "ORDER BY device" };
    struct str all = { 0 };
    enum err_code rc = db_table_each(d, &q, shapes_append, &all, why, "");
    str_append(&all, "");
    *out = rc ? NULL : str_take(&all);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "out of memory for shapes of devices");
    str_free(&all);
    return rc;
}
