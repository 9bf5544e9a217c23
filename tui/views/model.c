/* tui/views/model.c - the tensors of the model file by name and format, the memory of a session by context
 * length and KV type, and the experts that a text used. */
#include "tui/views/parts.h"

#include <math.h>

/* ---------------------------------------------------------------- tensors */

/* The share of the file as a bar. */
static void draw_share(struct pen *p, int columns, int item, unsigned extra, const void *ctx)
{
    const struct model_summary *l = ctx;
    const double share = l->bytes > 0 ? (double)l->group[item].bytes / (double)l->bytes : NAN;
    pen_meter(p, columns, share, extra ? ROLE_TEXT | extra : (unsigned)ROLE_METER);
}

static void box_tensors(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct model_summary *l = &s->summary;
    const struct model_shape *m = &s->model;
    char title[128] = "Tensors", note[128] = "";
    if (l->groups)
        snprintf(title, sizeof title, "Tensors: %s, %sM parameters, %s, %d layer%s", m->arch,
                 figure_number((double)m->params / 1e6).text, figure_bytes(l->bytes).text, m->layers,
                 str_plural(m->layers));
    if (l->left_out)
        snprintf(note, sizeof note, "%d more tensor%s, %s", l->left_out, str_plural(l->left_out),
                 figure_bytes(l->left_out_bytes).text);
    if (snapshot_caution(s)) snprintf(note, sizeof note, "%s", snapshot_caution(s));
    const struct list_view list = { .g = g,
                                    .box = area,
                                    .title = title,
                                    .note = note[0] ? note : NULL,
                                    .s = s,
                                    .u = u,
                                    .draw = draw_share,
                                    .ctx = l };
    struct rect in = list_draw(&list);
    if (!l->groups)
        grid_wrap(g, in, s->model_error[0] ? ROLE_ERROR : ROLE_DIM,
                  s->model_error[0]  ? s->model_error
                  : s->model_path[0] ? "reading the file"
                                     : "no model is loaded: m chooses one");
}

/* ---------------------------------------------------------------- memory */

enum { CACHE_COLUMNS = 7, PER_TOKEN_COLUMNS = 11, TOTAL_COLUMNS = 10 };

/* Column i of the contexts: when not all fit, the last column is the longest one. */
static int context_at(const struct model_summary *l, int columns, int i)
{
    return i == columns - 1 ? l->contexts - 1 : i;
}

static void memory_row(struct grid *g, struct rect in, int row, const struct snapshot *s, int cache)
{
    const struct model_summary *l = &s->summary;
    const int columns = MIN(MAX((in.w - CACHE_COLUMNS - PER_TOKEN_COLUMNS) / TOTAL_COLUMNS, 0), l->contexts);
    const int64_t free = s->machine_known ? s->machine.memory_available_bytes : -1;
    char text[48];
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, CACHE_COLUMNS, cache < 0 ? ROLE_DIM : ROLE_TEXT | STYLE_BOLD,
              cache < 0 ? "kv" : l->cache[cache]);
    pen_field_right(&p, PER_TOKEN_COLUMNS, ROLE_DIM,
                    cache < 0 ? "per token" : figure_bytes(l->kv_bytes_per_token[cache]).text);
    for (int i = 0; i < columns; i++) {
        const int c = context_at(l, columns, i);
        if (cache < 0) {
            snprintf(text, sizeof text, "%lld", (long long)l->context[c]);
            pen_field_right(&p, TOTAL_COLUMNS, ROLE_DIM, text);
            continue;
        }
        const int64_t total = l->total[cache][c];
        const bool fits = total < 0 || free < 0 || total <= free;
        snprintf(text, sizeof text, "%s%s", fits ? "" : "✕ ", figure_bytes(total).text);
        pen_field_right(&p, TOTAL_COLUMNS, fits ? ROLE_TEXT : (unsigned)ROLE_WORSE, text);
    }
}

/* The longest context that fits, and what limits it. */
static void longest_put(char *buf, size_t size, const struct snapshot *s)
{
    enum { F16 = 1, Q8_0 = 2 };
    const struct model_summary *l = &s->summary;
    const int64_t free = s->machine_known ? s->machine.memory_available_bytes : -1,
                  most = model_summary_longest(l, F16, free), more = model_summary_longest(l, Q8_0, free),
                  trained = s->model.ctx_train;
    buf[0] = '\0';
    if (most < 0 || more < 0) return;
    const bool limited = trained > 0;
    if (!most && !more)
        snprintf(buf, size,
                 "No session fits into the memory that is free now: m chooses a smaller file, f makes one.");
    else if (limited && most >= trained)
        snprintf(buf, size, "Longest context: %lld tokens, as trained; memory holds %lld (kv=f16).",
                 (long long)trained, (long long)most);
    else
        snprintf(buf, size, "Longest context that fits into free memory: %lld (kv=f16), %lld (kv=q8_0).",
                 (long long)most, (long long)(limited ? MIN(more, trained) : more));
}

/* "layer 17: 12.0 effective experts, 3 never chosen: 5 (8.1 %), 77 (6.0 %)" */
static void layer_put(struct str *text, const struct stored_expert_layer *l)
{
    str_printf(text, "layer %d: %.1f effective experts", l->layer, l->use.effective);
    if (l->use.never > 0) str_printf(text, ", %d never chosen", l->use.never);
    for (int i = 0; i < EXPERTS_HOTTEST && l->use.hottest[i] >= 0; i++)
        str_printf(text, "%s%d (%.1f %%)", i ? ", " : "; hottest ", l->use.hottest[i], 100 * l->use.share[i]);
}

static void put_command(struct str *out, const char *before,
                        void (*make)(struct words *, const struct snapshot *), const struct snapshot *s)
{
    struct arena arena = { 0 };
    struct words words = { .arena = &arena };
    make(&words, s);
    str_append(out, before);
    words_print(out, &words, 0);
    arena_free(&arena);
}

/* Which experts a text used, from row `row` on. Returns the next free row. */
static int draw_experts(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const struct model_summary *l = &s->summary;
    const struct stored_experts *x = &l->choices;
    struct str text = { 0 };
    if (!l->experts || in.h <= row) return row;
    str_printf(&text, "%d of %d experts work on a token. ", l->experts_used, l->experts);
    if (x->text[0])
        str_printf(&text,
                   "%s (%s tokens): %.1f effective experts per layer on average; the least even layers:",
                   x->text, figure_number((double)x->tokens).text, x->effective_mean);
    else
        put_command(&text, "Which ones a text uses: $ ", experts_command, s);
    row += grid_wrap(g, rect_rows(in, row, in.h - row), ROLE_TEXT, str_text(&text));
    for (int i = 0; x->text[0] && i < x->layers && row < in.h; i++, row++) {
        str_clear(&text);
        layer_put(&text, &x->layer[i]);
        struct pen p = pen_at(g, in, 0, row);
        pen_field(&p, in.w, ROLE_DIM, str_text(&text));
    }
    str_free(&text);
    return row;
}

/* The command that prints this table; where it does not fit as a whole, it is left out: a part of it would be
 * another command. Returns its rows. */
static int draw_memory_command(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    struct str text = { 0 };
    const struct rect at = rect_rows(in, row, in.h - row);
    put_command(&text, "$ ", memory_command, s);
    const int rows = grid_wrap_rows(g, at.w, str_text(&text)) <= at.h
                         ? grid_wrap(g, at, ROLE_DIM, str_text(&text))
                         : 0;
    str_free(&text);
    return rows;
}

static void box_memory(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct model_summary *l = &s->summary;
    char title[96] = "Memory by context and KV type";
    if (s->machine_known && s->machine.memory_available_bytes >= 0)
        snprintf(title, sizeof title, "Memory by context and KV type; %s free (✕: needs more)",
                 figure_bytes(s->machine.memory_available_bytes).text);
    struct rect in = grid_box(g, area, title, NULL);
    if (!l->groups) return;
    for (int k = -1; k < l->caches; k++) memory_row(g, in, k + 1, s, k);
    char text[200];
    longest_put(text, sizeof text, s);
    int row = l->caches + 1;
    if (in.h > row && *text) row += grid_wrap(g, rect_rows(in, row, in.h - row), ROLE_TEXT, text);
    row = draw_experts(g, in, row, s);
    row += draw_memory_command(g, in, row, s);
    if (in.h > row)
        grid_wrap(g, rect_rows(in, row, in.h - row), ROLE_DIM,
                  "Weights as in the file, one sequence. The loader allocates by the same plan.");
}

void view_model(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[MODEL_PANES];
    layout_model(body, box);
    panes_place(g, box, MODEL_PANES, body, u);
    box_tensors(g, box[MODEL_TENSORS], s, u);
    box_memory(g, box[MODEL_MEMORY], s);
}
