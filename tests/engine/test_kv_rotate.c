/* Proves: with rotated KV caches every architecture that allows it computes the golden logits as closely as
 * with plain caches of the same format, in one batch, in pieces and one token at a time, for several
 * sequences in one batch; which caches are rotated by default; what cannot be
 * rotated is refused. A model with outlier channels loses less through a rotated 4-bit cache, and what it
 * computes with an exact cache does not depend on the outliers. */
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/plan/plan.h"
#include "engine/synth/synth.h"
#include "tests/engine/golden.h"

enum { HEAD = 64, OUTLIERS = 1, CTX = 64 };

static char folder[] = "/tmp/qdyno-test-kv-rotate-XXXXXX";
static char plain[256], outliers[256]; /* models */

/* ---------------------------------------------------------------- golden models */

/* nrmse of logits that are computed `step` tokens at a time. */
static double nrmse_of(const struct entry *e, struct model *m, int step)
{
    const int64_t n = e->n * model_shape(m)->vocab;
    const float *want = (const float *)(const void *)e->want.data;
    float *got = malloc((size_t)n * sizeof *got);
    run_ids(e, m, step, got);
    double mean = 0, variance = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)want[i] / (double)n;
        squares += pow((double)got[i] - (double)want[i], 2) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) variance += pow((double)want[i] - mean, 2) / (double)n;
    free(got);
    return sqrt(squares / variance);
}

struct tally {
    int rotated, refused;
};
static struct tally tally;

/* A rotation that is missing on one side or not undone makes several times the error. */
static void check_rotated(const struct entry *e, const char *cache)
{
    char line[128];
    struct err why = { 0 };
    struct model *m;
    snprintf(line, sizeof line, "precision=highest,threads=1,batch=16,%s,kv_rotate=on", cache);
    const enum err_code rc = session_try(&m, e->model, line, e->ctx, 1, &why);
    if (rc) {
        CHECK_EQ(rc, ERR_USAGE);
        CHECK_CONTAINS(why.message, "needs heads of a multiple of");
        tally.refused++;
        return;
    }
    *strstr(line, ",kv_rotate") = '\0';
    struct model *usual = session_open(e->model, line, e->ctx, 1);
    /* An expert that is chosen or not is a jump, so errors of two caches compare less well. */
    const double tolerance = (model_shape(m)->experts ? 3 : 1.6) * nrmse_of(e, usual, GOLDEN_IDS);
    const double whole = nrmse_of(e, m, GOLDEN_IDS);
    const int STEPS[] = { GOLDEN_IDS, 7, 1 };
    for (size_t i = 0; i < COUNT_OF(STEPS); i++) {
        const double got = nrmse_of(e, m, STEPS[i]);
        if (!(got <= tolerance))
            fail_msg("%s, %s, %d at a time: nrmse %g with a rotated cache, at most %g", e->name, cache,
                     STEPS[i], got, tolerance);
        if (!(fabs(got - whole) <= 0.02 * whole))
            fail_msg("%s, %s, %d at a time: nrmse %g, at once %g", e->name, cache, STEPS[i], got, whole);
    }
    tally.rotated++;
    model_close(usual);
    model_close(m);
}

static void check_cpu(const struct entry *e)
{
    if (e->weights[0] != 'F') return; /* the weights' own error would hide that of the cache */
    check_rotated(e, "kv=q8_0");
    check_rotated(e, "kv=fp8_e4m3");
}

static void golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    SHARED_OR_SKIP(path, GOLDEN_2 "manifest.json");
    for_entries(true, check_cpu);
    for_entries_of(GOLDEN_2, true, check_cpu);
    for_entries_of(GOLDEN_3, true, check_cpu);
    print_message("%d rotated, %d refused\n", tally.rotated, tally.refused);
    CHECK_LE(40, tally.rotated);
    CHECK_LE(1, tally.refused);
}

/* ---------------------------------------------------------------- models of our own */

/* Multiply and divide by powers of two, so that no weight rounds. */
static const float FACTOR = 8;

/* The factor of row (of queries, keys, values) or column (of outputs) i. Rotary embeddings mix channels 2i
 * and 2i + 1, so both get the same. */
static float factor_of(int64_t i, int first)
{
    const int channel = (int)(i % HEAD) / 2;
    return channel >= first && channel < first + OUTLIERS ? FACTOR : 1;
}

static void add_outliers(const struct gguf_tensor *t, float *x)
{
    const bool q = strstr(t->name, "attn_q."), k = strstr(t->name, "attn_k."), v = strstr(t->name, "attn_v."),
               out = strstr(t->name, "attn_output.");
    if (!q && !k && !v && !out) return;
    for (int64_t r = 0; r < t->shape[1]; r++)
        for (int64_t c = 0; c < t->shape[0]; c++) {
            const float by = factor_of(out ? c : r, q || k ? 5 : 20);
            x[r * t->shape[0] + c] *= q || out ? 1 / by : by;
        }
}

/* A model whose keys and values have outlier channels, which queries and the output matrix take back. */
static void write_outliers(const char *to, const char *from)
{
    struct err why = { 0 };
    struct gguf *g;
    struct gguf_writer *w;
    CHECK_OK(gguf_open(&g, from, &why));
    CHECK_OK(gguf_writer_open(&w, to, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        float *x = malloc((size_t)t->bytes);
        memcpy(x, t->data, (size_t)t->bytes);
        add_outliers(t, x);
        CHECK_OK(gguf_writer_write(w, x, t->bytes, &why));
        free(x);
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

static int make_models(void **state)
{
    (void)state;
    struct err why = { 0 };
    const struct synth_shape shape = { .name = "small",
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .embd = 4 * HEAD,
                                       .ff = 256,
                                       .vocab = 512,
                                       .ctx = CTX };
    const struct synth_options o = {
        .arch = "llama", .shape = &shape, .format = &FORMATS[FORMAT_F32], .seed = 3, .threads = 1
    };
    if (!mkdtemp(folder)) return -1;
    snprintf(plain, sizeof plain, "%s/plain.gguf", folder);
    snprintf(outliers, sizeof outliers, "%s/outliers.gguf", folder);
    if (synth_write(plain, &o, &why)) return -1;
    write_outliers(outliers, plain);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    return unlink(plain) | unlink(outliers) | rmdir(folder);
}

static const char *text(void)
{
    static char t[8192];
    int n = 0;
    for (int i = 0; i < 60 && !t[4000]; i++)
        n += snprintf(t + n, sizeof t - (size_t)n, "Line %d says that %d times %d is %d, the cat agrees. ", i,
                      i, i * 7 % 13, i * (i * 7 % 13));
    return t;
}

static double kld(const char *path, const char *config)
{
    struct err why = { 0 };
    struct divergence d;
    const struct eval_request r = { .text = text(), .n = strlen(text()), .ctx = CTX, .max_chunks = 8 };
    struct model *reference = session_open(plain, EXACT, CTX, 1),
                 *candidate = session_open(path, config, CTX, 1);
    CHECK_OK(eval_divergence(&d, reference, candidate, &r, &why));
    model_close(reference);
    model_close(candidate);
    return d.kld_mean;
}

/* On normally distributed keys and values a rotation changes nothing, so the loss may differ by chance. */
static void loss(void **state)
{
    (void)state;
    CHECK_LT(kld(outliers, EXACT), 1e-9);
    static const char *const CACHES[] = { "kv=q4_0", "ctk=q4_0,ctv=f32", "ctk=f32,ctv=q4_0" };
    for (size_t i = 0; i < COUNT_OF(CACHES); i++) {
        char on[128], off[128];
        snprintf(on, sizeof on, "precision=highest,threads=1,%s", CACHES[i]);
        snprintf(off, sizeof off, "%s,kv_rotate=off", on);
        const double with = kld(outliers, on), without = kld(outliers, off), usual = kld(plain, off),
                     rotated = kld(plain, on);
        print_message("%s: KLD %.3g without rotation, %.3g with it; without outliers %.3g, %.3g\n", CACHES[i],
                      without, with, usual, rotated);
        CHECK_LT(with, 0.5 * without);
        CHECK_LT(with, 4 * usual);
        CHECK_LT(rotated, 1.5 * usual);
    }
}

/* Logits of n ids of one sequence in one batch with n ids of another one. */
static void run_two(struct model *m, int n, bool together, float *out)
{
    struct err why = { 0 };
    struct batch_row rows[2 * CTX];
    int32_t ids[2 * CTX];
    const int64_t vocab = model_shape(m)->vocab;
    for (int i = 0; i < 2 * n; i++) ids[i] = 3 + i * 7 % 400;
    rows_of(rows, ids, n, 0, 0);
    rows_of(rows + n, ids + n, n, 1, 0);
    model_truncate(m, 0, 0);
    model_truncate(m, 1, 0);
    for (int at = 0; at < 2 * n; at += together ? 2 * n : n) {
        CHECK_OK(model_forward(m, rows + at, together ? 2 * n : n, &why));
        memcpy(out + at * vocab, model_logits(m, 0),
               (size_t)(together ? 2 * n : n) * (size_t)vocab * sizeof *out);
    }
}

static void sequences(void **state)
{
    (void)state;
    enum { N = 20 };
    struct model *m = session_open(outliers, "precision=highest,threads=2,kv=q4_0", CTX, 2);
    const size_t n = 2 * N * (size_t)model_shape(m)->vocab;
    float *together = malloc(n * sizeof *together), *apart = malloc(n * sizeof *apart);
    run_two(m, N, true, together);
    run_two(m, N, false, apart);
    CHECK_LT(max_difference(together, apart, (int64_t)n), 1e-4);
    free(together);
    free(apart);
    model_close(m);
}

/* ---------------------------------------------------------------- which caches are rotated */

struct resolved {
    const char *line;
    bool k, v;
};

static void resolve(const char *path, const char *line, struct model_session *out)
{
    struct err why = { 0 };
    struct config c;
    static const char LLAMA[] = "llama";
    const struct arch *a = arch_find((struct gguf_string){ LLAMA, sizeof LLAMA - 1 });
    CHECK_OK(config_parse(&c, line, &why));
    struct model *m = session_open(path, "threads=1", CTX, 1);
    CHECK_OK(session_resolve(out, model_shape(m), a, &c, CTX, 1, &why));
    model_close(m);
}

static void choice(void **state)
{
    (void)state;
    static const struct resolved CASES[] = {
        { "kv=f16", false, false },
        { "kv=f16,kv_rotate=off", false, false },
        { "kv=q8_0", false, false },
        { "kv=fp8_e4m3", false, false },
        { "kv=q4_0", true, true },
        { "kv=q4_0,kv_rotate=off", false, false },
        { "ctk=q4_0,ctv=q8_0", true, false },
        { "ctk=f16,ctv=q4_0", false, true },
        { "ctk=q4_0,ctv=q8_0,kv_rotate=on", true, true },
        { "ctk=f16,ctv=q8_0,kv_rotate=on", false, true },
        { "ctk=fp8_e5m2,ctv=f32,kv_rotate=on", true, false },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct model_session s;
        resolve(plain, CASES[i].line, &s);
        if (s.k_rotated != CASES[i].k || s.v_rotated != CASES[i].v)
            fail_msg("%s: keys %d, values %d", CASES[i].line, s.k_rotated, s.v_rotated);
    }
    struct err why = { 0 };
    struct config c;
    CHECK_EQ(config_parse(&c, "kv_rotate=on", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "neither ctk=f16 nor ctv=f16 is one");
    CHECK_EQ(config_parse(&c, "kv=q4_0,kv_rotate=yes", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "auto on off");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden), cmocka_unit_test(loss),
                                        cmocka_unit_test(sequences), cmocka_unit_test(choice) };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
