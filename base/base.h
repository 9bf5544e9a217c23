/* base/base.h - public header of base/, on which all other modules depend. It depends on none of them. */
#ifndef QDYNO_BASE_H
#define QDYNO_BASE_H

#include "base/err.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map_guard.h"
#include "base/name_index.h"
#include "base/numa.h"
#include "base/process.h"
#include "base/sink.h"
#include "base/threadpool.h"
#include "base/topology.h"
#include "base/usable_cpus.h"

/* Number of elements of an array (not of a pointer). */
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
