/* Changes of a draft, each of which one wrong or unusual file could have: values, types, lengths, shapes,
 * names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/draft.h"

/* ---------------------------------------------------------------- what to put there */

static uint64_t odd_integer(struct script *s)
{
    static const uint64_t ODD[] = { 0,          1,         2,          3,          7,          8,
                                    31,         64,        255,        256,        1000,       4095,
                                    4096,       65535,     65536,      1 << 20,    1 << 24,    1u << 30,
                                    INT32_MAX,  1u << 31,  UINT32_MAX, 1ull << 32, 1ull << 48, INT64_MAX,
                                    1ull << 63, UINT64_MAX };
    const size_t i = script_below(s, COUNT_OF(ODD) + 8);
    return i < COUNT_OF(ODD) ? ODD[i] : script_number(s, 1 + i % 2);
}

static double odd_real(struct script *s)
{
    static const double ODD[] = { 0, -0.0, 1, -1, 0.5, 2, 1e-30, 1e-5, 1e6, 1e30, -1e30, 3.4e38, 1e300 };
    const size_t i = script_below(s, COUNT_OF(ODD) + 3);
    if (i < COUNT_OF(ODD)) return ODD[i];
    return i == COUNT_OF(ODD) ? (double)NAN : i == COUNT_OF(ODD) + 1 ? (double)INFINITY : (double)-INFINITY;
}

static const char *odd_text(struct script *s)
{
    static const char *const ODD[] = { "",        "llama",        "gpt2",      "none",  "no_vocab",
                                       "default", "gpt-2",        "llama-bpe", "qwen2", "linear",
                                       "yarn",    "longrope",     "imatrix",   "a\nb",  "\xff\xfe",
                                       "<|x|>",   "\xe2\x96\x81", "%s%n" };
    const size_t i = script_below(s, COUNT_OF(ODD) + ARCH_COUNT);
    return i < COUNT_OF(ODD) ? ODD[i] : ARCHS[i - COUNT_OF(ODD)].name;
}

/* The name of a key of the draft's architecture, or one of the general ones. */
static const char *odd_name(const struct draft *d, struct script *s, char out[ARCH_KEY_NAME])
{
    static const char *const GENERAL[] = { "general.architecture",
                                           "general.alignment",
                                           "general.type",
                                           "general.file_type",
                                           "general.name",
                                           "qdyno.formats",
                                           "qdyno.synthetic",
                                           "split.count",
                                           "tokenizer.ggml.model",
                                           "tokenizer.ggml.pre",
                                           "tokenizer.ggml.tokens",
                                           "tokenizer.ggml.scores",
                                           "tokenizer.ggml.token_type",
                                           "tokenizer.ggml.merges",
                                           "tokenizer.ggml.bos_token_id",
                                           "tokenizer.ggml.eos_token_id",
                                           "tokenizer.ggml.unknown_token_id",
                                           "tokenizer.ggml.add_bos_token",
                                           "tokenizer.ggml.add_space_prefix" };
    const size_t i = script_below(s, COUNT_OF(GENERAL) + ARCH_KEY_COUNT);
    const struct draft_key *k = draft_find((struct draft *)d, "general.architecture");
    if (i < COUNT_OF(GENERAL))
        snprintf(out, ARCH_KEY_NAME, "%s", GENERAL[i]);
    else
        snprintf(out, ARCH_KEY_NAME, "%.*s.%s", k && k->value.len > 8 ? (int)MIN(k->value.len - 8, 32) : 0,
                 k && k->value.len > 8 ? k->value.data + 8 : "", ARCH_KEYS[i - COUNT_OF(GENERAL)].name);
    return out;
}

static void put_scalar(struct str *out, uint32_t type, struct script *s)
{
    static const uint8_t BYTES[GGUF_TYPE_COUNT] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    const size_t n = type < GGUF_TYPE_COUNT ? BYTES[type] : 4;
    const double real = type == GGUF_F32 || type == GGUF_F64 ? odd_real(s) : 0;
    const float single = (float)real;
    const uint64_t whole = type == GGUF_F32 || type == GGUF_F64 ? 0 : odd_integer(s);
    str_append_n(out,
                 type == GGUF_F32   ? (const void *)&single
                 : type == GGUF_F64 ? (const void *)&real
                                    : &whole,
                 n);
}

static void put_string(struct str *out, const char *text)
{
    const uint64_t n = strlen(text);
    str_append_n(out, &n, sizeof n);
    str_append(out, text);
}

/* ---------------------------------------------------------------- keys */

static void key_set(struct draft *d, struct draft_key *k, struct script *s)
{
    (void)d;
    str_clear(&k->value);
    if (k->type == GGUF_ARRAY) k->type = k->element;
    k->count = 1;
    if (k->type == GGUF_STRING)
        put_string(&k->value, odd_text(s));
    else
        put_scalar(&k->value, k->type, s);
}

static void key_retype(struct draft *d, struct draft_key *k, struct script *s)
{
    k->type = k->element = (uint32_t)script_below(s, GGUF_TYPE_COUNT + 1);
    if (k->type == GGUF_ARRAY) k->type = k->element = GGUF_U32;
    key_set(d, k, s);
}

static void key_add(struct draft *d, struct draft_key *k, struct script *s)
{
    char name[ARCH_KEY_NAME];
    if (d->keys == DRAFT_KEYS) return;
    k = draft_add(d, odd_name(d, s, name), GGUF_U32, "", 0);
    key_retype(d, k, s);
}

static void key_rename(struct draft *d, struct draft_key *k, struct script *s)
{
    char name[ARCH_KEY_NAME];
    odd_name(d, s, name);
    str_clear(&k->name);
    str_append(&k->name, name);
}

static void key_drop(struct draft *d, struct draft_key *k, struct script *s)
{
    (void)s;
    const struct draft_key dropped = *k, last = d->key[d->keys - 1];
    d->key[--d->keys] = dropped; /* freed with the draft */
    if (k != &d->key[d->keys]) *k = last;
}

static void key_count(struct draft *d, struct draft_key *k, struct script *s)
{
    (void)d;
    k->count = script_below(s, 2) ? odd_integer(s) : k->count + script_below(s, 3) - 1;
}

/* Values of an array are replaced, bytes of any other are poked. */
static void key_poke(struct draft *d, struct draft_key *k, struct script *s)
{
    (void)d;
    for (size_t hits = 1 + script_below(s, 4); hits && k->value.len; hits--)
        k->value.data[script_number(s, 2) % k->value.len] = (char)script_number(s, 1);
}

/* An array with another number of values: numbers, or texts that are all different and of a chosen length. */
static void key_list(struct draft *d, struct draft_key *k, struct script *s)
{
    (void)d;
    const size_t n = script_below(s, 2048), filler = script_below(s, 40);
    const bool text = k->type == GGUF_ARRAY && k->element == GGUF_STRING;
    str_clear(&k->value);
    if (k->type != GGUF_ARRAY) k->element = GGUF_I32;
    k->type = GGUF_ARRAY;
    k->count = n;
    struct script again = *s;
    for (size_t i = 0; i < n; i++) {
        char word[64];
        if (i % 64 == 0) *s = again; /* a list of the same few values again and again */
        snprintf(word, sizeof word, "%.*s%zx%s", (int)filler, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i,
                 i % 3 ? "" : " b");
        if (text)
            put_string(&k->value, word);
        else
            put_scalar(&k->value, k->element, s);
    }
}

/* ---------------------------------------------------------------- tensors */

static void tensor_shape(struct draft_tensor *t, struct script *s)
{
    uint64_t *dim = &t->shape[script_below(s, DRAFT_DIMS)];
    switch (script_below(s, 6)) {
    case 0: *dim += 1; break;
    case 1: *dim -= 1; break;
    case 2: *dim *= 2; break;
    case 3: *dim /= 2; break;
    case 4: *dim = odd_integer(s); break;
    default: t->dims = (uint32_t)script_below(s, 6);
    }
}

static void tensor_swap(struct draft_tensor *t, struct script *s)
{
    (void)s;
    const uint64_t first = t->shape[0];
    t->shape[0] = t->shape[1];
    t->shape[1] = first;
}

static void tensor_type(struct draft_tensor *t, struct script *s)
{
    t->type = script_below(s, 4) ? FORMATS[script_below(s, FORMAT_COUNT)].ggml_type
                                 : (uint32_t)odd_integer(s);
}

/* Another shape or type, and data of the size that belongs to it. */
static void tensor_remake(struct draft_tensor *t, struct script *s)
{
    if (script_below(s, 2))
        tensor_type(t, s);
    else
        tensor_shape(t, s);
    draft_fill(t, script_number(s, 1));
}

/* Numbers that a trained model never has; in blocks they become scales and codes. */
static void tensor_poke(struct draft_tensor *t, struct script *s)
{
    static const uint32_t WORDS[] = { 0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff, 0xffffffff, 0x00000001,
                                      0x7e007c00, 0x7bff7bff, 0xfbfffbff, 0x00010001, 0x80008000, 0 };
    const uint32_t word = WORDS[script_below(s, COUNT_OF(WORDS))];
    if (t->data.len < sizeof word) return;
    const size_t step = script_below(s, 3) ? t->data.len : 1 + script_number(s, 1);
    for (size_t at = script_number(s, 2) % (t->data.len - 3); at + sizeof word <= t->data.len; at += step)
        memcpy(t->data.data + at, &word, sizeof word);
}

static void tensor_rename(struct draft_tensor *t, struct script *s)
{
    char name[ARCH_NAME];
    const size_t slot = script_below(s, SLOT_COUNT + 1);
    const int layer = (int)script_below(s, 3);
    if (slot == SLOT_COUNT) {
        str_append(&t->name, ".order"); /* a companion of a matrix (arch.h) */
        return;
    }
    arch_slot_name(name, sizeof name, slot < SLOT_GLOBAL_COUNT ? -1 : layer, (enum slot)slot);
    str_clear(&t->name);
    str_append(&t->name, name);
}

static void tensor_shift(struct draft_tensor *t, struct script *s)
{
    t->shift = odd_integer(s) * (script_below(s, 2) ? 32 : 1);
}

static void tensor_drop(struct draft *d, struct draft_tensor *t)
{
    const struct draft_tensor dropped = *t, last = d->tensor[d->tensors - 1];
    d->tensor[--d->tensors] = dropped;
    if (t != &d->tensor[d->tensors]) *t = last;
}

static void tensor_copy(struct draft *d, const struct draft_tensor *from)
{
    if (d->tensors == DRAFT_TENSORS) return;
    struct draft_tensor *t = &d->tensor[d->tensors++];
    t->dims = from->dims;
    t->type = from->type;
    t->shift = from->shift;
    memcpy(t->shape, from->shape, sizeof t->shape);
    str_clear(&t->name);
    str_clear(&t->data);
    str_append(&t->name, str_text(&from->name));
    str_append_n(&t->data, str_text(&from->data), from->data.len);
}

/* ---------------------------------------------------------------- the whole */

/* The same file as another architecture's: its name, and the prefix of its keys. */
static void draft_change_arch(struct draft *d, struct script *s)
{
    struct draft_key *k = draft_find(d, "general.architecture");
    const char *to = ARCHS[script_below(s, ARCH_COUNT)].name;
    if (!k || k->type != GGUF_STRING || k->value.len <= 8) return;
    struct str from = { 0 };
    str_append_n(&from, k->value.data + 8, k->value.len - 8);
    str_append(&from, ".");
    str_clear(&k->value);
    put_string(&k->value, to);
    for (size_t i = 0; i < d->keys; i++) {
        struct str *name = &d->key[i].name, changed = { 0 };
        if (name->len < from.len || memcmp(name->data, from.data, from.len)) continue; /* may contain NUL */
        str_printf(&changed, "%s.", to);
        str_append_n(&changed, name->data + from.len, name->len - from.len);
        str_free(name);
        *name = changed;
    }
    str_free(&from);
}

void draft_edit(struct draft *d, struct script *s)
{
    static void (*const OF_KEYS[])(struct draft *, struct draft_key *,
                                   struct script *) = { key_set,  key_retype, key_add,  key_rename,
                                                        key_drop, key_count,  key_poke, key_list };
    static void (*const OF_TENSORS[])(struct draft_tensor *, struct script *) = {
        tensor_shape, tensor_swap, tensor_type, tensor_remake, tensor_poke, tensor_rename, tensor_shift
    };
    const size_t keys = COUNT_OF(OF_KEYS), both = keys + COUNT_OF(OF_TENSORS),
                 what = script_below(s, both + 3);
    struct draft_key *k = d->keys ? &d->key[script_below(s, d->keys)] : NULL;
    struct draft_tensor *t = d->tensors ? &d->tensor[script_below(s, d->tensors)] : NULL;
    if (what < keys && k) OF_KEYS[what](d, k, s);
    if (what >= keys && what < both && t) OF_TENSORS[what - keys](t, s);
    if (what == both) draft_change_arch(d, s);
    if (what == both + 1 && t) tensor_drop(d, t);
    if (what == both + 2 && t) tensor_copy(d, t);
}
