/* advisor/quality/text.c - the text that a model's quality is measured on.
 *
 * Losses on different texts do not compare, so each model has one text: the bundled held-out stories, until
 * the user chooses another one. A text is identified by its SHA-256. Runs of older versions stored only its
 * name, which then counts in its place. */
#include "advisor/quality/quality.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"

static void text_set_path(struct quality_text *t, const char *path)
{
    snprintf(t->path, sizeof t->path, "%s", path);
    snprintf(t->name, sizeof t->name, "%.127s", path_file_name(path));
}

static void text_set_bundled(struct quality_text *t)
{
    char *path = NULL;
    text_set_path(t, EVAL_TEXT);
    if (!file_share(&path, EVAL_TEXT, &t->trouble)) {
        text_set_path(t, path);
        (void)hash_file(path, t->sha256, &t->trouble);
    }
    free(path);
}

/* The text that was chosen. Its SHA-256 is the stored one, whatever its file contains now. */
static void text_set_chosen(struct quality_text *t, const struct model_text *row, const char *model_path)
{
    char now[HASH_HEX];
    t->chosen = true;
    text_set_path(t, row->path);
    snprintf(t->sha256, sizeof t->sha256, "%s", row->sha256);
    if (access(t->path, R_OK))
        err_set(&t->trouble, ERR_IO,
                "%.160s, the text of this model, cannot be read: %s. Put it back, or choose another: "
                "qdyno eval -m %.120s -f TEXT --set-text",
                t->path, strerror(errno), model_path);
    else if (!hash_file(t->path, now, &t->trouble) && strcmp(now, t->sha256))
        err_set(&t->trouble, ERR_FORMAT,
                "%.120s was changed after it became the text of this model: SHA-256 %.12s, expected %.12s. "
                "Put the old content back, or measure on the new one, which does not compare with earlier "
                "losses: qdyno eval -m %.100s -f %.120s --set-text",
                t->path, now, t->sha256, model_path, t->path);
}

static void text_find(struct quality_text *out, const struct model_text *rows, int n, const char *sha256,
                      const char *model_path)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].model, sha256)) {
            text_set_chosen(out, &rows[i], model_path);
            return;
        }
    text_set_bundled(out);
}

/* known: the model's SHA-256; NULL: it is read, where any model has a text of its own. */
static enum err_code text_of(struct quality_text *out, struct db *d, const char *known,
                             const char *model_path, struct err *why)
{
    struct model_text *rows = NULL;
    char sha256[HASH_HEX] = "";
    int n = 0;
    *out = (struct quality_text){ 0 };
    enum err_code rc = db_model_text_list(d, &rows, &n, why);
    if (!rc && n && !known) rc = model_file_identity(sha256, model_path, why);
    if (!rc) text_find(out, rows, n, known ? known : sha256, model_path);
    free(rows);
    return rc;
}

enum err_code quality_text_of(struct quality_text *out, struct db *d, const char *model_path, struct err *why)
{
    return text_of(out, d, NULL, model_path, why);
}

enum err_code quality_text_of_hash(struct quality_text *out, struct db *d, const char *model_sha256,
                                   const char *model_path, struct err *why)
{
    return text_of(out, d, model_sha256, model_path, why);
}

enum err_code quality_text_path(char *out, size_t size, struct db *d, const char *model_path, struct err *why)
{
    struct quality_text t;
    enum err_code rc = quality_text_of(&t, d, model_path, why);
    if (!rc && t.trouble.code) return err_set(why, t.trouble.code, "%s", t.trouble.message);
    if (!rc && strlen(t.path) >= size)
        rc = err_set(why, ERR_USAGE, "the path of the text is longer than %zu bytes: %.200s", size - 1,
                     t.path);
    if (!rc) snprintf(out, size, "%s", t.path);
    return rc;
}

enum err_code quality_text_choose(struct db *d, const char *model_sha256, const char *path,
                                  const char *sha256, struct err *why)
{
    struct quality_text bundled = { 0 };
    struct model_text row = { 0 };
    text_set_bundled(&bundled);
    if (!strcmp(bundled.sha256, sha256)) return db_model_text_remove(d, model_sha256, why);
    char *whole = realpath(path, NULL);
    if (!whole)
        return err_set(why, err_of_errno(errno), "%s: expected a readable file: %s", path, strerror(errno));
    enum err_code rc = ERR_OK;
    if (strlen(whole) >= sizeof row.path)
        rc = err_set(why, ERR_USAGE, "the path of the text is longer than %zu bytes", sizeof row.path - 1);
    snprintf(row.model, sizeof row.model, "%s", model_sha256);
    snprintf(row.path, sizeof row.path, "%s", whole);
    snprintf(row.sha256, sizeof row.sha256, "%s", sha256);
    if (!rc) rc = db_model_text_put(d, &row, why);
    free(whole);
    return rc;
}

bool measured_text_same(const struct measured_text *a, const struct measured_text *b)
{
    return *a->sha256 && *b->sha256 ? !strcmp(a->sha256, b->sha256) : !strcmp(a->name, b->name);
}

bool quality_text_is(const struct quality_text *t, const char *name, const char *sha256)
{
    struct measured_text usual, other;
    snprintf(usual.name, sizeof usual.name, "%s", t->name);
    snprintf(usual.sha256, sizeof usual.sha256, "%s", t->sha256);
    snprintf(other.name, sizeof other.name, "%s", name);
    snprintf(other.sha256, sizeof other.sha256, "%s", sha256);
    return measured_text_same(&usual, &other);
}

void measured_text_of(struct measured_text *out, const struct model_cell *c, const json_t *worker)
{
    const char *name = json_get_str(worker, "file", "");
    if (!*name && !strcmp(c->kind, "tune")) name = *c->run_text ? c->run_text : EVAL_TEXT;
    snprintf(out->name, sizeof out->name, "%.127s", path_file_name(name));
    snprintf(out->sha256, sizeof out->sha256, "%s", json_get_str(worker, "text_sha256", ""));
}

/* ---------------------------------------------------------------- in words */

/* The texts below share/text, by content: a file of the same name may be another one, and the text of another
 * version is another text. tests/advisor/test_quality_text.c compares them with the installed files. */
static const struct {
    const char *sha256, *label;
    bool quality; /* the default text of qualities, not of calibrations */
} BUNDLED[] = {
    { "64584828ba828004bcb5536336ad40fb131dfadd7576b7df1cff5fb476ae16c7", "the bundled stories", true },
    { "c8961c2eb61cf1500b207aaec5ab51ecbecdd5401ee8ed24d0ef9b392fd65849", "the bundled calibration stories",
      false },
};
enum { PREFIX = 12 }; /* digits of SHA-256 that a basis has */

const char *quality_text_label(char buf[TEXT_LABEL], const char *name, const char *sha256)
{
    for (size_t i = 0; i < COUNT_OF(BUNDLED); i++)
        if (strlen(sha256) >= PREFIX && !strncmp(BUNDLED[i].sha256, sha256, strlen(sha256))) {
            snprintf(buf, TEXT_LABEL, "%s", BUNDLED[i].label);
            return buf;
        }
    if (*name)
        snprintf(buf, TEXT_LABEL, "%.127s", path_file_name(name));
    else if (*sha256)
        snprintf(buf, TEXT_LABEL, "the text with SHA-256 %.12s", sha256);
    else
        snprintf(buf, TEXT_LABEL, "an unknown text");
    return buf;
}

bool quality_text_is_bundled(const char *sha256)
{
    for (size_t i = 0; i < COUNT_OF(BUNDLED); i++)
        if (BUNDLED[i].quality && !strcmp(BUNDLED[i].sha256, sha256)) return true;
    return false;
}

const char *quality_basis_label(char *buf, size_t size, const char *basis)
{
    static const char TEXT[] = "text ";
    char sha256[PREFIX + 1], label[TEXT_LABEL];
    if (!str_starts(basis, TEXT) || strcspn(basis + strlen(TEXT), ",") != PREFIX) {
        snprintf(buf, size, "%s", basis);
        return buf;
    }
    snprintf(sha256, sizeof sha256, "%.*s", PREFIX, basis + strlen(TEXT));
    snprintf(buf, size, "%s%s", quality_text_label(label, "", sha256), basis + strlen(TEXT) + PREFIX);
    return buf;
}

bool model_is_bundled(const char *path)
{
    return str_ends(path, "/models/bundled.gguf");
}
