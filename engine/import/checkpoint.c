/* Finds, maps and parses the files of a checkpoint. */
#include "engine/import/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/import/hf_tokenizer.h"
#include "engine/import/import.h"

enum { JSON_FILE_MAX = 256 << 20, SHARDS_MAX = 4096 };

static const char SAFETENSORS[] = ".safetensors";

bool import_is_checkpoint(const char *path)
{
    struct stat s;
    return str_ends(path, SAFETENSORS) || (!stat(path, &s) && S_ISDIR(s.st_mode));
}

/* ---------------------------------------------------------------- files */

/* Map a file of the folder and keep it with the model, so that it is part of the model's identity. *out is
 * borrowed. With `optional`, a file that does not exist is ERR_OK and *out NULL. */
static enum err_code map_file(const struct file_map **out, struct checkpoint *c, const char *name,
                              bool optional, struct err *why)
{
    struct str path = { 0 };
    struct stat s;
    *out = NULL;
    str_printf(&path, "%s%s", c->folder, name);
    enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory opening '%s'", c->path) : ERR_OK;
    if (!rc && optional && stat(str_text(&path), &s)) {
        str_free(&path);
        return ERR_OK;
    }
    struct gguf_parts *p = &c->parts;
    struct file_map *more = rc ? NULL : realloc(p->files, (size_t)(p->file_count + 1) * sizeof *more);
    if (!rc && !more) rc = err_set(why, ERR_NOMEM, "out of memory opening '%s'", c->path);
    if (more) p->files = more;
    if (!rc) rc = file_map(&p->files[p->file_count], str_text(&path), why);
    if (!rc) *out = &p->files[p->file_count++];
    str_free(&path);
    return rc;
}

typedef enum err_code parse_fn(json_t **out, const char *text, size_t n, struct err *why);

static enum err_code read_json_by(parse_fn *parse, json_t **out, struct checkpoint *c, const char *name,
                                  bool optional, struct err *why)
{
    const struct file_map *map;
    enum err_code rc = map_file(&map, c, name, optional, why);
    if (rc || !map) return rc;
    if (map->size > JSON_FILE_MAX)
        return err_set(why, ERR_FORMAT, "'%s%s': %zu bytes, expected at most %d", c->folder, name, map->size,
                       JSON_FILE_MAX);
    rc = parse(out, (const char *)map->data, map->size, why);
    if (!rc && !json_is_object(*out)) rc = err_set(why, ERR_FORMAT, "expected a JSON object");
    return rc ? err_prefix(why, "'%s%s'", c->folder, name) : ERR_OK;
}

static enum err_code read_json(json_t **out, struct checkpoint *c, const char *name, bool optional,
                               struct err *why)
{
    return read_json_by(json_parse, out, c, name, optional, why);
}

/* Add the tensors of one weight file. */
static enum err_code read_weights(struct checkpoint *c, const char *name, struct err *why)
{
    const struct file_map *map;
    struct st_tensor *all;
    int64_t count;
    enum err_code rc = map_file(&map, c, name, false, why);
    if (!rc) rc = safetensors_parse(&all, &count, map->data, map->size, &c->parts.memory, why);
    if (rc) return map ? err_prefix(why, "'%s%s'", c->folder, name) : rc;
    struct st_tensor *more = realloc(c->tensors, (size_t)(c->tensor_count + count + 1) * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " tensors", count);
    c->tensors = more;
    if (count) memcpy(more + c->tensor_count, all, (size_t)count * sizeof *more);
    for (int64_t i = c->tensor_count; i < c->tensor_count + count; i++)
        switch (name_index_add(&c->names, more[i].name, strlen(more[i].name), i)) {
        case NAME_NO_MEMORY: return err_set(why, ERR_NOMEM, "out of memory for names");
        case NAME_KNOWN:
            return err_set(why, ERR_FORMAT, "'%s%s': tensor '%.80s' occurs in another file, too", c->folder,
                           name, more[i].name);
        case NAME_ADDED: break;
        }
    c->tensor_count += count;
    c->parts.weight_files++;
    return ERR_OK;
}

/* ---------------------------------------------------------------- which files */

/* A name of the index must be a file of the same folder. */
static bool is_plain_name(const char *name)
{
    return name && *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static bool index_names(const json_t *map, const char *file)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor,
                        value) if (json_is_string(value) &&
                                   !strcmp(json_string_value(value), file)) return true;
    return false;
}

/* Open all files that the index names, in the order in which it names them, and check that each tensor is
 * where the index says. */
static enum err_code read_shards(struct checkpoint *c, const json_t *map, struct err *why)
{
    const char *tensor, *seen;
    json_t *file, *opened = json_object();
    enum err_code rc = opened ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening '%s'", c->path);
    json_object_foreach((json_t *)map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (rc) break;
        if (!is_plain_name(name) || !str_ends(name, SAFETENSORS))
            rc = err_set(
                why, ERR_FORMAT,
                "'%smodel.safetensors.index.json': tensor '%.80s': expected the name of a .safetensors "
                "file of the same folder",
                c->folder, tensor);
        else if (!json_object_get(opened, name)) {
            if (json_object_size(opened) >= SHARDS_MAX)
                rc = err_set(why, ERR_FORMAT, "'%s': more than %d files of weights", c->path, SHARDS_MAX);
            else if (json_object_set_new(opened, name, json_true()))
                rc = err_set(why, ERR_NOMEM, "out of memory opening '%s'", c->path);
            else
                rc = read_weights(c, name, why);
        }
    }
    json_object_foreach((json_t *)map, tensor, file)
    {
        seen = tensor;
        if (!rc && !checkpoint_find(c, seen))
            rc = err_set(why, ERR_FORMAT,
                         "'%smodel.safetensors.index.json' names tensor '%.80s', which no file has",
                         c->folder, seen);
    }
    json_decref(opened);
    return rc;
}

static enum err_code read_all_weights(struct checkpoint *c, const char *only, struct err *why)
{
    json_t *index = NULL;
    enum err_code rc = read_json(&index, c, "model.safetensors.index.json", true, why);
    const json_t *map = json_object_get(index, "weight_map");
    if (!rc && index && !json_is_object(map))
        rc = err_set(why, ERR_FORMAT, "'%smodel.safetensors.index.json' has no weight_map", c->folder);
    if (!rc && map && (!only || index_names(map, only)))
        rc = read_shards(c, map, why);
    else if (!rc)
        rc = read_weights(c, only ? only : "model.safetensors", why);
    json_decref(index);
    return rc;
}

/* Split the path into the folder and, if it names one, the weight file. */
static enum err_code split_path(struct checkpoint *c, const char *path, const char **only, struct err *why)
{
    struct str folder = { 0 };
    *only = str_ends(path, SAFETENSORS) ? path_file_name(path) : NULL;
    if (*only == path)
        str_append(&folder, "./");
    else if (*only)
        str_append_n(&folder, path, (size_t)(*only - path));
    else
        str_printf(&folder, "%s%s", path, str_ends(path, "/") ? "" : "/");
    c->path = path;
    c->folder = folder.failed ? NULL : arena_strdup(&c->parts.memory, str_text(&folder));
    str_free(&folder);
    return c->folder ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
}

/* A folder of GGUF files is a likely mistake. */
static enum err_code check_folder(const struct checkpoint *c, struct err *why)
{
    struct str path = { 0 };
    struct stat s;
    str_printf(&path, "%sconfig.json", c->folder);
    const bool there = !stat(str_text(&path), &s);
    str_free(&path);
    return there
               ? ERR_OK
               : err_set(
                     why, ERR_IO,
                     "'%s': expected a folder with config.json and safetensors files, it has no config.json; "
                     "for a GGUF model give the file",
                     c->path);
}

enum err_code checkpoint_read(struct checkpoint *c, const char *path, struct err *why)
{
    const char *only;
    const struct file_map *template;
    enum err_code rc;
    *c = (struct checkpoint){ 0 };
    if ((rc = split_path(c, path, &only, why))) return rc;
    if ((rc = check_folder(c, why))) return rc;
    if ((rc = read_all_weights(c, only, why))) return rc;
    if ((rc = read_json(&c->config, c, "config.json", false, why))) return rc;
    if ((rc = read_json(&c->quantize_config, c, "quantize_config.json", true, why))) return rc;
    if ((rc = read_json_by(hf_tokenizer_parse, &c->tokenizer, c, "tokenizer.json", true, why))) return rc;
    /* its model_max_length exceeds 64 bits where there is no limit */
    rc = read_json_by(json_parse_reals, &c->tokenizer_config, c, "tokenizer_config.json", true, why);
    if (rc) return rc;
    if ((rc = read_json(&c->generation, c, "generation_config.json", true, why))) return rc;
    if ((rc = read_json(&c->added_tokens, c, "added_tokens.json", true, why))) return rc;
    if ((rc = read_json(&c->special_tokens_map, c, "special_tokens_map.json", true, why))) return rc;
    if ((rc = map_file(&template, c, "chat_template.jinja", true, why))) return rc;
    if (template) c->template = (struct gguf_string){ (const char *)template->data, template->size };
    return ERR_OK;
}

void checkpoint_close(struct checkpoint *c)
{
    json_decref(c->config);
    json_decref(c->quantize_config);
    json_decref(c->tokenizer);
    json_decref(c->tokenizer_config);
    json_decref(c->generation);
    json_decref(c->added_tokens);
    json_decref(c->special_tokens_map);
    gguf_writer_abort(c->metadata);
    name_index_free(&c->names);
    free(c->tensors);
    gguf_parts_free(&c->parts);
}

struct st_tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    const int64_t i = name_index_find(&c->names, name, strlen(name));
    return i >= 0 ? &c->tensors[i] : NULL;
}

/* ---------------------------------------------------------------- values of config.json */

const json_t *hf_find(const struct checkpoint *c, const char *names)
{
    const json_t *places[] = { c->config, json_object_get(c->config, "text_config") };
    char name[64];
    for (const char *at = names; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        for (size_t i = 0; i < COUNT_OF(places); i++) {
            const json_t *value = json_object_get(places[i], name);
            if (value && !json_is_null(value)) return value;
        }
        at += n;
    }
    return NULL;
}

double hf_num(const struct checkpoint *c, const char *names, double otherwise)
{
    const json_t *value = hf_find(c, names);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

int64_t hf_int(const struct checkpoint *c, const char *names, int64_t otherwise)
{
    const json_t *value = hf_find(c, names);
    if (json_is_integer(value)) return json_integer_value(value);
    const double real = json_is_real(value) ? json_real_value(value) : 0.5;
    return fabs(real) < 0x1p53 && real == trunc(real) ? (int64_t)real : otherwise;
}

bool hf_bool(const struct checkpoint *c, const char *names, bool otherwise)
{
    const json_t *value = hf_find(c, names);
    return json_is_boolean(value) ? json_boolean_value(value) : otherwise;
}
