/* ollama.c - Ollama's store: manifests of a Docker registry, and blobs by their SHA-256. Source: Ollama's
 * server/manifest.go and types/model/name.go. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/models/scan.h"

/* Real manifests have a few hundred bytes; with one layer a tensor, a few hundred kB. */
enum { MANIFEST_MOST = 16 << 20 };

#define IMAGE "application/vnd.ollama.image."

/* "sha256:HEX" or "sha256-HEX": the digits. NULL: it is neither. */
static const char *digest_hex(const char *digest)
{
    if (!str_starts(digest, "sha256:") && !str_starts(digest, "sha256-")) return NULL;
    digest += strlen("sha256:");
    return strlen(digest) == HASH_HEX - 1 && strspn(digest, "0123456789abcdef") == HASH_HEX - 1 ? digest
                                                                                                : NULL;
}

static struct model_entry entry_of(const struct model_name *n, enum model_file_kind kind)
{
    char text[MODEL_NAME_TEXT];
    return (struct model_entry){ .store = STORE_OLLAMA,
                                 .kind = kind,
                                 .name = strdup(model_name_text(n, text, sizeof text)),
                                 .file = strdup(n->tag),
                                 .repo = strdup(n->repo),
                                 .revision = strdup(""),
                                 .shards = 1,
                                 .shards_here = 1 };
}

/* A layer that is a GGUF file of its own. adapted: Ollama changes its weights by another layer. */
static void add_blob(struct scan *s, const char *root, const struct model_name *n, const char *digest,
                     enum model_file_kind kind, bool adapted)
{
    char blob[HASH_HEX + 16];
    struct err why = { 0 };
    struct file_map map;
    const char *hex = digest_hex(digest);
    if (!hex) {
        s->out->skipped[SKIPPED_MANIFEST]++;
        return;
    }
    snprintf(blob, sizeof blob, "blobs/sha256-%s", hex);
    const char *path = scan_path(s, root, blob);
    if (!path || s->failed) return;
    if (file_map(&map, path, &why)) {
        s->out->skipped[access(path, R_OK) && errno == EACCES ? SKIPPED_UNREADABLE : SKIPPED_DANGLING]++;
        return;
    }
    struct file_state st = map.opened;
    file_unmap(&map);
    struct model_entry e = entry_of(n, kind);
    e.bytes = st.size;
    if (adapted) { /* not the file alone: a row of its own, without a path */
        struct model_entry *row = scan_add(s, &e, NULL);
        if (row)
            str_put(row->header.why, sizeof row->header.why,
                    "Ollama applies an adapter to it, which qdyno does not");
        return;
    }
    e.path = strdup(path);
    s->failed |= !e.path;
    str_put(e.sha256, sizeof e.sha256, hex);
    scan_add(s, &e, st.size ? &st : NULL);
}

/* A model of tensors in blobs of their own, which is no GGUF file. */
static void add_tensors(struct scan *s, const struct model_name *n, int tensors, int64_t bytes)
{
    struct model_entry e = entry_of(n, MODEL_OTHER);
    e.bytes = bytes;
    e.shards = e.shards_here = tensors;
    struct model_entry *row = scan_add(s, &e, NULL);
    if (row)
        snprintf(row->header.why, sizeof row->header.why,
                 "Ollama stores it as %d tensors, not as a GGUF file", tensors);
}

static void add_layers(struct scan *s, const char *root, const struct model_name *n, const json_t *manifest)
{
    static const struct {
        const char *type;
        enum model_file_kind kind;
    } LAYERS[] = { { IMAGE "model", MODEL_WEIGHTS },
                   { IMAGE "projector", MODEL_PROJECTOR },
                   { IMAGE "adapter", MODEL_ADAPTER },
                   { IMAGE "draft", MODEL_DRAFT } };
    const json_t *layers = json_object_get(manifest, "layers"), *layer;
    int tensors = 0;
    int64_t tensor_bytes = 0;
    size_t i;
    bool adapted = false;
    if (!json_is_array(layers)) {
        s->out->skipped[SKIPPED_MANIFEST]++;
        return;
    }
    json_array_foreach(layers, i, layer)
    {
        adapted |= !strcmp(json_get_str(layer, "mediaType", ""), IMAGE "adapter");
    }
    json_array_foreach(layers, i, layer)
    {
        const char *type = json_get_str(layer, "mediaType", "");
        for (size_t k = 0; k < COUNT_OF(LAYERS); k++)
            if (!strcmp(type, LAYERS[k].type))
                add_blob(s, root, n, json_get_str(layer, "digest", ""), LAYERS[k].kind,
                         adapted && LAYERS[k].kind == MODEL_WEIGHTS);
        if (strcmp(type, IMAGE "tensor")) continue;
        const int64_t size = json_get_int(layer, "size", 0);
        if (size > 0 && tensor_bytes <= INT64_MAX - size) tensor_bytes += size;
        tensors++;
    }
    if (tensors) add_tensors(s, n, tensors, tensor_bytes);
}

/* A manifest's path below manifests/ is HOST/NAMESPACE/MODEL/TAG. */
static bool name_of(struct model_name *n, const char *path)
{
    struct str text = { 0 };
    const char *tag = strrchr(path, '/');
    int slashes = 0;
    for (const char *p = path; *p; p++) slashes += *p == '/';
    if (slashes != 3 || !tag) return false;
    str_printf(&text, "ollama:%.*s:%s", (int)(tag - path), path, tag + 1);
    const bool good = !text.failed && !model_name_parse(n, str_text(&text), NULL);
    str_free(&text);
    return good;
}

void scan_ollama(struct scan *s, const char *root)
{
    struct found_files files = { .n = 0 };
    const char *manifests = scan_path(s, root, "manifests");
    if (manifests) scan_walk(s, &files, manifests, NULL);
    for (int i = 0; i < files.n && !s->failed; i++) {
        struct model_name n;
        json_t *manifest = NULL;
        char *text = NULL;
        size_t size = 0;
        const char *path = scan_path(s, manifests, files.row[i].path);
        if (!path) break;
        if (!name_of(&n, files.row[i].path)) {
            s->out->skipped[SKIPPED_MANIFEST]++;
            continue;
        }
        struct err why = { 0 };
        if (file_read(&text, &size, path, MANIFEST_MOST, &why))
            s->out->skipped[why.code == ERR_FORMAT ? SKIPPED_MANIFEST : SKIPPED_UNREADABLE]++;
        else if (json_parse(&manifest, text, size, NULL))
            s->out->skipped[SKIPPED_MANIFEST]++;
        else
            add_layers(s, root, &n, manifest);
        json_decref(manifest);
        free(text);
    }
    found_files_done(&files);
}
