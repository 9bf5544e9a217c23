#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t now(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ns(void)
{
    return now(CLOCK_MONOTONIC);
}

int64_t clock_unix_ms(void)
{
    return now(CLOCK_REALTIME) / 1000000;
}

void clock_sleep_ns(int64_t ns)
{
    struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
    while (ns > 0 && nanosleep(&t, &t) && errno == EINTR) {}
}

const char *clock_iso8601(int64_t unix_ms, char *buf, size_t size)
{
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;
    if (!gmtime_r(&s, &tm) || !strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm)) snprintf(buf, size, "n/a");
    return buf;
}
