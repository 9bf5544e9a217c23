/* qdyno eval: perplexity of a text under each config, with an error that respects that tokens of one window
 * belong together; with --ref also what each config's predictions lose against a reference's, token by token.
 */
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
    { "--ref", NULL, "CONFIG", "compare every config's predictions with this one's (KL divergence)",
      FLAG_TEXT },
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
    { "kld_mean", "KLD, nats", COLUMN_NUM, 1, 6 },
    { "kld_se", "+-", COLUMN_NUM, 1, 6 },
    { "kld_p50", "p50", COLUMN_NUM, 1, 6 },
    { "kld_p90", "p90", COLUMN_NUM, 1, 6 },
    { "kld_p99", "p99", COLUMN_NUM, 1, 6 },
    { "kld_max", "max", COLUMN_NUM, 1, 6 },
    { "top1_ratio", "same top-1 %", COLUMN_NUM, 100, 2 },
    { "top1_se", "+-", COLUMN_NUM, 100, 2 },
    { "top1_lower", NULL, COLUMN_NUM },
    { "top1_upper", NULL, COLUMN_NUM },
    { "ppl_ratio", "perplexity ratio", COLUMN_NUM, 1, 5 },
    { "ppl_ratio_lower", "from", COLUMN_NUM, 1, 5 },
    { "ppl_ratio_upper", "to", COLUMN_NUM, 1, 5 },
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
    struct {
        struct model *model; /* NULL without --ref; open for all configs */
        char line[2048], *path;
        bool told; /* its own figures are in the table's extra */
    } ref;
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

/* One config's figures. */
struct result {
    struct perplexity ppl;
    struct divergence kld; /* with --ref */
    double seconds;
};

static void put_perplexity(json_t *to, const struct perplexity *p)
{
    json_put_int(to, "chunks", p->chunks);
    json_put_int(to, "scored_tokens", p->scored);
    json_put_num(to, "perplexity", p->ppl);
    json_put_num(to, "perplexity_se", p->ppl_se);
    json_put_num(to, "perplexity_se_token", p->ppl_se_token);
    json_put_num(to, "nll", p->nll);
    json_put_num(to, "nll_se", p->nll_se);
}

static void put_divergence(json_t *to, const struct divergence *d)
{
    /* few windows: the quantile of Student's t for as many as there are */
    const double t = stats_t_quantile(0.975, (double)(d->candidate.chunks - 1));
    json_put_num(to, "kld_mean", d->kld_mean);
    json_put_num(to, "kld_se", d->kld_se);
    json_put_num(to, "kld_p50", d->kld_p50);
    json_put_num(to, "kld_p90", d->kld_p90);
    json_put_num(to, "kld_p99", d->kld_p99);
    json_put_num(to, "kld_max", d->kld_max);
    json_put_num(to, "top1_ratio", d->top1_ratio);
    json_put_num(to, "top1_se", d->top1_se);
    json_put_num(to, "top1_lower", d->top1_lower);
    json_put_num(to, "top1_upper", d->top1_upper);
    json_put_num(to, "ppl_ratio", exp(d->log_ratio));
    json_put_num(to, "ppl_ratio_lower", exp(d->log_ratio - t * d->log_ratio_se));
    json_put_num(to, "ppl_ratio_upper", exp(d->log_ratio + t * d->log_ratio_se));
}

/* The reference's own perplexity comes with the first comparison. */
static void put_reference(struct eval *e, const struct perplexity *p)
{
    if (e->ref.told) return;
    json_t *ref = json_object();
    json_put_str(ref, "model", cli_base_name(e->ref.path));
    json_put_str(ref, "config", e->ref.line);
    put_perplexity(ref, p);
    json_put(e->table.extra, "reference", ref);
    table_note(&e->table, "reference %s: perplexity %.4f", e->ref.line, p->ppl);
    if (p->chunks > 1)
        table_note(&e->table, "+-: one standard error; perplexity ratio from .. to: 95 %%, paired");
    e->random |= model_shape(e->ref.model)->random_weights;
    e->ref.told = true;
}

static void put_result(struct eval *e, const char *path, const struct result *r, bool random)
{
    json_t *row = new_row(e, path);
    put_perplexity(row, &r->ppl);
    if (e->ref.model) {
        put_divergence(row, &r->kld);
        put_reference(e, &r->kld.reference);
        random |= model_shape(e->ref.model)->random_weights;
    }
    json_put_num(row, "seconds", r->seconds);
    json_put_bool(row, "random_weights", random);
    e->random |= random;
    e->ok++;
}

/* The run and its cell, in the words the recorder knows. */
static enum err_code record(struct eval *e, const char *path, struct model *m, const struct result *r,
                            struct err *why)
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
    json_put_int(answer, "ctx", e->ctx);
    put_perplexity(answer, &r->ppl);
    if (e->ref.model) {
        json_put_str(answer, "reference", e->ref.line);
        json_put_str(answer, "reference_model", cli_base_name(e->ref.path));
        put_divergence(answer, &r->kld);
    }
    rc = recorder_start(&e->recorder, &e->machine, about, path, workload, e->line, e->g->seed, why);
    struct recorded_cell cell = { .arm = e->config_i,
                                  .config = e->line,
                                  .answer = answer,
                                  .started_ms = clock_unix_ms() - (int64_t)(r->seconds * 1e3),
                                  .seconds = r->seconds,
                                  .energy_j = NAN };
    if (!rc) rc = recorder_cell(&e->recorder, &cell, why);
    json_decref(about);
    json_decref(answer);
    return rc;
}

static enum err_code measure(struct eval *e, struct model *m, struct result *r, struct err *why)
{
    const struct eval_request q = { .text = e->text,
                                    .n = e->n,
                                    .ctx = e->ctx,
                                    .max_chunks = args_int(e->a, "--chunks", 0),
                                    .progress = on_chunk,
                                    .arg = e };
    if (!e->ref.model)
        return eval_perplexity(&r->ppl, m, q.text, q.n, q.ctx, q.max_chunks, q.progress, q.arg, why);
    enum err_code rc = eval_divergence(&r->kld, e->ref.model, m, &q, why);
    r->ppl = r->kld.candidate;
    return rc;
}

/* --ref: opened once, before the first config. Knob flags hold for it as for -C lines, unless they are lists:
 * those make several candidates, and there is one reference. */
static enum err_code open_reference(struct eval *e, struct err *why)
{
    const char *line = args_text(e->a, "--ref", NULL);
    struct cli_args single = *e->a;
    struct config c;
    if (!line) return ERR_OK;
    single.knob_count = 0;
    for (int i = 0; i < e->a->knob_count; i++)
        if (!strchr(e->a->knob[i].value, ',')) single.knob[single.knob_count++] = e->a->knob[i];
    enum err_code rc = cli_config(&c, &single, line, why);
    if (!rc) rc = cli_config_model(&e->ref.path, e->a, &c, why);
    if (rc) return err_prefix(why, "--ref %s", line);
    config_line(&c, e->ref.line, sizeof e->ref.line);
    progress_show(&e->progress, "reference %s  loading", e->ref.line);
    struct model_options o = {
        .path = e->ref.path, .config = &c, .ctx = e->ctx, .sequences = 1, .log = &e->g->log
    };
    rc = model_open(&e->ref.model, &o, why);
    return rc ? err_prefix(why, "--ref %s", line) : ERR_OK;
}

static enum err_code one_config(struct eval *e, struct err *why)
{
    struct config *c = &e->configs[e->config_i];
    struct model *m = NULL;
    struct result r = { .seconds = NAN };
    char *path = NULL;
    config_line(c, e->line, sizeof e->line);
    enum err_code rc = cli_config_model(&path, e->a, c, why);
    if (rc) return rc;
    progress_show(&e->progress, "%d/%d %s  loading", e->config_i + 1, e->n_configs, e->line);
    struct model_options o = { .path = path, .config = c, .ctx = e->ctx, .sequences = 1, .log = &e->g->log };
    int64_t start = clock_ns();
    rc = model_open(&m, &o, why);
    if (!rc) rc = measure(e, m, &r, why);
    r.seconds = (double)(clock_ns() - start) * 1e-9;
    if (!rc) {
        put_result(e, path, &r, model_shape(m)->random_weights);
        rc = record(e, path, m, &r, why);
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
    if (!rc) rc = open_reference(e, &why);
    if (!rc) rc = cli_machine(g, PROBE_CACHED, &e->machine, &unused, &known, &why);
    if (!rc) rc = recorder_open(&e->recorder, g, "eval", &why);
    for (e->config_i = 0; e->config_i < e->n_configs && !rc; e->config_i++) rc = one_config(e, &why);
    int status = finish(e, rc, &why);
    recorder_close(&e->recorder);
    table_done(&e->table);
    model_close(e->ref.model);
    free(e->ref.path);
    free(e->text);
    free(e->configs);
    free(e);
    return status;
}
