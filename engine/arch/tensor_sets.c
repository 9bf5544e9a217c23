/* Which optional tensors a file must have because of others that it has. A file that lost a tensor (a cut-off
 * conversion, a faulty merge) would otherwise run without it and give other answers. Three rules, for all
 * architectures:
 *
 * - An optional tensor that one layer has is required in all layers of its kind: those in which the
 * architecture allows it (layers with attention, with a state, with experts ...).
 * - Tensors that make sense only together are a set: all of it or none.
 * - A value in the metadata may say that the layers have a tensor. */
#include <stdio.h>

#include "engine/arch/arch_internal.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* Only the members that the architecture allows in the layer count. */
static const struct tensor_set {
    slot_set slots;
    const char *what;
} SETS[] = {
    { SLOT_BIT(SLOT_GATE_SHARED) | SLOT_BIT(SLOT_UP_SHARED) | SLOT_BIT(SLOT_DOWN_SHARED) |
          SLOT_BIT(SLOT_SHARED_SCORE),
      "the shared expert" },
    { SLOT_BIT(SLOT_Q_B) | SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V_B),
      "the biases of queries, keys and values" },
    { SLOT_BIT(SLOT_GATE_B) | SLOT_BIT(SLOT_UP_B) | SLOT_BIT(SLOT_DOWN_B), "the biases of the feed-forward" },
    { SLOT_BIT(SLOT_Q_NORM) | SLOT_BIT(SLOT_K_NORM), "the norms of queries and keys" },
    { SLOT_BIT(SLOT_Q_NORM_EACH) | SLOT_BIT(SLOT_K_NORM_EACH), "the norms of queries and keys" },
    { SLOT_BIT(SLOT_ATTN_NORM_2) | SLOT_BIT(SLOT_ATTN_NORM_2_B), "a norm with a bias" },
    { SLOT_BIT(SLOT_FFN_NORM) | SLOT_BIT(SLOT_FFN_NORM_B), "a norm with a bias" },
    { SLOT_BIT(SLOT_ROPE_LONG) | SLOT_BIT(SLOT_ROPE_SHORT), "the RoPE factors of long and short contexts" },
};

/* Optional tensors that a value in the metadata requires in layers that may have them. */
static const struct {
    enum slot slot;
    enum arch_key key;
    int64_t value;
    const char *why;
} REQUIRED[] = {
    /* all published models whose router scores by sigmoid choose experts with a bias (DeepSeek V3, GLM 4.5,
       Ling 2, dots) */
    { SLOT_ROUTER_CHOICE, META_EXPERT_SCORE, 2, "experts are scored by sigmoid" },
};

/* Optional tensors that are not the same in all layers of their kind. */
static const slot_set FORMS = SLOT_BIT(SLOT_GATE_EXPERTS) | SLOT_BIT(SLOT_UP_EXPERTS) |
                              SLOT_BIT(SLOT_GATE_UP_EXPERTS); /* two tensors or one: check_expert_form */
static const slot_set BY_WINDOW = SLOT_BIT(SLOT_V); /* Gemma 4: layers without a window use keys as values */

/* What the file has in its layers; [0] is the model outside its layers, [1 + l] layer l. */
struct found {
    const struct arch *arch;
    const struct model_shape *shape;
    const struct gguf *file;
    slot_set may[LAYERS_MAX + 1], has[LAYERS_MAX + 1];
    slot_set any; /* what some layer has */
};

static void find_all(struct found *f)
{
    for (int l = -1; l < f->shape->layers; l++) {
        f->may[l + 1] = arch_need(f->arch, f->shape, l) | arch_may(f->arch, f->shape, l);
        f->has[l + 1] = 0;
        for (int slot = 0; slot < SLOT_COUNT; slot++) {
            char name[ARCH_NAME];
            if (!(f->may[l + 1] & SLOT_BIT(slot))) continue;
            arch_slot_name(name, sizeof name, l, (enum slot)slot);
            if (gguf_tensor_find(f->file, name) || arch_slot_is_split(f->shape, f->file, l, (enum slot)slot))
                f->has[l + 1] |= SLOT_BIT(slot);
        }
        f->any |= f->has[l + 1];
    }
}

/* Are these layers of one kind with respect to an optional tensor? */
static bool are_alike(const struct found *f, int a, int b, slot_set slot)
{
    if (!(f->may[a + 1] & f->may[b + 1] & slot)) return false;
    return !(slot & BY_WINDOW) || f->shape->parts[a].window == f->shape->parts[b].window;
}

/* The layers of the kind of `layer` that have the tensor, as "0 to 3, 5"; returns their number. */
static int list_layers(struct str *out, const struct found *f, int layer, slot_set slot)
{
    int count = 0;
    for (int l = 0; l < f->shape->layers; l++) {
        if (!are_alike(f, layer, l, slot) || !(f->has[l + 1] & slot)) continue;
        int last = l;
        while (last + 1 < f->shape->layers && are_alike(f, layer, last + 1, slot) &&
               (f->has[last + 2] & slot))
            last++;
        str_printf(out, "%s%d", count ? ", " : "", l);
        if (last > l) str_printf(out, "%s%d", last == l + 1 ? ", " : " to ", last);
        count += last - l + 1;
        l = last;
    }
    return count;
}

/* An optional tensor is in all layers of its kind or in none. */
static enum err_code check_alike(const struct found *f, int layer, enum slot slot, struct err *why)
{
    struct str others = { 0 };
    char name[ARCH_NAME];
    const int count = list_layers(&others, f, layer, SLOT_BIT(slot));
    enum err_code rc = ERR_OK;
    if (count) {
        arch_slot_name(name, sizeof name, layer, slot);
        rc = err_set(
            why, ERR_FORMAT,
            "tensor '%s' is missing: layer %d needs it, because layer%s %s of the same kind ha%s it. "
            "The file is incomplete: download or convert it again",
            name, layer, count == 1 ? "" : "s", str_text(&others), count == 1 ? "s" : "ve");
    }
    str_free(&others);
    return rc;
}

/* A set is complete or absent. */
static enum err_code check_set(const struct found *f, int layer, const struct tensor_set *set,
                               struct err *why)
{
    const slot_set members = set->slots & f->may[layer + 1], have = members & f->has[layer + 1];
    char missing[ARCH_NAME], present[ARCH_NAME], place[32] = "the model";
    if (!have || have == members) return ERR_OK;
    enum slot lost = 0, kept = 0;
    for (int slot = SLOT_COUNT - 1; slot >= 0; slot--) {
        if (have & SLOT_BIT(slot)) kept = (enum slot)slot;
        if (members & ~have & SLOT_BIT(slot)) lost = (enum slot)slot;
    }
    arch_slot_name(missing, sizeof missing, layer, lost);
    arch_slot_name(present, sizeof present, layer, kept);
    if (layer >= 0) snprintf(place, sizeof place, "layer %d", layer);
    return err_set(why, ERR_FORMAT,
                   "tensor '%s' is missing: %s has '%s', and both are parts of %s. The file is incomplete: "
                   "download or convert it again",
                   missing, place, present, set->what);
}

static enum err_code check_required(const struct found *f, int layer, struct err *why)
{
    for (size_t i = 0; i < COUNT_OF(REQUIRED); i++) {
        char key[ARCH_KEY_NAME], name[ARCH_NAME];
        const slot_set slot = SLOT_BIT(REQUIRED[i].slot);
        if (!(f->may[layer + 1] & ~f->has[layer + 1] & slot)) continue;
        arch_key_name(key, f->arch->name, REQUIRED[i].key);
        if (gguf_get_int(f->file, key, -1) != REQUIRED[i].value) continue;
        arch_slot_name(name, sizeof name, layer, REQUIRED[i].slot);
        return err_set(
            why, ERR_FORMAT,
            "tensor '%s' is missing: layer %d needs it, because '%s' is %lld: %s. The file is incomplete: "
            "download or convert it again",
            name, layer, key, (long long)REQUIRED[i].value, REQUIRED[i].why);
    }
    return ERR_OK;
}

/* Experts have gate and up as two tensors or as one. */
static enum err_code check_expert_form(const struct found *f, int layer, struct err *why)
{
    if (!arch_is_gated(f->arch) || !shape_layer_has_experts(f->shape, layer)) return ERR_OK;
    const slot_set has = f->has[layer + 1] & FORMS, one = SLOT_BIT(SLOT_GATE_UP_EXPERTS);
    if (has == one || has == (FORMS & ~one)) return ERR_OK;
    return err_set(why, ERR_FORMAT,
                   "layer %d: expected the tensors ffn_gate_exps and ffn_up_exps, or ffn_gate_up_exps alone",
                   layer);
}

static enum err_code check_layer(const struct found *f, int layer, struct err *why)
{
    enum err_code rc = layer < 0 ? ERR_OK : check_expert_form(f, layer, why);
    /* arch_walk names tensors that the architecture itself needs */
    const slot_set lost = f->may[layer + 1] & ~f->has[layer + 1] & f->any & ~FORMS &
                          ~arch_need(f->arch, f->shape, layer);
    for (int slot = SLOT_GLOBAL_COUNT; layer >= 0 && slot < SLOT_COUNT && !rc; slot++)
        if (lost & SLOT_BIT(slot)) rc = check_alike(f, layer, (enum slot)slot, why);
    for (size_t i = 0; i < COUNT_OF(SETS) && !rc; i++) rc = check_set(f, layer, &SETS[i], why);
    return rc ? rc : check_required(f, layer, why);
}

enum err_code arch_check_sets(const struct arch *a, const struct model_shape *s, const struct gguf *g,
                              struct err *why)
{
    struct found f = { .arch = a, .shape = s, .file = g };
    enum err_code rc = ERR_OK;
    find_all(&f);
    for (int l = -1; l < s->layers && !rc; l++) rc = check_layer(&f, l, why);
    return rc;
}
