/* Parses and writes load lines, such as "load:rate=4,requests=200,in=512,out=128". */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/config_internal.h"

enum { TOKENS_MOST = 1 << 24, CLIENTS_MOST = 4096, TURNS_MOST = 1000, ITEM_BYTES = 300 };
static const double RATE_MOST = 1e6, SIGMA_MOST = 4, SECONDS_MOST = 86400;

const char *const LOAD_ARRIVAL_NAMES[] = { "none", "poisson", "gamma", "constant", "ramp", NULL };
const char *const LOAD_FIGURE_NAMES[] = {
    [LOAD_TTFT] = "ttft",       [LOAD_TPOT] = "tpot",       [LOAD_ITL_P50] = "itl_p50",
    [LOAD_ITL_P95] = "itl_p95", [LOAD_ITL_P99] = "itl_p99", [LOAD_ITL_MAX] = "itl_max",
    [LOAD_E2E] = "e2e",         [LOAD_QUEUE] = "queue",     [LOAD_FIGURES] = NULL
};

/* ---------------------------------------------------------------- values */

static bool read_real(const char *text, double least, double most, double *out)
{
    return str_to_double(text, out) && *out >= least && *out <= most;
}

static bool read_whole(const char *text, int64_t least, int64_t most, int *out)
{
    int64_t v;
    if (!str_to_i64(text, &v) || v < least || v > most) return false;
    *out = (int)v;
    return true;
}

/* "512" or "lognormal:512:1.0" (median, standard deviation of the logarithm). */
static bool read_length(const char *text, struct load_length *out)
{
    int tokens;
    char median[32];
    *out = (struct load_length){ 0 };
    if (!str_starts(text, "lognormal:")) {
        if (!read_whole(text, 1, TOKENS_MOST, &tokens)) return false;
        out->median = tokens;
        return true;
    }
    text += strlen("lognormal:");
    const char *colon = strchr(text, ':');
    if (!colon || colon == text || colon - text >= (ptrdiff_t)sizeof median) return false;
    snprintf(median, sizeof median, "%.*s", (int)(colon - text), text);
    return read_real(median, 1, TOKENS_MOST, &out->median) &&
           read_real(colon + 1, 1e-3, SIGMA_MOST, &out->sigma);
}

/* One limit, "ttft<500ms". */
static bool read_limit(const char *text, size_t n, struct load_limit *out)
{
    char copy[64];
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *less = strchr(copy, '<');
    if (!less) return false;
    *less++ = '\0';
    for (int f = 0; f < LOAD_FIGURES; f++)
        if (!strcmp(copy, LOAD_FIGURE_NAMES[f])) {
            out->figure = (enum load_figure)f;
            return str_to_seconds(less, &out->seconds) && out->seconds > 0 && out->seconds <= SECONDS_MOST;
        }
    return false;
}

/* ---------------------------------------------------------------- keys */

static bool read_rate(struct workload_load *l, const char *text)
{
    l->auto_rate = !strcmp(text, "auto");
    return l->auto_rate || read_real(text, 1e-6, RATE_MOST, &l->rate);
}

static bool read_arrivals(struct workload_load *l, const char *text)
{
    for (int i = LOAD_POISSON; i <= LOAD_RAMP; i++)
        if (!strcmp(text, LOAD_ARRIVAL_NAMES[i])) {
            l->arrivals = (enum load_arrivals)i;
            return true;
        }
    return false;
}

static bool read_burstiness(struct workload_load *l, const char *text)
{
    return read_real(text, 1e-3, 1000, &l->burstiness);
}

static bool read_concurrency(struct workload_load *l, const char *text)
{
    return read_whole(text, 1, CLIENTS_MOST, &l->concurrency);
}

static bool read_think(struct workload_load *l, const char *text)
{
    return str_to_seconds(text, &l->think_s) && l->think_s >= 0 && l->think_s <= SECONDS_MOST;
}

static bool read_requests(struct workload_load *l, const char *text)
{
    return read_whole(text, 1, LOAD_REQUESTS_MOST, &l->requests);
}

static bool read_in(struct workload_load *l, const char *text)
{
    return read_length(text, &l->in);
}

static bool read_out(struct workload_load *l, const char *text)
{
    return read_length(text, &l->out);
}

static bool read_prefix(struct workload_load *l, const char *text)
{
    return read_real(text, 0, 1, &l->prefix);
}

static bool read_turns(struct workload_load *l, const char *text)
{
    return read_whole(text, 1, TURNS_MOST, &l->turns);
}

static bool read_ctx(struct workload_load *l, const char *text)
{
    return read_whole(text, 2, TOKENS_MOST, &l->ctx);
}

static bool read_trace(struct workload_load *l, const char *text)
{
    return *text && !strchr(text, '"') && str_put(l->trace, sizeof l->trace, text);
}

static bool read_prompts(struct workload_load *l, const char *text)
{
    return *text && !strchr(text, '"') && str_put(l->prompts, sizeof l->prompts, text);
}

static bool read_speed(struct workload_load *l, const char *text)
{
    return read_real(text, 1e-6, 1e6, &l->speed);
}

static bool read_slo(struct workload_load *l, const char *text)
{
    for (l->limits = 0; l->limits < LOAD_LIMITS; l->limits++) {
        const size_t n = strcspn(text, ",;");
        if (!read_limit(text, n, &l->limit[l->limits])) return false;
        if (!text[n]) {
            l->limits++;
            return true;
        }
        text += n + 1;
    }
    return false;
}

static bool read_meet(struct workload_load *l, const char *text)
{
    return read_real(text, 0.01, 1, &l->meet);
}

enum load_key_id {
    KEY_RATE,
    KEY_CONCURRENCY,
    KEY_TRACE,
    KEY_ARRIVALS,
    KEY_BURSTINESS,
    KEY_THINK,
    KEY_SPEED,
    KEY_REQUESTS,
    KEY_IN,
    KEY_OUT,
    KEY_PROMPTS,
    KEY_PREFIX,
    KEY_TURNS,
    KEY_CTX,
    KEY_SLO,
    KEY_MEET,
    KEY_COUNT
};

const struct load_key LOAD_KEYS[] = {
    [KEY_RATE] = { "rate", "N | auto",
                   "requests per second, whether or not earlier ones have ended; auto: the highest rate that "
                   "meets slo" },
    [KEY_CONCURRENCY] = { "concurrency", "N",
                          "instead of rate: N clients that send the next request when the last one has ended" },
    [KEY_TRACE] = { "trace", "FILE",
                    "instead of rate: times and lengths of a file as of the Azure, Mooncake or BurstGPT traces" },
    [KEY_ARRIVALS] = { "arrivals", "poisson | gamma | constant | ramp", "with rate; default poisson" },
    [KEY_BURSTINESS] = { "burstiness", "N",
                         "shape of gamma arrivals: below 1 burstier than Poisson, above 1 more even" },
    [KEY_THINK] = { "think", "SECONDS", "mean pause of a client before its next request; default 0" },
    [KEY_SPEED] = { "speed", "N", "with trace: plays it N times as fast; default 1" },
    [KEY_REQUESTS] = { "requests", "N", "number of requests; default 100, with trace all" },
    [KEY_IN] = { "in", "N | lognormal:MEDIAN:SIGMA", "tokens of a prompt; default 256" },
    [KEY_OUT] = { "out", "N | lognormal:MEDIAN:SIGMA", "tokens of an answer; default 64" },
    [KEY_PROMPTS] = { WORKLOAD_LOAD_PROMPTS, "FILE",
                      "prompts of your own (docs/prompts.md): a text, JSON lines, ShareGPT, OpenAI batch, or a "
                      "folder; in and out cut them, and by default prompts and answers are as long as in the file" },
    [KEY_PREFIX] = { "prefix", "0 to 1", "share of the prompt that all requests have in common; default 0" },
    [KEY_TURNS] = { "turns", "N",
                    "requests of a conversation: each prompt contains the earlier prompts and answers; default 1" },
    [KEY_CTX] = { "ctx", "N",
                  "most tokens of a conversation; longer prompts are cut; default as the lengths need, "
                  "4096 with trace, and with prompts unless in and out are given" },
    [KEY_SLO] = { "slo", "\"FIGURE<TIME,...\"",
                  "limits of each request; figures: ttft tpot itl_p50 itl_p95 itl_p99 itl_max e2e queue" },
    [KEY_MEET] = { "meet", "0.01 to 1",
                   "with rate=auto: share of requests that must meet slo; default 0.95" },
};
const size_t LOAD_KEY_COUNT = COUNT_OF(LOAD_KEYS);

static bool (*const READ[KEY_COUNT])(struct workload_load *l, const char *text) = {
    [KEY_RATE] = read_rate,
    [KEY_CONCURRENCY] = read_concurrency,
    [KEY_TRACE] = read_trace,
    [KEY_ARRIVALS] = read_arrivals,
    [KEY_BURSTINESS] = read_burstiness,
    [KEY_THINK] = read_think,
    [KEY_SPEED] = read_speed,
    [KEY_REQUESTS] = read_requests,
    [KEY_IN] = read_in,
    [KEY_OUT] = read_out,
    [KEY_PROMPTS] = read_prompts,
    [KEY_PREFIX] = read_prefix,
    [KEY_TURNS] = read_turns,
    [KEY_CTX] = read_ctx,
    [KEY_SLO] = read_slo,
    [KEY_MEET] = read_meet,
};
_Static_assert(COUNT_OF(LOAD_KEYS) == KEY_COUNT, "one row a key");

/* ---------------------------------------------------------------- parsing */

/* Copy the next item, without the quotes around a value, and advance *at behind it and its comma. A part
 * without "=" belongs to the item before: slo=ttft<1s,e2e<9s. False: an item too long, or a quote that does
 * not end. */
static bool item_next(const char **at, char item[ITEM_BYTES])
{
    size_t n = 0;
    bool quoted = false;
    const char *c = *at;
    for (; *c; c++) {
        if (*c == '"') {
            quoted = !quoted;
            continue;
        }
        if (*c == ',' && !quoted) {
            const size_t part = strcspn(c + 1, ",=");
            if (c[1 + part] == '=' || !memchr(c + 1, '<', part)) break;
        }
        if (n + 1 == ITEM_BYTES) return false;
        item[n++] = *c;
    }
    item[n] = '\0';
    *at = *c ? c + 1 : c;
    return !quoted;
}

static enum err_code unknown_key(const char *key, struct err *why)
{
    const char *names[KEY_COUNT];
    struct str all = { 0 };
    for (int k = 0; k < KEY_COUNT; k++) {
        names[k] = LOAD_KEYS[k].key;
        str_printf(&all, " %s", names[k]);
    }
    const char *near = str_nearest(key, names, KEY_COUNT);
    const enum err_code rc = err_set(why, ERR_USAGE, "load: no key '%.40s'%s%s%s; expected one of%s", key,
                                     near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                                     str_text(&all));
    str_free(&all);
    return rc;
}

static enum err_code item_read(struct workload_load *l, char *item, bool given[KEY_COUNT], struct err *why)
{
    char *value = strchr(item, '=');
    if (!value)
        return err_set(why, ERR_USAGE, "load: '%.60s': expected KEY=VALUE, such as rate=4,in=512,out=128",
                       item);
    *value++ = '\0';
    for (int k = 0; k < KEY_COUNT; k++) {
        if (strcmp(item, LOAD_KEYS[k].key)) continue;
        if (given[k]) return err_set(why, ERR_USAGE, "load: %s is given twice", item);
        if (!READ[k](l, value))
            return err_set(why, ERR_USAGE, "load: %s=%.80s: expected %s", item, value, LOAD_KEYS[k].value);
        given[k] = true;
        return ERR_OK;
    }
    return unknown_key(item, why);
}

/* Keys that mean something only beside another one. */
static enum err_code keys_check(const struct workload_load *l, const bool given[KEY_COUNT], struct err *why)
{
    const bool conversations = given[KEY_CONCURRENCY] || l->turns > 1;
    const struct {
        bool wrong;
        const char *message;
    } RULES[] = {
        { given[KEY_RATE] + given[KEY_CONCURRENCY] + given[KEY_TRACE] != 1,
          "expected one of rate=N (requests per second), concurrency=N (clients) and trace=FILE" },
        { given[KEY_ARRIVALS] && !given[KEY_RATE], "arrivals needs rate" },
        { given[KEY_BURSTINESS] && (!given[KEY_RATE] || l->arrivals != LOAD_GAMMA),
          "burstiness needs rate and arrivals=gamma" },
        { given[KEY_THINK] && !conversations, "think needs concurrency, or turns of 2 or more" },
        { given[KEY_SPEED] && !given[KEY_TRACE], "speed needs trace" },
        { given[KEY_PROMPTS] && (given[KEY_TRACE] || given[KEY_PREFIX] || l->turns > 1),
          "prompts are texts of single requests: leave trace, prefix and turns out" },
        { given[KEY_TRACE] && (given[KEY_IN] || given[KEY_OUT] || given[KEY_PREFIX] || given[KEY_TURNS]),
          "trace gives the lengths: leave in, out, prefix and turns out" },
        { l->auto_rate && !given[KEY_SLO], "rate=auto needs slo, such as slo=\"ttft<500ms,itl_p99<60ms\"" },
        { l->auto_rate && l->arrivals == LOAD_RAMP, "rate=auto needs arrivals at a constant mean rate" },
        { l->auto_rate && l->requests < 40, "rate=auto needs 40 requests or more, to tell a steady state" },
        { given[KEY_MEET] && !l->auto_rate, "meet needs rate=auto" },
        { l->turns > 1 && l->requests % l->turns, "requests must be a multiple of turns" },
        { l->concurrency > l->requests && given[KEY_CONCURRENCY],
          "there must be at least as many requests as clients (concurrency)" },
        { given[KEY_CTX] && !given[KEY_TRACE] && !l->in.sigma && !l->out.sigma && !given[KEY_PROMPTS] &&
              l->turns * (l->in.median + l->out.median) > l->ctx,
          "ctx is shorter than the tokens of a conversation" },
        { l->ctx && l->ctx < 2 * l->turns, "ctx must be at least two tokens for each of turns" },
        { workload_load_ctx(l) > TOKENS_MOST, "conversations of more than 16777216 tokens" },
    };
    for (size_t i = 0; i < COUNT_OF(RULES); i++)
        if (RULES[i].wrong) return err_set(why, ERR_USAGE, "load: %s", RULES[i].message);
    return ERR_OK;
}

enum err_code workload_load_parse(struct workload_load *l, const char *text, struct err *why)
{
    bool given[KEY_COUNT] = { false };
    char item[ITEM_BYTES];
    struct str line = { 0 };
    enum err_code rc = ERR_OK;
    *l = (struct workload_load){ .burstiness = 1,
                                 .requests = -1,
                                 .in = { 256, 0 },
                                 .out = { 64, 0 },
                                 .turns = 1,
                                 .speed = 1,
                                 .meet = LOAD_MEET };
    while (*text && !rc) {
        if (!item_next(&text, item))
            rc = err_set(why, ERR_USAGE, "load: a value is longer than %d bytes, or its quote does not end",
                         ITEM_BYTES - 1);
        else
            rc = item_read(l, item, given, why);
    }
    if (l->requests < 0) l->requests = given[KEY_TRACE] ? 0 : 100;
    if (given[KEY_BURSTINESS] && !given[KEY_ARRIVALS]) l->arrivals = LOAD_GAMMA;
    if (given[KEY_PROMPTS] && !given[KEY_IN]) l->in.median = 0;
    if (given[KEY_PROMPTS] && !given[KEY_OUT]) l->out.median = 0;
    if (!rc) rc = keys_check(l, given, why);
    if (l->arrivals == LOAD_NONE)
        l->arrivals = given[KEY_CONCURRENCY] ? LOAD_CLOSED : given[KEY_TRACE] ? LOAD_TRACE : LOAD_POISSON;
    if (!rc) workload_load_append(l, &line);
    if (!rc && line.len + strlen("load:") >= WORKLOAD_LINE)
        rc = err_set(why, ERR_USAGE, "load: the line has %zu bytes, expected at most %zu", line.len,
                     WORKLOAD_LINE - strlen("load:") - 1);
    str_free(&line);
    if (rc) l->arrivals = LOAD_NONE;
    return rc;
}

/* ---------------------------------------------------------------- writing */

static void append_item(struct str *out, enum load_key_id key, const char *value)
{
    const bool quoted = strpbrk(value, ", ");
    str_printf(out, "%s%s=%s%s%s", out->len ? "," : "", LOAD_KEYS[key].key, quoted ? "\"" : "", value,
               quoted ? "\"" : "");
}

static void append_real(struct str *out, enum load_key_id key, double v)
{
    char text[32];
    append_item(out, key, str_from_double(v, text, sizeof text));
}

static void append_length(struct str *out, enum load_key_id key, const struct load_length *l)
{
    char median[32], sigma[32], text[80];
    str_from_double(l->median, median, sizeof median);
    str_from_double(l->sigma, sigma, sizeof sigma);
    if (l->sigma > 0)
        snprintf(text, sizeof text, "lognormal:%s:%s", median, sigma);
    else
        snprintf(text, sizeof text, "%s", median);
    append_item(out, key, text);
}

static void append_time(struct str *out, double seconds)
{
    char text[32];
    const bool ms = seconds < 1;
    str_printf(out, "%s%s", str_from_double(ms ? round(seconds * 1e9) / 1e6 : seconds, text, sizeof text),
               ms ? "ms" : "s");
}

static void append_slo(struct str *out, const struct workload_load *l)
{
    struct str s = { 0 };
    for (int i = 0; i < l->limits; i++) {
        str_printf(&s, "%s%s<", i ? "," : "", LOAD_FIGURE_NAMES[l->limit[i].figure]);
        append_time(&s, l->limit[i].seconds);
    }
    append_item(out, KEY_SLO, str_text(&s));
    str_free(&s);
}

static void append_arrivals(struct str *out, const struct workload_load *l)
{
    if (l->arrivals == LOAD_CLOSED) {
        append_real(out, KEY_CONCURRENCY, l->concurrency);
    } else if (l->arrivals == LOAD_TRACE) {
        append_item(out, KEY_TRACE, l->trace);
    } else {
        if (l->auto_rate)
            append_item(out, KEY_RATE, "auto");
        else
            append_real(out, KEY_RATE, l->rate);
        if (l->arrivals != LOAD_POISSON) append_item(out, KEY_ARRIVALS, LOAD_ARRIVAL_NAMES[l->arrivals]);
        if (l->burstiness != 1) append_real(out, KEY_BURSTINESS, l->burstiness);
    }
    if (l->think_s > 0) append_real(out, KEY_THINK, l->think_s);
    if (l->speed != 1) append_real(out, KEY_SPEED, l->speed);
}

void workload_load_append(const struct workload_load *l, struct str *out)
{
    struct str s = { 0 }; /* `out` may have a beginning */
    append_arrivals(&s, l);
    if (l->requests) append_real(&s, KEY_REQUESTS, l->requests);
    if (l->arrivals != LOAD_TRACE && l->in.median > 0) append_length(&s, KEY_IN, &l->in);
    if (l->arrivals != LOAD_TRACE && l->out.median > 0) append_length(&s, KEY_OUT, &l->out);
    if (*l->prompts) append_item(&s, KEY_PROMPTS, l->prompts);
    if (l->prefix > 0) append_real(&s, KEY_PREFIX, l->prefix);
    if (l->turns > 1) append_real(&s, KEY_TURNS, l->turns);
    if (l->ctx) append_real(&s, KEY_CTX, l->ctx);
    if (l->limits) append_slo(&s, l);
    if (l->meet != LOAD_MEET) append_real(&s, KEY_MEET, l->meet);
    str_append(out, str_text(&s));
    str_free(&s);
}

/* The length that one in a thousand exceeds; longer ones are cut to it. */
static double length_bound(const struct load_length *l)
{
    return l->sigma > 0 ? ceil(l->median * exp(3.09 * l->sigma)) : l->median;
}

int workload_load_ctx(const struct workload_load *l)
{
    if (l->ctx) return l->ctx;
    if (l->arrivals == LOAD_TRACE || *l->trace) return LOAD_TRACE_CTX;
    if (*l->prompts && !(l->in.median > 0 && l->out.median > 0)) return LOAD_TRACE_CTX;
    const double tokens = MAX(l->turns, 1) * (length_bound(&l->in) + length_bound(&l->out));
    return (int)fmin(tokens, INT32_MAX);
}
