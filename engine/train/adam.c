/* The optimizer. The gradient's length is summed in blocks of fixed size, so that it does not depend on the
 * number of threads. */
#include "engine/train/adam.h"

#include <math.h>
#include <stdlib.h>

#include "engine/train/rows.h"
#include "engine/config/config.h"

enum { BLOCK = 4096, GROW_AFTER = 200 };

/* Arguments of the loops below. */
struct adam_work {
    const struct adam_step *s;
    const struct network_tensor *tensor;
    const float *gradients;
    int64_t n;
    double *squares; /* [blocks]: sum of squares of each block */
    float by;        /* factor applied to gradients */
};

static void adam_square_blocks(const void *arg, int64_t from, int64_t to)
{
    const struct adam_work *w = arg;
    for (int64_t b = from; b < to; b++) {
        const int64_t at = b * BLOCK, n = MIN((int64_t)BLOCK, w->n - at);
        w->squares[b] = (double)rows_dot(w->gradients + at, w->gradients + at, n);
    }
}

/* Length of the gradient without its scale. Sums are f32, so they overflow only for a scale of 2^16 and
 * gradients above 2^40. NaN and infinity propagate to the result. */
static double adam_gradient_length(const struct adam_step *s, double *squares)
{
    const int64_t n = network_params(s->network), blocks = (n + BLOCK - 1) / BLOCK;
    struct adam_work w = { .s = s, .gradients = network_gradients(s->network), .n = n, .squares = squares };
    double sum = 0;
    rows_run(network_threads(s->network), blocks, adam_square_blocks, &w);
    for (int64_t b = 0; b < blocks; b++) sum += squares[b];
    return sqrt(sum) / s->scale;
}

/* Apply AdamW to one tensor. */
static void adam_update(const struct adam_work *w)
{
    const struct adam_step *s = w->s;
    const struct adam_options *o = s->o;
    const int64_t at = w->tensor->offset;
    rows_adam(network_threads(s->network),
              &(struct adam_rows){
                  .gradient = w->gradients + at,
                  .x = network_weights(s->network) + at,
                  .m = s->m + at,
                  .v = s->v + at,
                  .by = w->by,
                  .beta1 = (float)o->beta1,
                  .beta2 = (float)o->beta2,
                  .rate = (float)(s->rate / (1 - pow(o->beta1, (double)s->t))),
                  .grown = (float)(1 / (1 - pow(o->beta2, (double)s->t))),
                  .keep = w->tensor->matrix ? (float)(1 - s->rate * o->weight_decay) : 1,
                  .epsilon = (float)o->epsilon,
              },
              w->tensor->rows * w->tensor->cols);
}

double adam_step(const struct adam_step *s)
{
    const int64_t blocks = (network_params(s->network) + BLOCK - 1) / BLOCK;
    double *squares = malloc((size_t)blocks * sizeof *squares);
    if (!squares) return NAN;
    const double length = adam_gradient_length(s, squares);
    free(squares);
    if (!isfinite(length)) return length;
    const double clip = s->o->clip > 0 && length > s->o->clip ? s->o->clip / length : 1;
    struct adam_work w = { .s = s,
                           .gradients = network_gradients(s->network),
                           .by = (float)(clip / s->scale) };
    for (int i = 0; i < network_tensor_count(s->network); i++) {
        w.tensor = network_tensor_at(s->network, i);
        if (s->muon && muon_takes(w.tensor)) {
            muon_step(s->muon, &(struct muon_step){ .tensor = w.tensor,
                                                    .momentum = s->m + w.tensor->offset,
                                                    .by = w.by,
                                                    .rate = s->rate,
                                                    .weight_decay = s->o->weight_decay });
            continue;
        }
        adam_update(&w);
    }
    network_changed(s->network);
    return length;
}

double learning_rate(double peak, int64_t step, int64_t steps, int64_t warmup)
{
    if (step < warmup) return peak * (double)(step + 1) / (double)warmup;
    const double done = steps > warmup ? (double)(step - warmup) / (double)(steps - warmup) : 1;
    return peak * (0.1 + 0.9 * 0.5 * (1 + cos(M_PI * done)));
}

struct loss_scale loss_scale_begin(enum amp amp)
{
    return (struct loss_scale){ .scale = amp == AMP_FP16 ? 32768.0f : 1 };
}

void loss_scale_update(struct loss_scale *s, enum amp amp, bool finite)
{
    if (amp != AMP_FP16) return;
    if (!finite) {
        s->scale = MAX(s->scale / 2, 1.0f);
        s->good = 0;
    } else if (++s->good == GROW_AFTER) {
        s->scale *= 2;
        s->good = 0;
    }
}
