/* Requests of a worker that trains: it has no model; every cell trains one from scratch. */
#include "engine/worker/worker_internal.h"

#include <math.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/train/train.h"
#include "kernels/kernels.h"

/* The memory plan of a training run: weights, gradients, their copies for products and the optimizer's state
 * are permanent; activations are temporary. All processes together. */
static json_t *plan_json(const struct trial_info *info)
{
    json_t *o = json_object();
    const int64_t weights = info->ranks * (info->memory.parameters + info->optimizer_bytes);
    const int64_t activations = info->ranks * info->memory.activations;
    json_put_int(o, "weights", weights);
    json_put_int(o, "kv", 0);
    json_put_int(o, "compute", activations);
    json_put_int(o, "scratch", 0);
    json_put_int(o, "total", weights + activations);
    json_put_int(o, "ctx", info->ctx);
    json_put_int(o, "ranks", info->ranks > 1 ? info->ranks : 0);
    json_put_int(o, "rank_total", info->ranks > 1 ? (weights + activations) / info->ranks : 0);
    return o;
}

static json_t *trial_to_json(const struct worker *w, const struct trial_info *info, double load_s)
{
    char isa[128], recipe[2 * CONFIG_VALUE], sha256[HASH_HEX];
    json_t *o = channel_ok(&w->channel);
    hash_bytes(info->name, strlen(info->name),
               sha256); /* there is no file to hash: the name identifies the training */
    json_put(o, "config", config_to_json(&info->config));
    json_put_str(o, "recipe", config_recipe(&info->config, recipe, sizeof recipe));
    json_put_str(o, "arch", "llama");
    json_put_str(o, "name", info->name);
    json_put_int(o, "params", info->params);
    json_put_str(o, "sha256", sha256);
    json_put_str(o, "isa", isa_names(info->isa, isa, sizeof isa));
    json_put_str(o, "device", "cpu");
    json_put_int(o, "threads", info->threads);
    json_put_bool(o, "pinned", false);
    json_put_int(o, "ctx", info->ctx);
    json_put_bool(o, "random_weights", false); /* no quality figure is computed for it */
    json_put_bool(o, "answers_unverified", false);
    json_put_str(o, "dominant_format", "f32");
    json_put_str(o, "quantization", "f32");
    json_put(o, "plan", plan_json(info));
    json_put_num(o, "load_s", load_s);
    return o;
}

enum err_code worker_open_trial(struct worker *w, const struct config *c, struct err *why)
{
    const int64_t start = clock_ns();
    struct trial_info info;
    enum err_code rc = trial_open(&w->trial, c, why);
    if (rc) return rc;
    trial_describe(w->trial, &info);
    channel_send(&w->channel, trial_to_json(w, &info, (double)(clock_ns() - start) * 1e-9));
    return ERR_OK;
}

static bool train_report(void *arg, int done, int of, double seconds)
{
    struct worker *w = arg;
    json_t *o = worker_progress_event(w, "train", done, of, seconds);
    ranks_progress_put(o, w);
    channel_send(&w->channel, o);
    return !channel_stop(&w->channel);
}

static json_t *result_json(const struct worker *w, const struct workload *load, const struct trial_result *r)
{
    char line[600];
    struct trial_info info;
    json_t *o = channel_ok(&w->channel);
    trial_describe(w->trial, &info);
    json_put_str(o, "workload", workload_line(load, line, sizeof line));
    json_put_num(o, "train_s", r->seconds);
    json_put_int(o, "steps", r->steps);
    json_put_int(o, "skipped_steps", r->skipped);
    json_put_int(o, "train_tokens", r->tokens);
    json_put_num(o, "first_loss", r->first_loss);
    json_put_num(o, "train_loss", r->loss);
    json_put_int(o, "parameter_bytes", info.memory.parameters);
    json_put_int(o, "activation_bytes", info.memory.activations);
    json_put_int(o, "optimizer_bytes", info.optimizer_bytes);
    json_put_str(o, "work_hash", r->work_hash);
    json_put_str(o, "output_hash", r->output_hash);
    return o;
}

enum err_code worker_train(struct worker *w, const struct workload *load, uint64_t seed, struct err *why)
{
    struct trial_result r;
    if (!w->trial)
        return err_set(
            why, ERR_USAGE,
            "training steps start without a model, but this worker has one open: use `qdyno ab` with a train workload");
    if (!load->train)
        return err_set(
            why, ERR_USAGE,
            "this worker trains from scratch and has no model to run: use a workload such as train20");
    trial_rest(w->trial); /* the peak memory of this cell must not include the last one */
    usage_reset_peak();
    const struct usage before = usage_now();
    ranks_cell_begin(w);
    const int64_t start = clock_ns();
    enum err_code rc = trial_run(w->trial, &r, load->train, seed, train_report, w, why);
    if (rc) return rc;
    json_t *o = result_json(w, load, &r);
    worker_put_span(o, "train", start, clock_ns());
    usage_put(o, before);
    ranks_usage_put(o, w);
    channel_send(&w->channel, o);
    return ERR_OK;
}
