/* The backend's operations on behalf of a forward pass, and what a profile adds up about them: calls, wall
 * time, bytes and arithmetic. Without a profile each function only calls the backend's. Bytes are those that
 * the operation must read at least once, not what really moved between memory and caches. */
#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/model/pass.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

const char *const PASS_OPERATOR_NAMES[OPERATOR_COUNT] = {
#define OPERATOR_NAME(id, name) [OPERATOR_##id] = name,
    PASS_OPERATORS(OPERATOR_NAME)
#undef OPERATOR_NAME
};

/* ---------------------------------------------------------------- a profile */

enum err_code profile_init(struct pass_profile *p, const struct model *m, struct err *why)
{
    *p = (struct pass_profile){ .layers = m->shape.layers };
    if (m->ranks || m->rank)
        return err_set(why, ERR_USAGE,
                       "a profile is made by the process that runs all operators: expected parallel=off");
    if (m->session.gpu_layers)
        return err_set(
            why, ERR_USAGE,
            "a device computes the operators of its layers while the program goes on, so their times cannot be "
            "told apart: expected device=cpu and gpu_layers=0");
    p->cells = calloc((size_t)(p->layers + 1) * OPERATOR_COUNT, sizeof *p->cells);
    return p->cells ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a profile");
}

void profile_free(struct pass_profile *p)
{
    free(p->cells);
    p->cells = NULL;
}

void model_profile(struct model *m, struct pass_profile *p)
{
    m->profile = p;
}

/* What an operation read and computed. */
struct work {
    int64_t bytes;
    double ops;
    int64_t rows;                /* of the largest product, or of attention */
    const struct format *format; /* of that product's weights; NULL: none */
    int64_t format_bytes;        /* of these */
};

static struct profile_cell *add_time(const struct pass *p, enum pass_operator op, int64_t begun, int calls)
{
    struct profile_cell *c = profile_at(p->m->profile, p->layer, op);
    c->ns += clock_ns() - begun;
    c->calls += calls;
    return c;
}

void operator_end(const struct pass *p, enum pass_operator op, int64_t begun, int calls)
{
    if (begun) add_time(p, op, begun, calls);
}

static void add_work(struct profile_cell *c, struct work w)
{
    c->bytes += w.bytes;
    c->ops += w.ops;
    if (!c->format) c->rows = MAX(c->rows, w.rows);
    if (w.format_bytes <= c->format_bytes) return;
    c->format = w.format;
    c->format_bytes = w.format_bytes;
    c->rows = w.rows;
}

/* Rows of floats that are read or written. */
static struct work elements(int64_t rows, int64_t cols)
{
    return (struct work){ .bytes = rows * cols * (int64_t)sizeof(float) };
}

/* Adds a product of n rows with a matrix. */
static void work_add_product(struct work *w, const struct weight *m, int64_t n)
{
    const int64_t bytes = m->rows * format_row_bytes(m->format, m->cols);
    w->bytes += bytes;
    w->ops += 2.0 * (double)n * (double)m->rows * (double)m->cols;
    if (bytes <= w->format_bytes) return;
    w->format = m->format;
    w->format_bytes = bytes;
    w->rows = n;
}

/* Adds the products of all experts that have rows. */
static void work_add_experts(struct work *w, const struct expert_rows *to, const struct weight *experts)
{
    for (int e = 0; experts && e < to->experts; e++) {
        const int n = to->first[e + 1] - to->first[e];
        if (n) work_add_product(w, &experts[e], n);
    }
}

/* ---------------------------------------------------------------- products */

void operator_matmul(const struct pass *p, enum pass_operator op, const struct matmul *o, int count)
{
    const int64_t begun = operator_begin(p);
    backend_matmul(p->site->backend, o, count);
    if (!begun) return;
    struct profile_cell *c = add_time(p, op, begun, 1);
    struct work w = { 0 };
    for (int i = 0; i < count; i++) work_add_product(&w, o[i].w, o[i].n);
    add_work(c, w);
}

void operator_gated(const struct pass *p, enum pass_operator op, const struct gated *o)
{
    const int64_t begun = operator_begin(p);
    backend_gated(p->site->backend, o);
    if (!begun) return;
    struct profile_cell *c = add_time(p, op, begun, 1);
    struct work w = { 0 };
    work_add_product(&w, o->gate.w, o->gate.n);
    work_add_product(&w, o->up.w, o->up.n);
    add_work(c, w);
}

void operator_expert_up(const struct pass *p, const struct expert_up *o)
{
    const int64_t begun = operator_begin(p);
    backend_expert_up(p->site->backend, o);
    if (!begun) return;
    struct profile_cell *c = add_time(p, OPERATOR_EXPERTS_UP, begun, 1);
    struct work w = { 0 };
    work_add_experts(&w, o->to, o->gate);
    work_add_experts(&w, o->to, o->up);
    add_work(c, w);
}

void operator_expert_down(const struct pass *p, const struct expert_down *o)
{
    const int64_t begun = operator_begin(p);
    backend_expert_down(p->site->backend, o);
    if (!begun) return;
    struct profile_cell *c = add_time(p, OPERATOR_EXPERTS_DOWN, begun, 1);
    struct work w = { 0 };
    work_add_experts(&w, o->to, o->down);
    add_work(c, w);
}

/* ---------------------------------------------------------------- attention and states */

/* Bytes of the keys and values of one token in a layer. */
static int64_t token_bytes(const struct kv_layer *kv)
{
    const int64_t v = kv->v_in_k ? 0 : format_row_bytes(kv->v_format, kv->v_dim);
    return kv->kv_heads * (format_row_bytes(kv->k_format, kv->k_dim) + v);
}

/* Rows of a sequence follow each other, so the tokens that any of them sees reach from the first one that its
 * first row sees to its last row. */
static struct work attention_work(const struct attention *o)
{
    int64_t read = 0, seen = 0;
    for (int i = 0; i < o->n; i++) {
        const bool last = i == o->n - 1 || o->seq[i + 1] != o->seq[i];
        const int first = attention_begin(o, i), end = attention_end(o, i);
        seen += end - first;
        if (last) read += end;
        if (i == 0 || o->seq[i - 1] != o->seq[i]) read -= first;
    }
    return (struct work){ .bytes = read * token_bytes(o->kv),
                          .ops = 2.0 * o->heads * (o->kv->k_dim + o->kv->v_dim) * (double)seen,
                          .rows = o->n };
}

void operator_attention(const struct pass *p, const struct attention *o)
{
    const int64_t begun = operator_begin(p);
    backend_attention(p->site->backend, o);
    if (begun) add_work(add_time(p, OPERATOR_ATTENTION, begun, 1), attention_work(o));
}

void operator_kv_store(const struct pass *p, const struct kv_store *o)
{
    const int64_t begun = operator_begin(p);
    backend_kv_store(p->site->backend, o);
    if (begun)
        add_work(add_time(p, OPERATOR_KV_STORE, begun, 1),
                 (struct work){ .bytes = o->n * token_bytes(o->kv) });
}

static int sequences_of(const struct recurrent_rows *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) n += i == 0 || r->seq[i] != r->seq[i - 1];
    return n;
}

void operator_convolve(const struct pass *p, const struct convolution *o)
{
    const int64_t begun = operator_begin(p);
    backend_convolve(p->site->backend, o);
    if (!begun) return;
    struct profile_cell *c = add_time(p, OPERATOR_CONVOLUTION, begun, 1);
    struct work w = elements(sequences_of(&o->rows), (o->taps - 1) * o->channels);
    w.ops = 2.0 * o->rows.n * o->taps * (double)o->channels;
    add_work(c, w);
}

/* For each number of the state: one multiply-add to change it and one to read it, and with a delta net one
 * more for what it already holds. */
void operator_recur(const struct pass *p, const struct recurrence *o)
{
    const int64_t begun = operator_begin(p);
    backend_recur(p->site->backend, o);
    if (!begun) return;
    struct profile_cell *c = add_time(p, OPERATOR_STATE, begun, 1);
    const int64_t state = (int64_t)o->heads * o->key_dim * o->value_dim;
    struct work w = elements(sequences_of(&o->rows), state);
    w.ops = (o->kind == RECURRENCE_DELTA ? 6.0 : 4.0) * o->rows.n * (double)state;
    add_work(c, w);
}

/* ---------------------------------------------------------------- elements */

void operator_gather(const struct pass *p, enum pass_operator op, const struct gather *o)
{
    const int64_t begun = operator_begin(p);
    backend_gather(p->site->backend, o);
    if (begun)
        add_work(add_time(p, op, begun, 1),
                 (struct work){ .bytes = o->n * format_row_bytes(o->table->format, o->table->cols) });
}

void operator_mix(const struct pass *p, const struct mix *o)
{
    const int64_t begun = operator_begin(p);
    backend_mix(p->site->backend, o);
    if (begun) add_work(add_time(p, OPERATOR_COPY, begun, 1), elements((int64_t)o->n * o->k, o->cols));
}

void operator_norm(const struct pass *p, const struct norm *o)
{
    const int64_t begun = operator_begin(p);
    backend_norm(p->site->backend, o);
    if (begun) add_work(add_time(p, OPERATOR_NORM, begun, 1), elements(o->n, o->cols));
}

void operator_rope(const struct pass *p, const struct rope *o)
{
    const int64_t begun = operator_begin(p);
    backend_rope(p->site->backend, o);
    if (begun)
        add_work(add_time(p, OPERATOR_ROPE, begun, 1), elements((int64_t)o->n * o->heads, o->rot_dims));
}

void operator_hadamard(const struct pass *p, const struct hadamard *o)
{
    const int64_t begun = operator_begin(p);
    backend_hadamard(p->site->backend, o);
    if (begun) add_work(add_time(p, OPERATOR_KV_ROTATION, begun, 1), elements(o->n, o->cols));
}

void operator_activate(const struct pass *p, const struct activate *o)
{
    const int64_t begun = operator_begin(p);
    backend_activate(p->site->backend, o);
    if (begun)
        add_work(add_time(p, OPERATOR_ACTIVATION, begun, 1),
                 elements((int64_t)o->n * (o->up ? 2 : 1), o->cols));
}
