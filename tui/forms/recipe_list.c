/* tui/forms/recipe_list.c - the recipes a single word names, with the size each would give the model,
 * computed from the header of its file. */
#include "tui/forms/forms.h"

#include <math.h>
#include <string.h>

/* What quantizing with this config would write, or why it is impossible. */
static void recipe_plan(struct recipe_row *o, const struct gguf *g, const struct config *c)
{
    struct quantize_plan plan = { 0 };
    struct err why = { 0 };
    if (recipe_is_identity(c, g)) {
        o->identity = true;
        return;
    }
    if (quantize_plan_init(&plan, g, c, &why)) {
        snprintf(o->refusal, sizeof o->refusal, "%s", why.message);
        return;
    }
    o->file_bytes = plan.file_bytes;
    o->bits = plan.weights ? 8.0 * (double)plan.bytes / (double)plan.weights : (double)NAN;
    for (int64_t i = 0; i < plan.count; i++) o->fell_back += plan.tensors[i].fate == FATE_FELL_BACK;
    struct recipe_misfit m;
    if (recipe_misfit(&m, &plan, g, c)) {
        recipe_misfit_text(&m, o->misfit, sizeof o->misfit);
        if (m.fits) snprintf(o->fits, sizeof o->fits, "%s", m.fits->name);
    }
    quantize_plan_done(&plan);
}

/* Add a row, unless the name is no config line by itself or is listed already. */
static void recipe_add(struct recipe_list *out, const struct gguf *g, const char *name, const char *help,
                       bool is_method)
{
    struct config c;
    if (out->count == RECIPE_ROWS || config_parse(&c, name, NULL)) return;
    for (int i = 0; i < out->count; i++)
        if (!strcasecmp(out->row[i].name, name)) return;
    struct recipe_row *o = &out->row[out->count++];
    *o = (struct recipe_row){ .help = help, .is_method = is_method, .file_bytes = -1, .bits = NAN };
    snprintf(o->name, sizeof o->name, "%s", name);
    const struct params p = config_params(&c);
    o->needs_calibration = method_needs(&p) != CALIBRATION_NONE;
    if (g) recipe_plan(o, g, &c);
}

/* Add the values of a method's shorthand parameter: published mixes of formats such as q4_K_M. */
static void recipe_add_mixes(struct recipe_list *out, const struct gguf *g, const struct method *m)
{
    char word[40];
    const struct param *p = m->params;
    while (p && p->name && strcmp(p->name, m->shorthand)) p++;
    if (!p || !p->name || !p->choices) return;
    for (const char *at = p->choices; *at;) {
        const size_t n = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), at);
        recipe_add(out, g, word, "a published mix of formats", false);
        at += n;
        at += strspn(at, " ");
    }
}

void recipe_list_make(struct recipe_list *out, const struct gguf *g)
{
    enum { NAMES = 96 };
    const char *names[NAMES];
    *out = (struct recipe_list){ .count = 0 };
    const size_t formats = MIN(knob_choices(KNOB_FORMAT, names, NAMES), (size_t)NAMES);
    for (size_t i = 1; i < formats; i++) /* 0: "file" */
        if (!method_find(names[i]))
            recipe_add(out, g, names[i], "every matrix rounded to this format", false);
    for (size_t i = 0; i < method_count(); i++)
        if (method_at(i)->shorthand) recipe_add_mixes(out, g, method_at(i));
    for (size_t i = 0; i < method_count(); i++)
        recipe_add(out, g, method_at(i)->name, method_at(i)->help, true);
}

const struct recipe_row *recipe_row_find(const struct recipe_list *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (!strcasecmp(r->row[i].name, name)) return &r->row[i];
    return NULL;
}

const char *recipe_warning(const struct recipe_list *r, const char *name)
{
    const struct recipe_row *o = recipe_row_find(r, name);
    return o ? o->misfit : "";
}

const char *recipe_refusal(const struct recipe_list *r, const char *name)
{
    const struct recipe_row *o = recipe_row_find(r, name);
    return !o ? "" : o->identity ? "the file already has this format" : o->refusal;
}
