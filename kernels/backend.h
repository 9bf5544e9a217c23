/* kernels/backend.h - the interface that a backend implements: a table of functions, each documented at the
 * function backend_<name> of kernels.h. The struct of a backend begins with struct backend. */
#ifndef QDYNO_KERNELS_BACKEND_H
#define QDYNO_KERNELS_BACKEND_H

#include "kernels/kernels.h"

struct backend_ops {
    void (*close)(struct backend *b);
    void (*describe)(const struct backend *b, struct backend_info *out);
    enum err_code (*finish)(struct backend *b, struct err *why);

    void *(*alloc)(struct backend *b, size_t bytes);
    void (*free)(struct backend *b, void *p); /* p is not NULL */
    void (*write)(struct backend *b, void *dst, const void *host_src, size_t bytes);
    void (*read)(struct backend *b, void *host_dst, const void *src, size_t bytes);

    /* backend_weight_bind has checked that the format can be decoded, that rows are whole blocks and that the
     * scheme fits the format. *out is zeroed. */
    enum err_code (*bind)(struct backend *b, struct weight *out, const struct format *format, int64_t rows,
                          int64_t cols, const struct input_scheme *input, const void *host, struct err *why);
    void (*release)(struct backend *b, struct weight *w); /* w->owned is not NULL */
    enum err_code (*reserve)(struct backend *b, const struct backend_work *work, struct err *why);
    /* *out is zeroed. NULL: nothing to measure. */
    enum err_code (*autotune)(struct backend *b, struct weight *const *weights, int count,
                              bool (*progress)(void *ctx, int done, int of), void *ctx, struct autotuned *out,
                              struct err *why);

    void (*gather)(struct backend *b, const struct gather *p);
    void (*mix)(struct backend *b, const struct mix *p);
    void (*matmul)(struct backend *b, const struct matmul *m, int count);
    void (*gated)(struct backend *b, const struct gated *p);
    /* The next three are NULL together: experts are products of their own. */
    bool (*groups_experts)(const struct backend *b, const struct weight *gate, const struct weight *up,
                           const struct weight *down, int experts);
    void (*expert_up)(struct backend *b, const struct expert_up *p);
    void (*expert_down)(struct backend *b, const struct expert_down *p);
    void (*norm)(struct backend *b, const struct norm *p);
    void (*rope)(struct backend *b, const struct rope *p);
    void (*hadamard)(struct backend *b, const struct hadamard *p);
    void (*kv_store)(struct backend *b, const struct kv_store *p);
    void (*attention)(struct backend *b, const struct attention *p);
    void (*activate)(struct backend *b, const struct activate *p);
    void (*top)(struct backend *b, const struct top *p);
};

struct backend {
    const struct backend_ops *ops;
    struct backend_options options;
    struct threadpool *pool; /* options.threads threads on the host */
    struct kernel_set *host; /* owned; for operations that run on the host whatever the device is */
};

/* backend_gated as two products and an activation, for pairs that cannot be fused. */
void gated_separately(struct backend *b, const struct gated *p);

/* The text after "KEY\t" in the line of `all` (NULL: no lines) that begins with it, up to the end of that
 * line; NULL: there is no such line. */
const char *shapes_find_line(const char *all, const char *key);

/* The CPU backend. cpu_open allocates *out without ops, options and pool; backend_open sets those. */
enum err_code cpu_open(struct backend **out, const char *device, const struct backend_options *options,
                       struct err *why);
int64_t cpu_scratch_bytes(const struct backend_options *options, const struct backend_work *work);
int64_t cpu_weight_bytes(const struct backend_options *options, const struct format *f, int64_t rows,
                         int64_t cols, int arrays);
extern const struct backend_ops CPU_OPS;

#endif
