/* Proves: the summary of a model matches its file and the loader's plan: each tensor is in one group, the
 * bytes add up, layers are combined, and memory grows with the context length and the size of the KV type. */
#include "tests/check.h"
#include "tui/frame/frame.h"
#include "engine/synth/synth.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_groups(const struct model_summary *l, const struct gguf *g, const struct model_shape *s)
{
    int tensors = 0;
    int64_t bytes = 0, params = 0;
    for (int i = 0; i < l->groups; i++) {
        const struct tensor_group *t = &l->group[i];
        tensors += t->count;
        bytes += t->bytes;
        params += t->params;
        CHECK(i == 0 || t->bytes <= l->group[i - 1].bytes); /* the largest first */
        if (str_starts(t->name, "blk.*.")) CHECK_EQ(t->count, s->layers);
        CHECK_LACKS(t->name, ".weight");
        CHECK(*t->shape);
        CHECK(*t->format);
    }
    assert_int_equal(tensors + l->left_out, gguf_tensor_count(g));
    assert_int_equal(bytes + l->left_out_bytes, l->bytes);
    assert_int_equal(params, s->params);
}

static void check_plans(const struct model_summary *l, const struct gguf *g, const struct model_shape *s)
{
    CHECK_GE(l->contexts, 1);
    CHECK_EQ(l->context[l->contexts - 1], s->ctx_train);
    for (int k = 0; k < l->caches; k++)
        for (int i = 0; i < l->contexts; i++) {
            struct config c;
            struct memory_plan plan;
            struct err why;
            char line[32];
            snprintf(line, sizeof line, "kv=%s", l->cache[k]);
            CHECK_OK(config_parse(&c, line, &why));
            const bool can = !recipe_plan_memory(&plan, g, &c, (int)l->context[i], 1, &why);
            assert_int_equal(l->total[k][i], can ? plan.total : -1);
            if (i && can) CHECK_GT(l->total[k][i], l->total[k][i - 1]);
        }
}

/* The longest context is that of the plan, and a session of that length fits. */
static void check_longest(const struct model_summary *l)
{
    enum { F16 = 1 };
    const int last = l->contexts - 1;
    const int64_t free = l->total[F16][last], most = model_summary_longest(l, F16, free);
    CHECK_GE(l->context[last], most);
    CHECK_GE(most, l->context[last] * 9 / 10);
    CHECK_GT(model_summary_longest(l, F16, 2 * free), most);
    CHECK_EQ(model_summary_longest(l, F16, l->total[F16][0] / 100), 0);
    CHECK_EQ(model_summary_longest(l, F16, -1), -1);
}

static void figures_are_the_files(void **state)
{
    (void)state;
    static const char *const ARCHITECTURES[] = { "llama", "qwen2", "gpt2" };
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        char path[256];
        struct err why;
        struct gguf *g;
        struct model_shape s;
        struct model_summary *l = malloc(sizeof *l);
        const struct synth_options o = { .arch = ARCHITECTURES[i],
                                         .shape = synth_shape_find("tiny"),
                                         .format = &FORMATS[FORMAT_Q8_0],
                                         .seed = 1,
                                         .threads = 1 };
        assert_non_null(l);
        snprintf(path, sizeof path, "%s/tests/ledger-%d.gguf", TEST_BUILD_DIR, (int)getpid());
        CHECK_OK(synth_write(path, &o, &why));
        CHECK_OK(gguf_open(&g, path, &why));
        CHECK_OK(model_shape_read(&s, g, &why));
        model_summary_make(l, g, &s);
        CHECK_GT(l->groups, 5);
        CHECK_EQ(l->left_out, 0);
        check_groups(l, g, &s);
        check_plans(l, g, &s);
        check_longest(l);
        CHECK_GT(l->kv_bytes_per_token[0], l->kv_bytes_per_token[1]); /* f32 over f16 */
        gguf_close(g);
        unlink(path);
        free(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(figures_are_the_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
