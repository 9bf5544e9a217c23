/* Proves: on an OpenCL device the logits of every architecture and weight format are those of another engine,
 * in one batch, cut into small ones and one token at a time, with all layers there or the first one only;
 * plans say to the byte what the device takes, also of methods that keep an order or divisors of inputs. */
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

/* The configs that the plan is compared with what is allocated in. */
static const char *const PLANNED[] = {
    EXACT ",batch=16,device=opencl:0",
    EXACT ",batch=16,device=opencl:0,gpu_layers=1",
    "q4_0,threads=1,kv=f16,device=opencl:0",
    "gptq,bits=4,group_size=64,desc_act=true,nsamples=2,model_seqlen=64,threads=1,device=opencl:0,calib=",
    "smoothquant,threads=1,device=opencl:0,calib=",
};

static void test_plan(void **state)
{
    (void)state;
    struct device_info device;
    char path[4096], text[4096], line[8192];
    SHARED_OR_SKIP(path, "models/repacked/stories260K-f32.gguf");
    SHARED_OR_SKIP(text, "text/tinystories-valid-excerpt.txt");
    if (!opencl_devices(&device, 1)) skip();
    for (size_t i = 0; i < COUNT_OF(PLANNED); i++) {
        struct backend_info got;
        const bool learns = PLANNED[i][strlen(PLANNED[i]) - 1] == '=';
        snprintf(line, sizeof line, "%s%s", PLANNED[i], learns ? text : "");
        struct model *m = session_open(path, line, 64, 2);
        const struct memory_plan *p = model_plan(m);
        model_backend(m, &got);
        if (got.device_bytes != p->device || p->device <= 0)
            fail_msg("%s: %lld bytes are planned on the device, %lld are taken", PLANNED[i],
                     (long long)p->device, (long long)got.device_bytes);
        model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_opencl), cmocka_unit_test(test_plan) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
