#include "advisor/experiment/experiment.h"

#include <math.h>

#include "advisor/experiment/parts.h"

int experiment_arms(const struct experiment_spec *spec)
{
    return spec->arms > 0 ? spec->arms : 2;
}

const struct metric *experiment_metric(const struct experiment_spec *spec)
{
    return spec->metric ? spec->metric : experiment_default_metric(&spec->workload);
}

double experiment_margin(const struct experiment_spec *spec)
{
    return spec->margin > 0 ? spec->margin : EXPERIMENT_MARGIN;
}

double experiment_kld_margin(const struct experiment_spec *spec)
{
    return spec->kld_margin > 0 ? spec->kld_margin : KLD_MARGIN;
}

const struct comparison *experiment_comparison(const struct experiment_state *s, int arm)
{
    return s->confirming && arm == s->headline ? &s->confirmation : &s->comparison[arm];
}

const struct comparison *experiment_headline(const struct experiment_state *s)
{
    return experiment_comparison(s, MAX(s->headline, 1));
}

enum verdict experiment_verdict(const struct experiment_state *s, int arm)
{
    if (s->verdict == VERDICT_INVALID || experiment_arms(&s->spec) == 2) return s->verdict;
    return experiment_comparison(s, arm)->verdict;
}

struct interval experiment_change(const struct experiment_state *s, struct interval gain)
{
    return stats_turned(gain, experiment_metric(&s->spec)->better);
}

double experiment_change_of(const struct experiment_state *s, double gain)
{
    return experiment_change(s, (struct interval){ gain, gain, gain }).estimate;
}

struct interval experiment_rate(const struct experiment_state *s, int arm)
{
    const struct experiment_arm *a = &s->arm[arm];
    const int metric = (int)(experiment_metric(&s->spec) - METRICS);
    struct interval rate = { a->rate, NAN, NAN };
    if (metric < METRIC_SENSOR_COUNT) return rate;
    const struct interval mean = a->mean[metric - METRIC_SENSOR_COUNT];
    rate.lower = rate.estimate * mean.lower / mean.estimate;
    rate.upper = rate.estimate * mean.upper / mean.estimate;
    return rate;
}

double experiment_detectable(double sd, int n)
{
    return (stats_anytime_factor(n, 1, 0.05) + stats_normal_quantile(0.8)) * sd / sqrt(n);
}
