/* Proves: the six formats of 256 weights put bits where their layout says (blocks by hand, every field of its
 * own), encode to ggml's bytes and decode to its bits (golden files, where they lie beside the checkout), and
 * every instruction set here agrees with the reference on encoded weights and on arbitrary bytes - over one
 * and more blocks, zeros and extremes, between pages that cannot be read. (test_kernels.c has lengths for
 * formats of up to 32.) */
#include "kernels/kernel_set.h"
#include "kernels/formats/kquants/kquants.h"
#include "tests/kernels/numbers.h"

enum { N = 4 * 512, LONGEST = 9 };

static const enum format_id IDS[KQUANT_COUNT] = { FORMAT_Q2_K, FORMAT_Q3_K, FORMAT_Q4_K,
                                                  FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_XS };
static const int BLOCKS[] = { 1, 2, 3, LONGEST };

/* ---------------------------------------------------------------- by hand */

static void fill_bytes(uint8_t *block, int from, int to, uint8_t value)
{
    for (int i = from; i < to; i++) block[i] = value;
}

static void all_are(const struct format *f, const uint8_t *block, float want)
{
    float x[256];
    f->decode(block, x, 256);
    for (int i = 0; i < 256; i++) CHECK_EQ(x[i], want);
}

/* d = 2 and dmin = 0.5 (f16 0x4000, 0x3800), every scale, minimum and code at values that follow from the
 * layout. */
static void fields_by_hand(void **state)
{
    (void)state;
    uint8_t b[256] = { 0 };
    fill_bytes(b, 0, 16, 0x35); /* q2_K: scale 5, minimum 3; codes 2 */
    fill_bytes(b, 16, 80, 0xaa);
    b[81] = 0x40, b[83] = 0x38;
    all_are(&FORMATS[FORMAT_Q2_K], b, 2 * 5 * 2 - 0.5f * 3);

    memset(b, 0, sizeof b); /* q3_K: u = 0x21 = 33, scale 1; codes 4 + 1 */
    fill_bytes(b, 0, 32, 0xff);
    fill_bytes(b, 32, 96, 0x55);
    fill_bytes(b, 96, 104, 0x11);
    fill_bytes(b, 104, 108, 0xaa);
    b[109] = 0x40;
    all_are(&FORMATS[FORMAT_Q3_K], b, 2 * 1 * (5 - 4));

    for (int five = 0; five < 2; five++) { /* scales 0x25, minima 0x13, codes 7 or 16 + 7 */
        memset(b, 0, sizeof b);
        b[1] = 0x40, b[3] = 0x38;
        fill_bytes(b, 4, 8, 0x25 | 2 << 6);
        fill_bytes(b, 8, 12, 0x13 | 1 << 6);
        fill_bytes(b, 12, 16, 0x35);
        if (five) fill_bytes(b, 16, 48, 0xff);
        fill_bytes(b, five ? 48 : 16, five ? 176 : 144, 0x77);
        all_are(&FORMATS[five ? FORMAT_Q5_K : FORMAT_Q4_K], b, (float)(2 * 37 * (five ? 23 : 7)) - 0.5f * 19);
    }

    memset(b, 0, sizeof b); /* q6_K: scale -3, codes 0x2c = 44 */
    fill_bytes(b, 0, 128, 0xcc);
    fill_bytes(b, 128, 192, 0xaa);
    fill_bytes(b, 192, 208, 0xfd);
    b[209] = 0x40;
    all_are(&FORMATS[FORMAT_Q6_K], b, 2 * -3 * (44 - 32));

    memset(b, 0, sizeof b); /* iq4_xs: ls = 0x1b = 27, scale -5; code 14 is 89 */
    b[1] = 0x40, b[2] = b[3] = 0x55;
    fill_bytes(b, 4, 8, 0xbb);
    fill_bytes(b, 8, 136, 0xee);
    all_are(&FORMATS[FORMAT_IQ4_XS], b, 2 * -5 * 89);
}

/* Integers that are valid codes survive encoding and decoding in their places: every index has a different
 * code. */
static void places(void **state)
{
    (void)state;
    static const struct {
        enum format_id id;
        int lo, hi; /* integers all of which are codes when both ends occur in a sub-block */
    } CASES[] = { { FORMAT_Q2_K, -1, 2 },
                  { FORMAT_Q3_K, -4, 3 },
                  { FORMAT_Q4_K, -7, 8 },
                  { FORMAT_Q5_K, -15, 16 },
                  { FORMAT_Q6_K, -32, 31 } };
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        const struct format *f = &FORMATS[CASES[c].id];
        float x[256], back[256];
        uint8_t block[256];
        struct rng r = { c };
        for (int i = 0; i < 256; i++) {
            x[i] = (float)(CASES[c].lo + rng_below(&r, CASES[c].hi - CASES[c].lo + 1));
            if (i % 16 == 3) x[i] = (float)CASES[c].lo;
            if (i % 16 == 9) x[i] = (float)CASES[c].hi;
        }
        f->encode(x, block, 256);
        f->decode(block, back, 256);
        /* Stored scales have few bits, so not exactly: but nearer to their own integer than to another. */
        for (int i = 0; i < 256; i++) CHECK_NEAR(back[i], x[i], 0.45);
    }
}

static void zeros(void **state)
{
    (void)state;
    for (int f = 0; f < KQUANT_COUNT; f++) {
        float x[512] = { 0 };
        uint8_t blocks[512];
        memset(blocks, 0xff, sizeof blocks);
        FORMATS[IDS[f]].encode(x, blocks, 512);
        all_are(&FORMATS[IDS[f]], blocks, 0);
        all_are(&FORMATS[IDS[f]], blocks + FORMATS[IDS[f]].block_bytes, 0);
        CHECK_EQ(blocks[2 * FORMATS[IDS[f]].block_bytes], 0xff);
    }
}

/* ---------------------------------------------------------------- golden files */

static int64_t read_shared(const char *format, const char *input, const char *suffix, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/gguf/%s%s%s%s", format, *format ? "." : "", input, suffix);
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

static void golden_files(void **state)
{
    (void)state;
    static const char *const INPUTS[] = { "uniform", "gauss", "outlier", "edge" };
    static float x[N], want[N], got[N];
    static uint8_t want_bytes[N], got_bytes[N];
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/gguf/manifest.json");
    for (size_t i = 0; i < COUNT_OF(INPUTS); i++) {
        CHECK_EQ(read_shared("", INPUTS[i], ".in.f32", x, sizeof x), sizeof x);
        for (int j = 0; j < KQUANT_COUNT; j++) {
            const struct format *f = &FORMATS[IDS[j]];
            const int64_t bytes = format_row_bytes(f, N);
            CHECK_EQ(read_shared(f->name, INPUTS[i], ".bin", want_bytes, sizeof want_bytes), bytes);
            CHECK_EQ(read_shared(f->name, INPUTS[i], ".deq.f32", want, sizeof want), sizeof want);
            f->encode(x, got_bytes, N);
            if (memcmp(got_bytes, want_bytes, (size_t)bytes)) fail_msg("%s %s: bytes", f->name, INPUTS[i]);
            f->decode(want_bytes, got, N);
            if (memcmp(got, want, sizeof want)) fail_msg("%s %s: values", f->name, INPUTS[i]);
        }
    }
}

/* ---------------------------------------------------------------- instruction sets */

enum content { GAUSS, EXTREME, ANY_BYTES, CONTENTS };

struct fixture {
    const struct format *f;
    enum content content;
    int64_t n;
    size_t bytes, skew;
    uint8_t *blocks;
    float *decoded, *x;
    struct act_q8 q;
};

enum { ROWS = 3, X = DOT_X };

/* Arbitrary bytes, but an f16 of ordinary size wherever one may be. */
static void any_bytes(struct fixture *t, struct rng *r)
{
    for (size_t i = 0; i < t->bytes; i++) t->blocks[i] = (uint8_t)(rng_u32(r) >> 24);
    for (size_t b = 0; b < t->bytes; b += t->f->block_bytes) {
        static const int D[FORMAT_COUNT] = { [FORMAT_Q2_K] = 80, [FORMAT_Q3_K] = 108, [FORMAT_Q6_K] = 208 };
        uint8_t *d = t->blocks + b + D[t->f - FORMATS];
        d[1] = (uint8_t)(0x20 | (d[1] & 0x87));
        if (t->f == &FORMATS[FORMAT_Q2_K] || t->f == &FORMATS[FORMAT_Q4_K] || t->f == &FORMATS[FORMAT_Q5_K])
            d[3] = (uint8_t)(0x20 | (d[3] & 0x87));
    }
}

static struct fixture fixture_make(const struct format *f, enum content content, int blocks, size_t skew,
                                   struct rng *r)
{
    struct fixture t = { .f = f, .content = content, .n = blocks * 256, .skew = skew };
    const int64_t weights = ROWS * t.n;
    t.bytes = (size_t)format_row_bytes(f, weights);
    t.blocks = guarded(t.bytes, skew);
    t.decoded = guarded((size_t)weights * sizeof(float), 0);
    t.x = guarded((size_t)(X * t.n) * sizeof(float), 0);
    t.q = (struct act_q8){ .q_stride = t.n, .d_stride = t.n / Q8_BLOCK };
    t.q.q = guarded((size_t)(X * t.n), 0);
    t.q.d = guarded((size_t)(X * t.q.d_stride) * sizeof(float), 0);
    t.q.sum = guarded((size_t)(X * t.q.d_stride) * sizeof(float), 0);
    t.q.sum16 = guarded((size_t)(X * t.q.d_stride) * 2 * sizeof(float), 0);
    fill_gauss(r, t.x, X * t.n, 1);
    fill_gauss(r, t.decoded, weights, 0.1);
    for (int64_t i = 0; i < X * t.n && content == EXTREME; i++) t.x[i] = i / 16 & 1 ? -127 : 127;
    for (int64_t i = 0; i < weights && content == EXTREME; i++) t.decoded[i] = i / 16 & 1 ? -900 : 900;
    if (content == ANY_BYTES)
        any_bytes(&t, r);
    else
        f->encode(t.decoded, t.blocks, weights);
    f->decode(t.blocks, t.decoded, weights);
    kernels_select(0).vec.quantize_q8(t.x, X * t.n, t.q.q, t.q.d, t.q.sum);
    q8_sums16(t.q.q, t.q.d, X * t.n, t.q.sum16);
    return t;
}

static void fixture_free(struct fixture *t)
{
    guarded_free(t->blocks, t->bytes, t->skew);
    guarded_free(t->decoded, (size_t)(ROWS * t->n) * sizeof(float), 0);
    guarded_free(t->x, (size_t)(X * t->n) * sizeof(float), 0);
    guarded_free(t->q.q, (size_t)(X * t->n), 0);
    guarded_free(t->q.d, (size_t)(X * t->q.d_stride) * sizeof(float), 0);
    guarded_free(t->q.sum, (size_t)(X * t->q.d_stride) * sizeof(float), 0);
    guarded_free(t->q.sum16, (size_t)(X * t->q.d_stride) * 2 * sizeof(float), 0);
}

typedef void body_fn(const struct kernel_set *k, const char *level, const struct fixture *t);

static void each(body_fn *body)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 256 };
    for (int f = 0; f < KQUANT_COUNT; f++)
        for (int content = 0; content < CONTENTS; content++)
            for (size_t b = 0; b < COUNT_OF(BLOCKS); b++) {
                struct fixture t = fixture_make(&FORMATS[IDS[f]], (enum content)content, BLOCKS[b], b * 2,
                                                &r);
                for (size_t l = 0; l < count; l++) {
                    const struct kernel_set k = kernels_select(levels[l]->bits);
                    body(&k, levels[l]->name, &t);
                }
                fixture_free(&t);
            }
}

static void decode_body(const struct kernel_set *k, const char *level, const struct fixture *t)
{
    const size_t bytes = (size_t)(ROWS * t->n) * sizeof(float);
    float *got = guarded(bytes, 0);
    memset(got, 0xff, bytes);
    k->format[t->f - FORMATS].decode(t->blocks, got, ROWS * t->n);
    if (memcmp(got, t->decoded, bytes)) fail_msg("%s %s %d", level, t->f->name, (int)t->n);
    guarded_free(got, bytes, 0);
}

static void decodes(void **state)
{
    (void)state;
    each(decode_body);
}

/* Against binary64 sums over the decoded weights; 8-bit dots over the rounded activations. */
static void dot_check(const struct fixture *t, const struct dot *d, bool q8, const char *level)
{
    for (int at = 0; at < d->n * ROWS; at++) {
        const int i = at / ROWS, row = at % ROWS;
        double want = 0, terms = 0;
        for (int64_t j = 0; j < t->n; j++) {
            const double x = q8 ? (double)t->q.q[i * t->n + j] * t->q.d[(i * t->n + j) / Q8_BLOCK]
                                : t->x[i * t->n + j];
            want += x * t->decoded[row * t->n + j], terms += fabs(x * t->decoded[row * t->n + j]);
        }
        if (!(fabs(want - d->y[at]) <= 1e-6 * terms + 1e-30))
            fail_msg("%s %s %s content %d n %d cols %d: %.9g, want %.9g", level, t->f->name,
                     q8 ? "q8" : "f32", (int)t->content, d->n, (int)t->n, d->y[at], want);
    }
}

static void dot_body(const struct kernel_set *k, const char *level, const struct fixture *t)
{
    const struct format_kernels *f = &k->format[t->f - FORMATS];
    struct dot d = { .w = t->blocks,
                     .row_bytes = format_row_bytes(t->f, t->n),
                     .rows = ROWS,
                     .cols = t->n,
                     .x = t->x,
                     .x_stride = t->n,
                     .q = t->q,
                     .y_stride = ROWS };
    for (int q8 = 0; q8 < 2; q8++)
        for (d.n = 1; d.n <= X; d.n++) {
            float y[X * ROWS];
            memset(y, 0xff, sizeof y);
            d.y = y;
            (q8 ? f->dot_q8 : f->dot_f32)(&d);
            dot_check(t, &d, q8, level);
        }
}

static void dots(void **state)
{
    (void)state;
    each(dot_body);
}

static void unpack_body(const struct kernel_set *k, const char *level, const struct fixture *t)
{
    unpack_bf16_fn *unpack = k->format[t->f - FORMATS].unpack_bf16;
    if (!unpack) return;
    enum { TILE = TILE_ROWS * TILE_DEPTH };
    const size_t bytes = (size_t)(t->n / TILE_DEPTH * TILE) * sizeof(uint16_t);
    uint16_t *out = guarded(bytes, 0);
    for (int rows = 1; rows <= ROWS; rows++) {
        memset(out, 0xff, bytes);
        unpack(t->blocks, format_row_bytes(t->f, t->n), rows, t->n, out);
        for (int64_t at = 0; at < t->n / TILE_DEPTH * TILE; at++) {
            const int64_t row = at % TILE / TILE_DEPTH, i = at / TILE * TILE_DEPTH + at % TILE_DEPTH;
            const uint16_t want = row < rows ? bf16_from_f32(t->decoded[row * t->n + i]) : UINT16_MAX;
            if (out[at] != want)
                fail_msg("%s %s row %d input %d: %04x, want %04x", level, t->f->name, (int)row, (int)i,
                         out[at], want);
        }
    }
    guarded_free(out, bytes, 0);
}

static void unpacks(void **state)
{
    (void)state;
    each(unpack_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_by_hand), cmocka_unit_test(places),  cmocka_unit_test(zeros),
        cmocka_unit_test(golden_files),   cmocka_unit_test(decodes), cmocka_unit_test(dots),
        cmocka_unit_test(unpacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
