/* engine/plan.h - sizes of everything a session allocates, in one place for the plan and for the loader.
 * Internal to engine/. */
#ifndef QDYNO_ENGINE_PLAN_H
#define QDYNO_ENGINE_PLAN_H

#include "engine/arch.h"

/* What happens to mapped weights while loading; in the order of the knob's choices. */
enum prefetch { PREFETCH_OFF, PREFETCH_WILLNEED, PREFETCH_POPULATE };

/* A config's runtime part as values. */
struct session {
    struct backend_options backend;
    enum prefetch prefetch;
    const char *device; /* "cpu", or where the first gpu_layers layers run */
    int gpu_layers;     /* -1: as many as fit, which the plan says; 0 on the cpu */
    int ctx, batch, sequences;
    const struct format *k_format, *v_format;
};
/* ctx 0: the config's, else the training context (at most 4096). ERR_USAGE: what cannot be, with the
 * reason; ERR_ABSENT: an instruction set this machine lacks or QDYNO_ISA took away. */
enum err_code session_resolve(struct session *out, const struct model_shape *s, const struct arch *a,
                              const struct config *c, int ctx, int sequences, struct err *why);

/* The instruction sets its isa= means here; errors as above. */
enum err_code session_isa(uint32_t *out, const struct config *c, struct err *why);

/* Row widths of the activation buffers, in floats; every buffer has `batch` rows. */
struct widths {
    int64_t embd;   /* x, normed x */
    int64_t qkv;    /* also takes gathered attention outputs, so at least attn */
    int64_t attn;   /* heads x value length, at least embd */
    int64_t ff;     /* gate and up side by side where there are both */
    int64_t logits; /* of one row, `logit_rows` of them */
    int64_t logit_rows;
};
enum { LOGIT_ROWS_MAX = 32 };
void widths_of(struct widths *out, const struct model_shape *s, const struct arch *a, int batch);
/* What its operations ask of a backend, but for the weights. */
struct backend_work session_work(const struct session *e, const struct model_shape *s, const struct arch *a);
int64_t widths_bytes(const struct widths *w, int batch); /* two of embd, one of each other, rounded */
int64_t vector_bytes(int64_t n);                         /* n floats, rounded to whole cache lines */

/* What is beside them where the output matrix is, each rounded: logits, the largest of each row of them, and
 * what finding it takes. */
struct output_bytes {
    int64_t logits, best, scratch;
};
struct output_bytes output_bytes_of(const struct widths *w, const char *device);

/* One layer's cache for this session; k and v NULL. */
struct kv_layer session_kv_layer(const struct session *e, const struct model_shape *s);
int64_t session_kv_bytes(const struct kv_layer *kv); /* of one layer, K and V, rounded */
/* Bytes of its K half, rounded so that V starts on a cache line. */
int64_t kv_layer_k_bytes(const struct kv_layer *kv);

/* As memory_plan_compute, for values that are already resolved. */
enum err_code plan_compute(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                           const struct hyper *h, const struct config *c, const struct session *e,
                           struct err *why);

/* Bytes this process may still take: MemAvailable, and what the memory limits of its control groups leave
 * (file cache of the group counts as free, it can be dropped). -1 unknown. `root`: "" or a recorded machine's
 * folder, in front of /proc and /sys. */
int64_t memory_available(const char *root);

/* What a plan may take of a device. "cpu" is no such device. */
struct device_room {
    int64_t bytes;      /* -1: unknown */
    bool shares_memory; /* with the host */
};
void device_room(struct device_room *out, const char *device);

#endif
