/* db/label.c - labels of runs: KEY=VALUE pairs that the user chose, such as the commit that was measured. */
#include "db/store.h"

#include <string.h>

static bool key_is_valid(const char *key, size_t n)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    if (!n || !strchr(LETTERS, key[0])) return false;
    for (size_t i = 1; i < n; i++)
        if (!strchr(LETTERS, key[i]) && !(key[i] >= '0' && key[i] <= '9')) return false;
    return true;
}

/* Valid UTF-8 without control characters: it is written into JSON, HTML and metric labels. */
static bool value_is_valid(const char *value)
{
    const size_t n = strlen(value);
    for (size_t i = 0; i < n;) {
        uint32_t code;
        const size_t step = str_utf8_next(value + i, n - i, &code);
        if (!step || (step == 1 && code == 0xfffd) || code < 32 || (code >= 0x7f && code < 0xa0))
            return false;
        i += step;
    }
    return true;
}

const char *run_labels_find(const struct run_labels *l, const char *key)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->label[i].key, key)) return l->label[i].value;
    return NULL;
}

enum err_code run_labels_add(struct run_labels *l, const char *text, struct err *why)
{
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text) : 0;
    if (!equals || !key_is_valid(text, n) || n >= LABEL_KEY)
        return err_set(
            why, ERR_USAGE,
            "label '%.80s': expected KEY=VALUE, with a KEY of at most %d letters, digits and _ that "
            "does not begin with a digit",
            text, LABEL_KEY - 1);
    if (!equals[1] || strlen(equals + 1) >= LABEL_VALUE || !value_is_valid(equals + 1))
        return err_set(why, ERR_USAGE,
                       "label %.*s: expected a value of 1 to %d bytes of UTF-8 without control characters",
                       (int)n, text, LABEL_VALUE - 1);
    if (l->n == RUN_LABELS) return err_set(why, ERR_USAGE, "more than %d labels", RUN_LABELS);
    char key[LABEL_KEY];
    snprintf(key, sizeof key, "%.*s", (int)n, text);
    if (run_labels_find(l, key)) return err_set(why, ERR_USAGE, "label %s is given twice", key);
    snprintf(l->label[l->n].key, LABEL_KEY, "%s", key);
    snprintf(l->label[l->n].value, LABEL_VALUE, "%s", equals + 1);
    l->n++;
    return ERR_OK;
}

struct label_row {
    int64_t run_id;
    const char *key, *value;
};
static const struct db_column LABEL_COLUMNS[] = {
    DB_COLUMN(label_row, run_id, I64),
    DB_COLUMN(label_row, key, BORROWED),
    DB_COLUMN(label_row, value, BORROWED),
};
static const struct db_table LABEL = DB_TABLE_KEYED("run_label", label_row, LABEL_COLUMNS);

enum err_code db_labels_put(struct db *d, int64_t run_id, const struct run_labels *l, struct err *why)
{
    const struct db_put p = { .table = &LABEL, .doing = "store a label" };
    enum err_code rc = l->n ? db_begin(d, "store labels", why) : ERR_OK;
    if (rc || !l->n) return rc;
    for (int i = 0; i < l->n && !rc; i++) {
        const struct label_row row = { .run_id = run_id, .key = l->label[i].key, .value = l->label[i].value };
        rc = db_table_put(d, &p, &row, why);
    }
    return db_end(d, rc, "store labels", why);
}

static enum err_code label_read(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct run_labels *l = ctx;
    struct label_row row;
    const enum err_code rc = db_table_read(&LABEL, &row, s, why);
    if (rc || l->n == RUN_LABELS) return rc;
    snprintf(l->label[l->n].key, LABEL_KEY, "%s", row.key);
    snprintf(l->label[l->n].value, LABEL_VALUE, "%s", row.value);
    l->n++;
    return ERR_OK;
}

enum err_code db_labels_get(struct db *d, int64_t run_id, struct run_labels *out, struct err *why)
{
    const struct db_query q = { .table = &LABEL,
                                .doing = "read labels",
                                .tail = "WHERE run_id = ? ORDER BY key" };
    out->n = 0;
    return db_table_each(d, &q, label_read, out, why, "i", run_id);
}
