/* advisor/recipe/search.c - searches a mixed recipe and checks it against the uniform ones (recipe.h). */
#include "advisor/recipe/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/quality/quality.h"
#include "advisor/run/run.h"
#include "engine/eval/eval.h"
#include "engine/quant/quant.h"

enum { CTX = 256, WINDOWS = 12, CHECK_WINDOWS = 32, WINDOWS_MAX = 4096, TRIED = 3 };
enum { ROUNDS = 4 };      /* of the search for a KL divergence, at most */
enum { CHECK_LEAST = 8 }; /* windows of the check, where the budget has no time for the usual number */
enum {
    CHECKED = 2 + TRIED
}; /* how often each window of the check is evaluated: model, recipe, uniform ones */

struct search {
    const struct recipe_search *o;
    struct recipe_found *out;
    char *text, *check;             /* owned */
    struct text_part on, for_check; /* of them */
    struct sensitivities s;
    struct item *items;
    struct assigned *assigned;
    struct model *reference;
    struct logit_cache logit_cache; /* hash of the text that was read last */
    int ctx;
    int64_t most; /* bytes of weights that the target allows; 0: as many as the mixed recipe takes */
    const char *doing;
    int64_t begun_ns, checked; /* checked: windows of the check */
    double open_s, window_s;   /* of the last comparison: making the model; one window of one model */
    double window[2][WINDOWS_MAX];
};

/* ---------------------------------------------------------------- the texts */

static void tensor_part(struct text_part *p, const char *text, size_t n)
{
    char hex[HASH_HEX];
    hash_bytes(text, n, hex);
    *p = (struct text_part){ .text = text, .n = n };
    snprintf(p->name, sizeof p->name, "%.12s", hex);
}

static enum err_code text_read(char **text, size_t *n, const char *file, const char *bundled, struct err *why)
{
    char *path = NULL;
    enum err_code rc = file ? ERR_OK : file_share(&path, bundled, why);
    if (!rc) rc = file_read(text, n, file ? file : path, RECIPE_TEXT_LIMIT, why);
    free(path);
    return rc;
}

/* With a text of the user, its first half is for the search and its second half for the check. */
static enum err_code texts_read(struct search *x, struct err *why)
{
    size_t n = 0, m = 0;
    const struct recipe_search *o = x->o;
    enum err_code rc = text_read(&x->text, &n, o->text_file, CALIBRATION_TEXT, why);
    const bool halves = o->text_file && !o->check_file;
    char usual[4096];
    if (!rc && !halves && !o->check_file)
        rc = quality_text_path(usual, sizeof usual, o->db, o->model_path, why);
    if (!rc && !halves) rc = text_read(&x->check, &m, o->check_file ? o->check_file : usual, EVAL_TEXT, why);
    if (rc) return rc;
    size_t half = n / 2;
    while (halves && half < n && x->text[half] != '\n' && x->text[half] != ' ') half++;
    tensor_part(&x->on, x->text, halves ? half : n);
    tensor_part(&x->for_check, halves ? x->text + half : x->check, halves ? n - half : m);
    return ERR_OK;
}

/* ---------------------------------------------------------------- targets */

/* Bytes of the searched tensors in a memory estimate. */
static int64_t chosen_bytes(const struct search *x, const struct quantize_plan *p)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < p->count; i++)
        for (int t = 0; t < x->s.n; t++)
            if (p->tensors[i].source == x->s.tensor[t].source) bytes += p->tensors[i].bytes;
    return bytes;
}

/* Bytes that the searched tensors may take together. */
static enum err_code byte_limit(int64_t *limit, struct search *x, struct err *why)
{
    struct quantize_plan p = { 0 };
    struct config c;
    enum err_code rc = config_parse(&c, x->o->like ? x->o->like : x->s.format[0]->name, why);
    if (!rc) rc = quantize_plan_init(&p, x->s.source, &c, why);
    const int64_t chosen = rc ? 0 : chosen_bytes(x, &p);
    *limit = x->o->like ? chosen : x->o->bytes - (p.file_bytes - chosen);
    x->most = p.bytes - chosen + *limit; /* the size up to which uniform recipes compete */
    quantize_plan_done(&p);
    if (!rc && *limit <= 0)
        rc = err_set(why, ERR_FIT, "a file of %" PRId64 " bytes is too small for the weights here",
                     x->o->bytes);
    return rc;
}

/* ---------------------------------------------------------------- the config line */

static void tensors_assign(struct search *x)
{
    for (int t = 0; t < x->s.n; t++) {
        const struct gguf_tensor *source = x->s.tensor[t].source;
        const struct format *f = x->s.format[x->items[t].taken];
        x->assigned[t] = (struct assigned){ source->name, f ? f : sensitive_float(source) };
    }
}

static int64_t taken_bytes(const struct search *x)
{
    int64_t bytes = 0;
    for (int t = 0; t < x->s.n; t++) bytes += x->items[t].choice[x->items[t].taken].bytes;
    return bytes;
}

/* The choice of most tensors with the same part. */
static int part_majority(const struct search *x, int of)
{
    int votes[ALLOCATE_CHOICES] = { 0 }, best = x->items[of].taken, layer;
    char part[64], other[64];
    recipe_rules_part(x->assigned[of].tensor, part, &layer);
    for (int t = 0; t < x->s.n; t++) {
        recipe_rules_part(x->assigned[t].tensor, other, &layer);
        if (!strcmp(part, other)) votes[x->items[t].taken]++;
    }
    for (int k = 0; k < x->s.formats; k++)
        if (votes[k] > votes[best]) best = k;
    return best;
}

/* Shorten the rules: give one tensor the choice of most of its part, where that costs least and stays within
 * the limit; otherwise a smaller choice. False: no change is left. */
static bool rules_simplify(struct search *x, int64_t limit)
{
    int best = -1, to = -1;
    double least = INFINITY;
    const int64_t now = taken_bytes(x);
    for (int t = 0; t < x->s.n; t++) {
        const int k = part_majority(x, t);
        const struct cost_choice *c = &x->items[t].choice[k], *from = &x->items[t].choice[x->items[t].taken];
        if (k == x->items[t].taken || !isfinite(c->cost)) continue;
        if (now + c->bytes - from->bytes > limit && c->bytes >= from->bytes) continue;
        if (c->cost - from->cost >= least) continue;
        least = c->cost - from->cost;
        best = t;
        to = k;
    }
    if (best < 0) return false;
    x->items[best].taken = to;
    return true;
}

static enum err_code recipe_write_line(struct search *x, int64_t limit, char line[RECIPE_LINE],
                                       struct err *why)
{
    for (;;) {
        tensors_assign(x);
        if (recipe_rules_line(x->assigned, x->s.n, line)) return ERR_OK;
        if (!rules_simplify(x, limit))
            return err_set(why, ERR_FIT, "the recipe needs more rules than a config line can hold (%d bytes)",
                           CONFIG_VALUE - 1);
    }
}

static double kld_sum(const struct search *x)
{
    double sum = 0;
    for (int t = 0; t < x->s.n; t++) sum += x->items[t].choice[x->items[t].taken].cost;
    return sum;
}

/* ---------------------------------------------------------------- measuring recipes */

static bool eval_progress(void *arg, int64_t chunk, int64_t of, double nll)
{
    const struct search *x = arg;
    (void)nll;
    return !x->o->progress || x->o->progress(x->o->progress_ctx, x->doing, (int)chunk, (int)of);
}

static bool quantize_progress(void *arg, const char *phase, double done)
{
    const struct search *x = arg;
    return !x->o->progress || x->o->progress(x->o->progress_ctx, phase, (int)(100 * done), 100);
}

/* A recipe with the runtime settings. */
static struct config recipe_config(const struct search *x, const struct config *recipe)
{
    struct config c = *recipe;
    for (int k = 0; k < KNOB_COUNT; k++)
        if (x->o->config->given[k] && !c.given[k]) {
            c.value[k] = x->o->config->value[k];
            c.given[k] = true;
        }
    return c;
}

static enum err_code recipe_compare(struct divergence *d, double *window, struct search *x,
                                    const struct recipe_figures *f, const struct text_part *text,
                                    int64_t windows, struct err *why)
{
    const struct config c = recipe_config(x, &f->config);
    struct model *m = NULL;
    struct model_options open = { .path = x->o->model_path,
                                  .config = &c,
                                  .ctx = x->ctx,
                                  .sequences = 1,
                                  .log = x->o->log,
                                  .progress = quantize_progress,
                                  .progress_arg = x };
    const struct eval_request r = { .text = text->text,
                                    .n = text->n,
                                    .ctx = x->ctx,
                                    .max_chunks = windows,
                                    .progress = eval_progress,
                                    .arg = x,
                                    .window_kld = window,
                                    .window_room = window ? WINDOWS_MAX : 0,
                                    .logit_cache = &x->logit_cache };
    const int64_t begun = clock_ns();
    x->doing = f->line;
    enum err_code rc = shapes_model_open(&m, &open, why);
    const int64_t opened = clock_ns();
    if (!rc) rc = eval_divergence(d, x->reference, m, &r, why);
    if (!rc) x->open_s = (double)(opened - begun) * 1e-9;
    if (!rc) x->window_s = (double)(clock_ns() - opened) * 1e-9 / (double)(2 * MAX(d->candidate.chunks, 1));
    model_close(m);
    return rc;
}

/* The config of the line, and the sizes that it makes. */
static enum err_code figures_begin(struct recipe_figures *f, const struct search *x, struct err *why)
{
    struct quantize_plan p = { 0 };
    enum err_code rc = config_parse(&f->config, f->line, why);
    if (!rc) rc = quantize_plan_init(&p, x->s.source, &f->config, why);
    f->bytes = p.bytes;
    f->file_bytes = p.file_bytes;
    quantize_plan_done(&p);
    return rc;
}

static int64_t search_windows(const struct search *x)
{
    return x->o->windows > 0 ? x->o->windows : WINDOWS;
}

/* The windows of the check: as asked, otherwise as many as the rest of the budget allows, by the time that
 * the last comparison took. A quarter is added, because the machine may be slower then. */
static int64_t check_windows(const struct search *x)
{
    static const double SLACK = 1.25;
    if (x->o->check_windows > 0) return MIN(x->o->check_windows, (int64_t)WINDOWS_MAX);
    const double left_s = x->o->budget_s - (double)(clock_ns() - x->begun_ns) * 1e-9 -
                          SLACK * (1 + TRIED) * x->open_s;
    const double fit = left_s / (SLACK * CHECKED * x->window_s);
    return fit >= CHECK_WINDOWS ? (int64_t)CHECK_WINDOWS : fit > CHECK_LEAST ? (int64_t)fit : CHECK_LEAST;
}

static enum err_code recipe_check(struct recipe_figures *f, double *window, struct search *x,
                                  int64_t *windows, struct err *why)
{
    struct divergence d;
    enum err_code rc = recipe_compare(&d, window, x, f, &x->for_check, x->checked, why);
    if (rc) return rc;
    f->kld = d.kld_mean;
    f->kld_se = d.kld_se;
    f->top1_ratio = d.top1_ratio;
    *windows = d.candidate.chunks;
    return ERR_OK;
}

/* ---------------------------------------------------------------- the search */

/* The costs of single tensors do not add up exactly: the target for their sum is corrected by the measured
 * cost of all together, a few times at most. */
static enum err_code search_for_kld(struct search *x, struct err *why)
{
    struct divergence d;
    struct allocation a;
    double ask = x->o->kld;
    struct recipe_figures best = { .bytes = INT64_MAX };
    for (int i = 0; i < ROUNDS; i++) {
        enum err_code rc = allocate_cost(&a, x->items, x->s.n, ask, why);
        if (rc && i == 0) return err_prefix(why, "KL divergence");
        if (rc) break; /* no mix reaches it by the sum: keep the current one */
        struct recipe_figures f = { .kld = NAN, .kld_se = NAN, .top1_ratio = NAN };
        rc = recipe_write_line(x, INT64_MAX, f.line, why);
        if (!rc) rc = figures_begin(&f, x, why);
        if (!rc) rc = recipe_compare(&d, NULL, x, &f, &x->on, search_windows(x), why);
        if (rc) return rc;
        if (d.kld_mean <= x->o->kld && f.bytes < best.bytes) {
            best = f;
            x->out->predicted_kld = kld_sum(x);
            x->out->search_kld = d.kld_mean;
        }
        const double ratio = x->o->kld / fmax(d.kld_mean, 1e-12);
        if (ratio >= 1 && ratio < 1.03) break;
        ask *= fmin(fmax(ratio, 0.25), 4) * (ratio < 1 ? 0.98 : 1);
    }
    if (!*best.line)
        return err_set(why, ERR_FIT, "no mix of these formats keeps KL divergence at %.4g on this text",
                       x->o->kld);
    x->out->mixed = best;
    return ERR_OK;
}

static enum err_code search_for_bytes(struct search *x, struct err *why)
{
    struct divergence d;
    struct allocation a;
    int64_t limit;
    enum err_code rc = byte_limit(&limit, x, why);
    if (!rc) rc = allocate_bytes(&a, x->items, x->s.n, limit, why);
    if (!rc) rc = recipe_write_line(x, limit, x->out->mixed.line, why);
    if (!rc) rc = figures_begin(&x->out->mixed, x, why);
    if (!rc) x->out->predicted_kld = kld_sum(x);
    if (!rc) rc = recipe_compare(&d, NULL, x, &x->out->mixed, &x->on, search_windows(x), why);
    if (!rc) x->out->search_kld = d.kld_mean;
    return rc;
}

/* Choose the uniform competitors: the two largest formats of at most the mixed recipe's size, and the one
 * that defined the size. The one closest to the model on the check text is the one to beat. */
static enum err_code best_uniform(struct search *x, struct err *why)
{
    struct recipe_figures found[FORMAT_COUNT];
    double window[WINDOWS_MAX];
    int n = 0;
    int64_t windows;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        struct recipe_figures *f = &found[n];
        if (!FORMATS[i].encode || !FORMATS[i].decode || FORMATS[i].ggml_type >= FORMAT_OWN_TYPES ||
            FORMATS[i].needs_importance)
            continue;
        *f = (struct recipe_figures){ .kld = NAN, .kld_se = NAN, .top1_ratio = NAN };
        snprintf(f->line, sizeof f->line, "%s", FORMATS[i].name);
        if (figures_begin(f, x, NULL) || f->bytes > MAX(x->out->mixed.bytes, x->most)) continue;
        n++;
    }
    for (int tried = 0; tried < TRIED; tried++) {
        struct recipe_figures *largest = NULL;
        for (int i = 0; i < n; i++)
            if (isnan(found[i].kld) && (!largest || found[i].bytes > largest->bytes)) largest = &found[i];
        if (!largest) break;
        enum err_code rc = recipe_check(largest, window, x, &windows, why);
        if (rc) return rc;
        if (*x->out->uniform.line && !(largest->kld < x->out->uniform.kld)) continue;
        x->out->uniform = *largest;
        memcpy(x->window[1], window, sizeof window);
    }
    return ERR_OK;
}

static void search_judge(struct search *x)
{
    struct recipe_found *f = x->out;
    double d[WINDOWS_MAX];
    const int n = (int)MIN(f->windows, (int64_t)WINDOWS_MAX);
    f->difference = (struct interval){ NAN, NAN, NAN };
    if (!*f->uniform.line) {
        snprintf(f->reason, sizeof f->reason, "no uniform format is that small, so there is nothing to beat");
        f->beats = true;
        return;
    }
    for (int i = 0; i < n; i++) d[i] = x->window[0][i] - x->window[1][i];
    f->difference = stats_t_interval(d, n, 0.95);
    f->beats = f->difference.upper < 0;
    if (f->beats) return;
    snprintf(
        f->reason, sizeof f->reason,
        "not better: on the %d window%s of the check text, %s is %s (%+.2g nats per token [%+.2g, %+.2g])", n,
        str_plural(n), f->uniform.line,
        f->difference.estimate > 0 ? "closer to the model" : "not proven worse", f->difference.estimate,
        f->difference.lower, f->difference.upper);
}

static enum err_code target_check(const struct recipe_search *o, struct err *why)
{
    const int targets = (o->like != NULL) + (o->bytes > 0) + !isnan(o->kld);
    for (int k = KNOB_METHOD; k <= KNOB_TENSORS; k++)
        if (o->config->given[k])
            return err_set(
                why, ERR_USAGE,
                "the recipe %s cannot be given: it is what the search looks for; -C may only set how the model runs",
                KNOBS[k].key);
    if (targets == 1 && !(o->kld <= 0)) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "expected one target: a size in bytes, the size of a uniform format, or a KL divergence > 0");
}

static enum err_code search_measure(struct search *x, struct err *why)
{
    const struct recipe_search *o = x->o;
    /* The recipe and the model itself on the text of the search, once or for a target of KL divergence some
     * times; both, and the uniform competitors, on that of the check. */
    const int64_t again = search_windows(x) * (isnan(o->kld) ? 2 : 1 + ROUNDS);
    const struct sensitivity_options s = {
        .model_path = o->model_path,
        .config = o->config,
        .formats = o->formats,
        .text = x->on,
        .ctx = x->ctx,
        .windows = search_windows(x),
        .budget_s = o->budget_s,
        .later_windows = again + CHECKED * (o->check_windows > 0 ? o->check_windows : CHECK_WINDOWS),
        .later_least = again + CHECKED * (o->check_windows > 0 ? o->check_windows : CHECK_LEAST),
        .later_models = (isnan(o->kld) ? 2 : 1 + ROUNDS) + TRIED,
        .db = o->db,
        .log = o->log,
        .progress = o->progress,
        .progress_ctx = o->progress_ctx
    };
    enum err_code rc = sensitivities_measure(&x->s, &s, why);
    x->out->too_short = x->s.too_short;
    if (!rc) rc = sensitivities_items(&x->items, &x->s, why);
    if (rc) return rc;
    snprintf(x->out->model_sha256, sizeof x->out->model_sha256, "%s", x->s.model_sha256);
    snprintf(x->out->basis, sizeof x->out->basis, "%s", x->s.basis);
    x->out->tensors = x->s.n;
    x->out->measured = x->s.measured;
    x->out->estimated = x->s.estimated;
    x->out->of = x->s.of;
    x->assigned = calloc((size_t)x->s.n + 1, sizeof *x->assigned);
    return x->assigned ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %d tensors", x->s.n);
}

static enum err_code search_run(struct search *x, struct err *why)
{
    const struct model_options reference = {
        .path = x->o->model_path, .config = x->o->config, .ctx = x->ctx, .sequences = 1, .log = x->o->log
    };
    enum err_code rc = target_check(x->o, why);
    if (!rc) rc = texts_read(x, why);
    if (!rc) rc = search_measure(x, why);
    if (!rc) rc = shapes_model_open(&x->reference, &reference, why);
    if (rc) return rc;
    x->out->random_weights = model_shape(x->reference)->random_weights;
    x->out->answers_unverified = model_shape(x->reference)->unknown > 0;
    rc = isnan(x->o->kld) ? search_for_bytes(x, why) : search_for_kld(x, why);
    x->checked = check_windows(x);
    if (!rc) rc = recipe_check(&x->out->mixed, x->window[0], x, &x->out->windows, why);
    if (!rc) rc = best_uniform(x, why);
    if (!rc) search_judge(x);
    return rc;
}

enum err_code recipe_search(struct recipe_found *out, const struct recipe_search *o, struct err *why)
{
    struct search *x = calloc(1, sizeof *x);
    *out = (struct recipe_found){ .uniform = { .kld = NAN, .kld_se = NAN, .top1_ratio = NAN },
                                  .predicted_kld = NAN,
                                  .search_kld = NAN };
    if (!x) return err_set(why, ERR_NOMEM, "out of memory for a search");
    x->o = o;
    x->out = out;
    x->begun_ns = clock_ns();
    x->ctx = o->ctx > 0 ? o->ctx : CTX;
    enum err_code rc = search_run(x, why);
    logit_cache_done(&x->logit_cache);
    model_close(x->reference);
    sensitivities_free(&x->s);
    free(x->items);
    free(x->assigned);
    free(x->text);
    free(x->check);
    free(x);
    return rc;
}
