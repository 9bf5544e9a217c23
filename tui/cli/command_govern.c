/* qdyno govern: serves requests with one of several configs of the same model, chosen by a rule
 * (advisor/govern). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/govern/govern.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_govern_serve.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_GOVERN[] = {
    FLAG_MODEL_ROW,
    { .name = "--rule", .value = "RULE",
      .help = "itl=20ms, ttft=300ms, decode=30 (tokens/s), memory=2G (still available) or power=25 (watts); "
              "with --port also queue=4 (waiting requests)" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD",
      .help = "workload of one request; default pp32+tg32" },
    { .name = "--for", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "duration; default 1m if -n is not given" },
    { .name = "-n", .alias = "--requests", .value = "N", .kind = FLAG_INT, .min = 1, .max = 9e15,
      .help = "number of requests" },
    { .name = "--every", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "time between the starts of two requests; default: no pause; with --port: between two looks at the "
              "server; default 1s" },
    { .name = "--port", .value = "N", .kind = FLAG_INT, .max = 65535,
      .help = "answer real clients over HTTP at this port, as `qdyno serve`; 0: any free port" },
    { .name = "--host", .alias = "--listen", .needs = "--port", .value = "ADDRESS",
      .help = "with --port: address to listen on; default 127.0.0.1. Any other address needs an API key" },
    { .name = "--api-key-file", .needs = "--port", .value = "FILE",
      .help = "with --port: file with the key that clients must send (also: the variable QDYNO_API_KEY)" },
    { .name = "--parallel", .alias = "-np", .needs = "--port", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "with --port: requests that each config computes at a time" },
    { .name = "--drain", .needs = "--port", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "with --port: at the end, let running requests go on for at most this time; default 30s" },
    { .name = "--down", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1000,
      .help = "requests (with --port: looks) in a row beyond the limit before a step down; default 3" },
    { .name = "--up", .value = "N", .kind = FLAG_INT, .min = 1, .max = 10000,
      .help = "requests (with --port: looks) in a row well within the limit before a step up; default 12" },
    { .name = "--hysteresis", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "distance from the limit that counts as well within; default 15%" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("config", "config"),
    COL("requests", "requests", .kind = COLUMN_INT),
    COL("share", "share (%)", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("tokens", "tokens", .kind = COLUMN_INT),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 2),
    COL("signal", "mean signal", .kind = COLUMN_NUM, .digits = 5),
    COL("beyond", "beyond the limit", .kind = COLUMN_INT),
    COL("loaded", "loaded", .kind = COLUMN_BOOL),
};

DOCUMENT(GOVERN, "qdyno.govern/1", COLUMNS,
         .members = "run rule unit limit labels.* switches[].request switches[].when switches[].from "
                    "switches[].to switches[].reason switches[].before switches[].after");

struct governed {
    const struct cli_global *g;
    const struct cli_args *a;
    struct config config[GOVERNOR_LEVELS];
    char line[GOVERNOR_LEVELS][CONFIG_LINE];
    struct governor_options o;
    struct governor_result result;
    struct machine machine;
    char *model;
    struct progress progress;
};

/* Prints a switch, its effect, or the progress of a request. Returns false after Ctrl-C. */
static bool governed_on_request(void *ctx, const struct governor_switch *s, int level, double value)
{
    struct governed *x = ctx;
    const struct governor_signal_row *row = &GOVERNOR_SIGNALS[x->o.rule.signal];
    if (s) {
        progress_clear(&x->progress);
        if (isnan(s->after))
            cli_note(x->g, "request %lld: switch from %s to %s: %s", (long long)s->request + 1,
                     x->line[s->from], x->line[s->to], s->reason);
        else
            cli_note(x->g, "  effect of the switch from %s to %s: %s %.4g -> %.4g %s (%+.1f %%)",
                     x->line[s->from], x->line[s->to], row->name, s->before, s->after, row->unit,
                     100 * (s->after / s->before - 1));
    } else if (isfinite(value)) {
        progress_show(&x->progress, "%lld request%s  %s  %s %.4g %s", (long long)x->result.requests,
                      str_plural(x->result.requests), x->line[level], row->name, value, row->unit);
    }
    return !cli_is_interrupted(x->g);
}

/* Without -n and --for a run would never end: then it lasts a minute. */
static enum err_code governed_init(struct governed *x, struct err *why)
{
    const struct cli_args *a = x->a;
    struct governor_options *o = &x->o;
    const char *rule = args_text(a, "--rule", NULL);
    if (!rule) return err_set(why, ERR_USAGE, "expected --rule RULE, e.g. --rule itl=20ms");
    enum err_code rc = governor_rule_parse(&o->rule, rule, why);
    if (rc) return err_prefix(why, "--rule");
    o->rule.down_after = (int)args_int(a, "--down", o->rule.down_after);
    o->rule.up_after = (int)args_int(a, "--up", o->rule.up_after);
    o->rule.hysteresis = args_num(a, "--hysteresis", o->rule.hysteresis);
    o->levels = MIN(a->n, (int)GOVERNOR_LEVELS);
    for (int i = 0; i < o->levels && !rc; i++) {
        rc = cli_config(&x->config[i], a, a->arg[i], why);
        o->config[i] = &x->config[i];
        config_line(&x->config[i], x->line[i], sizeof x->line[i]);
    }
    if (!rc) rc = cli_model(&x->model, a, why);
    if (!rc) rc = workload_parse(&o->workload, args_text(a, "-w", "pp32+tg32"), why);
    if (!rc) rc = machine_detect(&x->machine, "", why);
    o->model_path = x->model;
    o->machine = &x->machine;
    o->requests = args_int(a, "-n", 0);
    o->for_s = args_num(a, "--for", o->requests || args_has(a, "--port") ? 0 : 60);
    o->every_s = args_num(a, "--every", 0);
    o->seed = x->g->seed;
    o->db_path = x->g->db_path;
    o->log = &x->g->log;
    o->told = governed_on_request;
    o->ctx = x;
    return rc;
}

/* People count requests from 1, the governor from 0. */
static json_t *switch_json(const struct governed *x, const struct governor_switch *s)
{
    json_t *o = json_object();
    char when[32];
    json_put_int(o, "request", s->request + 1);
    json_put_str(o, "when", clock_iso8601(s->unix_ms, when, sizeof when));
    json_put_str(o, "from", x->line[s->from]);
    json_put_str(o, "to", x->line[s->to]);
    json_put_str(o, "reason", s->reason);
    json_put_num(o, "before", s->before);
    json_put_num(o, "after", s->after);
    return o;
}

/* One row for each level, also for one that served no request: its 0 is a result. */
static int governed_print(const struct governed *x)
{
    struct table t;
    const struct governor_result *r = &x->result;
    const struct governor_signal_row *signal = &GOVERNOR_SIGNALS[x->o.rule.signal];
    table_init(&t, &DOCUMENT_GOVERN);
    for (int i = 0; i < x->o.levels; i++) {
        const struct governor_figures *f = &r->level[i];
        json_t *row = table_row(&t);
        json_put_str(row, "config", x->line[i]);
        json_put_int(row, "requests", f->requests);
        json_put_num(row, "share", r->requests ? (double)f->requests / (double)r->requests : NAN);
        json_put_int(row, "tokens", f->tokens);
        json_put_num(row, "seconds", f->seconds);
        json_put_num(row, "signal", f->signal);
        json_put_int(row, "beyond", f->beyond);
        json_put_bool(row, "loaded", f->loaded);
    }
    json_t *switches = json_array();
    for (int i = 0; i < MIN(r->switches, (int)GOVERNOR_SWITCHES); i++)
        json_array_append_new(switches, switch_json(x, &r->sw[i]));
    json_put(t.extra, "switches", switches);
    json_put(t.extra, "run", r->run_id ? json_integer(r->run_id) : json_null());
    json_put(t.extra, "labels", r->run_id ? cli_labels_of_run(x->g, r->run_id) : json_object());
    json_put_str(t.extra, "rule", signal->name);
    json_put_str(t.extra, "unit", signal->unit);
    json_put_num(t.extra, "limit", x->o.rule.limit);
    table_note(&t, "%s: %s, in %s; limit %.4g; %d switches", signal->name, signal->help, signal->unit,
               x->o.rule.limit, r->switches);
    if (r->run_id) table_note(&t, "run %lld", (long long)r->run_id);
    struct summary summary = { .effect = { NAN, NAN, NAN },
                               .exit_status = r->stopped ? EXIT_INTERRUPTED : EXIT_DONE,
                               .run = r->run_id };
    snprintf(summary.text, sizeof summary.text, "%lld request%s, %d switch%s between %d configs",
             (long long)r->requests, str_plural(r->requests), r->switches, r->switches == 1 ? "" : "es",
             x->o.levels);
    table_summarize(&t, &summary);
    return cli_finish(x->g, x->a, &t, summary.exit_status);
}

int command_govern(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct sampler_thread *sampler = NULL;
    struct run_labels labels;
    struct governed *x = calloc(1, sizeof *x);
    if (!x) return cli_fail_memory(a);
    x->g = g;
    x->a = a;
    progress_init(&x->progress, g);
    enum err_code rc = governed_init(x, &why);
    if (!rc) rc = cli_labels(&labels, a, &why);
    x->o.labels = &labels;
    const bool serves = args_has(a, "--port");
    if (!rc && !serves) rc = cli_sampler(&sampler, NULL, &why);
    x->o.sampler = sampler;
    if (!rc)
        rc = serves ? governed_serve(&x->result, &x->o, g, a, &why) : governor_run(&x->result, &x->o, &why);
    progress_clear(&x->progress);
    sampler_stop(sampler);
    const int status = rc ? cli_fail(a, &why) : governed_print(x);
    free(x->model);
    free(x);
    return status;
}
