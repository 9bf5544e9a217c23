/* Predicts a model that several processes run together: the time of one process with the threads of a rank,
 * divided as the model is, plus the measured time of the exchanges. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <string.h>

#include "advisor/predict/cost.h"
#include "engine/quant/quant.h"
#include "telemetry/metrics/metrics.h"

static const double COMMAND_S = 25e-6, /* from the leader to the ranks and back, of each pass */
    COPY_BYTES_S = 5e9,                /* parts of several rows are put together row by row */
    START_S = 0.4,                     /* mpirun, and joining */
    RANKS_SD = 0.15,                   /* of ln(measured / predicted), beside the spread of one process */
    RANK_BYTES = 44.0 *
                 (1 << 20), /* of a rank beside its plan: program, MPI, pages mapped around those it reads */
    PROGRAM_BYTES = 17.0 * (1 << 20); /* of the leader */

struct several {
    const struct gguf *g;
    const struct config *c;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct parallel mode;
    int ranks, sequences; /* sequences of one replica */
    const struct rank_links *links;
    const struct format *exchange; /* in which activations travel */
    struct model_shape shape;
    const struct arch *arch;
    bool apart;              /* each rank has a machine of its own */
    double speed[RANKS_MAX]; /* of their machines, relative to this one */
    int depth;               /* cached tokens per sequence during decode; set with cp only, as is the next */
    bool each_block; /* with cp, a result of each block of positions travels, not one of each process */
    /* One process with the threads of a rank, and with those of all ranks of a machine; the same with empty
     * caches, with cp only. Without corrections. */
    struct prediction one, all, one_empty, all_empty;
    /* Rates of prompts with the rows that a rank has in a pass, relative to those with all rows of a batch:
     * less than 1 where weights are read for fewer rows each, as experts are. */
    double one_thinned, all_thinned;
    double attention_s; /* with cp: of a prompt's token, of `one` */
};

/* An all-gather of n rows of so many numbers. */
static double gather_s(const struct several *x, double n, int64_t numbers, const struct format *as)
{
    return numbers ? link_seconds(x->links, LINK_ALL_GATHER, n * (double)wire_row_bytes(as, numbers)) +
                         (n > 1 ? n * (double)numbers * sizeof(float) / COPY_BYTES_S : 0)
                   : 0;
}

/* Numbers of a row that a layer's mixer exchanges before its output matrix: outputs of attention, and queries
 * and keys for a norm over all of them; inputs of a state. 0: no exchange. */
enum { MIXER_EXCHANGES = 3 };
static void mixer_numbers(const struct several *x, int layer, int64_t out[MIXER_EXCHANGES])
{
    const struct model_shape *s = &x->shape;
    const enum mixer mixer = s->parts[layer].mixer;
    const bool norm = x->arch->qk_norm == QK_NORM_ROW, one = mixer == MIXER_SCAN || s->state.fused;
    for (int i = 0; i < MIXER_EXCHANGES; i++) out[i] = 0;
    if (mixer == MIXER_NONE) return;
    if (mixer == MIXER_ATTENTION) {
        out[0] = arch_layer_dim(DIM_ATTN, x->arch, s, layer);
        out[1] = norm ? arch_layer_dim(DIM_Q, x->arch, s, layer) : 0;
        out[2] = norm ? arch_layer_dim(DIM_K, x->arch, s, layer) : 0;
    } else if (mixer == MIXER_CONVOLUTION) {
        out[0] = arch_dim(DIM_SHORT_IN, x->arch, s);
    } else {
        out[0] = arch_dim(one ? DIM_STATE_IN : DIM_CHANNELS, x->arch, s);
        out[1] = one ? 0 : arch_dim(DIM_STATE_INNER, x->arch, s);
    }
}

/* Exchanges of a layer in a pass over n rows. The hidden state is exchanged after each half. */
static double layer_s(const struct several *x, double n, int layer)
{
    const struct model_shape *s = &x->shape;
    const struct layer_parts *p = &s->parts[layer];
    const bool dense = p->feed_forward && (!p->experts || x->arch->experts_beside);
    const int64_t numbers[] = { dense ? p->ff : 0,
                                p->experts ? (int64_t)s->experts_used * s->expert_ff : 0,
                                p->experts ? s->shared_ff : 0,
                                p->feed_forward ? s->embd : 0,
                                dense && p->experts ? s->embd : 0,
                                p->mixer != MIXER_NONE ? s->embd : 0,
                                s->layer_inputs ? s->embd : 0 };
    int64_t mixer[MIXER_EXCHANGES];
    double sum = p->experts ? gather_s(x, n, s->experts, &FORMATS[FORMAT_F32]) : 0; /* scores */
    mixer_numbers(x, layer, mixer);
    for (int i = 0; i < MIXER_EXCHANGES; i++) sum += gather_s(x, n, mixer[i], x->exchange);
    for (size_t i = 0; i < COUNT_OF(numbers); i++) sum += gather_s(x, n, numbers[i], x->exchange);
    return sum;
}

/* Exchanges of tensor parallelism in a pass over n rows. */
static double tp_s(const struct several *x, double n)
{
    double sum = 0;
    if (x->mode.tp == 1) return 0;
    for (int l = 0; l < x->shape.layers; l++) sum += layer_s(x, n, l);
    return sum + link_seconds(x->links, LINK_ALL_GATHER, n * x->mode.tp * sizeof(struct ranked));
}

/* Exchanges of context parallelism in a pass over n rows: results of attention, and, if the rows are divided,
 * queries, keys and values. Tensor parallelism leaves each process a part of the heads. */
static double cp_s(const struct several *x, double n, int depth, bool rows_divided)
{
    const struct model_shape *s = &x->shape;
    const double blocks = x->each_block ? ceil((depth + 1) / (double)SHARE_TOKENS) : x->mode.cp;
    double sum = 0;
    if (x->mode.cp == 1) return 0;
    for (int l = 0; l < s->layers; l++) {
        if (s->parts[l].mixer != MIXER_ATTENTION) continue;
        const int64_t values = arch_layer_dim(DIM_ATTN, x->arch, s, l) + 2 * s->heads,
                      inputs = arch_layer_dim(DIM_Q, x->arch, s, l) + arch_layer_dim(DIM_K, x->arch, s, l) +
                               arch_layer_dim(DIM_V, x->arch, s, l);
        /* each row's results go to one process, or to all of them */
        const double results = blocks * (double)values / (rows_divided ? x->mode.cp : 1);
        sum += gather_s(x, n, (int64_t)(results / x->mode.tp), &FORMATS[FORMAT_F32]);
        if (rows_divided) sum += gather_s(x, n, inputs / x->mode.tp, &FORMATS[FORMAT_F32]);
    }
    return sum;
}

/* One hidden state of n rows to the next stage. */
static double send_s(const struct several *x, double n)
{
    return link_seconds(x->links, LINK_SEND, n * (double)wire_row_bytes(x->exchange, x->shape.embd));
}

/* Seconds of work without exchanges. Ranks on one machine cannot be faster together than one process with all
 * threads, and each replica does the work of a whole process. */
static double work_s(const struct several *x, double rank_s, double all_s)
{
    return x->apart ? rank_s : fmax(rank_s, x->mode.dp * all_s);
}

/* Seconds of a decode step of a process, or of all ranks of a machine: with cp, each of them does all of the
 * work that an empty cache leaves, and a part of the rest. */
static double step_s(const struct several *x, double n, bool all_ranks)
{
    const struct prediction *p = all_ranks ? &x->all : &x->one,
                            *empty = all_ranks ? &x->all_empty : &x->one_empty;
    const double whole = n / p->decode_tok_s.estimate;
    if (x->mode.cp == 1) return whole;
    const double fixed = fmin(n / empty->decode_tok_s.estimate, whole), depends = whole - fixed;
    return all_ranks ? x->mode.cp * fixed + depends : fixed + depends / x->mode.cp;
}

/* Speed of the slowest machine of stage `stage` (of each replica); -1: of all stages. */
static double least_speed(const struct several *x, int stage)
{
    double least = INFINITY;
    for (int r = 0; r < x->ranks; r++)
        if (stage < 0 || part_of(&x->mode, r, x->shape.layers).stage == stage)
            least = fmin(least, x->speed[r]);
    return least;
}

/* The time of the layers of a rank, relative to that of all layers on this machine: of all stages one after
 * the other, and of the slowest stage. */
static double stages_time(const struct several *x, bool slowest)
{
    const int pp = x->mode.pp;
    double sum = 0, most = 0;
    if (pp == 1) return 1 / least_speed(x, -1);
    for (int i = 0; i < pp; i++) {
        const double share = x->mode.stage_layers[0] ? x->mode.stage_layers[i] / (double)x->shape.layers
                                                     : 1.0 / pp,
                     time = share / least_speed(x, i);
        sum += time;
        most = fmax(most, time);
    }
    return slowest ? most : sum;
}

/* Seconds of a decode step. */
static double decode_s(const struct several *x, double *exchange_s)
{
    const double n = x->sequences;
    *exchange_s = tp_s(x, n) + cp_s(x, n, x->depth, false) + (x->mode.pp - 1) * send_s(x, n) + COMMAND_S;
    return work_s(x, stages_time(x, false) * step_s(x, n, false) / x->mode.tp, step_s(x, n, true)) +
           *exchange_s;
}

/* Of the prompts of all sequences: rows, the most of them in a batch, and in a pass through the stages. */
struct prompt_rows {
    double all;
    int batch, pass;
};

static struct prompt_rows rows_of_prompts(const struct several *x, int prompt, int batch)
{
    enum { PASSES = 2, ROWS_LEAST = 64 }; /* as engine/model does */
    const double rows = (double)prompt * x->sequences;
    const int pp = x->mode.pp, most = MAX((int)fmin(batch / (double)x->mode.dp, rows), 1);
    const int pass = pp > 1 ? MIN(most, MAX((most - 1) / (PASSES * pp) + 1, ROWS_LEAST)) : most;
    return (struct prompt_rows){ rows, most, pass };
}

/* Among how many ranks cp divides the rows of a pass. */
static int row_shares(const struct several *x)
{
    return x->shape.state.taps ? 1 : x->mode.cp;
}

/* The largest share that a rank of cp has of the attention of a prompt. Blocks of positions go to ranks: one
 * rank has it all if everything fits in a block. */
static double attention_most(const struct several *x, int past, int prompt)
{
    double sum[RANKS_MAX] = { 0 }, all = 0, most = 0;
    for (int pos = 0, end = past + prompt; pos < end; pos++) {
        const double rows = end - MAX(pos, past); /* that attend to it */
        sum[share_owner(x->mode.cp, pos / SHARE_TOKENS)] += rows;
        all += rows;
    }
    for (int r = 0; r < x->mode.cp; r++) most = fmax(most, sum[r]);
    return all > 0 ? most / all : 1;
}

/* Seconds of the prompts of all sequences. Stages work at the same time, but wait at both ends of a batch. */
static double prefill_s(const struct several *x, const struct prompt_rows *r, int past, int prompt,
                        double *exchange_s)
{
    const int pp = x->mode.pp, step = r->pass;
    const double rows = r->all, passes = ceil((double)r->batch / step), batches = ceil(rows / r->batch);
    const double waits = (passes + pp - 1) / passes;
    const double share = row_shares(x), again = x->mode.cp / share;
    *exchange_s = batches *
                  (passes * waits / pp * (tp_s(x, step / share) + cp_s(x, step, prompt / 2, share > 1)) +
                   (pp > 1 ? (passes + pp - 2) * send_s(x, step) : 0) + COMMAND_S);
    const double one = x->one.prefill_tok_s.estimate * x->one_thinned,
                 all = x->all.prefill_tok_s.estimate * x->all_thinned;
    const double attention = fmin(x->attention_s, 1 / one) * rows, rest = rows / one - attention;
    const double rank = rest / share + attention * attention_most(x, past, prompt);
    return waits * work_s(x, stages_time(x, true) * rank / x->mode.tp, again * rows / all) + *exchange_s;
}

/* Standard deviation of ln(rate) of a 90 % interval. */
static double spread_of(struct interval rate)
{
    return rate.lower > 0 && rate.upper > rate.lower ? log(rate.upper / rate.lower) / (2 * 1.645) : 0;
}

static void set_rates(struct prediction *out, const struct several *x, const struct config *c,
                      const struct predict_for *what, double decode_rate, double prefill_rate)
{
    const struct correction *l = what->correction;
    struct residual_traits t;
    const double decode_sd = hypot(spread_of(x->one.decode_tok_s), RANKS_SD),
                 prefill_sd = hypot(spread_of(x->one.prefill_tok_s), RANKS_SD),
                 bytes = (double)out->plan.ranks_total + PROGRAM_BYTES + x->ranks * RANK_BYTES;
    out->decode_work = x->one.decode_work;
    out->prefill_work = x->one.prefill_work;
    out->decode_work.sequences = out->prefill_work.sequences = MAX(what->sequences, 1);
    residual_traits_of(&t, &x->shape, c, &out->decode_work);
    out->decode_tok_s = correction_estimate(l, METRICS[METRIC_DECODE_RATE].name, &t, decode_rate, decode_sd)
                            .value;
    residual_traits_of(&t, &x->shape, c, &out->prefill_work);
    out->prefill_tok_s =
        correction_estimate(l, METRICS[METRIC_PREFILL_RATE].name, &t, prefill_rate, prefill_sd).value;
    out->load_s = correction_estimate(l, METRICS[METRIC_LOAD_TIME].name, &t, x->one.load_s.estimate + START_S,
                                      0.3)
                      .value;
    out->peak_bytes = correction_estimate(l, METRICS[METRIC_PEAK_MEMORY].name, &t, bytes, 0.15).value;
}

/* Predict one process with the threads of a rank, or of all ranks. Ranks on one machine share its cores. */
static enum err_code predict_alone(struct prediction *out, const struct several *x, bool all_ranks,
                                   const struct predict_for *what, struct err *why)
{
    struct config single = *x->c;
    struct predict_for alone = *what;
    const int given = (int)config_int(x->c, KNOB_THREADS); /* of each rank */
    config_unset(&single, KNOB_THREADS);
    const int cores = cost_threads(&single, x->machine), ranks = x->apart ? 1 : x->ranks;
    const int rank = given ? given : MAX(cores / ranks, 1);
    alone.sequences = x->sequences;
    alone.correction = NULL;
    config_unset(&single, KNOB_PARALLEL);
    config_unset(&single, KNOB_HOSTS);
    config_unset(&single, KNOB_EXCHANGE);
    const enum err_code rc = config_resolve_int(&single, KNOB_THREADS,
                                                all_ranks ? MIN(rank * ranks, cores) : rank, why);
    return rc ? rc : predict(out, x->g, &single, x->machine, x->ceilings, &alone, why);
}

/* How much slower prompts are where a rank has fewer rows in a pass than a batch has. Of one sequence,
 * because all rows of a batch are alike here. */
static enum err_code predict_thinned(struct several *x, const struct prompt_rows *r,
                                     const struct predict_for *what, struct err *why)
{
    struct several one_sequence = *x;
    struct predict_for batch = *what, pass = *what;
    double *const thinned[] = { &x->one_thinned, &x->all_thinned };
    one_sequence.sequences = 1;
    batch.prompt = r->batch;
    pass.prompt = MAX(r->pass / row_shares(x), 1);
    x->one_thinned = x->all_thinned = 1;
    for (int all = 0; all < 2 && pass.prompt < batch.prompt; all++) {
        struct prediction few, many;
        enum err_code rc = predict_alone(&few, &one_sequence, all, &pass, why);
        if (!rc) rc = predict_alone(&many, &one_sequence, all, &batch, why);
        if (rc) return rc;
        /* fewer rows also read fewer positions, which does not make a prompt of this length faster */
        *thinned[all] = fmin(few.prefill_tok_s.estimate / many.prefill_tok_s.estimate, 1);
    }
    return ERR_OK;
}

/* With cp: the time of attention in prompts, which grows with their length, as all else does not. */
static enum err_code predict_attention(struct several *x, int prompt, const struct predict_for *what,
                                       struct err *why)
{
    struct predict_for longer = *what;
    struct prediction p;
    longer.prompt = 2 * prompt;
    const enum err_code rc = predict_alone(&p, x, false, &longer, why);
    if (rc) return rc;
    const double half = prompt / 2.0, more = 1 / p.prefill_tok_s.estimate - 1 / x->one.prefill_tok_s.estimate;
    x->attention_s = fmax(more, 0) * (what->past + half) / half;
    return ERR_OK;
}

/* With cp: the same with empty caches. */
static enum err_code predict_empty(struct several *x, const struct predict_for *what, struct err *why)
{
    struct predict_for empty = *what;
    empty.depth = 1;
    x->depth = x->one.depth;
    x->each_block = config_choice(x->c, KNOB_BATCH_INVARIANT);
    const enum err_code rc = predict_alone(&x->one_empty, x, false, &empty, why);
    return rc ? rc : predict_alone(&x->all_empty, x, true, &empty, why);
}

enum err_code predict_ranks(struct prediction *out, const struct gguf *g, const struct config *c,
                            const struct machine *machine, const struct machine_ceilings *ceilings,
                            const struct predict_for *what, struct err *why)
{
    struct several x = { .g = g,
                         .c = c,
                         .machine = machine,
                         .ceilings = ceilings,
                         .mode = config_parallel(c),
                         .exchange = config_exchange(c) };
    struct rank_links stored;
    const char *hosts = config_text(c, KNOB_HOSTS);
    x.apart = what->links || *hosts;
    x.ranks = parallel_ranks(&x.mode);
    x.sequences = part_sequences(&x.mode, MAX(what->sequences, 1));
    x.links = what->links ? what->links : links_find(&stored, machine->id, x.ranks, hosts) ? &stored : NULL;
    for (int i = 0; i < RANKS_MAX; i++) {
        const double speed = x.apart && x.links ? x.links->read_bytes_s[i] / x.links->read_bytes_s[0] : NAN;
        x.speed[i] = speed > 0 ? speed : 1; /* unknown ones are like this machine */
    }
    enum err_code rc = model_shape_read(&x.shape, g, why);
    if (!rc) x.arch = arch_find(gguf_get_string(g, "general.architecture"));
    if (!rc) rc = predict_alone(&x.one, &x, false, what, why);
    if (!rc) rc = predict_alone(&x.all, &x, true, what, why);
    if (!rc && x.mode.cp > 1) rc = predict_empty(&x, what, why);
    const int prompt = what->prompt > 0 ? what->prompt : PREDICT_PROMPT;
    const struct prompt_rows rows = rows_of_prompts(&x, prompt, (int)config_int(c, KNOB_BATCH));
    if (!rc && x.mode.cp > 1) rc = predict_attention(&x, prompt, what, why);
    if (!rc && x.links) rc = predict_thinned(&x, &rows, what, why);
    if (rc) return rc;
    *out = x.one;
    if ((rc = recipe_plan_memory(&out->plan, g, c, what->ctx, MAX(what->sequences, 1), why))) return rc;
    const int64_t have = predict_memory(machine, ceilings, false);
    out->fits = x.apart ? have < 0 || out->plan.rank_total <= have
                        : !memory_plan_check(&out->plan, "cpu", have, NULL);
    out->token_j = (struct interval){ NAN, NAN, NAN };
    out->token_uncorrected_j = NAN;
    out->decode_limit_tok_s = out->prefill_limit_tok_s = NAN; /* of several processes */
    out->runs = 0;
    double decode_rate = NAN, prefill_rate = NAN;
    if (x.links) {
        double exchange, prefill_exchange;
        const double step = decode_s(&x, &exchange),
                     prompts = prefill_s(&x, &rows, what->past, prompt, &prefill_exchange);
        decode_rate = x.sequences * x.mode.dp / step;
        prefill_rate = (double)prompt * x.sequences * x.mode.dp / prompts;
        out->exchange_ratio = exchange / step;
        out->prefill_exchange_ratio = prefill_exchange / prompts;
    }
    set_rates(out, &x, c, what, decode_rate, prefill_rate);
    return ERR_OK;
}
