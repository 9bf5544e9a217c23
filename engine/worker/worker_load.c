/* The request "cell" for a load: requests that come and go, served by the open model. */
#include <math.h>
#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/prompts/prompts.h"
#include "engine/serve/serve.h"
#include "engine/worker/handicap.h"
#include "engine/worker/worker_internal.h"

enum { LIVE_NS = 200000000 };

struct load_cell {
    struct worker *w;
    struct load_plan *plan;
    struct prompt_facts prompts;
    json_t *classes; /* names of the classes of prompts; NULL: there are none */
    struct load_result result;
    int64_t told_ns; /* when the parent was told of the load */
    double load_s;   /* of pages that had left memory */
    int64_t from_ns, to_ns;
};

static void load_after_step(void *ctx, int64_t started_ns)
{
    const struct load_cell *c = ctx;
    handicap_wait(model_config(c->w->model), started_ns);
}

/* What the parent asked to change. A wrong setting is an event, not a failure of the cell. */
static void load_change(struct load_cell *c, struct load_now *now, const json_t *change)
{
    struct config settings;
    struct err why = { 0 };
    now->rate_by = json_get_num(change, "rate_by", 1);
    enum err_code rc = config_parse(&settings, json_get_str(change, "settings", "default"), &why);
    if (!rc) rc = serving_change(now->serving, &settings, &why);
    if (!rc) return;
    json_t *o = channel_event(&c->w->channel, "refused");
    json_put_str(o, "message", why.message);
    channel_send(&c->w->channel, o);
}

static bool load_progress(void *ctx, struct load_now *now)
{
    struct load_cell *c = ctx;
    json_t *o = worker_progress_event(c->w, "requests", now->done, now->of, now->seconds);
    json_put(o, "occupancy", serving_occupancy_to_json(now->serving));
    const int64_t clock = clock_ns();
    if (clock - c->told_ns >= LIVE_NS || now->done == now->of) {
        json_put(o, "load", live_to_json(now->live));
        c->told_ns = clock;
    }
    ranks_progress_put(o, c->w);
    channel_send(&c->w->channel, o);
    const bool stop = channel_stop(&c->w->channel);
    json_t *change = channel_take_change(&c->w->channel);
    if (change) load_change(c, now, change);
    json_decref(change);
    return !stop;
}

/* ---------------------------------------------------------------- the answer */

static json_t *served_json(const struct load_cell *c)
{
    const struct load_result *r = &c->result;
    json_t *o = json_object();
    json_put_num(o, "seconds", r->seconds);
    json_put_int(o, "steps", r->steps);
    json_put_int(o, "step_requests", r->step_requests);
    json_put_num(o, "step_s", r->step_s);
    json_put_num(o, "model_s", r->model_s);
    json_put_num(o, "kv_use", r->kv_use);
    json_put_int(o, "running_most", r->running_most);
    json_put_int(o, "waiting_most", r->waiting_most);
    json_put_int(o, "cut", c->plan->cut);
    json_put_int(o, "skipped", c->plan->skipped);
    return o;
}

static json_t *load_json(const struct load_cell *c, const struct workload *load)
{
    char line[WORKLOAD_LINE];
    int64_t prompt = 0, tokens = 0;
    const struct load_result *r = &c->result;
    for (int i = 0; i < r->n; i++) {
        if (r->record[i].tokens) prompt += r->record[i].prompt;
        tokens += r->record[i].tokens;
    }
    json_t *o = channel_ok(&c->w->channel);
    json_put_str(o, "model", model_shape(c->w->model)->name);
    json_put_str(o, "workload", workload_line(load, line, sizeof line));
    json_put_num(o, "load_s", c->load_s);
    json_put_int(o, "sequences", model_plan(c->w->model)->sequences);
    json_put_int(o, "prompt_tokens", prompt);
    json_put_int(o, "gen_tokens", tokens);
    json_put(o, "requests", load_records_to_json(r, c->plan));
    if (c->classes) json_put(o, "classes", json_incref(c->classes));
    prompt_facts_put(o, &c->prompts);
    json_put(o, "served", served_json(c));
    json_put_str(o, "work_hash", c->plan->hash);
    json_put_str(o, "output_hash", r->output_hash);
    worker_put_span(o, "requests", c->from_ns, c->to_ns);
    return o;
}

/* ---------------------------------------------------------------- the run */

static enum err_code plan_make(struct load_cell *c, const struct workload *load, uint64_t seed,
                               struct err *why)
{
    const struct model *m = c->w->model;
    struct prompt_source source;
    struct load_text text;
    enum err_code rc = prompt_source_open(&source, model_gguf(m), model_tokenizer(m), model_shape(m)->vocab,
                                          why);
    if (!rc) rc = prompt_source_load(&text, &source, load, seed, why);
    if (!rc) rc = load_plan_make(&c->plan, &load->load, seed, &text, why);
    if (!rc) c->classes = prompts_classes_to_json(prompt_source_prompts(&source));
    c->prompts = source.facts;
    if (!rc) c->prompts.repeats |= c->plan->repeats;
    prompt_source_close(&source);
    if (*load->load.prompts) usage_reset_peak(); /* reading the user's file is no memory of the arm */
    return rc;
}

static enum err_code room_check(const struct load_cell *c, struct err *why)
{
    const int ctx = model_ctx(c->w->model);
    for (int i = 0; i < c->plan->n; i++)
        if (c->plan->request[i].n + c->plan->request[i].generate > ctx)
            return err_set(why, ERR_USAGE,
                           "request %d has %d tokens, this session has a context of %d: expected ctx=%d or "
                           "more in the config, or a smaller ctx in the load",
                           i + 1, c->plan->request[i].n + c->plan->request[i].generate, ctx,
                           c->plan->tokens_most);
    return ERR_OK;
}

static enum err_code load_serve(struct load_cell *c, const struct workload_load *load, struct err *why)
{
    struct serving *serving = NULL;
    const struct serving_options options = { .model = c->w->model };
    const struct load_hooks hooks = { .after_step = load_after_step,
                                      .progress = load_progress,
                                      .ctx = c,
                                      .limit = load->limit,
                                      .limits = load->limits };
    enum err_code rc = serving_open(&serving, &options, why);
    c->from_ns = clock_ns();
    if (!rc) rc = load_run(&c->result, serving, c->plan, &hooks, why);
    c->to_ns = clock_ns();
    serving_close(serving);
    return rc;
}

enum err_code worker_load(struct worker *w, const struct workload *load, uint64_t seed, struct err *why)
{
    struct load_cell c = { .w = w };
    const struct usage before = usage_now();
    kept_fill_drop(&w->kept, w->model); /* the scheduler needs all blocks */
    ranks_cell_begin(w);
    const int64_t start = clock_ns();
    enum err_code rc = model_warm(w->model, why);
    c.load_s = (double)(clock_ns() - start) * 1e-9;
    if (!rc) rc = plan_make(&c, load, seed, why);
    if (!rc) rc = room_check(&c, why);
    if (!rc) rc = load_serve(&c, &load->load, why);
    if (!rc)
        rc = gguf_check_unchanged(model_gguf(w->model),
                                  why); /* otherwise the figures belong to an unknown model */
    if (!rc) {
        json_t *o = load_json(&c, load);
        usage_put(o, before);
        ranks_usage_put(o, w);
        channel_send(&w->channel, o);
    }
    load_result_free(&c.result);
    load_plan_free(c.plan);
    json_decref(c.classes);
    return rc;
}
