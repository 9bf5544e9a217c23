/* Proves: on an OpenCL device the logits of every architecture and weight format are those of another engine,
 * in one batch, cut into small ones and one token at a time, with all layers there or the first one only;
 * plans say what the device takes, and what cannot be is refused with a reason. */
#include "tests/engine/golden.h"

/* Pieces of 8: each number of rows has kernels of its own, which take time to compile. All layers there, or
 * the first one only. */
static void check_device(const struct entry *e)
{
    check_config(e, EXACT ",batch=16,device=opencl:0", 8);
    if (e->weights[0] == 'F') check_config(e, EXACT ",batch=16,device=opencl:0,gpu_layers=1", 8);
}

static void test_opencl(void **state)
{
    (void)state;
    struct device_info device;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    if (!opencl_devices(&device, 1)) {
        print_message("SKIPPED: no OpenCL device here (pocl-opencl-icd is one)\n");
        skip();
    }
    assert_in_range(for_entries(true, check_device), 32, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_opencl) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
