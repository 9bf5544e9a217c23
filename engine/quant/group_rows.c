/* Packs groups into blocks. No format has whole-row groups: the row's scale is repeated in every block. */
#include "engine/quant/group_rows.h"

#include <string.h>

#include "engine/quant/groups.h"

const char *group_format_of(const struct params *p)
{
    const struct format *f = group_format((int)params_int(p, "bits"), params_int(p, "group_size"));
    return f ? f->name : NULL;
}

enum err_code group_check(const struct params *p, struct err *why)
{
    const int64_t bits = params_int(p, "bits"), group = params_int(p, "group_size");
    if (group_format_of(p)) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "bits=%lld, group_size=%lld: there is no format of %lld bits in groups of %lld",
                   (long long)bits, (long long)group, (long long)bits, (long long)group);
}

enum err_code group_of_job(const struct tensor_job *job, int *bits, int64_t *group, struct err *why)
{
    const struct params *p = &job->params;
    const int64_t given = params_int(p, "group_size"), block = job->format->block_weights;
    *bits = format_group_bits(job->format);
    *group = given == -1 ? job->cols : block;
    if (params_given(p, "bits") && params_int(p, "bits") != *bits)
        return err_set(why, ERR_USAGE, "'%s' gets the format %s, which contradicts bits=%lld", job->name,
                       job->format->name, (long long)params_int(p, "bits"));
    if (params_given(p, "group_size") && given != -1 && given != block)
        return err_set(why, ERR_USAGE, "'%s' gets the format %s, which contradicts group_size=%lld",
                       job->name, job->format->name, (long long)given);
    return ERR_OK;
}

struct packing {
    const struct tensor_job *job;
    const struct group_matrix *m;
};

/* Thread function: pack some rows. */
static void pack_rows(void *arg, int member, int size)
{
    const struct packing *p = arg;
    const struct tensor_job *job = p->job;
    const struct format *f = job->format;
    const int64_t cols = job->cols, groups = cols / p->m->group, block = f->block_weights;
    for (int64_t row = job->rows * member / size; row < job->rows * (member + 1) / size; row++) {
        uint8_t *out = (uint8_t *)job->out + row * format_row_bytes(f, cols);
        for (int64_t i = 0; i < cols; i += block, out += f->block_bytes) {
            const int64_t group = row * groups + i / p->m->group;
            struct group_codes g = { .scale = p->m->scales[group], .zero = p->m->zeros[group] };
            memcpy(g.code, p->m->codes + row * cols + i, (size_t)block);
            format_group_pack(f, &g, out);
        }
    }
}

void group_rows_pack(const struct tensor_job *job, const struct group_matrix *m)
{
    struct packing p = { job, m };
    threadpool_run(job->pool, pack_rows, &p);
}
