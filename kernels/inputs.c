/* Activation quantization as weights prescribe it (inputs.h). Formulas: kernels/README.md, "Inputs". */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/inputs.h"

enum { PIECE = 512 /* inputs processed at once: 2 KiB of stack */ };

static const struct small_float F16 = { .drop = 13, .normal = 0x1p-14f, .magic = 0.75f, .largest = 65504 },
                                TF32 = { .drop = 13, .normal = 0, .magic = 0, .largest = INFINITY },
                                E4M3 = { .drop = 20, .normal = 0x1p-6f, .magic = 0x1.8p14f, .largest = 448 },
                                E5M2 = {
                                    .drop = 21, .normal = 0x1p-14f, .magic = 0x1.8p7f, .largest = 57344
                                };

static const char *const NAMES[INPUT_KIND_COUNT] = {
    [INPUT_FREE] = "free",
    [INPUT_INT8_TOKEN] = "int8_token",
    [INPUT_INT8_TENSOR] = "int8_tensor",
    [INPUT_INT8_STATIC] = "int8_static",
    [INPUT_INT8_OUTLIERS] = "int8_outliers",
    [INPUT_FP8_TOKEN] = "fp8_token",
    [INPUT_FP8_STATIC] = "fp8_static",
    [INPUT_TF32] = "tf32",
};

const char *input_kind_name(enum input_kind kind)
{
    return NAMES[kind];
}

const char *input_kind_names(uint32_t bits, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int k = 0; k < INPUT_KIND_COUNT && used < size; k++)
        if (bits >> k & 1)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? " " : "", NAMES[k]);
    return buf;
}

/* ---------------------------------------------------------------- checking a scheme */

static enum err_code check_outliers(const struct input_scheme *s, int64_t cols, struct err *why)
{
    if (s->outlier_count && (!s->outliers || !s->outlier_weights || s->kind != INPUT_INT8_OUTLIERS))
        return err_set(why, ERR_FORMAT,
                       "%d outlier columns without indexes and weights, or not of kind int8_outliers",
                       s->outlier_count);
    for (int i = 0; i < s->outlier_count; i++)
        if (s->outliers[i] < 0 || s->outliers[i] >= cols || (i && s->outliers[i] <= s->outliers[i - 1]))
            return err_set(why, ERR_FORMAT,
                           "outlier column %d has index %d; indexes must ascend and stay below %lld", i,
                           s->outliers[i], (long long)cols);
    return ERR_OK;
}

/* Check that `order` is a permutation: a missing input would be dropped without any sign. Windows of 65536
 * inputs keep the set of seen inputs on the stack. */
static enum err_code check_order(const int32_t *order, int64_t cols, struct err *why)
{
    enum { WINDOW = 1 << 16 };
    for (int64_t from = 0; from < cols; from += WINDOW) {
        uint64_t seen[WINDOW / 64] = { 0 };
        for (int64_t i = 0; i < cols; i++) {
            if (order[i] < 0 || order[i] >= cols)
                return err_set(why, ERR_FORMAT, "order of inputs: entry %lld is %d, expected 0 to %lld",
                               (long long)i, order[i], (long long)cols - 1);
            const int64_t at = order[i] - from;
            if (at < 0 || at >= WINDOW) continue;
            if (seen[at / 64] >> at % 64 & 1)
                return err_set(why, ERR_FORMAT, "order of inputs: %d occurs twice", order[i]);
            seen[at / 64] |= (uint64_t)1 << at % 64;
        }
    }
    return ERR_OK;
}

static int largest_code(const struct input_scheme *s)
{
    return s->most ? s->most : 255;
}

static bool is_fp8(enum input_kind kind)
{
    return kind == INPUT_FP8_TOKEN || kind == INPUT_FP8_STATIC;
}

enum err_code inputs_check(const struct input_scheme *s, const struct format *f, int64_t cols,
                           struct err *why)
{
    enum err_code rc;
    if (!s) return ERR_OK;
    if (input_is_int8(s->kind) && f != &FORMATS[FORMAT_INT8])
        return err_set(why, ERR_USAGE, "activations of kind %s need int8 weights, not %s", NAMES[s->kind],
                       f->name);
    if (input_is_int8(s->kind) && cols > W8A8_COLS)
        return err_set(why, ERR_USAGE, "integer products take rows of at most %d weights, not %lld",
                       W8A8_COLS, (long long)cols);
    const bool codes = s->kind == INPUT_INT8_STATIC;
    if ((codes || s->kind == INPUT_FP8_STATIC) && (!(s->scale > 0) || isinf(s->scale)))
        return err_set(why, ERR_FORMAT, "a static activation scale must be above 0, not %g",
                       (double)s->scale);
    if (codes && (s->most < 0 || s->most > 255 || s->zero < 0 || s->zero > largest_code(s)))
        return err_set(why, ERR_FORMAT,
                       "activation codes must be within 0 to 255, not 0 to %d with zero point %d", s->most,
                       s->zero);
    if (s->threshold < 0 || s->limit < 0 || isnan(s->threshold) || isnan(s->limit))
        return err_set(why, ERR_FORMAT, "an activation threshold or limit must not be negative, but is %g",
                       (double)(s->threshold < 0 ? s->threshold : s->limit));
    for (int64_t i = 0; s->divide && i < cols; i++)
        if (!(fabsf(s->divide[i]) > 0) || isinf(s->divide[i]))
            return err_set(why, ERR_FORMAT, "divisor of input %lld is %g, expected a finite nonzero number",
                           (long long)i, (double)s->divide[i]);
    if (s->order && (rc = check_order(s->order, cols, why))) return rc;
    return check_outliers(s, cols, why);
}

struct input_scheme inputs_scheme(const struct backend_options *o, const struct weight *w)
{
    struct input_scheme s = { 0 };
    if (w->input) s = *w->input;
    if (s.kind == INPUT_FREE) s.kind = inputs_kind(o, w->format, w->cols);
    return s;
}

enum input_kind inputs_kind(const struct backend_options *o, const struct format *f, int64_t cols)
{
    const bool wanted = o->activations == ACTIVATIONS_INT8_TOKEN && f == &FORMATS[FORMAT_INT8];
    return wanted && cols <= W8A8_COLS && precision_for(o->precision, f) == PRECISION_MEDIUM
               ? INPUT_INT8_TOKEN
               : INPUT_FREE;
}

const struct small_float *inputs_small_float(enum input_kind kind, const struct format *f)
{
    if (!is_fp8(kind)) return &TF32;
    return f == &FORMATS[FORMAT_FP8_E5M2] ? &E5M2 : &E4M3;
}

bool inputs_shared(const struct backend_options *o, const struct weight *a, const struct weight *b)
{
    const struct input_scheme s = inputs_scheme(o, a), t = inputs_scheme(o, b);
    return s.kind == t.kind && s.divide == t.divide && s.order == t.order && s.scale == t.scale &&
           s.zero == t.zero && s.most == t.most && s.threshold == t.threshold && s.limit == t.limit &&
           (!is_fp8(s.kind) || a->format == b->format);
}

/* ---------------------------------------------------------------- shared memory */

struct input_range {
    float low, high, unused[14]; /* one cache line per thread */
};

/* Byte offsets of the fields of struct inputs in the shared scratch memory for quantized inputs. The scales
 * begin at 0. SLIVER (kernel_set.h): tokens that are packed and multiplied together. */
struct inputs_layout {
    int64_t scale, range, marked, outlier, end;
};

static struct inputs_layout inputs_layout_of(int threads, int64_t rows, int64_t cols)
{
    struct inputs_layout p = { 0 };
    p.range = p.scale + round_up(rows, SLIVER) * (int64_t)sizeof(float);
    p.marked = p.range + threads * (int64_t)sizeof(struct input_range);
    p.outlier = p.marked + round_up(cols, 64) / 64 * (int64_t)sizeof(uint64_t);
    p.end = round_up(p.outlier + cols * (int64_t)sizeof(int32_t), 64);
    return p;
}

int64_t inputs_shared_bytes(int threads, int64_t rows, int64_t cols)
{
    return inputs_layout_of(threads, rows, cols).end;
}

/* The smallest magnitude that f16 rounds to `threshold` or more. */
static float f16_threshold(float threshold)
{
    if (threshold <= 0) return INFINITY;
    float x = threshold;
    while (f16_to_f32(f16_from_f32(x)) < threshold) x = nextafterf(x, INFINITY);
    while (f16_to_f32(f16_from_f32(nextafterf(x, 0))) >= threshold) x = nextafterf(x, 0);
    return x;
}

struct inputs inputs_of(const struct cpu *b, const struct matmul *m)
{
    struct inputs in = { .scheme = inputs_scheme(&b->base.options, m->w),
                         .k = &b->k,
                         .x = m->x,
                         .x_stride = m->x_stride,
                         .cols = m->w->cols,
                         .n = m->n,
                         .outlier_from = INFINITY,
                         .shared = b->shared };
    const enum input_kind kind = in.scheme.kind;
    if (kind == INPUT_FREE || kind == INPUT_TF32) {
        in.to = inputs_small_float(kind, m->w->format);
        return in;
    }
    const struct inputs_layout p = inputs_layout_of(b->base.options.threads, m->n, in.cols);
    in.scale = (float *)(b->shared + p.scale);
    in.range = (struct input_range *)(b->shared + p.range);
    in.marked = (_Atomic uint64_t *)(b->shared + p.marked);
    in.outlier = (int32_t *)(b->shared + p.outlier);
    in.shared = b->shared + p.end;
    in.zero = kind == INPUT_INT8_STATIC ? in.scheme.zero : 128;
    in.to = inputs_small_float(kind, m->w->format);
    if (kind != INPUT_INT8_OUTLIERS) return in;
    in.to = &F16;
    in.outlier_from = f16_threshold(in.scheme.threshold);
    for (int64_t i = 0; i < (in.cols + 63) / 64; i++) atomic_init(&in.marked[i], 0);
    return in;
}

/* ---------------------------------------------------------------- reordered and divided inputs */

static float input_at(const struct inputs *in, int token, int64_t k)
{
    const struct input_scheme *s = &in->scheme;
    const int64_t i = s->order ? s->order[k] : k;
    const float x = in->x[token * in->x_stride + i];
    return s->divide ? x / s->divide[i] : x;
}

/* Inputs k0 .. k0 + k - 1 (k <= PIECE) in the order of the weight's columns: a pointer into x, or copied to
 * `room`. */
static const float *inputs_piece(const struct inputs *in, int token, int64_t k0, int64_t k, float *room)
{
    const struct input_scheme *s = &in->scheme;
    const float *x = in->x + token * in->x_stride;
    if (!s->order && !s->divide) return x + k0;
    if (!s->order) {
        for (int64_t i = 0; i < k; i++) room[i] = x[k0 + i] / s->divide[k0 + i];
        return room;
    }
    const int32_t *order = s->order + k0;
    for (int64_t i = 0; i < k; i++) room[i] = x[order[i]];
    for (int64_t i = 0; s->divide && i < k; i++) room[i] /= s->divide[order[i]];
    return room;
}

/* ---------------------------------------------------------------- measuring */

static float token_largest(const struct inputs *in, int token)
{
    const struct rounding_kernels *r = &in->k->rounding;
    if (!in->scheme.divide) return r->largest(in->x + token * in->x_stride, in->cols);
    float room[PIECE], top = 0;
    for (int64_t k = 0; k < in->cols; k += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, in->cols - k);
        const float now = r->largest(inputs_piece(in, token, k, n, room), n);
        if (now > top || isnan(now)) top = now; /* NaN stays: no comparison with it is true */
    }
    return top;
}

/* Mark the outlier columns among up to 64 inputs, at least one of which is an outlier or NaN. Returns the
 * largest magnitude of the others. */
static float mark_outliers(const struct inputs *in, const float *x, int64_t k0, int64_t n)
{
    uint64_t marks = 0;
    float top = 0;
    for (int64_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        if (a < in->outlier_from)
            top = MAX(top, a);
        else
            marks |= (uint64_t)1 << i;
    }
    _Atomic uint64_t *at = &in->marked[k0 / 64];
    if (marks & ~atomic_load_explicit(at, memory_order_relaxed))
        atomic_fetch_or_explicit(at, marks, memory_order_relaxed);
    return top;
}

static float token_largest_below(const struct inputs *in, int token)
{
    float room[PIECE], top = 0;
    for (int64_t k = 0; k < in->cols; k += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, in->cols - k);
        const float *x = inputs_piece(in, token, k, n, room);
        for (int64_t i = 0; i < n; i += 64) {
            const int64_t some = MIN((int64_t)64, n - i);
            float now = in->k->rounding.largest(x + i, some);
            if (!(now < in->outlier_from)) now = mark_outliers(in, x + i, k + i, some);
            top = MAX(top, now);
        }
    }
    in->k->rounding.round(&top, 1, 1, &F16,
                          &top); /* rounding is monotonic: this is the largest rounded input */
    return top;
}

static void widen_range(const struct inputs *in, int token, struct input_range *r)
{
    enum { LANES = 16 };
    float room[PIECE], low[LANES] = { 0 }, high[LANES] = { 0 };
    for (int64_t k = 0; k < in->cols; k += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, in->cols - k);
        const float *x = inputs_piece(in, token, k, n, room);
        if (isnan(in->k->rounding.largest(x, n))) r->low = r->high = NAN;
        for (int64_t i = 0; i + LANES <= n; i += LANES) {
            for (int j = 0; j < LANES; j++) low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
            for (int j = 0; j < LANES; j++) high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
        }
        for (int64_t i = n / LANES * LANES; i < n; i++)
            low[0] = MIN(low[0], x[i]), high[0] = MAX(high[0], x[i]);
    }
    for (int j = 0; j < LANES; j++) {
        if (low[j] < r->low) r->low = low[j];
        if (high[j] > r->high) r->high = high[j];
    }
}

/* The scale of a token: x / scale is rounded to integers or fp8. */
static float token_scale(const struct inputs *in, int token)
{
    const struct input_scheme *s = &in->scheme;
    if (s->kind == INPUT_FP8_STATIC) return s->scale;
    if (s->kind == INPUT_INT8_STATIC) /* codes cannot represent NaN, so the token's scale does */
        return isfinite(token_largest(in, token)) ? s->scale : NAN;
    if (s->kind == INPUT_INT8_OUTLIERS) return token_largest_below(in, token) / 127;
    float top = token_largest(in, token);
    if (s->kind == INPUT_INT8_TOKEN) return (top < 1e-5f ? 1e-5f : top) / 127;
    if (s->limit > 0 && top > s->limit) top = s->limit;
    return (top < 1e-12f ? 1e-12f : top) / in->to->largest;
}

void inputs_measure(const struct inputs *in, int from, int to, int member)
{
    const enum input_kind kind = in->scheme.kind;
    if (!in->scale) return;
    if (kind != INPUT_INT8_TENSOR) {
        for (int t = from; t < to; t++) in->scale[t] = token_scale(in, t);
        return;
    }
    struct input_range *r = &in->range[member];
    r->low = r->high = 0;
    for (int t = from; t < to; t++) widen_range(in, t, r);
}

/* Scale and zero point for codes 0..255 of the range low <= 0 <= high. Source: ChooseQuantizationParams of
 * FBGEMM, bit for bit, including its smallest scale of 6.1e-5. */
static float fbgemm_scale(double low, double high, int *zero)
{
    enum { LEAST = 0, MOST = 255 };
    float scale = (float)((high - low) / (MOST - LEAST));
    if (scale == 0 || isinf(1 / scale)) scale = 0.1f;
    if (scale < 6.1e-5f) {
        const double grown = 6.1e-5f / scale;
        scale = 6.1e-5f;
        if (low == 0)
            high = (double)scale * (MOST - LEAST);
        else if (high == 0)
            low = -(double)scale * (MOST - LEAST);
        else
            low *= grown, high *= grown;
    }
    const double by_low = LEAST - low / scale, by_high = MOST - high / scale;
    const double error_low = LEAST + fabs(low / scale), error_high = MOST + fabs(high / scale);
    const double exact = error_low < error_high ? by_low : by_high;
    *zero = exact <= LEAST ? LEAST : exact >= MOST ? MOST : (int)nearbyint(exact);
    return scale;
}

static void combine_tensor(struct inputs *in, int member, int size)
{
    double low = 0, high = 0;
    for (int i = 0; i < size; i++) {
        const struct input_range *r = &in->range[i];
        if (r->low < low || isnan(r->low)) low = (double)r->low;
        if (r->high > high || isnan(r->high)) high = (double)r->high;
    }
    in->zero = 128;
    in->scheme.scale = isnan(low) || isnan(high) ? NAN : fbgemm_scale(low, high, &in->zero);
    for (int t = 0; !member && t < in->n; t++) in->scale[t] = in->scheme.scale;
}

static void combine_outliers(struct inputs *in, int member)
{
    in->outlier_count = 0;
    for (int64_t i = 0; i < (in->cols + 63) / 64; i++) {
        uint64_t marks = atomic_load_explicit(&in->marked[i], memory_order_relaxed);
        for (; marks; marks &= marks - 1, in->outlier_count++)
            if (!member) in->outlier[in->outlier_count] = (int32_t)(64 * i + __builtin_ctzll(marks));
    }
}

void inputs_combine(struct inputs *in, int member, int size)
{
    if (in->scheme.kind == INPUT_INT8_TENSOR) combine_tensor(in, member, size);
    if (in->scheme.kind == INPUT_INT8_OUTLIERS) combine_outliers(in, member);
}

/* ---------------------------------------------------------------- quantizing */

static struct u8_scale u8_scale_of(const struct inputs *in, int token)
{
    const enum input_kind kind = in->scheme.kind;
    struct u8_scale s = { .zero = in->zero };
    const float scale = kind == INPUT_INT8_TENSOR ? in->scheme.scale : in->scale[token];
    s.reciprocal = 1 / scale;
    if (kind == INPUT_INT8_TOKEN) s.by = scale;
    if (kind != INPUT_INT8_OUTLIERS) return s;
    float largest = scale * 127;
    in->k->rounding.round(&largest, 1, 1, &F16, &largest); /* recover the value before the division by 127 */
    s.reciprocal = scale > 0 ? 1 / largest * 127 : 0;
    return s;
}

/* Set the codes of outlier columns to the code of 0: those columns are multiplied as floats. */
static void clear_outliers(const struct inputs *in, int64_t k0, int64_t k, uint8_t *code)
{
    for (int64_t i = k0; i < k0 + k; i += 64 - i % 64) {
        uint64_t marks = atomic_load_explicit(&in->marked[i / 64], memory_order_relaxed) >> i % 64;
        for (; marks; marks &= marks - 1) {
            const int64_t at = i + __builtin_ctzll(marks);
            if (at < k0 + k) code[at - k0] = (uint8_t)in->zero;
        }
    }
}

void inputs_codes(const struct inputs *in, int token, int64_t k0, int64_t k, uint8_t *code)
{
    const struct rounding_kernels *r = &in->k->rounding;
    const struct u8_scale s = u8_scale_of(in, token);
    const bool outliers = in->scheme.kind == INPUT_INT8_OUTLIERS;
    const int most = in->scheme.kind == INPUT_INT8_STATIC ? largest_code(&in->scheme) : 255;
    float room[PIECE], rounded[PIECE];
    for (int64_t i = 0; i < k; i += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, k - i);
        const float *x = inputs_piece(in, token, k0 + i, n, room);
        if (outliers) r->round(x, n, 1, &F16, rounded), x = rounded;
        r->quantize_u8(x, n, &s, code + i);
        for (int64_t j = 0; most < 255 && j < n; j++) code[i + j] = (uint8_t)MIN((int)code[i + j], most);
    }
    if (outliers) clear_outliers(in, k0, k, code);
}

void inputs_floats(const struct inputs *in, int token, int64_t k0, int64_t k, float *out)
{
    float room[PIECE];
    for (int64_t i = 0; i < k; i += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, k - i);
        const float *x = inputs_piece(in, token, k0 + i, n, room);
        if (in->scheme.kind == INPUT_FREE)
            memcpy(out + i, x, (size_t)n * sizeof *x);
        else
            in->k->rounding.round(x, n, in->scale ? in->scale[token] : 1, in->to, out + i);
    }
}

/* ---------------------------------------------------------------- outliers */

/* The index of this column among the columns that the weight also stores as f16; -1: it is not one of them.
 */
static int outlier_kept_index(const struct input_scheme *s, int32_t column)
{
    int low = 0, high = s->outlier_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (s->outliers[middle] < column)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->outlier_count && s->outliers[low] == column ? low : -1;
}

int outliers_weights(const struct outlier_block *b, int first, float *w)
{
    const struct weight *m = b->w;
    const struct input_scheme *s = m->input ? m->input : &b->in->scheme;
    const int64_t row_bytes = format_row_bytes(m->format, m->cols);
    const int count = MIN((int)OUTLIER_CHUNK, b->in->outlier_count - first);
    for (int i = 0; i < count; i++) {
        const int32_t column = b->in->outlier[first + i];
        const int kept = outlier_kept_index(s, column);
        for (int r = 0; r < b->rows; r++) {
            const int64_t row = b->row0 + r;
            const int8_t *codes = (const int8_t *)m->data + row * row_bytes;
            w[r * OUTLIER_CHUNK + i] = kept >= 0
                                           ? f16_to_f32(s->outlier_weights[kept * m->rows + row])
                                           : codes[column] * format_row_scale(m->format, codes, m->cols);
        }
    }
    return count;
}

void outliers_inputs(const struct inputs *in, int first, int count, int token, float *x)
{
    float found[OUTLIER_CHUNK];
    for (int i = 0; i < count; i++) found[i] = input_at(in, token, in->outlier[first + i]);
    in->k->rounding.round(found, count, 1, &F16, x);
}
