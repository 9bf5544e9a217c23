/* advisor/learn.h - what past runs teach about predictions.
 *
 * After every run on this machine the prediction made before it and what was measured are kept (db residual).
 * Runs that share a model, a recipe, a thread count ... with a new question share what the cost model got
 * wrong there: the logarithm of measured / predicted is a sum of unknowns, one for each thing in common (a
 * Gaussian process whose covariance counts what two runs share). The correction is its mean, the interval its
 * spread: it narrows where much like this was measured, and stays wide elsewhere. */
#ifndef QDYNO_ADVISOR_LEARN_H
#define QDYNO_ADVISOR_LEARN_H

#include "advisor/conditions.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "telemetry/telemetry.h"

/* What two runs may have in common; LESSON_TRAITS has the names and what each weighs. */
enum lesson_trait {
    TRAIT_MODEL,
    TRAIT_RECIPE,
    TRAIT_THREADS,
    TRAIT_KV,
    TRAIT_PRODUCTS, /* precision, act, isa */
    TRAIT_MEMORY,   /* hugepages, prefetch */
    TRAIT_WORK,     /* depth, batch and sequences, by powers of four */
    TRAIT_COUNT
};
struct lesson_traits {
    /* "model=llama/1100048384 recipe=q4_0 ... reading=0.66 pace=0.93 core=0.98 noise=0.021" */
    char text[256];
    uint64_t hash[TRAIT_COUNT];
    double reading, noise;
    struct conditions now;
};
/* What was done. A memory that is slower than it was when kernels were timed (others use it, too) slows work
 * down as far as it waits for it, and cores that others use as well slow down the rest, whatever the model.
 * Where both were looked at beside the run, the prediction knows, and the run says the more about everything
 * else. */
struct lesson_work {
    int depth, batch, sequences, threads; /* threads that really ran */
    double reading;                       /* share of the predicted time that is waiting for memory: 0 .. 1 */
    double noise; /* standard error of the rate's logarithm, by its repetitions; 0: nobody knows */
    struct conditions now;
};
void lesson_traits_of(struct lesson_traits *out, const struct model_shape *shape, const struct config *c,
                      const struct lesson_work *w);

struct lessons; /* of one machine and basis; immutable once loaded, may be read by several threads */

/* What predictions stand on: rows of another basis cannot correct them. Into buf. Returns buf. */
const char *lessons_basis(const struct machine_ceilings *c, char *buf, size_t size);
/* d NULL or nothing known: lessons that teach nothing. *out owned: lessons_free. ERR_NOMEM, as db_*. */
enum err_code lessons_load(struct lessons **out, struct db *d, const char *machine_id,
                           const struct machine_ceilings *c, struct err *why);
void lessons_free(struct lessons *l); /* NULL is fine */

/* A prediction with its interval: nine in ten shall lie in it. */
struct estimate {
    double value, low, high;
    int runs; /* that taught it something */
};
/* sd: of ln(measured / untaught) before anything was measured. l NULL: only the interval. */
struct estimate lessons_correct(const struct lessons *l, const char *metric, const struct lesson_traits *t,
                                double untaught, double sd);

/* Share of predictions: how good they were. Rows as they were told, so each before it was measured. */
struct accuracy {
    char metric[48];
    int n, within_10, within_20, in_interval;
    double median_error; /* of |predicted / measured - 1| */
    double bias;         /* mean ln(measured / predicted) */
};
enum { ACCURACY_MAX = 8 };
/* Returns how many were filled. */
int accuracy_of(struct accuracy out[ACCURACY_MAX], const struct residual_row *rows, int n);

#endif
