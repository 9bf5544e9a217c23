/* Stores activation statistics, finds them by matrix name, and rejects those of another model. */
#include "engine/quant/calibration_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

enum { SNIFF = 4096 /* bytes examined to tell text from a binary file */ };
const char CALIBRATION_TEXT[] = "text/calibration.txt";

struct calibration *calibration_new(void)
{
    struct calibration *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->text = c->model_name = c->line = "";
    c->bos = -1;
    return c;
}

void calibration_close(struct calibration *c)
{
    if (!c) return;
    arena_free(&c->memory);
    name_index_free(&c->listed);
    free(c);
}

float **calibration_column(struct calibration_input *in, int i)
{
    float **const COLUMNS[CALIBRATION_COLUMNS] = { &in->mean_abs, &in->max_abs, &in->min, &in->max };
    return COLUMNS[i];
}

/* Make room for one more input. False: out of memory. */
static bool calibration_grow(struct calibration *c)
{
    if (c->input_count < c->input_cap) return true;
    const int cap = c->input_cap ? 2 * c->input_cap : 64;
    struct calibration_input *more = arena_alloc(&c->memory, (size_t)cap * sizeof *more);
    if (!more) return false;
    if (c->input_count) memcpy(more, c->inputs, (size_t)c->input_count * sizeof *more);
    c->inputs = more;
    c->input_cap = cap;
    return true;
}

struct calibration_input *calibration_add(struct calibration *c, const char *const *tensors, int count,
                                          int64_t cols, int parts, int64_t batches)
{
    const size_t bytes = (size_t)cols * sizeof(float);
    struct arena *a = &c->memory;
    if (!calibration_grow(c)) return NULL;
    struct calibration_input *in = &c->inputs[c->input_count];
    *in = (struct calibration_input){
        .tensor_count = count, .cols = cols, .parts = parts, .batches = batches
    };
    in->tensors = arena_alloc(a, (size_t)count * sizeof *in->tensors);
    in->part_count = arena_alloc(a, (size_t)parts * sizeof *in->part_count);
    in->sum_squares = arena_alloc(a, (size_t)parts * bytes);
    in->mean_square = arena_alloc(a, (size_t)parts * bytes);
    in->importance = arena_alloc(a, (size_t)parts * bytes);
    bool allocated = in->tensors && in->part_count && in->sum_squares && in->mean_square && in->importance;
    for (int i = 0; i < count && allocated; i++) allocated = (in->tensors[i] = arena_strdup(a, tensors[i]));
    if (batches > 0) {
        for (int i = 0; i < CALIBRATION_COLUMNS && allocated; i++)
            allocated = (*calibration_column(in, i) = arena_alloc(a, bytes));
        in->batch_min = arena_alloc(a, (size_t)batches * sizeof(float));
        in->batch_max = arena_alloc(a, (size_t)batches * sizeof(float));
        allocated = allocated && in->batch_min && in->batch_max;
    }
    if (!allocated) return NULL;
    c->input_count++;
    return in;
}

enum err_code calibration_list(struct calibration *c, const char *const *names, int count, struct err *why)
{
    for (int i = 0; i < count; i++) switch (name_index_add(&c->listed, names[i], strlen(names[i]), 0)) {
        case NAME_NO_MEMORY: return err_set(why, ERR_NOMEM, "out of memory for a calibration");
        case NAME_KNOWN: return err_set(why, ERR_FORMAT, "the calibration contains '%.80s' twice", names[i]);
        case NAME_ADDED: break;
        }
    return ERR_OK;
}

/* ---------------------------------------------------------------- checking and finishing */

static enum err_code input_bad_value(const struct calibration_input *in, const char *what, double value,
                                     int64_t at, struct err *why)
{
    return err_set(why, ERR_FORMAT, "calibration of '%s': %s of column %" PRId64 " is %g", in->tensors[0],
                   what, at, value);
}

/* Check the statistics of every column for impossible values. ERR_FORMAT. */
static enum err_code input_check_columns(const struct calibration_input *in, struct err *why)
{
    for (int64_t i = 0; i < in->parts * in->cols; i++)
        if (!(in->sum_squares[i] >= 0) || !isfinite(in->mean_square[i]))
            return input_bad_value(in, "the sum of squares", in->sum_squares[i], i, why);
    for (int64_t i = 0; i < in->cols && in->batches; i++) {
        if (!(in->mean_abs[i] >= 0) || !isfinite(in->mean_abs[i]))
            return input_bad_value(in, "the mean magnitude", in->mean_abs[i], i, why);
        if (!(in->min[i] <= in->max[i]) || !isfinite(in->min[i]) || !isfinite(in->max[i]))
            return input_bad_value(in, "the minimum", in->min[i], i, why);
        if (in->max_abs[i] != fmaxf(-in->min[i], in->max[i]))
            return input_bad_value(in, "the largest magnitude", in->max_abs[i], i, why);
    }
    return ERR_OK;
}

/* Check that a histogram has a valid range and at least one value. ERR_FORMAT. */
static enum err_code input_check_histogram(const struct calibration_input *in, const struct histogram *h,
                                           struct err *why)
{
    double all = 0;
    bool good = isfinite(h->low) && isfinite(h->high) && h->low <= h->high;
    for (int i = 0; i < h->bins && good; i++) {
        good = h->counts[i] >= 0 && isfinite(h->counts[i]);
        all += (double)h->counts[i];
    }
    if (good && all > 0) return ERR_OK;
    return err_set(why, ERR_FORMAT, "calibration of '%s': invalid histogram (range %g to %g, total count %g)",
                   in->tensors[0], (double)h->low, (double)h->high, all);
}

/* Check all statistics of one input. ERR_FORMAT. */
static enum err_code input_check(const struct calibration_input *in, struct err *why)
{
    if (in->count < 1 || in->cols < 1)
        return err_set(why, ERR_FORMAT, "calibration of '%s': %" PRId64 " tokens of %" PRId64 " columns",
                       in->tensors[0], in->count, in->cols);
    enum err_code rc = input_check_columns(in, why);
    for (int64_t i = 0; i < in->batches && !rc; i++)
        if (!(in->batch_min[i] <= in->batch_max[i]) || !isfinite(in->batch_min[i]) ||
            !isfinite(in->batch_max[i]))
            rc = err_set(why, ERR_FORMAT, "calibration of '%s': sequence %" PRId64 " ranges from %g to %g",
                         in->tensors[0], i, (double)in->batch_min[i], (double)in->batch_max[i]);
    if (!rc && in->batches) rc = input_check_histogram(in, &in->histogram, why);
    if (!rc && in->batches) rc = input_check_histogram(in, &in->symmetric, why);
    return rc;
}

static int calibration_name_compare(const void *a, const void *b)
{
    return strcmp(((const struct calibration_name *)a)->name, ((const struct calibration_name *)b)->name);
}

/* Build the sorted list of matrix names. ERR_FORMAT: a matrix is listed twice. */
static enum err_code calibration_sort_names(struct calibration *c, struct err *why)
{
    int count = 0, at = 0;
    for (int i = 0; i < c->input_count; i++) count += c->inputs[i].tensor_count;
    c->names = arena_alloc(&c->memory, (size_t)count * sizeof *c->names);
    if (!c->names) return err_set(why, ERR_NOMEM, "out of memory for a calibration");
    for (int i = 0; i < c->input_count; i++)
        for (int t = 0; t < c->inputs[i].tensor_count; t++)
            c->names[at++] = (struct calibration_name){ c->inputs[i].tensors[t], i };
    c->name_count = count;
    qsort(c->names, (size_t)count, sizeof *c->names, calibration_name_compare);
    for (int i = 1; i < count; i++)
        if (!strcmp(c->names[i - 1].name, c->names[i].name))
            return err_set(why, ERR_FORMAT, "the calibration contains '%s' twice", c->names[i].name);
    return ERR_OK;
}

/* Describe the calibration in one line; NULL: out of memory. */
static const char *calibration_line(struct calibration *c)
{
    struct str s = { 0 };
    const char *of = c->text[0] ? c->text : "an unnamed text";
    if (c->imatrix)
        str_printf(&s, "imatrix of %" PRId64 " chunks of %s", c->sequences, of);
    else
        str_printf(&s, "%" PRId64 " sequences of %d tokens of %s", c->sequences, c->tokens, of);
    const char *line = s.failed ? NULL : arena_strdup(&c->memory, str_text(&s));
    str_free(&s);
    return line;
}

/* Fill mean_square from sum_squares and part_count. */
static void input_average(struct calibration_input *in)
{
    for (int64_t k = 0; k < in->cols; k++) {
        double all = 0;
        for (int p = 0; p < in->parts; p++) all += (double)in->sum_squares[p * in->cols + k];
        for (int p = 0; p < in->parts; p++) {
            const int64_t at = p * in->cols + k, n = in->part_count[p];
            in->mean_square[at] = n ? in->sum_squares[at] / (float)n : (float)(all / (double)in->count);
        }
    }
}

/* Importances of n columns. The floor is below all that differ in an ordinary text. Encoders use squares of
 * products of importance and weight: a mean near 1 keeps them in the range of f32; a power of two changes no
 * other bit. */
static int64_t importance_set(float *out, const float *mean_square, int64_t n)
{
    enum { ORDINARY = 20 }; /* binary orders of magnitude */
    const double floor_of_mean = 1e-8;
    double sum = 0;
    int64_t floored = 0;
    int exponent = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)mean_square[i];
    frexp(sum / (double)n, &exponent);
    if (abs(exponent) <= ORDINARY) exponent = 0;
    const double mean = sum > 0 ? ldexp(sum / (double)n, -exponent) : 1,
                 least = sum > 0 ? mean * floor_of_mean : 1;
    for (int64_t i = 0; i < n; i++) {
        const double v = ldexp((double)mean_square[i], -exponent);
        floored += v < least;
        out[i] = (float)fmax(v, least);
    }
    return floored;
}

static void input_weigh(struct calibration_input *in)
{
    in->floored = 0;
    for (int p = 0; p < in->parts; p++)
        in->floored += importance_set(in->importance + p * in->cols, in->mean_square + p * in->cols,
                                      in->cols);
}

enum err_code calibration_finish(struct calibration *c, struct err *why)
{
    if (!c->input_count) return err_set(why, ERR_FORMAT, "the calibration is empty: it contains no matrix");
    for (int i = 0; i < c->input_count; i++) {
        struct calibration_input *in = &c->inputs[i];
        input_average(in);
        enum err_code rc = input_check(in, why);
        if (rc) return rc;
        input_weigh(in);
    }
    enum err_code rc = calibration_sort_names(c, why);
    if (rc) return rc;
    c->line = calibration_line(c);
    return c->line ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a calibration");
}

/* ---------------------------------------------------------------- lookup */

const struct calibration_input *calibration_find(const struct calibration *c, const char *tensor)
{
    if (!c || !c->name_count) return NULL;
    const struct calibration_name key = { .name = tensor },
                                  *n = bsearch(&key, c->names, (size_t)c->name_count, sizeof key,
                                               calibration_name_compare);
    return n ? &c->inputs[n->input] : NULL;
}

const float *calibration_importance(const struct calibration_input *in, int64_t cols, int64_t part)
{
    /* legacy imatrix files do not say how many matrices their values belong to */
    return in->importance + (in->parts > 1 || in->cols > cols ? part * cols : 0);
}

const struct calibration_input *calibration_at(const struct calibration *c, int i)
{
    return &c->inputs[i];
}

int calibration_samples(const struct calibration *c, int tokens, int32_t *ids, int cap)
{
    const int64_t all = c && c->ids && tokens > 0 ? c->sequences * c->tokens / tokens : 0;
    const int count = (int)MIN(all, INT32_MAX);
    if (!ids) return count;
    for (int i = 0; i < MIN(count, cap); i++) {
        int32_t *to = ids + (int64_t)i * tokens;
        memcpy(to, c->ids + (int64_t)i * tokens, (size_t)tokens * sizeof *to);
        if (c->bos >= 0) to[0] = c->bos;
    }
    return MIN(count, cap);
}

void calibration_describe(const struct calibration *c, struct calibration_summary *about)
{
    *about = (struct calibration_summary){ .text = c->text,
                                           .bundled_text = c->bundled_text,
                                           .imatrix = c->imatrix,
                                           .model = c->model,
                                           .model_name = c->model_name,
                                           .tokens = c->tokens,
                                           .sequences = c->sequences,
                                           .inputs = c->input_count,
                                           .matrices = c->name_count };
}

const char *calibration_name(const struct calibration *c)
{
    return c->line;
}

enum err_code calibration_check(const struct calibration *c, const struct gguf *g, struct err *why)
{
    char hash[HASH_HEX];
    int known = 0;
    enum err_code rc = c->model[0] ? model_identity(g, hash, why) : ERR_OK;
    if (rc) return rc;
    if (c->model[0] && strcmp(c->model, hash))
        return err_set(
            why, ERR_USAGE,
            "the calibration was made with another model (%s, sha256 %.12s...; this model: %.12s...): "
            "make one for this model with qdyno calibrate",
            c->model_name[0] ? c->model_name : "unnamed", c->model, hash);
    for (int i = 0; i < c->name_count; i++) {
        const struct gguf_tensor *t = gguf_tensor_find(g, c->names[i].name);
        const struct calibration_input *in = &c->inputs[c->names[i].input];
        const int64_t cols = in->cols, all = t ? t->shape[0] * t->shape[2] : 0;
        if (!t) continue;
        known++;
        if (in->parts > 1 && t->shape[0] == cols && t->shape[2] != in->parts)
            return err_set(why, ERR_USAGE,
                           "the calibration belongs to another model: '%s' has %" PRId64
                           " matrices in this model and %d in the calibration",
                           t->name, t->shape[2], in->parts);
        if (t->shape[0] != cols && !(in->parts == 1 && cols == all))
            return err_set(why, ERR_USAGE,
                           "the calibration belongs to another model: '%s' has %" PRId64
                           " columns in this model and %" PRId64 " in the calibration",
                           t->name, t->shape[0], cols);
    }
    if (!known)
        return err_set(why, ERR_USAGE,
                       "the calibration belongs to another model: this one has none of its matrices ('%s' "
                       "...)",
                       c->names[0].name);
    return ERR_OK;
}

/* ---------------------------------------------------------------- loading or collecting */

/* A text contains no zero bytes; calibration and imatrix files contain some near their beginning. */
static enum err_code file_is_text(bool *out, const char *path, struct err *why)
{
    struct file_map map;
    enum err_code rc = file_map(&map, path, why);
    if (rc) return rc;
    *out = !map.size || !memchr(map.data, 0, MIN(map.size, SNIFF));
    file_unmap(&map);
    return ERR_OK;
}

/* Read a text file and collect statistics on it. */
static enum err_code calibration_collect_file(struct calibration **out, const struct gguf *source,
                                              const char *path, bool bundled,
                                              const struct calibration_options *o, struct err *why)
{
    char *bytes;
    struct calibration_text text = { .name = bundled ? "bundled text" : path, .bundled = bundled };
    enum err_code rc = file_read(&bytes, &text.n, path, TEXT_FILE_LIMIT, why);
    if (rc) return rc;
    text.bytes = bytes;
    rc = calibration_collect(out, source, &text, o, why);
    free(bytes);
    return rc;
}

enum err_code calibration_obtain(struct calibration **out, const struct gguf *source,
                                 const struct calibration_options *o, struct err *why)
{
    char *bundled = NULL;
    bool text = true;
    *out = NULL;
    const bool given = o->path && o->path[0];
    enum err_code rc = !given         ? file_share(&bundled, CALIBRATION_TEXT, why)
                       : o->text_only ? ERR_OK
                                      : file_is_text(&text, o->path, why);
    if (rc) return rc;
    if (text) {
        rc = calibration_collect_file(out, source, given ? o->path : bundled, !given, o, why);
    } else {
        rc = calibration_load(out, o->path, why);
        if (!rc) rc = calibration_check(*out, source, why);
    }
    free(bundled);
    if (!rc) rc = gguf_check_unchanged(source, why); /* a calibration names the model that it was made with */
    if (!rc) return ERR_OK;
    calibration_close(*out);
    *out = NULL;
    return rc;
}
