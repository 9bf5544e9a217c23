/* telemetry/probe/ceilings.h - shared by the files about ceilings (internal to telemetry/probe). */
#ifndef QDYNO_TELEMETRY_CEILINGS_H
#define QDYNO_TELEMETRY_CEILINGS_H

#include "telemetry/probe/probe.h"

extern const struct machine_ceilings CEILINGS_UNKNOWN; /* nothing is measured */

#endif
