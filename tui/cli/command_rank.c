/* qdyno rank: one of the processes of parallel=, and the sensors of its machine. */
#include <math.h>

#include "engine/parallel/parallel.h"
#include "engine/worker/worker.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"

/* The integral of a sensor over time. Each reading is the sensor's mean since the reading before, so reading
 * times time adds up. */
struct integral {
    double sum, until_s;
    bool known; /* there was a reading */
};

/* Sensors that count in ticks show nothing new after less than this; what they miss comes with the next
 * reading. */
static const double TICKS_S = 0.1;

/* The sum so far; NAN: no reading yet, or none for TICKS_S. */
static double integral_add(struct integral *x, double reading, double now_s)
{
    if (isnan(reading)) return x->known && now_s - x->until_s < TICKS_S ? x->sum : (double)NAN;
    x->sum += reading * (now_s - x->until_s);
    x->until_s = now_s;
    x->known = true;
    return x->sum;
}

/* The sensors of processors and memory, opened at the first reading, because only one rank of a machine reads
 * them. */
struct machine_watch {
    struct telemetry *t; /* NULL: not open */
    struct integral energy, busy;
};

static void watch_read(void *ctx, struct machine_use *out)
{
    struct machine_watch *w = ctx;
    double row[METRIC_SENSOR_COUNT];
    struct err none; /* a machine without sensors: all are unknown */
    const bool first = !w->t;
    if (first && telemetry_open_host(&w->t, "", &none)) return;
    telemetry_sample(w->t, row);
    const double now_s = (double)clock_ns() * 1e-9;
    if (first) w->energy.until_s = w->busy.until_s = now_s;
    *out = (struct machine_use){
        .clock_s = now_s,
        .energy_j = integral_add(&w->energy, row[METRIC_CPU_POWER], now_s),
        .busy_s = integral_add(&w->busy, row[METRIC_CPU_BUSY], now_s),
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
