/* Plans the tensors of an exported checkpoint, and proves that it means what the quantized model means. */
#include "engine/import/export.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/import/export_internal.h"
#include "engine/import/families.h"
#include "engine/import/metadata.h"
#include "engine/import/tensors.h"
#include "kernels/kernels.h"

const char *const EXPORT_NAMES[] = { [EXPORT_GPTQ] = "gptq",
                                     [EXPORT_AWQ] = "awq",
                                     [EXPORT_PACKED] = "compressed-tensors",
                                     [EXPORT_KIND_COUNT] = NULL };

/* ---------------------------------------------------------------- pieces */

static enum err_code no_memory(struct err *why)
{
    return err_set(why, ERR_NOMEM, "out of memory for the tensors of a checkpoint");
}

static struct piece *piece_add(struct exporter *e, enum piece_kind kind, const char *name, struct err *why)
{
    if (e->count == e->room) {
        const int64_t room = e->room ? 2 * e->room : 256;
        struct piece *more = realloc(e->pieces, (size_t)room * sizeof *more);
        if (!more) return no_memory(why), NULL;
        e->pieces = more;
        e->room = room;
    }
    const char *kept = arena_strdup(&e->memory, name);
    if (!kept) return no_memory(why), NULL;
    struct piece *p = &e->pieces[e->count++];
    *p = (struct piece){ .name = kept, .kind = kind };
    return p;
}

static void piece_set_shape(struct piece *p, enum st_type type, int dims, int64_t first, int64_t second)
{
    static const int SIZE[ST_TYPE_COUNT] = { [ST_F16] = 2, [ST_F32] = 4, [ST_I32] = 4, [ST_I64] = 8 };
    p->type = type;
    p->dims = dims;
    p->shape[0] = first;
    p->shape[1] = second;
    p->bytes = first * (dims > 1 ? second : 1) * SIZE[type];
}

static enum err_code copy_add(struct exporter *e, const struct st_tensor *from, struct err *why)
{
    struct piece *p = piece_add(e, PIECE_COPY, from->name, why);
    if (!p) return ERR_NOMEM;
    p->from = from;
    p->type = from->type;
    p->bytes = from->bytes;
    e->report.copied++;
    return ERR_OK;
}

static enum err_code floats_add(struct exporter *e, const struct st_tensor *from, const struct origin *o,
                                const struct gguf_tensor *made, struct err *why)
{
    struct piece *p = piece_add(e, PIECE_FLOATS, from->name, why);
    if (!p) return ERR_NOMEM;
    piece_set_shape(p, ST_F32, from->dims, from->shape[0], from->shape[1]);
    p->origin = o;
    p->made = made;
    return ERR_OK;
}

/* A tensor "STEM.suffix" of a quantized matrix. */
static enum err_code part_add(struct exporter *e, enum piece_kind kind, const struct piece *like,
                              const char *suffix, enum st_type type, int dims, int64_t first, int64_t second,
                              struct err *why)
{
    char name[400];
    const size_t stem = strlen(like->origin->theirs) - strlen(".weight");
    snprintf(name, sizeof name, "%.*s.%s", (int)stem, like->origin->theirs, suffix);
    struct piece *p = piece_add(e, kind, name, why);
    if (!p) return ERR_NOMEM;
    piece_set_shape(p, type, dims, first, second);
    p->origin = like->origin;
    p->made = like->made;
    p->order = like->order;
    return ERR_OK;
}

static enum err_code matrix_add(struct exporter *e, const struct piece *like, struct err *why)
{
    const int64_t rows = like->made->shape[1], cols = like->made->shape[0], bits = e->report.bits,
                  groups = cols / e->report.group;
    if (e->kind == EXPORT_PACKED) {
        enum err_code rc = part_add(e, PIECE_CODES, like, "weight_packed", ST_I32, 2, rows, cols * bits / 32,
                                    why);
        if (!rc) rc = part_add(e, PIECE_SCALES, like, "weight_scale", ST_F16, 2, rows, groups, why);
        if (!rc)
            rc = part_add(e, PIECE_ZEROS, like, "weight_zero_point", ST_I32, 2, rows * bits / 32, groups,
                          why);
        if (!rc && like->order) rc = part_add(e, PIECE_GROUPS, like, "weight_g_idx", ST_I32, 1, cols, 1, why);
        return rc ? rc : part_add(e, PIECE_SHAPE, like, "weight_shape", ST_I64, 1, 2, 1, why);
    }
    const bool awq = e->kind == EXPORT_AWQ;
    enum err_code rc = part_add(e, PIECE_CODES, like, "qweight", ST_I32, 2, awq ? cols : cols * bits / 32,
                                awq ? rows / 8 : rows, why);
    if (!rc) rc = part_add(e, PIECE_ZEROS, like, "qzeros", ST_I32, 2, groups, rows * bits / 32, why);
    if (!rc) rc = part_add(e, PIECE_SCALES, like, "scales", ST_F16, 2, groups, rows, why);
    if (!rc && !awq) rc = part_add(e, PIECE_GROUPS, like, "g_idx", ST_I32, 1, cols, 1, why);
    return rc;
}

/* ---------------------------------------------------------------- the plan */

static bool is_end(const char *ours)
{
    return !strcmp(ours, ARCH_SLOTS[SLOT_TOKEN_EMBD].name) || !strcmp(ours, ARCH_SLOTS[SLOT_OUTPUT].name);
}

/* Whether the quantizer left our tensor as the checkpoint has it. */
static bool is_unchanged(const struct gguf *source, const struct gguf_tensor *made)
{
    const struct gguf_tensor *t = gguf_tensor_find(source, made->name);
    const unsigned char *a, *b;
    if (!t || t->format != made->format || t->bytes != made->bytes) return false;
    a = gguf_tensor_data(t);
    b = gguf_tensor_data(made);
    const bool same = a && b && !memcmp(a, b, (size_t)t->bytes);
    gguf_tensor_drop(t);
    gguf_tensor_drop(made);
    return same;
}

static enum err_code companions_check(const struct exporter *e, const char *ours, struct err *why)
{
    static const struct {
        enum companion_kind what;
        const char *text;
    } REFUSED[] = { { COMPANION_DIVISORS, "divides its inputs" },
                    { COMPANION_INPUT_SCALE, "has a scale for its inputs" },
                    { COMPANION_OUTLIERS, "has columns of outliers" } };
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++)
        if (companion_find(e->made, ours, REFUSED[i].what))
            return err_set(why, ERR_USAGE, "tensor '%s' %s, which --to %s cannot hold", ours, REFUSED[i].text,
                           EXPORT_NAMES[e->kind]);
    return ERR_OK;
}

/* The order of a matrix's columns; NULL: it has none. */
static const float *order_of(const struct gguf *g, const char *matrix)
{
    const struct gguf_tensor *order = companion_find(g, matrix, COMPANION_ORDER);
    return order ? (const float *)(const void *)gguf_tensor_data(order) : NULL;
}

/* A matrix with codes: checked, and split into the tensors of its form. */
static enum err_code quantized_add(struct exporter *e, const struct origin *o, const struct gguf_tensor *made,
                                   struct err *why)
{
    const struct gguf_tensor *order = companion_find(e->made, made->name, COMPANION_ORDER);
    const struct piece like = { .origin = o,
                                .made = made,
                                .order = order ? (const float *)(const void *)gguf_tensor_data(order)
                                               : NULL };
    if (!format_group_bits(made->format))
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' is %s, which --to %s cannot hold: expected a recipe that makes groups with a scale and "
            "a zero point, such as -R gptq or -R awq",
            made->name, made->format->name, EXPORT_NAMES[e->kind]);
    if (!o->alone || o->transposed || !str_ends(o->theirs, ".weight"))
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' is a part of, or the transpose of, the checkpoint's '%s', which --to %s cannot hold",
            made->name, o->theirs, EXPORT_NAMES[e->kind]);
    enum err_code rc = companions_check(e, made->name, why);
    if (!rc) rc = matrix_check(e, made, like.order, why);
    return rc ? rc : matrix_add(e, &like, why);
}

/* A linear layer that stays in floats must be named in the config; GPTQ has no place for its name. */
static enum err_code module_keep(struct exporter *e, const struct origin *o, struct err *why)
{
    char module[400];
    if (e->kind == EXPORT_GPTQ)
        return err_set(why, ERR_USAGE,
                       "tensor '%s' is not quantized, which --to gptq cannot express: use --to awq or --to "
                       "compressed-tensors, or a group size that divides its rows",
                       o->ours);
    snprintf(module, sizeof module, "%.*s",
             (int)(strlen(o->theirs) - (str_ends(o->theirs, ".weight") ? strlen(".weight") : 0)), o->theirs);
    return json_array_append_new(e->kept, json_string(module)) ? no_memory(why) : ERR_OK;
}

static const struct origin *origin_find(const struct checkpoint *c, const char *theirs)
{
    for (int64_t i = 0; i < c->origin_count; i++)
        if (!strcmp(c->origins[i].theirs, theirs)) return &c->origins[i];
    return NULL;
}

static enum err_code tensor_plan(struct exporter *e, const struct gguf *source, const struct st_tensor *from,
                                 struct err *why)
{
    const struct origin *o = origin_find(&e->c, from->name);
    if (!o || is_end(o->ours)) return copy_add(e, from, why);
    const struct gguf_tensor *made = gguf_tensor_find(e->made, o->ours);
    if (!made) return err_set(why, ERR_FORMAT, "the quantized file has no tensor '%s'", o->ours);
    const bool matrix = made->dims >= 2;
    if (matrix && made->dims == 2 && format_bits_per_weight(made->format) < 16)
        return quantized_add(e, o, made, why);
    enum err_code rc = matrix ? module_keep(e, o, why) : ERR_OK;
    if (rc || is_unchanged(source, made)) return rc ? rc : copy_add(e, from, why);
    if (matrix && (!o->alone || made->dims != 2))
        return err_set(why, ERR_USAGE, "tensor '%s' was changed and is a part of the checkpoint's '%s'",
                       o->ours, o->theirs);
    return floats_add(e, from, o, made, why);
}

static enum err_code plan_make(struct exporter *e, const char *checkpoint, struct err *why)
{
    struct gguf *source = NULL;
    enum err_code rc = model_file_open(&source, checkpoint, why);
    for (int64_t i = 0; i < e->c.tensor_count && !rc; i++) rc = tensor_plan(e, source, &e->c.tensors[i], why);
    gguf_close(source);
    if (!rc && !e->report.matrices)
        rc = err_set(why, ERR_USAGE, "the recipe quantized no matrix: there is nothing to export");
    /* a symmetric compressed-tensors checkpoint has no zero points */
    int64_t n = 0;
    const bool drop = e->kind == EXPORT_PACKED && e->report.symmetric;
    for (int64_t i = 0; i < e->count; i++)
        if (!drop || e->pieces[i].kind != PIECE_ZEROS) e->pieces[n++] = e->pieces[i];
    e->count = n;
    return rc;
}

static enum err_code checkpoint_map(struct checkpoint *c, const char *path, struct err *why)
{
    if (!import_is_checkpoint(path))
        return err_set(why, ERR_USAGE, "--to needs a Hugging Face folder as IN, '%s' is none", path);
    enum err_code rc = checkpoint_read(c, path, why);
    if (!rc) rc = metadata_put(c, why);
    if (!rc) rc = tensors_map(c, why);
    return rc;
}

/* ---------------------------------------------------------------- proof */

/* Norms that the method changed: the same numbers, up to the rounding of those that are stored minus one. */
static enum err_code floats_compare(bool *same, const struct gguf_tensor *a, const struct gguf_tensor *b,
                                    struct err *why)
{
    const int64_t cols = a->shape[0], rows = a->dims > 1 ? a->shape[1] : 1, n = rows * cols;
    *same = b->shape[0] == cols && (b->dims > 1 ? b->shape[1] : 1) == rows && a->format->decode &&
            b->format->decode;
    float *x = malloc((size_t)n * 2 * sizeof *x);
    if (!x) return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", a->name);
    if (*same) format_decode_rows(a->format, gguf_tensor_data(a), x, rows, cols);
    if (*same) format_decode_rows(b->format, gguf_tensor_data(b), x + n, rows, cols);
    for (int64_t i = 0; i < n && *same; i++)
        *same = fabsf(x[i] - x[n + i]) <= 0x1p-23f * fmaxf(fabsf(x[i]), 1);
    free(x);
    return ERR_OK;
}

static enum err_code differs(const char *ours, struct err *why)
{
    return err_set(why, ERR_INTERNAL, "the exported tensor '%s' is read back differently", ours);
}

/* Read the folder and compare what is not a copy of the checkpoint with ours: every quantized matrix, and
 * what is written in floats. ERR_INTERNAL: one differs. */
static enum err_code verify(struct exporter *e, const char *folder, struct err *why)
{
    const struct gguf *made = e->made;
    struct gguf *back = NULL;
    enum err_code rc = model_file_open(&back, folder, why);
    for (int64_t i = 0; i < gguf_tensor_count(made) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(made, i), *b = gguf_tensor_find(back, t->name);
        if (!t->format || !format_group_bits(t->format) || is_end(t->name)) continue;
        bool same = false;
        if (b) rc = matrices_compare(&same, t, order_of(made, t->name), b, order_of(back, t->name), why);
        if (!rc && !same) rc = differs(t->name, why);
        e->report.verified += !rc;
        gguf_tensor_drop(t);
        if (b) gguf_tensor_drop(b);
    }
    for (int64_t i = 0; i < e->count && !rc; i++) {
        bool same = false;
        if (e->pieces[i].kind != PIECE_FLOATS) continue;
        const struct gguf_tensor *t = e->pieces[i].made, *b = gguf_tensor_find(back, t->name);
        if (b) rc = floats_compare(&same, t, b, why);
        if (!rc && !same) rc = differs(t->name, why);
    }
    gguf_close(back);
    return rc;
}

/* ---------------------------------------------------------------- the folder */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static const int64_t SHARD_BYTES = (int64_t)4 << 30; /* if nobody says otherwise */

/* Write and prove everything in a new folder beside the target, then give it its name. */
static enum err_code folder_make(struct exporter *e, const char *folder, struct err *why)
{
    char temp[4096], inside[4100];
    int n = snprintf(temp, sizeof temp, "%s", folder);
    while (n > 1 && n < (int)sizeof temp && temp[n - 1] == '/') temp[--n] = '\0';
    if (n + 8 > (int)sizeof temp) return err_set(why, ERR_USAGE, "OUT is too long for a path");
    char *const target = strdup(temp);
    if (!target) return no_memory(why);
    memcpy(temp + n, ".XXXXXX", sizeof ".XXXXXX");
    enum err_code rc = mkdtemp(temp)
                           ? ERR_OK
                           : err_set(why, err_of_errno(errno), "cannot create a folder beside '%s': %s",
                                     target, strerror(errno));
    snprintf(inside, sizeof inside, "%s/", temp);
    const bool made = !rc;
    if (!rc) rc = export_files(e, inside, why);
    if (!rc) rc = verify(e, temp, why);
    if (!rc && (chmod(temp, 0755) || renameat2(AT_FDCWD, temp, AT_FDCWD, target, RENAME_NOREPLACE)))
        rc = err_set(why, errno == EEXIST ? ERR_USAGE : err_of_errno(errno), "cannot give '%s' its name: %s",
                     target, strerror(errno));
    if (rc && made) nftw(temp, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(target);
    return rc;
}

enum err_code export_write(struct export_report *out, const char *checkpoint, const struct gguf *made,
                           const char *folder, const struct export_options *options, import_step_fn *step,
                           void *ctx, struct err *why)
{
    struct exporter e = { .made = made,
                          .kind = options->kind,
                          .shard_bytes = options->shard_bytes ? options->shard_bytes : SHARD_BYTES,
                          .kept = json_array(),
                          .step = step,
                          .ctx = ctx };
    enum err_code rc = checkpoint_map(&e.c, checkpoint, why);
    if (!rc) rc = plan_make(&e, checkpoint, why);
    if (!rc) rc = folder_make(&e, folder, why);
    *out = e.report;
    json_decref(e.kept);
    free(e.pieces);
    checkpoint_close(&e.c);
    arena_free(&e.memory);
    return rc;
}
