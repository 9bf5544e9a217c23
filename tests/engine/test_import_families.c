/* Proves: for every architecture that is read from Hugging Face checkpoints, logits agree with those of
 * transformers (tests/data/import-golden-2), and every row of the table has such a proof. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/import/families.h"
#include "engine/import/import.h"
#include "tests/engine/session.h"

#define GOLDEN "import-golden-2/"
enum { IDS_MOST = 32 };

static json_t *read_manifest(void)
{
    struct err why = { 0 };
    char path[4096], *text;
    size_t n;
    json_t *j;
    data_path(path, sizeof path, GOLDEN "manifest.json");
    CHECK_OK(file_read(&text, &n, path, 1 << 24, &why));
    CHECK_OK(json_parse(&j, text, n, &why));
    free(text);
    return j;
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* The numbers of a tensor: tests/data/import-golden-2/README.md. */
static void append_numbers(struct str *out, const char *name, int64_t n, float width, float middle)
{
    const uint64_t seed = hash_number(name, strlen(name));
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = hash_mix(seed + (uint64_t)i * HASH_STEP) >> 40;
        const float scaled = ((float)bits / (float)(1 << 24) - 0.5f) * width; /* rounded before the sum */
        const volatile float product = scaled;
        const uint16_t half = bf16_from_f32(product + middle);
        str_append_n(out, &half, sizeof half);
    }
}

static void write_weights(const char *folder, const json_t *tensors)
{
    struct str header = { 0 }, data = { 0 }, file = { 0 };
    const char *name;
    json_t *t;
    str_append(&header, "{");
    json_object_foreach((json_t *)tensors, name, t)
    {
        const json_t *shape = json_array_get(t, 0);
        char *shape_text = json_dumps(shape, JSON_COMPACT);
        int64_t n = 1;
        const size_t from = data.len;
        for (size_t i = 0; i < json_array_size(shape); i++) n *= json_integer_value(json_array_get(shape, i));
        append_numbers(&data, name, n, (float)json_number_value(json_array_get(t, 1)),
                       (float)json_number_value(json_array_get(t, 2)));
        str_printf(&header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                   header.len > 1 ? "," : "", name, shape_text, from, data.len);
        free(shape_text);
    }
    str_append(&header, "}");
    const uint64_t length = header.len;
    str_append_n(&file, &length, sizeof length);
    str_append_n(&file, header.data, header.len);
    str_append_n(&file, data.data, data.len);
    CHECK(!file.failed);
    write_file(folder, "model.safetensors", file.data, file.len);
    str_free(&header);
    str_free(&data);
    str_free(&file);
}

static int check_model(const json_t *model, const int32_t *ids, int n, int kept, int vocab, const float *want)
{
    char folder[] = "/tmp/qdyno-import-XXXXXX", path[512];
    struct err why = { 0 };
    struct batch_row rows[IDS_MOST];
    const char *name = json_get_str(model, "name", "");
    CHECK(mkdtemp(folder));
    char *config = json_dumps(json_object_get(model, "config"), 0);
    write_file(folder, "config.json", config, strlen(config));
    write_weights(folder, json_object_get(model, "tensors"));
    free(config);
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
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
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
