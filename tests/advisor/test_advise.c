/* Proves: limits equal the roofline worked by hand, predictions stay below them, and are unknown where a
 * ceiling is unknown; advice is ranked by its goal, fits what it claims to fit, warns about changed answers,
 * and prints commands that parse. */
#include "tests/advisor/fake.h"
#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "tests/advisor/shape_file.h"

#include <math.h>
#include <sched.h>

struct bench {
    char dir[256], model[300];
    struct machine machine;
    struct machine_ceilings ceilings;
};

static void make_model(struct bench *b, const char *name, const char *format)
{
    struct err why = { 0 };
    const struct synth_options o = { .arch = "llama",
                                     .shape = synth_shape_find("tiny"),
                                     .format = format_find(format),
                                     .seed = 3,
                                     .threads = 1 };
    snprintf(b->model, sizeof(b->model), "%s/%s", b->dir, name);
    CHECK_OK(synth_write(b->model, &o, &why));
}

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    if (!b) return -1;
    scratch(b->dir, sizeof(b->dir));
    b->machine = (struct machine){ .isa = ISA_SSE41 | ISA_AVX2,
                                   .cores = 4,
                                   .processors = 4,
                                   .memory_bytes = 1 << 30,
                                   .memory_available_bytes = 1 << 30,
                                   .cgroup_memory_bytes = -1,
                                   .cgroup_cpus = NAN,
                                   .cache_bytes = { 32768, 65536, 262144 } }; /* too small for the model */
    b->ceilings = (struct machine_ceilings){ .read_bytes_s_1 = 6e9,
                                             .read_bytes_s_all = 10e9,
                                             .threads_all = 4,
                                             .count = 4,
                                             .row = { { "f32_fma", "avx2", 1e11, 4e11 },
                                                      { "f32_fma", "avx512", 2e11, 8e11 },
                                                      { "int8_tile", "amx", 1e13, 4e13 },
                                                      { "bf16_tile", "amx", 5e12, 2e13 } } };
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    unlink(b->model);
    rmdir(b->dir);
    free(b);
    return 0;
}

static struct prediction predicted_for(const struct bench *b, const char *line,
                                       const struct predict_for *what)
{
    struct gguf *g = NULL;
    struct config c;
    struct prediction p;
    struct err why = { 0 };
    CHECK_OK(gguf_open(&g, b->model, &why));
    CHECK_OK(config_parse(&c, line, &why));
    CHECK_OK(predict(&p, g, &c, &b->machine, &b->ceilings, what, &why));
    gguf_close(g);
    return p;
}

static struct prediction predicted(const struct bench *b, const char *line, int ctx)
{
    return predicted_for(b, line, &(struct predict_for){ .ctx = ctx });
}

static void a_prediction_is_bytes_over_bandwidth_or_work_over_arithmetic(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    const struct prediction p = predicted(b, "", 512);
    CHECK_LT(1000000, p.plan.decode_read_bytes);
    CHECK_LT(0, p.plan.kv_bytes_per_token);
    CHECK_LT(0, p.plan.flops_per_token);
    assert_int_equal(p.depth, 64); /* an eighth of 512 */
    CHECK(!p.in_cache);
    CHECK(p.decode_bound_by_memory);
    CHECK(p.fits);
    const double bytes = (double)p.plan.decode_read_bytes + 64.0 * (double)p.plan.kv_bytes_per_token;
    CHECK_NEAR(p.decode_limit_tok_s / (10e9 / bytes), 1, 1e-12);
    CHECK_LT(p.decode_tok_s.lower, p.decode_tok_s.estimate);
    CHECK_LT(0, p.decode_tok_s.lower);
    CHECK_LE(p.decode_tok_s.estimate, p.decode_tok_s.upper);
    CHECK_LE(p.decode_tok_s.upper, p.decode_limit_tok_s);
    CHECK(p.assumed);
    CHECK(!p.runs);
    /* precision=highest: f32 arithmetic of an instruction set that the machine has: 4e11, not 8e11 and not
     * the tiles */
    CHECK_NEAR(p.prefill_limit_tok_s / (4e11 / p.plan.flops_per_token), 1, 1e-12);

    const struct prediction one = predicted(b, "threads=1", 512);
    CHECK_NEAR(one.decode_limit_tok_s / (6e9 / bytes), 1, 1e-12);
    CHECK_NEAR(one.prefill_limit_tok_s / (1e11 / p.plan.flops_per_token), 1, 1e-12);
    const struct prediction two = predicted(b, "threads=2", 512);
    /* 2 x 6 exceeds the ceiling of all threads: 10 */
    CHECK_NEAR(two.decode_limit_tok_s, p.decode_limit_tok_s, 1e-9);
    const struct prediction busy = predicted_for(
        b, "", &(struct predict_for){ .ctx = 512, .conditions.memory_ratio = 0.5 });
    CHECK_NEAR(busy.decode_limit_tok_s / p.decode_limit_tok_s, 0.5, 1e-12); /* memory at half its speed */
    const struct prediction small = predicted(b, "q4_0", 512);
    CHECK_LT(3 * p.decode_limit_tok_s, small.decode_limit_tok_s);
    CHECK_LT(1.5 * p.decode_tok_s.estimate, small.decode_tok_s.estimate);
    CHECK_LT(small.plan.total, p.plan.total);

    /* Sequences side by side: weights are read once, each sequence reads its own cache; arithmetic becomes
     * the limit. */
    const double kv = (double)p.plan.kv_bytes_per_token;
    const struct prediction four = predicted_for(
        b, "", &(struct predict_for){ .ctx = 512, .depth = 100, .sequences = 4 });
    assert_int_equal(four.depth, 100);
    assert_int_equal(four.plan.sequences, 4);
    CHECK_NEAR(four.decode_limit_tok_s / (4 * 10e9 / ((double)p.plan.decode_read_bytes + 400 * kv)), 1,
               1e-12);
    const struct prediction many = predicted_for(
        b, "", &(struct predict_for){ .ctx = 512, .depth = 1, .sequences = 4000 });
    CHECK(!many.decode_bound_by_memory);
    CHECK_NEAR(many.decode_limit_tok_s / (4e11 / p.plan.flops_per_token), 1, 1e-12);
}

static void what_is_not_measured_is_not_predicted(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    b->ceilings.read_bytes_s_1 = b->ceilings.read_bytes_s_all = NAN;
    struct prediction p = predicted(b, "", 512);
    CHECK_NAN(p.decode_tok_s.estimate);
    CHECK_NAN(p.decode_tok_s.lower);
    CHECK_NAN(p.decode_limit_tok_s);
    b->ceilings.read_bytes_s_all = 10e9;
    b->ceilings.count = 0;
    p = predicted(b, "", 512);
    CHECK_NAN(p.prefill_tok_s.estimate);
    CHECK_NAN(p.decode_tok_s.estimate);
}

/* Between one thread and all, the measured counts are the limit; a file on one of several nodes is read at
 * that node's speed. */
static void bandwidth_depends_on_threads_and_nodes(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    b->machine.cores = b->machine.processors = b->ceilings.threads_all = 16;
    b->ceilings.read_bytes_s_all = 40e9;
    b->ceilings.reads = 2;
    b->ceilings.read[0].threads = 4;
    b->ceilings.read[0].bytes_s = 20e9;
    b->ceilings.read[1].threads = 8;
    b->ceilings.read[1].bytes_s = 44e9; /* exceeds the value at 16 */
    const struct prediction all = predicted(b, "", 512);
    static const struct {
        const char *line;
        double bytes_s;
    } WANTED[] = { { "threads=1", 6e9 },   { "threads=2", 12e9 }, { "threads=4", 20e9 },
                   { "threads=6", 30e9 },  { "threads=8", 44e9 }, { "threads=12", 44e9 },
                   { "threads=16", 40e9 }, { "threads=32", 40e9 } };
    for (size_t i = 0; i < COUNT_OF(WANTED); i++) {
        const struct prediction p = predicted(b, WANTED[i].line, 512);
        if (fabs(p.decode_limit_tok_s / all.decode_limit_tok_s - WANTED[i].bytes_s / 40e9) > 1e-9)
            fail_msg("%s: %g of the limit", WANTED[i].line, p.decode_limit_tok_s / all.decode_limit_tok_s);
    }

    b->machine.numa_nodes = 2;
    const struct prediction guessed = predicted(b, "", 512);
    b->ceilings.nodes = 2;
    b->ceilings.node[0].own_bytes_s = b->ceilings.node[1].own_bytes_s = 20e9;
    b->ceilings.node[0].all_bytes_s = 9e9;
    b->ceilings.node[1].all_bytes_s = 11e9;
    const struct prediction known = predicted(b, "", 512);
    CHECK_LT(guessed.decode_tok_s.estimate, all.decode_tok_s.estimate);
    CHECK_LT(known.decode_tok_s.estimate, 0.6 * guessed.decode_tok_s.estimate);
    CHECK_LT(known.decode_tok_s.upper / known.decode_tok_s.lower,
             guessed.decode_tok_s.upper / guessed.decode_tok_s.lower);
    b->ceilings.node[1].all_bytes_s = NAN; /* unknown for one node: unknown for all */
    CHECK_NEAR(predicted(b, "", 512).decode_tok_s.estimate, guessed.decode_tok_s.estimate, 1e-9);
}

static void disturbed_ceilings_and_caches(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    b->ceilings.read_bytes_s_all = 5e9; /* less than one thread alone: the measurement was disturbed */
    const struct prediction p = predicted(b, "", 512), one = predicted(b, "threads=1", 512);
    CHECK_NEAR(p.decode_limit_tok_s, one.decode_limit_tok_s, 1e-9);
    b->machine.cache_bytes[2] = 1 << 30;
    const struct prediction cached = predicted(b, "", 512);
    CHECK(cached.in_cache);
    CHECK_LT(cached.decode_tok_s.estimate, cached.decode_limit_tok_s); /* memory does not limit then */
    CHECK_LT(p.decode_tok_s.upper / p.decode_tok_s.lower,
             cached.decode_tok_s.upper / cached.decode_tok_s.lower); /* not timed there */
}

static void precision_chooses_the_arithmetic(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    const struct prediction exact = predicted(b, "precision=highest", 512),
                            coarse = predicted(b, "precision=medium", 512);
    CHECK_NEAR(coarse.prefill_tok_s.estimate, exact.prefill_tok_s.estimate,
               0); /* this machine has no tiles */
    b->machine.isa |= ISA_AVX512 | ISA_AVX512VNNI | ISA_AVX512BF16 | ISA_AMX;
    if (strcmp(
            matmul_ceiling(&FORMATS[FORMAT_F32],
                           &(struct backend_options){ .isa = b->machine.isa, .precision = PRECISION_MEDIUM }),
            "bf16_tile")) {
        print_message("SKIPPED: this build has no tile kernels\n");
        skip();
    }
    const struct prediction tiles = predicted(b, "precision=medium", 512);
    CHECK_LT(4 * exact.prefill_limit_tok_s, tiles.prefill_limit_tok_s);
    CHECK_LT(exact.prefill_tok_s.estimate, tiles.prefill_tok_s.estimate);
    CHECK_LE(tiles.prefill_limit_tok_s, 2e13 / tiles.plan.flops_per_token * (1 + 1e-12));
    const struct prediction still = predicted(b, "precision=highest", 512);
    CHECK_NEAR(still.prefill_limit_tok_s, 2 * exact.prefill_limit_tok_s,
               1e-6); /* AVX-512 for f32, no tiles */
    const struct prediction barred = predicted(b, "precision=medium,isa=avx2", 512);
    CHECK_NEAR(barred.prefill_limit_tok_s, exact.prefill_limit_tok_s, 0);
}

/* Every kernel time is a round number, so that a pass can be worked by hand. */
static void time_kernels(struct kernel_times *k)
{
    k->measured = true;
    k->stream_bytes = KERNEL_READ_AT[4];
    for (int t = 0; t < 2; t++) {
        const float slow = t ? 1 : 2; /* one thread takes twice as long */
        for (int f = 0; f < FORMAT_COUNT; f++) {
            for (int r = 0; r < KERNEL_ROWS; r++)
                k->product[f][KERNEL_VARIANT_AUTO][r][t] = slow * 1e-10f * (float)KERNEL_ROWS_AT[r];
            k->stream[f][t] = slow * 1e-10f;
            k->edge[f][t] = 1e-15f;
            k->attend_one[f][t] = slow * 1e-10f;
            k->attend_many[f][KERNEL_VARIANT_AUTO][t] = slow * 1e-10f;
        }
        k->region[t] = slow * 1e-5f;
        k->glue[t] = slow * 1e-5f;
        k->glue_element[t] = slow * 1e-9f;
        for (int i = 0; i < KERNEL_READS; i++) k->read[i][t] = 10e9f / slow;
    }
}

/* With the times above. All products of the model are large enough for all four threads. */
static double product_seconds(const struct model_product *p, int n)
{
    const double weights = (double)p->rows * (double)p->cols;
    return weights * 1e-10 * n + 1e-5 * weights / (double)p->together;
}

/* A call that is too small for several threads runs on one, which takes twice as long. */
static double looking_seconds(const struct model_shape *s, double pairs)
{
    const double width = (double)s->heads * s->head_dim_k, slow = 2 * pairs * width < 65536 ? 2 : 1;
    return slow * s->layers * pairs * width * 1e-10;
}

static double glue_seconds(const struct model_shape *s, int n)
{
    const double elements = (double)s->embd * n, slow = elements < 16384 ? 2 : 1;
    return slow * s->layers * (1e-5 + 1e-9 * elements);
}

/* A model in the cores' own caches takes the times of small matrices plus an overhead per row; the first
 * token of a run takes the times from memory. */
static void caches_and_rows_count(struct bench *b, double weights, double rows, double rest)
{
    struct kernel_times *k = &b->ceilings.kernels;
    const struct machine was = b->machine;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (int t = 0; t < 2; t++) {
            k->near[f][t] = t ? 0.5e-10f : 1e-10f;
            k->stream[f][t] = t ? 1e-10f : 2e-10f;
            k->attend_far[f][t] = 0;
        }
    }
    b->machine.cache_bytes[1] = 1 << 30;
    const double small = rest + weights * 0.5e-10;
    CHECK_NEAR(predicted(b, "", 512).decode_tok_s.estimate * small, 1, 1e-3);
    const struct predict_for ten = { .ctx = 512, .gen = 10 };
    CHECK_NEAR(predicted_for(b, "", &ten).decode_tok_s.estimate * (small + weights * 0.5e-10 / 10), 1, 1e-3);
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int t = 0; t < 2; t++) k->row[f][t] = t ? 1e-9f : 2e-9f;
    CHECK_NEAR(predicted(b, "", 512).decode_tok_s.estimate * (small + rows * 1e-9), 1, 1e-3);
    b->machine = was;
}

static void timed_kernels_add_up(void **state)
{
    struct bench *b = *state;
    struct gguf *g = NULL;
    struct config c;
    struct model_operations o;
    struct err why = { 0 };
    make_model(b, "m.gguf", "f16");
    time_kernels(&b->ceilings.kernels);
    b->ceilings.read_bytes_s_1 = 1e12; /* the limit does not cap it */
    b->ceilings.read_bytes_s_all = 1e12;
    CHECK_OK(gguf_open(&g, b->model, &why));
    config_default(&c);
    CHECK_OK(recipe_plan_operations(&o, g, &c, &why));
    gguf_close(g);
    double weights = 0, rows = 0, products = 0, pass = 0;
    for (int i = 0; i < o.n; i++) {
        const struct model_product *p = &o.product[i];
        const int ends = p->part == PRODUCT_OUTPUT ? p->count : p->part == PRODUCT_LATE ? p->last : 0;
        CHECK_LE(MAX(p->rows * p->cols, 65536), p->together);
        weights += p->count * (double)p->rows * (double)p->cols;
        rows += p->count * (double)p->rows;
        products += p->count * product_seconds(p, 1);
        /* a prompt of 512: all rows pass the layers, but only one row the end of the last one and the output
         */
        pass += (p->count - ends) * product_seconds(p, 512) + ends * product_seconds(p, 1);
    }
    CHECK_LT(1e6, weights);
    CHECK_LT(100 * products, pass);
    const struct model_shape *s = &o.shape;
    const double logits = 0.8e-9 * (double)s->vocab, pairs = looking_seconds(s, 64);
    const double step = products + glue_seconds(s, 1) + pairs + logits;
    const struct prediction p = predicted(b, "", 512), one = predicted(b, "threads=1", 512);
    CHECK(!p.assumed);
    CHECK_NEAR(p.runs, 0, 0);
    CHECK_NEAR(p.decode_tok_s.estimate * step, 1, 1e-3);
    CHECK_NEAR(one.decode_tok_s.estimate * (step + products), 1, 1e-3);
    /* two of four threads: time that halves with all is halved halfway between one and two */
    const struct prediction two = predicted(b, "threads=2", 512);
    CHECK_LT(one.decode_tok_s.estimate, two.decode_tok_s.estimate);
    CHECK_LT(two.decode_tok_s.estimate, p.decode_tok_s.estimate);
    pass += glue_seconds(s, 512) + looking_seconds(s, 512 * 256.5);
    CHECK_NEAR(p.prefill_tok_s.estimate * pass / 512, 1, 2e-3);
    /* deeper is slower; side by side is faster in sum; with kernel times the interval is narrower */
    const struct predict_for deep = { .ctx = 512, .depth = 500 }, four = { .ctx = 512, .sequences = 4 };
    CHECK_LT(predicted_for(b, "", &deep).decode_tok_s.estimate, p.decode_tok_s.estimate);
    CHECK_LT(p.decode_tok_s.estimate, predicted_for(b, "", &four).decode_tok_s.estimate);
    /* From memory a weight takes three times as long, and so does the memory probe. Half the memory speed
     * doubles the wait and nothing else; with half the core speed as well, everything doubles. */
    for (int f = 0; f < FORMAT_COUNT; f++) b->ceilings.kernels.stream[f][1] = 3e-10f;
    b->ceilings.kernels.memory_speed[1] = 1 / 3e-10f;
    const double stream = weights * 3e-10, from_memory = step - weights * 1e-10 + stream;
    const struct predict_for slow = { .ctx = 512, .conditions.memory_ratio = 0.5 },
                             shared = { .ctx = 512,
                                        .conditions = { .memory_ratio = 0.5, .core_ratio = 0.5 } };
    CHECK_NEAR(predicted(b, "", 512).decode_tok_s.estimate * from_memory, 1, 1e-3);
    const struct prediction waits = predicted_for(b, "", &slow), half = predicted_for(b, "", &shared);
    CHECK_NEAR(waits.decode_tok_s.estimate * (from_memory + stream), 1, 1e-3);
    CHECK_LT(half.decode_tok_s.estimate, waits.decode_tok_s.estimate);
    CHECK_NEAR(half.decode_tok_s.estimate * (2 * from_memory - logits), 1, 1e-3);
    CHECK_LT(0.5 * p.prefill_tok_s.estimate, half.prefill_tok_s.estimate);
    CHECK_LT(half.prefill_tok_s.estimate, 0.6 * p.prefill_tok_s.estimate);
    CHECK_LT(0.6 * p.prefill_tok_s.estimate, waits.prefill_tok_s.estimate); /* floats: to the power of 0.85 */
    CHECK_NEAR(half.decode_work.conditions.core_ratio, 0.5, 0);
    CHECK(!waits.decode_work.conditions.core_ratio);
    /* The same for cached tokens: with fewer heads sharing K and V, each waits longer. Arithmetic and waiting
     * overlap, except for what the sum of fourth powers leaves. */
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int t = 0; t < 2; t++) b->ceilings.kernels.attend_far[f][t] = t ? 2e-10f : 4e-10f;
    const double alone = (double)s->kv_heads / s->heads * KERNEL_HEADS / KERNEL_KV_HEADS,
                 wait = pow(16 - 1, 0.25) * alone, slower = pow(6 * 6 * 6 * 6 - 1, 0.25) / pow(81 - 1, 0.25),
                 far = pow(1 + pow(wait, 4), 0.25) - 1, far_slow = pow(1 + pow(wait * slower, 4), 0.25) - 1;
    CHECK_NEAR(predicted(b, "", 512).decode_tok_s.estimate * (from_memory + pairs * far), 1, 1e-3);
    CHECK_NEAR(predicted_for(b, "", &slow).decode_tok_s.estimate * (from_memory + stream + pairs * far_slow),
               1, 1e-3);
    caches_and_rows_count(b, weights, rows, step - weights * 1e-10);
    b->ceilings.kernels = (struct kernel_times){ 0 };
    const struct prediction guess = predicted(b, "", 512);
    CHECK(guess.assumed);
    CHECK_LT(p.decode_tok_s.upper / p.decode_tok_s.lower,
             guess.decode_tok_s.upper / guess.decode_tok_s.lower);
}

/* Every call is too small for a second thread. */
static void make_minute_model(struct bench *b)
{
    static const struct shape_file MINUTE = { .arch = "llama",
                                              .format = &FORMATS[FORMAT_F32],
                                              .layers = 2,
                                              .heads = 4,
                                              .kv_heads = 4,
                                              .embd = 64,
                                              .ff = 128,
                                              .vocab = 256,
                                              .ctx = 64 };
    snprintf(b->model, sizeof(b->model), "%s/m.gguf", b->dir);
    shape_file_write(b->model, &MINUTE);
}

/* Work of one thread is probed with one thread. */
static void decode_threads_are_predicted(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    assert_int_equal(predicted(b, "", 512).decode_threads, 4);
    assert_int_equal(predicted(b, "threads=2", 512).decode_threads, 2);
    make_minute_model(b);
    const struct prediction alone = predicted(b, "", 64);
    assert_int_equal(alone.decode_threads, 1);
    assert_int_equal(alone.prefill_work.threads, 4);
}

/* Rows of 64 weights take the time measured for them; rows of 128 lie halfway to 256 on a logarithmic scale
 * and take half of the overhead. */
static void short_rows_take_longer(void **state)
{
    struct bench *b = *state;
    struct kernel_times *k = &b->ceilings.kernels;
    struct gguf *g = NULL;
    struct config c;
    struct model_operations o;
    struct err why = { 0 };
    double rows = 0;
    make_minute_model(b);
    time_kernels(k);
    for (int i = 0; i < FORMAT_COUNT * 2; i++) {
        k->near[i / 2][i % 2] = 1e-10f;
        k->row[i / 2][i % 2] = 2e-9f;
    }
    CHECK_OK(gguf_open(&g, b->model, &why));
    config_default(&c);
    CHECK_OK(recipe_plan_operations(&o, g, &c, &why));
    gguf_close(g);
    for (int i = 0; i < o.n; i++) {
        const struct model_product *p = &o.product[i];
        CHECK(p->cols == 64 || p->cols == 128);
        rows += p->count * (double)p->rows * (p->cols == 64 ? 1 : 0.5);
    }
    CHECK_LT(1000, rows);
    const double before = 1 / predicted(b, "", 64).decode_tok_s.estimate;
    for (int i = 0; i < FORMAT_COUNT * 2; i++) k->row_short[i / 2][i % 2] = 7e-9f;
    CHECK_NEAR((1 / predicted(b, "", 64).decode_tok_s.estimate - before) / (rows * 5e-9), 1, 0.01);
}

static void conditions_need_kernel_times(void **state)
{
    struct bench *b = *state;
    struct conditions_probe w;
    struct err why = { 0 };
    uint32_t isa;
    b->ceilings.threads_all = 4;
    CHECK_OK(conditions_probe_open(&w, 4, &b->ceilings, &why));
    conditions_probe_run(&w, getpid());
    CHECK(!conditions_probe_result(&w).memory_ratio);
    CHECK(!conditions_probe_result(&w).core_ratio); /* there is no reference */
    conditions_probe_close(&w);
    b->ceilings.kernels.memory_speed[0] = b->ceilings.kernels.memory_speed[1] = 1e9f;
    b->ceilings.kernels.compute_speed[0] = b->ceilings.kernels.compute_speed[1] = 1e10f;
    CHECK_OK(conditions_probe_open(&w, 2, &b->ceilings, &why));
    CHECK(!w.pace); /* no reference for two of four threads */
    conditions_probe_close(&w);
    CHECK_OK(isa_usable(&isa, &why));
    for (int i = 0; i < 2 && isa == isa_detect(); i++) {
        CHECK_OK(conditions_probe_open(&w, i ? 1 : 4, &b->ceilings, &why));
        CHECK(!conditions_probe_result(&w).memory_ratio);
        CHECK(!conditions_probe_result(&w).core_ratio);
        conditions_probe_run(&w, getpid());
        const struct conditions now = conditions_probe_result(&w);
        CHECK_LT(1e-3, now.memory_ratio);
        CHECK_LT(now.memory_ratio, 1e3);
        CHECK_LT(1e-4, now.core_ratio);
        CHECK_LT(now.core_ratio, 1e4);
        conditions_probe_restart(&w);
        CHECK(!conditions_probe_result(&w).memory_ratio);
        CHECK(!conditions_probe_result(&w).core_ratio);
        conditions_probe_close(&w);
    }
}

/* The probe leaves the CPU that it measured, so the process finds it free. */
static void the_probe_leaves_the_cpu(void **state)
{
    enum { TIMES = 8 };
    struct bench *b = *state;
    struct conditions_probe w;
    struct err why = { 0 };
    cpu_set_t all, after;
    int moved = 0;
    b->ceilings.threads_all = 4;
    b->ceilings.kernels.memory_speed[0] = 1e9f;
    b->ceilings.kernels.compute_speed[0] = 1e10f;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CHECK_OK(conditions_probe_open(&w, 1, &b->ceilings, &why));
    if (CPU_COUNT(&all) < 2 || !w.pace) {
        conditions_probe_close(&w);
        skip(); /* a single CPU, or QDYNO_ISA restricts kernels */
    }
    for (int i = 0; i < TIMES; i++) {
        const int before = sched_getcpu();
        conditions_probe_run(&w, getpid());
        moved += sched_getcpu() != before;
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        CHECK(CPU_EQUAL(&all, &after));
    }
    CHECK_LT(TIMES / 2, moved); /* the scheduler may also move it */
    conditions_probe_close(&w);
}

static void energy_and_load_are_known_or_unknown(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    const struct prediction dark = predicted(b, "", 512);
    CHECK_NAN(dark.token_j.estimate);
    CHECK_LT(0, dark.token_uncorrected_j);
    CHECK_LT(0, dark.load_s.estimate);
    b->ceilings.power_watts = 100;
    const struct prediction lit = predicted(b, "", 512), one = predicted(b, "threads=1", 512);
    CHECK_NEAR(lit.token_j.estimate * lit.decode_tok_s.estimate, 100, 5);
    /* a quarter of the cores, plus the power of everything else */
    CHECK_LT(one.token_j.estimate * one.decode_tok_s.estimate, 60);
    CHECK_LT(lit.load_s.estimate,
             predicted(b, "hugepages=all", 512).load_s.estimate); /* huge pages copy the weights */
    CHECK_LT((double)lit.plan.total, lit.peak_bytes.estimate);
    CHECK_LT(lit.peak_bytes.lower, lit.peak_bytes.estimate);
}

static struct advice *advised(struct bench *b, const struct advise_options *o, int *n)
{
    struct advice *list = NULL;
    struct err why = { 0 };
    CHECK_OK(advise(&list, n, b->model, &b->machine, &b->ceilings, o, &why));
    CHECK_LT(0, *n);
    for (int i = 0; i + 1 < *n; i++) CHECK_LE(list[i + 1].score, list[i].score);
    return list;
}

static bool changes_answers(const struct config *c)
{
    for (int k = 0; k < KNOB_COUNT; k++)
        if (c->given[k] && KNOBS[k].changes_answers) return true;
    return false;
}

static void every_advice_parses_explains_and_warns(void **state)
{
    struct bench *b = *state;
    make_model(b, "it's a model.gguf", "f32");
    int n;
    struct advice *list = advised(b, &(struct advise_options){ .goal = GOAL_BALANCED, .ctx = 512 }, &n);
    bool seen_default = false;
    for (int i = 0; i < n; i++) {
        struct config c;
        struct err why = { 0 };
        CHECK_OK(config_parse(&c, list[i].line, &why));
        CHECK(*list[i].reason);
        CHECK(*list[i].check);
        CHECK_CONTAINS(list[i].check, "it'\\''s a model.gguf'"); /* quoted for a shell */
        CHECK_CONTAINS(list[i].caution, "random weights");
        CHECK_EQ(changes_answers(&c), strstr(list[i].caution, "changes answers") != NULL);
        if (!strcmp(list[i].line, "default")) {
            seen_default = true;
            CHECK(!strncmp(list[i].check, "qdyno bench ", 12));
        } else {
            CHECK(!strncmp(list[i].check, "qdyno ab ", 9));
            CHECK_CONTAINS(list[i].check, "-w tg64@d64");
        }
        for (int k = 0; k < i; k++) CHECK_STR_NE(list[i].line, list[k].line);
    }
    CHECK(seen_default);
    free(list);
}

static void each_goal_ranks_by_its_weights(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    int n;
    struct advice *list = advised(b, &(struct advise_options){ .goal = GOAL_MEMORY, .ctx = 512 }, &n);
    /* quality counts a little: a format with a third of the error may be larger */
    for (int i = 1; i < n; i++)
        CHECK_LE(0.85 * (double)list[0].prediction.plan.weights, (double)list[i].prediction.plan.weights);
    free(list);
    list = advised(b, &(struct advise_options){ .goal = GOAL_SPEED, .ctx = 512 }, &n);
    for (int i = 1; i < n; i++)
        CHECK_LE(0.95 * list[i].prediction.decode_tok_s.estimate, list[0].prediction.decode_tok_s.estimate);
    free(list);
    list = advised(b, &(struct advise_options){ .goal = GOAL_QUALITY, .ctx = 512 }, &n);
    CHECK_STR(config_text(&list[0].config, KNOB_FORMAT), "file");
    free(list);
    for (int g = GOAL_BALANCED; g <= GOAL_ENERGY; g++) {
        enum goal back;
        CHECK(goal_parse(goal_name((enum goal)g), &back));
        CHECK_EQ((int)back, g);
    }
    enum goal g;
    CHECK(!goal_parse("fast", &g));
}

static void limits_and_targets_are_explained(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    int n;
    const int64_t whole = predicted(b, "", 512).plan.total;
    struct advice *list = advised(
        b, &(struct advise_options){ .goal = GOAL_QUALITY, .ctx = 512, .memory_limit = whole / 2 }, &n);
    CHECK(list[0].prediction.fits);
    CHECK_LE(list[0].prediction.plan.total, whole / 2);
    bool refused = false;
    for (int i = 0; i < n; i++) {
        if (list[i].prediction.fits) CHECK(!refused); /* what does not fit ranks last */
        if (!list[i].prediction.fits) {
            refused = true;
            CHECK_CONTAINS(list[i].caution, "does not fit");
        }
    }
    CHECK(refused);
    free(list);
    const double twice = 1.6 * predicted(b, "", 512).decode_tok_s.upper;
    list = advised(b, &(struct advise_options){ .goal = GOAL_QUALITY, .ctx = 512, .target_tok_s = twice },
                   &n);
    CHECK_LE(twice, list[0].prediction.decode_tok_s.upper);
    CHECK_CONTAINS(list[n - 1].caution, "cannot reach");
    free(list);
}

/* Ranks first: within the limit by measurement, or no changed answers; then unmeasured; then above the limit.
 */
static void a_quality_limit_prefers_measured_configs(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "f32");
    struct answer_kld measured[] = { { .answer = "q8_0", .kld = 0.001, .run_id = 7 },
                                     { .answer = "q4_0", .kld = 0.5, .run_id = 8 } };
    const struct answer_klds answer_klds = { .row = measured, .n = COUNT_OF(measured) };
    int n, tier = 0, seen[3] = { 0 };
    struct advice *list = advised(
        b,
        &(struct advise_options){
            .goal = GOAL_SPEED, .ctx = 512, .kld_limit = 0.02, .answer_klds = &answer_klds },
        &n);
    for (int i = 0; i < n; i++) {
        const bool is_kept = !strcmp(config_text(&list[i].config, KNOB_CTK), KNOBS[KNOB_CTK].otherwise) &&
                             !list[i].config.given[KNOB_PRECISION];
        const char *format = config_text(&list[i].config, KNOB_FORMAT);
        const int now = isnan(list[i].kld) ? 1 : list[i].kld > 0.02 ? 2 : 0;
        CHECK_LE(tier, now);
        seen[tier = now]++;
        CHECK_EQ(!now, is_kept && (!strcmp(format, "file") || !strcmp(format, "q8_0")));
        CHECK_EQ(now == 2, is_kept && !strcmp(format, "q4_0"));
        if (now == 2) {
            CHECK_CONTAINS(list[i].caution, "run 8");
            CHECK_CONTAINS(list[i].caution, "above the limit");
        }
        if (now == 1) CHECK_CONTAINS(list[i].caution, "not measured");
    }
    CHECK(seen[0]);
    CHECK(seen[1]);
    CHECK(seen[2]);
    free(list);
}

static void a_quantized_file_is_not_quantized_again(void **state)
{
    struct bench *b = *state;
    make_model(b, "m.gguf", "q4_0");
    int n;
    struct advice *list = advised(b, &(struct advise_options){ .goal = GOAL_SPEED, .ctx = 512 }, &n);
    for (int i = 0; i < n; i++) CHECK_STR(config_text(&list[i].config, KNOB_FORMAT), "file");
    free(list);
    struct err why = { 0 };
    assert_int_equal(
        advise(&list, &n, "/nowhere.gguf", &b->machine, &b->ceilings, &(struct advise_options){ 0 }, &why),
        ERR_IO);
    assert_null(list);
}

int main(void)
{
#define ADVISE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ADVISE_TEST(a_prediction_is_bytes_over_bandwidth_or_work_over_arithmetic),
        ADVISE_TEST(what_is_not_measured_is_not_predicted),
        ADVISE_TEST(bandwidth_depends_on_threads_and_nodes),
        ADVISE_TEST(disturbed_ceilings_and_caches),
        ADVISE_TEST(precision_chooses_the_arithmetic),
        ADVISE_TEST(timed_kernels_add_up),
        ADVISE_TEST(decode_threads_are_predicted),
        ADVISE_TEST(short_rows_take_longer),
        ADVISE_TEST(conditions_need_kernel_times),
        ADVISE_TEST(the_probe_leaves_the_cpu),
        ADVISE_TEST(energy_and_load_are_known_or_unknown),
        ADVISE_TEST(every_advice_parses_explains_and_warns),
        ADVISE_TEST(each_goal_ranks_by_its_weights),
        ADVISE_TEST(limits_and_targets_are_explained),
        ADVISE_TEST(a_quality_limit_prefers_measured_configs),
        ADVISE_TEST(a_quantized_file_is_not_quantized_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
