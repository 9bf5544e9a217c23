/* Proves: predictions of models in several processes count what does not divide: weights that each pass of a
 * stage reads again, and the attention of a prompt, whose blocks of positions some processes have more of. */
#include "advisor/predict/predict.h"
#include "engine/gguf/gguf.h"
#include "engine/parallel/parallel.h"
#include "tests/advisor/fake.h"

#include <math.h>

enum { BATCH = 256 };

/* Each rank has a machine like this one, and exchanges take no time. */
static struct prediction predicted(const char *model, const char *line, double read_bytes_s, double flops,
                                   int prompt)
{
    const struct machine machine = { .isa = ISA_SSE41 | ISA_AVX2,
                                     .cores = 1,
                                     .processors = 1,
                                     .memory_bytes = 1 << 30,
                                     .memory_available_bytes = 1 << 30,
                                     .cgroup_memory_bytes = -1,
                                     .cgroup_cpus = NAN,
                                     .cache_bytes = { 1024, 2048, 4096 } };
    const struct machine_ceilings ceilings = { .read_bytes_s_1 = read_bytes_s,
                                               .read_bytes_s_all = read_bytes_s,
                                               .threads_all = 1,
                                               .count = 1,
                                               .row = { { "f32_fma", "avx2", flops, flops } } };
    struct rank_links links;
    struct config c;
    struct gguf *g;
    struct prediction p;
    struct err why = { 0 };
    char text[128];
    links_of_network(&links, 1e18, 0, 2);
    snprintf(text, sizeof text, "ctk=f32,ctv=f32,batch=%d,%s", BATCH, line);
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(config_parse(&c, text, &why));
    const struct predict_for what = { .ctx = 16384, .prompt = prompt, .links = &links };
    CHECK_OK(predict(&p, g, &c, &machine, &ceilings, &what, &why));
    gguf_close(g);
    return p;
}

/* Rate of prompts relative to one process. */
static double gain(const char *model, const char *mode, double read_bytes_s, double flops, int prompt)
{
    char line[64];
    snprintf(line, sizeof line, "parallel=%s", mode);
    return predicted(model, line, read_bytes_s, flops, prompt).prefill_tok_s.estimate /
           predicted(model, "parallel=off", read_bytes_s, flops, prompt).prefill_tok_s.estimate;
}

/* Memory limits, so a pass of any number of rows takes as long: the 4 passes of a batch through two stages
 * take 5 times the half of what one process needs for the batch. */
static void passes_read_weights_again(void **state)
{
    (void)state;
    char model[4096];
    SHARED_OR_SKIP(model, "arch-golden-2/mistral3.gguf");
    CHECK_NEAR(gain(model, "pp2", 1e6, 1e15, BATCH), 1 / 2.5, 0.05);
    /* arithmetic limits: each row takes as long in every pass */
    CHECK_NEAR(gain(model, "pp2", 1e15, 1e9, BATCH), 8 / 5.0, 0.15);
}

/* Attention of a prompt in one block of positions is not divided; of 4 blocks, the process with the first and
 * the last has 7/16 + 1/16 of it. */
static void attention_is_divided_by_blocks(void **state)
{
    (void)state;
    enum { BLOCK = 1024 };
    char model[4096];
    SHARED_OR_SKIP(model, "arch-golden-2/mistral3.gguf");
    const double short_s = 1 / predicted(model, "parallel=off", 1e15, 1e9, BLOCK).prefill_tok_s.estimate,
                 long_s = 1 / predicted(model, "parallel=off", 1e15, 1e9, 2 * BLOCK).prefill_tok_s.estimate;
    const double attention_s = long_s -
                               short_s; /* of a token of the shorter prompt: it grows with the length */
    CHECK_GT(attention_s, 0.1 * short_s);
    CHECK_NEAR(gain(model, "cp2", 1e15, 1e9, BLOCK), short_s / ((short_s + attention_s) / 2), 0.05);
    CHECK_NEAR(gain(model, "cp2", 1e15, 1e9, 4 * BLOCK), 2, 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_read_weights_again),
        cmocka_unit_test(attention_is_divided_by_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
