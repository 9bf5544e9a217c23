/* Encoding, in weights per second and core, with importance for formats that use it, on Gaussian numbers. The
 * error of an encoder is the share of its bytes that differ from those of the reference; it must be 0. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/kernels/bench.h"

enum { ROWS = 16, COLS = 2048, CELLS = ROWS * COLS };

struct work {
    const struct kernel_set *kernels;
    const struct format *f;
    struct encode e;
    size_t bytes;
};

static void run_encode(void *arg)
{
    const struct work *k = arg;
    encode_with(k->kernels, k->f, &k->e);
}

static void finish(void *arg)
{
    struct work *k = arg;
    guarded_free((void *)k->e.x, CELLS * sizeof(float));
    if (k->e.importance) guarded_free((void *)k->e.importance, COLS * sizeof(float));
    guarded_free(k->e.out, k->bytes);
    free(k);
}

/* NULL without memory. */
static struct work *work_new(const struct rig *r, const struct format *f, bool important)
{
    struct work *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    *k = (struct work){ .kernels = &r->kernels, .f = f, .bytes = (size_t)(ROWS * format_row_bytes(f, COLS)) };
    float *x = guarded(CELLS * sizeof *x), *w = important ? guarded(COLS * sizeof *w) : NULL;
    k->e = (struct encode){ x, w, guarded(k->bytes), ROWS, COLS };
    if (!x || !k->e.out || (important && !w)) return NULL;
    struct rng rng = { 9 };
    for (int i = 0; i < CELLS; i++) x[i] = rng_gauss(&rng, 0.02);
    for (int i = 0; i < COLS && w; i++) w[i] = (float)(rng_u32(&rng) >> 8) * 0x1p-24f;
    return k;
}

static double differing(struct work *k)
{
    const struct kernel_set reference = kernels_select(0);
    struct encode e = k->e;
    size_t differ = 0;
    e.out = malloc(k->bytes);
    if (!e.out) return INFINITY;
    encode_with(&reference, k->f, &e);
    encode_with(k->kernels, k->f, &k->e);
    for (size_t i = 0; i < k->bytes; i++) differ += e.out[i] != k->e.out[i];
    free(e.out);
    return (double)differ / (double)k->bytes;
}

static int add(struct bench *t, struct rig *r, const struct format *f, bool important)
{
    struct work *k = work_new(r, f, important);
    struct line *l = k ? bench_line(t) : NULL;
    if (!l) return 1;
    *l = (struct line){ .kind = "encode",
                        .level = r->level,
                        .format = f->name,
                        .precision = important ? "important" : "",
                        .n = -1,
                        .unit = UNIT_WEIGHTS,
                        .work = CELLS,
                        .limit = NAN,
                        .run = run_encode,
                        .finish = finish,
                        .arg = k };
    snprintf(l->shape, sizeof l->shape, "%dx%d", ROWS, COLS);
    line_judge(l, differing(k), 0);
    return 0;
}

int encode_add(struct bench *t)
{
    for (int i = 0; i < t->rigs; i++) {
        for (int id = 0; id < FORMAT_COUNT; id++) {
            const struct format *f = &FORMATS[id];
            if (!f->encode || !wanted(t, "encode", f->name)) continue;
            encode_rows_fn *own = t->rig[i].kernels.format[id].encode;
            if (i && own == t->rig[i - 1].kernels.format[id].encode) continue; /* no other than before */
            if (add(t, &t->rig[i], f, false)) return 1;
            if (f->weighted && add(t, &t->rig[i], f, true)) return 1;
        }
    }
    return 0;
}
