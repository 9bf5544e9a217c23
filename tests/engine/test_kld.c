/* Proves: KL divergence and top-1 agreement of files that we quantize equal the values published for the same
 * bytes, both in exact arithmetic and with the default precision. */
#include "engine/eval/eval.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define TINY    "models/repacked/tinystories-656k-f32.gguf"
#define EXCERPT "text/tinystories-valid-excerpt.txt"

/* Golden data for windows of 128. llama.cpp's own figures use 8-bit activations; "dequantized" uses the same
 * weights in f32 arithmetic. Rows of 172 (ffn_down of STORIES) stay f32 in llama.cpp and fall back to f16
 * here, a difference of 2^-11 of a weight, far below the tolerances. */
static const struct {
    const char *model, *format;
    double peer_kld, peer_top1; /* top1 in percent */
    double exact_kld, exact_top1;
} GOLDEN[] = {
    { STORIES, "q8_0", 0.000686, 98.61, 0.000343, 99.01 },
    { STORIES, "q5_1", 0.018392, 92.69, 0.018028, 92.75 },
    { STORIES, "q4_0", 0.100204, 84.55, 0.099655, 84.55 },
    { STORIES, "iq4_nl", 0.082572, 85.11, 0.082123, 85.15 },
    { TINY, "q8_0", 0.000786, 97.33, 0.000335, 98.47 },
    { TINY, "q5_1", 0.017673, 89.22, 0.017249, 89.56 },
    { TINY, "q4_0", 0.091386, 76.55, 0.091016, 76.72 },
    { TINY, "iq4_nl", 0.066534, 79.31, 0.066057, 79.28 },
};

struct bench {
    const char *name; /* of the model */
    struct model *reference;
    char path[4096], *text;
    size_t n;
};

static void bench_open(struct bench *b, const char *model)
{
    struct err why = { 0 };
    if (b->name && !strcmp(b->name, model)) return;
    model_close(b->reference);
    if (!b->text) {
        data_path(b->path, sizeof b->path, EXCERPT);
        CHECK_OK(file_read(&b->text, &b->n, b->path, 1 << 24, &why));
    }
    data_path(b->path, sizeof b->path, "%s", model);
    b->reference = session_open(b->path, "precision=highest,kv=f32,threads=2", 128, 1);
    b->name = model;
}

static void bench_close(struct bench *b)
{
    model_close(b->reference);
    free(b->text);
}

static struct divergence compare(const struct bench *b, const char *line)
{
    struct err why = { 0 };
    struct divergence d;
    const struct eval_request r = { .text = b->text, .n = MIN(b->n, (size_t)60000), .ctx = 128 };
    struct model *m = session_open(b->path, line, 128, 1);
    CHECK_OK(eval_divergence(&d, b->reference, m, &r, &why));
    model_close(m);
    print_message("%-42s %-40s KLD %.6f +- %.6f  same top %.2f +- %.2f  ratio %.5f\n", b->name, line,
                  d.kld_mean, d.kld_se, 100 * d.top1_ratio, 100 * d.top1_se, exp(d.log_ratio));
    return d;
}

static void test_exact(void **state)
{
    (void)state;
    struct bench b = { 0 };
    SHARED_OR_SKIP(b.path, EXCERPT);
    SHARED_OR_SKIP(b.path, TINY);
    SHARED_OR_SKIP(b.path, STORIES);
    for (size_t i = 0; i < COUNT_OF(GOLDEN); i++) {
        char line[128];
        bench_open(&b, GOLDEN[i].model);
        snprintf(line, sizeof line, "%s,precision=highest,kv=f32,threads=2", GOLDEN[i].format);
        const struct divergence d = compare(&b, line);
        CHECK_NEAR(d.kld_mean, GOLDEN[i].exact_kld, fmax(0.01 * GOLDEN[i].exact_kld, 1e-5));
        CHECK_NEAR(100 * d.top1_ratio, GOLDEN[i].exact_top1, 0.1);
        CHECK_LT(d.top1_lower, d.top1_ratio);
        CHECK_LT(d.top1_ratio, d.top1_upper);
        CHECK_LT(0, d.kld_se);
        CHECK_LT(d.kld_se, 0.1 * d.kld_mean);
    }
    bench_close(&b);
}

/* With batch=1 activations are rounded to 8 bits as in llama.cpp, so its own figures apply. */
static void within_peer(const struct divergence *d, size_t i)
{
    CHECK_NEAR(d->kld_mean, GOLDEN[i].peer_kld, fmax(0.05 * GOLDEN[i].peer_kld, 3e-4));
    CHECK_NEAR(100 * d->top1_ratio, GOLDEN[i].peer_top1, 0.5);
}

static void between(double got, double peer, double exact, double tolerance)
{
    CHECK_LE(fmin(peer, exact) - tolerance, got);
    CHECK_LE(got, fmax(peer, exact) + tolerance);
}

/* Many rows at once use bf16 tiles or unpacked weights, whose error must not exceed llama.cpp's by more than
 * what the choice of blocks for rounding activations changes: 1.1 % with AVX-512 VNNI, where the standard
 * error of the mean is 1.4 %. Attention on tiles also rounds and changes a quarter of a percent of the top
 * choices, against half a percent in llama.cpp.
 */
static void within_default(const struct divergence *d, size_t i)
{
    between(d->kld_mean, GOLDEN[i].peer_kld, GOLDEN[i].exact_kld, 0.02 * GOLDEN[i].peer_kld);
    between(100 * d->top1_ratio, GOLDEN[i].peer_top1, GOLDEN[i].exact_top1, 0.25);
}

static void test_default_precision(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        void (*check)(const struct divergence *d, size_t i);
    } CASES[] = { { "batch=1,threads=1", within_peer }, { "threads=2", within_default } };
    struct bench b = { 0 };
    SHARED_OR_SKIP(b.path, EXCERPT);
    SHARED_OR_SKIP(b.path, TINY);
    SHARED_OR_SKIP(b.path, STORIES);
    for (size_t i = 0; i < COUNT_OF(GOLDEN); i++) {
        bench_open(&b, GOLDEN[i].model);
        for (size_t c = i % 2; c < COUNT_OF(CASES); c++) { /* batch=1 is slow: only q8_0 and q4_0 */
            char line[128];
            snprintf(line, sizeof line, "%s,kv=f32,%s", GOLDEN[i].format, CASES[c].settings);
            const struct divergence d = compare(&b, line);
            CASES[c].check(&d, i);
        }
    }
    bench_close(&b);
}

static void test_itself(void **state)
{
    (void)state;
    static const char *const MODELS[] = { STORIES, TINY };
    struct bench b = { 0 };
    SHARED_OR_SKIP(b.path, EXCERPT);
    SHARED_OR_SKIP(b.path, TINY);
    SHARED_OR_SKIP(b.path, STORIES);
    for (size_t i = 0; i < COUNT_OF(MODELS); i++) {
        bench_open(&b, MODELS[i]);
        const struct divergence d = compare(&b, "f32,precision=highest,kv=f32,threads=2");
        CHECK_EQ(d.kld_mean, 0);
        CHECK_EQ(d.kld_se, 0);
        CHECK_EQ(d.kld_p50, 0);
        CHECK_EQ(d.kld_p99, 0);
        CHECK_EQ(d.kld_max, 0);
        CHECK_EQ(d.top1_ratio, 1);
        CHECK_EQ(d.top1_upper, 1);
        CHECK_EQ(d.log_ratio, 0);
        CHECK_EQ(d.log_ratio_se, 0);
        assert_int_equal(d.candidate.scored, (i ? 106 : 224) * 63);
    }
    bench_close(&b);
}

int main(void)
{
    char cache[] = "/tmp/qdyno-test-kld-XXXXXX";
    if (!mkdtemp(cache)) return 1;
    setenv("XDG_CACHE_HOME", cache, 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_exact),
                                        cmocka_unit_test(test_default_precision),
                                        cmocka_unit_test(test_itself) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command) || failed;
}
