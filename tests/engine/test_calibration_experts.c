/* Proves, for models with experts: calibration counts for each expert the rows that its router sent to it,
 * and sums the squares of their inputs, as one tensor of all experts and as a tensor for each; files of both
 * formats keep them; an importance matrix weighs each expert's columns by its own rows, and an expert that no
 * row reached by the mean of all; other methods refuse experts. */
#include "engine/arch/arch.h"
#include "engine/quant/calibration_internal.h"
#include "engine/quant/quant.h"
#include "tests/engine/calibration_fixture.h"
#include "tests/engine/split_experts.h"

enum { LAYERS = 3, EXPERTS_MOST = 64, TOKENS = 32 };

/* How often each expert was chosen, by a model that runs as a whole. */
struct choices {
    int64_t of[LAYERS][EXPERTS_MOST];
    int used, layers_seen;
};

static void count_choices(void *ctx, int layer, const int32_t *chosen, int n)
{
    struct choices *c = ctx;
    for (int i = 0; i < n * c->used; i++) c->of[layer][chosen[i]]++;
}

static void run_sequences(const char *path, const struct calibration *c, struct choices *out)
{
    struct err why = { 0 };
    struct batch_row rows[TOKENS];
    static int32_t ids[64][TOKENS];
    const int count = calibration_samples(c, TOKENS, ids[0], 64);
    struct model *m = session_open(path, EXACT, TOKENS, 1);
    *out = (struct choices){ .used = model_shape(m)->experts_used };
    model_watch_experts(m, count_choices, out);
    for (int s = 0; s < count; s++) {
        model_truncate(m, 0, 0);
        rows_of(rows, ids[s], TOKENS, 0, 0);
        CHECK_OK(model_forward(m, rows, TOKENS, &why)); /* every row has logits, so the last layer sees all */
    }
    model_close(m);
}

static const struct calibration_input *input_of(const struct calibration *c, const char *name)
{
    const struct calibration_input *in = calibration_find(c, name);
    if (!in) fail_msg("no statistics of %s", name);
    return in;
}

static void counts_are_the_routers_choices(void **state)
{
    (void)state;
    static const char *const MATRICES[] = { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };
    struct choices want;
    const char *path = synth("qwen3moe", 5);
    struct calibration *c = collect(path, 2, 0, TOKENS * 40);
    run_sequences(path, c, &want);
    for (int l = 0; l < LAYERS; l++)
        for (size_t m = 0; m < COUNT_OF(MATRICES); m++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, MATRICES[m]);
            const struct calibration_input *in = input_of(c, name);
            assert_in_range(in->parts, 2, EXPERTS_MOST);
            int64_t all = 0;
            for (int e = 0; e < in->parts; e++) {
                CHECK_EQ(in->part_count[e], want.of[l][e]);
                all += in->part_count[e];
            }
            CHECK_EQ(in->count, all);
        }
    calibration_close(c);
}

/* A file with a tensor for each expert has the same sums. */
static void split_files_have_the_same_sums(void **state)
{
    (void)state;
    const char *path = synth("qwen3moe", 5), *split = place("split.gguf");
    split_file(split, path, SPLIT_RIGHT);
    struct calibration *c = collect(path, 1, 0, 0), *d = collect(split, 1, 0, 0);
    int compared = 0;
    for (int l = 0; l < LAYERS; l++) {
        char name[64], one[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", l);
        const struct calibration_input *all = input_of(c, name);
        for (int e = 0; e < all->parts; e++) {
            split_name(one, sizeof one, name, e);
            const struct calibration_input *in = calibration_find(d, one);
            assert_true((in != NULL) == (all->part_count[e] > 0));
            if (!in) continue;
            assert_int_equal(in->parts, 1);
            assert_memory_equal(in->sum_squares, all->sum_squares + e * all->cols,
                                (size_t)all->cols * sizeof(float));
            CHECK_EQ(in->count, all->part_count[e]);
            compared++;
        }
    }
    assert_in_range(compared, LAYERS * 2, LAYERS * EXPERTS_MOST);
    calibration_close(c);
    calibration_close(d);
}

static void check_same_parts(const struct calibration_input *a, const struct calibration_input *b,
                             double error)
{
    assert_int_equal(a->parts, b->parts);
    for (int64_t k = 0; k < a->parts * a->cols; k++)
        CHECK_NEAR(b->mean_square[k], a->mean_square[k], error * (double)a->mean_square[k]);
}

static void files_keep_the_experts(void **state)
{
    (void)state;
    static const char NAME[] = "blk.1.ffn_up_exps.weight";
    struct err why = { 0 };
    struct calibration *c = collect(synth("qwen3moe", 5), 1, 0, 0), *d;
    const struct calibration_input *in = input_of(c, NAME);
    CHECK_OK(calibration_save(c, place("c.gguf"), &why));
    CHECK_OK(calibration_load(&d, place("c.gguf"), &why));
    check_same_parts(in, input_of(d, NAME), 0);
    assert_memory_equal(in->part_count, input_of(d, NAME)->part_count,
                        (size_t)in->parts * sizeof *in->part_count);
    calibration_close(d);
    CHECK_OK(imatrix_save(c, place("i.gguf"), &why));
    CHECK_OK(calibration_load(&d, place("i.gguf"), &why));
    check_same_parts(in, input_of(d, NAME), 0);
    calibration_close(d);
    /* The old format has no number of experts: the values of all follow each other. */
    CHECK_OK(imatrix_save(c, place("i.dat"), &why));
    CHECK_OK(calibration_load(&d, place("i.dat"), &why));
    const struct calibration_input *old = input_of(d, NAME);
    CHECK_EQ(old->cols, in->parts * in->cols);
    for (int e = 0; e < in->parts; e++)
        for (int64_t k = 0; k < in->cols; k++)
            CHECK_NEAR(calibration_importance(old, in->cols, e)[k],
                       calibration_importance(in, in->cols, e)[k],
                       1e-6 * (double)in->mean_square[e * in->cols + k]);
    struct gguf *g;
    CHECK_OK(gguf_open(&g, synth("qwen3moe", 5), &why));
    CHECK_OK(calibration_check(d, g, &why));
    gguf_close(g);
    calibration_close(d);
    calibration_close(c);
}

/* An importance matrix in which the last expert saw nothing. */
static void weights_are_each_experts_own(void **state)
{
    (void)state;
    static const char NAME[] = "blk.1.ffn_up_exps.weight";
    struct err why = { 0 };
    struct config config;
    struct gguf *source, *made;
    struct calibration *c = collect(synth("qwen3moe", 5), 1, 0, 0);
    struct calibration_input *in = (struct calibration_input *)input_of(c, NAME);
    const int last = in->parts - 1;
    in->count -= in->part_count[last];
    in->part_count[last] = 0;
    memset(in->sum_squares + last * in->cols, 0, (size_t)in->cols * sizeof(float));
    CHECK_OK(imatrix_save(c, place("i.gguf"), &why));
    calibration_close(c);
    CHECK_OK(calibration_load(&c, place("i.gguf"), &why));
    in = (struct calibration_input *)input_of(c, NAME);
    char line[400];
    snprintf(line, sizeof line, "method=gguf,type=q4_0,imatrix=true,calib=%s", place("i.gguf"));
    CHECK_OK(config_parse(&config, line, &why));
    CHECK_OK(gguf_open(&source, synth("qwen3moe", 5), &why));
    CHECK_OK(quantize_file(place("q.gguf"), source,
                           &(struct quantize_options){ .config = &config, .threads = 2 }, &why));
    CHECK_OK(gguf_open(&made, place("q.gguf"), &why));
    const struct gguf_tensor *from = gguf_tensor_find(source, NAME), *to = gguf_tensor_find(made, NAME);
    const int64_t rows = from->shape[1], cols = from->shape[0];
    const size_t bytes = (size_t)(rows * format_row_bytes(to->format, cols));
    unsigned char *want = malloc(bytes);
    int other = 0;
    for (int e = 0; e <= last; e++) {
        const float *x = (const float *)(const void *)from->data + e * rows * cols;
        format_encode_weighted(to->format, x, in->mean_square + e * cols, want, rows, cols);
        assert_memory_equal(want, to->data + (size_t)e * bytes, bytes);
        format_encode_weighted(to->format, x, in->mean_square, want, rows, cols);
        other += memcmp(want, to->data + (size_t)e * bytes, bytes) != 0;
    }
    assert_in_range(other, 1, last); /* the first expert's importance would give other codes */
    for (int64_t k = 0; k < cols; k++) {
        double sum = 0;
        for (int e = 0; e < last; e++) sum += (double)in->sum_squares[e * cols + k];
        CHECK_NEAR(in->mean_square[last * cols + k], sum / (double)in->count, 1e-6 * sum / (double)in->count);
    }
    free(want);
    gguf_close(source);
    gguf_close(made);
    calibration_close(c);
}

static void heads_of_latent_attention(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    const char *path = synth("deepseek2", 5);
    struct calibration *c = collect(path, 1, 0, 0);
    CHECK_OK(gguf_open(&g, path, &why));
    int seen = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->dims < 2 || strncmp(t->name, "blk.", 4) || strstr(t->name, "ffn_gate_inp")) continue;
        const struct calibration_input *in = input_of(c, t->name);
        CHECK_EQ(in->cols, t->shape[0]);
        CHECK_EQ(in->parts, t->shape[2]);
        seen++;
    }
    assert_in_range(seen, LAYERS * 6, 1000);
    gguf_close(g);
    calibration_close(c);
}

static void other_methods_refuse(void **state)
{
    (void)state;
    static const char *const LINES[] = { "gptq", "awq", "smoothquant", "int8_static" };
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct err why = { 0 };
        struct config c;
        struct gguf *g;
        CHECK_OK(config_parse(&c, LINES[i], &why));
        CHECK_OK(config_set(&c, "calib", text_file(), &why));
        CHECK_OK(gguf_open(&g, synth("qwen3moe", 5), &why));
        const struct quantize_options o = { .config = &c, .threads = 1 };
        assert_int_equal(quantize_file(place("q.gguf"), g, &o, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, "this model has experts");
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_routers_choices), cmocka_unit_test(split_files_have_the_same_sums),
        cmocka_unit_test(files_keep_the_experts),         cmocka_unit_test(weights_are_each_experts_own),
        cmocka_unit_test(heads_of_latent_attention),      cmocka_unit_test(other_methods_refuse),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
