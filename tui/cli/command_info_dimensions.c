/* qdyno info --dimensions: row lengths of a model that keep tensors from being quantized or cost speed, with
 * what they cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"
#include "tui/cli/commands.h"

enum { FULL = 256, LENGTHS = 64 };
static const char *const RECIPE = "q4_K";

struct length {
    int64_t cols, weights, more_bytes;
    int tensors;
    const char *example;
    const struct format *becomes;
};

#define LENGTH(member) MEMBER(struct length, member)
static const struct column COLUMNS[] = {
    COL("cols", "row length", LENGTH(cols)),
    COL("tensors", "tensors", LENGTH(tensors)),
    COL("example", "for example", LENGTH(example)),
    COL("weights", "weights", LENGTH(weights)),
    COL("multiple_of", "multiple of", .kind = COLUMN_INT),
    COL("refused_blocks", "does not fill blocks of"),
    COL("q4_k_format", "with q4_K"),
    COL("q4_k_more_bytes", "more bytes", .kind = COLUMN_BYTES, LENGTH(more_bytes)),
    COL("timed_format", "timed in"),
    COL("one_row_ratio", "time per weight, 1 row", .kind = COLUMN_NUM, .digits = 2),
    COL("many_rows_ratio", "64 rows", .kind = COLUMN_NUM, .digits = 2),
};

DOCUMENT(DIMENSIONS, "qdyno.dimensions/1", COLUMNS, .members = "model recipe more_bytes");

struct lengths {
    struct length of[LENGTHS];
    int n;
};

static struct length *length_find(struct lengths *all, int64_t cols)
{
    for (int i = 0; i < all->n; i++)
        if (all->of[i].cols == cols) return &all->of[i];
    if (all->n == LENGTHS) return NULL;
    struct length *l = &all->of[all->n++];
    l->cols = cols;
    return l;
}

static int64_t tensor_weights(const struct gguf_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/* Of a tensor that q4_K would convert: adds what falling back costs. */
static enum err_code lengths_add(struct lengths *all, const struct config *c, const struct gguf *g,
                                 const struct gguf_tensor *t, struct err *why)
{
    const struct format *asked = recipe_asked_format(c, g, t);
    if (!asked) return ERR_OK;
    struct length *l = length_find(all, t->shape[0]);
    if (!l) return err_set(why, ERR_FIT, "more than %d different row lengths", LENGTHS);
    const struct format *got = recipe_tensor_format(c, g, t, NULL);
    const double bits = format_bits_per_weight(got) - format_bits_per_weight(asked);
    if (!l->tensors++) l->example = t->name;
    l->weights += tensor_weights(t);
    l->becomes = got;
    if (bits > 0) l->more_bytes += (int64_t)((double)tensor_weights(t) * bits / 8);
    return ERR_OK;
}

/* The block lengths that some format has and that rows of `cols` numbers do not fill: "256, 128". */
static void refused_blocks(char *out, size_t size, int64_t cols)
{
    int64_t known[16];
    int n = 0;
    size_t used = 0;
    *out = '\0';
    for (int64_t block = FULL; block >= 2; block--) {
        bool some = false;
        for (int i = 0; i < FORMAT_COUNT; i++) some |= FORMATS[i].encode && FORMATS[i].block_weights == block;
        if (some && cols % block && n < (int)COUNT_OF(known)) known[n++] = block;
    }
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)known[i]);
}

static int64_t power_of_two_in(int64_t cols)
{
    return MIN(cols & -cols, 1024);
}

static enum err_code table_add_length(struct table *t, const struct length *l, uint32_t isa, struct err *why)
{
    const struct format
        *timed = &FORMATS[l->cols % FORMATS[FORMAT_Q8_0].block_weights ? FORMAT_F16 : FORMAT_Q8_0];
    const int64_t full = (l->cols + FULL - 1) / FULL * FULL;
    struct dimension_price price = { NAN, NAN };
    enum err_code rc = full > l->cols ? dimension_price(&price, timed, l->cols, full, isa, why) : ERR_OK;
    if (rc) return rc;
    json_t *row = table_row(t);
    char blocks[64];
    refused_blocks(blocks, sizeof blocks, l->cols);
    document_put(&DOCUMENT_DIMENSIONS, row, struct length, l);
    json_put_int(row, "multiple_of", power_of_two_in(l->cols));
    json_put_str(row, "refused_blocks", *blocks ? blocks : NULL);
    json_put_str(row, "q4_k_format", l->becomes->name);
    json_put_str(row, "timed_format", full > l->cols ? timed->name : NULL);
    json_put_num(row, "one_row_ratio", price.one_row);
    json_put_num(row, "many_rows_ratio", price.many_rows);
    return ERR_OK;
}

static void note_lengths(struct table *t, const struct lengths *all)
{
    int64_t more = 0;
    char bytes[16];
    bool odd = false;
    for (int i = 0; i < all->n; i++) {
        more += all->of[i].more_bytes;
        odd |= all->of[i].cols % FULL != 0;
    }
    json_put_int(t->extra, "more_bytes", more);
    if (!odd) {
        table_note(t, "all row lengths are multiples of %d: every format fits, and nothing is lost", FULL);
        return;
    }
    table_note(
        t,
        "time per weight: measured now on one thread, divided by that of rows rounded up to a multiple of %d",
        FULL);
    if (more)
        table_note(
            t,
            "a %s file is %s larger than its formats say, because those tensors keep more bits; a model whose "
            "row lengths are multiples of %d would not",
            RECIPE, str_from_bytes(more, bytes, sizeof bytes), FULL);
}

static enum err_code dimensions_read(struct table *t, const struct gguf *g, struct err *why)
{
    struct config c;
    uint32_t isa;
    struct lengths *all = calloc(1, sizeof *all);
    enum err_code rc = all ? config_parse(&c, RECIPE, why) : err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = isa_usable(&isa, why);
    for (int64_t i = 0; i < gguf_tensor_count(g) && !rc; i++)
        rc = lengths_add(all, &c, g, gguf_tensor_at(g, i), why);
    for (int i = 0; all && i < all->n && !rc; i++) rc = table_add_length(t, &all->of[i], isa, why);
    json_put_str(t->extra, "model", gguf_path(g));
    json_put_str(t->extra, "recipe", RECIPE);
    if (!rc) note_lengths(t, all);
    free(all);
    return rc;
}

int info_dimensions(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct gguf *file = NULL;
    char *path = NULL;
    struct table t;
    table_init(&t, &DOCUMENT_DIMENSIONS);
    enum err_code rc = cli_model(&path, a, &why);
    if (!rc) rc = model_file_open(&file, path, &why);
    if (!rc) rc = dimensions_read(&t, file, &why);
    if (!rc) rc = gguf_check_unchanged(file, &why);
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    gguf_close(file);
    table_done(&t);
    free(path);
    return status;
}
