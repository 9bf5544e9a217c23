/* qdyno models: every model on this machine, whether it runs and fits here, how fast it should be, and how
 * fast it was. What asks the hub is in command_models_hub.c, what was measured in command_models_measured.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advisor/models/models.h"
#include "advisor/predict/predict.h"
#include "engine/arch/arch.h"
#include "engine/quant/quant.h"
#include "tui/cli/command_models_hub.h"
#include "tui/cli/command_models_measured.h"
#include "tui/cli/commands.h"

static const char *const SORTS[] = { "name", "size", "params", "decode", "prefill", "measured", "kld", NULL };
static const char *const TARGETS[] = { "ollama", NULL };

/* clang-format off */
const struct cli_flag FLAGS_MODELS[] = {
    { .name = "--fits", .help = "only models that fit into the memory that is available now" },
    { .name = "--runs", .help = "only models that qdyno can run" },
    { .name = "--sort", .value = "KEY", .kind = FLAG_CHOICE, .choices = SORTS,
      .help = "by name, size, params (parameters), decode, prefill (predicted), measured or kld; default name" },
    { .name = "--dir", .value = "DIR", .many = true,
      .help = "look in this folder, too (also: QDYNO_MODELS, several separated by colons)" },
    { .name = "--search", .value = "TEXT", .exclusive = true, .help = "ask the hub for repositories with GGUF files instead" },
    { .name = "--limit", .value = "N", .needs = "--search", .kind = FLAG_INT, .min = 1, .max = 1000,
      .help = "with --search: at most N repositories; default 20" },
    { .name = "--remote", .value = "OWNER/REPO", .exclusive = true,
      .help = "list the files of a repository instead, predicted from their headers before a download" },
    { .name = "--pull", .value = "NAME", .exclusive = true, .help = "fetch a model into the cache of its store (ollama: into qdyno's data folder)" },
    { .name = "--into", .value = "STORE", .needs = "--pull", .kind = FLAG_CHOICE, .choices = TARGETS,
      .help = "with --pull ollama:NAME: into Ollama's store" },
    { .name = NULL },
};
/* clang-format on */

#define ENTRY(member) MEMBER(struct model_entry, member)
static const struct column COLUMNS[] = {
    COL("name", "model", .keep = true, ENTRY(name)),
    COL("source", "source"),
    COL("kind", "kind"),
    COL("arch", "architecture", ENTRY(header.arch)),
    COL("params", "M parameters", .kind = COLUMN_NUM, .scale = 1e-6, .digits = 1),
    COL("quantization", "quantization", .keep = true, ENTRY(header.quantization)),
    COL("bytes", "size", .kind = COLUMN_BYTES, .keep = true, ENTRY(bytes)),
    COL("runs", "runs", .kind = COLUMN_BOOL, .keep = true),
    COL("fits", "fits", .kind = COLUMN_BOOL, .keep = true),
    COL("missing_bytes", "missing", .kind = COLUMN_BYTES),
    COL("decode_tok_s", "decode tok/s", .kind = COLUMN_NUM, .digits = 1, .keep = true),
    COL("decode_low_tok_s", "decode from", .kind = COLUMN_NUM, .digits = 1),
    COL("decode_high_tok_s", "to", .kind = COLUMN_NUM, .digits = 1),
    COL("prefill_tok_s", "prompt tok/s", .kind = COLUMN_NUM),
    COL("prefill_low_tok_s", "prompt from", .kind = COLUMN_NUM),
    COL("prefill_high_tok_s", "to", .kind = COLUMN_NUM),
    COL("measured_decode_tok_s", "measured decode", .kind = COLUMN_NUM, .digits = 1),
    COL("measured_prefill_tok_s", "measured prompt", .kind = COLUMN_NUM),
    COL("measured_run", "run", .kind = COLUMN_INT),
    COL("kld_mean", "KLD, nats", .kind = COLUMN_NUM, .digits = 4),
    KEY("measured_config"),
    KEY("measured_decode_workload"),
    KEY("measured_prefill_workload"),
    KEY("kld_reference"),
    KEY("kld_run", .kind = COLUMN_INT),
    KEY("problem", ENTRY(header.why)),
    KEY("store"),
    KEY("path", ENTRY(path)),
    KEY("also"),
    KEY("title", ENTRY(header.title)),
    KEY("quantization_source", ENTRY(header.quantization_source)),
    KEY("quantization_note", ENTRY(header.quantization_note)),
    KEY("dominant_format", ENTRY(header.dominant_format)),
    KEY("ctx_train", .kind = COLUMN_INT),
    KEY("shards", ENTRY(shards)),
    KEY("shards_here", ENTRY(shards_here)),
    KEY("checkpoint", ENTRY(checkpoint)),
    KEY("chat_template", ENTRY(header.chat_template)),
    KEY("random_weights", ENTRY(header.random_weights)),
    KEY("sha256", ENTRY(sha256)),
    KEY("total_bytes", .kind = COLUMN_BYTES),
    KEY("ctx", .kind = COLUMN_INT),
};

DOCUMENT(MODELS, "qdyno.models/1", COLUMNS,
         .members = "available_bytes predicted listed shown headers_read headers_cached "
                    "skipped.dangling skipped.unreadable skipped.manifest skipped.deep skipped.many");

/* Figures of a header that the cache keeps (struct model_header). */
enum {
    FIGURE_TOTAL, /* bytes of the memory plan */
    FIGURE_CTX,   /* context of that plan */
    FIGURE_DECODE,
    FIGURE_DECODE_LOW,
    FIGURE_DECODE_HIGH,
    FIGURE_PREFILL,
    FIGURE_PREFILL_LOW,
    FIGURE_PREFILL_HIGH,
    FIGURE_GPU, /* 1: speeds are those of the GPU, and it holds the plan */
    FIGURES_USED
};
_Static_assert((int)FIGURES_USED <= (int)MODEL_FIGURES, "figures of a row of `qdyno models`");

struct listing {
    const struct cli_global *g;
    const struct cli_args *a;
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    struct db *db; /* NULL: there is none */
    struct correction *correction;
    char basis[256]; /* of the figures */
    struct progress progress;
    struct measured_models measured;
    int beyond; /* rows that the filters left out */
};

/* ---------------------------------------------------------------- figures */

/* The memory plan of `fit` and the prediction of `advise`, of the file as it is. */
static enum err_code figures_read(void *ctx, struct model_entry *e, const struct gguf *g)
{
    const struct listing *l = ctx;
    struct predict_for what = { .on_gpu = l->ceilings.gpu.read_bytes_s > 0, .correction = l->correction };
    double *f = e->header.figure;
    struct config plain;
    struct memory_plan plan;
    struct prediction p;
    struct err why = { 0 };
    const int64_t usual = e->header.ctx_train > 0 ? MIN(e->header.ctx_train, (int64_t)4096) : 4096;
    config_default(&plain);
    enum err_code rc = recipe_plan_memory(&plan, g, &plain, (int)usual, 1, &why);
    if (rc) return rc;
    f[FIGURE_TOTAL] = (double)plan.total;
    f[FIGURE_CTX] = plan.ctx;
    if (!l->ceilings_known) return ERR_OK;
    rc = predict(&p, g, &plain, &l->machine, &l->ceilings, &what, &why);
    if (what.on_gpu && (rc || !p.fits)) { /* as `qdyno advise` does */
        what.on_gpu = false;
        rc = predict(&p, g, &plain, &l->machine, &l->ceilings, &what, &why);
    }
    if (rc) return rc;
    f[FIGURE_GPU] = what.on_gpu;
    f[FIGURE_DECODE] = p.decode_tok_s.estimate;
    f[FIGURE_DECODE_LOW] = p.decode_tok_s.lower;
    f[FIGURE_DECODE_HIGH] = p.decode_tok_s.upper;
    f[FIGURE_PREFILL] = p.prefill_tok_s.estimate;
    f[FIGURE_PREFILL_LOW] = p.prefill_tok_s.lower;
    f[FIGURE_PREFILL_HIGH] = p.prefill_tok_s.upper;
    return ERR_OK;
}

static bool listing_goes_on(void *ctx, int done, int of)
{
    struct listing *l = ctx;
    if (done % 16 == 15)
        progress_report(&l->progress, PROGRESS_AT((double)done / of, NAN), "reading headers: %d of %d", done,
                        of);
    return !cli_is_interrupted(l->g);
}

/* What predictions depend on beside the file. */
static void put_basis(struct listing *l)
{
    struct residual_row *newest = NULL;
    int n = 0;
    char basis[96], experts[48];
    struct err ignored;
    if (!l->ceilings_known) {
        snprintf(l->basis, sizeof l->basis, "no limits");
        return;
    }
    correction_basis(&l->ceilings, basis, sizeof basis);
    if (l->db && db_residual_list(l->db, l->machine.id, basis, 1, &newest, &n, &ignored)) n = 0;
    snprintf(l->basis, sizeof l->basis, "%s %s %lld %s", l->machine.id, basis,
             (long long)(n ? newest[0].id : 0), stored_experts_state(experts, sizeof experts));
    free(newest);
}

/* Reads the machine and the database; measures nothing. */
static enum err_code listing_init(struct listing *l, struct err *why)
{
    struct err none;
    enum err_code rc = cli_machine(l->g, PROBE_CACHED, &l->machine, &l->ceilings, &l->ceilings_known, why);
    if (rc) return rc;
    if (!l->ceilings_known) memset(&l->ceilings, 0, sizeof l->ceilings);
    if (db_open_reader(&l->db, l->g->db_path, 1000, &none)) l->db = NULL; /* nothing was measured yet */
    put_basis(l);
    if (args_has(l->a, "--fits") && predict_memory(&l->machine, &l->ceilings, false) < 0)
        return err_set(why, ERR_USAGE,
                       "--fits: this system does not say how much memory is available: leave --fits out, and "
                       "compare the sizes yourself");
    if (l->ceilings_known) rc = correction_load(&l->correction, l->db, l->machine.id, &l->ceilings, why);
    if (!rc && l->db) rc = measured_models_load(&l->measured, l->db, why);
    return rc;
}

/* ---------------------------------------------------------------- rows */

static bool contains(const char *text, const char *part)
{
    return text && strcasestr(text, part);
}

/* Memory where the speeds of this row are predicted; -1: unknown. */
static int64_t memory_for(const struct listing *l, const struct model_entry *e)
{
    return predict_memory(&l->machine, &l->ceilings, e->header.figure[FIGURE_GPU] > 0);
}

static bool does_fit(const struct listing *l, const struct model_entry *e)
{
    return e->header.figure[FIGURE_TOTAL] <= (double)memory_for(l, e);
}

/* The filters of the command line. */
static bool is_wanted(const struct listing *l, const struct model_entry *e)
{
    const char *text = l->a->n ? l->a->arg[0] : "";
    const struct model_header *h = &e->header;
    const bool named = contains(e->name, text) || contains(e->also, text) || contains(h->arch, text) ||
                       contains(h->title, text) || contains(h->quantization, text) ||
                       contains(MODEL_STORES[e->store].title, text);
    return named && (!args_has(l->a, "--runs") || h->runs) && (!args_has(l->a, "--fits") || does_fit(l, e));
}

static void put_figures(json_t *row, const struct listing *l, const struct model_entry *e)
{
    static const struct {
        const char *key;
        int figure;
    } SPEEDS[] = {
        { "decode_tok_s", FIGURE_DECODE },           { "decode_low_tok_s", FIGURE_DECODE_LOW },
        { "decode_high_tok_s", FIGURE_DECODE_HIGH }, { "prefill_tok_s", FIGURE_PREFILL },
        { "prefill_low_tok_s", FIGURE_PREFILL_LOW }, { "prefill_high_tok_s", FIGURE_PREFILL_HIGH }
    };
    const double *f = e->header.figure, have = (double)memory_for(l, e);
    for (size_t i = 0; i < COUNT_OF(SPEEDS); i++) json_put_num(row, SPEEDS[i].key, f[SPEEDS[i].figure]);
    if (isnan(f[FIGURE_TOTAL])) return;
    json_put_int(row, "total_bytes", (int64_t)f[FIGURE_TOTAL]);
    json_put_int(row, "ctx", (int64_t)f[FIGURE_CTX]);
    if (have < 0) return; /* unknown */
    json_put_bool(row, "fits", does_fit(l, e));
    if (!does_fit(l, e)) json_put_int(row, "missing_bytes", (int64_t)(f[FIGURE_TOTAL] - have));
}

static void put_also(json_t *row, const char *also)
{
    json_t *list = json_array();
    for (const char *p = also ? also : ""; *p;) {
        const size_t n = strcspn(p, "\n");
        json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] == '\n');
    }
    json_put(row, "also", list);
}

static void put_measured(json_t *row, const struct listing *l, const struct model_entry *e)
{
    struct measured_model m;
    if (!l->db || !measured_model_find(&m, &l->measured, l->db, e, l->machine.id)) return;
    json_put_num(row, "measured_decode_tok_s", m.decode_tok_s);
    json_put_num(row, "measured_prefill_tok_s", m.prefill_tok_s);
    if (m.run) json_put_int(row, "measured_run", m.run);
    json_put_str(row, "measured_config", m.run ? m.config : NULL);
    json_put_str(row, "measured_decode_workload", *m.decode_workload ? m.decode_workload : NULL);
    json_put_str(row, "measured_prefill_workload", *m.prefill_workload ? m.prefill_workload : NULL);
    json_put_num(row, "kld_mean", m.kld);
    if (m.kld_run) json_put_int(row, "kld_run", m.kld_run);
    json_put_str(row, "kld_reference", m.kld_run ? m.kld_reference : NULL);
}

static void add_row(struct table *t, const struct listing *l, const struct model_entry *e)
{
    const struct model_header *h = &e->header;
    json_t *row = table_row(t);
    document_put(&DOCUMENT_MODELS, row, struct model_entry, e);
    json_put_str(row, "source", MODEL_STORES[e->store].title);
    json_put_str(row, "store", *MODEL_STORES[e->store].prefix ? MODEL_STORES[e->store].prefix : "folder");
    json_put_str(row, "kind",
                 e->checkpoint && e->kind == MODEL_WEIGHTS ? "checkpoint" : MODEL_KIND_NAMES[e->kind]);
    if (h->params) json_put_int(row, "params", h->params);
    if (h->ctx_train) json_put_int(row, "ctx_train", h->ctx_train);
    if (e->kind == MODEL_WEIGHTS || e->kind == MODEL_OTHER) json_put_bool(row, "runs", h->runs);
    put_also(row, e->also);
    put_figures(row, l, e);
    put_measured(row, l, e);
}

/* ---------------------------------------------------------------- order */

/* The value of a row to sort by, largest first, and smallest first for losses. */
static double sort_value(const json_t *row, const char *key)
{
    static const struct {
        const char *sort, *key;
        double sign;
    } KEYS[] = { { "size", "bytes", 1 },
                 { "params", "params", 1 },
                 { "decode", "decode_tok_s", 1 },
                 { "prefill", "prefill_tok_s", 1 },
                 { "measured", "measured_decode_tok_s", 1 },
                 { "kld", "kld_mean", -1 } };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++)
        if (!strcmp(KEYS[i].sort, key)) {
            const json_t *v = json_object_get(row, KEYS[i].key);
            return json_is_number(v) ? KEYS[i].sign * json_number_value(v) : -INFINITY;
        }
    return NAN;
}

struct sorted_row {
    double value;
    size_t at;
    json_t *row;
};

static int by_value(const void *a, const void *b)
{
    const struct sorted_row *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static enum err_code sort_rows(struct table *t, const char *key, struct err *why)
{
    const size_t n = json_array_size(t->rows);
    if (!strcmp(key, "name") || n < 2) return ERR_OK; /* the list is by store and name */
    struct sorted_row *s = calloc(n, sizeof *s);
    json_t *sorted = json_array();
    if (!s) {
        json_decref(sorted);
        return err_set(why, ERR_NOMEM, "out of memory for %zu rows", n);
    }
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(t->rows, i);
        s[i] = (struct sorted_row){ .value = sort_value(row, key), .at = i, .row = row };
    }
    qsort(s, n, sizeof *s, by_value);
    for (size_t i = 0; i < n; i++) json_array_append(sorted, s[i].row);
    json_decref(t->rows);
    t->rows = sorted;
    free(s);
    return ERR_OK;
}

/* ---------------------------------------------------------------- notes */

static void put_skipped(struct table *t, const struct model_list *list)
{
    static const char *const NAMES[SKIPPED_COUNT] = { [SKIPPED_DANGLING] = "dangling",
                                                      [SKIPPED_UNREADABLE] = "unreadable",
                                                      [SKIPPED_MANIFEST] = "manifest",
                                                      [SKIPPED_DEEP] = "deep",
                                                      [SKIPPED_MANY] = "many" };
    char text[400];
    json_t *skipped = json_object();
    for (int i = 0; i < SKIPPED_COUNT; i++) json_put_int(skipped, NAMES[i], list->skipped[i]);
    json_put(t->extra, "skipped", skipped);
    if (models_skipped_text(list, text, sizeof text)) table_note(t, "%s", text);
}

/* Why models do not run; one line for each, and a count of the rest. */
static void note_problems(struct table *t)
{
    enum { SHOWN = 10 };
    int more = 0, shown = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(t->rows, i, row)
    {
        const char *problem = json_get_str(row, "problem", "");
        if (!*problem || json_get_bool(row, "runs", true)) continue;
        if (shown++ < SHOWN)
            table_note(t, "%s: %s", json_get_str(row, "name", ""), problem);
        else
            more++;
    }
    if (more) table_note(t, "%d more do not run; -o json has the reasons", more);
}

/* Losses against different files cannot be compared: the table says which file each is against. */
static void note_references(struct table *t)
{
    enum { SHOWN = 10 };
    int count = 0;
    size_t i;
    const json_t *row;
    json_array_foreach(t->rows, i, row)
    {
        const char *reference = json_get_str(row, "kld_reference", "");
        if (*reference && count++ < SHOWN)
            table_note(t, "KLD of %s: against %s", json_get_str(row, "name", ""), reference);
    }
    if (count > SHOWN) table_note(t, "%d more have a KLD; -o json has their references", count - SHOWN);
}

static void note_quantizations(struct table *t)
{
    size_t i;
    const json_t *row;
    json_array_foreach(t->rows, i, row)
    {
        const char *note = json_get_str(row, "quantization_note", "");
        if (*note) table_detail(t, "%s: quantization: %s", json_get_str(row, "name", ""), note);
        const json_t *other;
        size_t k;
        json_array_foreach(json_object_get(row, "also"), k, other)
        {
            table_detail(t, "%s: also %s", json_get_str(row, "name", ""), json_string_value(other));
        }
    }
}

static void put_notes(struct table *t, const struct listing *l, const struct model_list *list)
{
    char bytes[16];
    const int shown = (int)json_array_size(t->rows);
    json_put_int(t->extra, "available_bytes", l->machine.memory_available_bytes);
    json_put_bool(t->extra, "predicted", l->ceilings_known);
    json_put_int(t->extra, "listed", list->n);
    json_put_int(t->extra, "shown", shown);
    json_put_int(t->extra, "headers_read", list->files_read);
    json_put_int(t->extra, "headers_cached", list->files_cached);
    if (!list->n)
        table_note(t,
                   "no models found: `qdyno models --search TEXT` asks the hub, `qdyno models --pull NAME` "
                   "fetches one, --dir DIR looks in another folder");
    else if (!shown)
        table_note(t, "none of %d models matches the filters", list->n);
    note_problems(t);
    note_references(t);
    note_quantizations(t);
    put_skipped(t, list);
    if (!shown) return;
    table_note(t, "fits: the plan of `qdyno fit` for a context of at most 4096 tokens, with %s available now",
               str_from_bytes(l->machine.memory_available_bytes, bytes, sizeof bytes));
    if (l->ceilings.gpu.read_bytes_s > 0)
        table_note(t, "models that fit into the GPU's %s are predicted there, the others on the CPU",
                   str_from_bytes(predict_memory(&l->machine, &l->ceilings, true), bytes, sizeof bytes));
    if (l->ceilings_known)
        table_note(t, "decode and prompt tok/s: predicted for the default config, with a 90 %% interval");
    else
        table_note(t,
                   "no speeds are predicted: the limits of this machine were never measured; `qdyno detect "
                   "--probe` measures them (about 10 s)");
}

static int models_list(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct table t;
    struct listing l = { .g = g, .a = a };
    struct model_list list = { .n = 0 };
    const char *dir[ARGS_GIVEN];
    table_init(&t, &DOCUMENT_MODELS);
    progress_init(&l.progress, g);
    enum err_code rc = listing_init(&l, &why);
    const struct models_options o = { .dir = dir,
                                      .dirs = args_all(a, "--dir", dir, ARGS_GIVEN),
                                      .figures = figures_read,
                                      .ctx = &l,
                                      .basis = l.basis,
                                      .goes_on = listing_goes_on };
    if (!rc) rc = models_find(&list, &o, &why);
    progress_clear(&l.progress);
    for (int i = 0; i < list.n && !rc; i++)
        if (is_wanted(&l, &list.row[i])) add_row(&t, &l, &list.row[i]);
    if (!rc) rc = sort_rows(&t, args_text(a, "--sort", SORTS[0]), &why);
    if (!rc) put_notes(&t, &l, &list);
    models_done(&list);
    measured_models_free(&l.measured);
    correction_free(l.correction);
    db_close(l.db);
    if (!rc) return cli_finish(g, a, &t, EXIT_DONE);
    table_done(&t);
    return cli_fail(a, &why);
}

/* Filters, order and folders are of the list of this machine. */
static enum err_code check_alone(const struct cli_args *a, const char *flag, struct err *why)
{
    static const char *const OF_LIST[] = { "--fits", "--runs", "--sort", "--dir" };
    const char *beside = a->n ? a->arg[0] : NULL;
    for (size_t i = 0; i < COUNT_OF(OF_LIST) && !beside; i++)
        if (args_has(a, OF_LIST[i])) beside = OF_LIST[i];
    return beside ? err_set(why, ERR_USAGE, "%s does not list the models of this machine: leave '%s' out",
                            flag, beside)
                  : ERR_OK;
}

int command_models(const struct cli_global *g, const struct cli_args *a)
{
    static const struct {
        const char *flag;
        int (*run)(const struct cli_global *g, const struct cli_args *a, const char *text);
    } OTHERS[] = { { "--search", models_search }, { "--remote", models_remote }, { "--pull", models_pull } };
    struct err why = { 0 };
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++) {
        if (!args_has(a, OTHERS[i].flag)) continue;
        if (check_alone(a, OTHERS[i].flag, &why)) return cli_fail(a, &why);
        return OTHERS[i].run(g, a, args_text(a, OTHERS[i].flag, ""));
    }
    return models_list(g, a);
}
