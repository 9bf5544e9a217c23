/* advisor/experiment/joint.c - one verdict over speed, memory, energy and quality (experiment.h). */
#include "advisor/experiment/experiment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"

static const char *const AXES[JOINT_AXES] = { "speed", "memory", "energy", "quality" };
static const char *const WORDS[] = {
    [JOINT_UNMEASURED] = "not measured", [JOINT_OPEN] = "open",
    [JOINT_BETTER] = "better",           [JOINT_WORSE] = "worse",
    [JOINT_EQUIVALENT] = "equivalent",   [JOINT_NONINFERIOR] = "non-inferior",
};
static const char *const RELATIONS[] = {
    [JOINT_UNRESOLVED] = "unresolved", [JOINT_DOMINATES] = "dominates", [JOINT_DOMINATED] = "dominated",
    [JOINT_TRADE] = "trade-off",       [JOINT_SAME] = "equivalent",
};

const char *joint_word_name(enum joint_word w)
{
    return (size_t)w < COUNT_OF(WORDS) ? WORDS[w] : "";
}

const char *joint_relation_name(enum joint_relation r)
{
    return (size_t)r < COUNT_OF(RELATIONS) ? RELATIONS[r] : "";
}

/* ---------------------------------------------------------------- one axis */

/* The claims that an interval of gains allows; several may hold. All false: none. */
struct claim {
    bool measured, better, worse, no_worse, no_better;
};

/* Any difference in bits makes a divergence exclude 0, and the peak memory of a process hardly varies over
 * its blocks but from one process to the next: for these axes a bound must exceed the margin. */
static struct claim claim_of(struct interval g, double margin, enum joint_axis axis)
{
    struct claim c = { .measured = !isnan(g.estimate) };
    const bool exact = axis == JOINT_QUALITY || axis == JOINT_MEMORY;
    const double least = exact ? margin : 0;           /* that a bound must exceed */
    c.better = g.lower > least && g.estimate > margin; /* all false for NAN */
    c.worse = g.upper < -least && g.estimate < -margin;
    c.no_worse = g.lower >= -margin || c.better;
    c.no_better = g.upper <= margin || c.worse;
    return c;
}

static enum joint_word word_of(struct claim c)
{
    if (!c.measured) return JOINT_UNMEASURED;
    if (c.better) return JOINT_BETTER;
    if (c.worse) return JOINT_WORSE;
    if (c.no_worse && c.no_better) return JOINT_EQUIVALENT;
    return c.no_worse ? JOINT_NONINFERIOR : JOINT_OPEN;
}

static struct interval gain_between(const struct joint_input *in, int i, int j, int axis)
{
    static const struct interval ZERO = { 0, 0, 0 };
    const struct interval a = i ? in->gain[i][axis] : ZERO, b = j ? in->gain[j][axis] : ZERO;
    return (struct interval){ a.estimate - b.estimate, a.lower - b.upper, a.upper - b.lower };
}

/* ---------------------------------------------------------------- two arms */

/* An axis that was measured for neither arm does not count. An axis that is open leaves the relation open,
 * and so does an unmeasured speed: without it there is no joint verdict. */
static enum joint_relation relation_of(const struct joint_input *in, int i, int j)
{
    bool better = false, worse = false, no_worse = true, no_better = true;
    for (int axis = 0; axis < JOINT_AXES; axis++) {
        const struct claim c = claim_of(gain_between(in, i, j, axis), in->margin[axis], axis);
        if (!c.measured && axis != JOINT_SPEED) continue;
        better |= c.better;
        worse |= c.worse;
        no_worse &= c.no_worse;
        no_better &= c.no_better;
    }
    if (better && worse) return JOINT_TRADE;
    if (better && no_worse) return JOINT_DOMINATES;
    if (worse && no_better) return JOINT_DOMINATED;
    return no_worse && no_better ? JOINT_SAME : JOINT_UNRESOLVED;
}

static void find_front(struct joint *j)
{
    for (int i = 0; i < j->arms; i++) {
        j->front[i] = FRONT_YES;
        for (int k = 0; k < j->arms; k++) {
            if (k == i) continue;
            if (j->relation[i][k] == JOINT_UNRESOLVED && j->front[i] == FRONT_YES) j->front[i] = FRONT_OPEN;
            if (j->relation[i][k] == JOINT_DOMINATED) j->front[i] = FRONT_NO;
        }
    }
}

/* ---------------------------------------------------------------- the sentence */

/* Prints a gain as the change of the metric itself: less time to the first token is a gain, printed with a
 * minus. */
static struct interval of_metric(struct interval gain, int metric)
{
    return stats_turned(gain, METRICS[metric].better);
}

static const char *noun_of(int metric)
{
    static const struct {
        int metric;
        const char *noun;
    } NOUNS[] = { { METRIC_DECODE_RATE, "decode" },
                  { METRIC_PREFILL_RATE, "prefill" },
                  { METRIC_PEAK_MEMORY, "memory" },
                  { METRIC_ENERGY, "energy" } };
    for (size_t i = 0; i < COUNT_OF(NOUNS); i++)
        if (NOUNS[i].metric == metric) return NOUNS[i].noun;
    return METRICS[metric].name;
}

static void sentence_add_ratio(struct str *s, const struct joint_input *in, int arm, int axis,
                               enum joint_word word)
{
    const struct interval g = of_metric(in->gain[arm][axis], in->metric[axis]);
    const double shown = stats_is_vague(g, NAN) ? stats_proven(g) : g.estimate;
    const char *noun = noun_of(in->metric[axis]);
    if (word == JOINT_UNMEASURED && axis != JOINT_SPEED) return;
    if (s->len) str_append(s, ", ");
    switch (word) {
    case JOINT_UNMEASURED: str_append(s, in->invalid ? "speed not compared" : "speed not measured"); break;
    case JOINT_BETTER:
    case JOINT_WORSE:
        str_printf(s, "%s%+.*f %% %s", stats_is_vague(g, NAN) ? "at least " : "",
                   fabs(stats_percent(shown)) < 10, stats_percent(shown), noun);
        break;
    case JOINT_EQUIVALENT: str_printf(s, "same %s", noun); break;
    case JOINT_NONINFERIOR: str_printf(s, "%s no worse", noun); break;
    default:
        if (isnan(g.lower))
            str_printf(s, "%s open", noun);
        else
            str_printf(s, "%s open (%+.1f to %+.1f %%)", noun, stats_percent(g.lower),
                       stats_percent(g.upper));
    }
}

static void sentence_add_quality(struct str *s, const struct joint_input *in, enum joint_word word)
{
    const double margin = in->margin[JOINT_QUALITY];
    if (s->len) str_append(s, "; ");
    switch (word) {
    case JOINT_UNMEASURED: str_append(s, "quality not measured"); break;
    case JOINT_WORSE: str_printf(s, "quality not within %.3g KLD", margin); break;
    case JOINT_OPEN: str_printf(s, "quality within %.3g KLD or not: open", margin); break;
    default: str_printf(s, "quality within %.3g KLD", margin);
    }
}

static const char *relation_text(enum joint_relation r)
{
    switch (r) {
    case JOINT_DOMINATES: return "better, and nothing measured is worse";
    case JOINT_DOMINATED: return "worse, and nothing measured is better";
    case JOINT_TRADE: return "a trade";
    case JOINT_SAME: return "no difference that matters";
    default: return "not decided yet";
    }
}

static void sentence_write(struct joint *j, const struct joint_input *in, int arm)
{
    struct str s = { 0 };
    const char *begin = in->invalid ? "no verdict, because " : "",
               *end = in->invalid ? in->invalid : relation_text(j->relation[arm][0]);
    for (int axis = 0; axis < JOINT_QUALITY; axis++)
        sentence_add_ratio(&s, in, arm, axis, j->word[arm][axis]);
    sentence_add_quality(&s, in, j->word[arm][JOINT_QUALITY]);
    snprintf(j->sentence[arm], sizeof(j->sentence[arm]), "%.120s: %s: %s%s",
             in->label[arm] ? in->label[arm] : "", str_text(&s), begin, end);
    str_free(&s);
}

void joint_of(struct joint *out, const struct joint_input *in)
{
    *out = (struct joint){ .arms = in->arms, .input = *in };
    for (int i = 0; i < in->arms; i++) {
        out->input.label[i] = NULL;
        for (int axis = 0; axis < JOINT_AXES && i; axis++)
            out->word[i][axis] = word_of(claim_of(in->gain[i][axis], in->margin[axis], axis));
        for (int k = 0; k < in->arms; k++) out->relation[i][k] = i == k ? JOINT_SAME : relation_of(in, i, k);
        if (i) sentence_write(out, in, i);
    }
    find_front(out);
}

/* ---------------------------------------------------------------- JSON */

static json_t *axis_json(const struct joint *j, int arm, int axis)
{
    const struct interval gain = j->input.gain[arm][axis];
    json_t *o = json_object();
    if (axis == JOINT_QUALITY) {
        json_put_str(o, "metric", METRICS[METRIC_KLD].name);
        json_put_num(o, METRICS[METRIC_KLD].name, -gain.estimate);
        json_put_num(o, "lower", -gain.upper);
        json_put_num(o, "upper", -gain.lower);
    } else {
        const struct interval g = of_metric(gain, j->input.metric[axis]);
        json_put_str(o, "metric", METRICS[j->input.metric[axis]].name);
        json_put_num(o, "ratio", exp(g.estimate));
        json_put_num(o, "lower", exp(g.lower));
        json_put_num(o, "upper", exp(g.upper));
    }
    json_put_num(o, "margin", j->input.margin[axis]);
    json_put_str(o, "word", joint_word_name(j->word[arm][axis]));
    return o;
}

json_t *joint_to_json(const struct joint *j)
{
    static const char *const FRONTS[] = { "open", "yes", "no" };
    json_t *o = json_object(), *arms = json_array(), *relations = json_array();
    for (int i = 0; i < j->arms; i++) {
        const char name[2] = { (char)('a' + i), 0 };
        json_t *a = json_object(), *row = json_array();
        json_put_str(a, "arm", name);
        json_put_str(a, "front", FRONTS[j->front[i]]);
        if (i) {
            json_t *axes = json_object();
            for (int axis = 0; axis < JOINT_AXES; axis++) json_put(axes, AXES[axis], axis_json(j, i, axis));
            json_put(a, "axes", axes);
            json_put_str(a, "against_a", joint_relation_name(j->relation[i][0]));
            json_put_str(a, "sentence", j->sentence[i]);
        }
        for (int k = 0; k < j->arms; k++)
            json_array_append_new(row, json_string(joint_relation_name(j->relation[i][k])));
        json_array_append_new(relations, row);
        json_array_append_new(arms, a);
    }
    json_put(o, "arms", arms);
    json_put(o, "relations", relations);
    return o;
}
