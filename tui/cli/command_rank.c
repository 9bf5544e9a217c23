/* qdyno rank: one of the processes of parallel=, and the sensors of its machine. */
#include <math.h>
#include <string.h>

#include "engine/parallel/parallel.h"
#include "engine/worker/worker.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/lib.h"

/* The sensors of processors and memory. Opened at the first reading, because only one rank of a machine reads
 * them. Each rate is the mean since the last reading, so rate times time adds up. */
struct machine_watch {
    struct telemetry *t; /* NULL: not open */
    bool opened;
    double clock_s, energy_j, busy_s;
};

static void watch_read(void *ctx, struct machine_use *out)
{
    struct machine_watch *w = ctx;
    double row[METRIC_SENSOR_COUNT];
    struct err none; /* a machine without sensors: all are unknown */
    const bool first = !w->opened;
    if (first && telemetry_open_host(&w->t, "", &none)) w->t = NULL;
    w->opened = true;
    if (!w->t) return;
    telemetry_sample(w->t, row);
    const double now_s = (double)clock_ns() * 1e-9, passed_s = first ? 0 : now_s - w->clock_s;
    w->clock_s = now_s;
    if (!first) {
        w->energy_j += row[METRIC_CPU_POWER] * passed_s;
        w->busy_s += row[METRIC_CPU_BUSY] * passed_s;
    }
    *out = (struct machine_use){
        .clock_s = now_s,
        .energy_j = w->energy_j,
        .busy_s = w->busy_s,
        .temperature_celsius = row[METRIC_CPU_TEMPERATURE],
        .frequency_hertz = row[METRIC_CPU_FREQUENCY],
        .mem_used_bytes = isnan(row[METRIC_MEM_USED]) ? -1 : (int64_t)row[METRIC_MEM_USED],
    };
}

/* clang-format off */
const struct cli_flag FLAGS_RANK[] = {
    { .name = "--socket", .value = "PATH", .help = "socket of the process that wants the ranks" },
    { .name = NULL },
};
/* clang-format on */

int command_rank(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct machine_watch watch = { 0 };
    const struct machine_sensors sensors = { watch_read, &watch };
    if (!args_has(a, "--socket")) {
        err_set(&why, ERR_USAGE, "qdyno starts this command itself, through mpirun; it needs --socket PATH");
        return cli_fail(a, &why);
    }
    const enum err_code rc = rank_serve(args_text(a, "--socket", ""), &sensors, &g->log, &why);
    telemetry_close(watch.t);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}
