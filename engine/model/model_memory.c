/* Reads weights ahead, and reports whether the kernel granted huge pages. A refusal costs speed, never
 * correctness, so it is a warning in the log. */
#include "engine/model/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

enum { ROLLUP_LIMIT = 1 << 16 };

/* The pages that contain any of this tensor's bytes. */
static void pages_of(const struct gguf_tensor *t, void **at, size_t *bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)t->data,
                    to = from + (uintptr_t)t->bytes;
    const uintptr_t first = from / page * page, last = (to + page - 1) / page * page;
    *at = (void *)first;
    *bytes = last > first ? last - first : 0;
}

/* Map all pages. Kernels before 5.14 lack MADV_POPULATE_READ: then one byte of every page is read. */
static int pages_populate(void *at, size_t bytes)
{
    if (!madvise(at, bytes, MADV_POPULATE_READ)) return 0;
    if (errno != EINVAL) return errno;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bytes; i += page) (void)*((const volatile unsigned char *)at + i);
    return 0;
}

void model_prefetch(struct model *m, const struct log *log)
{
    if (m->session.prefetch == PREFETCH_OFF) return;
    const int64_t start = clock_ns();
    for (int64_t i = 0; i < gguf_tensor_count(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        void *at;
        size_t bytes;
        if (t->made) continue; /* not in a file: computed when it is bound */
        pages_of(t, &at, &bytes);
        if (!bytes) continue;
        const int failed = m->session.prefetch == PREFETCH_POPULATE ? pages_populate(at, bytes)
                           : madvise(at, bytes, MADV_WILLNEED)      ? errno
                                                                    : 0;
        if (failed) {
            log_write(log, LOG_WARN, "prefetch stopped at tensor '%s', after %lld bytes: %s", t->name,
                      (long long)m->memory.prefetched_bytes, strerror(failed));
            break;
        }
        m->memory.prefetched_bytes += t->bytes;
    }
    m->memory.prefetch_s = (double)(clock_ns() - start) * 1e-9;
}

int64_t model_huge_bytes(void)
{
    char *text;
    if (file_read(&text, NULL, "/proc/self/smaps_rollup", ROLLUP_LIMIT, NULL)) return -1;
    const char *at = strstr(text, "AnonHugePages:");
    const int64_t kb = at ? strtoll(at + strlen("AnonHugePages:"), NULL, 10) : -1;
    free(text);
    return kb < 0 ? -1 : kb * 1024;
}

void model_account_huge(struct model *m, int64_t before, const struct log *log)
{
    char asked[16], given[16];
    const int64_t after = model_huge_bytes();
    for (const struct site *s = m->sites; s < m->sites + SITE_COUNT; s++) {
        struct backend_info info;
        if (!s->backend) continue;
        backend_describe(s->backend, &info);
        m->memory.copied_bytes += info.copied_bytes;
        m->memory.repacked_bytes += info.repacked_bytes;
        m->memory.huge_wanted_bytes += info.huge_wanted_bytes;
    }
    m->memory.huge_bytes = before < 0 || after < 0 ? -1 : MAX(after - before, 0);
    if (m->session.backend.repack && !m->memory.repacked_bytes)
        log_write(log, LOG_WARN, "repack=on has no effect: no format in this file has a faster equivalent");
    /* Warn only if the config asks for huge pages explicitly. */
    if (!m->config.given[KNOB_HUGEPAGES] || m->memory.huge_bytes < 0 ||
        m->memory.huge_bytes >= m->memory.huge_wanted_bytes / 2)
        return;
    log_write(log, LOG_WARN,
              "hugepages=%s: %s were requested as huge pages, the kernel granted %s "
              "(/sys/kernel/mm/transparent_hugepage/enabled, or memory is fragmented)",
              config_text(&m->config, KNOB_HUGEPAGES),
              str_from_bytes(m->memory.huge_wanted_bytes, asked, sizeof asked),
              str_from_bytes(m->memory.huge_bytes, given, sizeof given));
}
