/* The inputs of a layer: which tensor produces each and which matrices consume it. This mirrors the data flow
 * of the forward pass (engine/layers). */
#include "engine/quant/scale_folding.h"

/* ---------------------------------------------------------------- producers and consumers */

/* Add those of the given matrices that the layer has. */
static void fold_add_consumers(struct layer_job *job, struct fold *f, const enum slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        struct layer_matrix *m = layer_matrix_at(job, slots[i]);
        if (!m) continue;
        f->consumers[f->consumer_count++] = m;
        f->n = m->job.cols;
    }
}

static void fold_add_attention(struct layer_job *job, struct fold *f)
{
    fold_add_consumers(job, f, (const enum slot[]){ SLOT_Q, SLOT_K, SLOT_V, SLOT_QKV }, 4);
}

static void fold_add_feed_forward(struct layer_job *job, struct fold *f)
{
    fold_add_consumers(job, f, (const enum slot[]){ SLOT_GATE, SLOT_UP }, 2);
}

/* The norm's bias follows it in enum slot. */
static void fold_set_norm(struct layer_job *job, struct fold *f, enum slot norm)
{
    f->norm = layer_vector_at(job, norm);
    f->norm_bias = layer_vector_at(job, (enum slot)(norm + 1));
    if (!f->norm) f->obstacle = "no norm precedes it";
}

/* The matrix' bias follows it in enum slot. */
static void fold_set_producer(struct layer_job *job, struct fold *f, enum slot producer)
{
    f->producer = layer_matrix_at(job, producer);
    f->producer_bias = layer_vector_at(job, (enum slot)(producer + 1));
    if (!f->producer) f->obstacle = "the matrix that produces it is not in the file";
}

/* Inputs of attention and feed-forward. In parallel blocks both may read the same norm, or the attention has
 * a second norm of its own. */
static void folds_find_blocks(struct layer_job *job, bool parallel, struct fold *attention,
                              struct fold *forward)
{
    const bool second = layer_vector_at(job, SLOT_ATTN_NORM_2), own = layer_vector_at(job, SLOT_FFN_NORM);
    fold_add_attention(job, attention);
    fold_set_norm(job, attention, parallel && second ? SLOT_ATTN_NORM_2 : SLOT_ATTN_NORM);
    if (!parallel || second || own) {
        fold_add_feed_forward(job, forward);
        fold_set_norm(job, forward, parallel && !own ? SLOT_ATTN_NORM : SLOT_FFN_NORM);
    } else {
        fold_add_feed_forward(job, attention); /* both halves read one norm */
    }
}

/* The attention output's input is a weighted sum of value rows: input i comes from row i of v. With
 * grouped-query attention several query heads read the same value rows, which then have no single scale. */
static void fold_find_attention_out(struct layer_job *job, struct fold *f)
{
    const bool fused = layer_matrix_at(job, SLOT_QKV);
    fold_add_consumers(job, f, (const enum slot[]){ SLOT_ATTN_OUT }, 1);
    fold_set_producer(job, f, fused ? SLOT_QKV : SLOT_V);
    if (job->shape->heads != job->shape->kv_heads) f->obstacle = "query heads share value heads";
}

/* down's input is act(gate) * up: it is linear in the rows of up. Without a gate it is act(up). */
static void fold_find_down(struct layer_job *job, struct fold *f)
{
    const bool gated = job->arch->gate_in_up || layer_matrix_at(job, SLOT_GATE);
    fold_add_consumers(job, f, (const enum slot[]){ SLOT_DOWN }, 1);
    fold_set_producer(job, f, SLOT_UP);
    if (!gated) f->obstacle = "it is the result of an activation function";
}

enum err_code folds_find(struct layer_job *job, struct fold *out, struct err *why)
{
    static const char *const INPUTS[FOLD_COUNT] = { "the attention's input", "the attention output's input",
                                                    "the feed-forward's input",
                                                    "the down projection's input" };
    struct hyper hyper;
    const enum err_code rc = hyper_read(&hyper, job->shape, job->source, why);
    if (rc) return rc;
    for (int i = 0; i < FOLD_COUNT; i++) out[i] = (struct fold){ .input = INPUTS[i] };
    folds_find_blocks(job, hyper.parallel, &out[FOLD_ATTENTION], &out[FOLD_FEED_FORWARD]);
    fold_find_attention_out(job, &out[FOLD_ATTENTION_OUT]);
    fold_find_down(job, &out[FOLD_DOWN]);
    return ERR_OK;
}

/* ---------------------------------------------------------------- folding */

/* Divide the last n elements of a vector. */
static void vector_divide(struct layer_vector *v, const float *scales, int64_t n)
{
    if (!v) return;
    for (int64_t i = 0; i < n; i++) v->x[v->n - n + i] /= scales[i];
    v->changed = true;
}

/* Divide the last n rows of a matrix. */
static void matrix_divide_rows(struct layer_matrix *m, const float *scales, int64_t n)
{
    const int64_t cols = m->job.cols;
    float *row = m->job.x + (m->job.rows - n) * cols;
    for (int64_t i = 0; i < n; i++, row += cols)
        for (int64_t k = 0; k < cols; k++) row[k] /= scales[i];
    m->changed = true;
}

static void matrix_multiply_columns(struct layer_matrix *m, const float *scales)
{
    float *row = m->job.x;
    for (int64_t i = 0; i < m->job.rows; i++, row += m->job.cols)
        for (int64_t k = 0; k < m->job.cols; k++) row[k] *= scales[k];
    m->changed = true;
}

void fold_apply(const struct fold *f, const float *scales)
{
    vector_divide(f->norm, scales, f->n);
    vector_divide(f->norm ? f->norm_bias : f->producer_bias, scales, f->n);
    if (!f->norm) matrix_divide_rows(f->producer, scales, f->n);
    for (int i = 0; i < f->consumer_count; i++) matrix_multiply_columns(f->consumers[i], scales);
}
