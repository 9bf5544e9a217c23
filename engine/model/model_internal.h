/* engine/model/model_internal.h - the parts of a loaded model, for the files of engine/model. */
#ifndef QDYNO_ENGINE_MODEL_INTERNAL_H
#define QDYNO_ENGINE_MODEL_INTERNAL_H

#include "engine/arch/arch.h"
#include "engine/model/kv.h"
#include "engine/model/model.h"
#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"

/* A tensor bound to the backend: a matrix (w) or a vector (v); both empty: the file has no such tensor. */
struct bound {
    struct weight w;        /* of the first expert, where there are several */
    struct weight *experts; /* [count] one matrix for each expert; NULL, 0: a matrix of its own */
    int64_t count;
    struct input_scheme *input; /* activation quantization of this matrix; NULL: the default */
    int64_t from;               /* first row of the file's matrix that w has; > 0 in a rank only */
    const float *v;
};

/* Vectors of a layer that keeps a state, in host memory: parts of one allocation; absent ones are NULL. */
struct state_weights {
    float *convolution, *bias; /* [taps][channels], [channels] */
    float *a, *step_bias, *d;  /* [heads] */
    float *norm;               /* [value_dim] */
    float *memory;
};

struct layer {
    struct bound slots[SLOT_COUNT - SLOT_GLOBAL_COUNT];
    struct kv_layer kv;              /* of attention */
    float *state_memory;             /* [sequences][state floats], host; NULL: the layer keeps no state */
    const struct layer_parts *parts; /* of the model's shape */
    int window;                      /* tokens that attention sees; 0: all */
    int rope;                        /* index of its table of angles in rope_freq */
    bool rotates;                    /* queries and keys by their positions */
    float *router_choice;            /* [experts] host copy of SLOT_ROUTER_CHOICE; NULL: none */
    float *expert_scale;             /* [experts] host copy of SLOT_EXPERT_SCALE; NULL: none */
    float output_scale;              /* of SLOT_LAYER_SCALE; 1: none */
    struct state_weights state;
};

/* Activations of one batch in backend memory, [batch][width]. */
struct buffers {
    float *x, *h, *qkv, *attn, *ff;
    float *latent;    /* [batch][widths.latent] */
    float *inputs;    /* [batch][widths.inputs] */
    float *router;    /* [batch][experts], then [batch]: scores */
    float *experts;   /* [batch * (experts used + 1)][embd] */
    float *expert_ff; /* [batch * experts used][2 * expert ff] */
    float *logits;    /* [logit_rows][vocab]; this and the next two only on the site of the output matrix */
    struct ranked *best; /* [logit_rows] */
    void *top_scratch;
};

/* A place where layers run, and their memory there. */
enum { SITE_HOST, SITE_DEVICE, SITE_COUNT };
struct site {
    struct backend *backend;            /* NULL: nothing runs here */
    float *vectors;                     /* backend memory for all bound vectors */
    int64_t vectors_size, vectors_used; /* in floats */
    float *unit_weights;                /* [head size] ones; NULL: the model norms nothing without weights */
    void *kv_memory, *compute_memory;   /* backend memory */
    struct buffers buffers;
};

/* Arrays of one batch, in host memory. */
struct batch_lists {
    int32_t *ids, *pos, *seq, *slots; /* [batch] each, also the next two */
    int32_t *wanted;                  /* indexes of the rows with requested logits */
    int32_t *every;                   /* 0, 1, 2 ...; [lanes] */
};

/* How the rows of a batch go to the experts of a layer, in host memory: parts of one allocation. With n rows
 * and u experts per row, u * n pairs of a row and an expert are sorted by expert. */
struct expert_lists {
    float *scores;        /* [batch][experts], then [batch] of the expert that every token uses */
    int32_t *chosen;      /* [n][u] */
    int32_t *place;       /* [n][u, or u + 1 with an expert for every row] where the outputs of a row are */
    float *weights;       /* [the same] of these outputs */
    int32_t *row;         /* [n * u] row of each pair */
    float *input_weights; /* [n * u] factor of that row as an input */
    float *pair_weights;  /* [n * u] weight of the outputs of each pair */
    int32_t *first;       /* [experts + 1] first pair of each expert */
    float *rank;          /* [2][experts] working space */
    struct matmul *products; /* [2 * experts] */
    void *memory;
};

/* Rows x [n][columns], in backend memory, that matrices `slots` are about to be multiplied with. */
struct observed {
    const enum slot *slots;
    int count;
    int part; /* which of the matrices that each of these slots has (an expert, a head); -1: it has one */
    const float *x;
    int64_t stride;
    int n;
};
/* A callback of layers.c (see NULL: none). layer -1: matrices outside the layers. */
struct observer {
    void (*see)(void *ctx, int layer, const struct observed *o);
    void *ctx;
    bool enough; /* set by the callback: the rest of the layer is not computed */
};

/* A callback of model_watch_experts (see NULL: none). */
struct experts_watch {
    experts_seen_fn *see;
    void *ctx;
};

/* The first row of a forward pass whose hidden state or logits contain an infinity or NaN. */
struct not_finite {
    bool found;
    int32_t seq, pos;
};

/* What a rank that has a part of all matrices (tp) needs. */
struct exchange {
    struct model_shape
        *whole;    /* the model's sizes; m->shape has those of the part. NULL: nothing is divided */
    int group;     /* of the ranks that have the other parts */
    int64_t bytes; /* in each of the next two */
    char *send, *receive;
    char *stage;         /* [WIRE_ROWS] rows of a hidden state for the next stage; NULL: they travel as f32 */
    float *ff;           /* [batch][widest whole feed-forward; of experts, of all that a row uses] */
    struct bound output; /* the part of the output matrix, where that is the token embedding; else empty */
};

/* What a rank that has a part of the positions (cp) needs: buffers of share_sizes. */
struct context_exchange {
    int group;                   /* of the ranks that have the other positions */
    int64_t floats;              /* in `out` and in `send` */
    float *out, *send, *receive; /* NULL: positions are not divided */
    struct kv_cache cache;       /* of its own positions; m->cache counts those of all ranks */
    float *rows;     /* [batch][widths.qkv] queries, keys and values of all ranks; NULL: a batch is never
                        divided by rows */
    int32_t *wanted; /* [batch] those of its own rows that want logits; NULL where `rows` is */
    struct batch_lists all; /* of a batch that is divided by rows */
};

struct model {
    struct gguf *gguf;
    bool borrowed;              /* the caller owns the gguf */
    char source_hash[HASH_HEX]; /* SHA-256 of the source of the quantized file that runs; "": the file itself
                                   runs */
    bool apart;                 /* layers run one at a time and share one KV cache */
    struct tokenizer *tokenizer;
    struct config config;
    struct model_shape shape;
    struct hyper hyper;
    struct model_session session;
    struct memory_plan plan;
    struct model_memory memory;
    struct autotuned autotuned;                 /* text owned */
    int64_t quantized_from_ns, quantized_to_ns; /* clock_ns; 0: no file was quantized */
    struct widths widths;
    struct bound global[SLOT_GLOBAL_COUNT];
    struct layer *layers;
    struct site sites[SITE_COUNT];
    struct kv_cache cache;
    struct batch_lists lists;
    struct expert_lists expert_lists;
    int32_t *history;                /* [sequences][ctx] ids of all tokens, with CACHE_OFF only */
    int32_t *list_memory, *expected; /* expected: [sequences] next position, while rows are checked */
    float *rope_freq; /* [2][rope_dims / 2] angle per position: ordinary layers, layers with a window */
    float rope_magnitude[2];
    float *logits;                /* [logits_cap][vocab], host */
    int logits_cap, logits_count; /* rows that fit; rows filled by this forward pass so far */
    int32_t *best;                /* of model_forward_best; NULL: whole rows are requested */
    int lanes;                    /* the largest of batch, heads and groups of a recurrence */
    float *ones;                  /* [lanes] host */
    struct matmul *head_products; /* [heads] working space of latent attention */
    float *state_memory;          /* of all layers; NULL: none keeps a state */
    float *host_rows, *host_out; /* [batch][widths.qkv] and [batch][widths.attn] copies of rows on a device */
    float *row_scale;            /* [batch] working space for factors of rows, host */
    int rows;                    /* of the last batch */
    struct not_finite not_finite; /* set by forward_pass; cleared before the first batch */
    struct observer observer;
    struct experts_watch experts_watch;
    struct pass_profile *profile; /* NULL: none is made */
    bool warm;
    struct ranks *ranks;        /* they run this model, and no site has a backend; NULL: this process does */
    struct backend_info remote; /* of rank 0 */
    struct rank *rank;          /* this process is one of those; NULL: it is not */
    struct exchange exchange;
    struct context_exchange context;
};

/* The part of a rank's model: is each matrix divided? */
static inline bool model_is_part(const struct model *m)
{
    return m->exchange.whole != NULL;
}

/* The site of a layer. -1: of the tensors outside the layers, which are on the device if all layers are. */
static inline struct site *model_site(struct model *m, int layer)
{
    const int there = m->session.gpu_layers;
    const bool device = layer < 0 ? there == m->shape.layers : layer < there;
    return &m->sites[device ? SITE_DEVICE : SITE_HOST];
}

/* Do layers on the device have experts on the host? */
static inline bool model_has_experts_apart(const struct model *m)
{
    return m->shape.experts && m->session.expert_layers < m->session.gpu_layers;
}

/* The site of one tensor of a layer. */
static inline struct site *model_slot_site(struct model *m, int layer, enum slot slot)
{
    const bool apart = layer >= m->session.expert_layers && layer < m->session.gpu_layers;
    return apart && arch_slot_is_expert(slot) ? &m->sites[SITE_HOST] : model_site(m, layer);
}

/* Are logits exactly the output matrix's product, without scale or softcap on the host? */
static inline bool model_logits_are_raw(const struct model *m)
{
    return m->hyper.logit_scale == 1 && !(m->hyper.logit_softcap > 0);
}

static inline const struct bound *layer_slot(const struct layer *l, enum slot s)
{
    return &l->slots[s - SLOT_GLOBAL_COUNT];
}

/* Fill rope_freq[rope_dims/2]; factors (NULL: none) divide the angle per pair. */
void rope_frequencies(float *freq, float *magnitude, const struct hyper *h, int rope_dims,
                      const float *factors);

/* experts.c: allocate the lists for batches of that size; nothing for a model without experts. ERR_NOMEM.
 * Free out->memory. */
enum err_code expert_lists_alloc(struct expert_lists *out, const struct model_shape *s, int batch,
                                 struct err *why);

/* state.c: allocate the states and the host copies of rows, and read the vectors of the layers that need
 * them. ERR_NOMEM. Nothing for a model without states. */
enum err_code model_states_alloc(struct model *m, struct err *why);
void model_states_free(struct model *m);

/* Where a tensor is bound; and give a bound matrix back. */
struct bound *model_place(struct model *m, int layer, enum slot slot);
void bound_release(const struct site *s, struct bound *b);

/* Bind every tensor of m->gguf: check shapes, copy vectors, use matrices in place. */
enum err_code model_bind(struct model *m, const struct log *log, struct err *why);
/* Bind one tensor to its slot, again if need be; expert: as for arch_visit_fn. A matrix is used at t->data, a
 * vector is copied. */
enum err_code model_bind_slot(struct model *m, int layer, enum slot slot, int expert,
                              const struct gguf_tensor *t, struct err *why);
void model_unbind(struct model *m);

/* model_autotune.c: measure kernels for the bound matrices, as compile=autotune asks. ERR_NOMEM,
 * ERR_CANCELLED. */
enum err_code model_autotune(struct model *m, const struct model_options *o, struct err *why);

/* The error after backend_alloc returned NULL: no room on the site, or its device is lost. */
enum err_code model_no_room(const struct model *m, const struct site *s, const char *what, int64_t bytes,
                            struct err *why);

/* model_memory.c: read weights ahead as the config asks; compare the process's bytes in huge pages (-1:
 * unknown) with those before loading, and log a warning if too few were granted. */
void model_prefetch(struct model *m, const struct log *log);
int64_t model_huge_bytes(void);
void model_account_huge(struct model *m, int64_t before, const struct log *log);

/* part.c: bind the rows of a matrix that this part of the model has. Errors: as model_bind_slot. */
enum err_code model_bind_rows(struct model *m, int layer, enum slot slot, int expert,
                              const struct gguf_tensor *t, struct err *why);
/* After the KV cache was allocated: from now on m->shape has the sizes of the part. Nothing for a whole
 * model. ERR_NOMEM. */
enum err_code model_part_begin(struct model *m, struct err *why);
void model_part_free(struct model *m);
/* context.c: the buffers and block tables of a part of the positions; nothing for a model with all of them.
 * Before model_part_begin, which changes m->shape. ERR_NOMEM. */
enum err_code model_context_begin(struct model *m, struct err *why);
void model_context_free(struct model *m);
/* All ranks learn of the first row with values that are no numbers, whichever of them saw it. */
void model_part_agree(struct model *m);

/* model_load.c: put the matrix of one expert among those of the others, which may not be bound yet. Takes
 * *now. ERR_NOMEM. */
enum err_code model_place_expert(struct bound *b, const struct model *m, const struct site *site, int expert,
                                 struct bound *now, struct err *why);
/* Set the scales that a file stores beside a matrix. */
enum err_code model_bind_scales(struct bound *out, const struct model *m, const struct site *site,
                                const struct gguf_tensor *matrix, struct err *why);

/* ranks.c: start ranks that run m, whose plan is known. The functions below do there what the model's do
 * here; errors as ranks_send and ranks_receive. */
enum err_code model_ranks_open(struct model *m, const struct model_options *o, struct err *why);
enum err_code model_ranks_forward(struct model *m, const struct batch_row *rows, int n, int wanted,
                                  int32_t *best, struct err *why);
enum err_code model_ranks_warm(struct model *m, struct err *why);
void model_ranks_truncate(struct model *m, int seq, int from);
void model_ranks_assign(struct model *m, int seq, const int32_t *blocks, int count, int length);
enum err_code model_ranks_copy_block(struct model *m, int32_t from, int32_t to, struct err *why);

/* Run n <= session.batch rows that were checked and have room in the KV cache. Requested logits are appended
 * to m->logits. */
void forward_pass(struct model *m, const struct batch_row *rows, int n);

/* The same without a KV cache (CACHE_OFF), for any number of rows: each piece of rows of one sequence is
 * computed together with all tokens before it. Without a requested logit, their ids are all that is needed.
 */
void forward_again(struct model *m, const struct batch_row *rows, int n);

/* Run a part of the pass, for layers.c, on the first n rows; m->lists are filled and the KV cache has room.
 * EMBED: ids -> x; LAYER: x -> x; ATTENTION and FEED_FORWARD: x += half(h); OUTPUT_NORM: x -> h; OUTPUT: h ->
 * m->logits (appended). */
enum forward_part {
    FORWARD_EMBED,
    FORWARD_LAYER,
    FORWARD_ATTENTION,
    FORWARD_FEED_FORWARD,
    FORWARD_OUTPUT_NORM,
    FORWARD_OUTPUT,
};
void forward_part(struct model *m, enum forward_part part, int layer, int n);

#endif
