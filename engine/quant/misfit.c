/* engine/quant/misfit.c - tensors whose rows do not fill the blocks of the format that a recipe asks for, and
 * the closest format that fits. They would be stored as f16 without a word, so that a file of "4 bits"
 * has 16. */
#include <math.h>
#include <stdio.h>

#include "engine/quant/quant.h"

static double plan_bits(const struct quantize_plan *p)
{
    return p->weights ? 8.0 * (double)p->bytes / (double)p->weights : (double)NAN;
}

/* The number of tensors that the recipe was to quantize and whose rows do not fill blocks of this format. */
static int64_t misfits_of(const struct format *f, const struct quantize_plan *p, const struct gguf *source,
                          const struct config *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const struct gguf_tensor *t = p->tensors[i].source;
        n += recipe_asked_format(c, source, t) && t->shape[0] % f->block_weights;
    }
    return n;
}

/* Of the formats of about the same size, the one that leaves the fewest tensors out, and among those the
 * closest in bits. Formats of GGUF are replaced by formats of GGUF only, so that other programs can read the
 * file, too. */
static void find_better(struct recipe_misfit *out, const struct quantize_plan *p, const struct gguf *source,
                        const struct config *c)
{
    static const double FARTHEST = 0.47; /* a factor of 1.6 in bits */
    double best = INFINITY;
    out->fits_left = out->tensors;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        const double distance = fabs(log(format_bits_per_weight(f) / format_bits_per_weight(out->asked)));
        const bool as_readable = out->asked->ggml_type >= FORMAT_OWN_TYPES || f->ggml_type < FORMAT_OWN_TYPES;
        if (!f->encode || f->needs_importance || !as_readable || format_bits_per_weight(f) >= 16 ||
            distance > FARTHEST)
            continue;
        const int64_t left = misfits_of(f, p, source, c);
        if (left > out->fits_left || left == out->tensors || (left == out->fits_left && distance >= best))
            continue;
        out->fits = f;
        out->fits_left = left;
        best = distance;
    }
}

static double bits_of_format(const struct format *f, const struct gguf *source)
{
    struct config c;
    struct quantize_plan p;
    struct err ignored;
    if (config_parse(&c, f->name, &ignored)) return (double)NAN;
    const double bits = quantize_plan_init(&p, source, &c, &ignored) ? (double)NAN : plan_bits(&p);
    quantize_plan_done(&p);
    return bits;
}

bool recipe_misfit(struct recipe_misfit *out, const struct quantize_plan *p, const struct gguf *source,
                   const struct config *c)
{
    *out = (struct recipe_misfit){ .bits = plan_bits(p), .fits_bits = (double)NAN };
    for (int64_t i = 0; i < p->count; i++) {
        const struct tensor_plan *t = &p->tensors[i];
        if (t->fate != FATE_FELL_BACK && t->fate != FATE_METHOD && t->fate != FATE_RULE) continue;
        out->of++;
        if (t->fate != FATE_FELL_BACK || out->tensors++) continue;
        out->row = t->source->shape[0];
        out->asked = recipe_asked_format(c, source, t->source);
        out->becomes = t->format;
    }
    if (!out->tensors) return false;
    out->weights_bits = format_bits_per_weight(out->asked);
    find_better(out, p, source, c);
    if (out->fits) out->fits_bits = bits_of_format(out->fits, source);
    return true;
}

const char *recipe_misfit_text(const struct recipe_misfit *m, char *buf, size_t size)
{
    char *whole = buf;
    int n = snprintf(buf, size,
                     "%lld of %lld matrices cannot be %s: rows of %lld weights do not fill blocks of %d, so "
                     "%s %s. The file has %.2f bits per weight, not %.2f.",
                     (long long)m->tensors, (long long)m->of, m->asked->name, (long long)m->row,
                     (int)m->asked->block_weights, m->tensors > 1 ? "they become" : "it becomes",
                     m->becomes->name, m->bits, m->weights_bits);
    if (n < 0 || (size_t)n >= size) return buf;
    buf += n;
    size -= (size_t)n;
    if (m->fits && !m->fits_left)
        snprintf(buf, size, " %s fits all rows: %.2f bits per weight.", m->fits->name, m->fits_bits);
    else if (m->fits)
        snprintf(buf, size, " %s fits all but %lld: %.2f bits per weight.", m->fits->name,
                 (long long)m->fits_left, m->fits_bits);
    else
        snprintf(buf, size, " No format of that size fits more of them.");
    return whole;
}
