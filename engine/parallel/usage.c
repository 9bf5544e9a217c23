/* What ranks used: processor time, time of work and of exchanges, bytes, memory. */
#include "engine/parallel/parallel_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fields/fields.h"
#include "base/sysfs/sysfs.h"

static const struct json_field FIELDS[] = {
    JSON_FIELD(struct rank_usage, cpu_s, "cpu_s", NUM),
    JSON_FIELD(struct rank_usage, work_s, "work_s", NUM),
    JSON_FIELD(struct rank_usage, exchange_s, "exchange_s", NUM),
    JSON_FIELD(struct rank_usage, wait_s, "wait_s", NUM),
    JSON_FIELD(struct rank_usage, exchanged_bytes, "exchanged_bytes", COUNT),
    JSON_FIELD(struct rank_usage, peak_rss_bytes, "peak_rss_bytes", COUNT),
    JSON_FIELD(struct rank_usage, rss_bytes, "rss_bytes", COUNT),
    JSON_FIELD(struct rank_usage, plan_bytes, "plan_bytes", COUNT),
    JSON_FIELD(struct rank_usage, start_rss_bytes, "start_rss_bytes", COUNT),
    JSON_FIELD(struct rank_usage, weight_bytes, "weight_bytes", COUNT),
    JSON_FIELD(struct rank_usage, host, "host", TEXT),
    JSON_FIELD(struct rank_usage, first_of_machine, "first_of_machine", BOOL),
    JSON_FIELD(struct rank_usage, machine.clock_s, "machine_s", NUM),
    JSON_FIELD(struct rank_usage, machine.energy_j, "machine_energy_j", NUM),
    JSON_FIELD(struct rank_usage, machine.busy_s, "machine_busy_s", NUM),
    JSON_FIELD(struct rank_usage, machine.temperature_celsius, "machine_temperature_celsius", NUM),
    JSON_FIELD(struct rank_usage, machine.frequency_hertz, "machine_frequency_hertz", NUM),
    JSON_FIELD(struct rank_usage, machine.mem_used_bytes, "machine_mem_used_bytes", COUNT),
};

json_t *rank_usage_to_json(const struct rank_usage *u)
{
    json_t *o = json_object();
    json_put_fields(o, FIELDS, COUNT_OF(FIELDS), u);
    return o;
}

bool rank_usage_from_json(struct rank_usage *out, const json_t *object)
{
    if (!json_is_object(object)) return false;
    json_clear_fields(FIELDS, COUNT_OF(FIELDS), out);
    json_get_fields(object, FIELDS, COUNT_OF(FIELDS), out);
    return true;
}

/* Busy time is counted in ticks of some ms: in less than this it says nothing. */
static const double BUSY_TICKS_S = 0.1;

struct rank_usage rank_usage_since(const struct rank_usage *now, const struct rank_usage *before)
{
    struct rank_usage u = *now;
    u.cpu_s -= before->cpu_s;
    u.work_s -= before->work_s;
    u.exchange_s -= before->exchange_s;
    u.wait_s -= before->wait_s;
    u.exchanged_bytes -= before->exchanged_bytes;
    u.machine.clock_s -= before->machine.clock_s;
    u.machine.energy_j -= before->machine.energy_j;
    u.machine.busy_s -= before->machine.busy_s;
    if (u.machine.clock_s < BUSY_TICKS_S) u.machine.busy_s = NAN;
    return u;
}

double machine_watts(const struct machine_use *m)
{
    return m->energy_j / m->clock_s;
}

double machine_busy(const struct machine_use *m)
{
    return m->busy_s / m->clock_s;
}

double ranks_other_watts(const struct rank_usage *ranks, int n, double *seconds)
{
    double watts = 0, sum_s = 0;
    int machines = 0;
    for (int i = 1; i < n; i++) {
        if (!ranks[i].first_of_machine) continue;
        watts += machine_watts(&ranks[i].machine);
        sum_s += ranks[i].machine.clock_s;
        machines++;
    }
    *seconds = machines ? sum_s / machines : 0;
    return watts;
}

int rank_usage_list(struct rank_usage out[RANKS_MAX], const json_t *list)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < RANKS_MAX; i++)
        n += rank_usage_from_json(&out[n], json_array_get(list, i));
    return n;
}

static double share_of(double seconds, double whole_s)
{
    return isnan(seconds) || !(whole_s > 0) ? NAN : fmin(fmax(seconds, 0) / whole_s, 1);
}

void rank_shares(double share[RANK_SHARES], const struct rank_usage *ranks, int n, int i)
{
    const struct rank_usage *u = &ranks[i];
    double whole_s = NAN;
    for (int k = 0; k < n; k++) whole_s = fmax(whole_s, ranks[k].work_s);
    /* Exchanges outside of passes can exceed a short pass, and no share may be negative. */
    const double wait_s = isnan(u->wait_s) ? NAN : fmin(u->wait_s, u->exchange_s);
    share[RANK_COMPUTE] = share_of(u->work_s - u->exchange_s, whole_s);
    share[RANK_WAIT] = share_of(wait_s, whole_s);
    share[RANK_EXCHANGE] = share_of(u->exchange_s - wait_s, whole_s);
}

enum err_code ranks_usage(struct ranks *r, struct rank_usage *out, struct err *why)
{
    const struct rank_bytes answer = { out, (size_t)ranks_count(r) * sizeof *out };
    const enum err_code rc = ranks_send(r, RANK_OP_USAGE, NULL, 0, why);
    return rc ? rc : ranks_receive_into(r, &answer, 1, why);
}

/* As rank_usage has it: -1 unknown. */
static int64_t bytes_or_unknown(double bytes)
{
    return isnan(bytes) ? -1 : (int64_t)bytes;
}

static struct rank_usage usage_of(const struct rank *r)
{
    struct rank_usage u = { .work_s = rank_worked(r),
                            .wait_s = rank_waited(r),
                            .start_rss_bytes = rank_start_bytes(r) };
    struct rusage used;
    const struct process_memory memory = sys_process_memory("", 0);
    if (gethostname(u.host, sizeof u.host - 1)) u.host[0] = '\0';
    rank_exchanged(r, &u.exchange_s, &u.exchanged_bytes);
    if (!getrusage(RUSAGE_SELF, &used))
        u.cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                  (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    u.peak_rss_bytes = bytes_or_unknown(memory.peak_bytes);
    u.rss_bytes = bytes_or_unknown(memory.rss_bytes);
    u.first_of_machine = rank_place(r)->here == 0;
    rank_read_sensors(r, &u.machine);
    return u;
}

void rank_answer_usage(struct rank *r, int64_t plan_bytes, int64_t weight_bytes)
{
    struct rank_usage mine = usage_of(r), all[RANKS_MAX];
    int bytes[RANKS_MAX], at[RANKS_MAX];
    const int ranks = rank_place(r)->size;
    mine.plan_bytes = plan_bytes;
    mine.weight_bytes = weight_bytes;
    for (int i = 0; i < ranks; i++) {
        bytes[i] = (int)sizeof mine;
        at[i] = i * bytes[i];
    }
    rank_module(r)->gather(0, 0, &mine, (int)sizeof mine, all, bytes, at);
    rank_answer(r, NULL, &(struct rank_bytes){ all, (size_t)ranks * sizeof *all }, 1);
}
