/* NF4 and FP4: each weight is one of sixteen values times the largest magnitude of its block. NF4's values
 * are quantiles of a normal distribution, FP4's are those of a 4-bit float. Double quantization stores the
 * magnitudes as bytes relative to their mean. */
#include "engine/quant/bnb.h"

#include <math.h>
#include <stdlib.h>

#include "engine/quant/methods.h"

/* ---------------------------------------------------------------- statistics */

void bnb_absmax(const float *x, int64_t n, int blocksize, float *absmax)
{
    for (int64_t from = 0; from < n; from += blocksize) {
        const int64_t to = MIN(from + blocksize, n);
        float largest = 0;
        for (int64_t i = from; i < to; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        for (int64_t u = from / BNB_UNIT; u < to / BNB_UNIT; u++) absmax[u] = largest;
    }
}

float bnb_offset(const float *absmax, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += absmax[i];
    return count ? (float)(sum / (double)count) : 0;
}

void bnb_nested(const float *absmax, int64_t count, float offset, int nested_blocksize, float *largest)
{
    for (int64_t from = 0; from < count; from += nested_blocksize) {
        float most = 0;
        for (int64_t i = from; i < MIN(from + nested_blocksize, count); i++) {
            const float over = fabsf(absmax[i] - offset);
            most = over > most ? over : most;
        }
        largest[from / nested_blocksize] = most;
    }
}

/* ---------------------------------------------------------------- rows of METHODS */

static const struct param BNB_PARAMS[] = {
    { .name = "blocksize",
      .kind = VALUE_INT,
      .choices = "64 128 256 512 1024 2048 4096",
      .otherwise = "64",
      .help = "weights that share one largest magnitude (stored once for every 64 weights in any case)" },
    { .name = "double_quant",
      .aliases = "bnb_4bit_use_double_quant",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "store magnitudes as bytes relative to their mean, where rows are multiples of 256" },
    { .name = "nested_blocksize",
      .kind = VALUE_INT,
      .choices = "64 128 256 512 1024 2048 4096",
      .otherwise = "256",
      .help = "double_quant: magnitudes that share a scale" },
    { 0 },
};

static enum err_code bnb_check(const struct params *p, struct err *why)
{
    if (params_bool(p, "double_quant") && params_int(p, "blocksize") != BNB_UNIT)
        return err_set(why, ERR_USAGE,
                       "double_quant=true needs blocksize=64: each 64 weights have their own byte");
    if (!params_bool(p, "double_quant") && params_given(p, "nested_blocksize"))
        return err_set(why, ERR_USAGE, "nested_blocksize needs double_quant=true");
    return ERR_OK;
}

/* The plain or the double-quantized format of a codebook; the latter needs rows of whole 256-weight blocks.
 */
static const struct format *codebook_format(const struct params *p, enum format_id plain,
                                            enum format_id nested, int64_t cols)
{
    const bool wanted = params_bool(p, "double_quant");
    return &FORMATS[wanted && cols % FORMATS[nested].block_weights == 0 ? nested : plain];
}

static const char *nf4_format(const struct params *p)
{
    return codebook_format(p, FORMAT_NF4, FORMAT_NF4_DQ, 256)->name;
}

static const char *fp4_format(const struct params *p)
{
    return codebook_format(p, FORMAT_FP4, FORMAT_FP4_DQ, 256)->name;
}

static const struct format *nf4_tensor_format(const struct params *p, const struct gguf *g,
                                              const struct gguf_tensor *t)
{
    (void)g;
    return codebook_format(p, FORMAT_NF4, FORMAT_NF4_DQ, t->shape[0]);
}

static const struct format *fp4_tensor_format(const struct params *p, const struct gguf *g,
                                              const struct gguf_tensor *t)
{
    (void)g;
    return codebook_format(p, FORMAT_FP4, FORMAT_FP4_DQ, t->shape[0]);
}

/* A matrix and its statistics, encoded by all threads. */
struct bnb_encoding {
    const struct tensor_job *job;
    const float *absmax;  /* [units] */
    float offset;         /* double quantization: mean of absmax */
    const float *largest; /* double quantization: for each run of nested_blocksize units */
    int nested_blocksize;
};

/* Thread function: encode blocks with plain magnitudes. */
static void bnb_encode_plain(void *arg, int member, int size)
{
    const struct bnb_encoding *e = arg;
    const struct format *f = e->job->format;
    const int64_t units = e->job->rows * e->job->cols / BNB_UNIT, from = units * member / size,
                  to = units * (member + 1) / size;
    format_codebook_encode(f, e->absmax + from, e->job->x + from * BNB_UNIT,
                           (uint8_t *)e->job->out + from * f->block_bytes, (to - from) * BNB_UNIT);
}

/* Thread function: encode blocks with double-quantized magnitudes. */
static void bnb_encode_nested(void *arg, int member, int size)
{
    const struct bnb_encoding *e = arg;
    const struct format *f = e->job->format;
    const int units = (int)f->block_weights / BNB_UNIT; /* in a block; all in one run */
    const int64_t blocks = e->job->rows * e->job->cols / f->block_weights;
    for (int64_t b = blocks * member / size; b < blocks * (member + 1) / size; b++) {
        const struct nested_scales s = { e->offset, &e->largest[b * units / e->nested_blocksize] };
        format_nested_encode(f, &s, 0, e->job->x + b * f->block_weights,
                             (uint8_t *)e->job->out + b * f->block_bytes, f->block_weights);
    }
}

/* The method's `tensor`: compute the statistics of the whole matrix, then encode it. */
static enum err_code bnb_tensor(struct tensor_job *job, struct err *why)
{
    const int64_t n = job->rows * job->cols, units = n / BNB_UNIT;
    const bool nested = job->format == &FORMATS[FORMAT_NF4_DQ] || job->format == &FORMATS[FORMAT_FP4_DQ];
    const int nested_blocksize = (int)params_int(&job->params, "nested_blocksize");
    float *absmax = malloc((size_t)units * sizeof *absmax);
    float *largest = malloc((size_t)(units / nested_blocksize + 1) * sizeof *largest);
    enum err_code rc = ERR_OK;
    if (!absmax || !largest) {
        rc = err_set(why, ERR_NOMEM, "out of memory for '%s'", job->name);
        goto done;
    }
    bnb_absmax(job->x, n, (int)params_int(&job->params, "blocksize"), absmax);
    struct bnb_encoding e = { job, absmax, bnb_offset(absmax, units), largest, nested_blocksize };
    if (nested) bnb_nested(absmax, units, e.offset, nested_blocksize, largest);
    threadpool_run(job->pool, nested ? bnb_encode_nested : bnb_encode_plain, &e);
done:
    free(absmax);
    free(largest);
    return rc;
}

const struct method METHOD_NF4 = {
    .name = "nf4",
    .help =
        "bitsandbytes NF4: sixteen quantiles of a normal distribution, times each block's largest magnitude",
    .good = "normally distributed weights, as in most models; AVX-512 and AMX; needs no calibration",
    .bad = "AVX2 (two lookups and a blend); integer products, because its values are not equally spaced",
    .params = BNB_PARAMS,
    .formats = "nf4 nf4_dq",
    .linear_only = true,
    .check = bnb_check,
    .format = nf4_format,
    .tensor_format = nf4_tensor_format,
    .tensor = bnb_tensor,
};

const struct method METHOD_FP4 = {
    .name = "fp4",
    .help = "bitsandbytes FP4: the sixteen values of a 4-bit float, times each block's largest magnitude",
    .good = "comparison with NF4; blocks with heavy tails",
    .bad = "nearly always worse than NF4 at the same size",
    .params = BNB_PARAMS,
    .formats = "fp4 fp4_dq",
    .linear_only = true,
    .check = bnb_check,
    .format = fp4_format,
    .tensor_format = fp4_tensor_format,
    .tensor = bnb_tensor,
};
