#include "engine/worker/kept_fill.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/worker/worker_internal.h"

static void hash_of(char out[17], const struct fill_ids *f, int sequence)
{
    prompt_hash_bytes(out, f->ids + (int64_t)sequence * f->stride, (size_t)f->depth * sizeof *f->ids);
}

bool kept_fill_matches(const struct kept_fill *k, const struct model *m, const struct fill_ids *f)
{
    if (!k->sequences || k->depth != f->depth || f->sequences > k->sequences) return false;
    for (int s = 0; s < model_plan(m)->sequences; s++)
        if (model_length(m, s) != (s < k->sequences ? k->depth : 0)) return false;
    for (int s = 0; s < f->sequences; s++) {
        char hash[17];
        hash_of(hash, f, s);
        if (strcmp(hash, k->hash[s]) != 0) return false;
    }
    return true;
}

static void kept_forget(struct kept_fill *k)
{
    free(k->hash);
    free(k->states);
    *k = (struct kept_fill){ 0 };
}

enum err_code kept_fill_save(struct kept_fill *k, const struct model *m, const struct fill_ids *f,
                             struct err *why)
{
    const int64_t bytes = model_state_bytes(m);
    kept_forget(k);
    if (bytes && model_ranks(m)) return ERR_OK;
    k->hash = malloc((size_t)f->sequences * sizeof *k->hash);
    if (bytes) k->states = malloc((size_t)(bytes * f->sequences));
    if (!k->hash || (bytes && !k->states)) {
        kept_forget(k);
        return err_set(why, ERR_NOMEM, "out of memory to keep the cache of %d sequences", f->sequences);
    }
    k->depth = f->depth;
    k->sequences = f->sequences;
    for (int s = 0; s < f->sequences; s++) {
        hash_of(k->hash[s], f, s);
        if (bytes) model_state_save(m, s, k->states + s * bytes);
    }
    return ERR_OK;
}

bool kept_fill_go_back(struct kept_fill *k, struct model *m)
{
    const int64_t bytes = model_state_bytes(m);
    bool all = k->sequences > 0 && k->sequences <= model_plan(m)->sequences;
    for (int s = 0; all && s < k->sequences; s++)
        all = model_length(m, s) >= k->depth &&
              (bytes ? model_state_restore(m, s, k->states + s * bytes, k->depth)
                     : model_truncate(m, s, k->depth));
    if (!all) kept_fill_drop(k, m);
    return all;
}

void kept_fill_drop(struct kept_fill *k, struct model *m)
{
    for (int s = 0; m && s < model_plan(m)->sequences; s++) model_truncate(m, s, 0);
    kept_forget(k);
}
