/* header_cache.c - keeps what was read of headers, because opening hundreds of files takes seconds.
 *
 * An entry is found by device, inode, size and times of each file of the model and by the file's name, which
 * may tell its quantization. Figures that depend on more than the file are kept with their basis. The file is
 * only a cache: one that cannot be read or written, or is of another version, costs time and nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/models/scan.h"

enum { CACHE_ROWS_MOST = 5000, CACHE_BYTES_MOST = 64 << 20 };

struct header_cache {
    char *path;    /* NULL: there is no cache folder */
    json_t *files; /* object: key -> header */
    json_t *used;  /* those that this listing used */
    bool changed;
};

static void cache_open(struct header_cache *c)
{
    char *folder = NULL, *text = NULL;
    size_t size = 0;
    json_t *whole = NULL;
    struct str path = { 0 };
    *c = (struct header_cache){ .used = json_object() };
    if (!file_place(&folder, FILE_CACHE, NULL)) {
        str_printf(&path, "%s/models.json", folder);
        c->path = str_take(&path);
    }
    free(folder);
    if (c->path && !file_read(&text, &size, c->path, CACHE_BYTES_MOST, NULL) &&
        !json_parse(&whole, text, size, NULL) && json_get_int(whole, "version", 0) == MODELS_CACHE_VERSION &&
        !strcmp(json_get_str(whole, "program", ""), QDYNO_VERSION))
        c->files = json_incref(json_object_get(whole, "files"));
    if (!json_is_object(c->files)) {
        json_decref(c->files);
        c->files = json_object();
    }
    json_decref(whole);
    free(text);
}

/* Write what this listing used, and older entries while there is room. */
static void cache_close(struct header_cache *c)
{
    const char *key;
    json_t *row;
    struct atomic_file f;
    json_object_foreach(c->files, key, row)
    {
        if (json_object_size(c->used) >= CACHE_ROWS_MOST) break;
        if (!json_object_get(c->used, key)) json_object_set(c->used, key, row);
    }
    json_t *whole = json_object();
    json_put_int(whole, "version", MODELS_CACHE_VERSION);
    json_put_str(whole, "program", QDYNO_VERSION);
    json_put(whole, "files", c->used);
    char *text = c->changed && c->path ? json_line(whole) : NULL;
    if (text && !atomic_file_open(&f, c->path, NULL)) {
        fputs(text, f.stream);
        if (!atomic_file_commit(&f, NULL)) file_make_private(c->path);
    }
    free(text);
    json_decref(whole);
    json_decref(c->files);
    free(c->path);
}

/* ---------------------------------------------------------------- keys */

static bool append_state(struct str *out, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return false;
    str_printf(out, "%llu %llu %lld %lld.%09ld %lld.%09ld\n", (unsigned long long)st.st_dev,
               (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
               st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    return true;
}

/* The other files of a split model. */
static bool append_shards(struct str *out, const struct model_entry *e)
{
    size_t stem;
    bool all = true;
    if (!model_file_is_shard(e->path, NULL, NULL, &stem)) return true;
    for (int i = 2; i <= e->shards && all; i++) {
        struct str path = { 0 };
        str_printf(&path, "%.*s-%05d-of-%05d.gguf", (int)stem, e->path, i, e->shards);
        all = !path.failed && append_state(out, str_text(&path));
        str_free(&path);
    }
    return all;
}

/* Of a checkpoint the folder stands for its files: adding, removing and renaming changes its time. */
static bool append_checkpoint(struct str *out, const struct model_entry *e)
{
    struct str path = { 0 };
    str_printf(&path, "%s/config.json", e->path);
    const bool good = !path.failed && append_state(out, str_text(&path));
    str_free(&path);
    str_printf(out, "%lld\n", (long long)e->bytes);
    return good;
}

static bool key_of(char key[HASH_HEX], const struct model_entry *e)
{
    struct str text = { 0 };
    str_printf(&text, "%s\n", path_file_name(e->path));
    const bool good = append_state(&text, e->path) &&
                      (e->checkpoint ? append_checkpoint(&text, e) : append_shards(&text, e)) && !text.failed;
    if (good) hash_bytes(str_text(&text), text.len, key);
    str_free(&text);
    return good;
}

/* ---------------------------------------------------------------- headers as JSON */

/* clang-format off */
#define HEADER_TEXTS(X) X(why) X(arch) X(title) X(quantization) X(quantization_source) X(quantization_note) X(dominant_format)
#define HEADER_SIZES(X) X(params) X(weight_bytes) X(ctx_train)
#define HEADER_FLAGS(X) X(read) X(runs) X(random_weights) X(chat_template)
/* clang-format on */

static json_t *header_to_json(const struct model_entry *e, const char *basis)
{
    const struct model_header *h = &e->header;
    json_t *o = json_object(), *figures = json_array();
#define PUT_TEXT(name)                                                                                       \
    if (*h->name) json_put_str(o, #name, h->name);
#define PUT_SIZE(name)                                                                                       \
    if (h->name) json_put_int(o, #name, h->name);
#define PUT_FLAG(name)                                                                                       \
    if (h->name) json_put_bool(o, #name, true);
    HEADER_TEXTS(PUT_TEXT)
    HEADER_SIZES(PUT_SIZE)
    HEADER_FLAGS(PUT_FLAG)
    json_put_int(o, "kind", e->kind);
    for (int i = 0; i < MODEL_FIGURES && basis; i++) json_array_append_new(figures, json_num(h->figure[i]));
    if (basis) {
        json_put_str(o, "basis", basis);
        json_put(o, "figures", figures);
    } else {
        json_decref(figures);
    }
    return o;
}

/* Fill the header. False: it is damaged, or its figures have another basis. */
static bool header_from_json(struct model_entry *e, const json_t *o, const char *basis)
{
    struct model_header *h = &e->header;
    const int64_t kind = json_get_int(o, "kind", -1);
    const json_t *figures = json_object_get(o, "figures");
    if (kind < 0 || kind >= MODEL_KIND_COUNT) return false; /* every row has one */
    *h = (struct model_header){ .read = false };
#define GET_TEXT(name) str_put(h->name, sizeof h->name, json_get_str(o, #name, ""));
#define GET_SIZE(name) h->name = json_get_int(o, #name, 0);
#define GET_FLAG(name) h->name = json_get_bool(o, #name, false);
    HEADER_TEXTS(GET_TEXT)
    HEADER_SIZES(GET_SIZE)
    HEADER_FLAGS(GET_FLAG)
    e->kind = (enum model_file_kind)kind;
    for (size_t i = 0; i < MODEL_FIGURES; i++) {
        const json_t *v = json_array_get(figures, i);
        h->figure[i] = json_is_number(v) ? json_number_value(v) : NAN;
    }
    return !basis || !strcmp(json_get_str(o, "basis", ""), basis);
}

enum err_code headers_read(struct model_list *l, const struct models_options *o, struct err *why)
{
    struct header_cache c;
    enum err_code rc = ERR_OK;
    cache_open(&c);
    for (int i = 0; i < l->n && !rc; i++) {
        struct model_entry *e = &l->row[i];
        char key[HASH_HEX];
        if (o->goes_on && !o->goes_on(o->ctx, i, l->n)) rc = err_set(why, ERR_CANCELLED, "cancelled");
        if (rc || !e->path || e->kind == MODEL_OTHER) continue;
        if (e->shards_here < e->shards) { /* says so without opening a file */
            header_read(e, o);
            continue;
        }
        const bool keyed = key_of(key, e);
        json_t *known = keyed ? json_object_get(c.files, key) : NULL;
        if (known && header_from_json(e, known, o->basis)) {
            l->files_cached++;
            json_object_set(c.used, key, known);
            continue;
        }
        const bool lasting = header_read(e, o);
        l->files_read++;
        c.changed = true;
        if (keyed && !lasting) json_object_del(c.files, key);
        if (keyed && lasting) json_object_set_new(c.used, key, header_to_json(e, o->basis));
    }
    cache_close(&c);
    return rc;
}
