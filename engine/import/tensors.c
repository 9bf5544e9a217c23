/* Finds the checkpoint's tensor for every tensor of the architecture and gives it our name, shape and order.
 */
#include "engine/import/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "engine/import/families.h"
#include "engine/import/metadata.h"
#include "engine/import/quantized.h"
#include "engine/import/row_order.h"
#include "kernels/kernels.h"

/* Tensors that no forward pass needs, by the end of their name. */
static const char *const HARMLESS_ENDS[] = {
    ".rotary_emb.inv_freq", /* follows from config.json */
    ".attn.bias",           /* GPT-2 and GPT-NeoX: which tokens see which */
    ".attn.masked_bias",    ".attention.bias", ".attention.masked_bias",
};

/* Scales of a KV cache in FP8, which other programs have; the cache here has formats of its own (ctk=, ctv=).
 */
static const char *const KV_SCALE_ENDS[] = {
    ".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale", ".v_proj.output_scale",
};

/* The list that c->parts.tensors becomes. */
struct made {
    struct checkpoint *c;
    const char *root;
    int64_t room;
};

/* How one tensor of ours is made from one of the checkpoint. */
struct source {
    struct st_tensor from;        /* unused with `matrix` */
    const struct linear *matrix;  /* quantized; NULL: numbers */
    const int64_t *rows;          /* of each matrix: row_order; NULL: in order */
    int64_t row_count;            /* of each matrix of ours */
    int64_t from_rows, from_cols; /* of each matrix of the checkpoint's, as [out, in] */
    int64_t matrices;             /* of ours, or vectors of a table */
    int64_t size;                 /* bytes of a number */
    bool transposed, plus_one;
};

/* ---------------------------------------------------------------- computing bytes */

static void fill_numbers(const struct source *s, unsigned char *to)
{
    const int64_t cols = s->from_cols, size = s->size;
    for (int64_t m = 0; m < s->matrices; m++) {
        const unsigned char *from = s->from.data + m * s->from_rows * cols * size;
        for (int64_t r = 0; r < s->row_count; r++) {
            const int64_t row = s->rows ? s->rows[r] : r;
            if (!s->transposed) memcpy(to, from + row * cols * size, (size_t)(cols * size));
            for (int64_t i = 0; s->transposed && i < cols; i++)
                memcpy(to + i * size, from + (i * s->from_rows + row) * size, (size_t)size);
            to += cols * size;
        }
    }
}

/* Norms that are stored minus one, in f32. */
static void fill_plus_one(const struct source *s, int64_t n, unsigned char *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        float v;
        if (s->from.type == ST_F32) {
            memcpy(&v, s->from.data + i * 4, sizeof v);
        } else {
            memcpy(&half, s->from.data + i * 2, sizeof half);
            v = s->from.type == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        }
        v += 1;
        memcpy(to + i * (int64_t)sizeof v, &v, sizeof v);
    }
}

static int64_t matrix_row(const struct source *s, int64_t row)
{
    const int64_t in = row % s->row_count;
    return row / s->row_count * s->from_rows + (s->rows ? s->rows[in] : in);
}

static void fill(const void *how, const struct gguf_tensor *t, unsigned char *to)
{
    const struct source *s = how;
    if (s->plus_one) {
        fill_plus_one(s, t->shape[0], to);
    } else if (!s->matrix) {
        fill_numbers(s, to);
    } else {
        const int64_t bytes = format_row_bytes(t->format, t->shape[0]);
        for (int64_t r = 0; r < t->shape[1] * t->shape[2]; r++)
            s->matrix->write_row(s->matrix, matrix_row(s, r), to + r * bytes);
    }
}

const struct linear *tensor_matrix(const struct gguf_tensor *t)
{
    const struct source *s = gguf_tensor_how(t, fill);
    return s ? s->matrix : NULL;
}

int64_t tensor_matrix_row(const struct gguf_tensor *t, int64_t row)
{
    return matrix_row(gguf_tensor_how(t, fill), row);
}

/* ---------------------------------------------------------------- one tensor */

static enum err_code add(struct made *all, const struct gguf_tensor *t, struct err *why)
{
    struct gguf_parts *p = &all->c->parts;
    if (p->tensor_count == all->room) {
        const int64_t room = all->room ? 2 * all->room : 512;
        struct gguf_tensor *more = arena_alloc(&p->memory, (size_t)room * sizeof *more);
        if (!more) return err_set(why, ERR_NOMEM, "out of memory for tensors");
        if (p->tensor_count) memcpy(more, p->tensors, (size_t)p->tensor_count * sizeof *more);
        p->tensors = more;
        all->room = room;
    }
    p->tensors[p->tensor_count++] = *t;
    return ERR_OK;
}

static const struct format *format_of(const struct st_tensor *t)
{
    switch (t->type) {
    case ST_F32: return &FORMATS[FORMAT_F32];
    case ST_F16: return &FORMATS[FORMAT_F16];
    case ST_BF16: return &FORMATS[FORMAT_BF16];
    default: return NULL;
    }
}

/* The checkpoint's tensor as matrices of rows: vectors and tables of vectors have rows of one number. */
static enum err_code describe(struct source *s, const struct st_tensor *t, enum slot slot, bool of_one_expert,
                              struct err *why)
{
    const bool vector = arch_slot_is_vector(slot),
               several = ARCH_SLOTS[slot].matrices != DIM_NONE && !of_one_expert;
    const int want = vector ? (ARCH_SLOTS[slot].table ? 2 : 1) : several ? 3 : 2;
    if (t->dims != want)
        return err_set(why, ERR_FORMAT, "expected %d dimensions, the checkpoint has %d", want, t->dims);
    if (t->count == 0) return err_set(why, ERR_FORMAT, "it is empty");
    s->matrices = want == 3 || (vector && want == 2) ? t->shape[0] : 1;
    s->from_rows = t->shape[vector ? want - 1 : want - 2];
    s->from_cols = vector ? 1 : t->shape[want - 1];
    if (s->transposed) {
        const int64_t rows = s->from_cols;
        s->from_cols = s->from_rows;
        s->from_rows = rows;
    }
    return ERR_OK;
}

/* Shape of ours: [cols, rows, matrices], a vector [rows], a table of vectors [rows, vectors]. */
static void set_shape(struct gguf_tensor *t, const struct source *s, bool vector, bool table)
{
    t->dims = vector ? (table ? 2 : 1) : s->matrices > 1 ? 3 : 2;
    t->shape[0] = vector ? s->row_count : s->from_cols;
    t->shape[1] = vector ? (table ? s->matrices : 1) : s->row_count;
    t->shape[2] = vector ? 1 : s->matrices;
    t->shape[3] = 1;
    t->bytes = t->shape[1] * t->shape[2] * format_row_bytes(t->format, t->shape[0]);
}

/* Bits of enum change for a slot beside those of its row of names. */
static unsigned rotary_change(const struct checkpoint *c, enum slot slot)
{
    const bool q = slot == SLOT_Q || slot == SLOT_Q_B, k = slot == SLOT_K || slot == SLOT_K_B;
    return (q || k) && c->arch->rope == ROPE_NEIGHBOURS && !(c->family->flags & FAMILY_NEIGHBOURS)
               ? CHANGE_ROTARY
               : 0;
}

static bool is_norm(enum slot slot)
{
    return slot == SLOT_ATTN_NORM || slot == SLOT_FFN_NORM || slot == SLOT_OUTPUT_NORM ||
           slot == SLOT_POST_ATTN_NORM || slot == SLOT_POST_FFN_NORM || slot == SLOT_Q_NORM ||
           slot == SLOT_K_NORM;
}

static enum err_code add_origin(struct checkpoint *c, const char *ours, const struct st_tensor *from,
                                const struct source *s, struct err *why)
{
    struct arena *memory = &c->parts.memory;
    if (c->origin_count == c->origin_room) {
        const int64_t room = c->origin_room ? 2 * c->origin_room : 512;
        struct origin *more = arena_alloc(memory, (size_t)room * sizeof *more);
        if (!more) return err_set(why, ERR_NOMEM, "out of memory for tensors");
        if (c->origin_count) memcpy(more, c->origins, (size_t)c->origin_count * sizeof *more);
        c->origins = more;
        c->origin_room = room;
    }
    c->origins[c->origin_count++] = (struct origin){ .theirs = from->name,
                                                     .ours = ours,
                                                     .rows = s->rows,
                                                     .transposed = s->transposed,
                                                     .plus_one = s->plus_one,
                                                     .alone = s->row_count == s->from_rows };
    return ERR_OK;
}

/* Add the tensor `name` of `slot` made from `from`, or from a quantized matrix. */
static enum err_code add_source(struct made *all, const char *name, enum slot slot, bool of_one_expert,
                                unsigned change, const struct st_tensor *from, const struct linear *matrix,
                                struct err *why)
{
    struct checkpoint *c = all->c;
    struct source s = { .matrix = matrix };
    struct gguf_tensor t = { .name = arena_strdup(&c->parts.memory, name) };
    if (!t.name) return err_set(why, ERR_NOMEM, "out of memory for tensors");
    s.transposed = !matrix && change & CHANGE_TRANSPOSED;
    s.plus_one = !matrix && c->family->flags & FAMILY_PLUS_ONE && is_norm(slot);
    t.format = matrix                          ? matrix->format
               : s.plus_one && format_of(from) ? &FORMATS[FORMAT_F32]
                                               : format_of(from);
    if (!t.format)
        return err_set(why, ERR_FORMAT,
                       "numbers of type %s are not supported here: expected F32, F16 or BF16",
                       st_type_name(from->type));
    enum err_code rc = ERR_OK;
    if (matrix) {
        s.matrices = matrix->matrices;
        s.from_rows = matrix->rows;
        s.from_cols = matrix->cols;
    } else {
        s.from = *from;
        s.size = format_of(from)->block_bytes;
        rc = describe(&s, from, slot, of_one_expert, why);
    }
    const bool kv = slot == SLOT_K || slot == SLOT_K_B;
    if (!rc)
        rc = row_order(&s.rows, &s.row_count, &c->parts.memory, &c->sizes, change | rotary_change(c, slot),
                       kv, s.from_rows, why);
    if (!rc && !matrix) rc = add_origin(c, t.name, from, &s, why);
    if (rc) return rc;
    t.type_name = t.format->name;
    t.type = t.format->ggml_type;
    set_shape(&t, &s, arch_slot_is_vector(slot), ARCH_SLOTS[slot].table);
    const bool as_it_is = !matrix && !s.rows && !s.transposed && !s.plus_one &&
                          (uintptr_t)from->data % (uintptr_t)s.size == 0;
    if (as_it_is) {
        t.data = from->data;
    } else {
        struct source *how = arena_alloc(&c->parts.memory, sizeof *how);
        if (!how) return err_set(why, ERR_NOMEM, "out of memory for tensors");
        *how = s;
        rc = gguf_parts_make(&c->parts, &t, fill, how, why);
    }
    return rc ? rc : add(all, &t, why);
}

/* Add a vector of f32 that belongs to a quantized matrix. */
static enum err_code add_floats(struct made *all, const char *name, const float *values, int64_t n,
                                struct err *why)
{
    const struct format *f = &FORMATS[FORMAT_F32];
    const struct gguf_tensor t = { .name = arena_strdup(&all->c->parts.memory, name),
                                   .format = f,
                                   .type_name = f->name,
                                   .dims = 1,
                                   .shape = { n, 1, 1, 1 },
                                   .data = (const unsigned char *)values,
                                   .bytes = n * (int64_t)sizeof *values };
    return t.name ? add(all, &t, why) : err_set(why, ERR_NOMEM, "out of memory for tensors");
}

/* What a quantized matrix has beside its codes: an order of its columns, a factor of all its weights. */
static enum err_code add_beside(struct made *all, const char *name, const struct linear *l, struct err *why)
{
    char beside[ARCH_NAME + 32];
    enum err_code rc = ERR_OK;
    if (l->order)
        rc = add_floats(all, companion_name(name, COMPANION_ORDER, beside, sizeof beside), l->order, l->cols,
                        why);
    if (rc || !l->scale) return rc;
    snprintf(beside, sizeof beside, "%.*s.scale", (int)(strlen(name) - strlen(".weight")), name);
    return add_floats(all, beside, l->scale, 1, why);
}

/* ---------------------------------------------------------------- names */

/* The full name of a row of names: in layer `layer`, of expert `expert`. */
static void full_name(char *buf, size_t size, const struct made *all, const struct hf_name *n, int layer,
                      int expert)
{
    const char *root = all->root, *name = n->name;
    char local[160];
    const char *number = strstr(name, "%d");
    if (number)
        snprintf(local, sizeof local, "%.*s%d%s", (int)(number - name), name, expert, number + 2);
    else
        snprintf(local, sizeof local, "%s", name[0] == '@' ? name + 1 : name);
    if (n->slot < SLOT_GLOBAL_COUNT) {
        snprintf(buf, size, "%s%s", name[0] == '@' ? root : "", local);
        return;
    }
    const char *in = all->c->family->layer, *at = strstr(in, "%d");
    snprintf(buf, size, "%s%.*s%d%s%s", root, (int)(at - in), in, layer, at + 2, local);
}

/* The i-th row of names of a slot: the family's own first, then the usual ones. NULL: no more. */
static const struct hf_name *name_row(const struct family *f, enum slot slot, int i)
{
    for (const struct hf_name *n = f->names; n && n->name; n++)
        if (n->slot == slot && i-- == 0) return n;
    for (size_t k = 0; k < HF_NAME_COUNT; k++)
        if (HF_NAMES[k].slot == slot && i-- == 0) return &HF_NAMES[k];
    return NULL;
}

/* Add the matrix of gate and up from two quantized ones, as GPTQModel stores them for Phi 3. *found: whether
 * they are there. */
static enum err_code add_gate_and_up(bool *found, struct made *all, int layer, struct err *why)
{
    static const struct hf_name GATE = { SLOT_GATE, "mlp.gate_proj.weight", 0 },
                                UP = { SLOT_UP, "mlp.up_proj.weight", 0 };
    char gate[320], up[320], ours[ARCH_NAME];
    struct linear *both;
    full_name(gate, sizeof gate, all, &GATE, layer, -1);
    full_name(up, sizeof up, all, &UP, layer, -1);
    enum err_code rc = linear_find_joined(&both, all->c, gate, up, why);
    *found = !rc && both;
    if (rc || !both) return rc;
    arch_tensor_name(ours, sizeof ours, layer, SLOT_UP, -1);
    return add_source(all, ours, SLOT_UP, false, 0, NULL, both, why);
}

/* Add the tensor of a slot, if the checkpoint has it under one of its names. *found: whether it has. */
static enum err_code add_slot(bool *found, struct made *all, int layer, enum slot slot, int expert,
                              struct err *why)
{
    const struct hf_name *n;
    *found = false;
    if (slot == SLOT_UP && all->c->arch->gate_in_up) {
        const enum err_code rc = add_gate_and_up(found, all, layer, why);
        if (rc || *found) return rc;
    }
    for (int i = 0; !*found && (n = name_row(all->c->family, slot, i)); i++) {
        char theirs[320], ours[ARCH_NAME];
        struct linear *matrix = NULL;
        const bool each = strstr(n->name, "%d");
        if (each != (expert >= 0)) continue;
        full_name(theirs, sizeof theirs, all, n, layer, expert);
        struct st_tensor *from = checkpoint_find(all->c, theirs);
        enum err_code rc = arch_slot_is_vector(slot) ? ERR_OK : linear_find(&matrix, all->c, theirs, why);
        if (!rc && !from && !matrix) continue;
        *found = true;
        arch_tensor_name(ours, sizeof ours, layer, slot, expert);
        if (!rc) rc = add_source(all, ours, slot, expert >= 0, n->change, from, matrix, why);
        if (!rc && matrix) rc = add_beside(all, ours, matrix, why);
        if (rc) return err_prefix(why, "tensor '%s'", theirs);
        if (from) from->used = true;
    }
    return ERR_OK;
}

static enum err_code add_layer_slot(struct made *all, int layer, enum slot slot, struct err *why)
{
    bool found;
    enum err_code rc = add_slot(&found, all, layer, slot, -1, why);
    for (int e = 0; !rc && !found && ARCH_SLOTS[slot].each && e < all->c->sizes.experts; e++) {
        bool one;
        rc = add_slot(&one, all, layer, slot, e, why);
        if (!one) break;
    }
    return rc;
}

/* What the names of this checkpoint begin with: the root under which it has the embedding. */
static const char *find_root(struct checkpoint *c)
{
    char root[64], name[320];
    struct made all = { .c = c, .root = root };
    for (const char *at = c->family->roots; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        snprintf(root, sizeof root, "%.*s", n == 1 && *at == '-' ? 0 : (int)n, at);
        full_name(name, sizeof name, &all, name_row(c->family, SLOT_TOKEN_EMBD, 0), -1, -1);
        if (checkpoint_find(c, name)) return arena_strdup(&c->parts.memory, root);
        at += n;
    }
    const size_t first = strcspn(c->family->roots, " ");
    return arena_strndup(&c->parts.memory, c->family->roots, first);
}

/* ---------------------------------------------------------------- all tensors */

/* The embedding and the output matrix may be one tensor, stored under either name. */
static enum err_code add_ends(struct made *all, struct err *why)
{
    struct checkpoint *c = all->c;
    const json_t *key = hf_find(c, "tie_word_embeddings");
    char name[320];
    bool found, has_output;
    full_name(name, sizeof name, all, name_row(c->family, SLOT_OUTPUT, 0), -1, -1);
    struct st_tensor *output = checkpoint_find(c, name);
    enum err_code rc = add_slot(&found, all, -1, SLOT_TOKEN_EMBD, -1, why);
    if (rc) return rc;
    if (!found && output) {
        output->used = true;
        return add_source(all, ARCH_SLOTS[SLOT_TOKEN_EMBD].name, SLOT_TOKEN_EMBD, false, 0, output, NULL,
                          why);
    }
    const bool tied = key ? json_is_true(key) : !output;
    if (tied) {
        if (output) output->used = true; /* a copy of the embedding */
        return ERR_OK;
    }
    rc = add_slot(&has_output, all, -1, SLOT_OUTPUT, -1, why);
    if (!rc && !has_output)
        rc = err_set(why, ERR_FORMAT,
                     "the checkpoint has no tensor '%s', and config.json says that it is not the "
                     "embedding (tie_word_embeddings)",
                     name);
    return rc;
}

static bool ends_with_one(const char *name, const char *const *ends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_ends(name, ends[i])) return true;
    return false;
}

/* Tensors that were not used become metadata that arch_unknown names. */
static void put_unused(struct checkpoint *c)
{
    bool kv_scales = false;
    for (int64_t i = 0; i < c->tensor_count; i++) {
        const struct st_tensor *t = &c->tensors[i];
        char key[ARCH_KEY_NAME];
        if (t->used || ends_with_one(t->name, HARMLESS_ENDS, COUNT_OF(HARMLESS_ENDS))) continue;
        if (ends_with_one(t->name, KV_SCALE_ENDS, COUNT_OF(KV_SCALE_ENDS))) {
            kv_scales = true;
            continue;
        }
        snprintf(key, sizeof key, "%.20s.tensor.%.95s", c->arch->name, t->name);
        gguf_writer_put_bool(c->metadata, key, true);
    }
    if (kv_scales) gguf_writer_put_bool(c->metadata, KV_SCALES_KEY, true);
}

enum err_code tensors_map(struct checkpoint *c, struct err *why)
{
    const struct arch *a = c->arch;
    struct made all = { .c = c, .root = find_root(c) };
    const slot_set set = a->need | a->may | a->expert_need | a->expert_may;
    struct gguf_tensor factors[ROPE_TENSORS];
    int factor_count;
    if (!all.root) return err_set(why, ERR_NOMEM, "out of memory for names");
    enum err_code rc = linear_read_config(c, why);
    if (!rc) rc = add_ends(&all, why);
    for (int slot = 0; slot < SLOT_COUNT && !rc; slot++) {
        bool found;
        if (slot == SLOT_TOKEN_EMBD || slot == SLOT_OUTPUT || !(set & SLOT_BIT(slot))) continue;
        if (slot < SLOT_GLOBAL_COUNT)
            rc = add_slot(&found, &all, -1, (enum slot)slot, -1, why);
        else
            for (int l = 0; l < c->sizes.layers && !rc; l++)
                rc = add_layer_slot(&all, l, (enum slot)slot, why);
    }
    if (!rc) rc = rope_tensors(factors, &factor_count, c, why);
    for (int i = 0; !rc && i < factor_count; i++) rc = add(&all, &factors[i], why);
    if (!rc) put_unused(c);
    return rc;
}
