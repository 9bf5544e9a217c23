/* db/filter.c - the filter syntax of users: "q8_0" selects runs that contain the text, "!q8_0" those that do
 * not,
 * "/q[48]_0/" is a regular expression, "!/.../" its negation. Case is ignored. */
#include "db/store.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct filter {
    bool inverse, is_regex;
    regex_t regex;
    char *text; /* owned: without marks */
};

static void filter_free(struct filter *f)
{
    if (f->is_regex) regfree(&f->regex);
    free(f->text);
}

static enum err_code filter_read(struct filter *f, const char *text, struct err *why)
{
    *f = (struct filter){ .inverse = *text == '!' };
    text += f->inverse;
    size_t n = strlen(text);
    const bool slashes = n >= 2 && text[0] == '/' && text[n - 1] == '/';
    f->text = slashes ? strndup(text + 1, n - 2) : strdup(text);
    if (!f->text) return err_set(why, ERR_NOMEM, "out of memory for a filter");
    if (!slashes) return ERR_OK;
    const int bad = regcomp(&f->regex, f->text, REG_EXTENDED | REG_ICASE | REG_NOSUB);
    f->is_regex = !bad;
    if (!bad) return ERR_OK;
    char what[128];
    regerror(bad, &f->regex, what, sizeof what);
    err_set(why, ERR_USAGE, "the filter /%s/ is not a valid regular expression: %s", f->text, what);
    filter_free(f);
    return ERR_USAGE;
}

enum err_code db_filter_check(const char *filter, struct err *why)
{
    struct filter f;
    enum err_code rc = filter_read(&f, filter, why);
    if (!rc) filter_free(&f);
    return rc;
}

/* Matches each field separately, so that ^ and $ refer to fields. */
static bool run_holds(const struct filter *f, const struct run_row *r)
{
    const char *const fields[] = { r->label, r->model_name, r->workload, r->kind, r->verdict };
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if (f->is_regex ? !regexec(&f->regex, fields[i], 0, NULL, 0) : strcasestr(fields[i], f->text) != NULL)
            return true;
    return false;
}

enum err_code db_run_find(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why)
{
    struct filter f;
    int all = 0, kept = 0;
    *n = 0;
    *rows = NULL;
    if (!filter || (*filter != '!' && *filter != '/')) return db_run_list(d, filter, limit, rows, n, why);
    enum err_code rc = filter_read(&f, filter, why);
    if (rc) return rc;
    rc = db_run_list(d, NULL, 0, rows, &all, why);
    for (int i = 0; i < all; i++) {
        const bool keep = (limit <= 0 || kept < limit) && run_holds(&f, &(*rows)[i]) != f.inverse;
        if (keep)
            (*rows)[kept++] = (*rows)[i];
        else
            run_row_free(&(*rows)[i]);
    }
    filter_free(&f);
    *n = kept;
    return rc;
}
