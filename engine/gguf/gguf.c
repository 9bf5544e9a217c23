/* A GGUF model as one thing: shards opened and merged, tensors and keys found by name.
 *
 * gguf_read.c parses the bytes of one file. This file finds the shards of a model, refuses names that occur
 * twice, and looks keys and tensors up by name. */
#include "engine/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf_internal.h"
#include "kernels/kernels.h"

struct gguf {
    char *path;
    struct arena memory;
    struct gguf_shard *shards;
    int shard_count;
    bool any_type;               /* accept tensors of types without a row in FORMATS */
    int weight_files;            /* > 0: the model was assembled; the first shard has its metadata */
    char *header;                /* owned bytes of that shard */
    struct gguf_tensor *tensors; /* of all shards, in their order */
    int64_t tensor_count;
    struct name_index keys, names; /* of the first shard's metadata; of tensors */
};

/* ---------------------------------------------------------------- names */

static enum err_code name_add(struct name_index *x, struct gguf_string name, int64_t i, const char *what,
                              struct err *why)
{
    switch (name_index_add(x, name.data, name.len, i)) {
    case NAME_NO_MEMORY: return err_set(why, ERR_NOMEM, "out of memory for names");
    case NAME_KNOWN:
        return err_set(why, ERR_FORMAT, "%s '%.*s' occurs twice", what, (int)MIN(name.len, 80), name.data);
    case NAME_ADDED: break;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- shards */

enum { SHARD_TAIL = sizeof "-00001-of-00003.gguf" - 1, SHARDS_MAX = 99999 };

/* Parse "NAME-00001-of-00003.gguf" into 1 and 3. False: the name does not have this form. */
static bool shard_name_parse(const char *path, int *number, int *count)
{
    size_t n = strlen(path);
    if (n < SHARD_TAIL) return false;
    int end = 0;
    const char *tail = path + n - SHARD_TAIL;
    return sscanf(tail, "-%5d-of-%5d.gguf%n", number, count, &end) == 2 && end == SHARD_TAIL;
}

/* Checks one shard's own split.* keys (u16 by the specification; any integer will do). */
static enum err_code shard_check(const struct gguf_shard *s, int number, int count, struct err *why)
{
    for (int64_t i = 0; i < s->kv_count; i++) {
        const struct gguf_kv *kv = &s->kv[i];
        bool no = gguf_string_is(kv->key, "split.no");
        if (!no && !gguf_string_is(kv->key, "split.count")) continue;
        double want = no ? number : count, have = kv->type == GGUF_ARRAY ? NAN : gguf_kv_num(kv, 0);
        if (have != want)
            return err_set(why, ERR_FORMAT, "%s is %g, expected %g: the files do not belong together",
                           no ? "split.no" : "split.count", have, want);
    }
    return ERR_OK;
}

static enum err_code shard_open(struct gguf *g, int number, const char *path, struct err *why)
{
    struct gguf_shard *s = &g->shards[number];
    enum err_code rc = file_map(&s->map, path, why);
    if (rc) return rc; /* the message names the path already */
    s->data = s->map.data;
    s->size = s->map.size;
    s->any_type = g->any_type;
    rc = gguf_shard_parse(s, &g->memory, why);
    if (!rc && number > 0) rc = shard_check(s, number, g->shard_count, why);
    if (rc) err_prefix(why, "'%s'", path);
    return rc;
}

/* Read the number of shards from the first file; its name must agree, because the other names follow from it.
 */
static enum err_code shards_count(struct gguf *g, struct err *why)
{
    int64_t count = gguf_get_int(g, "split.count", 1), no = gguf_get_int(g, "split.no", 0);
    int name_no = 0, name_count = 0;
    if (count <= 1) return ERR_OK;
    if (count > SHARDS_MAX) return err_set(why, ERR_FORMAT, "'%s': split.count is %" PRId64, g->path, count);
    bool named = shard_name_parse(g->path, &name_no, &name_count);
    if (no != 0)
        return err_set(why, ERR_FORMAT,
                       "'%s' is part %" PRId64 " of %" PRId64 ": open the first one (-00001-of-%05" PRId64
                       ".gguf)",
                       g->path, no + 1, count, count);
    if (!named || name_no != 1 || name_count != count)
        return err_set(why, ERR_FORMAT,
                       "'%s' is the first of %" PRId64 " files: expected the name NAME-00001-of-%05" PRId64
                       ".gguf, or the others cannot be found",
                       g->path, count, count);
    g->shard_count = (int)count;
    return ERR_OK;
}

static enum err_code shards_open_rest(struct gguf *g, struct err *why)
{
    struct gguf_shard *all = realloc(g->shards, (size_t)g->shard_count * sizeof *all);
    if (!all) {
        g->shard_count = 1; /* gguf_close must not read the others */
        return err_set(why, ERR_NOMEM, "out of memory opening the parts of '%s'", g->path);
    }
    g->shards = all;
    memset(all + 1, 0, (size_t)(g->shard_count - 1) * sizeof *all);
    int stem = (int)(strlen(g->path) - SHARD_TAIL);
    for (int i = 1; i < g->shard_count; i++) {
        struct str path = { 0 };
        str_printf(&path, "%.*s-%05d-of-%05d.gguf", stem, g->path, i + 1, g->shard_count);
        enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory")
                                       : shard_open(g, i, str_text(&path), why);
        str_free(&path);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code tensors_index(struct gguf *g, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < g->tensor_count && !rc; i++) {
        const char *name = g->tensors[i].name;
        rc = name_add(&g->names, (struct gguf_string){ name, strlen(name) }, i, "tensor", why);
    }
    if (rc) err_prefix(why, "'%s'", g->path);
    return rc;
}

static enum err_code tensors_merge(struct gguf *g, struct err *why)
{
    for (int i = 0; i < g->shard_count; i++) g->tensor_count += g->shards[i].tensor_count;
    int64_t wanted = gguf_get_int(g, "split.tensors.count", g->tensor_count);
    if (wanted != g->tensor_count)
        return err_set(why, ERR_FORMAT, "'%s': split.tensors.count is %" PRId64 ", the files hold %" PRId64,
                       g->path, wanted, g->tensor_count);
    if (g->shard_count == 1) {
        g->tensors = g->shards[0].tensors;
    } else {
        g->tensors = arena_alloc(&g->memory, (size_t)g->tensor_count * sizeof *g->tensors);
        if (!g->tensors) return err_set(why, ERR_NOMEM, "out of memory for tensors");
        struct gguf_tensor *to = g->tensors;
        for (int i = 0; i < g->shard_count; i++)
            for (int64_t j = 0; j < g->shards[i].tensor_count; j++) *to++ = g->shards[i].tensors[j];
    }
    return tensors_index(g, why);
}

/* ---------------------------------------------------------------- open, close */

static struct gguf *gguf_new(const char *path, bool any_type)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->path = strdup(path);
    g->shards = calloc(1, sizeof *g->shards);
    g->shard_count = 1;
    g->any_type = any_type;
    if (!g->path || !g->shards) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

static enum err_code keys_index(struct gguf *g, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < g->shards[0].kv_count && !rc; i++)
        rc = name_add(&g->keys, g->shards[0].kv[i].key, i, "metadata key", why);
    if (rc) err_prefix(why, "'%s'", g->path);
    return rc;
}

static enum err_code file_open(struct gguf **out, const char *path, bool any_type, struct err *why)
{
    *out = NULL;
    struct gguf *g = gguf_new(path, any_type);
    if (!g) return err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
    enum err_code rc;
    if ((rc = shard_open(g, 0, path, why))) goto fail;
    if ((rc = keys_index(g, why))) goto fail;
    if ((rc = shards_count(g, why))) goto fail;
    if (g->shard_count > 1 && (rc = shards_open_rest(g, why))) goto fail;
    if ((rc = tensors_merge(g, why))) goto fail;
    if ((rc = gguf_check_read(g, why))) goto fail;
    *out = g;
    return ERR_OK;
fail:
    if (gguf_check_read(g, why)) rc = ERR_FORMAT; /* zeros in place of the file's bytes explain any error */
    gguf_close(g);
    return rc;
}

static enum err_code memory_open(struct gguf **out, const void *bytes, size_t size, bool any_type,
                                 struct err *why)
{
    *out = NULL;
    struct gguf *g = gguf_new("(memory)", any_type);
    if (!g) return err_set(why, ERR_NOMEM, "out of memory");
    g->shards[0].data = bytes;
    g->shards[0].size = size;
    g->shards[0].any_type = any_type;
    enum err_code rc;
    if ((rc = gguf_shard_parse(&g->shards[0], &g->memory, why))) goto fail;
    if ((rc = keys_index(g, why))) goto fail;
    if ((rc = shards_count(g, why)))
        goto fail; /* more than one is refused: "(memory)" is not the name of a shard */
    if ((rc = tensors_merge(g, why))) goto fail;
    *out = g;
    return ERR_OK;
fail:
    gguf_close(g);
    return rc;
}

enum err_code gguf_open(struct gguf **out, const char *path, struct err *why)
{
    return file_open(out, path, false, why);
}

enum err_code gguf_open_memory(struct gguf **out, const void *bytes, size_t size, struct err *why)
{
    return memory_open(out, bytes, size, false, why);
}

enum err_code gguf_open_any_type(struct gguf **out, const char *path, struct err *why)
{
    return file_open(out, path, true, why);
}

enum err_code gguf_open_memory_any_type(struct gguf **out, const void *bytes, size_t size, struct err *why)
{
    return memory_open(out, bytes, size, true, why);
}

enum err_code gguf_header_check(const void *bytes, size_t n, int64_t file_bytes, bool *more, struct err *why)
{
    struct arena memory = { 0 };
    struct gguf_shard s = { .data = bytes, .size = n, .whole = (uint64_t)file_bytes, .any_type = true };
    enum err_code rc = gguf_shard_parse(&s, &memory, why);
    *more = rc && s.cut && (int64_t)n < file_bytes;
    arena_free(&memory);
    return rc;
}

void gguf_parts_free(struct gguf_parts *p)
{
    for (int64_t i = 0; i < p->tensor_count; i++) gguf_made_free(p->tensors[i].made);
    for (int i = 0; i < p->file_count; i++) file_unmap(&p->files[i]);
    free(p->files);
    str_free(&p->header);
    arena_free(&p->memory);
    *p = (struct gguf_parts){ 0 };
}

/* Move the parts into g: its first shard has the metadata, the others are the files. */
static enum err_code parts_take(struct gguf *g, struct gguf_parts *p, struct err *why)
{
    struct gguf_shard *all = realloc(g->shards, (size_t)(p->file_count + 1) * sizeof *all);
    const size_t size = p->header.len;
    if (!all) return err_set(why, ERR_NOMEM, "out of memory opening '%s'", g->path);
    g->shards = all;
    if (!(g->header = str_take(&p->header))) return err_set(why, ERR_NOMEM, "out of memory for metadata");
    all[0] = (struct gguf_shard){ .data = (const unsigned char *)g->header, .size = size };
    for (int i = 0; i < p->file_count; i++)
        all[i + 1] = (struct gguf_shard){ .data = p->files[i].data,
                                          .size = p->files[i].size,
                                          .map = p->files[i] };
    g->shard_count = p->file_count + 1;
    g->weight_files = p->weight_files;
    g->memory = p->memory;
    g->tensors = p->tensors;
    g->tensor_count = p->tensor_count;
    free(p->files);
    *p = (struct gguf_parts){ 0 };
    return ERR_OK;
}

enum err_code gguf_assemble(struct gguf **out, const char *path, struct gguf_parts *parts, struct err *why)
{
    struct gguf *g = gguf_new(path, false);
    *out = NULL;
    enum err_code rc = g ? parts_take(g, parts, why)
                         : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
    if (rc) goto fail;
    if ((rc = gguf_shard_parse(&g->shards[0], &g->memory, why))) goto fail;
    if ((rc = keys_index(g, why))) goto fail;
    if ((rc = tensors_index(g, why))) goto fail;
    if ((rc = gguf_check_read(g, why))) goto fail;
    *out = g;
    return ERR_OK;
fail:
    if (g && gguf_check_read(g, why))
        rc = ERR_FORMAT; /* zeros in place of the file's bytes explain any error */
    gguf_parts_free(parts);
    gguf_close(g);
    return rc;
}

bool gguf_is_file(const struct gguf *g)
{
    return g->weight_files == 0;
}

enum err_code gguf_check_types(const struct gguf *g, struct err *why)
{
    for (int64_t i = 0; i < g->tensor_count; i++)
        if (!g->tensors[i].format) {
            gguf_type_error(&g->tensors[i], why);
            return err_prefix(why, "'%s'", g->path);
        }
    return ERR_OK;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (int64_t i = 0; g->weight_files && i < g->tensor_count; i++) gguf_made_free(g->tensors[i].made);
    for (int i = 0; g->shards && i < g->shard_count; i++) file_unmap(&g->shards[i].map);
    free(g->shards);
    free(g->path);
    free(g->header);
    name_index_free(&g->keys);
    name_index_free(&g->names);
    arena_free(&g->memory);
    free(g);
}

/* ---------------------------------------------------------------- contents */

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

int gguf_version(const struct gguf *g)
{
    return g->shards[0].version;
}

int gguf_shards(const struct gguf *g)
{
    return g->weight_files ? g->weight_files : g->shard_count;
}

/* Shards before this one are no files. */
static int first_file(const struct gguf *g)
{
    return g->weight_files ? 1 : 0;
}

int64_t gguf_file_bytes(const struct gguf *g)
{
    int64_t n = 0;
    for (int i = first_file(g); i < g->shard_count; i++) n += (int64_t)g->shards[i].size;
    return n;
}

int64_t gguf_kv_count(const struct gguf *g)
{
    return g->shards[0].kv_count;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, int64_t i)
{
    return &g->shards[0].kv[i];
}

const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key)
{
    const int64_t i = name_index_find(&g->keys, key, strlen(key));
    return i >= 0 ? &g->shards[0].kv[i] : NULL;
}

int64_t gguf_tensor_count(const struct gguf *g)
{
    return g->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int64_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    const int64_t i = name_index_find(&g->names, name, strlen(name));
    return i >= 0 ? &g->tensors[i] : NULL;
}

enum err_code gguf_check_unchanged(const struct gguf *g, struct err *why)
{
    for (int i = first_file(g); i < g->shard_count; i++) {
        const enum err_code rc = file_map_check(&g->shards[i].map, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

enum err_code gguf_check_read(const struct gguf *g, struct err *why)
{
    for (int i = first_file(g); i < g->shard_count; i++) {
        const enum err_code rc = file_map_check_read(&g->shards[i].map, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

bool gguf_state(const struct gguf *g, struct file_state *now)
{
    const int first = first_file(g), files = g->shard_count - first;
    struct file_state one, *all = calloc((size_t)files, sizeof *all);
    bool same = all != NULL;
    *now = (struct file_state){ 0 };
    for (int i = 0; i < files && same; i++) {
        const struct file_map *map = &g->shards[first + i].map;
        same = map->data && !file_map_state(map, &one, NULL) && !memcmp(&one, &map->opened, sizeof one);
        if (!same) break;
        all[i] = one;
        now->size += one.size;
        now->modified_ns = MAX(now->modified_ns, one.modified_ns);
        now->status_ns = MAX(now->status_ns, one.status_ns);
    }
    now->device = files == 1 && same ? all[0].device : (uint64_t)files;
    now->inode = files == 1 && same ? all[0].inode : hash_number(all, same ? (size_t)files * sizeof *all : 0);
    free(all);
    return same;
}

bool gguf_has_file(const struct gguf *g, uint64_t device, uint64_t inode)
{
    for (int i = first_file(g); i < g->shard_count; i++) {
        const struct file_map *map = &g->shards[i].map;
        if (map->data && map->opened.device == device && map->opened.inode == inode) return true;
    }
    return false;
}

static enum err_code shard_hash(const struct gguf_shard *s, char hex[HASH_HEX], struct err *why)
{
    if (s->map.data) return hash_map(&s->map, hex, why);
    hash_bytes(s->data, s->size, hex);
    return ERR_OK;
}

enum err_code gguf_hash(const struct gguf *g, char hex[HASH_HEX], struct err *why)
{
    if (g->shard_count == 1) return shard_hash(&g->shards[0], hex, why);
    struct str all = { 0 };
    enum err_code rc = ERR_OK;
    for (int i = first_file(g); i < g->shard_count && !rc; i++) {
        char one[HASH_HEX];
        rc = shard_hash(&g->shards[i], one, why);
        if (!rc) str_printf(&all, "%s\n", one);
    }
    if (!rc && all.failed) rc = err_set(why, ERR_NOMEM, "out of memory hashing '%s'", g->path);
    if (!rc) hash_bytes(str_text(&all), all.len, hex);
    str_free(&all);
    return rc;
}
