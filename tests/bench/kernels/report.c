/* Prints the results as a table or as one JSON document. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/kernels/bench.h"

static int by_value(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double median(const double *v, int n, double *spread)
{
    double s[ROUNDS_MAX];
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    *spread = (s[n - 1 - n / 4] - s[n / 4]) / s[n / 2];
    return s[n / 2];
}

static bool is_over(const struct line *l)
{
    return !isnan(l->error) && !(l->error <= l->bound);
}

/* "1.2e+10" or "null". Infinite errors become the largest number, which JSON has. */
static const char *number(double v, char *buf, size_t size)
{
    if (isnan(v))
        snprintf(buf, size, "null");
    else
        snprintf(buf, size, "%.4g", isinf(v) ? 1e308 : v);
    return buf;
}

static void put_json(const struct line *l, double speed, double spread, bool last)
{
    static const char *const UNITS[] = { "bytes/s", "ops/s", "calls/s", "weights/s" };
    char error[32], bound[32], rate[32], noise[32], share[32];
    printf(
        "  {\"kind\": \"%s\", \"isa\": \"%s\", \"format\": \"%s\", \"precision\": \"%s\", \"shape\": \"%s\", "
        "\"n\": %d, \"error\": %s, \"bound\": %s, \"ok\": %s, \"unit\": \"%s\", \"speed\": %s, "
        "\"spread\": %s, \"share\": %s, \"worst\": \"%s\"}%s\n",
        l->kind, l->level ? l->level->name : "", l->format, l->precision, l->shape, l->n,
        number(l->error, error, sizeof error), number(l->bound, bound, sizeof bound),
        is_over(l) ? "false" : "true", UNITS[l->unit], number(speed, rate, sizeof rate),
        number(spread, noise, sizeof noise), number(speed / l->limit, share, sizeof share),
        l->worst ? l->worst : "", last ? "" : ",");
}

static void put_speed(const struct line *l, double speed, double spread)
{
    if (isnan(speed))
        printf(" %17s | %6s | %6s |\n", "", "", "");
    else {
        static const struct {
            const char *name;
            double factor;
        } SHOWN[] = { { "GB/s", 1e-9 }, { "GFLOP/s", 1e-9 }, { "ns", 0 }, { "Mw/s", 1e-6 } };
        const double factor = SHOWN[l->unit].factor;
        printf(" %9.2f %-7s | %4.0f %% |", factor ? speed * factor : 1e9 / speed, SHOWN[l->unit].name,
               100 * spread);
        if (isnan(l->limit))
            printf(" %6s |\n", "");
        else
            printf(" %4.0f %% |\n", 100 * speed / l->limit);
    }
}

static void put_row(const struct line *l, double speed, double spread)
{
    char n[16] = "", error[32] = "not verified";
    if (l->n >= 0) snprintf(n, sizeof n, "%d", l->n);
    if (!isnan(l->error))
        snprintf(error, sizeof error, "%8.1e %s%.0e", l->error, is_over(l) ? "OVER " : "of ", l->bound);
    printf("| %-10s | %-11s | %-8s | %-9s | %-14s | %4s | %-17s |", l->kind, l->level ? l->level->name : "",
           l->format, l->precision, l->shape, n, error);
    put_speed(l, speed, spread);
    if (is_over(l) && l->worst) printf("  ^ %s\n", l->worst);
}

int report(struct bench *t)
{
    int over = 0;
    char read[32];
    if (t->o.json)
        printf("{\"schema\": \"qdyno.bench.kernels/2\", \"threads\": %d, \"read_bytes_s\": %s, \"rows\": [\n",
               t->o.threads, number(t->read_bytes_s, read, sizeof read));
    else
        printf(
            "%d threads, streaming read %.1f GB/s; up to 16 rows: bytes of weights read, else arithmetic; encoding: one core\n\n"
            "| kind       | isa         | format   | precision | timed shape    | rows | error             | "
            "           speed | spread | of the limit |\n|---|---|---|---|---|---:|---|---:|---:|---:|\n",
            t->o.threads, t->read_bytes_s * 1e-9);
    for (int i = 0; i < t->count; i++) {
        const struct line *l = &t->line[i];
        double spread = NAN, speed = NAN;
        if (l->run && !t->o.verify_only) speed = median(l->speed, t->o.rounds, &spread);
        over += is_over(l);
        if (t->o.json)
            put_json(l, speed, spread, i + 1 == t->count);
        else
            put_row(l, speed, spread);
    }
    if (t->o.json)
        printf("], \"over_bound\": %d}\n", over);
    else if (over)
        printf("\n%d of %d lines are over their bound\n", over, t->count);
    return over;
}
