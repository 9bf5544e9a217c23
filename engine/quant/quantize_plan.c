/* Plans a quantization without doing it: format, bytes and reason for every tensor. It uses the same units as
 * quantize_file, so plan and file cannot differ. */
#include <math.h>
#include <stdlib.h>

#include "engine/quant/quantize_internal.h"

const char *const TENSOR_FATES[FATE_COUNT] = {
    [FATE_METHOD] = "by the method",
    [FATE_RULE] = "by a rule of the recipe",
    [FATE_FELL_BACK] = "fell back, rows do not fill whole blocks",
    [FATE_OUTER] = "left alone as first or last matrix",
    [FATE_KEPT] = "kept (norm, bias or position)",
    [FATE_AS_IS] = "as the file has it",
};

/* Sizes for estimating the GGUF directory; ENTRY_BYTES is generous for one tensor. */
enum { ENTRY_BYTES = 128, METADATA_BYTES = 4096, ALIGNMENT = 32 };

static int64_t aligned_bytes(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A tensor that a rule stores in a float format is converted but does not count as quantized. */
static bool tensor_plan_is_quantized(const struct tensor_plan *t)
{
    return t->converts && (t->fate == FATE_METHOD || (t->fate == FATE_RULE && !format_is_float(t->format)));
}

/* Add one tensor to the plan and its sizes to the totals. */
static void quantize_plan_add(struct quantize_plan *p, struct quantization *q, struct unit *u)
{
    const struct gguf_tensor *s = u->source;
    const int64_t rows = unit_rows(u);
    if (u->drops) {
        p->bytes_before += s->bytes;
        return;
    }
    struct tensor_plan *t = &p->tensors[p->count++];
    *t = (struct tensor_plan){ .source = s,
                               .format = u->format,
                               .fate = recipe_tensor_fate(q->options->config, q->source, s),
                               .converts = u->converts,
                               .bytes = rows * format_row_bytes(u->format, s->shape[0]),
                               .nmse = NAN,
                               .largest = NAN,
                               .rounded = -1 };
    t->quantized = tensor_plan_is_quantized(t);
    p->file_bytes += aligned_bytes(t->bytes) + ENTRY_BYTES;
    unit_list_companions(q, u);
    for (int i = 0; i < u->companions; i++) {
        const int64_t bytes = format_row_bytes(companion_format(u->companion[i].what), u->companion[i].size);
        t->bytes += bytes;
        p->file_bytes += aligned_bytes(bytes) + ENTRY_BYTES;
    }
    p->weights += rows * s->shape[0];
    p->bytes_before += s->bytes;
    p->bytes += t->bytes;
}

enum err_code quantize_plan_init(struct quantize_plan *out, const struct gguf *source, const struct config *c,
                                 struct err *why)
{
    const struct quantize_options o = { .config = c };
    struct quantization q = { .options = &o, .source = source, .params = config_params(c) };
    *out = (struct quantize_plan){ .nmse = NAN, .worst = -1 };
    enum err_code rc = units_plan(&q, why);
    if (!rc) {
        out->tensors = calloc((size_t)q.count + 1, sizeof *out->tensors);
        if (!out->tensors)
            rc = err_set(why, ERR_NOMEM, "out of memory for a plan of %lld tensors", (long long)q.count);
    }
    out->file_bytes = METADATA_BYTES + gguf_file_bytes(source);
    for (int64_t i = 0; i < q.count && !rc; i++) {
        out->file_bytes -= q.units[i].source->bytes;
        quantize_plan_add(out, &q, &q.units[i]);
    }
    free(q.units);
    return rc;
}

void quantize_plan_done(struct quantize_plan *p)
{
    free(p->tensors);
    *p = (struct quantize_plan){ .nmse = NAN, .worst = -1 };
}
