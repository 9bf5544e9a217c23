/* GPTQ for the layers of a model. Matrices are quantized in the order of the data flow. For each set of
 * matrices with the same input, the Hessian is computed from the samples. With true_sequential, quantized
 * matrices replace the originals at once, so later ones compensate their errors as well. */
#include <stdlib.h>

#include "engine/quant/gptq.h"
#include "engine/quant/group_rows.h"
#include "engine/quant/layer_samples.h"

/* Sets of matrices with a common input, in the order of the data flow; SLOT_COUNT: unused. */
enum { STAGES = 4, STAGE_SLOTS = 4 };
static const enum slot STAGE[STAGES][STAGE_SLOTS] = {
    { SLOT_Q, SLOT_K, SLOT_V, SLOT_QKV },
    { SLOT_ATTN_OUT, SLOT_COUNT, SLOT_COUNT, SLOT_COUNT },
    { SLOT_GATE, SLOT_UP, SLOT_COUNT, SLOT_COUNT },
    { SLOT_DOWN, SLOT_COUNT, SLOT_COUNT, SLOT_COUNT },
};

/* The method's parameters for one matrix. */
static enum err_code gptq_options_of(const struct tensor_job *job, struct gptq_options *o, struct err *why)
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
    struct layer_job *job;
    struct linear_algebra *la;
    const char *matrix; /* name of one matrix with this input */
    float *h;           /* [cols][cols]: sum of x x^T over the samples */
    int64_t cols;
};

static void hessian_add(void *ctx, const struct layer_input *in)
{
    struct hessian *h = ctx;
    if (!input_is_of(in, h->matrix)) return;
    linear_gram_add(h->la, h->h, h->cols, in->x, in->stride, in->n);
    layers_stop(h->job->model);
}

/* ---------------------------------------------------------------- solving */

/* Quantize one matrix, pack it, and store its column order. */
static enum err_code gptq_solve_matrix(struct tensor_job *job, const struct gptq_factor *f,
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

/* Whether one factor serves both; all other options are the same for all matrices. */
static bool gptq_options_equal(const struct gptq_options *a, const struct gptq_options *b)
{
    return a->bits == b->bits && a->group_size == b->group_size;
}

/* Quantize matrices [count], which have the input with Hessian h. */
static enum err_code gptq_solve_stage(const struct layer_job *job, struct layer_matrix *const *matrices,
                                      int count, const struct hessian *h, struct err *why)
{
    struct gptq_factor *factor = NULL;
    struct gptq_options of = { 0 };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < count && !rc; i++) {
        struct tensor_job *m = &matrices[i]->job;
        struct gptq_options o;
        if ((rc = gptq_options_of(m, &o, why))) break;
        if (!factor || !gptq_options_equal(&o, &of)) {
            gptq_factor_free(factor);
            rc = gptq_factor_new(&factor, h->la, h->h, h->cols, &o, why);
            of = o;
            if (!rc && gptq_factor_damp(factor) > o.damp_percent)
                log_write(job->log, LOG_WARN, "gptq: '%s' needed damp_percent %g instead of %g", m->name,
                          gptq_factor_damp(factor), o.damp_percent);
        }
        if (!rc) rc = gptq_solve_matrix(m, factor, &o, why);
        if (rc) err_prefix(why, "'%s'", m->name);
        matrices[i]->encoded = !rc;
    }
    gptq_factor_free(factor);
    return rc;
}

/* Collect the Hessian of one input from the samples and quantize the matrices that use it. */
static enum err_code gptq_run_stage(struct layer_job *job, struct linear_algebra *la, int stage,
                                    struct work_part part, struct err *why)
{
    struct layer_matrix *matrices[STAGE_SLOTS];
    int count = 0;
    for (int i = 0; i < STAGE_SLOTS; i++) {
        struct layer_matrix *m = layer_matrix_at(job, STAGE[stage][i]);
        if (m && m->converts) matrices[count++] = m;
    }
    if (!count) return ERR_OK;
    struct hessian h = {
        .job = job, .la = la, .matrix = matrices[0]->job.name, .cols = matrices[0]->job.cols
    };
    h.h = calloc((size_t)h.cols * (size_t)h.cols, sizeof *h.h);
    enum err_code rc = ERR_OK;
    if (!h.h)
        rc = err_set(why, ERR_NOMEM, "gptq: out of memory for the Hessian of %lld inputs", (long long)h.cols);
    if (!rc) rc = samples_run(job, SAMPLES_KEEP, hessian_add, &h, part, why);
    if (!rc) rc = gptq_solve_stage(job, matrices, count, &h, why);
    free(h.h);
    return rc;
}

/* With true_sequential each stage sees the stages before it quantized. Otherwise all stages see the original
 * layer, and only the next layer sees quantized weights. Either way one Hessian is in memory at a time. */
static enum err_code gptq_layer(struct layer_job *job, struct err *why)
{
    const bool sequential = params_bool(&job->params, "true_sequential");
    struct linear_algebra *la;
    enum err_code rc = linear_algebra_open(&la, layers_threads(job->model), why), undone;
    if (rc) return rc;
    if (sequential) rc = layer_bind(job, why);
    for (int stage = 0; stage < STAGES && !rc; stage++)
        rc = gptq_run_stage(job, la, stage, (struct work_part){ stage / 5.0, (stage + 1) / 5.0 }, why);
    if (!rc) rc = layer_bind(job, why);
    if (!rc) rc = samples_run(job, SAMPLES_ADVANCE, NULL, NULL, (struct work_part){ 0.8, 1 }, why);
    undone = layer_unbind(job, rc ? NULL : why);
    linear_algebra_close(la);
    return rc ? rc : undone;
}

/* ---------------------------------------------------------------- row of METHODS */

static enum err_code gptq_check_params(const struct params *p, struct err *why)
{
    if (params_bool(p, "desc_act") && params_bool(p, "act_group_aware"))
        return err_set(why, ERR_USAGE,
                       "gptq: desc_act and act_group_aware exclude each other: both set the column order");
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
      .kind = VALUE_REAL,
      .min = 1e-9,
      .max = 0.999,
      .otherwise = "0.01",
      .help = "damping: share of the Hessian's mean diagonal that is added to the diagonal" },
    { .name = "damp_auto_increment",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 0.5,
      .otherwise = "0.01",
      .help = "added to damp_percent until the factorization succeeds; 0: fail" },
    { .name = "desc_act",
      .aliases = "act_order",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "act-order: columns with large inputs first; costs a gather at run time" },
    { .name = "act_group_aware",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "act-order within groups and of whole groups; costs nothing at run time" },
    { .name = "static_groups",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "scales from the original weights; with desc_act: no gather at run time" },
    { .name = "sym",
      .kind = VALUE_BOOL,
      .otherwise = "true",
      .help = "zero point in the middle of the codes" },
    { .name = "true_sequential",
      .kind = VALUE_BOOL,
      .otherwise = "true",
      .help = "within a layer, compute inputs with the matrices quantized so far" },
    { .name = "mse",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 16,
      .otherwise = "0",
      .help = "search scales for the smallest sum |error|^mse; 2.4 is usual; 0: no search" },
    { .name = "blocksize",
      .kind = VALUE_INT,
      .min = 1,
      .max = 4096,
      .otherwise = "128",
      .help = "columns whose corrections are applied together; affects speed only" },
    { .name = "nsamples",
      .kind = VALUE_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "128",
      .help = "number of calibration sequences" },
    { .name = "model_seqlen",
      .aliases = "seqlen",
      .kind = VALUE_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "2048",
      .help = "tokens in a calibration sequence (at most the model's training context)" },
    { 0 },
};

const struct method METHOD_GPTQ = {
    .name = "gptq",
    .help = "compensates each weight's rounding error in later weights, using the Hessian of the inputs",
    .good = "4 bits with a small loss; at 3 and 2 bits far better than rounding",
    .bad = "slow to make (cubic in the row length); can overfit its calibration text",
    .params = GPTQ_PARAMS,
    .formats = GROUP_FORMATS,
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .check = gptq_check_params,
    .format = group_format_of,
    .samples = gptq_samples,
    .companions = gptq_companions,
    .rows = nearest_rows, /* for matrices that no layer uses; all others are encoded in `layer` */
    .layer = gptq_layer,
};
