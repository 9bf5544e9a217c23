/* The figures of a comparison as JSON: in a worker's answer, in the output of `qdyno eval`, and in stored
 * runs. Field tables serve both directions, so everything that is written can be read back. */
#include <math.h>
#include <stddef.h>

#include "engine/eval/eval.h"

struct field {
    const char *key;
    size_t offset;
    enum { NUMBER, COUNT, INT } type; /* double, int64_t, int */
};
#define FIELD(type, key, structure, member)                                                                  \
    {                                                                                                        \
        key, offsetof(struct structure, member), type                                                        \
    }

static const struct field PERPLEXITY[] = {
    FIELD(COUNT, "chunks", perplexity, chunks),
    FIELD(COUNT, "scored_tokens", perplexity, scored),
    FIELD(NUMBER, "perplexity", perplexity, ppl),
    FIELD(NUMBER, "perplexity_se", perplexity, ppl_se),
    FIELD(NUMBER, "perplexity_se_token", perplexity, ppl_se_token),
    FIELD(NUMBER, "nll", perplexity, nll),
    FIELD(NUMBER, "nll_se", perplexity, nll_se),
};

static const struct field DIVERGENCE[] = {
    FIELD(NUMBER, "kld_mean", divergence, kld_mean),
    FIELD(NUMBER, "kld_se", divergence, kld_se),
    FIELD(NUMBER, "kld_p50", divergence, kld_p50),
    FIELD(NUMBER, "kld_p90", divergence, kld_p90),
    FIELD(NUMBER, "kld_p99", divergence, kld_p99),
    FIELD(NUMBER, "kld_max", divergence, kld_max),
    FIELD(NUMBER, "top1_ratio", divergence, top1_ratio),
    FIELD(NUMBER, "top1_se", divergence, top1_se),
    FIELD(NUMBER, "top1_lower", divergence, top1_lower),
    FIELD(NUMBER, "top1_upper", divergence, top1_upper),
    FIELD(NUMBER, "log_ppl_ratio", divergence, log_ratio),
    FIELD(NUMBER, "log_ppl_ratio_se", divergence, log_ratio_se),
    FIELD(COUNT, "only_reference_right", divergence, only_reference_right),
    FIELD(COUNT, "only_candidate_right", divergence, only_candidate_right),
    FIELD(NUMBER, "accuracy_reference", divergence, accuracy_reference),
    FIELD(NUMBER, "accuracy", divergence, accuracy_candidate),
    FIELD(NUMBER, "accuracy_change", divergence, accuracy_change),
    FIELD(NUMBER, "accuracy_change_se", divergence, accuracy_change_se),
};

static const struct field DEPTH[] = {
    FIELD(INT, "from", depth, from),
    FIELD(INT, "to", depth, to),
    FIELD(NUMBER, "kld_mean", depth, mean),
    FIELD(NUMBER, "kld_se", depth, se),
};

static const struct field GREEDY[] = {
    FIELD(INT, "prompts", greedy_divergence, prompts),
    FIELD(INT, "diverged", greedy_divergence, diverged),
    FIELD(INT, "limit", greedy_divergence, limit),
    FIELD(NUMBER, "median", greedy_divergence, median),
};

/* Write the fields of struct `of` to a JSON object. */
static void fields_put(json_t *to, const struct field *fields, size_t n, const void *of)
{
    for (size_t i = 0; i < n; i++) {
        const void *at = (const char *)of + fields[i].offset;
        switch (fields[i].type) {
        case NUMBER: json_put_num(to, fields[i].key, *(const double *)at); break;
        case COUNT: json_put_int(to, fields[i].key, *(const int64_t *)at); break;
        case INT: json_put_int(to, fields[i].key, *(const int *)at); break;
        }
    }
}

/* Read the fields of struct `of` from a JSON object; missing ones become NAN or -1. */
static void fields_get(const json_t *from, const struct field *fields, size_t n, void *of)
{
    for (size_t i = 0; i < n; i++) {
        void *at = (char *)of + fields[i].offset;
        switch (fields[i].type) {
        case NUMBER: *(double *)at = json_get_num(from, fields[i].key, NAN); break;
        case COUNT: *(int64_t *)at = json_get_int(from, fields[i].key, -1); break;
        case INT: *(int *)at = (int)json_get_int(from, fields[i].key, -1); break;
        }
    }
}

void perplexity_put_json(json_t *to, const struct perplexity *p)
{
    fields_put(to, PERPLEXITY, COUNT_OF(PERPLEXITY), p);
}

json_t *divergence_to_json(const struct divergence *d)
{
    json_t *o = json_object(), *reference = json_object(), *depth = json_array(), *greedy = json_object();
    perplexity_put_json(o, &d->candidate);
    fields_put(o, DIVERGENCE, COUNT_OF(DIVERGENCE), d);
    perplexity_put_json(reference, &d->reference);
    json_put(o, "reference", reference);
    for (int i = 0; i < DEPTHS; i++) {
        json_t *piece = json_object();
        fields_put(piece, DEPTH, COUNT_OF(DEPTH), &d->depth[i]);
        json_array_append_new(depth, piece);
    }
    json_put(o, "depth", depth);
    fields_put(greedy, GREEDY, COUNT_OF(GREEDY), &d->greedy);
    json_put(o, "first_divergence", greedy);
    return o;
}

void divergence_from_json(struct divergence *d, const json_t *object)
{
    const json_t *depth = json_object_get(object, "depth");
    *d = (struct divergence){ 0 };
    fields_get(object, PERPLEXITY, COUNT_OF(PERPLEXITY), &d->candidate);
    fields_get(object, DIVERGENCE, COUNT_OF(DIVERGENCE), d);
    fields_get(json_object_get(object, "reference"), PERPLEXITY, COUNT_OF(PERPLEXITY), &d->reference);
    for (int i = 0; i < DEPTHS; i++)
        fields_get(json_array_get(depth, (size_t)i), DEPTH, COUNT_OF(DEPTH), &d->depth[i]);
    fields_get(json_object_get(object, "first_divergence"), GREEDY, COUNT_OF(GREEDY), &d->greedy);
}
