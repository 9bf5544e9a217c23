/* Sums of profiles over cells (profile.h), and what the machine's limits say about them. */
#include "advisor/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "engine/arch/arch.h"

const char *const PHASE_NAMES[PHASE_COUNT] = { [PHASE_PREFILL] = "prefill", [PHASE_DECODE] = "decode" };

static enum err_code profile_init_layers(struct run_profile *p, int layers, struct err *why)
{
    *p = (struct run_profile){ .layers = layers };
    for (int i = 0; i < PHASE_COUNT; i++) {
        const size_t n = (size_t)(layers + 1) * OPERATOR_COUNT;
        p->phase[i].sums = calloc(n, sizeof *p->phase[i].sums);
        if (!p->phase[i].sums) return err_set(why, ERR_NOMEM, "out of memory for a profile");
        for (size_t k = 0; k < n; k++) p->phase[i].sums[k].limit_s = p->phase[i].sums[k].memory_limit_s = NAN;
    }
    return ERR_OK;
}

void run_profile_free(struct run_profile *p)
{
    for (int i = 0; i < PHASE_COUNT; i++) free(p->phase[i].sums);
    *p = (struct run_profile){ 0 };
}

struct operator_sum *run_profile_at(const struct run_profile *p, int phase, int layer, int op)
{
    return &p->phase[phase].sums[(layer + 1) * OPERATOR_COUNT + op];
}

static int operator_find(const char *name)
{
    for (int i = 0; i < OPERATOR_COUNT; i++)
        if (!strcmp(PASS_OPERATOR_NAMES[i], name)) return i;
    return -1;
}

static enum err_code add_phase(struct run_profile *p, int phase, const json_t *from, struct err *why)
{
    struct phase_profile *to = &p->phase[phase];
    const json_t *o;
    size_t i;
    to->passes += json_get_int(from, "passes", 0);
    to->seconds += json_get_num(from, "seconds", NAN);
    json_array_foreach(json_object_get(from, "operators"), i, o)
    {
        const int64_t layer = json_get_int(o, "layer", INT64_MIN);
        const char *name = json_get_str(o, "operator", ""), *format = json_get_str(o, "format", NULL);
        const int op = operator_find(name);
        if (op < 0 || layer < -1 || layer >= p->layers)
            return err_set(why, ERR_FORMAT,
                           "a profile has operator '%s' in layer %lld: expected layers -1 to %d", name,
                           (long long)layer, p->layers - 1);
        struct operator_sum *s = run_profile_at(p, phase, (int)layer, op);
        s->calls += json_get_int(o, "calls", 0);
        s->seconds += json_get_num(o, "seconds", NAN);
        s->bytes += json_get_num(o, "bytes", NAN);
        s->ops += json_get_num(o, "ops", NAN);
        s->rows = MAX(s->rows, json_get_int(o, "rows", 0));
        s->format = format ? format_find(format) : NULL;
    }
    return ERR_OK;
}

enum err_code run_profile_add(struct run_profile *p, const json_t *answer, struct err *why)
{
    const json_t *profile = json_object_get(answer, "profile");
    const int64_t layers = json_get_int(profile, "layers", 0);
    if (layers < 1 || layers > LAYERS_MAX || (p->layers && p->layers != layers))
        return err_set(why, ERR_FORMAT, "the worker's answer has no profile of %d layers", p->layers);
    enum err_code rc = p->layers ? ERR_OK : profile_init_layers(p, (int)layers, why);
    for (int i = 0; i < PHASE_COUNT && !rc; i++)
        rc = add_phase(p, i, json_object_get(profile, PHASE_NAMES[i]), why);
    return rc;
}

void run_profile_limit(struct run_profile *p, const struct config *c, const struct machine *machine,
                       const struct machine_ceilings *ceilings, bool in_cache)
{
    for (int i = 0; i < PHASE_COUNT; i++)
        for (int k = 0; k < (p->layers + 1) * OPERATOR_COUNT; k++) {
            struct operator_sum *s = &p->phase[i].sums[k];
            const struct operator_work w = { s->bytes, s->ops, s->rows, s->format, in_cache };
            bool by_memory;
            s->limit_s = predict_operator_limit_s(&w, c, machine, ceilings, &by_memory);
            s->memory_limit_s = by_memory ? s->limit_s : 0;
        }
}

/* Adds one sum to another. Limits are added of those that have one. */
static void add_sum(struct operator_sum *to, const struct operator_sum *s)
{
    to->calls += s->calls;
    to->seconds += s->seconds;
    to->bytes += s->bytes;
    to->ops += s->ops;
    if (isnan(s->limit_s)) return;
    to->limit_s = (isnan(to->limit_s) ? 0 : to->limit_s) + s->limit_s;
    to->memory_limit_s = (isnan(to->memory_limit_s) ? 0 : to->memory_limit_s) + s->memory_limit_s;
}

struct operator_sum run_profile_over_layers(const struct run_profile *p, int phase, int op)
{
    struct operator_sum sum = { .limit_s = NAN, .memory_limit_s = NAN };
    for (int layer = -1; layer < p->layers; layer++) add_sum(&sum, run_profile_at(p, phase, layer, op));
    return sum;
}

struct operator_sum run_profile_total(const struct run_profile *p, int phase)
{
    struct operator_sum sum = { .limit_s = NAN, .memory_limit_s = NAN };
    for (int op = 0; op < OPERATOR_COUNT; op++) {
        const struct operator_sum s = run_profile_over_layers(p, phase, op);
        add_sum(&sum, &s);
    }
    return sum;
}

static void fold_line(struct str *out, const char *phase, int layer, const char *name, double seconds)
{
    const double us = round(1e6 * seconds);
    if (!(us > 0)) return;
    str_append(out, phase);
    if (layer >= 0) str_printf(out, ";layer %d", layer);
    str_printf(out, ";%s %.0f\n", name, us);
}

void run_profile_fold(const struct run_profile *p, struct str *out)
{
    for (int i = 0; i < PHASE_COUNT; i++) {
        for (int layer = -1; layer < p->layers; layer++)
            for (int op = 0; op < OPERATOR_COUNT; op++)
                fold_line(out, PHASE_NAMES[i], layer, PASS_OPERATOR_NAMES[op],
                          run_profile_at(p, i, layer, op)->seconds);
        fold_line(out, PHASE_NAMES[i], -1, "other", p->phase[i].seconds - run_profile_total(p, i).seconds);
    }
}
