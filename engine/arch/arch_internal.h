/* engine/arch/arch_internal.h - what the files of engine/arch share: reading a model's sizes, checking its
 * tensors. */
#ifndef QDYNO_ENGINE_ARCH_INTERNAL_H
#define QDYNO_ENGINE_ARCH_INTERNAL_H

#include "engine/arch/arch.h"

enum { HEADS_MAX = 65536, HEAD_DIM_MAX = 1024, WIDTH_MAX = 1 << 26, CTX_MAX = 1 << 30 };

/* Read a size from 1 to max. otherwise < 0: the key is required. ERR_FORMAT. */
enum err_code shape_read_size(int64_t *out, const struct gguf *g, const char *arch, enum arch_key name,
                              int64_t max, int64_t otherwise, struct err *why);

/* The same for a size that may be a list with a value for each layer: the largest. It may be 0 for layers
 * with a state, and otherwise differs in models with layers_differ only. s->layers is known. */
enum err_code shape_read_list(int64_t *out, const struct model_shape *s, const struct arch *a,
                              const struct gguf *g, enum arch_key name, int64_t max, int64_t otherwise,
                              struct err *why);

/* Does any layer have this tensor? s->layers is known. Which of two forms a file has must not depend on one
 * tensor, which may be the one that is missing. */
bool shape_any_layer_has(const struct model_shape *s, const struct gguf *g, enum slot slot);

/* Fill s->parts, but for experts, s->window and s->layer_inputs; sizes of s become the largest of any layer.
 * The lists have been read. ERR_FORMAT. */
enum err_code shape_read_parts(struct model_shape *s, const struct arch *a, const struct gguf *g,
                               struct err *why);

/* Fill s->state, if any layer has one. ERR_FORMAT. */
enum err_code shape_read_state(struct model_shape *s, const struct arch *a, const struct gguf *g,
                               struct err *why);

/* Does the file list its layers with a window, in an architecture that must (window_listed)? */
bool arch_lists_windows(const struct arch *a, const struct gguf *g);

/* Does the file have one tensor for each expert in place of this slot's? */
bool arch_slot_is_split(const struct model_shape *s, const struct gguf *g, int layer, enum slot slot);

/* Refuse a file that lacks an optional tensor which others that it has require (tensor_sets.c). ERR_FORMAT:
 * the message names the tensor, and what requires it. */
enum err_code arch_check_sets(const struct arch *a, const struct model_shape *s, const struct gguf *g,
                              struct err *why);

#endif
