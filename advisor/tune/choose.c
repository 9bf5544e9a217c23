/* advisor/tune/choose.c - which look at which configuration promises most for its time.
 *
 * Expected improvement (Mockus 1978) of the goal's score over the best so far, times the probability that the
 * answers stay within the limits, per second. Of the two looks a candidate needs, the one that is likelier to
 * rule it out for its cost comes first. */
#include "advisor/tune/parts.h"

#include <math.h>
#include <string.h>

/* Two per cent of speed are worth a thousandth of KL divergence where both count: losing 0.02 nats (the usual
 * limit) must buy a third more speed. */
const struct tune_weights TUNE_WEIGHTS[] = {
    [GOAL_BALANCED] = { .speed = 1, .memory = 0.3, .kld = 15 },
    [GOAL_SPEED] = { .speed = 1, .memory = 0.02 },
    [GOAL_QUALITY] = { .speed = 0.05, .memory = 0.02, .kld = 1000 },
    [GOAL_MEMORY] = { .speed = 0.05, .memory = 1 },
    [GOAL_ENERGY] = { .speed = 0.2, .memory = 0.05, .energy = 1 },
};

static double noise_of_format(const char *name)
{
    const struct format *f = format_find(name);
    return f && f->max_nmse > 0 ? f->max_nmse : 0;
}

/* A guess before anything is measured: KL divergence is of the order of the squared relative error (both are
 * second order in what changes), whatever the model. The belief corrects it. */
double tune_guess(const struct config *c)
{
    const char *format = config_text(c, KNOB_FORMAT), *kv = KNOBS[KNOB_CTK].otherwise;
    double e = strcmp(format, "file") ? noise_of_format(format) : 0;
    e += 0.5 * (noise_of_format(config_text(c, KNOB_CTK)) + noise_of_format(config_text(c, KNOB_CTV))) -
         noise_of_format(kv);
    if (!strcmp(config_text(c, KNOB_PRECISION), "medium")) e += 3e-5; /* activations in 8 bits */
    return log(fmax(e, 1e-7));
}

void tune_loss_of(const struct tuning *t, int i, double *mean, double *sd)
{
    int at[TUNE_DIMS];
    const struct tune_candidate *c = &t->list[i];
    if (c->index < 0) {
        *mean = c->ln_guess;
        *sd = 2;
        return;
    }
    tune_space_at(at, &t->space, c->index);
    tune_belief_tell(t->loss, at, mean, sd);
    *mean += c->ln_guess;
}

void tune_speed_of(const struct tuning *t, int i, double *mean, double *sd)
{
    int at[TUNE_DIMS];
    const struct tune_candidate *c = &t->list[i];
    *mean = log(c->predicted);
    *sd = 0.5;
    if (c->index >= 0) {
        tune_space_at(at, &t->space, c->index);
        tune_belief_tell(t->speed, at, mean, sd);
        *mean += log(c->predicted);
    }
    if (!c->looks) return;
    const double own = c->usual_sd * c->usual_sd, believed = *sd * *sd;
    *mean = (log(c->usual_rate) * believed + *mean * own) / (believed + own);
    *sd = sqrt(believed * own / (believed + own));
}

bool tune_within_limits(const struct tuning *t, const struct tune_candidate *c)
{
    const struct tune_limits *l = &t->o->limits;
    return c->kld <= l->kld && (!(l->ppl_ratio > 0) || c->ppl_ratio - 1 <= l->ppl_ratio);
}

double tune_chance(const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->list[i];
    double mean, sd;
    if (c->failed || c->quality_failed) return 0;
    if (!isnan(c->kld)) return tune_within_limits(t, c);
    tune_loss_of(t, i, &mean, &sd);
    return 0.5 * erfc((mean - log(t->o->limits.kld)) / (sd * sqrt(2)));
}

static double kld_of(const struct tuning *t, const struct tune_candidate *c)
{
    double mean, sd;
    if (!isnan(c->kld)) return c->kld;
    tune_loss_of(t, (int)(c - t->list), &mean, &sd);
    return fmin(exp(mean), t->o->limits.kld); /* beyond it the candidate does not count anyway */
}

double tune_score(const struct tuning *t, const struct tune_candidate *c, double ln_rate)
{
    const struct tune_weights *w = &TUNE_WEIGHTS[t->o->goal];
    const struct tune_candidate *a = &t->list[0];
    double s = w->speed * (ln_rate - log(a->looks ? a->usual_rate : a->predicted));
    s -= w->memory * log((double)c->memory_bytes / (double)a->memory_bytes);
    s -= w->energy * log(c->read_bytes / a->read_bytes);
    if (w->kld > 0) s -= w->kld * (kld_of(t, c) - (isnan(a->kld) ? 0 : a->kld));
    return s - 0.0005 * c->settings; /* of equals the plainer line */
}

int tune_best(const struct tuning *t, int beside)
{
    int best = -1;
    double most = -INFINITY;
    for (int i = 0; i < t->n; i++) {
        const struct tune_candidate *c = &t->list[i];
        double mean, sd;
        if (i == beside || !c->looks || c->failed) continue;
        if (i && (isnan(c->kld) || !tune_within_limits(t, c))) continue; /* the current one is what it is */
        tune_speed_of(t, i, &mean, &sd);
        const double s = tune_score(t, c, mean);
        if (s <= most) continue;
        most = s;
        best = i;
    }
    return best;
}

/* Which of its two looks comes first: the one likelier to rule it out, for what it costs. */
static bool judge_first(const struct tuning *t, int i, double chance, double best)
{
    const struct tune_candidate *c = &t->list[i];
    double mean, sd;
    if (!isnan(c->kld)) return false;
    if (c->looks) return true;
    tune_speed_of(t, i, &mean, &sd);
    const double speed = fmax(TUNE_WEIGHTS[t->o->goal].speed, 1e-3);
    const double z = (tune_score(t, c, mean) - best) / (speed * sd);
    const double too_slow = 0.5 * erfc(z / sqrt(2));
    const double judge_s = isnan(t->judge_s) ? 1 : t->judge_s, look_s = isnan(t->look_s) ? 1 : t->look_s;
    return (1 - chance) / judge_s > too_slow / look_s;
}

bool tune_next(const struct tuning *t, double least, double left_s, int most_looks, int *candidate,
               bool *judge)
{
    const int leader = tune_best(t, -1);
    const bool found = tune_best(t, 0) > 0; /* until then even a look that takes too long is worth it */
    const double weight = fmax(TUNE_WEIGHTS[t->o->goal].speed, 1e-3);
    double best = 0, most = 0, mean, sd;
    if (leader >= 0) {
        tune_speed_of(t, leader, &mean, &sd);
        best = tune_score(t, &t->list[leader], mean);
    }
    *candidate = -1;
    for (int i = 0; i < t->n; i++) {
        const struct tune_candidate *c = &t->list[i];
        const double chance = tune_chance(t, i);
        if (!(chance > 0)) continue;
        tune_speed_of(t, i, &mean, &sd);
        if (c->looks >= most_looks && !isnan(c->kld)) continue;
        double promise = chance * tune_promise(tune_score(t, c, mean), weight * sd, best);
        if (i == leader && !isnan(c->kld))
            promise = 0.25 * weight * sd / (1 + c->looks); /* chosen, so flattered */
        const double need_s = (c->looks           ? 0
                               : isnan(t->look_s) ? 1
                                                  : t->look_s) +
                              (isnan(c->kld) ? isnan(t->judge_s) ? 1 : t->judge_s : 0) + tune_make_s(t, i);
        if (promise < least || (found && need_s > left_s)) continue;
        const double rate = promise / fmax(need_s, 1e-3 + 0.25 * (isnan(t->look_s) ? 1 : t->look_s));
        if (rate <= most) continue;
        most = rate;
        *candidate = i;
    }
    if (*candidate < 0) return false;
    *judge = judge_first(t, *candidate, tune_chance(t, *candidate), best);
    return true;
}
