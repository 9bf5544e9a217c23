/* advisor/predict/stored_experts.c - how many distinct experts the batches of a model need, and which ones
 * are chosen most, as `qdyno info --experts` measured it, in the cache folder under the SHA-256 of the model
 * file. Without it, predictions assume random choices. */
#include "advisor/predict/predict.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/predict/cost.h"
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

/* False: not a curve of a model that uses `used` of its experts. */
static bool curve_from_json(struct expert_curve *c, const json_t *list, int used)
{
    numbers_from_json(c->distinct, EXPERT_BATCHES, list);
    return fabs(c->distinct[0] - used) < 1e-9;
}

static int by_effective(const void *a, const void *b)
{
    const struct stored_expert_layer *x = a, *y = b;
    if (x->use.effective != y->use.effective) return x->use.effective < y->use.effective ? -1 : 1;
    return x->layer - y->layer;
}

void stored_experts_of(struct stored_experts *out, const struct expert_use *use, const char *text)
{
    struct stored_expert_layer all[LAYERS_MAX];
    int count = 0;
    double sum = 0;
    *out = (struct stored_experts){ .consecutive = expert_use_mean(use, use->consecutive),
                                    .apart = expert_use_mean(use, use->apart),
                                    .tokens = use->tokens };
    snprintf(out->text, sizeof out->text, "%s", text);
    for (int l = 0; l < use->layers && count < LAYERS_MAX; l++) {
        all[count].layer = l;
        if (!expert_use_layer(&all[count].use, use, l)) continue;
        sum += all[count++].use.effective;
    }
    out->effective_mean = count ? sum / count : (double)NAN;
    qsort(all, (size_t)count, sizeof *all, by_effective);
    out->layers = MIN(count, (int)STORED_EXPERT_LAYERS);
    memcpy(out->layer, all, (size_t)out->layers * sizeof *all);
}

static json_t *layers_to_json(const struct stored_experts *x)
{
    json_t *list = json_array();
    for (int i = 0; i < x->layers; i++) {
        const struct expert_layer *use = &x->layer[i].use;
        json_t *layer = json_object(), *hottest = json_array(), *share = json_array();
        for (int h = 0; h < EXPERTS_HOTTEST && use->hottest[h] >= 0; h++) {
            json_array_append_new(hottest, json_integer(use->hottest[h]));
            json_array_append_new(share, json_num(use->share[h]));
        }
        json_put_int(layer, "layer", x->layer[i].layer);
        json_put_num(layer, "entropy_bits", use->entropy_bits);
        json_put_num(layer, "effective", use->effective);
        json_put_int(layer, "never", use->never);
        json_put(layer, "hottest", hottest);
        json_put(layer, "share", share);
        json_array_append_new(list, layer);
    }
    return list;
}

static void layers_from_json(struct stored_experts *x, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list) && x->layers < STORED_EXPERT_LAYERS; i++) {
        const json_t *row = json_array_get(list, i), *hottest = json_object_get(row, "hottest"),
                     *share = json_object_get(row, "share");
        struct stored_expert_layer *l = &x->layer[x->layers++];
        *l = (struct stored_expert_layer){ .layer = (int)json_get_int(row, "layer", -1) };
        l->use.entropy_bits = json_get_num(row, "entropy_bits", NAN);
        l->use.effective = json_get_num(row, "effective", NAN);
        l->use.never = (int)json_get_int(row, "never", -1);
        for (size_t h = 0; h < EXPERTS_HOTTEST; h++) {
            const json_t *e = json_array_get(hottest, h);
            l->use.hottest[h] = e ? (int)json_integer_value(e) : -1;
            l->use.share[h] = json_number_value(json_array_get(share, h));
        }
    }
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
        json_put(object, "consecutive", numbers_to_json(x->consecutive.distinct, EXPERT_BATCHES));
        json_put(object, "independent", numbers_to_json(x->apart.distinct, EXPERT_BATCHES));
        json_put_str(object, "text", x->text);
        json_put_int(object, "tokens", x->tokens);
        json_put_num(object, "effective_mean", x->effective_mean);
        json_put(object, "layers", layers_to_json(x));
        char *text = json_write(object, JSON_SPACED, 0);
        const bool written = text && fputs(text, f.stream) >= 0;
        free(text);
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

const char *stored_experts_state(char *buf, size_t size)
{
    char *folder = NULL;
    int n = 0;
    long long newest = 0;
    DIR *d = file_place(&folder, FILE_CACHE, NULL) ? NULL : opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!str_starts(e->d_name, "experts-") || !str_ends(e->d_name, ".json") ||
            fstatat(dirfd(d), e->d_name, &st, 0))
            continue;
        n++;
        newest = MAX(newest, (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    }
    if (d) closedir(d);
    free(folder);
    snprintf(buf, size, "%d %lld", n, newest);
    return buf;
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
    *out = (struct stored_experts){ .effective_mean = NAN };
    found = found && curve_from_json(&out->consecutive, json_object_get(object, "consecutive"), used) &&
            curve_from_json(&out->apart, json_object_get(object, "independent"), used);
    if (found) {
        snprintf(out->text, sizeof out->text, "%s", json_get_str(object, "text", ""));
        out->tokens = json_get_int(object, "tokens", -1);
        out->effective_mean = json_get_num(object, "effective_mean", NAN);
        layers_from_json(out, json_object_get(object, "layers"));
    }
    json_decref(object);
    free(text);
    str_free(&path);
    return found;
}
