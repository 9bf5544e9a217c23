/* Attention as its definition has it, for comparison: all scores of a batch are in memory at a time, then
 * their softmax, then the weighted sums of the values. Scores are [kv_head][row][head of the group][context],
 * so memory grows with rows times context; attention_f32.c never has more than one tile. Both use the same
 * products. Positions are not divided among threads: a single row has as many pieces as there are KV heads.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"

/* A kernel writes a whole tile of columns even where the last one has fewer tokens. */
int64_t attention_plain_stride(int context)
{
    return round_up(context, ATTENTION_TOKENS) + ATTENTION_TOKENS;
}

/* The scores of the piece's first query, that of position 0. Its queries follow one another: a piece has all
 * heads of its group, or one row. */
static float *scores_at(const struct attention_piece *t)
{
    const struct attention_job *job = t->job;
    const int64_t row = (int64_t)t->kv_head * job->p->n + t->row;
    return job->scores + (row * job->group + t->head - t->kv_head * job->group) * job->scores_stride;
}

static void compute_scores(struct attention_run *w, float *scores)
{
    for (int from = w->t->from, n; from < w->t->to; from += n) {
        n = attention_tile(w->t, from);
        w->s = scores + from;
        attention_run_scores(w, from, n);
    }
}

/* Scores -> weights, 0 for positions of the piece that a row does not see. */
static void compute_softmax(const struct attention_piece *t, float *scores)
{
    const struct attention *p = t->job->p;
    const struct vector_kernels *v = &t->job->b->k.vec;
    for (int q = 0; q < t->queries; q++) {
        const int row = t->row + q / t->heads, from = attention_begin(p, row), to = attention_end(p, row);
        float *s = scores + q * t->job->scores_stride;
        if (p->softcap > 0) v->softcap(s + from, to - from, p->softcap);
        const float sink = attention_sink(t, q), peak = fmaxf(sink, v->max(s + from, to - from));
        const float total = v->exp_sum(s + from, to - from, peak) +
                            (sink > -INFINITY ? expf(sink - peak) : 0);
        v->scale(s + from, to - from, 1 / total);
        memset(s + t->from, 0, (size_t)(from - t->from) * sizeof *s);
        memset(s + to, 0, (size_t)(t->to - to) * sizeof *s);
    }
}

static void add_values(struct attention_run *w, float *scores)
{
    const int v_dim = w->t->job->p->kv->v_dim;
    for (int from = w->t->from, n; from < w->t->to; from += n) {
        n = attention_tile(w->t, from);
        w->s = scores + from;
        attention_run_values(w, from, n);
    }
    for (int q = 0; q < w->t->queries; q++)
        memcpy(attention_result(w->t, q), w->o + (int64_t)q * v_dim, (size_t)v_dim * sizeof *w->o);
}

void attention_plain_run(const struct attention_piece *t, enum attention_step step, void *scratch)
{
    float *scores = scores_at(t);
    struct attention_run w;
    if (step == ATTENTION_SOFTMAX) {
        compute_softmax(t, scores);
        return;
    }
    attention_run_begin(&w, t, scratch);
    w.s_stride = t->job->scores_stride;
    (step == ATTENTION_SCORES ? compute_scores : add_values)(&w, scores);
}
