/* Which inputs a layer has, what makes them and who reads them: the mirror of how the forward pass is wired.
 */
#include "engine/quant/fold.h"

/* ---------------------------------------------------------------- who is who */

static void add_readers(struct layer_job *job, struct fold *f, const enum slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        struct layer_matrix *m = layer_matrix_at(job, slots[i]);
        if (!m) continue;
        f->readers[f->reader_count++] = m;
        f->n = m->job.cols;
    }
}

static void add_attention(struct layer_job *job, struct fold *f)
{
    add_readers(job, f, (const enum slot[]){ SLOT_Q, SLOT_K, SLOT_V, SLOT_QKV }, 4);
}

static void add_feed_forward(struct layer_job *job, struct fold *f)
{
    add_readers(job, f, (const enum slot[]){ SLOT_GATE, SLOT_UP }, 2);
}

static void take_norm(struct layer_job *job, struct fold *f, enum slot norm)
{
    f->norm = layer_vector_at(job, norm);
    f->norm_bias = layer_vector_at(job, (enum slot)(norm + 1));
    if (!f->norm) f->obstacle = "it has no norm in front of it";
}

static void take_rows(struct layer_job *job, struct fold *f, enum slot maker)
{
    f->maker = layer_matrix_at(job, maker);
    f->maker_bias = layer_vector_at(job, (enum slot)(maker + 1));
    if (!f->maker) f->obstacle = "nothing in front of it is known";
}

/* The halves of a layer and the norms in front of them. */
static void find_halves(struct layer_job *job, bool parallel, struct fold *attention, struct fold *forward)
{
    const bool second = layer_vector_at(job, SLOT_ATTN_NORM_2), own = layer_vector_at(job, SLOT_FFN_NORM);
    add_attention(job, attention);
    take_norm(job, attention, parallel && second ? SLOT_ATTN_NORM_2 : SLOT_ATTN_NORM);
    if (!parallel || second || own) {
        add_feed_forward(job, forward);
        take_norm(job, forward, parallel && !own ? SLOT_ATTN_NORM : SLOT_FFN_NORM);
    } else {
        add_feed_forward(job, attention); /* both halves read one norm */
    }
}

/* Attention mixes values of tokens, head by head: row i of v makes input i, unless heads share values. */
static void find_attention_out(struct layer_job *job, struct fold *f)
{
    const bool fused = layer_matrix_at(job, SLOT_QKV);
    add_readers(job, f, (const enum slot[]){ SLOT_ATTN_OUT }, 1);
    take_rows(job, f, fused ? SLOT_QKV : SLOT_V);
    if (job->shape->heads != job->shape->kv_heads) f->obstacle = "several heads share their values";
}

static void find_down(struct layer_job *job, struct fold *f)
{
    const bool gated = job->arch->gate_in_up || layer_matrix_at(job, SLOT_GATE);
    add_readers(job, f, (const enum slot[]){ SLOT_DOWN }, 1);
    take_rows(job, f, SLOT_UP);
    if (!gated) f->obstacle = "an activation function lies in front of it";
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
    find_halves(job, hyper.parallel, &out[FOLD_ATTENTION], &out[FOLD_FEED_FORWARD]);
    find_attention_out(job, &out[FOLD_ATTENTION_OUT]);
    find_down(job, &out[FOLD_DOWN]);
    return ERR_OK;
}

/* ---------------------------------------------------------------- folding */

/* The last n of a vector. */
static void divide_vector(struct layer_vector *v, const float *scales, int64_t n)
{
    if (!v) return;
    for (int64_t i = 0; i < n; i++) v->x[v->n - n + i] /= scales[i];
    v->changed = true;
}

static void divide_rows(struct layer_matrix *m, const float *scales, int64_t n)
{
    const int64_t cols = m->job.cols;
    float *row = m->job.x + (m->job.rows - n) * cols;
    for (int64_t i = 0; i < n; i++, row += cols)
        for (int64_t k = 0; k < cols; k++) row[k] /= scales[i];
    m->changed = true;
}

static void multiply_columns(struct layer_matrix *m, const float *scales)
{
    float *row = m->job.x;
    for (int64_t i = 0; i < m->job.rows; i++, row += m->job.cols)
        for (int64_t k = 0; k < m->job.cols; k++) row[k] *= scales[k];
    m->changed = true;
}

void fold_apply(const struct fold *f, const float *scales)
{
    divide_vector(f->norm, scales, f->n);
    divide_vector(f->norm ? f->norm_bias : f->maker_bias, scales, f->n);
    if (!f->norm) divide_rows(f->maker, scales, f->n);
    for (int i = 0; i < f->reader_count; i++) multiply_columns(f->readers[i], scales);
}
