/* The figures of a comparison as JSON: in a worker's answer, in the output of `qdyno eval`, and in stored
 * runs. Field tables serve both directions, so everything that is written can be read back. */
#include "engine/eval/eval.h"
#include "base/fields/fields.h"

static const struct json_field PERPLEXITY[] = {
    JSON_FIELD(struct perplexity, chunks, "chunks", COUNT),
    JSON_FIELD(struct perplexity, scored, "scored_tokens", COUNT),
    JSON_FIELD(struct perplexity, ppl, "perplexity", NUM),
    JSON_FIELD(struct perplexity, ppl_se, "perplexity_se", NUM),
    JSON_FIELD(struct perplexity, ppl_se_token, "perplexity_se_token", NUM),
    JSON_FIELD(struct perplexity, nll, "nll", NUM),
    JSON_FIELD(struct perplexity, nll_se, "nll_se", NUM),
};

static const struct json_field DIVERGENCE[] = {
    JSON_FIELD(struct divergence, kld_mean, "kld_mean", NUM),
    JSON_FIELD(struct divergence, kld_se, "kld_se", NUM),
    JSON_FIELD(struct divergence, kld_p50, "kld_p50", NUM),
    JSON_FIELD(struct divergence, kld_p90, "kld_p90", NUM),
    JSON_FIELD(struct divergence, kld_p99, "kld_p99", NUM),
    JSON_FIELD(struct divergence, kld_max, "kld_max", NUM),
    JSON_FIELD(struct divergence, top1_ratio, "top1_ratio", NUM),
    JSON_FIELD(struct divergence, top1_se, "top1_se", NUM),
    JSON_FIELD(struct divergence, top1_lower, "top1_lower", NUM),
    JSON_FIELD(struct divergence, top1_upper, "top1_upper", NUM),
    JSON_FIELD(struct divergence, log_ratio, "log_ppl_ratio", NUM),
    JSON_FIELD(struct divergence, log_ratio_se, "log_ppl_ratio_se", NUM),
    JSON_FIELD(struct divergence, only_reference_right, "only_reference_right", COUNT),
    JSON_FIELD(struct divergence, only_candidate_right, "only_candidate_right", COUNT),
    JSON_FIELD(struct divergence, accuracy_reference, "accuracy_reference", NUM),
    JSON_FIELD(struct divergence, accuracy_candidate, "accuracy", NUM),
    JSON_FIELD(struct divergence, accuracy_change, "accuracy_change", NUM),
    JSON_FIELD(struct divergence, accuracy_change_se, "accuracy_change_se", NUM),
};

static const struct json_field DEPTH[] = {
    JSON_FIELD(struct depth, from, "from", INT),
    JSON_FIELD(struct depth, to, "to", INT),
    JSON_FIELD(struct depth, mean, "kld_mean", NUM),
    JSON_FIELD(struct depth, se, "kld_se", NUM),
};

static const struct json_field GREEDY[] = {
    JSON_FIELD(struct greedy_divergence, prompts, "prompts", INT),
    JSON_FIELD(struct greedy_divergence, diverged, "diverged", INT),
    JSON_FIELD(struct greedy_divergence, limit, "limit", INT),
    JSON_FIELD(struct greedy_divergence, median, "median", NUM),
};

static const struct json_field BYTES[] = {
    JSON_FIELD(struct byte_comparison, pieces, "pieces", COUNT),
    JSON_FIELD(struct byte_comparison, bytes, "scored_bytes", COUNT),
    JSON_FIELD(struct byte_comparison, reference_tokens, "reference_tokens", COUNT),
    JSON_FIELD(struct byte_comparison, candidate_tokens, "tokens", COUNT),
    JSON_FIELD(struct byte_comparison, reference, "reference", NUM),
    JSON_FIELD(struct byte_comparison, candidate, "candidate", NUM),
    JSON_FIELD(struct byte_comparison, change, "change", NUM),
    JSON_FIELD(struct byte_comparison, change_se, "change_se", NUM),
};

/* Members that the object does not have become unknown: NAN or -1. */
static void fields_get(const json_t *from, const struct json_field *fields, size_t n, void *to)
{
    json_clear_fields(fields, n, to);
    json_get_fields(from, fields, n, to);
}

void perplexity_put_json(json_t *to, const struct perplexity *p)
{
    json_put_fields(to, PERPLEXITY, COUNT_OF(PERPLEXITY), p);
}

json_t *divergence_to_json(const struct divergence *d)
{
    json_t *o = json_object(), *reference = json_object(), *depth = json_array(), *greedy = json_object();
    perplexity_put_json(o, &d->candidate);
    json_put_fields(o, DIVERGENCE, COUNT_OF(DIVERGENCE), d);
    perplexity_put_json(reference, &d->reference);
    json_put(o, "reference", reference);
    for (int i = 0; i < DEPTHS; i++) {
        json_t *piece = json_object();
        json_put_fields(piece, DEPTH, COUNT_OF(DEPTH), &d->depth[i]);
        json_array_append_new(depth, piece);
    }
    json_put(o, "depth", depth);
    json_put_fields(greedy, GREEDY, COUNT_OF(GREEDY), &d->greedy);
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

void byte_comparison_put_json(json_t *to, const struct byte_comparison *b)
{
    json_t *o = json_object();
    json_put_fields(o, BYTES, COUNT_OF(BYTES), b);
    json_put(to, "bits_per_byte", o);
}

void byte_comparison_from_json(struct byte_comparison *b, const json_t *from)
{
    fields_get(json_object_get(from, "bits_per_byte"), BYTES, COUNT_OF(BYTES), b);
    if (b->pieces < 0) b->pieces = 0;
}
