/* telemetry/gpu/gpu_library.c - makes queries to a vendor's library, or looks their answers up in a
 * recording. */
#include "telemetry/gpu/gpu_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/gpu/gpu.h"

static bool query_is_list(const struct gpu_query *q)
{
    return q->part[0] && !strcmp(q->part[0], "[]");
}

/* ---------------------------------------------------------------- the library itself */

void *gpu_library_symbol(struct gpu_library *l, const char *name)
{
    return l->handle ? dlsym(l->handle, name) : NULL;
}

static enum err_code library_load(struct gpu_library *l, struct err *why)
{
    const struct gpu_library_kind *k = l->kind;
    const char *given = getenv(k->variable), *path = given && *given ? given : k->file;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) {
        const char *cause = dlerror();
        return err_set(why, ERR_ABSENT, "%s library not found: %s", k->name, cause ? cause : path);
    }
    for (int i = 0; i < k->n_queries; i++) {
        char symbol[96];
        snprintf(symbol, sizeof symbol, "%.*s", (int)strcspn(k->queries[i].key, "("), k->queries[i].key);
        l->function[i] = dlsym(l->handle, symbol);
    }
    const int bad = k->start(l);
    if (bad) {
        const char *meaning = k->explain ? k->explain(bad) : NULL;
        return err_set(why, ERR_ABSENT, "'%s' cannot be used (%s error %d): %s", path, k->name, bad,
                       meaning ? meaning : "is the driver loaded?");
    }
    l->started = true;
    return l->devices ? ERR_OK : err_set(why, ERR_ABSENT, "'%s' reports no device", path);
}

/* ---------------------------------------------------------------- recorded answers */

static enum err_code library_load_recording(struct gpu_library *l, const char *root, struct err *why)
{
    char path[4096], *text = NULL;
    size_t n;
    json_t *doc = NULL;
    snprintf(path, sizeof path, "%s/%s.json", root, l->kind->name);
    if (access(path, F_OK))
        return err_set(why, ERR_ABSENT, "this recording contains no answers of %s", l->kind->name);
    enum err_code rc = file_read(&text, &n, path, 8 << 20, why);
    if (rc) return rc;
    rc = json_parse(&doc, text, n, why);
    free(text);
    if (!rc && !json_is_array(json_object_get(doc, "devices")))
        rc = err_set(why, ERR_FORMAT, "expected an array 'devices'");
    if (!rc) {
        l->recorded = json_incref(json_object_get(doc, "devices"));
        l->devices = (int)MIN(json_array_size(l->recorded), (size_t)MACHINE_GPUS);
        if (!l->devices) rc = err_set(why, ERR_ABSENT, "no device");
    }
    json_decref(doc);
    return rc ? err_prefix(why, "%s", path) : ERR_OK;
}

/* Libraries use numbers above INT64_MAX for "not available"; in JSON they are null. */
static uint64_t answer_number_from_json(const json_t *v)
{
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : UINT64_MAX;
}

static json_t *answer_number_to_json(uint64_t v)
{
    return v <= INT64_MAX ? json_integer((json_int_t)v) : json_null();
}

/* Converts a recorded answer: a text, a number, an object of parts, a list of pairs, or {"error": code}.
 * Returns the code. */
static int answer_from_json(const json_t *v, const struct gpu_query *q, struct gpu_answer *out)
{
    const json_t *error = json_is_object(v) ? json_object_get(v, "error") : NULL;
    if (error)
        return json_is_integer(error) && json_integer_value(error) ? (int)json_integer_value(error)
                                                                   : LIBRARY_NO_ANSWER;
    if (!q->part[0]) {
        if (!json_is_string(v)) return LIBRARY_NO_ANSWER;
        snprintf(out->text, sizeof out->text, "%s", json_string_value(v));
        return 0;
    }
    if (query_is_list(q)) {
        size_t i;
        json_t *pair;
        if (!json_is_array(v)) return LIBRARY_NO_ANSWER;
        json_array_foreach(v, i, pair)
        {
            if (out->count + 2 > ANSWER_VALUES) break;
            out->value[out->count++] = answer_number_from_json(json_array_get(pair, 0));
            out->value[out->count++] = answer_number_from_json(json_array_get(pair, 1));
        }
        return 0;
    }
    if (!q->part[1]) {
        if (!json_is_integer(v)) return LIBRARY_NO_ANSWER;
        out->value[0] = answer_number_from_json(v);
        return 0;
    }
    if (!json_is_object(v)) return LIBRARY_NO_ANSWER;
    for (int i = 0; i < ANSWER_PARTS && q->part[i]; i++)
        out->value[i] = answer_number_from_json(json_object_get(v, q->part[i]));
    return 0;
}

/* Masked process ids are numbered in order of first appearance, so that a process has the same number in all
 * lists of a device. */
struct seen {
    uint64_t pid[2 * ANSWER_VALUES];
    int count;
};

static uint64_t seen_mask_pid(struct seen *seen, uint64_t pid)
{
    int i = 0;
    while (i < seen->count && seen->pid[i] != pid) i++;
    if (i == seen->count && i < (int)COUNT_OF(seen->pid)) seen->pid[seen->count++] = pid;
    return (uint64_t)i + 1;
}

/* seen NULL: secret values are not masked. */
static json_t *answer_to_json(const struct gpu_query *q, const struct gpu_answer *a, int device,
                              struct seen *seen)
{
    if (!q->part[0]) {
        char text[96];
        snprintf(text, sizeof text, "masked-%d", device);
        return json_string(seen && q->secret ? text : a->text);
    }
    if (query_is_list(q)) {
        json_t *list = json_array();
        for (int i = 0; i + 1 < a->count; i += 2) {
            json_t *pair = json_array();
            const uint64_t pid = seen && q->secret ? seen_mask_pid(seen, a->value[i]) : a->value[i];
            json_array_append_new(pair, answer_number_to_json(pid));
            json_array_append_new(pair, answer_number_to_json(a->value[i + 1]));
            json_array_append_new(list, pair);
        }
        return list;
    }
    if (!q->part[1]) return answer_number_to_json(a->value[0]);
    json_t *parts = json_object();
    for (int i = 0; i < ANSWER_PARTS && q->part[i]; i++)
        json_put(parts, q->part[i], answer_number_to_json(a->value[i]));
    return parts;
}

/* ---------------------------------------------------------------- interface */

enum err_code gpu_library_open(struct gpu_library **out, const struct gpu_library_kind *kind,
                               const char *root, struct err *why)
{
    *out = NULL;
    struct gpu_library *l = calloc(1, sizeof *l);
    if (!l) return err_set(why, ERR_NOMEM, "out of memory opening the library of %s", kind->name);
    l->kind = kind;
    const enum err_code rc = *root ? library_load_recording(l, root, why) : library_load(l, why);
    if (rc) {
        gpu_library_close(l);
        return rc;
    }
    *out = l;
    return ERR_OK;
}

void gpu_library_close(struct gpu_library *l)
{
    if (!l) return;
    if (l->started) l->kind->stop(l);
    if (l->handle) dlclose(l->handle);
    json_decref(l->recorded);
    free(l);
}

int gpu_library_query(struct gpu_library *l, int device, int query, struct gpu_answer *out)
{
    const struct gpu_query *q = &l->kind->queries[query];
    int code = LIBRARY_NO_ANSWER;
    *out = (struct gpu_answer){ 0 };
    if (l->recorded)
        code = answer_from_json(json_object_get(json_array_get(l->recorded, (size_t)device), q->key), q, out);
    else if (l->function[query])
        code = l->kind->call(l, device, q, l->function[query], out);
    if (code) *out = (struct gpu_answer){ 0 };
    return code;
}

json_t *gpu_library_record(struct gpu_library *l, bool masked)
{
    json_t *doc = json_object(), *devices = json_array();
    json_put_str(doc, "library", l->kind->name);
    for (int d = 0; d < l->devices; d++) {
        json_t *answers = json_object();
        struct seen seen = { .count = 0 };
        for (int i = 0; i < l->kind->n_queries; i++) {
            const struct gpu_query *q = &l->kind->queries[i];
            struct gpu_answer a;
            const int code = gpu_library_query(l, d, i, &a);
            json_t *v = code == LIBRARY_NO_ANSWER ? NULL
                        : code                    ? json_pack("{s:i}", "error", code)
                                                  : answer_to_json(q, &a, d, masked ? &seen : NULL);
            if (v) json_put(answers, q->key, v);
        }
        json_array_append_new(devices, answers);
    }
    json_put(doc, "devices", devices);
    return doc;
}
