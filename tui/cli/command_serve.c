/* qdyno serve: serves a model to programs that speak OpenAI's interface, until SIGTERM or Ctrl-C. It measures
 * nothing by itself, so the database has no run of it; with --processes MIN..MAX it has the changes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "advisor/watch/watch.h"
#include "engine/chat/chat.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "tui/cli/command_serve.h"
#include "tui/cli/documents.h"

/* clang-format off */
const struct cli_flag FLAGS_SERVE[] = {
    FLAG_MODEL_ROW,
    FLAG_CONFIG_ROW,
    { .name = "--host", .alias = "--listen", .value = "ADDRESS",
      .help = "address to listen on; default 127.0.0.1, this machine only. Any other address needs an API key" },
    { .name = "--port", .value = "N", .kind = FLAG_INT, .max = 65535, .help = "TCP port; default 8080; 0: any free port" },
    { .name = "--api-key-file", .value = "FILE",
      .help = "file with the key that clients must send (also: the variable QDYNO_API_KEY)" },
    { .name = "--name", .alias = "--alias", .value = "NAME",
      .help = "name of the model for clients; default: the file's name without .gguf" },
    { .name = "--template", .value = "NAME|FILE", .help = "a chat template instead of the model's: built in (see `qdyno help template`), or a Jinja file" },
    { .name = "--parallel", .alias = "-np", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "requests that are computed at a time; the same as max_sequences in a config" },
    { .name = "--queue", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 16,
      .help = "requests that may wait; more are refused with 429; default 256" },
    { .name = "--max-body", .value = "BYTES", .kind = FLAG_BYTES, .help = "largest request; default 8M" },
    { .name = "--drain", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "on SIGTERM or Ctrl-C, let running requests go on for at most this time; default 30s" },
    { .name = "--slo", .value = "LIMITS",
      .help = "count goodput in /metrics: requests within these limits, e.g. 'ttft<500ms,itl_p99<60ms'; figures: ttft, "
              "tpot, itl_p50, itl_p95, itl_p99, itl_max, e2e, queue" },
    { .name = "--processes", .value = "N",
      .help = "processes that serve: a number, or MIN..MAX such as 1..4, which changes with the load; default 1" },
    { .name = "--scale", .value = "RULE",
      .help = "when MIN..MAX changes: one more when 2 requests have waited for 5s, one less when the others could have done "
              "the work for 1m, 10s between changes; any of 'waiting=2,up=5s,down=1m,cooldown=10s'" },
    { .name = "--dry-run", .help = "record and print changes of MIN..MAX, and make none" },
    { .name = "--otlp", .value = "URL",
      .help = "send a trace for each request (no text) to this OpenTelemetry collector, e.g. http://localhost:4318" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("url", "serving"),
    COL("model", "model"),
    COL("chat", "chat", .kind = COLUMN_BOOL),
    COL("ctx_tokens", "context (tokens)", .kind = COLUMN_INT),
    COL("max_sequences", "at a time", .kind = COLUMN_INT),
    COL("random_weights", "random weights", .kind = COLUMN_BOOL),
    KEY("answers_unverified", .kind = COLUMN_BOOL),
};

DOCUMENT(SERVE, "qdyno.serve/1", COLUMNS, .record = true);

/* What the command holds until it ends. */
struct serving_command {
    struct config config;
    struct workload slo; /* its limits only */
    char *path, *key, *name;
    struct model *model;
    struct server *server;
    const struct serve_member *member; /* of several processes; NULL: the only one */
    const struct cli_global *g;
    const struct cli_args *a;
};

/* ---------------------------------------------------------------- before */

/* Limits as a load has them. */
static enum err_code slo_read(struct workload *out, const struct cli_args *a, struct err *why)
{
    const char *text = args_text(a, "--slo", NULL);
    struct str line = { 0 };
    struct err inner;
    *out = (struct workload){ .prompt = 0 };
    if (!text) return ERR_OK;
    str_printf(&line, "load:rate=1,slo=\"%s\"", text);
    const bool ok = !strchr(text, '"') && !workload_parse(out, str_text(&line), &inner) && out->load.limits;
    str_free(&line);
    return ok ? ERR_OK
              : err_set(
                    why, ERR_USAGE,
                    "--slo %s: expected FIGURE<TIME, separated by commas, such as 'ttft<500ms,itl_p99<60ms'",
                    text);
}

char *serve_name_of(const char *path)
{
    static const char ENDING[] = ".gguf";
    char *name = strdup(cli_base_name(path));
    const size_t n = name ? strlen(name) : 0;
    if (n > sizeof ENDING - 1 && str_ends(name, ENDING)) name[n - (sizeof ENDING - 1)] = '\0';
    return name;
}

/* rule->most 1: one process serves. The defaults are those of the alert, which Prometheus has, too. */
static enum err_code rule_read(struct scale_rule *rule, const struct cli_args *a, struct err *why)
{
    static const double COOLDOWN_S = 10;
    const struct alert *row = alert_find(SERVE_ALERT);
    const char *text = args_text(a, "--scale", NULL);
    *rule = (struct scale_rule){
        .waiting = row->threshold + 1, .up_s = row->for_s, .down_s = row->keep_s, .cooldown_s = COOLDOWN_S
    };
    enum err_code rc = scale_limits_parse(rule, args_text(a, "--processes", "1"), why);
    if (!rc && text) rc = scale_rule_parse(rule, text, why);
    if (!rc && rule->least == rule->most && (text || args_has(a, "--dry-run")))
        rc = err_set(why, ERR_USAGE, "%s needs --processes MIN..MAX, such as 1..4: %d to %d cannot change",
                     text ? "--scale" : "--dry-run", rule->least, rule->most);
    return rc;
}

/* What several processes cannot do: settings that each of them would use for itself. */
static enum err_code several_check(const struct config *c, struct err *why)
{
    static const struct {
        enum knob_id id;
        const char *reason;
    } REFUSED[] = { { KNOB_AFFINITY, "binds every process to the same cores" },
                    { KNOB_PARALLEL, "starts ranks for every process, on the same cores" } };
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++) {
        const struct knob *k = &KNOBS[REFUSED[i].id];
        const char *value = config_text(c, REFUSED[i].id);
        if (strcmp(value, k->otherwise))
            return err_set(why, ERR_USAGE, "%s=%s %s: leave it out with --processes", k->key, value,
                           REFUSED[i].reason);
    }
    return ERR_OK;
}

static enum err_code command_config(struct serving_command *x, const struct cli_global *g,
                                    const struct cli_args *a, struct err *why)
{
    const char *parallel = args_text(a, "--parallel", NULL);
    enum err_code rc = cli_config(&x->config, a, args_text(a, "-C", NULL), why);
    if (!rc) rc = cli_applied_config(&x->config, g, a, why);
    if (!rc && parallel) rc = config_set(&x->config, KNOBS[KNOB_MAX_SEQUENCES].key, parallel, why);
    if (!rc) rc = cli_config_model(&x->path, a, &x->config, why);
    if (rc) return rc;
    x->name = args_has(a, "--name") ? strdup(args_text(a, "--name", "")) : serve_name_of(x->path);
    if (!x->name) return err_set(why, ERR_NOMEM, "out of memory for the name of the model");
    return ERR_OK;
}

enum err_code serve_open_model(struct model **out, const char *path, const struct config *c,
                               const struct cli_global *g, struct err *why)
{
    const struct model_options o = {
        .path = path, .config = c, .sequences = (int)config_int(c, KNOB_MAX_SEQUENCES), .log = &g->log
    };
    const enum err_code rc = shapes_model_open(out, &o, why);
    return rc ? rc : model_warm(*out, why);
}

void serve_url(struct str *out, const char *host, int port)
{
    const bool v6 = strchr(host, ':') != NULL;
    str_printf(out, "http://%s%s%s:%d/v1", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

static int address_print(const struct serving_command *x, const struct cli_global *g,
                         const struct cli_args *a, int port)
{
    struct table t;
    struct str url = { 0 };
    struct server_state state;
    server_read(x->server, &state);
    serve_url(&url, args_text(a, "--host", SERVE_HOST), port);
    json_t *row = table_record(&t, &DOCUMENT_SERVE);
    json_put_str(row, "url", str_text(&url));
    json_put_str(row, "model", x->name);
    json_put_bool(row, "chat", state.has_chat);
    json_put_int(row, "ctx_tokens", state.ctx);
    json_put_int(row, "max_sequences", config_int(model_config(x->model), KNOB_MAX_SEQUENCES));
    cli_put_cautions(row, model_shape(x->model)->random_weights, model_shape(x->model)->unknown > 0);
    const int status = cli_print_now(g, a, &t, EXIT_DONE);
    table_done(&t);
    str_free(&url);
    if (model_shape(x->model)->random_weights) cli_note(g, "%s", RANDOM_WEIGHTS);
    char advice[CHAT_ADVICE];
    if (!state.has_chat)
        cli_note(g, "the model has no chat template, so /v1/chat/completions is refused: %s",
                 chat_template_advice(model_tokenizer(x->model), advice));
    return status;
}

/* ---------------------------------------------------------------- while it runs */

void serve_note_totals(const struct server_state *now, const struct cli_global *g)
{
    struct str text = { 0 };
    for (int i = 0; i < SERVE_OUTCOMES; i++)
        if (now->outcome[i])
            str_printf(&text, "%s%s %lld", text.len ? ", " : "", SERVE_OUTCOME_NAMES[i],
                       (long long)now->outcome[i]);
    cli_note(g, "%lld request%s%s%s; %lld token%s in, %lld of them cached; %lld token%s out",
             (long long)now->accepted, str_plural(now->accepted), text.len ? ": " : "", str_text(&text),
             (long long)now->prompt_tokens, str_plural(now->prompt_tokens), (long long)now->cached_tokens,
             (long long)now->generated_tokens, str_plural(now->generated_tokens));
    str_free(&text);
}

/* A supervisor that ends before the processes, while they drain, got a second signal. */
static bool must_end_at_once(const struct serve_member *m)
{
    return share_is_stopping(m->share) && getppid() != m->supervisor;
}

void serve_drain(struct server *s, const struct cli_global *g, double most_s,
                 const struct serve_member *member)
{
    struct server_state now;
    const int64_t until = clock_ns() + (int64_t)(most_s * 1e9);
    server_drain(s);
    server_read(s, &now);
    if (now.open)
        cli_note(g, "%d request%s may end within %.0f s; press Ctrl-C to end at once", now.open,
                 str_plural(now.open), most_s);
    while (now.open && clock_ns() < until && !(member && must_end_at_once(member))) {
        clock_sleep_ns(SERVE_WAIT_NS);
        server_read(s, &now);
    }
}

/* Has the process to go on as it is? */
static bool serving_goes_on(const struct serving_command *x)
{
    const struct serve_member *m = x->member;
    if (cli_is_interrupted(x->g)) return false;
    return !m || (!share_is_stopping(m->share) && share_phase(m->share, m->slot) != SHARE_RETIRING);
}

/* Does the whole server end, or only this process? */
static bool server_is_ending(const struct serving_command *x)
{
    const struct serve_member *m = x->member;
    return !m || share_is_stopping(m->share) || getppid() != m->supervisor;
}

/* Others take over: clients move to them, and requests that this process has are answered. */
static void serving_retire(struct serving_command *x)
{
    struct server_state now;
    struct err why;
    server_retire(x->server);
    do {
        clock_sleep_ns(SERVE_WAIT_NS);
        server_read(x->server, &now);
    } while ((now.open || now.connections) && !server_is_ending(x) && !server_error(x->server, &why));
}

static enum err_code command_serve_on(struct serving_command *x, struct err *why)
{
    enum err_code rc = ERR_OK;
    while (!rc && serving_goes_on(x)) {
        rc = server_error(x->server, why);
        clock_sleep_ns(SERVE_WAIT_NS);
    }
    if (rc) return rc;
    if (!server_is_ending(x)) serving_retire(x);
    if (server_is_ending(x))
        serve_drain(x->server, x->g, args_num(x->a, "--drain", SERVE_DRAIN_S), x->member);
    return server_error(x->server, why); /* it may have failed since */
}

static enum err_code command_server_start(struct serving_command *x, int *port, struct err *why)
{
    const struct cli_args *a = x->a;
    const struct serve_member *m = x->member;
    const struct server_options o = { .model = x->model,
                                      .name = x->name,
                                      .template_file = args_text(a, "--template", NULL),
                                      .listen = args_text(a, "--host", SERVE_HOST),
                                      .port = m ? m->port : (int)args_int(a, "--port", SERVE_PORT),
                                      .key = x->key,
                                      .queue = (int)args_int(a, "--queue", SERVE_QUEUE),
                                      .body_bytes = args_bytes(a, "--max-body", SERVE_BODY),
                                      .limits = x->slo.load.limit,
                                      .limit_count = x->slo.load.limits,
                                      .otlp = args_text(a, "--otlp", NULL),
                                      .share = m ? m->share : NULL,
                                      .slot = m ? m->slot : 0,
                                      .listener = m ? m->listener : -1,
                                      .log = &x->g->log };
    return server_start(&x->server, &o, port, why);
}

/* Opens the model and serves it. member NULL: in the only process. Returns the exit status. */
static int command_serve_model(void *ctx, const struct serve_member *member)
{
    struct serving_command *x = ctx;
    struct err why = { 0 };
    int port = 0, status = EXIT_DONE;
    x->member = member;
    enum err_code rc = serve_open_model(&x->model, x->path, &x->config, x->g, &why);
    if (!rc) rc = command_server_start(x, &port, &why);
    if (!rc && (!member || member->first)) status = address_print(x, x->g, x->a, port);
    if (!rc && status == EXIT_DONE) rc = command_serve_on(x, &why);
    if (rc) status = cli_fail(x->a, &why);
    if (x->server) {
        struct server_state now;
        server_end_requests(x->server);
        server_read(x->server, &now);
        if (!member) serve_note_totals(&now, x->g);
    }
    server_stop(x->server);
    model_close(x->model);
    return status;
}

static int command_serve_several(struct serving_command *x, const struct scale_rule *rule)
{
    const struct serve_processes o = { .rule = *rule,
                                       .dry_run = args_has(x->a, "--dry-run"),
                                       .host = args_text(x->a, "--host", SERVE_HOST),
                                       .port = (int)args_int(x->a, "--port", SERVE_PORT),
                                       .drain_s = args_num(x->a, "--drain", SERVE_DRAIN_S),
                                       .threads = (int)config_int(&x->config, KNOB_THREADS),
                                       .serve = command_serve_model,
                                       .ctx = x };
    return serve_processes(&o, x->g, x->a);
}

int command_serve(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct serving_command x = { .g = g, .a = a };
    struct scale_rule rule;
    enum err_code rc = cli_api_key(&x.key, a, &why);
    if (!rc) rc = slo_read(&x.slo, a, &why);
    if (!rc) rc = rule_read(&rule, a, &why);
    if (!rc) rc = command_config(&x, g, a, &why);
    if (!rc) rc = server_address_check(args_text(a, "--host", SERVE_HOST), x.key != NULL, &why);
    if (!rc && rule.most > 1) rc = several_check(&x.config, &why);
    const int status = rc              ? cli_fail(a, &why)
                       : rule.most > 1 ? command_serve_several(&x, &rule)
                                       : command_serve_model(&x, NULL);
    free(x.path);
    free(x.key);
    free(x.name);
    return status;
}
