/* Model files are untrusted. Opening any bytes ends in an error or in a reader whose pointers all lie inside
 * them; the same holds for description and tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "tests/engine/gguf_bytes.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

/* A vocabulary takes some 10 times its bytes, for which a compiled pre-tokenizer adds a constant. */
static const struct cost_ceiling CEILING = {
    .seconds = 0.2, .seconds_per_mb = 10, .mb = 8, .mb_per_mb = 100
};

static void use_tokenizer(const struct gguf *g)
{
    static const char TEXT[] = " Hello w\xc3\xb6rld 123\n\n\t<s>ab \xff\xe2\x96\x81 </s>aaaaaaaaaaaaaaaa";
    struct tokenizer *t;
    struct tokenizer_info info;
    struct token_list ids = { 0 };
    struct str text = { 0 };
    struct err why = { 0 };
    if (tokenizer_open(&t, g, &why)) {
        if (!why.message[0] || why.code == ERR_INTERNAL) abort();
        return;
    }
    for (unsigned flags = 0; flags < 4; flags++)
        if (tokenizer_encode(t, TEXT, sizeof TEXT - 1, flags, &ids, &why)) abort();
    if (tokenizer_decode(t, ids.ids, ids.n, true, &text, &why)) abort();
    tokenizer_describe(t, &info);
    for (int32_t i = 0; i < MIN(info.n_vocab, 1000); i++) tokenizer_piece(t, i, true, &text, &why);
    token_list_free(&ids);
    str_free(&text);
    tokenizer_close(t);
}

/* What `info` and `fit` do with a file whose tensors have any type. */
static void use_any_type(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct model_shape shape;
    struct err why = { 0 };
    if (gguf_open_memory_any_type(&g, data, size, &why)) {
        if (!why.message[0]) abort();
        return;
    }
    volatile uint64_t sum = gguf_walk(g);
    (void)sum;
    if (model_shape_read(&shape, g, &why) && !why.message[0]) abort();
    gguf_close(g);
}

static void use(const uint8_t *data, size_t size)
{
    use_any_type(data, size);
    struct gguf *g;
    struct model_shape shape;
    struct err why = { 0 };
    if (gguf_open_memory(&g, data, size, &why)) {
        if (!why.message[0] || why.code == ERR_INTERNAL) abort();
        return;
    }
    volatile uint64_t sum = gguf_walk(g);
    (void)sum;
    if (model_shape_read(&shape, g, &why) && !why.message[0]) abort();
    use_tokenizer(g);
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
