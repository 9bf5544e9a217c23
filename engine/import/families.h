/* engine/import/families.h - which Hugging Face architectures are read, and how their tensors are called. */
#ifndef QDYNO_ENGINE_IMPORT_FAMILIES_H
#define QDYNO_ENGINE_IMPORT_FAMILIES_H

#include "engine/arch/arch.h"

/* How a tensor differs from the checkpoint's; bits, because some tensors differ in two ways. */
enum change {
    CHANGE_NONE = 0,
    CHANGE_TRANSPOSED = 1 << 0, /* numbers are stored as [in, out]; codes of quantized matrices are not */
    CHANGE_QKV_HEADS = 1 << 1,  /* q, k and v of each head follow each other: to all q, all k, all v */
    CHANGE_QKV_GROUPS = 1 << 2, /* the queries that share a KV head, its k, its v: the same */
    CHANGE_EVEN_ROWS = 1 << 3,  /* every other row of each matrix, from row 0 */
    CHANGE_ODD_ROWS = 1 << 4,   /* from row 1 */
    CHANGE_ROTARY = 1 << 5,     /* rotated pairs of a head are halves: to neighbours (not in the table) */
};

struct hf_name {
    enum slot slot;
    /* "@": the root. Layers: without root and layer. With "%d" for an expert's own tensor. */
    const char *name;
    unsigned change; /* enum change */
};

/* What differs from the usual in a family; flags of struct family. */
enum {
    FAMILY_NEIGHBOURS = 1 << 0,   /* rotated pairs are neighbours in the checkpoint, too */
    FAMILY_PLUS_ONE = 1 << 1,     /* norms are stored minus one */
    FAMILY_WINDOW = 1 << 2,       /* layers may have a sliding window; in the others the key means nothing */
    FAMILY_ONE_WINDOW = 1 << 3,   /* all layers have it, whatever layer_types says */
    FAMILY_PART_ROTATED = 1 << 4, /* partial_rotary_factor may be less than 1 */
    FAMILY_ROPE_ALPHA = 1 << 5,   /* RoPE of type dynamic with alpha is a larger base */
};

/* One architecture of config.json. */
struct family {
    const char *architecture; /* "LlamaForCausalLM" */
    const char *arch;         /* row of ARCHS */
    const char *roots;        /* what tensor names may begin with, separated by spaces; "-": nothing */
    const char *layer;        /* "layers.%d." */
    const struct hf_name
        *names; /* where names differ from HF_NAMES; the last row has name NULL; NULL: nowhere */
    unsigned flags;
};
extern const struct family HF_FAMILIES[];
extern const size_t HF_FAMILY_COUNT;

/* The usual names, those of Llama. Several rows of a slot: the first that the checkpoint has. */
extern const struct hf_name HF_NAMES[];
extern const size_t HF_NAME_COUNT;

/* NULL: unknown. */
const struct family *hf_family_find(const char *architecture);

#endif
