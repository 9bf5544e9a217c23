/* AWQ for the layers of a model. Samples go through the original weights, so each layer is scaled and clipped
 * independently. For every input whose scale can be folded, the search minimizes the error of what the input
 * is used for: the output of the attention or feed-forward block behind a norm, or of the one matrix that
 * consumes it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/awq.h"
#include "engine/quant/scale_folding.h"
#include "engine/quant/group_rows.h"
#include "engine/quant/groups.h"
#include "engine/quant/layer_samples.h"
#include "engine/quant/linear_algebra.h"

struct awq_work {
    struct layer_job *job;
    struct linear_algebra *la; /* uses the model's threads; a second pool would compete with them */
};

/* The method's parameters for one matrix. */
static enum err_code awq_options_of(const struct tensor_job *job, struct awq_options *o, struct err *why)
{
    const struct params *p = &job->params;
    *o = (struct awq_options){ .zero_point = params_bool(p, "zero_point"),
                               .duo_scaling = params_bool(p, "duo_scaling"),
                               .n_grid = (int)params_int(p, "n_grid"),
                               .max_shrink = params_real(p, "max_shrink"),
                               .n_sample_token = params_int(p, "n_sample_token") };
    return group_of_job(job, &o->bits, &o->group_size, why);
}

/* ---------------------------------------------------------------- weights with trial scales */

/* Quantize w [rows][cols] with trial scales: to = dequantized(quantized(w * scales)) / scales; with
 * `difference`, minus w. */
struct trial {
    const struct awq_options *o;
    const float *w, *scales;
    float *to;
    int64_t rows, cols;
    bool difference; /* subtract w */
};

/* Thread function over rows. */
static void trial_rows(void *arg, int member, int size)
{
    const struct trial *t = arg;
    const int64_t group = t->o->group_size;
    for (int64_t row = t->rows * member / size; row < t->rows * (member + 1) / size; row++) {
        const float *w = t->w + row * t->cols;
        float *to = t->to + row * t->cols;
        for (int64_t k = 0; k < t->cols; k++) to[k] = w[k] * t->scales[k];
        for (int64_t k = 0; k < t->cols; k += group) awq_quantize_group(t->o, to + k, to + k, group);
        for (int64_t k = 0; k < t->cols; k++) to[k] = to[k] / t->scales[k] - (t->difference ? w[k] : 0);
    }
}

/* ---------------------------------------------------------------- statistics of one input */

/* The search for the scales of one input. */
struct scale_search {
    struct awq_work *work;
    const struct fold *fold;
    struct awq_options o[FOLD_CONSUMERS_MAX]; /* of each consumer */
    float *inputs, *shares;                   /* [n]: mean |input|, mean relative weight magnitude */
    double *sums;                             /* [n] */
    int64_t tokens;

    /* If the input comes from a norm, the loss is the output error of the block behind it: */
    float *h;                          /* [samples][tokens][width]: the block's inputs */
    float *want;                       /* [samples][tokens][width]: its outputs with the original weights */
    float *got;                        /* [tokens][width]: its outputs with trial weights, for one sample */
    double least;                      /* smallest loss so far */
    float *trials[FOLD_CONSUMERS_MAX]; /* consumers' weights with trial scales; NULL: not to be quantized */

    /* If one matrix consumes it, the loss follows from the inputs' second moments: */
    float *gram, *product; /* sum x^T x [n][n]; weight errors times gram [rows][n] */
};

/* Whether one matrix consumes the input, so that gram is enough to compute the loss. */
static bool fold_has_single_consumer(const struct fold *f)
{
    return !f->norm;
}

/* Observer of the samples: collects mean |input|, the block inputs and the second moments of one input. */
static void scale_search_observe(void *ctx, const struct layer_input *in)
{
    struct scale_search *e = ctx;
    if (!input_is_of(in, e->fold->consumers[0]->job.name)) return;
    for (int t = 0; t < in->n; t++)
        for (int64_t k = 0; k < in->cols; k++) e->sums[k] += fabs((double)in->x[t * in->stride + k]);
    for (int t = 0; t < in->n && e->h; t++)
        memcpy(e->h + (e->tokens + t) * in->cols, in->x + t * in->stride, (size_t)in->cols * sizeof *e->h);
    if (e->gram) linear_gram_add(e->work->la, e->gram, in->cols, in->x, in->stride, in->n);
    e->tokens += in->n;
    layers_stop(e->work->job->model);
}

static float *floats_new(int64_t n)
{
    return calloc((size_t)MAX(n, 1), sizeof(float));
}

/* Allocate what the search needs for its kind of loss. */
static enum err_code scale_search_alloc(struct scale_search *e, struct err *why)
{
    const struct fold *f = e->fold;
    const struct samples *s = e->work->job->samples;
    const int64_t all = (int64_t)s->count * s->tokens * s->width;
    const bool single = fold_has_single_consumer(f);
    enum err_code rc = ERR_OK;
    bool there = (e->inputs = floats_new(f->n)) && (e->shares = floats_new(f->n)) &&
                 (e->sums = calloc((size_t)f->n, sizeof *e->sums));
    for (int i = 0; i < f->consumer_count && there && !rc; i++) {
        const struct layer_matrix *m = f->consumers[i];
        if (!m->converts) continue;
        there = (e->trials[i] = floats_new(m->job.rows * m->job.cols));
        rc = awq_options_of(&m->job, &e->o[i], why);
    }
    if (there && single)
        there = (e->gram = floats_new(f->n * f->n)) &&
                (e->product = floats_new(f->consumers[0]->job.rows * f->n));
    if (there && !single)
        there = (e->h = floats_new(all)) && (e->want = floats_new(all)) &&
                (e->got = floats_new((int64_t)s->tokens * s->width));
    return there || rc ? rc
                       : err_set(why, ERR_NOMEM, "awq: out of memory for %s in layer %d", f->input,
                                 e->work->job->layer);
}

static void scale_search_free(struct scale_search *e)
{
    free(e->inputs), free(e->shares), free(e->sums);
    free(e->h), free(e->want), free(e->got);
    free(e->gram), free(e->product);
    for (int i = 0; i < FOLD_CONSUMERS_MAX; i++) free(e->trials[i]);
}

/* Turn sums into means: of |input|, and of relative weight magnitudes over all consumers. */
static void scale_search_means(struct scale_search *e)
{
    const struct fold *f = e->fold;
    int64_t rows = 0;
    for (int64_t k = 0; k < f->n; k++) e->inputs[k] = (float)(e->sums[k] / (double)e->tokens);
    memset(e->sums, 0, (size_t)f->n * sizeof *e->sums);
    for (int i = 0; i < f->consumer_count; i++) {
        const struct tensor_job *m = &f->consumers[i]->job;
        if (!e->trials[i]) continue;
        awq_weight_shares(&e->o[i], m->x, m->rows, m->cols, e->sums, linear_algebra_pool(e->work->la));
        rows += m->rows;
    }
    for (int64_t k = 0; k < f->n; k++) e->shares[k] = (float)(e->sums[k] / (double)rows);
}

/* ---------------------------------------------------------------- loss functions */

static void scale_search_make_trial(const struct scale_search *e, int consumer, const float *scales,
                                    bool difference)
{
    const struct tensor_job *m = &e->fold->consumers[consumer]->job;
    struct trial t = { &e->o[consumer], m->x, scales, e->trials[consumer], m->rows, m->cols, difference };
    threadpool_run(linear_algebra_pool(e->work->la), trial_rows, &t);
}

/* Loss for a single matrix: sum of d G d^T over the rows d of its weight error. */
static enum err_code matrix_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    struct scale_search *e = ctx;
    const struct tensor_job *m = &e->fold->consumers[0]->job;
    const int64_t n = m->rows * m->cols;
    scale_search_make_trial(e, 0, scales, true);
    memset(e->product, 0, (size_t)n * sizeof *e->product);
    linear_multiply_add(e->work->la, &(struct linear_product){ .rows = m->rows,
                                                               .cols = m->cols,
                                                               .inner = m->cols,
                                                               .alpha = 1,
                                                               .a = e->trials[0],
                                                               .a_stride = m->cols,
                                                               .b = e->gram,
                                                               .b_stride = m->cols,
                                                               .c = e->product,
                                                               .c_stride = m->cols });
    *loss = 0;
    for (int64_t i = 0; i < n; i++) *loss += (double)e->trials[0][i] * (double)e->product[i];
    (void)why;
    return ERR_OK;
}

/* y = what the blocks that consume the input add to the residual stream for input h. */
static enum err_code scale_search_run_blocks(const struct scale_search *e, const float *h, float *y,
                                             struct err *why)
{
    const struct layer_job *job = e->work->job;
    const struct samples *s = job->samples;
    bool attention = false, forward = false;
    for (int i = 0; i < e->fold->consumer_count; i++) {
        const enum slot slot = e->fold->consumers[i]->slot;
        if (slot == SLOT_GATE || slot == SLOT_UP)
            forward = true;
        else
            attention = true;
    }
    if (!forward) return layers_attention(job->model, job->layer, h, s->tokens, y, why);
    if (!attention) return layers_feed_forward(job->model, job->layer, h, s->tokens, y, why);
    const int64_t n = s->tokens * s->width;
    float *other = floats_new(n);
    enum err_code rc = other ? layers_attention(job->model, job->layer, h, s->tokens, y, why)
                             : err_set(why, ERR_NOMEM, "awq: out of memory");
    if (!rc) rc = layers_feed_forward(job->model, job->layer, h, s->tokens, other, why);
    for (int64_t i = 0; i < n && !rc; i++) y[i] += other[i];
    free(other);
    return rc;
}

/* Loss for blocks: mean squared difference of their outputs over all samples, or over the first ones when
 * their share already exceeds the smallest loss: the search ignores such scales in either case. */
static enum err_code block_loss(void *ctx, const float *scales, double *loss, struct err *why)
{
    struct scale_search *e = ctx;
    const struct samples *s = e->work->job->samples;
    const int64_t each = s->tokens * s->width;
    for (int i = 0; i < e->fold->consumer_count; i++)
        if (e->trials[i]) scale_search_make_trial(e, i, scales, false);
    *loss = 0;
    for (int i = 0; i < s->count; i++) {
        const float *want = e->want + i * each;
        const enum err_code rc = scale_search_run_blocks(e, e->h + i * each, e->got, why);
        if (rc) return rc;
        for (int64_t k = 0; k < each; k++)
            *loss += ((double)e->got[k] - want[k]) * ((double)e->got[k] - want[k]);
        if (*loss / (double)(s->count * each) > e->least) break;
    }
    *loss /= (double)(s->count * each);
    if (*loss < e->least) e->least = *loss;
    return ERR_OK;
}

/* ---------------------------------------------------------------- search */

/* Make the model use the consumers' trial weights, or the job's own. */
static enum err_code scale_search_bind(const struct scale_search *e, bool trials, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < e->fold->consumer_count && !rc; i++) {
        const struct tensor_job *m = &e->fold->consumers[i]->job;
        if (e->trials[i])
            rc = layers_replace(e->work->job->model, m->name, &FORMATS[FORMAT_F32],
                                trials ? e->trials[i] : m->x, why);
    }
    return rc;
}

/* Search scales with the block's output error as loss. */
static enum err_code scale_search_block(struct scale_search *e, const struct awq_options *o, float *scales,
                                        struct err *why)
{
    const struct samples *s = e->work->job->samples;
    const int64_t each = s->tokens * s->width;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < s->count && !rc; i++)
        rc = scale_search_run_blocks(e, e->h + i * each, e->want + i * each, why);
    if (!rc) rc = scale_search_bind(e, true, why);
    e->least = INFINITY;
    if (!rc) rc = awq_search(o, e->inputs, e->shares, e->fold->n, block_loss, e, scales, NULL, why);
    const enum err_code back = scale_search_bind(e, false, rc ? NULL : why);
    return rc ? rc : back;
}

/* Copy the lower triangle to the upper one. */
static void gram_mirror(float *gram, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) gram[j * n + i] = gram[i * n + j];
}

/* Observe the samples, search the scales of one input, and fold the best ones into the layer. */
static enum err_code scale_search_run(struct scale_search *e, struct work_part part, struct err *why)
{
    const struct fold *f = e->fold;
    const struct awq_options *o = NULL;
    for (int i = f->consumer_count; i-- > 0;)
        if (e->trials[i]) o = &e->o[i];
    enum err_code rc = samples_run(e->work->job, SAMPLES_KEEP, scale_search_observe, e, part, why);
    float *scales = floats_new(f->n);
    if (!rc && !scales) rc = err_set(why, ERR_NOMEM, "awq: out of memory");
    if (!rc) scale_search_means(e);
    if (!rc && fold_has_single_consumer(f)) {
        gram_mirror(e->gram, f->n);
        rc = awq_search(o, e->inputs, e->shares, f->n, matrix_loss, e, scales, NULL, why);
    } else if (!rc) {
        rc = scale_search_block(e, o, scales, why);
    }
    if (rc) err_prefix(why, "%s in layer %d", f->input, e->work->job->layer);
    if (!rc) fold_apply(f, scales);
    if (!rc) rc = layer_bind(e->work->job, why); /* folding changed norms and biases */
    free(scales);
    return rc;
}

/* Scale one input, unless no consumer is quantized or its scale cannot be folded. */
static enum err_code awq_scale_input(struct awq_work *w, const struct fold *f, struct work_part part,
                                     struct err *why)
{
    bool any = false;
    for (int i = 0; i < f->consumer_count; i++) any |= f->consumers[i]->converts;
    if (!any) return ERR_OK;
    if (f->obstacle) {
        log_write(w->job->log, LOG_INFO, "awq, layer %d: %s is not scaled: %s", w->job->layer, f->input,
                  f->obstacle);
        return ERR_OK;
    }
    struct scale_search e = { .work = w, .fold = f };
    enum err_code rc = scale_search_alloc(&e, why);
    if (!rc) rc = scale_search_run(&e, part, why);
    scale_search_free(&e);
    return rc;
}

/* ---------------------------------------------------------------- clipping and encoding */

/* As in the reference, matrices that produce attention scores are not clipped. */
static bool matrix_is_clipped(const struct layer_matrix *m)
{
    return m->converts && m->slot != SLOT_Q && m->slot != SLOT_K && m->slot != SLOT_QKV;
}

/* Input of clipping for one matrix: second moments within each group, from every step-th token. */
struct clip_input {
    struct awq_options o;
    float *gram; /* [groups][group][group]; NULL: not clipped */
    int64_t seen;
};
struct clip_inputs {
    struct awq_work *work;
    int64_t step;
    struct clip_input *of; /* [matrices] */
};

/* Observer of the samples: adds sample tokens to the second moments of each matrix to clip. */
static void clip_inputs_observe(void *ctx, const struct layer_input *in)
{
    const struct clip_inputs *inputs = ctx;
    const struct layer_job *job = inputs->work->job;
    const int64_t step = inputs->step;
    for (int i = 0; i < job->matrix_count; i++) {
        struct clip_input *c = &inputs->of[i];
        if (!c->gram || !input_is_of(in, job->matrices[i].job.name)) continue;
        const int64_t first = (step - c->seen % step) % step, n = c->o.group_size;
        c->seen += in->n;
        if (first >= in->n) continue;
        for (int64_t k = 0; k < in->cols; k += n)
            linear_gram_add(inputs->work->la, c->gram + k * n, n, in->x + first * in->stride + k,
                            in->stride * step, (in->n - first + step - 1) / step);
    }
}

/* Encode a matrix with one grid for each group. */
static enum err_code awq_encode(struct layer_matrix *m, const struct awq_options *o, struct err *why)
{
    struct tensor_job *job = &m->job;
    const int64_t block = job->format->block_weights, count = job->rows * job->cols / block;
    struct group_choice *choices = malloc((size_t)count * sizeof *choices);
    if (!choices) return err_set(why, ERR_NOMEM, "awq: out of memory for '%s'", job->name);
    for (int64_t i = 0; i < count; i++) {
        const int64_t group = i * block / o->group_size * o->group_size; /* its first weight */
        const struct awq_grid g = awq_grid_of(o, job->x + group, o->group_size);
        choices[i] = (struct group_choice){ g.scale, g.zero };
    }
    groups_encode(job->format, job->x, choices, count, job->pool, job->out);
    free(choices);
    m->encoded = true;
    return ERR_OK;
}

/* Clip and encode all matrices of the layer that are quantized. */
static enum err_code awq_clip_and_encode(struct awq_work *w, const struct clip_inputs *inputs,
                                         struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < w->job->matrix_count && !rc; i++) {
        struct layer_matrix *m = &w->job->matrices[i];
        const struct clip_input *c = &inputs->of[i];
        if (!m->converts) continue;
        if (c->gram)
            rc = awq_clip(&c->o, m->job.x, m->job.rows, m->job.cols, c->gram, NULL,
                          linear_algebra_pool(w->la), why);
        if (!rc) rc = awq_encode(m, &c->o, why);
    }
    return rc;
}

/* Choose how many tokens are sampled, and allocate second moments for matrices to clip. */
static enum err_code clip_inputs_alloc(struct clip_inputs *inputs, struct err *why)
{
    const struct layer_job *job = inputs->work->job;
    const int64_t tokens = (int64_t)job->samples->count * job->samples->tokens;
    inputs->step = MAX(1, tokens / params_int(&job->params, "n_sample_token"));
    inputs->of = calloc((size_t)job->matrix_count, sizeof *inputs->of);
    if (!inputs->of) return err_set(why, ERR_NOMEM, "awq: out of memory");
    for (int i = 0; i < job->matrix_count; i++) {
        const struct layer_matrix *m = &job->matrices[i];
        struct clip_input *c = &inputs->of[i];
        if (!m->converts) continue;
        const enum err_code rc = awq_options_of(&m->job, &c->o, why);
        if (rc) return rc;
        if (!matrix_is_clipped(m) || !params_bool(&job->params, "apply_clip")) continue;
        c->gram = floats_new(m->job.cols * c->o.group_size);
        if (!c->gram) return err_set(why, ERR_NOMEM, "awq: out of memory for '%s'", m->job.name);
    }
    return ERR_OK;
}

/* Advance the samples through the scaled but unquantized layer, then clip and encode its matrices. */
static enum err_code awq_finish_layer(struct awq_work *w, struct work_part part, struct err *why)
{
    struct clip_inputs inputs = { .work = w };
    enum err_code rc = clip_inputs_alloc(&inputs, why);
    if (!rc) rc = samples_run(w->job, SAMPLES_ADVANCE, clip_inputs_observe, &inputs, part, why);
    if (!rc) rc = awq_clip_and_encode(w, &inputs, why);
    for (int i = 0; inputs.of && i < w->job->matrix_count; i++) free(inputs.of[i].gram);
    free(inputs.of);
    return rc;
}

/* The method's `layer`: scale the four inputs in the order of the data flow, then clip and encode. */
static enum err_code awq_layer(struct layer_job *job, struct err *why)
{
    struct awq_work w = { .job = job };
    struct fold folds[FOLD_COUNT];
    enum err_code rc = folds_find(job, folds, why), undone;
    if (!rc) rc = linear_algebra_open(&w.la, layers_threads(job->model), why);
    if (!rc) rc = layer_bind(job, why);
    for (int i = 0; i < FOLD_COUNT && !rc; i++)
        rc = awq_scale_input(&w, &folds[i], (struct work_part){ 0.2 * i, 0.2 * (i + 1) }, why);
    if (!rc) rc = awq_finish_layer(&w, (struct work_part){ 0.8, 1 }, why);
    undone = layer_unbind(job, rc ? NULL : why);
    linear_algebra_close(w.la);
    return rc ? rc : undone;
}

/* ---------------------------------------------------------------- row of METHODS */

static void awq_samples(const struct params *p, int *count, int *tokens)
{
    *count = (int)params_int(p, "max_calib_samples");
    *tokens = (int)params_int(p, "max_calib_seq_len");
}

static const struct param AWQ_PARAMS[] = {
    GROUP_BITS_PARAM,
    GROUP_SIZE_PARAM,
    { .name = "zero_point",
      .kind = VALUE_BOOL,
      .otherwise = "true",
      .help = "asymmetric range, from a group's smallest to its largest weight; else symmetric" },
    { .name = "duo_scaling",
      .kind = VALUE_BOOL,
      .otherwise = "true",
      .help = "scales depend on weights as well as on activations" },
    { .name = "apply_clip",
      .kind = VALUE_BOOL,
      .otherwise = "true",
      .help = "clip outlier weights where that reduces the output error" },
    { .name = "n_grid",
      .kind = VALUE_INT,
      .min = 1,
      .max = 1000,
      .otherwise = "20",
      .help = "scale exponents tried for each input" },
    { .name = "max_shrink",
      .kind = VALUE_REAL,
      .min = 0,
      .max = 1,
      .otherwise = "0.5",
      .help = "clipping reduces the largest weight by less than this share" },
    { .name = "n_sample_token",
      .kind = VALUE_INT,
      .min = 1,
      .max = 1048576,
      .otherwise = "512",
      .help = "tokens used to choose clipping limits" },
    { .name = "max_calib_samples",
      .kind = VALUE_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "128",
      .help = "number of calibration sequences" },
    { .name = "max_calib_seq_len",
      .kind = VALUE_INT,
      .min = 1,
      .max = 65536,
      .otherwise = "512",
      .help = "tokens in a calibration sequence" },
    { 0 },
};

const struct method METHOD_AWQ = {
    .name = "awq",
    .help = "finer steps for inputs with large activations (scales are folded away); clips outlier weights",
    .good = "4 bits; few parameters to overfit, so it generalizes beyond its calibration text",
    .bad =
        "2 bits; where scales cannot be folded (no norm, grouped-query attention) it only rounds and clips",
    .params = AWQ_PARAMS,
    .formats = GROUP_FORMATS,
    .linear_only = true,
    .calibration = CALIBRATION_NEEDED,
    .check = group_check,
    .format = group_format_of,
    .samples = awq_samples,
    .rows = nearest_rows, /* for matrices that no layer uses; all others are encoded in `layer` */
    .layer = awq_layer,
};
