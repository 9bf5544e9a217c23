/* The end of a forward pass: the output matrix, logits that the host finishes, and the check that numbers are
 * finite */
#include "engine/model/pass.h"

#include <math.h>

#include "engine/arch/arch.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

static void logits_finish(const struct model *m, float *logits, int64_t n)
{
    const float scale = m->hyper.logit_scale, cap = m->hyper.logit_softcap;
    if (scale != 1)
        for (int64_t i = 0; i < n; i++) logits[i] *= scale;
    if (cap > 0)
        for (int64_t i = 0; i < n; i++) logits[i] = cap * tanhf(logits[i] / cap);
}

/* x -> h: the input of the output matrix, of the requested rows only. */
void pass_norm_output(struct pass *p)
{
    const struct model *m = p->m;
    if (p->wanted < p->n) { /* the last layer did not drop the others */
        pass_gather_wanted(p, pass_own_wanted(p), p->b.x, p->b.h, m->shape.embd);
        struct buffers b = p->b;
        p->b.x = b.h;
        p->b.h = b.x;
        p->n = p->wanted;
    }
    const struct bound *usual = &m->global[SLOT_OUTPUT_NORM];
    pass_norm_rows(p, p->b.x, p->b.h, usual->v ? usual : &m->global[SLOT_OUTPUT_NORM_2],
                   &m->global[SLOT_OUTPUT_NORM_B]);
    pass_call_observer(p, NULL, (const enum slot[]){ m->shape.tied_output ? SLOT_TOKEN_EMBD : SLOT_OUTPUT },
                       1, p->b.h, m->shape.embd);
}

/* ---------------------------------------------------------------- values that are not finite */

/* Record the first row of this forward pass with an infinity or NaN. `row`: its index in the batch. */
static void pass_note_not_finite(const struct pass *p, int row)
{
    struct not_finite *f = &p->m->not_finite;
    if (f->found) return;
    *f = (struct not_finite){ true, p->m->lists.seq[row], p->m->lists.pos[row] };
}

/* Record row `row` if x contains an infinity or NaN. kernels_largest_magnitude compares bits, so NaN is the
 * largest. */
static void pass_check_row(const struct pass *p, const float *x, int64_t n, int row)
{
    if (!isfinite(kernels_largest_magnitude(x, n))) pass_note_not_finite(p, row);
}

/* Check the hidden states of all rows before the last layer drops rows without requested logits. Their keys
 * and values stay in the KV cache, and an 8-bit cache would hide an infinity. On a device with the output
 * matrix, the search for the largest value detects it. */
void pass_check_hidden(const struct pass *p)
{
    enum { PIECE = 2048 };
    struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    if (p->site == &m->sites[SITE_HOST]) {
        const int64_t begun = operator_begin(p);
        for (int i = 0; i < p->n; i++) pass_check_row(p, p->b.x + i * embd, embd, i);
        operator_end(p, OPERATOR_CHECK, begun, 1);
        return;
    }
    for (int i = 0; i < p->n && p->b.best; i += (int)m->widths.logit_rows) {
        struct ranked first[LOGIT_ROWS_MAX] = { 0 };
        const int n = (int)MIN(p->n - i, m->widths.logit_rows);
        backend_top(p->site->backend, &(struct top){ .x = p->b.x + i * embd,
                                                     .x_stride = embd,
                                                     .n = n,
                                                     .k = 1,
                                                     .cols = embd,
                                                     .scratch = p->b.top_scratch,
                                                     .out = p->b.best });
        backend_read(p->site->backend, first, p->b.best, (size_t)n * sizeof *first);
        for (int j = 0; j < n; j++)
            if (isnan(first[j].value)) pass_note_not_finite(p, i + j);
    }
    const int64_t all = p->b.best ? 0 : p->n * embd;
    for (int64_t at = 0; at < all;) { /* a device without the output matrix: copy to the host */
        float piece[PIECE];
        const int64_t n = MIN((int64_t)PIECE, embd - at % embd);
        backend_read(p->site->backend, piece, p->b.x + at, (size_t)n * sizeof *piece);
        pass_check_row(p, piece, n, (int)(at / embd));
        at += n;
    }
}

/* The output matrix, or the rows of it that this process has. */
static const struct bound *output_matrix(const struct model *m)
{
    if (m->exchange.output.w.data) return &m->exchange.output;
    return m->shape.tied_output ? &m->global[SLOT_TOKEN_EMBD] : &m->global[SLOT_OUTPUT];
}

/* The logits that this process computed of n rows: host memory [n][cols], finished. */
static float *pass_finish_logits(const struct pass *p, int i0, int n, int64_t cols)
{
    struct model *m = p->m;
    const bool part = model_is_part(m);
    float *host = part ? p->b.logits : m->logits + m->logits_count * cols;
    if (!part) backend_read(p->site->backend, host, p->b.logits, (size_t)(n * cols) * sizeof(float));
    for (int i = 0; i < n; i++) pass_check_row(p, host + i * cols, cols, m->lists.wanted[i0 + i]);
    logits_finish(m, host, n * cols);
    return host;
}

/* Take over n rows of logits: append them to the host's copy, or, for model_forward_best, find only the
 * largest of each row, on the device unless the host must finish them. i0: index of the first of them among
 * the requested rows. Their values are checked before the host changes them. */
static void pass_take_logits(const struct pass *p, int i0, int n)
{
    struct model *m = p->m;
    struct ranked first[LOGIT_ROWS_MAX] = { 0 };
    const int64_t cols = output_matrix(m)->w.rows;
    const int32_t *row = m->lists.wanted + i0;
    struct top top = { .x_stride = cols, .n = n, .k = 1, .cols = cols };
    for (int i = 0; i < n && !cols; i++) first[i] = (struct ranked){ -INFINITY, 0 };
    if (m->best && model_logits_are_raw(m) && cols) {
        top.x = p->b.logits;
        top.scratch = p->b.top_scratch;
        top.out = p->b.best;
        backend_top(p->site->backend, &top);
        backend_read(p->site->backend, first, p->b.best, (size_t)n * sizeof *first);
    } else {
        top.x = pass_finish_logits(p, i0, n, cols);
        top.out = first;
        if (m->best && cols) top_rows(&top);
        if (!m->best && model_is_part(m)) pass_exchange_logits(p, n);
    }
    if (m->best && model_is_part(m)) pass_exchange_best(p, first, n);
    for (int i = 0; i < n && m->best; i++) {
        if (isnan(first[i].value)) pass_note_not_finite(p, row[i]);
        m->best[m->logits_count + i] = first[i].id;
    }
    m->logits_count += n;
}

/* h -> logits, at most logit_rows rows at a time. */
void pass_run_output(const struct pass *p)
{
    struct model *m = p->m;
    const struct bound *w = output_matrix(m);
    for (int i = 0; i < p->wanted; i += (int)m->widths.logit_rows) {
        const int n = (int)MIN(p->wanted - i, m->widths.logit_rows);
        struct matmul mm = pass_product(p, w, &m->global[SLOT_OUTPUT_B], p->b.h + i * m->shape.embd,
                                        m->shape.embd);
        mm.n = n;
        mm.y = p->b.logits;
        mm.y_stride = w->w.rows;
        if (w->w.rows) operator_matmul(p, OPERATOR_LOGITS, &mm, 1);
        const int64_t begun = operator_begin(p);
        pass_take_logits(p, i, n);
        operator_end(p, OPERATOR_LARGEST, begun, 1);
    }
}
