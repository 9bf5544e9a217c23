/* Repacking: hold weights in another format than the file's. It pays when decoding a format costs more time
 * than its smaller size saves and another format can represent exactly the same numbers. SPEED.md has the
 * figures, also of layouts that gained nothing (bf16 panels packed in advance, padded rows). */
#include "kernels/cpu.h"
#include "kernels/formats/ternary/ternary.h"

struct repacking {
    enum format_id from, to; /* with the same number of weights per block */
    void (*blocks)(const void *in, void *out, int64_t n);
};

static const struct repacking REPACKINGS[] = {
    { .from = FORMAT_TQ1_0, .to = FORMAT_TQ2_0, .blocks = tq1_0_to_tq2_0 },
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
    member_share(r->blocks, member, size, &first, &end);
    r->how->blocks(r->in + first * from->block_bytes, r->out + first * to->block_bytes,
                   (end - first) * from->block_weights);
}

void weight_repack(struct cpu *b, const struct format *f, const void *in, void *out, int64_t n)
{
    struct repack r = { .how = repacking_of(f), .in = in, .out = out, .blocks = n / f->block_weights };
    cpu_run(b, n, repack_member, &r);
}
