/* Measures which kernels are the fastest for the matrices of a model that is being opened
 * (compile=autotune). */
#include "engine/model/model_internal.h"

#include <stdlib.h>

#include "kernels/kernels.h"

/* Append the matrices of a slot to `out` (NULL: only count them). */
static int matrices_of(struct bound *b, struct weight **out)
{
    int n = 0;
    if (!b->w.data) return 0;
    if (out) out[n] = &b->w; /* with experts, a copy of the first one's */
    n++;
    for (int64_t i = 0; i < b->count; i++, n++)
        if (out) out[n] = &b->experts[i];
    return n;
}

/* All matrices that a site runs. */
static int matrices_at(struct model *m, const struct site *s, struct weight **out)
{
    int n = 0;
    for (int i = 0; i < SLOT_GLOBAL_COUNT && model_site(m, -1) == s; i++)
        n += matrices_of(&m->global[i], out ? out + n : NULL);
    for (int l = 0; l < m->shape.layers; l++)
        for (size_t i = 0; i < COUNT_OF(m->layers[l].slots); i++)
            if (model_slot_site(m, l, (enum slot)(i + SLOT_GLOBAL_COUNT)) == s)
                n += matrices_of(&m->layers[l].slots[i], out ? out + n : NULL);
    return n;
}

static bool autotune_report(void *ctx, int done, int of)
{
    const struct model_options *o = ctx;
    return !o->progress || o->progress(o->progress_arg, "autotune", (double)done / of);
}

static enum err_code autotune_site(struct model *m, const struct site *s, const struct model_options *o,
                                   struct err *why)
{
    struct autotuned now;
    const int count = matrices_at(m, s, NULL);
    struct weight **all = calloc((size_t)count + 1, sizeof *all);
    if (!all) return err_set(why, ERR_NOMEM, "out of memory for a list of %d matrices", count);
    matrices_at(m, s, all);
    const enum err_code rc = backend_autotune(s->backend, all, count, autotune_report, (void *)o, &now, why);
    free(all);
    if (rc || !now.measured) return rc;
    free(m->autotuned.text);
    m->autotuned = now;
    return ERR_OK;
}

enum err_code model_autotune(struct model *m, const struct model_options *o, struct err *why)
{
    if (m->session.backend.compile != COMPILE_AUTOTUNE) return ERR_OK;
    enum err_code rc = ERR_OK;
    for (const struct site *s = m->sites; s < m->sites + SITE_COUNT && !rc; s++)
        if (s->backend) rc = autotune_site(m, s, o, why);
    return rc;
}

const struct autotuned *model_autotuned(const struct model *m)
{
    return &m->autotuned;
}
