/* plot.c - layers, axis ranges and round axis values, for both writers of plots. */
#include "tui/report/plot.h"

#include <math.h>
#include <string.h>

const struct plot_point PLOT_NOWHERE = { NAN, NAN, NAN, NAN, NAN, NAN, NULL, NULL };

struct plot_layer *plot_layer(struct plot *p, struct arena *a, enum mark mark, int hue, int n)
{
    if (p->layers == PLOT_LAYERS || n < 0) return NULL;
    struct plot_point *point = arena_alloc(a, (size_t)(n ? n : 1) * sizeof *point);
    if (!point) return NULL;
    for (int i = 0; i < n; i++) point[i] = PLOT_NOWHERE;
    struct plot_layer *l = &p->layer[p->layers++];
    *l = (struct plot_layer){ .mark = mark, .hue = hue, .point = point, .n = n };
    return l;
}

struct plot_layer *plot_place(struct plot *p, struct arena *a, enum mark mark, int hue, struct plot_point at)
{
    struct plot_layer *l = plot_layer(p, a, mark, hue, 1);
    if (l) l->point[0] = at;
    return l;
}

int plot_columns(const char *text)
{
    static const struct {
        uint32_t from, to;
        int columns;
    } RANGES[] = {
        { .from = 0x300, .to = 0x36f, .columns = 0 },     { .from = 0x200b, .to = 0x200f, .columns = 0 },
        { .from = 0xfe00, .to = 0xfe0f, .columns = 0 },   { .from = 0x1100, .to = 0x115f, .columns = 2 },
        { .from = 0x2e80, .to = 0x303e, .columns = 2 },   { .from = 0x3041, .to = 0xa4cf, .columns = 2 },
        { .from = 0xac00, .to = 0xd7a3, .columns = 2 },   { .from = 0xf900, .to = 0xfaff, .columns = 2 },
        { .from = 0xfe30, .to = 0xfe6f, .columns = 2 },   { .from = 0xff00, .to = 0xff60, .columns = 2 },
        { .from = 0xffe0, .to = 0xffe6, .columns = 2 },   { .from = 0x1f300, .to = 0x1f64f, .columns = 2 },
        { .from = 0x1f900, .to = 0x1f9ff, .columns = 2 }, { .from = 0x20000, .to = 0x3fffd, .columns = 2 },
    };
    int columns = 0;
    size_t n = strlen(text), used;
    uint32_t code;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        int wide = 1;
        for (size_t i = 0; i < COUNT_OF(RANGES); i++)
            if (code >= RANGES[i].from && code <= RANGES[i].to) wide = RANGES[i].columns;
        columns += wide;
    }
    return columns;
}

/* ---------------------------------------------------------------- scales */

/* Larger numbers are not drawn, because their differences would overflow. */
static const double FARTHEST = 1e100;

/* Extends the range to include v. */
static void scale_include(struct plot_scale *s, double v)
{
    if (!(fabs(v) <= FARTHEST) || (s->log && v <= 0)) return;
    s->low = fmin(s->low, v);
    s->high = fmax(s->high, v);
}

static void scale_include_point(struct plot_scale *s, const struct plot_point *at, char axis)
{
    scale_include(s, axis == 'x' ? at->x : at->y);
    scale_include(s, axis == 'x' ? at->x_low : at->y_low);
    scale_include(s, axis == 'x' ? at->x_high : at->y_high);
}

/* Extends the range by 5 % on each side, so that marks do not lie on the frame. */
static void scale_widen(struct plot_scale *s)
{
    const double AIR = 0.05;
    if (s->log) {
        const double room = s->high > s->low ? pow(s->high / s->low, AIR) : 2;
        s->low /= room;
        s->high *= room;
        return;
    }
    double room = (s->high - s->low) * AIR;
    if (!(room > 1e-9 * fmax(fabs(s->low), fabs(s->high)))) room = fmax(fabs(s->high) * AIR, 1e-3);
    s->low -= room;
    s->high += room;
}

struct plot_scale plot_scale(const struct plot *p, char axis)
{
    const struct plot_axis *a = axis == 'x' ? &p->x : &p->y;
    struct plot_scale s = { INFINITY, -INFINITY, a->log };
    if (a->names) return (struct plot_scale){ -0.6, a->n_names - 0.4, false };
    for (int i = 0; i < p->layers; i++)
        for (int k = 0; k < p->layer[i].n && !p->layer[i].loose; k++)
            scale_include_point(&s, &p->layer[i].point[k], axis);
    if (!(s.low <= s.high)) s = (struct plot_scale){ a->log ? 0.1 : 0, 1, a->log };
    scale_widen(&s);
    if (isfinite(a->low) && (!a->log || a->low > 0)) s.low = a->low;
    if (isfinite(a->high) && (!a->log || a->high > 0)) s.high = a->high;
    if (!(s.low < s.high)) s.high = s.low + (s.low > 0 ? s.low : 1);
    return s;
}

double plot_at(const struct plot_scale *s, double value)
{
    if (!isfinite(value) || (s->log && value <= 0)) return NAN;
    if (s->log) return log(value / s->low) / log(s->high / s->low);
    return (value - s->low) / (s->high - s->low);
}

/* ---------------------------------------------------------------- round values */

/* The smallest of 1, 2, 5 times a power of ten that is at least `v`. */
static double round_up(double v)
{
    const double power = pow(10, floor(log10(v)));
    static const double STEPS[] = { 1, 2, 5, 10 };
    for (size_t i = 0; i < COUNT_OF(STEPS); i++)
        if (v <= STEPS[i] * power * (1 + 1e-9)) return STEPS[i] * power;
    return 10 * power;
}

static double clock_step(double v)
{
    static const double STEPS[] = { 1,   2,   5,    10,   15,   30,    60,    120,  300,
                                    600, 900, 1800, 3600, 7200, 14400, 28800, 86400 };
    for (size_t i = 0; i < COUNT_OF(STEPS); i++)
        if (v <= STEPS[i]) return STEPS[i];
    return 86400 * round_up(v / 86400);
}

/* The factor and the name of the unit for values of this size. */
static double unit_scale(enum plot_unit unit, double size, const char **name)
{
    static const struct {
        enum plot_unit unit;
        double from, scale;
        const char *name;
    } UNITS[] = {
        { .unit = UNIT_CHANGE, .from = 0, .scale = 0.01, .name = "%" },
        { .unit = UNIT_SHARE, .from = 0, .scale = 0.01, .name = "%" },
        { .unit = UNIT_SECONDS, .from = 1, .scale = 1, .name = "s" },
        { .unit = UNIT_SECONDS, .from = 1e-3, .scale = 1e-3, .name = "ms" },
        { .unit = UNIT_SECONDS, .from = 0, .scale = 1e-6, .name = "us" },
        { .unit = UNIT_BYTES, .from = 1 << 30, .scale = 1 << 30, .name = "G" },
        { .unit = UNIT_BYTES, .from = 1 << 20, .scale = 1 << 20, .name = "M" },
        { .unit = UNIT_BYTES, .from = 1 << 10, .scale = 1 << 10, .name = "K" },
        { .unit = UNIT_BYTES, .from = 0, .scale = 1, .name = "B" },
        { .unit = UNIT_HERTZ, .from = 1e9, .scale = 1e9, .name = "GHz" },
        { .unit = UNIT_HERTZ, .from = 1e6, .scale = 1e6, .name = "MHz" },
        { .unit = UNIT_HERTZ, .from = 0, .scale = 1, .name = "Hz" },
        { .unit = UNIT_CELSIUS, .from = 0, .scale = 1, .name = "°C" },
        { .unit = UNIT_WATTS, .from = 0, .scale = 1, .name = "W" },
        { .unit = UNIT_NUMBER, .from = 1e6, .scale = 1e6, .name = "M" },
        { .unit = UNIT_NUMBER, .from = 1e5, .scale = 1e3, .name = "k" },
    };
    for (size_t i = 0; i < COUNT_OF(UNITS); i++)
        if (UNITS[i].unit == unit && fabs(size) >= UNITS[i].from * (1 - 1e-9)) {
            *name = UNITS[i].name;
            return UNITS[i].scale;
        }
    *name = "";
    return 1;
}

/* Prints v. size: the largest value on the axis, which determines the unit; step: the distance of two values,
 * which determines the digits. */
static void value_print(char text[24], enum plot_unit unit, double v, double size, double step)
{
    const char *name;
    const double scale = unit_scale(unit, size, &name);
    if (unit == UNIT_CLOCK) {
        const long s = lround(fmax(0, fmin(v, 1e9)));
        if (size >= 3600)
            snprintf(text, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
        else
            snprintf(text, 24, "%ld:%02ld", s / 60, s % 60);
        return;
    }
    int digits = 0;
    for (double left = step / scale; digits < 6 && left < 1 - 1e-6; left *= 10) digits++;
    double shown = v / scale;
    if (fabs(shown) < 0.5 * pow(10, -digits)) shown = 0; /* not "-0.0" */
    if (fabs(shown) >= 1e7)
        snprintf(text, 24, "%.3g%s", shown, name);
    else
        snprintf(text, 24, unit == UNIT_CHANGE && shown != 0 ? "%+.*f%s" : "%.*f%s", digits, shown, name);
}

static void ticks_add(struct plot_ticks *t, const struct plot_scale *s, double v)
{
    const double at = plot_at(s, v);
    if (at >= -1e-9 && at <= 1 + 1e-9 && t->n < PLOT_TICKS) t->at[t->n++] = v;
}

static void linear_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s,
                         int most)
{
    const char *name;
    const double size = fmax(fabs(s->low), fabs(s->high)), span = s->high - s->low;
    const double scale = unit_scale(axis->unit, size, &name);
    double step = span;
    for (double want = span / most, tries = 0; tries < 64; want = step * 1.01, tries++) {
        step = axis->unit == UNIT_CLOCK ? clock_step(want) : round_up(want / scale) * scale;
        if (axis->unit == UNIT_COUNT) step = fmax(step, 1);
        if (floor(s->high / step) - ceil(s->low / step) + 1 <= most) break;
    }
    const double first = ceil(s->low / step - 1e-9);
    for (int i = 0; i < most && (first + i) * step <= s->high + 1e-9 * span; i++)
        ticks_add(t, s, (first + i) * step);
    for (int i = 0; i < t->n; i++) value_print(t->text[i], axis->unit, t->at[i], size, step);
}

/* Powers of ten, also times 2 and 5 if there is room. Returns false if fewer than two values fit the range.
 */
static bool log_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s,
                      int most)
{
    static const double FINE[] = { 1, 2, 5 };
    const int from = (int)floor(log10(s->low)), to = (int)ceil(log10(s->high));
    const int decades = MAX(1, to - from);
    const int every = MAX(1, (decades + most) / most);
    const size_t fine = decades * 3 <= most + 2 ? COUNT_OF(FINE) : 1;
    for (int d = from; d <= to; d += every)
        for (size_t i = 0; i < fine; i++) ticks_add(t, s, FINE[i] * pow(10, d));
    for (int i = 0; i < t->n; i++)
        value_print(t->text[i], axis->unit, t->at[i], t->at[i], t->at[i] * (1 - 1e-9));
    return t->n >= 2 && t->n <= most;
}

void plot_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s, int most)
{
    t->n = 0;
    most = MAX(1, MIN(most, PLOT_TICKS));
    if (axis->names) {
        for (int i = 0; i < axis->n_names && i < PLOT_TICKS; i++) {
            t->at[t->n] = i;
            snprintf(t->text[t->n++], sizeof t->text[0], "%s", axis->names[i]);
        }
        return;
    }
    if (s->log && log_ticks(t, axis, s, most)) return;
    t->n = 0;
    linear_ticks(t, axis, s, most);
}
