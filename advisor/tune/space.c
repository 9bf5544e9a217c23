/* advisor/tune/space.c - builds the search space from KNOBS: every knob that affects the workload, with the
 * values worth trying. A new knob with choices joins the space through its row in KNOBS. */
#include "advisor/tune/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"

/* Not searched: keys that only abbreviate others, decisions of the user (device, context, force),
 * restrictions (isa), several processes (parallel), settings for comparison, and test aids (handicap). */
static bool is_searched(enum knob_id k)
{
    switch (k) {
    case KNOB_MODEL:
    case KNOB_METHOD:
    case KNOB_FORMAT:
    case KNOB_PARAMS:
    case KNOB_CALIB:
    case KNOB_TENSORS:
    case KNOB_ISA:
    case KNOB_DEVICE:
    case KNOB_CTX:
    case KNOB_CTV:             /* together with ctk, as "kv" */
    case KNOB_KV_ROTATE:       /* each format as it is rotated by default */
    case KNOB_KV_CACHE:        /* the other two are for comparison */
    case KNOB_ATTENTION:       /* plain is for comparison */
    case KNOB_BATCH_INVARIANT: /* a promise of the user's; it makes nothing faster */
    case KNOB_OVERSIZE:
    case KNOB_FORCE:
    case KNOB_REQUANTIZE: /* of the user: --requantize */
    case KNOB_ENGINE:
    case KNOB_BIN:
    case KNOB_ARGS: /* of the user: --space args=... */
    case KNOB_URL:
    case KNOB_KEY_ENV:
    case KNOB_PARALLEL: /* of the user: --space parallel=... */
    case KNOB_HOSTS:
    case KNOB_EXCHANGE:
    case KNOB_HANDICAP:
    case KNOB_GRID: return false;
    default: return true;
    }
}

static void dim_add_value(struct tune_dim *d, const char *value)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->value[i], value)) return;
    if (d->n < TUNE_VALUES) snprintf(d->value[d->n++], sizeof d->value[0], "%s", value);
}

static struct tune_dim *dim_begin(struct tune_space *s, const char *key, const char *otherwise,
                                  bool changes_answers)
{
    struct tune_dim *d = &s->dim[s->dims];
    *d = (struct tune_dim){ .changes_answers = changes_answers };
    snprintf(d->key, sizeof d->key, "%s", key);
    dim_add_value(d, otherwise);
    return d;
}

/* Close the dimension: one with a single value is dropped. */
static void dim_end(struct tune_space *s)
{
    if (s->dim[s->dims].n > 1) s->dims++;
}

/* Formats that the file can be converted to. Ternary formats are left out: their quantization error exceeds
 * WORST_NMSE unless the model was trained in them. */
static void space_add_recipes(struct tune_space *s, const struct gguf *g)
{
    static const double WORST_NMSE = 0.1;
    struct model_shape shape;
    struct err ignored;
    struct tune_dim *d = dim_begin(s, "recipe", "file", true);
    const bool known = !model_shape_read(&shape, g, &ignored),
               floats = known && format_is_full_precision(shape.dominant_format);
    s->is_quantized = known && !floats;
    const struct format *own = floats ? format_find(shape.dominant_format) : NULL;
    for (int i = 0; own && i < FORMAT_COUNT; i++)
        if (FORMATS[i].encode && FORMATS[i].decode && FORMATS[i].max_nmse <= WORST_NMSE &&
            !FORMATS[i].needs_importance && format_bits_per_weight(&FORMATS[i]) < format_bits_per_weight(own))
            dim_add_value(d, FORMATS[i].name);
    dim_end(s);
}

static void space_add_threads(struct tune_space *s, const struct machine *m)
{
    char text[24];
    struct tune_dim *d = dim_begin(s, KNOBS[KNOB_THREADS].key, KNOBS[KNOB_THREADS].otherwise, false);
    const int most = machine_threads(m); /* the default */
    for (int t = 1; t < most; t *= 2) {
        snprintf(text, sizeof text, "%d", t);
        dim_add_value(d, text);
    }
    if (most > 3) { /* all but one core */
        snprintf(text, sizeof text, "%d", most - 1);
        dim_add_value(d, text);
    }
    dim_end(s);
}

/* Values more exact than the default are slower and larger: they are tried only when the goal is quality.
 * Left out, too, are values that exist for comparison, and those that the file's weights make the same as
 * another one. */
static bool is_worth_trying(enum knob_id k, const char *value, bool for_quality, bool is_quantized)
{
    if (k == KNOB_COMPILE && !strcmp(value, "off")) return false;
    if (k == KNOB_PRECISION && is_quantized && !strcmp(value, "medium")) return false; /* what auto is */
    const struct format *f = k == KNOB_CTK ? format_find(value) : NULL,
                        *usual = f ? format_find(KNOBS[k].otherwise) : NULL;
    if (for_quality) return true;
    if (f) return f == usual || format_bits_per_weight(f) < format_bits_per_weight(usual);
    return k != KNOB_PRECISION || (strcmp(value, "highest") && strcmp(value, "high"));
}

static void space_add_knob(struct tune_space *s, enum knob_id k, const struct machine *m)
{
    const char *names[TUNE_VALUES];
    const bool kv = k == KNOB_CTK;
    if (k == KNOB_NUMA && m->numa_nodes < 2) return;
    if (k == KNOB_THREADS) {
        space_add_threads(s, m);
        return;
    }
    struct tune_dim *d = dim_begin(s, kv ? "kv" : KNOBS[k].key, KNOBS[k].otherwise, KNOBS[k].changes_answers);
    if (k == KNOB_BATCH) {
        dim_add_value(d, "128");
        dim_add_value(d, "2048");
    }
    const size_t n = MIN(knob_choices(k, names, COUNT_OF(names)), COUNT_OF(names));
    for (size_t i = 0; i < n; i++)
        if (is_worth_trying(k, names[i], s->for_quality, s->is_quantized)) dim_add_value(d, names[i]);
    dim_end(s);
}

static unsigned workload_use(const struct workload *w)
{
    if (workload_is_load(w)) return FOR_PREFILL | FOR_DECODE | FOR_LOAD;
    return (w->prompt > 0 ? (unsigned)FOR_PREFILL : 0) | (w->gen > 0 ? (unsigned)FOR_DECODE : 0);
}

/* While the space exceeds TUNE_CANDIDATES, drop the last dimension that does not change answers. */
static void space_shrink(struct tune_space *s)
{
    while (tune_space_size(s) > TUNE_CANDIDATES && s->dims > 1) {
        int last = s->dims - 1;
        while (last > 0 && s->dim[last].changes_answers) last--;
        if (!last) last = s->dims - 1;
        const size_t n = strlen(s->left_out);
        snprintf(s->left_out + n, sizeof s->left_out - n, "%s%s", n ? ", " : "", s->dim[last].key);
        memmove(&s->dim[last], &s->dim[last + 1], (size_t)(s->dims - last - 1) * sizeof s->dim[0]);
        s->dims--;
    }
}

void tune_space_requantize(struct tune_space *s, const struct gguf *g)
{
    static const double WORST_NMSE = 0.1;
    struct model_shape shape;
    s->requantize = true;
    for (int d = 0; d < s->dims; d++)
        if (!strcmp(s->dim[d].key, "recipe")) return; /* as asked */
    if (s->dims == TUNE_DIMS || model_shape_read(&shape, g, NULL)) return;
    const double bits = 8.0 * (double)shape.weight_bytes / (double)MAX(shape.params, 1);
    struct tune_dim *dim = dim_begin(s, "recipe", "file", true);
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i].encode && FORMATS[i].decode && FORMATS[i].max_nmse <= WORST_NMSE &&
            !FORMATS[i].needs_importance && format_bits_per_weight(&FORMATS[i]) < bits)
            dim_add_value(dim, FORMATS[i].name);
    dim_end(s);
    space_shrink(s);
}

/* True for the file's own numbers and for plain rounding: then a tensor that keeps its format keeps its
 * numbers. */
static bool is_plain_rounding(const struct config *c)
{
    const char *method = config_text(c, KNOB_METHOD);
    return !strcmp(method, KNOBS[KNOB_METHOD].otherwise) || !strcmp(method, "rtn");
}

/* Do two recipes give every tensor the same format by the same method? In small models the rows of many
 * tensors do not fit the blocks of most formats, and recipes fall back to the same one. */
static bool recipes_make_same_file(const struct gguf *g, const char *a, const char *b)
{
    struct config c[2];
    const char *recipe[2] = { a, b };
    bool is_moved = false;
    struct err ignored;
    for (int i = 0; i < 2; i++) {
        config_default(&c[i]);
        if (strcmp(recipe[i], "file") && config_set(&c[i], "recipe", recipe[i], &ignored)) return false;
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const struct format *made = recipe_tensor_format(&c[0], g, t, NULL);
        if (made != recipe_tensor_format(&c[1], g, t, NULL)) return false;
        is_moved |= made != t->format;
    }
    if (!is_moved && is_plain_rounding(&c[0]) && is_plain_rounding(&c[1])) return true;
    /* other methods choose other numbers for the same format, depending on their parameters */
    return !strcmp(config_text(&c[0], KNOB_METHOD), config_text(&c[1], KNOB_METHOD)) &&
           !strcmp(config_text(&c[0], KNOB_PARAMS), config_text(&c[1], KNOB_PARAMS));
}

static void space_drop_duplicates(struct tune_space *s, const struct gguf *g)
{
    struct tune_dim *d = s->dim;
    while (d < s->dim + s->dims && strcmp(d->key, "recipe")) d++;
    if (!g || d == s->dim + s->dims) return;
    for (int i = 1; i < d->n; i++) {
        int k = 0;
        while (k < i && !recipes_make_same_file(g, d->value[i], d->value[k])) k++;
        if (k == i) continue;
        const size_t n = strlen(s->doubles);
        snprintf(s->doubles + n, sizeof s->doubles - n, "%s%s as %s", n ? ", " : "", d->value[i],
                 d->value[k]);
        memmove(d->value[i], d->value[i + 1], (size_t)(d->n - i - 1) * sizeof d->value[0]);
        d->n--;
        i--;
    }
}

/* ---------------------------------------------------------------- a space given by the user */

static enum err_code dim_parse_value(struct tune_dim *d, const char *value, struct err *why)
{
    struct config c;
    config_default(&c);
    const bool file = !strcmp(d->key, "recipe") && !strcmp(value, "file");
    enum err_code rc = file ? ERR_OK : config_set(&c, d->key, value, why);
    if (rc) return err_prefix(why, "--space");
    if (d->n == TUNE_VALUES)
        return err_set(why, ERR_USAGE, "--space %s: more than %d values", d->key, TUNE_VALUES);
    if (strlen(value) >= sizeof d->value[0])
        return err_set(why, ERR_USAGE, "--space %s=%s: longer than %zu bytes", d->key, value,
                       sizeof d->value[0] - 1);
    dim_add_value(d, value);
    return ERR_OK;
}

static bool key_changes_answers(const char *key)
{
    for (int k = 0; k < KNOB_COUNT; k++)
        if (!strcmp(KNOBS[k].key, key)) return KNOBS[k].changes_answers;
    return true; /* "recipe" and "kv" */
}

/* The next word of a space: words are divided by commas and spaces outside of double quotes. The quotes are
 * dropped. NULL: there is none. */
static char *space_word(char **rest)
{
    char *from = *rest + strspn(*rest, ", "), *to = from, *p = from;
    bool quoted = false;
    if (!*from) return NULL;
    for (; *p && (quoted || !strchr(", ", *p)); p++) {
        if (*p == '"')
            quoted = !quoted;
        else
            *to++ = *p;
    }
    *rest = *p ? p + 1 : p;
    *to = '\0';
    return from;
}

static enum err_code space_parse_dim(struct tune_space *s, char *word, struct err *why)
{
    char *equals = strchr(word, '='), *more = NULL;
    enum err_code rc = ERR_OK;
    if (!equals || s->dims == TUNE_DIMS)
        return err_set(why, ERR_USAGE, "--space: '%.60s' is not one of at most %d KEY=VALUE|VALUE...", word,
                       TUNE_DIMS);
    *equals = '\0';
    struct tune_dim *d = &s->dim[s->dims++];
    *d = (struct tune_dim){ .changes_answers = key_changes_answers(word),
                            .unpredicted = !strcmp(word, KNOBS[KNOB_DEVICE].key) };
    snprintf(d->key, sizeof d->key, "%s", word);
    for (char *v = strtok_r(equals + 1, "|", &more); v && !rc; v = strtok_r(NULL, "|", &more))
        rc = dim_parse_value(d, v, why);
    if (!rc && !d->n) rc = err_set(why, ERR_USAGE, "--space %s=: expected at least one value", d->key);
    return rc;
}

enum err_code tune_space_parse(struct tune_space *s, const char *asked, struct err *why)
{
    char *copy = strdup(asked), *rest = copy, *word;
    enum err_code rc = copy ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the search space");
    while (!rc && (word = space_word(&rest))) rc = space_parse_dim(s, word, why);
    free(copy);
    if (!rc && tune_space_size(s) > TUNE_CANDIDATES)
        rc = err_set(why, ERR_USAGE, "--space: %lld configurations, expected at most %d",
                     (long long)tune_space_size(s), TUNE_CANDIDATES);
    return rc;
}

enum err_code tune_space(struct tune_space *out, const struct gguf *g, const struct machine *m,
                         const struct workload *w, enum goal goal, const char *asked, struct err *why)
{
    memset(out, 0, sizeof *out);
    config_default(&out->base);
    out->for_quality = goal == GOAL_QUALITY;
    if (asked) {
        const enum err_code rc = tune_space_parse(out, asked, why);
        if (!rc) space_drop_duplicates(out, g);
        return rc;
    }
    space_add_recipes(out, g);
    for (int k = 0; k < KNOB_COUNT && out->dims < TUNE_DIMS - 1; k++)
        if (is_searched((enum knob_id)k) && KNOBS[k].matters_for & workload_use(w))
            space_add_knob(out, (enum knob_id)k, m);
    space_drop_duplicates(out, g);
    space_shrink(out);
    return ERR_OK;
}

int64_t tune_space_size(const struct tune_space *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->dims; d++) n *= s->dim[d].n;
    return n;
}

void tune_space_at(int at[TUNE_DIMS], const struct tune_space *s, int64_t i)
{
    for (int d = 0; d < s->dims; d++) {
        at[d] = (int)(i % s->dim[d].n);
        i /= s->dim[d].n;
    }
}

bool tune_space_config(struct config *out, const struct tune_space *s, int64_t i)
{
    int at[TUNE_DIMS];
    struct err ignored;
    tune_space_at(at, s, i);
    *out = s->base;
    for (int d = 0; d < s->dims; d++) {
        const char *key = s->dim[d].key, *value = s->dim[d].value[at[d]];
        const bool recipe = !strcmp(key, "recipe");
        for (int k = KNOB_METHOD; recipe && k <= KNOB_TENSORS; k++) config_unset(out, (enum knob_id)k);
        const bool made = recipe && strcmp(value, "file");
        if ((!recipe || made) && config_set(out, key, value, &ignored)) return false;
        if (made && s->requantize && config_set(out, KNOBS[KNOB_REQUANTIZE].key, "on", &ignored))
            return false;
    }
    for (int k = 0; k < KNOB_COUNT; k++) /* a knob at its default is not part of the line */
        if (out->given[k] && !strcmp(config_text(out, (enum knob_id)k), KNOBS[k].otherwise))
            out->given[k] = false;
    return !config_check(out, &ignored);
}
