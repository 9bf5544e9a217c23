/* advisor/advise/reasons.c - why a configuration is listed, what to beware of, and the loss that earlier runs
 * measured of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/adviser.h"
#include "base/cut/cut.h"

static void reason_append(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void reason_append(struct str *s, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) {
        memory_short_set();
        return;
    }
    if (s->len) str_append(s, "; ");
    str_append(s, text);
    free(text);
}

static void reason_add_evidence(const struct adviser *a, const struct advice *v, struct str *s)
{
    char elsewhere[768];
    const struct evidence *e = a->o->evidence;
    if (v->prediction.on_gpu || !e) return;
    const bool faster = e->found.candidate_rate > e->found.current_rate;
    if (v->found && !e->found.better && faster)
        reason_append(s,
                      "kept by the newest search, run %lld, which timed %.3g tok/s of it and %.3g of %s, but "
                      "did not prove that faster%s%s",
                      (long long)e->found.run, e->found.current_rate, e->found.candidate_rate,
                      e->found.candidate, *e->found.load ? ", on a busy machine: " : "", e->found.load);
    else if (v->found)
        reason_append(s, "%s by the newest search, run %lld%s%s",
                      e->found.better ? "found and confirmed" : "kept as the best", (long long)e->found.run,
                      *e->found.load ? ", on a busy machine: " : "", e->found.load);
    else if (faster && !e->found.better && e->found.run && !strcmp(v->line, e->found.candidate))
        reason_append(s, "the newest search, run %lld, timed %.3g tok/s of it (%.3g of %s), unconfirmed",
                      (long long)e->found.run, e->found.candidate_rate, e->found.current_rate, e->found.line);
    if (v->decode.cells)
        reason_append(s,
                      "measured in %d run%s, the newest is run %lld, without its %d of %d disturbed "
                      "measurements (%.2f tok/s with them)",
                      v->decode.runs, v->decode.runs > 1 ? "s" : "", (long long)v->decode.run[0],
                      v->decode.disturbed, v->decode.cells, v->decode.with_disturbed);
    else if (v->decode.runs)
        reason_append(s, "measured in %d run%s, the newest is run %lld", v->decode.runs,
                      v->decode.runs > 1 ? "s" : "", (long long)v->decode.run[0]);
    else if (*evidence_elsewhere(e, v->line, v->prediction.depth, elsewhere, sizeof elsewhere))
        reason_append(s, "predicted for %d tokens in the cache; measured: %s", v->prediction.depth,
                      elsewhere);
}

void advice_set_reason(const struct adviser *a, struct advice *v)
{
    struct prediction own = v->prediction;
    const struct prediction *p = &own, *r = &a->predicted;
    char now[16], then[16];
    struct str s = { 0 };
    struct err ignored;
    /* measured rates replaced the predicted ones; a ratio of a measured to a predicted rate says nothing */
    if ((v->decode.runs || v->prefill.runs) &&
        adviser_predict(a, &own, &v->config, v->prediction.on_gpu, &ignored))
        own = v->prediction;
    reason_add_evidence(a, v, &s);
    str_from_bytes(p->plan.decode_read_bytes, now, sizeof(now));
    str_from_bytes(r->plan.decode_read_bytes, then, sizeof(then));
    if (strcmp(config_text(&v->config, KNOB_FORMAT), "file")) {
        if (p->in_cache)
            reason_append(
                &s,
                v->decode.runs
                    ? "%s of weights per token instead of %s, all in the cache"
                    : "%s of weights per token instead of %s, all in the cache: the gain is uncertain, measure it",
                now, then);
        else if (p->decode_bound_by_memory)
            reason_append(
                &s, "decode is limited by memory: %s per token instead of %s, about %.1f times the speed",
                now, then, p->decode_tok_s.estimate / r->decode_tok_s.estimate);
        else
            reason_append(&s, "%s per token instead of %s, but arithmetic becomes the limit", now, then);
    }
    if (v->config.given[KNOB_CTK] || v->config.given[KNOB_CTV]) {
        str_from_bytes(p->plan.kv, now, sizeof(now));
        str_from_bytes(r->plan.kv, then, sizeof(then));
        reason_append(&s, "KV cache of %s instead of %s at %d tokens", now, then, p->plan.ctx);
    }
    struct prediction other;
    if (v->config.given[KNOB_PRECISION] &&
        adviser_predict_with(a, &other, &v->config, "precision", KNOBS[KNOB_PRECISION].otherwise))
        reason_append(&s, "precision=%s: prefill about %.1f times as fast, decode %.1f times",
                      config_text(&v->config, KNOB_PRECISION),
                      p->prefill_tok_s.estimate / other.prefill_tok_s.estimate,
                      p->decode_tok_s.estimate / other.decode_tok_s.estimate);
    const int threads = (int)config_int(&v->config, KNOB_THREADS);
    if (threads && adviser_predict_with(a, &other, &v->config, "threads", "0"))
        reason_append(&s, "%d of %d cores are predicted to reach %.0f %% of the decode rate of all cores",
                      threads, machine_usable_cores(a->machine),
                      100 * p->decode_tok_s.estimate / other.decode_tok_s.estimate);
    if (!s.len) {
        if (p->in_cache)
            reason_append(
                &s, "the unchanged file: its %s of weights stay in the cache, so arithmetic is the limit",
                now);
        else
            reason_append(&s, "the unchanged file: each token reads %s, and %s is the limit", now,
                          p->decode_bound_by_memory ? "memory" : "arithmetic");
    }
    text_cut(v->reason, sizeof v->reason, str_text(&s));
    str_free(&s);
}

static const struct answer_kld *advice_measured_kld(const struct adviser *a, const struct config *c)
{
    return a->o->answer_klds ? answer_klds_find(a->o->answer_klds, c) : NULL;
}

/* The command that measures the loss, ready to be run. */
static void put_measure(const struct adviser *a, const struct advice *v, struct str *s)
{
    str_append(s, " (measure it: qdyno eval -m ");
    word_append(s, a->path);
    str_append(s, " -C ");
    word_append(s, v->line);
    str_append(s, " --ref default)");
}

/* A loss on another text than the model's does not compare with the others: say how to get one that does. */
static void reason_add_foreign(const struct adviser *a, const struct advice *v, const struct answer_kld *l,
                               struct str *s)
{
    const struct quality_text *t = &a->o->answer_klds->text;
    char measured[TEXT_LABEL], usual[TEXT_LABEL];
    const bool changed = !strcmp(l->text.name, t->name);
    reason_append(s, "changes answers: KL divergence measured on %s (run %lld); this model's text is %s%s",
                  quality_text_label(measured, l->text.name, l->text.sha256), (long long)l->run_id,
                  quality_text_label(usual, t->name, t->sha256), changed ? ", which has changed since" : "");
    put_measure(a, v, s);
}

static void reason_add_kld(const struct adviser *a, const struct advice *v, struct str *s)
{
    if (!config_changes_answers(&v->config)) return;
    const struct answer_kld *l = advice_measured_kld(a, &v->config);
    char text[TEXT_LABEL];
    if (!l) {
        reason_append(s, "changes answers: quality not measured");
        put_measure(a, v, s);
    } else if (l->foreign) {
        reason_add_foreign(a, v, l, s);
    } else {
        reason_append(s, "changes answers: KL divergence %.2g nats on %s, measured by run %lld%s", l->kld,
                      quality_text_label(text, l->text.name, l->text.sha256), (long long)l->run_id,
                      adviser_kld_penalty(a, l->kld) > 0 ? ", above the limit" : "");
    }
}

void advice_set_caution(const struct adviser *a, struct advice *v)
{
    struct str s = { 0 };
    char need[16], have[16];
    if (!v->prediction.fits)
        reason_append(&s, "does not fit: needs %s, available %s",
                      str_from_bytes(v->prediction.plan.total, need, sizeof(need)),
                      str_from_bytes(a->o->memory_limit > 0
                                         ? a->o->memory_limit
                                         : predict_memory(a->machine, a->ceilings, v->prediction.on_gpu),
                                     have, sizeof(have)));
    if (v->prediction.on_gpu)
        reason_append(&s, "predicted for the GPU from its vendor's figures; qdyno did not measure it");
    if (a->o->target_tok_s > 0 && v->prediction.decode_tok_s.upper < a->o->target_tok_s)
        reason_append(&s, "cannot reach %.3g tokens/s here", a->o->target_tok_s);
    else if (a->o->target_tok_s > 0 && v->prediction.decode_tok_s.lower < a->o->target_tok_s)
        reason_append(&s, "%s miss %.3g tokens/s",
                      v->prediction.decode_tok_s.estimate < a->o->target_tok_s ? "will probably" : "may",
                      a->o->target_tok_s);
    reason_add_kld(a, v, &s);
    if (a->shape.random_weights)
        reason_append(&s, "the model has random weights: quality figures mean nothing");
    text_cut(v->caution, sizeof v->caution, str_text(&s));
    str_free(&s);
}

void advice_set_loss(const struct adviser *a, struct advice *v)
{
    const bool same = !config_changes_answers(&v->config);
    const struct answer_kld *l = same ? NULL : advice_measured_kld(a, &v->config);
    v->kld = same ? 0 : l && !l->foreign ? l->kld : (double)NAN;
    v->foreign = l && l->foreign;
    v->foreign_kld = l && l->foreign ? l->kld : (double)NAN;
    char text[TEXT_LABEL];
    if (l) text_cut(v->text, sizeof v->text, quality_text_label(text, l->text.name, l->text.sha256));
}
