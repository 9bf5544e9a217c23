/* tests/telemetry/fake_opencl.c - a library with OpenCL's interface: a platform of one processor, and one of
 * two devices, an ARM GPU without a place on a bus and an AMD GPU at 0000:03:00.0. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, DEVICE_NOT_FOUND = -1, INVALID_VALUE = -30, INVALID_DEVICE = -33 };
static char platforms[2], devices[2];

int clGetPlatformIDs(uint32_t n, void **out, uint32_t *count);
int clGetPlatformIDs(uint32_t n, void **out, uint32_t *count)
{
    for (uint32_t i = 0; i < n && i < 2; i++) out[i] = &platforms[i];
    *count = 2;
    return SUCCESS;
}

int clGetDeviceIDs(void *platform, uint64_t type, uint32_t n, void **out, uint32_t *count);
int clGetDeviceIDs(void *platform, uint64_t type, uint32_t n, void **out, uint32_t *count)
{
    if (platform == &platforms[0] || !(type & 1 << 2)) return DEVICE_NOT_FOUND;
    for (uint32_t i = 0; i < n && i < 2; i++) out[i] = &devices[i];
    *count = 2;
    return SUCCESS;
}

static int give(const void *bytes, size_t have, size_t size, void *out)
{
    if (size < have) return INVALID_VALUE;
    memcpy(out, bytes, have);
    return SUCCESS;
}

int clGetDeviceInfo(void *device, uint32_t what, size_t size, void *out, size_t *needed);
int clGetDeviceInfo(void *device, uint32_t what, size_t size, void *out, size_t *needed)
{
    const int amd = device == &devices[1];
    const char *name = amd ? "gfx1100" : "Mali-G610", *driver = amd ? "3581.0" : "r38p1";
    const uint32_t vendor = amd ? 0x1002 : 0x13b5, mhz = amd ? 2500 : 1000, bus[4] = { 0, 3, 0, 0 };
    const uint64_t bytes = amd ? 25753026560u : 4000000000u;
    (void)needed;
    if (device != &devices[0] && !amd) return INVALID_DEVICE;
    switch (what) {
    case 0x102b: return give(name, strlen(name) + 1, size, out);
    case 0x102d: return give(driver, strlen(driver) + 1, size, out);
    case 0x1001: return give(&vendor, sizeof vendor, size, out);
    case 0x100c: return give(&mhz, sizeof mhz, size, out);
    case 0x101f: return give(&bytes, sizeof bytes, size, out);
    case 0x410f: return amd ? give(bus, sizeof bus, size, out) : INVALID_VALUE;
    default: return INVALID_VALUE;
    }
}
