/* qdyno import: writes a Hugging Face checkpoint as one GGUF file, and proves that no code and no weight
 * changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/import.h"
#include "kernels/kernels.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_IMPORT[] = {
    { .name = "--force", .help = "replace OUT if it exists" },
    { .name = "--verify", .help = "read OUT again and compare every tensor with the checkpoint" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("tensor", "tensor"),
    COL("format", "format"),
    COL("bytes", "bytes", .kind = COLUMN_BYTES),
    COL("quantized", "quantized", .kind = COLUMN_BOOL),
    COL("identical", "identical codes", .kind = COLUMN_BOOL),
    COL("largest_difference", "largest difference", .kind = COLUMN_NUM, .digits = 10),
};

DOCUMENT(IMPORT, "qdyno.import/1", COLUMNS,
         .members = "path source_sha256 file_bytes verified equal rounded differ");

/* What a step of the work needs. */
struct work {
    const struct cli_global *g;
    struct progress progress;
};

static enum err_code on_step(void *ctx, int64_t done, int64_t count, struct err *why)
{
    struct work *w = ctx;
    if (cli_is_interrupted(w->g)) return err_set(why, ERR_CANCELLED, "import was interrupted");
    progress_report(&w->progress, PROGRESS_AT((double)done / (double)count, NAN), "tensor %lld of %lld",
                    (long long)done, (long long)count);
    return ERR_OK;
}

/* How many tensors are equal, rounded (the scale only), and different. */
struct counts {
    int64_t equal, rounded, differ;
};

static enum err_code add_rows(struct table *t, struct counts *n, struct work *w, const struct gguf *source,
                              const struct gguf *made, bool verify, struct err *why)
{
    for (int64_t i = 0; i < gguf_tensor_count(source); i++) {
        const struct gguf_tensor *was = gguf_tensor_at(source, i), *is = gguf_tensor_find(made, was->name);
        struct import_check check = { .difference = NAN };
        if (!is) return err_set(why, ERR_INTERNAL, "tensor '%s' was not written", was->name);
        if (verify && cli_is_interrupted(w->g))
            return err_set(why, ERR_CANCELLED, "interrupted while comparing; the file was written");
        const enum err_code rc = verify ? import_compare(&check, was, is, why) : ERR_OK;
        if (rc) return rc;
        json_t *row = table_row(t);
        json_put_str(row, "tensor", was->name);
        json_put_str(row, "format", is->format->name);
        json_put_int(row, "bytes", is->bytes);
        if (!verify) continue;
        json_put_bool(row, "quantized", check.quantized);
        json_put_bool(row, "identical", check.identical);
        json_put_num(row, "largest_difference", check.difference);
        if (check.difference == 0)
            n->equal++;
        else if (check.identical && check.rounding <= IMPORT_ROUNDING)
            n->rounded++;
        else
            n->differ++;
    }
    return ERR_OK;
}

static void add_summary(struct table *t, const struct counts *n, bool verify)
{
    if (!verify) return;
    table_note(t, "%lld tensor%s exactly the weights of the checkpoint.", (long long)n->equal,
               n->equal == 1 ? " has" : "s have");
    if (n->rounded)
        table_note(t, "%lld tensor%s the same codes, and weights within the rounding of one scale.",
                   (long long)n->rounded, n->rounded == 1 ? " has" : "s have");
    if (n->differ)
        table_note(t, "%lld tensor%s from the checkpoint.", (long long)n->differ,
                   n->differ == 1 ? " differs" : "s differ");
}

int command_import(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct gguf *source = NULL, *made = NULL;
    struct work w = { .g = g };
    struct table t;
    struct counts n = { 0 };
    char hash[HASH_HEX] = "";
    const bool verify = args_has(a, "--verify");
    progress_init(&w.progress, g);
    table_init(&t, &DOCUMENT_IMPORT);
    enum err_code rc = a->n == 2
                           ? ERR_OK
                           : err_set(&why, ERR_USAGE, "expected two arguments: qdyno import FOLDER OUT");
    if (!rc && !import_is_checkpoint(a->arg[0]))
        rc = err_set(&why, ERR_USAGE, "'%s': expected a folder with config.json and safetensors files",
                     a->arg[0]);
    if (!rc) rc = model_file_open(&source, a->arg[0], &why);
    if (!rc) rc = cli_target_check(source, a->arg[1], args_has(a, "--force"), &why);
    if (!rc) rc = import_write(source, a->arg[1], on_step, &w, &why);
    progress_clear(&w.progress);
    if (!rc) rc = gguf_open(&made, a->arg[1], &why);
    if (!rc) rc = gguf_hash(source, hash, &why);
    if (!rc) rc = add_rows(&t, &n, &w, source, made, verify, &why);
    if (!rc) rc = gguf_check_unchanged(source, &why);
    int status;
    if (rc) {
        status = cli_fail(a, &why);
    } else {
        json_put_str(t.extra, "path", a->arg[1]);
        json_put_str(t.extra, "source_sha256", hash);
        json_put_int(t.extra, "file_bytes", gguf_file_bytes(made));
        json_put_bool(t.extra, "verified", verify);
        if (verify) {
            json_put_int(t.extra, "equal", n.equal);
            json_put_int(t.extra, "rounded", n.rounded);
            json_put_int(t.extra, "differ", n.differ);
        }
        add_summary(&t, &n, verify);
        status = cli_print(g, a, &t, n.differ ? EXIT_WORSE : EXIT_DONE);
    }
    gguf_close(made);
    gguf_close(source);
    table_done(&t);
    return status;
}
