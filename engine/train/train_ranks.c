/* Training by several processes: the leader's side, and the execution of its commands in a rank. */
#include "engine/train/train_ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that a rank exchanges at a time, so that memory for the parts of all ranks stays small. */
enum { CHUNK = 1 << 20, POSITIONS_MAX = 1 << 27 };

struct train_order {
    struct learner_options o; /* o.passes: of one rank */
    uint64_t seed;
};
/* A piece of a vector of the learner: see learner_vectors. */
struct train_piece {
    int64_t at, n;
    int32_t vector, last; /* last: the weights are complete after this piece */
};

enum { VECTORS = 3 };
static void learner_vectors(const struct learner *l, float *out[VECTORS])
{
    out[0] = l->m;
    out[1] = l->v;
    out[2] = network_weights(l->network);
}

/* ---------------------------------------------------------------- the leader */

enum err_code train_ranks_open(struct ranks *r, const struct learner_options *o, uint64_t seed,
                               struct train_ranks_info *out, struct err *why)
{
    struct train_order order = { .o = *o, .seed = seed };
    const int64_t positions = (int64_t)o->passes * o->network.batch * o->network.shape.ctx;
    if (positions > POSITIONS_MAX)
        return err_set(why, ERR_USAGE,
                       "a step of %" PRId64 " tokens: several processes train with at most %d a step",
                       positions, POSITIONS_MAX);
    order.o.passes = o->passes / ranks_count(r);
    enum err_code rc = ranks_send(r, RANK_OP_TRAIN_OPEN, &(struct rank_bytes){ &order, sizeof order }, 1,
                                  why);
    return rc ? rc : ranks_receive_into(r, &(struct rank_bytes){ out, sizeof *out }, 1, why);
}

enum err_code train_ranks_load(struct ranks *r, const struct learner *from, struct err *why)
{
    const int64_t params = network_params(from->network);
    float *vector[VECTORS];
    enum err_code rc = ERR_OK;
    learner_vectors(from, vector);
    for (int i = 0; i < VECTORS; i++)
        for (int64_t at = 0; at < params && !rc; at += CHUNK) {
            struct train_piece p = { .at = at, .n = MIN((int64_t)CHUNK, params - at), .vector = i };
            p.last = i == VECTORS - 1 && at + p.n == params;
            const struct rank_bytes command[] = { { &p, sizeof p },
                                                  { vector[i] + at, (size_t)p.n * sizeof(float) } };
            rc = ranks_send(r, RANK_OP_TRAIN_LOAD, command, COUNT_OF(command), why);
        }
    return rc;
}

enum err_code train_ranks_step(struct ranks *r, const struct learner_step *s, const struct learner_rows *rows,
                               struct learner_result *out, struct err *why)
{
    const size_t bytes = (size_t)s->positions * sizeof *rows->tokens;
    const struct rank_bytes command[] = { { (void *)s, sizeof *s },
                                          { (void *)rows->tokens, bytes },
                                          { (void *)rows->targets, bytes } };
    enum err_code rc = ranks_send(r, RANK_OP_TRAIN_STEP, command, COUNT_OF(command), why);
    return rc ? rc : ranks_receive_into(r, &(struct rank_bytes){ out, sizeof *out }, 1, why);
}

enum err_code train_ranks_save(struct ranks *r, struct learner *into, struct err *why)
{
    struct rank_bytes answer[VECTORS];
    float *vector[VECTORS];
    learner_vectors(into, vector);
    for (int i = 0; i < VECTORS; i++)
        answer[i] = (struct rank_bytes){ vector[i], (size_t)network_params(into->network) * sizeof(float) };
    enum err_code rc = ranks_send(r, RANK_OP_TRAIN_SAVE, NULL, 0, why);
    if (!rc) rc = ranks_receive_into(r, answer, VECTORS, why);
    if (!rc) network_changed(into->network);
    return rc;
}

enum err_code train_ranks_close(struct ranks *r, struct err *why)
{
    const enum err_code rc = ranks_send(r, RANK_OP_TRAIN_CLOSE, NULL, 0, why);
    return rc ? rc : ranks_receive_into(r, NULL, 0, why);
}

/* ---------------------------------------------------------------- a rank */

struct train_rank {
    struct rank *r;
    struct learner l;
    float *parts; /* [ranks][CHUNK]: a piece of the gradients of all ranks */
    struct train_ranks_info info;
};

void train_rank_close(struct train_rank *t)
{
    if (!t) return;
    learner_close(&t->l);
    free(t->parts);
    free(t);
}

int64_t train_rank_plan_bytes(const struct train_rank *t)
{
    return t ? t->info.memory.parameters + t->info.memory.activations + t->info.optimizer_bytes : 0;
}

int64_t train_rank_weight_bytes(const struct train_rank *t)
{
    return t ? t->info.memory.parameters : -1;
}

/* Other machines may have other processors. */
static enum err_code check_isa(const struct rank *r, uint32_t wanted, struct err *why)
{
    uint32_t usable;
    char name[128];
    const enum err_code rc = isa_usable(&usable, why);
    if (rc || (usable & wanted) == wanted) return rc;
    return err_set(why, ERR_ABSENT,
                   "rank %d runs on a processor without %s, which this machine computes with: add isa= with "
                   "what all machines have",
                   rank_place(r)->rank, isa_names(wanted & ~usable, name, sizeof name));
}

static enum err_code rank_learner_open(struct train_rank **out, struct rank *r,
                                       const struct train_order *order, struct err *why)
{
    struct learner_options o = order->o;
    struct train_rank *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return err_set(why, ERR_NOMEM, "out of memory for training");
    t->r = r;
    if (!o.network.threads) o.network.threads = rank_threads(r);
    enum err_code rc = check_isa(r, o.network.isa, why);
    if (!rc) rc = learner_open(&t->l, &o, why);
    if (!rc) rc = network_randomize(t->l.network, order->seed, why);
    if (rc) return rc;
    const int64_t piece = MIN((int64_t)CHUNK, network_params(t->l.network));
    const int64_t bytes = rank_place(r)->size * piece * (int64_t)sizeof(float);
    t->parts = malloc((size_t)bytes);
    if (!t->parts) return err_set(why, ERR_NOMEM, "out of memory for gradients of other processes");
    t->info = (struct train_ranks_info){ .threads = o.network.threads,
                                         .memory = network_memory(t->l.network),
                                         .optimizer_bytes = learner_optimizer_bytes(&t->l) + bytes };
    return ERR_OK;
}

static void execute_open(struct train_rank **t, struct rank *r, const struct rank_command *c)
{
    struct train_order order;
    struct err why;
    train_rank_close(*t);
    memcpy(&order, c->payload, sizeof order);
    const enum err_code rc = rank_learner_open(t, r, &order, &why);
    const struct train_ranks_info info = rc ? (struct train_ranks_info){ 0 } : (*t)->info;
    if (rc) {
        train_rank_close(*t);
        *t = NULL;
    }
    rank_answer(r, rc ? &why : NULL, &(struct rank_bytes){ (void *)&info, sizeof info }, 1);
}

static void execute_load(struct train_rank *t, const struct rank_command *c)
{
    struct train_piece p;
    float *vector[VECTORS];
    memcpy(&p, c->payload, sizeof p);
    learner_vectors(&t->l, vector);
    memcpy(vector[p.vector] + p.at, c->payload + sizeof p, (size_t)p.n * sizeof(float));
    if (p.last) network_changed(t->l.network);
}

/* Add up the gradients and losses of all ranks. All get the same sums. */
static double exchange_sums(struct train_rank *t, double loss)
{
    const int ranks = rank_place(t->r)->size;
    const int64_t params = network_params(t->l.network);
    float *g = network_gradients(t->l.network);
    int bytes[RANKS_MAX], at[RANKS_MAX];
    double losses[RANKS_MAX];
    rank_join(t->r); /* a rank that computes longer gives signs of life to those that wait here */
    for (int64_t from = 0; from < params; from += CHUNK) {
        const int64_t n = MIN((int64_t)CHUNK, params - from);
        for (int i = 0; i < ranks; i++) {
            bytes[i] = (int)(n * (int64_t)sizeof *g);
            at[i] = i * bytes[i];
        }
        rank_all_gather(t->r, 0, g + from, bytes[0], t->parts, bytes, at);
        sums_join(network_threads(t->l.network), t->parts, ranks, n);
        memcpy(g + from, t->parts, (size_t)bytes[0]);
    }
    for (int i = 0; i < ranks; i++) {
        bytes[i] = (int)sizeof loss;
        at[i] = i * bytes[i];
    }
    rank_all_gather(t->r, 0, &loss, (int)sizeof loss, losses, bytes, at);
    return sums_join_losses(losses, ranks);
}

static void rank_is_alive(void *ctx)
{
    rank_alive(ctx);
}

static void execute_step(struct train_rank *t, const struct rank_command *c)
{
    struct learner_step s;
    memcpy(&s, c->payload, sizeof s);
    const int64_t all = s.positions, own = all / rank_place(t->r)->size;
    int32_t *rows = malloc(2 * (size_t)own * sizeof *rows);
    if (!rows) rank_module(t->r)->stop(1);
    const char *from = c->payload + sizeof s + (size_t)(own * rank_place(t->r)->rank) * sizeof *rows;
    memcpy(rows, from, (size_t)own * sizeof *rows);
    memcpy(rows + own, from + (size_t)all * sizeof *rows, (size_t)own * sizeof *rows);
    const struct learner_rows r = { rows, rows + own, rank_is_alive, t->r };
    struct learner_result result = { .loss = learner_gradients(&t->l, &s, &r) };
    free(rows);
    result.loss = exchange_sums(t, result.loss);
    result.length = learner_update(&t->l, &s);
    rank_answer(t->r, NULL, &(struct rank_bytes){ &result, sizeof result }, 1);
}

static void execute_save(struct train_rank *t)
{
    struct rank_bytes answer[VECTORS];
    float *vector[VECTORS];
    learner_vectors(&t->l, vector);
    for (int i = 0; i < VECTORS; i++)
        answer[i] = (struct rank_bytes){ vector[i], (size_t)network_params(t->l.network) * sizeof(float) };
    rank_answer(t->r, NULL, answer, VECTORS);
}

bool train_rank_execute(struct train_rank **t, struct rank *r, const struct rank_command *c)
{
    switch ((int)c->op) {
    case RANK_OP_TRAIN_OPEN: execute_open(t, r, c); return true;
    case RANK_OP_TRAIN_LOAD: execute_load(*t, c); return true;
    case RANK_OP_TRAIN_STEP: execute_step(*t, c); return true;
    case RANK_OP_TRAIN_SAVE: execute_save(*t); return true;
    case RANK_OP_TRAIN_CLOSE:
        train_rank_close(*t);
        *t = NULL;
        rank_answer(r, NULL, NULL, 0);
        return true;
    default: return false;
    }
}
