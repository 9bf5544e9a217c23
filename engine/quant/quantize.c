/* Quantizes a GGUF file. First it decides from headers alone how each tensor is converted, and rejects what
 * cannot be done. Then it writes the header (metadata, tensor directory) and converts the tensors. The target
 * path appears only when the whole file is written. */
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/calibration.h"
#include "engine/quant/effective.h"
#include "engine/quant/quantize_internal.h"

enum { QUANTIZATION_VERSION = 2 };

/* general.file_type as llama.cpp numbers it (enum llama_ftype), for programs that display it. */
static const struct {
    enum format_id format;
    uint32_t file_type;
} FILE_TYPES[] = {
    { .format = FORMAT_F32, .file_type = 0 },      { .format = FORMAT_F16, .file_type = 1 },
    { .format = FORMAT_Q4_0, .file_type = 2 },     { .format = FORMAT_Q4_1, .file_type = 3 },
    { .format = FORMAT_Q8_0, .file_type = 7 },     { .format = FORMAT_Q5_0, .file_type = 8 },
    { .format = FORMAT_Q5_1, .file_type = 9 },     { .format = FORMAT_Q2_K, .file_type = 10 },
    { .format = FORMAT_Q3_K, .file_type = 12 },    { .format = FORMAT_Q4_K, .file_type = 15 },
    { .format = FORMAT_Q5_K, .file_type = 17 },    { .format = FORMAT_Q6_K, .file_type = 18 },
    { .format = FORMAT_IQ4_NL, .file_type = 25 },  { .format = FORMAT_IQ4_XS, .file_type = 30 },
    { .format = FORMAT_IQ1_S, .file_type = 24 },   { .format = FORMAT_IQ1_M, .file_type = 31 },
    { .format = FORMAT_IQ2_XXS, .file_type = 19 }, { .format = FORMAT_IQ2_XS, .file_type = 20 },
    { .format = FORMAT_IQ2_S, .file_type = 29 },   { .format = FORMAT_IQ3_XXS, .file_type = 23 },
    { .format = FORMAT_IQ3_S, .file_type = 26 },   { .format = FORMAT_BF16, .file_type = 32 }
};

/* Metadata that is not copied: written again below, or only true for the source file's container. */
static const char *const DROPPED_KEYS[] = { "general.file_type", "general.quantization_version",
                                            "general.alignment", "qdyno.recipe",
                                            "qdyno.plugin",      "qdyno.source",
                                            "qdyno.calibration", "split.no",
                                            "split.count",       "split.tensors.count" };

/* ---------------------------------------------------------------- how each tensor is converted */

bool format_is_float(const struct format *f)
{
    return f == &FORMATS[FORMAT_F32] || f == &FORMATS[FORMAT_F16] || f == &FORMATS[FORMAT_BF16];
}

/* Does the unit only write the values that a quantized tensor means as floats? */
static bool unit_is_dequantization(const struct quantization *q, const struct unit *u)
{
    return u->converts && !format_is_float(u->source->format) && format_is_float(u->format) &&
           (!u->by_method || q->params.method == &METHOD_RTN);
}

/* Do other tensors of the source say what this matrix means (order of columns, divisors, a scale)? */
static bool has_parts(const struct quantization *q, const struct gguf_tensor *matrix)
{
    char name[160];
    bool has = false;
    for (int64_t i = 0; i < gguf_tensor_count(q->source) && !has; i++)
        has = effective_is_part(q->source, gguf_tensor_at(q->source, i)->name, name, sizeof name) &&
              !strcmp(name, matrix->name);
    return has;
}

/* Reject what can be rejected from headers, before anything is written. */
static enum err_code unit_check(const struct quantization *q, const struct unit *u, struct err *why)
{
    const struct gguf_tensor *t = u->source;
    const struct format *format = u->format;
    const bool weighed = u->by_method && method_needs(&q->params) != CALIBRATION_NONE;
    if (u->dequantizes && !t->format->decode)
        return err_set(why, ERR_USAGE, "tensor '%s': %s has no decoder, so it cannot become %s", t->name,
                       t->format->name, format->name);
    const bool again = !format_is_float(t->format) && !u->dequantizes;
    if (again && !config_choice(q->options->config, KNOB_REQUANTIZE))
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' is already quantized (%s): if it were quantized again to %s, the loss of the first "
            "quantization would not appear in the reported error; use an f32, f16 or bf16 file, such as `qdyno "
            "quantize` makes of this one with -R f16, or `ab` and `tune` with --requantize (requantize=on), whose "
            "losses are against this file",
            t->name, t->format->name, format->name);
    if (again && (!t->format->decode || has_parts(q, t)))
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' (%s) cannot be quantized again directly: make a file of its values first, "
            "with `qdyno quantize IN OUT -R f16`",
            t->name, t->format->name);
    if (u->dequantizes && u->layer >= 0 && q->params.method && q->params.method->layer && has_parts(q, t))
        return err_set(why, ERR_USAGE,
                       "tensor '%s' is quantized (%s) with tensors that belong to it, and method %s works on "
                       "whole layers, so it cannot turn it into %s: first quantize the file with -R f16, or "
                       "leave this tensor as it is",
                       t->name, t->format->name, q->params.method->name, format->name);
    if (!format->encode)
        return err_set(why, ERR_USAGE, "tensor '%s': %s has no encoder, so it can be read but not written",
                       t->name, format->name);
    if (format->needs_importance && !weighed)
        return err_set(
            why, ERR_USAGE,
            "tensor '%s': %s without an importance matrix gives a useless model; use a recipe with one, "
            "such as gguf,type=iq2_xs,imatrix=true,calib=FILE, or a larger format, such as q2_K",
            t->name, format->name);
    return ERR_OK;
}

enum err_code units_check_importance(const struct quantization *q, struct err *why)
{
    for (int64_t i = 0; i < q->count; i++) {
        const struct unit *u = &q->units[i];
        if (!u->converts || !u->format->needs_importance || unit_job(q, u).input) continue;
        return err_set(why, ERR_USAGE,
                       "tensor '%s': %s without an importance matrix gives a useless matrix, and %s has no "
                       "statistics of its inputs; give this tensor another format, such as tensors=%s:q2_K",
                       u->source->name, u->format->name,
                       q->calibration ? calibration_name(q->calibration) : "the calibration",
                       u->source->name);
    }
    return ERR_OK;
}

/* "blk.12.ffn_up.weight" is in layer 12; -1: in no layer. */
static int tensor_layer(const char *name)
{
    char *end;
    if (strncmp(name, "blk.", 4)) return -1;
    const long n = strtol(name + 4, &end, 10);
    return end > name + 4 && *end == '.' && n >= 0 && n < INT32_MAX ? (int)n : -1;
}

static struct unit unit_of(const struct quantization *q, const struct gguf_tensor *t)
{
    const struct config *c = q->options->config;
    struct unit u = { .source = t,
                      .format = recipe_tensor_format(c, q->source, t, NULL),
                      .converts = recipe_converts(c, q->source, t),
                      .layer = tensor_layer(t->name) };
    u.by_method = u.converts && q->params.method && method_makes(q->params.method, u.format);
    u.dequantizes = unit_is_dequantization(q, &u);
    return u;
}

/* Does the tensor belong to a matrix that is dequantized? The values of that matrix then include it. */
static bool unit_is_included(const struct quantization *q, const struct unit *u)
{
    char name[160];
    if (!effective_is_part(q->source, u->source->name, name, sizeof name)) return false;
    const struct gguf_tensor *matrix = gguf_tensor_find(q->source, name);
    return matrix && unit_of(q, matrix).dequantizes;
}

enum err_code units_plan(struct quantization *q, struct err *why)
{
    q->count = gguf_tensor_count(q->source);
    q->units = calloc((size_t)q->count + 1, sizeof *q->units);
    if (!q->units) return err_set(why, ERR_NOMEM, "out of memory while quantizing");
    for (int64_t i = 0; i < q->count; i++) {
        struct unit *u = &q->units[i];
        *u = unit_of(q, gguf_tensor_at(q->source, i));
        u->drops = unit_is_included(q, u);
        enum err_code rc = u->converts ? unit_check(q, u, why) : ERR_OK;
        if (rc) return rc;
        q->total += u->source->bytes;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- writing the file */

/* Matrices that stay quantized keep the way in which their inputs are quantized, unless the method sets it.
 */
static bool keeps_activations(const struct quantization *q)
{
    bool stays = false;
    for (int64_t i = 0; i < q->count; i++) {
        const struct unit *u = &q->units[i];
        stays |= !u->converts && !format_is_float(u->source->format);
    }
    return stays && !(q->params.method && q->params.method->act);
}

static bool key_is_dropped(const struct gguf_kv *kv, bool keeps_act)
{
    for (size_t i = 0; i < COUNT_OF(DROPPED_KEYS); i++)
        if (gguf_string_is(kv->key, DROPPED_KEYS[i])) return true;
    return !keeps_act && act_is_key(kv->key);
}

/* Write the metadata: the source's keys, file type, recipe, source hash, activation quantization. */
static enum err_code quantization_write_metadata(struct quantization *q, struct err *why)
{
    char recipe[3 * CONFIG_VALUE], hash[HASH_HEX];
    struct gguf_writer *w = q->writer;
    const struct config *config = q->options->config;
    enum err_code rc = model_identity(q->source, hash, why);
    if (rc) return rc;
    const bool keeps_act = keeps_activations(q);
    for (int64_t i = 0; i < gguf_kv_count(q->source) && !rc; i++)
        if (!key_is_dropped(gguf_kv_at(q->source, i), keeps_act))
            rc = gguf_writer_copy_kv(w, gguf_kv_at(q->source, i));
    const struct format *f = format_find(config_text(config, KNOB_FORMAT));
    if (q->params.method && q->params.method->file_type && !rc)
        rc = gguf_writer_put_u32(w, "general.file_type", q->params.method->file_type(&q->params));
    else
        for (size_t i = 0; f && i < COUNT_OF(FILE_TYPES) && !rc; i++)
            if (f == &FORMATS[FILE_TYPES[i].format])
                rc = gguf_writer_put_u32(w, "general.file_type", FILE_TYPES[i].file_type);
    if (!rc) rc = gguf_writer_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    if (!rc) rc = gguf_writer_put_string(w, "qdyno.recipe", config_recipe(config, recipe, sizeof recipe));
    if (!rc) rc = gguf_writer_put_string(w, SOURCE_KEY, hash);
    if (!rc && q->params.method && q->params.method->act) {
        const struct act_scheme act = q->params.method->act(&q->params);
        rc = act_put(w, &act, f);
    }
    if (!rc && q->params.method && q->params.method->identity)
        rc = gguf_writer_put_string(w, "qdyno.plugin", q->params.method->identity);
    if (!rc && q->calibration)
        rc = gguf_writer_put_string(w, "qdyno.calibration", calibration_name(q->calibration));
    return rc ? err_set(why, rc, "cannot write the metadata of the quantized file: %s", err_text(rc))
              : ERR_OK;
}

void unit_list_companions(const struct quantization *q, struct unit *u)
{
    if (!u->by_method || !q->params.method->companions) return;
    const struct tensor_job job = unit_job(q, u);
    u->companions = q->params.method->companions(&job, u->companion);
}

/* Declare a tensor and its companion tensors in the new file. */
static enum err_code unit_declare(struct quantization *q, struct unit *u, struct err *why)
{
    const struct gguf_tensor *t = u->source;
    if (u->drops) return ERR_OK;
    enum err_code rc = gguf_writer_add_tensor(q->writer, t->name, u->format, t->dims, t->shape);
    unit_list_companions(q, u);
    for (int i = 0; i < u->companions && !rc; i++) {
        char name[160];
        const struct companion_tensor *s = &u->companion[i];
        rc = gguf_writer_add_tensor(q->writer, companion_name(t->name, s->what, name, sizeof name),
                                    companion_format(s->what), 1, &s->size);
    }
    return rc ? err_set(why, rc, "cannot declare tensor '%s': %s", t->name, err_text(rc)) : ERR_OK;
}

/* Create the file, or reopen an interrupted one, and declare its contents. */
static enum err_code quantization_open_target(struct quantization *q, const char *path, struct err *why)
{
    enum err_code rc = q->options->resume ? gguf_writer_resume(&q->writer, path, why)
                                          : gguf_writer_open(&q->writer, path, why);
    if (!rc) rc = quantization_write_metadata(q, why);
    for (int64_t i = 0; i < q->count && !rc; i++) rc = unit_declare(q, &q->units[i], why);
    return rc;
}

enum err_code quantize_report(struct quantization *q, int64_t bytes, struct err *why)
{
    const struct quantize_options *o = q->options;
    const enum err_code rc = gguf_check_unchanged(q->source, why);
    if (rc) return rc;
    q->done += bytes;
    if (o->progress && !o->progress(o->ctx, q->total ? (double)q->done / (double)q->total : 1))
        return err_set(why, ERR_CANCELLED, "cancelled");
    return ERR_OK;
}

/* With a method that has `layer`, tensors of layers are converted layer by layer, after all others. */
static enum err_code quantization_write_units(struct quantization *q, struct err *why)
{
    const bool layers = q->params.method && q->params.method->layer;
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < q->count && !rc; i++) {
        struct unit *u = &q->units[i];
        if (layers && u->layer >= 0) continue;
        rc = u->drops || unit_finished(q, u) ? quantize_report(q, u->source->bytes, why)
                                             : unit_write(q, u, why);
        if (u->source->made) gguf_tensor_drop(u->source); /* no model is open that uses its bytes */
    }
    return rc || !layers ? rc : layers_quantize(q, why);
}

enum err_code quantize_file(const char *out_path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why)
{
    struct quantization q = { .options = o, .source = source, .params = config_params(o->config) };
    const struct threadpool_options pool = { .threads = MAX(o->threads, 1) };
    enum err_code rc;
    if ((rc = units_plan(&q, why))) goto done;
    if ((rc = quantize_calibrate(&q, why))) goto done;
    if ((rc = units_check_importance(&q, why))) goto done;
    quantize_note_floored(&q);
    if ((rc = threadpool_open(&q.pool, &pool, why))) goto done;
    if ((rc = quantization_open_target(&q, out_path, why))) goto done;
    if ((rc = quantization_write_units(&q, why))) goto done;
    if ((rc = gguf_check_unchanged(q.source, why))) goto done; /* its hash is in the new file's metadata */
    rc = gguf_writer_commit(q.writer, why);
    q.writer = NULL;
done:
    if (rc && gguf_check_unchanged(source, why)) { /* what is written may be of the changed file: not kept */
        rc = ERR_FORMAT;
        gguf_writer_discard(q.writer);
        q.writer = NULL;
    }
    gguf_writer_abort(q.writer);
    threadpool_close(q.pool);
    calibration_close(q.calibration);
    free(q.units);
    return rc;
}
