/* base/clock.h - a monotonic clock for measuring, and the wall clock for dates. */
#ifndef QDYNO_BASE_CLOCK_H
#define QDYNO_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_ns(void);      /* CLOCK_MONOTONIC: use differences only; comparable between processes */
int64_t clock_unix_ms(void); /* milliseconds since 1970, UTC */
void clock_sleep_ns(int64_t ns);

/* Writes "2026-11-21T18:02:07Z" to buf (at least 21 bytes). Returns buf. */
const char *clock_iso8601(int64_t unix_ms, char *buf, size_t size);

#endif
