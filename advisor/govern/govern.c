/* advisor/govern/govern.c - switches between loaded configurations by a rule, and serves requests with them
 * (govern.h). */
#include "advisor/govern/govern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advisor/run/run.h"
#include "advisor/stats/stats.h"

const struct governor_signal_row GOVERNOR_SIGNALS[] = {
    [GOVERN_ITL] = { .name = "itl",
                     .unit = "seconds",
                     .help = "time between tokens, 95th percentile of a request",
                     .better = -1,
                     .paid_by_level = true },
    [GOVERN_TTFT] = { .name = "ttft",
                      .unit = "seconds",
                      .help = "time to first token",
                      .better = -1,
                      .paid_by_level = true },
    [GOVERN_DECODE] = { .name = "decode",
                        .unit = "tokens/s",
                        .help = "decoded tokens per second",
                        .better = 1,
                        .paid_by_level = true },
    [GOVERN_MEMORY] = { .name = "memory",
                        .unit = "bytes",
                        .help = "memory available on the machine",
                        .better = 1 },
    [GOVERN_POWER] = { .name = "power",
                       .unit = "watts",
                       .help = "power of the CPUs",
                       .better = -1,
                       .paid_by_level = true },
    [GOVERN_QUEUE] = { .name = "queue",
                       .unit = "requests",
                       .help = "requests that wait at a server",
                       .better = -1,
                       .zero_known = true },
};

enum err_code governor_rule_parse(struct governor_rule *r, const char *text, struct err *why)
{
    const char *equals = strchr(text, '=');
    *r = (struct governor_rule){
        .signal = GOVERN_SIGNALS, .hysteresis = 0.15, .down_after = 3, .up_after = 12
    };
    for (int i = 0; equals && i < GOVERN_SIGNALS; i++)
        if (strlen(GOVERNOR_SIGNALS[i].name) == (size_t)(equals - text) &&
            !strncmp(GOVERNOR_SIGNALS[i].name, text, (size_t)(equals - text)))
            r->signal = (enum governor_signal)i;
    bool good = false;
    int64_t bytes;
    if (r->signal == GOVERN_ITL || r->signal == GOVERN_TTFT) good = str_to_seconds(equals + 1, &r->limit);
    if (r->signal == GOVERN_DECODE || r->signal == GOVERN_POWER || r->signal == GOVERN_QUEUE)
        good = str_to_double(equals + 1, &r->limit);
    if (r->signal == GOVERN_MEMORY && (good = str_to_bytes(equals + 1, &bytes))) r->limit = (double)bytes;
    if (good && r->limit > 0 && isfinite(r->limit)) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "rule '%.60s': expected itl=TIME, ttft=TIME, decode=TOKENS/S, memory=BYTES, power=WATTS or queue=REQUESTS, e.g. itl=20ms or memory=2G",
        text);
}

/* ---------------------------------------------------------------- the rule */

void governor_init(struct governor_state *s, int levels)
{
    *s = (struct governor_state){ .levels = levels };
    for (int i = 0; i < GOVERNOR_LEVELS; i++) s->usual[i] = NAN;
}

/* 0 is a value of some signals, and unknown of the others. */
static bool value_known(const struct governor_rule *r, double value)
{
    return isfinite(value) && (value > 0 || (value == 0 && GOVERNOR_SIGNALS[r->signal].zero_known));
}

/* value / limit (or the inverse): above 1 violates the rule */
static double rule_strain(const struct governor_rule *r, double value)
{
    return GOVERNOR_SIGNALS[r->signal].better < 0 ? value / r->limit : r->limit / value;
}

static int governor_move(struct governor_state *s, int by)
{
    s->level += by;
    s->climbed = by < 0;
    s->beyond = s->within = s->since = 0;
    return s->level;
}

static int governor_step_down(struct governor_state *s, const struct governor_rule *r, double value,
                              char reason[160])
{
    const struct governor_signal_row *g = &GOVERNOR_SIGNALS[r->signal];
    if (s->climbed && s->since <= 2 * r->up_after && s->patience[s->level] < 6) s->patience[s->level]++;
    snprintf(reason, 160, "%s %.4g %s, limit %.4g, %d times in a row", g->name, value, g->unit, r->limit,
             s->beyond);
    return governor_move(s, 1);
}

static int governor_step_up(struct governor_state *s, const struct governor_rule *r, double value,
                            char reason[160])
{
    const struct governor_signal_row *g = &GOVERNOR_SIGNALS[r->signal];
    snprintf(reason, 160, "%s %.4g %s is well within %.4g, %d times in a row", g->name, value, g->unit,
             r->limit, s->within);
    return governor_move(s, -1);
}

int governor_step(struct governor_state *s, const struct governor_rule *r, double value, char reason[160])
{
    reason[0] = '\0';
    if (!value_known(r, value)) return s->level;
    const double x = rule_strain(r, value);
    double *usual = &s->usual[s->level];
    *usual = isnan(*usual) ? value : 0.8 * *usual + 0.2 * value;
    s->since++;
    s->beyond = x > 1 ? s->beyond + 1 : 0;
    s->within = x < 1 - r->hysteresis ? s->within + 1 : 0;
    if (s->beyond >= r->down_after && s->level + 1 < s->levels)
        return governor_step_down(s, r, value, reason);
    if (!s->level || s->within < r->up_after << s->patience[s->level - 1]) return s->level;
    /* Predicted value after a step up: the current one, times the ratio that was measured between the two
     * levels. */
    const double there = s->usual[s->level - 1], here = s->usual[s->level];
    const bool known = GOVERNOR_SIGNALS[r->signal].paid_by_level && !isnan(there);
    const double ratio = GOVERNOR_SIGNALS[r->signal].better < 0 ? there / here : here / there;
    /* the value at the other level was mostly measured under the load that made us leave it: it counts half
     */
    if (known && x * sqrt(fmax(ratio, 1)) > 1) return s->level;
    return governor_step_up(s, r, value, reason);
}

/* ---------------------------------------------------------------- what a switch changes */

struct governor_switch *governor_switch_add(struct governor_result *r, struct governor_effect *e, int from,
                                            int to, double before, const char *reason)
{
    struct governor_switch *s = &r->sw[MIN(r->switches, GOVERNOR_SWITCHES - 1)];
    r->switches++;
    *s = (struct governor_switch){ .from = from,
                                   .to = to,
                                   .unix_ms = clock_unix_ms(),
                                   .request = r->requests,
                                   .before = before,
                                   .after = NAN };
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    *e = (struct governor_effect){ .of = s };
    return s;
}

const struct governor_switch *governor_effect_add(struct governor_effect *e, double value, bool at_once)
{
    enum { SEEN = 4 };
    struct governor_switch *s = e->of;
    if (!s) return NULL;
    if (isfinite(value)) {
        e->sum += value;
        e->n++;
    }
    if ((e->n < SEEN && !at_once) || !e->n) return NULL;
    s->after = e->sum / e->n;
    e->of = NULL;
    return s;
}

void governor_figures_add(struct governor_figures *f, const struct governor_rule *r, double value)
{
    if (!value_known(r, value)) return;
    f->values++;
    f->beyond += rule_strain(r, value) > 1;
    f->signal = f->values > 1 ? f->signal + (value - f->signal) / (double)f->values : value;
}

/* ---------------------------------------------------------------- requests */

struct governing {
    const struct governor_options *o;
    struct governor_result *out;
    struct governor_state state;
    struct db *db;
    struct run run;
    bool cancelled;
    struct arm *arm[GOVERNOR_LEVELS];
    struct cell_tally tally[GOVERNOR_LEVELS];
    struct machine_ceilings ceilings;
    double recent[8]; /* the number of the last requests */
    int n_recent;
    struct governor_effect effect;
};

static bool arm_progress(void *ctx, const json_t *event)
{
    struct governing *g = ctx;
    (void)event;
    g->cancelled |= g->o->told && !g->o->told(g->o->ctx, NULL, g->state.level, NAN);
    return !g->cancelled;
}

static enum err_code level_load(struct governing *g, int level, struct err *why)
{
    if (g->arm[level]) return ERR_OK;
    const struct arm_spec spec = { .model = g->o->model_path,
                                   .config = g->o->config[level],
                                   .ctx = workload_ctx(&g->o->workload),
                                   .sequences = workload_sequences(&g->o->workload),
                                   .program = g->o->program,
                                   .log = g->o->log };
    const struct moment begun = moment_now();
    enum err_code rc = arm_open(&g->arm[level], &spec, arm_progress, g, why);
    g->out->level[level].loaded = !rc;
    if (!rc && g->run.row.id) {
        const double seconds = (double)(clock_ns() - begun.clock_ns) * 1e-9;
        const struct span_load opened = { begun, seconds, arm_description(g->arm[level]), "" };
        rc = run_arm_opened(&g->run, level, &opened, why);
    }
    return rc;
}

static double percentile_95(const float *itl, int n)
{
    float copy[4096];
    if (n < 1) return NAN;
    n = MIN(n, (int)COUNT_OF(copy));
    memcpy(copy, itl, (size_t)n * sizeof *copy);
    return stats_latency_quantile(copy, n, 0.95);
}

/* With too few tokens for a percentile, use their mean. */
static double request_signal(const struct governing *g, const struct measured_cell *c)
{
    double row[METRIC_SENSOR_COUNT], core[1];
    switch (g->o->rule.signal) {
    case GOVERN_ITL: {
        const double p95 = percentile_95(c->itl, c->n_itl), rate = c->value[METRIC_DECODE_RATE];
        return isfinite(p95) ? p95 : 1 / rate;
    }
    case GOVERN_TTFT: return c->value[METRIC_TTFT];
    case GOVERN_DECODE: return c->value[METRIC_DECODE_RATE];
    case GOVERN_POWER: return c->value[METRIC_CPU_POWER];
    case GOVERN_MEMORY: break;
    case GOVERN_QUEUE:
    case GOVERN_SIGNALS: return NAN;
    }
    if (!g->o->sampler) return NAN;
    sampler_latest(g->o->sampler, row, core, 1);
    return row[METRIC_MEM_AVAILABLE];
}

static enum err_code request_serve(struct governing *g, double *value, struct err *why)
{
    char work[640];
    struct measured_cell c = { 0 };
    workload_line(&g->o->workload, work, sizeof work);
    const int level = g->state.level;
    char line[CONFIG_LINE];
    const struct run_cell what = { .arm = g->arm[level],
                                   .workload = work,
                                   .seed = g->o->seed + (uint64_t)g->out->requests,
                                   .event = arm_progress,
                                   .ctx = g,
                                   .contamination = CONTAMINATION_NOTED,
                                   .control_frequency = NAN,
                                   .place = {
                                       .arm = level,
                                       .block = -1,
                                       .phase = "serve",
                                       .config = config_line(g->o->config[level], line, sizeof line) } };
    enum err_code rc = run_cell(&g->run, &what, &c, why);
    if (!rc && c.failure.code) {
        *why = c.failure;
        rc = c.failure.code;
    }
    if (!rc) {
        struct governor_figures *f = &g->out->level[g->state.level];
        *value = request_signal(g, &c);
        f->requests++;
        f->tokens += (int64_t)(c.field[FIELD_GEN_TOKENS] > 0 ? c.field[FIELD_GEN_TOKENS] : 0);
        f->seconds += c.seconds;
        governor_figures_add(f, &g->o->rule, *value);
        g->out->requests++;
        rc = tally_add(&g->tally[level], &c, why);
    }
    cell_done(&c);
    return rc;
}

/* ---------------------------------------------------------------- switches */

static double recent_mean(const struct governing *g)
{
    double sum = 0;
    for (int i = 0; i < g->n_recent; i++) sum += g->recent[i];
    return g->n_recent ? sum / g->n_recent : NAN;
}

static void value_remember(struct governing *g, double value)
{
    if (!(value > 0)) return;
    if (g->n_recent == (int)COUNT_OF(g->recent))
        memmove(g->recent, g->recent + 1, sizeof g->recent - sizeof *g->recent);
    g->n_recent -= g->n_recent == (int)COUNT_OF(g->recent);
    g->recent[g->n_recent++] = value;
}

static enum err_code switch_report(struct governing *g, const struct governor_switch *s, struct err *why)
{
    char text[1600], from[CONFIG_LINE], to[CONFIG_LINE];
    config_line(g->o->config[s->from], from, sizeof from);
    config_line(g->o->config[s->to], to, sizeof to);
    if (isnan(s->after))
        snprintf(text, sizeof text, "%s -> %s before request %lld: %s", from, to, (long long)s->request + 1,
                 s->reason);
    else
        snprintf(text, sizeof text, "%s -> %s: %s was %.4g %s, is %.4g (%+.1f %%)", from, to,
                 GOVERNOR_SIGNALS[g->o->rule.signal].name, s->before,
                 GOVERNOR_SIGNALS[g->o->rule.signal].unit, s->after, 100 * (s->after / s->before - 1));
    if (g->o->told) g->cancelled |= !g->o->told(g->o->ctx, s, s->to, s->after);
    return db_event_add(g->db, g->run.row.id, isnan(s->after) ? "switch" : "effect", text, why);
}

static enum err_code switch_update_effect(struct governing *g, double value, bool at_once, struct err *why)
{
    const struct governor_switch *s = governor_effect_add(&g->effect, value > 0 ? value : NAN, at_once);
    return s ? switch_report(g, s, why) : ERR_OK;
}

static enum err_code level_switch(struct governing *g, int from, const char *reason, struct err *why)
{
    const int to = g->state.level;
    enum err_code rc = switch_update_effect(g, NAN, true, why);
    if (rc) return rc;
    const struct governor_switch *s = governor_switch_add(g->out, &g->effect, from, to, recent_mean(g),
                                                          reason);
    g->n_recent = 0;
    if (g->o->rule.signal == GOVERN_MEMORY) { /* release the memory of levels that are not in use */
        arm_close(g->arm[from]);
        g->arm[from] = NULL;
        g->out->level[from].loaded = false;
        rc = level_load(g, to, why);
        if (rc) return rc;
    }
    return switch_report(g, s, why);
}

/* ---------------------------------------------------------------- the run */

static struct run_timing timing_of(const struct governing *g, int level)
{
    return (struct run_timing){ .model = g->o->model_path,
                                .config = g->o->config[level],
                                .workload = &g->o->workload,
                                .tally = &g->tally[level],
                                .description = g->arm[level] ? arm_description(g->arm[level]) : NULL };
}

static enum err_code governor_run_begin(struct governing *g, struct err *why)
{
    char work[640], label[128], line[GOVERNOR_LEVELS][CONFIG_LINE];
    struct capsule_arm arm[GOVERNOR_LEVELS];
    for (int i = 0; i < g->o->levels; i++)
        arm[i] = (struct capsule_arm){ .line = config_line(g->o->config[i], line[i], sizeof line[i]),
                                       .model_path = g->o->model_path,
                                       .model_name = path_file_name(g->o->model_path),
                                       .description = g->arm[i] ? arm_description(g->arm[i]) : NULL };
    snprintf(label, sizeof label, "%.100s and %d more", line[0], g->o->levels - 1);
    bool known = false;
    (void)ceilings_load(&g->ceilings, g->o->machine->id, &known, NULL);
    const struct run_spec spec = { .kind = "govern",
                                   .workload = workload_line(&g->o->workload, work, sizeof work),
                                   .label = label,
                                   .seed = g->o->seed,
                                   .has_canary = g->o->sampler != NULL,
                                   .machine = g->o->machine,
                                   .ceilings = known ? &g->ceilings : NULL,
                                   .sampler = g->o->sampler,
                                   .program = g->o->program,
                                   .labels = g->o->labels,
                                   .arm = arm,
                                   .arms = g->o->levels };
    const enum err_code rc = run_begin(&g->run, g->db, &spec, why);
    g->out->run_id = g->run.row.id;
    const struct run_timing t = timing_of(g, 0);
    if (!rc && !run_conditions_open(&g->run, &t, NULL)) run_conditions_sample(&g->run, arm_pid(g->arm[0]));
    return rc;
}

/* By how much predictions for the levels missed. What cannot be stored is no failure of the run. */
static void store_residuals(struct governing *g)
{
    run_conditions_sample(&g->run, 0);
    for (int i = 0; i < g->o->levels; i++) {
        const struct run_timing t = timing_of(g, i);
        struct err why;
        if (run_residuals(&g->run, &t, &why) && g->o->log)
            log_write(g->o->log, LOG_WARN, "prediction residuals of run %lld were not stored: %s",
                      (long long)g->run.row.id, why.message);
    }
}

static enum err_code levels_load(struct governing *g, struct err *why)
{
    const bool all = g->o->rule.signal != GOVERN_MEMORY;
    for (int i = 0; i < (all ? g->o->levels : 1); i++) {
        const enum err_code rc = level_load(g, i, why);
        if (rc) return err_prefix(why, "configuration %d", i + 1);
    }
    return ERR_OK;
}

static void wait_until(struct governing *g, int64_t at_ns)
{
    while (!g->cancelled && clock_ns() < at_ns) {
        const struct timespec t = { 0, (long)MIN(at_ns - clock_ns() + 1, (int64_t)50000000) };
        nanosleep(&t, NULL);
        arm_progress(g, NULL);
    }
}

static enum err_code requests_serve(struct governing *g, struct err *why)
{
    const int64_t begun = clock_ns(),
                  end = g->o->for_s > 0 ? begun + (int64_t)(g->o->for_s * 1e9) : INT64_MAX;
    enum err_code rc = ERR_OK;
    while (!rc && !g->cancelled && clock_ns() < end &&
           (!g->o->requests || g->out->requests < g->o->requests)) {
        const int64_t next = clock_ns() + (int64_t)(g->o->every_s * 1e9);
        const int level = g->state.level;
        char reason[160];
        double value = NAN;
        rc = request_serve(g, &value, why);
        if (rc) break;
        value_remember(g, value);
        rc = switch_update_effect(g, value, false, why);
        if (g->o->told) g->cancelled |= !g->o->told(g->o->ctx, NULL, level, value);
        if (!rc && governor_step(&g->state, &g->o->rule, value, reason) != level)
            rc = level_switch(g, level, reason, why);
        if (!rc && g->o->every_s > 0) wait_until(g, MIN(next, end));
    }
    if (!rc) rc = switch_update_effect(g, NAN, true, why);
    return rc;
}

static enum err_code govern_options_check(const struct governor_options *o, struct err *why)
{
    if (o->levels < 2 || o->levels > GOVERNOR_LEVELS)
        return err_set(why, ERR_USAGE, "%d configurations: expected 2 to %d, the most exact first", o->levels,
                       GOVERNOR_LEVELS);
    if (*o->workload.eval_file || o->workload.train || workload_is_load(&o->workload) ||
        (!o->workload.gen && !o->workload.prompt))
        return err_set(why, ERR_USAGE, "expected requests such as pp128+tg32");
    if ((o->rule.signal == GOVERN_ITL || o->rule.signal == GOVERN_DECODE) && !o->workload.gen)
        return err_set(why, ERR_USAGE, "rule %s needs requests that generate tokens",
                       GOVERNOR_SIGNALS[o->rule.signal].name);
    if (o->rule.signal == GOVERN_TTFT && !o->workload.prompt)
        return err_set(why, ERR_USAGE, "rule ttft needs requests with a prompt, such as pp128+tg32");
    if (o->rule.signal == GOVERN_QUEUE)
        return err_set(why, ERR_USAGE, "rule queue is about a server, where requests wait: give --port N");
    if (o->requests <= 0 && !(o->for_s > 0))
        return err_set(why, ERR_USAGE,
                       "expected a number of requests (-n 100) or a duration (--for 30s, --for 5m)");
    return ERR_OK;
}

enum err_code governor_run(struct governor_result *out, const struct governor_options *o, struct err *why)
{
    struct governing *g = calloc(1, sizeof *g);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < GOVERNOR_LEVELS; i++) out->level[i].signal = NAN;
    enum err_code rc = govern_options_check(o, why);
    if (!rc && !g) rc = err_set(why, ERR_NOMEM, "out of memory for the governor");
    if (rc) {
        free(g);
        return rc;
    }
    g->o = o;
    g->out = out;
    governor_init(&g->state, o->levels);
    if (!rc) rc = db_open(&g->db, o->db_path, why);
    if (!rc) rc = levels_load(g, why);
    if (!rc) rc = governor_run_begin(g, why);
    if (!rc) rc = requests_serve(g, why);
    out->stopped = g->cancelled;
    if (rc == ERR_CANCELLED && g->cancelled) rc = ERR_OK; /* in the middle of a request */
    if (!rc && g->run.row.id) store_residuals(g);
    const struct run_outcome outcome = { .state = rc             ? "failed"
                                                  : out->stopped ? "stopped"
                                                                 : "done",
                                         .effect_ratio = NAN };
    const enum err_code ended = run_finish(&g->run, &outcome, rc ? NULL : why);
    if (!rc) rc = ended;
    for (int i = 0; i < o->levels; i++) arm_close(g->arm[i]);
    for (int i = 0; i < o->levels; i++) tally_free(&g->tally[i]);
    run_close(&g->run);
    db_close(g->db);
    free(g);
    return rc;
}
