/* Builds models of every architecture of the table, small enough to run in milliseconds. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/draft.h"

/* Sizes that leave nothing to chance: rows fill the blocks of 32-wide formats, or (WIDE) of all. */
enum { NARROW = 64, WIDE = 256, CTX = 64, CHARACTERS = 256 };

static void add_key(struct draft *d, const struct arch *a, enum arch_key key, uint32_t value)
{
    char name[ARCH_KEY_NAME];
    draft_add_u32(d, arch_key_name(name, a->name, key), value);
}

static void add_number(struct draft *d, const struct arch *a, enum arch_key key, float value)
{
    char name[ARCH_KEY_NAME];
    draft_add_f32(d, arch_key_name(name, a->name, key), value);
}

static struct draft_key *add_list(struct draft *d, const char *name, uint32_t element)
{
    struct draft_key *k = draft_add(d, name, GGUF_ARRAY, "", 0);
    if (k) k->element = element;
    if (k) k->count = 0;
    return k;
}

static void list_text(struct draft_key *k, const char *text, size_t n)
{
    draft_put_text(k, text, n);
    k->count++;
}

static const char *const PAIRS[] = {
    "th", "he", "in", "er", "an", "the", "ing", "\xe2\x96\x81t", "\xe2\x96\x81the"
};

/* SentencePiece: bytes, letters and some pairs of them. Returns the number of tokens. */
static uint32_t add_spm(struct draft *d)
{
    static const char *const NAMED[] = { "<unk>", "<s>", "</s>" };
    draft_add_text(d, "tokenizer.ggml.model", "llama");
    struct draft_key *texts = add_list(d, "tokenizer.ggml.tokens", GGUF_STRING),
                     *scores = add_list(d, "tokenizer.ggml.scores", GGUF_F32),
                     *types = add_list(d, "tokenizer.ggml.token_type", GGUF_I32);
    if (!texts || !scores || !types) abort();
    for (size_t i = 0; i < COUNT_OF(NAMED); i++) list_text(texts, NAMED[i], strlen(NAMED[i]));
    for (int i = 0; i < CHARACTERS; i++) {
        char text[8];
        list_text(texts, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", i));
    }
    for (char c = 'a'; c <= 'z'; c++) list_text(texts, &c, 1);
    list_text(texts, "\xe2\x96\x81", 3);
    for (size_t i = 0; i < COUNT_OF(PAIRS); i++) list_text(texts, PAIRS[i], strlen(PAIRS[i]));
    for (uint64_t i = 0; i < texts->count; i++) {
        const float score = -(float)i;
        const int32_t type = i == 0 ? 2 : i < 3 ? 3 : i < 3 + CHARACTERS ? 6 : 1;
        str_append_n(&scores->value, &score, sizeof score);
        str_append_n(&types->value, &type, sizeof type);
    }
    scores->count = types->count = texts->count;
    return (uint32_t)texts->count;
}

/* The letter that stands for a byte in vocabularies of byte-level BPE. */
static size_t bpe_letter(int byte, char out[4])
{
    static const struct {
        int from, to;
    } KEPT[] = { { '!', '~' }, { 0xa1, 0xac }, { 0xae, 0xff } };
    uint32_t moved = 256;
    for (int i = 0; i <= byte; i++) {
        bool kept = false;
        for (size_t k = 0; k < COUNT_OF(KEPT); k++) kept |= i >= KEPT[k].from && i <= KEPT[k].to;
        if (i == byte) return str_utf8_put(kept ? (uint32_t)byte : moved, out);
        moved += !kept;
    }
    return 0;
}

static uint32_t add_bpe(struct draft *d, const char *pre)
{
    static const char *const MERGES[] = { "t h", "h e", "i n", "e r", "a n", "th e", "in g", "\xc4\xa0 t" };
    draft_add_text(d, "tokenizer.ggml.model", "gpt2");
    draft_add_text(d, "tokenizer.ggml.pre", pre);
    struct draft_key *texts = add_list(d, "tokenizer.ggml.tokens", GGUF_STRING),
                     *merges = add_list(d, "tokenizer.ggml.merges", GGUF_STRING);
    if (!texts || !merges) abort();
    for (int i = 0; i < CHARACTERS; i++) {
        char text[4];
        list_text(texts, text, bpe_letter(i, text));
    }
    for (size_t i = 0; i < COUNT_OF(MERGES); i++) {
        char joined[16];
        const char *space = strchr(MERGES[i], ' ');
        list_text(merges, MERGES[i], strlen(MERGES[i]));
        list_text(texts, joined,
                  (size_t)snprintf(joined, sizeof joined, "%.*s%s", (int)(space - MERGES[i]), MERGES[i],
                                   space + 1));
    }
    return (uint32_t)texts->count;
}

static void add_tensor(struct draft *d, const struct arch *a, const struct model_shape *shape, int layer,
                       enum slot slot, const struct format *f)
{
    char name[ARCH_NAME];
    if (d->tensors == DRAFT_TENSORS) return;
    struct draft_tensor *t = &d->tensor[d->tensors++];
    arch_slot_name(name, sizeof name, layer, slot);
    str_append(&t->name, name);
    const enum dim dims[] = { ARCH_SLOTS[slot].cols, ARCH_SLOTS[slot].rows, ARCH_SLOTS[slot].matrices };
    for (t->dims = 0; t->dims < COUNT_OF(dims) && dims[t->dims] != DIM_NONE; t->dims++)
        t->shape[t->dims] = (uint64_t)arch_layer_dim(dims[t->dims], a, shape, layer);
    if (arch_slot_is_vector(slot) || slot == SLOT_POSITION_EMBD) f = &FORMATS[FORMAT_F32];
    if (t->shape[0] % f->block_weights) f = &FORMATS[FORMAT_F16];
    t->type = f->ggml_type;
    draft_fill(t, d->tensors);
}

/* The tensors that each layer must have, or those of `may` that it may. */
static void add_tensors(struct draft *d, const struct arch *a, const struct model_shape *shape, slot_set may,
                        const struct format *f)
{
    for (int layer = -1; layer < shape->layers; layer++) {
        const slot_set slots = may ? arch_may(a, shape, layer) & may : arch_need(a, shape, layer);
        for (int slot = 0; slot < SLOT_COUNT; slot++)
            if (slots & SLOT_BIT(slot)) add_tensor(d, a, shape, layer, (enum slot)slot, f);
    }
}

/* A list with a number for each layer. */
static void add_layers(struct draft *d, const struct arch *a, enum arch_key key, const uint32_t *values,
                       int n)
{
    char name[ARCH_KEY_NAME];
    struct draft_key *k = add_list(d, arch_key_name(name, a->name, key), GGUF_U32);
    if (!k) return;
    str_append_n(&k->value, (const char *)values, (size_t)n * sizeof *values);
    k->count = (uint64_t)n;
}

/* Layers of a hybrid model: one with a state, one with attention, and, where these have none, a feed-forward.
 */
static void add_states(struct draft *d, const struct arch *a, struct model_shape *m)
{
    enum { HEADS = 4, GROUPS = 2, DIM = 16 };
    const bool convolution = a->state == MIXER_CONVOLUTION;
    struct state_shape *t = &m->state;
    if (a->state == MIXER_ATTENTION) return;
    m->layers = a->one_part ? 3 : 2;
    m->parts[0].mixer = (uint8_t)a->state;
    if (a->one_part) m->parts[2].mixer = MIXER_NONE;
    *t = (struct state_shape){ .taps = 3, .channels = m->embd };
    add_key(d, a, convolution ? META_STATE_TAPS_SHORT : META_STATE_TAPS, (uint32_t)t->taps);
    if (a->attention_period)
        add_key(d, a, META_ATTENTION_PERIOD, 2);
    else
        add_layers(d, a, META_HEAD_COUNT_KV, (const uint32_t[]){ 0, (uint32_t)m->kv_heads, 0 }, m->layers);
    if (convolution) return;
    *t = (struct state_shape){ 3, HEADS, GROUPS, DIM, DIM, DIM * (HEADS + 2 * GROUPS), false };
    add_key(d, a, META_STATE_KEY, DIM);
    add_key(d, a, META_STATE_GROUPS, GROUPS);
    add_key(d, a, META_STATE_HEADS, HEADS);
    add_key(d, a, META_STATE_INNER, HEADS * DIM);
}

/* What each layer consists of, with experts in all of them or none. */
static void add_parts(struct draft *d, const struct arch *a, struct model_shape *m, bool experts)
{
    if (experts) {
        m->experts = 3;
        m->experts_used = 2;
        m->expert_ff = m->shared_ff = m->ff;
        add_key(d, a, META_EXPERT_COUNT, (uint32_t)m->experts);
        add_key(d, a, META_EXPERTS_USED, (uint32_t)m->experts_used);
        add_key(d, a, META_EXPERT_FF, (uint32_t)m->expert_ff);
    }
    for (int l = 0; l < m->layers; l++) {
        struct layer_parts *p = &m->parts[l];
        const uint8_t mixer = p->mixer;
        *p = (struct layer_parts){ .mixer = mixer, .feed_forward = !a->one_part || mixer == MIXER_NONE };
        p->experts = experts && p->feed_forward;
        p->head_dim_k = p->head_dim_v = (uint16_t)m->head_dim_k;
        p->rope_dims = (uint16_t)m->rope_dims;
        p->kv_layer = (int16_t)l;
        p->kv_heads = m->kv_heads;
        p->ff = (int32_t)m->ff;
    }
}

static void add_sizes(struct draft *d, const struct arch *a, const struct model_shape *s)
{
    add_key(d, a, META_BLOCK_COUNT, (uint32_t)s->layers);
    add_key(d, a, META_EMBEDDING_LENGTH, (uint32_t)s->embd);
    if (a->one_part)
        add_layers(d, a, META_FEED_FORWARD_LENGTH, (const uint32_t[]){ 0, 0, (uint32_t)s->ff }, 3);
    else
        add_key(d, a, META_FEED_FORWARD_LENGTH, (uint32_t)s->ff);
    add_key(d, a, META_CONTEXT_LENGTH, (uint32_t)s->ctx_train);
    add_key(d, a, META_HEAD_COUNT, (uint32_t)s->heads);
    if (a->state == MIXER_ATTENTION || a->attention_period)
        add_key(d, a, META_HEAD_COUNT_KV, (uint32_t)s->kv_heads);
    add_number(d, a, a->norm == NORM_RMS ? META_RMS_EPSILON : META_LAYER_EPSILON, 1e-5f);
    if (a->rope != ROPE_NONE) add_key(d, a, META_ROPE_DIMENSIONS, (uint32_t)s->rope_dims);
}

/* Half of the models are not quantized yet. */
static const struct format *choose_format(struct script *s)
{
    static const enum format_id PLAIN[] = { FORMAT_F32, FORMAT_F16, FORMAT_BF16 };
    const size_t i = script_below(s, 2 * FORMAT_COUNT);
    return &FORMATS[i < FORMAT_COUNT ? i : PLAIN[i % COUNT_OF(PLAIN)]];
}

/* Types of ours are named in the metadata (docs/formats.md). */
static void name_own_type(struct draft *d, const struct format *f)
{
    struct str names = { 0 };
    str_printf(&names, "%s=%u", f->name, (unsigned)f->ggml_type);
    if (f->ggml_type >= FORMAT_OWN_TYPES) draft_add_text(d, "qdyno.formats", str_text(&names));
    str_free(&names);
}

void draft_model(struct draft *d, struct script *s)
{
    static const char *const PRE[] = { "gpt-2", "llama-bpe", "qwen2", "default", "starcoder" };
    const struct arch *a = &ARCHS[script_below(s, ARCH_COUNT)];
    const struct format *f = choose_format(s);
    const size_t shape = script_below(s, 16), vocabulary = script_below(s, COUNT_OF(PRE) + 2);
    struct model_shape m = { .layers = 1 + (int)(shape & 1), .heads = 2, .kv_heads = shape & 2 ? 1 : 2 };
    m.embd = shape & 4 && f->block_weights > NARROW ? WIDE : NARROW;
    m.ff = shape & 8 ? m.embd : 2 * m.embd;
    m.ctx_train = CTX;
    m.head_dim_k = m.head_dim_v = m.rope_dims = (int)m.embd / m.heads;
    if (a->rope == ROPE_NONE) m.rope_dims = 0;
    draft_add_text(d, "general.architecture", a->name);
    add_states(d, a, &m);
    add_sizes(d, a, &m);
    add_parts(d, a, &m, a->router != ROUTER_NONE && script_below(s, 2));
    name_own_type(d, f);
    if (vocabulary < COUNT_OF(PRE))
        m.vocab = add_bpe(d, PRE[vocabulary]);
    else
        m.vocab = vocabulary == COUNT_OF(PRE) ? add_spm(d) : 40;
    add_tensors(d, a, &m, 0, f);
    if (script_below(s, 2)) add_tensors(d, a, &m, SLOT_BIT(SLOT_OUTPUT) | SLOT_BIT(SLOT_Q_B), f);
    if (m.experts && arch_is_gated(a)) add_tensors(d, a, &m, SLOT_BIT(SLOT_GATE_UP_EXPERTS), f);
}
