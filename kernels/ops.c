/* The CPU operations other than products and attention: gather, norm, rope, Hadamard transform, KV store,
 * activation. Each is
 * divided among the threads by rows when it is large enough to pay for waking them (cpu_run). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"

/* ---------------------------------------------------------------- gather */

struct gather_job {
    struct cpu *b;
    const struct gather *g;
};

enum { GATHER_PIECE = 256 }; /* weights decoded at once; a multiple of every block size */

/* Write a decoded piece of a row whose scheme reorders or divides inputs: undo both. */
static void gather_prescribed(const struct gather *g, const float *piece, int64_t k0, int64_t n, float scale,
                              float *y)
{
    const struct input_scheme *s = g->table->input;
    for (int64_t j = 0; j < n; j++) {
        const int64_t k = s->order ? s->order[k0 + j] : k0 + j;
        const float v = piece[j] * scale / (s->divide ? s->divide[k] : 1);
        y[k] = (g->add ? y[k] : 0) + v * g->scale;
    }
}

static void gather_row(const struct cpu *b, const struct gather *g, int i)
{
    const struct weight *w = g->table;
    format_decode_fn *decode = b->k.format[w->format - FORMATS].decode;
    const uint8_t *row = (const uint8_t *)w->data + g->ids[i] * format_row_bytes(w->format, w->cols);
    const float scale = format_row_scale(w->format, row, w->cols) * weight_scale(w);
    float piece[GATHER_PIECE], *restrict y = g->y + i * g->y_stride;
    const bool prescribed = w->input && (w->input->order || w->input->divide);
    assert(g->ids[i] >= 0 && g->ids[i] < w->rows);
    for (int64_t k = 0; k < w->cols; k += GATHER_PIECE) {
        const int64_t n = MIN((int64_t)GATHER_PIECE, w->cols - k);
        decode(row + format_span_bytes(w->format, k), piece, n);
        if (prescribed)
            gather_prescribed(g, piece, k, n, scale, y);
        else
            for (int64_t j = 0; j < n; j++) y[k + j] = (g->add ? y[k + j] : 0) + piece[j] * scale * g->scale;
    }
}

static void gather_member(void *arg, int member, int size)
{
    const struct gather_job *job = arg;
    int64_t from, to;
    member_share(job->g->n, member, size, &from, &to);
    for (int64_t i = from; i < to; i++) gather_row(job->b, job->g, (int)i);
}

void cpu_gather(struct backend *base, const struct gather *g)
{
    struct cpu *b = (struct cpu *)base;
    struct gather_job job = { .b = b, .g = g };
    cpu_run(b, g->n * g->table->cols, gather_member, &job);
}

/* ---------------------------------------------------------------- mix */

struct mix_job {
    struct cpu *b;
    const struct mix *p;
};

enum { MIX_PIECE = 1024 }; /* sums kept on the stack */

static void mix_piece(const struct mix *p, int64_t i, int64_t from, int64_t n)
{
    float sum[MIX_PIECE], *y = p->y + i * p->y_stride + from;
    memset(sum, 0, sizeof sum);
    for (int64_t j = i * p->k; j < (i + 1) * p->k; j++) {
        const float *x = p->x + p->ids[j] * p->x_stride + from, by = p->weights[j];
        assert(p->ids[j] >= 0 && p->ids[j] < p->rows);
        for (int64_t c = 0; c < n; c++) sum[c] += by * x[c];
    }
    for (int64_t c = 0; c < n; c++) y[c] = p->add ? y[c] + sum[c] : sum[c];
}

static void mix_member(void *arg, int member, int size)
{
    const struct mix_job *job = arg;
    const struct mix *p = job->p;
    int64_t from, to; /* elements of all rows, so that one wide row is divided, too */
    member_share(p->n * p->cols, member, size, &from, &to);
    while (from < to) {
        const int64_t i = from / p->cols, j = from % p->cols;
        const int64_t n = MIN(MIN(to - from, p->cols - j), (int64_t)MIX_PIECE);
        mix_piece(p, i, j, n);
        from += n;
    }
}

void cpu_mix(struct backend *base, const struct mix *p)
{
    struct cpu *b = (struct cpu *)base;
    struct mix_job job = { .b = b, .p = p };
    cpu_run(b, p->n * p->cols * p->k, mix_member, &job);
}

/* ---------------------------------------------------------------- norm */

struct norm_job {
    struct cpu *b;
    const struct norm *p;
};

static void norm_member(void *arg, int member, int size)
{
    const struct norm_job *job = arg;
    const struct norm *p = job->p;
    const struct vector_kernels *v = &job->b->k.vec;
    int64_t from, to;
    member_share(p->n, member, size, &from, &to);
    for (int64_t i = from; i < to; i++)
        (p->kind == NORM_RMS ? v->norm_rms : v->norm_layer)(p->x + i * p->x_stride, p->w, p->bias, p->cols,
                                                            p->eps, p->y + i * p->y_stride);
}

void cpu_norm(struct backend *base, const struct norm *p)
{
    struct cpu *b = (struct cpu *)base;
    struct norm_job job = { .b = b, .p = p };
    cpu_run(b, p->n * p->cols, norm_member, &job);
}

/* ---------------------------------------------------------------- rope */

enum { ROPE_PAIRS_MAX = HEAD_DIM_MAX / 2 };

struct rope_job {
    struct cpu *b;
    const struct rope *p;
};

static void rope_row(const struct cpu *b, const struct rope *p, int i)
{
    float angle[ROPE_PAIRS_MAX], cosine[ROPE_PAIRS_MAX], sine[ROPE_PAIRS_MAX];
    const int pairs = p->rot_dims / 2;
    for (int j = 0; j < pairs; j++) /* in f32, as the published models were trained */
        angle[j] = (float)p->pos[i] * p->freq[j];
    b->k.vec.sincos(angle, pairs, p->magnitude, sine, cosine);
    for (int h = 0; h < p->heads; h++)
        b->k.vec.rotate[p->half_split](p->x + i * p->x_stride + (int64_t)h * p->head_dim, pairs, sine,
                                       cosine);
}

static void rope_member(void *arg, int member, int size)
{
    const struct rope_job *job = arg;
    int64_t from, to;
    member_share(job->p->n, member, size, &from, &to);
    for (int64_t i = from; i < to; i++) rope_row(job->b, job->p, (int)i);
}

void cpu_rope(struct backend *base, const struct rope *p)
{
    struct cpu *b = (struct cpu *)base;
    assert(p->rot_dims % 2 == 0 && p->rot_dims <= p->head_dim && p->rot_dims <= 2 * ROPE_PAIRS_MAX);
    struct rope_job job = { .b = b, .p = p };
    cpu_run(b, (int64_t)p->n * p->heads * p->head_dim, rope_member, &job);
}

/* ---------------------------------------------------------------- Hadamard transform */

struct hadamard_job {
    struct cpu *b;
    const struct hadamard *p;
};

static void hadamard_member(void *arg, int member, int size)
{
    const struct hadamard_job *job = arg;
    const struct hadamard *p = job->p;
    const int64_t blocks = p->cols / p->block; /* of a row; blocks of all rows are divided */
    int64_t from, to;
    member_share(p->n * blocks, member, size, &from, &to);
    for (int64_t i = from; i < to; i++)
        job->b->k.vec.hadamard(p->x + i / blocks * p->x_stride + i % blocks * p->block, p->block);
}

void cpu_hadamard(struct backend *base, const struct hadamard *p)
{
    struct cpu *b = (struct cpu *)base;
    struct hadamard_job job = { .b = b, .p = p };
    cpu_run(b, p->n * p->cols, hadamard_member, &job);
}

/* ---------------------------------------------------------------- keys and values */

int64_t kv_layer_bytes(const struct kv_layer *kv)
{
    const int64_t tokens = (int64_t)kv->block_tokens * kv->blocks * kv->kv_heads;
    const int64_t v = kv->v_in_k ? 0 : format_row_bytes(kv->v_format, kv->v_dim);
    return tokens * (format_row_bytes(kv->k_format, kv->k_dim) + v);
}

struct store_job {
    const struct cpu *b;
    const struct kv_store *p;
};

/* Encoders of blocks would turn infinities and NaN into plausible numbers. A row with one of them is stored
 * as bytes that decode to NaN in every cache format: all bits set is NaN as f32, f16, bf16, E4M3 and E5M2,
 * which are what values or scales of blocks are stored in. */
enum { KV_NOT_FINITE = 0xff };

static void store_heads(const struct store_job *job, const struct format *f, int dim, const float *x,
                        int32_t slot, uint8_t *cache)
{
    const struct kv_layer *kv = job->p->kv;
    const int64_t row_bytes = format_row_bytes(f, dim);
    const int64_t block = slot / kv->block_tokens, token = slot % kv->block_tokens;
    for (int64_t h = 0; h < kv->kv_heads; h++) {
        uint8_t *out = cache + ((block * kv->kv_heads + h) * kv->block_tokens + token) * row_bytes;
        if (!isfinite(job->b->k.rounding.largest(x + h * dim, dim))) {
            memset(out, KV_NOT_FINITE, (size_t)row_bytes);
            continue;
        }
        encode_with(&job->b->k, f, &(struct encode){ .x = x + h * dim, .out = out, .rows = 1, .cols = dim });
    }
}

static void kv_store_member(void *arg, int member, int size)
{
    const struct store_job *job = arg;
    const struct kv_store *p = job->p;
    const struct kv_layer *kv = p->kv;
    int64_t from, to;
    member_share(p->n, member, size, &from, &to);
    for (int64_t i = from; i < to; i++) {
        if (p->slots[i] < 0) continue;
        assert(p->slots[i] < kv->block_tokens * kv->blocks);
        store_heads(job, kv->k_format, kv->k_dim, p->k + i * p->k_stride, p->slots[i], kv->k);
        if (!kv->v_in_k)
            store_heads(job, kv->v_format, kv->v_dim, p->v + i * p->v_stride, p->slots[i], kv->v);
    }
}

void cpu_kv_store(struct backend *base, const struct kv_store *p)
{
    struct cpu *b = (struct cpu *)base;
    const struct kv_layer *kv = p->kv;
    struct store_job job = { .b = b, .p = p };
    assert(kv->k_format->encode && kv->v_format->encode);
    assert(kv->k_dim % kv->k_format->block_weights == 0 && kv->v_dim % kv->v_format->block_weights == 0);
    cpu_run(b, (int64_t)p->n * kv->kv_heads * (kv->k_dim + kv->v_dim), kv_store_member, &job);
}

/* ---------------------------------------------------------------- activation */

/* Rows are divided at multiples of this, so that the number of threads decides no element's bits: the last
 * elements of a call are computed without vectors. */
enum { ACTIVATE_PIECE = 64 };

struct activate_job {
    struct cpu *b;
    const struct activate *p;
};

static void activate_member(void *arg, int member, int size)
{
    const struct activate_job *job = arg;
    const struct activate *p = job->p;
    const int64_t pieces = (p->cols + ACTIVATE_PIECE - 1) / ACTIVATE_PIECE;
    int64_t from, to; /* pieces of all rows, so that one wide row is divided, too */
    member_share(p->n * pieces, member, size, &from, &to);
    while (from < to) {
        const int64_t i = from / pieces, last = MIN(to - i * pieces, pieces);
        const int64_t j = from % pieces * ACTIVATE_PIECE, n = MIN(last * ACTIVATE_PIECE, p->cols) - j;
        const int64_t at = i * p->stride + j;
        job->b->k.vec.activate[p->act](p->gate + at, p->up ? p->up + at : NULL, n,
                                       p->y + i * p->y_stride + j);
        from = i * pieces + last;
    }
}

void cpu_activate(struct backend *base, const struct activate *p)
{
    struct cpu *b = (struct cpu *)base;
    struct activate_job job = { .b = b, .p = p };
    cpu_run(b, p->n * p->cols, activate_member, &job);
}
