/* What is known of a load or a server that runs now (load_watch.h). */
#include "tui/frame/load_watch.h"

#include <math.h>
#include <string.h>

#include "advisor/stats/stats.h"

bool server_watch_read(struct server_watch *w, const json_t *answer)
{
    const json_t *outcomes = json_object_get(answer, "outcomes");
    if (!live_read(&w->live, json_object_get(answer, "load"))) return false;
    occupancy_read(&w->occupancy, 0, json_object_get(answer, "occupancy"));
    w->known = true;
    w->max_sequences = (int)json_get_int(answer, "max_sequences", 0);
    w->overloaded = json_get_int(outcomes, "overloaded", 0);
    w->cancelled = json_get_int(outcomes, "cancelled", 0);
    w->failed = json_get_int(outcomes, "failed", 0);
    snprintf(w->status, sizeof w->status, "%s", json_get_str(answer, "status", ""));
    snprintf(w->model, sizeof w->model, "%s", json_get_str(answer, "model", ""));
    return true;
}

/* ---------------------------------------------------------------- times */

static double quantile_known(const struct live_times *t, double p)
{
    return t->n >= stats_samples_for_quantile(p, 0.99, 0) ? live_quantile(t, p) : (double)NAN;
}

/* Values of t between two durations, as if they were evenly spread inside of their bins. */
static double count_between(const struct live_times *t, double from, double to)
{
    double sum = 0;
    for (int i = 0; i < LIVE_BINS; i++) {
        if (!t->bin[i]) continue;
        const double low = log(live_edge(i)), high = log(live_edge(i + 1));
        const double part = (fmin(log(to), high) - fmax(log(from), low)) / (high - low);
        if (part > 0) sum += part * (double)t->bin[i];
    }
    return sum;
}

void latency_histogram_of_live(struct latency_histogram *l, const struct live_times *t, double limit_s)
{
    static const double NEAR = 20; /* a limit farther away is not on the axis */
    static const double FULL = 1e6;
    int first = 0, last = LIVE_BINS - 1;
    *l = (struct latency_histogram){ .p50 = NAN, .p95 = NAN, .p99 = NAN, .max = NAN, .limit = limit_s };
    if (t->n <= 0) return;
    while (first < last && !t->bin[first]) first++;
    while (last > first && !t->bin[last]) last--;
    l->n = (int)MIN(t->n, (int64_t)INT32_MAX);
    l->lo = live_edge(first);
    l->hi = live_edge(last + 1);
    if (limit_s > l->hi && limit_s < NEAR * l->hi) l->hi = 1.1 * limit_s;
    if (limit_s > 0 && limit_s < l->lo && limit_s > l->lo / NEAR) l->lo = limit_s / 1.1;
    l->p50 = quantile_known(t, 0.50);
    l->p95 = quantile_known(t, 0.95);
    l->p99 = quantile_known(t, 0.99);
    l->max = t->most_s;
    l->within = limit_s > 0 ? count_between(t, live_edge(0), limit_s) / (double)t->n : NAN;
    double height[LATENCY_BINS], most = 0;
    for (int i = 0; i < LATENCY_BINS; i++) {
        const double step = log(l->hi / l->lo) / LATENCY_BINS;
        height[i] = count_between(t, l->lo * exp(i * step), l->lo * exp((i + 1) * step));
        most = fmax(most, height[i]);
    }
    for (int i = 0; i < LATENCY_BINS && most > 0; i++) l->bin[i] = (int)lround(height[i] / most * FULL);
}

const struct load_limit *live_limit(const struct live *l, bool first_token)
{
    const struct load_limit *found = NULL;
    for (int i = 0; i < l->limits; i++) {
        const struct load_limit *x = &l->limit[i];
        const bool fits = first_token ? x->figure == LOAD_TTFT
                                      : x->figure >= LOAD_ITL_P50 && x->figure <= LOAD_ITL_MAX;
        if (fits && (!found || x->seconds < found->seconds)) found = x;
    }
    return found;
}

/* ---------------------------------------------------------------- settings */

const char *schedule_after(const char *settings)
{
    struct config c;
    const bool ok = !config_parse(&c, settings, NULL);
    return SCHEDULE_NAMES[ok ? (config_choice(&c, KNOB_SCHEDULE) + 1) % SCHEDULE_COUNT : 0];
}
