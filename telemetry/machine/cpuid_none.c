/* telemetry/machine/cpuid_none.c - processors without a CPUID instruction. */
#include "telemetry/machine/machine.h"

json_t *machine_cpuid_to_json(void)
{
    return NULL;
}
