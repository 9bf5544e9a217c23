/* telemetry/telemetry.h - includes the public headers of all telemetry modules, for files that do not yet
 * include only the ones they use. Temporary. */
#ifndef QDYNO_TELEMETRY_TELEMETRY_H
#define QDYNO_TELEMETRY_TELEMETRY_H

#include "telemetry/export/export.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/probe/probe.h"
#include "telemetry/recording/recording.h"
#include "telemetry/sensors/sensors.h"
#include "telemetry/sysfs/sysfs.h"

#endif
