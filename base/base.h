/* base/base.h - the door of base/: what every other room stands on. Depends on nothing of ours. */
#ifndef QDYNO_BASE_H
#define QDYNO_BASE_H

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/numa.h"
#include "base/threadpool.h"

/* Number of elements of a true array. */
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
