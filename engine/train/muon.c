/* Orthogonalization by matrix products alone (Newton-Schulz): a polynomial in X X^T, applied five times,
 * moves every singular value of X towards 1 without computing any. Products use the precision of training. */
#include "engine/train/muon.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/rows.h"

enum { ITERATIONS = 5 };
static const float MOMENTUM = 0.95f, LIKE_ADAMW = 0.2f;
/* a x + b x^3 + c x^5: steep at 0; after five iterations values lie between 0.7 and 1.2, which is enough. */
static const float POLYNOMIAL[] = { 3.4445f, -4.7750f, 2.0315f };

struct muon {
    struct network *network;
    float *x, *next;               /* the longer dimension is the columns */
    float *square, *fourth;        /* [short][short]: X X^T, and its square */
    struct operand rows, cols, sq; /* X, its transpose, and X X^T as operands of products */
};

bool muon_takes(const struct network_tensor *t)
{
    return t->matrix && str_starts(t->name, "blk.");
}

enum err_code muon_open(struct muon **out, struct network *network, struct err *why)
{
    int64_t numbers = 0, shorter = 0;
    for (int i = 0; i < network_tensor_count(network); i++) {
        const struct network_tensor *t = network_tensor_at(network, i);
        if (!muon_takes(t)) continue;
        numbers = MAX(numbers, t->rows * t->cols);
        shorter = MAX(shorter, MIN(t->rows, t->cols));
    }
    struct muon *u = calloc(1, sizeof *u);
    *out = u;
    if (!u) return err_set(why, ERR_NOMEM, "out of memory for the optimizer");
    /* Sized for f32, the largest format of an operand. */
    const size_t matrix = (size_t)numbers * sizeof(float),
                 small = (size_t)(shorter * shorter) * sizeof(float);
    u->network = network;
    u->x = malloc(matrix);
    u->next = malloc(matrix);
    u->square = malloc(small);
    u->fourth = malloc(small);
    u->rows.store = malloc(matrix);
    u->cols.store = malloc(matrix);
    u->sq.store = malloc(small);
    if (u->x && u->next && u->square && u->fourth && u->rows.store && u->cols.store && u->sq.store)
        return ERR_OK;
    return err_set(why, ERR_NOMEM, "out of memory for the optimizer");
}

void muon_close(struct muon *u)
{
    if (!u) return;
    void *const all[] = { u->x, u->next, u->square, u->fourth, u->rows.store, u->cols.store, u->sq.store, u };
    for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

static void muon_mix(struct muon *u, const struct mixing *m, int64_t n)
{
    rows_mix(network_threads(u->network), m, n);
}

/* ---------------------------------------------------------------- orthogonal */

/* Make u->x [rows][cols], rows <= cols, nearly orthogonal. Swaps u->x and u->next. */
static void muon_orthogonalize(struct muon *u, int64_t rows, int64_t cols)
{
    const struct products *p = network_products(u->network);
    const float a = POLYNOMIAL[0], b = POLYNOMIAL[1], c = POLYNOMIAL[2];
    for (int i = 0; i < ITERATIONS; i++) {
        operand_set(p, &u->rows, u->x, cols, rows, cols);
        product_run(
            p, &(struct product){
                   .x = u->x, .x_stride = cols, .n = rows, .w = &u->rows, .y = u->square, .y_stride = rows });
        operand_set(p, &u->sq, u->square, rows, rows, rows); /* symmetric: equals its transpose */
        product_run(
            p,
            &(struct product){
                .x = u->square, .x_stride = rows, .n = rows, .w = &u->sq, .y = u->fourth, .y_stride = rows });
        muon_mix(u, &(struct mixing){ u->square, u->fourth, b, c, u->fourth }, rows * rows);
        muon_mix(u, &(struct mixing){ u->x, u->x, a, 0, u->next }, rows * cols);
        operand_set_turned(p, &u->cols, u->x, cols, cols, rows);
        product_run(p, &(struct product){ .x = u->fourth,
                                          .x_stride = rows,
                                          .n = rows,
                                          .w = &u->cols,
                                          .y = u->next,
                                          .y_stride = cols,
                                          .add = true });
        float *old = u->x;
        u->x = u->next;
        u->next = old;
    }
}

/* Transpose u->x. */
static void muon_transpose(struct muon *u, int64_t rows, int64_t cols)
{
    product_turn(network_products(u->network), u->x, cols, rows, cols, u->next);
    float *old = u->x;
    u->x = u->next;
    u->next = old;
}

void muon_step(struct muon *u, const struct muon_step *s)
{
    const struct network_tensor *t = s->tensor;
    const int64_t n = t->rows * t->cols;
    const float *gradient = network_gradients(u->network) + t->offset;
    float *w = network_weights(u->network) + t->offset;
    muon_mix(u, &(struct mixing){ s->momentum, gradient, MOMENTUM, s->by, s->momentum }, n);
    muon_mix(u, &(struct mixing){ s->momentum, gradient, MOMENTUM, s->by, u->x }, n); /* Nesterov momentum */
    const float length = sqrtf(rows_dot(u->x, u->x, n));
    if (!(length > 0)) return; /* the gradient has been 0 so far */
    muon_mix(u, &(struct mixing){ u->x, u->x, 1 / length, 0, u->x }, n);
    const bool tall = t->rows > t->cols;
    if (tall) muon_transpose(u, t->rows, t->cols);
    muon_orthogonalize(u, MIN(t->rows, t->cols), MAX(t->rows, t->cols));
    if (tall) muon_transpose(u, t->cols, t->rows);
    const float rate = (float)s->rate * LIKE_ADAMW * sqrtf((float)MAX(t->rows, t->cols));
    muon_mix(u, &(struct mixing){ w, u->x, (float)(1 - s->rate * s->weight_decay), -rate, w }, n);
}
