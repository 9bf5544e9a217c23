/* Dispatch from the public functions of kernels.h to the backend of a device, with the argument checks that
 * all backends need. */
#include "kernels/backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/inputs.h"
#include "kernels/kernel_set.h"
#include "kernels/opencl/opencl.h"

const char *const PRECISION_NAMES[] = { [PRECISION_HIGHEST] = PRECISION_NAME_HIGHEST,
                                        [PRECISION_HIGH] = PRECISION_NAME_HIGH,
                                        [PRECISION_MEDIUM] = PRECISION_NAME_MEDIUM,
                                        [PRECISION_AUTO] = PRECISION_NAME_AUTO,
                                        NULL };

/* Kinds of devices. */
struct device_kind {
    const char *prefix; /* a device name; one that ends in ':' is followed by the device's number */
    const struct backend_ops *ops;
    enum err_code (*open)(struct backend **out, const char *device, const struct backend_options *options,
                          struct err *why);
    int64_t (*scratch_bytes)(const struct backend_options *options, const struct backend_work *work);
    int64_t (*weight_bytes)(const struct backend_options *options, const struct format *f, int64_t rows,
                            int64_t cols, int arrays);
    int64_t (*top_bytes)(int n, int k, int64_t cols); /* NULL: it needs no scratch */
};
static const struct device_kind DEVICE_KINDS[] = {
    { .prefix = "cpu",
      .ops = &CPU_OPS,
      .open = cpu_open,
      .scratch_bytes = cpu_scratch_bytes,
      .weight_bytes = cpu_weight_bytes },
    { .prefix = "opencl:",
      .ops = &OPENCL_OPS,
      .open = opencl_open,
      .scratch_bytes = opencl_scratch_bytes,
      .weight_bytes = opencl_plan_bytes,
      .top_bytes = opencl_top_bytes },
};

/* "cpu" must match completely, "opencl:3" by its prefix. */
static const struct device_kind *device_kind_find(const char *device)
{
    for (size_t i = 0; i < COUNT_OF(DEVICE_KINDS); i++) {
        const char *p = DEVICE_KINDS[i].prefix;
        const size_t n = strlen(p);
        if (p[n - 1] == ':' ? !strncmp(device, p, n) : !strcmp(device, p)) return &DEVICE_KINDS[i];
    }
    return NULL;
}

/* Every backend opens kernels and threads of the host, because layers with a state (recurrent.c) are computed
 * on the host whatever the device is. */
enum err_code backend_open(struct backend **out, const char *device, const struct backend_options *options,
                           struct err *why)
{
    *out = NULL;
    const struct device_kind *kind = device_kind_find(device);
    if (!kind)
        return err_set(why, ERR_ABSENT, "no device '%s'; there are: cpu, opencl:0, opencl:1 ...", device);
    if (options->threads < 1)
        return err_set(why, ERR_USAGE, "threads must be at least 1, not %d", options->threads);
    struct backend *b = NULL;
    enum err_code rc = kind->open(&b, device, options, why);
    if (rc) return rc;
    b->ops = kind->ops;
    b->options = *options;
    b->options.isa &= isa_detect();
    b->host = malloc(sizeof *b->host);
    if (!b->host) {
        backend_close(b);
        return err_set(why, ERR_NOMEM, "out of memory for the backend of %s", device);
    }
    *b->host = kernels_select(b->options.isa);
    const struct threadpool_options pool = { .threads = options->threads,
                                             .affinity = options->affinity,
                                             .numa = options->numa };
    if ((rc = threadpool_open(&b->pool, &pool, why))) {
        backend_close(b);
        return rc;
    }
    *out = b;
    return ERR_OK;
}

void backend_close(struct backend *b)
{
    if (!b) return;
    threadpool_close(b->pool);
    free(b->host);
    b->ops->close(b);
}

struct threadpool *backend_threads(struct backend *b)
{
    return b->pool;
}

void backend_describe(const struct backend *b, struct backend_info *out)
{
    *out = (struct backend_info){ .threads = threadpool_size(b->pool),
                                  .pinned = threadpool_is_pinned(b->pool) };
    b->ops->describe(b, out);
}

enum err_code backend_finish(struct backend *b, struct err *why)
{
    return b->ops->finish(b, why);
}

int64_t backend_scratch_bytes(const char *device, const struct backend_options *options,
                              const struct backend_work *work)
{
    const struct device_kind *kind = device_kind_find(device);
    return kind ? kind->scratch_bytes(options, work) : 0;
}

int64_t backend_weight_bytes(const char *device, const struct backend_options *o, const struct format *f,
                             int64_t rows, int64_t cols, int arrays)
{
    const struct device_kind *kind = device_kind_find(device);
    return kind ? kind->weight_bytes(o, f, rows, cols, arrays) : 0;
}

int64_t backend_top_bytes(const char *device, int n, int k, int64_t cols)
{
    const struct device_kind *kind = device_kind_find(device);
    return kind && kind->top_bytes ? kind->top_bytes(n, k, cols) : 0;
}

/* ---------------------------------------------------------------- memory */

void *backend_alloc(struct backend *b, size_t bytes)
{
    return b->ops->alloc(b, bytes);
}

void backend_free(struct backend *b, void *p)
{
    if (p) b->ops->free(b, p);
}

void backend_write(struct backend *b, void *dst, const void *host_src, size_t bytes)
{
    b->ops->write(b, dst, host_src, bytes);
}

void backend_read(struct backend *b, void *host_dst, const void *src, size_t bytes)
{
    b->ops->read(b, host_dst, src, bytes);
}

/* Formats without a decoder are known by name only, so that a file that contains them can be described. */
enum err_code backend_weight_bind(struct backend *b, struct weight *out, const struct format *format,
                                  int64_t rows, int64_t cols, const struct input_scheme *input,
                                  const void *host, struct err *why)
{
    *out = (struct weight){ 0 };
    if (!format->decode)
        return err_set(why, ERR_USAGE, "format %s is known but cannot be run by this build", format->name);
    if (rows < 1 || cols < 1 || cols % format->block_weights)
        return err_set(why, ERR_USAGE, "a %s matrix needs rows of a multiple of %u weights, not [%lld][%lld]",
                       format->name, format->block_weights, (long long)rows, (long long)cols);
    const enum err_code rc = inputs_check(input, format, cols, why);
    return rc ? rc : b->ops->bind(b, out, format, rows, cols, input, host, why);
}

void backend_weight_release(struct backend *b, struct weight *w)
{
    if (w->owned) b->ops->release(b, w);
    *w = (struct weight){ 0 };
}

enum err_code backend_reserve(struct backend *b, const struct backend_work *work, struct err *why)
{
    return b->ops->reserve(b, work, why);
}

enum err_code backend_autotune(struct backend *b, struct weight *const *weights, int count,
                               bool (*progress)(void *ctx, int done, int of), void *ctx,
                               struct autotuned *out, struct err *why)
{
    *out = (struct autotuned){ 0 };
    if (!b->ops->autotune) return ERR_OK;
    return b->ops->autotune(b, weights, count, progress, ctx, out, why);
}

const char *shapes_find_line(const char *all, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = all ? all : ""; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (!strncmp(p, key, n) && p[n] == '\t') return p + n + 1;
    return NULL;
}

/* ---------------------------------------------------------------- operations */

void backend_gather(struct backend *b, const struct gather *g)
{
    b->ops->gather(b, g);
}

void backend_mix(struct backend *b, const struct mix *p)
{
    b->ops->mix(b, p);
}

/* With compile=off, every product is its own call; otherwise a backend may share the packed activations of
 * several. */
void backend_matmul(struct backend *b, const struct matmul *m, int count)
{
    const int at_once = b->options.compile == COMPILE_OFF ? 1 : count;
    for (int i = 0; i < count; i += at_once) b->ops->matmul(b, m + i, at_once);
}

void gated_separately(struct backend *b, const struct gated *p)
{
    const struct matmul both[] = { p->gate, p->up };
    assert(p->gate.y_stride == p->up.y_stride);
    backend_matmul(b, both, 2);
    b->ops->activate(b, &(struct activate){ .act = p->act,
                                            .gate = p->gate.y,
                                            .up = p->up.y,
                                            .stride = p->up.y_stride,
                                            .n = p->up.n,
                                            .cols = p->up.w->rows,
                                            .y = p->y,
                                            .y_stride = p->y_stride });
}

/* Fusing gate, up and activation saves one pass over the results. With compile=off they are separate
 * steps. */
void backend_gated(struct backend *b, const struct gated *p)
{
    assert(p->gate.x == p->up.x && p->gate.n == p->up.n && !p->gate.residual && !p->up.residual);
    if (b->options.compile == COMPILE_OFF)
        gated_separately(b, p);
    else
        b->ops->gated(b, p);
}

bool backend_groups_experts(const struct backend *b, const struct weight *gate, const struct weight *up,
                            const struct weight *down, int experts)
{
    return b->ops->groups_experts && b->options.compile != COMPILE_OFF && experts <= EXPERTS_AT_ONCE &&
           b->ops->groups_experts(b, gate, up, down, experts);
}

void backend_expert_up(struct backend *b, const struct expert_up *p)
{
    b->ops->expert_up(b, p);
}

void backend_expert_down(struct backend *b, const struct expert_down *p)
{
    b->ops->expert_down(b, p);
}

void backend_norm(struct backend *b, const struct norm *p)
{
    b->ops->norm(b, p);
}

void backend_rope(struct backend *b, const struct rope *p)
{
    b->ops->rope(b, p);
}

void backend_hadamard(struct backend *b, const struct hadamard *p)
{
    assert(p->block > 0 && p->block <= HADAMARD_MAX && !(p->block & (p->block - 1)));
    assert(p->cols % p->block == 0);
    b->ops->hadamard(b, p);
}

void backend_kv_store(struct backend *b, const struct kv_store *p)
{
    b->ops->kv_store(b, p);
}

void backend_attention(struct backend *b, const struct attention *p)
{
    b->ops->attention(b, p);
}

void backend_activate(struct backend *b, const struct activate *p)
{
    b->ops->activate(b, p);
}

void backend_top(struct backend *b, const struct top *p)
{
    assert(p->k >= 1 && p->k <= TOP_MAX && p->k <= p->cols && p->cols <= INT32_MAX);
    b->ops->top(b, p);
}
