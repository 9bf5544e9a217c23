/* Proves: windows of the quality measurement are as long as the workload, but no longer than text and model
 * allow; fewer of longer ones keep the cost; loads, training and short workloads keep the default; what
 * cannot be read keeps it, too; the note names both lengths when they differ. */
#include "advisor/experiment/quality_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/experiment/experiment.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static struct quality_context follow(struct experiment_spec *s, const char *workload, bool own_chunks)
{
    struct err why;
    struct quality_context c;
    CHECK_OK(workload_parse(&s->workload, workload, &why));
    s->quality_ctx = 0;
    s->quality_chunks = QUALITY_CHUNKS;
    experiment_quality_follow(&c, s, own_chunks);
    return c;
}

static void cost_stays(void **state)
{
    (void)state;
    CHECK_EQ(quality_context_windows(512, 64, 512, 4), 64);
    CHECK_EQ(quality_context_windows(2048, 64, 512, 4), 16);
    CHECK_EQ(quality_context_windows(1 << 20, 64, 512, 4), 4);
    CHECK_EQ(quality_context_windows(100, 64, 512, 4), 64); /* shorter ones are not more */
    CHECK_EQ(quality_context_windows(4096, 2, 256, 4), 2);
}

static void short_and_unreadable_keep_the_default(void **state)
{
    (void)state;
    static const char *const LINES[] = { "tg64", "pp128+tg64", "load:rate=4", "tg64@d8192" };
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct experiment_spec s = { .arms = 2, .model = "/nowhere/m.gguf", .quality_file = "/nowhere/t" };
        const struct quality_context c = follow(&s, LINES[i], false);
        CHECK_EQ(c.ctx, QUALITY_CTX);
        CHECK_EQ(s.quality_ctx, 0);
        CHECK_EQ(s.quality_chunks, QUALITY_CHUNKS);
    }
}

static void the_note_names_both_lengths(void **state)
{
    (void)state;
    char text[QUALITY_CONTEXT_TEXT];
    CHECK_STR(quality_context_text(text, &(struct quality_context){ 65, 512, 0, 0 }), "");
    CHECK_STR(quality_context_text(text, &(struct quality_context){ 8256, 8256, 90000, 32768 }), "");
    CHECK_STR(quality_context_text(text, &(struct quality_context){ 8256, 900, 900, 32768 }),
              "quality is measured in windows of 900 tokens and not at the workload's 8256: the text has 900 "
              "tokens, and the model was trained on contexts of 32768");
    CHECK_STR(quality_context_text(text, &(struct quality_context){ 8256, 256, 0, 0 }),
              "quality is measured in windows of 256 tokens and not at the workload's 8256");
}

/* A model that was trained with 2048 tokens, and a text of `words` words. */
static void files_write(char *model, char *text, int words)
{
    struct err why;
    struct str s = { 0 };
    const struct synth_options o = {
        .shape = synth_shape_find("tiny"), .format = format_find("q8_0"), .seed = 1, .threads = 1
    };
    const int fd[] = { mkstemp(model), mkstemp(text) };
    CHECK(fd[0] >= 0 && fd[1] >= 0);
    CHECK_OK(synth_write(model, &o, &why));
    for (int i = 0; i < words; i++) str_append(&s, "the ");
    CHECK_EQ(write(fd[1], s.data, s.len), (int64_t)s.len);
    str_free(&s);
    close(fd[0]);
    close(fd[1]);
}

static void a_deep_workload_is_followed(void **state)
{
    (void)state;
    char model[] = "/tmp/qdyno-model-XXXXXX", text[] = "/tmp/qdyno-text-XXXXXX";
    struct experiment_spec s = { .arms = 2 };
    files_write(model, text, 4000);
    snprintf(s.model, sizeof s.model, "%s", model);
    snprintf(s.quality_file, sizeof s.quality_file, "%s", text);
    struct quality_context c = follow(&s, "pp100+tg64@d900", false);
    CHECK_EQ(c.wanted, 1064);
    CHECK_EQ(s.quality_ctx, 1064);
    CHECK_EQ(s.quality_chunks, 64 * 512 / 1064);
    c = follow(&s, "tg64@d900", true); /* the number of windows is given */
    CHECK_EQ(s.quality_ctx, 964);
    CHECK_EQ(s.quality_chunks, QUALITY_CHUNKS);
    c = follow(&s, "tg64@d8192", false);
    CHECK_EQ(c.wanted, 8256);
    CHECK_EQ(c.trained, 2048);
    CHECK_EQ(s.quality_ctx, 2048);
    unlink(text);
    char few[] = "/tmp/qdyno-text-XXXXXX", other[] = "/tmp/qdyno-model-XXXXXX";
    files_write(other, few, 20);
    snprintf(s.quality_file, sizeof s.quality_file, "%s", few);
    c = follow(&s, "tg64@d8192", false); /* the text is shorter than the default: measuring says so */
    CHECK_EQ(c.ctx, QUALITY_CTX);
    CHECK_EQ(s.quality_ctx, 0);
    unlink(model);
    unlink(other);
    unlink(few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_stays),
        cmocka_unit_test(short_and_unreadable_keep_the_default),
        cmocka_unit_test(the_note_names_both_lengths),
        cmocka_unit_test(a_deep_workload_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
