/* Proves: a profile does not change the logits; each operator of each layer is called once in a pass; bytes
 * of products are those of the file's tensors, once in a pass, and of attention and the cache those of the
 * keys and values that the rows see; arithmetic is that worked out by hand; of experts only those count that
 * the router chose; the operators' times add up to no more than the passes'; nothing is counted before and
 * after; a cell keeps the passes of the prompt apart from decode steps, and leaves out the filling of the
 * cache. */
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/worker/worker.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define EXPERTS "arch-golden-2/olmoe.gguf"

enum { PROMPT = 12, STEPS = 3 };

/* Bytes of the matrices of a layer (-1: the model). */
static int64_t bytes_of(const struct model *m, int layer, const enum slot *slots, int n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        char name[ARCH_NAME];
        arch_slot_name(name, sizeof name, layer, slots[i]);
        const struct gguf_tensor *t = gguf_tensor_find(model_gguf(m), name);
        assert_non_null(t);
        bytes += t->bytes;
    }
    return bytes;
}

static int64_t weights_of(const struct model *m, int layer, const enum slot *slots, int n)
{
    return bytes_of(m, layer, slots, n) / (int64_t)sizeof(float); /* the file is f32 */
}

/* A prompt in one batch, then single steps. */
static void run_passes(struct model *m, float *logits)
{
    struct err why = { 0 };
    struct batch_row rows[PROMPT];
    const int64_t vocab = model_shape(m)->vocab;
    model_truncate(m, 0, 0);
    for (int i = 0; i < PROMPT; i++)
        rows[i] = (struct batch_row){ .token = 5 + i, .pos = i, .logits = i == PROMPT - 1 };
    CHECK_OK(model_forward(m, rows, PROMPT, &why));
    memcpy(logits, model_logits(m, 0), (size_t)vocab * sizeof *logits);
    for (int i = 0; i < STEPS; i++) {
        rows[0] = (struct batch_row){ .token = 7 + i, .pos = PROMPT + i, .logits = true };
        CHECK_OK(model_forward(m, rows, 1, &why));
        memcpy(logits + (i + 1) * vocab, model_logits(m, 0), (size_t)vocab * sizeof *logits);
    }
}

/* Calls in every pass, and bytes and arithmetic of products with these matrices. */
static void check_product(const struct model *m, const struct pass_profile *p, int layer,
                          enum pass_operator op, const enum slot *slots, int n, int rows)
{
    const struct profile_cell *c = profile_at(p, layer, op);
    CHECK_EQ(c->calls, p->passes);
    CHECK_EQ(c->bytes, p->passes * bytes_of(m, layer, slots, n));
    CHECK_NEAR(c->ops, 2.0 * rows * (double)weights_of(m, layer, slots, n), 0.5);
    assert_ptr_equal(c->format, &FORMATS[FORMAT_F32]);
}

static int64_t total_ns(const struct pass_profile *p)
{
    int64_t ns = 0;
    for (int l = -1; l < p->layers; l++)
        for (int op = 0; op < OPERATOR_COUNT; op++) {
            CHECK(profile_at(p, l, (enum pass_operator)op)->ns >= 0);
            ns += profile_at(p, l, (enum pass_operator)op)->ns;
        }
    return ns;
}

static void test_operators(void **state)
{
    (void)state;
    const enum slot QKV[] = { SLOT_Q, SLOT_K, SLOT_V }, OUT[] = { SLOT_ATTN_OUT },
                    UP[] = { SLOT_GATE, SLOT_UP }, DOWN[] = { SLOT_DOWN };
    char path[4096];
    struct err why = { 0 };
    struct pass_profile p;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 64, 1);
    const struct model_shape *s = model_shape(m);
    const size_t bytes = (size_t)s->vocab * (STEPS + 1) * sizeof(float);
    float *plain = malloc(bytes), *profiled = malloc(bytes);
    CHECK_OK(profile_init(&p, m, &why));
    run_passes(m, plain);
    CHECK_EQ(total_ns(&p), 0);
    model_profile(m, &p);
    run_passes(m, profiled);
    model_profile(m, NULL);
    assert_memory_equal(plain, profiled, bytes);
    const struct pass_profile before = p;
    run_passes(m, profiled);
    CHECK_EQ(p.passes, before.passes);
    CHECK_EQ(p.ns, before.ns);
    CHECK_EQ(p.passes, 1 + STEPS);
    CHECK_EQ(p.layers, s->layers);

    const int rows = PROMPT + STEPS, heads = s->heads;
    const int64_t token = (int64_t)s->kv_heads * (s->head_dim_k + s->head_dim_v) * (int64_t)sizeof(float);
    int64_t seen = PROMPT * (PROMPT + 1) / 2, read = PROMPT;
    for (int i = 0; i < STEPS; i++) {
        seen += PROMPT + i + 1;
        read += PROMPT + i + 1;
    }
    for (int l = 0; l < s->layers; l++) {
        const bool last = l == s->layers - 1; /* it drops rows without requested logits after attention */
        const int left = last ? 1 + STEPS : rows;
        check_product(m, &p, l, OPERATOR_QKV, QKV, 3, rows);
        check_product(m, &p, l, OPERATOR_ATTENTION_OUT, OUT, 1, left);
        check_product(m, &p, l, OPERATOR_GATE_UP, UP, 2, left);
        check_product(m, &p, l, OPERATOR_DOWN, DOWN, 1, left);
        const struct profile_cell *c = profile_at(&p, l, OPERATOR_ATTENTION);
        CHECK_EQ(c->calls, p.passes);
        CHECK_EQ(c->bytes, read * token);
        CHECK_NEAR(c->ops, 2.0 * heads * (s->head_dim_k + s->head_dim_v) * (double)seen, 0.5);
        CHECK_EQ(profile_at(&p, l, OPERATOR_KV_STORE)->bytes, rows * token);
        CHECK_EQ(profile_at(&p, l, OPERATOR_NORM)->calls, 2 * p.passes);
        CHECK_EQ(profile_at(&p, l, OPERATOR_ROPE)->calls, 2 * p.passes);
        CHECK_EQ(profile_at(&p, l, OPERATOR_LOGITS)->calls, 0);
    }
    const enum slot LOGITS[] = { s->tied_output ? SLOT_TOKEN_EMBD : SLOT_OUTPUT };
    check_product(m, &p, -1, OPERATOR_LOGITS, LOGITS, 1, 1 + STEPS);
    CHECK_EQ(profile_at(&p, -1, OPERATOR_EMBEDDING)->calls, p.passes);
    CHECK_EQ(profile_at(&p, -1, OPERATOR_NORM)->calls, p.passes);
    CHECK(total_ns(&p) > 0 && total_ns(&p) <= p.ns);
    profile_free(&p);
    free(plain);
    free(profiled);
    model_close(m);
}

struct chosen {
    int64_t pairs, distinct; /* over all layers */
};

static void see_experts(void *ctx, int layer, const int32_t *chosen, int n)
{
    enum { USED = 2 }; /* by the routers of the model */
    struct chosen *c = ctx;
    bool used[256] = { false };
    (void)layer;
    c->pairs += (int64_t)n * USED;
    for (int i = 0; i < n * USED; i++) {
        c->distinct += !used[chosen[i]];
        used[chosen[i]] = true;
    }
}

static void test_experts(void **state)
{
    (void)state;
    static const char *const CONFIGS[] = { EXACT,
                                           EXACT ",compile=off" }; /* all experts at once; one by one */
    const enum slot DOWN[] = { SLOT_DOWN_EXPERTS };
    char path[4096];
    struct err why = { 0 };
    SHARED_OR_SKIP(path, EXPERTS);
    for (size_t i = 0; i < COUNT_OF(CONFIGS); i++) {
        struct pass_profile p;
        struct chosen c = { 0 };
        struct model *m = session_open(path, CONFIGS[i], 64, 1);
        const struct model_shape *s = model_shape(m);
        assert_int_equal(s->experts_used, 2);
        float *logits = malloc((size_t)s->vocab * (STEPS + 1) * sizeof *logits);
        CHECK_OK(profile_init(&p, m, &why));
        model_profile(m, &p);
        model_watch_experts(m, see_experts, &c);
        run_passes(m, logits);
        int64_t bytes = 0;
        double ops = 0;
        for (int l = 0; l < s->layers; l++) {
            bytes += profile_at(&p, l, OPERATOR_EXPERTS_DOWN)->bytes;
            ops += profile_at(&p, l, OPERATOR_EXPERTS_DOWN)->ops;
            CHECK(profile_at(&p, l, OPERATOR_ROUTER)->calls == p.passes);
        }
        const int64_t each = bytes_of(m, 0, DOWN, 1) / s->experts;
        CHECK_EQ(bytes, c.distinct * each);
        CHECK_NEAR(ops, 2.0 * (double)c.pairs * (double)each / sizeof(float), 0.5);
        profile_free(&p);
        free(logits);
        model_close(m);
    }
}

static void test_cell(void **state)
{
    (void)state;
    char path[4096];
    struct err why = { 0 };
    struct pass_profile p[2];
    struct workload w;
    struct cell_result r;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, "threads=1,batch=8", 64, 1);
    const struct model_shape *s = model_shape(m);
    const struct cell_hooks hooks = { .profile = p };
    CHECK_OK(profile_init(&p[0], m, &why));
    CHECK_OK(profile_init(&p[1], m, &why));
    CHECK_OK(workload_parse(&w, "pp20+tg5@d9", &why));
    CHECK_OK(cell_run(&r, m, &w, 1, &hooks, &why));
    CHECK_EQ(p[0].passes, 3); /* 20 ids in batches of 8 */
    CHECK_EQ(p[1].passes, 5);
    for (int i = 0; i < 2; i++) {
        for (int l = 0; l < s->layers; l++) {
            CHECK_EQ(profile_at(&p[i], l, OPERATOR_QKV)->calls, p[i].passes);
            CHECK_EQ(profile_at(&p[i], l, OPERATOR_QKV)->rows, i ? 1 : 8);
        }
        CHECK(total_ns(&p[i]) <= p[i].ns);
        CHECK((double)p[i].ns * 1e-9 <= (i ? r.decode_s : r.prefill_s));
        profile_free(&p[i]);
    }
    cell_result_free(&r);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_operators), cmocka_unit_test(test_experts),
                                        cmocka_unit_test(test_cell) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
