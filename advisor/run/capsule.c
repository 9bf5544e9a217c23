/* advisor/run/capsule.c - the provenance record of a run, and the differences of two (run.h). */
#include "advisor/run/run.h"

#include <glob.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const GROUPS[] = { "machine", "kernel",      "governor", "microcode", "library",
                                      "program", "environment", "model",    "config" };

/* ---------------------------------------------------------------- taking one */

static json_t *machine_group(const struct machine *m)
{
    /* members that other groups contain, and memory, which changes all the time */
    static const char *const ELSEWHERE[] = { "schema", "kernel", "governor", "memory_available_bytes" };
    json_t *o = machine_to_json(m);
    char isa[256];
    for (size_t i = 0; i < COUNT_OF(ELSEWHERE); i++) json_object_del(o, ELSEWHERE[i]);
    json_put_str(o, "isa",
                 isa_names(m->isa, isa, sizeof isa)); /* as one text, so that a difference is a single line */
    return o;
}

/* The file behind libopenblas.so.0, whose name contains the version. The library is not loaded for that,
 * because it would start its threads. */
static void openblas_file(char *buf, size_t size)
{
    static const char *const PLACES[] = { "/usr/local/lib/libopenblas.so.0", "/usr/lib/*/libopenblas.so.0",
                                          "/usr/lib64/libopenblas.so.0", "/usr/lib/libopenblas.so.0" };
    const char *given = getenv("QDYNO_OPENBLAS");
    char whole[PATH_MAX];
    glob_t found;
    buf[0] = '\0';
    for (size_t i = 0; i < COUNT_OF(PLACES) && !*buf; i++) {
        if (glob(given && *given ? given : PLACES[i], 0, NULL, &found)) continue;
        if (realpath(found.gl_pathv[0], whole)) {
            const char *slash = strrchr(whole, '/');
            snprintf(buf, size, "%s", slash ? slash + 1 : whole);
        }
        globfree(&found);
    }
}

static json_t *library_group(const struct machine *m)
{
    json_t *o = json_object();
    char text[256];
    snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
    json_put_str(o, "libc", text);
    openblas_file(text, sizeof text);
    json_put_str(o, "openblas", *text ? text : NULL);
    for (int i = 0; i < m->gpus; i++) {
        char key[32];
        snprintf(key, sizeof key, "gpu%d_driver", i);
        json_put_str(o, key, *m->gpu[i].driver ? m->gpu[i].driver : NULL);
    }
    return o;
}

static json_t *program_group(const char *program)
{
    json_t *o = json_object();
    char hex[HASH_HEX];
    json_put_str(o, "version", QDYNO_VERSION);
#ifdef __clang__
    json_put_str(o, "compiler", __VERSION__);
#else
    json_put_str(o, "compiler", "gcc " __VERSION__);
#endif
    json_put_str(o, "sha256", hash_file(program ? program : "/proc/self/exe", hex, NULL) ? NULL : hex);
    json_put_str(o, "kernels", KERNELS_BUILD);
    return o;
}

/* Variables that are not set are "": that is known, while null would mean unknown. */
static json_t *environment_group(void)
{
    static const char *const NAMES[] = {
        "QDYNO_ISA",         "QDYNO_OPENBLAS",  "QDYNO_PLUGINS",  "OPENBLAS_NUM_THREADS",
        "OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "OMP_PROC_BIND",  "GLIBC_TUNABLES",
        "MALLOC_ARENA_MAX",  "LD_PRELOAD",      "LD_LIBRARY_PATH"
    };
    json_t *o = json_object();
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        const char *value = getenv(NAMES[i]);
        json_put_str(o, NAMES[i], value ? value : "");
    }
    return o;
}

static void capsule_put_text(json_t *o, const char *key, const char *text)
{
    json_put_str(o, key, text && *text ? text : NULL);
}

static json_t *model_of(const struct capsule_arm *a)
{
    char whole[PATH_MAX]; /* absolute: a relative path means nothing in another folder */
    json_t *o = json_object();
    capsule_put_text(o, "name", a->model_name);
    capsule_put_text(o, "path", realpath(a->model_path, whole) ? whole : a->model_path);
    capsule_put_text(o, "sha256", a->sha256);
    return o;
}

static json_t *config_of(const struct capsule_arm *a)
{
    json_t *o = a->resolved ? config_to_json(a->resolved) : json_object(), *out = json_object();
    json_put_str(out, "line", a->line);
    json_object_del(o, KNOBS[KNOB_MODEL].key); /* the group `model` contains it */
    json_object_update(out, o);
    json_decref(o);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a->engine, key, value) /* "engine.build" */
    {
        char name[64];
        snprintf(name, sizeof name, "engine.%.50s", key);
        json_object_set(out, name, value);
    }
    return out;
}

json_t *capsule_take(const struct capsule_of *of)
{
    json_t *o = json_object(), *models = json_array(), *configs = json_array();
    json_put_str(o, "schema", "qdyno.capsule/1");
    json_put(o, "machine", machine_group(of->machine));
    json_t *state = machine_state_to_json(of->root);
    json_object_update(o, state);
    json_decref(state);
    json_put(o, "library", library_group(of->machine));
    json_put(o, "program", program_group(of->program));
    json_put(o, "environment", environment_group());
    for (int i = 0; i < of->arms; i++) {
        json_array_append_new(models, model_of(&of->arm[i]));
        json_array_append_new(configs, config_of(&of->arm[i]));
    }
    json_put(o, "model", models);
    json_put(o, "config", configs);
    return o;
}

enum err_code capsule_store(struct db *d, int64_t run_id, const struct capsule_of *of, struct err *why)
{
    json_t *o = capsule_take(of);
    char *line = json_line(o);
    json_decref(o);
    enum err_code rc = line ? db_capsule_put(d, run_id, line, why)
                            : err_set(why, ERR_NOMEM, "no memory for the provenance record of run %lld",
                                      (long long)run_id);
    free(line);
    return rc;
}

static enum err_code capsule_parse(json_t **out, const char *text, int64_t run_id, struct err *why)
{
    enum err_code rc = json_parse(out, text, strlen(text), why);
    if (!rc && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        rc = err_set(why, ERR_FORMAT, "expected an object");
    }
    return rc ? err_prefix(why, "provenance record of run %lld", (long long)run_id) : ERR_OK;
}

enum err_code capsule_load(json_t **out, struct db *d, int64_t run_id, struct err *why)
{
    char *text;
    *out = NULL;
    enum err_code rc = db_capsule_get(d, run_id, &text, why);
    if (rc || !text) return rc;
    rc = capsule_parse(out, text, run_id, why);
    free(text);
    return rc;
}

enum err_code capsule_find(json_t **out, struct db *d, int64_t run_id, struct err *why)
{
    char *text;
    struct err damaged;
    *out = NULL;
    const enum err_code rc = db_capsule_get(d, run_id, &text, why);
    if (rc || !text) return rc;
    const enum err_code parsed = capsule_parse(out, text, run_id, &damaged);
    free(text);
    return parsed == ERR_NOMEM ? err_set(why, ERR_NOMEM, "%s", damaged.message) : ERR_OK;
}

const json_t *capsule_model(const json_t *capsule, const char *line)
{
    const json_t *lines = json_object_get(capsule, "config"), *models = json_object_get(capsule, "model");
    for (size_t i = 0; i < json_array_size(lines); i++)
        if (!strcmp(json_get_str(json_array_get(lines, i), "line", ""), line))
            return json_array_get(models, i);
    return NULL;
}

/* ---------------------------------------------------------------- comparing two */

static void append_key(char *to, size_t size, const char *prefix, const char *key)
{
    snprintf(to, size, "%.150s%s%.80s", prefix, *prefix ? "." : "", key);
}

/* Adds every leaf below `value` to `flat`, with keys like "A.threads": members by name, array items by
 * letter. */
static void leaves_flatten(json_t *flat, const char *prefix, const json_t *value)
{
    char key[256];
    const char *name;
    json_t *item;
    size_t i;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, name, item)
        {
            append_key(key, sizeof key, prefix, name);
            leaves_flatten(flat, key, item);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item)
        {
            append_key(key, sizeof key, prefix, (char[]){ (char)('A' + i % 26), '\0' });
            leaves_flatten(flat, key, item);
        }
    } else {
        json_object_set(flat, prefix, (json_t *)value);
    }
}

static void put_change(json_t *diff, const char *group, const char *key, json_t *before, json_t *after)
{
    json_t *o = json_object();
    json_put_str(o, "group", group);
    json_put_str(o, "key", key);
    json_put(o, "before", before ? json_incref(before) : json_null());
    json_put(o, "after", after ? json_incref(after) : json_null());
    json_array_append_new(diff, o);
}

static bool values_are_same(const json_t *a, const json_t *b)
{
    if (json_is_null(a) || json_is_null(b)) return (!a || json_is_null(a)) && (!b || json_is_null(b));
    return a && b ? json_equal(a, b) : a == b;
}

static void diff_group(json_t *diff, const char *group, const json_t *before, const json_t *after)
{
    json_t *a = json_object(), *b = json_object(), *value;
    const char *key;
    leaves_flatten(a, "", before);
    leaves_flatten(b, "", after);
    json_object_foreach(a, key, value)
    {
        json_t *now = json_object_get(b, key);
        if (!values_are_same(value, now)) put_change(diff, group, key, value, now);
    }
    json_object_foreach(b, key, value)
    {
        if (!json_object_get(a, key) && !json_is_null(value)) put_change(diff, group, key, NULL, value);
    }
    json_decref(a);
    json_decref(b);
}

/* The arm with that config line; if there is none, the last one, so that the difference shows. */
static const json_t *arm_of(const json_t *capsule, const char *group, const char *line)
{
    const json_t *list = json_object_get(capsule, "config");
    size_t i, found = 0;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        found = i;
        if (!strcmp(json_get_str(item, "line", ""), line)) break;
    }
    return json_array_get(json_object_get(capsule, group), found);
}

json_t *capsule_diff(const json_t *before, const json_t *after, const char *line)
{
    json_t *diff = json_array();
    if (!before || !after) return diff;
    for (size_t i = 0; i < COUNT_OF(GROUPS); i++) {
        const char *group = GROUPS[i];
        const bool of_arms = !strcmp(group, "model") || !strcmp(group, "config");
        if (line && of_arms && !*line) continue;
        if (line && of_arms)
            diff_group(diff, group, arm_of(before, group, line), arm_of(after, group, line));
        else
            diff_group(diff, group, json_object_get(before, group), json_object_get(after, group));
    }
    return diff;
}

static void append_value(struct str *out, const json_t *value)
{
    if (!value || json_is_null(value)) {
        str_append(out, "n/a");
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value);
        str_append(out, *text ? text : "(not set)");
    } else {
        char *text = json_write(value, JSON_SPACED, 0);
        str_append(out, text ? text : "?");
        free(text);
    }
}

void capsule_values_text(struct str *out, const json_t *change)
{
    append_value(out, json_object_get(change, "before"));
    str_append(out, " -> ");
    append_value(out, json_object_get(change, "after"));
}

void capsule_change_text(struct str *out, const json_t *change)
{
    str_printf(out, "%s.%s ", json_get_str(change, "group", "?"), json_get_str(change, "key", "?"));
    capsule_values_text(out, change);
}
