/* Proves: the k largest numbers of rows on an OpenCL device equal those of a sort on the host, in order,
 * equal ones by index and NaN first: for one and many results, short rows, rows that take several passes, and
 * more rows than one launch handles. */
#include "tests/kernels/opencl_here.h"
#include "tests/kernels/top_scene.h"

static void tops(void **state)
{
    (void)state;
    static const struct {
        int n, cols;
    } SHAPES[] = { { 1, 1 }, { 3, 5 }, { 2, 1024 }, { 35, 1025 }, { 2, 40000 }, { 1, 1100000 } };
    struct backend_info info;
    struct top_scene s = { .b = opencl_or_skip(1, 64) };
    backend_describe(s.b, &info);
    s.device = info.device;
    for (size_t i = 0; i < COUNT_OF(SHAPES); i++) check_shape(&s, SHAPES[i].n, SHAPES[i].cols);
    check_odd(&s);
    backend_close(s.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tops) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
