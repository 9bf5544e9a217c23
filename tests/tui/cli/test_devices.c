/* Proves: an OpenCL driver that hangs, crashes or exits becomes an error with its reason within the time
 * limit, and does not end the program; without a driver there is no device and no error; PCI addresses
 * match devices to GPUs; unknown values are null. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tui/cli/lib/devices.h"

static void a_bad_driver_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *how;
        double seconds;
        const char *message;
    } DRIVERS[] = {
        { "hang", 0.3, "did not answer within 0.3 s" },
        { "crash", 250, "ended the process (Segmentation fault)" },
        { "exit", 250, "ended the process (it called exit)" },
    };
    setenv("OCL_ICD_VENDORS", FAKE_ICD, 1); /* ocl-icd then loads this driver only */
    setenv("OPENCL_VENDOR_PATH", "/nonexistent", 1);
    for (size_t i = 0; i < COUNT_OF(DRIVERS); i++) {
        struct devices d = { .count = 7 };
        struct err why = { 0 };
        setenv("QDYNO_FAKE_ICD", DRIVERS[i].how, 1);
        assert_int_equal(devices_list(&d, DRIVERS[i].seconds, &why), ERR_INTERNAL);
        assert_int_equal(d.count, 0);
        if (!strstr(why.message, DRIVERS[i].message)) fail_msg("%s: %s", DRIVERS[i].how, why.message);
    }
    unsetenv("QDYNO_FAKE_ICD");
}

static void no_driver_is_no_device(void **state)
{
    (void)state;
    struct devices d = { .count = 7 };
    struct device_ceilings c;
    struct err why = { 0 };
    setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    CHECK_OK(devices_list(&d, 60, &why));
    assert_int_equal(d.count, 0);
    assert_int_equal(devices_measure(&c, "opencl:0", 0.01, &why), ERR_ABSENT);
    CHECK_CONTAINS(why.message, "no OpenCL device");
}

static void devices_match_gpus(void **state)
{
    (void)state;
    struct machine m = { .gpus = 2 };
    struct devices d = { .count = 2 };
    char text[64];
    snprintf(m.gpu[0].bus, sizeof m.gpu[0].bus, "0000:3b:00.0");
    snprintf(m.gpu[1].bus, sizeof m.gpu[1].bus, "0000:5e:00.0");
    d.device[0] = (struct device_info){ .name = "opencl:0",
                                        .pci = "0000:5E:00.0",
                                        .fp16 = true,
                                        .bf16 = true,
                                        .gpu = true,
                                        .compute_units = -1,
                                        .memory_bytes = 1 << 20 };
    d.device[1] = (struct device_info){ .name = "opencl:1" };
    assert_int_equal(device_gpu(&m, &d.device[0]), 1);
    assert_int_equal(device_gpu(&m, &d.device[1]), -1);
    m.gpu[0].bus[0] = 0; /* two unknown addresses do not match */
    assert_int_equal(device_gpu(&m, &d.device[1]), -1);
    assert_string_equal(device_abilities(&d.device[0], text, sizeof text), "fp16 bf16");
    assert_string_equal(device_abilities(&d.device[1], text, sizeof text), "");

    json_t *list = devices_to_json(&d, &m), *first = json_array_get(list, 0),
           *second = json_array_get(list, 1);
    assert_int_equal(json_get_int(first, "gpu_index", -1), 1);
    assert_int_equal(json_get_int(first, "memory_bytes", -1), 1 << 20);
    CHECK(json_is_true(json_object_get(first, "fp16")));
    CHECK(json_is_null(json_object_get(first, "compute_units")));
    CHECK(json_is_null(json_object_get(second, "pci")));
    CHECK(json_is_null(json_object_get(second, "gpu_index")));
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_driver_is_an_error),
        cmocka_unit_test(no_driver_is_no_device),
        cmocka_unit_test(devices_match_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
