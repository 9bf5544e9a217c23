/* db/filter.c - the filter syntax of users: "q8_0" selects runs that contain the text, "!q8_0" those that do
 * not,
 * "/q[48]_0/" is a regular expression, "!/.../" its negation. Case is ignored.
 *
 * Matching an expression like (a+)+b can take exponential time, so PCRE2 counts its steps and stops. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "db/store.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STEPS_MOST = 1000000, HEAP_KIB_MOST = 64 << 10, PATTERN_MOST = 4096 };

struct filter {
    bool inverse;
    pcre2_code *regex; /* NULL: plain text */
    pcre2_match_data *match;
    pcre2_match_context *limits;
    char *text; /* owned: without marks */
};

static void filter_free(struct filter *f)
{
    pcre2_code_free(f->regex);
    pcre2_match_data_free(f->match);
    pcre2_match_context_free(f->limits);
    free(f->text);
}

static enum err_code filter_compile(struct filter *f, struct err *why)
{
    const uint32_t options = PCRE2_CASELESS | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    PCRE2_UCHAR what[128];
    PCRE2_SIZE at = 0;
    int bad = PCRE2_ERROR_NOMEMORY;
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    if (c) {
        pcre2_set_max_pattern_length(c, PATTERN_MOST);
        f->regex = pcre2_compile((PCRE2_SPTR)f->text, PCRE2_ZERO_TERMINATED, options, &bad, &at, c);
    }
    pcre2_compile_context_free(c);
    if (!f->regex) {
        pcre2_get_error_message(bad, what, sizeof what);
        return err_set(why, ERR_USAGE, "the filter /%.200s/ is not a valid regular expression: %s (at %zu)",
                       f->text, (const char *)what, at);
    }
    f->match = pcre2_match_data_create(1, NULL);
    f->limits = pcre2_match_context_create(NULL);
    if (!f->match || !f->limits) return err_set(why, ERR_NOMEM, "out of memory for a filter");
    pcre2_set_match_limit(f->limits, STEPS_MOST);
    pcre2_set_depth_limit(f->limits, STEPS_MOST);
    pcre2_set_heap_limit(f->limits, HEAP_KIB_MOST);
    return ERR_OK;
}

static enum err_code filter_read(struct filter *f, const char *text, struct err *why)
{
    *f = (struct filter){ .inverse = *text == '!' };
    text += f->inverse;
    size_t n = strlen(text);
    const bool slashes = n >= 2 && text[0] == '/' && text[n - 1] == '/';
    f->text = slashes ? strndup(text + 1, n - 2) : strdup(text);
    if (!f->text) return err_set(why, ERR_NOMEM, "out of memory for a filter");
    const enum err_code rc = slashes ? filter_compile(f, why) : ERR_OK;
    if (rc) filter_free(f);
    return rc;
}

enum err_code db_filter_check(const char *filter, struct err *why)
{
    struct filter f;
    enum err_code rc = filter_read(&f, filter, why);
    if (!rc) filter_free(&f);
    return rc;
}

static enum err_code field_holds(const struct filter *f, const char *field, bool *holds, struct err *why)
{
    *holds = !f->regex && strcasestr(field, f->text);
    if (!f->regex) return ERR_OK;
    const int found = pcre2_match(f->regex, (PCRE2_SPTR)field, PCRE2_ZERO_TERMINATED, 0, 0, f->match,
                                  f->limits);
    *holds = found >= 0;
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "the filter /%.200s/ needs too many steps to search '%.80s': expected an expression without "
        "repeats of repeats such as (a+)+",
        f->text, field);
}

/* Matches each field separately, so that ^ and $ refer to fields. */
static enum err_code run_holds(const struct filter *f, const struct run_row *r, bool *holds, struct err *why)
{
    const char *const fields[] = { r->label, r->model_name, r->workload, r->kind, r->verdict, r->state };
    enum err_code rc = ERR_OK;
    *holds = false;
    for (size_t i = 0; i < COUNT_OF(fields) && !rc && !*holds; i++)
        rc = field_holds(f, fields[i], holds, why);
    return rc;
}

/* True if the run has all of the labels. A database error counts as no, and is in *why. */
static bool run_has_labels(struct db *d, const struct run_row *r, const struct run_labels *want,
                           enum err_code *rc, struct err *why)
{
    struct run_labels own;
    if (!want || !want->n || *rc) return true;
    *rc = db_labels_get(d, r->id, &own, why);
    for (int i = 0; i < want->n && !*rc; i++) {
        const char *value = run_labels_find(&own, want->label[i].key);
        if (!value || strcmp(value, want->label[i].value)) return false;
    }
    return !*rc;
}

enum err_code db_run_find_labeled(struct db *d, const char *filter, const struct run_labels *labels,
                                  int limit, struct run_row **rows, int *n, struct err *why)
{
    struct filter f = { 0 };
    int all = 0, kept = 0;
    *n = 0;
    *rows = NULL;
    const bool special = filter && (*filter == '!' || *filter == '/');
    if (!special && (!labels || !labels->n)) return db_run_list(d, filter, limit, rows, n, why);
    enum err_code rc = special ? filter_read(&f, filter, why) : ERR_OK;
    if (rc) return rc;
    rc = db_run_list(d, special ? NULL : filter, 0, rows, &all, why);
    for (int i = 0; i < all; i++) {
        struct run_row *r = &(*rows)[i];
        bool holds = false;
        const bool room = !rc && (limit <= 0 || kept < limit);
        if (room && special) rc = run_holds(&f, r, &holds, why);
        if (room && !rc && (!special || holds != f.inverse) && run_has_labels(d, r, labels, &rc, why))
            (*rows)[kept++] = *r;
        else
            run_row_free(r);
    }
    filter_free(&f);
    for (int i = 0; i < kept && rc; i++) run_row_free(&(*rows)[i]);
    if (rc) {
        free(*rows);
        *rows = NULL;
        kept = 0;
    }
    *n = kept;
    return rc;
}

enum err_code db_run_find(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why)
{
    return db_run_find_labeled(d, filter, NULL, limit, rows, n, why);
}
