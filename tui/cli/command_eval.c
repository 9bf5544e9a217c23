/* qdyno eval: perplexity of a text under each config, with an error that respects that tokens of one window
 * belong together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eval/eval.h"
#include "tui/cli/record.h"
#include "tui/cli/rows.h"

const struct cli_flag FLAGS_EVAL[] = {
    FLAG_MODEL_ROW,
    { "-f", "--file", "TEXT", "text file to score", FLAG_TEXT },
    { "-c", "--ctx-size", "N", "tokens of a window; default 512", FLAG_INT, 8, 1 << 24 },
    { "--chunks", NULL, "N", "score N windows at most; default all", FLAG_INT, 1, 1 << 24 },
    FLAG_CONFIGS_ROW,
    { NULL },
};

const struct column EVAL_COLUMNS[] = {
    { "model", "model", COLUMN_TEXT },
    { "config", "config", COLUMN_TEXT },
    { "file", "text", COLUMN_TEXT },
    { "ctx", "window", COLUMN_INT },
    { "chunks", "windows", COLUMN_INT },
    { "scored_tokens", "tokens", COLUMN_INT },
    { "perplexity", "perplexity", COLUMN_NUM, 1, 4 },
    { "perplexity_se", "+-", COLUMN_NUM, 1, 4 },
    { "perplexity_se_token", NULL, COLUMN_NUM },
    { "nll", "nats/token", COLUMN_NUM, 1, 5 },
    { "nll_se", NULL, COLUMN_NUM },
    { "seconds", "seconds", COLUMN_NUM, 1, 1 },
    { "random_weights", NULL, COLUMN_BOOL },
    { "error", "error", COLUMN_TEXT },
};
const size_t EVAL_COLUMN_COUNT = COUNT_OF(EVAL_COLUMNS);

struct eval {
    const struct cli_global *g;
    const struct cli_args *a;
    struct machine machine;
    struct recorder recorder;
    struct table table;
    struct progress progress;
    char *text;
    size_t n;
    const char *file;
    int ctx, config_i, n_configs, ok;
    struct config *configs;
    char line[2048];
    bool random;
    struct err first;
};

static bool on_chunk(void *arg, int64_t chunk, int64_t of, double nll)
{
    struct eval *e = arg;
    progress_show(&e->progress, "%d/%d %s  window %lld/%lld  perplexity %.4f", e->config_i + 1, e->n_configs,
                  e->line, (long long)chunk, (long long)of, exp(nll));
    return !cli_is_interrupted(e->g);
}

static json_t *new_row(struct eval *e, const char *path)
{
    json_t *row = table_row(&e->table);
    json_put_str(row, "model", cli_base_name(path));
    json_put_str(row, "config", e->line);
    json_put_str(row, "file", e->file);
    json_put_int(row, "ctx", e->ctx);
    return row;
}

static void put_result(struct eval *e, const char *path, const struct perplexity *p, double seconds,
                       bool random)
{
    json_t *row = new_row(e, path);
    json_put_int(row, "chunks", p->chunks);
    json_put_int(row, "scored_tokens", p->scored);
    json_put_num(row, "perplexity", p->ppl);
    json_put_num(row, "perplexity_se", p->ppl_se);
    json_put_num(row, "perplexity_se_token", p->ppl_se_token);
    json_put_num(row, "nll", p->nll);
    json_put_num(row, "nll_se", p->nll_se);
    json_put_num(row, "seconds", seconds);
    json_put_bool(row, "random_weights", random);
    e->random |= random;
    e->ok++;
}

/* The run and its cell, in the words the recorder knows. */
static enum err_code record(struct eval *e, const char *path, struct model *m, const struct perplexity *p,
                            double seconds, struct err *why)
{
    char hex[HASH_HEX], workload[600];
    enum err_code rc = gguf_hash(model_gguf(m), hex, why);
    if (rc) return rc;
    snprintf(workload, sizeof workload, "eval:%s", e->file);
    json_t *about = json_object(), *answer = json_object();
    json_put_str(about, "sha256", hex);
    json_put_str(about, "name", model_shape(m)->name);
    json_put_str(about, "arch", model_shape(m)->arch);
    json_put_str(answer, "workload", workload);
    json_put_num(answer, "perplexity", p->ppl);
    json_put_num(answer, "nll", p->nll);
    json_put_num(answer, "nll_se", p->nll_se);
    json_put_int(answer, "scored_tokens", p->scored);
    rc = recorder_start(&e->recorder, &e->machine, about, path, workload, e->line, e->g->seed, why);
    struct recorded_cell cell = { .arm = e->config_i,
                                  .config = e->line,
                                  .answer = answer,
                                  .started_ms = clock_unix_ms() - (int64_t)(seconds * 1e3),
                                  .seconds = seconds,
                                  .energy_j = NAN };
    if (!rc) rc = recorder_cell(&e->recorder, &cell, why);
    json_decref(about);
    json_decref(answer);
    return rc;
}

static enum err_code one_config(struct eval *e, struct err *why)
{
    struct config *c = &e->configs[e->config_i];
    struct model *m = NULL;
    struct perplexity p;
    char *path = NULL;
    config_line(c, e->line, sizeof e->line);
    enum err_code rc = cli_config_model(&path, e->a, c, why);
    if (rc) return rc;
    progress_show(&e->progress, "%d/%d %s  loading", e->config_i + 1, e->n_configs, e->line);
    struct model_options o = { .path = path, .config = c, .ctx = e->ctx, .sequences = 1, .log = &e->g->log };
    int64_t start = clock_ns();
    rc = model_open(&m, &o, why);
    if (!rc)
        rc = eval_perplexity(&p, m, e->text, e->n, e->ctx, args_int(e->a, "--chunks", 0), on_chunk, e, why);
    double seconds = (double)(clock_ns() - start) * 1e-9;
    if (!rc) {
        put_result(e, path, &p, seconds, model_shape(m)->random_weights);
        rc = record(e, path, m, &p, seconds, why);
    } else if (rc != ERR_CANCELLED) {
        json_put_str(new_row(e, path), "error", why->message);
        if (!e->first.code) e->first = *why;
        rc = ERR_OK; /* a config that cannot run is a row, not the end */
    }
    model_close(m);
    free(path);
    return rc;
}

static int finish(struct eval *e, enum err_code rc, struct err *why)
{
    struct err db_why = { 0 };
    progress_clear(&e->progress);
    if (e->recorder.started) json_put_int(e->table.extra, "run", e->recorder.run.id);
    json_put_str(e->table.extra, "machine", e->machine.id);
    if (e->random) table_note(&e->table, "%s", RANDOM_WEIGHTS);
    if (recorder_finish(&e->recorder, rc ? "stopped" : "done", &e->table, &db_why) && !rc) {
        rc = db_why.code;
        *why = db_why;
    }
    if (e->ok) cli_print(e->g, e->a, &e->table, EXIT_DONE);
    if (rc) return cli_fail(e->a, why);
    return e->ok ? EXIT_DONE : cli_fail(e->a, &e->first);
}

int command_eval(const struct cli_global *g, const struct cli_args *a)
{
    enum { LIMIT = 1 << 30 };
    struct err why = { 0 };
    struct machine_ceilings unused;
    bool known;
    struct eval *e = calloc(1, sizeof *e);
    if (!e) {
        err_set(&why, ERR_NOMEM, "no memory to begin");
        return cli_fail(a, &why);
    }
    e->g = g;
    e->a = a;
    e->file = args_text(a, "-f", NULL);
    e->ctx = (int)args_int(a, "-c", 512);
    table_init(&e->table, "qdyno.eval/1", EVAL_COLUMNS, (int)EVAL_COLUMN_COUNT);
    progress_init(&e->progress, g);
    enum err_code rc = e->file ? ERR_OK : err_set(&why, ERR_USAGE, "want -f TEXT, the file to score");
    if (!rc) rc = file_read(&e->text, &e->n, e->file, LIMIT, &why);
    if (!rc) rc = cli_configs(&e->configs, &e->n_configs, a, &why);
    if (!rc) rc = cli_machine(g, PROBE_CACHED, &e->machine, &unused, &known, &why);
    if (!rc) rc = recorder_open(&e->recorder, g, "eval", &why);
    for (e->config_i = 0; e->config_i < e->n_configs && !rc; e->config_i++) rc = one_config(e, &why);
    int status = finish(e, rc, &why);
    recorder_close(&e->recorder);
    table_done(&e->table);
    free(e->text);
    free(e->configs);
    free(e);
    return status;
}
