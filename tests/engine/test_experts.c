/* Proves: the choices that a forward pass reports are those of a router whose weights are known, in every
 * layer, also with one row and with several batches; eval_experts counts them, and the distinct experts of
 * batches, as a count by hand does; the figures of a layer agree with a case worked by hand; the number of
 * experts of a batch is the measured one, or that of random choices, and gives the bytes of a step. */
#include <math.h>

#include "engine/arch/arch.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/plan/plan.h"
#include "engine/worker/worker.h"
#include "tests/engine/session.h"

enum { EMBD = 32, EXPERTS = 6, USED = 2, LAYERS = 3, WINDOW = 16, WINDOWS = 37, TEXT = WINDOW * WINDOWS };

static char known_path[512];
static const char MODEL[] = "arch-golden-2/olmoe.gguf";

/* ---------------------------------------------------------------- a model with a known router */

/* Score of an expert for a token: whole numbers that differ from expert to expert. */
static int score_of(int layer, int expert, int token)
{
    return (7 * expert + 3 * (token % EMBD) + 5 * layer) % 11;
}

/* The USED experts with the largest scores, the best one first. */
static void want_experts(int32_t out[USED], int layer, int token)
{
    for (int j = 0; j < USED; j++) {
        out[j] = -1;
        for (int e = 0; e < EXPERTS; e++)
            if ((!j || e != out[0]) &&
                (out[j] < 0 || score_of(layer, e, token) > score_of(layer, out[j], token)))
                out[j] = e;
    }
}

static bool router_is_constant; /* known_file: all scores are 0, so the first experts are always chosen */

/* Values of a tensor that make every layer see one-hot embeddings: attention and experts add nothing. */
static void known_values(float *x, const struct gguf_tensor *t)
{
    const int64_t cols = t->shape[0], rows = t->shape[1], n = cols * rows * t->shape[2];
    int layer = 0;
    const bool in_layer = sscanf(t->name, "blk.%d.", &layer) == 1;
    memcpy(x, t->data, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        if (!strcmp(t->name, "token_embd.weight")) x[i] = i % cols == i / cols % EMBD;
        if (strstr(t->name, "ffn_norm") || strstr(t->name, "attn_norm")) x[i] = 1;
        if (strstr(t->name, "attn_output") || strstr(t->name, "ffn_down_exps")) x[i] = 0;
        if (in_layer && strstr(t->name, "ffn_gate_inp"))
            x[i] = router_is_constant ? 0 : 0.1F * (float)score_of(layer, (int)(i / cols), (int)(i % cols));
    }
}

static void known_file(const char *path, const char *model)
{
    struct err why = { 0 };
    struct gguf *g;
    struct gguf_writer *w;
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(gguf_writer_open(&w, path, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_string_equal(t->format->name, "f32");
        float *x = malloc((size_t)t->bytes);
        known_values(x, t);
        CHECK_OK(gguf_writer_write(w, x, t->bytes, &why));
        free(x);
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

static int setup(void **state)
{
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(known_path, sizeof known_path, "%s/test_experts.%d.gguf", folder ? folder : "/tmp",
             (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(known_path);
    return 0;
}

/* A text whose tokens go to many experts. */
static void make_text(char text[TEXT + 1])
{
    uint32_t x = 1;
    for (int i = 0; i < TEXT; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = (char)('A' + (x >> 16) % 40);
    }
    text[TEXT] = '\0';
}

/* ---------------------------------------------------------------- what a forward pass reports */

struct seen {
    int32_t chosen[LAYERS][64][USED];
    int rows[LAYERS];
};

static void see(void *ctx, int layer, const int32_t *chosen, int n)
{
    struct seen *s = ctx;
    memcpy(s->chosen[layer][s->rows[layer]], chosen, (size_t)n * sizeof s->chosen[0][0]);
    s->rows[layer] += n;
}

static void check_seen(const struct seen *s, const int32_t *ids, int n, int last_rows, const char *what)
{
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(s->rows[l], l == LAYERS - 1 ? last_rows : n);
        for (int i = 0; i < s->rows[l]; i++) {
            int32_t want[USED];
            want_experts(want, l, ids[n - s->rows[l] + i]);
            if (memcmp(want, s->chosen[l][i], sizeof want))
                fail_msg("%s: layer %d, row %d: experts %d and %d, want %d and %d", what, l, i,
                         s->chosen[l][i][0], s->chosen[l][i][1], want[0], want[1]);
        }
    }
}

static void reported(void **state)
{
    (void)state;
    enum { N = 40 };
    char model[4096];
    struct err why = { 0 };
    struct batch_row rows[N];
    int32_t ids[N];
    SHARED_OR_SKIP(model, MODEL);
    known_file(known_path, model);
    static const char *const CONFIGS[] = { EXACT, EXACT ",batch=7", "threads=2" };
    for (size_t c = 0; c < COUNT_OF(CONFIGS); c++) {
        struct model *m = session_open(known_path, CONFIGS[c], 64, 1);
        struct seen s = { 0 };
        for (int i = 0; i < N; i++) ids[i] = 3 + i * 7 % 250;
        rows_of(rows, ids, N, 0, 0);
        model_watch_experts(m, see, &s);
        CHECK_OK(model_forward(m, rows, N, &why));
        check_seen(&s, ids, N, N, CONFIGS[c]);
        model_truncate(m, 0, 0);
        s = (struct seen){ 0 };
        for (int i = 0; i < N; i++) { /* one at a time; only the last one wants logits */
            rows[i].logits = i == N - 1;
            CHECK_OK(model_forward(m, rows + i, 1, &why));
        }
        check_seen(&s, ids, N, 1, "one at a time");
        model_watch_experts(m, NULL, NULL);
        model_truncate(m, 0, 0);
        CHECK_OK(model_forward(m, rows, N, &why));
        assert_int_equal(s.rows[0], N); /* nobody watches any longer */
        model_close(m);
    }
}

/* ---------------------------------------------------------------- counts of a text */

/* Distinct experts of n tokens, `step` tokens apart. */
static int distinct_of(int layer, const int32_t *ids, int n, int step)
{
    bool used[EXPERTS] = { false };
    int count = 0;
    for (int i = 0; i < n; i++) {
        int32_t chosen[USED];
        want_experts(chosen, layer, ids[i * step]);
        for (int j = 0; j < USED; j++) {
            count += !used[chosen[j]];
            used[chosen[j]] = true;
        }
    }
    return count;
}

/* Mean over aligned groups of `size` consecutive tokens. */
static double want_consecutive(int layer, const int32_t *ids, int size)
{
    int sum = 0, batches = 0;
    for (int at = 0; at < TEXT; at += size, batches++) sum += distinct_of(layer, ids + at, size, 1);
    return (double)sum / batches;
}

/* Mean over groups of `size` windows and their positions but the first. Groups do not cross the border of 32
 * windows. */
static double want_apart(int layer, const int32_t *ids, int size)
{
    int sum = 0, batches = 0;
    for (int w = 0; w + size <= WINDOWS; w += size) {
        if (w / EXPERT_WINDOWS != (w + size - 1) / EXPERT_WINDOWS) continue;
        for (int at = 1; at < WINDOW; at++, batches++)
            sum += distinct_of(layer, ids + w * WINDOW + at, size, WINDOW);
    }
    return (double)sum / batches;
}

static void check_curves(const struct expert_use *u, int layer, const int32_t *ids)
{
    for (int b = 0; b < EXPERT_BATCHES; b++) {
        const double consecutive = u->consecutive[layer].distinct[b], apart = u->apart[layer].distinct[b];
        if (1 << b <= WINDOW)
            CHECK_NEAR(consecutive, want_consecutive(layer, ids, 1 << b), 1e-12);
        else
            CHECK_NAN(consecutive);
        if (1 << b <= EXPERT_WINDOWS)
            CHECK_NEAR(apart, want_apart(layer, ids, 1 << b), 1e-12);
        else
            CHECK_NAN(apart);
    }
}

static void counted(void **state)
{
    (void)state;
    char model[4096], text[TEXT + 1];
    struct err why = { 0 };
    struct expert_use u;
    SHARED_OR_SKIP(model, MODEL);
    known_file(known_path, model);
    make_text(text);
    struct model *m = session_open(known_path, EXACT ",batch=5", WINDOW, 1);
    struct token_list ids = ids_of(m, text, TEXT);
    assert_int_equal(ids.n, TEXT); /* one token for each byte */
    const struct eval_request r = { .text = text, .n = TEXT, .ctx = WINDOW };
    CHECK_OK(eval_experts(&u, m, &r, &why));
    assert_int_equal(u.windows, WINDOWS);
    assert_int_equal(u.tokens, TEXT);
    for (int l = 0; l < LAYERS; l++) {
        int64_t want[EXPERTS] = { 0 };
        for (int i = 0; i < TEXT; i++) {
            int32_t chosen[USED];
            want_experts(chosen, l, ids.ids[i]);
            for (int j = 0; j < USED; j++) want[chosen[j]]++;
        }
        for (int e = 0; e < EXPERTS; e++) assert_int_equal(u.count[l * EXPERTS + e], want[e]);
        check_curves(&u, l, ids.ids);
    }
    const struct expert_curve mean = expert_use_mean(&u, u.consecutive);
    CHECK_NEAR(mean.distinct[0], USED, 1e-12);
    CHECK_NEAR(mean.distinct[2],
               (u.consecutive[0].distinct[2] + u.consecutive[1].distinct[2] + u.consecutive[2].distinct[2]) /
                   3,
               1e-12);
    CHECK_NAN(mean.distinct[5]);
    expert_use_done(&u);
    token_list_free(&ids);
    model_close(m);
}

/* A cell counts the experts of its decode steps, of all sequences together. */
static void cells(void **state)
{
    (void)state;
    static const struct {
        const char *workload;
        bool constant;
        double from, to;
    } CASES[] = {
        { "tg8", false, USED, USED },
        { "pp8+tg8@b4", true, USED, USED },
        { "pp8+tg8@b4", false, USED + 0.01, EXPERTS },
    };
    char model[4096];
    SHARED_OR_SKIP(model, MODEL);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct workload w;
        struct cell_result r;
        router_is_constant = CASES[i].constant;
        known_file(known_path, model);
        router_is_constant = false;
        CHECK_OK(workload_parse(&w, CASES[i].workload, &why));
        struct model *m = session_open(known_path, EXACT, 64, 4);
        CHECK_OK(cell_run(&r, m, &w, 1, NULL, &why));
        CHECK_LE(CASES[i].from, r.decode_experts);
        CHECK_LE(r.decode_experts, CASES[i].to);
        cell_result_free(&r);
        CHECK_OK(workload_parse(&w, "pp8", &why));
        CHECK_OK(cell_run(&r, m, &w, 1, NULL, &why));
        CHECK_NAN(r.decode_experts);
        cell_result_free(&r);
        model_close(m);
    }
}

static void dense(void **state)
{
    (void)state;
    char model[4096];
    struct err why = { 0 };
    struct expert_use u;
    SHARED_OR_SKIP(model, "arch-golden-2/mistral3.gguf");
    struct model *m = session_open(model, EXACT, WINDOW, 1);
    const struct eval_request r = { .text = "text", .n = 4, .ctx = WINDOW };
    CHECK_EQ(eval_experts(&u, m, &r, &why), ERR_USAGE);
    CHECK(strstr(why.message, "mistral3 model has no experts") != NULL);
    expert_use_done(&u);
    model_close(m);
}

/* ---------------------------------------------------------------- figures */

static void layer_figures(void **state)
{
    (void)state;
    int64_t count[] = { 4, 8, 4, 0, /* a layer without experts: */ 0, 0, 0, 0 };
    const struct expert_use u = { .layers = 2, .experts = 4, .used = 2, .count = count };
    struct expert_layer l;
    CHECK(expert_use_layer(&l, &u, 0));
    CHECK_NEAR(l.entropy_bits, 1.5, 1e-12); /* 1/2 * 1 + 2 * 1/4 * 2 */
    CHECK_NEAR(l.effective, sqrt(8), 1e-12);
    assert_int_equal(l.never, 1);
    const int hottest[] = { 1, 0, 2 };
    for (int i = 0; i < EXPERTS_HOTTEST; i++) assert_int_equal(l.hottest[i], hottest[i]);
    CHECK_NEAR(l.share[0], 0.5, 1e-12);
    CHECK_NEAR(l.share[2], 0.25, 1e-12);
    CHECK(!expert_use_layer(&l, &u, 1));
    const struct expert_use two = { .layers = 1, .experts = 2, .used = 1, .count = count };
    CHECK(expert_use_layer(&l, &two, 0));
    assert_int_equal(l.hottest[2], -1);
    CHECK_NAN(l.share[2]);
}

static void batches(void **state)
{
    (void)state;
    /* 8 experts, 2 for a token: 8 (1 - (3/4)^r) */
    CHECK_NEAR(experts_distinct(NULL, 8, 2, 1), 2, 1e-12);
    CHECK_NEAR(experts_distinct(NULL, 8, 2, 2), 3.5, 1e-12);
    CHECK_NEAR(experts_distinct(NULL, 8, 2, 4), 8 * (1 - 81.0 / 256), 1e-12);
    CHECK_NEAR(experts_distinct(NULL, 8, 2, 4096), 8, 1e-9);
    CHECK_NEAR(experts_distinct(NULL, 8, 8, 5), 8, 1e-12); /* all work on every token */
    struct expert_curve c = { { 2, 3, 4, NAN } };
    CHECK_NEAR(experts_distinct(&c, 8, 2, 1), 2, 1e-12);
    CHECK_NEAR(experts_distinct(&c, 8, 2, 2), 3, 1e-12);
    CHECK_NEAR(experts_distinct(&c, 8, 2, 4), 4, 1e-12);
    CHECK_NEAR(experts_distinct(&c, 8, 2, 3), 3 + log2(1.5), 1e-12);
    CHECK_NEAR(experts_distinct(&c, 8, 2, 8), 4 * (1 - pow(0.75, 8)) / (1 - pow(0.75, 4)), 1e-12);
    c = (struct expert_curve){ { 2, 4, 6.5, NAN } };
    CHECK_NEAR(experts_distinct(&c, 8, 2, 4096), 8, 1e-12); /* never more than there are */
    c = (struct expert_curve){ { NAN } };
    CHECK_NEAR(experts_distinct(&c, 8, 2, 2), 3.5, 1e-12);
}

/* A step that uses all experts reads all their bytes, however their tensors are stored. */
static void step_bytes(void **state)
{
    (void)state;
    static const char *const MODELS[] = { MODEL, "arch-golden-2/qwen3moe-256-Q4_K.gguf",
                                          "arch-golden-2/lfm2moe.gguf", "arch-golden/llama-moe.gguf" };
    for (size_t i = 0; i < COUNT_OF(MODELS); i++) {
        char model[4096];
        struct err why = { 0 };
        struct config c;
        struct gguf *g;
        struct model_shape s;
        struct memory_plan p;
        int64_t all = 0;
        SHARED_OR_SKIP(model, MODELS[i]);
        CHECK_OK(config_parse(&c, "threads=1", &why));
        CHECK_OK(gguf_open(&g, model, &why));
        CHECK_OK(model_shape_read(&s, g, &why));
        CHECK_OK(plan_memory(&p, g, &c, NULL, 0, 1, &why));
        for (int64_t t = 0; t < gguf_tensor_count(g); t++)
            if (strstr(gguf_tensor_at(g, t)->name, "_exps.weight")) all += gguf_tensor_at(g, t)->bytes;
        CHECK_LT(0, all);
        assert_int_equal(p.expert_read_bytes, all / s.experts * s.experts_used);
        CHECK_NEAR(plan_step_bytes(&p, &s, s.experts_used), (double)p.decode_read_bytes, 0);
        CHECK_NEAR(plan_step_bytes(&p, &s, s.experts),
                   (double)(p.decode_read_bytes - p.expert_read_bytes + all), 1e-6 * (double)all);
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reported),   cmocka_unit_test(counted),       cmocka_unit_test(dense),
        cmocka_unit_test(cells),      cmocka_unit_test(layer_figures), cmocka_unit_test(batches),
        cmocka_unit_test(step_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
