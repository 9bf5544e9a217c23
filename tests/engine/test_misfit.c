/* Proves: a recipe whose blocks some rows do not fill is announced with the number of tensors, their format,
 * the real bits per weight and the closest format that fits; the format that leaves fewer tensors out is
 * offered where none fits all; a recipe that fits says nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "tests/check.h"

struct made {
    struct gguf *g;
    struct config c;
    struct quantize_plan plan;
    struct recipe_misfit m;
    bool misfits;
    char folder[64], path[100];
};

static void make(struct made *x, int64_t embd, int64_t ff, const char *recipe)
{
    struct err why = { 0 };
    const struct synth_shape shape = { .name = "rows",
                                       .layers = 1,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .embd = embd,
                                       .ff = ff,
                                       .vocab = 512,
                                       .ctx = 64,
                                       .tied = true };
    const struct synth_options o = {
        .arch = "llama", .shape = &shape, .format = format_find("f32"), .seed = 1, .threads = 1
    };
    snprintf(x->folder, sizeof x->folder, "/tmp/qdyno-test-misfit-XXXXXX");
    assert_non_null(mkdtemp(x->folder));
    snprintf(x->path, sizeof x->path, "%s/m.gguf", x->folder);
    CHECK_OK(synth_write(x->path, &o, &why));
    CHECK_OK(gguf_open(&x->g, x->path, &why));
    CHECK_OK(config_parse(&x->c, recipe, &why));
    CHECK_OK(quantize_plan_init(&x->plan, x->g, &x->c, &why));
    x->misfits = recipe_misfit(&x->m, &x->plan, x->g, &x->c);
}

static void drop(struct made *x)
{
    quantize_plan_done(&x->plan);
    gguf_close(x->g);
    unlink(x->path);
    rmdir(x->folder);
}

static void rows_that_do_not_fill_blocks_are_announced(void **state)
{
    (void)state;
    struct made x;
    char text[600];
    make(&x, 288, 768, "q4_K"); /* 288 is no multiple of 256; ffn_down has rows of 768 = 3 * 256 */
    CHECK(x.misfits);
    CHECK_EQ(x.m.tensors, 7); /* embedding, q, k, v, output, gate, up */
    CHECK_EQ(x.m.of, 8);
    CHECK_EQ(x.m.row, 288);
    assert_string_equal(x.m.becomes->name, "f16");
    CHECK(x.m.bits > 10);
    assert_string_equal(x.m.fits->name, "q4_0");
    CHECK_EQ(x.m.fits_left, 0);
    CHECK(fabs(x.m.fits_bits - 4.5) < 0.1);
    recipe_misfit_text(&x.m, text, sizeof text);
    CHECK(strstr(text, "7 of 8 matrices cannot be q4_K: rows of 288 weights do not fill blocks of 256"));
    CHECK(strstr(text, "they become f16"));
    CHECK(strstr(text, "not 4.50. q4_0 fits all rows: 4.5"));
    drop(&x);

    make(&x, 288, 768, "q4_0");
    CHECK(!x.misfits);
    drop(&x);
}

static void the_format_with_the_fewest_misfits_is_offered(void **state)
{
    (void)state;
    struct made x;
    char text[600];
    make(&x, 64, 172, "q4_K"); /* rows of 172 = 4 * 43 fill blocks of no format of this size */
    CHECK(x.misfits);
    CHECK_EQ(x.m.tensors, x.m.of);
    assert_string_equal(x.m.fits->name, "q4_0");
    CHECK_EQ(x.m.fits_left, 1);
    CHECK(strstr(recipe_misfit_text(&x.m, text, sizeof text), "q4_0 fits all but 1: "));
    drop(&x);
    make(&x, 64, 172, "q4_0"); /* nothing of about that size is better */
    CHECK(x.misfits);
    assert_null(x.m.fits);
    CHECK(strstr(recipe_misfit_text(&x.m, text, sizeof text), "No format of that size fits more of them"));
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_do_not_fill_blocks_are_announced),
        cmocka_unit_test(the_format_with_the_fewest_misfits_is_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
