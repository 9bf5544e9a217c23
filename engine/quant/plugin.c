/* Loads plug-ins as rows of METHODS. A child process describes the library in JSON; the description is
 * checked here, so that the rest of the program treats plug-ins like built-in methods. */
#include "engine/quant/plugin.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PLUGINS_MAX = 32, PARAMETERS_MAX = 32, DESCRIBE_S = 10, WORD_MAX = 31, LINE_MAX_BYTES = 480 };

static const char VARIABLE[] = "QDYNO_PLUGINS";

/* Filled by plugins_load, before the process has further threads. */
static struct plugin *loaded[PLUGINS_MAX];
static size_t loaded_count;

size_t plugin_count(void)
{
    return loaded_count;
}

const struct method *plugin_at(size_t i)
{
    return &loaded[i]->method;
}

/* ---------------------------------------------------------------- describing (in the child) */

static json_t *parameter_json(const struct qdyno_parameter *q)
{
    json_t *o = json_object();
    json_put_str(o, "name", q->name);
    json_put_str(o, "help", q->help);
    json_put_int(o, "kind", q->kind);
    json_put_num(o, "min", q->min);
    json_put_num(o, "max", q->max);
    json_put_str(o, "choices", q->choices);
    json_put_str(o, "otherwise", q->otherwise);
    return o;
}

/* Work of the describing child: write the description as JSON. */
static int plugin_describe(void *arg, int member, const struct qdyno_plugin *p, struct str *out)
{
    (void)arg, (void)member;
    json_t *o = json_object(), *list = json_array();
    json_put_str(o, "name", p->name);
    json_put_str(o, "help", p->help);
    json_put_str(o, "good", p->good);
    json_put_str(o, "bad", p->bad);
    json_put_str(o, "formats", p->formats);
    json_put_int(o, "answer", p->answer);
    json_put_int(o, "calibration", p->calibration);
    json_put_bool(o, "encodes", p->encode != NULL);
    int n = 0;
    for (const struct qdyno_parameter *q = p->parameters; q && q->name && n <= PARAMETERS_MAX; q++, n++)
        json_array_append_new(list, parameter_json(q));
    json_put(o, "parameters", list);
    char *line = json_line(o);
    str_append(out, line ? line : "out of memory while describing the plug-in");
    return line == NULL;
}

/* ---------------------------------------------------------------- checking the description */

static bool text_is_word(const char *s)
{
    const size_t n = strlen(s);
    return n && n <= WORD_MAX && s[0] >= 'a' && s[0] <= 'z' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == n;
}

/* Whether a word already has another meaning in config lines: key, format or reserved word. */
static bool word_is_taken(const char *word)
{
    static const char *const OTHERS[] = { "kv", "recipe", "default", "none", "file", "auto" };
    for (int i = 0; i < KNOB_COUNT; i++)
        if (!strcasecmp(KNOBS[i].key, word)) return true;
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++)
        if (!strcasecmp(OTHERS[i], word)) return true;
    return format_find(word) != NULL;
}

static enum err_code name_check(const char *what, const char *name, struct err *why)
{
    if (!text_is_word(name))
        return err_set(why, ERR_FORMAT,
                       "the %s name '%s' must begin with a lower-case letter, consist of lower-case letters, "
                       "digits and _, and have at most %d characters",
                       what, name, WORD_MAX);
    if (word_is_taken(name))
        return err_set(why, ERR_FORMAT,
                       "the %s name '%s' is reserved: it is a key, a format or a keyword of config lines",
                       what, name);
    return ERR_OK;
}

/* Copy a text field of the description. ERR_FORMAT: missing, too long, or not one printable line. */
static enum err_code plugin_read_line(struct plugin *p, const char **out, const json_t *o, const char *key,
                                      const char *otherwise, struct err *why)
{
    const char *text = json_get_str(o, key, otherwise);
    if (!text || !*text) return err_set(why, ERR_FORMAT, "the description has no '%s'", key);
    if (strlen(text) > LINE_MAX_BYTES)
        return err_set(why, ERR_FORMAT, "'%s' of the description is longer than %d bytes", key,
                       LINE_MAX_BYTES);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            return err_set(why, ERR_FORMAT, "'%s' of the description is not one line of text", key);
    *out = arena_strdup(&p->memory, text);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a plug-in");
}

/* Check a list of words separated by single spaces; `fits` (may be NULL) checks each word. `what` completes
 * the message "'word' ...". */
static enum err_code check_words(const char *list, bool (*fits)(const char *word, void *arg), void *arg,
                                 const char *what, struct err *why)
{
    for (const char *at = list;;) {
        char word[WORD_MAX + 2];
        const size_t n = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), at);
        if (!text_is_word(word) || (fits && !fits(word, arg)))
            return err_set(why, ERR_FORMAT, "'%s' %s", word, what);
        if (!at[n]) return ERR_OK;
        at += n + 1;
    }
}

/* Whether a plug-in can produce this format: by codes only formats whose codes are independent of a codebook.
 */
static bool plugin_makes_format(const char *word, void *arg)
{
    const struct plugin *p = arg;
    const struct format *f = format_find(word);
    if (!f || !f->encode) return false;
    return p->answer == QDYNO_WEIGHTS || format_group_bits(f) || f->row_tail_bytes;
}

/* A plug-in without a list of formats gets all of them listed by name, so that recipe_converts applies the
 * method also where the file's format stays the same. */
static enum err_code plugin_set_all_formats(struct plugin *p, struct err *why)
{
    struct str all = { 0 };
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i].encode) str_printf(&all, "%s%s", all.len ? " " : "", FORMATS[i].name);
    p->method.formats = all.failed ? NULL : arena_strdup(&p->memory, str_text(&all));
    str_free(&all);
    return p->method.formats ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a plug-in");
}

/* Check the list of formats; the first one becomes the default. */
static enum err_code plugin_read_formats(struct plugin *p, const json_t *o, struct err *why)
{
    const bool codes = p->answer == QDYNO_CODES;
    if (!json_get_str(o, "formats", NULL) && !codes) return plugin_set_all_formats(p, why);
    enum err_code rc = plugin_read_line(p, &p->method.formats, o, "formats", NULL, why);
    if (!rc)
        rc = check_words(
            p->method.formats, plugin_makes_format, p,
            codes ? "cannot be produced from codes: expected u4_g64 and other group formats, int8 or "
                    "fp8_*"
                  : "is not a format that can be encoded",
            why);
    if (rc) return rc;
    p->method.default_format = arena_strndup(&p->memory, p->method.formats, strcspn(p->method.formats, " "));
    return p->method.default_format ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a plug-in");
}

/* Check a parameter's kind and range. */
static enum err_code param_read_range(struct param *q, const json_t *o, struct err *why)
{
    static const enum value_kind KINDS[] = { [QDYNO_INT] = VALUE_INT,
                                             [QDYNO_REAL] = VALUE_REAL,
                                             [QDYNO_BOOL] = VALUE_BOOL,
                                             [QDYNO_CHOICE] = VALUE_CHOICE };
    const int64_t kind = json_get_int(o, "kind", -1);
    if (kind < 0 || kind >= (int64_t)COUNT_OF(KINDS))
        return err_set(why, ERR_FORMAT, "%s has an unknown kind", q->name);
    q->kind = KINDS[kind];
    q->min = json_get_num(o, "min", NAN);
    q->max = json_get_num(o, "max", NAN);
    if ((q->kind == VALUE_INT || q->kind == VALUE_REAL) && !(q->min <= q->max))
        return err_set(why, ERR_FORMAT, "%s has an invalid range (min %g, max %g)", q->name, q->min, q->max);
    return ERR_OK;
}

/* Check one parameter: its name, help, values and default. */
static enum err_code plugin_read_parameter(struct plugin *p, struct param *q, const json_t *o,
                                           struct err *why)
{
    char text[64];
    enum err_code rc = plugin_read_line(p, &q->name, o, "name", NULL, why);
    const char *known = rc ? NULL : param_name(q->name);
    if (rc) return rc;
    if ((rc = name_check("parameter", q->name, why))) return rc;
    if (known && strcmp(known, q->name))
        return err_set(why, ERR_FORMAT, "%s is called %s in all other methods: use that name", q->name,
                       known);
    for (const struct param *other = p->method.params; other != q; other++)
        if (!strcmp(other->name, q->name))
            return err_set(why, ERR_FORMAT, "two parameters are called %s", q->name);
    if ((rc = plugin_read_line(p, &q->help, o, "help", NULL, why))) return rc;
    if ((rc = param_read_range(q, o, why))) return rc;
    if (q->kind == VALUE_CHOICE) {
        if ((rc = plugin_read_line(p, &q->choices, o, "choices", NULL, why))) return rc;
        if ((rc = check_words(q->choices, NULL, NULL, "is not a valid choice of a parameter", why)))
            return rc;
    }
    if ((rc = plugin_read_line(p, &q->otherwise, o, "otherwise", NULL, why))) return rc;
    return param_check(&p->method, q->name, q->otherwise, text, sizeof text, why)
               ? err_set(why, ERR_FORMAT, "the default of %s is not an allowed value: %s", q->name,
                         q->otherwise)
               : ERR_OK;
}

static enum err_code plugin_read_parameters(struct plugin *p, const json_t *list, struct err *why)
{
    const size_t n = json_array_size(list);
    if (n > PARAMETERS_MAX)
        return err_set(why, ERR_FORMAT, "more than %d parameters, or the list does not end with an empty row",
                       PARAMETERS_MAX);
    struct param *rows = arena_alloc(&p->memory, (n + 1) * sizeof *rows); /* zeroed: the last row ends them */
    if (!rows) return err_set(why, ERR_NOMEM, "out of memory for a plug-in");
    p->method.params = rows;
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = plugin_read_parameter(p, &rows[i], json_array_get(list, i), why);
        if (rc) err_prefix(why, "parameter %zu", i + 1);
    }
    return rc;
}

/* Check what the plug-in answers with and whether it needs a calibration. */
static enum err_code plugin_read_kinds(struct plugin *p, const json_t *o, struct err *why)
{
    static const enum calibration_need NEEDS[] = { [QDYNO_CALIBRATION_NONE] = CALIBRATION_NONE,
                                                   [QDYNO_CALIBRATION_OPTIONAL] = CALIBRATION_OPTIONAL,
                                                   [QDYNO_CALIBRATION_NEEDED] = CALIBRATION_NEEDED };
    const int64_t answer = json_get_int(o, "answer", -1), need = json_get_int(o, "calibration", -1);
    if (answer != QDYNO_WEIGHTS && answer != QDYNO_CODES)
        return err_set(why, ERR_FORMAT, "its answer is %lld, expected QDYNO_WEIGHTS or QDYNO_CODES",
                       (long long)answer);
    if (need < 0 || need >= (int64_t)COUNT_OF(NEEDS))
        return err_set(why, ERR_FORMAT, "its calibration is %lld, expected one of QDYNO_CALIBRATION_*",
                       (long long)need);
    if (!json_get_bool(o, "encodes", false)) return err_set(why, ERR_FORMAT, "it has no function encode");
    p->answer = answer == QDYNO_CODES ? QDYNO_CODES : QDYNO_WEIGHTS;
    p->method.calibration = NEEDS[need];
    p->method.tensor = plugin_encode;
    return ERR_OK;
}

enum err_code plugin_from_json(struct plugin **out, const char *path, const json_t *o, struct err *why)
{
    struct plugin *p = calloc(1, sizeof *p);
    struct method *m = &p->method;
    enum err_code rc = p ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a plug-in");
    *out = NULL;
    if (rc) return rc;
    if (!(p->path = arena_strdup(&p->memory, path))) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = plugin_read_line(p, &m->name, o, "name", NULL, why);
    if (!rc) rc = name_check("method", m->name, why);
    if (!rc && method_find(m->name))
        rc = err_set(why, ERR_FORMAT, "a method called %s already exists", m->name);
    if (!rc) rc = plugin_read_line(p, &m->help, o, "help", NULL, why);
    if (!rc) rc = plugin_read_line(p, &m->good, o, "good", "the plug-in does not say", why);
    if (!rc) rc = plugin_read_line(p, &m->bad, o, "bad", "the plug-in does not say", why);
    if (!rc) rc = plugin_read_kinds(p, o, why);
    if (!rc) rc = plugin_read_formats(p, o, why);
    if (!rc) rc = plugin_read_parameters(p, json_object_get(o, "parameters"), why);
    if (!rc) {
        *out = p;
        return ERR_OK;
    }
    plugin_free(p);
    return err_prefix(why, "plug-in %s", path);
}

void plugin_free(struct plugin *p)
{
    if (!p) return;
    struct arena memory = p->memory;
    free(p);
    arena_free(&memory);
}

/* ---------------------------------------------------------------- loading */

/* Let a child load the library and describe itself. */
static enum err_code plugin_ask_description(json_t **description, const char *path, struct err *why)
{
    struct str answer = { 0 };
    struct plugin_crew crew = {
        .path = path, .doing = "describing itself", .count = 1, .work = plugin_describe
    };
    enum err_code rc = plugin_patience(&crew.patience_ns, why);
    crew.patience_ns = MIN(crew.patience_ns, DESCRIBE_S * INT64_C(1000000000));
    if (!rc) rc = plugin_crew_run(&crew, &answer, why);
    if (!rc && (rc = json_parse(description, str_text(&answer), answer.len, why)))
        rc = err_prefix(why, "plug-in %s: invalid JSON in its description", path);
    str_free(&answer);
    return rc;
}

/* Load one plug-in, unless it is already loaded. */
static enum err_code plugin_load(const char *file, struct err *why)
{
    char *path = realpath(file, NULL), hash[HASH_HEX];
    json_t *description = NULL;
    struct plugin *p = NULL;
    if (!path) return err_set(why, err_of_errno(errno), "plug-in %s: %s", file, strerror(errno));
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < loaded_count; i++)
        if (!strcmp(loaded[i]->path, path)) goto done; /* already loaded */
    if (strchr(path, ':'))
        rc = err_set(why, ERR_USAGE, "plug-in %s: its path contains ':', the separator of paths in %s", path,
                     VARIABLE);
    else if (loaded_count == PLUGINS_MAX)
        rc = err_set(why, ERR_USAGE, "more than %d plug-ins were given", PLUGINS_MAX);
    if (!rc && (rc = hash_file(path, hash, why))) rc = err_prefix(why, "plug-in");
    if (!rc) rc = plugin_ask_description(&description, path, why);
    if (!rc) rc = plugin_from_json(&p, path, description, why);
    if (!rc) {
        memcpy(p->hash, hash, sizeof hash);
        p->method.identity = p->hash;
        loaded[loaded_count++] = p;
    }
done:
    json_decref(description);
    free(path);
    return rc;
}

/* Set QDYNO_PLUGINS, so that worker processes load the same plug-ins. */
static enum err_code plugins_export_paths(struct err *why)
{
    struct str paths = { 0 };
    for (size_t i = 0; i < loaded_count; i++) str_printf(&paths, "%s%s", i ? ":" : "", loaded[i]->path);
    const bool set = !paths.failed && (!loaded_count || !setenv(VARIABLE, str_text(&paths), 1));
    str_free(&paths);
    return set ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the paths of plug-ins");
}

enum err_code plugins_load(const char *const *files, int count, struct err *why)
{
    const char *inherited = getenv(VARIABLE);
    char *list = strdup(inherited ? inherited : ""), *rest = NULL;
    enum err_code rc = list ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the paths of plug-ins");
    for (char *path = list ? strtok_r(list, ":", &rest) : NULL; path && !rc;
         path = strtok_r(NULL, ":", &rest))
        if ((rc = plugin_load(path, why))) err_prefix(why, "%s", VARIABLE);
    free(list);
    for (int i = 0; i < count && !rc; i++) rc = plugin_load(files[i], why);
    return rc ? rc : plugins_export_paths(why);
}

void plugins_unload(void)
{
    while (loaded_count) plugin_free(loaded[--loaded_count]);
}
