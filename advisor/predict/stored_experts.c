/* advisor/predict/stored_experts.c - how many distinct experts the batches of a model need, as
 * `qdyno info --experts` measured it, in the cache folder under the SHA-256 of the model file. Without it,
 * predictions assume random choices. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/model/model.h"

enum { FILE_MOST = 1 << 16 };

static enum err_code stored_path(struct str *path, const char *sha256, struct err *why)
{
    char *folder;
    enum err_code rc = file_place(&folder, FILE_CACHE, why);
    if (rc) return rc;
    str_printf(path, "%s/experts-%s.json", folder, sha256);
    free(folder);
    return path->failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

static json_t *curve_to_json(const struct expert_curve *c)
{
    json_t *list = json_array();
    for (int b = 0; b < EXPERT_BATCHES; b++) json_array_append_new(list, json_num(c->distinct[b]));
    return list;
}

/* False: not a curve of a model that uses `used` of its experts. */
static bool curve_from_json(struct expert_curve *c, const json_t *list, int used)
{
    for (int b = 0; b < EXPERT_BATCHES; b++) {
        const json_t *v = json_array_get(list, (size_t)b);
        c->distinct[b] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    return fabs(c->distinct[0] - used) < 1e-9;
}

enum err_code stored_experts_save(const struct gguf *g, const struct stored_experts *x, struct err *why)
{
    char sha256[HASH_HEX];
    struct str path = { 0 };
    struct atomic_file f;
    enum err_code rc = model_identity(g, sha256, why);
    if (!rc) rc = stored_path(&path, sha256, why);
    if (!rc) rc = atomic_file_open(&f, str_text(&path), why);
    if (!rc) {
        json_t *object = json_object();
        json_put(object, "consecutive", curve_to_json(&x->consecutive));
        json_put(object, "independent", curve_to_json(&x->apart));
        const bool written = !json_dumpf(object, f.stream, 0);
        json_decref(object);
        if (written) {
            rc = atomic_file_commit(&f, why);
        } else {
            atomic_file_abort(&f);
            rc = err_set(why, ERR_IO, "cannot write '%s'", str_text(&path));
        }
    }
    str_free(&path);
    return rc;
}

bool stored_experts_find(struct stored_experts *out, const struct gguf *g, int used)
{
    char sha256[HASH_HEX], *text = NULL;
    size_t n;
    struct str path = { 0 };
    json_t *object = NULL;
    /* a file that was never hashed was not measured either, and hashing can take minutes */
    bool found = model_identity_known(g, sha256) && !stored_path(&path, sha256, NULL) &&
                 !file_read(&text, &n, str_text(&path), FILE_MOST, NULL) &&
                 !json_parse(&object, text, n, NULL);
    found = found && curve_from_json(&out->consecutive, json_object_get(object, "consecutive"), used) &&
            curve_from_json(&out->apart, json_object_get(object, "independent"), used);
    json_decref(object);
    free(text);
    str_free(&path);
    return found;
}
