/* engine/arch/quantization.c - the name that people know a file's quantization by, such as Q4_K_M.
 *
 * Three places tell it: the metadata (general.file_type), the file's name, and the formats of its tensors.
 * The format of most bytes is no name: in a small Q4_K_M file the token embedding alone, in q8_0, has most
 * bytes. Metadata comes before the name, because people rename files; but a name is never shown that no
 * tensor bears out, and what contradicts is told. Files that qdyno quantized contain their recipe, which
 * comes first. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/arch/arch_internal.h"
#include "engine/gguf/gguf.h"

enum { NO_VALUE = -1, GUESSED = 1024 /* LLAMA_FTYPE_GUESSED, a bit beside the value */ };

/* Every value of llama.cpp's enum llama_ftype, and names without a value that files are called by. `narrow`
 * is the format of matrices whose rows do not fill blocks of 256 weights; NULL: the base fits any row. */
static const struct file_type {
    int value;
    const char *tag, *base, *narrow;
} FILE_TYPES[] = {
    { 0, "F32", "F32", NULL },
    { 1, "F16", "F16", NULL },
    { 2, "Q4_0", "Q4_0", NULL },
    { 3, "Q4_1", "Q4_1", NULL },
    { 4, "Q4_1_SOME_F16", "Q4_1", NULL },
    { 5, "Q4_2", "Q4_2", NULL },
    { 6, "Q4_3", "Q4_3", NULL },
    { 7, "Q8_0", "Q8_0", NULL },
    { 8, "Q5_0", "Q5_0", NULL },
    { 9, "Q5_1", "Q5_1", NULL },
    { 10, "Q2_K", "Q2_K", "IQ4_NL" },
    { 11, "Q3_K_S", "Q3_K", "IQ4_NL" },
    { 12, "Q3_K_M", "Q3_K", "IQ4_NL" },
    { 13, "Q3_K_L", "Q3_K", "IQ4_NL" },
    { 14, "Q4_K_S", "Q4_K", "Q5_0" },
    { 15, "Q4_K_M", "Q4_K", "Q5_0" },
    { 16, "Q5_K_S", "Q5_K", "Q5_1" },
    { 17, "Q5_K_M", "Q5_K", "Q5_1" },
    { 18, "Q6_K", "Q6_K", "Q8_0" },
    { 19, "IQ2_XXS", "IQ2_XXS", "IQ4_NL" },
    { 20, "IQ2_XS", "IQ2_XS", "IQ4_NL" },
    { 21, "Q2_K_S", "Q2_K", "IQ4_NL" },
    { 22, "IQ3_XS", "IQ3_S", "IQ4_NL" },
    { 23, "IQ3_XXS", "IQ3_XXS", "IQ4_NL" },
    { 24, "IQ1_S", "IQ1_S", "IQ4_NL" },
    { 25, "IQ4_NL", "IQ4_NL", NULL },
    { 26, "IQ3_S", "IQ3_S", "IQ4_NL" },
    { 27, "IQ3_M", "IQ3_S", "IQ4_NL" },
    { 28, "IQ2_S", "IQ2_XS", "IQ4_NL" },
    { 29, "IQ2_M", "IQ2_S", "IQ4_NL" },
    { 30, "IQ4_XS", "IQ4_XS", "IQ4_NL" },
    { 31, "IQ1_M", "IQ1_M", "IQ4_NL" },
    { 32, "BF16", "BF16", NULL },
    { 33, "Q4_0_4_4", "Q4_0_4_4", NULL },
    { 34, "Q4_0_4_8", "Q4_0_4_8", NULL },
    { 35, "Q4_0_8_8", "Q4_0_8_8", NULL },
    { 36, "TQ1_0", "TQ1_0", "Q4_0" },
    { 37, "TQ2_0", "TQ2_0", "Q4_0" },
    { 38, "MXFP4_MOE", "MXFP4", NULL },
    { 39, "NVFP4", "NVFP4", NULL },
    { 40, "Q1_0", "Q1_0", NULL },
    { NO_VALUE, "Q3_K", "Q3_K", "IQ4_NL" },
    { NO_VALUE, "Q4_K", "Q4_K", "Q5_0" },
    { NO_VALUE, "Q5_K", "Q5_K", "Q5_1" },
    { NO_VALUE, "Q8_K", "Q8_0", NULL },
    { NO_VALUE, "MXFP4", "MXFP4", NULL },
    { NO_VALUE, "FP16", "F16", NULL },
    { NO_VALUE, "FP32", "F32", NULL },
};

static const struct file_type *type_of_value(int64_t value)
{
    for (size_t i = 0; i < COUNT_OF(FILE_TYPES) && value >= 0; i++)
        if (FILE_TYPES[i].value == (value & ~(int64_t)GUESSED)) return &FILE_TYPES[i];
    return NULL;
}

/* ---------------------------------------------------------------- the file's name */

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Sizes that quantizers append to the names of llama.cpp: Q4_K_XL, Q6_K_L. */
static size_t size_suffix(const char *at)
{
    static const char *const SIZES[] = { "_XXL", "_XL", "_L", "_M", "_S" };
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        const size_t n = strlen(SIZES[i]);
        if (!strncasecmp(at, SIZES[i], n) && !is_word(at[n])) return n;
    }
    return 0;
}

/* The longest name that starts here and ends with a word; *length with its suffix. NULL: none. */
static const struct file_type *type_at(const char *at, size_t *length)
{
    const struct file_type *best = NULL;
    *length = 0;
    for (size_t i = 0; i < COUNT_OF(FILE_TYPES); i++) {
        const size_t n = strlen(FILE_TYPES[i].tag);
        if (strncasecmp(at, FILE_TYPES[i].tag, n)) continue;
        const size_t more = size_suffix(at + n);
        if (is_word(at[n + more]) || n + more <= *length) continue;
        *length = n + more;
        best = &FILE_TYPES[i];
    }
    return best;
}

/* The last name in a file's name, as people write it ("UD-Q4_K_XL"). */
static const struct file_type *type_of_path(const char *path, char *tag, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const struct file_type *found = NULL;
    tag[0] = '\0';
    for (const char *p = name; *p; p++) {
        size_t n;
        if (p > name && is_word(p[-1])) continue;
        const struct file_type *f = type_at(p, &n);
        if (!f) continue;
        const bool dynamic = p - name >= 3 && !strncasecmp(p - 3, "UD-", 3); /* Unsloth's dynamic mixes */
        snprintf(tag, size, "%s%.*s", dynamic ? "UD-" : "", (int)n, p);
        for (char *c = tag; *c; c++)
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        found = f;
        p += n - 1;
    }
    return found;
}

bool quantization_tag_of_path(const char *path, char *tag, size_t size)
{
    return type_of_path(path, tag, size) != NULL;
}

/* ---------------------------------------------------------------- the tensors */

/* Whether some matrix has the format that this type gives to most matrices. */
static bool is_borne_out(const struct file_type *f, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const char *name = t->format ? t->format->name : t->type_name;
        if (t->dims < 2 || !name) continue;
        if (!strcasecmp(name, f->base)) return true;
        if (f->narrow && t->shape[0] % 256 && !strcasecmp(name, f->narrow)) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- all together */

static void take(struct quantization_name *out, const char *name, const char *base,
                 enum quantization_source from)
{
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, name);
    snprintf(out->base, sizeof out->base, "%.*s", (int)sizeof out->base - 1, base);
    out->source = from;
}

/* Metadata and the file's name both agree with the tensors but not with each other. A variant of the same
 * base (UD-Q4_K_XL of Q4_K_M), for which the metadata has no number, is the more specific name. */
static void take_of_two(struct quantization_name *out, const struct file_type *meta,
                        const struct file_type *file, const char *tag)
{
    const bool variant = !strcasecmp(meta->base, file->base) && strcasecmp(tag, file->tag) != 0;
    take(out, variant ? tag : meta->tag, meta->base,
         variant ? QUANTIZATION_FILE_NAME : QUANTIZATION_METADATA);
    if (!strcasecmp(tag, meta->tag)) return;
    if (variant)
        snprintf(out->note, sizeof out->note, "the metadata (general.file_type) calls it %s", meta->tag);
    else
        snprintf(out->note, sizeof out->note,
                 "the file's name says %s, the metadata (general.file_type) says %s", tag, meta->tag);
}

static void note_refuted(struct quantization_name *out, const struct file_type *meta, bool meta_refuted,
                         const char *tag, bool tag_refuted)
{
    if (meta_refuted && tag_refuted && strcasecmp(meta->tag, tag))
        snprintf(out->note, sizeof out->note,
                 "the metadata says %s and the file's name %s, but no matrix has the format of either",
                 meta->tag, tag);
    else if (meta_refuted || tag_refuted)
        snprintf(out->note, sizeof out->note, "%s %s, but no matrix has its format",
                 meta_refuted && tag_refuted ? "the metadata and the file's name say"
                 : meta_refuted              ? "the metadata (general.file_type) says"
                                             : "the file's name says",
                 meta_refuted ? meta->tag : tag);
}

void quantization_name_read(struct quantization_name *out, const struct gguf *g, const char *path,
                            const char *dominant)
{
    char tag[sizeof out->name], recipe[sizeof out->name] = "";
    const struct file_type *meta = type_of_value(gguf_get_int(g, "general.file_type", NO_VALUE)),
                           *file = type_of_path(path ? path : "", tag, sizeof tag);
    const bool meta_holds = meta && is_borne_out(meta, g), file_holds = file && is_borne_out(file, g);
    const struct gguf_string own = gguf_get_string(g, "qdyno.recipe");
    *out = (struct quantization_name){ .name = "" };
    if (own.data) snprintf(recipe, sizeof recipe, "%.*s", (int)MIN(own.len, sizeof recipe - 1), own.data);
    if (*recipe && !(meta_holds && strcasestr(recipe, meta->tag)))
        take(out, recipe, dominant,
             QUANTIZATION_RECIPE); /* what was asked for: file types have too few values */
    else if (meta_holds && file_holds)
        take_of_two(out, meta, file, tag);
    else if (meta_holds)
        take(out, meta->tag, meta->base, QUANTIZATION_METADATA);
    else if (file_holds)
        take(out, tag, file->base, QUANTIZATION_FILE_NAME);
    else
        take(out, dominant, dominant, QUANTIZATION_TENSORS);
    if (out->source != QUANTIZATION_RECIPE)
        note_refuted(out, meta, meta && !meta_holds, tag, file && !file_holds);
    out->mostly_other = *dominant && strcasecmp(out->base, dominant) != 0;
}

const char *quantization_source_name(enum quantization_source s)
{
    static const char *const NAMES[] = { "recipe", "metadata", "file name", "tensors" };
    return (size_t)s < COUNT_OF(NAMES) ? NAMES[s] : "tensors";
}

const char *quantization_short(const struct model_shape *s)
{
    return *s->quantization.name ? s->quantization.name : s->dominant_format;
}

const char *quantization_text(const struct model_shape *s, char *buf, size_t size)
{
    const bool detail = s->quantization.mostly_other;
    snprintf(buf, size, "%s%s%s%s", quantization_short(s), detail ? " (most bytes " : "",
             detail ? s->dominant_format : "", detail ? ")" : "");
    return buf;
}

const char *file_type_tag(int64_t file_type)
{
    const struct file_type *f = type_of_value(file_type);
    return f ? f->tag : NULL;
}
