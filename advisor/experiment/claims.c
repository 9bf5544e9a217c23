/* advisor/experiment/claims.c - the figures that gates and the joint verdict are about (experiment.h). */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>

_Static_assert((int)JOINT_ARMS == (int)EXPERIMENT_ARMS, "a joint verdict is over all arms");

static const struct interval UNKNOWN = { NAN, NAN, NAN };

/* Converts log ratios, positive is better, to ratios of the metric itself. */
static struct interval ratio_of(struct interval gain, int metric)
{
    return stats_exp(stats_turned(gain, METRICS[metric].better));
}

/* ---------------------------------------------------------------- figures of a gate */

/* Why no measurement of cells is valid; NULL when they are valid. */
static const char *cells_distrust_reason(const struct experiment_state *s, int arm)
{
    const struct comparison *c = experiment_comparison(s, arm);
    if (c->verdict == VERDICT_INVALID) return *c->reason ? c->reason : "the comparison is invalid";
    if (s->verdict == VERDICT_INVALID) return *s->reason ? s->reason : "the run is invalid";
    return NULL;
}

/* An arm's mean with its interval. For memory it is the largest value, because that must fit. */
static struct interval figure_of(const struct experiment_arm *a, int metric)
{
    const double peak = a->value[METRIC_PEAK_MEMORY];
    if (metric != METRIC_PEAK_MEMORY || isnan(peak)) return a->mean[metric - METRIC_SENSOR_COUNT];
    return (struct interval){ peak, peak, peak };
}

static void gate_value_from_cells(const struct experiment_state *s, int arm, int metric, struct gate_value *v)
{
    const struct comparison *c = experiment_comparison(s, arm);
    const int i = metric - METRIC_SENSOR_COUNT;
    v->absolute = figure_of(&s->arm[arm], metric);
    v->value = v->absolute.estimate;
    v->a = figure_of(&s->arm[0], metric).estimate;
    v->ratio = ratio_of(c->by_metric[i], metric);
    v->n = c->blocks;
    v->of = "blocks";
    v->invalid = cells_distrust_reason(s, arm);
    if (isnan(v->value)) v->missing = "not measured by this workload on this machine";
}

static void gate_value_set_exact(struct gate_value *v, double value)
{
    v->value = value;
    v->exact = true;
}

static void gate_value_set_interval(struct gate_value *v, struct interval i)
{
    v->value = i.estimate;
    v->absolute = i;
}

/* When half of the prompts never differed, the median is above the limit: an interval without upper bound. */
static void from_greedy(const struct greedy_divergence *g, struct gate_value *v)
{
    if (g->prompts > 0 && isnan(g->median))
        gate_value_set_interval(v, (struct interval){ g->limit, g->limit, INFINITY });
    else
        gate_value_set_exact(v, g->median);
}

static void from_quality(const struct quality *q, enum gate_figure figure, struct gate_value *v)
{
    const struct divergence *d = &q->figures;
    v->n = (int)MIN(d->candidate.chunks, INT32_MAX);
    v->of = "windows";
    switch (figure) {
    case GATE_KLD_MEAN: gate_value_set_interval(v, q->kld); break;
    case GATE_KLD_P50: gate_value_set_exact(v, d->kld_p50); break;
    case GATE_KLD_P90: gate_value_set_exact(v, d->kld_p90); break;
    case GATE_KLD_P99: gate_value_set_exact(v, d->kld_p99); break;
    case GATE_KLD_MAX: gate_value_set_exact(v, d->kld_max); break;
    case GATE_TOP1: gate_value_set_interval(v, q->top1); break;
    case GATE_PPL:
        gate_value_set_interval(v, q->ppl);
        v->a = d->reference.ppl;
        v->ratio = q->ppl_ratio;
        break;
    case GATE_PPL_RATIO: gate_value_set_interval(v, q->ppl_ratio); break;
    case GATE_MCNEMAR_P: gate_value_set_exact(v, q->mcnemar_p); break;
    case GATE_FIRST_DIVERGENCE: from_greedy(&d->greedy, v); break;
    default: break;
    }
    if (isnan(v->value)) v->missing = "the text is too short for it";
}

static void from_energy(const struct experiment_state *s, int arm, struct gate_value *v)
{
    const struct experiment_arm *a = &s->arm[arm];
    const struct comparison *c = experiment_comparison(s, arm);
    const struct interval blocks = a->mean[METRIC_ENERGY - METRIC_SENSOR_COUNT];
    const double tokens = blocks.estimate / a->joules_per_token,
                 half = isnan(a->joules_per_token_half) ? 0 : a->joules_per_token_half;
    /* blocks differ, and each counter has a step: one block alone has no interval and decides nothing */
    gate_value_set_interval(v, (struct interval){ a->joules_per_token, blocks.lower / tokens - half,
                                                  blocks.upper / tokens + half });
    v->a = s->arm[0].joules_per_token;
    v->ratio = ratio_of(c->by_metric[METRIC_ENERGY - METRIC_SENSOR_COUNT], METRIC_ENERGY);
    v->n = c->blocks;
    v->of = "blocks";
    v->invalid = cells_distrust_reason(s, arm);
    if (isnan(v->value)) v->missing = "this machine has no power sensor";
}

struct subject {
    const struct experiment_state *s;
    int arm;
};

static void gate_value_lookup(void *ctx, const struct gate_term *t, struct gate_value *v)
{
    const struct subject *of = ctx;
    const struct experiment_state *s = of->s;
    if (s->arm[of->arm].failed) {
        v->missing = s->arm[of->arm].error;
    } else if (t->metric == METRIC_PERPLEXITY && s->comparison[of->arm].quality.known) {
        from_quality(&s->comparison[of->arm].quality, GATE_PPL, v); /* cells of timings have none */
    } else if (t->metric >= 0) {
        gate_value_from_cells(s, of->arm, t->metric, v);
    } else if (t->figure == GATE_ENERGY_TOKEN) {
        from_energy(s, of->arm, v);
    } else if (t->figure == GATE_NOISE_FLOOR) {
        gate_value_set_exact(v, expm1(s->noise_floor));
        if (isnan(v->value)) v->missing = "there was no control";
    } else if (s->comparison[of->arm].quality.known) {
        from_quality(&s->comparison[of->arm].quality, t->figure, v);
    } else {
        const char *why = s->comparison[of->arm].quality.missing;
        v->missing = *why ? why : "quality was not measured";
    }
}

void claims_gate(const struct gate *g, const struct experiment_state *s, int arm, struct gate_result *out)
{
    struct subject of = { s, arm };
    gate_judge(g, gate_value_lookup, &of, out);
}

static void lookup_quality(void *ctx, const struct gate_term *t, struct gate_value *v)
{
    const struct quality *q = ctx;
    const bool perplexity = t->metric == METRIC_PERPLEXITY;
    if (!perplexity && (t->metric >= 0 || !GATE_NAMES[t->figure].quality))
        v->missing = "nothing was timed";
    else if (!q->known) /* its intervals are not valid: a loss of 0 would pass */
        v->missing = *q->missing ? q->missing : "quality was not measured";
    else
        from_quality(q, perplexity ? GATE_PPL : t->figure, v);
}

void claims_gate_quality(const struct gate *g, const struct quality *q, struct gate_result *out)
{
    struct quality copy = *q;
    gate_judge(g, lookup_quality, &copy, out);
}

enum gate_outcome claims_gate_all(const struct gate *g, const struct experiment_state *s)
{
    enum gate_outcome all = GATE_PASS;
    for (int k = 1; k < experiment_arms(&s->spec); k++) {
        struct gate_result r;
        claims_gate(g, s, k, &r);
        all = gate_both(all, r.outcome);
    }
    return all;
}

static bool settled_for(const struct gate *g, const struct experiment_state *s, int arm)
{
    struct gate_result r;
    claims_gate(g, s, arm, &r);
    if (r.outcome == GATE_PASS || r.outcome == GATE_FAIL) return true;
    for (int i = 0; i < r.terms; i++)
        if ((g->term[i].metric >= 0 || g->term[i].figure == GATE_ENERGY_TOKEN) &&
            r.row[i].outcome == GATE_UNDECIDED && !isnan(r.row[i].value))
            return false;
    return true;
}

bool claims_gate_settled(const struct experiment_state *s)
{
    struct gate g;
    if (!*s->spec.gate || gate_parse(&g, s->spec.gate, NULL)) return true;
    for (int k = 1; k < experiment_arms(&s->spec); k++)
        if (!s->arm[k].failed && !s->comparison[k].dropped && !settled_for(&g, s, k)) return false;
    return true;
}

/* ---------------------------------------------------------------- the joint verdict */

static bool is_speed(int metric)
{
    return metric != METRIC_PEAK_MEMORY && metric != METRIC_ENERGY && metric != METRIC_PERPLEXITY &&
           metric != METRIC_KLD;
}

static int speed_metric(const struct experiment_state *s)
{
    const int compared = s->spec.metric ? (int)(s->spec.metric - METRICS) : METRIC_DECODE_RATE;
    if (is_speed(compared)) return compared;
    return isnan(s->arm[0].mean[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT].estimate) ? METRIC_PREFILL_RATE
                                                                                    : METRIC_DECODE_RATE;
}

void claims_joint(struct joint *out, const struct experiment_state *s)
{
    const double m = experiment_margin(&s->spec);
    const bool trusted = s->verdict != VERDICT_INVALID;
    struct joint_input in = { .arms = experiment_arms(&s->spec),
                              .margin = { m, m, m, experiment_kld_margin(&s->spec) },
                              .metric = { speed_metric(s), METRIC_PEAK_MEMORY, METRIC_ENERGY, -1 },
                              .invalid = trusted             ? NULL
                                         : s->control_failed ? "the A/A control failed"
                                                             : "the run is invalid" };
    for (int k = 0; k < in.arms; k++) {
        const struct comparison *c = experiment_comparison(s, k);
        in.label[k] = s->arm[k].line;
        for (int axis = 0; axis < JOINT_AXES; axis++) in.gain[k][axis] = UNKNOWN;
        if (!k || s->arm[k].failed) continue;
        for (int axis = 0; axis < JOINT_QUALITY && trusted && c->verdict != VERDICT_INVALID; axis++)
            in.gain[k][axis] = c->by_metric[in.metric[axis] - METRIC_SENSOR_COUNT];
        const struct quality *q = &s->comparison[k].quality;
        if (q->known)
            in.gain[k][JOINT_QUALITY] = (struct interval){ -q->kld.estimate, -q->kld.upper, -q->kld.lower };
    }
    joint_of(out, &in);
}

json_t *claims_gate_json(const struct experiment_state *s)
{
    struct gate g;
    if (!*s->spec.gate || gate_parse(&g, s->spec.gate, NULL)) return json_null();
    json_t *o = json_object(), *arms = json_array();
    json_put_str(o, "gate", g.text);
    json_put_str(o, "outcome", gate_outcome_name(claims_gate_all(&g, s)));
    for (int k = 1; k < experiment_arms(&s->spec); k++) {
        const char name[2] = { (char)('a' + k), 0 };
        struct gate_result r;
        claims_gate(&g, s, k, &r);
        json_t *a = gate_result_to_json(&g, &r);
        json_object_del(a, "gate");
        json_put_str(a, "arm", name);
        json_array_append_new(arms, a);
    }
    json_put(o, "arms", arms);
    return o;
}
