/* advisor/tune/variants_space.c - further candidates of a search between variants: values of --space for one
 * file, or what an ordinary search of one model found promising. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"

enum err_code variants_space(struct config **list, int *n, const struct config *base, const char *space,
                             struct err *why)
{
    struct tune_space *s = calloc(1, sizeof *s);
    *list = NULL;
    *n = 0;
    enum err_code rc = s ? tune_space_parse(s, space, why)
                         : err_set(why, ERR_NOMEM, "out of memory for the search space");
    const int64_t all = rc ? 0 : tune_space_size(s);
    if (!rc && all > TUNE_FOREIGN)
        rc = err_set(why, ERR_USAGE,
                     "--space: %lld configs of each file, expected at most %d: all are measured",
                     (long long)all, TUNE_FOREIGN);
    if (!rc && !(*list = calloc((size_t)all, sizeof **list)))
        rc = err_set(why, ERR_NOMEM, "out of memory for %lld configs", (long long)all);
    if (!rc) s->base = *base;
    for (int64_t i = 0; i < all && !rc; i++) {
        struct config c;
        if (!tune_space_config(&c, s, i)) {
            rc = config_check(&c, why);
            rc = rc ? err_prefix(why, "--space") : err_set(why, ERR_USAGE, "--space: an invalid value");
        } else if (!config_same(&c, base)) {
            (*list)[(*n)++] = c;
        }
    }
    free(s);
    return rc;
}

/* The bound of kld_mean in a target that asks for all of its terms; NAN: it has none. */
static double kld_bound(const struct gate *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].kind == GATE_OR || g->node[i].kind == GATE_NOT) return NAN;
    for (int i = 0; i < g->terms; i++)
        if (g->term[i].metric < 0 && g->term[i].figure == GATE_KLD_MEAN && g->term[i].scale == 0)
            return g->term[i].offset;
    return NAN;
}

static int faster_first(const void *x, const void *y)
{
    const struct tune_candidate *a = x, *b = y;
    if (a->front != b->front) return a->front ? -1 : 1;
    return a->rate < b->rate ? 1 : a->rate > b->rate ? -1 : strcmp(a->line, b->line);
}

enum err_code variants_raced(struct config *list, int *n, int most, const struct tune_options *o,
                             double budget_s, struct err *why)
{
    struct tune_options race = *o;
    struct tune_result found;
    const double bound = kld_bound(o->target);
    *n = 0;
    race.target = NULL;
    race.search_only = true;
    race.resume_id = 0;
    race.budget_s = budget_s;
    race.goal = GOAL_SPEED;
    race.limits.ppl_ratio = 0; /* the target says what may be lost */
    race.limits.kld = bound > 0 ? bound : 1;
    enum err_code rc = tune(&found, &race, why);
    if (!rc && found.stopped) rc = err_set(why, ERR_CANCELLED, "stopped");
    for (int i = 0; i < found.n_seen && !rc; i++) /* measured as it is, or unchanged in its answers */
        if (found.seen[i].same_answers && isnan(found.seen[i].kld)) found.seen[i].kld = 0;
    if (!rc) tune_front(found.seen, found.n_seen);
    if (!rc) qsort(found.seen, (size_t)found.n_seen, sizeof *found.seen, faster_first);
    for (int i = 0; i < found.n_seen && *n < most && !rc; i++)
        if (!found.seen[i].failed && found.seen[i].rate > 0)
            rc = config_parse(&list[(*n)++], found.seen[i].line, why);
    tune_result_free(&found);
    return rc;
}
