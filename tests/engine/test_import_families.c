/* Proves: for every architecture that is read from Hugging Face checkpoints, logits agree with those of
 * transformers (tests/data/import-golden-2), and every row of the table has such a proof. */
#include "engine/import/families.h"
#include "engine/import/import.h"
#include "tests/engine/import_golden.h"

enum { IDS_MOST = 32 };

static int check_model(const json_t *model, const int32_t *ids, int n, int kept, int vocab, const float *want)
{
    char folder[] = "/tmp/qdyno-import-XXXXXX";
    struct err why = { 0 };
    struct batch_row rows[IDS_MOST];
    const char *name = json_get_str(model, "name", "");
    write_checkpoint(folder, json_object_get(model, "config"), json_object_get(model, "tensors"));
    struct model *m;
    int bad = 1;
    if (session_try(&m, folder, EXACT, 32, 1, &why)) {
        print_message("%s: %s\n", name, why.message);
    } else {
        CHECK_EQ(model_shape(m)->vocab, vocab);
        rows_of(rows, ids, n, 0, 0);
        CHECK_OK(model_forward(m, rows, n, &why));
        const double most = max_difference(model_logits(m, n - kept), want, (int64_t)kept * vocab);
        bad = !(most <= 1e-4);
        if (bad) print_message("%s: logits differ by %g\n", name, most);
        model_close(m);
    }
    remove_checkpoint(folder);
    return bad;
}

static void test_logits(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct file_map want;
    char path[4096];
    int32_t ids[IDS_MOST];
    int bad = 0;
    json_t *manifest = read_manifest(), *list = json_object_get(manifest, "ids"),
           *models = json_object_get(manifest, "models");
    const int n = (int)json_array_size(list), kept = (int)json_get_int(manifest, "rows", 0),
              vocab = (int)json_get_int(manifest, "vocab", 0);
    assert_in_range(kept, 2, n);
    assert_in_range(n, 4, IDS_MOST);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    data_path(path, sizeof path, GOLDEN "logits.f32");
    CHECK_OK(file_map(&want, path, &why));
    CHECK_EQ(want.size, json_array_size(models) * (size_t)(kept * vocab) * sizeof(float));
    const float *row = (const float *)(const void *)want.data;
    for (size_t i = 0; i < json_array_size(models); i++, row += kept * vocab)
        bad += check_model(json_array_get(models, i), ids, n, kept, vocab, row);
    file_unmap(&want);
    json_decref(manifest);
    CHECK_EQ(bad, 0);
}

/* Every architecture of the table occurs here, or in a test of test_import.c. */
static void test_every_family(void **state)
{
    (void)state;
    static const char IN_TEST_IMPORT[] = "GptOssForCausalLM";
    json_t *manifest = read_manifest(), *models = json_object_get(manifest, "models");
    for (size_t f = 0; f < HF_FAMILY_COUNT; f++) {
        bool proven = !strcmp(HF_FAMILIES[f].architecture, IN_TEST_IMPORT);
        for (size_t i = 0; i < json_array_size(models) && !proven; i++) {
            const json_t *config = json_object_get(json_array_get(models, i), "config"),
                         *list = json_object_get(config, "architectures");
            proven = !strcmp(json_string_value(json_array_get(list, 0)), HF_FAMILIES[f].architecture);
        }
        if (!proven) fail_msg("no checkpoint proves %s", HF_FAMILIES[f].architecture);
    }
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
