/* A model that ranks run: the leader's side, which keeps the file, the block tables of the KV cache and the
 * tokenizer, and the execution of its commands in a rank. The leader and all ranks see the same batches and
 * truncations in the same order, so their block tables stay equal without being sent. */
#include "engine/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model_internal.h"
#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"

/* ---------------------------------------------------------------- the leader: open */

/* The config of a rank: the file that runs, without the recipe that made it. */
static enum err_code rank_config(const struct model *m, struct str *line, struct err *why)
{
    static const enum knob_id RECIPE[] = { KNOB_METHOD,  KNOB_FORMAT,     KNOB_PARAMS,   KNOB_CALIB,
                                           KNOB_TENSORS, KNOB_REQUANTIZE, KNOB_HANDICAP, KNOB_HOSTS };
    struct config c = m->config;
    for (size_t i = 0; i < COUNT_OF(RECIPE); i++) config_unset(&c, RECIPE[i]);
    const enum err_code rc = config_set(&c, "model", gguf_path(m->gguf), why);
    if (!rc) config_append_line(&c, line);
    return rc;
}

static enum err_code send_open(struct model *m, const struct model_options *o, struct err *why)
{
    struct str line = { 0 };
    const struct parallel mode = config_parallel(&m->config);
    enum err_code rc = rank_config(m, &line, why);
    json_t *request = json_object();
    json_put_str(request, "config", str_text(&line));
    json_put_int(request, "ctx", m->session.ctx);
    json_put_int(request, "sequences", part_sequences(&mode, m->session.sequences));
    json_put_str(request, "shapes", o->shapes);
    char *text = rc ? NULL : json_line(request);
    json_decref(request);
    str_free(&line);
    if (!rc && !text) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = ranks_send(m->ranks, RANK_OP_OPEN, &(struct rank_bytes){ text, strlen(text) }, 1, why);
    free(text);
    return rc;
}

/* What rank 0 says about itself. */
static void read_description(struct model *m, const json_t *o)
{
    m->remote = (struct backend_info){ .device = "cpu" };
    m->remote.threads = (int)json_get_int(o, "threads", 0);
    m->remote.pinned = json_get_bool(o, "pinned", false);
    m->remote.isa = (uint32_t)json_get_int(o, "isa", 0);
    m->remote.inputs = (uint32_t)json_get_int(o, "inputs", 0);
    m->session.backend.threads = m->remote.threads;
    m->session.backend.isa = (uint32_t)json_get_int(o, "isa_allowed", 0);
}

enum err_code model_ranks_open(struct model *m, const struct model_options *o, struct err *why)
{
    const char *hosts = config_text(&m->config, KNOB_HOSTS);
    const struct ranks_options options = { .count = m->plan.ranks,
                                           .hosts = *hosts ? hosts : NULL,
                                           .log = o->log };
    const struct parallel mode = config_parallel(&m->config);
    struct str answer = { 0 };
    json_t *description = NULL;
    if (m->session.sequences < mode.dp)
        return err_set(
            why, ERR_USAGE,
            "parallel=%s divides sequences among %d replicas, and this work has %d: expected a workload "
            "such as tg64@b%d, or parallel=off",
            config_text(&m->config, KNOB_PARALLEL), mode.dp, m->session.sequences, 2 * mode.dp);
    enum err_code rc = kv_cache_init(&m->cache, m->session.ctx, m->session.sequences,
                                     session_kv_layer(&m->session, &m->shape, 0).blocks, why);
    m->logits_cap = m->session.sequences;
    m->logits = malloc((size_t)m->logits_cap * (size_t)m->shape.vocab * sizeof(float));
    m->expected = m->list_memory = calloc((size_t)m->session.sequences, sizeof *m->expected);
    if (!rc && (!m->logits || !m->expected)) rc = err_set(why, ERR_NOMEM, "out of memory for logits");
    if (!rc) rc = ranks_start(&m->ranks, &options, why);
    if (!rc) rc = send_open(m, o, why);
    if (!rc) rc = ranks_receive(m->ranks, &answer, why);
    if (!rc) rc = json_parse(&description, str_text(&answer), answer.len, why);
    if (!rc) read_description(m, description);
    m->memory.huge_bytes = -1;
    json_decref(description);
    str_free(&answer);
    return rc;
}

int model_ranks(const struct model *m)
{
    return m->ranks ? ranks_count(m->ranks) : 0;
}

/* ---------------------------------------------------------------- the leader: work */

enum err_code model_ranks_forward(struct model *m, const struct batch_row *rows, int n, int wanted,
                                  int32_t *best, struct err *why)
{
    struct rank_batch head = { .n = n, .wanted = wanted, .best = best != NULL };
    const struct rank_bytes command[] = { { &head, sizeof head },
                                          { (void *)rows, (size_t)n * sizeof *rows } };
    const size_t logits = (size_t)wanted * (size_t)m->shape.vocab * sizeof(float);
    enum err_code rc = ranks_send(m->ranks, RANK_OP_FORWARD, command, COUNT_OF(command), why);
    if (rc) return rc;
    const struct rank_bytes answer[] = {
        { &head, sizeof head },
        { best ? (void *)best : (void *)m->logits, best ? (size_t)wanted * sizeof *best : logits },
    };
    rc = ranks_receive_into(m->ranks, answer, COUNT_OF(answer), why);
    if (rc) return rc;
    m->logits_count = wanted;
    m->not_finite = (struct not_finite){ head.not_finite, head.seq, head.pos };
    return ERR_OK;
}

enum err_code model_ranks_warm(struct model *m, struct err *why)
{
    kv_cache_truncate(&m->cache, 0, 0);
    enum err_code rc = ranks_send(m->ranks, RANK_OP_WARM, NULL, 0, why);
    if (!rc) rc = ranks_receive_into(m->ranks, NULL, 0, why);
    m->warm = !rc;
    return rc;
}

/* The error of a command without an answer shows in the next one that has one. */
void model_ranks_truncate(struct model *m, int seq, int from)
{
    int32_t numbers[] = { seq, from };
    ranks_send(m->ranks, RANK_OP_TRUNCATE, &(struct rank_bytes){ numbers, sizeof numbers }, 1, NULL);
}

void model_ranks_assign(struct model *m, int seq, const int32_t *blocks, int count, int length)
{
    int32_t numbers[] = { seq, length, count };
    const struct rank_bytes command[] = { { numbers, sizeof numbers },
                                          { (void *)blocks, (size_t)count * sizeof *blocks } };
    ranks_send(m->ranks, RANK_OP_ASSIGN, command, COUNT_OF(command), NULL);
}

enum err_code model_ranks_copy_block(struct model *m, int32_t from, int32_t to, struct err *why)
{
    int32_t numbers[] = { from, to };
    const enum err_code rc = ranks_send(m->ranks, RANK_OP_COPY,
                                        &(struct rank_bytes){ numbers, sizeof numbers }, 1, why);
    return rc ? rc : ranks_receive_into(m->ranks, NULL, 0, why);
}

enum err_code model_ranks_usage(struct model *m, struct rank_usage *out, struct err *why)
{
    return ranks_usage(m->ranks, out, why);
}

/* ---------------------------------------------------------------- a rank */

/* The error to answer with: NULL for none. */
static const struct err *failed(enum err_code rc, const struct err *why)
{
    return rc ? why : NULL;
}

static enum err_code open_part(struct model **m, struct rank *r, const struct rank_command *c,
                               const struct log *log, struct err *why)
{
    json_t *request = NULL;
    struct config config;
    enum err_code rc = json_parse(&request, c->payload, c->bytes, why);
    if (!rc) rc = config_parse(&config, json_get_str(request, "config", ""), why);
    if (!rc && !config_int(&config, KNOB_THREADS))
        rc = config_resolve_int(&config, KNOB_THREADS, rank_threads(r), why);
    if (!rc) {
        const struct model_options o = { .config = &config,
                                         .ctx = (int)json_get_int(request, "ctx", 0),
                                         .sequences = (int)json_get_int(request, "sequences", 1),
                                         .shapes = json_get_str(request, "shapes", NULL),
                                         .rank = r,
                                         .log = log };
        rc = model_open(m, &o, why);
    }
    json_decref(request);
    return rc;
}

static void execute_open(struct model **m, struct rank *r, const struct rank_command *c,
                         const struct log *log)
{
    struct err why;
    struct backend_info info;
    const enum err_code rc = open_part(m, r, c, log, &why);
    json_t *o = json_object();
    if (!rc) {
        model_backend(*m, &info);
        json_put_int(o, "threads", info.threads);
        json_put_bool(o, "pinned", info.pinned);
        json_put_int(o, "isa", info.isa);
        json_put_int(o, "isa_allowed", (*m)->session.backend.isa);
        json_put_int(o, "inputs", info.inputs);
    }
    char *text = json_line(o);
    json_decref(o);
    rank_answer(r, failed(rc, &why), &(struct rank_bytes){ text, text ? strlen(text) : 0 }, 1);
    free(text);
}

/* The rows of a batch, and those of this rank's replica, by its own numbers of sequences. */
struct rank_rows {
    struct rank_batch head;
    struct batch_row *all, *own;
    int n; /* own ones */
    int32_t *best;
};

static void read_rows(struct rank_rows *w, const struct model *m, const struct rank_command *c)
{
    const struct part *part = &m->session.part;
    memcpy(&w->head, c->payload, sizeof w->head);
    const size_t rows = (size_t)w->head.n + 1;
    w->all = calloc(2 * rows, sizeof *w->all);
    w->best = calloc((size_t)w->head.wanted + 1, sizeof *w->best);
    if (!w->all || !w->best) rank_module(m->rank)->stop(1);
    w->own = w->all + rows;
    memcpy(w->all, c->payload + sizeof w->head, (size_t)w->head.n * sizeof *w->all);
    for (int i = 0; i < w->head.n; i++) {
        if (w->all[i].seq % part->dp != part->replica) continue;
        w->own[w->n] = w->all[i];
        w->own[w->n++].seq /= part->dp;
    }
}

/* Rows with requested logits that a replica has. */
static int wanted_of(const struct rank_rows *w, int dp, int replica)
{
    int n = 0;
    for (int i = 0; i < w->head.n; i++) n += w->all[i].logits && w->all[i].seq % dp == replica;
    return n;
}

/* Results of all replicas, in the order of the rows, on rank 0. Each has its own in the last stage. *out:
 * bytes for each row; owned: free, unless the results are in this process already. */
static char *collect_results(struct model *m, const struct rank_rows *w, char *mine, size_t bytes)
{
    const struct part *part = &m->session.part;
    char *all = malloc((size_t)w->head.wanted * bytes + 1), *one = malloc((size_t)w->head.wanted * bytes + 1);
    if (!all || !one) rank_module(m->rank)->stop(1);
    for (int d = 0; d < part->dp; d++) {
        const int from = part_rank(part, d, part->pp - 1, 0);
        const char *next = from ? one : mine;
        if (from) rank_receive(m->rank, from, one, (size_t)wanted_of(w, part->dp, d) * bytes);
        for (int i = 0, at = 0; i < w->head.n; i++) {
            if (!w->all[i].logits) continue;
            if (w->all[i].seq % part->dp == d) {
                memcpy(all + (size_t)at * bytes, next, bytes);
                next += bytes;
            }
            at++;
        }
    }
    free(one);
    return all;
}

static void execute_forward(struct model *m, struct rank *r, const struct rank_command *c)
{
    struct err why;
    struct rank_rows w = { 0 };
    const struct part *part = &m->session.part;
    const int rank = rank_place(r)->rank;
    read_rows(&w, m, c);
    enum err_code rc = model_forward_best(m, w.own, w.n, w.head.best ? w.best : NULL, &why);
    if (rc && m->not_finite.found) {
        w.head.not_finite = true;
        w.head.seq = m->not_finite.seq;
        w.head.pos = m->not_finite.pos;
        rc = ERR_OK; /* the leader says it in its own words */
    }
    const size_t bytes = w.head.best ? sizeof *w.best : (size_t)m->shape.vocab * sizeof(float);
    char *mine = w.head.best ? (char *)w.best : (char *)m->logits, *all = mine;
    if (part->pp * part->dp > 1 && rank == 0) all = collect_results(m, &w, mine, bytes);
    if (rank && part_is_last(part) && part->tp_rank == 0 && part->cp_rank == 0)
        rank_send(r, 0, mine, (size_t)wanted_of(&w, part->dp, part->replica) * bytes);
    const struct rank_bytes answer[] = { { &w.head, sizeof w.head }, { all, (size_t)w.head.wanted * bytes } };
    rank_answer(r, failed(rc, &why), answer, COUNT_OF(answer));
    if (all != mine) free(all);
    free(w.all);
    free(w.best);
}

/* Number i of a payload of int32_t. */
static int32_t number(const struct rank_command *c, int i)
{
    int32_t v;
    memcpy(&v, c->payload + (size_t)i * sizeof v, sizeof v);
    return v;
}

static void execute_truncate(struct model *m, const struct rank_command *c)
{
    const struct part *part = &m->session.part;
    const int seq = number(c, 0);
    if (seq % part->dp == part->replica) model_truncate(m, seq / part->dp, number(c, 1));
}

static void execute_assign(struct model *m, const struct rank_command *c)
{
    const int count = number(c, 2);
    int32_t *blocks = malloc((size_t)count * sizeof *blocks + 1);
    if (!blocks) rank_module(m->rank)->stop(1);
    for (int i = 0; i < count; i++) blocks[i] = number(c, 3 + i);
    model_assign_blocks(m, number(c, 0), blocks, count, number(c, 1));
    free(blocks);
}

void model_rank_execute(struct model **m, struct rank *r, const struct rank_command *c, const struct log *log)
{
    struct err why;
    enum err_code rc;
    switch (c->op) {
    case RANK_OP_OPEN: execute_open(m, r, c, log); break;
    case RANK_OP_FORWARD: execute_forward(*m, r, c); break;
    case RANK_OP_WARM:
        rc = model_warm(*m, &why);
        rank_answer(r, failed(rc, &why), NULL, 0);
        break;
    case RANK_OP_TRUNCATE: execute_truncate(*m, c); break;
    case RANK_OP_ASSIGN: execute_assign(*m, c); break;
    case RANK_OP_COPY:
        rc = model_copy_block(*m, number(c, 0), number(c, 1), &why);
        rank_answer(r, failed(rc, &why), NULL, 0);
        break;
    case RANK_OP_USAGE: rank_answer_usage(r, *m ? (*m)->plan.total : 0, *m ? (*m)->plan.weights : -1); break;
    case RANK_OP_MEASURE:
    case RANK_OP_CLOSE:
    case RANK_OP_TRAIN_OPEN:
    case RANK_OP_TRAIN_LOAD:
    case RANK_OP_TRAIN_STEP:
    case RANK_OP_TRAIN_SAVE:
    case RANK_OP_TRAIN_CLOSE: break;
    }
}
