/* Proves: the ceilings of an OpenCL device have plausible values for the features it has, and NAN for those
 * it lacks. */
#include "tests/kernels/opencl_here.h"

static void ceilings(void **state)
{
    (void)state;
    struct err why;
    struct device_info d;
    struct device_ceilings c;
    if (!opencl_devices(&d, 1)) {
        print_message("SKIPPED: no OpenCL device here\n");
        skip();
    }
    CHECK_OK(opencl_ceilings(&c, d.name, 0.001, &why));
    CHECK_LT(1e6, c.read_bytes_s);
    CHECK_LT(c.read_bytes_s, 1e15);
    CHECK_LT(1e6, c.copy_bytes_s);
    CHECK_LT(c.copy_bytes_s, 1e15);
    CHECK_LT(1e6, c.to_device_bytes_s);
    CHECK_LT(c.to_device_bytes_s, 1e15);
    CHECK_LT(1e6, c.from_device_bytes_s);
    CHECK_LT(c.from_device_bytes_s, 1e15);
    CHECK_LT(1e8, c.f32_ops_s);
    CHECK_LT(c.f32_ops_s, 1e16);
    CHECK(d.fp16 ? c.f16_ops_s > 1e8 : isnan(c.f16_ops_s));
    CHECK(d.int_dot || d.dp4a ? c.int8_ops_s > 1e8 : isnan(c.int8_ops_s));
}

static void nobody(void **state)
{
    (void)state;
    struct err why;
    struct device_ceilings c;
    CHECK_EQ(opencl_ceilings(&c, "cpu", 0.001, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "cpu");
    CHECK_NAN(c.f32_ops_s);
    CHECK_EQ(opencl_ceilings(&c, "opencl:997", 0.001, &why), ERR_ABSENT);
    CHECK_NAN(c.read_bytes_s);
    CHECK_NAN(c.copy_bytes_s);
    CHECK_NAN(c.to_device_bytes_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ceilings), cmocka_unit_test(nobody) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
