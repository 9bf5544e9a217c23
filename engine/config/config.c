/* Parses config lines.
 *
 * Nothing in a line is ignored: every item is understood, or refused with a message that shows what would be
 * valid. config_line.c writes the canonical line. */

#include "engine/config/config_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernels.h"

static const char RTN[] = "rtn"; /* the method of a recipe that names the format only */

/* ---------------------------------------------------------------- values that follow from others */

static bool recipe_converts_any(const struct config *c)
{
    return strcmp(config_text(c, KNOB_FORMAT), "file") || config_text(c, KNOB_TENSORS)[0];
}

/* A recipe without a method means round-to-nearest; no recipe means "none". */
const char *config_implied_method(const struct config *c)
{
    return recipe_converts_any(c) ? RTN : KNOBS[KNOB_METHOD].otherwise;
}

/* A method without a format means the format that its parameters give. */
const char *config_implied_format(const struct config *c)
{
    const struct params p = config_params(c);
    const char *format = method_format(&p);
    return format ? format : KNOBS[KNOB_FORMAT].otherwise;
}

/* Typed number of a value whose text is canonical. */
static int64_t knob_number(enum knob_id id, const char *text)
{
    int64_t number = 0;
    if (KNOBS[id].kind == VALUE_INT) str_to_i64(text, &number);
    if (KNOBS[id].kind == VALUE_CHOICE && KNOBS[id].choices)
        while (KNOBS[id].choices[number + 1] && strcasecmp(KNOBS[id].choices[number], text)) number++;
    return number;
}

/* Store a value. `text` is canonical; literals of the tables need no copy, but plug-ins' names do. */
static enum err_code config_put(struct config *c, enum knob_id id, const char *text, struct err *why)
{
    const char *kept = text_intern(text);
    if (!kept) return err_set(why, ERR_NOMEM, "out of memory for %s", KNOBS[id].key);
    c->value[id] = (struct config_value){ .text = kept, .number = knob_number(id, text) };
    return ERR_OK;
}

/* Set the method or format that the line does not give from the other one. */
static enum err_code config_derive_recipe(struct config *c, struct err *why)
{
    const char *usual = KNOBS[KNOB_FORMAT].otherwise;
    enum err_code rc = ERR_OK;
    if (!c->given[KNOB_FORMAT])
        rc = config_put(c, KNOB_FORMAT, c->given[KNOB_METHOD] ? config_implied_format(c) : usual, why);
    if (!rc && !c->given[KNOB_METHOD]) rc = config_put(c, KNOB_METHOD, config_implied_method(c), why);
    return rc;
}

void config_default(struct config *c)
{
    *c = (struct config){ 0 };
    for (int i = 0; i < KNOB_COUNT; i++) config_unset(c, (enum knob_id)i);
}

void config_unset(struct config *c, enum knob_id id)
{
    const char *text = KNOBS[id].otherwise; /* a literal: it needs no copy, so this cannot fail */
    c->value[id] = (struct config_value){ .text = text, .number = knob_number(id, text) };
    c->given[id] = false;
}

enum err_code config_resolve_text(struct config *c, enum knob_id id, const char *value, struct err *why)
{
    return config_put(c, id, value, why);
}

enum err_code config_resolve_int(struct config *c, enum knob_id id, int64_t value, struct err *why)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return config_put(c, id, text, why);
}

/* The first value of a method's parameter, alone, with which the method makes `format`, as "name=value".
 * Returns buf; "other parameters": no value of one parameter does. */
static const char *param_for_format(const struct method *m, const char *format, char *buf, size_t size)
{
    const struct param *first = method_params(m);
    for (const struct param *q = first; q && q->name; q++) {
        char values[256], *rest = NULL;
        snprintf(values, sizeof values, "%s",
                 q->kind == VALUE_BOOL ? "true false"
                 : q->choices          ? q->choices
                                       : "");
        for (char *v = strtok_r(values, " ", &rest); v; v = strtok_r(NULL, " ", &rest)) {
            snprintf(buf, size, "%s=%s", q->name, v);
            const char *made = method_format(&(struct params){ .method = m, .given = buf });
            if (made && !strcmp(made, format)) return buf;
        }
    }
    snprintf(buf, size, "other parameters");
    return buf;
}

/* Method, parameters and format must agree. */
static enum err_code config_check_method(const struct config *c, struct err *why)
{
    const struct params p = config_params(c);
    const char *format = config_text(c, KNOB_FORMAT);
    enum err_code rc = params_check_all(&p, why);
    if (rc || !p.method || !strcmp(format, "file")) return rc;
    char hint[96];
    if (method_decides_format(p.method) && strcmp(config_implied_format(c), format))
        return err_set(why, ERR_USAGE,
                       "method %s with these parameters makes %s, not %s: leave the format out and choose it "
                       "by the parameters (%s)",
                       method_name(p.method), config_implied_format(c), format,
                       param_for_format(p.method, format, hint, sizeof hint));
    const char *makes = method_formats(p.method);
    if (makes && !str_has_word(makes, format))
        return err_set(why, ERR_USAGE, "method %s cannot make %s; it makes %s", method_name(p.method), format,
                       makes);
    return ERR_OK;
}

bool config_rotates(const struct config *c, enum knob_id cache)
{
    static const double AUTO_BITS = 5, QUANTIZED_BITS = 15; /* at most; a scale included */
    const struct format *f = format_find(config_text(c, cache));
    const double bits = f ? format_bits_per_weight(f) : INFINITY;
    switch ((enum kv_rotate)config_choice(c, KNOB_KV_ROTATE)) {
    case KV_ROTATE_AUTO: return bits <= AUTO_BITS;
    case KV_ROTATE_ON: return bits <= QUANTIZED_BITS;
    case KV_ROTATE_OFF: break;
    }
    return false;
}

bool config_copies_weights(const struct config *c)
{
    const enum numa_policy numa = (enum numa_policy)config_choice(c, KNOB_NUMA);
    return config_choice(c, KNOB_HUGEPAGES) == HUGE_PAGES_ALL || numa == NUMA_LOCAL ||
           numa == NUMA_INTERLEAVE || numa == NUMA_REPLICATE;
}

/* Memory nodes are the host's, and the ranks of a model place themselves. */
static enum err_code config_check_numa(const struct config *c, struct err *why)
{
    const char *numa = config_text(c, KNOB_NUMA);
    const struct parallel mode = config_parallel(c);
    if (config_choice(c, KNOB_NUMA) == NUMA_OFF) return ERR_OK;
    if (strcmp(config_text(c, KNOB_DEVICE), "cpu"))
        return err_set(why, ERR_USAGE,
                       "numa=%s is possible on the CPU only: leave out device=%s, or write numa=off", numa,
                       config_text(c, KNOB_DEVICE));
    if (parallel_ranks(&mode) > 1)
        return err_set(why, ERR_USAGE,
                       "numa=%s is possible in one process only: leave out parallel=%s, whose processes are "
                       "placed on nodes by themselves, or write numa=off",
                       numa, config_text(c, KNOB_PARALLEL));
    if (config_choice(c, KNOB_AFFINITY) != AFFINITY_NONE)
        return err_set(
            why, ERR_USAGE,
            "numa=%s binds threads to memory nodes, and affinity=%s to cores: leave one of them out", numa,
            config_text(c, KNOB_AFFINITY));
    return ERR_OK;
}

/* What works on the CPU, in one process and without a scheduler of blocks only. */
static enum err_code config_check_plain(const struct config *c, struct err *why)
{
    const bool cpu = !strcmp(config_text(c, KNOB_DEVICE), "cpu");
    const char *layout = config_text(c, KNOB_KV_CACHE);
    const struct parallel mode = config_parallel(c);
    if (config_choice(c, KNOB_ATTENTION) == ATTENTION_PLAIN && !cpu)
        return err_set(why, ERR_USAGE,
                       "attention=plain is possible on the CPU only: leave out device=%s, or write "
                       "attention=flash",
                       config_text(c, KNOB_DEVICE));
    if (config_choice(c, KNOB_KV_CACHE) == CACHE_PAGED) return ERR_OK;
    if (!cpu)
        return err_set(why, ERR_USAGE,
                       "kv_cache=%s is possible on the CPU only: leave out device=%s, or write "
                       "kv_cache=paged",
                       layout, config_text(c, KNOB_DEVICE));
    if (parallel_ranks(&mode) > 1)
        return err_set(why, ERR_USAGE,
                       "kv_cache=%s is possible in one process only: leave out parallel=%s, or write "
                       "kv_cache=paged",
                       layout, config_text(c, KNOB_PARALLEL));
    if (config_int(c, KNOB_KV_BLOCKS))
        return err_set(why, ERR_USAGE,
                       "kv_blocks=%s is the number of blocks of a paged KV cache, and kv_cache=%s has none: "
                       "leave one of them out",
                       config_text(c, KNOB_KV_BLOCKS), layout);
    return ERR_OK;
}

static enum err_code config_check_cache(const struct config *c, struct err *why)
{
    if (config_choice(c, KNOB_KV_ROTATE) != KV_ROTATE_ON || config_rotates(c, KNOB_CTK) ||
        config_rotates(c, KNOB_CTV))
        return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "kv_rotate=on rotates quantized KV caches, and neither ctk=%s nor ctv=%s is one: add kv=q8_0 "
        "or kv=q4_0, or write kv_rotate=auto",
        config_text(c, KNOB_CTK), config_text(c, KNOB_CTV));
}

enum err_code config_check(const struct config *c, struct err *why)
{
    const char *method = config_text(c, KNOB_METHOD), *format = config_text(c, KNOB_FORMAT);
    enum err_code rc = engine_check(c, why);
    if (!rc) rc = config_check_method(c, why);
    if (rc) return rc;
    if (!strcmp(method, "none") && recipe_converts_any(c))
        return err_set(
            why, ERR_USAGE,
            "method=none leaves the file as it is, so it cannot have %s=%s: leave method out or write method=%s",
            strcmp(format, "file") ? "format" : "tensors",
            strcmp(format, "file") ? format : config_text(c, KNOB_TENSORS), RTN);
    if (strcmp(method, "none") && !recipe_converts_any(c))
        return err_set(why, ERR_USAGE,
                       "method=%s needs a format to convert to: write %s:q8_0 or add format=q8_0", method,
                       method);
    if (config_copies_weights(c) && strcmp(config_text(c, KNOB_PREFETCH), "off")) {
        const bool huge = config_choice(c, KNOB_HUGEPAGES) == HUGE_PAGES_ALL;
        return err_set(why, ERR_USAGE,
                       "%s=%s copies the weights, which reads all of them: prefetch=%s has nothing to do, "
                       "leave one of them out",
                       huge ? "hugepages" : "numa", huge ? "all" : config_text(c, KNOB_NUMA),
                       config_text(c, KNOB_PREFETCH));
    }
    if (config_choice(c, KNOB_BATCH_INVARIANT) && strcmp(config_text(c, KNOB_DEVICE), "cpu"))
        return err_set(why, ERR_USAGE,
                       "batch_invariant=on is possible on the CPU only: leave out device=%s, or write "
                       "batch_invariant=off",
                       config_text(c, KNOB_DEVICE));
    if (config_choice(c, KNOB_BATCH_INVARIANT) && config_choice(c, KNOB_COMPILE) == COMPILE_AUTOTUNE)
        return err_set(
            why, ERR_USAGE,
            "batch_invariant=on needs the same kernel for every number of rows, but compile=autotune "
            "chooses kernels by the number of rows: leave one of them out");
    if ((rc = parallel_check(c, why)) || (rc = config_check_plain(c, why)) ||
        (rc = config_check_numa(c, why)))
        return rc;
    return config_check_cache(c, why);
}

/* ---------------------------------------------------------------- setting */

/* Merge the pairs of `more` into the given parameters; the result to out[CONFIG_VALUE]. */
static enum err_code params_join(const struct config *c, const char *more, char *out, struct err *why)
{
    char all[CONFIG_VALUE], pair[CONFIG_VALUE];
    snprintf(all, sizeof all, "%s", config_text(c, KNOB_PARAMS));
    for (const char *p = more; *p;) {
        const size_t n = strcspn(p, ";");
        snprintf(pair, sizeof pair, "%.*s", (int)n, p);
        p += n + (p[n] == ';');
        char *equals = strchr(pair, '=');
        *equals = '\0';
        enum err_code rc = params_merge(all, pair, equals + 1, why);
        if (rc) return rc;
    }
    memcpy(out, all, sizeof all);
    return ERR_OK;
}

static enum err_code config_set_knob(struct config *c, enum knob_id id, const char *value, struct err *why)
{
    struct value parsed;
    enum err_code rc = knob_parse(id, value, &parsed, why);
    if (!rc && id == KNOB_PARAMS) rc = params_join(c, parsed.text, parsed.text, why);
    if (!rc) rc = config_put(c, id, parsed.text, why);
    if (rc) return rc;
    c->given[id] = true;
    return config_derive_recipe(c, why);
}

/* The error for a bare word that is no recipe: its message lists every format and method. */
static enum err_code recipe_error(const char *word, struct err *why)
{
    const char *names[2 * CHOICES_MAX + KNOB_COUNT];
    char text[320];
    size_t formats = MIN(knob_choices(KNOB_FORMAT, names, CHOICES_MAX), CHOICES_MAX);
    size_t both = formats + MIN(knob_choices(KNOB_METHOD, names + formats, CHOICES_MAX), CHOICES_MAX);
    for (int i = 0; i < KNOB_COUNT; i++)
        if (!strcasecmp(word, KNOBS[i].key))
            return err_set(why, ERR_USAGE, "'%s' needs a value: write %s=VALUE", word, KNOBS[i].key);
    if (str_ends(word, ".gguf"))
        return err_set(why, ERR_USAGE, "'%s' is a file, expected a config: write model=%s", word, word);
    return err_set(why, ERR_USAGE,
                   "'%.40s' is neither key=value nor a recipe; expected a format or method: %s", word,
                   choices_text(word, names, both, text, sizeof text));
}

/* method | format | method:format. Parts that are not written come out as "". */
static enum err_code recipe_split(const char *word, char *method, char *format, struct err *why)
{
    const char *colon = strchr(word, ':');
    const struct format *f;
    struct value v;
    method[0] = format[0] = '\0';
    if (colon) {
        char left[CONFIG_VALUE];
        snprintf(left, sizeof left, "%.*s", (int)MIN(colon - word, CONFIG_VALUE - 1), word);
        enum err_code rc = knob_parse(KNOB_METHOD, left, &v, why);
        if (rc) return rc;
        memcpy(method, v.text, sizeof v.text);
        rc = knob_parse(KNOB_FORMAT, colon + 1, &v, why);
        memcpy(format, v.text, sizeof v.text);
        return rc;
    }
    /* A word that is both ("nf4") means the method: its format follows from its parameters. */
    if (!knob_parse(KNOB_METHOD, word, &v, NULL)) {
        memcpy(method, v.text, sizeof v.text);
        return ERR_OK;
    }
    if (!knob_parse(KNOB_FORMAT, word, &v, NULL)) {
        memcpy(format, v.text, sizeof v.text);
        return ERR_OK;
    }
    if (format_find(word)) return recipe_format_check(word, &f, why); /* a known format without an encoder */
    return recipe_error(word, why);
}

/* The knobs that an item sets, with their values; two for "kv" and "method:format". */
struct item {
    enum knob_id id[2];
    char value[2][CONFIG_VALUE];
    int count;
};

static void item_add(struct item *it, enum knob_id id, const char *value)
{
    it->id[it->count] = id;
    snprintf(it->value[it->count++], CONFIG_VALUE, "%s", value);
}

/* A word that is the value of a method's shorthand parameter: q4_K_M is gguf,type=q4_K_M. The first method
 * that accepts it is taken. */
static bool item_shorthand(struct item *it, const char *word)
{
    char value[CONFIG_VALUE], pair[CONFIG_VALUE];
    for (size_t i = 0; i < method_count(); i++) {
        const struct method *m = method_at(i);
        const char *name = method_shorthand(m);
        if (!name || param_check(m, name, word, value, sizeof value, NULL)) continue;
        snprintf(pair, sizeof pair, "%s=%s", name, value);
        item_add(it, KNOB_METHOD, method_name(m));
        item_add(it, KNOB_PARAMS, pair);
        return true;
    }
    return false;
}

static enum err_code item_recipe(struct item *it, const char *word, struct err *why)
{
    char method[CONFIG_VALUE], format[CONFIG_VALUE];
    if (!format_find(word) && item_shorthand(it, word)) return ERR_OK;
    enum err_code rc = recipe_split(word, method, format, why);
    if (rc) return rc;
    if (method[0]) item_add(it, KNOB_METHOD, method);
    if (format[0]) item_add(it, KNOB_FORMAT, format);
    return ERR_OK;
}

static enum err_code item_parse(struct item *it, const char *key, const char *value, struct err *why)
{
    const char *names[KNOB_COUNT + 2];
    it->count = 0;
    if (strlen(value) >= CONFIG_VALUE)
        return err_set(why, ERR_USAGE, "%.40s: value longer than %d bytes", key, CONFIG_VALUE - 1);
    if (!strcmp(key, "recipe")) return item_recipe(it, value, why);
    if (!strcmp(key, "kv")) {
        item_add(it, KNOB_CTK, value);
        item_add(it, KNOB_CTV, value);
        return ERR_OK;
    }
    for (int i = 0; i < KNOB_COUNT; i++) {
        names[i] = KNOBS[i].key;
        if (strcmp(key, KNOBS[i].key)) continue;
        item_add(it, (enum knob_id)i, value);
        return ERR_OK;
    }
    if (param_name(key)) {
        char pair[CONFIG_VALUE];
        snprintf(pair, sizeof pair, "%s=%s", param_name(key), value);
        item_add(it, KNOB_PARAMS, pair);
        return ERR_OK;
    }
    const struct knob_name *other = knob_name_find(key);
    if (other && other->instead)
        return err_set(why, ERR_USAGE, "unknown key '%.40s' (%s): %s", key, other->program, other->instead);
    if (other)
        return err_set(why, ERR_USAGE, "unknown key '%.40s': it is the name of %s for %s (did you mean %s=?)",
                       key, other->program, KNOBS[other->knob].key, KNOBS[other->knob].key);
    names[KNOB_COUNT] = "kv";
    names[KNOB_COUNT + 1] = "recipe";
    const char *near = str_nearest(key, names, COUNT_OF(names));
    return err_set(why, ERR_USAGE, "unknown key '%.40s'%s%s%s: `qdyno help configs` lists the keys", key,
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static enum err_code item_apply(struct config *c, const struct item *it, struct err *why)
{
    for (int i = 0; i < it->count; i++) {
        enum err_code rc = config_set_knob(c, it->id[i], it->value[i], why);
        if (rc) return rc;
    }
    return ERR_OK;
}

enum err_code config_set(struct config *c, const char *key, const char *value, struct err *why)
{
    struct item it;
    enum err_code rc = item_parse(&it, key, value, why);
    return rc ? rc : item_apply(c, &it, why);
}

/* ---------------------------------------------------------------- reading a line */

static bool is_separator(char ch)
{
    return ch == ',' || ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

/* One item of a line, without its quotes. equals: position of its first '=' outside quotes, -1: none. */
struct lexed {
    struct str text;
    int64_t equals;
    bool found; /* false at the end of the line */
};

static enum err_code lex_item(const char **line, struct lexed *out, struct err *why)
{
    const char *p = *line;
    bool quoted = false;
    str_clear(&out->text);
    out->equals = -1;
    while (is_separator(*p)) p++;
    out->found = *p != '\0';
    for (; *p && (quoted || !is_separator(*p)); p++) {
        if (*p == '"') {
            quoted = !quoted;
            continue;
        }
        if (quoted && *p == '\\' && (p[1] == '"' || p[1] == '\\')) p++;
        if (!quoted && *p == '=' && out->equals < 0) out->equals = (int64_t)out->text.len;
        str_append_n(&out->text, p, 1);
    }
    *line = p;
    if (quoted) return err_set(why, ERR_USAGE, "a quote is not closed in '%.60s'", str_text(&out->text));
    return out->text.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

/* Is the parameter of this "name=value" already given? */
static bool params_has(const struct config *c, const char *pair)
{
    char name[CONFIG_VALUE];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(pair, "="), pair);
    return params_given(&(struct params){ .given = config_text(c, KNOB_PARAMS) }, name);
}

static enum err_code line_apply_item(struct config *c, bool *seen, struct lexed *in, struct err *why)
{
    struct item it = { .count = 0 };
    enum err_code rc;
    if (in->equals >= 0) {
        in->text.data[in->equals] = '\0';
        rc = item_parse(&it, in->text.data, in->text.data + in->equals + 1, why);
    } else {
        rc = item_recipe(&it, str_text(&in->text), why);
    }
    for (int i = 0; !rc && i < it.count; i++) {
        if (it.id[i] == KNOB_PARAMS ? params_has(c, it.value[i]) : seen[it.id[i]])
            rc = err_set(why, ERR_USAGE, "%s is given twice: %.60s and %.60s", KNOBS[it.id[i]].key,
                         config_text(c, it.id[i]), it.value[i]);
        seen[it.id[i]] = true;
    }
    return rc ? rc : item_apply(c, &it, why);
}

enum err_code config_parse(struct config *c, const char *line, struct err *why)
{
    bool seen[KNOB_COUNT] = { false };
    struct lexed in = { .found = true };
    int items = 0, defaults = 0;
    enum err_code rc = ERR_OK;
    config_default(c);
    while (!rc && !(rc = lex_item(&line, &in, why)) && in.found) {
        items++;
        if (in.equals < 0 && !strcmp(str_text(&in.text), "default"))
            defaults++;
        else
            rc = line_apply_item(c, seen, &in, why);
    }
    str_free(&in.text);
    if (!rc && defaults && items > 1)
        rc = err_set(why, ERR_USAGE, "'default' must be the only item: it means that nothing is set");
    return rc ? rc : config_check(c, why);
}

/* ---------------------------------------------------------------- values */

/* The value of a knob; of a zeroed config: the default. */
static struct config_value config_get(const struct config *c, enum knob_id id)
{
    const char *usual = KNOBS[id].otherwise;
    if (c->value[id].text) return c->value[id];
    return (struct config_value){ .text = usual, .number = knob_number(id, usual) };
}

void config_take(struct config *to, const struct config *from, enum knob_id id)
{
    to->value[id] = config_get(from, id);
    to->given[id] = true;
}

int64_t config_int(const struct config *c, enum knob_id id)
{
    return config_get(c, id).number;
}

const char *config_text(const struct config *c, enum knob_id id)
{
    return config_get(c, id).text;
}

int config_choice(const struct config *c, enum knob_id id)
{
    return (int)config_get(c, id).number;
}

const struct knob *config_stray(const struct config *c, unsigned work)
{
    for (int i = 0; i < KNOB_COUNT; i++)
        if (c->given[i] && !(KNOBS[i].matters_for & work)) return &KNOBS[i];
    return NULL;
}
