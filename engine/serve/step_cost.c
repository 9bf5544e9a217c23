/* Recursive least squares with exponential forgetting (step_cost.h). */
#include "engine/serve/step_cost.h"

#include <math.h>

enum { FEATURES = 3, STEPS_LEAST = 4 };
static const double KEEP = 0.98; /* weight of the past, for each step */
static const double ROWS_SCALE = 1e2, ATTENDED_SCALE = 1e5;
static const double UNKNOWN = 1e3, UNKNOWN_MOST = 1e6; /* variance of a weight: at first, and at most */

static void features_of(double out[FEATURES], const struct step_work *w)
{
    out[0] = 1;
    out[1] = w->rows / ROWS_SCALE;
    out[2] = w->attended / ATTENDED_SCALE;
}

static double product(const double a[FEATURES], const double b[FEATURES])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

void step_cost_init(struct step_cost *c)
{
    *c = (struct step_cost){ .steps = 0 };
    for (int i = 0; i < FEATURES; i++) c->covariance[i][i] = UNKNOWN;
}

void step_cost_learn(struct step_cost *c, const struct step_work *w, double seconds)
{
    double x[FEATURES], px[FEATURES];
    features_of(x, w);
    for (int i = 0; i < FEATURES; i++) px[i] = product(c->covariance[i], x);
    const double by = 1 / (KEEP + product(x, px)), error = seconds - product(c->weight, x);
    for (int i = 0; i < FEATURES; i++) c->weight[i] += px[i] * by * error;
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j < FEATURES; j++) {
            /* Without a limit, the variance of a feature that does not occur for long grows without end. */
            const double p = (c->covariance[i][j] - px[i] * px[j] * by) / KEEP;
            c->covariance[i][j] = fmin(fmax(p, -UNKNOWN_MOST), UNKNOWN_MOST);
        }
    c->steps++;
    c->rows_most = fmax(c->rows_most, w->rows);
}

double step_cost_expect(const struct step_cost *c, const struct step_work *w)
{
    double x[FEATURES];
    features_of(x, w);
    return c->steps < STEPS_LEAST ? NAN : fmax(product(c->weight, x), 0);
}
