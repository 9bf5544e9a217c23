/* qdyno methods: lists the quantization methods; with a model, measures the error of each method in every
 * tensor, and with a text its loss against the unquantized model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "engine/arch/arch.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/recipes.h"

/* clang-format off */
const struct cli_flag FLAGS_METHODS[] = {
    { .name = "-m", .alias = "--model", .value = "MODEL", .model = true,
      .help = "GGUF model on which to measure the methods; without it, list them" },
    { .name = "--method", .value = "NAME", .many = true, .help = "only this method, with its parameters" },
    { .name = "-C", .alias = "--config", .value = "CONFIG", .many = true,
      .help = "measure this config line; default: each method at its default parameters" },
    { .name = "--eval", .help = "also measure perplexity and KL divergence from the unquantized model" },
    { .name = "-f", .alias = "--file", .value = "TEXT", .help = "text for --eval; default: the model's text (`eval --set-text`)" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,
      .help = "tokens per window of --eval; default 512" },
    { .name = "--chunks", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "score at most N windows; default: all" },
    { .name = "--calib", .value = "FILE",
      .help = "text or calibration for methods that need one; default: the bundled text" },
    { .name = "--tensors", .help = "print one row for each tensor instead of each config" },
    { .name = NULL },
};
/* clang-format on */

/* ---------------------------------------------------------------- the list */

#define METHOD(member) MEMBER(struct method, member)
static const struct column LIST_COLUMNS[] = {
    COL("method", "method", METHOD(name)),
    COL("help", "what it does", METHOD(help)),
    COL("good", "good at", METHOD(good)),
    COL("bad", "bad at", METHOD(bad)),
    COL("formats", "formats"),
    COL("format", "format by default"),
    COL("bits", "bits per weight"),
    KEY("bits_per_weight", .kind = COLUMN_NUM),
    KEY("row_bits", .kind = COLUMN_INT),
    COL("calibration", "calibration"),
    COL("layers_only", "embedding and output"),
    KEY("parameters"),
};

DOCUMENT(METHODS, "qdyno.methods/1", LIST_COLUMNS);

static const char *const NEEDS[] = {
    [CALIBRATION_NONE] = "none",
    [CALIBRATION_OPTIONAL] = "optional",
    [CALIBRATION_NEEDED] = "needed",
};

/* The format that the default parameters make; NULL: the recipe must name one. */
static const struct format *default_format(const struct method *m)
{
    const struct params p = { m, "" };
    const char *name = method_format(&p);
    return name ? format_find(name) : NULL;
}

/* "4.25", "8 + 32/inputs" (bits per row besides those per weight), or the range over all its formats. */
static void put_bits(json_t *row, const struct method *m)
{
    const struct format *f = default_format(m);
    char text[64];
    double least = INFINITY, most = 0;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (!method_makes(m, &FORMATS[i])) continue;
        least = MIN(least, format_bits_per_weight(&FORMATS[i]));
        most = MAX(most, format_bits_per_weight(&FORMATS[i]));
    }
    int n = 0;
    if (f) {
        n = snprintf(text, sizeof text, "%.5g", format_bits_per_weight(f));
        if (f->row_tail_bytes)
            n += snprintf(text + n, sizeof text - (size_t)n, " + %u/inputs", 8 * f->row_tail_bytes);
        json_put_num(row, "bits_per_weight", format_bits_per_weight(f));
        json_put_int(row, "row_bits", 8 * (int64_t)f->row_tail_bytes);
    }
    if (least < most)
        snprintf(text + n, sizeof text - (size_t)n, "%s%.4g to %.4g%s", f ? " (" : "", least, most,
                 f ? ")" : "");
    json_put_str(row, "bits", text);
}

static void put_formats(json_t *row, const struct method *m)
{
    struct str names = { 0 };
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (method_makes(m, &FORMATS[i])) str_printf(&names, "%s%s", names.len ? " " : "", FORMATS[i].name);
    json_put_str(row, "formats", str_text(&names));
    str_free(&names);
}

static const char *parameter_values_text(const struct param *p, char *buf, size_t size)
{
    if (p->kind == VALUE_BOOL)
        snprintf(buf, size, "true or false");
    else if (p->choices)
        snprintf(buf, size, "%s", p->choices);
    else
        snprintf(buf, size, "%g to %g", p->min, p->max);
    return buf;
}

static json_t *parameters_to_json(const struct method *m)
{
    static const char *const KINDS[] = {
        [VALUE_INT] = "integer", [VALUE_REAL] = "number", [VALUE_BOOL] = "boolean", [VALUE_CHOICE] = "choice"
    };
    json_t *list = json_array();
    for (const struct param *p = m->params; p && p->name; p++) {
        char values[256];
        json_t *one = list_row(list);
        json_put_str(one, "name", p->name);
        json_put_str(one, "aliases", p->aliases);
        json_put_str(one, "kind", KINDS[p->kind]);
        json_put_str(one, "default", p->otherwise);
        json_put_str(one, "allowed", parameter_values_text(p, values, sizeof values));
        json_put_str(one, "help", p->help);
    }
    return list;
}

static void put_method(json_t *row, const struct method *m)
{
    const struct params p = { m, "" };
    const struct format *f = default_format(m);
    char needs[64];
    snprintf(needs, sizeof needs, "%s%s", NEEDS[method_needs(&p)],
             m->needs ? " (depends on parameters)" : "");
    document_put(&DOCUMENT_METHODS, row, struct method, m);
    put_formats(row, m);
    json_put_str(row, "format", f ? f->name : NULL);
    put_bits(row, m);
    json_put_str(row, "calibration", needs);
    json_put_str(row, "layers_only", m->linear_only ? "not quantized" : "quantized like the rest");
    json_put(row, "parameters", parameters_to_json(m));
}

static void note_parameters(struct table *t, const struct method *m)
{
    char values[256];
    for (const struct param *p = m->params; p && p->name; p++)
        table_note(t, "  %s=%s   %s%s%s%s%s", p->name, p->otherwise, p->help,
                   p->kind == VALUE_BOOL ? "" : "; ",
                   p->kind == VALUE_BOOL ? "" : parameter_values_text(p, values, sizeof values),
                   p->aliases ? "; also: " : "", p->aliases ? p->aliases : "");
}

static enum err_code find_methods(const struct method **out, size_t cap, size_t *n, const struct cli_args *a,
                                  struct err *why)
{
    const char *asked[ARGS_GIVEN], *names[64];
    const int count = args_all(a, "--method", asked, ARGS_GIVEN);
    size_t known = 0;
    *n = 0;
    for (size_t i = 0; i < method_count(); i++) {
        if (known < COUNT_OF(names)) names[known++] = method_at(i)->name;
        if (!count && *n < cap) out[(*n)++] = method_at(i);
    }
    for (int i = 0; i < count && *n < cap; i++) {
        const struct method *m = method_find(asked[i]);
        const char *near = m ? NULL : str_nearest(asked[i], names, known);
        if (!m)
            return err_set(why, ERR_USAGE, "--method %s: unknown method%s%s%s; `qdyno methods` lists all",
                           asked[i], near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
        out[(*n)++] = m;
    }
    return ERR_OK;
}

/* For people one list of properties for each method, for scripts one table. */
static int list_methods(const struct cli_global *g, const struct cli_args *a, const struct method **methods,
                        size_t n)
{
    int status = EXIT_DONE;
    struct table t;
    if (g->output != OUTPUT_MD) {
        table_init(&t, &DOCUMENT_METHODS);
        for (size_t i = 0; i < n; i++) put_method(table_row(&t), methods[i]);
        return cli_finish(g, a, &t, EXIT_DONE);
    }
    for (size_t i = 0; i < n && status == EXIT_DONE; i++) {
        table_init(&t, &DOCUMENT_METHODS);
        t.record = true;
        put_method(table_row(&t), methods[i]);
        note_parameters(&t, methods[i]);
        if (i) putchar('\n');
        status = cli_finish(g, a, &t, EXIT_DONE);
    }
    return status;
}

/* ---------------------------------------------------------------- measuring on a model */

static const struct column COLUMNS[] = {
    KEY("model"),
    COL("config", "config"),
    KEY("method"),
    COL("formats", "formats"),
    COL("bits_per_weight", "bits per weight", .kind = COLUMN_NUM, .digits = 3),
    COL("bits_quantized", "of quantized tensors", .kind = COLUMN_NUM, .digits = 3),
    KEY("weights", .kind = COLUMN_INT),
    COL("weight_bytes", "weights", .kind = COLUMN_BYTES),
    KEY("tensors", .kind = COLUMN_INT),
    COL("tensors_quantized", "tensors quantized", .kind = COLUMN_INT),
    COL("tensors_fell_back", "in another format", .kind = COLUMN_INT),
    COL("nmse", "NMSE", .kind = COLUMN_NUM, .digits = 7),
    COL("nmse_worst", "worst", .kind = COLUMN_NUM, .digits = 7),
    COL("worst_tensor", "worst tensor"),
    METRIC_COLUMN(METRIC_PERPLEXITY),
    COL("ppl_ratio", "ratio", .kind = COLUMN_NUM, .digits = 5),
    METRIC_COLUMN(METRIC_KLD),
    COL("kld_se", "+-", .kind = COLUMN_NUM, .digits = 6),
    COL("kld_p99", "p99", .kind = COLUMN_NUM, .digits = 6),
    COL("top1_ratio", "same top-1 %", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    KEY("calibration"),
    COL("quantize_s", "seconds to make", .kind = COLUMN_NUM, .digits = 2),
    CAUTION_KEYS,
    COL("error", "error"),
};

DOCUMENT(METHOD_ERRORS, "qdyno.method_errors/1", COLUMNS,
         .members = "reference.model reference.text reference.scored_tokens reference.perplexity");
const struct document DOCUMENT_METHOD_TENSORS = {
    .schema = "qdyno.method_tensors/1",
    .columns = RECIPE_TENSOR_COLUMNS,
    .n_columns = RECIPE_TENSOR_COLUMN_COUNT,
    .members = "reference.model reference.text reference.scored_tokens reference.perplexity",
};

struct measuring {
    const struct cli_global *g;
    const struct cli_args *a;
    struct table table;
    struct progress progress;
    char *path;
    struct gguf *source;
    char (*lines)[CONFIG_LINE]; /* [n_configs], as given */
    int config_i, n_configs, ok, threads;
    const char *line; /* of config_i */
    char *text;       /* NULL: no evaluation */
    size_t text_bytes;
    char *text_path; /* NULL: no evaluation */
    struct model *reference;
    struct logit_cache logit_cache;
    bool random, unverified, rescaled;
    struct err first;
};

static bool measuring_on_chunk(void *arg, int64_t chunk, int64_t of, double nll)
{
    struct measuring *m = arg;
    progress_report(&m->progress, PROGRESS_AT((double)chunk / (double)MAX(of, 1), NAN),
                    "%d/%d %.40s  window %lld/%lld  perplexity %.4f", m->config_i + 1, m->n_configs, m->line,
                    (long long)chunk, (long long)of, exp(nll));
    return !cli_is_interrupted(m->g);
}

/* A config that fails becomes a row with its error; the others go on. */
static void put_error(struct measuring *m, const struct err *why)
{
    json_t *row = table_row(&m->table);
    json_put_str(row, "model", cli_base_name(m->path));
    json_put_str(row, "config", m->line);
    json_put_str(row, args_has(m->a, "--tensors") ? "reason" : "error", why->message);
    if (!m->first.code) m->first = *why;
}

/* Measures perplexity and KL divergence of the quantized model against the reference. */
static enum err_code config_evaluate(struct measuring *m, const struct config *c, json_t *row,
                                     struct err *why)
{
    struct model *candidate = NULL;
    struct divergence d;
    const struct eval_request q = { .text = m->text,
                                    .n = m->text_bytes,
                                    .ctx = (int)args_int(m->a, "-c", 512),
                                    .max_chunks = args_int(m->a, "--chunks", 0),
                                    .progress = measuring_on_chunk,
                                    .arg = m,
                                    .logit_cache = m->n_configs > 1 ? &m->logit_cache : NULL };
    enum err_code rc = cli_model_open(&candidate, m->g, m->path, c, q.ctx, why);
    if (!rc) rc = eval_divergence(&d, m->reference, candidate, &q, why);
    model_close(candidate);
    if (rc) return rc;
    json_t *figures = divergence_to_json(&d);
    row_put_known(&m->table, row, figures);
    json_decref(figures);
    json_put_num(row, "ppl_ratio", exp(d.log_ratio));
    if (!json_object_get(m->table.extra, "reference")) {
        json_t *ref = json_object();
        json_put_str(ref, "model", cli_base_name(m->path));
        json_put_str(ref, "text", cli_base_name(m->text_path));
        json_put_int(ref, "scored_tokens", d.reference.scored);
        json_put_num(ref, "perplexity", d.reference.ppl);
        json_put(m->table.extra, "reference", ref);
        char label[TEXT_LABEL], sha256[HASH_HEX];
        hash_bytes(m->text, m->text_bytes, sha256);
        table_note(&m->table, "%s unquantized: perplexity %.4f on %lld tokens of %s", cli_base_name(m->path),
                   d.reference.ppl, (long long)d.reference.scored,
                   quality_text_label(label, m->text_path, sha256));
        cli_note_text(&m->table, m->path, sha256);
    }
    return ERR_OK;
}

static void put_tensors(struct measuring *m, const struct quantize_plan *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        json_t *row = table_row(&m->table);
        json_put_str(row, "config", m->line);
        recipe_put_tensor(row, &p->tensors[i]);
    }
}

/* Quantizes by the recipe (or finds the result in the cache) and measures the errors of all tensors. */
static enum err_code config_quantize(struct measuring *m, const struct config *c, struct quantize_plan *p,
                                     json_t *row, struct err *why)
{
    char *path = NULL;
    struct gguf *made = NULL;
    struct recipe_progress pace = {
        .progress = &m->progress, .global = m->g, .what = m->line, .weights = p->weights, .done = -1
    };
    const struct params params = config_params(c);
    if (method_needs(&params) != CALIBRATION_NONE) pace.at_first = "calibrating";
    const struct quantize_options o = { .config = c,
                                        .threads = m->threads,
                                        .progress = recipe_progress_show,
                                        .waiting = recipe_progress_wait,
                                        .ctx = &pace,
                                        .log = &m->g->log };
    const int64_t start = clock_ns();
    enum err_code rc = recipe_cached(&path, m->source, &o, why);
    if (!rc && pace.done >= 0) json_put_num(row, "quantize_s", (double)(clock_ns() - start) * 1e-9);
    if (!rc) rc = gguf_open(&made, path, why);
    if (!rc) {
        progress_show(&m->progress, "%.40s  comparing", m->line);
        rc = quantize_plan_measure(p, m->source, made, m->threads, why);
    }
    const struct gguf_string with = made ? gguf_get_string(made, "qdyno.calibration")
                                         : (struct gguf_string){ 0 };
    if (!rc && with.data) json_put(row, "calibration", json_stringn(with.data, with.len));
    gguf_close(made);
    free(path);
    return rc;
}

/* The error if no tensor has rows of whole blocks. */
static enum err_code error_no_row_fits(const struct config *c, struct err *why)
{
    const struct format *f = format_find(config_text(c, KNOB_FORMAT));
    if (!f)
        return err_set(why, ERR_USAGE,
                       "no row of this model is a whole number of blocks of the recipe's formats");
    return err_set(why, ERR_USAGE, "no row of this model is a whole number of %s's blocks of %u%s", f->name,
                   f->block_weights,
                   format_group_bits(f) ? "; smaller groups may fit (group_size=32 or 64)" : "");
}

static enum err_code config_measure_plan(struct measuring *m, const struct config *c, struct quantize_plan *p,
                                         struct err *why)
{
    json_t *row = json_object();
    enum err_code rc = ERR_OK;
    if (!recipe_is_identity(c, m->source)) rc = config_quantize(m, c, p, row, why);
    json_put_str(row, "model", cli_base_name(m->path));
    json_put_str(row, "config", m->line);
    json_put_str(row, "method", config_text(c, KNOB_METHOD));
    cli_put_cautions(row, m->random, m->unverified);
    recipe_put_plan(row, p);
    if (!rc && !json_get_int(row, "tensors_quantized", 0) && !recipe_is_identity(c, m->source))
        rc = error_no_row_fits(c, why);
    if (!rc && m->text) rc = config_evaluate(m, c, row, why);
    for (int64_t i = 0; i < p->count; i++) m->rescaled |= p->tensors[i].nmse_rescaled;
    if (!rc && args_has(m->a, "--tensors"))
        put_tensors(m, p);
    else if (!rc)
        row_put_known(&m->table, table_row(&m->table), row);
    json_decref(row);
    return rc;
}

/* Measures config number config_i. Only ERR_CANCELLED is returned as an error; others become a row. */
static enum err_code config_measure(struct measuring *m)
{
    struct config c;
    struct quantize_plan plan = { 0 };
    struct err why = { 0 };
    const char *calib = args_text(m->a, "--calib", NULL);
    m->line = m->lines[m->config_i];
    enum err_code rc = cli_config(&c, m->a, m->line, &why);
    const struct params p = config_params(&c);
    if (!rc && calib && !c.given[KNOB_CALIB] && method_needs(&p) != CALIBRATION_NONE)
        rc = config_set(&c, "calib", calib, &why);
    if (!rc && c.given[KNOB_MODEL])
        rc = err_set(&why, ERR_USAGE, "model= is not allowed in a config here: -m names the model");
    if (!rc) rc = quantize_plan_init(&plan, m->source, &c, &why);
    if (!rc) rc = config_measure_plan(m, &c, &plan, &why);
    quantize_plan_done(&plan);
    if (rc == ERR_CANCELLED) return rc;
    if (rc)
        put_error(m, &why);
    else
        m->ok++;
    return ERR_OK;
}

static enum err_code measuring_add_line(struct measuring *m, const char *line, struct err *why)
{
    struct config c;
    enum err_code rc = config_parse(&c, line, why);
    if (!rc) config_line(&c, m->lines[m->n_configs++], CONFIG_LINE);
    return rc;
}

/* The -C lines. Without any: each method with its default parameters; methods that can make every format
 * appear with q8_0 and q4_0. */
static enum err_code measuring_choose_lines(struct measuring *m, const struct method **methods, size_t n,
                                            struct err *why)
{
    static const char *const ANY[] = { "q8_0", "q4_0" };
    const char *given[ARGS_GIVEN];
    const int count = args_all(m->a, "-C", given, ARGS_GIVEN);
    m->lines = calloc(MAX(n * COUNT_OF(ANY), ARGS_GIVEN), sizeof *m->lines);
    enum err_code rc = m->lines ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the configs");
    for (int i = 0; i < count && !rc; i++) rc = measuring_add_line(m, given[i], why);
    for (size_t i = 0; i < n && !count && !rc; i++) {
        const bool fixed = default_format(methods[i]) != NULL;
        for (size_t f = 0; f < (fixed ? 1 : COUNT_OF(ANY)) && !rc; f++) {
            char line[128];
            snprintf(line, sizeof line, "%s%s%s", methods[i]->name, fixed ? "" : ":", fixed ? "" : ANY[f]);
            rc = measuring_add_line(m, line, why);
        }
    }
    return rc;
}

/* Opens the unquantized model, computed in f32 unless a flag sets the precision. */
static enum err_code measuring_open_reference(struct measuring *m, struct err *why)
{
    struct config c;
    enum err_code rc = cli_config(&c, m->a, NULL, why);
    if (!rc && !c.given[KNOB_PRECISION]) rc = config_set(&c, "precision", "highest", why);
    return rc ? rc : cli_model_open(&m->reference, m->g, m->path, &c, (int)args_int(m->a, "-c", 512), why);
}

static enum err_code measuring_read_text(struct measuring *m, struct err *why)
{
    enum { LIMIT = 1 << 30 };
    const char *given = args_text(m->a, "-f", NULL);
    enum err_code rc = ERR_OK;
    if (!given && !args_has(m->a, "--eval")) return ERR_OK;
    if (!given)
        rc = cli_quality_text(&m->text_path, m->g, m->path, why);
    else if (!(m->text_path = strdup(given)))
        rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = file_read(&m->text, &m->text_bytes, m->text_path, LIMIT, why);
    return rc ? rc : measuring_open_reference(m, why);
}

static enum err_code measuring_init(struct measuring *m, const struct method **methods, size_t n,
                                    struct err *why)
{
    struct model_shape shape;
    struct config first;
    enum err_code rc = cli_model(&m->path, m->a, why);
    if (!rc) rc = model_file_open(&m->source, m->path, why);
    if (!rc) rc = measuring_choose_lines(m, methods, n, why);
    if (!rc) rc = cli_config(&first, m->a, NULL, why);
    if (rc) return rc;
    m->threads = (int)config_int(&first, KNOB_THREADS);
    if (!m->threads) m->threads = threadpool_default_threads();
    if (!model_shape_read(&shape, m->source, NULL)) {
        m->random = shape.random_weights;
        m->unverified = shape.unknown > 0;
    }
    return measuring_read_text(m, why);
}

static int measure_methods(const struct cli_global *g, const struct cli_args *a,
                           const struct method **methods, size_t n)
{
    struct err why = { 0 };
    struct measuring *m = calloc(1, sizeof *m);
    if (!m) return cli_fail_memory(a);
    m->g = g;
    m->a = a;
    if (args_has(a, "--tensors"))
        table_init(&m->table, &DOCUMENT_METHOD_TENSORS);
    else
        table_init(&m->table, &DOCUMENT_METHOD_ERRORS);
    progress_init(&m->progress, g);
    enum err_code rc = measuring_init(m, methods, n, &why);
    for (; m->config_i < m->n_configs && !rc; m->config_i++) {
        rc = cli_is_interrupted(g) ? err_set(&why, ERR_CANCELLED, "interrupted") : config_measure(m);
        if (rc == ERR_CANCELLED)
            err_set(&why, rc, "interrupted after %d of %d configs", m->config_i, m->n_configs);
    }
    progress_clear(&m->progress);
    if (m->rescaled) recipe_note_rescaled(&m->table);
    cli_note_cautions(&m->table, m->random, m->unverified);
    if (m->ok || (rc == ERR_CANCELLED && m->config_i)) cli_print(g, a, &m->table, EXIT_DONE);
    int status = rc ? cli_fail(a, &why) : m->ok ? EXIT_DONE : cli_fail(a, &m->first);
    logit_cache_done(&m->logit_cache);
    model_close(m->reference);
    table_done(&m->table);
    gguf_close(m->source);
    free(m->lines);
    free(m->path);
    free(m->text);
    free(m->text_path);
    free(m);
    return status;
}

int command_methods(const struct cli_global *g, const struct cli_args *a)
{
    enum { MOST = 128 };
    const struct method *methods[MOST];
    struct err why = { 0 };
    size_t n;
    if (find_methods(methods, MOST, &n, a, &why)) return cli_fail(a, &why);
    const bool measure = args_has(a, "-m") || args_has(a, "-C") || args_has(a, "--eval") ||
                         args_has(a, "-f") || args_has(a, "--tensors");
    return measure ? measure_methods(g, a, methods, n) : list_methods(g, a, methods, n);
}
