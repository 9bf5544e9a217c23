/* How many processes a server should have (serve.h): pure functions of what was observed, without clock and
 * processes. */
#include "advisor/serve/serve.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const SCALE_CHANGE_NAMES[SCALE_CHANGES] = {
    [SCALE_NONE] = "none",
    [SCALE_UP] = "up",
    [SCALE_DOWN] = "down",
    [SCALE_RESTART] = "restart",
};

/* ---------------------------------------------------------------- the rule */

enum { SCALE_WAITING_MOST = 1 << 16 };

static const struct scale_key {
    const char *name;
    size_t at; /* of a double in struct scale_rule */
    double least;
} KEYS[] = {
    { .name = "waiting", .at = offsetof(struct scale_rule, waiting), .least = 1 },
    { .name = "up", .at = offsetof(struct scale_rule, up_s) },
    { .name = "down", .at = offsetof(struct scale_rule, down_s) },
    { .name = "cooldown", .at = offsetof(struct scale_rule, cooldown_s) },
};

/* "waiting" is a number of requests, all others are durations. */
static bool value_read(const struct scale_key *k, const char *text, double *out)
{
    char *end;
    if (strcmp(k->name, "waiting")) return str_to_seconds(text, out);
    *out = (double)strtol(text, &end, 10);
    return end != text && !*end && *out <= SCALE_WAITING_MOST;
}

static enum err_code item_read(struct scale_rule *r, char *item, struct err *why)
{
    char *value = strchr(item, '=');
    double v = NAN;
    if (value) *value++ = '\0';
    for (size_t i = 0; value && i < COUNT_OF(KEYS); i++) {
        if (strcmp(item, KEYS[i].name)) continue;
        if (!value_read(&KEYS[i], value, &v) || !(v >= KEYS[i].least))
            return err_set(why, ERR_USAGE, "--scale %.40s=%.40s: expected %s", item, value,
                           KEYS[i].least > 0 ? "a number of requests from 1 on" : "a duration such as 5s");
        *(double *)((char *)r + KEYS[i].at) = v;
        return ERR_OK;
    }
    struct str names = { 0 };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) str_printf(&names, "%s%s", i ? ", " : "", KEYS[i].name);
    const enum err_code rc = err_set(why, ERR_USAGE, "--scale %.40s: expected KEY=VALUE with one of %s", item,
                                     str_text(&names));
    str_free(&names);
    return rc;
}

enum err_code scale_rule_parse(struct scale_rule *r, const char *text, struct err *why)
{
    char *copy = strdup(text), *rest = copy;
    enum err_code rc = copy ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for --scale");
    for (char *item; !rc && (item = strsep(&rest, ","));) rc = item_read(r, item, why);
    free(copy);
    return rc;
}

enum err_code scale_limits_parse(struct scale_rule *r, const char *text, struct err *why)
{
    int least = 0, most = 0, end = 0;
    const bool one = sscanf(text, "%4d%n", &least, &end) == 1 && !text[end];
    if (one) most = least;
    const bool two = !one && sscanf(text, "%4d..%4d%n", &least, &most, &end) == 2 && !text[end];
    if ((!one && !two) || least < 1 || most < least || most > SERVE_PROCESSES)
        return err_set(why, ERR_USAGE,
                       "--processes %.40s: expected a number from 1 to %d, or MIN..MAX such as 1..4", text,
                       SERVE_PROCESSES);
    r->least = least;
    r->most = most;
    return ERR_OK;
}

/* ---------------------------------------------------------------- decisions */

/* Since when the condition has been true without interruption. */
static void since_step(struct scale_since *s, bool holds, int64_t now_ns)
{
    if (holds && !s->holds) s->ns = now_ns;
    s->holds = holds;
}

static bool has_held(const struct scale_since *s, double seconds, int64_t now_ns)
{
    return s->holds && (double)(now_ns - s->ns) * 1e-9 >= seconds;
}

enum scale_change scale_step(const struct scale_rule *r, struct scale_state *s,
                             const struct scale_observation *o, int64_t now_ns)
{
    const bool fits = !o->waiting && o->running <= (o->processes - 1) * o->sequences;
    since_step(&s->busy, o->waiting >= r->waiting, now_ns);
    since_step(&s->idle, fits, now_ns);
    if (o->starting || (s->changed && (double)(now_ns - s->changed_ns) * 1e-9 < r->cooldown_s))
        return SCALE_NONE;
    enum scale_change change = SCALE_NONE;
    if (o->processes < r->most && has_held(&s->busy, r->up_s, now_ns)) change = SCALE_UP;
    if (o->processes > r->least && has_held(&s->idle, r->down_s, now_ns)) change = SCALE_DOWN;
    if (!change) return change;
    *s = (struct scale_state){ .changed = true, .changed_ns = now_ns };
    return change;
}

double scale_restart_delay_s(int crashes)
{
    enum { DOUBLINGS_MOST = 7 };
    static const double FIRST_S = 0.5, MOST_S = 60;
    return fmin(FIRST_S * ldexp(1, MIN(MAX(crashes - 1, 0), DOUBLINGS_MOST)), MOST_S);
}
