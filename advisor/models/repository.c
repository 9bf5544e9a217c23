/* repository.c - which models a set of files is: split files are one model, a folder with config.json and
 * safetensors files is one, and what is no model is told by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advisor/models/scan.h"
#include "engine/arch/arch.h"

/* A row for one or several files. */
struct part {
    int first, n; /* of the files */
    int shards;   /* as the names say */
    enum model_file_kind kind;
};

/* Of a file or folder below the root; "": of the root itself. */
static char *name_in_folder(const struct repository *r, const char *below)
{
    struct str name = { 0 };
    if (r->whole_paths)
        str_printf(&name, "%s%s%s", r->root, *below ? "/" : "", below);
    else
        str_append(&name, *below ? below : path_file_name(r->root));
    return str_take(&name);
}

/* The name that -m takes. A tag is shorter than a file, but only if it means this file. */
static char *name_of(const struct repository *r, const char *const *files, int n, int at,
                     enum model_file_kind kind)
{
    struct model_name name = { .store = r->store };
    char text[MODEL_NAME_TEXT];
    if (r->store == STORE_PATH) return name_in_folder(r, files[at]);
    str_put(name.repo, sizeof name.repo, r->name);
    str_put(name.revision, sizeof name.revision, r->revision);
    if (r->store == STORE_LLAMACPP) {
        const size_t length = strlen(files[at]), gguf = strlen(".gguf");
        const bool has_end = length > gguf && !strcasecmp(files[at] + length - gguf, ".gguf");
        snprintf(name.repo, sizeof name.repo, "%.*s",
                 (int)MIN(length - (has_end ? gguf : 0), sizeof name.repo - 1), files[at]);
    } else if (kind != MODEL_WEIGHTS || !quantization_tag_of_path(files[at], name.tag, sizeof name.tag) ||
               model_file_choose(files, n, name.tag) != at) {
        str_put(name.tag, sizeof name.tag, files[at]);
        name.is_file = true;
    }
    return strdup(model_name_text(&name, text, sizeof text));
}

/* Files of one split model: same name, same count, and next to each other because the list is sorted. */
static struct part part_at(const struct found_files *f, int at)
{
    struct part p = { .first = at, .n = 1, .shards = 1, .kind = model_file_kind(f->row[at].path) };
    int count, other;
    size_t stem, other_stem;
    if (p.kind == MODEL_OTHER || !model_file_is_shard(f->row[at].path, NULL, &count, &stem)) return p;
    p.shards = count;
    while (at + p.n < f->n && model_file_is_shard(f->row[at + p.n].path, NULL, &other, &other_stem) &&
           other == count && other_stem == stem && !strncmp(f->row[at].path, f->row[at + p.n].path, stem))
        p.n++;
    return p;
}

/* The store's SHA-256 of a file: in the hub's cache a link leads to a blob with that name. */
static void put_hash(struct model_entry *e)
{
    char *real = e->path && e->shards == 1 && !e->checkpoint ? realpath(e->path, NULL) : NULL;
    const char *blob = real ? path_file_name(real) : "";
    if (strlen(blob) == HASH_HEX - 1 && strspn(blob, "0123456789abcdef") == HASH_HEX - 1)
        str_put(e->sha256, sizeof e->sha256, blob);
    free(real);
}

static void put_commit(struct model_entry *e, const struct repository *r)
{
    if (r->commit) str_put(e->commit, sizeof e->commit, r->commit);
}

static void add_part(struct scan *s, const struct repository *r, const struct found_files *f,
                     const char *const *names, const struct part *p)
{
    const struct found_file *first = &f->row[p->first];
    const char *path = scan_path(s, r->root, first->path);
    struct model_entry e = { .store = r->store,
                             .kind = p->kind,
                             .name = name_of(r, names, f->n, p->first, p->kind),
                             .path = path ? strdup(path) : NULL,
                             .file = strdup(first->path),
                             .repo = strdup(r->name),
                             .revision = strdup(r->revision),
                             .shards = p->shards,
                             .shards_here = p->n };
    put_commit(&e, r);
    for (int i = 0; i < p->n; i++) e.bytes += f->row[p->first + i].state.size;
    if (r->store == STORE_HF) put_hash(&e);
    scan_add(s, &e, &first->state);
}

/* ---------------------------------------------------------------- checkpoints */

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

static bool is_in_folder(const char *path, const char *folder, size_t length)
{
    return folder_length(path) == length && !strncmp(path, folder, length);
}

/* The name of a checkpoint is that of its repository or folder, unless that means a GGUF file. */
static char *checkpoint_name(const struct repository *r, const char *file, size_t folder, bool has_gguf)
{
    struct model_name name = { .store = r->store };
    char text[MODEL_NAME_TEXT];
    if (r->store == STORE_PATH) {
        snprintf(text, sizeof text, "%.*s", (int)folder, file);
        return name_in_folder(r, text);
    }
    str_put(name.repo, sizeof name.repo, r->name);
    str_put(name.revision, sizeof name.revision, r->revision);
    if (has_gguf || folder) {
        name.is_file = true;
        snprintf(name.tag, sizeof name.tag, "%.*s", (int)(has_gguf ? strlen(file) : folder), file);
    }
    return strdup(model_name_text(&name, text, sizeof text));
}

/* Is the checkpoint split into the model-*.safetensors that an index names? Other files beside them hold the
 * same weights in another layout (consolidated.safetensors). */
static bool has_index(const struct found_files *f, const char *config, size_t length)
{
    bool index = false, parts = false;
    for (int i = 0; i < f->n; i++) {
        const char *path = f->row[i].path, *base = path_file_name(path);
        if (!is_in_folder(path, config, length)) continue;
        index |= !strcmp(base, "model.safetensors.index.json");
        parts |= str_starts(base, "model-") && str_ends(base, ".safetensors");
    }
    return index && parts;
}

/* at: a file config.json or adapter_config.json. */
static void add_checkpoint(struct scan *s, const struct repository *r, const struct found_files *f, int at,
                           bool has_gguf)
{
    const char *config = f->row[at].path;
    const size_t length = folder_length(config);
    const bool adapter = !strcmp(path_file_name(config), "adapter_config.json");
    const bool indexed = !adapter && has_index(f, config, length);
    int first = -1, n = 0;
    int64_t bytes = 0;
    for (int i = 0; i < f->n; i++) {
        const char *path = f->row[i].path, *base = path_file_name(path);
        if (!str_ends(path, ".safetensors") || !is_in_folder(path, config, length) ||
            str_starts(base, "adapter_") != adapter || (indexed && !str_starts(base, "model-")))
            continue;
        if (first < 0) first = i;
        bytes += f->row[i].state.size;
        n++;
    }
    if (first < 0) return;
    char *folder = strndup(config, length);
    const char *path = folder ? scan_path(s, r->root, folder) : NULL;
    struct model_entry e = { .store = r->store,
                             .kind = adapter ? MODEL_ADAPTER : MODEL_WEIGHTS,
                             .name = checkpoint_name(r, f->row[first].path, length, has_gguf),
                             .path = path ? strdup(path) : NULL,
                             .file = strdup(f->row[first].path),
                             .repo = strdup(r->name),
                             .revision = strdup(r->revision),
                             .shards = n,
                             .shards_here = n,
                             .checkpoint = true,
                             .bytes = bytes };
    put_commit(&e, r);
    free(folder);
    scan_add(s, &e, &f->row[first].state);
}

void scan_add_repository(struct scan *s, const struct repository *r, const struct found_files *files)
{
    const char **names = files->n ? calloc((size_t)files->n, sizeof *names) : NULL;
    bool has_gguf = false;
    if (!files->n) return;
    if (!names) {
        s->failed = true;
        return;
    }
    for (int i = 0; i < files->n; i++) {
        names[i] = files->row[i].path;
        has_gguf |= model_file_kind(names[i]) == MODEL_WEIGHTS;
    }
    for (int i = 0; i < files->n && !s->failed;) {
        const struct part p = part_at(files, i);
        const char *base = path_file_name(names[i]);
        if (p.kind != MODEL_OTHER)
            add_part(s, r, files, names, &p);
        else if (!strcmp(base, "config.json") || !strcmp(base, "adapter_config.json"))
            add_checkpoint(s, r, files, i, has_gguf);
        i += p.n;
    }
    free(names);
}
