/* Proves: collected statistics equal those recomputed here from the layers' inputs, one value at a time, for
 * any number of threads and any memory limit. Histograms equal PyTorch's. Texts and models that cannot be
 * used are rejected. */
#include "engine/quant/calibration_internal.h"

#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/observers.h"
#include "tests/engine/calibration_fixture.h"

/* ---------------------------------------------------------------- histograms */

static float random_unit(uint64_t *state)
{
    return (float)random_u32(state) * 0x1p-31f - 1;
}

static void add_growing(struct growing_histogram *h, const float *x, int64_t n)
{
    uint32_t bins[HISTOGRAM_BINS] = { 0 };
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    growing_histogram_reserve(h, low, high);
    growing_histogram_count(h, x, n, bins);
    for (int i = 0; i < HISTOGRAM_BINS; i++) h->count[i] += bins[i];
}

static void add_symmetric(struct symmetric *h, const float *x, int64_t n)
{
    static uint32_t bins[SYMMETRIC_BINS_MAX];
    float low = x[0], high = x[0];
    memset(bins, 0, sizeof bins);
    for (int64_t i = 1; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    symmetric_reserve(h, low, high);
    symmetric_count(h, x, n, bins);
    for (int i = 0; i < h->bins; i++) h->count[i] += bins[i];
}

static double total(const double *count, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += count[i];
    return all;
}

/* PyTorch's way: spread the old bins over an array at the resolution of the finer grid, then sum runs. */
static void test_growing(void **state)
{
    (void)state;
    enum { N = 5000 };
    static double count[HISTOGRAM_BINS], before[HISTOGRAM_BINS];
    static float x[N];
    uint64_t seed = 5;
    struct growing_histogram h;
    growing_histogram_init(&h, count);
    for (int batch = 0; batch < 6; batch++) {
        for (int i = 0; i < N; i++) x[i] = random_unit(&seed) * (1 + (float)batch * 0.37f) + 0.2f;
        const struct growing_histogram old = h;
        memcpy(before, count, sizeof count);
        add_growing(&h, x, N);
        CHECK_NEAR(total(count, HISTOGRAM_BINS), N * (batch + 1.0), 1e-6 * N);
        if (!batch) continue;
        const float width = (old.high - old.low) / (2048.0f * 128);
        const int64_t start = lrintf((old.low - h.low) / width);
        const int64_t d = lrint((double)(h.high - h.low) / ((double)width * 2048));
        double *fine = calloc((size_t)(2048 * (d + 1)), sizeof *fine);
        for (int64_t i = 0; i < 2048 * 128; i++) fine[start + i] = before[i / 128] / 128;
        static uint32_t fresh[HISTOGRAM_BINS];
        memset(fresh, 0, sizeof fresh);
        growing_histogram_count(&h, x, N, fresh);
        for (int64_t i = 0; i < 2048; i++) {
            double want = fresh[i];
            for (int64_t k = 0; k < d; k++) want += fine[i * d + k];
            CHECK_NEAR(count[i], want, 1e-9);
        }
        free(fine);
    }
    /* Data a million times wider than before, and wider than any grid can hold. */
    const float wide[] = { -1e6f, 1e6f }, wider[] = { -1e30f, 1e30f };
    add_growing(&h, wide, 2);
    CHECK_NEAR(total(count, HISTOGRAM_BINS), 6 * N + 2, 1e-3);
    add_growing(&h, wider, 2);
    CHECK_NEAR(total(count, HISTOGRAM_BINS), 6 * N + 4, 1e-3);
    CHECK_EQ(h.low, -1e30f);
    CHECK_LE(1e30f, h.high);
}

static void test_symmetric(void **state)
{
    (void)state;
    static double count[SYMMETRIC_BINS_MAX];
    struct symmetric h;
    float x[3000];
    double all = 0;
    uint64_t seed = 9;
    symmetric_init(&h, count);
    const float zeros[] = { 0, 0, -0.0f };
    add_symmetric(&h, zeros, 3);
    CHECK_EQ(count[(h.bins - 1) / 2], 3);
    all = 3;
    for (int batch = 0; batch < 40; batch++) {
        const float scale = expf((float)batch * 0.35f) * 1e-3f;
        for (size_t i = 0; i < COUNT_OF(x); i++) x[i] = random_unit(&seed) * scale;
        x[7] = 0.999f * h.high; /* stays in the outermost bin */
        x[8] = 0;
        const double width = 2 * (double)h.high / h.bins;
        const int bins = h.bins;
        add_symmetric(&h, x, COUNT_OF(x));
        all += COUNT_OF(x);
        CHECK_EQ(total(count, h.bins), all);
        CHECK_EQ(h.bins % 2, 1);
        CHECK_LE(h.bins, SYMMETRIC_BINS_MAX);
        CHECK_LE(scale * 0.99f, h.high);
        /* The bin width stays the same or grows by a power of 3. */
        if (width > 0) {
            double times = 2 * (double)h.high / h.bins / width;
            while (times > 1.5) times /= 3;
            CHECK_NEAR(times, 1, 1e-3);
        }
        if (batch > 0 && h.bins < bins) CHECK_LT(SYMMETRIC_BINS, h.bins);
        CHECK_LE(batch + 3, count[(h.bins - 1) / 2]);
    }
}

static float *golden_activations(int64_t *n)
{
    struct err why = { 0 };
    char path[4096];
    data_path(path, sizeof path, "quant-golden/peers/in/activation.f16");
    struct file_map map;
    CHECK_OK(file_map(&map, path, &why));
    *n = (int64_t)(map.size / 2);
    float *x = malloc((size_t)*n * sizeof *x);
    for (int64_t i = 0; i < *n; i++) x[i] = f16_to_f32(((const uint16_t *)(const void *)map.data)[i]);
    file_unmap(&map);
    return x;
}

static void test_golden_histogram(void **state)
{
    (void)state;
    struct err why = { 0 };
    static double count[HISTOGRAM_BINS];
    char path[4096];
    struct file_map want;
    struct growing_histogram h;
    int64_t n;
    SHARED_OR_SKIP(path, "quant-golden/peers/observers/histogram_single.f32");
    CHECK_OK(file_map(&want, path, &why));
    float *x = golden_activations(&n);
    growing_histogram_init(&h, count);
    add_growing(&h, x, n);
    assert_int_equal(want.size, sizeof(float) * HISTOGRAM_BINS);
    for (int i = 0; i < HISTOGRAM_BINS; i++)
        CHECK_EQ((float)count[i], ((const float *)(const void *)want.data)[i]);
    CHECK_EQ(h.low, -98.3125f);
    CHECK_EQ(h.high, 119.25f); /* manifest.json: histogram_single_batch */
    growing_histogram_init(&h, count);
    for (int i = 0; i < 4; i++) add_growing(&h, x + i * n / 4, n / 4);
    CHECK_EQ(h.low, -98.3125f);
    CHECK_EQ(h.high, 119.56103515625f); /* histogram_quint8: four batches */
    CHECK_NEAR(total(count, HISTOGRAM_BINS), (double)n, 1e-6);
    file_unmap(&want);
    free(x);
}

/* ---------------------------------------------------------------- collecting */

struct recount {
    const struct calibration *c;
    int inputs, sequence;
};

/* Compare every value of the observed input with the statistics collected up to this sequence. */
struct plain {
    double *squares, *magnitudes;
    float *low, *high;
    int64_t count;
};
static struct plain plain[64];

static void recount(void *ctx, const struct layer_input *in)
{
    struct recount *r = ctx;
    const struct calibration_input *have = calibration_find(r->c, in->tensors[0]);
    assert_non_null(have);
    assert_int_equal(have->cols, in->cols);
    assert_int_equal(have->tensor_count, in->count);
    for (int t = 0; t < in->count; t++) CHECK_EQ(calibration_find(r->c, in->tensors[t]), have);
    struct plain *p = &plain[have - calibration_at(r->c, 0)];
    if (!p->squares) {
        p->squares = calloc((size_t)in->cols, sizeof(double));
        p->magnitudes = calloc((size_t)in->cols, sizeof(double));
        p->low = malloc((size_t)in->cols * sizeof(float));
        p->high = malloc((size_t)in->cols * sizeof(float));
        for (int64_t i = 0; i < in->cols; i++) p->low[i] = INFINITY, p->high[i] = -INFINITY;
        r->inputs++;
    }
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < in->cols; i++)
        for (int row = 0; row < in->n; row++) {
            const float x = in->x[row * in->stride + i];
            p->squares[i] += (double)x * (double)x;
            p->magnitudes[i] += fabs((double)x);
            p->low[i] = fminf(p->low[i], x);
            p->high[i] = fmaxf(p->high[i], x);
            low = fminf(low, x);
            high = fmaxf(high, x);
        }
    p->count += in->n;
    CHECK_EQ(have->batch_min[r->sequence], low);
    CHECK_EQ(have->batch_max[r->sequence], high);
}

static void check_plain(const struct calibration_input *in, const struct plain *p)
{
    double all = 0, symmetric = 0;
    float low = INFINITY, high = -INFINITY;
    assert_int_equal(in->count, p->count);
    for (int64_t i = 0; i < in->cols; i++) {
        CHECK_EQ(in->sum_squares[i], (float)p->squares[i]);
        CHECK_EQ(in->mean_square[i], in->sum_squares[i] / (float)p->count);
        CHECK_EQ(in->mean_abs[i], (float)(p->magnitudes[i] / (double)p->count));
        CHECK_EQ(in->min[i], p->low[i]);
        CHECK_EQ(in->max[i], p->high[i]);
        CHECK_EQ(in->max_abs[i], fmaxf(-p->low[i], p->high[i]));
        low = fminf(low, p->low[i]);
        high = fmaxf(high, p->high[i]);
    }
    for (int i = 0; i < in->histogram.bins; i++) all += (double)in->histogram.counts[i];
    for (int i = 0; i < in->symmetric.bins; i++) symmetric += (double)in->symmetric.counts[i];
    CHECK_NEAR(all, (double)(p->count * in->cols), 1e-4 * all);
    CHECK_EQ(symmetric, (double)(p->count * in->cols));
    CHECK_EQ(in->histogram.low, low);
    CHECK_LE(high, in->histogram.high);
    CHECK_LE(fmaxf(-low, high), in->symmetric.high);
    CHECK_EQ(in->symmetric.low, -in->symmetric.high);
    free(p->squares);
    free(p->magnitudes);
    free(p->low);
    free(p->high);
}

static void check_collected(const char *arch)
{
    struct err why = { 0 };
    struct gguf *g;
    struct layers *l;
    char model[256];
    snprintf(model, sizeof model, "%s", synth(arch, 3));
    struct calibration *c = collect(model, 2, 0, 0);
    struct calibration_summary about;
    calibration_describe(c, &about);
    assert_int_equal(about.tokens, 32);
    assert_in_range(about.sequences, 10, 1000);
    assert_false(about.bundled_text);
    assert_false(about.imatrix);
    int32_t *ids = malloc((size_t)(about.sequences * 32) * sizeof *ids);
    assert_int_equal(calibration_samples(c, 32, NULL, 0), about.sequences);
    assert_int_equal(calibration_samples(c, 32, ids, INT32_MAX), about.sequences);
    memset(plain, 0, sizeof plain);
    struct recount r = { .c = c };
    float *x = malloc((size_t)(32 * 64) * sizeof *x);
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(layers_open(&l, g, &(struct layers_options){ .threads = 1, .tokens = 32 }, &why));
    for (; r.sequence < about.sequences; r.sequence++) {
        CHECK_OK(layers_embed(l, ids + r.sequence * 32, 32, x, &why));
        for (int i = 0; i < 3; i++) CHECK_OK(layers_run(l, i, x, 32, recount, &r, &why));
        CHECK_OK(layers_head(l, x, 32, NULL, recount, &r, &why));
    }
    assert_int_equal(r.inputs, about.inputs);
    assert_int_equal(about.inputs, 3 * 4 + 1);
    for (int i = 0; i < about.inputs; i++) check_plain(calibration_at(c, i), &plain[i]);
    layers_close(l);
    gguf_close(g);
    free(x);
    free(ids);
    calibration_close(c);
}

static void test_collected(void **state)
{
    (void)state;
    check_collected("llama");
    check_collected("gpt2");
}

/* Threads and memory limit do not change results; with a token limit the first tokens are used. */
static void test_independent(void **state)
{
    (void)state;
    struct err why = { 0 };
    char model[256], first[256];
    snprintf(model, sizeof model, "%s", synth("llama", 3));
    snprintf(first, sizeof first, "%s", place("first.gguf"));
    const struct {
        int threads;
        int64_t memory;
    } WAYS[] = { { 1, 0 }, { 3, 0 }, { 2, 1 }, { 1, 3 * 32 * 64 * 4 } };
    for (size_t i = 0; i < COUNT_OF(WAYS); i++) {
        struct calibration *c = collect(model, WAYS[i].threads, WAYS[i].memory, 0);
        CHECK_OK(calibration_save(c, i ? place("other.gguf") : first, &why));
        calibration_close(c);
        if (i) CHECK(same_bytes(first, place("other.gguf")));
    }
    struct calibration *all = collect(model, 1, 0, 0), *few = collect(model, 1, 0, 100);
    struct calibration_summary about;
    calibration_describe(few, &about);
    assert_int_equal(about.sequences, 3);
    int32_t a[4 * 24], b[4 * 24];
    assert_int_equal(calibration_samples(few, 24, a, 4), 4);
    assert_int_equal(calibration_samples(all, 24, b, 4), 4);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(calibration_samples(few, 97, NULL, 0), 0);
    calibration_close(all);
    calibration_close(few);
}

/* A copy of the model without a tokenizer. */
static void check_no_tokenizer(const struct gguf *g)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    struct gguf *bare;
    struct calibration *c;
    CHECK_OK(gguf_writer_open(&w, place("bare.gguf"), &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (kv->key.len < 10 || memcmp(kv->key.data, "tokenizer.", 10)) gguf_writer_copy_kv(w, kv);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        gguf_writer_write(w, gguf_tensor_at(g, i)->data, gguf_tensor_at(g, i)->bytes, &why);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&bare, place("bare.gguf"), &why));
    const struct calibration_options o = { .path = text_file(), .threads = 1 };
    assert_int_equal(calibration_obtain(&c, bare, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "no usable tokenizer");
    gguf_close(bare);
}

static bool stop_soon(void *ctx, double done)
{
    double *last = ctx;
    CHECK_LT(*last, done);
    CHECK_LE(done, 1);
    *last = done;
    return done < 0.3;
}

static void test_refused_collecting(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    struct calibration *c;
    double last = 0;
    char model[256], broken[256];
    snprintf(model, sizeof model, "%s", synth("llama", 3));
    CHECK_OK(gguf_open(&g, model, &why));
    struct calibration_options o = {
        .path = text_file(), .threads = 1, .ctx = 32, .progress = stop_soon, .progress_ctx = &last
    };
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_CANCELLED);
    assert_null(c);
    CHECK_LE(0.3, last);
    o = (struct calibration_options){ .path = place("short.txt"), .threads = 1 };
    write_bytes(o.path, "a b", 3);
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_USAGE);
    write_bytes(o.path, "", 0);
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_USAGE);
    o.path = place("absent");
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_IO);
    o.path = model; /* a model instead of a calibration */
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "this is a model");
    assert_null(c);

    check_no_tokenizer(g);

    /* One infinite weight in layer 1 makes the inputs of later matrices infinite. */
    size_t n;
    char *bytes = read_bytes(model, &n);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.attn_output.weight");
    for (size_t at = 0; at + 64 <= n; at += 4) {
        if (memcmp(bytes + at, t->data, 64)) continue;
        const float infinite = INFINITY;
        memcpy(bytes + at, &infinite, sizeof infinite);
        break;
    }
    snprintf(broken, sizeof broken, "%s", place("broken.gguf"));
    write_bytes(broken, bytes, n);
    free(bytes);
    gguf_close(g);
    CHECK_OK(gguf_open(&g, broken, &why));
    o = (struct calibration_options){ .path = text_file(), .threads = 2, .ctx = 32 };
    assert_int_equal(calibration_obtain(&c, g, &o, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "blk.1.ffn_up.weight");
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),          cmocka_unit_test(test_symmetric),
        cmocka_unit_test(test_golden_histogram), cmocka_unit_test(test_collected),
        cmocka_unit_test(test_independent),      cmocka_unit_test(test_refused_collecting),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
