/* Converts one tensor: read, check, encode on all threads, write. Tensors whose rows are independent pass
 * through memory in pieces of a few megabytes, so a model larger than memory can be quantized. A method with
 * `tensor` gets the whole matrix. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/effective.h"
#include "engine/quant/quantize_internal.h"

enum { CHUNK_FLOATS = 1 << 20 };

int64_t unit_rows(const struct unit *u)
{
    return u->source->shape[1] * u->source->shape[2] * u->source->shape[3];
}

struct tensor_job unit_job(const struct quantization *q, const struct unit *u)
{
    struct tensor_job job = { .name = u->source->name,
                              .format = u->format,
                              .params = q->params,
                              .rows = unit_rows(u),
                              .cols = u->source->shape[0],
                              .input = calibration_find(q->calibration, u->source->name),
                              .companions = u->companions,
                              .pool = q->pool };
    for (int i = 0; i < u->companions; i++) job.companion[i] = u->companion[i];
    return job;
}

struct companion_tensor *job_companion(struct tensor_job *job, enum companion_kind what)
{
    for (int i = 0; i < job->companions; i++)
        if (job->companion[i].what == what) return &job->companion[i];
    return NULL;
}

void nearest_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    format_encode_rows(job->format, x, out, rows, job->cols);
}

struct row_loop {
    const struct tensor_job *job;
    rows_fn *rows;
};

/* Thread function of job_encode_rows. */
static void row_loop_run(void *arg, int member, int size)
{
    const struct row_loop *l = arg;
    const struct tensor_job *job = l->job;
    const int64_t from = job->rows * member / size, count = job->rows * (member + 1) / size - from;
    const float *x = job->x + from * job->cols;
    void *out = (unsigned char *)job->out + from * format_row_bytes(job->format, job->cols);
    l->rows(job, x, out, count);
}

void job_encode_rows(struct tensor_job *job, rows_fn *rows)
{
    struct row_loop l = { job, rows };
    threadpool_run(job->pool, row_loop_run, &l);
}

bool unit_finished(const struct quantization *q, const struct unit *u)
{
    char name[160];
    bool all = gguf_writer_finished(q->writer, u->source->name);
    for (int i = 0; i < u->companions && all; i++)
        all = gguf_writer_finished(q->writer,
                                   companion_name(u->source->name, u->companion[i].what, name, sizeof name));
    return all;
}

/* ---------------------------------------------------------------- reading */

/* A run of whole rows: decoded to f32 and, if out is not NULL, encoded; divided over all threads. */
struct piece {
    const struct quantization *q;
    const struct unit *unit;
    const struct tensor_job *job; /* passed to the method's `rows`; NULL: only decode to x */
    int64_t first_row, rows;
    const struct effective *effective; /* of a matrix that is dequantized; NULL: its values mean themselves */
    bool loaded;                       /* x is already decoded */
    float *scratch;                    /* [threads][columns]; NULL without `effective` */
    float *x;
    unsigned char *out;
    _Atomic int64_t bad; /* smallest index in the tensor of a value that is not finite; -1: none */
};

/* Lower p->bad to `at`; several threads may do so at once. */
static void piece_note_bad(struct piece *p, int64_t at)
{
    int64_t seen = atomic_load(&p->bad);
    while ((seen < 0 || at < seen) && !atomic_compare_exchange_weak(&p->bad, &seen, at)) continue;
}

/* Decode rows to f32. scratch: [columns]. False: a value is not finite. */
static bool piece_read_rows(struct piece *p, int64_t from, int64_t to, float *scratch, float *x)
{
    const struct gguf_tensor *t = p->unit->source;
    const int64_t cols = t->shape[0], n = (to - from) * cols;
    if (p->effective)
        for (int64_t r = from; r < to; r++)
            effective_row(p->effective, p->first_row + r, scratch, x + (r - from) * cols);
    else
        format_decode_rows(t->format,
                           gguf_tensor_data(t) + (p->first_row + from) * format_row_bytes(t->format, cols), x,
                           to - from, cols);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            piece_note_bad(p, (p->first_row + from) * cols + i);
            return false;
        }
    return true;
}

/* Encode rows [from, to) of the tensor from x to out. Each matrix of a tensor with several (experts, heads)
 * has inputs, and hence importances, of its own. */
static void piece_encode(const struct piece *p, const float *x, unsigned char *out, int64_t from, int64_t to)
{
    const struct gguf_tensor *t = p->unit->source;
    const struct method *m = p->q->params.method;
    rows_fn *rows = p->unit->by_method && m->rows ? m->rows : nearest_rows;
    const int64_t row_bytes = format_row_bytes(p->unit->format, t->shape[0]);
    while (from < to) {
        const int64_t part = from / t->shape[1], end = MIN((part + 1) * t->shape[1], to);
        struct tensor_job job = *p->job;
        job.importance = job.input ? calibration_importance(job.input, t->shape[0], part) : NULL;
        rows(&job, x, out, end - from);
        x += (end - from) * t->shape[0];
        out += (end - from) * row_bytes;
        from = end;
    }
}

/* Thread function: decode and encode some rows of a piece. */
static void piece_rows(void *arg, int member, int size)
{
    struct piece *p = arg;
    const int64_t cols = p->unit->source->shape[0], from = p->rows * member / size,
                  to = p->rows * (member + 1) / size;
    float *x = p->x + from * cols;
    float *scratch = p->scratch ? p->scratch + member * cols : NULL;
    if (from == to || (!p->loaded && !piece_read_rows(p, from, to, scratch, x)) || !p->out) return;
    piece_encode(p, x, p->out + from * format_row_bytes(p->unit->format, cols), p->first_row + from,
                 p->first_row + to);
}

/* Process a piece on all threads. ERR_FORMAT names the first value that is not finite. */
static enum err_code piece_run(struct piece *p, struct err *why)
{
    atomic_init(&p->bad, -1);
    threadpool_run(p->q->pool, piece_rows, p);
    const int64_t bad = atomic_load(&p->bad);
    if (bad < 0) return ERR_OK;
    return err_set(why, ERR_FORMAT, "tensor '%s': value %" PRId64 " is not a finite number",
                   p->unit->source->name, bad);
}

enum err_code unit_load(struct quantization *q, const struct unit *u, float *x, struct err *why)
{
    struct piece p = { .q = q, .unit = u, .rows = unit_rows(u), .x = x };
    return piece_run(&p, why);
}

/* ---------------------------------------------------------------- encoding */

enum err_code companions_alloc(struct tensor_job *job, struct err *why)
{
    for (int i = 0; i < job->companions; i++) {
        struct companion_tensor *s = &job->companion[i];
        s->data = calloc((size_t)s->size, (size_t)format_row_bytes(companion_format(s->what), 1));
        if (!s->data) return err_set(why, ERR_NOMEM, "out of memory while quantizing '%s'", job->name);
    }
    return ERR_OK;
}

void companions_free(struct tensor_job *job)
{
    for (int i = 0; i < job->companions; i++) free(job->companion[i].data);
}

enum err_code unit_encode(struct quantization *q, const struct unit *u, struct tensor_job *job,
                          struct err *why)
{
    if (u->by_method && q->params.method->tensor) return q->params.method->tensor(job, why);
    struct piece p = {
        .q = q, .unit = u, .job = job, .rows = job->rows, .loaded = true, .x = job->x, .out = job->out
    };
    return piece_run(&p, why);
}

enum err_code unit_put(struct quantization *q, const struct unit *u, const struct tensor_job *job,
                       struct err *why)
{
    char name[160];
    const struct checked what = { .x = job->x, .out = job->out, .rows = job->rows };
    enum err_code rc = encoded_check(q, u, u->format, &what, why);
    if (!rc) rc = companions_check(job, why);
    if (!rc) rc = gguf_writer_select(q->writer, job->name, why);
    if (!rc)
        rc = gguf_writer_write(q->writer, job->out, job->rows * format_row_bytes(u->format, job->cols), why);
    for (int i = 0; i < job->companions && !rc; i++) {
        const struct companion_tensor *s = &job->companion[i];
        rc = gguf_writer_select(q->writer, companion_name(job->name, s->what, name, sizeof name), why);
        if (!rc)
            rc = gguf_writer_write(q->writer, s->data, format_row_bytes(companion_format(s->what), s->size),
                                   why);
    }
    return rc;
}

/* ---------------------------------------------------------------- one unit */

/* In memory as a whole: for methods that look at all of it. */
static enum err_code unit_write_whole(struct quantization *q, struct unit *u, struct err *why)
{
    struct tensor_job job = unit_job(q, u);
    job.x = malloc((size_t)(job.rows * job.cols) * sizeof(float));
    job.out = malloc((size_t)(job.rows * format_row_bytes(u->format, job.cols)));
    enum err_code rc = job.x && job.out
                           ? companions_alloc(&job, why)
                           : err_set(why, ERR_NOMEM, "out of memory while quantizing '%s'", job.name);
    if (!rc) rc = unit_load(q, u, job.x, why);
    if (!rc) rc = unit_encode(q, u, &job, why);
    if (!rc) rc = unit_put(q, u, &job, why);
    if (!rc) rc = quantize_report(q, u->source->bytes, why);
    companions_free(&job);
    free(job.x);
    free(job.out);
    return rc;
}

/* Convert a tensor a few megabytes at a time. */
static enum err_code unit_write_pieces(struct quantization *q, struct unit *u, struct err *why)
{
    const struct tensor_job job = unit_job(q, u);
    const int64_t step = MIN(MAX(CHUNK_FLOATS / job.cols, 1), job.rows);
    struct effective effective = { 0 };
    float *scratch = malloc((size_t)(threadpool_size(q->pool) * job.cols) * sizeof(float));
    float *x = malloc((size_t)(step * job.cols) * sizeof(float));
    unsigned char *out = malloc((size_t)(step * format_row_bytes(u->format, job.cols)));
    enum err_code rc = scratch && x && out
                           ? gguf_writer_select(q->writer, job.name, why)
                           : err_set(why, ERR_NOMEM, "out of memory while quantizing '%s'", job.name);
    if (!rc && u->dequantizes) rc = effective_init(&effective, q->source, u->source, why);
    for (int64_t first = 0; first < job.rows && !rc; first += step) {
        struct piece p = { .q = q,
                           .unit = u,
                           .job = &job,
                           .first_row = first,
                           .rows = MIN(step, job.rows - first),
                           .effective = u->dequantizes ? &effective : NULL,
                           .scratch = scratch,
                           .x = x,
                           .out = out };
        const struct checked what = { .x = x, .out = out, .first_row = first, .rows = p.rows, .clips = true };
        rc = piece_run(&p, why);
        if (!rc) rc = encoded_check(q, u, u->format, &what, why);
        if (!rc) rc = gguf_writer_write(q->writer, out, p.rows * format_row_bytes(u->format, job.cols), why);
        if (!rc) rc = quantize_report(q, p.rows * format_row_bytes(u->source->format, job.cols), why);
    }
    if (!rc) quantize_note_clipped(q, u);
    effective_done(&effective);
    free(scratch);
    free(x);
    free(out);
    return rc;
}

/* Copy a tensor unchanged. */
static enum err_code unit_copy(struct quantization *q, const struct unit *u, struct err *why)
{
    enum { PIECE = 16 << 20 };
    const struct gguf_tensor *t = u->source;
    const struct checked what = { .out = gguf_tensor_data(t), .rows = unit_rows(u) };
    enum err_code rc = encoded_check(q, u, t->format, &what, why);
    if (!rc) rc = gguf_writer_select(q->writer, t->name, why);
    for (int64_t at = 0; at < t->bytes && !rc; at += PIECE) {
        const int64_t n = MIN(PIECE, t->bytes - at);
        rc = gguf_writer_write(q->writer, gguf_tensor_data(t) + at, n, why);
        if (!rc) rc = quantize_report(q, n, why);
    }
    return rc;
}

enum err_code unit_write(struct quantization *q, struct unit *u, struct err *why)
{
    if (!u->converts) return unit_copy(q, u, why);
    const bool whole = u->by_method && q->params.method->tensor;
    return whole ? unit_write_whole(q, u, why) : unit_write_pieces(q, u, why);
}
