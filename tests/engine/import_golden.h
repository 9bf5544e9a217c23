/* tests/engine/import_golden.h - the checkpoints of tests/data/import-golden-2, written as folders. */
#ifndef QDYNO_TESTS_IMPORT_GOLDEN_H
#define QDYNO_TESTS_IMPORT_GOLDEN_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/engine/session.h"

#define GOLDEN "import-golden-2/"

static inline json_t *read_manifest(void)
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

static inline void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* The numbers of a tensor: tests/data/import-golden-2/README.md. */
static inline void append_numbers(struct str *out, const char *name, int64_t n, float width, float middle)
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

static inline void write_weights(const char *folder, const json_t *tensors)
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

/* A folder with config.json and the weights of a row of the manifest. `folder`: a template of mkdtemp. */
static inline void write_checkpoint(char *folder, const json_t *config, const json_t *tensors)
{
    CHECK(mkdtemp(folder));
    char *text = json_dumps(config, 0);
    write_file(folder, "config.json", text, strlen(text));
    write_weights(folder, tensors);
    free(text);
}

static inline void remove_checkpoint(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

#endif
