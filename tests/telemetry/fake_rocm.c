/* tests/telemetry/fake_rocm.c - a library with ROCm SMI's interface: one card where tests/data's AMD box has
 * its first, one elsewhere. */
#include <stdint.h>
#include <stdio.h>

enum { SUCCESS, INVALID = 1, NOT_SUPPORTED = 2 };

int rsmi_init(uint64_t flags);
int rsmi_init(uint64_t flags)
{
    return flags ? INVALID : SUCCESS;
}

int rsmi_shut_down(void);
int rsmi_shut_down(void)
{
    return SUCCESS;
}

int rsmi_num_monitor_devices(uint32_t *n);
int rsmi_num_monitor_devices(uint32_t *n)
{
    *n = 2;
    return SUCCESS;
}

int rsmi_dev_pci_id_get(uint32_t device, uint64_t *id);
int rsmi_dev_pci_id_get(uint32_t device, uint64_t *id)
{
    *id = device ? 0x0300 : 0x4100; /* bus << 8 | device << 3 | function */
    return device > 1 ? INVALID : SUCCESS;
}

int rsmi_dev_name_get(uint32_t device, char *buf, size_t size);
int rsmi_dev_name_get(uint32_t device, char *buf, size_t size)
{
    snprintf(buf, size, "Imaginary Instinct %u", device);
    return device > 1 ? INVALID : SUCCESS;
}

int rsmi_dev_energy_count_get(uint32_t device, uint64_t *count, float *microjoules, uint64_t *time);
int rsmi_dev_energy_count_get(uint32_t device, uint64_t *count, float *microjoules, uint64_t *time)
{
    if (!device) return NOT_SUPPORTED;
    *count = 2000000;
    *microjoules = 15.3F;
    *time = 1;
    return SUCCESS;
}
