/* engine/model/model_internal.h - what a loaded model is made of; shared by loading and the forward pass
 * only. */
#ifndef QDYNO_ENGINE_MODEL_INTERNAL_H
#define QDYNO_ENGINE_MODEL_INTERNAL_H

#include "engine/model/kv.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

/* A tensor as the backend knows it: a matrix (w) or a vector (v); both empty when the file has none. */
struct bound {
    struct weight w;
    struct input_scheme *input; /* how the matrix treats its inputs; NULL: like any other */
    const float *v;
};

struct layer {
    struct bound slots[SLOT_COUNT - SLOT_GLOBAL_COUNT];
    struct kv_layer kv;
    int window; /* 0: sees everything */
    int rope;   /* which of the model's two tables of angles */
};

/* Activations of one batch: backend memory, [batch][width]. */
struct buffers {
    float *x, *h, *qkv, *attn, *ff;
    float *logits;       /* [logit_rows][vocab], as those that follow only where the output matrix is */
    struct ranked *best; /* [logit_rows] */
    void *top_scratch;
};

/* Where layers run, and what they need there. */
enum { SITE_HOST, SITE_DEVICE, SITE_COUNT };
struct site {
    struct backend *backend;            /* NULL: nothing runs here */
    float *vectors;                     /* backend memory of all bound vectors */
    int64_t vectors_size, vectors_used; /* in floats */
    void *kv_memory, *compute_memory;   /* backend memory */
    struct buffers buffers;
};

/* Host arrays of one batch. */
struct batch_lists {
    int32_t *ids, *pos, *seq, *slots; /* [batch] each, as all of these */
    int32_t *wanted;                  /* indexes of the rows with logits */
    int32_t *every;                   /* 0, 1, 2 ... */
};

/* Who looks on while a model runs; see NULL: nobody. Called before matrices `slots` of a layer (-1: of the
 * model) are multiplied with x [n][their columns]; backend memory. */
struct watch {
    void (*see)(void *ctx, int layer, const enum slot *slots, int count, const float *x, int64_t stride,
                int n);
    void *ctx;
};

/* The first row of a forward whose hidden state or logits held an infinity or NaN. */
struct not_finite {
    bool found;
    int32_t seq, pos;
};

struct model {
    struct gguf *gguf;
    bool borrowed; /* the gguf is the caller's */
    char source_hash[HASH_HEX]; /* SHA-256 of the file a quantized copy was made of; "": the file itself runs */
    bool apart;    /* layers are run one at a time: they share one cache */
    struct tokenizer *tokenizer;
    struct config config;
    struct model_shape shape;
    struct hyper hyper;
    struct model_session session;
    struct memory_plan plan;
    struct model_memory memory;
    int64_t quantized_from_ns, quantized_to_ns; /* clock_ns; 0: nothing was made */
    struct widths widths;
    struct bound global[SLOT_GLOBAL_COUNT];
    struct layer *layers;
    struct site sites[SITE_COUNT];
    struct kv_cache cache;
    struct batch_lists lists;
    int32_t *list_memory, *expected; /* expected: [sequences] next position while a forward is checked */
    float *rope_freq; /* [2][rope_dims / 2] angle per position: of ordinary layers, of layers with a window */
    float rope_magnitude[2];
    float *logits;                /* [logits_cap][vocab], host */
    int logits_cap, logits_count; /* rows that there is room for; that the forward handed out so far */
    int32_t *best;                /* where the largest of each goes instead; NULL: whole rows are wanted */
    int rows;                     /* of the last pass */
    struct not_finite not_finite; /* set by forward_pass, cleared before it */
    struct watch watch;
    bool warm;
};

/* Where a layer runs; -1: what is in front of the layers and behind them, which is with them when all are on
 * the device, else on the host. */
static inline struct site *model_site(struct model *m, int layer)
{
    const int there = m->session.gpu_layers;
    const bool device = layer < 0 ? there == m->shape.layers : layer < there;
    return &m->sites[device ? SITE_DEVICE : SITE_HOST];
}

/* Whether logits are what the output matrix says, with nothing done to them on the host. */
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

/* Bind every tensor of m->gguf: shapes are checked, vectors copied, matrices used in place. */
enum err_code model_bind(struct model *m, const struct log *log, struct err *why);
/* Bind one tensor to its slot (again), with a matrix' bytes where t->data points; a vector is copied to its
 * place. */
enum err_code model_bind_slot(struct model *m, int layer, enum slot slot, const struct gguf_tensor *t,
                              struct err *why);
void model_unbind(struct model *m);

/* Why backend_alloc gave nothing: the site has no room for that, or its device is lost. */
enum err_code model_no_room(const struct model *m, const struct site *s, const char *what, int64_t bytes,
                            struct err *why);

/* engine/model_memory.c: read weights ahead as the session wants it; drop mapped pages of what was copied;
 * and say what became of huge pages, against the process's count before (model_huge_bytes, -1 unknown). */
void model_prefetch(struct model *m, const struct log *log);
void model_drop_copied(const struct gguf_tensor *t);
int64_t model_huge_bytes(void);
void model_account_huge(struct model *m, int64_t before, const struct log *log);

/* One cut of a batch: n <= session.batch rows that passed the checks and have room in the cache. Logits of
 * its wanted rows are appended to m->logits. */
void forward_pass(struct model *m, const struct batch_row *rows, int n);

/* Parts of it for engine/layers.c, on the first n rows, for which m->lists are filled and the cache has room:
 * EMBED ids -> x, LAYER x -> x, ATTENTION and FEED_FORWARD add to x what the half makes of h, OUTPUT_NORM
 * x -> h, OUTPUT h -> m->logits (appended). */
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
