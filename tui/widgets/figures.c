/* tui/widgets/figures.c - numbers formatted for people. */
#include "tui/widgets/widgets.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const struct figure NOT_AVAILABLE = { "n/a" };

static struct figure figure_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static struct figure figure_printf(const char *fmt, ...)
{
    struct figure f;
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, sizeof f.text, fmt, args);
    va_end(args);
    return f;
}

/* The number of decimals that gives three significant digits. */
static int figure_decimals(double v)
{
    v = fabs(v);
    return v >= 99.95 ? 0 : v >= 9.995 ? 1 : v >= 0.9995 || v < 0.0005 ? 2 : 3;
}

struct figure figure_number(double v)
{
    if (!isfinite(v)) return NOT_AVAILABLE;
    if (fabs(v) >= 999.5e6) return figure_printf("%.3g", v);
    if (fabs(v) >= 999.5e3) return figure_printf("%.*fM", figure_decimals(v / 1e6), v / 1e6);
    if (fabs(v) >= 99950) return figure_printf("%.0fk", v / 1e3);
    return figure_printf("%.*f", figure_decimals(v), v);
}

struct figure figure_percent(double ratio)
{
    if (!isfinite(ratio)) return NOT_AVAILABLE;
    double p = ratio * 100;
    return p > 0 && p < 0.95 ? figure_printf("%.1f%%", p) : figure_printf("%.0f%%", p);
}

struct figure figure_change(double log_ratio)
{
    if (!isfinite(log_ratio)) return NOT_AVAILABLE;
    double p = expm1(log_ratio) * 100;
    return figure_printf("%+.*f%%", fabs(p) >= 999.5 ? 0 : 1, p);
}

struct figure figure_nats(double nats)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0e", nats);
    return f;
}

struct figure figure_bytes(int64_t bytes)
{
    struct figure f;
    str_from_bytes(bytes, f.text, sizeof f.text);
    return f;
}

struct figure figure_seconds(double s)
{
    if (!isfinite(s)) return NOT_AVAILABLE;
    if (s >= 0.9995 || s == 0) return figure_printf("%.*fs", figure_decimals(s), s);
    if (s >= 0.9995e-3) return figure_printf("%.*fms", figure_decimals(s * 1e3), s * 1e3);
    return figure_printf("%.*fus", figure_decimals(s * 1e6), s * 1e6);
}

struct figure figure_duration(double s)
{
    if (!isfinite(s) || s < 0 || s > 1e8) return NOT_AVAILABLE;
    long t = lround(s);
    return t >= 3600 ? figure_printf("%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60)
                     : figure_printf("%ld:%02ld", t / 60, t % 60);
}

struct figure figure_age(int64_t ms)
{
    const long long s = MAX(ms, 0) / 1000;
    return s < 120    ? figure_printf("%lld s", s)
           : s < 7200 ? figure_printf("%lld min", s / 60)
                      : figure_printf("%lld h", s / 3600);
}

struct figure figure_hertz(double hz)
{
    if (!isfinite(hz)) return NOT_AVAILABLE;
    return hz >= 1e9 ? figure_printf("%.1fGHz", hz / 1e9) : figure_printf("%.0fMHz", hz / 1e6);
}

struct figure figure_celsius(double c)
{
    return isfinite(c) ? figure_printf("%.0f°C", c) : NOT_AVAILABLE;
}

struct figure figure_per_second(double bytes_s)
{
    if (!isfinite(bytes_s)) return NOT_AVAILABLE;
    double v = bytes_s / 1e9;
    return figure_printf("%.*fGB/s", figure_decimals(v), v);
}

static struct figure figure_time(int64_t unix_ms, const char *format)
{
    struct figure f = NOT_AVAILABLE;
    time_t t = (time_t)(unix_ms / 1000);
    struct tm tm;
    if (unix_ms > 0 && localtime_r(&t, &tm)) strftime(f.text, sizeof f.text, format, &tm);
    return f;
}

struct figure figure_clock(int64_t unix_ms)
{
    return figure_time(unix_ms, "%H:%M:%S");
}

struct figure figure_date(int64_t unix_ms)
{
    return figure_time(unix_ms, "%m-%d %H:%M");
}
