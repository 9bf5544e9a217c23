/* engine/serve/step_cost.h - how long a step will take, from the times of earlier ones.
 *
 * The model is seconds = a + b * rows + c * attended, where attended is the number of cached tokens that all
 * rows look at. Its three numbers are fitted by recursive least squares; old steps count less and less,
 * because speed changes with load. */
#ifndef QDYNO_ENGINE_SERVE_STEP_COST_H
#define QDYNO_ENGINE_SERVE_STEP_COST_H

struct step_work {
    double rows, attended;
};

struct step_cost {
    double weight[3];        /* a, b, c, for features scaled as in features_of */
    double covariance[3][3]; /* of the weights, up to a factor */
    int steps;
    double rows_most; /* of the steps so far: far beyond them, the expectation is a guess */
};

void step_cost_init(struct step_cost *c);
void step_cost_learn(struct step_cost *c, const struct step_work *w, double seconds);

/* Expected seconds; NAN while too few steps were seen. */
double step_cost_expect(const struct step_cost *c, const struct step_work *w);

#endif
