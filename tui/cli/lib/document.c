/* document.c - which keys a JSON document may have. */
#include <string.h>

#include "tui/cli/lib/output.h"

enum { PATH_SIZE = 160 };

/* Whether the declared path of n bytes covers this one: it is the same, it is "P.*" and `path` is P or below
 * P, or `path` is an empty or unknown object or list above it. */
static bool path_is_covered(const char *declared, size_t n, const char *path)
{
    const size_t length = strlen(path);
    if (n > 2 && !memcmp(declared + n - 2, ".*", 2) && !strncmp(declared, path, n - 2))
        return !path[n - 2] || path[n - 2] == '.' || path[n - 2] == '[';
    if (length > n || memcmp(declared, path, length)) return false;
    return length == n || declared[length] == '.' || declared[length] == '[';
}

static bool path_is_in(const char *list, const char *path)
{
    for (const char *m = list ? list : ""; *m; m += strspn(m, " ")) {
        const size_t n = strcspn(m, " ");
        if (path_is_covered(m, n, path)) return true;
        m += n;
    }
    return false;
}

/* ERR_INTERNAL for the first path below `value` that is not declared. */
static enum err_code members_check(const struct document *d, const char *path, const json_t *value,
                                   struct err *why)
{
    char inner[PATH_SIZE];
    const char *name;
    json_t *item;
    size_t i;
    enum err_code rc = ERR_OK;
    if (json_is_object(value) && json_object_size(value)) {
        json_object_foreach((json_t *)value, name, item)
        {
            snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", name);
            if ((rc = members_check(d, inner, item, why))) return rc;
        }
    } else if (json_is_array(value) && json_array_size(value)) {
        snprintf(inner, sizeof inner, "%s[]", path);
        json_array_foreach(value, i, item) if ((rc = members_check(d, inner, item, why))) return rc;
    } else if (*path && !path_is_in(d->members, path)) {
        return err_set(why, ERR_INTERNAL,
                       "%s: the document has the key '%s', expected one that its `members` declare",
                       d->schema, path);
    }
    return ERR_OK;
}

/* Numbers of runs begin with 1: a run that could not be stored has none, and no command names one. */
static enum err_code run_key_check(const struct document *d, const json_t *object, struct err *why)
{
    const json_t *run = json_object_get(object, "run");
    if (!json_is_integer(run) || json_integer_value(run) > 0) return ERR_OK;
    return err_set(why, ERR_INTERNAL, "%s: the key 'run' is 0, expected the number of a run, or null",
                   d->schema);
}

static enum err_code run_text_check(const struct document *d, const char *text, struct err *why)
{
    static const char *const NONE[] = { "run 0", "show 0", "--resume 0" };
    for (size_t i = 0; i < COUNT_OF(NONE); i++) {
        const size_t n = strlen(NONE[i]);
        for (const char *at = text; (at = strstr(at, NONE[i])); at += n)
            if (!at[n] || !strchr("0123456789.x", at[n]))
                return err_set(why, ERR_INTERNAL,
                               "%s: the text says '%s', expected the number of a run: '%s'", d->schema,
                               NONE[i], text);
    }
    return ERR_OK;
}

/* ERR_INTERNAL for a table that names run 0. */
static enum err_code runs_check(const struct table *t, struct err *why)
{
    const struct str *const texts[] = { &t->headline, &t->notes,   &t->details,
                                        &t->result,   &t->closing, &t->next };
    const json_t *row;
    size_t i;
    enum err_code rc = run_key_check(t->document, t->extra, why);
    if (!rc) rc = run_key_check(t->document, t->summary, why);
    json_array_foreach(t->rows, i, row) if (!rc) rc = run_key_check(t->document, row, why);
    for (i = 0; i < COUNT_OF(texts) && !rc; i++) rc = run_text_check(t->document, str_text(texts[i]), why);
    return rc;
}

static bool key_is_known(const struct table *t, const char *name)
{
    for (int c = 0; c < t->n_columns; c++)
        if (!strcmp(t->columns[c].name, name)) return true;
    return path_is_in(t->document->unprinted, name);
}

enum err_code document_check(const struct table *t, struct err *why)
{
    const json_t *row;
    const char *name;
    json_t *item;
    size_t i;
    json_array_foreach(t->rows, i, row)
    {
        json_object_foreach((json_t *)row, name, item) if (!key_is_known(t, name)) return err_set(
            why, ERR_INTERNAL, "%s: a row has the key '%s', expected the name of a column",
            t->document->schema, name);
    }
    enum err_code rc = members_check(t->document, "", t->extra, why);
    return rc ? rc : runs_check(t, why);
}
