/* engine/arch/arch.h - a table of transformer architectures: which tensors a model file must contain, their
 * shapes, and how a layer combines them.
 *
 * The forward pass and the planner read rows of this table; they contain no model names. Also here: the sizes
 * that a file's metadata gives (struct model_shape), and what the file says about a matrix beside its
 * weights. */
#ifndef QDYNO_ENGINE_ARCH_H
#define QDYNO_ENGINE_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- shapes */

/* The part of a layer that mixes tokens of a sequence. All kinds but attention keep a state of constant size
 * per sequence. */
enum mixer {
    MIXER_ATTENTION,
    MIXER_DELTA,       /* gated delta net */
    MIXER_SCAN,        /* Mamba-2 */
    MIXER_CONVOLUTION, /* short gated convolution */
    MIXER_NONE,        /* the layer is only a feed-forward */
};

/* The parts of one layer. */
struct layer_parts {
    uint8_t mixer; /* enum mixer */
    bool feed_forward, experts;
    bool window; /* sliding window: attention to the last model_shape.window tokens only */
    uint16_t head_dim_k, head_dim_v, rope_dims; /* sizes of this layer's heads, as in struct model_shape */
    int16_t kv_layer; /* number of the layer whose keys and values this one reads: its own, or an earlier one
                         that shares them */
    int32_t kv_heads, ff;
};

/* Sizes of the layers that keep a state. heads, groups, key_dim and value_dim as in struct recurrence; all
 * are 0 for layers that are only a convolution. */
struct state_shape {
    int taps; /* of the convolution */
    int heads, groups, key_dim, value_dim;
    int64_t channels; /* of the convolution */
    bool fused;       /* delta net: one matrix computes q, k, v and z, interleaved by group */
};

enum { LAYERS_MAX = 1024 };

/* The name that people know a file's quantization by (quantization.c): Q4_K_M, UD-Q4_K_XL, a recipe. */
enum quantization_source {
    QUANTIZATION_RECIPE,    /* qdyno.recipe, of a file that qdyno wrote */
    QUANTIZATION_METADATA,  /* general.file_type */
    QUANTIZATION_FILE_NAME, /* "...-Q4_K_M.gguf" */
    QUANTIZATION_TENSORS    /* neither of them, or the tensors refute both: the format of most bytes */
};
struct quantization_name {
    char name[48], base[24]; /* base: the format of most matrices in such a file */
    enum quantization_source source;
    bool mostly_other; /* most bytes are in another format than the base */
    char note[160];    /* what contradicts the name; "": nothing */
};
/* dominant: the format of most bytes. */
void quantization_name_read(struct quantization_name *out, const struct gguf *g, const char *path,
                            const char *dominant);
const char *quantization_source_name(enum quantization_source s);
/* The last name of a quantization in a file's name, as people write it: "UD-Q4_K_XL" of
 * "m-UD-Q4_K_XL-00001-of-00002.gguf". "" and false: there is none. */
bool quantization_tag_of_path(const char *path, char *tag, size_t size);

/* Sizes of a model, from its metadata and tensor headers. */
struct model_shape {
    char arch[32];    /* "llama" */
    char name[128];   /* general.name, "" when absent */
    int layers;       /* number of layers that the forward pass runs */
    int nextn_layers; /* number of layers behind these that predict further tokens; the forward pass does not
                         run them */
    int heads, kv_heads, head_dim_k, head_dim_v, rope_dims; /* the largest value of any layer */
    int window;       /* length of the sliding window in tokens; 0: no layer has one */
    int layer_inputs; /* number of values that each layer gets from the second embedding of a token; 0: there
                         is no second embedding */
    int experts, experts_used; /* experts in a layer with experts; experts that a token uses; 0: no layer has
                                  experts */
    int64_t expert_ff, shared_ff; /* width (hidden size) of one expert, and of the shared expert that every
                                     token uses; 0: none */
    int64_t embd, ff, vocab, ctx_train;
    int64_t params;           /* number of elements of all tensors */
    int64_t weight_bytes;     /* tensor bytes in the file */
    char dominant_format[16]; /* format of most weight bytes, e.g. "q4_0"; "unsupported": of tensors with an
                                 unknown format */
    struct quantization_name quantization;
    /* Latent attention (MLA, DeepSeek-V2). In each head, queries and keys have nope_dims values without RoPE
     * and rope_dims values with RoPE. Keys and values of a token are computed from kv_lora numbers. kv_lora =
     * 0: ordinary attention. */
    int64_t q_lora, kv_lora;      /* q_lora = 0: one matrix computes the queries, without a latent vector */
    int nope_dims, latent_v_dims; /* of one head */
    bool fused_qkv; /* the file has q, k and v in one matrix (for architectures that allow one or three) */
    bool latent_cached;       /* the KV cache holds the kv_lora numbers and the rotated key; head_dim_k and
                                 head_dim_v are their lengths */
    struct state_shape state; /* taps = 0: all layers have attention */
    struct layer_parts parts[LAYERS_MAX];
    bool tied_output;
    bool random_weights; /* qdyno.synthetic: the weights are random, so quality figures mean nothing */
    int unknown; /* number of metadata keys and tensors that may change answers but are not used by the
                    forward pass (arch_unknown). A model with any runs only with force=on, and its answers are
                    then called unverified */
};
const char *quantization_short(const struct model_shape *s); /* "Q4_K_M". Borrowed */
const char *file_type_tag(int64_t file_type); /* of a value of general.file_type; NULL: it has no name */
/* "Q4_K_M", or "Q4_K_M (most bytes q8_0)" where these differ. Returns buf. */
const char *quantization_text(const struct model_shape *s, char *buf, size_t size);
/* Works on files of gguf_open_any_type, too. Errors: ERR_FORMAT (unknown architecture: the message lists the
 * known ones; a key is missing or out of range). Then *out still has what needs no architecture: arch as the
 * file names it, name, params, weight_bytes, dominant_format, quantization. */
enum err_code model_shape_read(struct model_shape *out, const struct gguf *g, struct err *why);
const char *const *model_architectures(void); /* NULL-terminated */

/* ---------------------------------------------------------------- architectures */

/* Every tensor that some architecture has. ARCH_SLOTS gives its name and shape. */
enum slot {
    SLOT_TOKEN_EMBD,
    SLOT_POSITION_EMBD,
    SLOT_OUTPUT_NORM,
    SLOT_OUTPUT_NORM_B,
    SLOT_OUTPUT_NORM_2, /* the output norm in files that call it token_embd_norm */
    SLOT_OUTPUT,
    SLOT_OUTPUT_B,
    SLOT_ROPE_FREQS,
    SLOT_ROPE_LONG,
    SLOT_ROPE_SHORT,
    SLOT_LAYER_INPUTS, /* second embedding: one vector per layer and token */
    SLOT_LAYER_INPUTS_PROJ,
    SLOT_LAYER_INPUTS_NORM,
    SLOT_GLOBAL_COUNT,
    SLOT_ATTN_NORM = SLOT_GLOBAL_COUNT, /* from here on: one per layer, with the prefix "blk.N." */
    SLOT_ATTN_NORM_B,
    SLOT_ATTN_NORM_2,
    SLOT_ATTN_NORM_2_B,
    SLOT_Q,
    SLOT_Q_B,
    SLOT_K,
    SLOT_K_B,
    SLOT_V,
    SLOT_V_B,
    SLOT_QKV,
    SLOT_QKV_B,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_Q_NORM_EACH,
    SLOT_K_NORM_EACH,
    SLOT_ATTN_OUT,
    SLOT_ATTN_OUT_B,
    SLOT_POST_ATTN_NORM,
    SLOT_FFN_NORM,
    SLOT_FFN_NORM_B,
    SLOT_GATE,
    SLOT_GATE_B,
    SLOT_UP,
    SLOT_UP_B,
    SLOT_DOWN,
    SLOT_DOWN_B,
    SLOT_POST_FFN_NORM,
    SLOT_FFN_NORM_2, /* the feed-forward's norm in files that call it post_attention_norm */
    SLOT_SINKS,
    SLOT_LAYER_SCALE, /* factor of the layer's output */
    SLOT_INPUT_GATE,  /* these three: of the layer's part of the second embedding */
    SLOT_INPUT_OUT,
    SLOT_INPUT_NORM,
    SLOT_ROUTER_SCALE, /* factors of the router's input, [embd] */
    SLOT_EXPERT_SCALE, /* factors of the experts' outputs, [experts] */
    SLOT_EXPERTS_NORM, /* norm of the experts' input, in layers that also have a feed-forward */
    SLOT_POST_FFN_NORM_1,
    SLOT_POST_EXPERTS_NORM,
    SLOT_ROUTER,
    SLOT_ROUTER_B,
    SLOT_ROUTER_CHOICE, /* added to the scores when experts are chosen, but not in their weights */
    SLOT_GATE_EXPERTS,
    SLOT_GATE_EXPERTS_B,
    SLOT_UP_EXPERTS,
    SLOT_UP_EXPERTS_B,
    SLOT_GATE_UP_EXPERTS,
    SLOT_DOWN_EXPERTS,
    SLOT_DOWN_EXPERTS_B,
    SLOT_GATE_SHARED,
    SLOT_UP_SHARED,
    SLOT_DOWN_SHARED,
    SLOT_SHARED_SCORE,
    SLOT_LATENT_Q, /* from here on: latent attention */
    SLOT_LATENT_Q_A,
    SLOT_LATENT_Q_A_NORM,
    SLOT_LATENT_Q_B,
    SLOT_LATENT_KV_A,
    SLOT_LATENT_KV_A_NORM,
    SLOT_LATENT_KV_B, /* computes keys and values of all heads; some files have the next two instead, one part
                         for each */
    SLOT_LATENT_K_B,
    SLOT_LATENT_V_B,
    SLOT_STATE_QKV, /* from here on: layers with a state */
    SLOT_STATE_GATE,
    SLOT_STATE_IN,
    SLOT_STATE_CONV, /* filters of the convolution, one for each channel */
    SLOT_STATE_CONV_B,
    SLOT_STATE_BETA,
    SLOT_STATE_ALPHA,
    SLOT_STATE_BETA_ALPHA,
    SLOT_STATE_STEP_B,
    SLOT_STATE_A,
    SLOT_STATE_A_COLUMN, /* the same in files of Mamba-2 */
    SLOT_STATE_D,
    SLOT_STATE_NORM,
    SLOT_STATE_GROUP_NORM,
    SLOT_STATE_OUT,
    SLOT_SHORT_IN,
    SLOT_SHORT_CONV,
    SLOT_SHORT_OUT,
    SLOT_COUNT
};
__extension__ typedef unsigned __int128 slot_set;
#define SLOT_BIT(slot) ((slot_set)1 << (slot))

/* Symbolic sizes, so that one table gives the slots' shapes for all models. */
enum dim {
    DIM_NONE, /* no second dimension: a vector */
    DIM_ONE,
    DIM_EMBD,
    DIM_VOCAB,
    DIM_CTX,
    DIM_ROPE, /* rotated pairs */
    DIM_Q,
    DIM_Q_ROWS, /* Q, or 2 Q where the matrix computes a gate for each query, too */
    DIM_K,
    DIM_V,
    DIM_QKV,
    DIM_ATTN,   /* heads x value length: input of the attention output matrix */
    DIM_HEAD_K, /* of one head */
    DIM_KV_HEADS,
    DIM_Q_NORM,
    DIM_K_NORM,
    DIM_FF,
    DIM_UP, /* FF, or 2 FF where one matrix contains gate and up */
    DIM_HEADS,
    DIM_EXPERTS,
    DIM_EXPERT_FF,
    DIM_EXPERT_UP, /* gate and up of an expert in one matrix */
    DIM_SHARED_FF,
    DIM_LATENT_Q, /* queries of all heads */
    DIM_Q_LORA,
    DIM_KV_LORA,
    DIM_KV_A, /* KV_LORA and the rotated part of a key */
    DIM_KV_B, /* the other part of the keys, and the values, of all heads */
    DIM_NOPE,
    DIM_LATENT_V,
    DIM_LAYER_INPUT, /* length of the second embedding for one layer; the next: for all layers */
    DIM_LAYER_INPUTS,
    DIM_TAPS, /* from here on: layers with a state */
    DIM_CHANNELS,
    DIM_STATE_IN,
    DIM_STATE_HEADS,
    DIM_STATE_HEADS_2,
    DIM_STATE_VALUE,
    DIM_STATE_INNER, /* heads x value length */
    DIM_STATE_GROUPS,
    DIM_STATE_GROUP_WIDTH,
    DIM_SHORT_IN,
};

struct arch_slot {
    const char *name;    /* without the prefix "blk.N." of layer slots */
    enum dim cols, rows; /* rows DIM_NONE: a vector */
    enum dim matrices;   /* number of such matrices in the tensor (experts); DIM_NONE: one */
    const char *each; /* name of the tensor in files that have one tensor per matrix, with the matrix's number
                         for %d: "ffn_gate.%d.weight"; NULL: no file has that */
    bool table;       /* the rows are separate vectors, e.g. one bias per expert */
};
extern const struct arch_slot ARCH_SLOTS[SLOT_COUNT];

/* True for a vector or a table of vectors; memory holds these as f32. */
bool arch_slot_is_vector(enum slot slot);
/* Is it a matrix or a bias of experts, or of the expert that every token uses? expert_place= moves these. */
bool arch_slot_is_expert(enum slot slot);
bool arch_slot_is_rope(enum slot slot); /* factors of RoPE's angles, which go into tables on the host */

enum rope_style {
    ROPE_NONE,
    ROPE_NEIGHBOURS,
    ROPE_HALVES
}; /* which elements of a head form a rotated pair */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,
    QK_NORM_ROW,
    QK_NORM_EACH
}; /* norm of q and k: over each head, over the whole row, or over each head with weights of its own; the last
      of the kind of the other norms, the others RMS */
enum residual { RESIDUAL_SEQUENTIAL, RESIDUAL_PARALLEL, RESIDUAL_BY_KEY /* use_parallel_residual */ };

/* How a layer with experts scores them for a token. */
enum router_score {
    ROUTER_NONE, /* no layer has experts */
    ROUTER_SOFTMAX,
    ROUTER_SIGMOID,
    ROUTER_CHOSEN, /* softmax over the chosen experts */
    ROUTER_INPUT,  /* sigmoid, which multiplies the expert's input instead of its output */
    ROUTER_BY_KEY, /* expert_gating_func; without it, ROUTER_SIGMOID */
};
/* Whether the weights of the chosen experts are divided by their sum. */
enum router_sum { ROUTER_SUM_ANY, ROUTER_SUM_ONE, ROUTER_SUM_BY_KEY /* expert_weights_norm */ };

struct arch {
    const char *name;   /* general.architecture */
    const char *models; /* well-known models of this architecture, shown to users */
    slot_set need, may; /* SLOT_BITs of the tensors that a file must contain, and may contain */
    slot_set expert_need,
        expert_may;      /* the same for layers with experts, in place of the tensors of a feed-forward */
    bool latent;         /* latent attention */
    bool layers_differ;  /* in the number of KV heads, the width of feed-forwards, and, with a window,
                            the size of heads */
    bool value_norm;     /* heads of values are normed without weights; without SLOT_V they are keys
                            before norm and rotation */
    bool experts_beside; /* layers with experts have a feed-forward, too */
    double attn_scale;   /* default of attention.scale; 0: 1/sqrt(head size) */
    enum mixer state; /* mixer of the layers without attention; MIXER_ATTENTION: all layers have attention */
    slot_set state_need,
        state_may;          /* the same for layers with a state, in place of the tensors of attention */
    int attention_period;   /* each attention_period-th layer has attention (the default of
                               full_attention_interval); 0: those with KV heads */
    bool one_part;          /* a layer is either a mixer or a feed-forward */
    bool state_interleaved; /* struct recurrence */
    bool query_gate;        /* outputs of attention are multiplied by the sigmoid of a gate */
    enum router_score router;
    enum router_sum router_sum;
    enum norm_kind norm;
    enum rope_style rope; /* ROPE_NONE: learned positions */
    enum activation act;
    enum qk_norm qk_norm;
    enum residual residual;
    bool qkv_forms;      /* files have q, k and v in one matrix or in three */
    bool gate_in_up;     /* one matrix contains the rows of gate, then those of up */
    bool embedding_root; /* token embeddings are multiplied by sqrt(embd) */
    bool logits_divided; /* logits are divided by logit_scale, not multiplied */
    bool qk_norm_after_rope;
    int qk_norm_plain_except; /* > 0: after RoPE, heads of q and k are normed without weights, except in
                                 models with this many experts */
    int chunk;                /* layers with RoPE attend within chunks of this many tokens; 0: to all */
    double query_scale_step; /* default of attention.temperature_scale, in layers without RoPE only; 0: by the
                                metadata, in all layers */
    int query_scale_tokens;  /* the positions that this default counts; 0: the original context length */
    bool rope_if_finetuned;  /* with rope.scaling.finetuned = false, no layer has RoPE */
    int rope_period;         /* each rope_period-th layer has no RoPE. 0: all layers have it */
    int window_period;       /* layers with a sliding window. 0: none; 1: all; n: all but each n-th.
                                attention.sliding_window_pattern of a file replaces it */
    bool window_listed; /* layers with a window must be listed by attention.sliding_window_pattern: without a
                           list, files and programs differ in what attention.sliding_window means */
    int window;         /* default when the metadata gives none; 0: no layer has a window then */
    bool window_rope_plain;  /* RoPE of layers with a window is not scaled, and its base is rope.freq_base_swa
                              */
    double window_rope_base; /* default of rope.freq_base_swa; 0: as rope.freq_base */
    float attn_softcap, logit_softcap; /* defaults; 0: none */
    bool scales_queries;               /* by attention.temperature_scale, and YaRN by yarn_log_multiplier */
    bool rope_in_windows;              /* only layers with a window have RoPE */
    bool rope_without_windows;         /* but all layers of a model in which none has a window */
    int wide_query_layers; /* a model with this many layers scales q by 1/sqrt(embd / heads) instead of
                              1/sqrt(head size) */
};
extern const struct arch ARCHS[];
extern const size_t ARCH_COUNT;
const struct arch *arch_find(struct gguf_string name); /* NULL when unknown */

/* ---------------------------------------------------------------- metadata */

/* Metadata keys under the prefix of an architecture ("llama."). ARCH_KEYS gives their names and says whether
 * the forward pass uses them. A key of a file that is not here is unknown. */
enum arch_key {
    META_BLOCK_COUNT,
    META_EMBEDDING_LENGTH,
    META_FEED_FORWARD_LENGTH,
    META_CONTEXT_LENGTH,
    META_HEAD_COUNT,
    META_HEAD_COUNT_KV,
    META_KEY_LENGTH,
    META_VALUE_LENGTH,
    META_KEY_LENGTH_WINDOW,
    META_VALUE_LENGTH_WINDOW,
    META_SHARED_KV_LAYERS,
    META_LAYER_INPUTS,
    META_LATENT_KEY_LENGTH,
    META_LATENT_VALUE_LENGTH,
    META_Q_LORA,
    META_KV_LORA,
    META_EXPERT_COUNT,
    META_EXPERTS_USED,
    META_EXPERT_FF,
    META_EXPERT_GROUPS,
    META_EXPERT_GROUPS_USED,
    META_EXPERT_SCORE,
    META_EXPERT_SUM,
    META_EXPERT_SCALE,
    META_EXPERT_DENSE,
    META_EXPERT_STEP,
    META_NEXTN,
    META_STATE_TAPS,
    META_STATE_TAPS_SHORT,
    META_STATE_KEY,
    META_STATE_GROUPS,
    META_STATE_HEADS,
    META_STATE_INNER,
    META_ATTENTION_PERIOD,
    META_RECURRENT_LAYERS,
    META_RMS_EPSILON,
    META_LAYER_EPSILON,
    META_PARALLEL_RESIDUAL,
    META_ROPE_DIMENSIONS,
    META_ROPE_DIMENSIONS_WINDOW,
    META_ROPE_BASE,
    META_ROPE_BASE_WINDOW,
    META_ROPE_SCALE_LINEAR,
    META_ROPE_SCALING_TYPE,
    META_ROPE_SECTIONS,
    META_ROPE_FINETUNED,
    META_ROPE_FACTOR,
    META_ROPE_ATTN_FACTOR,
    META_ROPE_CTX_ORIGINAL,
    META_YARN_BETA_FAST,
    META_YARN_BETA_SLOW,
    META_YARN_LOG_MULTIPLIER,
    META_WINDOW,
    META_WINDOW_PATTERN,
    META_ATTN_SCALE,
    META_ATTN_SOFTCAP,
    META_QUERY_SCALE,
    META_LOGIT_SOFTCAP,
    META_LOGIT_SCALE,
    META_EMBEDDING_SCALE,
    META_RESIDUAL_SCALE,
    META_READ_COUNT /* the keys above are read by name; the other rows of ARCH_KEYS need no name here */
};

struct arch_key_row {
    const char *name; /* without the prefix */
    bool harmless;    /* cannot change the logits, whatever its value is */
    /* Whether the forward pass uses the key for this file; NULL: never. */
    bool (*used)(const struct arch *a, const struct gguf *g);
    bool list;      /* may have a value for each layer */
    double neutral; /* the value that means the same as a missing key; it is accepted even if the key is not
                       used; NAN: none */
};
extern const struct arch_key_row ARCH_KEYS[]; /* the first META_READ_COUNT rows indexed by enum arch_key */
extern const size_t ARCH_KEY_COUNT;

enum { ARCH_KEY_NAME = 128 }; /* bytes of the longest full key */
/* Write the full key, "llama.block_count", to buf. Returns buf. */
const char *arch_key_name(char buf[ARCH_KEY_NAME], const char *arch, enum arch_key key);

/* The words that screens and tables show beside everything that such a model computes. */
extern const char ANSWERS_UNVERIFIED[];

/* Append one message per metadata key under the prefix and per tensor that is neither used nor harmless:
 * its name, what was expected and what the file has. Returns their number. `out` may be NULL. Works on files
 * of gguf_open_any_type, too. */
int arch_unknown(struct str *out, const struct arch *a, const struct model_shape *s, const struct gguf *g);

/* Refuse a model with anything unknown. ERR_FORMAT: the message names the first such key or tensor and says
 * that force=on goes on. */
enum err_code arch_check_known(const struct model_shape *s, const struct gguf *g, struct err *why);

#define ACTIVATION_KEY "qdyno.activation" /* of checkpoints: "gelu_erf" in place of the GELU with tanh */
#define KV_SCALES_KEY                                                                                        \
    "qdyno.kv_scales" /* the checkpoint has scales for a KV cache in FP8, which are not used */
#define YARN_EXACT_KEY "qdyno.yarn_exact" /* YaRN's ramp is not rounded to whole pairs */

/* Hyperparameters that only the forward pass needs, from the metadata and the architecture. */
struct hyper {
    const struct arch *arch;
    enum activation act; /* of feed-forwards */
    float eps;
    double rope_base, rope_factor; /* rope_factor 1: positions are not scaled */
    bool no_rope;                  /* no layer has RoPE */
    bool yarn, yarn_exact;         /* exact: the ramp's ends are not rounded to whole pairs */
    double yarn_beta_fast, yarn_beta_slow, rope_attn_factor;
    double yarn_log_multiplier; /* m: YaRN's factor of attention is divided by 1 + 0.1 m ln(rope_factor); 0:
                                   no division. Latent attention multiplies the scores by (1 + m
                                   ln(rope_factor))^2 instead */
    int64_t rope_ctx_original;
    bool parallel;
    double window_rope_base; /* RoPE base of layers with a window, without scaling; 0: as other layers */
    float attn_scale, attn_softcap, logit_softcap, logit_scale, embedding_scale, residual_scale;
    struct {
        enum router_score score; /* never ROUTER_BY_KEY */
        bool sum_one;
        float scale;             /* of the weights */
        int groups, groups_used; /* experts are chosen from the groups_used best of `groups` equal groups;
                                    both 1: from all experts */
    } router;
    double query_scale_step; /* b: the query at position pos is multiplied by 1 + b ln(1 + floor(pos /
                                query_scale_tokens)); 0: no scaling */
    int64_t query_scale_tokens;
};
/* `s`: of the same file (model_shape_read). ERR_FORMAT: an unknown RoPE scaling, or a value out of range. */
enum err_code hyper_read(struct hyper *out, const struct model_shape *s, const struct gguf *g,
                         struct err *why);

/* Does layer `layer` rotate queries and keys? */
bool hyper_layer_has_rope(const struct hyper *h, const struct model_shape *s, int layer);

/* Does layer `layer` have attention with keys and values of its own? */
static inline bool shape_layer_has_cache(const struct model_shape *s, int layer)
{
    return s->parts[layer].mixer == MIXER_ATTENTION && s->parts[layer].kv_layer == layer;
}

/* Does layer `layer` have experts? */
static inline bool shape_layer_has_experts(const struct model_shape *s, int layer)
{
    return s->parts[layer].experts;
}

/* Does it keep a state? */
static inline bool shape_layer_has_state(const struct model_shape *s, int layer)
{
    return s->parts[layer].mixer != MIXER_ATTENTION && s->parts[layer].mixer != MIXER_NONE;
}

/* Layers with that kind of mixer among the first n. */
int shape_count(const struct model_shape *s, enum mixer mixer, int n);
/* Layers with a state among the first n. */
int shape_count_states(const struct model_shape *s, int n);

/* Floats of one layer's state of one sequence: that of the convolution, then that of the recurrence. */
int64_t shape_state_floats(const struct model_shape *s);

/* Do feed-forwards have a gate? */
bool arch_is_gated(const struct arch *a);

enum { ARCH_NAME = 96 }; /* bytes of the longest full tensor name */
/* Write the full tensor name, "blk.3.attn_q.weight", to buf. */
void arch_slot_name(char *buf, size_t size, int layer, enum slot slot);
/* The same, or with expert >= 0 the name of that expert's own tensor, in files that have one for each. */
void arch_tensor_name(char *buf, size_t size, int layer, enum slot slot, int expert);

/* The number that a symbolic size means for a layer of this model (-1: the largest of any layer). */
int64_t arch_layer_dim(enum dim d, const struct arch *a, const struct model_shape *s, int layer);
static inline int64_t arch_dim(enum dim d, const struct arch *a, const struct model_shape *s)
{
    return arch_layer_dim(d, a, s, -1);
}

/* Call `visit` for every tensor of the model that the file contains (layer -1: global slots), after checking
 * that each one exists and has its shape. A slot of experts is one tensor with the matrices of all (expert
 * -1), or, in files like those of the first Mixtral, one tensor for each expert: then `visit` is called for
 * each, in order. ERR_FORMAT: the message gives the tensor, the expected shape and the one found. An error of
 * `visit` ends the walk. */
typedef enum err_code arch_visit_fn(void *ctx, int layer, enum slot slot, int expert,
                                    const struct gguf_tensor *t, struct err *why);
enum err_code arch_walk(const struct arch *a, const struct model_shape *s, const struct gguf *g,
                        arch_visit_fn *visit, void *ctx, struct err *why);

/* The tensors that layer `layer` (-1: the model outside its layers) must, and may, have. */
slot_set arch_need(const struct arch *a, const struct model_shape *s, int layer);
slot_set arch_may(const struct arch *a, const struct model_shape *s, int layer);

/* Find the slot of a tensor name; *layer is -1 for global slots. The tensor of a single expert belongs to the
 * slot of all experts. False: no tensor of this model has the name. */
bool arch_slot_find(int *layer, enum slot *slot, const struct arch *a, const struct model_shape *s,
                    const char *tensor_name);

/* The number of the expert whose only matrix a tensor of this name is ("blk.0.ffn_up.7.weight": 7). -1: it is
 * none, but it may be the matrices of all experts. */
int arch_expert_of(const char *tensor_name);
/* Is it a tensor of some or all experts, in any file? */
bool arch_is_of_experts(const char *tensor_name);

/* ---------------------------------------------------------------- companion tensors */

/* Small tensors that belong to a matrix and are stored beside it as "<matrix>.<suffix>". The quantizer writes
 * them, the loader reads them (docs/formats.md). */
enum companion_kind {
    COMPANION_ORDER,           /* f32 [cols]: column i of the stored matrix multiplies x[order[i]] */
    COMPANION_DIVISORS,        /* f32 [cols]: x is divided by it, elementwise */
    COMPANION_INPUT_SCALE,     /* f32 [3]: scale, zero and largest code of static activations */
    COMPANION_OUTLIERS,        /* f32 [n]: indexes of outlier columns that are stored in f16, ascending */
    COMPANION_OUTLIER_WEIGHTS, /* f16 [n][rows]: the weights of these columns */
    COMPANION_COUNT
};

/* Write the name, "blk.0.attn_q.weight.order", to buf. Returns buf. */
const char *companion_name(const char *matrix, enum companion_kind what, char *buf, size_t size);
const struct format *companion_format(enum companion_kind what);

/* The companion tensor of a matrix; NULL: it has none. */
const struct gguf_tensor *companion_find(const struct gguf *g, const char *matrix, enum companion_kind what);

/* Is this the name of some matrix's companion tensor? */
bool companion_is(const char *name);

/* The scale that files of llama.cpp store beside a matrix "blk.0.ffn_up.weight", mostly one in NVFP4: f32,
 * one number or one for each expert, named "blk.0.ffn_up.scale" or "blk.0.ffn_up.weight.scale". NULL: it has
 * none. */
const struct gguf_tensor *matrix_scale_find(const struct gguf *g, const char *matrix);
/* Is this the name of such a scale, or of the scale of a matrix's inputs ("blk.0.ffn_up.input_scale"), which
 * only devices that multiply 4-bit floats need? Then *matrix is the name of the matrix. */
bool matrix_scale_is(const char *name, char *matrix, size_t size);

/* ---------------------------------------------------------------- activation quantization */

/* How a file says that inputs of its matrices are quantized: metadata for all matrices in a format, companion
 * tensors for one matrix (docs/formats.md). */

/* Activation quantization of all matrices in one format. */
struct act_scheme {
    enum input_kind kind;
    float threshold, limit; /* as in struct input_scheme */
};

/* Is this one of the metadata keys that act_put writes? */
bool act_is_key(struct gguf_string key);

/* Write the metadata for matrices in `format`; INPUT_FREE writes nothing. */
enum err_code act_put(struct gguf_writer *w, const struct act_scheme *act, const struct format *format);

/* Read how inputs of one matrix are quantized. *out owned: act_free; NULL: nothing special. ERR_FORMAT:
 * unknown kind; a companion tensor with a wrong type or size, or with values that are not finite or out of
 * range. */
enum err_code act_read(struct input_scheme **out, const struct gguf *g, const struct gguf_tensor *matrix,
                       struct err *why);
void act_free(struct input_scheme *s); /* NULL is fine */

/* Only the kind, for plans. A kind that act_read would refuse is INPUT_FREE here. */
enum input_kind act_kind(const struct gguf *g, const struct gguf_tensor *matrix);

#endif
