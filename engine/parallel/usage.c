/* What ranks used: processor time, time and bytes of exchanges, memory. */
#include "engine/parallel/parallel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SMALL_FILE = 64 << 10 };

enum err_code ranks_usage(struct ranks *r, struct rank_usage *out, struct err *why)
{
    const struct rank_bytes answer = { out, (size_t)ranks_count(r) * sizeof *out };
    const enum err_code rc = ranks_send(r, RANK_OP_USAGE, NULL, 0, why);
    return rc ? rc : ranks_receive_into(r, &answer, 1, why);
}

/* A line "VmHWM: 123 kB" of /proc/self/status in bytes; -1: unknown. */
static int64_t status_bytes(const char *text, const char *field)
{
    const char *at = text ? strstr(text, field) : NULL;
    return at ? strtoll(at + strlen(field), NULL, 10) * 1024 : -1;
}

static struct rank_usage usage_of(const struct rank *r, int64_t plan_bytes)
{
    struct rank_usage u = { .plan_bytes = plan_bytes, .start_rss_bytes = rank_start_bytes(r) };
    struct rusage used;
    char *status = NULL;
    rank_exchanged(r, &u.exchange_s, &u.exchanged_bytes);
    if (!getrusage(RUSAGE_SELF, &used))
        u.cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                  (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    if (file_read(&status, NULL, "/proc/self/status", SMALL_FILE, NULL)) status = NULL;
    u.peak_rss_bytes = status_bytes(status, "VmHWM:");
    u.rss_bytes = status_bytes(status, "VmRSS:");
    free(status);
    return u;
}

void rank_answer_usage(struct rank *r, int64_t plan_bytes)
{
    struct rank_usage mine = usage_of(r, plan_bytes), all[RANKS_MAX];
    int bytes[RANKS_MAX], at[RANKS_MAX];
    const int ranks = rank_place(r)->size;
    for (int i = 0; i < ranks; i++) {
        bytes[i] = (int)sizeof mine;
        at[i] = i * bytes[i];
    }
    rank_module(r)->gather(0, 0, &mine, (int)sizeof mine, all, bytes, at);
    rank_answer(r, NULL, &(struct rank_bytes){ all, (size_t)ranks * sizeof *all }, 1);
}
