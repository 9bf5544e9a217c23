/* telemetry/cpuid_none.c - processors without a CPUID instruction. */
#include "telemetry/machine.h"

json_t *cpuid_to_json(void)
{
    return NULL;
}
