/* The requests "open", "cell" and "generate". Every result describes what really ran and the resources that
 * it used. */
#include "engine/worker/worker_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/sysfs/sysfs.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"
#include "engine/text/text.h"
#include "engine/train/train.h"
#include "engine/worker/handicap.h"
#include "engine/worker/worker.h"
#include "kernels/kernels.h"

enum { PROGRESS_NS = 100000000 };

/* ---------------------------------------------------------------- open */

bool worker_report_open(void *arg, const char *phase, double done)
{
    struct open_progress *p = arg;
    const int64_t now = clock_ns();
    if (now - p->reported_ns < PROGRESS_NS) return true;
    p->reported_ns = now;
    return worker_progress(p->w, phase, (int64_t)(1000 * done), 1000, (double)(now - p->started_ns) * 1e-9);
}

static json_t *memory_json(const struct model *m)
{
    struct model_memory got;
    model_memory(m, &got);
    json_t *o = json_object();
    json_put_int(o, "huge_wanted_bytes", got.huge_wanted_bytes);
    json_put(o, "huge_bytes", got.huge_bytes < 0 ? json_null() : json_integer(got.huge_bytes));
    json_put_int(o, "copied_bytes", got.copied_bytes);
    json_put_int(o, "repacked_bytes", got.repacked_bytes);
    json_put_int(o, "prefetched_bytes", got.prefetched_bytes);
    json_put_num(o, "prefetch_s", got.prefetch_s);
    return o;
}

void worker_put_span(json_t *answer, const char *name, int64_t from_ns, int64_t to_ns)
{
    json_t *list = json_object_get(answer, "spans"), *span = json_object();
    if (!list) {
        list = json_array();
        json_put(answer, "spans", list);
    }
    json_put_str(span, "name", name);
    json_put_int(span, "from_ns", from_ns);
    json_put_int(span, "to_ns", to_ns);
    json_array_append_new(list, span);
}

void worker_put_autotune(json_t *answer, const struct model *m)
{
    const struct autotuned *a = model_autotuned(m);
    if (config_choice(model_config(m), KNOB_COMPILE) != COMPILE_AUTOTUNE) return;
    json_put_num(answer, "autotune_s", a->seconds);
    if (!a->text) return;
    json_t *o = json_object();
    json_put_int(o, "measured", a->measured);
    json_put_num(o, "seconds", a->seconds);
    json_put_str(o, "choices", a->text);
    json_put(answer, "autotune", o);
}

static json_t *describe_open(const struct worker *w, double load_s)
{
    const struct model *m = w->model;
    const struct model_shape *s = model_shape(m);
    const struct config *c = model_config(m);
    struct backend_info info;
    char isa[128], inputs[128], recipe[2 * CONFIG_VALUE];
    model_backend(m, &info);
    json_t *o = channel_ok(&w->channel);
    json_put(o, "config", config_to_json(c));
    json_put_str(o, "recipe", config_recipe(c, recipe, sizeof recipe));
    json_put_str(o, "arch", s->arch);
    json_put_str(o, "name", s->name);
    json_put_int(o, "params", s->params);
    json_put_str(o, "sha256", w->sha256);
    json_put_str(o, "isa", isa_names(info.isa, isa, sizeof isa));
    json_put_str(o, "inputs", input_kind_names(info.inputs, inputs, sizeof inputs));
    json_put_str(o, "device", info.device);
    json_put_str(o, "gpu", info.gpu); /* null: no GPU */
    json_put_int(o, "threads", info.threads);
    json_put_bool(o, "pinned", info.pinned);
    json_put_int(o, "ctx", model_ctx(m));
    json_put_bool(o, "random_weights", s->random_weights);
    json_put_bool(o, "answers_unverified", s->unknown > 0);
    json_put_bool(o, "reads_text", model_tokenizer(m) != NULL);
    json_put_str(o, "dominant_format", s->dominant_format);
    json_put_str(o, "quantization", quantization_short(s));
    json_put(o, "plan", memory_plan_to_json(model_plan(m)));
    json_put(o, "memory", memory_json(m));
    json_put_num(o, "load_s", load_s);
    worker_put_autotune(o, m);
    int64_t from_ns, to_ns;
    model_quantized(m, &from_ns, &to_ns);
    if (to_ns) worker_put_span(o, "quantize", from_ns, to_ns);
    return o;
}

void usage_reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

enum err_code worker_open(struct worker *w, const json_t *request, struct err *why)
{
    struct config config;
    enum err_code rc;
    model_close(w->model);
    trial_close(w->trial);
    w->model = NULL;
    w->trial = NULL;
    if ((rc = config_parse(&config, json_get_str(request, "config", ""), why))) return rc;
    if (json_get_bool(request, "train", false)) return worker_open_trial(w, &config, why);
    const int64_t ctx = json_get_int(request, "ctx", 0), sequences = json_get_int(request, "sequences", 1);
    if (ctx < 0 || ctx > INT32_MAX || sequences < 1 || sequences > INT32_MAX)
        return err_set(why, ERR_USAGE, "context %lld in %lld sequences: expected positive numbers",
                       (long long)ctx, (long long)sequences);

    struct open_progress progress = { .w = w, .started_ns = clock_ns() };
    const struct model_options options = { .path = json_get_str(request, "model", ""),
                                           .config = &config,
                                           .ctx = (int)ctx,
                                           .sequences = (int)sequences,
                                           .log = w->log,
                                           .shapes = json_get_str(request, "shapes", NULL),
                                           .progress = worker_report_open,
                                           .progress_arg = &progress };
    if ((rc = recipe_model_open(&w->model, &options, why))) return rc;
    if (!worker_progress(w, "load", 0, 1, (double)(clock_ns() - progress.started_ns) * 1e-9))
        rc = err_set(why, ERR_CANCELLED, "cancelled");
    if (!rc) rc = model_warm(w->model, why);
    const double load_s = (double)(clock_ns() - progress.started_ns) * 1e-9;
    if (!rc) rc = model_source_identity(w->model, w->sha256, why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(w->model), why);
    if (rc) {
        model_close(w->model);
        w->model = NULL;
        return rc;
    }
    usage_reset_peak();
    channel_send(&w->channel, describe_open(w, load_s));
    return ERR_OK;
}

/* ---------------------------------------------------------------- resource use */

static double usage_seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

struct usage usage_now(void)
{
    struct rusage r;
    if (getrusage(RUSAGE_SELF, &r)) return (struct usage){ .cpu_s = NAN };
    return (struct usage){ .cpu_s = usage_seconds(r.ru_utime) + usage_seconds(r.ru_stime),
                           .major_faults = r.ru_majflt,
                           .minor_faults = r.ru_minflt,
                           .voluntary_switches = r.ru_nvcsw,
                           .involuntary_switches = r.ru_nivcsw };
}

void usage_put(json_t *o, struct usage before)
{
    const struct usage now = usage_now();
    const struct process_memory memory = sys_process_memory("", 0);
    const bool known = isfinite(now.cpu_s) && isfinite(before.cpu_s);
    const struct {
        const char *key;
        double value;
    } FIELDS[] = {
        { "cpu_s", now.cpu_s - before.cpu_s },
        { "peak_rss_bytes", memory.peak_bytes },
        { "rss_bytes", memory.rss_bytes },
        { "major_faults", known ? (double)(now.major_faults - before.major_faults) : NAN },
        { "minor_faults", known ? (double)(now.minor_faults - before.minor_faults) : NAN },
        { "voluntary_switches", known ? (double)(now.voluntary_switches - before.voluntary_switches) : NAN },
        { "involuntary_switches",
          known ? (double)(now.involuntary_switches - before.involuntary_switches) : NAN },
    };
    for (size_t i = 0; i < COUNT_OF(FIELDS); i++) {
        const double v = FIELDS[i].value;
        if (i > 0 && isfinite(v)) /* all fields but the first (seconds) are counts */
            json_put_int(o, FIELDS[i].key, (int64_t)v);
        else
            json_put_num(o, FIELDS[i].key, v);
    }
}

/* ---------------------------------------------------------------- cell */

static bool cell_report_progress(void *arg, const char *phase, int done, int of, double s)
{
    struct worker *w = arg;
    json_t *o = worker_progress_event(w, phase, done, of, s);
    json_put(o, "occupancy", model_occupancy_to_json(w->model));
    ranks_progress_put(o, w);
    channel_send(&w->channel, o);
    return !channel_stop(&w->channel);
}

/* Tells the parent that a turn is over, and waits until it may begin the next. */
static bool cell_wait_turn(void *arg)
{
    struct worker *w = arg;
    if (channel_stop(&w->channel)) return false;
    channel_send(&w->channel, channel_event(&w->channel, "turn"));
    return channel_wait_go(&w->channel);
}

static json_t *cell_json(const struct worker *w, const struct workload *load, const struct cell_result *r)
{
    char line[600];
    const bool eval = load->eval_file[0];
    json_t *o = channel_ok(&w->channel), *itl = json_array();
    json_put_str(o, "model", model_shape(w->model)->name);
    json_put_str(o, "workload", workload_line(load, line, sizeof line));
    json_put_num(o, "prefill_s", r->prefill_s);
    json_put_num(o, "decode_s", r->decode_s);
    json_put_num(o, "ttft_s", r->ttft_s);
    json_put_num(o, "load_s", r->load_s);
    json_put_num(o, "fill_s", load->depth ? r->fill_s : (double)NAN);
    json_put(o, "filled_tokens", load->depth ? json_integer(r->filled_tokens) : json_null());
    json_put_bool(o, "untimed_work", r->filled_tokens > 0);
    json_put_int(o, "sequences", workload_sequences(load));
    json_put_int(o, "prompt_tokens", r->prompt_tokens);
    json_put_int(o, "gen_tokens", r->gen_tokens);
    for (int i = 0; i < r->steps; i++) json_array_append_new(itl, json_num((double)r->itl_s[i]));
    json_put(o, "itl_s", itl);
    if (r->turns) {
        json_t *turns = json_array();
        for (int i = 0; i < r->turns; i++) json_array_append_new(turns, json_num((double)r->turn_s[i]));
        json_put(o, "turn_s", turns);
        json_put_int(o, "prefill_turns", r->prefill_turns);
        json_put_num(o, "skipped_s", r->skipped_s);
        json_put_int(o, "skipped_tokens", r->skipped_tokens);
    }
    json_put_num(o, "decode_experts", r->decode_experts);
    json_put_num(o, "perplexity", r->perplexity);
    json_put_num(o, "nll", r->nll);
    json_put_num(o, "nll_se", r->nll_se);
    json_put(o, "scored_tokens", eval ? json_integer(r->scored_tokens) : json_null());
    json_put_str(o, "work_hash", r->work_hash);
    json_put_str(o, "output_hash", r->output_hash[0] ? r->output_hash : NULL);
    prompt_facts_put(o, &r->prompts);
    for (int i = 0; i < r->n_spans; i++)
        worker_put_span(o, r->spans[i].name, r->spans[i].from_ns, r->spans[i].to_ns);
    return o;
}

enum err_code worker_needs_model(const struct worker *w, struct err *why)
{
    return w->model ? ERR_OK : err_set(why, ERR_USAGE, "no model is open: send an open request first");
}

enum err_code worker_cell(struct worker *w, const json_t *request, struct err *why)
{
    struct workload load;
    struct cell_result result;
    enum err_code rc;
    const uint64_t seed = (uint64_t)json_get_int(request, "seed", 0);
    if (!w->trial && (rc = worker_needs_model(w, why))) return rc;
    if ((rc = workload_parse(&load, json_get_str(request, "workload", ""), why))) return rc;
    if (w->trial || load.train) return worker_train(w, &load, seed, why);
    if (workload_is_load(&load)) return worker_load(w, &load, seed, why);
    const int64_t steps = json_get_int(request, "turn_steps", 0),
                  passes = json_get_int(request, "turn_passes", 0);
    if (steps < 0 || steps > INT32_MAX || passes < 0 || passes > INT32_MAX)
        return err_set(why, ERR_USAGE, "turn_steps and turn_passes: expected 0 to 2^31-1");
    const bool wanted = json_get_bool(request, "profile", false);
    struct pass_profile profile[2];
    const struct cell_hooks hooks = { .progress = cell_report_progress,
                                      .turn = steps || passes ? cell_wait_turn : NULL,
                                      .turn_steps = (int)steps,
                                      .turn_passes = (int)passes,
                                      .ctx = w,
                                      .profile = wanted ? profile : NULL,
                                      .kept = &w->kept };
    if (wanted && (rc = worker_profile_begin(profile, w, &load, why))) return rc;
    const struct usage before = usage_now();
    ranks_cell_begin(w);
    rc = cell_run(&result, w->model, &load, seed, &hooks, why);
    json_t *o = rc ? NULL : cell_json(w, &load, &result);
    if (wanted) worker_profile_end(o, profile);
    if (rc) return rc;
    usage_put(o, before);
    ranks_usage_put(o, w);
    cell_result_free(&result);
    channel_send(&w->channel, o);
    return ERR_OK;
}

/* ---------------------------------------------------------------- generate */

struct generation {
    struct worker *w;
    const struct tokenizer *t;
    struct sampler *sampler;
    bool greedy;  /* only the largest logit is needed: */
    int32_t best; /* its id, of the last forward pass */
    struct token_list prompt;
    struct str text; /* the whole generated text */
    struct str held; /* bytes of an incomplete UTF-8 character */
    int count, limit;
    int64_t turn_ns, turn_began_ns; /* longest turn, 0: unlimited; start of the turn */
    double prefill_s, decode_s;     /* of work, without waiting for turns */
    const char *stop;               /* why generation ended: "limit" "eos" "context" "cancelled" */
};

static void generation_send_token(struct generation *g, int32_t id, bool last)
{
    const size_t keep = last ? 0 : str_utf8_unfinished(str_text(&g->held), g->held.len);
    struct str out = { 0 }, rest = { 0 };
    str_append_n(&out, str_text(&g->held), g->held.len - keep);
    str_append_n(&rest, str_text(&g->held) + g->held.len - keep, keep);
    str_free(&g->held);
    g->held = rest;
    if (id >= 0 || out.len) {
        json_t *o = channel_event(&g->w->channel, "token");
        json_put_str(o, "text", str_text(&out));
        json_put(o, "token", id >= 0 ? json_integer(id) : json_null());
        json_put_num(o, "seconds", g->decode_s);
        channel_send(&g->w->channel, o);
    }
    str_free(&out);
}

static enum err_code generation_read_sampling(struct sampler_options *o, const json_t *r, struct err *why)
{
    *o = SAMPLER_DEFAULTS;
    o->temperature = (float)json_get_num(r, "temp", (double)o->temperature);
    o->top_p = (float)json_get_num(r, "top_p", (double)o->top_p);
    o->min_p = (float)json_get_num(r, "min_p", (double)o->min_p);
    o->repeat_penalty = (float)json_get_num(r, "repeat_penalty", (double)o->repeat_penalty);
    o->seed = (uint64_t)json_get_int(r, "seed", 0);
    const int64_t top_k = json_get_int(r, "top_k", o->top_k),
                  last = json_get_int(r, "repeat_last", o->repeat_last);
    if (top_k < 0 || top_k > INT32_MAX || last < 0 || last > INT32_MAX)
        return err_set(why, ERR_USAGE, "top_k and repeat_last: expected 0 to 2^31-1");
    o->top_k = (int)top_k;
    o->repeat_last = (int)last;
    return ERR_OK;
}

/* Between two steps: at the end of a turn, wait for "go", so that another worker can use the machine. */
static enum err_code generation_take_turn(struct generation *g, struct err *why)
{
    struct channel *c = &g->w->channel;
    if (channel_stop(c)) return err_set(why, ERR_CANCELLED, "cancelled");
    if (!g->turn_ns || (g->turn_began_ns && clock_ns() - g->turn_began_ns < g->turn_ns)) return ERR_OK;
    channel_send(c, channel_event(c, "turn"));
    if (!channel_wait_go(c)) return err_set(why, ERR_CANCELLED, "cancelled");
    g->turn_began_ns = clock_ns();
    return ERR_OK;
}

static enum err_code generation_step(struct generation *g, const struct batch_row *rows, int n,
                                     struct err *why)
{
    return model_forward_best(g->w->model, rows, n, g->greedy ? &g->best : NULL, why);
}

static enum err_code generation_prefill(struct generation *g, struct err *why)
{
    struct model *m = g->w->model;
    const int64_t vocab = model_shape(m)->vocab;
    if (g->prompt.n == 0) return err_set(why, ERR_USAGE, "the prompt gives no tokens");
    if (g->prompt.n >= model_ctx(m))
        return err_set(why, ERR_USAGE, "the prompt has %lld tokens, the context is %d",
                       (long long)g->prompt.n, model_ctx(m));
    const int batch = (int)MIN(config_int(model_config(m), KNOB_BATCH), g->prompt.n);
    struct batch_row *rows = malloc((size_t)batch * sizeof *rows);
    if (!rows) return err_set(why, ERR_NOMEM, "out of memory");
    enum err_code rc = ERR_OK;
    for (int64_t at = 0; at < g->prompt.n && !rc; at += batch) {
        if ((rc = generation_take_turn(g, why))) break;
        const int n = (int)MIN(batch, g->prompt.n - at);
        for (int i = 0; i < n; i++) {
            const int32_t id = g->prompt.ids[at + i];
            rows[i] = (struct batch_row){ .token = id,
                                          .pos = (int32_t)(at + i),
                                          .logits = at + i == g->prompt.n - 1 };
            if (id < vocab) sampler_accept(g->sampler, id);
        }
        const int64_t start = clock_ns();
        rc = generation_step(g, rows, n, why);
        handicap_wait(model_config(m), start);
        g->prefill_s += (double)(clock_ns() - start) * 1e-9;
        if (!rc && !worker_progress(g->w, "prefill", at + n, g->prompt.n, g->prefill_s))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    free(rows);
    return rc;
}

static enum err_code generation_decode(struct generation *g, struct err *why)
{
    struct model *m = g->w->model;
    int pos = (int)g->prompt.n;
    g->stop = "limit";
    while (g->count < g->limit) {
        const int64_t sampled = clock_ns();
        const int32_t id = g->greedy ? g->best : sampler_next(g->sampler, model_logits(m, 0));
        if (id < 0)
            return err_set(why, ERR_FORMAT,
                           "the model's logits are not numbers (infinity or NaN): its weights are damaged");
        if (tokenizer_ends(g->t, id)) {
            g->stop = "eos";
            break;
        }
        const size_t before = g->text.len;
        enum err_code rc = tokenizer_piece(g->t, id, false, &g->text, why);
        if (!rc) rc = gguf_check_unchanged(model_gguf(m), why);
        if (rc) return rc;
        str_append_n(&g->held, str_text(&g->text) + before, g->text.len - before);
        g->count++;
        g->decode_s += (double)(clock_ns() - sampled) * 1e-9;
        generation_send_token(g, id, false);
        if (g->count == g->limit) break;
        if ((rc = generation_take_turn(g, why))) return rc;
        if (pos == model_ctx(m)) {
            g->stop = "context";
            break;
        }
        const struct batch_row row = { .token = id, .pos = pos++, .logits = true };
        const int64_t start = clock_ns();
        if ((rc = generation_step(g, &row, 1, why))) return rc;
        handicap_wait(model_config(m), start);
        g->decode_s += (double)(clock_ns() - start) * 1e-9;
    }
    generation_send_token(g, -1, true); /* send the remaining bytes */
    return ERR_OK;
}

static void generation_send_result(struct generation *g)
{
    json_t *o = channel_ok(&g->w->channel);
    json_put_str(o, "text", str_text(&g->text));
    json_put_int(o, "prompt_tokens", g->prompt.n);
    json_put_int(o, "gen_tokens", g->count);
    json_put_num(o, "prefill_s", g->prefill_s);
    json_put_num(o, "decode_s", g->decode_s);
    json_put_str(o, "stop", g->stop);
    channel_send(&g->w->channel, o);
}

enum err_code worker_generate(struct worker *w, const json_t *request, struct err *why)
{
    struct generation g = { .w = w };
    struct sampler_options options;
    enum err_code rc;
    if ((rc = worker_needs_model(w, why))) return rc;
    g.t = model_tokenizer(w->model);
    if (!g.t)
        return err_set(why, ERR_USAGE,
                       "this model has no tokenizer that can be used: no text can be generated");
    const char *prompt = json_get_str(request, "prompt", "");
    const int64_t n = json_get_int(request, "n", 64);
    if (n < 0 || n > INT32_MAX)
        return err_set(why, ERR_USAGE, "n=%lld: expected 0 or more tokens", (long long)n);
    g.limit = (int)n;
    const double turn_s = json_get_num(request, "turn_s", 0);
    if (!(turn_s >= 0 && turn_s <= 3600))
        return err_set(why, ERR_USAGE, "turn_s=%g: expected 0 to 3600 seconds", turn_s);
    g.turn_ns = (int64_t)(turn_s * 1e9);
    if ((rc = generation_read_sampling(&options, request, why))) return rc;
    g.greedy = sampler_is_greedy(&options);
    if ((rc = sampler_open(&g.sampler, &options, (int32_t)model_shape(w->model)->vocab, why))) return rc;
    model_truncate(w->model, 0, 0);
    rc = tokenizer_encode(g.t, prompt, strlen(prompt), TOKENIZE_SPECIAL | TOKENIZE_ADD_BOS, &g.prompt, why);
    if (!rc) rc = generation_prefill(&g, why);
    if (!rc) rc = generation_decode(&g, why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(w->model), why);
    if (!rc) generation_send_result(&g);
    model_truncate(w->model, 0, 0);
    sampler_close(g.sampler);
    token_list_free(&g.prompt);
    str_free(&g.text);
    str_free(&g.held);
    return rc;
}
