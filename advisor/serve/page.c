/* What others can read about the server: /metrics, /health, /v1/models. */
#include <string.h>

#include "advisor/serve/parts.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

static void outcomes_write(const struct serve_figures *t, const struct family_sink *to)
{
    for (int i = 0; i < SERVE_OUTCOMES; i++)
        family_value(to, FAMILY_SERVE_REQUESTS, &(struct label){ "outcome", SERVE_OUTCOME_NAMES[i] }, 1,
                     (double)t->outcome[i]);
}

static void goodput_write(const struct server *s, const struct serve_figures *t, const struct family_sink *to)
{
    if (!s->o.limit_count) return;
    family_value(to, FAMILY_SERVE_GOODPUT, &(struct label){ "met", "yes" }, 1, (double)t->met);
    family_value(to, FAMILY_SERVE_GOODPUT, &(struct label){ "met", "no" }, 1, (double)t->missed);
}

static void blocks_write(const struct serve_figures *f, const struct family_sink *to)
{
    const struct {
        const char *use;
        int64_t n;
    } uses[] = { { "used", f->blocks_used }, { "cached", f->blocks_cached }, { "free", f->blocks_free } };
    for (size_t i = 0; i < COUNT_OF(uses); i++)
        family_value(to, FAMILY_SERVE_KV_BLOCKS, &(struct label){ "use", uses[i].use }, 1, (double)uses[i].n);
}

static void processes_write(const struct server *s, const struct family_sink *to)
{
    struct share *sh = s->o.share;
    family_value(to, FAMILY_SERVE_PROCESSES, NULL, 0, sh ? share_processes(sh) : 1);
    for (int i = SCALE_NONE + 1; i < SCALE_CHANGES; i++)
        family_value(to, FAMILY_SERVE_PROCESS_CHANGES, &(struct label){ "direction", SCALE_CHANGE_NAMES[i] },
                     1, sh ? (double)share_change_count(sh, (enum scale_change)i) : 0);
}

void page_write(struct server *s, struct str *out, struct err *bad)
{
    struct exposition e = { .bad = { .code = ERR_OK } };
    const struct family_sink to = exposition_sink(&e);
    struct process_reading process;
    struct backend_info backend;
    struct serve_figures t;
    server_sum(s, &t);
    const struct {
        enum family_id family;
        double value;
    } values[] = {
        { FAMILY_SERVE_WAITING, (double)t.waiting },
        { FAMILY_SERVE_RUNNING, (double)t.running },
        { FAMILY_SERVE_PROMPT_TOKENS, (double)t.prompt_tokens },
        { FAMILY_SERVE_CACHED_TOKENS, (double)t.cached_tokens },
        { FAMILY_SERVE_GENERATED_TOKENS, (double)t.generated_tokens },
        { FAMILY_SERVE_PREEMPTIONS, (double)t.preemptions },
        { FAMILY_SERVE_STEPS, (double)t.steps },
        { FAMILY_SERVE_ROWS, (double)t.rows },
        { FAMILY_SERVE_BUSY, t.busy_s },
    };
    const struct {
        enum family_id family;
        const struct histogram_counts *counts;
    } histograms[] = {
        { FAMILY_SERVE_QUEUE_TIME, &t.queue },
        { FAMILY_SERVE_FIRST_TOKEN, &t.first_token },
        { FAMILY_SERVE_TOKEN, &t.token },
        { FAMILY_SERVE_DURATION, &t.duration },
    };
    model_backend(s->o.model, &backend);
    process_read(&process, 0);
    build_export(backend.isa, &to);
    outcomes_write(&t, &to);
    goodput_write(s, &t, &to);
    blocks_write(&t, &to);
    processes_write(s, &to);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        family_value(&to, values[i].family, NULL, 0, values[i].value);
    for (size_t i = 0; i < COUNT_OF(histograms); i++)
        to.histogram(to.ctx, histograms[i].family, NULL, 0, histograms[i].counts);
    process_export(&process, &to);
    *bad = e.bad;
    str_append_n(out, str_text(&e.text), e.text.len);
    if (e.text.failed || out->failed) err_set(bad, ERR_NOMEM, "out of memory writing the page");
    exposition_free(&e);
}

json_t *page_health(struct server *s, bool with_figures)
{
    struct server_state now;
    struct err why;
    json_t *o = json_object();
    server_read(s, &now);
    const bool draining = now.draining;
    if (s->o.share) {
        struct share_state all;
        share_read(s->o.share, &all);
        now = all.sum;
        now.has_chat = s->chat != NULL;
        if (with_figures) json_put_int(o, "processes", all.ready);
    }
    const bool failed = server_error(s, &why) != ERR_OK;
    json_put_str(o, "status", failed ? "failed" : draining ? "stopping" : "ok");
    if (!with_figures) return o;
    json_put_str(o, "model", s->o.name);
    json_put_bool(o, "chat", now.has_chat);
    json_put_int(o, "waiting", now.waiting);
    json_put_int(o, "running", now.running);
    json_put_int(o, "kv_blocks", now.blocks);
    json_put_int(o, "kv_blocks_used", now.blocks_used);
    json_put_int(o, "kv_blocks_cached", now.blocks_cached);
    return o;
}

/* Its last steps stay those of this process. */
static void live_set_figures(struct live *l, const struct serve_figures *f)
{
    l->arrived = f->accepted;
    l->done = f->outcome[SERVE_COMPLETED];
    for (int i = 0; i < SERVE_OUTCOMES; i++) l->not_done += i == SERVE_COMPLETED ? 0 : f->outcome[i];
    l->met = f->met;
    l->missed = f->missed;
    l->prompt_tokens = f->prompt_tokens;
    l->cached_tokens = f->cached_tokens;
    l->tokens = f->generated_tokens;
    l->preemptions = f->preemptions;
    l->stalls = f->stalls;
    l->waiting = (int)f->waiting;
    l->running = (int)f->running;
    l->first = f->first;
    l->gap = f->gap;
}

json_t *page_load(struct server *s)
{
    json_t *o = json_object(), *outcomes = json_object();
    struct serve_figures f;
    server_sum(s, &f);
    pthread_mutex_lock(&s->lock);
    struct live l = s->tally.live;
    live_set_figures(&l, &f);
    for (int i = 0; i < SERVE_OUTCOMES; i++) json_put_int(outcomes, SERVE_OUTCOME_NAMES[i], f.outcome[i]);
    const int level = s->level;
    l.seconds = (double)(clock_ns() - s->started_ns) * 1e-9;
    json_put_str(o, "status", s->failed ? "failed" : s->draining ? "stopping" : "ok");
    json_put(o, "occupancy", json_deep_copy(s->tally.occupancy));
    pthread_mutex_unlock(&s->lock);
    char line[CONFIG_LINE];
    const struct model *m = level ? s->o.more[level - 1] : s->o.model;
    json_put_str(o, "model", s->o.name);
    json_put_str(o, "config", config_line(model_config(m), line, sizeof line));
    json_put_int(o, "max_sequences", model_plan(s->o.model)->sequences);
    json_put_int(o, "processes", s->o.share ? share_processes(s->o.share) : 1);
    json_put(o, "outcomes", outcomes);
    json_put(o, "load", live_to_json(&l));
    return o;
}

/* A value as a config has it: numbers may be JSON numbers. False: another kind of value. */
static bool setting_text(const json_t *v, char *buf, size_t size)
{
    if (json_is_string(v))
        snprintf(buf, size, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(buf, size, "%lld", (long long)json_integer_value(v));
    else
        return false;
    return true;
}

json_t *page_settings(struct server *s, const char *body, size_t n, struct refusal *no)
{
    struct config change;
    struct err why = { 0 };
    json_t *asked = NULL, *v;
    const char *key;
    char text[CONFIG_VALUE], line[CONFIG_LINE];
    if (s->o.share) {
        refuse(no, 400, "several_processes", NULL,
               "settings cannot be changed while the server consists of several processes (--processes)");
        return NULL;
    }
    enum err_code rc = json_parse(&asked, body, n, &why);
    if (!rc && !json_is_object(asked))
        rc = err_set(&why, ERR_FORMAT, "expected a JSON object such as {\"schedule\": \"shortest\"}");
    config_default(&change);
    json_object_foreach(asked, key, v)
    {
        if (rc) break;
        if (setting_text(v, text, sizeof text))
            rc = config_set(&change, key, text, &why);
        else
            rc = err_set(&why, ERR_FORMAT, "%.60s: expected a text or a whole number", key);
    }
    for (int i = 0; i < s->levels && !rc; i++) rc = serving_change_check(s->serving[i], &change, &why);
    json_decref(asked);
    if (rc) {
        refuse(no, rc == ERR_NOMEM ? 500 : 400, "invalid_setting", NULL, "%s", why.message);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SERVING_KNOBS_MOST && s->change_wanted; i++) /* the engine has not taken them yet */
        if (s->change.given[SERVING_KNOBS[i]] && !change.given[SERVING_KNOBS[i]]) {
            change.value[SERVING_KNOBS[i]] = s->change.value[SERVING_KNOBS[i]];
            change.given[SERVING_KNOBS[i]] = true;
        }
    s->change = change;
    s->change_wanted = true;
    pthread_cond_signal(&s->engine_wake);
    pthread_mutex_unlock(&s->lock);
    json_t *o = json_object();
    json_put_str(o, "changed", config_line(&change, line, sizeof line));
    return o;
}

json_t *page_models(const struct server *s, const char *name)
{
    json_t *model = json_object();
    if (name && strcmp(name, s->o.name)) {
        json_decref(model);
        return NULL;
    }
    json_put_str(model, "id", s->o.name);
    json_put_str(model, "object", "model");
    json_put_int(model, "created", s->started);
    json_put_str(model, "owned_by", "qdyno");
    json_put_int(model, "max_model_len", s->ctx);
    if (name) return model;
    json_t *o = json_object(), *list = json_array();
    json_array_append_new(list, model);
    json_put_str(o, "object", "list");
    json_put(o, "data", list);
    return o;
}
