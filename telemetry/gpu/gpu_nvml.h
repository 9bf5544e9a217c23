/* telemetry/gpu/gpu_nvml.h - the queries to NVIDIA's library NVML (internal to telemetry/gpu). */
#ifndef QDYNO_TELEMETRY_GPU_NVML_H
#define QDYNO_TELEMETRY_GPU_NVML_H

#include "telemetry/gpu/gpu_library.h"

/* Error codes of the library that this program distinguishes. */
enum {
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_GPU_IS_LOST = 15
};

/* Indices of the library's table of queries. */
enum nvml_query {
    NAME,
    UUID,
    DRIVER,
    BUS,
    CAPABILITY,
    MEMORY_2,
    MEMORY_1,
    BUSY,
    POWER,
    POWER_LIMIT,
    POWER_INSTANT,
    ENERGY,
    TEMPERATURE,
    MEMORY_TEMPERATURE,
    FAN,
    CLOCK_CORE,
    CLOCK_CORE_MAX,
    CLOCK_MEMORY,
    REASONS,
    REASONS_OLD, /* the name before driver 535 */
    LINK_GENERATION,
    LINK_WIDTH,
    PCIE_COUNT_TX,
    PCIE_COUNT_RX,
    PCIE_TX,
    PCIE_RX,
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    MIG_MODE,
    MIG_DEVICES,
    COMPUTE,
    GRAPHICS,
    QUERIES,
};

extern const struct gpu_library_kind NVML;

#endif
