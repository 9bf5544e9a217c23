/* The list of requests of a load (load.h). Each of its parts (arrivals, lengths, pauses, texts) has a
 * pseudo-random sequence of its own, so that, for example, other lengths leave the arrivals as they are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/serve/load.h"
#include "engine/serve/load_trace.h"

/* Tokens drawn one by one at the start of each text. Without them, two texts that start at the same place of
 * the source would share blocks of the prefix cache, although they have nothing in common. */
enum { DRAWN_TOKENS = 8 };
enum stream {
    STREAM_ARRIVALS = 1,
    STREAM_IN,
    STREAM_OUT,
    STREAM_THINK,
    STREAM_TEXT,
    STREAM_PREFIX,
    STREAM_BLOCK
};

/* ---------------------------------------------------------------- pseudo-random numbers (SplitMix64) */

static uint64_t stream_of(uint64_t seed, enum stream stream)
{
    return hash_next(hash_next(seed) ^ ((uint64_t)stream << 56));
}

static uint64_t draw(uint64_t *state)
{
    const uint64_t x = hash_next(*state);
    *state += HASH_STEP;
    return x;
}

static double draw_uniform(uint64_t *state) /* above 0, below 1 */
{
    return ((double)(draw(state) >> 11) + 0.5) * 0x1p-53;
}

static double draw_exponential(uint64_t *state)
{
    return -log(draw_uniform(state));
}

static double draw_normal(uint64_t *state)
{
    const double r = sqrt(2 * draw_exponential(state)), angle = 2 * M_PI * draw_uniform(state);
    return r * cos(angle);
}

/* Gamma with this shape and mean 1 (Marsaglia, Tsang 2000). */
static double draw_gamma(uint64_t *state, double shape)
{
    const double more = shape < 1 ? shape + 1 : shape, d = more - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = draw_normal(state), v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        if (v <= 0 || log(draw_uniform(state)) >= 0.5 * x * x + d - d * v + d * log(v)) continue;
        return d * v / shape * (shape < 1 ? pow(draw_uniform(state), 1 / shape) : 1);
    }
}

static int draw_length(uint64_t *state, const struct load_length *l)
{
    const double tokens = l->sigma > 0 ? l->median * exp(l->sigma * draw_normal(state)) : l->median;
    return (int)fmin(fmax(rint(tokens), 1), 1 << 24);
}

/* ---------------------------------------------------------------- texts, arrivals and lengths */

struct maker {
    struct load_plan *p;
    const struct workload_load *l;
    const struct load_text *text;
    uint64_t seed, salt; /* salt: of the prompts that are written now */
    int64_t ids;         /* of the text that all prompts are cut from; 0: they are drawn */
    struct load_trace trace;
};

/* Write n tokens of the text that `key` names; the salt changes its first ones (struct load_text). */
static void text_fill(const struct maker *m, int32_t *out, int n, uint64_t key)
{
    const struct load_text *t = m->text;
    const uint64_t size = (uint64_t)(m->ids ? m->ids : t->vocab), start = hash_next(key) % size;
    for (int i = 0; i < n; i++) {
        const uint64_t salt = i < DRAWN_TOKENS ? m->salt : 0,
                       drawn = hash_next(hash_next(key ^ salt) + (uint64_t)i) % size;
        if (m->ids)
            out[i] = t->ids[i < DRAWN_TOKENS ? drawn : (start + (uint64_t)i) % size];
        else
            out[i] = (int32_t)drawn;
    }
}

static void arrivals_make(struct maker *m)
{
    const struct workload_load *l = m->l;
    uint64_t state = stream_of(m->seed, STREAM_ARRIVALS);
    const double rate = l->rate / m->p->turns; /* of conversations */
    double at = 0, points = 0;
    for (int i = 0; i < m->p->conversations; i++) {
        switch (l->arrivals) {
        case LOAD_POISSON: at += draw_exponential(&state) / rate; break;
        case LOAD_GAMMA: at += draw_gamma(&state, l->burstiness) / rate; break;
        case LOAD_CONSTANT: at = i / rate; break;
        case LOAD_RAMP:
            /* From 0 to `rate` in T = 2 n / rate seconds. The expected number until t is rate t^2 / (2 T),
             * and points of a unit Poisson process, put through its inverse, are the arrivals. */
            points += draw_exponential(&state);
            at = sqrt(2 * points * 2 * m->p->conversations / rate / rate);
            break;
        case LOAD_CLOSED: at = i < l->concurrency ? 0 : (double)NAN; break;
        case LOAD_TRACE: at = m->trace.row[i].at_s / l->speed; break;
        case LOAD_NONE:
        case LOAD_ARRIVALS: break;
        }
        m->p->request[i * m->p->turns].arrival_s = at;
    }
}

/* Of a prompt of the user's own. *in, *out: as drawn from the workload's lengths. */
static void own_length(const struct maker *m, struct load_request *r, int i, int *in, int *out)
{
    enum { ANSWER = 64 }; /* where neither the workload nor the file says */
    const struct load_prompt *own = &m->text->own[m->text->order[i]];
    *in = m->l->in.median > 0 ? MIN(*in, own->n) : own->n;
    if (!(m->l->out.median > 0)) *out = own->generate ? own->generate : ANSWER;
    r->item = own->item;
    r->class = own->class;
}

/* Lengths of all requests, cut so that every conversation fits. */
static void lengths_make(struct maker *m)
{
    const struct workload_load *l = m->l;
    struct load_plan *p = m->p;
    uint64_t in_state = stream_of(m->seed, STREAM_IN), out_state = stream_of(m->seed, STREAM_OUT),
             think_state = stream_of(m->seed, STREAM_THINK);
    const int each = p->tokens_most / p->turns;
    for (int i = 0; i < p->n; i++) {
        struct load_request *r = &p->request[i];
        r->conversation = i / p->turns;
        r->turn = i % p->turns;
        if (r->turn) r->arrival_s = NAN;
        r->think_s = l->think_s * draw_exponential(&think_state);
        r->item = r->class = -1;
        int in = draw_length(&in_state, &l->in), out = draw_length(&out_state, &l->out);
        if (l->arrivals == LOAD_TRACE) {
            in = m->trace.row[i].in;
            out = m->trace.row[i].out;
        } else if (m->text->own) {
            own_length(m, r, i, &in, &out);
        }
        r->generate = MIN(out, MAX(each / 2, each - in));
        r->n = MIN(in, each - r->generate);
        p->cut += r->n < in || r->generate < out;
    }
}

/* ---------------------------------------------------------------- prompts */

/* A prompt of the user's own. The salt replaces its first tokens by the same ones in all prompts, so that
 * those that begin alike still do. */
static void own_fill(const struct maker *m, int i, int32_t *to)
{
    const struct load_prompt *own = &m->text->own[m->text->order[i]];
    const int n = m->p->request[i].n, first = m->text->bos >= 0 && own->ids && own->ids[0] == m->text->bos;
    for (int k = 0; k < n; k++) {
        const bool salted = m->salt && m->text->n && k >= first && k < first + DRAWN_TOKENS;
        const uint64_t drawn = hash_next(hash_next(m->salt) + (uint64_t)k);
        to[k] = salted ? m->text->ids[drawn % (uint64_t)m->text->n] : own->ids ? own->ids[k] : 0;
    }
}

static void prompt_fill(const struct maker *m, int i, int32_t *to)
{
    const struct load_request *r = &m->p->request[i];
    const struct load_trace_row *row = m->l->arrivals == LOAD_TRACE ? &m->trace.row[i] : NULL;
    int at = 0;
    if (m->text->own) {
        own_fill(m, i, to);
        return;
    }
    if (!r->turn) {
        at = (int)rint(m->l->prefix * r->n);
        text_fill(m, to, at, stream_of(m->seed, STREAM_PREFIX));
    }
    for (int b = 0; row && b < row->hashes && at < r->n; b++) {
        const int n = MIN((int)LOAD_TRACE_BLOCK, r->n - at);
        text_fill(m, to + at, n,
                  stream_of(m->seed, STREAM_BLOCK) ^ hash_next((uint64_t)m->trace.hash[row->hash + b]));
        at += n;
    }
    text_fill(m, to + at, r->n - at, hash_next(stream_of(m->seed, STREAM_TEXT) + (uint64_t)i));
    if (!r->turn && m->text->bos >= 0) to[0] = m->text->bos;
}

static void prompts_fill(struct maker *m, uint64_t salt)
{
    struct load_plan *p = m->p;
    int32_t *to = p->tokens;
    m->salt = salt;
    for (int i = 0; i < p->n; i++) {
        prompt_fill(m, i, to);
        p->request[i].prompt = to;
        to += p->request[i].n;
    }
}

static enum err_code prompts_make(struct maker *m, struct err *why)
{
    struct load_plan *p = m->p;
    int64_t all = 0;
    /* one choice for all prompts: a prefix that short and long ones share has the same tokens in both */
    m->ids = m->text->n;
    for (int i = 0; i < p->n; i++) {
        all += p->request[i].n;
        if (p->request[i].n > m->text->n) m->ids = MAX(m->text->n, m->text->all);
    }
    p->tokens = malloc((size_t)all * sizeof *p->tokens);
    if (!p->tokens)
        return err_set(why, ERR_NOMEM, "out of memory for prompts of %lld tokens", (long long)all);
    const int64_t ids = MAX(m->text->n, m->text->all);
    for (int i = 0; i < p->n; i++) p->repeats |= m->text->n && !m->text->own && p->request[i].n > ids;
    for (int64_t i = 0; i < ids; i++)
        if (m->text->ids[i] < 0 || m->text->ids[i] >= m->text->vocab)
            return err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld",
                           m->text->ids[i], (long long)m->text->vocab);
    prompts_fill(m, 0);
    return ERR_OK;
}

static enum err_code plan_hash(struct load_plan *p, struct err *why)
{
    struct str s = { 0 };
    char hex[HASH_HEX];
    for (int i = 0; i < p->n; i++) {
        const struct load_request *r = &p->request[i];
        str_printf(&s, "%d %d %a %a %d %d\n", r->conversation, r->turn, r->arrival_s, r->think_s, r->n,
                   r->generate);
        str_append_n(&s, r->prompt, (size_t)r->n * sizeof *r->prompt);
    }
    const bool failed = s.failed;
    hash_bytes(str_text(&s), s.len, hex);
    memcpy(p->hash, hex, sizeof p->hash - 1);
    str_free(&s);
    return failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

/* ---------------------------------------------------------------- the list */

static enum err_code plan_size(struct maker *m, struct err *why)
{
    const struct workload_load *l = m->l;
    struct load_plan *p = m->p;
    if (l->auto_rate)
        return err_set(why, ERR_USAGE,
                       "rate=auto names no rate: `qdyno bench -w load:rate=auto,...` finds it");
    p->n = l->requests;
    if (l->arrivals == LOAD_TRACE) {
        const enum err_code rc = load_trace_read(&m->trace, l->trace,
                                                 l->requests ? l->requests : LOAD_REQUESTS_MOST, why);
        if (rc) return rc;
        p->n = m->trace.n;
        p->skipped = m->trace.skipped;
    }
    struct workload w = { .load = *l };
    p->turns = MAX(l->turns, 1);
    p->conversations = p->n / p->turns;
    p->clients = l->arrivals == LOAD_CLOSED ? MIN(l->concurrency, p->conversations) : 0;
    p->tokens_most = workload_ctx(&w);
    p->request = calloc((size_t)p->n, sizeof *p->request);
    return p->request ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %d requests", p->n);
}

enum err_code load_plan_make(struct load_plan **out, const struct workload_load *l, uint64_t seed,
                             const struct load_text *text, struct err *why)
{
    struct maker m = { .l = l, .text = text, .seed = seed, .p = calloc(1, sizeof *m.p) };
    *out = NULL;
    if (!m.p) return err_set(why, ERR_NOMEM, "out of memory");
    enum err_code rc = plan_size(&m, why);
    if (!rc) arrivals_make(&m);
    if (!rc) lengths_make(&m);
    if (!rc) rc = prompts_make(&m, why);
    if (!rc) rc = plan_hash(m.p, why);
    if (!rc && text->salt) prompts_fill(&m, text->salt);
    load_trace_free(&m.trace);
    if (rc)
        load_plan_free(m.p);
    else
        *out = m.p;
    return rc;
}

void load_plan_free(struct load_plan *p)
{
    if (!p) return;
    free(p->request);
    free(p->tokens);
    free(p);
}
