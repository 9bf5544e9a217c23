/* Serves over HTTP with one of several configs, chosen by a rule (command_govern_serve.h). All configs stay
 * loaded. A switch loses no request: those that wait are computed with the new config, those that were begun
 * end with the one that began them. */
#include "tui/cli/command_govern_serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "tui/cli/command_serve.h"

struct governed_server {
    const struct governor_options *o;
    const struct cli_global *g;
    const struct cli_args *a;
    struct governor_result *out;
    struct model *model[GOVERNOR_LEVELS];
    struct config config[GOVERNOR_LEVELS];
    char *key, *name;
    struct server *server;
    struct governor_state rule;
    struct server_state before; /* at the last look */
    double waiting;             /* mean number of requests that wait, since then; */
    int samples;                /* of so many samples */
    struct governor_effect effect;
};

_Static_assert((int)GOVERNOR_LEVELS <= (int)SERVE_LEVELS, "a server has room for all levels");

/* ---------------------------------------------------------------- opening */

static enum err_code levels_open(struct governed_server *x, struct err *why)
{
    enum err_code rc = ERR_OK;
    const char *parallel = args_text(x->a, "--parallel", NULL);
    for (int i = 0; i < x->o->levels && !rc; i++) {
        x->config[i] = *x->o->config[i];
        if (parallel) rc = config_set(&x->config[i], KNOBS[KNOB_MAX_SEQUENCES].key, parallel, why);
        if (!rc) rc = serve_open_model(&x->model[i], x->o->model_path, &x->config[i], x->g, why);
        if (rc) return err_prefix(why, "config %d", i + 1);
        x->out->level[i].loaded = true;
    }
    return rc;
}

static enum err_code governed_open(struct governed_server *x, struct err *why)
{
    const char *host = args_text(x->a, "--host", SERVE_HOST);
    const enum governor_signal signal = x->o->rule.signal;
    int port = 0;
    if (signal == GOVERN_MEMORY || signal == GOVERN_POWER)
        return err_set(why, ERR_USAGE,
                       "with --port all configs stay loaded: expected --rule queue, ttft, itl or decode");
    if (x->o->levels < 2)
        return err_set(why, ERR_USAGE, "%d configurations: expected 2 to %d, the most exact first",
                       x->o->levels, GOVERNOR_LEVELS);
    enum err_code rc = cli_api_key(&x->key, x->a, why);
    if (!rc) rc = server_address_check(host, x->key != NULL, why);
    x->name = serve_name_of(x->o->model_path);
    if (!rc && !x->name) rc = err_set(why, ERR_NOMEM, "out of memory for the name of the model");
    if (!rc) rc = levels_open(x, why);
    if (rc) return rc;
    const struct server_options o = { .model = x->model[0],
                                      .more = x->model + 1,
                                      .more_count = x->o->levels - 1,
                                      .name = x->name,
                                      .listen = host,
                                      .port = (int)args_int(x->a, "--port", SERVE_PORT),
                                      .key = x->key,
                                      .queue = SERVE_QUEUE,
                                      .body_bytes = SERVE_BODY,
                                      .log = &x->g->log };
    rc = server_start(&x->server, &o, &port, why);
    if (rc) return rc;
    struct str url = { 0 };
    serve_url(&url, host, port);
    cli_note(x->g, "serving %s", str_text(&url));
    str_free(&url);
    return ERR_OK;
}

static void governed_close(struct governed_server *x)
{
    server_stop(x->server);
    for (int i = 0; i < GOVERNOR_LEVELS; i++) model_close(x->model[i]);
    free(x->key);
    free(x->name);
}

/* ---------------------------------------------------------------- the rule */

/* What the rule is about, since the last look. NAN: nothing happened that tells it. */
static double signal_of(const struct governed_server *x, const struct server_state *now)
{
    const struct server_state *then = &x->before;
    const double itl = now->gaps > then->gaps ? (now->gap_s - then->gap_s) / (double)(now->gaps - then->gaps)
                                              : (double)NAN;
    switch (x->o->rule.signal) {
    case GOVERN_QUEUE: return x->waiting;
    case GOVERN_TTFT:
        return now->first_tokens > then->first_tokens ? (now->first_token_s - then->first_token_s) /
                                                            (double)(now->first_tokens - then->first_tokens)
                                                      : (double)NAN;
    case GOVERN_ITL: return itl;
    case GOVERN_DECODE: return 1 / itl;
    case GOVERN_MEMORY:
    case GOVERN_POWER:
    case GOVERN_SIGNALS: break;
    }
    return (double)NAN;
}

static bool told(const struct governed_server *x, const struct governor_switch *s, int level, double value)
{
    return !x->o->told || x->o->told(x->o->ctx, s, level, value);
}

static void effect_add(struct governed_server *x, double value, bool at_once)
{
    const struct governor_switch *s = governor_effect_add(&x->effect, value, at_once);
    if (s) told(x, s, s->to, s->after);
}

static void level_switch(struct governed_server *x, int from, double value, const char *reason)
{
    effect_add(x, NAN, true);
    server_set_level(x->server, x->rule.level);
    told(x, governor_switch_add(x->out, &x->effect, from, x->rule.level, value, reason), x->rule.level, NAN);
}

/* Look at the server and follow the rule. */
static bool governed_look(struct governed_server *x)
{
    struct server_state now;
    char reason[160];
    server_read(x->server, &now);
    const double value = signal_of(x, &now);
    const int level = x->rule.level;
    x->out->requests = now.outcome[SERVE_COMPLETED];
    governor_figures_add(&x->out->level[level], &x->o->rule, value);
    effect_add(x, value, false);
    const bool on = told(x, NULL, level, value);
    if (governor_step(&x->rule, &x->o->rule, value, reason) != level) level_switch(x, level, value, reason);
    x->before = now;
    x->waiting = 0;
    x->samples = 0;
    return on;
}

/* ---------------------------------------------------------------- the run */

static enum err_code governed_run(struct governed_server *x, struct err *why)
{
    static const double LOOK_S = 1;
    const double every_s = x->o->every_s > 0 ? x->o->every_s : LOOK_S;
    const int64_t end = x->o->for_s > 0 ? clock_ns() + (int64_t)(x->o->for_s * 1e9) : INT64_MAX;
    int64_t look = clock_ns() + (int64_t)(every_s * 1e9);
    bool on = true;
    enum err_code rc = ERR_OK;
    while (!rc && on && clock_ns() < end && !cli_is_interrupted(x->g) &&
           (!x->o->requests || x->out->requests < x->o->requests)) {
        struct server_state now;
        clock_sleep_ns(SERVE_WAIT_NS);
        rc = server_error(x->server, why);
        server_read(x->server, &now);
        x->out->requests = now.outcome[SERVE_COMPLETED];
        x->waiting += (now.waiting - x->waiting) / ++x->samples;
        if (clock_ns() < look) continue;
        on = governed_look(x);
        look = clock_ns() + (int64_t)(every_s * 1e9);
    }
    effect_add(x, NAN, true);
    if (!rc) serve_drain(x->server, x->g, args_num(x->a, "--drain", SERVE_DRAIN_S), NULL);
    return rc;
}

enum err_code governed_serve(struct governor_result *out, const struct governor_options *o,
                             const struct cli_global *g, const struct cli_args *a, struct err *why)
{
    struct governed_server *x = calloc(1, sizeof *x);
    struct server_state now;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < GOVERNOR_LEVELS; i++) out->level[i].signal = NAN;
    if (!x) return err_set(why, ERR_NOMEM, "out of memory for the governor");
    *x = (struct governed_server){ .o = o, .g = g, .a = a, .out = out };
    governor_init(&x->rule, o->levels);
    enum err_code rc = governed_open(x, why);
    if (!rc) rc = governed_run(x, why);
    if (x->server) {
        server_end_requests(x->server);
        server_read(x->server, &now);
        out->requests = now.outcome[SERVE_COMPLETED];
        for (int i = 0; i < o->levels; i++) {
            out->level[i].requests = now.at[i].requests;
            out->level[i].tokens = now.at[i].tokens;
            out->level[i].seconds = now.at[i].busy_s;
        }
        serve_note_totals(&now, g);
    }
    governed_close(x);
    free(x);
    return rc;
}
