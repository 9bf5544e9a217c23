/* Proves: repacked weights decode to the same bits as the originals, also for random bytes and with any
 * number of threads; weights are repacked only with the option, and backend_describe reports it. */
#include "tests/kernels/numbers.h"

enum { ROWS = 37 };

static struct backend *backend_with(bool repack, int threads, struct backend_options *o)
{
    struct err why = { 0 };
    struct backend *b;
    *o = (struct backend_options){ .threads = threads, .isa = isa_detect(), .repack = repack };
    CHECK_OK(backend_open(&b, "cpu", o, &why));
    return b;
}

static void same_numbers(const struct format *f, int64_t cols, int threads, struct rng *r)
{
    struct err why = { 0 };
    struct backend_options o;
    struct backend_info info;
    struct weight w;
    struct backend *b = backend_with(true, threads, &o);
    const struct format *held = backend_held_format(&o, f);
    const size_t bytes = (size_t)(ROWS * format_row_bytes(f, cols));
    uint8_t *file = guarded(bytes, 0);
    for (size_t i = 0; i < bytes; i++)
        file[i] = (uint8_t)rng_u32(r); /* scales of all kinds, codes nobody writes */
    CHECK_OK(backend_weight_bind(b, &w, f, ROWS, cols, NULL, file, &why));
    CHECK_EQ(w.format, held);
    CHECK(w.owned);
    CHECK_EQ(w.data, w.owned);
    backend_describe(b, &info);
    CHECK_EQ(info.repacked_bytes, ROWS * format_row_bytes(held, cols));
    CHECK_EQ(info.copied_bytes, info.repacked_bytes);
    float *want = malloc((size_t)(ROWS * cols) * sizeof *want),
          *got = malloc((size_t)(ROWS * cols) * sizeof *got);
    format_decode_rows(f, file, want, ROWS, cols);
    format_decode_rows(held, w.data, got, ROWS, cols);
    assert_memory_equal(want, got, (size_t)(ROWS * cols) * sizeof *want);
    free(want);
    free(got);
    backend_weight_release(b, &w);
    backend_close(b);
}

static void held_elsewhere(void **state)
{
    (void)state;
    static const int64_t COLS[] = { 256, 2048, 768 };
    const struct backend_options asked = { .repack = true }, not_asked = { .repack = false };
    struct rng r = { 5 };
    int changed = 0;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        CHECK_EQ(backend_held_format(&not_asked, f), f);
        if (backend_held_format(&asked, f) == f) continue;
        changed++;
        for (size_t c = 0; c < COUNT_OF(COLS); c++)
            for (int threads = 1; threads <= 3; threads++) same_numbers(f, COLS[c], threads, &r);
    }
    CHECK_GT(changed, 0);
    CHECK_EQ(backend_held_format(&asked, &FORMATS[FORMAT_TQ1_0]), &FORMATS[FORMAT_TQ2_0]);
    CHECK_EQ(backend_held_format(&asked, &FORMATS[FORMAT_Q4_0]), &FORMATS[FORMAT_Q4_0]);
}

static void in_place_otherwise(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct backend_options o;
    struct backend_info info;
    struct weight w;
    static const uint8_t BYTES[4 * 66];
    for (int repack = 0; repack < 2; repack++) {
        const enum format_id id = repack ? FORMAT_TQ2_0 : FORMAT_TQ1_0;
        struct backend *b = backend_with(repack, 1, &o);
        CHECK_OK(backend_weight_bind(b, &w, &FORMATS[id], 2, 512, NULL, BYTES, &why));
        CHECK_EQ(w.format, &FORMATS[id]);
        CHECK_EQ(w.data, BYTES);
        CHECK(!w.owned);
        backend_describe(b, &info);
        CHECK_EQ(info.copied_bytes, 0);
        CHECK_EQ(info.repacked_bytes, 0);
        backend_weight_release(b, &w);
        backend_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_elsewhere),
        cmocka_unit_test(in_place_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
