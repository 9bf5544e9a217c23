/* GPTQ in a model: the matrices of a layer in the order in which they see each other's results. Each group of
 * matrices with one input gets its Hessian from the samples, is solved, and stays in the model as the codes
 * have it; so what comes behind makes up for what it did. */
#include <stdlib.h>

#include "engine/quant/gptq.h"
#include "engine/quant/group_rows.h"
#include "engine/quant/layer_samples.h"

/* Matrices with one input each; a layer has all or some of them. */
enum { STAGES = 4, STAGE_SLOTS = 4 };
static const enum slot STAGE[STAGES][STAGE_SLOTS] = {
    { SLOT_Q, SLOT_K, SLOT_V, SLOT_QKV },
    { SLOT_ATTN_OUT, SLOT_COUNT, SLOT_COUNT, SLOT_COUNT },
    { SLOT_GATE, SLOT_UP, SLOT_COUNT, SLOT_COUNT },
    { SLOT_DOWN, SLOT_COUNT, SLOT_COUNT, SLOT_COUNT },
};

static enum err_code options_of(const struct tensor_job *job, struct gptq_options *o, struct err *why)
{
    const struct params *p = &job->params;
    *o = (struct gptq_options){ .damp_percent = params_real(p, "damp_percent"),
                                .damp_auto_increment = params_real(p, "damp_auto_increment"),
                                .mse = params_real(p, "mse"),
                                .blocksize = params_int(p, "blocksize"),
                                .sym = params_bool(p, "sym"),
                                .desc_act = params_bool(p, "desc_act"),
                                .static_groups = params_bool(p, "static_groups"),
                                .act_group_aware = params_bool(p, "act_group_aware"),
                                .half_scales = true };
    return group_of_job(job, &o->bits, &o->group_size, why);
}

/* ---------------------------------------------------------------- the Hessian of an input */

struct hessian {
    struct linear_algebra *la;
    const char *matrix; /* one that reads the input */
    float *h;           /* [cols][cols] */
    int64_t cols;
};

static void add_input(void *ctx, const struct layer_input *in)
{
    struct hessian *h = ctx;
    if (input_is_of(in, h->matrix)) linear_gram_add(h->la, h->h, h->cols, in->x, in->stride, in->n);
}

/* ---------------------------------------------------------------- solving */

static enum err_code solve_matrix(struct tensor_job *job, const struct gptq_factor *f,
                                  const struct gptq_options *o, struct err *why)
{
    const int64_t groups = job->cols / o->group_size, count = job->rows * groups;
    struct gptq_codes c = { malloc((size_t)(job->rows * job->cols)), malloc((size_t)count * sizeof(float)),
                            malloc((size_t)count * sizeof(float)), 0 };
    enum err_code rc = ERR_OK;
    if (!c.codes || !c.scales || !c.zeros)
        rc = err_set(why, ERR_NOMEM, "gptq: out of memory for '%s'", job->name);
    if (!rc) rc = gptq_solve(f, job->x, job->rows, &c, why);
    if (!rc) group_rows_pack(job, &(struct group_matrix){ c.codes, c.scales, c.zeros, o->group_size });
    const struct companion_tensor *companion = job_companion(job, COMPANION_ORDER);
    const int32_t *order = gptq_factor_order(f);
    for (int64_t i = 0; companion && order && i < job->cols; i++)
        ((float *)companion->data)[i] = (float)order[i];
    free(c.codes);
    free(c.scales);
    free(c.zeros);
    return rc;
}

static bool same_options(const struct gptq_options *a, const struct gptq_options *b)
{
    return a->bits == b->bits && a->group_size == b->group_size; /* all else is the same for all matrices */
}

/* Matrices [count] read one input, whose Hessian is h. */
static enum err_code solve_all(const struct layer_job *job, struct layer_matrix *const *matrices, int count,
                               const struct hessian *h, struct err *why)
{
    struct gptq_factor *factor = NULL;
    struct gptq_options of = { 0 };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < count && !rc; i++) {
        struct tensor_job *m = &matrices[i]->job;
        struct gptq_options o;
        if ((rc = options_of(m, &o, why))) break;
        if (!factor || !same_options(&o, &of)) {
            gptq_factor_free(factor);
            rc = gptq_factor_new(&factor, h->la, h->h, h->cols, &o, why);
            of = o;
            if (!rc && gptq_factor_damp(factor) > o.damp_percent)
                log_write(job->log, LOG_WARN, "'%s': damp_percent %g was needed instead of %g", m->name,
                          gptq_factor_damp(factor), o.damp_percent);
        }
        if (!rc) rc = solve_matrix(m, factor, &o, why);
        if (rc) err_prefix(why, "'%s'", m->name);
        matrices[i]->encoded = !rc;
    }
    gptq_factor_free(factor);
    return rc;
}

static enum err_code run_stage(struct layer_job *job, struct linear_algebra *la, int stage, struct share part,
                               struct err *why)
{
    struct layer_matrix *matrices[STAGE_SLOTS];
    int count = 0;
    for (int i = 0; i < STAGE_SLOTS; i++) {
        struct layer_matrix *m = layer_matrix_at(job, STAGE[stage][i]);
        if (m && m->converts) matrices[count++] = m;
    }
    if (!count) return ERR_OK;
    struct hessian h = { .la = la, .matrix = matrices[0]->job.name, .cols = matrices[0]->job.cols };
    h.h = calloc((size_t)h.cols * (size_t)h.cols, sizeof *h.h);
    enum err_code rc = ERR_OK;
    if (!h.h)
        rc = err_set(why, ERR_NOMEM, "gptq: out of memory for the Hessian of %lld inputs", (long long)h.cols);
    if (!rc) rc = samples_run(job, false, add_input, &h, part, why);
    if (!rc) rc = solve_all(job, matrices, count, &h, why);
    free(h.h);
    return rc;
}

/* Sequential: each stage sees the ones before it quantized; else all see the layer as it was, and only the
 * next layer sees what became of it. Either way one Hessian is in memory at a time. */
static enum err_code gptq_layer(struct layer_job *job, struct err *why)
{
    const bool sequential = params_bool(&job->params, "true_sequential");
    struct linear_algebra *la;
    enum err_code rc = linear_algebra_open(&la, layers_threads(job->model), why), undone;
    if (rc) return rc;
    if (sequential) rc = layer_bind(job, why);
    for (int stage = 0; stage < STAGES && !rc; stage++)
        rc = run_stage(job, la, stage, (struct share){ stage / 5.0, (stage + 1) / 5.0 }, why);
    if (!rc) rc = layer_bind(job, why);
    if (!rc) rc = samples_run(job, true, NULL, NULL, (struct share){ 0.8, 1 }, why);
    undone = layer_unbind(job, rc ? NULL : why);
    linear_algebra_close(la);
    return rc ? rc : undone;
}

/* ---------------------------------------------------------------- the row of METHODS */

static enum err_code gptq_check_params(const struct params *p, struct err *why)
{
    if (params_bool(p, "desc_act") && params_bool(p, "act_group_aware"))
        return err_set(why, ERR_USAGE, "gptq: desc_act and act_group_aware are two orders, want one of them");
    return group_check(p, why);
}

static void gptq_samples(const struct params *p, int *count, int *tokens)
{
    *count = (int)params_int(p, "nsamples");
    *tokens = (int)params_int(p, "model_seqlen");
}

static int gptq_companions(const struct tensor_job *job, struct companion_tensor *out)
{
    if (!params_bool(&job->params, "desc_act") || params_bool(&job->params, "static_groups")) return 0;
    out[0] = (struct companion_tensor){ .what = COMPANION_ORDER, .size = job->cols };
    return 1;
}

static const struct param GPTQ_PARAMS[] = {
    GROUP_BITS_PARAM,
    GROUP_SIZE_PARAM,
    { .name = "damp_percent",
      .aliases = "percdamp",
      .kind = PARAM_REAL,
      .min = 1e-9,
      .max = 0.999,
      .otherwise = "0.01",
      .help = "share of the Hessian's mean diagonal that is added to it" },
    { .name = "damp_auto_increment",
      .kind = PARAM_REAL,
      .min = 0,
      .max = 0.5,
      .otherwise = "0.01",
      .help = "added to damp_percent while the factorization fails; 0: fail" },
    { .name = "desc_act",
      .aliases = "act_order",
      .kind = PARAM_BOOL,
      .otherwise = "false",
      .help = "inputs with much activation first; costs a gather at run time" },
    { .name = "act_group_aware",
      .kind = PARAM_BOOL,
      .otherwise = "false",
      .help = "the same within groups and from group to group: no gather" },
    { .name = "static_groups",
      .kind = PARAM_BOOL,
      .otherwise = "false",
      .help = "scales from the weights before any correction; with desc_act: no gather" },
    { .name = "sym", .kind = PARAM_BOOL, .otherwise = "true", .help = "zero point in the middle" },
    { .name = "true_sequential",
      .kind = PARAM_BOOL,
      .otherwise = "true",
      .help = "inside a layer, too, inputs come from what is quantized already" },
    { .name = "mse",
      .kind = PARAM_REAL,
      .min = 0,
      .max = 16,
      .otherwise = "0",
      .help = "search scales for the least |error|^mse; 2.4 is usual; 0: off" },
    { .name = "blocksize",
      .kind = PARAM_INT,
      .min = 1,
      .max = 4096,
      .otherwise = "128",
      .help = "inputs whose corrections are applied together: speed" },
    { .name = "nsamples",
      .kind = PARAM_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "128",
      .help = "samples of text" },
    { .name = "model_seqlen",
      .aliases = "seqlen",
      .kind = PARAM_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "2048",
      .help = "tokens of a sample (at most what the model was trained on)" },
    { 0 },
};

const struct method METHOD_GPTQ = {
    .name = "gptq",
    .help = "each weight's rounding error is made up for by those still to come (Hessian of the inputs)",
    .good = "4 bits at small loss; at 3 and 2 bits far better than rounding",
    .bad = "slow to make (cube of the row length); follows its calibration text",
    .params = GPTQ_PARAMS,
    .formats = GROUP_FORMATS,
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .check = gptq_check_params,
    .format = group_format_of,
    .samples = gptq_samples,
    .companions = gptq_companions,
    .rows = nearest_rows, /* of what the model has no use for; else `layer` encodes */
    .layer = gptq_layer,
};
