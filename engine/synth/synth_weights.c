/* Generates the weights of a synthetic model and writes them, at the speed of the disk in every format.
 *
 * All threads generate and encode the rows of a chunk of a few megabytes. Meanwhile the first of them writes
 * the chunk before. The values of a row depend on seed, tensor and row alone, so the bytes do not depend on
 * the number of threads.
 *
 * Encoders that search for the best codes (format.searched) take minutes for a billion weights. Matrices in
 * these formats are drawn from a bank: about a million weights of the same distribution, encoded once for
 * each row length. A row is a random sequence of blocks from the bank. So each block is one that the encoder
 * made: codes, scales and their entropy are those of an encoded random matrix. What differs is that the same
 * block occurs in several places. A matrix of another distribution, or of a small model, is encoded as a
 * whole. */
#include "engine/synth/synth_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

enum {
    CHUNK_BYTES = 8 << 20,
    BANK_WEIGHTS = 1 << 20,
    /* with fewer weights than this in one row length, a bank would save little */
    BANK_WORTH = 4 * BANK_WEIGHTS,
    STEP_WEIGHTS = 1 << 16, /* of the rows that a thread takes at once */
};

int64_t synth_tensor_rows(const struct synth_tensor *t)
{
    return t->shape[1] * t->shape[2];
}

int64_t synth_tensor_bytes(const struct synth_tensor *t)
{
    return synth_tensor_rows(t) * format_row_bytes(t->format, t->shape[0]);
}

/* Encoded blocks of rows with the distribution of `like`. */
struct bank {
    struct synth_tensor like; /* one of the tensors that use the bank */
    int64_t rows, blocks;
    unsigned char *bytes; /* NULL: not encoded yet */
};

/* The work of one parallel region: rows of a chunk or of a bank. */
struct region {
    struct threadpool *pool;
    const struct noise *noise;
    uint64_t seed;
    const struct synth_tensor *tensor;
    const struct bank *bank; /* NULL: encode */
    uint64_t stream;         /* names the tensor in the stream of noise */
    int64_t first_row, rows;
    unsigned char *out;
    float *scratch; /* one row per member */
    int64_t scratch_cols;

    /* written by member 0, which is the thread that owns the writer */
    struct gguf_writer *writer;
    const unsigned char *pending;
    int64_t pending_bytes;
    enum err_code written;
    struct err *why;
};

struct maker {
    struct region region;
    struct bank *banks;
    int64_t bank_count;
    unsigned char *buffers[2]; /* the chunk that is generated and the one that is written */
    int64_t buffer_bytes;
    int current;
};

/* ---------------------------------------------------------------- rows */

static void row_encode(const struct region *r, int64_t row, float *x, unsigned char *out)
{
    const struct synth_tensor *t = r->tensor;
    const struct noise_stream at = { r->seed, r->stream, (uint64_t)row };
    noise_fill(r->noise, at, x, t->shape[0], t->mean, t->deviation);
    format_encode_rows(t->format, x, out, 1, t->shape[0]);
}

static void row_draw(const struct region *r, int64_t row, unsigned char *out)
{
    const struct format *f = r->tensor->format;
    const struct noise_stream at = { r->seed, r->stream, (uint64_t)row };
    const int64_t blocks = r->tensor->shape[0] / f->block_weights;
    uint32_t choice[64];
    for (int64_t done = 0; done < blocks; done += (int64_t)COUNT_OF(choice)) {
        const int64_t part = MIN(blocks - done, (int64_t)COUNT_OF(choice));
        noise_choose(at, done, choice, part, (uint32_t)r->bank->blocks);
        for (int64_t i = 0; i < part; i++, out += f->block_bytes)
            memcpy(out, r->bank->bytes + (int64_t)choice[i] * f->block_bytes, f->block_bytes);
    }
}

static void region_make_rows(void *arg, int member, int size)
{
    (void)size;
    struct region *r = arg;
    if (member == 0 && r->pending_bytes)
        r->written = gguf_writer_write(r->writer, r->pending, r->pending_bytes, r->why);
    const int64_t cols = r->tensor->shape[0], row_bytes = format_row_bytes(r->tensor->format, cols),
                  step = MAX(1, STEP_WEIGHTS / cols);
    float *x = r->scratch + member * r->scratch_cols;
    for (int64_t at; (at = threadpool_next(r->pool, step)) < r->rows;)
        for (int64_t i = at; i < MIN(at + step, r->rows); i++) {
            if (r->bank)
                row_draw(r, r->first_row + i, r->out + i * row_bytes);
            else
                row_encode(r, r->first_row + i, x, r->out + i * row_bytes);
        }
}

/* ---------------------------------------------------------------- banks */

static bool same_distribution(const struct synth_tensor *a, const struct synth_tensor *b)
{
    return a->format == b->format && a->shape[0] == b->shape[0] && a->mean == b->mean &&
           a->deviation == b->deviation;
}

/* List the banks that are worth while, without their blocks. */
static enum err_code banks_plan(struct maker *m, const struct synth_plan *plan, struct err *why)
{
    m->banks = calloc((size_t)plan->count, sizeof *m->banks);
    if (!m->banks) return err_set(why, ERR_NOMEM, "out of memory making weights");
    int64_t count = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct synth_tensor *t = &plan->tensors[i];
        if (!t->format->searched) continue;
        int64_t b = 0;
        while (b < count && !same_distribution(t, &m->banks[b].like)) b++;
        if (b == count) m->banks[count++].like = *t;
        m->banks[b].rows += synth_tensor_rows(t);
    }
    for (int64_t b = 0; b < count; b++) {
        struct bank *bank = &m->banks[b];
        const int64_t cols = bank->like.shape[0];
        if (bank->rows * cols < BANK_WORTH) continue;
        bank->rows = (BANK_WEIGHTS + cols - 1) / cols;
        bank->blocks = bank->rows * cols / bank->like.format->block_weights;
        m->banks[m->bank_count++] = *bank;
    }
    return ERR_OK;
}

/* The bank of a tensor, encoded at its first use. *out stays NULL for a tensor without one. */
static enum err_code bank_get(const struct bank **out, struct maker *m, const struct synth_tensor *t,
                              struct err *why)
{
    int64_t b = 0;
    while (b < m->bank_count && !same_distribution(t, &m->banks[b].like)) b++;
    *out = NULL;
    if (b == m->bank_count) return ERR_OK;
    struct bank *bank = &m->banks[b];
    *out = bank;
    if (bank->bytes) return ERR_OK;
    const int64_t cols = t->shape[0];
    bank->bytes = malloc((size_t)(bank->rows * format_row_bytes(t->format, cols)));
    if (!bank->bytes) return err_set(why, ERR_NOMEM, "out of memory making weights");
    struct region r = m->region; /* nothing is written meanwhile */
    r.tensor = t;
    r.bank = NULL;
    r.stream = ~(uint64_t)cols; /* no tensor has such a number */
    r.first_row = 0;
    r.rows = bank->rows;
    r.out = bank->bytes;
    r.pending_bytes = 0;
    threadpool_run(r.pool, region_make_rows, &r);
    return ERR_OK;
}

/* ---------------------------------------------------------------- the whole */

static enum err_code write_last(struct region *r)
{
    if (!r->written && r->pending_bytes)
        r->written = gguf_writer_write(r->writer, r->pending, r->pending_bytes, r->why);
    r->pending_bytes = 0;
    return r->written;
}

static enum err_code write_all(struct maker *m, const struct synth_plan *plan, const struct synth_options *o)
{
    struct region *r = &m->region;
    int64_t bytes = 0, done = 0;
    for (int64_t i = 0; i < plan->count; i++) bytes += synth_tensor_bytes(&plan->tensors[i]);
    for (int64_t i = 0; i < plan->count; i++) {
        const struct synth_tensor *t = &plan->tensors[i];
        const int64_t rows = synth_tensor_rows(t), row_bytes = format_row_bytes(t->format, t->shape[0]),
                      fit = MAX(1, CHUNK_BYTES / row_bytes);
        const enum err_code rc = bank_get(&r->bank, m, t, r->why);
        if (rc) return rc;
        r->tensor = t;
        r->stream = (uint64_t)i;
        for (r->first_row = 0; r->first_row < rows; r->first_row += r->rows) {
            r->rows = MIN(fit, rows - r->first_row);
            r->out = m->buffers[m->current];
            threadpool_run(r->pool, region_make_rows, r);
            if (r->written) return r->written;
            r->pending = r->out;
            r->pending_bytes = r->rows * row_bytes;
            m->current ^= 1;
            done += r->pending_bytes;
            if (o->progress) o->progress(o->ctx, (double)done / (double)bytes);
        }
    }
    return write_last(r);
}

static enum err_code maker_open(struct maker *m, const struct synth_plan *plan, int threads, struct err *why)
{
    struct region *r = &m->region;
    m->buffer_bytes = CHUNK_BYTES;
    for (int64_t i = 0; i < plan->count; i++) {
        const struct synth_tensor *t = &plan->tensors[i];
        r->scratch_cols = MAX(r->scratch_cols, t->shape[0]);
        m->buffer_bytes = MAX(m->buffer_bytes, format_row_bytes(t->format, t->shape[0]));
    }
    for (size_t i = 0; i < COUNT_OF(m->buffers); i++) m->buffers[i] = malloc((size_t)m->buffer_bytes);
    r->scratch = malloc((size_t)(threads * r->scratch_cols) * sizeof *r->scratch);
    if (!m->buffers[0] || !m->buffers[1] || !r->scratch)
        return err_set(why, ERR_NOMEM, "out of memory making weights");
    const enum err_code rc = banks_plan(m, plan, why);
    return rc ? rc : threadpool_open(&r->pool, &(struct threadpool_options){ .threads = threads }, why);
}

static void maker_close(struct maker *m)
{
    threadpool_close(m->region.pool);
    for (int64_t i = 0; i < m->bank_count; i++) free(m->banks[i].bytes);
    free(m->banks);
    free(m->region.scratch);
    for (size_t i = 0; i < COUNT_OF(m->buffers); i++) free(m->buffers[i]);
}

enum err_code synth_write_weights(struct gguf_writer *w, const struct synth_plan *plan,
                                  const struct synth_options *o, struct err *why)
{
    struct noise *noise = malloc(sizeof *noise);
    if (!noise) return err_set(why, ERR_NOMEM, "out of memory making weights");
    noise_init(noise);
    struct maker m = { .region = { .noise = noise, .seed = o->seed, .writer = w, .why = why } };
    enum err_code rc = maker_open(&m, plan, MAX(1, o->threads), why);
    if (!rc) rc = write_all(&m, plan, o);
    maker_close(&m);
    free(noise);
    return rc;
}
