/* Prepares operands for the kernels and runs products. */
#include "engine/train/product.h"

#include <string.h>

#include "engine/train/rows.h"
#include "engine/config/config.h"

enum { ROUND = 512 };

const struct format *product_format(enum amp amp)
{
    return &FORMATS[amp == AMP_OFF ? FORMAT_F32 : amp == AMP_BF16 ? FORMAT_BF16 : FORMAT_F16];
}

int64_t operand_bytes(enum amp amp, int64_t rows, int64_t cols)
{
    return rows * format_row_bytes(product_format(amp), cols);
}

void product_turn(const struct products *p, const float *x, int64_t x_stride, int64_t rows, int64_t cols,
                  float *out)
{
    rows_turn(p->pool, &(struct turning){ x, x_stride, rows, cols, out });
}

/* ---------------------------------------------------------------- operands */

struct encoding {
    const struct format *format;
    const float *x;
    int64_t x_stride, cols;
    uint8_t *out;
};

/* Convert some rows to the format of operands. */
static void encoding_rows(const void *arg, int64_t from, int64_t to)
{
    const struct encoding *e = arg;
    const int64_t row_bytes = format_row_bytes(e->format, e->cols);
    if (e->x_stride == e->cols) {
        format_encode_rows(e->format, e->x + from * e->cols, e->out + from * row_bytes, to - from, e->cols);
        return;
    }
    for (int64_t r = from; r < to; r++)
        format_encode_rows(e->format, e->x + r * e->x_stride, e->out + r * row_bytes, 1, e->cols);
}

void operand_set(const struct products *p, struct operand *o, const float *x, int64_t x_stride, int64_t rows,
                 int64_t cols)
{
    o->w = (struct weight){ .format = p->format, .rows = rows, .cols = cols, .data = o->store };
    if (p->amp == AMP_OFF && x_stride == cols) {
        o->w.data = x;
        return;
    }
    rows_run(p->pool, rows, encoding_rows, &(struct encoding){ p->format, x, x_stride, cols, o->store });
}

void operand_set_turned(const struct products *p, struct operand *o, const float *x, int64_t x_stride,
                        int64_t rows, int64_t cols)
{
    float *turned = p->amp == AMP_OFF ? o->store : p->turned;
    product_turn(p, x, x_stride, cols, rows, turned);
    operand_set(p, o, turned, cols, rows, cols);
}

/* ---------------------------------------------------------------- products */

struct rounding {
    const float *x;
    int64_t x_stride, cols;
    float *out;
};

/* Round some rows to f16 and back. */
static void rounding_rows(const void *arg, int64_t from, int64_t to)
{
    const struct rounding *r = arg;
    const struct format *half = &FORMATS[FORMAT_F16];
    uint16_t codes[ROUND];
    for (int64_t i = from; i < to; i++)
        for (int64_t c = 0; c < r->cols; c += ROUND) {
            const int64_t n = MIN((int64_t)ROUND, r->cols - c);
            format_encode_rows(half, r->x + i * r->x_stride + c, codes, 1, n);
            format_decode_rows(half, codes, r->out + i * r->cols + c, 1, n);
        }
}

void product_run(const struct products *p, const struct product *m)
{
    struct matmul run = { .w = &m->w->w,
                          .x = m->x,
                          .x_stride = m->x_stride,
                          .n = (int)m->n,
                          .residual = m->add ? m->y : NULL,
                          .y = m->y,
                          .y_stride = m->y_stride };
    if (p->amp == AMP_FP16) {
        const int64_t cols = m->w->w.cols;
        rows_run(p->pool, m->n, rounding_rows, &(struct rounding){ m->x, m->x_stride, cols, p->rounded });
        run.x = p->rounded;
        run.x_stride = cols;
    }
    backend_matmul(p->backend, &run, 1);
}

void product_weight_gradient(const struct products *p, const float *dy, int64_t dy_stride, int64_t rows,
                             const struct operand *x, float *dw)
{
    const int64_t n = x->w.cols, cols = x->w.rows;
    product_turn(p, dy, dy_stride, n, rows, p->turned);
    product_run(
        p, &(struct product){
               .x = p->turned, .x_stride = n, .n = rows, .w = x, .y = dw, .y_stride = cols, .add = true });
}
