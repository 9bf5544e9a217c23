/* Writes the files of an exported checkpoint: weights in safetensors, config.json with what the tensors mean,
 * and the original's tokenizer. Sources of the keys: the configurations that AutoAWQ, GPTQModel and
 * compressed-tensors write. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/import/export_internal.h"

/* Files that go over as they are, where the original has them. */
static const char *const COPIED[] = { "tokenizer.json",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "tokenizer.model",
                                      "vocab.json",
                                      "merges.txt",
                                      "chat_template.jinja",
                                      "chat_template.json",
                                      "generation_config.json",
                                      "LICENSE",
                                      "LICENSE.txt" };

/* ---------------------------------------------------------------- weights */

static int element_bytes(const struct piece *p)
{
    int64_t count = 1;
    if (p->kind == PIECE_COPY) return p->from->count ? (int)(p->from->bytes / p->from->count) : 1;
    for (int i = 0; i < p->dims; i++) count *= p->shape[i];
    return (int)(p->bytes / count);
}

/* Wider numbers first, so that each lies at a multiple of its size. */
static int piece_compare(const void *x, const void *y)
{
    const struct piece *const *a = x, *const *b = y;
    const int wide = element_bytes(*b) - element_bytes(*a);
    return wide ? wide : *a < *b ? -1 : *a > *b;
}

static enum err_code header_put(json_t *header, const struct piece *p, int64_t at, struct err *why)
{
    json_t *o = json_object(), *shape = json_array();
    const int dims = p->kind == PIECE_COPY ? p->from->dims : p->dims;
    for (int i = 0; i < dims; i++)
        json_array_append_new(shape, json_integer(p->kind == PIECE_COPY ? p->from->shape[i] : p->shape[i]));
    json_put_str(o, "dtype", st_type_name(p->type));
    json_put(o, "shape", shape);
    json_put(o, "data_offsets", json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + p->bytes)));
    return json_object_set_new(header, p->name, o) ? err_set(why, ERR_NOMEM, "out of memory for a header")
                                                   : ERR_OK;
}

/* The header of one file: its size in 8 bytes, then JSON, padded with spaces to a multiple of 8. */
static enum err_code header_write(FILE *f, struct piece *const *piece, int64_t n, struct err *why)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    enum err_code rc = header ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a header");
    int64_t at = 0;
    for (int64_t i = 0; i < n && !rc; i++) {
        rc = header_put(header, piece[i], at, why);
        at += piece[i]->bytes;
    }
    char *text = rc ? NULL : json_line(header);
    json_decref(header);
    if (rc) return rc;
    if (!text) return err_set(why, ERR_NOMEM, "out of memory for a header");
    const size_t used = strlen(text), size = (used + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)size >> 8 * i);
    fwrite(length, 1, sizeof length, f);
    fprintf(f, "%s%*s", text, (int)(size - used), "");
    free(text);
    return ERR_OK;
}

struct writing {
    struct exporter *e;
    const char *to; /* folder, with a slash */
    int64_t done;
};

static enum err_code shard_write(struct writing *w, const char *name, struct piece **piece, int64_t n,
                                 struct err *why)
{
    char path[4200];
    struct atomic_file f;
    snprintf(path, sizeof path, "%s%s", w->to, name);
    qsort(piece, (size_t)n, sizeof *piece, piece_compare);
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    rc = header_write(f.stream, piece, n, why);
    for (int64_t i = 0; i < n && !rc; i++) {
        unsigned char *bytes;
        rc = piece_fill(&bytes, w->e, piece[i], why);
        if (!rc && fwrite(bytes, 1, (size_t)piece[i]->bytes, f.stream) != (size_t)piece[i]->bytes)
            rc = err_set(why, err_of_errno(errno), "cannot write '%s': %s", path, strerror(errno));
        free(bytes);
        if (!rc && w->e->step) rc = w->e->step(w->e->ctx, ++w->done, w->e->count, why);
    }
    if (!rc) rc = atomic_file_commit(&f, why);
    atomic_file_abort(&f);
    return rc;
}

static enum err_code document_write(const char *to, const char *name, const json_t *o, struct err *why)
{
    char path[4200], *text = json_write(o, JSON_INDENTED, 0);
    struct atomic_file f;
    snprintf(path, sizeof path, "%s%s", to, name);
    enum err_code rc = text ? atomic_file_open(&f, path, why)
                            : err_set(why, ERR_NOMEM, "out of memory for '%s'", name);
    if (!rc) {
        fprintf(f.stream, "%s\n", text);
        rc = atomic_file_commit(&f, why);
        atomic_file_abort(&f);
    }
    free(text);
    return rc;
}

/* How many files the pieces fill; end[i] is the first piece that is not in file i. */
static int shards_cut(const struct exporter *e, int64_t **end, struct err *why)
{
    int n = 0;
    int64_t bytes = 0;
    *end = malloc((size_t)(e->count + 1) * sizeof **end);
    if (!*end) return err_set(why, ERR_NOMEM, "out of memory for the list of files"), 0;
    for (int64_t i = 0; i < e->count; i++) {
        if (bytes && bytes + e->pieces[i].bytes > e->shard_bytes) {
            (*end)[n++] = i;
            bytes = 0;
        }
        bytes += e->pieces[i].bytes;
    }
    (*end)[n++] = e->count;
    return n;
}

static enum err_code weights_write(struct writing *w, struct err *why)
{
    struct exporter *e = w->e;
    int64_t *end, first = 0;
    const int n = shards_cut(e, &end, why);
    struct piece **piece = malloc((size_t)e->count * sizeof *piece);
    json_t *map = json_object();
    enum err_code rc = n && piece && map ? ERR_OK
                                         : err_set(why, ERR_NOMEM, "out of memory for the list of files");
    for (int64_t i = 0; i < e->count && !rc; i++) piece[i] = &e->pieces[i];
    for (int s = 0; s < n && !rc; s++) {
        char name[64] = "model.safetensors";
        if (n > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, n);
        for (int64_t i = first; i < end[s]; i++) {
            e->report.bytes += e->pieces[i].bytes;
            json_put_str(map, e->pieces[i].name, name);
        }
        rc = shard_write(w, name, piece + first, end[s] - first, why);
        first = end[s];
    }
    e->report.files = n;
    if (!rc && n > 1) {
        json_t *index = json_pack("{s:{s:I},s:O}", "metadata", "total_size", (json_int_t)e->report.bytes,
                                  "weight_map", map);
        rc = index ? document_write(w->to, "model.safetensors.index.json", index, why)
                   : err_set(why, ERR_NOMEM, "out of memory for the index");
        json_decref(index);
    }
    json_decref(map);
    free(piece);
    free(end);
    return rc;
}

/* ---------------------------------------------------------------- config */

static json_t *gptq_options(const struct exporter *e)
{
    return json_pack("{s:s,s:i,s:I,s:b,s:b,s:b,s:s,s:s,s:{s:s}}", "quant_method", "gptq", "bits",
                     e->report.bits, "group_size", (json_int_t)e->report.group, "desc_act",
                     e->report.act_order, "sym", e->report.symmetric, "lm_head", false, "checkpoint_format",
                     e->zero_of_0 ? "gptq_v2" : "gptq", "pack_dtype", "int32", "meta", "quantizer", "qdyno");
}

static json_t *awq_options(const struct exporter *e)
{
    return json_pack("{s:s,s:i,s:I,s:b,s:s,s:O?}", "quant_method", "awq", "bits", e->report.bits,
                     "group_size", (json_int_t)e->report.group, "zero_point", true, "version", "gemm",
                     "modules_to_not_convert", json_array_size(e->kept) ? e->kept : NULL);
}

static json_t *packed_options(const struct exporter *e)
{
    json_t *ignore = json_copy(e->kept), *order = e->report.act_order ? json_string("group") : json_null();
    json_array_append_new(ignore, json_string("lm_head"));
    return json_pack("{s:s,s:s,s:s,s:o,s:{s:{s:[s],s:n,s:n,s:{s:i,s:s,s:b,s:s,s:I,s:b,s:o}}}}",
                     "quant_method", "compressed-tensors", "format", "pack-quantized", "quantization_status",
                     "compressed", "ignore", ignore, "config_groups", "group_0", "targets", "Linear",
                     "input_activations", "output_activations", "weights", "num_bits", e->report.bits, "type",
                     "int", "symmetric", e->report.symmetric, "strategy", "group", "group_size",
                     (json_int_t)e->report.group, "dynamic", false, "actorder", order);
}

static enum err_code config_write(const struct exporter *e, const char *to, struct err *why)
{
    json_t *(*const OPTIONS[])(const struct exporter *) = {
        [EXPORT_GPTQ] = gptq_options, [EXPORT_AWQ] = awq_options, [EXPORT_PACKED] = packed_options
    };
    json_t *options = OPTIONS[e->kind](e), *config = json_copy(e->c.config);
    enum err_code rc = options && config ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for config.json");
    if (!rc) {
        json_object_set(config, "quantization_config", options);
        rc = document_write(to, "config.json", config, why);
    }
    if (!rc && e->kind == EXPORT_GPTQ) rc = document_write(to, "quantize_config.json", options, why);
    json_decref(options);
    json_decref(config);
    return rc;
}

static enum err_code file_copy(const char *from, const char *to, struct err *why)
{
    struct file_map map;
    struct atomic_file f;
    enum err_code rc = file_map(&map, from, why);
    if (rc) return rc;
    rc = atomic_file_open(&f, to, why);
    if (!rc && fwrite(map.data, 1, map.size, f.stream) != map.size)
        rc = err_set(why, err_of_errno(errno), "cannot write '%s': %s", to, strerror(errno));
    if (!rc) rc = atomic_file_commit(&f, why);
    atomic_file_abort(&f);
    if (!rc) rc = file_map_check(&map, why);
    file_unmap(&map);
    return rc;
}

static enum err_code others_copy(const struct exporter *e, const char *to, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < COUNT_OF(COPIED) && !rc; i++) {
        char from[4200], target[4200];
        struct stat s;
        snprintf(from, sizeof from, "%s%s", e->c.folder, COPIED[i]);
        snprintf(target, sizeof target, "%s%s", to, COPIED[i]);
        if (!stat(from, &s)) rc = file_copy(from, target, why);
    }
    return rc;
}

enum err_code export_files(struct exporter *e, const char *to, struct err *why)
{
    struct writing w = { .e = e, .to = to };
    enum err_code rc = weights_write(&w, why);
    if (!rc) rc = config_write(e, to, why);
    return rc ? rc : others_copy(e, to, why);
}
