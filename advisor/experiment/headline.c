/* advisor/experiment/headline.c - the result of an experiment in words: one to three sentences, its blocks,
 * its noise (experiment.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/experiment/parts.h"

/* How a sentence names a change of a metric: "is 8 % faster at decoding". */
struct wording {
    int metric;
    const char *verb, *past, *open; /* "is", "has a"; "was"; of an undecided change: "may be" */
    const char *more, *less;        /* of the number itself: "faster", "slower" */
    const char *what, *noun;        /* "at decoding", "speed" */
};
static const struct wording WORDINGS[] = {
    { .metric = METRIC_DECODE_RATE,
      .verb = "is",
      .past = "was",
      .open = "may be",
      .more = "faster",
      .less = "slower",
      .what = "at decoding",
      .noun = "speed" },
    { .metric = METRIC_PREFILL_RATE,
      .verb = "is",
      .past = "was",
      .open = "may be",
      .more = "faster",
      .less = "slower",
      .what = "at prompts",
      .noun = "speed" },
    { .metric = METRIC_TOTAL_RATE,
      .verb = "delivers",
      .past = "delivered",
      .open = "may deliver",
      .more = "more",
      .less = "fewer",
      .what = "tokens per second of all sequences",
      .noun = "rate of all sequences" },
    { .metric = METRIC_SEQUENCE_RATE,
      .verb = "delivers",
      .past = "delivered",
      .open = "may deliver",
      .more = "more",
      .less = "fewer",
      .what = "tokens per second and sequence",
      .noun = "rate per sequence" },
    { .metric = METRIC_TRAIN_RATE,
      .verb = "is",
      .past = "was",
      .open = "may be",
      .more = "faster",
      .less = "slower",
      .what = "at training",
      .noun = "speed" },
    { .metric = METRIC_TTFT,
      .verb = "has a",
      .past = "had a",
      .open = "may have a",
      .more = "longer",
      .less = "shorter",
      .what = "time to first token",
      .noun = "time to first token" },
    { .metric = METRIC_OUT_RATE,
      .verb = "is",
      .past = "was",
      .open = "may be",
      .more = "faster",
      .less = "slower",
      .what = "at serving",
      .noun = "serving speed" },
    { .metric = METRIC_E2E,
      .verb = "has a",
      .past = "had a",
      .open = "may have a",
      .more = "longer",
      .less = "shorter",
      .what = "time per request",
      .noun = "time per request" },
    { .metric = METRIC_GOODPUT,
      .verb = "has a",
      .past = "had a",
      .open = "may have a",
      .more = "higher",
      .less = "lower",
      .what = "goodput",
      .noun = "goodput" },
    { .metric = METRIC_PEAK_MEMORY,
      .verb = "takes",
      .past = "took",
      .open = "may take",
      .more = "more",
      .less = "less",
      .what = "memory",
      .noun = "memory" },
    { .metric = METRIC_ENERGY,
      .verb = "takes",
      .past = "took",
      .open = "may take",
      .more = "more",
      .less = "less",
      .what = "energy per token",
      .noun = "energy per token" },
    { .metric = METRIC_PERPLEXITY,
      .verb = "has a",
      .past = "had a",
      .open = "may have a",
      .more = "higher",
      .less = "lower",
      .what = "perplexity",
      .noun = "perplexity" },
};

static struct wording wording_of(const struct metric *m)
{
    for (size_t i = 0; i < COUNT_OF(WORDINGS); i++)
        if (&METRICS[WORDINGS[i].metric] == m) return WORDINGS[i];
    return (struct wording){ .metric = -1,
                             .verb = "has a",
                             .past = "had a",
                             .open = "may have a",
                             .more = "higher",
                             .less = "lower",
                             .what = m->name,
                             .noun = m->name };
}

/* As many digits as a reader needs: 19, 8.1, 0.42. */
static void put_percent(struct str *s, double value, bool sign)
{
    const double size = fabs(value);
    const int digits = size >= 9.95 ? 0 : size >= 0.995 ? 1 : 2;
    str_printf(s, sign ? "%+.*f" : "%.*f", digits, value);
}

/* " (95 %: 16 to 23 %)": sizes where the sign is certain, else signed changes; "" for unknown bounds. */
static void put_interval(struct str *s, struct interval change, double alpha)
{
    const bool falls = change.estimate < 0, certain = stats_proven(change) != 0;
    const double sign = falls && certain ? -1 : 1;
    if (!isfinite(change.lower) || !isfinite(change.upper)) return;
    str_printf(s, " (%.3g %%: ", 100 * (1 - alpha));
    put_percent(s, sign * stats_percent(sign < 0 ? change.upper : change.lower), !certain);
    str_append(s, " to ");
    put_percent(s, sign * stats_percent(sign < 0 ? change.lower : change.upper), !certain);
    str_append(s, " %)");
}

/* "19 %", or "at least 0.3 %" where the middle of the interval says more than is proven. */
static void put_size(struct str *s, struct interval change, double noise_floor)
{
    const bool vague = stats_is_vague(change, noise_floor);
    if (vague) str_append(s, "at least ");
    put_percent(s, fabs(stats_percent(vague ? stats_proven(change) : change.estimate)), false);
    str_append(s, " %");
}

void experiment_put_change(struct str *s, struct interval change, double noise_floor, double alpha,
                           const struct change_words *w)
{
    put_size(s, change, noise_floor);
    str_printf(s, " %s%s%s", change.estimate < 0 ? w->less : w->more, *w->what ? " " : "", w->what);
    put_interval(s, change, alpha);
}

/* " has an", where the size is spoken with a vowel: 8, 11, 18, 80 to 89 and "at least". */
static void put_verb(struct str *s, const char *verb, struct interval change, double noise_floor)
{
    struct str size = { 0 };
    put_size(&size, change, noise_floor);
    const char *text = str_text(&size);
    const size_t digits = strspn(text, "0123456789");
    const bool vowel = *text == 'a' || *text == '8' ||
                       (digits == 2 && (str_starts(text, "11") || str_starts(text, "18")));
    str_printf(s, "%s%s ", verb, str_ends(verb, " a") && vowel ? "n" : "");
    str_free(&size);
}

static void put_change(struct str *s, struct wording w, struct interval change, double noise_floor,
                       double alpha)
{
    experiment_put_change(s, change, noise_floor, alpha, &(struct change_words){ w.more, w.less, w.what });
}

/* A change whose interval is not known yet, because the blocks are too few: what they have in common. */
static void put_blocks_so_far(struct str *s, const struct experiment_state *x, struct wording w,
                              const struct comparison *c)
{
    double sum = 0, low = INFINITY, high = -INFINITY;
    int up = 0;
    for (int i = 0; i < c->blocks; i++) {
        const double change = experiment_change_of(x, c->d[i]);
        sum += change;
        up += change > 0;
        low = fmin(low, change);
        high = fmax(high, change);
    }
    const double mean = sum / c->blocks, size = fabs(mean);
    const char *word = mean < 0 ? w.less : w.more;
    if (up == 0 || up == c->blocks) {
        str_printf(s, " %s%s about ", w.past, str_ends(w.past, " a") ? "n" : "");
        if (size >= log(3))
            str_printf(s, "%.2g times", exp(size));
        else
            put_size(s, (struct interval){ mean, NAN, NAN }, NAN);
        str_printf(s, " %s %s in ", word, w.what);
        if (c->blocks == 1)
            str_append(s, "the only block so far");
        else
            str_printf(s, "all %d blocks", c->blocks);
    } else {
        str_printf(s, " %s %s %s in %d of %d block%s and %s in the others (", w.past, w.more, w.what, up,
                   c->blocks, str_plural(c->blocks), w.less);
        put_percent(s, stats_percent(low), true);
        str_append(s, " to ");
        put_percent(s, stats_percent(high), true);
        str_append(s, " %)");
    }
    char needed[BLOCKS_NEEDED_TEXT];
    if (*experiment_blocks_needed_text(needed, x, c)) str_printf(s, "; a verdict needs %s", needed);
}

/* Whether a difference that is proven may still be one that does not matter: its interval reaches below the
 * margin. */
static bool margin_is_open(const struct experiment_state *x, const struct comparison *c, enum verdict verdict)
{
    return (verdict == VERDICT_BETTER || verdict == VERDICT_WORSE) &&
           fabs(stats_proven(c->effect)) <= x->spec.margin;
}

/* " (the estimate is 8.6 %, and whether the difference is more than the margin of 1 % is not decided)". The
 * estimate is what tables and the history show: it is named where the size is only what is proven. */
static void put_margin_open(struct str *s, const struct experiment_state *x, const struct comparison *c,
                            enum verdict verdict)
{
    const bool vague = stats_is_vague(c->effect, x->noise_floor), open = margin_is_open(x, c, verdict);
    if (!vague && !open) return;
    str_append(s, vague ? " (the estimate is " : " (");
    if (vague) put_percent(s, fabs(stats_percent(experiment_change(x, c->effect).estimate)), false);
    if (vague) str_append(s, open ? " %, and " : " %");
    if (open)
        str_printf(s, "whether the difference is more than the margin of %.3g %% is not decided",
                   100 * x->spec.margin);
    str_append(s, ")");
}

/* Append the effect of the arm, relative to A, in words that fit its verdict: " takes 12 % less memory". */
static void put_effect(struct str *s, const struct experiment_state *x, const struct comparison *c,
                       enum verdict verdict)
{
    const struct metric *m = experiment_metric(&x->spec);
    const struct wording w = wording_of(m);
    const struct interval e = c->effect, change = experiment_change(x, e);
    if (verdict == VERDICT_BETTER || verdict == VERDICT_WORSE || verdict == VERDICT_NEGLIGIBLE) {
        str_append(s, " ");
        put_verb(s, w.verb, change, x->noise_floor);
        put_change(s, w, change, x->noise_floor, c->alpha);
        put_margin_open(s, x, c, verdict);
        if (verdict == VERDICT_NEGLIGIBLE)
            str_printf(s, ", less than the margin of %.3g %%", 100 * x->spec.margin);
    } else if (verdict == VERDICT_EQUIVALENT) {
        str_printf(s, " %s neither %s nor %s %s by more than %.3g %%", w.verb, w.more, w.less, w.what,
                   100 * x->spec.margin);
    } else if (change.lower > 0 || change.upper < 0) {
        /* The interval excludes 0, but there is no verdict yet, mostly because the experiment is still
         * running. */
        str_append(s, " so far ");
        put_verb(s, w.verb, change, x->noise_floor);
        put_change(s, w, change, x->noise_floor, c->alpha);
    } else if (isfinite(e.lower) && isfinite(e.upper)) {
        str_printf(s, " %s %s or %s %s", w.open, w.more, w.less, w.what);
        put_interval(s, change, c->alpha);
    } else if (c->blocks > 0) {
        put_blocks_so_far(s, x, w, c);
    } else {
        str_printf(s, " %s %s or %s %s", w.open, w.more, w.less, w.what);
    }
}

/* " (134M against 132M on average)": tables show the largest value; averages of the same blocks are compared
 */
static void put_memory_of_blocks(struct str *s, const struct experiment_state *x, int arm, int metric)
{
    const double own = x->arm[arm].mean[metric - METRIC_SENSOR_COUNT].estimate,
                 a = x->arm[0].mean[metric - METRIC_SENSOR_COUNT].estimate;
    char bytes[2][32];
    if (metric != METRIC_PEAK_MEMORY || !(own > 0) || !(a > 0)) return;
    str_printf(s, " (%s against %s on average)", str_from_bytes(metric_bytes(own), bytes[0], sizeof bytes[0]),
               str_from_bytes(metric_bytes(a), bytes[1], sizeof bytes[1]));
}

/* The other axes of the joint verdict, as far as they are measured. */
static void put_other_axes(struct str *s, const struct experiment_state *x, const struct joint *j, int arm)
{
    const struct metric *m = experiment_metric(&x->spec);
    for (int axis = 0; axis < JOINT_QUALITY; axis++) {
        const int metric = j->input.metric[axis];
        const struct interval g = j->input.gain[arm][axis];
        const struct interval change = stats_turned(g, METRICS[metric].better);
        if (&METRICS[metric] == m) continue;
        const struct wording w = wording_of(&METRICS[metric]);
        switch (j->word[arm][axis]) {
        case JOINT_BETTER:
        case JOINT_WORSE:
            str_append(s, ", ");
            put_verb(s, w.verb, change, NAN);
            put_size(s, change, NAN);
            str_printf(s, " %s %s", change.estimate < 0 ? w.less : w.more, w.what);
            put_memory_of_blocks(s, x, arm, metric);
            break;
        case JOINT_EQUIVALENT:
            str_printf(s, ", with the same %s", w.noun);
            if (metric == METRIC_PEAK_MEMORY) str_printf(s, " within %.3g %%", 100 * j->input.margin[axis]);
            put_memory_of_blocks(s, x, arm, metric);
            break;
        default: break;
        }
    }
}

/* Of arms with workloads of their own: the rate that is not the compared one. */
static void put_other_rate(struct str *s, const struct experiment_state *x, const struct comparison *c)
{
    const bool total = experiment_metric(&x->spec) == &METRICS[METRIC_TOTAL_RATE];
    const int other = total ? METRIC_SEQUENCE_RATE : METRIC_TOTAL_RATE;
    const struct interval g = c->by_metric[other - METRIC_SENSOR_COUNT];
    if (!x->spec.by_arm || !isfinite(g.estimate)) return;
    const struct wording w = wording_of(&METRICS[other]);
    str_append(s, ", ");
    put_verb(s, w.verb, g, NAN);
    put_change(s, w, g, NAN, 0.05);
}

/* What the reader must know before believing it: the arms did not do the same. */
static void put_systems(struct str *s, const struct experiment_state *x)
{
    char line[EXPERIMENT_SENTENCE / 4];
    if (x->spec.as_systems)
        str_printf(s, " Compared as systems that do different work: %s.",
                   experiment_workload_line(&x->spec, line, sizeof(line)));
    if (x->tokens_differ)
        str_append(s, " Their tokenizers differ, so a token of one is not a token of the other.");
}

/* Bytes that a token stands for: what tokens/s of different tokenizers have to be multiplied by. */
static void put_bits_per_byte(struct str *s, const struct quality *q)
{
    char text[TEXT_LABEL];
    const struct byte_comparison *b = &q->bytes;
    str_printf(s, "; %.3f bits per byte of %s against %.3f", b->candidate,
               quality_text_label(text, q->text, q->text_sha256), b->reference);
    if (isfinite(q->bits_change.lower))
        str_printf(s, " (difference %+.3f, 95 %%: %+.3f to %+.3f; less is better)", b->change,
                   q->bits_change.lower, q->bits_change.upper);
    str_printf(s, ", %.2f bytes per token against %.2f", (double)b->bytes / (double)b->candidate_tokens,
               (double)b->bytes / (double)b->reference_tokens);
}

static void put_quality(struct str *s, const struct experiment_state *x, int arm)
{
    const struct quality *q = &x->comparison[arm].quality;
    const double limit = experiment_kld_margin(&x->spec);
    if (!q->known && q->bytes.pieces) {
        put_bits_per_byte(s, q);
        return;
    }
    if (!q->known) {
        str_append(s, x->spec.workload.train ? "" : "; quality not measured");
        return;
    }
    char text[TEXT_LABEL];
    char loss[24], most[24];
    int digits = 2; /* the bound has to look different from the value that it bounds */
    do {
        snprintf(loss, sizeof(loss), "%.*g", digits, q->kld.estimate);
        snprintf(most, sizeof(most), "%.*g", digits, q->kld.upper);
    } while (!strcmp(loss, most) && q->kld.upper > q->kld.estimate && ++digits < 6);
    str_printf(s, "; quality loss %s nats on %s%s", loss, quality_text_label(text, q->text, q->text_sha256),
               config_choice(&x->spec.config[arm], KNOB_REQUANTIZE) ? ", against the quantized file" : "");
    if (!isfinite(q->kld.upper)) return;
    str_printf(s, " (at most %s, %s the limit of %.3g)", most,
               q->kld.upper <= limit  ? "within"
               : q->kld.lower > limit ? "above"
                                      : "perhaps above",
               limit);
}

static void put_machine(struct str *s, const struct experiment_state *x)
{
    const double others = x->load[ESTIMAND_LOADED].others_busy;
    const int left_out = x->discarded;
    if (x->estimand == ESTIMAND_LOADED && x->disturbed) {
        str_append(s, " The machine was busy");
        if (isfinite(others)) str_printf(s, " (other programs used %.0f %% of its processors)", 100 * others);
        str_append(s, "; this is the result under that load.");
    } else if (left_out) {
        str_printf(s, " %d of %d block%s %s disturbed and %s not count.", left_out, x->blocks + left_out,
                   str_plural(x->blocks + left_out), left_out == 1 ? "was" : "were",
                   left_out == 1 ? "does" : "do");
    }
}

static void put_reaction(struct str *s, const struct experiment_state *x)
{
    if (experiment_load_reacts(x))
        str_printf(
            s,
            " Other programs had on average %.2g %s runnable tasks while %c ran than while A ran, so a part of "
            "the difference may be due to them.",
            fabs(x->load_reacts), x->load_reacts < 0 ? "fewer" : "more", 'A' + MAX(x->headline, 1));
}

static void put_next(struct str *s, const struct experiment_state *x, const struct comparison *c,
                     enum verdict verdict)
{
    if (verdict != VERDICT_INCONCLUSIVE && verdict != VERDICT_NONE) return;
    if (experiment_is_exact(&x->spec)) return; /* more time changes nothing */
    if (x->phase < PHASE_DONE && x->blocks_needed <= 0) return;
    if (isnan(stats_proven(c->effect)) && c->blocks_needed > 0)
        return; /* it is said with the blocks so far */
    char needed[BLOCKS_NEEDED_TEXT];
    if (x->phase == PHASE_QUALITY) /* no block follows */
        str_append(s, " Undecided when the blocks ended.");
    else if (*experiment_blocks_needed_text(needed, x, c))
        str_printf(s, " Undecided: a verdict needs %s.", needed);
    else
        str_append(s, " Undecided when the budget ended.");
}

/* " Gate failed (it asks for decode_tok_s >= 0.98*A)." with the conditions that decide; nothing without a
 * gate. */
static void put_gate(struct str *s, const struct experiment_state *x, int arm)
{
    struct gate g;
    struct gate_result r;
    if (!*x->spec.gate || gate_parse(&g, x->spec.gate, NULL)) return;
    claims_gate(&g, x, arm, &r);
    str_printf(s, " Gate %s",
               r.outcome == GATE_PASS   ? "passed"
               : r.outcome == GATE_FAIL ? "failed"
                                        : gate_outcome_name(r.outcome));
    int n = 0;
    for (int i = 0; i < r.terms && r.outcome != GATE_PASS; i++)
        if (r.row[i].outcome == r.outcome)
            str_printf(s, "%s%s", n++ ? ", " : " (it asks for ", g.term[i].text);
    str_append(s, n ? ")." : ".");
}

/* What was found of an arm. False: it has no verdict, and nothing more can be said. */
static bool put_result(struct str *s, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    const enum verdict verdict = experiment_verdict(x, arm);
    struct joint j;
    char line[CONFIG_LINE + WORKLOAD_LINE];
    str_printf(s, "%c (%.100s)", 'A' + arm, experiment_arm_line(x, arm, line, sizeof(line)));
    if (x->arm[arm].failed || verdict == VERDICT_INVALID) {
        const char *why = x->arm[arm].failed ? x->arm[arm].error : *c->reason ? c->reason : x->reason;
        str_printf(s, " has no verdict: %.300s", why);
        return false;
    }
    if (c->blocks < 1 && !experiment_is_exact(&x->spec)) { /* an exact comparison has no blocks */
        str_append(s, " has no verdict: no block was measured");
        if (x->comparison[arm].quality.known || x->comparison[arm].quality.bytes.pieces)
            put_quality(s, x, arm);
        return false;
    }
    claims_joint(&j, x);
    put_effect(s, x, c, verdict);
    put_other_rate(s, x, c);
    put_other_axes(s, x, &j, arm);
    put_quality(s, x, arm);
    str_append(s, ".");
    put_systems(s, x);
    put_gate(s, x, arm);
    return true;
}

static char *text_out(struct str *s, char *buf, size_t size)
{
    const char *text = str_text(s);
    snprintf(buf, size, "%s", text + strspn(text, " "));
    str_free(s);
    return buf;
}

char *experiment_sentence(char *buf, size_t size, const struct experiment_state *x, int arm)
{
    struct str s = { 0 };
    if (put_result(&s, x, arm)) {
        put_machine(&s, x);
        put_reaction(&s, x);
        put_next(&s, x, experiment_comparison(x, arm), experiment_verdict(x, arm));
    }
    return text_out(&s, buf, size);
}

/* ---------------------------------------------------------------- the end of the output */

static void put_evidence(struct str *s, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    if (x->spec.arms > 2 && c != &x->confirmation)
        str_printf(s, "evidence: %d block%s, each with all arms in turn; ", c->blocks, str_plural(c->blocks));
    else
        str_printf(s, "evidence: %d block%s, each with A and %c in turn; ", c->blocks, str_plural(c->blocks),
                   'A' + arm);
    if (isfinite(x->noise_floor))
        str_printf(s, "noise +-%.2g %% (A against itself in %d control block%s before these)",
                   stats_percent(x->noise_floor), x->control_blocks, str_plural(x->control_blocks));
    else
        str_append(s, "A was not compared with itself, so the noise is unknown");
    if (!margin_is_open(x, c, experiment_verdict(x, arm))) /* the result says what the margin means for it */
        str_printf(s, "; differences below the margin of %.3g %% do not matter", 100 * x->spec.margin);
}

static void put_conditions(struct str *s, const struct experiment_state *x)
{
    const bool loaded = x->estimand == ESTIMAND_LOADED;
    const double others = x->load[ESTIMAND_LOADED]
                              .others_busy; /* of all blocks; the other is of those that count */
    const int measured = x->complete > 0 ? x->complete : x->blocks + x->discarded;
    const int disturbed = x->complete > 0 ? x->disturbed : x->discarded;
    str_append(s, "conditions: ");
    if (!disturbed) {
        str_printf(s, "%s the %d block%s",
                   isnan(others) ? "no load was measured beside" : "nothing disturbed", measured,
                   str_plural(measured));
    } else {
        str_printf(s, "%d of %d block%s disturbed", disturbed, measured, str_plural(measured));
        others_put(s, x, others);
        str_append(s, loaded ? "; no block was left out, so this is the speed under that load"
                             : "; disturbed blocks were left out");
    }
    if (experiment_load_reacts(x)) str_append(s, ".");
    put_reaction(s, x);
}

void experiment_closing(struct experiment_closing *out, const struct experiment_state *x, int arm)
{
    struct str result = { 0 }, evidence = { 0 }, conditions = { 0 }, next = { 0 };
    *out = (struct experiment_closing){ 0 };
    if (put_result(&result, x, arm)) {
        if (experiment_verdict(x, arm) == VERDICT_INCONCLUSIVE) str_append(&result, " Undecided.");
        if (!experiment_is_exact(&x->spec)) {
            put_evidence(&evidence, x, arm);
            put_conditions(&conditions, x);
        }
    }
    experiment_put_command(&next, x, arm);
    text_out(&result, out->result, sizeof out->result);
    text_out(&evidence, out->evidence, sizeof out->evidence);
    text_out(&conditions, out->conditions, sizeof out->conditions);
    text_out(&next, out->next, sizeof out->next);
}

char *experiment_blocks_text(char buf[EXPERIMENT_BLOCKS_TEXT], const struct experiment_state *x)
{
    const bool loaded = x->estimand == ESTIMAND_LOADED;
    const int measured = x->blocks + x->discarded;
    const int n = snprintf(buf, EXPERIMENT_BLOCKS_TEXT, "%d block%s measured: ", measured,
                           str_plural(measured));
    if (loaded)
        snprintf(buf + n, EXPERIMENT_BLOCKS_TEXT - (size_t)n, "all used, %d of them disturbed", x->disturbed);
    else
        snprintf(buf + n, EXPERIMENT_BLOCKS_TEXT - (size_t)n, "%d used, %d left out as disturbed", x->blocks,
                 x->discarded);
    return buf;
}

char *experiment_noise_text(char buf[EXPERIMENT_BLOCKS_TEXT], const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    const double half = 0.5 * (c->effect.upper - c->effect.lower);
    buf[0] = '\0';
    if (x->noise_floor > half) /* false for NAN */
        snprintf(buf, EXPERIMENT_BLOCKS_TEXT, ": wide because it has so few; the comparison with %c has %d",
                 'A' + arm, c->blocks);
    return buf;
}
