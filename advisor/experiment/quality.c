/* advisor/experiment/quality.c - how far a challenger's predictions are from A's (experiment.h). */
#include "advisor/experiment/experiment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* mean +- t * se, with (windows - 1) degrees of freedom. */
static struct interval interval_from_se(double mean, double se, int64_t windows)
{
    const double half = windows > 1 ? stats_t_quantile(0.975, (double)(windows - 1)) * se : NAN;
    return (struct interval){ mean, mean - half, mean + half };
}

static struct interval interval_exp(struct interval i)
{
    return (struct interval){ exp(i.estimate), exp(i.lower), exp(i.upper) };
}

void quality_of(struct quality *q, const struct divergence *d, const char *text, int ctx)
{
    const int64_t windows = d->candidate.chunks;
    const char *slash = strrchr(text, '/');
    *q = (struct quality){ .known = true, .ctx = ctx, .figures = *d };
    snprintf(q->text, sizeof(q->text), "%s", slash ? slash + 1 : text);
    q->kld = interval_from_se(d->kld_mean, d->kld_se, windows);
    if (q->kld.lower < 0) q->kld.lower = 0;
    q->top1 = (struct interval){ d->top1_ratio, d->top1_lower, d->top1_upper };
    q->ppl = interval_exp(interval_from_se(d->candidate.nll, d->candidate.nll_se, windows));
    q->ppl_ratio = interval_exp(interval_from_se(d->log_ratio, d->log_ratio_se, windows));
    q->mcnemar_p = stats_mcnemar(d->only_reference_right, d->only_candidate_right);
}

static void put_bounds(json_t *o, const char *name, struct interval i)
{
    char key[48];
    snprintf(key, sizeof(key), "%s_lower", name);
    json_put_num(o, key, i.lower);
    snprintf(key, sizeof(key), "%s_upper", name);
    json_put_num(o, key, i.upper);
}

json_t *quality_to_json(const struct quality *q)
{
    if (!q->known && !q->bytes.pieces) return json_null();
    json_t *o = q->known ? divergence_to_json(&q->figures) : json_object();
    json_put_str(o, "file", q->text);
    json_put_str(o, "text_sha256", *q->text_sha256 ? q->text_sha256 : NULL);
    json_put_int(o, "ctx", q->ctx);
    if (!q->known) {
        byte_comparison_put_json(o, &q->bytes);
        json_put_str(o, "tokens_differ", q->missing);
        return o;
    }
    put_bounds(o, "kld", q->kld);
    put_bounds(o, "perplexity", q->ppl);
    json_put_num(o, "ppl_ratio", q->ppl_ratio.estimate);
    put_bounds(o, "ppl_ratio", q->ppl_ratio);
    json_put_num(o, "mcnemar_p", q->mcnemar_p);
    return o;
}

void quality_from_json(struct quality *q, const json_t *object)
{
    struct divergence d;
    *q = (struct quality){ 0 };
    if (!json_is_object(object)) return;
    divergence_from_json(&d, object);
    quality_of(q, &d, json_get_str(object, "file", ""), (int)json_get_int(object, "ctx", -1));
    byte_comparison_from_json(&q->bytes, object);
    if (q->bytes.pieces) {
        q->known = false;
        q->bits_change = interval_from_se(q->bytes.change, q->bytes.change_se, q->bytes.pieces);
        snprintf(q->missing, sizeof q->missing, "%.*s", (int)sizeof q->missing - 1,
                 json_get_str(object, "tokens_differ", ""));
    }
    snprintf(q->text_sha256, sizeof q->text_sha256, "%s", json_get_str(object, "text_sha256", ""));
}

/* ---------------------------------------------------------------- measuring */

static int window_of(const struct quality_spec *s)
{
    return s->ctx > 0 ? s->ctx : 512;
}

enum err_code quality_measure(struct quality *q, const struct arm_spec *arm, const struct quality_spec *spec,
                              arm_event_fn *event, void *ctx, struct err *why)
{
    struct arm_spec wide = *arm;
    struct arm *a = NULL;
    *q = (struct quality){ 0 };
    wide.ctx = window_of(spec);
    wide.sequences = 1;
    enum err_code rc = arm_open(&a, &wide, event, ctx, why);
    if (rc) return rc;
    json_t *answer = NULL;
    rc = arm_quality(a, spec, &answer, event, ctx, why);
    if (!rc) quality_from_json(q, json_object_get(answer, "quality"));
    if (!rc && !q->known && !q->bytes.pieces)
        rc = err_set(why, ERR_INTERNAL, "the worker gave no figures of quality");
    json_decref(answer);
    arm_close(a);
    return rc;
}
