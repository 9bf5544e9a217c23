/* tui/dashboard/jobs_results.c - reads what the database holds about the model on screen, over all runs:
 * quality, request latencies, sensitivity of tensors.
 *
 * Rows name their model by its hash. Small model files are hashed to find them. Hashing a large file would
 * take minutes, so its rows are found by the path it had when it was run. */
#include "tui/dashboard/background.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"
#include "engine/import/import.h"

enum { MODELS = 64, MOST_CELLS = 400 };

struct result_reader {
    struct db *d;
    const char *path;
    char real[PATH_MAX]; /* of the model on screen */
    char sha[MODELS][HASH_HEX];
    int models;
    struct quality_text text; /* of the model */
    struct quality_results quality;
    struct load_results load;
    struct sensitivity sensitivity;
    struct gathered {
        float *ttft, *itl;
        int n_ttft, n_itl;
        double prompt_tokens, prefill_s, gen_tokens, decode_s;
    } gathered[LOAD_RESULTS];
};

/* Collect the hashes of all models at this path: quantized results of a file have their own hash but its
 * path. */
static enum err_code result_on_model(void *ctx, const char *sha256, const char *path, struct err *why)
{
    struct result_reader *r = ctx;
    char real[PATH_MAX];
    (void)why;
    const bool same = !strcmp(path, r->path) || (*r->real && realpath(path, real) && !strcmp(real, r->real));
    if (same && r->models < MODELS) snprintf(r->sha[r->models++], HASH_HEX, "%s", sha256);
    return ERR_OK;
}

/* Hash the file itself, once: a model that was never run here has no row with its path. */
static void result_add_own_hash(struct background *b, struct result_reader *r, int64_t bytes)
{
    enum { SMALL = 256 << 20 };
    struct gguf *g = NULL;
    struct err why;
    if (bytes <= 0 || bytes > SMALL) return;
    if (strcmp(b->hashed_path, r->path) != 0) {
        b->hashed[0] = '\0';
        if (!model_file_open(&g, r->path, &why) && gguf_hash(g, b->hashed, &why)) b->hashed[0] = '\0';
        gguf_close(g);
        snprintf(b->hashed_path, sizeof b->hashed_path, "%s", r->path);
    }
    for (int i = 0; i < r->models; i++)
        if (!strcmp(r->sha[i], b->hashed)) return;
    if (b->hashed[0] && r->models < MODELS) snprintf(r->sha[r->models++], HASH_HEX, "%s", b->hashed);
}

/* The text of the first of these models that has a chosen one, or else the bundled one. */
static enum err_code result_read_text(struct result_reader *r, struct err *why)
{
    enum err_code rc = quality_text_of_hash(&r->text, r->d, "", r->path, why);
    for (int i = 0; i < r->models && !rc && !r->text.chosen; i++)
        rc = quality_text_of_hash(&r->text, r->d, r->sha[i], r->path, why);
    return rc;
}

/* ---------------------------------------------------------------- quality */

/* Whether two results answer the same question, so that only the newer one counts. */
static bool quality_same_question(const struct quality_result *a, const struct quality_result *b)
{
    return !strcmp(a->config, b->config) && !strcmp(a->reference, b->reference) &&
           !strcmp(a->text, b->text) && a->foreign == b->foreign && a->ctx == b->ctx &&
           a->windows == b->windows;
}

/* A search keeps the loss of an answer, its error and the text, and no other figures. Its reference is always
 * the unchanged file. */
static void quality_of_search(struct quality *known, const struct model_cell *c, const json_t *worker)
{
    static const struct interval UNKNOWN = { (double)NAN, (double)NAN, (double)NAN };
    const double half = 1.96 * c->error;
    *known = (struct quality){ .known = true, .top1 = UNKNOWN, .ppl = UNKNOWN, .ppl_ratio = UNKNOWN };
    known->kld = (struct interval){ c->value, fmax(c->value - half, 0), c->value + half };
    if (isnan(half)) known->kld.lower = known->kld.upper = NAN;
    snprintf(known->text, sizeof known->text, "%s", json_get_str(worker, "file", ""));
    snprintf(known->text_sha256, sizeof known->text_sha256, "%s", json_get_str(worker, "text_sha256", ""));
}

/* Cells come newest first, so an older result for the same question is skipped. */
static enum err_code result_on_quality(void *ctx, const struct model_cell *c, struct err *why)
{
    struct result_reader *r = ctx;
    struct quality_results *q = &r->quality;
    struct quality known;
    json_t *o = NULL;
    (void)why;
    if (q->count == QUALITY_RESULTS || json_parse(&o, c->worker_json, strlen(c->worker_json), NULL))
        return ERR_OK;
    const bool search = !strcmp(c->kind, "tune");
    quality_from_json(&known, o);
    if (search && !isfinite(known.kld.estimate)) quality_of_search(&known, c, o);
    struct quality_result l = { .run_id = c->run_id,
                                .measured_ms = c->started_ms,
                                .ctx = known.ctx,
                                .windows = known.figures.candidate.chunks,
                                .kld = known.kld,
                                .top1 = known.top1,
                                .ppl = known.ppl,
                                .ppl_ratio = known.ppl_ratio,
                                .foreign = !quality_text_is(&r->text, known.text, known.text_sha256) };
    const char *reference = json_is_string(json_object_get(o, "reference")) ? json_get_str(o, "reference", "")
                            : search                                        ? "default"
                                     : c->first_config; /* quality of an A/B is measured against arm A */
    text_cut(l.config, sizeof l.config, c->config);
    text_cut(l.reference, sizeof l.reference, reference);
    char label[TEXT_LABEL];
    text_cut(l.text, sizeof l.text, quality_text_label(label, known.text, known.text_sha256));
    snprintf(l.text_sha256, sizeof l.text_sha256, "%s", known.text_sha256);
    json_decref(o);
    bool fresh = known.known && isfinite(l.kld.estimate);
    for (int i = 0; i < q->count && fresh; i++) fresh = !quality_same_question(&q->line[i], &l);
    if (fresh) {
        quality_result_explain(&l);
        q->line[q->count++] = l;
    }
    return ERR_OK;
}

/* The loss of a search is listed only where no other measurement of the same has all figures. */
static void quality_drop_repeated(struct quality_results *q)
{
    int kept = 0;
    for (int i = 0; i < q->count; i++) {
        const struct quality_result *x = &q->line[i];
        bool repeated = false;
        for (int k = 0; k < q->count && !x->windows; k++)
            repeated |= q->line[k].windows && !strcmp(q->line[k].config, x->config) &&
                        !strcmp(q->line[k].reference, x->reference) && !strcmp(q->line[k].text, x->text);
        if (!repeated) q->line[kept++] = *x;
    }
    q->count = kept;
}

static int quality_by_loss(const void *a, const void *b)
{
    const struct quality_result *p = a, *q = b;
    const double x = p->kld.estimate, y = q->kld.estimate;
    return p->foreign != q->foreign ? p->foreign - q->foreign : x < y ? -1 : x > y;
}

/* ---------------------------------------------------------------- requests */

static int load_result_find(struct result_reader *r, const struct model_requests *c)
{
    struct load_results *l = &r->load;
    for (int i = 0; i < l->lines; i++)
        if (!strcmp(l->line[i].workload, c->workload) && !strcmp(l->line[i].config, c->config)) return i;
    if (l->lines == LOAD_RESULTS) return -1;
    struct stored_load *new = &l->line[l->lines];
    *new = (struct stored_load){ .sequences = c->sequences };
    /* requests of two workloads or configs must not become one row because a part of their texts is the same
     */
    if (!str_put(new->workload, sizeof new->workload, c->workload) ||
        !str_put(new->config, sizeof new->config, c->config))
        return -1;
    return l->lines++;
}

static bool floats_append(float **list, int *n, const float *more, int count)
{
    float *grown = count > 0 ? realloc(*list, (size_t)(*n + count) * sizeof *grown) : *list;
    if (count <= 0) return true;
    if (!grown) return false;
    memcpy(grown + *n, more, (size_t)count * sizeof *grown);
    *list = grown;
    *n += count;
    return true;
}

static void add_rate(double *tokens, double *seconds, float more_tokens, float more_seconds)
{
    if (!isfinite(more_seconds) || more_seconds <= 0) return;
    *tokens += (double)more_tokens;
    *seconds += (double)more_seconds;
}

static enum err_code result_on_requests(void *ctx, const struct model_requests *c, struct err *why)
{
    struct result_reader *r = ctx;
    const int i = load_result_find(r, c);
    if (i < 0) return ERR_OK;
    struct gathered *g = &r->gathered[i];
    r->load.line[i].requests += c->n;
    bool good = floats_append(&g->itl, &g->n_itl, c->itl, c->n_itl);
    for (int k = 0; k < c->n && good; k++) {
        const struct request_figures *f = &c->figures[k];
        good = floats_append(&g->ttft, &g->n_ttft, &f->ttft_s, 1);
        add_rate(&g->prompt_tokens, &g->prefill_s, f->prompt_tokens, f->prefill_s);
        add_rate(&g->gen_tokens, &g->decode_s, f->gen_tokens, f->decode_s);
    }
    return good ? ERR_OK : err_set(why, ERR_NOMEM, "not enough memory for latencies");
}

static void load_results_finish(struct result_reader *r)
{
    for (int i = 0; i < LOAD_RESULTS; i++) {
        struct gathered *g = &r->gathered[i];
        struct stored_load *l = &r->load.line[i];
        if (i < r->load.lines) {
            latency_histogram_make(&l->ttft, g->ttft, g->n_ttft);
            latency_histogram_make(&l->itl, g->itl, g->n_itl);
            stored_load_explain(l);
            l->prefill_tok_s = g->prefill_s > 0 ? g->prompt_tokens / g->prefill_s : NAN;
            l->decode_tok_s = g->decode_s > 0 ? g->gen_tokens / g->decode_s : NAN;
        }
        free(g->ttft);
        free(g->itl);
    }
}

/* ---------------------------------------------------------------- sensitivity */

/* "blk.12.ffn_down.weight" is kind "ffn_down", column 13; tensors outside of layers are in column 0. */
static int sensitivity_column(const char *tensor, char *kind, size_t size)
{
    int layer = -1, used = 0;
    if (sscanf(tensor, "blk.%d.%n", &layer, &used) < 1 || !used) {
        layer = -1;
        used = 0;
    }
    const char *name = tensor + used, *end = strstr(name, ".weight");
    snprintf(kind, size, "%.*s", (int)(end ? end - name : (long)strlen(name)), name);
    return layer + 1;
}

static struct sensitivity_map *sensitivity_map_find(struct sensitivity *s, const char *format)
{
    for (int i = 0; i < s->maps; i++)
        if (!strcmp(s->map[i].format, format)) return &s->map[i];
    if (s->maps == SENSITIVITY_MAPS) return NULL;
    struct sensitivity_map *m = &s->map[s->maps++];
    snprintf(m->format, sizeof m->format, "%s", format);
    return m;
}

static int sensitivity_kind_find(struct sensitivity_map *m, const char *kind)
{
    for (int i = 0; i < m->kinds; i++)
        if (!strcmp(m->kind[i], kind)) return i;
    if (m->kinds == SENSITIVITY_KINDS) return -1;
    for (int i = 0; i < SENSITIVITY_LAYERS; i++) m->loss[m->kinds][i] = NAN;
    snprintf(m->kind[m->kinds], sizeof m->kind[0], "%s", kind);
    return m->kinds++;
}

static void sensitivity_put(struct sensitivity *s, const struct sensitivity_row *r)
{
    char kind[sizeof s->map[0].kind[0]];
    struct sensitivity_map *m = sensitivity_map_find(s, r->format);
    const int column = sensitivity_column(r->tensor, kind, sizeof kind),
              row = m ? sensitivity_kind_find(m, kind) : -1;
    if (row < 0 || column >= SENSITIVITY_LAYERS) return;
    m->loss[row][column] = (float)r->kld;
    m->layers = MAX(m->layers, column + 1);
}

static enum err_code sensitivity_read(struct result_reader *r, const char *sha256, struct err *why)
{
    struct sensitivity_row *rows = NULL;
    int n = 0;
    const enum err_code rc = db_sensitivity_list(r->d, sha256, NULL, &rows, &n, why);
    for (int i = 0; i < n; i++) sensitivity_put(&r->sensitivity, &rows[i]);
    sensitivity_estimate(&r->sensitivity);
    if (n) quality_basis_label(r->sensitivity.basis, sizeof r->sensitivity.basis, rows[0].basis);
    free(rows);
    return rc;
}

/* ---------------------------------------------------------------- everything about one model */

static enum err_code results_read(struct background *b, struct result_reader *r, int64_t bytes,
                                  struct err *why)
{
    enum err_code rc = db_model_list(r->d, result_on_model, r, why);
    if (!rc) result_add_own_hash(b, r, bytes);
    if (!rc) rc = result_read_text(r, why);
    for (int i = 0; i < r->models && !rc; i++) {
        const struct model_query q = { r->sha[i], METRICS[METRIC_KLD].name, MOST_CELLS, "kld_se_nats" };
        rc = db_model_cells(r->d, &q, result_on_quality, r, why);
        if (!rc) rc = db_model_requests(r->d, &q, result_on_requests, r, why);
        if (!rc && !r->sensitivity.maps) rc = sensitivity_read(r, r->sha[i], why);
    }
    return rc;
}

void background_read_results(struct background *b, struct db *d)
{
    char path[sizeof b->known.model_path];
    struct err why = { 0 };
    struct result_reader *r = calloc(1, sizeof *r);
    background_lock(b);
    memcpy(path, b->known.model_path, sizeof path);
    const int64_t bytes = b->known.model.arch[0] ? b->known.model.weight_bytes : -1;
    background_unlock_if(b, false);
    if (!r || !path[0]) {
        free(r);
        return;
    }
    r->d = d;
    r->path = path;
    if (!realpath(path, r->real)) r->real[0] = '\0';
    const bool bad = results_read(b, r, bytes, &why) != ERR_OK;
    load_results_finish(r);
    char label[TEXT_LABEL];
    text_cut(r->quality.text, sizeof r->quality.text,
             quality_text_label(label, r->text.name, r->text.sha256));
    r->quality.bundled = quality_text_is_bundled(r->text.sha256);
    snprintf(r->quality.trouble, sizeof r->quality.trouble, "%s", r->text.trouble.message);
    quality_drop_repeated(&r->quality);
    qsort(r->quality.line, (size_t)r->quality.count, sizeof r->quality.line[0], quality_by_loss);
    if (!r->sensitivity.maps)
        snprintf(
            r->sensitivity.missing, sizeof r->sensitivity.missing,
            "n/a: the sensitivity of this model's tensors was not measured. qdyno recipe measures it, one "
            "tensor after the other, and builds a recipe from it.");
    if (bad) {
        text_cut(r->quality.error, sizeof r->quality.error, why.message);
        text_cut(r->load.error, sizeof r->load.error, why.message);
    }
    background_lock(b);
    b->known.quality = r->quality;
    b->known.load = r->load;
    b->known.sensitivity = r->sensitivity;
    background_unlock(b);
    background_read_home(b, d, (const char(*)[HASH_HEX])r->sha, r->models);
    free(r);
}
