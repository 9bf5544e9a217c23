/* Proves, on a made-up machine with two memory nodes: products with copied, interleaved and replicated
 * weights have the same bits as with weights where the file has them; the bytes that copies take are those of
 * the plan; and each thread multiplies with the copy of its own node. hwloc binds nothing there: on which
 * node a page really is, only a machine with several nodes can show. */
#include "kernels/cpu.h"
#include "tests/kernels/numbers.h"

static const enum numa_policy POLICIES[] = { NUMA_OFF, NUMA_SPREAD, NUMA_LOCAL, NUMA_INTERLEAVE,
                                             NUMA_REPLICATE };
static const int COPIES[] = { 0, 0, 1, 1, 2 }, NODES[] = { 0, 2, 1, 2, 2 };

enum { ROWS = 200, COLS = 256, MOST = 40 };

struct matrix {
    const struct format *f;
    uint8_t *bytes;
    int64_t size;
};

static struct matrix matrix_make(enum format_id id, struct rng *r)
{
    struct matrix m = { .f = &FORMATS[id] };
    float *values = malloc(ROWS * COLS * sizeof *values);
    fill_gauss(r, values, ROWS * COLS, 0.1);
    m.size = ROWS * format_row_bytes(m.f, COLS);
    m.bytes = malloc((size_t)m.size);
    format_encode_rows(m.f, values, m.bytes, ROWS, COLS);
    free(values);
    return m;
}

static struct backend *open_with(enum numa_policy policy, struct backend_options *o)
{
    struct err why;
    struct backend *b;
    *o = (struct backend_options){ .threads = 4, .isa = isa_detect(), .numa = policy, .nodes = 2 };
    CHECK_OK(backend_open(&b, "cpu", o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = MOST, .cols = 1 << 12 }, &why));
    return b;
}

/* y [n][ROWS] */
static void multiply(struct backend *b, const struct weight *w, const float *x, int n, float *y)
{
    backend_matmul(b, &(struct matmul){ .w = w, .x = x, .x_stride = COLS, .n = n, .y = y, .y_stride = ROWS },
                   1);
}

static void check_format(enum format_id id)
{
    static const int NS[] = { 1, 3, 9, MOST };
    struct rng r = { 3 };
    const struct matrix m = matrix_make(id, &r);
    float *x = malloc(MOST * COLS * sizeof *x), *want = calloc(COUNT_OF(NS) * MOST * ROWS, sizeof *want),
          *got = calloc(MOST * ROWS, sizeof *got);
    fill_gauss(&r, x, MOST * COLS, 1);
    for (size_t p = 0; p < COUNT_OF(POLICIES); p++) {
        struct err why;
        struct backend_options o;
        struct backend_info info;
        struct weight w;
        struct backend *b = open_with(POLICIES[p], &o);
        CHECK_OK(backend_weight_bind(b, &w, m.f, ROWS, COLS, NULL, m.bytes, &why));
        backend_describe(b, &info);
        assert_int_equal(info.nodes, NODES[p]);
        assert_int_equal(info.copied_bytes, COPIES[p] * m.size);
        const int64_t planned = backend_weight_bytes("cpu", &o, m.f, ROWS, COLS, 0);
        CHECK_LE(MAX(COPIES[p], 1) * m.size, planned);
        CHECK_LT(planned, MAX(COPIES[p], 1) * (m.size + 64));
        CHECK_EQ(w.copies != NULL, POLICIES[p] == NUMA_REPLICATE);
        for (size_t k = 0; k < COUNT_OF(NS); k++) {
            float *y = p ? got : want + k * MOST * ROWS;
            multiply(b, &w, x, NS[k], y);
            if (memcmp(y, want + k * MOST * ROWS, (size_t)(NS[k] * ROWS) * sizeof *y))
                fail_msg("%s, policy %d, %d rows: other bits", m.f->name, POLICIES[p], NS[k]);
        }
        float *memory = backend_alloc(b, 1 << 20); /* zeroed whoever does it */
        for (int i = 0; i < 1 << 18; i++) CHECK_EQ(memory[i], 0);
        backend_free(b, memory);
        backend_weight_release(b, &w);
        backend_close(b);
    }
    free(m.bytes), free(x), free(want), free(got);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const enum format_id IDS[] = { FORMAT_F32, FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_INT8 };
    for (size_t i = 0; i < COUNT_OF(IDS); i++) check_format(IDS[i]);
}

/* After the copy of node 1 was doubled, a row of the result is as before (computed on node 0) or twice that.
 */
static void check_own_copy(int n)
{
    enum { WIDE = 1 << 12, TRIES = 20000 };
    struct err why;
    struct backend_options o;
    struct weight w;
    struct backend *b = open_with(NUMA_REPLICATE, &o);
    float *values = malloc((size_t)WIDE * COLS * sizeof *values), *x = malloc((size_t)n * COLS * sizeof *x),
          *y = malloc((size_t)n * WIDE * sizeof *y);
    for (int i = 0; i < WIDE * COLS; i++) values[i] = 1;
    for (int i = 0; i < n * COLS; i++) x[i] = 1;
    CHECK_OK(backend_weight_bind(b, &w, &FORMATS[FORMAT_F32], WIDE, COLS, NULL, values, &why));
    CHECK(w.copies[1] == w.owned && w.copies[2] && w.copies[2] != w.owned);
    CHECK(cpu_weight_of(&w, -1) == w.owned && cpu_weight_of(&w, 0) == w.owned);
    CHECK(cpu_weight_of(&w, 1) == w.copies[2]);
    struct weight part = w; /* rows from the 16th on */
    part.data = (const float *)w.data + (ptrdiff_t)16 * COLS;
    CHECK(cpu_weight_of(&part, 1) == (const uint8_t *)w.copies[2] + (size_t)16 * COLS * sizeof(float));
    for (int i = 0; i < WIDE * COLS; i++) ((float *)w.copies[2])[i] = 2;
    bool near = false, far = false;
    for (int t = 0; t < TRIES && !(near && far); t++) { /* until threads of both nodes have had work */
        backend_matmul(
            b, &(struct matmul){ .w = &w, .x = x, .x_stride = COLS, .n = n, .y = y, .y_stride = WIDE }, 1);
        for (int i = 0; i < n * WIDE; i++) {
            if (y[i] != COLS && y[i] != 2 * COLS) fail_msg("%d rows: %g is of neither copy", n, (double)y[i]);
            near |= y[i] == COLS;
            far |= y[i] == 2 * COLS;
        }
    }
    CHECK(near);
    CHECK(far);
    backend_weight_release(b, &w);
    backend_close(b);
    free(values), free(x), free(y);
}

static void test_own_copy(void **state)
{
    (void)state;
    check_own_copy(1);    /* GEMV */
    check_own_copy(MOST); /* GEMM */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits), cmocka_unit_test(test_own_copy) };
    if (setenv("HWLOC_SYNTHETIC", "NUMANode:2 Core:2 PU:1", 1)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
