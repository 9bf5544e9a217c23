/* advisor/experiment/others.c - names the load of other programs in the conditions of a result. A server that
 * an arm measures is not another program, and a program that explains little of the load is not its cause. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Does the load of "other programs" contain the server of an arm, because its process could not be found? */
static bool load_has_server(const struct experiment_state *x)
{
    bool has = false;
    for (int i = 0; i < x->spec.arms; i++) {
        json_t *engine = experiment_engine(&x->arm[i]);
        has |= !json_get_bool(engine, "process_known", true);
        json_decref(engine);
    }
    return has;
}

/* Names the program that used most when that was looked at, and says when it explains little of the load. */
static void put_busiest(struct str *s, const struct experiment_state *x, double others)
{
    static const double LEAST = 1.0 / 3; /* of the load */
    const int first = (int)strcspn(x->busiest, ",");
    int at = first;
    if (!first) return;
    while (at > 0 && x->busiest[at - 1] != '%') at--;
    while (at > 0 && strchr("% 0123456789", x->busiest[at - 1])) at--;
    const double percent = strtod(x->busiest + at, NULL); /* "cc1 40 %" */
    if (isfinite(others) && percent < LEAST * 100 * others)
        str_printf(s, " (no single program explains that: the most, when looked at, was %.*s)", first,
                   x->busiest);
    else
        str_printf(s, " (largest single program at one moment: %.*s)", first, x->busiest);
}

void others_put(struct str *s, const struct experiment_state *x, double others)
{
    if (isfinite(others))
        str_printf(s, "; other programs%s used %.0f %% of the CPU time, averaged over all blocks",
                   load_has_server(x) ? ", with the tested server, whose process was not found, among them,"
                                      : "",
                   100 * others);
    put_busiest(s, x, others);
}
