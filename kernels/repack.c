/* Weights held in another layout than the file's: where a format takes longer to unfold than its fewer bytes
 * save, and another one holds exactly the same numbers. SPEED.md has the figures; layouts that were tried and
 * gained nothing (bf16 panels made in advance, padded rows) are not here. */
#include "kernels/cpu.h"
#include "kernels/formats/ternary/ternary.h"

struct repacking {
    enum format_id from, to; /* blocks of both hold the same weights */
    void (*blocks)(const void *in, void *out, int64_t n);
};

static const struct repacking REPACKINGS[] = {
    { FORMAT_TQ1_0, FORMAT_TQ2_0, tq1_0_to_tq2_0 },
};

static const struct repacking *repacking_of(const struct format *f)
{
    for (size_t i = 0; i < COUNT_OF(REPACKINGS); i++)
        if (f == &FORMATS[REPACKINGS[i].from]) return &REPACKINGS[i];
    return NULL;
}

const struct format *backend_held_format(const struct backend_options *o, const struct format *f)
{
    const struct repacking *r = o->repack ? repacking_of(f) : NULL;
    return r ? &FORMATS[r->to] : f;
}

struct repack {
    const struct repacking *how;
    const uint8_t *in;
    uint8_t *out;
    int64_t blocks;
};

static void repack_member(void *arg, int member, int size)
{
    const struct repack *r = arg;
    const struct format *from = &FORMATS[r->how->from], *to = &FORMATS[r->how->to];
    int64_t first, end;
    share_of(r->blocks, member, size, &first, &end);
    r->how->blocks(r->in + first * from->block_bytes, r->out + first * to->block_bytes,
                   (end - first) * from->block_weights);
}

void weight_repack(struct cpu *b, const struct format *f, const void *in, void *out, int64_t n)
{
    struct repack r = { .how = repacking_of(f), .in = in, .out = out, .blocks = n / f->block_weights };
    cpu_run(b, n, repack_member, &r);
}
