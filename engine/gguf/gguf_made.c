/* Tensors whose bytes are computed when somebody asks for them.
 *
 * A model in files of another kind (engine/import) has tensors that the files hold in another order or
 * packing. Most commands only need their shapes, and copying a model needs one tensor at a time, so the bytes
 * are computed on demand and can be given up again. Addresses are reserved when the model is opened, so that
 * the demand cannot fail. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/gguf/gguf_internal.h"

enum err_code gguf_parts_make(struct gguf_parts *p, struct gguf_tensor *t, gguf_fill_fn *fill,
                              const void *how, struct err *why)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct gguf_made *m = arena_alloc(&p->memory, sizeof *m);
    if (!m) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", t->name);
    m->reserved = ((size_t)t->bytes + page - 1) / page * page;
    void *at = mmap(NULL, m->reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", t->name);
    m->fill = fill;
    m->how = how;
    m->to = at;
    pthread_mutex_init(&m->lock, NULL);
    t->data = NULL;
    t->made = m;
    return ERR_OK;
}

const void *gguf_tensor_how(const struct gguf_tensor *t, gguf_fill_fn *fill)
{
    return t->made && t->made->fill == fill ? t->made->how : NULL;
}

void gguf_made_free(struct gguf_made *m)
{
    if (!m) return;
    munmap(m->to, m->reserved);
    pthread_mutex_destroy(&m->lock);
}

const unsigned char *gguf_tensor_data(const struct gguf_tensor *t)
{
    struct gguf_made *m = t->made;
    if (!m) return t->data;
    pthread_mutex_lock(&m->lock);
    if (!m->filled) m->fill(m->how, t, m->to);
    m->filled = true;
    pthread_mutex_unlock(&m->lock);
    return m->to;
}

void gguf_tensor_drop(const struct gguf_tensor *t)
{
    struct gguf_made *m = t->made;
    if (m) {
        pthread_mutex_lock(&m->lock);
        /* private pages without a file: they read as zeros afterwards */
        if (m->filled) madvise(m->to, m->reserved, MADV_DONTNEED);
        m->filled = false;
        pthread_mutex_unlock(&m->lock);
        return;
    }
    /* whole pages of the tensor only: its neighbours may be in use */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)t->data,
                    first = (from + page - 1) / page * page,
                    last = (from + (uintptr_t)t->bytes) / page * page;
    if (t->data && last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}
