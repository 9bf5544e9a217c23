/* One timed run of a workload. Workload and seed determine the work, and a hash of it shows that two arms did
 * the same. Only forward passes and the choice of the next token are timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/text/text.h"
#include "engine/worker/handicap.h"
#include "engine/worker/kept_fill.h"
#include "engine/worker/worker_internal.h"
#include "kernels/kernels.h"

enum { SAMPLE_LIMIT = 64 << 20, REPORT_NS = 100000000 };

/* Distinct experts of the decode steps so far. */
struct decode_experts {
    int64_t *stamp; /* [experts] the call that saw an expert last; NULL: the model has none */
    int used;
    int64_t calls, distinct; /* calls: steps times layers with experts */
};

/* A run in progress. */
struct cell {
    struct cell_result *out;
    struct model *m;
    const struct workload *w;
    struct cell_hooks hooks;
    int turn_left;     /* decode steps or passes until the turn ends */
    int turn_room;     /* of out->turn_s */
    bool turn_started; /* no decode step was done in this turn yet */
    int sequences;
    int replicas;           /* of the model, each with its part of the sequences (parallel=dpN) */
    int32_t *prompt;        /* [sequences][prompt_count] ids */
    int prompt_count;       /* depth + max(prompt, 1) */
    int32_t *output;        /* [sequences][gen] */
    int32_t *token;         /* [sequences] the next token of each */
    struct batch_row *rows; /* [max(batch, sequences)] */
    int64_t reported_ns;
    struct decode_experts experts;
};

/* Report progress: at most every 100 ms, and always at the end of a phase. ERR_CANCELLED. */
static enum err_code cell_report(struct cell *c, const char *phase, int done, int of, double seconds,
                                 struct err *why)
{
    const int64_t now = clock_ns();
    if (!c->hooks.progress || (done < of && now - c->reported_ns < REPORT_NS)) return ERR_OK;
    c->reported_ns = now;
    if (c->hooks.progress(c->hooks.ctx, phase, done, of, seconds)) return ERR_OK;
    return err_set(why, ERR_CANCELLED, "cancelled");
}

/* Before a decode step or a forward pass of the prompt: waits for the next turn when this one is used up.
 * `length`: steps or passes of a turn. */
static enum err_code cell_take_turn(struct cell *c, int length, struct err *why)
{
    if (!c->hooks.turn || c->turn_left-- > 0) return ERR_OK;
    if (!c->hooks.turn(c->hooks.ctx)) return err_set(why, ERR_CANCELLED, "cancelled");
    c->turn_left = MAX(length, 1) - 1;
    c->turn_started = true;
    if (!array_room(&c->out->turn_s, &c->turn_room, (int64_t)c->out->turns + 1, sizeof *c->out->turn_s))
        return err_set(why, ERR_NOMEM, "out of memory for the times of turns");
    c->out->turn_s[c->out->turns++] = 0;
    return ERR_OK;
}

/* The next step or pass begins a new turn. */
static void cell_end_turn(struct cell *c)
{
    c->turn_left = 0;
}

/* Adds work to the time of the current turn. */
static void cell_add_to_turn(struct cell *c, double seconds)
{
    if (c->out->turns) c->out->turn_s[c->out->turns - 1] += (float)seconds;
}

/* Empties the cache of every sequence, and forgets what was kept of it. */
static void cell_empty_caches(struct cell *c)
{
    struct kept_fill none = { 0 };
    kept_fill_drop(c->hooks.kept ? c->hooks.kept : &none, c->m);
}

/* ---------------------------------------------------------------- the work */

static enum err_code cell_make_prompts(struct cell *c, uint64_t seed, struct err *why)
{
    struct prompt_source source;
    enum err_code rc = prompt_source_open(&source, model_gguf(c->m), model_tokenizer(c->m),
                                          model_shape(c->m)->vocab, why);
    if (!rc) rc = prompt_source_fill(c->prompt, &source, c->w, seed, why);
    if (!rc) rc = prompt_hash(c->out->work_hash, c->w, c->prompt, why);
    c->out->prompts = source.facts;
    prompt_source_close(&source);
    if (*c->w->prompts) usage_reset_peak(); /* reading the user's file is no memory of the arm */
    return rc;
}

/* ---------------------------------------------------------------- phases */

/* Row i of the prompts of all sequences, `each` of them from every one: one sequence after the other, or,
 * with replicas that have different ones (parallel=dpN), N sequences in turn, so that a batch has work for
 * all. */
static void cell_row_at(const struct cell *c, int i, int each, int *seq, int *pos)
{
    const int dp = c->replicas, group = i / (dp * each), first = group * dp,
              together = MIN(dp, c->sequences - first), at = i - first * each;
    *seq = first + at % together;
    *pos = at / together;
}

/* Run prompt ids [from, to) of every sequence, one sequence after the other, in batches. With `first`, choose
 * each sequence's next token from the logits of its last id. *seconds: of the forward passes alone. */
static enum err_code cell_prefill(struct cell *c, const char *phase, int from, int to, bool first,
                                  double *seconds, struct err *why)
{
    const int batch = (int)config_int(model_config(c->m), KNOB_BATCH), each = to - from,
              all = each * c->sequences;
    int chosen = 0; /* sequences whose last id was processed */
    *seconds = 0;
    for (int at = 0; at < all; at += batch) {
        const int n = MIN(batch, all - at), before = chosen;
        for (int i = 0; i < n; i++) {
            int seq, pos;
            cell_row_at(c, at + i, each, &seq, &pos);
            pos += from;
            c->rows[i] = (struct batch_row){ .token = c->prompt[(int64_t)seq * c->prompt_count + pos],
                                             .pos = pos,
                                             .seq = seq,
                                             .logits = first && pos == to - 1 };
            chosen += c->rows[i].logits;
        }
        enum err_code rc = cell_take_turn(c, c->hooks.turn_passes, why);
        if (rc) return rc;
        const int64_t start = clock_ns();
        rc = model_forward_best(c->m, c->rows, n, c->token + before, why);
        handicap_wait(model_config(c->m), start);
        const double took = (double)(clock_ns() - start) * 1e-9;
        *seconds += took;
        cell_add_to_turn(c, took);
        if (!rc) rc = cell_report(c, phase, at + n, all, *seconds, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

/* Adds the time of decode step i. The first step of a long turn does not count (struct cell_result). */
static void cell_count_step(struct cell *c, double seconds)
{
    struct cell_result *out = c->out;
    const bool skip = c->turn_started && c->hooks.turn_steps >= TURN_STEPS_TO_SKIP;
    c->turn_started = false;
    if (skip) {
        out->skipped_s += seconds;
        out->skipped_tokens += c->sequences;
        return;
    }
    cell_add_to_turn(c, seconds);
    out->itl_s[out->steps++] = (float)seconds;
    out->decode_s += seconds;
    out->gen_tokens += c->sequences;
}

/* Counts the experts of one layer in one decode step. */
static void cell_see_experts(void *ctx, int layer, const int32_t *chosen, int n)
{
    struct decode_experts *x = ctx;
    (void)layer;
    x->calls++;
    for (int i = 0; i < n * x->used; i++) {
        x->distinct += x->stamp[chosen[i]] != x->calls;
        x->stamp[chosen[i]] = x->calls;
    }
}

/* Decode; c->token contains the token at position `pos` of every sequence. */
static enum err_code cell_decode_steps(struct cell *c, int pos, struct err *why)
{
    c->out->decode_s = 0; /* sum of the steps, without the time of the hooks between them */
    for (int i = 0; i < c->w->gen; i++) {
        enum err_code rc = cell_take_turn(c, c->hooks.turn_steps, why);
        if (rc) return rc;
        const int64_t start = clock_ns();
        for (int s = 0; s < c->sequences; s++)
            c->rows[s] = (struct batch_row){ .token = c->token[s], .pos = pos + i, .seq = s, .logits = true };
        rc = model_forward_best(c->m, c->rows, c->sequences, c->token, why);
        if (rc) return rc;
        handicap_wait(model_config(c->m), start);
        cell_count_step(c, (double)(clock_ns() - start) * 1e-9);
        for (int s = 0; s < c->sequences; s++) c->output[(int64_t)s * c->w->gen + i] = c->token[s];
        rc = cell_report(c, "decode", (i + 1) * c->sequences, c->w->gen * c->sequences, c->out->decode_s,
                         why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code cell_decode(struct cell *c, int pos, struct err *why)
{
    struct decode_experts *x = &c->experts;
    if (x->stamp) model_watch_experts(c->m, cell_see_experts, x);
    const enum err_code rc = cell_decode_steps(c, pos, why);
    model_watch_experts(c->m, NULL, NULL);
    if (x->calls) c->out->decode_experts = (double)x->distinct / (double)x->calls;
    return rc;
}

static void cell_put_span(struct cell *c, const char *name, int64_t from_ns)
{
    c->out->spans[c->out->n_spans++] = (struct cell_span){ name, from_ns, clock_ns() };
}

/* Whose passes are counted from now on: those of the prompt (0), decode steps (1), none (-1). */
static void cell_profile(struct cell *c, int phase)
{
    model_profile(c->m, c->hooks.profile && phase >= 0 ? &c->hooks.profile[phase] : NULL);
}

/* The cache of every sequence up to the depth: filled, or as an earlier cell with the same prompt left it. */
static enum err_code cell_fill(struct cell *c, struct err *why)
{
    struct kept_fill *kept = c->hooks.kept;
    const int depth = c->w->depth;
    const struct fill_ids ids = { c->prompt, c->prompt_count, depth, c->sequences };
    if (kept && depth && kept_fill_matches(kept, c->m, &ids)) return ERR_OK;
    cell_empty_caches(c);
    if (!depth) return ERR_OK;
    const int64_t start = clock_ns();
    enum err_code rc = cell_prefill(c, "fill", 0, depth, false, &c->out->fill_s, why);
    if (rc) return rc;
    cell_put_span(c, "fill", start);
    c->out->filled_tokens = depth * c->sequences;
    return kept ? kept_fill_save(kept, c->m, &ids, why) : ERR_OK;
}

static enum err_code cell_run_tokens(struct cell *c, struct err *why)
{
    const struct workload *w = c->w;
    int64_t start;
    enum err_code rc;
    if ((rc = cell_fill(c, why))) return rc;
    cell_end_turn(c);
    c->out->turns = 0; /* filling the cache is not measured */
    for (int s = 0; s < c->sequences; s++) c->token[s] = c->prompt[(int64_t)s * c->prompt_count + w->depth];
    if (w->prompt) {
        double seconds;
        start = clock_ns();
        cell_profile(c, 0);
        if ((rc = cell_prefill(c, "prefill", w->depth, w->depth + w->prompt, true, &seconds, why))) return rc;
        /* in turns, waiting for the others is not part of the time to the first token */
        c->out->ttft_s = c->hooks.turn ? seconds : (double)(clock_ns() - start) * 1e-9;
        c->out->prefill_s = seconds;
        c->out->prompt_tokens = w->prompt * c->sequences;
        cell_put_span(c, "prefill", start);
    }
    cell_end_turn(c);
    c->out->prefill_turns = c->out->turns;
    if (!w->gen) return ERR_OK;
    start = clock_ns();
    cell_profile(c, 1);
    if ((rc = cell_decode(c, w->depth + w->prompt, why))) return rc;
    cell_put_span(c, "decode", start);
    return ERR_OK;
}

static enum err_code cell_alloc(struct cell *c, struct err *why)
{
    const size_t sequences = (size_t)c->sequences;
    c->prompt_count = prompt_count(c->w);
    const int64_t batch = MIN(config_int(model_config(c->m), KNOB_BATCH),
                              (int64_t)c->prompt_count * c->sequences);
    c->prompt = malloc(sequences * (size_t)c->prompt_count * sizeof *c->prompt);
    c->output = malloc(sequences * (size_t)MAX(c->w->gen, 1) * sizeof *c->output);
    c->token = malloc(sequences * sizeof *c->token);
    c->rows = malloc((size_t)MAX(batch, (int64_t)c->sequences) * sizeof *c->rows);
    c->out->itl_s = malloc((size_t)MAX(c->w->gen, 1) * sizeof *c->out->itl_s);
    const struct model_shape *shape = model_shape(c->m);
    c->experts.used = shape->experts_used;
    if (shape->experts) c->experts.stamp = calloc((size_t)shape->experts, sizeof *c->experts.stamp);
    if ((c->experts.stamp || !shape->experts) && c->prompt && c->output && c->token && c->rows &&
        c->out->itl_s)
        return ERR_OK;
    return err_set(why, ERR_NOMEM, "out of memory for a run of %d tokens in %d sequences", workload_ctx(c->w),
                   c->sequences);
}

static void cell_hash_output(struct cell *c)
{
    struct str s = { 0 };
    const size_t tokens = (size_t)c->w->gen * (size_t)c->sequences;
    str_append_n(&s, c->output, tokens * sizeof *c->output);
    if (tokens) prompt_hash_bytes(c->out->output_hash, s.data, s.len);
    str_free(&s);
}

/* ---------------------------------------------------------------- quality */

static bool cell_report_eval(void *arg, int64_t chunk, int64_t of, double nll)
{
    struct cell *c = arg;
    (void)nll;
    return !cell_report(c, "eval", (int)chunk, (int)of, NAN, NULL);
}

static enum err_code cell_run_eval(struct cell *c, struct err *why)
{
    char *text;
    size_t n;
    struct perplexity p;
    enum err_code rc = file_read(&text, &n, c->w->eval_file, SAMPLE_LIMIT, why);
    if (rc) return rc;
    rc = prompt_hash_eval(c->out->work_hash, c->w->eval_ctx, text, n, why);
    const int64_t start = clock_ns();
    if (!rc) rc = eval_perplexity(&p, c->m, text, n, c->w->eval_ctx, 0, cell_report_eval, c, why);
    free(text);
    if (rc) return rc;
    c->out->prefill_s = (double)(clock_ns() - start) * 1e-9;
    cell_put_span(c, "eval", start);
    c->out->prompt_tokens = (int)MIN(p.chunks * c->w->eval_ctx, INT32_MAX);
    c->out->perplexity = p.ppl;
    c->out->nll = p.nll;
    c->out->nll_se = p.nll_se;
    c->out->scored_tokens = p.scored;
    return ERR_OK;
}

enum err_code cell_run(struct cell_result *out, struct model *m, const struct workload *w, uint64_t seed,
                       const struct cell_hooks *hooks, struct err *why)
{
    *out = (struct cell_result){ .prefill_s = NAN,
                                 .decode_s = NAN,
                                 .ttft_s = NAN,
                                 .load_s = NAN,
                                 .decode_experts = NAN,
                                 .perplexity = NAN,
                                 .nll = NAN,
                                 .nll_se = NAN };
    struct cell c = { .out = out,
                      .m = m,
                      .w = w,
                      .sequences = workload_sequences(w),
                      .replicas = config_parallel(model_config(m)).dp };
    if (hooks) c.hooks = *hooks;
    if (workload_is_load(w))
        return err_set(why, ERR_USAGE, "a load is no single run of a prompt: worker_load serves it");
    if (workload_ctx(w) > model_ctx(m))
        return err_set(why, ERR_USAGE, "the workload needs a context of %d tokens, this session has %d",
                       workload_ctx(w), model_ctx(m));
    if (c.sequences > model_plan(m)->sequences)
        return err_set(why, ERR_USAGE, "the workload runs %d sequences side by side, this session has %d",
                       c.sequences, model_plan(m)->sequences);
    enum err_code rc;
    const int64_t start = clock_ns();
    if ((rc = model_warm(m, why))) return rc;
    out->load_s = (double)(clock_ns() - start) * 1e-9;
    if (w->eval_file[0]) {
        cell_empty_caches(&c);
        rc = cell_run_eval(&c, why);
    } else {
        rc = cell_alloc(&c, why);
        if (!rc) rc = cell_make_prompts(&c, seed, why);
        if (!rc) rc = cell_run_tokens(&c, why);
        cell_profile(&c, -1);
        if (!rc) cell_hash_output(&c);
    }
    if (!rc)
        rc = gguf_check_unchanged(model_gguf(m), why); /* otherwise the figures belong to an unknown model */
    if (rc || !c.hooks.kept || !kept_fill_go_back(c.hooks.kept, m)) cell_empty_caches(&c);
    free(c.prompt);
    free(c.output);
    free(c.token);
    free(c.rows);
    free(c.experts.stamp);
    if (rc) cell_result_free(out);
    return rc;
}

void cell_result_free(struct cell_result *r)
{
    free(r->itl_s);
    free(r->turn_s);
    r->itl_s = r->turn_s = NULL;
}
