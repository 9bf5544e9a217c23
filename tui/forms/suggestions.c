/* tui/forms/suggestions.c - suggestions for every type of field: keys come from KNOBS, recipes from the list
 * made of the model's header, files from the folder that is typed. Memory estimates are added where the
 * background has them. */
#include "tui/forms/forms.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/widgets/widgets.h"

/* The suggestions being collected, and what they are collected from. */
struct builder {
    struct suggestions *out;
    const struct suggestion_source *source;
    const char *text;     /* of the field */
    bool for_file;        /* the recipe is for a new file, not for an arm */
    char word[FORM_TEXT]; /* the word under the cursor */
};

/* A new suggestion; NULL when the list is full. */
static struct suggestion *suggestion_add(struct builder *m, const char *text, bool more)
{
    struct suggestions *c = m->out;
    if (c->n == SUGGESTIONS) return NULL;
    struct suggestion *one = &c->list[c->n++];
    *one = (struct suggestion){ .more = more, .bytes = -1 };
    snprintf(one->text, sizeof one->text, "%s", text);
    return one;
}

static bool text_contains(const char *text, const char *word)
{
    return !*word || strcasestr(text, word);
}

/* The word under the cursor is bounded by any of `separators`. */
static void word_bounds(struct builder *m, const char *separators)
{
    const struct form *f = m->source->form;
    int from = f->field[f->focus].cursor, to = from;
    while (from > 0 && !strchr(separators, m->text[from - 1])) from--;
    while (m->text[to] && !strchr(separators, m->text[to])) to++;
    m->out->from = from;
    m->out->to = to;
    snprintf(m->word, sizeof m->word, "%.*s", to - from, m->text + from);
}

static void word_is_whole_text(struct builder *m)
{
    m->out->from = 0;
    m->out->to = (int)strlen(m->text);
    snprintf(m->word, sizeof m->word, "%s", m->text);
}

/* ---------------------------------------------------------------- config lines */

/* Whether the line has a recipe besides the word under the cursor. */
static bool line_has_recipe(const struct builder *m)
{
    char word[FORM_TEXT];
    for (const char *p = m->text; *p;) {
        const size_t n = strcspn(p, " ,");
        const int at = (int)(p - m->text);
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (n && at != m->out->from && !strchr(word, '=') && strcmp(word, "default") != 0) return true;
        p += n + (p[n] != '\0');
    }
    return false;
}

/* Whether the word is a complete recipe: then all recipes are suggested in its place, and a comma for a
 * setting. */
static bool word_is_recipe(const struct builder *m)
{
    struct config c;
    return *m->word && !strchr(m->word, '=') &&
           (!strcmp(m->word, "default") || !config_parse(&c, m->word, NULL));
}

/* The word is complete: suggest a comma, after which settings are suggested. */
static void suggest_comma(struct builder *m, const char *word, const char *about)
{
    char text[FORM_TEXT + 1];
    snprintf(text, sizeof text, "%s,", word);
    struct suggestion *c = suggestion_add(m, text, true);
    if (c) snprintf(c->about, sizeof c->about, "%s", about);
}

static void suggest_recipes(struct builder *m)
{
    if (line_has_recipe(m)) return;
    const bool whole = word_is_recipe(m);
    if (whole && strcmp(m->word, "default") != 0) suggest_comma(m, m->word, "add a setting");
    if (whole) m->word[0] = '\0'; /* suggest all recipes */
    if (!m->for_file && str_starts("default", m->word)) {
        struct suggestion *c = suggestion_add(m, "default", false);
        if (c) snprintf(c->about, sizeof c->about, "the file as it is, without settings");
    }
    for (int i = 0; i < m->source->recipes->count; i++) {
        const struct recipe_row *o = &m->source->recipes->row[i];
        if (!text_contains(o->name, m->word)) continue;
        struct suggestion *c = suggestion_add(m, o->name, false);
        if (!c) return;
        c->bytes = o->file_bytes;
        char bits[48] = "";
        if (isfinite(o->bits) && o->fell_back)
            snprintf(bits, sizeof bits, "%.2f bits, %d tensors f16; ", o->bits, o->fell_back);
        else if (isfinite(o->bits))
            snprintf(bits, sizeof bits, "%.2f bits per weight; ", o->bits);
        snprintf(c->about, sizeof c->about, "%s%s%s", bits, o->identity ? "the format of the file" : o->help,
                 o->needs_calibration ? "; uses activation statistics" : "");
        snprintf(c->refusal, sizeof c->refusal, "%s",
                 m->for_file ? recipe_refusal(m->source->recipes, o->name) : o->refusal);
    }
}

static bool line_has_key(const struct builder *m, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = m->text; (p = strstr(p, key)); p += n)
        if ((p == m->text || strchr(" ,", p[-1])) && p[n] == '=' && p - m->text != m->out->from) return true;
    return false;
}

/* "16 to 1024 tokens; ", or the choices where they are few: "off willneed populate; ". */
static void knob_range(const struct knob *k, char *buf, size_t size)
{
    enum { NAMES = 96, SHOWN = 6 };
    const char *names[NAMES];
    const size_t n = MIN(knob_choices((enum knob_id)(k - KNOBS), names, NAMES), (size_t)NAMES);
    buf[0] = '\0';
    if (k->kind == VALUE_INT)
        snprintf(buf, size, "%lld to %lld%s%s; ", (long long)k->min, (long long)k->max, *k->unit ? " " : "",
                 k->unit);
    int used = 0;
    for (size_t i = 0; i < n && n <= SHOWN; i++)
        used += snprintf(buf + used, size - (size_t)used, "%s%s%s", i ? " " : "", names[i],
                         i + 1 == n ? "; " : "");
}

/* The FOR_* bits of the workload that the form names; of anything but training where it names none. */
static unsigned form_work(const struct builder *m)
{
    struct workload w;
    const struct form *f = m->source->form;
    if (f->kind != FORM_AB || workload_parse(&w, f->field[AB_WORKLOAD].text, NULL)) return FOR_ALL | FOR_LOAD;
    return workload_work(&w);
}

static void suggest_key(struct builder *m, const struct knob *k)
{
    char text[64], range[160];
    snprintf(text, sizeof text, "%s=", k->key);
    if (!text_contains(k->key, m->word) || line_has_key(m, k->key)) return;
    struct suggestion *c = suggestion_add(m, text, true);
    if (!c) return;
    knob_range(k, range, sizeof range);
    snprintf(c->about, sizeof c->about, "%s%s", range, k->help);
    if (k->matters_for & form_work(m)) return;
    if (form_work(m) == FOR_TRAIN)
        snprintf(c->refusal, sizeof c->refusal, "has no effect while training");
    else if (k->matters_for == FOR_TRAIN)
        snprintf(c->refusal, sizeof c->refusal, "only for workloads that train (train20)");
    else
        snprintf(c->refusal, sizeof c->refusal, "only for workloads with requests (load:rate=4)");
}

static bool knob_of_recipe(enum knob_id id)
{
    return id == KNOB_METHOD || id == KNOB_FORMAT || id == KNOB_PARAMS || id == KNOB_CALIB ||
           id == KNOB_TENSORS;
}

/* Parameters of the method in the line. */
static void suggest_parameters(struct builder *m)
{
    struct config c;
    char line[FORM_TEXT], text[64];
    int end = m->out->from;
    while (end > 0 && strchr(" ,", m->text[end - 1])) end--;
    snprintf(line, sizeof line, "%.*s", end, m->text);
    if (config_parse(&c, line, NULL)) return;
    const struct params p = config_params(&c);
    for (const struct param *row = p.method ? p.method->params : NULL; row && row->name; row++) {
        if (!text_contains(row->name, m->word) || line_has_key(m, row->name)) continue;
        snprintf(text, sizeof text, "%s=", row->name);
        struct suggestion *one = suggestion_add(m, text, true);
        if (one)
            snprintf(one->about, sizeof one->about, "of %s: %s%s%s (default %s)", p.method->name,
                     row->choices ? row->choices : "", row->choices ? "; " : "", row->help, row->otherwise);
    }
}

static void suggest_words(struct builder *m)
{
    const bool alone = word_is_recipe(m) && strcmp(m->word, "default") != 0;
    suggest_recipes(m);
    if (alone) return; /* settings come after a comma */
    suggest_parameters(m);
    for (int i = 0; i < KNOB_COUNT && !m->for_file; i++)
        if (!knob_of_recipe((enum knob_id)i) && i != KNOB_MODEL) suggest_key(m, &KNOBS[i]);
    for (int i = 0; i < KNOB_COUNT; i++)
        if (knob_of_recipe((enum knob_id)i) || (i == KNOB_MODEL && !m->for_file)) suggest_key(m, &KNOBS[i]);
}

/* ---------------------------------------------------------------- values of a key */

static void suggest_value(struct builder *m, const char *value, const char *typed, const char *about)
{
    if (!str_starts(value, typed)) return;
    struct suggestion *c = suggestion_add(m, value, false);
    if (c) snprintf(c->about, sizeof c->about, "%s", about);
}

/* The default, powers of two, and the largest useful value on this machine or for this model. */
static void suggest_numbers(struct builder *m, const struct knob *k, const char *typed)
{
    enum { MOST = 12 };
    const int cores = m->source->cores;
    char text[32];
    suggest_value(m, k->otherwise, typed, "the default");
    const int64_t top = k == &KNOBS[KNOB_THREADS] && cores > 0          ? cores
                        : k == &KNOBS[KNOB_CTX] && m->source->ctx_train ? m->source->ctx_train
                                                                        : k->max;
    const int64_t from = MAX(k->min, k == &KNOBS[KNOB_CTX] || k == &KNOBS[KNOB_BATCH] ? 128 : 1);
    int n = 0;
    for (int64_t v = from; v <= top && n < MOST; v *= 2, n++) {
        snprintf(text, sizeof text, "%lld", (long long)v);
        if (strcmp(text, k->otherwise) != 0)
            suggest_value(m, text, typed,
                          v == top && k == &KNOBS[KNOB_THREADS] ? "all cores of this machine" : "");
    }
    snprintf(text, sizeof text, "%lld", (long long)top);
    if (n < MOST && (top & (top - 1)) && top < k->max)
        suggest_value(m, text, typed,
                      k == &KNOBS[KNOB_THREADS] ? "all cores of this machine"
                                                : "the context length the model was trained for");
}

/* Refuse an ISA level that this machine lacks. */
static void refuse_missing_isa(struct suggestion *c)
{
    uint32_t usable;
    if (isa_usable(&usable, NULL)) return;
    for (size_t i = 0; i < ISA_LEVEL_COUNT; i++)
        if (!strcmp(ISA_LEVELS[i].name, c->text) && (ISA_LEVELS[i].bits & ~usable))
            snprintf(c->refusal, sizeof c->refusal, "this machine does not have it");
}

static void suggest_values(struct builder *m, const struct knob *k, const char *typed)
{
    enum { NAMES = 96 };
    const char *names[NAMES];
    if (k->kind == VALUE_INT) {
        suggest_numbers(m, k, typed);
        return;
    }
    const size_t n = MIN(knob_choices((enum knob_id)(k - KNOBS), names, NAMES), (size_t)NAMES);
    for (size_t i = 0; i < n; i++) {
        if (!text_contains(names[i], typed)) continue;
        struct suggestion *c = suggestion_add(m, names[i], false);
        if (!c) return;
        if (!strcmp(names[i], k->otherwise)) snprintf(c->about, sizeof c->about, "the default");
        if (k == &KNOBS[KNOB_ISA]) refuse_missing_isa(c);
    }
}

/* Values of a method parameter such as `bits=`, for the method named in the line. */
static void suggest_parameter_values(struct builder *m, const char *key, const char *typed)
{
    const char *name = param_name(key);
    for (size_t i = 0; name && i < method_count(); i++) {
        const struct param *p = method_at(i)->params;
        while (p && p->name && strcmp(p->name, name)) p++;
        if (!p || !p->name || !strcasestr(m->text, method_at(i)->name)) continue;
        char word[40];
        const char *list = p->kind == VALUE_BOOL ? "true false" : p->choices ? p->choices : p->otherwise;
        for (const char *at = list; *at;) {
            const size_t n = strcspn(at, " ");
            snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), at);
            suggest_value(m, word, typed, !strcmp(word, p->otherwise) ? "the default" : "");
            at += n;
            at += strspn(at, " ");
        }
        return;
    }
}

/* Parse the line that each suggestion would make; a parse error becomes its refusal. */
static void refuse_invalid_lines(struct builder *m)
{
    for (int i = 0; i < m->out->n; i++) {
        struct suggestion *c = &m->out->list[i];
        char line[2 * FORM_TEXT];
        struct config config;
        struct err why = { 0 };
        if (c->more || c->refusal[0] || !strcmp(c->text, "default")) continue;
        snprintf(line, sizeof line, "%.*s%s%s", m->out->from, m->text, c->text, m->text + m->out->to);
        if (config_parse(&config, line, &why)) snprintf(c->refusal, sizeof c->refusal, "%s", why.message);
    }
}

/* Memory and refusals from the loader, if the estimates are for exactly this line and cursor. */
static void suggestions_add_estimates(struct builder *m)
{
    const struct line_estimates *j = m->source->estimates;
    const struct form *f = m->source->form;
    if (strcmp(j->text, m->text) != 0 || j->cursor != f->field[f->focus].cursor) return;
    for (int i = 0; i < m->out->n; i++)
        for (int k = 0; k < j->count; k++) {
            struct suggestion *c = &m->out->list[i];
            if (strcmp(c->text, j->variant[k].text) != 0) continue;
            c->bytes = j->variant[k].total_bytes;
            if (!c->refusal[0]) memcpy(c->refusal, j->variant[k].refusal, sizeof c->refusal);
            break;
        }
}

/* What is refused comes last: on a file that is quantized already that is every recipe, and what runs is what
 * a person looks for. The order is kept otherwise. */
static void put_refused_last(struct suggestions *c)
{
    int n = 0;
    struct suggestion *refused = malloc(sizeof c->list);
    if (!refused) return; /* only the order */
    for (int i = 0, at = 0; i < c->n; i++) {
        if (c->list[i].refusal[0])
            refused[n++] = c->list[i];
        else if (at++ != i)
            c->list[at - 1] = c->list[i];
    }
    memcpy(c->list + c->n - n, refused, sizeof *refused * (size_t)n);
    free(refused);
}

static void suggest_config(struct builder *m)
{
    char key[64];
    word_bounds(m, " ,");
    const char *equals = strchr(m->word, '=');
    if (!equals) {
        suggest_words(m);
    } else {
        const size_t n = MIN((size_t)(equals - m->word), sizeof key - 1);
        snprintf(key, sizeof key, "%.*s", (int)n, m->word);
        m->out->from += (int)(equals - m->word) + 1;
        const struct knob *k = NULL;
        for (int i = 0; i < KNOB_COUNT; i++)
            if (!strcasecmp(KNOBS[i].key, !strcasecmp(key, "kv") ? "ctk" : key)) k = &KNOBS[i];
        const bool whole = equals[1] && !m->source->form->field[m->source->form->focus].error[0];
        if (whole) suggest_comma(m, equals + 1, "add another setting");
        if (k)
            suggest_values(m, k, whole ? "" : equals + 1);
        else
            suggest_parameter_values(m, key, whole ? "" : equals + 1);
    }
    refuse_invalid_lines(m);
    if (!m->for_file) suggestions_add_estimates(m);
    put_refused_last(m->out);
}

/* ---------------------------------------------------------------- files */

bool suggestions_folder(const struct form *f, char *path, size_t size)
{
    const enum form_ask ask = f->kind == FORM_CLOSED ? ASK_TEXT : form_asks(f);
    const char *text = f->field[f->focus].text;
    char whole[4096];
    if (ask != ASK_MODEL && ask != ASK_FILE && ask != ASK_SCORED && ask != ASK_QUALITY) return false;
    if (ask == ASK_QUALITY && !strchr(text, '/')) return false;
    form_path(text, whole, sizeof whole);
    const char *slash = strrchr(whole, '/');
    if (slash)
        snprintf(path, size, "%.*s", (int)(slash - whole + 1), whole);
    else
        snprintf(path, size, "%s", ask == ASK_MODEL && !*text ? "" : "./");
    return true;
}

static void suggest_file(struct builder *m, const struct file_entry *e, bool models)
{
    char text[sizeof m->out->list[0].text];
    const bool gguf = e->kind == FILE_MODEL || e->kind == FILE_NO_MODEL;
    if (e->kind != FILE_FOLDER && models != (gguf || e->kind == FILE_CALIBRATION) &&
        e->kind != FILE_CALIBRATION)
        return;
    if (!text_contains(e->name, m->word)) return;
    snprintf(text, sizeof text, "%s%s", e->name,
             e->kind == FILE_FOLDER && !str_ends(e->name, "/") ? "/" : "");
    struct suggestion *c = suggestion_add(m, text, e->kind == FILE_FOLDER);
    if (!c) return;
    c->file = e;
    c->bytes = e->bytes;
    if (models) snprintf(c->refusal, sizeof c->refusal, "%s", e->trouble);
}

static void suggest_files(struct builder *m, bool models)
{
    char path[FORM_TEXT + 8];
    const struct folder *folder = m->source->folder;
    const struct form *f = m->source->form;
    m->out->files = true;
    word_is_whole_text(m);
    const char *slash = strrchr(m->text, '/');
    const bool places = !folder->path[0];
    if (slash) {
        m->out->from = (int)(slash + 1 - m->text);
        snprintf(m->word, sizeof m->word, "%s", slash + 1);
    }
    if (!suggestions_folder(f, path, sizeof path) || !folder->read || strcmp(path, folder->path) != 0) return;
    if (places) m->out->from = 0;
    for (int i = 0; i < folder->count; i++) suggest_file(m, &folder->entry[i], models);
}

/* ---------------------------------------------------------------- short lists */

const struct word_row WORKLOADS[] = {
    { "tg64", "generate 64 tokens (decode)" },
    { "tg128", "generate 128 tokens" },
    { "pp512", "process a prompt of 512 tokens (prefill)" },
    { "pp128+tg64", "a prompt, then generation" },
    { "pp512+tg128@d1024", "prompt and generation with 1024 tokens in the KV cache already" },
    { "tg64@b8", "generate in 8 sequences at once" },
    { "tg16", "a very short run" },
    { "train20", "20 training steps from random weights" },
    { "load:rate=4,requests=100,in=128,out=64", "requests at random times, 4 a second" },
    { "load:concurrency=8,requests=100,in=128,out=64", "8 clients that wait for their answers" },
    { NULL },
};
static const struct word_row BUDGETS[] = { { "1m", "a first impression" },
                                           { "", "usual" },
                                           { "10m", "for small differences" },
                                           { "30m", "for differences close to the noise" },
                                           { NULL } };
/* Of a search: fewer minutes time fewer candidates. */
static const struct word_row SEARCH_BUDGETS[] = { { "2m",
                                                    "a first impression: few candidates, often no proof" },
                                                  { "5m", "a small model on a quiet machine" },
                                                  { "10m", "usual" },
                                                  { "30m", "large models, or candidates that hardly differ" },
                                                  { NULL } };
static const struct word_row MARGINS[] = { { "0.5%", "for regressions" },
                                           { "", "usual" },
                                           { "3%", "what a user might notice" },
                                           { "5%", "coarse, with an earlier answer" },
                                           { NULL } };
static const struct word_row QUALITIES[] = { { "no", "speed and memory only" },
                                             { "yes", "KL divergence from A on this model's text" },
                                             { NULL } };
static const struct word_row GOALS_HERE[] = { { "balanced", "speed and memory, within the quality limit" },
                                              { "speed", "most tokens per second" },
                                              { "quality", "predictions closest to the original model" },
                                              { "memory", "least memory" },
                                              { "energy", "fewest joules per token" },
                                              { NULL } };
static const struct word_row THENS[] = { { "use", "runs of this model use it from now on; u undoes that" },
                                         { "compare", "an A/B of it against what is in use, first" },
                                         { NULL } };
static const struct word_row FILTERS[] = { { "better", "verdicts" },
                                           { "worse", "" },
                                           { "equivalent", "" },
                                           { "ab", "kinds of run" },
                                           { "bench", "" },
                                           { "eval", "" },
                                           { "stopped", "can be resumed" },
                                           { "interrupted", "killed; an A/B can be resumed" },
                                           { "!failed", "all but failed runs" },
                                           { NULL } };

static const struct word_row *suggest_word_rows(const struct form *f)
{
    const enum form_ask ask = form_asks(f);
    switch (ask) {
    case ASK_WORKLOAD: return WORKLOADS;
    case ASK_BUDGET: return f->kind == FORM_TUNE ? SEARCH_BUDGETS : BUDGETS;
    case ASK_MARGIN: return MARGINS;
    case ASK_QUALITY: return QUALITIES;
    case ASK_GOAL: return GOALS_HERE;
    case ASK_FILTER: return FILTERS;
    case ASK_THEN: return THENS;
    default: return NULL;
    }
}

/* All rows when the text is one of them, else the rows that contain it. */
static void suggest_rows(struct builder *m, const struct word_row *rows)
{
    word_is_whole_text(m);
    bool whole = false;
    char usual[FORM_USUAL];
    const char *otherwise = form_usual(form_asks(m->source->form), usual); /* the text of a row without one */
    for (const struct word_row *r = rows; r->text; r++)
        whole |= !strcmp(*r->text ? r->text : otherwise, m->word);
    for (const struct word_row *r = rows; r->text; r++) {
        const char *text = *r->text ? r->text : otherwise;
        if (!whole && !text_contains(text, m->word)) continue;
        struct suggestion *c = suggestion_add(m, text, false);
        if (c) snprintf(c->about, sizeof c->about, "%s", r->about);
    }
}

static void suggest_baselines(struct builder *m)
{
    word_is_whole_text(m);
    for (int i = 0; i < m->source->baselines->count; i++) {
        struct suggestion *c = suggestion_add(m, m->source->baselines->row[i].name, false);
        if (c)
            snprintf(c->about, sizeof c->about, "is %s; would be replaced",
                     m->source->baselines->row[i].about);
    }
}

static void suggest_commands(struct builder *m)
{
    word_is_whole_text(m);
    if (strchr(m->text, ' ')) return; /* arguments are not suggested */
    for (int i = 0; i < m->source->command_count; i++) {
        const struct palette_command *p = &m->source->commands[i];
        char text[64];
        if (!text_contains(p->name, m->word)) continue;
        snprintf(text, sizeof text, "%s ", p->name);
        struct suggestion *c = suggestion_add(m, text, true);
        if (c) snprintf(c->about, sizeof c->about, "%s", p->help);
    }
}

void suggestions_make(struct suggestions *out, const struct suggestion_source *source)
{
    const struct form *f = source->form;
    out->n = out->from = out->to = 0;
    out->files = false;
    if (f->kind == FORM_CLOSED) return;
    const enum form_ask ask = form_asks(f);
    const struct word_row *rows = suggest_word_rows(f);
    struct builder m = {
        .out = out, .source = source, .text = f->field[f->focus].text, .for_file = ask == ASK_RECIPE
    };
    switch (ask) {
    case ASK_CONFIG:
    case ASK_MORE:
    case ASK_RECIPE: suggest_config(&m); break;
    case ASK_MODEL: suggest_files(&m, true); break;
    case ASK_FILE:
    case ASK_SCORED: suggest_files(&m, false); break;
    case ASK_COMMAND: suggest_commands(&m); break;
    case ASK_NAME: suggest_baselines(&m); break;
    default:
        if (ask == ASK_QUALITY && strchr(m.text, '/'))
            suggest_files(&m, false);
        else if (rows)
            suggest_rows(&m, rows);
    }
}
