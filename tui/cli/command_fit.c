/* qdyno fit: the memory plan by which the loader allocates, compared with the available memory; with --load
 * also what loading really takes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/other_machine.h"

/* clang-format off */
const struct cli_flag FLAGS_FIT[] = {
    FLAG_MODEL_ROW,
    { .name = "-c", .alias = "--ctx-size", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = CONTEXT_MOST,
      .help = "context in tokens; default: the model's own, at most 4096" },
    FLAG_CONFIGS_ROW,
    { .name = "--models",
      .help = "list which sizes of models fit in these formats (shapes of `qdyno synth`; no file needed)" },
    { .name = "--machine", .value = "DIR|FILE|NAME",
      .help = "use the memory of that machine or of its GPU (see `qdyno help advise`)" },
    { .name = "--load", .help = "load the model, fill the context, and print the memory it really took" },
    { .name = NULL },
};
/* clang-format on */

#define PLAN(member) MEMBER(struct memory_plan, member)
static const struct column COLUMNS[] = {
    COL("model", "model"),
    COL("config", "config"),
    COL("ctx", "context", PLAN(ctx)),
    COL("weights_bytes", "weights", .kind = COLUMN_BYTES, PLAN(weights)),
    COL("kv_bytes", "KV cache", .kind = COLUMN_BYTES, PLAN(kv)),
    KEY("state_bytes", .kind = COLUMN_BYTES, PLAN(state)),
    COL("compute_bytes", "compute", .kind = COLUMN_BYTES, PLAN(compute)),
    COL("scratch_bytes", "scratch", .kind = COLUMN_BYTES, PLAN(scratch)),
    COL("total_bytes", "total", .kind = COLUMN_BYTES, PLAN(total)),
    COL("rank_bytes", "largest process", .kind = COLUMN_BYTES),
    COL("available_bytes", "available", .kind = COLUMN_BYTES),
    COL("device_bytes", "on the device", .kind = COLUMN_BYTES),
    COL("gpu_layers", "layers on it", .kind = COLUMN_INT),
    COL("expert_layers", "experts on it", .kind = COLUMN_INT),
    COL("fits", "fits", .kind = COLUMN_BOOL),
    COL("ctx_most", "largest context", .kind = COLUMN_INT),
    COL("kv_bytes_per_token", "KV per token", .kind = COLUMN_BYTES, PLAN(kv_bytes_per_token)),
    COL("decode_read_bytes", "read per token", .kind = COLUMN_BYTES, PLAN(decode_read_bytes)),
    KEY("kv_window_bytes", .kind = COLUMN_BYTES),
    KEY("expert_bytes", .kind = COLUMN_BYTES),
    KEY("experts", .kind = COLUMN_INT),
    KEY("experts_used", .kind = COLUMN_INT),
    KEY("heads", .kind = COLUMN_INT),
    KEY("kv_heads", .kind = COLUMN_INT),
    COL("actual_bytes", "actual peak", .kind = COLUMN_BYTES),
    COL("program_bytes", "program itself", .kind = COLUMN_BYTES),
    COL("actual_ratio", "measured/plan", .kind = COLUMN_NUM, .digits = 3),
    COL("error", "error"),
};

DOCUMENT(FIT, "qdyno.fit/1", COLUMNS,
         .members = "unknown[] unsupported_tensors[].name unsupported_tensors[].type "
                    "unsupported_tensors[].type_name unsupported_tensors[].shape "
                    "unsupported_tensors[].bytes");

struct fit {
    const struct cli_global *g;
    const struct cli_args *a;
    int64_t available, program;
    struct table table;
    struct progress progress;
    bool all_fit;
    struct err first;
};

static bool fit_on_event(void *ctx, const json_t *event)
{
    struct fit *f = ctx;
    if (event)
        progress_show(&f->progress, "loading: %s %lld/%lld", json_get_str(event, "phase", ""),
                      (long long)json_get_int(event, "done", 0), (long long)json_get_int(event, "of", 0));
    return !cli_is_interrupted(f->g);
}

/* Resident memory of this process, which loads no model: an estimate of what a worker needs besides the
 * model. -1: unknown. */
static int64_t program_bytes(void)
{
    char *text = NULL;
    int64_t pages = -1;
    if (file_read(&text, NULL, "/proc/self/statm", 4096, NULL)) return -1;
    char *resident = strchr(text, ' ');
    if (resident) {
        resident[1 + strcspn(resident + 1, " ")] = '\0';
        str_to_i64(resident + 1, &pages);
    }
    free(text);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

/* Runs a prompt that fills the context, because untouched pages take no memory, and records the peak. One
 * token of the context stays free for the prediction. */
static enum err_code fit_load(struct fit *f, json_t *row, const char *path, const struct config *c,
                              const struct memory_plan *plan, struct err *why)
{
    struct arm *arm = NULL;
    json_t *answer = NULL;
    char workload[64];
    struct arm_spec spec = { .model = path, .config = c, .ctx = plan->ctx, .log = &f->g->log };
    enum err_code rc = arm_open(&arm, &spec, fit_on_event, f, why);
    snprintf(workload, sizeof workload, "pp%d", MAX(1, plan->ctx - 1));
    if (!rc) rc = arm_cell(arm, workload, f->g->seed, &answer, fit_on_event, f, why);
    if (!rc) {
        int64_t peak = json_get_int(answer, "peak_rss_bytes", -1);
        if (peak >= 0) json_put_int(row, "actual_bytes", peak);
        if (f->program >= 0) json_put_int(row, "program_bytes", f->program);
        if (peak >= 0 && f->program >= 0)
            json_put_num(row, "actual_ratio", (double)(peak - f->program) / (double)plan->total);
    }
    json_decref(answer);
    arm_close(arm);
    return rc;
}

static void put_plan(json_t *row, const struct memory_plan *p)
{
    document_put(&DOCUMENT_FIT, row, struct memory_plan, p);
    if (p->ranks) json_put_int(row, "rank_bytes", p->rank_total);
    if (p->device) json_put_int(row, "device_bytes", p->device);
    if (p->device) json_put_int(row, "gpu_layers", p->gpu_layers);
    if (p->device && p->expert_read_bytes) json_put_int(row, "expert_layers", p->expert_layers);
}

/* What fits into memory can be more than the model can use. */
static void put_beyond_training(struct fit *f, const char *name, const struct gguf *g, int64_t most)
{
    struct model_shape s;
    if (model_shape_read(&s, g, NULL) || most <= s.ctx_train) return;
    table_note(&f->table,
               "%s was trained on contexts of %lld tokens: longer ones fit, but its answers are worse there",
               name, (long long)s.ctx_train);
}

/* Columns that are computed from the tensor shapes alone, for models without a memory plan. Only weights and
 * KV cache count, so `fits` and `ctx_most` are optimistic: buffers for activations come on top. */
static void put_estimate(struct fit *f, json_t *row, const struct memory_estimate *e)
{
    json_put_int(row, "ctx", e->ctx);
    json_put_int(row, "weights_bytes", e->weight_bytes);
    json_put_int(row, "kv_bytes", e->kv_bytes);
    json_put_int(row, "state_bytes", e->state_bytes);
    json_put_int(row, "total_bytes", e->total);
    json_put_int(row, "kv_bytes_per_token", e->kv_bytes_per_token);
    json_put_int(row, "decode_read_bytes", e->read_bytes);
    if (f->available < 0) return;
    json_put_int(row, "available_bytes", f->available);
    json_put_bool(row, "fits", e->total <= f->available);
    json_put_int(row, "ctx_most",
                 MAX(0, f->available - e->weight_bytes - e->state_bytes) / MAX(e->kv_bytes_per_token, 1));
}

/* Columns and notes about shared heads, attention windows and experts. */
static void put_shape(struct fit *f, json_t *row, const struct memory_estimate *e)
{
    char bytes[16], all[16];
    const char *config = json_get_str(row, "config", "");
    json_put_int(row, "heads", e->heads);
    json_put_int(row, "kv_heads", e->kv_heads);
    if (e->windowed_layers) {
        json_put_int(row, "kv_window_bytes", e->kv_window_bytes);
        if (e->kv_window_bytes < e->kv_bytes) /* equal: the context is not longer than the window */
            table_note(
                &f->table,
                "%s: %d of %d layers attend to the last %d tokens only: %s instead of %s of KV cache would "
                "suffice at %lld tokens",
                config, e->windowed_layers, e->layers, e->window,
                str_from_bytes(e->kv_window_bytes, bytes, sizeof bytes),
                str_from_bytes(json_get_int(row, "kv_bytes", e->kv_bytes), all, sizeof all),
                (long long)e->ctx);
    }
    if (e->attention_layers < e->layers)
        table_note(
            &f->table,
            "%d of %d layers store keys and values; %d keep a state instead: %s together per sequence, "
            "whatever the context is",
            e->attention_layers, e->layers, e->state_layers,
            str_from_bytes(e->state_bytes, bytes, sizeof bytes));
    if (!e->experts) return;
    json_put_int(row, "experts", e->experts);
    json_put_int(row, "experts_used", e->experts_used);
    json_put_int(row, "expert_bytes", e->expert_bytes);
    table_note(&f->table,
               "%d of %d experts work on a token: all %s of weights must be in memory, %s are read per token",
               e->experts_used, e->experts, str_from_bytes(e->weight_bytes, all, sizeof all),
               str_from_bytes(e->read_bytes, bytes, sizeof bytes));
}

static const struct format *cache_format(const struct config *c, enum knob_id id)
{
    return format_find(config_text(c, id));
}

/* A model that this engine cannot run: estimates its memory from the shapes in the file. */
static enum err_code fit_by_shapes(struct fit *f, const struct gguf *g, const char *path,
                                   const struct config *c, int64_t ctx, const struct err *refused,
                                   struct err *why)
{
    struct memory_estimate e;
    char line[2048];
    if (args_has(f->a, "--load") || c->given[KNOB_FORMAT]) {
        *why = *refused;
        return why->code;
    }
    enum err_code rc = memory_estimate_read(&e, g, ctx, cache_format(c, KNOB_CTK), cache_format(c, KNOB_CTV),
                                            NULL);
    if (rc) {
        *why = *refused;
        return why->code;
    }
    json_t *row = table_row(&f->table);
    json_put_str(row, "model", cli_base_name(path));
    json_put_str(row, "config", config_line(c, line, sizeof line));
    put_estimate(f, row, &e);
    put_shape(f, row, &e);
    table_note(&f->table, "%s: estimated from its shapes, without buffers, because qdyno cannot run it: %s",
               cli_base_name(path), refused->message);
    f->all_fit &= f->available < 0 || e.total <= f->available;
    return ERR_OK;
}

static enum err_code fit_by_plan(struct fit *f, const struct gguf *g, const char *path,
                                 const struct config *c, const struct memory_plan *plan, struct err *why)
{
    struct memory_estimate e;
    char line[2048];
    json_t *row = table_row(&f->table);
    struct err unfit = { 0 };
    const bool fits = !memory_plan_check(plan, config_text(c, KNOB_DEVICE), f->available, &unfit);
    json_put_str(row, "model", cli_base_name(path));
    json_put_str(row, "config", config_line(c, line, sizeof line));
    put_plan(row, plan);
    if (f->available >= 0) {
        json_put_int(row, "available_bytes", f->available);
        json_put_bool(row, "fits", fits);
        int64_t most;
        const enum err_code short_of_memory = recipe_longest_context(&most, g, c, f->available, why);
        if (short_of_memory) return short_of_memory;
        json_put_int(row, "ctx_most", most);
        put_beyond_training(f, cli_base_name(path), g, most);
    }
    if (!fits) table_note(&f->table, "%s: %s", line, unfit.message);
    f->all_fit &= fits;
    enum err_code rc = memory_estimate_read(&e, g, plan->ctx, cache_format(c, KNOB_CTK),
                                            cache_format(c, KNOB_CTV), why);
    if (rc) return rc;
    put_shape(f, row, &e);
    struct err failed = { 0 };
    if (args_has(f->a, "--load") && fit_load(f, row, path, c, plan, &failed)) {
        json_put_str(row, "error", failed.message);
        if (!f->first.code) f->first = failed;
    }
    return ERR_OK;
}

static enum err_code fit_config(struct fit *f, const struct config *c, int64_t ctx, struct err *why)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    struct memory_plan plan;
    struct err refused = { 0 };
    char *path = NULL;
    enum err_code rc = cli_config_model(&path, f->a, c, why);
    if (!rc) rc = model_file_open_any_type(&file, path, why);
    if (!rc) {
        const bool known = !model_shape_read(&shape, file, &refused);
        const bool runs = known && !gguf_check_types(file, &refused);
        const int64_t usual = known && shape.ctx_train > 0 ? MIN(shape.ctx_train, (int64_t)4096) : 4096;
        if (known) cli_note_unknown(&f->table, &shape, file);
        cli_note_unsupported(&f->table, file);
        if (!runs)
            rc = fit_by_shapes(f, file, path, c, ctx, &refused, why);
        else if (!(rc = recipe_plan_memory(&plan, file, c, (int)(ctx ? ctx : usual), 1, why)))
            rc = fit_by_plan(f, file, path, c, &plan, why);
        if (!rc) rc = gguf_check_unchanged(file, why);
    }
    gguf_close(file);
    free(path);
    return rc;
}

/* --models: every synth shape in the format of the config (f16 if it names none). */
static enum err_code fit_all_shapes(struct fit *f, const struct config *c, int64_t ctx, struct err *why)
{
    const char *name = config_text(c, KNOB_FORMAT);
    const struct format *format = strcmp(name, "file") ? format_find(name) : &FORMATS[FORMAT_F16];
    if (!format)
        return err_set(why, ERR_USAGE, "--models: expected a format of weights such as q4_K, got '%s'", name);
    for (size_t i = 0; i < SYNTH_SHAPE_COUNT; i++) {
        struct memory_estimate e;
        char line[2048];
        memory_estimate_of(&e, &SYNTH_SHAPES[i], format, ctx, cache_format(c, KNOB_CTK),
                           cache_format(c, KNOB_CTV));
        json_t *row = table_row(&f->table);
        json_put_str(row, "model", SYNTH_SHAPES[i].name);
        json_put_str(row, "config", strcmp(name, "file") ? config_line(c, line, sizeof line) : "f16");
        put_estimate(f, row, &e);
        json_put_int(row, "heads", e.heads);
        json_put_int(row, "kv_heads", e.kv_heads);
    }
    return ERR_OK;
}

/* Memory of this machine or of that of --machine. */
static enum err_code fit_find_memory(struct fit *f, struct err *why)
{
    const char *named = args_text(f->a, "--machine", NULL);
    struct other_machine d;
    struct machine m;
    enum err_code rc;
    if (named && args_has(f->a, "--load"))
        return err_set(why, ERR_USAGE, "--load needs this machine: leave --machine out");
    if (!named) {
        if ((rc = machine_detect(&m, "", why))) return rc;
        f->available = m.memory_available_bytes;
        return ERR_OK;
    }
    if ((rc = other_machine_open(&d, named, why))) return rc;
    f->available = predict_memory(&d.machine, &d.ceilings,
                                  d.ceilings_known && d.ceilings.gpu.read_bytes_s > 0);
    other_machine_close(&d);
    return ERR_OK;
}

int command_fit(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct fit f = { .g = g, .a = a, .all_fit = true, .program = program_bytes() };
    struct config *configs = NULL;
    int n = 0;
    int64_t ctx[64] = { 0 };
    table_init(&f.table, &DOCUMENT_FIT);
    progress_init(&f.progress, g);
    int n_ctx = args_ints(a, "-c", "0", ctx, COUNT_OF(ctx));
    enum err_code rc = cli_config_grid(&configs, &n, a, &why);
    for (int i = 0; i < n && !rc; i++) rc = config_check_own(&configs[i], &why);
    if (!rc) rc = fit_find_memory(&f, &why);
    for (int i = 0; i < n && !rc; i++)
        for (int k = 0; k < n_ctx && !rc; k++)
            rc = args_has(a, "--models") ? fit_all_shapes(&f, &configs[i], ctx[k], &why)
                                         : fit_config(&f, &configs[i], ctx[k], &why);
    progress_clear(&f.progress);
    int status = EXIT_DONE;
    if (rc) {
        status = cli_fail(a, &why);
    } else {
        status = cli_print(g, a, &f.table, f.all_fit ? EXIT_DONE : EXIT_NO_FIT);
        if (f.first.code && status == EXIT_DONE) status = cli_fail(a, &f.first);
    }
    table_done(&f.table);
    free(configs);
    return status;
}
