/* base/clock.h - time: monotonic for measuring, wall clock for telling people when. */
#ifndef QDYNO_BASE_CLOCK_H
#define QDYNO_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_ns(void);      /* CLOCK_MONOTONIC: only differences mean something; same in all processes */
int64_t clock_unix_ms(void); /* milliseconds since 1970, UTC */
void clock_sleep_ns(int64_t ns);

/* "2026-11-21T18:02:07Z" into buf (>= 21). Returns buf. */
const char *clock_iso8601(int64_t unix_ms, char *buf, size_t size);

#endif
