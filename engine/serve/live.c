/* Counts and distributions of a load or a server while it runs (live.h). */
#include "engine/serve/live.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- durations */

static int bin_of(double seconds)
{
    const double at = log10(seconds / LIVE_FROM_S) * LIVE_PER_TEN;
    return at > 0 ? (int)fmin(at, LIVE_BINS - 1) : 0;
}

void live_times_add(struct live_times *t, double seconds)
{
    if (!isfinite(seconds)) return;
    t->n++;
    t->sum_s += seconds;
    t->most_s = fmax(t->most_s, seconds);
    t->bin[bin_of(seconds)]++;
}

double live_edge(int bin)
{
    return LIVE_FROM_S * pow(10, (double)bin / LIVE_PER_TEN);
}

double live_quantile(const struct live_times *t, double p)
{
    const int64_t wanted = (int64_t)ceil(p * (double)t->n);
    int64_t seen = 0;
    if (!t->n) return NAN;
    for (int i = 0; i < LIVE_BINS; i++) {
        seen += MIN(t->bin[i], INT64_MAX - seen);
        if (seen >= wanted && seen) return fmin(sqrt(live_edge(i) * live_edge(i + 1)), t->most_s);
    }
    return t->most_s;
}

/* ---------------------------------------------------------------- events */

/* A gap that a reader notices: longer than the limit that was asked for, otherwise than twice the time that a
 * step may take. */
static double stall_of(const struct live *l, const struct serving *s)
{
    static const double WITHOUT_LIMIT_S = 0.2;
    double limit_s = INFINITY;
    for (int i = 0; i < l->limits; i++)
        if (l->limit[i].figure >= LOAD_ITL_P50 && l->limit[i].figure <= LOAD_ITL_MAX)
            limit_s = fmin(limit_s, l->limit[i].seconds);
    if (isfinite(limit_s)) return limit_s;
    if (!s) return WITHOUT_LIMIT_S;
    const double step_s = (double)config_int(serving_settings(s), KNOB_ITL_LIMIT) * 1e-3;
    return step_s > 0 ? 2 * step_s : WITHOUT_LIMIT_S;
}

void live_begin(struct live *l, const struct serving *s, const struct load_limit *limit, int limits)
{
    *l = (struct live){ .limits = MIN(limits, (int)LOAD_LIMITS), .speed = 1 };
    for (int i = 0; i < l->limits; i++) l->limit[i] = limit[i];
    live_look(l, s, 0);
}

void live_look(struct live *l, const struct serving *s, double seconds)
{
    l->seconds = seconds;
    l->stall_s = stall_of(l, s);
    if (!s) return;
    const struct scheduler_counts c = serving_count(s);
    l->waiting = c.waiting;
    l->running = c.running;
    l->preemptions = c.preemptions;
    config_line(serving_settings(s), l->settings, sizeof l->settings);
}

void live_step_add(struct live *l, const struct serving_result *r)
{
    l->step[l->steps++ % LIVE_STEPS] = (struct live_step){ r->rows, r->prompt_rows, r->requests, r->seconds };
}

void live_gap_add(struct live *l, double seconds)
{
    live_times_add(&l->gap, seconds);
    l->stalls += seconds > l->stall_s;
}

/* ---------------------------------------------------------------- JSON */

/* The counts, in one table for both directions. */
#define COUNT(key, member)                                                                                   \
    {                                                                                                        \
        key, offsetof(struct live, member), sizeof((struct live *)0)->member                                 \
    }
static const struct {
    const char *key;
    size_t at, bytes;
} COUNTS[] = {
    COUNT("arrived", arrived),
    COUNT("done", done),
    COUNT("not_done", not_done),
    COUNT("met", met),
    COUNT("missed", missed),
    COUNT("prompt_tokens", prompt_tokens),
    COUNT("cached_tokens", cached_tokens),
    COUNT("generated_tokens", tokens),
    COUNT("preemptions", preemptions),
    COUNT("stalls", stalls),
    COUNT("waiting", waiting),
    COUNT("running", running),
    COUNT("steps", steps),
    COUNT("clients", clients),
};
#undef COUNT

/* {"n", "sum_s", "most_s", "bins": [[bin, count], ...]} */
static json_t *times_to_json(const struct live_times *t)
{
    json_t *o = json_object(), *bins = json_array();
    json_put_int(o, "n", t->n);
    json_put_num(o, "sum_s", t->sum_s);
    json_put_num(o, "most_s", t->most_s);
    for (int i = 0; i < LIVE_BINS; i++) {
        if (!t->bin[i]) continue;
        json_t *pair = json_array();
        json_array_append_new(pair, json_integer(i));
        json_array_append_new(pair, json_integer(t->bin[i]));
        json_array_append_new(bins, pair);
    }
    json_put(o, "bins", bins);
    return o;
}

static void times_read(struct live_times *t, const json_t *o)
{
    const json_t *bins = json_object_get(o, "bins");
    *t = (struct live_times){ .n = json_get_int(o, "n", 0),
                              .sum_s = json_get_num(o, "sum_s", 0),
                              .most_s = json_get_num(o, "most_s", 0) };
    for (size_t i = 0; i < json_array_size(bins); i++) {
        const json_t *pair = json_array_get(bins, i);
        const int64_t bin = json_integer_value(json_array_get(pair, 0));
        if (bin >= 0 && bin < LIVE_BINS) t->bin[bin] = json_integer_value(json_array_get(pair, 1));
    }
}

/* [[rows, prompt rows, requests, microseconds], ...], the oldest first. */
static json_t *steps_to_json(const struct live *l)
{
    json_t *list = json_array();
    for (int64_t n = MAX(l->steps - LIVE_STEPS, 0); n < l->steps; n++) {
        const struct live_step *p = &l->step[n % LIVE_STEPS];
        json_t *step = json_array();
        json_array_append_new(step, json_integer(p->rows));
        json_array_append_new(step, json_integer(p->prompt_rows));
        json_array_append_new(step, json_integer(p->requests));
        json_array_append_new(step, json_integer((int64_t)(p->seconds * 1e6)));
        json_array_append_new(list, step);
    }
    return list;
}

static void steps_read(struct live *l, const json_t *list)
{
    const int64_t n = (int64_t)json_array_size(list);
    for (int64_t i = MAX(n - LIVE_STEPS, 0); i < n && l->steps >= n; i++) {
        const json_t *step = json_array_get(list, (size_t)i);
        l->step[(l->steps - n + i) % LIVE_STEPS] = (struct live_step){
            .rows = (int)json_integer_value(json_array_get(step, 0)),
            .prompt_rows = (int)json_integer_value(json_array_get(step, 1)),
            .requests = (int)json_integer_value(json_array_get(step, 2)),
            .seconds = (double)json_integer_value(json_array_get(step, 3)) * 1e-6
        };
    }
}

/* {"ttft": 0.5, ...} in seconds */
static json_t *limits_to_json(const struct live *l)
{
    json_t *o = json_object();
    for (int i = 0; i < l->limits; i++)
        json_put_num(o, LOAD_FIGURE_NAMES[l->limit[i].figure], l->limit[i].seconds);
    return o;
}

static void limits_read(struct live *l, const json_t *o)
{
    l->limits = 0;
    for (int f = 0; f < LOAD_FIGURES && l->limits < LOAD_LIMITS; f++) {
        const double seconds = json_get_num(o, LOAD_FIGURE_NAMES[f], NAN);
        if (isfinite(seconds)) l->limit[l->limits++] = (struct load_limit){ (enum load_figure)f, seconds };
    }
}

json_t *live_to_json(const struct live *l)
{
    json_t *o = json_object();
    json_put_num(o, "seconds", l->seconds);
    for (size_t i = 0; i < COUNT_OF(COUNTS); i++) {
        const char *at = (const char *)l + COUNTS[i].at;
        json_put_int(o, COUNTS[i].key,
                     COUNTS[i].bytes == sizeof(int) ? *(const int *)(const void *)at
                                                    : *(const int64_t *)(const void *)at);
    }
    json_put_num(o, "stall_s", l->stall_s);
    json_put_num(o, "speed", l->speed);
    json_put(o, "limits", limits_to_json(l));
    json_put(o, "first_token", times_to_json(&l->first));
    json_put(o, "between_tokens", times_to_json(&l->gap));
    json_put(o, "last_steps", steps_to_json(l));
    json_put_str(o, "settings", l->settings);
    return o;
}

bool live_read(struct live *l, const json_t *o)
{
    if (!json_is_object(o) || !json_is_string(json_object_get(o, "settings"))) return false;
    for (size_t i = 0; i < COUNT_OF(COUNTS); i++) {
        const int64_t v = json_get_int(o, COUNTS[i].key, 0);
        char *at = (char *)l + COUNTS[i].at;
        if (COUNTS[i].bytes == sizeof(int))
            *(int *)(void *)at = (int)v;
        else
            *(int64_t *)(void *)at = v;
    }
    l->seconds = json_get_num(o, "seconds", 0);
    l->stall_s = json_get_num(o, "stall_s", NAN);
    l->speed = json_get_num(o, "speed", 1);
    limits_read(l, json_object_get(o, "limits"));
    times_read(&l->first, json_object_get(o, "first_token"));
    times_read(&l->gap, json_object_get(o, "between_tokens"));
    steps_read(l, json_object_get(o, "last_steps"));
    snprintf(l->settings, sizeof l->settings, "%s", json_get_str(o, "settings", ""));
    return true;
}
