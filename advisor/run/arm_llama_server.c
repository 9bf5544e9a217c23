/* advisor/run/arm_llama_server.c - an arm that is llama.cpp's server, started and stopped by qdyno.
 *
 * It gets the token ids that qdyno's own arms get, through /completion, so that the work is the same bit for
 * bit: no template, no tokenizer, no text in between. Its prompt cache is switched off for each request, and
 * the answer must say so. */
#include "advisor/run/arm_kind.h"
#include "advisor/run/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/http/http.h"

enum { POLL_NS = 20000000, END_NS = 1000000000, CTX_SPARE = 16 };

/* Newer servers keep the caches of earlier prompts in memory, 8 GiB by default: work and memory that no
 * request of a cell asks for. A variable, because older servers refuse the flag. */
static const char *const ENVIRONMENT[] = { "LLAMA_ARG_CACHE_RAM=0", NULL };

struct llama_server {
    struct foreign_process process;
    struct foreign_model model;
    char base[64]; /* http://127.0.0.1:PORT */
    const char *name;
    int32_t *ids; /* of the cell that runs */
};

static enum err_code port_find(int *port, struct err *why)
{
    int fd = -1;
    const enum err_code rc = http_listen(&fd, "127.0.0.1", 0, port, why);
    if (!rc) close(fd);
    return rc;
}

/* Does the command have one of two spellings of a flag? */
static bool has_flag(const struct words *w, const char *a, const char *b)
{
    for (int i = 1; i < w->n; i++)
        if (!strcmp(w->word[i], a) || !strcmp(w->word[i], b)) return true;
    return false;
}

static enum err_code command_make(struct words *w, const struct arm_spec *spec, const char *program,
                                  const char *model, int port, struct err *why)
{
    static const char *const OWN[] = { FOREIGN_MODEL_FLAGS, "--host",         "--port",
                                       "--api-key",         "--api-key-file", NULL };
    char number[16];
    enum err_code rc = foreign_flags_check(spec->config, OWN, why);
    if (rc) return rc;
    words_add(w, program);
    words_add(w, "-m");
    words_add(w, model);
    words_add(w, "--host");
    words_add(w, "127.0.0.1");
    snprintf(number, sizeof number, "%d", port);
    words_add(w, "--port");
    words_add(w, number);
    rc = foreign_flags(w, spec->config, why);
    if (!rc && !has_flag(w, "-c", "--ctx-size") && spec->ctx) {
        snprintf(number, sizeof number, "%d", spec->ctx + CTX_SPARE);
        words_add(w, "-c");
        words_add(w, number);
    }
    if (!rc && !has_flag(w, "-np", "--parallel")) { /* its slots divide the context */
        words_add(w, "-np");
        words_add(w, "1");
    }
    return rc;
}

static void url_of(const struct llama_server *s, const char *path, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s", s->base, path);
}

/* Waits until the server has loaded its model. */
static enum err_code wait_ready(struct llama_server *s, arm_event_fn *event, void *ctx, struct err *why)
{
    char url[96];
    url_of(s, "/health", url, sizeof url);
    watchdog_begin(&s->process.watchdog, "load");
    for (;;) {
        struct err ignored;
        if (!foreign_lives(&s->process)) return foreign_died(&s->process, s->name, why);
        if (!foreign_send(NULL, url, NULL, NULL, NULL, &ignored)) return ERR_OK;
        const enum err_code rc = watchdog_check(&s->process.watchdog, s->process.pid, why);
        if (rc) return rc;
        if (event && !event(ctx, NULL)) return err_set(why, ERR_CANCELLED, "cancelled");
        clock_sleep_ns(POLL_NS);
    }
}

/* "n_threads = 2" in what the server printed; -1 unknown. */
static int threads_said(const struct foreign_process *p)
{
    static const char KEY[] = "n_threads = ";
    const char *at = strstr(str_text(&p->said.text), KEY);
    return at ? atoi(at + sizeof KEY - 1) : -1;
}

static enum err_code describe(struct llama_server *s, json_t **out, const struct arm_spec *spec,
                              const struct words *command, const char *model, struct err *why)
{
    json_t *props = NULL;
    char url[96], hash[HASH_HEX];
    struct str line = { 0 };
    url_of(s, "/props", url, sizeof url);
    enum err_code rc = foreign_send(&props, url, NULL, NULL, NULL, why);
    if (rc) return err_prefix(why, "%s", s->name);
    for (int i = 0; i < command->n; i++) str_printf(&line, "%s%s", i ? " " : "", command->word[i]);
    json_t *o = foreign_describe(&s->model, spec->config, model, json_get_str(props, "build_info", NULL),
                                 str_text(&line));
    json_t *engine = json_object_get(o, "engine");
    rc = hash_file(command->word[0], hash, why);
    if (!rc) json_put_str(engine, "binary_sha256", hash);
    json_put(engine, "slots", json_integer(json_get_int(props, "total_slots", -1)));
    const int threads = threads_said(&s->process);
    if (threads > 0) json_put_int(o, "threads", threads);
    json_put_int(o, "ctx",
                 json_get_int(json_object_get(props, "default_generation_settings"), "n_ctx", spec->ctx));
    foreign_note(o,
                 "%s runs with the same token ids as qdyno's arms, sent to /completion: no template and no "
                 "tokenizer of its own is used; its rates are by this client's clock, with HTTP and sampling",
                 s->name);
    foreign_note(
        o, "%s runs with %s in its environment, unless that variable was set: no cache of earlier prompts",
        s->name, ENVIRONMENT[0]);
    str_free(&line);
    json_decref(props);
    *out = o;
    return rc;
}

static enum err_code server_open(void **state, json_t **description, const struct arm_spec *spec,
                                 arm_event_fn *event, void *ctx, struct err *why)
{
    struct llama_server *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "no memory for an arm");
    *state = s;
    s->name = ENGINES[ENGINE_LLAMA_SERVER].program;
    s->process.watchdog.least_s = spec->silence_s;
    const char *model = config_model_file(spec->config, spec->model);
    char *program = NULL;
    struct words command = { 0 };
    int port = 0;
    const int64_t begun = clock_ns();
    enum err_code rc = foreign_program(&program, spec->config, why);
    if (!rc) rc = foreign_model_open(&s->model, model, why);
    if (!rc) rc = port_find(&port, why);
    if (!rc) rc = command_make(&command, spec, program, model, port, why);
    snprintf(s->base, sizeof s->base, "http://127.0.0.1:%d", port);
    if (!rc) rc = foreign_start(&s->process, &command, ENVIRONMENT, why);
    if (!rc) rc = wait_ready(s, event, ctx, why);
    if (!rc) rc = describe(s, description, spec, &command, model, why);
    if (!rc) {
        json_put_num(*description, METRICS[METRIC_LOAD_TIME].name, (double)(clock_ns() - begun) * 1e-9);
        foreign_reset_peak(s->process.pid);
        foreign_hold(&s->process);
    }
    words_free(&command);
    free(program);
    return rc;
}

/* ---------------------------------------------------------------- a cell */

static json_t *completion(const int32_t *ids, int n, int generate, bool cache)
{
    json_t *o = json_object(), *prompt = json_array(), *samplers = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(prompt, json_integer(ids[i]));
    json_array_append_new(samplers, json_string("top_k"));
    json_put(o, "prompt", prompt);
    json_put_int(o, "n_predict", generate);
    json_put_bool(o, "cache_prompt", cache);
    json_put_bool(o, "ignore_eos", true);
    json_put_bool(o, "return_tokens", true);
    json_put_bool(o, "stream", true);
    json_put_num(o, "temperature", 0);
    json_put_int(o, "top_k", 1);
    json_put(o, "samplers", samplers); /* greedy, as qdyno's arms choose */
    return o;
}

static enum err_code post(struct llama_server *s, json_t *body, struct foreign_wait *w, struct err *why)
{
    char url[96];
    url_of(s, "/completion", url, sizeof url);
    enum err_code rc = body ? foreign_send(NULL, url, body, NULL, w, why)
                            : err_set(why, ERR_NOMEM, "no memory for a request");
    json_decref(body);
    return rc;
}

/* Puts the first `depth` ids into the server's cache, untimed. *filled: tokens that it did not have yet. The
 * server computes only what differs from the last prompt of its slot, so from the second cell of a process on
 * that is one token, or all of them with models whose cache it cannot cut. reply_check makes sure that the
 * timed request finds the depth in the cache, no more and no less. */
static enum err_code fill(struct llama_server *s, const struct workload *w, double *filled,
                          arm_event_fn *event, void *ctx, struct err *why)
{
    struct reply r;
    reply_begin(&r); /* also for a request that is never sent */
    struct foreign_wait wait = {
        .event = event, .ctx = ctx, .process = &s->process, .reply = &r, .phase = "load", .prompt = w->depth
    };
    const enum err_code rc = post(s, completion(s->ids, w->depth, 0, true), &wait, why);
    *filled = w->depth - r.cached_tokens;
    reply_done(&r);
    return rc;
}

/* Its connection may break before the process is gone. */
static bool has_ended(struct llama_server *s)
{
    const int64_t until = clock_ns() + (int64_t)END_NS;
    while (foreign_lives(&s->process) && clock_ns() < until) clock_sleep_ns(POLL_NS);
    return !foreign_lives(&s->process);
}

static enum err_code run(struct llama_server *s, const struct workload *w, uint64_t seed, json_t **answer,
                         arm_event_fn *event, void *ctx, struct err *why)
{
    const int count = prompt_count(w);
    char hash[17];
    double filled = NAN;
    struct reply r;
    reply_begin(&r);
    struct foreign_wait wait = { .event = event,
                                 .ctx = ctx,
                                 .process = &s->process,
                                 .reply = &r,
                                 .phase = "prefill",
                                 .prompt = w->prompt,
                                 .gen = w->gen };
    s->ids = malloc((size_t)count * sizeof *s->ids);
    if (!s->ids) return err_set(why, ERR_NOMEM, "no memory for a prompt of %d tokens", count);
    enum err_code rc = prompt_source_fill(s->ids, &s->model.prompts, w, seed, why);
    if (!rc) rc = prompt_hash(hash, w, s->ids, why);
    const int64_t begun = clock_ns();
    if (!rc && w->depth) rc = fill(s, w, &filled, event, ctx, why);
    const double fill_s = (double)(clock_ns() - begun) * 1e-9;
    const struct foreign_usage before = foreign_usage(s->process.pid);
    if (!rc) rc = post(s, completion(s->ids, count, w->gen + 1, w->depth > 0), &wait, why);
    const struct reply_wanted wanted = {
        .prompt_tokens = count, .cached_tokens = w->depth, .gen_tokens = w->gen + 1, .ids = true
    };
    if (!rc) rc = reply_check(&r, &wanted, why);
    if (!rc) {
        *answer = reply_cell(&r, w, s->model.name, hash);
        prompt_facts_put(*answer, &s->model.prompts.facts);
        foreign_put_usage(*answer, s->process.pid, before);
        if (w->depth) json_put_num(*answer, "fill_s", fill_s);
        if (w->depth) json_put_num(*answer, "filled_tokens", filled);
        if (w->depth && !(filled <= 1)) json_put_bool(*answer, "untimed_work", true);
    }
    if (rc && rc != ERR_CANCELLED && !r.ended && !wait.error.code && has_ended(s))
        rc = foreign_died(&s->process, s->name, why);
    reply_done(&r);
    free(s->ids);
    s->ids = NULL;
    return rc;
}

static enum err_code server_request(void *state, json_t *request, json_t **answer, arm_event_fn *event,
                                    void *ctx, struct err *why)
{
    struct llama_server *s = state;
    struct workload w;
    enum err_code rc = foreign_workload(&w, ENGINE_LLAMA_SERVER, request, why);
    if (rc) return rc;
    if (!foreign_lives(&s->process)) return foreign_died(&s->process, s->name, why);
    foreign_release(&s->process);
    rc = run(s, &w, (uint64_t)json_get_int(request, "seed", 0), answer, event, ctx, why);
    if (rc && rc != ERR_CANCELLED && rc != ERR_NOMEM && s->process.pid) err_prefix(why, "%s", s->name);
    foreign_hold(&s->process);
    return rc;
}

static int server_pid(const void *state)
{
    return (int)((const struct llama_server *)state)->process.pid;
}

static void server_close(void *state)
{
    struct llama_server *s = state;
    foreign_end(&s->process);
    foreign_model_close(&s->model);
    free(s);
}

const struct arm_kind ARM_LLAMA_SERVER = {
    .name = "llama-server",
    .open = server_open,
    .request = server_request,
    .pid = server_pid,
    .close = server_close,
};
