/* telemetry/machine/cpuid_x86.c - the raw answers of the CPUID instruction, for recordings: an older kernel's
 * /proc/cpuinfo does not list all features. Leaf 3, which holds a serial number, is omitted. */
#include <cpuid.h>

#include "telemetry/machine/machine.h"

static void put_register(json_t *o, const char *name, uint32_t v)
{
    char text[16];
    snprintf(text, sizeof text, "0x%08x", v);
    json_put_str(o, name, text);
}

static void put_leaf(json_t *list, uint32_t leaf, uint32_t subleaf)
{
    uint32_t a, b, c, d;
    json_t *o = json_object();
    __cpuid_count(leaf, subleaf, a, b, c, d);
    put_register(o, "leaf", leaf);
    json_put_int(o, "subleaf", subleaf);
    put_register(o, "eax", a);
    put_register(o, "ebx", b);
    put_register(o, "ecx", c);
    put_register(o, "edx", d);
    json_array_append_new(list, o);
}

json_t *machine_cpuid_to_json(void)
{
    /* leaves by range, and how many of their subleaves to record */
    static const struct {
        uint32_t base, leaf, subleaves;
    } LEAVES[] = {
        { .leaf = 0x0, .subleaves = 1 },
        { .leaf = 0x1, .subleaves = 1 },
        { .leaf = 0x2, .subleaves = 1 },
        { .leaf = 0x4, .subleaves = 5 },
        { .leaf = 0x6, .subleaves = 1 },
        { .leaf = 0x7, .subleaves = 3 },
        { .leaf = 0xa, .subleaves = 1 },
        { .leaf = 0xb, .subleaves = 3 },
        { .leaf = 0xd, .subleaves = 2 },
        { .leaf = 0x14, .subleaves = 2 },
        { .leaf = 0x15, .subleaves = 1 },
        { .leaf = 0x16, .subleaves = 1 },
        { .leaf = 0x1a, .subleaves = 1 },
        { .leaf = 0x1d, .subleaves = 2 },
        { .leaf = 0x1e, .subleaves = 2 },
        { .leaf = 0x1f, .subleaves = 3 },
        { .leaf = 0x24, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000000, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000001, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000002, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000003, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000004, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000005, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000006, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000007, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x80000008, .subleaves = 1 },
        { .base = 0x80000000, .leaf = 0x8000001d, .subleaves = 5 },
        { .base = 0x80000000, .leaf = 0x8000001e, .subleaves = 1 },
    };
    json_t *o = json_object(), *list = json_array();
    uint32_t a, b, c = 0, d;
    for (size_t i = 0; i < COUNT_OF(LEAVES); i++) {
        const uint32_t most = (uint32_t)__get_cpuid_max(LEAVES[i].base, NULL);
        for (uint32_t s = 0; s < LEAVES[i].subleaves && LEAVES[i].leaf <= most; s++)
            put_leaf(list, LEAVES[i].leaf, s);
    }
    json_put(o, "cpuid", list);
    json_put(o, "xcr0",
             json_null()); /* the register sets that the kernel saves; readable if OSXSAVE is set */
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        put_register(o, "xcr0", low);
    }
    return o;
}
