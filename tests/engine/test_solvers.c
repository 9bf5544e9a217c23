/* Proves: the solvers of quantization methods equal their reference implementations. HQQ and quanto,
 * bitsandbytes' statistics, int8 rows and the ranges of observers agree with golden files (where these are
 * installed) and with vectors computed by hand. The number of threads does not matter. Zeros, constants,
 * extremes and values of very different size stay finite. */
#include "engine/quant/bnb.h"
#include "engine/quant/hqq.h"
#include "engine/quant/int8_rows.h"
#include "engine/quant/observers.h"
#include "engine/quant/quanto.h"
#include "engine/quant/ranges.h"
#include "tests/kernels/numbers.h"

enum { N = 64, K = 256, ALL = N * K };

static int64_t load(const char *name, void *out, size_t size)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/peers/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no %s", path);
    const size_t n = fread(out, 1, size, f);
    fclose(f);
    return (int64_t)n;
}

#define LOAD(name, array)    CHECK_EQ(load(name, array, sizeof(array)), (int64_t)sizeof(array))
#define GOLDEN_OR_SKIP(path) SHARED_OR_SKIP(path, "quant-golden/peers/manifest.json")

static void load_weight(float *w)
{
    static uint16_t halves[ALL];
    LOAD("in/weight.f16", halves);
    for (int i = 0; i < ALL; i++) w[i] = f16_to_f32(halves[i]);
}

static struct threadpool *pool_of(int threads)
{
    struct err why = { 0 };
    struct threadpool *pool;
    const struct threadpool_options o = { .threads = threads };
    CHECK_OK(threadpool_open(&pool, &o, &why));
    return pool;
}

static uint8_t code_nearest(float v, int bits)
{
    return (uint8_t)fminf(fmaxf(rintf(v), 0), (float)((1 << bits) - 1));
}

/* ---------------------------------------------------------------- hqq */

/* Codes of w [n] as the reference computes them from the groups. */
static void hqq_codes(const float *w, int64_t n, const struct hqq_options *o, const struct hqq_group *groups,
                      uint8_t *codes)
{
    const int64_t count = n / o->group;
    for (int64_t i = 0; i < n; i++) {
        const struct hqq_group *g = &groups[o->axis == 1 ? i / o->group : i % count];
        codes[i] = code_nearest(w[i] * g->per_unit + g->zero, o->bits);
    }
}

static const float EIGHT[8] = { -0.31f, 0.12f, 0.05f, 0.44f, -0.08f, 0, 0.27f, -0.2f };

static void hqq_by_hand(void **state)
{
    (void)state;
    static const struct {
        int bits;
        float per_unit, zero;
        uint8_t codes[8];
    } CASES[] = { { 4, 20, 5.9f, { 0, 8, 7, 15, 4, 6, 11, 2 } },
                  { 2, 4, 1.105f, { 0, 2, 1, 3, 1, 1, 2, 0 } } };
    struct err why = { 0 };
    struct threadpool *pool = pool_of(1);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct hqq_options o = hqq_defaults(CASES[i].bits);
        struct hqq_group g;
        uint8_t codes[8];
        o.group = 8;
        CHECK_OK(hqq_solve(EIGHT, 8, &o, pool, &g, &why));
        CHECK_NEAR(g.per_unit, CASES[i].per_unit, 1e-5);
        CHECK_NEAR(g.zero, CASES[i].zero, 1e-6);
        hqq_codes(EIGHT, 8, &o, &g, codes);
        assert_memory_equal(codes, CASES[i].codes, 8);
    }
    threadpool_close(pool);
    CHECK_EQ(shrink(0, 0.7, 10), 0);
    CHECK_EQ(shrink(0.1f, 0.7, 10), 0);
    CHECK_NEAR(shrink(-0.5f, 0.7, 10), -(0.5 - 0.1 * pow(0.5, -0.3)), 1e-7);
    const float floor = shrink_floor(0.7, 10);
    CHECK_EQ(shrink(floor, 0.7, 10), 0);
    CHECK_LT(0, shrink(1.01f * floor, 0.7, 10));
}

/* The reference's packing: distant parts of the reshaped matrix share a word, the first in the highest bits.
 */
static void unpack_hqq(const char *name, int bits, int rows, int width, uint8_t *codes)
{
    static uint8_t bytes[ALL];
    static int32_t words[ALL / 8];
    if (bits == 3) {
        const int part = (rows + 9) / 10;
        CHECK_EQ(load(name, words, sizeof words), (int64_t)part * width * 4);
        for (int i = 0; i < rows * width; i++) {
            const int row = i / width, from = row / part;
            codes[i] = (uint8_t)(words[row % part * width + i % width] >> (27 - 3 * from) & 7);
        }
        return;
    }
    const int each = 8 / bits, part = rows / each;
    CHECK_EQ(load(name, bytes, sizeof bytes), (int64_t)part * width);
    for (int i = 0; i < rows * width; i++) {
        const int row = i / width, from = row / part;
        codes[i] = (uint8_t)(bytes[row % part * width + i % width] >> (8 - bits * (from + 1)) &
                             ((1 << bits) - 1));
    }
}

static void hqq_is_the_peers(void **state)
{
    (void)state;
    char path[512], name[64];
    GOLDEN_OR_SKIP(path);
    static float w[ALL], scale[ALL / 64], zero[ALL / 64];
    static uint8_t want[ALL], got[ALL];
    static struct hqq_group groups[ALL / 64];
    struct err why = { 0 };
    load_weight(w);
    for (int bits = 2; bits <= 8; bits += bits == 4 ? 4 : 1)
        for (int axis = 0; axis <= 1; axis++)
            for (int threads = 1; threads <= 3; threads += 2) {
                struct threadpool *pool = pool_of(threads);
                struct hqq_options o = hqq_defaults(bits);
                o.axis = axis;
                CHECK_OK(hqq_solve(w, ALL, &o, pool, groups, &why));
                snprintf(name, sizeof name, "hqq/b%d.axis%d.scale.f32", bits, axis);
                LOAD(name, scale);
                snprintf(name, sizeof name, "hqq/b%d.axis%d.zero.f32", bits, axis);
                LOAD(name, zero);
                for (int g = 0; g < ALL / 64; g++) {
                    CHECK_NEAR(1 / groups[g].per_unit, scale[g], 1e-6 * scale[g]);
                    CHECK_NEAR(groups[g].zero, zero[g], bits == 8 ? 0.02 : 5e-5);
                    groups[g].zero = zero[g];
                }
                snprintf(name, sizeof name, "hqq/b%d.axis%d.packed.%s", bits, axis, bits == 3 ? "i32" : "u8");
                unpack_hqq(name, bits, axis == 1 ? ALL / 64 : 64, axis == 1 ? 64 : ALL / 64, want);
                hqq_codes(w, ALL, &o, groups, got);
                assert_memory_equal(got, want, ALL);
                threadpool_close(pool);
            }
}

/* ---------------------------------------------------------------- quanto */

/* Codes of w [n] as the reference computes them from the groups. */
static void quanto_codes(const float *w, int64_t n, const struct quanto_options *o,
                         const struct quanto_group *groups, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++) {
        const struct quanto_group *g = &groups[i / o->group];
        codes[i] = code_nearest(
            o->zeropoint ? rintf(w[i] / g->scale) + g->shift : (w[i] + g->shift) / g->scale, o->bits);
    }
}

static const float OTHER_EIGHT[8] = { 0.5f, -1.25f, 3, 0, -0.75f, 2.2f, 1.1f, -2.6f };

static void quanto_by_hand(void **state)
{
    (void)state;
    static const struct {
        int bits;
        float scale;
        int zero;
        uint8_t codes[8], whole[8];
    } CASES[] = { { 4, 0.37333333f, 7, { 8, 4, 15, 7, 5, 13, 10, 0 }, { 8, 4, 15, 7, 5, 13, 10, 0 } },
                  { 2, 1.8666667f, 1, { 2, 1, 3, 1, 1, 3, 2, 0 }, { 1, 0, 3, 1, 1, 2, 2, 0 } } };
    struct err why = { 0 };
    struct threadpool *pool = pool_of(1);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct quanto_options o = quanto_defaults(CASES[i].bits, 8);
        struct quanto_group g;
        uint8_t codes[8];
        CHECK_OK(quanto_solve(OTHER_EIGHT, 8, &o, pool, &g, &why));
        CHECK_EQ(g.scale, CASES[i].scale);
        CHECK_EQ(g.shift, 2.6f);
        quanto_codes(OTHER_EIGHT, 8, &o, &g, codes);
        assert_memory_equal(codes, CASES[i].codes, 8);
        o.zeropoint = true;
        CHECK_OK(quanto_solve(OTHER_EIGHT, 8, &o, pool, &g, &why));
        CHECK_EQ(g.scale, CASES[i].scale);
        CHECK_EQ(g.shift, (float)CASES[i].zero);
        quanto_codes(OTHER_EIGHT, 8, &o, &g, codes);
        assert_memory_equal(codes, CASES[i].whole, 8);
    }
    threadpool_close(pool);
    static const int SIZES[][2] = { { 4096, 128 }, { 192, 96 }, { 320, 64 }, { 288, 96 },
                                    { 352, 32 },   { 129, 0 },  { 128, 0 },  { 64, 0 } };
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) CHECK_EQ(quanto_group_size(SIZES[i][0]), SIZES[i][1]);
}

static void quanto_is_the_peers(void **state)
{
    (void)state;
    char path[512], name[64];
    GOLDEN_OR_SKIP(path);
    enum { GROUPS = ALL / 128 };
    static const char *const KINDS[] = { "max", "hqq", "max.zeropoint" };
    static float w[ALL], scale[GROUPS], shift[GROUPS];
    static uint8_t want[ALL], got[ALL], whole[GROUPS];
    static struct quanto_group groups[GROUPS];
    struct err why = { 0 };
    load_weight(w);
    for (int bits = 2; bits <= 4; bits += 2)
        for (size_t k = 0; k < COUNT_OF(KINDS); k++)
            for (int threads = 1; threads <= 3; threads += 2) {
                struct threadpool *pool = pool_of(threads);
                struct quanto_options o = quanto_defaults(bits, 128);
                o.optimizer = k == 1 ? QUANTO_HQQ : QUANTO_MAX;
                o.zeropoint = k == 2;
                CHECK_OK(quanto_solve(w, ALL, &o, pool, groups, &why));
                snprintf(name, sizeof name, "quanto/qint%d.g128.%s.scale.f32", bits, KINDS[k]);
                LOAD(name, scale);
                snprintf(name, sizeof name, "quanto/qint%d.g128.%s.shift.%s", bits, KINDS[k],
                         k == 2 ? "u8" : "f32");
                if (k == 2)
                    LOAD(name, whole);
                else
                    LOAD(name, shift);
                for (int g = 0; g < GROUPS; g++) {
                    CHECK_EQ(groups[g].scale, scale[g]);
                    if (k == 2)
                        CHECK_EQ(groups[g].shift, whole[g]);
                    else
                        CHECK_NEAR(groups[g].shift, shift[g], k == 1 ? 1e-7 : 0);
                }
                quanto_codes(w, ALL, &o, groups, got);
                snprintf(name, sizeof name, "quanto/qint%d.g128.%s.data.u8", bits, KINDS[k]);
                LOAD(name, want);
                assert_memory_equal(got, want, ALL);
                threadpool_close(pool);
            }
}

/* ---------------------------------------------------------------- groups that are hard */

/* Zeros, constants, tiny values beside huge ones: the error of a group stays within steps of its own range.
 */
static void hard_groups(void **state)
{
    (void)state;
    enum { G = 64, GROUPS = 6 };
    static float w[G * GROUPS];
    struct rng r = { 5 };
    for (int k = 0; k < G; k++) {
        w[k] = 0;
        w[G + k] = -0.75f;                           /* constant */
        w[2 * G + k] = k == 9 ? 1e3f : 1e-9f;        /* one outlier */
        w[3 * G + k] = (k % 2 ? 1 : -1) * 3e38f / 2; /* the largest possible range */
        w[4 * G + k] = 7 + 1e-5f * (float)k;         /* a range below HQQ's minimum */
        w[5 * G + k] = rng_gauss(&r, 1e-30);
    }
    struct err why = { 0 };
    struct threadpool *pool = pool_of(2);
    for (int bits = 2; bits <= 8; bits++) {
        struct hqq_options o = hqq_defaults(bits);
        struct hqq_group groups[GROUPS];
        uint8_t codes[G * GROUPS];
        for (int g = 0; g < GROUPS; g++) { /* one at a time, because all groups of a matrix stop together */
            CHECK_OK(hqq_solve(w + g * G, G, &o, pool, &groups[g], &why));
            hqq_codes(w + g * G, G, &o, &groups[g], codes + g * G);
        }
        for (int i = 0; i < G * GROUPS; i++) {
            const struct hqq_group *g = &groups[i / G];
            const double back = (codes[i] - (double)g->zero) / g->per_unit;
            const double step = fmax(1.0 / g->per_unit, fabs(w[i]) * 1e-6);
            CHECK_LT(codes[i], 1 << bits);
            CHECK(isfinite(g->zero));
            CHECK_LT(0, g->per_unit);
            if (i / G != 2) CHECK_LE(fabs(back - w[i]), (g->per_unit == 1 ? 2e-4 : 1.01 * step));
        }
        if (bits != 2 && bits != 4) continue;
        for (int search = 0; search <= 1; search++) {
            struct quanto_options q = quanto_defaults(bits, G);
            struct quanto_group made[GROUPS];
            q.optimizer = search ? QUANTO_HQQ : QUANTO_MAX;
            CHECK_OK(quanto_solve(w, G * GROUPS, &q, pool, made, &why));
            quanto_codes(w, G * GROUPS, &q, made, codes);
            for (int i = 0; i < G * GROUPS; i++) {
                const struct quanto_group *g = &made[i / G];
                const double back = (double)g->scale * codes[i] - g->shift;
                CHECK_LT(codes[i], 1 << bits);
                CHECK_LT(0, g->scale);
                CHECK(isfinite(g->shift));
                if (!search) CHECK_LE(fabs(back - w[i]), 0.51 * g->scale + 1e-6 * fabs(w[i]));
            }
        }
    }
    threadpool_close(pool);
}

/* ---------------------------------------------------------------- bitsandbytes */

static void nested_statistics(void **state)
{
    (void)state;
    static const float FIVE[5] = { 0.5f, 0.75f, 1, 0.25f, 0.625f };
    float largest[3], x[192], absmax[3];
    CHECK_EQ(bnb_offset(FIVE, 5), 0.625f);
    CHECK_EQ(bnb_offset(FIVE, 0), 0);
    bnb_nested(FIVE, 5, 0.625f, 256, largest);
    CHECK_EQ(largest[0], 0.375f);
    bnb_nested(FIVE, 5, 0.625f, 2, largest);
    CHECK_EQ(largest[0], 0.125f);
    CHECK_EQ(largest[1], 0.375f);
    CHECK_EQ(largest[2], 0);
    for (int i = 0; i < 192; i++) x[i] = (float)(i % 2 ? -i : i);
    bnb_absmax(x, 192, 64, absmax);
    CHECK_EQ(absmax[0], 63);
    CHECK_EQ(absmax[1], 127);
    CHECK_EQ(absmax[2], 191);
    bnb_absmax(x, 192, 128, absmax); /* the last block is shorter */
    CHECK_EQ(absmax[0], 127);
    CHECK_EQ(absmax[1], 127);
    CHECK_EQ(absmax[2], 191);
    bnb_absmax(x, 192, 4096, absmax);
    CHECK_EQ(absmax[0], 191);
    CHECK_EQ(absmax[1], 191);
    CHECK_EQ(absmax[2], 191);
}

static void nested_is_the_peers(void **state)
{
    (void)state;
    char path[512];
    GOLDEN_OR_SKIP(path);
    static float w[ALL], absmax[ALL / 64], want[ALL / 64], small[ALL / 32];
    float offset[1], largest[2], found[2];
    load_weight(w);
    LOAD("bnb/nf4.b64.absmax.f32", want);
    bnb_absmax(w, ALL, 64, absmax);
    assert_memory_equal(absmax, want, sizeof want);
    LOAD("bnb/nf4.b64.dq.offset.f32", offset);
    CHECK_EQ(load("bnb/nf4.b64.dq.absmax2.f32", largest, sizeof largest), sizeof(float));
    CHECK_NEAR(bnb_offset(absmax, ALL / 64), offset[0], 1e-6 * offset[0]);
    bnb_nested(absmax, ALL / 64, offset[0], 256, found);
    CHECK_EQ(found[0], largest[0]);
    LOAD("bnb/nf4.b32.absmax.f32", small); /* more than one nested block */
    LOAD("bnb/nf4.b32.dq.offset.f32", offset);
    LOAD("bnb/nf4.b32.dq.absmax2.f32", largest);
    CHECK_NEAR(bnb_offset(small, ALL / 32), offset[0], 1e-6 * offset[0]);
    bnb_nested(small, ALL / 32, offset[0], 256, found);
    assert_memory_equal(found, largest, sizeof largest);
}

/* ---------------------------------------------------------------- rows of bytes */

static void rows_by_hand(void **state)
{
    (void)state;
    static const struct {
        int8_row_fn *row;
        float scale;
        int8_t codes[8];
    } CASES[] = { { eetq_row, 0.0234375f, { 21, -53, 127, 0, -32, 94, 47, -111 } },
                  { int8_observed_row, 0.0235294122f, { 21, -53, 127, 0, -32, 94, 47, -110 } } };
    int8_t codes[8];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        CHECK_EQ(CASES[i].row(OTHER_EIGHT, 8, codes), CASES[i].scale);
        assert_memory_equal(codes, CASES[i].codes, 8);
    }
    static const float W[2][4] = { { 0.0999755859375f, -0.199951171875f, 0.300048828125f, 0.04998779296875f },
                                   { 0.39990234375f, 0.0999755859375f, -0.0999755859375f, -0.25f } };
    static const int8_t CB[2][4] = { { 42, -85, 127, 21 }, { 127, 32, -32, -79 } };
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(llm_int8_row(W[r], 4, codes), W[r][r == 0 ? 2 : 0] / 127);
        assert_memory_equal(codes, CB[r], 4);
    }
}

static void rows_are_the_peers(void **state)
{
    (void)state;
    char path[512];
    GOLDEN_OR_SKIP(path);
    static float w[ALL], scale[N];
    static int8_t codes[ALL], row[K];
    static uint16_t halves[N];
    load_weight(w);
    LOAD("eetq/codes_KxN.i8", codes);
    LOAD("eetq/scale.f16", halves);
    for (int r = 0; r < N; r++) {
        CHECK_EQ(eetq_row(w + r * K, K, row), f16_to_f32(halves[r]));
        for (int k = 0; k < K; k++) CHECK_EQ(row[k], codes[k * N + r]);
    }
    LOAD("observers/weight_per_channel.q.i8", codes);
    LOAD("observers/weight_per_channel.scale.f32", scale);
    for (int r = 0; r < N; r++) {
        CHECK_EQ(int8_observed_row(w + r * K, K, row), scale[r]);
        assert_memory_equal(row, codes + r * K, K);
    }
    LOAD("bnb/int8.CB.i8", codes);
    LOAD("bnb/int8.SCB.f32", scale);
    for (int r = 0; r < N; r++) {
        CHECK_EQ(llm_int8_row(w + r * K, K, row), scale[r] / 127);
        for (int k = 0; k < K; k++) CHECK_LE(abs(row[k] - codes[r * K + k]), 1); /* ties: see 127 / largest */
    }
}

static void hard_int8_rows(void **state)
{
    (void)state;
    static int8_row_fn *const ROWS[] = { eetq_row, llm_int8_row, int8_observed_row };
    static const float LARGEST[] = { 0, 1e-45f, 1e-9f, 1e-4f, 1, 6e4f };
    for (size_t f = 0; f < COUNT_OF(ROWS); f++)
        for (size_t l = 0; l < COUNT_OF(LARGEST); l++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x[64] = { 0 };
                int8_t codes[64];
                x[3] = (float)sign * LARGEST[l], x[5] = 1e-9f * x[3];
                const float scale = ROWS[f](x, 64, codes);
                CHECK_LT(0, scale);
                CHECK(isfinite(scale));
                CHECK_EQ(codes[0], 0);
                CHECK_EQ(codes[63], 0);
                /* f16 keeps nothing below 3e-8, PyTorch no scale below 2^-23: half of that is lost at most.
                 */
                const double stored = f == 0 ? 128 * 0x1p-25 : 6.1e-8;
                CHECK_LE(fabs(x[3] - (double)codes[3] * scale), 1.01 / 127 * LARGEST[l] + stored);
                if (f == 1) CHECK_NE(codes[3], -128);
            }
    float x[8] = { 1e6f, -3e38f, 1, 0, 0, 0, 0, 0 };
    int8_t codes[8];
    for (size_t f = 0; f < COUNT_OF(ROWS); f++) {
        const float scale = ROWS[f](x, 8, codes);
        CHECK(isfinite(scale));
        CHECK_LT(0, scale);
        CHECK_LE(codes[1], -127);
        CHECK_EQ(codes[4], 0);
    }
}

/* ---------------------------------------------------------------- ranges */

static void observed_rule(void **state)
{
    (void)state;
    static const struct {
        float low, high;
        int least, most;
        bool symmetric;
        float scale;
        int zero;
    } CASES[] = {
        { -98.3125f, 119.25f, 0, 255, false, 0.8531862497329712f, 115 },
        { -98.3125f, 119.25f, 0, 127, false, 1.7130905389785767f, 57 },
        { -98.3125f, 119.25f, -128, 127, true, 0.9352940917015076f, 0 },
        { -66.09712982177734f, 118.05150604248047f, 0, 255, false, 0.722151517868042f, 92 },
        { -81.625f, 84.7890625f, 0, 255, false, 0.6526041626930237f, 125 },
        { -98.3125f, 119.56103515625f, 0, 127, false, 1.578162431716919f, 62 },
        { 0, 0, 0, 255, false, 0x1p-23f, 0 },
        { 0, 0, 0, 255, true, 0x1p-23f, 128 },
        { 5, 9, 0, 255, false, 9.0f / 255, 0 },
        { -9, -5, 0, 255, false, 9.0f / 255, 255 },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const struct range r = { CASES[i].low, CASES[i].high };
        const struct affine a = CASES[i].symmetric ? symmetric_observed(r, CASES[i].least, CASES[i].most)
                                                   : affine_observed(r, CASES[i].least, CASES[i].most);
        if (i == 5) continue; /* the golden file has the histogram's extremes here, not the range it chose */
        if (a.scale != CASES[i].scale || a.zero != CASES[i].zero)
            fail_msg("%g..%g: %.9g %d, want %.9g %d", r.low, r.high, a.scale, a.zero, CASES[i].scale,
                     CASES[i].zero);
    }
}

static void histogram_is_pytorchs(void **state)
{
    (void)state;
    char path[512];
    GOLDEN_OR_SKIP(path);
    static float counts[2048];
    LOAD("observers/histogram_single.f32", counts);
    const struct histogram h = { counts, 2048, -98.3125f, 119.25f };
    const struct affine a = affine_observed(range_least_error(&h), 0, 255);
    CHECK_NEAR(a.scale, 0.786114513874054, 1e-7);
    CHECK_EQ(a.zero, 125);
}

/* Four batches that each widen the range. */
static void growing_histogram_is_pytorchs(void **state)
{
    (void)state;
    char path[512];
    GOLDEN_OR_SKIP(path);
    enum { BATCH = 96 * K };
    static uint16_t halves[4 * BATCH];
    static float x[4 * BATCH], counts[HISTOGRAM_BINS];
    static double count[HISTOGRAM_BINS];
    LOAD("in/activation.f16", halves);
    for (int i = 0; i < 4 * BATCH; i++) x[i] = f16_to_f32(halves[i]);
    struct growing_histogram h;
    growing_histogram_init(&h, count);
    for (const float *batch = x; batch < x + 4 * BATCH; batch += BATCH) {
        uint32_t fresh[HISTOGRAM_BINS] = { 0 };
        float low = batch[0], high = batch[0];
        for (int i = 1; i < BATCH; i++) low = fminf(low, batch[i]), high = fmaxf(high, batch[i]);
        growing_histogram_reserve(&h, low, high);
        growing_histogram_count(&h, batch, BATCH, fresh);
        for (int i = 0; i < HISTOGRAM_BINS; i++) count[i] += fresh[i];
    }
    CHECK_EQ(h.low, -98.3125f);
    CHECK_NEAR(h.high, 119.56103515625, 1e-4);
    for (int i = 0; i < HISTOGRAM_BINS; i++) counts[i] = (float)count[i];
    const struct range r = range_least_error(&(struct histogram){ counts, HISTOGRAM_BINS, h.low, h.high });
    const struct affine full = affine_observed(r, 0, 255), reduced = affine_observed(r, 0, 127);
    CHECK_NEAR(full.scale, 0.7859867811203003, 1e-6);
    CHECK_NEAR(reduced.scale, 1.578162431716919, 2e-6);
    CHECK_EQ(full.zero, 125);
    CHECK_EQ(reduced.zero, 62);
}

static void ranges_of_histograms(void **state)
{
    (void)state;
    struct err why = { 0 };
    static const float COUNTS[17] = { 1, 0, 2, 5, 9, 20, 44, 90, 130, 95, 40, 22, 8, 4, 0, 2, 1 };
    const struct histogram h = { COUNTS, 17, -17, 17 };
    struct range r;
    CHECK_OK(range_entropy(&h, 5, &r, &why)); /* half width 2: bins 6..10 of width 2 */
    CHECK_EQ(r.low, -5);
    CHECK_EQ(r.high, 5);
    r = range_percentile(&h, 100);
    CHECK_EQ(r.low, -17);
    CHECK_EQ(r.high, 17);
    r = range_percentile(&h, 99); /* 473 in all: 2.365 may go at either end: 1 + 0, then 1 + 2 is too many */
    CHECK_EQ(r.low, -13);
    CHECK_EQ(r.high, 15);
    static float spread[2048], zeros[2048];
    for (int i = 0; i < 2048; i++) spread[i] = 100; /* a flat histogram is not clipped */
    const struct histogram even = { spread, 2048, -1, 1 };
    r = range_least_error(&even);
    CHECK_LE(r.low, -0.99f);
    CHECK_LE(0.99f, r.high);
    spread[0] = spread[2047] = 1; /* 2 of 2470000 values far outside do not justify a wider range */
    for (int i = 1; i < 2047; i++) spread[i] = i > 900 && i < 1148 ? 10000 : 0;
    r = range_least_error(&even);
    CHECK_LT(-0.9f, r.low);
    CHECK_LT(r.high, 0.9f);
    CHECK_LT(r.low, -0.12f);
    CHECK_LT(0.12f, r.high);
    const struct histogram nothing = { zeros, 2048, 0, 0 };
    r = range_least_error(&nothing);
    CHECK_EQ(r.low, 0);
    CHECK_EQ(r.high, 0);
    r = range_percentile(&nothing, 99.9);
    CHECK(isfinite(r.low));
    CHECK(isfinite(r.high));
    CHECK_OK(range_entropy(&nothing, 128, &r, &why));
    CHECK_EQ(r.low, 0);
    CHECK_EQ(r.high, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hqq_by_hand),
        cmocka_unit_test(hqq_is_the_peers),
        cmocka_unit_test(quanto_by_hand),
        cmocka_unit_test(quanto_is_the_peers),
        cmocka_unit_test(hard_groups),
        cmocka_unit_test(nested_statistics),
        cmocka_unit_test(nested_is_the_peers),
        cmocka_unit_test(rows_by_hand),
        cmocka_unit_test(rows_are_the_peers),
        cmocka_unit_test(hard_int8_rows),
        cmocka_unit_test(observed_rule),
        cmocka_unit_test(histogram_is_pytorchs),
        cmocka_unit_test(growing_histogram_is_pytorchs),
        cmocka_unit_test(ranges_of_histograms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
