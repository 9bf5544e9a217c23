/* Encodes groups; the last step of every method with groups. */
#include "engine/quant/groups.h"

#include <math.h>

#include "engine/quant/rounding.h"

struct group_choice group_stored(struct group_choice c)
{
    const float least = 0x1p-24f, most = 65504; /* range of f16 */
    float scale = c.scale < least ? least : c.scale > most ? most : c.scale, zero = c.zero;
    if (fabsf(zero) > most) {
        const float constant = fabsf(zero * scale);
        scale = constant < least ? least : constant > most ? most : constant;
        zero = zero < 0 ? -1 : 1;
    }
    return (struct group_choice){ f16_to_f32(f16_from_f32(scale)), f16_to_f32(f16_from_f32(zero)) };
}

struct group_encoding {
    const struct format *format;
    const float *x;
    const struct group_choice *choices;
    int64_t groups;
    uint8_t *out;
};

/* Thread function: encode some groups. */
static void group_encoding_run(void *arg, int member, int size)
{
    const struct group_encoding *e = arg;
    const int n = (int)e->format->block_weights;
    const float most = (float)((1 << format_group_bits(e->format)) - 1);
    for (int64_t i = e->groups * member / size; i < e->groups * (member + 1) / size; i++) {
        const struct group_choice c = group_stored(e->choices[i]);
        struct group_codes g = { .scale = c.scale, .zero = c.zero };
        for (int k = 0; k < n; k++)
            g.code[k] = (uint8_t)round_within(e->x[i * n + k] / c.scale + c.zero, most);
        format_group_pack(e->format, &g, e->out + i * e->format->block_bytes);
    }
}

void groups_encode(const struct format *f, const float *x, const struct group_choice *choices, int64_t groups,
                   struct threadpool *pool, void *out)
{
    struct group_encoding e = { f, x, choices, groups, out };
    threadpool_run(pool, group_encoding_run, &e);
}

const struct format *group_format(int bits, int64_t size)
{
    const struct format *best = NULL;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        if (!f->encode || format_group_bits(f) != bits || (size != -1 && f->block_weights != size)) continue;
        if (!best || f->block_weights < best->block_weights) best = f;
    }
    return best;
}
