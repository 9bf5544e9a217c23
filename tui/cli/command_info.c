/* qdyno info: describes a model file from its header, also with tensors of types that qdyno cannot read.
 * `--experts` is in command_info_experts.c, `--dimensions` in command_info_dimensions.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_INFO[] = {
    FLAG_MODEL_ROW,
    { .name = "--tensors", .exclusive = true, .help = "list the tensors instead" },
    { .name = "--dimensions", .exclusive = true,
      .help = "show instead which row lengths keep tensors from being quantized or cost speed, and how much" },
    { .name = "--experts", .exclusive = true, .value = "TEXT",
      .help = "run this text file through the model and show which experts its routers choose instead" },
    { .name = "-c", .needs = "--experts", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,
      .help = "with --experts: tokens per window; default 512" },
    { .name = "--chunks", .needs = "--experts", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "with --experts: use at most N windows; default: all" },
    { .name = "-C", .needs = "--experts", .alias = "--config", .value = "CONFIG",
      .help = "with --experts: config line, e.g. q8_0,threads=2 (see `qdyno help configs`)" },
    { .name = NULL },
};
/* clang-format on */

#define SHAPE(member) MEMBER(struct model_shape, member)
static const struct column COLUMNS[] = {
    COL("path", "file"),
    COL("name", "name", SHAPE(name)),
    COL("arch", "architecture", SHAPE(arch)),
    COL("params", "parameters", SHAPE(params)),
    COL("quantization", "quantization"),
    COL("quantization_source", "quantization named by"),
    KEY("quantization_note", SHAPE(quantization.note)),
    COL("dominant_format", "format of most bytes", SHAPE(dominant_format)),
    COL("bits_per_weight", "bits per weight", .kind = COLUMN_NUM, .digits = 2),
    COL("layers", "layers", SHAPE(layers)),
    COL("embd", "width", SHAPE(embd)),
    COL("ff", "feed-forward width", SHAPE(ff)),
    COL("mixture", "experts"),
    COL("state", "layers with a state"),
    COL("heads", "heads", SHAPE(heads)),
    COL("kv_heads", "KV heads", SHAPE(kv_heads)),
    COL("head_dim_k", "head size K", SHAPE(head_dim_k)),
    COL("head_dim_v", "head size V", SHAPE(head_dim_v)),
    COL("rope_dims", "RoPE dimensions", SHAPE(rope_dims)),
    COL("vocab", "vocabulary", SHAPE(vocab)),
    COL("ctx_train", "trained context", SHAPE(ctx_train)),
    COL("tied_output", "output tied to embedding", SHAPE(tied_output)),
    COL("tokenizer", "tokenizer"),
    COL("bos", "BOS", .kind = COLUMN_INT),
    COL("eos", "EOS", .kind = COLUMN_INT),
    COL("add_bos", "adds BOS", .kind = COLUMN_BOOL),
    COL("chat_template", "chat template", .kind = COLUMN_BOOL),
    COL("tensors", "tensors", .kind = COLUMN_INT),
    COL("weight_bytes", "weights", .kind = COLUMN_BYTES, SHAPE(weight_bytes)),
    COL("file_bytes", "file size", .kind = COLUMN_BYTES),
    COL("gguf_version", "GGUF version", .kind = COLUMN_INT),
    COL("shards", "shards", .kind = COLUMN_INT),
    COL("sha256", "SHA-256"),
    COL("random_weights", "random weights", SHAPE(random_weights)),
    KEY("answers_unverified", .kind = COLUMN_BOOL),
};

DOCUMENT(INFO, "qdyno.info/1", COLUMNS, .record = true,
         .members = "unknown[] unsupported_tensors[].name unsupported_tensors[].type "
                    "unsupported_tensors[].type_name unsupported_tensors[].shape "
                    "unsupported_tensors[].bytes");

static const struct column TENSOR_COLUMNS[] = {
    COL("name", "tensor"),
    COL("format", "format"),
    COL("shape", "shape"),
    COL("elements", "elements", .kind = COLUMN_INT),
    COL("bytes", "bytes", .kind = COLUMN_BYTES),
};

DOCUMENT(TENSORS, "qdyno.tensors/1", TENSOR_COLUMNS);

/* "8 of 128 per token, width 768": only some of the experts work on a token. */
static void put_experts(json_t *row, const struct model_shape *s)
{
    struct str text = { 0 };
    if (s->experts)
        str_printf(&text, "%d of %d per token, width %lld", s->experts_used, s->experts,
                   (long long)s->expert_ff);
    else
        str_append(&text, "none");
    if (s->shared_ff)
        str_printf(&text, "; shared expert for every token, width %lld", (long long)s->shared_ff);
    json_put_str(row, "mixture", str_text(&text));
    str_free(&text);
}

/* Layers that keep a state instead of keys and values. */
static void put_state(json_t *row, const struct model_shape *s)
{
    static const char *const NAMES[] = { [MIXER_ATTENTION] = "",
                                         [MIXER_DELTA] = "gated delta net",
                                         [MIXER_SCAN] = "Mamba-2",
                                         [MIXER_CONVOLUTION] = "short convolution",
                                         [MIXER_NONE] = "" };
    const int count = shape_count_states(s, s->layers);
    char text[96] = "none", bytes[16];
    for (int l = 0; l < s->layers && count; l++)
        if (shape_layer_has_state(s, l))
            snprintf(
                text, sizeof text, "%d of %d layers, %s: %s per sequence", count, s->layers,
                NAMES[s->parts[l].mixer],
                str_from_bytes(shape_state_floats(s) * (int64_t)sizeof(float) * count, bytes, sizeof bytes));
    json_put_str(row, "state", text);
}

/* Bits per weight are of the whole file, so they are above those of its dominant format. */
static void put_shape(json_t *row, const struct model_shape *s)
{
    document_put(&DOCUMENT_INFO, row, struct model_shape, s);
    json_put_str(row, "quantization", quantization_short(s));
    json_put_str(row, "quantization_source", quantization_source_name(s->quantization.source));
    json_put_num(row, "bits_per_weight", s->params ? 8.0 * (double)s->weight_bytes / (double)s->params : NAN);
    put_experts(row, s);
    put_state(row, s);
    json_put_bool(row, "answers_unverified", s->unknown > 0);
}

/* A file that cannot be tokenized can still be measured, so the caller reports this and goes on. */
static enum err_code put_tokenizer(json_t *row, const struct gguf *g, struct err *why)
{
    struct tokenizer *k = NULL;
    enum err_code rc = tokenizer_open(&k, g, why);
    if (rc == ERR_ABSENT) return ERR_OK; /* the model works with token ids */
    if (rc) return rc;
    struct tokenizer_info i;
    tokenizer_describe(k, &i);
    char text[96];
    snprintf(text, sizeof text, "%s%s%s", i.kind, *i.pre ? " " : "", i.pre);
    json_put_str(row, "tokenizer", text);
    if (i.bos >= 0) json_put_int(row, "bos", i.bos);
    if (i.eos >= 0) json_put_int(row, "eos", i.eos);
    json_put_bool(row, "add_bos", i.add_bos);
    json_put_bool(row, "chat_template", chat_has_template(g));
    tokenizer_close(k);
    return ERR_OK;
}

static void table_add_tensors(struct table *t, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        json_t *row = table_row(t);
        char shape[SHAPE_TEXT], type[TYPE_TEXT];
        json_put_str(row, "name", x->name);
        json_put_str(row, "format", cli_tensor_type(type, x));
        json_put_str(row, "shape", cli_tensor_shape(shape, x));
        json_put_int(row, "elements", x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3]);
        json_put_int(row, "bytes", x->bytes);
    }
}

static enum err_code table_add_model(struct table *t, const struct gguf *g, const struct cli_global *global,
                                     struct err *why)
{
    struct model_shape shape;
    char hex[HASH_HEX];
    json_t *row = table_row(t);
    json_put_str(row, "path", gguf_path(g));
    enum err_code rc = model_shape_read(&shape, g, why);
    if (rc) return rc;
    put_shape(row, &shape);
    json_put_int(row, "tensors", gguf_tensor_count(g));
    json_put_int(row, "file_bytes", gguf_file_bytes(g));
    json_put_int(row, "gguf_version", gguf_version(g));
    json_put_int(row, "shards", gguf_shards(g));
    struct err no_tokenizer = { 0 };
    rc = put_tokenizer(row, g, &no_tokenizer);
    if (rc == ERR_NOMEM) {
        *why = no_tokenizer;
        return rc;
    }
    if (rc) {
        json_put_str(row, "tokenizer", "unusable");
        cli_note(global, "tokenizer: %s", no_tokenizer.message);
    }
    if ((rc = gguf_hash(g, hex, why))) return rc;
    json_put_str(row, "sha256", hex);
    if (*shape.quantization.note) table_note(t, "quantization: %s", shape.quantization.note);
    cli_note_cautions(t, shape.random_weights, shape.unknown > 0);
    cli_note_unknown(t, &shape, g);
    cli_note_unsupported(t, g);
    return ERR_OK;
}

int command_info(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct gguf *file = NULL;
    char *path = NULL;
    bool tensors = args_has(a, "--tensors");
    if (args_has(a, "--experts")) return info_experts(g, a);
    if (args_has(a, "--dimensions")) return info_dimensions(g, a);
    struct table t;
    if (tensors)
        table_init(&t, &DOCUMENT_TENSORS);
    else
        table_init(&t, &DOCUMENT_INFO);
    enum err_code rc = cli_model(&path, a, &why);
    if (!rc) rc = model_file_open_any_type(&file, path, &why);
    if (!rc && tensors)
        table_add_tensors(&t, file);
    else if (!rc)
        rc = table_add_model(&t, file, g, &why);
    if (!rc) rc = gguf_check_unchanged(file, &why);
    int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    gguf_close(file);
    table_done(&t);
    free(path);
    return status;
}
