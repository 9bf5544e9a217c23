/* Runs the scheduler's steps on a model (serving.h). */
#include "engine/serve/serving.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

/* What belongs to one request, beside what the scheduler knows of it. */
struct served {
    struct served *previous, *next; /* all that have not ended */
    int64_t id;
    void *user;
    struct sampler *sampler; /* NULL: the largest logit is its next token */
    int least;
    bool ignore_end;
    int top;
    int made; /* tokens generated */
    char **
        outside; /* [outside_count] contents of blocks outside the cache; NULL: none, or in the cache again */
    int outside_count;
    char *state; /* copy of the model's state at that time; NULL: none */
};

struct serving {
    struct serving_options o;
    struct scheduler *scheduler;
    struct served *first;
    struct batch_row *rows;       /* [step_tokens] */
    int32_t *next;                /* [max_sequences] the largest logit of each wanted row */
    struct serving_token *tokens; /* [max_sequences] */
    struct token_chance *chances; /* [max_sequences][SERVING_TOP_MOST] */
    bool *failed;                 /* [max_sequences] slices whose values are not numbers */
    int step_tokens, last_rows;   /* most rows of a step; those of the last one */
    struct config settings;       /* that can change while it serves */
    char *uses;                   /* [blocks] scratch */
    float *allowed;               /* [vocab] logits without those of tokens that end an answer */
    int64_t block_bytes;
};

/* ---------------------------------------------------------------- options */

static void policies_of(struct scheduler_options *out, const struct config *c)
{
    out->schedule = (enum schedule)config_choice(c, KNOB_SCHEDULE);
    out->evict = (enum evict_policy)config_choice(c, KNOB_EVICT);
    out->preempt = (enum preempt)config_choice(c, KNOB_PREEMPT);
    out->itl_limit_s = (double)config_int(c, KNOB_ITL_LIMIT) * 1e-3;
}

static enum err_code serving_options_of(struct scheduler_options *out, const struct model *m, struct err *why)
{
    const struct config *c = model_config(m);
    const int batch = (int)config_int(c, KNOB_BATCH), step = (int)config_int(c, KNOB_STEP_TOKENS);
    const bool has_state = model_state_bytes(m) > 0, cached = config_choice(c, KNOB_PREFIX_CACHE) == 0;
    if (has_state && cached && c->given[KNOB_PREFIX_CACHE])
        return err_set(
            why, ERR_USAGE,
            "prefix_cache=on: %s layers keep a state that requests cannot share; leave it out, or use "
            "prefix_cache=off",
            model_shape(m)->arch);
    *out = (struct scheduler_options){
        .blocks = model_blocks(m),
        .block_tokens = KV_BLOCK_TOKENS,
        .ctx = model_ctx(m),
        .max_sequences = model_plan(m)->sequences,
        .step_tokens = MAX(step ? step : batch, model_plan(m)->sequences),
        .prefix_cache = cached && !has_state,
    };
    policies_of(out, c);
    return ERR_OK;
}

/* ---------------------------------------------------------------- settings */

const enum knob_id SERVING_KNOBS[SERVING_KNOBS_MOST] = {
    KNOB_MAX_SEQUENCES, KNOB_PREFIX_CACHE, KNOB_EVICT, KNOB_PREEMPT, KNOB_SCHEDULE, KNOB_ITL_LIMIT
};

static enum err_code settings_begin(struct serving *s, const struct scheduler_options *o, struct err *why)
{
    const struct config *c = model_config(s->o.model);
    char sequences[16];
    enum err_code rc = ERR_OK;
    config_default(&s->settings);
    snprintf(sequences, sizeof sequences, "%d", o->max_sequences);
    for (int i = 0; i < SERVING_KNOBS_MOST && !rc; i++) {
        const enum knob_id id = SERVING_KNOBS[i];
        const char *text = id == KNOB_MAX_SEQUENCES  ? sequences
                           : id == KNOB_PREFIX_CACHE ? (o->prefix_cache ? "on" : "off")
                                                     : config_text(c, id);
        rc = config_set(&s->settings, KNOBS[id].key, text, why);
    }
    return rc;
}

const struct config *serving_settings(const struct serving *s)
{
    return &s->settings;
}

static bool may_change(enum knob_id id)
{
    for (int i = 0; i < SERVING_KNOBS_MOST; i++)
        if (SERVING_KNOBS[i] == id) return true;
    return false;
}

enum err_code serving_keys_check(const struct config *changes, struct err *why)
{
    for (int id = 0; id < KNOB_COUNT; id++) {
        if (!changes->given[id] || may_change((enum knob_id)id)) continue;
        struct str names = { 0 };
        for (int i = 0; i < SERVING_KNOBS_MOST; i++)
            str_printf(&names, "%s%s", i ? ", " : "", KNOBS[SERVING_KNOBS[i]].key);
        err_set(why, ERR_USAGE, "%s cannot change while requests are served: expected %s", KNOBS[id].key,
                str_text(&names));
        str_free(&names);
        return ERR_USAGE;
    }
    return ERR_OK;
}

enum err_code serving_change_check(const struct serving *s, const struct config *changes, struct err *why)
{
    const int64_t sequences = config_int(changes, KNOB_MAX_SEQUENCES);
    const int most = model_plan(s->o.model)->sequences;
    const enum err_code rc = serving_keys_check(changes, why);
    if (rc) return rc;
    if (changes->given[KNOB_MAX_SEQUENCES] && (sequences < 1 || sequences > most))
        return err_set(why, ERR_USAGE, "max_sequences=%lld: expected 1 to %d, for which memory was set aside",
                       (long long)sequences, most);
    if (changes->given[KNOB_PREFIX_CACHE] && config_choice(changes, KNOB_PREFIX_CACHE) == 0 &&
        model_state_bytes(s->o.model) > 0)
        return err_set(why, ERR_USAGE,
                       "prefix_cache=on: this model keeps a state that requests cannot share");
    return ERR_OK;
}

enum err_code serving_change(struct serving *s, const struct config *changes, struct err *why)
{
    struct config c = s->settings;
    enum err_code rc = serving_change_check(s, changes, why);
    for (int i = 0; i < SERVING_KNOBS_MOST; i++)
        if (changes->given[SERVING_KNOBS[i]]) config_take(&c, changes, SERVING_KNOBS[i]);
    if (rc) return rc;
    struct scheduler_options o = *scheduler_options(s->scheduler);
    o.max_sequences = (int)config_int(&c, KNOB_MAX_SEQUENCES);
    o.prefix_cache = config_choice(&c, KNOB_PREFIX_CACHE) == 0;
    policies_of(&o, &c);
    rc = scheduler_change(s->scheduler, &o, why);
    if (!rc) s->settings = c;
    return rc;
}

/* ---------------------------------------------------------------- opening and closing */

static enum err_code check_parallel(const struct model *m, struct err *why)
{
    const struct parallel mode = config_parallel(model_config(m));
    const bool states = model_state_bytes(m);
    if (!model_ranks(m) || (!states && mode.dp == 1 && mode.cp == 1)) return ERR_OK;
    return err_set(why, ERR_USAGE, "parallel=%s: %s; expected parallel=off%s",
                   config_text(model_config(m), KNOB_PARALLEL),
                   states ? "models with layers that keep a state are not served by several processes"
                   : mode.dp > 1
                       ? "replicas do not serve requests that come and go"
                       : "processes with a part of the positions do not serve requests that come and go",
                   states ? "" : ", tpN or ppN");
}

enum err_code serving_open(struct serving **out, const struct serving_options *o, struct err *why)
{
    struct scheduler_options options;
    enum err_code rc;
    *out = NULL;
    if ((rc = check_parallel(o->model, why))) return rc;
    if (config_choice(model_config(o->model), KNOB_KV_CACHE) != CACHE_PAGED)
        return err_set(
            why, ERR_USAGE,
            "kv_cache=%s: requests that come and go share the blocks of a paged KV cache; expected "
            "kv_cache=paged",
            config_text(model_config(o->model), KNOB_KV_CACHE));
    if ((rc = serving_options_of(&options, o->model, why))) return rc;
    struct serving *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory");
    const size_t sequences = (size_t)options.max_sequences;
    s->o = *o;
    s->block_bytes = model_block_bytes(o->model);
    s->step_tokens = options.step_tokens;
    s->rows = malloc((size_t)options.step_tokens * sizeof *s->rows);
    s->next = malloc(sequences * sizeof *s->next);
    s->tokens = malloc(sequences * sizeof *s->tokens);
    s->chances = malloc(sequences * SERVING_TOP_MOST * sizeof *s->chances);
    s->failed = malloc(sequences * sizeof *s->failed);
    s->allowed = malloc((size_t)model_shape(o->model)->vocab * sizeof *s->allowed);
    s->uses = malloc((size_t)options.blocks);
    if (!s->rows || !s->next || !s->tokens || !s->chances || !s->failed || !s->allowed || !s->uses)
        rc = err_set(why, ERR_NOMEM, "out of memory for steps of %d tokens", options.step_tokens);
    if (!rc) rc = settings_begin(s, &options, why);
    if (!rc) rc = scheduler_open(&s->scheduler, &options, why);
    if (rc) {
        serving_close(s);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

static void served_forget_outside(struct served *r)
{
    for (int i = 0; i < r->outside_count; i++) free(r->outside[i]);
    free(r->outside);
    free(r->state);
    r->outside = NULL;
    r->state = NULL;
    r->outside_count = 0;
}

static void served_free(struct served *r)
{
    served_forget_outside(r);
    sampler_close(r->sampler);
    free(r);
}

void serving_close(struct serving *s)
{
    if (!s) return;
    scheduler_close(s->scheduler);
    for (struct served *r = s->first, *next; r; r = next) {
        next = r->next;
        served_free(r);
    }
    free(s->rows);
    free(s->next);
    free(s->tokens);
    free(s->chances);
    free(s->failed);
    free(s->allowed);
    free(s->uses);
    free(s);
}

/* ---------------------------------------------------------------- requests */

static enum err_code request_check(const struct serving *s, const struct serving_request *r, struct err *why)
{
    const int64_t vocab = model_shape(s->o.model)->vocab;
    if (r->top < -1 || r->top > SERVING_TOP_MOST)
        return err_set(why, ERR_USAGE, "log-probabilities of %d tokens: expected 0 to %d", r->top,
                       SERVING_TOP_MOST);
    for (int i = 0; i < r->n; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return err_set(why, ERR_USAGE, "token %d of the prompt is %d: expected 0 to %lld", i,
                           r->prompt[i], (long long)vocab - 1);
    return ERR_OK;
}

static enum err_code served_open_sampler(struct served *r, const struct serving *s,
                                         const struct serving_request *q, struct err *why)
{
    if (sampler_is_greedy(&q->sampling)) return ERR_OK;
    const enum err_code rc = sampler_open(&r->sampler, &q->sampling, (int32_t)model_shape(s->o.model)->vocab,
                                          why);
    for (int i = 0; i < q->n && !rc; i++) sampler_accept(r->sampler, q->prompt[i]);
    return rc;
}

enum err_code serving_submit(struct serving *s, const struct serving_request *q, int64_t *id, struct err *why)
{
    enum err_code rc = request_check(s, q, why);
    if (rc) return rc;
    struct served *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for a request");
    r->user = q->user;
    r->least = q->least;
    r->ignore_end = q->ignore_end;
    r->top = q->top;
    rc = served_open_sampler(r, s, q, why);
    if (!rc) rc = scheduler_submit(s->scheduler, q->prompt, q->n, q->generate, q->priority, &r->id, why);
    if (rc) {
        served_free(r);
        return rc;
    }
    scheduler_set_owner(s->scheduler, r->id, r);
    r->next = s->first;
    if (s->first) s->first->previous = r;
    s->first = r;
    *id = r->id;
    return ERR_OK;
}

static void served_end(struct serving *s, struct served *r)
{
    scheduler_end(s->scheduler, r->id);
    if (r->previous) r->previous->next = r->next;
    if (r->next) r->next->previous = r->previous;
    if (s->first == r) s->first = r->next;
    served_free(r);
}

const struct request *serving_find(const struct serving *s, int64_t id)
{
    return scheduler_find(s->scheduler, id);
}

void serving_cancel(struct serving *s, int64_t id)
{
    const struct request *r = scheduler_find(s->scheduler, id);
    if (r) served_end(s, r->owner);
}

/* ---------------------------------------------------------------- moves of blocks */

static enum err_code serving_move_out(struct serving *s, const struct block_move *move, struct served *r,
                                      struct err *why)
{
    struct model *m = s->o.model;
    if (move->index == 0) {
        const int count = scheduler_find(s->scheduler, r->id)->swapped;
        const int64_t state_bytes = model_state_bytes(m);
        served_forget_outside(r);
        r->outside = calloc((size_t)count, sizeof *r->outside);
        r->outside_count = r->outside ? count : 0;
        if (state_bytes) r->state = malloc((size_t)state_bytes);
        if (!r->outside || (state_bytes && !r->state))
            return err_set(why, ERR_NOMEM, "out of memory to swap");
        if (r->state) model_state_save(m, move->sequence, r->state);
    }
    char *to = r->outside[move->index] = malloc((size_t)s->block_bytes);
    if (!to) return err_set(why, ERR_NOMEM, "out of memory for a block of the KV cache outside of it");
    return model_read_block(m, move->from, to, why);
}

static enum err_code serving_move_in(struct serving *s, const struct block_move *move, struct served *r,
                                     struct err *why)
{
    struct model *m = s->o.model;
    const struct request *q = scheduler_find(s->scheduler, r->id);
    const enum err_code rc = model_write_block(m, move->to, r->outside[move->index], why);
    if (move->index < r->outside_count - 1) return rc;
    model_assign_blocks(m, q->sequence, q->blocks, q->block_count, q->computed);
    if (r->state) model_state_restore(m, q->sequence, r->state, q->computed);
    served_forget_outside(r);
    return rc;
}

static enum err_code serving_move(struct serving *s, const struct step *step, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < step->moves && !rc; i++) {
        const struct block_move *move = &step->move[i];
        struct served *r = scheduler_find(s->scheduler, move->request)->owner;
        switch (move->kind) {
        case MOVE_COPY: rc = model_copy_block(s->o.model, move->from, move->to, why); break;
        case MOVE_OUT: rc = serving_move_out(s, move, r, why); break;
        case MOVE_IN: rc = serving_move_in(s, move, r, why); break;
        }
    }
    return rc;
}

/* ---------------------------------------------------------------- the forward pass */

/* Rows of all slices that have not failed. Returns their number; *plain: all wanted tokens are the largest
 * logits, without log-probabilities. */
static int serving_fill_rows(struct serving *s, const struct step *step, bool *plain)
{
    int n = 0;
    *plain = true;
    for (int i = 0; i < step->slices; i++) {
        const struct slice *slice = &step->slice[i];
        const struct request *q = slice->request;
        const struct served *r = q->owner;
        if (s->failed[i]) continue;
        model_assign_blocks(s->o.model, q->sequence, q->blocks, q->block_count, slice->from);
        for (int k = 0; k < slice->n; k++)
            s->rows[n++] = (struct batch_row){ .token = q->tokens[slice->from + k],
                                               .pos = slice->from + k,
                                               .seq = q->sequence,
                                               .logits = slice->logits && k == slice->n - 1 };
        if (slice->logits && (r->sampler || r->top >= 0 || r->made < r->least)) *plain = false;
    }
    return n;
}

/* Mark the slices that fail with sequence `seq`. A failed pass leaves no states, so none of the others can be
 * repeated then. */
static void serving_mark_failed(struct serving *s, const struct step *step, int seq)
{
    const bool all = model_state_bytes(s->o.model) > 0;
    for (int i = 0; i < step->slices; i++)
        if (all || step->slice[i].request->sequence == seq) s->failed[i] = true;
}

/* Compute the step; without the slices whose values are not numbers, which are marked. */
static enum err_code serving_forward(struct serving *s, const struct step *step, bool *plain, struct err *why)
{
    memset(s->failed, 0, (size_t)step->slices * sizeof *s->failed);
    for (;;) {
        int seq;
        const int n = serving_fill_rows(s, step, plain);
        if (!n) return ERR_OK;
        const enum err_code rc = model_forward_best(s->o.model, s->rows, n, *plain ? s->next : NULL, why);
        if (rc != ERR_FORMAT || !model_not_finite(s->o.model, &seq)) return rc;
        serving_mark_failed(s, step, seq);
    }
}

/* ---------------------------------------------------------------- tokens */

/* Log-probability of `token`, and the `count` most likely tokens to top. */
static float chances_of(const float *logits, int64_t vocab, int32_t token, struct token_chance *top,
                        int count)
{
    float most = logits[0];
    double sum = 0;
    int n = 0;
    for (int64_t i = 1; i < vocab; i++) most = fmaxf(most, logits[i]);
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)(logits[i] - most));
    const double all = most + log(sum);
    for (int64_t i = 0; i < vocab && count; i++) {
        if (n == count && logits[i] <= top[n - 1].logprob) continue;
        int at = n < count ? n++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < logits[i]; at--) top[at] = top[at - 1];
        top[at] = (struct token_chance){ (int32_t)i, logits[i] };
    }
    for (int i = 0; i < n; i++) top[i].logprob = (float)(top[i].logprob - all);
    return (float)(logits[token] - all);
}

/* The logits that the next token of a request is chosen from. */
static const float *serving_logits(struct serving *s, const struct served *r, int i)
{
    const float *logits = model_logits(s->o.model, i);
    const int64_t vocab = model_shape(s->o.model)->vocab;
    if (r->made >= r->least || r->ignore_end || !s->o.ends) return logits;
    for (int64_t k = 0; k < vocab; k++)
        s->allowed[k] = s->o.ends(s->o.ends_ctx, (int32_t)k) ? -INFINITY : logits[k];
    return s->allowed;
}

/* The next token of a request, from the i-th row of logits. */
static struct serving_token serving_take(struct serving *s, struct served *r, int i, bool plain)
{
    struct model *m = s->o.model;
    struct serving_token t = { .id = r->id, .user = r->user, .index = r->made, .logprob = NAN };
    t.token = plain ? s->next[i] : -1;
    if (plain) return t;
    const float *logits = serving_logits(s, r, i);
    const int64_t vocab = model_shape(m)->vocab;
    if (r->sampler) {
        t.token = sampler_next(r->sampler, logits);
    } else {
        t.token = 0;
        for (int64_t k = 1; k < vocab; k++)
            if (logits[k] > logits[t.token]) t.token = (int32_t)k;
    }
    if (r->top >= 0) {
        struct token_chance *top = s->chances + (int64_t)i * SERVING_TOP_MOST;
        t.logprob = chances_of(model_logits(m, i), vocab, t.token, top, r->top);
        t.top = top;
        t.top_count = (int)MIN((int64_t)r->top, vocab);
    }
    return t;
}

/* Report the tokens of a step and end the requests that are complete. */
static void serving_report(struct serving *s, const struct slice *slices, int count, bool plain,
                           struct serving_result *out)
{
    int wanted = 0;
    for (int i = 0; i < count; i++) {
        const struct request *q = slices[i].request;
        struct served *r = q->owner;
        struct serving_token *t = &s->tokens[out->tokens];
        if (!s->failed[i] && !slices[i].logits) continue;
        const int cached = MIN(q->found, q->prompt), preemptions = q->preemptions;
        if (s->failed[i]) {
            *t = (struct serving_token){ .id = r->id,
                                         .user = r->user,
                                         .token = -1,
                                         .finish = FINISH_FAILED,
                                         .index = r->made,
                                         .logprob = NAN };
        } else {
            *t = serving_take(s, r, wanted++, plain);
            r->made++;
            const bool ends = !r->ignore_end && s->o.ends && s->o.ends(s->o.ends_ctx, t->token);
            if (!ends) scheduler_append(s->scheduler, r->id, t->token);
            t->finish = ends ? FINISH_END : q->known == q->most ? FINISH_LENGTH : FINISH_NONE;
        }
        t->cached = cached;
        t->preemptions = preemptions;
        out->tokens++;
        if (t->finish != FINISH_NONE) served_end(s, r);
    }
}

enum err_code serving_step(struct serving *s, bool flush, struct serving_result *out, struct err *why)
{
    struct step step;
    bool plain = true;
    const int64_t begun = clock_ns();
    *out = (struct serving_result){ .token = s->tokens };
    scheduler_step(s->scheduler, flush, &step);
    out->rows = s->last_rows = step.rows;
    out->requests = step.slices;
    for (int i = 0; i < step.slices; i++) {
        const struct slice *slice = &step.slice[i];
        out->prompt_rows += MAX(MIN(slice->request->prompt, slice->from + slice->n) - slice->from, 0);
    }
    const int slices = step.slices; /* scheduler_computed empties the step, but not the array of slices */
    const int64_t model_begun = clock_ns();
    enum err_code rc = serving_move(s, &step, why);
    if (!rc && slices) rc = serving_forward(s, &step, &plain, why);
    const int64_t model_ended = clock_ns();
    out->model_s = (double)(model_ended - model_begun) * 1e-9;
    if (rc) return rc;
    scheduler_computed(s->scheduler, out->model_s);
    serving_report(s, step.slice, slices, plain, out);
    out->seconds = (double)(clock_ns() - begun) * 1e-9;
    return ERR_OK;
}

struct scheduler_counts serving_count(const struct serving *s)
{
    return scheduler_count(s->scheduler);
}

/* Where a character of the map stands for several blocks, the one with the highest rank is shown. */
static int use_rank(char use)
{
    return use == '.' ? 0 : use == '-' ? 1 : use == '#' ? 3 : 2;
}

json_t *serving_occupancy_to_json(const struct serving *s)
{
    enum { MAP = 1024 };
    char map[MAP + 1] = "";
    const int blocks = model_blocks(s->o.model), step = MAX((blocks + MAP - 1) / MAP, 1);
    const struct scheduler_counts c = scheduler_count(s->scheduler);
    memset(map, '.', (size_t)((blocks + step - 1) / step));
    scheduler_block_uses(s->scheduler, s->uses);
    for (int b = 0; b < blocks; b++)
        if (use_rank(s->uses[b]) > use_rank(map[b / step])) map[b / step] = s->uses[b];
    json_t *o = json_object();
    json_put_int(o, "blocks", blocks);
    json_put_int(o, "used", c.blocks.used);
    json_put_int(o, "cached", c.blocks.cached);
    json_put_int(o, "spared", c.spared);
    json_put_int(o, "running", c.running);
    json_put_int(o, "waiting", c.waiting);
    json_put_int(o, "rows", s->last_rows);
    json_put_int(o, "batch", s->step_tokens);
    json_put_int(o, "block_tokens", KV_BLOCK_TOKENS);
    json_put_int(o, "step", step);
    json_put_str(o, "map", map);
    return o;
}
