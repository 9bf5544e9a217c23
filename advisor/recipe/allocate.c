/* advisor/recipe/allocate.c - allocates bytes to items with a Lagrange multiplier (recipe.h). */
#include "advisor/recipe/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one item */

static bool is_offered(const struct cost_choice *c)
{
    return isfinite(c->cost) && c->bytes >= 0;
}

bool choice_is_efficient(const struct item *item, int k)
{
    const struct cost_choice *c = &item->choice[k];
    if (!is_offered(c)) return false;
    for (int i = 0; i < item->n; i++) {
        const struct cost_choice *a = &item->choice[i];
        if (i == k || !is_offered(a)) continue;
        const bool twin = a->bytes == c->bytes && a->cost == c->cost;
        if (twin ? i < k : a->bytes <= c->bytes && a->cost <= c->cost) return false;
        /* does it lie above the line from a to b? */
        for (int j = 0; j < item->n && a->bytes < c->bytes; j++) {
            const struct cost_choice *b = &item->choice[j];
            if (!is_offered(b) || b->bytes <= c->bytes) continue;
            const double share = (double)(c->bytes - a->bytes) / (double)(b->bytes - a->bytes);
            if (c->cost >= a->cost + share * (b->cost - a->cost)) return false;
        }
    }
    return true;
}

/* The choice with the smallest cost + lambda * bytes; the smaller one of equals. -1: the item offers none. */
static int item_best_choice(const struct item *item, double lambda)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < item->n; i++) {
        const struct cost_choice *c = &item->choice[i];
        if (!is_offered(c)) continue;
        const double y = c->cost + lambda * (double)c->bytes;
        if (best < 0 || y < least || (y == least && c->bytes < item->choice[best].bytes)) {
            best = i;
            least = y;
        }
    }
    return best;
}

/* The smallest choice, the cheapest of equals. */
static int item_smallest(const struct item *item)
{
    int best = -1;
    for (int i = 0; i < item->n; i++) {
        const struct cost_choice *c = &item->choice[i], *b = best < 0 ? NULL : &item->choice[best];
        if (is_offered(c) && (!b || c->bytes < b->bytes || (c->bytes == b->bytes && c->cost < b->cost)))
            best = i;
    }
    return best;
}

/* ---------------------------------------------------------------- all items */

static struct allocation items_total(const struct item *items, int n, double lambda)
{
    struct allocation a = { .lambda = lambda };
    for (int i = 0; i < n; i++) {
        const struct cost_choice *c = &items[i].choice[items[i].taken];
        a.bytes += c->bytes;
        a.cost += c->cost;
    }
    return a;
}

static struct allocation items_at(struct item *items, int n, double lambda)
{
    for (int i = 0; i < n; i++)
        items[i].taken = isinf(lambda) ? item_smallest(&items[i]) : item_best_choice(&items[i], lambda);
    return items_total(items, n, lambda);
}

/* Bisect the lambda at which `enough` turns from false (small lambda: many bytes) to true. `enough` is
 * monotonic: bytes fall with lambda, costs rise. */
struct target {
    int64_t bytes;
    double cost;
    bool by_bytes;
};

static bool is_small_enough(const struct allocation *a, const struct target *t)
{
    return t->by_bytes ? a->bytes <= t->bytes : a->cost > t->cost;
}

/* low and high enclose the turn, down to the precision of doubles */
static void lambda_bisect(struct item *items, int n, const struct target *t, double *low, double *high)
{
    *low = 0;
    *high = 1e-18;
    for (int i = 0; i < 400; i++, *high *= 2) {
        const struct allocation a = items_at(items, n, *high);
        if (is_small_enough(&a, t)) break;
    }
    for (int i = 0; i < 200 && *high - *low > 1e-15 * *high; i++) {
        const double middle = 0.5 * (*low + *high);
        const struct allocation a = items_at(items, n, middle);
        *(is_small_enough(&a, t) ? high : low) = middle;
    }
}

/* What changing an item from `now` to `c` gains, within the target; 0: nothing. With a limit on bytes, saved
 * cost per further byte; with a limit on cost, saved bytes per further cost. */
static double change_gain(const struct allocation *a, const struct cost_choice *now,
                          const struct cost_choice *c, const struct target *t)
{
    const int64_t bytes = c->bytes - now->bytes;
    if (!is_offered(c)) return 0;
    if (t->by_bytes)
        return c->cost < now->cost && a->bytes + bytes <= t->bytes
                   ? (now->cost - c->cost) / (double)MAX(bytes, 1)
                   : 0;
    return bytes < 0 && a->cost + c->cost - now->cost <= t->cost
               ? -(double)bytes / fmax(c->cost - now->cost, 1e-18)
               : 0;
}

/* Use what the target leaves: repeat the single change that gains the most. */
static void rest_use(struct item *items, int n, struct allocation *a, const struct target *t)
{
    for (;;) {
        int item = -1, to = -1;
        double best = 0;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < items[i].n; k++) {
                const double gain = change_gain(a, &items[i].choice[items[i].taken], &items[i].choice[k], t);
                if (gain > best) {
                    best = gain;
                    item = i;
                    to = k;
                }
            }
        if (item < 0) return;
        items[item].taken = to;
        *a = items_total(items, n, a->lambda);
    }
}

static enum err_code items_check(const struct item *items, int n, struct err *why)
{
    for (int i = 0; i < n; i++)
        if (item_smallest(&items[i]) < 0)
            return err_set(why, ERR_USAGE, "item %d offers no choice with a known cost", i);
    return ERR_OK;
}

enum err_code allocate_bytes(struct allocation *out, struct item *items, int n, int64_t limit,
                             struct err *why)
{
    const struct target t = { .bytes = limit, .by_bytes = true };
    double low, high;
    enum err_code rc = items_check(items, n, why);
    if (rc) return rc;
    *out = items_at(items, n, INFINITY);
    if (out->bytes > limit)
        return err_set(why, ERR_FIT,
                       "the smallest format for every matrix takes %" PRId64 " bytes; the limit is %" PRId64,
                       out->bytes, limit);
    *out = items_at(items, n, 0);
    if (out->bytes <= limit) return ERR_OK; /* the best choices of all fit */
    lambda_bisect(items, n, &t, &low, &high);
    *out = items_at(items, n, high);
    if (out->bytes > limit) *out = items_at(items, n, INFINITY);
    rest_use(items, n, out, &t);
    return ERR_OK;
}

enum err_code allocate_cost(struct allocation *out, struct item *items, int n, double limit, struct err *why)
{
    const struct target t = { .cost = limit };
    double low, high;
    enum err_code rc = items_check(items, n, why);
    if (rc) return rc;
    *out = items_at(items, n, 0);
    if (!(out->cost <= limit))
        return err_set(why, ERR_FIT, "the most exact choices cost %.4g, the limit is %.4g", out->cost, limit);
    lambda_bisect(items, n, &t, &low, &high);
    *out = items_at(items, n, low);
    rest_use(items, n, out, &t);
    return ERR_OK;
}
