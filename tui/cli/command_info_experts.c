/* qdyno info --experts: which experts a model's routers choose on a text, and what the number of different
 * experts of a batch means for the bytes and the time of its step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "engine/arch/arch.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"
#include "tui/cli/commands.h"

static const struct column LAYER_COLUMNS[] = {
    COL("layer", "layer", .kind = COLUMN_INT),
    COL("hottest", "hottest experts (share of choices)"),
    KEY("hottest_share", .kind = COLUMN_NUM),
    COL("entropy_bits", "entropy, bits", .kind = COLUMN_NUM, .digits = 2),
    COL("effective_experts", "effective experts", .kind = COLUMN_NUM, .digits = 1),
    COL("never_chosen", "never chosen", .kind = COLUMN_INT),
};

DOCUMENT(EXPERTS, "qdyno.experts/1", LAYER_COLUMNS,
         .members = "model config file text_sha256 ctx windows tokens experts experts_used random_weights "
                    "answers_unverified batches[].* choices[].layer choices[].count[] "
                    "choices[].consecutive_experts.* choices[].independent_experts.*");

static const struct column BATCH_COLUMNS[] = {
    COL("rows", "rows", .kind = COLUMN_INT),
    COL("consecutive_experts", "experts, consecutive tokens", .kind = COLUMN_NUM, .digits = 2),
    COL("consecutive_read_bytes", "reads", .kind = COLUMN_BYTES),
    COL("consecutive_time_ratio", "time", .kind = COLUMN_NUM, .digits = 2),
    COL("independent_experts", "experts, sequences", .kind = COLUMN_NUM, .digits = 2),
    COL("independent_read_bytes", "reads", .kind = COLUMN_BYTES),
    COL("independent_time_ratio", "time", .kind = COLUMN_NUM, .digits = 2),
    COL("random_experts", "random choices", .kind = COLUMN_NUM, .digits = 2),
};

DOCUMENT(EXPERT_BATCHES, "qdyno.expert_batches/1", BATCH_COLUMNS);

/* Batches that are shown: 1, 2, 4 ... 32 rows. */
enum { SHOWN = 6 };

struct counted {
    const struct cli_global *g;
    const struct cli_args *a;
    struct config config;
    char *path, *text, line[2048];
    const char *file;
    size_t n;
    struct gguf *gguf;
    struct model_shape shape;
    struct model *model;
    struct expert_use use;
    struct stored_experts known;
    struct table layers, batches;
    struct progress progress;
};

static bool on_window(void *arg, int64_t window, int64_t of, double nll)
{
    struct counted *x = arg;
    (void)nll;
    progress_show(&x->progress, "%s  window %lld/%lld", x->line, (long long)window, (long long)of);
    return !cli_is_interrupted(x->g);
}

/* ---------------------------------------------------------------- measuring */

static enum err_code counted_open(struct counted *x, struct err *why)
{
    x->file = args_text(x->a, "--experts", NULL);
    enum err_code rc = cli_config(&x->config, x->a, args_text(x->a, "-C", NULL), why);
    if (!rc) rc = cli_config_model(&x->path, x->a, &x->config, why);
    if (!rc) rc = model_file_open(&x->gguf, x->path, why);
    if (!rc) rc = model_shape_read(&x->shape, x->gguf, why);
    if (!rc) rc = expert_use_check(&x->shape, why);
    if (!rc) rc = file_read(&x->text, &x->n, x->file, TEXT_FILE_LIMIT, why);
    config_line(&x->config, x->line, sizeof x->line);
    return rc;
}

static enum err_code counted_measure(struct counted *x, struct err *why)
{
    const struct eval_request r = { .text = x->text,
                                    .n = x->n,
                                    .ctx = (int)args_int(x->a, "-c", 512),
                                    .max_chunks = args_int(x->a, "--chunks", 0),
                                    .progress = on_window,
                                    .arg = x };
    progress_show(&x->progress, "%s  loading", x->line);
    enum err_code rc = cli_model_open(&x->model, x->g, x->path, &x->config, r.ctx, why);
    if (!rc) rc = eval_experts(&x->use, x->model, &r, why);
    progress_clear(&x->progress);
    if (rc) return rc;
    stored_experts_of(&x->known, &x->use, cli_base_name(x->file));
    return stored_experts_save(x->gguf, &x->known, why);
}

/* ---------------------------------------------------------------- figures */

static void put_layer(struct counted *x, int layer)
{
    struct expert_layer l;
    struct str hottest = { 0 };
    if (!expert_use_layer(&l, &x->use, layer)) return;
    json_t *row = table_row(&x->layers);
    for (int i = 0; i < EXPERTS_HOTTEST && l.hottest[i] >= 0; i++)
        str_printf(&hottest, "%s%d (%.1f %%)", i ? ", " : "", l.hottest[i], 100 * l.share[i]);
    json_put_int(row, "layer", layer);
    json_put_str(row, "hottest", str_text(&hottest));
    json_put_num(row, "hottest_share", l.share[0]);
    json_put_num(row, "entropy_bits", l.entropy_bits);
    json_put_num(row, "effective_experts", l.effective);
    json_put_int(row, "never_chosen", l.never);
    str_free(&hottest);
}

static json_t *curve_to_json(const struct expert_curve *c)
{
    json_t *list = json_array();
    for (int b = 0; b < SHOWN; b++)
        json_array_append_new(list, isnan(c->distinct[b]) ? json_null() : json_real(c->distinct[b]));
    return list;
}

/* The counts behind the table, for scripts: how often each expert was chosen. */
static json_t *choices_to_json(const struct expert_use *u)
{
    json_t *list = json_array();
    for (int l = 0; l < u->layers; l++) {
        struct expert_layer ignored;
        if (!expert_use_layer(&ignored, u, l)) continue;
        json_t *layer = json_object(), *count = json_array();
        for (int e = 0; e < u->experts; e++)
            json_array_append_new(count, json_integer(u->count[(int64_t)l * u->experts + e]));
        json_put_int(layer, "layer", l);
        json_put(layer, "count", count);
        json_put(layer, "consecutive_experts", curve_to_json(&u->consecutive[l]));
        json_put(layer, "independent_experts", curve_to_json(&u->apart[l]));
        json_array_append_new(list, layer);
    }
    return list;
}

/* Predicted seconds of steps with 1, 2, 4 ... rows; NAN: the limits of this machine were not measured. */
static enum err_code predict_times(const struct counted *x, bool consecutive, double seconds[SHOWN],
                                   struct err *why)
{
    struct machine machine;
    struct machine_ceilings ceilings;
    bool known = false;
    int rows[SHOWN];
    const struct predict_for what = { .experts_consecutive = &x->known.consecutive,
                                      .experts_apart = &x->known.apart,
                                      .rows = rows,
                                      .steps = SHOWN,
                                      .consecutive = consecutive };
    for (int b = 0; b < SHOWN; b++) {
        seconds[b] = NAN;
        rows[b] = 1 << b;
    }
    enum err_code rc = cli_machine(x->g, PROBE_CACHED, &machine, &ceilings, &known, why);
    if (!rc && known) rc = predict_steps(seconds, x->gguf, &x->config, &machine, &ceilings, &what, why);
    return rc;
}

/* What a batch of that size needs, if it was measured. */
static void put_batch(json_t *row, const char *kind, const struct memory_plan *plan,
                      const struct model_shape *shape, const struct expert_curve *curve, int b, double ratio)
{
    const bool measured = !isnan(curve->distinct[b]);
    char name[64];
    snprintf(name, sizeof name, "%s_experts", kind);
    json_put_num(row, name, curve->distinct[b]);
    snprintf(name, sizeof name, "%s_read_bytes", kind);
    const double bytes = plan_step_bytes(plan, shape, curve->distinct[b]);
    json_put(row, name, measured ? json_integer((int64_t)bytes) : json_null());
    snprintf(name, sizeof name, "%s_time_ratio", kind);
    json_put_num(row, name, measured ? ratio : (double)NAN);
}

static enum err_code put_batches(struct counted *x, struct err *why)
{
    struct memory_plan plan;
    double together[SHOWN], apart[SHOWN];
    enum err_code rc = recipe_plan_memory(&plan, x->gguf, &x->config, 0, 1, why);
    if (!rc) rc = predict_times(x, true, together, why);
    if (!rc) rc = predict_times(x, false, apart, why);
    for (int b = 0; b < SHOWN && !rc; b++) {
        json_t *row = table_row(&x->batches);
        json_put_int(row, "rows", 1 << b);
        put_batch(row, "consecutive", &plan, &x->shape, &x->known.consecutive, b, together[b] / together[0]);
        put_batch(row, "independent", &plan, &x->shape, &x->known.apart, b, apart[b] / apart[0]);
        json_put_num(row, "random_experts",
                     experts_distinct(NULL, x->shape.experts, x->shape.experts_used, 1 << b));
    }
    if (!rc && isnan(together[0]))
        table_note(&x->batches, "times are unknown: measure this machine with `qdyno detect --probe` first");
    return rc;
}

static void put_notes(struct counted *x)
{
    const struct expert_use *u = &x->use;
    table_headline(&x->layers, "%s: %d of %d experts work on a token; %lld tokens of %s in windows of %lld",
                   cli_base_name(x->path), u->used, u->experts, (long long)u->tokens, cli_base_name(x->file),
                   (long long)(u->tokens / u->windows));
    table_note(
        &x->layers,
        "effective experts: as many that are used equally have the same entropy; an even router has %d "
        "and %.2f bits",
        u->experts, log2(u->experts));
    table_headline(
        &x->batches,
        "Distinct experts of a layer that work on a batch (mean over layers), bytes of weights that "
        "the step reads, and its predicted time (one row = 1)");
    table_note(&x->batches,
               "consecutive tokens: prompts, and drafted tokens that are verified; sequences: independent "
               "ones that are decoded together (tokens of different windows)");
    if (u->windows < 1 << (SHOWN - 1))
        table_note(&x->batches, "the text has %lld windows, and a batch of sequences needs one for each row",
                   (long long)u->windows);
    cli_note_cautions(&x->layers, x->shape.random_weights, x->shape.unknown > 0);
}

static void put_extra(struct counted *x)
{
    char hex[HASH_HEX];
    json_t *extra = x->layers.extra;
    hash_bytes(x->text, x->n, hex);
    json_put_str(extra, "model", cli_base_name(x->path));
    json_put_str(extra, "config", x->line);
    json_put_str(extra, "file", x->file);
    json_put_str(extra, "text_sha256", hex);
    json_put_int(extra, "ctx", x->use.tokens / x->use.windows);
    json_put_int(extra, "windows", x->use.windows);
    json_put_int(extra, "tokens", x->use.tokens);
    json_put_int(extra, "experts", x->use.experts);
    json_put_int(extra, "experts_used", x->use.used);
    cli_put_cautions(extra, x->shape.random_weights, x->shape.unknown > 0);
    json_put(extra, "batches", json_incref(x->batches.rows));
    json_put(extra, "choices", choices_to_json(&x->use));
}

/* ---------------------------------------------------------------- the command */

int info_experts(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct counted *x = calloc(1, sizeof *x);
    if (!x) return cli_fail_memory(a);
    x->g = g;
    x->a = a;
    table_init(&x->layers, &DOCUMENT_EXPERTS);
    table_init(&x->batches, &DOCUMENT_EXPERT_BATCHES);
    progress_init(&x->progress, g);
    enum err_code rc = counted_open(x, &why);
    if (!rc) rc = counted_measure(x, &why);
    for (int l = 0; l < x->use.layers && !rc; l++) put_layer(x, l);
    if (!rc) rc = put_batches(x, &why);
    if (!rc) {
        put_notes(x);
        put_extra(x);
    }
    int status = rc ? cli_fail(a, &why) : cli_print(g, a, &x->layers, EXIT_DONE);
    if (!rc && status == EXIT_DONE && g->output == OUTPUT_MD) {
        putchar('\n');
        status = cli_print(g, a, &x->batches, EXIT_DONE);
    }
    expert_use_done(&x->use);
    model_close(x->model);
    gguf_close(x->gguf);
    table_done(&x->layers);
    table_done(&x->batches);
    free(x->path);
    free(x->text);
    free(x);
    return status;
}
