/* advisor/tune/files.c - several files of one model: which there are, and the proof that they are the same
 * model. Only headers are read.
 *
 * Quality is measured against one of the files, so a file of another model, or with another tokenizer, would
 * give a loss that says nothing about formats. What two headers both state must be equal. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/tune/parts.h"
#include "engine/import/import.h"

/* ---------------------------------------------------------------- the same model? */

static bool same_string(struct gguf_string a, struct gguf_string b)
{
    return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

static bool starts(struct gguf_string key, const char *prefix)
{
    return key.len >= strlen(prefix) && !memcmp(key.data, prefix, strlen(prefix));
}

static bool same_value(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (a->count != b->count || (a->element == GGUF_STRING) != (b->element == GGUF_STRING)) return false;
    for (uint64_t i = 0; i < a->count; i++) {
        if (a->element == GGUF_STRING) {
            if (!same_string(gguf_kv_string(a, i), gguf_kv_string(b, i))) return false;
            continue;
        }
        const double x = gguf_kv_num(a, i), y = gguf_kv_num(b, i);
        if (!(x == y || (isnan(x) && isnan(y)))) return false;
    }
    return true;
}

/* Keys that decide what the weights mean: of the architecture and of the tokenizer. A template of chats does
 * not change what a text is. */
static bool key_matters(const struct gguf_kv *kv, const char *arch)
{
    char prefix[40];
    snprintf(prefix, sizeof prefix, "%s.", arch);
    return (starts(kv->key, "tokenizer.") && !starts(kv->key, "tokenizer.chat_template")) ||
           starts(kv->key, prefix);
}

static enum err_code check_keys(const struct gguf *a, const struct gguf *b, const char *arch, struct err *why)
{
    for (int64_t i = 0; i < gguf_kv_count(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i);
        if (!key_matters(x, arch)) continue;
        char key[160];
        snprintf(key, sizeof key, "%.*s", (int)MIN(x->key.len, sizeof key - 1), x->key.data);
        const struct gguf_kv *y = gguf_kv_find(b, key);
        const bool tokens = !strcmp(key, "tokenizer.ggml.tokens");
        if (y ? same_value(x, y) : !tokens) continue;
        if (y && x->count != y->count)
            return err_set(why, ERR_USAGE, "%s has %llu entries in one and %llu in the other", key,
                           (unsigned long long)x->count, (unsigned long long)y->count);
        return err_set(why, ERR_USAGE, "%s differs", key);
    }
    return ERR_OK;
}

static enum err_code check_tensors(const struct gguf *a, const struct gguf *b, struct err *why)
{
    for (int64_t i = 0; i < gguf_tensor_count(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_find(b, x->name);
        if (!y) return err_set(why, ERR_USAGE, "only one of them has the tensor %s", x->name);
        if (memcmp(x->shape, y->shape, sizeof x->shape))
            return err_set(why, ERR_USAGE, "tensor %s is [%lld,%lld] in one and [%lld,%lld] in the other",
                           x->name, (long long)x->shape[0], (long long)x->shape[1], (long long)y->shape[0],
                           (long long)y->shape[1]);
    }
    return ERR_OK;
}

/* ERR_USAGE: what differs. */
static enum err_code check_same_model(const struct gguf *a, const struct gguf *b, struct err *why)
{
    struct model_shape x, y;
    enum err_code rc = model_shape_read(&x, a, why);
    if (!rc) rc = model_shape_read(&y, b, why);
    if (!rc && strcmp(x.arch, y.arch))
        rc = err_set(why, ERR_USAGE, "one has the architecture %s, the other %s", x.arch, y.arch);
    if (!rc) rc = check_keys(a, b, x.arch, why);
    if (!rc) rc = check_tensors(a, b, why);
    if (!rc) rc = check_tensors(b, a, why);
    if (rc != ERR_USAGE) return rc;
    return err_prefix(why,
                      "%s and %s are not files of one model, so no loss of one against the other is one "
                      "of formats",
                      path_file_name(gguf_path(a)), path_file_name(gguf_path(b)));
}

/* ---------------------------------------------------------------- the list */

/* Why a file of a folder is no candidate; NULL: it is one. *g is set where it could be opened. */
static const char *reason_to_skip(struct gguf **g, char *buf, size_t size, const char *path)
{
    struct err ignored = { 0 };
    const char *part = strstr(path_file_name(path), "-of-");
    if (part && part - path_file_name(path) >= 6 && strncmp(part - 6, "-00001", 6)) return "further part";
    if (model_file_open(g, path, &ignored)) {
        snprintf(buf, size, "%.60s", ignored.message);
        return buf;
    }
    const struct gguf_string type = gguf_get_string(*g, "general.type"),
                             arch = gguf_get_string(*g, "general.architecture");
    if (type.len && !gguf_string_is(type, "model"))
        snprintf(buf, size, "%.*s", (int)MIN(type.len, 24u), type.data);
    else if (gguf_string_is(arch, "clip"))
        snprintf(buf, size, "projector");
    else if (!gguf_tensor_count(*g))
        snprintf(buf, size, "no tensors");
    else if (strstr(path_file_name(path), "imatrix"))
        snprintf(buf, size, "importance matrix");
    else
        return NULL;
    return buf;
}

int tune_files_index(const struct tune_files *l, const char *path)
{
    struct stat a, b;
    if (stat(path, &a)) return -1;
    for (int i = 0; i < l->n; i++)
        if (!stat(l->file[i].path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev) return i;
    return -1;
}

static enum err_code file_add(struct tune_files *l, const struct gguf *g, const char *path, struct err *why)
{
    struct model_shape s;
    if (tune_files_index(l, path) >= 0) return ERR_OK;
    if (l->n == TUNE_FILES)
        return err_set(why, ERR_USAGE, "more than %d files of one model: name those to choose from",
                       TUNE_FILES);
    const enum err_code rc = model_shape_read(&s, g, why);
    if (rc) return err_prefix(why, "%s", path);
    struct tune_file *f = &l->file[l->n];
    if (strlen(path) >= sizeof f->path)
        return err_set(why, ERR_USAGE, "%s: longer than %zu bytes", path, sizeof f->path - 1);
    snprintf(f->path, sizeof f->path, "%s", path);
    snprintf(f->quantization, sizeof f->quantization, "%s", quantization_short(&s));
    f->bytes = gguf_file_bytes(g);
    f->bits = 8.0 * (double)s.weight_bytes / (double)MAX(s.params, 1);
    l->n++;
    return ERR_OK;
}

static enum err_code folder_add(struct tune_files *l, const char *folder, struct err *why)
{
    struct dirent **entry = NULL;
    enum err_code rc = ERR_OK;
    const int n = scandir(folder, &entry, NULL, alphasort);
    if (n < 0) return err_set(why, ERR_IO, "%s: cannot be read", folder);
    for (int i = 0; i < n && !rc; i++) {
        char path[4096], text[80];
        struct gguf *g = NULL;
        const size_t length = strlen(folder);
        if (!str_ends(entry[i]->d_name, ".gguf")) continue;
        snprintf(path, sizeof path, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/",
                 entry[i]->d_name);
        const char *skip = reason_to_skip(&g, text, sizeof text, path);
        if (!skip) rc = file_add(l, g, path, why);
        if (skip && strcmp(skip, "further part")) {
            const size_t used = strlen(l->skipped);
            snprintf(l->skipped + used, sizeof l->skipped - used, "%s%.80s (%s)", used ? ", " : "",
                     entry[i]->d_name, skip);
        }
        gguf_close(g);
    }
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    return rc;
}

static int exact_first(const void *x, const void *y)
{
    const struct tune_file *a = x, *b = y;
    return a->bits < b->bits ? 1 : a->bits > b->bits ? -1 : strcmp(a->path, b->path);
}

static enum err_code check_all(const struct tune_files *l, struct err *why)
{
    struct gguf *first = NULL;
    enum err_code rc = model_file_open(&first, l->file[0].path, why);
    for (int i = 1; i < l->n && !rc; i++) {
        struct gguf *g = NULL;
        rc = model_file_open(&g, l->file[i].path, why);
        if (!rc) rc = check_same_model(first, g, why);
        gguf_close(g);
    }
    gguf_close(first);
    return rc;
}

enum err_code tune_files_find(struct tune_files *out, const char *const *given, int n, struct err *why)
{
    enum err_code rc = ERR_OK;
    *out = (struct tune_files){ 0 };
    for (int i = 0; i < n && !rc; i++) {
        struct stat st;
        struct gguf *g = NULL;
        if (!stat(given[i], &st) && S_ISDIR(st.st_mode)) {
            rc = folder_add(out, given[i], why);
            continue;
        }
        rc = model_file_open(&g, given[i], why);
        if (!rc) rc = file_add(out, g, given[i], why);
        gguf_close(g);
    }
    if (!rc && !out->n)
        rc = err_set(why, ERR_USAGE, "%s: no *.gguf file with weights of a model%s%s", n ? given[0] : "",
                     *out->skipped ? "; left out: " : "", out->skipped);
    if (rc) return rc;
    qsort(out->file, (size_t)out->n, sizeof out->file[0], exact_first);
    return check_all(out, why);
}
