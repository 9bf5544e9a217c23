/* qdyno fit: does it fit? The plan the loader itself allocates by, and with --load what loading really took.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tui/cli/rows.h"

const struct cli_flag FLAGS_FIT[] = {
    FLAG_MODEL_ROW,
    { "-c", "--ctx-size", "N,...", "context in tokens; default the model's own, at most 4096", FLAG_INTS, 1,
      1 << 24 },
    FLAG_CONFIGS_ROW,
    { "--load", NULL, NULL, "load it, fill the context, and show what it took", FLAG_SWITCH },
    { NULL },
};

static const struct column COLUMNS[] = {
    { "model", "model", COLUMN_TEXT },
    { "config", "config", COLUMN_TEXT },
    { "ctx", "context", COLUMN_INT },
    { "weights_bytes", "weights", COLUMN_BYTES },
    { "kv_bytes", "KV cache", COLUMN_BYTES },
    { "compute_bytes", "compute", COLUMN_BYTES },
    { "scratch_bytes", "scratch", COLUMN_BYTES },
    { "total_bytes", "total", COLUMN_BYTES },
    { "available_bytes", "available", COLUMN_BYTES },
    { "fits", "fits", COLUMN_BOOL },
    { "kv_bytes_per_token", "KV per token", COLUMN_BYTES },
    { "decode_read_bytes", "read per token", COLUMN_BYTES },
    { "actual_bytes", "actual peak", COLUMN_BYTES },
    { "program_bytes", "of it program", COLUMN_BYTES },
    { "actual_ratio", "rest/plan", COLUMN_NUM, 1, 3 },
    { "error", "error", COLUMN_TEXT },
};

struct fit {
    const struct cli_global *g;
    const struct cli_args *a;
    int64_t available, program;
    struct table table;
    struct progress progress;
    bool all_fit;
    struct err first;
};

static bool on_event(void *ctx, const json_t *event)
{
    struct fit *f = ctx;
    if (event)
        progress_show(&f->progress, "loading: %s %lld/%lld", json_get_str(event, "phase", ""),
                      (long long)json_get_int(event, "done", 0), (long long)json_get_int(event, "of", 0));
    return !cli_is_interrupted(f->g);
}

/* What a process of this program holds without a model: its code, its libraries. Ours is the nearest there is
 * to the worker's. -1 unknown. */
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

/* A context is only real once it is filled: untouched pages cost nothing. One token of it stays for the
 * prediction itself. */
static enum err_code load(struct fit *f, json_t *row, const char *path, const struct config *c,
                          const struct memory_plan *plan, struct err *why)
{
    struct arm *arm = NULL;
    json_t *answer = NULL;
    char workload[64];
    struct arm_spec spec = { .model = path, .config = c, .ctx = plan->ctx, .log = &f->g->log };
    enum err_code rc = arm_open(&arm, &spec, on_event, f, why);
    snprintf(workload, sizeof workload, "pp%d", MAX(1, plan->ctx - 1));
    if (!rc) rc = arm_cell(arm, workload, f->g->seed, &answer, on_event, f, why);
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
    json_put_int(row, "ctx", p->ctx);
    json_put_int(row, "weights_bytes", p->weights);
    json_put_int(row, "kv_bytes", p->kv);
    json_put_int(row, "compute_bytes", p->compute);
    json_put_int(row, "scratch_bytes", p->scratch);
    json_put_int(row, "total_bytes", p->total);
    json_put_int(row, "kv_bytes_per_token", p->kv_bytes_per_token);
    json_put_int(row, "decode_read_bytes", p->decode_read_bytes);
}

static enum err_code one(struct fit *f, const struct config *c, int64_t ctx, struct err *why)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    struct memory_plan plan;
    char *path = NULL, line[2048];
    enum err_code rc = cli_config_model(&path, f->a, c, why);
    if (!rc) rc = gguf_open(&file, path, why);
    if (!rc) rc = model_shape_read(&shape, file, why);
    if (!rc && !ctx) ctx = MIN(shape.ctx_train > 0 ? shape.ctx_train : 4096, (int64_t)4096);
    if (!rc) rc = memory_plan_compute(&plan, file, c, (int)ctx, 1, why);
    if (!rc) {
        json_t *row = table_row(&f->table);
        bool fits = f->available < 0 || plan.total <= f->available;
        json_put_str(row, "model", cli_base_name(path));
        json_put_str(row, "config", config_line(c, line, sizeof line));
        put_plan(row, &plan);
        if (f->available >= 0) {
            json_put_int(row, "available_bytes", f->available);
            json_put_bool(row, "fits", fits);
        }
        f->all_fit &= fits;
        struct err failed = { 0 };
        if (args_has(f->a, "--load") && load(f, row, path, c, &plan, &failed)) {
            json_put_str(row, "error", failed.message);
            if (!f->first.code) f->first = failed;
        }
    }
    gguf_close(file);
    free(path);
    return rc;
}

int command_fit(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct fit f = { .g = g, .a = a, .all_fit = true, .program = program_bytes() };
    struct machine m;
    struct machine_ceilings unused;
    struct config *configs = NULL;
    int n = 0;
    bool known;
    int64_t ctx[64] = { 0 };
    table_init(&f.table, "qdyno.fit/1", COLUMNS, COUNT_OF(COLUMNS));
    progress_init(&f.progress, g);
    int n_ctx = args_ints(a, "-c", "0", ctx, COUNT_OF(ctx));
    enum err_code rc = cli_configs(&configs, &n, a, &why);
    if (!rc) rc = cli_machine(g, PROBE_CACHED, &m, &unused, &known, &why);
    if (!rc) f.available = m.memory_available_bytes;
    for (int i = 0; i < n && !rc; i++)
        for (int k = 0; k < n_ctx && !rc; k++) rc = one(&f, &configs[i], ctx[k], &why);
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
