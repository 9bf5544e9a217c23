/* Checkpoints are untrusted. A folder of any bytes ends in a message, or in a model whose tensors can all be
 * computed, and whose description and tokenizer work.
 *
 * An input is the files of a folder, one after the other: config.json, tokenizer.json and the header of a
 * weight file, divided by NUL bytes; what follows is the weight file's data, repeated as often as the header
 * needs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/import/safetensors.h"
#include "engine/text/text.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = { .seconds = 2, .seconds_per_mb = 30, .mb = 80, .mb_per_mb = 400 };

enum { DATA_MOST = 1 << 20 };

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

static void remove_file(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* The end of the part that begins at data[at]. */
static size_t part_end(const uint8_t *data, size_t at, size_t size)
{
    while (at < size && data[at]) at++;
    return MIN(at, size);
}

/* How many bytes of data the header's tensors claim, if it is a header. */
static size_t data_of(const uint8_t *header, size_t n)
{
    json_t *j, *entry;
    const char *name;
    int64_t most = 0;
    struct err why = { 0 };
    if (json_parse(&j, (const char *)header, n, &why)) return 0;
    json_object_foreach(j, name, entry)
    {
        const json_t *end = json_array_get(json_object_get(entry, "data_offsets"), 1);
        if (json_is_integer(end) && json_integer_value(end) > most) most = json_integer_value(end);
    }
    json_decref(j);
    return most > DATA_MOST ? 0 : (size_t)most;
}

static void write_weights(const char *folder, const uint8_t *header, size_t n, const uint8_t *data,
                          size_t size)
{
    const size_t room = data_of(header, n);
    const uint64_t length = n;
    uint8_t *all = malloc(sizeof length + n + room + 1);
    if (!all) abort();
    memcpy(all, &length, sizeof length);
    memcpy(all + sizeof length, header, n);
    for (size_t i = 0; i < room; i++) all[sizeof length + n + i] = size ? data[i % size] : 0;
    write_file(folder, "model.safetensors", all, sizeof length + n + room);
    free(all);
}

static void use_tokenizer(const struct gguf *g)
{
    static const char TEXT[] = " Hello w\xc3\xb6rld 123\n\n\t<s>ab \xff\xe2\x96\x81 </s>aaaaaaaa";
    struct tokenizer *t;
    struct token_list ids = { 0 };
    struct str text = { 0 };
    struct err why = { 0 };
    if (tokenizer_open(&t, g, &why)) return;
    for (unsigned flags = 0; flags < 4; flags++)
        if (tokenizer_encode(t, TEXT, sizeof TEXT - 1, flags, &ids, &why) && why.code == ERR_INTERNAL)
            abort();
    if (tokenizer_decode(t, ids.ids, ids.n, true, &text, &why)) abort();
    token_list_free(&ids);
    str_free(&text);
    tokenizer_close(t);
}

/* Compute every tensor, twice. */
static void use_tensors(const struct gguf *g)
{
    volatile unsigned sum = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct import_check check;
        struct err why = { 0 };
        for (int64_t at = 0; at < t->bytes; at++) sum = sum + gguf_tensor_data(t)[at];
        if (import_compare(&check, t, t, &why)) abort();
        gguf_tensor_drop(t);
    }
}

static void use(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/qdyno-fuzz-XXXXXX";
    struct gguf *g;
    struct model_shape shape;
    struct err why = { 0 };
    if (!mkdtemp(folder)) abort();
    const size_t config = part_end(data, 0, size), tokenizer = part_end(data, config + 1, size),
                 header = part_end(data, tokenizer + 1, size);
    write_file(folder, "config.json", data, config);
    if (tokenizer > config + 1)
        write_file(folder, "tokenizer.json", data + config + 1, tokenizer - config - 1);
    if (header > tokenizer + 1)
        write_weights(folder, data + tokenizer + 1, header - tokenizer - 1,
                      header < size ? data + header + 1 : NULL, header < size ? size - header - 1 : 0);
    if (model_file_open(&g, folder, &why)) {
        if (!why.message[0] || why.code == ERR_INTERNAL) abort();
    } else {
        if (model_shape_read(&shape, g, &why) && !why.message[0]) abort();
        use_tensors(g);
        use_tokenizer(g);
        gguf_close(g);
    }
    remove_file(folder, "config.json");
    remove_file(folder, "tokenizer.json");
    remove_file(folder, "model.safetensors");
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
