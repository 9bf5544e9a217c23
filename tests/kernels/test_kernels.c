/* Proves: every kernel of every instruction set of this machine agrees with the reference kernel, called
 * directly. Decoding yields the same bits; dots, tiles and vector operations agree within the rounding of
 * their sums. The lengths cover every vector width, the numbers zeros and extremes, and buffers end at an
 * unreadable page, so that reading too far crashes. */
#include "kernels/cpu.h"
#include "tests/kernels/numbers.h"

static const int64_t LENGTHS[] = { 1,  2,  7,  8,  9,   15,  16,  17,  31,  32,  33,
                                   63, 64, 65, 96, 127, 128, 160, 224, 352, 1025 };

struct arrays {
    int64_t n;
    float *x, *y, *want, *w; /* all end at an unreadable page */
};

static struct arrays arrays_make(int64_t n, struct rng *r)
{
    struct arrays a = { .n = n };
    float **all[] = { &a.x, &a.y, &a.want, &a.w };
    for (size_t i = 0; i < COUNT_OF(all); i++) *all[i] = guarded((size_t)n * sizeof(float), 0);
    fill_gauss(r, a.x, n, 2);
    fill_gauss(r, a.w, n, 1);
    return a;
}

static void arrays_free(struct arrays *a)
{
    float *all[] = { a->x, a->y, a->want, a->w };
    for (size_t i = 0; i < COUNT_OF(all); i++) guarded_free(all[i], (size_t)a->n * sizeof(float), 0);
}

/* Calls body(set, name, n, rng) for each level and length. */
typedef void body_fn(const struct kernel_set *k, const char *name, int64_t n, struct rng *r);

static void each(body_fn *body)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 3 };
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(levels[l]->bits);
        for (size_t i = 0; i < COUNT_OF(LENGTHS); i++) body(&k, levels[l]->name, LENGTHS[i], &r);
    }
}

static void decode_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        if (!f->decode || n % f->block_weights) continue;
        struct arrays a = arrays_make(n, r);
        const size_t bytes = (size_t)format_row_bytes(f, n);
        uint8_t *blocks = guarded(bytes, 0);
        for (size_t i = 0; i < bytes; i++) blocks[i] = (uint8_t)(rng_u32(r) >> 24) & 0xbf; /* no NaN */
        f->decode(blocks, a.want, n);
        k->format[id].decode(blocks, a.y, n);
        const float scale = format_row_scale(f, blocks, n);
        for (int64_t i = 0; i < n && f->row_tail_bytes; i++) a.y[i] *= scale;
        if (memcmp(a.want, a.y, (size_t)n * sizeof(float))) fail_msg("%s %s %d", name, f->name, (int)n);
        guarded_free(blocks, bytes, 0);
        arrays_free(&a);
    }
}

static void decodes(void **state)
{
    (void)state;
    each(decode_body);
}

static struct act_q8 q8_make(int64_t n, int rows)
{
    struct act_q8 q = { .q_stride = n, .d_stride = n / Q8_BLOCK };
    q.q = guarded((size_t)(rows * n), 0);
    q.d = guarded((size_t)(rows * q.d_stride) * sizeof(float), 0);
    q.sum = guarded((size_t)(rows * q.d_stride) * sizeof(float), 0);
    q.sum16 = guarded((size_t)(rows * q.d_stride) * 2 * sizeof(float), 0);
    return q;
}

static void q8_free(struct act_q8 *q, int64_t n, int rows)
{
    guarded_free(q->q, (size_t)(rows * n), 0);
    guarded_free(q->d, (size_t)(rows * q->d_stride) * sizeof(float), 0);
    guarded_free(q->sum, (size_t)(rows * q->d_stride) * sizeof(float), 0);
    guarded_free(q->sum16, (size_t)(rows * q->d_stride) * 2 * sizeof(float), 0);
}

/* One weight matrix of 3 rows, 1 to 4 rows of x; `mode` 0 ordinary, 1 zero activations, 2 all at the largest.
 */
static void dot_case(const struct kernel_set *k, const char *name, int id, int64_t n, int mode, struct rng *r)
{
    enum { ROWS = 3, X = DOT_X };
    const struct format *f = &FORMATS[id];
    const struct kernel_set ref = kernels_select(0);
    struct arrays x = arrays_make(n * X, r), w = arrays_make(n * ROWS, r);
    const size_t bytes = (size_t)(format_row_bytes(f, n) * ROWS);
    uint8_t *blocks = guarded(bytes, 0);
    for (int64_t i = 0; i < n * X && mode; i++) x.x[i] = mode == 1 ? 0 : i & 8 ? -127 : 127;
    for (int64_t i = 0; i < n * ROWS && mode == 2; i++) w.x[i] = i & 8 ? -127 : 127;
    format_encode_rows(f, w.x, blocks, ROWS, n);
    struct dot d = {
        .w = blocks, .row_bytes = format_row_bytes(f, n), .rows = ROWS, .cols = n, .x = x.x, .x_stride = n
    };
    d.y_stride = ROWS;
    for (int q8 = 0; q8 < 2; q8++) {
        dot_fn *want_fn = q8 ? ref.format[id].dot_q8 : ref.format[id].dot_f32;
        dot_fn *got_fn = q8 ? k->format[id].dot_q8 : k->format[id].dot_f32;
        if (!got_fn) continue;
        if (q8) {
            d.q = q8_make(n, X);
            for (int i = 0; i < X; i++)
                ref.vec.quantize_q8(x.x + i * n, n, d.q.q + i * d.q.q_stride, d.q.d + i * d.q.d_stride,
                                    d.q.sum + i * d.q.d_stride);
            q8_sums16(d.q.q, d.q.d, n * X, d.q.sum16);
        }
        for (d.n = 1; d.n <= X; d.n++) {
            float want[X * ROWS], got[X * ROWS];
            memset(got, 0xff, sizeof got);
            d.y = want, want_fn(&d);
            d.y = got, got_fn(&d);
            for (int i = 0; i < d.n * ROWS; i++) {
                double terms = 0;
                const float *a = x.x + i / ROWS * n, *b = w.x + i % ROWS * n;
                for (int64_t j = 0; j < n; j++) terms += fabs((double)a[j] * b[j]);
                const double scale = format_row_scale(f, blocks + i % ROWS * d.row_bytes, n);
                if (!(fabs((double)want[i] - got[i]) * scale <= 1e-6 * terms + 1e-30))
                    fail_msg("%s %s %s n %d cols %d: %.9g, want %.9g", name, f->name, q8 ? "q8" : "f32", d.n,
                             (int)n, got[i], want[i]);
            }
        }
        if (q8) q8_free(&d.q, n, X);
    }
    guarded_free(blocks, bytes, 0);
    arrays_free(&x);
    arrays_free(&w);
}

static void dot_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    for (int id = 0; id < FORMAT_COUNT; id++)
        for (int mode = 0; mode < 3 && FORMATS[id].encode && n % FORMATS[id].block_weights == 0; mode++)
            dot_case(k, name, id, n, mode, r);
}

static void dots(void **state)
{
    (void)state;
    each(dot_body);
}

/* unpack_bf16 rounds each weight (where a row has a scale: each code) to bf16 and puts it where the tiles
 * want it; inputs that do not exist are 0, rows left alone. */
static void unpack_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    const struct kernel_set ref = kernels_select(0);
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        if (!k->format[id].unpack_bf16 || n % f->block_weights) continue;
        const int rows = 1 + rng_below(r, TILE_ROWS);
        struct arrays w = arrays_make(n * rows, r);
        const size_t row_bytes = (size_t)format_row_bytes(f, n), bytes = row_bytes * (size_t)rows,
                     tiles = (size_t)(n + TILE_DEPTH - 1) / TILE_DEPTH;
        const size_t out_bytes = tiles * TILE_ROWS * TILE_DEPTH * sizeof(uint16_t);
        uint8_t *blocks = guarded(bytes, 0);
        uint16_t *out = guarded(out_bytes, 0);
        memset(out, 0xff, out_bytes);
        format_encode_rows(f, w.x, blocks, rows, n);
        for (int i = 0; i < rows; i++)
            ref.format[id].decode(blocks + (size_t)i * row_bytes, w.want + i * n, n);
        k->format[id].unpack_bf16(blocks, (int64_t)row_bytes, rows, n, out);
        for (size_t t = 0; t < tiles; t++)
            for (int row = 0; row < TILE_ROWS; row++)
                for (int j = 0; j < TILE_DEPTH; j++) {
                    const int64_t i = (int64_t)t * TILE_DEPTH + j;
                    const uint16_t want = row >= rows ? UINT16_MAX
                                          : i < n     ? bf16_from_f32(w.want[row * n + i])
                                                      : 0;
                    const uint16_t got = out[(t * TILE_ROWS + (size_t)row) * TILE_DEPTH + (size_t)j];
                    if (got != want)
                        fail_msg("%s %s %d row %d input %d: %04x, want %04x", name, f->name, (int)n, row,
                                 (int)i, got, want);
                }
        guarded_free(blocks, bytes, 0);
        guarded_free(out, out_bytes, 0);
        arrays_free(&w);
    }
}

static void unpacks(void **state)
{
    (void)state;
    each(unpack_body);
}

static void close_enough(const char *what, const char *name, const struct arrays *a, double relative,
                         double absolute)
{
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs((double)a->want[i] - a->y[i]) <= relative * fabs(a->want[i]) + absolute))
            fail_msg("%s %s length %d at %d: %.9g, want %.9g", what, name, (int)a->n, (int)i, a->y[i],
                     a->want[i]);
}

static void vector_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    const struct vector_kernels *v = &k->vec, ref = kernels_select(0).vec;
    struct arrays a = arrays_make(n, r);
    for (int bias = 0; bias < 2; bias++) {
        ref.norm_rms(a.x, a.w, bias ? a.w : NULL, n, 1e-5f, a.want);
        v->norm_rms(a.x, a.w, bias ? a.w : NULL, n, 1e-5f, a.y);
        close_enough("rms", name, &a, 2e-6, 2e-6); /* w + bias may cancel */
        ref.norm_layer(a.x, a.w, bias ? a.w : NULL, n, 1e-5f, a.want);
        v->norm_layer(a.x, a.w, bias ? a.w : NULL, n, 1e-5f, a.y);
        close_enough("layer", name, &a, 4e-6, 2e-6);
    }
    CHECK_EQ(v->max(a.x, n), ref.max(a.x, n));
    memcpy(a.want, a.x, (size_t)n * sizeof(float)), memcpy(a.y, a.x, (size_t)n * sizeof(float));
    ref.scale(a.want, n, 0.3f), v->scale(a.y, n, 0.3f);
    close_enough("scale", name, &a, 0, 0);
    a.want[n / 2] = a.y[n / 2] = -200; /* underflows */
    const float top = ref.max(a.want, n), sum = ref.exp_sum(a.want, n, top);
    CHECK_NEAR(v->exp_sum(a.y, n, top), sum, 1e-6 * sum);
    close_enough("exp", name, &a, 4e-7, 2e-38);
    for (int act = 0; act < ACT_COUNT; act++) {
        for (int up = act == ACT_SWIGLU_CLIPPED; up < 2; up++) {
            ref.activate[act](a.x, up ? a.w : NULL, n, a.want);
            v->activate[act](a.x, up ? a.w : NULL, n, a.y);
            close_enough("activate", name, &a, 2e-6, 3e-7);
        }
    }
    arrays_free(&a);
    if (n % Q8_BLOCK) return;
    struct arrays x = arrays_make(n, r);
    struct act_q8 want = q8_make(n, 1), got = q8_make(n, 1);
    for (int i = 0; i < Q8_BLOCK; i++) x.x[i] = 0; /* the first block holds nothing */
    ref.quantize_q8(x.x, n, want.q, want.d, want.sum);
    v->quantize_q8(x.x, n, got.q, got.d, got.sum);
    assert_memory_equal(want.q, got.q, (size_t)n);
    assert_memory_equal(want.d, got.d, (size_t)(n / Q8_BLOCK) * sizeof(float));
    assert_memory_equal(want.sum, got.sum, (size_t)(n / Q8_BLOCK) * sizeof(float));
    q8_free(&want, n, 1), q8_free(&got, n, 1);
    arrays_free(&x);
}

static void vectors(void **state)
{
    (void)state;
    each(vector_body);
}

/* exp over its whole range against binary64, in units of the last place. */
static void exponential(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++) {
        const struct kernel_set k = kernels_select(levels[l]->bits);
        double worst = 0;
        for (float x = -87; x <= 0; x += 0.00711f) {
            float v[16];
            for (int i = 0; i < 16; i++) v[i] = x;
            k.vec.exp_sum(v, 16, 0);
            const double want = exp(x), error = fabs(v[3] - want) / want * 0x1p23;
            if (!(error <= worst)) worst = error;
        }
        CHECK_LE(worst, 2);
    }
}

static void tile_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    if (n > 160) return;
    for (int m = 1; m <= 25; m += 4) {
        const int depth = rng_below(r, 70), pad = rng_below(r, 3);
        const int64_t lda = depth + pad, ldb = n + pad, ldc = n + pad;
        struct arrays a = arrays_make(MAX((m - 1) * lda + depth, (int64_t)1), r);
        struct arrays b = arrays_make(MAX((depth - 1) * ldb + n, (int64_t)1), r),
                      c = arrays_make((m - 1) * ldc + n, r);
        struct tile t = {
            .m = m, .n = (int)n, .k = depth, .a = a.x, .b = b.x, .lda = lda, .ldb = ldb, .ldc = ldc
        };
        for (int add = 0; add < 2; add++) {
            t.add = add;
            memcpy(c.y, c.x, (size_t)c.n * sizeof(float));
            t.c = c.y;
            k->tile(&t);
            memcpy(c.want, c.x, (size_t)c.n * sizeof(float));
            for (int i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    double sum = add ? c.x[i * ldc + j] : 0;
                    for (int d = 0; d < depth; d++) sum += (double)a.x[i * lda + d] * b.x[d * ldb + j];
                    c.want[i * ldc + j] = (float)sum;
                }
            close_enough("tile", name, &c, 1e-6, 4e-5); /* 70 terms of size 4 */
        }
        arrays_free(&a), arrays_free(&b), arrays_free(&c);
    }
}

static void tiles(void **state)
{
    (void)state;
    each(tile_body);
}

static void transpose_body(const struct kernel_set *k, const char *name, int64_t n, struct rng *r)
{
    if (n > 160) return;
    const int rows = 1 + rng_below(r, 50), pad = rng_below(r, 3);
    struct arrays in = arrays_make((rows - 1) * (n + pad) + n, r),
                  out = arrays_make((n - 1) * (rows + pad) + rows, r);
    memcpy(out.y, out.x, (size_t)out.n * sizeof(float));
    k->vec.transpose(in.x, n + pad, rows, (int)n, out.y, rows + pad);
    memcpy(out.want, out.x, (size_t)out.n * sizeof(float));
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) out.want[j * (rows + pad) + i] = in.x[i * (n + pad) + j];
    close_enough("transpose", name, &out, 0, 0); /* the gaps too: nothing else is written */
    arrays_free(&in), arrays_free(&out);
}

static void transposes(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) each(transpose_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes),    cmocka_unit_test(dots),  cmocka_unit_test(unpacks),
        cmocka_unit_test(vectors),    cmocka_unit_test(tiles), cmocka_unit_test(exponential),
        cmocka_unit_test(transposes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
