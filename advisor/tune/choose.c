/* advisor/tune/choose.c - chooses the next measurement: expected improvement per second.
 *
 * Acquisition: expected improvement (Mockus 1978) of the goal's score over the best so far, times the
 * probability that the answers stay within the limits (Gardner et al. 2014), per second of measuring. A
 * candidate needs two measurements, speed and quality; the one that is more likely to rule it out, relative
 * to its cost, is made first. */
#include "advisor/tune/parts.h"

#include <math.h>
#include <string.h>

/* Weights of the score. In the balanced goal, 2 % of speed are worth 0.00133 nats of KL divergence: losing
 * the usual limit of 0.02 nats must buy a third more speed. */
const struct tune_weights TUNE_WEIGHTS[] = {
    [GOAL_BALANCED] = { .speed = 1, .memory = 0.3, .kld = 15 },
    [GOAL_SPEED] = { .speed = 1, .memory = 0.02 },
    [GOAL_QUALITY] = { .speed = 0.05, .memory = 0.02, .kld = 1000 },
    [GOAL_MEMORY] = { .speed = 0.05, .memory = 1 },
    [GOAL_ENERGY] = { .speed = 0.2, .memory = 0.05, .energy = 1 },
};

static double format_nmse(const char *name)
{
    const struct format *f = format_find(name);
    return f && f->max_nmse > 0 ? f->max_nmse : 0;
}

/* Prior mean of ln(KL divergence) of a config. KL divergence is second order in the change of the weights, as
 * is the squared relative error (NMSE) of the formats, so it is of the same order of magnitude for any model.
 * The regression corrects it. */
double tune_prior_ln_kld(const struct config *c)
{
    const char *format = config_text(c, KNOB_FORMAT), *kv = KNOBS[KNOB_CTK].otherwise;
    double e = strcmp(format, "file") ? format_nmse(format) : 0;
    e += 0.5 * (format_nmse(config_text(c, KNOB_CTK)) + format_nmse(config_text(c, KNOB_CTV))) -
         format_nmse(kv);
    /* activations are quantized to 8 bits */
    if (!strcmp(config_text(c, KNOB_PRECISION), "medium")) e += 3e-5;
    return log(fmax(e, 1e-7));
}

void tune_estimate_kld(const struct tuning *t, int i, double *mean, double *sd)
{
    int at[TUNE_DIMS];
    const struct tune_candidate *c = &t->known.list[i];
    if (c->index < 0) {
        *mean = c->ln_guess;
        *sd = 2;
        return;
    }
    tune_space_at(at, &t->task.space, c->index);
    tune_regression_estimate(t->known.kld, at, mean, sd);
    *mean += c->ln_guess;
}

void tune_estimate_speed(const struct tuning *t, int i, double *mean, double *sd)
{
    int at[TUNE_DIMS];
    const struct tune_candidate *c = &t->known.list[i];
    *mean = log(c->predicted);
    *sd = 0.5;
    if (c->index >= 0) {
        tune_space_at(at, &t->task.space, c->index);
        tune_regression_estimate(t->known.speed, at, mean, sd);
        *mean += log(c->predicted);
    }
    if (!c->timings) return;
    const double own = c->normalized_sd * c->normalized_sd, believed = *sd * *sd;
    *mean = (log(c->normalized_rate) * believed + *mean * own) / (believed + own);
    *sd = sqrt(believed * own / (believed + own));
}

bool tune_quality_known(const struct tune_candidate *c)
{
    return c->same_answers || !isnan(c->kld);
}

/* A candidate that answers as the current configuration does loses nothing against it. */
bool tune_within_limits(const struct tuning *t, const struct tune_candidate *c)
{
    if (c->same_answers) return true;
    const struct tune_limits *l = &t->task.o->limits;
    if (l->accuracy > 0 && (c->accuracy_failed || c->accuracy_lower < -l->accuracy)) return false;
    return c->kld <= l->kld && (!(l->ppl_ratio > 0) || c->ppl_ratio - 1 <= l->ppl_ratio);
}

double tune_feasibility(const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->known.list[i];
    double mean, sd;
    if (c->failed || c->quality_failed) return 0;
    if (tune_quality_known(c)) return tune_within_limits(t, c);
    tune_estimate_kld(t, i, &mean, &sd);
    return 0.5 * erfc((mean - log(t->task.o->limits.kld)) / (sd * sqrt(2)));
}

static double kld_or_estimate(const struct tuning *t, const struct tune_candidate *c)
{
    double mean, sd;
    if (!isnan(c->kld)) return c->kld;
    tune_estimate_kld(t, (int)(c - t->known.list), &mean, &sd);
    return fmin(exp(mean), t->task.o->limits.kld); /* beyond the limit the candidate is rejected anyway */
}

double tune_score(const struct tuning *t, const struct tune_candidate *c, double ln_rate)
{
    const struct tune_weights *w = &TUNE_WEIGHTS[t->task.o->goal];
    const struct tune_candidate *a = &t->known.list[0];
    double s = w->speed * (ln_rate - log(a->timings ? a->normalized_rate : a->predicted));
    s -= w->memory * log((double)c->memory_bytes / (double)a->memory_bytes);
    s -= w->energy * log(c->read_bytes / a->read_bytes);
    if (w->kld > 0 && !c->same_answers) s -= w->kld * (kld_or_estimate(t, c) - (isnan(a->kld) ? 0 : a->kld));
    return s - 0.0005 * c->settings; /* prefer fewer settings among equals */
}

int64_t tune_timed(const struct tuning *t)
{
    int64_t n = 0;
    for (int i = 1; i < t->known.n; i++) n += t->known.list[i].timings > 0;
    return n;
}

int tune_best(const struct tuning *t, int except)
{
    int best = -1;
    double most = -INFINITY;
    for (int i = 0; i < t->known.n; i++) {
        const struct tune_candidate *c = &t->known.list[i];
        double mean, sd;
        if (i == except || !c->timings || c->failed) continue;
        /* the current config is exempt from the limits */
        if (i && (!tune_quality_known(c) || !tune_within_limits(t, c))) continue;
        tune_estimate_speed(t, i, &mean, &sd);
        const double s = tune_score(t, c, mean);
        if (s <= most) continue;
        most = s;
        best = i;
    }
    return best;
}

/* Seconds of a measurement; one before the first. */
static double expected_s(const struct tune_mean *mean)
{
    return isnan(mean->seconds) ? 1 : mean->seconds;
}

/* Should quality be measured before speed? Compares the probabilities that each measurement rules the
 * candidate out, per second that it takes. */
static bool quality_first(const struct tuning *t, int i, double chance, double best)
{
    const struct tune_candidate *c = &t->known.list[i];
    double mean, sd;
    if (tune_quality_known(c)) return false;
    if (c->timings) return true;
    tune_estimate_speed(t, i, &mean, &sd);
    const double speed = fmax(TUNE_WEIGHTS[t->task.o->goal].speed, 1e-3);
    const double z = (tune_score(t, c, mean) - best) / (speed * sd);
    const double too_slow = 0.5 * erfc(z / sqrt(2));
    return (1 - chance) / expected_s(&t->costs.quality) > too_slow / expected_s(&t->costs.timing);
}

bool tune_next(const struct tuning *t, const struct tune_bounds *b, struct tune_choice *out)
{
    const int leader = tune_best(t, -1);
    const double left_s = leader > 0 ? b->left_s : b->all_left_s;
    const double weight = fmax(TUNE_WEIGHTS[t->task.o->goal].speed, 1e-3);
    double best = 0, most = 0, mean, sd;
    if (leader >= 0) {
        tune_estimate_speed(t, leader, &mean, &sd);
        best = tune_score(t, &t->known.list[leader], mean);
    }
    *out = (struct tune_choice){ .candidate = -1 };
    for (int i = 0; i < t->known.n; i++) {
        const struct tune_candidate *c = &t->known.list[i];
        const double chance = tune_feasibility(t, i);
        if (!(chance > 0)) continue;
        tune_estimate_speed(t, i, &mean, &sd);
        if (c->timings >= b->most_timings && tune_quality_known(c)) continue;
        double improvement = chance * expected_improvement(tune_score(t, c, mean), weight * sd, best);
        if (i == leader && tune_quality_known(c))
            /* the leader was selected as a maximum, so its rate is biased upwards: measure it again */
            improvement = 0.25 * weight * sd / (1 + c->timings);
        const double timing_s = expected_s(&t->costs.timing),
                     need_s = (c->timings ? 0 : timing_s) +
                              (tune_quality_known(c) ? 0 : expected_s(&t->costs.quality)) + tune_make_s(t, i);
        const bool again = c->timings && tune_quality_known(c); /* another timing of it */
        const double takes_s = again ? t->costs.timing.seconds : need_s;
        if (improvement < b->least || takes_s > left_s) continue;
        const double rate = improvement / fmax(need_s, 1e-3 + 0.25 * timing_s);
        if (rate <= most) continue;
        most = rate;
        *out = (struct tune_choice){
            .candidate = i, .leads = i == leader, .improvement = improvement, .seconds = takes_s
        };
    }
    if (out->candidate < 0) return false;
    out->quality = quality_first(t, out->candidate, tune_feasibility(t, out->candidate), best);
    return true;
}
