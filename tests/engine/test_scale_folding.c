/* Proves: in every architecture, an input reported as foldable can be divided by arbitrary scales without
 * changing the layer's output, although its input and weights do change. Inputs that cannot be folded report
 * the expected obstacle. SmoothQuant's scales, and the outputs of a layer in 8 bits, equal the reference's.
 */
#include "engine/quant/scale_folding.h"

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "engine/quant/layer_samples.h"
#include "engine/quant/smoothquant.h"
#include "tests/engine/peers_golden.h"
#include "tests/engine/session.h"
#include "tests/kernels/numbers.h"

enum { TOKENS = 20, TENSORS = 40 };

/* Layer 1 of a file, prepared as the driver prepares it for a method. */
struct bench {
    struct gguf *g;
    struct layers *l;
    struct model_shape shape;
    struct layer_matrix matrices[TENSORS];
    struct layer_vector vectors[TENSORS];
    struct layer_job job;
    float *in, *plain, *out; /* [TOKENS][width] */
};

static float *values_of(const struct gguf_tensor *t)
{
    const int64_t rows = t->shape[1];
    float *x = malloc((size_t)(rows * t->shape[0]) * sizeof *x);
    format_decode_rows(t->format, t->data, x, rows, t->shape[0]);
    return x;
}

static void load(struct bench *b)
{
    struct layer_job *job = &b->job;
    for (int64_t i = 0; i < gguf_tensor_count(b->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->g, i);
        int layer;
        enum slot slot;
        if (!arch_slot_find(&layer, &slot, job->arch, &b->shape, t->name) || layer != job->layer) continue;
        if (ARCH_SLOTS[slot].rows == DIM_NONE) {
            b->vectors[job->vector_count++] = (struct layer_vector){
                .name = t->name, .slot = slot, .x = values_of(t), .n = t->shape[0]
            };
        } else {
            const struct tensor_job m = {
                .name = t->name, .rows = t->shape[1], .cols = t->shape[0], .x = values_of(t)
            };
            b->matrices[job->matrix_count++] = (struct layer_matrix){ .job = m, .slot = slot };
        }
    }
}

static void bench_open(struct bench *b, const char *path)
{
    struct err why = { 0 };
    int32_t ids[TOKENS];
    memset(b, 0, sizeof *b);
    CHECK_OK(gguf_open(&b->g, path, &why));
    CHECK_OK(model_shape_read(&b->shape, b->g, &why));
    CHECK_OK(layers_open(&b->l, b->g, &(struct layers_options){ .threads = 1, .tokens = TOKENS }, &why));
    b->job = (struct layer_job){ .layer = 1,
                                 .source = b->g,
                                 .arch = arch_find(gguf_get_string(b->g, "general.architecture")),
                                 .shape = &b->shape,
                                 .matrices = b->matrices,
                                 .vectors = b->vectors,
                                 .model = b->l };
    load(b);
    const size_t bytes = TOKENS * (size_t)layers_width(b->l) * sizeof(float);
    b->in = malloc(bytes), b->plain = malloc(bytes), b->out = malloc(bytes);
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * i * 5 + 7 * i + 3) % (int)b->shape.vocab;
    CHECK_OK(layers_embed(b->l, ids, TOKENS, b->in, &why));
    memcpy(b->plain, b->in, bytes);
    CHECK_OK(layers_run(b->l, 1, b->plain, TOKENS, NULL, NULL, &why));
}

static void bench_close(struct bench *b)
{
    for (int i = 0; i < b->job.matrix_count; i++) free(b->matrices[i].job.x);
    for (int i = 0; i < b->job.vector_count; i++) free(b->vectors[i].x);
    free(b->in), free(b->plain), free(b->out);
    layers_close(b->l);
    gguf_close(b->g);
}

struct observed_input {
    const char *matrix;
    float x[64];
    int n;
};

static void observe_input(void *ctx, const struct layer_input *in)
{
    struct observed_input *s = ctx;
    if (!input_is_of(in, s->matrix)) return;
    s->n = (int)MIN(in->cols, 64);
    memcpy(s->x, in->x, (size_t)s->n * sizeof *s->x);
}

static void run(struct bench *b, struct observed_input *s)
{
    struct err why = { 0 };
    memcpy(b->out, b->in, TOKENS * (size_t)layers_width(b->l) * sizeof(float));
    CHECK_OK(layers_run(b->l, 1, b->out, TOKENS, observe_input, s, &why));
}

/* Fold scales from 1/8 to 8: outputs stay the same, inputs are divided by exactly these scales. */
static void check_fold(struct bench *b, const struct fold *f, struct rng *r)
{
    struct err why = { 0 };
    struct observed_input before = { .matrix = f->consumers[0]->job.name }, after = before;
    float *scales = malloc((size_t)f->n * sizeof *scales);
    for (int64_t i = 0; i < f->n; i++) scales[i] = exp2f((float)(rng_below(r, 6001) - 3000) / 1000);
    CHECK_OK(layer_bind(&b->job, &why));
    run(b, &before);
    fold_apply(f, scales);
    CHECK_OK(layer_bind(&b->job, &why));
    run(b, &after);
    const int64_t n = TOKENS * layers_width(b->l);
    CHECK_LT(nmse(b->plain, b->out, n), 1e-11);
    assert_int_equal(after.n, before.n);
    CHECK_LT(0, before.n);
    double most = 0;
    for (int i = 0; i < before.n; i++) most = fmax(most, fabs((double)before.x[i]));
    for (int i = 0; i < before.n; i++)
        CHECK_NEAR(after.x[i] * (double)scales[i], before.x[i],
                   1e-5 * (most + fabs((double)before.x[i])) * fmax(1, (double)scales[i]));
    for (int i = 0; i < f->consumer_count; i++) CHECK(f->consumers[i]->changed);
    CHECK(f->norm ? f->norm->changed : f->producer->changed);
    free(scales);
}

/* `want` has one letter for each enum fold_input. f: can be folded, -: has an obstacle, .: not a separate
 * input.
 */
static void check_file(const char *path, const char *want)
{
    struct err why = { 0 };
    struct bench b;
    struct rng r = { 42 };
    struct fold folds[FOLD_COUNT];
    char got[FOLD_COUNT + 1] = "";
    bench_open(&b, path);
    CHECK_OK(folds_find(&b.job, folds, &why));
    int consumers = 0;
    for (int i = 0; i < FOLD_COUNT; i++) {
        got[i] = !folds[i].consumer_count ? '.' : folds[i].obstacle ? '-' : 'f';
        consumers += folds[i].consumer_count;
        if (got[i] == 'f') check_fold(&b, &folds[i], &r);
    }
    if (strcmp(got, want)) fail_msg("%s: folds are '%s', want '%s'", path, got, want);
    assert_int_equal(consumers, b.job.matrix_count); /* every matrix consumes one of the inputs */
    CHECK_OK(layer_unbind(&b.job, &why));
    run(&b, &(struct observed_input){ .matrix = "" });
    assert_memory_equal(b.out, b.plain, TOKENS * (size_t)layers_width(b.l) * sizeof(float));
    bench_close(&b);
}

static void every_architecture_keeps_its_function(void **state)
{
    (void)state;
    static const char *const FILES[][2] = {
        { "llama-gqa-256-F16", "f-ff" },
        { "llama-bias", "f-ff" },
        { "qwen2", "f-ff" },
        { "qwen3", "f-ff" },
        { "gpt2", "fff-" },
        { "phi3-swa", "f-ff" },
        { "llama-mha", "ffff" },
        { "llama-keylen", "f-ff" },
        { "gptneox-sequential", "fff-" },
        { "gptneox-parallel", "fff-" },
        { "starcoder2", "f-f-" },
        { "falcon-7b-style", "f-.-" },
        { "falcon-40b-style", "f-f-" },
        { "command-r", "f-.f" },
        { "gemma", "f-ff" },
        { "gemma2", "f-ff" },
        { "gemma3", "f-ff" },
        { "olmo2", "-f-f" },
        { "granite", "f-ff" },
    };
    char path[4096], name[128];
    for (size_t i = 0; i < COUNT_OF(FILES); i++) {
        snprintf(name, sizeof name, "arch-golden/%s.gguf", FILES[i][0]);
        SHARED_OR_SKIP(path, name);
        check_file(path, FILES[i][1]);
    }
}

/* The same on synthetic models, which need no external data. */
static void our_own_models_keep_theirs(void **state)
{
    (void)state;
    static const struct synth_shape SHAPES[] = {
        { .name = "shared",
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .embd = 64,
          .ff = 96,
          .vocab = 512,
          .ctx = 64 },
        { .name = "apart",
          .layers = 2,
          .heads = 4,
          .kv_heads = 4,
          .embd = 64,
          .ff = 96,
          .vocab = 512,
          .ctx = 64 },
    };
    static const char *const WANT[][2] = { { "f-ff", "ffff" }, { "f-ff", "ffff" } };
    static const char *const ARCHITECTURES[] = { "llama", "qwen2" };
    char path[] = "/tmp/qdyno-test-fold-XXXXXX";
    struct err why = { 0 };
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    close(fd);
    for (size_t a = 0; a < COUNT_OF(ARCHITECTURES); a++)
        for (size_t s = 0; s < COUNT_OF(SHAPES); s++) {
            const struct synth_options o = { .arch = ARCHITECTURES[a],
                                             .shape = &SHAPES[s],
                                             .seed = 3,
                                             .threads = 1,
                                             .format = &FORMATS[s ? FORMAT_F32 : FORMAT_BF16] };
            CHECK_OK(synth_write(path, &o, &why));
            check_file(path, WANT[a][s]);
        }
    unlink(path);
}

/* ---------------------------------------------------------------- SmoothQuant's numbers */

static void scales_worked_by_hand(void **state)
{
    (void)state;
    const float inputs[3] = { 1, 16, 0.5f }, w[6] = { 0.5f, 0.02f, -0.4f, -0.25f, 0.01f, 0.8f };
    const double want[3] = { 1.4142135381698608, 28.284273147583008, 0.7905694246292114 };
    float weights[3] = { 0 }, s[3];
    smoothquant_weight_max(w, 2, 3, weights);
    smoothquant_scales(inputs, weights, 3, 0.5, s);
    for (int k = 0; k < 3; k++) CHECK_NEAR(s[k], want[k], 1e-6 * want[k]);
}

static void scales_are_the_references(void **state)
{
    (void)state;
    PEERS_OR_SKIP;
    static const struct {
        const char *file;
        double alpha;
    } RUNS[] = { { "smoothquant/smooth.a0.5.f32", 0.5 }, { "smoothquant/smooth.a0.85.f32", 0.85 } };
    float *w = peer_weights(), *x = peer_inputs(),
          *maxima = peer_file("smoothquant/act_scales.f32", 4 * PEER_COLS);
    float inputs[PEER_COLS] = { 0 }, weights[PEER_COLS] = { 0 }, s[PEER_COLS];
    smoothquant_weight_max(x, PEER_TOKENS, PEER_COLS, inputs); /* the largest of each column, too */
    for (int k = 0; k < PEER_COLS; k++) CHECK_EQ(inputs[k], maxima[k]);
    smoothquant_weight_max(w, PEER_ROWS, PEER_COLS, weights);
    for (size_t i = 0; i < COUNT_OF(RUNS); i++) {
        float *want = peer_file(RUNS[i].file, 4 * PEER_COLS);
        smoothquant_scales(inputs, weights, PEER_COLS, RUNS[i].alpha, s);
        for (int k = 0; k < PEER_COLS; k++) CHECK_NEAR(s[k], want[k], 1e-5 * want[k]);
        free(want);
    }
    free(w), free(x), free(maxima);
}

/* y [PEER_TOKENS][PEER_ROWS] = x w^T with 8-bit weights and activations as the method defines them. */
static void multiply_w8a8(const float *w, const float *x, float *y)
{
    struct err why = { 0 };
    const struct format *f = &FORMATS[FORMAT_INT8];
    const struct input_scheme scheme = { .kind = INPUT_INT8_TOKEN };
    struct backend *b;
    struct weight weight;
    uint8_t *bytes = malloc((size_t)(PEER_ROWS * format_row_bytes(f, PEER_COLS)));
    struct backend_options o = { .threads = 1, .precision = PRECISION_HIGHEST };
    CHECK_OK(isa_usable(&o.isa, &why));
    format_encode_rows(f, w, bytes, PEER_ROWS, PEER_COLS);
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = PEER_TOKENS, .cols = PEER_COLS }, &why));
    CHECK_OK(backend_weight_bind(b, &weight, f, PEER_ROWS, PEER_COLS, &scheme, bytes, &why));
    const struct matmul m = {
        .w = &weight, .x = x, .x_stride = PEER_COLS, .n = PEER_TOKENS, .y = y, .y_stride = PEER_ROWS
    };
    backend_matmul(b, &m, 1);
    backend_weight_release(b, &weight);
    backend_close(b);
    free(bytes);
}

/* Output error: with scales equal to the reference's W8A8 layer up to rounding, without them 19 times larger.
 */
static void w8a8_outputs_are_the_references(void **state)
{
    (void)state;
    PEERS_OR_SKIP;
    enum { OUT = PEER_TOKENS * PEER_ROWS };
    float *w = peer_weights(), *x = peer_inputs(),
          *s = peer_file("smoothquant/smooth.a0.5.f32", 4 * PEER_COLS),
          *want = peer_file("smoothquant/w8a8.a0.5.out.f32", 4 * OUT), *exact = calloc(OUT, sizeof *exact),
          *plain = malloc(OUT * sizeof *plain), *smooth = malloc(OUT * sizeof *smooth);
    for (int t = 0; t < PEER_TOKENS; t++)
        for (int r = 0; r < PEER_ROWS; r++) {
            double sum = 0;
            for (int k = 0; k < PEER_COLS; k++) sum += (double)x[t * PEER_COLS + k] * w[r * PEER_COLS + k];
            exact[t * PEER_ROWS + r] = (float)sum;
        }
    multiply_w8a8(w, x, plain);
    for (int i = 0; i < PEER_ROWS * PEER_COLS; i++) w[i] *= s[i % PEER_COLS];
    for (int i = 0; i < PEER_TOKENS * PEER_COLS; i++) x[i] /= s[i % PEER_COLS];
    multiply_w8a8(w, x, smooth);
    double plain_mse = 0, smooth_mse = 0;
    for (int i = 0; i < OUT; i++) {
        plain_mse += pow((double)plain[i] - exact[i], 2) / OUT;
        smooth_mse += pow((double)smooth[i] - exact[i], 2) / OUT;
    }
    print_message("W8A8: NMSE against the reference %g; mse %g, unsmoothed %g\n", nmse(want, smooth, OUT),
                  smooth_mse, plain_mse);
    CHECK_LT(nmse(want, smooth, OUT), 1e-6);
    CHECK_NEAR(smooth_mse, 7.359180507765537e-05, 0.02 * 7.359180507765537e-05);
    CHECK_NEAR(plain_mse, 0.0014304460467266533, 0.02 * 0.0014304460467266533);
    free(w), free(x), free(s), free(want), free(exact), free(plain), free(smooth);
}

static void dead_inputs_and_weights_divide_by_nothing(void **state)
{
    (void)state;
    const float inputs[3] = { 0, 5, 0 }, weights[3] = { 1, 0, 0 };
    float s[3];
    for (double alpha = 0; alpha <= 1; alpha += 0.25) {
        smoothquant_scales(inputs, weights, 3, alpha, s);
        for (int k = 0; k < 3; k++) {
            CHECK_LE(1e-5f, s[k]);
            CHECK(isfinite(s[k]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_keeps_its_function),
        cmocka_unit_test(our_own_models_keep_theirs),
        cmocka_unit_test(scales_worked_by_hand),
        cmocka_unit_test(scales_are_the_references),
        cmocka_unit_test(w8a8_outputs_are_the_references),
        cmocka_unit_test(dead_inputs_and_weights_divide_by_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
