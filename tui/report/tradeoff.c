/* tradeoff.c - the report of `qdyno tune`, from its stored document: speed against loss and memory.
 * Candidates that another one beats are grey; the bend of the curve is marked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "tui/report/content.h"

enum { HUE_FRONT = 0, HUE_KNEE = 1 };

/* "q4_0.gguf, threads=2": the file's name in place of its path. */
static const char *candidate_name(struct report *r, const json_t *row)
{
    struct config c;
    char rest[CONFIG_LINE];
    const char *line = json_get_str(row, "config", "");
    if (config_parse(&c, line, NULL) || !*config_text(&c, KNOB_MODEL)) return content_plain(r, line);
    const char *file = content_plain(r, path_file_name(config_text(&c, KNOB_MODEL)));
    config_unset(&c, KNOB_MODEL);
    config_line(&c, rest, sizeof rest);
    return strcmp(rest, "default") ? content_printf(r, "%s, %s", file, content_plain(r, rest)) : file;
}

struct axis {
    const char *title, *key, *lower, *upper;
    enum plot_unit unit;
};
static const struct axis LOSS = { "KL divergence, nats (down is better)", "kld", "kld_lower", "kld_upper",
                                  UNIT_NUMBER },
                         MEMORY = { "memory (down is better)", "bytes", NULL, NULL, UNIT_BYTES };

static struct plot_point point_of(struct report *r, const json_t *row, const struct axis *y)
{
    struct plot_point p = PLOT_NOWHERE;
    p.x = json_get_num(row, "tok_s", NAN);
    p.x_low = json_get_num(row, "tok_s_lower", NAN);
    p.x_high = json_get_num(row, "tok_s_upper", NAN);
    p.y = json_get_num(row, y->key, NAN);
    if (y->unit == UNIT_BYTES && !(p.y > 0)) p.y = NAN;
    if (y->lower) p.y_low = json_get_num(row, y->lower, NAN);
    if (y->upper) p.y_high = json_get_num(row, y->upper, NAN);
    const bool knee = json_get_bool(row, "knee", false);
    p.label = content_printf(r, "%.40s%s", candidate_name(r, row), knee ? " (knee)" : "");
    return p;
}

static bool is_of(const json_t *row, int hue)
{
    const bool front = json_get_bool(row, "front", false), knee = json_get_bool(row, "knee", false);
    return hue == (knee ? HUE_KNEE : front ? HUE_FRONT : HUE_MUTED);
}

/* The candidates of one hue: intervals below, dots above. */
static void points_draw(struct plot *p, struct report *r, const json_t *tried, const struct axis *y, int hue)
{
    static const char *const NAMES[] = { [HUE_FRONT] = "beaten by none", [HUE_KNEE] = "knee" };
    int n = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(tried, i, row) n += is_of(row, hue);
    if (!n) return;
    struct plot_layer *bars = plot_layer(p, &r->arena, MARK_INTERVAL, hue, n),
                      *dots = plot_layer(p, &r->arena, MARK_DOT, hue, n);
    if (!bars || !dots) return;
    if (hue == HUE_MUTED)
        dots->name = "beaten in speed, loss and memory, or not known";
    else
        dots->name = NAMES[hue];
    bars->soft = hue == HUE_MUTED;
    n = 0;
    json_array_foreach(tried, i, row)
    {
        if (!is_of(row, hue)) continue;
        bars->point[n] = dots->point[n] = point_of(r, row, y);
        dots->point[n].label = NULL; /* the bar's label is enough */
        n++;
    }
}

static int known(const json_t *tried, const struct axis *y)
{
    int n = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(tried, i, row)
        n += json_get_num(row, "tok_s", NAN) > 0 && isfinite(json_get_num(row, y->key, NAN));
    return n;
}

static struct plot *plot_add(struct figure_plots *f, struct report *r, const json_t *tried, const char *title,
                             const struct axis *y)
{
    struct plot *p = known(tried, y) > 1 ? figure_plot(f, r) : NULL;
    if (!p) return NULL;
    p->title = title;
    p->height = 220;
    p->x = (struct plot_axis){ .title = "tokens/s (right is better)", .low = NAN, .high = NAN };
    p->y = (struct plot_axis){ .title = y->title, .unit = y->unit, .low = NAN, .high = NAN };
    points_draw(p, r, tried, y, HUE_MUTED);
    points_draw(p, r, tried, y, HUE_FRONT);
    points_draw(p, r, tried, y, HUE_KNEE);
    return p;
}

void report_tradeoff_text(struct str *out, const json_t *tried, int columns, int rows)
{
    struct report *r = calloc(1, sizeof *r);
    struct figure_plots f = { 0 };
    struct plot *p = r ? plot_add(&f, r, tried, NULL, &LOSS) : NULL;
    if (p) plot_text(out, p, columns, rows);
    report_free(r);
}

static const char *number(struct report *r, const json_t *row, const char *key, const char *lower,
                          const char *upper)
{
    const double v = json_get_num(row, key, NAN), a = json_get_num(row, lower, NAN),
                 b = json_get_num(row, upper, NAN);
    if (isnan(v)) return "unknown";
    return a < b ? content_printf(r, "%.4g [%.4g, %.4g]", v, a, b) : content_printf(r, "%.4g", v);
}

static void candidates_add(struct report *r, const json_t *tried)
{
    static const char *const HEAD[] = {
        "candidate", "bits per weight", "tokens/s [95 %]", "memory", "KL divergence, nats [95 %]", ""
    };
    size_t i;
    const json_t *row;
    struct content_table *t = content_table(r, NULL, COUNT_OF(HEAD));
    for (size_t k = 0; k < COUNT_OF(HEAD); k++) {
        t->head[k] = HEAD[k];
        t->right[k] = k > 0 && k < 5;
    }
    json_array_foreach(tried, i, row)
    {
        struct content_row *to = content_row(r, t);
        char bytes[16];
        const int64_t memory = json_get_int(row, "bytes", -1);
        to->cell[0] = candidate_name(r, row);
        to->cell[1] = number(r, row, "bits_per_weight", "", "");
        to->cell[2] = number(r, row, "tok_s", "tok_s_lower", "tok_s_upper");
        to->cell[3] = memory > 0 ? content_printf(r, "%s", str_from_bytes(memory, bytes, sizeof bytes))
                                 : "unknown";
        to->cell[4] = number(r, row, "kld", "kld_lower", "kld_upper");
        to->cell[5] = json_get_bool(row, "knee", false)    ? "knee"
                      : json_get_bool(row, "front", false) ? "beaten by none"
                                                           : "";
    }
}

static void facts_add(struct report *r, const json_t *row, int64_t run_id)
{
    static const struct {
        const char *key, *title;
    } FACTS[] = { { "reference", "losses against" },
                  { "machine", "machine" },
                  { "goal", "goal" },
                  { "target", "target" },
                  { "target_answer", "answer" },
                  { "winner", "winner" },
                  { "because", "reason" },
                  { "text_label", "text of the losses" } };
    struct content_table *t = content_table(r, NULL, 2);
    content_fact(r, t, "run", content_printf(r, "%lld", (long long)run_id));
    for (size_t i = 0; i < COUNT_OF(FACTS); i++) {
        const char *text = json_get_str(row, FACTS[i].key, "");
        if (*text) content_fact(r, t, FACTS[i].title, content_plain(r, text));
    }
}

enum err_code report_tradeoff(struct report **out, const json_t *document, int64_t run_id, struct err *why)
{
    const json_t *tried = json_object_get(document, "tried"), *row = document;
    if (!tried) tried = json_object_get(json_object_get(document, "extra"), "tried");
    if (json_array_size(json_object_get(document, "rows")))
        row = json_array_get(json_object_get(document, "rows"), 0);
    struct figure_plots f = {
        .title = "Speed against loss and memory",
        .reading = "Grey: another candidate is at least as good in speed, loss and memory "
                   "together. The knee is the bend of the curve: beyond it, speed costs more "
                   "loss. Bars are 95 % intervals, where they are known."
    };
    *out = NULL;
    if (!json_array_size(tried))
        return err_set(why, ERR_USAGE, "run %lld lists no candidates: the search did not finish",
                       (long long)run_id);
    struct report *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for the report");
    const char *model = json_get_str(row, "reference", "");
    r->title = content_printf(
        r, "Speed against loss: `%s`",
        content_plain(r, path_file_name(*model ? model : json_get_str(row, "model", ""))));
    const char *answer = json_get_str(row, "target_answer", "");
    r->subtitle = content_plain(r, *answer ? answer : json_get_str(row, "because", ""));
    r->mark = content_plain(r, json_get_str(row, "target_outcome", "search"));
    r->footer = "Losses are mean KL divergences from the reference, on the same windows of the same text.";
    r->verdict = VERDICT_INCONCLUSIVE;
    content_add(r, CONTENT_SECTION, "What was searched");
    facts_add(r, row, run_id);
    content_add(r, CONTENT_SECTION, "The trade-off");
    struct plot *loss = plot_add(&f, r, tried, "Speed and loss", &LOSS);
    plot_add(&f, r, tried, "Speed and memory", &MEMORY);
    content_figure(r, &f);
    r->card_plot = loss;
    content_add(r, CONTENT_SECTION, "Candidates");
    candidates_add(r, tried);
    if (r->failed) {
        report_free(r);
        return err_set(why, ERR_NOMEM, "out of memory for the report of run %lld", (long long)run_id);
    }
    *out = r;
    return ERR_OK;
}
