/* Activation quantization on a device, as a weight prescribes it (kernels/README.md, "Inputs"): reorder,
 * divide, round. Rounded inputs are stored as f32 numbers with the values of the integers or small floats,
 * and multiplied in f32. If nothing is prescribed and act=int8, inputs become 8 bits in blocks of 32 for
 * integer products. */
#include <assert.h>
#include <math.h>

#include "kernels/inputs.h"
#include "kernels/opencl/products.h"

enum { ITEMS = 128, CODES_ITEMS = 64 }; /* as in products.cl */
enum rounding { ROUND_NOT, ROUND_STEPS, ROUND_FLOATS };

struct input_parameters { /* the kernel's parameters of the same names */
    enum rounding mode;
    float scale, least, limit, steps, low, high;
    bool multiply;
    struct small_float to;
};

bool opencl_prepares(enum input_kind kind)
{
    return kind != INPUT_INT8_TENSOR && kind != INPUT_INT8_OUTLIERS;
}

/* The arguments of the kernel "prepare" (products.cl) that say how it rounds inputs. f: format of the
 * weights. */
static struct input_parameters input_rounding(const struct input_scheme *s, const struct format *f)
{
    struct input_parameters t = { .mode = ROUND_FLOATS,
                                  .limit = INFINITY,
                                  .to = *inputs_small_float(s->kind, f) };
    const int most = s->most ? s->most : 255;
    switch (s->kind) {
    case INPUT_INT8_TOKEN:
        t.mode = ROUND_STEPS, t.least = 1e-5f, t.steps = 127, t.low = -128, t.high = 127;
        break;
    case INPUT_INT8_STATIC:
        t.mode = ROUND_STEPS, t.multiply = true, t.scale = s->scale;
        t.low = (float)-s->zero, t.high = (float)(most - s->zero);
        break;
    case INPUT_FP8_TOKEN:
        t.least = 1e-12f, t.steps = t.to.largest;
        if (s->limit > 0) t.limit = s->limit;
        break;
    case INPUT_FP8_STATIC: t.scale = s->scale; break;
    case INPUT_TF32: t.scale = 1; break;
    default: t.mode = ROUND_NOT;
    }
    return t;
}

/* The scratch memory of a product: its inputs as floats, after the prescribed treatment, and then their 8-bit
 * codes. */
enum { CODES_ALIGN = 128 };

static int64_t floats_bytes(int64_t rows, int64_t cols)
{
    return round_up(rows * round_up(cols, 4) * (int64_t)sizeof(float), CODES_ALIGN);
}

/* For each block of 32 inputs: 32 codes of one byte, and 8 bytes for its scale and sums. */
static int64_t codes_bytes(int64_t rows, int64_t cols)
{
    return rows * round_up(cols, Q8_BLOCK) / Q8_BLOCK * (Q8_BLOCK + 8);
}

int64_t opencl_product_scratch_bytes(const struct backend_options *options, int64_t rows, int64_t max_cols)
{
    const bool codes = options->activations == ACTIVATIONS_INT8;
    return floats_bytes(rows, max_cols) + (codes ? codes_bytes(rows, max_cols) : 0);
}

bool opencl_in_integers(const struct opencl *o, const struct weight *w)
{
    const struct backend_options *options = &o->base.options;
    return options->activations == ACTIVATIONS_INT8 && opencl_code_bits(w->format) &&
           precision_for(options->precision, w->format) == PRECISION_MEDIUM &&
           inputs_scheme(options, w).kind == INPUT_FREE;
}

/* Quantize the inputs m->x to 8-bit codes, in the scratch memory of the device. Returns m with x pointing to
 * the codes. */
static struct matmul inputs_to_codes(struct opencl *o, const struct matmul *m)
{
    static const struct opencl_kernel K = { 1u << SOURCE_PRODUCTS, "", "codes" };
    const int64_t cols = m->w->cols;
    const int64_t at = (const char *)m->x == o->scratch ? floats_bytes(m->n, cols) : 0;
    struct matmul out = *m;
    assert(cols % Q8_BLOCK == 0 && at + codes_bytes(m->n, cols) <= o->scratch_bytes);
    out.x = (const float *)(const void *)(o->scratch + at);
    const struct opencl_arg args[] = {
        ARG_PLACE(o, m->x),
        ARG_INT(m->x_stride),
        ARG_INT(cols),
        ARG_INT(m->n),
        ARG_INT(8 / opencl_code_bits(m->w->format)),
        ARG_PLACE(o, out.x),
    };
    opencl_run(o, &K, (size_t[3]){ (size_t)round_up(cols / 4, CODES_ITEMS), (size_t)m->n, 1 },
               (size_t[3]){ CODES_ITEMS, 1, 1 }, args, COUNT_OF(args));
    return out;
}

/* Some weights prescribe how their inputs are treated before the product: columns in another order, divided
 * by a number for each column, and rounded to a format. Do that on the device, into its scratch memory, and
 * return m with x pointing to the result. Returns m unchanged if nothing is prescribed. */
static struct matmul inputs_to_floats(struct opencl *o, const struct matmul *m)
{
    const struct input_scheme s = inputs_scheme(&o->base.options, m->w);
    const void *order = opencl_order(m->w), *divide = opencl_divide(m->w);
    struct matmul out = *m;
    if (s.kind == INPUT_FREE && !order && !divide) return out;
    static const struct opencl_kernel K = { 1u << SOURCE_PRODUCTS, "", "prepare" };
    const struct input_parameters t = input_rounding(&s, m->w->format);
    out.x_stride = round_up(m->w->cols, 4);
    out.x = (const float *)(const void *)o->scratch;
    assert(m->n * out.x_stride * (int64_t)sizeof(float) <= o->scratch_bytes); /* backend_reserve first */
    const struct opencl_arg args[] = {
        ARG_PLACE(o, m->x),       ARG_INT(m->x_stride),
        ARG_INT(m->w->cols),      ARG_INT((order ? ORDERED : 0) | (divide ? DIVIDED : 0)),
        ARG_PLACE(o, order),      ARG_PLACE(o, divide),
        ARG_PLACE(o, o->scratch), ARG_INT(out.x_stride),
        ARG_INT(t.mode),          ARG_FLOAT(t.scale),
        ARG_FLOAT(t.least),       ARG_FLOAT(t.limit),
        ARG_FLOAT(t.steps),       ARG_FLOAT(t.low),
        ARG_FLOAT(t.high),        ARG_INT(t.multiply),
        ARG_INT(t.to.drop),       ARG_FLOAT(t.to.normal), /* the float format (struct small_float) */
        ARG_FLOAT(t.to.magic),    ARG_FLOAT(t.to.largest),
    };
    opencl_run(o, &K, (size_t[3]){ (size_t)m->n * ITEMS, 1, 1 }, (size_t[3]){ ITEMS, 1, 1 }, args,
               COUNT_OF(args));
    return out;
}

struct matmul opencl_prepared(struct opencl *o, const struct matmul *m)
{
    const struct matmul floats = inputs_to_floats(o, m);
    return opencl_in_integers(o, m->w) ? inputs_to_codes(o, &floats) : floats;
}
